//! Reads the responses of `rowstone exec`, also of a server's extensions.

use serde_json::value::RawValue;

use crate::error::{Code, Error, ErrorKind, Result};
use crate::json::{self, Scalar};

/// A response that was read by a client and is not an error.
#[derive(Debug)]
pub(crate) struct Answer(pub(super) String);

/// The maximum number of members of a response.
const MEMBERS_MAX: usize = 256;

impl Answer {
    /// Reads a response.
    ///
    /// # Errors
    /// The error in the response, with its code and kind; an error if the line is no JSON object.
    pub(crate) fn read(line: String) -> Result<Self> {
        json::read_object(&line, 0)?;
        let answer = Self(line);
        match answer.member("error") {
            Some(error) => Err(read_error(error.get())?),
            None => Ok(answer),
        }
    }

    /// Returns a member's value, unparsed.
    pub(crate) fn member(&self, name: &str) -> Option<&RawValue> {
        let members = json::read_object(&self.0, MEMBERS_MAX).ok()?;
        Some(members.into_iter().find(|(member, _)| member == name)?.1)
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        match Scalar::read(self.member(name)?).ok()? {
            Scalar::String(text) => Some(text.into_owned()),
            _ => None,
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.member(name)?.get().parse().ok()
    }
}

/// Reads the error of a response. Its message contains the texts of its causes, so that the result
/// has no cause.
pub(crate) fn read_error(text: &str) -> Result<Error> {
    json::read_object(text, 0)?;
    let error = Answer(text.to_owned());
    let required = |name: &str| {
        let missing = || Error::new(ErrorKind::InvalidInput, format!("'{name}' is missing"));
        error.text(name).ok_or_else(missing)
    };
    let (code, message) = (required("code")?, required("message")?);
    let kind = match error.text("kind").as_deref() {
        Some("Locked") => Some(ErrorKind::Locked),
        Some("Unsupported") => Some(ErrorKind::Unsupported),
        Some("Corruption") => Some(ErrorKind::Corruption),
        Some("Poisoned") => Some(ErrorKind::Poisoned),
        Some("ChangesLost") => Some(ErrorKind::ChangesLost),
        _ => None,
    };
    let code = Code::ALL.iter().copied().find(|known| known.as_str() == code);
    let found = match (kind, code) {
        (Some(kind), _) => Error::new(kind, message),
        (None, Some(Code::InternalError) | None) => Error::new(ErrorKind::Io, message),
        (None, Some(code)) => Error::refused_with(code, message),
    };
    Ok(match error.text("object") {
        Some(object) => found.about(|| object),
        None => found,
    })
}
