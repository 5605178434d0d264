//! Shows the progress of a long operation on standard error, if that is a terminal.

use std::fmt::Write;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::failure::eprint_line;
use super::output::whole;

/// A bar, or a spinner if the total is unknown.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Shows the number of processed rows. `rows` is the expected total, if it is known.
    pub(super) fn new(rows: Option<u64>) -> Self {
        Self::of("rows", rows)
    }

    fn of(things: &str, count: Option<u64>) -> Self {
        let template = match count {
            Some(_) => "{wide_bar} {human_pos}/{human_len} THINGS  {rate}/s  {eta} left",
            None => "{spinner} THINGS: {human_pos}  {rate}/s  {elapsed}",
        };
        let bar = count.map_or_else(ProgressBar::no_length, ProgressBar::new);
        Self(bar).styled(&template.replace("THINGS", things))
    }

    /// Shows a line without a bar, as `template` lays it out.
    #[cfg(feature = "sim")]
    pub(super) fn line(template: &str) -> Self {
        Self(ProgressBar::no_length()).styled(template)
    }

    fn styled(self, template: &str) -> Self {
        if let Ok(style) = ProgressStyle::with_template(template) {
            // indicatif's own rate has four decimals.
            let rate = |state: &ProgressState, out: &mut dyn Write| {
                out.write_str(&whole(state.per_sec())).unwrap_or_default();
            };
            self.0.set_style(style.with_key("rate", rate));
        }
        self
    }

    /// Runs `work`, which counts `things`; the bar is removed before the result is returned.
    pub(super) fn during<T>(things: &str, count: Option<u64>, work: impl FnOnce(&Self) -> T) -> T {
        work(&Self::of(things, count))
    }

    /// Advances the bar by `count`.
    pub(super) fn advance(&self, count: u64) {
        self.0.inc(count);
    }

    pub(super) fn reach(&self, count: u64) {
        self.0.set_position(count);
    }

    pub(super) fn reach_of(&self, count: u64, of: u64) {
        self.expect(of);
        self.0.set_position(count);
    }

    pub(super) fn advance_of(&self, count: u64, of: u64) {
        self.expect(of);
        self.0.inc(count);
    }

    /// Sets the total.
    fn expect(&self, count: u64) {
        if self.0.length() != Some(count) {
            self.0.set_length(count);
        }
    }

    /// Shows `text` where the template has `{msg}`.
    #[cfg(feature = "sim")]
    pub(super) fn say(&self, text: String) {
        self.0.set_message(text);
        self.0.tick();
    }

    /// Prints a line above the bar.
    pub(super) fn print(&self, line: &str) {
        self.0.suspend(|| eprint_line(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
