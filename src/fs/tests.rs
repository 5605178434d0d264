//! Tests that every `Fs` implementation keeps its guarantees when no call fails and no power cut
//! happens.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::*;

/// A file system with an empty directory. If it is on disk, dropping `_guard` removes the
/// directory.
struct Storage {
    name: &'static str,
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    _guard: Option<tempfile::TempDir>,
}

impl Storage {
    fn all() -> Vec<Storage> {
        let guard = || tempfile::tempdir().unwrap();
        let on_disk = |name, fs: Arc<dyn Fs>, guard: tempfile::TempDir| Storage {
            name,
            fs,
            dir: guard.path().to_owned(),
            _guard: Some(guard),
        };
        let in_memory = |name, fs: Arc<dyn Fs>, dir: &str| {
            let dir = PathBuf::from(dir);
            fs.create_dir_all(&dir).unwrap();
            Storage { name, fs, dir, _guard: None }
        };
        let pinned = |fs: Arc<dyn Fs>, dir: &Path| {
            fs.create_dir_all(dir).unwrap();
            fs.pin(dir).unwrap().unwrap_or(fs)
        };
        let pinned_dir = guard();
        let pinned_disk = pinned(Arc::new(DiskFs::new()), pinned_dir.path());
        vec![
            on_disk("pinned disk", pinned_disk, pinned_dir),
            in_memory("pinned memory", pinned(Arc::new(MemFs::new()), Path::new("p/q")), "p/q"),
            on_disk("disk", Arc::new(DiskFs::new()), guard()),
            on_disk("fault over disk", Arc::new(FaultFs::new(Arc::new(DiskFs::new()))), guard()),
            in_memory("memory", Arc::new(MemFs::new()), "a/b"),
            in_memory("memory root", Arc::new(MemFs::new()), "."),
            in_memory(
                "few over memory",
                Arc::new(CachedHandleFs::new(Arc::new(MemFs::new()), 2)),
                "y",
            ),
            in_memory("fault", Arc::new(FaultFs::new(Arc::new(MemFs::new()))), "/x"),
        ]
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let file = self.fs.create(&self.at(name)).unwrap();
        file.write_at(0, bytes).unwrap();
        file.sync().unwrap();
    }

    fn get(&self, name: &str) -> Vec<u8> {
        read_small(&*self.fs, &self.at(name), 1 << 20).unwrap()
    }

    #[track_caller]
    fn refuses<T>(&self, result: io::Result<T>, kind: ErrorKind) {
        match result {
            Ok(_) => panic!("{}: succeeded, {kind:?} expected", self.name),
            Err(error) => assert_eq!(error.kind(), kind, "{}: {error}", self.name),
        }
    }
}

fn for_all(test: impl Fn(&Storage)) {
    for storage in Storage::all() {
        test(&storage);
    }
}

#[test]
fn bytes_are_read_back_where_they_were_written() {
    for_all(|s| {
        let file = s.fs.create(&s.at("f")).unwrap();
        file.write_at(5000, b"later").unwrap();
        file.write_at(0, b"first").unwrap();
        file.write_at(2, b"").unwrap();
        assert_eq!(file.len().unwrap(), 5005);
        let read = s.fs.open_read(&s.at("f")).unwrap();
        assert_eq!(read.len().unwrap(), 5005);
        let mut buffer = vec![1; 5005];
        read.read_at(0, &mut buffer).unwrap();
        assert_eq!((&buffer[..5], &buffer[5000..]), (&b"first"[..], &b"later"[..]));
        assert!(buffer[5..5000].iter().all(|byte| *byte == 0), "{}", s.name);
        s.refuses(read.read_at(5001, &mut [0; 5]), ErrorKind::UnexpectedEof);
        s.refuses(read.read_at(9000, &mut [0; 1]), ErrorKind::UnexpectedEof);
        read.read_at(9000, &mut []).or_else(|_| read.read_at(5005, &mut [])).unwrap();
    });
}

#[test]
fn random_writes_and_lengths_agree_with_a_vector() {
    for_all(|s| {
        let mut rng = crate::rng::Rng::from_seed(11);
        let file = s.fs.create(&s.at("f")).unwrap();
        let mut model: Vec<u8> = Vec::new();
        for round in 0..200u64 {
            let at = rng.below(20_000) as usize;
            match rng.below(6) {
                0 => {
                    file.set_len(at as u64).unwrap();
                    model.resize(at, 0);
                }
                1 => {
                    file.allocate(at as u64).unwrap();
                    model.resize(model.len().max(at), 0);
                }
                2 => file.sync().unwrap(),
                _ => {
                    let bytes = vec![round as u8 + 1; rng.below(6000) as usize];
                    file.write_at(at as u64, &bytes).unwrap();
                    if !bytes.is_empty() {
                        model.resize(model.len().max(at + bytes.len()), 0);
                        model[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
            }
            assert_eq!(file.len().unwrap(), model.len() as u64, "{} {round}", s.name);
            if round % 10 == 0 {
                assert!(s.get("f") == model, "{} {round}", s.name);
                let map = s.fs.open_read(&s.at("f")).unwrap().map().unwrap();
                assert!(*map == *model, "{} {round}", s.name);
            }
        }
    });
}

#[test]
fn a_map_covers_the_whole_file_and_survives_its_removal() {
    for_all(|s| {
        s.put("f", &[7; 10_000]);
        s.put("empty", b"");
        let read = s.fs.open_read(&s.at("f")).unwrap();
        let map = read.map().unwrap();
        assert!(*map == [7; 10_000] && *read.map().unwrap() == *map);
        assert!(s.fs.open_read(&s.at("empty")).unwrap().map().unwrap().is_empty());
        s.fs.remove(&s.at("f")).unwrap();
        assert!(*read.map().unwrap() == *map, "{}", s.name);
        drop(read);
        assert!(map.iter().all(|byte| *byte == 7), "{}", s.name);
        s.refuses(s.fs.open_read(&s.at("f")), ErrorKind::NotFound);
    });
}

#[test]
fn files_are_created_once_and_opened_only_if_they_are_there() {
    for_all(|s| {
        s.refuses(s.fs.open_write(&s.at("f")), ErrorKind::NotFound);
        s.refuses(s.fs.open_read(&s.at("f")), ErrorKind::NotFound);
        s.refuses(s.fs.create(&s.at("no/f")), ErrorKind::NotFound);
        assert!(!s.fs.exists(&s.at("f")).unwrap());
        s.put("f", b"abc");
        assert!(s.fs.exists(&s.at("f")).unwrap() && s.fs.exists(&s.dir).unwrap());
        s.refuses(s.fs.create(&s.at("f")), ErrorKind::AlreadyExists);
        s.fs.open_write(&s.at("f")).unwrap().write_at(1, b"X").unwrap();
        assert_eq!(s.get("f"), b"aXc");
        let error = read_small(&*s.fs, &s.at("f"), 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn a_rename_replaces_and_a_removed_name_is_free() {
    for_all(|s| {
        s.put("old", b"old");
        s.put("new", b"new");
        s.fs.rename(&s.at("new"), &s.at("old")).unwrap();
        assert_eq!((s.get("old"), s.fs.list(&s.dir).unwrap()), (b"new".into(), vec!["old".into()]));
        s.refuses(s.fs.rename(&s.at("new"), &s.at("old")), ErrorKind::NotFound);
        s.fs.remove(&s.at("old")).unwrap();
        s.refuses(s.fs.remove(&s.at("old")), ErrorKind::NotFound);
        s.put("old", b"again");
        assert_eq!(s.get("old"), b"again");
    });
}

#[test]
fn a_link_is_a_second_name() {
    for_all(|s| {
        s.put("f", b"abc");
        s.fs.link(&s.at("f"), &s.at("g")).unwrap();
        s.refuses(s.fs.link(&s.at("f"), &s.at("g")), ErrorKind::AlreadyExists);
        s.refuses(s.fs.link(&s.at("h"), &s.at("i")), ErrorKind::NotFound);
        s.fs.remove(&s.at("f")).unwrap();
        assert_eq!(s.get("g"), b"abc");
    });
}

#[test]
fn directories_are_made_listed_and_removed() {
    for_all(|s| {
        let deep = s.at("p/q/r");
        s.fs.create_dir_all(&deep).unwrap();
        s.fs.create_dir_all(&deep).unwrap();
        s.put("p/z", b"");
        s.put("p/a", b"");
        assert_eq!(s.fs.list(&s.at("p")).unwrap(), ["a", "q", "z"]);
        assert!(s.fs.list(&deep).unwrap().is_empty());
        s.fs.sync_dir(&deep).unwrap();
        s.refuses(s.fs.list(&s.at("no")), ErrorKind::NotFound);
        s.refuses(s.fs.sync_dir(&s.at("no")), ErrorKind::NotFound);
        s.refuses(s.fs.sync_dir(&s.at("p/a")), ErrorKind::NotADirectory);
        s.refuses(s.fs.create_dir_all(&s.at("p/a")), ErrorKind::NotADirectory);
        s.refuses(s.fs.create_dir_all(&s.at("p/a/b")), ErrorKind::NotADirectory);
        s.refuses(s.fs.remove_dir(&s.at("p/q")), ErrorKind::DirectoryNotEmpty);
        s.refuses(s.fs.rename(&s.at("p"), &s.at("p/q/p")), ErrorKind::InvalidInput);
        s.fs.remove_dir(&deep).unwrap();
        s.refuses(s.fs.remove_dir(&deep), ErrorKind::NotFound);
    });
}

#[test]
fn a_lock_is_held_by_one() {
    for_all(|s| {
        let path = s.at("LOCK");
        let lock = s.fs.lock(&path).unwrap();
        s.refuses(s.fs.lock(&path), ErrorKind::WouldBlock);
        s.refuses(s.fs.lock(&path), ErrorKind::WouldBlock);
        drop(lock);
        drop(s.fs.lock(&path).unwrap());
        assert!(s.fs.lock(&path).is_ok() && s.fs.exists(&path).unwrap(), "{}", s.name);
    });
}

#[test]
fn lengths_grow_and_are_cut() {
    for_all(|s| {
        let file = s.fs.create(&s.at("f")).unwrap();
        file.write_at(0, &[9; 1000]).unwrap();
        file.allocate(0).unwrap();
        file.allocate(500).unwrap();
        assert_eq!(file.len().unwrap(), 1000, "{}", s.name);
        file.allocate(70_000).unwrap();
        assert_eq!(file.len().unwrap(), 70_000, "{}", s.name);
        file.set_len(10).unwrap();
        file.set_len(20).unwrap();
        file.sync().unwrap();
        file.start_write_back(0, 20);
        file.start_write_back(0, 0);
        assert_eq!(s.get("f"), [&[9; 10][..], &[0; 10]].concat(), "{}", s.name);
    });
}

/// Reading a file that another process truncated must return an error, and must not raise a signal.
#[test]
fn trap_41_a_file_cut_under_its_reader_is_an_error() {
    for_all(|s| {
        s.put("f", &[1; 10_000]);
        let read = s.fs.open_read(&s.at("f")).unwrap();
        s.fs.open_write(&s.at("f")).unwrap().set_len(100).unwrap();
        s.refuses(read.read_at(0, &mut [0; 10_000]), ErrorKind::UnexpectedEof);
        s.refuses(read.read_at(8192, &mut [0; 1]), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn every_storage_names_its_kind() {
    for_all(|s| {
        let kind = s.fs.kind(&s.at("not/yet/there"));
        assert!(!kind.is_empty() && kind != "unknown" || cfg!(not(target_os = "linux")));
    });
}

#[test]
fn handles_serve_several_threads() {
    for_all(|s| {
        let file = s.fs.create(&s.at("f")).unwrap();
        file.set_len(40_000).unwrap();
        std::thread::scope(|scope| {
            for part in 0..4u64 {
                let file = &file;
                scope.spawn(move || {
                    (0..100).for_each(|i| {
                        file.write_at(part * 10_000 + i * 100, &[part as u8 + 1; 100]).unwrap();
                    });
                    file.sync().unwrap();
                });
            }
        });
        let bytes = s.get("f");
        assert!((0..40_000).all(|i| bytes[i] == (i / 10_000) as u8 + 1), "{}", s.name);
    });
}

/// The path of the database may be a bare name. Its parent is then the current directory.
#[test]
fn parents_of_bare_names() {
    assert_eq!(parent(Path::new("db")), Path::new("."));
    assert_eq!(parent(Path::new("a/db")), Path::new("a"));
    assert_eq!(parent(Path::new("/db")), Path::new("/"));
}

#[test]
#[cfg(unix)]
fn a_pinned_directory_is_followed_when_it_is_moved_and_its_lock_notices() {
    let guard = tempfile::tempdir().unwrap();
    let memory: Arc<dyn Fs> = Arc::new(FaultFs::new(Arc::new(MemFs::new())));
    for (fs, root) in
        [(Arc::new(DiskFs::new()) as Arc<dyn Fs>, guard.path()), (memory, "/r".as_ref())]
    {
        let (dir, moved) = (root.join("db"), root.join("moved"));
        fs.create_dir_all(&dir).unwrap();
        let pinned = fs.pin(&dir).unwrap().unwrap();
        let lock = pinned.lock(&dir.join("LOCK")).unwrap();
        assert!(lock.is_current().unwrap());
        fs.rename(&dir, &moved).unwrap();
        assert!(!lock.is_current().unwrap());
        // Create another directory at the old path, with a file of the same name.
        fs.create_dir_all(&dir).unwrap();
        fs.create(&dir.join("LOCK")).unwrap();
        assert!(!lock.is_current().unwrap());
        pinned.create(&dir.join("a")).unwrap();
        pinned.rename(&dir.join("a"), &dir.join("b")).unwrap();
        pinned.sync_dir(&dir).unwrap();
        assert_eq!(pinned.list(&dir).unwrap(), ["LOCK", "b"]);
        assert_eq!(fs.list(&moved).unwrap(), ["LOCK", "b"]);
        assert_eq!(fs.list(&dir).unwrap(), ["LOCK"]);
        pinned.remove(&dir.join("b")).unwrap();
        assert!(!fs.exists(&moved.join("b")).unwrap() && !pinned.exists(&dir.join("b")).unwrap());
    }
}

/// A change between two waits ends the next wait. The time limit is never reached: a watch that
/// missed the change would hang here.
#[test]
fn a_watch_reports_each_write() {
    for storage in Storage::all() {
        let (fs, path) = (&storage.fs, storage.dir.join("1.wal"));
        let file = fs.create(&path).unwrap();
        let mut watch = fs.watch(&storage.dir).unwrap();
        for offset in 0..3 {
            file.write_at(offset, b"a").unwrap();
            assert!(watch.wait(Duration::from_secs(100_000)).unwrap(), "{}", storage.name);
        }
        fs.rename(&path, &storage.dir.join("2.wal")).unwrap();
        assert!(watch.wait(Duration::from_secs(100_000)).unwrap(), "{}", storage.name);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_watch_of_the_disk_knows_when_nothing_changed() {
    let guard = tempfile::tempdir().unwrap();
    let disk = DiskFs::new();
    let pinned = disk.pin(guard.path()).unwrap().unwrap();
    for fs in [&disk as &dyn Fs, &*pinned] {
        let mut watch = fs.watch(guard.path()).unwrap();
        fs.list(guard.path()).unwrap();
        assert!(!watch.wait(Duration::ZERO).unwrap());
    }
}
