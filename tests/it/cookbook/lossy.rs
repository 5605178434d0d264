//! A store that stops, or loses the answers of writes, and counts its requests.

use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rowstone::store::{Condition, EntityPage, PageQuery, Remote, RemoteOptions, TableStore};
use rowstone::{DateTime, ETag, Entity, EntityGroup, Error, Result, RetryPolicy};

/// A store whose writes may fail with `OutcomeUnknown`.
pub(super) struct Lossy<'s> {
    store: &'s dyn TableStore,
    writes: AtomicUsize,
    /// All requests; Azure Table storage bills each as a transaction.
    requests: AtomicUsize,
    loss: Loss,
}

/// Which writes fail.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    /// All writes after this number fail, without an effect.
    After(usize),
    /// As `After`, but the first that fails has its effect.
    AnswerAfter(usize),
    /// One of three writes has its effect and fails, and one has none and fails.
    Thirds,
}

impl<'s> Lossy<'s> {
    pub(super) fn new(store: &'s dyn TableStore, loss: Loss) -> Self {
        let [writes, requests] = [(); 2].map(|()| AtomicUsize::new(0));
        Self { store, writes, requests, loss }
    }

    fn count(&self) -> &'s dyn TableStore {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.store
    }

    /// Runs a write, which may fail.
    fn write<T>(&self, write: impl FnOnce(&dyn TableStore) -> Result<T>) -> Result<T> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let (has_effect, has_answer) = match self.loss {
            Loss::After(count) => (number < count, number < count),
            Loss::AnswerAfter(count) => (number <= count, number < count),
            Loss::Thirds => (number % 3 != 1, number.is_multiple_of(3)),
        };
        if has_effect {
            let done = write(self.count());
            if has_answer || done.is_err() {
                return done;
            }
        }
        Err(lost())
    }
}

/// Returns the result of `run` and the number of its requests.
pub(super) fn billed<T>(
    store: &dyn TableStore,
    run: impl FnOnce(&dyn TableStore) -> T,
) -> (T, usize) {
    let counted = Lossy::new(store, Loss::After(usize::MAX));
    let done = run(&counted);
    (done, counted.requests.into_inner())
}

/// Returns the error of a request to an endpoint that reads it and never answers.
fn lost() -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let text = format!("AccountName=acme;AccountKey=a2V5;TableEndpoint=http://{at}/acme");
    let options = RemoteOptions::new().retries(RetryPolicy::none());
    let remote = Remote::open_with(&text, options).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| listener.accept().unwrap().0.read(&mut [0; 4_096]).unwrap());
        remote.insert("Lost", &Entity::new("", "")).unwrap_err()
    })
}

impl TableStore for Lossy<'_> {
    fn create_table(&self, table: &str) -> Result<()> {
        self.count().create_table(table)
    }

    fn delete_table(&self, table: &str) -> Result<()> {
        self.count().delete_table(table)
    }

    fn tables(&self) -> Result<Vec<String>> {
        self.count().tables()
    }

    fn get(&self, table: &str, pk: &str, rk: &str, select: &[&str]) -> Result<Option<Entity>> {
        self.count().get(table, pk, rk, select)
    }

    fn insert(&self, table: &str, entity: &Entity) -> Result<ETag> {
        self.write(|store| store.insert(table, entity))
    }

    fn replace(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        self.write(|store| store.replace(table, entity, condition))
    }

    fn merge(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        self.write(|store| store.merge(table, entity, condition))
    }

    fn delete(&self, table: &str, pk: &str, rk: &str, condition: &Condition) -> Result<()> {
        self.write(|store| store.delete(table, pk, rk, condition))
    }

    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>> {
        self.write(|store| store.commit(table, group))
    }

    fn now(&self) -> Result<DateTime> {
        self.store.now()
    }

    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage> {
        self.count().query(table, page)
    }
}
