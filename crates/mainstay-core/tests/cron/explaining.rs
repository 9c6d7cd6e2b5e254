//! What is said about the next fires.

use jiff::civil::date;
use mainstay_core::job::{DstNote, Schedule, ShiftKind, Treatment};

use crate::at;

#[test]
fn a_fixed_time_that_is_skipped_and_one_that_is_repeated() {
    let schedule = Schedule::parse("30 2 * * *", "Europe/Berlin").unwrap();
    let explanation = schedule.explain(at("2027-03-27T12:00:00Z"), 2);
    let [first, second] = &explanation.fires[..] else { panic!("{explanation:?}") };
    assert_eq!(first.local, date(2027, 3, 28).at(3, 0, 0, 0));
    assert_eq!(first.note, Some(DstNote::Moved { from: date(2027, 3, 28).at(2, 30, 0, 0), skipped: 1 }));
    assert_eq!((second.local, &second.note), (date(2027, 3, 29).at(2, 30, 0, 0), &None));
    let [shift] = &explanation.shifts[..] else { panic!("{explanation:?}") };
    assert_eq!((shift.kind, shift.treatment, shift.named), (ShiftKind::Gap, Treatment::MovedToEnd, 1));
    assert_eq!((shift.from, shift.to), (date(2027, 3, 28).at(2, 0, 0, 0), date(2027, 3, 28).at(3, 0, 0, 0)));

    let explanation = schedule.explain(at("2027-10-30T12:00:00Z"), 2);
    let again_at = at("2027-10-31T01:30:00Z");
    assert_eq!(explanation.fires[0].note, Some(DstNote::FirstOnly { again_at }));
    assert_eq!(explanation.fires[1].note, None);
    let [shift] = &explanation.shifts[..] else { panic!("{explanation:?}") };
    assert_eq!((shift.kind, shift.treatment, shift.named), (ShiftKind::Overlap, Treatment::FiresFirst, 1));
}

#[test]
fn an_interval_that_is_skipped_and_one_that_is_repeated() {
    let schedule = Schedule::parse("*/30 * * * *", "Europe/Berlin").unwrap();
    let explanation = schedule.explain(at("2027-03-28T00:15:00Z"), 3);
    assert!(explanation.fires.iter().all(|fire| fire.note.is_none()));
    let [shift] = &explanation.shifts[..] else { panic!("{explanation:?}") };
    assert_eq!((shift.treatment, shift.named), (Treatment::Skipped, 2));

    let explanation = schedule.explain(at("2027-10-30T23:45:00Z"), 5);
    let notes: Vec<_> = explanation.fires.iter().map(|fire| fire.note.clone()).collect();
    assert_eq!(
        notes,
        [
            Some(DstNote::FirstOfTwo { again_at: at("2027-10-31T01:00:00Z") }),
            Some(DstNote::FirstOfTwo { again_at: at("2027-10-31T01:30:00Z") }),
            Some(DstNote::SecondOfTwo { before_at: at("2027-10-31T00:00:00Z") }),
            Some(DstNote::SecondOfTwo { before_at: at("2027-10-31T00:30:00Z") }),
            None,
        ]
    );
    assert_eq!(explanation.shifts[0].treatment, Treatment::FiresBoth);
}

#[test]
fn a_fire_stands_for_all_that_its_gap_swallowed() {
    let schedule = Schedule::parse("0 0,6,12,18 * * *", "Pacific/Apia").unwrap();
    let explanation = schedule.explain(at("2011-12-30T08:00:00Z"), 2);
    let note = Some(DstNote::Moved { from: date(2011, 12, 30).at(0, 0, 0, 0), skipped: 4 });
    assert_eq!(explanation.fires[0].note, note);
    assert_eq!(explanation.fires[1].note, None);
}

#[test]
fn a_zone_that_never_changes_has_nothing_to_explain() {
    let explanation = Schedule::parse("@hourly", "UTC").unwrap().explain(at("2027-01-01T00:00:00Z"), 9_000);
    assert_eq!(explanation.fires.len(), 9_000);
    assert!(explanation.shifts.is_empty() && explanation.fires.iter().all(|fire| fire.note.is_none()));
    let none = Schedule::parse("@hourly", "Europe/Berlin").unwrap().explain(at("2027-01-01T00:00:00Z"), 0);
    assert!(none.fires.is_empty() && none.shifts.is_empty());
}

#[test]
fn it_is_plain_json() {
    let schedule = Schedule::parse("30 2 * * *", "Europe/Berlin").unwrap();
    let json = serde_json::to_value(schedule.explain(at("2027-03-27T12:00:00Z"), 1)).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "fires": [{
                "at": "2027-03-28T01:00:00Z",
                "local": "2027-03-28T03:00:00",
                "offset": "+02:00",
                "note": { "kind": "moved", "from": "2027-03-28T02:30:00", "skipped": 1 },
            }],
            "shifts": [{
                "at": "2027-03-28T01:00:00Z",
                "kind": "gap",
                "from": "2027-03-28T02:00:00",
                "to": "2027-03-28T03:00:00",
                "before": "+01:00",
                "after": "+02:00",
                "named": 1,
                "treatment": "moved-to-end",
            }],
        })
    );
}
