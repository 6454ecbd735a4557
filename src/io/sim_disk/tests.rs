use super::*;
use crate::io::sim_executor::SimExecutor;

fn run<T>(future: impl Future<Output = T>) -> Option<T> {
    SimExecutor::new(1).run(future)
}

async fn write(file: &SimFile, position: u64, byte: u8, len: usize) {
    let mut buffer = file.allocate(len);
    buffer.fill(byte);
    file.write_at(Rc::new(buffer), position).await.unwrap();
}

/// The contents of `/a` after a crash, if the file is there.
fn after_crash(disk: &SimDisk, seed: u64) -> Option<Vec<u8>> {
    let disk = disk.crash(seed);
    run(disk.read_file(Path::new("/a"))).unwrap().ok()
}

#[test]
fn flushed_bytes_survive_and_unflushed_sectors_may_be_lost_one_by_one() {
    let disk = SimDisk::new(1);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
        write(&file, 0, 1, 4096).await;
        file.sync_data().await.unwrap();
        write(&file, 0, 2, 8192).await;
    })
    .unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let bytes = after_crash(&disk, seed).unwrap();
        assert!(bytes.len() == 4096 || bytes.len() == 8192);
        assert!(bytes[..4096].iter().all(|byte| [1, 2].contains(byte)));
        assert!(bytes[4096..].iter().all(|byte| [0, 2].contains(byte)));
        seen.insert(bytes);
    }
    assert!(seen.len() > 20, "only {} outcomes", seen.len());
}

#[test]
fn a_file_whose_folder_was_not_synced_may_vanish() {
    let disk = SimDisk::new(1);
    run(disk.write_file(Path::new("/a"), b"text"))
        .unwrap()
        .unwrap();
    let outcomes: BTreeSet<_> = (0..50).map(|seed| after_crash(&disk, seed)).collect();
    assert_eq!(outcomes, BTreeSet::from([None, Some(b"text".to_vec())]));
    let disk = SimDisk::new(1);
    run(disk.write_file(Path::new("/a"), b"text"))
        .unwrap()
        .unwrap();
    run(disk.sync_dir(Path::new("/"))).unwrap().unwrap();
    assert!((0..50).all(|seed| after_crash(&disk, seed).is_some()));
}

#[test]
fn a_truncation_that_was_not_flushed_may_revert() {
    let disk = SimDisk::new(1);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
        write(&file, 0, 1, 4096).await;
        file.sync_data().await.unwrap();
        file.truncate(10).await.unwrap();
    })
    .unwrap();
    let lengths: BTreeSet<_> = (0..50)
        .map(|seed| after_crash(&disk, seed).unwrap().len())
        .collect();
    assert_eq!(lengths, BTreeSet::from([10, 4096]));
}

#[test]
fn a_flush_that_lies_keeps_nothing() {
    let disk = SimDisk::new(1);
    run(disk.write_file(Path::new("/a"), b"")).unwrap().unwrap();
    run(disk.sync_dir(Path::new("/"))).unwrap().unwrap();
    disk.lie_about_flushes();
    run(disk.write_file(Path::new("/a"), b"text"))
        .unwrap()
        .unwrap();
    assert!((0..50).any(|seed| after_crash(&disk, seed).unwrap().is_empty()));
}

#[test]
fn operations_fail_and_crash_where_they_are_told_to() {
    let disk = SimDisk::new(1);
    disk.fail_at(2, io::ErrorKind::StorageFull);
    let error = run(disk.write_file(Path::new("/a"), b"text"))
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    disk.crash_at(disk.operations() + 2);
    assert!(run(disk.write_file(Path::new("/a"), b"text")).is_none());
    assert!(disk.has_crashed());
}

#[test]
fn a_full_disk_refuses_to_grow() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(5000));
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        write(&file, 0, 1, 4096).await;
        let full = file.write_at(Rc::new(file.allocate(4096)), 4096).await;
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        write(&file, 0, 2, 4096).await;
    })
    .unwrap();
}

#[test]
#[should_panic(expected = "the same block")]
fn overlapping_writes_in_flight_are_caught() {
    let disk = SimDisk::new(3);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        for _ in 0..20 {
            futures_lite::future::zip(write(&file, 0, 1, 8192), write(&file, 4096, 1, 4096)).await;
        }
    });
}
