//! Produce requests that are encoded once and sent many times, and the reading of their responses.

use std::io::{self, IoSlice, Write};
use std::ops::Range;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;

use crate::client::ConnectOptions;
use crate::client::error::error_name;
use crate::protocol::frame::patch_length;
use crate::protocol::wire::{Reader, WireError, Writer};

/// The versions of Produce that name topics by name.
pub const PRODUCE_VERSIONS: (i16, i16) = (3, 12);

/// What the broker shows of us.
const CLIENT_ID: &str = "ringmain-bench";

/// The longest wait for a connection or an ordinary answer: a topic of thousands of partitions
/// takes a busy broker more than the client's own default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How the load generator connects.
pub fn connect_options() -> ConnectOptions {
    ConnectOptions {
        timeout: CONNECT_TIMEOUT,
        client_id: CLIENT_ID.to_owned(),
    }
}

/// Where the correlation id lies: behind length, key and version.
const CORRELATION_ID: Range<usize> = 8..12;

/// What a request says beside its batches.
#[derive(Debug, Clone)]
pub struct ProduceShape<'a> {
    pub version: i16,
    pub acks: i16,
    pub timeout_ms: i32,
    pub topic: &'a str,
}

/// One request: small pieces of its own, with the shared batch between them.
///
/// ```text
/// frame  | header, topic, partition 3, length | batch | partition 4, length | batch | tags |
/// own    | 0 .............................. a |       | a ............... b |       | b  c |
/// ```
#[derive(Debug)]
pub struct ProduceRequest {
    own: Vec<u8>,
    /// Ends of the own pieces; the batch follows each but the last.
    ends: Vec<usize>,
    batch: Bytes,
    total_bytes: usize,
}

impl ProduceRequest {
    /// Encodes everything but the batch, which goes to each of the partitions.
    pub fn new(shape: &ProduceShape<'_>, partitions: &[i32], batch: &Bytes) -> Self {
        let flexible = shape.version >= 9;
        let mut own = BytesMut::new();
        let mut ends = Vec::with_capacity(partitions.len() + 1);
        own.put_i32(0);
        put_header(&mut own, ApiKey::Produce, shape.version, flexible);
        own.put_nullable_string(None, flexible); // transactional id
        own.put_i16(shape.acks);
        own.put_i32(shape.timeout_ms);
        own.put_count(1, flexible);
        own.put_string(shape.topic, flexible);
        own.put_count(partitions.len(), flexible);
        for (position, partition) in partitions.iter().enumerate() {
            if position > 0 {
                own.put_no_tags(flexible);
            }
            own.put_i32(*partition);
            own.put_count(batch.len(), flexible); // a byte string's length has the same form
            ends.push(own.len());
        }
        own.put_no_tags(flexible); // of the last partition
        own.put_no_tags(flexible); // of the topic
        own.put_no_tags(flexible); // of the request
        ends.push(own.len());
        let batch_bytes = batch.len() * partitions.len();
        patch_length(&mut own, batch_bytes);
        Self {
            total_bytes: own.len() + batch_bytes,
            own: own.to_vec(),
            ends,
            batch: batch.clone(),
        }
    }

    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    pub fn set_correlation_id(&mut self, id: i32) {
        self.own[CORRELATION_ID].copy_from_slice(&id.to_be_bytes());
    }

    /// Writes from `sent` bytes on, in one call where the system takes all; gives the new `sent`.
    pub fn write_from(&self, sent: usize, out: &mut impl Write) -> io::Result<usize> {
        const PIECES_MAX: usize = 64;
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        let mut skip = sent;
        let mut start = 0;
        for (position, end) in self.ends.iter().enumerate() {
            let is_last = position + 1 == self.ends.len();
            let batch: &[u8] = if is_last { &[] } else { &self.batch };
            for piece in [&self.own[start..*end], batch] {
                if skip >= piece.len() {
                    skip -= piece.len();
                } else if count < PIECES_MAX {
                    slices[count] = IoSlice::new(&piece[skip..]);
                    skip = 0;
                    count += 1;
                }
            }
            start = *end;
        }
        match out.write_vectored(&slices[..count])? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(sent + written),
        }
    }
}

/// Request header version 1, or 2 where `flexible`; the correlation id is 0.
pub fn put_header(buffer: &mut BytesMut, api: ApiKey, version: i16, flexible: bool) {
    buffer.put_i16(api as i16);
    buffer.put_i16(version);
    buffer.put_i32(0);
    buffer.put_string(CLIENT_ID, false);
    buffer.put_no_tags(flexible);
}

/// What a response frame (without its length) says.
#[derive(Debug, PartialEq, Eq)]
pub struct ProduceAnswer {
    pub correlation_id: i32,
    /// The first partition that was refused, and why.
    pub refusal: Option<String>,
}

/// Reads a response of versions 3 to 12.
pub fn read_produce_response(frame: &[u8], version: i16) -> Result<ProduceAnswer, WireError> {
    let flexible = version >= 9;
    let mut reader = Reader::new(frame);
    let mut answer = ProduceAnswer {
        correlation_id: reader.read_i32()?,
        refusal: None,
    };
    reader.skip_tagged_fields(flexible)?;
    for _ in 0..reader.read_count(flexible, 2)? {
        let topic = reader.read_string(flexible)?;
        for _ in 0..reader.read_count(flexible, 22)? {
            let partition = reader.read_i32()?;
            let code = reader.read_i16()?;
            reader.read_i64()?; // base offset
            reader.read_i64()?; // log append time
            if version >= 5 {
                reader.read_i64()?; // log start offset
            }
            let mut message = None;
            if version >= 8 {
                for _ in 0..reader.read_count(flexible, 6)? {
                    reader.read_i32()?;
                    reader.read_nullable_string(flexible)?;
                    reader.skip_tagged_fields(flexible)?;
                }
                message = reader.read_nullable_string(flexible)?;
            }
            reader.skip_tagged_fields(flexible)?;
            if code != 0 && answer.refusal.is_none() {
                let name = error_name(code);
                let message = message.map_or_else(String::new, |text| format!(": {text}"));
                answer.refusal = Some(format!(
                    "the broker refused a batch for partition {partition} of `{topic}`: {name} (error {code}){message}"
                ));
            }
        }
        reader.skip_tagged_fields(flexible)?;
    }
    Ok(answer)
}
