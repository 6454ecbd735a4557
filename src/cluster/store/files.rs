//! The file system as the metadata store sees it: small, synchronous, and replaceable by a
//! simulation that loses what was not flushed.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A directory tree. Names become durable with [`MetadataFiles::sync_dir`], contents with
/// [`MetadataFile::sync_data`]; before that, a crash keeps any part of them.
pub trait MetadataFiles {
    type File: MetadataFile;

    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names (not paths) of the entries, in no order.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// A new, empty file to write; what had the name before is gone.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// An existing file to write.
    fn open(&self, path: &Path) -> io::Result<Self::File>;
    /// Atomic replacement.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// An open file.
pub trait MetadataFile {
    fn write_all_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Returns when the writes before it, and the size, are on stable media (fdatasync).
    fn sync_data(&mut self) -> io::Result<()>;
    fn set_len(&mut self, len: u64) -> io::Result<()>;
}

/// The kernel's file system. Its calls block: they belong on the control thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

impl MetadataFiles for RealFiles {
    type File = fs::File;

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn create(&self, path: &Path) -> io::Result<fs::File> {
        fs::File::create(path)
    }

    fn open(&self, path: &Path) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }
}

impl MetadataFile for fs::File {
    fn write_all_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, position)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        fs::File::sync_data(self)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        fs::File::set_len(self, len)
    }
}

/// Writes a file whole under a name of its own, flushes it, gives it its name, and flushes that:
/// after a crash the file is there complete, or not at all.
pub fn publish_file<F: MetadataFiles>(
    files: &F,
    path: &Path,
    contents: &[u8],
) -> io::Result<F::File> {
    let temporary = temporary_path(path);
    let mut file = files.create(&temporary)?;
    file.write_all_at(contents, 0)?;
    file.sync_data()?;
    files.rename(&temporary, path)?;
    files.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
    Ok(file)
}

/// Where [`publish_file`] prepares a file.
pub fn temporary_path(path: &Path) -> PathBuf {
    path.with_added_extension("tmp")
}
