//! From configuration file and command line to [`BrokerConfig`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::broker::BrokerConfig;
use super::error::{ConfigError, Located, Problem};
use super::file;
use super::layers::{BrokerSettings, Entries};
use super::table::{self, Support};

/// What the command line says; each goes before the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--config FILE`
    pub config: Option<PathBuf>,
    /// `--data-dir DIR`
    pub data_dir: Option<PathBuf>,
    /// `--listen HOST:PORT`
    pub listen: Option<String>,
    /// `--admin HOST:PORT`
    pub admin: Option<String>,
    /// `--cores all|LIST`
    pub cores: Option<String>,
}

/// Something that the operator should know and that keeps nothing from working.
pub type Warning = Located<String>;

impl BrokerConfig {
    /// Reads the file, if one is named, and lays the command line over it.
    pub fn load(overrides: Overrides) -> Result<(Self, Vec<Warning>), ConfigError> {
        let Some(path) = overrides.config.clone() else {
            return Self::from_text(Path::new(""), "", overrides);
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::from_text(&path, &text, overrides),
            Err(error) => Err(ConfigError {
                problems: vec![Located {
                    file: Some(path),
                    line: None,
                    what: Problem::Unreadable(error.to_string()),
                }],
            }),
        }
    }

    /// As [`BrokerConfig::load`], with the file's text given; `file` only names it in messages.
    pub fn from_text(
        file: &Path,
        text: &str,
        overrides: Overrides,
    ) -> Result<(Self, Vec<Warning>), ConfigError> {
        let mut loading = Loading {
            file,
            entries: Entries::new(),
            lines: BTreeMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        };
        loading.read_file(text);
        loading.apply_command_line(&overrides);
        loading.finish(overrides)
    }
}

struct Loading<'a> {
    file: &'a Path,
    entries: Entries,
    /// Where the file sets each key.
    lines: BTreeMap<String, usize>,
    problems: Vec<Located<Problem>>,
    warnings: Vec<Warning>,
}

impl Loading<'_> {
    fn located<T>(&self, line: Option<usize>, what: T) -> Located<T> {
        let file = line.map(|_| self.file.to_owned());
        Located { file, line, what }
    }

    fn problem(&mut self, line: Option<usize>, problem: Problem) {
        let located = self.located(line, problem);
        self.problems.push(located);
    }

    fn read_file(&mut self, text: &str) {
        let entries = match file::parse(text) {
            Ok(entries) => entries,
            Err((line, problem)) => return self.problem(line.or(Some(1)), problem),
        };
        for entry in entries {
            let line = entry.line;
            if let Some(&first_line) = self.lines.get(&entry.key) {
                let key = entry.key;
                self.problem(Some(line), Problem::GivenTwice { key, first_line });
                continue;
            }
            match self.checked(&entry) {
                Ok(text) => {
                    self.lines.insert(entry.key.clone(), line);
                    self.entries.insert(entry.key, text);
                }
                Err(problem) => self.problem(Some(line), problem),
            }
        }
    }

    /// The text of one entry, once name, type, limits and support are checked.
    fn checked(&mut self, entry: &file::FileEntry<'_>) -> Result<String, Problem> {
        let Some(setting) = table::broker_setting(&entry.key) else {
            return Err(unknown(&entry.key));
        };
        let text = file::text_of(setting, &entry.value)?;
        let value = setting.parse(&text)?;
        let is_default = setting.default_value().as_ref() == Some(&value);
        match setting.support {
            Support::Refused(reason) if !is_default => {
                return Err(Problem::Refused {
                    key: entry.key.clone(),
                    value: value.to_string(),
                    reason,
                });
            }
            Support::Inert(reason) => {
                let warning = format!("`{}` has no effect: {reason}", entry.key);
                self.warnings.push(self.located(Some(entry.line), warning));
            }
            _ => {}
        }
        Ok(text)
    }

    fn apply_command_line(&mut self, overrides: &Overrides) {
        if let Some(listen) = &overrides.listen {
            match listen.parse::<super::endpoint::Endpoint>() {
                Ok(endpoint) => self.set("listeners", format!("PLAINTEXT://{endpoint}")),
                Err(problem) => self.option_problem("--listen", problem),
            }
        }
        if let Some(admin) = &overrides.admin {
            match admin.parse::<super::endpoint::Endpoint>() {
                Ok(endpoint) => self.set("ringmain.admin.listener", endpoint.to_string()),
                Err(problem) => self.option_problem("--admin", problem),
            }
        }
        if let Some(cores) = &overrides.cores {
            match super::cores::CoreSelection::parse(cores) {
                Ok(_) => self.set("ringmain.cores", cores.clone()),
                Err(problem) => {
                    let key = "--cores".to_owned();
                    self.problem(None, Problem::Cores { key, problem });
                }
            }
        }
        if let Some(data_dir) = &overrides.data_dir {
            self.set("log.dirs", data_dir.to_string_lossy().into_owned());
        }
    }

    fn set(&mut self, key: &str, text: String) {
        self.lines.remove(key);
        self.entries.insert(key.to_owned(), text);
    }

    fn option_problem(&mut self, option: &str, problem: super::endpoint::InvalidEndpoint) {
        let key = option.to_owned();
        self.problem(None, Problem::Endpoint { key, problem });
    }

    fn finish(mut self, overrides: Overrides) -> Result<(BrokerConfig, Vec<Warning>), ConfigError> {
        // A directory from the command line is one path, commas and all.
        if overrides.data_dir.is_some() {
            self.entries.remove("log.dirs");
        }
        let settings = BrokerSettings {
            static_entries: std::mem::take(&mut self.entries),
            ..BrokerSettings::default()
        };
        match BrokerConfig::from_settings(settings) {
            Ok(mut config) if self.problems.is_empty() => {
                if let Some(data_dir) = overrides.data_dir {
                    let text = data_dir.to_string_lossy().into_owned();
                    config
                        .settings
                        .static_entries
                        .insert("log.dirs".to_owned(), text);
                    config.data_dir = data_dir;
                }
                Ok((config, self.warnings))
            }
            Ok(_) => Err(ConfigError {
                problems: self.problems,
            }),
            Err(problems) => {
                for problem in problems {
                    let line = key_of(&problem).and_then(|key| self.lines.get(key).copied());
                    self.problem(line, problem);
                }
                Err(ConfigError {
                    problems: self.problems,
                })
            }
        }
    }
}

fn unknown(key: &str) -> Problem {
    let key = key.to_owned();
    if let Some(advice) = table::removed(&key) {
        return Problem::RemovedKey { key, advice };
    }
    if key.starts_with("listener.name.") {
        let advice = "settings of single listeners are not supported yet; remove the key";
        return Problem::RemovedKey { key, advice };
    }
    let nearest = table::nearest_broker_setting(&key);
    Problem::UnknownKey { key, nearest }
}

fn key_of(problem: &Problem) -> Option<&str> {
    match problem {
        Problem::Unusable { key, .. } => Some(key),
        Problem::Cores { key, .. } | Problem::Endpoint { key, .. } => Some(key),
        _ => None,
    }
}
