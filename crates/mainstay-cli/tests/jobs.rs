//! `mainstay jobs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use program::{Program, Ran};

fn explain(arguments: &[&str]) -> Ran {
    Program::new().run(&[&["jobs", "explain"], arguments].concat())
}

/// The lines without their frame: each row's cells, apart by single blanks.
fn rows(ran: &Ran) -> Vec<String> {
    let lines = ran.stdout.lines().filter(|line| !line.starts_with('─') && !line.is_empty());
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_fixed_time_in_a_gap_is_told_to_be_moved() {
    let ran =
        explain(&["30 2 * * *", "--tz", "europe/berlin", "--from", "2027-03-27T00:00:00Z", "--count", "3"]);
    assert_eq!(
        rows(&ran.succeeded()),
        [
            "30 2 * * * in Europe/Berlin, fixed times",
            "local offset UTC clock change",
            "1 Sat 2027-03-27 02:30:00 +01:00 2027-03-27 01:30:00",
            "2 Sun 2027-03-28 03:00:00 +02:00 2027-03-28 01:00:00 02:30 is skipped that day: runs at the first \
             instant after the gap",
            "3 Mon 2027-03-29 02:30:00 +02:00 2027-03-29 00:30:00",
            "at (UTC) clock change scheduled in it what happens",
            "2027-03-28 01:00:00 2027-03-28 02:00 to 03:00 skipped 1 time one run, at 03:00",
            "2027-10-31 01:00:00 2027-10-31 02:00 to 03:00 twice 1 time run at the first, not again at the second",
            "2028-03-26 01:00:00 2028-03-26 02:00 to 03:00 skipped 1 time one run, at 03:00",
        ]
    );
}

#[test]
fn each_decision_about_a_clock_change_has_its_words() {
    for (arguments, says) in [
        (
            ["30 2 * * *", "Europe/Berlin", "2027-10-30T12:00:00Z", "1"],
            ["02:30 comes twice: runs at the first, not at 01:30 UTC again", ""],
        ),
        (
            ["30 2 * * *", "Europe/Berlin", "2027-10-30T12:00:00Z", "2"],
            ["2027-10-31 02:00 to 03:00 twice 1 time", "run at the first, not again at the second"],
        ),
        (
            ["*/30 * * * *", "Europe/Berlin", "2027-10-30T23:45:00Z", "4"],
            ["02:30 comes twice and runs twice: the first", "02:30 comes twice and runs twice: the second"],
        ),
        (
            ["*/30 * * * *", "Europe/Berlin", "2027-03-28T00:45:00Z", "1"],
            ["an interval", "02:00 to 03:00 skipped 2 times not run"],
        ),
        (
            ["0 0,6,12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", "1"],
            ["3 times from 2011-12-30 00:00 on are skipped: one run for all", "one run, at 2011-12-31 00:00"],
        ),
        (
            // Far from any clock change.
            ["30 2 * * *", "Europe/Berlin", "2027-06-01T00:00:00Z", "1"],
            ["2027-10-31 02:00 to 03:00 twice 1 time", "2028-03-26 02:00 to 03:00 skipped 1 time"],
        ),
        (
            ["@yearly", "Europe/Berlin", "2027-02-01T00:00:00Z", "1"],
            [
                "1 Sat 2028-01-01 00:00:00 +01:00",
                "2 clock changes until 2028-03-03 with no scheduled time in it",
            ],
        ),
    ] {
        let [cron, zone, from, count] = arguments;
        let ran = explain(&[cron, "--tz", zone, "--from", from, "--count", count]).succeeded();
        let told = rows(&ran).join("\n");
        assert!(says.iter().all(|text| told.contains(text)), "{arguments:?}: {told}");
    }
}

#[test]
fn json_has_every_fire_and_every_clock_change() {
    let arguments =
        ["30 2 * * *", "--tz=Europe/Berlin", "--from=2027-03-27T00:00:00Z", "--count=3", "--json"];
    let json = explain(&arguments).succeeded().json();
    assert_eq!((&json["cron"], &json["time_zone"]), (&"30 2 * * *".into(), &"Europe/Berlin".into()));
    assert_eq!(json["fixed_time"], true);
    assert_eq!(json["fires"].as_array().unwrap().len(), 3);
    assert_eq!(json["fires"][0]["note"], serde_json::Value::Null);
    assert_eq!(json["fires"][1]["at"], "2027-03-28T01:00:00Z");
    assert_eq!(json["fires"][1]["note"]["kind"], "moved");
    let treatments = [0, 1, 2].map(|shift| json["shifts"][shift]["treatment"].clone());
    assert_eq!(treatments, ["moved-to-end", "fires-first", "moved-to-end"], "those of 13 months");
}

#[test]
fn without_more_it_is_ten_fires_from_now_on_in_utc() {
    let json = explain(&["* * * * * *", "--json"]).succeeded().json();
    assert_eq!(json["time_zone"], "UTC");
    assert_eq!(json["fires"].as_array().unwrap().len(), 10);
    let first: jiff::Timestamp = json["fires"][0]["at"].as_str().unwrap().parse().unwrap();
    assert!(first <= jiff::Timestamp::now() + std::time::Duration::from_secs(1), "{first}");
}

#[test]
fn a_wrong_expression_is_pointed_at() {
    let ran = explain(&["30 2,25 * * *"]).failed(2, &[]);
    assert_eq!(
        ran.stderr,
        "error: the cron expression is not valid\n  \
           why: 30 2,25 * * *\n            ^^\n       field 2 (hour): 25 is not in 0 to 23\n  \
           do:  `mainstay jobs explain --help` shows how one is written\n"
    );
    for (cron, says) in [
        ("", "it is empty"),
        (
            "* * * *",
            "it has 4 fields, and takes five (minute, hour, day of month, month, day of week) or six",
        ),
        ("0 0 30 FEB *", "field 3 (day of month): no month in field 4 (FEB) has such a day"),
        ("@reboot", "refused: with many schedulers"),
        ("0/5 * * * *", "write 0-59/5 or */5"),
    ] {
        let ran = explain(&[cron]).failed(2, &["error: the cron expression is not valid", says]);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    }
}

#[test]
fn a_wrong_zone_brings_the_right_one() {
    explain(&["@daily", "--tz", "Europe/Berln"])
        .failed(2, &["the time zone is not known", "did you mean Europe/Berlin?"]);
}
