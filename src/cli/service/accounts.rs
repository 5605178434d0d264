//! Reads the file of accounts for `serve` and `sas`.
//!
//! `rest::accounts` defines the format of the file.

use std::io::{self, Read};
use std::path::Path;

use crate::cli::failure::{Failure, Outcome};
use crate::cli::files::open_path;
use crate::rest::accounts::AccountConfig;

/// Reads a file of accounts.
pub(super) fn read_accounts(path: &Path) -> Outcome<Vec<AccountConfig>> {
    let base = path.parent().unwrap_or(Path::new(""));
    let read = AccountConfig::read_list(&read_text(path)?, base);
    read.map_err(|problem| Failure::Usage(format!("{}: {problem}", path.display())))
}

/// Reads the text of a small file, such as a configuration.
pub(super) fn read_text(path: &Path) -> Outcome<String> {
    /// The limit is far above the size of any file written by hand.
    const BYTES_MAX: u64 = 16 << 20;
    let failed =
        |error: io::Error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
    let file = open_path(path).map_err(failed)?;
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
