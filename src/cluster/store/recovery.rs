//! Finding out, at start, what the metadata is. The table is in [`store`](super).

use std::path::Path;

use super::super::image::MetadataImage;
use super::files::{MetadataFile, MetadataFiles};
use super::frame::{Damage, FILE_HEADER_BYTES, FileHeader, FileKind, contains_frame, decode_frame};
use super::{ActiveLog, StoreError, create_log, file_name, io_error};

pub(super) struct Recovered<File> {
    pub image: MetadataImage,
    pub log: ActiveLog<File>,
    pub snapshot_bytes: u64,
}

pub(super) fn recover<F: MetadataFiles>(
    files: &F,
    directory: &Path,
    cluster_id: &str,
) -> Result<Recovered<F::File>, StoreError> {
    // Names that are there may be in the page cache only, when just the process died.
    files
        .sync_dir(directory)
        .map_err(|error| io_error("flush", directory, error))?;
    let listing = Listing::read(files, directory)?;
    let (mut image, snapshot_bytes) = match listing.snapshots.last() {
        Some(offset) => load_snapshot(files, directory, cluster_id, *offset)?,
        None => (MetadataImage::empty(cluster_id), 0),
    };
    let snapshot_offset = image.version();
    if listing.logs.is_empty() && listing.snapshots.is_empty() {
        let log = create_log(files, directory, cluster_id, 0)?;
        return Ok(Recovered {
            image,
            log,
            snapshot_bytes,
        });
    }
    let logs = listing.logs_from(snapshot_offset).ok_or_else(|| {
        let path = directory.join(file_name(FileKind::Log, snapshot_offset));
        inconsistent(&path, "it is missing, or a log before it is".into())
    })?;
    let mut reader = LogReader {
        files,
        directory,
        cluster_id,
        image: &mut image,
        next_offset: logs[0],
    };
    let mut end_position = FILE_HEADER_BYTES as u64;
    for (index, base_offset) in logs.iter().enumerate() {
        end_position = reader.replay(*base_offset, index + 1 == logs.len())?;
    }
    let next_offset = reader.next_offset;
    let base_offset = logs[logs.len() - 1];
    let path = directory.join(file_name(FileKind::Log, base_offset));
    if next_offset < snapshot_offset {
        return Err(inconsistent(
            &path,
            format!("it ends at record {next_offset}, before the snapshot at {snapshot_offset}"),
        ));
    }
    let mut file = files
        .open(&path)
        .map_err(|error| io_error("open", &path, error))?;
    // Flushed too, for the same reason: what was replayed will be told to clients.
    file.set_len(end_position)
        .and_then(|()| file.sync_data())
        .map_err(|error| io_error("cut the torn end of", &path, error))?;
    remove_outdated(files, directory, snapshot_offset)?;
    Ok(Recovered {
        image,
        log: ActiveLog {
            path,
            file,
            base_offset,
            next_offset,
            end_position,
        },
        snapshot_bytes,
    })
}

/// Removes what the snapshot at `offset` makes needless. What a crash leaves over is removed at
/// the next start or snapshot.
pub(super) fn remove_outdated<F: MetadataFiles>(
    files: &F,
    directory: &Path,
    offset: i64,
) -> Result<(), StoreError> {
    let listing = Listing::read(files, directory)?;
    let first_log = listing.logs_from(offset).map_or(0, |logs| logs[0]);
    let logs = listing.logs.iter().filter(|base| **base < first_log);
    let snapshots = listing.snapshots.iter().filter(|other| **other < offset);
    // Oldest first: were only some removed, the rest would still be without a gap.
    let names = logs
        .map(|base| file_name(FileKind::Log, *base))
        .chain(snapshots.map(|other| file_name(FileKind::Snapshot, *other)))
        .chain(listing.temporaries.iter().cloned());
    for name in names {
        let path = directory.join(name);
        files
            .remove(&path)
            .map_err(|error| io_error("remove", &path, error))?;
    }
    Ok(())
}

/// The files of the directory by kind, offsets in order.
struct Listing {
    logs: Vec<i64>,
    snapshots: Vec<i64>,
    temporaries: Vec<String>,
}

impl Listing {
    fn read<F: MetadataFiles>(files: &F, directory: &Path) -> Result<Self, StoreError> {
        let mut listing = Self {
            logs: Vec::new(),
            snapshots: Vec::new(),
            temporaries: Vec::new(),
        };
        let names = files
            .list_dir(directory)
            .map_err(|error| io_error("list", directory, error))?;
        for name in names {
            let offset = |extension: &str| {
                let digits = name.strip_suffix(extension)?;
                let all_digits = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
                digits.parse::<i64>().ok().filter(|_| all_digits)
            };
            if name.ends_with(".tmp") {
                listing.temporaries.push(name);
            } else if let Some(offset) = offset(".log") {
                listing.logs.push(offset);
            } else if let Some(offset) = offset(".snapshot") {
                listing.snapshots.push(offset);
            } else {
                tracing::warn!(name, "ignoring a file that is not the metadata store's");
            }
        }
        listing.logs.sort_unstable();
        listing.snapshots.sort_unstable();
        Ok(listing)
    }

    /// The logs that hold records from `offset` on, the first of which begins at or before it.
    fn logs_from(&self, offset: i64) -> Option<&[i64]> {
        let first = self.logs.iter().rposition(|base| *base <= offset)?;
        self.logs.get(first..)
    }
}

fn load_snapshot<F: MetadataFiles>(
    files: &F,
    directory: &Path,
    cluster_id: &str,
    offset: i64,
) -> Result<(MetadataImage, u64), StoreError> {
    let path = directory.join(file_name(FileKind::Snapshot, offset));
    let bytes = files
        .read(&path)
        .map_err(|error| io_error("read", &path, error))?;
    let header = check_header(FileKind::Snapshot, &path, &bytes, cluster_id, offset)?;
    let mut image = MetadataImage::empty(cluster_id);
    let mut position = FILE_HEADER_BYTES;
    while position < bytes.len() {
        let frame = decode_frame(&bytes[position..], image.version())
            .map_err(|damage| damaged(&path, position, damage))?;
        image = image
            .with(&frame.records)
            .map_err(|error| inconsistent(&path, error.to_string()))?;
        position += frame.len;
    }
    if image.version() != i64::from(header.record_count) {
        let damage = Damage::WrongRecordCount {
            announced: header.record_count,
            found: usize::try_from(image.version()).unwrap_or(usize::MAX),
        };
        return Err(damaged(&path, position, damage));
    }
    Ok((image.at_version(offset), bytes.len() as u64))
}

struct LogReader<'a, F> {
    files: &'a F,
    directory: &'a Path,
    cluster_id: &'a str,
    image: &'a mut MetadataImage,
    /// The offset of the record that must come next.
    next_offset: i64,
}

impl<F: MetadataFiles> LogReader<'_, F> {
    /// Applies a log's records and returns where its last whole frame ends.
    fn replay(&mut self, base_offset: i64, is_last: bool) -> Result<u64, StoreError> {
        let path = self.directory.join(file_name(FileKind::Log, base_offset));
        if base_offset != self.next_offset {
            return Err(inconsistent(
                &path,
                format!("the log before it ends at record {}", self.next_offset),
            ));
        }
        let bytes = self
            .files
            .read(&path)
            .map_err(|error| io_error("read", &path, error))?;
        check_header(FileKind::Log, &path, &bytes, self.cluster_id, base_offset)?;
        let mut position = FILE_HEADER_BYTES;
        while position < bytes.len() {
            match decode_frame(&bytes[position..], self.next_offset) {
                Ok(frame) => {
                    self.apply(&path, &frame)?;
                    position += frame.len;
                }
                Err(damage) if is_last && is_torn(&damage, &bytes[position + 1..]) => {
                    tracing::warn!(
                        path = %path.display(),
                        position,
                        bytes = bytes.len() - position,
                        "cutting an append that a crash interrupted"
                    );
                    break;
                }
                Err(damage) => return Err(damaged(&path, position, damage)),
            }
        }
        Ok(position as u64)
    }

    fn apply(&mut self, path: &Path, frame: &super::frame::Frame) -> Result<(), StoreError> {
        let end = self.next_offset + frame.records.len() as i64;
        let snapshot_offset = self.image.version();
        if end > snapshot_offset {
            if self.next_offset != snapshot_offset {
                let reason = format!("the snapshot at {snapshot_offset} cuts a batch in two");
                return Err(inconsistent(path, reason));
            }
            *self.image = self
                .image
                .with(&frame.records)
                .map_err(|error| inconsistent(path, error.to_string()))?;
        }
        self.next_offset = end;
        Ok(())
    }
}

/// Whether a bad frame is what an interrupted append leaves: no checksum, and nothing behind it.
fn is_torn(damage: &Damage, rest: &[u8]) -> bool {
    match damage {
        Damage::TruncatedHeader | Damage::ImpossibleLength(_) | Damage::WrongChecksum => {
            !contains_frame(rest)
        }
        // The checksum was right: somebody wrote this.
        Damage::WrongMagic
        | Damage::UnknownVersion(_)
        | Damage::WrongOffset { .. }
        | Damage::WrongRecordCount { .. }
        | Damage::UnreadableRecords(_) => false,
    }
}

fn check_header(
    kind: FileKind,
    path: &Path,
    bytes: &[u8],
    cluster_id: &str,
    offset: i64,
) -> Result<FileHeader, StoreError> {
    let header = FileHeader::decode(kind, bytes).map_err(|damage| damaged(path, 0, damage))?;
    if header.cluster_id != cluster_id {
        return Err(StoreError::OtherCluster {
            path: path.to_owned(),
            expected: cluster_id.to_owned(),
            found: header.cluster_id,
        });
    }
    if header.base_offset != offset {
        let reason = format!("its header says offset {}", header.base_offset);
        return Err(inconsistent(path, reason));
    }
    Ok(header)
}

fn damaged(path: &Path, position: usize, damage: Damage) -> StoreError {
    match damage {
        Damage::UnknownVersion(version) => StoreError::TooNew {
            path: path.to_owned(),
            version,
        },
        damage => StoreError::Damaged {
            path: path.to_owned(),
            position: position as u64,
            damage,
        },
    }
}

fn inconsistent(path: &Path, reason: String) -> StoreError {
    StoreError::Inconsistent {
        path: path.to_owned(),
        reason,
    }
}
