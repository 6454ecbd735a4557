//! The partitions that this shard owns, and who waits for them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info, warn};

use super::mailbox::Router;
use super::messages::{Answer, PartitionKey, ShardDisk, Watch, Watcher};
use crate::base::limits::PARTITIONS_OPENED_AT_A_TIME;
use crate::base::{Offset, ShardId, TimestampMs};
use crate::cluster::{MetadataImage, TopicImage, placement};
use crate::config::{BrokerConfig, TopicConfig};
use crate::io::disk::Disk;
use crate::io::executor;
use crate::io::local::Semaphore;
use crate::observability::ShardMetrics;
use crate::partition::{Partition, PartitionError, PartitionSetup};
use crate::storage::checkpoint::{self, CheckpointEntry, CoreCheckpoint, MergedCheckpoint};
use crate::storage::commit::format::{Entry, EntryKind, FileHeader};
use crate::storage::commit::{self, CommitLog, LoggedEntries, replay};
use crate::storage::names::{FileKind, file_name};
use crate::storage::partition_files::replace_file;
use crate::storage::{CoreStorage, LogIdentity, PartitionCheckpoint, keep_logged};

/// A partition of this shard, or why it is not there.
#[derive(Clone)]
enum Slot {
    Online(Rc<Partition<ShardDisk>>),
    /// With what the last checkpoint said of it: it stays in every later one, so that recovery
    /// keeps knowing what was acknowledged.
    Offline {
        name: String,
        reason: String,
        checkpoint: Option<PartitionCheckpoint>,
    },
}

/// Cheap to clone; clones are the same.
#[derive(Clone)]
pub struct Partitions(Rc<Inner>);

struct Inner {
    storage: Rc<CoreStorage<ShardDisk>>,
    /// In force by the newest image.
    config: RefCell<Arc<BrokerConfig>>,
    router: Rc<Router>,
    metrics: Arc<ShardMetrics>,
    generation: u64,
    checkpoint_sequence: Cell<u64>,
    /// Groups of the commit log up to this one are not needed.
    released_group: Cell<u64>,
    /// One checkpoint is written at a time.
    checkpoint_turn: Semaphore,
    slots: RefCell<HashMap<PartitionKey, Slot>>,
    watchers: Watchers,
}

/// An ownership is a run's generation and, in so many low bits, the moves of the partition in it.
const MOVES_BITS: u32 = 16;

/// What is kept free of appends beside the size of the commit logs, in bytes: checkpoints, metadata,
/// indexes and folders.
const OTHER_RESERVE_BYTES: u64 = 16 << 20;

/// What a start found on the disk.
#[derive(Default)]
pub struct Found {
    pub checkpoints: MergedCheckpoint,
    pub logged: LoggedEntries,
}

impl Found {
    /// Reads what all cores left for this shard.
    ///
    /// # Errors
    /// One line that says what is wrong and what to do.
    pub async fn read<D: Disk>(
        disk: &D,
        data_dir: &Path,
        shard: ShardId,
        shard_count: u16,
    ) -> Result<Self, String> {
        let checkpoints = checkpoint::read_all(disk, data_dir)
            .await
            .map_err(|error| error.to_string())?;
        for (file, reason) in &checkpoints.damaged {
            warn!(file = %file.display(), reason, "ignoring a damaged checkpoint: its partitions are scanned whole");
        }
        let is_own =
            |topic_id, partition| placement::shard_of(topic_id, partition, shard_count) == shard;
        let logged = replay::read_all(disk, data_dir, &checkpoints, shard, shard_count, is_own)
            .await
            .map_err(|error| error.to_string())?;
        if logged.torn_groups > 0 {
            info!(
                groups = logged.torn_groups,
                "the commit log ends in groups that were never acknowledged"
            );
        }
        Ok(Self {
            checkpoints,
            logged,
        })
    }

    /// Of the last run.
    pub fn generation(&self) -> u64 {
        self.checkpoints.generation.max(self.logged.generation)
    }
}

type Watchers = Rc<RefCell<HashMap<PartitionKey, Vec<Watcher>>>>;

impl Partitions {
    /// Nothing is open yet. `generation` is this run's, greater than any before.
    pub fn new(
        storage: Rc<CoreStorage<ShardDisk>>,
        config: Arc<BrokerConfig>,
        router: Rc<Router>,
        metrics: Arc<ShardMetrics>,
        generation: u64,
    ) -> Self {
        Self(Rc::new(Inner {
            storage,
            config: RefCell::new(config),
            router,
            metrics,
            generation,
            checkpoint_sequence: Cell::new(0),
            released_group: Cell::new(0),
            checkpoint_turn: Semaphore::new(1),
            slots: RefCell::default(),
            watchers: Watchers::default(),
        }))
    }

    /// The broker's settings in force.
    pub fn config(&self) -> Arc<BrokerConfig> {
        Arc::clone(&self.0.config.borrow())
    }

    /// # Errors
    /// The partition is not here, or offline.
    pub fn get(&self, key: PartitionKey) -> Result<Rc<Partition<ShardDisk>>, PartitionError> {
        match self.0.slots.borrow().get(&key) {
            Some(Slot::Online(partition)) => Ok(Rc::clone(partition)),
            Some(Slot::Offline { reason, .. }) => Err(PartitionError::Offline {
                reason: reason.clone(),
            }),
            None => Err(PartitionError::NotHere),
        }
    }

    fn online(&self) -> Vec<(PartitionKey, Rc<Partition<ShardDisk>>)> {
        let slots = self.0.slots.borrow();
        let online = slots.iter().filter_map(|(key, slot)| match slot {
            Slot::Online(partition) => Some((*key, Rc::clone(partition))),
            Slot::Offline { .. } => None,
        });
        online.collect()
    }

    // --- metadata ----------------------------------------------------------------------------

    /// Opens what the image adds here, drops what it lacks, passes settings on. `found` is what a
    /// start found on the disk; what it holds of partitions opened here is taken out. Resolves when requests see the result; files of dropped partitions
    /// are removed in the background.
    pub async fn apply(&self, image: &MetadataImage, found: &mut Found) {
        self.follow_settings(image);
        let broker = self.config();
        let mut wanted = HashMap::new();
        for topic in image.topics() {
            let config = TopicConfig::from_overrides(&broker.topic_defaults, &topic.overrides);
            for (partition, _) in (0..).zip(&topic.partitions) {
                let key = PartitionKey {
                    topic_id: topic.id,
                    partition,
                };
                let owner = placement::shard_of(topic.id, partition, self.0.router.shard_count());
                if owner == self.0.router.shard() {
                    wanted.insert(key, (Arc::clone(topic), config.clone()));
                }
            }
        }
        self.drop_absent(&wanted).await;
        let mut missing = Vec::new();
        for (key, (topic, config)) in wanted {
            let known = self.0.slots.borrow().get(&key).cloned();
            match known {
                Some(Slot::Online(partition)) => partition.set_config(config),
                Some(Slot::Offline { .. }) => {}
                None => missing.push((key, topic, config)),
            }
        }
        self.open_all(missing, found).await;
    }

    /// Takes over what was set for the broker while it runs.
    fn follow_settings(&self, image: &MetadataImage) {
        let present = self.config();
        let settings = &present.settings;
        if settings.dynamic_default_entries == *image.broker_default_overrides()
            && settings.dynamic_broker_entries == *image.broker_overrides(present.node_id)
        {
            return;
        }
        match super::broker_config(image, &present) {
            Ok(config) => *self.0.config.borrow_mut() = Arc::new(config),
            Err(problems) => {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                error!(
                    problems = problems.join("; "),
                    "the broker's settings do not fit each other; those from before stay in force"
                );
            }
        }
    }

    /// Resolves when the folders' names are free for other topics; the files go in the background.
    async fn drop_absent(&self, wanted: &HashMap<PartitionKey, (Arc<TopicImage>, TopicConfig)>) {
        let absent: Vec<PartitionKey> = self
            .0
            .slots
            .borrow()
            .keys()
            .filter(|key| !wanted.contains_key(key))
            .copied()
            .collect();
        let turns = Semaphore::new(PARTITIONS_OPENED_AT_A_TIME);
        let mut retirements = Vec::with_capacity(absent.len());
        for key in absent {
            let slot = self.0.slots.borrow_mut().remove(&key);
            // Parked fetches learn that the partition is gone by reading it again.
            self.wake_all(key);
            if let Some(Slot::Online(partition)) = slot {
                let turn = turns.acquire(1).await;
                let disk = self.0.storage.disk.clone();
                retirements.push(executor::spawn_local(async move {
                    retire(disk, &partition, key).await;
                    drop(turn);
                }));
            } else if let Some(Slot::Offline { name, .. }) = slot {
                self.0.metrics.partition_not_offline(&name);
            }
        }
        for retirement in retirements {
            retirement.await;
        }
    }

    async fn open_all(
        &self,
        missing: Vec<(PartitionKey, Arc<TopicImage>, TopicConfig)>,
        found: &mut Found,
    ) {
        let turns = Semaphore::new(PARTITIONS_OPENED_AT_A_TIME);
        let mut openings = Vec::with_capacity(missing.len());
        for (key, topic, config) in missing {
            let turn = turns.acquire(1).await;
            let id = (key.topic_id, key.partition);
            let checkpoint = found.checkpoints.partitions.get(&id).cloned();
            let logged = found.logged.partitions.remove(&id).unwrap_or_default();
            let this = self.clone();
            openings.push(executor::spawn_local(async move {
                let kept = logged.clone();
                let is_online = this.open(key, &topic, config, checkpoint, logged).await;
                drop(turn);
                (!is_online).then_some((id, kept))
            }));
        }
        for opening in openings {
            // What an offline partition did not take is kept for the start that opens it.
            found.logged.partitions.extend(opening.await);
        }
    }

    /// True where the partition is online afterwards.
    async fn open(
        &self,
        key: PartitionKey,
        topic: &TopicImage,
        config: TopicConfig,
        checkpoint: Option<PartitionCheckpoint>,
        logged: Vec<Entry>,
    ) -> bool {
        let Some(image) = topic.partition(key.partition) else {
            return false;
        };
        let broker = self.config();
        let dir = broker
            .data_dir
            .join(format!("{}-{}", topic.name, key.partition));
        let known = checkpoint.clone();
        let listener = CommitListener {
            key,
            watchers: Rc::clone(&self.0.watchers),
            router: Rc::clone(&self.0.router),
            metrics: Arc::clone(&self.0.metrics),
        };
        let setup = PartitionSetup {
            dir: dir.clone(),
            identity: LogIdentity {
                topic_id: key.topic_id,
                partition: key.partition,
                ownership: self.0.generation << MOVES_BITS,
            },
            node: broker.node_id,
            leader_epoch: image.leader_epoch,
            config,
            checkpoint,
            logged,
            on_commit: Box::new(move || listener.wake_all()),
            on_failed: Box::new(super::end_process),
            now: TimestampMs::now(),
        };
        let slot = match Partition::open(&self.0.storage, setup).await {
            Ok(partition) => Slot::Online(Rc::new(partition)),
            Err(reason) => {
                error!(%reason, dir = %dir.display(), "a partition is offline");
                let name = format!("{}-{}", topic.name, key.partition);
                self.0.metrics.partition_offline(&name, &reason);
                Slot::Offline {
                    name,
                    reason,
                    checkpoint: known,
                }
            }
        };
        let is_online = matches!(slot, Slot::Online(_));
        self.0.slots.borrow_mut().insert(key, slot);
        is_online
    }

    // --- the commit log ---------------------------------------------------------------------

    /// Writes the first checkpoint of this run beside the one of the last. To be called when all
    /// shards have opened their partitions: what former commit logs held is in flushed segments
    /// then.
    ///
    /// # Errors
    /// The device failed or is full.
    pub async fn save_first_checkpoint(&self) -> io::Result<()> {
        let _turn = self.0.checkpoint_turn.acquire(1).await;
        let checkpoint = self.checkpoint_of(self.current_entries().await).await?;
        let disk = &self.0.storage.disk;
        let shard = self.0.router.shard();
        checkpoint::write_first(disk, &self.config().data_dir, shard, &checkpoint).await
    }

    /// Begins a commit log of this run. To be called when all shards have saved their first
    /// checkpoint: of a partition that another core had, nothing else tells then.
    ///
    /// # Errors
    /// The device failed or is full.
    pub async fn start_commit_log(&self) -> io::Result<()> {
        self.write_checkpoint().await?;
        let storage = &self.0.storage;
        let shard = self.0.router.shard();
        let shard_count = self.0.router.shard_count();
        let config = self.config();
        let this = self.clone();
        let before_reuse = Box::new(move |released_group| -> commit::log::LocalResult<()> {
            let this = this.clone();
            this.0.released_group.set(released_group);
            Box::pin(async move { this.write_checkpoint().await })
        });
        let commit_log = CommitLog::start(
            &storage.disk,
            storage.spawn.clone(),
            &checkpoint::core_dir(&config.data_dir, shard),
            self.file_header(0),
            config.commit_log_bytes,
            before_reuse,
        )
        .await?;
        storage.set_commit_log(commit_log);
        let commit_logs_bytes = config.commit_log_bytes * u64::from(shard_count);
        storage.set_reserve(commit_logs_bytes.saturating_add(OTHER_RESERVE_BYTES));
        storage.check_space(&config.data_dir, 0).await;
        if shard == ShardId(0) {
            checkpoint::remove_others(&storage.disk, &config.data_dir, shard_count.into()).await?;
        }
        Ok(())
    }

    /// Keeps what the commit logs hold of partitions that are offline, for the start that opens them,
    /// and puts aside what they hold of topics that the metadata does not know and whose deletion they
    /// do not tell: it is not ours to drop. The batches put aside become a segment that Kafka's tools
    /// read.
    ///
    /// # Errors
    /// One line that says what could not be written.
    pub async fn quarantine(&self, logged: LoggedEntries) -> Result<(), String> {
        let disk = &self.0.storage.disk;
        let data_dir = &self.config().data_dir;
        for ((topic_id, partition), entries) in logged.partitions {
            let key = PartitionKey {
                topic_id,
                partition,
            };
            let offline = match self.0.slots.borrow().get(&key) {
                Some(Slot::Offline { name, .. }) => Some(data_dir.join(name)),
                Some(Slot::Online(_)) | None => None,
            };
            if let Some(dir) = offline.filter(|_| !entries.is_empty()) {
                keep_logged(disk, &dir, &entries).await.map_err(|error| {
                    format!(
                        "cannot keep the records of an offline partition in {}: {error}",
                        dir.display()
                    )
                })?;
                warn!(dir = %dir.display(), entries = entries.len(),
                    "the commit log holds records of a partition that is offline; they are kept in its folder until it can be opened");
                continue;
            }
            let mut bytes = Vec::new();
            for entry in &entries {
                if let EntryKind::Inline(batches) = &entry.kind {
                    bytes.extend_from_slice(batches);
                }
            }
            if bytes.is_empty() {
                continue;
            }
            let name = format!("unknown-{partition}.{}-stray", topic_id.0.simple());
            let dir = data_dir.join(name);
            let first = entries
                .first()
                .map_or(Offset::ZERO, |entry| entry.place.segment_base);
            let written = async {
                disk.create_dir_all(&dir).await?;
                replace_file(disk, &dir, &file_name(first, FileKind::Log), &bytes).await?;
                disk.sync_dir(data_dir).await
            };
            written.await.map_err(|error: io::Error| {
                format!(
                    "cannot put aside the records of an unknown topic in {}: {error}",
                    dir.display()
                )
            })?;
            warn!(dir = %dir.display(), %topic_id, partition, bytes = bytes.len(),
                "the commit log holds records of a partition whose topic does not exist; they are put aside, remove them when they are not needed");
        }
        Ok(())
    }

    fn file_header(&self, runs_later: u64) -> FileHeader {
        FileHeader {
            generation: self.0.generation + runs_later,
            shard: self.0.router.shard(),
            shard_count: self.0.router.shard_count(),
        }
    }

    // --- waiting for data --------------------------------------------------------------------

    /// Registers a parked fetch with a partition whose high watermark it saw. False where that has
    /// moved since, or the partition has gone: then there may be data already.
    pub fn watch(&self, key: PartitionKey, watch: Watch, seen: Offset) -> bool {
        let Ok(partition) = self.get(key) else {
            return false;
        };
        if partition.high_watermark() != seen {
            return false;
        }
        let mut watchers = self.0.watchers.borrow_mut();
        let waiting = watchers.entry(key).or_default();
        if !waiting.contains(&watch.watcher) {
            waiting.push(watch.watcher);
        }
        true
    }

    pub fn unwatch(&self, watcher: Watcher, keys: &[PartitionKey]) {
        let mut watchers = self.0.watchers.borrow_mut();
        for key in keys {
            if let Some(waiting) = watchers.get_mut(key) {
                waiting.retain(|other| *other != watcher);
                if waiting.is_empty() {
                    watchers.remove(key);
                }
            }
        }
    }

    pub fn wake(&self, watcher: Watcher) {
        wake(&self.0.router, watcher);
    }

    fn wake_all(&self, key: PartitionKey) {
        for watcher in self
            .0
            .watchers
            .borrow_mut()
            .remove(&key)
            .unwrap_or_default()
        {
            self.wake(watcher);
        }
    }

    // --- upkeep ------------------------------------------------------------------------------

    /// Makes a checkpoint of all partitions durable. The work is spread: other tasks run between
    /// the partitions.
    ///
    /// # Errors
    /// The file could not be written; the former one is still in place.
    pub async fn write_checkpoint(&self) -> io::Result<()> {
        let _turn = self.0.checkpoint_turn.acquire(1).await;
        let entries = self.current_entries().await;
        self.write_entries(entries).await
    }

    async fn current_entries(&self) -> Vec<CheckpointEntry> {
        let mut entries = self.offline_entries();
        for (key, partition) in self.online() {
            let state = partition.checkpoint().await;
            entries.push(entry(key, state));
            executor::yield_if_needed().await;
        }
        entries
    }

    fn offline_entries(&self) -> Vec<CheckpointEntry> {
        let slots = self.0.slots.borrow();
        let offline = slots.iter().filter_map(|(key, slot)| match slot {
            Slot::Offline { checkpoint, .. } => Some(entry(*key, checkpoint.clone()?)),
            Slot::Online(_) => None,
        });
        offline.collect()
    }

    async fn write_entries(&self, entries: Vec<CheckpointEntry>) -> io::Result<()> {
        let checkpoint = self.checkpoint_of(entries).await?;
        let disk = &self.0.storage.disk;
        let shard = self.0.router.shard();
        checkpoint::write(disk, &self.config().data_dir, shard, &checkpoint).await
    }

    /// The next checkpoint of the core, whose folder is there then.
    async fn checkpoint_of(&self, entries: Vec<CheckpointEntry>) -> io::Result<CoreCheckpoint> {
        let disk = &self.0.storage.disk;
        let data_dir = &self.config().data_dir;
        let shard = self.0.router.shard();
        let sequence = self.0.checkpoint_sequence.get() + 1;
        self.0.checkpoint_sequence.set(sequence);
        let dir = checkpoint::core_dir(data_dir, shard);
        disk.create_dir_all(&dir).await?;
        disk.sync_dir(data_dir).await?;
        Ok(CoreCheckpoint {
            generation: self.0.generation,
            sequence,
            released_group: self.0.released_group.get(),
            entries,
        })
    }

    /// What is due now and then: flushes that were postponed, writes that had no space, gauges, memory
    /// that nobody uses.
    pub fn tick(&self, now: TimestampMs) {
        let router = &self.0.router;
        let metrics = &self.0.metrics;
        metrics.set_mailbox_depth(router.address(router.shard()).depth() as u64);
        metrics.set_parked_fetches(router.parked_count() as u64);
        for (_, partition) in self.online() {
            partition.flush_if_due(now);
            partition.retry_writes();
        }
        if let Some(commit_log) = self.0.storage.commit_log() {
            commit_log.retry();
        }
        self.0.storage.tail.pool().trim();
    }

    pub fn expire_producers(&self, now: TimestampMs) {
        let expiration_ms = self.config().producer_id_expiration_ms;
        let expired: usize = self
            .online()
            .iter()
            .map(|(_, partition)| partition.expire_producers(now, expiration_ms))
            .sum();
        if expired > 0 {
            info!(expired, "forgot silent producers");
        }
    }

    /// Closes all partitions and writes the last checkpoint.
    pub async fn close(&self) -> io::Result<()> {
        if let Some(commit_log) = self.0.storage.commit_log() {
            commit_log.stop().await;
        }
        let _turn = self.0.checkpoint_turn.acquire(1).await;
        let online = self.online();
        let mut entries = self.offline_entries();
        self.0.slots.borrow_mut().clear();
        let turns = Semaphore::new(PARTITIONS_OPENED_AT_A_TIME);
        let mut closings = Vec::with_capacity(online.len());
        for (key, partition) in online {
            let turn = turns.acquire(1).await;
            closings.push(executor::spawn_local(async move {
                let closed = partition.close().await;
                let is_closed = closed.is_ok();
                let state = closed.unwrap_or_else(|error| {
                    warn!(%error, topic_id = %key.topic_id, partition = key.partition,
                        "a partition was not closed cleanly; it is recovered at the next start");
                    partition.last_checkpoint()
                });
                drop(turn);
                (key, state, is_closed)
            }));
        }
        let mut are_all_closed = true;
        for closing in closings {
            let (key, state, is_closed) = closing.await;
            are_all_closed &= is_closed;
            entries.push(entry(key, state));
        }
        let Some(commit_log) = self.0.storage.commit_log() else {
            // Another shard may not have read what it needs: the former checkpoint stays, and what
            // former commit logs hold with it.
            return Ok(());
        };
        self.write_entries(entries).await?;
        if are_all_closed {
            let config = self.config();
            let dir = checkpoint::core_dir(&config.data_dir, self.0.router.shard());
            commit_log
                .close(&self.0.storage.disk, &dir, self.file_header(1))
                .await?;
        }
        Ok(())
    }

    /// Keeps the background work going until the task is dropped.
    pub async fn keep_up(self, config: Arc<BrokerConfig>) {
        const TICK_MS: u64 = 1000;
        /// The default of Kafka's internal `producer.id.expiration.check.interval.ms`.
        const PRODUCER_EXPIRY_CHECK_MS: u64 = 600_000;
        let mut elapsed_ms = 0_u64;
        let mut next_checkpoint_ms = config.checkpoint_interval_ms;
        let mut next_expiry_ms = PRODUCER_EXPIRY_CHECK_MS;
        loop {
            executor::sleep(Duration::from_millis(TICK_MS)).await;
            elapsed_ms += TICK_MS;
            self.0.storage.check_space(&config.data_dir, 0).await;
            self.tick(TimestampMs::now());
            if elapsed_ms >= next_expiry_ms {
                next_expiry_ms = elapsed_ms + PRODUCER_EXPIRY_CHECK_MS;
                self.expire_producers(TimestampMs::now());
            }
            if elapsed_ms >= next_checkpoint_ms {
                next_checkpoint_ms = elapsed_ms + config.checkpoint_interval_ms;
                if let Err(error) = self.write_checkpoint().await {
                    warn!(%error, "cannot write the checkpoint; the next start will scan more");
                }
            }
        }
    }
}

fn entry(key: PartitionKey, state: PartitionCheckpoint) -> CheckpointEntry {
    CheckpointEntry {
        topic_id: key.topic_id,
        partition: key.partition,
        state,
    }
}

/// Frees the partition's folder name, and has the files removed in the background.
async fn retire(disk: ShardDisk, partition: &Partition<ShardDisk>, key: PartitionKey) {
    let give_up = move |error: io::Error| {
        warn!(%error, topic_id = %key.topic_id, partition = key.partition,
            "cannot remove the files of a deleted partition; they go at the next start");
    };
    match partition.retire().await {
        Ok(doomed) => executor::spawn_local(async move {
            disk.remove_dir_all(&doomed).await.unwrap_or_else(give_up);
        })
        .detach(),
        Err(error) => give_up(error),
    }
}

/// Wakes the parked fetches of one partition.
struct CommitListener {
    key: PartitionKey,
    watchers: Watchers,
    router: Rc<Router>,
    metrics: Arc<ShardMetrics>,
}

impl CommitListener {
    fn wake_all(&self) {
        self.metrics.count_commit();
        let waiting = {
            let mut watchers = self.watchers.borrow_mut();
            if watchers.is_empty() {
                return;
            }
            watchers.remove(&self.key)
        };
        for watcher in waiting.unwrap_or_default() {
            wake(&self.router, watcher);
        }
    }
}

fn wake(router: &Router, watcher: Watcher) {
    if watcher.shard == router.shard() {
        router.wake(watcher.id);
    } else {
        router
            .address(watcher.shard)
            .answer(Answer::Wake(watcher.id));
    }
}
