use super::*;

use std::collections::BTreeSet;

use proptest::prelude::*;
use uuid::Uuid;

const START: TimestampMs = TimestampMs(1_000_000);

fn topic_id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn later(ms: i64) -> TimestampMs {
    TimestampMs(START.0 + ms)
}

/// Partition `partition` of topic 1, by id, from `offset` on.
fn ask(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition {
        topic: None,
        topic_id: topic_id(1),
        partition,
        fetch_offset: Offset(offset),
        max_bytes: 1_000,
        current_leader_epoch: LeaderEpoch(3),
        log_start_offset: Offset::UNKNOWN,
        last_fetched_epoch: LeaderEpoch::UNKNOWN,
    }
}

fn by_name(name: &str, partition: i32) -> FetchPartition {
    FetchPartition {
        topic: Some(Arc::from(name)),
        topic_id: TopicId::ZERO,
        ..ask(partition, 0)
    }
}

fn forget(partition: i32) -> ForgottenPartition {
    ForgottenPartition {
        topic: None,
        topic_id: topic_id(1),
        partition,
    }
}

fn request(session: (i32, i32), partitions: Vec<FetchPartition>) -> FetchRequestView {
    FetchRequestView {
        version: 13,
        session_id: session.0,
        session_epoch: session.1,
        from_follower: false,
        partitions,
        forgotten: Vec::new(),
    }
}

/// Nothing new: the high watermark is 100 and the log starts at 0.
const QUIET: FetchOutcome = FetchOutcome {
    high_watermark: Offset(100),
    log_start_offset: Offset(0),
    has_records: false,
    has_error: false,
    has_preferred_replica: false,
    has_diverging_epoch: false,
};

const RECORDS: FetchOutcome = FetchOutcome {
    has_records: true,
    ..QUIET
};

/// A shard's cache with a counter in place of chance.
struct Shard {
    cache: FetchSessionCache,
    draws: u32,
}

impl Shard {
    fn new(slots: usize) -> Self {
        Self {
            cache: FetchSessionCache::new(slots, ShardId(0), 1),
            draws: 0,
        }
    }

    /// The whole of a request in which every partition has the same outcome: the session id and
    /// the partitions fetched.
    fn fetch(
        &mut self,
        request: FetchRequestView,
        outcome: FetchOutcome,
        now: TimestampMs,
    ) -> Result<(i32, Vec<FetchPartition>), SessionError> {
        let context = self.cache.begin(request, now)?;
        let partitions = context.partitions.clone();
        let outcomes = vec![outcome; partitions.len()];
        let answer = self.finish(context, &outcomes, now)?;
        Ok((answer.session_id, partitions))
    }

    fn finish(
        &mut self,
        context: FetchContext,
        outcomes: &[FetchOutcome],
        now: TimestampMs,
    ) -> Result<FetchAnswer, SessionError> {
        let draws = &mut self.draws;
        self.cache.finish(context, outcomes, now, || {
            *draws += 1;
            *draws
        })
    }

    /// A new session of `count` partitions; 0 where it was refused.
    fn open(&mut self, count: i32, now: TimestampMs) -> i32 {
        self.open_as(count, false, now)
    }

    fn open_as(&mut self, count: i32, from_follower: bool, now: TimestampMs) -> i32 {
        let mut request = request((0, 0), (0..count).map(|index| ask(index, 0)).collect());
        request.from_follower = from_follower;
        self.fetch(request, QUIET, now).expect("a full fetch").0
    }
}

fn numbers(partitions: &[FetchPartition]) -> Vec<i32> {
    partitions.iter().map(|one| one.partition).collect()
}

#[test]
fn a_full_fetch_opens_a_session_and_an_empty_incremental_one_fetches_it_all() {
    let mut shard = Shard::new(10);
    let (id, _) = shard
        .fetch(request((0, 0), vec![ask(0, 5), ask(1, 7)]), QUIET, START)
        .expect("a full fetch");
    assert_ne!(id, NO_SESSION);
    let context = shard.cache.begin(request((id, 1), vec![]), START);
    let context = context.expect("the epoch is the expected one");
    assert!(context.is_incremental());
    assert_eq!(context.partitions, [ask(0, 5), ask(1, 7)]);
    let answer = shard.finish(context, &[QUIET, QUIET], START);
    assert_eq!(
        answer,
        Ok(FetchAnswer {
            session_id: id,
            included: vec![false, false]
        }),
        "nothing new, nothing said"
    );
}

#[test]
fn a_final_epoch_fetches_without_a_session_and_closes_the_old_one() {
    let mut shard = Shard::new(10);
    let id = shard.open(2, START);
    let (none, partitions) = shard
        .fetch(request((id, FINAL_EPOCH), vec![ask(0, 5)]), QUIET, START)
        .expect("a full fetch");
    assert_eq!((none, numbers(&partitions)), (NO_SESSION, vec![0]));
    assert!(shard.cache.is_empty());
    assert_eq!(shard.cache.partition_count(), 0);
    let gone = shard.cache.begin(request((id, 1), vec![]), START);
    assert_eq!(gone.err(), Some(SessionError::IdNotFound));
}

#[test]
fn a_full_fetch_with_an_id_replaces_that_session() {
    let mut shard = Shard::new(10);
    let first = shard.open(2, START);
    let (second, _) = shard
        .fetch(request((first, 0), vec![ask(0, 0)]), QUIET, START)
        .expect("a full fetch");
    assert_ne!(first, second);
    assert_eq!(shard.cache.len(), 1);
    assert_eq!(shard.cache.partition_count(), 1);
}

#[test]
fn epochs_must_follow_each_other() {
    let mut shard = Shard::new(10);
    let id = shard.open(1, START);
    assert!(shard.fetch(request((id, 1), vec![]), QUIET, START).is_ok());
    let table = [
        ((id, 1), SessionError::InvalidEpoch, "a repeated request"),
        ((id, 3), SessionError::InvalidEpoch, "one that runs ahead"),
        ((id, -7), SessionError::InvalidEpoch, "a negative epoch"),
        ((id + 1, 2), SessionError::IdNotFound, "another id"),
        ((NO_SESSION, 2), SessionError::IdNotFound, "no id"),
        ((-5, 2), SessionError::IdNotFound, "a negative id"),
    ];
    for (session, error, name) in table {
        let found = shard.cache.begin(request(session, vec![]), START);
        assert_eq!(found.err(), Some(error), "{name}");
    }
    assert!(shard.fetch(request((id, 2), vec![]), QUIET, START).is_ok());
}

#[test]
fn epochs_wrap_to_one() {
    assert_eq!(next_epoch(0), 1);
    assert_eq!(next_epoch(i32::MAX - 1), i32::MAX);
    assert_eq!(next_epoch(i32::MAX), 1);
}

#[test]
fn a_session_by_ids_refuses_names_and_the_reverse() {
    let mut shard = Shard::new(10);
    let by_id = shard.open(1, START);
    let mut named = request((0, 0), vec![by_name("t", 0)]);
    named.version = 12;
    let (by_name_id, _) = shard.fetch(named, QUIET, START).expect("a full fetch");
    let mut wrong = request((by_id, 1), vec![]);
    wrong.version = 12;
    let wrong = [wrong, request((by_name_id, 1), vec![])];
    for request in wrong {
        let found = shard.cache.begin(request, START);
        assert_eq!(found.err(), Some(SessionError::TopicIdError));
    }
}

#[test]
fn sessions_by_name_tell_topics_apart() {
    let mut shard = Shard::new(10);
    let mut full = request((0, 0), vec![by_name("a", 0), by_name("b", 0)]);
    full.version = 11;
    let (id, _) = shard.fetch(full, QUIET, START).expect("a full fetch");
    let mut next = request((id, 1), vec![]);
    next.version = 11;
    next.forgotten = vec![ForgottenPartition {
        topic: Some(Arc::from("a")),
        topic_id: TopicId::ZERO,
        partition: 0,
    }];
    let context = shard.cache.begin(next, START).expect("incremental");
    assert_eq!(context.partitions, [by_name("b", 0)]);
}

#[test]
fn an_answer_names_what_has_something_to_say() {
    let with = |change: fn(&mut FetchOutcome)| {
        let mut outcome = QUIET;
        change(&mut outcome);
        outcome
    };
    let table = [
        ("silence", QUIET, false),
        ("records", RECORDS, true),
        (
            "a higher watermark",
            with(|one| one.high_watermark = Offset(101)),
            true,
        ),
        (
            "a moved log start",
            with(|one| one.log_start_offset = Offset(1)),
            true,
        ),
        ("an error", with(|one| one.has_error = true), true),
        (
            "a preferred replica",
            with(|one| one.has_preferred_replica = true),
            true,
        ),
        (
            "a diverging epoch",
            with(|one| one.has_diverging_epoch = true),
            true,
        ),
    ];
    for (name, outcome, included) in table {
        let mut shard = Shard::new(10);
        let id = shard.open(1, START);
        let mut epoch = 1;
        let mut next = |shard: &mut Shard, outcome| {
            let context = shard.cache.begin(request((id, epoch), vec![]), START);
            epoch += 1;
            let context = context.expect("incremental");
            let answer = shard.finish(context, &[outcome], START);
            answer.expect("the session lives").included == [true]
        };
        assert_eq!(next(&mut shard, outcome), included, "{name}");
        // What was told is not told again, unless it is told every time.
        let every_time = outcome.has_records
            || outcome.has_error
            || outcome.has_preferred_replica
            || outcome.has_diverging_epoch;
        assert_eq!(next(&mut shard, outcome), every_time, "{name} again");
    }
}

#[test]
fn the_end_of_an_error_is_told_even_if_nothing_else_changed() {
    let error = FetchOutcome {
        has_error: true,
        ..QUIET
    };
    let mut shard = Shard::new(10);
    let (id, _) = shard
        .fetch(request((0, 0), vec![ask(0, 0)]), error, START)
        .expect("a full fetch");
    for (epoch, outcome, included) in [
        (1, QUIET, true),
        (2, error, true),
        (3, QUIET, true),
        (4, QUIET, false),
    ] {
        let context = shard.cache.begin(request((id, epoch), vec![]), START);
        let context = context.expect("incremental");
        let answer = shard.finish(context, &[outcome], START).expect("it lives");
        assert_eq!(answer.included, [included], "epoch {epoch}");
    }
}

#[test]
fn the_newest_request_decides_the_offset() {
    let mut shard = Shard::new(10);
    let id = shard.open(2, START);
    // The client got records up to 50 and says so; what the answer holds does not move it.
    shard
        .fetch(request((id, 1), vec![ask(1, 50)]), RECORDS, START)
        .expect("incremental");
    let context = shard.cache.begin(request((id, 2), vec![]), START);
    let offsets: Vec<_> = context
        .expect("incremental")
        .partitions
        .iter()
        .map(|one| (one.partition, one.fetch_offset.0))
        .collect();
    assert_eq!(offsets, [(0, 0), (1, 50)]);
}

#[test]
fn an_older_request_that_finishes_late_is_refused() {
    let mut shard = Shard::new(10);
    let id = shard.open(1, START);
    let first = shard.cache.begin(request((id, 1), vec![]), START);
    let first = first.expect("incremental");
    let second = shard.cache.begin(request((id, 2), vec![ask(0, 9)]), START);
    let second = second.expect("the next epoch");
    assert_eq!(
        shard.finish(first, &[RECORDS], START),
        Err(SessionError::InvalidEpoch)
    );
    assert!(shard.finish(second, &[RECORDS], START).is_ok());
}

#[test]
fn a_session_that_was_closed_meanwhile_is_not_found() {
    let mut shard = Shard::new(10);
    let id = shard.open(1, START);
    let context = shard.cache.begin(request((id, 1), vec![]), START);
    let context = context.expect("incremental");
    let closing = request((id, FINAL_EPOCH), vec![]);
    shard.fetch(closing, QUIET, START).expect("a full fetch");
    assert_eq!(
        shard.finish(context, &[RECORDS], START),
        Err(SessionError::IdNotFound)
    );
}

#[test]
fn partitions_are_added_changed_and_forgotten() {
    let mut shard = Shard::new(10);
    let id = shard.open(3, START);
    let mut next = request((id, 1), vec![ask(7, 70), ask(1, 11)]);
    next.forgotten = vec![forget(0), forget(99)];
    let context = shard.cache.begin(next, START).expect("incremental");
    assert_eq!(context.partitions, [ask(1, 11), ask(2, 0), ask(7, 70)]);
    assert_eq!(shard.cache.partition_count(), 3);
    let answer = shard.finish(context, &[QUIET; 3], START).expect("it lives");
    assert_eq!(
        answer.included,
        [false, false, true],
        "the new one was never heard of"
    );
}

#[test]
fn a_partition_that_is_changed_and_forgotten_at_once_is_gone() {
    let mut shard = Shard::new(10);
    let id = shard.open(2, START);
    let mut next = request((id, 1), vec![ask(0, 5)]);
    next.forgotten = vec![forget(0)];
    let context = shard.cache.begin(next, START).expect("incremental");
    assert_eq!(numbers(&context.partitions), [1]);
}

#[test]
fn a_session_without_partitions_is_closed() {
    let mut shard = Shard::new(10);
    let id = shard.open(2, START);
    let mut next = request((id, 1), vec![]);
    next.forgotten = vec![forget(0), forget(1)];
    let (session, partitions) = shard.fetch(next, QUIET, START).expect("it is sessionless");
    assert_eq!((session, partitions.len()), (NO_SESSION, 0));
    assert!(shard.cache.is_empty());
    assert_eq!(shard.cache.partition_count(), 0);
}

#[test]
fn what_got_records_goes_to_the_end() {
    let mut shard = Shard::new(10);
    let id = shard.open(3, START);
    let context = shard.cache.begin(request((id, 1), vec![]), START);
    let context = context.expect("incremental");
    assert_eq!(numbers(&context.partitions), [0, 1, 2]);
    let moved_mark = FetchOutcome {
        high_watermark: Offset(101),
        ..QUIET
    };
    shard
        .finish(context, &[RECORDS, moved_mark, QUIET], START)
        .expect("the session lives");
    let context = shard.cache.begin(request((id, 2), vec![]), START);
    let context = context.expect("incremental");
    assert_eq!(numbers(&context.partitions), [1, 2, 0]);
}

#[test]
fn a_partition_named_twice_counts_once_with_its_last_word() {
    let mut shard = Shard::new(10);
    for epoch in [INITIAL_EPOCH, FINAL_EPOCH] {
        let asked = vec![ask(0, 1), ask(1, 2), ask(0, 3)];
        let (_, partitions) = shard
            .fetch(request((0, epoch), asked), QUIET, START)
            .expect("a full fetch");
        assert_eq!(partitions, [ask(0, 3), ask(1, 2)]);
    }
    assert_eq!(shard.cache.partition_count(), 2);
}

#[test]
fn a_full_cache_gives_no_session_while_all_are_young() {
    let mut shard = Shard::new(2);
    assert_ne!(shard.open(1, START), NO_SESSION);
    assert_ne!(shard.open(1, START), NO_SESSION);
    assert_eq!(shard.open(50, later(120_000)), NO_SESSION);
    assert_eq!(shard.cache.evictions(), 0);
}

#[test]
fn the_longest_unused_session_is_evicted_after_two_minutes() {
    let mut shard = Shard::new(2);
    let first = shard.open(5, START);
    let second = shard.open(5, later(10));
    let third = shard.open(1, later(120_001));
    assert_ne!(third, NO_SESSION);
    let begin = |shard: &mut Shard, id| shard.cache.begin(request((id, 1), vec![]), later(120_002));
    assert_eq!(
        begin(&mut shard, first).err(),
        Some(SessionError::IdNotFound)
    );
    assert!(begin(&mut shard, second).is_ok());
    assert_eq!(
        (shard.cache.evictions(), shard.cache.partition_count()),
        (1, 6)
    );
}

#[test]
fn a_larger_session_evicts_a_smaller_old_one_that_is_still_used() {
    let mut shard = Shard::new(2);
    let small = shard.open(2, START);
    let large = shard.open(5, START);
    for id in [small, large] {
        let used = request((id, 1), vec![]);
        shard.fetch(used, QUIET, later(120_001)).expect("it lives");
    }
    let now = later(120_002);
    assert_eq!(shard.open(1, now), NO_SESSION, "smaller than both");
    assert_eq!(
        shard.open(2, now),
        NO_SESSION,
        "not larger than the smaller one"
    );
    assert_ne!(shard.open(3, now), NO_SESSION);
    let gone = shard.cache.begin(request((small, 2), vec![]), now);
    assert_eq!(gone.err(), Some(SessionError::IdNotFound));
}

#[test]
fn a_follower_evicts_a_young_consumer_and_no_consumer_a_young_follower() {
    let mut shard = Shard::new(2);
    let follower = shard.open_as(1, true, START);
    let consumer = shard.open(50, START);
    assert_eq!(shard.open(60, START), NO_SESSION);
    assert_ne!(shard.open_as(1, true, START), NO_SESSION);
    let gone = shard.cache.begin(request((consumer, 1), vec![]), START);
    assert_eq!(gone.err(), Some(SessionError::IdNotFound));
    assert_eq!(
        shard.open_as(9, true, START),
        NO_SESSION,
        "all are young followers"
    );
    assert!(
        shard
            .cache
            .begin(request((follower, 1), vec![]), START)
            .is_ok()
    );
}

#[test]
fn without_slots_every_fetch_is_sessionless() {
    let mut shard = Shard::new(0);
    assert_eq!(shard.open(1, START), NO_SESSION);
}

#[test]
fn the_partitions_of_all_sessions_are_limited() {
    let mut shard = Shard::new(10);
    shard.cache.partitions_max = 10;
    let id = shard.open(8, START);
    assert_eq!(shard.open(3, START), NO_SESSION, "11 in all");
    let grown = request((id, 1), (100..103).map(|index| ask(index, 0)).collect());
    let found = shard.cache.begin(grown, START);
    assert_eq!(found.err(), Some(SessionError::IdNotFound));
    assert_eq!((shard.cache.len(), shard.cache.partition_count()), (0, 0));
}

#[test]
fn shards_share_the_slots_and_never_an_id() {
    let mut seen = BTreeSet::new();
    for index in 0..3 {
        let mut cache = FetchSessionCache::new(1_000, ShardId(index), 3);
        assert_eq!(cache.slots, 334);
        for random in [0, 1, 715_827_880, u32::MAX] {
            let context = cache.begin(request((0, 0), vec![]), START);
            let context = context.expect("a full fetch");
            let answer = cache.finish(context, &[], START, || random);
            let id = answer.expect("a full fetch").session_id;
            assert!(id > 0, "shard {index}, random {random}: {id}");
            assert!(seen.insert(id), "shard {index}: {id} is taken");
        }
    }
}

#[test]
fn an_id_in_use_is_not_given_again() {
    let mut cache = FetchSessionCache::new(10, ShardId(0), 1);
    let mut open = |mut draws: Vec<u32>| {
        let context = cache.begin(request((0, 0), vec![]), START);
        let context = context.expect("a full fetch");
        let answer = cache.finish(context, &[], START, || draws.pop().unwrap_or(0));
        answer.expect("a full fetch").session_id
    };
    let first = open(vec![41]);
    let second = open(vec![77, 41]);
    assert_eq!((first, second), (42, 78));
    assert_eq!(open(vec![41; 64]), NO_SESSION, "chance gave nothing else");
}

/// What a client remembers of each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    offset: i64,
    high_watermark: i64,
}

proptest! {
    /// A client that plays by the rules always learns of every record and every high watermark,
    /// whatever it adds and forgets, and whatever answers get lost (it then starts over).
    #[test]
    fn a_client_learns_all_that_happens(
        steps in prop::collection::vec((0_u8..6, 0_usize..6, 1_i64..4), 1..80),
    ) {
        let mut shard = Shard::new(2);
        let mut log_ends = [0_i64; 6];
        let mut known: HashMap<i32, Known> = HashMap::new();
        let mut session = (NO_SESSION, INITIAL_EPOCH);
        let mut changed: BTreeSet<i32> = BTreeSet::new();
        let mut forgotten: Vec<ForgottenPartition> = Vec::new();
        for (action, which, amount) in steps {
            let partition = i32::try_from(which).expect("small");
            match action {
                0 => log_ends[which] += amount,
                1 if !known.contains_key(&partition)
                    && forgotten.iter().all(|one| one.partition != partition) =>
                {
                    known.insert(partition, Known { offset: 0, high_watermark: -1 });
                    changed.insert(partition);
                    continue;
                }
                2 if known.remove(&partition).is_some() => {
                    changed.remove(&partition);
                    forgotten.push(forget(partition));
                    continue;
                }
                _ => {}
            }
            let full = session.1 == INITIAL_EPOCH;
            let asked: Vec<_> = if full {
                known.iter().map(|(number, one)| ask(*number, one.offset)).collect()
            } else {
                changed.iter().map(|number| ask(*number, known[number].offset)).collect()
            };
            let mut fetch = request(session, asked);
            if !full {
                fetch.forgotten = std::mem::take(&mut forgotten);
            }
            forgotten.clear();
            changed.clear();
            let context = shard.cache.begin(fetch, START).expect("the client plays by the rules");
            let fetched: BTreeSet<_> = numbers(&context.partitions).into_iter().collect();
            prop_assert_eq!(&fetched, &known.keys().copied().collect::<BTreeSet<_>>());
            let partitions = context.partitions.clone();
            let outcomes: Vec<_> = partitions
                .iter()
                .map(|one| {
                    let end = log_ends[usize::try_from(one.partition).expect("small")];
                    FetchOutcome {
                        high_watermark: Offset(end),
                        log_start_offset: Offset(0),
                        has_records: one.fetch_offset.0 < end,
                        ..QUIET
                    }
                })
                .collect();
            let answer = shard.finish(context, &outcomes, START).expect("nobody else is here");
            if action == 5 {
                // The answer is lost: start over, leaving the session to its fate.
                session = (NO_SESSION, INITIAL_EPOCH);
                continue;
            }
            for ((asked, outcome), included) in partitions.iter().zip(&outcomes).zip(&answer.included) {
                let one = known.get_mut(&asked.partition).expect("only what was asked");
                if *included {
                    one.high_watermark = outcome.high_watermark.0;
                    if outcome.has_records {
                        one.offset = outcome.high_watermark.0;
                        changed.insert(asked.partition);
                    }
                }
                prop_assert_eq!(one.offset, outcome.high_watermark.0);
                prop_assert_eq!(one.high_watermark, outcome.high_watermark.0);
            }
            session = match answer.session_id {
                NO_SESSION => (NO_SESSION, INITIAL_EPOCH),
                id if full => (id, 1),
                id => (id, next_epoch(session.1)),
            };
        }
        let total: usize = shard.cache.sessions.values().map(Session::len).sum();
        prop_assert_eq!(shard.cache.partition_count(), total);
    }
}
