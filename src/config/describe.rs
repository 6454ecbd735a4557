//! DescribeConfigs: every setting of a topic or broker with its value, where that comes from,
//! and what stands behind it (KIP-133, 226, 569). Pure; the handler only copies it to the wire.

use super::layers::{BrokerSettings, Entries, Source};
use super::table::{self, Setting, UpdateMode};
use super::topic::TopicDefaults;
use super::value::{Kind, Value};

#[cfg(test)]
mod tests;

/// One setting in a DescribeConfigs response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedSetting {
    pub name: &'static str,
    /// As Kafka prints it; `None` where the setting is null, and for every password.
    pub value: Option<String>,
    pub source: Source,
    pub is_sensitive: bool,
    pub read_only: bool,
    /// The values that lie under each other, the one in force first.
    pub synonyms: Vec<DescribedSynonym>,
    pub kind: Kind,
    pub documentation: String,
}

/// One value in the chain behind a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedSynonym {
    pub name: &'static str,
    pub value: Option<String>,
    pub source: Source,
}

/// A topic's settings, by name. `names` limits them; `None` and an empty list mean all, and a
/// name that does not exist is left out, as in Kafka.
pub fn describe_topic(
    broker: &BrokerSettings,
    overrides: &Entries,
    names: Option<&[String]>,
) -> Vec<DescribedSetting> {
    let defaults = TopicDefaults::from_broker(broker);
    table::topic_settings()
        .filter(|setting| is_wanted(setting.name, names))
        .map(|setting| {
            let value = defaults.effective(setting.name, overrides);
            let mut synonyms = match table::topic_synonyms(setting.name).first() {
                Some(synonym) => broker_chain(broker, synonym.name),
                None => Vec::new(),
            };
            if overrides.contains_key(setting.name) {
                let own = DescribedSynonym {
                    name: setting.name,
                    value: printed(setting, value.as_ref()),
                    source: Source::DynamicTopic,
                };
                synonyms.insert(0, own);
            }
            described(setting, value.as_ref(), synonyms, false)
        })
        .collect()
}

/// This broker's settings, by name; `names` as in [`describe_topic`].
pub fn describe_broker(broker: &BrokerSettings, names: Option<&[String]>) -> Vec<DescribedSetting> {
    table::broker_settings()
        .filter(|setting| is_wanted(setting.name, names))
        .map(|setting| {
            let value = broker.value(setting.name);
            let synonyms = broker_chain(broker, setting.name);
            let read_only = setting.update == UpdateMode::ReadOnly;
            described(setting, value.as_ref(), synonyms, read_only)
        })
        .collect()
}

/// What is set for all brokers (the broker resource with the empty name): the dynamic defaults
/// only.
pub fn describe_cluster_default(
    broker: &BrokerSettings,
    names: Option<&[String]>,
) -> Vec<DescribedSetting> {
    table::broker_settings()
        .filter(|setting| is_wanted(setting.name, names))
        .filter_map(|setting| {
            let text = broker.dynamic_default_entries.get(setting.name)?;
            let value = setting.parse(text).ok();
            let mut synonyms = broker_chain(broker, setting.name);
            synonyms.retain(|synonym| synonym.source == Source::DynamicDefaultBroker);
            let read_only = setting.update == UpdateMode::ReadOnly;
            Some(described(setting, value.as_ref(), synonyms, read_only))
        })
        .collect()
}

fn is_wanted(name: &str, names: Option<&[String]>) -> bool {
    match names {
        None | Some([]) => true,
        Some(names) => names.iter().any(|wanted| wanted == name),
    }
}

fn described(
    setting: &'static Setting,
    value: Option<&Value>,
    synonyms: Vec<DescribedSynonym>,
    read_only: bool,
) -> DescribedSetting {
    DescribedSetting {
        name: setting.name,
        value: printed(setting, value),
        source: synonyms
            .first()
            .map_or(Source::Default, |first| first.source),
        is_sensitive: is_sensitive(setting),
        read_only,
        synonyms,
        kind: setting.kind,
        documentation: setting.documentation(),
    }
}

fn printed(setting: &Setting, value: Option<&Value>) -> Option<String> {
    if is_sensitive(setting) {
        return None;
    }
    value.map(ToString::to_string)
}

fn is_sensitive(setting: &Setting) -> bool {
    setting.kind == Kind::Password
}

/// The values of a broker setting and its stand-ins, layer by layer from above, the table's
/// defaults last; texts as they were given.
///
/// Kafka drops entries until one bears the asked name. Where that would hide a value that the
/// operator set (`log.retention.hours` behind `retention.ms`), Ringmain keeps it, so that the
/// source reported is the true one.
fn broker_chain(broker: &BrokerSettings, name: &'static str) -> Vec<DescribedSynonym> {
    let family: Vec<&'static Setting> = table::broker_synonyms(name)
        .into_iter()
        .filter_map(table::broker_setting)
        .collect();
    let mut chain = Vec::new();
    for (source, entries) in broker.layers() {
        for setting in &family {
            if let Some(text) = entries.get(setting.name) {
                chain.push(DescribedSynonym {
                    name: setting.name,
                    value: (!is_sensitive(setting)).then(|| text.clone()),
                    source,
                });
            }
        }
    }
    for setting in family {
        if let Some(text) = setting.default {
            chain.push(DescribedSynonym {
                name: setting.name,
                value: (!is_sensitive(setting)).then(|| text.to_owned()),
                source: Source::Default,
            });
        }
    }
    let is_hidden =
        |synonym: &DescribedSynonym| synonym.name != name && synonym.source == Source::Default;
    let hidden = chain
        .iter()
        .take_while(|synonym| is_hidden(synonym))
        .count();
    chain.split_off(hidden)
}
