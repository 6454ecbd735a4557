//! Processor time and memory of the broker, of ourselves and of the rest of the machine, from
//! `/proc` (proc(5)).

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Instant;

use serde::Serialize;

/// What the kernel calls USER_HZ: the unit of all times in `/proc`, fixed on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Marks the begin of a measurement.
#[derive(Debug)]
pub struct Meter {
    broker: Option<u32>,
    started: Instant,
    client_seconds: f64,
    broker_seconds: Option<f64>,
    machine: Option<Machine>,
}

/// What happened between the begin and the end.
#[derive(Debug, Clone, Serialize)]
pub struct Usage {
    pub seconds: f64,
    /// User and system time of this process, all threads.
    pub client_cpu_seconds: f64,
    pub broker: Option<BrokerUsage>,
    /// Time of others, out of all cores' time: over 0.1 the figures are doubtful.
    pub foreign_cpu_share: f64,
    /// Time that the hypervisor gave to others, out of all cores' time: over 0.01 likewise.
    pub steal_share: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct BrokerUsage {
    pub pid: u32,
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub resident_peak_bytes: u64,
}

impl Meter {
    pub fn start(broker: Option<u32>) -> Self {
        Self {
            broker,
            started: Instant::now(),
            client_seconds: process_cpu_seconds(std::process::id()).unwrap_or(0.0),
            broker_seconds: broker.and_then(process_cpu_seconds),
            machine: Machine::read(),
        }
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    pub fn stop(&self) -> Usage {
        let seconds = self.started.elapsed().as_secs_f64();
        let client_now = process_cpu_seconds(std::process::id()).unwrap_or(0.0);
        let client_cpu_seconds = client_now - self.client_seconds;
        let broker = self.broker.and_then(|pid| {
            let cpu_seconds = process_cpu_seconds(pid)? - self.broker_seconds?;
            let (resident_bytes, resident_peak_bytes) = process_memory(pid)?;
            Some(BrokerUsage {
                pid,
                cpu_seconds,
                resident_bytes,
                resident_peak_bytes,
            })
        });
        let (foreign_cpu_share, steal_share) = match (self.machine, Machine::read()) {
            (Some(before), Some(after)) if after.total > before.total => {
                let total = after.total - before.total;
                let own =
                    client_cpu_seconds + broker.as_ref().map_or(0.0, |usage| usage.cpu_seconds);
                let foreign = (after.busy - before.busy - own).max(0.0);
                (foreign / total, (after.steal - before.steal) / total)
            }
            _ => (0.0, 0.0),
        };
        Usage {
            seconds,
            client_cpu_seconds,
            broker,
            foreign_cpu_share,
            steal_share,
        }
    }
}

/// Seconds of all cores since boot.
#[derive(Debug, Clone, Copy)]
struct Machine {
    busy: f64,
    steal: f64,
    total: f64,
}

impl Machine {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// First line: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<f64> = line
            .split_whitespace()
            .map_while(|field| field.parse::<f64>().ok())
            .map(|ticks| ticks / TICKS_PER_SECOND)
            .take(8)
            .collect();
        let [user, nice, system, idle, wait, irq, soft, steal] = *fields else {
            return None;
        };
        let busy = user + nice + system + irq + soft;
        Some(Self {
            busy,
            steal,
            total: busy + idle + wait + steal,
        })
    }
}

/// User and system time of all threads of a process so far.
pub fn process_cpu_seconds(pid: u32) -> Option<f64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 14 and 15, counted behind the name, which may hold anything.
pub(super) fn parse_stat(text: &str) -> Option<f64> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// Resident memory of a process, now and at its highest.
fn process_memory(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// The process of this machine that listens at an address, if it is one that we may look at.
pub fn find_listener(address: &str) -> Option<u32> {
    let address = address.to_socket_addrs().ok()?.next()?;
    if !is_local(address) {
        return None;
    }
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, address.port()))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let pids = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some(pid)
    });
    pids.into_iter().find(|pid| {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            return false;
        };
        descriptors.flatten().any(|descriptor| {
            fs::read_link(descriptor.path())
                .ok()
                .and_then(|target| target.to_str().map(str::to_owned))
                .is_some_and(|target| inodes.contains(&target))
        })
    })
}

/// An address is ours if we can bind to it.
fn is_local(address: SocketAddr) -> bool {
    std::net::UdpSocket::bind((address.ip(), 0)).is_ok()
}

/// Rows of `/proc/net/tcp`: number, local address, remote address, state, ..., inode as tenth.
pub(super) fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    const LISTENING: &str = "0A";
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let listens = fields.get(3) == Some(&LISTENING);
            let matches = fields.get(1).is_some_and(|local| local.ends_with(&suffix));
            (listens && matches).then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
        })
        .collect()
}
