//! Logs: one line an event, on stderr.

use std::io;

use tracing_subscriber::EnvFilter;

/// The variable that says what is logged, as `tracing` writes filters: `debug`, or
/// `info,ringmain::storage=trace`.
pub const LEVEL_VARIABLE: &str = "RINGMAIN_LOG";

const LEVEL_DEFAULT: &str = "info";

/// Sends events to stderr, those of level info and above unless `RINGMAIN_LOG` says otherwise. A
/// second call does nothing: tests of one process share the first one's.
pub fn init() {
    let asked = std::env::var(LEVEL_VARIABLE).ok();
    let (filter, complaint) = filter(asked.as_deref());
    let is_first = tracing_subscriber::fmt()
        .compact()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .try_init()
        .is_ok();
    if let Some(complaint) = complaint.filter(|_| is_first) {
        tracing::warn!("{complaint}");
    }
}

/// The filter that was asked for, or the default and what was wrong.
fn filter(asked: Option<&str>) -> (EnvFilter, Option<String>) {
    let asked = asked.map(str::trim).filter(|asked| !asked.is_empty());
    match EnvFilter::try_new(asked.unwrap_or(LEVEL_DEFAULT)) {
        Ok(filter) => (filter, None),
        Err(error) => {
            let complaint = format!(
                "{LEVEL_VARIABLE} is not understood ({error}); logging at {LEVEL_DEFAULT}. Set it \
                 to error, warn, info, debug or trace"
            );
            (EnvFilter::new(LEVEL_DEFAULT), Some(complaint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_what_was_asked_for_or_the_default_with_a_complaint() {
        let table = [
            (None, "info", false),
            (Some(""), "info", false),
            (Some(" debug "), "debug", false),
            (Some("warn,ringmain=trace"), "ringmain=trace,warn", false),
            (Some("ringmain=loud"), "info", true),
        ];
        for (asked, expected, complains) in table {
            let (filter, complaint) = filter(asked);
            assert_eq!(filter.to_string(), expected, "{asked:?}");
            assert_eq!(complaint.is_some(), complains, "{asked:?}: {complaint:?}");
        }
    }
}
