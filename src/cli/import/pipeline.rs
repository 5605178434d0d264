//! Parses an input on one thread and loads it on another. Bounded channels connect the threads.
//!
//! ```text
//! read, unpack, spool → | chunks | → infer types        first reading of a CSV file
//! read, parse, convert → | batches | → load             second reading of CSV, only one of NDJSON
//! ```
//!
//! Invariants
//! * at most [`QUEUED`] chunks or batches wait in a channel;
//! * when one of the two threads ends early, the other ends too.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::cli::failure::{Failure, Outcome};
use crate::cli::files::Spool;
use crate::cli::interrupt::Interrupt;
use crate::error::Result;
use crate::model::Entity;

const CHUNK_BYTES: usize = 256 << 10;
const BATCH_ROWS: usize = 512;
const QUEUED: usize = 4;
/// The time after which a wait for rows looks for Ctrl-C.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A parsed row: the number of its first line or of its element, and its entity or the error.
pub(super) type Parsed = (u64, Result<Entity>);

/// Rows to be sent to the loader.
pub(super) struct Batches {
    batch: Vec<Parsed>,
    sender: SyncSender<io::Result<Vec<Parsed>>>,
}

/// Reads the chunks that another thread sends.
struct Chunks {
    receiver: Receiver<io::Result<Vec<u8>>>,
    chunk: Cursor<Vec<u8>>,
}

/// Calls `consume` with a reader of `source`. Another thread reads `source` ahead, and copies the
/// whole input to `spool`.
pub(super) fn read_ahead<T>(
    source: Box<dyn Read + Send>,
    spool: Option<&mut Spool>,
    consume: impl FnOnce(&mut dyn Read) -> Outcome<T>,
) -> Outcome<T> {
    let (sender, receiver) = sync_channel(QUEUED);
    beside(
        move || read_chunks(source, spool, &sender),
        move || consume(&mut Chunks { receiver, chunk: Cursor::default() }),
    )
}

/// Calls `consume` with a receiver of the rows that `parse` produces on another thread.
pub(super) fn parse_beside<T>(
    parse: impl FnOnce(&mut Batches) -> io::Result<()> + Send,
    consume: impl FnOnce(Receiver<io::Result<Vec<Parsed>>>) -> Outcome<T>,
) -> Outcome<T> {
    let (sender, receiver) = sync_channel(QUEUED);
    let work = move || {
        let mut batches = Batches { batch: Vec::new(), sender };
        let parsed = parse(&mut batches);
        // Sends the rows that were parsed before an error, then the error. If the receiver is gone,
        // the error is dropped.
        let heard = batches.flush();
        if let (true, Err(error)) = (heard, parsed) {
            drop(batches.sender.send(Err(error)));
        }
    };
    beside(work, move || consume(receiver))
}

/// Waits for rows. Returns `None` at the end of the input, or when Ctrl-C is pressed.
pub(super) fn next_batch(
    batches: &Receiver<io::Result<Vec<Parsed>>>,
    interrupt: &Interrupt,
) -> Option<io::Result<Vec<Parsed>>> {
    while !interrupt.is_raised() {
        match batches.recv_timeout(LOOK_AGAIN) {
            Err(RecvTimeoutError::Timeout) => {}
            received => return received.ok(),
        }
    }
    None
}

impl Batches {
    /// Adds a row. Returns false if the receiver is gone.
    pub(super) fn push(&mut self, line: u64, row: Result<Entity>) -> bool {
        self.batch.push((line, row));
        self.batch.len() < BATCH_ROWS || self.flush()
    }

    fn flush(&mut self) -> bool {
        let next = Vec::with_capacity(BATCH_ROWS);
        self.sender.send(Ok(std::mem::replace(&mut self.batch, next))).is_ok()
    }
}

/// Runs `work` on a new thread while the current one runs `here`.
fn beside<T>(work: impl FnOnce() + Send, here: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("rowstone-parse".into());
        match thread.spawn_scoped(scope, work) {
            Ok(_) => here(),
            Err(error) => Err(Failure::Other(format!("cannot start a thread: {error}"))),
        }
    })
}

fn read_chunks(
    mut source: Box<dyn Read + Send>,
    mut spool: Option<&mut Spool>,
    sender: &SyncSender<io::Result<Vec<u8>>>,
) {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let read = source.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
        let read = read.and_then(|_| spool.as_mut().map_or(Ok(()), |spool| spool.write(&chunk)));
        let last = read.is_err() || chunk.is_empty();
        if sender.send(read.map(|()| chunk)).is_err() || last {
            return;
        }
    }
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.position() == self.chunk.get_ref().len() as u64 {
            // At the end of its source, the other thread disconnects without a last message.
            let next = self.receiver.recv().unwrap_or_else(|_| Ok(Vec::new()))?;
            self.chunk = Cursor::new(next);
        }
        self.chunk.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ahead_returns_and_spools_every_byte() {
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES + 17).map(|i| (i % 251) as u8).collect();
        let mut spool = Spool::create().unwrap();
        let read =
            read_ahead(Box::new(io::Cursor::new(bytes.clone())), Some(&mut spool), |source| {
                let mut read = Vec::new();
                source.read_to_end(&mut read).unwrap();
                Ok(read)
            });
        assert!(read.unwrap() == bytes);
        let mut spooled = Vec::new();
        spool.rewind().unwrap().read_to_end(&mut spooled).unwrap();
        assert!(spooled == bytes);
    }

    #[test]
    fn an_early_end_on_either_side_ends_both() {
        let endless = Box::new(io::repeat(b'x'));
        read_ahead(endless, None, |source| Ok(source.read(&mut [0; 10]).unwrap())).unwrap();
        let parse = |batches: &mut Batches| {
            while batches.push(1, Ok(Entity::new("p", "r"))) {}
            Ok(())
        };
        parse_beside(parse, |rows| Ok(rows.recv().unwrap().unwrap().len())).unwrap();
        let broken = |_: &mut Batches| Err(io::ErrorKind::UnexpectedEof.into());
        let failed = parse_beside(broken, |rows| Ok(rows.iter().any(|batch| batch.is_err())));
        assert!(failed.unwrap());
    }
}
