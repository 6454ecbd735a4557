//! Fetch: partitions are read where they live, and the response is put together from extents.
//!
//! A fetch that finds less than `min_bytes` parks: it registers with the partitions' owners, is
//! woken by the next commit to any of them, and reads again; `max_wait_ms` ends the wait.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::dispatch::BrokerOutcome;
use super::errors::{ResponseError, partition_code, session_code};
use super::fetch_session::{
    FetchAnswer, FetchContext, FetchOutcome, FetchPartition, FetchRequestView, ForgottenPartition,
    SessionError,
};
use super::{Broker, find_topic, key_of};
use crate::base::limits::{FETCH_BYTES_OVER_LIMIT, FETCH_RESPONSE_BYTES_MAX};
use crate::base::{Offset, TimestampMs, TopicId};
use crate::cluster::MetadataImage;
use crate::io::disk::Extent;
use crate::io::executor;
use crate::io::local::Gate;
use crate::net::{Outcome, Reply};
use crate::partition::PartitionError;
use crate::partition::state::Isolation;
use crate::protocol::fetch::{
    FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse, ForgottenTopic, Piece,
    TopicRef, encode_response,
};
use crate::protocol::frame::RequestHeader;
use crate::shard::messages::{
    Call, CallReply, PartitionKey, PartitionRead, ReadCall, ReadItem, SharedExtent, Watch, Watcher,
};
use crate::shard::scatter::scatter;

/// Topics are named by id from this version on (KIP-516).
const TOPIC_IDS_FROM: i16 = 13;
const READ_COMMITTED: i8 = 1;

/// What the request asks for beside its partitions.
#[derive(Debug, Clone, Copy)]
struct Terms {
    bytes_min: u64,
    bytes_max: usize,
    deadline: Instant,
    isolation: Isolation,
}

/// What came of one partition: what was read, or a code.
type Found = Result<PartitionRead, ResponseError>;

/// The most records that a request gets, in bytes, a first batch apart; little while the core holds
/// too many unsent replies.
pub fn response_bytes_max(broker: &Broker, request: &FetchRequest, is_core_over: bool) -> usize {
    let limit = if is_core_over {
        FETCH_BYTES_OVER_LIMIT
    } else {
        FETCH_RESPONSE_BYTES_MAX
    };
    usize::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(broker.config().fetch_max_bytes)
        .min(limit)
}

/// Answers with `bytes_max` bytes of records at most, a first batch apart.
pub async fn fetch(
    broker: Rc<Broker>,
    header: RequestHeader,
    request: FetchRequest,
    bytes_max: usize,
) -> BrokerOutcome {
    let terms = Terms {
        bytes_min: u64::try_from(request.min_bytes).unwrap_or(0),
        bytes_max,
        deadline: Instant::now()
            + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
        isolation: if request.isolation_level == READ_COMMITTED {
            Isolation::Committed
        } else {
            Isolation::HighWatermark
        },
    };
    let view = session_view(&broker.image(), request, header.api_version);
    let begun = broker
        .fetch_sessions
        .borrow_mut()
        .begin(view, TimestampMs::now());
    let context = match begun {
        Ok(context) => context,
        Err(error) => return refused(&header, error),
    };
    let found = find_records(&broker, &context.partitions, terms).await;
    let partitions = context.partitions.clone();
    match finish_session(&broker, context, &found) {
        Ok(answer) => respond(&broker, &header, partitions, found, answer),
        Err(error) => refused(&header, error),
    }
}

fn refused(header: &RequestHeader, error: SessionError) -> BrokerOutcome {
    let response: FetchResponse<Vec<SharedExtent>> = FetchResponse {
        error_code: session_code(&error).code(),
        session_id: 0,
        topics: Vec::new(),
    };
    outcome_of(header, response)
}

fn session_view(image: &MetadataImage, request: FetchRequest, version: i16) -> FetchRequestView {
    let naming = |topic: &TopicRef| match topic {
        TopicRef::Name(name) => {
            let known = image.topic(name);
            let name = known.map_or_else(|| name.as_str().into(), |topic| topic.name.clone());
            (Some(name), TopicId::ZERO)
        }
        TopicRef::Id(id) => (image.topic_by_id(*id).map(|topic| topic.name.clone()), *id),
    };
    let mut partitions = Vec::new();
    for topic in request.topics {
        let (name, topic_id) = naming(&topic.topic);
        partitions.extend(
            topic
                .partitions
                .into_iter()
                .map(|partition| FetchPartition {
                    topic: name.clone(),
                    topic_id,
                    partition: partition.partition,
                    fetch_offset: partition.fetch_offset,
                    max_bytes: partition.max_bytes,
                    current_leader_epoch: partition.current_leader_epoch,
                    log_start_offset: partition.log_start_offset,
                    last_fetched_epoch: partition.last_fetched_epoch,
                }),
        );
    }
    let forget = |topic: ForgottenTopic| {
        let (name, topic_id) = naming(&topic.topic);
        topic
            .partitions
            .into_iter()
            .map(move |partition| ForgottenPartition {
                topic: name.clone(),
                topic_id,
                partition,
            })
    };
    FetchRequestView {
        version,
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        from_follower: request.replica_id >= 0,
        partitions,
        forgotten: request.forgotten.into_iter().flat_map(forget).collect(),
    }
}

fn topic_ref(partition: &FetchPartition, version: i16) -> TopicRef {
    if version >= TOPIC_IDS_FROM {
        TopicRef::Id(partition.topic_id)
    } else {
        TopicRef::Name(partition.topic.as_deref().unwrap_or_default().to_owned())
    }
}

/// The partitions' places in the cluster, or why they have none.
fn resolve(
    image: &MetadataImage,
    partitions: &[FetchPartition],
    terms: Terms,
) -> Vec<Result<ReadItem, ResponseError>> {
    let place = |partition: &FetchPartition| {
        let by_id = partition.topic_id != TopicId::ZERO;
        let topic = match (&partition.topic, by_id) {
            (_, true) => find_topic(image, &TopicRef::Id(partition.topic_id)),
            (Some(name), false) => image.topic(name),
            (None, false) => None,
        };
        let unnamed = if partition.topic.is_none() || by_id {
            ResponseError::UnknownTopicId
        } else {
            ResponseError::UnknownTopicOrPartition
        };
        let topic = topic.ok_or(unnamed)?;
        let key =
            key_of(topic, partition.partition).ok_or(ResponseError::UnknownTopicOrPartition)?;
        Ok(ReadItem {
            key,
            offset: partition.fetch_offset,
            bytes_max: usize::try_from(partition.max_bytes).unwrap_or(0),
            leader_epoch: partition.current_leader_epoch,
            isolation: terms.isolation,
        })
    };
    partitions.iter().map(place).collect()
}

/// Reads until there is enough, something is wrong, or the time is over.
async fn find_records(
    broker: &Rc<Broker>,
    partitions: &[FetchPartition],
    terms: Terms,
) -> Vec<Found> {
    let places = resolve(&broker.image(), partitions, terms);
    let mut found = read_once(broker, &places, terms, None).await;
    if is_enough(&found, terms) {
        return found;
    }
    let parked = Parked::new(broker, &places);
    loop {
        // Only now is it worth to be registered: this read finds what came in between.
        let watch = Watch {
            watcher: parked.watcher,
            bytes_wanted: terms.bytes_min,
        };
        parked.gate.close();
        found = read_once(broker, &places, terms, Some(watch)).await;
        if is_enough(&found, terms) {
            return found;
        }
        let left = terms.deadline.saturating_duration_since(Instant::now());
        if executor::timeout(left, parked.gate.pass()).await.is_err() {
            return found;
        }
    }
}

fn is_enough(found: &[Found], terms: Terms) -> bool {
    let bytes: u64 = found.iter().flatten().map(|read| read.bytes).sum();
    found.is_empty()
        || bytes >= terms.bytes_min
        || found.iter().any(Result::is_err)
        || Instant::now() >= terms.deadline
}

/// One read of all partitions, in the order of the request and within its limit.
async fn read_once(
    broker: &Broker,
    places: &[Result<ReadItem, ResponseError>],
    terms: Terms,
    watch: Option<Watch>,
) -> Vec<Found> {
    let items: Vec<ReadItem> = places.iter().filter_map(|place| place.ok()).collect();
    let close = |partitions| {
        Call::Read(ReadCall {
            partitions,
            bytes_max: terms.bytes_max,
            watch,
        })
    };
    let open = |reply| match reply {
        CallReply::Read(answers) => Some(answers),
        _ => None,
    };
    let scattered = scatter(broker.shard(), items, |item| item.key, close, open).await;
    let mut answers = scattered.gather().await.into_iter();
    let mut room = terms.bytes_max as u64;
    let mut is_first = true;
    places
        .iter()
        .map(|place| {
            let item = (*place)?;
            let answer = answers.next().unwrap_or(Err(PartitionError::Stopping));
            let mut read = answer.map_err(|error| partition_code(&error))?;
            // Each owner read with the whole limit: what is too much together is left for the
            // next fetch. Only the very first batch may be larger than the limits (KIP-74).
            let is_too_much = read.bytes > room || read.bytes > item.bytes_max as u64;
            if is_too_much && !is_first {
                read.extents.clear();
                read.bytes = 0;
            }
            is_first &= read.bytes == 0;
            room = room.saturating_sub(read.bytes);
            Ok(read)
        })
        .collect()
}

/// A parked fetch: unregistered everywhere when it is dropped.
struct Parked {
    broker: Rc<Broker>,
    watcher: Watcher,
    gate: Rc<Gate>,
    keys: Vec<PartitionKey>,
}

impl Parked {
    fn new(broker: &Rc<Broker>, places: &[Result<ReadItem, ResponseError>]) -> Self {
        let (id, gate) = broker.shard().router().park();
        let keys = places.iter().flatten().map(|item| item.key).collect();
        let watcher = Watcher {
            shard: broker.shard().id(),
            id,
        };
        Self {
            broker: Rc::clone(broker),
            watcher,
            gate,
            keys,
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let broker = Rc::clone(&self.broker);
        let watcher = self.watcher;
        broker.shard().router().unpark(watcher.id);
        let keys = std::mem::take(&mut self.keys);
        executor::spawn_local(async move {
            let close = |keys| Call::Unwatch {
                watch: watcher,
                keys,
            };
            let open = |_| None::<Vec<Result<(), PartitionError>>>;
            scatter(broker.shard(), keys, |key| *key, close, open)
                .await
                .gather()
                .await;
        })
        .detach();
    }
}

fn finish_session(
    broker: &Broker,
    context: FetchContext,
    found: &[Found],
) -> Result<FetchAnswer, SessionError> {
    let outcome = |found: &Found| match found {
        Ok(read) => FetchOutcome {
            high_watermark: read.info.high_watermark,
            log_start_offset: read.info.log_start_offset,
            has_records: read.bytes > 0,
            ..FetchOutcome::default()
        },
        Err(_) => FetchOutcome {
            high_watermark: Offset::UNKNOWN,
            log_start_offset: Offset::UNKNOWN,
            has_error: true,
            ..FetchOutcome::default()
        },
    };
    let outcomes: Vec<FetchOutcome> = found.iter().map(outcome).collect();
    broker
        .fetch_sessions
        .borrow_mut()
        .finish(context, &outcomes, TimestampMs::now(), rand::random)
}

/// Puts the response together: neighbouring partitions of a topic stand under it once.
fn respond(
    broker: &Broker,
    header: &RequestHeader,
    partitions: Vec<FetchPartition>,
    found: Vec<Found>,
    answer: FetchAnswer,
) -> BrokerOutcome {
    let mut topics: Vec<FetchTopicResponse<Vec<SharedExtent>>> = Vec::new();
    let mut memory_bytes = 0;
    let mut file_bytes = 0;
    for ((partition, found), included) in partitions.iter().zip(found).zip(answer.included) {
        if !included {
            continue;
        }
        let response = partition_response(partition, found);
        for extent in &response.records {
            match extent {
                Extent::Memory(bytes) => memory_bytes += bytes.len() as u64,
                Extent::File { len, .. } => file_bytes += len,
            }
        }
        let topic = topic_ref(partition, header.api_version);
        match topics.last_mut() {
            Some(last) if last.topic == topic => last.partitions.push(response),
            _ => topics.push(FetchTopicResponse {
                topic,
                partitions: vec![response],
            }),
        }
    }
    broker
        .shard()
        .metrics()
        .count_fetch(memory_bytes, file_bytes);
    let response = FetchResponse {
        error_code: 0,
        session_id: answer.session_id,
        topics,
    };
    outcome_of(header, response)
}

fn partition_response(
    partition: &FetchPartition,
    found: Found,
) -> FetchPartitionResponse<Vec<SharedExtent>> {
    match found {
        Ok(read) => FetchPartitionResponse {
            partition: partition.partition,
            error_code: 0,
            high_watermark: read.info.high_watermark,
            last_stable_offset: read.info.last_stable_offset,
            log_start_offset: read.info.log_start_offset,
            record_bytes: usize::try_from(read.bytes).unwrap_or(usize::MAX),
            records: read.extents,
        },
        Err(code) => FetchPartitionResponse {
            partition: partition.partition,
            error_code: code.code(),
            high_watermark: Offset::UNKNOWN,
            last_stable_offset: Offset::UNKNOWN,
            log_start_offset: Offset::UNKNOWN,
            record_bytes: 0,
            records: Vec::new(),
        },
    }
}

fn outcome_of(header: &RequestHeader, response: FetchResponse<Vec<SharedExtent>>) -> BrokerOutcome {
    let mut pieces = Vec::new();
    for piece in encode_response(header, response) {
        match piece {
            Piece::Bytes(bytes) => pieces.push(Extent::Memory(bytes)),
            Piece::Records(extents) => pieces.extend(extents),
        }
    }
    Outcome::Reply(Reply { pieces })
}
