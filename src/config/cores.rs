//! The list of cores, written as taskset writes it: `0`, `0-3`, `0,2`, or `all`.

/// Why a list of cores cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoresError {
    #[error("`{0}` is not a list of cores; write `all`, or cores and ranges such as `0,2-3`")]
    Syntax(String),
    #[error("core {core} is not available to this process; it may use {available}")]
    Unavailable { core: usize, available: String },
}

/// The cores that `text` names, ascending and without repeats. `available` is the process's
/// affinity mask.
pub fn parse(text: &str, available: &[usize]) -> Result<Vec<usize>, CoresError> {
    let syntax = || CoresError::Syntax(text.to_owned());
    if text.trim() == "all" {
        return Ok(available.to_vec());
    }
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| syntax())?;
        let last: usize = last.trim().parse().map_err(|_| syntax())?;
        if first > last {
            return Err(syntax());
        }
        // Stops at the first core that is not there, so a huge range costs nothing.
        for core in first..=last {
            if !available.contains(&core) {
                return Err(CoresError::Unavailable {
                    core,
                    available: print(available),
                });
            }
            cores.push(core);
        }
    }
    cores.sort_unstable();
    cores.dedup();
    Ok(cores)
}

/// The list as `parse` reads it: `0-3,6`.
pub fn print(cores: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => ranges.push((*core, *core)),
        }
    }
    let texts: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_taskset_reads_them() {
        let available = [0, 1, 2, 3, 6];
        let table: &[(&str, Option<&[usize]>)] = &[
            ("all", Some(&[0, 1, 2, 3, 6])),
            ("0", Some(&[0])),
            ("2-3,0,2", Some(&[0, 2, 3])),
            ("3-2", None),
            ("4", None),
            ("0-99999999999", None),
            ("", None),
            ("x", None),
        ];
        for (text, cores) in table {
            assert_eq!(parse(text, &available).ok().as_deref(), *cores, "{text}");
        }
        assert_eq!(print(&available), "0-3,6");
    }
}
