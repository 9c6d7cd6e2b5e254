//! A server of a few lines that speaks the protocol. What it says to each login and to each query is the test's to say.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_core::store::{Allowance, Argument, ConnectionGate, Step};
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};

use crate::pool::{Connections, PoolOptions};
use crate::rows::{Reader, Row};
use crate::url::Target;

/// What a batch that sets something for its connection begins with.
const SETTING: &str = "SET LOCK_TIMEOUT";

/// The bytes in front of a batch's text.
const HEADERS: usize = 22;

/// What is said to a login.
#[derive(Debug, Clone)]
pub(super) enum Welcome {
    /// That it is good.
    Good,
    /// An error of the server.
    Error(u32),
    /// An error with its text.
    Told(u32, &'static str),
    /// Nothing, ever.
    Silence,
}

/// What is said to a query.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// A row with a number.
    Number(i32),
    /// An error of the server.
    Error(u32),
    /// An error with its class and its text.
    Told(u32, u8, &'static str),
    /// Nothing, ever.
    Silence,
    /// Nothing. The connection stays although the client has ended it, until [`Server::go_on`].
    Deaf,
    /// An error of the server, once [`Server::go_on`] is called.
    Held(u32),
    /// The end of the connection, after the number.
    NumberAndEnd(i32),
    /// The end of the connection, without a word.
    End,
}

/// The server: how many connections it has had, how many of them have ended, and what it was sent.
pub(super) struct Server {
    pub(super) port: u16,
    opened: Arc<AtomicUsize>,
    pub(super) ended: watch::Receiver<usize>,
    /// Logins, as they were sent.
    pub(super) logins: mpsc::UnboundedReceiver<Vec<u8>>,
    pub(super) queries: mpsc::UnboundedReceiver<Vec<u8>>,
    /// What connections set for themselves.
    pub(super) settings: mpsc::UnboundedReceiver<Vec<u8>>,
    held: Arc<Notify>,
}

/// What a connection of the server goes by.
#[derive(Clone)]
struct Script {
    welcomes: Arc<std::sync::Mutex<std::vec::IntoIter<Welcome>>>,
    replies: Arc<std::sync::Mutex<std::vec::IntoIter<Reply>>>,
    tls: Option<Arc<ServerConfig>>,
    logins: mpsc::UnboundedSender<Vec<u8>>,
    queries: mpsc::UnboundedSender<Vec<u8>>,
    settings: mpsc::UnboundedSender<Vec<u8>>,
    held: Arc<Notify>,
}

impl Server {
    /// Takes every login, and says these things, in order, whichever connection asks; then the number 0.
    pub(super) async fn start(replies: Vec<Reply>) -> Self {
        Self::start_with(Vec::new(), replies, None).await
    }

    /// The same with what it says to the first logins, and with encryption.
    pub(super) async fn start_with(
        welcomes: Vec<Welcome>,
        replies: Vec<Reply>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (opened, (ended, watched)) = (Arc::new(AtomicUsize::new(0)), watch::channel(0));
        let (login_sent, logins) = mpsc::unbounded_channel();
        let (query_sent, queries) = mpsc::unbounded_channel();
        let (setting_sent, settings) = mpsc::unbounded_channel();
        let held = Arc::new(Notify::new());
        let script = Script {
            welcomes: Arc::new(std::sync::Mutex::new(welcomes.into_iter())),
            replies: Arc::new(std::sync::Mutex::new(replies.into_iter())),
            tls,
            logins: login_sent,
            queries: query_sent,
            settings: setting_sent,
            held: Arc::clone(&held),
        };
        let count = Arc::clone(&opened);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (script, ended) = (script.clone(), ended.clone());
                tokio::spawn(async move {
                    // Ends with the connection, however that ends.
                    drop(converse(Line { stream, tls: None }, script).await);
                    ended.send_modify(|ended| *ended += 1);
                });
            }
        });
        Self { port, opened, ended: watched, logins, queries, settings, held }
    }

    /// A pool of connections without encryption.
    pub(super) fn pool(&self, size: usize) -> Connections {
        self.pool_under(size, None)
    }

    /// The same under a gate.
    pub(super) fn pool_under(&self, size: usize, gate: Option<Arc<ConnectionGate>>) -> Connections {
        let url = format!("mssql://user:secret@127.0.0.1:{}/shop?encrypt=disabled", self.port);
        pool(&Target::parse(&url).unwrap(), size, gate)
    }

    /// Lets one reply go on that waits.
    pub(super) fn go_on(&self) {
        self.held.notify_one();
    }

    pub(super) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

/// A pool of connections to wherever that is.
pub(super) fn pool(target: &Target, size: usize, gate: Option<Arc<ConnectionGate>>) -> Connections {
    let limit = Duration::from_secs(20);
    let options = PoolOptions { size, connect: limit, acquire: limit, call: limit * 3, runtime: None };
    Connections::new(target.clone(), options, Allowance::new(gate))
}

/// A connection, in the clear or encrypted.
struct Line {
    stream: TcpStream,
    tls: Option<ServerConnection>,
}

impl Line {
    async fn read_exact(&mut self, mut buffer: &mut [u8]) -> std::io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.stream.read_exact(buffer).await.map(drop) };
        while !buffer.is_empty() {
            match tls.reader().read(buffer) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let mut raw = [0; 4096];
                    let count = self.stream.read(&mut raw).await?;
                    feed(tls, &raw[..count])?;
                    flush(tls, &mut self.stream).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.stream.write_all(bytes).await };
        tls.writer().write_all(bytes)?;
        flush(tls, &mut self.stream).await
    }

    /// The handshake, each part of it in a packet of the greeting's kind.
    async fn encrypt(&mut self, config: Arc<ServerConfig>) -> std::io::Result<()> {
        let mut tls = ServerConnection::new(config).map_err(std::io::Error::other)?;
        while tls.is_handshaking() {
            let (_, part) = self.packet().await?;
            let fed = feed(&mut tls, &part);
            let mut said = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut said)?;
            }
            if !said.is_empty() {
                self.say(0x12, &said).await?;
            }
            fed?;
        }
        self.tls = Some(tls);
        Ok(())
    }

    async fn packet(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let mut body = Vec::new();
        loop {
            let mut header = [0; 8];
            self.read_exact(&mut header).await?;
            let length = usize::from(u16::from_be_bytes([header[2], header[3]])) - 8;
            let start = body.len();
            body.resize(start + length, 0);
            self.read_exact(&mut body[start..]).await?;
            if header[1] & 1 == 1 {
                return Ok((header[0], body));
            }
        }
    }

    async fn say(&mut self, kind: u8, body: &[u8]) -> std::io::Result<()> {
        let length = u16::try_from(body.len() + 8).unwrap().to_be_bytes();
        self.write_all(&[&[kind, 1, length[0], length[1], 0, 0, 1, 0], body].concat()).await
    }

    async fn answer(&mut self, body: &[u8]) -> std::io::Result<()> {
        self.say(4, body).await
    }
}

fn feed(tls: &mut ServerConnection, mut bytes: &[u8]) -> std::io::Result<()> {
    if bytes.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    while !bytes.is_empty() {
        tls.read_tls(&mut bytes)?;
        tls.process_new_packets().map_err(std::io::Error::other)?;
    }
    Ok(())
}

async fn flush(tls: &mut ServerConnection, stream: &mut TcpStream) -> std::io::Result<()> {
    let mut said = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut said)?;
    }
    stream.write_all(&said).await
}

pub(super) fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn done(status: u16) -> Vec<u8> {
    [&[0xfd][..], &status.to_le_bytes(), &[0; 2], &[0; 8]].concat()
}

fn number(number: i32) -> Vec<u8> {
    let column = [&[0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0x38, 1][..], &wide("n")].concat();
    [column, vec![0xd1], number.to_le_bytes().to_vec(), done(0x10)].concat()
}

/// The class of most errors.
const CLASS: u8 = 13;

fn error(number: u32, class: u8, text: &str) -> Vec<u8> {
    let length = u16::try_from(text.encode_utf16().count()).unwrap().to_le_bytes();
    let start = [&number.to_le_bytes()[..], &[1, class], &length].concat();
    let rest = [&start[..], &wide(text), &[0, 0], &1_u32.to_le_bytes()].concat();
    [&[0xaa][..], &u16::try_from(rest.len()).unwrap().to_le_bytes(), &rest, &done(2)].concat()
}

/// That a login is good.
fn welcome() -> Vec<u8> {
    let rest = [&[1, 0x74, 0, 0, 4, 4][..], &wide("test"), &[16, 0, 0, 0]].concat();
    let length = u16::try_from(rest.len()).unwrap().to_le_bytes();
    [&[0xad][..], &length, &rest, &done(0)].concat()
}

async fn converse(mut line: Line, script: Script) -> std::io::Result<()> {
    loop {
        let (kind, body) = line.packet().await?;
        match kind {
            // The greeting: a version, and what is encrypted: all, or it can't.
            0x12 => {
                let options = [0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff];
                let encryption = if script.tls.is_some() { 1 } else { 2 };
                line.answer(&[&options[..], &[16, 0, 0, 0, 0, 0, encryption]].concat()).await?;
                if let Some(tls) = &script.tls {
                    line.encrypt(Arc::clone(tls)).await?;
                }
            }
            0x10 => {
                let _ = script.logins.send(body);
                let next = script.welcomes.lock().unwrap().next().unwrap_or(Welcome::Good);
                match next {
                    Welcome::Good => line.answer(&welcome()).await?,
                    Welcome::Error(number) => line.answer(&error(number, CLASS, "no")).await?,
                    Welcome::Told(number, text) => line.answer(&error(number, CLASS, text)).await?,
                    Welcome::Silence => {}
                }
            }
            // A setting: none of the test's queries.
            _ if body.get(HEADERS..).is_some_and(|batch| batch.starts_with(&wide(SETTING))) => {
                let _ = script.settings.send(body);
                line.answer(&done(0)).await?;
            }
            _ => {
                let _ = script.queries.send(body);
                let next = script.replies.lock().unwrap().next().unwrap_or(Reply::Number(0));
                match next {
                    Reply::Number(value) => line.answer(&number(value)).await?,
                    Reply::Error(value) => line.answer(&error(value, CLASS, "no")).await?,
                    Reply::Told(value, class, text) => line.answer(&error(value, class, text)).await?,
                    Reply::Silence => {}
                    Reply::Deaf => {
                        script.held.notified().await;
                        return Ok(());
                    }
                    Reply::Held(value) => {
                        script.held.notified().await;
                        line.answer(&error(value, CLASS, "no")).await?;
                    }
                    Reply::NumberAndEnd(value) => {
                        line.answer(&number(value)).await?;
                        return Ok(());
                    }
                    Reply::End => return Ok(()),
                }
            }
        }
    }
}

pub(super) fn step() -> Step {
    Step { sql: "SELECT @P1".into(), arguments: vec![Argument::Text("ü😀".into()), Argument::Integer(7)] }
}

pub(super) fn read(rows: &[Row]) -> i64 {
    Reader::new("test", &rows[0]).integer("n").unwrap()
}
