//! Which shard owns a partition. Pure, and the same on every shard.

use crate::base::{PartitionIndex, ShardId, TopicId};

/// The owner of a partition among `shard_count` shards.
///
/// The topic's id picks where its partition 0 lives; consecutive partitions go to consecutive
/// shards, so that a topic's partitions differ by at most one between any two shards, and topics
/// of one partition spread evenly too. `shard_count` of 0 counts as 1.
pub fn shard_of(topic_id: TopicId, partition: PartitionIndex, shard_count: u16) -> ShardId {
    let shard_count = u64::from(shard_count.max(1));
    let start = mix(topic_id.0.as_u64_pair()) % shard_count;
    let step = u64::from(partition.unsigned_abs()) % shard_count;
    // Both are below 65536, so neither the sum nor the narrowing can overflow.
    ShardId(((start + step) % shard_count) as u16)
}

/// Spreads the 122 random bits of a UUID over 64 (the finaliser of SplitMix64).
fn mix((high, low): (u64, u64)) -> u64 {
    let mut bits = high ^ low.rotate_left(32);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn consecutive_partitions_go_to_consecutive_shards() {
        let topic = TopicId(Uuid::from_u128(77));
        let first = shard_of(topic, 0, 4).0;
        for partition in 0..64 {
            let expected = (first + partition as u16) % 4;
            assert_eq!(shard_of(topic, partition, 4), ShardId(expected));
        }
    }

    #[test]
    fn topics_of_one_partition_spread_evenly() {
        for shard_count in [1_u16, 2, 3, 8, 64] {
            let mut owned = vec![0_u32; usize::from(shard_count)];
            for topic in 0..(u128::from(shard_count) * 1000) {
                // Small, consecutive numbers are the least random ids there can be.
                let shard = shard_of(TopicId(Uuid::from_u128(topic)), 0, shard_count);
                owned[usize::from(shard.0)] += 1;
            }
            let (least, most) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
            assert!(
                *least > 850 && *most < 1150,
                "{shard_count} shards: {least} to {most}"
            );
        }
    }

    #[test]
    fn the_owner_is_in_range_whatever_is_asked() {
        for partition in [i32::MIN, -1, 0, i32::MAX] {
            for shard_count in [0, 1, 2, u16::MAX] {
                let shard = shard_of(TopicId(Uuid::max()), partition, shard_count);
                assert!(shard.0 < shard_count.max(1), "{partition} of {shard_count}");
            }
        }
    }
}
