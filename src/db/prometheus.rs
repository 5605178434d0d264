//! Writes the Prometheus text format, version 0.0.4: each metric has a help text, a kind and
//! samples.
//!
//! `stats` and `rest::metrics` define the metrics; `rest::metrics` serves them.

use std::fmt::{Display, Write};

/// The name, kind and help of a metric.
pub(crate) struct Metric {
    pub(crate) name: String,
    /// `counter`, `gauge` or `histogram`.
    pub(crate) kind: &'static str,
    /// One line of help.
    pub(crate) help: &'static str,
}

/// A text in this format, under construction.
pub(crate) struct Exposition(String);

impl Exposition {
    pub(crate) fn new() -> Self {
        Self(String::new())
    }

    /// Begins a metric; its samples must follow.
    pub(crate) fn begin(&mut self, metric: &Metric) {
        let Metric { name, kind, help } = metric;
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if i == 0 { '{' } else { ',' });
            text.chars().for_each(|c| match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            });
            self.0.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut out = Exposition::new();
        let help = "Requests, by what became of them.";
        out.begin(&Metric { name: "a_total".into(), kind: "counter", help });
        out.sample("a_total", &[("code", "a\"b\\c\n"), ("status", "404")], 0.5);
        out.sample("a_total", &[], 3);
        let expected = "# HELP a_total Requests, by what became of them.\n# TYPE a_total counter\n\
            a_total{code=\"a\\\"b\\\\c\\n\",status=\"404\"} 0.5\na_total 3\n";
        assert_eq!(out.into_text(), expected);
    }
}
