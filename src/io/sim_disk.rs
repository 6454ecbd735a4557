//! A disk in memory for tests, deterministic by its seed. It keeps what a program sees apart from
//! what would survive a power loss:
//!
//! - every sector of a write that no completed flush covers may be lost or kept, each for itself;
//! - a flush empties the device's cache: it also covers what was complete of other files, where that
//!   overwrote blocks that were written and flushed with their own file before;
//! - a block that was reserved and written may read as it was, zeros, until a flush of its own file:
//!   its bytes reach the device with any flush, that they count does not;
//! - a size that was not flushed (by writing, reserving or truncating) may revert;
//! - a directory's changes that no [`sync_dir`](Disk::sync_dir) covers may be lost, in any subset;
//! - an operation takes a random number of turns, so operations in flight complete in any order.
//!
//! It can fail or crash at the n-th operation, fail reads from the n-th on, fill up, and lie about
//! flushes. Two writes in flight that touch the same block are a bug of the caller's, and panic.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_lite::future::{pending, yield_now};

use super::disk::{Disk, DiskFile, OpenMode, Space};
use super::splice::SpliceSource;
use crate::base::limits::DISK_BLOCK_BYTES;
use image::{ChangeKind, Dir, File, Inode, NameChanges, ROOT, SimState, apply, names, set_name};

mod image;

#[cfg(test)]
mod tests;

/// What an error says of a read that fails on demand.
pub const UNREADABLE: &str = "injected: unreadable";

/// The most turns that an operation takes.
const DELAY_TURNS_MAX: u64 = 3;

/// A small generator whose sequence is fixed by its seed for good (SplitMix64).
#[derive(Debug, Clone)]
pub struct SimRandom(u64);

impl SimRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// The disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<SimState>>,
}

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        Self::with_inodes(seed, vec![Inode::Dir(Dir::default())])
    }

    fn with_inodes(seed: u64, inodes: Vec<Inode>) -> Self {
        Self {
            state: Arc::new(Mutex::new(SimState {
                random: SimRandom::new(seed),
                inodes,
                next_change: 0,
                operations: 0,
                crash_at: None,
                crashed: false,
                faults: BTreeMap::new(),
                reads: 0,
                failing_reads: 0..0,
                completions: 0,
                reached: 0,
                flushes_reach_others: true,
                capacity_bytes: None,
                flushes_lie: false,
                writes_lie: false,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operations that changed something or flushed, so far.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// The power fails while the `operation`-th operation is in flight: it and all later ones never
    /// complete.
    pub fn crash_at(&self, operation: u64) {
        self.lock().crash_at = Some(operation);
    }

    pub fn has_crashed(&self) -> bool {
        self.lock().crashed
    }

    /// The `operation`-th operation fails with `kind` and changes nothing.
    pub fn fail_at(&self, operation: u64, kind: io::ErrorKind) {
        self.lock().faults.insert(operation, kind);
    }

    /// Reads of files and of directories, so far.
    pub fn reads(&self) -> u64 {
        self.lock().reads
    }

    /// So many reads of files and of directories fail, from the `first`-th on, as they do from a
    /// bad sector.
    pub fn fail_reads(&self, first: u64, count: u64) {
        self.lock().failing_reads = first..first.saturating_add(count);
    }

    /// A flush covers its own file alone, as where each file is on a device of its own.
    pub fn flush_each_file_alone(&self) {
        self.lock().flushes_reach_others = false;
    }

    /// Files that would be larger together fail to grow.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.lock().capacity_bytes = capacity_bytes;
    }

    /// What all files take, in bytes, as [`set_capacity`](Self::set_capacity) counts.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// Writes are called complete while they are still in flight, until the next flush has begun: so
    /// it looks to the disk when a program flushes before its writes have completed. For tests of
    /// the tests.
    pub fn complete_writes_early(&self) {
        self.lock().writes_lie = true;
    }

    /// Flushes claim success and make nothing durable: for tests of the tests.
    pub fn lie_about_flushes(&self) {
        self.lock().flushes_lie = true;
    }

    /// The disk after the power came back. What was not durable survives in part, by `seed`.
    pub fn crash(&self, seed: u64) -> Self {
        let mut state = self.lock();
        state.crashed = true;
        let mut random = SimRandom::new(seed);
        // Some crashes lose nearly all, some nearly nothing, most are in between.
        let kept_percent = [0, 10, 50, 90, 100][random.below(5) as usize];
        let reached = state.reached;
        let inodes = state
            .inodes
            .iter()
            .map(|inode| match inode {
                Inode::Dir(dir) => Inode::Dir(dir.after_crash(&mut random, kept_percent)),
                Inode::File(file) => {
                    Inode::File(file.after_crash(&mut random, kept_percent, reached))
                }
            })
            .collect();
        Self::with_inodes(random.next_u64(), inodes)
    }

    /// The disk after the process was killed and the machine went on: nothing that completed is
    /// lost, and what was in flight is complete or not.
    pub fn kill(&self, seed: u64) -> Self {
        let mut state = self.lock();
        state.crashed = true;
        let completion = state.next_completion();
        let mut random = SimRandom::new(seed);
        let inodes = state
            .inodes
            .iter()
            .map(|inode| match inode {
                Inode::Dir(dir) => Inode::Dir(Dir {
                    current: dir.current.clone(),
                    durable: dir.durable.clone(),
                    unsynced: dir.unsynced.clone(),
                }),
                Inode::File(file) => {
                    let mut current = file.current.clone();
                    let mut unflushed = file.unflushed.clone();
                    unflushed.retain(|change| change.is_complete() || random.percent(50));
                    for change in &mut unflushed {
                        if !change.is_complete() {
                            apply(&change.kind, &mut current);
                            change.completion = Some(completion);
                        }
                    }
                    Inode::File(File {
                        current,
                        durable: file.durable.clone(),
                        written: file.written.clone(),
                        unflushed,
                    })
                }
            })
            .collect();
        let disk = Self::with_inodes(random.next_u64(), inodes);
        {
            let mut after = disk.lock();
            after.next_change = state.next_change;
            after.completions = state.completions;
            after.reached = state.reached;
        }
        disk
    }

    /// Overwrites bytes of a file behind everybody's back: damage.
    ///
    /// # Errors
    /// There is no such file.
    pub fn damage(&self, path: &Path, position: usize, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        let inode = state.find(path)?;
        let file = state.file(inode)?;
        for image in [&mut file.current, &mut file.durable] {
            let end = position + bytes.len();
            if image.len() < end {
                image.resize(end, 0);
            }
            image[position..end].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Counts an operation and lets it begin: `issue` records what it may do. Resolves when it has
    /// completed on the device.
    async fn operate<T>(
        &self,
        issue: impl FnOnce(&mut SimState) -> io::Result<T>,
    ) -> io::Result<T> {
        let (issued, turns) = {
            let mut state = self.lock();
            state.operations += 1;
            let operation = state.operations;
            let fault = state.faults.remove(&operation);
            let issued = match fault {
                Some(kind) => Err(io::Error::new(kind, "injected")),
                None if state.crashed => Err(io::ErrorKind::BrokenPipe.into()),
                None => issue(&mut state),
            };
            if state.crash_at == Some(operation) {
                state.crashed = true;
            }
            (issued, state.random.below(DELAY_TURNS_MAX + 1))
        };
        self.pass(turns).await;
        issued
    }

    /// Lets time pass; never returns after a crash.
    async fn pass(&self, turns: u64) {
        for _ in 0..turns {
            yield_now().await;
        }
        if self.has_crashed() {
            pending::<()>().await;
        }
    }

    /// Reads a file or a directory, and fails where that was asked for.
    async fn read<T>(&self, read: impl FnOnce(&mut SimState) -> io::Result<T>) -> io::Result<T> {
        let fails = {
            let mut state = self.lock();
            state.reads += 1;
            state.failing_reads.contains(&state.reads)
        };
        self.look(|state| match fails {
            true => Err(io::Error::other(UNREADABLE)),
            false => read(state),
        })
        .await
    }

    async fn look<T>(&self, look: impl FnOnce(&mut SimState) -> io::Result<T>) -> io::Result<T> {
        let turns = {
            let mut state = self.lock();
            state.random.below(DELAY_TURNS_MAX + 1)
        };
        self.pass(turns).await;
        look(&mut self.lock())
    }

    async fn change_file(&self, inode: usize, kind: ChangeKind) -> io::Result<()> {
        let id = self
            .operate(|state| {
                state.check_capacity(inode, &kind)?;
                let id = state.next_change;
                state.next_change += 1;
                let lies = state.writes_lie;
                state.file(inode)?.issue(id, kind, lies);
                Ok(id)
            })
            .await?;
        let mut state = self.lock();
        let completion = (!state.writes_lie).then(|| state.next_completion());
        state.file(inode)?.complete(id, completion);
        Ok(())
    }

    async fn flush(&self, inode: usize) -> io::Result<()> {
        let (covered, reached) = self
            .operate(|state| {
                let reached = state.completions;
                let completion = state.next_completion();
                let file = state.file(inode)?;
                let covered: BTreeSet<u64> = file
                    .unflushed
                    .iter()
                    .filter(|change| change.is_complete())
                    .map(|change| change.id)
                    .collect();
                file.complete_late(completion);
                Ok((covered, reached))
            })
            .await?;
        let mut state = self.lock();
        if !state.flushes_lie {
            state.file(inode)?.make_durable(&covered);
            if state.flushes_reach_others {
                state.reached = state.reached.max(reached);
            }
        }
        Ok(())
    }

    async fn change_dir(&self, dir: usize, changes: NameChanges) -> io::Result<()> {
        self.operate(|state| {
            let id = state.next_change;
            state.next_change += 1;
            let dir = state.dir(dir)?;
            for (name, inode) in &changes {
                set_name(&mut dir.current, name, *inode);
            }
            dir.unsynced.push((id, changes));
            Ok(())
        })
        .await
    }

    /// Finds a file, or makes it.
    async fn open_inode(&self, path: &Path, mode: OpenMode) -> io::Result<usize> {
        match (self.look(|state| state.find(path)).await, mode) {
            (Err(error), OpenMode::Create) if error.kind() == io::ErrorKind::NotFound => {
                let (dir, name) = self.lock().parent(path)?;
                let inode = self.lock().add(Inode::File(File::default()));
                self.change_dir(dir, vec![(name, Some(inode))]).await?;
                Ok(inode)
            }
            (found, _) => found,
        }
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    async fn open(&self, path: &Path, mode: OpenMode) -> io::Result<SimFile> {
        let inode = self.open_inode(path, mode).await?;
        self.lock().file(inode)?;
        Ok(SimFile {
            disk: self.clone(),
            inode,
        })
    }

    async fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.read(|state| {
            let inode = state.find(path)?;
            Ok(state.dir(inode)?.current.keys().cloned().collect())
        })
        .await
    }

    async fn list_files(&self, path: &Path) -> io::Result<Vec<(String, u64)>> {
        self.read(|state| {
            let inode = state.find(path)?;
            let entries = state.dir(inode)?.current.clone();
            Ok(entries
                .into_iter()
                .filter_map(|(name, inode)| {
                    Some((name, state.file(inode).ok()?.current.len() as u64))
                })
                .collect())
        })
        .await
    }

    /// Without limit: a full device is a fault that a test injects.
    async fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(Space {
            total_bytes: u64::MAX,
            free_bytes: u64::MAX,
        })
    }

    async fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut dir = ROOT;
        for name in names(path) {
            let known = self.lock().dir(dir)?.current.get(&name).copied();
            dir = match known {
                Some(inode) => inode,
                None => {
                    let inode = self.lock().add(Inode::Dir(Dir::default()));
                    self.change_dir(dir, vec![(name, Some(inode))]).await?;
                    inode
                }
            };
        }
        Ok(())
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (inode, from_dir, from_name, to_dir, to_name) = {
            let mut state = self.lock();
            let inode = state.find(from)?;
            let (from_dir, from_name) = state.parent(from)?;
            let (to_dir, to_name) = state.parent(to)?;
            (inode, from_dir, from_name, to_dir, to_name)
        };
        if from_dir != to_dir {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.change_dir(from_dir, vec![(from_name, None), (to_name, Some(inode))])
            .await
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = {
            let mut state = self.lock();
            let inode = state.find(path)?;
            state.file(inode)?;
            state.parent(path)?
        };
        self.change_dir(dir, vec![(name, None)]).await
    }

    async fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let (inode, names, parent, name) = {
            let mut state = self.lock();
            let inode = state.find(path)?;
            let names: Vec<String> = state.dir(inode)?.current.keys().cloned().collect();
            let (parent, name) = state.parent(path)?;
            (inode, names, parent, name)
        };
        // One by one, as a file system has it: a crash leaves some of them.
        for name in names {
            self.change_dir(inode, vec![(name, None)]).await?;
        }
        self.change_dir(parent, vec![(name, None)]).await
    }

    async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let (inode, covered) = self
            .operate(|state| {
                let inode = state.find(path)?;
                let dir = state.dir(inode)?;
                let covered: BTreeSet<u64> = dir.unsynced.iter().map(|(id, _)| *id).collect();
                Ok((inode, covered))
            })
            .await?;
        let mut state = self.lock();
        if state.flushes_lie {
            return Ok(());
        }
        let dir = state.dir(inode)?;
        for (_, changes) in dir.unsynced.iter().filter(|(id, _)| covered.contains(id)) {
            for (name, inode) in changes {
                set_name(&mut dir.durable, name, *inode);
            }
        }
        dir.unsynced.retain(|(id, _)| !covered.contains(id));
        Ok(())
    }

    async fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read(|state| {
            let inode = state.find(path)?;
            Ok(state.file(inode)?.current.clone())
        })
        .await
    }

    async fn write_file(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let inode = self.open_inode(path, OpenMode::Create).await?;
        let write = ChangeKind::Write {
            position: 0,
            bytes: contents.to_vec(),
        };
        self.change_file(inode, write).await?;
        self.change_file(inode, ChangeKind::Size(contents.len() as u64))
            .await?;
        self.flush(inode).await
    }
}

/// An open file of a [`SimDisk`].
#[derive(Debug, Clone)]
pub struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl DiskFile for SimFile {
    type Buffer = Vec<u8>;
    type Bytes = Vec<u8>;
    type Shared = SimFile;

    fn allocate(&self, len: usize) -> Vec<u8> {
        // Arbitrary contents: whoever forgets to fill it shall see it.
        vec![0xa5; len]
    }

    async fn write_at(&self, buffer: Rc<Vec<u8>>, position: u64) -> io::Result<()> {
        assert_eq!(position % DISK_BLOCK_BYTES as u64, 0, "unaligned position");
        assert_eq!(buffer.len() % DISK_BLOCK_BYTES, 0, "unaligned length");
        let write = ChangeKind::Write {
            position,
            bytes: buffer.to_vec(),
        };
        self.disk.change_file(self.inode, write).await
    }

    async fn write_pieces_at(&self, pieces: Vec<Bytes>, position: u64) -> io::Result<()> {
        for piece in &pieces {
            assert_eq!(piece.len() % DISK_BLOCK_BYTES, 0, "unaligned length");
            let address = piece.as_ptr() as usize;
            assert_eq!(address % DISK_BLOCK_BYTES, 0, "unaligned memory");
        }
        self.write_at(Rc::new(pieces.concat()), position).await
    }

    async fn read_at(&self, position: u64, len: usize) -> io::Result<Vec<u8>> {
        self.disk
            .read(|state| {
                let current = &state.file(self.inode)?.current;
                let start = (position as usize).min(current.len());
                let end = start.saturating_add(len).min(current.len());
                Ok(current[start..end].to_vec())
            })
            .await
    }

    async fn sync_data(&self) -> io::Result<()> {
        self.disk.flush(self.inode).await
    }

    async fn preallocate(&self, len: u64) -> io::Result<()> {
        let size_bytes = self.size().await?;
        let change = ChangeKind::Size(len.max(size_bytes));
        self.disk.change_file(self.inode, change).await
    }

    async fn truncate(&self, len: u64) -> io::Result<()> {
        self.disk
            .change_file(self.inode, ChangeKind::Size(len))
            .await
    }

    async fn size(&self) -> io::Result<u64> {
        self.disk
            .look(|state| Ok(state.file(self.inode)?.current.len() as u64))
            .await
    }

    fn share(&self) -> io::Result<SimFile> {
        Ok(self.clone())
    }

    fn splice_source(_shared: &SimFile) -> Option<SpliceSource> {
        None
    }

    fn from_shared(shared: &SimFile) -> io::Result<Self> {
        Ok(shared.clone())
    }
}
