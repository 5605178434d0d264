//! A Table service at another address: [`Remote`] is a [`TableStore`] over HTTP.
//!
//! `endpoint` has the address and the credential, `request` the requests and answers of each verb,
//! `transport` sends them.

pub(crate) mod endpoint;
mod options;
mod request;
pub(crate) mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::endpoint::Endpoint;
pub use self::options::RemoteOptions;
use self::request::{Draft, elements, failure, malformed, now, read_entity, read_group};
use self::transport::{NoAnswer, Response, Transport};
use super::continuation::Continuation;
use super::table_store::{Condition, EntityPage, PageQuery, TableStore};
use crate::clock::Clock;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::json::{self, Scalar};
use crate::model::{ETag, Entity};
use crate::retry::Rng;
use crate::sync::Mutex;
use crate::table::{EntityGroup, Operation};

/// A Table service at another address. Cheap to clone; clones share connections.
///
/// Requests are signed with the account's key or have a shared access signature. `Debug` and errors
/// show neither.
#[derive(Clone)]
pub struct Remote {
    endpoint: Endpoint,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    rng: Arc<Mutex<Rng>>,
    options: RemoteOptions,
}

/// The maximum time that the service may take for a request.
const SECONDS_MAX: u64 = 30;
/// The maximum number of entities in a page.
const PAGE_MAX: usize = 1_000;

impl Remote {
    /// Prepares access to the service that `text` describes: a connection string,
    /// `UseDevelopmentStorage=true`, a URL with a shared access signature, `env:NAME` (the text in an
    /// environment variable) or `file:PATH` (the text in a file). Sends nothing.
    ///
    /// # Errors
    /// `InvalidInput` for another text, and for plain HTTP to another machine.
    pub fn open(text: &str) -> Result<Self> {
        RemoteOptions::new().open(text)
    }

    /// Creates access with these parts; tests and simulations replace the system's.
    pub(crate) fn with_parts(
        endpoint: Endpoint,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        rng: Rng,
        options: RemoteOptions,
    ) -> Self {
        let rng = Arc::new(Mutex::new(rng));
        Self { endpoint, transport, clock, rng, options }
    }

    fn ask(&self, draft: &Draft) -> Result<Response> {
        let request = draft.signed(&self.endpoint, now(&*self.clock, 0), SECONDS_MAX);
        let answer = self.transport.send(&request, self.options.timeout);
        let response = answer.map_err(|lost| self.lost(draft, &lost))?;
        match response.status {
            200..=299 => Ok(response),
            300..=399 => Err(malformed("a redirection")),
            _ => Err(failure(&response)),
        }
    }

    fn lost(&self, draft: &Draft, lost: &NoAnswer) -> Error {
        let NoAnswer { was_sent, problem, .. } = lost;
        let place = self.endpoint.name();
        match *was_sent && draft.method != "GET" {
            true => Error::new(
                ErrorKind::OutcomeUnknown,
                format!(
                    "no answer from {place}, which may have carried out the request: {problem}"
                ),
            ),
            false => Error::new(ErrorKind::Io, format!("no answer from {place}: {problem}")),
        }
    }

    fn write(&self, draft: &Draft) -> Result<ETag> {
        let response = self.ask(draft)?;
        response.header("ETag").ok_or_else(|| malformed("an answer without ETag"))?.parse()
    }

    /// Sends a draft of a page; if the page is too large, sends it again with half the entities.
    fn page(&self, draft: impl Fn(usize) -> Draft, mut top: usize) -> Result<Response> {
        loop {
            let draft = draft(top);
            let request = draft.signed(&self.endpoint, now(&*self.clock, 0), SECONDS_MAX);
            match self.transport.send(&request, self.options.timeout) {
                Err(lost) if lost.is_too_large && top > 1 => top /= 2,
                Err(lost) => return Err(self.lost(&draft, &lost)),
                Ok(response) if response.status == 200 => return Ok(response),
                Ok(response) => return Err(failure(&response)),
            }
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.endpoint.name())
    }
}

impl TableStore for Remote {
    fn create_table(&self, table: &str) -> Result<()> {
        self.ask(&Draft::create_table(table)).map(drop)
    }

    fn delete_table(&self, table: &str) -> Result<()> {
        self.ask(&Draft::delete_table(table)).map(drop)
    }

    fn tables(&self) -> Result<Vec<String>> {
        let (mut names, mut next) = (Vec::new(), None::<String>);
        loop {
            let response = self.ask(&Draft::tables(next.as_deref()))?;
            let text = response.text().map_err(|_| malformed("a list"))?;
            for item in elements(text)? {
                let members = json::read_object(&item, 16)?;
                let name = members.into_iter().find(|(name, _)| name == "TableName");
                match name.map(|(_, value)| Scalar::read(value)).transpose()? {
                    Some(Scalar::String(name)) => names.push(name.into_owned()),
                    _ => return Err(malformed("a table without a name")),
                }
            }
            next = response.header("x-ms-continuation-NextTableName").map(str::to_owned);
            if next.is_none() {
                return Ok(names);
            }
        }
    }

    fn get(
        &self,
        table: &str,
        partition_key: &str,
        row_key: &str,
        select: &[&str],
    ) -> Result<Option<Entity>> {
        match self.ask(&Draft::get(table, partition_key, row_key, select)) {
            Ok(response) => {
                let text = response.text().map_err(|_| malformed("an entity"))?;
                read_entity(text, response.header("ETag")).map(Some)
            }
            Err(error) if error.code() == Code::ResourceNotFound.as_str() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn insert(&self, table: &str, entity: &Entity) -> Result<ETag> {
        self.write(&Draft::operation(table, &Operation::Insert(entity.clone())))
    }

    fn replace(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        let draft = Draft::operation(table, &Operation::Upsert(entity.clone()));
        self.write(&draft.with_condition(condition))
    }

    fn merge(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        let draft = Draft::operation(table, &Operation::UpsertMerge(entity.clone()));
        self.write(&draft.with_condition(condition))
    }

    fn delete(
        &self,
        table: &str,
        partition_key: &str,
        row_key: &str,
        condition: &Condition,
    ) -> Result<()> {
        let etag = match condition {
            Condition::Match(etag) => Some(etag.clone()),
            Condition::None | Condition::Any => None,
        };
        let (partition_key, row_key) = (partition_key.to_owned(), row_key.to_owned());
        let operation = Operation::Delete { partition_key, row_key, etag };
        match self.ask(&Draft::operation(table, &operation)) {
            Err(error)
                if *condition == Condition::None
                    && error.code() == Code::ResourceNotFound.as_str() =>
            {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>> {
        let response = self.ask(&Draft::group(&self.endpoint, table, group))?;
        read_group(&response, group.len())
    }

    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage> {
        let next = page.continuation.map(|next| next.of(self.endpoint.name())).transpose()?;
        let top = if page.top == 0 { PAGE_MAX } else { page.top };
        let draft = |top| Draft::query(table, (page.filter, page.select, top), next);
        let response = self.page(draft, top)?;
        let text = response.text().map_err(|_| malformed("a page"))?;
        let items = elements(text)?;
        let entities = items.iter().map(|item| read_entity(item, None));
        let entities = entities.collect::<Result<Vec<_>>>()?;
        let header = |name| response.header(name).map(str::to_owned);
        let next = header("x-ms-continuation-NextPartitionKey").map(|partition| {
            let row = header("x-ms-continuation-NextRowKey").unwrap_or_default();
            Continuation::new(self.endpoint.name(), partition, row)
        });
        Ok(EntityPage { entities, next })
    }
}
