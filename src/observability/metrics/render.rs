//! The figures as Prometheus reads them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::cells::Histogram;
use super::process::ProcessFigures;
use super::shard::ShardMetrics;

/// The media type of [`MetricsRegistry::render`].
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Says what an API key is called.
pub type ApiName = fn(i16) -> Option<&'static str>;

/// All figures of the process. Shared by whoever shows them.
pub struct MetricsRegistry {
    figures: Arc<Figures>,
    registry: Registry,
}

struct Figures {
    shards: Mutex<Vec<Arc<ShardMetrics>>>,
    api_name: ApiName,
    started: Instant,
}

impl MetricsRegistry {
    /// `api_name` names the API keys in the label `api`; those without a name show their number.
    pub fn new(api_name: ApiName) -> Self {
        let figures = Arc::new(Figures {
            shards: Mutex::default(),
            api_name,
            started: Instant::now(),
        });
        let mut registry = Registry::with_prefix("ringmain");
        registry.register_collector(Box::new(FiguresCollector(figures.clone())));
        Self { figures, registry }
    }

    pub fn register(&self, shard: Arc<ShardMetrics>) {
        self.figures.shards().push(shard);
    }

    /// The shards that registered, in that order.
    pub fn shards(&self) -> Vec<Arc<ShardMetrics>> {
        self.figures.shards().clone()
    }

    /// The text of `/metrics`, in Prometheus' format 0.0.4.
    pub fn render(&self) -> String {
        let mut text = String::new();
        if prometheus_text::encode(&mut text, &self.registry).is_err() {
            // A String takes all that is written to it.
            tracing::error!("the metrics could not be rendered");
        }
        text
    }
}

impl fmt::Debug for MetricsRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsRegistry").finish_non_exhaustive()
    }
}

impl Figures {
    fn shards(&self) -> std::sync::MutexGuard<'_, Vec<Arc<ShardMetrics>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct FiguresCollector(Arc<Figures>);

impl fmt::Debug for FiguresCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FiguresCollector")
    }
}

/// Reads one figure of a shard.
type Read<T> = fn(&ShardMetrics) -> T;
type ReadHistogram = fn(&ShardMetrics) -> &Histogram;

/// Name, help, figure. Prometheus adds `_total` to the names of counters.
const COUNTERS: &[(&str, &str, Read<u64>)] = &[
    ("connections_accepted", "Connections accepted", |s| {
        s.connections_accepted.get()
    }),
    ("connections_closed", "Connections closed", |s| {
        s.connections_closed.get()
    }),
    (
        "network_in_bytes",
        "Bytes read from client connections",
        |s| s.network_in_bytes.get(),
    ),
    (
        "network_out_bytes",
        "Bytes written to client connections",
        |s| s.network_out_bytes.get(),
    ),
    ("request_errors", "Responses that carry an error", |s| {
        s.request_errors.get()
    }),
    ("malformed_frames", "Frames that were no request", |s| {
        s.malformed_frames.get()
    }),
    ("produce_records", "Records appended for clients", |s| {
        s.produce_records.get()
    }),
    (
        "produce_batches",
        "Record batches appended for clients",
        |s| s.produce_batches.get(),
    ),
    (
        "produce_bytes",
        "Bytes of record batches appended for clients",
        |s| s.produce_bytes.get(),
    ),
    ("appended_bytes", "Bytes written to segments", |s| {
        s.appended_bytes.get()
    }),
    ("flushes", "Flushes that the device completed", |s| {
        s.flushes.get()
    }),
    (
        "flushed_batches",
        "Record batches made durable by flushes",
        |s| s.flushed_batches.get(),
    ),
    (
        "mailbox_messages",
        "Messages taken from the shard's mailbox",
        |s| s.mailbox_messages.get(),
    ),
];

const GAUGES: &[(&str, &str, Read<f64>)] = &[
    ("connections_open", "Connections open now", |s| {
        s.connections_open.get() as f64
    }),
    ("fetches_parked", "Fetches that wait for records", |s| {
        s.fetches_parked.get() as f64
    }),
    (
        "mailbox_depth",
        "Messages that wait in the shard's mailbox",
        |s| s.mailbox_depth.get() as f64,
    ),
    ("partitions", "Partitions that the shard owns", |s| {
        s.partitions.get() as f64
    }),
    (
        "executor_lateness_seconds",
        "How late the executor's timer last fired",
        |s| s.lateness_last_ns.get() as f64 / 1e9,
    ),
    (
        "executor_lateness_max_seconds",
        "The latest that the executor's timer ever fired",
        |s| s.lateness_max_ns.get() as f64 / 1e9,
    ),
];

const HISTOGRAMS: &[(&str, &str, ReadHistogram)] = &[
    (
        "produce_duration_seconds",
        "From a Produce request's arrival to its answer",
        |s| &s.produce_duration,
    ),
    (
        "flush_duration_seconds",
        "How long the device took to flush",
        |s| &s.flush_duration,
    ),
];

impl Collector for FiguresCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let shards = self.0.shards().clone();
        for (name, help, read) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for shard in &shards {
                counter(&mut family, &labels(shard), &read(shard))?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for shard in &shards {
                family
                    .encode_family(&labels(shard))?
                    .encode_gauge(&read(shard))?;
            }
        }
        for (name, help, read) in HISTOGRAMS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for shard in &shards {
                histogram(&mut family, shard, read(shard))?;
            }
        }
        self.encode_with_more_labels(&mut encoder, &shards)?;
        self.encode_process(&mut encoder)
    }
}

impl FiguresCollector {
    fn encode_with_more_labels(
        &self,
        encoder: &mut DescriptorEncoder,
        shards: &[Arc<ShardMetrics>],
    ) -> fmt::Result {
        let mut family =
            encoder.encode_descriptor("requests", "Requests by API", None, MetricType::Counter)?;
        for shard in shards {
            for (api_key, count) in shard.requests() {
                let api =
                    (self.0.api_name)(api_key).map_or_else(|| api_key.to_string(), str::to_owned);
                counter(&mut family, &labels_and(shard, ("api", api)), &count)?;
            }
        }
        let help = "Record bytes sent to consumers, by where they came from";
        let mut family =
            encoder.encode_descriptor("fetch_bytes", help, None, MetricType::Counter)?;
        for shard in shards {
            for (source, bytes) in [
                ("memory", shard.fetch_memory_bytes.get()),
                ("file", shard.fetch_file_bytes.get()),
            ] {
                counter(
                    &mut family,
                    &labels_and(shard, ("source", source.to_owned())),
                    &bytes,
                )?;
            }
        }
        let help = "Time that the executor spent at work";
        let mut family =
            encoder.encode_descriptor("executor_busy_seconds", help, None, MetricType::Counter)?;
        for shard in shards {
            counter(
                &mut family,
                &labels(shard),
                &(shard.busy_ns.get() as f64 / 1e9),
            )?;
        }
        Ok(())
    }

    fn encode_process(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let process = ProcessFigures::read();
        let uptime = self.0.started.elapsed().as_secs_f64();
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Resident memory",
                process.resident_bytes.map(|bytes| bytes as f64),
            ),
            (
                "process_open_files",
                "Open file descriptors",
                process.open_files.map(|files| files as f64),
            ),
            (
                "process_threads",
                "Threads",
                process.threads.map(|threads| threads as f64),
            ),
            (
                "process_uptime_seconds",
                "Time since the start",
                Some(uptime),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                encoder
                    .encode_descriptor(name, help, None, MetricType::Gauge)?
                    .encode_gauge(&value)?;
            }
        }
        if let Some(seconds) = process.cpu_seconds {
            let help = "User and system time of all threads";
            encoder
                .encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, f64, f64>(&seconds, None)?;
        }
        let labels = [("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        encoder
            .encode_descriptor("build", "The running version", None, MetricType::Info)?
            .encode_info(&labels)
    }
}

fn labels(shard: &ShardMetrics) -> Vec<(&'static str, String)> {
    vec![
        ("shard", shard.shard.to_string()),
        ("core", shard.core.to_string()),
    ]
}

fn labels_and(shard: &ShardMetrics, label: (&'static str, String)) -> Vec<(&'static str, String)> {
    let mut labels = labels(shard);
    labels.push(label);
    labels
}

fn counter<V: prometheus_client::encoding::EncodeCounterValue>(
    family: &mut MetricEncoder,
    labels: &impl EncodeLabelSet,
    value: &V,
) -> fmt::Result {
    family
        .encode_family(labels)?
        .encode_counter::<NoLabelSet, V, f64>(value, None)
}

fn histogram(
    family: &mut MetricEncoder,
    shard: &ShardMetrics,
    histogram: &Histogram,
) -> fmt::Result {
    family
        .encode_family(&labels(shard))?
        .encode_histogram::<NoLabelSet>(
            histogram.sum_seconds(),
            histogram.count(),
            &histogram.buckets(),
            None,
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ShardId;
    use std::time::Duration;

    #[test]
    fn figures_of_every_shard_are_rendered_with_their_labels() {
        let registry = MetricsRegistry::new(|api_key| (api_key == 0).then_some("Produce"));
        let shards = [(0, 4), (1, 6)].map(|(shard, core)| ShardMetrics::new(ShardId(shard), core));
        for shard in &shards {
            registry.register(shard.clone());
        }
        shards[0].connection_opened();
        shards[0].count_request(0);
        shards[0].count_request(18);
        shards[0].count_request(-1);
        shards[1].fetch_file_bytes.add(77);
        shards[1].busy_ns.add(1_500_000_000);
        shards[1].observe_lateness(2_000_000);
        shards[1].observe_lateness(1_000_000);
        shards[1].flush_duration.observe(Duration::from_micros(20));
        let text = registry.render();
        for line in [
            "# TYPE ringmain_connections_accepted_total counter",
            r#"ringmain_connections_accepted_total{shard="0",core="4"} 1"#,
            r#"ringmain_connections_accepted_total{shard="1",core="6"} 0"#,
            r#"ringmain_connections_open{shard="0",core="4"} 1.0"#,
            r#"ringmain_requests_total{shard="0",core="4",api="Produce"} 1"#,
            r#"ringmain_requests_total{shard="0",core="4",api="18"} 1"#,
            r#"ringmain_requests_total{shard="0",core="4",api="127"} 1"#,
            r#"ringmain_fetch_bytes_total{shard="1",core="6",source="file"} 77"#,
            r#"ringmain_executor_busy_seconds_total{shard="1",core="6"} 1.5"#,
            r#"ringmain_executor_lateness_seconds{shard="1",core="6"} 0.001"#,
            r#"ringmain_executor_lateness_max_seconds{shard="1",core="6"} 0.002"#,
            r#"ringmain_flush_duration_seconds_bucket{shard="1",core="6",le="1.6e-05"} 0"#,
            r#"ringmain_flush_duration_seconds_bucket{shard="1",core="6",le="3.2e-05"} 1"#,
            r#"ringmain_flush_duration_seconds_bucket{shard="1",core="6",le="+Inf"} 1"#,
            r#"ringmain_flush_duration_seconds_count{shard="1",core="6"} 1"#,
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "no line `{line}` in:\n{text}"
            );
        }
        for name in [
            "ringmain_process_resident_memory_bytes ",
            "ringmain_process_cpu_seconds_total ",
            "ringmain_process_open_files ",
            "ringmain_process_uptime_seconds ",
            "ringmain_build_info{version=",
        ] {
            assert!(
                text.lines().any(|l| l.starts_with(name)),
                "no `{name}` in:\n{text}"
            );
        }
    }
}
