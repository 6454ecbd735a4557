//! The files of a commit log: a fixed number, of a fixed size, written once from end to end so that
//! later writes change neither a size nor an extent.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::format::FileHeader;
use crate::base::limits::DISK_BLOCK_BYTES;
use crate::io::disk::{Disk, DiskFile, OpenMode};

/// Files of one commit log: one is written, one is being emptied, and two give that time.
pub const FILE_COUNT: usize = 4;

/// What one write takes while a file is made.
const PREWRITE_BYTES: usize = 1 << 20;

pub fn file_path(core_dir: &Path, number: usize) -> PathBuf {
    core_dir.join(format!("commit-{number}.log"))
}

/// Makes the files where they are missing or of another size, and gives each the header of this
/// run: whatever groups they hold count no longer. Durable when it resolves.
///
/// # Errors
/// The device failed or is full.
pub async fn prepare<D: Disk>(
    disk: &D,
    core_dir: &Path,
    header: FileHeader,
    file_bytes: u64,
) -> io::Result<Vec<Rc<D::File>>> {
    let mut files = Vec::with_capacity(FILE_COUNT);
    for number in 0..FILE_COUNT {
        let path = file_path(core_dir, number);
        let file = disk.open(&path, OpenMode::Create).await?;
        if file.size().await? != file_bytes {
            write_zeros(&file, file_bytes).await?;
        }
        write_header(&file, header).await?;
        file.sync_data().await?;
        files.push(Rc::new(file));
    }
    disk.sync_dir(core_dir).await?;
    Ok(files)
}

async fn write_header<F: DiskFile>(file: &F, header: FileHeader) -> io::Result<()> {
    let block = header.encode();
    let mut buffer = file.allocate(DISK_BLOCK_BYTES);
    buffer.copy_from_slice(&block);
    file.write_at(Rc::new(buffer), 0).await
}

async fn write_zeros<F: DiskFile>(file: &F, file_bytes: u64) -> io::Result<()> {
    file.truncate(0).await?;
    file.preallocate(file_bytes).await?;
    let mut position = 0;
    while position < file_bytes {
        let len = (file_bytes - position).min(PREWRITE_BYTES as u64);
        let mut buffer = file.allocate(len as usize);
        buffer.fill(0);
        file.write_at(Rc::new(buffer), position).await?;
        position += len;
    }
    Ok(())
}
