//! What the real program, and a worker of the library, send to a collector: one message's trace across both, metrics, and nothing that holds up work.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod collected;
mod program;
mod served;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use collected::{Collector, Export, Manner, attribute};
use mainstay::otlp::{Otlp, OtlpOptions};
use mainstay::postgres::Postgres;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::telemetry::{BUCKETS, names};
use mainstay::{Context, HandlerError, Mainstay, Message};
use mainstay_tests::TestDatabase;
use opentelemetry_proto::tonic::metrics::v1::AggregationTemporality::Cumulative;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use program::Program;
use serde_json::json;
use served::Served;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tracing_subscriber::layer::SubscriberExt;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const PAYLOAD: &str = "nobody-else-may-read-this";

fn traceparent() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The spans that came, each with whose it is.
struct Spans(Vec<(String, Span)>);

impl Spans {
    #[track_caller]
    fn one(&self, service: &str, name: &str) -> &Span {
        let mut found = self.0.iter().filter(|(from, span)| from == service && span.name == name);
        let one = found.next().unwrap_or_else(|| panic!("no {name:?} of {service} in {:#?}", self.names()));
        assert!(found.next().is_none(), "{name:?} of {service} is there twice: {:#?}", self.names());
        &one.1
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(service, span)| format!("{service}: {}", span.name)).collect()
    }
}

fn sorted(exports: Vec<Export>) -> (Spans, Vec<(String, Metric)>) {
    let (mut spans, mut metrics) = (Vec::new(), Vec::new());
    for export in exports {
        match export {
            Export::Span(service, span) => spans.push((service, *span)),
            Export::Metric(service, metric) => metrics.push((service, *metric)),
        }
    }
    (Spans(spans), metrics)
}

#[track_caller]
fn has(span: &Span, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(attribute(&span.attributes, name).as_deref(), Some(*value), "{name} of {span:#?}");
    }
}

#[track_caller]
fn is_linked(span: &Span, to: &[&Span]) {
    let links: Vec<_> = span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect();
    let wanted: Vec<_> = to.iter().map(|span| (hex(&span.trace_id), hex(&span.span_id))).collect();
    assert_eq!(links, wanted, "{}", span.name);
}

/// A worker of the library with an export of its own, until it has handled two messages. The first handler enqueues one more.
async fn work(provider: Arc<dyn Provider>, collector: &Collector) {
    let mut options = OtlpOptions::default();
    options.endpoint = Some(collector.url());
    options.service_name = Some("worker".to_owned());
    options.metrics = Some(false);
    let otlp = Otlp::start(&options).unwrap().unwrap();
    let subscriber = tracing_subscriber::registry().with(otlp.layer().unwrap());
    // The runtime has this thread alone.
    let guard = tracing::subscriber::set_default(subscriber);
    let (sender, mut handled) = unbounded_channel();
    let paid = {
        let sender: UnboundedSender<()> = sender.clone();
        move |context: Context| {
            let sender = sender.clone();
            async move {
                assert_eq!(context.payload(), PAYLOAD);
                context.outbox().enqueue(Message::new("order.shipped", PAYLOAD)).await?;
                sender.send(()).unwrap();
                Ok::<(), HandlerError>(())
            }
        }
    };
    let broken = move |_: Context| {
        sender.send(()).unwrap();
        std::future::ready(Err::<(), _>(HandlerError::fail("the printer burns")))
    };
    let mainstay = Mainstay::builder_over(Arc::clone(&provider))
        .outbox(|outbox| {
            let outbox = outbox.raw_handler("order.paid", paid).raw_handler("order.printed", broken);
            // The third message is for somebody else, who does not want to wait for it.
            outbox.options(|options| options.no_handler_delay = Duration::from_millis(1))
        })
        .build()
        .unwrap();
    let running = mainstay.start().await.unwrap();
    for _ in 0..2 {
        handled.recv().await.unwrap();
    }
    running.stop().await.unwrap();
    provider.close().await;
    drop(guard);
    otlp.stop(Duration::from_secs(30)).await;
}

/// A message is enqueued over HTTP, handled by a worker of the library, which enqueues another one that is claimed and settled over HTTP.
async fn one_message_is_one_trace(
    program: &Program,
    arguments: &[&str],
    provider: Arc<dyn Provider>,
    collector: &Collector,
) {
    let served = Served::start(program, arguments);
    let enqueue = |message: serde_json::Value| {
        let trace = traceparent();
        let headers = [("traceparent", trace.as_str())];
        served.ask("POST", "/v1/outbox/messages", &headers, Some(&message.to_string())).json(201)
    };
    let paid = enqueue(json!({"topic": "order.paid", "payload": PAYLOAD, "correlation_id": "request-81"}));
    enqueue(json!({"topic": "order.printed", "payload": PAYLOAD}));
    work(provider, collector).await;

    let claiming = "00-11111111111111111111111111111111-2222222222222222-01";
    let elsewhere = [("traceparent", claiming)];
    let claimed =
        served.ask("POST", "/v1/outbox/claims", &elsewhere, Some("{\"wait_seconds\": 30}")).json(200);
    let item = &claimed["items"][0];
    assert_eq!(item["topic"], "order.shipped", "{claimed}");
    let claims = json!({"claims": [item["claim"]]}).to_string();
    served.ask("POST", "/v1/outbox/claims/ack", &elsewhere, Some(&claims)).json(200);
    let prometheus = served.get("/metrics").body;
    served.stop();

    let (spans, metrics) = sorted(collector.exports());
    let all = format!("{:?}", spans.0) + &format!("{metrics:?}");
    assert!(!all.contains(PAYLOAD), "a payload is in what was exported");
    the_trace_goes_on(
        &spans,
        paid["message_id"].as_str().unwrap(),
        item["headers"]["traceparent"].as_str().unwrap(),
    );
    what_failed_says_so(&spans);
    the_metrics_are_prometheus(&metrics, &prometheus);
}

fn the_trace_goes_on(spans: &Spans, message: &str, shipped_in: &str) {
    let enqueue = spans.one("mainstay", "enqueue order.paid");
    assert_eq!((hex(&enqueue.trace_id).as_str(), hex(&enqueue.parent_span_id).as_str()), (TRACE, CALLER));
    assert_eq!(enqueue.kind, SpanKind::Producer as i32);
    let of_topic = [("messaging.system", "mainstay"), ("messaging.destination.name", "order.paid")];
    has(enqueue, &of_topic);
    has(
        enqueue,
        &[
            ("messaging.operation.name", "enqueue"),
            ("messaging.operation.type", "send"),
            ("messaging.message.id", message),
        ],
    );

    let handle = spans.one("worker", "handle order.paid");
    assert_eq!((&handle.trace_id, &handle.parent_span_id), (&enqueue.trace_id, &enqueue.span_id), "MST-032");
    assert_eq!(handle.kind, SpanKind::Consumer as i32);
    has(handle, &of_topic);
    has(
        handle,
        &[
            ("messaging.operation.name", "handle"),
            ("messaging.operation.type", "process"),
            ("messaging.message.id", message),
            ("messaging.message.conversation_id", "request-81"),
            ("mainstay.outcome", "ack"),
        ],
    );
    assert_ne!(handle.status.as_ref().map(|status| status.code), Some(StatusCode::Error as i32));

    // Both messages are claimed in one batch or in two, and settled so.
    let printed = spans.one("mainstay", "enqueue order.printed");
    let claims: Vec<_> =
        spans.0.iter().filter(|(from, span)| from == "worker" && span.name.starts_with("claim")).collect();
    let claimed: BTreeSet<_> =
        claims.iter().flat_map(|(_, span)| span.links.iter().map(|link| link.span_id.clone())).collect();
    assert!(claimed.contains(&enqueue.span_id) && claimed.contains(&printed.span_id), "{claims:#?}");
    for (_, claim) in &claims {
        assert_eq!(claim.kind, SpanKind::Client as i32);
        assert_ne!(claim.trace_id, enqueue.trace_id, "a batch is no part of any one message's trace");
        let count = claim.links.len().to_string();
        has(claim, &[("messaging.operation.type", "receive"), ("messaging.batch.message_count", &count)]);
    }
    let settles: Vec<_> =
        spans.0.iter().filter(|(from, span)| from == "worker" && span.name == "settle").collect();
    let settled: BTreeSet<_> =
        settles.iter().flat_map(|(_, span)| span.links.iter().map(|link| link.span_id.clone())).collect();
    let broken = spans.one("worker", "handle order.printed");
    assert_eq!(settled, BTreeSet::from([handle.span_id.clone(), broken.span_id.clone()]));

    let shipped = spans.one("worker", "enqueue order.shipped");
    assert_eq!((&shipped.trace_id, &shipped.parent_span_id), (&handle.trace_id, &handle.span_id));
    assert_eq!(shipped_in, format!("00-{TRACE}-{}-01", hex(&shipped.span_id)), "what the message carries");
    let claim = spans.one("mainstay", "claim order.shipped");
    assert_eq!(hex(&claim.parent_span_id), "2222222222222222", "the one who claimed over HTTP");
    is_linked(claim, &[shipped]);
    let settle = spans.one("mainstay", "settle");
    assert_eq!(hex(&settle.parent_span_id), "2222222222222222");
    has(
        settle,
        &[
            ("mainstay.outcome", "ack"),
            ("messaging.operation.type", "settle"),
            ("messaging.batch.message_count", "1"),
        ],
    );
}

fn what_failed_says_so(spans: &Spans) {
    let broken = spans.one("worker", "handle order.printed");
    let status = broken.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (StatusCode::Error as i32, "the printer burns"));
    has(broken, &[("mainstay.outcome", "fail"), ("error.type", "handler")]);
}

fn the_metrics_are_prometheus(metrics: &[(String, Metric)], prometheus: &str) {
    let sent: BTreeSet<_> = metrics.iter().map(|(_, metric)| metric.name.as_str()).collect();
    for name in prometheus.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(sent.contains(name), "{name} is not among {sent:?}");
    }
    // Only the last one counts: it has all that was counted from the start.
    let last = |name: &str| &metrics.iter().rfind(|(_, metric)| metric.name == name).unwrap().1;
    let Some(Data::Sum(sum)) = &last(names::ENQUEUED).data else { panic!("{:?}", last(names::ENQUEUED)) };
    assert!(sum.is_monotonic && sum.aggregation_temporality == Cumulative as i32);
    let of_topic =
        |point: &&NumberDataPoint| attribute(&point.attributes, "topic").as_deref() == Some("order.paid");
    let point = sum.data_points.iter().find(of_topic).unwrap();
    assert_eq!(point.value, Some(Number::AsInt(1)));
    assert!(
        attribute(&point.attributes, "store").is_some() && point.start_time_unix_nano < point.time_unix_nano
    );
    let requests = last("mainstay_http_request_seconds");
    let Some(Data::Histogram(histogram)) = &requests.data else { panic!("{requests:?}") };
    assert_eq!((requests.unit.as_str(), histogram.aggregation_temporality), ("s", Cumulative as i32));
    for point in &histogram.data_points {
        assert_eq!(point.explicit_bounds, BUCKETS);
        assert_eq!(
            (point.bucket_counts.len(), point.bucket_counts.iter().sum()),
            (BUCKETS.len() + 1, point.count)
        );
        assert!(point.count > 0 && point.sum.unwrap() > 0.0);
    }
}

#[tokio::test]
async fn on_sqlite() {
    let collector = Collector::start(Manner::Takes);
    let program = Program::new().with_variable(ENDPOINT, collector.url());
    // The schema is there before the worker is.
    program.write("mainstay.toml", "database = \"mainstay.db\"\n");
    program.run(&["migrate"]).succeeded();
    let provider = Sqlite::open(program.folder().join("mainstay.db")).await.unwrap();
    one_message_is_one_trace(&program, &[], Arc::new(provider), &collector).await;
}

#[tokio::test]
async fn on_postgres() {
    let database = TestDatabase::create(None).await;
    let url = format!("--database={}", database.url());
    let collector = Collector::start(Manner::Takes);
    let program = Program::new().with_variable(ENDPOINT, collector.url());
    program.run(&["migrate", &url]).succeeded();
    let provider = Postgres::connect(&database.url()).await.unwrap();
    one_message_is_one_trace(&program, &[&url], Arc::new(provider), &collector).await;
}

/// Sends all the time, and does not wait for long.
fn hasty(endpoint: &str) -> Program {
    Program::new()
        .with_variable(ENDPOINT, endpoint)
        .with_variable("OTEL_BSP_SCHEDULE_DELAY", "20")
        .with_variable("OTEL_METRIC_EXPORT_INTERVAL", "20")
}

fn enqueue(served: &Served) {
    served.post("/v1/outbox/messages", json!({"topic": "t", "payload": PAYLOAD})).json(201);
}

fn told(stderr: &str) -> usize {
    stderr.matches("takes no exports").count()
}

#[test]
fn a_collector_that_refuses_is_told_of_once() {
    let refusing = Manner::Answers("HTTP/1.1 400 Bad Request\r\ncontent-length: 9\r\n\r\ngo away!\n");
    let collector = Collector::start(refusing);
    let served = Served::start(&hasty(&collector.url()), &[]);
    let (mut traces, mut metrics) = (0, 0);
    while traces < 3 || metrics < 3 {
        enqueue(&served);
        let path = collector.next().path;
        traces += usize::from(path == "/v1/traces");
        metrics += usize::from(path == "/v1/metrics");
    }
    served.signal("-TERM");
    let stderr = served.ended_saying();
    assert_eq!(told(&stderr), 2, "once for traces, once for metrics: {stderr}");
    assert!(stderr.contains("400") && !stderr.contains(PAYLOAD), "{stderr}");
}

#[test]
fn a_collector_that_talks_nonsense_does_no_harm() {
    let rubbish = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n\u{1}\u{2}rubbish\u{3}ab";
    // Longer than any clock can tell.
    let patience =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 18446744073709551615\r\ncontent-length: 0\r\n\r\n";
    let endless = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
    for nonsense in [rubbish, "no HTTP at all\r\n\r\n", endless, patience, ""] {
        let collector = Collector::start(Manner::Answers(nonsense));
        let program = hasty(&collector.url()).with_variable("OTEL_EXPORTER_OTLP_TIMEOUT", "200");
        let served = Served::start(&program, &[]);
        let mut metrics = 0;
        // The first one must not have been the last.
        while metrics < 3 {
            enqueue(&served);
            metrics += usize::from(collector.next().path == "/v1/metrics");
        }
        assert_eq!(served.get("/health").json(200)["status"], "healthy");
        served.stop();
    }
}

/// The export itself may take a day. Whoever stops the program does not wait for that.
#[test]
fn a_collector_that_hangs_does_not_hold_up_a_stop() {
    let collector = Collector::start(Manner::Hangs);
    let program = hasty(&collector.url()).with_variable("OTEL_EXPORTER_OTLP_TIMEOUT", "86400000");
    let served = Served::start(&program, &[]);
    enqueue(&served);
    let paths = BTreeSet::from([collector.next().path, collector.next().path]);
    assert_eq!(paths, BTreeSet::from(["/v1/metrics".to_owned(), "/v1/traces".to_owned()]), "both hang");
    enqueue(&served);
    served.stop();
}

#[test]
fn a_collector_that_is_away_does_not_hold_up_anything() {
    // Whoever had the port has given it back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let program =
        hasty(&format!("http://127.0.0.1:{port}")).with_variable("OTEL_EXPORTER_OTLP_TIMEOUT", "86400000");
    let served = Served::start(&program, &[]);
    for _ in 0..10 {
        enqueue(&served);
    }
    served.signal("-TERM");
    let stderr = served.ended_saying();
    assert!((1..=2).contains(&told(&stderr)), "{stderr}");
}

#[test]
fn it_is_set_up_in_the_file_and_the_environment_counts_first() {
    let collector = Collector::start(Manner::Takes);
    let file = format!(
        "[telemetry]\nendpoint = \"{}\"\nservice_name = \"shop\"\nheaders = {{ authorization = \"Bearer s3cret\" }}\n\
         resource_attributes = {{ \"deployment.environment.name\" = \"test\" }}\n",
        collector.url()
    );
    let program = Program::new().with_variable("OTEL_TRACES_SAMPLER", "always_off");
    program.write("mainstay.toml", &file);
    let served = Served::start(&program, &[]);
    enqueue(&served);
    served.stop();
    let sent = collector.rest();
    assert!(sent.iter().all(|sent| {
        sent.headers.iter().any(|line| line.eq_ignore_ascii_case("authorization: Bearer s3cret"))
    }));
    let exports: Vec<_> = sent.iter().flat_map(collected::Sent::exports).collect();
    assert!(!exports.is_empty());
    assert!(
        exports.iter().all(|export| matches!(export, Export::Metric(service, _) if service == "shop")),
        "no trace is sampled"
    );

    let program = Program::new().with_variable("OTEL_SDK_DISABLED", "true");
    program.write("mainstay.toml", &file);
    let served = Served::start(&program, &[]);
    enqueue(&served);
    served.stop();
    assert!(collector.rest().is_empty(), "turned off");
}

#[test]
fn mistakes_are_told_at_the_start() {
    let serve = |program: &Program| program.run(&["serve", "--listen=127.0.0.1:0"]);
    let secret = Program::new().with_variable(ENDPOINT, "http://me:s3cret@collector:4318");
    let ran = serve(&secret).failed(2, &["endpoint", "headers"]);
    assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    let sampler = Program::new().with_variable("OTEL_TRACES_SAMPLER", "sometimes");
    serve(&sampler).failed(2, &["sampler", "always_on"]);
    let unknown = Program::new();
    unknown.write("mainstay.toml", "[telemetry]\nendpont = \"http://127.0.0.1:1\"\n");
    serve(&unknown).failed(2, &["endpont"]);
}
