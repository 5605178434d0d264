//! Loom model: two threads read parts of a mapped file for the first time, in every interleaving.

use std::path::Path;

use loom::thread;

use super::*;
use crate::format::block::Sealer;
use crate::format::names::FileNumber;
use crate::fs::{Fs, MemFs};
use crate::model::Seq;
use crate::sync::check_model;

const ID: FileId = FileId(5);

/// Returns a mapped file with two blocks of equal length, and that length. The second block is
/// damaged.
fn source() -> (Arc<Source>, u64) {
    let mut bytes = Vec::new();
    for number in [0, 1] {
        let place = BlockPlace { kind: BlockKind::Rows, file: ID, number };
        Sealer::new(Packing::Plain).unwrap().seal_plain(place, b"rows", &mut bytes);
    }
    *bytes.last_mut().unwrap() ^= 1;
    let block_bytes = bytes.len() as u64 / 2;
    let (fs, path) = (MemFs::new(), Path::new("file"));
    fs.write(path, &bytes).unwrap();
    let file = fs.open_read(path).unwrap();
    let cache = Arc::new(BlockCache::new(0));
    let map = Some(Bytes::from(bytes).into());
    let mut source = Source::new(path.into(), &meta(), file, map, cache);
    source.expect(Area::Rows, 2);
    (Arc::new(source), block_bytes)
}

fn meta() -> FileMeta {
    FileMeta {
        number: FileNumber(1),
        id: ID,
        bytes: 0,
        seq_min: Seq::ZERO,
        seq_max: Seq::ZERO,
        visible_from: Seq::ZERO,
        tombstones_applied: Seq::ZERO,
        entries: 1,
        tombstones: 0,
        raw_bytes: 0,
        key_min: Box::default(),
        key_max: Box::default(),
        sections: Vec::new(),
        unknown: Box::default(),
    }
}

fn reads(source: &Source, block_bytes: u64, index: usize) -> bool {
    let start = index as u64 * block_bytes;
    source.block(Area::Rows, index, start..start + block_bytes, false).is_ok()
}

/// A block that fails its check must be refused to every reader, even if several threads read it
/// for the first time at once.
#[test]
fn trap_24_loom_a_damaged_block_is_refused_to_all_its_first_readers() {
    check_model(|| {
        let (source, block_bytes) = source();
        let other = thread::spawn({
            let source = Arc::clone(&source);
            move || reads(&source, block_bytes, 1)
        });
        assert!(!reads(&source, block_bytes, 1), "damaged");
        assert!(!other.join().unwrap(), "damaged");
    });
}

/// Two threads set the marks of different blocks in one word at the same time. Both marks must
/// stay, so that each block is checked only once.
#[test]
fn loom_marks_of_neighbours_stay() {
    check_model(|| {
        let (source, _) = source();
        let other = thread::spawn({
            let source = Arc::clone(&source);
            move || source.seen[Area::Rows as usize].set(0)
        });
        source.seen[Area::Rows as usize].set(1);
        other.join().unwrap();
        let seen = &source.seen[Area::Rows as usize];
        assert!(seen.get(0) && seen.get(1), "both were checked");
    });
}
