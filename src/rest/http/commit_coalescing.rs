//! Writes that are in the server at the same time become durable together: the last of them to hand over its commit leads the
//! sync for all.
//!
//! Invariants
//! * a write is answered once it is durable, or is known to have failed, and not before;
//! * a commit that waits is led: by the last that comes, or, if that one has none to lead, by its database;
//! * nobody waits for others to come for longer than [`PATIENCE`].
//!
//! Not here: rounds of commits (`lsm::group_commit`), which requests are writes (`call`).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::error::Result;
use crate::sync::{AtomicUsize, Ordering};
use crate::table::Ticket;

/// The writes in a server that have not handed over their commits.
#[derive(Debug)]
pub(in crate::rest) struct Crowd {
    coming: AtomicUsize,
    /// How often the last that came led nobody.
    unled: AtomicUsize,
    came: Notify,
    /// Who leads one database leads no other.
    is_one_database: bool,
}

/// A write that has not handed over its commit.
#[derive(Debug)]
pub(in crate::rest) struct Coming {
    /// None once it does not count any more.
    crowd: Option<Arc<Crowd>>,
}

/// What a commit that was handed over waits for.
#[derive(Debug)]
pub(in crate::rest) enum Settling {
    /// Nothing.
    Settled(Result<()>),
    /// Somebody else to lead it.
    Led(Led),
}

/// A commit that others lead.
#[derive(Debug)]
pub(in crate::rest) struct Led {
    crowd: Arc<Crowd>,
    ticket: Ticket,
    /// [`Crowd::unled`] when it was handed over.
    unled: usize,
}

/// A write may be held up, by a slow disk or a busy range, and others must not be for long.
const PATIENCE: Duration = Duration::from_millis(2);

impl Crowd {
    pub(in crate::rest) fn new(databases: usize) -> Arc<Self> {
        Arc::new(Self {
            coming: AtomicUsize::new(0),
            unled: AtomicUsize::new(0),
            came: Notify::new(),
            is_one_database: databases == 1,
        })
    }

    /// A write has come.
    pub(in crate::rest) fn enter(self: &Arc<Self>) -> Coming {
        self.coming.fetch_add(1, Ordering::SeqCst);
        Coming { crowd: Some(Arc::clone(self)) }
    }

    /// True if the one that leaves was the last to come.
    fn leave(&self) -> bool {
        self.coming.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Those who wait see to it themselves.
    fn lead_nobody(&self) {
        self.unled.fetch_add(1, Ordering::SeqCst);
        self.came.notify_waiters();
    }
}

impl Coming {
    /// Hands over the commit of the write, if it has one. Blocks until it is durable if no other is coming.
    pub(in crate::rest) fn settle(mut self, ticket: Option<Ticket>) -> Settling {
        let Some(ticket) = ticket else { return Settling::Settled(Ok(())) };
        let Some(crowd) = self.crowd.take() else {
            return Settling::Settled(ticket.wait().map(drop));
        };
        let unled = crowd.unled.load(Ordering::SeqCst);
        if !crowd.leave() {
            return Settling::Led(Led { crowd, ticket, unled });
        }
        if !crowd.is_one_database {
            crowd.lead_nobody();
        }
        Settling::Settled(ticket.wait().map(drop))
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some(crowd) = self.crowd.take()
            && crowd.leave()
        {
            crowd.lead_nobody();
        }
    }
}

impl Led {
    /// Waits until the commit is durable.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(in crate::rest) async fn settled(self) -> Result<()> {
        let Led { crowd, ticket, unled } = self;
        let mut came = pin!(crowd.came.notified());
        came.as_mut().enable();
        if crowd.unled.load(Ordering::SeqCst) == unled {
            tokio::select! {
                biased;
                settled = poll_fn(|context| ticket.commit.poll_led(context)) => return settled,
                () = came => {}
                () = sleep(PATIENCE) => {}
            }
        }
        ticket.await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::model::Entity;
    use crate::table::{EntityGroup, Operation, Table};

    fn table(db: &Db) -> Table {
        db.create_table("people").unwrap()
    }

    fn ticket(table: &Table, row: usize) -> Ticket {
        let insert = Operation::Insert(Entity::new("p", format!("{row}")));
        table.submit_group(&EntityGroup::from_operations([insert]).unwrap()).unwrap()
    }

    fn syncs(db: &Db) -> u64 {
        db.stats().get("log_syncs").unwrap()
    }

    fn led(settling: Settling) -> Led {
        match settling {
            Settling::Led(led) => led,
            Settling::Settled(result) => panic!("{result:?} without a leader"),
        }
    }

    fn settled(settling: Settling) {
        match settling {
            Settling::Settled(result) => result.unwrap(),
            Settling::Led(_) => panic!("nobody is left to lead"),
        }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn the_last_that_comes_syncs_for_all() {
        let db = Db::open_in_memory().unwrap();
        let (table, crowd) = (table(&db), Crowd::new(1));
        for round in 0..5 {
            let coming: Vec<_> = (0..32).map(|_| crowd.enter()).collect();
            let before = syncs(&db);
            let mut waiting = Vec::new();
            for (i, one) in coming.into_iter().enumerate() {
                let settling = one.settle(Some(ticket(&table, round * 32 + i)));
                match i {
                    31 => settled(settling),
                    _ => waiting.push(led(settling)),
                }
            }
            assert_eq!(syncs(&db) - before, 1);
            waiting.into_iter().for_each(|led| run(led.settled()).unwrap());
            assert_eq!(syncs(&db) - before, 1, "nobody else had to sync");
        }
        assert_eq!(table.query("").unwrap().count().unwrap(), 160);
    }

    #[test]
    fn one_by_itself_waits_for_nobody() {
        let db = Db::open_in_memory().unwrap();
        let (table, crowd) = (table(&db), Crowd::new(1));
        for i in 0..3 {
            settled(crowd.enter().settle(Some(ticket(&table, i))));
        }
        settled(crowd.enter().settle(None));
    }

    #[test]
    fn who_waits_is_led_also_if_the_last_has_no_commit() {
        let db = Db::open_in_memory().unwrap();
        let (table, crowd) = (table(&db), Crowd::new(1));
        let [one, last] = [crowd.enter(), crowd.enter()];
        let one = led(one.settle(Some(ticket(&table, 1))));
        drop(last);
        run(one.settled()).unwrap();
        let [one, last] = [crowd.enter(), crowd.enter()];
        let one = led(one.settle(Some(ticket(&table, 2))));
        // The last comes after somebody began to wait.
        let settled = run(async { tokio::join!(one.settled(), async { drop(last) }).0 });
        settled.unwrap();
    }

    #[test]
    fn who_waits_is_led_also_if_the_last_is_of_another_database() {
        let (db, other) = (Db::open_in_memory().unwrap(), Db::open_in_memory().unwrap());
        let (table, others, crowd) = (table(&db), table(&other), Crowd::new(2));
        let [one, last] = [crowd.enter(), crowd.enter()];
        let one = led(one.settle(Some(ticket(&table, 1))));
        settled(last.settle(Some(ticket(&others, 1))));
        run(one.settled()).unwrap();
    }

    #[test]
    fn nobody_is_waited_for_for_ever() {
        let db = Db::open_in_memory().unwrap();
        let (table, crowd) = (table(&db), Crowd::new(1));
        let _held_up = crowd.enter();
        run(led(crowd.enter().settle(Some(ticket(&table, 1)))).settled()).unwrap();
    }
}
