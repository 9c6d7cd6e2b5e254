//! `mainstay migrate`: the schema made, looked at and printed, and what an application is granted.

use crate::harness::{Case, cases, not_applicable};
use crate::own_database::{OwnDatabase, attempt};
use crate::program::Ran;

pub(crate) const CASES: &[Case] = cases![
    it_is_made_once_and_then_current,
    a_printed_script_makes_what_check_wants,
    grants_are_printed_as_the_server_takes_them,
    grants_let_an_application_work,
    a_wrong_password_is_told_without_it,
];

fn it_is_made_once_and_then_current() {
    let database = OwnDatabase::new();
    database.run(&["migrate", "--check"]).failed(1, &["not current", "mainstay migrate"]);
    let missing = database.run(&["migrate", "--check", "--json"]).ended(1).json();
    assert_eq!((&missing["status"], &missing["current"]), (&"missing".into(), &false.into()));
    database.run(&["outbox", "stats"]).failed(1, &["mainstay migrate"]);
    // In the other form.
    let first = database.json(&["migrate", "--database", &database.ado()]);
    assert_eq!((&first["status"], &first["changed"]), (&"current".into(), &true.into()), "{first}");
    assert_eq!(first["database"], database.location());
    let version = mainstay::sqlserver::MIGRATIONS.last().unwrap().version;
    assert_eq!(first["version"], version);
    let second = database.json(&["migrate"]);
    assert_eq!((&second["status"], &second["changed"]), (&"current".into(), &false.into()), "{second}");
    let told = database.told(&["migrate", "--check"]);
    assert!(told.starts_with(&format!("{}: current", database.location())), "{told}");
    database.run(&["migrate", "--check", "--schema", "other"]).failed(1, &["not current"]);
}

/// The batches of a script, as `sqlcmd` takes them apart; what begins with a `:` is for itself.
fn batches(script: &str) -> Vec<String> {
    let mut batches = vec![String::new()];
    for line in script.lines().filter(|line| !line.starts_with(':')) {
        if line.trim().eq_ignore_ascii_case("go") {
            batches.push(String::new());
        } else if let Some(batch) = batches.last_mut() {
            batch.push_str(line);
            batch.push('\n');
        }
    }
    batches.retain(|batch| !batch.trim().is_empty());
    batches
}

fn a_printed_script_makes_what_check_wants() {
    let database = OwnDatabase::new();
    let script = database.told(&["migrate", "--print"]);
    let json = database.json(&["migrate", "--print"]);
    assert_eq!(json["script"].as_str().unwrap().trim_end(), script.trim_end());
    database.run(&["migrate", "--check"]).ended(1);
    let batches = batches(&script);
    assert!(batches.len() > 1, "there are no batches in it");
    for _ in 0..2 {
        database.execute(batches.iter().map(String::as_str));
        database.run(&["migrate", "--check"]).succeeded();
    }
    assert_eq!(database.json(&["migrate"])["changed"], false);
    database.run(&["outbox", "enqueue", "t"]).succeeded();
}

/// A login of the server, which is gone with this.
struct Login<'a>(&'a OwnDatabase, String);

impl<'a> Login<'a> {
    fn make(database: &'a OwnDatabase) -> Self {
        let name = format!("app_{}", uuid::Uuid::now_v7().simple());
        let login = Self(database, name);
        let quoted = login.quoted();
        database.execute([
            format!("CREATE LOGIN {quoted} WITH PASSWORD = 'S3cret-s3cret'").as_str(),
            format!("CREATE USER {quoted} FOR LOGIN {quoted}").as_str(),
        ]);
        login
    }

    fn quoted(&self) -> String {
        format!("[{}]", self.1)
    }

    fn url(&self) -> String {
        let url = self.0.url();
        let (_, rest) = url.split_once('@').unwrap();
        format!("mssql://{}:S3cret-s3cret@{rest}", self.1)
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let ran = self.0.run(&[&["--database", &self.url()], arguments].concat());
        assert!(!ran.stdout.contains("S3cret") && !ran.stderr.contains("S3cret"), "{}", ran.stderr);
        ran
    }
}

impl Drop for Login<'_> {
    fn drop(&mut self) {
        let quoted = self.quoted();
        attempt(self.0.name(), &[format!("DROP USER {quoted}"), format!("DROP LOGIN {quoted}")]);
    }
}

/// Runs what `--grants` prints.
fn grant(database: &OwnDatabase, login: &Login<'_>) {
    let script = database.told(&["migrate", "--grants", &login.1]);
    let json = database.json(&["migrate", "--grants", &login.1]);
    assert_eq!(json["script"].as_str().unwrap().trim_end(), script.trim_end());
    // Where types have no rights of their own, everybody may use them, and nobody can be granted it.
    let (of_types, others): (Vec<_>, Vec<_>) = script.lines().partition(|line| line.contains("TYPE::"));
    assert!(!of_types.is_empty(), "{script}");
    database.execute(batches(&others.join("\n")).iter().map(String::as_str));
    attempt(database.name(), &of_types.into_iter().map(str::to_owned).collect::<Vec<_>>());
}

fn grants_are_printed_as_the_server_takes_them() {
    let database = OwnDatabase::migrated();
    let login = Login::make(&database);
    login.run(&["outbox", "enqueue", "t"]).failed(1, &["error: "]);
    // As often as one likes.
    grant(&database, &login);
    grant(&database, &login);
}

fn grants_let_an_application_work() {
    let database = OwnDatabase::new();
    if database.count("SELECT CASE WHEN SERVERPROPERTY(N'BabelfishVersion') IS NULL THEN 0 ELSE 1 END") == 1 {
        not_applicable(
            "a procedure of Babelfish may do no more than its caller, so that executing is not enough",
        );
    }
    database.run(&["migrate"]).succeeded();
    let login = Login::make(&database);
    grant(&database, &login);
    let enqueued = login.run(&["outbox", "enqueue", "t", "--json"]).succeeded().json();
    let id = enqueued["work_item"].as_str().unwrap();
    assert_eq!(login.run(&["outbox", "show", id, "--json"]).succeeded().json()["topic"], "t");
    login.run(&["outbox", "cancel", id]).succeeded();
    login.run(&["outbox", "requeue", id]).succeeded();
    login.run(&["inbox", "enqueue", "s", "m", "t"]).succeeded();
    login.run(&["lease", "run", "l", "--", "true"]).succeeded();
    login.run(&["audit", "list"]).succeeded();
}

fn a_wrong_password_is_told_without_it() {
    let database = OwnDatabase::new();
    let url = database.url();
    let (_, rest) = url.split_once('@').unwrap();
    for wrong in [
        format!("mssql://nobody:s3cret-s3cret@{rest}"),
        database.ado().replace("User Id=", "User Id=nobody").replace("Password='", "Password='s3cret-s3cret"),
    ] {
        for command in [&["migrate"][..], &["outbox", "stats"], &["-vvv", "outbox", "stats"]] {
            let ran = database.run(&[&["--database", &wrong], command].concat());
            assert!(ran.code == 1 || ran.code == 3, "{}", ran.stderr);
            assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
            for text in [&ran.stdout, &ran.stderr] {
                assert!(!text.contains("s3cret"), "{text}");
            }
        }
    }
}
