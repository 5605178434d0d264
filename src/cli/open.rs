//! Opening the database that a command is given, and the options that commands share.

use std::path::PathBuf;

use clap::ValueEnum;

use super::failure::{Failure, Outcome};
use crate::db::Db;
use crate::error::ErrorKind;
use crate::options::{Durability, IoMode, OnFull, Options};

/// What a write survives once it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DurabilityName {
    /// A power cut
    Sync,
    /// The end of the process, not a power cut
    Os,
    /// Nothing, until the database is closed
    Buffered,
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Sync => Durability::Sync,
            DurabilityName::Os => Durability::Os,
            DurabilityName::Buffered => Durability::Buffered,
        }
    }
}

/// How the files of tables are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum IoName {
    /// Mapped into memory
    Mmap,
    /// Read through a cache
    Pread,
}

impl From<IoName> for IoMode {
    fn from(name: IoName) -> Self {
        match name {
            IoName::Mmap => IoMode::Mmap,
            IoName::Pread => IoMode::Pread,
        }
    }
}

/// Whether a command may create the database that it is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Create {
    IfMissing,
    Never,
}

pub(super) fn open(path: &PathBuf, create: Create) -> Outcome<Db> {
    open_durable(path, create, DurabilityName::Sync)
}

/// Opens a database to read it: beside a process that writes it, as of what is durable now.
pub(super) fn open_to_read(path: &PathBuf) -> Outcome<Db> {
    match open(path, Create::Never) {
        Err(Failure::Open(error)) if error.kind() == ErrorKind::Locked => {
            Db::open_read_only(path).map_err(Failure::Open)
        }
        opened => opened,
    }
}

pub(super) fn open_durable(
    path: &PathBuf,
    create: Create,
    durability: DurabilityName,
) -> Outcome<Db> {
    open_with(Db::options(), path, create, durability)
}

pub(super) fn open_with(
    options: Options,
    path: &PathBuf,
    create: Create,
    durability: DurabilityName,
) -> Outcome<Db> {
    keeping(options)
        .durability(durability.into())
        .create_if_missing(create == Create::IfMissing)
        .open(path)
        .map_err(Failure::Open)
}

/// A command in between is no reason to lose what a server keeps for consumers of changes.
pub(super) fn keeping(options: Options) -> Options {
    Options { keep_changes_on: true, ..options }
}

/// What is dropped near a limit on disk use.
pub(super) fn on_full(drop_oldest: &[String]) -> OnFull {
    match drop_oldest {
        [] => OnFull::Refuse,
        tables => OnFull::DropOldest(tables.to_vec()),
    }
}
