//! Counts the file syncs of this process, including those of linked C code: this file replaces
//! fsync and fdatasync of the C library.
//!
//! LMDB writes its meta page through a synchronous descriptor, which is not counted.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Returns the number of syncs so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

fn answer(result: rustix::io::Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            // SAFETY: the pointer is the C library's error location of the calling thread, which is
            // valid as long as the thread runs.
            unsafe { *__errno_location() = error.raw_os_error() };
            -1
        }
    }
}

/// Replaces the C library's function of this name.
#[unsafe(no_mangle)]
extern "C" fn fsync(fd: i32) -> i32 {
    COUNT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller keeps its descriptor open during the call. rustix makes the system call
    // itself, so it does not call this function.
    answer(rustix::fs::fsync(unsafe { BorrowedFd::borrow_raw(fd) }))
}

/// Replaces the C library's function of this name.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: i32) -> i32 {
    COUNT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as above.
    answer(rustix::fs::fdatasync(unsafe { BorrowedFd::borrow_raw(fd) }))
}
