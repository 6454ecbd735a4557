//! Whether the broker is ready, and what keeps it from being.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The reasons for not being ready, each under the name of the part that it concerns. Ready is
/// who has none.
#[derive(Debug, Default)]
pub struct Health(Mutex<BTreeMap<String, String>>);

impl Health {
    /// Not ready: the broker is starting. [`Self::clear`] `"broker"` when it accepts connections.
    pub fn starting() -> Self {
        let health = Self::default();
        health.set("broker", "the broker is starting");
        health
    }

    /// `part` is not ready, for `reason`; replaces its earlier reason.
    pub fn set(&self, part: &str, reason: &str) {
        self.with(|reasons| reasons.insert(part.to_owned(), reason.to_owned()));
    }

    /// `part` is ready.
    pub fn clear(&self, part: &str) {
        self.with(|reasons| reasons.remove(part));
    }

    pub fn is_ready(&self) -> bool {
        self.with(|reasons| reasons.is_empty())
    }

    /// What is not ready, with its reasons.
    pub fn reasons(&self) -> BTreeMap<String, String> {
        self.with(|reasons| reasons.clone())
    }

    fn with<R>(&self, action: impl FnOnce(&mut BTreeMap<String, String>) -> R) -> R {
        // Whole entries go in and out: a panic elsewhere leaves none half done.
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_who_has_no_reason_against_it() {
        let health = Health::starting();
        assert!(!health.is_ready());
        health.set("shard 1", "its core does not answer");
        health.clear("broker");
        assert!(!health.is_ready());
        assert_eq!(health.reasons()["shard 1"], "its core does not answer");
        health.clear("shard 1");
        assert!(health.is_ready());
    }
}
