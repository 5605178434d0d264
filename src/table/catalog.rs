//! The catalog: the list of tables, stored as rows of table 0, with a copy in memory. The row of a
//! table has the PartitionKey `table`, its name in lower case as RowKey, and the properties `Name`,
//! `Id` (Int64) and `Ttl` (Int64, in seconds, if rows expire). The row with the PartitionKey `next`
//! has the `Id` of the next table. The modules `gates` and `notes` define the other rows.
//!
//! Invariants
//! * a table's id is never reused: the next id only grows;
//! * creating or dropping a table is an ordinary commit, and takes effect with that commit.
//!
//! Locks: `tables` is held during a commit of the catalog and is acquired before the commit lock.

mod gates;
mod notes;
mod rows;

pub(crate) use gates::GateEntry;
pub(crate) use rows::CatalogRow;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Code, Error, ErrorKind, Result, quoted};
use crate::executor::Lane;
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::lsm::{Action, Batch, Condition, Engine, Gate, Op, PackedRow, SpanGate, TableChange};
use crate::model::{Entity, Seq, check_table_name};
use crate::options::Durability;
use crate::sync::{AtomicU64, Mutex, Ordering};

use self::rows::{GATES, NEXT, NOTES, NoteKey, TABLES, damaged, lets_go, table_row};
use super::counts::Queries;
use super::entry::TableEntry;
use super::read::RowView;
use super::slow::QueryLog;
use super::write::new_batch;

/// The tables of an open database.
pub(crate) struct Catalog {
    engine: Arc<Engine>,
    gate: Arc<Gate>,
    tables: Mutex<Tables>,
    /// Statistics of the queries of all tables since opening.
    log: Arc<QueryLog>,
}

struct Tables {
    /// The tables by lower-case name.
    by_name: BTreeMap<String, Arc<TableEntry>>,
    next: u32,
    gates: Vec<SpanGate>,
    notes: BTreeMap<NoteKey, Arc<str>>,
    log: Arc<QueryLog>,
}

impl Catalog {
    /// Reads the catalog of a database that is being opened.
    ///
    /// # Errors
    /// `Corruption` for an invalid catalog row, `Io`.
    pub(crate) fn open(engine: &Arc<Engine>) -> Result<Catalog> {
        let log = Arc::new(QueryLog::default());
        let mut tables = Tables::new(&log);
        scan_rows(engine, |row| tables.add(row))?;
        // This needs no commit lock, because no other thread has access to the engine yet.
        tables.gates.iter().for_each(|gate| engine.writer().gates.close(gate, Seq::ZERO));
        for entry in tables.by_name.values() {
            engine.maintenance().set_ttl(&entry.gate, entry.ttl());
            engine.maintenance().record_table(&entry.gate, &entry.name);
        }
        engine.maintenance().mark_tables_known();
        if tables.by_name.values().any(|entry| entry.ttl().is_some()) {
            engine.maintenance().executor.signal(Lane::Log);
        }
        let gate = Arc::new(Gate::new(TableId::CATALOG));
        let catalog = Catalog { engine: Arc::clone(engine), gate, tables: Mutex::new(tables), log };
        if engine.maintenance().writable().is_ok() {
            catalog.note_drops_oldest();
        }
        Ok(catalog)
    }

    /// Returns the statistics of the queries since opening.
    pub(crate) fn log(&self) -> &QueryLog {
        &self.log
    }

    /// Reads the catalog again. Returns an error for each row that would prevent the database from
    /// opening. Stops at a damaged block; the damage itself is not reported here.
    pub(crate) fn problems(&self) -> Vec<Error> {
        let mut problems = Vec::new();
        let scanned = scan_rows(&self.engine, |row| {
            problems.extend(check_row(row).err());
            Ok(())
        });
        drop(scanned);
        problems
    }

    /// Returns the table named `name`, ignoring case.
    ///
    /// # Errors
    /// `NotFound` (`TableNotFound`).
    pub(crate) fn table(&self, name: &str) -> Result<Arc<TableEntry>> {
        let tables = self.tables.lock();
        let entry = tables.by_name.get(&name.to_ascii_lowercase()).cloned();
        entry.ok_or_else(|| refused(Code::TableNotFound, name))
    }

    /// Returns the table named `name`, ignoring case. Creates it if it does not exist.
    ///
    /// # Errors
    /// Errors of [`create`](Self::create) except `AlreadyExists`.
    pub(crate) fn table_or_create(&self, name: &str) -> Result<Arc<TableEntry>> {
        loop {
            match self.table(name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                found => return found,
            }
            match self.create(name) {
                // Another thread created the table first.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
    }

    /// Returns the id of the next table to be created.
    pub(crate) fn next_id(&self) -> TableId {
        TableId(self.tables.lock().next)
    }

    /// Returns the ids of all tables.
    pub(crate) fn ids(&self) -> BTreeSet<TableId> {
        self.tables.lock().by_name.values().map(|entry| entry.gate.table).collect()
    }

    /// Returns the names of all tables, by id.
    pub(crate) fn names_by_id(&self) -> BTreeMap<TableId, Arc<str>> {
        let tables = self.tables.lock();
        let named = |entry: &Arc<TableEntry>| (entry.gate.table, Arc::from(&*entry.name));
        tables.by_name.values().map(named).collect()
    }

    /// Returns the names of all tables as spelled at creation, ordered by lower-case name.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tables.lock().by_name.values().map(|entry| entry.name.clone()).collect()
    }

    /// Creates a table, with the database's default durability.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidInput` for an invalid name; `Unsupported` if all ids are used; and
    /// the errors that any write may return.
    pub(crate) fn create(&self, name: &str) -> Result<Arc<TableEntry>> {
        check_table_name(name)?;
        let lower = name.to_ascii_lowercase();
        let mut tables = self.tables.lock();
        if tables.by_name.contains_key(&lower) {
            return Err(refused(Code::TableAlreadyExists, name));
        }
        let id = TableId(tables.next);
        debug_assert_ne!(id, TableId::CATALOG, "the catalog's number is its own");
        // The greatest id is never assigned: ids are not reused, and there would be no next id to
        // store.
        let Some(after) = id.0.checked_add(1) else {
            return Err(Error::new(ErrorKind::Unsupported, "no number is left for a table"));
        };
        let row = table_row(&lower, name, id, None);
        let next = Entity::new(NEXT, "").with("Id", i64::from(after));
        let note = self.engine.env().options.on_full.drops_from(name).then(|| lets_go(id));
        let mut rows = vec![self.put(&row)?, self.put(&next)?];
        rows.extend(note.as_ref().map(|note| self.put_note(note, "")).transpose()?);
        let mut batch = self.batch(rows);
        batch.changes.push(TableChange::Created(id));
        self.engine.commit(&batch, self.durability())?;
        tables.next = after;
        tables.notes.extend(note.map(|note| (note, Arc::from(""))));
        let gate = Arc::new(Gate::new(id));
        let queries = Queries::default();
        let (ttl, log) = (AtomicU64::new(0), Arc::clone(&self.log));
        let entry = TableEntry { name: name.to_owned(), gate, ttl, queries, log };
        let entry = Arc::new(entry);
        self.engine.maintenance().record_table(&entry.gate, &entry.name);
        tables.by_name.insert(lower, Arc::clone(&entry));
        Ok(entry)
    }

    /// Drops a table. It disappears immediately, and its space is reclaimed in the background.
    ///
    /// # Errors
    /// `NotFound` (`ResourceNotFound`) if no table has this name, and the errors that any write may
    /// return.
    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        let lower = name.to_ascii_lowercase();
        let mut tables = self.tables.lock();
        let Some(entry) = tables.by_name.get(&lower).cloned() else {
            return Err(refused(Code::ResourceNotFound, name));
        };
        let op = self.op(TABLES, &lower, Action::Delete);
        let gates = tables.gates_of(entry.gate.table);
        let notes = tables.notes_of(entry.gate.table);
        let ops = std::iter::once(op).chain(gates.iter().map(|id| self.delete_gate(*id)));
        let ops = ops.chain(notes.iter().map(|note| self.delete_note(note)));
        let mut batch = self.batch(ops.collect());
        batch.changes.push(TableChange::Dropped(Arc::clone(&entry.gate)));
        self.engine.commit(&batch, self.durability())?;
        tables.by_name.remove(&lower);
        tables.gates.retain(|gate| !gates.contains(&gate.id));
        tables.notes.retain(|key, _| !notes.contains(key));
        gates.iter().for_each(|id| self.engine.writer().gates.lift(*id));
        self.engine.maintenance().executor.signal(Lane::Flush);
        Ok(())
    }

    /// Sets the time to live of the table's rows in seconds; 0 means that rows do not expire.
    ///
    /// # Errors
    /// `NotFound` (`TableNotFound`) if the table was dropped, and the errors that any write may
    /// return.
    pub(crate) fn set_ttl(&self, entry: &TableEntry, seconds: u64) -> Result<()> {
        let lower = entry.name.to_ascii_lowercase();
        let mut tables = self.tables.lock();
        let is_same = |known: &Arc<TableEntry>| known.gate.table == entry.gate.table;
        if !tables.by_name.get(&lower).is_some_and(is_same) {
            return Err(refused(Code::TableNotFound, &entry.name));
        }
        if seconds > 0 {
            self.engine.maintenance().begin_clock()?;
        }
        let row = table_row(&lower, &entry.name, entry.gate.table, i64::try_from(seconds).ok());
        let mut rows = vec![self.put(&row)?];
        // The present time to live says it otherwise.
        let ends = seconds == 0 && entry.ttl().is_some();
        let note = ends.then(|| lets_go(entry.gate.table));
        rows.extend(note.as_ref().map(|note| self.put_note(note, "")).transpose()?);
        self.engine.commit(&self.batch(rows), self.durability())?;
        tables.notes.extend(note.map(|note| (note, Arc::from(""))));
        entry.ttl.store(seconds, Ordering::Release);
        self.engine.maintenance().set_ttl(&entry.gate, entry.ttl());
        self.engine.maintenance().executor.signal(Lane::Log);
        Ok(())
    }

    fn durability(&self) -> Durability {
        self.engine.env().options.durability
    }

    fn put(&self, entity: &Entity) -> Result<Op<'static>> {
        let shapes = &self.engine.env().shapes;
        let action = Action::Put(PackedRow::of(entity.to_row(shapes)?, shapes));
        Ok(self.op(entity.partition_key(), entity.row_key(), action))
    }

    fn op(&self, partition_key: &str, row_key: &str, action: Action<'static>) -> Op<'static> {
        let key = user_key(TableId::CATALOG, partition_key, row_key);
        let hash = self.engine.env().hash(&key);
        Op { key: key.into(), hash, condition: Condition::Any, action }
    }

    /// Returns a batch of catalog operations. Unlike an entity group, it may have rows in several
    /// partitions.
    fn batch<'o>(&self, ops: Vec<Op<'o>>) -> Batch<'o> {
        let mut batch = new_batch(&self.gate, Vec::new(), false);
        batch.ops = ops.into();
        batch
    }
}

/// Returns a refusal that names the table.
fn refused(code: Code, table: &str) -> Error {
    Error::refused(code).about(|| quoted("table", table))
}

/// Calls `with` with every row of the catalog.
fn scan_rows(engine: &Engine, mut with: impl FnMut(&Entity) -> Result<()>) -> Result<()> {
    let span = crate::format::span::whole_table(TableId::CATALOG);
    let mut scan = engine.read_view(None).part(&span).scan(&span, &span)?;
    while scan.advance()? {
        let found = scan.row()?;
        with(&RowView::new(found.key, found.seq, found.row).to_entity()?)?;
    }
    Ok(())
}

/// Checks that the catalog would accept this row when the database is opened.
///
/// # Errors
/// `Corruption` if the row would prevent the database from opening.
pub(crate) fn check_row(row: &Entity) -> Result<()> {
    Tables::new(&Arc::default()).add(row).map_err(|error| {
        error.during(format!("catalog row {} {}", row.partition_key(), row.row_key()))
    })
}

impl Tables {
    fn new(log: &Arc<QueryLog>) -> Self {
        let (by_name, gates, notes) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { by_name, next: 1, gates, notes, log: Arc::clone(log) }
    }

    fn add(&mut self, row: &Entity) -> Result<()> {
        if ![TABLES, NEXT, GATES, NOTES].contains(&row.partition_key()) {
            // Rows of other kinds are ignored: newer builds may store them.
            return Ok(());
        }
        self.add_known(row).map_err(|error| match error.kind() {
            // The row lacks a property or has a property of another type.
            ErrorKind::NotFound | ErrorKind::InvalidInput => damaged(error.to_string()),
            _ => error,
        })
    }

    fn add_known(&mut self, row: &Entity) -> Result<()> {
        let id = u32::try_from(row.get::<i64>("Id")?);
        let id = id.map_err(|_| damaged("a table id that is none"))?;
        match row.partition_key() {
            TABLES => {
                // 0 is the id of the catalog itself, and the greatest id is never assigned.
                let after = id.checked_add(1).filter(|_| id > 0);
                let after = after.ok_or_else(|| damaged("a number that no table has"))?;
                self.next = self.next.max(after);
                let name: String = row.get("Name")?;
                let gate = Arc::new(Gate::new(TableId(id)));
                let ttl = row.value("Ttl").map_or(Ok(0), |_| row.get::<i64>("Ttl"))?;
                let ttl = u64::try_from(ttl).map_err(|_| damaged("a time to live that is none"))?;
                let (ttl, queries) = (AtomicU64::new(ttl), Queries::default());
                let entry =
                    Arc::new(TableEntry { name, gate, ttl, queries, log: Arc::clone(&self.log) });
                self.by_name.insert(row.row_key().to_owned(), entry);
            }
            NEXT => self.next = self.next.max(id),
            GATES => self.add_gate(row)?,
            NOTES => self.add_note(id, row)?,
            _ => {}
        }
        Ok(())
    }
}
