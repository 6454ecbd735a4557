//! What can go wrong between a client and its broker, each as one line that says what to do.

use std::io;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use crate::protocol::wire::WireError;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("`{0}` is no address; give HOST:PORT, such as 127.0.0.1:9092")]
    Address(String),
    #[error("cannot find the host of {address}: {reason}; check the name in --bootstrap")]
    Resolve { address: String, reason: String },
    #[error("cannot connect to {address}: {}; {}", .source.kind(), connect_advice(.source.kind()))]
    Connect { address: String, source: io::Error },
    #[error(
        "the connection to {address} broke: {}; the broker's log says why", io_reason(.source)
    )]
    Lost { address: String, source: io::Error },
    #[error(
        "{address} did not answer within {} s; is it a Kafka broker, and not overloaded?", .after.as_secs_f32()
    )]
    NoAnswer { address: String, after: Duration },
    #[error(
        "{address} announced a response of {bytes} bytes, where {bytes_max} are the most; is it a Kafka broker?"
    )]
    Frame {
        address: String,
        bytes: i64,
        bytes_max: usize,
    },
    #[error("{address} answered a request that was not asked; is it a Kafka broker?")]
    Correlation { address: String },
    #[error("the response of {address} to {api:?} is unreadable ({source}); is it a Kafka broker?")]
    Unreadable {
        address: String,
        api: ApiKey,
        source: WireError,
    },
    #[error(
        "{address} speaks {api:?} in {offered}, we speak versions {ours_min} to {ours_max}; use a broker of Kafka 2.1 or later"
    )]
    Version {
        address: String,
        api: ApiKey,
        offered: String,
        ours_min: i16,
        ours_max: i16,
    },
    #[error("{what}: {} (error {code}){message}", error_name(*.code))]
    Refused {
        what: String,
        code: i16,
        /// Empty, or `: ` and the broker's words.
        message: String,
    },
    #[error("cannot encode {api:?}: {reason}")]
    Encode { api: ApiKey, reason: String },
}

impl ClientError {
    /// The broker said no to `what` with a code of its own.
    pub fn refused(what: impl Into<String>, code: i16, message: Option<&str>) -> Self {
        Self::Refused {
            what: what.into(),
            code,
            message: message.map_or_else(String::new, |text| format!(": {text}")),
        }
    }
}

/// Kafka's name of an error code, such as `UnknownTopicOrPartition`.
pub fn error_name(code: i16) -> String {
    match ResponseError::try_from_code(code) {
        Some(error) => {
            let text = format!("{error:?}");
            // The variant without the payload that only unknown codes carry.
            text.split('(').next().unwrap_or(&text).to_owned()
        }
        None => "None".to_owned(),
    }
}

/// An error of reading or writing in a person's words.
pub fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the broker closed it".to_owned(),
        kind => kind.to_string(),
    }
}

fn connect_advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::ConnectionRefused => "start the broker with `ringmain serve`",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "check the address, and that no firewall is between"
        }
        _ => "check the address in --bootstrap",
    }
}
