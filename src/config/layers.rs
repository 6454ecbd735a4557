//! Where a setting's value comes from: the layers that lie over each other.
//!
//! ```text
//!   topic's own             DYNAMIC_TOPIC_CONFIG
//!   set for this broker     DYNAMIC_BROKER_CONFIG            (KIP-226)
//!   set for all brokers     DYNAMIC_DEFAULT_BROKER_CONFIG
//!   file and command line   STATIC_BROKER_CONFIG
//!   the table               DEFAULT_CONFIG
//! ```
//! The first layer from above that has a value gives it.

use std::collections::BTreeMap;

use super::table::{self, Setting};
use super::value::Value;

/// Settings as they were given: name to text.
pub type Entries = BTreeMap<String, String>;

/// The layer that gave a value; the number is its code in a DescribeConfigs response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum Source {
    DynamicTopic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
}

impl Source {
    pub fn code(self) -> i8 {
        self as i8
    }
}

/// The three layers of explicit broker settings. Values in them were checked when they came in;
/// one that no longer parses, after an upgrade, is passed over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BrokerSettings {
    pub static_entries: Entries,
    pub dynamic_default_entries: Entries,
    pub dynamic_broker_entries: Entries,
}

impl BrokerSettings {
    /// The explicit layers, the one that goes first in front.
    pub fn layers(&self) -> [(Source, &Entries); 3] {
        [
            (Source::DynamicBroker, &self.dynamic_broker_entries),
            (Source::DynamicDefaultBroker, &self.dynamic_default_entries),
            (Source::StaticBroker, &self.static_entries),
        ]
    }

    /// The value in force of a broker setting; `None` is Kafka's null, and what an unknown name
    /// has.
    pub fn value(&self, name: &str) -> Option<Value> {
        let setting = table::broker_setting(name)?;
        self.explicit_value(setting)
            .or_else(|| setting.default_value())
    }

    /// Whether any layer sets it.
    pub fn is_explicit(&self, name: &str) -> bool {
        self.layers()
            .iter()
            .any(|(_, entries)| entries.contains_key(name))
    }

    fn explicit_value(&self, setting: &Setting) -> Option<Value> {
        self.layers()
            .iter()
            .filter_map(|(_, entries)| entries.get(setting.name))
            .find_map(|text| setting.parse(text).ok())
    }
}

/// Reads values whose types the table guarantees. A mismatch is a bug in the table or in the
/// reader, whatever the input, and stops the process.
pub(super) struct Reader<F>(pub F);

impl<F: Fn(&str) -> Option<Value>> Reader<F> {
    pub fn boolean(&self, name: &str) -> bool {
        match self.0(name) {
            Some(Value::Boolean(value)) => value,
            other => mismatch(name, "boolean", other),
        }
    }

    pub fn integer(&self, name: &str) -> i64 {
        match self.0(name) {
            Some(value) => match value.as_integer() {
                Some(number) => number,
                None => mismatch(name, "integer", Some(value)),
            },
            None => mismatch(name, "integer", None),
        }
    }

    pub fn double(&self, name: &str) -> f64 {
        match self.0(name) {
            Some(Value::Double(value)) => value,
            other => mismatch(name, "double", other),
        }
    }

    pub fn list(&self, name: &str) -> Vec<String> {
        match self.0(name) {
            Some(Value::List(items)) => items,
            None => Vec::new(),
            other => mismatch(name, "list", other),
        }
    }

    /// A text; `None` where the setting is null.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.0(name) {
            Some(Value::Text(text)) => Some(text),
            None => None,
            other => mismatch(name, "string", other),
        }
    }

    /// A number that the table keeps from being negative, as any unsigned type it fits.
    pub fn unsigned<T: TryFrom<i64>>(&self, name: &str) -> T {
        let number = self.integer(name);
        match T::try_from(number) {
            Ok(value) => value,
            Err(_) => mismatch(name, "number of this range", Some(Value::Long(number))),
        }
    }

    /// A number for which Kafka takes every negative value as "no limit".
    pub fn limit(&self, name: &str) -> Option<u64> {
        u64::try_from(self.integer(name)).ok()
    }
}

fn mismatch(name: &str, expected: &str, found: Option<Value>) -> ! {
    panic!("setting `{name}` is read as a {expected}, but the table holds {found:?}")
}
