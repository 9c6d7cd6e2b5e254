//! A server of a few lines that speaks the protocol, for tests of what happens to connections. What it says to each query is the test's to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::store::{Argument, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::allowance::Allowance;
use crate::pool::{Connections, PoolOptions};
use crate::rows::{Reader, Row};
use crate::url::Target;

/// What is said to a query.
#[derive(Debug, Clone)]
enum Reply {
    /// A row with a number.
    Number(i32),
    /// An error of the server.
    Error(u32),
    /// Nothing, ever.
    Silence,
    /// The end of the connection, after the number.
    NumberAndEnd(i32),
}

/// The server: how many connections it has had, how many of them have ended, and what it was sent.
struct Server {
    port: u16,
    opened: Arc<AtomicUsize>,
    ended: watch::Receiver<usize>,
    queries: mpsc::UnboundedReceiver<Vec<u8>>,
}

impl Server {
    /// Says these things, in order, whichever connection asks; then the number 0.
    async fn start(script: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (opened, (ended, watched)) = (Arc::new(AtomicUsize::new(0)), watch::channel(0));
        let (sent, queries) = mpsc::unbounded_channel();
        let script = Arc::new(std::sync::Mutex::new(script.into_iter()));
        let count = Arc::clone(&opened);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (script, ended, sent) = (Arc::clone(&script), ended.clone(), sent.clone());
                tokio::spawn(async move {
                    let next = move || script.lock().unwrap().next().unwrap_or(Reply::Number(0));
                    // Ends with the connection, however that ends.
                    drop(converse(stream, next, sent).await);
                    ended.send_modify(|ended| *ended += 1);
                });
            }
        });
        Self { port, opened, ended: watched, queries }
    }

    fn pool(&self, size: usize) -> Connections {
        let url = format!("mssql://user:secret@127.0.0.1:{}/shop?encrypt=disabled", self.port);
        let limit = Duration::from_secs(20);
        let options = PoolOptions { size, connect: limit, acquire: limit, runtime: None };
        Connections::new(Target::parse(&url).unwrap(), options, Allowance::new(None))
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

async fn packet(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut body = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]])) - 8;
        let start = body.len();
        body.resize(start + length, 0);
        stream.read_exact(&mut body[start..]).await?;
        if header[1] & 1 == 1 {
            return Ok((header[0], body));
        }
    }
}

async fn answer(stream: &mut TcpStream, body: &[u8]) -> std::io::Result<()> {
    let length = u16::try_from(body.len() + 8).unwrap().to_be_bytes();
    stream.write_all(&[&[4, 1, length[0], length[1], 0, 0, 1, 0], body].concat()).await
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn done(status: u16) -> Vec<u8> {
    [&[0xfd][..], &status.to_le_bytes(), &[0; 2], &[0; 8]].concat()
}

fn number(number: i32) -> Vec<u8> {
    let column = [&[0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0x38, 1][..], &wide("n")].concat();
    [column, vec![0xd1], number.to_le_bytes().to_vec(), done(0x10)].concat()
}

fn error(number: u32) -> Vec<u8> {
    let text = wide("no");
    let rest = [&number.to_le_bytes()[..], &[1, 13, 2, 0], &text, &[0, 0], &1_u32.to_le_bytes()].concat();
    [&[0xaa][..], &u16::try_from(rest.len()).unwrap().to_le_bytes(), &rest, &done(2)].concat()
}

async fn converse(
    mut stream: TcpStream,
    next: impl Fn() -> Reply,
    sent: mpsc::UnboundedSender<Vec<u8>>,
) -> std::io::Result<()> {
    loop {
        let (kind, body) = packet(&mut stream).await?;
        match kind {
            // The greeting: a version, and that there is no encryption.
            0x12 => {
                let options = [0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff];
                answer(&mut stream, &[&options[..], &[16, 0, 0, 0, 0, 0, 2]].concat()).await?;
            }
            // The login.
            0x10 => {
                let name = wide("test");
                let rest = [&[1, 0x74, 0, 0, 4, 4][..], &name, &[16, 0, 0, 0]].concat();
                let length = u16::try_from(rest.len()).unwrap().to_le_bytes();
                answer(&mut stream, &[&[0xad][..], &length, &rest, &done(0)].concat()).await?;
            }
            _ => {
                let _ = sent.send(body);
                match next() {
                    Reply::Number(value) => answer(&mut stream, &number(value)).await?,
                    Reply::Error(value) => answer(&mut stream, &error(value)).await?,
                    Reply::Silence => {}
                    Reply::NumberAndEnd(value) => {
                        answer(&mut stream, &number(value)).await?;
                        return Ok(());
                    }
                }
            }
        }
    }
}

fn step() -> Step {
    Step { sql: "SELECT @P1".into(), arguments: vec![Argument::Text("ü😀".into()), Argument::Integer(7)] }
}

fn read(rows: &[Row]) -> i64 {
    Reader::new("test", &rows[0]).integer("n").unwrap()
}

#[tokio::test]
async fn a_connection_is_used_again_once_its_answer_is_complete() {
    let server = Server::start(vec![Reply::Number(1), Reply::Number(2)]).await;
    let pool = server.pool(4);
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 1);
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 2);
    assert_eq!((server.opened(), pool.visits()), (1, 2));
}

#[tokio::test]
async fn an_operation_that_is_given_up_takes_its_connection_along() {
    let mut server = Server::start(vec![Reply::Silence, Reply::Number(2)]).await;
    // One connection at most: were it kept, the second operation would never get one.
    let pool = server.pool(1);
    let abandoned = tokio::spawn({
        let pool = pool.clone();
        async move { pool.run("test", &step()).await }
    });
    server.queries.recv().await.unwrap();
    abandoned.abort();
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    assert_eq!(
        read(&pool.run("test", &step()).await.unwrap()),
        2,
        "no half-read answer is taken for another's"
    );
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn the_victim_of_a_deadlock_tries_again_and_other_errors_are_told() {
    let server = Server::start(vec![Reply::Error(1205), Reply::Number(3), Reply::Error(547)]).await;
    let pool = server.pool(1);
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 3);
    let error = pool.run("test", &step()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::InvalidArgument, false));
    assert_eq!(server.opened(), 1, "an error of the server costs no connection");
    let stubborn = Server::start(vec![Reply::Error(1205); 9]).await;
    let error = stubborn.pool(1).run("test", &step()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Conflict, true));
}

#[tokio::test]
async fn a_connection_that_the_server_has_ended_is_not_used() {
    let mut server = Server::start(vec![Reply::NumberAndEnd(1), Reply::Number(2)]).await;
    let pool = server.pool(1);
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 1);
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    // The end has been sent; it is here once it can be seen.
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 2);
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn arguments_have_types_that_every_engine_takes() {
    let mut server = Server::start(vec![Reply::Number(1)]).await;
    server.pool(1).run("test", &step()).await.unwrap();
    let sent = server.queries.recv().await.unwrap();
    let has = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
    // A text as NVARCHAR, and a whole number as eight bytes of INTN.
    assert!(has(&wide("ü😀")) && has(&wide("@P1 nvarchar(")), "texts are NVARCHAR");
    assert!(has(&[0x26, 8, 8, 7, 0, 0, 0, 0, 0, 0, 0]), "numbers are BIGINT");
}

#[tokio::test]
async fn nobody_gets_a_connection_once_closed() {
    let server = Server::start(Vec::new()).await;
    let pool = server.pool(1);
    pool.run("test", &step()).await.unwrap();
    pool.close();
    assert_eq!(pool.run("test", &step()).await.unwrap_err().kind(), ErrorKind::Closed);
}
