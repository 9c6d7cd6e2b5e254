//! A connection whose client does not read: what it is sent waits in the system's buffers, and then here. It is given up after a while.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Fails a write that makes no progress for so long. Reads go through as they are.
pub(crate) struct Impatient<S> {
    inner: S,
    patience: Duration,
    /// Until when the write that waits has time; none while none waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    pub(crate) fn new(inner: S, patience: Duration) -> Self {
        Self { inner, patience, waiting: None }
    }

    /// What the inner one answered, unless it has waited for too long.
    fn judge<T>(&mut self, answer: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if answer.is_ready() {
            self.waiting = None;
            return answer;
        }
        let patience = self.patience;
        let waiting =
            self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read what it is sent")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.judge(answer, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.judge(answer, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = Pin::new(&mut self.inner).poll_flush(context);
        self.judge(answer, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = Pin::new(&mut self.inner).poll_shutdown(context);
        self.judge(answer, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_is_given_up() {
        let (ours, theirs) = tokio::io::duplex(8);
        let mut ours = Impatient::new(ours, Duration::from_secs(10));
        ours.write_all(&[0; 8]).await.unwrap();
        let begun = Instant::now();
        assert_eq!(ours.write_all(&[0; 8]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= Duration::from_secs(10));
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_reads_slowly_is_waited_for() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut ours = Impatient::new(ours, Duration::from_secs(10));
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(6)).await;
                let mut some = [0; 8];
                theirs.read_exact(&mut some).await.unwrap();
                all.extend(some);
            }
            all.len()
        });
        ours.write_all(&[7; 64]).await.unwrap();
        assert_eq!(reading.await.unwrap(), 64);
    }
}
