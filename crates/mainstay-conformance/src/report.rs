//! The conformance page: every requirement, its cases, and how each provider did.
//!
//! The text depends on the results alone, so the same results give the same page and it can be compared in CI.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::case::Case;
use crate::requirements::{self, Requirement};
use crate::results::{self, CaseResult, Outcome};

/// Cases by name: the requirements of each, and its outcome by provider.
type Cases = BTreeMap<String, (Vec<String>, BTreeMap<String, Outcome>)>;

/// Makes the page from the results in `directory` and a list of requirements.
///
/// Cases that ran but are not part of the suite, such as tests that kill processes, are shown too if they left a
/// result in the same place.
pub fn render(directory: &Path, list: &str) -> io::Result<String> {
    let requirements = requirements::parse(list).map_err(io::Error::other)?;
    let results = results::read(directory)?;
    let providers: BTreeSet<String> = results.iter().map(|result| result.provider.clone()).collect();
    Ok(page(&requirements, &cases(results), &providers))
}

/// The failed results in `directory`, as `provider: case`.
pub fn failures(directory: &Path) -> io::Result<Vec<String>> {
    let failed = results::read(directory)?.into_iter().filter(|result| result.outcome == Outcome::Failed);
    Ok(failed.map(|result| format!("{}: {}", result.provider, result.case)).collect())
}

/// The cases of the suite that left no result where others did, as `provider: case`: nobody ran them, and that must not look like "needs a server".
pub fn forgotten(directory: &Path) -> io::Result<Vec<String>> {
    let results = results::read(directory)?;
    let providers: BTreeSet<&str> = results.iter().map(|result| result.provider.as_str()).collect();
    let left: BTreeSet<(&str, &str)> =
        results.iter().map(|result| (result.provider.as_str(), result.case.as_str())).collect();
    let missing = |provider: &str| {
        let lacks = |case: &Case| !left.contains(&(provider, case.name));
        let told = |case: Case| format!("{provider}: {}", case.name);
        crate::all().into_iter().filter(lacks).map(told).collect::<Vec<_>>()
    };
    Ok(providers.into_iter().flat_map(missing).collect())
}

/// The provider whose server not everybody who runs the tests has.
const OPTIONAL: &str = "sqlserver";

/// What a provider's column says of cases that have failed, of those that were not run, and of requirements without a case.
const FAILED: &str = "**fail**";
const NOT_RUN: &str = "not run";
const NO_CASE: &str = "–";

/// The first line in which `page` is not what this run gives, counted from 0; none if it is. Where the provider that needs a server of one's own was run for
/// one of the two and not for the other, its column is taken as it is in the page; but for what has failed.
pub fn first_difference(page: &str, run: &str) -> Option<usize> {
    let (page, run) = match was_run(page) == was_run(run) {
        true => (page.to_owned(), run.to_owned()),
        false => (leaving_open(page), leaving_open(run)),
    };
    let same = page.lines().zip(run.lines()).take_while(|(page, run)| page == run).count();
    (page != run).then_some(same)
}

/// A row of a table on the page, cell by cell. Bars in a text are not such: they have a backslash before them.
fn cells(line: &str) -> Option<Vec<&str>> {
    Some(line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect())
}

/// Each line of a page, with the place of the optional provider's cell if it has one.
fn optional_cells(page: &str) -> impl Iterator<Item = (&str, Option<usize>)> {
    let mut column = None;
    page.lines().map(move |line| {
        let Some(cells) = cells(line) else { return (line, None) };
        if cells.first() == Some(&"Id") {
            column = cells.iter().position(|cell| *cell == OPTIONAL);
            return (line, None);
        }
        (line, column.filter(|column| *column < cells.len()))
    })
}

/// Whether a page has anything to tell of the optional provider.
fn was_run(page: &str) -> bool {
    let told = |(line, column): (&str, Option<usize>)| {
        let cells = cells(line)?;
        Some(![NOT_RUN, NO_CASE].contains(cells.get(column?)?))
    };
    optional_cells(page).filter_map(told).any(|told| told)
}

/// The page with nothing about the optional provider but what has failed there.
fn leaving_open(page: &str) -> String {
    let open = |(line, column): (&str, Option<usize>)| match (cells(line), column) {
        (Some(mut cells), Some(column)) if cells[column] != FAILED => {
            cells[column] = NO_CASE;
            format!("| {} |\n", cells.join(" | "))
        }
        // How many, in the table at the top.
        (Some(cells), None) if cells.first() == Some(&OPTIONAL) => {
            format!("| {OPTIONAL} | failed: {} |\n", cells.get(2).unwrap_or(&NO_CASE))
        }
        _ => format!("{line}\n"),
    };
    optional_cells(page).map(open).collect()
}

fn cases(results: Vec<CaseResult>) -> Cases {
    let mut cases = Cases::new();
    for case in crate::all() {
        let ids = case.ids.iter().map(|id| (*id).to_owned()).collect();
        cases.insert(case.name.to_owned(), (ids, BTreeMap::new()));
    }
    for result in results {
        let case = cases.entry(result.case).or_insert((result.ids, BTreeMap::new()));
        case.1.insert(result.provider, result.outcome);
    }
    cases
}

fn page(requirements: &[Requirement], cases: &Cases, providers: &BTreeSet<String>) -> String {
    let mut text = String::from(
        "# Conformance\n\n\
         Every requirement of the contract, the tests that check it, and how each provider did. This page is made by\n\
         `cargo xtask conformance --write` from the results of a full test run.\n",
    );
    summary(&mut text, requirements, cases, providers);
    for group in groups(requirements) {
        section(&mut text, group, requirements, cases, providers);
    }
    text
}

/// `OBX` of `OBX-004`; `R` of `R7`.
fn group_of(id: &str) -> &str {
    id.split(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']).next().unwrap_or(id)
}

fn groups(requirements: &[Requirement]) -> Vec<&str> {
    let mut groups = Vec::new();
    for requirement in requirements {
        let group = group_of(&requirement.id);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

fn covering<'a>(id: &str, cases: &'a Cases) -> Vec<&'a String> {
    let covers = |ids: &[String]| ids.iter().any(|covered| covered == id);
    cases.iter().filter(|(_, (ids, _))| covers(ids)).map(|(name, _)| name).collect()
}

fn summary(text: &mut String, requirements: &[Requirement], cases: &Cases, providers: &BTreeSet<String>) {
    text.push_str("\n| Provider | Passed | Failed | Not applicable | Not run |\n|---|---|---|---|---|\n");
    for provider in providers {
        let mut counts = [0_usize; 4];
        for (_, outcomes) in cases.values() {
            let column = match outcomes.get(provider) {
                Some(Outcome::Passed) => 0,
                Some(Outcome::Failed) => 1,
                Some(Outcome::NotApplicable { .. }) => 2,
                Some(Outcome::NotRun { .. }) | None => 3,
            };
            counts[column] += 1;
        }
        let [passed, failed, lacking, absent] = counts;
        line(text, format_args!("| {provider} | {passed} | {failed} | {lacking} | {absent} |"));
    }
    let missing = requirements.iter().filter(|one| covering(&one.id, cases).is_empty()).count();
    let total = requirements.len();
    line(
        text,
        format_args!("\n{} of {total} requirements have a test; {missing} are missing.", total - missing),
    );
}

fn section(
    text: &mut String,
    group: &str,
    requirements: &[Requirement],
    cases: &Cases,
    providers: &BTreeSet<String>,
) {
    line(text, format_args!("\n## {group}\n"));
    let columns: Vec<&str> = providers.iter().map(String::as_str).collect();
    let separator = if columns.is_empty() { "" } else { " | " };
    line(text, format_args!("| Id | Requirement | Tests{separator}{} |", columns.join(" | ")));
    line(text, format_args!("|---|---|---|{}", "---|".repeat(columns.len())));
    for requirement in requirements.iter().filter(|one| group_of(&one.id) == group) {
        let tests = covering(&requirement.id, cases);
        let named = match tests.as_slice() {
            [] => "missing".to_owned(),
            tests => tests.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("<br>"),
        };
        let verdicts: String =
            columns.iter().map(|provider| format!(" {} |", verdict(provider, &tests, cases))).collect();
        let (id, what) = (&requirement.id, requirement.text.replace('|', "\\|"));
        line(text, format_args!("| {id} | {what} | {named} |{verdicts}"));
    }
}

/// How a provider does on a requirement: the worst of its cases, or not applicable if that is all of them.
fn verdict(provider: &str, tests: &[&String], cases: &Cases) -> String {
    if tests.is_empty() {
        return NO_CASE.to_owned();
    }
    let outcomes: Vec<Option<&Outcome>> = tests
        .iter()
        .filter_map(|name| cases.get(*name))
        .map(|(_, outcomes)| outcomes.get(provider))
        .collect();
    if outcomes.contains(&Some(&Outcome::Failed)) {
        return FAILED.to_owned();
    }
    if outcomes.iter().any(|outcome| matches!(outcome, None | Some(Outcome::NotRun { .. }))) {
        return NOT_RUN.to_owned();
    }
    if outcomes.contains(&Some(&Outcome::Passed)) {
        return String::from("pass");
    }
    let reasons: BTreeSet<&str> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Some(Outcome::NotApplicable { reason }) => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    format!("not applicable: {}", reasons.into_iter().collect::<Vec<_>>().join(", "))
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(provider: &str, case: &str, outcome: Outcome) -> CaseResult {
        let ids = vec!["X-001".to_owned()];
        CaseResult { case: case.to_owned(), ids, provider: provider.to_owned(), outcome }
    }

    fn row(results: &[CaseResult], id: &str) -> String {
        let list = "X-001\tIt works\nX-002\tIt | pipes\n";
        let providers = results.iter().map(|result| result.provider.clone()).collect();
        let text = page(&requirements::parse(list).unwrap(), &cases(results.to_vec()), &providers);
        let row = text.lines().find(|line| line.starts_with(&format!("| {id} ")));
        row.expect("a row for the requirement").to_owned()
    }

    #[test]
    fn each_verdict_is_told_apart() {
        let lacking = || Outcome::NotApplicable { reason: "roles".to_owned() };
        let results = [
            result("a", "x_001_one", Outcome::Passed),
            result("a", "x_001_two", lacking()),
            result("b", "x_001_one", Outcome::Passed),
            result("b", "x_001_two", Outcome::Failed),
            result("c", "x_001_one", Outcome::Passed),
            result("d", "x_001_one", lacking()),
            result("d", "x_001_two", lacking()),
        ];
        assert_eq!(
            row(&results, "X-001"),
            "| X-001 | It works | `x_001_one`<br>`x_001_two` | pass | **fail** | not run | not applicable: roles |"
        );
    }

    #[test]
    fn a_case_that_nobody_ran_is_told() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(forgotten(directory.path()).unwrap(), Vec::<String>::new());
        let suite = crate::all();
        for case in &suite[1..] {
            result("a", case.name, Outcome::Passed).write(directory.path()).unwrap();
        }
        assert_eq!(forgotten(directory.path()).unwrap(), [format!("a: {}", suite[0].name)]);
    }

    #[test]
    fn a_page_fits_a_run_with_a_server_of_one_s_own_and_one_without() {
        let text = |results: &[CaseResult]| {
            let list = requirements::parse("X-001\tIt | works\nX-002\tIt lasts\n").unwrap();
            let providers = results.iter().map(|result| result.provider.clone()).collect();
            page(&list, &cases(results.to_vec()), &providers)
        };
        let with = |sqlite: Outcome, sqlserver: Outcome| {
            text(&[result("sqlite", "x_001_one", sqlite), result(OPTIONAL, "x_001_one", sqlserver)])
        };
        let not_run = || Outcome::NotRun { reason: "no server".to_owned() };
        let lacking = || Outcome::NotApplicable { reason: "roles".to_owned() };
        let (passed, absent) = (with(Outcome::Passed, Outcome::Passed), with(Outcome::Passed, not_run()));
        assert_ne!(passed, absent);
        for (page, run) in [(&passed, &absent), (&absent, &passed), (&passed, &passed), (&absent, &absent)] {
            assert_eq!(first_difference(page, run), None);
        }
        let line = |text: &str, start: &str| text.lines().position(|line| line.starts_with(start)).unwrap();
        // It was run, and did otherwise.
        let other = with(Outcome::Passed, lacking());
        assert_eq!(first_difference(&passed, &other), Some(line(&passed, "| sqlserver")));
        // It failed, whatever the page says.
        let failed = with(Outcome::Passed, Outcome::Failed);
        assert_eq!(first_difference(&absent, &failed), Some(line(&absent, "| sqlserver")));
        assert!(
            leaving_open(&failed).lines().any(|line| line.starts_with("| X-001") && line.contains(FAILED))
        );
        // Whatever differs of another provider is told.
        let worse = with(lacking(), not_run());
        assert_eq!(first_difference(&passed, &worse), Some(line(&passed, "| sqlite")));
        assert_eq!(first_difference("", &passed), Some(0));
    }

    #[test]
    fn a_requirement_without_a_test_is_missing() {
        let results = [result("a", "x_001_one", Outcome::Passed)];
        assert_eq!(row(&results, "X-002"), "| X-002 | It \\| pipes | missing | – |");
    }
}
