//! Reports the rejected rows of an import, and its summary.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use crate::cli::failure::Outcome;
use crate::cli::files::Overwrite;
use crate::cli::output::{counted, with_thousands};
use crate::cli::progress::Progress;
use crate::error::{Code, Error};
use crate::json;

/// The maximum number of rejected rows that are printed if no --rejects file is given.
const SHOWN_MAX: u64 = 10;

/// The destination of rejected rows.
pub(super) struct Rejects {
    file: Option<BufWriter<File>>,
    /// The name of what the numbers of rows count: "line" or "element".
    unit: &'static str,
    count: u64,
}

/// The counts of an import.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Summary {
    pub(super) rows: u64,
    pub(super) imported: u64,
    pub(super) rejected: u64,
    /// The rows that were in the table before, with equal properties.
    pub(super) present: u64,
    pub(super) elapsed: Duration,
}

impl Rejects {
    pub(super) fn new(
        path: Option<&Path>,
        overwrite: Overwrite,
        unit: &'static str,
    ) -> Outcome<Self> {
        let file = path.map(|path| overwrite.create(path)).transpose()?;
        Ok(Self { file, unit, count: 0 })
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Reports one row.
    pub(super) fn add(&mut self, line: u64, error: &Error, progress: &Progress) -> Outcome {
        self.count += 1;
        let Some(file) = &mut self.file else {
            match self.count {
                ..=SHOWN_MAX => progress.print(&plain_line(self.unit, line, error)),
                count if count == SHOWN_MAX + 1 => progress
                    .print("more rows are rejected: --rejects FILE writes all of them to a file"),
                _ => {}
            }
            return Ok(());
        };
        Ok(writeln!(file, "{}", report_json(self.unit, line, error))?)
    }

    pub(super) fn finish(&mut self) -> Outcome {
        Ok(self.file.as_mut().map_or(Ok(()), BufWriter::flush)?)
    }
}

fn plain_line(unit: &str, line: u64, error: &Error) -> String {
    format!("{unit} {line}: {error} ({})", error.code())
}

/// Adds to the refusal of a key the characters that keys must not have. Requires: the destination
/// refused an entity. A time out of range is refused before, where the row is parsed.
pub(super) fn with_rule(error: Error) -> Error {
    match error.code() == Code::OutOfRangeInput.as_str() {
        true => {
            let rule = "keys must not have / \\ # ? or control characters";
            error.with_message(format!("{error}; {rule}"))
        }
        false => error,
    }
}

fn report_json(unit: &str, line: u64, error: &Error) -> String {
    json::object(|object| {
        object.raw(unit, line);
        object.text("code", error.code());
        object.text("message", &error.to_string());
    })
}

impl Summary {
    fn rate(&self) -> u64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { (self.imported as f64 / seconds) as u64 } else { self.imported }
    }

    /// Returns the counts as a part of a sentence.
    pub(super) fn counts(&self) -> String {
        let mut text = counted(self.rows, "row", "rows");
        text.push_str(" read");
        let counts = [
            (self.present, "present before"),
            (self.imported, "imported"),
            (self.rejected, "rejected"),
        ];
        for (count, what) in
            counts.into_iter().filter(|(count, what)| *count > 0 || *what == "imported")
        {
            text.push_str(&format!(", {} {what}", with_thousands(count)));
        }
        text
    }

    /// Returns the summary as a line of text.
    pub(super) fn text(&self) -> String {
        let (seconds, rate) = (self.elapsed.as_secs_f64(), with_thousands(self.rate()));
        format!("{} in {seconds:.2} s ({rate}/s)", self.counts())
    }

    /// Returns the summary as a JSON object.
    pub(super) fn json(&self) -> String {
        json::object(|object| {
            object.raw("rows", self.rows);
            object.raw("imported", self.imported);
            object.raw("rejected", self.rejected);
            if self.present > 0 {
                object.raw("present", self.present);
            }
            object.raw("seconds", format_args!("{:.3}", self.elapsed.as_secs_f64()));
            object.raw("rate", self.rate());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        let summary = Summary {
            rows: 336_776,
            imported: 336_774,
            rejected: 2,
            elapsed: Duration::from_secs(2),
            ..Summary::default()
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
        let resumed = Summary { rows: 7000, present: 6000, imported: 1000, ..summary };
        assert_eq!(
            resumed.counts(),
            "7,000 rows read, 6,000 present before, 1,000 imported, 2 rejected"
        );
    }

    #[test]
    fn rejected_rows_have_line_code_and_message() {
        let error = Error::refused_with(Code::InvalidInput, "a \"quoted\" text");
        assert_eq!(
            report_json("line", 7, &error),
            r#"{"line":7,"code":"InvalidInput","message":"a \"quoted\" text"}"#
        );
        let error = error.about(|| "property 'A'".to_owned());
        assert_eq!(
            plain_line("element", 7, &error),
            "element 7: a \"quoted\" text (property 'A') (InvalidInput)"
        );
        let json = report_json("element", 7, &error);
        assert!(
            json.starts_with(r#"{"element":7,"#) && json.contains("(property 'A')\""),
            "{json}"
        );
    }
}
