#![allow(unsafe_code)] // a seccomp filter, on a thread of the test

use super::*;

#[test]
fn this_machine_passes() {
    probe_io_uring().expect("the tests need io_uring themselves");
}

#[test]
fn releases_are_read_as_versions() {
    let table = [
        ("6.1.0-18-amd64", Some((6, 1))),
        ("6.18.44-fc-v669", Some((6, 18))),
        ("5.15.0", Some((5, 15))),
        ("10.0-rc1", Some((10, 0))),
        ("custom", None),
        ("", None),
        ("6", None),
        ("99999999999.1", None),
    ];
    for (release, version) in table {
        assert_eq!(parse_release(release), version, "{release}");
    }
}

#[test]
fn an_old_kernel_is_refused_by_name() {
    let error = check_kernel("5.15.0-generic").expect_err("5.15 is too old");
    assert_eq!(
        error.to_string(),
        "kernel 5.15.0-generic is too old: Linux 6.1 or newer is needed"
    );
    assert!(check_kernel("6.1.0").is_ok());
}

/// Makes `io_uring_setup` fail with `errno` on the calling thread, as a container's filter does.
fn forbid_io_uring(errno: i32) {
    let load_number = libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: 0, // seccomp_data.nr
    };
    let is_setup = libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: 1,
        k: libc::SYS_io_uring_setup as u32,
    };
    let answer = |value: u32| libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: value,
    };
    let mut filter = [
        load_number,
        is_setup,
        answer(libc::SECCOMP_RET_ERRNO | errno as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program outlives the calls, which copy it; both act on this thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program),
            0
        );
    }
}

#[test]
fn a_seccomp_filter_is_explained_in_one_line() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let error = std::thread::spawn(move || {
            forbid_io_uring(errno);
            probe_io_uring().expect_err("the filter forbids the ring")
        })
        .join()
        .expect("the probe does not panic");
        let text = error.to_string();
        assert!(text.contains("seccomp"), "errno {errno}: {text}");
        assert!(!text.contains('\n'), "errno {errno}: {text}");
    }
}

#[test]
fn too_little_lockable_memory_says_how_to_raise_it() {
    let text = ProbeError::MemlockTooSmall {
        limit_bytes: 64 * 1024,
    }
    .to_string();
    assert!(
        text.starts_with("only 64 KiB of memory may be locked and 512 KiB are needed"),
        "{text}"
    );
    for remedy in ["ulimit -l", "LimitMEMLOCK=", "--ulimit memlock"] {
        assert!(text.contains(remedy), "{text}");
    }
}

#[test]
fn the_open_files_limit_is_the_hard_one_afterwards() {
    raise_open_files_limit();
    let limit = getrlimit(Resource::Nofile);
    assert_eq!(limit.current, limit.maximum);
}
