//! Implements the commands that move a range of keys: `gate`, `export-range`, `import-range`.
//!
//! `compare` compares the moved range with the original.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::failure::Outcome;
use super::open::{Create, open_to_read};
use super::output::{Format, Output, TableArgs, counted, print, write_cells};
use super::progress::Progress;
use super::writer::Writer;
use crate::db::{ClosedGate, Moved};
use crate::json::exec::{key_range, put_gate};
use crate::json::{self, Object};
use crate::query::KeyRange;
use crate::table::GateMode;

/// A range of keys; the whole table by default.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct KeyArgs {
    /// Only this partition
    #[arg(long, value_name = "PARTITION_KEY", conflicts_with_all = ["from_partition", "to_partition"])]
    partition: Option<String>,
    /// Within the partition, only RowKeys from this one on
    #[arg(long, value_name = "ROW_KEY", requires = "partition")]
    from: Option<String>,
    /// Within the partition, only RowKeys before this one
    #[arg(long, value_name = "ROW_KEY", requires = "partition")]
    to: Option<String>,
    /// Only partitions from this one on
    #[arg(long, value_name = "PARTITION_KEY")]
    from_partition: Option<String>,
    /// Only partitions before this one
    #[arg(long, value_name = "PARTITION_KEY")]
    to_partition: Option<String>,
}

/// Block writes, or writes and reads, of a range of keys, durably.
#[derive(Args)]
#[command(after_long_help = GATE_HELP)]
pub(super) struct Gate {
    #[command(subcommand)]
    command: GateCommand,
}

const GATE_HELP: &str = "\
A blocked operation returns ServerBusy and changes nothing. A gate stays closed, also after the
database is opened again, until it is lifted with the same range or its table is dropped.

Examples:
  rowstone gate set shop parts --mode read-only \\
      --from-partition m --to-partition n
  rowstone gate list shop
  rowstone gate lift shop parts --from-partition m --to-partition n";

#[derive(Subcommand)]
enum GateCommand {
    /// Close a gate
    Set {
        /// The database
        db: PathBuf,
        /// The table
        table: String,
        /// Which operations to block
        #[arg(long, value_enum, default_value_t = GateMode::ReadOnly)]
        mode: GateMode,
        #[command(flatten)]
        keys: KeyArgs,
    },
    /// Reopen a gate
    Lift {
        /// The database
        db: PathBuf,
        /// The table
        table: String,
        #[command(flatten)]
        keys: KeyArgs,
    },
    /// List the closed gates
    List {
        /// The database
        db: PathBuf,
        #[command(flatten)]
        format: TableArgs,
    },
}

/// Copy a range of keys, with its ETags, into a new database.
#[derive(Args)]
#[command(after_long_help = EXPORT_HELP)]
pub(super) struct ExportRange {
    /// The database
    db: PathBuf,
    /// The table
    table: String,
    /// The new database: a directory that is missing or empty
    target: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
}

const EXPORT_HELP: &str = "\
The new database is an ordinary one with this table. `import-range` takes it into another.
Close a gate first, so that nothing is written behind the copy: docs/SEMANTICS.md has the
whole procedure.

Example:
  rowstone export-range shop parts moving --from-partition m --to-partition n";

/// Load another database, with its ETags, into a table.
///
/// Such as one made by export-range. Entities keep their ETags and Timestamps.
#[derive(Args)]
#[command(after_long_help = IMPORT_HELP)]
pub(super) struct ImportRange {
    /// The target database, created if it is missing
    db: PathBuf,
    /// The table, created if it is missing
    table: String,
    /// The source database
    source: PathBuf,
}

const IMPORT_HELP: &str = "\
All of its entities come in at once, or none. The table must have none between the first and
the last of them.

Example:
  rowstone import-range other parts moving";

impl KeyArgs {
    /// The arguments that select a range of keys. `from` and `to` are not listed, because they
    /// require `partition`.
    pub(super) const NAMES: [&str; 3] = ["partition", "from_partition", "to_partition"];

    /// True if any of these arguments was given.
    pub(super) fn is_given(&self) -> bool {
        self.partition.is_some() || self.from_partition.is_some() || self.to_partition.is_some()
    }

    pub(super) fn range(&self) -> KeyRange {
        let [partition, from, to, low, high] = self.members().map(|(_, key)| key);
        key_range(partition, [from, to], [low, high])
    }

    /// Returns a filter that matches the range; empty for the whole table.
    #[cfg(feature = "remote")]
    pub(super) fn filter(&self) -> String {
        use crate::store::pages::quoted;
        let [partition, from, to, low, high] = self.members().map(|(_, key)| key);
        let terms = [
            ("PartitionKey eq", partition),
            ("RowKey ge", from),
            ("RowKey lt", to),
            ("PartitionKey ge", low),
            ("PartitionKey lt", high),
        ];
        let terms =
            terms.iter().filter_map(|(term, key)| Some(format!("{term} {}", quoted((*key)?))));
        terms.collect::<Vec<_>>().join(" and ")
    }

    /// Adds the members that describe the range to a request.
    pub(super) fn put(&self, object: &mut Object<'_>) {
        for (name, key) in self.members() {
            if let Some(key) = key {
                object.text(name, key);
            }
        }
    }

    fn members(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("partition", self.partition.as_deref()),
            ("from", self.from.as_deref()),
            ("to", self.to.as_deref()),
            ("from_partition", self.from_partition.as_deref()),
            ("to_partition", self.to_partition.as_deref()),
        ]
    }
}

impl Gate {
    pub(super) fn run(self) -> Outcome {
        let (op, db, table, mode, keys) = match &self.command {
            GateCommand::Set { db, table, mode, keys } => ("gate", db, table, Some(mode), keys),
            GateCommand::Lift { db, table, keys } => ("lift_gate", db, table, None, keys),
            GateCommand::List { db, format } => return list_gates(db, *format),
        };
        let db = Writer::open(db, Create::Never)?;
        db.ask(op, |request| {
            request.text("table", table);
            mode.iter().for_each(|mode| request.text("mode", mode.as_str()));
            keys.put(request);
        })?;
        db.close()
    }
}

fn list_gates(path: &Path, format: TableArgs) -> Outcome {
    let db = open_to_read(path)?;
    let gates = db.gates()?;
    format.print(|output| write_gates(output, &gates, format.get()))?;
    Ok(db.close()?)
}

fn write_gates(output: &mut Output, gates: &[ClosedGate], format: Format) -> io::Result<()> {
    let json = |gate: &ClosedGate| json::object(|object| put_gate(object, gate));
    match format {
        Format::Table if gates.is_empty() => Ok(()),
        Format::Table | Format::Csv => {
            let row = |gate: &ClosedGate| {
                vec![gate.table.clone(), gate.mode.to_string(), gate.range.to_string()]
            };
            let (columns, rows) = (["table", "mode", "range"], gates.iter().map(row).collect());
            write_cells(output, &columns, rows, Vec::new(), format)
        }
        Format::Ndjson => gates.iter().try_for_each(|gate| output.json(&json(gate))),
        Format::Json => output.json(&json::array(gates.iter().map(json))),
    }
}

impl ExportRange {
    pub(super) fn run(self) -> Outcome {
        let db = Writer::open(&self.db, Create::Never)?;
        let path = db.path(&self.target)?;
        let put = |request: &mut Object<'_>| {
            request.text("table", &self.table);
            request.text("path", &path);
            self.keys.put(request);
        };
        let moved = Progress::during("rows", None, |bar| {
            db.ask_with("export_range", put, |rows, _| bar.reach(rows))
        })?;
        tell("exported", &moved.moved())?;
        db.close()
    }
}

impl ImportRange {
    pub(super) fn run(self) -> Outcome {
        let db = Writer::open(&self.db, Create::IfMissing)?;
        let path = db.path(&self.source)?;
        let put = |request: &mut Object<'_>| {
            request.text("table", &self.table);
            request.text("path", &path);
        };
        let moved = Progress::during("rows", None, |bar| {
            db.ask_with("import_range", put, |rows, _| bar.reach(rows))
        })?;
        tell("imported", &moved.moved())?;
        db.close()
    }
}

pub(super) fn tell(done: &str, moved: &Moved) -> Outcome {
    let entities = counted(moved.entities, "entity", "entities");
    let files = counted(moved.files, "file", "files");
    let bytes = counted(moved.bytes, "byte", "bytes");
    print(|output| output.fold("", &format!("{done} {entities} in {files} of {bytes}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: [Option<&str>; 5], expected: &str) {
        let [partition, from, to, from_partition, to_partition] =
            arguments.map(|text| text.map(str::to_owned));
        let keys = KeyArgs { partition, from, to, from_partition, to_partition };
        assert_eq!(keys.range().to_string(), expected);
    }

    #[test]
    fn arguments_are_ranges_of_keys() {
        check([None; 5], "(start … end)");
        check([Some("p"), None, None, None, None], "['p' … 'p']");
        check([Some("p"), Some("a"), None, None, None], "['p', 'a' … 'p']");
        check([Some("p"), Some("a"), Some("b"), None, None], "['p', 'a' … 'p', 'b')");
        check([None, None, None, Some("m"), None], "['m' … end)");
        check([None, None, None, Some("m"), Some("n")], "['m' … 'n')");
    }
}
