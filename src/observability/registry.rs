//! All counters of the process as Prometheus text.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::ApiKey;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::process::ProcessUsage;
use super::shard_metrics::ShardMetrics;

/// The `Content-Type` of [`MetricsRegistry::render`]'s text.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Everything that `/metrics` shows. The numbers are read when it is asked for.
#[derive(Debug)]
pub struct MetricsRegistry {
    registry: Registry,
    shards: Vec<Arc<ShardMetrics>>,
    started: Instant,
}

impl MetricsRegistry {
    /// Counters for one shard a core, in the order of the cores. The uptime counts from here.
    pub fn new(cores: &[usize]) -> Self {
        let started = Instant::now();
        let shards: Vec<Arc<ShardMetrics>> = (0..)
            .zip(cores)
            .map(|(shard, core)| Arc::new(ShardMetrics::new(shard, *core)))
            .collect();
        let mut registry = Registry::with_prefix("ringmain");
        registry.register_collector(Box::new(ShardCollector(shards.clone())));
        registry.register_collector(Box::new(ProcessCollector { started }));
        Self {
            registry,
            shards,
            started,
        }
    }

    /// In the order of the shards.
    pub fn shards(&self) -> &[Arc<ShardMetrics>] {
        &self.shards
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prometheus text of version 0.0.4.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail, and neither does a collector of ours.
        if let Err(error) = prometheus_text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics cannot be written");
        }
        text
    }
}

#[derive(Debug)]
struct ShardCollector(Vec<Arc<ShardMetrics>>);

type Read = fn(&ShardMetrics) -> u64;
type ReadPerApi = fn(&ShardMetrics) -> Vec<(Option<i16>, u64)>;

/// Name (a counter's gets `_total`), help, how to read it.
const COUNTERS: [(&str, &str, Read); 11] = [
    ("received_bytes", "Bytes of requests received", |m| {
        m.received_bytes.get()
    }),
    ("sent_bytes", "Bytes of responses sent", |m| {
        m.sent_bytes.get()
    }),
    ("connections_opened", "Connections accepted", |m| {
        m.connections_opened.get()
    }),
    ("connections_closed", "Connections ended", |m| {
        m.connections_closed.get()
    }),
    ("appended_records", "Records accepted from producers", |m| {
        m.appended_records.get()
    }),
    (
        "appended_bytes",
        "Bytes of record batches accepted from producers",
        |m| m.appended_bytes.get(),
    ),
    (
        "fetched_memory_bytes",
        "Bytes of record batches served from memory",
        |m| m.fetched_memory_bytes.get(),
    ),
    (
        "fetched_file_bytes",
        "Bytes of record batches served from files",
        |m| m.fetched_file_bytes.get(),
    ),
    (
        "commits",
        "Groups of batches committed, each with one flush of its partition",
        |m| m.commits.get(),
    ),
    ("heartbeats", "Heartbeats of the core's executor", |m| {
        m.heartbeats.get()
    }),
    (
        "heartbeat_late_nanoseconds",
        "Time by which heartbeats were late, summed up",
        |m| m.heartbeat_late_ns.get(),
    ),
];

const GAUGES: [(&str, &str, Read); 5] = [
    (
        "connections",
        "Connections that are open",
        ShardMetrics::open_connections,
    ),
    ("mailbox_depth", "Requests of other cores that wait", |m| {
        m.mailbox_depth.get()
    }),
    ("parked_fetches", "Fetches that wait for data", |m| {
        m.parked_fetches.get()
    }),
    (
        "heartbeat_late_nanoseconds_max",
        "The most by which a heartbeat was late",
        |m| m.heartbeat_late_ns_max.get(),
    ),
    (
        "offline_partitions",
        "Partitions that cannot be served; see /v1/status",
        |m| m.offline_partitions().len() as u64,
    ),
];

const COUNTERS_PER_API: [(&str, &str, ReadPerApi); 2] = [
    ("requests", "Requests by API", |m| m.requests().collect()),
    (
        "request_errors",
        "Requests that failed as a whole, by API",
        |m| m.request_errors().collect(),
    ),
];

impl Collector for ShardCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (name, help, read) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for shard in &self.0 {
                ConstCounter::new(read(shard)).encode(family.encode_family(&labels(shard))?)?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for shard in &self.0 {
                ConstGauge::new(read(shard)).encode(family.encode_family(&labels(shard))?)?;
            }
        }
        for (name, help, read) in COUNTERS_PER_API {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for shard in &self.0 {
                for (api_key, count) in read(shard) {
                    let [shard_label, core_label] = labels(shard);
                    let labels = [shard_label, core_label, ("api", api_name(api_key))];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn labels(shard: &ShardMetrics) -> [(&'static str, String); 2] {
    [
        ("shard", shard.shard().to_string()),
        ("core", shard.core().to_string()),
    ]
}

/// Kafka's name of the API.
fn api_name(api_key: Option<i16>) -> String {
    let Some(api_key) = api_key else {
        return "unknown".to_owned();
    };
    ApiKey::try_from(api_key).map_or_else(|_| api_key.to_string(), |key| format!("{key:?}"))
}

#[derive(Debug)]
struct ProcessCollector {
    started: Instant,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let usage = ProcessUsage::read();
        let gauges = [
            (
                "process_resident_bytes",
                "Memory in use by the process",
                usage.resident_bytes,
            ),
            (
                "process_open_files",
                "Open file descriptors",
                usage.open_files,
            ),
            ("process_threads", "Threads of the process", usage.threads),
            (
                "uptime_seconds",
                "Time since the start",
                Some(self.started.elapsed().as_secs()),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
                ConstGauge::new(value).encode(gauge)?;
            }
        }
        if let Some(cpu_s) = usage.cpu_s {
            let help = "User and system time of the process";
            let counter = encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                MetricType::Counter,
            )?;
            ConstCounter::new(cpu_s).encode(counter)?;
        }
        let help = "Always 1; the labels say what runs";
        let mut family = encoder.encode_descriptor("build_info", help, None, MetricType::Gauge)?;
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn registry() -> MetricsRegistry {
        let registry = MetricsRegistry::new(&[4, 6]);
        let shards = registry.shards();
        shards[0].count_append(3, 300);
        shards[1].count_append(5, 500);
        shards[1].count_request(0);
        shards[1].count_request(999);
        shards[1].count_error(0);
        shards[0].partition_offline("orders-3", "its log is damaged");
        registry
    }

    #[test]
    fn every_shard_has_its_line_with_shard_and_core() {
        let text = registry().render();
        for line in [
            "ringmain_appended_records_total{shard=\"0\",core=\"4\"} 3",
            "ringmain_appended_records_total{shard=\"1\",core=\"6\"} 5",
            "ringmain_appended_bytes_total{shard=\"1\",core=\"6\"} 500",
            "ringmain_requests_total{shard=\"1\",core=\"6\",api=\"Produce\"} 1",
            "ringmain_requests_total{shard=\"1\",core=\"6\",api=\"unknown\"} 1",
            "ringmain_request_errors_total{shard=\"1\",core=\"6\",api=\"Produce\"} 1",
            "ringmain_offline_partitions{shard=\"0\",core=\"4\"} 1",
            "ringmain_offline_partitions{shard=\"1\",core=\"6\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let version = format!(
            "ringmain_build_info{{version=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION")
        );
        assert!(text.contains(&version), "{text}");
        assert!(text.contains("ringmain_process_resident_bytes "), "{text}");
        assert!(text.contains("ringmain_uptime_seconds 0"), "{text}");
    }

    #[test]
    fn every_metric_is_described_once_and_every_line_is_of_a_described_one() {
        let text = registry().render();
        let mut described = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap();
                assert!(described.insert(name), "{name} is described twice");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                assert!(described.contains(name), "{line}");
            }
        }
        let expected = COUNTERS.len() + GAUGES.len() + COUNTERS_PER_API.len() + 6;
        assert_eq!(described.len(), expected, "{described:?}");
    }
}
