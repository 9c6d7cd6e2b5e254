//! The scripts that are printed: the whole schema for whoever runs it by hand, and the rights of an application.

use mainstay_core::store::Names;

use super::procedure::{Procedure, batches, fill, nested, procedures};
use super::{
    CREATE_LEDGER, CREATE_SCHEMA, LEVEL, LOCK, MIGRATIONS, SETTINGS, SqlServerSchema, procedures_applied,
    recording,
};

/// What whoever runs it reads first. `:on error exit` is a batch of its own: a tool that does not know it refuses that batch alone.
const HEADER: &str = "-- The tables and procedures of Mainstay. Run it as often as you like: what is there stays, procedures are brought up to date.
-- It is one transaction: where it fails, nothing of it is left.
-- Run it with sqlcmd, or in SQLCMD mode: `:on error exit` then stops it at the first error. A tool that does not know that line calls it a syntax
-- error and goes on. So it does behind an error too: each batch behind it then refuses to run (50005), and only the first error matters.
:on error exit
GO
";

/// What every batch begins with. Without it one behind an error would run outside the transaction, which the error has ended, and stay; or the last
/// one would commit what there is, where the error has not ended it.
const UNBROKEN: &str = "IF @@ERROR <> 0 OR @@TRANCOUNT = 0 THROW 50005, N'an earlier batch of this script has failed; nothing of it is left', 1;";

/// Everything, in batches with `GO` between them.
pub(super) fn whole(names: &Names) -> String {
    let mut script = format!(
        "{HEADER}{SETTINGS}\nSET XACT_ABORT ON;\nGO\nBEGIN TRANSACTION;\n{LOCK}\nIF @Got < 0 THROW 50004, N'another deployment is still under way; try again when it has ended', 1;\nGO\n"
    );
    let mut add = |batch: &str| {
        script.push_str(UNBROKEN);
        script.push('\n');
        script.push_str(batch.trim());
        script.push_str("\nGO\n");
    };
    add(LEVEL);
    add(&fill(CREATE_SCHEMA, names));
    let ledger = fill("IF OBJECT_ID(N'\"{{schema:nested}}\".\"mainstay_migration\"', N'U') IS NULL", names);
    add(&format!("{ledger}\nEXEC(N'{}');", nested(&fill(CREATE_LEDGER, names))));
    add(&refusals(names));
    for step in MIGRATIONS {
        let taken = fill(
            "SELECT 1 FROM \"{{schema}}\".\"mainstay_migration\" WHERE \"outbox\" = N'{{outbox:literal}}'",
            names,
        );
        let guard = format!("IF NOT EXISTS ({taken} AND \"version\" = {})", step.version);
        for (sql, queue) in step.parts() {
            for batch in batches(&fill(sql, &names.of(queue))) {
                add(&format!("{guard}\nEXEC(N'{}');", nested(batch)));
            }
        }
        add(&recording(names, &step.applied()));
    }
    for procedure in procedures(names) {
        add(&procedure.preparation());
        add(&making(&procedure));
    }
    add(&recording(names, &procedures_applied()));
    add("COMMIT TRANSACTION;");
    script
}

/// What makes a procedure, behind something else in its batch: by itself `ALTER PROCEDURE` wants to be the first there.
pub(super) fn making(procedure: &Procedure) -> String {
    let definition = procedure.definition();
    match definition == procedure.text {
        true => format!("EXEC(N'{}');", nested(&definition)),
        // Put together by the server, and run in the same way.
        false => definition,
    }
}

/// What the printed script refuses: a schema that a newer version has made, and a step that was taken with another text. Neither is known when it is printed.
fn refusals(names: &Names) -> String {
    let recorded =
        "SELECT 1 FROM \"{{schema}}\".\"mainstay_migration\" WHERE \"outbox\" = N'{{outbox:literal}}' AND";
    let newest = SqlServerSchema::VERSION;
    let mut sql = format!(
        "IF EXISTS ({recorded} \"version\" > {newest}) THROW 50009, N'the schema is of a newer version than this script, which makes version {newest}: print it with the newer program', 1;"
    );
    for step in MIGRATIONS {
        let (version, name, checksum) = (step.version, step.name, step.checksum());
        sql.push_str(&format!(
            "\nIF EXISTS ({recorded} \"version\" = {version} AND \"checksum\" <> N'{checksum}') THROW 50009, N'step {version} ({name}) was taken with another text than that of this script: the database was made by another build, or the record was changed', 1;"
        ));
    }
    fill(&sql, names)
}

/// The procedures that an application calls, with quotes. What only procedures call needs no right of its own: all belong to one owner.
pub(crate) fn granted_names(names: &Names) -> Vec<String> {
    let all = procedures(names).into_iter().filter(|procedure| !procedure.is_internal());
    all.map(|procedure| procedure.name).collect()
}

/// The tables, as they are called.
pub(crate) fn table_names(names: &Names) -> Vec<String> {
    MIGRATIONS.iter().flat_map(|step| step.made(&["table"], names)).collect()
}

/// The script that gives a user what an application needs and no more: to execute the procedures. It begins with the settings that its quotes need, which
/// not every client has on.
pub(crate) fn grants_script(names: &Names, user: &str) -> String {
    let schema = names.schema().replace('"', "\"\"");
    let user = user.replace('"', "\"\"");
    let mut script = format!("-- To be run by the owner of the schema.\n{SETTINGS}\nGO\n");
    for procedure in granted_names(names) {
        script.push_str(&format!("GRANT EXECUTE ON {procedure} TO \"{user}\";\n"));
    }
    // Types of parameters.
    for name in MIGRATIONS.iter().flat_map(|step| step.made(&["type"], names)) {
        script.push_str(&format!(
            "GRANT EXECUTE ON TYPE::\"{schema}\".\"{}\" TO \"{user}\";\n",
            name.replace('"', "\"\"")
        ));
    }
    script
}
