//! What the cluster knows of itself: topics, partitions, brokers, settings, producer ids.
//!
//! In reading order: the image and the records that change it; the controller, which decides;
//! the store, which makes decisions durable; the control loop, which ties them together.
//!
//! Deliberately absent: record bytes, sockets, and any other way to change an image than
//! [`MetadataImage::apply`](image::MetadataImage::apply).

pub mod image;
pub mod records;

pub mod controller;
pub mod placement;

pub mod identity;
pub mod store;

pub mod control;

pub use control::{ControlHandle, control_channel};
pub use controller::{
    Command, ConfigResource, ControllerContext, ControllerError, ControllerErrorKind, Defaults,
    Reply,
};
pub use image::{BrokerImage, MetadataImage, PartitionImage, TopicImage};
pub use placement::shard_of;
pub use records::MetadataRecord;
