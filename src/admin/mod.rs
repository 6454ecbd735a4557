//! The admin HTTP: what an operator and their tools ask. Runs on the control thread.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 `ok` while the control thread lives |
//! | `/readyz` | 200 `ready` when all shards serve; else 503 and a reason a line |
//! | `/metrics` | the figures, for Prometheus |
//! | `/v1/status` | who this broker is and what it holds, in JSON |
//!
//! Deliberately absent: anything that changes something.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::sync::watch;

use crate::observability::health::OfflinePartition;
use crate::observability::metrics::PROMETHEUS_CONTENT_TYPE;
use crate::observability::{Health, MetricsRegistry};

/// How long a stop waits for responses that are under way.
const GRACE: Duration = Duration::from_secs(2);

/// What the answers are made of.
#[derive(Clone)]
pub struct AdminState {
    pub metrics: Arc<MetricsRegistry>,
    pub health: Arc<Health>,
    /// The facts at this moment; called on the control thread, and must not block.
    pub facts: Arc<dyn Fn() -> BrokerFacts + Send + Sync>,
}

/// What `/v1/status` says beside the health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokerFacts {
    pub node_id: i32,
    pub cluster_id: String,
    /// Cores by their numbers, one a shard.
    pub cores: Vec<usize>,
    pub topics: usize,
    pub partitions: usize,
    /// The offset that the metadata has reached.
    pub metadata_version: i64,
}

#[derive(Serialize)]
struct Status {
    version: &'static str,
    #[serde(flatten)]
    facts: BrokerFacts,
    ready: bool,
    not_ready_because: Vec<String>,
    offline_partitions: Vec<OfflinePartition>,
}

/// Serves until `stop` holds true, or its sender is gone; then lets responses under way end, for
/// a short time. The listener is bound already, so that its address was known before.
pub async fn serve(
    listener: TcpListener,
    state: AdminState,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut stopped = stop.clone();
    let server = axum::serve(listener, router(state)).with_graceful_shutdown(async move {
        // An error means that the sender is gone: a stop too.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let deadline = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
        tokio::time::sleep(GRACE).await;
    };
    first_of(server.into_future(), deadline).await
}

async fn first_of(
    server: impl Future<Output = io::Result<()>>,
    deadline: impl Future<Output = ()>,
) -> io::Result<()> {
    tokio::select! {
        result = server => result,
        () = deadline => Ok(()),
    }
}

fn router(state: AdminState) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .fallback(async || {
            let paths = "try /healthz, /readyz, /metrics or /v1/status\n";
            (StatusCode::NOT_FOUND, paths)
        })
        .with_state(state)
}

async fn readiness(State(state): State<AdminState>) -> Response {
    let reasons = state.health.reasons();
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    let lines: String = reasons.iter().map(|reason| format!("{reason}\n")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn metrics(State(state): State<AdminState>) -> Response {
    let content_type = [(header::CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE)];
    (content_type, state.metrics.render()).into_response()
}

async fn status(State(state): State<AdminState>) -> Response {
    let not_ready_because = state.health.reasons();
    Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        facts: (state.facts)(),
        ready: not_ready_because.is_empty(),
        not_ready_because,
        offline_partitions: state.health.offline_partitions(),
    })
    .into_response()
}

#[cfg(test)]
mod tests;
