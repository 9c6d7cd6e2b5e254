//! TLS with rustls.

use std::path::Path;
use std::sync::Arc;

use mainstay_core::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// TLS with this certificate, followed by those that lead to a root, and its key, in PEM files.
pub fn server_tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unread("certificate", certificate, &error))?;
    if chain.is_empty() {
        return Err(wrong(format!("the certificate file {} holds no certificate", certificate.display())));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unread("key", key, &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(format!("the certificate and its key can't be used: {error}")))?;
    let mut config = config;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// TLS to servers that the system trusts, or that those do whose certificates are in a PEM file.
pub fn client_tls(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        trust(&mut roots, path).map_err(|text| {
            Error::invalid("server.tls", "ca_file", format_args!("{} {text}", path.display()))
        })?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS can't be set up: {error}")))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn trust(roots: &mut RootCertStore, path: &Path) -> std::result::Result<(), String> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| format!("can't be read: {error}"))?;
    if certificates.is_empty() {
        return Err("holds no certificate in PEM".to_owned());
    }
    for certificate in certificates {
        roots.add(certificate).map_err(|error| format!("holds a certificate that can't be used: {error}"))?;
    }
    Ok(())
}

fn unread(what: &str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    wrong(format!("the {what} file {} can't be read: {error}", path.display()))
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Config, "server.tls", text)
}
