//! The options of `copy` that a Table service has.

use std::path::PathBuf;

use clap::Args;

use crate::cli::billing::PriceArgs;
use crate::cli::failure::{Failure, Outcome};

/// The options of a copy from or to a Table service.
#[derive(Args)]
pub(in crate::cli) struct StoreArgs {
    /// Save the position in this file, and continue from it when the command is repeated; removed
    /// at the end (with a Table service)
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<PathBuf>,
    /// Count entities, and what a Table service bills for the copy; write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Send this many requests at once (with a Table service) [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) workers: Option<u8>,
    #[command(flatten)]
    pub(super) prices: PriceArgs,
}

impl StoreArgs {
    /// Refuses the options that are for services only.
    pub(super) fn refuse(&self) -> Outcome {
        if self.prices.is_given() {
            let text = "--prices is for a copy from or to a Table service: a directory has no bill";
            return Err(Failure::Usage(text.to_owned()));
        }
        if self.dry_run || self.state.is_none() && self.workers.is_none() {
            return Ok(());
        }
        let text = "--state and --workers are for a copy from or to a Table service; between \
                    directories repeat the command";
        Err(Failure::Usage(text.to_owned()))
    }
}
