//! Limits the number of connections by the file descriptors of the process, so that enough are left
//! for databases.
//!
//! `connection_slots` assigns the connections.

/// Descriptors that connections must leave free: for files of databases, listeners, the log, and
/// connections that are being refused.
const RESERVED: u64 = 256;

/// Raises the process's limit on file descriptors as far as the system allows, and returns the
/// number of connections for which it suffices, at most `wanted`.
///
/// # Errors
/// The reason why no connection is possible.
pub(in crate::rest) fn connections(wanted: usize) -> Result<usize, String> {
    match limit() {
        None => Ok(wanted),
        Some(limit) => share(limit, wanted),
    }
}

fn share(limit: u64, wanted: usize) -> Result<usize, String> {
    let left = usize::try_from(limit.saturating_sub(RESERVED)).unwrap_or(usize::MAX);
    if left == 0 {
        return Err(format!(
            "the process may open {limit} files, and a server needs more than {RESERVED}: raise the limit (ulimit -n)"
        ));
    }
    if left < wanted {
        tracing::warn!(limit, connections = left, wanted, "fewer connections: too few descriptors");
    }
    Ok(wanted.min(left))
}

/// Returns the soft limit on descriptors after raising it to the hard limit; `None` if there is no
/// limit.
#[cfg(unix)]
fn limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, ..found };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => found.maximum,
        Err(_) => found.current,
    }
}

#[cfg(not(unix))]
fn limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_databases() {
        assert_eq!(share(1 << 20, 1024), Ok(1024));
        assert_eq!(share(1024, 1024), Ok(1024 - 256));
        assert_eq!(share(257, 1024), Ok(1));
        assert!(share(256, 1024).unwrap_err().contains("ulimit -n"));
    }
}
