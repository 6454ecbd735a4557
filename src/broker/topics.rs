//! CreateTopics, DeleteTopics and CreatePartitions: requests to the controller, and its answers.

use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
};

use super::Broker;
use super::errors::{ResponseError, controller_code, text};
use crate::base::{NodeId, TopicId};
use crate::cluster::controller::{
    CreatedTopic, DeleteTopicResult, NewTopic, PartitionGrowth, ReplicaAssignment, TopicSelector,
};
use crate::cluster::{Command, ControllerError, Reply};
use crate::config::describe::{DescribedSetting, describe_topic};

impl Broker {
    /// Makes a topic because somebody asked for it.
    pub(super) async fn auto_create(&self, name: &str) -> Result<(), ResponseError> {
        let topics = vec![NewTopic::with_defaults(name)];
        let command = Command::CreateTopics {
            topics,
            validate_only: false,
        };
        let created = match self.control.submit(command).await {
            Ok(Reply::TopicsCreated(results)) => results.into_iter().next().map(|one| one.result),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        };
        match created {
            // Somebody else was faster: the topic is there.
            Some(Err(error)) if controller_code(&error) == ResponseError::TopicAlreadyExists => {
                Ok(())
            }
            Some(Err(error)) => Err(controller_code(&error)),
            Some(Ok(_)) => Ok(()),
            None => Err(ResponseError::UnknownServerError),
        }
    }
}

pub async fn create_topics(broker: &Broker, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let names: Vec<TopicName> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let command = Command::CreateTopics {
        topics: request.topics.into_iter().map(new_topic).collect(),
        validate_only: request.validate_only,
    };
    let topics = match broker.control.submit(command).await {
        Ok(Reply::TopicsCreated(results)) => results
            .into_iter()
            .map(|one| created_topic(broker, TopicName(text(&one.name)), one.result))
            .collect(),
        Ok(_) => Vec::new(),
        Err(error) => names
            .into_iter()
            .map(|name| created_topic(broker, name, Err(error.clone())))
            .collect(),
    };
    CreateTopicsResponse::default().with_topics(topics)
}

fn new_topic(topic: CreatableTopic) -> NewTopic {
    let nodes = |brokers: Vec<kafka_protocol::messages::BrokerId>| {
        brokers.into_iter().map(|broker| NodeId(broker.0)).collect()
    };
    NewTopic {
        name: topic.name.to_string(),
        num_partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .into_iter()
            .map(|one| ReplicaAssignment {
                partition: one.partition_index,
                replicas: nodes(one.broker_ids),
            })
            .collect(),
        configs: topic
            .configs
            .into_iter()
            .map(|config| {
                (
                    config.name.to_string(),
                    config.value.map(|value| value.to_string()),
                )
            })
            .collect(),
    }
}

fn created_topic(
    broker: &Broker,
    name: TopicName,
    result: Result<CreatedTopic, ControllerError>,
) -> CreatableTopicResult {
    let response = CreatableTopicResult::default().with_name(name);
    match result {
        Ok(created) => {
            let described = describe_topic(&broker.config().settings, &created.overrides, None);
            response
                .with_topic_id(created.id.0)
                .with_num_partitions(created.num_partitions)
                .with_replication_factor(created.replication_factor)
                .with_configs(Some(described.into_iter().map(created_config).collect()))
        }
        Err(error) => response
            .with_error_code(controller_code(&error).code())
            .with_error_message(Some(text(&error.message)))
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_configs(Some(Vec::new())),
    }
}

fn created_config(described: DescribedSetting) -> CreatableTopicConfigs {
    CreatableTopicConfigs::default()
        .with_name(text(described.name))
        .with_value(described.value.as_deref().map(text))
        .with_read_only(described.read_only)
        .with_config_source(described.source.code())
        .with_is_sensitive(described.is_sensitive)
}

pub async fn delete_topics(
    broker: &Broker,
    version: i16,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let by_name = |name: TopicName| TopicSelector {
        name: Some(name.to_string()),
        id: TopicId::ZERO,
    };
    let selectors: Vec<TopicSelector> = if version >= 6 {
        let by_either =
            |topic: kafka_protocol::messages::delete_topics_request::DeleteTopicState| {
                TopicSelector {
                    name: topic.name.map(|name| name.to_string()),
                    id: TopicId(topic.topic_id),
                }
            };
        request.topics.into_iter().map(by_either).collect()
    } else {
        request.topic_names.into_iter().map(by_name).collect()
    };
    let refuse_all = |error: ControllerError, selectors: Vec<TopicSelector>| {
        selectors
            .into_iter()
            .map(|one| DeleteTopicResult {
                name: one.name,
                id: one.id,
                result: Err(error.clone()),
            })
            .collect()
    };
    let results: Vec<DeleteTopicResult> = if broker.config().delete_topic_enable {
        match broker
            .control
            .submit(Command::DeleteTopics {
                topics: selectors.clone(),
            })
            .await
        {
            Ok(Reply::TopicsDeleted(results)) => results,
            Ok(_) => Vec::new(),
            Err(error) => refuse_all(error, selectors),
        }
    } else {
        // Kafka before version 3 of the request had no code for it.
        let code = if version < 3 {
            ResponseError::InvalidRequest
        } else {
            ResponseError::TopicDeletionDisabled
        };
        let responses = selectors.into_iter().map(|one| {
            DeletableTopicResult::default()
                .with_name(one.name.as_deref().map(|name| TopicName(text(name))))
                .with_topic_id(one.id.0)
                .with_error_code(code.code())
        });
        return DeleteTopicsResponse::default().with_responses(responses.collect());
    };
    let responses = results.into_iter().map(|one| {
        let response = DeletableTopicResult::default()
            .with_name(one.name.as_deref().map(|name| TopicName(text(name))))
            .with_topic_id(one.id.0);
        match one.result {
            Ok(()) => response,
            Err(error) => response
                .with_error_code(controller_code(&error).code())
                .with_error_message(Some(text(&error.message))),
        }
    });
    DeleteTopicsResponse::default().with_responses(responses.collect())
}

pub async fn create_partitions(
    broker: &Broker,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let names: Vec<TopicName> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let growths = request.topics.into_iter().map(|topic| PartitionGrowth {
        name: topic.name.to_string(),
        count: topic.count,
        assignments: topic.assignments.map(|assignments| {
            assignments
                .into_iter()
                .map(|one| {
                    one.broker_ids
                        .into_iter()
                        .map(|broker| NodeId(broker.0))
                        .collect()
                })
                .collect()
        }),
    });
    let command = Command::CreatePartitions {
        topics: growths.collect(),
        validate_only: request.validate_only,
    };
    let respond = |name: TopicName, result: Result<(), ControllerError>| {
        let response = CreatePartitionsTopicResult::default().with_name(name);
        match result {
            Ok(()) => response,
            Err(error) => response
                .with_error_code(controller_code(&error).code())
                .with_error_message(Some(text(&error.message))),
        }
    };
    let results = match broker.control.submit(command).await {
        Ok(Reply::PartitionsCreated(results)) => results
            .into_iter()
            .map(|one| respond(TopicName(text(&one.name)), one.result))
            .collect(),
        Ok(_) => Vec::new(),
        Err(error) => names
            .into_iter()
            .map(|name| respond(name, Err(error.clone())))
            .collect(),
    };
    CreatePartitionsResponse::default().with_results(results)
}
