//! `ringmain bench`: what this machine's disk and network can do, and what a broker makes of it.
//!
//! Reading order: [`produce`] and [`consume`] (the load generator), [`request`] (its requests,
//! encoded once), [`disk`] and [`net`] (the limits), then what they share: [`load`] (duration and
//! progress), [`meter`] (processor time of both sides), [`report`], [`units`].
//!
//! Deliberately absent: the ordinary client's batching. The generator sends the same bytes again
//! and again, so that a broker is measured and not the client.

mod consume;
mod disk;
mod fetching;
mod load;
mod meter;
mod net;
mod produce;
mod report;
mod request;
mod units;

#[cfg(test)]
mod tests;

use clap::{Args, Subcommand};

pub use consume::ConsumeArgs;
pub use disk::DiskArgs;
pub use net::NetArgs;
pub use produce::ProduceArgs;

/// Measure a broker, or the limits of this machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain bench produce --bytes 10GiB               # throughput, flushed before acknowledgement
  ringmain bench produce --rate 5000 --seconds 60    # latency at a fixed rate
  ringmain bench consume --loops 3 --json
  ringmain bench disk --data-dir /var/lib/ringmain   # what the device can do
  ringmain bench net                                 # what loopback can do")]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Send the same record batches again and again.
    Produce(ProduceArgs),
    /// Read a topic and throw the records away.
    Consume(ConsumeArgs),
    /// Direct writes, flushes and reads in a data directory.
    Disk(DiskArgs),
    /// Throughput and round trips of TCP over loopback.
    Net(NetArgs),
}

/// Options of both halves of the load generator.
#[derive(Debug, Args)]
struct TargetArgs {
    /// Broker to talk to.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap: String,
    /// Topic to use; `produce` creates it if it is missing.
    #[arg(long, default_value = "ringmain-bench")]
    topic: String,
    /// Connections, each on a thread of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Process of the broker, to report its processor time. Found by its port if it runs here.
    #[arg(long, value_name = "PID")]
    broker_pid: Option<u32>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs a benchmark and prints its report. An error is one line that says what to do.
pub fn run(args: BenchArgs) -> Result<(), String> {
    let (report, json) = match &args.command {
        BenchCommand::Produce(args) => (produce::run(args)?, args.target.json),
        BenchCommand::Consume(args) => (consume::run(args)?, args.target.json),
        BenchCommand::Disk(args) => (disk::run(args)?, args.json),
        BenchCommand::Net(args) => (net::run(args)?, args.json),
    };
    report.print(json)
}
