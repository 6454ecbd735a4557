//! The small text files of a partition's folder, in Kafka's formats.

use std::io;
use std::path::Path;

use crate::base::{LeaderEpoch, Offset, TopicId};
use crate::io::disk::Disk;

pub const PARTITION_METADATA: &str = "partition.metadata";
pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";

/// A text file that is not what Kafka writes.
#[derive(Debug, thiserror::Error)]
pub enum PartitionFileError {
    #[error(
        "{name} has version {version}; this broker knows version 0: start the newer broker that wrote it"
    )]
    Version { name: &'static str, version: String },
    #[error("{name} is malformed: {reason}")]
    Malformed { name: &'static str, reason: String },
}

/// `version: 0` and `topic_id: …`, a line each.
pub fn encode_partition_metadata(topic_id: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

/// # Errors
/// The file has another version, or no readable topic id.
pub fn decode_partition_metadata(text: &str) -> Result<TopicId, PartitionFileError> {
    let name = PARTITION_METADATA;
    let field = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim))
            .ok_or_else(|| PartitionFileError::Malformed {
                name,
                reason: format!("it has no `{key}`"),
            })
    };
    let version = field("version")?;
    if version != "0" {
        return Err(PartitionFileError::Version {
            name,
            version: version.to_owned(),
        });
    }
    field("topic_id")?
        .parse()
        .map_err(|error| PartitionFileError::Malformed {
            name,
            reason: format!("{error}"),
        })
}

/// The version, the number of entries, and `epoch start-offset` a line.
pub fn encode_leader_epochs(epochs: &[(LeaderEpoch, Offset)]) -> String {
    let mut text = format!("0\n{}\n", epochs.len());
    for (epoch, start) in epochs {
        text.push_str(&format!("{epoch} {start}\n"));
    }
    text
}

/// # Errors
/// The file has another version, or its lines are not what its count promises.
pub fn decode_leader_epochs(text: &str) -> Result<Vec<(LeaderEpoch, Offset)>, PartitionFileError> {
    let name = LEADER_EPOCH_CHECKPOINT;
    let malformed = |reason: String| PartitionFileError::Malformed { name, reason };
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default().trim();
    if version != "0" {
        return Err(PartitionFileError::Version {
            name,
            version: version.to_owned(),
        });
    }
    let count: usize = lines
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or_else(|| malformed("it has no count".to_owned()))?;
    let epochs = lines
        .map(|line| {
            let parsed = line.split_once(' ').and_then(|(epoch, start)| {
                Some((
                    LeaderEpoch(epoch.trim().parse().ok()?),
                    Offset(start.trim().parse().ok()?),
                ))
            });
            parsed.ok_or_else(|| malformed(format!("`{line}` is no epoch and offset")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    if epochs.len() != count {
        return Err(malformed(format!(
            "it has {} entries and promises {count}",
            epochs.len()
        )));
    }
    Ok(epochs)
}

/// Makes a partition's folder with its `partition.metadata`. The folder's own entry becomes durable
/// with the log's first append; until then a crash may take it, and it is made again.
///
/// # Errors
/// The device failed.
pub async fn create_partition_dir<D: Disk>(
    disk: &D,
    dir: &Path,
    topic_id: TopicId,
) -> io::Result<()> {
    disk.create_dir_all(dir).await?;
    let metadata = encode_partition_metadata(topic_id);
    disk.write_file(&dir.join(PARTITION_METADATA), metadata.as_bytes())
        .await
}

/// Replaces `name` in `dir` whole: written beside it, flushed, renamed, and the folder flushed.
/// When it resolves, the new contents are on stable media.
pub async fn replace_file<D: Disk>(
    disk: &D,
    dir: &Path,
    name: &str,
    contents: &[u8],
) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    disk.write_file(&temporary, contents).await?;
    disk.rename(&temporary, &dir.join(name)).await?;
    disk.sync_dir(dir).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_metadata_is_kafkas() {
        let id: TopicId = "AAECAwQFBgcICQoLDA0ODw".parse().unwrap();
        let text = encode_partition_metadata(id);
        assert_eq!(text, "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw");
        assert_eq!(decode_partition_metadata(&text).unwrap(), id);
        assert_eq!(decode_partition_metadata(&(text + "\n")).unwrap(), id);
        for (text, part) in [
            ("", "no `version`"),
            ("version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "version 1"),
            ("version: 0", "no `topic_id`"),
            ("version: 0\ntopic_id: x", "UUID"),
        ] {
            let error = decode_partition_metadata(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn leader_epochs_are_kafkas() {
        let epochs = [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(3), Offset(150))];
        let text = encode_leader_epochs(&epochs);
        assert_eq!(text, "0\n2\n0 0\n3 150\n");
        assert_eq!(decode_leader_epochs(&text).unwrap(), epochs);
        for (text, part) in [
            ("", "version"),
            ("7\n0\n", "version 7"),
            ("0\n", "count"),
            ("0\n2\n0 0\n", "promises 2"),
            ("0\n1\nx 0\n", "`x 0`"),
        ] {
            let error = decode_leader_epochs(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
