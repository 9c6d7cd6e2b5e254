//! `cargo xtask bench`: measurements that take other programs, other settings or long times.
//!
//! What a user can measure on a database of their own is `mainstay bench`. Everything here runs on a temporary PostgreSQL
//! that this program starts and removes, with the programs of `bench/peers` and `bench/fleet`.

mod figures;
mod fleet;
mod ground;
mod growth;
mod http;
mod instructions;
mod machine;
mod options;
mod peers;
mod programs;
mod rot;
mod timers;

use crate::failure::Failure;
use crate::interrupt::Interrupt;

pub(crate) const USAGE: &str = "\
bench peers [--rounds <n>] [--quick] [--json] [--only <program>,...] [--work <work>,...]
    Put the same work through other queues and through Mainstay, alternating, on a
    PostgreSQL started for it, and print medians, spread and ratios
bench growth [--quick] [--json] [--only backlog,payload,workers,processes]
    Show how cost grows: with 10 thousand to 5 million waiting, payloads of 100 bytes to
    1 MiB, 1 to 16 dispatchers, 1 to 8 processes
bench rot [--quick] [--rate <per second>] [--minutes <n>]
    Let messages flow while one transaction is held open: claim latency, dead tuples, sizes
bench timers [--quick] [--only postgres,sqlite]
    Tell how late timers are that fall due over some seconds: until they are messages, until
    their handlers begin; with none and with a million others waiting
bench fleet [--quick] [--tenants <n>] [--databases <n>] [--json]
    Work on 1,000 databases of SQLite and 200 of PostgreSQL in one process: what they cost
    while idle, and how soon handlers begin while some are busy, with none and with ten down
bench http [--rate <per second>] [--seconds <n>] [--json] [--only postgres,sqlite]
    Send enqueues to `mainstay serve` at a rate, and then as many as it takes: errors, how
    long they took, and the database's own inserts beside it
bench instructions [--json] [--only enqueue,settle,dispatch]
    Count the instructions per message that Mainstay itself takes, by callgrind";

pub(crate) fn main(arguments: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::usage("what is to be measured?"));
    };
    let interrupt = Interrupt::watch()?;
    match name.as_str() {
        "peers" => peers::main(rest, &interrupt),
        "fleet" => fleet::main(rest, &interrupt),
        "growth" => growth::main(rest, &interrupt),
        "http" => http::main(rest, &interrupt),
        "instructions" => instructions::main(rest, &interrupt),
        "rot" => rot::main(rest, &interrupt),
        "timers" => timers::main(rest, &interrupt),
        _ => Err(Failure::usage(format!("there is no measurement `{name}`"))),
    }
}
