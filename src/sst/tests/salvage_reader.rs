//! Tests that reading a damaged file returns only entries that were written, and reports every
//! loss.

use super::*;

/// Reads a damaged file and returns the number of entries read, or `None` if it cannot be opened.
/// Panics if an entry was never written, or if entries are missing without a reported gap.
fn check_remains(written: &Written, meta: Option<&FileMeta>) -> Option<usize> {
    let shapes = Shapes::new(1 << 20);
    let mut remains = SalvageReader::open(&written.fs, Path::new(FILE), meta, &shapes).ok()?;
    let mut expected = written.entries.iter().peekable();
    let mut read = 0;
    loop {
        let block = remains.next_block();
        let first = block.as_ref().and_then(|entries| entries.first());
        let mut passed = 0;
        while let Some(next) = expected.peek()
            && first.is_none_or(|first| (&next.key, next.seq) != (&first.key, first.seq))
        {
            expected.next();
            passed += 1;
        }
        assert!(passed == 0 || remains.has_gap, "{passed} entries are lost without a reported gap");
        let Some(entries) = block else { break };
        for entry in entries {
            let expected = expected.next().expect("an entry that was never written");
            assert_eq!((&entry.key, entry.seq), (&expected.key, expected.seq));
            assert!(entry.row.is_none() || entry.row == expected.row);
            read += 1;
        }
    }
    assert!(read == written.entries.len() || !remains.problems.is_empty(), "nothing is wrong");
    Some(read)
}

fn sample(codec: Codec, block_bytes: usize) -> Written {
    let mut rng = Rng::from_seed(5);
    write(random_entries(&mut rng, 400), options(block_bytes, codec))
}

/// Returns the codecs of this build, each with a block size.
fn layouts() -> impl Iterator<Item = (Codec, usize)> {
    let all = [(Codec::None, 512), (Codec::Zstd, 1024), (Codec::None, 4096)];
    all.into_iter().filter(|(codec, _)| cfg!(feature = "zstd") || *codec == Codec::None)
}

#[test]
fn a_sound_file_is_read_whole_with_and_without_a_manifest() {
    for (codec, block_bytes) in layouts() {
        let written = sample(codec, block_bytes);
        let all = Some(written.entries.len());
        assert_eq!(check_remains(&written, Some(&written.meta)), all);
        assert_eq!(check_remains(&written, None), all);
    }
}

#[test]
fn trap_24_each_damaged_byte_loses_at_most_one_block() {
    for (codec, block_bytes) in [(Codec::None, 512), (Codec::None, 4096)] {
        let written = sample(codec, block_bytes);
        let all = written.entries.len();
        for at in (0..written.meta.bytes).step_by(7) {
            written.fs.flip(FILE, at, 0x10).unwrap();
            let read = check_remains(&written, Some(&written.meta)).unwrap();
            let largest = block_bytes / 8;
            assert!(read + largest >= all, "{read} of {all} are left after byte {at}");
            let alone = check_remains(&written, None).unwrap();
            assert!(alone + largest >= all, "{alone} of {all} are left after byte {at}");
            written.fs.flip(FILE, at, 0x10).unwrap();
        }
    }
}

/// Without handles, the end of each block shows where the next one begins. After a damaged block, a
/// search must find the next one.
#[test]
fn blocks_are_found_without_handles() {
    for (codec, block_bytes) in layouts() {
        let written = sample(codec, block_bytes);
        let handles = *written.meta.section(section::HANDLES).unwrap();
        written.fs.flip(FILE, handles.offset + 30, 1).unwrap();
        assert_eq!(check_remains(&written, None), Some(written.entries.len()));
        let rows = written.meta.section(section::ROWS).unwrap();
        written.fs.flip(FILE, rows.offset + 10, 1).unwrap();
        let left = check_remains(&written, None).unwrap();
        assert!(left > written.entries.len() / 2 && left < written.entries.len(), "{left}");
    }
}

/// The search must end even if every offset looks like the header of a block that fills the rest of
/// the file. The blocks before these bytes must still be returned.
#[test]
fn a_search_among_false_block_headers_ends() {
    let written = sample(Codec::None, 512);
    let handles = *written.meta.section(section::HANDLES).unwrap();
    written.fs.flip(FILE, handles.offset + 30, 1).unwrap();
    let rows = *written.meta.section(section::ROWS).unwrap();
    let mut bytes = written.fs.read(FILE).unwrap();
    let (from, to) = (rows.offset as usize + 2_048, (rows.offset + rows.len) as usize);
    for at in (from..to - 64).step_by(20) {
        let len = (to - at - 40) as u32;
        bytes[at..at + 20].fill(0);
        bytes[at] = BlockKind::Rows as u8;
        bytes[at + 16..at + 20].copy_from_slice(&len.to_le_bytes());
    }
    written.fs.write(FILE, &bytes).unwrap();
    let registry = Shapes::new(1 << 20);
    let mut remains =
        SalvageReader::open(&written.fs, Path::new(FILE), Some(&written.meta), &registry).unwrap();
    let left = std::iter::from_fn(|| remains.next_block()).map(|block| block.len()).sum::<usize>();
    assert!(left > 0 && left < written.entries.len() / 2, "{left}");
    let told = remains.problems.iter().any(|error| error.chain().contains("none fills it"));
    assert!(told, "{:?}", remains.problems);
}

#[test]
fn a_file_that_is_cut_keeps_its_beginning() {
    let written = sample(Codec::None, 512);
    for len in [0, 10, 40, 700, 5_000, written.meta.bytes - 1] {
        let cut =
            Written { fs: memory(), meta: written.meta.clone(), entries: written.entries.clone() };
        cut.fs.write(FILE, &written.fs.read(FILE).unwrap()).unwrap();
        cut.fs.truncate(FILE, len).unwrap();
        let read = check_remains(&cut, Some(&cut.meta)).unwrap();
        assert!(read > 0 || len < 1_000, "{read} of a file cut at {len}");
        let alone = check_remains(&cut, None);
        assert_eq!(alone.is_some(), len >= 32, "the header has the id of the file");
    }
}

/// If the shapes are lost, the entries must still have their keys, Seqs and kinds, but no rows.
#[test]
fn rows_without_shapes_are_reported_as_lost() {
    let written = sample(Codec::None, 512);
    let shapes = written.meta.section(section::SHAPES).unwrap();
    written.fs.flip(FILE, shapes.offset + 30, 1).unwrap();
    let registry = Shapes::new(1 << 20);
    let mut remains =
        SalvageReader::open(&written.fs, Path::new(FILE), Some(&written.meta), &registry).unwrap();
    let mut entries = Vec::new();
    while let Some(block) = remains.next_block() {
        entries.extend(block);
    }
    assert_eq!(entries.len(), written.entries.len());
    assert!(entries.iter().all(|entry| entry.row.is_none()));
    assert!(entries.iter().any(|entry| entry.kind == Kind::Put));
}
