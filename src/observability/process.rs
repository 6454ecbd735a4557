//! What the kernel says of this process.

use std::fs;

/// The kernel's USER_HZ: 100 on all architectures that we run on, whatever its own clock does.
const TICKS_PER_S: f64 = 100.0;

/// Read afresh at each call; a number that the kernel does not give is missing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessUsage {
    pub resident_bytes: Option<u64>,
    pub open_files: Option<u64>,
    /// User and system time since the start, in seconds.
    pub cpu_s: Option<f64>,
    pub threads: Option<u64>,
}

impl ProcessUsage {
    /// Blocks for as long as `/proc` takes: microseconds, and longer with many open files.
    pub fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            resident_bytes: status_field(&status, "VmRSS:").and_then(|kib| kib.checked_mul(1024)),
            threads: status_field(&status, "Threads:"),
            // The listing has itself open too.
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|entries| (entries.count() as u64).saturating_sub(1)),
            cpu_s: cpu_s(&fs::read_to_string("/proc/self/stat").unwrap_or_default()),
        }
    }
}

fn status_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 of `/proc/self/stat`, in ticks. The name in field 2 may hold anything, a `)`
/// included: what follows the last one counts.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user.saturating_add(system) as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_this_process() {
        let usage = ProcessUsage::read();
        assert!(usage.resident_bytes > Some(100_000), "{usage:?}");
        assert!(usage.open_files >= Some(3), "{usage:?}");
        assert!(usage.threads >= Some(1), "{usage:?}");
        assert!(usage.cpu_s >= Some(0.0), "{usage:?}");
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 300 200 13";
        assert_eq!(cpu_s(stat), Some(5.0));
        assert_eq!(cpu_s("7 (a) S 1 2"), None);
        assert_eq!(status_field("VmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(status_field("VmRSS:\t  twelve kB\n", "VmRSS:"), None);
    }
}
