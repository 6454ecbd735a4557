//! `bench net`: what TCP over loopback does between two cores, as the limit of broker and client
//! on one machine.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use clap::Args;
use core_affinity::CoreId;
use hdrhistogram::Histogram;

use super::meter::Meter;
use super::produce::seconds;
use super::report::{Report, new_histogram};
use super::units::parse_bytes;

const PING_BYTES: usize = 1024;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain bench net
  ringmain bench net --cores 2,3 --seconds 10 --json")]
pub struct NetArgs {
    /// Cores of receiver and sender [default: the first two that this process may use].
    #[arg(long, value_delimiter = ',', num_args = 1..=2)]
    cores: Vec<usize>,
    /// Bytes of one write, and of one read.
    #[arg(long, default_value = "256KiB", value_parser = parse_bytes)]
    piece_bytes: u64,
    /// How long each half is measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(super) json: bool,
}

/// Numbers of the cores that this process may use, in order; never empty.
pub(super) fn own_cores() -> Vec<usize> {
    let mut cores: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .iter()
        .map(|core| core.id)
        .collect();
    cores.sort_unstable();
    if cores.is_empty() {
        cores.push(0);
    }
    cores
}

pub fn run(args: &NetArgs) -> Result<Report, String> {
    let time = seconds(args.seconds, "seconds")?;
    if !(1..=64 << 20).contains(&args.piece_bytes) {
        return Err("--piece-bytes must be from 1 to 64MiB".to_owned());
    }
    let own = own_cores();
    let chosen = if args.cores.is_empty() {
        &own
    } else {
        &args.cores
    };
    if let Some(core) = chosen.iter().find(|core| !own.contains(core)) {
        return Err(format!(
            "core {core} is not ours; choose --cores of {own:?}"
        ));
    }
    let receiver = chosen[0];
    let sender = *chosen.get(1).unwrap_or(&receiver);
    let failed = |error: io::Error| format!("TCP over 127.0.0.1 failed: {error}");

    let meter = Meter::start(None);
    let (bytes, ()) = side_by_side(
        (receiver, drain(args.piece_bytes as usize)),
        (sender, pour(args.piece_bytes as usize, time)),
    )
    .map_err(failed)?;
    let usage = meter.stop();
    let ((), latency) = side_by_side((receiver, echo), (sender, ping(time))).map_err(failed)?;

    let title =
        format!("net: TCP over 127.0.0.1, receiver on core {receiver}, sender on core {sender}");
    let mut report = Report::new("net", title);
    let rate = bytes as f64 / 1e6 / usage.seconds.max(1e-9);
    report.add(
        "throughput, MB/s",
        format!("{rate:.0}"),
        "megabytes_per_second",
        rate,
    );
    let cost = usage.client_cpu_seconds * 1e9 / bytes.max(1) as f64;
    let key = "cpu_seconds_per_gigabyte";
    report.add("CPU-s/GB of both ends", format!("{cost:.3}"), key, cost);
    let share = usage.foreign_cpu_share;
    report.add(
        "CPU of others",
        format!("{:.1} %", share * 100.0),
        "foreign_cpu_share",
        share,
    );
    report.set("steal_share", usage.steal_share);
    report.add_latency("round trip of 1 KiB", "round_trip_ms", &latency);
    Ok(report)
}

/// Connects two threads, each pinned to its core, and gives what they give.
fn side_by_side<R: Send, S: Send>(
    (receiver_core, receive): (usize, impl FnOnce(TcpStream) -> io::Result<R> + Send),
    (sender_core, send): (usize, impl FnOnce(TcpStream) -> io::Result<S> + Send),
) -> io::Result<(R, S)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let lost = || io::Error::other("a thread panicked");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            core_affinity::set_for_current(CoreId { id: receiver_core });
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            receive(stream)
        });
        let sender = scope.spawn(move || {
            core_affinity::set_for_current(CoreId { id: sender_core });
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            send(stream)
        });
        let sent = sender.join().map_err(|_| lost())??;
        let received = receiver.join().map_err(|_| lost())??;
        Ok((received, sent))
    })
}

/// Reads until the end and counts.
fn drain(piece_bytes: usize) -> impl FnOnce(TcpStream) -> io::Result<u64> + Send {
    move |mut stream| {
        let mut buffer = vec![0; piece_bytes];
        let mut total = 0;
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(total),
                count => total += count as u64,
            }
        }
    }
}

fn pour(piece_bytes: usize, time: Duration) -> impl FnOnce(TcpStream) -> io::Result<()> + Send {
    move |mut stream| {
        let buffer = vec![0x5a; piece_bytes];
        let began = Instant::now();
        while began.elapsed() < time {
            stream.write_all(&buffer)?;
        }
        Ok(())
    }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; PING_BYTES];
    loop {
        match stream.read_exact(&mut buffer) {
            Ok(()) => stream.write_all(&buffer)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn ping(time: Duration) -> impl FnOnce(TcpStream) -> io::Result<Histogram<u64>> + Send {
    move |mut stream| {
        let mut buffer = [0x5a; PING_BYTES];
        let mut latency = new_histogram();
        let began = Instant::now();
        while began.elapsed() < time {
            let start = Instant::now();
            stream.write_all(&buffer)?;
            stream.read_exact(&mut buffer)?;
            let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            latency.saturating_record(nanoseconds);
        }
        Ok(latency)
    }
}
