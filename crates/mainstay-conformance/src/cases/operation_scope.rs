//! The scope of an operation: whatever becomes of the code that works on it, the operation has an end.

use std::time::Duration;

use mainstay_core::operation::{
    Ended, NewEvent, NewOperation, Operation, OperationFilter, OperationId, OperationOptions, OperationPage,
    OperationRetention, OperationState, Operations, Progress,
};
use mainstay_core::runtime::Mainstay;
use mainstay_core::{ErrorKind, Result};
use mainstay_tests::eventually;

use crate::case::cases;
use crate::crew::PATIENCE;
use crate::fixture::Fixture;
use crate::world::{World, interrupted};

cases! { $ operation_scope_cases:
    r30_a_scope_is_ended_as_it_is_told ["R30"],
    r30_a_dropped_scope_is_recorded_as_failed ["R30"],
    r30_a_scope_that_panics_is_recorded_as_failed ["R30"],
    r30_a_scope_dropped_while_it_succeeds_has_succeeded ["R30"],
    r30_a_beginning_that_is_dropped_leaves_nothing_that_lives ["R30"],
    r30_a_scope_shows_signs_of_life ["R30"],
    r30_a_scope_notices_that_it_was_given_up ["R30"],
    r30_the_operation_of_a_killed_process_is_found_stalled ["R30"],
    r30_the_runtime_gives_up_and_forgets ["R30", "R29"],
}

const MINUTE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(20);

fn operations(world: &World<'_>) -> Operations {
    Operations::new(world.provider.operations())
}

async fn get(operations: &Operations, id: OperationId) -> Operation {
    operations.get(id).await.unwrap().unwrap()
}

async fn comes_to(operations: &Operations, id: OperationId, state: OperationState) -> Operation {
    eventually(PATIENCE, "the operation to end", async || get(operations, id).await.state.is_terminal())
        .await;
    let found = get(operations, id).await;
    assert_eq!(found.state, state, "{found:?}");
    found
}

async fn r30_a_scope_is_ended_as_it_is_told(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let begin = async || operations.begin(NewOperation::new("import")).await.unwrap();
    let scope = begin().await;
    let id = scope.id();
    scope.progress(Progress::done(1).of(2)).await.unwrap();
    scope.event(NewEvent::new("page")).await.unwrap();
    let part = scope.begin(NewOperation::new("part")).await.unwrap();
    assert_eq!(get(&operations, part.id()).await.parent, Some(id));
    assert_eq!(part.cancel().await.unwrap(), Ended::Now);
    assert_eq!(scope.succeed().await.unwrap(), Ended::Now);
    let found = get(&operations, id).await;
    assert_eq!((found.state, found.progress), (OperationState::Succeeded, Progress::done(1).of(2)));

    let scope = begin().await;
    let id = scope.id();
    assert_eq!(scope.fail("no room").await.unwrap(), Ended::Now);
    let found = get(&operations, id).await;
    assert_eq!((found.state, found.error.as_deref()), (OperationState::Failed, Some("no room")));

    let scope = begin().await;
    let id = scope.id();
    assert_eq!(scope.conclude(Ok::<_, String>(7)).await, Ok(7));
    assert_eq!(get(&operations, id).await.state, OperationState::Succeeded);
    let scope = begin().await;
    let id = scope.id();
    assert_eq!(scope.conclude(Err::<(), _>("broken")).await, Err("broken"));
    assert_eq!(get(&operations, id).await.error.as_deref(), Some("broken"));
}

async fn r30_a_dropped_scope_is_recorded_as_failed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let scope = operations.begin(NewOperation::new("import")).await.unwrap();
    let id = scope.id();
    drop(scope);
    let found = comes_to(&operations, id, OperationState::Failed).await;
    assert!(found.error.is_some_and(|error| error.contains("dropped")));

    // The same when the task that works on it is aborted.
    let (tell, told) = tokio::sync::oneshot::channel();
    let theirs = operations.clone();
    let task = tokio::spawn(async move {
        let scope = theirs.begin(NewOperation::new("import")).await.unwrap();
        tell.send(scope.id()).unwrap();
        std::future::pending::<()>().await;
        drop(scope);
    });
    let id = told.await.unwrap();
    task.abort();
    comes_to(&operations, id, OperationState::Failed).await;
}

async fn r30_a_scope_that_panics_is_recorded_as_failed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let scope = operations.begin(NewOperation::new("import")).await.unwrap();
    let id = scope.id();
    let task = tokio::spawn(async move {
        let _scope = scope;
        // Without the message of a panic, which would look like a failed case.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(task.await.is_err_and(|error| error.is_panic()));
    let found = comes_to(&operations, id, OperationState::Failed).await;
    assert_eq!(found.error.as_deref(), Some("panicked"));
}

async fn r30_a_scope_dropped_while_it_succeeds_has_succeeded(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    for polls in 1..8 {
        let scope = operations.begin(NewOperation::new("import")).await.unwrap();
        let id = scope.id();
        let _ = interrupted(polls, scope.succeed()).await;
        comes_to(&operations, id, OperationState::Succeeded).await;
    }
}

async fn r30_a_beginning_that_is_dropped_leaves_nothing_that_lives(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    for polls in 0..8 {
        drop(interrupted(polls, operations.begin(NewOperation::new("import"))).await);
    }
    // What was started all the same ends as failed, or is given up, for it shows no sign of life.
    eventually(PATIENCE, "nothing to run", async || {
        world.advance(10 * MINUTE).await;
        operations.mark_stalled(5 * MINUTE).await.unwrap();
        let running = OperationFilter::all().state(OperationState::Running);
        operations.list(&running, OperationPage::default()).await.unwrap().is_empty()
    })
    .await;
}

async fn r30_a_scope_shows_signs_of_life(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world).with_options(OperationOptions::default().heartbeat(SOON));
    let scope = operations.begin(NewOperation::new("import")).await.unwrap();
    world.advance(10 * MINUTE).await;
    eventually(PATIENCE, "a sign of life", async || {
        operations.stalled(5 * MINUTE, 10).await.unwrap().is_empty()
    })
    .await;
    let found = get(&operations, scope.id()).await;
    assert!(found.updated_at.duration_since(found.started_at).as_secs() >= 600);
    assert_eq!(scope.succeed().await.unwrap(), Ended::Now);
    let wrong = operations.with_options(OperationOptions::default().heartbeat(Duration::ZERO));
    let error = wrong.begin(NewOperation::new("import")).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("heartbeat")));
}

async fn r30_a_scope_notices_that_it_was_given_up(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world).with_options(OperationOptions::default().heartbeat(SOON));
    let scope = operations.begin(NewOperation::new("import")).await.unwrap();
    assert!(!scope.over().is_cancelled());
    assert_eq!(operations.cancel(scope.id()).await.unwrap(), Ended::Now);
    tokio::time::timeout(PATIENCE, scope.over().cancelled()).await.unwrap();
    let id = scope.id();
    assert!(scope.progress(Progress::done(1)).await.is_err());
    assert_eq!(scope.succeed().await.unwrap(), Ended::Before(OperationState::Cancelled));
    assert_eq!(get(&operations, id).await.state, OperationState::Cancelled);
    // Without a heartbeat the next thing that is recorded tells.
    let operations = operations.with_options(OperationOptions::default().heartbeat(60 * MINUTE));
    let scope = operations.begin(NewOperation::new("import")).await.unwrap();
    assert_eq!(operations.fail(scope.id(), "elsewhere").await.unwrap(), Ended::Now);
    assert!(scope.event(NewEvent::new("page")).await.is_err());
    assert!(scope.over().is_cancelled());
}

async fn r30_the_operation_of_a_killed_process_is_found_stalled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world).with_options(OperationOptions::default().heartbeat(60 * MINUTE));
    let killed = operations.begin(NewOperation::new("import")).await.unwrap();
    let id = killed.id();
    // A process that is killed drops nothing.
    std::mem::forget(killed);
    assert_eq!(operations.stalled(5 * MINUTE, 10).await.unwrap(), []);
    world.advance(10 * MINUTE).await;
    let second = Operations::new(fx.second().await.operations());
    let found = second.stalled(5 * MINUTE, 10).await.unwrap();
    assert_eq!(found.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
    assert_eq!(second.mark_stalled(5 * MINUTE).await.unwrap(), [id]);
    assert_eq!(get(&second, id).await.state, OperationState::Stalled);
}

async fn r30_the_runtime_gives_up_and_forgets(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let silent = operations.start(NewOperation::new("silent")).await.unwrap();
    let old = operations.start(NewOperation::new("old")).await.unwrap();
    let _ = operations.succeed(old).await.unwrap();
    world.advance(10 * MINUTE).await;
    let built = |options: OperationOptions| -> Result<Mainstay> {
        Mainstay::builder_over(world.provider.clone()).operations(options).build()
    };
    let options = OperationOptions::default().heartbeat(SOON).stalled_after(Some(5 * MINUTE));
    let retention = OperationRetention::default().ended(Some(5 * MINUTE)).interval(SOON);
    let running = built(options.retention(retention)).unwrap().start().await.unwrap();
    comes_to(&operations, silent, OperationState::Stalled).await;
    eventually(PATIENCE, "the old one to be forgotten", async || {
        operations.get(old).await.unwrap().is_none()
    })
    .await;
    running.stop().await.unwrap();
    let wrong = OperationOptions::default().stalled_after(Some(SOON));
    assert_eq!(built(wrong).unwrap_err().field(), Some("stalled_after"));
}
