//! An import that can be watched, and what is left of one that was dropped: `cargo run -p mainstay --features sqlite --example operations`.
//!
//! The first import runs to its end, tells how far it has come and what happened. The second is dropped in the middle, as by an error or a
//! shutdown, and is recorded as failed all the same. Who asked for it is in the audit trail.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use mainstay::audit::{AuditFilter, AuditPage};
use mainstay::operation::{NewEvent, OperationFilter, OperationPage, OperationState, Progress};
use mainstay::sqlite::Sqlite;
use mainstay::{AuditEvent, Mainstay, NewOperation, Operations};

async fn import(operations: &Operations, files: &[&str]) -> mainstay::Result<()> {
    let new = NewOperation::new("orders.import").tag("tenant", "7").total(files.len() as u64);
    let scope = operations.begin(new).await?;
    for (done, file) in (1..).zip(files) {
        if file.is_empty() {
            // Whoever leaves early leaves the scope behind: dropped without an end.
            return Ok(());
        }
        scope.event(NewEvent::new("file").message(*file)).await?;
        scope.progress(Progress::done(done).message(format!("read {file}"))).await?;
    }
    let _ = scope.succeed().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mainstay = Mainstay::builder(Sqlite::memory().await?).deploy_schema(true).build()?;
    let running = mainstay.start().await?;

    let asked = AuditEvent::new("orders.import").anchor("tenant", "7");
    mainstay.audit().by("alice").write(asked).await?;
    import(mainstay.operations(), &["monday.csv", "tuesday.csv"]).await?;
    import(mainstay.operations(), &["monday.csv", ""]).await?;

    // The failure is recorded in the background, so it may take a moment.
    let all = OperationFilter::all().tag("tenant", "7");
    let found = loop {
        let found = mainstay.operations().list(&all, OperationPage::default()).await?;
        if found.iter().all(|operation| operation.state.is_terminal()) {
            break found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    for operation in &found {
        let error = operation.error.as_deref().unwrap_or_default();
        println!("{} is {} after {:?} {error}", operation.name, operation.state, operation.progress.done);
    }
    let about = AuditFilter::all().anchor("tenant", "7");
    for record in mainstay.audit().list(&about, AuditPage::default()).await? {
        println!("{} was asked for by {}", record.name, record.actor);
    }
    running.stop().await?;
    let states: Vec<_> = found.iter().map(|operation| operation.state).collect();
    assert_eq!(states, [OperationState::Failed, OperationState::Succeeded]);
    Ok(())
}
