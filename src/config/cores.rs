//! `--cores`: which cores the broker runs on.

use std::collections::BTreeSet;

/// The largest core number taken: more than any machine has, and small enough that a range
/// cannot fill the memory.
const CORE_MAX: usize = 4095;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreSelection {
    /// Every core that the process may run on.
    All,
    /// These cores, ascending, each once.
    List(Vec<usize>),
}

/// A core list that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCores {
    #[error("expects `all` or a list such as `0`, `0-3` or `0,2`, found `{0}`")]
    Syntax(String),
    #[error("the range `{0}` runs backwards; write the smaller core first")]
    Backwards(String),
    #[error("there is no core {0}; the largest number taken is {CORE_MAX}")]
    TooLarge(String),
    #[error("core {core} is not available to this process; it may run on {available}")]
    NotAvailable { core: usize, available: String },
    #[error("this process may run on no core at all; widen its affinity mask")]
    None,
}

impl CoreSelection {
    /// Reads `all`, or a list as taskset takes it: numbers and ranges with commas between them.
    pub fn parse(text: &str) -> Result<Self, InvalidCores> {
        if text.trim() == "all" {
            return Ok(Self::All);
        }
        let number = |part: &str| -> Result<usize, InvalidCores> {
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(InvalidCores::Syntax(text.to_owned()));
            }
            match part.parse() {
                Ok(core) if core <= CORE_MAX => Ok(core),
                _ => Err(InvalidCores::TooLarge(part.to_owned())),
            }
        };
        let mut cores = BTreeSet::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(InvalidCores::Backwards(part.to_owned()));
            }
            cores.extend(first..=last);
        }
        Ok(Self::List(cores.into_iter().collect()))
    }

    /// The cores to run on, given those that the process may run on (its affinity mask).
    pub fn resolve(&self, available: &[usize]) -> Result<Vec<usize>, InvalidCores> {
        let available: BTreeSet<usize> = available.iter().copied().collect();
        if available.is_empty() {
            return Err(InvalidCores::None);
        }
        let Self::List(cores) = self else {
            return Ok(available.into_iter().collect());
        };
        match cores.iter().find(|core| !available.contains(core)) {
            Some(&core) => Err(InvalidCores::NotAvailable {
                core,
                available: format_cores(&available.into_iter().collect::<Vec<_>>()),
            }),
            None => Ok(cores.clone()),
        }
    }
}

/// A core list in the form that it is read: `0-3`, `0,2`. Expects ascending numbers.
pub fn format_cores(cores: &[usize]) -> String {
    let runs = cores.chunk_by(|before, after| before.checked_add(1) == Some(*after));
    let parts: Vec<String> = runs
        .filter_map(|run| match run {
            [] => None,
            [core] => Some(core.to_string()),
            [first, .., last] => Some(format!("{first}-{last}")),
        })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_read_as_taskset_reads_them() {
        let rows: [(&str, &[usize]); 6] = [
            ("all", &[1, 2, 3, 5]),
            ("1", &[1]),
            ("1-3", &[1, 2, 3]),
            ("1,3", &[1, 3]),
            ("5, 1-2,2", &[1, 2, 5]),
            (" 3 ", &[3]),
        ];
        for (text, expected) in rows {
            let cores = CoreSelection::parse(text).unwrap().resolve(&[5, 1, 2, 3]);
            assert_eq!(cores.as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_bad_core_list_says_what_is_wrong() {
        let rows = [
            (
                "",
                "expects `all` or a list such as `0`, `0-3` or `0,2`, found ``",
            ),
            (
                "1,",
                "expects `all` or a list such as `0`, `0-3` or `0,2`, found `1,`",
            ),
            (
                "-1",
                "expects `all` or a list such as `0`, `0-3` or `0,2`, found `-1`",
            ),
            (
                "two",
                "expects `all` or a list such as `0`, `0-3` or `0,2`, found `two`",
            ),
            (
                "3-1",
                "the range `3-1` runs backwards; write the smaller core first",
            ),
            (
                "0-99999999",
                "there is no core 99999999; the largest number taken is 4095",
            ),
            (
                "0-1",
                "core 0 is not available to this process; it may run on 1-3,5",
            ),
        ];
        for (text, message) in rows {
            let error = CoreSelection::parse(text).and_then(|cores| cores.resolve(&[1, 2, 3, 5]));
            assert_eq!(error.unwrap_err().to_string(), message);
        }
    }
}
