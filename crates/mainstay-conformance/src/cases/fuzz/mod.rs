//! Random interleavings of every operation by several owners, against a model.
//!
//! The steps are drawn from a fixed seed, so a run is the same everywhere; another seed and another number of runs can
//! be given in `MAINSTAY_FUZZ_SEED` and `MAINSTAY_FUZZ_RUNS`. A failure is shrunk to few steps before it is told. The
//! shrinking is driven from here and not by proptest's own runner, which can't wait for a database.

mod claiming;
mod enqueueing;
mod keeping;
mod model;
mod settling;
mod step;

use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_core::store::Names;
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::World;
use model::Model;
use step::{Step, any_step};

cases! { $ fuzz_cases:
    prim_fuzz_001_random_interleavings_keep_the_invariants ["PRIM-FUZZ-001", "MST-009"],
}

/// Runs, unless told otherwise.
const RUNS: u64 = 48;

/// Steps of one run at most.
const STEPS: usize = 60;

/// Attempts at making a failure smaller.
const SHRINKS: u32 = 300;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

async fn prim_fuzz_001_random_interleavings_keep_the_invariants(fx: &dyn Fixture) {
    let seed = setting("MAINSTAY_FUZZ_SEED", 20_260_220);
    let runs = setting("MAINSTAY_FUZZ_RUNS", RUNS);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let steps = vec(any_step(), 1..=STEPS);
    for run in 0..runs {
        let mut tree = steps.new_tree(&mut runner).expect("a strategy that always gives a value");
        if let Err(first) = play(fx, &tree.current()).await {
            let (steps, error) = shrink(fx, &mut tree, first).await;
            panic!("run {run} of seed {seed}: {error}\nafter {} steps: {steps:#?}", steps.len());
        }
    }
}

/// The smallest failing steps that could be found, and how they fail.
async fn shrink(
    fx: &dyn Fixture,
    tree: &mut impl ValueTree<Value = Vec<Step>>,
    first: String,
) -> (Vec<Step>, String) {
    let mut smallest = (tree.current(), first);
    let mut smaller = tree.simplify();
    for _ in 0..SHRINKS {
        if !smaller {
            break;
        }
        let steps = tree.current();
        smaller = match play(fx, &steps).await {
            Err(error) => {
                smallest = (steps, error);
                tree.simplify()
            }
            Ok(()) => tree.complicate(),
        };
    }
    smallest
}

/// Plays the steps on tables of their own, and then brings everything to its end.
async fn play(fx: &dyn Fixture, steps: &[Step]) -> Result<(), String> {
    static PLAYS: AtomicU32 = AtomicU32::new(0);
    let number = PLAYS.fetch_add(1, Ordering::Relaxed);
    let names = Names::default().with_schema(format!("fuzz_{number}")).expect("a short name");
    let world = World::named(fx, names).await;
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        model.play(&world, step).await.map_err(|error| format!("step {number}, {step:?}: {error}"))?;
        model.check_lanes()?;
    }
    model.compare_all(&world).await?;
    model.drain(&world).await?;
    world.provider.close().await;
    Ok(())
}
