//! Tests the picker with simulated loads: each installed job must keep the order of files, reads
//! must need few sources, and bytes must not be rewritten too often.

use std::collections::BTreeMap;

use super::*;
use crate::format::names::RangeId;
use crate::format::names::TableId;
use crate::format::span::Span;
use crate::lsm::write::admission::JOB_RUN_FILES;
use crate::model::Seq;
use crate::rng::Rng;

const ENTRY_BYTES: u64 = 1000;

/// A file. `entries` maps each key to the Seq of its newest entry, and to whether that entry is a
/// delete.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    number: u64,
    seqs: (u64, u64),
    entries: BTreeMap<u32, (u64, bool)>,
}

impl RangeFile for File {
    fn number(&self) -> FileNumber {
        FileNumber(self.number)
    }

    fn seqs(&self) -> (Seq, Seq) {
        (Seq(self.seqs.0), Seq(self.seqs.1))
    }

    fn bytes(&self) -> u64 {
        self.entries.len() as u64 * ENTRY_BYTES
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sources_max: 8,
            run_file_bytes_min: 8 << 20,
            run_file_bytes_max: 64 << 20,
            job_bytes_max: JOB_RUN_FILES * (64 << 20),
            aged_below: Seq::ZERO,
            seen_below: Seq::ZERO,
            range_tombstone: Seq::ZERO,
            flush_bytes: u64::MAX,
            rests_below: Seq::ZERO,
            window_bytes: 0,
            small_range_bytes: 0,
            activity: Activity::Writing,
        }
    }
}

/// Implements the named methods of [`Facts`], which a test does not need.
macro_rules! unasked {
    (@readers) => {
        fn readers(&self, _: &Range<File>) -> Readers {
            Readers::Some
        }
    };
    (@hidden) => {
        fn hidden(&self, _: &[&Reference<File>], _: &[Reference<File>]) -> u64 {
            1_000
        }
    };
    (@used) => {
        fn used(&self, reference: &Reference<File>) -> u64 {
            reference.file.bytes()
        }
    };
    (@concealed) => {
        fn concealed(&self, _: &Reference<File>) -> u64 {
            0
        }
    };
    (@tombstones_end) => {
        fn tombstones_end(&self, _: &Reference<File>) -> Option<Box<[u8]>> {
            None
        }
    };
    (@$is:ident) => {
        fn $is(&self, _: &Reference<File>) -> bool {
            false
        }
    };
    ($($name:ident),*) => { $(unasked!(@$name);)* };
}

/// Facts that are computed from the files, except for a given read load.
struct ReadBy(Readers);

impl Facts<File> for ReadBy {
    unasked!(is_paid, is_damaged, concealed, wants_rewrite, is_compressible);

    fn readers(&self, _: &Range<File>) -> Readers {
        self.0
    }

    fn hidden(&self, young: &[&Reference<File>], run: &[Reference<File>]) -> u64 {
        let keys = || young.iter().flat_map(|r| counted(r)).map(|(key, _)| key);
        let run: Vec<_> = run.iter().map(|r| (bounds(r), &r.file.entries)).collect();
        let holds = |key: &&u32| {
            run.iter().any(|(bounds, entries)| bounds.contains(key) && entries.contains_key(key))
        };
        (keys().filter(holds).count() * 1_000 / keys().count()) as u64
    }

    fn part(&self, reference: &Reference<File>) -> Part {
        Exact.part(reference)
    }

    fn used(&self, reference: &Reference<File>) -> u64 {
        Exact.used(reference)
    }

    fn tombstones_end(&self, reference: &Reference<File>) -> Option<Box<[u8]>> {
        Exact.tombstones_end(reference)
    }

    fn key_at(&self, reference: &Reference<File>, bytes: u64) -> Option<Box<[u8]>> {
        Exact.key_at(reference, bytes)
    }
}

/// Facts computed from the files.
struct Exact;

impl Facts<File> for Exact {
    unasked!(is_paid, readers, hidden, is_damaged, concealed, wants_rewrite, is_compressible);

    fn used(&self, reference: &Reference<File>) -> u64 {
        self.part(reference).bytes
    }

    fn part(&self, reference: &Reference<File>) -> Part {
        let inside = || counted(reference);
        let entries = inside().count() as u64;
        let tombstones = inside().filter(|(_, (_, deletes))| *deletes).count() as u64;
        Part { bytes: entries * ENTRY_BYTES, entries, tombstones }
    }

    fn key_at(&self, reference: &Reference<File>, bytes: u64) -> Option<Box<[u8]>> {
        let found = counted(reference).nth((bytes / ENTRY_BYTES) as usize);
        found.map(|(number, _)| key(*number).into_bytes().into())
    }

    fn tombstones_end(&self, reference: &Reference<File>) -> Option<Box<[u8]>> {
        let last = counted(reference).rfind(|(_, (_, deletes))| *deletes);
        last.map(|(number, _)| key(number + 1).into_bytes().into())
    }
}

/// Facts computed from the files. The files with the given numbers are damaged.
struct Damaged<'a>(&'a [u64]);

impl Facts<File> for Damaged<'_> {
    unasked!(is_paid, readers, hidden, used, concealed, wants_rewrite, is_compressible);

    fn is_damaged(&self, reference: &Reference<File>) -> bool {
        self.0.contains(&reference.file.number)
    }

    fn part(&self, reference: &Reference<File>) -> Part {
        Exact.part(reference)
    }

    fn key_at(&self, reference: &Reference<File>, bytes: u64) -> Option<Box<[u8]>> {
        Exact.key_at(reference, bytes)
    }

    fn tombstones_end(&self, reference: &Reference<File>) -> Option<Box<[u8]>> {
        Exact.tombstones_end(reference)
    }
}

/// Returns the entries of a file inside its clip.
fn counted(
    reference: &Reference<File>,
) -> impl DoubleEndedIterator<Item = (&u32, &(u64, bool))> + use<'_> {
    reference.file.entries.range(bounds(reference))
}

/// Returns the range of key numbers inside the clip of a file.
fn bounds(reference: &Reference<File>) -> std::ops::Range<u32> {
    let low = number_of(&reference.clip.low);
    let high = reference.clip.high.as_deref().map_or(u32::MAX, number_of);
    low..high.max(low)
}

/// Returns the first number whose key is at or above `bound`.
fn number_of(bound: &[u8]) -> u32 {
    let Some(digits) = bound.get(..8) else { return 0 };
    let number: u32 = std::str::from_utf8(digits).unwrap().parse().unwrap();
    number + u32::from(bound.len() > 8)
}

fn key(key: u32) -> String {
    format!("{key:08}")
}

fn reference(file: File) -> Reference<File> {
    let first = file.entries.first_key_value().map(|(first, _)| key(*first)).unwrap();
    let last = file.entries.last_key_value().map(|(last, _)| key(*last)).unwrap();
    Reference::new(file, Span::inclusive(first.as_bytes(), last.as_bytes()), None)
}

/// One range, and statistics of a simulated load on it.
struct Tree {
    range: Range<File>,
    limits: Limits,
    seq: u64,
    number: u64,
    user_bytes: u64,
    written_bytes: u64,
    depth_max: usize,
    jobs: usize,
    /// The maximum number of bytes that a job has read.
    job_bytes_max: u64,
    partial: usize,
    /// The read load.
    readers: Readers,
    /// The expected contents: the newest Seq of each key, and whether the entry with it is a
    /// delete.
    model: BTreeMap<u32, (u64, bool)>,
}

impl Tree {
    fn new() -> Self {
        let limits = Limits {
            run_file_bytes_min: 100 * ENTRY_BYTES,
            run_file_bytes_max: 800 * ENTRY_BYTES,
            job_bytes_max: JOB_RUN_FILES * 800 * ENTRY_BYTES,
            ..Limits::default()
        };
        Self {
            range: empty(),
            limits,
            seq: 1,
            number: 0,
            user_bytes: 0,
            written_bytes: 0,
            depth_max: 0,
            jobs: 0,
            job_bytes_max: 0,
            partial: 0,
            readers: Readers::Some,
            model: BTreeMap::new(),
        }
    }

    fn file(&mut self, entries: BTreeMap<u32, (u64, bool)>) -> Reference<File> {
        self.number += 1;
        let seqs = || entries.values().map(|(seq, _)| *seq);
        let seqs = (seqs().min().unwrap(), seqs().max().unwrap());
        let reference = reference(File { number: self.number, seqs, entries });
        self.written_bytes += reference.file.bytes();
        reference
    }

    /// Flushes a memtable of writes to `keys`.
    fn flush(&mut self, keys: Vec<u32>) {
        self.flush_and_delete(keys, Vec::new());
    }

    /// Flushes a memtable with writes to `keys`, followed by deletes of `deletes`.
    fn flush_and_delete(&mut self, keys: Vec<u32>, deletes: Vec<u32>) {
        self.user_bytes += (keys.len() + deletes.len()) as u64 * ENTRY_BYTES;
        let mut entries = BTreeMap::new();
        let ops = keys.into_iter().map(|key| (key, false));
        for (key, deletes) in ops.chain(deletes.into_iter().map(|key| (key, true))) {
            entries.insert(key, (self.seq, deletes));
            self.seq += 1;
        }
        self.model.extend(&entries);
        let reference = self.file(entries);
        self.range.add(Placement::Young, reference);
        self.settle();
    }

    /// Runs jobs until none is picked.
    fn settle(&mut self) {
        for jobs in 0.. {
            let Some(job) = pick(&self.range, &ReadBy(self.readers), &self.limits) else { break };
            assert!(jobs < 100, "jobs do not end: {job:?}");
            self.run(&job);
            self.range.check().unwrap();
        }
        self.depth_max = self.depth_max.max(sources(&self.range));
    }

    fn run(&mut self, job: &Job) {
        self.jobs += 1;
        let numbers = job.young.iter().chain(&job.run);
        let inputs: Vec<_> = numbers.map(|n| self.range.remove(*n).unwrap()).collect();
        if job.is_join() {
            inputs.into_iter().for_each(|input| self.range.add(Placement::Run, input));
            return;
        }
        let below = Span::new(&[], job.below.as_deref());
        let mut merged: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
        let mut bytes = 0;
        for (i, input) in inputs.into_iter().enumerate() {
            let clip = input.clip.intersect(&below).expect("a job reads a part of each input");
            let taken = Reference::new(input.file.clone(), clip, None);
            bytes += Exact.part(&taken).bytes;
            for (key, entry) in counted(&taken) {
                let newest = merged.entry(*key).or_insert(*entry);
                *newest = (*newest).max(*entry);
            }
            let above = job.below.as_ref().map(|key| Span::new(key, None));
            let Some(rest) = above.and_then(|above| input.clip.intersect(&above)) else { continue };
            let placement = if i < job.young.len() { Placement::Young } else { Placement::Run };
            self.range.add(placement, Reference::new(input.file, rest, None));
        }
        assert_eq!(bytes, job.bytes, "{job:?}");
        self.job_bytes_max = self.job_bytes_max.max(bytes);
        self.partial += usize::from(job.below.is_some());
        if job.placement == Placement::Run {
            merged.retain(|_, (seq, deletes)| !*deletes || Seq(*seq) > self.limits.seen_below);
        }
        let entries_max = match job.placement {
            Placement::Run => (self.limits.run_file_bytes_max / ENTRY_BYTES) as usize,
            Placement::Young => usize::MAX,
        };
        let merged: Vec<_> = merged.into_iter().collect();
        for part in merged.chunks(entries_max) {
            let output = self.file(part.iter().copied().collect());
            if job.placement == Placement::Run {
                let older = self.range.references().filter(|(_, other)| {
                    other.clip.overlaps(&output.clip) && other.file.seqs().0 <= output.file.seqs().1
                });
                assert_eq!(older.count(), 0, "an older source is left out: {job:?}");
            }
            self.range.add(job.placement, output);
        }
    }

    /// Checks that reading each key returns its entry in `model`.
    fn check_reads(&self) {
        for (number, (seq, deletes)) in &self.model {
            let name = key(*number);
            let mut sources = self.range.sources(name.as_bytes());
            let found = sources.find_map(|source| source.file.entries.get(number));
            match found {
                Some(found) => assert_eq!(found, &(*seq, *deletes), "{name}"),
                None => assert!(deletes, "{name} is lost"),
            }
        }
    }

    fn amplification(&self) -> f64 {
        self.written_bytes as f64 / self.user_bytes as f64
    }

    fn tombstones(&self) -> u64 {
        self.range.references().map(|(_, r)| Exact.part(r).tombstones).sum()
    }
}

const MEMTABLE: u32 = 100;

fn simulate(flushes: u32, mut next: impl FnMut(&mut Rng, u32) -> u32) -> Tree {
    let mut tree = Tree::new();
    let mut rng = Rng::from_seed(7);
    for flush in 0..flushes {
        let writes = (0..MEMTABLE).map(|i| next(&mut rng, flush * MEMTABLE + i)).collect();
        tree.flush(writes);
        assert!(tree.depth_max <= tree.limits.sources_max, "{} sources", tree.depth_max);
    }
    tree
}

/// Flushes memtables without any readers. If `is_new`, every key is new, in random order; otherwise
/// the same keys are written repeatedly.
fn unread(flushes: u32, is_new: bool) -> Tree {
    let mut tree = Tree::new();
    tree.readers = Readers::Few;
    tree.limits.flush_bytes = u64::from(MEMTABLE) * ENTRY_BYTES;
    let mut rng = Rng::from_seed(11);
    let mut keys: Vec<u32> = (0..flushes * MEMTABLE).collect();
    for i in (1..keys.len()).rev() {
        keys.swap(i, rng.below(i as u64 + 1) as usize);
    }
    for some in keys.chunks(MEMTABLE as usize) {
        let keys = some.iter().map(|key| if is_new { *key } else { key % (20 * MEMTABLE) });
        tree.flush(keys.collect());
    }
    assert!(tree.depth_max <= tree.limits.sources_max, "{} sources", tree.depth_max);
    tree.check_reads();
    tree
}

#[test]
fn files_without_readers_are_merged_less_often() {
    for (flushes, most) in [(8, 1.7), (40, 2.7), (47, 2.6), (60, 2.9), (100, 3.0), (200, 4.7)] {
        let tree = unread(flushes, true);
        check(&format!("{flushes} unread memtables"), &tree, most);
        // The range was merged whole while it was small, so the first data is in the run.
        assert!(!tree.range.run.is_empty() || flushes < 4);
    }
}

#[test]
fn files_that_overwrite_the_run_are_merged_without_readers() {
    let tree = unread(100, false);
    let bytes: u64 = tree.range.references().map(|(_, r)| Exact.part(r).bytes).sum();
    let live = tree.model.len() as u64 * ENTRY_BYTES;
    assert!(bytes <= live * 5 / 2, "{bytes} bytes for {live}");
}

#[test]
fn a_new_reader_causes_delayed_merges() {
    let mut tree = unread(20, true);
    let waited = sources(&tree.range);
    tree.readers = Readers::Some;
    tree.settle();
    assert!(waited > 4 && sources(&tree.range) < 4, "{waited} -> {}", sources(&tree.range));
}

#[test]
fn merges_are_delayed_only_while_there_are_writes() {
    let mut tree = unread(20, true);
    let (waited, written) = (sources(&tree.range), tree.written_bytes);
    tree.limits.activity = Activity::IdleSparing;
    tree.settle();
    assert_eq!((sources(&tree.range), tree.written_bytes), (waited, written));
    tree.limits.activity = Activity::Idle;
    tree.settle();
    assert!(waited > 4 && sources(&tree.range) < 4, "{waited} -> {}", sources(&tree.range));
    tree.check_reads();
}

/// A range without readers after a job was cut at key 700: it has the run below this key, the
/// remainders of five flushes above it, and two newer flushes.
fn remainders() -> Tree {
    let mut tree = Tree::new();
    tree.readers = Readers::Few;
    tree.limits.flush_bytes = 160 * ENTRY_BYTES;
    tree.number = 100;
    run(&mut tree.range, 1, (1, 59), &(0..700).collect::<Vec<_>>());
    for number in 2..9 {
        let keys: Vec<u32> = (0..160).map(|i| i * 5 + number as u32 % 5).collect();
        let mut file = reference(plain(number, (number * 10, number * 10 + 9), &keys));
        if number < 7 {
            file.clip.low = key(700).into_bytes().into();
        }
        tree.range.add(Placement::Young, file);
    }
    tree.range.check().unwrap();
    tree
}

#[test]
fn remainders_of_a_cut_job_are_merged_first_and_alone() {
    let mut tree = remainders();
    let job = pick(&tree.range, &ReadBy(Readers::Few), &tree.limits).unwrap();
    assert_eq!((numbers(&job), job.reason), ((vec![6, 5, 4, 3, 2], vec![]), Reason::Space));
    assert_eq!((job.bytes, job.placement), (100 * ENTRY_BYTES, Placement::Run));
    tree.run(&job);
    tree.range.check().unwrap();
    assert_eq!(pick(&tree.range, &ReadBy(Readers::Few), &tree.limits), None);
}

#[test]
fn a_remainder_does_not_make_a_small_range_large() {
    // Without unused bytes there is no reason for a job but the size of the range.
    let tree = remainders();
    let limits = Limits { activity: Activity::IdleSparing, ..tree.limits };
    let picker = Picker::new(&tree.range, &ReadBy(Readers::Few), &limits);
    assert!(!picker.waits(), "1,120 entries are less than eight flushes of 160");
    let mut range = tree.range.clone();
    (7..9).for_each(|number| drop(range.remove(FileNumber(number))));
    let picker = Picker::new(&range, &ReadBy(Readers::Few), &limits);
    assert!(!picker.waits(), "the remainder of a flush shows how large the flush was");
}

#[test]
fn unused_bytes_are_freed_for_as_many_writes_as_the_activity_permits() {
    let picked = |unused: u32, activity| {
        let mut tree = Tree::new();
        tree.limits.activity = activity;
        let mut file = reference(plain(1, (1, 9), &(0..1_000).collect::<Vec<_>>()));
        file.clip.low = key(unused).into_bytes().into();
        tree.range.add(Placement::Run, file);
        pick(&tree.range, &Exact, &tree.limits).map(|job| job.reason)
    };
    let [writing, idle, sparing] = [Activity::Writing, Activity::Idle, Activity::IdleSparing];
    for (unused, activity, is_due) in [
        (660, writing, false),
        (670, writing, true),
        (110, idle, false),
        (112, idle, true),
        (500, sparing, false),
        (501, sparing, true),
    ] {
        let expected = is_due.then_some(Reason::Space);
        assert_eq!(picked(unused, activity), expected, "{unused} of 1,000, {activity:?}");
    }
}

#[test]
fn a_small_remainder_is_rewritten_in_place_and_not_merged_with_a_large_file() {
    let mut tree = wide(3, 0);
    let mut file = reference(plain(50, (20, 29), &(0..700).map(|i| i * 4).collect::<Vec<_>>()));
    file.clip.low = key(2_640).into_bytes().into();
    tree.range.add(Placement::Young, file);
    // The merge into the run writes 1,040 entries, and the other job 40. Both free 660.
    assert_eq!(pick(&tree.range, &Exact, &tree.limits), None);
    for activity in [Activity::Idle, Activity::IdleSparing] {
        let limits = Limits { activity, ..tree.limits };
        let job = pick(&tree.range, &Exact, &limits).unwrap();
        assert_eq!((numbers(&job), job.reason), ((vec![50], vec![]), Reason::Space));
        assert_eq!((job.placement, job.bytes), (Placement::Young, 40 * ENTRY_BYTES));
    }
    tree.limits.activity = Activity::Idle;
    tree.settle();
    assert_eq!((tree.jobs, tree.range.young.len()), (1, 1));
}

#[test]
fn a_small_range_is_not_rewritten_from_its_first_file_if_that_takes_several_jobs() {
    let mut tree = Tree::new();
    tree.limits.activity = Activity::Idle;
    tree.limits.small_range_bytes = 1_000 * ENTRY_BYTES;
    tree.limits.job_bytes_max = 300 * ENTRY_BYTES;
    run(&mut tree.range, 1, (1, 9), &(0..100).collect::<Vec<_>>());
    let mut file = reference(plain(2, (1, 9), &(100..800).collect::<Vec<_>>()));
    file.clip.low = key(500).into_bytes().into();
    tree.range.add(Placement::Run, file);
    tree.number = 10;
    let job = pick(&tree.range, &Exact, &tree.limits).unwrap();
    assert_eq!((numbers(&job), job.reason), ((vec![], vec![2]), Reason::Space));
    tree.run(&job);
    assert_eq!(pick(&tree.range, &Exact, &tree.limits), None);
}

/// Facts in which range tombstones hide an eighth of the files with the given numbers.
struct Concealed(Vec<u64>);

impl Facts<File> for Concealed {
    unasked!(
        is_paid,
        readers,
        hidden,
        is_damaged,
        used,
        tombstones_end,
        wants_rewrite,
        is_compressible
    );

    fn part(&self, reference: &Reference<File>) -> Part {
        Exact.part(reference)
    }

    fn key_at(&self, reference: &Reference<File>, bytes: u64) -> Option<Box<[u8]>> {
        Exact.key_at(reference, bytes)
    }

    fn concealed(&self, reference: &Reference<File>) -> u64 {
        let is_hidden = self.0.contains(&reference.file.number);
        if is_hidden { Exact.part(reference).bytes / 8 } else { 0 }
    }
}

#[test]
fn partly_hidden_files_are_rewritten_in_place_once_writes_end() {
    let mut tree = wide(3, 0);
    tree.limits.range_tombstone = Seq(60);
    // Its merge into the run would write too much.
    young(&mut tree.range, 50, (20, 29), &(0..400).map(|i| i * 7).collect::<Vec<_>>());
    let mut picked = |hidden: &[u64], activity| {
        tree.limits.activity = activity;
        let job = pick(&tree.range, &Concealed(hidden.to_vec()), &tree.limits)?;
        Some((numbers(&job), job.reason, job.placement))
    };
    let space = |young, run, placement| Some(((young, run), Reason::Space, placement));
    assert_eq!(picked(&[0, 1, 50], Activity::Writing), None);
    assert_eq!(picked(&[0, 1, 50], Activity::IdleSparing), None);
    assert_eq!(picked(&[0, 1], Activity::Idle), space(vec![], vec![0, 1], Placement::Run));
    assert_eq!(picked(&[0, 2], Activity::Idle), space(vec![], vec![2], Placement::Run));
    assert_eq!(picked(&[50], Activity::Idle), space(vec![50], vec![], Placement::Young));
    assert_eq!(picked(&[], Activity::Idle), None);
}

/// Facts in which the ranges use `used` entries of each file, and range tombstones hide `hidden` of
/// those in this range.
struct Shared {
    used: u64,
    hidden: u64,
}

impl Facts<File> for Shared {
    unasked!(is_paid, readers, hidden, is_damaged, tombstones_end, wants_rewrite, is_compressible);

    fn part(&self, reference: &Reference<File>) -> Part {
        Exact.part(reference)
    }

    fn key_at(&self, reference: &Reference<File>, bytes: u64) -> Option<Box<[u8]>> {
        Exact.key_at(reference, bytes)
    }

    fn used(&self, _: &Reference<File>) -> u64 {
        self.used * ENTRY_BYTES
    }

    fn concealed(&self, _: &Reference<File>) -> u64 {
        self.hidden * ENTRY_BYTES
    }
}

#[test]
fn hidden_rows_of_a_shared_file_count_if_all_its_ranges_may_rewrite_it() {
    let is_picked = |activity, here: u32, used, hidden| {
        let mut tree = Tree::new();
        tree.limits.activity = activity;
        tree.limits.range_tombstone = Seq(60);
        let mut file = reference(plain(1, (1, 9), &(0..3_200).collect::<Vec<_>>()));
        file.clip.high = Some(key(here).into_bytes().into());
        tree.range.add(Placement::Run, file);
        pick(&tree.range, &Shared { used, hidden }, &tree.limits).is_some()
    };
    let [idle, sparing] = [Activity::Idle, Activity::IdleSparing];
    for (activity, here, used, hidden, is_due) in [
        // The other ranges would not follow: 2,200 and 2,900 entries, to free 1,000 and 300.
        (sparing, 1_000, 3_200, 600, false),
        (idle, 300, 3_200, 200, false),
        // They would, but 3,010 entries are too many for 190.
        (idle, 1_000, 3_200, 190, false),
        (idle, 1_000, 3_200, 360, true),
        (idle, 1_000, 3_200, 350, false),
        // No other range uses the file.
        (sparing, 3_200, 3_200, 1_700, true),
        (sparing, 3_200, 3_200, 1_500, false),
    ] {
        let found = is_picked(activity, here, used, hidden);
        assert_eq!(found, is_due, "{activity:?}: {hidden} of {here} entries");
    }
}

/// Flushes memtables of new keys in random order, while the read load stays the same.
fn read_all_the_time(readers: Readers, flushes: u32) -> Tree {
    let mut tree = Tree::new();
    tree.readers = readers;
    let mut rng = Rng::from_seed(13);
    for _ in 0..flushes {
        tree.flush((0..MEMTABLE).map(|_| rng.below(1 << 26) as u32).collect());
    }
    tree.check_reads();
    tree
}

#[test]
fn losing_readers_merge_files_from_an_eighth_of_the_run() {
    for (flushes, most) in [(10, 5.5), (40, 8.0), (100, 7.0)] {
        check(
            &format!("{flushes} memtables that are read"),
            &read_all_the_time(Readers::Losing, flushes),
            most,
        );
    }
    let mut tree = read_all_the_time(Readers::Some, 30);
    tree.readers = Readers::Served;
    tree.settle();
    tree.readers = Readers::Some;
    // Flush one memtable over a run that holds the data of thirty memtables.
    tree.flush((0..MEMTABLE).map(|i| 700_000 * i).collect());
    assert_eq!(tree.range.young.len(), 1);
    tree.readers = Readers::Losing;
    tree.settle();
    assert_eq!(tree.range.young.len(), 1, "one memtable is less than an eighth of the run");
    tree.readers = Readers::Served;
    let job = pick(&tree.range, &ReadBy(Readers::Served), &tree.limits).unwrap();
    assert_eq!(job.reason, Reason::Reads);
    tree.settle();
    assert!(tree.range.young.is_empty(), "a range in its turn is merged whatever its size");
    tree.check_reads();
}

/// Returns a number below `count`. The numbers have roughly a Zipf distribution with exponent 1.
/// The frequent numbers are scattered over the whole range.
fn zipf(rng: &mut Rng, count: u32) -> u32 {
    let log = (f64::from(count)).ln() * (rng.below(1 << 30) as f64 / f64::from(1 << 30));
    (log.exp() as u32 * 2_654_435) % count
}

#[track_caller]
fn check(name: &str, tree: &Tree, limit: f64) {
    let found = tree.amplification();
    let (jobs, partial) = (tree.jobs, tree.partial);
    let files = tree.range.run.len();
    println!(
        "{name}: {found:.2}, {} sources, {files} files, {jobs} jobs, {partial} partial",
        tree.depth_max
    );
    assert!(found <= limit, "{name}: {found:.2} above {limit}");
    let (longest, most) = (tree.job_bytes_max, tree.limits.job_bytes_max);
    assert!(longest <= 2 * most, "{name}: a job of {longest} bytes, {most} are allowed");
    tree.check_reads();
}

#[test]
fn simulated_write_amplification_is_bounded() {
    // The limits on write amplification do not include writes to the log.
    check("ascending", &simulate(400, |_, i| i), 1.2);
    check("descending", &simulate(400, |_, i| u32::MAX / 64 - i), 1.2);
    check("uniform, 10 memtables", &simulate(400, |rng, _| rng.below(1_000) as u32), 5.0);
    check("uniform, 40 memtables", &simulate(400, |rng, _| rng.below(4_000) as u32), 6.0);
    let uniform = simulate(600, |rng, _| rng.below(10_000) as u32);
    check("uniform, 100 memtables", &uniform, 6.0);
    assert!(uniform.partial > 0, "no job was partial");
    let partitions = |rng: &mut Rng, _| zipf(rng, 100) * 100 + rng.below(100) as u32;
    let zipfian = simulate(600, partitions);
    check("zipfian partitions", &zipfian, 5.0);
    assert!(zipfian.amplification() < uniform.amplification());
    let mut tails = vec![0; 200];
    let appends = |rng: &mut Rng, _| {
        let partition = rng.below(200) as usize;
        tails[partition] += 1;
        partition as u32 * 10_000 + tails[partition]
    };
    check("appends to 200 partitions", &simulate(400, appends), 6.5);
}

#[test]
fn small_files_that_joined_become_one() {
    let mut tree = Tree::new();
    for flush in 0..200 {
        tree.flush((flush * 4..flush * 4 + 4).collect());
    }
    assert!(tree.range.run.len() < 40, "{} files", tree.range.run.len());
    check("small ascending flushes", &tree, 4.0);
}

fn young(range: &mut Range<File>, number: u64, seqs: (u64, u64), keys: &[u32]) {
    range.add(Placement::Young, reference(plain(number, seqs, keys)));
}

fn run(range: &mut Range<File>, number: u64, seqs: (u64, u64), keys: &[u32]) {
    range.add(Placement::Run, reference(plain(number, seqs, keys)));
}

fn plain(number: u64, seqs: (u64, u64), keys: &[u32]) -> File {
    File { number, seqs, entries: keys.iter().map(|key| (*key, (seqs.1, false))).collect() }
}

fn empty() -> Range<File> {
    Range::new(RangeId(1), TableId(1), Span::all())
}

fn numbers(job: &Job) -> (Vec<u64>, Vec<u64>) {
    (job.young.iter().map(|n| n.0).collect(), job.run.iter().map(|n| n.0).collect())
}

#[test]
fn an_empty_range_and_a_run_alone_need_no_job() {
    let limits = Limits { run_file_bytes_min: 0, ..Limits::default() };
    let mut range = empty();
    assert_eq!(pick(&range, &Exact, &limits), None);
    run(&mut range, 1, (1, 9), &[1, 5]);
    assert_eq!(pick(&range, &Exact, &limits), None);
}

#[test]
fn files_without_overlap_join_before_others_merge() {
    let limits = Limits::default();
    let mut range = empty();
    run(&mut range, 1, (1, 9), &[1, 5]);
    young(&mut range, 2, (10, 19), &[3, 9]);
    young(&mut range, 3, (20, 29), &[8, 12]);
    young(&mut range, 4, (30, 39), &[11, 14]);
    young(&mut range, 5, (40, 49), &[13, 15]);
    let job = pick(&range, &Exact, &limits).unwrap();
    assert_eq!((numbers(&job), job.placement), ((vec![5, 4, 3, 2], vec![1]), Placement::Run));
    // Files that overlap no other file must join the run first.
    young(&mut range, 6, (50, 59), &[20, 21]);
    let job = pick(&range, &Exact, &limits).unwrap();
    assert_eq!((numbers(&job), job.is_join()), ((vec![6], vec![]), true));
}

#[test]
fn trap_14_a_merge_into_the_run_includes_older_overlapping_files() {
    let mut range = empty();
    run(&mut range, 1, (1, 9), &[10, 20, 30, 40]);
    // The newer files are large enough for a merge into the run. The merge must include the older
    // file 2, which overlaps the same file of the run.
    young(&mut range, 2, (10, 12), &[39]);
    for number in 3..6 {
        young(&mut range, number, (number * 10, number * 10 + 9), &[10, 11, 12]);
    }
    let job = pick(&range, &Exact, &Limits::default()).unwrap();
    assert_eq!((numbers(&job), job.placement), ((vec![5, 4, 3, 2], vec![1]), Placement::Run));
}

#[test]
fn the_oldest_files_merge_with_neighbours_in_age_up_to_a_length() {
    let mut range = empty();
    run(&mut range, 1, (1, 9), &(0..100).collect::<Vec<_>>());
    for number in 2..9 {
        young(&mut range, number, (number * 10, number * 10 + 9), &[0, 10, 20]);
    }
    let limits = |bytes| Limits { window_bytes: bytes, sources_max: 2, ..Limits::default() };
    // The job must depend neither on the keys and the size of the run nor on the number of sources.
    let job = pick(&range, &Exact, &limits(100 * ENTRY_BYTES)).unwrap();
    assert_eq!((numbers(&job).0.len(), job.placement), (6, Placement::Young));
    assert!(job.run.is_empty() && job.below.is_none());
    let ages: Vec<u64> = job.young.iter().map(|number| number.0).collect();
    assert!(ages.windows(2).all(|pair| pair[0] == pair[1] + 1), "{ages:?}");
    let job = pick(&range, &Exact, &limits(10 * ENTRY_BYTES)).unwrap();
    assert_eq!(job.young.len(), 3);
    assert_eq!(pick(&range, &Exact, &limits(8 * ENTRY_BYTES)), None);
    // A merge that does not fit in a job must not begin.
    let short = Limits { job_bytes_max: 8 * ENTRY_BYTES, ..limits(100 * ENTRY_BYTES) };
    assert_eq!(pick(&range, &Exact, &short), None);
}

#[test]
fn trap_12_young_files_merge_with_neighbours_in_age_only() {
    let mut range = empty();
    run(&mut range, 1, (1, 9), &(0..100).collect::<Vec<_>>());
    for (number, size) in [(2, 1), (3, 1), (4, 1), (5, 20), (6, 1)] {
        let keys: Vec<u32> = (0..=size).map(|i| i * 10).collect();
        young(&mut range, number, (number * 10, number * 10 + 9), &keys);
    }
    // Two more small files are flushed. They cannot merge with the earlier ones, because the large
    // file is between them in age.
    young(&mut range, 7, (70, 79), &[0, 10]);
    young(&mut range, 8, (80, 89), &[0, 10]);
    let sources_max = 20;
    let limits = Limits { sources_max, ..Limits::default() };
    assert_eq!(pick(&range, &Exact, &limits), None);
    for number in 9..12 {
        young(&mut range, number, (number * 10, number * 10 + 9), &[0, 10]);
    }
    let job = pick(&range, &Exact, &limits).unwrap();
    assert_eq!(numbers(&job), (vec![11, 10, 9, 8, 7, 6], vec![]));
    assert_eq!(job.placement, Placement::Young);
}

#[test]
fn the_ninth_source_forces_a_merge() {
    let mut range = empty();
    run(&mut range, 1, (1, 9), &(0..10_000).collect::<Vec<_>>());
    // Each file is twice as large as the next newer file. So no four of them are similar in size,
    // and none has half as many bytes as the run.
    for (number, size) in (2..10).zip([512, 256, 128, 64, 32, 16, 8, 4]) {
        let keys: Vec<u32> = (0..size).collect();
        young(&mut range, number, (number * 10, number * 10 + 9), &keys);
        let job = pick(&range, &Exact, &Limits::default());
        assert_eq!(job.is_some(), number == 9, "{number}: {job:?}");
        if let Some(job) = job {
            assert!(job.reason == Reason::Sources && job.placement == Placement::Young, "{job:?}");
        }
    }
}

#[test]
fn random_trees_keep_their_order_and_need_finitely_many_jobs() {
    let mut rng = Rng::from_seed(8);
    for _ in 0..60 {
        let mut tree = Tree::new();
        for _ in 0..60 {
            let width = 1 + rng.below(300) as u32;
            let low = rng.below(1000) as u32;
            let count = 1 + rng.below(60);
            tree.flush((0..count).map(|_| low + rng.below(width.into()) as u32).collect());
        }
        assert!(tree.depth_max <= tree.limits.sources_max);
        tree.check_reads();
        let newest: Vec<u64> = tree.range.sources(b"00000500").map(|r| r.file.seqs.1).collect();
        assert!(newest.is_sorted_by(|a, b| a > b));
    }
}

#[test]
fn files_that_overlap_no_other_file_join_in_one_job() {
    let mut range = empty();
    run(&mut range, 1, (1, 9), &[50, 60]);
    for (number, keys) in [(2, [70, 79]), (3, [80, 89]), (4, [10, 19]), (5, [52, 55])] {
        young(&mut range, number, (number * 10, number * 10 + 9), &keys);
    }
    let job = pick(&range, &Exact, &Limits::default()).unwrap();
    assert_eq!((numbers(&job), job.is_join()), ((vec![4, 3, 2], vec![]), true));
}

/// A range with `files` files in the run, each with a thousand keys, and `over` young files. Each
/// young file covers the whole range; all young files together have half as many bytes as the run.
fn wide(files: u32, over: u32) -> Tree {
    let mut tree = Tree::new();
    tree.limits.job_bytes_max = 2_500 * ENTRY_BYTES;
    for number in 0..files {
        let keys: Vec<u32> = (0..1000).map(|i| number * 1000 + i).collect();
        run(&mut tree.range, number.into(), (1, 9), &keys);
    }
    tree.number = 100;
    for number in 1..=over {
        let keys: Vec<u32> = (0..files * 500 / over).map(|i| i * 2 * over + number).collect();
        young(
            &mut tree.range,
            10 + u64::from(number),
            (number as u64 * 10, number as u64 * 10 + 9),
            &keys,
        );
    }
    tree
}

#[test]
fn a_long_job_takes_the_leftmost_part() {
    let mut tree = wide(5, 4);
    let job = pick(&tree.range, &Exact, &tree.limits).unwrap();
    // The first file of the run and the parts of young files over it have 1,500 entries, and a job
    // may read 2,500. So the job must be cut after the first file of the run.
    assert_eq!((numbers(&job), job.bytes), ((vec![14, 13, 12, 11], vec![0]), 1_500 * ENTRY_BYTES));
    assert_eq!(job.below.as_deref(), Some(key(1000).as_bytes()));
    tree.run(&job);
    tree.range.check().unwrap();
    assert!(tree.range.young.iter().all(|r| *r.clip.low == *key(1000).as_bytes()));
    assert!(
        tree.range.run.iter().all(|r| r.file.number != 0),
        "no file of the run is left below the cut"
    );
    tree.settle();
    assert!(tree.range.young.is_empty() && tree.partial == 4, "{} partial jobs", tree.partial);
}

#[test]
fn one_long_file_is_cut_by_its_index() {
    let mut tree = wide(1, 4);
    tree.limits.job_bytes_max = 300 * ENTRY_BYTES;
    let job = pick(&tree.range, &Exact, &tree.limits).unwrap();
    assert_eq!(numbers(&job), (vec![14, 13, 12, 11], vec![0]));
    assert!(job.below.is_some() && job.bytes <= 310 * ENTRY_BYTES, "{job:?}");
    tree.run(&job);
    tree.range.check().unwrap();
    let rest = tree.range.run.iter().find(|r| r.file.number == 0).unwrap();
    assert_eq!(Some(&rest.clip.low), job.below.as_ref());
}

#[test]
fn a_compaction_of_everything_runs_from_left_to_right() {
    let mut tree = wide(5, 2);
    let asked: Vec<FileNumber> = tree.range.young.iter().map(|r| r.file.number()).collect();
    // A file that is flushed after the request must not be merged.
    young(&mut tree.range, 50, (90, 99), &[5, 4_500]);
    let (mut from, mut jobs) = (Box::default(), 0);
    while let Some(job) = Job::whole(&tree.range, &Exact, &tree.limits, (&asked, Seq::MAX), &from) {
        tree.run(&job);
        tree.range.check().unwrap();
        jobs += 1;
        let Some(below) = job.below else { break };
        from = below;
    }
    let left: Vec<u64> = tree.range.young.iter().map(|r| r.file.number).collect();
    assert_eq!((left, jobs), (vec![50], 5));
}

#[test]
fn a_full_compaction_leaves_out_files_flushed_past_the_run() {
    let mut tree = wide(2, 1);
    let asked: Vec<FileNumber> = tree.range.young.iter().map(|r| r.file.number()).collect();
    // Two flushes: the first file overlaps the run, and the second is above its end and joins it
    // directly.
    young(&mut tree.range, 50, (90, 99), &[5, 1_500]);
    run(&mut tree.range, 51, (100, 109), &[3_000]);
    tree.limits.job_bytes_max = u64::MAX;
    let job = Job::whole(&tree.range, &Exact, &tree.limits, (&asked, Seq(19)), &[]).unwrap();
    assert_eq!(numbers(&job), (vec![11], vec![0, 1]));
    tree.run(&job);
    tree.range.check().unwrap();
}

#[test]
fn a_full_compaction_takes_young_files_older_than_one_that_joined_the_run() {
    let mut tree = wide(2, 1);
    young(&mut tree.range, 12, (20, 29), &[4_000, 4_500]);
    let asked: Vec<FileNumber> = tree.range.young.iter().map(|r| r.file.number()).collect();
    young(&mut tree.range, 50, (90, 99), &[5, 1_500]);
    run(&mut tree.range, 51, (100, 109), &[3_000]);
    tree.limits.job_bytes_max = u64::MAX;
    let job = Job::whole(&tree.range, &Exact, &tree.limits, (&asked, Seq(29)), &[]).unwrap();
    assert_eq!(numbers(&job), (vec![50, 12, 11], vec![0, 1, 51]));
    tree.run(&job);
    tree.range.check().unwrap();
}

#[test]
fn a_file_dense_with_tombstones_is_merged_over_their_span() {
    let mut tree = wide(8, 0);
    let mut entries: BTreeMap<u32, (u64, bool)> = (0..600).map(|key| (key, (20, true))).collect();
    entries.extend((7_900..8_300).map(|key| (key, (20, false))));
    let file = reference(File { number: 50, seqs: (20, 20), entries });
    tree.range.add(Placement::Young, file);
    assert_eq!(pick(&tree.range, &Exact, &tree.limits), None, "a snapshot needs the hidden rows");
    tree.limits.seen_below = Seq(20);
    let job = pick(&tree.range, &Exact, &tree.limits).unwrap();
    assert_eq!((numbers(&job), job.reason), ((vec![50], vec![0]), Reason::Tombstones));
    assert_eq!(job.below.as_deref(), Some(key(600).as_bytes()));
    tree.run(&job);
    assert_eq!(pick(&tree.range, &Exact, &tree.limits), None, "no tombstone is left");
}

#[test]
fn old_tombstones_are_removed_in_time() {
    let mut tree = wide(3, 0);
    tree.limits.seen_below = Seq(99);
    let entries = [(5, (20, true)), (2_900, (21, false))].into();
    tree.range.add(Placement::Young, reference(File { number: 50, seqs: (20, 21), entries }));
    assert_eq!(pick(&tree.range, &Exact, &tree.limits), None);
    tree.limits.aged_below = Seq(20);
    assert_eq!(
        pick(&tree.range, &Exact, &tree.limits),
        None,
        "the newest tombstone of the file determines its age"
    );
    tree.limits.aged_below = Seq(21);
    let job = pick(&tree.range, &Exact, &tree.limits).unwrap();
    assert_eq!((numbers(&job), job.reason), ((vec![50], vec![0]), Reason::Age));
    tree.run(&job);
    assert_eq!((tree.tombstones(), pick(&tree.range, &Exact, &tree.limits)), (0, None));
}

/// Facts in which a range tombstone hides entries of the files with the given numbers.
struct Fenced(Vec<u64>);

impl Facts<File> for Fenced {
    unasked!(is_paid, readers, hidden, is_damaged, used, concealed, tombstones_end);

    fn part(&self, reference: &Reference<File>) -> Part {
        Exact.part(reference)
    }

    fn key_at(&self, reference: &Reference<File>, bytes: u64) -> Option<Box<[u8]>> {
        Exact.key_at(reference, bytes)
    }

    fn wants_rewrite(&self, reference: &Reference<File>) -> bool {
        self.0.contains(&reference.file.number)
    }

    fn is_compressible(&self, reference: &Reference<File>) -> bool {
        self.0.contains(&reference.file.number)
    }
}

#[test]
fn files_under_a_range_tombstone_are_rewritten() {
    let tree = wide(3, 0);
    assert_eq!(pick(&tree.range, &Fenced(vec![]), &tree.limits), None);
    let job = pick(&tree.range, &Fenced(vec![1]), &tree.limits).unwrap();
    assert_eq!((numbers(&job), job.reason), ((vec![], vec![1]), Reason::RangeTombstone));
}

#[test]
fn a_run_at_rest_is_rewritten_piece_by_piece() {
    let mut tree = wide(5, 0);
    let large = || Fenced(vec![1, 2, 3, 4]);
    tree.limits.rests_below = Seq(8);
    let rests = |tree: &Tree| {
        // These facts report no range tombstone, so the only possible reason for a job is
        // compression.
        struct Rest(Fenced);
        impl Facts<File> for Rest {
            unasked!(
                is_paid,
                readers,
                hidden,
                is_damaged,
                used,
                concealed,
                tombstones_end,
                wants_rewrite
            );

            fn part(&self, reference: &Reference<File>) -> Part {
                self.0.part(reference)
            }
            fn key_at(&self, reference: &Reference<File>, bytes: u64) -> Option<Box<[u8]>> {
                self.0.key_at(reference, bytes)
            }
            fn is_compressible(&self, reference: &Reference<File>) -> bool {
                self.0.is_compressible(reference)
            }
        }
        pick(&tree.range, &Rest(large()), &tree.limits)
    };
    assert_eq!(rests(&tree), None, "commit 9 is too new");
    tree.limits.rests_below = Seq(9);
    let job = rests(&tree).unwrap();
    assert_eq!((numbers(&job), job.reason), ((vec![], vec![1, 2]), Reason::Rest));
    young(&mut tree.range, 50, (20, 29), &[5, 4_500]);
    assert_eq!(rests(&tree), None, "a young file overlaps it");
}

#[test]
fn trap_32_a_queue_keeps_few_tombstones_and_stays_short() {
    let mut tree = Tree::new();
    let (mut head, mut tail) = (0, 0);
    let mut most = 0;
    for _ in 0..150 {
        let (from, to) = (tail, tail + 300);
        tail = to;
        let taken = if tail > 6_000 { 300 } else { 0 };
        tree.limits.seen_below = Seq(tree.seq + 10_000);
        tree.flush_and_delete((from..to).collect(), (head..head + taken).collect());
        head += taken;
        most = most.max(tree.tombstones());
        let held: u64 = tree.range.references().map(|(_, r)| Exact.part(r).entries).sum();
        assert!(held <= u64::from(tail - head) + 2_000, "{held} entries of {}", tail - head);
    }
    assert!(most <= 300, "{most} tombstones at a time");
    check("queue", &tree, 3.0);
}

#[test]
fn random_jobs_lose_nothing_however_short_they_are() {
    let (mut rng, mut partial) = (Rng::from_seed(9), 0);
    for group in 0..20 {
        let mut tree = Tree::new();
        tree.limits.job_bytes_max = (30 + 20 * group) * ENTRY_BYTES;
        tree.limits.run_file_bytes_min = 10 * ENTRY_BYTES;
        tree.limits.run_file_bytes_max = 60 * ENTRY_BYTES;
        for _ in 0..50 {
            let width = 1 + rng.below(300) as u32;
            let low = rng.below(1000) as u32;
            let mut keys = |count: u64| -> Vec<u32> {
                (0..count).map(|_| low + rng.below(width.into()) as u32).collect()
            };
            let (puts, deletes) = (keys(1 + group % 7 * 10), keys(group % 5 * 5));
            tree.limits.seen_below = Seq(tree.seq);
            tree.flush_and_delete(puts, deletes);
        }
        tree.check_reads();
        assert!(tree.depth_max <= tree.limits.sources_max);
        partial += tree.partial;
    }
    assert!(partial > 100, "{partial} partial jobs");
}

/// A damaged file must never be an input, but the files around it must still be merged.
#[test]
fn trap_28_jobs_exclude_a_damaged_file() {
    let mut rng = Rng::from_seed(28);
    for damaged in [3, 10, 20] {
        let mut tree = Tree::new();
        let mut jobs = 0;
        for _ in 0..60 {
            let keys: Vec<u32> = (0..20).map(|_| rng.next_u64() as u32 % 2_000).collect();
            let mut entries = BTreeMap::new();
            for key in keys {
                entries.insert(key, (tree.seq, key.is_multiple_of(5)));
                tree.seq += 1;
            }
            let reference = tree.file(entries);
            tree.range.add(Placement::Young, reference);
            while let Some(job) = pick(&tree.range, &Damaged(&[damaged]), &tree.limits) {
                let is_input = job.young.iter().chain(&job.run).any(|file| file.0 == damaged);
                assert!(!is_input || job.is_join(), "{job:?}");
                tree.run(&job);
                jobs += usize::from(!job.is_join());
            }
        }
        assert!(jobs > 5, "{jobs} jobs");
        let files = tree.range.references().count();
        assert!(files < 40, "{files} of 60 files are left");
        let stays = tree.range.references().any(|(_, file)| file.file.number == damaged);
        assert!(stays, "the damaged file {damaged} was removed");
    }
}
