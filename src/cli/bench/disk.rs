//! `bench disk`: what the device under a data directory does with the calls that the storage makes.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};

use super::produce::seconds;
use super::report::Report;
use super::units::{parse_bytes, show_bytes};
use crate::io::bench_disk::{DiskPlan, SEQUENTIAL_IN_FLIGHT, Transfer, measure};

#[derive(Debug, Args)]
#[command(after_help = "\
Writes a temporary file and removes it. The flushed writes overwrite blocks that were written
before: a file that grows is slower, since its size is flushed too.

Examples:
  ringmain bench disk --data-dir /var/lib/ringmain
  ringmain bench disk --data-dir . --bytes 8GiB --seconds 10 --json")]
pub struct DiskArgs {
    /// Existing directory on the device.
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Bytes of the sequential write, and of the read.
    #[arg(long, default_value = "2GiB", value_parser = parse_bytes)]
    bytes: u64,
    /// How long each size of flushed writes is tried.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,
    /// Core to run on [default: the first that this process may use].
    #[arg(long)]
    core: Option<usize>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(super) json: bool,
}

pub fn run(args: &DiskArgs) -> Result<Report, String> {
    if args.bytes > 1 << 44 {
        return Err("--bytes: give at most 16TiB".to_owned());
    }
    let plan = DiskPlan {
        dir: args.data_dir.clone(),
        sequential_bytes: args.bytes,
        time_per_size: seconds(args.seconds, "seconds")?.max(Duration::from_millis(1)),
        core: args.core.unwrap_or_else(|| super::net::own_cores()[0]),
    };
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(100), target);
    let shown = bar.clone();
    let figures = measure(&plan, move |share| {
        shown.set_position((share * 100.0) as u64)
    })
    .map_err(|error| error.to_string())?;
    bar.finish_and_clear();

    let title = format!(
        "disk: {} of direct I/O in {}, core {}",
        show_bytes(args.bytes),
        args.data_dir.display(),
        plan.core
    );
    let mut report = Report::new("disk", title);
    let megabytes = |transfer: &Transfer| transfer.bytes_per_second() / 1e6;
    let rate = megabytes(&figures.write);
    let label = format!("sequential write, 1 MiB x {SEQUENTIAL_IN_FLIGHT}, MB/s");
    let key = "sequential_write_megabytes_per_second";
    report.add(&label, format!("{rate:.0}"), key, rate);
    let rate = megabytes(&figures.read);
    let label = format!("sequential read, 1 MiB x {SEQUENTIAL_IN_FLIGHT}, MB/s");
    let key = "sequential_read_megabytes_per_second";
    report.add(&label, format!("{rate:.0}"), key, rate);
    let mut rows: Vec<Value> = Vec::new();
    for flushed in &figures.flushed {
        let per_second = flushed.latency.len() as f64 / flushed.took.as_secs_f64().max(1e-9);
        let size = show_bytes(flushed.write_bytes as u64);
        let key = format!("write_and_flush_{}_ms", flushed.write_bytes);
        report.add_latency(&format!("write + flush of {size}"), &key, &flushed.latency);
        let rate = per_second * flushed.write_bytes as f64 / 1e6;
        report.show(
            &format!("write + flush of {size}, per second (MB/s)"),
            format!("{per_second:.0} ({rate:.0})"),
        );
        rows.push(json!({
            "write_bytes": flushed.write_bytes,
            "per_second": per_second,
            "megabytes_per_second": rate,
        }));
    }
    report.set("write_and_flush", rows);
    Ok(report)
}
