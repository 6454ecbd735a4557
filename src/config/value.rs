//! Types of settings, and their texts as Kafka reads and prints them.

/// A setting's type; the codes are those of DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Text,
    Int,
    Long,
    Double,
    List,
}

impl Kind {
    /// The code in a DescribeConfigs response (KIP-569).
    pub fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::Text => 2,
            Self::Int => 3,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::Text => "STRING",
            Self::Int => "INT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
        }
    }
}

/// What a value must be beyond its type.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    Any,
    /// At least this.
    AtLeast(i64),
    Between(i64, i64),
    /// A fraction in this range.
    Fraction(f64, f64),
    OneOf(&'static [&'static str]),
    /// A list of these.
    SubsetOf(&'static [&'static str]),
}

/// Checks a text against a type and a rule; the error continues "Invalid value X for
/// configuration Y: …", in Kafka's words.
pub fn check(kind: Kind, rule: Rule, text: &str) -> Result<(), String> {
    let not_of_type = || format!("Not a number of type {}", kind.name());
    match kind {
        Kind::Boolean if parse_boolean(text).is_none() => {
            return Err("Expected value to be either true or false".to_owned());
        }
        Kind::Int => check_number(
            i64::from(text.trim().parse::<i32>().map_err(|_| not_of_type())?),
            rule,
        )?,
        Kind::Long => check_number(text.trim().parse().map_err(|_| not_of_type())?, rule)?,
        Kind::Double => {
            let number: f64 = text.trim().parse().map_err(|_| not_of_type())?;
            if let Rule::Fraction(low, high) = rule
                && !(low..=high).contains(&number)
            {
                return Err(format!("Value must be between {low} and {high}"));
            }
        }
        Kind::Boolean | Kind::Text | Kind::List => {}
    }
    match rule {
        Rule::OneOf(allowed) if !allowed.contains(&text) => {
            Err(format!("String must be one of: {}", allowed.join(", ")))
        }
        Rule::SubsetOf(allowed) => match list(text).find(|item| !allowed.contains(item)) {
            Some(item) => Err(format!("`{item}` is not one of: {}", allowed.join(", "))),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_number(number: i64, rule: Rule) -> Result<(), String> {
    match rule {
        Rule::AtLeast(low) if number < low => Err(format!("Value must be at least {low}")),
        Rule::Between(low, high) if number < low => {
            Err(format!("Value must be at least {low} and at most {high}"))
        }
        Rule::Between(low, high) if number > high => Err(format!(
            "Value must be no more than {high} and at least {low}"
        )),
        _ => Ok(()),
    }
}

pub fn parse_boolean(text: &str) -> Option<bool> {
    match text.trim() {
        text if text.eq_ignore_ascii_case("true") => Some(true),
        text if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// The items of a comma-separated list.
pub fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_texts_are_named_in_kafkas_words() {
        let table: &[(Kind, Rule, &str, Option<&str>)] = &[
            (Kind::Long, Rule::AtLeast(-1), "-1", None),
            (
                Kind::Long,
                Rule::AtLeast(-1),
                "x",
                Some("Not a number of type LONG"),
            ),
            (
                Kind::Int,
                Rule::Any,
                "3000000000",
                Some("Not a number of type INT"),
            ),
            (
                Kind::Int,
                Rule::AtLeast(0),
                "-1",
                Some("Value must be at least 0"),
            ),
            (
                Kind::Boolean,
                Rule::Any,
                "yes",
                Some("Expected value to be either true or false"),
            ),
            (Kind::Boolean, Rule::Any, "TRUE", None),
            (
                Kind::Text,
                Rule::OneOf(&["a", "b"]),
                "c",
                Some("String must be one of: a, b"),
            ),
            (Kind::List, Rule::SubsetOf(&["a", "b"]), "a, b", None),
            (
                Kind::List,
                Rule::SubsetOf(&["a", "b"]),
                "a,c",
                Some("`c` is not one of: a, b"),
            ),
            (
                Kind::Double,
                Rule::Fraction(0.0, 1.0),
                "1.5",
                Some("Value must be between 0 and 1"),
            ),
        ];
        for (kind, rule, text, error) in table {
            assert_eq!(check(*kind, *rule, text).err().as_deref(), *error, "{text}");
        }
    }
}
