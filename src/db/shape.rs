//! Describes a table's stored data: the number and sizes of partitions, and the order in which they
//! were created.
//!
//! `partitions` describes the load; `advice` detects problems in the choice of keys.

use crate::error::Result;
use crate::format::key::{TABLE_ID_BYTES, decode_part, decode_user_key};
use crate::format::names::TableId;
use crate::format::span::whole_table;
use crate::lsm::Engine;
use crate::rng::Rng;
use crate::sort::sort_by;

/// The median size is computed from a sample of this many partitions. It is exact if there are not
/// more.
const SIZES_MAX: usize = 4_096;
/// Number of rows sampled to find out in which parts of the table the newest ones are.
const ROWS_MAX: usize = 4_096;
/// Number of parts into which a table is cut to report each part's share of the newest rows.
const SLICES: usize = 20;
/// Number of partitions in [`DataShape::largest`].
const LARGEST: usize = 10;

/// The distribution of a table's entities over partitions.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DataShape {
    /// Whether all entities were read. If a limit ended reading, the figures cover only the first
    /// entities in key order.
    pub complete: bool,
    /// The number of entities read.
    pub entities: u64,
    /// The size of the entities' keys and rows in bytes, as encoded.
    pub bytes: u64,
    /// The number of distinct PartitionKeys.
    pub partitions: u64,
    /// The number of partitions with a single entity.
    pub single_partitions: u64,
    /// The median number of entities per partition, from a sample of 4,096 if there are more
    /// partitions.
    pub median_entities: u64,
    /// The largest partitions by bytes, largest first; at most ten.
    pub largest: Vec<PartitionSize>,
    /// The share, 0 to 1, of pairs of neighbouring partitions, in key order, in which the one with
    /// the higher key was created later. About 0.5 if keys are independent of time.
    pub ascending: f64,
    /// Where the newest entities are. The table is cut in key order into twenty parts with equal
    /// numbers of entities. Each value is a part's share, 0 to 1, of the newest tenth of the
    /// entities, from a sample of 4,096. Empty for rows that an import samples from a file.
    pub newest: Vec<f64>,
    /// The highest PartitionKey.
    pub last: String,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionSize {
    /// The PartitionKey.
    pub partition_key: String,
    /// The number of entities.
    pub entities: u64,
    /// The size of the entities' keys and rows in bytes, as encoded.
    pub bytes: u64,
}

/// Computes a [`DataShape`] from partitions that are added one by one.
pub(crate) struct ShapeBuilder {
    shape: DataShape,
    sizes: Vec<u64>,
    rng: Rng,
    ascending: u64,
    pairs: u64,
    /// A sample of rows: the position in key order, and the time of writing.
    rows: Vec<(u64, u64)>,
    rows_seen: u64,
}

impl ShapeBuilder {
    pub(crate) fn new() -> Self {
        Self {
            shape: DataShape::default(),
            sizes: Vec::new(),
            rng: Rng::from_seed(0),
            ascending: 0,
            pairs: 0,
            rows: Vec::new(),
            rows_seen: 0,
        }
    }

    /// Adds a partition. Each partition must be added once.
    pub(crate) fn add(&mut self, partition: PartitionSize) {
        let shape = &mut self.shape;
        shape.partitions += 1;
        shape.entities += partition.entities;
        shape.bytes += partition.bytes;
        shape.single_partitions += u64::from(partition.entities == 1);
        if shape.last < partition.partition_key {
            shape.last.clone_from(&partition.partition_key);
        }
        if self.sizes.len() < SIZES_MAX {
            self.sizes.push(partition.entities);
        } else {
            if let Some(size) = self.sizes.get_mut(self.rng.below(shape.partitions) as usize) {
                *size = partition.entities;
            }
        }
        let rank = |p: &PartitionSize| (std::cmp::Reverse(p.bytes), p.partition_key.clone());
        let at = shape.largest.partition_point(|other| rank(other) < rank(&partition));
        if at < LARGEST {
            shape.largest.insert(at, partition);
            shape.largest.truncate(LARGEST);
        }
    }

    /// Counts a pair of different keys. `is_ascending` states whether the higher key was written
    /// later.
    pub(crate) fn add_pair(&mut self, is_ascending: bool) {
        self.pairs += 1;
        self.ascending += u64::from(is_ascending);
    }

    /// Adds the next row in key order, written at `time`.
    pub(crate) fn add_row(&mut self, time: u64) {
        let row = (self.rows_seen, time);
        self.rows_seen += 1;
        if self.rows.len() < ROWS_MAX {
            self.rows.push(row);
        } else if let Some(kept) = self.rows.get_mut(self.rng.below(self.rows_seen) as usize) {
            *kept = row;
        }
    }

    /// Returns the share of the newest tenth of the rows in each part of the table.
    fn newest(&self) -> Vec<f64> {
        let mut by_time = self.rows.clone();
        sort_by(&mut by_time, |a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        by_time.truncate(self.rows.len().div_ceil(10));
        let mut parts = vec![0.0; if by_time.is_empty() { 0 } else { SLICES }];
        for (place, _) in &by_time {
            let part = (place * SLICES as u64 / self.rows_seen) as usize;
            if let Some(part) = parts.get_mut(part) {
                *part += 1.0 / by_time.len() as f64;
            }
        }
        parts
    }

    pub(crate) fn finish(mut self, complete: bool) -> DataShape {
        self.sizes.sort_unstable();
        self.shape.median_entities = self.sizes.get(self.sizes.len() / 2).copied().unwrap_or(0);
        self.shape.ascending = match self.pairs {
            0 => 0.5,
            pairs => self.ascending as f64 / pairs as f64,
        };
        self.shape.newest = self.newest();
        self.shape.complete = complete;
        self.shape
    }
}

/// Reads the keys of a table, at most `entities_max`.
pub(super) fn read(engine: &Engine, table: TableId, entities_max: u64) -> Result<DataShape> {
    let mut builder = ShapeBuilder::new();
    let mut scan = engine.scan(&whole_table(table), None)?;
    let mut current: Option<(Vec<u8>, PartitionSize, u64)> = None;
    let mut begun_before = None;
    let (mut entities, mut complete) = (0, true);
    let mut close = |builder: &mut ShapeBuilder,
                     (_, size, begun): (Vec<u8>, PartitionSize, u64)| {
        if let Some(before) = begun_before.replace(begun) {
            builder.add_pair(begun > before);
        }
        builder.add(size);
    };
    while scan.advance()? {
        if entities == entities_max {
            complete = false;
            break;
        }
        entities += 1;
        let row = scan.row()?;
        builder.add_row(row.seq.0);
        let bytes = (row.key.len() - TABLE_ID_BYTES + row.row.body.len()) as u64;
        let partition = decode_user_key(row.key).map_or(row.key, |(_, partition, _)| partition);
        match &mut current {
            Some((key, size, begun)) if *key == partition => {
                size.entities += 1;
                size.bytes += bytes;
                *begun = (*begun).min(row.seq.0);
            }
            _ => {
                let partition_key = decode_part(partition).map_or_else(
                    |_| String::from_utf8_lossy(partition).into_owned(),
                    |text| text.into_owned(),
                );
                let size = PartitionSize { partition_key, entities: 1, bytes };
                if let Some(ended) = current.replace((partition.to_vec(), size, row.seq.0)) {
                    close(&mut builder, ended);
                }
            }
        }
    }
    if let Some(last) = current {
        close(&mut builder, last);
    }
    Ok(builder.finish(complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(name: &str, entities: u64) -> PartitionSize {
        PartitionSize { partition_key: name.into(), entities, bytes: entities * 10 }
    }

    #[test]
    fn the_largest_and_the_median_are_found() {
        let mut builder = ShapeBuilder::new();
        for i in 0..100u64 {
            builder.add(partition(&format!("p{i:02}"), i * 37 % 100 + 1));
        }
        let shape = builder.finish(true);
        assert_eq!((shape.partitions, shape.entities, shape.single_partitions), (100, 5_050, 1));
        let largest: Vec<_> = shape.largest.iter().map(|p| p.entities).collect();
        assert_eq!(largest, (91..=100).rev().collect::<Vec<_>>());
        assert_eq!((shape.median_entities, shape.last.as_str()), (51, "p99"));
    }

    #[test]
    fn an_empty_database_has_a_shape() {
        let shape = ShapeBuilder::new().finish(true);
        assert_eq!((shape.partitions, shape.median_entities, shape.ascending), (0, 0, 0.5));
    }
}
