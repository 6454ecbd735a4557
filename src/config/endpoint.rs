//! Addresses: `HOST:PORT`, and Kafka's lists of `NAME://HOST:PORT`.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A host name or address and a TCP port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Without the brackets of an IPv6 address. Empty means every interface, as in Kafka.
    pub host: String,
    /// 0 lets the system pick one.
    pub port: u16,
}

impl Endpoint {
    /// Whether it names every interface, so that no client could connect to the name itself.
    pub fn is_wildcard(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::")
    }

    /// The first address of the host, to bind to. Blocks while a name is looked up.
    ///
    /// # Errors
    /// The host has no address.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        if self.host.is_empty() {
            return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port)));
        }
        let mut addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        addresses
            .next()
            .ok_or_else(|| io::Error::other("the host has no address"))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The text is no `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expects HOST:PORT such as 127.0.0.1:9092, found `{0}`")]
pub struct InvalidEndpoint(pub String);

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidEndpoint(text.to_owned());
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(invalid)?;
        let port = port.parse().map_err(|_| invalid())?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => address,
            Some(_) => return Err(invalid()),
            None => host,
        };
        let belongs_in_a_host =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '%');
        if bracketed.is_none() && !host.chars().all(belongs_in_a_host) {
            return Err(invalid());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

/// One entry of `listeners` or `advertised.listeners`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// In capitals, as Kafka compares them.
    pub name: String,
    pub endpoint: Endpoint,
}

/// The entries of a `NAME://HOST:PORT,…` list, or the sentence that says what is wrong.
pub fn parse_listeners(text: &str) -> Result<Vec<Listener>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let invalid = || {
                format!(
                    "expects NAME://HOST:PORT such as PLAINTEXT://127.0.0.1:9092, found `{entry}`"
                )
            };
            let (name, address) = entry.split_once("://").ok_or_else(invalid)?;
            if name.is_empty() {
                return Err(invalid());
            }
            Ok(Listener {
                name: name.to_ascii_uppercase(),
                endpoint: address.parse().map_err(|_| invalid())?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_prints_as_it_was_read() {
        for text in [
            "127.0.0.1:9092",
            "[::1]:0",
            "broker-1.example.org:9644",
            ":9092",
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for text in [
            "",
            "9092",
            "host",
            "host:",
            "host:70000",
            "::1:9092",
            "a b:1",
            "[x]:1",
            "[::1:9092",
        ] {
            let endpoint = text.parse::<Endpoint>();
            assert_eq!(endpoint, Err(InvalidEndpoint(text.to_owned())));
        }
    }

    #[test]
    fn listener_names_are_compared_in_capitals() {
        let listeners = parse_listeners("plaintext://h:1, CONTROLLER://:2").unwrap();
        let names: Vec<_> = listeners
            .iter()
            .map(|listener| listener.name.as_str())
            .collect();
        assert_eq!(names, ["PLAINTEXT", "CONTROLLER"]);
        assert!(
            parse_listeners("127.0.0.1:9092")
                .unwrap_err()
                .contains("NAME://HOST:PORT")
        );
    }
}
