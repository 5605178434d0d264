//! `wear`: shows the bytes that a database has written to its medium since its creation, by cause,
//! and in flash pages.
//!
//! `format::edit::wear` records these bytes. `stats` shows counters since opening.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::failure::Outcome;
use super::open::open_to_read;
use super::open::read_bytes;
use super::output::{Format, Output, TableArgs, with_thousands, write_cells};
use crate::format::edit::Wear;
use crate::json::{self, Object};

/// Show the bytes written to the medium since creation, by cause.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct WearCommand {
    /// The database
    db: PathBuf,
    /// The smallest write of the medium in bytes: a power of two from 512 to 1m
    #[arg(long, value_name = "BYTES", default_value = "16k", value_parser = read_page_size)]
    page_size: u64,
    #[command(flatten)]
    format: TableArgs,
}

const HELP: &str = "\
The counters are kept in the manifest across restarts. This command only reads them, also while
another process writes: exact after each close, otherwise as of the last flush or merge.

asked for: keys and rows as they are encoded. The last line is an estimate for a medium that can
only write whole pages: each sync writes every page with new bytes. It excludes writes of the
file system itself, and data that flash moves to erase blocks. A longer window
(Options::max_commit_delay) makes fewer syncs, and the estimate smaller.

Examples:
  rowstone wear shop
  rowstone wear shop --page-size 4096
  rowstone wear shop --page-size 32k --format json";

impl WearCommand {
    pub(super) fn run(self) -> Outcome {
        let db = open_to_read(&self.db)?;
        let wear = db.wear();
        self.format.print(|output| match self.format.get() {
            Format::Table => Ok(self.write_table(output, &wear)?),
            format => output.records(&[json::object(|object| self.put(object, &wear))], format),
        })?;
        Ok(db.close()?)
    }

    fn write_table(&self, output: &mut Output, wear: &Wear) -> io::Result<()> {
        let by = |bytes: u64| match wear.user_bytes {
            0 => String::new(),
            user => format!("{:.2}", bytes as f64 / user as f64),
        };
        let syncs = |of: &str| match of {
            "log" => wear.log_syncs,
            "manifest" => wear.manifest_syncs,
            "copy" => wear.copy_syncs,
            _ => 0,
        };
        let row = |what: &str, bytes: u64, syncs: u64| {
            let syncs = if syncs == 0 { String::new() } else { with_thousands(syncs) };
            vec![what.to_owned(), with_thousands(bytes), by(bytes), syncs]
        };
        let mut rows = vec![row("asked for", wear.user_bytes, 0)];
        rows.extend(wear.causes().map(|(cause, bytes)| row(cause, bytes, syncs(cause))));
        // Syncs of table files are not counted by cause, so this row shows those of flushes,
        // compactions and imports together. The rows above show the bytes of each cause.
        rows.push(row("tables, all", table_bytes(wear), wear.table_syncs));
        rows.push(row("directories", 0, wear.directory_syncs));
        rows.push(row("written", wear.written(), wear.syncs()));
        let pages = format!("in pages of {}", with_thousands(self.page_size));
        rows.push(row(&pages, wear.flash_bytes(self.page_size), 0));
        let columns = ["cause", "bytes", "for each asked", "syncs"];
        write_cells(output, &columns, rows, vec![false, true, true, true], Format::Table)
    }

    fn put(&self, object: &mut Object<'_>, wear: &Wear) {
        object.raw("user_bytes", wear.user_bytes);
        for (cause, bytes) in wear.causes() {
            object.raw(&format!("{cause}_bytes"), bytes);
        }
        object.raw("written_bytes", wear.written());
        object.raw("log_syncs", wear.log_syncs);
        object.raw("table_syncs", wear.table_syncs);
        object.raw("manifest_syncs", wear.manifest_syncs);
        object.raw("copy_syncs", wear.copy_syncs);
        object.raw("directory_syncs", wear.directory_syncs);
        object.raw("writes", wear.writes);
        object.raw("page_size", self.page_size);
        object.raw("flash_bytes", wear.flash_bytes(self.page_size));
    }
}

fn table_bytes(wear: &Wear) -> u64 {
    wear.flush_bytes.saturating_add(wear.compaction_bytes).saturating_add(wear.import_bytes)
}

/// Parses a page size, such as `512`, `16k` or `1m`.
fn read_page_size(text: &str) -> Result<u64, String> {
    read_bytes(text)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (512..=1 << 20).contains(bytes))
        .ok_or_else(|| "a power of two from 512 to 1m is wanted, as 4096 or 16k".to_owned())
}

#[test]
fn page_sizes_are_powers_of_two() {
    assert_eq!(read_page_size("16k"), Ok(16 << 10));
    assert_eq!(read_page_size("512"), Ok(512));
    assert_eq!(read_page_size("1M"), Ok(1 << 20));
    for wrong in ["", "k", "0", "256", "3000", "2m", "-1", "18446744073709551615m"] {
        assert!(read_page_size(wrong).is_err(), "{wrong}");
    }
}
