//! The limits that a setting's value has to keep, and Kafka's words for breaking them.

use super::value::{InvalidValue, Value};

/// What a value has to satisfy beyond its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validator {
    Any,
    /// A number of at least this.
    AtLeast(i64),
    /// A number from the first to the second, both included.
    Between(i64, i64),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// One of these texts in upper or lower case.
    OneOfIgnoringCase(&'static [&'static str]),
    /// A list whose every item is one of these texts.
    EachOf(&'static [&'static str]),
    /// A text that is not empty.
    NonEmpty,
    /// 1 to 9, or -1 for the library's own choice.
    GzipLevel,
    /// `*`, or a list of `partition:broker` (KIP-73).
    ThrottledReplicas,
}

impl Validator {
    /// Refuses `value` with the reason that Kafka gives for setting `name`.
    pub fn check(self, name: &str, value: &Value) -> Result<(), InvalidValue> {
        let Err((offending, reason)) = self.verdict(name, value) else {
            return Ok(());
        };
        Err(InvalidValue {
            name: name.to_owned(),
            value: offending,
            reason,
        })
    }

    /// The part of the value that is wrong, and why.
    fn verdict(self, name: &str, value: &Value) -> Result<(), (String, String)> {
        match (self, value) {
            (Self::AtLeast(min), _) => at_least(value, min),
            (Self::Between(min, max), _) => {
                at_least(value, min)?;
                at_most(value, max)
            }
            (Self::OneOf(allowed), Value::Text(text)) => one_of(text, allowed),
            (Self::OneOfIgnoringCase(allowed), Value::Text(text)) => {
                if allowed.iter().any(|one| one.eq_ignore_ascii_case(text)) {
                    return Ok(());
                }
                let allowed = allowed.join(", ");
                let reason = format!("String must be one of (case insensitive): {allowed}");
                Err((text.clone(), reason))
            }
            (Self::EachOf(allowed), Value::List(items)) => {
                items.iter().try_for_each(|item| one_of(item, allowed))
            }
            (Self::NonEmpty, Value::Text(text)) if text.is_empty() => {
                Err((text.clone(), "String must be non-empty".to_owned()))
            }
            (Self::GzipLevel, Value::Int(level)) if !matches!(*level, -1 | 1..=9) => Err((
                level.to_string(),
                "Value must be between 1 and 9 or equal to -1".to_owned(),
            )),
            (Self::ThrottledReplicas, Value::List(items)) if !are_throttled_replicas(items) => {
                Err((
                    format!("[{}]", items.join(", ")),
                    format!(
                        "{name} must be the literal '*' or a list of replicas in the following \
                         format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                    ),
                ))
            }
            _ => Ok(()),
        }
    }
}

fn at_least(value: &Value, min: i64) -> Result<(), (String, String)> {
    let too_small = match value {
        Value::Double(number) => *number < min as f64,
        _ => value.as_integer().is_some_and(|number| number < min),
    };
    if too_small {
        return Err((value.to_string(), format!("Value must be at least {min}")));
    }
    Ok(())
}

fn at_most(value: &Value, max: i64) -> Result<(), (String, String)> {
    let too_large = match value {
        Value::Double(number) => *number > max as f64,
        _ => value.as_integer().is_some_and(|number| number > max),
    };
    if too_large {
        return Err((
            value.to_string(),
            format!("Value must be no more than {max}"),
        ));
    }
    Ok(())
}

fn one_of(text: &str, allowed: &[&str]) -> Result<(), (String, String)> {
    if allowed.contains(&text) {
        return Ok(());
    }
    let reason = format!("String must be one of: {}", allowed.join(", "));
    Err((text.to_owned(), reason))
}

fn are_throttled_replicas(items: &[String]) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_replica = |item: &String| {
        item.split_once(':')
            .is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
    };
    items == ["*"] || items.iter().all(is_replica)
}
