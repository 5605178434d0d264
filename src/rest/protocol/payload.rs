//! JSON bodies: writes the bodies of responses at the three levels of metadata, and reads the
//! bodies of requests.
//!
//! Invariants
//! * members are in the service's order: metadata, keys, Timestamp, properties, each annotation
//!   before its value;
//! * at the minimal and the full level, a client can restore the written entity from the body,
//!   including types and ETags.
//!
//! Not here: single values and their types (`odata`), errors (`fault`).

use super::address::{Key, entity_path, entity_path_len, table_path};
use super::fault::Fault;
use super::headers::Level;
use crate::error::{Code, Error};
use crate::json::odata::{self, Metadata};
use crate::json::{self, Scalar};
use crate::model::{EdmType, Entity, EntityEncoder, KeyPart, ValueRef};

/// The data that all entities in one response share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// The account's address, with a trailing slash.
    pub(crate) base: &'a str,
    pub(crate) account: &'a str,
    pub(crate) table: &'a str,
    pub(crate) select: Option<&'a [String]>,
    pub(crate) level: Level,
}

/// The maximum number of members or items to read from a JSON object or array. A page has at most
/// 1,000 entities.
const READ_MAX: usize = 10_000;
/// The service's error message for a malformed body.
const UNREADABLE: &str = "An error occurred while processing this request.";

impl Scope<'_> {
    /// Appends the body of a single entity.
    pub(crate) fn put_single(&self, out: &mut Vec<u8>, entity: &Entity) {
        let context = (self.level != Level::None).then(|| self.context("/@Element"));
        self.put(out, entity, context.as_deref());
    }

    /// Returns an upper bound for the number of bytes that [`put_single`](Self::put_single)
    /// appends.
    pub(crate) fn single_at_most(&self, entity: &Entity) -> usize {
        /// Enough bytes for member names, the ETag and the Timestamp, with their quotes, colons and
        /// commas.
        const AROUND: usize = 512;
        let text = string_at_most;
        let (pk, rk) = (entity.partition_key(), entity.row_key());
        let selected = |name: &String| 2 * text(name) + ",:null".len();
        let names = self.select.map_or(0, |names| names.iter().map(selected).sum());
        let context = match self.level {
            Level::None => 0,
            Level::Minimal | Level::Full => text(self.base) + self.table.len(),
        };
        let links = match self.level {
            Level::None | Level::Minimal => 0,
            Level::Full => {
                let path = entity_path_len(self.table, pk, rk);
                text(self.base) + 2 * path + self.account.len() + self.table.len()
            }
        };
        let properties = entity.properties().map(|(name, value)| property_at_most(name, value));
        AROUND + names + context + links + text(pk) + text(rk) + properties.sum::<usize>()
    }

    /// Appends the body of a page of `entities`. Only tests use it: the server writes pages
    /// directly from rows (`rows`).
    #[cfg(test)]
    pub(crate) fn put_set<'e>(
        &self,
        out: &mut Vec<u8>,
        entities: impl IntoIterator<Item = &'e Entity>,
    ) {
        begin_list(out, (self.level != Level::None).then(|| self.context("")).as_deref());
        json::put_array(out, entities, |out, entity| self.put(out, entity, None));
        out.push(b'}');
    }

    /// Returns `…$metadata#people/@Element&$select=A,B`.
    pub(super) fn context(&self, element: &str) -> String {
        let Self { base, table, .. } = self;
        match self.select {
            Some(names) => format!("{base}$metadata#{table}{element}&$select={}", names.join(",")),
            None => format!("{base}$metadata#{table}{element}"),
        }
    }

    fn put(&self, out: &mut Vec<u8>, entity: &Entity, context: Option<&str>) {
        let metadata = metadata(self.level);
        json::put_object(out, |object| {
            if let Some(context) = context {
                object.text("odata.metadata", context);
            }
            if self.level == Level::Full {
                let Self { base, account, table, .. } = self;
                let link = entity_path(table, entity.partition_key(), entity.row_key());
                object.text("odata.type", &format!("{account}.{table}"));
                object.text("odata.id", &format!("{base}{link}"));
                metadata.put_etag(object, entity);
                object.text("odata.editLink", &link);
            } else {
                metadata.put_etag(object, entity);
            }
            metadata.put_members(object, entity, self.select);
        });
    }
}

/// Appends the body of a single table.
pub(crate) fn put_table(out: &mut Vec<u8>, base: &str, account: &str, name: &str, level: Level) {
    let context = format!("{base}$metadata#Tables/@Element");
    put_table_members(out, Some(&context), base, account, name, level);
}

/// Appends the body of a listing of tables.
pub(crate) fn put_tables<'n>(
    out: &mut Vec<u8>,
    base: &str,
    account: &str,
    names: impl IntoIterator<Item = &'n str>,
    level: Level,
) {
    let context = (level != Level::None).then(|| format!("{base}$metadata#Tables"));
    begin_list(out, context.as_deref());
    json::put_array(out, names, |out, name| {
        put_table_members(out, None, base, account, name, level);
    });
    out.push(b'}');
}

/// Reads the body of a request that creates a table.
///
/// # Errors
/// `InvalidInput`, `PropertiesNeedValue`, `DuplicatePropertiesSpecified`.
pub(crate) fn read_new_table(text: &str) -> Result<String, Fault> {
    let mut name = None;
    for (member, value) in json::read_object(text, READ_MAX)? {
        if member != "TableName" {
            continue;
        }
        if name.replace(Scalar::read(value)?).is_some() {
            return Err(Code::DuplicatePropertiesSpecified.into());
        }
    }
    match name {
        Some(Scalar::String(name)) => Ok(name.into_owned()),
        None | Some(Scalar::Null) => Err(Code::PropertiesNeedValue.into()),
        Some(_) => Err(Code::InvalidInput.into()),
    }
}

/// Reads the entity of an insert, which contains its keys.
///
/// # Errors
/// `InvalidInput`, `PropertiesNeedValue`, `DuplicatePropertiesSpecified`, `TooManyProperties`,
/// `OutOfRangeInput`.
pub(crate) fn read_insert(text: &str, encoder: &mut EntityEncoder) -> Result<Entity, Fault> {
    let members = odata::Members::read(text).map_err(refused)?;
    let key = |part| {
        members.key(part).map_err(|error| match error.code() == Code::InvalidInput.as_str() {
            true => Code::InvalidInput.into(),
            false => Fault::from(error),
        })
    };
    let (partition_key, row_key) = (key(KeyPart::PartitionKey)?, key(KeyPart::RowKey)?);
    members.entity(partition_key, row_key, encoder).map_err(refused)
}

/// Reads the entity of a replace, merge or upsert. Its keys are in the address; keys in the body
/// are ignored. As in the Azure service, they may also be of type Guid, DateTime or Binary.
///
/// # Errors
/// As [`read_insert`], but keys may be missing.
pub(crate) fn read_update(
    text: &str,
    key: &Key,
    encoder: &mut EntityEncoder,
) -> Result<Entity, Fault> {
    let members = odata::Members::read(text).map_err(refused)?;
    for part in [KeyPart::PartitionKey, KeyPart::RowKey] {
        match members.key(part) {
            _ if is_typed_text(&members, part) => {}
            Err(error) if error.code() == Code::InvalidInput.as_str() => {
                return Err(refused(error));
            }
            _ => {}
        }
    }
    members.entity(&key.partition_key, &key.row_key, encoder).map_err(refused)
}

/// Whether the key `part` is given as text of type Guid, DateTime or Binary.
fn is_typed_text(members: &odata::Members<'_>, part: KeyPart) -> bool {
    use EdmType::{Binary, DateTime, Guid};
    matches!(members.find(part.name()), Some(Scalar::String(_)))
        && matches!(members.type_of(part.name()), Ok(Some(Guid | DateTime | Binary)))
}

/// Converts an error about a body to a fault without details, because the service does not report
/// which part of a body it could not read.
fn refused(error: Error) -> Fault {
    let fault = Fault::from(error);
    if fault.code == Code::InvalidInput.as_str() { fault.with_message(UNREADABLE) } else { fault }
}

pub(super) fn metadata(level: Level) -> Metadata {
    match level {
        Level::None => Metadata::NONE,
        Level::Minimal => Metadata::MINIMAL,
        Level::Full => Metadata { timestamp_type: true, ..Metadata::MINIMAL },
    }
}

pub(super) fn begin_list(out: &mut Vec<u8>, context: Option<&str>) {
    out.push(b'{');
    if let Some(context) = context {
        out.extend_from_slice(b"\"odata.metadata\":");
        json::put_string(out, context);
        out.push(b',');
    }
    out.extend_from_slice(b"\"value\":");
}

fn put_table_members(
    out: &mut Vec<u8>,
    context: Option<&str>,
    base: &str,
    account: &str,
    name: &str,
    level: Level,
) {
    json::put_object(out, |object| {
        if let Some(context) = context.filter(|_| level != Level::None) {
            object.text("odata.metadata", context);
        }
        if level == Level::Full {
            let link = table_path(name);
            object.text("odata.type", &format!("{account}.Tables"));
            object.text("odata.id", &format!("{base}{link}"));
            object.text("odata.editLink", &link);
        }
        object.text("TableName", name);
    });
}

/// Returns an upper bound for the length of a property in JSON, including its annotation.
fn property_at_most(name: &str, value: ValueRef<'_>) -> usize {
    /// Enough bytes for quotes, colons, commas, the annotation, and any value except a String or
    /// Binary.
    const AROUND: usize = 96;
    let value = match value {
        ValueRef::String(text) => string_at_most(text),
        ValueRef::Binary(bytes) => bytes.len().div_ceil(3) * 4,
        _ => 0,
    };
    AROUND + 2 * string_at_most(name) + value
}

/// Returns an upper bound for the number of bytes that [`json::put_string`] appends.
fn string_at_most(text: &str) -> usize {
    let longest = if json::plain::is_plain(text.as_bytes()) { 1 } else { "\\u0000".len() };
    2 + longest * text.len()
}

#[cfg(test)]
mod tests;
