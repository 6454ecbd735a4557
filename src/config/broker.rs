//! Settings of the broker in force, typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Settings, table};

/// What the broker was started with.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    pub node_id: i32,
    pub data_dir: PathBuf,
    /// Where to listen, and what to tell clients.
    pub listen: SocketAddr,
    pub advertised: Option<(String, u16)>,
    pub admin: SocketAddr,
    /// Ascending.
    pub cores: Vec<usize>,
    pub auto_create_topics_enable: bool,
    pub delete_topic_enable: bool,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub socket_request_max_bytes: usize,
    pub fetch_max_bytes: usize,
    pub fetch_session_slots: usize,
    pub producer_id_expiration_ms: i64,
    pub producer_id_expiration_check_interval_ms: u64,
    pub checkpoint_interval_ms: u64,
    pub tail_cache_bytes: usize,
    pub network_memory_bytes: usize,
    /// What was set in the configuration file, as texts: the static settings.
    pub settings: Settings,
}

/// The text of a broker setting: as set, or its default.
pub fn text<'a>(settings: &'a Settings, name: &str) -> &'a str {
    let default = || {
        table::find_broker(name)
            .and_then(|setting| setting.default)
            .unwrap_or("")
    };
    settings.get(name).map_or_else(default, String::as_str)
}

/// A number among settings that were checked; one that does not parse counts as 0.
pub fn number<T: TryFrom<i64> + Default>(settings: &Settings, name: &str) -> T {
    let number: i64 = text(settings, name).trim().parse().unwrap_or_default();
    T::try_from(number).unwrap_or_default()
}
