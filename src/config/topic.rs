//! Settings of a topic in force: its own, over the broker's, over the defaults.

use super::table::{self, Setting};
use super::{Settings, value};

/// What the broker needs of a topic's settings, typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    pub is_compacted: bool,
    pub flush_messages: u64,
    pub flush_ms: u64,
    pub index_interval_bytes: u32,
    pub max_message_bytes: usize,
    pub log_append_time: bool,
    pub timestamp_before_ms_max: i64,
    pub timestamp_after_ms_max: i64,
    pub min_insync_replicas: usize,
    pub segment_bytes: u64,
    pub segment_ms: i64,
}

impl TopicConfig {
    /// `own` are the topic's settings, `broker` what the broker's add up to ([`inherited`]).
    /// Settings are checked when they are set; one that does not parse all the same counts as its
    /// default.
    pub fn new(own: &Settings, broker: &Settings) -> Self {
        let text = |name: &str| effective(own, broker, name);
        let number = |name: &str| -> i64 {
            text(name)
                .trim()
                .parse()
                .ok()
                .or_else(|| default_of(name).parse().ok())
                .unwrap_or(0)
        };
        let count = |name: &str| u64::try_from(number(name)).unwrap_or(0);
        Self {
            is_compacted: value::list(&text("cleanup.policy")).any(|policy| policy == "compact"),
            flush_messages: count("flush.messages").max(1),
            flush_ms: count("flush.ms"),
            index_interval_bytes: u32::try_from(number("index.interval.bytes")).unwrap_or(4096),
            max_message_bytes: usize::try_from(number("max.message.bytes")).unwrap_or(0),
            log_append_time: text("message.timestamp.type") == "LogAppendTime",
            timestamp_before_ms_max: number("message.timestamp.before.max.ms"),
            timestamp_after_ms_max: number("message.timestamp.after.max.ms"),
            min_insync_replicas: usize::try_from(number("min.insync.replicas")).unwrap_or(1),
            segment_bytes: count("segment.bytes"),
            segment_ms: number("segment.ms"),
        }
    }
}

fn default_of(name: &str) -> &'static str {
    table::find_topic(name)
        .and_then(|setting| setting.default)
        .unwrap_or("")
}

fn effective(own: &Settings, broker: &Settings, name: &str) -> String {
    let setting = table::find_topic(name);
    own.get(name)
        .cloned()
        .or_else(|| {
            setting
                .and_then(|setting| inherited(setting, broker))
                .map(|found| found.1)
        })
        .unwrap_or_else(|| default_of(name).to_owned())
}

/// What the broker's settings say for a topic's setting: the synonym, and the value in the topic's
/// unit.
pub fn inherited(setting: &Setting, broker: &Settings) -> Option<(&'static str, String)> {
    setting.synonyms.iter().find_map(|synonym| {
        let text = broker.get(synonym.name)?;
        let converted = match synonym.unit {
            1 => text.clone(),
            unit => match text.trim().parse::<i64>().ok()? {
                unlimited @ ..0 => unlimited.to_string(),
                number => number.saturating_mul(unit).to_string(),
            },
        };
        Some((synonym.name, converted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn a_topics_own_setting_wins_over_the_brokers_and_that_over_the_default() {
        let default = TopicConfig::new(&Settings::new(), &Settings::new());
        assert_eq!(default.max_message_bytes, 1_048_588);
        assert_eq!(default.flush_messages, 1);
        assert!(!default.is_compacted);
        let broker = settings(&[("message.max.bytes", "500"), ("log.roll.hours", "2")]);
        let inherited = TopicConfig::new(&Settings::new(), &broker);
        assert_eq!(inherited.max_message_bytes, 500);
        assert_eq!(inherited.segment_ms, 7_200_000);
        let own = settings(&[
            ("max.message.bytes", "9"),
            ("cleanup.policy", "compact,delete"),
        ]);
        let config = TopicConfig::new(&own, &broker);
        assert_eq!(config.max_message_bytes, 9);
        assert!(config.is_compacted);
    }

    #[test]
    fn the_most_precise_spelling_of_a_broker_setting_wins() {
        let broker = settings(&[("log.roll.ms", "7"), ("log.roll.hours", "2")]);
        assert_eq!(TopicConfig::new(&Settings::new(), &broker).segment_ms, 7);
    }
}
