//! Tokens: the end of a page, as the keys of the first entity not yet returned.

use crate::error::{Error, Result};
use crate::format::key::{TABLE_ID_BYTES, decode_part};

/// The end of a page: the keys of the first entity not yet returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its PartitionKey.
    pub partition_key: String,
    /// Its RowKey.
    pub row_key: String,
}

/// A row's key, or a bound, as a token. A bound after a whole key ends in U+0001, which no key
/// contains; it becomes the last character of the token.
pub(super) fn token(bound: &[u8]) -> Result<Token> {
    let damaged = |error| Error::decode("row".as_ref(), 0, error);
    let texts = bound.get(TABLE_ID_BYTES..).unwrap_or_default();
    let end = texts.iter().position(|byte| *byte == 0).unwrap_or(texts.len());
    let text = |part: Option<&[u8]>| {
        decode_part(part.unwrap_or_default()).map_err(damaged).map(std::borrow::Cow::into_owned)
    };
    Ok(Token { partition_key: text(texts.get(..end))?, row_key: text(texts.get(end + 1..))? })
}
