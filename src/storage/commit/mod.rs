//! A core's commit log: one sequential stream of direct writes for the small appends of all its
//! partitions. One flush makes a group of appends durable, whatever number of partitions it is for;
//! the batches go to their segments later, in large writes.
//!
//! Reading order: the bytes ([`format`]), the files ([`files`]), the running log ([`log`]), and what
//! the next start makes of it ([`replay`]).
//!
//! ```text
//!   append -> pending in memory -> group -> write -> flush -> acknowledged
//!                              \-> segment, in whole blocks, when enough is there
//! ```
//! The promises that hold it together:
//! - An append is acknowledged when its group is flushed. Groups are acknowledged in order, and a
//!   partition's entries stand in the order of its offsets.
//! - A flush is asked for when the writes that it covers are complete.
//! - A group begins on a fresh block and is never written again. Two writes of a block are never in
//!   flight together.
//! - A file is used again when all its entries are in flushed segments, or logged once more, and a
//!   checkpoint says so. Until then appends wait: they neither fail nor make the log grow.

pub mod files;
pub mod format;
pub mod log;
pub mod replay;

pub use log::{CommitLog, CommitMember, Group};
pub use replay::{LoggedEntries, ReplayError};
