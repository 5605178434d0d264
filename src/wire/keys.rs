//! The filters that `exec` can answer without a query planner: PartitionKey by equality, and RowKey too.
//!
//! The text is read by the whole grammar, so that a broken filter (`InvalidInput`) and one that is merely
//! not supported here (`NotImplemented`) are told apart.
//!
//! Not here: comparisons of properties, ranges, `or` and `not`.

use crate::error::{Code, Error, Result};

/// Parentheses and `not` inside one another.
const DEPTH_MAX: usize = 64;

/// Which entities a supported filter names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyFilter {
    All,
    Partition(String),
    Row(String, String),
}

impl KeyFilter {
    /// What `filter` names.
    ///
    /// # Errors
    /// `InvalidInput` if it is malformed, `NotImplemented` if it asks for more than keys by equality.
    pub(crate) fn parse(filter: &str) -> Result<KeyFilter> {
        if filter.trim().is_empty() {
            return Ok(KeyFilter::All);
        }
        let mut parser = Parser { filter, at: 0 };
        let found = parser.or(0)?;
        parser.skip_space();
        if parser.at < filter.len() {
            return Err(parser.error());
        }
        match found {
            Found::Keys { partition: Some(partition), row: None } => {
                Ok(KeyFilter::Partition(partition))
            }
            Found::Keys { partition: Some(partition), row: Some(row) } => {
                Ok(KeyFilter::Row(partition, row))
            }
            Found::Literal => Err(Error::refused_with(
                Code::InvalidInput,
                "The $filter expression must evaluate to a single boolean value.",
            )),
            _ => Err(Error::refused(Code::NotImplemented)),
        }
    }
}

/// What a part of a filter came to.
enum Found {
    /// A conjunction of equalities of keys.
    Keys { partition: Option<String>, row: Option<String> },
    /// A literal alone, which is no condition.
    Literal,
    /// Well-formed, but not for us.
    Other,
}

enum Operand {
    Property(String),
    String(String),
    /// A literal of another type.
    Literal,
}

struct Parser<'a> {
    filter: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn or(&mut self, depth: usize) -> Result<Found> {
        let mut found = self.and(depth)?;
        while self.keyword("or") {
            self.and(depth)?;
            found = Found::Other;
        }
        Ok(found)
    }

    fn and(&mut self, depth: usize) -> Result<Found> {
        let mut found = self.unary(depth)?;
        while self.keyword("and") {
            found = both(found, self.unary(depth)?);
        }
        Ok(found)
    }

    fn unary(&mut self, depth: usize) -> Result<Found> {
        if depth > DEPTH_MAX {
            return Err(Error::refused_with(Code::InvalidInput, "the filter is nested too deeply"));
        }
        if self.keyword("not") {
            self.unary(depth + 1)?;
            return Ok(Found::Other);
        }
        if self.symbol('(') {
            let found = self.or(depth + 1)?;
            return if self.symbol(')') { Ok(found) } else { Err(self.error()) };
        }
        let left = self.operand(depth)?;
        let Some(operator) = self.operator() else {
            return Ok(match left {
                Operand::Property(_) => Found::Other,
                Operand::String(_) | Operand::Literal => Found::Literal,
            });
        };
        let right = self.operand(depth)?;
        Ok(match (left, operator, right) {
            (Operand::Property(name), "eq", Operand::String(value))
            | (Operand::String(value), "eq", Operand::Property(name)) => equality(&name, value),
            _ => Found::Other,
        })
    }

    /// A property, a literal, or a function call, which is nobody's.
    fn operand(&mut self, depth: usize) -> Result<Operand> {
        self.skip_space();
        let start = self.at;
        match self.peek() {
            Some('\'') => return self.quoted().map(Operand::String),
            Some('-' | '0'..='9') => return self.number().map(|()| Operand::Literal),
            Some(c) if c == '_' || c.is_alphabetic() => {}
            _ => return Err(self.error()),
        }
        while self.peek().is_some_and(|c| c == '_' || c == '.' || c.is_alphanumeric()) {
            self.at += self.peek().map_or(0, char::len_utf8);
        }
        let word = self.filter.get(start..self.at).unwrap_or_default().to_owned();
        if is_reserved(&word) {
            self.at = start;
            return Err(self.error());
        }
        match self.peek() {
            Some('\'') if matches!(word.as_str(), "datetime" | "guid" | "binary" | "X") => {
                self.quoted().map(|_| Operand::Literal)
            }
            Some('\'') => Err(self.error()),
            Some('(') => self.call(depth).map(|()| Operand::Literal),
            _ if matches!(word.as_str(), "true" | "false" | "null" | "NaN" | "INF") => {
                Ok(Operand::Literal)
            }
            _ => Ok(Operand::Property(word)),
        }
    }

    /// The arguments of a function; calling any is well-formed and not implemented.
    fn call(&mut self, depth: usize) -> Result<()> {
        self.symbol('(');
        if self.symbol(')') {
            return Err(Error::refused(Code::NotImplemented));
        }
        loop {
            self.or(depth + 1)?;
            if self.symbol(')') {
                return Err(Error::refused(Code::NotImplemented));
            }
            if !self.symbol(',') {
                return Err(self.error());
            }
        }
    }

    /// A string in quotes, inner quotes doubled.
    fn quoted(&mut self) -> Result<String> {
        let opening = self.at;
        let mut value = String::new();
        loop {
            // At a quote: the opening one, or the first of a doubled one.
            let rest = self.filter.get(self.at + 1..).unwrap_or_default();
            let Some(len) = rest.find('\'') else {
                self.at = opening;
                return Err(self.error());
            };
            value.push_str(rest.get(..len).unwrap_or_default());
            self.at += 1 + len + 1;
            if self.peek() != Some('\'') {
                return Ok(value);
            }
            value.push('\'');
        }
    }

    fn number(&mut self) -> Result<()> {
        let rest = self.filter.as_bytes().get(self.at..).unwrap_or_default();
        let len = if rest.starts_with(b"-INF") { 4 } else { super::double::number_len(rest) };
        if len == 0 {
            return Err(self.error());
        }
        let suffix = usize::from(matches!(rest.get(len), Some(b'L' | b'l' | b'D' | b'd')));
        if rest.get(len + suffix).is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            return Err(self.error());
        }
        self.at += len + suffix;
        Ok(())
    }

    fn operator(&mut self) -> Option<&'static str> {
        ["eq", "ne", "gt", "ge", "lt", "le"].into_iter().find(|operator| self.keyword(operator))
    }

    /// Skips space and then `word`, if it stands there by itself.
    fn keyword(&mut self, word: &str) -> bool {
        self.skip_space();
        let Some(rest) = self.filter.get(self.at..).and_then(|rest| rest.strip_prefix(word)) else {
            return false;
        };
        let ends = !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric());
        self.at += if ends { word.len() } else { 0 };
        ends
    }

    fn symbol(&mut self, symbol: char) -> bool {
        self.skip_space();
        let found = self.peek() == Some(symbol);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while let Some(' ' | '\t' | '\n' | '\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<char> {
        self.filter.get(self.at..)?.chars().next()
    }

    fn error(&self) -> Error {
        let at = self.filter.get(..self.at).unwrap_or_default().chars().count();
        let message = format!("Syntax error at position {at} in '{}'.", self.filter);
        Error::refused_with(Code::InvalidInput, message)
    }
}

fn is_reserved(word: &str) -> bool {
    matches!(word, "and" | "or" | "not" | "eq" | "ne" | "gt" | "ge" | "lt" | "le")
}

fn equality(name: &str, value: String) -> Found {
    match name {
        "PartitionKey" => Found::Keys { partition: Some(value), row: None },
        "RowKey" => Found::Keys { partition: None, row: Some(value) },
        _ => Found::Other,
    }
}

/// The conjunction of two parts; a key named twice is left to a planner.
fn both(left: Found, right: Found) -> Found {
    match (left, right) {
        (
            Found::Keys { partition: Some(partition), row: None },
            Found::Keys { partition: None, row: Some(row) },
        )
        | (
            Found::Keys { partition: None, row: Some(row) },
            Found::Keys { partition: Some(partition), row: None },
        ) => Found::Keys { partition: Some(partition), row: Some(row) },
        _ => Found::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &str, expected: KeyFilter) {
        assert_eq!(KeyFilter::parse(filter).unwrap(), expected, "{filter}");
    }

    #[track_caller]
    fn refused(filter: &str, code: &str) {
        let error = KeyFilter::parse(filter).unwrap_err();
        assert_eq!(error.code(), code, "{filter}: {error}");
    }

    fn partition(key: &str) -> KeyFilter {
        KeyFilter::Partition(key.into())
    }

    fn row(partition: &str, row: &str) -> KeyFilter {
        KeyFilter::Row(partition.into(), row.into())
    }

    #[test]
    fn keys_by_equality() {
        check("", KeyFilter::All);
        check("  ", KeyFilter::All);
        check("PartitionKey eq 'p'", partition("p"));
        check("'p' eq PartitionKey", partition("p"));
        check("(PartitionKey eq 'p')", partition("p"));
        check("PartitionKey eq ''", partition(""));
        check("PartitionKey eq 'it''s '''", partition("it's '"));
        check("PartitionKey eq 'p' and RowKey eq 'r'", row("p", "r"));
        check("RowKey eq 'r' and PartitionKey eq 'p'", row("p", "r"));
        check("((PartitionKey eq 'p')and(RowKey eq 'é😀'))", row("p", "é😀"));
        check("PartitionKey eq ' and RowKey eq '", partition(" and RowKey eq "));
    }

    #[test]
    fn what_needs_a_planner_is_not_implemented() {
        for filter in [
            "A eq 1",
            "A",
            "RowKey eq 'r'",
            "PartitionKey eq 5",
            "PartitionKey gt 'p'",
            "PartitionKey eq 'a' and PartitionKey eq 'b'",
            "PartitionKey eq 'p' and RowKey ge 'r'",
            "PartitionKey eq 'p' and A eq 1L",
            "PartitionKey eq 'p' or PartitionKey eq 'q'",
            "not (PartitionKey eq 'p')",
            "A eq B",
            "startswith(RowKey, 'a')",
            "At eq datetime'2024-01-01T00:00:00Z' and Id eq guid'x'",
            "A eq -1.5e3 and B eq true",
            "partitionkey eq 'p'",
        ] {
            refused(filter, "NotImplemented");
        }
    }

    #[test]
    fn broken_filters_are_invalid() {
        for filter in [
            "PartitionKey eq",
            "PartitionKey eq 'p",
            "PartitionKey eq 'p' and",
            "(PartitionKey eq 'p'",
            "PartitionKey eq 'p')",
            "PartitionKey = 'p'",
            "PartitionKey eq 'p' RowKey eq 'r'",
            "eq 'p'",
            "1",
            "'p'",
            "A eq 1x",
            "A eq foo'bar'",
            "f(A",
            "and",
        ] {
            refused(filter, "InvalidInput");
        }
        let deep = "(".repeat(100_000);
        refused(&deep, "InvalidInput");
        let error = KeyFilter::parse("é eq 'x' )").unwrap_err();
        assert_eq!(error.message(), "Syntax error at position 9 in 'é eq 'x' )'.");
    }

    #[test]
    fn every_cut_ends_in_an_answer() {
        let filter = "not (A eq 'it''s' or f(B, 1L)) and (PartitionKey eq 'é')";
        for (end, _) in filter.char_indices() {
            drop(KeyFilter::parse(&filter[..end]));
        }
    }
}
