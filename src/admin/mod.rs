//! The admin HTTP interface, on the control thread.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while the control thread runs |
//! | `/readyz` | 200 when clients are served, else 503 with the reasons, one a line |
//! | `/metrics` | Prometheus text |
//! | `/v1/status` | JSON: who this is, what it holds, what is wrong |
//!
//! Deliberately absent: anything that changes the broker.

mod server;
mod state;
mod status;

pub use server::{AdminError, serve, serve_until};
pub use state::AdminState;
pub use status::{OfflinePartition, Status};
