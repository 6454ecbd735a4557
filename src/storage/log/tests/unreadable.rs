//! Reads that fail at a start: it is refused, or a partition is offline, and nothing is lost.

use super::node::{Held, Node};
use super::*;
use crate::io::sim_disk::{SimDisk, UNREADABLE};
use crate::io::sim_executor::SimExecutor;

const PARTITIONS: usize = 2;

async fn start(disk: &SimDisk, executor: &SimExecutor) -> Result<Node, String> {
    Node::start(
        disk,
        &executor.spawn(),
        1,
        PARTITIONS,
        Flaw::None,
        |_, _| {},
    )
    .await
}

async fn append_durably(held: &Held, batches: usize) -> Offset {
    for _ in 0..batches {
        let end = held.append().unwrap();
        held.log.wait_durable(end).await.unwrap();
    }
    held.log.log_end_offset()
}

/// What a killed node leaves, and where its logs ended.
fn leave() -> (SimDisk, Vec<Offset>) {
    let disk = SimDisk::new(7);
    let executor = SimExecutor::new(7);
    let ends = executor.run(async {
        let node = start(&disk, &executor).await.unwrap();
        let mut ends = Vec::new();
        for held in &node.partitions {
            ends.push(append_durably(held, 9).await);
        }
        ends
    });
    (disk.kill(7), ends.unwrap())
}

#[test]
fn a_read_that_fails_at_a_start_loses_nothing_whichever_it_is() {
    let (left, ends) = leave();
    let (mut refused, mut offline) = (0, 0);
    for read in 1.. {
        let disk = left.kill(read);
        disk.fail_reads(read, 1);
        let executor = SimExecutor::new(read);
        let ran = executor.run(async {
            let node = match start(&disk, &executor).await {
                Ok(node) => node,
                Err(error) => {
                    assert!(error.contains(UNREADABLE), "read {read}: {error}");
                    refused += 1;
                    return false;
                }
            };
            disk.fail_reads(0, 0);
            offline += PARTITIONS - node.partitions.len();
            for held in &node.partitions {
                // The commit log is used again from end to end, and more than once.
                append_durably(held, 60).await;
            }
            node.partitions.len() == PARTITIONS
        });
        let disk = disk.kill(read);
        let executor = SimExecutor::new(read);
        let checked = executor.run(async {
            let node = start(&disk, &executor).await.unwrap();
            for (held, end) in node.partitions.iter().zip(&ends) {
                assert!(held.log.log_end_offset() >= *end, "read {read}");
                held.check().await.unwrap();
                held.check_trace().unwrap();
            }
            assert_eq!(node.partitions.len(), PARTITIONS, "read {read}");
        });
        checked.expect("the run stalled");
        if ran.expect("the run stalled") {
            break;
        }
    }
    assert!(refused > 0 && offline > 0, "{refused} and {offline}");
}
