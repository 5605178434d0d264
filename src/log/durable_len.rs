//! The minimum length that a record file must have, as stated by the manifest and by the file's own
//! records. Without it, a file that lost its end would look like a complete, shorter file.

use crate::error::Error;
use crate::format::record::RecordKind;
use crate::format::wal::DurableUpTo;

use super::reader::{LogReader, RecordView};

/// The minimum length of a record file, as stated by the manifest or by the file's own records; 0
/// if neither states one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DurableLen(pub(crate) u64);

impl DurableLen {
    /// Updates the length, if `record`, the next record of the file, states a new one.
    pub(crate) fn read(&mut self, record: &RecordView<'_>) {
        match record.kind {
            // This is the last record. The space after it may be released, so the file may become
            // shorter than stated.
            RecordKind::Close => self.0 = 0,
            RecordKind::DurableUpTo => {
                let len = DurableUpTo::decode(record.payload).ok().and_then(|record| record.len);
                self.0 = self.0.max(len.unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Returns a problem if the file that `reader` has read is too short: shorter than this length
    /// and, if there is an accepted end, also shorter than that.
    pub(crate) fn problem(self, reader: &LogReader) -> Option<String> {
        let (found, stated) = (reader.file_len(), self.0);
        let is_short = found < stated.min(reader.accepted_end().unwrap_or(u64::MAX));
        is_short.then(|| {
            format!("the records end here and the file at byte {found}; it was {stated} bytes long")
        })
    }

    /// Returns the [`problem`](Self::problem), if there is one, as an error.
    pub(crate) fn error(self, reader: &LogReader) -> Option<Error> {
        let problem = format!(
            "{}, so commits may be missing: `rowstone repair` saves the others; if the file \
             system loses lengths in crashes, open it with `accept_short_logs`",
            self.problem(reader)?
        );
        Some(Error::corrupt(reader.path(), reader.position().offset, "log", problem))
    }
}
