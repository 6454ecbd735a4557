//! Inside a batch: what Kafka checks of the records that a client sends (its `LogValidator`), and
//! look-ups by time.

use std::io::{self, BufRead, BufReader};

use super::batch::{BatchError, BatchHeader, Compression};
use super::compression::decompressor;
use crate::base::limits::BATCH_HEADER_BYTES;
use crate::base::{Offset, TimestampMs};

/// What a topic demands of records.
#[derive(Debug, Clone, Copy)]
pub struct ValidationRules {
    /// Version of the Produce request: zstd needs 7 (KIP-110).
    pub produce_version: i16,
    /// `max.message.bytes`: of a whole batch.
    pub batch_bytes_max: usize,
    /// Whether every record needs a key (`cleanup.policy` contains `compact`).
    pub keys_required: bool,
    /// `message.timestamp.type=LogAppendTime`: records' own timestamps do not count.
    pub log_append_time: bool,
    /// `message.timestamp.before.max.ms`, `message.timestamp.after.max.ms`.
    pub timestamp_before_ms_max: i64,
    pub timestamp_after_ms_max: i64,
    pub now: TimestampMs,
}

/// Why records are refused. The broker has a code for each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("{0}")]
    Invalid(String),
    #[error("the record batch has {bytes} bytes, but max.message.bytes is {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    #[error("compression {0} is not supported in this version of the Produce request")]
    UnsupportedCompression(i16),
    /// Single records are wrong.
    #[error("{message}")]
    Records {
        message: String,
        records: Vec<RecordError>,
        invalid_timestamp: bool,
    },
}

/// What is wrong with one record (KIP-467).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// The record's place in its batch, from 0.
    pub batch_index: i32,
    pub message: &'static str,
}

/// What the validation learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidBatch {
    pub header: BatchHeader,
    /// The greatest timestamp of the records, and the place in the batch of the first that has it.
    pub max_timestamp: TimestampMs,
    pub max_timestamp_delta: i32,
}

/// The most single errors that a reply lists.
const RECORD_ERRORS_MAX: usize = 100;

/// Checks the records of one partition in a Produce request: exactly one sound batch of magic 2.
pub fn validate(records: &[u8], rules: &ValidationRules) -> Result<ValidBatch, RecordsError> {
    let invalid = |text: &str| RecordsError::Invalid(text.to_owned());
    if records.is_empty() {
        return Err(invalid(
            "Produce requests must have at least one record batch per partition",
        ));
    }
    let header = match BatchHeader::parse(records) {
        // Formats that once were have their own word; what never was is damage.
        Err(BatchError::Magic {
            magic: magic @ 0..=1,
        }) => {
            return Err(RecordsError::Invalid(format!(
                "Produce requests with version {} are only allowed to contain record batches with \
                 magic version 2, not {magic}",
                rules.produce_version
            )));
        }
        Err(error @ BatchError::Short { .. }) => return Err(invalid(&error.to_string())),
        other => other?,
    };
    let available = records.len();
    let total = header.total_bytes;
    if total > available {
        return Err(invalid(
            &BatchError::Incomplete { total, available }.to_string(),
        ));
    }
    if total < available {
        return Err(invalid(
            "Produce requests must have exactly one record batch per partition",
        ));
    }
    let code = header.attributes.0 & 7;
    let compression = header.attributes.compression();
    let unknown = || RecordsError::Invalid(format!("unknown compression type id: {code}"));
    let compression = compression.ok_or_else(unknown)?;
    if compression == Compression::Zstd && rules.produce_version < 7 {
        return Err(RecordsError::UnsupportedCompression(code));
    }
    if header.base_offset != Offset::ZERO {
        return Err(invalid(
            "the base offset of a record batch that is produced must be 0",
        ));
    }
    if total > rules.batch_bytes_max {
        return Err(RecordsError::TooLarge {
            bytes: total,
            bytes_max: rules.batch_bytes_max,
        });
    }
    BatchHeader::parse_checked(records)?;
    check_header(&header).map_err(RecordsError::Invalid)?;
    if header.attributes.is_log_append_time() {
        let message = "producers must not set the timestamp type to LogAppendTime";
        return Err(RecordsError::Records {
            message: message.to_owned(),
            records: vec![RecordError {
                batch_index: 0,
                message,
            }],
            invalid_timestamp: true,
        });
    }
    check_records(&header, compression, &records[BATCH_HEADER_BYTES..], rules)
}

fn check_header(header: &BatchHeader) -> Result<(), String> {
    let count = header.record_count;
    if header.last_offset_delta < 0 {
        return Err("the record batch has an invalid offset range".to_owned());
    }
    if count <= 0 {
        return Err(format!("invalid reported count for record batch: {count}"));
    }
    if i64::from(header.last_offset_delta) + 1 != i64::from(count) {
        return Err(format!(
            "inconsistent batch: its offsets span {} records but it reports {count}",
            i64::from(header.last_offset_delta) + 1
        ));
    }
    if header.attributes.is_control() {
        return Err("clients are not allowed to write control records".to_owned());
    }
    if header.has_producer() && header.base_sequence < 0 {
        return Err(format!(
            "invalid sequence number {} in a record batch with producer id {}",
            header.base_sequence, header.producer_id
        ));
    }
    Ok(())
}

fn check_records(
    header: &BatchHeader,
    compression: Compression,
    bytes: &[u8],
    rules: &ValidationRules,
) -> Result<ValidBatch, RecordsError> {
    let mut checks = RecordChecks {
        rules,
        next_delta: 0,
        max_timestamp: TimestampMs::NONE,
        max_timestamp_delta: 0,
        errors: Vec::new(),
        error_count: 0,
        invalid_timestamp: false,
    };
    let end = for_each_record(header, compression, bytes, |record| checks.check(&record));
    end.map_err(|error| {
        RecordsError::Invalid(format!("the records of a batch are damaged: {error}"))
    })?;
    checks.finish(header)
}

/// The checks of every record, and what they gather.
struct RecordChecks<'a> {
    rules: &'a ValidationRules,
    next_delta: i32,
    max_timestamp: TimestampMs,
    max_timestamp_delta: i32,
    errors: Vec<RecordError>,
    error_count: usize,
    invalid_timestamp: bool,
}

impl RecordChecks<'_> {
    fn check(&mut self, record: &RecordView) {
        if record.offset_delta != self.next_delta {
            self.fail("the record's offset does not follow the one before");
        }
        if self.rules.keys_required && !record.has_key {
            self.fail("Compacted topic cannot accept message without key");
        }
        if !self.rules.log_append_time && !self.is_timestamp_allowed(record.timestamp) {
            self.invalid_timestamp = true;
            self.fail("the record's timestamp is out of range");
        }
        if record.timestamp > self.max_timestamp {
            self.max_timestamp = record.timestamp;
            self.max_timestamp_delta = self.next_delta;
        }
        self.next_delta = self.next_delta.wrapping_add(1);
    }

    fn is_timestamp_allowed(&self, timestamp: TimestampMs) -> bool {
        let TimestampMs(now) = self.rules.now;
        timestamp == TimestampMs::NONE
            || (now.saturating_sub(timestamp.0) <= self.rules.timestamp_before_ms_max
                && timestamp.0.saturating_sub(now) <= self.rules.timestamp_after_ms_max)
    }

    fn fail(&mut self, message: &'static str) {
        self.error_count += 1;
        if self.errors.len() < RECORD_ERRORS_MAX {
            self.errors.push(RecordError {
                batch_index: self.next_delta,
                message,
            });
        }
    }

    fn finish(self, header: &BatchHeader) -> Result<ValidBatch, RecordsError> {
        if self.error_count == 0 {
            return Ok(ValidBatch {
                header: *header,
                max_timestamp: self.max_timestamp,
                max_timestamp_delta: self.max_timestamp_delta,
            });
        }
        let message = if self.invalid_timestamp {
            "One or more records have been rejected due to invalid timestamp".to_owned()
        } else {
            format!(
                "One or more records have been rejected due to {} record errors in total",
                self.error_count
            )
        };
        Err(RecordsError::Records {
            message,
            records: self.errors,
            invalid_timestamp: self.invalid_timestamp,
        })
    }
}

/// What is looked at of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView {
    pub offset_delta: i32,
    pub timestamp: TimestampMs,
    pub has_key: bool,
}

/// Walks the records of a batch, decompressing as it goes. An error names what does not fit; the
/// records before it were visited.
pub fn for_each_record(
    header: &BatchHeader,
    compression: Compression,
    bytes: &[u8],
    mut visit: impl FnMut(RecordView),
) -> io::Result<()> {
    if compression == Compression::None {
        return walk(header, &mut SliceSource(bytes), &mut visit);
    }
    let stream = decompressor(compression, bytes)?;
    walk(header, &mut StreamSource::new(stream), &mut visit)
}

/// The first record of a whole batch that is not older than `timestamp` and not below `from`.
pub fn first_not_older(
    batch: &[u8],
    timestamp: TimestampMs,
    from: Offset,
) -> io::Result<Option<(TimestampMs, Offset)>> {
    let header = BatchHeader::parse_checked(batch).map_err(io::Error::other)?;
    let compression = header.attributes.compression();
    let compression = compression.ok_or_else(|| damaged("a batch has an unknown compression"))?;
    let mut found = None;
    let records = &batch[BATCH_HEADER_BYTES..header.total_bytes];
    for_each_record(&header, compression, records, |record| {
        // With the broker's clock all records of a batch have the batch's time.
        let own = match header.attributes.is_log_append_time() {
            true => header.max_timestamp,
            false => record.timestamp,
        };
        let offset = header.base_offset.plus(i64::from(record.offset_delta));
        if found.is_none() && own >= timestamp && offset >= from {
            found = Some((own, offset));
        }
    })?;
    Ok(found)
}

/// Record: length varint, attributes i8, timestamp delta varlong, offset delta varint, key and
/// value (length varint, -1 is null), count of headers varint, headers (key, value).
fn walk(
    header: &BatchHeader,
    source: &mut impl Source,
    visit: &mut impl FnMut(RecordView),
) -> io::Result<()> {
    for _ in 0..header.record_count {
        let length = source.read_varint()?;
        let length = u64::try_from(length).map_err(|_| damaged("a record's length is negative"))?;
        let start = source.left();
        let [_attributes] = source.read_byte()?;
        let timestamp_delta = source.read_varlong()?;
        let offset_delta = source.read_varint()?;
        let has_key = source.skip_field()?;
        source.skip_field()?;
        let header_count = source.read_varint()?;
        if header_count < 0 {
            return Err(damaged("a record's count of headers is negative"));
        }
        for _ in 0..header_count {
            if !source.skip_field()? {
                return Err(damaged("a record's header has no key"));
            }
            source.skip_field()?;
        }
        if start - source.left() != length {
            return Err(damaged("a record's length is not that of its fields"));
        }
        let timestamp = TimestampMs(header.base_timestamp.0.saturating_add(timestamp_delta));
        visit(RecordView {
            offset_delta,
            timestamp,
            has_key,
        });
    }
    if source.is_at_end()? {
        Ok(())
    } else {
        Err(damaged("bytes follow the last record"))
    }
}

fn damaged(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn cut() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the records end in the middle of one",
    )
}

/// Bytes of records, in memory or streamed.
trait Source {
    fn read_byte(&mut self) -> io::Result<[u8; 1]>;
    fn skip(&mut self, len: u64) -> io::Result<()>;
    /// A number that falls by one for every byte read.
    fn left(&self) -> u64;
    fn is_at_end(&mut self) -> io::Result<bool>;

    fn read_varlong(&mut self) -> io::Result<i64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.read_byte()?;
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(damaged("a variable-length number does not end"))
    }

    fn read_varint(&mut self) -> io::Result<i32> {
        i32::try_from(self.read_varlong()?).map_err(|_| damaged("a number is too large"))
    }

    /// Skips a byte string with its length; false if it is null.
    fn skip_field(&mut self) -> io::Result<bool> {
        let length = self.read_varint()?;
        match u64::try_from(length) {
            Ok(length) => self.skip(length).map(|()| true),
            Err(_) if length == -1 => Ok(false),
            Err(_) => Err(damaged("a field's length is negative")),
        }
    }
}

struct SliceSource<'a>(&'a [u8]);

impl Source for SliceSource<'_> {
    fn read_byte(&mut self) -> io::Result<[u8; 1]> {
        let (byte, rest) = self.0.split_first().ok_or_else(cut)?;
        self.0 = rest;
        Ok([*byte])
    }

    fn skip(&mut self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| cut())?;
        self.0 = self.0.get(len..).ok_or_else(cut)?;
        Ok(())
    }

    fn left(&self) -> u64 {
        self.0.len() as u64
    }

    fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.0.is_empty())
    }
}

/// A stream, with a count of the bytes that were read.
struct StreamSource<R> {
    stream: BufReader<R>,
    read_bytes: u64,
}

impl<R: io::Read> StreamSource<R> {
    fn new(stream: R) -> Self {
        Self {
            stream: BufReader::with_capacity(32 * 1024, stream),
            read_bytes: 0,
        }
    }
}

impl<R: io::Read> Source for StreamSource<R> {
    fn read_byte(&mut self) -> io::Result<[u8; 1]> {
        let byte = *self.stream.fill_buf()?.first().ok_or_else(cut)?;
        self.stream.consume(1);
        self.read_bytes += 1;
        Ok([byte])
    }

    fn skip(&mut self, len: u64) -> io::Result<()> {
        let mut left = len;
        while left > 0 {
            let buffered = self.stream.fill_buf()?.len();
            if buffered == 0 {
                return Err(cut());
            }
            let step = left.min(buffered as u64);
            self.stream.consume(step as usize);
            left -= step;
        }
        self.read_bytes += len;
        Ok(())
    }

    fn left(&self) -> u64 {
        u64::MAX - self.read_bytes
    }

    fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.stream.fill_buf()?.is_empty())
    }
}
