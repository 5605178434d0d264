//! A parsed and authenticated request, and its commit.
//!
//! `request` has the raw request, `auth` authenticates its client.

use std::cell::{Cell, OnceCell, RefCell};

use crate::behave::{Behaviour, Decision};
use crate::error::{Error, ErrorKind};
use crate::model::{ETag, check_table_name};
use crate::options::Durability;
use crate::rest::protocol::address::Target;
use crate::rest::protocol::fault::Fault;
use crate::rest::protocol::headers::{Level, Method, Version};
use crate::table::{EntityGroup, Table, Ticket};

use super::accounts::Account;
use super::auth::Grant;
use super::feed::Feed;
use super::http::body::Share;
use super::request::Request;

/// A parsed request of an authenticated client.
pub(super) struct RequestContext<'a> {
    pub(super) request: &'a Request,
    pub(super) account: &'a Account,
    pub(super) target: &'a Target,
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) grant: Grant,
    /// The account's address, with a trailing slash.
    pub(super) base: String,
    pub(super) commits: &'a Commits,
    /// Set if the request waits for changes: the answer is built when the wait is over.
    pub(super) feed: &'a RefCell<Option<Box<Feed>>>,
    pub(super) misbehaving: Option<Misbehaving<'a>>,
}

/// The rules of a server that misbehaves, and the decision about one request.
#[derive(Clone, Copy)]
pub(super) struct Misbehaving<'a> {
    pub(super) behaviour: &'a Behaviour,
    pub(super) decided: &'a OnceCell<Decision>,
}

/// How the commit of a request completes.
pub(super) enum Commits {
    /// The first attempt: the ticket of the commit is stored here, and the caller waits for the
    /// commit before it answers.
    Later(Cell<Option<Ticket>>),
    /// The commit failed with this error. The request is repeated only to build the response.
    Failed(Error),
}

impl RequestContext<'_> {
    /// Commits a group with the database's default durability.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub(super) fn commit(
        &self,
        table: &Table,
        group: &EntityGroup,
    ) -> Result<Vec<Option<ETag>>, Error> {
        match self.commits {
            Commits::Later(place) if table.durability() == Durability::Sync => {
                let ticket = table.commit_async(group)?;
                let etags = ticket.etags.clone();
                place.set(Some(ticket));
                Ok(etags)
            }
            Commits::Later(_) => table.commit(group),
            Commits::Failed(error) => Err(error.clone()),
        }
    }

    /// Returns a table.
    ///
    /// # Errors
    /// `TableNotFound`; `InvalidResourceName` or `OutOfRangeInput` if no table can have the name.
    pub(super) fn table(&self, name: &str) -> Result<Table, Error> {
        self.account.db.table(name).map_err(|error| match error.kind() {
            ErrorKind::NotFound => check_table_name(name).err().unwrap_or(error),
            _ => error,
        })
    }

    /// Reserves memory for the answer to a write, at most `bytes`, before the write is carried out.
    /// A write that was carried out can then always be answered.
    ///
    /// # Errors
    /// `ServerBusy`.
    pub(super) fn response_share(&self, bytes: usize) -> Result<Share, Fault> {
        let mut share = Share::default();
        match self.commits {
            // The share was reserved when the request was first carried out.
            Commits::Failed(_) => {}
            Commits::Later(_) => self.request.grow(&mut share, bytes)?,
        }
        Ok(share)
    }

    /// Returns the requested level of metadata.
    ///
    /// # Errors
    /// 415, see [`Level::of`].
    pub(super) fn level(&self) -> Result<Level, Fault> {
        Level::of(self.request, &self.target.query, self.version)
    }
}
