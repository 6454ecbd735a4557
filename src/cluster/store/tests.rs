use std::path::Path;

use proptest::prelude::*;
use uuid::Uuid;

use super::super::image::PartitionImage;
use super::frame::{FRAME_HEADER_BYTES, contains_frame, decode_frame};
use super::sim::{Faults, Random, SimFiles};
use super::*;
use crate::base::{NodeId, ProducerId, TopicId};

const CLUSTER_ID: &str = "AAECAwQFBgcICQoLDA0ODw";
const DATA_DIR: &str = "/data";

/// Snapshots every few records, so that a short run has several.
const POLICY: SnapshotPolicy = SnapshotPolicy {
    records_max: 9,
    log_bytes_max: 1 << 20,
};

type SimStore = LocalMetadataStore<SimFiles>;

fn open(files: &SimFiles) -> Result<(SimStore, MetadataImage), StoreError> {
    files.create_dir_all(Path::new(DATA_DIR)).unwrap();
    LocalMetadataStore::open_on(files.clone(), Path::new(DATA_DIR), CLUSTER_ID, POLICY)
}

fn created(number: u128, partitions: usize) -> MetadataRecord {
    MetadataRecord::TopicCreated {
        id: TopicId(Uuid::from_u128(number)),
        name: format!("topic-{number}").into(),
        partitions: vec![PartitionImage::new(vec![NodeId(1)]); partitions],
        overrides: Default::default(),
    }
}

/// A batch that fits the image: topics of up to several sectors, a deletion, producer ids.
fn next_batch(image: &MetadataImage, random: &mut Random) -> Vec<MetadataRecord> {
    let mut batch = Vec::new();
    for index in 0..random.below(3) {
        let number = image.version() as u128 * 10 + u128::from(index);
        batch.push(created(number, random.below(150) as usize));
    }
    if random.coin()
        && let Some(topic) = image.topics().next()
    {
        batch.push(MetadataRecord::TopicDeleted { id: topic.id });
    }
    batch.push(MetadataRecord::ProducerIdsAllocated {
        next_producer_id: ProducerId(image.next_producer_id().0 + 1000),
    });
    batch
}

/// What a process did before it died.
struct History {
    acknowledged: MetadataImage,
    /// The image with the batch whose append had not returned.
    in_doubt: Option<MetadataImage>,
}

/// Opens, appends and takes snapshots as the control loop does, restarts now and then; until all
/// is done or an operation fails.
fn live(files: &SimFiles, history: &mut History, random: &mut Random, batches: usize) {
    let Ok((mut store, mut image)) = open(files) else {
        return;
    };
    for _ in 0..batches {
        let batch = next_batch(&image, random);
        let next = image.with(&batch).unwrap();
        history.in_doubt = Some(next.clone());
        if store.append(&batch).is_err() {
            return;
        }
        image = next;
        history.acknowledged = image.clone();
        history.in_doubt = None;
        if store.is_snapshot_due() && store.snapshot(&image).is_err() {
            return;
        }
        if random.below(8) == 0 {
            match open(files) {
                Ok(opened) => (store, image) = opened,
                Err(_) => return,
            }
            assert_eq!(
                image, history.acknowledged,
                "a clean restart lost something"
            );
        }
    }
}

/// One life, ended in operation `crash_at`, and what its successor finds.
fn crash_and_recover(seed: u64, crash_at: u64, faults: &Faults) -> Result<(), String> {
    let files = SimFiles::new(seed ^ crash_at.rotate_left(32));
    let mut random = Random(seed);
    let mut history = History {
        acknowledged: MetadataImage::empty(CLUSTER_ID),
        in_doubt: None,
    };
    let with_crash = |crash_at| Faults {
        crash_at,
        ..faults.clone()
    };
    files.set_faults(with_crash(Some(crash_at)));
    live(&files, &mut history, &mut random, 25);
    let mut fate = Random(seed ^ crash_at);
    let mut end = || {
        if fate.below(3) == 0 {
            files.kill();
        } else {
            files.power_cut();
        }
        fate.below(12)
    };
    // A successor that dies while it recovers, and one that does not.
    let second_crash_at = end();
    files.set_faults(with_crash(Some(second_crash_at)));
    let _ = open(&files);
    end();
    files.set_faults(with_crash(None));
    let (_, image) = open(&files).map_err(|error| error.to_string())?;
    if image != history.acknowledged && Some(&image) != history.in_doubt.as_ref() {
        return Err(format!(
            "acknowledged version {}, recovered version {}",
            history.acknowledged.version(),
            image.version()
        ));
    }
    // What was recovered may have been told to clients: it stays, and so does what comes next.
    files.power_cut();
    let (mut store, again) = open(&files).map_err(|error| error.to_string())?;
    if again != image {
        return Err("what was recovered did not stay".to_owned());
    }
    let batch = next_batch(&image, &mut random);
    store.append(&batch).map_err(|error| error.to_string())?;
    files.power_cut();
    let (_, last) = open(&files).map_err(|error| error.to_string())?;
    if last != image.with(&batch).unwrap() {
        return Err("what was appended after the recovery did not stay".to_owned());
    }
    Ok(())
}

/// Crashes at every operation of the lives of some seeds; the first thing that was wrong.
fn crash_everywhere(seeds: std::ops::Range<u64>, faults: &Faults) -> Result<(), String> {
    for seed in seeds {
        let files = SimFiles::new(seed);
        let mut history = History {
            acknowledged: MetadataImage::empty(CLUSTER_ID),
            in_doubt: None,
        };
        live(&files, &mut history, &mut Random(seed), 25);
        for crash_at in 1..=files.operations() {
            crash_and_recover(seed, crash_at, faults)
                .map_err(|error| format!("seed {seed}, operation {crash_at}: {error}"))?;
        }
    }
    Ok(())
}

#[test]
fn acknowledged_records_survive_a_crash_at_any_operation() {
    crash_everywhere(0..8, &Faults::default()).unwrap();
}

#[test]
fn without_the_flush_of_files_acknowledged_records_are_lost() {
    let faults = Faults {
        loses_data_syncs: true,
        ..Faults::default()
    };
    crash_everywhere(0..8, &faults).expect_err("the simulation does not see a missing flush");
}

#[test]
fn without_the_flush_of_directories_acknowledged_records_are_lost() {
    let faults = Faults {
        loses_dir_syncs: true,
        ..Faults::default()
    };
    crash_everywhere(0..8, &faults).expect_err("the simulation does not see a missing flush");
}

/// A store with a snapshot at some version and a log of `batches` batches behind it; the image,
/// and where the log's frames begin.
fn prepared(files: &SimFiles, batches: usize) -> (MetadataImage, Vec<usize>) {
    let (mut store, mut image) = open(files).unwrap();
    let mut append = |store: &mut SimStore, number| {
        let batch = [created(number, 2), created(number + 100, 1)];
        store.append(&batch).unwrap();
        image = image.with(&batch).unwrap();
        image.clone()
    };
    let snapshot = append(&mut store, 1);
    store.snapshot(&snapshot).unwrap();
    let mut image = snapshot;
    let mut positions = Vec::new();
    for number in 0..batches {
        positions.push(store.log.end_position as usize);
        image = append(&mut store, number as u128 + 2);
    }
    (image, positions)
}

fn path_of(kind: FileKind, offset: i64) -> PathBuf {
    Path::new(DATA_DIR)
        .join("metadata")
        .join(file_name(kind, offset))
}

#[test]
fn a_torn_append_is_cut_and_the_log_goes_on_behind_it() {
    let log = path_of(FileKind::Log, 2);
    type Tear = fn(&mut Vec<u8>, usize);
    let tears: [(&str, Tear); 6] = [
        ("a header without its end", |bytes, last| {
            bytes.truncate(last + 5)
        }),
        ("a frame without its end", |bytes, _| {
            bytes.truncate(bytes.len() - 1)
        }),
        ("a lost sector in the middle", |bytes, last| {
            bytes[last + 30..last + 60].fill(0)
        }),
        ("a size without bytes", |bytes, last| bytes[last..].fill(0)),
        ("a length gone wild", |bytes, last| {
            bytes[last..last + 4].fill(0xff)
        }),
        ("a flipped bit in the last frame", |bytes, _| {
            *bytes.last_mut().unwrap() ^= 1
        }),
    ];
    for (what, tear) in tears {
        let files = SimFiles::new(0);
        let (image, positions) = prepared(&files, 3);
        files.with_contents(&log, |bytes| tear(bytes, positions[2]));
        let (mut store, recovered) = open(&files).unwrap();
        assert_eq!(recovered.version(), image.version() - 2, "{what}");
        let len = files.with_contents(&log, |bytes| bytes.len());
        assert_eq!(len, positions[2], "{what}: not cut");
        let batch = [created(77, 1)];
        store.append(&batch).unwrap();
        let (_, after) = open(&files).unwrap();
        assert_eq!(after, recovered.with(&batch).unwrap(), "{what}");
    }
}

#[test]
fn damage_that_no_crash_leaves_is_refused_and_left_as_it_is() {
    type Harm = fn(&SimFiles, &[usize]);
    let table: [(&str, Harm, &str); 11] = [
        (
            "a flipped bit with whole frames behind it",
            |files, at| {
                files.with_contents(&path_of(FileKind::Log, 2), |bytes| bytes[at[1] + 40] ^= 1);
            },
            "0002.log, position 331: the checksum is wrong",
        ),
        (
            "a missing frame",
            |files, at| {
                files.with_contents(&path_of(FileKind::Log, 2), |bytes| {
                    bytes.drain(at[0]..at[1]);
                });
            },
            "position 64: the record offset is 4, but 2 comes next",
        ),
        (
            "a frame twice",
            |files, at| {
                files.with_contents(&path_of(FileKind::Log, 2), |bytes| {
                    let again = bytes[at[2]..].to_vec();
                    bytes.extend(again);
                });
            },
            "the record offset is 6, but 8 comes next",
        ),
        (
            "a frame of a later format",
            |files, at| {
                files.with_contents(&path_of(FileKind::Log, 2), |bytes| {
                    bytes[at[2] + 9] = 2;
                    let crc = crc32c::crc32c(&bytes[at[2] + 8..]);
                    bytes[at[2] + 4..at[2] + 8].copy_from_slice(&crc.to_be_bytes());
                });
            },
            "was written by a newer version of Ringmain (format 2)",
        ),
        (
            "a record that does not fit",
            |files, at| {
                files.with_contents(&path_of(FileKind::Log, 2), |bytes| {
                    let frame = encode_frame(6, &[created(2, 1)], BATCH_BYTES_MAX).unwrap();
                    bytes.truncate(at[2]);
                    bytes.extend(frame);
                });
            },
            "topic `topic-2` is created twice",
        ),
        (
            "a log without its header",
            |files, _| {
                files.with_contents(&path_of(FileKind::Log, 2), |bytes| bytes.truncate(63));
            },
            "position 0: the file ends within a header",
        ),
        (
            "a log with another's header",
            |files, _| {
                files.with_contents(&path_of(FileKind::Log, 2), |bytes| bytes[20] ^= 1);
            },
            "position 0: the checksum is wrong",
        ),
        (
            "a damaged snapshot",
            |files, _| {
                files.with_contents(&path_of(FileKind::Snapshot, 2), |bytes| bytes[100] ^= 1);
            },
            "0002.snapshot, position 64: the checksum is wrong",
        ),
        (
            "a snapshot without its end",
            |files, _| {
                files.with_contents(&path_of(FileKind::Snapshot, 2), |bytes| {
                    bytes.truncate(FILE_HEADER_BYTES);
                });
            },
            "it announces 4 records and holds 0",
        ),
        (
            "a missing log",
            |files, _| files.remove(&path_of(FileKind::Log, 2)).unwrap(),
            "it is missing, or a log before it is",
        ),
        (
            "a missing snapshot",
            |files, _| files.remove(&path_of(FileKind::Snapshot, 2)).unwrap(),
            "it is missing, or a log before it is",
        ),
    ];
    for (what, harm, expected) in table {
        let files = SimFiles::new(0);
        let (_, positions) = prepared(&files, 3);
        harm(&files, &positions);
        let names = || {
            files
                .list_dir(&Path::new(DATA_DIR).join("metadata"))
                .unwrap()
        };
        let contents = || -> Vec<_> {
            let directory = Path::new(DATA_DIR).join("metadata");
            names()
                .iter()
                .map(|name| files.read(&directory.join(name)).unwrap())
                .collect()
        };
        let before = (names(), contents());
        let error = open(&files).expect_err(what).to_string();
        assert!(error.contains(expected), "{what}: {error}");
        assert_eq!(
            (names(), contents()),
            before,
            "{what}: something was changed"
        );
    }
}

#[test]
fn another_clusters_metadata_is_refused() {
    let files = SimFiles::new(0);
    prepared(&files, 1);
    let error = LocalMetadataStore::open_on(files, Path::new(DATA_DIR), "another", POLICY)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("belongs to cluster AAECAwQFBgcICQoLDA0ODw"),
        "{error}"
    );
}

#[test]
fn what_crashes_left_over_is_tidied_up_at_the_next_start() {
    let files = SimFiles::new(0);
    let (image, _) = prepared(&files, 1);
    let directory = Path::new(DATA_DIR).join("metadata");
    let stale = FileHeader {
        kind: FileKind::Log,
        base_offset: 0,
        record_count: 0,
        cluster_id: CLUSTER_ID.to_owned(),
    };
    publish_file(&files, &path_of(FileKind::Log, 0), &stale.encode()).unwrap();
    for name in ["00000000000000000001.snapshot", "x.log.tmp", "notes.txt"] {
        files.create(&directory.join(name)).unwrap();
    }
    assert_eq!(open(&files).unwrap().1, image);
    let names = files.list_dir(&directory).unwrap();
    let expected = [
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "notes.txt",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_full_disk_refuses_the_change_and_the_store_goes_on() {
    let files = SimFiles::new(0);
    let (mut store, image) = open(&files).unwrap();
    files.set_faults(Faults {
        full_at: Some(1),
        ..Faults::default()
    });
    let error = store.append(&[created(1, 1)]).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    assert!(error.to_string().contains("is full"), "{error}");
    let batch = [created(2, 1)];
    assert_eq!(store.append(&batch).unwrap(), 1);
    files.power_cut();
    assert_eq!(open(&files).unwrap().1, image.with(&batch).unwrap());
}

#[test]
fn a_full_disk_puts_a_snapshot_off_and_nothing_is_lost() {
    let files = SimFiles::new(0);
    let (mut store, image) = open(&files).unwrap();
    let batch = [created(1, 1)];
    store.append(&batch).unwrap();
    let image = image.with(&batch).unwrap();
    // Operation 1 creates the temporary file, 2 writes it.
    files.set_faults(Faults {
        full_at: Some(2),
        ..Faults::default()
    });
    let error = store.snapshot(&image).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    let batch = [created(2, 1)];
    store.append(&batch).unwrap();
    files.power_cut();
    assert_eq!(open(&files).unwrap().1, image.with(&batch).unwrap());
}

#[test]
fn a_failed_flush_is_never_repeated() {
    let files = SimFiles::new(0);
    let (mut store, image) = open(&files).unwrap();
    files.set_faults(Faults {
        sync_fails_at: Some(2),
        ..Faults::default()
    });
    let batch = [created(1, 1)];
    let error = store.append(&batch).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }) && !error.is_refusal());
    let operations = files.operations();
    assert!(matches!(store.append(&batch), Err(StoreError::Stopped)));
    assert!(matches!(store.snapshot(&image), Err(StoreError::Stopped)));
    assert_eq!(files.operations(), operations, "the disk was touched again");
}

#[test]
fn a_change_beyond_the_limit_is_refused_before_anything_is_written() {
    let files = SimFiles::new(0);
    let (mut store, _) = open(&files).unwrap();
    let operations = files.operations();
    let huge = MetadataRecord::TopicConfigsReplaced {
        id: TopicId(Uuid::from_u128(1)),
        overrides: [("k".to_owned(), "v".repeat(BATCH_BYTES_MAX))].into(),
    };
    let error = store.append(&[huge]).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    assert_eq!(files.operations(), operations);
}

#[test]
fn the_real_file_system_does_as_the_simulated_one() {
    let directory = tempfile::tempdir().unwrap();
    let open = || LocalMetadataStore::open_on(RealFiles, directory.path(), CLUSTER_ID, POLICY);
    let (mut store, mut image) = open().unwrap();
    let mut random = Random(1);
    for _ in 0..20 {
        let batch = next_batch(&image, &mut random);
        image = image.with(&batch).unwrap();
        assert_eq!(store.append(&batch).unwrap(), image.version());
        if store.is_snapshot_due() {
            store.snapshot(&image).unwrap();
        }
    }
    let (store, recovered) = open().unwrap();
    assert_eq!(recovered, image);
    let names = RealFiles
        .list_dir(&directory.path().join("metadata"))
        .unwrap();
    assert_eq!(names.len(), 2, "{names:?}");
    let log = std::fs::read(&store.log.path).unwrap();
    assert_eq!(log.len() as u64, store.log.end_position);
    std::fs::write(&store.log.path, &log[..log.len() - 3]).unwrap();
    assert!(open().unwrap().1.version() < image.version());
}

/// These bytes are on disks: what reads them must go on reading them.
#[test]
fn headers_and_frames_have_their_known_bytes() {
    let header = FileHeader {
        kind: FileKind::Snapshot,
        base_offset: 258,
        record_count: 3,
        cluster_id: CLUSTER_ID.to_owned(),
    };
    let bytes = header.encode();
    let mut expected = b"RMMETASN\0\x01\0\0\0\0\0\x03\0\0\0\0\0\0\x01\x02".to_vec();
    expected.extend_from_slice(CLUSTER_ID.as_bytes());
    expected.resize(60, 0);
    assert_eq!(bytes[..60], expected);
    assert_eq!(FileHeader::decode(FileKind::Snapshot, &bytes), Ok(header));
    assert_eq!(
        FileHeader::decode(FileKind::Log, &bytes),
        Err(Damage::WrongMagic)
    );

    let records = [MetadataRecord::ProducerIdsAllocated {
        next_producer_id: ProducerId(7),
    }];
    let frame = encode_frame(258, &records, BATCH_BYTES_MAX).unwrap();
    let payload = br#"[{"producer-ids-allocated":{"next_producer_id":7}}]"#;
    assert_eq!(frame[..4], (18 + payload.len() as u32).to_be_bytes());
    assert_eq!(frame[4..8], 0xbb8e_9d4c_u32.to_be_bytes());
    assert_eq!(frame[8..22], *b"\0\x01\0\0\0\0\0\0\x01\x02\0\0\0\x01");
    assert_eq!(frame[22..], *payload);
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = FileHeader::decode(FileKind::Log, &bytes);
        let _ = decode_frame(&bytes, 0);
        let _ = contains_frame(&bytes);
    }

    #[test]
    fn a_frame_with_any_changed_byte_is_not_read(at in 0..200_usize, change in 1..=255_u8) {
        let mut frame = encode_frame(5, &[created(1, 20)], BATCH_BYTES_MAX).unwrap();
        let at = at % frame.len();
        frame[at] ^= change;
        prop_assert!(decode_frame(&frame, 5).is_err());
        prop_assert!(FRAME_HEADER_BYTES < frame.len());
    }

    #[test]
    fn a_damaged_file_never_panics(
        of_log in any::<bool>(),
        at in 0..10_000_usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..8),
        cut in proptest::option::of(0..1000_usize),
    ) {
        let files = SimFiles::new(0);
        prepared(&files, 3);
        let kind = if of_log { FileKind::Log } else { FileKind::Snapshot };
        files.with_contents(&path_of(kind, 2), |contents| {
            let at = at % contents.len();
            let end = contents.len().min(at + bytes.len());
            contents[at..end].copy_from_slice(&bytes[..end - at]);
            contents.truncate(cut.unwrap_or(usize::MAX));
        });
        let _ = open(&files);
    }
}
