//! A target that fails, loses answers, refuses rows, and records when a partition changes.

use crate::db::Db;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{DateTime, ETag, Entity};
use crate::store::{Condition, EntityPage, PageQuery, TableStore};
use crate::sync::Mutex;
use crate::table::EntityGroup;

pub(super) struct Cut {
    pub(super) db: Db,
    count: Mutex<u64>,
    /// The number of the request that fails, and how.
    pub(super) fault: Mutex<Option<(u64, Fault)>>,
    /// Entities with this property are refused.
    pub(super) refused: Mutex<&'static str>,
    /// Groups of more operations are refused.
    pub(super) largest: Mutex<usize>,
    /// The table and partition of each write that took effect.
    pub(super) written: Mutex<Vec<(String, String)>>,
    /// Runs before the request with the number.
    pub(super) before: Mutex<Option<Before>>,
}

pub(super) type Before = (u64, Box<dyn FnOnce() + Send>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The request is not done.
    Refused,
    /// The request is done, but its answer is lost.
    Lost,
    /// The request and all later ones are not done.
    Away,
    /// The request is done, its answer is lost, and all later requests are not done.
    LostThenAway,
    /// Inserts before the request are not done, and their outcome is unknown.
    NoInserts,
    /// The group of the request is sent twice, and the second answer arrives.
    Repeated,
    /// The group is done, and its answer has no ETags.
    NoETags,
}

impl Cut {
    pub(super) fn new() -> Self {
        Self {
            db: Db::open_in_memory().unwrap(),
            count: Mutex::new(0),
            fault: Mutex::new(None),
            refused: Mutex::new(""),
            largest: Mutex::new(usize::MAX),
            written: Mutex::new(Vec::new()),
            before: Mutex::new(None),
        }
    }

    /// Returns the number of requests so far, which is that of the next one.
    pub(super) fn requests(&self) -> u64 {
        *self.count.lock()
    }

    fn request<T>(&self, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.requests();
        *self.count.lock() += 1;
        let before = self.before.lock().take_if(|(at, _)| *at <= number);
        before.into_iter().for_each(|(_, run)| run());
        let fault = *self.fault.lock();
        let failed = |kind| Err(Error::new(kind, "the network fails"));
        match fault {
            Some((at, Fault::Refused | Fault::Away)) if at == number => failed(ErrorKind::Io),
            Some((at, Fault::Away | Fault::LostThenAway)) if at < number => failed(ErrorKind::Io),
            Some((at, Fault::Lost | Fault::LostThenAway)) if at == number => {
                drop(request());
                failed(ErrorKind::OutcomeUnknown)
            }
            _ => request(),
        }
    }

    fn write<T>(&self, table: &str, pk: &str, write: impl FnOnce() -> Result<T>) -> Result<T> {
        self.request(|| {
            let done = write()?;
            self.written.lock().push((table.to_owned(), pk.to_owned()));
            Ok(done)
        })
    }

    fn check(&self, entity: Option<&Entity>) -> Result<()> {
        match entity {
            Some(entity) if entity.value(*self.refused.lock()).is_some() => {
                Err(Error::refused(Code::PropertyNameInvalid))
            }
            _ => Ok(()),
        }
    }
}

impl TableStore for Cut {
    fn create_table(&self, table: &str) -> Result<()> {
        self.request(|| TableStore::create_table(&self.db, table))
    }

    fn delete_table(&self, table: &str) -> Result<()> {
        self.request(|| TableStore::delete_table(&self.db, table))
    }

    fn tables(&self) -> Result<Vec<String>> {
        self.request(|| TableStore::tables(&self.db))
    }

    fn get(&self, table: &str, pk: &str, rk: &str, select: &[&str]) -> Result<Option<Entity>> {
        self.request(|| self.db.get(table, pk, rk, select))
    }

    fn insert(&self, table: &str, entity: &Entity) -> Result<ETag> {
        let fault = *self.fault.lock();
        if matches!(fault, Some((until, Fault::NoInserts)) if self.requests() < until) {
            return self.request(|| Err(Error::new(ErrorKind::OutcomeUnknown, "no answer")));
        }
        self.write(table, entity.partition_key(), || self.db.insert(table, entity))
    }

    fn replace(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        self.check(Some(entity))?;
        self.write(table, entity.partition_key(), || self.db.replace(table, entity, condition))
    }

    fn merge(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        self.write(table, entity.partition_key(), || self.db.merge(table, entity, condition))
    }

    fn delete(&self, table: &str, pk: &str, rk: &str, condition: &Condition) -> Result<()> {
        self.write(table, pk, || self.db.delete(table, pk, rk, condition))
    }

    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>> {
        if group.len() > *self.largest.lock() {
            return Err(Error::refused(Code::RequestBodyTooLarge));
        }
        for (index, operation) in group.operations().enumerate() {
            self.check(operation.entity()).map_err(|error| error.at_index(index))?;
        }
        let fault = self.fault.lock().filter(|(at, _)| *at == self.requests());
        self.write(table, group.partition_key(), || match fault.map(|(_, fault)| fault) {
            Some(Fault::Repeated) => {
                drop(self.db.commit(table, group));
                self.db.commit(table, group)
            }
            Some(Fault::NoETags) => {
                self.db.commit(table, group).map(|etags| vec![None; etags.len()])
            }
            _ => self.db.commit(table, group),
        })
    }

    fn now(&self) -> Result<DateTime> {
        self.db.now()
    }

    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage> {
        self.request(|| self.db.query(table, page))
    }
}
