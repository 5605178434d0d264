//! Logs to standard error through a queue, which a thread of `tracing-appender` writes. Bounds the
//! bytes that wait to be written, counts lost lines, and logs panics. Events are lines for people
//! (`log_format`) on a terminal, and JSON elsewhere.
//!
//! Invariants
//! * logging, also of a panic, neither waits for a reader of standard error nor needs one;
//! * at most [`BYTES_MAX`] bytes wait; further lines, and lines that cannot be written, are lost
//!   and counted;
//! * lines are written in order, and none begins in the middle of another one;
//! * no line has a key or a signature of an account, unless it is written `verbatim`.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Arc;

use tracing::{Level, Subscriber};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

use crate::codec::printable::{message, without_secrets};
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

use super::log_format::ForPeople;

/// The maximum number of bytes that wait to be written. A line counts as at least
/// [`LINE_BYTES_MIN`] bytes, which bounds the number of lines, too.
const BYTES_MAX: usize = 1 << 20;
const LINE_BYTES_MIN: usize = 128;

/// Which events are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing
    Off,
    /// Problems of the server itself
    Problems,
    /// Also a line for each request
    Requests,
    /// Also connections that end early
    Connections,
}

/// The log of a server; clones write to the same log.
#[derive(Clone, Debug)]
pub(crate) struct LogWriter {
    queue: NonBlocking,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    waiting_bytes: AtomicUsize,
    lost_lines: AtomicU64,
}

/// The receiving end of the log's queue, which the writing thread owns.
struct Sink<W> {
    out: W,
    counts: Arc<Counts>,
    /// Whether the last line was written only in part, because of an error.
    is_torn: bool,
    /// How many of the lost lines have been reported in the log.
    reported: u64,
}

impl LogWriter {
    /// Starts the log: lines are written to standard error, including `tracing` events of `level`
    /// or more severe. Dropping the guard waits until the lines are written, for at most 1 s.
    pub(crate) fn start(level: LogLevel) -> (Self, WorkerGuard) {
        let counts = Arc::new(Counts::default());
        let (log, guard) = LogWriter::new(Sink::new(io::stderr(), Arc::clone(&counts)), counts);
        log.log_panics();
        log.subscribe(level, io::stderr().is_terminal());
        (log, guard)
    }

    fn new(sink: Sink<impl Write + Send + 'static>, counts: Arc<Counts>) -> (Self, WorkerGuard) {
        let (queue, guard) = NonBlockingBuilder::default()
            // One more line than can wait, for the message that ends the writing thread.
            .buffered_lines_limit(BYTES_MAX / LINE_BYTES_MIN + 1)
            .lossy(false)
            .thread_name("rowstone-serve-log")
            .finish(sink);
        (LogWriter { queue, counts }, guard)
    }

    fn subscribe(&self, level: LogLevel, is_terminal: bool) {
        let level = match level {
            LogLevel::Off => return,
            LogLevel::Problems => Level::WARN,
            LogLevel::Requests => Level::INFO,
            LogLevel::Connections => Level::DEBUG,
        };
        let writer = self.clone();
        let log = subscriber(level, is_terminal, move || writer.clone());
        // This fails for a second server in the process. Its events are then written to the log of
        // the first server.
        drop(tracing::subscriber::set_global_default(log));
    }

    /// Logs panics, too. The standard library's message would block if nothing reads standard
    /// error.
    fn log_panics(&self) {
        let log = self.clone();
        std::panic::set_hook(Box::new(move |panic| {
            let trace = Backtrace::capture();
            let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
            if tracing::enabled!(Level::ERROR) {
                tracing::error!(%panic, trace, "a panic");
            } else {
                log.line(&format!("{panic}\n{}", trace.unwrap_or_default()));
            }
        }));
    }

    /// Writes a line of plain text.
    pub(crate) fn line(&self, line: &str) {
        self.verbatim(&message(line));
    }

    /// Writes a line as it is.
    pub(crate) fn verbatim(&self, line: &str) {
        self.push(format!("{line}\n").as_bytes());
    }

    /// Returns the number of lost lines.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.counts.lost_lines.load(Ordering::Relaxed)
    }

    fn push(&self, line: &[u8]) {
        let bytes = line.len().max(LINE_BYTES_MIN);
        let waiting = self.counts.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // The queue has room for all lines that may wait, so the write neither loses the line nor
        // blocks the caller.
        if waiting > BYTES_MAX || self.queue.clone().write_all(line).is_err() {
            self.counts.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.lost_lines.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the subscriber that writes events as lines to `writer`.
fn subscriber(
    level: Level,
    is_terminal: bool,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> Box<dyn Subscriber + Send + Sync> {
    let log = tracing_subscriber::fmt().with_max_level(level);
    // If this were enabled, `tracing` would report an error of the log to standard error, and panic
    // if that is closed.
    let log = log.log_internal_errors(false).with_writer(writer);
    match is_terminal {
        true => Box::new(log.event_format(ForPeople).finish()),
        false => Box::new(log.json().finish()),
    }
}

/// Each call of `write` must pass whole lines.
impl Write for LogWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.push(without_secrets(&String::from_utf8_lossy(lines)).as_bytes());
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Sink<W> {
    fn new(out: W, counts: Arc<Counts>) -> Self {
        Sink { out, counts, is_torn: false, reported: 0 }
    }

    /// Writes a line. Returns false if it was not written completely.
    fn put(&mut self, line: &[u8]) -> bool {
        if self.is_torn && self.put_all(b"\n") == 1 {
            self.is_torn = false;
        }
        let written = if self.is_torn { 0 } else { self.put_all(line) };
        self.is_torn |= (1..line.len()).contains(&written);
        written == line.len()
    }

    /// Writes as much as possible; returns the number of bytes written.
    fn put_all(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.out.write(rest) {
                Ok(0) => break,
                Ok(len) => written += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // An error of the log cannot be reported anywhere.
                Err(_) => break,
            }
        }
        written
    }
}

/// Never fails: a line that cannot be written is counted.
impl<W: Write> Write for Sink<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_written = self.put(line);
        let lost = self.counts.lost_lines.fetch_add(u64::from(!is_written), Ordering::Relaxed);
        let bytes = line.len().max(LINE_BYTES_MIN);
        let waiting = self.counts.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        if is_written && lost > self.reported && waiting <= BYTES_MAX / 2 {
            tracing::warn!(lost = lost - self.reported, "lines of the log were lost");
            self.reported = lost;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::sync::Mutex;

    /// A writer that accepts `room` bytes and then fails.
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

    /// A writer that blocks at its first line until the barrier opens.
    struct Blocked {
        barrier: Arc<Barrier>,
        bytes: Arc<Mutex<usize>>,
    }

    impl Write for Blocked {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            if *self.bytes.lock() == 0 {
                self.barrier.wait();
            }
            *self.bytes.lock() += text.len();
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Clone, Default)]
    struct Shown(Arc<Mutex<Vec<u8>>>);

    impl Write for Shown {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log of some events, without the time that begins the lines for people.
    fn logged(is_terminal: bool) -> Vec<String> {
        let shown = Shown::default();
        let writer = shown.clone();
        let log = subscriber(Level::INFO, is_terminal, move || writer.clone());
        tracing::subscriber::with_default(log, || {
            let (id, path, code) = ("7c3f", "/acme/people(\u{1b}[31m", "TableNotFound");
            let micros = 1_234_u64;
            tracing::info!(request = %id, method = "GET", path, status = 404, code, micros, "request");
            tracing::info!(method = "GET", path = "/", status = 200, code = "", "request");
            tracing::warn!(why = "two\nlines", files = 7, "trouble");
            tracing::info!(event = "opened", db = "shop", torn = "", orphans = 0);
            tracing::debug!("not logged");
        });
        let text = String::from_utf8(shown.0.lock().clone()).unwrap();
        let shown = |line: &str| match is_terminal {
            true => {
                assert_eq!(line.find('Z'), Some("04:05:06".len()), "{line}");
                line[9..].to_owned()
            }
            false => line.to_owned(),
        };
        text.lines().map(shown).collect()
    }

    #[test]
    fn events_are_lines_for_people_on_a_terminal_and_json_elsewhere() {
        let lines = [
            " GET /acme/people(\\u{1b}[31m 404 TableNotFound 1.2 ms",
            " GET / 200 0.0 ms",
            " WARN trouble why=two\\nlines files=7",
            " event=opened db=shop orphans=0",
        ];
        assert_eq!(logged(true), lines);
        let lines = logged(false);
        assert_eq!(lines.len(), 4);
        let first: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((&first["fields"]["status"], &first["level"]), (&404.into(), &"INFO".into()));
    }

    #[test]
    fn lines_that_exceed_the_queue_are_counted() {
        let (barrier, bytes) = (Arc::new(Barrier::new(2)), Arc::default());
        let out = Blocked { barrier: Arc::clone(&barrier), bytes: Arc::clone(&bytes) };
        let counts = Arc::new(Counts::default());
        let (mut log, guard) = LogWriter::new(Sink::new(out, Arc::clone(&counts)), counts);
        let line = [b'x'; 1 << 10];
        for _ in 0..BYTES_MAX / line.len() {
            log.write_all(&line).unwrap();
        }
        assert_eq!(log.lost_lines(), 0);
        // The limit is reached, so even a short line is lost.
        log.write_all(b"\n").unwrap();
        assert_eq!(log.lost_lines(), 1);
        barrier.wait();
        drop(guard);
        assert_eq!((*bytes.lock(), log.lost_lines()), (BYTES_MAX, 1));
    }

    #[test]
    fn short_lines_are_limited_in_number() {
        let (barrier, bytes) = (Arc::new(Barrier::new(2)), Arc::default());
        let out = Blocked { barrier: Arc::clone(&barrier), bytes: Arc::clone(&bytes) };
        let counts = Arc::new(Counts::default());
        let (log, guard) = LogWriter::new(Sink::new(out, Arc::clone(&counts)), counts);
        let lines = BYTES_MAX / LINE_BYTES_MIN;
        (0..lines + 7).for_each(|_| log.line(""));
        assert_eq!(log.lost_lines(), 7);
        barrier.wait();
        drop(guard);
        assert_eq!(*bytes.lock(), lines);
    }

    #[test]
    fn unwritable_lines_are_counted_and_no_line_starts_inside_another() {
        let counts = Arc::new(Counts::default());
        counts.waiting_bytes.store(BYTES_MAX, Ordering::Relaxed);
        let disk = Disk { text: Vec::new(), room: 6 };
        let mut sink = Sink::new(disk, Arc::clone(&counts));
        let mut put = |room: Option<usize>, line: &str| {
            sink.out.room = room.unwrap_or(sink.out.room);
            sink.write_all(line.as_bytes()).unwrap();
            counts.lost_lines.load(Ordering::Relaxed)
        };
        assert_eq!([put(None, "one\n"), put(None, "two\n"), put(None, "three\n")], [0, 1, 2]);
        assert_eq!(put(None, "four\n"), 3);
        assert_eq!(put(Some(100), "five\n"), 3);
        assert_eq!([put(Some(4), "six\n"), put(None, "seven\n")], [3, 4]);
        assert_eq!(put(Some(100), "eight\n"), 4);
        assert_eq!(sink.out.text, b"one\ntw\nfive\nsix\neight\n");
    }
}
