//! What the system knows of this process. Linux only; elsewhere nothing is known.

/// The most memory this process has had resident since [`forget_peak_memory`].
pub fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Starts the search for the peak anew, so that filling the queue does not count as draining it.
pub fn forget_peak_memory() {
    // Where the system doesn't let us, the peak is that of the whole run: too high, never too low.
    let _refused = std::fs::write("/proc/self/clear_refs", "5");
}
