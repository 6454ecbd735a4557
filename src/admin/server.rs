//! The routes, and the server under them.

use std::io;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::sync::watch;

use super::state::AdminState;
use super::status::Status;
use crate::observability::registry;

/// How long answers in flight may take once the server is asked to stop. Then they are cut off: an
/// idle keep-alive connection must not hold up the broker's end.
const STOP_MS_MAX: u64 = 1000;

/// The admin interface cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("the admin interface cannot use its socket: {0}; choose another address with --admin")]
    Socket(io::Error),
    #[error("the admin interface stopped: {0}")]
    Stopped(io::Error),
}

/// [`serve_until`] the runtime ends. A failure is logged: the broker works on without it.
pub async fn serve(listener: std::net::TcpListener, state: AdminState) {
    if let Err(error) = serve_until(listener, state, std::future::pending()).await {
        tracing::error!(%error, "no admin interface");
    }
}

/// Serves until `shutdown` resolves, and answers what had begun by then, for a second at most.
///
/// # Errors
/// The socket cannot be used on this runtime. A client's failure ends only its connection.
pub async fn serve_until(
    listener: std::net::TcpListener,
    state: AdminState,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), AdminError> {
    listener.set_nonblocking(true).map_err(AdminError::Socket)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(AdminError::Socket)?;
    let (stopping, mut stops) = watch::channel(());
    let shutdown = async move {
        shutdown.await;
        drop(stopping);
    };
    let served = axum::serve(listener, router(state)).with_graceful_shutdown(shutdown);
    let cut_off = async {
        // Nothing is ever sent: this resolves when `stopping` is dropped.
        let _ = stops.changed().await;
        tokio::time::sleep(Duration::from_millis(STOP_MS_MAX)).await;
    };
    tokio::select! {
        result = served => result.map_err(AdminError::Stopped),
        () = cut_off => Ok(()),
    }
}

fn router(state: AdminState) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .with_state(state)
}

async fn readiness(State(state): State<AdminState>) -> Response {
    let reasons = state.health().reasons();
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    let lines: String = reasons
        .iter()
        .map(|(part, reason)| format!("{part}: {reason}\n"))
        .collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn metrics(State(state): State<AdminState>) -> Response {
    let headers = [(header::CONTENT_TYPE, registry::CONTENT_TYPE)];
    (headers, state.metrics().render()).into_response()
}

async fn status(State(state): State<AdminState>) -> Json<Status> {
    Json(Status::of(&state))
}

#[cfg(test)]
mod tests;
