//! Encryption: on unless one says otherwise, and with a certificate that somebody vouches for.

use std::process::Command;
use std::sync::Arc;

use mainstay_core::ErrorKind;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::server::{Reply, Server, pool, read, step, wide};
use crate::url::{Login, Target, Trust};

/// A certificate for `localhost` that vouches for itself: a server that shows it, and its text.
fn certificate() -> (Arc<ServerConfig>, Vec<u8>) {
    let folder = std::env::temp_dir().join(format!("mainstay-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir(&folder).unwrap();
    let made = Command::new("openssl")
        .args(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
                .split(' '),
        )
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let pem = std::fs::read(folder.join("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        // As servers that wrap the handshake into packets do: the next version would go on with it after its end.
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from_pem_slice(&pem).unwrap()], key)
        .unwrap();
    (Arc::new(config), pem)
}

/// Where the server is, by this name of this machine, with what else the URL says.
fn target(server: &Server, host: &str, parameters: &str) -> Target {
    Target::parse(&format!("mssql://user:secret@{host}:{}/shop?{parameters}", server.port)).unwrap()
}

#[tokio::test]
async fn nothing_is_sent_in_the_clear_unless_one_says_so() {
    let mut server = Server::start(Vec::new()).await;
    // It has no encryption to offer.
    let error = pool(&target(&server, "127.0.0.1", ""), 1, None).run("test", &step()).await.unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    let opened = server.opened();
    server.ended.wait_for(|ended| *ended == opened).await.unwrap();
    assert!(server.logins.try_recv().is_err(), "no login goes to a server that can't encrypt it");
    pool(&target(&server, "127.0.0.1", "encrypt=disabled"), 1, None).run("test", &step()).await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let (tls, pem) = certificate();
    let mut server =
        Server::start_with(Vec::new(), vec![Reply::Number(1), Reply::Number(2)], Some(tls)).await;
    let plain = target(&server, "localhost", "");
    let error = pool(&plain, 1, None).run("test", &step()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false), "{error}");
    assert!(error.message().contains("CaCertificate"), "{error}");
    assert!(server.logins.try_recv().is_err(), "no login goes to a server that nobody knows");
    // With somebody who vouches for it; and with its name, where it is known by another.
    let mut vouched = plain.clone();
    vouched.trust = Trust::Pem(pem.clone());
    assert_eq!(read(&pool(&vouched, 1, None).run("test", &step()).await.unwrap()), 1);
    let login = server.logins.recv().await.unwrap();
    assert!(login.windows(8).any(|window| window == wide("user")), "the login came, encrypted on the way");
    let mut other = target(&server, "127.0.0.1", "");
    other.trust = Trust::Pem(pem.clone());
    let error = pool(&other, 1, None).run("test", &step()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let mut named = target(&server, "127.0.0.1", "HostNameInCertificate=localhost");
    named.trust = Trust::Pem(pem);
    assert_eq!(read(&pool(&named, 1, None).run("test", &step()).await.unwrap()), 2);
}

#[tokio::test]
async fn any_certificate_does_if_one_says_so() {
    let (tls, _) = certificate();
    let server = Server::start_with(Vec::new(), vec![Reply::Number(1)], Some(tls)).await;
    let trusting = target(&server, "127.0.0.1", "TrustServerCertificate=true");
    assert_eq!(read(&pool(&trusting, 1, None).run("test", &step()).await.unwrap()), 1);
}

#[tokio::test]
async fn a_token_goes_in_place_of_a_password_and_over_an_encrypted_connection() {
    let (tls, _) = certificate();
    let mut server = Server::start_with(Vec::new(), vec![Reply::Number(1)], Some(tls)).await;
    let mut holder = target(&server, "127.0.0.1", "TrustServerCertificate=true");
    holder.login = Some(Login::Token("a-token-of-a-directory".to_owned()));
    assert_eq!(read(&pool(&holder, 1, None).run("test", &step()).await.unwrap()), 1);
    let login = server.logins.recv().await.unwrap();
    let has = |part: Vec<u8>| login.windows(part.len()).any(|window| window == part);
    assert!(has(wide("a-token-of-a-directory")) && !has(wide("user")));
}

#[tokio::test]
async fn every_connection_has_a_token_of_its_own() {
    let (config, pem) = certificate();
    let mut server = Server::start_with(Vec::new(), vec![Reply::NumberAndEnd(1)], Some(config)).await;
    let mut holder = target(&server, "localhost", "");
    holder.trust = Trust::Pem(pem);
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let ask = move || {
        let place = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            match place {
                2 => Err(mainstay_core::Error::new(ErrorKind::Unavailable, "token", "nobody is in")),
                place => Ok(format!("token-{place}")),
            }
        }
    };
    holder.login = Some(Login::Tokens(crate::token::Tokens::new(ask)));
    let connections = pool(&holder, 1, None);
    connections.run("test", &step()).await.unwrap();
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    connections.open_one("test").await.unwrap();
    for token in ["token-0", "token-1"] {
        let (login, token) = (server.logins.recv().await.unwrap(), wide(token));
        assert!(login.windows(token.len()).any(|part| part == token));
    }
    let error = connections.open_one("test").await.err().unwrap();
    assert!(error.is_retryable() && error.message().contains("nobody is in"), "{error}");
}
