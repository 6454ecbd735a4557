//! Produce, versions 3 to 13: our own codec, so that record batches are neither copied nor looked
//! at here. From version 13 topics are named by id (KIP-516).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame::{RequestHeader, ResponseFrame};
use super::wire::{Reader, WireError, Writer};
use crate::base::{Offset, PartitionIndex, TimestampMs, TopicId};
use crate::protocol::records::RecordError;

const FLEXIBLE_FROM: i16 = 9;
const TOPIC_IDS_FROM: i16 = 13;

/// How a request names a topic: by name in older versions, by id in newer ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicRef {
    Name(String),
    Id(TopicId),
}

impl TopicRef {
    pub(super) fn read(
        reader: &mut Reader<'_>,
        flexible: bool,
        by_id: bool,
    ) -> Result<Self, WireError> {
        if by_id {
            Ok(Self::Id(TopicId(reader.read_uuid()?)))
        } else {
            Ok(Self::Name(reader.read_string(flexible)?.to_owned()))
        }
    }

    pub(super) fn write(&self, buffer: &mut BytesMut, flexible: bool) {
        match self {
            Self::Name(name) => buffer.put_string(name, flexible),
            Self::Id(id) => buffer.put_slice(id.0.as_bytes()),
        }
    }

    /// The least that a topic of a request takes, in bytes: a length, and an empty array.
    pub(super) const BYTES_MIN: usize = 2;
}

#[derive(Debug)]
pub struct ProduceRequest {
    pub transactional_id: Option<String>,
    pub acks: i16,
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic>,
}

#[derive(Debug)]
pub struct ProduceTopic {
    pub topic: TopicRef,
    pub partitions: Vec<ProducePartition>,
}

#[derive(Debug)]
pub struct ProducePartition {
    pub index: PartitionIndex,
    /// The record batches, cut out of the frame; null counts as empty.
    pub records: BytesMut,
}

impl ProduceRequest {
    /// Takes the request from a frame whose header was read.
    pub fn decode(mut frame: BytesMut, header: &RequestHeader) -> Result<Self, WireError> {
        frame.advance(header.body_start.min(frame.len()));
        let (mut request, ranges) = Self::read(&frame, header.api_version)?;
        // The ranges ascend: each batch is cut off the front of what is left.
        let mut cut_bytes = 0;
        let mut ranges = ranges.into_iter();
        for topic in &mut request.topics {
            for (partition, range) in topic.partitions.iter_mut().zip(&mut ranges) {
                frame.advance(range.start - cut_bytes);
                partition.records = frame.split_to(range.len());
                cut_bytes = range.end;
            }
        }
        Ok(request)
    }

    fn read(body: &[u8], version: i16) -> Result<(Self, Vec<std::ops::Range<usize>>), WireError> {
        let flexible = version >= FLEXIBLE_FROM;
        let mut reader = Reader::new(body);
        let mut ranges = Vec::new();
        let mut request = Self {
            transactional_id: reader.read_nullable_string(flexible)?.map(str::to_owned),
            acks: reader.read_i16()?,
            timeout_ms: reader.read_i32()?,
            topics: Vec::new(),
        };
        for _ in 0..reader.read_count(flexible, TopicRef::BYTES_MIN)? {
            let topic = TopicRef::read(&mut reader, flexible, version >= TOPIC_IDS_FROM)?;
            let mut partitions = Vec::new();
            for _ in 0..reader.read_count(flexible, 5)? {
                let index = reader.read_i32()?;
                let len = reader.read_bytes_length(flexible)?.unwrap_or(0);
                let start = reader.position();
                reader.take(len)?;
                ranges.push(start..start + len);
                reader.skip_tagged_fields(flexible)?;
                partitions.push(ProducePartition {
                    index,
                    records: BytesMut::new(),
                });
            }
            reader.skip_tagged_fields(flexible)?;
            request.topics.push(ProduceTopic { topic, partitions });
        }
        reader.skip_tagged_fields(flexible)?;
        Ok((request, ranges))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceTopicResponse {
    pub topic: TopicRef,
    pub partitions: Vec<ProducePartitionResponse>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducePartitionResponse {
    pub index: PartitionIndex,
    pub error_code: i16,
    pub base_offset: Offset,
    pub log_append_time: TimestampMs,
    pub log_start_offset: Offset,
    pub record_errors: Vec<RecordError>,
    pub error_message: Option<String>,
}

/// Writes the whole response frame.
pub fn encode_response(request: &RequestHeader, topics: &[ProduceTopicResponse]) -> Bytes {
    let version = request.api_version;
    let flexible = version >= FLEXIBLE_FROM;
    let mut frame = ResponseFrame::start(request);
    let buffer = &mut frame.buffer;
    buffer.put_count(topics.len(), flexible);
    for topic in topics {
        topic.topic.write(buffer, flexible);
        buffer.put_count(topic.partitions.len(), flexible);
        for partition in &topic.partitions {
            put_partition(buffer, partition, version);
        }
        buffer.put_no_tags(flexible);
    }
    // Throttle time: nobody is throttled.
    buffer.put_i32(0);
    buffer.put_no_tags(flexible);
    frame.finish()
}

fn put_partition(buffer: &mut BytesMut, partition: &ProducePartitionResponse, version: i16) {
    let flexible = version >= FLEXIBLE_FROM;
    buffer.put_i32(partition.index);
    buffer.put_i16(partition.error_code);
    buffer.put_i64(partition.base_offset.0);
    buffer.put_i64(partition.log_append_time.0);
    if version >= 5 {
        buffer.put_i64(partition.log_start_offset.0);
    }
    if version >= 8 {
        buffer.put_count(partition.record_errors.len(), flexible);
        for error in &partition.record_errors {
            buffer.put_i32(error.batch_index);
            buffer.put_nullable_string(Some(error.message), flexible);
            buffer.put_no_tags(flexible);
        }
        buffer.put_nullable_string(partition.error_message.as_deref(), flexible);
    }
    buffer.put_no_tags(flexible);
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::{self, TopicName, TransactionalId};
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn header(version: i16) -> RequestHeader {
        RequestHeader {
            api_key: 0,
            api_version: version,
            correlation_id: 5,
            client_id: None,
            body_start: 0,
        }
    }

    fn theirs(version: i16, records: &[Vec<u8>]) -> messages::ProduceRequest {
        let partitions = records.iter().zip(0..).map(|(records, index)| {
            PartitionProduceData::default()
                .with_index(index)
                .with_records(Some(Bytes::copy_from_slice(records)))
        });
        let mut topic = TopicProduceData::default().with_partition_data(partitions.collect());
        if version >= TOPIC_IDS_FROM {
            topic.topic_id = Uuid::from_u128(9);
        } else {
            topic.name = TopicName(StrBytes::from_static_str("a-topic"));
        }
        messages::ProduceRequest::default()
            .with_transactional_id(Some(TransactionalId(StrBytes::from_static_str("t"))))
            .with_acks(-1)
            .with_timeout_ms(1500)
            .with_topic_data(vec![topic.clone(), topic])
    }

    proptest! {
        #[test]
        fn requests_of_every_version_are_read_without_losing_a_byte(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..4),
            version in 3_i16..=13,
        ) {
            let mut body = BytesMut::new();
            theirs(version, &records).encode(&mut body, version).unwrap();
            let request = ProduceRequest::decode(body, &header(version)).unwrap();
            prop_assert_eq!(request.acks, -1);
            prop_assert_eq!(request.timeout_ms, 1500);
            prop_assert_eq!(request.transactional_id.as_deref(), Some("t"));
            prop_assert_eq!(request.topics.len(), 2);
            for topic in &request.topics {
                let read: Vec<_> = topic.partitions.iter().map(|part| part.records.to_vec()).collect();
                prop_assert_eq!(&read, &records);
            }
        }

        #[test]
        fn responses_of_every_version_are_what_clients_read(version in 3_i16..=13, offset: i64) {
            let topic = match version {
                TOPIC_IDS_FROM.. => TopicRef::Id(TopicId(Uuid::from_u128(9))),
                _ => TopicRef::Name("a-topic".to_owned()),
            };
            let partition = ProducePartitionResponse {
                index: 3,
                error_code: 87,
                base_offset: Offset(offset),
                log_append_time: TimestampMs(-1),
                log_start_offset: Offset(2),
                record_errors: vec![RecordError { batch_index: 4, message: "no" }],
                error_message: Some("all of it".to_owned()),
            };
            let response = [ProduceTopicResponse { topic, partitions: vec![partition] }];
            let mut bytes = encode_response(&header(version), &response);
            prop_assert_eq!(bytes.get_i32() as usize, bytes.len());
            prop_assert_eq!(bytes.get_i32(), 5);
            if version >= FLEXIBLE_FROM {
                prop_assert_eq!(bytes.get_u8(), 0);
            }
            let read = messages::ProduceResponse::decode(&mut bytes, version).unwrap();
            prop_assert!(bytes.is_empty());
            let partition = &read.responses[0].partition_responses[0];
            prop_assert_eq!(partition.base_offset, offset);
            prop_assert_eq!(partition.error_code, 87);
            if version >= 8 {
                prop_assert_eq!(partition.record_errors[0].batch_index, 4);
                prop_assert_eq!(partition.error_message.as_deref(), Some("all of it"));
            }
        }

        #[test]
        fn no_body_makes_the_decoder_panic(body: Vec<u8>, version in 3_i16..=13) {
            let _ = ProduceRequest::decode(BytesMut::from(&body[..]), &header(version));
        }
    }
}
