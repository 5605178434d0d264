//! Wakes the requests that wait for changes of a database.
//!
//! Invariants
//! * a database has at most one thread that waits for changes, however many requests wait;
//! * after a commit every listener is woken, also one that began while the thread started.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use crate::db::{Changes, Db};
use crate::sync::{Mutex, pause};

/// Wakes its listeners when files of a database have changed.
#[derive(Debug, Default)]
pub(in crate::rest) struct Bell {
    rings: watch::Sender<u64>,
    has_thread: Mutex<bool>,
}

/// The maximum time until the thread notices that nothing listens any more.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The pause after a failed wait, for example if the system has no watches left.
const RETRY_TIME: Duration = Duration::from_millis(100);
const STACK_BYTES: usize = 256 << 10;

impl Bell {
    /// Returns a receiver that is told of all later changes of `db`. Look for changes after this
    /// call: earlier ones are not told.
    pub(in crate::rest) fn listen(self: &Arc<Self>, db: &Db) -> watch::Receiver<u64> {
        let receiver = self.rings.subscribe();
        let mut has_thread = self.has_thread.lock();
        if !*has_thread && let Ok(changes) = db.changes(db.position()) {
            let bell = Arc::clone(self);
            let named = thread::Builder::new().name("rowstone-changes".to_owned());
            let started = named.stack_size(STACK_BYTES).spawn(move || bell.ring(changes));
            *has_thread = started.is_ok();
        }
        receiver
    }

    /// Rings after each change, until there is no listener. The first wait returns at once, after
    /// the watch was created, so that listeners look for changes that the watch does not report.
    fn ring(&self, mut changes: Changes) {
        loop {
            if changes.wait(WAIT_MAX).is_err() {
                pause(RETRY_TIME);
            }
            self.rings.send_modify(|count| *count = count.wrapping_add(1));
            let mut has_thread = self.has_thread.lock();
            if self.rings.receiver_count() == 0 {
                *has_thread = false;
                return;
            }
        }
    }
}
