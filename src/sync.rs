//! The primitives that threads meet at: parking_lot and std, or loom's under `cfg(loom)`.
//!
//! Not here: `ArcSwap`, which loom cannot model; what loom models is the commit round.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use self::model::{Condvar, Mutex, MutexGuard};

/// parking_lot's surface over loom's primitives.
#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::MutexGuard;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            // loom's wait consumes the guard; parking_lot's borrows it.
            take_mut(guard, |guard| self.0.wait(guard).unwrap());
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    #[expect(unsafe_code, reason = "moves a guard through a by-value call, only in models")]
    fn take_mut<T>(slot: &mut T, f: impl FnOnce(T) -> T) {
        // SAFETY: the slot is read once and written once; a panic in `f` ends the model run.
        unsafe {
            let value = std::ptr::read(slot);
            std::ptr::write(slot, f(value));
        }
    }
}
