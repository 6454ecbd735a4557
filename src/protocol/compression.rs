//! The five compressions of record batches, read as streams: the whole expansion of a batch is
//! never in memory (except a block of snappy, which bounds itself).

use std::io::{self, Read};

use super::batch::Compression;

/// The expansion of a batch at which it is refused, in bytes: what a compressed bomb may cost.
pub const DECOMPRESSED_BYTES_MAX: u64 = 512 << 20;

/// The start of snappy in the framing of Java's xerial library; then come two versions of four
/// bytes, and blocks with a length of four bytes each. Others send one bare block.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
/// The least that snappy needs for a number of bytes: three for a copy of 64.
const SNAPPY_EXPANSION_MAX: usize = 22;

/// A stream of the decompressed records.
pub fn decompressor<'a>(
    compression: Compression,
    bytes: &'a [u8],
) -> io::Result<Box<dyn Read + 'a>> {
    let stream: Box<dyn Read + 'a> = match compression {
        Compression::None => Box::new(bytes),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(bytes)),
        Compression::Snappy => Box::new(SnappyBlocks::new(bytes)),
        Compression::Lz4 => {
            check_lz4_header(bytes)?;
            Box::new(lz4_flex::frame::FrameDecoder::new(bytes))
        }
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(bytes)?),
    };
    Ok(Box::new(stream.take(DECOMPRESSED_BYTES_MAX)))
}

/// Kafka's clients read standard LZ4 frames with independent blocks only: what they could not read
/// must not get into a log.
fn check_lz4_header(bytes: &[u8]) -> io::Result<()> {
    const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
    const BLOCKS_ARE_INDEPENDENT: u8 = 1 << 5;
    let has_magic = bytes.starts_with(&MAGIC);
    let flags = bytes.get(MAGIC.len()).copied().unwrap_or_default();
    if has_magic && flags & BLOCKS_ARE_INDEPENDENT != 0 {
        return Ok(());
    }
    let text = "LZ4 must be in frames with independent blocks";
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Compresses records as a client would.
pub fn compress(compression: Compression, records: &[u8]) -> io::Result<Vec<u8>> {
    use std::io::Write;
    match compression {
        Compression::None => Ok(records.to_vec()),
        Compression::Gzip => {
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(records)?;
            encoder.finish()
        }
        Compression::Snappy => snap::raw::Encoder::new()
            .compress_vec(records)
            .map_err(io::Error::other),
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(records)?;
            encoder.finish().map_err(io::Error::other)
        }
        Compression::Zstd => zstd::stream::encode_all(records, 0),
    }
}

/// Snappy blocks, framed or bare, one in memory at a time.
struct SnappyBlocks<'a> {
    rest: &'a [u8],
    framed: bool,
    block: io::Cursor<Vec<u8>>,
}

impl<'a> SnappyBlocks<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let framed = bytes.starts_with(&XERIAL_MAGIC) && bytes.len() >= XERIAL_HEADER_BYTES;
        let rest = if framed {
            &bytes[XERIAL_HEADER_BYTES..]
        } else {
            bytes
        };
        Self {
            rest,
            framed,
            block: io::Cursor::default(),
        }
    }

    /// The next compressed block, or none at the end.
    fn next_block(&mut self) -> io::Result<Option<&'a [u8]>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if !self.framed {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "a snappy block is cut off");
        let (length, rest) = self.rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (block, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        self.rest = rest;
        Ok(Some(block))
    }
}

impl Read for SnappyBlocks<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.block.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            let Some(block) = self.next_block()? else {
                return Ok(0);
            };
            let len = snap::raw::decompress_len(block).map_err(io::Error::other)?;
            // The length is the sender's claim: it must not decide how much is allocated.
            if len > block.len().saturating_mul(SNAPPY_EXPANSION_MAX) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a snappy block claims more than it can hold",
                ));
            }
            let block = snap::raw::Decoder::new()
                .decompress_vec(block)
                .map_err(io::Error::other)?;
            self.block = io::Cursor::new(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    #[test]
    fn what_was_compressed_comes_back() {
        let records: Vec<u8> = (0..100_000_u32)
            .flat_map(|n| (n / 7).to_be_bytes())
            .collect();
        for compression in ALL {
            let packed = compress(compression, &records).unwrap();
            let mut unpacked = Vec::new();
            decompressor(compression, &packed)
                .unwrap()
                .read_to_end(&mut unpacked)
                .unwrap();
            assert!(unpacked == records, "{compression:?}");
        }
    }

    #[test]
    fn framed_snappy_is_read_block_by_block() {
        let mut framed = XERIAL_MAGIC.to_vec();
        framed.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
        for part in [&b"first "[..], b"second"] {
            let block = compress(Compression::Snappy, part).unwrap();
            framed.extend_from_slice(&(block.len() as u32).to_be_bytes());
            framed.extend_from_slice(&block);
        }
        let mut unpacked = Vec::new();
        decompressor(Compression::Snappy, &framed)
            .unwrap()
            .read_to_end(&mut unpacked)
            .unwrap();
        assert_eq!(unpacked, b"first second");
        let cut = &framed[..framed.len() - 1];
        assert!(
            decompressor(Compression::Snappy, cut)
                .unwrap()
                .read_to_end(&mut unpacked)
                .is_err()
        );
    }

    #[test]
    fn a_snappy_block_cannot_claim_what_it_does_not_hold() {
        let claim = [0xff, 0xff, 0xff, 0xff, 0x07, 0];
        let mut unpacked = Vec::new();
        assert!(
            decompressor(Compression::Snappy, &claim)
                .unwrap()
                .read_to_end(&mut unpacked)
                .is_err()
        );
    }
}
