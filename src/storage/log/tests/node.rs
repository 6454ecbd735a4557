//! A node on the simulated disk: several partitions on one or more cores, each core with a commit
//! log, and what was promised of every partition.

use std::cell::Cell;

use futures_lite::future::yield_now;

use super::simulated::{DATA_DIR, expected_trace_of, small_segments};
use super::*;
use crate::base::{ShardId, TopicId};
use crate::io::local::Semaphore;
use crate::io::sim_disk::{SimDisk, SimRandom, UNREADABLE};
use crate::storage::checkpoint::{self, CheckpointEntry, CoreCheckpoint};
use crate::storage::commit::format::FileHeader;
use crate::storage::commit::log::LocalResult;
use crate::storage::commit::replay;
use crate::storage::partition_files::create_partition_dir;

/// Four files of six blocks: groups of twelve kibibytes, batches of six.
pub const COMMIT_LOG_BYTES: u64 = 96 << 10;

pub fn topic_id(partition: usize) -> TopicId {
    TopicId(uuid::Uuid::from_u128(partition as u128 + 1))
}

fn dir(partition: usize) -> PathBuf {
    Path::new(DATA_DIR).join(format!("t-{partition}"))
}

/// The batch that `partition` has at `base`, in every run.
pub fn batch_of(partition: usize, base: Offset) -> AppendBatch {
    let mut random = SimRandom::new(base.0 as u64 ^ ((partition as u64) << 40));
    let records = 1 + random.below(9) as i32;
    let payload_bytes = match random.below(12) {
        0..8 => random.below(300),
        8..10 => 500 + random.below(2_500),
        // Beyond what an inline entry takes, now and then.
        _ => 3_000 + random.below(6_000),
    };
    let timestamp = TimestampMs(1_000_000 + base.0);
    let seed = random.next_u64();
    let bytes = Bytes::from(batch(
        base,
        records,
        payload_bytes as usize,
        timestamp,
        seed,
    ));
    AppendBatch {
        bytes,
        base_offset: base,
        last_offset: base.plus(i64::from(records) - 1),
        max_timestamp: timestamp,
        leader_epoch: LeaderEpoch(7),
    }
}

/// Small appends wait for company, larger ones and many go directly, and segments roll often.
pub fn config() -> LogConfig {
    LogConfig {
        direct_bytes_min: 9_000,
        stage_bytes_min: 4096,
        ..small_segments()
    }
}

/// An open partition.
pub struct Held {
    pub partition: usize,
    pub log: Log<SimDisk, Trace>,
    trace: Rc<RefCell<Trace>>,
    promise: Rc<Promise>,
}

/// Up to where a partition's records were acknowledged.
#[derive(Debug, Default)]
pub struct Promise {
    /// Survives the end of the process.
    pub acknowledged: Cell<Offset>,
    /// Survives a power loss too: acknowledged while the flush rule was strict.
    pub flushed: Cell<Offset>,
    is_relaxed: Cell<bool>,
}

impl Promise {
    fn note(&self, durable: Offset) {
        assert!(
            durable >= self.acknowledged.get(),
            "the durable offset went back"
        );
        self.acknowledged.set(durable);
        if !self.is_relaxed.get() {
            self.flushed.set(durable);
        }
    }
}

/// A core: its storage, and what it writes checkpoints of.
pub struct Core {
    pub storage: Rc<CoreStorage<SimDisk>>,
    checkpoints: Rc<Checkpoints>,
}

struct Checkpoints {
    disk: SimDisk,
    shard: ShardId,
    generation: u64,
    sequence: Cell<u64>,
    released_group: Cell<u64>,
    turn: Semaphore,
    logs: RefCell<Vec<(usize, Log<SimDisk, Trace>)>>,
    /// What the last run knew of partitions that cannot be opened.
    offline: Vec<(usize, PartitionCheckpoint)>,
}

impl Checkpoints {
    async fn write(&self) -> io::Result<()> {
        let _turn = self.turn.acquire(1).await;
        let states = self.states().await;
        self.save(states).await
    }

    async fn write_first(&self) -> io::Result<()> {
        let checkpoint = self.checkpoint_of(self.states().await);
        checkpoint::write_first(&self.disk, Path::new(DATA_DIR), self.shard, &checkpoint).await
    }

    async fn states(&self) -> Vec<(usize, PartitionCheckpoint)> {
        let logs = self.logs.borrow().clone();
        let mut states = Vec::new();
        for (partition, log) in logs {
            states.push((partition, log.checkpoint().await));
            yield_now().await;
        }
        states
    }

    async fn save(&self, states: Vec<(usize, PartitionCheckpoint)>) -> io::Result<()> {
        let checkpoint = self.checkpoint_of(states);
        checkpoint::write(&self.disk, Path::new(DATA_DIR), self.shard, &checkpoint).await
    }

    fn checkpoint_of(&self, states: Vec<(usize, PartitionCheckpoint)>) -> CoreCheckpoint {
        self.sequence.set(self.sequence.get() + 1);
        let entries = states
            .into_iter()
            .chain(self.offline.iter().cloned())
            .map(|(partition, state)| CheckpointEntry {
                topic_id: topic_id(partition),
                partition: 0,
                state,
            })
            .collect();
        CoreCheckpoint {
            generation: self.generation,
            sequence: self.sequence.get(),
            released_group: self.released_group.get(),
            entries,
        }
    }
}

/// One life of a node.
pub struct Node {
    disk: SimDisk,
    pub cores: Vec<Core>,
    pub partitions: Vec<Held>,
    generation: u64,
}

impl Node {
    /// Recovers what the disk holds, and then begins the commit logs. `announce` is called with the
    /// promise of each partition as soon as that is open. Partitions that cannot be read are offline.
    pub async fn start(
        disk: &SimDisk,
        spawn: &Spawn,
        core_count: usize,
        partition_count: usize,
        flaw: Flaw,
        announce: impl Fn(usize, Rc<Promise>),
    ) -> Result<Self, String> {
        let data_dir = Path::new(DATA_DIR);
        let failed = |error: io::Error| format!("starting: {error}");
        for shard in 0..core_count {
            let core_dir = checkpoint::core_dir(data_dir, shard_id(shard));
            disk.create_dir_all(&core_dir).await.map_err(failed)?;
        }
        disk.sync_dir(data_dir).await.map_err(failed)?;
        disk.sync_dir(Path::new("/")).await.map_err(failed)?;
        let merged = checkpoint::read_all(disk, data_dir)
            .await
            .map_err(|error| error.to_string())?;
        if !merged.damaged.is_empty() {
            return Err(format!("damaged checkpoints: {:?}", merged.damaged));
        }
        let mut node = Self {
            disk: disk.clone(),
            cores: Vec::new(),
            partitions: Vec::new(),
            generation: 0,
        };
        let mut held = Vec::new();
        for shard in 0..core_count {
            let mut found = replay::read_all(
                disk,
                data_dir,
                &merged,
                shard_id(shard),
                core_count as u16,
                move |topic, _| (topic.0.as_u128() as usize - 1) % core_count == shard,
            )
            .await
            .map_err(|error| error.to_string())?;
            let generation = merged.generation.max(found.generation) + 1;
            node.generation = generation;
            let storage = CoreStorage::new(disk.clone(), spawn.clone(), 5_000, 100_000, 3);
            storage.flaw.set(flaw);
            let mut logs = Vec::new();
            let mut offline = Vec::new();
            for partition in (shard..partition_count).step_by(core_count) {
                let key = (topic_id(partition), 0);
                let known = merged.partitions.get(&key).cloned();
                let logged = found.partitions.remove(&key).unwrap_or_default();
                let kept = (known.clone(), logged.clone());
                let opened = open(&storage, partition, generation, known, logged).await;
                if matches!(&opened, Err(error) if error.contains(UNREADABLE)) {
                    let (known, logged) = kept;
                    if !logged.is_empty() {
                        let dir = dir(partition);
                        keep_logged(disk, &dir, &logged).await.map_err(failed)?;
                    }
                    offline.extend(known.map(|known| (partition, known)));
                    continue;
                }
                let opened = opened?;
                announce(partition, opened.promise.clone());
                logs.push((partition, opened.log.clone()));
                held.push(opened);
            }
            if let Some((topic, _)) = found.partitions.keys().next() {
                return Err(format!("the commit logs know {topic:?}, which never was"));
            }
            node.cores.push(Core {
                storage,
                checkpoints: Rc::new(Checkpoints {
                    disk: disk.clone(),
                    shard: shard_id(shard),
                    generation,
                    sequence: Cell::new(0),
                    released_group: Cell::new(0),
                    turn: Semaphore::new(1),
                    logs: RefCell::new(logs),
                    offline,
                }),
            });
        }
        held.sort_by_key(|held| held.partition);
        node.partitions = held;
        node.start_commit_logs().await.map_err(failed)?;
        Ok(node)
    }

    /// As the shards do: each for itself, once all partitions are open.
    async fn start_commit_logs(&self) -> io::Result<()> {
        let data_dir = Path::new(DATA_DIR);
        for core in &self.cores {
            core.checkpoints.write_first().await?;
        }
        for (shard, core) in self.cores.iter().enumerate() {
            core.checkpoints.write().await?;
            let checkpoints = core.checkpoints.clone();
            let before_reuse = Box::new(move |released_group| -> LocalResult<()> {
                checkpoints.released_group.set(released_group);
                let checkpoints = checkpoints.clone();
                Box::pin(async move { checkpoints.write().await })
            });
            let commit_log = CommitLog::start(
                &self.disk,
                core.storage.spawn.clone(),
                &checkpoint::core_dir(data_dir, shard_id(shard)),
                self.header(shard, 0),
                COMMIT_LOG_BYTES,
                before_reuse,
            )
            .await?;
            core.storage.set_commit_log(commit_log);
            if shard == 0 {
                checkpoint::remove_others(&self.disk, data_dir, self.cores.len()).await?;
            }
        }
        Ok(())
    }

    fn header(&self, shard: usize, runs_later: u64) -> FileHeader {
        FileHeader {
            generation: self.generation + runs_later,
            shard: shard_id(shard),
            shard_count: self.cores.len() as u16,
        }
    }

    pub async fn checkpoint(&self, core: usize) -> io::Result<()> {
        self.cores[core].checkpoints.write().await
    }

    /// What a shard does now and then.
    pub fn tick(&self) {
        for held in &self.partitions {
            held.log.retry_writes();
        }
        for core in &self.cores {
            if let Some(commit_log) = core.storage.commit_log() {
                commit_log.retry();
            }
        }
    }

    /// Ends as a clean stop does.
    pub async fn close(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("closing: {error}");
        for (shard, core) in self.cores.iter().enumerate() {
            let Some(commit_log) = core.storage.commit_log() else {
                continue;
            };
            commit_log.stop().await;
            let _turn = core.checkpoints.turn.acquire(1).await;
            let mut states = Vec::new();
            for (partition, log) in core.checkpoints.logs.take() {
                states.push((partition, log.close().await.map_err(failed)?));
            }
            core.checkpoints.save(states).await.map_err(failed)?;
            let core_dir = checkpoint::core_dir(Path::new(DATA_DIR), shard_id(shard));
            commit_log
                .close(&self.disk, &core_dir, self.header(shard, 1))
                .await
                .map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Node {
    /// The logs hold their core's storage, which holds the commit log, which holds its members and
    /// makes checkpoints of them: lives would add up.
    fn drop(&mut self) {
        for core in &self.cores {
            core.checkpoints.logs.take();
            core.storage.commit_log.take();
        }
    }
}

fn shard_id(shard: usize) -> ShardId {
    ShardId(shard as u16)
}

async fn open(
    storage: &Rc<CoreStorage<SimDisk>>,
    partition: usize,
    generation: u64,
    checkpoint: Option<PartitionCheckpoint>,
    logged: Vec<Entry>,
) -> Result<Held, String> {
    create_partition_dir(&storage.disk, &dir(partition), topic_id(partition))
        .await
        .map_err(|error| format!("no folder: {error}"))?;
    let trace = Rc::new(RefCell::new(Trace::default()));
    let promise = Rc::new(Promise::default());
    let events = LogEvents {
        on_durable: {
            let promise = promise.clone();
            Box::new(move |offset| promise.note(offset))
        },
        on_failed: Box::new(|_| {}),
    };
    let setup = LogSetup {
        identity: LogIdentity {
            topic_id: topic_id(partition),
            partition: 0,
            ownership: generation << 16,
        },
        dir: dir(partition),
        config: config(),
        checkpoint,
        logged,
        derived: trace.clone(),
        events,
    };
    let log = Log::open(storage.clone(), setup, TimestampMs(1_000))
        .await
        .map_err(|error| format!("opening partition {partition}: {error}"))?;
    promise.note(log.durable_offset());
    Ok(Held {
        partition,
        log,
        trace,
        promise,
    })
}

impl Held {
    /// How the log stands, for a run that does not go on.
    pub fn describe(&self) -> String {
        let state = self.log.inner.state.borrow();
        let commit = &state.commit;
        let commit_log = self.log.inner.core.commit_log();
        format!(
            "partition {}: {:?} end {} durable {} written {:?} flushed {:?} pending {} strict {} route {:?} logged {} unlogged {} waits {} files {:?} again {:?} {} from {} through {:?} unlogged writes {} writer {} short {:?}",
            self.partition,
            state.condition,
            state.log_end,
            state.durable,
            state.written,
            state.flushed,
            state.pending.len(),
            state.is_strict(),
            commit.route,
            commit.logged,
            commit.unlogged_count,
            commit.is_waiting,
            commit.files,
            commit.log_again,
            commit.logged_again.0,
            commit.again_from,
            commit.stage_through,
            commit.has_unlogged_writes,
            state.writer_runs,
            commit_log.map(|log| log.is_short_of_room()),
        )
    }

    pub fn has_failed(&self) -> bool {
        matches!(
            self.log.inner.state.borrow().condition,
            Condition::Failed(_)
        )
    }

    pub fn set_flush_messages(&self, flush_messages: u64) {
        self.promise.is_relaxed.set(flush_messages > 1);
        self.log.set_config(LogConfig {
            flush_messages,
            ..config()
        });
    }

    /// Appends the next batch, as a partition does.
    pub fn append(&self) -> Result<Offset, crate::storage::AppendError> {
        let batch = batch_of(self.partition, self.log.log_end_offset());
        let (base, last) = (batch.base_offset, batch.last_offset);
        self.log.append(batch, TimestampMs(1_000))?;
        self.trace.borrow_mut().apply(base, last);
        Ok(last.next())
    }

    /// Whether the log is what was appended, from its start to its durable end, and its derived
    /// state with it.
    pub async fn check(&self) -> Result<(), String> {
        let described = |error| format!("partition {}: {error}", self.partition);
        let end = self.log.durable_offset();
        let mut offset = self.log.log_start_offset();
        let mut is_first = true;
        while offset < end {
            let outcome = self.log.read(offset, 6_000, end, true).await;
            let outcome =
                outcome.map_err(|error| described(format!("reading {offset}: {error}")))?;
            let bytes = bytes_of::<crate::io::sim_disk::SimFile>(&outcome)
                .await
                .map_err(|error| described(format!("reading {offset}: {error}")))?;
            let mut rest = &bytes[..];
            if rest.is_empty() {
                return Err(described(format!("nothing at {offset}, before {end}")));
            }
            while !rest.is_empty() {
                let found = BatchView::whole(rest)
                    .map_err(|fault| described(format!("at {offset}: {fault}")))?;
                let follows =
                    found.base_offset() == offset || (is_first && found.base_offset() < offset);
                let expected = batch_of(self.partition, found.base_offset());
                if !follows || rest[..found.len()] != expected.bytes[..] {
                    return Err(described(format!("the batch at {offset} is another")));
                }
                is_first = false;
                offset = found.last_offset().next();
                rest = &rest[found.len()..];
            }
        }
        if offset != end {
            return Err(described(format!("a batch ends at {offset}, not at {end}")));
        }
        Ok(())
    }

    pub fn check_trace(&self) -> Result<(), String> {
        let end = self.log.log_end_offset();
        let trace = self.trace.borrow().clone();
        let next = |base| {
            let batch = batch_of(self.partition, base);
            (batch.base_offset, batch.last_offset)
        };
        let first = self.log.segments()[0].base;
        if [Offset::ZERO, first]
            .into_iter()
            .any(|start| trace == expected_trace_of(start, end, next))
        {
            return Ok(());
        }
        Err(format!(
            "partition {}: the derived state at {end} is {trace:?}",
            self.partition
        ))
    }
}
