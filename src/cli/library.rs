//! Stand-in for the library until it is there: a map in a file. To be deleted.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::disallowed_methods, clippy::unwrap_used, reason = "goes away")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{ETag, Entity, Seq, Value};
use crate::wire::{json, odata};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability { Sync, Os, Buffered }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadMode { Insert, Upsert, UpsertMerge }

type Rows = BTreeMap<(String, String), (Seq, Entity)>;
#[derive(Default)]
struct State { seq: u64, tables: BTreeMap<String, (String, Rows)> }
#[derive(Clone)]
pub struct Db { state: Arc<Mutex<State>>, path: PathBuf }
pub struct Options { create: bool }
#[derive(Clone)]
pub struct Table { db: Db, name: String }
pub struct Stats;
pub struct VerifyReport { pub checked: Vec<(&'static str, u64)>, pub problems: Vec<String> }

#[derive(Debug)]
pub enum Operation {
    Insert(Entity), Upsert(Entity), UpsertMerge(Entity),
    Replace(Entity, Option<ETag>), Merge(Entity, Option<ETag>),
    Delete { pk: String, rk: String, etag: Option<ETag> },
}
pub struct EntityGroup(Vec<Operation>);
#[derive(Clone)]
pub struct KeyRange { pk: Option<String>, from: Option<String>, to: Option<String>, point: Option<String> }
#[derive(Clone, Debug)]
pub struct KeyToken { pub pk: String, pub rk: String }
pub struct Query { table: Table, range: KeyRange, top: usize, after: Option<KeyToken> }
pub struct Page { pub entities: Vec<Entity>, pub next: Option<KeyToken> }
pub struct Rejected { pub line: u64, pub error: Error }
#[derive(Default)]
pub struct LoadSummary { pub loaded: u64, pub groups: u64 }
pub struct Loader { table: Table, mode: LoadMode, rejected: Vec<Rejected>, ack: Option<Box<dyn FnMut(u64) + Send>>, summary: LoadSummary }

impl Options {
    pub fn durability(self, _: Durability) -> Self { self }
    pub fn create_if_missing(mut self, create: bool) -> Self { self.create = create; self }
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let path = path.as_ref().to_owned();
        let file = path.join("STUB");
        let fresh = match std::fs::read_dir(&path) { Ok(mut d) => d.next().is_none(), Err(e) if e.kind() == std::io::ErrorKind::NotFound => true, Err(e) => return Err(Error::io(format!("open {}", path.display()), e)) };
        if fresh && !self.create { return Err(Error::new(ErrorKind::NotFound, format!("there is no database at {}", path.display()))); }
        if !fresh && !file.exists() { return Err(Error::new(ErrorKind::Unsupported, format!("{} is not a database", path.display()))); }
        std::fs::create_dir_all(&path).map_err(|e| Error::io(format!("create {}", path.display()), e))?;
        let mut state = State { seq: 0x1ff_ffff_ffff_ffff, ..State::default() };
        for line in std::fs::read_to_string(&file).unwrap_or_default().lines() {
            if let Some(t) = line.strip_prefix('#') { state.tables.insert(t.to_lowercase(), (t.to_owned(), Rows::new())); continue; }
            let (t, line) = line.split_once(' ').unwrap();
            let (s, e) = line.split_once(' ').unwrap();
            let s: u64 = s.parse().unwrap();
            state.seq = state.seq.max(s);
            let e = odata::read_entity(e).unwrap();
            state.tables.get_mut(t).unwrap().1.insert((e.partition_key().to_owned(), e.row_key().to_owned()), (Seq(s), e));
        }
        Ok(Db { state: Arc::new(Mutex::new(state)), path })
    }
}

impl Db {
    pub fn options() -> Options { Options { create: true } }
    pub fn create_table(&self, n: &str) -> Result<Table> {
        crate::model::check_table_name(n)?;
        let mut s = self.state.lock().unwrap();
        if s.tables.contains_key(&n.to_lowercase()) { return Err(Error::refused(Code::TableAlreadyExists)); }
        s.tables.insert(n.to_lowercase(), (n.to_owned(), Rows::new()));
        Ok(Table { db: self.clone(), name: n.to_lowercase() })
    }
    pub fn table(&self, n: &str) -> Result<Table> {
        if !self.state.lock().unwrap().tables.contains_key(&n.to_lowercase()) { return Err(Error::refused(Code::TableNotFound)); }
        Ok(Table { db: self.clone(), name: n.to_lowercase() })
    }
    pub fn table_or_create(&self, n: &str) -> Result<Table> { self.table(n).or_else(|_| self.create_table(n)) }
    pub fn delete_table(&self, n: &str) -> Result<()> { self.state.lock().unwrap().tables.remove(&n.to_lowercase()).map(drop).ok_or_else(|| Error::refused(Code::ResourceNotFound)) }
    pub fn tables(&self) -> Result<Vec<String>> { Ok(self.state.lock().unwrap().tables.values().map(|t| t.0.clone()).collect()) }
    pub fn flush(&self) -> Result<()> { Ok(()) }
    pub fn compact(&self) -> Result<()> { Ok(()) }
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        std::fs::create_dir_all(&path).unwrap();
        let db = Db { state: Arc::clone(&self.state), path: path.as_ref().to_owned() };
        db.close()
    }
    pub fn verify(&self) -> Result<VerifyReport> { Ok(VerifyReport { checked: vec![("files", 1)], problems: vec![] }) }
    pub fn stats(&self) -> Stats { Stats }
    pub fn close(self) -> Result<()> {
        let s = self.state.lock().unwrap();
        let mut out = Vec::new();
        for (k, (n, rows)) in &s.tables {
            out.extend_from_slice(format!("#{n}\n").as_bytes());
            for (seq, e) in rows.values() {
                out.extend_from_slice(format!("{k} {seq} ").as_bytes());
                odata::put_entity(&mut out, e, None, odata::Metadata::TYPES);
                out.push(b'\n');
            }
        }
        std::fs::write(self.path.join("STUB"), out).map_err(|e| Error::io("write", e))
    }
}
impl Stats { pub fn fields(&self) -> Vec<(&'static str, u64)> { vec![("commits", 7), ("bytes_written", 123_456)] } }

impl EntityGroup {
    pub fn from_operations(ops: Vec<Operation>) -> Result<Self> {
        if ops.is_empty() || ops.len() > 100 { return Err(Error::refused(Code::InvalidInput)); }
        Ok(EntityGroup(ops))
    }
}

impl Table {
    fn apply(&self, op: Operation) -> Result<Option<ETag>> {
        let mut s = self.db.state.lock().unwrap();
        s.seq += 1;
        let seq = Seq(s.seq);
        let rows = &mut s.tables.get_mut(&self.name).ok_or_else(|| Error::refused(Code::TableNotFound))?.1;
        let key = |e: &Entity| (e.partition_key().to_owned(), e.row_key().to_owned());
        let check = |rows: &Rows, k: &(String, String), etag: Option<ETag>| match rows.get(k) {
            None => Err(Error::refused(Code::ResourceNotFound)),
            Some((s, _)) if etag.is_some_and(|e| e.seq() != *s) => Err(Error::refused(Code::UpdateConditionNotSatisfied)),
            Some(_) => Ok(()),
        };
        let merge = |rows: &Rows, e: Entity| match rows.get(&key(&e)) {
            None => e,
            Some((_, old)) => { let mut m = old.clone(); for (n, v) in e.properties() { m.set(n, v.to_value()); } m }
        };
        let entity = match op {
            Operation::Insert(e) => { if rows.contains_key(&key(&e)) { return Err(Error::refused(Code::EntityAlreadyExists)); } e }
            Operation::Upsert(e) => e,
            Operation::UpsertMerge(e) => merge(rows, e),
            Operation::Replace(e, etag) => { check(rows, &key(&e), etag)?; e }
            Operation::Merge(e, etag) => { check(rows, &key(&e), etag)?; merge(rows, e) }
            Operation::Delete { pk, rk, etag } => { let k = (pk, rk); check(rows, &k, etag)?; rows.remove(&k); return Ok(None); }
        };
        crate::model::check_key(crate::model::KeyPart::PartitionKey, entity.partition_key())?;
        crate::model::check_key(crate::model::KeyPart::RowKey, entity.row_key())?;
        rows.insert(key(&entity), (seq, entity.at(seq)));
        Ok(Some(ETag::from(seq)))
    }
    fn write(&self, op: Operation) -> Result<ETag> { self.apply(op).map(Option::unwrap) }
    pub fn insert(&self, e: Entity) -> Result<ETag> { self.write(Operation::Insert(e)) }
    pub fn upsert(&self, e: Entity) -> Result<ETag> { self.write(Operation::Upsert(e)) }
    pub fn upsert_merge(&self, e: Entity) -> Result<ETag> { self.write(Operation::UpsertMerge(e)) }
    pub fn replace(&self, e: Entity) -> Result<ETag> { self.write(Operation::Replace(e, None)) }
    pub fn merge(&self, e: Entity) -> Result<ETag> { self.write(Operation::Merge(e, None)) }
    pub fn replace_if(&self, e: Entity, t: ETag) -> Result<ETag> { self.write(Operation::Replace(e, Some(t))) }
    pub fn merge_if(&self, e: Entity, t: ETag) -> Result<ETag> { self.write(Operation::Merge(e, Some(t))) }
    pub fn delete(&self, pk: &str, rk: &str) -> Result<()> { self.apply(Operation::Delete { pk: pk.into(), rk: rk.into(), etag: None }).map(drop) }
    pub fn delete_if(&self, pk: &str, rk: &str, t: ETag) -> Result<()> { self.apply(Operation::Delete { pk: pk.into(), rk: rk.into(), etag: Some(t) }).map(drop) }
    pub fn get(&self, pk: &str, rk: &str) -> Result<Option<Entity>> { Ok(self.db.state.lock().unwrap().tables[&self.name].1.get(&(pk.into(), rk.into())).map(|e| e.1.clone().at(e.0))) }
    pub fn commit(&self, g: EntityGroup) -> Result<Vec<Option<ETag>>> { g.0.into_iter().enumerate().map(|(i, op)| self.apply(op).map_err(|e| e.at_index(i))).collect() }
    pub fn scan(&self, range: KeyRange) -> Query { Query { table: self.clone(), range, top: usize::MAX, after: None } }
    pub fn loader(&self) -> Loader { Loader { table: self.clone(), mode: LoadMode::Insert, rejected: vec![], ack: None, summary: LoadSummary::default() } }
}
impl KeyRange {
    pub fn all() -> Self { Self { pk: None, from: None, to: None, point: None } }
    pub fn partition(pk: &str) -> Self { Self { pk: Some(pk.into()), ..Self::all() } }
    pub fn point(pk: &str, rk: &str) -> Self { Self { pk: Some(pk.into()), point: Some(rk.into()), ..Self::all() } }
    pub fn rows(pk: &str, r: (Option<&str>, Option<&str>)) -> Self { Self { pk: Some(pk.into()), from: r.0.map(Into::into), to: r.1.map(Into::into), point: None } }
}
impl Query {
    pub fn select(self, _: &[&str]) -> Self { self }
    pub fn top(mut self, n: usize) -> Self { self.top = n; self }
    pub fn after(mut self, t: KeyToken) -> Self { self.after = Some(t); self }
    fn all(&self) -> Vec<Entity> {
        let s = self.table.db.state.lock().unwrap();
        let Some(t) = s.tables.get(&self.table.name) else { return vec![] };
        let r = &self.range;
        t.1.iter().filter(|((pk, rk), _)| r.pk.as_ref().is_none_or(|p| p == pk) && r.point.as_ref().is_none_or(|p| p == rk) && r.from.as_ref().is_none_or(|p| p <= rk) && r.to.as_ref().is_none_or(|p| p > rk)
            && self.after.as_ref().is_none_or(|t| (&t.pk, &t.rk) < (pk, rk))).take(self.top).map(|(_, (s, e))| e.clone().at(*s)).collect()
    }
    pub fn page(self, n: usize) -> Result<Page> {
        let mut entities = self.all();
        let next = (entities.len() > n && n > 0).then(|| KeyToken { pk: entities[n - 1].partition_key().into(), rk: entities[n - 1].row_key().into() });
        entities.truncate(n);
        Ok(Page { entities, next })
    }
}
impl IntoIterator for Query { type Item = Result<Entity>; type IntoIter = std::vec::IntoIter<Result<Entity>>; fn into_iter(self) -> Self::IntoIter { self.all().into_iter().map(Ok).collect::<Vec<_>>().into_iter() } }
impl Loader {
    pub fn mode(mut self, m: LoadMode) -> Self { self.mode = m; self }
    pub fn on_acknowledged(mut self, f: impl FnMut(u64) + Send + 'static) -> Self { self.ack = Some(Box::new(f)); self }
    pub fn push(&mut self, line: u64, e: Entity) -> Result<()> {
        if std::env::var_os("STUB_NULL").is_some() { drop(e); self.summary.loaded += 1; return Ok(()); }
        let op = match self.mode { LoadMode::Insert => Operation::Insert(e), LoadMode::Upsert => Operation::Upsert(e), LoadMode::UpsertMerge => Operation::UpsertMerge(e) };
        match self.table.apply(op) { Ok(_) => { self.summary.loaded += 1; if self.summary.loaded % 100 == 0 { self.summary.groups += 1; if let Some(a) = &mut self.ack { a(line) } } } Err(error) => self.rejected.push(Rejected { line, error }) }
        Ok(())
    }
    pub fn take_rejected(&mut self) -> Vec<Rejected> { std::mem::take(&mut self.rejected) }
    pub fn finish(self) -> Result<(LoadSummary, Vec<Rejected>)> { Ok((self.summary, self.rejected)) }
}
