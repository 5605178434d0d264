//! One step of a program or script, and its text: a command line, input lines.
//!
//! Invariants
//! * a step is self-contained: entity tags are named by role or by commit number, so that a program
//!   stays a program when steps are taken out of it;
//! * `parse::step` of a step's text gives the step back.

use std::fmt;

use crate::options::{Durability, IoMode};

use super::value::Val;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Insert,
    Upsert,
    UpsertMerge,
    Replace,
    Merge,
    Delete,
}

/// Which entity tag a write demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// None, or `*`.
    Any,
    /// The entity's own; one that nothing has if there is no entity.
    Current,
    /// One that the entity does not have.
    Stale,
    /// That of commit number n.
    Commit(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub verb: Verb,
    pub pk: String,
    pub rk: String,
    pub properties: Vec<(String, Val)>,
    pub condition: Condition,
}

/// What a scan covers and how it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub pk: Option<String>,
    /// Row keys from (inclusive) and to (exclusive), within the partition.
    pub from: Option<String>,
    pub to: Option<String>,
    pub select: Option<Vec<String>>,
    pub top: Option<usize>,
    /// Page by page of this size, each page from the token of the one before.
    pub page: Option<usize>,
    pub at: Option<String>,
}

/// The options of a database under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub durability: Durability,
    pub io_mode: IoMode,
    pub memtable_bytes: usize,
    pub block_bytes: usize,
    pub run_file_bytes: u64,
    pub cache_bytes: usize,
    pub compress: bool,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Open(Config),
    CreateTable(String),
    DropTable(String),
    Tables,
    Write {
        table: String,
        write: Write,
        durability: Option<Durability>,
    },
    Group {
        table: String,
        writes: Vec<Write>,
        durability: Option<Durability>,
    },
    Get {
        table: String,
        pk: String,
        rk: String,
        select: Option<Vec<String>>,
        at: Option<String>,
    },
    Scan {
        table: String,
        scan: Scan,
    },
    Snapshot(String),
    Release(String),
    Flush,
    Compact,
    Sync,
    /// So many background steps.
    Background(usize),
    Verify,
    /// A clean close and an open.
    Reopen,
    /// The process dies; what it handed to the operating system stays.
    Kill,
    /// The power fails; the seed decides what stays of what was not synced.
    Crash(u64),
    /// The wall clock jumps by so many milliseconds; forward, time passes too.
    Clock(i64),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            io_mode: IoMode::Mmap,
            memtable_bytes: 64 << 10,
            block_bytes: 16 << 10,
            run_file_bytes: 64 << 10,
            cache_bytes: 1 << 20,
            compress: false,
            seed: 1,
        }
    }
}

impl Verb {
    pub const ALL: [Verb; 6] =
        [Verb::Insert, Verb::Upsert, Verb::UpsertMerge, Verb::Replace, Verb::Merge, Verb::Delete];

    pub fn name(self) -> &'static str {
        match self {
            Verb::Insert => "insert",
            Verb::Upsert => "upsert",
            Verb::UpsertMerge => "upsert-merge",
            Verb::Replace => "replace",
            Verb::Merge => "merge",
            Verb::Delete => "delete",
        }
    }

    /// Whether the verb has a form that takes an entity tag.
    pub fn is_conditional(self) -> bool {
        match self {
            Verb::Replace | Verb::Merge | Verb::Delete => true,
            Verb::Insert | Verb::Upsert | Verb::UpsertMerge => false,
        }
    }
}

pub fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "sync",
        Durability::Os => "os",
        Durability::Buffered => "buffered",
    }
}

/// A key or name as a script writes it: quoted where it would not read back as one word.
pub fn word(text: &str) -> String {
    let plain =
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// ` name=value`, or nothing.
fn option(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

fn words(names: &Option<Vec<String>>) -> Option<String> {
    names.as_ref().map(|names| names.join(","))
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Any => Ok(()),
            Condition::Current => f.write_str(" if=current"),
            Condition::Stale => f.write_str(" if=stale"),
            Condition::Commit(number) => write!(f, " if=#{number}"),
        }
    }
}

/// `pk rk Name=value …`
pub fn write_entity(
    f: &mut fmt::Formatter<'_>,
    (pk, rk): (&str, &str),
    properties: &[(String, Val)],
) -> fmt::Result {
    write!(f, "{} {}", word(pk), word(rk))?;
    properties.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} ", self.verb.name(), self.condition)?;
        write_entity(f, (&self.pk, &self.rk), &self.properties)
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "pk", self.pk.as_deref().map(word))?;
        option(f, "from", self.from.as_deref().map(word))?;
        option(f, "to", self.to.as_deref().map(word))?;
        option(f, "select", words(&self.select))?;
        option(f, "top", self.top)?;
        option(f, "page", self.page)?;
        option(f, "at", self.at.as_ref())
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let io_mode = if self.io_mode == IoMode::Mmap { "mmap" } else { "pread" };
        write!(f, "durability={} io={io_mode}", durability_name(self.durability))?;
        write!(f, " memtable={} block={}", self.memtable_bytes, self.block_bytes)?;
        write!(f, " run-file={} cache={}", self.run_file_bytes, self.cache_bytes)?;
        write!(f, " compress={} seed={}", self.compress, self.seed)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Open(config) => write!(f, "open {config}"),
            Step::CreateTable(name) => write!(f, "create-table {name}"),
            Step::DropTable(name) => write!(f, "drop-table {name}"),
            Step::Tables => f.write_str("tables"),
            Step::Write { table, write, durability } => {
                write!(f, "{} {table}{}", write.verb.name(), write.condition)?;
                option(f, "durability", durability.map(durability_name))?;
                f.write_str("\n")?;
                write_entity(f, (&write.pk, &write.rk), &write.properties)
            }
            Step::Group { table, writes, durability } => {
                write!(f, "group {table}")?;
                option(f, "durability", durability.map(durability_name))?;
                writes.iter().try_for_each(|write| write!(f, "\n{write}"))
            }
            Step::Get { table, pk, rk, select, at } => {
                write!(f, "get {table}")?;
                option(f, "select", words(select))?;
                option(f, "at", at.as_ref())?;
                write!(f, "\n{} {}", word(pk), word(rk))
            }
            Step::Scan { table, scan } => write!(f, "scan {table}{scan}"),
            Step::Snapshot(name) => write!(f, "snapshot {name}"),
            Step::Release(name) => write!(f, "release {name}"),
            Step::Flush => f.write_str("flush"),
            Step::Compact => f.write_str("compact"),
            Step::Sync => f.write_str("sync"),
            Step::Background(steps) => write!(f, "background {steps}"),
            Step::Verify => f.write_str("verify"),
            Step::Reopen => f.write_str("reopen"),
            Step::Kill => f.write_str("kill"),
            Step::Crash(seed) => write!(f, "crash seed={seed}"),
            Step::Clock(millis) => write!(f, "clock {millis}"),
        }
    }
}
