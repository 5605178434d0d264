//! Names the engines, and opens them.
//!
//! Owns: [`Engine`]. Only this file names all implementations of `Store`.
//! Not here: an engine's settings, which are in its own file with their reasons.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
pub mod rowstone;
#[cfg_attr(
    not(all(feature = "fjall", feature = "lmdb")),
    expect(dead_code, reason = "each part is for some of the engines")
)]
mod shared;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(test)]
mod conformance;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::store::{Encoding, Setup, Store};

/// A measured engine.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    Rowstone,
    #[value(name = "rocksdb")]
    RocksDb,
    Fjall,
    Lmdb,
    Redb,
    Sqlite,
}

/// The description of an engine in reports.
pub struct About {
    pub name: &'static str,
    pub version: &'static str,
    /// The settings with their reasons: one sentence each.
    pub settings: &'static [&'static str],
}

impl Engine {
    pub const ALL: [Engine; 6] = [
        Engine::Rowstone,
        Engine::RocksDb,
        Engine::Fjall,
        Engine::Lmdb,
        Engine::Redb,
        Engine::Sqlite,
    ];

    /// Returns the encodings of the engine's entities. The first is the fastest, which users of the
    /// engine would choose.
    pub fn encodings(self) -> &'static [Encoding] {
        match self {
            Engine::Rowstone => &[Encoding::Native],
            Engine::Sqlite => &[Encoding::Native, Encoding::Json],
            _ => &[Encoding::Binary, Encoding::Named, Encoding::Json],
        }
    }

    /// True if this build includes the engine.
    pub fn is_built(self) -> bool {
        match self {
            Engine::Rowstone => true,
            Engine::RocksDb => cfg!(feature = "rocksdb"),
            Engine::Fjall => cfg!(feature = "fjall"),
            Engine::Lmdb => cfg!(feature = "lmdb"),
            Engine::Redb => cfg!(feature = "redb"),
            Engine::Sqlite => cfg!(feature = "sqlite"),
        }
    }

    pub fn about(self) -> About {
        match self {
            Engine::Rowstone => rowstone::ABOUT,
            #[cfg(feature = "rocksdb")]
            Engine::RocksDb => rocksdb::ABOUT,
            #[cfg(feature = "fjall")]
            Engine::Fjall => fjall::ABOUT,
            #[cfg(feature = "lmdb")]
            Engine::Lmdb => lmdb::ABOUT,
            #[cfg(feature = "redb")]
            Engine::Redb => redb::ABOUT,
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => sqlite::ABOUT,
            #[cfg(not(feature = "peers"))]
            _ => About { name: self.name(), version: "", settings: &[] },
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Engine::Rowstone => "rowstone",
            Engine::RocksDb => "rocksdb",
            Engine::Fjall => "fjall",
            Engine::Lmdb => "lmdb",
            Engine::Redb => "redb",
            Engine::Sqlite => "sqlite",
        }
    }
}

/// Opens the database of `engine` in `setup.dir`, or creates it.
pub fn open(engine: Engine, setup: &Setup<'_>) -> Box<dyn Store> {
    match engine {
        Engine::Rowstone => rowstone::open(setup),
        #[cfg(feature = "rocksdb")]
        Engine::RocksDb => rocksdb::open(setup),
        #[cfg(feature = "fjall")]
        Engine::Fjall => fjall::open(setup),
        #[cfg(feature = "lmdb")]
        Engine::Lmdb => lmdb::open(setup),
        #[cfg(feature = "redb")]
        Engine::Redb => redb::open(setup),
        #[cfg(feature = "sqlite")]
        Engine::Sqlite => sqlite::open(setup),
        #[cfg(not(feature = "peers"))]
        _ => panic!("{} is not built in", engine.name()),
    }
}
