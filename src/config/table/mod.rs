//! The one table of settings: what is in here is parsed, described, validated and documented
//! from here, and nowhere else. Names, types, defaults and limits are those of Kafka 4.1 (its
//! `KafkaConfig` and `LogConfig` definitions); settings of our own start with `ringmain.`.
//!
//! Deliberately absent: Kafka's internal settings, and those that Kafka 4 removed
//! ([`removed`] explains them to whoever still has one).

mod broker_cluster;
mod broker_coordinators;
mod broker_log;
mod broker_network;
mod broker_security;
mod broker_tiered;
mod own;
mod reasons;
mod removed;
mod topic;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::validator::Validator;
use super::value::{InvalidValue, Kind, Value};

pub use removed::removed;

/// How much an operator has to care; Kafka's three levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Importance {
    High,
    Medium,
    Low,
}

/// Whether a broker setting may be changed while the broker runs (KIP-226).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// Takes effect at the next start only.
    ReadOnly,
    /// May be set for one broker, not as the cluster's default.
    PerBroker,
    /// May be set for one broker and as the cluster's default.
    ClusterWide,
}

/// What Ringmain does with a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It does what its documentation says.
    Effective,
    /// It is accepted and changes nothing, for this reason.
    Inert(&'static str),
    /// Another value than the default is refused, for this reason: taking it silently would
    /// promise something that is not there.
    Refused(&'static str),
}

/// One row: everything there is to know about a setting.
#[derive(Debug)]
pub struct Setting {
    pub name: &'static str,
    pub kind: Kind,
    /// The default as Kafka prints it; `None` is Kafka's null.
    pub default: Option<&'static str>,
    pub validator: Validator,
    pub importance: Importance,
    pub update: UpdateMode,
    pub support: Support,
    summary: &'static str,
}

impl Setting {
    /// The value that `text` means, checked against type and limits.
    pub fn parse(&self, text: &str) -> Result<Value, InvalidValue> {
        let value = Value::parse(self.name, self.kind, text)?;
        self.validator.check(self.name, &value)?;
        Ok(value)
    }

    /// The default, typed. The table's own test holds that every default parses.
    pub fn default_value(&self) -> Option<Value> {
        let text = self.default?;
        Some(self.parse(text).expect("the table's defaults are valid"))
    }

    /// What the setting is for, and where it has no effect, that and why.
    pub fn documentation(&self) -> String {
        match self.support {
            Support::Effective => self.summary.to_owned(),
            Support::Inert(reason) => {
                format!("{} Accepted without effect: {reason}.", self.summary)
            }
            Support::Refused(reason) => {
                format!("{} Only the default is accepted: {reason}.", self.summary)
            }
        }
    }
}

/// Makes rows out of `[name, kind, default, validator, importance, update, support, summary]`,
/// so that a row stays two lines that read well.
macro_rules! settings {
    ($([
        $name:literal, $kind:ident, $default:tt, $validator:expr, $importance:ident,
        $update:ident, $support:expr, $summary:literal
    ],)*) => {{
        #[allow(unused_imports)]
        use crate::config::{
            table::{Importance, Support::*, UpdateMode},
            validator::Validator::*,
            value::Kind,
        };
        &[$(Setting {
            name: $name,
            kind: Kind::$kind,
            default: $crate::config::table::default_text!($default),
            validator: $validator,
            importance: Importance::$importance,
            update: UpdateMode::$update,
            support: $support,
            summary: $summary,
        }),*]
    }};
}

macro_rules! default_text {
    (null) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

pub(crate) use {default_text, settings};

/// Every topic setting, by name.
pub fn topic_settings() -> impl Iterator<Item = &'static Setting> {
    TOPIC_INDEX.values().copied()
}

/// Every broker setting, by name.
pub fn broker_settings() -> impl Iterator<Item = &'static Setting> {
    BROKER_INDEX.values().copied()
}

/// The topic setting of that name.
pub fn topic_setting(name: &str) -> Option<&'static Setting> {
    TOPIC_INDEX.get(name).copied()
}

/// The broker setting of that name.
pub fn broker_setting(name: &str) -> Option<&'static Setting> {
    BROKER_INDEX.get(name).copied()
}

/// A broker setting that gives the default of a topic setting, with the factor from its unit to
/// the topic setting's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synonym {
    pub name: &'static str,
    pub factor: i64,
}

const MINUTE_MS: i64 = 60 * 1000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// The broker settings behind a topic setting, the one that goes first in front (Kafka's
/// `ServerTopicConfigSynonyms`). Empty for settings that exist on topics only.
pub fn topic_synonyms(topic_setting: &str) -> &'static [Synonym] {
    macro_rules! synonyms {
        ($($name:literal $(* $factor:expr)?),+) => {
            const { &[$(Synonym { name: $name, factor: 1 $(* $factor)? }),+] }
        };
    }
    match topic_setting {
        "cleanup.policy" => synonyms!("log.cleanup.policy"),
        "compression.gzip.level" => synonyms!("compression.gzip.level"),
        "compression.lz4.level" => synonyms!("compression.lz4.level"),
        "compression.type" => synonyms!("compression.type"),
        "compression.zstd.level" => synonyms!("compression.zstd.level"),
        "delete.retention.ms" => synonyms!("log.cleaner.delete.retention.ms"),
        "file.delete.delay.ms" => synonyms!("log.segment.delete.delay.ms"),
        "flush.messages" => synonyms!("log.flush.interval.messages"),
        "flush.ms" => synonyms!("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        "index.interval.bytes" => synonyms!("log.index.interval.bytes"),
        "local.retention.bytes" => synonyms!("log.local.retention.bytes"),
        "local.retention.ms" => synonyms!("log.local.retention.ms"),
        "max.compaction.lag.ms" => synonyms!("log.cleaner.max.compaction.lag.ms"),
        "max.message.bytes" => synonyms!("message.max.bytes"),
        "message.timestamp.after.max.ms" => synonyms!("log.message.timestamp.after.max.ms"),
        "message.timestamp.before.max.ms" => synonyms!("log.message.timestamp.before.max.ms"),
        "message.timestamp.type" => synonyms!("log.message.timestamp.type"),
        "min.cleanable.dirty.ratio" => synonyms!("log.cleaner.min.cleanable.ratio"),
        "min.compaction.lag.ms" => synonyms!("log.cleaner.min.compaction.lag.ms"),
        "min.insync.replicas" => synonyms!("min.insync.replicas"),
        "preallocate" => synonyms!("log.preallocate"),
        "retention.bytes" => synonyms!("log.retention.bytes"),
        "retention.ms" => synonyms!(
            "log.retention.ms",
            "log.retention.minutes" * MINUTE_MS,
            "log.retention.hours" * HOUR_MS
        ),
        "segment.bytes" => synonyms!("log.segment.bytes"),
        "segment.index.bytes" => synonyms!("log.index.size.max.bytes"),
        "segment.jitter.ms" => {
            synonyms!("log.roll.jitter.ms", "log.roll.jitter.hours" * HOUR_MS)
        }
        "segment.ms" => synonyms!("log.roll.ms", "log.roll.hours" * HOUR_MS),
        "unclean.leader.election.enable" => synonyms!("unclean.leader.election.enable"),
        _ => &[],
    }
}

/// A broker setting and those that stand in for it when it is not set, itself included; the one
/// that goes first in front (Kafka's `brokerConfigSynonyms`).
pub fn broker_synonyms(name: &'static str) -> Vec<&'static str> {
    let family: &[&'static str] = match name {
        "log.roll.ms" | "log.roll.hours" => &["log.roll.ms", "log.roll.hours"],
        "log.roll.jitter.ms" | "log.roll.jitter.hours" => {
            &["log.roll.jitter.ms", "log.roll.jitter.hours"]
        }
        "log.flush.interval.ms" => &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        "log.retention.ms" | "log.retention.minutes" | "log.retention.hours" => &[
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
        ],
        _ => return vec![name],
    };
    family.to_vec()
}

/// The known broker setting that `unknown` was probably meant to be: for a topic setting the
/// broker's name of it, else the nearest by letters, if any is near enough.
pub fn nearest_broker_setting(unknown: &str) -> Option<&'static str> {
    if let Some(synonym) = topic_synonyms(unknown).first() {
        return Some(synonym.name);
    }
    nearest(unknown, broker_settings())
}

/// The known topic setting that `unknown` was probably meant to be.
pub fn nearest_topic_setting(unknown: &str) -> Option<&'static str> {
    let by_broker_name = topic_settings().find(|setting| {
        topic_synonyms(setting.name)
            .iter()
            .any(|synonym| synonym.name == unknown)
    });
    match by_broker_name {
        Some(setting) => Some(setting.name),
        None => nearest(unknown, topic_settings()),
    }
}

/// Near enough is a third of the letters: typing errors, not other words.
fn nearest(
    unknown: &str,
    settings: impl Iterator<Item = &'static Setting>,
) -> Option<&'static str> {
    let distance_max = (unknown.chars().count() / 3).max(2);
    settings
        .map(|setting| {
            (
                strsim::damerau_levenshtein(unknown, setting.name),
                setting.name,
            )
        })
        .filter(|(distance, _)| *distance <= distance_max)
        .min()
        .map(|(_, name)| name)
}

type Index = BTreeMap<&'static str, &'static Setting>;

static TOPIC_INDEX: LazyLock<Index> = LazyLock::new(|| index(&[topic::ROWS]));

static BROKER_INDEX: LazyLock<Index> = LazyLock::new(|| index(&BROKER_ROWS));

const BROKER_ROWS: [&[Setting]; 7] = [
    own::ROWS,
    broker_cluster::ROWS,
    broker_log::ROWS,
    broker_network::ROWS,
    broker_coordinators::ROWS,
    broker_security::ROWS,
    broker_tiered::ROWS,
];

fn index(tables: &[&'static [Setting]]) -> Index {
    tables
        .iter()
        .flat_map(|rows| rows.iter())
        .map(|setting| (setting.name, setting))
        .collect()
}
