//! Waits for changes of the files in a directory, with Linux's inotify.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

use crate::fs::Watch;
use crate::fs::complete::retry;

/// The events of one directory, queued from the time when this was created.
#[derive(Debug)]
pub(super) struct DirWatch {
    queue: OwnedFd,
}

impl DirWatch {
    pub(super) fn new(dir: &Path) -> io::Result<Self> {
        let queue = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let kinds = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        add_watch(&queue, dir, kinds)?;
        Ok(Self { queue })
    }

    /// Removes all queued events. The kernel counts a full queue as an event too, so none is lost
    /// without a trace.
    fn drain(&self) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4_096];
        let mut events = Reader::new(&self.queue, &mut buffer);
        loop {
            match events.next() {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Watch for DirWatch {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.queue, PollFlags::IN)];
        let at_most = Timespec::try_from(at_most).ok();
        // After an interruption the whole time is waited again, which only delays the return.
        let is_changed = retry(|| Ok(poll(&mut polled, at_most.as_ref())?))? > 0;
        if is_changed {
            self.drain()?;
        }
        Ok(is_changed)
    }
}
