//! Options for opening a database, as plain data. Each default and limit is given with its reason.

#[cfg(feature = "cli")]
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
#[cfg(feature = "cli")]
use crate::error::Result;
use crate::fs::{DiskFs, Fs};

/// A manifest shorter than this is not replaced by a new one, because reading it is cheap.
pub(crate) const MANIFEST_ROLL_BYTES: u64 = 64 << 10;

/// The log buffer is written to the log file when it has this size. Writing more at once would not
/// be cheaper per byte.
pub(crate) const LOG_BUFFER_BYTES: usize = 512 << 10;

/// Starts the companion of an open database, an object that runs until the database is closed. The
/// argument is the [`Db`](crate::Db), passed as `Any` because this module cannot name its type.
#[cfg(feature = "cli")]
pub(crate) type StartCompanion = fn(&dyn Any) -> Result<Companion>;
#[cfg(feature = "cli")]
pub(crate) type Companion = Box<dyn Any + Send>;

/// Where a commit is stored when it is acknowledged, and so which failures it survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Durability {
    /// The commit is in this process's memory. It survives neither a crash of the process nor a
    /// power cut until `Db::sync`, the background sync, or a clean close. The background sync runs
    /// after a second ([`Options::max_commit_delay`] if longer) or after 8 MiB (512 KiB with
    /// [`Options::edge`]). Commits do not wait for it, unless 32 MiB (2 MiB) of them are not yet
    /// durable, or it takes longer than two seconds. The first commit after two seconds without one
    /// weaker than `Sync` may also wait for a sync.
    #[cfg_attr(feature = "cli", value(help = "Nothing, until the database is closed"))]
    Buffered,
    /// The commit was handed to the operating system. It survives a crash of the process. A power
    /// cut may lose the commits since the last background sync, as with `Buffered`.
    #[cfg_attr(feature = "cli", value(help = "The end of the process, not a power cut"))]
    Os,
    /// The commit is on the disk. It survives a power cut.
    #[cfg_attr(feature = "cli", value(help = "A power cut"))]
    Sync,
}

/// How immutable files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum IoMode {
    /// Mapped read-only. This is the fastest mode. If another process truncates an open file, a
    /// signal ends this process. Each checksum is verified at the first read of a block, unless
    /// this process has itself just computed it in a flush or merge.
    #[cfg_attr(feature = "cli", value(help = "Mapped into memory"))]
    Mmap,
    /// Read through a bounded block cache. A failing disk causes an error, never a signal.
    #[cfg_attr(feature = "cli", value(help = "Read through a cache"))]
    Pread,
}

/// How the blocks of a table file are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed. Rows are read directly from the block.
    None,
    /// Compressed with zstd. Needs the feature `zstd`.
    Zstd,
}

/// The cost of a merge, in the unit of the cost that it saves readers: looking up one row in one
/// additional file costs 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergePrice {
    /// The fixed cost of a merge, whatever its size.
    pub(crate) rows: u64,
    pub(crate) bytes_per_row: u64,
}

/// Measured: one more file costs a reader 16 to 57 ns per row. A merge costs 3.4 ns per byte, plus
/// syncs that take some milliseconds.
const MERGE_PRICE: MergePrice = MergePrice { rows: 100_000, bytes_per_row: 8 };

/// The threads that run background work: flush, compaction, removal of dead files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// The database's own threads: one for logs, one for flushes, and `Options::compaction_threads`
    /// for compaction.
    Threads,
    /// One thread of the database runs all background work, one step after another. A merge delays
    /// all other work that is due, so the files of a sorted run should be small
    /// ([`Options::run_file_bytes`]). A writer that would otherwise wait for a flush runs the flush
    /// itself.
    OneThread,
    /// No thread: the application calls `Db::step`. A writer that would otherwise wait runs steps
    /// itself.
    Manual,
}

/// How to treat a write for which the limit on disk use ([`Options::max_disk`]) leaves no space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// Refuse it with `StorageFull`.
    Refuse,
    /// Drop the oldest rows of these tables, in whole files, as in a ring buffer. If that frees no
    /// space, refuse the write with `StorageFull`. Table names are compared without regard to case.
    /// See [`Options::on_full`].
    DropOldest(Vec<String>),
}

impl OnFull {
    /// Whether rows of a table are dropped.
    pub(crate) fn drops_from(&self, table: &str) -> bool {
        match self {
            Self::Refuse => false,
            Self::DropOldest(names) => names.iter().any(|name| name.eq_ignore_ascii_case(table)),
        }
    }
}

/// Scalability targets, in entities per second; 0 means no target. A burst may use the number of
/// entities of one second at once.
///
/// An insert, a point read and each operation of an entity group cost one entity, whether or not
/// the entity exists or the condition is met. A query, or one page of a query, costs the number of
/// entities that it returns, and at least one. A count or an aggregate costs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The target for each partition.
    pub partition_entities_per_second: u32,
    /// The target for all tables together. Azure Table storage sets this target for a storage
    /// account.
    pub database_entities_per_second: u32,
}

impl Targets {
    /// Returns the targets that Azure Table storage documents: 2,000 and 20,000 entities of 1 KiB
    /// per second.
    pub fn service() -> Self {
        Self { partition_entities_per_second: 2_000, database_entities_per_second: 20_000 }
    }

    /// Returns the targets of Azure Table storage in 2010: 500 and 5,000 entities per second.
    pub fn y2010() -> Self {
        Self { partition_entities_per_second: 500, database_entities_per_second: 5_000 }
    }
}

/// How to open a database. Every setting may differ from one opening to the next, because it does
/// not change the file format.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Durability};
/// let db = Db::options().durability(Durability::Os).memtable_bytes(8 << 20).open_in_memory()?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) durability: Durability,
    pub(crate) create_if_missing: bool,
    pub(crate) accept_short_logs: bool,
    pub(crate) io_mode: IoMode,
    pub(crate) codec_run: Codec,
    pub(crate) background: Background,
    pub(crate) memtable_bytes: usize,
    pub(crate) frozen_max: usize,
    pub(crate) compaction_threads: usize,
    pub(crate) background_bytes_per_second: u64,
    pub(crate) tombstone_age: Duration,
    pub(crate) compress_at_rest: bool,
    pub(crate) cache_bytes: usize,
    pub(crate) max_open_files: usize,
    pub(crate) shape_bytes: usize,
    pub(crate) block_bytes: usize,
    pub(crate) run_file_bytes: u64,
    pub(crate) range_bytes: u64,
    pub(crate) log_allocate_bytes: u64,
    pub(crate) weak_sync_bytes: u64,
    pub(crate) log_buffer_bytes: usize,
    pub(crate) manifest_roll_bytes: u64,
    pub(crate) gap_entries_min: u32,
    pub(crate) max_commit_delay: Duration,
    pub(crate) trust_clock_jumps: bool,
    pub(crate) merge_for_readers: Option<MergePrice>,
    pub(crate) max_disk: Option<u64>,
    pub(crate) on_full: OnFull,
    pub(crate) keep_changes_bytes: Option<u64>,
    pub(crate) keep_changes_for: Option<Duration>,
    /// Whether a database that has retained logs keeps them, and retains new ones, even if neither
    /// `keep_changes_bytes` nor `keep_changes_for` is set.
    pub(crate) keep_changes_on: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) targets: Option<Targets>,
    pub(crate) slow_query: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) fs: Arc<dyn Fs>,
    /// Starts the server of the control socket; set by `Options::control`.
    #[cfg(feature = "cli")]
    pub(crate) companion: Option<StartCompanion>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            create_if_missing: true,
            accept_short_logs: false,
            io_mode: if cfg!(target_pointer_width = "64") { IoMode::Mmap } else { IoMode::Pread },
            codec_run: Codec::None,
            background: Background::Threads,
            // Large enough that a flush writes a file of useful size, small enough to be replayed
            // in a fraction of a second.
            memtable_bytes: 64 << 20,
            // One memtable is being flushed and one waits. A writer that would freeze a third one
            // must wait.
            frozen_max: 2,
            compaction_threads: default_compaction_threads(),
            background_bytes_per_second: 0,
            // Space freed by a delete is reclaimed within about a day, even in an idle database.
            tombstone_age: Duration::from_secs(24 * 3600),
            // Off by default, for two reasons. Rows of uncompressed files are evaluated in place,
            // 20 to 40 times as fast as decoded ones. A build without zstd could no longer read the
            // database.
            compress_at_rest: false,
            cache_bytes: 32 << 20,
            max_open_files: 512,
            // Memory for shapes, the lists of names and types that rows share. A row whose shape no
            // longer fits stores its own copy of it, so memory is bounded.
            shape_bytes: 4 << 20,
            // A get that misses memory reads one block. Blocks of 16 KiB would double the bytes of
            // this read, and make the file only 1 % smaller.
            block_bytes: 8 << 10,
            // Large enough to amortise the cost of a file, and small enough that one step of a
            // merge is short.
            run_file_bytes: 32 << 20,
            // The size of eight files of a sorted run. Large enough that a flush of 64 MiB over
            // many ranges adds a useful amount to each. Small enough that a merge for a few hot
            // keys takes only seconds.
            range_bytes: 256 << 20,
            // An idle database has two logs, both allocated at this size.
            log_allocate_bytes: 64 << 10,
            weak_sync_bytes: 8 << 20,
            log_buffer_bytes: LOG_BUFFER_BYTES,
            manifest_roll_bytes: MANIFEST_ROLL_BYTES,
            // Shorter sequences of dead entries are not added to the gap cache, which stores key
            // spans that scans may skip. Adding a sequence costs about as much as reading this
            // number of entries.
            gap_entries_min: 16,
            // While a sync is in progress, further commits form a group anyway. An additional fixed
            // delay would make commits no faster.
            max_commit_delay: Duration::ZERO,
            trust_clock_jumps: false,
            merge_for_readers: Some(MERGE_PRICE),
            max_disk: None,
            on_full: OnFull::Refuse,
            // No extra space by default: a log is deleted when its rows are in table files.
            keep_changes_bytes: None,
            keep_changes_for: None,
            keep_changes_on: false,
            seed: None,
            targets: None,
            slow_query: None,
            clock: Arc::new(SystemClock::new()),
            fs: Arc::new(DiskFs::new()),
            #[cfg(feature = "cli")]
            companion: None,
        }
    }
}

impl Options {
    /// Returns the defaults, for a server: 64 MiB memtables, a 32 MiB block cache, and mapped files
    /// if addresses have 64 bits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns options for an unattended device with 64 MB of memory and slow flash. At most 16 MiB
    /// of memory is resident in total, not counting the application's own. One thread runs
    /// background work; to run without threads, set [`Background::Manual`]. The file format is the
    /// same as with any other options.
    ///
    /// There are two memtables of at most 1 MiB each, which start small, and a block cache of 2
    /// MiB. Files are read by [`IoMode::Pread`]. Files of a sorted run have 4 MiB, and logs start
    /// with 16 KiB. While an entity or an entity group of several MiB is written, it takes that
    /// much memory in addition. Table files that were read keep about 1.5 MiB of indexes per GiB in
    /// memory: 8 bytes for each block of 8 KiB, and some 2 KiB for each file of 4 MiB.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use std::time::Duration;
    /// use rowstone::{Durability, Entity, Options, options::Background};
    /// let options = Options::edge()
    ///     .background(Background::Manual)
    ///     .durability(Durability::Buffered);
    /// let db = options.max_commit_delay(Duration::from_secs(60)).open_in_memory()?;
    /// let readings = db.create_table("Readings")?;
    /// for second in 0..60 {
    ///     readings.insert(Entity::new("boiler", &format!("{second:02}")).with("Celsius", 61.5))?;
    ///     // Use the idle time between two readings.
    ///     db.step(Duration::from_millis(5));
    /// }
    /// # db.close()
    /// # }
    /// ```
    pub fn edge() -> Self {
        Self {
            io_mode: IoMode::Pread,
            background: Background::OneThread,
            memtable_bytes: 1 << 20,
            // There are only two memtables. A writer that would otherwise wait for the frozen one
            // flushes it.
            frozen_max: 1,
            compaction_threads: 1,
            cache_bytes: 2 << 20,
            max_open_files: 64,
            shape_bytes: 256 << 10,
            run_file_bytes: 4 << 20,
            range_bytes: 32 << 20,
            log_allocate_bytes: 16 << 10,
            weak_sync_bytes: 512 << 10,
            log_buffer_bytes: 64 << 10,
            manifest_roll_bytes: 16 << 10,
            // Merges that serve only to speed up reads would wear out the flash, which matters more
            // here.
            merge_for_readers: None,
            ..Self::default()
        }
    }
}

/// Defines the methods of [`Options`] that set a field.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($argument:ident: $type:ty): $field:ident = $value:expr;)*) => {
        impl Options {
            $($(#[$doc])*
            pub fn $name(mut self, $argument: $type) -> Self {
                self.$field = $value;
                self
            })*
        }
    };
}

setters! {
    /// Sets the durability of commits that do not set their own. Default: [`Durability::Sync`].
    durability(durability: Durability): durability = durability;

    /// Sets whether a missing path or an empty directory becomes a new database. Default: true.
    create_if_missing(create: bool): create_if_missing = create;

    /// Sets whether to open a log or a manifest whose file is shorter than the length that was once
    /// synced. The bytes that were cut off are lost;
    /// [`OpenReport::torn`](crate::repair::OpenReport::torn) names the file and both lengths in
    /// bytes. Use it only for file systems that lose the length of a synced file in a crash, or to
    /// open a damaged database. Without this setting, opening returns `Corruption` for such a file,
    /// and [`Options::repair`] saves what is left of it. Default: false.
    accept_short_logs(accept: bool): accept_short_logs = accept;

    /// Sets how table files are read. Default: [`IoMode::Mmap`] on systems with 64-bit addresses,
    /// otherwise [`IoMode::Pread`]. If the files are much larger than memory, point reads by
    /// several threads are faster with [`IoMode::Pread`]. Range reads, and point reads of absent
    /// keys, are slower with it. `benches/compare/results/experiments.md` has the figures.
    io_mode(mode: IoMode): io_mode = mode;

    /// Sets how the files of a sorted run are stored. Files that are not merged into a run yet are
    /// never compressed. Default: [`Codec::None`].
    codec(codec: Codec): codec_run = codec;

    /// Sets the threads that run background work. Default: [`Background::Threads`].
    background(background: Background): background = background;

    /// Sets the size in bytes at which a memtable is flushed, which also bounds each log. At most
    /// three memtables are in memory (two with [`Options::edge`]). At least 4 KiB, default 64 MiB.
    memtable_bytes(bytes: usize): memtable_bytes = bytes.max(4 << 10);

    /// Sets how long a commit may wait for other commits to share its write and its sync. Each sync
    /// rewrites at least one page of flash, however few bytes are written. With one commit per
    /// second, a delay of one minute rewrites one page instead of sixty. At most one day, default
    /// zero.
    ///
    /// Two kinds of commits are synced in the background: those weaker than [`Durability::Sync`],
    /// and commits of `commit_async` whose ticket no thread waits for. The background sync runs
    /// when the oldest of them has waited for this delay, but at least one second, or when enough
    /// bytes have accumulated. A power cut may lose the commits since the last sync. A call that
    /// waits for its own commit waits up to this delay for other commits to join. With
    /// [`Background::Manual`] it syncs immediately. Any sync includes all commits that wait.
    /// Changes of tables, spans or gates never wait.
    ///
    /// After a power cut new Timestamps may be ahead of the clock by up to this delay plus five
    /// seconds.
    max_commit_delay(delay: Duration): max_commit_delay = delay.min(Duration::from_secs(24 * 3600));

    /// Sets the number of threads that merge files. Each works on a different range. 1 to 64.
    /// Default: half of the processors, at most 2. One thread writes some hundred megabytes per
    /// second, about the bandwidth of a disk, and readers and writers need the other processors.
    compaction_threads(threads: usize): compaction_threads = threads.clamp(1, 64);

    /// Limits the bytes that background work writes per second; 0 means no limit. At most a quarter
    /// of this number may be written at once. Flushes count towards the limit but are never
    /// delayed. With [`Background::Manual`] nothing is delayed. Default: 0.
    ///
    /// If compaction cannot keep up, writers are slowed down in the ranges that have too many files
    /// to merge.
    background_bytes_per_second(bytes: u64): background_bytes_per_second = bytes;

    /// Sets the approximate age of a deletion at which files are rewritten to reclaim its space.
    /// With zero, only merges for other reasons reclaim the space. Deletions that an older snapshot
    /// needs are kept. Default: 24 hours.
    tombstone_age(age: Duration): tombstone_age = age;

    /// Sets whether ranges that were not written for six hours are compressed, a few files at a
    /// time. It needs the feature `zstd` and has no effect without it. Rows get smaller, but not
    /// indexes. Point reads and scans must decode whole blocks. Default: false.
    compress_at_rest(compress: bool): compress_at_rest = compress;

    /// Sets the size in bytes of the block cache, used with [`IoMode::Pread`] and for compressed
    /// files. Default: 32 MiB.
    cache_bytes(bytes: usize): cache_bytes = bytes;

    /// Sets the number of table files whose descriptor stays open between reads, with
    /// [`IoMode::Pread`]. The least recently read files are closed first; the next read of such a
    /// file opens it again by its name. 1 to 1,000,000, default 512, which is half of the usual
    /// limit of a process; 64 with [`Options::edge`]. Memory maps take no descriptor. Readers of
    /// another process's database ([`Db::follow`](crate::Db::follow)) keep their files open,
    /// because a closed file may be deleted.
    max_open_files(files: usize): max_open_files = files.clamp(1, 1_000_000);

    /// Sets the target size of a block of rows, the unit of a read from disk. 512 bytes to 1 MiB,
    /// default 8 KiB. In compressed files a block has twice this size before compression, and about
    /// this size after it.
    block_bytes(bytes: usize): block_bytes = bytes.clamp(512, 1 << 20);

    /// Sets the target size in bytes of a file of a sorted run. At least 4 KiB, default 32 MiB.
    run_file_bytes(bytes: u64): run_file_bytes = bytes.max(4 << 10);

    /// Sets the size in bytes at which a range of a table is split. Neighbouring ranges are merged
    /// if together they have less than a quarter of it. A split moves no bytes. At least 16 KiB,
    /// default 256 MiB.
    range_bytes(bytes: u64): range_bytes = bytes.max(16 << 10);

    /// Refuses requests above the rates in `targets` with `ServerBusy`, as Azure Table storage
    /// does, without executing them. Use this to test an application's retries. It takes 256 KiB of
    /// memory for any number of partitions. Partitions share counters, so a partition whose
    /// counters are also used by busy partitions is refused below its target. This affects 1
    /// partition in 27,000 if 100 are in use, and 1 in 270 if 1,000 are. No partition exceeds its
    /// target. Default: no targets, at no cost.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, RetryPolicy, options::Targets, retry::Rng};
    /// let targets = Targets { partition_entities_per_second: 100, ..Targets::service() };
    /// let clock = std::sync::Arc::new(rowstone::clock::ManualClock::new(1));
    /// let db = Db::options().throttle(targets).clock(clock.clone()).open_in_memory()?;
    /// let log = db.create_table("log")?;
    /// let policy = RetryPolicy::fixed(9, std::time::Duration::from_millis(20));
    /// let mut rng = Rng::from_seed(1);
    /// let mut held_back = 0;
    /// for row in 0..120 {
    ///     let wait = |pause| { held_back += 1; clock.advance(pause) };
    ///     policy.run(&mut rng, wait, || log.upsert(Entity::new("door", &format!("{row:04}"))))?;
    /// }
    /// assert_eq!(held_back, 10); // After a burst of 100, two rows every 20 ms.
    /// # Ok(())
    /// # }
    /// ```
    throttle(targets: Targets): targets = Some(targets);

    /// Sets whether rows may expire by a wall clock that jumps by more than a day. When the
    /// database is opened, the difference between the clock and the last commit counts as a jump.
    /// Default: false, so that a wrong clock lets no row expire early. With false, the time that a
    /// jump skips adds nothing to the age of rows, for example the days during which a device is
    /// switched off.
    trust_clock_jumps(trust: bool): trust_clock_jumps = trust;

    /// Sets whether files are also merged only to speed up reads. Such a merge starts in the
    /// background when the readers of a range have spent as much time on searching several files as
    /// the merge costs. It merges the newer, overlapping files of that range into its sorted run.
    /// * If nothing was written for 0.1 s, an eighth of this cost is enough, unless rows have 512
    ///   bytes or more on average.
    /// * The newer files must have at least an eighth as many bytes as the part of the run that
    ///   they overlap. Once an hour, fewer bytes are enough.
    /// * Only ranges of up to eight files of a run qualify ([`Options::run_file_bytes`]).
    /// * The memtable is flushed for such a merge at most once an hour. If nothing is written, it
    ///   is also flushed if scans have read many of its rows.
    ///
    /// Data that is read often and written rarely is then read up to twice as fast. In
    /// [`Stats`](crate::stats::Stats) these merges count as compaction. Default: true; false with
    /// [`Options::edge`], and with a limit on disk use ([`Options::max_disk`]).
    ///
    /// With the argument `false`, and with [`Options::edge`], an idle database also merges files
    /// only if this frees more bytes than it writes. Otherwise, merges that wait because of writes
    /// run once hardly anything was written for 10 seconds.
    merge_for_readers(merge: bool): merge_for_readers = merge.then_some(MERGE_PRICE);

    /// Limits the bytes that the files of the database take: tables, logs including their reserved
    /// space, and the manifest. Writes are refused with `StorageFull` before the limit is reached,
    /// because flushes and merges need space, too. The reserve has three parts: for merges, an
    /// eighth to a quarter of the limit; for the manifest and logs, a 64th of it (at least 256 KiB
    /// with [`Options::edge`]); for flushes, the size of the data in memory. Deletes may use half
    /// of the part for merges. Dropping tables, ranges and partitions is always allowed. When
    /// merges or dropped files have freed space, writes are accepted again without reopening. A
    /// refused write starts the background work that frees space.
    ///
    /// Logs retained for the change feed ([`keep_changes`](Self::keep_changes)) count towards the
    /// limit. They are deleted only when they exceed the limit of `keep_changes`, never to make
    /// space for rows, so the limit on disk use must leave space for them. Logs retained by age
    /// alone ([`keep_changes_for`](Self::keep_changes_for)) take at most a quarter of this limit.
    /// Deleted files that readers still use count, too. Checkpoints and backups do not, even if
    /// they are hard links.
    ///
    /// A database that exceeds the limit when it is opened can be read, and shrunk by dropping
    /// whole tables or ranges. Opening reads the length of each file. Default: no limit.
    ///
    /// # Errors
    /// None here. Opening returns `InvalidInput` if the limit leaves too little space for rows. The
    /// minimum is the sum of three times all memtables, two table files, one and a half times the
    /// bytes that [`keep_changes`](Self::keep_changes) retains, and a fixed part. It is 15 MiB with
    /// [`Options::edge`]. The error states the minimum. Smaller
    /// [`memtable_bytes`](Self::memtable_bytes) and [`run_file_bytes`](Self::run_file_bytes) lower
    /// it.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Entity, ErrorKind, Options, options::Background};
    /// let options = Options::edge().background(Background::Manual).max_disk(16 << 20);
    /// let db = options.open_in_memory()?;
    /// let log = db.create_table("log")?;
    /// let line = "x".repeat(30_000);
    /// let write = |i| log.upsert(Entity::new("door", &format!("{i:06}")).with("Line", &*line));
    /// let full = (0..1_000).find_map(|i| write(i).err()).expect("a limit");
    /// assert_eq!(full.kind(), ErrorKind::StorageFull);
    /// log.delete_partition("door")?;
    /// while db.step(std::time::Duration::from_millis(10)) {}
    /// write(0)?;
    /// # db.close()
    /// # }
    /// ```
    max_disk(bytes: u64): max_disk = Some(bytes);

    /// Sets how to treat a write, to any table, for which [`max_disk`](Self::max_disk) leaves no
    /// space. Default: [`OnFull::Refuse`].
    ///
    /// [`OnFull::DropOldest`] turns the named tables into ring buffers. A write that finds no space
    /// first drops whole table files of these tables until it fits and a 32nd of the limit is free.
    /// Of all files of the named tables, the one whose newest row is the oldest is dropped first.
    /// The drop takes time in proportion to the number of these files, not of their rows, and one
    /// synced commit. The age of a row is counted from its Timestamp. Within a table, rows in the
    /// remaining files are deleted, too, if they are older than the newest dropped row. Other
    /// tables lose nothing. Readers, the change feed and other processes see the rows as expired,
    /// and the rows never reappear. `stats` counts `oldest_files_dropped` and
    /// `oldest_bytes_dropped`, and each drop emits the event `dropped_oldest`.
    ///
    /// A named table may be created later, and may also have a time to live. Rows in memory are not
    /// dropped, so with a small limit and large memtables there is little to drop. A
    /// [`Snapshot`](crate::Snapshot) keeps the rows that it sees: while one exists nothing is
    /// dropped, and writes may be refused. A long read keeps the files that it started with. A
    /// write waits up to one second for a merge that uses dropped files. Imports and restores of
    /// ranges do not free space.
    ///
    /// Files of these tables are merged only with files of similar age, up to a 32nd of the limit,
    /// and not by `Db::compact`. Reads therefore search more files, and deleted or replaced rows
    /// free no space before their files are dropped. A database written without this option has
    /// large files with rows of all ages. Such files are dropped late, and then free much space at
    /// once.
    ///
    /// # Errors
    /// None here. Opening returns `InvalidInput` if there is no limit
    /// ([`max_disk`](Self::max_disk)), and for an invalid table name. Writes are refused with
    /// `StorageFull`, as without this option, if these tables have no more files to drop.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Entity, Options, options::{Background, OnFull}};
    /// let options = Options::edge().background(Background::Manual).max_disk(16 << 20);
    /// let db = options.on_full(OnFull::DropOldest(vec!["log".to_owned()])).open_in_memory()?;
    /// let log = db.create_table("log")?;
    /// let line = "x".repeat(30_000);
    /// for i in 0..1_000 {
    ///     log.upsert(Entity::new("door", &format!("{i:06}")).with("Line", &*line))?;
    /// }
    /// assert!(log.get("door", "000999")?.is_some());
    /// assert!(log.get("door", "000000")?.is_none());
    /// assert!(db.stats().get("oldest_files_dropped") > Some(0));
    /// # db.close()
    /// # }
    /// ```
    on_full(on_full: OnFull): on_full = on_full;

    /// Retains logs for the change feed after recovery no longer needs them, up to `bytes` in
    /// total. If they take more than that after a flush, the flush deletes the oldest logs as a
    /// whole. Without this setting and [`keep_changes_for`](Self::keep_changes_for), changes are
    /// kept only until their rows are flushed to table files; logs that an earlier opening retained
    /// are deleted then, too. Default: none.
    keep_changes(bytes: u64): keep_changes_bytes = Some(bytes);

    /// Retains each log for the change feed at least until its last commit has this `age`.
    /// [`keep_changes`](Self::keep_changes), or a quarter of [`max_disk`](Self::max_disk), may
    /// limit the total size further. The next flush deletes older logs. Default: none.
    keep_changes_for(age: Duration): keep_changes_for = Some(age);

    /// Sets the clock from which commits get their Seqs. Default: the system's clock.
    clock(clock: Arc<dyn Clock>): clock = clock;

    /// Sets the file system. Default: that of the operating system.
    fs(fs: Arc<dyn Fs>): fs = fs;

    /// Sets a seed from which ids and hash seeds are derived, so that a run can be repeated
    /// exactly. Default: the system's entropy.
    seed(seed: u64): seed = Some(seed);
}

/// Returns half of the number of processors, at most two. The result is cached, because finding the
/// number of processors reads several system files.
fn default_compaction_threads() -> usize {
    static THREADS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *THREADS.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (processors / 2).clamp(1, 2)
    })
}
