//! What croner, another implementation, makes of the same expressions.
//!
//! The two must agree on which wall-clock times an expression names, and, where the contract is the same, on what
//! clock changes do to them. It is not the same everywhere, which is why schedules are not evaluated by croner: it
//! counts a list or range of fixed times (`0,30 2 * * *`) as an interval, which loses their run in a gap and doubles
//! it in an overlap; and after a day that is left out (Samoa, 2011) it loses the next one too.

use jiff::Timestamp;
use mainstay_core::job::{Schedule, Zone};
use proptest::prelude::*;

use crate::clock;

fn theirs(expression: &str, zone: &Zone, after: Timestamp) -> impl Iterator<Item = Timestamp> {
    let cron: croner::Cron = expression.parse().unwrap_or_else(|error| panic!("{expression}: {error}"));
    let mut last = after.to_zoned(zone.time_zone().clone());
    std::iter::from_fn(move || {
        last = cron.find_next_occurrence(&last, false).ok()?;
        Some(last.timestamp())
    })
}

#[test]
fn the_two_agree_on_clock_changes_where_the_contract_is_the_same() {
    let (from, until) = (crate::at("2010-01-01T00:00:00Z"), crate::at("2016-01-01T00:00:00Z"));
    let mut compared = 0;
    for name in
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Beirut"]
    {
        let zone = Zone::get(name).unwrap();
        for change in clock::changes(zone.time_zone(), from.as_second(), until.as_second()) {
            let before = Timestamp::from_second(change - 1).unwrap();
            let skipped = clock::moment(zone.time_zone().to_offset(before).seconds() as i64 + change + 600);
            let fixed = format!("{} {} * * *", skipped.minute, skipped.hour);
            for expression in [fixed.as_str(), "0 0 * * *", "*/15 * * * *", "0 * * * *", "0 */2 * * *"] {
                let schedule = Schedule::new(expression.parse().unwrap(), zone.clone());
                let after = Timestamp::from_second(change - 24 * 3_600).unwrap();
                let until = Timestamp::from_second(change + 24 * 3_600).unwrap();
                let ours: Vec<_> = schedule.after(after).take_while(|at| *at < until).collect();
                let theirs: Vec<_> = theirs(expression, &zone, after).take_while(|at| *at < until).collect();
                assert_eq!(ours, theirs, "{expression} in {name} around {before}");
                compared += ours.len();
            }
        }
    }
    assert!(compared > 5_000, "{compared}");
}

fn time_field(most: u8) -> impl Strategy<Value = String> {
    let value = 0..=most;
    let range = (0..=most, 0..=most).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        2 => Just("*".to_owned()),
        3 => value.prop_map(|value| value.to_string()),
        1 => (1..=most).prop_map(|step| format!("*/{step}")),
        1 => range.clone().prop_map(|(low, high)| format!("{low}-{high}")),
        1 => (range, 1..=most).prop_map(|((low, high), step)| format!("{low}-{high}/{step}")),
        1 => prop::collection::vec(0..=most, 2..5).prop_map(|list| list.iter().map(u8::to_string).collect::<Vec<_>>().join(",")),
    ]
}

fn day_field() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("*".to_owned()),
        3 => (1..=31_u8).prop_map(|day| day.to_string()),
        1 => (2..=31_u8).prop_map(|step| format!("*/{step}")),
        1 => Just("L".to_owned()),
        1 => Just("LW".to_owned()),
        1 => (1..=31_u8).prop_map(|day| format!("{day}W")),
        1 => "1,15|10-20|5-25/5|29,30,31",
    ]
}

fn weekday_field() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("*".to_owned()),
        2 => "[0-7]",
        2 => "SUN|MON|TUE|WED|THU|FRI|SAT",
        1 => "MON-FRI|1-5|FRI-SUN|5-7|0-7|\\*/2|1-5/2|SAT,SUN",
        1 => "[0-6]L",
        1 => "[0-6]#[1-5]",
    ]
}

fn month_field() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("*".to_owned()), 1 => (1..=12_u8).prop_map(|month| month.to_string()), 1 => "JAN-MAR|FEB|\\*/5|2,NOV"]
}

proptest! {
    #![proptest_config(crate::cases(600))]

    #[test]
    fn the_two_agree_on_the_times_an_expression_names(
        second in proptest::option::of(time_field(59)),
        minute in time_field(59),
        hour in time_field(23),
        day in day_field(),
        month in month_field(),
        weekday in weekday_field(),
        after in 0_i64..4_000_000_000,
    ) {
        let second = second.map(|second| format!("{second} ")).unwrap_or_default();
        let expression = format!("{second}{minute} {hour} {day} {month} {weekday}");
        // The few that never fire, like 31 February, are refused.
        prop_assume!(expression.parse::<mainstay_core::job::Cron>().is_ok());
        let schedule = Schedule::parse(&expression, "UTC").unwrap();
        let after = Timestamp::from_second(after).unwrap();
        let ours: Vec<_> = schedule.after(after).take(12).collect();
        let theirs: Vec<_> = theirs(&expression, &Zone::UTC, after).take(12).collect();
        prop_assert_eq!(ours, theirs, "{} after {}", expression, after);
    }
}
