//! What is logged: our own lines, and nothing that the driver says of an error. The server's text may quote what somebody has stored.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use mainstay_core::store::{CallIn, StoreTransaction};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::server::{Reply, Server, Welcome, step};
use super::transaction::{begun, call};

const TEXT: &str = "String or binary data would be truncated. Truncated value: 'hunter2'.";

/// Keeps every event, with its target and its fields.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn has(&self, words: &str) -> bool {
        self.0.lock().unwrap().iter().any(|event| event.contains(words))
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(event.metadata().target().to_owned());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn what_the_server_says_of_an_error_is_in_no_event() {
    let heard = Heard::default();
    // A second one: with just one, whether something is heard is asked of whichever thread gets there first, and other tests have none.
    let _second = Dispatch::new(heard.clone());
    let _listening = tracing::subscriber::set_default(heard.clone());

    let told = || Reply::Told(2628, 16, TEXT);
    let tried_again = Reply::Told(1205, 13, TEXT);
    let replies = vec![tried_again, told(), Reply::Number(0), told(), told(), told()];
    let server = Server::start_with(vec![Welcome::Told(40613, TEXT)], replies, None).await;
    let pool = server.pool(2);
    // A login, a statement, one in a handler's transaction, and one in the application's own.
    pool.run("test", &step()).await.unwrap_err();
    begun(&pool).await.call(&call()).await.unwrap_err();
    let mut client = pool.open_one("test").await.unwrap().into_client();
    client.call_in(&call()).await.unwrap_err();
    assert!(!heard.has("hunter2") && !heard.has("tiberius"), "{:?}", heard.0);
    assert!(heard.has("mainstay_sqlserver") && heard.has("trying again"), "our own are heard: {:?}", heard.0);

    // What the application asks by itself is its own to log.
    let _asked_anew = Dispatch::new(heard.clone());
    let asked = async { client.simple_query("SELECT 1").await?.into_results().await };
    asked.await.unwrap_err();
    assert!(heard.has("hunter2"), "or this test hears nothing");
}
