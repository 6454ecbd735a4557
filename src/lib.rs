//! Ringmain: a Kafka-compatible broker for Linux. One core, one ring, one log.
//!
//! The modules are listed from the bottom up; each may use only those above it in this list
//! (`tests/architecture.rs` holds that true). `ARCHITECTURE.md` draws the picture.
#![deny(unsafe_code)]

pub mod base;

pub mod config;
pub mod observability;
pub mod protocol;

pub mod io;

pub mod net;
pub mod storage;

pub mod cluster;
pub mod partition;

pub mod shard;

pub mod broker;

pub mod admin;
pub mod client;

pub mod cli;
