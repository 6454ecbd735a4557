//! ext4 on a loop device, from the ordinary tools. Only root may.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::Random;
use super::device::Device;
use crate::support::temp_dir;

/// Set where the tests must run: what is missing is then a failure.
const REQUIRED: &str = "RINGMAIN_REQUIRE_POWER_CUT";

/// True, after a word on stderr, where this machine cannot run the test.
///
/// # Panics
/// It cannot, and `RINGMAIN_REQUIRE_POWER_CUT` is set.
pub fn is_unavailable(test: &str, needs_fuse: bool) -> bool {
    static LOOP: OnceLock<Result<(), String>> = OnceLock::new();
    static FUSE: OnceLock<Result<(), String>> = OnceLock::new();
    let mut found = LOOP.get_or_init(try_loop_device).clone();
    if needs_fuse && found.is_ok() {
        found = FUSE.get_or_init(try_fuse).clone();
    }
    let Err(reason) = found else { return false };
    let is_required = std::env::var(REQUIRED).is_ok_and(|value| value == "1");
    assert!(!is_required, "{test}: {REQUIRED}=1, but {reason}");
    eprintln!("{test}: skipped, {reason}");
    true
}

fn try_loop_device() -> Result<(), String> {
    let home = temp_dir();
    let file = home.path().join("image");
    let created = File::create(&file).and_then(|file| file.set_len(16 << 20));
    created.map_err(|error| format!("{}: {error}", file.display()))?;
    Mounted::try_new(&file, Kind::Fresh, false).map(drop)
}

fn try_fuse() -> Result<(), String> {
    let device = Device::attach(vec![0; 4096], Random::new(1));
    device
        .map(drop)
        .map_err(|error| format!("there is no FUSE: {error}"))
}

/// Whether the file has a file system already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Fresh,
    /// Mounting replays its journal.
    Used,
}

/// A mounted ext4 file system. Dropping it unmounts.
pub struct Mounted {
    dir: TempDir,
    is_mounted: bool,
    device: LoopDevice,
}

impl Mounted {
    /// # Panics
    /// The tools refuse.
    pub fn new(file: &Path, kind: Kind, is_direct: bool) -> Self {
        Self::try_new(file, kind, is_direct).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_new(file: &Path, kind: Kind, is_direct: bool) -> Result<Self, String> {
        let device = LoopDevice::attach(file, is_direct)?;
        if kind == Kind::Fresh {
            // Small, and nothing of it is left for the kernel to write later.
            let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
            let mut command = Command::new("mkfs.ext4");
            command.args(["-q", "-F", "-b", "4096", "-m", "0", "-J", "size=4"]);
            run(command.args(["-E", options]).arg(&device.path))?;
        }
        let mut mounted = Self {
            dir: temp_dir(),
            is_mounted: false,
            device,
        };
        let mut command = Command::new("mount");
        command.args(["-t", "ext4"]).arg(&mounted.device.path);
        run(command.arg(mounted.dir.path()))?;
        mounted.is_mounted = true;
        Ok(mounted)
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Whether the loop device passes on what it is told, without a cache.
    pub fn is_direct(&self) -> bool {
        let name = self.device.path.file_name().expect("a device name");
        let flag = Path::new("/sys/block").join(name).join("loop/dio");
        std::fs::read_to_string(flag).is_ok_and(|flag| flag.trim() == "1")
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        let found = rustix::fs::statvfs(self.path()).expect("statvfs");
        found.f_bavail * found.f_frsize
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.is_mounted {
            return;
        }
        // The kernel takes the rings of a killed process apart after its end.
        for _ in 0..200 {
            if run(Command::new("umount").arg(self.dir.path())).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        eprintln!("{} stays mounted", self.dir.path().display());
    }
}

struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    fn attach(file: &Path, is_direct: bool) -> Result<Self, String> {
        let direct = if is_direct { "on" } else { "off" };
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", &format!("--direct-io={direct}")]);
        let path = run(command.arg(file))?;
        Ok(Self {
            path: PathBuf::from(path.trim()),
        })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("losetup").arg("--detach").arg(&self.path)) {
            eprintln!("{error}");
        }
    }
}

/// Stdout, or one line that says what failed.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{:?} failed: {error}", command.get_program()))
}
