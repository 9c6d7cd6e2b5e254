use std::fs::File;
use std::io::Read;

use crate::error::{Context, Result};

/// A random password, safe to put into a URL as it is.
pub(crate) fn password() -> Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context(|| "cannot read /dev/urandom".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
