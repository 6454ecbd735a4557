use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const GENERATION: u64 = 7;
const SEQUENCE: u64 = 40;
const FLUSHED: u64 = 38;

fn place(ownership: u64) -> EntryPlace {
    EntryPlace {
        topic_id: TopicId(Uuid::from_u128(0x0102_0304)),
        partition: 3,
        ownership,
        leader_epoch: LeaderEpoch(5),
        segment_base: Offset(1_000),
        position: 77,
    }
}

fn entries_of_all_kinds() -> Vec<Entry> {
    let kinds = [
        EntryKind::Inline(Bytes::from_static(b"batches")),
        EntryKind::Reference(Reference {
            from: Offset(10),
            end: Offset(20),
            len: 300,
            headers_checksum: 0xdead_beef,
        }),
        EntryKind::Truncation { end: Offset(15) },
        EntryKind::Deletion,
        EntryKind::Move { to: ShardId(2) },
    ];
    (1..)
        .zip(kinds)
        .map(|(ownership, kind)| Entry {
            place: place(ownership),
            kind,
        })
        .collect()
}

/// A group in as many blocks as it takes.
fn encoded(entries: &[Entry]) -> Vec<u8> {
    let len: usize = entries.iter().map(Entry::encoded_len).sum();
    let padded = (GROUP_HEADER_BYTES + len).next_multiple_of(DISK_BLOCK_BYTES);
    // A buffer's contents are arbitrary before.
    let mut buffer = vec![0xaa; padded];
    encode_group(&mut buffer, GENERATION, SEQUENCE, FLUSHED, entries.iter());
    buffer
}

/// The same group with other bytes at a place, and a checksum that is right.
fn resealed(mut group: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    group[at..at + bytes.len()].copy_from_slice(bytes);
    let len = GroupHeader::decode(&group).unwrap().len;
    let checksum = crc32c::crc32c(&group[GROUP_BODY_START..len]);
    group[4..GROUP_BODY_START].copy_from_slice(&checksum.to_be_bytes());
    group
}

fn decode(group: &[u8]) -> Result<Vec<Entry>, EntryFault> {
    let header = GroupHeader::decode_whole(group).expect("a whole group");
    decode_entries(&Bytes::copy_from_slice(group), &header)
}

// --- the header of a file ----------------------------------------------------------------------

fn file_header() -> FileHeader {
    FileHeader {
        generation: GENERATION,
        shard: ShardId(3),
        shard_count: 8,
    }
}

#[test]
fn a_file_header_is_a_block_and_comes_back() {
    let block = file_header().encode();
    assert_eq!(block.len(), DISK_BLOCK_BYTES);
    assert_eq!(FileHeader::decode(&block), Ok(file_header()));
}

#[test]
fn a_file_header_whose_bytes_are_damaged_is_never_taken() {
    let block = file_header().encode();
    for at in 0..FILE_HEADER_BYTES {
        for bit in 0..8 {
            let mut damaged = block.clone();
            damaged[at] ^= 1 << bit;
            let found = FileHeader::decode(&damaged);
            match at {
                4..8 => assert!(matches!(found, Err(HeaderFault::Version(_))), "byte {at}"),
                _ => assert_eq!(found, Err(HeaderFault::Damaged), "byte {at}"),
            }
        }
    }
}

#[test]
fn a_file_that_is_shorter_than_its_header_has_none() {
    let block = file_header().encode();
    for len in 0..FILE_HEADER_BYTES {
        let found = FileHeader::decode(&block[..len]);
        assert_eq!(found, Err(HeaderFault::Missing), "{len} bytes");
    }
    let zeros = [0; DISK_BLOCK_BYTES];
    assert_eq!(FileHeader::decode(&zeros), Err(HeaderFault::Missing));
}

#[test]
fn a_file_of_another_version_names_it_and_says_what_to_do() {
    let mut block = file_header().encode();
    block[4..8].copy_from_slice(&2_u32.to_be_bytes());
    let fault = FileHeader::decode(&block).unwrap_err();
    assert_eq!(fault, HeaderFault::Version(2));
    assert!(fault.to_string().contains("newer broker"), "{fault}");
}

// --- groups ------------------------------------------------------------------------------------

#[test]
fn a_group_of_all_kinds_comes_back_and_zeros_follow_it() {
    let entries = entries_of_all_kinds();
    let group = encoded(&entries);
    let header = GroupHeader::decode_whole(&group).unwrap();
    let len = GROUP_HEADER_BYTES + entries.iter().map(Entry::encoded_len).sum::<usize>();
    assert_eq!(
        header,
        GroupHeader {
            generation: GENERATION,
            sequence: SEQUENCE,
            flushed: FLUSHED,
            len,
            entry_count: 5,
        }
    );
    assert_eq!(header.padded_len(), DISK_BLOCK_BYTES);
    assert!(group[len..].iter().all(|byte| *byte == 0));
    assert_eq!(decode(&group), Ok(entries));
}

#[test]
fn a_group_without_entries_is_whole() {
    let group = encoded(&[]);
    assert_eq!(decode(&group), Ok(Vec::new()));
}

#[test]
fn an_inline_entry_takes_what_it_is_said_to_take() {
    let entry = Entry {
        place: place(1),
        kind: EntryKind::Inline(Bytes::from_static(b"12345")),
    };
    assert_eq!(entry.encoded_len(), INLINE_OVERHEAD_BYTES + 5);
}

#[test]
fn every_damaged_byte_of_a_group_is_found() {
    let group = encoded(&entries_of_all_kinds());
    let len = GroupHeader::decode(&group).unwrap().len;
    for at in 0..len {
        for bit in 0..8 {
            let mut damaged = group.clone();
            damaged[at] ^= 1 << bit;
            let found = GroupHeader::decode_whole(&damaged);
            assert_eq!(found, None, "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_group_that_ends_early_is_none_at_every_length() {
    let group = encoded(&entries_of_all_kinds());
    let header = GroupHeader::decode(&group).unwrap();
    for len in 0..header.len {
        assert_eq!(GroupHeader::decode_whole(&group[..len]), None, "{len}");
        assert_eq!(
            GroupHeader::decode(&group[..len]).is_some(),
            len >= GROUP_HEADER_BYTES,
            "{len}"
        );
        let entries = decode_entries(&Bytes::copy_from_slice(&group[..len]), &header);
        assert!(matches!(entries, Err(EntryFault::Wire(_))), "{len}");
    }
}

#[test]
fn a_group_that_claims_a_length_that_it_cannot_have_is_none() {
    for len in [0, 1, GROUP_HEADER_BYTES as u32 - 1, 5_000, u32::MAX] {
        let mut group = encoded(&entries_of_all_kinds());
        group[32..36].copy_from_slice(&len.to_be_bytes());
        assert_eq!(GroupHeader::decode_whole(&group), None, "{len}");
    }
}

#[test]
fn a_group_that_claims_more_entries_than_it_has_is_an_error() {
    for count in [6_u32, 1_000, u32::MAX] {
        let group = resealed(encoded(&entries_of_all_kinds()), 36, &count.to_be_bytes());
        let found = decode(&group);
        assert!(matches!(found, Err(EntryFault::Wire(_))), "{count}");
    }
}

#[test]
fn an_inline_entry_that_claims_more_bytes_than_its_group_has_is_an_error() {
    let at = GROUP_HEADER_BYTES + ENTRY_PREFIX_BYTES;
    let entries = &entries_of_all_kinds()[..1];
    for len in [8_u32, 4_000, u32::MAX] {
        let group = resealed(encoded(entries), at, &len.to_be_bytes());
        let found = decode(&group);
        assert!(matches!(found, Err(EntryFault::Wire(_))), "{len}");
    }
}

#[test]
fn an_entry_of_an_unknown_kind_is_an_error_that_names_it() {
    for kind in [0, 6, 255] {
        let group = resealed(
            encoded(&entries_of_all_kinds()),
            GROUP_HEADER_BYTES,
            &[kind],
        );
        let fault = decode(&group).unwrap_err();
        assert_eq!(fault, EntryFault::Kind(kind));
        assert!(fault.to_string().contains(&format!("kind {kind}")));
    }
}

// --- the checksum of headers -------------------------------------------------------------------

#[test]
fn the_checksum_of_headers_covers_each_header_in_order_and_no_record() {
    let batch = |header: u8, records: u8| {
        let mut bytes = vec![header; BATCH_HEADER_BYTES];
        bytes.extend([records; 10]);
        bytes
    };
    let checksum = |batches: &[Vec<u8>]| {
        let mut checksum = HeadersChecksum::default();
        for batch in batches {
            checksum.add(batch);
        }
        checksum.value()
    };
    let whole = checksum(&[batch(1, 9), batch(2, 9)]);
    let headers: Vec<u8> = [[1; BATCH_HEADER_BYTES], [2; BATCH_HEADER_BYTES]].concat();
    assert_eq!(whole, crc32c::crc32c(&headers));
    assert_eq!(whole, checksum(&[batch(1, 0), batch(2, 0)]));
    assert_ne!(whole, checksum(&[batch(2, 9), batch(1, 9)]));
    assert_ne!(whole, checksum(&[batch(1, 9)]));
    for at in 0..BATCH_HEADER_BYTES {
        let mut damaged = batch(1, 9);
        damaged[at] ^= 1;
        assert_ne!(whole, checksum(&[damaged, batch(2, 9)]), "byte {at}");
    }
    assert_eq!(checksum(&[]), HeadersChecksum::default().value());
}

// --- whatever comes ----------------------------------------------------------------------------

fn any_entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..6_000)
            .prop_map(|bytes| EntryKind::Inline(bytes.into())),
        any::<(i64, i64, u32, u32)>().prop_map(|(from, end, len, headers_checksum)| {
            EntryKind::Reference(Reference {
                from: Offset(from),
                end: Offset(end),
                len,
                headers_checksum,
            })
        }),
        any::<i64>().prop_map(|end| EntryKind::Truncation { end: Offset(end) }),
        Just(EntryKind::Deletion),
        any::<u16>().prop_map(|shard| EntryKind::Move { to: ShardId(shard) }),
    ];
    let place = any::<(u128, i32, u64, i32, i64, u32)>().prop_map(
        |(topic_id, partition, ownership, epoch, base, position)| EntryPlace {
            topic_id: TopicId(Uuid::from_u128(topic_id)),
            partition,
            ownership,
            leader_epoch: LeaderEpoch(epoch),
            segment_base: Offset(base),
            position,
        },
    );
    (place, kind).prop_map(|(place, kind)| Entry { place, kind })
}

proptest! {
    #[test]
    fn any_group_comes_back(entries in prop::collection::vec(any_entry(), 0..12)) {
        prop_assert_eq!(decode(&encoded(&entries)), Ok(entries));
    }

    #[test]
    fn any_file_header_comes_back(generation: u64, shard: u16, shard_count: u16) {
        let header = FileHeader { generation, shard: ShardId(shard), shard_count };
        prop_assert_eq!(FileHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn bytes_with_a_right_checksum_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..400),
        kind in 0_u8..7,
        entry_count in 0_u32..9,
    ) {
        let mut group = encoded(&[]);
        let len = (GROUP_HEADER_BYTES + body.len()) as u32;
        group[32..36].copy_from_slice(&len.to_be_bytes());
        group[36..40].copy_from_slice(&entry_count.to_be_bytes());
        let group = resealed(group, GROUP_HEADER_BYTES, &body);
        let group = if body.is_empty() { group } else { resealed(group, GROUP_HEADER_BYTES, &[kind]) };
        let _ = decode(&group);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = FileHeader::decode(&bytes);
        let _ = GroupHeader::decode(&bytes);
        let _ = GroupHeader::decode_whole(&bytes);
        let mut bytes = bytes;
        bytes.splice(..bytes.len().min(4), *GROUP_MAGIC);
        let header = GroupHeader::decode(&bytes);
        if let Some(header) = header {
            let _ = decode_entries(&bytes.into(), &header);
        }
    }
}
