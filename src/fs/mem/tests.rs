//! Tests of power cuts: every kind of loss must occur, and synced data must never be lost.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::*;
use crate::fs::{FileWrite, Fs};
use crate::rng::Rng;

const SEEDS: u64 = 300;

fn path(path: &str) -> &Path {
    Path::new(path)
}

fn create(fs: &MemFs, name: &str, bytes: &[u8]) -> Box<dyn FileWrite> {
    let file = fs.create(path(name)).unwrap();
    file.write_at(0, bytes).unwrap();
    file
}

/// Creates a file and makes its bytes and its name durable.
fn put(fs: &MemFs, name: &str, bytes: &[u8]) -> Box<dyn FileWrite> {
    let file = create(fs, name, bytes);
    file.sync().unwrap();
    fs.sync_dir(&crate::fs::parent(path(name))).unwrap();
    file
}

/// Takes a crash image for each of many seeds, and returns the distinct results of `look` on them.
fn outcomes<T: Ord>(fs: &MemFs, look: impl Fn(&MemFs) -> T) -> BTreeSet<T> {
    (0..SEEDS).map(|seed| look(&fs.crash_image(seed))).collect()
}

fn files(fs: &MemFs) -> String {
    fs.paths().join(" ")
}

#[track_caller]
fn check_files(fs: &MemFs, expected: &[&str]) {
    assert_eq!(outcomes(fs, files), expected.iter().map(|files| files.to_string()).collect());
}

/// Returns one letter for each sector of `name`: the byte that fills it, `0` for zeros.
fn letters(fs: &MemFs, name: &str) -> String {
    let bytes = fs.read(name).unwrap();
    let letter = |sector: &[u8]| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector has one letter");
        if sector[0] == 0 { '0' } else { char::from(sector[0]) }
    };
    bytes.chunks(fate::SECTOR).map(letter).collect()
}

#[track_caller]
fn check_letters(fs: &MemFs, name: &str, expected: &[&str]) {
    let expected: BTreeSet<_> = expected.iter().map(|letters| letters.to_string()).collect();
    assert_eq!(outcomes(fs, |image| letters(image, name)), expected);
}

#[test]
fn files_synced_with_their_names_are_in_every_image() {
    let fs = MemFs::new();
    fs.create_dir_all(path("db")).unwrap();
    put(&fs, "db/f", b"abc");
    assert_eq!(outcomes(&fs, |image| image.read("db/f").unwrap()), [b"abc".to_vec()].into());
}

#[test]
fn unsynced_sectors_survive_independently() {
    let fs = MemFs::new();
    let file = put(&fs, "f", &[b'a'; 1024]);
    file.write_at(0, &[b'b'; 1024]).unwrap();
    check_letters(&fs, "f", &["aa", "ab", "ba", "bb"]);
    file.sync().unwrap();
    check_letters(&fs, "f", &["bb"]);
}

#[test]
fn a_sector_written_twice_keeps_any_of_its_versions() {
    let fs = MemFs::new();
    let file = put(&fs, "f", &[b'a'; 512]);
    file.write_at(0, &[b'b'; 512]).unwrap();
    file.write_at(0, &[b'c'; 512]).unwrap();
    file.write_at(0, &[b'd'; 512]).unwrap();
    check_letters(&fs, "f", &["a", "b", "c", "d"]);
}

#[test]
fn unsynced_appends_in_a_sector_survive_as_a_prefix() {
    let fs = MemFs::new();
    let file = put(&fs, "f", b"");
    file.allocate(512).unwrap();
    file.sync().unwrap();
    file.write_at(0, b"one").unwrap();
    file.write_at(3, b"two").unwrap();
    file.write_at(6, b"six").unwrap();
    let found = outcomes(&fs, |image| {
        let bytes = image.read("f").unwrap();
        String::from_utf8(bytes).unwrap().trim_end_matches('\0').to_owned()
    });
    assert_eq!(found, ["", "one", "onetwo", "onetwosix"].map(String::from).into());
}

#[test]
fn an_unsynced_length_is_old_or_new_or_between_and_its_tail_may_be_zero() {
    let fs = MemFs::new();
    let file = put(&fs, "f", &[b'a'; 512]);
    file.write_at(512, &[b'b'; 512]).unwrap();
    file.write_at(1024, &[b'c'; 512]).unwrap();
    let found = outcomes(&fs, |image| (image.len("f").unwrap(), letters(image, "f")));
    for expected in ["a", "a0", "ab", "a00", "a0c", "ab0", "abc"] {
        assert!(found.iter().any(|(_, letters)| letters == expected), "{expected} in {found:?}");
    }
    assert!(found.iter().all(|(len, _)| (512..=1536).contains(len)));
    assert!(found.iter().any(|(len, _)| len % 512 != 0), "lengths within a sector");
    file.sync().unwrap();
    check_letters(&fs, "f", &["abc"]);
}

#[test]
fn an_unsynced_allocation_and_cut_may_be_undone() {
    let fs = MemFs::new();
    let file = put(&fs, "f", &[b'a'; 1024]);
    file.set_len(512).unwrap();
    let found = outcomes(&fs, |image| letters(image, "f"));
    assert!(found.contains("a") && found.contains("aa"), "{found:?}");
    file.set_len(1024).unwrap();
    let found = outcomes(&fs, |image| letters(image, "f"));
    assert!(found.contains("a0") && found.contains("aa"), "{found:?}");
    file.sync().unwrap();
    check_letters(&fs, "f", &["a0"]);
    file.allocate(2048).unwrap();
    file.sync().unwrap();
    check_letters(&fs, "f", &["a000"]);
}

#[test]
fn unsynced_names_happened_or_did_not() {
    let fs = MemFs::new();
    for name in ["old", "gone"] {
        put(&fs, name, b"");
    }
    fs.remove(path("gone")).unwrap();
    create(&fs, "new", b"").sync().unwrap();
    check_files(&fs, &["gone old", "gone new old", "new old", "old"]);
    fs.sync_dir(path(".")).unwrap();
    check_files(&fs, &["new old"]);
}

#[test]
fn an_unsynced_link_may_be_lost_and_its_file_stays() {
    let fs = MemFs::new();
    put(&fs, "f", b"");
    fs.link(path("f"), path("g")).unwrap();
    check_files(&fs, &["f", "f g"]);
}

#[test]
fn a_renamed_file_keeps_one_or_both_of_its_names() {
    let fs = MemFs::new();
    put(&fs, "f", b"abc");
    fs.create_dir_all(path("d")).unwrap();
    fs.rename(path("f"), path("g")).unwrap();
    check_files(&fs, &["f", "f g", "g"]);
    fs.rename(path("g"), path("d/h")).unwrap();
    let found = outcomes(&fs, files);
    assert!(found.iter().all(|files| !files.is_empty()), "{found:?}");
    fs.sync_dir(path("d")).unwrap();
    fs.sync_dir(path(".")).unwrap();
    check_files(&fs, &["d/h"]);
}

#[test]
fn a_moved_file_is_lost_if_only_the_old_directory_is_synced() {
    let fs = MemFs::new();
    put(&fs, "f", b"abc");
    fs.create_dir_all(path("d")).unwrap();
    fs.rename(path("f"), path("d/f")).unwrap();
    fs.sync_dir(path(".")).unwrap();
    check_files(&fs, &["", "d/f"]);
    fs.sync_dir(path("d")).unwrap();
    check_files(&fs, &["d/f"]);
}

#[test]
fn a_replaced_file_is_the_old_one_or_the_new_one() {
    let fs = MemFs::new();
    put(&fs, "CURRENT", b"1");
    create(&fs, "CURRENT.tmp", b"2").sync().unwrap();
    fs.rename(path("CURRENT.tmp"), path("CURRENT")).unwrap();
    let found = outcomes(&fs, |image| image.read("CURRENT").unwrap());
    assert_eq!(found, [b"1".to_vec(), b"2".to_vec()].into());
}

#[test]
fn a_rename_of_unsynced_bytes_may_leave_an_empty_file() {
    let fs = MemFs::new();
    put(&fs, "CURRENT", b"1");
    create(&fs, "CURRENT.tmp", b"2");
    fs.rename(path("CURRENT.tmp"), path("CURRENT")).unwrap();
    fs.sync_dir(path(".")).unwrap();
    let found = outcomes(&fs, |image| image.read("CURRENT").unwrap());
    assert_eq!(found, [b"".to_vec(), b"\0".to_vec(), b"2".to_vec()].into());
}

#[test]
fn trap_06_a_synced_file_vanishes_with_its_unsynced_name() {
    let fs = MemFs::new();
    create(&fs, "f", b"abc").sync().unwrap();
    check_files(&fs, &["", "f"]);
    fs.sync_dir(path(".")).unwrap();
    check_files(&fs, &["f"]);
}

#[test]
fn trap_06_directories_are_synced_separately() {
    let fs = MemFs::new();
    fs.create_dir_all(path("a")).unwrap();
    fs.create_dir_all(path("b")).unwrap();
    create(&fs, "a/f", b"").sync().unwrap();
    create(&fs, "b/f", b"").sync().unwrap();
    fs.sync_dir(path("b")).unwrap();
    check_files(&fs, &["a/f b/f", "b/f"]);
}

#[test]
fn trap_46_a_creation_is_whole_or_absent_at_every_operation() {
    let fs = MemFs::new();
    fs.record();
    fs.create_dir_all(path("x/db")).unwrap();
    put(&fs, "x/db/CURRENT", b"abc");
    let done = fs.ops();
    for op in fs.recorded() {
        for seed in 0..50 {
            let image = fs.crash_image_at(op, seed).unwrap();
            image.create_dir_all(path("x/db")).unwrap();
            let current = image.read("x/db/CURRENT").ok();
            assert!(op < done || current.as_deref() == Some(b"abc"), "op {op} seed {seed}");
        }
    }
}

#[test]
fn trap_47_a_directory_vanishes_with_all_that_is_in_it_unless_its_parent_is_synced() {
    let fs = MemFs::new();
    let db = path("data/db");
    // Create the directories without syncing their parents.
    for dir in ["data", "data/db"] {
        complete_make(&fs, dir);
    }
    put(&fs, "data/db/CURRENT", b"abc");
    check_files(&fs, &["", "data/db/CURRENT"]);
    fs.create_dir_all(db).unwrap();
    let top = outcomes(&fs, |image| image.exists(path("data")).unwrap());
    assert_eq!(top, [false, true].into(), "only the deepest entry can be in doubt after a kill");
}

fn complete_make(fs: &MemFs, dir: &str) {
    crate::fs::complete::Directories::make(fs, path(dir)).unwrap();
}

#[test]
fn trap_47_every_created_level_is_durable_even_after_a_kill() {
    let fs = MemFs::new();
    fs.record();
    fs.create_dir_all(path("a/b/c")).unwrap();
    for op in fs.recorded() {
        let killed = fs.kill_image_at(op).unwrap();
        killed.create_dir_all(path("a/b/c")).unwrap();
        let found = outcomes(&killed, |image| image.exists(path("a/b/c")).unwrap());
        assert_eq!(found, [true].into(), "killed after {op} operations");
    }
}

#[test]
fn a_killed_process_loses_nothing_and_the_power_may_still_fail() {
    let fs = MemFs::new();
    let file = put(&fs, "f", b"");
    file.write_at(0, b"abc").unwrap();
    let killed = fs.kill_image();
    assert_eq!(killed.read("f").unwrap(), b"abc");
    assert!(outcomes(&killed, |image| image.read("f").unwrap()).contains(b"".as_slice()));
}

#[test]
fn after_a_failed_sync_bytes_stay_readable_but_are_never_durable() {
    let fs = MemFs::new();
    let file = put(&fs, "f", &[b'a'; 8192]);
    file.write_at(0, &[b'b'; 512]).unwrap();
    file.forget_dirty();
    assert_eq!(letters(&fs, "f"), "baaaaaaaaaaaaaaa");
    file.write_at(4096, &[b'c'; 512]).unwrap();
    file.sync().unwrap();
    assert_eq!(letters(&fs, "f"), "baaaaaaacaaaaaaa");
    check_letters(&fs, "f", &["aaaaaaaacaaaaaaa"]);
    assert_eq!(fs.kill_image().read("f").unwrap()[0], b'b');
}

#[test]
fn an_image_is_independent_of_later_changes() {
    let fs = MemFs::new();
    let file = put(&fs, "f", b"abc");
    let lock = fs.lock(path("LOCK")).unwrap();
    let image = fs.crash_image(1);
    file.write_at(0, b"xyz").unwrap();
    file.sync().unwrap();
    assert_eq!((image.read("f").unwrap(), image.ops()), (b"abc".to_vec(), 0));
    image.open_write(path("f")).unwrap().write_at(0, b"_").unwrap();
    assert_eq!(fs.read("f").unwrap(), b"xyz");
    drop(image.lock(path("LOCK")).unwrap());
    drop(lock);
}

#[test]
fn an_image_is_durable_and_can_crash_again() {
    let fs = MemFs::new();
    put(&fs, "f", &[b'a'; 512]).write_at(0, &[b'b'; 512]).unwrap();
    for seed in 0..20 {
        let image = fs.crash_image(seed);
        let first = image.read("f").unwrap();
        assert_eq!(outcomes(&image, |image| image.read("f").unwrap()), [first].into());
        image.open_write(path("f")).unwrap().write_at(512, &[b'c'; 512]).unwrap();
        assert!(outcomes(&image, |image| image.len("f").unwrap()).len() > 1);
    }
}

/// Runs random operations, determined by the seed.
fn churn(fs: &MemFs, seed: u64, steps: u64) {
    let mut rng = Rng::from_seed(seed);
    fs.create_dir_all(path("d/e")).unwrap();
    let name = |rng: &mut Rng| format!("{}f{}", rng.pick(&["", "d/", "d/e/"]), rng.below(4));
    for step in 0..steps {
        let (one, two) = (name(&mut rng), name(&mut rng));
        let (one, two) = (path(&one), path(&two));
        // Some operations fail, for example because a file does not exist. This is intended.
        match rng.below(12) {
            0..3 => drop(fs.create(one)),
            3 => drop(fs.rename(one, two)),
            4 => drop(fs.remove(one)),
            5 => drop(fs.link(one, two)),
            6 => drop(fs.sync_dir(path([".", "d", "d/e"][rng.below(3) as usize]))),
            7..10 => {
                let Ok(file) = fs.open_write(one) else { continue };
                let bytes = vec![step as u8 | 1; rng.below(6000) as usize];
                file.write_at(rng.below(9000), &bytes).unwrap();
            }
            10 => drop(fs.open_write(one).map(|file| file.sync())),
            _ => drop(fs.open_write(one).map(|file| file.set_len(rng.below(9000)))),
        }
    }
}

fn contents(fs: &MemFs) -> Vec<(String, Vec<u8>)> {
    fs.paths().into_iter().map(|path| (path.clone(), fs.read(path).unwrap())).collect()
}

#[test]
fn equal_runs_and_seeds_give_equal_images_and_logs() {
    let runs = [MemFs::new(), MemFs::new()];
    for fs in &runs {
        fs.record();
        churn(fs, 7, 400);
    }
    let [a, b] = runs;
    assert_eq!((a.log(), a.ops()), (b.log(), b.ops()));
    for op in a.recorded() {
        let [x, y] = [&a, &b].map(|fs| contents(&fs.crash_image_at(op, op ^ 5).unwrap()));
        assert!(x == y, "after {op} operations");
    }
}

/// Images made later from a recording must equal the images made during the run, even if unlinked
/// files were removed in the meantime.
#[test]
fn recorded_images_equal_those_taken_at_the_time() {
    let fs = MemFs::new();
    fs.record();
    let mut taken = Vec::new();
    for round in 0..30 {
        churn(&fs, round, 10);
        taken.push((fs.ops(), contents(&fs), contents(&fs.crash_image(round))));
    }
    for (round, (op, alive, crashed)) in taken.into_iter().enumerate() {
        assert!(contents(&fs.kill_image_at(op).unwrap()) == alive, "alive after {op} operations");
        let image = fs.crash_image_at(op, round as u64).unwrap();
        assert!(contents(&image) == crashed, "crashed after {op} operations");
    }
}

fn sync_dirs(fs: &MemFs) {
    for dir in ["d/e", "d", "."] {
        fs.sync_dir(path(dir)).unwrap();
    }
}

/// Synced bytes under a synced name must survive unsynced changes to other files.
#[test]
fn trap_06_synced_data_survives_changes_to_other_files() {
    for seed in 0..30 {
        let (fs, mut rng) = (MemFs::new(), Rng::from_seed(seed));
        fs.create_dir_all(path("d/e")).unwrap();
        let mut durable_claimed = std::collections::BTreeMap::new();
        for step in 0..150u64 {
            let names = [".", "d", "d/e"].map(|dir| format!("{dir}/f{}", rng.below(3)));
            let (one, two) = (&names[rng.below(3) as usize], &names[rng.below(3) as usize]);
            durable_claimed.remove(one);
            match rng.below(6) {
                0 => drop(fs.remove(path(one))),
                1 => {
                    durable_claimed.remove(two);
                    drop(fs.rename(path(one), path(two)));
                }
                2 => drop(fs.open_write(path(one)).map(|file| file.set_len(rng.below(3000)))),
                _ => {
                    let file = fs.create(path(one)).or_else(|_| fs.open_write(path(one))).unwrap();
                    file.write_at(rng.below(3000), &[step as u8; 700]).unwrap();
                    if rng.chance(1, 2) {
                        file.sync().unwrap();
                        sync_dirs(&fs);
                        durable_claimed.insert(one.clone(), fs.read(one).unwrap());
                    }
                }
            }
            let image = fs.crash_image(rng.next_u64());
            for (name, bytes) in &durable_claimed {
                assert!(image.read(name).unwrap() == *bytes, "{name}, seed {seed} step {step}");
            }
        }
    }
}

/// After a sync of all files and directories, every image must be complete, whatever operations
/// preceded the sync.
#[test]
fn after_a_full_sync_every_image_is_complete() {
    for seed in 0..40 {
        let fs = MemFs::new();
        churn(&fs, seed, 150);
        for file in fs.paths() {
            fs.open_write(path(&file)).unwrap().sync().unwrap();
        }
        sync_dirs(&fs);
        let whole = contents(&fs);
        assert!((0..20).all(|cut| contents(&fs.crash_image(cut)) == whole), "seed {seed}");
    }
}

#[test]
fn the_journal_lists_the_operations_in_order() {
    let fs = MemFs::new();
    assert!(fs.recorded().is_empty() && fs.log().is_empty());
    fs.record();
    fs.create_dir_all(path("/db")).unwrap();
    let file = fs.create(path("db/./1.wal")).unwrap();
    file.allocate(4096).unwrap();
    file.write_at(8, b"abc").unwrap();
    file.set_len(11).unwrap();
    file.sync().unwrap();
    fs.rename(path("db/1.wal"), path("db/2.wal")).unwrap();
    fs.link(path("db/2.wal"), path("db/3.wal")).unwrap();
    fs.remove(path("db/2.wal")).unwrap();
    assert!(fs.remove(path("db/2.wal")).is_err(), "a refused operation is not in the journal");
    fs.sync_dir(path("db")).unwrap();
    drop(fs.lock(path("LOCK")).unwrap());
    fs.create_dir_all(path("db/x")).unwrap();
    fs.remove_dir(path("db/x")).unwrap();
    let expected = [
        "mkdir db",
        "sync-dir .",
        "create db/1.wal",
        "allocate db/1.wal 4096",
        "write db/1.wal 8..11",
        "set-len db/1.wal 11",
        "sync db/1.wal",
        "rename db/1.wal db/2.wal",
        "link db/2.wal db/3.wal",
        "remove db/2.wal",
        "sync-dir db",
        "create LOCK",
        "sync-dir .",
        "mkdir db/x",
        "sync-dir db",
        "remove-dir db/x",
    ];
    assert_eq!(fs.log(), expected);
    assert_eq!((fs.recorded(), fs.ops()), (0..=16, 16));
    assert!(fs.crash_image_at(17, 0).is_none());
    fs.record();
    assert_eq!(fs.recorded(), 16..=16);
    assert!(fs.crash_image_at(15, 0).is_none());
}

#[test]
fn a_write_over_the_quota_writes_the_part_that_fits() {
    let fs = MemFs::new();
    let file = put(&fs, "f", &[1; 1000]);
    fs.set_quota(Some(1500));
    assert_eq!(file.allocate(1501).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!((fs.used(), file.len().unwrap()), (1000, 1000));
    assert_eq!(file.write_at(900, &[2; 700]).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!((fs.used(), fs.read("f").unwrap()[1499]), (1500, 2));
    file.write_at(0, &[3; 1500]).unwrap(); // a write below the length always fits
    let other = fs.create(path("g")).unwrap();
    assert_eq!(other.write_at(0, b"a").unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(other.len().unwrap(), 0);
    fs.remove(path("f")).unwrap();
    other.write_at(0, b"a").unwrap();
    fs.set_quota(Some(0));
    other.write_at(0, b"b").unwrap();
    fs.set_quota(None);
    other.write_at(0, &[4; 4000]).unwrap();
}

#[test]
fn a_read_only_file_system_refuses_every_change() {
    let fs = MemFs::new();
    let file = put(&fs, "f", b"abc");
    fs.set_read_only(true);
    let refused = [
        file.write_at(0, b"x"),
        file.sync(),
        file.allocate(10),
        file.set_len(1),
        fs.create(path("g")).map(drop),
        fs.open_write(path("f")).map(drop),
        fs.rename(path("f"), path("g")),
        fs.remove(path("f")),
        fs.link(path("f"), path("g")),
        fs.create_dir_all(path("d")),
        fs.sync_dir(path(".")),
        fs.lock(path("LOCK")).map(drop),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(*fs.open_read(path("f")).unwrap().map().unwrap(), *b"abc");
    fs.set_read_only(false);
    file.write_at(0, b"x").unwrap();
}

#[test]
fn injected_damage_is_durable_and_not_counted_as_an_operation() {
    let fs = MemFs::new();
    put(&fs, "f", b"abc");
    let map = fs.open_read(path("f")).unwrap().map().unwrap();
    let ops = fs.ops();
    fs.flip("f", 1, 0xff).unwrap();
    assert_eq!((fs.read("f").unwrap(), &map[..]), (vec![b'a', !b'b', b'c'], &b"abc"[..]));
    fs.truncate("f", 2).unwrap();
    fs.write("g", b"new").unwrap();
    assert_eq!(fs.flip("f", 2, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    check_files(&fs, &["f g"]);
    assert_eq!(outcomes(&fs, |image| image.read("f").unwrap()).len(), 1);
    fs.erase("g").unwrap();
    check_files(&fs, &["f"]);
    assert_eq!((fs.ops(), fs.len("f").unwrap()), (ops, 2));
}

#[test]
fn unlinked_files_are_freed_when_unreferenced() {
    let fs = MemFs::new();
    let file = put(&fs, "f", &[1; 5000]);
    fs.remove(path("f")).unwrap();
    fs.sync_dir(path(".")).unwrap();
    assert_eq!(fs.state().tree.nodes.len(), 2, "open");
    file.write_at(0, b"x").unwrap();
    drop(file);
    assert_eq!(fs.state().tree.nodes.len(), 1);
}

#[test]
fn excessive_offsets_are_errors() {
    let fs = MemFs::new();
    let file = fs.create(path("f")).unwrap();
    assert_eq!(file.write_at(u64::MAX, b"ab").unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(file.allocate(1 << 60).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(fs.truncate("f", 1 << 60).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(file.len().unwrap(), 0);
}
