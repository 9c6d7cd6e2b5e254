//! Encryption of connections and who is trusted, with libpq's `sslmode`.
//!
//! `verify-full` is the only mode that keeps out somebody in the middle. As with libpq, `prefer` and `require`
//! encrypt without asking who answers, unless a certificate authority is given.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use mainstay_core::{Error, ErrorKind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::url::mistake;

/// Whether connections are encrypted, and who is trusted (`sslmode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// Never encrypted.
    Disable,
    /// Encrypted if the server can.
    Prefer,
    /// Encrypted; the certificate's authority is checked if one is given.
    Require,
    /// Encrypted, and the certificate's authority is checked.
    VerifyCa,
    /// Encrypted, and the certificate's authority and name are checked.
    VerifyFull,
}

impl FromStr for TlsMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "disable" => Self::Disable,
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(mistake(
                    "the parameter sslmode must be disable, prefer, require, verify-ca or verify-full",
                ));
            }
        })
    }
}

impl TlsMode {
    /// What the driver is told; checking certificates is the connector's part.
    pub(crate) fn driver_mode(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => SslMode::Require,
        }
    }
}

/// Whose signature on a certificate counts.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The authorities of the operating system.
    System,
    /// Those in a PEM file.
    File(PathBuf),
    /// Those in a PEM text.
    Pem(Vec<u8>),
}

impl std::fmt::Debug for Roots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System => f.write_str("System"),
            Self::File(path) => write!(f, "File({path:?})"),
            Self::Pem(_) => f.write_str("Pem(..)"),
        }
    }
}

/// What makes connections encrypted, and the mode that came of the settings.
pub(crate) fn connector(
    mode: Option<TlsMode>,
    roots: Option<&Roots>,
) -> Result<(TlsMode, MakeRustlsConnect)> {
    // Who names an authority wants it asked; who says nothing gets what libpq does.
    let mode = mode.unwrap_or(if roots.is_some() { TlsMode::VerifyFull } else { TlsMode::Prefer });
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match (mode, roots) {
        (TlsMode::Disable, _) | (TlsMode::Prefer | TlsMode::Require, None) => {
            Arc::new(Verifier { authority: None, provider: Arc::clone(&provider) })
        }
        (TlsMode::VerifyFull, roots) => authority(roots.unwrap_or(&Roots::System), &provider)?,
        (TlsMode::Prefer | TlsMode::Require | TlsMode::VerifyCa, roots) => {
            let authority = authority(roots.unwrap_or(&Roots::System), &provider)?;
            Arc::new(Verifier { authority: Some(authority), provider: Arc::clone(&provider) })
        }
    };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| failure(format!("TLS can't be set up: {error}")))?;
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok((mode, MakeRustlsConnect::new(config)))
}

fn failure(message: String) -> Error {
    Error::new(ErrorKind::Config, "postgres.connect", message)
}

fn authority(roots: &Roots, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                return Err(failure(
                    "the operating system has no certificate authorities; name one with sslrootcert"
                        .to_owned(),
                ));
            }
        }
        Roots::File(path) => {
            let pem = std::fs::read(path)
                .map_err(|error| failure(format!("sslrootcert {}: {error}", path.display())))?;
            add(&mut store, &pem, &format!("sslrootcert {}", path.display()))?;
        }
        Roots::Pem(pem) => add(&mut store, pem, "the certificate authority")?,
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
        .build()
        .map_err(|error| failure(format!("the certificate authorities can't be used: {error}")))
}

fn add(store: &mut RootCertStore, pem: &[u8], what: &str) -> Result<()> {
    let unusable = |error: &dyn std::fmt::Display| failure(format!("{what} is no PEM certificate: {error}"));
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        store.add(certificate).map_err(|error| unusable(&error))?;
    }
    if store.is_empty() {
        return Err(unusable(&"there is none in it"));
    }
    Ok(())
}

/// Checks the authority but not the name, or nothing at all; always that the peer has the certificate's key.
#[derive(Debug)]
struct Verifier {
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        match authority.verify_server_cert(certificate, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, so everything else is in order.
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
