//! Formats and parses the names of files, and defines the numbers in them. FORMAT.md §names.

use std::fmt;

/// The number of a file, unique in a database across all kinds and never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileNumber(pub(crate) u64);

/// The number of a table; never reused. Table 0 is the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId(pub(crate) u32);

/// The random id of a file. The number locates a file; the id confirms that the file found is the
/// right one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId(pub(crate) u64);

/// The number of a range; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RangeId(pub(crate) u64);

/// The meaning of a name in the database's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    Lock,
    /// The control socket of the process that has the database open; not part of the database.
    Control,
    Current,
    /// The temporary name of CURRENT or of an SST before its rename.
    Temporary,
    Manifest(FileNumber),
    Wal(FileNumber),
    Sst(FileNumber),
}

impl TableId {
    pub(crate) const CATALOG: TableId = TableId(0);
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

impl FileNumber {
    /// Returns the name of the table file with this number.
    pub(crate) fn sst_name(self) -> String {
        FileName::Sst(self).to_string()
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Lock => f.write_str("LOCK"),
            FileName::Control => f.write_str("CONTROL"),
            FileName::Current => f.write_str("CURRENT"),
            FileName::Temporary => f.write_str("CURRENT.tmp"),
            FileName::Manifest(n) => write!(f, "MANIFEST-{n}"),
            FileName::Wal(n) => write!(f, "{n}.wal"),
            FileName::Sst(n) => write!(f, "{n}.sst"),
        }
    }
}

impl FileName {
    /// Parses `name`; `None` if this engine does not create such a name.
    pub(crate) fn parse(name: &str) -> Option<FileName> {
        if let Some(number) = name.strip_prefix("MANIFEST-") {
            return Some(FileName::Manifest(parse_number(number)?));
        }
        match name {
            "LOCK" => Some(FileName::Lock),
            "CONTROL" => Some(FileName::Control),
            "CURRENT" => Some(FileName::Current),
            _ => match name.rsplit_once('.')? {
                (number, "wal") => Some(FileName::Wal(parse_number(number)?)),
                (number, "sst") => Some(FileName::Sst(parse_number(number)?)),
                (stem, "tmp") => {
                    let ours = stem == "CURRENT" || FileName::parse(stem).is_some();
                    ours.then_some(FileName::Temporary)
                }
                _ => None,
            },
        }
    }
}

/// Accepts at least six digits, no sign, and no superfluous zero, so that a number has only one
/// name.
fn parse_number(text: &str) -> Option<FileNumber> {
    let number = FileNumber(text.parse().ok()?);
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Option<FileName>) {
        assert_eq!(FileName::parse(name), expected);
    }

    #[test]
    fn names() {
        check("000004.wal", Some(FileName::Wal(FileNumber(4))));
        check("1234567.sst", Some(FileName::Sst(FileNumber(1_234_567))));
        check("MANIFEST-000002", Some(FileName::Manifest(FileNumber(2))));
        check("CURRENT.tmp", Some(FileName::Temporary));
        check("CONTROL", Some(FileName::Control));
        check("000004.sst.tmp", Some(FileName::Temporary));
        check("4.wal", None);
        check("+00004.wal", None);
        check("0000004.wal", None);
        check("notes.txt", None);
        assert_eq!(FileName::Sst(FileNumber(7)).to_string(), "000007.sst");
    }
}
