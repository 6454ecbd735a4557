//! Connections: frames in, replies out in the order of their requests.
//!
//! Reading order: [`reply`] (what is sent), [`unsent`] (what it keeps in memory until then),
//! [`frame_reader`] (what comes in), [`connection`]
//! (the two tasks of one connection, and the [`Service`](connection::Service) they serve).
//!
//! Deliberately absent: anything of Kafka beyond the four bytes of a frame's length. The broker
//! fills [`Service`](connection::Service).

pub mod connection;
pub mod frame_reader;
pub mod reply;
pub mod unsent;

pub use connection::{ConnectionContext, Outcome, Service, Started, serve_connection};
pub use frame_reader::{Frame, FrameError};
pub use reply::Reply;
pub use unsent::{CoreUnsent, ReplyCharge};
