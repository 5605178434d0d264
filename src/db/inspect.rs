//! One file of a database, looked at without the database: header, records, sections, blocks, a row in hex.
//!
//! Nothing that is read decides about anything: damage is shown where it is, and what can be read behind it is read.
//!
//! Not here: whether files belong together (`check`), what the bytes mean (FORMAT.md, `format`).

mod backup;
mod log;
mod sst;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::codec::DecodeError;
use crate::error::{Error, ErrorKind, Result};
use crate::format::current::Current;
use crate::format::field::FormatError;
use crate::format::names::FileName;
use crate::format::record::LogKind;
use crate::fs::{FileRead, Fs};

/// The most that is read of a file that should be small.
const SMALL_BYTES: u64 = 1 << 20;
/// Bytes of a value that are shown.
const SHOWN_BYTES: usize = 256;

/// What to look at, beside the outline of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InspectOptions {
    /// Only this block of rows of an SST, or this record of a log, counted from 0: with all that is in it.
    pub block: Option<u64>,
    /// Of the block, only this row, counted from 0: its bytes and what they mean.
    pub row: Option<u64>,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectedPart {
    /// What it is: `header`, `section`, `block`, `record`, `row`, `bytes`, `damage`, ….
    pub what: &'static str,
    /// Where it begins in the file, in bytes.
    pub at: u64,
    /// What it says, by name.
    pub fields: Vec<(&'static str, InspectedValue)>,
}

/// What a part of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InspectedValue {
    /// A number.
    Number(u64),
    /// Anything else, as text.
    Text(String),
}

/// Where the parts go, one after the other.
type Sink<'s> = dyn FnMut(InspectedPart) -> Result<()> + 's;

/// Hands every part of the file `path` to `with`: an SST, a log, a manifest, CURRENT or a generation of a backup, told apart
/// by name, or else by the first bytes. Reads the file once; memory is bounded by its largest block or record. Gives the
/// number of damaged places, which are parts too.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, InspectOptions, fs::MemFs, inspect};
/// let fs = std::sync::Arc::new(MemFs::new());
/// Db::options().fs(fs.clone()).open("db")?.close()?;
/// let mut parts = Vec::new();
/// let damaged = inspect(&*fs, "db/CURRENT", InspectOptions::default(), |part| {
///     parts.push(part.to_string());
///     Ok(())
/// })?;
/// assert_eq!(damaged, 0);
/// assert!(parts[0].contains("manifest MANIFEST-000001"), "{parts:?}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Io`; `InvalidInput` for a file that is none of these; what `with` returns. Damage is no error.
pub fn inspect(
    fs: &dyn Fs,
    path: impl AsRef<Path>,
    options: InspectOptions,
    mut with: impl FnMut(InspectedPart) -> Result<()>,
) -> Result<u64> {
    let path = path.as_ref();
    let file = Bytes::open(fs, path)?;
    let mut damaged = 0;
    let mut sink = |part: InspectedPart| {
        damaged += u64::from(part.what == DAMAGE);
        with(part)
    };
    if backup::is_generation(path, &file) {
        backup::generation(&file, &mut sink)?;
        return Ok(damaged);
    }
    match kind_of(path, &file)? {
        FileName::Current => current(&file, &mut sink)?,
        FileName::Manifest(_) => log::records(fs, path, LogKind::Manifest, options, &mut sink)?,
        FileName::Wal(_) => log::records(fs, path, LogKind::Wal, options, &mut sink)?,
        FileName::Sst(_) => sst::parts(&file, options, &mut sink)?,
        FileName::Lock | FileName::Temporary => return Err(nothing_to_see(path)),
    }
    Ok(damaged)
}

const DAMAGE: &str = "damage";

/// What the file is, by its name; by its magic number if the name says nothing.
fn kind_of(path: &Path, file: &Bytes) -> Result<FileName> {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
    if let Some(name) = name.filter(|name| !matches!(name, FileName::Temporary)) {
        return Ok(name);
    }
    let head = file.read(0..file.len.min(40)).unwrap_or_default();
    let number = crate::format::names::FileNumber::default();
    Ok(match head.get(..8) {
        Some(b"rowscur\0") => FileName::Current,
        Some(b"rwsn.sst") => FileName::Sst(number),
        Some(b"rowslog\0") if head.get(32) == Some(&(LogKind::Manifest as u8)) => {
            FileName::Manifest(number)
        }
        Some(b"rowslog\0") => FileName::Wal(number),
        _ => return Err(nothing_to_see(path)),
    })
}

fn nothing_to_see(path: &Path) -> Error {
    let problem = format!("{} is no file with an inside", path.display());
    Error::new(ErrorKind::InvalidInput, problem)
}

fn current(file: &Bytes, sink: &mut Sink<'_>) -> Result<()> {
    let bytes = file.read(0..file.len.min(SMALL_BYTES))?;
    match Current::decode(&bytes) {
        Ok(current) => sink(part(
            "current",
            0,
            [
                ("manifest", text(FileName::Manifest(current.manifest))),
                ("id", hex_id(current.id.0)),
                ("synced_len", number(current.synced_len)),
            ],
        )),
        Err(error) => {
            sink(damage(0, error))?;
            sink(part("bytes", 0, [("hex", hex(&bytes))]))
        }
    }
}

/// A file that is read in pieces.
struct Bytes {
    file: Arc<dyn FileRead>,
    len: u64,
    name: String,
}

impl Bytes {
    fn open(fs: &dyn Fs, path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let doing = |error| Error::io(format!("open {name}"), error);
        let file = fs.open_read(path).map_err(doing)?;
        let len = file.len().map_err(doing)?;
        Ok(Self { file, len, name })
    }

    /// The bytes in `range`, as far as the file has them.
    fn read(&self, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
        let (start, end) = (range.start.min(self.len), range.end.min(self.len));
        let len = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        let mut bytes = vec![0; len];
        self.file
            .read_at(start, &mut bytes)
            .map_err(|error| Error::io(format!("read {}", self.name), error))?;
        Ok(bytes)
    }
}

fn part<const N: usize>(
    what: &'static str,
    at: u64,
    fields: [(&'static str, InspectedValue); N],
) -> InspectedPart {
    InspectedPart { what, at, fields: fields.into() }
}

/// A place where the file is not what was written; `base` is where the decoder's buffer begins.
fn damage(base: u64, error: impl Into<FormatError>) -> InspectedPart {
    match error.into() {
        FormatError::Damaged(DecodeError { structure, at, problem }) => {
            let fields = [("structure", text(structure)), ("problem", text(problem))];
            part(DAMAGE, base + at as u64, fields)
        }
        FormatError::Unsupported(what) => {
            part("unsupported", base, [("problem", text(format!("needs {what}")))])
        }
    }
}

/// How far into `whole` its part `slice` begins: as far as their addresses are apart; 0 for what is empty and nowhere.
fn place_in(whole: &[u8], slice: &[u8]) -> u64 {
    let apart = (slice.as_ptr() as usize).checked_sub(whole.as_ptr() as usize);
    apart.filter(|apart| *apart <= whole.len()).map_or(0, |apart| apart as u64)
}

fn text(value: impl fmt::Display) -> InspectedValue {
    InspectedValue::Text(value.to_string())
}

fn number(value: impl TryInto<u64>) -> InspectedValue {
    InspectedValue::Number(value.try_into().unwrap_or(u64::MAX))
}

fn hex_id(id: u64) -> InspectedValue {
    text(format!("{id:016x}"))
}

/// Bytes as digits, at most so many as help.
fn hex(bytes: &[u8]) -> InspectedValue {
    let mut digits: String =
        bytes.iter().take(SHOWN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > SHOWN_BYTES {
        digits.push('…');
    }
    InspectedValue::Text(digits)
}

/// One line: where, what, and its fields.
impl fmt::Display for InspectedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10}  {:<8}", self.at, self.what)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, "  {name} {value}"))
    }
}

impl fmt::Display for InspectedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InspectedValue::Number(value) => value.fmt(f),
            InspectedValue::Text(value) => f.write_str(value),
        }
    }
}
