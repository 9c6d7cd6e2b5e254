//! The books of what goes on beside the orders: reminders, stocktaking, the carrier's reports, shifts.
//!
//! Like the books of the orders they are read from the database alone: what each primitive says of its own, held against the
//! messages it made and what the handlers wrote.

use std::collections::{HashMap, HashSet};

use mainstay::inbox::{EntryState, InboxFilter, InboxPage};
use mainstay::job::{RunFilter, RunState};
use mainstay::outbox::{MessageFilter, Page};
use mainstay::{Mainstay, WorkItemId};
use uuid::Uuid;

use super::books::Ledger;
use super::{carrier, reminders, stock};

/// Rows read at once.
const PAGE: u32 = 1_000;

/// The books of what goes on beside the orders.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Beside {
    /// Timers scheduled.
    pub(crate) reminders: u64,
    /// Of these, fired, and cancelled before that.
    pub(crate) fired: u64,
    pub(crate) cancelled: u64,
    /// Neither yet.
    pub(crate) waiting: u64,
    /// Fired, but without a message; or a message without a timer that has fired.
    pub(crate) misfired: u64,
    /// Runs of the job.
    pub(crate) counts: u64,
    /// Of these, not over yet.
    pub(crate) unfinished: u64,
    /// Seconds between the first and the last that have no run, or more than one.
    pub(crate) miscounted: u64,
    /// Messages that the inbox knows.
    pub(crate) reports: u64,
    /// Of these, not processed.
    pub(crate) unread: u64,
    /// Processed, but without one arrival written down, or with more than one.
    pub(crate) misread: u64,
    /// Shifts written down.
    pub(crate) shifts: u64,
    /// Of these, under an epoch that was not higher than the one before.
    pub(crate) overlapping: u64,
}

impl Beside {
    /// Reads the books of a run.
    pub(crate) async fn read(mainstay: &Mainstay, ledger: &Ledger, run: Uuid) -> mainstay::Result<Self> {
        let mut beside = Self::default();
        beside.read_reminders(mainstay, run).await?;
        beside.read_counts(mainstay, run).await?;
        beside.read_reports(mainstay, ledger, run).await?;
        beside.check_shifts(&ledger.shifts);
        Ok(beside)
    }

    async fn read_reminders(&mut self, mainstay: &Mainstay, run: Uuid) -> mainstay::Result<()> {
        let filter = MessageFilter::all().correlation_id(reminders::correlation(run));
        let mut messages: HashSet<WorkItemId> = HashSet::new();
        let mut page = Page { limit: PAGE, before: None };
        loop {
            let rows = mainstay.outbox().list(&filter, page).await?;
            messages.extend(rows.iter().map(|message| message.id));
            page.before = rows.last().map(|message| message.id);
            if rows.len() < PAGE as usize {
                break;
            }
        }
        page.before = None;
        loop {
            let timers = mainstay.timers().list(&filter, page).await?;
            for timer in &timers {
                self.reminders += 1;
                self.fired += u64::from(timer.has_fired());
                self.cancelled += u64::from(timer.is_cancelled());
                self.waiting += u64::from(timer.is_pending());
                self.misfired += u64::from(messages.remove(&timer.id()) != timer.has_fired());
            }
            page.before = timers.last().map(|timer| timer.id());
            if timers.len() < PAGE as usize {
                break;
            }
        }
        self.misfired += messages.len() as u64;
        Ok(())
    }

    async fn read_counts(&mut self, mainstay: &Mainstay, run: Uuid) -> mainstay::Result<()> {
        let filter = RunFilter::all().job(stock::job(run));
        let mut seconds: Vec<i64> = Vec::new();
        let mut page = Page { limit: PAGE, before: None };
        loop {
            let runs = mainstay.jobs().runs(&filter, page).await?;
            for run in &runs {
                let over = matches!(
                    run.state,
                    RunState::Succeeded | RunState::Failed | RunState::Skipped | RunState::Cancelled
                );
                self.unfinished += u64::from(!over);
                seconds.push(run.nominal_at.as_second());
            }
            page.before = runs.last().map(|run| run.id);
            if runs.len() < PAGE as usize {
                break;
            }
        }
        self.counts = seconds.len() as u64;
        self.miscounted = miscounted(seconds);
        Ok(())
    }

    async fn read_reports(
        &mut self,
        mainstay: &Mainstay,
        ledger: &Ledger,
        run: Uuid,
    ) -> mainstay::Result<()> {
        let mut arrivals: HashMap<String, u64> = HashMap::new();
        for number in &ledger.arrivals {
            *arrivals.entry(format!("parcel-{number}")).or_default() += 1;
        }
        let filter = InboxFilter::all().source(carrier::source(run));
        let mut page = InboxPage { limit: PAGE, after: None };
        loop {
            let entries = mainstay.inbox().list(&filter, &page).await?;
            for entry in &entries {
                self.reports += 1;
                let done = entry.state == EntryState::Done;
                self.unread += u64::from(!done);
                let arrived = arrivals.remove(entry.key.message_id()).unwrap_or(0);
                self.misread += u64::from(arrived != u64::from(done));
            }
            page.after = entries.last().map(|entry| entry.key.clone());
            if entries.len() < PAGE as usize {
                break;
            }
        }
        self.misread += arrivals.len() as u64;
        Ok(())
    }

    fn check_shifts(&mut self, epochs: &[i64]) {
        self.shifts = epochs.len() as u64;
        self.overlapping = epochs.windows(2).filter(|pair| pair[1] <= pair[0]).count() as u64;
    }

    /// Whether something is still to come to its end.
    pub(crate) fn is_pending(&self) -> bool {
        self.waiting > 0 || self.unfinished > 0 || self.unread > 0
    }

    /// What must be zero, with what it would mean.
    pub(crate) fn checks(&self) -> [(&'static str, u64); 7] {
        [
            ("reminders that neither fired nor were cancelled", self.waiting),
            ("reminders that fired without a message, or the other way round", self.misfired),
            ("runs of the stocktaking that are not over", self.unfinished),
            ("seconds without a run of the stocktaking, or with two", self.miscounted),
            ("reports of the carrier that were not processed", self.unread),
            ("reports that took effect twice, or not at all", self.misread),
            ("shifts of two foremen at once", self.overlapping),
        ]
    }
}

/// Seconds between the first and the last that come not exactly once.
fn miscounted(mut seconds: Vec<i64>) -> u64 {
    seconds.sort_unstable();
    let steps = seconds.windows(2).map(|pair| pair[1] - pair[0]);
    steps.map(|step| if step == 0 { 1 } else { step.unsigned_abs() - 1 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_counts_once() {
        assert_eq!(miscounted(vec![]), 0);
        assert_eq!(miscounted(vec![7, 5, 6]), 0);
        assert_eq!(miscounted(vec![5, 6, 6, 7]), 1);
        assert_eq!(miscounted(vec![5, 8]), 2);
    }

    #[test]
    fn epochs_only_grow() {
        let mut beside = Beside::default();
        beside.check_shifts(&[1, 2, 5]);
        assert_eq!((beside.shifts, beside.overlapping), (3, 0));
        beside.check_shifts(&[1, 2, 2, 3]);
        assert_eq!(beside.overlapping, 1);
    }
}
