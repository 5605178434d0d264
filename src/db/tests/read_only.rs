//! Tests of opening a database read-only, on memory file systems.

use std::fmt;
use std::io;
use std::path::Path;

use super::*;
use crate::fs::{FileLock, FileRead, FileWrite, Fs, pass_on};
use crate::sync::Mutex;

/// Passes all operations to `under`. Runs `hook` once, before a table file is opened. Cannot tell
/// whether a file is locked unless `has_locks` is true.
struct Hooked {
    under: MemFs,
    has_locks: bool,
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Hooked {
    fn new(under: &MemFs, has_locks: bool, hook: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self { under: under.clone(), has_locks, hook: Mutex::new(Some(Box::new(hook))) })
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

impl Fs for Hooked {
    pass_on! {
        under:
        create_dir_all(dir: &Path) -> io::Result<()>;
        list(dir: &Path) -> io::Result<Vec<String>>;
        exists(path: &Path) -> io::Result<bool>;
        create(path: &Path) -> io::Result<Box<dyn FileWrite>>;
        open_write(path: &Path) -> io::Result<Box<dyn FileWrite>>;
        rename(from: &Path, to: &Path) -> io::Result<()>;
        remove(path: &Path) -> io::Result<()>;
        remove_dir(dir: &Path) -> io::Result<()>;
        link(from: &Path, to: &Path) -> io::Result<()>;
        sync_dir(dir: &Path) -> io::Result<()>;
        lock(path: &Path) -> io::Result<Box<dyn FileLock>>;
        kind(path: &Path) -> String;
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        if path.extension().is_some_and(|extension| extension == "sst")
            && let Some(hook) = self.hook.lock().take()
        {
            hook();
        }
        self.under.open_read(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        match self.has_locks {
            true => self.under.is_locked(path),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Returns the number of rows in the table `things`, which must be rows 0, 1, 2 …
fn count(db: &Db) -> u32 {
    let things = db.table("things").unwrap();
    let is_there = |i: u32| things.get(&format!("p{}", i % 7), &format!("{i:06}")).unwrap();
    let count = things.scan(KeyRange::all()).count().unwrap() as u32;
    assert!((0..count).all(|i| is_there(i).is_some()));
    count
}

/// Adds `rows` rows with the durability `Os`, so that the last of these rows are in the log, after
/// the end of its durable part.
fn add(db: &Db, rows: u32) {
    let things = db.table_or_create("things").unwrap().with_durability(Durability::Os);
    let first = count(db);
    (first..first + rows).for_each(|i| assert!(things.insert(row(i, 0)).is_ok()));
}

/// Returns a database whose process was killed. It has table files, an orphan (a table file that
/// the manifest does not name), and 30 rows in the log.
fn killed() -> MemFs {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("things").unwrap();
    add(&db, 300);
    db.flush().unwrap();
    add(&db, 30);
    fs.write("db/000777.sst", b"an orphan").unwrap();
    fs.kill_image()
}

fn files(fs: &MemFs) -> Vec<(String, Vec<u8>)> {
    fs.paths().into_iter().map(|path| (path.clone(), fs.read(path).unwrap())).collect()
}

#[test]
fn trap_62_a_reader_of_a_killed_database_shows_what_an_opening_would_and_changes_nothing() {
    let fs = killed();
    let opened = open(&fs.kill_image());
    assert_eq!((count(&opened), opened.opened().orphans), (330, 1));
    for is_there in [true, false] {
        if !is_there {
            fs.erase("db/LOCK").unwrap();
        }
        fs.set_read_only(true);
        let before = (files(&fs), fs.ops());
        let reader = options(&fs).open_read_only("db").unwrap();
        assert_eq!(count(&reader), 330);
        assert_eq!(reader.snapshot().seq(), opened.snapshot().seq());
        assert_eq!(reader.verify().unwrap().problems, Vec::<String>::new());
        reader.close().unwrap();
        assert!(before == (files(&fs), fs.ops()));
        fs.set_read_only(false);
    }
}

#[test]
fn trap_62_a_torn_tail_is_reported_by_each_reader_and_stays() {
    let fs = killed();
    let log = fs.paths().into_iter().filter(|path| path.ends_with(".wal")).max().unwrap();
    let bytes = fs.read(&log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    fs.flip(&log, end as u64, 1).unwrap();
    let before = files(&fs);
    for _ in 0..2 {
        let reader = options(&fs).open_read_only("db").unwrap();
        assert!(reader.opened().torn.is_some_and(|torn| torn.contains("torn tail")));
        assert_eq!(count(&reader), 329);
    }
    assert!(before == files(&fs));
}

#[test]
fn trap_62_beside_a_writer_a_reader_shows_what_is_durable() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("things").unwrap();
    add(&db, 20);
    db.sync().unwrap();
    add(&db, 20);
    let before = files(&fs);
    assert_eq!(count(&options(&fs).open_read_only("db").unwrap()), 20);
    assert!(before == files(&fs));
    db.sync().unwrap();
    assert_eq!(count(&options(&fs).open_read_only("db").unwrap()), 40);
}

/// While the reader opens the database, a writer opens it, too, merges its files, and closes it or
/// keeps it open. The reader must show the rows that the writer synced.
#[test]
fn trap_62_a_reader_starts_again_if_a_writer_appears() {
    for closes in [false, true] {
        let fs = killed();
        let (writing, held) = (fs.clone(), Arc::new(Mutex::new(None)));
        let slot = Arc::clone(&held);
        let hooked = Hooked::new(&fs, true, move || {
            let db = open(&writing);
            add(&db, 10);
            db.compact().unwrap();
            add(&db, 10);
            db.sync().unwrap();
            match closes {
                true => db.close().unwrap(),
                false => *slot.lock() = Some(db),
            }
        });
        let reader = options(&fs).fs(hooked).open_read_only("db").unwrap();
        assert_eq!((count(&reader), held.lock().is_none()), (350, closes));
        assert_eq!(reader.verify().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_reader_says_that_it_cannot_tell_whether_there_is_a_writer() {
    let fs = killed();
    let reader = options(&fs).fs(Hooked::new(&fs, false, || ())).open_read_only("db").unwrap();
    let warnings = reader.opened().warnings;
    assert!(warnings[0].contains("cannot tell whether a process has db open"), "{warnings:?}");
    assert!((300..330).contains(&count(&reader)));
}

/// A table file is missing. Reads that need this file report corruption, and other reads succeed.
#[test]
fn a_reader_opens_a_database_that_lacks_a_table_file() {
    let fs = killed();
    fs.erase("db/000777.sst").unwrap();
    let tables: Vec<_> = fs.paths().into_iter().filter(|path| path.ends_with(".sst")).collect();
    // Removes the last table file. The first one contains the catalog, without which no table
    // opens.
    fs.erase(tables.last().unwrap()).unwrap();
    let reader = options(&fs).open_read_only("db").unwrap();
    let things = reader.table("things").unwrap();
    let error = things.scan(KeyRange::all()).count().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(things.get(&format!("p{}", 329 % 7), "000329").unwrap().is_some());
    assert_ne!(reader.verify().unwrap().problems, Vec::<String>::new());
}

/// The writer removes the files of the reader's version and replaces the manifest.
#[test]
fn trap_62_a_reader_verifies_its_version_while_the_writer_replaces_files() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("things").unwrap();
    add(&db, 300);
    db.flush().unwrap();
    db.close().unwrap();
    // The first edit after a torn tail begins a new manifest.
    let manifest = fs.paths().into_iter().find(|path| path.contains("MANIFEST")).unwrap();
    fs.write(&manifest, &[fs.read(&manifest).unwrap(), vec![1; 64]].concat()).unwrap();
    let db = open(&fs);
    let reader = options(&fs).open_read_only("db").unwrap();
    let before = fs.paths();
    add(&db, 300);
    db.compact().unwrap();
    assert!(before.iter().any(|path| path.ends_with(".sst") && !fs.paths().contains(path)));
    assert!(before.iter().any(|path| path.contains("MANIFEST") && !fs.paths().contains(path)));
    assert_eq!(reader.verify().unwrap().problems, Vec::<String>::new());
    assert_eq!(count(&reader), 300);
}

/// Only a CURRENT that names another manifest shows that the writer has begun a new one.
#[test]
fn a_reader_finds_damage_of_current() {
    let fs = killed();
    let reader = options(&fs).open_read_only("db").unwrap();
    fs.flip("db/CURRENT", 20, 1).unwrap();
    let problems = reader.verify().unwrap().problems;
    assert!(matches!(&problems[..], [problem] if problem.contains("CURRENT")), "{problems:?}");
}

#[test]
fn a_reader_beside_a_writer_opens_a_database_that_lacks_a_table_file() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("things").unwrap();
    add(&db, 300);
    db.flush().unwrap();
    db.create_table("others").unwrap().insert(row(7, 0)).unwrap();
    db.sync().unwrap();
    let tables: Vec<_> = fs.paths().into_iter().filter(|path| path.ends_with(".sst")).collect();
    fs.erase(tables.last().unwrap()).unwrap();
    let reader = options(&fs).open_read_only("db").unwrap();
    assert!(reader.table("others").unwrap().get("p0", "000007").unwrap().is_some());
    let error = reader.table("things").unwrap().scan(KeyRange::all()).count().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
}

#[test]
fn a_reader_of_a_killed_database_shows_the_wear_that_an_opening_would() {
    let fs = killed();
    let reader = options(&fs).open_read_only("db").unwrap();
    assert_eq!(reader.wear().user_bytes, open(&fs.kill_image()).wear().user_bytes);
    assert!(reader.wear().user_bytes > 0 && reader.stats().get("logs").unwrap() > 0);
}

/// With more files than may be open, reads open them as needed.
#[test]
fn a_reader_opens_no_more_files_than_it_may() {
    let fs = killed();
    let options = options(&fs).io_mode(crate::options::IoMode::Pread).max_open_files(1);
    let reader = options.open_read_only("db").unwrap();
    assert_eq!(count(&reader), 330);
}
