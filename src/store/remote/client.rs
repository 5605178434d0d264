//! The verbs of a store, as requests to a Table service.

use std::borrow::Cow;
#[cfg(feature = "bench")]
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::check;
use super::endpoint::{Endpoint, referenced};
use super::exchange::{Exchange, Write};
use super::options::RemoteOptions;
use super::request::Draft;
use super::response::{self, PAGE_MAX, Refusal};
use super::transport::{Http, Transport};
use crate::billing::Bill;
use crate::clock::{Clock, SystemClock};
use crate::error::{Code, Error, ErrorKind, Result, quoted};
use crate::model::{DateTime, ETag, Entity, Guid, check_property_name, check_table_name};
use crate::mutants::mutant;
use crate::query::KeyRange;
use crate::retry::Rng;
use crate::store::continuation::Continuation;
use crate::store::pages::Repeats;
use crate::store::table_store::{Condition, EntityPage, PageQuery, TableStore};
use crate::table::{EntityGroup, Operation, quoted_entity_of};

/// A Table service at another address. Cheap to clone; clones share connections.
///
/// Requests are signed with the account's key or have a shared access signature. `Debug` and errors
/// show neither. All calls block the thread.
///
/// # Lost answers
/// A request without an answer is repeated as [`RemoteOptions::retries`] allows.
/// [`RemoteOptions::request_id`] stores an id in each written entity. Results:
///
/// | request | result | wait for a try that may still take effect |
/// | --- | --- | --- |
/// | read | as without the loss | none |
/// | [`upsert`](TableStore::upsert), `upsert_merge`, and [`Condition::Any`] | may have taken effect twice | before a repeat |
/// | insert, group, table | [`ErrorKind::OutcomeUnknown`] if the repeat is refused | before a repeat |
/// | write or group with an ETag | the same | before a read that is to show that nothing was done |
/// | any of these with a request id | success if a read finds the id, else as above | before the id counts; none with an ETag |
///
/// A wait lasts until the service has given up the try, at most 30 s. Without an ETag, the try
/// could overwrite a later write after a read has found the id.
///
/// Errors and `Debug` never show a credential. The HTTP client, the crate `ureq`, logs whole URLs
/// at the level Trace of the crate `log`. The URL has the signature if the credential is one, so do
/// not log `ureq` at that level.
///
/// # Errors
/// The kinds and codes are those of a [`Db`](crate::Db). In addition:
/// * `OutcomeUnknown`: a write was sent, and it is unknown whether it took effect. Read the entity.
/// * `Io`: the service was not reached, refused the account or its permission, or sent an answer
///   that breaks the protocol. A write had no effect.
/// * `Busy` and `Timeout`: nothing was done. `Busy` is also the answer 429 (too many requests).
///   `Timeout` is for reads only. If the request was repeated already, these errors are not
///   [transient](Error::is_transient), so that the retries of an outer
///   [`RetryPolicy`](crate::RetryPolicy) do not multiply.
///
/// ```no_run
/// use rowstone::store::{Remote, TableStore};
/// use rowstone::Entity;
///
/// # fn main() -> rowstone::Result<()> {
/// let store = Remote::open("env:SHOP_TABLES")?; // a connection string
/// store.create_table("parts")?;
/// store.insert("parts", &Entity::new("bolts", "m4x20").with("Price", 0.12))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Remote {
    exchange: Arc<Exchange>,
    /// Whether queries are in descending order, which only a service with extensions has.
    is_reversed: bool,
}

impl Remote {
    /// Returns a URL with a shared access signature: until `expiry` its owner may read (`r`), add
    /// (`a`), update (`u`) and delete (`d`) entities of `partitions` of `table`, as the letters in
    /// `permissions` say, in this order. The URL is a text for [`open`](Self::open). Sends nothing.
    ///
    /// ```
    /// use rowstone::DateTime;
    /// use rowstone::store::Remote;
    ///
    /// # fn main() -> rowstone::Result<()> {
    /// let owner = Remote::open("UseDevelopmentStorage=true")?;
    /// let expiry: DateTime = "2030-01-01T00:00Z".parse()?;
    /// let url = owner.shared_access("parts", "bolts"..="bolts", "r", expiry)?;
    /// let reader = Remote::open(&url)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for a malformed name of a table, an empty PartitionKey, which would grant
    /// access to all partitions, other permissions, and if this store was opened with a signature.
    pub fn shared_access(
        &self,
        table: &str,
        partitions: RangeInclusive<&str>,
        permissions: &str,
        expiry: DateTime,
    ) -> Result<String> {
        check::table(table)?;
        self.endpoint().shared_access(table, partitions, permissions, expiry)
    }

    /// Prepares access to the service that `text` describes: a connection string,
    /// `UseDevelopmentStorage=true`, a URL with a shared access signature, `env:NAME` (the text in
    /// an environment variable) or `file:PATH` (the text in a file). Sends nothing.
    ///
    /// # Errors
    /// `InvalidInput` for another text, for plain HTTP to another machine, and for a file of more
    /// than 64 KiB; `Io` for a file that cannot be read.
    pub fn open(text: &str) -> Result<Self> {
        Self::open_with(text, RemoteOptions::new())
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// As [`open`](Self::open), and `InvalidInput` for a property name that is not allowed, a
    /// secondary location whose address is unknown, and a file of certificates that has none, has a
    /// malformed one or is longer than 1 MiB.
    pub fn open_with(text: &str, options: RemoteOptions) -> Result<Self> {
        match referenced(text)? {
            Some(read) => Self::open_read(&read, Some(text.to_owned()), options),
            None => Self::open_read(text, None, options),
        }
    }

    /// As [`open_with`](Self::open_with), for a text whose credential was read from `source`, which
    /// is `env:NAME` or `file:PATH`.
    pub(crate) fn open_read(
        text: &str,
        source: Option<String>,
        options: RemoteOptions,
    ) -> Result<Self> {
        let endpoint = Endpoint { source, ..Endpoint::read(text)? };
        if !options.plain_http {
            endpoint.check_protection()?;
        }
        if options.secondary && endpoint.secondary.is_none() {
            return Err(Error::refused_with(
                Code::InvalidInput,
                "the address of the secondary location is unknown: set TableSecondaryEndpoint",
            ));
        }
        options.request_id.as_deref().map_or(Ok(()), check_property_name)?;
        let transport = Arc::new(Http::new(options.ca.as_deref(), endpoint.is_tls())?);
        let clock = Arc::new(SystemClock::new());
        Ok(Self::with_parts(endpoint, transport, clock, Rng::from_entropy(), options))
    }

    /// Creates access with these parts; tests and simulations replace the system's.
    pub(crate) fn with_parts(
        endpoint: Endpoint,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        rng: Rng,
        options: RemoteOptions,
    ) -> Self {
        let exchange = Arc::new(Exchange::new(endpoint, transport, clock, rng, options));
        Self { exchange, is_reversed: false }
    }

    /// Returns what the service bills for the requests that it has answered: transactions and bytes
    /// out.
    pub(crate) fn bill(&self) -> Bill {
        self.exchange.bill()
    }

    #[cfg(feature = "bench")]
    /// Returns the numbers of errors since the last call, by code. Each try counts.
    pub(crate) fn take_errors(&self) -> BTreeMap<String, u64> {
        self.exchange.take_errors()
    }

    /// Returns the URL of the service, without a signature.
    pub(crate) fn name(&self) -> &str {
        self.endpoint().name()
    }

    /// Whether the credential may permit reads.
    pub(crate) fn may_read(&self) -> bool {
        self.endpoint().may_read()
    }

    /// Whether the signature covers only a range of keys.
    pub(crate) fn hides_keys(&self) -> bool {
        self.endpoint().hides_keys()
    }

    /// Returns access whose queries are in descending order.
    pub(crate) fn reversed(&self) -> Self {
        Self { is_reversed: true, ..self.clone() }
    }

    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    fn endpoint(&self) -> &Endpoint {
        &self.exchange.endpoint
    }

    /// Sets the request id of a write in its entity. Returns the id if the entity now has it.
    fn mark(&self, operation: &mut Operation, id: Option<Guid>) -> Option<Guid> {
        let entity = match operation {
            Operation::Delete { .. } => return None,
            Operation::Insert(entity)
            | Operation::Replace(entity, _)
            | Operation::Merge(entity, _)
            | Operation::Upsert(entity)
            | Operation::UpsertMerge(entity) => entity,
        };
        if let Some((property, id)) = self.exchange.options.request_id.as_deref().zip(id) {
            entity.set(property, id);
        }
        id
    }

    fn new_id(&self) -> Option<Guid> {
        self.exchange.options.request_id.as_ref().map(|_| self.exchange.new_id())
    }

    /// Returns the write of one operation.
    fn operation(&self, table: &str, mut operation: Operation) -> Result<Write> {
        check::table(table)?;
        check::operation(&operation)?;
        let id = self.mark(&mut operation, self.new_id());
        let etag = etag_of(&operation).cloned();
        let draft = Draft::operation(table, &operation);
        Ok(Write { is_once: etag.is_some(), ..write(draft, table, operation.keys(), id, etag) })
    }

    /// Adds the table or entity of a request; the service, if it has no such table.
    fn about(&self, error: Error, table: &str, keys: Option<(&str, &str)>) -> Error {
        let service = self.endpoint().name();
        let object =
            || keys.map_or_else(|| quoted("table", table), |keys| quoted_entity_of(table, keys));
        match error.kind() {
            ErrorKind::Io => error.during(format!("request for {}", quoted("table", table))),
            _ if error.code() == Code::TableNotFound.as_str() => {
                error.about(|| format!("{} of {service}", quoted("table", table)))
            }
            // An account that the service does not have is also a resource that is not found.
            ErrorKind::NotFound => error.about(|| format!("{} of {service}", object())),
            _ => error.about(object),
        }
    }

    fn put(&self, table: &str, operation: Operation) -> Result<ETag> {
        let (partition_key, row_key) = operation.keys();
        let keys = (partition_key.to_owned(), row_key.to_owned());
        let write = self.operation(table, operation);
        let done = write.and_then(|write| self.exchange.write(&write, response::etag, |etag| etag));
        done.map_err(|error| self.about(error, table, Some((&keys.0, &keys.1))))
    }

    fn table(&self, draft: Draft, table: &str) -> Result<()> {
        let object = quoted("table", table);
        let table = table.to_owned();
        let (row, id, etag, is_once) = (None, None, None, false);
        let write = Write { draft, table, object, row, id, etag, is_once };
        let done = self.exchange.write(&write, response::done, drop);
        done.map_err(|error| self.about(error, &write.table, None))
    }
}

fn write(
    draft: Draft,
    table: &str,
    keys: (&str, &str),
    id: Option<Guid>,
    etag: Option<ETag>,
) -> Write {
    let row = Some((keys.0.to_owned(), keys.1.to_owned()));
    let (object, table) = (quoted_entity_of(table, keys), table.to_owned());
    Write { draft, table, object, row, id, etag, is_once: false }
}

fn etag_of(operation: &Operation) -> Option<&ETag> {
    match operation {
        Operation::Replace(_, etag) | Operation::Merge(_, etag) => etag.as_ref(),
        Operation::Delete { etag, .. } => etag.as_ref(),
        Operation::Insert(_) | Operation::Upsert(_) | Operation::UpsertMerge(_) => None,
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.name())
    }
}

impl TableStore for Remote {
    fn create_table(&self, table: &str) -> Result<()> {
        check_table_name(table)?;
        self.table(Draft::create_table(table), table)
    }

    fn delete_table(&self, table: &str) -> Result<()> {
        check::deleted_table(table)?;
        self.table(Draft::delete_table(table), table)
    }

    fn tables(&self) -> Result<Vec<String>> {
        let (mut names, mut next) = (Vec::new(), None::<String>);
        let mut repeats = Repeats::default();
        loop {
            let draft = Draft::tables(next.as_deref());
            let (page, after) = self.exchange.read(&draft, response::tables)?;
            names.extend(page);
            if repeats.is_repeated(after.as_ref()) {
                let text = format!("{} repeats a page of tables", self.endpoint().name());
                return Err(Error::new(ErrorKind::Io, text));
            }
            next = after;
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
        check::table(table)?;
        // No entity has such keys.
        if check::keys(partition_key, row_key).is_err() {
            return Ok(None);
        }
        let draft = Draft::get(table, partition_key, row_key, select);
        let found = self.exchange.read(&draft, |response| match response::entity(response)? {
            Some(entity)
                if (entity.partition_key(), entity.row_key()) != (partition_key, row_key) =>
            {
                Err(Refusal::Malformed("an entity with other keys"))
            }
            found => Ok(found),
        });
        found.map_err(|error| self.about(error, table, Some((partition_key, row_key))))
    }

    fn insert(&self, table: &str, entity: &Entity) -> Result<ETag> {
        self.put(table, Operation::Insert(entity.clone()))
    }

    fn replace(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        let entity = entity.clone();
        let operation = match condition {
            Condition::None => Operation::Upsert(entity),
            Condition::Any => Operation::Replace(entity, None),
            Condition::Match(etag) => Operation::Replace(entity, Some(etag.clone())),
        };
        self.put(table, operation)
    }

    fn merge(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        let entity = entity.clone();
        let operation = match condition {
            Condition::None => Operation::UpsertMerge(entity),
            Condition::Any => Operation::Merge(entity, None),
            Condition::Match(etag) => Operation::Merge(entity, Some(etag.clone())),
        };
        self.put(table, operation)
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
        let keys = (partition_key.to_owned(), row_key.to_owned());
        let operation = Operation::Delete { partition_key: keys.0, row_key: keys.1, etag };
        let done = self.operation(table, operation).and_then(|write| match condition {
            Condition::None => self.exchange.write(&write, response::done_or_absent, drop),
            _ => self.exchange.write(&write, response::done, drop),
        });
        done.map_err(|error| self.about(error, table, Some((partition_key, row_key))))
    }

    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>> {
        check::table(table).map_err(|error| error.at_index(0))?;
        check::group(group).map_err(|error| {
            let keys = error.index().and_then(|index| group.keys(index));
            self.about(error, table, keys)
        })?;
        let mut operations: Vec<_> = group.operations().map(Cow::into_owned).collect();
        let id = self.new_id();
        let mut numbered = operations.iter_mut().enumerate();
        let marked = numbered.find_map(|(index, op)| Some((index, self.mark(op, id)?)));
        let conditional = operations.iter().position(|operation| etag_of(operation).is_some());
        let row = marked.map(|(index, _)| index).or(conditional).unwrap_or(0);
        let Some(shown) = operations.get(row) else {
            return Err(Error::refused(Code::InvalidInput).about(|| quoted("table", table)));
        };
        let etag = etag_of(shown).cloned();
        let id = marked.map(|(_, id)| id);
        let count = if mutant!("split-group") { 1 } else { operations.len() };
        let draft = Draft::group(self.endpoint(), table, &operations[..count]);
        let is_once = conditional.is_some();
        let write = Write { is_once, ..write(draft, table, shown.keys(), id, etag) };
        let read = |answer: &_| response::group(answer, operations.len());
        // The ETags of the other entities are not known: another client may have changed them.
        let found = |etag| {
            let mut etags = vec![None; operations.len()];
            etags[row] = Some(etag);
            etags
        };
        self.exchange.write(&write, read, found).map_err(|error| {
            let keys = error.index().and_then(|index| operations.get(index)).map(Operation::keys);
            self.about(error, table, keys)
        })
    }

    fn delete_range(&self, table: &str, range: &KeyRange) -> Result<bool> {
        self.delete_range_at_once(table, range)
    }

    fn now(&self) -> Result<DateTime> {
        let ticks = self.exchange.date(&Draft::tables(None).one())?;
        Ok(DateTime::from_ticks(ticks).unwrap_or(DateTime::MAX))
    }

    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage> {
        check::table(table)?;
        let store = self.endpoint().name();
        let next = page.continuation.map(|next| next.of(store)).transpose()?;
        let top = if page.top == 0 { PAGE_MAX } else { page.top };
        let draft = |top| {
            let draft = Draft::query(table, (page.filter, page.select, top), next);
            if self.is_reversed { draft.reversed(table) } else { draft }
        };
        let found = self.exchange.page(draft, top);
        let (entities, next) = found.map_err(|error| self.about(error, table, None))?;
        let next = next.filter(|_| !mutant!("dropped-page") || entities.len() >= top);
        let next = next.map(|(partition, row)| Continuation::new(store, partition, row));
        Ok(EntityPage { entities, next })
    }
}
