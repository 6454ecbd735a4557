//! What DescribeConfigs answers: every known setting with its value, its source and where it
//! could come from.

use super::Settings;
use super::table::{self, Setting};
use super::topic::inherited;

/// Where a value comes from; the codes are the protocol's (KIP-226).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
}

/// The broker's settings by where they were set.
#[derive(Debug, Clone, Copy)]
pub struct BrokerLayers<'a> {
    /// Set for this broker while it runs.
    pub dynamic: &'a Settings,
    /// Set for all brokers while they run.
    pub dynamic_default: &'a Settings,
    /// From the configuration file and the command line.
    pub fixed: &'a Settings,
}

impl BrokerLayers<'_> {
    /// The layers in order of precedence.
    fn layers(&self) -> [(Source, &Settings); 3] {
        [
            (Source::DynamicBroker, self.dynamic),
            (Source::DynamicDefaultBroker, self.dynamic_default),
            (Source::StaticBroker, self.fixed),
        ]
    }

    /// All of them in one, the stronger over the weaker.
    pub fn merged(&self) -> Settings {
        let mut merged = self.fixed.clone();
        merged.extend(self.dynamic_default.clone());
        merged.extend(self.dynamic.clone());
        merged
    }
}

/// One setting as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    pub name: &'static str,
    pub value: Option<String>,
    pub source: Source,
    pub is_read_only: bool,
    pub kind_code: i8,
    pub documentation: String,
    /// Where the value could come from, the strongest first: the first is in force.
    pub synonyms: Vec<DescribedSynonym>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedSynonym {
    pub name: &'static str,
    pub value: Option<String>,
    pub source: Source,
}

/// Describes a topic's settings. `wanted` limits which; `None` means all.
pub fn describe_topic(
    own: &Settings,
    broker: &BrokerLayers<'_>,
    wanted: Option<&[String]>,
) -> Vec<Described> {
    let describe = |setting: &'static Setting| {
        let mut synonyms = Vec::new();
        if let Some(value) = own.get(setting.name) {
            synonyms.push(DescribedSynonym {
                name: setting.name,
                value: Some(value.clone()),
                source: Source::Topic,
            });
        }
        for (source, layer) in broker.layers() {
            if let Some((name, value)) = inherited(setting, layer) {
                synonyms.push(DescribedSynonym {
                    name,
                    value: Some(value),
                    source,
                });
            }
        }
        let default_name = setting
            .synonyms
            .first()
            .map_or(setting.name, |synonym| synonym.name);
        described(setting, synonyms, default_name, false)
    };
    select(table::TOPIC, wanted).map(describe).collect()
}

/// Describes the broker's settings.
pub fn describe_broker(broker: &BrokerLayers<'_>, wanted: Option<&[String]>) -> Vec<Described> {
    let describe = |setting: &'static Setting| {
        let mut synonyms = Vec::new();
        for (source, layer) in broker.layers() {
            if let Some(value) = layer.get(setting.name) {
                let value = Some(value.clone());
                synonyms.push(DescribedSynonym {
                    name: setting.name,
                    value,
                    source,
                });
            }
        }
        described(setting, synonyms, setting.name, !setting.is_dynamic)
    };
    select(table::BROKER, wanted).map(describe).collect()
}

fn select(
    table: &'static [Setting],
    wanted: Option<&[String]>,
) -> impl Iterator<Item = &'static Setting> {
    table.iter().filter(move |setting| {
        wanted.is_none_or(|wanted| wanted.iter().any(|name| name == setting.name))
    })
}

fn described(
    setting: &'static Setting,
    mut synonyms: Vec<DescribedSynonym>,
    default_name: &'static str,
    is_read_only: bool,
) -> Described {
    if let Some(default) = setting.default {
        let value = Some(default.to_owned());
        synonyms.push(DescribedSynonym {
            name: default_name,
            value,
            source: Source::Default,
        });
    }
    let (value, source) = match synonyms.first() {
        Some(first) => (first.value.clone(), first.source),
        None => (None, Source::Default),
    };
    let documentation = match setting.support {
        table::Support::Effective => setting.documentation.to_owned(),
        table::Support::Inert(why) | table::Support::Refused(why) => {
            format!("{} Without effect here: {why}.", setting.documentation)
        }
    };
    Described {
        name: setting.name,
        value,
        source,
        is_read_only,
        kind_code: setting.kind.code(),
        documentation,
        synonyms,
    }
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
    fn every_setting_is_described_with_its_source_and_all_synonyms() {
        let own = settings(&[("retention.ms", "604800000")]);
        let fixed = settings(&[("log.retention.hours", "1")]);
        let empty = Settings::new();
        let broker = BrokerLayers {
            dynamic: &empty,
            dynamic_default: &empty,
            fixed: &fixed,
        };
        let all = describe_topic(&own, &broker, None);
        assert_eq!(all.len(), table::TOPIC.len());
        let retention = all
            .iter()
            .find(|described| described.name == "retention.ms")
            .unwrap();
        // A value that equals the default is still the topic's own.
        assert_eq!(retention.source, Source::Topic);
        let chain: Vec<_> = retention
            .synonyms
            .iter()
            .map(|s| (s.name, s.value.as_deref(), s.source))
            .collect();
        assert_eq!(
            chain,
            [
                ("retention.ms", Some("604800000"), Source::Topic),
                ("log.retention.hours", Some("3600000"), Source::StaticBroker),
                ("log.retention.ms", Some("604800000"), Source::Default),
            ]
        );
    }

    #[test]
    fn only_what_was_asked_for_is_described() {
        let empty = Settings::new();
        let broker = BrokerLayers {
            dynamic: &empty,
            dynamic_default: &empty,
            fixed: &empty,
        };
        let some = describe_topic(&empty, &broker, Some(&["cleanup.policy".to_owned()]));
        assert_eq!(some.len(), 1);
        assert_eq!(some[0].value.as_deref(), Some("delete"));
        assert_eq!(describe_topic(&empty, &broker, Some(&[])).len(), 0);
    }
}
