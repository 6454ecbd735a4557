//! Real clients (librdkafka) with the settings that the tests share.
#![allow(dead_code)] // each test binary uses its own part of this module

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, ProducerContext};

pub fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("broker.address.family", "v4")
        // A killed broker is back within a second: look for it as often.
        .set("reconnect.backoff.ms", "20")
        .set("reconnect.backoff.max.ms", "200")
        .set("topic.metadata.refresh.fast.interval.ms", "50");
    config
}

pub fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    config(bootstrap).create().expect("an admin client")
}

/// What became of each record: its number, and the offset that it got.
#[derive(Clone, Default)]
pub struct Deliveries(Arc<Mutex<Delivered>>);

#[derive(Default)]
pub struct Delivered {
    /// (number, partition, offset) in the order of the reports.
    pub acknowledged: Vec<(usize, i32, i64)>,
    pub failed: Vec<(usize, String)>,
}

impl Deliveries {
    pub fn with<T>(&self, look: impl FnOnce(&mut Delivered) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    pub fn acknowledged_count(&self) -> usize {
        self.with(|it| it.acknowledged.len())
    }
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<usize>) {
        self.with(|it| match result {
            Ok(message) => {
                let place = (*number, message.partition(), message.offset());
                it.acknowledged.push(place);
            }
            Err((error, _)) => it.failed.push((*number, error.to_string())),
        });
    }
}

pub fn producer(config: &ClientConfig, deliveries: &Deliveries) -> BaseProducer<Deliveries> {
    config
        .create_with_context(deliveries.clone())
        .expect("a producer")
}

/// Hands a record over, serving delivery reports while the queue is full.
pub fn send(
    producer: &BaseProducer<Deliveries>,
    mut record: BaseRecord<'_, [u8], [u8], Box<usize>>,
) {
    loop {
        match producer.send(record) {
            Ok(()) => return,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                producer.poll(Duration::from_millis(5));
                record = back;
            }
            Err((error, _)) => panic!("the record is not taken: {error}"),
        }
    }
}

/// A consumer of these partitions from their beginning. There is no group behind it.
pub fn consumer(bootstrap: &str, topic: &str, partitions: i32) -> BaseConsumer {
    let consumer: BaseConsumer = config(bootstrap)
        .set("group.id", "ringmain-tests")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true")
        .set("fetch.wait.max.ms", "100")
        .set("queued.min.messages", "200000")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, Offset::Offset(0))
            .expect("an offset");
    }
    consumer.assign(&list).expect("the partitions are assigned");
    consumer
}

/// Hands `count` messages to `take`; panics if they do not come within `patience`.
pub fn consume(
    consumer: &BaseConsumer,
    count: usize,
    patience: Duration,
    mut take: impl FnMut(&BorrowedMessage<'_>),
) {
    let end = Instant::now() + patience;
    let mut got = 0;
    while got < count {
        assert!(
            Instant::now() < end,
            "{got} of {count} messages within {patience:?}"
        );
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => {
                take(&message);
                got += 1;
            }
            Some(Err(error)) if is_passing(&error) => {}
            Some(Err(error)) => panic!("after {got} of {count} messages: {error}"),
            None => {}
        }
    }
}

/// Errors that a client rides out by itself: a broken connection, and no coordinator to be found.
fn is_passing(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::UnsupportedFeature
                | RDKafkaErrorCode::OperationTimedOut
        )
    )
}
