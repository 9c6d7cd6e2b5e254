//! One random operation. References to messages and claims are numbers that wrap around what there is, so that every
//! sequence of steps means something and stays meaningful when steps are taken out.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, any};
use proptest::strategy::Strategy;
use proptest::{prop_oneof, strategy::Union};

/// Owners that take part.
pub(super) const OWNERS: usize = 3;

/// Ordering keys in use.
pub(super) const KEYS: u8 = 3;

/// Idempotency keys in use.
const ONCE: u8 = 4;

/// One operation. Times are in ticks; see the model.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Enqueue(New),
    EnqueueMany(Vec<New>),
    /// Enqueues the id of a message that is or was there.
    EnqueueAgain(usize, New),
    Claim {
        owner: usize,
        batch: u32,
        lease: u32,
    },
    /// Several claims in one call, each with its own outcome; claims may be stale, and come twice.
    Settle {
        owner: Option<usize>,
        claims: Vec<(usize, End)>,
    },
    Renew {
        owner: Option<usize>,
        claim: usize,
        lease: u32,
    },
    Reap,
    Cancel(usize),
    Requeue(usize),
    /// Up to so many of the failed ones, or of those an operator cancelled.
    RequeueWhere {
        cancelled: bool,
        limit: u32,
    },
    /// Deletes what was settled so many ticks ago.
    Purge {
        done: u32,
        failed: Option<u32>,
        batch: u32,
    },
    ReleaseKey(u8),
    Advance(u32),
}

/// A message to enqueue.
#[derive(Debug, Clone)]
pub(super) struct New {
    pub(super) key: Option<u8>,
    pub(super) hold: bool,
    pub(super) priority: i16,
    pub(super) due: Option<u32>,
    pub(super) expires: Option<u32>,
    /// The idempotency key.
    pub(super) once: Option<u8>,
}

/// How a claim is settled.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Ack,
    Abandon { delay: u32 },
    Release { delay: Option<u32> },
    Fail,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        3 => Just(End::Ack),
        2 => (1..4_u32).prop_map(|delay| End::Abandon { delay }),
        1 => option::of(1..4_u32).prop_map(|delay| End::Release { delay }),
        2 => Just(End::Fail),
    ]
}

fn new_message() -> impl Strategy<Value = New> {
    let priority = prop_oneof![4 => Just(0_i16), 1 => -9..=9_i16];
    let (due, expires) = (option::weighted(0.3, 1..5_u32), option::weighted(0.2, 1..6_u32));
    let once = option::weighted(0.2, 0..ONCE);
    (option::weighted(0.5, 0..KEYS), any::<bool>(), priority, due, expires, once)
        .prop_map(|(key, hold, priority, due, expires, once)| New { key, hold, priority, due, expires, once })
}

/// Mostly the owner the claim belongs to (none), sometimes any other.
fn settler() -> impl Strategy<Value = Option<usize>> {
    option::weighted(0.15, 0..OWNERS)
}

/// Any operation.
pub(super) fn any_step() -> Union<proptest::strategy::BoxedStrategy<Step>> {
    // The last few claims and messages, and now and then a very old one.
    let number = || prop_oneof![3 => 0..6_usize, 1 => 0..60_usize];
    Union::new_weighted(::std::vec![
        (6, new_message().prop_map(Step::Enqueue).boxed()),
        (2, vec(new_message(), 0..5).prop_map(Step::EnqueueMany).boxed()),
        (3, (number(), new_message()).prop_map(|(number, new)| Step::EnqueueAgain(number, new)).boxed(),),
        (
            7,
            (0..OWNERS, 1..6_u32, 1..4_u32)
                .prop_map(|(owner, batch, lease)| Step::Claim { owner, batch, lease })
                .boxed(),
        ),
        (
            7,
            (settler(), vec((number(), end()), 1..4))
                .prop_map(|(owner, claims)| Step::Settle { owner, claims })
                .boxed(),
        ),
        (
            3,
            (settler(), number(), 1..4_u32)
                .prop_map(|(owner, claim, lease)| Step::Renew { owner, claim, lease })
                .boxed(),
        ),
        (1, Just(Step::Reap).boxed()),
        (1, number().prop_map(Step::Cancel).boxed()),
        (2, number().prop_map(Step::Requeue).boxed()),
        (
            1,
            (any::<bool>(), 1..4_u32)
                .prop_map(|(cancelled, limit)| Step::RequeueWhere { cancelled, limit })
                .boxed(),
        ),
        (
            1,
            (1..4_u32, option::of(1..4_u32), 1..4_u32)
                .prop_map(|(done, failed, batch)| Step::Purge { done, failed, batch })
                .boxed(),
        ),
        (1, (0..KEYS).prop_map(Step::ReleaseKey).boxed()),
        (4, (1..4_u32).prop_map(Step::Advance).boxed()),
    ])
}
