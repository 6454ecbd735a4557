//! What the machine must offer, asked once at start: each lack is one line that says what to do.

use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[cfg(test)]
mod tests;

/// The oldest kernel that is supported, as (major, minor).
pub const KERNEL_VERSION_MIN: (u32, u32) = (6, 1);

/// Lockable memory that an executor's rings need, in bytes; below it an executor fails to start.
pub const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;

/// The operations that the runtime and the splicer submit.
const OPERATIONS: &[(&str, u8)] = &[
    ("NOP", opcode::Nop::CODE),
    ("READV", opcode::Readv::CODE),
    ("WRITEV", opcode::Writev::CODE),
    ("FSYNC", opcode::Fsync::CODE),
    ("READ_FIXED", opcode::ReadFixed::CODE),
    ("WRITE_FIXED", opcode::WriteFixed::CODE),
    ("POLL_ADD", opcode::PollAdd::CODE),
    ("POLL_REMOVE", opcode::PollRemove::CODE),
    ("SENDMSG", opcode::SendMsg::CODE),
    ("RECVMSG", opcode::RecvMsg::CODE),
    ("TIMEOUT", opcode::Timeout::CODE),
    ("TIMEOUT_REMOVE", opcode::TimeoutRemove::CODE),
    ("ACCEPT", opcode::Accept::CODE),
    ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
    ("LINK_TIMEOUT", opcode::LinkTimeout::CODE),
    ("CONNECT", opcode::Connect::CODE),
    ("FALLOCATE", opcode::Fallocate::CODE),
    ("OPENAT", opcode::OpenAt::CODE),
    ("CLOSE", opcode::Close::CODE),
    ("STATX", opcode::Statx::CODE),
    ("READ", opcode::Read::CODE),
    ("WRITE", opcode::Write::CODE),
    ("SEND", opcode::Send::CODE),
    ("RECV", opcode::Recv::CODE),
    ("SPLICE", opcode::Splice::CODE),
    ("FADVISE", opcode::Fadvise::CODE),
];

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("kernel {found} is too old: Linux {}.{} or newer is needed", KERNEL_VERSION_MIN.0, KERNEL_VERSION_MIN.1)]
    KernelTooOld { found: String },
    #[error(
        "io_uring is not available in this kernel: use one built with CONFIG_IO_URING, or, in a container, a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register (docker run --security-opt seccomp=unconfined)"
    )]
    IoUringMissing,
    #[error(
        "io_uring is switched off by the sysctl kernel.io_uring_disabled={value}: run `sysctl -w kernel.io_uring_disabled=0`"
    )]
    IoUringDisabled { value: String },
    #[error(
        "io_uring is forbidden to this process: in a container use a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register (docker run --security-opt seccomp=unconfined); under systemd check SystemCallFilter="
    )]
    IoUringForbidden,
    #[error("io_uring does not work here: {source}")]
    IoUringBroken { source: io::Error },
    #[error(
        "this kernel's io_uring lacks the operations {}: use a stock kernel {}.{} or newer",
        .names.join(", "), KERNEL_VERSION_MIN.0, KERNEL_VERSION_MIN.1
    )]
    OperationsMissing { names: Vec<&'static str> },
    #[error(
        "only {} KiB of memory may be locked and {} KiB are needed: raise it with `ulimit -l unlimited` (shell), LimitMEMLOCK=infinity (systemd) or --ulimit memlock=-1 (docker)",
        .limit_bytes / 1024, MEMLOCK_BYTES_MIN / 1024
    )]
    MemlockTooSmall { limit_bytes: u64 },
}

/// Checks that the executors can run here: kernel, io_uring and its operations, lockable memory
/// (whose soft limit is raised to the hard one where that helps).
///
/// # Errors
/// The first lack found.
pub fn probe_io_uring() -> Result<(), ProbeError> {
    let release = rustix::system::uname();
    check_kernel(&release.release().to_string_lossy())?;
    check_memlock()?;
    check_ring()
}

fn check_kernel(release: &str) -> Result<(), ProbeError> {
    match parse_release(release) {
        Some(version) if version < KERNEL_VERSION_MIN => Err(ProbeError::KernelTooOld {
            found: release.to_owned(),
        }),
        // A release that does not read as a version is the builder's own: the operations decide.
        _ => Ok(()),
    }
}

/// `6.1.0-18-amd64` → (6, 1).
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let major = numbers.next()?.ok()?;
    let minor = numbers.next()?.ok()?;
    Some((major, minor))
}

fn check_memlock() -> Result<(), ProbeError> {
    let limit = raise_to_hard_limit(Resource::Memlock, MEMLOCK_BYTES_MIN);
    match limit {
        Some(limit_bytes) if limit_bytes < MEMLOCK_BYTES_MIN => {
            Err(ProbeError::MemlockTooSmall { limit_bytes })
        }
        _ => Ok(()),
    }
}

fn check_ring() -> Result<(), ProbeError> {
    let ring = IoUring::new(8).map_err(explain_setup)?;
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(explain_setup)?;
    let names: Vec<_> = OPERATIONS
        .iter()
        .filter(|(_, code)| !probe.is_supported(*code))
        .map(|(name, _)| *name)
        .collect();
    if names.is_empty() {
        Ok(())
    } else {
        Err(ProbeError::OperationsMissing { names })
    }
}

fn explain_setup(source: io::Error) -> ProbeError {
    match source.raw_os_error() {
        Some(libc::ENOSYS) => ProbeError::IoUringMissing,
        Some(libc::EPERM | libc::EACCES) => {
            let value = fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
                .map(|text| text.trim().to_owned())
                .unwrap_or_default();
            // Without the file, or with 0, something else forbids it: a seccomp filter.
            if value.is_empty() || value == "0" {
                ProbeError::IoUringForbidden
            } else {
                ProbeError::IoUringDisabled { value }
            }
        }
        _ => ProbeError::IoUringBroken { source },
    }
}

/// Raises the soft limit of open files to the hard one; the limit afterwards, `None` for
/// "unlimited". A refusal leaves the limit as it is.
pub fn raise_open_files_limit() -> Option<u64> {
    raise_to_hard_limit(Resource::Nofile, u64::MAX)
}

/// Raises the soft limit to the hard one unless it is `enough` already.
fn raise_to_hard_limit(resource: Resource, enough: u64) -> Option<u64> {
    let limit = getrlimit(resource);
    let current = limit.current?;
    if current >= enough || limit.maximum == Some(current) {
        return Some(current);
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(resource, raised) {
        Ok(()) => limit.maximum,
        Err(_) => Some(current),
    }
}
