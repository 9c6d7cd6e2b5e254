//! Every clock change of many zones over ten years, against the plain calculation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use mainstay_core::job::{Schedule, Zone};

use crate::clock::{self, Clock};
use crate::expression::Expression;
use crate::oracle::Days;

/// Zones by what is special about their clocks.
const ZONES: [&str; 30] = [
    "Europe/Berlin",
    "Europe/London",
    "Europe/Lisbon",
    "America/New_York",
    "America/Los_Angeles",
    "Australia/Sydney",
    "Pacific/Auckland",
    // Winter time is the exception, an hour below standard time.
    "Europe/Dublin",
    // Half an hour only.
    "Australia/Lord_Howe",
    // Two hours.
    "Antarctica/Troll",
    // Offsets of quarter hours.
    "Pacific/Chatham",
    "Asia/Kathmandu",
    // At midnight: the day begins at 01:00, or 23:00 to 24:00 comes twice.
    "America/Sao_Paulo",
    "America/Asuncion",
    "America/Santiago",
    "America/Havana",
    "Asia/Beirut",
    "Asia/Tehran",
    "Asia/Amman",
    "Asia/Gaza",
    "Africa/Cairo",
    "Atlantic/Azores",
    // In the evening.
    "America/Nuuk",
    // A minute past midnight, until 2011.
    "America/St_Johns",
    // Back to winter time for Ramadan: four changes a year.
    "Africa/Casablanca",
    // Without 30 December 2011.
    "Pacific/Apia",
    // Other standard times, half an hour apart.
    "Asia/Pyongyang",
    "America/Caracas",
    // To other standard times by whole hours, and summer time given up.
    "Europe/Moscow",
    "Europe/Istanbul",
];

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

fn seconds(text: &str) -> i64 {
    crate::at(text).as_second()
}

/// The instants of a schedule that are within.
fn instants(schedule: &Schedule, from: i64, until: i64) -> Vec<i64> {
    let after = Timestamp::from_second(from - 1).unwrap();
    schedule.after(after).map(Timestamp::as_second).take_while(|at| *at < until).collect()
}

struct Walk<'a> {
    zone: &'a Zone,
    change: i64,
    compared: usize,
    /// Read once each.
    known: &'a mut HashMap<String, Expression>,
}

impl Walk<'_> {
    /// Compares the expressions from `around` before the change to `around` after it.
    fn compare(&mut self, tick: i64, around: i64, expressions: &[String]) {
        // What is skipped or repeated at the edges is known only from beyond them.
        let (from, until) = (self.change - around, self.change + around);
        let clock = Clock::watch(self.zone.time_zone(), from - 3 * HOUR, until + 3 * HOUR, tick);
        let days = Days::new(&clock);
        for text in expressions {
            let schedule = Schedule::new(text.parse().unwrap(), self.zone.clone());
            let expression = self.known.entry(text.clone()).or_insert_with(|| Expression::new(text));
            let plain: Vec<_> = days.fires(expression).range(from..until).copied().collect();
            let ours = instants(&schedule, from, until);
            let change = Timestamp::from_second(self.change).unwrap();
            assert_eq!(ours, plain, "{text} in {} around {change}", self.zone);
            let between = Timestamp::from_second(from).unwrap()..=Timestamp::from_second(until - 1).unwrap();
            let counted = schedule.count(between);
            assert_eq!(counted, plain.len() as u64, "{text} in {} around {change}, counted", self.zone);
            // Whoever comes along at the very change, or later, finds the same as who was there before.
            for from in [self.change, self.change + HOUR / 2] {
                let next =
                    schedule.next_after(Timestamp::from_second(from - 1).unwrap()).map(Timestamp::as_second);
                if let Some(plain) = plain.iter().find(|at| **at >= from) {
                    assert_eq!(next, Some(*plain), "{text} in {} from {from}, around {change}", self.zone);
                }
            }
            self.compared += plain.len();
        }
    }

    /// Expressions for times at, in and around what the change skips or repeats, and some that don't depend on it.
    fn expressions(&self) -> (Vec<String>, Vec<String>) {
        let offset = |at| {
            let at = Timestamp::from_second(at).unwrap();
            i64::from(self.zone.time_zone().to_offset(at).seconds())
        };
        let (old, new) = (self.change + offset(self.change - 1), self.change + offset(self.change));
        let (low, high) = (old.min(new), old.max(new));
        let middle = low.midpoint(high) / 60 * 60;
        let mut by_minute: Vec<String> = [
            "*/15 * * * *",
            "0 * * * *",
            "0 */2 * * *",
            "*/20 2 * * *",
            "30 0-23/3 * * *",
            "0,30 0-3,23 * * *",
            "0 0 * * *",
            "0 0 * * 1-5",
            "59 23 * * SAT,SUN",
            "15 10,14 1,15,30 * MON",
        ]
        .map(str::to_owned)
        .into();
        let mut by_ten_seconds: Vec<String> =
            ["*/20 * * * * *", "10 0 * * * *", "30 */30 * * * *"].map(str::to_owned).into();
        for wall in [low - 60, low, low + 60, middle, high - 60, high, high + 60] {
            let at = clock::moment(wall);
            let (minute, hour) = (at.minute, at.hour);
            by_minute.push(format!("{minute} {hour} * * *"));
            by_minute.push(format!("{minute} {hour} * * {}", at.weekday));
            by_minute.push(format!("{minute} {hour} {} {} *", at.day, at.month));
            by_minute.push(format!("{minute} * * * *"));
            by_ten_seconds.push(format!("30 {minute} {hour} * * *"));
            by_ten_seconds.push(format!("*/20 {minute} {hour} * * *"));
            by_ten_seconds.push(format!("50 {minute} * * * *"));
        }
        by_minute.push(format!("*/10 {} * * *", clock::moment(middle).hour));
        for expressions in [&mut by_minute, &mut by_ten_seconds] {
            expressions.sort();
            expressions.dedup();
        }
        (by_minute, by_ten_seconds)
    }
}

#[test]
fn every_clock_change_of_ten_years_is_as_the_plain_calculation_says() {
    // Ten that are past, so that they don't change with the next version of the zones.
    let (from, until) = (seconds("2010-01-01T00:00:00Z"), seconds("2020-01-01T00:00:00Z"));
    let next = AtomicUsize::new(0);
    let walk = || {
        let (mut walked, mut compared, mut known) = (0, 0, HashMap::new());
        while let Some(name) = ZONES.get(next.fetch_add(1, Ordering::Relaxed)) {
            let zone = Zone::get(name).unwrap();
            for change in clock::changes(zone.time_zone(), from, until) {
                let mut walk = Walk { zone: &zone, change, compared: 0, known: &mut known };
                let (by_minute, by_ten_seconds) = walk.expressions();
                walk.compare(60, 2 * DAY, &by_minute);
                walk.compare(10, 3 * HOUR, &by_ten_seconds);
                walked += 1;
                compared += walk.compared;
            }
        }
        (walked, compared)
    };
    let (walked, compared) = std::thread::scope(|scope| {
        let walks: Vec<_> = (0..4).map(|_| scope.spawn(walk)).collect();
        let done = walks.into_iter().map(|walk| walk.join().unwrap());
        done.fold((0, 0), |sum, (walked, compared)| (sum.0 + walked, sum.1 + compared))
    });
    // So that an empty walk can't pass.
    assert!(walked > 400 && compared > 500_000, "{walked} changes, {compared} fires");
}

#[test]
fn local_mean_times_with_odd_seconds_are_walked_too() {
    // Until 1937 Amsterdam was 0:19:32 ahead, and had summer time.
    let zone = Zone::get("Europe/Amsterdam").unwrap();
    let mut known = HashMap::new();
    let until = seconds("1940-06-01T00:00:00Z");
    for change in clock::changes(zone.time_zone(), seconds("1934-01-01T00:00:00Z"), until) {
        let mut walk = Walk { zone: &zone, change, compared: 0, known: &mut known };
        let edge: Vec<_> = ["30 2 * * *", "0 3 * * *", "*/15 * * * *"].map(str::to_owned).into();
        walk.compare(1, 3_600, &edge);
        assert!(walk.compared > 0);
    }
}
