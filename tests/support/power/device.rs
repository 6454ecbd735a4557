//! A block device in memory, seen by the kernel as one file of a FUSE file system, that records
//! what it is told.
//!
//! The model of the device: a write is in a volatile cache from its arrival. A flush makes those
//! writes durable that were *answered* before it arrived; a write that was still in flight then is
//! not covered, as no real device promises it. At a power cut the durable writes are there, and of
//! all others any subset, down to single sectors.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use tempfile::TempDir;

use super::Random;
use crate::support::temp_dir;

const FILE_NAME: &str = "device";
const FILE: INodeNo = INodeNo(2);
/// The kernel may keep what it knows of the file: nothing of that changes.
const ATTRIBUTES_KEPT: Duration = Duration::from_secs(3600);
/// The smallest piece that a device writes whole.
const SECTOR_BYTES: usize = 512;
/// ext4 writes its superblock, of two sectors, outside of its journal and cannot mount a torn one:
/// not a question to the broker.
const SUPERBLOCK_END: usize = 4096;

/// What happened, in the order in which the device saw it. An event's index is the device's time.
#[derive(Debug)]
pub enum Event {
    /// A write arrived.
    Write { at: usize, bytes: Vec<u8> },
    /// The write that arrived then was answered.
    Written { arrival: usize },
    /// A flush arrived.
    Flush,
    /// The flush that arrived then was answered.
    Flushed { arrival: usize },
}

/// Attached while it lives.
pub struct Device {
    state: Arc<Mutex<State>>,
    session: Option<BackgroundSession>,
    mountpoint: TempDir,
}

struct State {
    base: Arc<Vec<u8>>,
    image: Vec<u8>,
    events: Vec<Event>,
}

impl Device {
    /// # Errors
    /// No FUSE on this machine, or not for this user.
    pub fn attach(image: Vec<u8>, random: Random) -> io::Result<Self> {
        let mountpoint = temp_dir();
        let state = Arc::new(Mutex::new(State {
            base: Arc::new(image.clone()),
            image,
            events: Vec::new(),
        }));
        let (jobs, waiting) = mpsc::channel();
        let files = Files {
            state: Arc::clone(&state),
            jobs,
        };
        let mut config = Config::default();
        config.mount_options = vec![fuser::MountOption::FSName("ringmain-power".to_owned())];
        let session = fuser::spawn_mount(files, mountpoint.path(), &config)?;
        let answering = Arc::clone(&state);
        thread::spawn(move || answer(&answering, &waiting, random));
        Ok(Self {
            state,
            session: Some(session),
            mountpoint,
        })
    }

    pub fn file(&self) -> PathBuf {
        self.mountpoint.path().join(FILE_NAME)
    }

    pub fn clock(&self) -> Clock {
        Clock(Arc::clone(&self.state))
    }

    /// Detaches the device and hands over what it recorded.
    pub fn into_recording(mut self) -> Recording {
        self.detach();
        let mut state = self.state.lock().unwrap();
        Recording {
            base: Arc::clone(&state.base),
            events: std::mem::take(&mut state.events),
        }
    }

    fn detach(&mut self) {
        if let Some(session) = self.session.take()
            && let Err(error) = session.umount_and_join()
        {
            eprintln!("{}: {error}", self.mountpoint.path().display());
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Tells the device's time.
#[derive(Clone)]
pub struct Clock(Arc<Mutex<State>>);

impl Clock {
    /// All events below it have happened.
    pub fn now(&self) -> usize {
        self.0.lock().unwrap().events.len()
    }
}

// --- what the kernel sees -------------------------------------------------------------------

struct Files {
    state: Arc<Mutex<State>>,
    jobs: Sender<Job>,
}

/// What is to be answered, and when it arrived.
enum Job {
    Write(usize, u32, ReplyWrite),
    Flush(usize, ReplyEmpty),
}

impl State {
    fn record(&mut self, event: Event) -> usize {
        self.events.push(event);
        self.events.len() - 1
    }
}

/// Answers in no particular order and after a moment, so that flushes overtake writes that are in
/// flight, and later writes overtake earlier ones.
fn answer(state: &Mutex<State>, waiting: &Receiver<Job>, mut random: Random) {
    let mut jobs = Vec::new();
    while let Ok(job) = waiting.recv() {
        jobs.push(job);
        while !jobs.is_empty() {
            if random.below(4) == 0 {
                thread::sleep(Duration::from_micros(random.below(200)));
            }
            jobs.extend(waiting.try_iter());
            let any = random.below(jobs.len() as u64) as usize;
            match jobs.swap_remove(any) {
                Job::Write(arrival, len, reply) => {
                    state.lock().unwrap().record(Event::Written { arrival });
                    reply.written(len);
                }
                Job::Flush(arrival, reply) => {
                    state.lock().unwrap().record(Event::Flushed { arrival });
                    reply.ok();
                }
            }
        }
    }
}

impl Filesystem for Files {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it the kernel sends one write at a time. A kernel that lacks it only tests less.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE_NAME {
            let attributes = attributes(FILE, self.state.lock().unwrap().image.len());
            reply.entry(&ATTRIBUTES_KEPT, &attributes, Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let size = self.state.lock().unwrap().image.len();
        reply.attr(&ATTRIBUTES_KEPT, &attributes(inode, size));
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state.lock().unwrap();
        let from = (offset as usize).min(state.image.len());
        let to = (from + size as usize).min(state.image.len());
        reply.data(&state.image[from..to]);
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let at = offset as usize;
        let arrival = {
            let mut state = self.state.lock().unwrap();
            if at + data.len() > state.image.len() {
                return reply.error(Errno::ENOSPC);
            }
            state.image[at..at + data.len()].copy_from_slice(data);
            let bytes = data.to_vec();
            state.record(Event::Write { at, bytes })
        };
        let _ = self
            .jobs
            .send(Job::Write(arrival, data.len() as u32, reply));
    }

    /// A close, which is no flush of a device.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        let arrival = self.state.lock().unwrap().record(Event::Flush);
        let _ = self.jobs.send(Job::Flush(arrival, reply));
    }
}

fn attributes(inode: INodeNo, size: usize) -> FileAttr {
    let is_file = inode == FILE;
    FileAttr {
        ino: inode,
        size: if is_file { size as u64 } else { 0 },
        blocks: if is_file { size as u64 / 512 } else { 0 },
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_file {
            FileType::RegularFile
        } else {
            FileType::Directory
        },
        perm: if is_file { 0o600 } else { 0o700 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

// --- what is left after a power cut ---------------------------------------------------------

/// All that a device was told.
pub struct Recording {
    base: Arc<Vec<u8>>,
    pub events: Vec<Event>,
}

/// What becomes of the writes that no flush covers.
#[derive(Debug, Clone, Copy)]
pub enum Loss {
    /// None of them is there.
    All,
    /// So many of a hundred writes are missing, each as a whole.
    Writes(u64),
    /// So many of a hundred sectors are missing: writes are torn.
    Sectors(u64),
    /// All of them are there, as after a kill.
    Nothing,
}

impl Loss {
    pub fn any(random: &mut Random) -> Self {
        match random.below(8) {
            0 | 1 => Self::All,
            2 | 3 => Self::Writes(random.between(10, 95)),
            4..=6 => Self::Sectors(random.between(5, 95)),
            _ => Self::Nothing,
        }
    }
}

impl Recording {
    /// What the device holds when the power fails before the event `cut`.
    pub fn image_after_cut(&self, cut: usize, loss: Loss, random: &mut Random) -> Vec<u8> {
        let events = &self.events[..cut];
        let flushed_at = events
            .iter()
            .filter_map(|event| match event {
                Event::Flushed { arrival } => Some(*arrival),
                _ => None,
            })
            .max()
            .unwrap_or(0);
        let mut answered_at = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            if let Event::Written { arrival } = event {
                answered_at.insert(*arrival, index);
            }
        }
        let mut image = self.base.as_ref().clone();
        for (arrival, event) in events.iter().enumerate() {
            let Event::Write { at, bytes } = event else {
                continue;
            };
            let is_durable = answered_at
                .get(&arrival)
                .is_some_and(|index| *index < flushed_at);
            let mut is_lost = |of_hundred: u64| !is_durable && random.below(100) < of_hundred;
            let piece_bytes = match loss {
                Loss::Sectors(_) if !is_durable && *at >= SUPERBLOCK_END => SECTOR_BYTES,
                _ => bytes.len().max(1),
            };
            for (index, piece) in bytes.chunks(piece_bytes).enumerate() {
                let is_lost = match loss {
                    Loss::All => is_lost(100),
                    Loss::Writes(share) | Loss::Sectors(share) => is_lost(share),
                    Loss::Nothing => false,
                };
                if !is_lost {
                    let from = at + index * piece_bytes;
                    image[from..from + piece.len()].copy_from_slice(piece);
                }
            }
        }
        image
    }
}

/// Whether `needle` is somewhere in `bytes`.
pub fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
