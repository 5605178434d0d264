//! What ends writing for good: a failure after which the contents of the disk are unknown.
//!
//! Invariant: after a failed write or sync of the log or the manifest nothing more is acknowledged. Other errors change nothing.
//!
//! Not here: how the failure answers waiters (`group_commit`).

use crate::error::{Error, ErrorKind};
use crate::manifest::Manifest;

use super::writer::Writer;

impl Writer {
    /// Ends writing if it ended for the active log, be it only that no space could be reserved: what is
    /// queued then never gets there, and nothing more may be acknowledged. Other errors may pass.
    pub(in crate::lsm) fn poison_on_log_failure(&self, error: Error) -> Error {
        if matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned) {
            let failure = self.group_commit.lock().queue.log.failure().cloned();
            if let Some(failure) = failure {
                self.group_commit.fail(failure.poisoned());
            }
        }
        error
    }

    /// Ends writing if it ended for the manifest: nobody knows then what the disk holds. Other errors may pass.
    pub(in crate::lsm) fn poison_on_failure(&self, manifest: &Manifest, error: Error) -> Error {
        if manifest.failure().is_some() || error.kind() == ErrorKind::Corruption {
            self.group_commit.fail(error.clone().poisoned());
        }
        error
    }
}
