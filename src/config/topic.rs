//! The settings of a topic in force: its own over the broker's defaults.

use std::collections::BTreeMap;

use super::layers::{BrokerSettings, Entries, Reader};
use super::table;
use super::value::Value;

/// The value of each topic setting where the topic has none of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicDefaults(BTreeMap<&'static str, Value>);

impl TopicDefaults {
    /// Follows the synonyms of each setting, `log.retention.ms` before `log.retention.hours` and
    /// so on, to the table's default.
    pub fn from_broker(settings: &BrokerSettings) -> Self {
        let defaults = table::topic_settings().filter_map(|setting| {
            let from_broker = table::topic_synonyms(setting.name)
                .iter()
                .find_map(|synonym| Some((synonym.factor, settings.value(synonym.name)?)));
            let value = match from_broker {
                Some((factor, value)) => converted(setting.name, factor, value),
                None => setting.default_value()?,
            };
            Some((setting.name, value))
        });
        Self(defaults.collect())
    }

    /// The value in force of a topic setting, given the topic's own entries. An own value that
    /// does not parse, which only another version can have stored, is passed over.
    pub fn effective(&self, name: &str, overrides: &Entries) -> Option<Value> {
        let own = overrides.get(name).and_then(|text| {
            let setting = table::topic_setting(name)?;
            setting.parse(text).ok()
        });
        own.or_else(|| self.0.get(name).cloned())
    }
}

impl Default for TopicDefaults {
    /// The table's defaults.
    fn default() -> Self {
        Self::from_broker(&BrokerSettings::default())
    }
}

/// A broker's value in the topic setting's unit. Any negative retention time means "for ever",
/// which topics write as -1.
fn converted(topic_setting: &str, factor: i64, value: Value) -> Value {
    let number = match value {
        Value::Long(number) if topic_setting == "retention.ms" => number,
        Value::Int(number) if factor != 1 => i64::from(number),
        value => return value,
    };
    Value::Long(number.saturating_mul(factor).max(-1))
}

/// Which clock dates the records of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// In which compression a topic stores its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// As the producer sent them.
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// What happens to old segments. Neither is possible (KIP-1114): everything is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

/// A topic's settings in force, typed. `None` in a limit is "no limit"; the documentation of
/// each field is its row in the table.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    pub compression_type: CompressionType,
    pub delete_retention_ms: u64,
    pub file_delete_delay_ms: u64,
    pub flush_messages: u64,
    pub flush_ms: u64,
    pub index_interval_bytes: u32,
    pub max_compaction_lag_ms: u64,
    pub max_message_bytes: u32,
    pub message_timestamp_after_max_ms: u64,
    pub message_timestamp_before_max_ms: u64,
    pub message_timestamp_type: TimestampType,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: u64,
    pub min_insync_replicas: u32,
    pub preallocate: bool,
    pub retention_bytes: Option<u64>,
    pub retention_ms: Option<u64>,
    pub segment_bytes: u32,
    pub segment_index_bytes: u32,
    pub segment_jitter_ms: u64,
    pub segment_ms: u64,
    pub unclean_leader_election_enable: bool,
}

impl TopicConfig {
    /// What is in force for a topic with these entries of its own.
    pub fn from_overrides(defaults: &TopicDefaults, overrides: &Entries) -> Self {
        let reader = Reader(|name: &str| defaults.effective(name, overrides));
        let policies = reader.list("cleanup.policy");
        let has_policy = |wanted: &str| policies.iter().any(|policy| policy == wanted);
        Self {
            cleanup_policy: CleanupPolicy {
                delete: has_policy("delete"),
                compact: has_policy("compact"),
            },
            compression_type: match reader.text("compression.type").as_deref() {
                Some("uncompressed") => CompressionType::Uncompressed,
                Some("gzip") => CompressionType::Gzip,
                Some("snappy") => CompressionType::Snappy,
                Some("lz4") => CompressionType::Lz4,
                Some("zstd") => CompressionType::Zstd,
                _ => CompressionType::Producer,
            },
            delete_retention_ms: reader.unsigned("delete.retention.ms"),
            file_delete_delay_ms: reader.unsigned("file.delete.delay.ms"),
            flush_messages: reader.unsigned("flush.messages"),
            // The broker's setting behind it has no lower limit in Kafka.
            flush_ms: reader.limit("flush.ms").unwrap_or(0),
            index_interval_bytes: reader.unsigned("index.interval.bytes"),
            max_compaction_lag_ms: reader.unsigned("max.compaction.lag.ms"),
            max_message_bytes: reader.unsigned("max.message.bytes"),
            message_timestamp_after_max_ms: reader.unsigned("message.timestamp.after.max.ms"),
            message_timestamp_before_max_ms: reader.unsigned("message.timestamp.before.max.ms"),
            message_timestamp_type: match reader.text("message.timestamp.type").as_deref() {
                Some("LogAppendTime") => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: reader.double("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms: reader.unsigned("min.compaction.lag.ms"),
            min_insync_replicas: reader.unsigned("min.insync.replicas"),
            preallocate: reader.boolean("preallocate"),
            retention_bytes: reader.limit("retention.bytes"),
            retention_ms: reader.limit("retention.ms"),
            segment_bytes: reader.unsigned("segment.bytes"),
            segment_index_bytes: reader.unsigned("segment.index.bytes"),
            // Likewise without a lower limit on the broker.
            segment_jitter_ms: reader.limit("segment.jitter.ms").unwrap_or(0),
            segment_ms: reader.limit("segment.ms").unwrap_or(1).max(1),
            unclean_leader_election_enable: reader.boolean("unclean.leader.election.enable"),
        }
    }
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self::from_overrides(&TopicDefaults::default(), &Entries::new())
    }
}
