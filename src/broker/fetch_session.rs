//! Incremental fetch sessions (KIP-227): a consumer names its partitions once; later requests
//! carry only what changed, and responses only partitions that have something to say.
//!
//! ```text
//! request (session id, epoch)      answer
//! (0, 0)   full                    all partitions, and a new session if the cache has room
//! (0, -1)  full, no session        all partitions
//! (s, 0)   full, replaces s        as (0, 0)
//! (s, -1)  full, closes s          all partitions
//! (s, e)   incremental             the session's partitions that have something to say
//! ```
//!
//! Epochs count 1, 2, … and wrap from 2^31-1 to 1. An incremental request must carry the epoch
//! that its session expects; a repeated one is refused.
//!
//! A shard has a cache of its own for the connections that it accepted: ids are drawn from a
//! range of its own, so that a client that reconnects to another core finds no session there and
//! starts over, instead of finding somebody else's.
//!
//! Pure: the clock's reading and the random numbers are passed in.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::base::limits::FETCH_SESSION_PARTITIONS_PER_SHARD_MAX;
use crate::base::{LeaderEpoch, Offset, PartitionIndex, ShardId, TimestampMs, TopicId};

mod cache;
#[cfg(test)]
mod tests;

use cache::Session;

/// The id of "no session".
pub const NO_SESSION: i32 = 0;
/// Asks for a full answer and a new session.
pub const INITIAL_EPOCH: i32 = 0;
/// Asks for a full answer without a session, and closes the one named.
pub const FINAL_EPOCH: i32 = -1;

/// From this version on, Fetch names topics by their ids.
const TOPIC_ID_VERSION_MIN: i16 = 13;

/// How long an unused session is safe from being evicted for a new one, and how long a used one
/// is safe from a larger one (Kafka's `FETCH_SESSION_EVICTION_MS`), in milliseconds.
const EVICTION_AGE_MS: i64 = 120_000;

/// What a client asks of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPartition {
    /// Always there below version 13; from then on, if the id is known.
    pub topic: Option<Arc<str>>,
    /// Zero below version 13.
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub fetch_offset: Offset,
    pub max_bytes: i32,
    pub current_leader_epoch: LeaderEpoch,
    /// The follower's own log start; -1 from consumers.
    pub log_start_offset: Offset,
    pub last_fetched_epoch: LeaderEpoch,
}

/// A partition that leaves the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenPartition {
    pub topic: Option<Arc<str>>,
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
}

/// What of a Fetch request concerns the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequestView {
    pub version: i16,
    pub session_id: i32,
    pub session_epoch: i32,
    /// Followers' sessions are privileged: a consumer's never evicts them while they are young.
    pub from_follower: bool,
    pub partitions: Vec<FetchPartition>,
    pub forgotten: Vec<ForgottenPartition>,
}

/// The whole request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// FETCH_SESSION_ID_NOT_FOUND (70)
    #[error("this fetch session is not known here: it expired, was evicted or closed")]
    IdNotFound,
    /// INVALID_FETCH_SESSION_EPOCH (71)
    #[error("the fetch session expects another epoch: this request is old or repeated")]
    InvalidEpoch,
    /// FETCH_SESSION_TOPIC_ID_ERROR (106)
    #[error("the fetch session names topics by id and the request by name, or the reverse")]
    TopicIdError,
}

/// A request that was accepted: fetch `partitions` in this order, then call
/// [`finish`](FetchSessionCache::finish).
#[derive(Debug)]
pub struct FetchContext {
    kind: Kind,
    pub partitions: Vec<FetchPartition>,
}

impl FetchContext {
    /// Whether partitions with nothing to say are left out of the answer.
    pub fn is_incremental(&self) -> bool {
        matches!(self.kind, Kind::Incremental { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sessionless,
    Full {
        privileged: bool,
        uses_topic_ids: bool,
    },
    Incremental {
        session_id: i32,
        /// What the session expects next, unless another request came in between.
        next_epoch: i32,
        uses_topic_ids: bool,
    },
}

/// What was found for one partition of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FetchOutcome {
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
    pub has_records: bool,
    pub has_error: bool,
    /// The consumer is sent to another replica (KIP-392).
    pub has_preferred_replica: bool,
    /// The follower must truncate (KIP-595).
    pub has_diverging_epoch: bool,
}

/// How to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchAnswer {
    /// The id for the response; 0 for none.
    pub session_id: i32,
    /// For each partition of the context, whether the response names it.
    pub included: Vec<bool>,
}

/// A partition within a session: by id or by name, never both.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PartitionKey {
    Id(TopicId, PartitionIndex),
    Name(Arc<str>, PartitionIndex),
}

impl PartitionKey {
    fn new(
        uses_topic_ids: bool,
        topic: Option<&Arc<str>>,
        topic_id: TopicId,
        partition: PartitionIndex,
    ) -> Self {
        if uses_topic_ids {
            Self::Id(topic_id, partition)
        } else {
            Self::Name(topic.cloned().unwrap_or_default(), partition)
        }
    }

    fn of(uses_topic_ids: bool, request: &FetchPartition) -> Self {
        Self::new(
            uses_topic_ids,
            request.topic.as_ref(),
            request.topic_id,
            request.partition,
        )
    }
}

/// The sessions of one shard.
#[derive(Debug)]
pub struct FetchSessionCache {
    sessions: HashMap<i32, Session>,
    slots: usize,
    partitions: usize,
    partitions_max: usize,
    ids: std::ops::Range<i32>,
    evictions: u64,
}

impl FetchSessionCache {
    /// The share of one of `shard_count` shards in the `slots` of the whole broker
    /// (`max.incremental.fetch.session.cache.slots`), rounded up unless it is zero.
    pub fn new(slots: usize, shard: ShardId, shard_count: u16) -> Self {
        let shard_count = shard_count.max(1);
        let ids_per_shard = i32::MAX / i32::from(shard_count);
        let first = ids_per_shard.saturating_mul(i32::from(shard.0));
        Self {
            sessions: HashMap::new(),
            slots: slots.div_ceil(usize::from(shard_count)),
            partitions: 0,
            partitions_max: FETCH_SESSION_PARTITIONS_PER_SHARD_MAX,
            ids: first.max(1)..first.saturating_add(ids_per_shard),
            evictions: 0,
        }
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// How many partitions the sessions remember in all.
    pub fn partition_count(&self) -> usize {
        self.partitions
    }

    /// How many sessions were evicted so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Judges a request and says which partitions to fetch. The session, if there is one, takes
    /// over the request's offsets at once: whatever is answered, the newest request counts.
    ///
    /// # Errors
    /// The request is refused as a whole.
    pub fn begin(
        &mut self,
        request: FetchRequestView,
        now: TimestampMs,
    ) -> Result<FetchContext, SessionError> {
        let uses_topic_ids = request.version >= TOPIC_ID_VERSION_MIN;
        if request.session_epoch != INITIAL_EPOCH && request.session_epoch != FINAL_EPOCH {
            return self.begin_incremental(request, uses_topic_ids, now);
        }
        self.remove(request.session_id);
        let kind = if request.session_epoch == FINAL_EPOCH {
            Kind::Sessionless
        } else {
            Kind::Full {
                privileged: request.from_follower,
                uses_topic_ids,
            }
        };
        Ok(FetchContext {
            kind,
            partitions: without_repeats(request.partitions, uses_topic_ids),
        })
    }

    fn begin_incremental(
        &mut self,
        request: FetchRequestView,
        uses_topic_ids: bool,
        now: TimestampMs,
    ) -> Result<FetchContext, SessionError> {
        let session_id = request.session_id;
        let session = self
            .sessions
            .get_mut(&session_id)
            .ok_or(SessionError::IdNotFound)?;
        if session.epoch != request.session_epoch {
            return Err(SessionError::InvalidEpoch);
        }
        if session.uses_topic_ids != uses_topic_ids {
            return Err(SessionError::TopicIdError);
        }

        let size_before = session.len();
        for partition in &request.partitions {
            session.put(partition);
        }
        for forgotten in &request.forgotten {
            session.forget(forgotten);
        }
        let size = session.len();
        self.partitions = self.partitions + size - size_before;

        if size == 0 {
            self.remove(session_id);
            return Ok(FetchContext {
                kind: Kind::Sessionless,
                partitions: without_repeats(request.partitions, uses_topic_ids),
            });
        }
        if size > size_before && self.partitions > self.partitions_max {
            self.remove(session_id);
            return Err(SessionError::IdNotFound);
        }
        session.last_used = now;
        session.cached_size = size;
        session.epoch = next_epoch(session.epoch);
        Ok(FetchContext {
            kind: Kind::Incremental {
                session_id,
                next_epoch: session.epoch,
                uses_topic_ids,
            },
            partitions: session.requests(),
        })
    }

    /// Turns what was found, one outcome for each partition of the context and in its order, into
    /// the answer; a full request gets its session here. `random` draws numbers for its id.
    ///
    /// # Errors
    /// `InvalidEpoch` when another request used the session in between, `IdNotFound` when it is
    /// gone.
    pub fn finish(
        &mut self,
        context: FetchContext,
        outcomes: &[FetchOutcome],
        now: TimestampMs,
        random: impl FnMut() -> u32,
    ) -> Result<FetchAnswer, SessionError> {
        assert!(
            outcomes.len() == context.partitions.len(),
            "one outcome for each partition"
        );
        let all = vec![true; outcomes.len()];
        match context.kind {
            Kind::Sessionless => Ok(FetchAnswer {
                session_id: NO_SESSION,
                included: all,
            }),
            Kind::Full {
                privileged,
                uses_topic_ids,
            } => {
                let mut session = Session::new(privileged, uses_topic_ids, now);
                for (request, outcome) in context.partitions.iter().zip(outcomes) {
                    session.put(request);
                    let key = PartitionKey::of(uses_topic_ids, request);
                    session.note_full_answer(&key, outcome);
                }
                Ok(FetchAnswer {
                    session_id: self.admit(session, now, random),
                    included: all,
                })
            }
            Kind::Incremental {
                session_id,
                next_epoch,
                uses_topic_ids,
            } => {
                let session = self
                    .sessions
                    .get_mut(&session_id)
                    .ok_or(SessionError::IdNotFound)?;
                if session.epoch != next_epoch {
                    return Err(SessionError::InvalidEpoch);
                }
                let included = context
                    .partitions
                    .iter()
                    .zip(outcomes)
                    .map(|(request, outcome)| {
                        session.answer(&PartitionKey::of(uses_topic_ids, request), outcome)
                    })
                    .collect();
                Ok(FetchAnswer {
                    session_id,
                    included,
                })
            }
        }
    }

    /// Gives the session a place and an id, or neither (0).
    fn admit(
        &mut self,
        mut session: Session,
        now: TimestampMs,
        random: impl FnMut() -> u32,
    ) -> i32 {
        let size = session.len();
        if self.slots == 0 || self.partitions + size > self.partitions_max {
            return NO_SESSION;
        }
        if self.sessions.len() >= self.slots && !self.evict_for(&session, now) {
            return NO_SESSION;
        }
        let Some(id) = self.free_id(random) else {
            return NO_SESSION;
        };
        session.cached_size = size;
        self.partitions += size;
        self.sessions.insert(id, session);
        id
    }

    /// Makes room for a new session by Kafka's rules: the longest unused session goes if it was
    /// unused for the eviction age. Else the least valuable one goes, if it is worth less than
    /// the new one: consumers' before followers', then those of fewer partitions. Sessions whose
    /// life up to their last use is shorter than the eviction age are safe, but a follower may
    /// evict a young consumer.
    fn evict_for(&mut self, new: &Session, now: TimestampMs) -> bool {
        let unused = self
            .sessions
            .iter()
            .min_by_key(|(id, session)| (session.last_used, **id));
        if let Some((id, session)) = unused
            && now.0.saturating_sub(session.last_used.0) > EVICTION_AGE_MS
        {
            let id = *id;
            return self.evict(id);
        }
        let least = self
            .sessions
            .iter()
            .filter(|(_, session)| {
                let age_ms = session.last_used.0.saturating_sub(session.created.0);
                age_ms > EVICTION_AGE_MS || (new.privileged && !session.privileged)
            })
            .map(|(id, session)| (session.privileged, session.cached_size, *id))
            .min();
        match least {
            Some(least) if (new.privileged, new.len(), NO_SESSION) >= least => self.evict(least.2),
            _ => false,
        }
    }

    fn evict(&mut self, id: i32) -> bool {
        self.evictions += 1;
        self.remove(id);
        true
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.len();
        }
    }

    /// A random id of this shard's range that no session has.
    fn free_id(&self, mut random: impl FnMut() -> u32) -> Option<i32> {
        let count = u32::try_from(self.ids.end.saturating_sub(self.ids.start)).unwrap_or(0);
        // The range is vastly larger than the cache: a few draws do.
        (0..64).find_map(|_| {
            let step = i32::try_from(random().checked_rem(count)?).ok()?;
            let id = self.ids.start.checked_add(step)?;
            (!self.sessions.contains_key(&id)).then_some(id)
        })
    }
}

/// 0 → 1 → 2 → … → 2^31-1 → 1.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// A partition named twice counts once, where it stood first, with what was said last.
fn without_repeats(partitions: Vec<FetchPartition>, uses_topic_ids: bool) -> Vec<FetchPartition> {
    let mut places: HashMap<PartitionKey, usize> = HashMap::with_capacity(partitions.len());
    let mut kept: Vec<FetchPartition> = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let place = *places
            .entry(PartitionKey::of(uses_topic_ids, &partition))
            .or_insert(kept.len());
        match kept.get_mut(place) {
            Some(earlier) => *earlier = partition,
            None => kept.push(partition),
        }
    }
    kept
}
