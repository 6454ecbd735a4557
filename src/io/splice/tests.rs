use super::*;

use std::cell::Cell;
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::io::executor::{ExecutorHandle, ExecutorSettings, sleep, spawn_local, spawn_pinned};
use crate::io::pipe::open_pipes;
use crate::io::real_disk::{RealDisk, RealFile};
use crate::io::socket::BoundListener;

/// Runs `serve` on an executor with a socket, whose peer is given to `peer` on a thread of its own;
/// gives what both return.
fn with_peer<F, T, P>(
    serve: impl FnOnce(Rc<Socket>, PathBuf) -> F + Send + 'static,
    peer: impl FnOnce(TcpStream) -> P + Send + 'static,
) -> (T, P)
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
    P: Send + 'static,
{
    let dir = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/target"))
        .expect("a directory on a real device");
    let path = dir.path().to_owned();
    std::fs::write(path.join("first"), [1; 4096]).expect("the directory is writable");
    let core = core_affinity::get_core_ids().expect("the affinity mask is readable")[0].id;
    let settings = ExecutorSettings {
        name: "splice".to_owned(),
        core,
        first_file: Some(path.join("first")),
        on_heartbeat: None,
    };
    let address = crate::io::socket::probe_address("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = BoundListener::bind(address).unwrap();
    let peer = std::thread::spawn(move || peer(TcpStream::connect(address).unwrap()));
    let served = spawn_pinned(settings, move || async move {
        let socket = Rc::new(listener.into_listener().accept().await.unwrap());
        serve(socket, path).await
    })
    .and_then(ExecutorHandle::join)
    .expect("the executor runs");
    (served, peer.join().expect("the peer ends"))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn source(dir: &Path, contents: &[u8]) -> SpliceSource {
    let path = dir.join("segment");
    std::fs::write(&path, contents).unwrap();
    SpliceSource::new(File::open(&path).unwrap().into())
}

fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn whole_contents_arrive_whatever_the_offsets_and_lengths() {
    const MIB: u64 = 1 << 20;
    let contents = pattern(5 * MIB as usize + 777);
    let whole = contents.len() as u64;
    let stretches = vec![
        (0, 1),
        (1, 4095),
        (4095, 2),
        (0, whole),
        (123, 3 * MIB + 17),
        (MIB - 1, 2),
        (4096, MIB),
        (4097, MIB),
        (5 * MIB, 777),
        (whole - 1, 1),
    ];
    let expected: Vec<u8> = stretches
        .iter()
        .flat_map(|(position, len)| &contents[*position as usize..(position + len) as usize])
        .copied()
        .collect();
    let ((), received) = with_peer(
        move |socket, dir| async move {
            let source = source(&dir, &contents);
            let mut splicer = Splicer::default();
            for (position, len) in &stretches {
                splicer.plan(&source, *position, *len);
            }
            for (_, len) in &stretches {
                assert_eq!(splicer.send(&socket, *len).await.unwrap(), *len);
            }
        },
        read_to_end,
    );
    assert!(received == expected, "the contents differ");
}

#[test]
fn a_peer_that_does_not_read_delays_nobody_and_holds_two_pipes() {
    const LEN: u64 = 32 << 20;
    let contents = pattern(LEN as usize);
    let expected = contents.clone();
    let ((late_max, pipes), received) = with_peer(
        move |socket, dir| async move {
            let source = source(&dir, &contents);
            drop(contents);
            let sent = Rc::new(Cell::new(false));
            let done = sent.clone();
            let sending = spawn_local(async move {
                let mut splicer = Splicer::default();
                splicer.plan(&source, 0, LEN);
                assert_eq!(splicer.send(&socket, LEN).await.unwrap(), LEN);
                done.set(true);
            });
            let mut late_max = Duration::ZERO;
            let mut pipes = 0;
            while !sent.get() {
                let period = Duration::from_millis(5);
                let begun = Instant::now();
                sleep(period).await;
                late_max = late_max.max(begun.elapsed().saturating_sub(period));
                pipes = pipes.max(open_pipes());
            }
            sending.await;
            (late_max, pipes)
        },
        |stream| {
            std::thread::sleep(Duration::from_millis(500));
            read_to_end(stream)
        },
    );
    assert!(received == expected, "the contents differ");
    assert_eq!(pipes, PIPES_PER_REPLY_MAX);
    assert!(late_max < Duration::from_millis(150), "{late_max:?} late");
}

#[test]
fn a_file_that_is_shorter_than_claimed_is_an_error() {
    let (error, received) = with_peer(
        |socket, dir| async move {
            let source = source(&dir, &pattern(2 << 20));
            let mut splicer = Splicer::default();
            splicer.plan(&source, 0, (2 << 20) + 1);
            let sent = splicer.send(&socket, (2 << 20) + 1).await;
            sent.unwrap_err().kind()
        },
        read_to_end,
    );
    assert_eq!(error, io::ErrorKind::UnexpectedEof);
    assert!(received.len() <= 2 << 20);
}

#[test]
fn without_a_pipe_nothing_is_sent_and_the_plan_goes_on_behind() {
    let contents = pattern(3 << 20);
    let expected = contents[2 << 20..].to_vec();
    let ((), received) = with_peer(
        move |socket, dir| async move {
            let source = source(&dir, &contents);
            let mut splicer = Splicer::default();
            splicer.plan(&source, 0, 2 << 20);
            splicer.plan(&source, 2 << 20, 1 << 20);
            let mut taken = Vec::new();
            while let Some(pipe) = Pipe::take() {
                taken.push(pipe);
            }
            assert!(!taken.is_empty());
            assert_eq!(splicer.send(&socket, 2 << 20).await.unwrap(), 0);
            drop(taken);
            assert_eq!(splicer.send(&socket, 1 << 20).await.unwrap(), 1 << 20);
        },
        read_to_end,
    );
    assert!(received == expected, "the contents differ");
}

#[test]
fn a_connection_that_breaks_in_the_middle_leaves_no_pipe_behind() {
    let (left, ()) = with_peer(
        |socket, dir| async move {
            let source = source(&dir, &pattern(16 << 20));
            let sending = spawn_local({
                let socket = socket.clone();
                async move {
                    let mut splicer = Splicer::default();
                    splicer.plan(&source, 0, 16 << 20);
                    splicer.send(&socket, 16 << 20).await
                }
            });
            sleep(Duration::from_millis(100)).await;
            socket.shutdown();
            assert!(sending.await.is_err());
            // A task that is dropped in the middle is no different.
            let ring = side_ring::current().unwrap();
            let source = SpliceSource::new(File::open(dir.join("segment")).unwrap().into());
            for _ in 0..20 {
                let mut splicer = Splicer::default();
                splicer.plan(&source, 0, 16 << 20);
                let sending = Box::pin(splicer.send(&socket, 16 << 20));
                let mut sending = sending;
                let _ = futures_lite::future::poll_once(&mut sending).await;
            }
            let deadline = Instant::now() + Duration::from_secs(5);
            while (open_pipes() > 0 || ring.in_flight() > 0) && Instant::now() < deadline {
                sleep(Duration::from_millis(5)).await;
            }
            (open_pipes(), ring.in_flight())
        },
        |stream| std::thread::sleep(Duration::from_millis(100 * u64::from(stream.ttl().is_ok()))),
    );
    assert_eq!(left, (0, 0));
}

/// A block is written directly, again and again, with more bytes behind those that are visible
/// already, as the last block of a segment is. Each time the block was in the page cache before
/// (read ahead of or spliced, and held by a pipe) with zeros where the new bytes come.
#[test]
fn bytes_written_directly_into_a_cached_block_are_what_the_next_splice_sends() {
    const ROUNDS: usize = 200;
    const STEP: usize = 1000;
    let contents = pattern(ROUNDS * STEP);
    let expected = contents.clone();
    let ((), received) = with_peer(
        move |socket, dir| async move {
            let disk = RealDisk::probed_elsewhere();
            let path = dir.join("segment");
            let file = disk.open(&path, OpenMode::Create).await.unwrap();
            file.preallocate(1 << 20).await.unwrap();
            let shared = file.share().unwrap();
            let source = RealFile::splice_source(&shared).unwrap();
            let ring = side_ring::current().unwrap();
            for round in 0..ROUNDS {
                // A pipe holds the pages from before the write.
                let holding = Pipe::take().unwrap();
                ring.splice(source.clone(), Some(0), holding.writer(), 1 << 20)
                    .await
                    .unwrap();
                let end = (round + 1) * STEP;
                let first = round * STEP / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
                let mut buffer = file.allocate(end.next_multiple_of(DISK_BLOCK_BYTES) - first);
                buffer.fill(0);
                buffer[..end - first].copy_from_slice(&contents[first..end]);
                file.write_at(Rc::new(buffer), first as u64).await.unwrap();
                let mut splicer = Splicer::default();
                splicer.plan(&source, (end - STEP) as u64, STEP as u64);
                let sent = splicer.send(&socket, STEP as u64).await.unwrap();
                assert_eq!(sent, STEP as u64);
            }
            // What the descriptor sees at last is what the file holds.
            let mut seen = vec![0; contents.len()];
            File::open(&path)
                .unwrap()
                .read_exact_at(&mut seen, 0)
                .unwrap();
            assert!(seen == contents);
        },
        read_to_end,
    );
    assert!(received == expected, "the contents differ");
}
