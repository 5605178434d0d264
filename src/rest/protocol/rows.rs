//! Writes pages of entities as JSON directly from stored rows. Rows with equal property names and
//! types share a shape; the constant text before each value is built once per shape.
//!
//! Invariants
//! * the bytes equal those that `payload` and `odata` write for the same entities;
//! * the cached data about shapes is bounded;
//! * an entity is written into the unused bytes of the buffer, called room below. If it does not
//!   fit, the buffer is enlarged and the whole entity is written again.
//!
//! Not here: the members' order, the levels of metadata, and single entities (`payload`, `odata`).

use std::sync::Arc;

use super::address::entity_path;
use super::ascii::{copy_short, is_plain_ascii};
use super::headers::Level;
use super::payload::{Scope, begin_list, metadata};
use crate::codec::{DecodeError, same_short, utf8};
use crate::error::{Code, Error, Result};
use crate::format::key::TABLE_ID_BYTES;
use crate::json::double;
use crate::json::odata::{self, Metadata};
use crate::json::{self, NUMBER_BYTES};
use crate::model::datetime::TimeTexts;
use crate::model::{DateTime, EdmType, Fields, Guid, SYSTEM_PROPERTIES, Seq, Shape, ValueRef};
use crate::table::RowView;

/// The body of a page that is being written.
pub(crate) struct RowSet<'s, 'o> {
    members: Members<'s>,
    /// The text written so far, followed by room: bytes with arbitrary content.
    out: &'o mut Vec<u8>,
    /// The number of bytes written.
    len: usize,
    /// The number of entities written so far; `entities_max` is the maximum number.
    entities: usize,
    entities_max: usize,
}

/// The state for writing the JSON members of one entity after the other.
struct Members<'s> {
    scope: Scope<'s>,
    metadata: Metadata,
    shows_row_key: bool,
    shows_timestamp: bool,
    /// The member `,"odata.type":"account.table"`; empty if the response does not include it.
    entity_type: Vec<u8>,
    partition: Partition,
    commit: Commit,
    forms: Forms,
    /// Cached texts of DateTime properties: adjacent rows often have the same time or day.
    times: TimeTexts,
    /// A buffer for functions that can only append to a vector. Their text is then copied into the
    /// page.
    scratch: Vec<u8>,
}

/// The destination of the text of one entity.
trait Line: Sized {
    /// Returns the number of bytes that still fit.
    fn left(&self) -> usize;

    fn put(self, text: &[u8]) -> Result<Self, Stop>;

    fn put_piece<const N: usize>(self, piece: &Piece<N>) -> Result<Self, Stop>;

    /// Writes `before`, `text`, and a closing quote.
    fn put_quoted(self, before: &Piece<NAME_BYTES>, text: &[u8]) -> Result<Self, Stop>;

    /// Appends the number that `write` formats, and returns its length. It is formatted directly in
    /// the output if the longest number fits there.
    fn put_number(
        self,
        write: impl Fn(&mut [u8; NUMBER_BYTES]) -> usize,
    ) -> Result<(Self, usize), Stop>;
}

/// A [`Line`] that writes into the unused bytes of the buffer. The field holds the bytes that are
/// still unused.
struct Room<'r>(&'r mut [u8]);

/// A [`Line`] that writes nothing. It subtracts the length of each text from its field, to measure
/// the entity.
struct Count(usize);

/// The reason why an entity was not written.
enum Stop {
    /// The entity does not fit into the unused bytes of the buffer.
    Full,
    /// The value of the property with this index is damaged.
    Damaged(usize),
    Failed(Error),
}

/// Cached text that is the same for all entities of one partition.
#[derive(Default)]
struct Partition {
    /// The stored prefix that the keys of all rows in the partition share; empty before the first
    /// entity.
    prefix: Vec<u8>,
    is_ascii: bool,
    /// The text before the value of the RowKey: the member PartitionKey, then the name and opening
    /// quote of the RowKey. A key that is not selected is omitted.
    before: Piece<KEYS_BYTES>,
}

/// The sizes of an entity that was written.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    /// The length of its JSON text in bytes.
    pub(crate) bytes: usize,
    /// The size of the entity as the size limit of entities counts it, if known.
    pub(crate) size: Option<usize>,
}

/// Cached text that is the same for all entities written by one commit.
#[derive(Default)]
struct Commit {
    seq: Option<Seq>,
    /// The member `odata.etag`; empty if it is not written.
    etag: Vec<u8>,
    /// The closing quote of the RowKey, then the member Timestamp. Each is omitted if its property
    /// is not selected.
    timestamp: Piece<KEYS_BYTES>,
    times: TimeTexts,
}

/// A cache with one [`Form`] for each recently used shape.
#[derive(Default)]
struct Forms {
    all: Vec<Form>,
    /// The index of the form used last. Adjacent rows mostly have the same shape.
    last: usize,
    next: usize,
}

/// The properties of a shape that a page shows, in output order.
struct Form {
    shape: Arc<Shape>,
    columns: Vec<Column>,
}

struct Column {
    /// The property to write. `None` if the shape lacks the selected property, which is then
    /// written as null.
    property: Option<Property>,
    /// The text before the value: a comma, the type annotation if any, the name, and an opening
    /// quote if the value is quoted. For a null property, the whole member, including `null`.
    before: Piece<NAME_BYTES>,
    /// The text before a Double that JSON cannot represent as a number, such as infinity.
    before_infinite: Box<[u8]>,
}

/// A property of a shape, and the location of its value in a row.
struct Property {
    index: usize,
    edm: EdmType,
    place: usize,
}

/// A constant text that is copied into the output often.
struct Piece<const N: usize> {
    /// The text's first bytes, padded with zeros. Copying all `N` costs less than a call that
    /// copies the exact number.
    start: [u8; N],
    text: Vec<u8>,
}

/// The number of bytes copied at once from a [`Piece`] before a value. Enough for a comma, the
/// quotes, and most property names.
const NAME_BYTES: usize = 32;
/// The number of bytes copied at once from a [`Piece`] with keys. Enough for the member Timestamp,
/// and for most PartitionKeys.
const KEYS_BYTES: usize = 64;
/// The maximum length of a text that [`Line::put_quoted`] writes with a single check of the room.
/// Most texts are shorter.
const TEXT_BYTES: usize = 64;

/// The maximum number of shapes in the cache.
const FORMS_MAX: usize = 16;
/// The first allocation of a page has room for this number of entities of the size of the first
/// entity.
const ENTITIES_ROOM: usize = 64;
/// Later allocations have room for this number of further entities per entity already written.
const MORE_ROOM: usize = 4;
/// The maximum number of bytes by which the buffer grows at a time, unless one entity needs more.
const BYTES_ROOM: usize = 256 << 10;
/// The number of bytes of room that are filled with zeros at a time.
const ZEROS_ROOM: usize = 32 << 10;

impl<'s, 'o> RowSet<'s, 'o> {
    /// Begins a page of at most `entities_max` entities in `out`. The buffer's present content is
    /// overwritten, and its capacity is reused.
    pub(crate) fn begin(scope: Scope<'s>, entities_max: usize, out: &'o mut Vec<u8>) -> Self {
        let context = (scope.level != Level::None).then(|| scope.context(""));
        let mut start = Vec::new();
        begin_list(&mut start, context.as_deref());
        start.push(b'[');
        let len = start.len();
        match out.get_mut(..len) {
            Some(place) => place.copy_from_slice(&start),
            None => *out = start,
        }
        Self { members: Members::of(scope), out, len, entities: 0, entities_max }
    }

    /// Writes the entity of a row. If the buffer had to grow for it, `grown` is called with the new
    /// capacity before the entity is written.
    ///
    /// # Errors
    /// `Corruption`, and the errors of `grown`.
    #[inline]
    pub(crate) fn put(
        &mut self,
        row: &RowView<'_>,
        grown: &mut impl FnMut(usize) -> Result<()>,
    ) -> Result<Written> {
        let is_first = self.entities == 0;
        let room = self.out.get_mut(self.len..).unwrap_or_default();
        let available = room.len();
        match self.members.put_entity(Room(&mut *room), is_first, row) {
            Ok((left, size)) => {
                // All members begin with a comma. The brace overwrites the first comma.
                if let Some(comma) = room.get_mut(usize::from(!is_first)) {
                    *comma = b'{';
                }
                let bytes = available - left;
                self.len += bytes;
                self.entities += 1;
                Ok(Written { bytes, size })
            }
            Err(Stop::Full) => self.put_into_more(row, grown),
            Err(stop) => Err(stop.error(row)),
        }
    }

    /// Enlarges the buffer for the entity of a row, and writes the entity again.
    #[cold]
    #[inline(never)]
    fn put_into_more(
        &mut self,
        row: &RowView<'_>,
        grown: &mut impl FnMut(usize) -> Result<()>,
    ) -> Result<Written> {
        let counted = self.members.put_entity(Count(usize::MAX), self.entities == 0, row);
        let (left, _) = counted.map_err(|stop| stop.error(row))?;
        self.make_room(usize::MAX - left);
        grown(self.out.capacity())?;
        self.put(row, grown)
    }

    /// Enlarges the buffer for the next entity, which has `len` bytes, and some that follow it.
    fn make_room(&mut self, len: usize) {
        let expected = self.entities_max.saturating_sub(self.entities).max(1);
        let entities = (MORE_ROOM * self.entities).max(ENTITIES_ROOM).min(expected);
        // Adds an eighth, because later entities may be a little longer.
        let room = len.max((entities * (len + len / 8)).min(BYTES_ROOM));
        self.out.reserve((self.len + room).saturating_sub(self.out.len()));
        // Fills a few zeros at a time, so that they are still in the L1 cache when they are
        // overwritten. Bytes left over from an earlier page need no zeros.
        let filled = self.len + room.min(len.max(ZEROS_ROOM));
        self.out.resize(filled.max(self.out.len()), 0);
    }

    /// Ends the page.
    pub(crate) fn end(self) {
        self.out.truncate(self.len);
        self.out.extend_from_slice(b"]}");
    }
}

impl<'s> Members<'s> {
    fn of(scope: Scope<'s>) -> Self {
        let mut entity_type = Vec::new();
        if scope.level == Level::Full {
            entity_type.extend_from_slice(b",\"odata.type\":");
            json::put_string(&mut entity_type, &format!("{}.{}", scope.account, scope.table));
        }
        Self {
            scope,
            metadata: metadata(scope.level),
            shows_row_key: selects(scope, "RowKey"),
            shows_timestamp: selects(scope, "Timestamp"),
            entity_type,
            partition: Partition::default(),
            commit: Commit::default(),
            forms: Forms::default(),
            times: TimeTexts::default(),
            scratch: Vec::new(),
        }
    }

    /// Writes an entity, with a leading comma in place of the opening brace. Returns the number of
    /// bytes left, and the entity's size as the size limit counts it, if known.
    // `line` is always passed by value, here and below, so that its position stays in a register.
    #[inline(always)]
    fn put_entity<L: Line>(
        &mut self,
        mut line: L,
        is_first: bool,
        row: &RowView<'_>,
    ) -> Result<(usize, Option<usize>), Stop> {
        if !is_first {
            line = line.put(b",")?;
        }
        let start = line.left();
        let is_ascii;
        (line, is_ascii) = self.put_head(line, row)?;
        let (shape, body) = row.stored();
        let fields = shape.fields(body);
        // `variables` is the concatenation of all texts: if it is plain ASCII, each text is.
        let are_plain = is_plain_ascii(fields.variables());
        line = self.put_properties(line, row, fields, are_plain)?;
        let end: &[u8] = if line.left() == start { b"{}" } else { b"}" };
        let left = line.put(end)?.left();
        Ok((left, if is_ascii && are_plain { ascii_size(row, fields) } else { None }))
    }

    /// Writes metadata, keys and Timestamp; also returns whether both keys are known to be ASCII.
    #[inline(always)]
    fn put_head<L: Line>(&mut self, mut line: L, row: &RowView<'_>) -> Result<(L, bool), Stop> {
        let row_key = match key_behind(row, &self.partition.prefix) {
            Some(row_key) if !self.partition.prefix.is_empty() => row_key,
            _ => self.enter_partition(row)?,
        };
        let seq = row.seq();
        if self.commit.seq != Some(seq) {
            self.enter_commit(seq);
        }
        if self.scope.level != Level::None {
            self.put_metadata(row, row_key)?;
            line = line.put(&self.scratch)?;
        }
        line = line.put_piece(&self.partition.before)?;
        let is_plain = is_plain_ascii(row_key);
        if self.shows_row_key {
            line = match is_plain {
                true => line.put(row_key)?,
                false => line.put(inside_of_string(&RowView::text(row_key)?, &mut self.scratch))?,
            };
        }
        Ok((line.put_piece(&self.commit.timestamp)?, is_plain && self.partition.is_ascii))
    }

    /// Caches the texts for the partition of `row`, and returns the encoded RowKey.
    #[cold]
    #[inline(never)]
    fn enter_partition<'r>(&mut self, row: &RowView<'r>) -> Result<&'r [u8]> {
        let (_, row_key) = row.parts()?;
        let Partition { prefix, is_ascii, before } = &mut self.partition;
        let mut text = Vec::new();
        if selects(self.scope, "PartitionKey") {
            text.extend_from_slice(b",\"PartitionKey\":");
            json::put_string(&mut text, &row.partition_key()?);
        }
        if self.shows_row_key {
            text.extend_from_slice(b",\"RowKey\":\"");
        }
        *before = Piece::new(text);
        prefix.clear();
        prefix.extend_from_slice(row.key().strip_suffix(row_key).unwrap_or_default());
        *is_ascii = row.partition_key()?.is_ascii();
        Ok(row_key)
    }

    #[inline(never)]
    fn enter_commit(&mut self, seq: Seq) {
        let Commit { seq: known, etag, timestamp, times } = &mut self.commit;
        *known = Some(seq);
        let text = times.of(seq.into());
        if self.metadata.etag {
            etag.clear();
            etag.extend_from_slice(b",\"odata.etag\":");
            put_etag(etag, text);
        }
        let mut member = Vec::new();
        if self.shows_row_key {
            member.push(b'"');
        }
        if self.shows_timestamp {
            if self.metadata.timestamp_type {
                put_type(&mut member, "Timestamp", EdmType::DateTime);
            }
            member.extend_from_slice(b",\"Timestamp\":\"");
            member.extend_from_slice(text);
            member.push(b'"');
        }
        *timestamp = Piece::new(member);
    }

    /// Fills the scratch buffer with the metadata members of an entity, according to the level.
    #[inline(never)]
    fn put_metadata(&mut self, row: &RowView<'_>, row_key: &[u8]) -> Result<()> {
        let links = &mut self.scratch;
        links.clear();
        if self.scope.level != Level::Full {
            links.extend_from_slice(&self.commit.etag);
            return Ok(());
        }
        let Scope { base, table, .. } = self.scope;
        let link = entity_path(table, &row.partition_key()?, &RowView::text(row_key)?);
        links.extend_from_slice(&self.entity_type);
        links.extend_from_slice(b",\"odata.id\":");
        json::put_string(links, &format!("{base}{link}"));
        links.extend_from_slice(&self.commit.etag);
        links.extend_from_slice(b",\"odata.editLink\":");
        json::put_string(links, &link);
        Ok(())
    }

    #[inline(always)]
    fn put_properties<L: Line>(
        &mut self,
        mut line: L,
        row: &RowView<'_>,
        fields: Fields<'_>,
        are_plain: bool,
    ) -> Result<L, Stop> {
        let Self { scope, metadata, forms, times, scratch, .. } = self;
        let form = forms.of(row.stored().0, scope.select, *metadata);
        let mut values = Values { fields, are_plain, times, scratch };
        for column in &form.columns {
            line = match &column.property {
                Some(property) => values.put(line, column, property)?,
                None => line.put_piece(&column.before)?,
            };
        }
        Ok(line)
    }
}

/// Returns the rest of the row's key, if the key begins with `prefix`.
#[inline(always)]
fn key_behind<'r>(row: &RowView<'r>, prefix: &[u8]) -> Option<&'r [u8]> {
    let (start, rest) = row.key().split_at_checked(prefix.len())?;
    same_short(start, prefix).then_some(rest)
}

/// Returns the size of a row as [`RowView::size`] does, for a row whose keys and texts are ASCII.
/// It is computed from lengths alone, without decoding values. `None` if the row has a Binary
/// property.
#[inline(always)]
fn ascii_size(row: &RowView<'_>, fields: Fields<'_>) -> Option<usize> {
    let (shape, _) = row.stored();
    // One ASCII byte is one UTF-16 unit. The key also contains the table's id and a separator.
    let bytes = row.key().len() + fields.variables().len();
    let units = bytes.saturating_sub(TABLE_ID_BYTES + 1);
    (!shape.has_binary()).then(|| 4 + 2 * units + shape.size_base())
}

/// Returns the error for property `index`, whose value is damaged.
#[cold]
fn damage(row: &RowView<'_>, index: usize) -> Error {
    let (shape, body) = row.stored();
    let problem = DecodeError::new("row body", 0, "a value is damaged");
    Error::decode("row".as_ref(), 0, shape.value(body, index).err().unwrap_or(problem))
}

/// Whether the query selects `name`, which is a key or the Timestamp.
fn selects(scope: Scope<'_>, name: &str) -> bool {
    scope.select.is_none_or(|names| names.iter().any(|selected| selected == name))
}

impl Forms {
    #[inline(always)]
    fn of(&mut self, shape: &Arc<Shape>, select: Option<&[String]>, metadata: Metadata) -> &Form {
        let last = self.all.get(self.last);
        if !last.is_some_and(|form| Arc::ptr_eq(&form.shape, shape)) {
            self.last = self.find_or_insert(shape, select, metadata);
        }
        &self.all[self.last]
    }

    #[cold]
    fn find_or_insert(
        &mut self,
        shape: &Arc<Shape>,
        select: Option<&[String]>,
        metadata: Metadata,
    ) -> usize {
        let known = self.all.iter().position(|form| Arc::ptr_eq(&form.shape, shape));
        known.unwrap_or_else(|| {
            let place = self.next % FORMS_MAX;
            self.next = place + 1;
            let form = Form::new(shape, select, metadata);
            match self.all.get_mut(place) {
                Some(slot) => *slot = form,
                None => self.all.push(form),
            }
            place
        })
    }
}

impl Form {
    fn new(shape: &Arc<Shape>, select: Option<&[String]>, metadata: Metadata) -> Form {
        let of = |index: usize| {
            let (edm, place) = shape.place(index);
            Column::new(Property { index, edm, place }, shape.property(index).0, metadata)
        };
        let columns = match select {
            None => (0..shape.len()).map(of).collect(),
            Some(names) => names
                .iter()
                .enumerate()
                .filter(|(i, name)| {
                    let is_repeated = names.iter().take(*i).any(|earlier| earlier == *name);
                    !is_repeated && !SYSTEM_PROPERTIES.contains(&name.as_str())
                })
                .filter_map(|(_, name)| match shape.find(name) {
                    Some(index) => Some(of(index)),
                    None => odata::is_property(name).then(|| Column::null(name)),
                })
                .collect(),
        };
        Form { shape: Arc::clone(shape), columns }
    }
}

impl Column {
    fn new(property: Property, name: &str, metadata: Metadata) -> Column {
        let edm = property.edm;
        let is_annotated = metadata.types && odata::is_annotated(edm);
        let before_infinite = match edm {
            EdmType::Double => before(name, metadata.types.then_some(edm), true),
            _ => Vec::new(),
        };
        Column {
            property: Some(property),
            before: Piece::new(before(name, is_annotated.then_some(edm), is_quoted(edm))),
            before_infinite: before_infinite.into(),
        }
    }

    fn null(name: &str) -> Column {
        let mut before = before(name, None, false);
        before.extend_from_slice(b"null");
        Column { property: None, before: Piece::new(before), before_infinite: Box::default() }
    }
}

/// Returns the text before the value of property `name`, including the annotation of type `edm` if
/// given.
fn before(name: &str, edm: Option<EdmType>, is_quoted: bool) -> Vec<u8> {
    let mut before = Vec::new();
    if let Some(edm) = edm {
        put_type(&mut before, name, edm);
    }
    before.push(b',');
    json::put_string(&mut before, name);
    before.push(b':');
    if is_quoted {
        before.push(b'"');
    }
    before
}

fn put_type(out: &mut Vec<u8>, name: &str, edm: EdmType) {
    out.push(b',');
    odata::put_type(out, name, edm);
}

impl<const N: usize> Piece<N> {
    fn new(text: Vec<u8>) -> Self {
        let mut start = [0; N];
        start.iter_mut().zip(&text).for_each(|(place, byte)| *place = *byte);
        Piece { start, text }
    }
}

impl<const N: usize> Default for Piece<N> {
    fn default() -> Self {
        Piece::new(Vec::new())
    }
}

impl Stop {
    #[cold]
    fn error(self, row: &RowView<'_>) -> Error {
        match self {
            Stop::Damaged(index) => damage(row, index),
            Stop::Failed(error) => error,
            // Never reported, because the caller enlarges the buffer and tries again.
            Stop::Full => Error::refused(Code::InternalError),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

impl Line for Room<'_> {
    #[inline(always)]
    fn left(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn put(self, text: &[u8]) -> Result<Self, Stop> {
        let (place, rest) = self.0.split_at_mut_checked(text.len()).ok_or(Stop::Full)?;
        copy_short(place, text);
        Ok(Room(rest))
    }

    #[inline(always)]
    fn put_piece<const N: usize>(self, piece: &Piece<N>) -> Result<Self, Stop> {
        let len = piece.text.len();
        if len <= N
            && let Some(place) = self.0.first_chunk_mut()
        {
            *place = piece.start;
            return self.0.get_mut(len..).map(Room).ok_or(Stop::Full);
        }
        self.put(&piece.text)
    }

    #[inline(always)]
    fn put_quoted(self, before: &Piece<NAME_BYTES>, text: &[u8]) -> Result<Self, Stop> {
        let (len, end) = (before.text.len(), before.text.len() + text.len());
        // If both parts fit even at their maximum length, one check of the remaining bytes
        // suffices.
        if len <= NAME_BYTES
            && text.len() <= TEXT_BYTES
            && let Some(room) = self.0.first_chunk_mut::<{ NAME_BYTES + TEXT_BYTES + 1 }>()
        {
            if let Some(place) = room.first_chunk_mut() {
                *place = before.start;
            }
            if let Some(place) = room.get_mut(len..end) {
                copy_short(place, text);
            }
            if let Some(place) = room.get_mut(end) {
                *place = b'"';
            }
            return self.0.get_mut(end + 1..).map(Room).ok_or(Stop::Full);
        }
        self.put(&before.text)?.put(text)?.put(b"\"")
    }

    #[inline(always)]
    fn put_number(
        self,
        write: impl Fn(&mut [u8; NUMBER_BYTES]) -> usize,
    ) -> Result<(Self, usize), Stop> {
        if let Some(place) = self.0.first_chunk_mut() {
            let len = write(place);
            return Ok((Room(self.0.get_mut(len..).ok_or(Stop::Full)?), len));
        }
        let mut text = [0; NUMBER_BYTES];
        let len = write(&mut text);
        Ok((self.put(text.get(..len).unwrap_or_default())?, len))
    }
}

impl Line for Count {
    fn left(&self) -> usize {
        self.0
    }

    fn put(self, text: &[u8]) -> Result<Self, Stop> {
        Ok(Count(self.0 - text.len()))
    }

    fn put_piece<const N: usize>(self, piece: &Piece<N>) -> Result<Self, Stop> {
        self.put(&piece.text)
    }

    fn put_quoted(self, before: &Piece<NAME_BYTES>, text: &[u8]) -> Result<Self, Stop> {
        self.put(&before.text)?.put(text)?.put(b"\"")
    }

    fn put_number(
        self,
        write: impl Fn(&mut [u8; NUMBER_BYTES]) -> usize,
    ) -> Result<(Self, usize), Stop> {
        let len = write(&mut [0; NUMBER_BYTES]);
        Ok((Count(self.0 - len), len))
    }
}

/// Writes the values of a row.
struct Values<'m, 'r> {
    fields: Fields<'r>,
    /// Whether all texts of the row are ASCII and need no escapes.
    are_plain: bool,
    times: &'m mut TimeTexts,
    scratch: &'m mut Vec<u8>,
}

impl Values<'_, '_> {
    /// Writes a value and the text before it.
    // Converts the stored bytes directly to text: decoding them to a value first would branch on
    // the type a second time.
    #[inline(always)]
    fn put<L: Line>(&mut self, line: L, column: &Column, property: &Property) -> Result<L, Stop> {
        let Property { index, edm, place } = *property;
        let (fields, before) = (self.fields, &column.before);
        let damaged = || Stop::Damaged(index);
        match edm {
            EdmType::String => {
                let bytes = fields.variable(place).ok_or_else(damaged)?;
                let text = match self.are_plain {
                    true => bytes,
                    false => inside_of_string(utf8(bytes).map_err(|_| damaged())?, self.scratch),
                };
                line.put_quoted(before, text)
            }
            EdmType::DateTime => {
                let ticks = u64::from_le_bytes(fields.fixed(place).ok_or_else(damaged)?);
                let time = DateTime::from_ticks(ticks).ok_or_else(damaged)?;
                line.put_quoted(before, self.times.of(time))
            }
            EdmType::Boolean => match fields.fixed(place) {
                Some([0]) => line.put_piece(before)?.put(b"false"),
                Some([1]) => line.put_piece(before)?.put(b"true"),
                _ => Err(damaged()),
            },
            EdmType::Int32 => {
                let number = i32::from_le_bytes(fields.fixed(place).ok_or_else(damaged)?);
                let line = line.put_piece(before)?;
                Ok(line.put_number(|text| json::put_number(text, number.into()))?.0)
            }
            EdmType::Double => {
                let number = f64::from_le_bytes(fields.fixed(place).ok_or_else(damaged)?);
                if !number.is_finite() {
                    let line = line.put(&column.before_infinite)?;
                    return line.put(self.text_of(ValueRef::Double(number)));
                }
                let line = line.put_piece(before)?;
                match line.put_number(|text| double::put_decimal(text, number))? {
                    (line, 0) => line.put(self.text_of(ValueRef::Double(number))),
                    (line, _) => Ok(line),
                }
            }
            EdmType::Int64 => {
                let number = i64::from_le_bytes(fields.fixed(place).ok_or_else(damaged)?);
                let line = line.put_piece(before)?;
                line.put_number(|text| json::put_number(text, number))?.0.put(b"\"")
            }
            EdmType::Guid => {
                let guid = Guid::from_bytes(fields.fixed(place).ok_or_else(damaged)?);
                line.put_piece(before)?.put(self.text_of(ValueRef::Guid(guid)))
            }
            EdmType::Binary => {
                let bytes = fields.variable(place).ok_or_else(damaged)?;
                line.put_piece(before)?.put(self.text_of(ValueRef::Binary(bytes)))
            }
        }
    }

    /// Returns the text of a value, followed by the closing quote if JSON represents it as a
    /// string.
    #[inline(never)]
    fn text_of(&mut self, value: ValueRef<'_>) -> &[u8] {
        self.scratch.clear();
        odata::put_text(self.scratch, value);
        let is_quoted = match value {
            ValueRef::Double(number) => !number.is_finite(),
            value => is_quoted(value.edm_type()),
        };
        if is_quoted {
            self.scratch.push(b'"');
        }
        self.scratch
    }
}

/// Whether JSON represents values of this type as strings. False for Double, although JSON
/// represents infinities and NaN as strings.
fn is_quoted(edm: EdmType) -> bool {
    !matches!(edm, EdmType::Boolean | EdmType::Int32 | EdmType::Double)
}

/// Returns `text` with JSON escapes, without quotes around it.
#[inline(never)]
fn inside_of_string<'t>(text: &str, scratch: &'t mut Vec<u8>) -> &'t [u8] {
    scratch.clear();
    json::put_string(scratch, text);
    match &**scratch {
        [_, inside @ .., _] => inside,
        _ => &[],
    }
}

/// Appends the ETag of an entity as a JSON string. `time` is its Timestamp as text. Only the quotes
/// in the ETag need an escape.
fn put_etag(out: &mut Vec<u8>, time: &[u8]) {
    out.extend_from_slice(b"\"W/\\\"datetime'");
    for (i, part) in time.split(|byte| *byte == b':').enumerate() {
        if i > 0 {
            out.extend_from_slice(b"%3A");
        }
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"'\\\"\"");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::model::{Binary, Entity};
    use crate::table::Table;

    /// Creates a table with entities of all types, including infinite numbers. Some names and
    /// texts need escapes.
    fn table(db: &Db) -> Table {
        let table = db.create_table("people").unwrap();
        let put = |entity: Entity| table.insert(entity).unwrap();
        put(Entity::new("p", "a"));
        let (long, wide) = ("Long".repeat(20), "wide".repeat(100));
        put(Entity::new("p", "b").with(&long, 0.5).with("Wide", wide.clone()).with("Z", "z"));
        put(Entity::new("p", "c").with(&long, f64::NAN).with("Wide", wide + "\"").with("Z", "z"));
        put(Entity::new("p'\"ä", "\u{e000}🙂").with("Ä", "x\"\\\n\u{1}y").with("B", "ü🙂"));
        for i in 0..40 {
            let doubles = [0.1, -2.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            let mut entity = Entity::new("q", format!("{i:02}"))
                .with("Blob", Binary(b"\0\x01\xff"[..i % 4].to_vec()))
                .with("Bool", i % 2 == 0)
                .with("Double", doubles[i % 6])
                .with("Int", i as i32 - 20)
                .with("Long", i as i64 - (1 << 40))
                .with("Id", Guid::from_bytes([i as u8; 16]))
                .with("Text", "x".repeat(i));
            if i % 3 == 0 {
                let time = DateTime::from_ticks(130_000_000_000_000_000 + i as u64 * 1_000_000);
                entity.set("At", time.unwrap());
            }
            if i % 5 == 0 {
                entity.set(format!("Own{i}"), "own");
            }
            put(entity);
        }
        table
    }

    #[track_caller]
    fn check(table: &Table, select: Option<&[&str]>, level: Level) {
        let select: Option<Vec<String>> =
            select.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let scope = Scope {
            base: "http://a/acme/",
            account: "acme",
            table: "people",
            select: select.as_deref(),
            level,
        };
        let query = || match &select {
            None => table.query("").unwrap(),
            Some(names) => {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                table.query("").unwrap().select(&names)
            }
        };
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        scope.put_set(&mut expected, query().page(1_000).unwrap().entities());
        let mut set = RowSet::begin(scope, 1_000, &mut found);
        assert_eq!(
            query().page_rows(1_000, |row| set.put(row, &mut |_| Ok(())).map(drop)).unwrap(),
            None
        );
        set.end();
        assert_eq!(String::from_utf8(found).unwrap(), String::from_utf8(expected).unwrap());
    }

    #[test]
    fn rows_are_written_as_their_entities_are() {
        let db = Db::open_in_memory().unwrap();
        let table = table(&db);
        for level in [Level::None, Level::Minimal, Level::Full] {
            check(&table, None, level);
            check(&table, Some(&["Double", "At", "Nothing", "Text", "At", "Ä"]), level);
            check(&table, Some(&["RowKey", "Blob", "Timestamp", "Own5"]), level);
            check(&table, Some(&["Nothing"]), level);
            check(&table, Some(&["PartitionKey"]), level);
            check(&table, Some(&["odata.etag", "Text@odata.type", "Text", "a-b"]), level);
        }
        let empty = db.create_table("nobody").unwrap();
        check(&empty, None, Level::Minimal);
    }

    #[test]
    fn a_reused_buffer_does_not_leak_into_the_next_page() {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("people").unwrap();
        for i in 0..1_000 {
            let entity = Entity::new("p".repeat(1 + i / 9), format!("{i:04}"));
            table.insert(entity.with("Text", "x".repeat(i % 90))).unwrap();
        }
        let (base, account, name) = ("http://a/acme/", "acme", "people");
        let scope = Scope { base, account, table: name, select: None, level: Level::Minimal };
        let mut body = vec![b'?'; 1 << 20];
        let capacity = body.capacity();
        let mut set = RowSet::begin(scope, 1_000, &mut body);
        assert_eq!(
            table
                .query("")
                .unwrap()
                .page_rows(1_000, |row| set.put(row, &mut |_| Ok(())).map(drop))
                .unwrap(),
            None
        );
        set.end();
        assert_eq!(body.capacity(), capacity);
        let mut expected = Vec::new();
        scope.put_set(&mut expected, table.query("").unwrap().page(1_000).unwrap().entities());
        assert_eq!(String::from_utf8(body).unwrap(), String::from_utf8(expected).unwrap());
    }

    #[test]
    fn rows_with_more_shapes_than_the_cache_holds() {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("shapes").unwrap();
        for i in 0..100 {
            let name = format!("P{}", i * 7 % 33);
            table.insert(Entity::new("p", format!("{i:03}")).with(name, i)).unwrap();
        }
        check(&table, None, Level::Minimal);
    }

    #[test]
    fn pages_of_rows_end_where_pages_of_entities_do() {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("large").unwrap();
        for i in 0..60 {
            let text = if i % 7 == 0 { "ä".repeat(9_000) } else { "a".repeat(9_000) };
            let entity = Entity::new(format!("p{}", i / 20), format!("{i:02}🙂"));
            let entity = entity.with("A", text.clone()).with("B", text);
            let entity = entity.with("C", Binary(vec![7; 1_000]));
            table.insert(if i % 3 == 0 { entity.with("D", 1) } else { entity }).unwrap();
        }
        for names in [None, Some(["A"].as_slice()), Some(&["B", "C", "D"])] {
            for bytes in [1, 36_100, 100_000, 500_000, 4 << 20] {
                let query = || {
                    let query = table.query("").unwrap().byte_budget(bytes);
                    names.map_or_else(|| query.clone(), |names| query.clone().select(names))
                };
                let page = query().page(50).unwrap();
                let mut rows = 0;
                let next = query().page_rows(50, |_| {
                    rows += 1;
                    Ok(())
                });
                assert_eq!((rows, next.unwrap().as_ref()), (page.entities().len(), page.next()));
                let mut texts = 0;
                let next = query().page_texts(50, |_| {
                    texts += 1;
                    Ok((0, None))
                });
                assert_eq!((texts, next.unwrap().as_ref()), (rows, page.next()));
            }
        }
    }

    #[test]
    fn sizes_of_rows_are_those_of_their_entities() {
        let db = Db::open_in_memory().unwrap();
        let table = table(&db);
        let (mut rows, mut known, mut body) = (0, 0, Vec::new());
        let scope = Scope { base: "", account: "", table: "", select: None, level: Level::Minimal };
        let mut set = RowSet::begin(scope, 1_000, &mut body);
        let visited = table.query("").unwrap().page_rows(1_000, |row| {
            assert_eq!(row.size()?, row.to_entity()?.size());
            let size = set.put(row, &mut |_| Ok(()))?.size;
            assert!(size.is_none_or(|size| size == row.size().unwrap()));
            known += usize::from(size.is_some());
            rows += 1;
            Ok(())
        });
        // `put` reports no size for rows with Binary values or with characters that JSON escapes.
        assert_eq!((visited.unwrap(), rows, known), (None, 44, 2));
    }
}
