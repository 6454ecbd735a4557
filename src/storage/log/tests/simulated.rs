//! A log on the simulated disk, with what the tests know of it.

use std::cell::Cell;

use super::*;
use crate::base::{ShardId, TopicId};
use crate::io::local::Semaphore;
use crate::io::sim_disk::{SimDisk, SimRandom};
use crate::io::sim_executor::SimExecutor;
use crate::storage::checkpoint::{self, CheckpointEntry, CoreCheckpoint};
use crate::storage::commit::format::FileHeader;
use crate::storage::commit::log::LocalResult;
use crate::storage::commit::replay;
use crate::storage::partition_files::create_partition_dir;

pub const DATA_DIR: &str = "/data";
pub const TOPIC_ID: TopicId = TopicId(uuid::Uuid::from_u128(1));

/// One life of a process: an executor and its storage on a disk that outlives it.
pub struct Life {
    pub executor: SimExecutor,
    pub core: Rc<CoreStorage<SimDisk>>,
    /// The size of the commit log, where there is one.
    pub commit_log_bytes: Option<u64>,
    checkpoints: Checkpoints,
}

impl Drop for Life {
    /// The logs hold the core's storage, which holds the commit log, which holds the logs.
    fn drop(&mut self) {
        self.core.commit_log.take();
    }
}

/// Writes a partition's checkpoints, one at a time.
#[derive(Clone)]
struct Checkpoints {
    disk: SimDisk,
    generation: u64,
    sequence: Rc<Cell<u64>>,
    released_group: Rc<Cell<u64>>,
    turn: Semaphore,
}

impl Checkpoints {
    async fn write(&self, log: &Log<SimDisk, Trace>) -> std::io::Result<()> {
        let _turn = self.turn.acquire(1).await;
        let state = log.checkpoint().await;
        self.save(state).await
    }

    async fn save(&self, state: PartitionCheckpoint) -> std::io::Result<()> {
        self.sequence.set(self.sequence.get() + 1);
        let checkpoint = CoreCheckpoint {
            generation: self.generation,
            sequence: self.sequence.get(),
            released_group: self.released_group.get(),
            entries: vec![CheckpointEntry {
                topic_id: TOPIC_ID,
                partition: 0,
                state,
            }],
        };
        checkpoint::write(&self.disk, Path::new(DATA_DIR), ShardId(0), &checkpoint).await
    }
}

/// A log and what was promised of it.
pub struct Opened {
    pub log: Log<SimDisk, Trace>,
    pub trace: Rc<RefCell<Trace>>,
    /// The greatest durable offset that was announced.
    pub acknowledged: Rc<Cell<Offset>>,
    pub failures: Rc<RefCell<Vec<String>>>,
}

pub fn small_segments() -> LogConfig {
    LogConfig {
        segment_bytes: 12_000,
        index_interval_bytes: 500,
        preallocate_bytes_min: 4096,
        preallocate_bytes_max: 8192,
        write_bytes_max: 6_000,
        gathered_bytes_max: 12_000,
        ahead_bytes_min: 2_000,
        placed_bytes_min: 1_500,
        ..LogConfig::default()
    }
}

/// The batch that every simulation has at `base`.
pub fn expected_batch(base: Offset) -> AppendBatch {
    let mut random = SimRandom::new(base.0 as u64 ^ 0xabcd);
    let records = 1 + random.below(9) as i32;
    let payload_bytes = match random.below(10) {
        0..7 => random.below(300),
        7..9 => 500 + random.below(2_500),
        _ => 3_000 + random.below(7_000),
    };
    batch_at(base, records, payload_bytes as usize)
}

/// The trace of the batches from `start`, where one begins, to `end`.
pub fn expected_trace(start: Offset, end: Offset) -> Trace {
    expected_trace_of(start, end, |base| {
        let batch = expected_batch(base);
        (batch.base_offset, batch.last_offset)
    })
}

/// The same of other batches: `batch_at` says where the one at an offset begins and ends.
pub fn expected_trace_of(
    start: Offset,
    end: Offset,
    batch_at: impl Fn(Offset) -> (Offset, Offset),
) -> Trace {
    let mut trace = Trace::default();
    let mut base = start;
    while base < end {
        let (first, last) = batch_at(base);
        trace.apply(first, last);
        base = last.next();
    }
    trace
}

pub fn dir() -> PathBuf {
    Path::new(DATA_DIR).join("t-0")
}

impl Life {
    pub fn new(disk: SimDisk, seed: u64) -> Self {
        let executor = SimExecutor::new(seed);
        let spawn = executor.spawn();
        // A tail cache of a few batches, so that reads come from files too.
        let core = CoreStorage::new(disk.clone(), spawn, 5_000, 100_000, 3);
        Self {
            executor,
            core,
            commit_log_bytes: None,
            checkpoints: Checkpoints {
                disk,
                generation: 0,
                sequence: Rc::default(),
                released_group: Rc::default(),
                turn: Semaphore::new(1),
            },
        }
    }

    /// Makes the folders durable that a start makes durable; the partition's own is not.
    pub async fn make_dirs(&self) {
        let disk = &self.core.disk;
        let core_dir = checkpoint::core_dir(Path::new(DATA_DIR), ShardId(0));
        disk.create_dir_all(&core_dir).await.unwrap();
        disk.sync_dir(Path::new(DATA_DIR)).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
    }

    pub async fn open(&mut self, config: LogConfig) -> Result<Opened, OpenError> {
        let merged = checkpoint::read_all(&self.core.disk, Path::new(DATA_DIR))
            .await
            .unwrap();
        assert!(merged.damaged.is_empty(), "{:?}", merged.damaged);
        let mut found = replay::read_all(
            &self.core.disk,
            Path::new(DATA_DIR),
            &merged,
            ShardId(0),
            1,
            |_, _| true,
        )
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        self.checkpoints.generation = merged.generation.max(found.generation) + 1;
        let known = merged.partitions.get(&(TOPIC_ID, 0)).cloned();
        let logged = found.partitions.remove(&(TOPIC_ID, 0)).unwrap_or_default();

        let opened = self.open_with(config, known, logged).await?;
        if let Some(bytes) = self.commit_log_bytes {
            self.start_commit_log(&opened, bytes).await;
        }
        Ok(opened)
    }

    async fn start_commit_log(&self, opened: &Opened, bytes: u64) {
        self.checkpoints.write(&opened.log).await.unwrap();
        let (checkpoints, log) = (self.checkpoints.clone(), opened.log.clone());
        let before_reuse = Box::new(move |released_group| -> LocalResult<()> {
            checkpoints.released_group.set(released_group);
            let (checkpoints, log) = (checkpoints.clone(), log.clone());
            Box::pin(async move { checkpoints.write(&log).await })
        });
        let commit_log = CommitLog::start(
            &self.core.disk,
            self.core.spawn.clone(),
            &checkpoint::core_dir(Path::new(DATA_DIR), ShardId(0)),
            self.header(0),
            bytes,
            before_reuse,
        )
        .await
        .unwrap();
        self.core.set_commit_log(commit_log);
    }

    fn header(&self, runs_later: u64) -> FileHeader {
        FileHeader {
            generation: self.checkpoints.generation + runs_later,
            shard: ShardId(0),
            shard_count: 1,
        }
    }

    /// Closes the log as a clean stop does.
    pub async fn close(&self, opened: &Opened) -> Result<(), String> {
        if let Some(commit_log) = self.core.commit_log() {
            commit_log.stop().await;
        }
        let closed = opened.log.close().await;
        let closed = closed.map_err(|error| error.to_string())?;
        self.save_checkpoint(closed).await;
        if let Some(commit_log) = self.core.commit_log() {
            let core_dir = checkpoint::core_dir(Path::new(DATA_DIR), ShardId(0));
            commit_log
                .close(&self.core.disk, &core_dir, self.header(1))
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub async fn open_from(
        &self,
        config: LogConfig,
        checkpoint: Option<PartitionCheckpoint>,
    ) -> Result<Opened, OpenError> {
        self.open_with(config, checkpoint, Vec::new()).await
    }

    async fn open_with(
        &self,
        config: LogConfig,
        checkpoint: Option<PartitionCheckpoint>,
        logged: Vec<Entry>,
    ) -> Result<Opened, OpenError> {
        create_partition_dir(&self.core.disk, &dir(), TOPIC_ID)
            .await
            .unwrap();
        let trace = Rc::new(RefCell::new(Trace::default()));
        let acknowledged = Rc::new(Cell::new(Offset::ZERO));
        let failures = Rc::new(RefCell::new(Vec::new()));
        let events = LogEvents {
            on_durable: {
                let acknowledged = acknowledged.clone();
                Box::new(move |offset| {
                    assert!(offset >= acknowledged.get(), "the durable offset went back");
                    acknowledged.set(offset);
                })
            },
            on_failed: {
                let failures = failures.clone();
                Box::new(move |reason| failures.borrow_mut().push(reason.to_owned()))
            },
        };
        let setup = LogSetup {
            identity: LogIdentity {
                topic_id: TOPIC_ID,
                partition: 0,
                ownership: self.checkpoints.generation,
            },
            logged,
            dir: dir(),
            config,
            checkpoint,
            derived: trace.clone(),
            events,
        };
        let log = Log::open(self.core.clone(), setup, TimestampMs(1_000)).await?;
        acknowledged.set(log.durable_offset());
        Ok(Opened {
            log,
            trace,
            acknowledged,
            failures,
        })
    }

    /// Makes the log's checkpoint durable.
    pub async fn checkpoint(&self, log: &Log<SimDisk, Trace>) {
        self.checkpoints.write(log).await.unwrap();
    }

    pub async fn save_checkpoint(&self, state: PartitionCheckpoint) {
        self.checkpoints.save(state).await.unwrap();
    }
}

impl Opened {
    /// Appends the next batch, as a partition does.
    pub fn append(&self) -> Result<Offset, crate::storage::AppendError> {
        let batch = expected_batch(self.log.log_end_offset());
        let (base, last) = (batch.base_offset, batch.last_offset);
        self.log.append(batch, TimestampMs(1_000))?;
        self.trace.borrow_mut().apply(base, last);
        Ok(last.next())
    }

    /// Appends some batches and waits until they are durable.
    pub async fn append_durably(&self, batches: usize) -> Offset {
        let mut end = self.log.log_end_offset();
        for _ in 0..batches {
            end = self.append().unwrap();
        }
        self.log.wait_durable(end).await.unwrap();
        end
    }

    /// Whether the log is exactly what was appended, from its start to its durable end.
    pub async fn check(&self) -> Result<(), String> {
        let end = self.log.durable_offset();
        let mut offset = self.log.log_start_offset();
        let mut is_first = true;
        while offset < end {
            let outcome = self
                .log
                .read(offset, 4_000, end, true)
                .await
                .map_err(|error| format!("reading {offset}: {error}"))?;
            let bytes = bytes_of::<crate::io::sim_disk::SimFile>(&outcome)
                .await
                .unwrap();
            let mut rest = &bytes[..];
            if rest.is_empty() {
                return Err(format!("nothing at {offset}, before {end}"));
            }
            while !rest.is_empty() {
                let found =
                    BatchView::whole(rest).map_err(|fault| format!("at {offset}: {fault}"))?;
                let follows =
                    found.base_offset() == offset || (is_first && found.base_offset() < offset);
                let expected = expected_batch(found.base_offset());
                if !follows || rest[..found.len()] != expected.bytes[..] {
                    return Err(format!("the batch at {offset} is another"));
                }
                is_first = false;
                offset = found.last_offset().next();
                rest = &rest[found.len()..];
            }
        }
        if offset != end {
            return Err(format!("the last batch ends at {offset} and not at {end}"));
        }
        Ok(())
    }

    /// Whether the derived state is that of the log's batches.
    pub fn check_trace(&self) -> Result<(), String> {
        let trace = self.trace.borrow().clone();
        let end = self.log.log_end_offset();
        if trace == expected_trace(Offset::ZERO, end) {
            return Ok(());
        }
        // Without any snapshot, what was deleted cannot be known.
        let first = self.log.segments()[0].base;
        if first > Offset::ZERO && trace == expected_trace(first, end) {
            return Ok(());
        }
        Err(format!("the derived state at {end} is {trace:?}"))
    }
}
