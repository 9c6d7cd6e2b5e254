//! What is to be recorded, and its rules.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::text::validate_name;

use super::{Actor, Anchor, AuditId, AuditOutcome};

const WRITE: &str = "audit.write";

/// Something to record.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an event is only recorded once it is written"]
pub struct AuditEvent {
    name: String,
    outcome: AuditOutcome,
    correlation_id: Option<String>,
    data: Option<Value>,
    anchors: Vec<Anchor>,
}

impl AuditEvent {
    /// The longest data, in bytes of JSON.
    pub const DATA_MAX: usize = 16 << 10;

    /// The most things one event can be about.
    pub const ANCHORS_MAX: usize = 100;

    /// Something that was done: `order.refund`. Names with dots are found by what they begin with.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            outcome: AuditOutcome::default(),
            correlation_id: None,
            data: None,
            anchors: Vec::new(),
        }
    }

    /// What came of it. Defaults to succeeded.
    pub fn outcome(mut self, outcome: AuditOutcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// What it belongs to. Defaults to what the actor's doing belongs to; an empty one is none of its own.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into()).filter(|id: &String| !id.is_empty());
        self
    }

    /// What else there is to tell, at most 16 KiB of JSON. Defaults to nothing. Secrets do not belong here: whoever may read the
    /// trail reads them.
    pub fn data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Adds something it is about. May be called again, up to 100 times.
    pub fn anchor(mut self, kind: impl Into<String>, value: impl Into<String>) -> Self {
        self.anchors.push(Anchor::new(kind, value));
        self
    }

    /// Checks it and fills it up.
    pub fn prepare(self, actor: &Actor) -> Result<PreparedAudit> {
        validate_name(WRITE, "name", &self.name)?;
        actor.validate(WRITE)?;
        // Its own, or what the actor's doing belongs to.
        let correlation_id = self.correlation_id.or_else(|| actor.correlation_id().map(str::to_owned));
        if let Some(id) = &correlation_id {
            validate_name(WRITE, "correlation_id", id)?;
        }
        let data = self.data.map(|data| data.to_string());
        if let Some(got) = data.as_ref().map(String::len).filter(|got| *got > Self::DATA_MAX) {
            let reason = format_args!("must be at most {} bytes of JSON, got {got}", Self::DATA_MAX);
            return Err(Error::invalid(WRITE, "data", reason));
        }
        if self.anchors.len() > Self::ANCHORS_MAX {
            let (max, got) = (Self::ANCHORS_MAX, self.anchors.len());
            return Err(Error::invalid(WRITE, "anchors", format_args!("must be at most {max}, got {got}")));
        }
        self.anchors.iter().try_for_each(|anchor| anchor.validate(WRITE))?;
        let mut anchors = self.anchors;
        anchors.sort();
        anchors.dedup();
        Ok(PreparedAudit {
            id: AuditId::new(),
            name: self.name,
            actor: actor.clone(),
            outcome: self.outcome,
            correlation_id,
            data,
            anchors,
        })
    }
}

/// A checked event with its id, as a store writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedAudit {
    /// The record it becomes.
    pub id: AuditId,
    /// What was done.
    pub name: String,
    /// Who did it.
    pub actor: Actor,
    /// What came of it.
    pub outcome: AuditOutcome,
    /// What it belongs to.
    pub correlation_id: Option<String>,
    /// What else there is to tell, as JSON.
    pub data: Option<String>,
    /// What it is about, sorted, none twice.
    pub anchors: Vec<Anchor>,
}

impl PreparedAudit {
    /// The record of an administrative action that was done, for stores that write it themselves. `data` is cut to its bounds.
    pub fn administrative(name: impl Into<String>, actor: &Actor, data: Value) -> Self {
        Self {
            id: AuditId::new(),
            name: name.into(),
            actor: actor.clone(),
            outcome: AuditOutcome::Succeeded,
            correlation_id: actor.correlation_id().map(str::to_owned),
            data: Some(super::bounded(data)),
            anchors: Vec::new(),
        }
    }

    /// The same about these things of one kind.
    #[must_use]
    pub fn about<V: Into<String>>(mut self, kind: &str, values: impl IntoIterator<Item = V>) -> Self {
        self.anchors.extend(values.into_iter().map(|value| Anchor::new(kind, value)));
        self.anchors.sort();
        self.anchors.dedup();
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_out_of_bounds_is_refused_with_its_field() {
        let actor = Actor::from("alice");
        let event = || AuditEvent::new("order.refund");
        let many = (0..101).fold(event(), |event, n| event.anchor("order", n.to_string()));
        for (event, field) in [
            (AuditEvent::new(""), "name"),
            (AuditEvent::new("x".repeat(256)), "name"),
            (event().correlation_id("x".repeat(256)), "correlation_id"),
            (event().data(json!("x".repeat(AuditEvent::DATA_MAX))), "data"),
            (event().anchor("", "1"), "anchor kind"),
            (event().anchor("x".repeat(65), "1"), "anchor kind"),
            (event().anchor("order", ""), "anchor value"),
            (event().anchor("order", "x".repeat(513)), "anchor value"),
            (event().anchor("order", "a\0b"), "anchor value"),
            (many, "anchors"),
        ] {
            assert_eq!(event.prepare(&actor).unwrap_err().field(), Some(field));
        }
        assert_eq!(event().prepare(&Actor::from("")).unwrap_err().field(), Some("actor"));
    }

    #[test]
    fn an_event_is_filled_up() {
        let event =
            AuditEvent::new("a").correlation_id("").anchor("k", "2").anchor("k", "1").anchor("k", "2");
        let prepared =
            event.data(json!("x".repeat(AuditEvent::DATA_MAX - 2))).prepare(&"bob".into()).unwrap();
        assert_eq!((prepared.correlation_id, prepared.outcome), (None, AuditOutcome::Succeeded));
        assert_eq!(prepared.anchors, [Anchor::new("k", "1"), Anchor::new("k", "2")]);
        assert_eq!(prepared.data.map(|data| data.len()), Some(AuditEvent::DATA_MAX));
    }

    #[test]
    fn an_event_belongs_to_what_it_says_or_else_to_what_its_actor_says() {
        let actor = Actor::from("bob").correlated("T-1");
        let of = |event: AuditEvent| event.prepare(&actor).unwrap().correlation_id;
        assert_eq!(of(AuditEvent::new("a")).as_deref(), Some("T-1"));
        assert_eq!(of(AuditEvent::new("a").correlation_id("T-2")).as_deref(), Some("T-2"));
        let record = PreparedAudit::administrative("a", &actor, json!({}));
        assert_eq!(record.correlation_id.as_deref(), Some("T-1"));
    }
}
