//! Tells systemd how the service is (`Type=notify`): a datagram to the socket that it names.

/// Says something, if anybody wants to know. Nobody waits for it.
#[cfg(target_os = "linux")]
pub(super) fn tell(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return };
    let send = || {
        let socket = UnixDatagram::unbound()?;
        // A name that begins with @ is no file.
        let address = match path.to_str().and_then(|path| path.strip_prefix('@')) {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&path)?,
        };
        socket.send_to_addr(state.as_bytes(), &address)
    };
    if let Err(error) = send() {
        tracing::warn!(%error, "systemd could not be told {state}");
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn tell(_: &str) {}
