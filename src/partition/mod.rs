//! What a partition knows beside its bytes, as pure logic (now and events in, decisions out), and
//! the [`Partition`] that ties it to its log.
//!
//! Deliberately absent: requests and responses, clocks, and other shards. The host on the owner
//! shard passes the time and sends the answers.

pub mod epochs;
pub mod error;
pub mod list_offsets;
pub mod producers;
pub mod replayed;
pub mod state;
pub mod whole;

pub use epochs::{EpochEnd, LeaderEpochs};
pub use error::{CorruptCheckpoint, PartitionError};
pub use list_offsets::ListedOffset;
pub use producers::{AppendedBatch, ProducerStates, RememberedBatch, Verdict};
pub use state::PartitionState;
pub use whole::{Partition, PartitionRead, PartitionSetup, Produced, ReadInfo};
