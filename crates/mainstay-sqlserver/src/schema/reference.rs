//! The signatures of the procedures, as `docs/reference/sqlserver.md` has them: made of the procedures themselves, so that nobody is told of a parameter that is not there.
//! `UPDATE_REFERENCE=1 cargo test -p mainstay-sqlserver reference` writes them anew.

use mainstay_core::store::{Names, Queue};

use super::local;
use super::procedure::{Procedure, procedures};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/sqlserver.md");
const HEAD: &str = "## Signatures\n";

const INTRODUCTION: &str = "
Made of the procedures. A parameter with a value may be left out. Those of `Outbox` are those of `Inbox`, `Timers` and `JobRuns` as well, but for `Inbox_Enqueue`; what others have of
their own follows. What is not here is Mainstay's own.

```sql
";

/// What only Mainstay calls: what others do in another way, or have no use for.
const OWN: [&str; 21] = [
    "Advance",
    "Agenda",
    "Ahead",
    "Collect",
    "Dispatch",
    "DueJobs",
    "Ended",
    "EnqueueMany",
    "Expire",
    "Forward",
    "Front",
    "Lately",
    "Migrations",
    "NextDeadline",
    "NextNominal",
    "Now",
    "Ran",
    "ReceiveMany",
    "Reject",
    "Settle",
    "Storage",
];

/// Procedures that are Mainstay's own although others of the name are not.
const OWN_OF_SOME: [&str; 4] = ["Fanout_Claim", "Fanout_Version", "Jobs_NextDue", "Outbox_RenewMany"];

/// Parameters that are Mainstay's own.
const OWN_PARAMETERS: [&str; 5] = ["@Change ", "@Filter ", "@Home ", "@Silent ", "@TellJoins "];

fn is_public(procedure: &Procedure) -> bool {
    let (kind, verb) = split(procedure);
    let of_queue = ["Inbox", "Timers", "JobRuns"].contains(&kind.as_str());
    let name = format!("{}_{verb}", if of_queue { "Outbox" } else { &kind });
    !procedure.is_internal() && !OWN.contains(&verb.as_str()) && !OWN_OF_SOME.contains(&name.as_str())
}

/// `Outbox` and `Claim`.
fn split(procedure: &Procedure) -> (String, String) {
    let name = procedure.name.split('"').nth(3).unwrap_or_default();
    let (kind, verb) = name.split_once('_').unwrap();
    (kind.to_owned(), verb.to_owned())
}

/// Its name and its parameters, without what stands beside them.
fn signature(procedure: &Procedure) -> String {
    let (head, _) = procedure.text.split_once("\nAS\n").unwrap();
    let (_, head) = head.split_once("ALTER PROCEDURE ").unwrap();
    let lines = head.lines().skip(1).map(str::trim).filter(|line| !line.starts_with("--"));
    let is_told =
        |line: &&str| line.starts_with('@') && !OWN_PARAMETERS.iter().any(|own| line.starts_with(own));
    let parameters: Vec<_> = lines.filter(is_told).map(|line| line.trim_end_matches(',')).collect();
    let plain = procedure.name.replace('"', "");
    format!("{plain} {}", parameters.join(", ")).replace('"', "").trim_end().to_owned() + "\n"
}

fn signatures() -> String {
    let names = local(&Names::default()).unwrap();
    let others = [Queue::Inbox, Queue::Timers, Queue::JobRuns].map(|queue| names.of(queue).queue());
    let all = procedures(&names);
    let of_outbox: Vec<String> =
        all.iter().map(split).filter(|(kind, _)| kind == "Outbox").map(|(_, verb)| verb).collect();
    let said = |procedure: &&Procedure| {
        let (kind, verb) = split(procedure);
        let repeats = others.contains(&kind) && of_outbox.contains(&verb);
        is_public(procedure) && (!repeats || (kind == "Inbox" && verb == "Enqueue"))
    };
    let mut lines: Vec<String> = all.iter().filter(said).map(signature).collect();
    lines.sort();
    lines.concat()
}

#[test]
fn the_reference_has_the_signatures_of_the_procedures() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (written, _) = page.split_once(HEAD).expect("the page has the head of what is made");
    let wanted = format!("{written}{HEAD}{INTRODUCTION}{}```\n", signatures());
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
        return;
    }
    assert!(page == wanted, "run UPDATE_REFERENCE=1 cargo test -p mainstay-sqlserver reference");
}

/// What stands in front of the signatures is written by hand: it must not name a parameter that is none, or leave a procedure out.
#[test]
fn every_procedure_is_told_of() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (_, told) = page.split_once("## The procedures\n").unwrap();
    let (told, _) = told.split_once(HEAD).unwrap();
    let names = local(&Names::default()).unwrap();
    for procedure in procedures(&names).iter().filter(|procedure| is_public(procedure)) {
        let (kind, verb) = split(procedure);
        assert!(
            told.contains(&format!("`{kind}_{verb}`")) || told.contains(&format!("`_{verb}`")),
            "{kind}_{verb} is not told of"
        );
    }
}
