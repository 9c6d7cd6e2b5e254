//! `cargo xtask bench http`: whether `mainstay serve` holds a rate of enqueues without an error, how long each takes, how many it can
//! do at most, and beside that the database's own inserts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cargo::{cargo, target};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

use super::ground::Ground;
use super::machine::Machine;
use super::options::Options;
use super::programs::ask;

const ONLY: [&str; 2] = ["postgres", "sqlite"];
/// Connections that send, each one request after the other.
const SENDERS: u32 = 16;
const BODY: &str = r#"{"topic":"bench.http","payload":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}"#;

pub(super) fn main(arguments: &[String], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut options = Options::new(arguments);
    let as_json = options.flag("--json");
    let rate = options.value::<u32>("--rate")?.unwrap_or(500);
    let seconds = options.value::<u32>("--seconds")?.unwrap_or(30);
    let only = options.list("--only", &ONLY)?;
    options.done()?;
    if !(1..=100_000).contains(&rate) || !(1..=3_600).contains(&seconds) {
        return Err(Failure::usage("--rate is 1 to 100,000 a second, --seconds 1 to 3,600"));
    }

    let machine = Machine::look();
    run(cargo().args(["build", "--release", "--locked", "--package", "mainstay-cli"]), interrupt)?;
    let mut found = Vec::new();
    if only.contains(&"postgres") {
        let ground = Ground::start(interrupt)?;
        found.push(measure("postgres", &ground.database("http")?.url, rate, seconds, interrupt)?);
    }
    if only.contains(&"sqlite") {
        let folder = tempfile::tempdir().map_err(|error| Failure::new(format!("no folder: {error}")))?;
        let url = format!("sqlite:{}", folder.path().join("http.db").display());
        found.push(measure("sqlite", &url, rate, seconds, interrupt)?);
    }
    if as_json {
        println!("{}", json!({ "machine": machine.json(), "http": found }));
    } else {
        println!("{machine}");
        for one in &found {
            println!("{}", shown(one));
        }
    }
    match found.iter().all(|one| one["held"] == true) {
        true => Ok(()),
        false => Err(Failure::new("the rate was not held, or requests failed")),
    }
}

fn measure(name: &str, url: &str, rate: u32, seconds: u32, interrupt: &Interrupt) -> Result<Value, Failure> {
    let program = target()?.join("release/mainstay");
    run(Command::new(&program).args(["migrate", "--quiet", "--database", url]), interrupt)?;
    let mut limit = Command::new(&program);
    limit.args(["bench", "--json", "--quiet", "--only", "limit_insert_16", "--database", url]);
    let limit = ask(limit, interrupt)?["limit_insert_16"].as_f64().unwrap_or(f64::NAN);
    interrupt.check()?;
    let served = Served::start(&program, url)?;
    let paced = send(&served.address, Some(rate), seconds)?;
    interrupt.check()?;
    let most = send(&served.address, None, 10)?;
    let held = paced.errors == 0 && most.errors == 0 && paced.sent == u64::from(rate) * u64::from(seconds);
    Ok(json!({
        "database": name,
        "rate": rate,
        "seconds": seconds,
        "sent": paced.sent,
        "errors": paced.errors + most.errors,
        "p50_ms": paced.quantile(0.5),
        "p99_ms": paced.quantile(0.99),
        "longest_ms": paced.quantile(1.0),
        "most_per_second": most.per_second(),
        "limit_insert_16": limit,
        "rate_of_limit": f64::from(rate) / limit,
        "most_of_limit": most.per_second() / limit,
        "held": held,
    }))
}

fn shown(one: &Value) -> String {
    let number = |name: &str| one[name].as_f64().unwrap_or(f64::NAN);
    format!(
        "{}: {} requests at {} a second, {} errors, p50 {:.2} ms, p99 {:.2} ms, longest {:.1} ms; at most {:.0} a second over {SENDERS} \
         connections; the database's own inserts over 16 connections: {:.0} a second, so the rate is {:.2} of that, and the most {:.2}",
        one["database"].as_str().unwrap_or_default(),
        one["sent"],
        one["rate"],
        one["errors"],
        number("p50_ms"),
        number("p99_ms"),
        number("longest_ms"),
        number("most_per_second"),
        number("limit_insert_16"),
        number("rate_of_limit"),
        number("most_of_limit"),
    )
}

/// The program as a server. Killed when dropped.
struct Served {
    child: Child,
    address: String,
    /// Kept open: it may still have something to say.
    lines: BufReader<ChildStdout>,
}

impl Served {
    fn start(program: &std::path::Path, url: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("the server can't be started: {error}"));
        let mut command = Command::new(program);
        command.args(["serve", "--json", "--quiet", "--deploy", "--listen=127.0.0.1:0", "--database", url]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let Some(stdout) = child.stdout.take() else { return Err(Failure::new("the server has no output")) };
        let mut served = Self { child, address: String::new(), lines: BufReader::new(stdout) };
        loop {
            let mut line = String::new();
            if served.lines.read_line(&mut line).map_err(failed)? == 0 {
                return Err(Failure::new("the server ended before it was ready"));
            }
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            match event["event"].as_str() {
                Some("listening") => {
                    let url = event["url"].as_str().unwrap_or_default();
                    served.address = url.trim_start_matches("http://").to_owned();
                }
                Some("ready") => return Ok(served),
                _ => {}
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct Sent {
    sent: u64,
    errors: u64,
    took: Duration,
    /// In milliseconds, sorted.
    times: Vec<f64>,
}

impl Sent {
    fn per_second(&self) -> f64 {
        self.sent as f64 / self.took.as_secs_f64()
    }

    fn quantile(&self, share: f64) -> f64 {
        let last = self.times.len().saturating_sub(1);
        self.times.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
    }
}

/// At this rate, or as fast as it goes. A request that is sent late because those before it took long counts from when it was to be sent.
fn send(address: &str, rate: Option<u32>, seconds: u32) -> Result<Sent, Failure> {
    let start = Barrier::new(SENDERS as usize);
    let begun = Instant::now();
    let all: Vec<Result<Sent, Failure>> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                scope.spawn({
                    let start = &start;
                    move || one(address, sender, rate, seconds, start)
                })
            })
            .collect();
        let ended = |sender: std::thread::ScopedJoinHandle<'_, _>| {
            sender.join().unwrap_or_else(|_| Err(Failure::new("a sender panicked")))
        };
        senders.into_iter().map(ended).collect()
    });
    let mut sum = Sent { took: begun.elapsed(), ..Sent::default() };
    for sent in all {
        let sent = sent?;
        sum.sent += sent.sent;
        sum.errors += sent.errors;
        sum.times.extend(sent.times);
    }
    sum.times.sort_unstable_by(f64::total_cmp);
    Ok(sum)
}

fn one(
    address: &str,
    sender: u32,
    rate: Option<u32>,
    seconds: u32,
    start: &Barrier,
) -> Result<Sent, Failure> {
    let connected = Connection::open(address);
    start.wait();
    let mut connection = connected?;
    let begun = Instant::now();
    let mut sent = Sent::default();
    // Its own share, spread evenly: every sixteenth request, beginning with the one of its number.
    let mut next = sender;
    loop {
        let due = match rate {
            Some(rate) if next >= rate * seconds => break,
            Some(rate) => begun + Duration::from_secs(1) * next / rate,
            None if begun.elapsed() >= Duration::from_secs(seconds.into()) => break,
            None => Instant::now(),
        };
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let status = match connection.enqueue() {
            Ok(status) => status,
            Err(_) => {
                connection = Connection::open(address)?;
                0
            }
        };
        sent.sent += 1;
        sent.errors += u64::from(status != 201);
        sent.times.push(due.elapsed().as_secs_f64() * 1e3);
        next += SENDERS;
    }
    Ok(sent)
}

/// A connection that stays open.
struct Connection {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Connection {
    fn open(address: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot connect to {address}: {error}"));
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(failed)?;
        let head = format!(
            "POST /v1/outbox/messages HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        Ok(Self { stream: BufReader::new(stream), request: head.into_bytes() })
    }

    /// The status of the answer.
    fn enqueue(&mut self) -> std::io::Result<u16> {
        self.stream.get_mut().write_all(&self.request)?;
        let (mut status, mut length, mut line) = (0, 0, String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if let Some(rest) = text.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0);
            }
            if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(status)
    }
}
