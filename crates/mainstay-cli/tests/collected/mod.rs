//! A collector of OpenTelemetry's on loopback, that can also misbehave.

// Each test file uses its own part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// Nothing takes that long; it only keeps a test from waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// What it does with an export.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    Takes,
    /// It reads, and never answers.
    Hangs,
    /// It answers so, whatever it is sent.
    Answers(&'static str),
}

/// What was sent, and by whom: the name of the service.
#[derive(Debug)]
pub(crate) enum Export {
    Span(String, Box<Span>),
    Metric(String, Box<Metric>),
}

/// A request, as it came.
pub(crate) struct Sent {
    pub(crate) path: String,
    pub(crate) headers: Vec<String>,
    body: Vec<u8>,
}

/// The collector. It listens as long as the test runs.
pub(crate) struct Collector {
    address: String,
    sent: Receiver<Sent>,
}

impl Collector {
    pub(crate) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, sent) = channel();
        std::thread::spawn(move || {
            // Those that hang stay open.
            let mut hanging = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if take(&mut stream, manner, &sender).is_none() {
                    hanging.push(stream);
                }
            }
        });
        Self { address, sent }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request.
    pub(crate) fn next(&self) -> Sent {
        self.sent.recv_timeout(PATIENCE).expect("a request comes")
    }

    /// All requests that have come so far.
    pub(crate) fn rest(&self) -> Vec<Sent> {
        self.sent.try_iter().collect()
    }

    /// All that was sent so far.
    pub(crate) fn exports(&self) -> Vec<Export> {
        self.rest().iter().flat_map(Sent::exports).collect()
    }
}

fn take(stream: &mut TcpStream, manner: Manner, sender: &Sender<Sent>) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let path = lines.first()?.split(' ').nth(1)?.to_owned();
    let headers = lines.split_off(1);
    let length =
        headers.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length?];
    reader.read_exact(&mut body).ok()?;
    // The test may be over.
    let _over = sender.send(Sent { path, headers, body });
    let answer = match manner {
        Manner::Hangs => return None,
        Manner::Takes => {
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
        }
        Manner::Answers(answer) => answer,
    };
    // Nobody may want to know.
    let _unread = stream.write_all(answer.as_bytes());
    Some(())
}

impl Sent {
    pub(crate) fn exports(&self) -> Vec<Export> {
        if self.path == "/v1/traces" {
            let request = ExportTraceServiceRequest::decode(self.body.as_slice()).unwrap();
            let all = request.resource_spans.into_iter().flat_map(|one| {
                let service = attribute(&one.resource.unwrap().attributes, "service.name").unwrap();
                let spans = one.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.map(move |span| Export::Span(service.clone(), Box::new(span)))
            });
            return all.collect();
        }
        assert_eq!(self.path, "/v1/metrics");
        let request = ExportMetricsServiceRequest::decode(self.body.as_slice()).unwrap();
        let all = request.resource_metrics.into_iter().flat_map(|one| {
            let service = attribute(&one.resource.unwrap().attributes, "service.name").unwrap();
            let metrics = one.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
            metrics.map(move |metric| Export::Metric(service.clone(), Box::new(metric)))
        });
        all.collect()
    }
}

/// An attribute, as a text.
pub(crate) fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}
