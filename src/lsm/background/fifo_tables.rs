//! The tables that drop their oldest files near the limit on disk use, and totals of the dropped
//! files.
//!
//! `fifo_eviction` chooses and drops the files.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::names::TableId;
#[cfg(feature = "sim")]
use crate::model::Seq;
use crate::model::check_table_name;
use crate::options::{OnFull, Options};
use crate::sync::{ArcSwap, AtomicBool, AtomicU64, Mutex, Ordering};

use crate::lsm::write::batch::Gate;

/// The tables under FIFO eviction, and totals of dropped files.
pub(crate) struct FifoEviction {
    pub(super) tables: ArcSwap<Vec<Arc<Gate>>>,
    /// True once the tables under FIFO eviction are known. Until then no table is compacted,
    /// because an ordinary compaction would mix old and new rows of such a table in one file.
    pub(super) is_known: AtomicBool,
    /// True if the tables under FIFO eviction had nothing to drop at the last attempt.
    pub(super) is_spent: AtomicBool,
    /// Held by the thread that drops files.
    pub(in crate::lsm) dropping: Mutex<()>,
    /// Totals since opening.
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Evictions recorded for simulations and not yet returned by `take_evicted`.
    #[cfg(feature = "sim")]
    pub(super) evicted: Mutex<Vec<Evicted>>,
}

/// An eviction, as recorded for simulations.
#[cfg(feature = "sim")]
#[derive(Clone, Debug)]
pub(crate) struct Evicted {
    pub(crate) tables: Vec<TableId>,
    pub(crate) below: Seq,
    /// The Seq of the commit that hid the rows; `None` until the commit is known to exist.
    pub(crate) seq: Option<Seq>,
}

impl FifoEviction {
    /// Reads the names of the tables from the options.
    ///
    /// # Errors
    /// `InvalidInput` for `on_full` without a limit on disk use, and for an invalid table name.
    pub(in crate::lsm) fn begin(options: &Options) -> Result<FifoEviction> {
        let is_asked = options.on_full != OnFull::Refuse;
        if is_asked && options.max_disk.is_none() {
            let problem =
                "Options::on_full requires a limit on disk use: set Options::max_disk, too";
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        if let OnFull::DropOldest(names) = &options.on_full {
            names.iter().try_for_each(|name| check_table_name(name))?;
        }
        Ok(FifoEviction {
            tables: ArcSwap::from_pointee(Vec::new()),
            is_known: AtomicBool::new(!is_asked),
            is_spent: AtomicBool::new(false),
            dropping: Mutex::new(()),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            #[cfg(feature = "sim")]
            evicted: Mutex::new(Vec::new()),
        })
    }

    /// Returns the number of dropped files and their total size in bytes.
    pub(in crate::lsm) fn figures(&self) -> [u64; 2] {
        [&self.files, &self.bytes].map(|count| count.load(Ordering::Relaxed))
    }

    pub(in crate::lsm) fn is_empty(&self) -> bool {
        self.tables.load().is_empty()
    }

    /// True if the tables under FIFO eviction had nothing to drop at the last attempt, so that
    /// merges must free space by dropping deleted entries.
    pub(in crate::lsm) fn is_spent(&self) -> bool {
        self.is_empty() || self.is_spent.load(Ordering::Acquire)
    }

    pub(super) fn has(&self, table: TableId) -> bool {
        self.tables.load().iter().any(|gate| gate.table == table)
    }
}
