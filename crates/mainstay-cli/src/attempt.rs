//! What is tried by hand and does not come off leaves a record too, as far as the database can be reached.
//!
//! What comes off is recorded by whatever does it, in its own transaction. This is a transaction of its own, and best effort: the
//! trouble that there is must not be covered by that of telling it.

use std::process::ExitCode;
use std::time::Duration;

use mainstay::audit::{Actor, Anchor, Audit, AuditEvent, AuditOutcome};
use mainstay::store::Provider;
use serde_json::json;

use crate::failure::{self, FAILED, UNREACHABLE};
use crate::settings::Settings;

/// How long the telling may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much is told of an error, in characters.
const LONGEST: usize = 1_000;

/// An administrative action, before it is known what comes of it.
#[derive(Debug)]
pub(crate) struct Attempt {
    name: &'static str,
    about: Vec<Anchor>,
}

impl Attempt {
    /// The action as the record of one that comes off calls it.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, about: Vec::new() }
    }

    /// What it is about. What can't stand in a record is left out.
    pub(crate) fn about(mut self, kind: &str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        let anchors = values.into_iter().map(|value| Anchor::new(kind, value.to_string()));
        self.about.extend(anchors.filter(|anchor| anchor.validate("cli").is_ok()));
        self
    }

    /// Records it if it has failed, or was refused, or has not changed all that it was to change.
    pub(crate) async fn ended(
        self,
        provider: &dyn Provider,
        settings: &Settings,
        result: &anyhow::Result<ExitCode>,
    ) {
        let (code, error) = match result {
            Ok(code) if *code == ExitCode::SUCCESS => return,
            Ok(_) => (FAILED, "not all that was asked for was changed".to_owned()),
            Err(error) => failure::in_a_line(error),
        };
        self.failed(provider, &settings.actor, code, &error).await;
    }

    /// Records that it has failed with this exit code, and why.
    pub(crate) async fn failed(self, provider: &dyn Provider, actor: &Actor, code: u8, error: &str) {
        if code == UNREACHABLE {
            return;
        }
        let error: String = error.chars().take(LONGEST).collect();
        let event = AuditEvent::new(self.name).outcome(AuditOutcome::Failed).data(json!({ "error": error }));
        let about = self.about.into_iter().take(AuditEvent::ANCHORS_MAX);
        let event = about.fold(event, |event, anchor| event.anchor(anchor.kind, anchor.value));
        let audit = Audit::new(provider.audit()).by(actor);
        match tokio::time::timeout(PATIENCE, audit.write(event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the failure was not recorded"),
            Err(_) => tracing::debug!("the failure was not recorded in time"),
        }
    }
}
