//! Pages of entities as JSON, written straight from rows: what members of a shape begin with is put together once.
//!
//! Invariants
//! * the bytes are those that `payload` and `odata` write for the same entities;
//! * what is remembered about shapes is bounded.
//!
//! Not here: the members' order and the levels of metadata (`payload`, `odata`), one entity by itself (`payload`).

use std::sync::Arc;

use super::address::entity_path;
use super::double;
use super::headers::Level;
use super::json;
use super::odata::{self, Metadata};
use super::payload::{Scope, begin_list, metadata};
use crate::error::Result;
use crate::model::{EdmType, SYSTEM_PROPERTIES, Seq, Shape, TimeTexts, ValueRef};
use crate::table::RowView;

/// The body of a page that is being written.
pub(crate) struct RowSet<'s, 'o> {
    scope: Scope<'s>,
    metadata: Metadata,
    out: &'o mut Vec<u8>,
    is_first: bool,
    /// `"odata.type":"account.table"` as JSON, where it is written.
    entity_type: Vec<u8>,
    forms: Forms,
    /// Points in time of properties, and Timestamps: neighbours were often written together.
    times: TimeTexts,
    timestamps: TimeTexts,
    /// The ETag of `tagged`, as JSON.
    etag: Vec<u8>,
    tagged: Option<Seq>,
}

/// What is known of the shapes that were met last.
#[derive(Default)]
struct Forms {
    all: Vec<Form>,
    next: usize,
}

/// The properties of a shape that are written, in order.
struct Form {
    shape: Arc<Shape>,
    columns: Vec<Column>,
}

struct Column {
    /// Which property of the shape; none is written as null.
    index: Option<usize>,
    /// What stands before the value: a comma, the annotation of the type if it has one, the name, and a quote if the value has
    /// them. Of a null all of it.
    before: Box<[u8]>,
}

/// Shapes that are remembered.
const FORMS_MAX: usize = 16;
/// Room made for a page once its first entity shows how large they are: so many of them.
const ENTITIES_ROOM: usize = 64;
/// But no more than this at a time, however large they are.
const BYTES_ROOM: usize = 256 << 10;

impl<'s, 'o> RowSet<'s, 'o> {
    /// Begins a page.
    pub(crate) fn begin(scope: Scope<'s>, out: &'o mut Vec<u8>) -> Self {
        let context = (scope.level != Level::None).then(|| scope.context(""));
        begin_list(out, context.as_deref());
        let mut entity_type = Vec::new();
        if scope.level == Level::Full {
            entity_type.extend_from_slice(b",\"odata.type\":");
            json::put_string(&mut entity_type, &format!("{}.{}", scope.account, scope.table));
        }
        Self {
            scope,
            metadata: metadata(scope.level),
            out,
            is_first: true,
            entity_type,
            forms: Forms::default(),
            times: TimeTexts::default(),
            timestamps: TimeTexts::default(),
            etag: Vec::new(),
            tagged: None,
        }
    }

    /// Writes the entity of a row.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn put(&mut self, row: &RowView<'_>) -> Result<()> {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
        let start = self.out.len();
        self.put_head(row)?;
        self.put_properties(row)?;
        // All members begin with a comma; that of the first becomes the brace.
        match self.out.get_mut(start) {
            Some(comma) => *comma = b'{',
            None => self.out.push(b'{'),
        }
        self.out.push(b'}');
        let len = self.out.len() - start;
        if self.out.capacity() - self.out.len() < len {
            self.out.reserve(len.max((ENTITIES_ROOM * len).min(BYTES_ROOM)));
        }
        Ok(())
    }

    /// Bytes that are written.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Bytes that there is room for, written or not.
    pub(crate) fn room(&self) -> usize {
        self.out.capacity()
    }

    /// Ends the page.
    pub(crate) fn end(self) {
        self.out.extend_from_slice(b"]}");
    }

    /// Metadata, keys and Timestamp.
    fn put_head(&mut self, row: &RowView<'_>) -> Result<()> {
        let (partition_key, row_key) = row.keys()?;
        let Scope { base, table, select, level, .. } = self.scope;
        let seq = row.etag().seq();
        if level == Level::Full {
            let link = entity_path(table, &partition_key, &row_key);
            self.out.extend_from_slice(&self.entity_type);
            self.out.extend_from_slice(b",\"odata.id\":");
            json::put_string(self.out, &format!("{base}{link}"));
            self.put_etag(seq);
            self.out.extend_from_slice(b",\"odata.editLink\":");
            json::put_string(self.out, &link);
        } else if self.metadata.etag {
            self.put_etag(seq);
        }
        let selected = |name: &str| select.is_none_or(|names| names.iter().any(|n| n == name));
        if selected("PartitionKey") {
            self.out.extend_from_slice(b",\"PartitionKey\":");
            json::put_string(self.out, &partition_key);
        }
        if selected("RowKey") {
            self.out.extend_from_slice(b",\"RowKey\":");
            json::put_string(self.out, &row_key);
        }
        if selected("Timestamp") {
            if self.metadata.timestamp_type {
                self.out.extend_from_slice(b",\"Timestamp@odata.type\":\"Edm.DateTime\"");
            }
            self.out.extend_from_slice(b",\"Timestamp\":\"");
            self.out.extend_from_slice(self.timestamps.of(seq.into()));
            self.out.push(b'"');
        }
        Ok(())
    }

    /// The ETag, which all entities of one commit share.
    fn put_etag(&mut self, seq: Seq) {
        if self.tagged != Some(seq) {
            self.etag.clear();
            self.etag.extend_from_slice(b",\"odata.etag\":");
            odata::put_etag(&mut self.etag, seq.into());
            self.tagged = Some(seq);
        }
        self.out.extend_from_slice(&self.etag);
    }

    fn put_properties(&mut self, row: &RowView<'_>) -> Result<()> {
        let Scope { select, .. } = self.scope;
        let form = self.forms.of(row.shape(), select, self.metadata);
        if select.is_none() {
            for (column, property) in form.columns.iter().zip(row.properties()) {
                let (name, value) = property?;
                put_member(self.out, column, name, value, self.metadata, &mut self.times);
            }
            return Ok(());
        }
        for column in &form.columns {
            match column.index {
                Some(index) => {
                    let (name, value) = (row.shape().property(index).0, row.value_at(index)?);
                    put_member(self.out, column, name, value, self.metadata, &mut self.times);
                }
                None => self.out.extend_from_slice(&column.before),
            }
        }
        Ok(())
    }
}

impl Forms {
    fn of(&mut self, shape: &Arc<Shape>, select: Option<&[String]>, metadata: Metadata) -> &Form {
        let known = self.all.iter().position(|form| Arc::ptr_eq(&form.shape, shape));
        let place = known.unwrap_or_else(|| {
            let place = self.next % FORMS_MAX;
            self.next = place + 1;
            let form = Form::new(shape, select, metadata);
            match self.all.get_mut(place) {
                Some(slot) => *slot = form,
                None => self.all.push(form),
            }
            place
        });
        &self.all[place]
    }
}

impl Form {
    fn new(shape: &Arc<Shape>, select: Option<&[String]>, metadata: Metadata) -> Form {
        let of = |index: usize| {
            let (name, edm) = shape.property(index);
            Column { index: Some(index), before: before(name, edm, metadata) }
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
    fn null(name: &str) -> Column {
        let mut before = vec![b','];
        json::put_string(&mut before, name);
        before.extend_from_slice(b":null");
        Column { index: None, before: before.into() }
    }
}

/// What stands before a value of this type: of a Double before one that is finite.
fn before(name: &str, edm: EdmType, metadata: Metadata) -> Box<[u8]> {
    let mut before = Vec::new();
    if metadata.types && odata::is_annotated(edm) {
        put_type(&mut before, name, edm);
    }
    before.push(b',');
    json::put_string(&mut before, name);
    before.push(b':');
    if !matches!(edm, EdmType::Boolean | EdmType::Int32 | EdmType::Double | EdmType::String) {
        before.push(b'"');
    }
    before.into()
}

fn put_type(out: &mut Vec<u8>, name: &str, edm: EdmType) {
    out.push(b',');
    odata::put_type(out, name, edm);
}

/// Appends a property that is there.
#[inline]
fn put_member(
    out: &mut Vec<u8>,
    column: &Column,
    name: &str,
    value: ValueRef<'_>,
    metadata: Metadata,
    times: &mut TimeTexts,
) {
    match value {
        ValueRef::Double(number) if !number.is_finite() => {
            return put_infinite(out, name, number, metadata);
        }
        _ => out.extend_from_slice(&column.before),
    }
    match value {
        ValueRef::String(text) => json::put_string(out, text),
        ValueRef::Boolean(_) | ValueRef::Int32(_) | ValueRef::Double(_) => {
            odata::put_text(out, value);
        }
        ValueRef::DateTime(time) => {
            out.extend_from_slice(times.of(time));
            out.push(b'"');
        }
        ValueRef::Int64(_) | ValueRef::Guid(_) | ValueRef::Binary(_) => {
            odata::put_text(out, value);
            out.push(b'"');
        }
    }
}

/// Appends a Double that JSON has no number for, and so is annotated.
#[cold]
fn put_infinite(out: &mut Vec<u8>, name: &str, number: f64, metadata: Metadata) {
    if metadata.types {
        put_type(out, name, EdmType::Double);
    }
    out.push(b',');
    json::put_string(out, name);
    out.extend_from_slice(b":\"");
    double::put(out, number);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::model::{Binary, DateTime, Entity, Guid};
    use crate::table::Table;

    /// Entities of all types, with names and texts that need escapes and others, and infinite numbers.
    fn table(db: &Db) -> Table {
        let table = db.create_table("people").unwrap();
        let put = |entity: Entity| table.insert(entity).unwrap();
        put(Entity::new("p", "a"));
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
        let mut set = RowSet::begin(scope, &mut found);
        assert_eq!(query().page_rows(1_000, |row| set.put(row)).unwrap(), None);
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
            }
        }
    }

    #[test]
    fn sizes_of_rows_are_those_of_their_entities() {
        let db = Db::open_in_memory().unwrap();
        let table = table(&db);
        let mut rows = 0;
        let visited = table.query("").unwrap().page_rows(1_000, |row| {
            assert_eq!(row.size()?, row.to_entity()?.size());
            rows += 1;
            Ok(())
        });
        assert_eq!((visited.unwrap(), rows), (None, 42));
    }
}
