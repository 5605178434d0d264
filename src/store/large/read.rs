//! Reads of values.

use std::io::Write;

use super::rows::{Info, Manifest, Place, TRIES_MAX, Values, data};
use crate::codec::Checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::store::pages::quoted;
use crate::store::table_store::PageQuery;

/// The number of chunks of a page: nearly 4 MiB.
const PAGE_CHUNKS: usize = 4;

/// The destination of a value.
pub(super) trait Sink {
    /// Begins a value of `length` bytes. Returns false if bytes of another one were added, and
    /// cannot be taken back.
    ///
    /// # Errors
    /// `InvalidInput` if the value is too long.
    fn begin(&mut self, place: &Place<'_>, length: u64) -> Result<bool>;

    fn add(&mut self, bytes: &[u8]) -> Result<()>;
}

/// A stream.
pub(super) struct Unlimited<'s> {
    pub(super) sink: &'s mut dyn Write,
    pub(super) is_begun: bool,
}

/// A buffer with a limit.
pub(super) struct Limited {
    pub(super) bytes: Vec<u8>,
    pub(super) length_max: usize,
}

impl Sink for Unlimited<'_> {
    fn begin(&mut self, _: &Place<'_>, _: u64) -> Result<bool> {
        Ok(!self.is_begun)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.is_begun = true;
        self.sink
            .write_all(bytes)
            .map_err(|error| Error::io("write the value that was read", error))
    }
}

impl Sink for Limited {
    fn begin(&mut self, place: &Place<'_>, length: u64) -> Result<bool> {
        if length > self.length_max as u64 {
            let problem = format!("the value has {length} bytes, more than {}", self.length_max);
            return Err(place.error(ErrorKind::InvalidInput, &problem));
        }
        self.bytes.clear();
        Ok(true)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// The part of a value that was read. The last chunk is held back.
struct Progress<'s> {
    sink: &'s mut dyn Sink,
    held: Vec<u8>,
    length: u64,
    checksum: Checksum,
}

impl Progress<'_> {
    fn add(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.length += bytes.len() as u64;
        self.checksum.update(&bytes);
        let earlier = std::mem::replace(&mut self.held, bytes);
        if earlier.is_empty() { Ok(()) } else { self.sink.add(&earlier) }
    }

    fn finish(self, place: &Place<'_>, manifest: &Manifest) -> Result<()> {
        if (self.length, self.checksum.finish()) != (manifest.length, manifest.crc) {
            let problem = "length or checksum differ from those of the manifest";
            return Err(place.error(ErrorKind::Corruption, problem));
        }
        self.sink.add(&self.held)
    }
}

impl Values<'_> {
    pub(super) fn read(&self, place: &Place<'_>, sink: &mut dyn Sink) -> Result<Option<Info>> {
        let mut id = String::new();
        for _ in 0..TRIES_MAX {
            let row = self.store.get(&self.table, place.partition_key, &place.row, &[])?;
            let Some(row) = row else { return Ok(None) };
            let manifest = Manifest::of(place, row)?;
            if manifest.id == id {
                return Err(place.error(ErrorKind::Corruption, "chunks are missing"));
            }
            if !sink.begin(place, manifest.length)? {
                break;
            }
            let (held, length, checksum) = (Vec::new(), 0, Checksum::new());
            let mut progress = Progress { sink, held, length, checksum };
            let is_complete = match manifest.chunks {
                0 => progress.add(data(&manifest.row)).map(|()| true),
                _ => self.chunks(place, &manifest, &mut progress),
            };
            if is_complete? {
                progress.finish(place, &manifest)?;
                return Ok(Some(manifest.into_info()));
            }
            id = manifest.id;
        }
        let problem = "the value was replaced, and its chunks were swept, while it was read";
        Err(place.error(ErrorKind::PreconditionFailed, problem))
    }

    /// Reads the chunks of a write. Returns whether there are all.
    fn chunks(
        &self,
        place: &Place<'_>,
        manifest: &Manifest,
        progress: &mut Progress<'_>,
    ) -> Result<bool> {
        let key = manifest.key(place);
        let last = key.chunk(manifest.chunks.saturating_sub(1));
        let filter = format!(
            "PartitionKey eq {} and RowKey ge {} and RowKey le {}",
            quoted(place.partition_key),
            quoted(&key.chunk(0)),
            quoted(&last),
        );
        let (mut next, mut number) = (None, 0);
        loop {
            let continuation = next.as_ref();
            let query = PageQuery { filter: &filter, top: PAGE_CHUNKS, continuation, select: &[] };
            let page = self.store.query(&self.table, &query)?;
            for row in page.entities {
                if row.row_key() != key.chunk(number) {
                    return Ok(false);
                }
                progress.add(data(&row))?;
                number += 1;
            }
            next = page.next;
            if next.is_none() || number == manifest.chunks {
                return Ok(number == manifest.chunks);
            }
        }
    }
}
