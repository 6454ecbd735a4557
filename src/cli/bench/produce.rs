//! `bench produce`: sends one record batch, encoded before the run, again and again.
//!
//! Each connection is one thread with a non-blocking socket: it keeps `--in-flight` requests
//! unanswered, writes with vectored calls straight from the one copy of the batch (which stays in
//! the core's cache), and looks at responses only when it cannot send.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use kafka_protocol::messages::ApiKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::TargetArgs;
use super::load::{Goal, Load, drive};
use super::meter::find_listener;
use super::report::{Report, new_histogram};
use super::request::{
    CLIENT_ID, PRODUCE_VERSIONS, ProduceRequest, ProduceShape, read_produce_response,
};
use super::units::{parse_bytes, show_bytes};
use crate::base::TimestampMs;
use crate::client::error::io_reason;
use crate::client::{Client, ConnectOptions, TopicInfo};
use crate::protocol::batch::Compression;
use crate::protocol::builder::BatchBuilder;

/// The largest response to Produce that we take, in bytes.
const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// How long a broker may leave requests unanswered.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// A request due sooner than this is waited for by polling: a sleeping thread wakes about 60 us
/// late, which would count as latency.
const SPIN_BEFORE_SEND: Duration = Duration::from_micros(100);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringmain bench produce                                         # 2 GiB, flushed before acknowledgement
  ringmain bench produce --seconds 30 --warm-up-seconds 5 --connections 2
  ringmain bench produce --rate 5000 --batch-bytes 16KiB --seconds 60
  ringmain bench produce --batch-bytes 1 --in-flight 1 --records 10000   # one record at a time
  ringmain bench produce --acks 0 --compression lz4 --json")]
pub struct ProduceArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Partitions of the topic, if it has to be created.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: i32,
    /// Value of each record.
    #[arg(long, value_name = "BYTES", default_value = "1KiB", value_parser = parse_bytes)]
    record_size: u64,
    /// Records are put into a batch up to this size before compression; at least one is.
    #[arg(long, value_name = "BYTES", default_value = "256KiB", value_parser = parse_bytes)]
    batch_bytes: u64,
    /// Batches in a request, each for another partition.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batches_per_request: u16,
    /// Unanswered requests on each connection.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    in_flight: u16,
    /// Who must have the records: -1 or all, 1 (the leader), 0 (no answer is asked for).
    #[arg(long, default_value = "-1", allow_hyphen_values = true, value_parser = parse_acks)]
    acks: i16,
    /// How each batch is compressed.
    #[arg(long, value_enum, default_value = "none")]
    compression: CompressionArg,
    /// End after this many bytes of batches [default: 2GiB, if no other end is given].
    #[arg(long, value_parser = parse_bytes)]
    bytes: Option<u64>,
    /// End after this time.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// End after this many records.
    #[arg(long)]
    records: Option<u64>,
    /// Send for this time first, which does not count.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    warm_up_seconds: f64,
    /// Records per second, sent by the clock whether or not answers come; latency then counts from
    /// the moment at which a request was due.
    #[arg(long, value_name = "RECORDS")]
    rate: Option<f64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CompressionArg {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl CompressionArg {
    fn compression(self) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Gzip => Compression::Gzip,
            Self::Snappy => Compression::Snappy,
            Self::Lz4 => Compression::Lz4,
            Self::Zstd => Compression::Zstd,
        }
    }
}

fn parse_acks(text: &str) -> Result<i16, String> {
    match text {
        "-1" | "all" => Ok(-1),
        "0" => Ok(0),
        "1" => Ok(1),
        _ => Err("use -1 (or all), 1 or 0".to_owned()),
    }
}

/// A length of time from seconds, refused where it makes no sense.
pub(super) fn seconds(value: f64, option: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| format!("--{option} {value}: give a number of seconds of 0 or more"))
}

pub fn run(args: &ProduceArgs) -> Result<Report, String> {
    let (batch, batch_records) = build_batch(args)?;
    let batches = u64::from(args.batches_per_request);
    let request_bytes = batch.len() as u64 * batches;
    let request_records = batch_records * batches;
    let goal = goal(args, request_bytes, request_records)?;
    let pace = match args.rate {
        None => None,
        Some(rate) if rate > 0.0 => Some(Duration::from_secs_f64(request_records as f64 / rate)),
        Some(_) => return Err("--rate must be above 0".to_owned()),
    };
    let senders = connect(args, &batch, request_records, pace)?;
    let broker = args
        .target
        .broker_pid
        .or_else(|| find_listener(&args.target.bootstrap));
    let expected = goal
        .requests
        .map(|requests| requests.saturating_mul(request_bytes));
    let outcome = drive(senders, &goal, broker, expected, Sender::send_until_over)?;

    let title = format!(
        "produce: {} records of {} in batches of {}, {} a request, {} connections x {} in flight, acks {}, {:?}",
        outcome.records,
        show_bytes(args.record_size),
        show_bytes(batch.len() as u64),
        args.batches_per_request,
        args.target.connections,
        args.in_flight,
        args.acks,
        args.compression.compression(),
    );
    let mut report = Report::new("produce", title);
    report.add_throughput(outcome.records, outcome.bytes, &outcome.usage);
    let (mut latency, mut lateness) = (new_histogram(), new_histogram());
    for timing in &outcome.results {
        // All histograms have the same bounds, so that nothing is out of range.
        let _ = latency.add(&timing.latency);
        let _ = lateness.add(&timing.lateness);
    }
    report.add_latency("latency", "latency_ms", &latency);
    if args.rate.is_some() {
        report.add_latency("sent late by", "send_lateness_ms", &lateness);
    }
    report.set("record_size_bytes", args.record_size);
    report.set("batch_bytes", batch.len() as u64);
    report.set("batch_records", batch_records);
    report.set("acks", args.acks);
    report.set("connections", args.target.connections);
    report.set("in_flight", args.in_flight);
    Ok(report)
}

fn goal(args: &ProduceArgs, request_bytes: u64, request_records: u64) -> Result<Goal, String> {
    let open_ended = args.bytes.is_none() && args.seconds.is_none() && args.records.is_none();
    let bytes = if open_ended {
        Some(2 << 30)
    } else {
        args.bytes
    };
    let by_bytes = bytes.map(|bytes| bytes.div_ceil(request_bytes));
    let by_records = args
        .records
        .map(|records| records.div_ceil(request_records));
    let time = args
        .seconds
        .map(|value| seconds(value, "seconds"))
        .transpose()?;
    Ok(Goal {
        bytes: None,
        requests: by_bytes.into_iter().chain(by_records).min(),
        time,
        warm_up: seconds(args.warm_up_seconds, "warm-up-seconds")?,
    })
}

/// The one batch, and how many records are in it.
fn build_batch(args: &ProduceArgs) -> Result<(Bytes, u64), String> {
    const BATCH_BYTES_MAX: u64 = 100 << 20;
    let largest = args.batch_bytes.max(args.record_size);
    if largest > BATCH_BYTES_MAX {
        return Err(format!(
            "batches of {} are beyond what brokers take; use at most {} for --batch-bytes and --record-size",
            show_bytes(largest),
            show_bytes(BATCH_BYTES_MAX)
        ));
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64);
    let mut builder = BatchBuilder::new(TimestampMs(now));
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let mut value = record_value(args.record_size as usize, &mut seed);
    let header_bytes = builder.size_bytes();
    loop {
        builder.push(TimestampMs(now), None, Some(&value), &[]);
        let record_bytes = (builder.size_bytes() - header_bytes) / builder.record_count() as usize;
        if (builder.size_bytes() + record_bytes + 4) as u64 > args.batch_bytes {
            break;
        }
        value = record_value(args.record_size as usize, &mut seed);
    }
    let count = builder.record_count() as u64;
    Ok((builder.build(args.compression.compression()), count))
}

/// Text of which compression takes away about half: random digits between repeated words.
fn record_value(len: usize, seed: &mut u64) -> Vec<u8> {
    let mut value = Vec::with_capacity(len + 32);
    while value.len() < len {
        // xorshift64: any cheap sequence that compressors cannot guess.
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        value.extend_from_slice(format!("{{\"reading\":\"{seed:016x}\"}}").as_bytes());
    }
    value.truncate(len);
    value
}

/// Opens all connections, each with its share of the partitions that its broker leads.
fn connect(
    args: &ProduceArgs,
    batch: &Bytes,
    request_records: u64,
    pace: Option<Duration>,
) -> Result<Vec<Sender>, String> {
    let options = ConnectOptions {
        client_id: CLIENT_ID.to_owned(),
        ..ConnectOptions::default()
    };
    let name = &args.target.topic;
    let mut client =
        Client::connect(&args.target.bootstrap, &options).map_err(|error| error.to_string())?;
    let topic = ensure_topic(&mut client, name, args.partitions)?;
    drop(client);
    let connections = usize::from(args.target.connections);
    let shares = share_partitions(&topic, connections)?;
    let mut senders = Vec::with_capacity(connections);
    for (position, (leader, partitions)) in shares.into_iter().enumerate() {
        let batches = usize::from(args.batches_per_request);
        if partitions.len() < batches {
            return Err(format!(
                "a connection has {} partitions for requests of {batches} batches; use fewer --connections, or a topic of more --partitions",
                partitions.len()
            ));
        }
        let client = Client::connect(&leader, &options).map_err(|error| error.to_string())?;
        let (oldest, newest) = PRODUCE_VERSIONS;
        let version = client
            .version(ApiKey::Produce, oldest, newest)
            .map_err(|error| error.to_string())?;
        let shape = ProduceShape {
            version,
            acks: args.acks,
            timeout_ms: 30_000,
            topic: name,
        };
        let requests = (0..partitions.len()).map(|turn| {
            let first = turn * batches;
            let chosen: Vec<i32> = (first..first + batches)
                .map(|index| partitions[index % partitions.len()])
                .collect();
            ProduceRequest::new(&shape, &chosen, batch)
        });
        senders.push(Sender {
            requests: requests.collect(),
            version,
            wants_answers: args.acks != 0,
            in_flight_max: usize::from(args.in_flight),
            request_records,
            request_bytes: (batch.len() * batches) as u64,
            pace: pace.map(|interval| Pace {
                interval: interval * args.target.connections.into(),
                offset: interval * position as u32,
            }),
            address: leader,
            stream: client.into_stream(),
        });
    }
    Ok(senders)
}

/// The topic's partitions; creates the topic and waits until it has leaders.
fn ensure_topic(client: &mut Client, name: &str, partitions: i32) -> Result<TopicInfo, String> {
    const TRIES_MAX: u32 = 100;
    let mut created = false;
    for _ in 0..TRIES_MAX {
        match client.topic(name).map_err(|error| error.to_string())? {
            Some(topic) if topic.partitions.iter().all(|part| part.leader.is_some()) => {
                return Ok(topic);
            }
            None if !created => {
                client
                    .create_topic(name, partitions, 1, 30_000)
                    .map_err(|error| error.to_string())?;
                created = true;
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Err(format!(
        "topic `{name}` has partitions without a leader; check the brokers that hold it"
    ))
}

/// For each connection a leader's address and its partitions: disjoint while they last.
pub(super) fn share_partitions(
    topic: &TopicInfo,
    connections: usize,
) -> Result<Vec<(String, Vec<i32>)>, String> {
    let mut by_leader: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in &topic.partitions {
        if let Some(leader) = &partition.leader {
            by_leader.entry(leader).or_default().push(partition.index);
        }
    }
    let leaders: Vec<_> = by_leader.into_iter().collect();
    if leaders.is_empty() {
        return Err(format!(
            "topic `{}` has no partition with a leader",
            topic.name
        ));
    }
    if connections < leaders.len() {
        return Err(format!(
            "the partitions have {} leaders; use at least as many --connections",
            leaders.len()
        ));
    }
    Ok((0..connections)
        .map(|connection| {
            let (leader, all) = &leaders[connection % leaders.len()];
            let rank = connection / leaders.len();
            let peers = (connections - 1 - connection % leaders.len()) / leaders.len() + 1;
            let own = if peers >= all.len() {
                vec![all[rank % all.len()]]
            } else {
                all.iter().copied().skip(rank).step_by(peers).collect()
            };
            ((*leader).to_owned(), own)
        })
        .collect())
}

/// When requests are due: every `interval`, from `offset` on.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    offset: Duration,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Sender {
    stream: TcpStream,
    address: String,
    requests: Vec<ProduceRequest>,
    version: i16,
    wants_answers: bool,
    in_flight_max: usize,
    request_records: u64,
    request_bytes: u64,
    pace: Option<Pace>,
}

/// A worker's latencies in nanoseconds: from the sending (or the due time) to the answer.
#[derive(Debug)]
pub(super) struct Timing {
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
}

#[derive(Debug)]
struct Unanswered {
    correlation_id: i32,
    since: Instant,
    counts: bool,
}

/// A request on its way into the socket.
#[derive(Debug)]
struct Outgoing {
    request: usize,
    sent_bytes: usize,
}

impl Sender {
    fn send_until_over(mut self, load: &Load) -> Result<Timing, String> {
        self.stream
            .set_nonblocking(true)
            .map_err(|error| self.lost(&error))?;
        let begun = Instant::now();
        let mut timing = Timing {
            latency: new_histogram(),
            lateness: new_histogram(),
        };
        let mut unanswered: VecDeque<Unanswered> = VecDeque::new();
        let mut outgoing: Option<Outgoing> = None;
        let mut incoming = Incoming::default();
        let mut started = 0_u64;
        let mut over = false;
        loop {
            // 1. Send until the socket is full, enough is unanswered, or nothing is due.
            let mut due_in = None;
            loop {
                if outgoing.is_none() && !over && unanswered.len() < self.in_flight_max {
                    let now = Instant::now();
                    let due = self.due(begun, started).unwrap_or(now);
                    over = load.is_over();
                    if due > now {
                        due_in = Some(due - now);
                    } else if let Some(counts) = load.next_request() {
                        if counts {
                            timing.lateness.saturating_record(nanoseconds(now - due));
                        }
                        outgoing = Some(self.start(started, due, counts, &mut unanswered));
                        started += 1;
                    } else {
                        over = true;
                    }
                }
                let Some(current) = &mut outgoing else { break };
                let request = &self.requests[current.request];
                match request.write_from(current.sent_bytes, &mut self.stream) {
                    Ok(sent_bytes) => current.sent_bytes = sent_bytes,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.lost(&error)),
                }
                if current.sent_bytes == request.total_bytes() {
                    outgoing = None;
                    if !self.wants_answers {
                        self.finish(unanswered.pop_back(), load, &mut timing);
                    }
                }
            }
            if over && outgoing.is_none() && unanswered.is_empty() {
                return Ok(timing);
            }
            // 2. Wait for room, an answer, or the next due time.
            let ready = self.wait(outgoing.is_some(), due_in)?;
            // 3. Take what answers there are.
            if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.receive(&mut incoming)?;
                while let Some(frame) = incoming.next_frame(&self.address)? {
                    let answer = read_produce_response(frame, self.version).map_err(|error| {
                        format!("the response of {} is unreadable: {error}", self.address)
                    })?;
                    if let Some(refusal) = answer.refusal {
                        return Err(refusal);
                    }
                    let oldest = unanswered.pop_front();
                    if oldest.as_ref().map(|request| request.correlation_id)
                        != Some(answer.correlation_id)
                    {
                        return Err(format!("{} answered out of order", self.address));
                    }
                    self.finish(oldest, load, &mut timing);
                }
            }
        }
    }

    /// When the request of that number is due, if there is a pace.
    fn due(&self, begun: Instant, number: u64) -> Option<Instant> {
        let pace = self.pace.as_ref()?;
        Some(begun + pace.offset + pace.interval.mul_f64(number as f64))
    }

    fn start(
        &mut self,
        number: u64,
        since: Instant,
        counts: bool,
        unanswered: &mut VecDeque<Unanswered>,
    ) -> Outgoing {
        let request = (number % self.requests.len() as u64) as usize;
        let correlation_id = number as i32;
        self.requests[request].set_correlation_id(correlation_id);
        unanswered.push_back(Unanswered {
            correlation_id,
            since,
            counts,
        });
        Outgoing {
            request,
            sent_bytes: 0,
        }
    }

    fn finish(&self, request: Option<Unanswered>, load: &Load, timing: &mut Timing) {
        if let Some(request) = request.filter(|request| request.counts) {
            let latency = nanoseconds(request.since.elapsed());
            timing.latency.saturating_record(latency);
            load.add(self.request_records, self.request_bytes);
        }
    }

    /// What the socket is ready for; nothing when the next request is due.
    fn wait(&self, wants_room: bool, due_in: Option<Duration>) -> Result<PollFlags, String> {
        let mut interest = PollFlags::IN;
        if wants_room {
            interest |= PollFlags::OUT;
        }
        let mut descriptors = [PollFd::new(&self.stream, interest)];
        let pause = match due_in {
            Some(due_in) => due_in.saturating_sub(SPIN_BEFORE_SEND),
            None => ANSWER_WAIT_MAX,
        };
        let pause = Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: i64::from(pause.subsec_nanos()),
        };
        match poll(&mut descriptors, Some(&pause)) {
            Ok(0) if due_in.is_none() => Err(format!(
                "{} left requests unanswered for {} s; the broker's log says why",
                self.address,
                ANSWER_WAIT_MAX.as_secs()
            )),
            Ok(_) => Ok(descriptors[0].revents()),
            Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
            Err(error) => Err(self.lost(&error.into())),
        }
    }

    fn receive(&mut self, incoming: &mut Incoming) -> Result<(), String> {
        match incoming.read_from(&mut self.stream) {
            Ok(0) => Err(self.lost(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&self, error: &io::Error) -> String {
        format!(
            "the connection to {} broke: {}; the broker's log says why",
            self.address,
            io_reason(error)
        )
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Response bytes, cut into frames.
#[derive(Debug, Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    start: usize,
}

impl Incoming {
    fn read_from(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        const READ_BYTES: usize = 16 * 1024;
        self.bytes.drain(..self.start);
        self.start = 0;
        let len = self.bytes.len();
        self.bytes.resize(len + READ_BYTES, 0);
        let result = stream.read(&mut self.bytes[len..]);
        self.bytes.truncate(len + *result.as_ref().unwrap_or(&0));
        result
    }

    /// The next whole frame without its length.
    fn next_frame(&mut self, address: &str) -> Result<Option<&[u8]>, String> {
        let Some((length, rest)) = self.bytes[self.start..].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > RESPONSE_BYTES_MAX {
            return Err(format!(
                "{address} announced a response of {length} bytes to Produce; is it a Kafka broker?"
            ));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        self.start += 4 + length;
        Ok(Some(frame))
    }
}
