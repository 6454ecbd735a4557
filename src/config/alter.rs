//! AlterConfigs and IncrementalAlterConfigs: what a resource's entries become, or why they do
//! not (KIP-133, 226, 339). Pure; nothing is stored here. The rules, error codes and texts are
//! those of Kafka's `ConfigAdminManager`, `ConfigurationControlManager` and
//! `ControllerConfigurationValidator`.

use std::collections::BTreeSet;

use super::broker::BrokerConfig;
use super::layers::{BrokerSettings, Entries};
use super::table::{self, Setting, Support, UpdateMode};
use super::topic::TopicDefaults;
use super::value::{InvalidValue, Kind, Value};

#[cfg(test)]
mod tests;

/// The longest value of one setting, in bytes; Kafka's own limit. Beyond it: INVALID_CONFIG.
const VALUE_BYTES_MAX: usize = i16::MAX as usize;

/// A change that is refused, with the text for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AlterError {
    /// Kafka's INVALID_CONFIG (40).
    #[error("{0}")]
    InvalidConfig(String),
    /// Kafka's INVALID_REQUEST (42).
    #[error("{0}")]
    InvalidRequest(String),
}

impl From<InvalidValue> for AlterError {
    fn from(error: InvalidValue) -> Self {
        Self::InvalidConfig(error.to_string())
    }
}

/// What an accepted change leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Altered {
    /// The resource's whole new entries. A value equal to the default is kept as well: it stays
    /// when the default changes.
    pub entries: Entries,
    /// Settings that were accepted without effect, each with its reason.
    pub warnings: Vec<String>,
}

/// One entry of an IncrementalAlterConfigs resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    /// As on the wire: 0 set, 1 delete, 2 append, 3 subtract.
    pub operation: i8,
    pub value: Option<String>,
}

/// Which brokers a change is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerScope {
    /// The resource with the empty name: all brokers.
    ClusterDefault,
    /// The resource named after this broker.
    ThisBroker,
}

impl BrokerScope {
    /// The scope that a broker resource's name means, given this broker's own number.
    pub fn of_resource(name: &str, node_id: i32) -> Result<Self, AlterError> {
        if name.is_empty() {
            return Ok(Self::ClusterDefault);
        }
        match name.parse::<i32>() {
            Ok(id) if id == node_id => Ok(Self::ThisBroker),
            Ok(_) => Err(AlterError::InvalidRequest(format!(
                "Unexpected broker id, expected {node_id}, but received {name}"
            ))),
            Err(_) => Err(AlterError::InvalidRequest(format!(
                "Node id must be an integer, but it is: {name}"
            ))),
        }
    }
}

/// The entries of a topic that is being created with these settings.
pub fn create_topic(
    defaults: &TopicDefaults,
    given: &[(String, Option<String>)],
) -> Result<Altered, AlterError> {
    let nulls: Vec<&str> = given
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    if !nulls.is_empty() {
        return Err(AlterError::InvalidConfig(format!(
            "Null value not supported for topic configs: {}",
            nulls.join(",")
        )));
    }
    accepted_topic(defaults, present(given))
}

/// AlterConfigs on a topic: the given entries replace all that it has.
pub fn replace_topic(
    defaults: &TopicDefaults,
    given: &[(String, Option<String>)],
) -> Result<Altered, AlterError> {
    check_replacement(given)?;
    accepted_topic(defaults, present(given))
}

/// IncrementalAlterConfigs on a topic that has the `current` entries.
pub fn alter_topic(
    defaults: &TopicDefaults,
    current: &Entries,
    changes: &[Change],
) -> Result<Altered, AlterError> {
    let operations = checked_operations(changes)?;
    let mut entries = current.clone();
    for (name, operation) in operations {
        let (verb, operand) = match operation {
            Operation::Set(value) => {
                entries.insert(name.to_owned(), value.to_owned());
                continue;
            }
            Operation::Delete => {
                entries.remove(name);
                continue;
            }
            Operation::Append(operand) => ("APPEND", operand),
            Operation::Subtract(operand) => ("SUBTRACT", operand),
        };
        let Some(setting) = list_setting(table::topic_setting(name)) else {
            return Err(AlterError::InvalidConfig(format!(
                "Can't {verb} to key {name} because its type is not LIST."
            )));
        };
        let text = edited_list(setting, &entries, operation, operand);
        entries.insert(name.to_owned(), text);
    }
    accepted_topic(defaults, entries)
}

/// AlterConfigs on a broker resource: the given entries replace all that it has.
pub fn replace_broker(
    broker: &BrokerConfig,
    scope: BrokerScope,
    given: &[(String, Option<String>)],
) -> Result<Altered, AlterError> {
    check_replacement(given)?;
    accepted_broker(broker, scope, present(given))
}

/// IncrementalAlterConfigs on a broker resource.
pub fn alter_broker(
    broker: &BrokerConfig,
    scope: BrokerScope,
    changes: &[Change],
) -> Result<Altered, AlterError> {
    let operations = checked_operations(changes)?;
    let mut entries = entries_of(&broker.settings, scope).clone();
    for (name, operation) in operations {
        let (verb, operand) = match operation {
            Operation::Set(value) => {
                entries.insert(name.to_owned(), value.to_owned());
                continue;
            }
            Operation::Delete => {
                entries.remove(name);
                continue;
            }
            Operation::Append(operand) => ("append", operand),
            Operation::Subtract(operand) => ("subtract", operand),
        };
        let Some(setting) = table::broker_setting(name) else {
            return Err(AlterError::InvalidConfig(format!(
                "Unknown config name: {name}"
            )));
        };
        if setting.kind != Kind::List {
            return Err(AlterError::InvalidConfig(format!(
                "Config value {verb} is not allowed for config key: {name}"
            )));
        }
        let text = edited_list(setting, &entries, operation, operand);
        entries.insert(name.to_owned(), text);
    }
    accepted_broker(broker, scope, entries)
}

#[derive(Debug, Clone, Copy)]
enum Operation<'a> {
    Set(&'a str),
    Delete,
    Append(&'a str),
    Subtract(&'a str),
}

/// The checks that Kafka makes before it looks at single settings.
fn checked_operations(changes: &[Change]) -> Result<Vec<(&str, Operation<'_>)>, AlterError> {
    check_duplicates(changes.iter().map(|change| change.name.as_str()))?;
    let deletes = |change: &&Change| change.operation == 1;
    check_nulls(
        changes
            .iter()
            .filter(|change| !deletes(change) && change.value.is_none())
            .map(|change| change.name.as_str()),
    )?;
    changes
        .iter()
        .map(|change| {
            let value = change.value.as_deref().unwrap_or_default();
            let operation = match change.operation {
                0 => Operation::Set(value),
                1 => Operation::Delete,
                2 => Operation::Append(value),
                3 => Operation::Subtract(value),
                code => {
                    let message = format!("Unknown operations type {code}");
                    return Err(AlterError::InvalidRequest(message));
                }
            };
            Ok((change.name.as_str(), operation))
        })
        .collect()
}

fn check_replacement(given: &[(String, Option<String>)]) -> Result<(), AlterError> {
    check_duplicates(given.iter().map(|(name, _)| name.as_str()))?;
    check_nulls(
        given
            .iter()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| name.as_str()),
    )
}

fn check_duplicates<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), AlterError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            let message = "Error due to duplicate config keys".to_owned();
            return Err(AlterError::InvalidRequest(message));
        }
    }
    Ok(())
}

fn check_nulls<'a>(nulls: impl Iterator<Item = &'a str>) -> Result<(), AlterError> {
    let nulls: Vec<&str> = nulls.collect();
    if nulls.is_empty() {
        return Ok(());
    }
    let message = format!("Null value not supported for : {}", nulls.join(", "));
    Err(AlterError::InvalidRequest(message))
}

fn present(given: &[(String, Option<String>)]) -> Entries {
    given
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
        .collect()
}

fn list_setting(setting: Option<&'static Setting>) -> Option<&'static Setting> {
    setting.filter(|setting| setting.kind == Kind::List)
}

/// The list after an append or subtract: it starts from the resource's own value, or else from
/// the table's default. Appending what is there changes nothing; subtracting takes away the
/// first of each item.
fn edited_list(
    setting: &Setting,
    entries: &Entries,
    operation: Operation<'_>,
    operand: &str,
) -> String {
    let current = entries.get(setting.name).map(String::as_str);
    let mut items: Vec<&str> = current
        .or(setting.default)
        .unwrap_or_default()
        .split(',')
        .filter(|item| !item.is_empty())
        .collect();
    for item in operand.split(',') {
        let position = items.iter().position(|present| *present == item);
        match (operation, position) {
            (Operation::Append(_), None) => items.push(item),
            (Operation::Subtract(_), Some(position)) => {
                items.remove(position);
            }
            _ => {}
        }
    }
    items.join(",")
}

fn check_lengths(entries: &Entries) -> Result<(), AlterError> {
    if entries.values().all(|text| text.len() <= VALUE_BYTES_MAX) {
        return Ok(());
    }
    Err(AlterError::InvalidConfig(format!(
        "The configuration value cannot be added because it exceeds the maximum value size of \
         {VALUE_BYTES_MAX} bytes."
    )))
}

/// Refuses entries that a topic cannot have, alone or together.
fn accepted_topic(defaults: &TopicDefaults, entries: Entries) -> Result<Altered, AlterError> {
    check_lengths(&entries)?;
    let mut warnings = Vec::new();
    if let Some(unknown) = entries
        .keys()
        .find(|name| table::topic_setting(name).is_none())
    {
        let hint = match table::nearest_topic_setting(unknown) {
            Some(nearest) => format!("; did you mean {nearest}?"),
            None => String::new(),
        };
        return Err(AlterError::InvalidConfig(format!(
            "Unknown topic config name: {unknown}{hint}"
        )));
    }
    for (name, text) in &entries {
        if let Some(setting) = table::topic_setting(name) {
            setting.parse(text)?;
            warnings.extend(warning(setting));
        }
    }
    let lag_ms = |name: &str| {
        let value = defaults.effective(name, &entries);
        value
            .and_then(|value| value.as_integer())
            .unwrap_or_default()
    };
    let min_ms = lag_ms("min.compaction.lag.ms");
    let max_ms = lag_ms("max.compaction.lag.ms");
    if min_ms > max_ms {
        return Err(AlterError::InvalidConfig(format!(
            "conflict topic config setting min.compaction.lag.ms ({min_ms}) > \
             max.compaction.lag.ms ({max_ms})"
        )));
    }
    let remote = defaults.effective("remote.storage.enable", &entries);
    if remote == Some(Value::Boolean(true)) {
        return Err(AlterError::InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. \
             Topic cannot be configured with remote log storage."
                .to_owned(),
        ));
    }
    Ok(Altered { entries, warnings })
}

/// Refuses entries that cannot be set on running brokers. Kafka answers INVALID_REQUEST to all
/// of these.
fn accepted_broker(
    broker: &BrokerConfig,
    scope: BrokerScope,
    entries: Entries,
) -> Result<Altered, AlterError> {
    check_lengths(&entries)?;
    let invalid = |message: String| Err(AlterError::InvalidRequest(message));
    let with_mode = |mode: UpdateMode| -> Vec<&str> {
        let names = entries.keys().map(String::as_str);
        names
            .filter(|name| table::broker_setting(name).is_some_and(|row| row.update == mode))
            .collect()
    };
    let read_only = with_mode(UpdateMode::ReadOnly);
    if !read_only.is_empty() {
        return invalid(format!(
            "Cannot update these configs dynamically: Set({})",
            read_only.join(", ")
        ));
    }
    let mut warnings = Vec::new();
    for (name, text) in &entries {
        let Some(setting) = table::broker_setting(name) else {
            let hint = match table::nearest_broker_setting(name) {
                Some(nearest) => format!("; did you mean {nearest}?"),
                None => String::new(),
            };
            return invalid(format!("Unknown broker config name: {name}{hint}"));
        };
        let value = match setting.parse(text) {
            Ok(value) => value,
            Err(error) => return invalid(error.to_string()),
        };
        if let Support::Refused(reason) = setting.support
            && setting.default_value() != Some(value)
        {
            return invalid(format!("{name} cannot be set: {reason}"));
        }
        warnings.extend(warning(setting));
    }
    let per_broker = with_mode(UpdateMode::PerBroker);
    if scope == BrokerScope::ClusterDefault && !per_broker.is_empty() {
        return invalid(format!(
            "Cannot update these configs at default cluster level, broker id must be specified: \
             Set({})",
            per_broker.join(", ")
        ));
    }
    let settings = broker.settings.clone();
    let (for_all, for_this) = match scope {
        BrokerScope::ClusterDefault => (entries.clone(), settings.dynamic_broker_entries),
        BrokerScope::ThisBroker => (settings.dynamic_default_entries, entries.clone()),
    };
    if let Err(problems) = broker.with_dynamic(for_all, for_this) {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return invalid(problems.join("; "));
    }
    Ok(Altered { entries, warnings })
}

fn entries_of(settings: &BrokerSettings, scope: BrokerScope) -> &Entries {
    match scope {
        BrokerScope::ClusterDefault => &settings.dynamic_default_entries,
        BrokerScope::ThisBroker => &settings.dynamic_broker_entries,
    }
}

fn warning(setting: &Setting) -> Option<String> {
    match setting.support {
        Support::Inert(reason) => Some(format!("`{}` has no effect: {reason}", setting.name)),
        Support::Effective | Support::Refused(_) => None,
    }
}
