//! Whose data directory it is: `ringmain.json` and the lock.
//!
//! ```json
//! {
//!   "format": 1,
//!   "node.id": 1,
//!   "cluster.id": "MkU3OEVBNTcwNTJENDM2Qk",
//!   "directory.id": "4L6g3nShT-eMCtK--X86sw"
//! }
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::base::{NodeId, TopicId};

use super::store::files::{RealFiles, publish_file};

/// The layout of the data directory that this version writes, and the only one that it reads.
pub const DATA_FORMAT_VERSION: u32 = 1;

const IDENTITY_FILE_NAME: &str = "ringmain.json";
const LOCK_FILE_NAME: &str = ".lock";

/// A data directory that this process holds, until the value is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    identity: Identity,
    /// Its lock goes with the open file, however the process ends.
    _lock: File,
}

/// Who lives in the directory. Made at the first start, never changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub node_id: NodeId,
    /// The cluster's id in Kafka's base64 form, 22 characters.
    pub cluster_id: String,
    /// The directory's id (KIP-858), in the same form.
    pub directory_id: String,
}

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    #[error(
        "the data directory {} cannot be created: {error}; choose another with --data-dir",
        path.display()
    )]
    NotCreated { path: PathBuf, error: io::Error },
    #[error(
        "the data directory {} is not writable: {error}; give this user the right to write there, \
         or choose another with --data-dir",
        path.display()
    )]
    NotWritable { path: PathBuf, error: io::Error },
    #[error(
        "the data directory {} is held by another process{}; stop that, or choose another \
         directory with --data-dir",
        path.display(),
        holder.map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    Held { path: PathBuf, holder: Option<u32> },
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    #[error(
        "{} cannot be read: {reason}; restore it from a copy, or choose another directory with \
         --data-dir",
        path.display()
    )]
    Unreadable { path: PathBuf, reason: String },
    #[error(
        "{} is of format {found}, and this version knows format {DATA_FORMAT_VERSION} only; start \
         the version that wrote it",
        path.display()
    )]
    UnknownFormat { path: PathBuf, found: u64 },
    #[error(
        "the data directory {} is of node {found}, but node.id is {configured}; set node.id = \
         {found}, or choose another directory with --data-dir",
        path.display()
    )]
    OtherNode {
        path: PathBuf,
        found: NodeId,
        configured: NodeId,
    },
}

impl DataDirectory {
    /// Creates the directory where it is missing, locks it, and reads who lives there; at the
    /// first start that is `node_id`, in a new cluster. Blocks.
    pub fn open(path: &Path, node_id: NodeId) -> Result<Self, DataDirectoryError> {
        create_directory(path)?;
        let lock = lock_directory(path)?;
        let identity = match read_identity(&path.join(IDENTITY_FILE_NAME))? {
            Some(identity) => identity,
            None => create_identity(path, node_id)?,
        };
        if identity.node_id != node_id {
            return Err(DataDirectoryError::OtherNode {
                path: path.to_owned(),
                found: identity.node_id,
                configured: node_id,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            identity,
            _lock: lock,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

fn create_directory(path: &Path) -> Result<(), DataDirectoryError> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path).map_err(|error| DataDirectoryError::NotCreated {
        path: path.to_owned(),
        error,
    })?;
    // The new entry must survive a crash as what is put into the directory will. Every missing
    // parent would need this; the one above is what people have.
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Ok(parent) = File::open(parent.unwrap_or(Path::new("."))) {
        // A parent that may be searched but not opened is no reason to refuse.
        let _ = parent.sync_all();
    }
    Ok(())
}

/// Takes the lock and writes the process id into it, for the message of whoever comes second.
fn lock_directory(directory: &Path) -> Result<File, DataDirectoryError> {
    let path = directory.join(LOCK_FILE_NAME);
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| DataDirectoryError::NotWritable {
            path: directory.to_owned(),
            error,
        })?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            // Only for the message: without the number it is still right.
            let _ = lock.take(32).read_to_string(&mut holder);
            return Err(DataDirectoryError::Held {
                path: directory.to_owned(),
                holder: holder.trim().parse().ok(),
            });
        }
        Err(error) => {
            return Err(DataDirectoryError::Io {
                action: "lock",
                path,
                error: error.into(),
            });
        }
    }
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(|error| DataDirectoryError::NotWritable {
            path: directory.to_owned(),
            error,
        })?;
    Ok(lock)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityFile {
    format: u32,
    #[serde(rename = "node.id")]
    node_id: i32,
    #[serde(rename = "cluster.id")]
    cluster_id: String,
    #[serde(rename = "directory.id")]
    directory_id: String,
}

fn read_identity(path: &Path) -> Result<Option<Identity>, DataDirectoryError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(DataDirectoryError::Io {
                action: "read",
                path: path.to_owned(),
                error,
            });
        }
    };
    let unreadable = |reason: String| DataDirectoryError::Unreadable {
        path: path.to_owned(),
        reason,
    };
    // The format first: what else there is depends on it.
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(found) if found == u64::from(DATA_FORMAT_VERSION) => {}
        Some(found) => {
            return Err(DataDirectoryError::UnknownFormat {
                path: path.to_owned(),
                found,
            });
        }
        None => return Err(unreadable("it has no format number".to_owned())),
    }
    let file: IdentityFile =
        serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))?;
    for id in [&file.cluster_id, &file.directory_id] {
        id.parse::<TopicId>()
            .map_err(|error| unreadable(error.to_string()))?;
    }
    Ok(Some(Identity {
        node_id: NodeId(file.node_id),
        cluster_id: file.cluster_id,
        directory_id: file.directory_id,
    }))
}

fn create_identity(directory: &Path, node_id: NodeId) -> Result<Identity, DataDirectoryError> {
    let path = directory.join(IDENTITY_FILE_NAME);
    let identity = Identity {
        node_id,
        cluster_id: random_kafka_uuid(),
        directory_id: random_kafka_uuid(),
    };
    let file = IdentityFile {
        format: DATA_FORMAT_VERSION,
        node_id: node_id.0,
        cluster_id: identity.cluster_id.clone(),
        directory_id: identity.directory_id.clone(),
    };
    serde_json::to_vec_pretty(&file)
        .map_err(io::Error::from)
        .and_then(|mut bytes| {
            bytes.push(b'\n');
            publish_file(&RealFiles, &path, &bytes)
        })
        .map_err(|error| DataDirectoryError::Io {
            action: "write",
            path,
            error,
        })?;
    Ok(identity)
}

/// Kafka makes and prints all of its UUIDs as it does topic ids.
fn random_kafka_uuid() -> String {
    TopicId::random().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<DataDirectory, DataDirectoryError>) -> String {
        result.expect_err("must be refused").to_string()
    }

    #[test]
    fn the_identity_is_made_once_and_kept() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("not/there/yet");
        let first = DataDirectory::open(&path, NodeId(7)).unwrap();
        let identity = first.identity().clone();
        assert_eq!(identity.node_id, NodeId(7));
        assert_ne!(identity.cluster_id, identity.directory_id);
        drop(first);
        let second = DataDirectory::open(&path, NodeId(7)).unwrap();
        assert_eq!(second.identity(), &identity);
    }

    #[test]
    fn a_held_directory_is_refused_and_names_its_holder() {
        let directory = tempfile::tempdir().unwrap();
        let held = DataDirectory::open(directory.path(), NodeId(1)).unwrap();
        let text = message(DataDirectory::open(directory.path(), NodeId(1)));
        assert!(text.contains("held by another process"), "{text}");
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        drop(held);
        DataDirectory::open(directory.path(), NodeId(1)).unwrap();
    }

    #[test]
    fn another_node_id_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        DataDirectory::open(directory.path(), NodeId(3)).unwrap();
        let text = message(DataDirectory::open(directory.path(), NodeId(4)));
        assert!(text.contains("set node.id = 3"), "{text}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_or_written_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let text = message(DataDirectory::open(&file.join("below"), NodeId(1)));
        assert!(text.contains("cannot be created"), "{text}");
        // Permission bits do not hold root back; a directory in the lock's place holds everybody.
        std::fs::create_dir(directory.path().join(LOCK_FILE_NAME)).unwrap();
        let text = message(DataDirectory::open(directory.path(), NodeId(1)));
        assert!(text.contains("is not writable"), "{text}");
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_with_its_reason() {
        let good = r#"{"format": 1, "node.id": 1, "cluster.id": "AAECAwQFBgcICQoLDA0ODw",
            "directory.id": "AAECAwQFBgcICQoLDA0ODw"}"#;
        let table = [
            (String::new(), "cannot be read"),
            (good[..40].to_owned(), "cannot be read"),
            ("[]".to_owned(), "no format number"),
            (
                good.replace("\"format\": 1", "\"format\": 2"),
                "is of format 2",
            ),
            (good.replace("ODw\"}", "\"}"), "not a Kafka UUID"),
            (good.replace("node.id", "node"), "unknown field `node`"),
        ];
        for (contents, expected) in table {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join(IDENTITY_FILE_NAME), &contents).unwrap();
            let text = message(DataDirectory::open(directory.path(), NodeId(1)));
            assert!(text.contains(expected), "{contents}: {text}");
            let kept = std::fs::read_to_string(directory.path().join(IDENTITY_FILE_NAME)).unwrap();
            assert_eq!(kept, contents, "the file was changed");
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(IDENTITY_FILE_NAME), good).unwrap();
        DataDirectory::open(directory.path(), NodeId(1)).unwrap();
    }
}
