//! What a simulated disk holds: names and contents, each as the program sees it and as it would
//! survive a power loss.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Component, Path};

use super::SimRandom;
use crate::base::limits::DISK_BLOCK_BYTES;

/// The unit that a device writes whole, in bytes.
const SECTOR_BYTES: usize = 512;

#[derive(Debug)]
pub(super) struct SimState {
    pub(super) random: SimRandom,
    pub(super) inodes: Vec<Inode>,
    pub(super) next_change: u64,
    pub(super) operations: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) crashed: bool,
    pub(super) faults: BTreeMap<u64, io::ErrorKind>,
    pub(super) reads: u64,
    pub(super) failing_reads: Range<u64>,
    /// Changes of files that were completed.
    pub(super) completions: u64,
    /// Changes up to this completion are on the device's medium, whichever file was flushed.
    pub(super) reached: u64,
    pub(super) flushes_reach_others: bool,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) flushes_lie: bool,
    pub(super) writes_lie: bool,
}

#[derive(Debug)]
pub(super) enum Inode {
    Dir(Dir),
    File(File),
}

pub(super) type Names = BTreeMap<String, usize>;

/// Names with what they stand for afterwards; changed together.
pub(super) type NameChanges = Vec<(String, Option<usize>)>;

#[derive(Debug, Default)]
pub(super) struct Dir {
    pub(super) current: Names,
    pub(super) durable: Names,
    pub(super) unsynced: Vec<(u64, NameChanges)>,
}

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) current: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Numbers of the blocks that were written and flushed with this file: what overwrites them
    /// counts as soon as it is on the medium.
    pub(super) written: BTreeSet<u64>,
    pub(super) unflushed: Vec<Change>,
}

#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) id: u64,
    /// The number of its completion; nothing while it is in flight.
    pub(super) completion: Option<u64>,
    /// Called complete, and complete when the next flush has begun.
    pub(super) is_late: bool,
    pub(super) kind: ChangeKind,
}

impl Change {
    pub(super) fn is_complete(&self) -> bool {
        self.completion.is_some()
    }
}

#[derive(Debug, Clone)]
pub(super) enum ChangeKind {
    Write { position: u64, bytes: Vec<u8> },
    Size(u64),
}

pub(super) const ROOT: usize = 0;

impl SimState {
    pub(super) fn add(&mut self, inode: Inode) -> usize {
        self.inodes.push(inode);
        self.inodes.len() - 1
    }

    pub(super) fn next_completion(&mut self) -> u64 {
        self.completions += 1;
        self.completions
    }

    pub(super) fn dir(&mut self, inode: usize) -> io::Result<&mut Dir> {
        match self.inodes.get_mut(inode) {
            Some(Inode::Dir(dir)) => Ok(dir),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn file(&mut self, inode: usize) -> io::Result<&mut File> {
        match self.inodes.get_mut(inode) {
            Some(Inode::File(file)) => Ok(file),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn find(&mut self, path: &Path) -> io::Result<usize> {
        let mut inode = ROOT;
        for name in names(path) {
            let next = self.dir(inode)?.current.get(&name).copied();
            inode = next.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, path.display().to_string())
            })?;
        }
        Ok(inode)
    }

    pub(super) fn parent(&mut self, path: &Path) -> io::Result<(usize, String)> {
        let name = names(path).pop().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.find(parent)?, name))
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let files = self.inodes.iter().map(|inode| match inode {
            Inode::File(file) => file.current.len() as u64,
            Inode::Dir(_) => 0,
        });
        files.sum()
    }

    pub(super) fn check_capacity(&mut self, inode: usize, kind: &ChangeKind) -> io::Result<()> {
        let Some(capacity_bytes) = self.capacity_bytes else {
            return Ok(());
        };
        let others: u64 = self
            .inodes
            .iter()
            .enumerate()
            .filter(|(nth, _)| *nth != inode)
            .map(|(_, other)| match other {
                Inode::File(file) => file.current.len() as u64,
                Inode::Dir(_) => 0,
            })
            .sum();
        let now = self.file(inode)?.current.len() as u64;
        let then = match kind {
            ChangeKind::Write { position, bytes } => now.max(position + bytes.len() as u64),
            ChangeKind::Size(len) => *len,
        };
        if then > now && others + then > capacity_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

pub(super) fn names(path: &Path) -> Vec<String> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect()
}

pub(super) fn set_name(names: &mut Names, name: &str, inode: Option<usize>) {
    match inode {
        Some(inode) => names.insert(name.to_owned(), inode),
        None => names.remove(name),
    };
}

pub(super) fn apply(kind: &ChangeKind, image: &mut Vec<u8>) {
    match kind {
        ChangeKind::Write { position, bytes } => {
            let start = *position as usize;
            let end = start + bytes.len();
            if image.len() < end {
                image.resize(end, 0);
            }
            image[start..end].copy_from_slice(bytes);
        }
        ChangeKind::Size(len) => image.resize(*len as usize, 0),
    }
}

impl Dir {
    pub(super) fn after_crash(&self, random: &mut SimRandom, kept_percent: u64) -> Self {
        let mut names = self.durable.clone();
        for (_, changes) in &self.unsynced {
            if random.percent(kept_percent) {
                for (name, inode) in changes {
                    set_name(&mut names, name, *inode);
                }
            }
        }
        Self {
            current: names.clone(),
            durable: names,
            unsynced: Vec::new(),
        }
    }
}

/// The numbers of the blocks that bytes at a position touch.
fn blocks(position: u64, len: usize) -> Range<u64> {
    let block = DISK_BLOCK_BYTES as u64;
    position / block..(position + len as u64).div_ceil(block)
}

impl File {
    pub(super) fn issue(&mut self, id: u64, kind: ChangeKind, lies: bool) {
        if !lies && let ChangeKind::Write { position, bytes } = &kind {
            let own = blocks(*position, bytes.len());
            for other in self.unflushed.iter().filter(|change| !change.is_complete()) {
                if let ChangeKind::Write { position, bytes } = &other.kind {
                    let theirs = blocks(*position, bytes.len());
                    assert!(
                        own.end <= theirs.start || theirs.end <= own.start,
                        "two writes in flight touch the same block: {own:?} and {theirs:?}"
                    );
                }
            }
        }
        self.cut_written(&kind);
        self.unflushed.push(Change {
            id,
            completion: None,
            is_late: false,
            kind,
        });
    }

    /// The change is complete, or only called so where it has no number.
    pub(super) fn complete(&mut self, id: u64, completion: Option<u64>) {
        if let Some(change) = self.unflushed.iter_mut().find(|change| change.id == id) {
            change.completion = completion;
            change.is_late = completion.is_none();
            apply(&change.kind, &mut self.current);
        }
    }

    /// What was called complete too early is so now.
    pub(super) fn complete_late(&mut self, completion: u64) {
        for change in &mut self.unflushed {
            if change.is_late {
                change.completion.get_or_insert(completion);
            }
        }
    }

    pub(super) fn make_durable(&mut self, covered: &BTreeSet<u64>) {
        let (flushed, unflushed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unflushed)
            .into_iter()
            .partition(|change| covered.contains(&change.id));
        for change in &flushed {
            apply(&change.kind, &mut self.durable);
            if let ChangeKind::Write { position, bytes } = &change.kind {
                self.written.extend(blocks(*position, bytes.len()));
            }
            self.cut_written(&change.kind);
        }
        // What was cut since may be reserved anew already.
        for change in &unflushed {
            self.cut_written(&change.kind);
        }
        self.unflushed = unflushed;
    }

    /// What lies behind the end of a file is reserved anew when it grows again.
    fn cut_written(&mut self, kind: &ChangeKind) {
        if let ChangeKind::Size(len) = kind {
            self.written
                .split_off(&len.div_ceil(DISK_BLOCK_BYTES as u64));
        }
    }

    pub(super) fn after_crash(
        &self,
        random: &mut SimRandom,
        kept_percent: u64,
        reached: u64,
    ) -> Self {
        let mut image = self.durable.clone();
        // Of each block that is not known to be written, whether what reached it counts.
        let mut counts: BTreeMap<u64, bool> = BTreeMap::new();
        for change in &self.unflushed {
            match &change.kind {
                ChangeKind::Size(_) => {
                    if random.percent(kept_percent) {
                        apply(&change.kind, &mut image);
                    }
                }
                ChangeKind::Write { position, bytes } => {
                    let start = *position as usize;
                    let end = start + bytes.len();
                    if image.len() < end && random.percent(kept_percent) {
                        image.resize(end, 0);
                    }
                    let is_on_medium = change.completion.is_some_and(|at| at <= reached);
                    for (nth, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                        let at = start + nth * SECTOR_BYTES;
                        let block = (at / DISK_BLOCK_BYTES) as u64;
                        let counts = self.written.contains(&block)
                            || *counts
                                .entry(block)
                                .or_insert_with(|| random.percent(kept_percent));
                        let is_kept = counts && (is_on_medium || random.percent(kept_percent));
                        let end = image.len().min(at + sector.len());
                        if is_kept && at < end {
                            image[at..end].copy_from_slice(&sector[..end - at]);
                        }
                    }
                }
            }
        }
        let is_written = |block: &u64| {
            self.written.contains(block) || counts.get(block).is_some_and(|counts| *counts)
        };
        Self {
            written: blocks(0, image.len()).filter(is_written).collect(),
            current: image.clone(),
            durable: image,
            unflushed: Vec::new(),
        }
    }
}
