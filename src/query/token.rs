//! Continuation tokens. The token after a page has the keys of the first entity that was not
//! returned yet.

use crate::error::{Error, Result};
use crate::format::key::{TABLE_ID_BYTES, decode_part};

/// The position at which the next page begins: the keys of the first entity not returned yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The PartitionKey of the first entity that was not returned yet.
    pub partition_key: String,
    /// The RowKey of the first entity that was not returned yet.
    pub row_key: String,
}

/// Returns the token for the key of a row, or for a bound. A bound directly after a key ends with
/// U+0001, which no key contains. The text in the token then also ends with U+0001.
pub(super) fn token(bound: &[u8]) -> Result<Token> {
    let damaged = |error| Error::decode("row".as_ref(), 0, error);
    let texts = bound.get(TABLE_ID_BYTES..).unwrap_or_default();
    let end = texts.iter().position(|byte| *byte == 0).unwrap_or(texts.len());
    let text = |part: Option<&[u8]>| {
        decode_part(part.unwrap_or_default()).map_err(damaged).map(std::borrow::Cow::into_owned)
    };
    Ok(Token { partition_key: text(texts.get(..end))?, row_key: text(texts.get(end + 1..))? })
}
