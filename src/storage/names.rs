//! The names of a partition's files, as Kafka gives them: the base offset in 20 digits.

use crate::base::Offset;

/// What a file of a partition's folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
    Snapshot,
}

impl FileKind {
    fn suffix(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "index",
            Self::TimeIndex => "timeindex",
            Self::Snapshot => "snapshot",
        }
    }
}

/// The name of the file of `kind` at `offset`.
pub fn file_name(offset: Offset, kind: FileKind) -> String {
    format!("{:020}.{}", offset.0, kind.suffix())
}

/// What a name says, or nothing where it is not one of ours.
pub fn parse_file_name(name: &str) -> Option<(Offset, FileKind)> {
    let (digits, suffix) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kind = [
        FileKind::Log,
        FileKind::OffsetIndex,
        FileKind::TimeIndex,
        FileKind::Snapshot,
    ]
    .into_iter()
    .find(|kind| kind.suffix() == suffix)?;
    Some((Offset(digits.parse().ok()?), kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas_and_foreign_names_are_left_alone() {
        assert_eq!(
            file_name(Offset(123), FileKind::Log),
            "00000000000000000123.log"
        );
        for kind in [
            FileKind::Log,
            FileKind::OffsetIndex,
            FileKind::TimeIndex,
            FileKind::Snapshot,
        ] {
            let name = file_name(Offset(i64::MAX), kind);
            assert_eq!(parse_file_name(&name), Some((Offset(i64::MAX), kind)));
        }
        for name in [
            "leader-epoch-checkpoint",
            "123.log",
            "99999999999999999999.log",
            "0000000000000000012x.log",
            "00000000000000000123.log.deleted",
        ] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
