//! The hosts of a run: a network namespace for the servers, one for each child, and a router between them that can
//! drop packets.
//!
//! A proxy that drops bytes leaves TCP alive on both sides. Here packets are lost: both kernels retransmit, keep
//! sockets that the other side has forgotten, and time out by themselves.

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::fd::AsFd as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip` keeps the namespaces that have names.
const NAMESPACES: &str = "/run/netns";

/// What the names of all namespaces begin with. The id of the process that made them follows.
const PREFIX: &str = "mainstay-chaos-";

/// Packets of one direction between a child and the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the child to the servers.
    Requests,
    /// From the servers to the child.
    Answers,
}

/// The namespaces of a run. Removed on drop.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    children: usize,
}

impl Network {
    /// The address of the servers.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);

    /// All addresses of a run.
    pub const ADDRESSES: &str = "10.213.0.0/16";

    /// Makes the network, and moves this thread to the host of the servers.
    ///
    /// Call it while the process has only one thread: threads and processes that it starts later are on that host too.
    pub fn enter(children: usize) -> Result<Self> {
        remove_leftovers();
        let network = Self { prefix: format!("{PREFIX}{}-", std::process::id()), children };
        network.build()?;
        enter(&network.name("server"))?;
        Ok(network)
    }

    /// The namespace of a child, by its place.
    pub fn namespace(&self, child: usize) -> String {
        self.name(&child.to_string())
    }

    /// Drops packets of one direction between a child and the servers from now on, or lets them pass again.
    pub fn drop_packets(&self, child: usize, direction: Direction, drop: bool) -> Result<()> {
        let (verb, address) = (if drop { "add" } else { "del" }, address(child + 1, HOST));
        let rule = match direction {
            Direction::Requests => format!("rule {verb} from {address}/32 blackhole"),
            Direction::Answers => format!("route {verb} blackhole {address}/32"),
        };
        within(&self.name("router"), &[rule])
    }

    fn name(&self, host: &str) -> String {
        format!("{}{host}", self.prefix)
    }

    fn build(&self) -> Result<()> {
        let hosts: Vec<String> = std::iter::once(self.name("server"))
            .chain((0..self.children).map(|n| self.namespace(n)))
            .collect();
        let router = self.name("router");
        let all = hosts.iter().chain([&router]);
        ip(&[], &all.map(|name| format!("netns add {name}")).collect::<Vec<_>>())?;
        let mut routing = vec!["link set lo up".to_owned()];
        for (n, host) in hosts.iter().enumerate() {
            routing.push(format!("link add host{n} type veth peer name wire netns {host}"));
            routing.push(format!("link set host{n} up"));
            routing.push(format!("address add {}/30 dev host{n}", address(n, ROUTER)));
        }
        within(&router, &routing)?;
        for (n, host) in hosts.iter().enumerate() {
            let up = "link set wire up".to_owned();
            let own = format!("address add {}/30 dev wire", address(n, HOST));
            let others = format!("route add default via {}", address(n, ROUTER));
            within(host, &["link set lo up".to_owned(), up, own, others])?;
        }
        let forward = ["netns", "exec", &router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"];
        ip(&forward, &[])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        remove(&self.prefix);
    }
}

/// Moves this thread to a host. Threads and processes that it starts later are there too.
pub fn enter(namespace: &str) -> Result<()> {
    let path = Path::new(NAMESPACES).join(namespace);
    let file = std::fs::File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter the network namespace {namespace}"))
}

/// The host's end of its wire, and the router's.
const HOST: u8 = 1;
const ROUTER: u8 = 2;

/// The address at one end of the wire between a host and the router. The servers are host 0.
fn address(host: usize, end: u8) -> Ipv4Addr {
    let [a, b, ..] = Network::SERVER.octets();
    // A run has far fewer than 255 children.
    Ipv4Addr::new(a, b, host as u8, end)
}

/// Removes the namespaces of runs that were killed.
fn remove_leftovers() {
    let Ok(entries) = Path::new(NAMESPACES).read_dir() else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for name in names {
        let Some((id, _)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else { continue };
        if !PathBuf::from("/proc").join(id).exists() {
            remove(&name);
        }
    }
}

/// Removes the namespaces whose names begin so.
fn remove(prefix: &str) {
    let Ok(entries) = Path::new(NAMESPACES).read_dir() else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let commands: Vec<String> =
        names.filter(|name| name.starts_with(prefix)).map(|name| format!("netns del {name}")).collect();
    if let Err(error) = ip(&["-force"], &commands) {
        eprintln!("{error:#}");
    }
}

/// Runs commands of `ip` in a namespace.
fn within(namespace: &str, commands: &[String]) -> Result<()> {
    ip(&["-netns", namespace], commands)
}

/// Runs `ip` with arguments, and with commands as a batch if there are any.
fn ip(arguments: &[&str], commands: &[String]) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    if !commands.is_empty() {
        ip.args(["-batch", "-"]);
    }
    let mut process = ip.spawn().context("cannot run ip, of the package iproute2")?;
    if let Some(mut input) = process.stdin.take() {
        input.write_all(commands.join("\n").as_bytes()).context("ip does not read its commands")?;
    }
    let output = process.wait_with_output().context("cannot wait for ip")?;
    if !output.status.success() {
        bail!("ip failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_a_wire_of_its_own() {
        assert_eq!(address(0, HOST), Network::SERVER);
        assert_eq!(address(3, HOST).to_string(), "10.213.3.1");
        assert_eq!(address(3, ROUTER).to_string(), "10.213.3.2");
    }
}
