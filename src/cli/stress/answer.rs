//! Parses the answers of the process under test (`rowstone exec`), each a line of JSON, into the
//! types of the oracle, the model that predicts the answers.
//!
//! `soak` compares the answers with the predicted ones.

use crate::json::odata;
use crate::json::{self, Members, Scalar};
use crate::model::{DateTime, ETag, Seq};
use crate::testing::sim::row::Row;

/// One answer: the members of its JSON object.
pub(super) struct Answer<'a> {
    members: Members<'a>,
}

/// The error in an answer whose member `ok` is false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: String,
    /// The engine's kind of error, which distinguishes errors with the same code.
    pub(super) kind: Option<String>,
    pub(super) index: Option<usize>,
    pub(super) message: String,
}

/// Limit on the members of one JSON object; no entity that the test writes has as many.
const MEMBERS_MAX: usize = 64;

impl Refused {
    /// Whether the storage caused the refusal: the disk was full, I/O failed, or an earlier I/O
    /// error has poisoned the database.
    pub(super) fn is_storage(&self) -> bool {
        let engine = matches!(self.kind.as_deref(), Some("Io" | "Poisoned"));
        self.code == "StorageFull" || engine
    }

    /// Whether `verify` failed only because files could not be opened. A message about a damaged
    /// file would name the byte at which the damage is.
    pub(super) fn is_limit(&self) -> bool {
        self.is_storage() || (self.code.is_empty() && !self.message.contains(" at byte "))
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.kind.as_deref() == Some("Poisoned")
    }

    pub(super) fn name(&self) -> &str {
        self.kind.as_deref().unwrap_or(&self.code)
    }
}

impl<'a> Answer<'a> {
    /// Parses a line.
    ///
    /// # Errors
    /// Returns the reason why the line is not an answer.
    pub(super) fn read(line: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|error| format!("no text: {error}"))?;
        let members = json::read_object(text, MEMBERS_MAX).map_err(|error| error.chain())?;
        Ok(Self { members })
    }

    /// Returns the refusal, if the request was refused.
    pub(super) fn refused(&self) -> Result<Option<Refused>, String> {
        match self.scalar("ok")? {
            Some(Scalar::Boolean(true)) => Ok(None),
            Some(Scalar::Boolean(false)) => {
                let Some(error) = self.find("error") else {
                    // The answer of a verification that found problems has no `error`.
                    let message = self.find("problems").unwrap_or("no reason").to_owned();
                    return Ok(Some(Refused { message, ..Refused::default() }));
                };
                let error = Answer::read(error.as_bytes())?;
                let index = match error.scalar("index")? {
                    Some(Scalar::Number(text)) => text.parse().ok(),
                    _ => None,
                };
                Ok(Some(Refused {
                    code: error.text("code")?.ok_or("an error without a code")?,
                    kind: error.text("kind")?,
                    index,
                    message: error.text("message")?.unwrap_or_default(),
                }))
            }
            _ => Err("an answer without 'ok'".to_owned()),
        }
    }

    /// Returns the time in the commit's ETags, in ticks. All entities of a commit have the same
    /// ETag. Returns 0 for a commit without ETags: it only deletes rows, or creates or drops a
    /// table.
    pub(super) fn tag(&self) -> Result<u64, String> {
        let mut tags = Vec::new();
        if let Some(etag) = self.text("etag")? {
            tags.push(ticks(&etag)?);
        }
        for etag in self.list("etags")? {
            if let Scalar::String(etag) = etag {
                tags.push(ticks(&etag)?);
            }
        }
        let first = tags.first().copied().unwrap_or(0);
        match tags.iter().all(|tag| *tag == first) {
            true => Ok(first),
            false => Err(format!("one commit, several tags: {tags:?}")),
        }
    }

    pub(super) fn tables(&self) -> Result<Vec<String>, String> {
        let names = self.list("tables")?.into_iter();
        let names = names.map(|name| match name {
            Scalar::String(name) => Ok(name.into_owned()),
            _ => Err("a table's name is no string".to_owned()),
        });
        names.collect()
    }

    pub(super) fn entity(&self) -> Result<Row, String> {
        row(self.find("entity").ok_or("no entity")?)
    }

    pub(super) fn entities(&self) -> Result<Vec<Row>, String> {
        let list = self.find("entities").ok_or("no entities")?;
        let list = json::read_array(list, usize::MAX).map_err(|error| error.chain())?;
        list.into_iter().map(|entity| row(entity.get())).collect()
    }

    /// Returns the keys at which the next page starts, if there is one.
    pub(super) fn next(&self) -> Result<Option<(String, String)>, String> {
        let next = self.find("next").filter(|next| *next != "null");
        let Some(next) = next else { return Ok(None) };
        let next = Answer::read(next.as_bytes())?;
        match (next.text("pk")?, next.text("rk")?) {
            (Some(pk), Some(rk)) => Ok(Some((pk, rk))),
            _ => Err("a next page without its key".to_owned()),
        }
    }

    fn find(&self, name: &str) -> Option<&'a str> {
        self.members.iter().find(|(member, _)| member == name).map(|(_, value)| value.get())
    }

    fn scalar(&self, name: &str) -> Result<Option<Scalar<'a>>, String> {
        let found = self.members.iter().find(|(member, _)| member == name);
        let scalar = found.map(|(_, value)| Scalar::read(value));
        scalar.transpose().map_err(|error| error.chain())
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.scalar(name)? {
            Some(Scalar::String(text)) => Ok(Some(text.into_owned())),
            None | Some(Scalar::Null) => Ok(None),
            Some(_) => Err(format!("'{name}' is no string")),
        }
    }

    /// Returns the items of a list; empty if it is absent.
    fn list(&self, name: &str) -> Result<Vec<Scalar<'a>>, String> {
        let Some(list) = self.find(name) else { return Ok(Vec::new()) };
        let items = json::read_array(list, usize::MAX).map_err(|error| error.chain())?;
        let items = items.into_iter().map(Scalar::read).collect::<Result<_, _>>();
        items.map_err(|error| error.chain())
    }
}

/// Parses an entity; its Timestamp must equal the time in its ETag.
fn row(text: &str) -> Result<Row, String> {
    let entity = odata::read_entity(text).map_err(|error| error.chain())?;
    let members = Answer::read(text.as_bytes())?;
    let etag = ticks(&members.text("odata.etag")?.ok_or("an entity without a tag")?)?;
    let time = members.text("Timestamp")?.unwrap_or_default();
    if time.parse::<DateTime>().map(DateTime::ticks).ok() != Some(etag) {
        return Err(format!("Timestamp {time} of an entity with tag {etag}"));
    }
    Ok(Row { etag, ..Row::of(&entity) })
}

fn ticks(etag: &str) -> Result<u64, String> {
    let seq = etag.parse().ok().and_then(|etag: ETag| etag.seq());
    seq.map(Seq::ticks).ok_or_else(|| format!("`{etag}` is no tag"))
}
