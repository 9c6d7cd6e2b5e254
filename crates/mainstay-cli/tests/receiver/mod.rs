//! A receiver of webhooks that can also misbehave.

// Each test file uses its own part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::Program;
use crate::served::Served;

/// Nothing takes that long; it only keeps a test from waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A secret that requests are signed with.
pub(crate) const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// The one before it.
pub(crate) const OLD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What was received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.maybe(name).unwrap_or_else(|| panic!("{name} is missing: {self:?}"))
    }

    pub(crate) fn maybe(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }
}

/// A receiver at a port of its own, for as long as the test runs.
pub(crate) struct Receiver {
    address: String,
    received: Mutex<mpsc::Receiver<Received>>,
    count: Arc<AtomicUsize>,
}

impl Receiver {
    /// Answers each request, of which `answer` is told how many came before it.
    pub(crate) fn start(answer: impl Fn(usize, &Received, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, received) = mpsc::channel();
        let (answer, count) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        let counting = Arc::clone(&count);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, sender, count) = (Arc::clone(&answer), sender.clone(), Arc::clone(&counting));
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    // Who hangs up before the end of a request has sent none.
                    let Some(request) = read(&stream) else { return };
                    let before = count.fetch_add(1, Ordering::SeqCst);
                    // The test may have ended.
                    let _over = sender.send(request.clone());
                    answer(before, &request, &mut stream);
                });
            }
        });
        Self { address, received: Mutex::new(received), count }
    }

    /// One that answers all requests so: `204 No Content`, say.
    pub(crate) fn answering(status: &'static str) -> Self {
        Self::start(move |_, _, stream| answer(stream, status, ""))
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }

    /// How many requests have come.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// The next request.
    #[track_caller]
    pub(crate) fn next(&self) -> Received {
        match self.received.lock().unwrap().recv_timeout(PATIENCE) {
            Ok(received) => received,
            Err(RecvTimeoutError::Timeout) => panic!("nothing was received"),
            Err(RecvTimeoutError::Disconnected) => panic!("the receiver has ended"),
        }
    }

    /// A route to it, with more in it.
    pub(crate) fn route(&self, name: &str, more: &str) -> String {
        let address = &self.address;
        format!(
            "[[serve.webhook]]\nname = '{name}'\nurl = 'http://{address}/hooks?key=1'\nallow_networks = ['127.0.0.1']\n\
             secrets = ['{SECRET}']\nbackoff_seconds = 0.01\nbackoff_max_seconds = 0.05\nbreaker_failures = 1000\n{more}\n\n"
        )
    }
}

fn read(stream: &TcpStream) -> Option<Received> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let line = lines.remove(0);
    let headers = lines.iter().map(|line| line.split_once(": ").unwrap());
    let headers: Vec<_> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Received { line, headers, body: String::from_utf8(body).unwrap() })
}

/// Answers with a status, and headers that each end with a line's end. Who was to have it may be gone.
pub(crate) fn answer(stream: &mut TcpStream, status: &str, headers: &str) {
    let _gone = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n{headers}\r\n");
}

/// A server with these routes.
pub(crate) fn start(routes: &str) -> (Program, Served) {
    let program = Program::new();
    program.write("mainstay.toml", routes);
    let served = Served::start(&program, &[]);
    (program, served)
}

/// Enqueues a message. Its id.
#[track_caller]
pub(crate) fn enqueue(served: &Served, topic: &str, payload: &str) -> String {
    let added = served.post("/v1/outbox/messages", json!({"topic": topic, "payload": payload})).json(201);
    added["id"].as_str().unwrap().to_owned()
}

/// The message once it is so.
#[track_caller]
pub(crate) fn until(served: &Served, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = served.get(&format!("/v1/outbox/messages/{id}")).json(200);
        if is(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "still {found}");
    }
}
