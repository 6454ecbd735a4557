//! The log: one line an event, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// The environment variable that chooses what is logged: `error`, `warn`, `info`, `debug`,
/// `trace`, or by module (`info,ringmain::storage=debug`).
pub const LOG_VARIABLE: &str = "RINGMAIN_LOG";
const LOG_DEFAULT: &str = "info";

/// Why the log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error(
        "{LOG_VARIABLE}=`{value}` is not understood: {error}; use one of error, warn, info, debug, \
         trace, or pairs like `info,ringmain::storage=debug`"
    )]
    Filter { value: String, error: ParseError },
    #[error("the log was started twice")]
    StartedTwice,
}

/// Starts the log of this process, with the levels of [`LOG_VARIABLE`] (default `info`).
pub fn start() -> Result<(), LoggingError> {
    let value = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let filter = parse_filter(&value)?;
    tracing_subscriber::fmt()
        .compact()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_thread_names(true)
        .try_init()
        .map_err(|_| LoggingError::StartedTwice)
}

fn parse_filter(value: &str) -> Result<EnvFilter, LoggingError> {
    let levels = match value.trim() {
        "" => LOG_DEFAULT,
        levels => levels,
    };
    EnvFilter::builder()
        .parse(levels)
        .map_err(|error| LoggingError::Filter {
            value: value.to_owned(),
            error,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_parsed_or_explained() {
        for (value, expected) in [
            ("", "info"),
            ("debug", "debug"),
            (
                "info,ringmain::storage=trace",
                "ringmain::storage=trace,info",
            ),
        ] {
            assert_eq!(parse_filter(value).unwrap().to_string(), expected);
        }
        let error = parse_filter("ringmain=loud").unwrap_err().to_string();
        assert!(error.contains("RINGMAIN_LOG=`ringmain=loud`"), "{error}");
    }
}
