//! The picker driven by simulated loads: order is kept at every install, reads stay shallow, bytes are not written too often.

use super::*;
use crate::format::names::TableId;
use crate::rng::Rng;

const ENTRY_BYTES: u64 = 1000;

/// A file as the set of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    number: u64,
    seqs: (u64, u64),
    keys: Vec<u32>,
}

impl RangeFile for File {
    fn number(&self) -> FileNumber {
        FileNumber(self.number)
    }

    fn seqs(&self) -> (Seq, Seq) {
        (Seq(self.seqs.0), Seq(self.seqs.1))
    }

    fn bytes(&self) -> u64 {
        self.keys.len() as u64 * ENTRY_BYTES
    }
}

fn key(key: u32) -> String {
    format!("{key:08}")
}

fn reference(file: File) -> Reference<File> {
    let (first, last) = (key(file.keys[0]), key(file.keys[file.keys.len() - 1]));
    Reference { file, clip: Span::inclusive(first.as_bytes(), last.as_bytes()) }
}

/// One range under load.
struct Tree {
    range: Range<File>,
    limits: Limits,
    seq: u64,
    number: u64,
    user_bytes: u64,
    written_bytes: u64,
    depth_max: usize,
}

impl Tree {
    fn new() -> Self {
        let range = Range::new(RangeId(1), TableId(1), Span::all());
        let limits = Limits {
            run_file_bytes_min: 100 * ENTRY_BYTES,
            run_file_bytes_max: 800 * ENTRY_BYTES,
            ..Limits::default()
        };
        let (seq, number) = (1, 0);
        Self { range, limits, seq, number, user_bytes: 0, written_bytes: 0, depth_max: 0 }
    }

    fn file(&mut self, seqs: (u64, u64), keys: Vec<u32>) -> Reference<File> {
        self.number += 1;
        let reference = reference(File { number: self.number, seqs, keys });
        self.written_bytes += reference.file.bytes();
        reference
    }

    /// A memtable with these writes in it.
    fn flush(&mut self, mut keys: Vec<u32>) {
        self.user_bytes += keys.len() as u64 * ENTRY_BYTES;
        let seqs = (self.seq, self.seq + keys.len() as u64 - 1);
        self.seq = seqs.1 + 1;
        keys.sort_unstable();
        keys.dedup();
        let reference = self.file(seqs, keys);
        self.range.add(Placement::Young, reference);
        self.settle();
    }

    /// Runs jobs until there is none.
    fn settle(&mut self) {
        for jobs in 0.. {
            let Some(job) = pick(&self.range, |_| false, &self.limits) else { break };
            assert!(jobs < 100, "no end of jobs: {job:?}");
            self.run(&job);
            self.range.check().unwrap();
        }
        let picker = Picker::new(&self.range);
        self.depth_max = self.depth_max.max(picker.depth() + 1);
    }

    fn run(&mut self, job: &Job) {
        let numbers = job.young.iter().chain(&job.run);
        let inputs: Vec<_> = numbers.map(|n| self.range.remove(*n).unwrap()).collect();
        if job.action == Action::Join {
            inputs.into_iter().for_each(|input| self.range.add(Placement::Run, input));
            return;
        }
        let bytes: u64 = inputs.iter().map(|input| input.file.bytes()).sum();
        assert_eq!(bytes, job.bytes);
        let mut keys: Vec<u32> = inputs.iter().flat_map(|i| i.file.keys.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        let seq_min = inputs.iter().map(|input| input.file.seqs.0).min().unwrap();
        let seq_max = inputs.iter().map(|input| input.file.seqs.1).max().unwrap();
        let entries_max = (self.limits.run_file_bytes_max / ENTRY_BYTES) as usize;
        for part in keys.chunks(entries_max) {
            let output = self.file((seq_min, seq_max), part.to_vec());
            if job.drops_tombstones {
                let older = self.range.references().filter(|(_, other)| {
                    other.clip.overlaps(&output.clip) && other.file.seqs().0 <= Seq(seq_max)
                });
                assert_eq!(older.count(), 0, "an older source is left out: {job:?}");
            }
            self.range.add(job.placement, output);
        }
    }

    fn amplification(&self) -> f64 {
        self.written_bytes as f64 / self.user_bytes as f64
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

/// About zipfian with exponent 1 over `count` values, scattered.
fn zipf(rng: &mut Rng, count: u32) -> u32 {
    let log = (f64::from(count)).ln() * (rng.below(1 << 30) as f64 / f64::from(1 << 30));
    (log.exp() as u32 * 2_654_435) % count
}

#[track_caller]
fn check(name: &str, tree: &Tree, limit: f64) {
    let found = tree.amplification();
    println!("{name}: {found:.2}, {} sources, {} files", tree.depth_max, tree.range.run.len());
    assert!(found <= limit, "{name}: {found:.2} above {limit}");
}

#[test]
fn simulated_write_amplification_is_sane() {
    check("ascending", &simulate(400, |_, i| i), 1.1);
    check("uniform, 10 memtables", &simulate(400, |rng, _| rng.below(1_000) as u32), 5.0);
    check("uniform, 40 memtables", &simulate(400, |rng, _| rng.below(4_000) as u32), 6.0);
    let partitions = |rng: &mut Rng, _| zipf(rng, 100) * 100 + rng.below(100) as u32;
    check("uniform, 100 memtables", &simulate(600, |rng, _| rng.below(10_000) as u32), 6.0);
    check("zipfian partitions", &simulate(400, partitions), 5.0);
    let mut tails = vec![0; 200];
    let appends = |rng: &mut Rng, _| {
        let partition = rng.below(200) as usize;
        tails[partition] += 1;
        partition as u32 * 10_000 + tails[partition]
    };
    check("appends to 200 partitions", &simulate(400, appends), 6.5);
    check("descending", &simulate(400, |_, i| u32::MAX / 64 - i), 3.5);
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
    range.add(Placement::Young, reference(File { number, seqs, keys: keys.to_vec() }));
}

fn run(range: &mut Range<File>, number: u64, seqs: (u64, u64), keys: &[u32]) {
    range.add(Placement::Run, reference(File { number, seqs, keys: keys.to_vec() }));
}

fn empty() -> Range<File> {
    Range::new(RangeId(1), TableId(1), Span::all())
}

fn numbers(job: &Job) -> (Vec<u64>, Vec<u64>) {
    (job.young.iter().map(|n| n.0).collect(), job.run.iter().map(|n| n.0).collect())
}

#[test]
fn an_empty_range_and_a_bare_run_need_nothing() {
    let limits = Limits { run_file_bytes_min: 0, ..Limits::default() };
    let mut range = empty();
    assert_eq!(pick(&range, |_| false, &limits), None);
    run(&mut range, 1, (1, 9), &[1, 5]);
    assert_eq!(pick(&range, |_| false, &limits), None);
}

#[test]
fn what_is_being_compacted_still_counts_as_young() {
    let limits = Limits::default();
    let mut range = empty();
    run(&mut range, 1, (1, 9), &[1, 5]);
    young(&mut range, 2, (10, 19), &[3, 9]);
    young(&mut range, 3, (20, 29), &[8, 12]);
    // Above the run, but over a young file that is busy.
    assert_eq!(pick(&range, |n| n == FileNumber(2), &limits), None);
    let job = pick(&range, |_| false, &limits).unwrap();
    assert_eq!((numbers(&job), job.placement), ((vec![3, 2], vec![1]), Placement::Run));
    // Clear of everything busy it joins all the same.
    young(&mut range, 4, (30, 39), &[20, 21]);
    let job = pick(&range, |n| n == FileNumber(2), &limits).unwrap();
    assert_eq!((numbers(&job), job.action), ((vec![4], vec![]), Action::Join));
    // Between two busy files it does not: their output will cover it.
    young(&mut range, 5, (40, 49), &[30, 31]);
    assert_eq!(pick(&range, |n| matches!(n.0, 2 | 5), &limits), None);
}

#[test]
fn trap_14_what_goes_into_the_run_takes_everything_older_with_it() {
    let mut range = empty();
    run(&mut range, 1, (1, 9), &[10, 20, 30, 40]);
    // The large newer file would be worth a merge by itself; the older one lies over the same file of the run.
    young(&mut range, 2, (10, 12), &[39]);
    young(&mut range, 3, (20, 29), &[10, 11, 12]);
    let job = pick(&range, |_| false, &Limits::default()).unwrap();
    assert_eq!((numbers(&job), job.drops_tombstones), ((vec![3, 2], vec![1]), true));
}

#[test]
fn trap_12_young_files_merge_with_neighbours_in_age_only() {
    let mut range = empty();
    run(&mut range, 1, (1, 9), &(0..100).collect::<Vec<_>>());
    for (number, size) in [(2, 1), (3, 1), (4, 1), (5, 4), (6, 1)] {
        let keys: Vec<u32> = (0..=size).map(|i| i * 10).collect();
        young(&mut range, number, (number * 10, number * 10 + 9), &keys);
    }
    // Five young files, but the large one stands between small ones: 4, 5, 6 and another are not similar.
    let job = pick(&range, |_| false, &Limits::default());
    assert!(job.as_ref().is_none_or(|job| job.young.len() == 4), "{job:?}");
    young(&mut range, 7, (70, 79), &[0, 10]);
    young(&mut range, 8, (80, 89), &[0, 10]);
    young(&mut range, 9, (90, 99), &[0, 10]);
    let job = pick(&range, |_| false, &Limits::default()).unwrap();
    assert_eq!(numbers(&job), (vec![9, 8, 7, 6], vec![]));
    assert_eq!((job.placement, job.drops_tombstones), (Placement::Young, false));
}

#[test]
fn the_ninth_source_forces_a_merge() {
    let mut range = empty();
    run(&mut range, 1, (1, 9), &(0..10_000).collect::<Vec<_>>());
    // Each twice as large as all newer ones: no four are similar, none is half the run.
    for (number, size) in (2..10).zip([512, 256, 128, 64, 32, 16, 8, 4]) {
        let keys: Vec<u32> = (0..size).collect();
        young(&mut range, number, (number * 10, number * 10 + 9), &keys);
        let job = pick(&range, |_| false, &Limits::default());
        assert_eq!(job.is_some(), number == 9, "{number}: {job:?}");
        if let Some(job) = job {
            assert!(job.forced && job.placement == Placement::Young, "{job:?}");
        }
    }
}

#[test]
fn random_trees_keep_their_order_and_get_done() {
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
        let newest: Vec<u64> = tree.range.sources(b"00000500").map(|r| r.file.seqs.1).collect();
        assert!(newest.is_sorted_by(|a, b| a > b));
    }
}
