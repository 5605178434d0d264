//! What an import tells: progress while it runs, rejected rows, and the summary.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::failure::{Failure, Outcome, eprint_line};
use crate::cli::files;
use crate::cli::output::with_thousands;
use crate::error::Error;
use crate::json;

/// Rejected rows that are shown when they go to no file.
const SHOWN_MAX: u64 = 10;

/// Progress on standard error, if that is a terminal.
pub(in crate::cli) struct Progress(ProgressBar);

/// Where rejected rows go.
pub(super) struct Rejects {
    file: Option<BufWriter<File>>,
    count: u64,
}

/// What an import came to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Summary {
    pub(super) rows: u64,
    pub(super) imported: u64,
    pub(super) rejected: u64,
    pub(super) elapsed: Duration,
}

impl Progress {
    /// `rows`: how many there will be, if that is known.
    pub(in crate::cli) fn new(rows: Option<u64>) -> Self {
        Self::of("rows", rows)
    }

    /// Of other things than rows.
    pub(in crate::cli) fn of(things: &str, count: Option<u64>) -> Self {
        let (bar, template) = match count {
            Some(count) => (
                ProgressBar::new(count),
                format!(
                    "{{wide_bar}} {{human_pos}}/{{human_len}} {things}  {{per_sec}}  {{eta}} left"
                ),
            ),
            None => (
                ProgressBar::no_length(),
                format!("{{spinner}} {{human_pos}} {things}  {{per_sec}}  {{elapsed}}"),
            ),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// There will be so many in all.
    pub(in crate::cli) fn expect(&self, count: u64) {
        if self.0.length() != Some(count) {
            self.0.set_length(count);
        }
    }

    /// So many rows more.
    pub(in crate::cli) fn advance(&self, rows: u64) {
        self.0.inc(rows);
    }

    /// So many rows in all.
    pub(in crate::cli) fn reach(&self, rows: u64) {
        self.0.set_position(rows);
    }

    /// So many rows in all, of so many.
    pub(in crate::cli) fn reach_of(&self, rows: u64, of: u64) {
        self.0.set_length(of);
        self.0.set_position(rows);
    }

    /// Prints a line above the bar.
    fn print(&self, line: &str) {
        self.0.suspend(|| eprint_line(line));
    }

    pub(in crate::cli) fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Rejects {
    pub(super) fn new(path: Option<&Path>) -> Outcome<Self> {
        Ok(Self { file: path.map(files::create_output).transpose()?, count: 0 })
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
        file.write_all(&report_line(line, error)).map_err(Failure::output)
    }

    pub(super) fn finish(&mut self) -> Outcome {
        self.file.as_mut().map_or(Ok(()), |file| file.flush()).map_err(Failure::output)
    }
}

fn plain_line(line: u64, error: &Error) -> String {
    format!("line {line}: {} ({})", error.chain(), error.code())
}

/// `{"line":7,"code":"OutOfRangeInput","message":"…"}`
fn report_line(line: u64, error: &Error) -> Vec<u8> {
    let mut out =
        format!("{{\"line\":{line},\"code\":\"{}\",\"message\":", error.code()).into_bytes();
    json::put_string(&mut out, &error.chain());
    out.extend_from_slice(b"}\n");
    out
}

impl Summary {
    fn rate(&self) -> u64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { (self.imported as f64 / seconds) as u64 } else { self.imported }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let number = with_thousands;
        let rejected = match self.rejected {
            0 => String::new(),
            rejected => format!(", {} rejected", number(rejected)),
        };
        format!(
            "{} rows read, {} imported{rejected} in {:.2} s ({}/s)",
            number(self.rows),
            number(self.imported),
            self.elapsed.as_secs_f64(),
            number(self.rate())
        )
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        format!(
            "{{\"rows\":{},\"imported\":{},\"rejected\":{},\"seconds\":{:.3},\"rate\":{}}}",
            self.rows,
            self.imported,
            self.rejected,
            self.elapsed.as_secs_f64(),
            self.rate()
        )
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
            String::from_utf8(report_line(7, &error)).unwrap(),
            "{\"line\":7,\"code\":\"InvalidInput\",\"message\":\"a \\\"quoted\\\" text\"}\n"
        );
        assert_eq!(plain_line(7, &error), "line 7: a \"quoted\" text (InvalidInput)");
    }
}
