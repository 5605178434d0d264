//! The filters of the oracle. A filter is a tree that can be printed, parsed, and evaluated on a
//! row.
//!
//! Invariants
//! * no code of the engine is used: comparisons are implemented a second time, from
//!   docs/SEMANTICS.md §9.2;
//! * the text is in the filter language, and [`Expr::parse`] of the text returns the same tree.
//!
//! Invalid filters, literals on the left of a comparison, and properties without a comparison do
//! not occur here. The tests of the filter language cover them.

use std::cmp::Ordering;
use std::fmt;

use super::row::Row;
use super::value::Val;
use crate::named::named;

/// A condition on a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Compares a property, or a system property, with a literal.
    Compare(String, Op, Val),
    /// True if all of the filters are true; there are at least two.
    All(Vec<Expr>),
    /// True if at least one of the filters is true; there are at least two.
    Any(Vec<Expr>),
    /// True if the filter is false.
    Not(Box<Expr>),
}

named! {
    /// A comparison operator.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Op {
        /// `eq`
        Eq "eq",
        /// `ne`
        Ne "ne",
        /// `lt`
        Lt "lt",
        /// `le`
        Le "le",
        /// `gt`
        Gt "gt",
        /// `ge`
        Ge "ge",
    }

    /// Returns the operator in filter text.
    fn name;
    pub const ALL;
}

impl Op {
    fn holds(self, ordering: Ordering) -> bool {
        match ordering {
            Ordering::Less => matches!(self, Op::Ne | Op::Lt | Op::Le),
            Ordering::Equal => matches!(self, Op::Eq | Op::Le | Op::Ge),
            Ordering::Greater => matches!(self, Op::Ne | Op::Gt | Op::Ge),
        }
    }
}

impl Expr {
    /// Whether the row meets the condition.
    pub fn holds(&self, row: &Row) -> bool {
        match self {
            Expr::Compare(name, op, literal) => {
                value_of(row, name).is_some_and(|value| match order(&value, literal) {
                    Some(ordering) => op.holds(ordering),
                    None => *op == Op::Ne,
                })
            }
            Expr::All(parts) => parts.iter().all(|part| part.holds(row)),
            Expr::Any(parts) => parts.iter().any(|part| part.holds(row)),
            Expr::Not(part) => !part.holds(row),
        }
    }

    /// Reads the text of a condition.
    ///
    /// # Errors
    /// The text is not in the format that [`Expr`] prints.
    pub fn parse(text: &str) -> Result<Expr, String> {
        let bad = || format!("`{text}` is no condition");
        let words = words(text);
        let mut rest = words.iter().map(String::as_str);
        let expr = read(&mut rest).ok_or_else(bad)?;
        if rest.next().is_none() { Ok(expr) } else { Err(bad()) }
    }
}

/// Returns the value of the property `name` of a row. A key is returned as a string, and the
/// Timestamp as the time in the tag.
fn value_of(row: &Row, name: &str) -> Option<Val> {
    match name {
        "PartitionKey" => Some(Val::String(row.pk.clone())),
        "RowKey" => Some(Val::String(row.rk.clone())),
        "Timestamp" => Some(Val::DateTime(row.etag)),
        name => row.properties.get(name).cloned(),
    }
}

/// Returns the order of a property relative to a literal; `None` if a NaN is involved. A property
/// whose type cannot be compared with the type of the literal counts as less.
fn order(property: &Val, literal: &Val) -> Option<Ordering> {
    use Val::{Binary, Boolean, DateTime, Double, Guid, Int32, Int64, String};
    let double = |bits: &u64| f64::from_bits(*bits);
    Some(match (property, literal) {
        (String(a), String(b)) => a.encode_utf16().cmp(b.encode_utf16()),
        (Binary(a), Binary(b)) => a.cmp(b),
        (Boolean(a), Boolean(b)) => a.cmp(b),
        (Int32(a), Int32(b)) => a.cmp(b),
        (Int64(a), Int64(b)) => a.cmp(b),
        (Int64(a), Int32(b)) => a.cmp(&i64::from(*b)),
        (Double(a), Double(b)) => return double(a).partial_cmp(&double(b)),
        (Double(a), Int32(b)) => return double(a).partial_cmp(&f64::from(*b)),
        (Double(a), Int64(b)) => return double(a).partial_cmp(&(*b as f64)),
        (DateTime(a), DateTime(b)) => a.cmp(b),
        (Guid(a), Guid(b)) => a.cmp(b),
        _ => Ordering::Less,
    })
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Compare(name, op, Val::Double(bits)) if f64::from_bits(*bits).is_infinite() => {
                let sign = if f64::from_bits(*bits) < 0.0 { "-" } else { "" };
                write!(f, "{name} {} {sign}INF", op.name())
            }
            Expr::Compare(name, op, literal) => write!(f, "{name} {} {literal}", op.name()),
            Expr::All(parts) => list(f, parts, "and"),
            Expr::Any(parts) => list(f, parts, "or"),
            Expr::Not(part) => match &**part {
                Expr::All(_) | Expr::Any(_) => write!(f, "not {part}"),
                part => write!(f, "not ({part})"),
            },
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, parts: &[Expr], word: &str) -> fmt::Result {
    for (at, part) in parts.iter().enumerate() {
        match at {
            0 => write!(f, "({part}")?,
            _ => write!(f, " {word} {part}")?,
        }
    }
    f.write_str(")")
}

/// Splits into words and parentheses; quoted text stays in one word.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        quoted ^= c == '\'';
        if quoted || !" ()".contains(c) {
            word.push(c);
            continue;
        }
        words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        words.extend((c != ' ').then(|| c.to_string()));
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

fn read<'w>(words: &mut impl Iterator<Item = &'w str>) -> Option<Expr> {
    match words.next()? {
        "not" => Some(Expr::Not(read(words)?.into())),
        "(" => {
            let mut parts = vec![read(words)?];
            let word = words.next()?;
            let mut next = word;
            while next != ")" {
                if next != word {
                    return None;
                }
                parts.push(read(words)?);
                next = words.next()?;
            }
            match word {
                ")" => parts.pop(),
                "and" => Some(Expr::All(parts)),
                "or" => Some(Expr::Any(parts)),
                _ => None,
            }
        }
        name => {
            let op = words.next()?;
            let op = Op::ALL.into_iter().find(|other| other.name() == op)?;
            Some(Expr::Compare(name.to_owned(), op, Val::parse(words.next()?).ok()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_print_and_parse_back() {
        for text in [
            "A eq 5",
            "not (A ne -7L)",
            "not (not (B lt NaN))",
            "(B gt -INF and B le INF and Note ge 'it''s ( or ) so')",
            "not (X eq true or (At lt datetime'2020-10-01T00:38:38.47506Z' and A eq X'00ff'))",
        ] {
            assert_eq!(Expr::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "A", "A eq", "A eq 5 6", "(A eq 5 and A eq 6 or A eq 7)", "(A eq 5"] {
            assert!(Expr::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn comparisons_are_those_of_the_semantics() {
        let properties = [
            ("I", Val::Int32(5)),
            ("L", Val::Int64(5)),
            ("D", Val::Double((-0.0f64).to_bits())),
            ("N", Val::Double(f64::NAN.to_bits())),
            ("S", Val::String("\u{ff5e}".to_owned())),
        ];
        let properties = properties.into_iter().map(|(name, value)| (name.to_owned(), value));
        let (pk, rk) = ("p".to_owned(), "r".to_owned());
        let row = Row { pk, rk, properties: properties.collect(), etag: 7 };
        for (text, holds) in [
            ("I eq 5", true),
            ("I eq 5L", false),
            ("I lt 5L", true),
            ("L eq 5", true),
            ("D eq 0", true),
            ("D eq 0L", true),
            ("N lt 1.5", false),
            ("N ne NaN", true),
            ("not (N lt 1.5)", true),
            ("S gt '\u{1f600}'", true),
            ("S lt 5", true),
            ("Z ne 5", false),
            ("not (Z eq 5)", true),
            ("(PartitionKey eq 'p' and RowKey gt 'q')", true),
            ("Timestamp gt datetime'1601-01-01T00:00:00Z'", true),
        ] {
            assert_eq!(Expr::parse(text).unwrap().holds(&row), holds, "{text}");
        }
    }
}
