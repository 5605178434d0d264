//! Ctrl-C in a command that can end between two steps and say what is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
#[cfg(feature = "remote")]
use signal_hook::consts::SIGTERM;
use signal_hook::flag;

use super::failure::eprint_line;

/// The exit status of a command that was interrupted, as shells report it.
const STATUS: i32 = 130;

/// Tells whether Ctrl-C was pressed.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on, Ctrl-C is only recorded; a second one ends the process at once.
    pub(super) fn catch() -> Self {
        let raised = Arc::new(AtomicBool::new(false));
        // If the system refuses the handlers, Ctrl-C ends the process as before.
        let second = flag::register_conditional_shutdown(SIGINT, STATUS, Arc::clone(&raised));
        drop(second.and_then(|_| flag::register(SIGINT, Arc::clone(&raised))));
        Self(raised)
    }

    /// Also records the request of a service manager to end.
    #[cfg(feature = "remote")]
    pub(super) fn or_termination(self) -> Self {
        drop(flag::register(SIGTERM, Arc::clone(&self.0)));
        self
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Prints `text` and ends the process, even if another thread waits for its input.
    pub(super) fn end(text: &str) -> ! {
        eprint_line(text);
        std::process::exit(STATUS)
    }
}
