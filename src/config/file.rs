//! The configuration file and the command line.
//!
//! The file is TOML whose keys are Kafka's names. `log.segment.bytes = 1`, `"log.segment.bytes" = 1`
//! and a table `[log.segment]` with `bytes = 1` all mean the same.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use super::broker::{self, BrokerConfig};
use super::table::{self, Support};
use super::{Settings, cores, value};

/// Why the broker cannot start with this configuration. One line each, which says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {path}: {error}", path = path.display())]
    Read {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{origin}: {message}")]
    Syntax { origin: String, message: String },
    #[error("{origin}: unknown key `{key}`{hint}")]
    UnknownKey {
        origin: String,
        key: String,
        hint: String,
    },
    #[error("{origin}: `{key}` {message}")]
    Value {
        origin: String,
        key: String,
        message: String,
    },
    #[error(transparent)]
    Cores(#[from] cores::CoresError),
}

/// What the command line gives; it wins over the file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub config: Option<PathBuf>,
    pub data_dir: Option<PathBuf>,
    pub listen: Option<String>,
    pub admin: Option<String>,
    pub cores: Option<String>,
}

impl BrokerConfig {
    /// Reads the file, if there is one, and the command line. `available_cores` is the process's
    /// affinity mask. The warnings are one line each.
    pub fn load(
        overrides: &Overrides,
        available_cores: &[usize],
    ) -> Result<(Self, Vec<String>), ConfigError> {
        let (settings, warnings) = match &overrides.config {
            None => (Settings::new(), Vec::new()),
            Some(path) => {
                let contents =
                    std::fs::read_to_string(path).map_err(|error| ConfigError::Read {
                        path: path.clone(),
                        error,
                    })?;
                read_settings(&contents, path)?
            }
        };
        let config = typed(settings, overrides, available_cores)?;
        Ok((config, warnings))
    }
}

/// The settings of a file's text, checked, and warnings about those without effect.
pub fn read_settings(contents: &str, path: &Path) -> Result<(Settings, Vec<String>), ConfigError> {
    let origin = path.display().to_string();
    let table: toml::Table = contents.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map(|span| contents[..span.start].lines().count().max(1));
        ConfigError::Syntax {
            origin: line.map_or_else(|| origin.clone(), |line| format!("{origin}:{line}")),
            message: format!("not valid TOML: {}", error.message()),
        }
    })?;
    let mut flat = Vec::new();
    flatten(&table, String::new(), &mut flat);
    let mut settings = Settings::new();
    let mut warnings = Vec::new();
    for (key, found) in flat {
        let Some(setting) = table::find_broker(&key) else {
            return Err(unknown(origin, key));
        };
        let wrong = |message: String| ConfigError::Value {
            origin: origin.clone(),
            key: key.clone(),
            message,
        };
        let text = text_of(setting.kind, &found).map_err(wrong)?;
        value::check(setting.kind, setting.rule, &text)
            .map_err(|reason| wrong(format!("cannot be `{text}`: {}", lower_first(&reason))))?;
        match setting.support {
            Support::Refused(why) => return Err(wrong(format!("is not supported: {why}"))),
            Support::Inert(why) => {
                warnings.push(format!("{origin}: `{key}` has no effect: {why}"));
            }
            Support::Effective => {}
        }
        if settings.insert(key.clone(), text).is_some() {
            return Err(wrong("is set twice, in two spellings; keep one".to_owned()));
        }
    }
    Ok((settings, warnings))
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}

/// Nested tables become dotted names.
fn flatten(table: &toml::Table, prefix: String, flat: &mut Vec<(String, toml::Value)>) {
    for (key, found) in table {
        let name = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        match found {
            toml::Value::Table(inner) => flatten(inner, name, flat),
            other => flat.push((name, other.clone())),
        }
    }
}

fn unknown(origin: String, key: String) -> ConfigError {
    let distance = |name: &str| strsim::damerau_levenshtein(name, &key);
    let nearest = table::BROKER
        .iter()
        .map(|setting| setting.name)
        .min_by_key(|name| distance(name));
    let hint = match nearest {
        // Farther away it is a guess that misleads.
        Some(name) if distance(name) <= key.len() / 3 + 1 => format!("; did you mean `{name}`?"),
        _ if table::find_topic(&key).is_some() => {
            "; it is a topic's setting: set it with kafka-configs or when the topic is made"
                .to_owned()
        }
        _ => "; README.md says where the settings are listed".to_owned(),
    };
    ConfigError::UnknownKey { origin, key, hint }
}

/// A TOML value as Kafka's text. Numbers and booleans may be given as strings too, as in
/// server.properties.
fn text_of(kind: value::Kind, found: &toml::Value) -> Result<String, String> {
    use value::Kind;
    let expected = match kind {
        Kind::Boolean => "true or false",
        Kind::Int | Kind::Long => "a whole number",
        Kind::Double => "a number",
        Kind::Text => "a string",
        Kind::List => "a string or a list of strings",
    };
    let wrong = || {
        Err(format!(
            "must be {expected}, not {}: {found}",
            article(found.type_str())
        ))
    };
    match (kind, found) {
        (_, toml::Value::String(text)) => {
            let is_number = !matches!(kind, Kind::Text | Kind::List);
            if is_number && value::check(kind, value::Rule::Any, text).is_err() {
                wrong()
            } else {
                Ok(text.clone())
            }
        }
        (Kind::Boolean, toml::Value::Boolean(flag)) => Ok(flag.to_string()),
        (Kind::Int | Kind::Long | Kind::Double, toml::Value::Integer(number)) => {
            Ok(number.to_string())
        }
        (Kind::Double, toml::Value::Float(number)) => Ok(format!("{number:?}")),
        (Kind::List, toml::Value::Array(items)) => {
            let texts: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            texts.map_or_else(wrong, |texts| Ok(texts.join(",")))
        }
        _ => wrong(),
    }
}

fn article(kind: &str) -> String {
    if kind.starts_with(['a', 'i']) {
        format!("an {kind}")
    } else {
        format!("a {kind}")
    }
}

fn typed(
    mut settings: Settings,
    overrides: &Overrides,
    available_cores: &[usize],
) -> Result<BrokerConfig, ConfigError> {
    if let Some(listen) = &overrides.listen {
        settings.insert("listeners".to_owned(), format!("PLAINTEXT://{listen}"));
    }
    if let Some(admin) = &overrides.admin {
        settings.insert("ringmain.admin.listener".to_owned(), admin.clone());
    }
    if let Some(cores) = &overrides.cores {
        settings.insert("ringmain.cores".to_owned(), cores.clone());
    }
    if let Some(data_dir) = &overrides.data_dir {
        settings.remove("log.dir");
        settings.insert("log.dirs".to_owned(), data_dir.display().to_string());
    }
    let wrong = |key: &str, message: String| ConfigError::Value {
        origin: "configuration".to_owned(),
        key: key.to_owned(),
        message,
    };
    let listeners = broker::text(&settings, "listeners");
    let listen = listener(listeners).map_err(|message| wrong("listeners", message))?;
    let advertised = match settings.get("advertised.listeners") {
        None => None,
        Some(text) => {
            Some(advertised(text).map_err(|message| wrong("advertised.listeners", message))?)
        }
    };
    if listen.ip().is_unspecified() && advertised.is_none() {
        let message = format!(
            "is the wildcard address {}, to which clients cannot connect; set `advertised.listeners = \
             \"PLAINTEXT://HOST:{}\"` to what they can reach",
            listen.ip(),
            listen.port()
        );
        return Err(wrong("listeners", message));
    }
    let admin = broker::text(&settings, "ringmain.admin.listener");
    let admin = resolve(admin).map_err(|message| wrong("ringmain.admin.listener", message))?;
    let dirs = settings
        .get("log.dirs")
        .map_or_else(|| broker::text(&settings, "log.dir"), String::as_str);
    if dirs.contains(',') && overrides.data_dir.is_none() {
        return Err(wrong(
            "log.dirs",
            "names several directories; one is supported".to_owned(),
        ));
    }
    let data_dir = overrides
        .data_dir
        .clone()
        .unwrap_or_else(|| PathBuf::from(dirs.trim()));
    Ok(BrokerConfig {
        node_id: broker::number(&settings, "node.id"),
        data_dir,
        listen,
        advertised,
        admin,
        cores: cores::parse(broker::text(&settings, "ringmain.cores"), available_cores)?,
        auto_create_topics_enable: flag(&settings, "auto.create.topics.enable"),
        delete_topic_enable: flag(&settings, "delete.topic.enable"),
        num_partitions: broker::number(&settings, "num.partitions"),
        default_replication_factor: broker::number(&settings, "default.replication.factor"),
        socket_request_max_bytes: broker::number(&settings, "socket.request.max.bytes"),
        fetch_max_bytes: broker::number(&settings, "fetch.max.bytes"),
        fetch_session_slots: broker::number(&settings, "max.incremental.fetch.session.cache.slots"),
        producer_id_expiration_ms: broker::number(&settings, "producer.id.expiration.ms"),
        producer_id_expiration_check_interval_ms: broker::number(
            &settings,
            "producer.id.expiration.check.interval.ms",
        ),
        checkpoint_interval_ms: broker::number(
            &settings,
            "log.flush.offset.checkpoint.interval.ms",
        ),
        tail_cache_bytes: broker::number(&settings, "ringmain.tail.cache.bytes"),
        network_memory_bytes: broker::number(&settings, "ringmain.network.memory.bytes"),
        settings,
    })
}

fn flag(settings: &Settings, name: &str) -> bool {
    value::parse_boolean(broker::text(settings, name)).unwrap_or_default()
}

/// The host and port of the one listener.
fn endpoint(text: &str) -> Result<&str, String> {
    if value::list(text).count() > 1 {
        return Err("names several listeners; one is supported".to_owned());
    }
    match text.trim().split_once("://") {
        Some(("PLAINTEXT", endpoint)) => Ok(endpoint),
        Some((protocol, _)) => Err(format!(
            "names the protocol {protocol}; only PLAINTEXT is supported yet"
        )),
        None => Err(format!("must be PLAINTEXT://HOST:PORT, not `{text}`")),
    }
}

fn listener(text: &str) -> Result<SocketAddr, String> {
    let endpoint = endpoint(text)?;
    // Kafka writes "every address" as an empty host.
    if let Some(port) = endpoint.strip_prefix(':') {
        let port = port
            .parse()
            .map_err(|_| format!("must end in a port, not `{endpoint}`"))?;
        return Ok(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port));
    }
    resolve(endpoint)
}

fn advertised(text: &str) -> Result<(String, u16), String> {
    let endpoint = endpoint(text)?;
    let (host, port) = endpoint
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)))
        .ok_or_else(|| format!("must be PLAINTEXT://HOST:PORT, not `{text}`"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_wildcard = host
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_unspecified());
    if host.is_empty() || is_wildcard {
        return Err("must name a host that clients can reach, not a wildcard".to_owned());
    }
    Ok((host.to_owned(), port))
}

fn resolve(endpoint: &str) -> Result<SocketAddr, String> {
    let mut addresses = endpoint.to_socket_addrs().map_err(|error| {
        format!("must be HOST:PORT of this machine, not `{endpoint}` ({error})")
    })?;
    addresses
        .next()
        .ok_or_else(|| format!("names a host without an address: `{endpoint}`"))
}

#[cfg(test)]
mod tests;
