//! Fuzz target for the filter language.

use crate::model::Entity;
use crate::query::Filter;

/// Parses the input as a filter. An accepted filter must print as text that parses to the same
/// filter, and an entity must match either the filter or its negation, but not both. A refused
/// filter must result in one of two error codes.
pub fn filter_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let filter: Filter = match text.parse() {
        Ok(filter) => filter,
        Err(error) => {
            assert!(matches!(error.code(), "InvalidInput" | "NotImplemented"), "{error:?}");
            return;
        }
    };
    let printed = filter.to_string();
    let again = printed.parse::<Filter>();
    assert_eq!(again.as_ref().ok(), Some(&filter), "{printed}: {again:?}");
    drop(again);
    let entity = Entity::new("bolts", "m4").with("A", 1).with("Price", 1.5).with("T", true);
    let matches = filter.matches(&entity);
    let negated = !filter;
    assert!(negated.check().is_err() || negated.matches(&entity) != matches, "{printed}");
}
