//! Fuzz target for requests and entities in JSON.

use super::made::made;
use crate::json::exec::read_request;
use crate::json::odata::{Metadata, put_entity, read_entity};

/// Parses the input as one line of `exec` and as an entity. An accepted entity, written as JSON,
/// must read back equal.
pub fn json(data: &[u8]) {
    drop(read_request(data));
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(entity) = read_entity(text) else { return };
    let written = made(|out| put_entity(out, &entity, None, Metadata::TYPES));
    let again = std::str::from_utf8(&written).ok().map(read_entity);
    let again = again.and_then(Result::ok).map(|entity| format!("{entity:?}"));
    assert_eq!(again, Some(format!("{entity:?}")), "{}", String::from_utf8_lossy(&written));
}
