//! The database whose changes a sync carries.

use crate::clock::TICKS_PER_SECOND;
use crate::db::{Change, Db, Follower, Position};
use crate::error::Result;

/// The source of a sync.
#[expect(clippy::large_enum_variant, reason = "a process has one")]
pub enum Source {
    /// A database that this process has open for writing.
    Db(Db),
    /// A database that another process may write.
    Follower(Follower),
}

/// The part of a source's history that is not carried yet.
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

impl Source {
    /// Returns the newest durable state of a follower, or the database.
    pub(super) fn view(&self) -> Result<Db> {
        match self {
            Self::Db(db) => Ok(db.clone()),
            Self::Follower(follower) => {
                follower.refresh()?;
                Ok(follower.db())
            }
        }
    }

    /// Makes durable what [`view`](Self::view) shows, so that a power cut of the source reverts
    /// nothing that the target has.
    pub(super) fn settle(&self) -> Result<()> {
        match self {
            Self::Db(db) => db.sync(),
            Self::Follower(_) => Ok(()),
        }
    }

    /// Returns what is not carried after a position. Reads all later commits.
    ///
    /// # Errors
    /// Those of [`Db::changes`].
    pub fn lag(&self, since: Position) -> Result<Lag> {
        let mut lag = Lag::default();
        let view = self.view()?;
        let now = view.engine().env().clock.now();
        for commit in view.changes(since)? {
            let commit = commit?;
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
