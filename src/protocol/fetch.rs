//! Fetch, versions 4 to 18: our own codec, so that record bytes are never copied into the response.
//! From version 13 topics are named by id (KIP-516); from version 7 there are sessions (KIP-227).

use bytes::{BufMut, Bytes, BytesMut};

use super::frame::{RequestHeader, ResponseFrame, patch_length};
pub use super::produce::TopicRef;
use super::wire::{Reader, WireError, Writer};
use crate::base::{LeaderEpoch, Offset, PartitionIndex};

const FLEXIBLE_FROM: i16 = 12;
const TOPIC_IDS_FROM: i16 = 13;
const SESSIONS_FROM: i16 = 7;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// Negative for consumers.
    pub replica_id: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    /// 0 reads uncommitted, 1 reads committed.
    pub isolation_level: i8,
    pub session_id: i32,
    pub session_epoch: i32,
    pub topics: Vec<FetchTopic>,
    pub forgotten: Vec<ForgottenTopic>,
    pub rack_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTopic {
    pub topic: TopicRef,
    pub partitions: Vec<FetchPartition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPartition {
    pub partition: PartitionIndex,
    /// -1 where not given.
    pub current_leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    pub last_fetched_epoch: LeaderEpoch,
    pub log_start_offset: Offset,
    pub max_bytes: i32,
}

/// Partitions that leave the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenTopic {
    pub topic: TopicRef,
    pub partitions: Vec<PartitionIndex>,
}

impl FetchRequest {
    /// Reads a request's body.
    pub fn decode(body: &[u8], version: i16) -> Result<Self, WireError> {
        let flexible = version >= FLEXIBLE_FROM;
        let by_id = version >= TOPIC_IDS_FROM;
        let mut reader = Reader::new(body);
        // Version 15 moved the replica id to a tagged field that only followers send.
        let replica_id = if version <= 14 {
            reader.read_i32()?
        } else {
            -1
        };
        let mut request = Self {
            replica_id,
            max_wait_ms: reader.read_i32()?,
            min_bytes: reader.read_i32()?,
            max_bytes: reader.read_i32()?,
            isolation_level: reader.read_i8()?,
            session_id: 0,
            session_epoch: -1,
            topics: Vec::new(),
            forgotten: Vec::new(),
            rack_id: String::new(),
        };
        if version >= SESSIONS_FROM {
            request.session_id = reader.read_i32()?;
            request.session_epoch = reader.read_i32()?;
        }
        for _ in 0..reader.read_count(flexible, TopicRef::BYTES_MIN)? {
            let topic = TopicRef::read(&mut reader, flexible, by_id)?;
            let mut partitions = Vec::new();
            for _ in 0..reader.read_count(flexible, 16)? {
                partitions.push(FetchPartition::read(&mut reader, version)?);
            }
            reader.skip_tagged_fields(flexible)?;
            request.topics.push(FetchTopic { topic, partitions });
        }
        if version >= SESSIONS_FROM {
            for _ in 0..reader.read_count(flexible, TopicRef::BYTES_MIN)? {
                let topic = TopicRef::read(&mut reader, flexible, by_id)?;
                let mut partitions = Vec::new();
                for _ in 0..reader.read_count(flexible, 4)? {
                    partitions.push(reader.read_i32()?);
                }
                reader.skip_tagged_fields(flexible)?;
                request.forgotten.push(ForgottenTopic { topic, partitions });
            }
        }
        if version >= 11 {
            request.rack_id = reader.read_string(flexible)?.to_owned();
        }
        let mut follower = None;
        reader.read_tagged_fields(flexible, |tag, mut field| {
            const REPLICA_STATE: u32 = 1;
            if tag == REPLICA_STATE && version >= 15 {
                follower = Some(field.read_i32()?);
            }
            Ok(())
        })?;
        request.replica_id = follower.unwrap_or(request.replica_id);
        Ok(request)
    }
}

impl FetchPartition {
    fn read(reader: &mut Reader<'_>, version: i16) -> Result<Self, WireError> {
        let partition = reader.read_i32()?;
        let current_leader_epoch = if version >= 9 { reader.read_i32()? } else { -1 };
        let fetch_offset = reader.read_i64()?;
        let last_fetched_epoch = if version >= 12 {
            reader.read_i32()?
        } else {
            -1
        };
        let log_start_offset = if version >= 5 { reader.read_i64()? } else { -1 };
        let max_bytes = reader.read_i32()?;
        reader.skip_tagged_fields(version >= FLEXIBLE_FROM)?;
        Ok(Self {
            partition,
            current_leader_epoch: LeaderEpoch(current_leader_epoch),
            fetch_offset: Offset(fetch_offset),
            last_fetched_epoch: LeaderEpoch(last_fetched_epoch),
            log_start_offset: Offset(log_start_offset),
            max_bytes,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse<Records> {
    pub error_code: i16,
    pub session_id: i32,
    pub topics: Vec<FetchTopicResponse<Records>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTopicResponse<Records> {
    pub topic: TopicRef,
    pub partitions: Vec<FetchPartitionResponse<Records>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPartitionResponse<Records> {
    pub partition: PartitionIndex,
    pub error_code: i16,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
    /// Where the records lie, and how many bytes they are.
    pub records: Records,
    pub record_bytes: usize,
}

/// A part of the response frame, in order.
#[derive(Debug)]
pub enum Piece<Records> {
    Bytes(Bytes),
    Records(Records),
}

/// Writes the response frame around the records, which are handed through.
pub fn encode_response<Records>(
    request: &RequestHeader,
    response: FetchResponse<Records>,
) -> Vec<Piece<Records>> {
    let version = request.api_version;
    let flexible = version >= FLEXIBLE_FROM;
    let mut pieces = Vec::new();
    let mut record_bytes = 0;
    let mut buffer = ResponseFrame::start(request).buffer;
    buffer.put_i32(0);
    if version >= SESSIONS_FROM {
        buffer.put_i16(response.error_code);
        buffer.put_i32(response.session_id);
    }
    buffer.put_count(response.topics.len(), flexible);
    let mut cuts = Vec::new();
    for topic in response.topics {
        topic.topic.write(&mut buffer, flexible);
        buffer.put_count(topic.partitions.len(), flexible);
        for partition in topic.partitions {
            put_partition(&mut buffer, &partition, version);
            if partition.record_bytes > 0 {
                record_bytes += partition.record_bytes;
                cuts.push((buffer.len(), partition.records));
            }
            buffer.put_no_tags(flexible);
        }
        buffer.put_no_tags(flexible);
    }
    buffer.put_no_tags(flexible);
    patch_length(&mut buffer, record_bytes);
    let bytes = buffer.freeze();
    let mut start = 0;
    for (end, records) in cuts {
        pieces.push(Piece::Bytes(bytes.slice(start..end)));
        pieces.push(Piece::Records(records));
        start = end;
    }
    pieces.push(Piece::Bytes(bytes.slice(start..)));
    pieces
}

/// All of a partition up to its records.
fn put_partition<Records>(
    buffer: &mut BytesMut,
    partition: &FetchPartitionResponse<Records>,
    version: i16,
) {
    let flexible = version >= FLEXIBLE_FROM;
    buffer.put_i32(partition.partition);
    buffer.put_i16(partition.error_code);
    buffer.put_i64(partition.high_watermark.0);
    buffer.put_i64(partition.last_stable_offset.0);
    if version >= 5 {
        buffer.put_i64(partition.log_start_offset.0);
    }
    // Aborted transactions: there are none.
    buffer.put_count(0, flexible);
    if version >= 11 {
        // Preferred read replica: this one.
        buffer.put_i32(-1);
    }
    buffer.put_count(partition.record_bytes, flexible);
}

#[cfg(test)]
mod tests {
    use bytes::Buf;
    use kafka_protocol::messages;
    use kafka_protocol::messages::fetch_request as theirs;
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::base::TopicId;

    fn header(version: i16) -> RequestHeader {
        RequestHeader {
            api_key: 1,
            api_version: version,
            correlation_id: 5,
            client_id: None,
            body_start: 0,
        }
    }

    fn topic_ref(version: i16) -> TopicRef {
        match version {
            TOPIC_IDS_FROM.. => TopicRef::Id(TopicId(Uuid::from_u128(7))),
            _ => TopicRef::Name("a-topic".to_owned()),
        }
    }

    proptest! {
        #[test]
        fn requests_of_every_version_are_read_as_they_were_meant(version in 4_i16..=18, offset: i64) {
            let partition = theirs::FetchPartition::default()
                .with_partition(4)
                .with_fetch_offset(offset)
                .with_partition_max_bytes(99);
            let mut topic = theirs::FetchTopic::default().with_partitions(vec![partition]);
            let mut forgotten = theirs::ForgottenTopic::default().with_partitions(vec![1, 2]);
            if version >= TOPIC_IDS_FROM {
                topic.topic_id = Uuid::from_u128(7);
                forgotten.topic_id = Uuid::from_u128(7);
            } else {
                topic.topic = messages::TopicName(StrBytes::from_static_str("a-topic"));
                forgotten.topic = messages::TopicName(StrBytes::from_static_str("a-topic"));
            }
            let mut sent = messages::FetchRequest::default()
                .with_max_wait_ms(500)
                .with_min_bytes(1)
                .with_max_bytes(1000)
                .with_isolation_level(1)
                .with_topics(vec![topic]);
            if version >= SESSIONS_FROM {
                sent.session_id = 3;
                sent.session_epoch = 8;
                sent.forgotten_topics_data = vec![forgotten];
            }
            if version >= 11 {
                sent.rack_id = StrBytes::from_static_str("r1");
            }
            let mut body = BytesMut::new();
            sent.encode(&mut body, version).unwrap();
            let read = FetchRequest::decode(&body, version).unwrap();
            prop_assert_eq!(read.max_wait_ms, 500);
            prop_assert_eq!(read.isolation_level, 1);
            prop_assert_eq!(read.replica_id, -1);
            prop_assert_eq!(&read.topics[0].topic, &topic_ref(version));
            prop_assert_eq!(read.topics[0].partitions[0].fetch_offset, Offset(offset));
            prop_assert_eq!(read.topics[0].partitions[0].max_bytes, 99);
            if version >= SESSIONS_FROM {
                prop_assert_eq!((read.session_id, read.session_epoch), (3, 8));
                prop_assert_eq!(&read.forgotten[0].partitions, &[1, 2]);
            }
        }

        #[test]
        fn responses_of_every_version_are_what_clients_read(
            version in 4_i16..=18,
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4),
        ) {
            let partitions = records.iter().zip(0..).map(|(records, partition)| FetchPartitionResponse {
                partition,
                error_code: 0,
                high_watermark: Offset(10),
                last_stable_offset: Offset(9),
                log_start_offset: Offset(1),
                records: records.clone(),
                record_bytes: records.len(),
            });
            let topics = vec![FetchTopicResponse { topic: topic_ref(version), partitions: partitions.collect() }];
            let response = FetchResponse { error_code: 0, session_id: 12, topics };
            let mut bytes = BytesMut::new();
            for piece in encode_response(&header(version), response) {
                match piece {
                    Piece::Bytes(piece) => bytes.put_slice(&piece),
                    Piece::Records(records) => bytes.put_slice(&records),
                }
            }
            let mut bytes = bytes.freeze();
            prop_assert_eq!(bytes.get_i32() as usize, bytes.len());
            bytes.advance(if version >= FLEXIBLE_FROM { 5 } else { 4 });
            let read = messages::FetchResponse::decode(&mut bytes, version).unwrap();
            prop_assert!(bytes.is_empty());
            let read: Vec<_> = read.responses[0]
                .partitions
                .iter()
                .map(|part| part.records.clone().unwrap_or_default().to_vec())
                .collect();
            prop_assert_eq!(read, records);
        }

        #[test]
        fn no_body_makes_the_decoder_panic(body: Vec<u8>, version in 4_i16..=18) {
            let _ = FetchRequest::decode(&body, version);
        }
    }
}
