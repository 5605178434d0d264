//! Reports the rejected rows of an import, and its summary.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use crate::cli::failure::Outcome;
use crate::cli::files::Overwrite;
use crate::cli::output::{counted, with_thousands};
use crate::cli::progress::Progress;
use crate::error::Error;
use crate::json;

/// The maximum number of rejected rows that are printed if no --rejects file is given.
const SHOWN_MAX: u64 = 10;

/// The destination of rejected rows.
pub(super) struct Rejects {
    file: Option<BufWriter<File>>,
    count: u64,
}

/// The counts of an import.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Summary {
    pub(super) rows: u64,
    pub(super) imported: u64,
    pub(super) rejected: u64,
    pub(super) elapsed: Duration,
}

impl Rejects {
    pub(super) fn new(path: Option<&Path>, overwrite: Overwrite) -> Outcome<Self> {
        let file = path.map(|path| overwrite.create(path)).transpose()?;
        Ok(Self { file, count: 0 })
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Reports one row.
    pub(super) fn add(&mut self, line: u64, error: &Error, progress: &Progress) -> Outcome {
        self.count += 1;
        let Some(file) = &mut self.file else {
            match self.count {
                ..=SHOWN_MAX => progress.print(&plain_line(line, error)),
                count if count == SHOWN_MAX + 1 => progress
                    .print("more rows are rejected: --rejects FILE writes all of them to a file"),
                _ => {}
            }
            return Ok(());
        };
        Ok(writeln!(file, "{}", report_json(line, error))?)
    }

    pub(super) fn finish(&mut self) -> Outcome {
        Ok(self.file.as_mut().map_or(Ok(()), BufWriter::flush)?)
    }
}

fn plain_line(line: u64, error: &Error) -> String {
    format!("line {line}: {} ({})", error.chain(), error.code())
}

fn report_json(line: u64, error: &Error) -> String {
    json::object(|object| {
        object.raw("line", line);
        object.text("code", error.code());
        object.text("message", &error.chain());
    })
}

impl Summary {
    fn rate(&self) -> u64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { (self.imported as f64 / seconds) as u64 } else { self.imported }
    }

    /// Returns the summary as a line of text.
    pub(super) fn text(&self) -> String {
        let number = with_thousands;
        let rejected = match self.rejected {
            0 => String::new(),
            rejected => format!(", {} rejected", number(rejected)),
        };
        format!(
            "{} read, {} imported{rejected} in {:.2} s ({}/s)",
            counted(self.rows, "row", "rows"),
            number(self.imported),
            self.elapsed.as_secs_f64(),
            number(self.rate())
        )
    }

    /// Returns the summary as a JSON object.
    pub(super) fn json(&self) -> String {
        json::object(|object| {
            object.raw("rows", self.rows);
            object.raw("imported", self.imported);
            object.raw("rejected", self.rejected);
            object.raw("seconds", format_args!("{:.3}", self.elapsed.as_secs_f64()));
            object.raw("rate", self.rate());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn summaries() {
        let summary = Summary {
            rows: 336_776,
            imported: 336_774,
            rejected: 2,
            elapsed: Duration::from_secs(2),
        };
        assert_eq!(
            summary.text(),
            "336,776 rows read, 336,774 imported, 2 rejected in 2.00 s (168,387/s)"
        );
        assert_eq!(
            summary.json(),
            r#"{"rows":336776,"imported":336774,"rejected":2,"seconds":2.000,"rate":168387}"#
        );
        assert_eq!(Summary::default().rate(), 0);
    }

    #[test]
    fn rejected_rows_have_line_code_and_message() {
        let error = Error::refused_with(Code::InvalidInput, "a \"quoted\" text");
        assert_eq!(
            report_json(7, &error),
            r#"{"line":7,"code":"InvalidInput","message":"a \"quoted\" text"}"#
        );
        assert_eq!(plain_line(7, &error), "line 7: a \"quoted\" text (InvalidInput)");
    }
}
