//! Splits ranges and merges neighbours, concurrently with all other work.
//! [`Maintenance::divide_one`] lists the steps.
//!
//! Invariants
//! * No byte of a table file moves. The new ranges reference the old files, and each reference is
//!   limited to a key span (its *clip*).
//! * A range begins at a possible key of an entity or at the start of a partition.
//!
//! `ranges::decide` decides when and where to split. `flush_placement` handles flushes that began
//! before a split or merge.

use std::sync::Arc;

use crate::error::{ErrorKind, Result};
use crate::format::edit::{RangeMeta, VersionEdit};
use crate::format::key::{TABLE_ID_BYTES, decode_part, decode_user_key, partition_of};
use crate::format::names::{FileNumber, RangeId, TableId};
use crate::format::span::Span;
use crate::manifest::{FileRange, FileReference, Version};
use crate::ranges::decide::{Candidate, Limits, cut_by_size, is_too_large};
use crate::ranges::divide;
use crate::sort::SortedMap;
use crate::sort::sort_by;

use super::maintenance::Maintenance;
use super::new_file::share;

/// The maximum number of index entries examined per file. This number suffices to estimate how many
/// of a range's bytes are below a key, with an error of at most 1 %.
const PLACES_MAX: usize = 4096;
/// Two neighbours are merged if together they have at most 1/4 of the bytes at which a range is
/// split. So the merged range must grow fourfold before it is split again.
const MERGE_PART: u64 = 4;
/// A range that no key can divide is examined again after growing by 1/8.
const GROWN_PART: u64 = 8;

/// A split or a merge of ranges because of their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Split(RangeId),
    Merge(RangeId, RangeId),
}

/// The outcome of an attempt to change ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Done,
    /// The change is not possible in the current state of the ranges.
    Declined,
    /// A job has claimed a range; try again later.
    Busy,
}

/// Returns the ranges to split, largest first, and then the neighbours to merge, smallest first.
fn by_size(sizes: &[(RangeId, TableId, u64)], limits: &Limits) -> Vec<Wanted> {
    let mut large: Vec<_> =
        sizes.iter().filter(|(_, _, bytes)| is_too_large(*bytes, limits)).collect();
    sort_by(&mut large, |a, b| (b.2, a.0).cmp(&(a.2, b.0)));
    let pairs = sizes.windows(2).filter(|pair| pair[0].1 == pair[1].1);
    let mut small: Vec<_> = pairs
        .map(|pair| (pair[0].2.saturating_add(pair[1].2), pair[0].0, pair[1].0))
        .filter(|(bytes, ..)| *bytes <= limits.merge_bytes)
        .collect();
    sort_by(&mut small, Ord::cmp);
    let splits = large.into_iter().map(|(id, ..)| Wanted::Split(*id));
    splits.chain(small.into_iter().map(|(_, left, right)| Wanted::Merge(left, right))).collect()
}

impl Maintenance {
    /// Splits a range with a high load, splits a range that is too large, or merges two small
    /// neighbours. Returns false if nothing is to be done; sizes are then not examined again until
    /// the version changes.
    ///
    /// 1. Claim the ranges, so that no job changes them.
    /// 2. Read from indexes what the edit needs: for a split the key and roughly how many bytes are
    ///    on each side of it, for a merge whether a file has a key between its two clips.
    /// 3. Under the install lock, check that the ranges still exist and build one edit
    ///    (`ranges::divide`). Files that a flush has added meanwhile are divided too. Publish the
    ///    view.
    pub(in crate::lsm) fn divide_one(&self) -> Result<bool> {
        let version = Arc::clone(&self.reader().view.load().version);
        let bytes = self.env().options.range_bytes;
        let limits = Limits {
            split_bytes: bytes,
            merge_bytes: bytes / MERGE_PART,
            ..Limits::for_files(self.env().options.run_file_bytes)
        };
        // Look for a loaded range on every call: unlike sizes, the load may change while the
        // version stays the same.
        let hot = self.env().loads.pick_by_load(&version, &limits, self.env().seconds());
        if let Some((id, at)) = hot
            && self.split_range(id, &at)?
        {
            return Ok(true);
        }
        if std::ptr::eq(self.state.divided.lock().version.as_ptr(), Arc::as_ptr(&version)) {
            return Ok(false);
        }
        let stays = |range: &&Arc<FileRange>| {
            !self.is_quarantined(range.id) && !self.reader().dropped.contains(range.table)
        };
        let ranges = version.ranges.iter().filter(stays);
        let sizes: Vec<_> = ranges.map(|range| (range.id, range.table, range.bytes())).collect();
        let mut is_complete = true;
        for wanted in by_size(&sizes, &limits) {
            match self.carry_out(&version, wanted, &limits) {
                Ok(Attempt::Done) => return Ok(true),
                Ok(Attempt::Declined) => {}
                Ok(Attempt::Busy) => is_complete = false,
                // This range is quarantined from now on; other ranges continue.
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    let (Wanted::Split(id) | Wanted::Merge(id, _)) = wanted;
                    if let Some(range) = version.ranges.get(id) {
                        self.quarantine(range, &error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if is_complete {
            let mut seen = self.state.divided.lock();
            seen.version = Arc::downgrade(&version);
            seen.whole.retain(|id, _| version.ranges.get(*id).is_some());
        }
        Ok(false)
    }

    fn carry_out(&self, version: &Version, wanted: Wanted, limits: &Limits) -> Result<Attempt> {
        match wanted {
            Wanted::Merge(left, right)
                if !self.env().loads.may_merge(left, right, limits, self.env().seconds()) =>
            {
                Ok(Attempt::Declined)
            }
            Wanted::Merge(left, right) => self.try_merge(left, right),
            Wanted::Split(id) => {
                let _work = self.state.work()?;
                self.claimed(id, || self.split_by_size(version, id))
            }
        }
    }

    fn split_by_size(&self, version: &Version, id: RangeId) -> Result<Attempt> {
        let Some(range) = version.ranges.get(id) else { return Ok(Attempt::Declined) };
        let bytes = range.bytes();
        let known = self.state.divided.lock().whole.get(&id).copied();
        if known.is_some_and(|then| bytes <= then.saturating_add(then / GROWN_PART)) {
            return Ok(Attempt::Declined);
        }
        match self.split_key_by_size(range)? {
            Some(key) => self.split_claimed(id, &key),
            None => {
                self.state.divided.lock().whole.insert(id, bytes);
                Ok(Attempt::Declined)
            }
        }
    }

    /// Splits a range at `key`, which becomes the first key of the upper part. Returns false if the
    /// split was declined: the range no longer exists, a job has claimed it, or `key` is not a
    /// possible boundary inside the range.
    ///
    /// # Errors
    /// Errors of reading indexes and writing the manifest.
    pub(crate) fn split_range(&self, id: RangeId, key: &[u8]) -> Result<bool> {
        let _work = self.state.work()?;
        Ok(self.claimed(id, || self.split_claimed(id, key))? == Attempt::Done)
    }

    /// Merges two neighbours into one range. Returns false if the merge was declined: a range no
    /// longer exists or is claimed, the two are not neighbours in one table, or their files cannot
    /// be in one range before a compaction has merged them.
    ///
    /// # Errors
    /// Errors of reading files and writing the manifest.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn merge_ranges(&self, left: RangeId, right: RangeId) -> Result<bool> {
        Ok(self.try_merge(left, right)? == Attempt::Done)
    }

    /// Finds a key that splits `range` into two parts of about equal size. The key is the start of
    /// a partition if this divides the range well enough, otherwise the key of a row. Returns
    /// `None` if no such key exists.
    pub(crate) fn split_key_by_size(&self, range: &FileRange) -> Result<Option<Box<[u8]>>> {
        let mut places: Vec<(Box<[u8]>, u64)> = Vec::new();
        for (_, reference) in range.references() {
            let sst = self.env().open_sst(&reference.file)?;
            let found = sst.places(&reference.clip, PLACES_MAX)?;
            // `places` returns the bytes of the blocks before each boundary, but not of those after
            // the last boundary. Assume that the blocks after the last boundary have the average
            // size of the others. Distribute the other bytes of the reference in proportion to the
            // returned bytes.
            let whole = found.iter().map(|(_, bytes)| bytes).sum::<u64>().max(1);
            let parts = found.len() as u64;
            let inside = share(reference.bytes, parts, parts + 1);
            places.extend(found.into_iter().map(|(key, bytes)| (key, share(inside, bytes, whole))));
        }
        sort_by(&mut places, Ord::cmp);
        let mut below = 0;
        let mut candidates: Vec<Candidate> = Vec::with_capacity(places.len());
        for (key, bytes) in places {
            below += bytes;
            match candidates.last_mut() {
                Some(last) if last.key == key => last.below = below,
                _ => candidates.push(Candidate { key, below }),
            }
        }
        match cut_by_size(&candidates, range.bytes(), 0.0) {
            Some(key) => self.boundary_at(range, &key),
            None => Ok(None),
        }
    }

    /// Returns a boundary between the keys below `key` and the next key that `range` holds. `key`
    /// may be truncated. The boundary is the start of the next key's partition if `key` is at or
    /// below that start, otherwise the next key itself.
    fn boundary_at(&self, range: &FileRange, key: &[u8]) -> Result<Option<Box<[u8]>>> {
        let mut next: Option<Box<[u8]>> = None;
        for (_, reference) in range.references() {
            let low = key.max(&*reference.clip.low);
            if let Some(found) = self.env().open_sst(&reference.file)?.key_from(low)?
                && reference.clip.contains(&found)
                && next.as_ref().is_none_or(|next| found < *next)
            {
                next = Some(found);
            }
        }
        let Some(next) = next else { return Ok(None) };
        let partition = partition_of(&next).unwrap_or(&next);
        // If `key` is not inside the partition of the next key, it is below that whole partition.
        let boundary: Box<[u8]> = if key <= partition { partition.into() } else { next };
        Ok(is_boundary(range, &boundary).then_some(boundary))
    }

    /// Runs `work` while the range is claimed.
    fn claimed(&self, id: RangeId, work: impl FnOnce() -> Result<Attempt>) -> Result<Attempt> {
        if !self.state.claim(id) {
            return Ok(Attempt::Busy);
        }
        let done = work();
        self.state.release(id);
        done
    }

    fn split_claimed(&self, id: RangeId, key: &[u8]) -> Result<Attempt> {
        let version = Arc::clone(&self.reader().view.load().version);
        let Some(range) = version.ranges.get(id).filter(|range| is_boundary(range, key)) else {
            return Ok(Attempt::Declined);
        };
        let mut known: SortedMap<FileNumber, u64> = SortedMap::default();
        for (_, reference) in range.references() {
            if *reference.clip.low < *key && !reference.clip.ends_before(key) {
                known.insert(reference.file.meta.number, self.bytes_below(reference, key)?);
            }
        }
        // The sizes of files that a flush adds before the edit are not known. Assume that half of
        // their bytes are on each side.
        let left_bytes = |reference: &FileReference| {
            known.get(&reference.file.meta.number).copied().unwrap_or(reference.bytes / 2)
        };
        self.install_ranges(|version, first| {
            let range = version.ranges.get(id)?;
            Some(divide::split(range, key, (first, RangeId(first.0 + 1)), left_bytes))
        })
    }

    /// Returns about how many bytes of `reference` are below `key`.
    fn bytes_below(&self, reference: &FileReference, key: &[u8]) -> Result<u64> {
        let sst = self.env().open_sst(&reference.file)?;
        let sides = [Span::new(&[], Some(key)), Span::new(key, None)];
        let [below, above] = sides.map(|side| match reference.clip.intersect(&side) {
            Some(clip) => sst.part(&clip).map(|part| part.bytes),
            None => Ok(0),
        });
        let (below, above) = (below?, above?);
        Ok(share(reference.bytes, below, below.saturating_add(above)))
    }

    fn try_merge(&self, left: RangeId, right: RangeId) -> Result<Attempt> {
        let _work = self.state.work()?;
        if left == right {
            return Ok(Attempt::Declined);
        }
        self.claimed(left, || self.claimed(right, || self.merge_claimed(left, right)))
    }

    fn merge_claimed(&self, left: RangeId, right: RangeId) -> Result<Attempt> {
        let version = Arc::clone(&self.reader().view.load().version);
        let (Some(a), Some(b)) = (version.ranges.get(left), version.ranges.get(right)) else {
            return Ok(Attempt::Declined);
        };
        // The files that both ranges reference and that have no key between the two clips. Each
        // file is listed with both clips.
        let mut empty: Vec<(FileNumber, Span, Span)> = Vec::new();
        for (_, reference) in a.references() {
            let number = reference.file.meta.number;
            let other = b.references().find(|(_, other)| other.file.meta.number == number);
            let Some((_, other)) = other else { continue };
            let Some(end) = &reference.clip.high else { continue };
            let next = self.env().open_sst(&reference.file)?.key_from(end)?;
            if next.is_none_or(|next| *next >= *other.clip.low) {
                empty.push((number, reference.clip.clone(), other.clip.clone()));
            }
        }
        let gap_is_empty = |a: &FileReference, b: &FileReference| {
            empty.iter().any(|(number, left, right)| {
                (*number, left, right) == (a.file.meta.number, &a.clip, &b.clip)
            })
        };
        self.install_ranges(|version, first| {
            let (a, b) = (version.ranges.get(left)?, version.ranges.get(right)?);
            divide::merge(a, b, first, gap_is_empty)
        })
    }

    /// Builds an edit and makes it durable, then publishes the resulting version. `edit` receives
    /// the current version and the first of two new range ids.
    fn install_ranges(
        &self,
        edit: impl Fn(&Version, RangeId) -> Option<VersionEdit>,
    ) -> Result<Attempt> {
        let mut manifest = self.install.lock();
        let first = manifest.next_numbers(2);
        let first =
            RangeId(first.map_err(|error| self.writer.poison_on_failure(&manifest, error))?.0);
        let version = Arc::clone(manifest.version());
        let Some(edit) = edit(&version, first) else { return Ok(Attempt::Declined) };
        let is_new = |range: &RangeMeta| range.id >= first;
        debug_assert!(edit.add_ranges.iter().all(is_new), "new ranges have new numbers");
        let version = self.append_edit(&mut manifest, &edit)?;
        self.reader().change_view(|view| view.with_version(&version, None));
        self.env().loads.follow_ranges(&edit, self.env().seconds());
        self.state.record_ranges(edit.add_ranges.len() > 1);
        drop(manifest);
        self.emit_ranges(&edit);
        Ok(Attempt::Done)
    }
}

/// True if `range` may be split at `key`: `key` is a valid entity key of the range's table, or the
/// start of a partition.
fn is_boundary(range: &FileRange, key: &[u8]) -> bool {
    let is_key = key.len() > TABLE_ID_BYTES
        && decode_user_key(key).is_ok_and(|(table, pk, rk)| {
            table == range.table && decode_part(pk).is_ok() && decode_part(rk).is_ok()
        });
    is_key && *key > *range.span.low && range.span.contains(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sizes: &[(u64, u32, u64)], expected: &[Wanted]) {
        let sizes: Vec<_> = sizes
            .iter()
            .map(|(id, table, bytes)| (RangeId(*id), TableId(*table), *bytes))
            .collect();
        let limits = Limits { split_bytes: 100, merge_bytes: 25, ..Limits::for_files(1) };
        assert_eq!(by_size(&sizes, &limits), expected);
    }

    #[test]
    fn the_largest_range_is_split_first_and_small_neighbours_of_a_table_are_merged() {
        let [one, two, three] = [RangeId(1), RangeId(2), RangeId(3)];
        check(&[], &[]);
        check(&[(1, 1, 100), (2, 1, 26)], &[]);
        check(&[(1, 1, 101), (2, 2, 300)], &[Wanted::Split(two), Wanted::Split(one)]);
        check(&[(1, 1, 10), (2, 1, 15), (3, 2, 0)], &[Wanted::Merge(one, two)]);
        check(
            &[(1, 1, 10), (2, 1, 15), (3, 1, 2)],
            &[Wanted::Merge(two, three), Wanted::Merge(one, two)],
        );
    }

    #[test]
    fn split_ranges_are_not_merged_and_merged_ranges_not_split() {
        let limits = Limits { split_bytes: 1000, merge_bytes: 250, ..Limits::for_files(1) };
        for bytes in [1001u64, 1500, 5000] {
            for below in [bytes / 10, bytes / 2, bytes - bytes / 5] {
                let halves = [below, bytes - below];
                let sizes =
                    [(RangeId(1), TableId(1), halves[0]), (RangeId(2), TableId(1), halves[1])];
                let wanted = by_size(&sizes, &limits);
                assert!(!wanted.contains(&Wanted::Merge(RangeId(1), RangeId(2))), "{halves:?}");
            }
        }
        assert_eq!(by_size(&[(RangeId(1), TableId(1), limits.merge_bytes)], &limits), []);
    }
}
