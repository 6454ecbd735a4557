//! From a frame to its handler.

use std::rc::Rc;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, Encodable};
use tracing::{debug, error, warn};

use super::errors::ResponseError;
use super::{Broker, configs, fetch, metadata, offsets, produce, producer_ids, topics};
use crate::io::disk::Disk;
use crate::io::executor;
use crate::net::{ConnectionContext, Frame, Outcome, Reply, ReplyCharge, Service, Started};
use crate::protocol::api_versions::{self, ClientSoftware};
use crate::protocol::fetch::FetchRequest;
use crate::protocol::frame::{RequestHeader, encode_response};
use crate::protocol::{DecodeError, decode, versions};
use crate::shard::messages::{ShardDisk, SharedFile};

pub type BrokerOutcome = Outcome<SharedFile>;
pub type BrokerStarted = Started<SharedFile>;

/// The service of one shard's connections.
#[derive(Clone)]
pub struct BrokerService(pub Rc<Broker>);

impl Service<<ShardDisk as Disk>::File> for BrokerService {
    async fn start(
        &self,
        context: &ConnectionContext,
        frame: Frame,
        charge: &Rc<ReplyCharge>,
    ) -> BrokerStarted {
        let header = match RequestHeader::parse(&frame.bytes) {
            Ok(header) => header,
            Err(error) => return close(format!("a malformed request header: {error}")),
        };
        let api_key = header.api_key;
        self.0.shard().metrics().count_request(api_key);
        let started = self.start_parsed(header, frame, charge).await;
        if let Started::Done(Outcome::Close(reason)) = &started {
            self.0.shard().metrics().count_error(api_key);
            warn!(peer = %context.peer, reason, "closing a connection");
        }
        started
    }

    fn count_bytes(&self, received: u64, sent: u64) {
        self.0.shard().metrics().count_bytes(received, sent);
    }
}

fn close(reason: String) -> BrokerStarted {
    Started::Done(Outcome::Close(reason))
}

fn done(bytes: Bytes) -> BrokerStarted {
    Started::Done(Outcome::Reply(Reply::from_bytes(bytes)))
}

impl BrokerService {
    async fn start_parsed(
        &self,
        header: RequestHeader,
        frame: Frame,
        charge: &Rc<ReplyCharge>,
    ) -> BrokerStarted {
        let Some(api) = versions::find(header.api_key) else {
            return close(format!(
                "API key {} (version {}) is not served: see the answer to ApiVersions",
                header.api_key, header.api_version
            ));
        };
        if api.key == ApiKey::ApiVersions {
            return done(handshake(&header, &frame.bytes));
        }
        if !api.serves(header.api_version) {
            // The client would read the response in the version that it asked for, which nobody
            // here can write. Kafka closes, too.
            return close(format!(
                "version {} of {:?} is not served: {} to {} are",
                header.api_version, api.key, api.served_min, api.max
            ));
        }
        match api.key {
            ApiKey::Produce => produce::produce(&self.0, header, frame).await,
            ApiKey::Fetch => self.start_fetch(header, frame, charge),
            // The rest is rare and short: one at a time on a connection, as in Kafka.
            _ => match self.answer(api.key, &header, frame).await {
                Ok(bytes) => done(bytes),
                Err(reason) => close(reason),
            },
        }
    }

    /// A fetch may wait: it goes on in a task while the connection's next requests start.
    fn start_fetch(
        &self,
        header: RequestHeader,
        frame: Frame,
        charge: &Rc<ReplyCharge>,
    ) -> BrokerStarted {
        let body = frame.bytes.get(header.body_start..).unwrap_or_default();
        match FetchRequest::decode(body, header.api_version) {
            Ok(request) => {
                let (broker, charge) = (Rc::clone(&self.0), Rc::clone(charge));
                let bytes_max = fetch::response_bytes_max(&broker, &request, charge.is_core_over());
                charge.expect(bytes_max);
                let task = executor::spawn_local(async move {
                    let outcome = fetch::fetch(broker, header, request, bytes_max).await;
                    if let Outcome::Reply(reply) = &outcome {
                        // From now on, not only when its turn to be sent has come.
                        charge.settle(reply.memory_bytes());
                    }
                    outcome
                });
                Started::Pending(Box::pin(task))
            }
            Err(error) => close(format!("a malformed Fetch request: {error}")),
        }
    }

    async fn answer(
        &self,
        key: ApiKey,
        header: &RequestHeader,
        frame: Frame,
    ) -> Result<Bytes, String> {
        let broker = &*self.0;
        let version = header.api_version;
        let mut body = frame.bytes.freeze();
        body.advance(header.body_start.min(body.len()));
        let request = Request { header, body };
        match key {
            ApiKey::Metadata => {
                let asked = request.decode()?;
                request.encode(&metadata::metadata(broker, version, asked).await)
            }
            ApiKey::DescribeCluster => {
                request.encode(&metadata::describe_cluster(broker, request.decode()?))
            }
            ApiKey::DescribeTopicPartitions => request.encode(
                &metadata::describe_topic_partitions(broker, request.decode()?),
            ),
            ApiKey::CreateTopics => {
                request.encode(&topics::create_topics(broker, request.decode()?).await)
            }
            ApiKey::DeleteTopics => {
                request.encode(&topics::delete_topics(broker, version, request.decode()?).await)
            }
            ApiKey::CreatePartitions => {
                request.encode(&topics::create_partitions(broker, request.decode()?).await)
            }
            ApiKey::DescribeConfigs => {
                request.encode(&configs::describe_configs(broker, request.decode()?))
            }
            ApiKey::AlterConfigs => {
                request.encode(&configs::alter_configs(broker, request.decode()?).await)
            }
            ApiKey::IncrementalAlterConfigs => {
                request.encode(&configs::incremental_alter_configs(broker, request.decode()?).await)
            }
            ApiKey::ListOffsets => {
                request.encode(&offsets::list_offsets(broker, version, request.decode()?).await)
            }
            ApiKey::OffsetForLeaderEpoch => {
                request.encode(&offsets::offset_for_leader_epoch(broker, request.decode()?).await)
            }
            ApiKey::DeleteRecords => {
                request.encode(&offsets::delete_records(broker, request.decode()?).await)
            }
            ApiKey::InitProducerId => {
                request.encode(&producer_ids::init_producer_id(broker, request.decode()?).await)
            }
            other => Err(format!("{other:?} is advertised but has no handler")),
        }
    }
}

/// A request whose header was read.
struct Request<'a> {
    header: &'a RequestHeader,
    body: Bytes,
}

impl Request<'_> {
    fn decode<T: Decodable>(&self) -> Result<T, String> {
        decode(
            self.header.api_key,
            self.header.api_version,
            self.body.clone(),
        )
        .map_err(|error: DecodeError| {
            format!(
                "a malformed request of API key {} version {}: {error}",
                self.header.api_key, self.header.api_version
            )
        })
    }

    fn encode(&self, response: &impl Encodable) -> Result<Bytes, String> {
        encode_response(self.header, response).map_err(|reason| {
            error!(
                api_key = self.header.api_key,
                version = self.header.api_version,
                reason,
                "a response cannot be encoded; this is a defect of ours"
            );
            format!("the response cannot be encoded: {reason}")
        })
    }
}

/// ApiVersions, which has rules of its own (KIP-511).
fn handshake(header: &RequestHeader, frame: &[u8]) -> Bytes {
    let body = frame.get(header.body_start..).unwrap_or_default();
    let code = if !(0..=api_versions::VERSION_MAX).contains(&header.api_version) {
        ResponseError::UnsupportedVersion.code()
    } else {
        match ClientSoftware::decode(body, header.api_version) {
            Ok(software) if header.api_version < 3 || software.is_valid() => {
                debug!(
                    name = software.name,
                    version = software.version,
                    "a client introduces itself"
                );
                0
            }
            _ => ResponseError::InvalidRequest.code(),
        }
    };
    api_versions::encode_response(header, code)
}
