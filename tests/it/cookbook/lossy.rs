//! A store that stops, or loses the answers of writes.

use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rowstone::store::{Condition, EntityPage, PageQuery, Remote, RemoteOptions, TableStore};
use rowstone::{ETag, Entity, EntityGroup, Result, RetryPolicy};

/// A store whose writes may fail with `OutcomeUnknown`.
pub(super) struct Lossy<'s> {
    store: &'s dyn TableStore,
    /// An endpoint that closes the connection of each request without an answer.
    mute: Remote,
    writes: AtomicUsize,
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
        Self { store, mute: mute(), writes: AtomicUsize::new(0), loss }
    }

    /// Runs a write; one that fails is sent to the endpoint that never answers.
    fn write<T>(&self, write: impl Fn(&dyn TableStore) -> Result<T>) -> Result<T> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let (has_effect, has_answer) = match self.loss {
            Loss::After(count) => (number < count, number < count),
            Loss::AnswerAfter(count) => (number <= count, number < count),
            Loss::Thirds => (number % 3 != 1, number % 3 == 0),
        };
        if has_effect {
            let done = write(self.store);
            if has_answer || done.is_err() {
                return done;
            }
        }
        write(&self.mute)
    }
}

/// Returns a client of an endpoint that reads each request and never answers.
fn mute() -> Remote {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            drop(stream.read(&mut [0; 64 << 10]));
        }
    });
    let text = format!("AccountName=acme;AccountKey=a2V5;TableEndpoint=http://{at}/acme");
    Remote::open_with(&text, RemoteOptions::new().retries(RetryPolicy::none())).unwrap()
}

impl TableStore for Lossy<'_> {
    fn create_table(&self, table: &str) -> Result<()> {
        self.store.create_table(table)
    }

    fn delete_table(&self, table: &str) -> Result<()> {
        self.store.delete_table(table)
    }

    fn tables(&self) -> Result<Vec<String>> {
        self.store.tables()
    }

    fn get(&self, table: &str, pk: &str, rk: &str, select: &[&str]) -> Result<Option<Entity>> {
        self.store.get(table, pk, rk, select)
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

    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage> {
        self.store.query(table, page)
    }
}
