//! Folds the changes of a table into another table, exactly once.
//!
//! A view row is a sum of contributions. The contributions of a source row to a view partition are
//! stored in that partition, and one group replaces them and the sums: it subtracts what is stored
//! and adds what the source row contributes now. So applying a state twice changes nothing.
//! `docs/ARCHITECTURE.md` explains the protocol.
//!
//! Files: `start` (takes over), `follow` (reads, folds and applies commits), `ranges` (rows that
//! the feed does not list), `window`, `apply` (states of rows), `sums`, `index`, `mark` (guards).

mod apply;
mod follow;
mod index;
mod mark;
mod ranges;
mod start;
mod sums;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

use self::index::Tables;
use self::mark::Runner;
use crate::db::Position;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Entity;
use crate::store::source::Feed;
pub use crate::store::source::{Lag, Source};
use crate::store::table_store::TableStore;

/// A view: a table that contains sums over the rows of a source table, and follows its changes.
///
/// The *fold* is a function of one source row. It returns the row's contributions: entities with
/// the keys of view rows. A view row is the sum of all contributions with its keys:
/// * each property is an `Int32` or an `Int64`, and its sum is an `Int64`. Other types are refused,
///   because a sum of doubles is not exact after a subtraction: scale them, as to cents;
/// * a row has the properties of its present contributions. A property `N` that some of them do not
///   have is counted by `Rows_N`;
/// * `Rows` is the number of contributions. A view row without contributions is deleted.
///
/// This one form covers the usual views, because a sum can be subtracted when a source row changes:
/// * sum and count by a key: contribute the numbers to the row of the key;
/// * an index by another property: contribute to the partition of the property's value a row with
///   the source row's key. It then has one contribution and equals it. Texts and doubles are read
///   from the source row;
/// * the latest by a key: contribute to the key's partition a row whose RowKey is the
///   [reversed time](crate::keys::reverse_date). The first row is the latest, and the next one
///   takes its place when the latest is deleted. A maximum alone could not be undone.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::view::{Source, View};
/// use rowstone::{Db, Entity};
/// let db = Db::open_in_memory()?;
/// let flights = db.create_table("flights")?;
/// let flight = |row, origin, delay| {
///     Entity::new("UA", row).with("Origin", origin).with("Delay", delay)
/// };
/// flights.insert(flight("1545", "EWR", 2))?;
/// flights.insert(flight("1714", "LGA", 4))?;
/// let mut delays = View::new(Source::Db(db.clone()), "flights", &db, "delays", |flight| {
///     let row = Entity::new(flight.get::<&str>("Origin")?, "total");
///     Ok(vec![row.with("Delay", flight.get::<i32>("Delay")?)])
/// });
/// delays.catch_up()?;
/// flights.upsert(flight("1714", "EWR", 3))?;
/// delays.catch_up()?;
/// let total = db.table("delays")?.get("EWR", "total")?.expect("two flights");
/// assert_eq!((total.get::<i64>("Delay")?, total.get::<i64>("Rows")?), (5, 2));
/// assert!(db.table("delays")?.get("LGA", "total")?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// **Exactly once.** A runner may be killed at any time, answers may be lost, and another runner
/// may take over: when [`catch_up`](Self::catch_up) returns, each source row counts once, in its
/// state of the call or in a later one. A view partition changes atomically in groups, but the
/// partitions follow one after another, and a later state may be there before an earlier one of
/// another row.
///
/// **Kept changes.** Open the source with [`keep_changes`](crate::Options::keep_changes), or with
/// `serve --keep-changes`. Otherwise a call often finds that changes are no longer kept, and
/// compares all source rows with the view. A call compares them at most once, and fails with `Busy`
/// if the changes during the comparison are no longer kept either.
///
/// **Stored rows.** The table of the view also has the contributions and a position for each of its
/// partitions, with RowKeys that begin with `~`. The filter `Rows ge 1` selects the view rows, and
/// `RowKey lt '~'` reads only them if their keys are ASCII. A second table, whose name ends in
/// `index`, lists the view partitions of each source row. No other program may write these tables.
/// To start the view again, stop all runners and delete both. A call refuses tables of something
/// else, and of a view of another source table.
///
/// **Limits.** The fold must observe the first four; the next call repeats the error.
///
/// | limit | |
/// | --- | --- |
/// | rows of a view partition to which a source row contributes | 49 |
/// | properties of these contributions together, and one more for each | 252 |
/// | names of the view partitions to which a source row contributes, together | 8,000 characters |
/// | the two keys of a source row that contributes, together | about 1,010 characters |
/// | the view rows of a partition to which a source row contributes | 4 MiB |
/// | a sum after a group of changes | an `Int64` |
/// | properties of a view row: sums, their counts `Rows_N`, and `Rows` | 252 |
pub struct View<'s> {
    source: Source,
    table: String,
    target: &'s dyn TableStore,
    view: String,
    index: String,
    fold: Box<Fold<'s>>,
    is_rebuilt: bool,
    /// The last saved position, and the feed after it; `None` before the start.
    running: Option<Running<'s>>,
}

/// The error of a comparison whose changes were lost.
const NOT_KEPT: &str = "the source has not kept the changes during the comparison of all rows: open it with \
     `keep_changes`, or call again when it is at rest";

/// Returns the contributions of a source row.
type Fold<'s> = dyn Fn(&Entity) -> Result<Vec<Entity>> + Send + 's;

/// A runner that owns the view.
struct Running<'s> {
    runner: Runner<'s>,
    /// `None` if all source rows must be compared.
    feed: Option<Box<dyn Feed>>,
    /// The position up to which everything is applied.
    reached: Position,
    /// The commits that were read since the checkpoint.
    commits: usize,
}

impl<'s> View<'s> {
    /// Creates a view of the table `table` of a source in the table `view` of a store, which may be
    /// the source itself. Nothing is read or written yet. A view whose fold has changed must be
    /// [rebuilt](Self::rebuild).
    pub fn new(
        source: Source,
        table: impl Into<String>,
        target: &'s dyn TableStore,
        view: impl Into<String>,
        fold: impl Fn(&Entity) -> Result<Vec<Entity>> + Send + 's,
    ) -> Self {
        let (table, view): (String, String) = (table.into(), view.into());
        let (index, fold) = (format!("{view}index"), Box::new(fold));
        let (is_rebuilt, running) = (false, None);
        Self { source, table, target, view, index, fold, is_rebuilt, running }
    }

    /// Makes the next [`catch_up`](Self::catch_up) compare all source rows with the view, which
    /// corrects what differs. This is needed after a change of the fold, and after a restore or a
    /// repair of the source.
    pub fn rebuild(&mut self) {
        (self.is_rebuilt, self.running) = (true, None);
    }

    /// Returns the position up to which the view has all changes; `None` before the first success
    /// of [`catch_up`](Self::catch_up).
    pub fn position(&self) -> Option<Position> {
        self.running.as_ref().map(|running| running.reached)
    }

    /// Applies all commits of the source before this call. Creates the tables of the view if they
    /// do not exist. Returns the position that was reached; it may be called again after an error.
    ///
    /// The first call takes the view over from an earlier runner. If the changes since its last
    /// position are no longer kept, or if the table of the view was deleted, all source rows are
    /// compared.
    ///
    /// # Errors
    /// * `ChangesLost` if the source was restored, repaired or set back: [`rebuild`](Self::rebuild)
    ///   the view;
    /// * `Locked` if a later runner has taken over;
    /// * `Busy` if the source does not keep its changes as long as a comparison takes;
    /// * `InvalidInput` if the fold exceeds a [limit](Self), returns a property that is no integer,
    ///   a RowKey that begins with `~`, or a property `Rows` or `Rows_…`; and for tables that are
    ///   not of this view;
    /// * those of the fold, of the source and of the target.
    pub fn catch_up(&mut self) -> Result<Position> {
        let done = self.advance();
        if done.is_err() {
            self.running = None;
        }
        done
    }

    /// Waits for commits of the source, for `at_most` at the most. Returns at once before the first
    /// [`catch_up`](Self::catch_up).
    ///
    /// # Errors
    /// `Io`.
    pub fn wait(&mut self, at_most: Duration) -> Result<()> {
        let feed = self.running.as_mut().and_then(|running| running.feed.as_mut());
        feed.map_or(Ok(()), |feed| feed.wait(at_most))
    }

    fn advance(&mut self) -> Result<Position> {
        self.source.settle()?;
        let newest = self.source.view()?.position();
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start()?,
        };
        if !self.follow(&mut running, newest)? {
            self.compare_all(&mut running)?;
            // The comparison has left the rows that changed meanwhile to the feed.
            let newest = self.source.view()?.position();
            if !self.follow(&mut running, newest)? {
                return Err(Error::new(ErrorKind::Busy, NOT_KEPT));
            }
        }
        let reached = running.reached;
        self.running = Some(running);
        Ok(reached)
    }

    fn tables(&self) -> Tables<'_> {
        Tables { view: &self.view, index: &self.index }
    }
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables = (&self.table, &self.view);
        f.debug_tuple("View").field(&tables).field(&self.position()).finish()
    }
}
