//! The signals that stop a server or make it read its keys again.
//!
//! `process` handles them.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlBreak, CtrlC, ctrl_break, ctrl_c};

/// The action that a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Stop the server.
    Stop,
    /// Read the keys of the accounts again.
    Rotate,
}

/// The installed handlers: SIGINT and SIGTERM stop the server, SIGHUP rotates its keys.
#[cfg(unix)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancelling the wait loses no signal.
    pub(super) async fn next(&mut self) -> Action {
        tokio::select! {
            _ = self.interrupt.recv() => Action::Stop,
            _ = self.terminate.recv() => Action::Stop,
            _ = self.hangup.recv() => Action::Rotate,
        }
    }
}

/// The installed handlers: Ctrl-C and Ctrl-Break stop the server. No event rotates its keys.
#[cfg(windows)]
pub(super) struct Signals {
    interrupt: CtrlC,
    terminate: CtrlBreak,
}

#[cfg(windows)]
impl Signals {
    pub(super) fn install() -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, terminate: ctrl_break()? })
    }

    /// Waits for the next event. Cancelling the wait loses no event.
    pub(super) async fn next(&mut self) -> Action {
        tokio::select! {
            _ = self.interrupt.recv() => Action::Stop,
            _ = self.terminate.recv() => Action::Stop,
        }
    }
}
