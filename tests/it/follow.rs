//! Runs real processes on a real disk. A writer process is killed repeatedly. A follower, a reader
//! of the change feed, and short-lived readers run concurrently. The writer process also contains a
//! consumer of the change feed with a named cursor, so each kill interrupts the consumer, too.
//!
//! `ROWSTONE_KILLS=200` sets the number of kills.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rowstone::{
    Db, Durability, Entity, EntityGroup, ErrorKind, KeyRange, Options, Result,
    changes::{Change, Commit, Position},
    retry::Rng,
};

use crate::say;

/// The default number of kills of the writer.
const KILLS: u64 = 6;
/// Maximum number of commits of one writer process.
const COMMITS_MAX: u64 = 60;
/// The number of rows that one import adds.
const IMPORTED: usize = 50;
/// The key of the very last row, which the parent process writes after the last kill. Readers end
/// when they read it.
const STOP: &str = "stop";

/// The environment variable with the database's path. It is set in child processes, which run this
/// executable in one role, such as the writer.
const DATABASE: &str = "ROWSTONE_FOLLOWED";

fn database() -> Option<PathBuf> {
    std::env::var_os(DATABASE).map(PathBuf::from)
}

/// Small sizes, so that logs, files and manifests are created and removed often.
fn options() -> Options {
    Db::options().memtable_bytes(16 << 10).run_file_bytes(16 << 10).keep_changes(256 << 20)
}

/// A child process that runs this executable in one role. It is killed when dropped.
pub(crate) struct Role(pub(crate) Child);

impl Role {
    fn start(name: &str, db: &Path) -> (Self, BufReader<ChildStdout>) {
        let mut child =
            Self::command(&format!("follow::{name}")).env(DATABASE, db).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        (Self(child), BufReader::new(out))
    }

    /// Returns a command that runs one test of this executable, with a pipe for its output.
    pub(crate) fn command(test: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture", "--quiet"]).stdout(Stdio::piped());
        command
    }

    pub(crate) fn kill(&mut self) {
        // Sends SIGKILL, which has no effect if the process has exited.
        drop(self.0.kill());
        drop(self.0.wait());
    }

    fn ends_well(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes a line to standard output, which the parent process reads, and flushes it.
pub(crate) fn send_line(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

fn pause() {
    std::thread::park_timeout(Duration::from_millis(2));
}

/// Returns the number of a commit. Both entities of the commit contain it.
fn number_of(commit: &Commit) -> Option<i64> {
    let numbers = commit.changes.iter().filter_map(|change| match change {
        Change::Put { entity, .. } => Some(entity.get::<i64>("N").unwrap()),
        _ => None,
    });
    let numbers: Vec<i64> = numbers.collect();
    assert!(matches!(numbers[..], [] | [_, _]), "a group in parts: {commit:?}");
    let first = numbers.first().copied();
    assert!(numbers.iter().all(|n| Some(*n) == first), "{commit:?}");
    first
}

fn last_number(db: &Db) -> Result<i64> {
    let counter = match db.table("log") {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        table => table?.get("p", "counter")?,
    };
    counter.map_or(Ok(0), |counter| counter.get("N"))
}

/// Returns the path of the database from which rows are imported.
fn source(db: &Path) -> PathBuf {
    db.with_extension("source")
}

/// At random, flushes, compacts or copies the database, drops or imports the table `other`, or does
/// nothing.
fn do_maintenance(db: &Db, path: &Path, rng: &mut Rng, number: i64) {
    match rng.below(40) {
        0 => db.flush().unwrap(),
        1 => db.compact().unwrap(),
        // The result is ignored, because the copy may exist: an earlier writer may have been killed
        // while it copied.
        2 => drop(db.checkpoint(path.with_extension(format!("copy-{number}")))),
        3..=5 if db.table("other").is_ok() => db.delete_table("other").unwrap(),
        3..=5 => drop(db.import_range(source(path), "other").unwrap()),
        _ => {}
    }
}

/// The state of the table `other` according to the feed. The table is created, filled at most once,
/// and dropped.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    Gone,
    Empty,
    Full,
}

impl Other {
    fn after(self, commit: &Commit) -> Self {
        match (self, &commit.changes[..]) {
            (Other::Gone, [Change::TableCreated { table }]) if table == "other" => Other::Empty,
            (Other::Empty, [Change::Imported { .. }]) => Other::Full,
            (Other::Empty | Other::Full, [Change::TableDropped { .. }]) => Other::Gone,
            (_, [Change::TableCreated { table }]) if table == "log" => self,
            (_, [Change::Put { .. }, ..]) => self,
            (_, changes) => panic!("a gap or a repetition: {changes:?}"),
        }
    }
}

fn is_over(db: &Db) -> bool {
    db.table("log").is_ok_and(|log| log.get("p", STOP).unwrap().is_some())
}

#[test]
fn the_writer() {
    let Some(path) = database() else { return };
    let db = options().open(&path).unwrap();
    let log = db.table_or_create("log").unwrap();
    let mut number = last_number(&db).unwrap();
    let cursor = db.cursor("consumer").unwrap();
    let mut changes = cursor.changes().unwrap();
    send_line(format_args!("from {}", changes.position()));
    let mut rng = Rng::from_entropy();
    loop {
        number += 1;
        let durability =
            [Durability::Sync, Durability::Sync, Durability::Os][rng.below(3) as usize];
        let mut group = EntityGroup::new("p");
        let row = format!("{number:08}");
        group
            .upsert(Entity::new("p", row).with("N", number).with("Text", "x".repeat(200)))
            .unwrap();
        group.upsert(Entity::new("p", "counter").with("N", number)).unwrap();
        log.commit_with(group, durability).unwrap();
        if durability == Durability::Sync {
            send_line(format_args!("wrote {number}"));
        }
        do_maintenance(&db, &path, &mut rng, number);
        if rng.below(4) == 0 {
            for commit in changes.by_ref() {
                let commit = commit.unwrap();
                let Some(number) = number_of(&commit) else { continue };
                send_line(format_args!("got {number} {}", commit.position));
                cursor.commit(commit.position).unwrap();
            }
        }
    }
}

#[test]
fn the_follower() {
    let Some(path) = database() else { return };
    let follower = options().follow(&path).unwrap();
    let (mut shown, mut refreshed) = (0, 0u64);
    loop {
        refreshed += u64::from(follower.refresh().unwrap());
        let db = follower.db();
        let number = last_number(&db).unwrap();
        assert!(number >= shown, "went back from {shown} to {number}");
        if number > shown {
            let log = db.table("log").unwrap();
            assert!(log.get("p", &format!("{number:08}")).unwrap().is_some(), "half a group");
            assert!(log.get("p", &format!("{:08}", number + 1)).unwrap().is_none(), "half a group");
            let rows = log.scan(KeyRange::rows("p", "0".."9")).into_iter();
            assert_eq!(rows.map(Result::unwrap).count() as i64, number, "holes");
            shown = number;
        }
        if let Ok(other) = db.table("other") {
            let rows = other.scan(KeyRange::all()).into_iter().map(Result::unwrap).count();
            assert!([0, IMPORTED].contains(&rows), "{rows} of the imported rows");
        }
        if is_over(&db) {
            return send_line(format_args!("shown {shown} refreshed {refreshed}"));
        }
        pause();
    }
}

#[test]
fn the_reader_of_changes() {
    let Some(path) = database() else { return };
    let db = options().open_read_only(&path).unwrap();
    let mut changes = db.changes(db.oldest_position().unwrap()).unwrap();
    let (mut got, mut other) = (0, Other::Gone);
    loop {
        for commit in changes.by_ref() {
            let commit = commit.unwrap();
            other = other.after(&commit);
            if let [Change::Put { entity, .. }] = &commit.changes[..] {
                assert_eq!(entity.row_key(), STOP);
                return send_line(format_args!("got {got}"));
            }
            let Some(number) = number_of(&commit) else { continue };
            assert_eq!(number, got + 1, "a gap or a repetition");
            got = number;
        }
        pause();
    }
}

/// The output of all writer processes so far.
struct Heard {
    wrote: i64,
    /// The last number that the consumer received, for each position of its cursor.
    got: BTreeMap<Position, i64>,
}

impl Heard {
    /// Runs a writer process, reads its output, and kills it after `lines` lines.
    fn life(&mut self, path: &Path, lines: u64) {
        let (mut writer, out) = Role::start("the_writer", path);
        let mut next = None;
        for (line, at) in out.lines().zip(0..) {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["from", position] => {
                    let position = position.parse::<Position>().unwrap();
                    // The cursor's position is the position of a received commit, or the start of
                    // the feed.
                    next = Some(self.got.get(&position).map_or(1, |number| number + 1));
                }
                ["wrote", number] => self.wrote = number.parse().unwrap(),
                ["got", number, position] => {
                    let number: i64 = number.parse().unwrap();
                    assert_eq!(Some(number), next, "a gap or a repetition after the cursor");
                    next = Some(number + 1);
                    self.got.insert(position.parse().unwrap(), number);
                }
                _ => {}
            }
            if at >= lines {
                writer.kill();
            }
        }
    }
}

#[test]
fn trap_33_readers_survive_kills_of_the_writer_without_gap_or_repetition() {
    let kills = crate::cases("ROWSTONE_KILLS", KILLS);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    options().open(&path).unwrap().close().unwrap();
    let from = options().open(source(&path)).unwrap();
    let parts = from.create_table("parts").unwrap();
    for i in 0..IMPORTED {
        let row = Entity::new("p", format!("{i:03}"));
        parts.clone().with_durability(Durability::Os).insert(row).unwrap();
    }
    from.close().unwrap();
    let (follower, shown) = Role::start("the_follower", &path);
    let (reader, read) = Role::start("the_reader_of_changes", &path);
    let mut rng = Rng::from_entropy();
    let mut heard = Heard { wrote: 0, got: BTreeMap::new() };
    for _ in 0..kills {
        heard.life(&path, 1 + rng.below(COMMITS_MAX));
        // A read-only open may miss the last acknowledged commit, until a writer opens the
        // database.
        let beside = options().open_read_only(&path).unwrap();
        assert!(last_number(&beside).unwrap() >= heard.wrote - 1);
    }
    let db = options().open(&path).unwrap();
    let number = last_number(&db).unwrap();
    assert!(number >= heard.wrote);
    let log = db.table_or_create("log").unwrap();
    log.insert(Entity::new("p", STOP).with("N", number)).unwrap();
    let said = |out: BufReader<ChildStdout>, word: &str| {
        // Reads all lines, because a process that writes to a closed pipe fails.
        let lines: Vec<String> = out.lines().map(|line| line.unwrap()).collect();
        lines.into_iter().find(|line| line.starts_with(word)).unwrap_or_default()
    };
    let (shown, read) = (said(shown, "shown"), said(read, "got"));
    follower.ends_well();
    reader.ends_well();
    assert_eq!(shown.split(' ').nth(1), Some(&*number.to_string()), "{shown}");
    assert_eq!(read, format!("got {number}"));
    let rest: Vec<i64> = {
        let cursor = db.cursor("consumer").unwrap();
        cursor.changes().unwrap().filter_map(|commit| number_all(&commit.unwrap())).collect()
    };
    let from = heard.got.values().max().copied().unwrap_or(0);
    assert!(rest.iter().copied().eq(from + 1 - i64::from(rest.first() == Some(&from))..=number));
    say(format_args!(
        "{kills} kills, {number} commits, {} through the cursor, {shown}",
        heard.got.len()
    ));
    db.close().unwrap();
}

/// As [`number_of`], but accepts the very last commit, which is not a group.
fn number_all(commit: &Commit) -> Option<i64> {
    if commit.changes.len() == 1 { None } else { number_of(commit) }
}
