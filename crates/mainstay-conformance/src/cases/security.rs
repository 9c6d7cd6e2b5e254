//! 7.4: rights, encryption, and what must never be told.

use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::Names;
use mainstay_core::{Error, ErrorKind, OwnerToken};

use crate::case::cases;
use crate::fixture::{Fixture, Lacking};
use crate::probe::Logs;
use crate::world::{LEASE, TOPIC, World, handles};

cases! { $ security_cases:
    obx_104_the_documented_rights_are_enough ["OBX-104", "OBX-105"],
    obx_104_a_role_without_rights_is_told_so ["OBX-104"],
    obx_106_a_payload_is_never_logged ["OBX-106", "R27"],
    obx_106_errors_hold_no_payload ["OBX-106", "R27"],
    obx_107_connections_can_be_encrypted ["OBX-107"],
}

pub(super) async fn obx_104_the_documented_rights_are_enough(fx: &dyn Fixture) -> Result<(), Lacking> {
    World::open(fx).await;
    let provider = fx.least_privilege().await?;
    assert!(provider.capabilities().roles, "then declare the capability");
    let world = World::over(fx, provider, Names::default());
    world.provider.schema().require().await.expect("the version can be read");
    let owner = OwnerToken::new();
    let ids = world.enqueue_some(4).await;
    let claims = handles(&world.claim(owner, 50).await);
    let outbox = &world.outbox;
    assert_eq!(outbox.renew(owner, &claims, LEASE).await.unwrap().changed.len(), 4);
    outbox.ack(owner, &claims[..1]).await.unwrap();
    outbox.fail(owner, &claims[1..2], None).await.unwrap();
    outbox.abandon(owner, &claims[2..3], None, None).await.unwrap();
    outbox.release(owner, &claims[3..], None).await.unwrap();
    outbox.reap_expired().await.unwrap();
    assert_eq!(outbox.requeue(&ids[1..2]).await.unwrap(), ids[1..2]);
    assert_eq!(outbox.cancel(&ids[3..]).await.unwrap(), ids[3..]);
    assert_eq!(outbox.stats().await.unwrap().failed, 1);
    assert!(outbox.get(ids[0]).await.unwrap().is_some());
    outbox.purge(&mainstay_core::outbox::Retention::default()).await.unwrap();
    let mut transaction = outbox.store().begin().await.unwrap();
    let message = Message::new(TOPIC, "").prepare(&Default::default()).unwrap();
    transaction.enqueue(&[message]).await.unwrap();
    transaction.commit().await.unwrap();
    Ok(())
}

pub(super) async fn obx_104_a_role_without_rights_is_told_so(fx: &dyn Fixture) -> Result<(), Lacking> {
    World::open(fx).await;
    let provider = fx.without_rights().await?;
    let outbox = Outbox::new(provider.outbox());
    let refused: [Error; 3] = [
        outbox.enqueue(Message::new(TOPIC, "secret payload")).await.unwrap_err(),
        outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap_err(),
        outbox.stats().await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!error.is_retryable());
        assert!(!format!("{error:?}").contains("secret payload"));
    }
    Ok(())
}

/// Stands in every payload and header below, and must stand nowhere else.
const SECRET: &str = "s3cr3t-p4yl0ad";

pub(super) async fn obx_106_a_payload_is_never_logged(fx: &dyn Fixture) {
    let logs = Logs::capture();
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    let message = || Message::new(TOPIC, SECRET).header("authorization", SECRET);
    let id = world.enqueue(message()).await;
    world.outbox.enqueue_many(vec![message(), message()]).await.unwrap();
    fx.transact(&world.outbox, "note", vec![message()], crate::fixture::End::Commit).await.unwrap();
    let taken = world.outbox.enqueue(message().work_item_id(id)).await.unwrap_err();
    tracing::error!(error = %taken, debug = ?taken, "as an application would log it");
    let claimed = world.claim(owner, 50).await;
    tracing::info!(?claimed, row = ?world.row(id).await, "as an application would log them");
    let claims = handles(&claimed);
    world.outbox.renew(owner, &claims, LEASE).await.unwrap();
    world.outbox.ack(owner, &claims[..1]).await.unwrap();
    world.outbox.fail(owner, &claims[1..2], Some("broken".to_owned())).await.unwrap();
    world.outbox.abandon(owner, &claims[2..], None, None).await.unwrap();
    world.outbox.ack(owner, &claims).await.unwrap();
    world.outbox.reap_expired().await.unwrap();
    assert!(logs.all().len() > 5, "the capture works");
    assert!(!logs.text().contains(SECRET), "at any level, by any path");
}

pub(super) async fn obx_106_errors_hold_no_payload(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let secret = || Message::new(TOPIC, SECRET).header("h", SECRET);
    let mut errors = vec![
        world.enqueue_error(secret().work_item_id(id)).await,
        world.enqueue_error(secret().correlation("c".repeat(300))).await,
        world.outbox.clone().with_payload_limit(1).enqueue(secret()).await.unwrap_err(),
    ];
    let undeployed = Outbox::new(fx.undeployed().await.outbox());
    errors.push(undeployed.enqueue(secret()).await.unwrap_err());
    if !world.provider.capabilities().nul_in_payload {
        errors.push(world.enqueue_error(Message::new(TOPIC, format!("{SECRET}\0"))).await);
    }
    for error in errors {
        let mut chain = format!("{error} {error:?}");
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            chain.push_str(&format!(" {inner} {inner:?}"));
            source = inner.source();
        }
        assert!(!chain.contains(SECRET), "{}", chain.replace(SECRET, "<the payload>"));
    }
    let shown = format!("{:?} {:?}", secret(), world.claim(OwnerToken::new(), 5).await);
    assert!(!shown.contains(SECRET));
}

pub(super) async fn obx_107_connections_can_be_encrypted(fx: &dyn Fixture) -> Result<(), Lacking> {
    World::open(fx).await;
    let (provider, encrypted) = fx.encrypted().await?;
    assert!(encrypted, "the server must say so itself");
    let world = World::over(fx, provider, Names::default());
    let id = world.enqueue(Message::new(TOPIC, "over TLS")).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    assert_eq!((claimed.id(), claimed.payload.as_str()), (id, "over TLS"));
    assert_eq!(world.outbox.ack(owner, &[claimed.handle]).await.unwrap().changed, [id]);
    Ok(())
}
