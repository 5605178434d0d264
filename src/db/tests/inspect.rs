//! Tests that single files, undamaged and damaged, can be inspected without opening their database.

use super::*;
use crate::db::{InspectOptions, InspectedPart, InspectedValue, inspect};
use crate::format::names::FileName;
use crate::fs::{FaultFs, Fs};

/// Returns a file system with a database that has SSTs, an edit of every common kind, and a log.
/// Also returns the names of the database's files.
fn written() -> (MemFs, Vec<String>) {
    let fs = MemFs::new();
    let db = options(&fs).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..300 {
        table.insert(row(i, 0).with("Note", format!("note {i}"))).unwrap();
    }
    db.flush().unwrap();
    table.delete("p1", "000001").unwrap();
    table.upsert(Entity::new("p1", "x").with("D", 0.5)).unwrap();
    table.delete_partition("p3").unwrap();
    db.close().unwrap();
    let names = fs.list("db".as_ref()).unwrap();
    (fs, names.into_iter().filter(|name| name != "LOCK").collect())
}

fn look(fs: &MemFs, name: &str, block: Option<u64>, row: Option<u64>) -> (u64, Vec<InspectedPart>) {
    let mut parts = Vec::new();
    let damaged = inspect(fs, format!("db/{name}"), InspectOptions { block, row }, |part| {
        parts.push(part);
        Ok(())
    });
    (damaged.unwrap(), parts)
}

fn find<'p>(parts: &'p [InspectedPart], what: &str) -> Vec<&'p InspectedPart> {
    parts.iter().filter(|part| part.what == what).collect()
}

fn text(part: &InspectedPart, name: &str) -> String {
    let value = part.fields.iter().find(|(field, _)| *field == name);
    value.unwrap_or_else(|| panic!("no {name} in {part}")).1.to_string()
}

fn name_of(names: &[String], end: &str) -> String {
    names.iter().rfind(|name| name.contains(end)).unwrap().clone()
}

#[test]
fn every_kind_of_file_shows_its_parts_and_no_damage() {
    let (fs, names) = written();
    for name in &names {
        let (damaged, parts) = look(&fs, name, None, None);
        assert_eq!(damaged, 0, "{name}");
        assert!(!parts.is_empty(), "{name}");
        assert!(parts.iter().all(|part| part.what != "unsupported"), "{name}");
    }
    let (_, current) = look(&fs, "CURRENT", None, None);
    let manifest = text(&current[0], "manifest");
    assert!(names.contains(&manifest));
    let (_, edits) = look(&fs, &manifest, None, None);
    let says: Vec<_> = find(&edits, "edit").iter().map(|part| text(part, "says")).collect();
    for start in ["identity", "add log", "add file", "add range", "add reference", "clean close"] {
        assert!(says.iter().any(|line| line.starts_with(start)), "{start}: {says:?}");
    }
    let (_, log) = look(&fs, &name_of(&names, ".wal"), None, None);
    let kinds: Vec<_> = find(&log, "record").iter().map(|part| text(part, "kind")).collect();
    for kind in ["open", "group", "catalog", "close"] {
        assert!(kinds.iter().any(|found| found == kind), "{kind}: {kinds:?}");
    }
    assert_eq!(find(&log, "end").len(), 1);
}

#[test]
fn a_row_is_shown_in_hex_with_its_meaning() {
    let (fs, names) = written();
    let sst = name_of(&names, ".sst");
    let (_, outline) = look(&fs, &sst, None, None);
    let blocks = find(&outline, "block");
    let rows: u64 = blocks.iter().map(|part| text(part, "rows").parse::<u64>().unwrap()).sum();
    assert_eq!(text(find(&outline, "facts")[0], "entries"), rows.to_string());
    assert!(blocks.len() > 3 && find(&outline, "section").len() >= 7);
    let (_, block) = look(&fs, &sst, Some(2), None);
    let listed = find(&block, "row");
    assert_eq!(listed.len().to_string(), text(find(&block, "block")[0], "rows"));
    let (_, one) = look(&fs, &sst, Some(2), Some(1));
    assert_eq!(find(&one, "row").len(), 1);
    assert_eq!(text(find(&one, "row")[0], "entry"), text(listed[1], "entry"));
    let means: Vec<_> = find(&one, "bytes").iter().map(|part| text(part, "means")).collect();
    assert!(means.iter().any(|means| means.starts_with("Note (Edm.String) = 'note ")), "{means:?}");
    // The shown offsets are correct: the file has the shown bytes there.
    let file = fs.open_read(format!("db/{sst}").as_ref()).unwrap();
    for part in find(&one, "bytes") {
        let hex = text(part, "hex");
        let mut bytes = vec![0; hex.len() / 2];
        file.read_at(part.at, &mut bytes).unwrap();
        let found: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, hex, "{part}");
    }
    let (_, none) = look(&fs, &sst, Some(9_999), None);
    assert_eq!(find(&none, "missing").len(), 1);
    let (_, none) = look(&fs, &name_of(&names, ".wal"), Some(9_999), None);
    assert_eq!(text(find(&none, "missing")[0], "number"), "9999");
    let (_, record) = look(&fs, &name_of(&names, ".wal"), Some(1), Some(0));
    assert_eq!(find(&record, "record").len(), 1);
}

/// If any byte is wrong, the file is shown as far as possible, without a panic. Every flipped byte
/// of an SST or of CURRENT is detected.
#[test]
fn damage_is_shown_where_it_is() {
    let (fs, names) = written();
    for name in &names {
        let path = format!("db/{name}");
        let len = fs.open_read(path.as_ref()).unwrap().len().unwrap();
        let blocks = |parts: &[InspectedPart]| find(parts, "block").len();
        let whole = blocks(&look(&fs, name, None, None).1);
        for at in (0..len).step_by(if len > 2_000 { 37 } else { 1 }) {
            let copy = fs.crash_image(0);
            let file = copy.open_write(path.as_ref()).unwrap();
            let mut byte = [0];
            copy.open_read(path.as_ref()).unwrap().read_at(at, &mut byte).unwrap();
            file.write_at(at, &[byte[0] ^ 0x10]).unwrap();
            let (damaged, parts) = look(&copy, name, None, None);
            look(&copy, name, Some(0), Some(0));
            if name.ends_with(".sst") || name == "CURRENT" {
                assert!(damaged > 0, "{name}, byte {at}");
                // At most one block is not shown, because without handles blocks are found
                // sequentially.
                assert!(blocks(&parts) + 1 >= whole, "{name}, byte {at}");
            }
        }
        for cut in [0, 1, 31, 33, len / 2, len - 1] {
            let copy = fs.crash_image(0);
            copy.open_write(path.as_ref()).unwrap().set_len(cut).unwrap();
            let (damaged, parts) = look(&copy, name, None, None);
            assert!(
                damaged > 0 || name.ends_with(".wal") || name.contains("MANIFEST"),
                "{name} cut at {cut}"
            );
            assert!(!parts.is_empty());
        }
    }
}

#[test]
fn the_lock_file_is_refused_and_renamed_files_are_recognized_by_content() {
    let (fs, names) = written();
    let options = InspectOptions::default();
    let error = inspect(&fs, "db/LOCK", options, |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(inspect(&fs, "db/none", options, |_| Ok(())).unwrap_err().kind(), ErrorKind::Io);
    for name in &names {
        let (other, was) = (format!("db/copy-of-{name}.bak"), look(&fs, name, None, None));
        fs.link(format!("db/{name}").as_ref(), other.as_ref()).unwrap();
        assert_eq!(look(&fs, &format!("copy-of-{name}.bak"), None, None), was);
        assert!(FileName::parse(name).is_some());
    }
    // `inspect` returns errors of the file system, and errors of the callback.
    let failing = FaultFs::new(Arc::new(fs.clone()));
    let stop = |_: InspectedPart| Err(crate::error::Error::new(ErrorKind::Busy, "enough"));
    assert_eq!(inspect(&failing, "db/CURRENT", options, stop).unwrap_err().kind(), ErrorKind::Busy);
    assert_ne!(InspectedValue::Number(1), InspectedValue::Text("1".into()));
}

#[test]
fn a_generation_of_a_backup_shows_what_it_consists_of() {
    let (fs, _) = written();
    let db = options(&fs).open("db").unwrap();
    let made = db.backup("backups").unwrap();
    let bytes = fs.read("backups/generations/000001.generation").unwrap();
    crate::fs::Fs::create_dir_all(&fs, "db/kept/generations".as_ref()).unwrap();
    fs.write("db/kept/generations/000001.generation", &bytes).unwrap();
    let (damaged, parts) = look(&fs, "kept/generations/000001.generation", None, None);
    assert_eq!((damaged, text(&parts[0], "backup")), (0, "1".to_owned()));
    assert_eq!(find(&parts, "stored").len() as u64, made.files);
    let says: Vec<_> = find(&parts, "edit").iter().map(|part| text(part, "says")).collect();
    assert!(says.iter().any(|line| line.starts_with("add file")), "{says:?}");
    for at in [0, 9, 13, 40, bytes.len() - 1] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        fs.write("db/bad.generation", &bytes).unwrap();
        let (damaged, parts) = look(&fs, "bad.generation", None, None);
        assert!(damaged > 0 || find(&parts, "unsupported").len() == 1, "{at}: {parts:?}");
        fs.erase("db/bad.generation").unwrap();
    }
}
