//! A request as far as it was understood, and the commit that it asks for.
//!
//! Not here: the request as it came (`request`), who may ask it (`auth`).

use std::cell::Cell;

use crate::error::Error;
use crate::model::ETag;
use crate::options::Durability;
use crate::rest::protocol::address::Target;
use crate::rest::protocol::fault::Fault;
use crate::rest::protocol::headers::{Level, Method, Version};
use crate::table::{EntityGroup, Table, Ticket};

use super::accounts::Account;
use super::auth::Grant;
use super::http::body::Share;
use super::request::Request;

/// A request understood, by somebody who is known.
pub(super) struct RequestContext<'a> {
    pub(super) request: &'a Request,
    pub(super) account: &'a Account,
    pub(super) target: &'a Target,
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) grant: Grant,
    /// The account's address, with a slash at its end.
    pub(super) base: String,
    pub(super) commits: &'a Commits,
}

/// What becomes of the commit of a request.
pub(super) enum Commits {
    /// Whoever answers the request waits for what is put here, and answers only then.
    Later(Cell<Option<Ticket>>),
    /// It was made, and has failed.
    Failed(Error),
}

impl RequestContext<'_> {
    /// Commits a group, as durable as the database's default.
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
                let ticket = table.submit_group(group)?;
                let etags = ticket.etags.clone();
                place.set(Some(ticket));
                Ok(etags)
            }
            Commits::Later(_) => table.commit_group(group, table.durability()),
            Commits::Failed(error) => Err(error.clone()),
        }
    }

    /// A share for the answer to a write, of `bytes` at the most: once it is carried out, it is answered.
    ///
    /// # Errors
    /// `ServerBusy`.
    pub(super) fn response_share(&self, bytes: usize) -> Result<Share, Fault> {
        let mut share = Share::default();
        match self.commits {
            // It had room before.
            Commits::Failed(_) => {}
            Commits::Later(_) => self.request.grow(&mut share, bytes)?,
        }
        Ok(share)
    }

    /// How much metadata is asked for.
    ///
    /// # Errors
    /// 415, see [`Level::of`].
    pub(super) fn level(&self) -> Result<Level, Fault> {
        Level::of(self.request, &self.target.query, self.version)
    }
}
