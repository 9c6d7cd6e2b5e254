//! Things that are taken for a client: claims, leases, reservations. What nobody is there to be told of any more is given back, or it
//! would be held by nobody until it lapses.

use mainstay_core::Result;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::problem::{Kind, Problem};

/// Takes something in a task of its own, so that it comes to an end also when the client hangs up meanwhile, and gives it back unless
/// it is handed out here. What can't be given back lapses.
pub(crate) async fn take<T, G, B>(
    taking: impl Future<Output = Result<T>> + Send + 'static,
    give_back: G,
) -> std::result::Result<T, Problem>
where
    T: Send + 'static,
    G: FnOnce(T) -> B + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    let (sender, answer) = oneshot::channel();
    let taking = async move {
        let taken = taking.await.map(|what| Taken(Some((what, give_back))));
        // With nobody there it is dropped here; if he leaves after this, with the channel.
        let _nobody = sender.send(taken);
    };
    tokio::spawn(taking.in_current_span());
    match answer.await {
        Ok(taken) => taken?.keep(),
        Err(_) => None,
    }
    .ok_or_else(|| Problem::new(Kind::Internal, "it was broken off"))
}

/// Something that was taken, and is given back when it is dropped.
struct Taken<T, G, B>(Option<(T, G)>)
where
    G: FnOnce(T) -> B,
    B: Future<Output = ()> + Send + 'static;

impl<T, G, B> Taken<T, G, B>
where
    G: FnOnce(T) -> B,
    B: Future<Output = ()> + Send + 'static,
{
    fn keep(mut self) -> Option<T> {
        self.0.take().map(|(what, _)| what)
    }
}

impl<T, G, B> Drop for Taken<T, G, B>
where
    G: FnOnce(T) -> B,
    B: Future<Output = ()> + Send + 'static,
{
    fn drop(&mut self) {
        if let (Some((what, give_back)), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(give_back(what));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::poll;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_is_not_handed_out_is_given_back_whenever_the_client_hangs_up() {
        for polls in 0..3 {
            let (told, mut back) = mpsc::unbounded_channel();
            let (go, gone) = oneshot::channel::<()>();
            let mut go = Some(go);
            {
                let taking = async move {
                    let _went = gone.await;
                    Ok(7)
                };
                let mut taking = pin!(take(taking, |what| async move { told.send(what).unwrap() }));
                assert!(poll!(taking.as_mut()).is_pending());
                if polls > 0 {
                    drop(go.take());
                    // It is taken, and in the channel.
                    for _ in 0..100 {
                        tokio::task::yield_now().await;
                    }
                }
                if polls > 1 {
                    assert!(matches!(poll!(taking.as_mut()), std::task::Poll::Ready(Ok(7))));
                }
            }
            // In the first round it is taken only now.
            drop(go);
            let given_back = tokio::time::timeout(Duration::from_secs(60), back.recv()).await.unwrap();
            assert_eq!(given_back, (polls < 2).then_some(7), "{polls}");
        }
    }
}
