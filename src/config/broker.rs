//! The broker's settings in force, typed, and the rules that span several of them.

use std::path::PathBuf;

use crate::base::NodeId;

use super::cores::CoreSelection;
use super::endpoint::{Endpoint, Listener, parse_listeners};
use super::error::Problem;
use super::layers::{BrokerSettings, Entries, Reader};
use super::topic::{TopicConfig, TopicDefaults};

/// What the broker runs with. Every field is derived from the layers in `settings`; the
/// documentation of each is its row in the table. `None` in a limit is "no limit".
#[derive(Debug, Clone, PartialEq)]
pub struct BrokerConfig {
    /// The layers that the rest is derived from, for DescribeConfigs and changes.
    pub settings: BrokerSettings,
    pub node_id: NodeId,
    pub rack: Option<String>,
    pub data_dir: PathBuf,
    /// Where Kafka clients connect to; port 0 picks one.
    pub listen: Endpoint,
    /// What clients are told instead of the address bound; port 0 stands for the port bound.
    pub advertised: Option<Endpoint>,
    pub admin: Endpoint,
    pub cores: CoreSelection,

    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub auto_create_topics_enable: bool,
    pub delete_topic_enable: bool,
    /// What topics have where they set nothing themselves.
    pub topic_defaults: TopicDefaults,

    pub socket_request_max_bytes: usize,
    pub fetch_max_bytes: usize,
    pub fetch_session_slots: usize,
    pub max_request_partition_size_limit: usize,

    pub producer_id_expiration_ms: i64,
    pub checkpoint_interval_ms: u64,

    /// Budgets of each core.
    pub commit_log_bytes: u64,
    pub tail_cache_bytes: usize,
    pub network_in_bytes: usize,
}

impl BrokerConfig {
    /// Derives everything from checked layers. The problems that remain are those of settings
    /// that do not fit each other.
    pub fn from_settings(settings: BrokerSettings) -> Result<Self, Vec<Problem>> {
        let reader = Reader(|name: &str| settings.value(name));
        let mut problems = Problems(Vec::new());
        let node_id = problems.collect(node_id(&settings));
        let data_dir = problems.collect(data_dir(&settings));
        let listeners = problems.collect(listeners(&settings));
        let admin = problems.collect(admin_endpoint(&settings));
        let cores = problems.collect(cores(&settings));
        let topic_defaults = TopicDefaults::from_broker(&settings);
        check_alone(&settings, &mut problems);
        check_log(&settings, &topic_defaults, &mut problems);
        check_budget(&settings, &mut problems);
        let (Some(node_id), Some(data_dir), Some((listen, advertised)), Some(admin), Some(cores)) =
            (node_id, data_dir, listeners, admin, cores)
        else {
            return Err(problems.0);
        };
        if !problems.0.is_empty() {
            return Err(problems.0);
        }
        Ok(Self {
            node_id,
            rack: reader.text("broker.rack"),
            data_dir,
            listen,
            advertised,
            admin,
            cores,
            num_partitions: reader.unsigned("num.partitions"),
            default_replication_factor: i16::try_from(reader.integer("default.replication.factor"))
                .unwrap_or(i16::MAX),
            auto_create_topics_enable: reader.boolean("auto.create.topics.enable"),
            delete_topic_enable: reader.boolean("delete.topic.enable"),
            topic_defaults,
            socket_request_max_bytes: reader.unsigned("socket.request.max.bytes"),
            fetch_max_bytes: reader.unsigned("fetch.max.bytes"),
            fetch_session_slots: reader.unsigned("max.incremental.fetch.session.cache.slots"),
            max_request_partition_size_limit: reader.unsigned("max.request.partition.size.limit"),
            producer_id_expiration_ms: reader.integer("producer.id.expiration.ms"),
            checkpoint_interval_ms: reader.unsigned("log.flush.offset.checkpoint.interval.ms"),
            commit_log_bytes: reader.unsigned("ringmain.commit.log.bytes"),
            tail_cache_bytes: reader.unsigned("ringmain.tail.cache.bytes"),
            network_in_bytes: reader.unsigned("ringmain.network.in.bytes"),
            settings,
        })
    }

    /// The same broker with other dynamic settings: those for all brokers, and those for this
    /// one. Addresses and directory stay as they are.
    pub fn with_dynamic(
        &self,
        dynamic_default_entries: Entries,
        dynamic_broker_entries: Entries,
    ) -> Result<Self, Vec<Problem>> {
        let mut settings = BrokerSettings {
            static_entries: self.settings.static_entries.clone(),
            dynamic_default_entries,
            dynamic_broker_entries,
        };
        // The directory may have come from the command line, where it is one path whatever
        // characters it holds; it is not read as a list again.
        let directories = settings.static_entries.remove("log.dirs");
        let mut changed = Self::from_settings(settings)?;
        changed.data_dir = self.data_dir.clone();
        let directories = directories.map(|text| ("log.dirs".to_owned(), text));
        changed.settings.static_entries.extend(directories);
        Ok(changed)
    }
}

struct Problems(Vec<Problem>);

impl Problems {
    /// The value, or `None` with the problem noted.
    fn collect<T>(&mut self, outcome: Result<T, Problem>) -> Option<T> {
        outcome.map_err(|problem| self.0.push(problem)).ok()
    }
}

fn node_id(settings: &BrokerSettings) -> Result<NodeId, Problem> {
    let reader = Reader(|name: &str| settings.value(name));
    let id = if settings.is_explicit("broker.id") && !settings.is_explicit("node.id") {
        reader.integer("broker.id")
    } else {
        reader.integer("node.id")
    };
    match i32::try_from(id) {
        Ok(id) if id >= 0 => Ok(NodeId(id)),
        _ => Err(Problem::unusable("broker.id", "has to be 0 or more")),
    }
}

fn data_dir(settings: &BrokerSettings) -> Result<PathBuf, Problem> {
    let reader = Reader(|name: &str| settings.value(name));
    let key = if settings.is_explicit("log.dirs") {
        "log.dirs"
    } else {
        "log.dir"
    };
    let text = reader.text(key).unwrap_or_default();
    let directories: Vec<&str> = text.split(',').map(str::trim).collect();
    match directories.as_slice() {
        [""] => Err(Problem::unusable(key, "is empty; name the data directory")),
        [directory] => Ok(PathBuf::from(directory)),
        _ => Err(Problem::unusable(
            key,
            format!("names {} directories; one is supported", directories.len()),
        )),
    }
}

fn admin_endpoint(settings: &BrokerSettings) -> Result<Endpoint, Problem> {
    let key = "ringmain.admin.listener";
    let text = Reader(|name: &str| settings.value(name))
        .text(key)
        .unwrap_or_default();
    text.parse().map_err(|problem| Problem::Endpoint {
        key: key.to_owned(),
        problem,
    })
}

fn cores(settings: &BrokerSettings) -> Result<CoreSelection, Problem> {
    let key = "ringmain.cores";
    let text = Reader(|name: &str| settings.value(name))
        .text(key)
        .unwrap_or_default();
    CoreSelection::parse(&text).map_err(|problem| Problem::Cores {
        key: key.to_owned(),
        problem,
    })
}

/// The address to bind and the one to advertise.
fn listeners(settings: &BrokerSettings) -> Result<(Endpoint, Option<Endpoint>), Problem> {
    let listener = single_listener(settings, "listeners")?
        .ok_or_else(|| Problem::unusable("listeners", "names no listener for clients"))?;
    let advertised = single_listener(settings, "advertised.listeners")?;
    match &advertised {
        Some(advertised) if advertised.name != listener.name => Err(Problem::unusable(
            "advertised.listeners",
            format!(
                "names the listener {}, but `listeners` has {}",
                advertised.name, listener.name
            ),
        )),
        Some(advertised) if advertised.endpoint.is_wildcard() => Err(Problem::unusable(
            "advertised.listeners",
            "holds a wildcard address, which no client can connect to; name this host's own",
        )),
        None if listener.endpoint.is_wildcard() => Err(Problem::unusable(
            "listeners",
            format!(
                "has the wildcard address `{}`, which no client can connect to; \
                 set `advertised.listeners` to the address that clients use",
                listener.endpoint
            ),
        )),
        _ => Ok((
            listener.endpoint,
            advertised.map(|advertised| advertised.endpoint),
        )),
    }
}

/// The one client listener of a list, those of controllers left out.
fn single_listener(
    settings: &BrokerSettings,
    key: &'static str,
) -> Result<Option<Listener>, Problem> {
    let reader = Reader(|name: &str| settings.value(name));
    let text = reader.text(key).unwrap_or_default();
    let controllers = reader.text("controller.listener.names").unwrap_or_default();
    let is_controller = |name: &str| {
        let mut names = controllers.split(',').map(str::trim);
        names.any(|controller| controller.eq_ignore_ascii_case(name))
    };
    let mut listeners =
        parse_listeners(&text).map_err(|sentence| Problem::unusable(key, sentence))?;
    listeners.retain(|listener| !is_controller(&listener.name));
    let protocols = reader
        .text("listener.security.protocol.map")
        .unwrap_or_default();
    for listener in &listeners {
        let protocol = protocol_of(&listener.name, &protocols).ok_or_else(|| {
            let sentence = format!(
                "has the listener {}, which `listener.security.protocol.map` does not name",
                listener.name
            );
            Problem::unusable(key, sentence)
        })?;
        if protocol != "PLAINTEXT" {
            let sentence =
                format!("has a listener of protocol {protocol}; only PLAINTEXT is supported yet");
            return Err(Problem::unusable(key, sentence));
        }
    }
    if listeners.len() > 1 {
        let sentence = format!(
            "has {} client listeners; one is supported yet",
            listeners.len()
        );
        return Err(Problem::unusable(key, sentence));
    }
    Ok(listeners.pop())
}

fn protocol_of(listener: &str, map: &str) -> Option<String> {
    map.split(',')
        .filter_map(|entry| entry.trim().split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case(listener))
        .map(|(_, protocol)| protocol.to_ascii_uppercase())
}

/// This broker stands alone: what would make it part of a cluster is refused.
fn check_alone(settings: &BrokerSettings, problems: &mut Problems) {
    let reader = Reader(|name: &str| settings.value(name));
    for key in [
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
    ] {
        let members = reader.list(key).len();
        if members > 1 {
            let sentence = format!("names {members} nodes; a cluster is not supported yet");
            problems.0.push(Problem::unusable(key, sentence));
        }
    }
    let roles = reader.list("process.roles");
    if !roles.is_empty() && !roles.iter().any(|role| role == "broker") {
        let sentence = "has no `broker`; a controller alone is not supported yet";
        problems
            .0
            .push(Problem::unusable("process.roles", sentence));
    }
    let replicas = reader.integer("default.replication.factor");
    if replicas < 1 {
        let sentence = "has to be 1 or more";
        problems
            .0
            .push(Problem::unusable("default.replication.factor", sentence));
    }
}

fn check_log(settings: &BrokerSettings, defaults: &TopicDefaults, problems: &mut Problems) {
    for key in [
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ] {
        let value = settings.value(key).and_then(|value| value.as_integer());
        if value == Some(0) {
            // Kafka's own rule, in its words.
            let sentence = "must be unlimited (-1) or, equal or greater than 1";
            problems.0.push(Problem::unusable(key, sentence));
        }
    }
    let topic = TopicConfig::from_overrides(defaults, &Entries::new());
    if topic.min_compaction_lag_ms > topic.max_compaction_lag_ms {
        let sentence = format!(
            "({}) is more than `log.cleaner.max.compaction.lag.ms` ({})",
            topic.min_compaction_lag_ms, topic.max_compaction_lag_ms
        );
        let key = "log.cleaner.min.compaction.lag.ms";
        problems.0.push(Problem::unusable(key, sentence));
    }
}

/// The budget has to hold the largest single request, or that request would wait for ever.
fn check_budget(settings: &BrokerSettings, problems: &mut Problems) {
    let reader = Reader(|name: &str| settings.value(name));
    let request_bytes = reader.integer("socket.request.max.bytes");
    let key = "ringmain.network.in.bytes";
    let budget_bytes = reader.integer(key);
    if budget_bytes < request_bytes {
        let sentence = format!(
            "({budget_bytes}) is less than `socket.request.max.bytes` ({request_bytes}); \
             raise it, or lower that"
        );
        problems.0.push(Problem::unusable(key, sentence));
    }
}
