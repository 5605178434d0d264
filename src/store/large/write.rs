//! Writes of values, and deletes.

use std::io::Read;

use super::rows::{CHUNK_BYTES, Manifest, Place, TRIES_MAX, Values, WriteKey, with_data};
use crate::codec::Checksum;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{ETag, Entity};
use crate::rng::Rng;
use crate::table::{EntityGroup, Operation};

/// The maximum number of rows of a group with chunks: three chunks as JSON are below 4 MiB.
const GROUP_ROWS: usize = 3;

/// The state that a write requires.
pub(super) enum Expected<'e> {
    Anything,
    Absent,
    State(&'e ETag),
}

impl Expected<'_> {
    fn check(&self, place: &Place<'_>, found: Option<&ETag>) -> Result<()> {
        let code = match (self, found) {
            (Expected::Absent, Some(_)) => Code::EntityAlreadyExists,
            (Expected::State(_), None) => Code::ResourceNotFound,
            (Expected::State(expected), Some(found)) if *expected != found => {
                Code::UpdateConditionNotSatisfied
            }
            _ => return Ok(()),
        };
        Err(place.refused(code))
    }
}

/// The bytes of a value.
struct Source<R> {
    value: R,
    length: u64,
    checksum: Checksum,
}

impl<R: Read> Source<R> {
    /// Reads a chunk. The last one is shorter or empty.
    fn chunk(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let done = self.value.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut bytes);
        done.map_err(|error| Error::io("read the value to store", error))?;
        self.length += bytes.len() as u64;
        self.checksum.update(&bytes);
        Ok(bytes)
    }
}

impl Values<'_> {
    pub(super) fn write(
        &self,
        place: &Place<'_>,
        value: impl Read,
        expected: &Expected<'_>,
    ) -> Result<ETag> {
        let mut rng = Rng::from_entropy();
        let id = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let key = WriteKey { row: place.row.clone(), id };
        let mut source = Source { value, length: 0, checksum: Checksum::new() };
        let first = source.chunk()?;
        let mut manifest = Entity::new(place.partition_key, &*place.row).with("Write", &*key.id);
        let (mut chunks, mut mark) = (0, None);
        if first.len() < CHUNK_BYTES {
            manifest = with_data(manifest, &first);
        } else {
            let (number, etag) = self.upload(place, &key, first, &mut source)?;
            (chunks, mark) = (number, Some(etag));
        }
        manifest.set("Length", i64::try_from(source.length).unwrap_or(i64::MAX));
        manifest.set("Chunks", i64::from(chunks));
        manifest.set("Crc32", i64::from(source.checksum.finish()));
        self.publish(place, &key, &manifest, mark.as_ref(), expected)
    }

    /// Stores the chunks, after their mark. Returns their number and the ETag of the mark.
    fn upload(
        &self,
        place: &Place<'_>,
        key: &WriteKey,
        mut bytes: Vec<u8>,
        source: &mut Source<impl Read>,
    ) -> Result<(u32, ETag)> {
        let entity = |row: String| Entity::new(place.partition_key, row);
        let mut rows = vec![Operation::Insert(entity(key.mark()))];
        let (mut mark, mut number) = (None, 0);
        while !bytes.is_empty() {
            rows.push(Operation::Upsert(with_data(entity(key.chunk(number)), &bytes)));
            number += 1;
            bytes = source.chunk()?;
            if rows.len() == GROUP_ROWS || bytes.is_empty() {
                let group = EntityGroup::from_operations(rows.drain(..))?;
                match mark {
                    None => mark = Some(self.begin(place, key, &group)?),
                    Some(_) => self.commit_again(&group)?,
                }
            }
        }
        let missing = || place.error(ErrorKind::InvalidInput, "the value has no chunks");
        Ok((number, mark.ok_or_else(missing)?))
    }

    /// Commits the group that inserts the mark. Returns the mark's ETag, by which a group that
    /// makes the chunks current knows that no sweep has begun to delete them.
    fn begin(&self, place: &Place<'_>, key: &WriteKey, group: &EntityGroup) -> Result<ETag> {
        let mut last = no_answer();
        for _ in 0..TRIES_MAX {
            match self.store.commit(&self.table, group) {
                Ok(etags) => {
                    if let Some(etag) = etags.into_iter().next().flatten() {
                        return Ok(etag);
                    }
                }
                // A try before this one may have taken effect.
                Err(error) if is_unknown(&error) || is_conflict(&error) => last = error,
                Err(error) => return Err(error),
            }
            if let Some(mark) = self.mark(place.partition_key, key)? {
                return Ok(mark);
            }
        }
        Err(last)
    }

    /// Commits a group that may take effect twice.
    fn commit_again(&self, group: &EntityGroup) -> Result<()> {
        let mut tries = 1;
        loop {
            match self.store.commit(&self.table, group) {
                Err(error) if is_unknown(&error) && tries < TRIES_MAX => tries += 1,
                done => return done.map(drop),
            }
        }
    }

    /// Makes a write the current one, by its manifest.
    fn publish(
        &self,
        place: &Place<'_>,
        key: &WriteKey,
        manifest: &Entity,
        mark: Option<&ETag>,
        expected: &Expected<'_>,
    ) -> Result<ETag> {
        let mark = mark.map(|etag| (key, etag));
        let mut unknown: Option<(Error, Option<ETag>)> = None;
        let (mut last, mut is_swept) = (None, false);
        for _ in 0..TRIES_MAX {
            let found = match self.manifest(place) {
                // The group whose answer was lost may have taken effect.
                Err(error) => return Err(unknown.map_or(error, |(lost, _)| lost)),
                Ok(found) => found,
            };
            if let Some(found) = found.as_ref().filter(|found| found.id == key.id) {
                return Ok(found.etag.clone());
            }
            let state = found.as_ref().map(|found| found.etag.clone());
            // A group whose answer was lost may have taken effect: its state or mark has changed.
            if let Some((lost, _)) = unknown.take_if(|(_, before)| is_swept || *before != state) {
                return Err(lost);
            }
            if is_swept {
                let problem = "a sweep deleted the chunks before the value was complete";
                return Err(place.error(ErrorKind::Timeout, problem));
            }
            expected.check(place, state.as_ref())?;
            let first = match &state {
                None => Operation::Insert(manifest.clone()),
                Some(etag) => Operation::Replace(manifest.clone(), Some(etag.clone())),
            };
            let group = change(place, first, mark, found.as_ref())?;
            match self.store.commit(&self.table, &group) {
                Ok(etags) => match etags.into_iter().next().flatten() {
                    Some(etag) => return Ok(etag),
                    None => unknown = Some((no_answer(), state)),
                },
                Err(error) if is_unknown(&error) => unknown = Some((error, state)),
                Err(error) if is_conflict(&error) => {
                    is_swept = error.index() == Some(MARK_INDEX);
                    last = Some(error);
                }
                Err(error) => return Err(unknown.map_or(error, |(lost, _)| lost)),
            }
        }
        Err(unknown.map(|(error, _)| error).or(last).unwrap_or_else(no_answer))
    }

    /// Deletes a value.
    pub(super) fn remove(&self, place: &Place<'_>) -> Result<()> {
        // The last conflict, and the write id that a group without an answer may have deleted.
        let (mut last, mut unknown) = (None, None::<(Error, String)>);
        for _ in 0..TRIES_MAX {
            let found = match self.manifest(place) {
                Err(error) => return Err(unknown.map_or(error, |(lost, _)| lost)),
                Ok(found) => found,
            };
            // Another value may have taken the place of the deleted one.
            let is_other = |id: &str| found.as_ref().is_none_or(|found| found.id != id);
            if unknown.as_ref().is_some_and(|(_, id)| is_other(id)) {
                return Ok(());
            }
            let Some(found) = found else { return Err(place.refused(Code::ResourceNotFound)) };
            let manifest = delete(place, &place.row, &found.etag);
            let group = change(place, manifest, None, Some(&found))?;
            match self.store.commit(&self.table, &group) {
                Err(error) if is_unknown(&error) => unknown = Some((error, found.id)),
                Err(error) if is_conflict(&error) => last = Some(error),
                Err(error) => return Err(unknown.map_or(error, |(lost, _)| lost)),
                Ok(_) => return Ok(()),
            }
        }
        Err(unknown.map(|(error, _)| error).or(last).unwrap_or_else(no_answer))
    }
}

/// The index of the operation on the mark in a group that makes chunks current.
const MARK_INDEX: usize = 1;

/// Builds the group of a change of the manifest: it makes the chunks with the `mark` current, and
/// marks the chunks of the manifest that was `found`.
fn change(
    place: &Place<'_>,
    manifest: Operation,
    mark: Option<(&WriteKey, &ETag)>,
    found: Option<&Manifest>,
) -> Result<EntityGroup> {
    let current = mark.map(|(key, etag)| delete(place, &key.mark(), etag));
    let replaced = found
        .filter(|found| found.chunks > 0)
        .map(|found| Operation::Upsert(Entity::new(place.partition_key, found.key(place).mark())));
    EntityGroup::from_operations([manifest].into_iter().chain(current).chain(replaced))
}

fn delete(place: &Place<'_>, row_key: &str, etag: &ETag) -> Operation {
    Operation::Delete {
        partition_key: place.partition_key.to_owned(),
        row_key: row_key.to_owned(),
        etag: Some(etag.clone()),
    }
}

fn is_unknown(error: &Error) -> bool {
    error.kind() == ErrorKind::OutcomeUnknown
}

/// Whether an entity of a group was in another state.
fn is_conflict(error: &Error) -> bool {
    let kinds = [ErrorKind::PreconditionFailed, ErrorKind::AlreadyExists];
    kinds.contains(&error.kind()) || error.code() == Code::ResourceNotFound.as_str()
}

fn no_answer() -> Error {
    Error::new(ErrorKind::OutcomeUnknown, "no answer to a write")
}
