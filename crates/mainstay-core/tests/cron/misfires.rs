//! Misfire plans, against a plain list of what was due.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mainstay_core::job::{GRACE, Misfire, Plan, Schedule, plan};
use proptest::prelude::*;

use crate::at;

fn hourly() -> Schedule {
    Schedule::parse("0 * * * *", "UTC").unwrap()
}

fn all(cap: u32, window: Duration) -> Misfire {
    Misfire::All { cap, window }
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

#[track_caller]
fn check(misfire: Misfire, now: &str, occurrences: &[&str], skipped: u64, next: &str) {
    let plan = plan(&hourly(), at("2027-05-01T06:00:00Z"), at(now), misfire);
    let occurrences = occurrences.iter().map(|text| at(text)).collect();
    assert_eq!(plan, Plan { occurrences, skipped, next: Some(at(next)) }, "{misfire:?} at {now}");
}

#[test]
fn one_that_is_just_due_runs_whatever_the_policy() {
    for misfire in [Misfire::Skip, Misfire::Once, all(1, Duration::from_secs(1))] {
        for now in ["2027-05-01T06:00:00Z", "2027-05-01T06:00:00.5Z", "2027-05-01T06:01:00Z"] {
            check(misfire, now, &["2027-05-01T06:00:00Z"], 0, "2027-05-01T07:00:00Z");
        }
        check(misfire, "2027-05-01T05:59:59.999Z", &[], 0, "2027-05-01T06:00:00Z");
    }
}

#[test]
fn a_minute_and_a_moment_later_it_is_late() {
    let now = "2027-05-01T06:01:00.000000001Z";
    check(Misfire::Skip, now, &[], 1, "2027-05-01T07:00:00Z");
    check(Misfire::Once, now, &["2027-05-01T06:00:00Z"], 0, "2027-05-01T07:00:00Z");
    check(all(5, DAY), now, &["2027-05-01T06:00:00Z"], 0, "2027-05-01T07:00:00Z");
    check(all(5, Duration::from_secs(60)), now, &[], 1, "2027-05-01T07:00:00Z");
}

#[test]
fn after_hours_away_each_policy_does_as_it_says() {
    let (now, next) = ("2027-05-01T10:30:00Z", "2027-05-01T11:00:00Z");
    check(Misfire::Skip, now, &[], 5, next);
    check(Misfire::Once, now, &["2027-05-01T10:00:00Z"], 4, next);
    check(all(2, DAY), now, &["2027-05-01T09:00:00Z", "2027-05-01T10:00:00Z"], 3, next);
    let window = Duration::from_secs(9_000);
    check(
        all(9, window),
        now,
        &["2027-05-01T08:00:00Z", "2027-05-01T09:00:00Z", "2027-05-01T10:00:00Z"],
        2,
        next,
    );
    // One is on time: it runs, and stands for the late ones where one is to.
    let now = "2027-05-01T10:00:20Z";
    check(Misfire::Skip, now, &["2027-05-01T10:00:00Z"], 4, next);
    check(Misfire::Once, now, &["2027-05-01T10:00:00Z"], 4, next);
    let three = ["2027-05-01T08:00:00Z", "2027-05-01T09:00:00Z", "2027-05-01T10:00:00Z"];
    check(all(2, DAY), now, &three, 2, next);
}

#[test]
fn a_time_that_was_promised_runs_though_the_schedule_no_longer_names_it() {
    let promised = at("2027-05-01T06:17:00Z");
    let plan = plan(&hourly(), promised, promised, Misfire::Once);
    let next = Some(at("2027-05-01T07:00:00Z"));
    assert_eq!(plan, Plan { occurrences: vec![promised], skipped: 0, next });
}

#[test]
fn years_away_from_a_job_of_every_second_are_counted_not_walked() {
    let schedule = Schedule::parse("* * * * * *", "Europe/Berlin").unwrap();
    let (first, now) = (at("1990-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    let seconds = now.duration_since(first).as_secs() as u64 + 1;
    for (misfire, runs) in
        [(Misfire::Skip, 61), (Misfire::Once, 61), (all(1_000, Misfire::WINDOW_MAX), 1_061)]
    {
        let plan = plan(&schedule, first, now, misfire);
        assert_eq!(plan.occurrences.len(), runs);
        assert_eq!(plan.skipped, seconds - runs as u64);
        assert_eq!(plan.occurrences.last(), Some(&now));
        assert!(plan.occurrences.windows(2).all(|pair| pair[1].duration_since(pair[0]).as_secs() == 1));
    }
    // From the beginning of time, too: a row that somebody wrote by hand must not stop a scheduler, as walking would.
    let ancient = plan(&schedule, Timestamp::MIN, now, Misfire::Once);
    assert_eq!(ancient.skipped, now.duration_since(Timestamp::MIN).as_secs() as u64 + 1 - 61);
}

#[test]
fn at_the_end_of_time_there_is_no_next() {
    let plan = plan(&hourly(), Timestamp::MAX, Timestamp::MAX, Misfire::Once);
    assert_eq!((plan.occurrences.len(), plan.next), (1, None));
}

/// The same by listing everything that was due.
fn plain(schedule: &Schedule, first: Timestamp, now: Timestamp, misfire: Misfire) -> Plan {
    let next = schedule.next_after(now);
    if now < first {
        return Plan { occurrences: vec![], skipped: 0, next: Some(first) };
    }
    let mut due = vec![first];
    due.extend(schedule.after(first).take_while(|at| *at <= now));
    let age = |at: &Timestamp| now.duration_since(*at);
    let grace = SignedDuration::try_from(GRACE).unwrap();
    let (late, on_time): (Vec<_>, Vec<_>) = due.iter().copied().partition(|at| age(at) > grace);
    let mut occurrences = match misfire {
        Misfire::Skip => vec![],
        Misfire::Once if on_time.is_empty() => late.last().copied().into_iter().collect(),
        Misfire::Once => vec![],
        Misfire::All { cap, window } => {
            let window = SignedDuration::try_from(window).unwrap();
            let kept: Vec<_> = late.into_iter().filter(|at| age(at) <= window).collect();
            kept[kept.len().saturating_sub(cap as usize)..].to_vec()
        }
    };
    occurrences.extend(on_time);
    Plan { skipped: (due.len() - occurrences.len()) as u64, occurrences, next }
}

fn policy() -> impl Strategy<Value = Misfire> {
    prop_oneof![
        Just(Misfire::Skip),
        Just(Misfire::Once),
        (1_u32..20, 1_u64..200_000).prop_map(|(cap, window)| all(cap, Duration::from_secs(window))),
    ]
}

proptest! {
    #![proptest_config(crate::cases(400))]

    #[test]
    fn a_plan_is_what_a_plain_list_gives(
        expression in "0 \\* \\* \\* \\*|\\*/7 \\* \\* \\* \\*|30 2 \\* \\* \\*|0,30 1-3 \\* \\* \\*|\\*/20 \\* \\* \\* \\* \\*|0 0 1 \\* \\*",
        zone in "UTC|Europe/Berlin|Australia/Lord_Howe|America/Sao_Paulo",
        // From a day before the clocks of Berlin change, to three days after.
        first in 1_806_100_000_i64..1_806_500_000,
        promised in any::<bool>(),
        away in -100_000_i64..260_000_000,
        scale in 0_u32..4,
        misfire in policy(),
    ) {
        let schedule = Schedule::parse(&expression, &zone).unwrap();
        let first = Timestamp::from_second(first).unwrap();
        let first = if promised { first } else { schedule.next_after(first).unwrap() };
        let now = first.checked_add(SignedDuration::from_millis(away / 10_i64.pow(scale))).unwrap();
        prop_assert_eq!(plan(&schedule, first, now, misfire), plain(&schedule, first, now, misfire));
    }
}
