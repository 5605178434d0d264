//! Synchronization primitives: parking_lot, arc-swap and std, or loom's under `cfg(loom)`.
//!
//! The whole library compiles under `cfg(loom)`, but only tests named `loom_…` may run there,
//! because these primitives work only inside a model.

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

/// A mutex for counters that models need not explore, because no decision depends on them. No other
/// lock is taken while this one is held.
pub(crate) use parking_lot::Mutex as UnmodelledMutex;

/// A value that is read often and replaced rarely.
#[cfg(not(loom))]
pub(crate) use arc_swap::ArcSwap;

/// The result of [`ArcSwap::load`].
#[cfg(not(loom))]
pub(crate) type Loaded<T> = arc_swap::Guard<std::sync::Arc<T>>;

#[cfg(loom)]
pub(crate) type Loaded<T> = std::sync::Arc<T>;

#[cfg(not(tsan))]
pub(crate) use std::sync::OnceLock;

#[cfg(tsan)]
pub(crate) use self::sanitized::OnceLock;

/// `OnceLock` for the thread sanitizer without an instrumented standard library (`.ci/tsan`), which
/// cannot see the ordering of std's `OnceLock`. This one orders memory by its own flag, which the
/// sanitizer sees: `set` stores it with `Release`, and `get` loads it with `Acquire`.
#[cfg(tsan)]
mod sanitized {
    use super::{AtomicBool, Mutex, Ordering};

    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        inner: std::sync::OnceLock<T>,
        filling: Mutex<()>,
        is_filled: AtomicBool,
    }

    impl<T> OnceLock<T> {
        pub(crate) const fn new() -> Self {
            Self {
                inner: std::sync::OnceLock::new(),
                filling: Mutex::new(()),
                is_filled: AtomicBool::new(false),
            }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            self.is_filled.load(Ordering::Acquire).then(|| self.inner.get()).flatten()
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            let _filling = self.filling.lock();
            let set = self.inner.set(value);
            self.is_filled.store(true, Ordering::Release);
            set
        }

        pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
            if let Some(value) = self.get() {
                return value;
            }
            let _filling = self.filling.lock();
            let value = self.inner.get_or_init(init);
            self.is_filled.store(true, Ordering::Release);
            value
        }
    }
}

/// A value that its first user creates, for code that loom models run.
#[cfg(not(loom))]
pub(crate) use self::OnceLock as ModelledOnce;

#[cfg(loom)]
pub(crate) use self::model::{ArcSwap, Condvar, ModelledOnce, Mutex, MutexGuard};

/// The APIs of parking_lot, arc-swap and std's `OnceLock`, implemented with loom's primitives.
#[cfg(loom)]
mod model {
    use std::ops::{Deref, DerefMut};
    use std::sync::Arc;
    use std::time::Duration;

    /// std's `OnceLock`, with ordering that loom sees.
    #[derive(Debug)]
    pub(crate) struct ModelledOnce<T> {
        cell: std::sync::OnceLock<T>,
        order: Mutex<()>,
    }

    impl<T> ModelledOnce<T> {
        pub(crate) fn new() -> Self {
            Self { cell: std::sync::OnceLock::new(), order: Mutex::new(()) }
        }

        #[track_caller]
        pub(crate) fn get(&self) -> Option<&T> {
            let _order = self.order.lock();
            self.cell.get()
        }

        #[track_caller]
        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            let _order = self.order.lock();
            self.cell.get_or_init(make)
        }
    }

    /// A pointer behind a lock. loom cannot explore arc-swap itself, which is assumed to be
    /// correct.
    #[derive(Debug)]
    pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

    impl<T> ArcSwap<T> {
        pub(crate) fn from_pointee(value: T) -> Self {
            Self(Mutex::new(Arc::new(value)))
        }

        #[track_caller]
        pub(crate) fn load(&self) -> Arc<T> {
            Arc::clone(&self.0.lock())
        }

        #[track_caller]
        pub(crate) fn load_full(&self) -> Arc<T> {
            self.load()
        }

        #[track_caller]
        pub(crate) fn store(&self, value: Arc<T>) {
            *self.0.lock() = value;
        }

        /// Replaces the value under a lock. arc-swap instead loads the value, computes the new one
        /// and exchanges the two, and repeats this if another thread was first. The effect is the
        /// same.
        #[track_caller]
        pub(crate) fn rcu<R: Into<Arc<T>>>(&self, make: impl Fn(&Arc<T>) -> R) {
            let mut value = self.0.lock();
            *value = make(&value).into();
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// `None` only within [`Condvar::wait`]: loom's wait consumes the guard, whereas parking_lot's
    /// wait borrows it.
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        #[track_caller]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("a panic ends the model")))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("the guard is not used while it waits")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("the guard is not used while it waits")
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        #[track_caller]
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("one wait at a time");
            guard.0 = Some(self.0.wait(held).expect("a panic ends the model"));
        }

        /// Waits without a time limit, because a model has no time: in a model only a signal may
        /// end a wait.
        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: Duration) {
            self.wait(guard);
        }

        #[track_caller]
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        #[track_caller]
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }
}

/// Runs `model` in every order of its threads with at most three preemptions. Three preemptions
/// suffice to find the known bugs; `LOOM_MAX_PREEMPTIONS` overrides the number.
#[cfg(all(test, loom))]
pub(crate) fn check_model(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}
