//! The primitives that threads meet at: parking_lot, arc-swap and std, or loom's under `cfg(loom)`.
//!
//! The whole library compiles under `cfg(loom)`, but only tests named `loom_…` run there: nothing else may touch
//! these primitives outside a model.

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

/// Around what is only counted: models do not look at it, for no decision rests on it. No other lock is taken under it.
pub(crate) use parking_lot::Mutex as UnmodelledMutex;

/// What many read and few replace.
#[cfg(not(loom))]
pub(crate) use arc_swap::ArcSwap;

/// What [`ArcSwap::load`] answers.
#[cfg(not(loom))]
pub(crate) type Loaded<T> = arc_swap::Guard<std::sync::Arc<T>>;

#[cfg(loom)]
pub(crate) type Loaded<T> = std::sync::Arc<T>;

#[cfg(not(tsan))]
pub(crate) use std::sync::OnceLock;

#[cfg(tsan)]
pub(crate) use self::sanitized::OnceLock;

/// For a thread sanitizer without a standard library of its own (`.ci/tsan`), which cannot see what std's `OnceLock`
/// orders. Here it can: who finds the lock filled has acquired what filling it released, and nothing more.
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

/// What is made once, by whoever needs it first, where models look at that.
#[cfg(not(loom))]
pub(crate) use self::OnceLock as ModelledOnce;

#[cfg(loom)]
pub(crate) use self::model::{ArcSwap, Condvar, ModelledOnce, Mutex, MutexGuard};

/// The surface of parking_lot, arc-swap and std's `OnceLock` over loom's primitives.
#[cfg(loom)]
mod model {
    use std::ops::{Deref, DerefMut};
    use std::sync::Arc;
    use std::time::Duration;

    /// std's, in an order that loom sees.
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

    /// A pointer in a lock: arc-swap itself, which loom cannot look into, is taken to work.
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

        /// arc-swap loads, makes and exchanges, and begins again if it was not the first: as if under a lock.
        #[track_caller]
        pub(crate) fn rcu<R: Into<Arc<T>>>(&self, make: impl Fn(&Arc<T>) -> R) {
            let mut value = self.0.lock();
            *value = make(&value).into();
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Empty only inside [`Condvar::wait`]: loom's wait consumes the guard, parking_lot's borrows it.
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
            self.0.as_ref().expect("nobody looks while the guard waits")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("nobody looks while the guard waits")
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

        /// There is no time in a model: nothing under test may rely on a wait's end but by a signal.
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

/// Runs `model` in every order of its threads with at most three preemptions, which is what bugs of this kind
/// have been found to need; `LOOM_MAX_PREEMPTIONS` overrides it.
#[cfg(all(test, loom))]
pub(crate) fn check_model(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}
