//! `bench consume`: reads a topic and throws the records away, looking only at the framing and at
//! the headers of batches to learn the next offsets.
//!
//! Each connection is one thread. Its partitions are dealt to `--in-flight` lanes, each with one
//! fetch at a time, so that the broker has the next request while we look at a response.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use clap::Args;
use hdrhistogram::Histogram;
use kafka_protocol::messages::ApiKey;

use super::TargetArgs;
use super::fetching::{Cursor, Fetched, put_fetch_request, read_fetch_response};
use super::load::{Goal, Load, drive};
use super::meter::find_listener;
use super::produce::{seconds, share_partitions};
use super::report::{Report, new_histogram};
use super::request::connect_options;
use super::units::{parse_bytes, show_bytes};
use crate::client::Client;
use crate::client::error::io_reason;
use crate::client::topics::{EARLIEST, LATEST};

/// What a response may be beyond the bytes asked for: its headers, and a first batch that is
/// larger than what was asked for, which brokers send whole (KIP-74).
const RESPONSE_SLACK_BYTES: usize = 128 << 20;

/// Empty responses of a lane in a row before we believe that nothing comes any more.
const EMPTY_RESPONSES_MAX: u32 = 60;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain bench consume                         # everything that is there, once
  ringmain bench consume --loops 5 --json
  ringmain bench consume --bytes 10GiB --connections 2 --fetch-bytes 4MiB")]
pub struct ConsumeArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Most bytes of a response, of all partitions together.
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = parse_bytes)]
    fetch_bytes: u64,
    /// Unanswered fetches on each connection; no more than it has partitions.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    in_flight: u16,
    /// Read everything this many times [default: 1, or as often as another end needs].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    loops: Option<u32>,
    /// End after this many bytes of batches, reading the same data again if need be.
    #[arg(long, value_parser = parse_bytes)]
    bytes: Option<u64>,
    /// End after this time.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Read for this time first, which does not count.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    warm_up_seconds: f64,
}

pub fn run(args: &ConsumeArgs) -> Result<Report, String> {
    if !(1..=1 << 30).contains(&args.fetch_bytes) {
        return Err("--fetch-bytes must be from 1 to 1GiB".to_owned());
    }
    let goal = Goal {
        bytes: args.bytes,
        requests: None,
        time: args
            .seconds
            .map(|value| seconds(value, "seconds"))
            .transpose()?,
        warm_up: seconds(args.warm_up_seconds, "warm-up-seconds")?,
    };
    let readers = connect(args)?;
    let broker = args
        .target
        .broker_pid
        .or_else(|| find_listener(&args.target.bootstrap));
    let outcome = drive(readers, &goal, broker, args.bytes, Reader::read_until_over)?;
    let title = format!(
        "consume: {} records of `{}` in fetches of up to {}, {} connections x {} in flight",
        outcome.records,
        args.target.topic,
        show_bytes(args.fetch_bytes),
        args.target.connections,
        args.in_flight,
    );
    let mut report = Report::new("consume", title);
    report.add_throughput(outcome.records, outcome.bytes, &outcome.usage);
    let mut latency = new_histogram();
    for histogram in &outcome.results {
        // The bounds are the same, so that nothing is out of range.
        let _ = latency.add(histogram);
    }
    report.add_latency("latency of a fetch", "latency_ms", &latency);
    report.set("fetch_bytes", args.fetch_bytes);
    report.set("connections", args.target.connections);
    report.set("in_flight", args.in_flight);
    Ok(report)
}

fn connect(args: &ConsumeArgs) -> Result<Vec<Reader>, String> {
    let options = connect_options();
    let name = &args.target.topic;
    let open =
        |address: &str| Client::connect(address, &options).map_err(|error| error.to_string());
    let topic = open(&args.target.bootstrap)?
        .topic(name)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| {
            format!(
                "there is no topic `{name}`; fill it with `ringmain bench produce --topic {name}`"
            )
        })?;
    let connections = usize::from(args.target.connections).min(topic.partitions.len().max(1));
    let endless = args.bytes.is_some() || args.seconds.is_some();
    let loops = args.loops.unwrap_or(if endless { u32::MAX } else { 1 });
    let mut readers = Vec::with_capacity(connections);
    for (leader, partitions) in share_partitions(&topic, connections)? {
        let mut client = open(&leader)?;
        let version = client
            .version(ApiKey::Fetch, 4, 12)
            .map_err(|error| error.to_string())?;
        let mut offsets = |time| {
            client
                .list_offsets(name, &partitions, time)
                .map_err(|error| error.to_string())
        };
        let (first, end) = (offsets(EARLIEST)?, offsets(LATEST)?);
        let cursors: Vec<Cursor> = partitions
            .iter()
            .filter_map(|index| Cursor::new(*index, *first.get(index)?, *end.get(index)?, loops))
            .collect();
        let lanes = usize::from(args.in_flight).min(cursors.len());
        let mut dealt: Vec<Lane> = (0..lanes).map(|_| Lane::default()).collect();
        for (position, cursor) in cursors.into_iter().enumerate() {
            dealt[position % lanes].cursors.push(cursor);
        }
        readers.push(Reader {
            stream: client.into_stream(),
            address: leader,
            topic: name.clone(),
            version,
            fetch_bytes: args.fetch_bytes as i32,
            lanes: dealt,
        });
    }
    if readers.iter().all(|reader| reader.lanes.is_empty()) {
        return Err(format!(
            "topic `{name}` is empty; fill it with `ringmain bench produce --topic {name}`"
        ));
    }
    Ok(readers)
}

/// Partitions that are fetched together, one request at a time.
#[derive(Debug, Default)]
struct Lane {
    cursors: Vec<Cursor>,

    empty_responses: u32,
}

/// One connection.
#[derive(Debug)]
struct Reader {
    stream: TcpStream,
    address: String,
    topic: String,
    version: i16,
    fetch_bytes: i32,
    lanes: Vec<Lane>,
}

/// A fetch on its way.
#[derive(Debug)]
struct Asked {
    lane: usize,
    correlation_id: i32,
    since: Instant,
    counts: bool,
}

impl Reader {
    fn read_until_over(mut self, load: &Load) -> Result<Histogram<u64>, String> {
        // Longer than the broker may wait for records.
        let patience = Some(Duration::from_secs(60));
        self.stream
            .set_read_timeout(patience)
            .map_err(|error| self.lost(&error))?;
        let mut latency = new_histogram();
        let mut asked: VecDeque<Asked> = VecDeque::new();
        let mut next_correlation_id = 0_i32;
        let mut request = BytesMut::new();
        let mut frame = Vec::new();
        let mut idle: VecDeque<usize> = (0..self.lanes.len()).collect();
        loop {
            while let Some(lane) = idle.pop_front() {
                if self.lanes[lane].cursors.is_empty() {
                    continue;
                }
                let Some(counts) = load.next_request() else {
                    continue;
                };
                self.put_request(lane, next_correlation_id, &mut request);
                self.stream
                    .write_all(&request)
                    .map_err(|error| self.lost(&error))?;
                asked.push_back(Asked {
                    lane,
                    correlation_id: next_correlation_id,
                    since: Instant::now(),
                    counts,
                });
                next_correlation_id = next_correlation_id.wrapping_add(1);
            }
            let Some(answered) = asked.pop_front() else {
                return Ok(latency);
            };
            let len = self.read_frame(&mut frame)?;
            let fetched = self.take_response(&answered, &frame[..len])?;
            if answered.counts {
                let nanoseconds = answered.since.elapsed().as_nanos();
                latency.saturating_record(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
                load.add(fetched.records, fetched.bytes);
            }
            idle.push_back(answered.lane);
        }
    }

    fn put_request(&mut self, lane: usize, correlation_id: i32, request: &mut BytesMut) {
        let lane = &mut self.lanes[lane];
        // Another partition comes first each time: each gets its share of a full response.
        lane.cursors.rotate_left(1);
        request.clear();
        request.put_i32(0);
        put_fetch_request(
            request,
            self.version,
            correlation_id,
            &self.topic,
            self.fetch_bytes,
            &lane.cursors,
        );
        crate::protocol::frame::patch_length(request, 0);
    }

    /// Reads one frame into the front of `frame`, which grows as needed and is not cleared.
    fn read_frame(&mut self, frame: &mut Vec<u8>) -> Result<usize, String> {
        const GROWTH_BYTES: usize = 4 << 20;
        let mut length = [0; 4];
        self.stream
            .read_exact(&mut length)
            .map_err(|error| self.lost(&error))?;
        let length = u32::from_be_bytes(length) as usize;
        if length > self.fetch_bytes as usize + RESPONSE_SLACK_BYTES {
            return Err(format!(
                "{} announced a response of {length} bytes; is it a Kafka broker?",
                self.address
            ));
        }
        let mut filled = 0;
        while filled < length {
            if frame.len() < length && filled == frame.len() {
                // In steps: the announcement alone does not decide how much is allocated.
                frame.resize(length.min(filled + GROWTH_BYTES), 0);
            }
            let end = length.min(frame.len());
            self.stream
                .read_exact(&mut frame[filled..end])
                .map_err(|error| self.lost(&error))?;
            filled = end;
        }
        Ok(length)
    }

    fn take_response(&mut self, answered: &Asked, frame: &[u8]) -> Result<Fetched, String> {
        let lane = &mut self.lanes[answered.lane];
        let mut by_index: BTreeMap<i32, &mut Cursor> = lane
            .cursors
            .iter_mut()
            .map(|cursor| (cursor.partition, cursor))
            .collect();
        let fetched = read_fetch_response(frame, self.version, &mut by_index)
            .map_err(|error| format!("the response of {} is unreadable: {error}", self.address))?;
        if fetched.correlation_id != answered.correlation_id {
            return Err(format!("{} answered out of order", self.address));
        }
        if let Some(refusal) = fetched.refusal {
            return Err(refusal);
        }
        lane.empty_responses = match fetched.records {
            0 => lane.empty_responses + 1,
            _ => 0,
        };
        if lane.empty_responses > EMPTY_RESPONSES_MAX {
            return Err(format!(
                "{} sends no records although there should be some; if a batch is larger than --fetch-bytes, raise it",
                self.address
            ));
        }
        lane.cursors.retain(|cursor| !cursor.is_done());
        Ok(fetched)
    }

    fn lost(&self, error: &io::Error) -> String {
        format!(
            "the connection to {} broke: {}; the broker's log says why",
            self.address,
            io_reason(error)
        )
    }
}
