use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::base::LeaderEpoch;

fn one_of_each() -> Vec<MetadataRecord> {
    let id = TopicId(Uuid::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f));
    let overrides: Overrides = [("retention.ms".to_owned(), "1000".to_owned())].into();
    let partition = PartitionImage {
        leader: NodeId(2),
        replicas: vec![NodeId(1), NodeId(2)],
        isr: vec![NodeId(2)],
        leader_epoch: LeaderEpoch(5),
        partition_epoch: 9,
    };
    vec![
        MetadataRecord::BrokerRegistered(BrokerImage {
            id: NodeId(1),
            host: "127.0.0.1".to_owned(),
            port: 9092,
            rack: None,
            fenced: false,
        }),
        MetadataRecord::TopicCreated {
            id,
            name: "orders".into(),
            partitions: vec![partition.clone()],
            overrides: overrides.clone(),
        },
        MetadataRecord::PartitionsAdded {
            id,
            partitions: vec![partition],
        },
        MetadataRecord::TopicConfigsReplaced {
            id,
            overrides: overrides.clone(),
        },
        MetadataRecord::BrokerConfigsReplaced {
            broker: Some(NodeId(1)),
            overrides: overrides.clone(),
        },
        MetadataRecord::BrokerConfigsReplaced {
            broker: None,
            overrides,
        },
        MetadataRecord::ProducerIdsAllocated {
            next_producer_id: ProducerId(i64::MAX),
        },
        MetadataRecord::TopicDeleted { id },
    ]
}

/// These bytes are on disks: what reads them must go on reading them.
const GOLDEN: &str = concat!(
    r#"[{"broker-registered":{"id":1,"host":"127.0.0.1","port":9092,"rack":null,"fenced":false}},"#,
    r#"{"topic-created":{"id":"AAECAwQFBgcICQoLDA0ODw","name":"orders","#,
    r#""partitions":[[2,[1,2],[2],5,9]],"overrides":{"retention.ms":"1000"}}},"#,
    r#"{"partitions-added":{"id":"AAECAwQFBgcICQoLDA0ODw","partitions":[[2,[1,2],[2],5,9]]}},"#,
    r#"{"topic-configs-replaced":{"id":"AAECAwQFBgcICQoLDA0ODw","#,
    r#""overrides":{"retention.ms":"1000"}}},"#,
    r#"{"broker-configs-replaced":{"broker":1,"overrides":{"retention.ms":"1000"}}},"#,
    r#"{"broker-configs-replaced":{"broker":null,"overrides":{"retention.ms":"1000"}}},"#,
    r#"{"producer-ids-allocated":{"next_producer_id":9223372036854775807}},"#,
    r#"{"topic-deleted":{"id":"AAECAwQFBgcICQoLDA0ODw"}}]"#,
);

#[test]
fn every_record_has_its_known_bytes_and_reads_back() {
    let bytes = encode_records(&one_of_each());
    assert_eq!(String::from_utf8_lossy(&bytes), GOLDEN);
    assert_eq!(decode_records(&bytes).unwrap(), one_of_each());
}

#[test]
fn an_unknown_record_or_field_is_an_error_that_names_it() {
    for (payload, expected) in [
        (
            r#"[{"topic-renamed":{}}]"#,
            "unknown variant `topic-renamed`",
        ),
        (
            r#"[{"producer-ids-allocated":{"next_producer_id":1,"who":2}}]"#,
            "unknown field `who`",
        ),
        (r#"[{"topic-deleted":{"id":"short"}}]"#, "not a Kafka UUID"),
        (r#"[{"topic-deleted":{}}]"#, "missing field `id`"),
        (r#"[] []"#, "trailing characters"),
    ] {
        let error = decode_records(payload.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{payload}: {error}");
    }
}

proptest! {
    #[test]
    fn hostile_payloads_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_records(&bytes);
    }

    #[test]
    fn payloads_with_one_changed_byte_never_panic(at in 0..GOLDEN.len(), byte in any::<u8>()) {
        let mut bytes = GOLDEN.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = decode_records(&bytes);
    }
}
