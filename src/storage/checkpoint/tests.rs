use super::*;
use crate::io::sim_disk::SimDisk;
use crate::io::sim_executor::SimExecutor;

const DATA_DIR: &str = "/data";

fn topic(number: u128) -> TopicId {
    TopicId(uuid::Uuid::from_u128(number))
}

fn entry(topic_number: u128, durable: i64) -> CheckpointEntry {
    CheckpointEntry {
        topic_id: topic(topic_number),
        partition: 3,
        state: PartitionCheckpoint {
            log_start: Offset(1),
            durable_offset: Offset(durable),
            segment_base: Offset(4),
            position: FilePosition(4_096),
            flushed_offset: Offset(durable - 3),
            snapshot: (durable % 2 == 0).then(|| (Offset(durable - 1), vec![1, 2, 3])),
        },
    }
}

fn checkpoint(generation: u64, sequence: u64, entries: &[CheckpointEntry]) -> CoreCheckpoint {
    CoreCheckpoint {
        generation,
        sequence,
        released_group: 7,
        entries: entries.to_vec(),
    }
}

fn on_a_disk(run: impl AsyncFnOnce(&SimDisk)) {
    let disk = SimDisk::new(1);
    SimExecutor::new(1)
        .run(async {
            for shard in 0..3 {
                let dir = core_dir(Path::new(DATA_DIR), ShardId(shard));
                disk.create_dir_all(&dir).await.unwrap();
            }
            run(&disk).await;
        })
        .unwrap();
}

#[test]
fn a_checkpoint_round_trips_and_any_flipped_byte_shows() {
    let original = checkpoint(2, 9, &[entry(1, 10), entry(2, 11)]);
    let bytes = original.encode();
    assert_eq!(CoreCheckpoint::decode(&bytes), Ok(original));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(CoreCheckpoint::decode(&damaged).is_err(), "byte {at}");
    }
    for len in 0..bytes.len() {
        assert!(
            CoreCheckpoint::decode(&bytes[..len]).is_err(),
            "length {len}"
        );
    }
}

#[test]
fn a_count_that_promises_more_than_there_is_takes_no_memory() {
    let mut body = Vec::new();
    body.extend_from_slice(&1u64.to_be_bytes());
    body.extend_from_slice(&1u64.to_be_bytes());
    body.extend_from_slice(&u32::MAX.to_be_bytes());
    let mut file = Vec::new();
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&VERSION.to_be_bytes());
    file.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
    file.extend_from_slice(&body);
    assert!(CoreCheckpoint::decode(&file).is_err());
}

#[test]
fn the_newest_entry_of_a_partition_counts_whatever_core_wrote_it() {
    on_a_disk(async |disk| {
        let dir = Path::new(DATA_DIR);
        for (shard, written) in [
            (0, checkpoint(1, 50, &[entry(1, 10), entry(2, 20)])),
            (1, checkpoint(2, 3, &[entry(1, 30)])),
            (2, checkpoint(2, 2, &[entry(1, 40), entry(3, 5)])),
        ] {
            write(disk, dir, ShardId(shard), &written).await.unwrap();
        }
        let merged = read_all(disk, dir).await.unwrap();
        assert_eq!(merged.generation, 2);
        assert!(merged.damaged.is_empty());
        let durable = |number| {
            merged
                .partitions
                .get(&(topic(number), 3))
                .map(|state| state.durable_offset.0)
        };
        assert_eq!(
            [durable(1), durable(2), durable(3)],
            [Some(30), Some(20), Some(5)]
        );

        remove_others(disk, dir, 1).await.unwrap();
        let merged = read_all(disk, dir).await.unwrap();
        assert_eq!(merged.partitions.len(), 2);
    });
}

#[test]
fn a_damaged_file_is_reported_and_the_others_count() {
    on_a_disk(async |disk| {
        let dir = Path::new(DATA_DIR);
        write(disk, dir, ShardId(1), &checkpoint(1, 1, &[entry(1, 10)]))
            .await
            .unwrap();
        let path = core_dir(dir, ShardId(0)).join(FILE_NAME);
        disk.write_file(&path, b"RMCP????").await.unwrap();
        disk.write_file(&core_dir(dir, ShardId(2)).join(FILE_NAME), b"")
            .await
            .unwrap();
        let error = read_all(disk, dir).await.unwrap_err().to_string();
        assert!(error.contains("version"), "{error}");
        disk.write_file(&path, b"nonsense").await.unwrap();
        let merged = read_all(disk, dir).await.unwrap();
        assert_eq!(merged.damaged.len(), 2);
        assert_eq!(merged.partitions.len(), 1);
    });
}

#[test]
fn an_unknown_version_is_an_error_that_says_what_to_do() {
    on_a_disk(async |disk| {
        let dir = Path::new(DATA_DIR);
        let mut bytes = checkpoint(1, 1, &[]).encode();
        bytes[7] = 9;
        let path = core_dir(dir, ShardId(0)).join(FILE_NAME);
        disk.write_file(&path, &bytes).await.unwrap();
        let error = read_all(disk, dir).await.unwrap_err().to_string();
        assert!(
            error.contains("version 9") && error.contains("newer broker"),
            "{error}"
        );
    });
}
