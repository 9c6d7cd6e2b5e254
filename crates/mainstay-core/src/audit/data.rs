//! What a record says beyond its name: JSON of a bounded size.

use serde_json::{Value, json};

use super::AuditEvent;

/// How many of the things an administrative action changed its record shows one by one; it counts all of them.
pub const ITEMS_SHOWN: usize = 20;

/// The data of an administrative action as it is stored: without its items where those make it too long, and without anything
/// where the rest is. An action must not fail for the length of what is told of it.
pub fn bounded(mut data: Value) -> String {
    let text = data.to_string();
    if text.len() <= AuditEvent::DATA_MAX {
        return text;
    }
    if let Some(object) = data.as_object_mut() {
        object.remove("items");
        object.insert("truncated".to_owned(), Value::Bool(true));
    }
    let text = data.to_string();
    if text.len() <= AuditEvent::DATA_MAX { text } else { json!({ "truncated": true }).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_is_too_long_loses_its_items_first() {
        let long = "x".repeat(AuditEvent::DATA_MAX);
        assert_eq!(bounded(json!({ "count": 1, "items": [1] })), r#"{"count":1,"items":[1]}"#);
        assert_eq!(bounded(json!({ "count": 1, "items": [long] })), r#"{"count":1,"truncated":true}"#);
        assert_eq!(bounded(json!({ "before": long })), r#"{"truncated":true}"#);
    }
}
