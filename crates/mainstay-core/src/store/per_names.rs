//! What is the same for all databases whose tables have the same names, such as the texts of statements.
//!
//! A process may have a thousand databases; the texts are there once, for as long as one of them uses them.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Names;

/// Values that are made once for each set of names, and are gone with the last who holds them.
pub struct PerNames<T>(Mutex<Vec<(Names, Weak<T>)>>);

impl<T> PerNames<T> {
    /// With none.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The value for these names; made if nobody has it.
    pub fn get(&self, names: &Names, make: impl FnOnce() -> T) -> Arc<T> {
        let Ok(value) = self.try_get(names, || Ok::<T, Infallible>(make()));
        value
    }

    /// The same where making it may fail.
    pub fn try_get<E>(&self, names: &Names, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        // Entries are whole whatever panicked beside them.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known.iter().find(|(of, _)| of == names).and_then(|(_, value)| value.upgrade()) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        known.retain(|(_, value)| value.strong_count() > 0);
        known.push((names.clone(), Arc::downgrade(&value)));
        Ok(value)
    }
}

impl<T> Default for PerNames<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> std::fmt::Debug for PerNames<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PerNames")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Queue;

    #[test]
    fn a_value_is_made_once_and_goes_with_its_last_holder() {
        let texts = PerNames::new();
        let names = Names::default();
        let first = texts.get(&names, || 1);
        assert!(Arc::ptr_eq(&first, &texts.get(&names, || panic!("it is there"))));
        assert_eq!(*texts.get(&names.of(Queue::Inbox), || 2), 2);
        drop(first);
        assert_eq!(texts.try_get(&names, || Err("no")), Err("no"));
        assert_eq!(*texts.get(&names, || 3), 3);
        assert!(texts.0.lock().unwrap().len() <= 1, "what nobody holds is let go of");
    }
}
