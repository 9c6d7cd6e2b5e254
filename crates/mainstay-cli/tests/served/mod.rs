//! The real program as a server, and a client that can also misbehave.

// Each test file uses its own part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::program::Program;

/// Nothing takes that long; it only keeps a test from waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs. Killed when dropped.
pub(crate) struct Served {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: String,
    token: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Served {
    /// Starts `mainstay serve` with these arguments at a free port, and waits until it is ready.
    pub(crate) fn start(program: &Program, arguments: &[&str]) -> Self {
        let mut served = Self::begin(program, arguments);
        served.event("ready");
        served
    }

    /// The same with these in its environment.
    pub(crate) fn start_with(program: &Program, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut served = Self::begin_with(program, arguments, variables);
        served.event("ready");
        served
    }

    /// The same without waiting for more than that it listens.
    pub(crate) fn begin(program: &Program, arguments: &[&str]) -> Self {
        Self::begin_with(program, arguments, &[])
    }

    fn begin_with(program: &Program, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let all: Vec<_> =
            ["serve", "--listen=127.0.0.1:0", "--json"].iter().chain(arguments).copied().collect();
        let mut command = program.command(&all);
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::of(command.spawn().unwrap())
    }

    /// One that was started with `--json`, once it listens.
    pub(crate) fn of(mut child: Child) -> Self {
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut served = Self { child, lines, address: String::new(), token: None };
        let listening = served.event("listening");
        let url = listening["url"].as_str().unwrap();
        served.address = url.split("://").nth(1).unwrap().to_owned();
        served
    }

    /// Asks with this token from now on.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    pub(crate) fn use_token(&mut self, token: Option<&str>) {
        self.token = token.map(str::to_owned);
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn event(&mut self, wanted: &str) -> Value {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                let mut told = String::new();
                if let Some(mut stderr) = self.child.stderr.take() {
                    stderr.read_to_string(&mut told).unwrap();
                }
                panic!("the server ended before it was {wanted}: {told}");
            }
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["event"] == wanted {
                return event;
            }
        }
    }

    /// Stops it with SIGTERM, and waits until it has.
    pub(crate) fn stop(self) {
        self.signal("-TERM");
        self.ended();
    }

    /// Waits until it has stopped, as it was told to.
    pub(crate) fn ended(self) {
        self.ended_saying();
    }

    /// The same: what it has said on stderr all the time, unless somebody has listened meanwhile.
    pub(crate) fn ended_saying(mut self) -> String {
        self.event("stopped");
        assert!(self.child.wait().unwrap().success());
        let mut told = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut told).unwrap();
        }
        told
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until so many requests are being answered, the one that asks for that included.
    pub(crate) fn running(&self, wanted: u32) {
        let line = format!("mainstay_http_requests_running {wanted}");
        let seen = || self.get("/metrics").body.lines().any(|one| one == line);
        mainstay_tests::eventually_blocking(PATIENCE, &line, seen);
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes as they are, and reads all that comes back.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // It may answer, and hang up, before all is sent.
        let _refused = stream.write_all(bytes);
        Answer::read(&mut stream)
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        let mut stream = self.send(method, path, headers, body);
        Answer::read(&mut stream)
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> TcpStream {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        if let Some(token) = &self.token {
            text.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if let Some(body) = body {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
                text.push_str("Content-Type: application/json\r\n");
            }
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let mut stream = self.connect();
        let _refused = stream.write_all((text + body.unwrap_or_default()).as_bytes());
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, &[], Some(&body.to_string()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Answer {
    pub(crate) fn read(stream: &mut impl Read) -> Self {
        let mut bytes = Vec::new();
        // A server that has refused the rest of what was sent may reset the connection after its answer.
        let _reset = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Self { status, headers: headers.collect(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// The JSON of an answer with this status.
    #[track_caller]
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The problem of an answer with this status and type.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, kind: &str) -> Value {
        let problem = self.json(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{problem}");
        assert_eq!(problem["type"], format!("urn:mainstay:problem:{kind}"), "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"), "{problem}");
        problem
    }
}
