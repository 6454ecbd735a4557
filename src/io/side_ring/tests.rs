use super::*;

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use crate::io::executor::{ExecutorHandle, ExecutorSettings, spawn_pinned};

fn run<F, T>(make: impl FnOnce() -> F + Send + 'static) -> T
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let core = core_affinity::get_core_ids().expect("the affinity mask is readable")[0].id;
    let settings = ExecutorSettings {
        name: "side".to_owned(),
        core,
        ..ExecutorSettings::default()
    };
    spawn_pinned(settings, make)
        .and_then(ExecutorHandle::join)
        .expect("the executor runs")
}

fn file() -> Rc<std::fs::File> {
    Rc::new(tempfile::tempfile().expect("a file in the temporary directory"))
}

#[test]
fn gathered_writes_and_reads_give_their_buffers_back() {
    run(|| async {
        let ring = current().unwrap();
        let file = file();
        let pieces = vec![Bytes::from_static(b"one "), Bytes::from_static(b"two")];
        let (written, pieces) = ring.writev_at(file.clone(), pieces, 10).await;
        assert_eq!(written.unwrap(), 7);
        assert_eq!(pieces.len(), 2);
        let (read, buffer) = ring.read_at(file.clone(), vec![0; 20], 12).await;
        assert_eq!(&buffer[..read.unwrap()], b"e two");
        assert_eq!(ring.in_flight(), 0);
    });
}

#[test]
fn a_splice_moves_a_part_of_a_file_into_a_pipe() {
    run(|| async {
        let file = file();
        file.write_all_at(b"0123456789", 0).unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let ring = current().unwrap();
        let moved = ring.splice(file, Some(3), Rc::new(writer), 4).await;
        assert_eq!(moved.unwrap(), 4);
        let mut bytes = [0; 4];
        rustix::io::read(&reader, &mut bytes).unwrap();
        assert_eq!(&bytes, b"3456");
    });
}

#[test]
fn an_error_of_the_kernel_is_the_operations_error() {
    run(|| async {
        let ring = current().unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let (read, _) = ring
            .writev_at(Rc::new(reader), vec![Bytes::from_static(b"x")], 0)
            .await;
        assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EBADF));
    });
}

#[test]
fn a_poll_resolves_when_the_peer_has_sent() {
    run(|| async {
        let (here, mut there) = UnixStream::pair().unwrap();
        let here = Rc::new(here);
        let ring = current().unwrap();
        let waiting = executor::spawn_local({
            let (ring, here) = (ring.clone(), here.clone());
            async move { ring.poll(here, PollFlags::IN).await }
        });
        executor::sleep(Duration::from_millis(20)).await;
        there.write_all(b"!").unwrap();
        assert!(waiting.await.unwrap().contains(PollFlags::IN));
    });
}

#[test]
fn a_dropped_operation_keeps_its_memory_until_the_kernel_has_let_it_go() {
    run(|| async {
        struct Noted(Vec<u8>, Rc<Cell<bool>>);
        impl Drop for Noted {
            fn drop(&mut self) {
                self.1.set(true);
            }
        }
        // SAFETY: the vector's bytes stay where they are.
        unsafe impl StableBytes for Noted {
            fn stable_bytes(&self) -> (*const u8, usize) {
                self.0.stable_bytes()
            }
        }
        // SAFETY: the vector's bytes stay where they are.
        unsafe impl StableBytesMut for Noted {
            fn stable_bytes_mut(&mut self) -> (*mut u8, usize) {
                self.0.stable_bytes_mut()
            }
        }
        let ring = current().unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let freed = Rc::new(Cell::new(false));
        let buffer = Noted(vec![0; 16], freed.clone());
        let mut read = Box::pin(ring.read_at(Rc::new(reader), buffer, u64::MAX));
        assert!(futures_lite::future::poll_once(&mut read).await.is_none());
        drop(read);
        assert!(!freed.get(), "the kernel has not answered yet");
        while !freed.get() {
            executor::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ring.in_flight(), 0);
    });
}

#[test]
fn more_operations_than_the_ring_holds_take_turns() {
    run(|| async {
        let ring = current().unwrap();
        let file = file();
        let tasks: Vec<_> = (0..4 * u64::from(OPERATIONS_MAX))
            .map(|number| {
                let (ring, file) = (ring.clone(), file.clone());
                executor::spawn_local(async move {
                    let bytes = number.to_be_bytes().to_vec();
                    ring.writev_at(file, vec![bytes], number * 8).await.0
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), 8);
        }
        let mut contents = Vec::new();
        (&*file).read_to_end(&mut contents).unwrap();
        let expected: Vec<u8> = (0..4 * u64::from(OPERATIONS_MAX))
            .flat_map(u64::to_be_bytes)
            .collect();
        assert_eq!(contents, expected);
    });
}

#[test]
fn dropping_many_operations_at_once_leaves_the_ring_usable() {
    run(|| async {
        let ring = current().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let reader = Rc::new(reader);
        for _ in 0..3 {
            let mut polls = Vec::new();
            for _ in 0..OPERATIONS_MAX {
                let ring = ring.clone();
                let reader = reader.clone();
                let mut poll = Box::pin(async move { ring.poll(reader, PollFlags::IN).await });
                assert!(futures_lite::future::poll_once(&mut poll).await.is_none());
                polls.push(poll);
            }
            drop(polls);
            let (written, _) = ring.writev_at(file(), vec![vec![1_u8; 10]], 0).await;
            assert_eq!(written.unwrap(), 10);
        }
        rustix::io::write(&writer, b"!").unwrap();
        ring.poll(reader, PollFlags::IN).await.unwrap();
        executor::sleep(Duration::from_millis(10)).await;
        ring.reap();
        assert_eq!(ring.in_flight(), 0);
    });
}

/// An executor ends with its ring whether the ring is idle, was never used, or has operations in
/// flight, and leaves no descriptor behind but the runtime's own.
#[test]
fn an_executor_with_a_side_ring_starts_works_and_ends() {
    let descriptors = |uses_ring: bool| {
        let before = open_side_descriptors();
        run(move || async move {
            if uses_ring {
                let ring = current().unwrap();
                let (reader, writer) = rustix::pipe::pipe().unwrap();
                let reader = Rc::new(reader);
                executor::spawn_local(async move {
                    let _writer = writer;
                    let _ = ring.poll(reader, PollFlags::IN).await;
                })
                .detach();
                executor::sleep(Duration::from_millis(5)).await;
            }
        });
        let deadline = Instant::now() + Duration::from_secs(5);
        while open_side_descriptors() > before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        open_side_descriptors().saturating_sub(before)
    };
    let without = descriptors(false);
    // Other tests of this process open and close theirs at the same time: the least counts.
    let with = (0..5).map(|_| descriptors(true)).min();
    assert!(with <= Some(without), "{with:?} more, {without} without");
}

/// The process's pipes, which only these tests and splices make.
fn open_side_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("the process's descriptors are listed")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("pipe:"))
        .count()
}
