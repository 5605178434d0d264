//! The database whose changes a sync carries or a view folds.

use std::time::Duration;

use crate::clock::TICKS_PER_SECOND;
#[cfg(feature = "remote")]
use crate::clock::{Clock, SystemClock};
use crate::db::{Change, Changes, Commit, Db, Follower, Position};
use crate::error::Result;
use crate::store::table_store::TableStore;
#[cfg(feature = "remote")]
use crate::store::{Remote, remote::feed::RemoteChanges};

/// The source of a sync or of a view.
#[expect(clippy::large_enum_variant, reason = "a process has one")]
#[non_exhaustive]
pub enum Source {
    /// A database that this process has open for writing.
    Db(Db),
    /// A database that another process may write.
    Follower(Follower),
    /// A database of `rowstone serve --extensions`, with a key of the account.
    #[cfg(feature = "remote")]
    Remote(Remote),
}

/// The part of a source's history after a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lag {
    /// The commits.
    pub groups: u64,
    /// The sizes of the written entities together, by [`Entity::size`](crate::Entity::size).
    pub bytes: u64,
    /// The age of the oldest of these commits, in seconds.
    pub seconds: u64,
}

/// The tables and the changes of a source.
pub(super) enum View {
    Db(Db),
    /// The tables may have commits after the position.
    #[cfg(feature = "remote")]
    Remote(Remote, Position),
}

/// The commits after a position. After an error, the next call continues with the same commit.
pub(super) trait Feed: Send {
    /// Returns the next commit; `None` if none is durable yet.
    fn next(&mut self) -> Result<Option<Commit>>;

    /// Waits for a commit, for `at_most` at the most.
    fn wait(&mut self, at_most: Duration) -> Result<()>;
}

impl Feed for Changes {
    fn next(&mut self) -> Result<Option<Commit>> {
        Iterator::next(self).transpose()
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        Changes::wait(self, at_most)
    }
}

#[cfg(feature = "remote")]
impl Feed for RemoteChanges {
    fn next(&mut self) -> Result<Option<Commit>> {
        RemoteChanges::next(self)
    }

    /// Returns no error: the next step has it again, and pauses.
    fn wait(&mut self, at_most: Duration) -> Result<()> {
        RemoteChanges::wait(self, at_most).or(Ok(()))
    }
}

impl View {
    /// Returns the position after the newest commit.
    pub(super) fn position(&self) -> Position {
        match self {
            Self::Db(db) => db.position(),
            #[cfg(feature = "remote")]
            Self::Remote(_, position) => *position,
        }
    }

    pub(super) fn store(&self) -> &dyn TableStore {
        match self {
            Self::Db(db) => db,
            #[cfg(feature = "remote")]
            Self::Remote(remote, _) => remote,
        }
    }

    /// Returns the durable commits after a position. `ChangesLost` may be the first result.
    pub(super) fn changes(&self, since: Position) -> Result<Box<dyn Feed>> {
        Ok(match self {
            Self::Db(db) => Box::new(db.changes(since)?),
            #[cfg(feature = "remote")]
            Self::Remote(remote, _) => Box::new(RemoteChanges::new(remote.clone(), since)),
        })
    }

    /// Returns the time in ticks.
    fn now(&self) -> u64 {
        match self {
            Self::Db(db) => db.engine().env().clock.now(),
            #[cfg(feature = "remote")]
            Self::Remote(..) => SystemClock::new().now(),
        }
    }
}

impl Source {
    /// Returns the newest durable state of a follower, or the database.
    pub(super) fn view(&self) -> Result<View> {
        Ok(match self {
            Self::Db(db) => View::Db(db.clone()),
            Self::Follower(follower) => {
                follower.refresh()?;
                View::Db(follower.db())
            }
            #[cfg(feature = "remote")]
            Self::Remote(remote) => {
                let [_, newest] = remote.positions()?;
                View::Remote(remote.clone(), newest)
            }
        })
    }

    /// Makes durable what [`view`](Self::view) shows, so that a power cut of the source reverts
    /// nothing that the target has.
    pub(super) fn settle(&self) -> Result<()> {
        match self {
            Self::Db(db) => db.sync(),
            Self::Follower(_) => Ok(()),
            #[cfg(feature = "remote")]
            Self::Remote(remote) => remote.sync(),
        }
    }

    /// Returns the extent of the history after a position. Reads all later commits.
    ///
    /// # Errors
    /// Those of [`Db::changes`]; `Io` if the server is not reached.
    pub fn lag(&self, since: Position) -> Result<Lag> {
        let mut lag = Lag::default();
        let view = self.view()?;
        let now = view.now();
        let mut changes = view.changes(since)?;
        while let Some(commit) = changes.next()? {
            let age = now.saturating_sub(commit.position.seq().ticks()) / TICKS_PER_SECOND;
            lag.groups += 1;
            lag.seconds = lag.seconds.max(age);
            for change in &commit.changes {
                if let Change::Put { entity, .. } = change {
                    lag.bytes += entity.size() as u64;
                }
            }
        }
        Ok(lag)
    }
}
