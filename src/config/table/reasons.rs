//! Why a setting has no effect, or is refused: the end of a sentence that began with its name.

pub(super) const AUTHORIZER: &str = "access control lists are not supported yet; remove the key";
pub(super) const BACKLOG: &str = "each core lets 1024 connections wait to be accepted";
pub(super) const CHECKPOINT: &str = "one checkpoint per core holds this state; `log.flush.offset.checkpoint.interval.ms` sets its \
     interval";
pub(super) const CLEANUP: &str = "old segments are neither removed nor compacted yet; all that \
                                  `compact` does is to refuse records without a key";
pub(super) const COMPACTION: &str = "compaction is not there yet";
pub(super) const CONNECTIONS: &str = "connections are not limited yet";
pub(super) const GROUPS: &str = "consumer groups are not there yet";
pub(super) const IDLE: &str = "idle connections stay open yet";
pub(super) const IN_FLIGHT: &str = "each connection may have 64 unanswered requests, and \
                                    `ringmain.network.in.bytes` limits their bytes";
pub(super) const JAVA: &str = "Java classes cannot be loaded; remove the key";
pub(super) const JITTER: &str = "segments roll at `segment.ms` without jitter yet";
pub(super) const METADATA: &str = "Ringmain keeps its metadata in `metadata/` of the data directory \
                                   and snapshots it by itself";
pub(super) const METRICS: &str = "metrics are served by the admin HTTP server, see \
                                  `ringmain.admin.listener`";
pub(super) const NETWORK_BUDGET: &str = "`ringmain.network.in.bytes` limits the bytes of requests";
pub(super) const ONE_DIRECTORY: &str = "there is one data directory";
pub(super) const PREALLOCATE: &str = "segments are always allocated ahead in steps";
pub(super) const PURGATORY: &str = "parked requests are dropped as soon as they are answered";
pub(super) const QUORUM: &str = "the metadata quorum is not there yet; this broker stands alone";
pub(super) const QUOTAS: &str = "quotas are not there yet";
pub(super) const RECOMPRESS: &str = "batches are kept as the producer compressed them";
pub(super) const REPLICATION: &str = "replication is not there yet";
pub(super) const RETENTION: &str = "old segments are not removed yet";
pub(super) const SASL: &str = "SASL is not supported yet; remove the key";
pub(super) const SHARE: &str = "share groups are not there yet";
pub(super) const SOCKET_BUFFERS: &str = "the kernel sizes the buffers of sockets";
pub(super) const STREAMS: &str = "streams groups are not there yet";
pub(super) const TELEMETRY: &str = "client telemetry is not there yet";
pub(super) const THREADS: &str = "one executor per core does all work, see `ringmain.cores`";
pub(super) const TIERED: &str = "there is no remote storage";
pub(super) const TLS: &str = "TLS is not supported yet; remove the key";
pub(super) const TLS_SASL: &str = "only PLAINTEXT is supported yet; remove the key";
pub(super) const TOKENS: &str = "delegation tokens are not supported yet; remove the key";
pub(super) const TRANSACTIONS: &str = "transactions are not there yet";
