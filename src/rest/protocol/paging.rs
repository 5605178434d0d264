//! Continuation tokens: encodes the position in a listing for response headers, and decodes it from
//! query parameters.
//!
//! Invariant: the token for any text decodes to that text, and is legal in a header and in a query
//! string.
//!
//! Not here: the meaning of a position and how long it stays valid (`query`).

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};

use super::address::{Parameter, Parameters};
use super::fault::Fault;
use crate::error::Code;
use crate::query::Token;

/// The response header with the PartitionKey at which the next page begins.
pub(crate) const NEXT_PARTITION_KEY: &str = "x-ms-continuation-NextPartitionKey";
/// The response header with the RowKey at which the next page begins.
pub(crate) const NEXT_ROW_KEY: &str = "x-ms-continuation-NextRowKey";
/// The response header with the name of the table at which the next page of a listing begins.
pub(crate) const NEXT_TABLE_NAME: &str = "x-ms-continuation-NextTableName";

/// The maximum length of a token to decode, in bytes. Enough for a key of 1,024 UTF-16 units and a
/// suffix that a client library may append.
const ENCODED_MAX: usize = 8192;
/// Separates a table's name from a suffix that only the server uses.
const SUFFIX: char = '\u{1}';

/// Encodes text as a token: `Smith` as `1!8!U21pdGg-`.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = BASE64.encode(text);
    // Each replacement is one byte, so the length stays the same.
    encoded = encoded.replace('+', "*").replace('/', "_").replace('=', "-");
    format!("1!{}!{encoded}", encoded.len())
}

/// Decodes a token; `None` if it is malformed.
pub(crate) fn decode(token: &str) -> Option<String> {
    let (length, encoded) = token.strip_prefix("1!")?.split_once('!')?;
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = is_number && length.parse() == Ok(encoded.len()) && encoded.len() <= ENCODED_MAX;
    if !is_whole || encoded.contains(['+', '/', '=']) {
        return None;
    }
    let encoded = encoded.replace('*', "+").replace('_', "/").replace('-', "=");
    String::from_utf8(BASE64.decode(encoded).ok()?).ok()
}

/// Reads the position at which a query of entities continues.
///
/// # Errors
/// `InvalidInput`. An empty `NextRowKey` counts as absent, because some clients send one.
pub(crate) fn read_entities(query: &Parameters) -> Result<Option<Token>, Fault> {
    let row = query.get(Parameter::NextRowKey).filter(|row| !row.is_empty());
    let Some(partition) = query.get(Parameter::NextPartitionKey) else {
        return if row.is_none() { Ok(None) } else { Err(malformed()) };
    };
    let partition_key = decode(partition).ok_or_else(malformed)?;
    let row_key = row.map_or(Some(String::new()), decode).ok_or_else(malformed)?;
    Ok(Some(Token { partition_key, row_key }))
}

/// Returns the values of [`NEXT_PARTITION_KEY`] and [`NEXT_ROW_KEY`].
pub(crate) fn entities(token: &Token) -> [String; 2] {
    [encode(&token.partition_key), encode(&token.row_key)]
}

/// Reads the lower-case name of the table at which a listing continues.
///
/// # Errors
/// `InvalidInput`.
pub(crate) fn read_tables(query: &Parameters) -> Result<Option<String>, Fault> {
    let Some(token) = query.get(Parameter::NextTableName) else { return Ok(None) };
    let text = decode(token).ok_or_else(malformed)?;
    let name = text.split(SUFFIX).next().unwrap_or_default();
    Ok(Some(name.to_ascii_lowercase()))
}

/// Returns the value of [`NEXT_TABLE_NAME`].
pub(crate) fn tables(name: &str) -> String {
    encode(&format!("{}{SUFFIX}0", name.to_ascii_lowercase()))
}

fn malformed() -> Fault {
    Code::InvalidInput.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::protocol::address::put_query;
    use crate::rng::Rng;

    /// Returns the query parameters for the next page, as a client derives them from the headers
    /// of the current page.
    fn follow<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Vec<(&'static str, &'h str)> {
        let pairs = [
            (Parameter::NextPartitionKey, NEXT_PARTITION_KEY),
            (Parameter::NextRowKey, NEXT_ROW_KEY),
            (Parameter::NextTableName, NEXT_TABLE_NAME),
        ];
        let given =
            pairs.into_iter().filter_map(|(name, from)| Some((name.as_str(), header(from)?)));
        given.filter(|(_, value)| !value.is_empty()).collect()
    }

    #[test]
    fn recorded_tokens() {
        for (text, token) in [
            ("Smith", "1!8!U21pdGg-"),
            ("a", "1!4!YQ--"),
            ("ab", "1!4!YWI-"),
            ("~~~", "1!4!fn5*"),
            ("é?", "1!4!w6k_"),
            ("", "1!0!"),
        ] {
            assert_eq!(encode(text), token);
            assert_eq!(decode(token).as_deref(), Some(text));
        }
    }

    #[test]
    fn any_text_is_decoded_unchanged() {
        let mut rng = Rng::from_seed(3);
        let alphabet: Vec<char> = "a\u{1}\u{0}'+/=é😀\u{ffff}".chars().collect();
        for _ in 0..5_000 {
            let len = rng.below(8);
            let text: String =
                (0..len).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect();
            let token = encode(&text);
            assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"!*_-".contains(&b)));
            assert_eq!(decode(&token), Some(text));
        }
        let longest = "\u{ffff}".repeat(1025);
        assert_eq!(decode(&encode(&longest)), Some(longest));
    }

    #[test]
    fn malformed_tokens() {
        for token in [
            "",
            "Smith",
            "U21pdGg=",
            "1!8!U21pdGg=",
            "1!7!U21pdGg-",
            "1!9!U21pdGg-",
            "1!+8!U21pdGg-",
            "1!!U21pdGg-",
            "1!!",
            "1!8",
            "2!8!U21pdGg-",
            "1!3!U21",
            "1!4!fn5+",
            "1!4!/n5-",
            "1!4!____",
            "1!99999999999999999999999!a",
            "1!4!é--",
        ] {
            assert_eq!(decode(token), None, "{token}");
        }
        let large = "QUJD".repeat(1_000_000);
        assert_eq!(decode(&format!("1!{}!{large}", large.len())), None);
    }

    fn parameters(query: &str) -> Parameters {
        Parameters::read(query).unwrap()
    }

    fn token(partition_key: &str, row_key: &str) -> Token {
        Token { partition_key: partition_key.into(), row_key: row_key.into() }
    }

    #[test]
    fn tokens_of_entities_are_written_and_read_back() {
        for place in [token("Smith", "é?"), token("", ""), token("p", "r\u{1}"), token("+ &=", "")]
        {
            let [partition, row] = entities(&place);
            let headers = |name: &str| match name {
                NEXT_PARTITION_KEY => Some(partition.as_str()),
                NEXT_ROW_KEY => Some(row.as_str()),
                _ => None,
            };
            let mut query = String::new();
            put_query(&mut query, follow(headers));
            assert_eq!(read_entities(&parameters(&query[1..])), Ok(Some(place)));
        }
        assert_eq!(read_entities(&parameters("")), Ok(None));
    }

    #[test]
    fn a_row_key_may_be_omitted_or_empty() {
        for query in ["NextPartitionKey=1!4!YQ--", "NextPartitionKey=1!4!YQ--&NextRowKey="] {
            assert_eq!(read_entities(&parameters(query)), Ok(Some(token("a", ""))));
        }
        assert_eq!(read_entities(&parameters("NextRowKey=")), Ok(None));
        for query in [
            "NextRowKey=1!4!YQ--",
            "NextPartitionKey=",
            "NextPartitionKey=x",
            "NextPartitionKey=1!4!YQ--&NextRowKey=x",
        ] {
            let fault = read_entities(&parameters(query)).unwrap_err();
            assert_eq!((&*fault.code, fault.status), ("InvalidInput", 400), "{query}");
        }
    }

    #[test]
    fn tokens_of_tables_have_lower_case_names() {
        let encoded = tables("People");
        assert!(decode(&encoded).unwrap().starts_with("people\u{1}"));
        let query = format!("NextTableName={encoded}");
        assert_eq!(read_tables(&parameters(&query)).unwrap().as_deref(), Some("people"));
        let plain = format!("NextTableName={}", encode("Robots"));
        assert_eq!(read_tables(&parameters(&plain)).unwrap().as_deref(), Some("robots"));
        assert_eq!(read_tables(&parameters("")), Ok(None));
        assert_eq!(
            read_tables(&parameters("NextTableName=people")).unwrap_err().code,
            "InvalidInput"
        );
    }
}
