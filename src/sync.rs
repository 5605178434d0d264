//! Provides the synchronization primitives of parking_lot, arc-swap and std. Under `cfg(loom)`,
//! provides those of loom, a model checker that tries all orders in which threads may run.
//!
//! The whole library compiles under `cfg(loom)`, but only tests named `loom_…` may run there:
//! loom's primitives work only inside a loom model.

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

/// A mutex for counters. Loom models need not explore it, because no decision depends on the
/// counters. While it is held, no other lock is taken.
pub(crate) use parking_lot::Mutex as UnmodelledMutex;

/// Waits for `time`, in models as well.
pub(crate) fn pause(time: std::time::Duration) {
    let lock = UnmodelledMutex::new(());
    parking_lot::Condvar::new().wait_for(&mut lock.lock(), time);
}

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

/// A `OnceLock` for the thread sanitizer (`.ci/tsan`), which runs without an instrumented standard
/// library and therefore cannot see the ordering of std's `OnceLock`. The sanitizer does see the
/// flag of this type, which `set` stores with `Release` and `get` loads with `Acquire`.
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

/// A `OnceLock` for code that loom models run.
#[cfg(not(loom))]
pub(crate) use self::OnceLock as ModelledOnce;

#[cfg(loom)]
pub(crate) use self::model::{ArcSwap, Condvar, ModelledOnce, Mutex, MutexGuard};

/// Replacements for the types of parking_lot, arc-swap and std's `OnceLock`, with the same APIs but
/// implemented with loom's primitives.
#[cfg(loom)]
mod model {
    use std::ops::{Deref, DerefMut};
    use std::sync::Arc;
    use std::time::Duration;

    /// std's `OnceLock`, with a lock that makes its ordering visible to loom.
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

    /// A pointer behind a lock. Loom cannot explore the code of arc-swap, which is assumed to be
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

        /// Replaces the value under a lock. The real arc-swap uses compare-and-swap instead, and
        /// repeats `make` if another thread was first. The effect is the same.
        #[track_caller]
        pub(crate) fn rcu<R: Into<Arc<T>>>(&self, make: impl Fn(&Arc<T>) -> R) {
            let mut value = self.0.lock();
            *value = make(&value).into();
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// The field is `None` only within [`Condvar::wait`], because loom's wait consumes its guard,
    /// whereas parking_lot's wait borrows it.
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

        /// Waits without a time limit, because a loom model has no time. So in a model, only a
        /// signal can end a wait.
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
