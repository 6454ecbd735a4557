//! The shard itself: what it owns, and how calls are carried out on it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tracing::{error, info};

use super::mailbox::{Router, Stopping};
use super::messages::{
    Answer, Call, CallReply, PartitionKey, PartitionRead, ReadCall, ShardDisk, Watch,
};
use super::partitions::{Partitions, Slot};
use crate::base::{Offset, ShardId, TimestampMs};
use crate::cluster::{MetadataImage, placement};
use crate::config::BrokerConfig;
use crate::io::executor;
use crate::io::local::Semaphore;
use crate::observability::ShardMetrics;
use crate::partition::{Partition, PartitionError, Produced};

/// A future on this shard.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A call that was started: carried out up to its first wait.
pub enum StartedCall {
    Done(CallReply),
    Pending(LocalFuture<Result<CallReply, Stopping>>),
    Failed(Stopping),
}

impl StartedCall {
    pub async fn finish(self) -> Result<CallReply, Stopping> {
        match self {
            Self::Done(reply) => Ok(reply),
            Self::Pending(pending) => pending.await,
            Self::Failed(stopping) => Err(stopping),
        }
    }
}

/// Everything that one core owns. Lives on its executor, behind an `Rc`.
pub struct Shard {
    router: Router,
    image: RefCell<Arc<MetadataImage>>,
    partitions: Partitions,
    metrics: Arc<ShardMetrics>,
    network_budget: Semaphore,
}

impl Shard {
    pub fn new(
        router: Router,
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
        }
    }

    pub fn id(&self) -> ShardId {
        self.router.shard()
    }

    pub fn shard_count(&self) -> usize {
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

    /// Acts on a new picture of the cluster: opens partitions that are new here, drops those that
    /// are gone. Resolves when requests see the change.
    pub async fn apply_image(&self, image: Arc<MetadataImage>) {
        let owned = |key| self.owner_of(key) == self.id();
        self.partitions.apply(&image, owned).await;
        *self.image.borrow_mut() = image;
    }

    /// Carries a call out on the owner. Resolves when the call is started, in the order of calls.
    pub async fn call(&self, to: ShardId, call: Call) -> StartedCall {
        if to == self.id() {
            return self.start(call);
        }
        match self.router.call(to, call).await {
            Ok(reply) => StartedCall::Pending(Box::pin(reply)),
            Err(stopping) => StartedCall::Failed(stopping),
        }
    }

    /// Starts a call on this shard. What must happen in the order of the calls (appends) has
    /// happened when this returns.
    pub fn start(&self, call: Call) -> StartedCall {
        match call {
            Call::Produce(items) => self.start_produce(items),
            Call::Read(read) => self.start_read(read),
            Call::Unwatch { watch, keys } => {
                self.partitions.unwatch(watch, &keys);
                StartedCall::Done(CallReply::Unwatch)
            }
            Call::LookUpOffsets(questions) => {
                let questions: Vec<_> = questions
                    .into_iter()
                    .map(|(key, lookup, epoch)| (self.partitions.get(key), lookup, epoch))
                    .collect();
                pending(async move {
                    let mut answers = Vec::with_capacity(questions.len());
                    for (partition, lookup, epoch) in questions {
                        answers.push(match partition {
                            Ok(partition) => partition.look_up_offset(lookup, epoch).await,
                            Err(error) => Err(error),
                        });
                    }
                    CallReply::LookUpOffsets(answers)
                })
            }
            Call::EndOfEpochs(questions) => {
                let answer = |question: super::messages::EpochQuestion| {
                    self.partitions
                        .get(question.key)?
                        .end_of_epoch(question.current_epoch, question.asked_epoch)
                };
                StartedCall::Done(CallReply::EndOfEpochs(
                    questions.into_iter().map(answer).collect(),
                ))
            }
            Call::DeleteRecords(questions) => self.start_delete_records(questions),
        }
    }

    fn start_produce(&self, items: Vec<super::messages::ProduceItem>) -> StartedCall {
        let now = TimestampMs::now();
        let mut appended = Vec::with_capacity(items.len());
        for item in items {
            let partition = self.partitions.get(item.key);
            let result = partition.and_then(|partition| {
                let produced = partition.produce(item.records, now)?;
                self.metrics.count_append(produced.record_count, produced.bytes);
                Ok((partition, produced))
            });
            appended.push(result.map(|(partition, produced)| {
                let partition = item.acknowledged.then_some(partition);
                (partition, produced)
            }));
        }
        let answers = async move {
            let mut answers = Vec::with_capacity(appended.len());
            for result in appended {
                answers.push(match result {
                    Ok((Some(partition), produced)) => wait_committed(&partition, produced).await,
                    Ok((None, produced)) => Ok(produced),
                    Err(error) => Err(error),
                });
            }
            CallReply::Produce(answers)
        };
        pending(answers)
    }

    fn start_read(&self, call: ReadCall) -> StartedCall {
        let partitions = self.partitions.clone();
        pending(async move { CallReply::Read(read(&partitions, call).await) })
    }

    fn start_delete_records(&self, questions: Vec<(PartitionKey, Option<Offset>)>) -> StartedCall {
        let partitions = self.partitions.clone();
        pending(async move {
            let mut answers = Vec::with_capacity(questions.len());
            let mut moved = false;
            for (key, before) in questions {
                let answer = match partitions.get(key) {
                    Ok(partition) => partition.delete_records(before).await,
                    Err(error) => Err(error),
                };
                moved |= answer.is_ok();
                answers.push(answer);
            }
            // The new log starts are promises: they must survive a crash before they are told.
            if moved && let Err(error) = partitions.write_checkpoint().await {
                error!(%error, "cannot write the checkpoint");
                answers = answers.into_iter().map(|_| Err(PartitionError::Storage(error.to_string()))).collect();
            }
            CallReply::DeleteRecords(answers)
        })
    }
}

fn pending(reply: impl Future<Output = CallReply> + 'static) -> StartedCall {
    StartedCall::Pending(Box::pin(async move { Ok(reply.await) }))
}

async fn wait_committed(
    partition: &Partition<ShardDisk>,
    produced: Produced,
) -> Result<Produced, PartitionError> {
    partition.wait_committed(produced.last_offset.next()).await?;
    Ok(produced)
}

/// Reads the partitions in order within the call's budget; registers the watch where too little
/// was found.
async fn read(
    partitions: &Partitions,
    call: ReadCall,
) -> Vec<Result<PartitionRead, PartitionError>> {
    let mut room = call.bytes_max;
    let mut found_bytes = 0_u64;
    let mut answers = Vec::with_capacity(call.partitions.len());
    for item in &call.partitions {
        let answer = match partitions.get(item.key) {
            Ok(partition) => {
                let bytes_max = item.bytes_max.min(room);
                partition.read(item, bytes_max, found_bytes == 0).await
            }
            Err(error) => Err(error),
        };
        if let Ok(read) = &answer {
            let bytes: u64 = read.extents.iter().map(|extent| extent.len()).sum();
            found_bytes += bytes;
            room = room.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        answers.push(answer);
        executor::yield_if_needed().await;
    }
    if let Some(watch) = call.watch
        && found_bytes < watch.bytes_wanted
        && answers.iter().all(Result::is_ok)
    {
        let unchanged = call.partitions.iter().zip(&answers).all(|(item, answer)| {
            partitions.watch(item.key, watch, answer.as_ref().ok().map(|read| read.info.high_watermark))
        });
        if !unchanged {
            partitions.wake(watch);
        }
    }
    answers
}
