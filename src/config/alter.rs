//! What AlterConfigs and IncrementalAlterConfigs do to settings.

use super::table::{self, Setting};
use super::{Settings, value};

/// One step of IncrementalAlterConfigs (KIP-339).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlterOperation {
    Set,
    Delete,
    Append,
    Subtract,
}

impl AlterOperation {
    pub fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }
}

/// Why settings were not changed. The broker has a code for each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AlterError {
    #[error("{0}")]
    InvalidConfig(String),
    #[error("{0}")]
    InvalidRequest(String),
}

/// Whose settings are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Topic,
    Broker,
}

impl Scope {
    fn find(self, name: &str) -> Option<&'static Setting> {
        match self {
            Self::Topic => table::find_topic(name),
            Self::Broker => table::find_broker(name),
        }
    }
}

/// Replaces all settings (AlterConfigs): what is not named goes back to its default.
pub fn replace(scope: Scope, named: &[(String, Option<String>)]) -> Result<Settings, AlterError> {
    let mut settings = Settings::new();
    for (name, text) in named {
        let text = text.as_ref().ok_or_else(|| null_value(name))?;
        settings.insert(name.clone(), text.clone());
    }
    validate(scope, &settings)?;
    Ok(settings)
}

/// Changes some settings (IncrementalAlterConfigs). Applied whole or not at all.
pub fn change(
    scope: Scope,
    current: &Settings,
    steps: &[(String, AlterOperation, Option<String>)],
    inherited_list: impl Fn(&str) -> String,
) -> Result<Settings, AlterError> {
    let mut settings = current.clone();
    for (index, (name, operation, text)) in steps.iter().enumerate() {
        if steps[..index].iter().any(|(other, ..)| other == name) {
            return Err(AlterError::InvalidRequest(format!(
                "Error due to duplicate config keys: {name}"
            )));
        }
        if *operation == AlterOperation::Delete {
            // A setting that is gone from the tables can still be taken off a topic.
            settings.remove(name);
            continue;
        }
        let text = text.as_ref().ok_or_else(|| null_value(name))?;
        let changed = match operation {
            AlterOperation::Set | AlterOperation::Delete => text.clone(),
            AlterOperation::Append | AlterOperation::Subtract => {
                let setting = scope.find(name).ok_or_else(|| unknown(scope, name))?;
                if setting.kind != value::Kind::List {
                    return Err(AlterError::InvalidConfig(format!(
                        "Config value append is not allowed for config key: {name}"
                    )));
                }
                let before = settings
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| inherited_list(name));
                merge_lists(&before, text, *operation)
            }
        };
        settings.insert(name.clone(), changed);
    }
    let named: Settings = settings
        .iter()
        .filter(|(name, _)| steps.iter().any(|(step, ..)| step == *name))
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect();
    validate(scope, &named)?;
    Ok(settings)
}

fn merge_lists(before: &str, items: &str, operation: AlterOperation) -> String {
    let mut merged: Vec<&str> = value::list(before).collect();
    for item in value::list(items) {
        match operation {
            AlterOperation::Append if !merged.contains(&item) => merged.push(item),
            AlterOperation::Subtract => merged.retain(|kept| *kept != item),
            _ => {}
        }
    }
    merged.join(",")
}

/// Checks settings that are to be set.
pub fn validate(scope: Scope, settings: &Settings) -> Result<(), AlterError> {
    for (name, text) in settings {
        let setting = scope.find(name).ok_or_else(|| unknown(scope, name))?;
        if scope == Scope::Broker && !setting.is_dynamic {
            return Err(AlterError::InvalidRequest(format!(
                "Cannot update these configs dynamically: {name}; set it in the configuration file and restart"
            )));
        }
        value::check(setting.kind, setting.rule, text).map_err(|reason| {
            AlterError::InvalidConfig(format!(
                "Invalid value {text} for configuration {name}: {reason}"
            ))
        })?;
    }
    Ok(())
}

fn unknown(scope: Scope, name: &str) -> AlterError {
    let whose = if scope == Scope::Topic {
        "topic"
    } else {
        "broker"
    };
    AlterError::InvalidConfig(format!("Unknown {whose} config name: {name}"))
}

fn null_value(name: &str) -> AlterError {
    AlterError::InvalidConfig(format!("Null value not supported for : {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change_topic(
        current: &[(&str, &str)],
        steps: &[(&str, AlterOperation, Option<&str>)],
    ) -> Result<Vec<(String, String)>, AlterError> {
        let current = current
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let steps: Vec<_> = steps
            .iter()
            .map(|(name, operation, text)| {
                ((*name).to_owned(), *operation, text.map(str::to_owned))
            })
            .collect();
        change(Scope::Topic, &current, &steps, |_| "delete".to_owned())
            .map(|settings| settings.into_iter().collect())
    }

    #[test]
    fn steps_set_delete_append_and_subtract() {
        use AlterOperation::{Append, Delete, Set, Subtract};
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect()
        };
        let table = [
            (
                vec![],
                vec![("retention.ms", Set, Some("5"))],
                pairs(&[("retention.ms", "5")]),
            ),
            (
                vec![("retention.ms", "5")],
                vec![("retention.ms", Delete, None)],
                pairs(&[]),
            ),
            (
                vec![],
                vec![("cleanup.policy", Append, Some("compact"))],
                pairs(&[("cleanup.policy", "delete,compact")]),
            ),
            (
                vec![("cleanup.policy", "delete,compact")],
                vec![("cleanup.policy", Subtract, Some("delete"))],
                pairs(&[("cleanup.policy", "compact")]),
            ),
            // A value that equals the default is kept: the topic asked for it.
            (
                vec![],
                vec![("cleanup.policy", Set, Some("delete"))],
                pairs(&[("cleanup.policy", "delete")]),
            ),
        ];
        for (current, steps, expected) in table {
            assert_eq!(change_topic(&current, &steps), Ok(expected), "{steps:?}");
        }
    }

    #[test]
    fn bad_steps_change_nothing_and_say_why() {
        use AlterOperation::{Append, Set};
        let message = |steps: &[(&str, AlterOperation, Option<&str>)]| {
            change_topic(&[], steps).unwrap_err().to_string()
        };
        assert_eq!(
            message(&[("retention.ms", Set, Some("x"))]),
            "Invalid value x for configuration retention.ms: Not a number of type LONG"
        );
        assert_eq!(
            message(&[("nope", Set, Some("x"))]),
            "Unknown topic config name: nope"
        );
        assert!(message(&[("retention.ms", Append, Some("1"))]).contains("not allowed"));
        assert!(message(&[("retention.ms", Set, None)]).contains("Null value"));
        let twice = [
            ("retention.ms", Set, Some("1")),
            ("retention.ms", Set, Some("2")),
        ];
        assert!(message(&twice).contains("duplicate"));
    }

    #[test]
    fn replacing_forgets_what_is_not_named_and_a_broker_keeps_what_cannot_change() {
        let named = [("retention.ms".to_owned(), Some("7".to_owned()))];
        assert_eq!(replace(Scope::Topic, &named).unwrap().len(), 1);
        let fixed = [("node.id".to_owned(), Some("7".to_owned()))];
        assert!(matches!(
            replace(Scope::Broker, &fixed),
            Err(AlterError::InvalidRequest(_))
        ));
        let dynamic = [("message.max.bytes".to_owned(), Some("7".to_owned()))];
        assert!(replace(Scope::Broker, &dynamic).is_ok());
    }
}
