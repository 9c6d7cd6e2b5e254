//! What a doctor asks beyond health: each question by itself and side by side, each with its own time.
//!
//! None of it makes a database unhealthy: it works, and is in trouble sooner or later.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;

use crate::outbox::TopicStats;
use crate::store::{DiagnosisStore, Queue};

use super::check::{counted, told};
use super::{
    Check, Finding, Health, HealthOptions, HealthStatus, OpenTransaction, RightsSeen, RunsSeen, SessionsSeen,
    StorageSeen, TransactionsSeen,
};

/// A clock that differs by more than this, beyond what the way takes, is told.
const SKEW: Duration = Duration::from_secs(1);
/// A transaction that is open for longer than this keeps dead rows from being removed for too long.
const LONG: Duration = Duration::from_secs(300);
/// Runs that are looked at.
const LATELY: Duration = Duration::from_secs(86_400);
/// A run that is made so long after its time was missed at first.
const LATE: Duration = Duration::from_secs(60);
/// As many dead rows are normal while messages flow.
const DEAD_ROWS: u64 = 200_000;
/// Topics that are named.
const TOPICS_TOLD: usize = 3;
const MIB: u64 = 1 << 20;
/// Below this, waste is not worth a word.
const WORTH_A_WORD: u64 = 64 * MIB;

/// The checks of the surroundings, in the order in which they are told.
pub(super) const OF_THE_SURROUNDINGS: [&str; 12] = [
    "clock",
    "rights",
    "sessions",
    "notifications",
    "transactions",
    "storage",
    "indexes",
    "runs",
    "lag.outbox",
    "lag.inbox",
    "lag.timers",
    "lag.job_runs",
];

impl Health {
    pub(super) async fn ask_surroundings(&self, checks: &mut Vec<Check>) {
        let store = self.provider.diagnosis();
        let Some(store) = store else {
            let none =
                |name| Check::new(name, not_here("this database has no such checks yet"), Duration::ZERO);
            return checks.extend(OF_THE_SURROUNDINGS.map(none));
        };
        checks.push(self.ask_clock().await);
        checks.extend(self.ask_store(&*store).await);
        checks.extend(join_all(Queue::ALL.map(|queue| self.ask_topics(&*store, queue))).await);
    }

    async fn ask_clock(&self) -> Check {
        let (before, begun) = (Timestamp::now(), Instant::now());
        let (answer, took) = self.ask(self.provider.now()).await;
        // What the clock here showed when the database looked at its own: half way, give or take half of the way.
        let here = before + begun.elapsed() / 2;
        Check::new("clock", answer.map_or_else(|finding| finding, |there| clock(here, there, took)), took)
    }

    async fn ask_store(&self, store: &dyn DiagnosisStore) -> Vec<Check> {
        // By itself: what else is asked at the same time would change whose session is whose.
        let sessions = self.ask(store.sessions()).await;
        let (rights, notifications, transactions, storage, runs) = futures_util::join!(
            self.ask(store.rights()),
            self.ask(store.notifications()),
            self.ask(store.transactions()),
            self.ask(store.storage()),
            self.ask(store.runs(LATELY, LATE)),
        );
        let judged = |name, (answer, took): (Result<Finding, Finding>, Duration)| {
            Check::new(name, answer.unwrap_or_else(|finding| finding), took)
        };
        let (indexed, of_storage) = (storage.0.clone(), storage.1);
        vec![
            judged("rights", (rights.0.map(|seen| self::rights(&seen)), rights.1)),
            judged("sessions", (sessions.0.map(self::sessions), sessions.1)),
            judged("notifications", (notifications.0.map(self::notifications), notifications.1)),
            judged(
                "transactions",
                (transactions.0.map(|seen| self::transactions(seen.as_ref())), transactions.1),
            ),
            judged("storage", (storage.0.map(|seen| self::storage(&seen)), of_storage)),
            judged("indexes", (indexed.map(|seen| indexes(&seen)), of_storage)),
            judged("runs", (runs.0.map(|seen| self::runs(&seen)), runs.1)),
        ]
    }

    async fn ask_topics(&self, store: &dyn DiagnosisStore, queue: Queue) -> Check {
        let name = match queue {
            Queue::Outbox => "lag.outbox",
            Queue::Inbox => "lag.inbox",
            Queue::Timers => "lag.timers",
            Queue::JobRuns => "lag.job_runs",
        };
        let waiting = async {
            let mut topics = store.topics(queue).await?;
            // What waits because somebody wants it to wait does not lag.
            let paused = self.provider.queue(queue).paused().await?;
            topics.retain(|topic| paused.iter().all(|paused| paused.topic != topic.topic));
            Ok(topics)
        };
        let (topics, took) = self.ask(waiting).await;
        Check::new(name, topics.map_or_else(|finding| finding, |topics| lag(&topics, &self.options)), took)
    }
}

fn not_here(why: &str) -> Finding {
    Finding::new(HealthStatus::NotApplicable, why)
}

/// What waits, by topic. It may wait rightly, for its ordering key say; so it is never worse than degraded.
fn lag(topics: &[TopicStats], options: &HealthOptions) -> Finding {
    let waits = |topic: &TopicStats| Some((topic.oldest_ready?, topic.ready, topic.topic.clone()));
    let mut waiting: Vec<_> = topics.iter().filter_map(waits).collect();
    waiting.sort_unstable_by(|one, other| other.cmp(one));
    let Some((oldest, ..)) = waiting.first() else { return Finding::healthy("nothing waits") };
    let late = *oldest >= options.overdue_degraded;
    let told_of = |(oldest, ready, topic): &(Duration, u64, String)| {
        format!("{topic}: {ready} waiting, the first for {}", told(*oldest))
    };
    let mut text = waiting.iter().take(TOPICS_TOLD).map(told_of).collect::<Vec<_>>().join("; ");
    if waiting.len() > TOPICS_TOLD {
        text.push_str(&format!("; {} more", counted((waiting.len() - TOPICS_TOLD) as u64, "topic")));
    }
    if !late {
        return Finding::healthy(text);
    }
    Finding::new(HealthStatus::Degraded, text).advise(
        "see whether workers have handlers for these topics; `mainstay why ID` tells what one item waits for",
    )
}

fn clock(here: Timestamp, there: Timestamp, took: Duration) -> Finding {
    let apart = here.duration_since(there);
    let by = apart.unsigned_abs();
    if by <= SKEW + took / 2 {
        return Finding::healthy(format!(
            "this machine's and the database's differ by less than {}",
            told(SKEW + took / 2)
        ));
    }
    let (how, by) = (if apart.is_positive() { "ahead of" } else { "behind" }, told(by));
    Finding::new(HealthStatus::Degraded, format!("this machine's clock is {by} {how} the database's")).advise(
        "let both follow a time server. The database's clock decides when work is due and when leases lapse, so the work is right; \
         times in logs and traces are not",
    )
}

fn rights(seen: &RightsSeen) -> Finding {
    let who = seen.user.as_deref().map_or_else(|| "this process".to_owned(), |user| format!("user {user}"));
    if seen.missing.is_empty() {
        return Finding::healthy(format!("{who} may do all that is needed"));
    }
    let (some, more) = seen.missing.split_at(seen.missing.len().min(5));
    let mut text = format!("{who} lacks {}", some.join(", "));
    if !more.is_empty() {
        text.push_str(&format!(" and {} more", more.len()));
    }
    Finding::new(HealthStatus::Degraded, text).advise(
        "let the owner of the schema run what `mainstay migrate --grants ROLE` prints; of a file, give its owner the right to write it \
         and its directory",
    )
}

fn sessions(seen: Option<SessionsSeen>) -> Finding {
    match seen {
        None => not_here("nothing comes between that could share them"),
        Some(SessionsSeen::Own) => Finding::healthy("each connection has a session of its own"),
        Some(SessionsSeen::Shared) => Finding::healthy(
            "a pooler hands sessions from transaction to transaction: everything works, new work is found by polling",
        ),
    }
}

fn notifications(seen: Option<Option<Duration>>) -> Finding {
    match seen {
        None => not_here("not used here: new work is found by looking"),
        Some(Some(took)) => Finding::healthy(format!("one came back after {}", told(took))),
        Some(None) => Finding::new(HealthStatus::Degraded, "none came back: new work is found by polling")
            .advise("nothing is lost. To be woken at once, connect workers directly or by a pooler in session mode"),
    }
}

fn transactions(seen: Option<&TransactionsSeen>) -> Finding {
    let Some(seen) = seen else { return not_here("the database does not tell") };
    let hidden = if seen.partly { "; those of other users are hidden from this one" } else { "" };
    let long: Vec<_> = seen.oldest.iter().filter(|open| open.age >= LONG).collect();
    if let Some(OpenTransaction { age, holder }) = long.first() {
        let more = match long.len() {
            1 => String::new(),
            all => format!(" and {}", counted(all as u64 - 1, "other")),
        };
        let text = format!("one has been open for {}: {holder}{more}{hidden}", told(*age));
        return Finding::new(HealthStatus::Degraded, text).advise(
            "end it, or let its program end it sooner: until then its locks stay, and nobody can remove what was deleted or logged meanwhile, of any table",
        );
    }
    match seen.oldest.first() {
        Some(OpenTransaction { age, .. }) => {
            Finding::healthy(format!("the oldest has been open for {}{hidden}", told(*age)))
        }
        None => Finding::healthy(format!("none is open{hidden}")),
    }
}

fn storage(seen: &StorageSeen) -> Finding {
    let mut bad = Vec::new();
    let mut advice = Vec::new();
    let dead = |table: &&super::TableSeen| table.dead >= DEAD_ROWS.max(table.live / 2);
    for table in seen.tables.iter().filter(dead) {
        let vacuumed = match table.vacuumed {
            Some(ago) => format!("last vacuumed {} ago", told(ago)),
            None => "never vacuumed".to_owned(),
        };
        bad.push(format!("{}: {} dead rows, {vacuumed}", table.name, table.dead));
    }
    if !bad.is_empty() {
        advice
            .push("see which transaction is open for long, and whether autovacuum comes round often enough");
    }
    let (free, log) = (seen.free_bytes.unwrap_or(0), seen.log_bytes.unwrap_or(0));
    if free >= WORTH_A_WORD && free > seen.bytes / 2 {
        bad.push(format!("{} MiB of {} are unused", free / MIB, seen.bytes / MIB));
        advice.push("they are used again as it grows; `VACUUM` gives them back to the file system");
    }
    if log >= WORTH_A_WORD && log > seen.bytes / 2 {
        bad.push(format!("{} MiB of the log are not in the database yet", log / MIB));
        advice.push("somebody reads for a long time: end that, and the log begins again");
    }
    if bad.is_empty() {
        let size = match seen.bytes / MIB {
            0 => "less than 1 MiB".to_owned(),
            size => format!("{size} MiB"),
        };
        let engine = seen.engine.as_ref().map(|engine| format!(", in {engine}"));
        return Finding::healthy(size + &engine.unwrap_or_default());
    }
    Finding::new(HealthStatus::Degraded, bad.join("; ")).advise(advice.join("; "))
}

fn indexes(seen: &StorageSeen) -> Finding {
    if seen.indexes.is_empty() {
        return not_here("the database does not count their use");
    }
    let broken: Vec<_> = seen.indexes.iter().filter(|index| !index.valid).map(|i| i.name.as_str()).collect();
    if !broken.is_empty() {
        let text = format!("not valid, so kept up and never used: {}", broken.join(", "));
        return Finding::new(HealthStatus::Degraded, text)
            .advise("build them again: REINDEX INDEX CONCURRENTLY, on SQL Server ALTER INDEX ... REBUILD");
    }
    let swollen =
        |index: &&super::IndexSeen| index.bytes >= WORTH_A_WORD && index.bytes / 4 > index.table_bytes;
    let swollen: Vec<_> = seen.indexes.iter().filter(swollen).map(|i| i.name.as_str()).collect();
    if !swollen.is_empty() {
        let text = format!("more than four times their table: {}", swollen.join(", "));
        return Finding::new(HealthStatus::Degraded, text)
            .advise("build them again when it is quiet: REINDEX INDEX CONCURRENTLY, on SQL Server ALTER INDEX ... REBUILD");
    }
    if let Some(why) = &seen.use_hidden {
        let text = format!("all {} are valid; how often they are used could not be told", seen.indexes.len());
        return Finding::unknown(text).advise(why);
    }
    let used = seen.indexes.iter().filter(|index| index.scans > 0).count();
    Finding::healthy(format!("{} of {} have been used", used, seen.indexes.len()))
}

fn runs(seen: &RunsSeen) -> Finding {
    let of = format!("{} of jobs within {}", counted(seen.runs, "run"), told(LATELY));
    let others = match (seen.skipped, seen.failed) {
        (0, 0) => String::new(),
        (skipped, failed) => format!("; {skipped} left out because one was not over, {failed} failed"),
    };
    if seen.late == 0 {
        return Finding::healthy(format!("{of}, none of them late{others}"));
    }
    let job = seen.latest_job.as_deref().unwrap_or("?");
    let by = told(seen.latest.unwrap_or_default());
    let text = format!("{of}: {} made late, one of {job} by {by}{others}", seen.late);
    Finding::new(HealthStatus::Degraded, text).advise(
        "no scheduler was there at their time: see the log of the process that has one, or let two run; \
         `mainstay jobs runs JOB` shows them",
    )
}

#[cfg(test)]
mod tests {
    use super::super::{IndexSeen, TableSeen};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_clock_is_judged_beyond_what_the_way_may_have_taken() {
        let here = Timestamp::from_second(1_000).unwrap();
        let judged = |there: i64, took| clock(here, Timestamp::from_second(there).unwrap(), took);
        assert_eq!(judged(999, Duration::ZERO).status, HealthStatus::Healthy);
        assert_eq!(judged(997, 4 * SECOND).status, HealthStatus::Healthy);
        let ahead = judged(990, Duration::ZERO);
        assert_eq!(ahead.status, HealthStatus::Degraded);
        assert!(ahead.summary.contains("10 s ahead of the database's"), "{}", ahead.summary);
        assert!(judged(1_060, SECOND).summary.contains("1 min behind"));
    }

    #[test]
    fn lacking_rights_are_named_and_not_all_of_them() {
        let mut seen = RightsSeen { user: Some("app".to_owned()), missing: Vec::new() };
        assert_eq!(rights(&seen).status, HealthStatus::Healthy);
        seen.missing = (0..7).map(|n| format!("UPDATE on t{n}")).collect();
        let finding = rights(&seen);
        assert_eq!(finding.status, HealthStatus::Degraded);
        assert!(
            finding.summary.contains("user app lacks UPDATE on t0, ")
                && finding.summary.ends_with("and 2 more")
        );
    }

    #[test]
    fn a_transaction_that_is_open_for_long_is_told_with_its_holder() {
        let open = |seconds, who| OpenTransaction::new(seconds * SECOND, who);
        let mut seen = TransactionsSeen { oldest: vec![open(299, "a")], partly: true };
        let finding = transactions(Some(&seen));
        assert_eq!(finding.status, HealthStatus::Healthy);
        assert!(finding.summary.contains("hidden"), "{}", finding.summary);
        seen.oldest = vec![open(7_200, "pid 7, user x"), open(301, "b"), open(3, "c")];
        let finding = transactions(Some(&seen));
        assert_eq!(finding.status, HealthStatus::Degraded);
        assert!(
            finding.summary.starts_with("one has been open for 2 h: pid 7, user x and 1 other"),
            "{}",
            finding.summary
        );
    }

    #[test]
    fn waste_is_told_where_it_is_worth_a_word() {
        let table = |live, dead| TableSeen { name: "outbox".to_owned(), live, dead, ..TableSeen::default() };
        let with = |table| StorageSeen { tables: vec![table], ..StorageSeen::default() };
        assert_eq!(storage(&with(table(0, DEAD_ROWS - 1))).status, HealthStatus::Healthy);
        assert_eq!(storage(&with(table(0, DEAD_ROWS))).status, HealthStatus::Degraded);
        assert_eq!(storage(&with(table(DEAD_ROWS * 3, DEAD_ROWS))).status, HealthStatus::Healthy);
        let file = |bytes, free, log| StorageSeen {
            bytes: bytes * MIB,
            free_bytes: Some(free * MIB),
            log_bytes: Some(log * MIB),
            ..StorageSeen::default()
        };
        assert_eq!(storage(&file(60, 50, 40)).status, HealthStatus::Healthy);
        assert_eq!(storage(&file(120, 70, 0)).status, HealthStatus::Degraded);
        assert_eq!(storage(&file(120, 0, 70)).status, HealthStatus::Degraded);
    }

    #[test]
    fn an_index_that_is_not_valid_or_swollen_is_told() {
        let index = |valid, bytes, table_bytes| StorageSeen {
            indexes: vec![IndexSeen {
                name: "i".to_owned(),
                valid,
                bytes: bytes * MIB,
                table_bytes: table_bytes * MIB,
                ..IndexSeen::default()
            }],
            ..StorageSeen::default()
        };
        assert_eq!(indexes(&StorageSeen::default()).status, HealthStatus::NotApplicable);
        assert_eq!(indexes(&index(true, 100, 50)).status, HealthStatus::Healthy);
        assert_eq!(indexes(&index(true, 100, 5)).status, HealthStatus::Degraded);
        assert_eq!(indexes(&index(false, 1, 1)).status, HealthStatus::Degraded);
        // What could not be told is not taken for never used, and hides nothing that is known.
        let hidden = |seen| StorageSeen { use_hidden: Some("grant it".to_owned()), ..seen };
        let finding = indexes(&hidden(index(true, 100, 50)));
        assert_eq!((finding.status, finding.advice.as_deref()), (HealthStatus::Unknown, Some("grant it")));
        assert_eq!(indexes(&hidden(index(false, 1, 1))).status, HealthStatus::Degraded);
    }

    #[test]
    fn the_topic_that_waits_longest_is_told_first() {
        let topic = |name: &str, ready, seconds: u32| TopicStats {
            topic: name.to_owned(),
            ready,
            oldest_ready: Some(seconds * SECOND),
            ..TopicStats::default()
        };
        let options = HealthOptions::default();
        let idle = TopicStats { topic: "idle".to_owned(), scheduled: 9, ..TopicStats::default() };
        assert_eq!(lag(std::slice::from_ref(&idle), &options).summary, "nothing waits");
        let finding = lag(&[topic("a", 2, 9), idle, topic("b", 1, 299)], &options);
        assert_eq!(finding.status, HealthStatus::Healthy);
        assert_eq!(finding.summary, "b: 1 waiting, the first for 4 min; a: 2 waiting, the first for 9 s");
        let many: Vec<_> = (0..5).map(|n| topic("t", 1, 300 + n)).collect();
        let finding = lag(&many, &options);
        assert_eq!(finding.status, HealthStatus::Degraded);
        assert!(finding.summary.ends_with("2 topics more"), "{}", finding.summary);
    }

    #[test]
    fn runs_that_were_made_late_are_told_with_a_job() {
        let mut seen = RunsSeen { runs: 3, skipped: 1, ..RunsSeen::default() };
        assert_eq!(runs(&seen).status, HealthStatus::Healthy);
        (seen.late, seen.latest, seen.latest_job) = (2, Some(180 * SECOND), Some("nightly".to_owned()));
        let finding = runs(&seen);
        assert_eq!(finding.status, HealthStatus::Degraded);
        assert!(finding.summary.contains("2 made late, one of nightly by 3 min"), "{}", finding.summary);
    }
}
