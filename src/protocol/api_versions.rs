//! ApiVersions, versions 0 to 4 (KIP-511, KIP-584): the handshake.
//!
//! Its response always has header version 0, and a request of a version that we do not know is
//! answered in version 0, because nothing newer can be assumed of the client.

use bytes::{BufMut, Bytes};

use super::frame::{RequestHeader, ResponseFrame};
use super::versions::APIS;
use super::wire::{Reader, WireError, Writer};

const FLEXIBLE_FROM: i16 = 3;
pub const VERSION_MAX: i16 = 4;

/// What a client says of itself, from version 3 on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientSoftware {
    pub name: String,
    pub version: String,
}

impl ClientSoftware {
    /// Reads a request's body.
    pub fn decode(body: &[u8], version: i16) -> Result<Self, WireError> {
        if version < FLEXIBLE_FROM {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(body);
        let name = reader.read_string(true)?.to_owned();
        let software = Self {
            name,
            version: reader.read_string(true)?.to_owned(),
        };
        reader.skip_tagged_fields(true)?;
        Ok(software)
    }

    /// Whether both are made of letters, digits, dots and hyphens and start and end with a letter
    /// or digit, as KIP-511 demands from version 3 on.
    pub fn is_valid(&self) -> bool {
        [&self.name, &self.version].into_iter().all(|text| {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = text.as_bytes();
            edge(bytes.first())
                && edge(bytes.last())
                && bytes
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(byte))
        })
    }
}

/// Writes the whole response frame. With an error, an older client still learns the ranges.
pub fn encode_response(request: &RequestHeader, error_code: i16) -> Bytes {
    let version = if (0..=VERSION_MAX).contains(&request.api_version) {
        request.api_version
    } else {
        0
    };
    let flexible = version >= FLEXIBLE_FROM;
    let mut frame = ResponseFrame::start(request);
    let buffer = &mut frame.buffer;
    buffer.put_i16(error_code);
    buffer.put_count(APIS.len(), flexible);
    for api in APIS {
        buffer.put_i16(api.key as i16);
        buffer.put_i16(api.advertised_min);
        buffer.put_i16(api.max);
        buffer.put_no_tags(flexible);
    }
    if version >= 1 {
        // Throttle time.
        buffer.put_i32(0);
    }
    // No features are supported or finalized yet, and all fields of features are optional tags.
    buffer.put_no_tags(flexible);
    frame.finish()
}

#[cfg(test)]
mod tests {
    use bytes::Buf;
    use kafka_protocol::messages::ApiVersionsResponse;
    use kafka_protocol::protocol::Decodable;

    use super::*;

    fn header(version: i16) -> RequestHeader {
        RequestHeader {
            api_key: 18,
            api_version: version,
            correlation_id: 1,
            client_id: None,
            body_start: 0,
        }
    }

    #[test]
    fn every_version_lists_every_api_and_an_unknown_one_is_answered_in_version_0() {
        for (version, read_as) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (77, 0), (-1, 0)] {
            let mut bytes = encode_response(&header(version), 35);
            assert_eq!(bytes.get_i32() as usize, bytes.len());
            assert_eq!(bytes.get_i32(), 1);
            let response = ApiVersionsResponse::decode(&mut bytes, read_as).unwrap();
            assert!(bytes.is_empty(), "version {version}");
            assert_eq!(response.api_keys.len(), APIS.len());
            assert_eq!(response.error_code, 35);
        }
    }

    #[test]
    fn client_names_follow_the_rules() {
        let valid = |name: &str, version: &str| {
            ClientSoftware {
                name: name.to_owned(),
                version: version.to_owned(),
            }
            .is_valid()
        };
        assert!(valid("apache-kafka-java", "4.1.0"));
        assert!(!valid("", "1"));
        assert!(!valid("-java", "1"));
        assert!(!valid("ja va", "1"));
    }
}
