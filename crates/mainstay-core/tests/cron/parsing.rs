//! What is read as a cron expression, and what is said of the rest.

use mainstay_core::job::{Cron, CronField, Schedule};
use mainstay_core::{Error, ErrorKind};
use proptest::prelude::*;

#[test]
fn the_fields_are_told_apart_by_their_number() {
    let five: Vec<_> = fires("30 2 * * *", 2);
    assert_eq!(five, ["2027-01-01T02:30:00Z", "2027-01-02T02:30:00Z"]);
    let six: Vec<_> = fires("15 30 2 * * *", 2);
    assert_eq!(six, ["2027-01-01T02:30:15Z", "2027-01-02T02:30:15Z"]);
}

#[test]
fn the_nicknames_are_what_they_are_short_for() {
    for (nickname, expression) in [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@Monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@HOURLY", "0 * * * *"),
    ] {
        assert_eq!(fires(nickname, 5), fires(expression, 5), "{nickname}");
        assert_eq!(Cron::parse(nickname).unwrap().to_string(), nickname);
    }
    assert!(!Cron::parse("@hourly").unwrap().is_fixed_time());
    assert!(Cron::parse("@daily").unwrap().is_fixed_time());
}

#[test]
fn days_are_found_as_the_calendar_has_them() {
    for (expression, days) in [
        ("0 0 L * *", ["2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30"]),
        // 31 January 2027 is a Sunday, 28 February too.
        ("0 0 LW * *", ["2027-01-29", "2027-02-26", "2027-03-31", "2027-04-30"]),
        // 15 May 2027 is a Saturday, 15 August a Sunday.
        ("0 0 15W 5,8 *", ["2027-05-14", "2027-08-16", "2028-05-15", "2028-08-15"]),
        // A Saturday on the 1st does not go back into the month before: 1 May 2027.
        ("0 0 1W 5-8 *", ["2027-05-03", "2027-06-01", "2027-07-01", "2027-08-02"]),
        // A Sunday on the last day does not go on into the month after: 31 October 2027.
        ("0 0 31W 10 *", ["2027-10-29", "2028-10-31", "2029-10-31", "2030-10-31"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29", "2040-02-29"]),
        ("0 0 * * FRI#2", ["2027-01-08", "2027-02-12", "2027-03-12", "2027-04-09"]),
        ("0 0 * 2 1#5", ["2044-02-29", "2072-02-29", "2112-02-29", "2140-02-29"]),
        ("0 0 * * 7L", ["2027-01-31", "2027-02-28", "2027-03-28", "2027-04-25"]),
        // Both given: either is enough.
        ("0 0 1,15 * MON", ["2027-01-01", "2027-01-04", "2027-01-11", "2027-01-15"]),
        // A step is not `*`: either is enough here too.
        ("0 0 */16 * WED#1", ["2027-01-01", "2027-01-06", "2027-01-17", "2027-02-01"]),
    ] {
        let found: Vec<_> = fires(expression, 4).iter().map(|at| at[..10].to_owned()).collect();
        assert_eq!(found, days, "{expression}");
    }
}

fn fires(expression: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::parse(expression, "UTC").unwrap();
    schedule.after(crate::at("2026-12-31T23:59:59Z")).take(count).map(|at| at.to_string()).collect()
}

#[test]
fn what_is_wrong_is_pointed_at_in_its_field() {
    for (expression, field, position, message, pointer) in [
        (
            "60 * * * *",
            CronField::Minute,
            1,
            r#"field 1 (minute), "60": 60 is not in 0 to 59"#,
            "60 * * * *\n^^",
        ),
        (
            "  0\t 2,24   * * * ",
            CronField::Hour,
            2,
            r#"field 2 (hour), "24": 24 is not in 0 to 23"#,
            "0 2,24 * * *\n    ^^",
        ),
        (
            "0 0 2 32 * *",
            CronField::DayOfMonth,
            4,
            r#"field 4 (day of month), "32": 32 is not in 1 to 31, L, LW or a day with W"#,
            "0 0 2 32 * *\n      ^^",
        ),
        (
            "0 2 * JANUARY *",
            CronField::Month,
            4,
            r#"field 4 (month), "JANUARY": "JANUARY" is not in 1 to 12 or JAN to DEC"#,
            "0 2 * JANUARY *\n      ^^^^^^^",
        ),
        (
            "0 0 2 * * FRI-MON",
            CronField::DayOfWeek,
            6,
            r#"field 6 (day of week), "FRI-MON": a range must go up; write FRI-SUN,MON for one that goes past the end"#,
            "0 0 2 * * FRI-MON\n          ^^^^^^^",
        ),
        (
            "0 0 30 FEB *",
            CronField::DayOfMonth,
            3,
            r#"field 3 (day of month), "30": no month in field 4 (FEB) has such a day, so it would never fire"#,
            "0 0 30 FEB *\n    ^^",
        ),
        (
            "0 0 0 31 2,4,6,9,11 *",
            CronField::DayOfMonth,
            4,
            r#"field 4 (day of month), "31": no month in field 5 (2,4,6,9,11) has such a day, so it would never fire"#,
            "0 0 0 31 2,4,6,9,11 *\n      ^^",
        ),
    ] {
        let error = Cron::parse(expression).unwrap_err();
        assert_eq!(error.field(), Some(field), "{expression}");
        assert_eq!(error.position(), Some(position), "{expression}");
        assert_eq!(error.to_string(), message);
        assert_eq!(error.pointer(), pointer);
        let error = Error::from(error);
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("cron")));
        assert_eq!(error.message(), format!("cron {message}"));
    }
}

#[test]
fn what_is_wrong_as_a_whole_says_so() {
    for (expression, says) in [
        ("", "is empty"),
        (" \n ", "is empty"),
        ("*", "has 1 field, and takes five"),
        ("* * * *", "has 4 fields, and takes five (minute, hour, day of month, month, day of week) or six"),
        (
            "* * * * * * 2027",
            "has 7 fields, and takes five (minute, hour, day of month, month, day of week) or six (second first); there is no field for years",
        ),
        ("@reboot", "refused: with many schedulers on one database there is no one start"),
        ("@every 5m", "refused: it counts from a start that no two schedulers agree on"),
        ("@fortnightly", "not known; there are @yearly"),
        ("CRON_TZ=Europe/Berlin 0 2 * * *", "the time zone is given beside the expression"),
    ] {
        let error = Cron::parse(expression).unwrap_err();
        assert_eq!((error.field(), error.position()), (None, None), "{expression}");
        assert!(error.to_string().contains(says), "{expression}: {error}");
    }
    let long = Cron::parse(&format!("{} * * * *", "1,".repeat(200))).unwrap_err().to_string();
    assert!(long.contains("at most 255") && long.len() < 150, "{long}");
}

#[test]
fn an_expression_is_a_text_to_the_outside() {
    let cron: Cron = " 0  2 * *\tMON ".parse().unwrap();
    assert_eq!(cron.to_string(), "0 2 * * MON");
    let json = serde_json::to_string(&cron).unwrap();
    assert_eq!(json, "\"0 2 * * MON\"");
    assert_eq!(serde_json::from_str::<Cron>(&json).unwrap(), cron);
    let error = serde_json::from_str::<Cron>("\"0 25 * * *\"").unwrap_err();
    assert!(error.to_string().contains("field 2 (hour)"), "{error}");
    let schedule: Schedule = serde_json::from_str(r#"{"cron":"@daily"}"#).unwrap();
    assert_eq!(serde_json::to_string(&schedule).unwrap(), r#"{"cron":"@daily","time_zone":"UTC"}"#);
}

#[test]
fn fixed_times_and_intervals_are_told_apart_by_minute_and_hour() {
    for (expression, fixed) in [
        ("30 2 * * *", true),
        ("0,30 2,14 * * *", true),
        ("0 8-17 * * *", true),
        ("*/10 30 2 * * *", true),
        ("* 30 2 */2 */2 */2", true),
        ("0 * * * *", false),
        ("* 2 * * *", false),
        ("*/15 2 * * *", false),
        ("0-59/15 2 * * *", false),
        ("0 8-17/2 * * *", false),
        ("0 0 */2 * * *", false),
    ] {
        assert_eq!(Cron::parse(expression).unwrap().is_fixed_time(), fixed, "{expression}");
    }
}

proptest! {
    #![proptest_config(crate::cases(1_000))]

    #[test]
    fn nothing_that_is_typed_makes_it_panic(text in "[-0-9*/,?#LWA-Za-z@= ü]{0,24}") {
        if let Err(error) = Cron::parse(&text) {
            prop_assert!(!error.to_string().is_empty());
            prop_assert_eq!(error.pointer().lines().count(), 2);
        }
    }

    #[test]
    fn what_is_read_is_read_again_from_its_text(
        fields in prop::collection::vec("\\*|\\*/[1-7]|[1-7]|[1-3]-[4-7]|[1-3]-[4-7]/2|[1-3],[4-7]", 5..=6),
    ) {
        let cron = Cron::parse(&fields.join("  ")).unwrap();
        prop_assert_eq!(Cron::parse(&cron.to_string()).unwrap(), cron);
    }
}
