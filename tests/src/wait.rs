use std::time::{Duration, Instant};

/// The same as [`eventually`] for a test without a runtime, which is about another process.
///
/// # Panics
///
/// If it does not hold within `deadline`; the message says `what` was waited for.
pub fn eventually_blocking(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let (end, mut pause) = (Instant::now() + deadline, Duration::from_millis(1));
    while !condition() {
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Waits until `condition` holds, asking often at first and then less often.
///
/// # Panics
///
/// If it does not hold within `deadline`; the message says `what` was waited for.
pub async fn eventually(deadline: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        let mut pause = Duration::from_millis(1);
        while !condition().await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    };
    // Around the condition too, which may never answer.
    if tokio::time::timeout(deadline, holds).await.is_err() {
        panic!("not within {deadline:?}: {what}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{eventually, eventually_blocking};

    #[test]
    fn a_thread_waits_until_the_condition_holds() {
        let mut left = 3;
        eventually_blocking(Duration::from_secs(60), "a count down", || {
            left -= 1;
            left == 0
        });
        assert_eq!(left, 0);
    }

    #[test]
    #[should_panic(expected = "the impossible")]
    fn a_thread_says_what_did_not_happen() {
        eventually_blocking(Duration::ZERO, "the impossible", || false);
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_until_the_condition_holds() {
        let mut left = 20;
        eventually(Duration::from_secs(60), "a count down", async || {
            left -= 1;
            left == 0
        })
        .await;
        assert_eq!(left, 0);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the impossible")]
    async fn it_says_what_did_not_happen() {
        eventually(Duration::from_secs(60), "the impossible", async || false).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "an answer")]
    async fn a_condition_that_hangs_does_not_hold() {
        eventually(Duration::from_secs(60), "an answer", async || std::future::pending().await).await;
    }
}
