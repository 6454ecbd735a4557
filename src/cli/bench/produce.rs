//! `bench produce`: sends one record batch, encoded before the run, again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use kafka_protocol::messages::ApiKey;

use super::TargetArgs;
use super::load::{Goal, drive};
use super::meter::find_listener;
use super::report::{Report, new_histogram};
use super::request::{PRODUCE_VERSIONS, ProduceRequest, ProduceShape, connect_options};
use super::sender::{Pace, Sender};
use super::units::{parse_bytes, show_bytes};
use crate::base::TimestampMs;
use crate::client::{Client, TopicInfo};
use crate::protocol::batch::Compression;
use crate::protocol::builder::BatchBuilder;

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
    let options = connect_options();
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
