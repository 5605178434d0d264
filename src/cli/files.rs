//! Opens the user's files: input, output, and the spool. The spool is a temporary copy of an input
//! that is read twice although its source can be read only once.
//!
//! Invariant: only [`Overwrite`] and `append` open a file to write. An existing file is replaced
//! only with `--force`, and a file in the directory of a database is never written.
//!
//! No other module of the binary opens files; databases are accessed only through the library.

use std::fs::File;
use std::io::{self, BufWriter, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::read::MultiGzDecoder;
use tempfile::{NamedTempFile, TempPath};

use super::failure::{Failure, Outcome};
use crate::format::names::FileName;
use crate::fs::{DiskFs, Fs};
use crate::store::foreign;

/// The argument that means standard input.
pub(super) const STANDARD_INPUT: &str = "-";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// The number of bytes at the start of an input that are examined to detect its format.
const HEAD_BYTES: usize = 4096;

const ZIP: &str = "a zip archive";
/// The offset of the name of its first file in a zip archive, and the first names in documents of
/// Excel, LibreOffice and other programs.
const ZIP_NAME_AT: usize = 30;
const OFFICE: [&[u8]; 5] =
    [b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/", b"mimetypeapplication/vnd.oasis"];
/// Files that are no text: bytes at an offset, what they are, and the command that prints their
/// rows, if there is one.
const KINDS: [(usize, &[u8], &str, &str); 10] = [
    (0, &GZIP_MAGIC, "gzip within gzip", "gzip -dc FILE"),
    (0, b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc FILE"),
    (0, b"\xfd7zXZ\0", "compressed by xz", "xz -dc FILE"),
    (4, b"1AY&SY", "compressed by bzip2", "bzip2 -dc FILE"),
    (0, b"PK\x03\x04", ZIP, "unzip -p FILE"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x -so FILE"),
    (257, b"ustar", "a tar archive", "tar -xOf FILE"),
    (0, b"SQLite format 3\0", "a SQLite database", "sqlite3 -json FILE 'select * from TABLE'"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document, such as .xls", ""),
    (0, b"%PDF-", "a PDF document", ""),
];

/// An input file or standard input. Gzip is detected from the content and decompressed, and a byte
/// order mark is removed.
pub(super) struct Input {
    /// Reads the whole input, including `head`.
    pub(super) reader: Box<dyn Read + Send>,
    /// The first bytes of the input, at most [`HEAD_BYTES`].
    pub(super) head: Vec<u8>,
    /// Whether the input can be opened again to read the same bytes, and is not compressed.
    pub(super) repeatable: bool,
    /// Whether the input is empty or white space.
    pub(super) is_blank: bool,
}

/// The option `--force` of commands that write a file.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Overwrite {
    /// Replace the file to write if it exists
    #[arg(long)]
    force: bool,
}

/// An unnamed temporary file, which the system removes when its handle is closed.
#[derive(Debug)]
pub(super) struct Spool(File);

/// True if both paths name the same file or directory, whether it exists or not.
pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    resolved(a) == resolved(b)
}

/// Returns the absolute path without links. Only existing directories are resolved.
pub(super) fn resolved(path: &Path) -> PathBuf {
    fn resolve(path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => resolve(parent).join(name),
            _ => path.to_owned(),
        })
    }
    resolve(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}

/// Opens `path`, or standard input for `-`.
pub(super) fn open_input(path: &str) -> Outcome<Input> {
    if let Some(kind) = foreign(path) {
        return Err(Failure::Usage(format!("the input is {kind}, but must be a file")));
    }
    let failed = |error: io::Error| Failure::Other(format!("cannot read {path}: {error}"));
    let (mut source, is_file): (Box<dyn Read + Send>, bool) = if path == STANDARD_INPUT {
        (Box::new(io::stdin()), false)
    } else {
        let file = open_path(Path::new(path)).map_err(failed)?;
        let kind = file.metadata().map_err(failed)?;
        if kind.is_dir() {
            return Err(Failure::Other(format!("cannot read {path}: it is a directory")));
        }
        (Box::new(file), kind.is_file())
    };
    let magic = read_head(&mut source, GZIP_MAGIC.len()).map_err(failed)?;
    let packed = magic == GZIP_MAGIC;
    let mut reader: Box<dyn Read + Send> = Box::new(Cursor::new(magic).chain(source));
    if packed {
        reader = Box::new(MultiGzDecoder::new(reader));
    }
    let mut head = read_head(&mut reader, HEAD_BYTES).map_err(failed)?;
    let is_whole = head.len() < HEAD_BYTES;
    if head.starts_with(&BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    check_kind(path, &head)?;
    if matches!(*head, [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..]) {
        return Err(not_utf8(path, "UTF-32"));
    }
    // UTF-16 has a mark or, in text of any Latin script, a zero in every second byte.
    let zeros = head.iter().take(4).map(|byte| *byte == 0);
    let is_wide =
        zeros.clone().eq([false, true, false, true]) || zeros.eq([true, false, true, false]);
    if is_wide || matches!(*head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        return Err(not_utf8(path, "UTF-16"));
    }
    let reader = Box::new(Cursor::new(head.clone()).chain(reader));
    let is_blank = is_whole && head.trim_ascii().is_empty();
    Ok(Input { reader, head, repeatable: is_file && !packed, is_blank })
}

/// Returns an error if `head` is the start of a file that is no text and that must be converted.
fn check_kind(path: &str, head: &[u8]) -> Outcome {
    let has = |at, magic| head.get(at..).is_some_and(|bytes: &[u8]| bytes.starts_with(magic));
    let Some((.., kind, command)) = KINDS.iter().find(|(at, magic, ..)| has(*at, magic)) else {
        return Ok(());
    };
    let (kind, command) = match head.get(ZIP_NAME_AT..) {
        Some(name) if *kind == ZIP && OFFICE.iter().any(|start| name.starts_with(start)) => {
            ("a workbook or another Office document", "")
        }
        _ => (*kind, *command),
    };
    let file = if path == STANDARD_INPUT { "FILE" } else { path };
    let next = match command {
        "" => "save it as CSV in UTF-8".to_owned(),
        command => format!("{} | rowstone … -", command.replace("FILE", file)),
    };
    Err(Failure::Other(format!("cannot read {path}: it is {kind}\n  try: {next}")))
}

fn not_utf8(path: &str, encoding: &str) -> Failure {
    Failure::Other(format!(
        "cannot read {path}: it is {encoding} and must be UTF-8\n  \
         try: iconv -f {encoding} -t UTF-8 {path} >NEW"
    ))
}

#[cfg(feature = "parquet")]
impl Input {
    /// Returns the input as a file that can be read at any position: itself, or a copy.
    pub(super) fn into_file(mut self, path: &str) -> Outcome<File> {
        let failed = |error: io::Error| Failure::Other(format!("cannot read {path}: {error}"));
        if self.repeatable {
            return open_path(Path::new(path)).map_err(failed);
        }
        let mut spool = Spool::create()?;
        io::copy(&mut self.reader, &mut spool.0).map_err(failed)?;
        Ok(spool.0)
    }
}

impl Overwrite {
    #[cfg(test)]
    pub(super) const FORCE: Self = Self { force: true };

    /// Returns an error if `path` is an existing file and `--force` is not given, or if it is in
    /// the directory of a database. Pipes and devices are permitted, because writing to them
    /// replaces no data. Returns whether `path` exists.
    pub(super) fn check(self, path: &Path) -> Outcome<bool> {
        let found = path.metadata();
        if found.as_ref().is_ok_and(|found| !found.is_file()) {
            return Ok(true);
        }
        // If `path` is a link, checks the directory of the file that it points to.
        let file = path.canonicalize();
        let dir = file.as_deref().unwrap_or(path).parent().unwrap_or(Path::new(""));
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        // If the directory cannot be listed, opening the file reports the error.
        let names = DiskFs::new().list(dir).unwrap_or_default();
        let refuse = |problem| Err(Failure::Usage(format!("{} {problem}", path.display())));
        if names.iter().any(|name| FileName::parse(name).is_some()) {
            return refuse("is in the directory of a database: name a file elsewhere");
        }
        if found.is_ok() && !self.force {
            return refuse("exists: name another file, or replace it with --force");
        }
        Ok(found.is_ok())
    }

    /// Opens a file for writing, if [`check`](Self::check) permits it.
    #[expect(clippy::disallowed_methods, reason = "a file of the user's, not of a database")]
    pub(super) fn create(self, path: &Path) -> Outcome<BufWriter<File>> {
        let exists = self.check(path)?;
        let failed = |error| Failure::Other(format!("cannot write {}: {error}", path.display()));
        // If another process created the file since the check, the open fails instead of replacing
        // it.
        let opened = File::options().write(true).truncate(exists).create_new(!exists).open(path);
        opened.map(BufWriter::new).map_err(failed)
    }
}

/// A file that has another name until it is complete. Otherwise it is removed.
pub(super) struct NewFile {
    incomplete: TempPath,
    path: PathBuf,
    replaces: bool,
}

impl Overwrite {
    /// As [`create`](Self::create), but a file keeps its old contents until [`NewFile::finish`].
    pub(super) fn create_new(self, path: &Path) -> Outcome<(Option<NewFile>, BufWriter<File>)> {
        let replaces = self.check(path)?;
        if replaces && !path.is_file() {
            return Ok((None, self.create(path)?));
        }
        // A link stays.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (file, incomplete) = create_beside(&path)
            .map_err(|error| Failure::Other(format!("cannot write {}: {error}", path.display())))?
            .into_parts();
        Ok((Some(NewFile { incomplete, path, replaces }), BufWriter::new(file)))
    }
}

/// Creates a file with a name that no file has, in the directory of `path`.
fn create_beside(path: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut prefix = name.to_owned();
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part");
    #[cfg(unix)]
    // As other files that the user creates, and not for the user alone.
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    builder.tempfile_in(dir.unwrap_or(Path::new(".")))
}

impl NewFile {
    pub(super) fn finish(self) -> Outcome {
        let path = &self.path;
        let named = match self.replaces {
            true => self.incomplete.persist(path),
            // If another process created the file since the check, it stays.
            false => self.incomplete.persist_noclobber(path),
        };
        named.map_err(|error| {
            Failure::Other(format!("cannot write {}: {}", path.display(), error.error))
        })
    }
}

/// Opens a file at whose end lines are added. Creates it if it is missing.
#[cfg(feature = "remote")]
#[expect(clippy::disallowed_methods, reason = "a file of the user's, not of a database")]
pub(super) fn append(path: &Path) -> Outcome<BufWriter<File>> {
    check_outside(path)?;
    let failed = |error| Failure::Other(format!("cannot write {}: {error}", path.display()));
    File::options().append(true).create(true).open(path).map(BufWriter::new).map_err(failed)
}

/// Returns an error if `path` is in the directory of a database.
#[cfg(feature = "remote")]
pub(super) fn check_outside(path: &Path) -> Outcome {
    Overwrite { force: true }.check(path).map(drop)
}

/// Creates a directory, unless it exists.
#[cfg(feature = "shell")]
pub(super) fn create_dir(path: &Path) -> Outcome {
    let failed = |error| Failure::Other(format!("cannot create {}: {error}", path.display()));
    DiskFs::new().create_dir_all(path).map_err(failed)
}

#[expect(clippy::disallowed_methods, reason = "a file of the user's, not of a database")]
pub(super) fn open_path(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Reads the first bytes, at most `len` of them.
fn read_head(source: &mut dyn Read, len: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    source.take(len as u64).read_to_end(&mut head)?;
    Ok(head)
}

impl Spool {
    /// Creates an empty spool in the directory for temporary files.
    pub(super) fn create() -> Outcome<Spool> {
        let failed = |error| Failure::Other(format!("cannot create a spool {}", in_dir(&error)));
        tempfile::tempfile().map(Spool).map_err(failed)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot spool {}", in_dir(&error)))
        };
        self.0.write_all(bytes).map_err(named)
    }

    /// Moves to the start of the spool, so that the next read starts there.
    pub(super) fn rewind(mut self) -> io::Result<Spool> {
        self.0.rewind()?;
        Ok(self)
    }
}

fn in_dir(error: &io::Error) -> String {
    format!("in {}: {error}", std::env::temp_dir().display())
}

impl Read for Spool {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests create files of a user")]
mod tests {
    use super::*;

    #[test]
    fn a_spool_returns_the_bytes_written_to_it() {
        let mut spool = Spool::create().unwrap();
        let other = Spool::create().unwrap();
        spool.write(b"abc").unwrap();
        spool.write(b"def").unwrap();
        let mut spool = spool.rewind().unwrap();
        let mut text = String::new();
        spool.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcdef");
        drop(other);
    }

    #[test]
    fn gzip_is_detected_by_its_first_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let mut input = open_input(path.to_str().unwrap()).unwrap();
            let mut text = String::new();
            input.reader.read_to_string(&mut text).unwrap();
            assert_eq!(text.as_bytes(), input.head);
            (text, input.repeatable)
        };
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(b"a,b\n").unwrap();
        let gz = gz.finish().unwrap();
        assert_eq!(read("plain.csv.gz", b"a,b\n"), ("a,b\n".into(), true));
        assert_eq!(read("packed.csv", &gz), ("a,b\n".into(), false));
        assert_eq!(read("twice", &[gz.clone(), gz].concat()), ("a,b\na,b\n".into(), false));
        assert_eq!(read("empty", b""), (String::new(), true));
        assert_eq!(read("one", b"\x1f"), ("\x1f".into(), true));
        assert_eq!(read("marked", b"\xef\xbb\xbfa,b\n"), ("a,b\n".into(), true));
        for bytes in [b"\xff\xfea\0", b"\xfe\xff\0a", b"a\0b\0", b"\0a\0b"] {
            let path = dir.path().join("wide");
            std::fs::write(&path, bytes).unwrap();
            match open_input(path.to_str().unwrap()) {
                Err(Failure::Other(text)) => assert!(text.contains("wide: it is UTF-16"), "{text}"),
                _ => panic!("{bytes:?}"),
            }
        }
    }

    #[test]
    fn files_that_are_no_text_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let zip = |name: &str| format!("PK\x03\x04{}{name}", "\0".repeat(26)).into_bytes();
        let gz = |bytes: &[u8]| {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gz.write_all(bytes).unwrap();
            gz.finish().unwrap()
        };
        for (bytes, expected) in [
            (gz(&gz(b"a,b\n")), "it is gzip within gzip\n  try: gzip -dc x.bin | rowstone … -"),
            (b"\x28\xb5\x2f\xfd\0".to_vec(), "by zstd\n  try: zstd -dc x.bin | "),
            (gz(b"\x28\xb5\x2f\xfd\0"), "by zstd\n"),
            (b"\xfd7zXZ\0\0".to_vec(), "by xz\n  try: xz -dc x.bin | "),
            (b"BZh91AY&SY".to_vec(), "by bzip2\n  try: bzip2 -dc x.bin | "),
            (zip("a.csv"), "a zip archive\n  try: unzip -p x.bin | "),
            (
                zip("[Content_Types].xml"),
                "a workbook or another Office document\n  try: save it as ",
            ),
            (zip("mimetypeapplication/vnd.oasis.opendocument.spreadsheet"), "a workbook"),
            (b"7z\xbc\xaf\x27\x1c".to_vec(), "a 7z archive\n  try: 7z x -so x.bin | "),
            (tar, "a tar archive\n  try: tar -xOf x.bin | "),
            (
                b"SQLite format 3\0\x10".to_vec(),
                "try: sqlite3 -json x.bin 'select * from TABLE' | ",
            ),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec(), "such as .xls\n  try: save it as CSV"),
            (b"%PDF-1.7\n".to_vec(), "a PDF document\n  try: save it as CSV in UTF-8"),
        ] {
            let path = dir.path().join("x.bin");
            std::fs::write(&path, &bytes).unwrap();
            match open_input(path.to_str().unwrap()) {
                Err(Failure::Other(text)) => {
                    let text = text.replace(dir.path().to_str().unwrap(), "").replace('/', "");
                    assert!(text.starts_with("cannot read x.bin: it is "), "{text}");
                    assert!(text.contains(expected), "{text}");
                }
                _ => panic!("{expected}"),
            }
        }
        assert!(check_kind("-", b"PK,BZh,7z,ustar,SQLite format 3\n").is_ok());
        assert!(check_kind("-", b"").is_ok());
    }

    #[test]
    fn trap_64_a_file_is_replaced_only_on_request_and_one_of_a_database_never() {
        let dir = tempfile::tempdir().unwrap();
        let create = |name: &str, force: bool| {
            let opened = Overwrite { force }.create(&dir.path().join(name));
            opened.map(drop).map_err(|failure| failure.message())
        };
        #[track_caller]
        fn check(found: Result<(), (u8, Option<String>)>, expected: &str) {
            let (status, text) = found.unwrap_err();
            let text = text.unwrap();
            assert!(status == 2 && text.contains(expected), "{status} {text}");
        }
        create("out", false).unwrap();
        std::fs::write(dir.path().join("out"), b"of yesterday").unwrap();
        check(create("out", false), "out exists: name another file");
        assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), b"of yesterday");
        create("out", true).unwrap();
        assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), b"");
        Overwrite { force: false }.create(Path::new("/dev/null")).unwrap();
        #[cfg(feature = "remote")]
        for text in ["one", "two"] {
            append(&dir.path().join("lines")).unwrap().write_all(text.as_bytes()).unwrap();
        }
        #[cfg(feature = "remote")]
        assert_eq!(std::fs::read(dir.path().join("lines")).unwrap(), b"onetwo");
        std::fs::create_dir_all(dir.path().join("db")).unwrap();
        std::fs::write(dir.path().join("db/000004.sst"), b"rows").unwrap();
        for name in ["db/000004.sst", "db/new", "db/../db/000004.sst"] {
            check(create(name, true), "is in the directory of a database");
            #[cfg(feature = "remote")]
            check(
                append(&dir.path().join(name)).map(drop).map_err(|failure| failure.message()),
                "is in the directory of a database",
            );
        }
        #[cfg(unix)]
        {
            let link = dir.path().join("link");
            std::os::unix::fs::symlink(dir.path().join("db/000004.sst"), link).unwrap();
            check(create("link", true), "link is in the directory of a database");
        }
        assert_eq!(std::fs::read(dir.path().join("db/000004.sst")).unwrap(), b"rows");
    }

    #[test]
    fn an_incomplete_file_replaces_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let part = dir.path().join("out.part");
        std::fs::write(&part, b"of the user").unwrap();
        let begin = |force| Overwrite { force }.create_new(&path).unwrap();
        let (first, mut file) = begin(false);
        let (second, _) = begin(false);
        drop(begin(false));
        file.write_all(b"all").unwrap();
        drop(file);
        first.unwrap().finish().unwrap();
        match second.unwrap().finish() {
            Err(Failure::Other(text)) => assert!(text.contains("out: File exists"), "{text}"),
            _ => panic!("the file was replaced"),
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"all");
        begin(true).0.unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        assert_eq!(std::fs::read(&part).unwrap(), b"of the user");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "incomplete files stay");
    }

    #[test]
    fn unreadable_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().join("none.csv"), dir.path().to_owned()] {
            let path = path.to_str().unwrap();
            match open_input(path) {
                Err(Failure::Other(text)) => assert!(text.contains(path), "{text}"),
                _ => panic!("{path}"),
            }
        }
    }
}
