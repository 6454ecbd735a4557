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

/// `/a` as `prepare` leaves it, flushed, with a write that only a flush of `/b` covers.
fn overwritten(prepare: impl AsyncFnOnce(&SimFile), position: u64, is_alone: bool) -> SimDisk {
    let disk = SimDisk::new(1);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        let other = disk.open(Path::new("/b"), OpenMode::Create).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
        prepare(&file).await;
        file.sync_data().await.unwrap();
        if is_alone {
            disk.flush_each_file_alone();
        }
        write(&file, position, 2, 4096).await;
        other.sync_data().await.unwrap();
    })
    .unwrap();
    disk
}

fn outcomes(disk: &SimDisk) -> BTreeSet<Vec<u8>> {
    (0..200)
        .filter_map(|seed| after_crash(disk, seed))
        .collect()
}

#[test]
fn any_flush_covers_what_overwrites_written_blocks() {
    let is_kept = |is_alone| {
        let disk = overwritten(async |file| write(file, 0, 1, 8192).await, 0, is_alone);
        outcomes(&disk) == BTreeSet::from([[[2; 4096], [1; 4096]].concat()])
    };
    assert!(is_kept(false));
    assert!(!is_kept(true), "the files are on devices of their own");
}

#[test]
fn a_write_into_reserved_space_may_read_zeros_until_its_own_file_is_flushed() {
    let reserve = async |file: &SimFile| file.preallocate(4096).await.unwrap();
    let either = BTreeSet::from([vec![0; 4096], vec![2; 4096]]);
    let disk = overwritten(reserve, 0, false);
    assert_eq!(outcomes(&disk), either);
    assert_eq!(outcomes(&disk.kill(1)), either, "after a kill");
    let disk = overwritten(reserve, 0, false);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Existing).await;
        file.unwrap().sync_data().await.unwrap();
    })
    .unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![2; 4096]]));

    // Space that was cut off and reserved once more is as good as new.
    let cut = async |file: &SimFile| {
        write(file, 0, 1, 4096).await;
        file.sync_data().await.unwrap();
        file.truncate(0).await.unwrap();
        file.preallocate(4096).await.unwrap();
    };
    assert_eq!(outcomes(&overwritten(cut, 0, false)), either);
}

#[test]
fn a_write_that_makes_its_file_grow_may_be_lost_until_its_own_file_is_flushed() {
    let disk = overwritten(async |file| write(file, 0, 1, 4096).await, 4096, false);
    let outcomes = outcomes(&disk);
    assert!(outcomes.contains(&vec![1; 4096]));
    assert!(outcomes.contains([[1; 4096], [2; 4096]].concat().as_slice()));
    assert!(outcomes.contains([[1; 4096], [0; 4096]].concat().as_slice()));
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

#[test]
fn a_fault_is_met_once_and_changes_nothing() {
    let disk = SimDisk::new(1);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        write(&file, 0, 1, 4096).await;
        disk.fail_at(disk.operations() + 1, io::ErrorKind::Other);
        let failed = file.write_at(Rc::new(file.allocate(4096)), 0).await;
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(file.read_at(0, 4096).await.unwrap(), [1; 4096]);
        write(&file, 0, 2, 4096).await;
        assert_eq!(file.read_at(0, 4096).await.unwrap(), [2; 4096]);
    })
    .unwrap();
}

#[test]
fn reads_fail_where_they_are_told_to() {
    let disk = SimDisk::new(1);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        write(&file, 0, 1, 4096).await;
        disk.fail_reads(disk.reads() + 2, 3);
        assert_eq!(file.read_at(0, 4096).await.unwrap(), [1; 4096]);
        file.read_at(0, 4096).await.unwrap_err();
        disk.read_file(Path::new("/a")).await.unwrap_err();
        disk.list_files(Path::new("/")).await.unwrap_err();
        assert_eq!(file.read_at(0, 4096).await.unwrap(), [1; 4096]);
    })
    .unwrap();
}

#[test]
fn a_flush_that_fails_makes_nothing_durable() {
    let disk = SimDisk::new(1);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
        write(&file, 0, 1, 4096).await;
        disk.fail_at(disk.operations() + 1, io::ErrorKind::Other);
        assert!(file.sync_data().await.is_err());
    })
    .unwrap();
    assert!((0..50).any(|seed| after_crash(&disk, seed).unwrap().is_empty()));
}

#[test]
fn a_kill_loses_nothing_that_was_complete() {
    let disk = SimDisk::new(1);
    run(async {
        let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
        write(&file, 0, 1, 4096).await;
    })
    .unwrap();
    let contents = |disk: &SimDisk| run(disk.read_file(Path::new("/a"))).unwrap().ok();
    for seed in 0..50 {
        let after = disk.kill(seed);
        assert_eq!(contents(&after), Some(vec![1; 4096]), "seed {seed}");
    }
    // What no flush covers may still be lost by a power loss later.
    assert!((0..50).any(|seed| after_crash(&disk.kill(0), seed) != Some(vec![1; 4096])));
}

#[test]
fn a_write_that_is_called_complete_too_early_is_not_covered_by_the_next_flush() {
    let written = |is_early: bool| {
        let disk = SimDisk::new(1);
        run(async {
            let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
            disk.sync_dir(Path::new("/")).await.unwrap();
            if is_early {
                disk.complete_writes_early();
            }
            write(&file, 0, 1, 4096).await;
            file.sync_data().await.unwrap();
        })
        .unwrap();
        disk
    };
    let is_whole = |disk: &SimDisk, seed| after_crash(disk, seed) == Some(vec![1; 4096]);
    assert!((0..50).all(|seed| is_whole(&written(false), seed)));
    assert!(!(0..50).all(|seed| is_whole(&written(true), seed)));
}

#[test]
fn a_rename_that_was_synced_holds_and_another_may_revert() {
    let names_after = |is_synced: bool| -> BTreeSet<Vec<String>> {
        let disk = SimDisk::new(1);
        run(async {
            disk.write_file(Path::new("/b"), b"new").await.unwrap();
            disk.sync_dir(Path::new("/")).await.unwrap();
            disk.rename(Path::new("/b"), Path::new("/a")).await.unwrap();
            if is_synced {
                disk.sync_dir(Path::new("/")).await.unwrap();
            }
        })
        .unwrap();
        let list = |seed| {
            run(disk.crash(seed).list_dir(Path::new("/")))
                .unwrap()
                .unwrap()
        };
        (0..50).map(list).collect()
    };
    assert_eq!(names_after(true), BTreeSet::from([vec!["a".to_owned()]]));
    let either = [vec!["a".to_owned()], vec!["b".to_owned()]];
    assert_eq!(names_after(false), BTreeSet::from(either));
}

#[test]
fn damage_survives_a_crash() {
    let disk = SimDisk::new(1);
    run(disk.write_file(Path::new("/a"), b"text"))
        .unwrap()
        .unwrap();
    run(disk.sync_dir(Path::new("/"))).unwrap().unwrap();
    disk.damage(Path::new("/a"), 1, b"ER").unwrap();
    for seed in 0..20 {
        assert_eq!(after_crash(&disk, seed), Some(b"tERt".to_vec()));
    }
    assert!(disk.damage(Path::new("/missing"), 0, b"x").is_err());
}

#[test]
fn the_same_seed_gives_the_same_disk_after_a_crash() {
    let outcomes = |crash_seed: u64| {
        let disk = SimDisk::new(5);
        run(async {
            let file = disk.open(Path::new("/a"), OpenMode::Create).await.unwrap();
            disk.sync_dir(Path::new("/")).await.unwrap();
            write(&file, 0, 1, 65_536).await;
        })
        .unwrap();
        (disk.operations(), after_crash(&disk, crash_seed))
    };
    for seed in 0..20 {
        assert_eq!(outcomes(seed), outcomes(seed), "seed {seed}");
    }
}
