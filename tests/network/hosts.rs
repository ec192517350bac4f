//! Hosts for the instances: a network namespace each, joined by a bridge that the tests are on, too. On them links can be
//! cut, in one direction also, and slowed down, and disks are small enough to be filled.
//!
//! Where namespaces are not permitted the instances are on loopback, where they can only be killed and held up.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The port of each instance on a host of its own.
const PORT: u16 = 7700;
/// An address of hardware that nobody has: what is sent there is lost without a word.
const NOBODY: &str = "02:00:00:00:de:ad";
/// The size of a host's disk, as `mount` takes it.
const DISK: &str = "size=384m";

/// Runs a command; its errors as text.
fn run(words: &str) -> Result<(), String> {
    let mut words = words.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default()).args(words.clone()).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{}: {}", words.collect::<Vec<_>>().join(" "), said.trim()))
    }
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where its instance is asked.
    pub address: SocketAddr,
    /// The namespace; `None` on loopback.
    space: Option<String>,
    folder: PathBuf,
}

/// Hosts, taken down when dropped.
pub struct Hosts {
    hosts: Vec<Host>,
    bridge: String,
}

impl Hosts {
    /// So many hosts with folders in `place`; on loopback with a sentence that says why, if need be.
    pub fn new(count: u8, place: &Path) -> Self {
        let mut hosts = Self { hosts: Vec::new(), bridge: format!("sk{}", std::process::id()) };
        let folder = |number: u8| place.join(format!("host{number}"));
        if let Err(why) = hosts.isolate(count, &folder) {
            println!(
                "the instances are on loopback, and links are not cut, because hosts of their own are refused: {why}"
            );
            hosts.take_down();
            return Self::on_loopback(count, place);
        }
        hosts
    }

    /// So many hosts that are this one.
    pub fn on_loopback(count: u8, place: &Path) -> Self {
        let host = |number| {
            let folder = place.join(format!("host{number}"));
            fs::create_dir_all(&folder).expect("a folder of a host is made");
            Host { address: free_address(), space: None, folder }
        };
        Self { hosts: (0..count).map(host).collect(), bridge: String::new() }
    }

    fn isolate(&mut self, count: u8, folder: &dyn Fn(u8) -> PathBuf) -> Result<(), String> {
        let (bridge, net) = (self.bridge.clone(), std::process::id() % 250);
        run(&format!("ip link add {bridge} type bridge"))?;
        run(&format!("ip addr add 10.213.{net}.254/24 dev {bridge}"))?;
        run(&format!("ip link set {bridge} up"))?;
        for number in 0..count {
            let space = format!("{bridge}-{number}");
            let address = Ipv4Addr::new(10, 213, net as u8, number + 1);
            let folder = folder(number);
            run(&format!("ip netns add {space}"))?;
            let host = Host { address: (address, PORT).into(), space: Some(space.clone()), folder: folder.clone() };
            self.hosts.push(host);
            run(&format!("ip link add {bridge}v{number} type veth peer name eth0 netns {space}"))?;
            run(&format!("ip link set {bridge}v{number} master {bridge} up"))?;
            for words in [format!("addr add {address}/24 dev eth0"), "link set eth0 up".into(), "link set lo up".into()]
            {
                run(&format!("ip -n {space} {words}"))?;
            }
            fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            run(&format!("mount -t tmpfs -o {DISK} none {}", folder.display()))?;
        }
        Ok(())
    }

    /// The host of this number.
    pub fn host(&self, number: usize) -> Host {
        self.hosts[number].clone()
    }

    /// Whether links can be cut and disks be filled.
    pub fn are_isolated(&self) -> bool {
        self.hosts.iter().all(|host| host.space.is_some())
    }

    fn take_down(&self) {
        if self.bridge.is_empty() {
            return;
        }
        // What was not made cannot be removed.
        for host in &self.hosts {
            let Some(space) = &host.space else { continue };
            let _ = run(&format!("umount -l {}", host.folder.display()));
            let _ = run(&format!("ip netns del {space}"));
        }
        let _ = run(&format!("ip link del {}", self.bridge));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.take_down();
    }
}

fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address")
}

impl Host {
    /// The folder of its disk.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What runs a program on it.
    pub fn command(&self, program: &str) -> Command {
        let Some(space) = &self.space else { return Command::new(program) };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space, program]);
        command
    }

    fn configure(&self, words: &str) {
        let space = self.space.as_ref().expect("only hosts of their own are configured");
        let (program, words) = words.split_once(' ').unwrap_or((words, ""));
        run(&format!("{program} -n {space} {words}")).expect("a host is configured");
    }

    /// Takes its link down, or up again.
    pub fn set_link(&self, is_up: bool) {
        self.configure(&format!("ip link set eth0 {}", if is_up { "up" } else { "down" }));
    }

    /// Loses everything that it sends to another host, or nothing any more.
    pub fn set_loss(&self, to: &Host, is_lost: bool) {
        let neighbour = format!("{} dev eth0", to.address.ip());
        match is_lost {
            true => self.configure(&format!("ip neigh replace {neighbour} lladdr {NOBODY} nud permanent")),
            false => self.configure(&format!("ip neigh del {neighbour}")),
        }
    }

    /// Loses everything between it and these hosts, or nothing any more.
    pub fn set_apart(&self, others: &[Host], is_apart: bool) {
        for other in others {
            self.set_loss(other, is_apart);
            other.set_loss(self, is_apart);
        }
    }

    /// Lets no more than this many kilobits a second out; without a number as many as there are.
    pub fn set_rate(&self, kilobits: Option<u32>) {
        match kilobits {
            Some(rate) => {
                self.configure(&format!("tc qdisc replace dev eth0 root tbf rate {rate}kbit burst 3kb latency 2s"))
            }
            None => self.configure("tc qdisc del dev eth0 root"),
        }
    }

    /// Fills the disk, or frees it again.
    pub fn set_full(&self, is_full: bool) {
        let filler = self.folder.join("filler");
        if !is_full {
            let _ = fs::remove_file(filler);
            return;
        }
        let mut file = fs::File::create(filler).expect("a file is made");
        let piece = vec![1; 1 << 16];
        while std::io::Write::write_all(&mut file, &piece).is_ok() {}
        while std::io::Write::write_all(&mut file, &piece[..512]).is_ok() {}
    }
}
