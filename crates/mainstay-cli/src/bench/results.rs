//! The figures, and how they compare with the limits.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Plan;
use super::keys::{KEYS, Key, Unit};
use crate::text::{count, milliseconds};

/// Figures by the names of their keys. What the database has no such thing for is not there.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<&'static str, f64>);

impl Results {
    pub(crate) fn set(&mut self, name: &'static str, figure: f64) {
        self.0.insert(name, figure);
    }

    pub(crate) fn get(&self, key: &Key) -> Option<f64> {
        self.named(key.name)
    }

    pub(crate) fn named(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// How it stands to its bare limit: this part of the rate, or so many times the latency.
    pub(crate) fn to_limit(&self, key: &Key) -> Option<f64> {
        let limit = self.named(key.limit?)?;
        self.get(key).filter(|_| limit > 0.0).map(|figure| figure / limit)
    }

    /// All wanted figures; null where there is none.
    pub(crate) fn json(&self, plan: &Plan) -> Map<String, Value> {
        let mut object = Map::new();
        for key in KEYS.iter().filter(|key| plan.wants(&[key.name])) {
            object.insert(key.name.to_owned(), json!(self.get(key).map(|figure| rounded(figure, key.unit))));
            if key.limit.is_some() {
                object.insert(format!("{}_to_limit", key.name), json!(self.to_limit(key).map(thousandths)));
            }
        }
        object
    }
}

/// A figure for people.
pub(crate) fn shown(figure: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => format!("{}/s", count(figure.round() as u64)),
        Unit::Milliseconds => milliseconds(std::time::Duration::from_secs_f64((figure / 1e3).max(0.0))),
        Unit::Bytes => format!("{} B", count(figure.round() as u64)),
        Unit::Number => format!("{figure:.2}"),
    }
}

fn rounded(figure: f64, unit: Unit) -> f64 {
    match unit {
        Unit::PerSecond | Unit::Bytes => figure.round(),
        Unit::Milliseconds | Unit::Number => thousandths(figure),
    }
}

fn thousandths(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::keys::find;
    use super::*;

    #[test]
    fn a_figure_is_compared_with_its_limit() {
        let mut results = Results::default();
        results.set("bulk", 80.0);
        results.set("limit_copy", 100.0);
        assert_eq!(results.to_limit(find("bulk").unwrap()), Some(0.8));
        assert_eq!(results.to_limit(find("drain").unwrap()), None);

        let only = Some(vec![find("bulk").unwrap(), find("drain").unwrap()]);
        let plan = Plan { only, time: Duration::ZERO, messages: 0, workers: 1 };
        let told = Value::Object(results.json(&plan));
        let expected = json!({ "bulk": 80.0, "bulk_to_limit": 0.8, "drain": null, "drain_to_limit": null });
        assert_eq!(told, expected);
    }
}
