//! Limits the memory of request bodies, which are read completely before they are parsed, and of
//! response bodies that are not sent yet.
//!
//! Invariants
//! * memory is counted when it is about to be used, not when the client announces a length;
//! * an unauthenticated client uses no budget: more than a small body is read only after `admit`;
//! * a body uses memory in proportion to its bytes, and returns all of it when it is dropped;
//! * a reused buffer never exposes its old content.
//!
//! `protocol` parses the content of bodies, and `server` limits the time.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use memmap2::MmapMut;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Code;
use crate::rest::protocol::fault::Fault;
use crate::sync::Mutex;

use super::limits::{BODY_BYTES_MAX, DRAINED_BYTES_MAX, SMALL_BYTES};

/// A limit on the bytes of all request bodies together, or of all response bodies together.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Bodies>);

#[derive(Debug)]
struct Bodies {
    left: Arc<Semaphore>,
    /// Buffers of bodies that were sent, kept for reuse because the system has to clear every page
    /// of new memory. They do not count towards the limit until they are reused. They have at most
    /// 8 MiB together.
    spare: Mutex<Vec<Vec<u8>>>,
}

/// A part of a budget that a body uses. It is returned when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<(OwnedSemaphorePermit, Budget)>);

/// The unit in which a budget is counted, in bytes.
const UNIT: usize = 1 << 10;
/// The maximum number of buffers that are kept, and the maximum capacity of each.
const SPARE_MAX: usize = 16;
const SPARE_BYTES: usize = 512 << 10;
/// A body that is not small is charged to the budget in steps of this number of bytes, each step
/// before its memory is used.
const PART_BYTES: usize = SMALL_BYTES;

/// A body that is being read. A small body is on the heap. A larger one is in a memory mapping of
/// the maximum length: the system provides memory only as it is written, and gets all of it back
/// when the body is dropped. On the heap, large bodies would fragment the arena of each thread.
struct Growing {
    small: Vec<u8>,
    large: Option<MmapMut>,
    len: usize,
    /// The length announced by the client, or else the maximum length.
    most: usize,
    share: Share,
}

impl Budget {
    pub(in crate::rest) fn new(bytes: usize) -> Self {
        let left = Semaphore::new((bytes / UNIT).min(Semaphore::MAX_PERMITS));
        Budget(Arc::new(Bodies { left: Arc::new(left), spare: Mutex::default() }))
    }

    /// Returns a buffer for a body. It may have old content, which the caller must clear or
    /// overwrite, and does not count towards the budget yet.
    pub(in crate::rest) fn spare(&self) -> Vec<u8> {
        self.0.spare.lock().pop().unwrap_or_default()
    }

    /// Keeps the buffer of a body that was sent for reuse, unless it is too large or enough buffers
    /// are kept.
    fn keep(&self, body: Vec<u8>) {
        let mut spare = self.0.spare.lock();
        if spare.len() < SPARE_MAX && body.capacity() <= SPARE_BYTES {
            spare.push(body);
        }
    }

    /// Increases `share` so that it covers a body of `bytes`; small bodies need no share.
    ///
    /// # Errors
    /// `ServerBusy` if the budget has too little left.
    pub(in crate::rest) fn grow(&self, share: &mut Share, bytes: usize) -> Result<(), Fault> {
        let needed = if bytes > SMALL_BYTES { bytes.div_ceil(UNIT) } else { 0 };
        let held = share.0.as_ref().map_or(0, |(held, _)| held.num_permits());
        let more = u32::try_from(needed.saturating_sub(held)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        let taken = Arc::clone(&self.0.left).try_acquire_many_owned(more);
        let taken = taken.map_err(|_| Fault::from(Code::ServerBusy))?;
        match &mut share.0 {
            Some((held, _)) => held.merge(taken),
            None => share.0 = Some((taken, self.clone())),
        }
        Ok(())
    }
}

impl Share {
    /// Reduces the share to the amount for a body of `bytes` bytes, and returns the excess to the
    /// budget.
    pub(in crate::rest) fn fit(&mut self, bytes: usize) {
        if let Some((held, _)) = &mut self.0 {
            let spare = held.num_permits().saturating_sub(bytes.div_ceil(UNIT));
            drop(held.split(spare));
        }
    }

    /// Converts `body` into bytes that keep this share until they are sent and dropped.
    pub(in crate::rest) fn hold(self, body: Vec<u8>) -> Bytes {
        match self.0 {
            Some((held, budget)) if body.len() > body.capacity().min(2 * SMALL_BYTES) / 2 => {
                Bytes::from_owner(Held { body, budget, _held: held })
            }
            // The body is small compared with its buffer: copy it, and keep the buffer for another
            // body.
            Some((_, budget)) => {
                let bytes = Bytes::copy_from_slice(&body);
                budget.keep(body);
                bytes
            }
            None => body.into(),
        }
    }
}

/// Reads a body to its end. In two cases it first waits for `admit` and returns its error: before
/// it reads more than a small body, and if `late` completes before a small body has arrived.
///
/// # Errors
/// `RequestBodyTooLarge`, `ServerBusy`, the errors of `admit`; `InvalidInput` if the connection
/// ended or its chunks are malformed.
pub(in crate::rest) async fn read<B>(
    body: &mut B,
    budget: &Budget,
    admit: impl Future<Output = Result<(), Fault>>,
    late: impl Future<Output = ()>,
) -> Result<(Bytes, Share), Fault>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint();
    if announced.lower() > BODY_BYTES_MAX as u64 {
        return Err(Code::RequestBodyTooLarge.into());
    }
    let mut admit = Some(admit);
    if announced.lower() > SMALL_BYTES as u64
        && let Some(admit) = admit.take()
    {
        admit.await?;
    }
    let mut read = Growing::new(announced.exact());
    let mut late = pin!(late);
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = &mut late, if admit.is_some() => {
                if let Some(admit) = admit.take() {
                    admit.await?;
                }
                continue;
            }
        };
        let Some(frame) = frame else { return Ok(read.end()) };
        let unreadable = |_| Fault::invalid("The body of the request could not be read.");
        // Trailers are ignored.
        let Ok(piece) = frame.map_err(unreadable)?.into_data() else { continue };
        if read.len + piece.len() > SMALL_BYTES
            && let Some(admit) = admit.take()
        {
            admit.await?;
        }
        if announced.exact() == Some(piece.len() as u64) {
            budget.grow(&mut read.share, piece.len())?;
            return Ok((piece, read.share));
        }
        read.append(&piece, budget)?;
    }
}

impl Growing {
    fn new(announced: Option<u64>) -> Self {
        let most = announced.and_then(|bytes| usize::try_from(bytes).ok());
        let most = most.unwrap_or(BODY_BYTES_MAX).min(BODY_BYTES_MAX);
        Self { small: Vec::new(), large: None, len: 0, most, share: Share::default() }
    }

    fn append(&mut self, piece: &[u8], budget: &Budget) -> Result<(), Fault> {
        let len = self.len + piece.len();
        if len > self.most {
            return Err(Code::RequestBodyTooLarge.into());
        }
        if len <= SMALL_BYTES {
            self.small.extend_from_slice(piece);
        } else {
            budget.grow(&mut self.share, len.next_multiple_of(PART_BYTES).min(self.most))?;
            let large = self.large()?;
            large[len - piece.len()..len].copy_from_slice(piece);
        }
        self.len = len;
        debug_assert!(self.large.is_none() || self.small.is_empty(), "a body is in one place");
        Ok(())
    }

    /// Returns the mapping; the first call moves the small body into it.
    fn large(&mut self) -> Result<&mut MmapMut, Fault> {
        if self.large.is_none() {
            let mut large = MmapMut::map_anon(self.most).map_err(|_| Code::ServerBusy)?;
            // Avoids huge pages, which would use 2 MiB for a single byte.
            #[cfg(target_os = "linux")]
            drop(large.advise(memmap2::Advice::NoHugePage));
            let small = std::mem::take(&mut self.small);
            large[..small.len()].copy_from_slice(&small);
            self.large = Some(large);
        }
        self.large.as_mut().ok_or_else(|| Code::InternalError.into())
    }

    fn end(self) -> (Bytes, Share) {
        let Growing { small, large, len, mut share, .. } = self;
        share.fit(len);
        match large {
            Some(large) => (Bytes::from_owner(large).slice(..len), share),
            None => (small.into(), share),
        }
    }
}

/// Reads and discards the rest of a body that is refused. Closing a connection with unread input
/// resets it, and the client may then lose the answer. Reads at most `DRAINED_BYTES_MAX`; returns
/// false if more is left.
pub(in crate::rest) async fn drain<B>(body: &mut B) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut left = DRAINED_BYTES_MAX;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let len = frame.data_ref().map_or(0, Bytes::len) as u64;
        match left.checked_sub(len) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

/// The body of a response.
///
/// If an empty body reports its end at once, the HTTP library omits the header `Content-Length: 0`,
/// which Azure Table storage sends. So an empty body reports its end only when it is polled.
pub(in crate::rest) struct Sent {
    bytes: Option<Bytes>,
    after: After,
}

/// The state of a body after its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    End,
    /// The bytes must be sent before the body fails.
    Flush,
    Fail,
}

impl Sent {
    pub(in crate::rest) fn new(bytes: Bytes, status: StatusCode) -> Self {
        let is_none = bytes.is_empty() && status != StatusCode::NO_CONTENT;
        Sent { bytes: (!is_none).then_some(bytes), after: After::End }
    }

    /// Returns a body that fails after these bytes, which closes the connection.
    pub(in crate::rest) fn cut(bytes: Bytes) -> Self {
        Sent { bytes: Some(bytes), after: After::Flush }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(bytes) = self.bytes.take().filter(|bytes| !bytes.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match self.after {
            After::End => Poll::Ready(None),
            After::Flush => {
                // The library flushes while a body is pending.
                self.after = After::Fail;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            After::Fail => Poll::Ready(Some(Err(io::Error::other("the answer is cut on purpose")))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && self.after == After::End
    }

    fn size_hint(&self) -> SizeHint {
        match self.after {
            After::End => {
                SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            After::Flush | After::Fail => SizeHint::default(),
        }
    }
}

struct Held {
    body: Vec<u8>,
    budget: Budget,
    _held: OwnedSemaphorePermit,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.keep(std::mem::take(&mut self.body));
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::{pending, ready};

    use super::*;

    /// A request body that arrives in these pieces.
    struct Pieces {
        pieces: VecDeque<Bytes>,
        hint: SizeHint,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
        }

        fn size_hint(&self) -> SizeHint {
            self.hint
        }
    }

    /// A request body of which nothing ever arrives.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    fn pieces(pieces: impl IntoIterator<Item = Vec<u8>>, announced: Option<u64>) -> Pieces {
        let hint = announced.map_or_else(SizeHint::new, SizeHint::with_exact);
        Pieces { pieces: pieces.into_iter().map(Bytes::from).collect(), hint }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn left(budget: &Budget) -> usize {
        budget.0.left.available_permits() * UNIT
    }

    #[track_caller]
    fn refused(mut body: Pieces, budget: &Budget, code: &str) {
        let before = left(budget);
        let fault = run(read(&mut body, budget, ready(Ok(())), pending())).unwrap_err();
        assert_eq!(fault.code, code);
        assert_eq!(left(budget), before, "the whole budget is free again");
    }

    #[test]
    fn bodies_are_read_whole() {
        let budget = Budget::new(1 << 20);
        for (mut body, expected) in [
            (pieces([], None), b"".to_vec()),
            (pieces([], Some(0)), b"".to_vec()),
            (pieces([b"abc".to_vec()], Some(3)), b"abc".to_vec()),
            (pieces([b"ab".to_vec(), b"c".to_vec()], Some(3)), b"abc".to_vec()),
            (
                pieces((0..100_000).map(|i| vec![i as u8]), None),
                (0..100_000).map(|i| i as u8).collect(),
            ),
            // Pieces of this length cross boundaries of `PART_BYTES`.
            (
                pieces((0..20).map(|i| vec![i; 30_011]), None),
                (0..20).flat_map(|i| vec![i; 30_011]).collect(),
            ),
            (pieces([vec![1; 5], vec![2; 3 * PART_BYTES - 5]], None), {
                [vec![1; 5], vec![2; 3 * PART_BYTES - 5]].concat()
            }),
        ] {
            let (bytes, share) = run(read(&mut body, &budget, ready(Ok(())), pending())).unwrap();
            assert_eq!(bytes, expected);
            let counted = (1 << 20) - left(&budget);
            assert!(
                bytes.len() <= SMALL_BYTES || counted >= bytes.len(),
                "the share covers the held memory"
            );
            drop(share);
            assert_eq!(left(&budget), 1 << 20);
        }
    }

    #[test]
    fn a_body_is_charged_before_its_memory_is_touched() {
        let budget = Budget::new(1 << 20);
        let mut body = Growing::new(None);
        for len in (7..=600_005).step_by(7) {
            body.append(&[1; 7], &budget).unwrap();
            let counted = if len > SMALL_BYTES { len.next_multiple_of(PART_BYTES) } else { 0 };
            assert_eq!(((1 << 20) - left(&budget), body.large.is_some()), (counted, counted > 0));
        }
        let (whole, share) = body.end();
        assert_eq!((whole.len(), left(&budget)), (600_005, (1 << 20) - 586 * UNIT));
        assert!(whole.iter().all(|byte| *byte == 1));
        drop(share);
        assert_eq!(left(&budget), 1 << 20);
    }

    #[test]
    fn bodies_are_bounded() {
        let budget = Budget::new(64 << 20);
        let huge = BODY_BYTES_MAX as u64 + 1;
        refused(pieces([], Some(huge)), &budget, "RequestBodyTooLarge");
        let unannounced = (0..65).map(|_| vec![0; BODY_BYTES_MAX / 64]);
        refused(pieces(unannounced, None), &budget, "RequestBodyTooLarge");
        let mut most = pieces((0..64).map(|_| vec![0; BODY_BYTES_MAX / 64]), None);
        let most = run(read(&mut most, &budget, ready(Ok(())), pending())).unwrap().0;
        assert_eq!(most.len(), BODY_BYTES_MAX);
    }

    #[test]
    fn an_announced_length_is_not_charged_before_it_arrives() {
        const LARGE: usize = 90 << 10;
        let budget = Budget::new(128 << 10);
        let announced = Some(BODY_BYTES_MAX as u64);
        let read = |body: &mut Pieces| run(read(body, &budget, ready(Ok(())), pending()));
        let (_, share) = read(&mut pieces([vec![0; SMALL_BYTES + 1]], announced)).unwrap();
        assert!(left(&budget) >= 32 << 10);
        refused(pieces([vec![0; LARGE]], None), &budget, "ServerBusy");
        refused(pieces([vec![0; LARGE]], Some(LARGE as u64)), &budget, "ServerBusy");
        assert!(
            read(&mut pieces([vec![0; SMALL_BYTES]], None)).is_ok(),
            "small bodies are admitted"
        );
        drop(share);
        assert!(read(&mut pieces([vec![0; LARGE]], None)).is_ok());
    }

    #[test]
    fn a_request_without_authentication_takes_no_memory() {
        let budget = Budget::new(64 << 20);
        let stranger = || ready(Err(Code::ResourceNotFound.into()));
        let large = || (0..100).map(|_| vec![0; 1 << 10]);
        // If the client announces a length that is not small, no byte of the body is read. If it
        // announces none, a few pieces are read.
        for (announced, unread) in [(Some(100 << 10), 100), (None, 35)] {
            let mut body = pieces(large(), announced);
            let fault = run(read(&mut body, &budget, stranger(), pending())).unwrap_err();
            assert_eq!((&*fault.code, body.pieces.len()), ("ResourceNotFound", unread));
            assert_eq!(left(&budget), 64 << 20);
        }
        // No budget is used while authentication is pending.
        let mut body = pieces(large(), None);
        let mut reading = Box::pin(read(&mut body, &budget, pending(), pending()));
        let waker = std::task::Waker::noop();
        assert!(reading.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        assert_eq!(left(&budget), 64 << 20);
        drop(reading);
        // After `late`, `admit` is called and refuses the client, so a body that never arrives is
        // not awaited, however small it is.
        let mut silent = Silent;
        let mut reading = Box::pin(read(&mut silent, &budget, stranger(), ready(())));
        let read_by = reading.as_mut().poll(&mut Context::from_waker(waker));
        assert!(matches!(read_by, Poll::Ready(Err(fault)) if fault.code == "ResourceNotFound"));
        drop(reading);
        let mut reading = Box::pin(read(&mut silent, &budget, ready(Ok(())), ready(())));
        assert!(reading.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        // A small body is read without calling `admit`; its client is authenticated later.
        let mut small = pieces([vec![0; SMALL_BYTES]], Some(SMALL_BYTES as u64));
        assert!(run(read(&mut small, &budget, stranger(), pending())).is_ok());
    }

    #[test]
    fn large_responses_hold_their_share_until_they_are_sent() {
        let budget = Budget::new(1 << 20);
        let share = |bytes| {
            let mut share = Share::default();
            budget.grow(&mut share, bytes).map(|()| share)
        };
        let large = || share(600 << 10).map(|share| share.hold(vec![1; 600 << 10]));
        let whole = large().unwrap();
        assert!(large().is_err());
        assert!(share(SMALL_BYTES).is_ok());
        let end = whole.slice(whole.len() - 1..);
        drop(whole);
        assert!(large().is_err(), "the last byte of the response is not sent");
        drop(end);
        assert!(large().is_ok());
    }

    #[test]
    fn the_memory_of_reused_buffers_is_bounded() {
        let budget = Budget::new(64 << 20);
        let sent = |bytes: usize, len: usize| {
            let mut share = Share::default();
            budget.grow(&mut share, bytes).unwrap();
            let mut body = vec![b'?'; bytes];
            body.truncate(len);
            assert_eq!(share.hold(body).len(), len);
        };
        let kept = || {
            let spares = budget.0.spare.lock();
            (spares.len(), spares.iter().map(Vec::capacity).sum::<usize>())
        };
        sent(100 << 10, 99 << 10);
        sent(100 << 10, 10);
        assert_eq!(kept(), (2, 200 << 10));
        sent(SPARE_BYTES + UNIT, SPARE_BYTES);
        assert_eq!(kept().0, 2, "a huge buffer is not reused");
        (0..20).map(|_| vec![0; SPARE_BYTES]).for_each(|body| budget.keep(body));
        assert_eq!(kept().0, SPARE_MAX);
        assert!(kept().1 <= 8 << 20);
        assert_eq!((budget.spare().capacity(), kept().0), (SPARE_BYTES, SPARE_MAX - 1));
        assert_eq!(left(&budget), 64 << 20);
    }

    #[test]
    fn an_excess_estimate_is_returned_to_the_budget() {
        let budget = Budget::new(1 << 20);
        let mut share = Share::default();
        share.fit(1);
        budget.grow(&mut share, 600 << 10).unwrap();
        share.fit(700 << 10);
        assert_eq!(left(&budget), 424 << 10);
        share.fit((100 << 10) - 1);
        assert_eq!(left(&budget), 924 << 10);
        drop(share);
        assert_eq!(left(&budget), 1 << 20);
    }

    #[test]
    fn draining_a_body_stops_at_its_limit() {
        let endless = (0..1000).map(|_| vec![0; 1 << 20]);
        let mut body = pieces(endless, None);
        run(drain(&mut body));
        assert_eq!(body.pieces.len(), 1000 - (DRAINED_BYTES_MAX as usize >> 20) - 1);
        let mut short = pieces([vec![0; 9]], None);
        run(drain(&mut short));
        assert!(short.pieces.is_empty());
    }
}
