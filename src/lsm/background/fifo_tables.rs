//! Tables whose oldest files are dropped near the limit on disk use, and what was dropped of them.
//!
//! Not here: which files, and the drop (`fifo_eviction`).

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::names::TableId;
#[cfg(feature = "sim")]
use crate::model::Seq;
use crate::model::check_table_name;
use crate::options::{OnFull, Options};
use crate::sync::{ArcSwap, AtomicBool, AtomicU64, Mutex, Ordering};

use crate::lsm::write::batch::Gate;

/// The tables, and what they gave.
pub(crate) struct FifoEviction {
    pub(super) tables: ArcSwap<Vec<Arc<Gate>>>,
    /// The tables of before are known, too: until then none is merged, for it might be one of these.
    pub(super) is_known: AtomicBool,
    /// They had nothing to give when they were asked last.
    pub(super) is_spent: AtomicBool,
    /// Held by who drops.
    pub(in crate::lsm) dropping: Mutex<()>,
    /// Since opening.
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// For simulations, which take them out.
    #[cfg(feature = "sim")]
    pub(super) evicted: Mutex<Vec<Evicted>>,
}

/// One eviction, for simulations.
#[cfg(feature = "sim")]
#[derive(Clone, Debug)]
pub(crate) struct Evicted {
    pub(crate) tables: Vec<TableId>,
    pub(crate) below: Seq,
    /// Its commit; `None` while, and if, nobody knows whether there is one.
    pub(crate) seq: Option<Seq>,
}

impl FifoEviction {
    /// # Errors
    /// `InvalidInput` for tables without a limit that they could give room below.
    pub(in crate::lsm) fn begin(options: &Options) -> Result<FifoEviction> {
        let is_asked = options.on_full != OnFull::Refuse;
        if is_asked && options.max_disk.is_none() {
            let problem = "Options::on_full says what goes near a limit, and there is none: set Options::max_disk, too";
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

    /// How many files and bytes went.
    pub(in crate::lsm) fn figures(&self) -> [u64; 2] {
        [&self.files, &self.bytes].map(|count| count.load(Ordering::Relaxed))
    }

    pub(in crate::lsm) fn is_empty(&self) -> bool {
        self.tables.load().is_empty()
    }

    /// True if others have to make room: merges, by taking out what was deleted.
    pub(in crate::lsm) fn is_spent(&self) -> bool {
        self.is_empty() || self.is_spent.load(Ordering::Acquire)
    }

    pub(super) fn has(&self, table: TableId) -> bool {
        self.tables.load().iter().any(|gate| gate.table == table)
    }
}
