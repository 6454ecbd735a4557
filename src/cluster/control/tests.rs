use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use futures_lite::future::zip;

use super::super::controller::{Defaults, ProducerIdBlock};
use super::super::store::LocalMetadataStore;
use super::*;
use crate::base::{NodeId, ProducerId, TopicId};

const CLUSTER_ID: &str = "AAECAwQFBgcICQoLDA0ODw";

/// What happened, in order.
#[derive(Debug, PartialEq, Eq, Clone)]
enum Event {
    Appended(usize),
    Published(i64),
    Snapshot(i64),
    Answered,
}

/// A store that notes what it is asked for, and fails when told to.
struct NotingStore {
    events: Rc<RefCell<Vec<Event>>>,
    failures: VecDeque<StoreError>,
    offset: i64,
    is_snapshot_due: bool,
}

impl MetadataStore for NotingStore {
    fn append(&mut self, records: &[MetadataRecord]) -> Result<i64, StoreError> {
        if let Some(error) = self.failures.pop_front() {
            return Err(error);
        }
        self.events
            .borrow_mut()
            .push(Event::Appended(records.len()));
        self.offset += records.len() as i64;
        Ok(self.offset)
    }

    fn is_snapshot_due(&self) -> bool {
        self.is_snapshot_due
    }

    fn snapshot(&mut self, image: &MetadataImage) -> Result<(), StoreError> {
        self.events
            .borrow_mut()
            .push(Event::Snapshot(image.version()));
        Ok(())
    }
}

fn context() -> ControllerContext {
    ControllerContext {
        defaults: Defaults::default(),
        new_topic_id: Box::new(TopicId::random),
        validate_topic_configs: Box::new(|_| Ok(())),
        validate_broker_configs: Box::new(|_| Ok(())),
    }
}

fn broker() -> BrokerImage {
    BrokerImage {
        id: NodeId(1),
        host: "127.0.0.1".to_owned(),
        port: 9092,
        rack: None,
        fenced: false,
    }
}

fn image() -> MetadataImage {
    MetadataImage::empty(CLUSTER_ID)
        .with(&[MetadataRecord::BrokerRegistered(broker())])
        .unwrap()
}

/// Runs the loop on a noting store beside a client; what happened, and how the loop ended.
fn run_with<T>(
    failures: Vec<StoreError>,
    is_snapshot_due: bool,
    client: impl AsyncFnOnce(ControlHandle, Rc<RefCell<Vec<Event>>>) -> T,
) -> (T, Vec<Event>, Result<(), StoreError>) {
    let events = Rc::new(RefCell::new(Vec::new()));
    let store = NotingStore {
        events: events.clone(),
        failures: failures.into(),
        offset: 1,
        is_snapshot_due,
    };
    let (handle, receiver) = control_channel();
    let published = events.clone();
    let publish = async |image: Arc<MetadataImage>| {
        // Others get a turn before the shards have it.
        futures_lite::future::yield_now().await;
        published
            .borrow_mut()
            .push(Event::Published(image.version()));
    };
    let control = run(store, image(), receiver, context(), publish);
    let (end, result) =
        futures_lite::future::block_on(zip(control, client(handle, events.clone())));
    let events = events.borrow().clone();
    (result, events, end)
}

fn named(name: &str) -> Vec<NewTopic> {
    vec![NewTopic::with_defaults(name)]
}

#[test]
fn a_reply_comes_after_the_append_and_the_publication() {
    let (results, events, end) = run_with(vec![], true, async |handle, events| {
        let results = handle.create_topics(named("t"), false).await.unwrap();
        events.borrow_mut().push(Event::Answered);
        results
    });
    assert!(results[0].result.is_ok());
    assert_eq!(events[..2], [Event::Appended(1), Event::Published(2)]);
    assert!(events.contains(&Event::Answered) && events.contains(&Event::Snapshot(2)));
    end.unwrap();
}

#[test]
fn commands_that_wait_together_share_an_append_and_see_each_other() {
    let ((first, second), events, end) = run_with(vec![], false, async |handle, _| {
        zip(
            handle.create_topics(named("t"), false),
            handle.create_topics(named("t"), false),
        )
        .await
    });
    assert!(first.unwrap()[0].result.is_ok());
    let error = second.unwrap()[0].result.clone().unwrap_err();
    assert_eq!(error.kind, ControllerErrorKind::TopicAlreadyExists);
    assert_eq!(events, [Event::Appended(1), Event::Published(2)]);
    end.unwrap();
}

#[test]
fn what_changes_nothing_is_answered_without_an_append() {
    let (results, events, end) = run_with(vec![], false, async |handle, _| {
        handle.register_broker(broker()).await.unwrap();
        handle.create_topics(named("t"), true).await.unwrap()
    });
    assert!(results[0].result.is_ok());
    assert_eq!(events, []);
    end.unwrap();
}

#[test]
fn a_refused_append_is_an_error_to_the_client_and_no_change() {
    let full = StoreError::DiskFull {
        path: "metadata".into(),
    };
    let ((first, second), events, end) = run_with(vec![full], false, async |handle, _| {
        (
            handle.create_topics(named("t"), false).await,
            handle.create_topics(named("t"), false).await,
        )
    });
    let error = first.unwrap_err();
    assert_eq!(error.kind, ControllerErrorKind::StorageError);
    assert!(error.message.contains("is full"), "{error}");
    assert!(
        second.unwrap()[0].result.is_ok(),
        "the refused topic was there"
    );
    assert_eq!(events, [Event::Appended(1), Event::Published(2)]);
    end.unwrap();
}

#[test]
fn a_failed_append_ends_the_loop_and_every_command_is_answered() {
    let ((first, second, third), events, end) =
        run_with(vec![StoreError::Stopped], false, async |handle, _| {
            let both = zip(
                handle.create_topics(named("a"), false),
                handle.allocate_producer_ids(),
            );
            let (first, second) = both.await;
            (first, second, handle.allocate_producer_ids().await)
        });
    assert_eq!(first.unwrap_err().kind, ControllerErrorKind::StorageError);
    assert_eq!(second.unwrap_err().kind, ControllerErrorKind::StorageError);
    assert_eq!(third.unwrap_err().kind, ControllerErrorKind::NotController);
    assert_eq!(events, []);
    assert!(matches!(end, Err(StoreError::Stopped)));
}

#[test]
fn a_change_too_large_for_one_batch_is_refused_alone() {
    let huge = NewTopic {
        configs: vec![("k".to_owned(), Some("v".repeat(BATCH_BYTES_MAX)))],
        ..NewTopic::with_defaults("huge")
    };
    let ((first, second), _, end) = run_with(vec![], false, async |handle, _| {
        zip(
            handle.create_topics(vec![huge.clone()], false),
            handle.create_topics(named("small"), false),
        )
        .await
    });
    assert_eq!(
        first.unwrap_err().kind,
        ControllerErrorKind::PolicyViolation
    );
    assert!(second.unwrap()[0].result.is_ok());
    end.unwrap();
}

#[test]
fn a_control_thread_serves_other_threads_and_restarts_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let (handle, receiver) = control_channel();
        let path = directory.path().to_owned();
        let control = std::thread::spawn(move || {
            let (store, image) = LocalMetadataStore::open(&path, CLUSTER_ID).unwrap();
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(run(store, image, receiver, context(), async |_| ()))
        });
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let handle = handle.clone();
                std::thread::spawn(move || {
                    futures_lite::future::block_on(async {
                        handle.register_broker(broker()).await.unwrap();
                        let name = format!("t-{round}-{client}");
                        let results = handle.create_topics(named(&name), false).await.unwrap();
                        results[0].result.clone().unwrap();
                        handle.allocate_producer_ids().await.unwrap()
                    })
                })
            })
            .collect();
        drop(handle);
        let mut blocks: Vec<i64> = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .map(
                |ProducerIdBlock {
                     first: ProducerId(first),
                     ..
                 }| first,
            )
            .collect();
        control.join().unwrap().unwrap();
        blocks.sort_unstable();
        let expected: Vec<i64> = (0..4).map(|index| (round * 4 + index) * 1000).collect();
        assert_eq!(blocks, expected);
    }
    let (_, image) = LocalMetadataStore::open(directory.path(), CLUSTER_ID).unwrap();
    assert_eq!(image.topic_count(), 12);
}
