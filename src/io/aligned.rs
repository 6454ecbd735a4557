//! Memory that direct writes are made from, shared with whoever else needs the bytes.
#![allow(unsafe_code)]

use bytes::Bytes;

use crate::base::limits::DISK_BLOCK_BYTES;

#[repr(C, align(4096))]
struct Block([u8; DISK_BLOCK_BYTES]);

const _: () = assert!(align_of::<Block>() == DISK_BLOCK_BYTES);
const _: () = assert!(size_of::<Block>() == DISK_BLOCK_BYTES);

struct Blocks(Vec<Block>);

impl AsRef<[u8]> for Blocks {
    fn as_ref(&self) -> &[u8] {
        let len = self.0.len() * DISK_BLOCK_BYTES;
        // SAFETY: a block is its bytes, without padding, and all of them are initialised.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), len) }
    }
}

/// The pieces, one behind the other, copied into whole blocks; zeros follow up to the last block's
/// end. Slices of it that begin and end at a block's edge may be written directly.
pub fn aligned_blocks(pieces: &[&[u8]]) -> Bytes {
    let used_bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
    let count = used_bytes.div_ceil(DISK_BLOCK_BYTES);
    let mut blocks: Vec<Block> = Vec::with_capacity(count);
    let start: *mut u8 = blocks.as_mut_ptr().cast();
    let mut at = 0;
    for piece in pieces {
        // SAFETY: there is room for all pieces, in memory that is nobody else's.
        unsafe {
            start
                .add(at)
                .copy_from_nonoverlapping(piece.as_ptr(), piece.len())
        };
        at += piece.len();
    }
    // SAFETY: as above; afterwards all bytes of `count` blocks are initialised.
    unsafe {
        start.add(at).write_bytes(0, count * DISK_BLOCK_BYTES - at);
        blocks.set_len(count);
    }
    Bytes::from_owner(Blocks(blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_stand_one_behind_the_other_in_whole_blocks() {
        for lens in [
            vec![],
            vec![1],
            vec![4096],
            vec![3, 0, 4093],
            vec![100, 9_000],
        ] {
            let pieces: Vec<Vec<u8>> = (1_u8..)
                .zip(&lens)
                .map(|(fill, len)| vec![fill; *len])
                .collect();
            let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let blocks = aligned_blocks(&slices);
            let used = pieces.concat();
            assert_eq!(blocks.len(), used.len().next_multiple_of(DISK_BLOCK_BYTES));
            assert_eq!(blocks[..used.len()], used[..], "{lens:?}");
            assert!(
                blocks[used.len()..].iter().all(|byte| *byte == 0),
                "{lens:?}"
            );
            assert_eq!(blocks.as_ptr() as usize % DISK_BLOCK_BYTES, 0, "{lens:?}");
        }
    }
}
