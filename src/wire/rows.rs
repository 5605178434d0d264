//! Pages of entities as JSON, written straight from rows: what members of a shape begin with is put together once.
//!
//! Invariants
//! * the bytes are those that `payload` and `odata` write for the same entities;
//! * what is remembered about shapes is bounded;
//! * an entity is written into room that is there: one that has too little is written again into more.
//!
//! Not here: the members' order and the levels of metadata (`payload`, `odata`), one entity by itself (`payload`).

use std::sync::Arc;

use super::address::entity_path;
use super::double;
use super::headers::Level;
use super::json::{self, NUMBER_BYTES};
use super::odata::{self, Metadata};
use super::payload::{Scope, begin_list, metadata};
use crate::codec::{copy_short, is_plain_ascii_in_json, utf8};
use crate::error::Result;
use crate::model::{
    DateTime, EdmType, Fields, Guid, SYSTEM_PROPERTIES, Seq, Shape, TimeTexts, ValueRef,
};
use crate::table::RowView;

/// The body of a page that is being written.
pub(crate) struct RowSet<'s, 'o> {
    members: Members<'s>,
    /// What is written, and room that is filled with zeros.
    out: &'o mut Vec<u8>,
    /// How much is written.
    len: usize,
    /// How many entities it has, and may have.
    entities: usize,
    entities_max: usize,
}

/// The members of entities, one entity after the other.
struct Members<'s> {
    scope: Scope<'s>,
    metadata: Metadata,
    shows_row_key: bool,
    shows_timestamp: bool,
    /// `,"odata.type":"account.table"`, where it is written.
    entity_type: Vec<u8>,
    partition: Partition,
    commit: Commit,
    forms: Forms,
    /// Points in time of properties: neighbours often have the same, or the same day.
    times: TimeTexts,
    /// What is written by others, before it finds its place.
    scratch: Vec<u8>,
}

/// A text on its way into room that was made for it. What has no room there is counted all the same.
struct Line<'r> {
    room: &'r mut [u8],
    len: usize,
}

/// What entities of one partition share.
#[derive(Default)]
struct Partition {
    /// What keys begin with; empty before the first entity.
    prefix: Vec<u8>,
    is_ascii: bool,
    /// The member of the PartitionKey, the name of the next one and a quote, as far as they are written.
    before: Piece<KEYS_BYTES>,
}

/// An entity that was written.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    /// The bytes of its text.
    pub(crate) bytes: usize,
    /// What it counts for among the limits of entities, if that is known.
    pub(crate) size: Option<usize>,
}

/// What entities of one commit share.
#[derive(Default)]
struct Commit {
    seq: Option<Seq>,
    /// The member of metadata, as far as it is written.
    etag: Vec<u8>,
    /// The quote behind the RowKey and the Timestamp, as far as they are written.
    timestamp: Piece<KEYS_BYTES>,
    times: TimeTexts,
}

/// What is known of the shapes that were met last.
#[derive(Default)]
struct Forms {
    all: Vec<Form>,
    /// The one that was asked for last, which neighbours mostly have, too.
    last: usize,
    next: usize,
}

/// The properties of a shape that are written, in order.
struct Form {
    shape: Arc<Shape>,
    columns: Vec<Column>,
}

struct Column {
    /// What is written; nothing is written as null.
    property: Option<Property>,
    /// What stands before the value: a comma, the annotation of the type if it has one, the name, and a quote if the value has
    /// them. Of a null all of it.
    before: Piece<NAME_BYTES>,
    /// The same of a Double that JSON has no number for.
    before_infinite: Box<[u8]>,
}

/// A property of a shape, and where its value stands.
struct Property {
    index: usize,
    edm: EdmType,
    place: usize,
}

/// A text that is written often.
struct Piece<const N: usize> {
    /// How it begins, with zeros behind it if that is all: a few bytes more cost less than a call to copy the right number.
    start: [u8; N],
    text: Vec<u8>,
}

/// What most names need, with all that stands before a value.
const NAME_BYTES: usize = 32;
/// What the Timestamp needs, and most keys of partitions.
const KEYS_BYTES: usize = 64;
/// What most texts need.
const TEXT_BYTES: usize = 64;

/// Shapes that are remembered.
const FORMS_MAX: usize = 16;
/// Room made for a page once its first entity shows how large they are: so many of them.
const ENTITIES_ROOM: usize = 64;
/// If more come, for so many times as many as there are.
const MORE_ROOM: usize = 4;
/// But no more than this at a time, however large they are.
const BYTES_ROOM: usize = 256 << 10;
/// What of the room is filled with zeros at a time.
const ZEROS_ROOM: usize = 32 << 10;

impl<'s, 'o> RowSet<'s, 'o> {
    /// Begins a page of so many entities at the most. Room that `out` has is used.
    pub(crate) fn begin(scope: Scope<'s>, entities_max: usize, out: &'o mut Vec<u8>) -> Self {
        let context = (scope.level != Level::None).then(|| scope.context(""));
        begin_list(out, context.as_deref());
        let len = out.len();
        Self { members: Members::of(scope), out, len, entities: 0, entities_max }
    }

    /// Writes the entity of a row.
    ///
    /// # Errors
    /// `Corruption`.
    #[inline]
    pub(crate) fn put(&mut self, row: &RowView<'_>) -> Result<Written> {
        loop {
            let room = self.out.get_mut(self.len..).unwrap_or_default();
            let (available, line) = (room.len(), Line { room, len: 0 });
            let written = self.members.put_entity(line, self.entities == 0, row)?;
            if written.bytes <= available {
                self.len += written.bytes;
                self.entities += 1;
                return Ok(written);
            }
            self.make_room(written.bytes);
        }
    }

    /// Makes room for more entities, the next of which has `len` bytes.
    #[cold]
    fn make_room(&mut self, len: usize) {
        let expected = self.entities_max.saturating_sub(self.entities).max(1);
        let entities = (MORE_ROOM * self.entities).max(ENTITIES_ROOM).min(expected);
        // The next ones may be a little longer.
        let room = len.max((entities * (len + len / 8)).min(BYTES_ROOM));
        self.out.reserve((self.len + room).saturating_sub(self.out.len()));
        // Zeros are still in the nearest cache when they are written over.
        self.out.resize(self.len + room.min(len.max(ZEROS_ROOM)), 0);
    }

    /// Bytes that there is room for, written or not.
    pub(crate) fn room(&self) -> usize {
        self.out.capacity()
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

    // The line is nowhere handed on by reference, here and below, so that where it ends stays in a register.
    #[inline(always)]
    fn put_entity(
        &mut self,
        mut line: Line<'_>,
        is_first: bool,
        row: &RowView<'_>,
    ) -> Result<Written> {
        if !is_first {
            line.put(b",");
        }
        let start = line.len;
        let is_ascii;
        (line, is_ascii) = self.put_head(line, row)?;
        let fields = row.fields();
        // If all texts are plain together, so is each.
        let are_plain = is_plain_ascii_in_json(fields.variables());
        line = self.put_properties(line, row, fields, are_plain)?;
        // All members begin with a comma; that of the first becomes the brace.
        if line.len == start {
            line.put(b"{");
        } else if let Some(comma) = line.room.get_mut(start) {
            *comma = b'{';
        }
        line.put(b"}");
        let size = if is_ascii && are_plain { row.ascii_size(fields) } else { None };
        Ok(Written { bytes: line.len, size })
    }

    /// Metadata, keys and Timestamp; whether both keys are known to be ASCII.
    #[inline(always)]
    fn put_head<'l>(&mut self, mut line: Line<'l>, row: &RowView<'_>) -> Result<(Line<'l>, bool)> {
        let row_key = match row.key_behind(&self.partition.prefix) {
            Some(row_key) if !self.partition.prefix.is_empty() => row_key,
            _ => self.enter_partition(row)?,
        };
        let seq = row.etag().seq();
        if self.commit.seq != Some(seq) {
            self.enter_commit(seq);
        }
        if self.scope.level != Level::None {
            self.put_metadata(row, row_key)?;
            line.put(&self.scratch);
        }
        line.put_piece(&self.partition.before);
        let is_plain = is_plain_ascii_in_json(row_key);
        if self.shows_row_key {
            if is_plain {
                line.put(row_key);
            } else {
                line.put(inside_of_string(&RowView::text(row_key)?, &mut self.scratch));
            }
        }
        line.put_piece(&self.commit.timestamp);
        Ok((line, is_plain && self.partition.is_ascii))
    }

    /// Remembers the partition of a row, whose encoded RowKey it gives.
    #[cold]
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
        prefix.extend_from_slice(row.key_before(row_key));
        *is_ascii = row.partition_key()?.is_ascii();
        Ok(row_key)
    }

    fn enter_commit(&mut self, seq: Seq) {
        let Commit { seq: known, etag, timestamp, times } = &mut self.commit;
        *known = Some(seq);
        let text = times.of(seq.into());
        if self.metadata.etag {
            etag.clear();
            etag.extend_from_slice(b",\"odata.etag\":");
            odata::put_etag(etag, text);
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

    /// Puts the metadata of an entity, as far as it is written, into the scratch.
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
    fn put_properties<'l>(
        &mut self,
        mut line: Line<'l>,
        row: &RowView<'_>,
        fields: Fields<'_>,
        are_plain: bool,
    ) -> Result<Line<'l>> {
        let Self { scope, metadata, forms, times, scratch, .. } = self;
        let form = forms.of(row.shape(), scope.select, *metadata);
        let mut values = Values { fields, are_plain, times, scratch };
        for column in &form.columns {
            let Some(property) = &column.property else {
                line.put_piece(&column.before);
                continue;
            };
            line = match values.put(line, column, property) {
                Some(line) => line,
                None => return Err(row.damage(property.index)),
            };
        }
        Ok(line)
    }
}

/// Whether a member is written that is no property.
fn selects(scope: Scope<'_>, name: &str) -> bool {
    scope.select.is_none_or(|names| names.iter().any(|selected| selected == name))
}

impl Forms {
    #[inline]
    fn of(&mut self, shape: &Arc<Shape>, select: Option<&[String]>, metadata: Metadata) -> &Form {
        let last = self.all.get(self.last);
        if !last.is_some_and(|form| Arc::ptr_eq(&form.shape, shape)) {
            self.last = self.place(shape, select, metadata);
        }
        &self.all[self.last]
    }

    fn place(
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

/// What stands before a value, annotated with its type or not.
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

impl Line<'_> {
    #[inline(always)]
    fn put(&mut self, text: &[u8]) {
        if let Some(rest) = self.room.get_mut(self.len..)
            && let Some(place) = rest.get_mut(..text.len())
        {
            copy_short(place, text);
        }
        self.len += text.len();
    }

    #[inline(always)]
    fn put_piece<const N: usize>(&mut self, piece: &Piece<N>) {
        let len = piece.text.len();
        if len <= N
            && let Some(rest) = self.room.get_mut(self.len..)
            && let Some(place) = rest.first_chunk_mut()
        {
            *place = piece.start;
            self.len += len;
        } else {
            self.put(&piece.text);
        }
    }

    /// Puts a text that has quotes, and what stands before it.
    #[inline(always)]
    fn put_quoted(&mut self, before: &Piece<NAME_BYTES>, text: &[u8]) {
        let (len, end) = (before.text.len(), before.text.len() + text.len());
        // Where all of it has room by its bounds alone, no part of it asks again.
        if len <= NAME_BYTES
            && text.len() <= TEXT_BYTES
            && let Some(rest) = self.room.get_mut(self.len..)
            && let Some(room) = rest.first_chunk_mut::<{ NAME_BYTES + TEXT_BYTES + 1 }>()
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
            self.len += end + 1;
            return;
        }
        self.put(&before.text);
        self.put(text);
        self.put(b"\"");
    }

    /// Has a number written, at its place if there is room for any, and gives its length.
    #[inline(always)]
    fn put_number(&mut self, write: impl Fn(&mut [u8; NUMBER_BYTES]) -> usize) -> usize {
        if let Some(rest) = self.room.get_mut(self.len..)
            && let Some(place) = rest.first_chunk_mut()
        {
            let len = write(place);
            self.len += len;
            return len;
        }
        let mut text = [0; NUMBER_BYTES];
        let len = write(&mut text);
        self.put(text.get(..len).unwrap_or_default());
        len
    }
}

/// Writes the values of a row.
struct Values<'m, 'r> {
    fields: Fields<'r>,
    /// No text of the row needs an escape, and all are ASCII.
    are_plain: bool,
    times: &'m mut TimeTexts,
    scratch: &'m mut Vec<u8>,
}

impl Values<'_, '_> {
    /// Writes a value and what stands before it; `None` if it is damaged.
    // Straight from bytes to text: a value that is decoded first is told apart by its type once more.
    #[inline(always)]
    fn put<'l>(
        &mut self,
        mut line: Line<'l>,
        column: &Column,
        property: &Property,
    ) -> Option<Line<'l>> {
        let Property { edm, place, .. } = *property;
        match edm {
            EdmType::String => {
                let bytes = self.fields.variable(place)?;
                let text = match self.are_plain {
                    true => bytes,
                    false => inside_of_string(utf8(bytes).ok()?, self.scratch),
                };
                line.put_quoted(&column.before, text);
                return Some(line);
            }
            EdmType::DateTime => {
                let ticks = u64::from_le_bytes(self.fields.fixed(place)?);
                line.put_quoted(&column.before, self.times.of(DateTime::from_ticks(ticks)?));
                return Some(line);
            }
            _ => line.put_piece(&column.before),
        }
        match edm {
            EdmType::String | EdmType::DateTime => {}
            EdmType::Boolean => match self.fields.fixed(place)? {
                [0] => line.put(b"false"),
                [1] => line.put(b"true"),
                _ => return None,
            },
            EdmType::Int32 => {
                let number = i32::from_le_bytes(self.fields.fixed(place)?);
                line.put_number(|text| json::put_number(text, number.into()));
            }
            EdmType::Double => {
                let number = f64::from_le_bytes(self.fields.fixed(place)?);
                if line.put_number(|text| double::put_decimal(text, number)) > 0 {
                    return Some(line);
                }
                if !number.is_finite() {
                    // What was put for a number gives way.
                    line.len -= column.before.text.len();
                    line.put(&column.before_infinite);
                }
                line.put(self.text_of(ValueRef::Double(number)));
            }
            EdmType::Int64 => {
                let number = i64::from_le_bytes(self.fields.fixed(place)?);
                line.put_number(|text| json::put_number(text, number));
                line.put(b"\"");
            }
            EdmType::Guid => {
                let guid = Guid::from_bytes(self.fields.fixed(place)?);
                line.put(self.text_of(ValueRef::Guid(guid)));
            }
            EdmType::Binary => {
                let bytes = self.fields.variable(place)?;
                line.put(self.text_of(ValueRef::Binary(bytes)));
            }
        }
        Some(line)
    }

    /// The text of a value, and a quote behind it if it has quotes.
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

/// Whether JSON has values of this type as strings; of a Double, one that is finite.
fn is_quoted(edm: EdmType) -> bool {
    !matches!(edm, EdmType::Boolean | EdmType::Int32 | EdmType::Double)
}

/// What stands between the quotes of a string.
#[inline(never)]
fn inside_of_string<'t>(text: &str, scratch: &'t mut Vec<u8>) -> &'t [u8] {
    scratch.clear();
    json::put_string(scratch, text);
    match &**scratch {
        [_, inside @ .., _] => inside,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::model::{Binary, Entity};
    use crate::table::Table;

    /// Entities of all types, with names and texts that need escapes and others, and infinite numbers.
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
        assert_eq!(query().page_rows(1_000, |row| set.put(row).map(drop)).unwrap(), None);
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
    fn room_of_another_page_is_used_and_not_seen() {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("people").unwrap();
        for i in 0..1_000 {
            let entity = Entity::new("p".repeat(1 + i / 9), format!("{i:04}"));
            table.insert(entity.with("Text", "x".repeat(i % 90))).unwrap();
        }
        let (base, account, name) = ("http://a/acme/", "acme", "people");
        let scope = Scope { base, account, table: name, select: None, level: Level::Minimal };
        let mut body = vec![b'?'; 1 << 20];
        body.clear();
        let capacity = body.capacity();
        let mut set = RowSet::begin(scope, 1_000, &mut body);
        assert_eq!(
            table.query("").unwrap().page_rows(1_000, |row| set.put(row).map(drop)).unwrap(),
            None
        );
        set.end();
        assert_eq!(body.capacity(), capacity);
        let mut expected = Vec::new();
        scope.put_set(&mut expected, table.query("").unwrap().page(1_000).unwrap().entities());
        assert_eq!(String::from_utf8(body).unwrap(), String::from_utf8(expected).unwrap());
    }

    #[test]
    fn more_shapes_than_are_remembered() {
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
            let size = set.put(row)?.size;
            assert!(size.is_none_or(|size| size == row.size().unwrap()));
            known += usize::from(size.is_some());
            rows += 1;
            Ok(())
        });
        // Not of those with Binary or anything that JSON escapes.
        assert_eq!((visited.unwrap(), rows, known), (None, 44, 2));
    }
}
