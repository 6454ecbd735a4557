//! One session and its partitions.

use super::*;

#[derive(Debug)]
pub(super) struct Session {
    pub privileged: bool,
    pub uses_topic_ids: bool,
    pub created: TimestampMs,
    pub last_used: TimestampMs,
    /// The epoch that the next incremental request must carry.
    pub epoch: i32,
    /// The number of partitions at the last use: what evictions compare.
    pub cached_size: usize,
    /// In the order in which they are fetched.
    partitions: BTreeMap<u64, CachedPartition>,
    places: HashMap<PartitionKey, u64>,
    next_place: u64,
}

/// A partition as the client last asked for it and last heard of it.
#[derive(Debug)]
struct CachedPartition {
    request: FetchPartition,
    /// As last told to the client; -1 for never, or after an error.
    high_watermark: Offset,
    log_start_offset: Offset,
}

impl CachedPartition {
    /// Records, news about the log's ends, an error, or an instruction must be told; silence may
    /// be left out.
    fn must_respond(&self, outcome: &FetchOutcome) -> bool {
        outcome.has_records
            || outcome.has_error
            || outcome.has_preferred_replica
            || outcome.has_diverging_epoch
            || outcome.high_watermark != self.high_watermark
            || outcome.log_start_offset != self.log_start_offset
    }

    fn note(&mut self, outcome: &FetchOutcome) {
        self.high_watermark = outcome.high_watermark;
        self.log_start_offset = outcome.log_start_offset;
        if outcome.has_error {
            // Whatever comes next is news: the client must hear that the error is over.
            self.high_watermark = Offset::UNKNOWN;
        }
    }
}

impl Session {
    pub fn new(privileged: bool, uses_topic_ids: bool, now: TimestampMs) -> Self {
        Self {
            privileged,
            uses_topic_ids,
            created: now,
            last_used: now,
            epoch: next_epoch(INITIAL_EPOCH),
            cached_size: 0,
            partitions: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// The partitions to fetch, in order.
    pub fn requests(&self) -> Vec<FetchPartition> {
        self.partitions
            .values()
            .map(|cached| cached.request.clone())
            .collect()
    }

    /// Adds the partition at the end, or takes over what is asked of it now.
    pub fn put(&mut self, request: &FetchPartition) {
        let key = PartitionKey::of(self.uses_topic_ids, request);
        let known = self.places.get(&key).copied();
        if let Some(cached) = known.and_then(|place| self.partitions.get_mut(&place)) {
            cached.request = request.clone();
            return;
        }
        let cached = CachedPartition {
            request: request.clone(),
            high_watermark: Offset::UNKNOWN,
            log_start_offset: Offset::UNKNOWN,
        };
        self.append(key, cached);
    }

    pub fn forget(&mut self, forgotten: &ForgottenPartition) {
        let key = PartitionKey::new(
            self.uses_topic_ids,
            forgotten.topic.as_ref(),
            forgotten.topic_id,
            forgotten.partition,
        );
        if let Some(place) = self.places.remove(&key) {
            self.partitions.remove(&place);
        }
    }

    /// Remembers what a full answer tells.
    pub fn note_full_answer(&mut self, key: &PartitionKey, outcome: &FetchOutcome) {
        let place = self.places.get(key).copied();
        if let Some(cached) = place.and_then(|place| self.partitions.get_mut(&place)) {
            cached.note(outcome);
        }
    }

    /// Whether an incremental answer names the partition; remembers what it tells. One that gets
    /// records goes to the end of the order, so that the response's size limit strikes another
    /// one next time.
    pub fn answer(&mut self, key: &PartitionKey, outcome: &FetchOutcome) -> bool {
        let Some(place) = self.places.get(key).copied() else {
            return false;
        };
        let Some(cached) = self.partitions.get_mut(&place) else {
            return false;
        };
        let included = cached.must_respond(outcome);
        cached.note(outcome);
        if outcome.has_records
            && let Some(cached) = self.partitions.remove(&place)
        {
            self.append(key.clone(), cached);
        }
        included
    }

    fn append(&mut self, key: PartitionKey, cached: CachedPartition) {
        let place = self.next_place;
        self.next_place += 1;
        self.places.insert(key, place);
        self.partitions.insert(place, cached);
    }
}
