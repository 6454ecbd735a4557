use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn created(number: u128, name: &str, partitions: usize) -> MetadataRecord {
    MetadataRecord::TopicCreated {
        id: id(number),
        name: name.into(),
        partitions: vec![PartitionImage::new(vec![NodeId(1)]); partitions],
        overrides: Overrides::new(),
    }
}

fn overrides(value: &str) -> Overrides {
    [("retention.ms".to_owned(), value.to_owned())].into()
}

#[test]
fn topics_are_found_by_name_and_by_id_until_they_are_deleted() {
    let image = MetadataImage::empty("cluster");
    let image = image
        .with(&[created(1, "b", 3), created(2, "a", 1)])
        .unwrap();
    let names: Vec<&str> = image.topics().map(|topic| &*topic.name).collect();
    assert_eq!(names, ["a", "b"]);
    let names: Vec<&str> = image.topics_from("aa").map(|topic| &*topic.name).collect();
    assert_eq!(names, ["b"]);
    assert_eq!(image.topic("b"), image.topic_by_id(id(1)));
    assert_eq!((image.topic_count(), image.partition_count()), (2, 4));
    let later = image
        .with(&[MetadataRecord::TopicDeleted { id: id(1) }])
        .unwrap();
    assert_eq!((later.topic("b"), later.topic_by_id(id(1))), (None, None));
    assert_eq!((later.topic_count(), later.partition_count()), (1, 1));
    assert_eq!((image.version(), later.version()), (2, 3));
    assert!(image.topic("b").is_some(), "the older image has changed");
}

#[test]
fn changes_of_a_topic_show_under_both_keys() {
    let mut image = MetadataImage::empty("cluster");
    for record in [
        created(1, "t", 1),
        MetadataRecord::PartitionsAdded {
            id: id(1),
            partitions: vec![PartitionImage::new(vec![NodeId(2)]); 2],
        },
        MetadataRecord::TopicConfigsReplaced {
            id: id(1),
            overrides: overrides("5"),
        },
    ] {
        image.apply(&record).unwrap();
    }
    let topic = image.topic("t").unwrap();
    assert_eq!(topic.partitions.len(), 3);
    assert_eq!(topic.partition(2).unwrap().leader, NodeId(2));
    assert_eq!((topic.partition(3), topic.partition(-1)), (None, None));
    assert_eq!(topic.overrides, overrides("5"));
    assert_eq!(image.topic_by_id(id(1)), Some(topic));
    assert_eq!(image.partition_count(), 3);
}

#[test]
fn records_that_do_not_fit_are_errors_and_change_nothing() {
    let mut image = MetadataImage::empty("cluster");
    image.apply(&created(1, "t", 1)).unwrap();
    image
        .apply(&MetadataRecord::ProducerIdsAllocated {
            next_producer_id: ProducerId(1000),
        })
        .unwrap();
    let before = image.clone();
    for (record, expected) in [
        (created(2, "t", 1), ApplyError::TopicExists("t".into())),
        (created(1, "u", 1), ApplyError::TopicIdExists(id(1))),
        (
            MetadataRecord::TopicDeleted { id: id(2) },
            ApplyError::UnknownTopicId(id(2)),
        ),
        (
            MetadataRecord::PartitionsAdded {
                id: id(2),
                partitions: Vec::new(),
            },
            ApplyError::UnknownTopicId(id(2)),
        ),
        (
            MetadataRecord::TopicConfigsReplaced {
                id: id(2),
                overrides: Overrides::new(),
            },
            ApplyError::UnknownTopicId(id(2)),
        ),
        (
            MetadataRecord::ProducerIdsAllocated {
                next_producer_id: ProducerId(999),
            },
            ApplyError::ProducerIdGoesBack {
                from: ProducerId(1000),
                to: ProducerId(999),
            },
        ),
    ] {
        assert_eq!(image.apply(&record), Err(expected), "{record:?}");
        assert_eq!(image, before, "{record:?}");
    }
}

fn any_record() -> impl Strategy<Value = MetadataRecord> {
    let number = 0..6_u128;
    prop_oneof![
        (number.clone(), 0..6_usize, 1..4_usize).prop_map(|(number, name, partitions)| created(
            number,
            &format!("t{name}"),
            partitions
        )),
        number
            .clone()
            .prop_map(|number| MetadataRecord::TopicDeleted { id: id(number) }),
        (number.clone(), 1..4_usize).prop_map(|(number, count)| MetadataRecord::PartitionsAdded {
            id: id(number),
            partitions: vec![PartitionImage::new(vec![NodeId(2), NodeId(1)]); count],
        }),
        (number, "[0-9]{1,2}").prop_map(|(number, value)| MetadataRecord::TopicConfigsReplaced {
            id: id(number),
            overrides: overrides(&value),
        }),
        (
            proptest::option::of(0..3_i32),
            proptest::option::of("[0-9]")
        )
            .prop_map(|(broker, value)| MetadataRecord::BrokerConfigsReplaced {
                broker: broker.map(NodeId),
                overrides: value.map(|value| overrides(&value)).unwrap_or_default(),
            }),
        (0..9_i64).prop_map(|next| MetadataRecord::ProducerIdsAllocated {
            next_producer_id: ProducerId(next),
        }),
        (0..3_i32, any::<u16>()).prop_map(|(broker, port)| MetadataRecord::BrokerRegistered(
            BrokerImage {
                id: NodeId(broker),
                host: "h".to_owned(),
                port,
                rack: None,
                fenced: port % 2 == 0,
            }
        )),
    ]
}

proptest! {
    #[test]
    fn an_images_own_records_lead_to_the_same_image(
        records in proptest::collection::vec(any_record(), 0..60),
    ) {
        let mut image = MetadataImage::empty("cluster");
        for record in &records {
            // Those that do not fit are left out; that is another test's.
            let _ = image.apply(record);
        }
        let rebuilt = MetadataImage::empty("cluster")
            .with(&image.to_records())
            .unwrap()
            .at_version(image.version());
        prop_assert_eq!(&rebuilt, &image);
        let counted: usize = image.topics().map(|topic| topic.partitions.len()).sum();
        prop_assert_eq!(image.partition_count(), counted);
    }
}
