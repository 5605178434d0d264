//! Loads many entities into a table of a store, in groups.
//!
//! Invariants
//! * a rejected row does not affect its group: the other rows are written;
//! * rows with equal keys are written in input order;
//! * memory is bounded, whatever the order of partitions;
//! * a group whose outcome is not known is sent again: what it wrote is found by the second try.
//!
//! `table::Loader` loads into a directory.

use super::groups::{TRIES_MAX, group_len, is_of_group, is_of_row, range_filter};
use super::pages::Side;
use super::workers;
use crate::error::{Code, Error, ErrorKind, Result, put_quoted};
use crate::json::odata::{Metadata, entity_text};
use crate::model::Entity;
use crate::sync::Mutex;
use crate::table::{EntityGroup, LoadMode, Rejected, quoted_entity};

/// If this many rows wait, their groups are sent.
const WAITING_ROWS_MAX: usize = 10_000;
/// The same limit for the total size of the waiting rows, in bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// The groups that are sent at once.
const WORKERS: usize = 4;

/// Loads entities in any order. Each group has up to 100 entities of one partition.
pub(crate) struct StoreLoader<'s> {
    side: Side<'s>,
    mode: LoadMode,
    /// Whether an entity of the table with equal properties is present, instead of in the way.
    is_resumed: bool,
    acknowledged: Option<fn(u64)>,
    workers: usize,
    waiting: Vec<Row>,
    bytes: usize,
    tally: Mutex<Tally>,
}

/// The result of a load.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) loaded: u64,
    /// The rows that were in the table before, with equal properties.
    pub(crate) present: u64,
    rejected: Vec<Rejected>,
}

struct Row {
    line: u64,
    entity: Entity,
}

impl<'s> StoreLoader<'s> {
    /// Starts a load. `is_resumed` is for [`LoadMode::Insert`]. After rows have been sent,
    /// `acknowledged` is called with the last line up to which all rows are written or rejected.
    pub(crate) fn new(
        side: Side<'s>,
        mode: LoadMode,
        is_resumed: bool,
        acknowledged: Option<fn(u64)>,
    ) -> Self {
        let (waiting, bytes, tally) = (Vec::new(), 0, Mutex::default());
        let workers = WORKERS;
        Self { side, mode, is_resumed, acknowledged, workers, waiting, bytes, tally }
    }

    /// Adds a row; `line` identifies it in [`Rejected`].
    ///
    /// # Errors
    /// Errors that end the load. A rejected row is not an error.
    pub(crate) fn push(&mut self, line: u64, entity: Entity) -> Result<()> {
        self.bytes += entity.size_at_most();
        self.waiting.push(Row { line, entity });
        let is_full = self.waiting.len() >= WAITING_ROWS_MAX || self.bytes >= WAITING_BYTES_MAX;
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Blocks until all rows are written or rejected.
    ///
    /// # Errors
    /// As [`push`](Self::push). Rows that wait are then lost.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let mut rows = std::mem::take(&mut self.waiting);
        let last = rows.iter().map(|row| row.line).max();
        // Rows with equal keys stay in input order.
        rows.sort_by(|a, b| a.entity.key_bytes().cmp(&b.entity.key_bytes()));
        while !rows.is_empty() {
            let (groups, repeated) = groups(rows);
            workers::run(groups, self.workers, |rows| self.group(rows))?;
            rows = repeated;
        }
        if let (Some(acknowledged), Some(last)) = (self.acknowledged, last) {
            acknowledged(last);
        }
        Ok(())
    }

    /// Returns the rows rejected since the last call, by line.
    pub(crate) fn take_rejected(&mut self) -> Vec<Rejected> {
        let mut rejected = std::mem::take(&mut self.tally.lock().rejected);
        rejected.sort_by_key(|row| row.line);
        rejected
    }

    /// Returns the numbers of rows that are loaded, and that were present.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let tally = self.tally.lock();
        (tally.loaded, tally.present)
    }

    fn group(&self, rows: Vec<Row>) -> Result<()> {
        let mut tally = Tally::default();
        let done = self.write(rows, &mut tally);
        let mut all = self.tally.lock();
        all.loaded += tally.loaded;
        all.present += tally.present;
        all.rejected.append(&mut tally.rejected);
        done
    }

    fn write(&self, rows: Vec<Row>, tally: &mut Tally) -> Result<()> {
        let mut groups = vec![rows];
        while let Some(mut rows) = groups.pop() {
            let (mut tries, mut is_lost) = (0, false);
            while !rows.is_empty() {
                let Err(error) = self.send(&rows) else {
                    tally.loaded += rows.len() as u64;
                    break;
                };
                let index = error.index().or((rows.len() == 1).then_some(0));
                match (error.kind(), index.filter(|index| *index < rows.len())) {
                    // All rows may be in the table now.
                    (ErrorKind::OutcomeUnknown, _) if tries < TRIES_MAX => {
                        (tries, is_lost) = (tries + 1, true);
                    }
                    (ErrorKind::AlreadyExists, Some(index))
                        if is_of_row(&error) && tries < TRIES_MAX =>
                    {
                        let before = rows.len();
                        self.take_existing(&mut rows, index, is_lost, tally)?;
                        tries += usize::from(rows.len() == before);
                    }
                    (ErrorKind::InvalidInput, Some(index))
                        if rows.len() == 1 || !is_of_group(&error) =>
                    {
                        let line = rows.remove(index).line;
                        tally.rejected.push(Rejected { line, error });
                    }
                    // The group as a whole is refused, for example because it is too large.
                    (ErrorKind::InvalidInput, _) if rows.len() > 1 => {
                        groups.push(rows.split_off(rows.len() / 2));
                    }
                    _ => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn send(&self, rows: &[Row]) -> Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let mut group = EntityGroup::new(first.entity.partition_key());
        for row in rows {
            let entity = row.entity.clone();
            match self.mode {
                LoadMode::Insert => group.insert(entity)?,
                LoadMode::Upsert => group.upsert(entity)?,
                LoadMode::UpsertMerge => group.upsert_merge(entity)?,
            };
        }
        self.side.store.commit(self.side.table, &group).map(drop)
    }

    /// Takes out the rows whose keys the table has. Reads a page of the range of keys from the row
    /// `index` on, so a group that is in the table takes two requests more, not two for each row.
    fn take_existing(
        &self,
        rows: &mut Vec<Row>,
        index: usize,
        is_lost: bool,
        tally: &mut Tally,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (rows.get(index), rows.last()) else { return Ok(()) };
        let filter = range_filter(&first.entity, &last.entity);
        let keys = ["PartitionKey", "RowKey"].map(str::to_owned);
        let is_compared = self.is_resumed || is_lost;
        let select: &[String] = if is_compared { &[] } else { &keys };
        let mut pages = self.side.pages(vec![filter], select, rows.len());
        for found in pages.next()?.unwrap_or_default() {
            let has_key = |row: &Row| row.entity.key_bytes() == found.key_bytes();
            let Some(at) = rows.iter().position(has_key) else { continue };
            let Row { line, entity } = rows.remove(at);
            match is_compared && entity.has_properties_of(&found) {
                true if self.is_resumed => tally.present += 1,
                // The group was sent before, and has most likely written the row.
                true => tally.loaded += 1,
                false => tally.rejected.push(Rejected { line, error: self.exists(&entity) }),
            }
        }
        Ok(())
    }

    fn exists(&self, entity: &Entity) -> Error {
        Error::refused(Code::EntityAlreadyExists).about(|| {
            let mut text = quoted_entity((entity.partition_key(), entity.row_key()));
            put_quoted(&mut text, " of table", self.side.table);
            text
        })
    }
}

/// Divides rows, which are sorted, into groups that have each key once. Returns also the rows whose
/// keys are in a group already.
fn groups(rows: Vec<Row>) -> (Vec<Vec<Row>>, Vec<Row>) {
    let (mut unique, mut repeated) = (Vec::<Row>::with_capacity(rows.len()), Vec::new());
    for row in rows {
        let is_same = |last: &Row| last.entity.key_bytes() == row.entity.key_bytes();
        match unique.last().is_some_and(is_same) {
            true => repeated.push(row),
            false => unique.push(row),
        }
    }
    let mut groups = Vec::new();
    let mut rows = unique.into_iter().peekable();
    while let Some(first) = rows.peek() {
        let partition = first.entity.key_bytes().0.to_vec();
        let is_same = |row: &Row| row.entity.key_bytes().0 == partition;
        let mut rest = Vec::new();
        while let Some(row) = rows.next_if(is_same) {
            rest.push(row);
        }
        let lengths: Vec<usize> =
            rest.iter().map(|row| entity_text(&row.entity, Metadata::TYPES).len()).collect();
        let mut lengths = lengths.as_slice();
        while !rest.is_empty() {
            let pairs = rest.iter().map(|row| &row.entity).zip(lengths.iter().copied());
            let len = group_len(pairs);
            let others = rest.split_off(len);
            groups.push(std::mem::replace(&mut rest, others));
            lengths = &lengths[len..];
        }
    }
    (groups, repeated)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::store::failing::{Fail, Failing, entities, failing};

    /// Row `i` of a file whose partitions are mixed.
    fn row(i: u64) -> Entity {
        Entity::new(format!("p{}", i % 3), format!("{i:05}")).with("N", i as i64)
    }

    fn loader(store: &Failing, mode: LoadMode, is_resumed: bool) -> StoreLoader<'_> {
        StoreLoader::new(Side { store, table: "Tab" }, mode, is_resumed, None)
    }

    /// Loads `rows`; returns the counts and the lines and codes of the rejected rows.
    fn load(
        mut loader: StoreLoader<'_>,
        rows: impl IntoIterator<Item = Entity>,
    ) -> (u64, u64, Vec<(u64, &'static str)>) {
        for (line, row) in rows.into_iter().enumerate() {
            loader.push(line as u64, row).unwrap();
        }
        loader.flush().unwrap();
        let rejected = loader.take_rejected();
        let rejected = rejected.iter().map(|row| (row.line, row.error.code())).collect();
        (loader.counts().0, loader.counts().1, rejected)
    }

    #[test]
    fn rows_are_written_in_full_groups() {
        let store = failing(Fail::Never);
        let found = load(loader(&store, LoadMode::Insert, false), (0..900).map(row));
        assert_eq!(found, (900, 0, vec![]));
        assert_eq!(store.groups.load(Ordering::Relaxed), 9);
        assert_eq!(entities(&store).len(), 900);
        // Memory is bounded: the groups are sent before the last row is known.
        let store = failing(Fail::Never);
        let mut many = loader(&store, LoadMode::Insert, false);
        (0..WAITING_ROWS_MAX as u64).for_each(|i| many.push(i, row(i)).unwrap());
        assert_eq!((many.counts().0, many.waiting.len()), (WAITING_ROWS_MAX as u64, 0));
        let text = "x".repeat(32_000);
        (0..600).for_each(|i| many.push(i, row(i + 90_000).with("T", &*text)).unwrap());
        assert!(many.waiting.len() < 600, "{} rows wait", many.waiting.len());
    }

    #[test]
    fn rows_with_equal_keys_are_written_in_input_order() {
        let rows = || (0..40u64).map(|i| row(7).with("N", i as i64).with(format!("P{i}"), true));
        let n = |store: &Failing| entities(store)[0].get::<i64>("N").unwrap();
        let store = failing(Fail::Never);
        assert_eq!(load(loader(&store, LoadMode::Upsert, false), rows()), (40, 0, vec![]));
        assert_eq!((n(&store), entities(&store)[0].len()), (39, 2));
        let store = failing(Fail::Never);
        assert_eq!(load(loader(&store, LoadMode::UpsertMerge, false), rows()), (40, 0, vec![]));
        assert_eq!((n(&store), entities(&store)[0].len()), (39, 41));
        let store = failing(Fail::Never);
        let (loaded, _, rejected) = load(loader(&store, LoadMode::Insert, false), rows());
        let expected: Vec<_> = (1..40).map(|line| (line, "EntityAlreadyExists")).collect();
        assert_eq!((loaded, rejected, n(&store)), (1, expected, 0));
    }

    #[test]
    fn rejected_rows_do_not_affect_their_groups() {
        let store = failing(Fail::Never);
        let rows = (0..300).map(|i| match i {
            30 => Entity::new("p0", "a/b"),
            60 => row(60).with("bad name", 1),
            90 => row(90).with("T", "x".repeat(40_000)),
            i => row(i),
        });
        let (loaded, _, rejected) = load(loader(&store, LoadMode::Insert, false), rows);
        let expected =
            [(30, "OutOfRangeInput"), (60, "PropertyNameInvalid"), (90, "PropertyValueTooLarge")];
        assert_eq!((loaded, rejected), (297, expected.to_vec()));
        assert_eq!(entities(&store).len(), 297);
    }

    #[test]
    fn an_interrupted_load_is_resumed_by_groups() {
        let store = failing(Fail::From(3));
        let mut first = loader(&store, LoadMode::Insert, false);
        (0..900).for_each(|i| first.push(i, row(i)).unwrap());
        assert_eq!(first.flush().unwrap_err().message(), "the group fails");
        assert_eq!(first.counts().0, 300);
        let store = Failing { fail: Fail::Never, groups: 0.into(), ..store };
        store.db.table("Tab").unwrap().upsert(row(5).with("N", 6i64)).unwrap();
        let changed = u64::from(entities(&store).len() > 300);
        let found = load(loader(&store, LoadMode::Insert, true), (0..900).map(row));
        assert_eq!(found, (600 - changed, 300 - (1 - changed), vec![(5, "EntityAlreadyExists")]));
        assert_eq!(entities(&store).len(), 900);
        let groups = store.groups.load(Ordering::Relaxed);
        assert!(groups <= 9 + 4, "{groups} groups");
        // Without it, the existing rows are in the way.
        let (loaded, present, rejected) =
            load(loader(&store, LoadMode::Insert, false), (0..901).map(row));
        assert_eq!((loaded, present, rejected.len()), (1, 0, 900));
    }

    #[test]
    fn lost_answers_and_refused_sizes_lose_no_row() {
        for (fail, mode) in [
            (Fail::Lost, LoadMode::Insert),
            (Fail::Lost, LoadMode::Upsert),
            (Fail::Over(9), LoadMode::Insert),
        ] {
            let store = failing(fail);
            // With one worker, the answers of two successive groups are not both lost.
            let loader = StoreLoader { workers: 1, ..loader(&store, mode, false) };
            assert_eq!(load(loader, (0..900).map(row)), (900, 0, vec![]));
            assert_eq!(entities(&store).len(), 900);
        }
    }
}
