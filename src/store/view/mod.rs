//! Folds the changes of a table into another table, exactly once.
//!
//! A view row is a sum of contributions. The contributions of a source row to a view partition are
//! stored in that partition, and one group replaces them and the sums: it subtracts what is stored
//! and adds what the source row contributes now. So applying a state twice changes nothing.
//! `docs/ARCHITECTURE.md` explains the protocol.
//!
//! Files: `apply` (states of rows, to partitions and an index), `mark` (guarded groups), `sums`
//! (rows and contributions).

mod apply;
mod mark;
mod sums;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use self::apply::{Advance, LISTED, RESERVED, Row, Rows, Tables, apply};
use self::mark::{Change as GroupChange, Mark, Place, Runner};
use self::sums::ROWS;
use crate::db::{Change, Position};
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::Entity;
use crate::query::KeyRange;
use crate::rng::Rng;
use crate::store::pages::{PAGE_MAX, Side, contains, filter};
use crate::store::source::{Feed, View as State};
pub use crate::store::source::{Lag, Source};
use crate::store::table_store::TableStore;

/// A view: a table that contains sums over the rows of a source table, and follows its changes.
///
/// The *fold* is a function of one source row. It returns the row's contributions: entities with
/// the keys of view rows. A view row is the sum of all contributions with its keys:
/// * integers and doubles are added. The sum of integers is an `Int64`;
/// * a property of another type has the value that was stored last, so it is meaningful only if
///   all contributions agree or there is one;
/// * `Rows` is the number of contributions. A view row without contributions is deleted.
///
/// This one form covers the usual views, because a sum can be subtracted when a source row changes:
/// * sum and count by a key: contribute the numbers to the row of the key;
/// * an index by another property: contribute to the partition of the property's value a row with
///   the source row's key. It then has one contribution and equals it;
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
/// may take over: each source row counts once, in its newest state. A view partition changes
/// atomically in groups, but the partitions follow one after another.
///
/// **Stored rows.** The table of the view also has the contributions and a position for each of its
/// partitions, with RowKeys that begin with `~`. The filter `Rows ge 1` selects the view rows, and
/// `RowKey lt '~'` reads only them if their keys are ASCII. A second table, whose name ends in
/// `index`, lists the view partitions of each source row. No other program may write these tables.
///
/// **Limits.** A source row contributes to at most 49 rows of a view partition. Its contributions
/// to one partition have at most 250 properties, and their names leave room for a number. The two
/// keys of a source row have together at most about 1,000 characters. Sums of doubles that were
/// subtracted have rounding errors.
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

/// Commits that are applied together.
#[derive(Default)]
struct Window {
    rows: Rows,
    /// The ranges that the last commit deletes or imports, or of which rows expired.
    ranges: VecDeque<KeyRange>,
    end: Option<Position>,
    commits: usize,
}

/// The RowKey of the checkpoint, in the index partition with the empty key. Keys of index rows
/// begin with [`LISTED`].
const CHECKPOINT: &str = "checkpoint";
/// The most source rows that are applied together, and the size of their contributions.
const WINDOW_ROWS: usize = 1_000;
const WINDOW_BYTES: usize = 4 << 20;
/// The commits without a change of the source table after which the checkpoint is written. Fewer
/// would repeat forever if the target is the source: a checkpoint is a commit.
const WINDOW_COMMITS: usize = 10_000;
/// The most view rows of a partition to which a source row contributes. A group replaces all of
/// them: old and new ones, the contributions and the position.
const CONTRIBUTIONS_MAX: usize = 49;

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
        self.running.as_ref().filter(|running| running.feed.is_some()).map(|it| it.reached)
    }

    /// Applies all commits of the source before this call. Creates the tables of the view if they
    /// do not exist. Returns the position that was reached; it may be called again after an error.
    ///
    /// The first call takes the view over from an earlier runner. If the changes since its last
    /// position are no longer kept, all source rows are compared.
    ///
    /// # Errors
    /// * `ChangesLost` if the source was restored, repaired or set back: [`rebuild`](Self::rebuild)
    ///   the view;
    /// * `Locked` if a later runner has taken over;
    /// * those of the fold, `InvalidInput` if the fold returns a RowKey that begins with `~`, the
    ///   property `Rows`, or too many rows;
    /// * those of source and target.
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
        let state = self.source.view()?;
        let newest = state.position();
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start(&state)?,
        };
        loop {
            let Some(feed) = &mut running.feed else {
                self.compare_all(&mut running)?;
                continue;
            };
            let window = match self.window(&mut **feed, running.reached, newest) {
                Err(error) if error.kind() == ErrorKind::ChangesLost => {
                    self.lose(&mut running)?;
                    continue;
                }
                window => window?,
            };
            let Some(end) = window.end else { break };
            self.apply(&mut running, window, end)?;
        }
        let reached = running.reached;
        self.running = Some(running);
        Ok(reached)
    }

    /// Takes the view over, and opens the feed.
    fn start(&mut self, state: &State) -> Result<Running<'s>> {
        for table in [&self.view, &self.index] {
            match self.target.create_table(table) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => created?,
            }
        }
        let found = Mark::read(self.target, Place(&self.index, "", CHECKPOINT))?;
        let position = found.position.filter(|_| !self.is_rebuilt);
        let newest = state.position();
        if let Some(position) = position {
            self.check(position, newest)?;
        }
        let mut rng = Rng::from_entropy();
        let writer = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let runner = Runner { store: self.target, epoch: found.epoch + 1, writer };
        let feed = position.map(|position| state.changes(position)).transpose();
        let feed = match feed {
            Err(error) if error.kind() == ErrorKind::ChangesLost => None,
            feed => feed?,
        };
        self.save(&runner, position.filter(|_| feed.is_some()))?;
        self.is_rebuilt = false;
        Ok(Running { runner, feed, reached: position.unwrap_or(newest), commits: 0 })
    }

    /// Refuses a position of another history, and one after the newest commit.
    fn check(&self, position: Position, newest: Position) -> Result<()> {
        if position.has_history_of(newest) && position <= newest {
            return Ok(());
        }
        let text = format!(
            "the source was restored, repaired or set back, or is another one: the view in table \
             '{}' is at {position}, and the newest commit is {newest}; rebuild the view",
            self.view
        );
        Err(Error::new(ErrorKind::ChangesLost, text))
    }

    fn save(&self, runner: &Runner<'_>, position: Option<Position>) -> Result<()> {
        let place = Place(&self.index, "", CHECKPOINT);
        runner.commit(place, |_| Ok(((), GroupChange { operations: Vec::new(), position })))
    }

    /// Makes all source rows be compared, because changes are no longer kept.
    fn lose(&self, running: &mut Running<'_>) -> Result<()> {
        self.check(running.reached, self.source.view()?.position())?;
        self.save(&running.runner, None)?;
        running.feed = None;
        Ok(())
    }

    /// Compares all source rows. The view then has the commits before the comparison, and perhaps
    /// some later ones, which the feed repeats.
    fn compare_all(&self, running: &mut Running<'_>) -> Result<()> {
        let state = self.source.view()?;
        let position = state.position();
        // A partition without contributions may be at a position of before the source was set back.
        let side = Side { store: self.target, table: &self.view };
        let keys = ["PartitionKey", "RowKey"].map(str::to_owned);
        for row in side.rows(&format!("RowKey eq '{RESERVED}'"), &keys, PAGE_MAX) {
            let (row, position) = (row?, Some(position));
            let place = Place(&self.view, row.partition_key(), RESERVED);
            let change = |_: &Mark| Ok(((), GroupChange { operations: Vec::new(), position }));
            running.runner.commit(place, change)?;
        }
        self.compare(&running.runner, &KeyRange::all(), position, Advance::Set(position))?;
        running.feed = Some(state.changes(position)?);
        self.save(&running.runner, Some(position))?;
        (running.reached, running.commits) = (position, 0);
        Ok(())
    }

    /// Reads commits until `newest`, and folds their rows.
    fn window(&self, feed: &mut dyn Feed, reached: Position, newest: Position) -> Result<Window> {
        let (mut window, mut at, mut bytes) = (Window::default(), reached, 0);
        while at < newest
            && window.ranges.is_empty()
            && window.rows.len() < WINDOW_ROWS
            && bytes < WINDOW_BYTES
            && window.commits < WINDOW_COMMITS
        {
            let commit = match feed.next() {
                // The next call returns the error again.
                Err(_) if window.end.is_some() => break,
                commit => commit?,
            };
            let Some(commit) = commit else { break };
            at = commit.position;
            (window.end, window.commits) = (Some(at), window.commits + 1);
            for change in commit.changes {
                if change.table().eq_ignore_ascii_case(&self.table) {
                    bytes += self.add(&mut window, at, change)?;
                }
            }
        }
        Ok(window)
    }

    /// Adds a change to a window. Returns the size of its contributions.
    fn add(&self, window: &mut Window, at: Position, change: Change) -> Result<usize> {
        let (key, folded) = match change {
            Change::Put { entity, .. } => {
                let key = (entity.partition_key().to_owned(), entity.row_key().to_owned());
                (key, self.fold(&entity)?)
            }
            Change::Deleted { partition_key, row_key, .. } => {
                ((partition_key, row_key), Vec::new())
            }
            Change::RangeDeleted { range, .. } | Change::Imported { range, .. } => {
                window.ranges.push_back(range);
                return Ok(0);
            }
            Change::TableDropped { .. } | Change::Expired { .. } => {
                window.ranges.push_back(KeyRange::all());
                return Ok(0);
            }
            Change::TableCreated { .. } => return Ok(0),
        };
        let bytes = folded.iter().map(Entity::size_at_most).sum();
        window.rows.insert(key, Row { at, folded });
        Ok(bytes)
    }

    fn fold(&self, entity: &Entity) -> Result<Vec<Entity>> {
        let folded = (self.fold)(entity)?;
        let refused =
            |text: String| Err(Error::refused_with(Code::InvalidInput, format!("the fold {text}")));
        for row in &folded {
            if row.row_key().starts_with(RESERVED) || row.value(ROWS).is_some() {
                return refused(format!("returned a RowKey with '{RESERVED}', or a '{ROWS}'"));
            }
            let same = folded.iter().filter(|it| it.partition_key() == row.partition_key());
            if same.count() > CONTRIBUTIONS_MAX {
                let pk = row.partition_key();
                return refused(format!(
                    "returned more than {CONTRIBUTIONS_MAX} rows of partition '{pk}'"
                ));
            }
        }
        Ok(folded)
    }

    /// Applies a window, and writes the checkpoint if the view has changed.
    fn apply(&self, running: &mut Running<'_>, window: Window, end: Position) -> Result<()> {
        let Window { rows, ranges, commits, .. } = window;
        let is_change = !rows.is_empty() || !ranges.is_empty();
        let advance = if ranges.is_empty() { Advance::To(end) } else { Advance::No };
        apply(&running.runner, self.tables(), &rows, advance)?;
        for range in ranges {
            self.compare(&running.runner, &range, end, Advance::No)?;
        }
        (running.reached, running.commits) = (end, running.commits + commits);
        if is_change || running.commits >= WINDOW_COMMITS {
            self.save(&running.runner, Some(end))?;
            running.commits = 0;
        }
        Ok(())
    }

    /// Brings the view to the present state of a range of the source.
    fn compare(
        &self,
        runner: &Runner<'_>,
        range: &KeyRange,
        at: Position,
        advance: Advance,
    ) -> Result<()> {
        let state = self.source.view()?;
        let source = Side { store: state.store(), table: &self.table };
        let is_gone = |error: &Error| error.code() == Code::TableNotFound.as_str();
        let mut rows = Rows::new();
        for row in source.rows(&filter(range), &[], PAGE_MAX) {
            let row = match row {
                Err(error) if is_gone(&error) => break,
                row => row?,
            };
            if contains(range, &row) {
                let key = (row.partition_key().to_owned(), row.row_key().to_owned());
                rows.insert(key, Row { at, folded: self.fold(&row)? });
                self.flush(runner, &mut rows, advance, WINDOW_ROWS)?;
            }
        }
        let index = Side { store: self.target, table: &self.index };
        for row in index.rows(&filter(range), &[], PAGE_MAX) {
            let row = row?;
            let Some(rk) = row.row_key().strip_prefix(LISTED) else { continue };
            let (pk, rk) = (row.partition_key().to_owned(), rk.to_owned());
            if !contains(range, &row.with_keys(&pk, &rk)) {
                continue;
            }
            let found = match source.store.get(&self.table, &pk, &rk, &["PartitionKey"]) {
                Err(error) if is_gone(&error) => None,
                found => found?,
            };
            if found.is_none() {
                rows.insert((pk, rk), Row { at, folded: Vec::new() });
                self.flush(runner, &mut rows, advance, WINDOW_ROWS)?;
            }
        }
        self.flush(runner, &mut rows, advance, 1)
    }

    /// Applies the rows of a comparison if there are at least `least`.
    fn flush(
        &self,
        runner: &Runner<'_>,
        rows: &mut Rows,
        advance: Advance,
        least: usize,
    ) -> Result<()> {
        if rows.len() < least {
            return Ok(());
        }
        // A power cut of the source must not revert what the view has.
        self.source.settle()?;
        apply(runner, self.tables(), &std::mem::take(rows), advance)
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
