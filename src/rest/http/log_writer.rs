//! What the server says on standard error: lines that wait in memory until a thread of its own has written them.
//!
//! Invariants
//! * whoever has something to say neither waits for those who read it nor fails without them, also if it is a panic;
//! * what waits is bounded; lines that find no room, and lines that cannot be written, are lost and counted;
//! * lines come out in the order in which they were said, and none begins in the middle of another one;
//! * the process does not end before what was said is written, unless that takes too long.
//!
//! Not here: what is said (`service`, `server`, the engine's events).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

use tracing::Level;

use crate::sync::{Condvar, Mutex};

/// Bytes that may wait; as many again may be about to be written.
const BYTES_MAX: usize = 1 << 20;
/// From one write to the next, unless much waits: what is said meanwhile goes out together, and wakes nobody.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the end of the process waits at the most.
const END_TIME: Duration = Duration::from_secs(1);

/// What goes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing
    Off,
    /// What is wrong with the server itself
    Problems,
    /// Also a line for each request
    Requests,
    /// Also connections that end early
    Connections,
}

/// The log of a server; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// For the thread that writes.
    more: Condvar,
    /// For whoever ends the process.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines that wait.
    text: Vec<u8>,
    /// The thread has lines that waited before.
    is_writing: bool,
    /// The thread sleeps until there is something to write.
    sleeps: bool,
    is_ending: bool,
    lost: u64,
}

/// Where lines go.
struct Sink<W> {
    out: W,
    /// The last line has no end.
    is_torn: bool,
}

impl Journal {
    /// Writes to standard error, and takes what subscribers of `tracing` are told from `level` on.
    ///
    /// # Errors
    /// No thread.
    pub(crate) fn start(level: LogLevel) -> io::Result<Self> {
        let journal = Journal::default();
        let writing = journal.clone();
        let sink = Sink { out: io::stderr(), is_torn: false };
        let thread = std::thread::Builder::new().name("rowstone-journal".into());
        drop(thread.spawn(move || writing.keep_writing(sink))?);
        journal.say_panics();
        journal.take_events(level);
        Ok(journal)
    }

    fn take_events(&self, level: LogLevel) {
        let level = match level {
            LogLevel::Off => return,
            LogLevel::Problems => Level::WARN,
            LogLevel::Requests => Level::INFO,
            LogLevel::Connections => Level::DEBUG,
        };
        let journal = self.clone();
        let log = tracing_subscriber::fmt().json().with_max_level(level);
        // What reports such errors panics where standard error is closed.
        let log = log.log_internal_errors(false).with_writer(move || journal.clone());
        // A second server in one process logs where the first does.
        drop(log.try_init());
    }

    /// A panic is said here, too: the library's own message would wait for whoever reads it.
    fn say_panics(&self) {
        let journal = self.clone();
        std::panic::set_hook(Box::new(move |panic| {
            let trace = Backtrace::capture();
            let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
            if tracing::enabled!(Level::ERROR) {
                tracing::error!(%panic, trace, "a panic");
            } else {
                journal.say(&format!("{panic}\n{}", trace.unwrap_or_default()));
            }
        }));
    }

    /// Says a line, for people.
    pub(crate) fn say(&self, line: &str) {
        self.push(format!("{line}\n").as_bytes());
    }

    /// Lines that nobody will see.
    pub(crate) fn lost(&self) -> u64 {
        self.0.state.lock().lost
    }

    /// Waits until what was said is written, or until that takes too long.
    pub(crate) fn end(&self) {
        let mut state = self.0.state.lock();
        state.is_ending = true;
        self.0.more.notify_one();
        if state.is_writing || !state.text.is_empty() {
            self.0.idle.wait_for(&mut state, END_TIME);
        }
    }

    fn push(&self, line: &[u8]) {
        let is_awaited = {
            let mut state = self.0.state.lock();
            if state.text.len() + line.len() > BYTES_MAX {
                state.lost += 1;
                return;
            }
            state.text.extend_from_slice(line);
            std::mem::take(&mut state.sleeps) || !state.has_room()
        };
        if is_awaited {
            self.0.more.notify_one();
        }
    }

    /// What the thread does, as long as there is a process.
    fn keep_writing(&self, mut sink: Sink<impl Write>) {
        let (mut text, mut told) = (Vec::new(), 0);
        loop {
            self.take(&mut text);
            let lost = sink.put(&text);
            let (all, has_room) = self.wrote(lost);
            if lost == 0 && has_room && all > told {
                tracing::warn!(lost = all - told, "lines of the log were lost");
                told = all;
            }
        }
    }

    /// Waits for lines, and takes all that there are.
    fn take(&self, text: &mut Vec<u8>) {
        text.clear();
        let mut state = self.0.state.lock();
        while state.text.is_empty() {
            state.sleeps = true;
            self.0.more.wait(&mut state);
        }
        state.sleeps = false;
        std::mem::swap(&mut state.text, text);
        state.is_writing = true;
    }

    /// Lines were written, but for some; gives how many were lost up to now, and whether there is room for more.
    fn wrote(&self, lost: u64) -> (u64, bool) {
        let mut state = self.0.state.lock();
        state.lost += lost;
        state.is_writing = false;
        if state.text.is_empty() {
            self.0.idle.notify_all();
        }
        if !state.is_ending && state.has_room() {
            self.0.more.wait_for(&mut state, PAUSE);
        }
        (state.lost, state.has_room())
    }
}

impl State {
    /// Writing need not hurry.
    fn has_room(&self) -> bool {
        self.text.len() <= BYTES_MAX / 2
    }
}

/// Each write is one line or more, whole.
impl Write for Journal {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.push(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Sink<W> {
    /// Writes lines; gives how many of them are not written to their end.
    fn put(&mut self, lines: &[u8]) -> u64 {
        if self.is_torn && self.write(b"\n") == 1 {
            self.is_torn = false;
        }
        let written = if self.is_torn { 0 } else { self.write(lines) };
        let (before, rest) = lines.split_at(written);
        self.is_torn |= before.last().is_some_and(|last| *last != b'\n');
        rest.iter().filter(|byte| **byte == b'\n').count() as u64
    }

    /// Writes what can be written, and gives how much that is.
    fn write(&mut self, text: &[u8]) -> usize {
        let mut written = 0;
        while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
            match self.out.write(rest) {
                Ok(0) => break,
                Ok(len) => written += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // There is nobody to be told.
                Err(_) => break,
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, then nothing.
    struct Disk {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let taken = text.len().min(self.room);
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.text.extend_from_slice(&text[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_find_no_room_are_counted() {
        let mut journal = Journal::default();
        let line = [b'x'; 1 << 10];
        for _ in 0..BYTES_MAX / line.len() {
            journal.write_all(&line).unwrap();
        }
        assert_eq!(journal.lost(), 0);
        journal.write_all(b"\n").unwrap();
        assert_eq!(journal.lost(), 1);
        let mut taken = Vec::new();
        journal.take(&mut taken);
        assert_eq!(taken.len(), BYTES_MAX);
        journal.say("again");
        assert_eq!(journal.lost(), 1, "there is room again");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_none_begins_in_another() {
        let mut sink = Sink { out: Disk { text: Vec::new(), room: 6 }, is_torn: false };
        assert_eq!(sink.put(b"one\ntwo\nthree\n"), 2);
        assert_eq!(sink.put(b"four\n"), 1);
        sink.out.room = 100;
        assert_eq!(sink.put(b"five\n"), 0);
        sink.out.room = 4;
        assert_eq!(sink.put(b"six\nseven\n"), 1);
        sink.out.room = 100;
        assert_eq!(sink.put(b"eight\n"), 0);
        assert_eq!(sink.out.text, b"one\ntw\nfive\nsix\neight\n");
    }
}
