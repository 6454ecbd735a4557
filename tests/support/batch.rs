//! Record batches (magic 2) made and read by hand, so that a test decides every field and no
//! codec of the broker's judges itself.
//!
//! ```text
//! base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4
//! | base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4
//! | count 4 | records
//! ```

use std::io::{Read, Write};

use bytes::{Buf, BufMut, Bytes, BytesMut};

pub const HEADER_BYTES: usize = 61;
/// Where the checksummed part begins.
const ATTRIBUTES_AT: usize = 21;

pub const NONE: i16 = 0;
pub const GZIP: i16 = 1;
pub const SNAPPY: i16 = 2;
pub const LZ4: i16 = 3;
pub const ZSTD: i16 = 4;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    pub offset_delta: i64,
    pub timestamp_delta: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
}

/// A batch to be sent. `build` computes what is `None`.
#[derive(Debug, Clone)]
pub struct Batch {
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub magic: i8,
    pub attributes: i16,
    pub base_timestamp_ms: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records: Vec<Record>,
    pub length: Option<i32>,
    pub crc: Option<u32>,
    pub last_offset_delta: Option<i32>,
    pub max_timestamp_ms: Option<i64>,
    pub count: Option<i32>,
}

impl Batch {
    /// Records with these values, offset deltas 0, 1, 2, … and keys of their own.
    pub fn of(values: &[&str]) -> Self {
        let records = values
            .iter()
            .enumerate()
            .map(|(index, value)| Record {
                offset_delta: index as i64,
                timestamp_delta: index as i64,
                key: Some(Bytes::from(format!("key-{index}"))),
                value: Some(Bytes::copy_from_slice(value.as_bytes())),
            })
            .collect();
        Self::with_records(records)
    }

    /// `count` records of `value_bytes` each.
    pub fn sized(count: usize, value_bytes: usize) -> Self {
        let value = "x".repeat(value_bytes);
        Self::of(&vec![value.as_str(); count])
    }

    pub fn with_records(records: Vec<Record>) -> Self {
        Self {
            base_offset: 0,
            leader_epoch: -1,
            magic: 2,
            attributes: NONE,
            base_timestamp_ms: 1_700_000_000_000,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records,
            length: None,
            crc: None,
            last_offset_delta: None,
            max_timestamp_ms: None,
            count: None,
        }
    }

    pub fn without_keys(mut self) -> Self {
        for record in &mut self.records {
            record.key = None;
        }
        self
    }

    pub fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = sequence;
        self
    }

    pub fn timestamp(mut self, base_ms: i64) -> Self {
        self.base_timestamp_ms = base_ms;
        self
    }

    pub fn compression(mut self, codec: i16) -> Self {
        self.attributes = self.attributes & !7 | codec;
        self
    }

    pub fn build(&self) -> Bytes {
        let mut records = Vec::new();
        for record in &self.records {
            put_record(&mut records, record);
        }
        let records = compress(self.attributes & 7, &records);
        let last = self.records.len() as i32 - 1;
        let newest = self.records.iter().map(|record| record.timestamp_delta);
        let mut bytes = BytesMut::new();
        bytes.put_i64(self.base_offset);
        let length = (HEADER_BYTES - 12 + records.len()) as i32;
        bytes.put_i32(self.length.unwrap_or(length));
        bytes.put_i32(self.leader_epoch);
        bytes.put_i8(self.magic);
        bytes.put_u32(0);
        bytes.put_i16(self.attributes);
        bytes.put_i32(self.last_offset_delta.unwrap_or(last));
        bytes.put_i64(self.base_timestamp_ms);
        let newest_ms = self.base_timestamp_ms + newest.max().unwrap_or(0);
        bytes.put_i64(self.max_timestamp_ms.unwrap_or(newest_ms));
        bytes.put_i64(self.producer_id);
        bytes.put_i16(self.producer_epoch);
        bytes.put_i32(self.base_sequence);
        bytes.put_i32(self.count.unwrap_or(self.records.len() as i32));
        bytes.put_slice(&records);
        let crc = self
            .crc
            .unwrap_or_else(|| crc32c::crc32c(&bytes[ATTRIBUTES_AT..]));
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes.freeze()
    }
}

fn put_record(bytes: &mut Vec<u8>, record: &Record) {
    let mut body = vec![0]; // attributes
    put_varint(&mut body, record.timestamp_delta);
    put_varint(&mut body, record.offset_delta);
    for field in [&record.key, &record.value] {
        match field {
            Some(field) => {
                put_varint(&mut body, field.len() as i64);
                body.extend_from_slice(field);
            }
            None => put_varint(&mut body, -1),
        }
    }
    put_varint(&mut body, 0); // headers
    put_varint(bytes, body.len() as i64);
    bytes.extend_from_slice(&body);
}

fn put_varint(bytes: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn get_varint(bytes: &mut Bytes) -> i64 {
    let mut value = 0u64;
    let mut shift = 0;
    loop {
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (value >> 1) as i64 ^ -((value & 1) as i64);
        }
        shift += 7;
    }
}

fn compress(codec: i16, plain: &[u8]) -> Vec<u8> {
    match codec {
        NONE => plain.to_vec(),
        GZIP => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(plain).expect("gzip");
            encoder.finish().expect("gzip")
        }
        SNAPPY => snap::raw::Encoder::new()
            .compress_vec(plain)
            .expect("snappy"),
        LZ4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(plain).expect("lz4");
            encoder.finish().expect("lz4")
        }
        ZSTD => zstd::encode_all(plain, 0).expect("zstd"),
        other => panic!("compression {other}"),
    }
}

fn decompress(codec: i16, packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match codec {
        NONE => plain.extend_from_slice(packed),
        GZIP => {
            flate2::read::GzDecoder::new(packed)
                .read_to_end(&mut plain)
                .expect("gzip");
        }
        SNAPPY => {
            plain = snap::raw::Decoder::new()
                .decompress_vec(packed)
                .expect("snappy")
        }
        LZ4 => {
            lz4_flex::frame::FrameDecoder::new(packed)
                .read_to_end(&mut plain)
                .expect("lz4");
        }
        ZSTD => plain = zstd::decode_all(packed).expect("zstd"),
        other => panic!("compression {other}"),
    }
    plain
}

/// A batch as it came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp_ms: i64,
    pub max_timestamp_ms: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records: Vec<Record>,
    /// Header and records as on the wire.
    pub bytes: Bytes,
}

impl Received {
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    pub fn values(&self) -> Vec<String> {
        let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
        let values = self
            .records
            .iter()
            .filter_map(|record| record.value.as_ref());
        values.map(text).collect()
    }
}

/// The whole batches of a fetch response, checksums checked; a cut last one is left out, as every
/// client does.
pub fn read_batches(mut bytes: Bytes) -> Vec<Received> {
    let mut batches = Vec::new();
    while bytes.len() >= HEADER_BYTES {
        let length = i32::from_be_bytes(bytes[8..12].try_into().unwrap());
        let whole = 12 + usize::try_from(length).expect("a length above 0");
        if bytes.len() < whole {
            break;
        }
        batches.push(read_batch(bytes.split_to(whole)));
    }
    batches
}

fn read_batch(bytes: Bytes) -> Received {
    let mut rest = bytes.clone();
    let base_offset = rest.get_i64();
    let _length = rest.get_i32();
    let leader_epoch = rest.get_i32();
    assert_eq!(rest.get_i8(), 2, "magic");
    let crc = rest.get_u32();
    assert_eq!(
        crc,
        crc32c::crc32c(&rest),
        "CRC of the batch at {base_offset}"
    );
    let attributes = rest.get_i16();
    let last_offset_delta = rest.get_i32();
    let base_timestamp_ms = rest.get_i64();
    let max_timestamp_ms = rest.get_i64();
    let producer_id = rest.get_i64();
    let producer_epoch = rest.get_i16();
    let base_sequence = rest.get_i32();
    let count = rest.get_i32();
    let mut plain = Bytes::from(decompress(attributes & 7, &rest));
    let records = (0..count).map(|_| read_record(&mut plain)).collect();
    assert!(plain.is_empty(), "bytes after the last record");
    Received {
        base_offset,
        leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        records,
        bytes,
    }
}

fn read_record(bytes: &mut Bytes) -> Record {
    let length = get_varint(bytes) as usize;
    let mut body = bytes.split_to(length);
    body.get_i8();
    let timestamp_delta = get_varint(&mut body);
    let offset_delta = get_varint(&mut body);
    let mut field = || {
        let length = get_varint(&mut body);
        (length >= 0).then(|| body.split_to(length as usize))
    };
    let key = field();
    let value = field();
    Record {
        offset_delta,
        timestamp_delta,
        key,
        value,
    }
}
