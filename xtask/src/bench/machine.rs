//! What the measurements ran on: without it a number says nothing.

use std::fmt;

use serde_json::{Value, json};

/// The machine, as far as it tells.
#[derive(Debug)]
pub(super) struct Machine {
    cores: usize,
    processor: String,
    /// Programs that wanted a core, on average over the last minute.
    load: Option<f64>,
}

impl Machine {
    pub(super) fn look() -> Self {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find(|line| line.starts_with("model name"));
        let processor = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            load: load.and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }

    /// Something else keeps the cores busy, so that what is measured is worth little.
    pub(super) fn is_busy(&self) -> bool {
        self.load.is_some_and(|load| load > 0.5)
    }

    pub(super) fn json(&self) -> Value {
        json!({ "cores": self.cores, "processor": self.processor, "load_before": self.load })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores of {}", self.cores, self.processor)?;
        match self.load {
            Some(load) => write!(f, ", load {load} before the run"),
            None => Ok(()),
        }
    }
}
