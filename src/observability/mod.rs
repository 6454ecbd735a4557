//! stub
pub struct ShardMetrics;
#[allow(unused_variables)]
impl ShardMetrics {
    pub fn count_append(&self, records: u64, bytes: u64) {}
    pub fn count_request(&self, api_key: i16) {}
    pub fn count_bytes(&self, received: u64, sent: u64) {}
    pub fn count_fetch(&self, memory: u64, file: u64) {}
    pub fn connection_opened(&self) {}
    pub fn connection_closed(&self) {}
    pub fn heartbeat(&self, late_by: std::time::Duration) {}
    pub fn partition_offline(&self, partition: &str, reason: &str) {}
}
pub struct MetricsRegistry(Vec<std::sync::Arc<ShardMetrics>>);
impl MetricsRegistry {
    pub fn new(cores: &[usize]) -> Self {
        Self(
            cores
                .iter()
                .map(|_| std::sync::Arc::new(ShardMetrics))
                .collect(),
        )
    }
    pub fn shards(&self) -> &[std::sync::Arc<ShardMetrics>] {
        &self.0
    }
}
pub mod logging {
    pub fn init() {
        let _ = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .try_init();
    }
}
