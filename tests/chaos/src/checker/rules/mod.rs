//! The rules, one file each.

mod balance;
mod deliveries;
mod effects;
mod exclusion;
mod floors;
mod integrity;
mod liveness;
mod nothing_invented;
mod nothing_lost;
mod one_claim;
mod one_end;
mod order;
mod resources;
mod secrecy;

use super::evidence::Evidence;
use crate::verdict::{Rule, Violation};

/// Judges a history by one rule.
pub(super) type Judge = fn(&Evidence<'_>) -> Vec<Violation>;

/// All rules, in their order.
pub(super) const ALL: [Judge; 14] = [
    nothing_lost::judge,
    nothing_invented::judge,
    one_claim::judge,
    one_end::judge,
    effects::judge,
    exclusion::judge,
    order::judge,
    balance::judge,
    deliveries::judge,
    floors::judge,
    liveness::judge,
    resources::judge,
    secrecy::judge,
    integrity::judge,
];

/// Makes a violation. A line that shows it twice is named once.
fn violation<'a, I: ToString>(
    rule: Rule,
    text: impl Into<String>,
    ids: impl IntoIterator<Item = I>,
    lines: impl IntoIterator<Item = &'a str>,
) -> Violation {
    let mut named: Vec<String> = Vec::new();
    for line in lines {
        if !named.iter().any(|it| it == line) {
            named.push(line.to_owned());
        }
    }
    Violation {
        rule,
        text: text.into(),
        ids: ids.into_iter().map(|id| id.to_string()).collect(),
        lines: named,
    }
}
