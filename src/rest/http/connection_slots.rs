//! Assigns connection slots, frees one when none is left, and closes connections gently.
//!
//! Invariants
//! * there are no more connections than slots, except for a bounded number that are being closed;
//! * when no slot is free, a connection without a complete request is closed: the oldest
//!   unauthenticated one, or else one of an account above its share, so no client locks out others;
//! * requests that are being carried out and unsent answers are cut off only at a time limit;
//! * a close first reads unread input for a bounded time, because a reset may lose the answer.
//!
//! `server` enforces time limits, and `auth` authenticates clients.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep};

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::limits::{DRAINED_BYTES_MAX, REFUSALS_MAX, SMALL_BYTES};

/// The connection slots of a server.
#[derive(Debug)]
pub(in crate::rest) struct ConnectionSlots {
    places: usize,
    free: Arc<Semaphore>,
    /// Permits for connections that gave up their slot and are still closing.
    leaving: Arc<Semaphore>,
    taken: Mutex<Taken>,
    /// The number of connections and answers so far, see [`State::turn`].
    turns: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// The slots in use, keyed by arrival number, so that the oldest is first.
    slots: BTreeMap<u64, Arc<ConnectionSlot>>,
}

/// The slot and the state of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    peer: IpAddr,
    turns: Arc<AtomicU64>,
    state: Mutex<State>,
    leave: Notify,
    /// Whether the connection is closed after the current answer, while the client may still be
    /// sending.
    may_leave_input_unread: AtomicBool,
    answer: watch::Sender<Answer>,
}

/// The latest large answer of a connection, whose sending has a time limit. Small answers are not
/// tracked.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rest) struct Answer {
    id: u64,
    /// The size of the answer; 0 when it has been sent.
    pub(in crate::rest) bytes: usize,
}

/// The body of a large answer. When it is dropped, it has been sent.
struct WatchedBody {
    body: Bytes,
    id: u64,
    slot: Arc<ConnectionSlot>,
}

#[derive(Debug)]
struct State {
    /// The permit that limits the number of connections. Held until the connection is closed.
    place: OwnedSemaphorePermit,
    phase: Phase,
    /// The account whose key or token the client has presented; `None` until then.
    account: Option<Arc<str>>,
    /// Orders the connections by their latest answer, or else by their opening.
    turn: u64,
    has_begun: bool,
    leaves: bool,
}

/// The phase of a connection's current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The request's head is incomplete.
    Head,
    /// The request's body is incomplete, or the request waits for changes.
    Body,
    /// The request is being carried out.
    Work,
    /// The answer is ready, and none of its bytes is written.
    Answer,
    /// The answer is being written.
    Writing,
}

/// The slot of an open connection.
#[derive(Debug)]
pub(in crate::rest) struct HeldSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    pub(in crate::rest) slot: Arc<ConnectionSlot>,
}

/// The stream of a connection. It records when an answer has been sent. Its shutdown reads and
/// discards further input of the client.
#[derive(Debug)]
pub(in crate::rest) struct SlotStream<S> {
    stream: S,
    slot: Arc<ConnectionSlot>,
    /// The time limit for further input, and the number of bytes that may still be discarded. Set
    /// when writing has been shut down.
    draining: Option<(Pin<Box<Sleep>>, u64)>,
}

/// The maximum time for which input is discarded. It is long because a client may read the answer
/// only after it has sent everything.
const LINGER_TIME: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 4 << 10;

impl ConnectionSlots {
    pub(in crate::rest) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places,
            turns: Arc::new(AtomicU64::new(0)),
            free: Arc::new(Semaphore::new(places)),
            leaving: Arc::new(Semaphore::new(REFUSALS_MAX)),
            taken: Mutex::default(),
        })
    }

    /// Takes a free slot, or the slot of the oldest connection that may be closed. Returns `None`
    /// if there is neither.
    pub(in crate::rest) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<HeldSlot> {
        let mut taken = self.taken.lock();
        let place = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => self.free_one(&taken)?,
        };
        let id = taken.next;
        taken.next += 1;
        let turns = Arc::clone(&self.turns);
        let slot = Arc::new(ConnectionSlot { turns, ..ConnectionSlot::new(place, peer) });
        slot.next_turn(&mut slot.state.lock());
        taken.slots.insert(id, Arc::clone(&slot));
        Some(HeldSlot { slots: Arc::clone(self), id, slot })
    }

    fn free_one(&self, taken: &Taken) -> Option<OwnedSemaphorePermit> {
        let mut leaving = Arc::clone(&self.leaving).try_acquire_owned().ok()?;
        let mut gives_up = |slot: &Arc<ConnectionSlot>, is_known: bool| {
            let mut state = slot.state.lock();
            let is_chosen = state.may_leave() && state.account.is_some() == is_known;
            if is_chosen {
                std::mem::swap(&mut state.place, &mut leaving);
                state.leaves = true;
                slot.leave.notify_one();
            }
            is_chosen
        };
        let is_freed = taken.slots.values().any(|slot| gives_up(slot, false))
            || taken.above_share(self.places).is_some_and(|slot| gives_up(slot, true));
        is_freed.then_some(leaving)
    }

    /// Closes the connections that have neither a request in progress nor an unsent answer.
    pub(in crate::rest) fn clear(&self) {
        for slot in self.taken.lock().slots.values() {
            let mut state = slot.state.lock();
            if state.phase == Phase::Head {
                state.leaves = true;
                slot.leave.notify_one();
            }
        }
    }
}

impl Taken {
    /// Returns a connection that may be closed and whose account has more than its share of the
    /// slots: an equal part for each account that has connections, and one for all other clients.
    /// Returns `None` if these have their part already. Of the connections found, it returns the
    /// connection of the account, and then of the address, with the most connections that has been
    /// idle for longest.
    fn above_share(&self, places: usize) -> Option<&Arc<ConnectionSlot>> {
        let (mut of_account, mut of_client, mut of_others) = (HashMap::new(), HashMap::new(), 0);
        for slot in self.slots.values() {
            let state = slot.state.lock();
            match state.account.clone() {
                _ if state.leaves => {}
                Some(account) => {
                    *of_client.entry((Arc::clone(&account), slot.peer)).or_insert(0) += 1;
                    *of_account.entry(account).or_insert(0) += 1;
                }
                None => of_others += 1,
            }
        }
        let share = (places / (of_account.len() + 1)).max(1);
        // With small shares one unauthenticated request would otherwise refuse all new clients.
        if of_others >= share.max(2) {
            return None;
        }
        let candidates = self.slots.values().filter_map(|slot| {
            let state = slot.state.lock();
            let account = state.account.clone().filter(|_| state.may_leave())?;
            let held = of_account.get(&account).copied().filter(|held| *held > share)?;
            let of_client = of_client.get(&(account, slot.peer)).copied();
            let is_idle = state.phase == Phase::Head;
            Some(((held, of_client, is_idle, Reverse(state.turn)), slot))
        });
        candidates.max_by_key(|(rank, _)| *rank).map(|(_, slot)| slot)
    }
}

impl State {
    /// Whether the connection can be closed without cutting off a complete request or an answer.
    fn may_leave(&self) -> bool {
        !self.leaves && matches!(self.phase, Phase::Head | Phase::Body)
    }
}

impl ConnectionSlot {
    /// Creates the slot of a new connection. It holds the permit `place`, which counts against the
    /// limit on connections.
    pub(in crate::rest) fn new(place: OwnedSemaphorePermit, peer: IpAddr) -> Self {
        ConnectionSlot {
            peer,
            turns: Arc::new(AtomicU64::new(0)),
            state: Mutex::new(State {
                place,
                phase: Phase::Head,
                account: None,
                turn: 0,
                has_begun: false,
                leaves: false,
            }),
            leave: Notify::new(),
            may_leave_input_unread: AtomicBool::new(false),
            answer: watch::Sender::new(Answer::default()),
        }
    }

    /// Records that the connection is closed after the current answer, although the client may
    /// still be sending.
    pub(in crate::rest) fn leave_input_unread(&self) {
        self.may_leave_input_unread.store(true, Ordering::SeqCst);
    }

    pub(in crate::rest) fn may_leave_input_unread(&self) -> bool {
        self.may_leave_input_unread.load(Ordering::SeqCst)
    }

    /// Wraps `body` so that the slot records when the last byte of the body has been sent. Small
    /// bodies are returned unchanged.
    pub(in crate::rest) fn watch(self: &Arc<Self>, body: Bytes) -> Bytes {
        if body.len() <= SMALL_BYTES {
            return body;
        }
        let mut id = 0;
        self.answer.send_modify(|answer| {
            id = answer.id + 1;
            *answer = Answer { id, bytes: body.len() };
        });
        Bytes::from_owner(WatchedBody { body, id, slot: Arc::clone(self) })
    }

    /// Returns the tracked answer that is being sent, or waits for the next one.
    pub(in crate::rest) async fn next_answer(&self) -> Answer {
        self.find(|answer| answer.bytes > 0).await
    }

    /// Completes when the answer `sent` has been sent.
    pub(in crate::rest) async fn is_sent(&self, sent: Answer) {
        self.find(|answer| answer.id != sent.id || answer.bytes == 0).await;
    }

    async fn find(&self, is_it: impl FnMut(&Answer) -> bool) -> Answer {
        let mut answers = self.answer.subscribe();
        let found = answers.wait_for(is_it).await.map(|answer| *answer);
        match found {
            Ok(answer) => answer,
            // Cannot happen while `self` holds the sender.
            Err(_) => pending().await,
        }
    }

    /// Completes when the connection must be closed: another connection needs its slot, or the
    /// server stops.
    pub(in crate::rest) async fn left(&self) {
        self.leave.notified().await;
    }

    /// Records that the head of a request is complete. If the connection is to be closed, this
    /// future never completes, so that the request is not carried out.
    pub(in crate::rest) async fn begin(&self) {
        self.enter_phase(Phase::Body).await;
    }

    /// Records that the request is complete and is being carried out. If the connection is to be
    /// closed, this future never completes.
    pub(in crate::rest) async fn work(&self) {
        self.enter_phase(Phase::Work).await;
    }

    /// Records that the request waits for changes. Its connection may be closed meanwhile, so that
    /// waiting requests do not keep out other clients. [`work`](Self::work) ends the wait.
    pub(in crate::rest) async fn wait(&self) {
        self.enter_phase(Phase::Body).await;
    }

    async fn enter_phase(&self, phase: Phase) {
        let leaves = {
            let mut state = self.state.lock();
            if !state.leaves {
                state.phase = phase;
                state.has_begun = true;
            }
            state.leaves
        };
        if leaves {
            pending().await
        }
    }

    /// Whether the connection has ever received a complete request head.
    pub(in crate::rest) fn has_begun(&self) -> bool {
        self.state.lock().has_begun
    }

    /// Records that the client has presented a valid key or token of `account`.
    pub(in crate::rest) fn mark_authenticated(&self, account: &str) {
        let mut state = self.state.lock();
        if state.account.as_deref() != Some(account) {
            state.account = Some(account.into());
        }
    }

    fn next_turn(&self, state: &mut State) {
        state.turn = self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the answer to the request is ready to be sent.
    pub(in crate::rest) fn answered(&self) {
        self.state.lock().phase = Phase::Answer;
    }

    fn written(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Answer {
            state.phase = Phase::Writing;
        }
    }

    /// Records that everything written so far has been sent.
    fn flushed(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Writing {
            state.phase = Phase::Head;
            self.next_turn(&mut state);
        }
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.slot.answer.send_modify(|answer| {
            if answer.id == self.id {
                answer.bytes = 0;
            }
        });
    }
}

impl AsRef<[u8]> for WatchedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let gone = self.slots.taken.lock().slots.remove(&self.id);
        debug_assert!(gone.is_some(), "a slot that is given back was taken");
    }
}

impl<S> SlotStream<S> {
    pub(in crate::rest) fn new(stream: S, slot: Arc<ConnectionSlot>) -> Self {
        Self { stream, slot, draining: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SlotStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for SlotStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.slot.written();
        Pin::new(&mut self.stream).poll_write(context, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.slot.written();
        Pin::new(&mut self.stream).poll_write_vectored(context, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// The HTTP library calls this only after it has passed the whole answer to the stream.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.slot.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let SlotStream { stream, slot, draining } = &mut *self;
        if draining.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
            if !slot.may_leave_input_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        let (end, left) =
            draining.get_or_insert_with(|| (Box::pin(sleep(LINGER_TIME)), DRAINED_BYTES_MAX));
        while *left > 0 && end.as_mut().poll(context).is_pending() {
            let mut piece = [0; PIECE_BYTES];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut piece))?;
            match piece.filled().len() {
                0 => break,
                len => *left = left.saturating_sub(len as u64),
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::task::Waker;

    use tokio::io::AsyncWriteExt;

    use super::*;

    fn is_done(future: impl Future<Output = ()>) -> bool {
        let mut future = std::pin::pin!(future);
        future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn taken(slots: &Arc<ConnectionSlots>) -> HeldSlot {
        slots.take(PEER).unwrap()
    }

    #[test]
    fn the_connection_idle_for_longest_gives_up_its_slot() {
        let slots = ConnectionSlots::new(3);
        let [first, second, third] = [taken(&slots), taken(&slots), taken(&slots)];
        let fourth = taken(&slots);
        assert!(is_done(first.slot.left()) && !is_done(second.slot.left()));
        assert!(!is_done(first.slot.begin()), "the slot was already taken from the connection");
        // A connection keeps its slot if it is authenticated, or if its request is being carried
        // out.
        second.slot.mark_authenticated("acme");
        assert!(is_done(third.slot.begin()) && is_done(third.slot.work()));
        assert!(is_done(fourth.slot.begin()));
        let fifth = taken(&slots);
        assert!(is_done(fourth.slot.left()) && !is_done(fourth.slot.work()));
        fifth.slot.mark_authenticated("labs");
        assert!(slots.take(PEER).is_none());
        drop(second);
        assert!(slots.take(PEER).is_some());
    }

    #[test]
    fn an_account_above_its_share_gives_up_the_slot_idle_for_longest() {
        let slots = ConnectionSlots::new(4);
        let held = [0, 0, 0, 9].map(|host| slots.take([127, 0, 0, host].into()).unwrap());
        held.iter().for_each(|held| held.slot.mark_authenticated("acme"));
        // The first connection gets an answer, so the second one has been idle for longest. The
        // last one has an address with fewer connections.
        held[0].slot.answered();
        held[0].slot.written();
        held[0].slot.flushed();
        let left = || held.each_ref().map(|held| is_done(held.slot.left()));
        let first = taken(&slots);
        assert_eq!(left(), [false, true, false, false]);
        // The account still has three slots, and both accounts have a share of one.
        first.slot.mark_authenticated("labs");
        let second = taken(&slots);
        assert_eq!(left(), [false, false, true, false]);
        second.slot.mark_authenticated("labs");
        // No request in progress is cut off.
        for held in [&held[0], &held[3], &first, &second] {
            assert!(is_done(held.slot.begin()) && is_done(held.slot.work()));
        }
        assert!(slots.take(PEER).is_none());
        drop(first);
        assert!(slots.take(PEER).is_some());
    }

    /// Otherwise clients without a key could take all slots but one part.
    #[test]
    fn accounts_give_up_no_slots_beyond_the_part_of_other_clients() {
        let slots = ConnectionSlots::new(4);
        let held: Vec<_> = (0..4).map(|_| taken(&slots)).collect();
        held.iter().for_each(|held| held.slot.mark_authenticated("acme"));
        for _ in 0..2 {
            let other = taken(&slots);
            assert!(is_done(other.slot.begin()) && is_done(other.slot.work()));
            std::mem::forget(other);
        }
        assert!(slots.take(PEER).is_none());
    }

    #[test]
    fn accounts_within_their_shares_keep_their_slots() {
        let slots = ConnectionSlots::new(3);
        let held: Vec<_> = (0..3).map(|_| taken(&slots)).collect();
        for (held, account) in held.iter().zip(["acme", "labs", "shop"]) {
            held.slot.mark_authenticated(account);
        }
        assert!(slots.take(PEER).is_none());
    }

    #[test]
    fn a_request_that_waits_for_changes_gives_up_its_slot() {
        let slots = ConnectionSlots::new(3);
        let held = [(); 3].map(|()| taken(&slots));
        for held in &held {
            held.slot.mark_authenticated("a");
            assert!(is_done(held.slot.work()));
        }
        assert!(slots.take(IpAddr::from([192, 0, 2, 9])).is_none());
        assert!(is_done(held[1].slot.wait()));
        let _other = taken(&slots);
        assert!(is_done(held[1].slot.left()) && !is_done(held[1].slot.work()));
    }

    #[test]
    fn the_number_of_closing_connections_is_limited() {
        let slots = ConnectionSlots::new(1);
        let mut gone: Vec<_> = (0..=REFUSALS_MAX).map(|_| taken(&slots)).collect();
        assert!(slots.take(PEER).is_none());
        gone.remove(0);
        assert!(slots.take(PEER).is_some());
    }

    #[test]
    fn answers_are_watched_until_they_are_sent() {
        let slots = ConnectionSlots::new(1);
        let slot = taken(&slots).slot.clone();
        let next = || {
            let mut next = std::pin::pin!(slot.next_answer());
            match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            }
        };
        let large = || Bytes::from(vec![b'x'; SMALL_BYTES + 1]);
        drop(slot.watch(Bytes::from_static(b"small")));
        assert!(next().is_none());
        let first = slot.watch(large());
        let answer = next().unwrap();
        assert_eq!((answer.bytes, &first[..]), (SMALL_BYTES + 1, &large()[..]));
        let end = first.slice(SMALL_BYTES..);
        drop(first);
        assert!(!is_done(slot.is_sent(answer)), "the last byte of the response is not sent");
        drop(end);
        assert!(is_done(slot.is_sent(answer)) && next().is_none());
        // A caller that asks later still gets the next answer, if it is being sent.
        let _second = slot.watch(large());
        assert!(is_done(slot.is_sent(answer)) && !is_done(slot.is_sent(next().unwrap())));
    }

    #[test]
    fn a_stop_ends_connections_without_a_request_in_progress() {
        let slots = ConnectionSlots::new(3);
        let [silent, busy] = [taken(&slots), taken(&slots)];
        assert!(is_done(busy.slot.begin()));
        slots.clear();
        assert!(is_done(silent.slot.left()) && !is_done(busy.slot.left()));
        // A connection with an unsent answer is kept.
        busy.slot.answered();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (near, _far) = tokio::io::duplex(64);
            let mut stream = SlotStream::new(near, Arc::clone(&busy.slot));
            stream.flush().await.unwrap();
            slots.clear();
            assert!(!is_done(busy.slot.left()));
            stream.write_all(b"answer").await.unwrap();
            slots.clear();
            assert!(!is_done(busy.slot.left()));
            stream.flush().await.unwrap();
            slots.clear();
            assert!(is_done(busy.slot.left()));
        });
    }
}
