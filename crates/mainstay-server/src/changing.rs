//! A value that is replaced as a whole while others read it.

use std::sync::{Arc, PoisonError, RwLock};

/// What is current. Whoever has read it keeps what it was then.
pub(crate) struct Changing<T>(RwLock<Arc<T>>);

impl<T> Changing<T> {
    pub(crate) fn new(first: impl Into<Arc<T>>) -> Self {
        Self(RwLock::new(first.into()))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        // Whole whatever panicked beside it: a pointer is put in the place of another.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, next: impl Into<Arc<T>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next.into();
    }
}
