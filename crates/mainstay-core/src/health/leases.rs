//! Whether leases are kept: those that lapsed lately were neither renewed nor released, and nobody has taken them over.
//!
//! That their holder died is worth a look and no more: whoever wants such a lease can have it. After a while nobody is told any more,
//! since the row of a lease that nobody wants stays for ever.

use super::check::{counted, told};
use super::{Finding, HealthStatus, LeasesSeen};

pub(super) fn judge(seen: &LeasesSeen) -> Finding {
    if seen.lapsed > 0 {
        let last = match &seen.last_lapsed {
            Some((name, ago)) => format!(", the last one {name:?}, {} ago", told(*ago)),
            None => String::new(),
        };
        let count = counted(seen.lapsed, "lease");
        let text = format!("{count} lapsed without being renewed, released or taken over{last}");
        return Finding::new(HealthStatus::Degraded, text).advise(
            "see whether its holder died, and whether anybody is to take over: `mainstay leases list`",
        );
    }
    let mut text = format!("{} held", counted(seen.held, "lease"));
    if seen.lapsed_before > 0 {
        text += &format!(", {} long lapsed", seen.lapsed_before);
    }
    Finding::healthy(text)
}
