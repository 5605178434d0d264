//! Shows the contents of one file without opening its database: header, records, sections and
//! blocks, or one row in hex. Damage is shown at its position, and so is readable data after the
//! damage.
//!
//! `check` examines whether files fit together; FORMAT.md and `format` define the bytes.

mod backup;
mod bytes;
mod log;
mod parts;
mod sst;

pub use parts::{InspectOptions, InspectedPart, InspectedValue};

use std::path::Path;

use self::bytes::Bytes;
use self::parts::{DAMAGE, Sink, damage, hex, hex_id, number, part, text};
use crate::error::{Error, ErrorKind, Result};
use crate::format::current::Current;
use crate::format::names::FileName;
use crate::format::record::LogKind;
use crate::fs::Fs;

/// Maximum number of bytes read from a file that is expected to be small.
const SMALL_BYTES: u64 = 1 << 20;

/// Passes every part of the file `path` to `with`. The file is an SST, a log, a manifest, CURRENT
/// or a generation of a backup; the kind is determined by the name, or else by the first bytes.
/// Reads the file once; memory is bounded by its largest block or record. Returns the number of
/// damaged parts, which are passed to `with`, too.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, fs::MemFs, inspect::{InspectOptions, inspect}};
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
/// `Io`; `InvalidInput` for a file of another kind; errors of `with`. Damage is not an error.
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
        FileName::Lock | FileName::Control | FileName::Temporary => {
            return Err(nothing_to_see(path));
        }
    }
    Ok(damaged)
}

/// Returns the kind of the file, by its name, or by its magic number if the name is unknown.
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
    Error::new(ErrorKind::InvalidInput, format!("{} is no file with an inside", path.display()))
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
