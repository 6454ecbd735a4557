//! The configuration file: TOML whose keys are Kafka's own names. Dotted, quoted and table forms
//! of a key all mean the same setting; this module flattens them and turns their values into
//! the text that the table parses.

use toml::de::{DeTable, DeValue};

use super::error::Problem;
use super::table::Setting;
use super::value::{Kind, Value};

/// One setting as the file gives it.
#[derive(Debug)]
pub struct FileEntry<'text> {
    /// The whole dotted name.
    pub key: String,
    /// Where its value stands, counted from 1.
    pub line: usize,
    pub value: DeValue<'text>,
}

/// The entries in the order of the file. A file that is no TOML yields the first problem and
/// its line.
pub fn parse(text: &str) -> Result<Vec<FileEntry<'_>>, (Option<usize>, Problem)> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        (line, Problem::Syntax(syntax_message(error.message())))
    })?;
    let mut entries = Vec::new();
    flatten(text, "", table.into_inner(), &mut entries);
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

fn flatten<'text>(
    text: &str,
    prefix: &str,
    table: DeTable<'text>,
    entries: &mut Vec<FileEntry<'text>>,
) {
    for (key, value) in table {
        let line = line_of(text, key.span().start);
        let key = format!("{prefix}{}", key.get_ref());
        match value.into_inner() {
            DeValue::Table(inner) => flatten(text, &format!("{key}."), inner, entries),
            value => entries.push(FileEntry { key, line, value }),
        }
    }
}

fn line_of(text: &str, position: usize) -> usize {
    let before = text.as_bytes().iter().take(position);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// Names such as `max.connections` and `max.connections.per.ip` cannot both be dotted keys in
/// TOML; the parser's message alone would not say how to write them.
fn syntax_message(message: &str) -> String {
    let message = message.replace('\n', " ");
    let clashes = message.contains("duplicate key") || message.contains("extend value");
    if clashes {
        return format!(
            "{message}; if one key is the beginning of another, quote both, \
             as in `\"max.connections.per.ip\" = 10`"
        );
    }
    message
}

/// The text that a TOML value means to `setting`: what Kafka's properties file would hold.
/// Numbers and booleans may be quoted, and lists be arrays; anything else of another type is
/// a problem.
pub fn text_of(setting: &Setting, value: &DeValue<'_>) -> Result<String, Problem> {
    let wrong_type = || Problem::WrongType {
        key: setting.name.to_owned(),
        expected: setting.kind.with_article(),
        found: match setting.kind {
            // Whatever it is, it was meant as a secret.
            Kind::Password => "something else".to_owned(),
            _ => describe_value(value),
        },
    };
    match (setting.kind, value) {
        (Kind::Boolean, DeValue::Boolean(flag)) => Ok(flag.to_string()),
        (Kind::Int | Kind::Short | Kind::Long, DeValue::Integer(number)) => {
            let number = i128::from_str_radix(number.as_str(), number.radix());
            let text = number.map_err(|_| wrong_type())?.to_string();
            match Value::parse(setting.name, setting.kind, &text) {
                Ok(_) => Ok(text),
                Err(_) => Err(Problem::unusable(
                    setting.name,
                    format!(
                        "is out of range: {text} does not fit {}",
                        size_of(setting.kind)
                    ),
                )),
            }
        }
        (Kind::Double, DeValue::Integer(number)) => Ok(number.to_string()),
        (Kind::Double, DeValue::Float(number)) => Ok(number.as_str().to_owned()),
        (Kind::List, DeValue::Array(items)) => {
            let items: Option<Vec<&str>> =
                items.iter().map(|item| item.get_ref().as_str()).collect();
            Ok(items.ok_or_else(wrong_type)?.join(","))
        }
        (Kind::String | Kind::Class | Kind::Password | Kind::List, DeValue::String(text)) => {
            Ok(text.clone().into_owned())
        }
        (_, DeValue::String(text)) => match Value::parse(setting.name, setting.kind, text) {
            Ok(_) => Ok(text.clone().into_owned()),
            Err(_) => Err(wrong_type()),
        },
        _ => Err(wrong_type()),
    }
}

fn size_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Short => "a short (-32768 to 32767)",
        Kind::Int => "an int (-2147483648 to 2147483647)",
        _ => "a long (64 bits)",
    }
}

fn describe_value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("string {text:?}"),
        DeValue::Integer(number) => format!("integer {number}"),
        DeValue::Float(number) => format!("float {number}"),
        DeValue::Boolean(flag) => format!("boolean {flag}"),
        DeValue::Datetime(datetime) => format!("datetime {datetime}"),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
