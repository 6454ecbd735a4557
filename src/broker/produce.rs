//! Produce: batches go to their owners at once, the response when they are committed.

use super::dispatch::{BrokerOutcome, BrokerStarted};
use super::errors::{ResponseError, partition_code};
use super::{Broker, find_topic, key_of};
use crate::base::{Offset, TimestampMs};
use crate::io::executor;
use crate::io::local::oneshot;
use crate::net::{Frame, Outcome, Reply, Started};
use crate::partition::{PartitionError, Produced};
use crate::protocol::frame::RequestHeader;
use crate::protocol::produce::{
    ProducePartitionResponse, ProduceRequest, ProduceTopicResponse, TopicRef, encode_response,
};
use crate::protocol::records::{RecordError, RecordsError};
use crate::shard::messages::{Call, CallReply, ProduceItem};
use crate::shard::scatter::{Scattered, scatter};

/// Starts a Produce request: when this resolves, every batch is in its owner's log or mailbox.
pub async fn produce(broker: &Broker, header: RequestHeader, frame: Frame) -> BrokerStarted {
    let Frame { bytes, permits } = frame;
    let request = match ProduceRequest::decode(bytes, &header) {
        Ok(request) => request,
        Err(error) => {
            return Started::Done(Outcome::Close(format!(
                "a malformed Produce request: {error}"
            )));
        }
    };
    let refusal = refusal_of(&request);
    let wants_reply = request.acks != 0;
    let mut slots = Vec::new();
    let mut items = Vec::new();
    let image = broker.image();
    for topic in request.topics {
        let known = find_topic(&image, &topic.topic);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let key = known.and_then(|known| key_of(known, partition.index));
            let verdict = match (&refusal, key) {
                (Some((code, message)), _) => Verdict::Refused(*code, message.clone()),
                (None, None) => Verdict::Refused(unknown_code(&topic.topic), None),
                (None, Some(key)) => {
                    items.push(ProduceItem {
                        key,
                        records: partition.records,
                        produce_version: header.api_version,
                        requires_all: request.acks == -1,
                    });
                    Verdict::Asked
                }
            };
            partitions.push((partition.index, verdict));
        }
        slots.push((topic.topic, partitions));
    }
    let open = |reply| match reply {
        CallReply::Produce(answers) => Some(answers),
        _ => None,
    };
    let scattered = scatter(broker.shard(), items, |item| item.key, Call::Produce, open).await;
    let finishing = finish(header, slots, scattered, wants_reply);
    if permits.is_empty() {
        return Started::Pending(Box::pin(finishing));
    }
    // The request's share of the memory is given back when its records are committed, acks=0 or
    // not, and even if the connection has gone by then.
    let (sender, receiver) = oneshot();
    executor::spawn_local(async move {
        let outcome = finishing.await;
        drop(permits);
        // The connection may have gone: then nobody needs the outcome.
        let _ = sender.send(outcome);
    })
    .detach();
    let abandoned = |_| Outcome::Close("the broker is stopping".to_owned());
    Started::Pending(Box::pin(
        async move { receiver.await.unwrap_or_else(abandoned) },
    ))
}

/// What was decided for a partition before its owner was asked.
enum Verdict {
    Asked,
    Refused(ResponseError, Option<String>),
}

/// What is wrong with the request as a whole.
fn refusal_of(request: &ProduceRequest) -> Option<(ResponseError, Option<String>)> {
    if !(-1..=1).contains(&request.acks) {
        return Some((ResponseError::InvalidRequiredAcks, None));
    }
    request.transactional_id.as_ref().map(|_| {
        let message = "transactions are not supported yet: produce without a transactional id";
        (ResponseError::InvalidRequest, Some(message.to_owned()))
    })
}

fn unknown_code(topic: &TopicRef) -> ResponseError {
    match topic {
        TopicRef::Name(_) => ResponseError::UnknownTopicOrPartition,
        TopicRef::Id(_) => ResponseError::UnknownTopicId,
    }
}

/// Waits for the commits and writes the response.
async fn finish(
    header: RequestHeader,
    slots: Vec<(TopicRef, Vec<(i32, Verdict)>)>,
    scattered: Scattered<Produced>,
    wants_reply: bool,
) -> BrokerOutcome {
    let mut answers = scattered.gather().await.into_iter();
    let topics: Vec<ProduceTopicResponse> = slots
        .into_iter()
        .map(|(topic, partitions)| ProduceTopicResponse {
            topic,
            partitions: partitions
                .into_iter()
                .map(|(index, verdict)| match verdict {
                    Verdict::Asked => answered(
                        index,
                        answers.next().unwrap_or(Err(PartitionError::Stopping)),
                    ),
                    Verdict::Refused(code, message) => failed(index, code, Vec::new(), message),
                })
                .collect(),
        })
        .collect();
    if wants_reply {
        return Outcome::Reply(Reply::from_bytes(encode_response(&header, &topics)));
    }
    // Without a reply the only way to tell of a failure is to close (as Kafka does).
    let failure = topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .find(|one| one.error_code != 0);
    match failure {
        Some(one) => Outcome::Close(format!(
            "a Produce request with acks=0 failed: code {} {}",
            one.error_code,
            one.error_message.as_deref().unwrap_or_default()
        )),
        None => Outcome::Nothing,
    }
}

fn answered(index: i32, answer: Result<Produced, PartitionError>) -> ProducePartitionResponse {
    match answer {
        Ok(produced) => ProducePartitionResponse {
            index,
            error_code: 0,
            base_offset: produced.base_offset,
            log_append_time: produced.log_append_time,
            log_start_offset: produced.log_start_offset,
            record_errors: Vec::new(),
            error_message: None,
        },
        Err(error) => {
            let code = partition_code(&error);
            let message = error.to_string();
            let records = match error {
                PartitionError::Records(RecordsError::Records { records, .. }) => records,
                _ => Vec::new(),
            };
            failed(index, code, records, Some(message))
        }
    }
}

fn failed(
    index: i32,
    code: ResponseError,
    record_errors: Vec<RecordError>,
    error_message: Option<String>,
) -> ProducePartitionResponse {
    ProducePartitionResponse {
        index,
        error_code: code.code(),
        base_offset: Offset::UNKNOWN,
        log_append_time: TimestampMs::NONE,
        log_start_offset: Offset::UNKNOWN,
        record_errors,
        error_message,
    }
}
