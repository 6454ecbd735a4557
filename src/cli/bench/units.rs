//! Sizes as people write them.

/// Reads `1024`, `64KiB`, `2GiB` or `1GB`. For clap: the error is shown behind the option's name.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits_end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => {
            return Err(format!(
                "`{unit}` is no unit; use KiB, MiB, GiB, KB, MB or GB"
            ));
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "give a whole number of bytes, such as 262144 or 256KiB".to_owned())?;
    number
        .checked_mul(factor)
        .ok_or_else(|| "that is more bytes than can be counted".to_owned())
}

/// Bytes in the unit of the same size or just below, for a table.
pub fn show_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && size.fract() > 0.05);
    format!("{size:.decimals$} {}", units[unit])
}
