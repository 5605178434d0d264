//! What the library's own values hold of an engine: the last of them closes it.
//!
//! Background threads hold the engine while they run a step. If the last holder closed it, that could be one of them,
//! and the database would still be locked when the application has long dropped it.

use std::ops::Deref;
use std::sync::Arc;

use crate::lsm::Engine;

/// An engine in use by the application.
pub(crate) struct Handle(Arc<Engine>);

impl Handle {
    pub(in crate::lsm) fn new(engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self(engine))
    }
}

impl Deref for Handle {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever wants to know what went wrong calls close; here nobody is left to be told.
        drop(self.0.close());
    }
}
