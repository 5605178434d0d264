//! Slots of connections: which connection has one, which gives it up when none is left or when the server stops, and how it is
//! closed.
//!
//! Invariants
//! * there are no more connections than places, but for a few that are being closed;
//! * a place is taken from the one who has it longest of those whom nobody knows and who are not through with a request:
//!   silent and slow connections, however many, shut nobody out, and nobody shuts out who ever showed a key or a token;
//! * lingering close: closing with unread input resets the connection and may lose the answer, so writing is shut down first
//!   and input is drained for a bounded time;
//! * a connection is not cut off while it has a request whose head is whole, or an answer that is not sent, unless that takes
//!   longer than it may.
//!
//! Not here: time (`server`, which asks for answers that are being sent), who is known (`auth`).

use std::collections::BTreeMap;
use std::future::pending;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep};

use crate::sync::{AtomicBool, Mutex, Ordering};

use super::limits::{DRAINED_BYTES_MAX, REFUSALS_MAX, SMALL_BYTES};

/// All places of a server.
#[derive(Debug)]
pub(in crate::rest) struct Seats {
    free: Arc<Semaphore>,
    /// Of those who gave up their place and are not gone yet.
    leaving: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// By arrival.
    seats: BTreeMap<u64, Arc<Seat>>,
}

/// The place of a connection.
#[derive(Debug)]
pub(crate) struct Seat {
    state: Mutex<State>,
    leave: Notify,
    /// Its client may go on to send after the answer, which is the last.
    leaves_unread: AtomicBool,
    answer: watch::Sender<Answer>,
}

/// The last answer that was not small.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rest) struct Answer {
    id: u64,
    /// None once it is sent.
    pub(in crate::rest) bytes: usize,
}

/// A body on its way.
struct Watched {
    body: Bytes,
    id: u64,
    seat: Arc<Seat>,
}

#[derive(Debug)]
struct State {
    /// Held as long as the connection is there.
    place: OwnedSemaphorePermit,
    phase: Phase,
    is_known: bool,
    has_begun: bool,
    leaves: bool,
}

/// How far a connection is with its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its head is not whole.
    Head,
    /// Its body is not whole.
    Body,
    /// It is carried out.
    Work,
    /// Its answer is there, and nothing of it is written.
    Answer,
    /// Its answer is being written.
    Writing,
}

/// A place while it is taken.
#[derive(Debug)]
pub(in crate::rest) struct Sitting {
    seats: Arc<Seats>,
    id: u64,
    pub(in crate::rest) seat: Arc<Seat>,
}

/// The stream of a connection, which tells its place when an answer is sent, and is closed with all input read.
#[derive(Debug)]
pub(in crate::rest) struct Seated<S> {
    stream: S,
    seat: Arc<Seat>,
    /// Once writing is shut down: until when the client may send, and how much.
    draining: Option<(Pin<Box<Sleep>>, u64)>,
}

/// How long a client may go on to send: a slow one has its answer only once it has sent all.
const LINGER_TIME: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 4 << 10;

impl Seats {
    pub(in crate::rest) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(places)),
            leaving: Arc::new(Semaphore::new(REFUSALS_MAX)),
            taken: Mutex::default(),
        })
    }

    /// A place, if need be that of somebody else; `None` if nobody can be asked for his.
    pub(in crate::rest) fn take(self: &Arc<Self>) -> Option<Sitting> {
        let mut taken = self.taken.lock();
        let place = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => self.free_one(&taken)?,
        };
        let id = taken.next;
        taken.next += 1;
        let seat = Arc::new(Seat::new(place));
        taken.seats.insert(id, Arc::clone(&seat));
        Some(Sitting { seats: Arc::clone(self), id, seat })
    }

    fn free_one(&self, taken: &Taken) -> Option<OwnedSemaphorePermit> {
        let mut leaving = Arc::clone(&self.leaving).try_acquire_owned().ok()?;
        for seat in taken.seats.values() {
            let mut state = seat.state.lock();
            let waits = matches!(state.phase, Phase::Head | Phase::Body);
            if !state.is_known && !state.leaves && waits {
                std::mem::swap(&mut state.place, &mut leaving);
                state.leaves = true;
                seat.leave.notify_one();
                return Some(leaving);
            }
        }
        None
    }

    /// Ends the connections that have neither a request under way nor an answer that is not sent.
    pub(in crate::rest) fn clear(&self) {
        for seat in self.taken.lock().seats.values() {
            let mut state = seat.state.lock();
            if state.phase == Phase::Head {
                state.leaves = true;
                seat.leave.notify_one();
            }
        }
    }
}

impl Seat {
    /// The place of a connection that is there as long as `place` is held.
    pub(in crate::rest) fn new(place: OwnedSemaphorePermit) -> Self {
        let state =
            State { place, phase: Phase::Head, is_known: false, has_begun: false, leaves: false };
        let (answer, _) = watch::channel(Answer::default());
        let leaves_unread = AtomicBool::new(false);
        Seat { state: Mutex::new(state), leave: Notify::new(), leaves_unread, answer }
    }

    /// Its client may go on to send after the answer, which is the last.
    pub(in crate::rest) fn leave_unread(&self) {
        self.leaves_unread.store(true, Ordering::SeqCst);
    }

    pub(in crate::rest) fn leaves_unread(&self) -> bool {
        self.leaves_unread.load(Ordering::SeqCst)
    }

    /// `body` as the answer, of which it is known when the last of it is sent. Small ones are not looked at.
    pub(in crate::rest) fn watch(self: &Arc<Self>, body: Bytes) -> Bytes {
        if body.len() <= SMALL_BYTES {
            return body;
        }
        let mut id = 0;
        self.answer.send_modify(|answer| {
            id = answer.id + 1;
            *answer = Answer { id, bytes: body.len() };
        });
        Bytes::from_owner(Watched { body, id, seat: Arc::clone(self) })
    }

    /// The next answer that is to be sent, or the one that is being sent.
    pub(in crate::rest) async fn next_answer(&self) -> Answer {
        self.find(|answer| answer.bytes > 0).await
    }

    /// Done when `sent` is.
    pub(in crate::rest) async fn is_sent(&self, sent: Answer) {
        self.find(|answer| answer.id != sent.id || answer.bytes == 0).await;
    }

    async fn find(&self, is_it: impl FnMut(&Answer) -> bool) -> Answer {
        let mut answers = self.answer.subscribe();
        let found = answers.wait_for(is_it).await.map(|answer| *answer);
        match found {
            Ok(answer) => answer,
            // Not as long as there is somebody to ask.
            Err(_) => pending().await,
        }
    }

    /// Done when the connection is to be closed.
    pub(in crate::rest) async fn left(&self) {
        self.leave.notified().await;
    }

    /// The head of a request is whole. Never done if it comes too late: the connection is about to be closed.
    pub(in crate::rest) async fn begin(&self) {
        self.go_on(Phase::Body).await;
    }

    /// The request is whole and is carried out now. Never done if it comes too late.
    pub(in crate::rest) async fn work(&self) {
        self.go_on(Phase::Work).await;
    }

    async fn go_on(&self, phase: Phase) {
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

    /// Whether the head of any request was whole yet.
    pub(in crate::rest) fn has_begun(&self) -> bool {
        self.state.lock().has_begun
    }

    /// Whoever is at the other end showed a key or a token.
    pub(in crate::rest) fn know(&self) {
        self.state.lock().is_known = true;
    }

    /// The answer to the request is there, to be sent.
    pub(in crate::rest) fn answered(&self) {
        self.state.lock().phase = Phase::Answer;
    }

    fn written(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Answer {
            state.phase = Phase::Writing;
        }
    }

    /// Nothing is left to be written.
    fn flushed(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Writing {
            state.phase = Phase::Head;
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.seat.answer.send_modify(|answer| {
            if answer.id == self.id {
                answer.bytes = 0;
            }
        });
    }
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        self.seats.taken.lock().seats.remove(&self.id);
    }
}

impl<S> Seated<S> {
    pub(in crate::rest) fn new(stream: S, seat: Arc<Seat>) -> Self {
        Self { stream, seat, draining: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Seated<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Seated<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.seat.written();
        Pin::new(&mut self.stream).poll_write(context, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.seat.written();
        Pin::new(&mut self.stream).poll_write_vectored(context, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called only when all was handed over.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.seat.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Seated { stream, seat, draining } = &mut *self;
        if draining.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
            if !seat.leaves_unread() {
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
    use std::task::Waker;

    use tokio::io::AsyncWriteExt;

    use super::*;

    fn is_done(future: impl Future<Output = ()>) -> bool {
        let mut future = std::pin::pin!(future);
        future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn taken(seats: &Arc<Seats>) -> Sitting {
        seats.take().unwrap()
    }

    #[test]
    fn the_one_who_is_silent_for_longest_gives_up_his_place() {
        let seats = Seats::new(3);
        let [first, second, third] = [taken(&seats), taken(&seats), taken(&seats)];
        let fourth = taken(&seats);
        assert!(is_done(first.seat.left()) && !is_done(second.seat.left()));
        assert!(!is_done(first.seat.begin()), "too late");
        // Who is known stays, and so does whose request is carried out.
        second.seat.know();
        assert!(is_done(third.seat.begin()) && is_done(third.seat.work()));
        assert!(is_done(fourth.seat.begin()));
        let fifth = taken(&seats);
        assert!(is_done(fourth.seat.left()) && !is_done(fourth.seat.work()));
        fifth.seat.know();
        assert!(seats.take().is_none());
        drop(second);
        assert!(seats.take().is_some());
    }

    #[test]
    fn few_are_closing_at_a_time() {
        let seats = Seats::new(1);
        let mut gone: Vec<_> = (0..=REFUSALS_MAX).map(|_| taken(&seats)).collect();
        assert!(seats.take().is_none());
        gone.remove(0);
        assert!(seats.take().is_some());
    }

    #[test]
    fn answers_are_watched_until_they_are_sent() {
        let seats = Seats::new(1);
        let seat = taken(&seats).seat.clone();
        let next = || {
            let mut next = std::pin::pin!(seat.next_answer());
            match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            }
        };
        let large = || Bytes::from(vec![b'x'; SMALL_BYTES + 1]);
        drop(seat.watch(Bytes::from_static(b"small")));
        assert!(next().is_none());
        let first = seat.watch(large());
        let answer = next().unwrap();
        assert_eq!((answer.bytes, &first[..]), (SMALL_BYTES + 1, &large()[..]));
        let end = first.slice(SMALL_BYTES..);
        drop(first);
        assert!(!is_done(seat.is_sent(answer)), "its last byte is not sent");
        drop(end);
        assert!(is_done(seat.is_sent(answer)) && next().is_none());
        // Whoever comes late finds the next one under way.
        let _second = seat.watch(large());
        assert!(is_done(seat.is_sent(answer)) && !is_done(seat.is_sent(next().unwrap())));
    }

    #[test]
    fn a_stop_ends_who_has_nothing_under_way() {
        let seats = Seats::new(3);
        let [silent, busy] = [taken(&seats), taken(&seats)];
        assert!(is_done(busy.seat.begin()));
        seats.clear();
        assert!(is_done(silent.seat.left()) && !is_done(busy.seat.left()));
        // An answer that is not sent counts.
        busy.seat.answered();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (near, _far) = tokio::io::duplex(64);
            let mut stream = Seated::new(near, Arc::clone(&busy.seat));
            stream.flush().await.unwrap();
            seats.clear();
            assert!(!is_done(busy.seat.left()));
            stream.write_all(b"answer").await.unwrap();
            seats.clear();
            assert!(!is_done(busy.seat.left()));
            stream.flush().await.unwrap();
            seats.clear();
            assert!(is_done(busy.seat.left()));
        });
    }
}
