//! InitProducerId: ids for idempotent producers, from blocks that the controller hands out.

use std::cell::Cell;

use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::Broker;
use super::errors::{ResponseError, controller_code};
use crate::base::{ProducerEpoch, ProducerId};
use crate::cluster::controller::ProducerIdBlock;
use crate::cluster::{Command, Reply};

/// What is left of this shard's block.
#[derive(Debug, Default)]
pub struct ProducerIds {
    next: Cell<i64>,
    left: Cell<i64>,
}

impl ProducerIds {
    fn take(&self) -> Option<ProducerId> {
        let left = self.left.get().checked_sub(1).filter(|left| *left >= 0)?;
        self.left.set(left);
        let id = self.next.get();
        self.next.set(id + 1);
        Some(ProducerId(id))
    }

    fn refill(&self, block: ProducerIdBlock) {
        self.next.set(block.first.0);
        self.left.set(block.count);
    }
}

pub async fn init_producer_id(
    broker: &Broker,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refuse = |code: ResponseError| {
        InitProducerIdResponse::default()
            .with_error_code(code.code())
            .with_producer_id(ProducerId::NONE.0.into())
            .with_producer_epoch(ProducerEpoch::NONE.0)
    };
    if request.transactional_id.is_some() {
        // Transactions are not served yet; the response has no room for a text.
        return refuse(ResponseError::InvalidRequest);
    }
    match next_id(broker).await {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(id.0.into())
            .with_producer_epoch(0),
        Err(code) => refuse(code),
    }
}

async fn next_id(broker: &Broker) -> Result<ProducerId, ResponseError> {
    loop {
        if let Some(id) = broker.producer_ids.take() {
            return Ok(id);
        }
        // Two requests may both bring a block; the rest of the first is then lost, which ids can
        // afford.
        match broker.control.submit(Command::AllocateProducerIds).await {
            Ok(Reply::ProducerIds(block)) => broker.producer_ids.refill(block),
            Ok(_) => return Err(ResponseError::UnknownServerError),
            Err(error) => return Err(controller_code(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_handed_out_once() {
        let ids = ProducerIds::default();
        assert_eq!(ids.take(), None);
        ids.refill(ProducerIdBlock {
            first: ProducerId(1000),
            count: 2,
        });
        assert_eq!(ids.take(), Some(ProducerId(1000)));
        assert_eq!(ids.take(), Some(ProducerId(1001)));
        assert_eq!(ids.take(), None);
    }
}
