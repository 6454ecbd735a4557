//! Settings that older Kafka files still hold and that Kafka 4 no longer knows.

/// What to do about a setting that Kafka 4 removed; `None` if it never was one.
pub fn removed(name: &str) -> Option<&'static str> {
    let advice = match name {
        _ if name.starts_with("zookeeper.") => {
            "ZooKeeper is gone since Kafka 4.0; remove the key, metadata lives in the data directory"
        }
        _ if name.starts_with("password.encoder.") => "gone since Kafka 4.0; remove the key",
        "host.name" | "port" => "gone since Kafka 3.0; use `listeners`",
        "advertised.host.name" | "advertised.port" => {
            "gone since Kafka 3.0; use `advertised.listeners`"
        }
        "broker.id.generation.enable" | "reserved.broker.max.id" => {
            "gone since Kafka 4.0; set `node.id`"
        }
        "inter.broker.protocol.version" | "log.message.format.version" => {
            "gone since Kafka 4.0; remove the key, record batches are always of format 2"
        }
        "log.message.downconversion.enable" => {
            "gone since Kafka 4.0; remove the key, records are never converted down"
        }
        "log.message.timestamp.difference.max.ms" => {
            "gone since Kafka 4.0; use `log.message.timestamp.before.max.ms` and \
             `log.message.timestamp.after.max.ms`"
        }
        "offsets.commit.required.acks" => "gone since Kafka 4.0; remove the key",
        "control.plane.listener.name" => "gone since Kafka 4.0; use `controller.listener.names`",
        "controlled.shutdown.max.retries" | "controlled.shutdown.retry.backoff.ms" => {
            "gone since Kafka 4.0; remove the key"
        }
        "leader.imbalance.per.broker.percentage" => "gone since Kafka 4.0; remove the key",
        _ => return None,
    };
    Some(advice)
}
