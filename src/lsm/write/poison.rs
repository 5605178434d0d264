//! Poisoning: a failure that leaves the contents of the disk unknown ends writing permanently.
//!
//! Invariant: after a failed write or sync of the log or the manifest nothing more is acknowledged.
//! Other errors do not end writing.
//!
//! Not here: how waiters get the failure (`group_commit`).

use crate::error::{Error, ErrorKind};
use crate::manifest::Manifest;

use super::writer::Writer;

impl Writer {
    /// Ends writing if the active log has failed, even if it only failed to reserve space: the
    /// queued bytes can then never be written, so nothing more may be acknowledged. Other errors
    /// may be transient.
    pub(in crate::lsm) fn poison_on_log_failure(&self, error: Error) -> Error {
        if matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned) {
            let failure = self.group_commit.lock().queue.log.failure().cloned();
            if let Some(failure) = failure {
                self.group_commit.fail(failure.poisoned());
            }
        }
        error
    }

    /// Ends writing if the manifest has failed, because the contents of the disk are then unknown.
    /// Other errors may be transient.
    pub(in crate::lsm) fn poison_on_failure(&self, manifest: &Manifest, error: Error) -> Error {
        if manifest.failure().is_some() || error.kind() == ErrorKind::Corruption {
            self.group_commit.fail(error.clone().poisoned());
        }
        error
    }
}
