//! Stores and links a memtable's nodes in append-only chunks, with `unsafe` code. A node is a
//! [`Header`], a [`History`] if the key has older entries, key, row, [`Handle`] if `FAR_PREV`.
//!
//! Invariants
//! * a node never moves or changes, and is released only with the arena;
//! * a node is complete before a [`Link`] to it is stored (Release). Other threads reach it by
//!   loading a link (Acquire), or through other synchronization, such as a lock;
//! * only the arena that created a node resolves its [`Handle`] or [`Link`], see [`Arena::new`].
//!
//! Locks: [`Arena::lock`], while a node is created.

#![expect(unsafe_code, reason = "nodes of varying size, shared with readers while the chunk fills")]

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use memmap2::MmapMut;

use crate::format::Kind;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::sync::{AtomicPtr, AtomicU32, AtomicUsize, Mutex, MutexGuard, Ordering};

/// The initial size of chunks, in bytes.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// The maximum size of chunks, in bytes. With 1 MiB, little is wasted at the end, and allocations
/// are rare.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Memory of at least this size is mapped from the system and returned to it when the memtable is
/// dropped. The allocator would keep it.
const MAP_BYTES_MIN: usize = 256 << 10;
/// The size of the maps that hold nodes. Their pages become resident when nodes reach them.
const MAP_BYTES: usize = 8 << 20;
/// A map is counted in steps of this size, as nodes reach it. The last step of a full memtable is
/// mostly empty.
const MAP_STEP: usize = 64 << 10;
/// The size of a huge page. A fault on one replaces 512 faults, which take seven times as long.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_PAGE_BYTES: usize = 2 << 20;
const ALIGN: usize = if cfg!(loom) { 8 } else { 4 };
#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = assert!(size_of::<Header>() == 20, "every entry pays for it");
#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = assert!(size_of::<History>() == 20, "every version pays for it");
const _: () = assert!(size_of::<Lines>() == 2 * size_of::<usize>(), "a memtable has room for many");
const _: () = assert!(align_of::<Header>() <= ALIGN && align_of::<History>() <= ALIGN);
const _: () = assert!(size_of::<Header>().is_multiple_of(align_of::<History>()));

/// The number of nodes in a [`Line`]: with their hashes they fill a cache line of 64 bytes.
pub(super) const LINE_SLOTS: usize = 5;

/// Owns the nodes of one memtable.
pub(super) struct Arena {
    bump: Mutex<Bump>,
    /// The total bytes of all chunks.
    bytes: AtomicUsize,
    chunk_bytes_max: usize,
}

/// The exclusive right to create nodes.
pub(super) struct ArenaWriter<'a> {
    arena: &'a Arena,
    bump: MutexGuard<'a, Bump>,
}

/// The contents of a new node.
pub(super) struct Draft<'n, 'b> {
    pub(super) key: &'b [u8],
    pub(super) seq: Seq,
    pub(super) kind: Kind,
    /// The row, as two parts to be concatenated.
    pub(super) row: [&'b [u8]; 2],
    /// The node that was created before this one.
    pub(super) prev: Option<Node<'n>>,
    /// The newest existing node of the same key.
    pub(super) older: Option<Node<'n>>,
}

/// A node, borrowed from its arena.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    header: NonNull<Header>,
    arena: PhantomData<&'a Arena>,
}

/// The address of a node; [`Arena::node`] resolves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(NonNull<Header>);

/// A pointer to a node or null, read concurrently with writes.
pub(super) struct Link(AtomicPtr<Header>);

/// One line of the hash table in `table`. A line of zeros is empty.
#[repr(align(64))]
pub(super) struct Line {
    /// The number of used slots, and a flag that is set if a node overflowed from this line to a
    /// later one.
    pub(super) fill: AtomicU32,
    pub(super) hashes: [AtomicU32; LINE_SLOTS],
    pub(super) slots: [Link; LINE_SLOTS],
}

/// Aligned to four bytes, so that less is lost to padding.
#[cfg_attr(not(loom), repr(C, packed(4)))]
#[cfg_attr(loom, repr(C))]
struct Header {
    seq: Seq,
    /// The length of the key, shifted above the two flag bits.
    key: u32,
    row_len: u32,
    /// The distance from the previous node, which is in the same chunk, in bytes; or `NO_PREV` or
    /// `FAR_PREV`.
    back: u32,
    #[cfg(loom)]
    watch: loom::cell::UnsafeCell<()>,
}

/// Flags in the low bits of `Header::key`.
const IS_DELETE: u32 = 1;
const HAS_HISTORY: u32 = 2;
const KEY_LEN_SHIFT: u32 = 2;
/// `Header::back` of the first node.
const NO_PREV: u32 = 0;
/// `Header::back` of a node whose row is followed by the handle of the previous node.
const FAR_PREV: u32 = u32::MAX;

/// The links to older versions of a key, stored after the header.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
struct History {
    older: Handle,
    /// A link to a version further back. With these links any version is found in a logarithmic
    /// number of steps.
    jump: Handle,
    /// The number of older versions.
    depth: u32,
}

/// The chunks, and the free bytes of the one being filled.
struct Bump {
    chunks: Vec<Chunk>,
    next: NonNull<u8>,
    /// The newest node of that chunk.
    last: Option<Handle>,
    /// The number of free bytes at `next` that `Arena::bytes` includes.
    left: usize,
    /// The number of free bytes after those, which are not counted yet.
    uncounted: usize,
}

/// Memory for nodes or lines.
pub(super) struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
    /// The map that owns the memory; `None` if the allocator provided it.
    map: Option<MmapMut>,
}

/// A table of lines.
pub(super) enum Lines {
    Heap(Box<[Line]>),
    #[cfg(not(loom))]
    Map(Box<Chunk>),
}

// SAFETY: a handle is an address; dereferencing it requires the arena, whose nodes all threads may
// read.
unsafe impl Send for Handle {}
// SAFETY: as for Send; a handle has no interior mutability.
unsafe impl Sync for Handle {}
// SAFETY: a node is never written once it is reachable, so any thread may read it.
unsafe impl Send for Node<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for Node<'_> {}
// SAFETY: a chunk owns its memory, which is not bound to a thread.
unsafe impl Send for Chunk {}
// SAFETY: a shared chunk gives only its address.
unsafe impl Sync for Chunk {}
// SAFETY: `next` is only an address; the chunks own the memory.
unsafe impl Send for Bump {}

impl Arena {
    /// Creates an empty arena for about `bytes_hint` bytes.
    ///
    /// # Safety
    /// The caller must ensure that every [`Handle`] and [`Link`] is resolved only by the arena that
    /// created its node.
    pub(super) unsafe fn new(bytes_hint: usize) -> Self {
        let next = NonNull::dangling();
        let bump = Bump { chunks: Vec::new(), next, last: None, left: 0, uncounted: 0 };
        let chunk_bytes_max = (bytes_hint / 32).clamp(4 * CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        Self { bump: Mutex::new(bump), bytes: AtomicUsize::new(0), chunk_bytes_max }
    }

    /// Returns the bytes of all chunks. Those of a map are counted in steps as nodes reach them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn lock(&self) -> ArenaWriter<'_> {
        ArenaWriter { arena: self, bump: self.bump.lock() }
    }

    #[inline]
    pub(super) fn node(&self, handle: Handle) -> Node<'_> {
        Node { header: handle.0, arena: PhantomData }
    }

    /// Prefetches the node. Does no harm if the node is not accessed afterwards.
    #[inline]
    pub(super) fn prefetch(&self, handle: Handle) {
        let start = handle.0.as_ptr().cast::<u8>().cast_const();
        prefetch(start);
        prefetch(start.wrapping_add(64));
    }
}

impl<'a> ArenaWriter<'a> {
    pub(super) fn arena(&self) -> &'a Arena {
        self.arena
    }

    /// Creates a node, which is unreachable until a link to it is stored.
    pub(super) fn push(&mut self, draft: &Draft<'a, '_>) -> Node<'a> {
        let Draft { key, seq, kind, row, prev, older } = *draft;
        let row_len = row[0].len() + row[1].len();
        debug_assert!(older.is_none_or(|older| older.key() == key), "a version's key is one");
        debug_assert!(prev.is_none_or(|prev| prev.seq() <= seq), "entries are linked by Seq");
        assert!(
            key.len() <= u32::MAX as usize >> KEY_LEN_SHIFT && row_len <= u32::MAX as usize >> 1
        );
        let history = older.map(History::after);
        let history_len = if history.is_some() { size_of::<History>() } else { 0 };
        let payload_at = size_of::<Header>() + history_len;
        let len = payload_at + key.len() + row_len;
        let (start, back) = self.place(prev.map(Node::handle), len);
        let header = Header {
            seq,
            key: (key.len() as u32) << KEY_LEN_SHIFT
                | if kind == Kind::Delete { IS_DELETE } else { 0 }
                | if history.is_some() { HAS_HISTORY } else { 0 },
            row_len: row_len as u32,
            back,
            #[cfg(loom)]
            watch: loom::cell::UnsafeCell::new(()),
        };
        // SAFETY: `place` returned at least `len` bytes, aligned to ALIGN, which no other call
        // returns. By the constants above, that suffices for Header and for the History after it.
        unsafe {
            start.cast::<Header>().write(header);
            if let Some(history) = history {
                start.add(size_of::<Header>()).cast::<History>().write(history);
            }
            let mut payload = start.add(payload_at);
            for part in [key, row[0], row[1]] {
                payload.copy_from_nonoverlapping(NonNull::from(part).cast(), part.len());
                payload = payload.add(part.len());
            }
        }
        let node = Node { header: start.cast(), arena: PhantomData };
        #[cfg(loom)]
        node.header().watch.with_mut(|_| ());
        node
    }

    /// Returns memory for a node of `len` bytes after the node `prev`, and its `Header::back`.
    #[inline]
    fn place(&mut self, prev: Option<Handle>, len: usize) -> (NonNull<u8>, u32) {
        let (bump, padded) = (&mut *self.bump, padded(len));
        if prev == bump.last
            && padded <= bump.left
            && let Some(prev) = prev
        {
            let start = bump.take(padded);
            return (start, (start.addr().get() - prev.0.addr().get()) as u32);
        }
        self.place_far(prev, len)
    }

    /// Does the same for a node that may be in another chunk than `prev`, or is the first one.
    #[cold]
    fn place_far(&mut self, prev: Option<Handle>, len: usize) -> (NonNull<u8>, u32) {
        let Some(prev) = prev else {
            return (self.reserve(padded(len)), NO_PREV);
        };
        let start = self.reserve(padded(len + size_of::<Handle>()));
        // SAFETY: `reserve` returned at least this many bytes, which no other call returns.
        unsafe { start.add(len).cast::<Handle>().write_unaligned(prev) };
        (start, FAR_PREV)
    }

    /// Returns `len` bytes, a multiple of ALIGN, that no other call returns.
    fn reserve(&mut self, len: usize) -> NonNull<u8> {
        debug_assert!(len.is_multiple_of(ALIGN) && len > 0, "nodes are aligned");
        if len > self.bump.left
            && let Some(own) = self.refill(len)
        {
            return own;
        }
        self.bump.take(len)
    }

    /// Provides at least `len` bytes at `next`, or returns a chunk for a large node alone. In this
    /// case the current chunk continues to be filled.
    #[cold]
    fn refill(&mut self, len: usize) -> Option<NonNull<u8>> {
        let (arena, bump) = (self.arena, &mut *self.bump);
        let grown = arena.bytes() / 4 / CHUNK_BYTES_MIN * CHUNK_BYTES_MIN;
        let step = grown.clamp(CHUNK_BYTES_MIN, arena.chunk_bytes_max);
        let (chunk_bytes, step, shared_max) = if step >= MAP_BYTES_MIN {
            (MAP_BYTES, MAP_STEP, MAP_BYTES)
        } else {
            (step, step, step / 4)
        };
        if len > shared_max {
            let chunk = Chunk::new(len);
            let start = chunk.start;
            bump.chunks.push(chunk);
            arena.bytes.fetch_add(len, Ordering::Relaxed);
            return Some(start);
        }
        if len > bump.left + bump.uncounted {
            let chunk = Chunk::new(chunk_bytes);
            (bump.next, bump.left, bump.uncounted) = (chunk.start, 0, chunk_bytes);
            bump.chunks.push(chunk);
        }
        let counted = step.max(len - bump.left).min(bump.uncounted);
        bump.left += counted;
        bump.uncounted -= counted;
        arena.bytes.fetch_add(counted, Ordering::Relaxed);
        None
    }
}

impl Bump {
    /// Takes `len` of the `left` bytes for a node.
    #[inline]
    fn take(&mut self, len: usize) -> NonNull<u8> {
        assert!(len <= self.left, "more bytes than are left");
        let start = self.next;
        // SAFETY: in bounds of the chunk, which has at least `left` bytes at `next`; checked above.
        self.next = unsafe { start.add(len) };
        self.last = Some(Handle(start.cast()));
        self.left -= len;
        start
    }
}

impl<'a> Node<'a> {
    #[inline]
    pub(super) fn handle(self) -> Handle {
        Handle(self.header)
    }

    #[inline]
    pub(super) fn seq(self) -> Seq {
        self.header().seq
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        if self.header().key & IS_DELETE != 0 { Kind::Delete } else { Kind::Put }
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: `push` wrote key_len bytes there, which are alive and unchanged while 'a borrows
        // the arena.
        unsafe { NonNull::slice_from_raw_parts(self.payload(), header.key_len()).as_ref() }
    }

    #[inline]
    pub(super) fn row(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: `push` wrote row_len bytes after the key_len bytes of the key; lifetime as for
        // the key.
        unsafe {
            let start = self.payload().add(header.key_len());
            NonNull::slice_from_raw_parts(start, header.row_len as usize).as_ref()
        }
    }

    /// Returns the node that was created before this one.
    #[inline]
    pub(super) fn prev(self) -> Option<Node<'a>> {
        let header = self.header();
        match header.back {
            NO_PREV => None,
            // SAFETY: `place_far` wrote a handle after the row.
            FAR_PREV => Some(unsafe {
                let row = self.payload().add(header.key_len());
                row.add(header.row_len as usize).cast::<Handle>().read_unaligned().near(self)
            }),
            back => {
                // SAFETY: `place` measured this distance from a node of the same chunk, whose
                // memory the pointer to this node may access, too.
                let header = unsafe { self.header.byte_sub(back as usize) };
                Some(Node { header, arena: PhantomData })
            }
        }
    }

    /// Returns the newest version of the key that is not newer than `at`. The search begins at this
    /// node and goes back.
    #[inline]
    pub(super) fn at(self, at: Seq) -> Option<Node<'a>> {
        if self.seq() <= at { Some(self) } else { self.back_to(at) }
    }

    fn back_to(self, at: Seq) -> Option<Node<'a>> {
        let mut node = self;
        while node.seq() > at {
            let history = node.history()?;
            let jump = history.jump.near(node);
            debug_assert!(jump.seq() < node.seq(), "a jump leads to an older version");
            // Jumping to a version at or before `at` might skip a newer version that is also at or
            // before `at`, so make a single step instead.
            node = if jump.seq() > at { jump } else { history.older.near(node) };
        }
        Some(node)
    }

    fn history(self) -> Option<History> {
        let has = self.header().has_history();
        // SAFETY: the flag means that `push` wrote a History after the header; aligned by the
        // constant above.
        has.then(|| unsafe { self.header.add(1).cast::<History>().read() })
    }

    #[inline]
    fn header(self) -> &'a Header {
        // SAFETY: a node points to a Header that `push` wrote. It was complete before it was
        // reachable, is never written again, and is alive while 'a borrows the arena.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    fn payload(self) -> NonNull<u8> {
        let header = self.header();
        #[cfg(loom)]
        header.watch.with(|_| ());
        let history_len = if header.has_history() { size_of::<History>() } else { 0 };
        // SAFETY: within the node or at its end, by the layout that `push` wrote.
        unsafe { self.header.add(1).cast::<u8>().add(history_len) }
    }
}

impl Header {
    #[inline]
    fn key_len(&self) -> usize {
        (self.key >> KEY_LEN_SHIFT) as usize
    }

    #[inline]
    fn has_history(&self) -> bool {
        self.key & HAS_HISTORY != 0
    }
}

impl Handle {
    /// Resolves the handle in the arena of `other`. This is valid because nodes refer only to nodes
    /// of their own arena.
    #[inline]
    fn near(self, _other: Node<'_>) -> Node<'_> {
        Node { header: self.0, arena: PhantomData }
    }
}

impl History {
    /// Creates the history of a node whose previous version is `older`. If the last two jumps span
    /// equally many versions, the new jump spans both. Otherwise it leads to `older`.
    fn after(older: Node<'_>) -> History {
        let depth_of = |node: Node<'_>| node.history().map_or(0, |h| h.depth);
        let handle = older.handle();
        let Some(history) = older.history() else {
            return History { older: handle, jump: handle, depth: 1 };
        };
        let jump = history.jump.near(older);
        let jump_depth = depth_of(jump);
        debug_assert!(jump_depth < history.depth, "a jump leads to an older version");
        let next = jump.history().map_or(jump, |h| h.jump.near(jump));
        let equal = history.depth - jump_depth == jump_depth - depth_of(next);
        let jump = if equal { next.handle() } else { handle };
        History { older: handle, jump, depth: history.depth.saturating_add(1) }
    }
}

impl Link {
    pub(super) fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Publishes `node`, and all earlier writes, to threads that load the link.
    #[inline]
    pub(super) fn store(&self, node: Node<'_>) {
        let relaxed = mutant!("relaxed-link");
        let order = if relaxed { Ordering::Relaxed } else { Ordering::Release };
        self.0.store(node.header.as_ptr(), order);
    }

    /// Returns the node stored last, which `arena` must have created.
    #[inline]
    pub(super) fn load<'a>(&self, _arena: &'a Arena) -> Option<Node<'a>> {
        let header = NonNull::new(self.0.load(Ordering::Acquire))?;
        Some(Node { header, arena: PhantomData })
    }
}

impl Line {
    /// Prefetches the line.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(std::ptr::from_ref(self).cast());
    }

    /// Allocates `len` empty lines from zeroed pages of the system. A large table costs nothing
    /// until it is used, so doubling a table does not delay the commit that needs it.
    #[cfg(not(loom))]
    pub(super) fn table(len: usize) -> Lines {
        let layout = Layout::array::<Line>(len).unwrap_or_else(|_| capacity_overflow());
        debug_assert!(len.is_power_of_two(), "a line is found by a mask");
        assert!(len > 0, "no lines");
        if let Some(chunk) = Chunk::map(layout) {
            return Lines::Map(Box::new(chunk));
        }
        // SAFETY: the layout is not empty. All zeros is a valid Line: zeros and null pointers in
        // atomics, which have the layout of their contents. The box frees the memory with this same
        // layout.
        let lines = unsafe {
            let Some(start) = NonNull::new(std::alloc::alloc_zeroed(layout)) else {
                std::alloc::handle_alloc_error(layout)
            };
            Box::from_raw(NonNull::slice_from_raw_parts(start.cast::<Line>(), len).as_ptr())
        };
        Lines::Heap(lines)
    }

    #[cfg(loom)]
    pub(super) fn table(len: usize) -> Lines {
        let line = || Line {
            fill: AtomicU32::new(0),
            hashes: std::array::from_fn(|_| AtomicU32::new(0)),
            slots: std::array::from_fn(|_| Link::new()),
        };
        Lines::Heap(std::iter::repeat_with(line).take(len).collect())
    }
}

impl Deref for Lines {
    type Target = [Line];

    #[inline]
    fn deref(&self) -> &[Line] {
        match self {
            Lines::Heap(lines) => lines,
            // SAFETY: the map has the layout of an array of this many lines, and lives as long as
            // the borrow. Mapped memory is zeroed, and all zeros is a valid Line, as above.
            #[cfg(not(loom))]
            Lines::Map(chunk) => unsafe {
                let len = chunk.layout.size() / size_of::<Line>();
                NonNull::slice_from_raw_parts(chunk.start.cast(), len).as_ref()
            },
        }
    }
}

impl Chunk {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, ALIGN).unwrap_or_else(|_| capacity_overflow());
        assert!(bytes > 0, "an empty chunk");
        Self::map(layout).unwrap_or_else(|| {
            // SAFETY: the layout is not empty.
            let start = unsafe { std::alloc::alloc(layout) };
            let Some(start) = NonNull::new(start) else { std::alloc::handle_alloc_error(layout) };
            Self { start, layout, map: None }
        })
    }

    /// Maps a chunk of zeros if `layout` is large enough.
    fn map(layout: Layout) -> Option<Self> {
        let bytes = Some(layout.size()).filter(|bytes| *bytes >= MAP_BYTES_MIN)?;
        let mut map = MmapMut::map_anon(bytes).ok()?;
        #[cfg(all(target_os = "linux", not(miri)))]
        if bytes >= HUGE_PAGE_BYTES {
            // Without huge pages the map works, too.
            drop(map.advise(memmap2::Advice::HugePage));
        }
        Some(Self { start: NonNull::from(&mut *map).cast(), layout, map: Some(map) })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.map.is_none() {
            // SAFETY: allocated by `new` with this layout, and owned by this chunk alone. Headers
            // need no drop.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

/// Rounds up `len` to a multiple of ALIGN. Fewer instructions than `next_multiple_of`.
#[inline]
const fn padded(len: usize) -> usize {
    (len + ALIGN - 1) & !(ALIGN - 1)
}

/// Prefetches the 64 bytes at `address`, which may be any address.
#[inline]
fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint, which neither reads nor faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

fn capacity_overflow() -> ! {
    panic!("memtable: more memory asked for than an address can name")
}
