//! A client that shows the wire: it sends what it is told, well-formed or not, and hands back the
//! bytes that come.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// Every request in these tests is answered well within this.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);

pub struct Wire {
    stream: TcpStream,
    next_correlation_id: i32,
}

impl Wire {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the broker accepts connections");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream
            .set_read_timeout(Some(ANSWER_WAIT_MAX))
            .expect("a read timeout");
        stream
            .set_write_timeout(Some(ANSWER_WAIT_MAX))
            .expect("a write timeout");
        Self {
            stream,
            next_correlation_id: 1,
        }
    }

    pub fn read_timeout(&self, timeout: Duration) {
        self.stream
            .set_read_timeout(Some(timeout))
            .expect("a read timeout");
    }

    /// Bytes as they are, without a length before them.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// A length, then the payload.
    pub fn send_frame(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).expect("a frame under 4 GiB");
        self.stream.write_all(&length.to_be_bytes())?;
        self.stream.write_all(payload)
    }

    /// The payload of the next frame.
    pub fn read_frame(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut payload = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(payload.into())
    }

    /// Sends a request and returns its correlation id.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let frame = encode_request(version, correlation_id, request);
        self.send_frame(&frame).expect("the request is sent");
        correlation_id
    }

    /// The next response, which must be for `correlation_id` and hold no byte too many.
    pub fn receive<R: Request>(&mut self, version: i16, correlation_id: i32) -> R::Response {
        let frame = self
            .read_frame()
            .unwrap_or_else(|error| panic!("api key {} v{version}: {error}", R::KEY));
        decode_response::<R>(version, correlation_id, frame)
    }

    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let correlation_id = self.send(version, request);
        self.receive::<R>(version, correlation_id)
    }

    /// What becomes of the connection after something unusual was sent.
    pub fn outcome(&mut self) -> Outcome {
        match self.read_frame() {
            Ok(frame) => Outcome::Answered(frame),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Outcome::Silent,
                _ => Outcome::Closed,
            },
        }
    }

    /// True once the peer has closed; false if nothing comes within `patience`.
    pub fn is_closed_within(&mut self, patience: Duration) -> bool {
        self.read_timeout(patience);
        let closed = matches!(self.outcome(), Outcome::Closed);
        self.read_timeout(ANSWER_WAIT_MAX);
        closed
    }

    /// Closes our half of the connection.
    pub fn finish_writing(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered(Bytes),
    Closed,
    /// Neither an answer nor an end within the read timeout.
    Silent,
}

/// Header and body, without the length.
pub fn encode_request<R: Request>(version: i16, correlation_id: i32, request: &R) -> Bytes {
    let mut frame = BytesMut::new();
    request_header(R::KEY, version, correlation_id)
        .encode(&mut frame, R::header_version(version))
        .expect("the header is encoded");
    request
        .encode(&mut frame, version)
        .unwrap_or_else(|error| panic!("api key {} v{version}: {error}", R::KEY));
    frame.freeze()
}

pub fn request_header(api_key: i16, version: i16, correlation_id: i32) -> RequestHeader {
    RequestHeader::default()
        .with_request_api_key(api_key)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_static_str("ringmain-tests")))
}

/// Header v1 by hand, for API keys and versions that the codec crate does not know.
pub fn header_v1(api_key: i16, version: i16, correlation_id: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&api_key.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&correlation_id.to_be_bytes());
    bytes.extend_from_slice(&3i16.to_be_bytes());
    bytes.extend_from_slice(b"old");
    bytes
}

pub fn decode_response<R: Request>(
    version: i16,
    correlation_id: i32,
    mut frame: Bytes,
) -> R::Response {
    let what = format!("the response to api key {} v{version}", R::KEY);
    let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version))
        .unwrap_or_else(|error| panic!("{what}: header: {error}"));
    assert_eq!(header.correlation_id, correlation_id, "{what}: order");
    let response = R::Response::decode(&mut frame, version)
        .unwrap_or_else(|error| panic!("{what}: body: {error}"));
    assert!(frame.is_empty(), "{what}: {} bytes too many", frame.len());
    response
}
