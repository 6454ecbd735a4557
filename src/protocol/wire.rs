//! Primitive types of the protocol, read from foreign bytes and written to a buffer
//! (Kafka protocol guide, "protocol primitive types"; big-endian throughout).

use bytes::{BufMut, BytesMut};
use uuid::Uuid;

use crate::base::limits::REQUEST_ELEMENTS_MAX;

/// Foreign bytes that do not form what they should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the request ends at byte {at} where {wanted} more bytes are needed")]
    Truncated { at: usize, wanted: usize },
    #[error("a length or count of {value} at byte {at} is not allowed there")]
    Length { at: usize, value: i64 },
    #[error(
        "a count of {count} at byte {at} is more than the {remaining} bytes behind it can hold"
    )]
    Count {
        at: usize,
        count: usize,
        remaining: usize,
    },
    #[error(
        "the arrays of one request have more than {REQUEST_ELEMENTS_MAX} elements; ask for less at a time"
    )]
    Elements,
    #[error("text at byte {at} is not UTF-8")]
    Text { at: usize },
    #[error("a variable-length number at byte {at} does not end")]
    Varint { at: usize },
}

/// Reads primitives from the front of a slice. Errors leave the position unspecified.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    elements: usize,
}

macro_rules! read_number {
    ($($name:ident -> $type:ty),*) => {$(
        pub fn $name(&mut self) -> Result<$type, WireError> {
            const LEN: usize = size_of::<$type>();
            let mut number = [0; LEN];
            number.copy_from_slice(self.take(LEN)?);
            Ok(<$type>::from_be_bytes(number))
        }
    )*};
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            elements: 0,
        }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..len).ok_or(WireError::Truncated {
            at: self.at,
            wanted: len,
        })?;
        self.at += len;
        Ok(taken)
    }

    read_number!(read_u8 -> u8, read_i8 -> i8, read_i16 -> i16, read_u16 -> u16, read_i32 -> i32, read_u32 -> u32, read_i64 -> i64, read_u64 -> u64);

    pub fn read_bool(&mut self) -> Result<bool, WireError> {
        Ok(self.read_i8()? != 0)
    }

    pub fn read_uuid(&mut self) -> Result<Uuid, WireError> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(self.take(16)?);
        Ok(Uuid::from_bytes(bytes))
    }

    /// UNSIGNED_VARINT: seven bits a byte, least significant first, at most five bytes.
    pub fn read_unsigned_varint(&mut self) -> Result<u32, WireError> {
        let start = self.at;
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Varint { at: start })
    }

    /// VARLONG: zigzag, at most ten bytes.
    pub fn read_varlong(&mut self) -> Result<i64, WireError> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(WireError::Varint { at: start })
    }

    /// VARINT: zigzag, at most five bytes.
    pub fn read_varint(&mut self) -> Result<i32, WireError> {
        let value = self.read_unsigned_varint()?;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    /// The length of a string, byte string or array in either form; `None` is null.
    fn read_length(&mut self, form: LengthForm) -> Result<Option<usize>, WireError> {
        let at = self.at;
        let length = match form {
            LengthForm::Compact => i64::from(self.read_unsigned_varint()?) - 1,
            LengthForm::Short => i64::from(self.read_i16()?),
            LengthForm::Long => i64::from(self.read_i32()?),
        };
        match length {
            -1 => Ok(None),
            0.. => Ok(Some(length as usize)),
            _ => Err(WireError::Length { at, value: length }),
        }
    }

    /// NULLABLE_STRING, or COMPACT_NULLABLE_STRING where `flexible`.
    pub fn read_nullable_string(&mut self, flexible: bool) -> Result<Option<&'a str>, WireError> {
        let form = if flexible {
            LengthForm::Compact
        } else {
            LengthForm::Short
        };
        let Some(len) = self.read_length(form)? else {
            return Ok(None);
        };
        let at = self.at;
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| WireError::Text { at })?;
        Ok(Some(text))
    }

    /// STRING, or COMPACT_STRING where `flexible`: null is an error.
    pub fn read_string(&mut self, flexible: bool) -> Result<&'a str, WireError> {
        let at = self.at;
        self.read_nullable_string(flexible)?
            .ok_or(WireError::Length { at, value: -1 })
    }

    /// The length of NULLABLE_BYTES or RECORDS (compact where `flexible`), which must follow.
    pub fn read_bytes_length(&mut self, flexible: bool) -> Result<Option<usize>, WireError> {
        let form = if flexible {
            LengthForm::Compact
        } else {
            LengthForm::Long
        };
        let length = self.read_length(form)?;
        match length {
            Some(len) if len > self.remaining() => Err(WireError::Truncated {
                at: self.at,
                wanted: len,
            }),
            _ => Ok(length),
        }
    }

    /// The count of an array whose elements take `element_bytes_min` bytes or more each; `None` is
    /// null. A count that the remaining bytes cannot hold is an error, so it is safe to reserve.
    pub fn read_nullable_count(
        &mut self,
        flexible: bool,
        element_bytes_min: usize,
    ) -> Result<Option<usize>, WireError> {
        let at = self.at;
        let form = if flexible {
            LengthForm::Compact
        } else {
            LengthForm::Long
        };
        let Some(count) = self.read_length(form)? else {
            return Ok(None);
        };
        let remaining = self.remaining();
        if count.saturating_mul(element_bytes_min.max(1)) > remaining {
            return Err(WireError::Count {
                at,
                count,
                remaining,
            });
        }
        self.count_elements(count)?;
        Ok(Some(count))
    }

    fn count_elements(&mut self, count: usize) -> Result<(), WireError> {
        self.elements = self.elements.saturating_add(count);
        if self.elements > REQUEST_ELEMENTS_MAX {
            return Err(WireError::Elements);
        }
        Ok(())
    }

    /// Like [`Reader::read_nullable_count`]; null counts as empty, as Kafka reads it.
    pub fn read_count(
        &mut self,
        flexible: bool,
        element_bytes_min: usize,
    ) -> Result<usize, WireError> {
        Ok(self
            .read_nullable_count(flexible, element_bytes_min)?
            .unwrap_or(0))
    }

    /// Tagged fields (KIP-482): each one's tag and bytes. Unknown ones are for the caller to skip.
    pub fn read_tagged_fields(
        &mut self,
        flexible: bool,
        mut each: impl FnMut(u32, Reader<'a>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        if !flexible {
            return Ok(());
        }
        let count = self.read_unsigned_varint()?;
        // The codec keeps each unknown one in a map: they count as elements do.
        self.count_elements(count as usize)?;
        for _ in 0..count {
            let tag = self.read_unsigned_varint()?;
            let len = self.read_unsigned_varint()? as usize;
            each(tag, Reader::new(self.take(len)?))?;
        }
        Ok(())
    }

    pub fn skip_tagged_fields(&mut self, flexible: bool) -> Result<(), WireError> {
        self.read_tagged_fields(flexible, |_, _| Ok(()))
    }
}

#[derive(Clone, Copy)]
enum LengthForm {
    Compact,
    Short,
    Long,
}

/// Writes primitives to the end of a buffer.
pub trait Writer {
    fn put_unsigned_varint(&mut self, value: u32);
    fn put_varlong(&mut self, value: i64);
    fn put_varint(&mut self, value: i32);
    /// STRING, or COMPACT_STRING where `flexible`. Text beyond the type's limit is cut: only our own
    /// messages can be so long.
    fn put_string(&mut self, text: &str, flexible: bool);
    fn put_nullable_string(&mut self, text: Option<&str>, flexible: bool);
    /// The count of an array.
    fn put_count(&mut self, count: usize, flexible: bool);
    /// An empty set of tagged fields.
    fn put_no_tags(&mut self, flexible: bool);
}

impl Writer for BytesMut {
    fn put_unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }

    fn put_varlong(&mut self, value: i64) {
        let mut zigzag = (value << 1 ^ value >> 63) as u64;
        while zigzag >= 0x80 {
            self.put_u8(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        self.put_u8(zigzag as u8);
    }

    fn put_varint(&mut self, value: i32) {
        self.put_unsigned_varint((value << 1 ^ value >> 31) as u32);
    }

    fn put_string(&mut self, text: &str, flexible: bool) {
        let text = &text[..text.floor_char_boundary(i16::MAX as usize)];
        if flexible {
            self.put_unsigned_varint(text.len() as u32 + 1);
        } else {
            self.put_i16(text.len() as i16);
        }
        self.put_slice(text.as_bytes());
    }

    fn put_nullable_string(&mut self, text: Option<&str>, flexible: bool) {
        match text {
            Some(text) => self.put_string(text, flexible),
            None if flexible => self.put_unsigned_varint(0),
            None => self.put_i16(-1),
        }
    }

    fn put_count(&mut self, count: usize, flexible: bool) {
        if flexible {
            self.put_unsigned_varint(count as u32 + 1);
        } else {
            self.put_i32(count as i32);
        }
    }

    fn put_no_tags(&mut self, flexible: bool) {
        if flexible {
            self.put_u8(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_of_variable_length_come_back(value: i64, small: i32) {
            let mut buffer = BytesMut::new();
            buffer.put_varlong(value);
            buffer.put_varint(small);
            buffer.put_unsigned_varint(small as u32);
            let mut reader = Reader::new(&buffer);
            prop_assert_eq!(reader.read_varlong(), Ok(value));
            prop_assert_eq!(reader.read_varint(), Ok(small));
            prop_assert_eq!(reader.read_unsigned_varint(), Ok(small as u32));
            prop_assert_eq!(reader.remaining(), 0);
        }

        #[test]
        fn text_comes_back_in_both_forms(text in ".{0,40}", flexible: bool) {
            let mut buffer = BytesMut::new();
            buffer.put_nullable_string(Some(&text), flexible);
            buffer.put_nullable_string(None, flexible);
            let mut reader = Reader::new(&buffer);
            prop_assert_eq!(reader.read_nullable_string(flexible), Ok(Some(text.as_str())));
            prop_assert_eq!(reader.read_nullable_string(flexible), Ok(None));
        }

        #[test]
        fn no_foreign_bytes_make_a_reader_panic(bytes: Vec<u8>, flexible: bool) {
            let mut reader = Reader::new(&bytes);
            let _ = reader.read_nullable_string(flexible);
            let _ = reader.read_count(flexible, 3);
            let _ = reader.read_varlong();
            let _ = reader.skip_tagged_fields(flexible);
            let _ = reader.read_bytes_length(flexible);
        }
    }

    #[test]
    fn a_count_beyond_the_remaining_bytes_is_refused() {
        let bytes = [0x7f, 0xff, 0xff, 0xff, 0, 0];
        let error = WireError::Count {
            at: 0,
            count: 0x7fff_ffff,
            remaining: 2,
        };
        assert_eq!(Reader::new(&bytes).read_count(false, 1), Err(error));
    }
}
