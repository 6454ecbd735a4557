//! The APIs that this broker serves, and in which versions (Kafka 4.1's ranges).
//!
//! An API that is not in the table is not advertised. `kafka-protocol`'s own ranges include
//! versions that Kafka 4.1 does not release, so they are no guide.

use kafka_protocol::messages::ApiKey;

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRange {
    pub key: ApiKey,
    /// The lowest version told to clients.
    pub advertised_min: i16,
    /// The lowest version answered. Produce is advertised from 0 although 0 to 2 are refused:
    /// librdkafka before 2.11 takes a higher minimum for a broker without compression
    /// (KAFKA-18659).
    pub served_min: i16,
    pub max: i16,
}

const fn range(key: ApiKey, min: i16, max: i16) -> ApiRange {
    ApiRange {
        key,
        advertised_min: min,
        served_min: min,
        max,
    }
}

/// Sorted by key, as clients get it.
pub const APIS: &[ApiRange] = &[
    ApiRange {
        key: ApiKey::Produce,
        advertised_min: 0,
        served_min: 3,
        max: 13,
    },
    range(ApiKey::Fetch, 4, 18),
    range(ApiKey::ListOffsets, 1, 10),
    range(ApiKey::Metadata, 0, 13),
    range(ApiKey::ApiVersions, 0, 4),
    range(ApiKey::CreateTopics, 2, 7),
    range(ApiKey::DeleteTopics, 1, 6),
    range(ApiKey::DeleteRecords, 0, 2),
    range(ApiKey::InitProducerId, 0, 5),
    range(ApiKey::OffsetForLeaderEpoch, 2, 4),
    range(ApiKey::DescribeConfigs, 1, 4),
    range(ApiKey::AlterConfigs, 0, 2),
    range(ApiKey::CreatePartitions, 0, 3),
    range(ApiKey::IncrementalAlterConfigs, 0, 1),
    range(ApiKey::DescribeCluster, 0, 2),
    range(ApiKey::DescribeTopicPartitions, 0, 0),
];

/// The row of an API, if it is served.
pub fn find(api_key: i16) -> Option<&'static ApiRange> {
    APIS.iter().find(|range| range.key as i16 == api_key)
}

impl ApiRange {
    pub fn serves(&self, version: i16) -> bool {
        (self.served_min..=self.max).contains(&version)
    }
}

/// Whether the request header carries tagged fields (header version 2). ControlledShutdown version
/// 0, the one request with header version 0, is no API of a broker any more.
pub fn request_header_is_flexible(api_key: i16, version: i16) -> bool {
    ApiKey::try_from(api_key).is_ok_and(|key| key.request_header_version(version) >= 2)
}

/// Whether the response header carries tagged fields (header version 1). Never for ApiVersions,
/// whose client cannot know yet what the broker speaks (KIP-511).
pub fn response_header_is_flexible(api_key: i16, version: i16) -> bool {
    ApiKey::try_from(api_key).is_ok_and(|key| key.response_header_version(version) >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_within_what_the_codecs_know() {
        for pair in APIS.windows(2) {
            assert!((pair[0].key as i16) < (pair[1].key as i16), "{pair:?}");
        }
        for row in APIS {
            let known = row.key.valid_versions();
            assert!(
                row.served_min >= known.min && row.max <= known.max,
                "{row:?} {known:?}"
            );
            assert!(row.advertised_min <= row.served_min && row.served_min <= row.max);
        }
    }

    #[test]
    fn the_response_to_api_versions_never_has_a_flexible_header() {
        for version in 0..=4 {
            assert!(!response_header_is_flexible(
                ApiKey::ApiVersions as i16,
                version
            ));
        }
        assert!(request_header_is_flexible(ApiKey::ApiVersions as i16, 3));
        assert!(response_header_is_flexible(ApiKey::Metadata as i16, 9));
    }
}
