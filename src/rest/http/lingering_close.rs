//! Closing a connection whose client still sends: closed with something unread it would be reset, and the client might never
//! see its answer. So it is told that there is nothing more, and what it sends is read and forgotten for a while.
//!
//! Not here: which connections are closed so (`server`).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::sync::{AtomicBool, Ordering};

use super::limits::DRAINED_BYTES_MAX;

/// How long a client may go on to send: slow ones have their answer only when they have sent all.
const LINGER_TIME: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 4 << 10;

/// Whether something may be left unread.
#[derive(Clone, Debug, Default)]
pub(in crate::rest) struct Unread(Arc<AtomicBool>);

/// The stream of a connection.
#[derive(Debug)]
pub(in crate::rest) struct Lingering<S> {
    stream: S,
    unread: Unread,
    /// Of one that is told already: until when it may send, and how much.
    told: Option<(Pin<Box<Sleep>>, u64)>,
}

impl Unread {
    pub(in crate::rest) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(in crate::rest) fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl<S> Lingering<S> {
    pub(in crate::rest) fn new(stream: S, unread: Unread) -> Self {
        Lingering { stream, unread, told: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Lingering { stream, unread, told } = &mut *self;
        if told.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
            if !unread.get() {
                return Poll::Ready(Ok(()));
            }
        }
        let (end, left) =
            told.get_or_insert_with(|| (Box::pin(sleep(LINGER_TIME)), DRAINED_BYTES_MAX));
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
