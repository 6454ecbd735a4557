//! A shard is one executor on one core with everything that it owns. Shards share nothing: they
//! call each other with typed, owned messages.
//!
//! Reading order: [`messages`] (what shards say to each other), [`mailbox`] (how it gets there),
//! [`partitions`] (the partitions of this shard), [`core`] (the shard itself), [`runtime`] (all
//! shards of the process).
//!
//! Deliberately absent: Kafka's request and response types (the broker translates), and locks.

pub mod mailbox;
pub mod messages;
