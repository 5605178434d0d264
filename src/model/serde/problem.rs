//! Defines the error of conversions between structs and entities. It names the field that caused
//! it.

use std::fmt;

use crate::error::{Code, Error};

/// An error, and the name of the field that caused it.
#[derive(Debug)]
pub(super) struct Problem {
    field: Option<String>,
    text: String,
}

impl Problem {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { field: None, text: text.into() }
    }

    pub(super) fn of(mut self, field: &str) -> Self {
        self.field.get_or_insert_with(|| field.to_owned());
        self
    }

    pub(super) fn refusal(self) -> Error {
        Error::refused_with(Code::InvalidInput, self.to_string())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "property '{field}': {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for Problem {}

impl serde::ser::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::new(message.to_string())
    }
}

impl serde::de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::new(message.to_string())
    }
}
