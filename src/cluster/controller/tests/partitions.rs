use super::*;

#[test]
fn partitions_are_added_behind_the_last_one() {
    let (records, results) = grow(
        &image_of_four(),
        vec![growth("t", 3, Some(&[&[2, 3], &[3, 1]]))],
    );
    assert_eq!(
        results,
        [PartitionGrowthResult {
            name: "t".into(),
            result: Ok(())
        }]
    );
    let expected = MetadataRecord::PartitionsAdded {
        id: id(1),
        partitions: vec![
            PartitionImage::new(nodes(&[2, 3])),
            PartitionImage::new(nodes(&[3, 1])),
        ],
    };
    assert_eq!(records, [expected]);
    let (records, _) = grow(&image_of_four(), vec![growth("t", 4, None)]);
    let after = image_of_four().with(&records).unwrap();
    let topic = after.topic("t").unwrap();
    assert_eq!(topic.partitions.len(), 4);
    assert!(
        topic
            .partitions
            .iter()
            .all(|partition| partition.replicas.len() == 2)
    );
}

#[test]
fn growth_is_refused_as_kafka_refuses_it() {
    let table = [
        (
            growth("none", 2, None),
            Kind::UnknownTopicOrPartition,
            "does not host this",
        ),
        (
            growth("t", 1, None),
            Kind::InvalidPartitions,
            "Topic already has 1 partition(s).",
        ),
        (
            growth("t", 0, None),
            Kind::InvalidPartitions,
            "The topic t currently has 1 partition(s); 0 would not be an increase.",
        ),
        (
            growth("t", -1, None),
            Kind::InvalidPartitions,
            "-1 would not be an increase.",
        ),
        (
            growth("t", i32::MIN, None),
            Kind::InvalidPartitions,
            "would not be an increase.",
        ),
        (
            growth("t", i32::MAX, None),
            Kind::PolicyViolation,
            "Excessively large",
        ),
        (
            growth("t", 3, Some(&[&[1, 2]])),
            Kind::InvalidReplicaAssignment,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            growth("t", 2, Some(&[&[1]])),
            Kind::InvalidReplicaAssignment,
            "with 1 replica(s), but this is not consistent",
        ),
        (
            growth("t", 2, Some(&[&[1, 9]])),
            Kind::InvalidReplicaAssignment,
            "no such broker",
        ),
    ];
    for (row, kind, text) in table {
        let (records, results) = grow(&image_of_four(), vec![row.clone()]);
        assert!(records.is_empty(), "{row:?}");
        assert_refused(&row, &results[0].result, kind, text);
    }
}

#[test]
fn every_topic_that_was_to_grow_gets_one_result() {
    let (records, results) = grow(
        &image(),
        vec![
            growth("plain", 2, None),
            growth("none", 2, None),
            growth("my.topic", 3, None),
            growth("plain", 3, None),
        ],
    );
    assert_eq!(records.len(), 1);
    let outcomes: Vec<_> = results
        .iter()
        .map(|r| {
            (
                r.name.as_str(),
                r.result.as_ref().err().map(|error| error.kind),
            )
        })
        .collect();
    let expected = [
        ("plain", Some(Kind::InvalidRequest)),
        ("none", Some(Kind::UnknownTopicOrPartition)),
        ("my.topic", None),
    ];
    assert_eq!(outcomes, expected);
}
