//! The control loop: commands in, one after the other; images out.
//!
//! ```text
//!   shards, admin                     control thread
//!   ControlHandle --(bounded)--> decide -> append + flush -> apply -> publish -> reply
//! ```
//!
//! A reply is sent when the records are durable *and* every shard has the image that holds them:
//! who was told that a topic exists finds it on any connection. Commands that queued up meanwhile
//! share one append.

use std::sync::Arc;

use super::controller::{
    Command, ConfigChange, ConfigResult, ControllerContext, ControllerError, ControllerErrorKind,
    Decision, DeleteTopicResult, NewTopic, NewTopicResult, PartitionGrowth, PartitionGrowthResult,
    ProducerIdBlock, Reply, TopicSelector, decide,
};
use super::image::{BrokerImage, MetadataImage};
use super::records::{MetadataRecord, encode_records};
use super::store::{BATCH_BYTES_MAX, MetadataStore, StoreError};

/// The commands that may wait. Beyond it, [`ControlHandle::submit`] waits.
const QUEUED_COMMANDS_MAX: usize = 1024;

/// The commands that share one append, and the bytes of records after which no further one joins.
const GROUP_COMMANDS_MAX: usize = 256;
const GROUP_BYTES_MAX: usize = 1 << 20;

type Answer = Result<Reply, ControllerError>;

struct Request {
    command: Command,
    reply: flume::Sender<Answer>,
}

/// The receiving end, for [`run`].
pub struct ControlReceiver(flume::Receiver<Request>);

/// Sends commands to the control loop, from any executor or thread.
#[derive(Clone)]
pub struct ControlHandle(flume::Sender<Request>);

/// A handle and its receiver. The loop ends when all handles are gone.
pub fn control_channel() -> (ControlHandle, ControlReceiver) {
    let (sender, receiver) = flume::bounded(QUEUED_COMMANDS_MAX);
    (ControlHandle(sender), ControlReceiver(receiver))
}

impl ControlHandle {
    /// Resolves when the command's records are durable and all shards know them. Once accepted, a
    /// command is carried out even if the future is dropped.
    pub async fn submit(&self, command: Command) -> Answer {
        let (reply, answer) = flume::bounded(1);
        self.0
            .send_async(Request { command, reply })
            .await
            .map_err(|_| stopping())?;
        answer.recv_async().await.map_err(|_| stopping())?
    }

    pub async fn register_broker(&self, broker: BrokerImage) -> Result<(), ControllerError> {
        match self.submit(Command::RegisterBroker(broker)).await? {
            Reply::BrokerRegistered => Ok(()),
            other => Err(mismatch(&other)),
        }
    }

    /// One result for each distinct name.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
    ) -> Result<Vec<NewTopicResult>, ControllerError> {
        let command = Command::CreateTopics {
            topics,
            validate_only,
        };
        match self.submit(command).await? {
            Reply::TopicsCreated(results) => Ok(results),
            other => Err(mismatch(&other)),
        }
    }

    /// One result for each distinct topic.
    pub async fn delete_topics(
        &self,
        topics: Vec<TopicSelector>,
    ) -> Result<Vec<DeleteTopicResult>, ControllerError> {
        match self.submit(Command::DeleteTopics { topics }).await? {
            Reply::TopicsDeleted(results) => Ok(results),
            other => Err(mismatch(&other)),
        }
    }

    /// One result for each distinct name.
    pub async fn create_partitions(
        &self,
        topics: Vec<PartitionGrowth>,
        validate_only: bool,
    ) -> Result<Vec<PartitionGrowthResult>, ControllerError> {
        let command = Command::CreatePartitions {
            topics,
            validate_only,
        };
        match self.submit(command).await? {
            Reply::PartitionsCreated(results) => Ok(results),
            other => Err(mismatch(&other)),
        }
    }

    /// One result for each distinct resource.
    pub async fn alter_configs(
        &self,
        changes: Vec<ConfigChange>,
        validate_only: bool,
    ) -> Result<Vec<ConfigResult>, ControllerError> {
        let command = Command::AlterConfigs {
            changes,
            validate_only,
        };
        match self.submit(command).await? {
            Reply::ConfigsAltered(results) => Ok(results),
            other => Err(mismatch(&other)),
        }
    }

    /// Producer ids that nobody else has or will have.
    pub async fn allocate_producer_ids(&self) -> Result<ProducerIdBlock, ControllerError> {
        match self.submit(Command::AllocateProducerIds).await? {
            Reply::ProducerIds(block) => Ok(block),
            other => Err(mismatch(&other)),
        }
    }
}

fn stopping() -> ControllerError {
    ControllerErrorKind::NotController.with("The controller is stopping.")
}

fn mismatch(reply: &Reply) -> ControllerError {
    ControllerErrorKind::UnknownServerError.with(format!("The controller answered {reply:?}."))
}

/// Runs until all handles are gone, or the store fails: then the process must end, for what the
/// disk holds is known only to recovery. Every command gets an answer.
///
/// `publish` resolves when all shards have applied the image. It is first called with the next
/// image that a command makes: `image` itself the shards have already.
pub async fn run<S, P>(
    mut store: S,
    image: MetadataImage,
    receiver: ControlReceiver,
    mut context: ControllerContext,
    mut publish: P,
) -> Result<(), StoreError>
where
    S: MetadataStore,
    P: AsyncFnMut(Arc<MetadataImage>),
{
    let mut image = Arc::new(image);
    while let Ok(first) = receiver.0.recv_async().await {
        let group = Group::collect(&image, first, &receiver.0, &mut context);
        if !group.records.is_empty() {
            if let Err(error) = store.append(&group.records) {
                let kind = ControllerErrorKind::StorageError;
                group.refuse(&kind.with(error.to_string()));
                if error.is_refusal() {
                    tracing::warn!(%error, "a change of the metadata was refused");
                    continue;
                }
                return Err(error);
            }
            image = Arc::new(group.image);
            publish(image.clone()).await;
        }
        for (reply, answer) in group.answers {
            // Nobody may be waiting any more.
            let _ = reply.send(answer);
        }
        if store.is_snapshot_due() {
            match store.snapshot(&image) {
                Ok(()) => tracing::debug!(version = image.version(), "metadata snapshot written"),
                Err(error) if error.is_refusal() => {
                    tracing::warn!(%error, "no metadata snapshot was written");
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Commands that share one append.
struct Group {
    /// The image after the records.
    image: MetadataImage,
    records: Vec<MetadataRecord>,
    answers: Vec<(flume::Sender<Answer>, Answer)>,
}

impl Group {
    fn collect(
        image: &MetadataImage,
        first: Request,
        receiver: &flume::Receiver<Request>,
        context: &mut ControllerContext,
    ) -> Self {
        let mut group = Self {
            image: image.clone(),
            records: Vec::new(),
            answers: Vec::new(),
        };
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(request) = next {
            let answer = group.decide(request.command, context, &mut bytes);
            group.answers.push((request.reply, answer));
            let has_room = group.answers.len() < GROUP_COMMANDS_MAX && bytes < GROUP_BYTES_MAX;
            next = has_room.then(|| receiver.try_recv().ok()).flatten();
        }
        group
    }

    /// Decides a command on the image that those before it in the group have made.
    fn decide(
        &mut self,
        command: Command,
        context: &mut ControllerContext,
        bytes: &mut usize,
    ) -> Answer {
        let Decision { records, reply } = decide(&self.image, command, context)?;
        if records.is_empty() {
            return Ok(reply);
        }
        let len = encode_records(&records).len();
        // Together with those before it, which are below GROUP_BYTES_MAX, it must fit a batch.
        if len > BATCH_BYTES_MAX - 2 * GROUP_BYTES_MAX {
            return Err(ControllerErrorKind::PolicyViolation.with(format!(
                "The change takes {len} bytes of metadata, which is too many for one request."
            )));
        }
        self.image = self.image.with(&records).map_err(|error| {
            tracing::error!(%error, "the controller decided records that do not fit");
            ControllerErrorKind::UnknownServerError.with(error.to_string())
        })?;
        *bytes += len;
        self.records.extend(records);
        Ok(reply)
    }

    /// Answers all with the error: who had no records of its own may have seen those of others.
    fn refuse(self, error: &ControllerError) {
        for (reply, _) in self.answers {
            let _ = reply.send(Err(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
