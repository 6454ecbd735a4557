//! One blocking connection to a broker, with the versions that both sides speak.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, RequestHeader};
use kafka_protocol::protocol::{Encodable, StrBytes, encode_request_header_into_buffer};

use super::error::ClientError;
use crate::protocol::versions::response_header_is_flexible;
use crate::protocol::wire::{Reader, WireError};

/// The largest response that is read whole, in bytes: the metadata of about a million partitions.
pub const RESPONSE_BYTES_MAX: usize = 64 << 20;

const UNSUPPORTED_VERSION: i16 = 35;

#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The longest wait for the connection, and then for each response.
    pub timeout: Duration,
    /// Told to the broker, which shows it in its log.
    pub client_id: String,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            client_id: "ringmain".to_owned(),
        }
    }
}

/// A connection that asks one thing at a time.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    address: String,
    options: ConnectOptions,
    versions: BTreeMap<i16, (i16, i16)>,
    next_correlation_id: i32,
}

impl Client {
    /// Connects to `HOST:PORT` and asks which versions the broker speaks: ApiVersions 3, then 0
    /// for a broker that does not know it (KIP-511).
    ///
    /// # Errors
    /// Nothing listens there, or what listens is not a Kafka broker.
    pub fn connect(address: &str, options: &ConnectOptions) -> Result<Self, ClientError> {
        let mut client = Self {
            stream: open(address, options.timeout)?,
            address: address.to_owned(),
            options: options.clone(),
            versions: BTreeMap::new(),
            next_correlation_id: 0,
        };
        match client.learn_versions(3) {
            // Brokers before 0.10 close the connection at what they do not know.
            Err(ClientError::Lost { .. }) => {
                client.stream = open(address, options.timeout)?;
                client.learn_versions(0)?;
            }
            Ok(UNSUPPORTED_VERSION) => {
                client.learn_versions(0)?;
            }
            other => {
                other?;
            }
        }
        Ok(client)
    }

    /// Gives the error code, and keeps the versions if there were any.
    fn learn_versions(&mut self, version: i16) -> Result<i16, ClientError> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("ringmain"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let body = self.call(ApiKey::ApiVersions, version, &request)?;
        let (code, versions) = read_api_versions(&body, version)
            .map_err(|source| self.unreadable(ApiKey::ApiVersions, source))?;
        if code != 0 && (code != UNSUPPORTED_VERSION || version == 0) {
            return Err(ClientError::refused(
                format!("{} refused ApiVersions", self.address),
                code,
                None,
            ));
        }
        self.versions = versions;
        Ok(code)
    }

    /// `HOST:PORT` as it was given.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The highest version of an API that both sides speak; ours are `ours_min` to `ours_max`.
    pub fn version(&self, api: ApiKey, ours_min: i16, ours_max: i16) -> Result<i16, ClientError> {
        let offered = self.versions.get(&(api as i16)).copied();
        if let Some((min, max)) = offered {
            let version = max.min(ours_max);
            if version >= min.max(ours_min) {
                return Ok(version);
            }
        }
        Err(ClientError::Version {
            address: self.address.clone(),
            api,
            offered: offered.map_or_else(
                || "no version".to_owned(),
                |(min, max)| format!("versions {min} to {max}"),
            ),
            ours_min,
            ours_max,
        })
    }

    /// Sends a request and gives the body of its response, behind the response's header.
    pub fn call(
        &mut self,
        api: ApiKey,
        version: i16,
        request: &impl Encodable,
    ) -> Result<Bytes, ClientError> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        let frame = encode_request(
            api,
            version,
            correlation_id,
            &self.options.client_id,
            request,
        )?;
        self.stream
            .write_all(&frame)
            .map_err(|source| self.broken(source))?;
        let frame = self.read_frame()?;
        let mut reader = Reader::new(&frame);
        let unreadable = |source| self.unreadable(api, source);
        if reader.read_i32().map_err(unreadable)? != correlation_id {
            return Err(ClientError::Correlation {
                address: self.address.clone(),
            });
        }
        reader
            .skip_tagged_fields(response_header_is_flexible(api as i16, version))
            .map_err(unreadable)?;
        let start = reader.position();
        Ok(frame.slice(start..))
    }

    fn read_frame(&mut self) -> Result<Bytes, ClientError> {
        let mut length = [0; 4];
        self.stream
            .read_exact(&mut length)
            .map_err(|source| self.broken(source))?;
        let announced = i32::from_be_bytes(length);
        let len = usize::try_from(announced)
            .ok()
            .filter(|len| *len <= RESPONSE_BYTES_MAX)
            .ok_or_else(|| ClientError::Frame {
                address: self.address.clone(),
                bytes: announced.into(),
                bytes_max: RESPONSE_BYTES_MAX,
            })?;
        // Grows as bytes arrive: the announcement alone allocates nothing.
        let mut frame = Vec::new();
        Read::by_ref(&mut self.stream)
            .take(len as u64)
            .read_to_end(&mut frame)
            .map_err(|source| self.broken(source))?;
        if frame.len() < len {
            return Err(self.broken(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(frame.into())
    }

    fn broken(&self, source: io::Error) -> ClientError {
        let address = self.address.clone();
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::NoAnswer {
                address,
                after: self.options.timeout,
            },
            _ => ClientError::Lost { address, source },
        }
    }

    pub(super) fn unreadable(&self, api: ApiKey, source: WireError) -> ClientError {
        ClientError::Unreadable {
            address: self.address.clone(),
            api,
            source,
        }
    }

    /// The socket, for a caller that speaks the protocol itself from here on.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// A whole request frame: length, header, body.
pub fn encode_request(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: &str,
    request: &impl Encodable,
) -> Result<Bytes, ClientError> {
    let header = RequestHeader::default()
        .with_request_api_key(api as i16)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    encode_request_header_into_buffer(&mut frame, &header)
        .and_then(|()| request.encode(&mut frame, version))
        .map_err(|error| ClientError::Encode {
            api,
            reason: error.to_string(),
        })?;
    crate::protocol::frame::patch_length(&mut frame, 0);
    Ok(frame.freeze())
}

fn open(address: &str, timeout: Duration) -> Result<TcpStream, ClientError> {
    let Some((host, _)) = address
        .rsplit_once(':')
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    else {
        return Err(ClientError::Address(address.to_owned()));
    };
    let resolved: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| ClientError::Resolve {
            address: host.to_owned(),
            reason: error.to_string(),
        })?
        .collect();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in resolved {
        let opened = TcpStream::connect_timeout(&candidate, timeout).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        });
        match opened {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(ClientError::Connect {
        address: address.to_owned(),
        source: failure,
    })
}

type Versions = BTreeMap<i16, (i16, i16)>;

/// ApiVersions 0 to 4: error code, array of (key, lowest, highest). UNSUPPORTED_VERSION comes in
/// the form of version 0 whatever was asked.
fn read_api_versions(body: &[u8], version: i16) -> Result<(i16, Versions), WireError> {
    let mut reader = Reader::new(body);
    let code = reader.read_i16()?;
    let flexible = version >= 3 && code != UNSUPPORTED_VERSION;
    let mut versions = Versions::new();
    for _ in 0..reader.read_count(flexible, 6)? {
        let key = reader.read_i16()?;
        let range = (reader.read_i16()?, reader.read_i16()?);
        reader.skip_tagged_fields(flexible)?;
        versions.insert(key, range);
    }
    Ok((code, versions))
}

#[cfg(test)]
mod tests;
