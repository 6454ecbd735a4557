//! A partition: the pure parts (state, producers, epochs) tied to the log.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use bytes::BytesMut;

use super::epochs::{EpochEnd, LeaderEpochs};
use super::error::PartitionError;
use super::list_offsets::{self, ListedOffset, Plan};
use super::producers::{AppendedBatch, Verdict};
use super::replayed::Replayed;
use super::state::{Assignment, Isolation, LogRange, PartitionState};
use crate::base::{LeaderEpoch, NodeId, Offset, ProducerId, TimestampMs, TopicId};
use crate::config::{TimestampType, TopicConfig};
use crate::io::disk::{Disk, DiskFile, Extent};
use crate::protocol::batch::{self, BatchHeader};
use crate::protocol::records::{self, ValidBatch, ValidationRules};
use crate::storage::commit::format::Entry;
use crate::storage::partition_files::{
    LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, decode_partition_metadata,
    encode_partition_metadata, replace_file,
};
use crate::storage::{
    AppendBatch, AppendError, BatchView, CoreStorage, Log, LogConfig, LogEvents, LogIdentity,
    LogSetup, OpenError, PartitionCheckpoint, ReadError,
};

/// What a partition is opened with.
pub struct PartitionSetup {
    pub dir: PathBuf,
    pub identity: LogIdentity,
    pub node: NodeId,
    pub leader_epoch: LeaderEpoch,
    pub config: TopicConfig,
    pub checkpoint: Option<PartitionCheckpoint>,
    /// What the commit logs hold of it, in order.
    pub logged: Vec<Entry>,
    /// Called when the high watermark has moved.
    pub on_commit: Box<dyn Fn()>,
    /// Called once when a write or flush failed: the process must end.
    pub on_failed: Box<dyn Fn(&str)>,
    pub now: TimestampMs,
}

/// What an append came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// The broker's clock where the topic asks for it, else [`TimestampMs::NONE`].
    pub log_append_time: TimestampMs,
    pub log_start_offset: Offset,
    /// Records and bytes that were appended; none where the batch was there already.
    pub record_count: u64,
    pub bytes: u64,
}

/// What a reader learns beside the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadInfo {
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
}

/// What a read found.
#[derive(Debug)]
pub struct PartitionRead<S> {
    pub extents: Vec<Extent<S>>,
    pub bytes: u64,
    pub info: ReadInfo,
}

type SharedFile<D> = <<D as Disk>::File as DiskFile>::Shared;

/// One partition of this node, on the executor that owns it.
pub struct Partition<D: Disk> {
    topic_id: TopicId,
    config: RefCell<TopicConfig>,
    state: Rc<RefCell<PartitionState>>,
    replayed: Rc<RefCell<Replayed>>,
    log: Log<D, Replayed>,
    flush_asked_at: Cell<TimestampMs>,
}

impl<D: Disk> Partition<D> {
    /// Opens the partition's folder, which is made where it is missing. When it resolves, the
    /// folder is durable and the log recovered.
    ///
    /// # Errors
    /// The folder cannot be used, or acknowledged records are damaged: the text says what to do.
    pub async fn open(core: &Rc<CoreStorage<D>>, setup: PartitionSetup) -> Result<Self, String> {
        let disk = &core.disk;
        let epochs = prepare_folder(disk, &setup).await?;
        let replayed = Rc::new(RefCell::new(Replayed::new(epochs, setup.now)));
        let assignment = Assignment::single(setup.node, setup.leader_epoch);
        // The real range is known after recovery; until then nothing is visible.
        let nothing = LogRange {
            start: Offset::ZERO,
            end: Offset::ZERO,
        };
        let state = PartitionState::new(setup.node, assignment.clone(), nothing, setup.now);
        let state = Rc::new(RefCell::new(state));
        let durable_state = Rc::clone(&state);
        let on_commit = setup.on_commit;
        let log_setup = LogSetup {
            identity: setup.identity,
            logged: setup.logged,
            dir: setup.dir.clone(),
            config: log_config(&setup.config),
            checkpoint: setup.checkpoint,
            derived: Rc::clone(&replayed),
            events: LogEvents {
                on_durable: Box::new(move |durable| {
                    let moved = durable_state.borrow_mut().flushed(durable);
                    if moved.is_some() {
                        on_commit();
                    }
                }),
                on_failed: setup.on_failed,
            },
        };
        let log = Log::open(Rc::clone(core), log_setup, setup.now)
            .await
            .map_err(|error: OpenError| error.to_string())?;
        let range = LogRange {
            start: log.log_start_offset(),
            end: log.log_end_offset(),
        };
        *state.borrow_mut() = PartitionState::new(setup.node, assignment, range, setup.now);
        let partition = Self {
            topic_id: setup.identity.topic_id,
            config: RefCell::new(setup.config),
            state,
            replayed,
            log,
            flush_asked_at: Cell::new(setup.now),
        };
        partition.enter_epoch(disk, setup.leader_epoch).await?;
        Ok(partition)
    }

    /// Notes that records from here on are of this epoch, durably.
    async fn enter_epoch(&self, disk: &D, epoch: LeaderEpoch) -> Result<(), String> {
        let text = {
            let mut replayed = self.replayed.borrow_mut();
            if !replayed.epochs.assign(epoch, self.log.log_end_offset()) {
                return Ok(());
            }
            replayed.epochs.encode()
        };
        let dir = self.log.dir();
        replace_file(disk, dir, LEADER_EPOCH_CHECKPOINT, text.as_bytes())
            .await
            .map_err(|error| {
                format!(
                    "cannot write {LEADER_EPOCH_CHECKPOINT} in {}: {error}",
                    dir.display()
                )
            })
    }

    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    pub fn high_watermark(&self) -> Offset {
        self.state.borrow().high_watermark()
    }

    /// Takes changed settings of the topic.
    pub fn set_config(&self, config: TopicConfig) {
        self.log.set_config(log_config(&config));
        *self.config.borrow_mut() = config;
    }

    /// Whether enough replicas are in sync for a produce with acks=all.
    ///
    /// # Errors
    /// They are fewer than `min.insync.replicas`, or this node does not lead.
    pub fn check_in_sync(&self) -> Result<(), PartitionError> {
        let state = self.state.borrow();
        state.check_leadership(LeaderEpoch::UNKNOWN)?;
        let in_sync = state.assignment().in_sync.len();
        let required = self.config.borrow().min_insync_replicas as usize;
        if in_sync < required {
            return Err(PartitionError::NotEnoughReplicas { in_sync, required });
        }
        Ok(())
    }

    /// Validates a batch and puts it at the end of the log, in memory. `frame_bytes` is the size of
    /// the allocation that `records` is a part of. Nothing is durable yet: see
    /// [`Partition::wait_committed`].
    ///
    /// # Errors
    /// The records are refused, or the log takes nothing now; nothing changed.
    pub fn produce(
        &self,
        records: BytesMut,
        produce_version: i16,
        now: TimestampMs,
    ) -> Result<Produced, PartitionError> {
        self.state.borrow().check_leadership(LeaderEpoch::UNKNOWN)?;
        let config = self.config.borrow();
        let log_append_time = is_log_append_time(&config);
        let rules = ValidationRules {
            produce_version,
            batch_bytes_max: config.max_message_bytes as usize,
            keys_required: config.cleanup_policy.compact,
            log_append_time,
            timestamp_before_ms_max: saturated(config.message_timestamp_before_max_ms),
            timestamp_after_ms_max: saturated(config.message_timestamp_after_max_ms),
            now,
        };
        let valid = records::validate(&records, &rules)?;
        let header = valid.header;
        if header.attributes.is_transactional() {
            return Err(PartitionError::Transactional);
        }
        if header.has_producer() {
            let last_sequence = header.last_sequence();
            let producers = &self.replayed.borrow().producers;
            let verdict = producers.check(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                last_sequence,
            )?;
            if let Verdict::Duplicate(known) = verdict {
                return Ok(self.produced(
                    known.base_offset(),
                    known.last_offset,
                    &config,
                    now,
                    0,
                    0,
                ));
            }
        }
        let bytes = records.len() as u64;
        let base_offset = self.append(records, &valid, log_append_time, now)?;
        let last_offset = base_offset.plus(i64::from(header.last_offset_delta));
        let record_count = u64::try_from(header.record_count).unwrap_or(0);
        Ok(self.produced(base_offset, last_offset, &config, now, record_count, bytes))
    }

    fn produced(
        &self,
        base_offset: Offset,
        last_offset: Offset,
        config: &TopicConfig,
        now: TimestampMs,
        record_count: u64,
        bytes: u64,
    ) -> Produced {
        Produced {
            base_offset,
            last_offset,
            log_append_time: if is_log_append_time(config) {
                now
            } else {
                TimestampMs::NONE
            },
            log_start_offset: self.state.borrow().log_start(),
            record_count,
            bytes,
        }
    }

    /// Gives a valid batch its place: offset, epoch and timestamp in its bytes, the bytes in the
    /// log, and then what follows from them.
    fn append(
        &self,
        mut records: BytesMut,
        valid: &ValidBatch,
        log_append_time: bool,
        now: TimestampMs,
    ) -> Result<Offset, PartitionError> {
        let header = &valid.header;
        let base_offset = self.log.log_end_offset();
        let leader_epoch = self.state.borrow().leader_epoch();
        let last_offset = base_offset.plus(i64::from(header.last_offset_delta));
        let max_timestamp = if log_append_time {
            now
        } else {
            valid.max_timestamp
        };
        batch::assign(&mut records, base_offset, leader_epoch);
        // The client's own words count unless they are wrong or the broker's clock is asked for.
        let is_stamped = header.attributes.is_log_append_time();
        if log_append_time || is_stamped || header.max_timestamp != max_timestamp {
            batch::set_max_timestamp(&mut records, max_timestamp, log_append_time);
        }
        let batch = AppendBatch {
            bytes: records.freeze(),
            base_offset,
            last_offset,
            max_timestamp,
            leader_epoch,
        };
        self.log.append(batch, now).map_err(append_error)?;
        if header.has_producer() {
            self.replayed.borrow_mut().producers.update(
                appended_batch(header, base_offset, last_offset, max_timestamp),
                now,
            );
        }
        self.state.borrow_mut().appended(last_offset.next());
        Ok(base_offset)
    }

    /// Resolves when records below `end` are committed: on stable media (or with the device, where
    /// `flush.messages` relaxes that).
    ///
    /// # Errors
    /// The device is full or failed before.
    pub async fn wait_committed(&self, end: Offset) -> Result<(), PartitionError> {
        self.log
            .wait_durable(end)
            .await
            .map_err(|error| PartitionError::Storage(error.to_string()))
    }

    /// Finds committed records from `offset` on: whole batches, of `bytes_max` together at most. A
    /// first batch that is larger is found all the same with `at_least_one` (KIP-74).
    ///
    /// # Errors
    /// A wrong epoch, an offset outside of the log, or the device.
    pub async fn read(
        &self,
        offset: Offset,
        leader_epoch: LeaderEpoch,
        isolation: Isolation,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Result<PartitionRead<SharedFile<D>>, PartitionError> {
        let range = self
            .state
            .borrow()
            .fetch_range(leader_epoch, offset, isolation)?;
        let info = ReadInfo {
            high_watermark: range.high_watermark,
            last_stable_offset: range.last_stable_offset,
            log_start_offset: range.log_start,
        };
        if range.from >= range.until {
            return Ok(PartitionRead {
                extents: Vec::new(),
                bytes: 0,
                info,
            });
        }
        let found = self
            .log
            .read(range.from, bytes_max as u64, range.until, at_least_one)
            .await;
        let found = found.map_err(read_error)?;
        Ok(PartitionRead {
            bytes: found.len,
            extents: found.extents,
            info,
        })
    }

    /// Answers ListOffsets.
    ///
    /// # Errors
    /// A wrong epoch, a special timestamp that `version` does not know, or the device.
    pub async fn list_offset(
        &self,
        timestamp: i64,
        version: i16,
        leader_epoch: LeaderEpoch,
        isolation: Isolation,
    ) -> Result<ListedOffset, PartitionError> {
        let plan = {
            let epochs = &self.replayed.borrow().epochs;
            let state = self.state.borrow();
            list_offsets::plan(timestamp, version, leader_epoch, isolation, &state, epochs)?
        };
        let (found, below) = match plan {
            Plan::Answer(answer) => return Ok(answer),
            Plan::FindTimestamp { timestamp, below } => (
                self.log
                    .offset_for_time(timestamp, below, &find_record)
                    .await,
                below,
            ),
            Plan::FindMaxTimestamp { below } => {
                (self.log.max_timestamp(below, &find_record).await, below)
            }
        };
        let found = found.map_err(read_error)?.map(|found| ListedOffset {
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: found.leader_epoch,
        });
        list_offsets::confine(found, below, isolation, &self.state.borrow())
    }

    /// Answers OffsetForLeaderEpoch.
    ///
    /// # Errors
    /// A wrong current epoch.
    pub fn end_of_epoch(
        &self,
        current: LeaderEpoch,
        asked: LeaderEpoch,
    ) -> Result<EpochEnd, PartitionError> {
        let state = self.state.borrow();
        state.check_leadership(current)?;
        Ok(self
            .replayed
            .borrow()
            .epochs
            .end_offset_for(asked, state.log_end()))
    }

    /// Moves the log's start up to `before` (the high watermark where none is given) and returns
    /// where it is. The caller makes a checkpoint durable before it answers, then calls
    /// [`Partition::remove_old_segments`].
    ///
    /// # Errors
    /// The offset is above the high watermark.
    pub fn delete_records(&self, before: Option<Offset>) -> Result<Offset, PartitionError> {
        let start = self.state.borrow_mut().move_log_start(before)?;
        self.log.advance_log_start(start);
        self.replayed.borrow_mut().epochs.truncate_from_start(start);
        Ok(start)
    }

    /// Removes segments that lie whole below the log's start.
    ///
    /// # Errors
    /// The device failed.
    pub async fn remove_old_segments(&self) -> std::io::Result<usize> {
        self.log.remove_old_segments().await
    }

    /// Flushes, and says from where recovery may begin.
    pub async fn checkpoint(&self) -> PartitionCheckpoint {
        self.log.checkpoint().await
    }

    /// Forgets producers that were silent for too long; returns how many.
    pub fn expire_producers(&self, now: TimestampMs, expiration_ms: i64) -> usize {
        self.replayed
            .borrow_mut()
            .producers
            .expire(now, expiration_ms)
    }

    /// Asks for a flush when `flush.ms` has passed, where `flush.messages` relaxes flushing.
    pub fn flush_if_due(&self, now: TimestampMs) {
        let config = self.config.borrow();
        let due = saturated(config.flush_ms);
        if config.flush_messages > 1 && now.0.saturating_sub(self.flush_asked_at.get().0) >= due {
            self.flush_asked_at.set(now);
            self.log.request_flush();
        }
    }

    /// Writes what is pending again, where the device was full.
    pub fn retry_writes(&self) {
        self.log.retry_writes();
    }

    /// Flushes, trims and ends. The checkpoint returned describes the log's end.
    ///
    /// # Errors
    /// Something could not be written: recovery will find the log as after a crash.
    pub async fn close(&self) -> std::io::Result<PartitionCheckpoint> {
        self.log.close().await
    }

    /// What [`Partition::checkpoint`] last said, without any work.
    pub fn last_checkpoint(&self) -> PartitionCheckpoint {
        self.log.last_checkpoint()
    }

    /// Ends, and renames the folder out of the way: its name is free when this resolves. The folder
    /// returned is to be removed.
    ///
    /// # Errors
    /// The device failed; what is left goes at the next start.
    pub async fn retire(&self) -> std::io::Result<PathBuf> {
        self.log.retire().await
    }
}

/// Makes the folder, or reads what it says of itself.
async fn prepare_folder<D: Disk>(disk: &D, setup: &PartitionSetup) -> Result<LeaderEpochs, String> {
    let dir = &setup.dir;
    let cannot =
        |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", dir.display());
    let read = async |name: &str| match disk.read_file(&dir.join(name)).await {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot("read", error)),
    };
    match read(PARTITION_METADATA).await? {
        Some(text) => {
            let found = decode_partition_metadata(&text).map_err(|error| error.to_string())?;
            if found != setup.identity.topic_id {
                return Err(format!(
                    "{} belongs to topic id {found}, not {}: move it away, it is another topic's data",
                    dir.display(),
                    setup.identity.topic_id
                ));
            }
        }
        None => {
            disk.create_dir_all(dir)
                .await
                .map_err(|error| cannot("make", error))?;
            let text = encode_partition_metadata(setup.identity.topic_id);
            replace_file(disk, dir, PARTITION_METADATA, text.as_bytes())
                .await
                .map_err(|error| cannot("write into", error))?;
            if let Some(parent) = dir.parent() {
                disk.sync_dir(parent)
                    .await
                    .map_err(|error| cannot("flush the parent of", error))?;
            }
        }
    }
    let epochs = read(LEADER_EPOCH_CHECKPOINT)
        .await?
        .map(|text| LeaderEpochs::decode(&text));
    match epochs {
        Some(Ok(epochs)) => Ok(epochs),
        Some(Err(error)) => {
            // Derived: the batches that recovery scans bring it back as far as they go.
            tracing::warn!(dir = %dir.display(), %error, "ignoring a damaged {LEADER_EPOCH_CHECKPOINT}");
            Ok(LeaderEpochs::new())
        }
        None => Ok(LeaderEpochs::new()),
    }
}

fn is_log_append_time(config: &TopicConfig) -> bool {
    config.message_timestamp_type == TimestampType::LogAppendTime
}

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn log_config(config: &TopicConfig) -> LogConfig {
    LogConfig {
        segment_bytes: u64::from(config.segment_bytes),
        segment_ms: saturated(config.segment_ms),
        index_interval_bytes: u64::from(config.index_interval_bytes),
        segment_index_bytes: config.segment_index_bytes as usize,
        flush_messages: config.flush_messages,
        ..LogConfig::default()
    }
}

fn appended_batch(
    header: &BatchHeader,
    base_offset: Offset,
    last_offset: Offset,
    timestamp: TimestampMs,
) -> AppendedBatch {
    debug_assert_ne!(header.producer_id, ProducerId::NONE);
    AppendedBatch {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        last_sequence: header.last_sequence(),
        base_offset,
        last_offset,
        timestamp,
        is_control: false,
    }
}

fn find_record(
    batch: &BatchView<'_>,
    timestamp: TimestampMs,
    from: Offset,
) -> Result<Option<(TimestampMs, Offset)>, String> {
    records::first_not_older(batch.bytes(), timestamp, from).map_err(|error| error.to_string())
}

fn append_error(error: AppendError) -> PartitionError {
    match error {
        AppendError::TooLarge { len, segment_bytes } => PartitionError::LargerThanSegment {
            bytes: len,
            segment_bytes,
        },
        AppendError::OutOfOrder { .. } | AppendError::Log(_) => {
            PartitionError::Storage(error.to_string())
        }
    }
}

fn read_error(error: ReadError) -> PartitionError {
    match error {
        ReadError::OffsetOutOfRange { offset, start, end } => PartitionError::OffsetOutOfRange {
            asked: offset,
            log_start: start,
            end,
        },
        ReadError::Closed => PartitionError::Stopping,
        ReadError::Corrupt { .. } | ReadError::Io { .. } => {
            PartitionError::Storage(error.to_string())
        }
    }
}
