//! What a forward must not do: have the payloads of a whole batch in memory. The only test of its program, because it looks at the
//! memory of all of it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use mainstay_core::OwnerToken;
use mainstay_core::timer::Timers;

use support::Scratch;

/// A line of the kernel's account of this process, in MiB.
fn mebibytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let number: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap();
    number / 1_024
}

#[tokio::test]
async fn a_batch_of_large_timers_is_not_in_memory_at_once() {
    let scratch = Scratch::new().await;
    let timers = Timers::new(&scratch.sqlite);
    // 40 of 2 MiB each.
    scratch
        .connect()
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
             INSERT INTO infra_timers (topic, payload) SELECT 't', hex(zeroblob(1048576)) FROM n",
        )
        .unwrap();
    // The highest it has been, from now on.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = mebibytes("VmRSS");
    assert_eq!(timers.queue().store().forward(OwnerToken::new(), 100).await.unwrap().len(), 40);
    let grown = mebibytes("VmHWM").saturating_sub(before);
    assert!(grown < 32, "{grown} MiB for 80 MiB of payloads");
    let whole = "SELECT count(*) FROM infra_outbox WHERE length(payload) = 2097152";
    assert_eq!(scratch.connect().query_row(whole, [], |row| row.get::<_, i64>(0)).unwrap(), 40);
}
