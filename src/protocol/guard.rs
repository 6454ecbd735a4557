//! Checks the counts of a request before it is decoded.
//!
//! The crate `kafka-protocol` reserves memory for an array by the count on the wire, so that a few
//! bytes can ask for gigabytes. This walks the body by a table of the requests' shapes and demands
//! that every length and count fits into the bytes behind it.

use kafka_protocol::messages::ApiKey;

use super::wire::{Reader, WireError};

/// A field's shape.
enum Shape {
    /// So many bytes.
    Fixed(usize),
    Text,
    Array(&'static [Field]),
    /// A byte that says whether the fields follow (negative: they do not).
    Optional(&'static [Field]),
}

/// A field and the versions that have it.
struct Field {
    from: i16,
    to: i16,
    shape: Shape,
}

struct Schema {
    key: ApiKey,
    flexible_from: i16,
    fields: &'static [Field],
}

const fn all(shape: Shape) -> Field {
    Field {
        from: 0,
        to: i16::MAX,
        shape,
    }
}

const fn from(from: i16, shape: Shape) -> Field {
    Field {
        from,
        to: i16::MAX,
        shape,
    }
}

const fn until(to: i16, shape: Shape) -> Field {
    Field { from: 0, to, shape }
}

const INT8: Shape = Shape::Fixed(1);
const INT16: Shape = Shape::Fixed(2);
const INT32: Shape = Shape::Fixed(4);
const INT64: Shape = Shape::Fixed(8);
const UUID: Shape = Shape::Fixed(16);
const TEXT: Shape = Shape::Text;
/// An array of one primitive has no tagged fields of its own; see [`walk_array`].
const INT32S: Shape = Shape::Array(&[PRIMITIVE_INT32]);
const TEXTS: Shape = Shape::Array(&[PRIMITIVE_TEXT]);
const PRIMITIVE_INT32: Field = Field {
    from: -1,
    to: i16::MAX,
    shape: INT32,
};
const PRIMITIVE_TEXT: Field = Field {
    from: -1,
    to: i16::MAX,
    shape: TEXT,
};

const SCHEMAS: &[Schema] = &[
    Schema {
        key: ApiKey::ListOffsets,
        flexible_from: 6,
        fields: &[
            all(INT32),
            from(2, INT8),
            all(Shape::Array(&[
                all(TEXT),
                all(Shape::Array(&[all(INT32), from(4, INT32), all(INT64)])),
            ])),
            from(10, INT32),
        ],
    },
    Schema {
        key: ApiKey::Metadata,
        flexible_from: 9,
        fields: &[
            all(Shape::Array(&[from(10, UUID), all(TEXT)])),
            from(4, INT8),
            Field {
                from: 8,
                to: 10,
                shape: INT8,
            },
            from(8, INT8),
        ],
    },
    Schema {
        key: ApiKey::CreateTopics,
        flexible_from: 5,
        fields: &[
            all(Shape::Array(&[
                all(TEXT),
                all(INT32),
                all(INT16),
                all(Shape::Array(&[all(INT32), all(INT32S)])),
                all(Shape::Array(&[all(TEXT), all(TEXT)])),
            ])),
            all(INT32),
            from(1, INT8),
        ],
    },
    Schema {
        key: ApiKey::DeleteTopics,
        flexible_from: 4,
        fields: &[
            from(6, Shape::Array(&[all(TEXT), all(UUID)])),
            until(5, TEXTS),
            all(INT32),
        ],
    },
    Schema {
        key: ApiKey::DeleteRecords,
        flexible_from: 2,
        fields: &[
            all(Shape::Array(&[
                all(TEXT),
                all(Shape::Array(&[all(INT32), all(INT64)])),
            ])),
            all(INT32),
        ],
    },
    Schema {
        key: ApiKey::InitProducerId,
        flexible_from: 2,
        fields: &[all(TEXT), all(INT32), from(3, INT64), from(3, INT16)],
    },
    Schema {
        key: ApiKey::OffsetForLeaderEpoch,
        flexible_from: 4,
        fields: &[
            from(3, INT32),
            all(Shape::Array(&[
                all(TEXT),
                all(Shape::Array(&[all(INT32), from(2, INT32), all(INT32)])),
            ])),
        ],
    },
    Schema {
        key: ApiKey::DescribeConfigs,
        flexible_from: 4,
        fields: &[
            all(Shape::Array(&[all(INT8), all(TEXT), all(TEXTS)])),
            from(1, INT8),
            from(3, INT8),
        ],
    },
    Schema {
        key: ApiKey::AlterConfigs,
        flexible_from: 2,
        fields: &[
            all(Shape::Array(&[
                all(INT8),
                all(TEXT),
                all(Shape::Array(&[all(TEXT), all(TEXT)])),
            ])),
            all(INT8),
        ],
    },
    Schema {
        key: ApiKey::CreatePartitions,
        flexible_from: 2,
        fields: &[
            all(Shape::Array(&[
                all(TEXT),
                all(INT32),
                all(Shape::Array(&[all(INT32S)])),
            ])),
            all(INT32),
            all(INT8),
        ],
    },
    Schema {
        key: ApiKey::IncrementalAlterConfigs,
        flexible_from: 1,
        fields: &[
            all(Shape::Array(&[
                all(INT8),
                all(TEXT),
                all(Shape::Array(&[all(TEXT), all(INT8), all(TEXT)])),
            ])),
            all(INT8),
        ],
    },
    Schema {
        key: ApiKey::DescribeCluster,
        flexible_from: 0,
        fields: &[all(INT8), from(1, INT8), from(2, INT8)],
    },
    Schema {
        key: ApiKey::DescribeTopicPartitions,
        flexible_from: 0,
        fields: &[
            all(Shape::Array(&[all(TEXT)])),
            all(INT32),
            all(Shape::Optional(&[all(TEXT), all(INT32)])),
        ],
    },
];

/// Checks the body of a request that the crate `kafka-protocol` is to decode. An API without a
/// schema is refused: it would be decoded unguarded.
pub fn check(api_key: i16, version: i16, body: &[u8]) -> Result<(), WireError> {
    let Some(schema) = SCHEMAS.iter().find(|schema| schema.key as i16 == api_key) else {
        return Err(WireError::Length {
            at: 0,
            value: i64::from(api_key),
        });
    };
    let flexible = version >= schema.flexible_from;
    let mut reader = Reader::new(body);
    walk(schema.fields, &mut reader, version, flexible)
}

fn walk(
    fields: &[Field],
    reader: &mut Reader<'_>,
    version: i16,
    flexible: bool,
) -> Result<(), WireError> {
    walk_fields(fields, reader, version, flexible)?;
    reader.skip_tagged_fields(flexible)
}

fn walk_fields(
    fields: &[Field],
    reader: &mut Reader<'_>,
    version: i16,
    flexible: bool,
) -> Result<(), WireError> {
    for field in fields
        .iter()
        .filter(|field| (field.from..=field.to).contains(&version))
    {
        match &field.shape {
            Shape::Fixed(len) => {
                reader.take(*len)?;
            }
            Shape::Text => {
                reader.read_nullable_string(flexible)?;
            }
            Shape::Array(element) => walk_array(element, reader, version, flexible)?,
            Shape::Optional(fields) => {
                if reader.read_i8()? >= 0 {
                    walk(fields, reader, version, flexible)?;
                }
            }
        }
    }
    Ok(())
}

fn walk_array(
    element: &[Field],
    reader: &mut Reader<'_>,
    version: i16,
    flexible: bool,
) -> Result<(), WireError> {
    let is_primitive = element.first().is_some_and(|field| field.from < 0);
    let count = reader.read_count(flexible, 1)?;
    for _ in 0..count {
        if is_primitive {
            walk_fields(element, reader, version, flexible)?;
        } else {
            walk(element, reader, version, flexible)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
