//! RocksDB by its C interface: as much of it as one comparison needs.
//!
//! Declared by hand after `rocksdb/c.h` of 7.8: the crates for it compile all of RocksDB.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar};
use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use crate::amplification::{pause, process_written};

/// As rowstone's side waits.
const QUIET: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(600);
/// `rocksdb_no_compression`.
const NO_COMPRESSION: c_int = 0;

/// What is not looked into.
#[repr(C)]
struct Opaque([u8; 0]);

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> *mut Opaque;
    fn rocksdb_options_destroy(options: *mut Opaque);
    fn rocksdb_options_set_create_if_missing(options: *mut Opaque, value: c_uchar);
    fn rocksdb_options_set_write_buffer_size(options: *mut Opaque, bytes: usize);
    fn rocksdb_options_set_compression(options: *mut Opaque, kind: c_int);
    fn rocksdb_options_enable_statistics(options: *mut Opaque);
    fn rocksdb_options_statistics_get_string(options: *mut Opaque) -> *mut c_char;
    fn rocksdb_writeoptions_create() -> *mut Opaque;
    fn rocksdb_writeoptions_destroy(options: *mut Opaque);
    fn rocksdb_flushoptions_create() -> *mut Opaque;
    fn rocksdb_flushoptions_destroy(options: *mut Opaque);
    fn rocksdb_open(
        options: *const Opaque,
        path: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Opaque;
    fn rocksdb_close(db: *mut Opaque);
    fn rocksdb_put(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_flush(db: *mut Opaque, options: *const Opaque, error: *mut *mut c_char);
    fn rocksdb_property_int(db: *mut Opaque, name: *const c_char, value: *mut u64) -> c_int;
    fn rocksdb_free(memory: *mut c_char);
}

/// An open RocksDB.
pub struct Rocks {
    db: *mut Opaque,
    options: *mut Opaque,
    writing: *mut Opaque,
}

impl Rocks {
    /// Leveled, by default in everything but the size of write buffers, compression (none) and statistics.
    pub fn open(dir: &Path, write_buffer_bytes: usize) -> Self {
        let path = CString::new(dir.to_str().expect("a path of text")).expect("no zero in it");
        let mut error = null_mut();
        // SAFETY: the pointers are what the calls before returned, the path ends with a zero, and `rocksdb_open` copies
        // what it keeps of both.
        let (db, options, writing) = unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_write_buffer_size(options, write_buffer_bytes);
            rocksdb_options_set_compression(options, NO_COMPRESSION);
            rocksdb_options_enable_statistics(options);
            let db = rocksdb_open(options, path.as_ptr(), &raw mut error);
            (db, options, rocksdb_writeoptions_create())
        };
        check(error);
        Self { db, options, writing }
    }

    /// Through the write-ahead log, not synced.
    pub fn put(&self, key: &[u8], value: &[u8]) {
        let mut error = null_mut();
        // SAFETY: the database is open, and both slices are valid for their lengths during the call.
        unsafe {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            let (db, writing, error) = (self.db, self.writing, &raw mut error);
            rocksdb_put(db, writing, key_at, key.len(), value_at, value.len(), error);
        }
        check(error);
    }

    /// Flushes the write buffer and waits for it.
    pub fn flush(&self) {
        let mut error = null_mut();
        // SAFETY: the database is open; the options, whose default is to wait, live until the call is over.
        unsafe {
            let options = rocksdb_flushoptions_create();
            rocksdb_flush(self.db, options, &raw mut error);
            rocksdb_flushoptions_destroy(options);
        }
        check(error);
    }

    /// Waits until nothing runs, nothing is pending and nothing is written. How long that took.
    pub fn rest(&self) -> Duration {
        let start = Instant::now();
        let (mut seen, mut since) = (process_written(), start);
        while since.elapsed() < QUIET {
            pause(Duration::from_millis(20));
            let busy = [
                c"rocksdb.num-running-compactions",
                c"rocksdb.compaction-pending",
                c"rocksdb.num-running-flushes",
                c"rocksdb.mem-table-flush-pending",
            ];
            let now = process_written();
            if now != seen || busy.iter().any(|name| self.property(name) > 0) {
                (seen, since) = (now, Instant::now());
            }
            if start.elapsed() > REST_MAX {
                println!("  NOT AT REST after {:.0} s", REST_MAX.as_secs_f64());
                break;
            }
        }
        since - start
    }

    /// A counter of the statistics.
    pub fn ticker(&self, name: &str) -> u64 {
        // SAFETY: statistics are enabled; the text ends with a zero, and is freed once it was copied.
        let text = unsafe {
            let text = rocksdb_options_statistics_get_string(self.options);
            assert!(!text.is_null(), "statistics are enabled");
            let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
            rocksdb_free(text);
            copy
        };
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" COUNT : "));
        line.and_then(|count| count.trim().parse().ok()).expect("a counter of this name")
    }

    /// A number that RocksDB tells of itself.
    pub fn property(&self, name: &CStr) -> u64 {
        let mut value = 0;
        // SAFETY: the database is open, the name ends with a zero, and the value is ours.
        let missing = unsafe { rocksdb_property_int(self.db, name.as_ptr(), &raw mut value) };
        assert_eq!(missing, 0, "{name:?} is a property");
        value
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: all were made by `open` and nobody has them any more.
        unsafe {
            rocksdb_close(self.db);
            rocksdb_writeoptions_destroy(self.writing);
            rocksdb_options_destroy(self.options);
        }
    }
}

/// Ends the run with what RocksDB complains of.
fn check(error: *mut c_char) {
    if !error.is_null() {
        // SAFETY: an error is a text that ends with a zero.
        panic!("RocksDB: {}", unsafe { CStr::from_ptr(error) }.to_string_lossy());
    }
}
