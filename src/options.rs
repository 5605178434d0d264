//! What a database can be told when it is opened: plain data, every default and limit with its reason.
//!
//! Not here: opening (`db`).

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::fs::{DiskFs, Fs};

/// A manifest shorter than this is not rolled over: it is read in a moment.
pub(crate) const MANIFEST_ROLL_BYTES: u64 = 64 << 10;

/// A buffer of commits this full is written: a larger write costs as much a byte.
pub(crate) const LOG_BUFFER_BYTES: usize = 512 << 10;

/// How durable a commit is when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Durability {
    /// In this process's memory: survives neither a crash of the process nor a power cut until
    /// `Db::sync`, the background sync (every second or 8 MB), or a clean close.
    #[cfg_attr(feature = "cli", value(help = "Nothing, until the database is closed"))]
    Buffered,
    /// Handed to the operating system: survives a crash of the process; a power cut may take the last second.
    #[cfg_attr(feature = "cli", value(help = "The end of the process, not a power cut"))]
    Os,
    /// On the disk: survives a power cut.
    #[cfg_attr(feature = "cli", value(help = "A power cut"))]
    Sync,
}

/// How immutable files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum IoMode {
    /// Mapped read-only: fastest; a file cut short by somebody else while open ends the process with a signal.
    #[cfg_attr(feature = "cli", value(help = "Mapped into memory"))]
    Mmap,
    /// Read through a bounded block cache: a failing disk is an error and never a signal.
    #[cfg_attr(feature = "cli", value(help = "Read through a cache"))]
    Pread,
}

/// How the blocks of a table file are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they are: used in place.
    None,
    /// zstd; needs the feature `zstd`.
    Zstd,
}

/// What a merge costs, in rows that are looked for in one file more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergePrice {
    /// However little is merged.
    pub(crate) rows: u64,
    pub(crate) bytes_per_row: u64,
}

/// A file more takes a reader 16 to 57 ns a row, and a merge 3.4 ns a byte, beside syncs of some milliseconds.
const MERGE_PRICE: MergePrice = MergePrice { rows: 100_000, bytes_per_row: 8 };

/// Who runs background work: flush, compaction, removal of dead files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Threads of the database's own: one for logs, one for flushes, and `Options::compaction_threads`.
    Threads,
    /// One thread of the database's own for all of it, one step after another: a merge holds up what else is due, so files of
    /// a run should be short ([`Options::run_file_bytes`]). A writer that would wait for a flush flushes itself.
    OneThread,
    /// Nobody: the application calls `Db::step`; a writer that would wait runs steps itself.
    Manual,
}

/// What becomes of a write that the limit on disk use ([`Options::max_disk`]) leaves no room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It is refused: `StorageFull`.
    Refuse,
    /// The oldest rows of these tables go, as of a ring buffer, whole files at a time; if that makes no room, it is refused.
    /// Names are compared as tables' are, in any case. See [`Options::on_full`].
    DropOldest(Vec<String>),
}

/// Scalability targets, in entities a second; 0 is none. A burst of one second's worth passes.
///
/// An insert, a point read and each operation of a group cost one entity, found or not, met or not; a query, or a page of
/// one, costs the entities it returns, and at least one; a count or an aggregate costs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// For each partition.
    pub partition_entities_per_second: u32,
    /// For all tables together: what the service calls an account.
    pub database_entities_per_second: u32,
}

impl Targets {
    /// Those that the service documents: 2,000 and 20,000 entities of 1 KiB a second.
    pub fn service() -> Self {
        Self { partition_entities_per_second: 2_000, database_entities_per_second: 20_000 }
    }

    /// Those of 2010: 500 and 5,000.
    pub fn y2010() -> Self {
        Self { partition_entities_per_second: 500, database_entities_per_second: 5_000 }
    }
}

/// How to open a database. Every setting can differ from one opening to the next: the files are the same.
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
    /// Where neither says how much: what is kept already stays, with what comes.
    pub(crate) keep_changes_on: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) targets: Option<Targets>,
    pub(crate) slow_query: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) fs: Arc<dyn Fs>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            create_if_missing: true,
            io_mode: if cfg!(target_pointer_width = "64") { IoMode::Mmap } else { IoMode::Pread },
            codec_run: Codec::None,
            background: Background::Threads,
            // Large enough that a flush writes a file worth a seek, small enough to replay in a fraction of a second.
            memtable_bytes: 64 << 20,
            // One being flushed and one waiting; the next freeze waits with the writer.
            frozen_max: 2,
            compaction_threads: default_compaction_threads(),
            background_bytes_per_second: 0,
            // What a delete freed is back within about a day, also where nothing else happens.
            tombstone_age: Duration::from_secs(24 * 3600),
            // Asked for, not given: a filter looks at rows that lie in place 20 to 40 times as fast as it decodes them,
            // and a build without zstd could no longer read the database.
            compress_at_rest: false,
            cache_bytes: 32 << 20,
            max_open_files: 512,
            // Shapes beyond this are written into each row: memory stays bounded whatever users invent.
            shape_bytes: 4 << 20,
            // A get that finds nothing in memory reads one: of 16 KiB it reads twice as much, and the file is 1 % smaller.
            block_bytes: 8 << 10,
            // Long enough to amortise a file, short enough that one merge step is not long.
            run_file_bytes: 32 << 20,
            // Eight files of a run: large enough that a flush of 64 MiB over many ranges still brings each of them a
            // worthwhile part, small enough that what a merge must read for a few hot keys is bounded by seconds.
            range_bytes: 256 << 20,
            // Two logs lie in a database at rest, and both have this much.
            log_allocate_bytes: 64 << 10,
            weak_sync_bytes: 8 << 20,
            log_buffer_bytes: LOG_BUFFER_BYTES,
            manifest_roll_bytes: MANIFEST_ROLL_BYTES,
            // To remember a gap costs about as much as passing over that many entries.
            gap_entries_min: 16,
            // Rounds form by themselves while a sync is under way: a timed wait makes nothing faster.
            max_commit_delay: Duration::ZERO,
            trust_clock_jumps: false,
            merge_for_readers: Some(MERGE_PRICE),
            max_disk: None,
            on_full: OnFull::Refuse,
            // Logs go when their rows are in files: what nobody asked for takes no space.
            keep_changes_bytes: None,
            keep_changes_for: None,
            keep_changes_on: false,
            seed: None,
            targets: None,
            slow_query: None,
            clock: Arc::new(SystemClock::new()),
            fs: Arc::new(DiskFs::new()),
        }
    }
}

impl Options {
    /// The defaults, for a server: 64 MiB memtables, 32 MiB cache, files mapped.
    pub fn new() -> Self {
        Self::default()
    }

    /// For a device of 64 MB, with slow flash and nobody to look after it: at most 16 MiB of memory resident in all, what
    /// the application takes for itself left out. One thread in the background; [`Background::Manual`] for none. The files
    /// are those of any other options.
    ///
    /// Two memtables of at most 1 MiB, which begin small; a cache of 2 MiB, files read by [`IoMode::Pread`]; files of 4 MiB
    /// and logs that begin with 16 KiB. One group, or one entity, of several MiB takes as much more while it is written. What
    /// is known of the files of 1 GiB takes another 2 MiB.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use std::time::Duration;
    /// use rowstone::{Background, Durability, Entity, Options};
    /// let options = Options::edge().background(Background::Manual).durability(Durability::Buffered);
    /// let db = options.max_commit_delay(Duration::from_secs(60)).open_in_memory()?;
    /// let readings = db.create_table("Readings")?;
    /// for second in 0..60 {
    ///     readings.insert(Entity::new("boiler", &format!("{second:02}")).with("Celsius", 61.5))?;
    ///     // Between two readings there are some milliseconds to spare.
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
            // One fills; the other is flushed by whoever would have to wait for it.
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
            // Flash that wears out is worth more than time.
            merge_for_readers: None,
            ..Self::default()
        }
    }
}

/// Methods of [`Options`] that set a field.
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
    /// How durable commits are that do not say so themselves. Default: [`Durability::Sync`].
    durability(durability: Durability): durability = durability;

    /// Whether a missing path or an empty directory becomes a new database. Default: true.
    create_if_missing(create: bool): create_if_missing = create;

    /// How table files are read. Default: [`IoMode::Mmap`] where addresses have 64 bits. Where files are much larger
    /// than the memory there is for them, gets by several threads find more with [`IoMode::Pread`]; ranges, and gets of
    /// keys that are not there, find less. `docs/BENCHMARKS.md` has the figures.
    io_mode(mode: IoMode): io_mode = mode;

    /// How files of a sorted run are stored; young files are never compressed. Default: [`Codec::None`].
    codec(codec: Codec): codec_run = codec;

    /// Who runs background work. Default: [`Background::Threads`].
    background(background: Background): background = background;

    /// Bytes a memtable may take before it is flushed; also bounds each log. At most three are in
    /// memory. At least 4 KiB, default 64 MiB.
    memtable_bytes(bytes: usize): memtable_bytes = bytes.max(4 << 10);

    /// How long a commit may wait for others to share its write and its sync. Each sync rewrites at least one page of the flash,
    /// however little it has to write: a window of a minute makes one page of sixty. At most a day, default zero.
    ///
    /// Commits weaker than [`Durability::Sync`], and tickets of `commit_async` that nobody waits for, are synced in the
    /// background once the first of them is so old, but at least a second, or when much has come together: so much may a
    /// power cut take. A call that waits for its own commit waits so long for company (not with [`Background::Manual`], where
    /// it leads at once); whoever syncs, takes it along. What changes tables, spans or gates never waits.
    ///
    /// After a power cut new Timestamps may lie ahead of the clock, by as much and five seconds.
    max_commit_delay(delay: Duration): max_commit_delay = delay.min(Duration::from_secs(24 * 3600));

    /// Threads that merge files, each in a range of its own. 1 to 64. Default: half of the processors, at most 2: a thread
    /// writes some hundred megabytes a second, which is what a disk gives, and readers and writers need the rest.
    compaction_threads(threads: usize): compaction_threads = threads.clamp(1, 64);

    /// Bytes that background work may write a second, in bursts of at most a quarter of a second's worth; 0: no limit.
    /// Flushes count, and are never held up themselves; nothing is held up with [`Background::Manual`]. Default 0.
    ///
    /// Compaction that cannot keep up slows writers of the ranges it is behind with.
    background_bytes_per_second(bytes: u64): background_bytes_per_second = bytes;

    /// How old a deletion gets, about, before files are rewritten to make room of it; zero: it waits for the next merge
    /// that comes along. Snapshots older than it keep it. Default 24 hours.
    tombstone_age(age: Duration): tombstone_age = age;

    /// Whether ranges into which nothing was written for six hours are stored compressed, a few files at a time; needs
    /// the feature `zstd`, and does nothing without it. Rows get smaller, indexes do not; points and scans pay for
    /// decoding whole blocks. Default: false.
    compress_at_rest(compress: bool): compress_at_rest = compress;

    /// Bytes of the block cache ([`IoMode::Pread`], and compressed files). Default 32 MiB.
    cache_bytes(bytes: usize): cache_bytes = bytes;

    /// Table files that hold a descriptor while nobody reads them, with [`IoMode::Pread`]; what was not read for long is closed
    /// for them, and opened anew by who reads it, which costs a look-up by name. 1 to 1,000,000, default 512, which leaves
    /// half of what systems usually allow a process; 64 with [`Options::edge`]. Maps take no descriptor, and readers of
    /// other processes' databases ([`Db::follow`](crate::Db::follow)) keep what they have open, because it may be gone.
    max_open_files(files: usize): max_open_files = files.clamp(1, 1_000_000);

    /// Target size of a block of rows: what a get reads that finds nothing in memory. 512 bytes to 1 MiB, default 8 KiB.
    /// Where files are compressed it is twice that before compression, and about as much after it.
    block_bytes(bytes: usize): block_bytes = bytes.clamp(512, 1 << 20);

    /// Target size of a file of a sorted run. At least 4 KiB, default 32 MiB.
    run_file_bytes(bytes: u64): run_file_bytes = bytes.max(4 << 10);

    /// A range of a table is divided once its files have more bytes than this, and neighbours are merged that have less
    /// than a quarter of it together. Dividing moves no bytes. At least 16 KiB, default 256 MiB.
    range_bytes(bytes: u64): range_bytes = bytes.max(16 << 10);

    /// Answers `ServerBusy`, and does nothing, where requests come faster than `targets` allow, as the service does: for
    /// tests of an application's retries. In 256 KiB, for any number of partitions; one in thousands may be held back
    /// early, none late. Default: no targets, at no cost.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, RetryPolicy, Rng, Targets};
    /// let targets = Targets { partition_entities_per_second: 100, ..Targets::service() };
    /// let clock = std::sync::Arc::new(rowstone::ManualClock::new(1));
    /// let db = Db::options().throttle(targets).clock(clock.clone()).open_in_memory()?;
    /// let log = db.create_table("log")?;
    /// let (policy, mut rng) = (RetryPolicy::fixed(9, std::time::Duration::from_millis(20)), Rng::from_seed(1));
    /// let mut held_back = 0;
    /// for row in 0..120 {
    ///     let wait = |pause| { held_back += 1; clock.advance(pause) };
    ///     policy.run(&mut rng, wait, || log.upsert(Entity::new("door", &format!("{row:04}"))))?;
    /// }
    /// assert_eq!(held_back, 10); // A second's worth, and twenty more at two in 20 ms.
    /// # Ok(())
    /// # }
    /// ```
    throttle(targets: Targets): targets = Some(targets);

    /// Keeps the last 128 queries that took so long or longer, with an explanation: `Db::slow_queries`. Measured from the
    /// beginning of a query to its end, what the caller does between rows included; look-ups by key are not measured. Costs
    /// two looks at the clock and a copy of the filter for each query, and at the most about 1 MiB. Default: none are kept.
    slow_query(took: Duration): slow_query = Some(took);

    /// Whether retention believes the wall clock when it jumps by more than a day, or stands more than a day from the
    /// last commit at opening. Default: false, so that a wrong clock lets nothing expire early: rows then live as long as time
    /// is seen to pass, and what passes while a device is off for days is not.
    trust_clock_jumps(trust: bool): trust_clock_jumps = trust;

    /// Whether files are merged for readers alone. Where readers of a range have lost as much time, by looking into several
    /// files, as it takes to merge these, all that is young there goes into the sorted run in the background: if it is an
    /// eighth of what it overlaps or more, and once an hour however little it is, in ranges of up to eight files of a run
    /// ([`Options::run_file_bytes`]). What is in memory is flushed for that once an hour at most. Reads of what is read often
    /// and written seldom become up to twice as fast; what is written for it is counted as compaction's
    /// ([`Stats`](crate::Stats)). Default: true; false with [`Options::edge`], and where disk use has a limit
    /// ([`Options::max_disk`]).
    merge_for_readers(merge: bool): merge_for_readers = merge.then_some(MERGE_PRICE);

    /// How many bytes the files of the database may take: tables, logs with what they reserve, manifest. Writes are refused
    /// with `StorageFull` before, for flushes and merges need the rest: an eighth to a quarter of the limit for merges, a
    /// 64th for manifest and logs (256 KiB at least with [`Options::edge`]), and what is in memory. Deletes may use half of
    /// what is kept for merges; dropping tables, ranges and partitions always passes. When merges or dropped files have made
    /// room, writes pass again, without opening anew: background work sees to it when a write was refused.
    ///
    /// Kept logs ([`keep_changes`](Self::keep_changes)) count, and make no room for rows before their own limit makes them
    /// go: that has to fit in here. Logs kept for a time alone ([`keep_changes_for`](Self::keep_changes_for)) take a quarter
    /// of the limit at most. Files that readers still hold count, too; checkpoints and backups do not, even where they are
    /// links.
    /// A database that takes more than the limit when it is opened can be read, and shrunk by dropping whole tables or ranges.
    /// Opening looks at the length of each file. Default: no limit.
    ///
    /// # Errors
    /// None here. Opening answers `InvalidInput` where too little would be left for rows: below three times all memtables,
    /// two table files, one and a half times what [`keep_changes`](Self::keep_changes) keeps, and some, 15 MiB with
    /// [`Options::edge`]. The error has the number; it is less with smaller
    /// [`memtable_bytes`](Self::memtable_bytes) and [`run_file_bytes`](Self::run_file_bytes).
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Background, Entity, ErrorKind, Options};
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

    /// What becomes of a write that [`max_disk`](Self::max_disk) leaves no room for, whichever table it is to. Default:
    /// [`OnFull::Refuse`].
    ///
    /// [`OnFull::DropOldest`] makes its tables ring buffers. The write that finds no room first drops whole table files of
    /// them, those whose newest row is the oldest, until it fits and a 32nd of the limit more: in time that grows with the
    /// number of these tables' files, not of their rows, and with one synced commit. Age is that of the last write, the row's
    /// Timestamp. The oldest files of all these tables together go first; of each table what goes is a prefix in age, so
    /// that rows of a file that stays are gone, too, if they are older than the newest that went. Other tables keep every
    /// byte. To readers, in the change feed and in other processes it looks as if the rows had expired; once gone they never
    /// come back. `stats` counts `oldest_files_dropped` and `oldest_bytes_dropped`, and the event `dropped_oldest` warns of
    /// each drop.
    ///
    /// A table of that name may be created later, and a time to live may be set as well. What is in memory is not dropped: with
    /// small limits and large memtables little is left to drop. A [`Snapshot`](crate::Snapshot) keeps what it sees, so that
    /// while there is one nothing is dropped and writes may be refused; a long read keeps the files that it began with. A write
    /// waits up to a second for a merge that holds what was dropped. Imports and restores of ranges make no room.
    ///
    /// Files of these tables are merged with neighbours in age only, up to a 32nd of the limit, and not by `Db::compact`: reads
    /// look into more of them, and rows that are deleted or replaced give no space back before their time. A database that was
    /// written without this has large files whose rows are of all ages: they go late, and then much at once.
    ///
    /// # Errors
    /// None here. Opening answers `InvalidInput` without a limit, and for a name that no table can have. Writes are refused
    /// with `StorageFull` as without this once the tables have nothing left to give.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Background, Entity, OnFull, Options};
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

    /// Keeps logs for the change feed when recovery needs them no more, as long as they have at most `bytes` together; the
    /// oldest go first, whole, with the flush that makes them too many. Without this and
    /// [`keep_changes_for`](Self::keep_changes_for) changes are kept until their rows are flushed to table files, also those
    /// that an opening before had kept. Default: none.
    keep_changes(bytes: u64): keep_changes_bytes = Some(bytes);

    /// Keeps logs for the change feed, each at least until its last commit is of this `age`, unless
    /// [`keep_changes`](Self::keep_changes) allows for fewer bytes, or a quarter of [`max_disk`](Self::max_disk) does; they go
    /// with the next flush. Default: none.
    keep_changes_for(age: Duration): keep_changes_for = Some(age);

    /// The time that commits are numbered by. Default: the system's.
    clock(clock: Arc<dyn Clock>): clock = clock;

    /// The file system. Default: the system's.
    fs(fs: Arc<dyn Fs>): fs = fs;

    /// Makes ids and hash seeds follow from `seed`, so that a run can be replayed. Default: the system's entropy.
    seed(seed: u64): seed = Some(seed);
}

/// Half of the processors, at most two. To ask for them takes several files of the system: once is enough.
fn default_compaction_threads() -> usize {
    static THREADS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *THREADS.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (processors / 2).clamp(1, 2)
    })
}
