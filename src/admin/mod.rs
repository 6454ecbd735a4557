//! stub
use std::sync::Arc;
#[derive(Clone)]
pub struct AdminState;
#[allow(unused_variables)]
impl AdminState {
    pub fn new(
        registry: Arc<crate::observability::MetricsRegistry>,
        config: &crate::config::BrokerConfig,
        cluster_id: &str,
    ) -> Self {
        Self
    }
    pub fn set_ready(&self) {}
    pub fn set_image(&self, image: Arc<crate::cluster::MetadataImage>) {}
}
pub async fn serve(listener: std::net::TcpListener, state: AdminState) {}
