//! Writes and reads the commits of the change feed as JSON objects.

use super::Object;
use super::odata::{Metadata, entity_text};
use crate::db::{Change, Commit};
#[cfg(feature = "remote")]
use crate::{
    error::{Error, ErrorKind, Result},
    json::{self, Members, Scalar, odata},
    model::{Entity, EntityEncoder, KeyPart},
    query::KeyRange,
};

/// Puts the position, the time and the given `changes` of a commit.
pub(crate) fn put_commit(object: &mut Object<'_>, commit: &Commit, changes: &[&Change]) {
    object.text("position", &commit.position.to_string());
    object.text("timestamp", &commit.timestamp.to_string());
    object.objects("changes", changes, |object, change| put_change(object, change));
}

fn put_change(object: &mut Object<'_>, change: &Change) {
    let op = match change {
        Change::TableCreated { .. } => "create-table",
        Change::TableDropped { .. } => "drop-table",
        Change::Put { .. } => "put",
        Change::Deleted { .. } => "delete",
        Change::RangeDeleted { .. } => "delete-range",
        Change::Expired { .. } => "expire",
        Change::Imported { .. } => "import",
    };
    object.text("op", op);
    object.text("table", change.table());
    match change {
        Change::Put { entity, .. } => {
            object.raw("entity", entity_text(entity, Metadata::MINIMAL));
        }
        Change::Deleted { partition_key, row_key, .. } => {
            object.text("PartitionKey", partition_key);
            object.text("RowKey", row_key);
        }
        Change::RangeDeleted { range, .. } | Change::Imported { range, .. } => {
            object.text("range", &range.to_string());
        }
        Change::Expired { before, .. } => object.text("before", &before.to_string()),
        Change::TableCreated { .. } | Change::TableDropped { .. } => {}
    }
}

/// The maximum number of members of a commit, and of a change.
#[cfg(feature = "remote")]
const MEMBERS_MAX: usize = 16;

/// Reads a commit that [`put_commit`] wrote.
///
/// # Errors
/// `InvalidInput` for another text.
#[cfg(feature = "remote")]
pub(crate) fn read_commit(text: &str) -> Result<Commit> {
    let commit = Fields::read(text)?;
    let changes = json::read_array(commit.raw("changes")?, usize::MAX)?.into_iter();
    Ok(Commit {
        position: commit.text("position")?.parse()?,
        timestamp: commit.text("timestamp")?.parse()?,
        changes: changes.map(|change| read_change(change.get())).collect::<Result<_>>()?,
    })
}

#[cfg(feature = "remote")]
fn read_change(text: &str) -> Result<Change> {
    let change = Fields::read(text)?;
    let table = change.text("table")?;
    Ok(match &*change.text("op")? {
        "create-table" => Change::TableCreated { table },
        "drop-table" => Change::TableDropped { table },
        "put" => Change::Put { table, entity: read_entity(change.raw("entity")?)? },
        "delete" => Change::Deleted {
            table,
            partition_key: change.text("PartitionKey")?,
            row_key: change.text("RowKey")?,
        },
        "delete-range" => Change::RangeDeleted { table, range: change.range()? },
        "import" => Change::Imported { table, range: change.range()? },
        "expire" => Change::Expired { table, before: change.text("before")?.parse()? },
        op => return Err(malformed(&format!("operation '{op}' of a change is not known"))),
    })
}

/// Reads an entity with its ETag and Timestamp.
#[cfg(feature = "remote")]
fn read_entity(text: &str) -> Result<Entity> {
    let members = odata::Members::read(text)?;
    let etag = members.etag().map(str::parse).transpose()?;
    let timestamp = match members.find("Timestamp") {
        Some(Scalar::String(text)) => Some(text.parse()?),
        _ => None,
    };
    let keys = (members.key(KeyPart::PartitionKey)?, members.key(KeyPart::RowKey)?);
    let entity = members.entity(keys.0, keys.1, &mut EntityEncoder::default())?;
    Ok(entity.received(etag, timestamp))
}

/// The members of a commit or of a change.
#[cfg(feature = "remote")]
struct Fields<'a>(Members<'a>);

#[cfg(feature = "remote")]
impl<'a> Fields<'a> {
    fn read(text: &'a str) -> Result<Self> {
        Ok(Self(json::read_object(text, MEMBERS_MAX)?))
    }

    fn raw(&self, name: &str) -> Result<&'a str> {
        let found = self.0.iter().find(|(member, _)| member == name);
        found
            .map(|(_, value)| value.get())
            .ok_or_else(|| malformed(&format!("'{name}' is missing in a change")))
    }

    fn text(&self, name: &str) -> Result<String> {
        Ok(json::read_string(self.raw(name)?).map_err(|_| malformed("not a text"))?.into_owned())
    }

    fn range(&self) -> Result<KeyRange> {
        KeyRange::parse(&self.text("range")?).ok_or_else(|| malformed("not a range"))
    }
}

#[cfg(feature = "remote")]
fn malformed(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, problem.to_owned())
}

#[cfg(all(test, feature = "remote"))]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::model::Guid;

    #[test]
    fn a_written_commit_is_read_back() {
        let db = Db::open_in_memory().unwrap();
        let since = db.position();
        let table = db.create_table("Tab").unwrap();
        let row = Entity::new("it's", "\"\u{1f600}")
            .with("Long", i64::MAX)
            .with("Double", 3.0)
            .with("NaN", f64::NAN)
            .with("Bytes", vec![1_u8, 2])
            .with("Guid", Guid::from_bytes([7; 16]))
            .with("Empty", "");
        table.upsert(row).unwrap();
        table.delete("it's", "\"\u{1f600}").unwrap();
        table.delete_range(&KeyRange::rows("it's", "a"..)).unwrap();
        db.delete_table("Tab").unwrap();
        let commits: Vec<_> = db.changes(since).unwrap().map(|commit| commit.unwrap()).collect();
        assert_eq!(commits.len(), 5);
        for commit in commits {
            let changes: Vec<_> = commit.changes.iter().collect();
            let text = json::object(|object| put_commit(object, &commit, &changes));
            let read = read_commit(&text).unwrap();
            let changes: Vec<_> = read.changes.iter().collect();
            assert_eq!(json::object(|object| put_commit(object, &read, &changes)), text);
            assert_eq!(read.position, commit.position);
        }
        let (expired, imported) = (
            Change::Expired { table: "T".into(), before: "2026-01-01T00:00:00Z".parse().unwrap() },
            Change::Imported { table: "T".into(), range: KeyRange::partition("p") },
        );
        for change in [expired, imported] {
            let text = json::object(|object| put_change(object, &change));
            assert_eq!(read_change(&text).unwrap(), change);
        }
        for text in ["", "{}", r#"{"op":"x","table":"T"}"#, r#"{"op":"put","table":"T"}"#] {
            assert!(read_change(text).is_err(), "{text}");
        }
    }
}
