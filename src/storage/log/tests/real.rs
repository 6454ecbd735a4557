use std::rc::Rc;

use super::*;
use crate::io::disk::Disk;
use crate::io::real_disk::RealDisk;

fn on_an_executor<F: Future<Output = ()> + 'static>(run: impl FnOnce(PathBuf) -> F) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR").to_owned() + "/target").unwrap();
    let path = dir.path().to_owned();
    std::fs::write(path.join("probe"), [1u8; 4096]).unwrap();
    let future = run(path);
    glommio::LocalExecutorBuilder::new(glommio::Placement::Unbound)
        .io_memory(4 << 20)
        .make()
        .unwrap()
        .run(future);
}

async fn storage(dir: &Path, tail_bytes_max: usize) -> Rc<CoreStorage<RealDisk>> {
    let disk = RealDisk::new(&dir.join("probe")).await.unwrap();
    let spawn: Spawn = Rc::new(|task| {
        glommio::spawn_local(task).detach();
    });
    CoreStorage::new(disk, spawn, tail_bytes_max, 1 << 20, 4)
}

async fn open(
    core: &Rc<CoreStorage<RealDisk>>,
    dir: &Path,
    name: &str,
    config: LogConfig,
    checkpoint: Option<PartitionCheckpoint>,
) -> Log<RealDisk, ()> {
    let dir = dir.join(name);
    core.disk.create_dir_all(&dir).await.unwrap();
    let setup = LogSetup {
        identity: LogIdentity::default(),
        logged: Vec::new(),
        dir,
        config,
        checkpoint,
        derived: Rc::default(),
        events: LogEvents::default(),
    };
    Log::open(core.clone(), setup, TimestampMs(1_000))
        .await
        .unwrap()
}

#[test]
fn batches_are_read_back_from_memory_and_from_rolled_files_and_after_reopening() {
    on_an_executor(|dir| async move {
        for (tail_bytes_max, max_bytes) in
            [(64 << 20, 100_000), (0, 100_000), (0, 1), (30_000, 5_000)]
        {
            let name = format!("t-{tail_bytes_max}-{max_bytes}");
            let config = LogConfig {
                segment_bytes: 100_000,
                ..LogConfig::default()
            };
            let core = storage(&dir, tail_bytes_max).await;
            let log = open(&core, &dir, &name, config.clone(), None).await;
            for nth in 0..200 {
                let end = append(&log, 1 + nth % 7, (nth as usize * 37) % 5_000);
                if nth % 5 == 0 {
                    log.wait_durable(end).await.unwrap();
                }
            }
            log.wait_durable(log.log_end_offset()).await.unwrap();
            let end = read_through(&log, max_bytes).await;
            assert!(log.segments().len() > 3);
            let checkpoint = log.close().await.unwrap();
            for (checkpoint, end) in [(Some(checkpoint), end), (None, end.plus(3))] {
                let log = open(&core, &dir, &name, config.clone(), checkpoint).await;
                assert_eq!(log.recovery_report().cut, None);
                assert_eq!(read_through(&log, max_bytes).await, end);
                append(&log, 3, 100);
                log.wait_durable(log.log_end_offset()).await.unwrap();
                assert_eq!(read_through(&log, max_bytes).await, end.plus(3));
            }
        }
    });
}

#[test]
fn many_partitions_append_at_the_same_time() {
    on_an_executor(|dir| async move {
        let core = storage(&dir, 1 << 20).await;
        let mut tasks = Vec::new();
        for partition in 0..20 {
            let (core, dir) = (core.clone(), dir.clone());
            tasks.push(glommio::spawn_local(async move {
                let name = format!("t-{partition}");
                let log = open(&core, &dir, &name, LogConfig::default(), None).await;
                for nth in 0..30usize {
                    log.wait_for_room().await.unwrap();
                    let end = append(&log, 1, nth * 1_000);
                    if nth % 3 == 0 {
                        log.wait_durable(end).await.unwrap();
                    }
                }
                log.wait_durable(log.log_end_offset()).await.unwrap();
                assert_eq!(read_through(&log, 10_000).await, Offset(30));
                log.close().await.unwrap();
            }));
        }
        for task in tasks {
            task.await;
        }
        assert!(core.files.used() <= 4);
    });
}
