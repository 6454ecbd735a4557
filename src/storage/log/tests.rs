//! Tests of the log, on the real disk and on the simulated one.

mod crash;
mod node;
mod real;
mod recovery;
mod running;
mod seeds;
mod simulated;
mod unreadable;

use bytes::Bytes;

use super::*;
use crate::base::LeaderEpoch;
use crate::io::disk::{DiskFile, Extent};
use crate::storage::BatchView;
use crate::storage::batch_view::testing::batch;

/// What a test knows of the batch at `base`: its bytes follow from its place.
fn batch_at(base: Offset, records: i32, payload_bytes: usize) -> AppendBatch {
    let timestamp = TimestampMs(1_000_000 + base.0);
    let bytes = Bytes::from(batch(
        base,
        records,
        payload_bytes,
        timestamp,
        base.0 as u64,
    ));
    AppendBatch {
        bytes,
        base_offset: base,
        last_offset: base.plus(i64::from(records) - 1),
        max_timestamp: timestamp,
        leader_epoch: LeaderEpoch(7),
    }
}

/// The bytes of all extents.
async fn bytes_of<F: DiskFile>(outcome: &ReadOutcome<F::Shared>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for extent in &outcome.extents {
        match extent {
            Extent::Memory(memory) => bytes.extend_from_slice(memory),
            Extent::File {
                file,
                position,
                len,
            } => {
                let file = F::from_shared(file)?;
                bytes.extend_from_slice(&file.read_at(*position, *len as usize).await?);
            }
        }
    }
    assert_eq!(bytes.len() as u64, outcome.len);
    Ok(bytes)
}

/// Reads everything from the log's start on, checks every batch, and returns the end.
async fn read_through<D: Disk, S: DerivedState>(log: &Log<D, S>, max_bytes: u64) -> Offset {
    let mut offset = log.log_start_offset();
    let end = log.durable_offset();
    let mut is_first = true;
    while offset < end {
        let outcome = log.read(offset, max_bytes, end, true).await.unwrap();
        let bytes = bytes_of::<D::File>(&outcome).await.unwrap();
        let mut rest = &bytes[..];
        assert!(!rest.is_empty(), "nothing at {offset}");
        while !rest.is_empty() {
            let found = BatchView::whole(rest).unwrap();
            if is_first {
                assert!(found.base_offset() <= offset);
                is_first = false;
            } else {
                assert_eq!(found.base_offset(), offset);
            }
            let records = (found.last_offset().0 - found.base_offset().0 + 1) as i32;
            let payload = found.len() - crate::base::limits::BATCH_HEADER_BYTES;
            let expected = batch_at(found.base_offset(), records, payload);
            assert!(
                rest[..found.len()] == expected.bytes[..],
                "batch at {offset}"
            );
            offset = found.last_offset().next();
            rest = &rest[found.len()..];
        }
    }
    assert_eq!(offset, end);
    end
}

/// Appends and applies nothing: for logs without derived state.
fn append<D: Disk>(log: &Log<D, ()>, records: i32, payload_bytes: usize) -> Offset {
    let batch = batch_at(log.log_end_offset(), records, payload_bytes);
    let end = batch.last_offset.next();
    log.append(batch, TimestampMs(1_000)).unwrap();
    end
}

/// State whose every change shows: what a log's batches were, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Trace {
    batches: u64,
    hash: u64,
    /// Where it ends; nothing before the first batch.
    end: Option<Offset>,
    /// Replayed batches that did not follow.
    gaps: u64,
}

impl Trace {
    fn apply(&mut self, base: Offset, last: Offset) {
        self.gaps += u64::from(self.end.is_some_and(|end| end != base));
        self.batches += 1;
        self.hash = self.hash.wrapping_mul(0x0100_0000_01b3) ^ (base.0 as u64 + 1);
        self.end = Some(last.next());
    }
}

impl DerivedState for Trace {
    fn encode_snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [
            self.batches,
            self.hash,
            self.end.map_or(u64::MAX, |end| end.0 as u64),
            self.gaps,
        ] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        let (body, checksum) = snapshot.split_last_chunk::<4>().ok_or("it is too short")?;
        if crc32c::crc32c(body) != u32::from_be_bytes(*checksum) || body.len() != 32 {
            return Err("its checksum does not match".to_owned());
        }
        let number = |nth: usize| u64::from_be_bytes(body[nth * 8..][..8].try_into().unwrap());
        *self = Self {
            batches: number(0),
            hash: number(1),
            end: (number(2) != u64::MAX).then_some(Offset(number(2) as i64)),
            gaps: number(3),
        };
        Ok(())
    }

    fn replay(&mut self, batch: &BatchView<'_>) {
        self.apply(batch.base_offset(), batch.last_offset());
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
