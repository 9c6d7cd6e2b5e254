//! Tells somebody in this process that there is new work, once the database has it.
//!
//! Only makes things faster: whoever is told looks for himself, and nothing may rely on it.

use std::fmt;
use std::sync::Arc;

/// What is rung when a client has added work. Rings nowhere unless set up.
#[derive(Clone, Default)]
pub(crate) struct Bell(Option<Arc<dyn Fn() + Send + Sync>>);

impl Bell {
    /// Calls `rung`, which must not block.
    pub(crate) fn new(rung: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(rung)))
    }

    pub(crate) fn ring(&self) {
        if let Some(rung) = &self.0 {
            rung();
        }
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bell").field(&self.0.is_some()).finish()
    }
}
