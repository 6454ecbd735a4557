//! One request, many partitions, several owners: items go to their shards in one call each, and
//! the answers come back in the order of the items.

use super::core::{Shard, StartedCall};
use super::messages::{Call, CallReply, PartitionKey};
use crate::base::ShardId;
use crate::partition::PartitionError;

/// Unwraps a reply of the kind that was asked for.
pub type Open<Answer> = fn(CallReply) -> Option<Vec<Result<Answer, PartitionError>>>;

/// Calls that are under way.
pub struct Scattered<Answer> {
    item_count: usize,
    calls: Vec<(Vec<usize>, StartedCall)>,
    open: Open<Answer>,
}

/// Starts the calls. Resolves when every one is in its owner's mailbox, so that the order of two
/// requests holds for each partition.
///
/// `close` wraps the items of one owner into a call, `open` unwraps its reply.
pub async fn scatter<Item, Answer>(
    shard: &Shard,
    items: Vec<Item>,
    key_of: impl Fn(&Item) -> PartitionKey,
    close: impl Fn(Vec<Item>) -> Call,
    open: Open<Answer>,
) -> Scattered<Answer> {
    let item_count = items.len();
    let mut groups: Vec<(Vec<usize>, Vec<Item>)> = (0..shard.shard_count())
        .map(|_| (Vec::new(), Vec::new()))
        .collect();
    for (index, item) in items.into_iter().enumerate() {
        let owner = shard.owner_of(key_of(&item));
        let (indexes, members) = &mut groups[usize::from(owner.0)];
        indexes.push(index);
        members.push(item);
    }
    let mut calls = Vec::new();
    for ((indexes, members), owner) in groups.into_iter().zip(0..) {
        if !members.is_empty() {
            calls.push((indexes, shard.call(ShardId(owner), close(members)).await));
        }
    }
    Scattered {
        item_count,
        calls,
        open,
    }
}

impl<Answer> Scattered<Answer> {
    /// All answers, in the order of the items.
    pub async fn gather(self) -> Vec<Result<Answer, PartitionError>> {
        let mut answers: Vec<Option<Result<Answer, PartitionError>>> = Vec::new();
        answers.resize_with(self.item_count, || None);
        for (indexes, call) in self.calls {
            let replies = call
                .finish()
                .await
                .ok()
                .and_then(self.open)
                .unwrap_or_default();
            for (index, reply) in indexes.into_iter().zip(replies) {
                answers[index] = Some(reply);
            }
        }
        // An owner that is gone did not answer.
        answers
            .into_iter()
            .map(|answer| answer.unwrap_or(Err(PartitionError::Stopping)))
            .collect()
    }
}
