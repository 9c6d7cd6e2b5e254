//! The page `docs/reference/reliability.md`, made from the verdicts that are committed beside it.

mod files;
mod table;

pub use files::{check, read, write};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::verdict::{Rule, Verdict};
use table::{number, table};

/// A verdict that is committed, with the name of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The name of its file.
    pub file: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// What happens at each kind of fault.
const FAULTS: [(&str, &str); 24] = [
    ("kill", "SIGKILL of a process at a random instant"),
    ("kill_at_step", "SIGKILL of a process right after a certain step of its work"),
    ("kill_many", "SIGKILL of several processes at once"),
    ("pause", "SIGSTOP of a process, up to three leases long"),
    ("server_crash", "SIGKILL of all processes of the database server"),
    ("server_stop", "immediate stop of the database server"),
    ("backend_kill", "SIGKILL of one backend, after which the server restarts the others"),
    ("backend_terminate", "one session ended by `pg_terminate_backend` or `KILL`"),
    ("backend_pause", "SIGSTOP of one backend"),
    ("connection_cut", "all connections of a process cut"),
    ("connection_cut_answer", "a connection cut in the middle of an answer"),
    ("connection_delay", "connections that deliver late"),
    ("connection_half_open", "a connection that stays open and answers no more"),
    ("partition", "all packets between a process and the servers lost, in a network namespace"),
    ("lost_requests", "all packets from a process to the servers lost"),
    ("lost_answers", "all packets from the servers to a process lost"),
    ("pooler_kill", "SIGKILL of PgBouncer"),
    ("pooler_pause", "SIGSTOP of PgBouncer"),
    ("table_lock", "the table of open messages locked"),
    ("disk_full", "a full disk"),
    ("clock_step", "the database's clock stepped forward or back"),
    ("failover", "promotion of a replica that has everything"),
    ("failover_lost_tail", "promotion of a replica that lacks the last transactions"),
    ("power_loss", "a state in which a power loss can leave the files"),
];

const PROVIDERS: [&str; 5] = ["postgres", "pgbouncer", "failover", "sqlite", "sqlserver"];

/// Renders the page. The order of the verdicts makes no difference.
pub fn page(verdicts: &[Committed]) -> String {
    let mut verdicts: Vec<&Committed> = verdicts.iter().collect();
    verdicts.sort_by_key(|it| (&it.verdict.date, place(&it.verdict.provider), it.verdict.seed, &it.file));
    let mut page = INTRODUCTION.to_owned();
    if verdicts.is_empty() {
        page.push_str("\nNo verdict is committed yet.\n");
        return page;
    }
    summary(&mut page, &verdicts);
    faults(&mut page, &verdicts);
    rules(&mut page, &verdicts);
    calls(&mut page, &verdicts);
    runs(&mut page, &verdicts);
    violations(&mut page, &verdicts);
    page
}

const INTRODUCTION: &str = "\
# Reliability

`cargo xtask chaos` runs workers, producers, schedulers, lease holders, fleet nodes and operators as
processes of their own, and injects real faults into them, their connections and their database. Every
process records each call before and after it makes it. A checker then judges all records together by
fourteen rules.

This page is generated from the verdicts in [`reliability/`](reliability) by
`cargo xtask reliability --write`.
";

/// Returns the place of a provider in the order of the page.
fn place(provider: &str) -> (usize, &str) {
    let place = PROVIDERS.iter().position(|known| *known == provider);
    (place.unwrap_or(PROVIDERS.len()), provider)
}

fn total(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}

fn sum(verdicts: &[&Committed], count: impl Fn(&Verdict) -> u64) -> u64 {
    verdicts.iter().map(|it| count(&it.verdict)).sum()
}

fn summary(page: &mut String, verdicts: &[&Committed]) {
    let faults = number(sum(verdicts, |it| total(&it.faults)));
    let calls = number(sum(verdicts, |it| total(&it.ops)));
    let violations = number(sum(verdicts, |it| it.violations.len() as u64));
    let minutes = number(sum(verdicts, |it| it.seconds) / 60);
    let rows = [
        ["Runs".to_owned(), number(verdicts.len() as u64)],
        ["Minutes".to_owned(), minutes],
        ["Faults".to_owned(), faults],
        ["Answered calls".to_owned(), calls],
        ["**Violations**".to_owned(), format!("**{violations}**")],
    ];
    page.push('\n');
    table(page, &["", "Total"], rows);
}

fn faults(page: &mut String, verdicts: &[&Committed]) {
    let providers: BTreeSet<_> = verdicts.iter().map(|it| place(&it.verdict.provider)).collect();
    let kinds: BTreeSet<&String> = verdicts.iter().flat_map(|it| it.verdict.faults.keys()).collect();
    // In the order of the list above, then what is not in it.
    let known = |kind: &str| FAULTS.iter().position(|(known, _)| *known == kind);
    let mut kinds: Vec<&str> = kinds.into_iter().map(String::as_str).collect();
    kinds.sort_by_key(|kind| (known(kind).unwrap_or(FAULTS.len()), *kind));
    let mut head = vec!["Fault", "What happens"];
    head.extend(providers.iter().map(|(_, provider)| *provider));
    head.push("Total");
    let rows = kinds.into_iter().map(|kind| {
        let count = |verdict: &Verdict| verdict.faults.get(kind).copied().unwrap_or(0);
        let mut row = vec![format!("`{kind}`"), known(kind).map_or("", |at| FAULTS[at].1).to_owned()];
        for (_, provider) in &providers {
            let of_provider: Vec<&Committed> =
                verdicts.iter().copied().filter(|it| it.verdict.provider == *provider).collect();
            row.push(number(sum(&of_provider, count)));
        }
        row.push(number(sum(verdicts, count)));
        row
    });
    page.push_str("\n## Faults\n\n");
    table(page, &head, rows);
}

fn rules(page: &mut String, verdicts: &[&Committed]) {
    let rows = Rule::ALL.into_iter().map(|rule| {
        let count = |verdict: &Verdict| {
            verdict.violations.iter().filter(|violation| violation.rule == rule).count() as u64
        };
        [format!("`{}`", rule.name()), rule.promise().to_owned(), number(sum(verdicts, count))]
    });
    page.push_str("\n## Rules\n\n");
    table(page, &["Rule", "Promise", "Violations"], rows);
}

fn calls(page: &mut String, verdicts: &[&Committed]) {
    let kinds: BTreeSet<&String> = verdicts
        .iter()
        .flat_map(|it| [&it.verdict.ops, &it.verdict.failed, &it.verdict.unknown])
        .flat_map(BTreeMap::keys)
        .collect();
    let rows = kinds.into_iter().map(|kind| {
        let of = |counts: &BTreeMap<String, u64>| counts.get(kind).copied().unwrap_or(0);
        [
            format!("`{kind}`"),
            number(sum(verdicts, |it| of(&it.ops))),
            number(sum(verdicts, |it| of(&it.failed))),
            number(sum(verdicts, |it| of(&it.unknown))),
        ]
    });
    page.push_str(
        "\n## Calls\n\nThe outcome of a call is unknown if its process died before the answer, or its connection\n\
         broke. Such a call may have taken effect, and the rules allow for both.\n\n",
    );
    table(page, &["Call", "Answered", "Failed", "Unknown"], rows);
}

fn runs(page: &mut String, verdicts: &[&Committed]) {
    let rows = verdicts.iter().map(|it| {
        let verdict = &it.verdict;
        [
            verdict.date.clone(),
            verdict.provider.clone(),
            verdict.seed.to_string(),
            number(verdict.seconds.div_ceil(60)),
            format!("`{}`", verdict.git.chars().take(12).collect::<String>()),
            number(total(&verdict.faults)),
            number(total(&verdict.ops)),
            number(verdict.violations.len() as u64),
            format!("[verdict](reliability/{})", it.file),
        ]
    });
    page.push_str("\n## Runs\n\n");
    let head =
        ["Date", "Provider", "Seed", "Minutes", "Commit", "Faults", "Answered calls", "Violations", ""];
    table(page, &head, rows);
    page.push_str(
        "\nThe seed decides which fault is injected when, so these commands repeat the schedules. How the processes\n\
         meet is not repeated.\n\n```console\n",
    );
    for it in verdicts {
        // Writing to a string does not fail.
        let _ = writeln!(page, "{}", it.verdict.command);
    }
    page.push_str("```\n");
}

fn violations(page: &mut String, verdicts: &[&Committed]) {
    if verdicts.iter().all(|it| it.verdict.is_clean()) {
        return;
    }
    page.push_str("\n## Violations\n\n");
    for it in verdicts {
        for violation in &it.verdict.violations {
            // Writing to a string does not fail.
            let _ = writeln!(
                page,
                "- {}, seed {}: `{}`: {}",
                it.verdict.provider,
                it.verdict.seed,
                violation.rule.name(),
                violation.text.replace('\n', " ")
            );
        }
    }
}

#[cfg(test)]
mod tests;
