use super::*;
use crate::verdict::Violation;

fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

fn committed(file: &str, seed: u64, provider: &str, faults: &[(&str, u64)]) -> Committed {
    let verdict = Verdict {
        seed,
        date: "2026-11-19".to_owned(),
        git: "0123456789abcdef0123456789abcdef01234567".to_owned(),
        provider: provider.to_owned(),
        command: format!("cargo xtask chaos --seed {seed} --provider {provider} --out <directory>"),
        seconds: 601,
        planned: counts(faults),
        faults: counts(faults),
        ops: counts(&[("claim", 12_345), ("settle", 9_876)]),
        failed: counts(&[("claim", 12)]),
        unknown: counts(&[("settle", 345)]),
        violations: Vec::new(),
    };
    Committed { file: file.to_owned(), verdict }
}

fn two_runs() -> Vec<Committed> {
    let mut sqlite =
        committed("sqlite-8.json", 8, "sqlite", &[("kill", 812), ("disk_full", 30), ("moon", 1)]);
    sqlite.verdict.violations.push(Violation {
        rule: Rule::Exclusion,
        text: "Outbox: ordering key k was held twice for 7 µs".to_owned(),
        ids: vec!["a".to_owned()],
        lines: vec!["worker-1.1:3".to_owned()],
    });
    vec![sqlite, committed("postgres-7.json", 7, "postgres", &[("kill", 1_200), ("server_crash", 40)])]
}

#[test]
fn the_page_is_as_it_was() {
    assert_eq!(page(&two_runs()), include_str!("golden.md"));
}

#[test]
fn the_order_of_the_verdicts_makes_no_difference() {
    let mut turned = two_runs();
    turned.reverse();
    assert_eq!(page(&turned), page(&two_runs()));
}

#[test]
fn a_page_without_verdicts_says_so() {
    assert!(page(&[]).ends_with("\nNo verdict is committed yet.\n"));
}

#[test]
fn a_page_that_is_out_of_date_is_found() {
    let reference = tempfile::tempdir().unwrap();
    let verdicts = reference.path().join("reliability");
    write(reference.path()).unwrap();
    check(reference.path()).unwrap();
    std::fs::create_dir(&verdicts).unwrap();
    for it in two_runs() {
        std::fs::write(verdicts.join(&it.file), serde_json::to_string(&it.verdict).unwrap()).unwrap();
    }
    let error = check(reference.path()).unwrap_err().to_string();
    assert!(error.contains("committed: No verdict is committed yet."), "{error}");
    write(reference.path()).unwrap();
    check(reference.path()).unwrap();
    assert_eq!(
        std::fs::read_to_string(reference.path().join("reliability.md")).unwrap(),
        include_str!("golden.md")
    );
    std::fs::write(verdicts.join("odd.json"), "{}").unwrap();
    assert!(check(reference.path()).unwrap_err().to_string().contains("odd.json is not a verdict"));
}
