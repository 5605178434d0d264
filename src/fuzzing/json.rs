//! Targets: requests and entities as JSON, and the text of filters.

use crate::wire::exec::read_request;
use crate::wire::keys::KeyFilter;
use crate::wire::odata::{Metadata, put_entity, read_entity};

/// One line of `exec`, and an entity: what is read is written so that it reads back equal.
pub fn json(data: &[u8]) {
    drop(read_request(data));
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(entity) = read_entity(text) else { return };
    let mut written = Vec::new();
    put_entity(&mut written, &entity, None, Metadata::TYPES);
    let again = std::str::from_utf8(&written).ok().map(read_entity);
    let again = again.and_then(Result::ok).map(|entity| format!("{entity:?}"));
    assert_eq!(again, Some(format!("{entity:?}")), "{}", String::from_utf8_lossy(&written));
}

/// Filters by key: what is understood is written so that it is understood as the same.
pub fn filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(filter) = KeyFilter::parse(text) else { return };
    let quoted = |key: &str| key.replace('\'', "''");
    let written = match &filter {
        KeyFilter::All => " ".to_owned(),
        KeyFilter::Partition(pk) => format!("PartitionKey eq '{}'", quoted(pk)),
        KeyFilter::Row(pk, rk) => {
            format!("('{}' eq RowKey) and PartitionKey eq '{}'", quoted(rk), quoted(pk))
        }
    };
    assert_eq!(KeyFilter::parse(&written).ok(), Some(filter), "{written}");
}
