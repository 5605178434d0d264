//! Stores results as JSON lines in an append-only file. A later run skips existing figures.
//!
//! Invariants
//! * a line is one figure of one engine, or the limits of the machine in one run;
//! * a failed row is recorded, and the next run measures it again;
//! * if two lines have the same key, the later line is valid.
//!
//! Not here: medians (`report/`).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engines::Engine;
use crate::limits::Limits;
use crate::measure::Latency;
use crate::process::Memory;
use crate::store::Encoding;

/// The key of a figure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The form of the run, `quick` or `full`. Figures of different forms are never mixed.
    pub form: String,
    pub row: String,
    pub entities: u64,
    pub engine: Engine,
    pub encoding: Encoding,
    pub repetition: u32,
}

/// One figure with its costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The result, in the unit of the row.
    pub value: f64,
    pub ops: u64,
    pub entities: u64,
    pub seconds: f64,
    pub latency: Option<Latency>,
    /// Processor time of the process during `seconds`.
    pub cpu_seconds: f64,
    /// Bytes written from the start of the measurement until all data were synced and background
    /// work had ended.
    pub written_bytes: u64,
    pub memory: Memory,
    pub disk_bytes: Option<u64>,
    /// Raw bytes of one entity: its keys, and its properties as JSON.
    pub raw_bytes_each: f64,
    /// A remark that the report shows with the row.
    pub note: Option<String>,
}

/// One line of the results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    Figure {
        key: Key,
        figures: Figures,
    },
    /// The engine cannot run the operation of this row.
    Unsupported {
        key: Key,
    },
    Failed {
        key: Key,
        why: String,
    },
    Limits {
        form: String,
        limits: Limits,
    },
}

/// The contents of a results file, without lines that a later line replaces.
#[derive(Default)]
pub struct Results {
    pub figures: BTreeMap<Key, Figures>,
    pub unsupported: Vec<Key>,
    pub failed: BTreeMap<Key, String>,
    /// The limits of each form, as last measured.
    pub limits: BTreeMap<String, Limits>,
}

impl Results {
    /// Reads the file; a truncated last line is ignored.
    pub fn read(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    pub fn parse(text: &str) -> Self {
        let mut results = Self::default();
        for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            results.add(line);
        }
        results
    }

    pub fn add(&mut self, line: Line) {
        match line {
            Line::Figure { key, figures } => {
                self.failed.remove(&key);
                self.figures.insert(key, figures);
            }
            Line::Unsupported { key } => self.unsupported.push(key),
            Line::Failed { key, why } => {
                self.failed.insert(key, why);
            }
            Line::Limits { form, limits } => {
                self.limits.insert(form, limits);
            }
        }
    }

    /// Returns whether the row was measured or is unsupported, so that a run can skip it.
    pub fn has(&self, key: &Key) -> bool {
        self.figures.contains_key(key) || self.unsupported.contains(key)
    }
}

/// Appends lines to the file.
pub struct Appender(File);

impl Appender {
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // A killed run may have left half a line.
        let text = fs::read(path)?;
        if text.last().is_some_and(|byte| *byte != b'\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self(file))
    }

    pub fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.0.write_all(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(repetition: u32) -> Key {
        Key {
            form: "quick".into(),
            row: "get-hit".into(),
            entities: 500,
            engine: Engine::Rowstone,
            encoding: Encoding::Native,
            repetition,
        }
    }

    fn line(repetition: u32, value: f64) -> Line {
        Line::Figure { key: key(repetition), figures: Figures { value, ..Figures::default() } }
    }

    #[test]
    fn existing_results_are_not_measured_again() {
        let json = |line: &Line| serde_json::to_string(line).expect("plain data");
        let failed = Line::Failed { key: key(2), why: "killed".into() };
        let lines = [json(&line(0, 1.0)), json(&failed), json(&line(0, 2.0)), json(&line(1, 3.0))];
        // The last line is truncated.
        let text = lines.join("\n");
        let results = Results::parse(&text[..text.len() - 5]);
        assert_eq!(results.figures[&key(0)].value, 2.0);
        assert!(results.has(&key(0)) && !results.has(&key(1)) && !results.has(&key(2)));
        let other = Key { entities: 501, ..key(0) };
        assert!(!results.has(&other), "another size is another figure");
    }

    #[test]
    fn a_failure_is_forgotten_once_it_is_measured() {
        let mut results = Results::default();
        results.add(Line::Failed { key: key(0), why: "killed".into() });
        results.add(line(0, 1.0));
        assert!(results.failed.is_empty() && results.has(&key(0)));
    }
}
