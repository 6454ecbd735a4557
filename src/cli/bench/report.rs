//! What a run found, as a table for people or as JSON for programs.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::meter::Usage;
use super::units::show_bytes;

/// A table's rows and a JSON object with the same figures.
#[derive(Debug)]
pub struct Report {
    title: String,
    rows: Vec<(String, String)>,
    json: Map<String, Value>,
}

impl Report {
    /// `kind` is the command, `title` says in which circumstances the figures hold.
    pub fn new(kind: &str, title: String) -> Self {
        let mut json = Map::new();
        json.insert("kind".to_owned(), kind.into());
        json.insert("title".to_owned(), title.clone().into());
        Self {
            title,
            rows: Vec::new(),
            json,
        }
    }

    /// A figure for both forms.
    pub fn add(&mut self, label: &str, shown: String, key: &str, value: impl Into<Value>) {
        self.rows.push((label.to_owned(), shown));
        self.json.insert(key.to_owned(), value.into());
    }

    /// A figure for the JSON form only.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.json.insert(key.to_owned(), value.into());
    }

    /// Records, bytes and what they cost. Rates are in units of 1,000: MB are 10^6 bytes.
    pub fn add_throughput(&mut self, records: u64, bytes: u64, usage: &Usage) {
        let seconds = usage.seconds.max(1e-9);
        let gigabytes = bytes as f64 / 1e9;
        let per_gigabyte = |cpu: f64| {
            if gigabytes > 0.0 {
                cpu / gigabytes
            } else {
                0.0
            }
        };
        let per_million = |cpu: f64| cpu * 1e6 / records.max(1) as f64;
        self.set("records", records);
        self.set("bytes", bytes);
        self.add("time", format!("{seconds:.2} s"), "seconds", seconds);
        let rate = records as f64 / seconds;
        let label = "records per second";
        self.add(label, format!("{rate:.0}"), "records_per_second", rate);
        let rate = bytes as f64 / 1e6 / seconds;
        self.add("MB/s", format!("{rate:.1}"), "megabytes_per_second", rate);
        let cost = per_gigabyte(usage.client_cpu_seconds);
        let label = "client CPU-s/GB";
        self.add(
            label,
            format!("{cost:.3}"),
            "client_cpu_seconds_per_gigabyte",
            cost,
        );
        if let Some(broker) = &usage.broker {
            let cost = per_gigabyte(broker.cpu_seconds);
            let label = "broker CPU-s/GB";
            self.add(
                label,
                format!("{cost:.3}"),
                "broker_cpu_seconds_per_gigabyte",
                cost,
            );
            let cost = per_million(broker.cpu_seconds);
            let key = "broker_cpu_seconds_per_million_records";
            self.add(
                "broker CPU-s per million records",
                format!("{cost:.3}"),
                key,
                cost,
            );
            let memory = broker.resident_bytes;
            self.add(
                "broker memory",
                show_bytes(memory),
                "broker_resident_bytes",
                memory,
            );
        } else {
            let shown = "not found on this machine; give --broker-pid".to_owned();
            self.add(
                "broker CPU",
                shown,
                "broker_cpu_seconds_per_gigabyte",
                Value::Null,
            );
        }
        let share = usage.foreign_cpu_share;
        self.add(
            "CPU of others",
            format!("{:.1} %", share * 100.0),
            "foreign_cpu_share",
            share,
        );
        let share = usage.steal_share;
        self.add(
            "stolen CPU",
            format!("{:.1} %", share * 100.0),
            "steal_share",
            share,
        );
        self.set("usage", serde_json::to_value(usage).unwrap_or(Value::Null));
    }

    /// Percentiles of a histogram of nanoseconds, in milliseconds.
    pub fn add_latency(&mut self, label: &str, key: &str, histogram: &Histogram<u64>) {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e6;
        let points = [
            ("p50", at(0.5)),
            ("p99", at(0.99)),
            ("p99.9", at(0.999)),
            ("max", histogram.max() as f64 / 1e6),
        ];
        let names: Vec<&str> = points.iter().map(|(name, _)| *name).collect();
        let values: Vec<String> = points.iter().map(|(_, ms)| format!("{ms:.3}")).collect();
        let value = json!({
            "p50": points[0].1,
            "p99": points[1].1,
            "p99_9": points[2].1,
            "p99_99": at(0.9999),
            "max": points[3].1,
            "mean": histogram.mean() / 1e6,
            "count": histogram.len(),
        });
        let label = format!("{label}, ms: {}", names.join(" / "));
        self.add(&label, values.join(" / "), key, value);
    }

    pub fn print(&self, json: bool) -> Result<(), String> {
        let text = if json {
            serde_json::to_string(&self.json).map_err(|error| error.to_string())?
        } else {
            let mut table = Table::new();
            table
                .load_style(presets::UTF8_BORDERS_ONLY)
                .set_content_arrangement(ContentArrangement::Disabled);
            for (label, shown) in &self.rows {
                table.add_row([label, shown]);
            }
            format!("{}\n{table}", self.title)
        };
        // A reader such as `head` may be gone: that is not our failure.
        match writeln!(std::io::stdout(), "{text}") {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(format!("cannot write the report: {error}"))
            }
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    pub(super) fn json(&self) -> &Map<String, Value> {
        &self.json
    }
}

/// Nanoseconds up to ten minutes with three digits: beyond it, ten minutes.
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 600_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are constants that hdrhistogram takes"))
}
