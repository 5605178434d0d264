//! Fuzz target: edits the files of a small stored database, then opens and reads it in both I/O
//! modes.
//!
//! The first input byte selects the database, and whether to correct the checksums of edited files.
//! The other bytes are a list of edits. A reader must get the rows after one of the commits, or an
//! error that names an edited file. If only one file was edited, the rows must be those after the
//! last commit; but if the process was killed, the last record of the log may be a torn tail and
//! get lost. With corrected checksums any contents are allowed, but no panic, endless loop or
//! excessive use of memory. The databases are the same in every run, so a stored input keeps its
//! meaning until a format changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::forge::{forge, records};
use crate::clock::ManualClock;
use crate::db::{Db, InspectOptions, inspect};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::MemFs;
use crate::model::{Entity, Value};
use crate::options::{Background, Codec, IoMode, Options};
use crate::query::KeyRange;

const PATH: &str = "db";
/// The maximum number of edits; further edits in the input are ignored. More would only cost time.
const EDITS_MAX: usize = 16;
/// The kind of edit that erases a file.
const ERASE: usize = 4;

/// All entities: from table name, PartitionKey and RowKey to the values and the ETag as text.
type State = BTreeMap<(String, String, String), String>;

/// A stored database that the fuzz target edits, and the state after each of its commits.
struct Subject {
    fs: MemFs,
    files: Vec<String>,
    states: Vec<State>,
    /// The path of the newest log, and the byte range of its last record. `None` if the database
    /// was closed: then a durable offset (the position up to which the log is known to be synced)
    /// covers every record.
    last_record: Option<(String, Range<usize>)>,
}

/// Edits a stored database, opens it and reads all of it.
pub fn directory(data: &[u8]) {
    static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
    let subjects = SUBJECTS.get_or_init(|| {
        let all = [(true, Codec::None), (false, Codec::None), (true, Codec::Zstd)];
        all.into_iter().map(|(closed, codec)| Subject::new(closed, codec)).collect()
    });
    let Some((choice, edits)) = data.split_first() else { return };
    let subject = &subjects[usize::from(*choice) % subjects.len()];
    let edited = subject.fs.kill_image();
    let mut input = Input(edits);
    for _ in 0..EDITS_MAX {
        if subject.edit(&edited, &mut input).is_none() {
            break;
        }
    }
    let changed = subject.changed(&edited);
    subject.look_into(&edited, &changed);
    if usize::from(*choice) / subjects.len() % 2 == 1 {
        return subject.believe(&edited, &changed);
    }
    if let Some(state) = look_beside(&edited) {
        assert!(subject.states.contains(&state), "{changed:?}: a reader shows {state:?}");
    }
    for mode in [IoMode::Mmap, IoMode::Pread] {
        subject.check(&edited.kill_image(), mode, &changed);
    }
}

impl Subject {
    fn new(closed: bool, codec: Codec) -> Subject {
        let fs = MemFs::new();
        let mut states = vec![State::new()];
        let written = open(&fs, IoMode::Pread, codec).and_then(|db| {
            write(&db, |db| {
                states.push(read(db)?);
                Ok(())
            })?;
            if closed { db.close().map(|()| fs.clone()) } else { Ok(fs.kill_image()) }
        });
        let fs = written.unwrap_or_else(|error| panic!("a sound file system: {error:?}"));
        let files: Vec<_> = fs.paths().into_iter().filter(|path| !path.ends_with("LOCK")).collect();
        let log = files.iter().filter(|path| path.ends_with(".wal")).max().filter(|_| !closed);
        let last_record = log.and_then(|log| {
            let last = records(&fs.read(log).unwrap_or_default()).pop();
            Some((log.clone(), last?))
        });
        assert_eq!(last_record.is_none(), closed, "the dead have a log");
        Subject { fs, files, states, last_record }
    }

    /// Applies the next edit of the input. Returns `None` at the end of the input.
    fn edit(&self, edited: &MemFs, input: &mut Input<'_>) -> Option<()> {
        let head = usize::from(input.byte()?);
        let offset = usize::from(input.byte()?) | usize::from(input.byte()?) << 8;
        let path = &self.files[head / 9 % self.files.len()];
        let there = edited.read(path);
        let mut bytes = there.as_ref().cloned().unwrap_or_default();
        let at = offset % (bytes.len() + 1);
        let other = |file: u8| {
            self.fs.read(&self.files[usize::from(file) % self.files.len()]).unwrap_or_default()
        };
        let kind = head % 9;
        match kind {
            0 => {
                let mask = input.byte()?;
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= mask);
            }
            1 => {
                let value = input.byte()?;
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = value);
            }
            2 => bytes.truncate(at),
            3 => bytes.iter_mut().skip(at).for_each(|byte| *byte = 0),
            ERASE => {}
            5 => bytes.extend(input.bytes()?),
            6 => put(&mut bytes, at, &input.bytes()?),
            7 => {
                let (from, len) = (other(input.byte()?), usize::from(input.byte()?) + 1);
                let end = from.len().min(at + len);
                put(&mut bytes, at, from.get(at..end).unwrap_or_default());
            }
            _ => bytes = other(input.byte()?),
        }
        let done = match there {
            // The file was erased by an earlier edit.
            Err(_) => Ok(()),
            Ok(_) if kind == ERASE => edited.erase(path),
            Ok(_) => edited.write(path, &bytes),
        };
        done.unwrap_or_else(|error| panic!("editing {path}: {error}"));
        Some(())
    }

    /// Returns the names of the files that the edits changed.
    fn changed(&self, edited: &MemFs) -> BTreeSet<&str> {
        let differs = |path: &&String| edited.read(path).ok() != self.fs.read(path).ok();
        self.files.iter().filter(differs).map(|path| name(path)).collect()
    }

    /// Inspects each changed file. This must not panic, whatever the contents.
    fn look_into(&self, edited: &MemFs, changed: &BTreeSet<&str>) {
        let is_changed = |path: &&String| changed.contains(name(path));
        for path in self.files.iter().filter(is_changed) {
            for (block, row) in [(None, None), (Some(0), Some(0))] {
                // The result is ignored: an erased file, for example, causes an I/O error.
                drop(inspect(edited, path, InspectOptions { block, row }, |part| {
                    assert!(part.to_string().len() < 64 << 10, "a line a person can read");
                    Ok(())
                }));
            }
        }
    }

    /// Whether the last record of the newest log is unchanged, or protected by a durable offset.
    fn is_vouched_for(&self, edited: &MemFs) -> bool {
        self.last_record.as_ref().is_none_or(|(log, at)| {
            let (was, is) = (self.fs.read(log), edited.read(log).unwrap_or_default());
            was.is_ok_and(|was| was.get(at.clone()) == is.get(at.clone()))
        })
    }

    fn check(&self, fs: &MemFs, mode: IoMode, changed: &BTreeSet<&str>) {
        // All commits must be found, with two exceptions. If several files were edited, they may be
        // consistent with an older state. If no durable offset covers the last record, it may get
        // lost.
        let all = changed.is_empty() || changed.len() == 1 && self.is_vouched_for(fs);
        let named = |error: Error| assert!(names(&error, changed), "{changed:?}: {error:?}");
        let found = open(fs, mode, Codec::None).and_then(|db| Ok((read(&db)?, db)));
        let (state, db) = match found {
            Ok(found) => found,
            Err(error) => return named(error),
        };
        let last = self.states.len() - 1;
        let Some(prefix) = self.states.iter().rposition(|known| *known == state) else {
            panic!("{changed:?}: rows as after no commit: {state:?}");
        };
        assert!(!all || prefix == last, "{changed:?}: {prefix} of {last} commits");
        let problems = self.check_points(&db, &state).and_then(|()| Ok(db.verify()?.problems));
        let problems = match problems {
            Ok(problems) => problems,
            Err(error) => return named(error),
        };
        for problem in &problems {
            assert!(changed.iter().any(|file| problem.contains(file)), "{changed:?}: {problem}");
        }
        if problems.is_empty() && mode == IoMode::Mmap {
            go_on(fs, db, state);
        }
    }

    /// Corrects the checksums of the changed files. Then opens the database, and reads and compacts
    /// its contents.
    fn believe(&self, edited: &MemFs, changed: &BTreeSet<&str>) {
        for path in self.files.iter().filter(|path| changed.contains(name(path))) {
            let Ok(mut bytes) = edited.read(path) else { continue };
            forge(name(path), &mut bytes);
            edited.write(path, &bytes).unwrap_or_else(|error| panic!("writing {path}: {error}"));
        }
        drop(look_beside(edited));
        for mode in [IoMode::Mmap, IoMode::Pread] {
            let Ok(db) = open(&edited.kill_image(), mode, Codec::None) else { continue };
            let keys: BTreeSet<_> = self.states.iter().flat_map(BTreeMap::keys).collect();
            for name in db.tables().unwrap_or_default() {
                let Ok(table) = db.table(&name) else { continue };
                // A failed iterator returns the error forever, so a loop that ignored errors would
                // not end.
                let _rows =
                    table.scan(KeyRange::all()).into_iter().take_while(Result::is_ok).count();
                for (_, pk, rk) in &keys {
                    drop(table.get(pk, rk));
                }
            }
            drop(db.verify());
            drop(db.compact());
            drop(db.close());
        }
    }

    /// Checks that a get of every key that was ever written returns the same as the scan.
    fn check_points(&self, db: &Db, state: &State) -> Result<()> {
        let keys: BTreeSet<_> = self.states.iter().flat_map(BTreeMap::keys).collect();
        let there = db.tables()?;
        for key in keys.into_iter().filter(|(table, ..)| there.contains(table)) {
            let (table, pk, rk) = key;
            let found = db.table(table)?.get(pk, rk)?;
            assert_eq!(found.as_ref().map(text).as_ref(), state.get(key), "{table} {pk} {rk}");
        }
        Ok(())
    }
}

/// Opens the database read-only, as another process would. Checks the order of the change feed, and
/// returns all rows, or `None` after an error.
fn look_beside(fs: &MemFs) -> Option<State> {
    let options = Options::new().io_mode(IoMode::Pread).fs(Arc::new(fs.clone()));
    let db = options.open_read_only(PATH).ok()?;
    if let Ok(changes) = db.oldest_position().and_then(|oldest| db.changes(oldest)) {
        let positions: Vec<_> = changes.map_while(|commit| Some(commit.ok()?.position)).collect();
        assert!(
            positions.is_sorted_by(|a, b| a < b),
            "positions of the feed decrease: {positions:?}"
        );
    }
    read(&db).ok()
}

/// Checks that a database that was opened without error accepts writes, and still has them after it
/// is reopened.
fn go_on(fs: &MemFs, db: Db, mut state: State) {
    let gone_on = (|| {
        let table = db.table_or_create("Later")?;
        table.upsert(Entity::new("p", "r").with("A", 1))?;
        table.scan(KeyRange::all()).into_iter().try_for_each(|entity| {
            state.insert(("Later".into(), "p".into(), "r".into()), text(&entity?));
            Ok::<_, Error>(())
        })?;
        db.flush()?;
        db.close()?;
        let db = open(fs, IoMode::Pread, Codec::None)?;
        let (again, problems) = (read(&db)?, db.verify()?.problems);
        Ok::<_, Error>((again, problems))
    })();
    match gone_on {
        Ok((again, problems)) => assert_eq!((again, problems), (state, Vec::new())),
        Err(error) => panic!("a database that opened and read well: {error:?}"),
    }
}

/// Whether the error reports damage, a newer format, or a missing file, and names an edited file.
/// Two other names are allowed. If CURRENT was edited, the error may name the directory. If the
/// manifest lost its last edits, the error may name a removed file that the manifest still lists.
fn names(error: &Error, changed: &BTreeSet<&str>) -> bool {
    let text = error.chain();
    let current = changed.contains("CURRENT") && text.contains(PATH);
    let manifest = changed.iter().any(|file| file.starts_with("MANIFEST"));
    let kind = match error.kind() {
        ErrorKind::Corruption | ErrorKind::Unsupported => true,
        ErrorKind::NotFound => current,
        _ => false,
    };
    let named = changed.iter().any(|file| text.contains(file));
    kind && (named || current || manifest && text.contains("the manifest names"))
}

fn open(fs: &MemFs, mode: IoMode, codec: Codec) -> Result<Db> {
    // 2024-01-01, in ticks of 100 ns since 1601.
    let clock = Arc::new(ManualClock::new(133_485_408_000_000_000));
    let mut options = Options::new().background(Background::Manual).seed(7).io_mode(mode);
    // Little space is reserved, so that most edits change bytes that are in use.
    options.log_allocate_bytes = 1 << 10;
    let options = options.codec(codec);
    let options = options.memtable_bytes(16 << 10).block_bytes(512).run_file_bytes(4 << 10);
    let create = fs.paths().is_empty();
    options.create_if_missing(create).clock(clock).fs(Arc::new(fs.clone())).open(Path::new(PATH))
}

/// Makes the same commits in every test database. There are few commits, so that opening is fast.
/// Calls `committed` after each commit.
fn write(db: &Db, mut committed: impl FnMut(&Db) -> Result<()>) -> Result<()> {
    let alpha = db.create_table("Alpha")?;
    committed(db)?;
    for i in 0..12 {
        alpha.insert(entity(["a", "b"][i % 2], i))?;
        committed(db)?;
    }
    db.flush()?;
    for i in (0..12).step_by(5) {
        alpha.delete(["a", "b"][i % 2], &format!("r{i:02}"))?;
        committed(db)?;
    }
    db.compact()?;
    while db.step(std::time::Duration::ZERO) {}
    for i in 4..7 {
        alpha.upsert_merge(Entity::new("a", format!("r{i:02}")).with("More", i64::MAX))?;
        committed(db)?;
    }
    db.flush()?;
    let beta = db.create_table("Beta")?;
    committed(db)?;
    for i in 0..3 {
        beta.insert(entity("\u{ff5e}", i))?;
        committed(db)?;
    }
    alpha.delete("a", "r02")?;
    committed(db)
}

/// Returns an entity with a number, a text, and two more properties whose types differ between rows
/// with an even and an odd `i`.
fn entity(pk: &str, i: usize) -> Entity {
    let number = i as i32;
    let entity = Entity::new(pk, format!("r{i:02}")).with("Number", number);
    let entity = entity.with("Text", "é and more text ".repeat(i % 5));
    if i.is_multiple_of(2) {
        return entity.with("Flag", i.is_multiple_of(4)).with("Big", i64::from(number) << 40);
    }
    entity.with("Ratio", f64::from(number) / 8.0).with("Bytes", Value::Binary(vec![7; i]))
}

fn read(db: &Db) -> Result<State> {
    let mut state = State::new();
    for name in db.tables()? {
        for entity in db.table(&name)?.scan(KeyRange::all()) {
            let entity = entity?;
            let (pk, rk) = (entity.partition_key().to_string(), entity.row_key().to_string());
            let earlier = state.insert((name.clone(), pk, rk), text(&entity));
            assert_eq!(earlier, None, "a scan of {name} shows an entity twice");
        }
    }
    Ok(state)
}

fn text(entity: &Entity) -> String {
    format!("{entity:?} {:?}", entity.etag())
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Overwrites the bytes at `at` with `with`, and extends the file if necessary.
fn put(bytes: &mut Vec<u8>, at: usize, with: &[u8]) {
    let kept = bytes.len().min(at + with.len());
    bytes.splice(at..kept, with.iter().copied());
}

/// The bytes of an input that are not used yet. They encode the next edits.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads a length of at most 63, and then that number of bytes.
    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = usize::from(self.byte()? % 64).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(bytes.to_vec())
    }
}
