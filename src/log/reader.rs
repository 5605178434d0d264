//! Reads a record file up to the first bad record, and collects the durable offsets that later
//! headers state. The place where reading ends is called the *stop*.
//!
//! Invariants
//! * at most one window of the file is in memory; only a record longer than the window enlarges it;
//! * no record after the stop is returned, even if it verifies.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::DecodeError;
use crate::error::{Error, ErrorKind, Result};
use crate::format::names::FileId;
use crate::format::record::{
    LOG_HEADER_BYTES, LogHeader, LogKind, Position, RECORD_ALIGN, RECORD_HEADER_BYTES,
    RecordHeader, RecordKind, decode_header, may_be_header,
};
use crate::fs::{FileRead, Fs};
use crate::model::Seq;

/// The size of a read, in bytes. Only a longer record enlarges the window.
const WINDOW_BYTES: usize = 256 << 10;
/// The size of the first read, in bytes: the file's header and usually the first record.
const FIRST_BYTES: u64 = 4 << 10;
/// The size of a read beyond the first bad record, in bytes. Most of these bytes are zeros, so a
/// larger buffer gains nothing.
const REST_BYTES: usize = 16 << 10;
const ZEROS: [u8; RECORD_HEADER_BYTES] = [0; RECORD_HEADER_BYTES];

/// Reads one record file from front to back.
///
/// 1. Verify the file's header. A damaged header is corruption, because the header was durable
///    before the file was named.
/// 2. Return records while header and payload verify. Stop at the first record of which either is
///    invalid.
/// 3. On request, scan the bytes after the stop, at multiples of 8, for verified headers. If the
///    highest durable offset among them is beyond the stop, the bad record is damage; otherwise it
///    is a torn tail.
#[derive(Debug)]
pub(crate) struct LogReader {
    path: PathBuf,
    file: Arc<dyn FileRead>,
    header: LogHeader,
    file_len: u64,
    /// The offset of the next record.
    offset: u64,
    /// The offset at which the records end, as stated by the first record of the next log.
    accepted_end: Option<u64>,
    window: Vec<u8>,
    window_start: u64,
    stop: Option<StopReason>,
}

/// One verified record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordView<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) seq: Seq,
    pub(crate) durable_up_to: Position,
    /// The offset of the record's header in the file.
    pub(crate) offset: u64,
    pub(crate) payload: &'a [u8],
}

impl RecordView<'_> {
    /// Returns the byte range of the record in the file.
    pub(crate) fn bytes(&self) -> Range<u64> {
        let end = self.payload_offset() + self.payload.len() as u64;
        self.offset..end.next_multiple_of(RECORD_ALIGN as u64)
    }

    /// Returns the offset of the payload in the file.
    pub(crate) fn payload_offset(&self) -> u64 {
        self.offset + RECORD_HEADER_BYTES as u64
    }
}

/// Why reading stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// Reading reached the end given to [`LogReader::until`].
    Accepted,
    /// The file ends after the last record that was read.
    EndOfFile,
    /// The next header is zeros: the space was allocated but not yet written.
    Zeros,
    /// The bytes are not a valid record. The error's offset is relative to the stop.
    Bad(DecodeError),
}

/// A summary of the bytes between the stop and the end of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remainder {
    /// The number of bytes up to the last byte that is not zero.
    pub(crate) bytes: u64,
    /// The number of verified headers.
    pub(crate) headers: u64,
    /// The highest durable offset in these headers.
    pub(crate) durable_up_to: Option<Position>,
}

impl Remainder {
    /// Whether all bytes after the stop are zeros.
    pub(crate) fn is_zero(self) -> bool {
        self.bytes == 0
    }
}

impl LogReader {
    /// Opens `path`, and verifies its header and, if given, its `id`.
    ///
    /// # Errors
    /// `Corruption` for a missing file and for a damaged or unexpected header, `Unsupported` for a
    /// header of a newer format, `Io` if the file cannot be read.
    pub(crate) fn open(
        fs: &dyn Fs,
        path: &Path,
        kind: LogKind,
        id: Option<FileId>,
    ) -> Result<LogReader> {
        let doing = |error| Error::io(format!("open {}", path.display()), error);
        let file = fs.open_read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::corrupt(path, 0, "log", "another file names it, and it is missing")
            }
            _ => doing(error),
        })?;
        let file_len = file.len().map_err(doing)?;
        let mut window = vec![0; usize_of(file_len.min(FIRST_BYTES))];
        read_with_room(&*file, 0, &mut window).map_err(doing)?;
        let Some(bytes) = window.first_chunk::<LOG_HEADER_BYTES>() else {
            let problem = format!("the file ends at byte {file_len}");
            return Err(Error::corrupt(path, 0, "log header", problem));
        };
        let header = LogHeader::decode(bytes).map_err(|e| e.into_error(path, 0))?;
        if header.kind != kind {
            return Err(Error::corrupt(path, 32, "log header", "another kind of file"));
        }
        let reader = LogReader {
            path: path.to_owned(),
            file,
            header,
            file_len,
            offset: LOG_HEADER_BYTES as u64,
            accepted_end: None,
            window,
            window_start: 0,
            stop: None,
        };
        id.map_or(Ok(()), |id| reader.check_id(id))?;
        Ok(reader)
    }

    /// Restarts at the first record of the same file, after checking its `id`.
    ///
    /// # Errors
    /// `Corruption` if the file has another id.
    pub(crate) fn again(self, id: FileId) -> Result<Self> {
        self.check_id(id)?;
        Ok(Self { offset: LOG_HEADER_BYTES as u64, accepted_end: None, stop: None, ..self })
    }

    fn check_id(&self, id: FileId) -> Result<()> {
        let found = self.header.id;
        if found == id {
            return Ok(());
        }
        let problem = format!("file id {:016x}, expected {:016x}", found.0, id.0);
        Err(Error::corrupt(&self.path, 24, "log header", problem))
    }

    /// Ends reading at `end`, where the records end according to the next log. If reading stops
    /// before `end`, the caller reports damage if a durable offset is beyond the stop, and a torn
    /// tail otherwise.
    pub(crate) fn until(mut self, end: u64) -> Self {
        self.accepted_end = Some(end);
        self
    }

    /// Continues reading at `offset`, which must be the start of a record.
    pub(crate) fn starting_at(self, offset: u64) -> Self {
        debug_assert!(offset >= LOG_HEADER_BYTES as u64, "records follow the header");
        Self { offset, ..self }
    }

    pub(crate) fn header(&self) -> LogHeader {
        self.header
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the offset of the next record or, after the stop, the end of the last record read.
    pub(crate) fn position(&self) -> Position {
        Position { file: self.header.number, offset: self.offset }
    }

    /// The length of the file when it was opened.
    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    pub(super) fn accepted_end(&self) -> Option<u64> {
        self.accepted_end
    }

    /// Returns the reason why reading stopped at [`position`](Self::position), or `None` if it has
    /// not stopped.
    pub(crate) fn stop(&self) -> Option<&StopReason> {
        self.stop.as_ref()
    }

    /// Describes the stop reason for error messages.
    pub(crate) fn stop_text(&self) -> String {
        match &self.stop {
            Some(StopReason::Bad(error)) => error.to_string(),
            _ => "the records end here".to_owned(),
        }
    }

    /// Returns the next record, or `None` if reading has stopped.
    ///
    /// # Errors
    /// `Unsupported` for a record of an unknown kind that must be understood, `Io` if the file
    /// cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<RecordView<'_>>> {
        while self.stop.is_none() {
            let offset = self.offset;
            let header = match self.read_record()? {
                Ok(header) => header,
                Err(reason) => {
                    self.stop = Some(reason);
                    break;
                }
            };
            let start = usize_of(offset - self.window_start) + RECORD_HEADER_BYTES;
            self.offset = offset + (RECORD_HEADER_BYTES + header.stored_len()) as u64;
            debug_assert!(self.offset <= self.file_len, "a record ends inside the file");
            match header.kind() {
                Ok(kind) => {
                    return Ok(Some(RecordView {
                        kind,
                        seq: header.seq,
                        durable_up_to: header.durable_up_to,
                        offset,
                        payload: &self.window[start..start + header.payload_len()],
                    }));
                }
                Err(code) if header.must_understand() => {
                    let path = self.path.display();
                    let problem = format!("{path} needs record kind {code} of a newer format");
                    return Err(Error::new(ErrorKind::Unsupported, problem));
                }
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Continues at the next valid record after the stop, ignoring an accepted end. Returns false
    /// if no valid record follows. The skipped bytes may have contained records, so this is only
    /// for callers that interpret each record independently.
    ///
    /// Requires: reading has stopped.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn skip_damage(&mut self) -> Result<bool> {
        debug_assert!(self.stop.is_some(), "damage is skipped at the stop");
        self.accepted_end = None;
        let mut at = self.offset.next_multiple_of(RECORD_ALIGN as u64);
        while at + RECORD_HEADER_BYTES as u64 <= self.file_len {
            let (_, headers, next) = self.look(at, WINDOW_BYTES)?;
            for header in headers {
                self.offset = header;
                if self.read_record()?.is_ok() {
                    self.stop = None;
                    return Ok(true);
                }
            }
            at = next;
        }
        self.offset = self.file_len;
        Ok(false)
    }

    /// Scans all bytes after the stop for headers.
    ///
    /// Requires: reading has stopped.
    pub(crate) fn rest(&mut self) -> Result<Remainder> {
        debug_assert!(self.stop.is_some(), "what follows the stop is known at the stop");
        let mut rest = Remainder::default();
        let mut at = self.offset;
        while at < self.file_len {
            let (end, headers, next) = self.look(at, REST_BYTES)?;
            rest.bytes = end.map_or(rest.bytes, |end| end - self.offset);
            let LogHeader { number: file, id, .. } = self.header;
            for offset in headers {
                let raw = self.load(offset, RECORD_HEADER_BYTES, 0)?.first_chunk();
                let position = Position { file, offset };
                if let Some(Ok(header)) = raw.map(|raw| decode_header(raw, position, id)) {
                    rest.headers += 1;
                    rest.durable_up_to = rest.durable_up_to.max(Some(header.durable_up_to));
                }
            }
            at = next;
        }
        Ok(rest)
    }

    /// Loads the piece of the file at `at`, of at most `most` bytes. Returns the end of the last
    /// byte that is not zero (`None` if all are zeros), the offsets of possible headers, and the
    /// start of the next piece. After zeros, the next piece starts behind the hole of the file that
    /// may follow: such a hole can be much larger than the disk.
    fn look(&mut self, at: u64, most: usize) -> Result<(Option<u64>, Vec<u64>, u64)> {
        debug_assert!(at <= self.file_len, "a piece begins inside the file");
        let len = (most as u64).min(self.file_len - at);
        let id = self.header.id;
        let bytes = self.load(at, usize_of(len), 0)?;
        let is_zero = is_zero(bytes);
        let bytes = if is_zero { &[] } else { bytes };
        let end = bytes.iter().rposition(|byte| *byte != 0).map(|last| at + last as u64 + 1);
        let places = bytes.windows(RECORD_HEADER_BYTES).enumerate().step_by(RECORD_ALIGN);
        let headers = places
            .filter(|(_, w)| w.first_chunk().is_some_and(|header| may_be_header(header, id)))
            .map(|(i, _)| at + i as u64)
            .collect();
        // A header may straddle two pieces, so the next piece starts 8 bytes after the last
        // possible header of this one.
        let overlap = (RECORD_HEADER_BYTES - RECORD_ALIGN) as u64;
        let mut next = at + if len == most as u64 { len - overlap } else { len };
        debug_assert!(next > at || len == 0, "a scan of pieces moves on");
        if is_zero && next < self.file_len {
            let data = self.file.next_data(next).min(self.file_len);
            let hole = data.saturating_sub(overlap).saturating_sub(next);
            next += hole - hole % RECORD_ALIGN as u64;
        }
        Ok((end, headers, next))
    }

    /// Loads the whole record at `self.offset` into the window, or returns why no record can be
    /// read.
    fn read_record(&mut self) -> Result<Result<RecordHeader, StopReason>> {
        let at = self.position();
        if self.accepted_end == Some(at.offset) {
            return Ok(Err(StopReason::Accepted));
        }
        let end = self.accepted_end.unwrap_or(u64::MAX).min(self.file_len);
        let left = end.saturating_sub(at.offset);
        if left == 0 {
            return Ok(Err(StopReason::EndOfFile));
        }
        if left < RECORD_HEADER_BYTES as u64 {
            let problem = format!("{left} bytes left");
            return Ok(Err(bad("record header", problem)));
        }
        let id = self.header.id;
        let bytes = self.load(at.offset, RECORD_HEADER_BYTES, WINDOW_BYTES)?;
        let Some(raw) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(Err(bad("record header", "cut short")));
        };
        if *raw == ZEROS {
            return Ok(Err(StopReason::Zeros));
        }
        let header = match decode_header(raw, at, id) {
            Ok(header) => header,
            Err(error) => return Ok(Err(StopReason::Bad(error))),
        };
        let whole = RECORD_HEADER_BYTES + header.stored_len();
        if whole as u64 > left {
            let problem = format!("{whole} bytes long, {left} left");
            return Ok(Err(bad("record", problem)));
        }
        let bytes = self.load(at.offset, whole, WINDOW_BYTES)?;
        match header.payload(bytes.get(RECORD_HEADER_BYTES..).unwrap_or_default()) {
            Ok(_) => Ok(Ok(header)),
            Err(mut error) => {
                error.at += RECORD_HEADER_BYTES;
                Ok(Err(StopReason::Bad(error)))
            }
        }
    }

    /// Returns `len` bytes at `offset`, which must be inside the file. If they are not in memory,
    /// reads at least `window` bytes.
    fn load(&mut self, offset: u64, len: usize, window: usize) -> Result<&[u8]> {
        debug_assert!(offset + len as u64 <= self.file_len, "only bytes of the file are loaded");
        let inside = offset.checked_sub(self.window_start).map(usize_of);
        let held = inside
            .filter(|start| start.checked_add(len).is_some_and(|end| end <= self.window.len()));
        let start = match held {
            Some(start) => start,
            None => {
                let left = self.file_len.saturating_sub(offset);
                let want = usize_of((len.max(window) as u64).min(left));
                // The old contents are not needed, so allocate a zeroed window of the new size,
                // which is cheaper than resizing.
                if want > self.window.len() || self.window.capacity() > WINDOW_BYTES.max(want) {
                    self.window = vec![0; want];
                }
                self.window.truncate(want);
                self.window_start = offset;
                if let Err(error) = read_with_room(&*self.file, offset, &mut self.window) {
                    self.window.clear();
                    return Err(Error::io(format!("read {}", self.path.display()), error));
                }
                0
            }
        };
        Ok(self.window.get(start..start + len).unwrap_or_default())
    }
}

/// Fills `buffer` from a range that was inside the file when the file was opened. The file may have
/// become shorter, because another process closed the database and released preallocated space.
/// Then the missing bytes are zeros.
fn read_with_room(file: &dyn FileRead, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    match file.read_at(offset, buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let left = usize_of(file.len()?.saturating_sub(offset)).min(buffer.len());
            let (there, gone) = buffer.split_at_mut(left);
            gone.fill(0);
            // A read beyond the end would fail, even one of zero bytes.
            if there.is_empty() { Ok(()) } else { file.read_at(offset, there) }
        }
        result => result,
    }
}

fn bad(structure: &'static str, problem: impl Into<std::borrow::Cow<'static, str>>) -> StopReason {
    StopReason::Bad(DecodeError::new(structure, 0, problem))
}

/// True if all bytes are zero. Compares 128 bytes at a time.
fn is_zero(bytes: &[u8]) -> bool {
    let (pieces, rest) = bytes.as_chunks::<128>();
    pieces.iter().all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

/// Converts an offset in a window to `usize`. A value that does not fit becomes `usize::MAX`, which
/// is beyond every window.
fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
