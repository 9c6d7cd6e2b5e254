//! Schedules: the examples of the guide, what holds for all of them, and the ends of time.

use jiff::{SignedDuration, Timestamp};
use mainstay_core::job::Schedule;
use proptest::prelude::*;

use crate::at;

/// What the clock in the zone shows at each fire of a day and the night after it, with its offset.
fn fires(expression: &str, zone: &str, from: &str, until: &str) -> Vec<String> {
    let schedule = Schedule::parse(expression, zone).unwrap();
    let within = schedule.after(at(from)).take_while(|fire| *fire < at(until));
    let shown = |fire: Timestamp| {
        let local = fire.to_zoned(schedule.zone().time_zone().clone());
        local.strftime("%d %H:%M %:z").to_string()
    };
    within.map(shown).collect()
}

#[test]
fn the_night_the_clocks_of_berlin_go_forward() {
    // 28 March 2027, from 02:00 to 03:00.
    let fires =
        |expression| fires(expression, "Europe/Berlin", "2027-03-27T23:30:00Z", "2027-03-28T02:30:00Z");
    assert_eq!(fires("30 2 * * *"), ["28 03:00 +02:00"]);
    assert_eq!(fires("0,15,30 2 * * *"), ["28 03:00 +02:00"]);
    assert_eq!(fires("0 1-4 * * *"), ["28 01:00 +01:00", "28 03:00 +02:00", "28 04:00 +02:00"]);
    assert_eq!(fires("30 * * * *"), ["28 01:30 +01:00", "28 03:30 +02:00"]);
    assert_eq!(fires("*/30 2 * * *"), [""; 0]);
    assert_eq!(fires("0 */2 * * *"), ["28 04:00 +02:00"]);
    assert_eq!(fires("0 3 * * *"), ["28 03:00 +02:00"]);
    let quarters = fires("*/15 * * * *");
    assert_eq!(quarters[4..7], ["28 01:45 +01:00", "28 03:00 +02:00", "28 03:15 +02:00"]);
    assert_eq!(fires("0 2 * * SUN"), ["28 03:00 +02:00"]);
    assert_eq!(fires("0 2 * * SAT"), [""; 0]);
}

#[test]
fn the_night_the_clocks_of_berlin_go_back() {
    // 31 October 2027, from 03:00 to 02:00.
    let fires =
        |expression| fires(expression, "Europe/Berlin", "2027-10-30T22:59:59Z", "2027-10-31T02:31:00Z");
    assert_eq!(fires("30 2 * * *"), ["31 02:30 +02:00"]);
    assert_eq!(fires("0,30 2 * * *"), ["31 02:00 +02:00", "31 02:30 +02:00"]);
    assert_eq!(fires("0 1-3 * * *"), ["31 01:00 +02:00", "31 02:00 +02:00", "31 03:00 +01:00"]);
    assert_eq!(fires("0 3 * * *"), ["31 03:00 +01:00"]);
    let thrice = ["31 02:00 +02:00", "31 02:15 +02:00", "31 02:30 +02:00"];
    assert_eq!(fires("0,15,30 2 * * *"), thrice);
    assert_eq!(fires("0 */2 * * *"), ["31 02:00 +02:00", "31 02:00 +01:00"]);
    let real = fires("*/15 * * * *");
    assert_eq!(real.len(), 15, "every 15 minutes of three hours and a half, both ends included");
    let hourly = ["31 01:30 +02:00", "31 02:30 +02:00", "31 02:30 +01:00", "31 03:30 +01:00"];
    assert_eq!(fires("30 * * * *"), hourly);
    let halves = ["31 02:00 +02:00", "31 02:30 +02:00", "31 02:00 +01:00", "31 02:30 +01:00"];
    assert_eq!(fires("*/30 2 * * *"), halves);
}

#[test]
fn half_an_hour_on_lord_howe() {
    // 3 October 2027, 02:00 to 02:30; 4 April 2027, 02:00 back to 01:30.
    let spring = ("2027-10-02T14:00:00Z", "2027-10-02T17:00:00Z");
    assert_eq!(fires("15 2 * * *", "Australia/Lord_Howe", spring.0, spring.1), ["03 02:30 +11:00"]);
    assert_eq!(fires("45 2 * * *", "Australia/Lord_Howe", spring.0, spring.1), ["03 02:45 +11:00"]);
    let autumn = ("2027-04-03T13:00:00Z", "2027-04-03T16:00:00Z");
    assert_eq!(fires("45 1 * * *", "Australia/Lord_Howe", autumn.0, autumn.1), ["04 01:45 +11:00"]);
    let both = ["04 00:45 +11:00", "04 01:45 +11:00", "04 01:45 +10:30"];
    assert_eq!(fires("45 */1 * * *", "Australia/Lord_Howe", autumn.0, autumn.1), both);
}

#[test]
fn the_day_samoa_left_out() {
    // After 29 December 2011 came the 31st.
    let around = ("2011-12-29T12:00:00Z", "2011-12-31T12:00:00Z");
    let noon = ["29 12:00 -10:00", "31 00:00 +14:00", "31 12:00 +14:00", "01 00:00 +14:00"];
    assert_eq!(fires("0 12 * * *", "Pacific/Apia", around.0, around.1), noon[..3]);
    assert_eq!(fires("0 12 30 12 *", "Pacific/Apia", around.0, around.1), noon[1..2]);
    assert_eq!(fires("0 0-23/12 * * *", "Pacific/Apia", around.0, around.1), noon);
}

#[test]
fn midnight_that_does_not_exist_in_beirut() {
    // 28 March 2027 begins at 01:00.
    let around = ("2027-03-27T12:00:00Z", "2027-03-28T23:00:00Z");
    assert_eq!(fires("@daily", "Asia/Beirut", around.0, around.1), ["28 01:00 +03:00", "29 00:00 +03:00"]);
    assert_eq!(fires("@weekly", "Asia/Beirut", around.0, around.1), ["28 01:00 +03:00"]);
}

#[test]
fn the_ends_of_time_are_no_trouble() {
    for zone in ["UTC", "Europe/Berlin", "Pacific/Apia", "America/Los_Angeles"] {
        for expression in ["* * * * * *", "30 2 * * *", "0 0 29 2 *"] {
            let schedule = Schedule::parse(expression, zone).unwrap();
            assert_eq!(schedule.next_after(Timestamp::MAX), None);
            assert!(schedule.next_after(Timestamp::MIN).unwrap() < at("-009991-01-01T00:00:00Z"));
            let late = at("9999-12-25T00:00:00Z");
            let all: Vec<_> = schedule.after(late).step_by(7_200).collect();
            assert!(all.len() <= 120 && all.is_sorted());
            assert_eq!(schedule.count(late..=Timestamp::MIN), 0);
        }
    }
    let leap = Schedule::parse("0 0 29 2 *", "UTC").unwrap();
    assert_eq!(leap.next_after(at("2096-03-01T00:00:00Z")), Some(at("2104-02-29T00:00:00Z")));
}

const ZONES: &str = "UTC|Europe/Berlin|Europe/Dublin|America/Sao_Paulo|Africa/Casablanca|Australia/Lord_Howe|Pacific/Apia|Asia/Beirut|America/St_Johns";

proptest! {
    #![proptest_config(crate::cases(60))]

    #[test]
    fn occurrences_go_up_are_found_from_anywhere_and_counted_rightly(
        minute in "\\*/20|0|30|0,45|10-12",
        hour in "\\*|0|2|23|1-3|\\*/6",
        day in "\\*|\\*|1|L|15W",
        weekday in "\\*|\\*|SUN|MON-FRI|FRI#2",
        zone in ZONES,
        from in -2_000_000_000_i64..4_000_000_000,
        nanosecond in 0_i32..1_000_000_000,
    ) {
        let schedule = Schedule::parse(&format!("{minute} {hour} {day} * {weekday}"), &zone).unwrap();
        let from = Timestamp::from_second(from).unwrap();
        let from = from.checked_add(SignedDuration::from_nanos(nanosecond.into())).unwrap();
        let found: Vec<_> = schedule.after(from).take(150).collect();
        prop_assert_eq!(found.len(), 150);
        prop_assert!(found[0] > from);
        for pair in found.windows(2) {
            prop_assert!(pair[0] < pair[1]);
            let just_before = pair[1].checked_sub(SignedDuration::from_nanos(1)).unwrap();
            prop_assert_eq!(schedule.next_after(pair[0]), Some(pair[1]));
            prop_assert_eq!(schedule.next_after(just_before), Some(pair[1]));
            prop_assert_eq!(schedule.count(pair[0]..=pair[1]), 2);
            prop_assert_eq!(schedule.count(pair[0]..=just_before), 1);
        }
        prop_assert_eq!(schedule.count(from..=found[149]), 150);
    }
}
