//! Compares new databases byte by byte with stored databases of every format version:
//! `tests/golden/v1` is the output of version 1.
//!
//! Record files are stored without trailing zeros, which are only reserved space. `REWRITE=1`
//! writes all golden files again; never do that after a version was released.
#![expect(clippy::disallowed_methods, reason = "golden files are files of the repository")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rowstone::fs::{Fs, MemFs};
use rowstone::{Durability, changes::Change, clock::ManualClock};

use rowstone::sim::engine::{Engine, PATH, START};
use rowstone::sim::parse::steps;
use rowstone::sim::runner::Runner;
use rowstone::sim::step::{Config, Step};

type Files = BTreeMap<String, Vec<u8>>;

/// Makes a database with every type, two tables and a dropped one, tombstones, a flushed file, a
/// sorted run, and a log with commits that are not flushed.
const PROGRAM: &[(&str, &[&str])] = &[
    ("create-table Parts", &[]),
    ("create-table Gone", &[]),
    ("create-table Notes", &[]),
    (
        "insert Parts",
        &[
            "bolts m4x20 Price=0.12 Stock=1200 Name='bolt' Coated=true",
            "bolts m4x25 Price=0.14 Seen=datetime'2024-01-31T00:00:00Z' Big=-5L",
            "'' '' Id=guid'00112233-4455-6677-8899-aabbccddeeff' Raw=X'0102ff'",
            "'😀' '～' Text='é' Empty=''",
        ],
    ),
    ("insert Gone", &["a b C=1"]),
    ("compact", &[]),
    ("delete Parts", &["bolts m4x25"]),
    ("merge Parts", &["bolts m4x20 Stock=900"]),
    ("flush", &[]),
    ("drop-table Gone", &[]),
    ("group Notes", &["insert p a N=1", "insert p b N=2", "upsert p c N=3"]),
];

/// Deletes key spans before and after a flush, so that the manifest and the log have range
/// tombstones, and lets rows expire.
const FENCES: &[(&str, &[&str])] = &[
    ("drop-range Parts pk=''", &[]),
    ("flush", &[]),
    ("drop-range Notes pk=p from=c", &[]),
    ("expire Parts 3", &[]),
];

/// Imports a range between commits, of which the last is not flushed. Logs are kept.
const HISTORY: &[(&str, &[&str])] = &[
    ("flush", &[]),
    ("move s1 Notes pk=p", &[]),
    ("insert Notes", &["q a N=4"]),
    ("flush", &[]),
    ("insert Notes", &["q b N=5"]),
];

/// Returns a row that is short, so that a full block has little padding after its last row.
fn small_row(i: u32) -> String {
    format!("insert p r{i:03} N={i} Text='{}'", "x".repeat(20))
}

/// Returns the options of the database `version`.
fn config(version: &str) -> Config {
    let mut config = Config { durability: Durability::Sync, seed: 1, ..Config::default() };
    if version == PADDED {
        (config.block_bytes, config.compress) = (4096, false);
    }
    config.compress = version == COMPRESSED;
    if version == KEPT {
        // Databases of even seeds keep their logs.
        config.seed = 2;
    }
    config
}

/// Creates the database `version`.
fn run(version: &str) -> Runner {
    let config = config(version);
    let mut runner = Runner::new(config.clone());
    runner.run(&Step::Open(config)).unwrap();
    if version == PADDED || version == COMPRESSED {
        let rows: Vec<String> = (0..200).map(small_row).collect();
        carry_out(&mut runner, "create-table Parts", &[]);
        for group in rows.chunks(100) {
            let rows: Vec<&str> = group.iter().map(String::as_str).collect();
            carry_out(&mut runner, "group Parts", &rows);
        }
        carry_out(&mut runner, "flush", &[]);
        if version == COMPRESSED {
            // Only compactions compress. The new keys are the first and the last of the flushed
            // file, so that the compaction has to rewrite that file.
            carry_out(&mut runner, "upsert Parts", &["p r000 N=0", "p r199 N=199"]);
            carry_out(&mut runner, "compact", &[]);
        }
        return runner;
    }
    let more = match version {
        NEWEST | FIRST_INDEX | WITHOUT_WEAR | WITHOUT_LENGTHS => FENCES,
        KEPT => HISTORY,
        _ => &[],
    };
    for (command, input) in PROGRAM.iter().chain(more) {
        carry_out(&mut runner, command, input);
    }
    // These rows exceed the log's allocated space, so that the log grows once.
    for i in 0..if version == KILLED { 5 } else { 0 } {
        let row = format!("p r{i} Text='{}'", "x".repeat(800));
        carry_out(&mut runner, "insert Notes", &[&row]);
    }
    runner
}

fn carry_out(runner: &mut Runner, command: &str, input: &[&str]) {
    for step in steps(command, input).unwrap().unwrap() {
        runner.run(&step).unwrap();
    }
}

const NEWEST: &str = "v1";
/// A database that was stored before version 1 had several kinds of hash indexes.
/// (`v1-without-zones` was stored before table files had zones, and `v1-without-sizes` before the
/// manifest had the bytes of each reference.)
const FIRST_INDEX: &str = "v1-first-index";
/// A database that was stored before manifests had the wear account (counts of written bytes).
const WITHOUT_WEAR: &str = "v1-without-wear";
/// A database that was stored before logs and manifests stated their lengths.
const WITHOUT_LENGTHS: &str = "v1-without-lengths";
/// A database with blocks of one page, which are padded. All other databases have smaller blocks.
const PADDED: &str = "v1-padded";
/// A database with an import, and with logs that are kept for the change feed.
const KEPT: &str = "v1-kept";
/// A database that was not closed, so that opening it checks the log and the manifest against their
/// stated lengths.
const KILLED: &str = "v1-killed";
/// A database with compressed blocks. Their bytes depend on the compressor, so the tests read this
/// database but do not compare its bytes.
const COMPRESSED: &str = "v1-compressed";

fn dir(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

fn is_record_file(name: &str) -> bool {
    name.ends_with(".wal") || name.starts_with("MANIFEST")
}

fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    bytes.truncate(end);
    bytes
}

fn written(fs: &MemFs) -> Files {
    let file = |path: String| {
        let (name, bytes) = (path.trim_start_matches("db/"), fs.read(&path).unwrap());
        let bytes = if is_record_file(name) { trimmed(bytes) } else { bytes };
        (name.to_owned(), bytes)
    };
    fs.paths().into_iter().map(file).collect()
}

fn stored(version: &str) -> Files {
    let entries = std::fs::read_dir(dir(version)).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect()
}

#[test]
fn trap_38_the_same_bytes_are_written_on_every_machine() {
    check_written(NEWEST);
    check_written(PADDED);
    check_written(KEPT);
    check_written(KILLED);
}

#[track_caller]
fn check_written(version: &str) {
    let mut runner = run(version);
    if version != KILLED {
        runner.engine.close().unwrap();
    }
    let files = written(&runner.engine.fs);
    rewrite(version, &files);
    let stored = stored(version);
    assert_eq!(files.keys().collect::<Vec<_>>(), stored.keys().collect::<Vec<_>>());
    for (name, bytes) in &files {
        let differs = bytes.iter().zip(&stored[name]).position(|(a, b)| a != b);
        assert_eq!((differs, bytes.len()), (None, stored[name].len()), "{name}");
    }
}

/// Stores `files` if `REWRITE` is set.
fn rewrite(version: &str, files: &Files) {
    if std::env::var_os("REWRITE").is_some() {
        let dir = dir(version);
        drop(std::fs::remove_dir_all(&dir));
        std::fs::create_dir_all(&dir).unwrap();
        files.iter().for_each(|(name, bytes)| std::fs::write(dir.join(name), bytes).unwrap());
    }
}

/// Opens a stored database, and compares its content with a newly created database.
#[track_caller]
fn check_opens(version: &str) {
    opened(version).close().unwrap();
}

#[track_caller]
fn opened(version: &str) -> Engine {
    let (engine, expected) = (unread(version), run(version));
    assert_eq!(engine.state().unwrap(), expected.oracle.tables);
    assert_eq!(engine.db().verify().unwrap().problems, [""; 0]);
    engine
}

/// Opens a stored database with the options that it was made with.
#[track_caller]
fn unread(version: &str) -> Engine {
    let clock = Arc::new(ManualClock::new(START));
    let mut engine = Engine::on(files_of(version), clock, config(version));
    engine.open().unwrap();
    engine
}

/// Returns a file system with a stored database. Its record files get some reserved space again.
fn files_of(version: &str) -> MemFs {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new(PATH)).unwrap();
    for (name, mut bytes) in stored(version) {
        if is_record_file(&name) {
            let unit = if name.starts_with("MANIFEST") { 64 << 10 } else { 4096 };
            bytes.resize(bytes.len().next_multiple_of(unit), 0);
        }
        fs.write(Path::new(PATH).join(name), &bytes).unwrap();
    }
    fs
}

#[test]
fn trap_38_trap_44_a_database_of_version_1_opens() {
    check_opens(NEWEST);
}

#[test]
fn trap_44_a_database_without_zones_opens() {
    check_opens("v1-without-zones");
}

#[test]
fn trap_44_a_database_without_sizes_of_references_opens() {
    check_opens("v1-without-sizes");
}

#[test]
fn trap_44_a_database_with_hash_indexes_of_the_first_form_opens() {
    check_opens(FIRST_INDEX);
}

#[test]
fn trap_44_a_database_without_lengths_of_logs_opens() {
    check_opens(WITHOUT_LENGTHS);
}

/// The log of this database has grown once. If its last byte is missing, the database does not
/// open.
#[test]
fn a_killed_database_opens_if_its_log_has_the_stated_length() {
    check_opens(KILLED);
    let (path, bytes) =
        stored(KILLED).into_iter().rfind(|(name, _)| name.ends_with(".wal")).unwrap();
    assert!(bytes.len() > 4096);
    let (fs, len) = (files_of(KILLED), bytes.len().next_multiple_of(4096) as u64);
    fs.truncate(format!("{PATH}/{path}"), len - 1).unwrap();
    let error = rowstone::Db::options().fs(Arc::new(fs)).open(PATH).unwrap_err();
    assert!(error.to_string().contains(&format!("it was {len} bytes long")), "{error}");
}

#[test]
fn trap_44_a_database_without_a_wear_account_opens_and_starts_one() {
    let mut engine = opened(WITHOUT_WEAR);
    let wear = engine.db().wear();
    assert_eq!((wear.user_bytes, wear.flush_bytes), (0, 0), "{wear:?}");
    engine.db().table("Parts").unwrap().insert(rowstone::Entity::new("p", "r")).unwrap();
    let written = engine.db().wear();
    assert!(written.user_bytes > 0 && written.log_bytes > 0);
    engine.close().unwrap();
    engine.open().unwrap();
    assert_eq!(engine.db().wear().user_bytes, written.user_bytes);
    engine.close().unwrap();
}

#[test]
fn a_database_with_padded_blocks_opens() {
    // A padded block ends with zeros up to the page boundary. The next block starts there, and its
    // first byte is its kind.
    let is_padded = |name: &str, bytes: &[u8]| {
        name.ends_with(".sst") && bytes[4080..4096] == [0; 16] && bytes[4096] == 1
    };
    assert!(stored(PADDED).iter().any(|(name, bytes)| is_padded(name, bytes)));
    check_opens(PADDED);
}

#[cfg(feature = "zstd")]
#[test]
fn a_compressed_database_opens() {
    if std::env::var_os("REWRITE").is_some() {
        let mut runner = run(COMPRESSED);
        runner.engine.close().unwrap();
        rewrite(COMPRESSED, &written(&runner.engine.fs));
    }
    // Compression leaves only a few of 200 equal texts.
    let texts = |bytes: &[u8]| bytes.windows(20).filter(|it| **it == [b'x'; 20]).count();
    let files = stored(COMPRESSED);
    let mut tables = files.iter().filter(|(name, _)| name.ends_with(".sst"));
    assert!(tables.any(|(_, bytes)| (1..10).contains(&texts(bytes))));
    check_opens(COMPRESSED);
}

/// The database opens, because opening reads no block. A read of a block fails with an error that
/// names the file and the missing feature, and does not count as damage.
#[cfg(not(feature = "zstd"))]
#[test]
fn a_compressed_database_is_unsupported_without_the_feature_and_unchanged() {
    use rowstone::ErrorKind;
    let mut engine = unread(COMPRESSED);
    let table = engine.db().table("Parts").unwrap();
    let reads =
        [table.get("p", "r000").map(drop), table.query("N eq 1").unwrap().count().map(drop)];
    for read in reads {
        let error = read.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let text = error.to_string();
        assert!(text.contains(".sst") && text.contains("the feature `zstd`"), "{text}");
    }
    let problems = engine.db().verify().unwrap().problems;
    assert!(!problems.is_empty() && problems.iter().all(|it| it.contains("the feature `zstd`")));
    assert_eq!(engine.db().quarantined(), []);
    engine.close().unwrap();
    let table_files = |files: Files| {
        files.into_iter().filter(|(name, _)| name.ends_with(".sst")).collect::<Files>()
    };
    assert_eq!(table_files(written(&engine.fs)), table_files(stored(COMPRESSED)));
}

/// The test shows the change feed as one letter per change, with a space between commits.
#[test]
fn trap_44_a_database_with_kept_logs_has_all_its_changes() {
    let mut engine = opened(KEPT);
    let db = engine.db();
    let letter = |change: &Change| match change {
        Change::TableCreated { .. } => 'c',
        Change::TableDropped { .. } => 'x',
        Change::Put { .. } => 'p',
        Change::Deleted { .. } => 'd',
        Change::RangeDeleted { .. } => 'r',
        Change::Imported { .. } => 'i',
        _ => '?',
    };
    let commits = db
        .changes(db.oldest_position().unwrap())
        .unwrap()
        .map(|commit| commit.unwrap().changes.iter().map(letter).collect::<String>());
    let all: Vec<String> = commits.collect();
    assert_eq!(all.join(" "), "c c c p p p p p d p x ppp r i p p");
    engine.close().unwrap();
}

/// A backup directory of version 1 can still be restored.
#[test]
fn a_backup_of_version_1_is_restored() {
    let expected = run(NEWEST);
    let dir = dir("v1-backup");
    let parts = ["files", "generations"].map(|part| dir.join(part));
    if std::env::var_os("REWRITE").is_some() {
        expected.engine.db().backup("backups").unwrap();
        drop(std::fs::remove_dir_all(&dir));
        parts.iter().for_each(|part| std::fs::create_dir_all(part).unwrap());
        let fs = &expected.engine.fs;
        for path in fs.paths().iter().filter(|path| !path.ends_with("LOCK")) {
            let Some(name) = path.strip_prefix("backups/") else { continue };
            std::fs::write(dir.join(name), fs.read(path).unwrap()).unwrap();
        }
    }
    let fs = MemFs::new();
    for part in &parts {
        let at = Path::new("backups").join(part.file_name().unwrap());
        fs.create_dir_all(&at).unwrap();
        for path in std::fs::read_dir(part).unwrap().map(|entry| entry.unwrap().path()) {
            fs.write(at.join(path.file_name().unwrap()), &std::fs::read(&path).unwrap()).unwrap();
        }
    }
    let backups = rowstone::Db::options().fs(Arc::new(fs.clone())).open_backup("backups").unwrap();
    assert_eq!(backups.verify().unwrap().problems, [""; 0]);
    backups.restore(1, PATH).unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let mut engine = Engine::on(fs, clock, expected.engine.config.clone());
    engine.open().unwrap();
    assert_eq!(engine.state().unwrap(), expected.oracle.tables);
}
