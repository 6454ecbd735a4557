//! What the answers are made from.

use std::sync::{Arc, Mutex, PoisonError};

use crate::base::NodeId;
use crate::cluster::MetadataImage;
use crate::config::BrokerConfig;
use crate::observability::{Health, MetricsRegistry};

/// The part of [`Health`] that [`AdminState::set_ready`] clears.
const BROKER: &str = "broker";

/// Shared by the admin interface and those who tell it the news; clones are the same state.
#[derive(Debug, Clone)]
pub struct AdminState(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node_id: NodeId,
    metrics: Arc<MetricsRegistry>,
    health: Health,
    image: Mutex<Arc<MetadataImage>>,
}

impl AdminState {
    /// Not ready, and with an empty image.
    pub fn new(metrics: Arc<MetricsRegistry>, config: &BrokerConfig, cluster_id: &str) -> Self {
        Self::of(config.node_id, metrics, cluster_id)
    }

    pub(super) fn of(node_id: NodeId, metrics: Arc<MetricsRegistry>, cluster_id: &str) -> Self {
        Self(Arc::new(Inner {
            node_id,
            metrics,
            health: Health::starting(),
            image: Mutex::new(Arc::new(MetadataImage::empty(cluster_id))),
        }))
    }

    /// Clients are served now.
    pub fn set_ready(&self) {
        self.0.health.clear(BROKER);
    }

    /// The broker is about to end: no new clients should be sent here.
    pub fn set_stopping(&self) {
        self.0.health.set(BROKER, "the broker is stopping");
    }

    /// Where other parts report what keeps them from being ready.
    pub fn health(&self) -> &Health {
        &self.0.health
    }

    /// The image that the shards act on.
    pub fn set_image(&self, image: Arc<MetadataImage>) {
        // One assignment: a panic elsewhere cannot have left half of it.
        *self.0.image.lock().unwrap_or_else(PoisonError::into_inner) = image;
    }

    pub(super) fn image(&self) -> Arc<MetadataImage> {
        let image = self.0.image.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&image)
    }

    pub(super) fn metrics(&self) -> &MetricsRegistry {
        &self.0.metrics
    }

    pub(super) fn node_id(&self) -> NodeId {
        self.0.node_id
    }
}
