//! Kafka's wire protocol and record batches: pure functions over bytes.
//!
//! Reading order: [`versions`] (which APIs, which versions), [`wire`] (primitive types), [`frame`]
//! (request and response headers), [`guard`] (counts checked before anything is allocated), the
//! codecs of the hot messages ([`api_versions`], [`produce`], [`fetch`]), and record batches:
//! [`batch`] (the header), [`compression`], [`records`] (inside a batch), [`builder`].
//!
//! All other messages are the crate `kafka-protocol`'s, decoded through [`decode`].
//!
//! Deliberately absent: sockets, time, and any knowledge of topics.

pub mod api_versions;
pub mod batch;
pub mod builder;
pub mod compression;
pub mod fetch;
pub mod frame;
pub mod guard;
pub mod produce;
pub mod records;
pub mod versions;
pub mod wire;

use bytes::Bytes;
use kafka_protocol::protocol::Decodable;

/// A request's body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    #[error("malformed request: {0}")]
    Malformed(String),
}

/// Decodes a message of the crate `kafka-protocol`, after [`guard::check`] found its counts honest.
pub fn decode<T: Decodable>(api_key: i16, version: i16, mut body: Bytes) -> Result<T, DecodeError> {
    guard::check(api_key, version, &body)?;
    T::decode(&mut body, version).map_err(|error| DecodeError::Malformed(error.to_string()))
}
