//! What can be wrong with a configuration: each problem is one line that says what to do.

use std::fmt;
use std::path::PathBuf;

use super::cores::InvalidCores;
use super::endpoint::InvalidEndpoint;
use super::value::InvalidValue;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("cannot read the configuration: {0}; check the path given to --config")]
    Unreadable(String),
    #[error("not valid TOML: {0}")]
    Syntax(String),
    #[error("unknown setting `{key}`{}", did_you_mean(*.nearest))]
    UnknownKey {
        key: String,
        nearest: Option<&'static str>,
    },
    #[error("`{key}`: {advice}")]
    RemovedKey { key: String, advice: &'static str },
    #[error("`{key}` is given twice, also on line {first_line}; keep one")]
    GivenTwice { key: String, first_line: usize },
    #[error("`{key}` expects {expected}, found {found}")]
    WrongType {
        key: String,
        expected: &'static str,
        found: String,
    },
    #[error(transparent)]
    InvalidValue(#[from] InvalidValue),
    #[error("`{key}` cannot be set to `{value}`: {reason}")]
    Refused {
        key: String,
        value: String,
        reason: &'static str,
    },
    #[error("`{key}`: {problem}")]
    Cores { key: String, problem: InvalidCores },
    #[error("`{key}`: {problem}")]
    Endpoint {
        key: String,
        problem: InvalidEndpoint,
    },
    /// A setting whose value makes no sense, alone or beside another one.
    #[error("`{key}` {sentence}")]
    Unusable { key: &'static str, sentence: String },
}

impl Problem {
    pub(super) fn unusable(key: &'static str, sentence: impl Into<String>) -> Self {
        Self::Unusable {
            key,
            sentence: sentence.into(),
        }
    }
}

fn did_you_mean(nearest: Option<&'static str>) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => "; remove it, or see the list of settings in Kafka's documentation".to_owned(),
    }
}

/// A problem or warning with the place that it comes from, printed as `FILE:LINE: …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    pub file: Option<PathBuf>,
    /// Counted from 1.
    pub line: Option<usize>,
    pub what: T,
}

impl<T: fmt::Display> fmt::Display for Located<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        self.what.fmt(f)
    }
}

/// Everything that is wrong with a configuration, one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct ConfigError {
    pub problems: Vec<Located<Problem>>,
}

fn lines(problems: &[Located<Problem>]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
