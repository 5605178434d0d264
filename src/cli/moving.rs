//! Implements the commands that move a range of keys: `gate`, `export-range`, `import-range`.
//!
//! `compare` compares the moved range with the original.

use std::io::{self, Write};
use std::ops::Bound;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::failure::Outcome;
use super::open::{Create, open, open_to_read};
use super::output::{Format, Output, print, with_thousands};
use super::progress::Progress;
use crate::db::{ClosedGate, Moved};
use crate::json;
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
  rowstone gate set shop parts --mode read-only --from-partition m --to-partition n
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
        /// How to print the list
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
    },
}

/// Copy a range of keys into a new database, with ETags and Timestamps.
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

/// Load another database, such as one made by export-range, into a table, with ETags and
/// Timestamps.
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
        match &self.partition {
            Some(partition) if self.from.is_none() && self.to.is_none() => {
                KeyRange::partition(partition)
            }
            Some(partition) => KeyRange::rows(partition, between(&self.from, &self.to)),
            None => KeyRange::partitions(between(&self.from_partition, &self.to_partition)),
        }
    }
}

fn between<'k>(
    from: &'k Option<String>,
    to: &'k Option<String>,
) -> (Bound<&'k str>, Bound<&'k str>) {
    let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
    (from, to.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
}

impl Gate {
    pub(super) fn run(self) -> Outcome {
        let db = match &self.command {
            GateCommand::Set { db, .. } | GateCommand::Lift { db, .. } => open(db, Create::Never)?,
            GateCommand::List { db, .. } => open_to_read(db)?,
        };
        match &self.command {
            GateCommand::Set { table, mode, keys, .. } => db.gate(table, keys.range(), *mode)?,
            GateCommand::Lift { table, keys, .. } => db.lift_gate(table, keys.range())?,
            GateCommand::List { format, .. } => {
                let gates = db.gates()?;
                print(|output| write_gates(output, &gates, *format))?;
            }
        }
        Ok(db.close()?)
    }
}

fn write_gates(output: &mut Output, gates: &[ClosedGate], format: Format) -> io::Result<()> {
    let json = |gate: &ClosedGate| {
        json::object(|object| {
            object.text("table", &gate.table);
            object.text("mode", gate.mode.as_str());
            object.text("range", &gate.range.to_string());
        })
    };
    let width = gates.iter().map(|gate| gate.table.len()).max().unwrap_or(0);
    match format {
        Format::Table => gates.iter().try_for_each(|gate| {
            writeln!(output, "{:width$}  {:8}  {}", gate.table, gate.mode.as_str(), gate.range)
        }),
        Format::Csv => {
            writeln!(output, "TableName,Mode,Range")?;
            gates.iter().try_for_each(|gate| {
                let range = gate.range.to_string().replace('"', "\"\"");
                writeln!(output, "{},{},\"{range}\"", gate.table, gate.mode)
            })
        }
        Format::Ndjson => gates.iter().try_for_each(|gate| writeln!(output, "{}", json(gate))),
        Format::Json => writeln!(output, "{}", json::array(gates.iter().map(json))),
    }
}

impl ExportRange {
    pub(super) fn run(self) -> Outcome {
        let db = open(&self.db, Create::Never)?;
        let moved = Progress::during("rows", None, |bar| {
            let reach = |rows| bar.reach(rows);
            db.export_range_with(&self.table, self.keys.range(), &self.target, reach)
        })?;
        tell("exported", &moved)?;
        Ok(db.close()?)
    }
}

impl ImportRange {
    pub(super) fn run(self) -> Outcome {
        let db = open(&self.db, Create::IfMissing)?;
        let moved = Progress::during("rows", None, |bar| {
            db.import_range_with(&self.source, &self.table, |rows| bar.reach(rows))
        })?;
        tell("imported", &moved)?;
        Ok(db.close()?)
    }
}

pub(super) fn tell(done: &str, moved: &Moved) -> Outcome {
    let [entities, files, bytes] = [moved.entities, moved.files, moved.bytes].map(with_thousands);
    print(|output| writeln!(output, "{done} {entities} entities in {files} files of {bytes} bytes"))
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
