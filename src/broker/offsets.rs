//! ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where records are.

use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};

use super::Broker;
use super::errors::partition_code;
use crate::base::{LeaderEpoch, Offset};
use crate::partition::PartitionError;
use crate::partition::state::Isolation;
use crate::shard::messages::{Call, CallReply, EpochQuestion, OffsetQuestion, PartitionKey};
use crate::shard::scatter::{Open, scatter};

/// Asks the owners of all partitions that exist; the others get the error of a partition that is
/// not here. Answers come in the order of the questions.
async fn ask<Question, Answer>(
    broker: &Broker,
    questions: Vec<Option<Question>>,
    key_of: impl Fn(&Question) -> PartitionKey,
    close: impl Fn(Vec<Question>) -> Call,
    open: Open<Answer>,
) -> Vec<Result<Answer, PartitionError>> {
    let known: Vec<bool> = questions.iter().map(Option::is_some).collect();
    let present = questions.into_iter().flatten().collect();
    let scattered = scatter(broker.shard(), present, key_of, close, open).await;
    let mut answers = scattered.gather().await.into_iter();
    known
        .into_iter()
        .map(|is_known| match is_known {
            true => answers.next().unwrap_or(Err(PartitionError::Stopping)),
            false => Err(PartitionError::NotHere),
        })
        .collect()
}

pub async fn list_offsets(
    broker: &Broker,
    version: i16,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = match request.isolation_level {
        0 => Isolation::HighWatermark,
        _ => Isolation::Committed,
    };
    let mut questions = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = broker.key_by_name(&topic.name, partition.partition_index);
            questions.push(key.map(|key| OffsetQuestion {
                key,
                timestamp: partition.timestamp,
                version,
                leader_epoch: LeaderEpoch(partition.current_leader_epoch),
                isolation,
            }));
        }
    }
    let open = |reply| match reply {
        CallReply::ListOffsets(answers) => Some(answers),
        _ => None,
    };
    let answers = ask(
        broker,
        questions,
        |question| question.key,
        Call::ListOffsets,
        open,
    )
    .await;
    let mut answers = answers.into_iter();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic
            .partitions
            .iter()
            .zip(&mut answers)
            .map(|(partition, answer)| {
                let response = ListOffsetsPartitionResponse::default()
                    .with_partition_index(partition.partition_index);
                match answer {
                    Ok(found) => {
                        let response = response
                            .with_timestamp(found.timestamp.0)
                            .with_offset(found.offset.0);
                        // The field came with version 4.
                        match version {
                            4.. => response.with_leader_epoch(found.leader_epoch.0),
                            _ => response,
                        }
                    }
                    Err(error) => response.with_error_code(partition_code(&error).code()),
                }
            });
        ListOffsetsTopicResponse::default()
            .with_partitions(partitions.collect())
            .with_name(topic.name)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

pub async fn offset_for_leader_epoch(
    broker: &Broker,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut questions = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = broker.key_by_name(&topic.topic, partition.partition);
            questions.push(key.map(|key| EpochQuestion {
                key,
                current_epoch: LeaderEpoch(partition.current_leader_epoch),
                asked_epoch: LeaderEpoch(partition.leader_epoch),
            }));
        }
    }
    let open = |reply| match reply {
        CallReply::EndOfEpochs(answers) => Some(answers),
        _ => None,
    };
    let answers = ask(
        broker,
        questions,
        |question| question.key,
        Call::EndOfEpochs,
        open,
    )
    .await;
    let mut answers = answers.into_iter();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic
            .partitions
            .iter()
            .zip(&mut answers)
            .map(|(partition, answer)| {
                let response = EpochEndOffset::default().with_partition(partition.partition);
                match answer {
                    Ok(end) => response
                        .with_leader_epoch(end.epoch.0)
                        .with_end_offset(end.end_offset.0),
                    Err(error) => response.with_error_code(partition_code(&error).code()),
                }
            });
        OffsetForLeaderTopicResult::default()
            .with_partitions(partitions.collect())
            .with_topic(topic.topic)
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

pub async fn delete_records(
    broker: &Broker,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    /// "Up to the high watermark."
    const HIGH_WATERMARK: i64 = -1;
    let mut questions = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = broker.key_by_name(&topic.name, partition.partition_index);
            let before = (partition.offset != HIGH_WATERMARK).then_some(Offset(partition.offset));
            questions.push(key.map(|key| (key, before)));
        }
    }
    let open = |reply| match reply {
        CallReply::DeleteRecords(answers) => Some(answers),
        _ => None,
    };
    let answers = ask(
        broker,
        questions,
        |question| question.0,
        Call::DeleteRecords,
        open,
    )
    .await;
    let mut answers = answers.into_iter();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic
            .partitions
            .iter()
            .zip(&mut answers)
            .map(|(partition, answer)| {
                let response = DeleteRecordsPartitionResult::default()
                    .with_partition_index(partition.partition_index);
                match answer {
                    Ok(low_watermark) => response.with_low_watermark(low_watermark.0),
                    Err(error) => response
                        .with_low_watermark(Offset::UNKNOWN.0)
                        .with_error_code(partition_code(&error).code()),
                }
            });
        DeleteRecordsTopicResult::default()
            .with_partitions(partitions.collect())
            .with_name(topic.name)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}
