//! Types and values of settings, read and printed as Kafka's `ConfigDef` does it.

use std::fmt;

/// A setting's type; the number is its code in a DescribeConfigs response (KIP-569).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum Kind {
    Boolean = 1,
    String = 2,
    /// 32 bits.
    Int = 3,
    /// 16 bits.
    Short = 4,
    /// 64 bits.
    Long = 5,
    Double = 6,
    /// Texts with commas between them.
    List = 7,
    /// The name of a Java class.
    Class = 8,
    /// A secret: never shown, never logged.
    Password = 9,
}

impl Kind {
    pub fn code(self) -> i8 {
        self as i8
    }

    /// The type in a sentence such as "expects an int".
    pub fn with_article(self) -> &'static str {
        match self {
            Self::Boolean => "a boolean",
            Self::String => "a string",
            Self::Int => "an int",
            Self::Short => "a short",
            Self::Long => "a long",
            Self::Double => "a double",
            Self::List => "a list",
            Self::Class => "a class name",
            Self::Password => "a password",
        }
    }

    /// The type as Kafka's error messages name it.
    fn java_name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }
}

/// The value of a setting. Prints as Kafka prints it, a password as `[hidden]`.
#[derive(Clone, PartialEq)]
pub enum Value {
    Boolean(bool),
    Int(i32),
    Short(i16),
    Long(i64),
    Double(f64),
    /// The value of a string or class setting.
    Text(String),
    List(Vec<String>),
    Password(String),
}

/// A value that a setting cannot take, in the words of Kafka's `ConfigException`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid value {value} for configuration {name}: {reason}")]
pub struct InvalidValue {
    pub name: String,
    pub value: String,
    pub reason: String,
}

impl Value {
    /// Reads `text` as Kafka's `ConfigDef.parseType` does: blanks around it do not count.
    pub fn parse(name: &str, kind: Kind, text: &str) -> Result<Self, InvalidValue> {
        // Java's `trim` cuts everything up to the space.
        let trimmed = text.trim_matches(|c: char| c <= ' ');
        let invalid = |reason: String| InvalidValue {
            name: name.to_owned(),
            value: match kind {
                Kind::Password => HIDDEN.to_owned(),
                _ => text.to_owned(),
            },
            reason,
        };
        let not_a_number = || invalid(format!("Not a number of type {}", kind.java_name()));
        Ok(match kind {
            Kind::Boolean if trimmed.eq_ignore_ascii_case("true") => Self::Boolean(true),
            Kind::Boolean if trimmed.eq_ignore_ascii_case("false") => Self::Boolean(false),
            Kind::Boolean => {
                let reason = "Expected value to be either true or false";
                return Err(invalid(reason.to_owned()));
            }
            Kind::Int => Self::Int(trimmed.parse().map_err(|_| not_a_number())?),
            Kind::Short => Self::Short(trimmed.parse().map_err(|_| not_a_number())?),
            Kind::Long => Self::Long(trimmed.parse().map_err(|_| not_a_number())?),
            Kind::Double => Self::Double(parse_double(trimmed).ok_or_else(not_a_number)?),
            Kind::String | Kind::Class => Self::Text(trimmed.to_owned()),
            Kind::List if trimmed.is_empty() => Self::List(Vec::new()),
            Kind::List => Self::List(
                trimmed
                    .split(',')
                    .map(|item| item.trim_ascii().to_owned())
                    .collect(),
            ),
            Kind::Password => Self::Password(trimmed.to_owned()),
        })
    }

    /// The number in a setting of type int, short or long.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(i64::from(*number)),
            Self::Short(number) => Some(i64::from(*number)),
            Self::Long(number) => Some(*number),
            _ => None,
        }
    }
}

const HIDDEN: &str = "[hidden]";

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Short(value) => value.fmt(f),
            Self::Long(value) => value.fmt(f),
            Self::Double(value) => f.write_str(&java_double(*value)),
            Self::Text(value) => f.write_str(value),
            Self::List(items) => f.write_str(&items.join(",")),
            Self::Password(_) => f.write_str(HIDDEN),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A finite decimal number. Java also takes hexadecimal floats and NaN, for which no setting has
/// a use; they are refused.
fn parse_double(text: &str) -> Option<f64> {
    let decimal = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    if !text.chars().all(decimal) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// `Double.toString`: plain between 10^-3 and 10^7, else `1.0E-5`; always with a fraction.
fn java_double(number: f64) -> String {
    let size = number.abs();
    if number == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{number:?}");
    }
    let scientific = format!("{number:e}");
    match scientific.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => format!("{mantissa}E{exponent}"),
        Some((mantissa, exponent)) => format!("{mantissa}.0E{exponent}"),
        None => scientific,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_kafka_prints_them() {
        let rows = [
            (Kind::Boolean, " TRUE ", "true"),
            (Kind::Int, "+5", "5"),
            (Kind::Long, " -1 ", "-1"),
            (Kind::Double, ".5", "0.5"),
            (Kind::Double, "1e-5", "1.0E-5"),
            (Kind::Double, "12500000", "1.25E7"),
            (Kind::Double, "100", "100.0"),
            (
                Kind::Double,
                "1.7976931348623157E308",
                "1.7976931348623157E308",
            ),
            (Kind::List, "compact , delete", "compact,delete"),
            (Kind::List, " ", ""),
            (Kind::Password, "secret", "[hidden]"),
        ];
        for (kind, text, printed) in rows {
            let value = Value::parse("any", kind, text);
            assert_eq!(
                value.map(|value| value.to_string()),
                Ok(printed.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_of_the_type_is_refused_in_kafkas_words() {
        let rows = [
            (
                Kind::Long,
                "xyz",
                "Invalid value xyz for configuration any: Not a number of type LONG",
            ),
            (
                Kind::Int,
                "3000000000",
                "Invalid value 3000000000 for configuration any: Not a number of type INT",
            ),
            (
                Kind::Int,
                "",
                "Invalid value  for configuration any: Not a number of type INT",
            ),
            (
                Kind::Short,
                "1.0",
                "Invalid value 1.0 for configuration any: Not a number of type SHORT",
            ),
            (
                Kind::Double,
                "NaN",
                "Invalid value NaN for configuration any: Not a number of type DOUBLE",
            ),
            (
                Kind::Boolean,
                "yes",
                "Invalid value yes for configuration any: Expected value to be either true or false",
            ),
        ];
        for (kind, text, message) in rows {
            let error = Value::parse("any", kind, text).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
