//! Parses a filter's text into its tree. The grammar is in docs/SEMANTICS.md §9.
//!
//! The parser reads the whole language, including functions, arithmetic and comparisons of two
//! properties. Malformed text is `InvalidInput`, with a position. Well-formed text with an
//! unsupported part is `NotImplemented`.
//!
//! Recursion is bounded by the number of open parentheses, at most [`DEPTH_MAX`]; `and`, `or` and
//! `not` are loops. A position is the index, from 0, of the first character of the wrong word or
//! literal.

use std::cell::Cell;

use crate::error::{Code, Error, Result};
use crate::model::{DateTime, Guid, Value, continues_name, starts_name};

use super::tree::{CompareOp, DEPTH_MAX, Node, Property};

/// The maximum length of a filter's text, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The maximum number of characters of a filter that an error shows.
const SHOWN_CHARS_MAX: usize = 1_000;

/// Parses `text` into its tree; blank text becomes `All`.
///
/// # Errors
/// `InvalidInput` and `NotImplemented`, with the messages of Azure Table storage.
pub(super) fn parse(text: &str) -> Result<Node> {
    parse_placed(text).map_err(|(error, _)| error)
}

/// As [`parse`]; an error includes the position that it names, if any.
pub(super) fn parse_placed(text: &str) -> Result<Node, (Error, Option<usize>)> {
    let mut parser = Parser { text, at: 0, refusal: None, place: Cell::new(None) };
    parser.whole().map_err(|error| (error, parser.place.get()))
}

/// Whether `text` would be parsed as the name of a property.
pub(super) fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(starts_name)
        && chars.all(continues_name)
        && !is_reserved(text)
        && word_literal(text).is_none()
}

/// The result of parsing a part of a filter.
enum Term<'a> {
    Condition(Node),
    Property(&'a str),
    Literal(Value),
    Null,
    /// Well-formed but not supported; a term that contains it is refused, too.
    Refused,
}

struct Parser<'a> {
    text: &'a str,
    /// The parser's position in `text`, in bytes.
    at: usize,
    /// The error for the first unsupported part.
    refusal: Option<Error>,
    /// The position that the error reports, if parsing failed at one.
    place: Cell<Option<usize>>,
}

/// Parses the levels of the grammar: `or`, `and`, `not`, comparison, arithmetic, operand.
impl<'a> Parser<'a> {
    fn whole(&mut self) -> Result<Node> {
        if self.text.len() > TEXT_BYTES_MAX {
            let last = (0..=TEXT_BYTES_MAX).rev().find(|&at| self.text.is_char_boundary(at));
            return Err(self.error(last.unwrap_or(0), "Filter longer than 1 MiB"));
        }
        if self.skip_space() == self.text.len() {
            return Ok(Node::All);
        }
        let term = self.or(0)?;
        let end = self.skip_space();
        if end < self.text.len() {
            return Err(self.syntax_error(end));
        }
        let node = self.condition(term);
        match (self.refusal.take(), node) {
            (None, Some(node)) => Ok(node),
            (Some(refusal), _) => Err(refusal),
            (None, None) => Err(Error::refused(Code::NotImplemented)),
        }
    }

    fn or(&mut self, depth: usize) -> Result<Term<'a>> {
        let mut left = self.and(depth)?;
        loop {
            let at = self.skip_space();
            if !self.keyword("or") {
                return Ok(left);
            }
            let right = self.and(depth)?;
            left = self.join(at, left, right, Node::or)?;
        }
    }

    fn and(&mut self, depth: usize) -> Result<Term<'a>> {
        let mut left = self.not(depth)?;
        loop {
            let at = self.skip_space();
            if !self.keyword("and") {
                return Ok(left);
            }
            let right = self.not(depth)?;
            left = self.join(at, left, right, Node::and)?;
        }
    }

    fn join(
        &mut self,
        at: usize,
        left: Term<'a>,
        right: Term<'a>,
        join: fn(Node, Node) -> Node,
    ) -> Result<Term<'a>> {
        let (left, right) = (self.condition(left), self.condition(right));
        let (Some(left), Some(right)) = (left, right) else { return Ok(Term::Refused) };
        self.bounded(at, join(left, right))
    }

    fn not(&mut self, depth: usize) -> Result<Term<'a>> {
        let first = self.skip_space();
        let mut nots = 0;
        loop {
            let at = self.skip_space();
            if !self.keyword("not") {
                break;
            }
            nots += 1;
            if nots == DEPTH_MAX {
                return Err(self.too_deep(at));
            }
        }
        let term = self.comparison(depth)?;
        if nots == 0 {
            return Ok(term);
        }
        let Some(node) = self.condition(term) else { return Ok(Term::Refused) };
        self.bounded(first, (0..nots).fold(node, |node, _| node.negated()))
    }

    fn comparison(&mut self, depth: usize) -> Result<Term<'a>> {
        let left_at = self.skip_space();
        let left = self.arithmetic(depth)?;
        let Some(op) = self.operator() else { return Ok(left) };
        let right_at = self.skip_space();
        let right = self.arithmetic(depth)?;
        let (property, op, value) = match (left, right) {
            (Term::Property(name), Term::Literal(value)) => (name, op, value),
            (Term::Literal(value), Term::Property(name)) => (name, op.flipped(), value),
            (Term::Null, _) | (_, Term::Null) => return Ok(self.refuse(null_error(op))),
            (Term::Property(left), Term::Property(right)) => {
                // Literals are lower-case, so `True` and `Null` parse as names. In a comparison of
                // two names, such a word was meant as a literal and is a syntax error.
                for (name, at) in [(right, right_at), (left, left_at)] {
                    if word_literal(&name.to_ascii_lowercase()).is_some() {
                        return Err(self.syntax_error(at));
                    }
                }
                return Ok(self.refuse(Error::refused(Code::NotImplemented)));
            }
            _ => return Ok(self.refuse(Error::refused(Code::NotImplemented))),
        };
        Ok(Term::Condition(Node::compare(Property::from(property), op, value)))
    }

    /// Parses operands joined by arithmetic operators, which are unsupported, so their precedence
    /// does not matter.
    fn arithmetic(&mut self, depth: usize) -> Result<Term<'a>> {
        let mut left = self.operand(depth)?;
        while ["add", "sub", "mul", "div", "mod"].into_iter().any(|word| self.keyword(word)) {
            self.operand(depth)?;
            left = self.refuse(Error::refused(Code::NotImplemented));
        }
        Ok(left)
    }

    fn operand(&mut self, depth: usize) -> Result<Term<'a>> {
        let start = self.skip_space();
        match self.peek() {
            Some('(') => {
                self.open(depth)?;
                let term = self.or(depth + 1)?;
                if self.symbol(')') { Ok(term) } else { Err(self.syntax_error(self.at)) }
            }
            Some('\'') => Ok(Term::Literal(Value::String(self.quoted(start)?))),
            Some('-' | '0'..='9') => self.number().map(Term::Literal),
            Some(c) if starts_name(c) => self.word(depth),
            _ => Err(self.syntax_error(start)),
        }
    }

    /// Parses a literal that starts with a word, a function, or a property.
    fn word(&mut self, depth: usize) -> Result<Term<'a>> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        let len = rest.find(|c| !continues_name(c) && c != '.').unwrap_or(rest.len());
        let word = rest.get(..len).unwrap_or_default();
        self.at += len;
        if self.peek() == Some('\'') && matches!(word, "datetime" | "guid" | "binary" | "X") {
            let text = self.quoted(start)?;
            let value = typed_literal(word, &text).ok_or_else(|| self.syntax_error(start))?;
            return Ok(Term::Literal(value));
        }
        match word_literal(word) {
            Some(Some(value)) => return Ok(Term::Literal(value)),
            Some(None) => return Ok(Term::Null),
            None if is_reserved(word) => return Err(self.syntax_error(start)),
            None => {}
        }
        self.skip_space();
        match self.peek() {
            Some('(') => self.call(depth),
            _ if word.contains('.') => Err(self.syntax_error(start)),
            _ => Ok(Term::Property(word)),
        }
    }

    /// Parses the arguments of a function; all functions are unsupported.
    fn call(&mut self, depth: usize) -> Result<Term<'a>> {
        self.open(depth)?;
        if !self.symbol(')') {
            loop {
                self.or(depth + 1)?;
                if self.symbol(')') {
                    break;
                }
                if !self.symbol(',') {
                    return Err(self.syntax_error(self.at));
                }
            }
        }
        Ok(self.refuse(Error::refused(Code::NotImplemented)))
    }

    fn open(&mut self, depth: usize) -> Result<()> {
        if depth == DEPTH_MAX {
            return Err(self.too_deep(self.at));
        }
        self.at += 1;
        Ok(())
    }
}

/// Converts terms to nodes.
impl<'a> Parser<'a> {
    /// Converts a term to a condition. A property alone is compared with true. `None` if the term
    /// was refused.
    fn condition(&mut self, term: Term<'a>) -> Option<Node> {
        match term {
            Term::Condition(node) => return Some(node),
            Term::Property(name) => {
                let (property, value) = (Property::from(name), Value::Boolean(true));
                return Some(Node::compare(property, CompareOp::Eq, value));
            }
            Term::Refused => {}
            // A condition must contain a property; a literal alone is refused, like the comparison
            // of two literals.
            Term::Literal(Value::Boolean(_)) => {
                self.refuse(Error::refused(Code::NotImplemented));
            }
            Term::Literal(_) | Term::Null => {
                self.refuse(Error::refused_with(
                    Code::InvalidInput,
                    "The $filter expression must evaluate to a single boolean value.",
                ));
            }
        }
        None
    }

    fn refuse(&mut self, error: Error) -> Term<'a> {
        self.refusal.get_or_insert(error);
        Term::Refused
    }

    fn bounded(&self, at: usize, node: Node) -> Result<Term<'a>> {
        match node {
            Node::TooDeep => Err(self.too_deep(at)),
            node => Ok(Term::Condition(node)),
        }
    }
}

/// Parses words, symbols and literals.
impl Parser<'_> {
    /// Parses a string in quotes, with inner quotes doubled. `start` is the position of the
    /// literal.
    fn quoted(&mut self, start: usize) -> Result<String> {
        let mut value = String::new();
        loop {
            // The parser is at a quote: the opening one, or the second one of a pair.
            let rest = self.text.get(self.at + 1..).unwrap_or_default();
            let Some(len) = rest.find('\'') else { return Err(self.syntax_error(start)) };
            value.push_str(rest.get(..len).unwrap_or_default());
            self.at += 1 + len + 1;
            if self.peek() != Some('\'') {
                return Ok(value);
            }
            value.push('\'');
        }
    }

    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        let (len, is_double) = match number_len(rest.as_bytes()) {
            None if rest.starts_with("-INF") => (4, true),
            None => return Err(self.syntax_error(start)),
            Some(found) => found,
        };
        let digits = rest.get(..len).unwrap_or_default();
        let (edm, suffix) = match rest.as_bytes().get(len) {
            Some(b'L' | b'l') if !is_double => ("Edm.Int64", 1),
            Some(b'D' | b'd') if digits != "-INF" => ("Edm.Double", 1),
            _ if is_double => ("Edm.Double", 0),
            _ => ("Edm.Int32", 0),
        };
        self.at += len + suffix;
        if self.peek().is_some_and(|c| continues_name(c) || c == '.') {
            return Err(self.syntax_error(start));
        }
        let value = match edm {
            "Edm.Int64" => digits.parse().ok().map(Value::Int64),
            "Edm.Int32" => digits.parse().ok().map(Value::Int32),
            _ if digits == "-INF" => Some(Value::Double(f64::NEG_INFINITY)),
            _ => digits.parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Double),
        };
        value.ok_or_else(|| {
            let literal = self.text.get(start..self.at).unwrap_or_default();
            let (at, shown) = (self.place(start), self.shown(start));
            let text = format!(
                "Unrecognized '{edm}' literal '{}' at '{at}' in '{shown}'.",
                excerpt(literal, 0)
            );
            Error::refused_with(Code::InvalidInput, text)
        })
    }

    fn operator(&mut self) -> Option<CompareOp> {
        CompareOp::ALL.into_iter().find(|op| self.keyword(op.word()))
    }

    /// Skips space and then `word`. Returns false if the next token is not exactly `word`.
    fn keyword(&mut self, word: &str) -> bool {
        let start = self.skip_space();
        let Some(rest) = self.text.get(start..).and_then(|rest| rest.strip_prefix(word)) else {
            return false;
        };
        let ends = !rest.starts_with(|c| continues_name(c) || c == '.');
        self.at += if ends { word.len() } else { 0 };
        ends
    }

    fn symbol(&mut self, symbol: char) -> bool {
        self.skip_space();
        let found = self.peek() == Some(symbol);
        self.at += usize::from(found);
        found
    }

    /// Skips space; returns the position of the next token.
    fn skip_space(&mut self) -> usize {
        while let Some(' ' | '\t' | '\n' | '\r') = self.peek() {
            self.at += 1;
        }
        self.at
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }
}

/// Makes errors at a position in the text.
impl Parser<'_> {
    fn syntax_error(&self, at: usize) -> Error {
        self.error(at, "Syntax error")
    }

    fn too_deep(&self, at: usize) -> Error {
        self.error(at, &format!("Nesting deeper than {DEPTH_MAX}"))
    }

    fn error(&self, at: usize, problem: &str) -> Error {
        let message = format!("{problem} at position {} in '{}'.", self.place(at), self.shown(at));
        Error::refused_with(Code::InvalidInput, message)
    }

    /// Returns the character index of the offset `at`, and records it as the position of the error.
    fn place(&self, at: usize) -> usize {
        let position = self.position(at);
        self.place.set(Some(position));
        position
    }

    fn position(&self, at: usize) -> usize {
        self.text.get(..at).unwrap_or_default().chars().count()
    }

    fn shown(&self, at: usize) -> String {
        excerpt(self.text, self.position(at))
    }
}

/// Returns `text`, or the part around the character `position` if the text is long.
fn excerpt(text: &str, position: usize) -> String {
    if text.chars().nth(SHOWN_CHARS_MAX).is_none() {
        return text.to_owned();
    }
    let from = position.saturating_sub(SHOWN_CHARS_MAX / 2);
    let mut rest = text.chars().skip(from);
    let mut shown = String::from(if from > 0 { "…" } else { "" });
    shown.extend(rest.by_ref().take(SHOWN_CHARS_MAX));
    if rest.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Whether `word` is an operator, which is neither a property nor a literal.
fn is_reserved(word: &str) -> bool {
    matches!(word, "and" | "or" | "not" | "eq" | "ne" | "gt" | "ge" | "lt" | "le")
}

/// Returns the literal that a word alone denotes: `Some(None)` for `null`, which has no value, and
/// `None` if the word is not a literal.
fn word_literal(word: &str) -> Option<Option<Value>> {
    Some(match word {
        "true" => Some(Value::Boolean(true)),
        "false" => Some(Value::Boolean(false)),
        "NaN" => Some(Value::Double(f64::NAN)),
        "INF" => Some(Value::Double(f64::INFINITY)),
        "null" => None,
        _ => return None,
    })
}

/// Returns the literal for a word that names a type, such as `datetime`, and the quoted text after
/// it.
fn typed_literal(word: &str, text: &str) -> Option<Value> {
    Some(match word {
        "datetime" => Value::DateTime(text.parse::<DateTime>().ok()?),
        "guid" => Value::Guid(text.parse::<Guid>().ok()?),
        _ => Value::Binary(bytes_of_hex(text)?),
    })
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some((digit(*high)? << 4) | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// Returns the length of the number at the start of `bytes`, without a suffix, and whether the
/// number is a Double.
fn number_len(bytes: &[u8]) -> Option<(usize, bool)> {
    let digits = |from: usize| {
        bytes.get(from..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count()
    };
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let whole = sign + digits(sign);
    if whole == sign {
        return None;
    }
    let mut len = whole;
    if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    if let Some(b'e' | b'E') = bytes.get(len) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        match digits(len + 1 + sign) {
            0 => {}
            exponent => len += 1 + sign + exponent,
        }
    }
    Some((len, len > whole))
}

/// Returns the error of Azure Table storage for a comparison with `null`; `op` is the operator in
/// the text.
fn null_error(op: CompareOp) -> Error {
    let name = match op {
        CompareOp::Eq | CompareOp::Ne => return Error::refused(Code::InvalidInput),
        CompareOp::Lt => "LessThan",
        CompareOp::Le => "LessThanOrEqual",
        CompareOp::Gt => "GreaterThan",
        CompareOp::Ge => "GreaterThanOrEqual",
    };
    let message = format!(
        "The operator '{name}' is not supported for the 'null' literal; only equality checks are supported."
    );
    Error::refused_with(Code::InvalidInput, message)
}

#[cfg(test)]
mod tests;
