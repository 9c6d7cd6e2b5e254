//! Exports: every message once, in the order in which they were enqueued, however many there are.

use std::collections::BTreeSet;

use mainstay_core::outbox::{ExportedMessage, Message, MessageExport, MessageFilter, OnFailure};
use mainstay_core::queue::{ClaimRequest, FailureReason, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{TOPIC, World, handles};

cases! { $ export_cases:
    mst_044_an_export_has_every_message_once_in_the_order_of_enqueueing ["MST-044"],
    mst_044_an_export_is_filtered_as_a_list_is ["MST-044"],
    mst_044_an_export_loses_and_doubles_nothing_of_what_is_settled_meanwhile ["MST-044"],
    mst_044_an_export_that_is_given_up_harms_nobody ["MST-044"],
}

async fn rest(mut export: Box<dyn MessageExport>) -> Vec<ExportedMessage> {
    let mut all = Vec::new();
    loop {
        let read = export.next().await.unwrap();
        if read.is_empty() {
            // And stays at its end.
            assert_eq!(export.next().await.unwrap().len(), 0);
            return all;
        }
        all.extend(read);
    }
}

fn ids(exported: &[ExportedMessage]) -> Vec<WorkItemId> {
    exported.iter().map(|one| one.message.id).collect()
}

async fn mst_044_an_export_has_every_message_once_in_the_order_of_enqueueing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // Ids of the caller's own, in an order of their own.
    let mut wanted: Vec<_> = (0..200).map(|_| WorkItemId::new()).collect();
    wanted.reverse();
    let message = |id: &WorkItemId| Message::new(TOPIC, format!("of {id}")).work_item_id(*id);
    world.outbox.enqueue_many(wanted.iter().map(message).collect()).await.unwrap();
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 50).await;
    world.outbox.ack(owner, &handles(&claimed[..20])).await.unwrap();
    world.outbox.fail(owner, &handles(&claimed[20..30]), Some("no".to_owned())).await.unwrap();
    let held = Message::new("held", "x").ordering_key("k").on_failure(OnFailure::Hold).header("a", "b");
    wanted.push(world.enqueue(held.priority(3).correlation("c")).await);
    let all = rest(world.outbox.export(&MessageFilter::all()).await.unwrap()).await;
    assert_eq!(ids(&all), wanted);
    assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq), "their places say so, too");
    for one in &all {
        let row = world.row(one.message.id).await;
        assert_eq!((&one.message.payload, one.message.status), (&row.payload, row.status));
        assert_eq!((one.message.attempts, one.message.reason), (row.attempts, row.reason));
        assert_eq!((&one.message.headers, &one.message.last_error), (&row.headers, &row.last_error));
        assert_eq!(one.hold_on_failure, one.message.topic == "held");
    }
}

async fn mst_044_an_export_is_filtered_as_a_list_is(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let open = world.enqueue(Message::new("a", "").correlation("c")).await;
    let cancelled = world.enqueue(Message::new("b", "").correlation("c")).await;
    world.outbox.cancel(&[cancelled]).await.unwrap();
    for (filter, wanted) in [
        (MessageFilter::all().topic("a"), vec![open]),
        (MessageFilter::all().status(Status::Failed), vec![cancelled]),
        (MessageFilter::all().status(Status::Done), vec![]),
        (MessageFilter::all().reason(FailureReason::Cancelled), vec![cancelled]),
        (MessageFilter::all().correlation_id("c"), vec![open, cancelled]),
        (
            MessageFilter::all().settled_before(world.now().await + std::time::Duration::from_secs(60)),
            vec![cancelled],
        ),
        (MessageFilter::all().topic("a").status(Status::Failed), vec![]),
    ] {
        assert_eq!(ids(&rest(world.outbox.export(&filter).await.unwrap()).await), wanted, "{filter:?}");
    }
}

async fn mst_044_an_export_loses_and_doubles_nothing_of_what_is_settled_meanwhile(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // More than are read at once. Those at the end are claimed first.
    let many = (0..1_500).map(|n| Message::new(TOPIC, n.to_string()).priority(if n < 1_200 { 0 } else { 5 }));
    let many = many.collect();
    let wanted: Vec<_> =
        world.outbox.enqueue_many(many).await.unwrap().iter().map(|one| one.work_item).collect();
    let mut export = world.outbox.export(&MessageFilter::all()).await.unwrap();
    let mut all = export.next().await.unwrap();
    assert!(all.len() <= 1_200, "not all at once");
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).batch(150);
    let claimed = world.outbox.claim(&request).await.unwrap().items;
    assert!(
        claimed.iter().filter(|item| item.priority == 5).count() > 50,
        "of those that are to be read yet"
    );
    world.outbox.ack(owner, &handles(&claimed[..100])).await.unwrap();
    world.outbox.fail(owner, &handles(&claimed[100..]), None).await.unwrap();
    all.extend(export.next().await.unwrap());
    let failed: Vec<_> = claimed[100..].iter().map(|item| item.id()).collect();
    world.outbox.requeue(&failed).await.unwrap();
    all.extend(rest(export).await);
    assert_eq!(ids(&all), wanted);
}

async fn mst_044_an_export_that_is_given_up_harms_nobody(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let large = (0..40).map(|_| Message::new(TOPIC, "x".repeat(200_000))).collect();
    world.outbox.enqueue_many(large).await.unwrap();
    for _ in 0..20 {
        let mut export = world.outbox.export(&MessageFilter::all()).await.unwrap();
        assert!(!export.next().await.unwrap().is_empty());
    }
    let all = rest(world.outbox.export(&MessageFilter::all()).await.unwrap()).await;
    assert_eq!(ids(&all).into_iter().collect::<BTreeSet<_>>().len(), 40);
    assert_eq!(world.claim(OwnerToken::new(), 50).await.len(), 40);
}
