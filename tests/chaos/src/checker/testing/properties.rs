//! Legal histories pass, and every mutation of one is found by the rule that it breaks.

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

use super::mutations;
use super::simulation::{Options, simulate};
use crate::checker::check;
use crate::history::History;

fn tape() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..600)
}

fn options() -> impl Strategy<Value = Options> {
    let options = any::<(bool, bool, bool)>();
    options.prop_map(|(failovers, faults, audited)| Options { failovers, faults, audited })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_legal_history_breaks_no_rule(tape in tape(), options in options()) {
        let violations = check(&simulate(&tape, options), &[]);
        prop_assert!(violations.is_empty(), "{violations:#?}");
    }

    #[test]
    fn a_history_is_read_back_as_it_was_written(tape in tape(), options in options()) {
        for placed in simulate(&tape, options).lines {
            let text = serde_json::to_string(&placed.line).unwrap();
            prop_assert_eq!(serde_json::from_str::<crate::history::Line>(&text).unwrap(), placed.line);
        }
    }
}

#[test]
fn every_mutation_is_found_by_the_rule_that_it_breaks() {
    for (name, rule, mutate) in mutations::ALL {
        // As many histories in which the mutation is possible.
        let config = ProptestConfig {
            cases: 40,
            max_global_rejects: 4_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let long = prop::collection::vec(any::<u16>(), 300..900);
        let result = TestRunner::new_with_rng(
            config,
            proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
        )
        .run(&(long, any::<(bool, bool)>(), any::<usize>()), |(tape, (faults, audited), pick)| {
            let mut history: History = simulate(&tape, Options { failovers: false, faults, audited });
            if mutate(&mut history, pick).is_none() {
                return Err(TestCaseError::reject("the mutation is not possible here"));
            }
            let violations = check(&history, &[]);
            prop_assert!(
                violations.iter().any(|violation| violation.rule == rule),
                "not found: {violations:#?}"
            );
            Ok(())
        });
        if let Err(error) = result {
            panic!("{name}: {error}");
        }
    }
}
