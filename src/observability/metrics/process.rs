//! What the kernel says of this process.

use std::fs;

/// Figures of `/proc/self`; those that cannot be read are missing.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct ProcessFigures {
    pub resident_bytes: Option<u64>,
    pub open_files: Option<u64>,
    /// User and system time of all threads since the start.
    pub cpu_seconds: Option<f64>,
    pub threads: Option<u64>,
}

/// USER_HZ: what `/proc` counts in, 100 a second on every Linux for user space.
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessFigures {
    pub fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            resident_bytes: status_field(&status, "VmRSS:").map(|kib| kib.saturating_mul(1024)),
            threads: status_field(&status, "Threads:"),
            // The listing has its own descriptor open.
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|entries| (entries.count() as u64).saturating_sub(1)),
            cpu_seconds: cpu_seconds(&stat),
        }
    }
}

/// The number behind a field's name (proc(5), `/proc/pid/status`).
fn status_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 (proc(5), `/proc/pid/stat`). Field 2, the name, may hold spaces and
/// parentheses: counting begins behind the last one.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user.saturating_add(system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("12 (a"), None);
        assert_eq!(status_field("VmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(status_field("", "VmRSS:"), None);
    }

    #[test]
    fn this_process_has_figures() {
        let figures = ProcessFigures::read();
        assert!(figures.resident_bytes.unwrap() > 1 << 20);
        assert!(figures.open_files.unwrap() >= 3);
        assert!(figures.threads.unwrap() >= 1);
        assert!(figures.cpu_seconds.is_some());
    }
}
