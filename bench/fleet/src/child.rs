//! A process that takes orders: how it takes them, how they are given, and what the system knows of it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::wire::{Answer, Order, Report, Shot};

/// How long any answer may take beyond what was ordered.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes orders until the last one, or until nobody gives any.
pub(crate) async fn serve(mut handle: impl AsyncFnMut(Order) -> Result<Answer>) -> Result<()> {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let mut answers = tokio::io::stdout();
    while let Some(line) = orders.next_line().await? {
        let order: Order = serde_json::from_str(&line)?;
        let is_last = matches!(order, Order::Stop);
        let mut answer = serde_json::to_vec(&handle(order).await?)?;
        answer.push(b'\n');
        answers.write_all(&answer).await?;
        answers.flush().await?;
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Another part of this program. It ends with this one.
pub(crate) struct Part {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Part {
    /// Starts a part of this program. What it logs goes to a file.
    pub(crate) fn start(role: &str, list: &Path, log: &Path) -> Result<Self> {
        let log = File::create(log).context("the log can't be made")?;
        let mut process = Command::new(std::env::current_exe()?)
            .arg(role)
            .arg(list)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("the {role} can't be started"))?;
        let orders = process.stdin.take().context("no way to give orders")?;
        let answers = process.stdout.take().context("no way to hear answers")?;
        Ok(Self { process, orders, answers: BufReader::new(answers).lines() })
    }

    pub(crate) async fn report(&mut self) -> Result<Report> {
        match self.ask(&Order::Report, Duration::ZERO).await? {
            Answer::Report(report) => Ok(report),
            other => bail!("not a report: {other:?}"),
        }
    }

    pub(crate) async fn send(&mut self, order: &Order, takes: Duration) -> Result<Vec<Shot>> {
        match self.ask(order, takes).await? {
            Answer::Sent(shots) => Ok(shots),
            other => bail!("nothing was sent: {other:?}"),
        }
    }

    pub(crate) async fn ask(&mut self, order: &Order, takes: Duration) -> Result<Answer> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let asked = async {
            self.orders.write_all(&line).await?;
            self.answers.next_line().await?.context("it has ended")
        };
        let answer = tokio::time::timeout(takes + PATIENCE, asked).await.context("no answer in time")??;
        Ok(serde_json::from_str(&answer)?)
    }

    /// Ends it in good order; how long that took.
    pub(crate) async fn stop(mut self) -> Result<Duration> {
        let begin = tokio::time::Instant::now();
        self.ask(&Order::Stop, Duration::ZERO).await?;
        tokio::time::timeout(PATIENCE, self.process.wait()).await.context("it does not end")??;
        Ok(begin.elapsed())
    }

    /// Its process id.
    pub(crate) fn id(&self) -> Result<u32> {
        self.process.id().context("it has ended")
    }
}

/// What the system knows of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Seconds of processor time since its start.
    pub(crate) cpu: f64,
    /// Bytes of memory now, and the most there ever were.
    pub(crate) rss: u64,
    pub(crate) peak_rss: u64,
    pub(crate) threads: u64,
    pub(crate) descriptors: usize,
}

impl Usage {
    pub(crate) fn of(id: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let number = |name: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
        };
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        // The name before the bracket may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        Ok(Self {
            cpu: (ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64,
            rss: number("VmRSS:") * 1024,
            peak_rss: number("VmHWM:") * 1024,
            threads: number("Threads:"),
            descriptors: std::fs::read_dir(format!("/proc/{id}/fd"))?.count(),
        })
    }
}

/// Connections of a process as the system sees them: files of SQLite that it has open, and connections to a server. One that is closed
/// while another is opened must not be counted with it, so those count that are there twice in a row.
pub(crate) fn connections(id: u32) -> Result<usize> {
    let before = open_connections(id)?;
    Ok(open_connections(id)?.intersection(&before).count())
}

fn open_connections(id: u32) -> Result<HashSet<(OsString, PathBuf)>> {
    let table = std::fs::read_to_string(format!("/proc/{id}/net/tcp"))?;
    let servers: HashSet<&str> = table.lines().filter_map(|line| line.split_whitespace().nth(9)).collect();
    let is_one = |link: &str| {
        let socket = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        socket.map_or(link.ends_with(".db"), |inode| servers.contains(inode))
    };
    let mut open = HashSet::new();
    for entry in std::fs::read_dir(format!("/proc/{id}/fd"))? {
        let entry = entry?;
        // It may be closed meanwhile.
        let Ok(link) = std::fs::read_link(entry.path()) else { continue };
        if is_one(&link.to_string_lossy()) {
            open.insert((entry.file_name(), link));
        }
    }
    Ok(open)
}
