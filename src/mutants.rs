//! Mutants: deliberate bugs that simulations and thread models must detect.
//!
//! `mutant!("name")` marks the place where a protocol could be wrong. The macro returns true while
//! that mutant is active:
//! * with the feature `sim`, after [`activate`] on the same thread; a simulation has only one
//!   thread;
//! * under `cfg(loom)`, if the environment variable `MUTANT` contains its name, so that one build
//!   can test all mutants;
//! * in every other build it is the constant `false` and compiles to nothing.

/// Whether the mutant with this name is active.
#[cfg(any(loom, feature = "sim"))]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_active($name)
    };
}

/// Whether the mutant with this name is active.
#[cfg(not(any(loom, feature = "sim")))]
macro_rules! mutant {
    ($name:literal) => {
        false
    };
}

pub(crate) use mutant;

#[cfg(all(feature = "sim", not(loom)))]
mod switches {
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Keeps a mutant active on this thread; dropping it restores the previous one.
    #[must_use = "the mutant is active until this is dropped"]
    #[derive(Debug)]
    pub struct ActiveMutant(Option<&'static str>);

    /// Activates the mutant `name` on this thread until the result is dropped.
    pub fn activate(name: &'static str) -> ActiveMutant {
        ActiveMutant(ACTIVE.replace(Some(name)))
    }

    pub(crate) fn is_active(name: &str) -> bool {
        ACTIVE.get() == Some(name)
    }

    impl Drop for ActiveMutant {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }

    #[test]
    fn a_mutant_is_active_on_one_thread_until_it_is_dropped() {
        let _outer = activate("outer");
        {
            let _inner = activate("inner");
            assert!(is_active("inner") && !is_active("outer"));
            assert!(!std::thread::scope(|s| s.spawn(|| is_active("inner")).join()).unwrap());
        }
        assert!(is_active("outer") && !is_active("inner"));
    }
}

/// Reads the environment variable only once, because a model must see the same mutant in every
/// execution.
#[cfg(loom)]
pub(crate) fn is_active(name: &str) -> bool {
    static ACTIVE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("MUTANT").ok()).as_deref() == Some(name)
}

#[cfg(all(feature = "sim", not(loom)))]
pub(crate) use switches::is_active;
#[cfg(all(feature = "sim", not(loom)))]
pub use switches::{ActiveMutant, activate};
