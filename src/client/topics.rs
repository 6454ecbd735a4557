//! Questions about topics: which partitions there are and who leads them, where they begin and end.

use std::collections::BTreeMap;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, BrokerId, CreateTopicsRequest, ListOffsetsRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::connection::Client;
use super::error::ClientError;
use crate::protocol::wire::{Reader, WireError};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const TOPIC_ALREADY_EXISTS: i16 = 36;

/// The offset at which a partition begins, as a time of ListOffsets.
pub const EARLIEST: i64 = -2;
/// The offset behind the last record that consumers may read.
pub const LATEST: i64 = -1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    pub name: String,
    pub error_code: i16,
    /// In ascending order.
    pub partitions: Vec<PartitionInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionInfo {
    pub index: i32,
    pub error_code: i16,
    /// `HOST:PORT` of the leader; none while there is no leader.
    pub leader: Option<String>,
}

impl Client {
    /// All topics, or those named; unknown ones come with their error code. Creates none.
    pub fn metadata(&mut self, topics: Option<&[&str]>) -> Result<Vec<TopicInfo>, ClientError> {
        let version = self.version(ApiKey::Metadata, 1, 12)?;
        let topics = topics.map(|names| {
            names
                .iter()
                .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))))
                .collect()
        });
        let request = MetadataRequest::default()
            .with_topics(topics)
            // Before version 4 it cannot be said, and the encoder refuses anything but the default.
            .with_allow_auto_topic_creation(version < 4);
        let body = self.call(ApiKey::Metadata, version, &request)?;
        read_metadata(&body, version).map_err(|source| self.unreadable(ApiKey::Metadata, source))
    }

    /// One topic, or none if it does not exist.
    pub fn topic(&mut self, name: &str) -> Result<Option<TopicInfo>, ClientError> {
        let found = self.metadata(Some(&[name]))?;
        match found.into_iter().find(|topic| topic.name == name) {
            Some(topic) if topic.error_code == 0 => Ok(Some(topic)),
            None => Ok(None),
            Some(topic) if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION => Ok(None),
            Some(topic) => Err(ClientError::refused(
                format!("no metadata of topic `{name}`"),
                topic.error_code,
                None,
            )),
        }
    }

    /// Creates a topic with settings of its own; one that exists already is left as it is.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        replication_factor: i16,
        timeout_ms: i32,
    ) -> Result<(), ClientError> {
        let version = self.version(ApiKey::CreateTopics, 2, 4)?;
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(partitions)
            .with_replication_factor(replication_factor);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(timeout_ms);
        let body = self.call(ApiKey::CreateTopics, version, &request)?;
        let results = read_create_topics(&body)
            .map_err(|source| self.unreadable(ApiKey::CreateTopics, source))?;
        match results.iter().find(|(topic, ..)| topic == name) {
            Some((_, code, message)) if *code != 0 && *code != TOPIC_ALREADY_EXISTS => {
                Err(ClientError::refused(
                    format!("cannot create topic `{name}`"),
                    *code,
                    message.as_deref(),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The offset of each partition at a time in milliseconds, [`EARLIEST`] or [`LATEST`]. Ask the
    /// leader of the partitions.
    pub fn list_offsets(
        &mut self,
        topic: &str,
        partitions: &[i32],
        time: i64,
    ) -> Result<BTreeMap<i32, i64>, ClientError> {
        let version = self.version(ApiKey::ListOffsets, 1, 2)?;
        let partitions = partitions.iter().map(|index| {
            ListOffsetsPartition::default()
                .with_partition_index(*index)
                .with_timestamp(time)
        });
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![
                ListOffsetsTopic::default()
                    .with_name(topic_name(topic))
                    .with_partitions(partitions.collect()),
            ]);
        let body = self.call(ApiKey::ListOffsets, version, &request)?;
        let rows = read_list_offsets(&body, version)
            .map_err(|source| self.unreadable(ApiKey::ListOffsets, source))?;
        let mut offsets = BTreeMap::new();
        for (index, code, offset) in rows {
            if code != 0 {
                let what = format!("no offsets of partition {index} of topic `{topic}`");
                return Err(ClientError::refused(what, code, None));
            }
            offsets.insert(index, offset);
        }
        Ok(offsets)
    }
}

fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// Metadata 1 to 12.
fn read_metadata(body: &[u8], version: i16) -> Result<Vec<TopicInfo>, WireError> {
    let flexible = version >= 9;
    let mut reader = Reader::new(body);
    if version >= 3 {
        reader.read_i32()?; // throttle time
    }
    let mut brokers = BTreeMap::new();
    for _ in 0..reader.read_count(flexible, 11)? {
        let id = reader.read_i32()?;
        let host = reader.read_string(flexible)?;
        let port = reader.read_i32()?;
        reader.read_nullable_string(flexible)?; // rack
        reader.skip_tagged_fields(flexible)?;
        brokers.insert(id, address(host, port));
    }
    if version >= 2 {
        reader.read_nullable_string(flexible)?; // cluster id
    }
    reader.read_i32()?; // controller
    let mut topics = Vec::new();
    for _ in 0..reader.read_count(flexible, 4)? {
        let error_code = reader.read_i16()?;
        let name = reader.read_nullable_string(flexible)?.unwrap_or_default();
        if version >= 10 {
            reader.read_uuid()?;
        }
        reader.read_bool()?; // internal
        let mut partitions = Vec::new();
        for _ in 0..reader.read_count(flexible, 12)? {
            partitions.push(read_partition(&mut reader, version, &brokers)?);
        }
        if version >= 8 {
            reader.read_i32()?; // authorized operations
        }
        reader.skip_tagged_fields(flexible)?;
        partitions.sort_by_key(|partition| partition.index);
        topics.push(TopicInfo {
            name: name.to_owned(),
            error_code,
            partitions,
        });
    }
    Ok(topics)
}

fn read_partition(
    reader: &mut Reader<'_>,
    version: i16,
    brokers: &BTreeMap<i32, String>,
) -> Result<PartitionInfo, WireError> {
    let flexible = version >= 9;
    let error_code = reader.read_i16()?;
    let index = reader.read_i32()?;
    let leader = reader.read_i32()?;
    if version >= 7 {
        reader.read_i32()?; // leader epoch
    }
    // Replicas, those in sync, and those offline.
    for _ in 0..if version >= 5 { 3 } else { 2 } {
        for _ in 0..reader.read_count(flexible, 4)? {
            reader.read_i32()?;
        }
    }
    reader.skip_tagged_fields(flexible)?;
    Ok(PartitionInfo {
        index,
        error_code,
        leader: brokers.get(&leader).cloned(),
    })
}

fn address(host: &str, port: i32) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// CreateTopics 2 to 4: throttle time, array of (name, error code, message).
fn read_create_topics(body: &[u8]) -> Result<Vec<(String, i16, Option<String>)>, WireError> {
    let mut reader = Reader::new(body);
    reader.read_i32()?;
    let mut results = Vec::new();
    for _ in 0..reader.read_count(false, 6)? {
        results.push((
            reader.read_string(false)?.to_owned(),
            reader.read_i16()?,
            reader.read_nullable_string(false)?.map(str::to_owned),
        ));
    }
    Ok(results)
}

/// ListOffsets 1 and 2: (partition, error code, offset).
fn read_list_offsets(body: &[u8], version: i16) -> Result<Vec<(i32, i16, i64)>, WireError> {
    let mut reader = Reader::new(body);
    if version >= 2 {
        reader.read_i32()?; // throttle time
    }
    let mut rows = Vec::new();
    for _ in 0..reader.read_count(false, 6)? {
        reader.read_string(false)?;
        for _ in 0..reader.read_count(false, 22)? {
            let index = reader.read_i32()?;
            let code = reader.read_i16()?;
            reader.read_i64()?; // timestamp
            rows.push((index, code, reader.read_i64()?));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
