//! Defines the error type of the library. An error has the size of a pointer and is cheap to clone.
//!
//! Errors are divided into kinds by how a caller should react. Errors of the data model also have
//! the Table service's code, HTTP status and text. Errors of the engine describe the operation that
//! failed, and `source()` returns the cause.

mod code;

pub use code::Code;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::DecodeError;

/// The result of every fallible operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of any operation. Cloning is cheap, so that a failed sync can be returned to every
/// writer of its commit group.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

/// The kinds of errors, by the action that a caller can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The table or entity does not exist.
    NotFound,
    /// The table or entity exists already.
    AlreadyExists,
    /// The entity's ETag is not the given one: read the entity again and decide again.
    PreconditionFailed,
    /// The request breaks a rule of the data model; see [`Error::code`].
    InvalidInput,
    /// Another process or handle has the database open.
    Locked,
    /// The database was written in a newer format, or needs a feature that this build lacks.
    Unsupported,
    /// Bytes on disk differ from the bytes that were written; see [`Error::corruption`].
    Corruption,
    /// The operating system returned an error, which `source()` returns.
    Io,
    /// A failed write or sync ended all writing through this handle: reopen the database.
    Poisoned,
    /// A gate ([`Db::gate`](crate::Db::gate)) or a target ([`Targets`](crate::options::Targets))
    /// refused the request. Nothing was done: try again later.
    Busy,
    /// The time limit was reached. Nothing was done.
    Timeout,
    /// The disk is full. Nothing was written: free space and continue.
    StorageFull,
    /// The operation is known but not supported.
    NotImplemented,
    /// The requested changes are no longer retained.
    ChangesLost,
    /// A service was sent a write and did not answer: the write may have been carried out, or may
    /// still be. Read the entity to find out.
    OutcomeUnknown,
}

/// The place of damage on disk, and a description of the damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The damaged file.
    pub file: PathBuf,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The damaged structure, as FORMAT.md names it.
    pub structure: &'static str,
    /// A description of the damage.
    pub problem: Cow<'static, str>,
    /// For a table file, its first and last key. Keys outside of this span are not affected.
    pub keys: Option<Box<str>>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    code: Code,
    /// The operation that failed, or the Table service's text for the code.
    message: Cow<'static, str>,
    /// The table, entity or property that a refusal is about, for [`fmt::Display`].
    object: Option<String>,
    /// The index of the failing operation in its entity group.
    index: Option<usize>,
    cause: Option<Cause>,
    /// Whether the operation was retried before it returned this error.
    was_retried: bool,
}

#[derive(Clone)]
enum Cause {
    Io(Arc<io::Error>),
    Corruption(Corruption),
    Error(Error),
}

/// The number of characters of a name that an error shows.
const NAME_SHOWN_MAX: usize = 64;

/// Returns the name of an object for [`Error::about`], shortened if it is long.
pub(crate) fn quoted(of: &str, name: &str) -> String {
    let mut text = String::with_capacity(of.len() + name.len().min(4 * NAME_SHOWN_MAX) + 6);
    put_quoted(&mut text, of, name);
    text
}

/// As [`quoted`], but appends the text to `out`.
pub(crate) fn put_quoted(out: &mut String, of: &str, name: &str) {
    let cut = (name.len() > NAME_SHOWN_MAX).then(|| name.char_indices().nth(NAME_SHOWN_MAX));
    let (shown, end) = match cut.flatten() {
        Some((end, _)) => (name.get(..end).unwrap_or_default(), "…'"),
        None => (name, "'"),
    };
    [of, " '"].into_iter().for_each(|part| out.push_str(part));
    if shown.contains(char::is_control) {
        // An error is one line of text, whatever the names are.
        out.extend(shown.chars().flat_map(char::escape_debug));
    } else {
        out.push_str(shown);
    }
    out.push_str(end);
}

/// Converts a result with an I/O error, and adds the operation that failed.
pub(crate) trait Doing<T> {
    /// Converts an I/O error of `doing`, such as "open" or "list", on `path`.
    fn doing(self, doing: &str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::io(format!("{doing} {}", path.as_ref().display()), error))
    }
}

impl Error {
    /// Creates a refusal by the data model, with the service's text for `code`.
    pub(crate) fn refused(code: Code) -> Self {
        Self::build(code.kind(), code, code.message(), None)
    }

    /// Creates a refusal by the data model, with the text `message`.
    pub(crate) fn refused_with(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self::build(code.kind(), code, message.into(), None)
    }

    /// Creates an engine error. `message` names the operation or the problem, in lower case.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::build(kind, Code::of(kind), message.into(), None)
    }

    /// Creates an error that the operating system returned for `doing`, a text that includes the
    /// path. A full disk is [`ErrorKind::StorageFull`].
    pub(crate) fn io(doing: impl Into<Cow<'static, str>>, cause: io::Error) -> Self {
        let kind = match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::StorageFull,
            _ => ErrorKind::Io,
        };
        Self::build(kind, Code::of(kind), doing.into(), Some(Cause::Io(Arc::new(cause))))
    }

    /// Creates an error that the operating system returned for `doing`, if it is unknown how much
    /// was done. The kind is never [`ErrorKind::StorageFull`], which guarantees that nothing was
    /// written.
    pub(crate) fn io_unknown(doing: impl Into<Cow<'static, str>>, cause: io::Error) -> Self {
        let kind = ErrorKind::Io;
        Self::build(kind, Code::of(kind), doing.into(), Some(Cause::Io(Arc::new(cause))))
    }

    /// Creates an error for `structure` at `offset` of `file`, whose bytes differ from those that
    /// were written.
    pub(crate) fn corrupt(
        file: &Path,
        offset: u64,
        structure: &'static str,
        problem: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (file, problem) = (file.to_owned(), problem.into());
        Self::damage(Corruption { file, offset, structure, problem, keys: None })
    }

    /// Creates an error for the damage that `corruption` describes.
    pub(crate) fn damage(corruption: Corruption) -> Self {
        let kind = ErrorKind::Corruption;
        let message = corruption.to_string();
        Self::build(kind, Code::of(kind), message.into(), Some(Cause::Corruption(corruption)))
    }

    /// Adds the key span `keys` of the table file. An error that is not damage stays the same.
    pub(crate) fn of_keys(self, keys: impl FnOnce() -> String) -> Self {
        match self.corruption() {
            Some(damage) if damage.keys.is_none() => {
                Self::damage(Corruption { keys: Some(keys().into()), ..damage.clone() })
            }
            _ => self,
        }
    }

    /// Converts `error`, which a decoder returned for the bytes at offset `base` of `file`.
    pub(crate) fn decode(file: &Path, base: u64, error: DecodeError) -> Self {
        Self::corrupt(file, base + error.at as u64, error.structure, error.problem)
    }

    /// Returns a failure of the larger operation `doing` with this error as the cause. Kind and
    /// code stay the same.
    pub(crate) fn during(self, doing: impl Into<Cow<'static, str>>) -> Self {
        let (kind, code, index) = (self.0.kind, self.0.code, self.0.index);
        let was_retried = self.0.was_retried;
        let (message, cause) = (doing.into(), Some(Cause::Error(self)));
        Self(Arc::new(Inner { kind, code, message, object: None, index, cause, was_retried }))
    }

    /// Returns the error for all later writes, where `self` is the error that ended writing.
    pub(crate) fn poisoned(self) -> Self {
        let kind = ErrorKind::Poisoned;
        let message = "a failed write or sync ended writing: open the database again";
        Self::build(kind, Code::of(kind), message.into(), Some(Cause::Error(self)))
    }

    /// Marks the error of an operation that was retried, so that an outer
    /// [`RetryPolicy`](crate::RetryPolicy) does not multiply the retries.
    #[cfg(feature = "remote")]
    pub(crate) fn after_retries(mut self) -> Self {
        Arc::make_mut(&mut self.0).was_retried = true;
        self
    }

    /// Whether the operation was retried before it returned this error.
    #[cfg(feature = "remote")]
    pub(crate) fn was_retried(&self) -> bool {
        self.0.was_retried
    }

    /// Adds the index of the refused operation in its entity group.
    pub(crate) fn at_index(self, index: usize) -> Self {
        Self(Arc::new(Inner { index: Some(index), ..(*self.0).clone() }))
    }

    /// Adds the object of a refusal by the data model, such as "table 'parts'". If the error has an
    /// object already, that is a part of `object`. An error of the engine stays the same.
    #[cold]
    pub(crate) fn about(mut self, object: impl FnOnce() -> String) -> Self {
        use ErrorKind::{AlreadyExists, InvalidInput, NotFound, PreconditionFailed};
        if matches!(self.0.kind, NotFound | AlreadyExists | PreconditionFailed | InvalidInput) {
            let inner = Arc::make_mut(&mut self.0);
            inner.object = Some(match inner.object.take() {
                Some(part) => format!("{part} of {}", object()),
                None => object(),
            });
        }
        self
    }

    fn build(
        kind: ErrorKind,
        code: Code,
        message: Cow<'static, str>,
        cause: Option<Cause>,
    ) -> Self {
        let (object, index, was_retried) = (None, None, false);
        Self(Arc::new(Inner { kind, code, message, object, index, cause, was_retried }))
    }

    /// Returns the table, entity or property that a refusal is about.
    #[cfg(feature = "cli")]
    pub(crate) fn object(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// Returns an error of the same kind and code, with another message and without a cause.
    #[cfg(feature = "cli")]
    pub(crate) fn with_message(&self, message: impl Into<Cow<'static, str>>) -> Self {
        Self::build(self.0.kind, self.0.code, message.into(), None)
    }

    /// Returns the kind, which determines how a caller can react.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the Table service's code, such as `EntityAlreadyExists`. It is `InternalError` for
    /// the engine's own errors.
    pub fn code(&self) -> &'static str {
        self.0.code.as_str()
    }

    /// Returns the HTTP status of [`code`](Self::code).
    pub fn status(&self) -> u16 {
        self.0.code.status()
    }

    /// Returns the zero-based index of the failing operation, for errors of an entity group.
    pub fn index(&self) -> Option<usize> {
        self.0.index
    }

    /// Returns the message alone, without its causes and without the object.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the same request may succeed later without any intervention. The clients of Azure
    /// Table storage decide in the same way: they retry 503 and timeouts (500 or 504), but no 4xx,
    /// 501 or 505.
    ///
    /// | kind | | why |
    /// | --- | --- | --- |
    /// | `Busy`, `ServerBusy` 503 | yes | refused because of a gate or a target, and nothing was done |
    /// | `Busy`, `TableBeingDeleted` 409 | no | a 4xx; a database never returns it |
    /// | `Timeout` | yes | nothing was done |
    /// | `NotFound`, `AlreadyExists`, `PreconditionFailed`, `InvalidInput` | no | 4xx: the same request fails again |
    /// | `NotImplemented` | no | 501 |
    /// | `StorageFull`, 507 | no | space must be freed first |
    /// | `Locked` | no | the database must be closed elsewhere first |
    /// | `Io`, `Poisoned` | no | reopen the database: the state of the disk is unknown until then |
    /// | `Corruption`, `Unsupported`, `ChangesLost` | no | a later try fails in the same way |
    /// | `OutcomeUnknown` | no | a second try may carry out the write twice: read the entity first |
    ///
    /// An error of `store::Remote` is not transient if `Remote` has retried the request already.
    ///
    /// The service's clients also treat a lost connection as a timeout; calls of a library have no
    /// connection. See [`RetryPolicy`](crate::RetryPolicy) for retries after a lost connection.
    pub fn is_transient(&self) -> bool {
        if self.0.was_retried {
            return false;
        }
        match self.kind() {
            ErrorKind::Busy => self.status() == 503,
            ErrorKind::Timeout => true,
            ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::PreconditionFailed
            | ErrorKind::InvalidInput
            | ErrorKind::Locked
            | ErrorKind::Unsupported
            | ErrorKind::Corruption
            | ErrorKind::Io
            | ErrorKind::Poisoned
            | ErrorKind::StorageFull
            | ErrorKind::NotImplemented
            | ErrorKind::OutcomeUnknown
            | ErrorKind::ChangesLost => false,
        }
    }

    /// Returns the description of the damage, if this error or one of its causes is damage.
    pub fn corruption(&self) -> Option<&Corruption> {
        match &self.0.cause {
            Some(Cause::Corruption(corruption)) => Some(corruption),
            Some(Cause::Error(error)) => error.corruption(),
            _ => None,
        }
    }

    /// Returns the message and then each cause after a colon, on one line. `Display` also names the
    /// object.
    pub fn chain(&self) -> String {
        let mut text = self.message().to_owned();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text.push_str(": ");
            match cause.downcast_ref::<Error>() {
                Some(error) => text.push_str(error.message()),
                None => text.push_str(&cause.to_string()),
            }
            source = cause.source();
        }
        text
    }
}

/// Methods that accept any `TryInto` argument need this for conversions that cannot fail.
impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// The message, each cause after a colon, and in parentheses the table, entity or property that was
/// refused. A caller needs no other text: `open db/LOCK: Permission denied (os error 13)`, or `The
/// specified entity already exists. (entity 'bolts' 'm4x20' of table 'parts')`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.chain())?;
        self.0.object.as_ref().map_or(Ok(()), |object| write!(f, " ({object})"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}", self.kind(), self.code())?;
        if let Some(index) = self.index() {
            write!(f, ", operation {index}")?;
        }
        write!(f, "): {self}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.cause {
            Some(Cause::Io(error)) => Some(&**error),
            Some(Cause::Error(error)) => Some(error),
            // The message already contains the text of the corruption, so it is not repeated as the
            // source.
            Some(Cause::Corruption(_)) | None => None,
        }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, structure, problem, keys } = self;
        write!(f, "{structure} at byte {offset} of {}: {problem}", file.display())?;
        keys.as_ref().map_or(Ok(()), |keys| write!(f, " (the file holds keys {keys})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_file_offset_and_cause() {
        let error =
            Error::corrupt(Path::new("d/000004.wal"), 32768, "record", "checksum 1, stored 2")
                .during("replay wal");
        assert_eq!(
            error.chain(),
            "replay wal: record at byte 32768 of d/000004.wal: checksum 1, stored 2"
        );
        assert_eq!(
            (error.kind(), error.code(), error.status()),
            (ErrorKind::Corruption, "InternalError", 500)
        );
        assert_eq!(error.corruption().unwrap().offset, 32768);
    }

    #[test]
    fn a_full_disk_is_its_own_kind() {
        let error = Error::io("allocate 000004.wal", io::ErrorKind::StorageFull.into());
        assert_eq!((error.kind(), error.code()), (ErrorKind::StorageFull, "StorageFull"));
    }

    #[test]
    fn only_errors_that_service_clients_retry_are_transient() {
        let passes = |code| Error::refused(code).is_transient();
        assert!(passes(Code::ServerBusy) && passes(Code::OperationTimedOut));
        for code in Code::ALL.iter().filter(|code| matches!(code.status(), 400..=499 | 501 | 507)) {
            assert!(!passes(*code), "{code:?}");
        }
        let new = |kind| Error::new(kind, "").is_transient();
        assert!(new(ErrorKind::Busy) && new(ErrorKind::Timeout));
        let never = [ErrorKind::Io, ErrorKind::Poisoned, ErrorKind::Locked, ErrorKind::Corruption];
        assert!(!never.into_iter().any(new));
        assert!(Error::refused(Code::ServerBusy).during("put").is_transient());
    }

    #[test]
    fn refusals_have_the_code_status_and_text_of_the_service() {
        let error = Error::refused(Code::EntityAlreadyExists).at_index(3);
        assert_eq!(
            (error.code(), error.status(), error.index()),
            ("EntityAlreadyExists", 409, Some(3))
        );
        assert_eq!(error.to_string(), "The specified entity already exists.");
    }

    #[test]
    fn the_text_names_the_object_and_every_cause_but_the_message_is_the_services() {
        let error = Error::refused(Code::PropertyNameInvalid).about(|| quoted("property", "a b"));
        let error = error.about(|| quoted("table", "parts")).at_index(1);
        assert_eq!(error.message(), "The property name is invalid.");
        assert_eq!(error.chain(), error.message());
        let text = "The property name is invalid. (property 'a b' of table 'parts')";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.index(), Some(1));
        let denied = Error::io("create /db", io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied.to_string(), "create /db: permission denied");
        let text = denied.during("open").about(|| quoted("table", "parts")).to_string();
        assert_eq!(text, "open: create /db: permission denied");
        let long = "x".repeat(NAME_SHOWN_MAX + 1);
        assert_eq!(quoted("table", &long).len(), "table '…'".len() + NAME_SHOWN_MAX);
    }

    #[test]
    fn an_error_has_the_size_of_a_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
