//! Tests point reads in files whose rows were partly merged into other files.

use std::sync::Arc;

use smallvec::smallvec;

use crate::format::key::user_key;
use crate::format::names::{FileName, FileNumber, TableId};
use crate::fs::MemFs;
use crate::lsm::Engine;
use crate::lsm::write::batch::{Action, Batch, Condition, Gate, Op, PackedRow, TableChange};
use crate::options::{Background, Durability, Options};
use crate::rng::Rng;

/// Opens a database with small limits, so that a run is merged in parts.
fn open(fs: &MemFs) -> Arc<Engine> {
    let options = Options::default().fs(Arc::new(fs.clone())).memtable_bytes(64 << 10);
    let options = options.run_file_bytes(64 << 10).block_bytes(512).seed(3);
    crate::lsm::open("db".as_ref(), options.background(Background::Manual)).unwrap()
}

fn put(engine: &Engine, gate: &Arc<Gate>, number: u64) {
    let key = user_key(TableId(7), "p", &format!("{number:06}"));
    let row = crate::model::Entity::new("p", "r").with("A", "x".repeat(60));
    let row = row.to_row(&engine.env().shapes).unwrap();
    let batch = Batch {
        ops: smallvec![Op {
            hash: engine.env().hash(&key),
            key: key.into(),
            condition: Condition::Any,
            action: Action::Put(PackedRow::of(row, &engine.env().shapes)),
        }],
        changes: Vec::new(),
        ..Batch::of_change(gate, TableChange::Created(TableId(7)))
    };
    engine.commit(&batch, Durability::Os).unwrap();
}

/// Returns a young file whose lowest keys were merged away, and the first of these keys.
fn partly_merged(engine: &Engine) -> Option<(FileNumber, Box<[u8]>)> {
    let view = engine.reader().view.load_full();
    let mut young = view.version.ranges.iter().flat_map(|range| &range.young);
    let found = young.find(|young| *young.clip.low > *young.file.meta.key_min)?;
    Some((found.file.meta.number, found.file.meta.key_min.clone()))
}

#[test]
fn damage_in_a_merged_part_of_a_file_affects_no_read() {
    let fs = MemFs::new();
    let engine = open(&fs);
    let (gate, mut rng) = (Arc::new(Gate::new(TableId(7))), Rng::from_seed(5));
    let (number, key) = 'found: loop {
        (0..1_000).for_each(|_| put(&engine, &gate, rng.below(100_000)));
        while engine.maintenance().step_any() {
            if let Some(found) = partly_merged(&engine) {
                break 'found found;
            }
        }
    };
    let view = engine.reader().view.load_full();
    let of: Vec<_> = view.version.sources(&key).map(|source| source.file.meta.number).collect();
    assert!(!of.is_empty() && !of.contains(&number));
    let image = fs.kill_image();
    // Damage the first block of rows.
    image.flip(format!("db/{}", FileName::Sst(number)), 32 + 24 + 40, 1).unwrap();
    let engine = open(&image);
    let got = engine.reader().get(&key, None, |_, _| Ok(()));
    assert!(matches!(got, Ok(Some(()))), "{got:?}");
}
