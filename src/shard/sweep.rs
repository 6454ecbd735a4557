//! What a stop in the middle of a deletion leaves behind, put away before the shards start.

use std::io;
use std::path::Path;

use tracing::{info, warn};

use crate::cluster::MetadataImage;
use crate::storage::partition_files::{PARTITION_METADATA, decode_partition_metadata};

/// Removes folders that were marked for deletion, and puts folders aside whose topic the metadata
/// does not know: their name may be needed, and their records are not ours to drop.
///
/// # Errors
/// The data directory cannot be read.
pub fn sweep_data_dir(data_dir: &Path, image: &MetadataImage) -> io::Result<()> {
    for entry in std::fs::read_dir(data_dir)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if !path.is_dir() {
            continue;
        }
        if name.ends_with("-delete") && name.contains('.') {
            info!(dir = %path.display(), "removing what a deletion left behind");
            if let Err(error) = std::fs::remove_dir_all(&path) {
                warn!(dir = %path.display(), %error, "cannot remove a deleted partition");
            }
            continue;
        }
        let Ok(text) = std::fs::read_to_string(path.join(PARTITION_METADATA)) else {
            continue;
        };
        let Ok(topic_id) = decode_partition_metadata(&text) else {
            continue;
        };
        if name.ends_with("-stray") || image.topic_by_id(topic_id).is_some() {
            continue;
        }
        let aside = path.with_file_name(format!("{name}.{}-stray", topic_id.0.simple()));
        warn!(dir = %path.display(), aside = %aside.display(),
            "a folder belongs to a topic that does not exist; it is put aside, remove it when it is not needed");
        std::fs::rename(&path, &aside)?;
    }
    Ok(())
}
