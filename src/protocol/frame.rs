//! Request headers in, response frames out.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::Encodable;

use super::versions;
use super::wire::{Reader, WireError, Writer};

/// The header of a request (versions 1 and 2), read from the front of its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<String>,
    /// Where the body starts, in bytes from the start of the frame.
    pub body_start: usize,
}

impl RequestHeader {
    /// Which header version a request has depends on its key and version; for a key that is not
    /// Kafka's, version 1 is assumed.
    pub fn parse(frame: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame);
        let api_key = reader.read_i16()?;
        let api_version = reader.read_i16()?;
        let correlation_id = reader.read_i32()?;
        let client_id = reader.read_nullable_string(false)?.map(str::to_owned);
        reader.skip_tagged_fields(versions::request_header_is_flexible(api_key, api_version))?;
        Ok(Self {
            api_key,
            api_version,
            correlation_id,
            client_id,
            body_start: reader.position(),
        })
    }
}

/// A response frame that is being written: length (patched at the end), header, then the body.
#[derive(Debug)]
pub struct ResponseFrame {
    pub buffer: BytesMut,
}

impl ResponseFrame {
    pub fn start(request: &RequestHeader) -> Self {
        let mut buffer = BytesMut::with_capacity(256);
        buffer.put_i32(0);
        buffer.put_i32(request.correlation_id);
        let flexible = versions::response_header_is_flexible(request.api_key, request.api_version);
        buffer.put_no_tags(flexible);
        Self { buffer }
    }

    /// The frame, complete in memory.
    pub fn finish(self) -> Bytes {
        self.finish_with(0)
    }

    /// The frame's start, where `bytes_beside` more bytes of the frame are sent from elsewhere.
    pub fn finish_with(mut self, bytes_beside: usize) -> Bytes {
        patch_length(&mut self.buffer, bytes_beside);
        self.buffer.freeze()
    }
}

/// Writes the frame's length over its first four bytes.
pub fn patch_length(buffer: &mut BytesMut, bytes_beside: usize) {
    let len = buffer.len() - 4 + bytes_beside;
    // Fetches are limited far below 2 GiB, and nothing else is as large.
    let len = i32::try_from(len).unwrap_or(i32::MAX);
    buffer[..4].copy_from_slice(&len.to_be_bytes());
}

/// Encodes a message of the crate `kafka-protocol` as the response to `request`. Fails only on a
/// field that the version cannot hold: a defect of ours, which the caller logs.
pub fn encode_response(
    request: &RequestHeader,
    response: &impl Encodable,
) -> Result<Bytes, String> {
    let mut frame = ResponseFrame::start(request);
    response
        .encode(&mut frame.buffer, request.api_version)
        .map_err(|error| error.to_string())?;
    Ok(frame.finish())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flexible_header_skips_tags_that_it_does_not_know() {
        let mut frame = BytesMut::new();
        frame.put_i16(3);
        frame.put_i16(12);
        frame.put_i32(7);
        frame.put_i16(2);
        frame.put_slice(b"me");
        frame.put_slice(&[1, 9, 2, 0xaa, 0xbb]);
        frame.put_slice(b"body");
        let header = RequestHeader::parse(&frame).unwrap();
        assert_eq!(header.client_id.as_deref(), Some("me"));
        assert_eq!(&frame[header.body_start..], b"body");
    }

    proptest! {
        #[test]
        fn no_frame_makes_the_header_parser_panic(frame: Vec<u8>) {
            let _ = RequestHeader::parse(&frame);
        }
    }
}
