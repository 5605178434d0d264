//! Planted bugs: what shows that simulations and models would notice the real ones.
//!
//! `planted!("name")` stands at the place where a mechanism could be wrong, and is true if that bug is planted:
//! * with the feature `sim`, if [`plant`] named it on this thread: a simulation is one thread;
//! * under `cfg(loom)`, if the variable `PLANTED` of the environment is its name: one build has all of them;
//! * in every other build it is the constant `false`, and no code.
//!
//! Not here: which seeds find which bug (`sim`), which model does (beside each model).

/// True if the bug of this name is planted.
#[cfg(any(loom, feature = "sim"))]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is_planted($name)
    };
}

/// True if the bug of this name is planted.
#[cfg(not(any(loom, feature = "sim")))]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

pub(crate) use planted;

#[cfg(all(feature = "sim", not(loom)))]
mod switches {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Plants the bug `name` on this thread, and takes it out again when dropped.
    #[must_use = "the bug is there until this is dropped"]
    #[derive(Debug)]
    pub struct Planting(Option<&'static str>);

    /// Plants the bug `name` on this thread until the result is dropped.
    pub fn plant(name: &'static str) -> Planting {
        Planting(PLANTED.replace(Some(name)))
    }

    pub(crate) fn is_planted(name: &str) -> bool {
        PLANTED.get() == Some(name)
    }

    impl Drop for Planting {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }

    #[test]
    fn a_bug_is_planted_on_one_thread_for_a_time() {
        let _outer = plant("outer");
        {
            let _inner = plant("inner");
            assert!(is_planted("inner") && !is_planted("outer"));
            assert!(!std::thread::scope(|s| s.spawn(|| is_planted("inner")).join()).unwrap());
        }
        assert!(is_planted("outer") && !is_planted("inner"));
    }
}

/// Read once: what is planted is the same in every order of steps that a model tries.
#[cfg(loom)]
pub(crate) fn is_planted(name: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("PLANTED").ok()).as_deref() == Some(name)
}

#[cfg(all(feature = "sim", not(loom)))]
pub(crate) use switches::is_planted;
#[cfg(all(feature = "sim", not(loom)))]
pub use switches::{Planting, plant};
