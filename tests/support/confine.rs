//! Children with less than they ask for: no io_uring, or little locked memory.
#![allow(dead_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The same number on x86-64 and arm64.
const IO_URING_SETUP: u32 = libc::SYS_io_uring_setup as u32;

/// Makes `io_uring_setup` fail with EPERM in the child, as container runtimes do by default.
pub fn deny_io_uring(command: &mut Command) {
    let filter = move || {
        let load_number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
        let is_setup = step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            IO_URING_SETUP,
        );
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let mut steps = [
            load_number,
            is_setup,
            step(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: steps.len() as u16,
            filter: steps.as_mut_ptr(),
        };
        // SAFETY: plain system calls; `program` and `steps` outlive them.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec the closure only makes two system calls; it allocates nothing.
    unsafe { command.pre_exec(filter) };
}

fn step(code: u32, jump_true: u8, jump_false: u8, operand: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k: operand,
    }
}

/// Limits the memory that the child may lock, soft and hard.
pub fn limit_memlock(command: &mut Command, bytes: u64) {
    let limit = move || {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: bytes,
        };
        // SAFETY: a plain system call on a value that outlives it.
        let done = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) } == 0;
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec the closure only makes one system call.
    unsafe { command.pre_exec(limit) };
}
