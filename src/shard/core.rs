//! The shard itself: what it owns, and how calls are carried out on it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use super::mailbox::{Router, Stopping};
use super::messages::{
    Call, CallReply, EpochQuestion, OffsetQuestion, PartitionKey, PartitionRead, ProduceItem,
    ReadCall,
};
use super::partitions::{Found, Partitions};
use crate::base::{Offset, ShardId, TimestampMs};
use crate::cluster::{MetadataImage, placement};
use crate::io::executor;
use crate::io::local::Semaphore;
use crate::net::CoreUnsent;
use crate::observability::ShardMetrics;
use crate::partition::{PartitionError, Produced};

/// A call that was started: what must happen in the order of the calls has happened.
pub struct StartedCall(Pin<Box<dyn Future<Output = Result<CallReply, Stopping>>>>);

impl StartedCall {
    fn new(reply: impl Future<Output = Result<CallReply, Stopping>> + 'static) -> Self {
        Self(Box::pin(reply))
    }

    fn local(reply: impl Future<Output = CallReply> + 'static) -> Self {
        Self::new(async move { Ok(reply.await) })
    }

    fn done(reply: CallReply) -> Self {
        Self::local(std::future::ready(reply))
    }

    /// The reply, when all of the call is done.
    ///
    /// # Errors
    /// The owner is gone.
    pub async fn finish(self) -> Result<CallReply, Stopping> {
        self.0.await
    }
}

/// Everything that one core owns. Lives on its executor, behind an `Rc`.
pub struct Shard {
    router: Rc<Router>,
    image: RefCell<Arc<MetadataImage>>,
    partitions: Partitions,
    metrics: Arc<ShardMetrics>,
    network_budget: Semaphore,
    unsent: Rc<CoreUnsent>,
}

impl Shard {
    /// `network_budget_bytes` bounds the requests that this core holds at a time.
    pub fn new(
        router: Rc<Router>,
        image: Arc<MetadataImage>,
        partitions: Partitions,
        metrics: Arc<ShardMetrics>,
        network_budget_bytes: usize,
    ) -> Self {
        Self {
            router,
            image: RefCell::new(image),
            partitions,
            metrics,
            network_budget: Semaphore::new(network_budget_bytes),
            unsent: Rc::default(),
        }
    }

    pub fn id(&self) -> ShardId {
        self.router.shard()
    }

    pub fn shard_count(&self) -> u16 {
        self.router.shard_count()
    }

    pub fn router(&self) -> &Router {
        &self.router
    }

    pub fn metrics(&self) -> &ShardMetrics {
        &self.metrics
    }

    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// What replies of this core keep in memory until they are sent.
    pub fn unsent(&self) -> &Rc<CoreUnsent> {
        &self.unsent
    }

    /// Bytes of requests that this core may hold at a time.
    pub fn network_budget(&self) -> &Semaphore {
        &self.network_budget
    }

    pub fn image(&self) -> Arc<MetadataImage> {
        Arc::clone(&self.image.borrow())
    }

    pub fn owner_of(&self, key: PartitionKey) -> ShardId {
        placement::shard_of(key.topic_id, key.partition, self.shard_count())
    }

    /// Acts on a new picture of the cluster. Resolves when requests see the change.
    pub async fn apply_image(&self, image: Arc<MetadataImage>) {
        self.partitions.apply(&image, &mut Found::default()).await;
        *self.image.borrow_mut() = image;
    }

    /// Has a call carried out by the owner. Resolves when the call is started there, or is in the
    /// owner's mailbox in the order of the calls.
    pub async fn call(&self, to: ShardId, call: Call) -> StartedCall {
        if to == self.id() {
            return self.start(call);
        }
        match self.router.call(to, call).await {
            Ok(reply) => StartedCall::new(reply),
            Err(stopping) => StartedCall::new(std::future::ready(Err(stopping))),
        }
    }

    /// Starts a call on this shard.
    pub fn start(&self, call: Call) -> StartedCall {
        let partitions = self.partitions.clone();
        match call {
            Call::Produce(items) => self.start_produce(items),
            Call::Read(read) => {
                StartedCall::local(
                    async move { CallReply::Read(read_all(&partitions, read).await) },
                )
            }
            Call::Unwatch { watch, keys } => {
                partitions.unwatch(watch, &keys);
                StartedCall::done(CallReply::Unwatch)
            }
            Call::ListOffsets(questions) => StartedCall::local(async move {
                CallReply::ListOffsets(list_offsets(&partitions, questions).await)
            }),
            Call::EndOfEpochs(questions) => {
                let answer = |question: EpochQuestion| {
                    partitions
                        .get(question.key)?
                        .end_of_epoch(question.current_epoch, question.asked_epoch)
                };
                StartedCall::done(CallReply::EndOfEpochs(
                    questions.into_iter().map(answer).collect(),
                ))
            }
            Call::DeleteRecords(questions) => StartedCall::local(async move {
                CallReply::DeleteRecords(delete_records(&partitions, questions).await)
            }),
        }
    }

    /// Appends at once; the reply waits for the commits.
    fn start_produce(&self, items: Vec<ProduceItem>) -> StartedCall {
        let now = TimestampMs::now();
        let mut appended = Vec::with_capacity(items.len());
        for item in items {
            let result = self.partitions.get(item.key).and_then(|partition| {
                if item.requires_all {
                    partition.check_in_sync()?;
                }
                let produced = partition.produce(item.records, item.produce_version, now)?;
                self.metrics
                    .count_append(produced.record_count, produced.bytes);
                Ok((partition, produced))
            });
            appended.push(result);
        }
        StartedCall::local(async move {
            let mut answers: Vec<Result<Produced, PartitionError>> =
                Vec::with_capacity(appended.len());
            for result in appended {
                answers.push(match result {
                    Ok((partition, produced)) => {
                        let end = produced.last_offset.next();
                        partition.wait_committed(end).await.map(|()| produced)
                    }
                    Err(error) => Err(error),
                });
            }
            CallReply::Produce(answers)
        })
    }
}

/// Less room than the response's limit divided by this is not worth a look into further files: the
/// client comes back for those partitions anyway, and asks for them first then.
const ROOM_WORTH_A_READ_DIVISOR: usize = 8;

/// Reads the partitions in order within the call's budget; registers the watch where too little
/// was found.
async fn read_all(
    partitions: &Partitions,
    call: ReadCall,
) -> Vec<Result<PartitionRead, PartitionError>> {
    let mut room = call.bytes_max;
    let mut found_bytes = 0_u64;
    let mut answers = Vec::with_capacity(call.partitions.len());
    for item in &call.partitions {
        let answer = match partitions.get(item.key) {
            Ok(partition) => {
                let is_first = found_bytes == 0;
                let is_full = !is_first && room < call.bytes_max / ROOM_WORTH_A_READ_DIVISOR;
                let bytes_max = if is_full { 0 } else { item.bytes_max.min(room) };
                partition
                    .read(
                        item.offset,
                        item.leader_epoch,
                        item.isolation,
                        bytes_max,
                        is_first,
                    )
                    .await
            }
            Err(error) => Err(error),
        };
        if let Ok(read) = &answer {
            found_bytes += read.bytes;
            room = room.saturating_sub(usize::try_from(read.bytes).unwrap_or(usize::MAX));
        }
        answers.push(answer);
        executor::yield_if_needed().await;
    }
    if let Some(watch) = call.watch
        && found_bytes < watch.bytes_wanted
    {
        let is_quiet = call.partitions.iter().zip(&answers).all(|(item, answer)| {
            let seen = answer.as_ref().map(|read| read.info.high_watermark);
            seen.is_ok_and(|seen| partitions.watch(item.key, watch, seen))
        });
        if !is_quiet {
            partitions.wake(watch.watcher);
        }
    }
    answers
}

async fn list_offsets(
    partitions: &Partitions,
    questions: Vec<OffsetQuestion>,
) -> Vec<Result<crate::partition::ListedOffset, PartitionError>> {
    let mut answers = Vec::with_capacity(questions.len());
    for question in questions {
        answers.push(match partitions.get(question.key) {
            Ok(partition) => {
                let OffsetQuestion {
                    timestamp,
                    version,
                    leader_epoch,
                    isolation,
                    ..
                } = question;
                partition
                    .list_offset(timestamp, version, leader_epoch, isolation)
                    .await
            }
            Err(error) => Err(error),
        });
    }
    answers
}

/// Moves log starts up; the answers come when that survives a crash.
async fn delete_records(
    partitions: &Partitions,
    questions: Vec<(PartitionKey, Option<Offset>)>,
) -> Vec<Result<Offset, PartitionError>> {
    let mut answers = Vec::with_capacity(questions.len());
    let mut moved = Vec::new();
    for (key, before) in questions {
        let partition = partitions.get(key);
        let answer = partition.and_then(|partition| {
            let start = partition.delete_records(before)?;
            moved.push(partition);
            Ok(start)
        });
        answers.push(answer);
    }
    if moved.is_empty() {
        return answers;
    }
    if let Err(error) = partitions.write_checkpoint().await {
        let failed = PartitionError::Storage(format!("cannot write the checkpoint: {error}"));
        return answers
            .into_iter()
            .map(|answer| answer.and(Err(failed.clone())))
            .collect();
    }
    executor::spawn_local(async move {
        for partition in moved {
            if let Err(error) = partition.remove_old_segments().await {
                tracing::warn!(%error, "cannot remove old segments; they go at the next start");
            }
        }
    })
    .detach();
    answers
}
