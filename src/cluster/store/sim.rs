//! A file system in memory that forgets what was not flushed, as unkindly as a disk may.
//!
//! Each file and each directory has a durable state and a list of changes since. A power cut keeps
//! any subset of those: single sectors of a write, a size without its bytes, a rename without the
//! creation before it. It can come at any operation, during which the change may or may not have
//! happened.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::files::{MetadataFile, MetadataFiles};

const SECTOR_BYTES: usize = 512;

/// A small generator (SplitMix64): the same seed gives the same run, for good.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// What goes wrong, and when.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The operation (from 1) in which the process dies.
    pub crash_at: Option<u64>,
    /// fdatasync returns and does nothing: what a missing flush is like.
    pub loses_data_syncs: bool,
    /// The same for directories.
    pub loses_dir_syncs: bool,
    /// The operations whose write takes half of its bytes and then finds the disk full.
    pub full_at: Option<u64>,
    /// The operation whose flush fails.
    pub sync_fails_at: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct SimFiles(Rc<RefCell<State>>);

#[derive(Debug)]
pub struct SimFile {
    state: Rc<RefCell<State>>,
    inode: usize,
}

#[derive(Debug)]
struct State {
    inodes: Vec<Inode>,
    directories: BTreeMap<PathBuf, Directory>,
    faults: Faults,
    operations: u64,
    is_dead: bool,
    random: Random,
}

#[derive(Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    SetLen(usize),
}

type Entries = BTreeMap<String, usize>;

#[derive(Debug, Default)]
struct Directory {
    durable: Entries,
    current: Entries,
    changes: Vec<EntryChange>,
}

#[derive(Debug, Clone)]
struct EntryChange {
    remove: Option<String>,
    insert: Option<(String, usize)>,
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Write { position, bytes } => {
                let end = position + bytes.len();
                contents.resize(contents.len().max(end), 0);
                contents[*position..end].copy_from_slice(bytes);
            }
            Self::SetLen(len) => contents.resize(*len, 0),
        }
    }

    /// The pieces that reach the disk or not, each for itself.
    fn pieces(&self) -> Vec<Self> {
        let Self::Write { position, bytes } = self else {
            return vec![self.clone()];
        };
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < bytes.len() {
            let sector_end = (position + start) / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES;
            let end = bytes.len().min(sector_end - position);
            pieces.push(Self::Write {
                position: position + start,
                bytes: bytes[start..end].to_vec(),
            });
            start = end;
        }
        pieces
    }
}

impl EntryChange {
    fn apply(&self, entries: &mut Entries) {
        if let Some(name) = &self.remove {
            entries.remove(name);
        }
        if let Some((name, inode)) = &self.insert {
            entries.insert(name.clone(), *inode);
        }
    }
}

impl SimFiles {
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            inodes: Vec::new(),
            directories: BTreeMap::new(),
            faults: Faults::default(),
            operations: 0,
            is_dead: false,
            random: Random(seed),
        })))
    }

    /// Counts operations from 0 again.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.0.borrow_mut();
        state.faults = faults;
        state.operations = 0;
    }

    pub fn operations(&self) -> u64 {
        self.0.borrow().operations
    }

    /// The process died and its successor finds all that it wrote, flushed or not.
    pub fn kill(&self) {
        self.0.borrow_mut().is_dead = false;
    }

    /// The machine lost power, and keeps of each change what chance wants.
    pub fn power_cut(&self) {
        let mut state = self.0.borrow_mut();
        let State {
            inodes,
            directories,
            random,
            ..
        } = &mut *state;
        for inode in inodes {
            // Now and then all or nothing, which coins alone would hardly ever give.
            let keep = random.below(4);
            for piece in inode.changes.drain(..).flat_map(|change| change.pieces()) {
                if keep == 0 || (keep > 1 && random.coin()) {
                    piece.apply(&mut inode.durable);
                }
            }
            inode.current = inode.durable.clone();
        }
        for directory in directories.values_mut() {
            let keep = random.below(4);
            for change in directory.changes.drain(..) {
                if keep == 0 || (keep > 1 && random.coin()) {
                    change.apply(&mut directory.durable);
                }
            }
            directory.current = directory.durable.clone();
        }
        state.is_dead = false;
    }

    /// The contents of a file, to be looked at or changed behind the store's back.
    pub fn with_contents<T>(&self, path: &Path, look: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut state = self.0.borrow_mut();
        let inode = state.inode_of(path).unwrap();
        let inode = &mut state.inodes[inode];
        assert!(inode.changes.is_empty(), "unflushed changes");
        let result = look(&mut inode.current);
        inode.durable = inode.current.clone();
        result
    }
}

impl State {
    /// Counts an operation; true where the process dies in it.
    fn step(&mut self) -> io::Result<bool> {
        if self.is_dead {
            return Err(io::Error::other("the process is dead"));
        }
        self.operations += 1;
        self.is_dead = self.faults.crash_at == Some(self.operations);
        Ok(self.is_dead)
    }

    /// Runs a change: always in life, by chance in the moment of death.
    fn change(&mut self, change: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let dies = self.step()?;
        if !dies || self.random.coin() {
            change(self)?;
        }
        if dies {
            return Err(io::Error::other("the process died"));
        }
        Ok(())
    }

    fn inode_of(&self, path: &Path) -> io::Result<usize> {
        let (directory, name) = split(path);
        self.directories
            .get(directory)
            .and_then(|directory| directory.current.get(&name).copied())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change_inode(&mut self, inode: usize, change: Change) {
        let inode = &mut self.inodes[inode];
        change.apply(&mut inode.current);
        inode.changes.push(change);
    }

    fn change_entries(&mut self, path: &Path, change: EntryChange) -> io::Result<()> {
        let directory = self.directories.get_mut(split(path).0);
        let directory = directory.ok_or(io::ErrorKind::NotFound)?;
        change.apply(&mut directory.current);
        directory.changes.push(change);
        Ok(())
    }
}

fn split(path: &Path) -> (&Path, String) {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    (path.parent().unwrap(), name)
}

impl MetadataFiles for SimFiles {
    type File = SimFile;

    /// Durable at once: losing the directory itself is not what is tested here.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        for path in path.ancestors() {
            state.directories.entry(path.to_owned()).or_default();
        }
        Ok(())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.0.borrow();
        let directory = state.directories.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(directory.current.keys().cloned().collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.0.borrow();
        Ok(state.inodes[state.inode_of(path)?].current.clone())
    }

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let mut state = self.0.borrow_mut();
        state.inodes.push(Inode::default());
        let inode = state.inodes.len() - 1;
        state.change(|state| {
            let change = EntryChange {
                remove: None,
                insert: Some((split(path).1, inode)),
            };
            state.change_entries(path, change)
        })?;
        Ok(SimFile {
            state: self.0.clone(),
            inode,
        })
    }

    fn open(&self, path: &Path) -> io::Result<SimFile> {
        Ok(SimFile {
            state: self.0.clone(),
            inode: self.0.borrow().inode_of(path)?,
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.borrow_mut().change(|state| {
            let inode = state.inode_of(from)?;
            let change = EntryChange {
                remove: Some(split(from).1),
                insert: Some((split(to).1, inode)),
            };
            state.change_entries(from, change)
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.borrow_mut().change(|state| {
            state.inode_of(path)?;
            let change = EntryChange {
                remove: Some(split(path).1),
                insert: None,
            };
            state.change_entries(path, change)
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.borrow_mut().change(|state| {
            if state.faults.loses_dir_syncs {
                return Ok(());
            }
            let directory = state.directories.get_mut(path);
            let directory = directory.ok_or(io::ErrorKind::NotFound)?;
            directory.durable = directory.current.clone();
            directory.changes.clear();
            Ok(())
        })
    }
}

impl MetadataFile for SimFile {
    fn write_all_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()> {
        let position = usize::try_from(position).unwrap();
        self.state.borrow_mut().change(|state| {
            let is_full = state.faults.full_at == Some(state.operations);
            let written = if is_full {
                bytes.len() / 2
            } else {
                bytes.len()
            };
            let change = Change::Write {
                position,
                bytes: bytes[..written].to_vec(),
            };
            state.change_inode(self.inode, change);
            if is_full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        })
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.state.borrow_mut().change(|state| {
            if state.faults.sync_fails_at == Some(state.operations) {
                return Err(io::Error::other("the device failed"));
            }
            if state.faults.loses_data_syncs {
                return Ok(());
            }
            let inode = &mut state.inodes[self.inode];
            inode.durable = inode.current.clone();
            inode.changes.clear();
            Ok(())
        })
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap();
        self.state.borrow_mut().change(|state| {
            state.change_inode(self.inode, Change::SetLen(len));
            Ok(())
        })
    }
}
