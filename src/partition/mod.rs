//! What a partition knows beside its bytes, as pure logic: now and events in, decisions out.
//!
//! Deliberately absent: files, clocks, tasks. The host on the owner shard feeds events, writes
//! the encoded checkpoints and sends the answers.

pub mod epochs;
pub mod error;
pub mod list_offsets;
pub mod producers;
pub mod state;

pub use epochs::{EpochEnd, LeaderEpochs};
pub use error::{CorruptCheckpoint, PartitionError};
pub use producers::{AppendedBatch, ProducerStates, RememberedBatch, Verdict};
pub use state::PartitionState;
