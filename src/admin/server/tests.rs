use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::*;
use crate::base::{NodeId, TopicId};
use crate::cluster::{MetadataImage, MetadataRecord, PartitionImage};
use crate::observability::MetricsRegistry;

struct Served {
    address: std::net::SocketAddr,
    state: AdminState,
    stop: oneshot::Sender<()>,
    server: tokio::task::JoinHandle<Result<(), AdminError>>,
}

fn start() -> Served {
    let record = MetadataRecord::TopicCreated {
        id: TopicId(Uuid::from_u128(1)),
        name: "orders-eu".into(),
        partitions: vec![PartitionImage::new(vec![NodeId(7)]); 3],
        overrides: Default::default(),
    };
    let image = MetadataImage::empty("AAECAwQFBgcICQoLDA0ODw")
        .with([&record])
        .unwrap();
    let metrics = Arc::new(MetricsRegistry::new(&[2, 5]));
    let state = AdminState::of(NodeId(7), metrics, "AAECAwQFBgcICQoLDA0ODw");
    state.set_image(Arc::new(image));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(serve_until(listener, state.clone(), async {
        let _ = stopped.await;
    }));
    Served {
        address,
        state,
        stop,
        server,
    }
}

/// The whole answer, head and body.
async fn ask(served: &Served, path: &str) -> String {
    let address = served.address;
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    answer.await.unwrap()
}

#[tokio::test]
async fn health_is_always_there_and_readiness_says_what_is_missing() {
    let served = start();
    assert!(ask(&served, "/healthz").await.starts_with("HTTP/1.1 200"));
    let answer = ask(&served, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(
        answer.ends_with("broker: the broker is starting\n"),
        "{answer}"
    );
    served.state.set_ready();
    let answer = ask(&served, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    served.state.set_stopping();
    let answer = ask(&served, "/readyz").await;
    assert!(
        answer.ends_with("broker: the broker is stopping\n"),
        "{answer}"
    );
    assert!(ask(&served, "/nothing").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let served = start();
    served.state.metrics().shards()[1].count_append(4, 40);
    let answer = ask(&served, "/metrics").await;
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4"),
        "{answer}"
    );
    let line = "ringmain_appended_bytes_total{shard=\"1\",core=\"5\"} 40\n";
    assert!(answer.contains(line), "{answer}");
}

#[tokio::test]
async fn the_status_counts_topics_and_names_offline_partitions_that_exist() {
    let served = start();
    let metrics = served.state.metrics();
    metrics.shards()[1].partition_offline("orders-eu-2", "its log is damaged");
    for gone in ["orders-eu-3", "gone-0", "orders-eu-x", "noise"] {
        metrics.shards()[0].partition_offline(gone, "of no concern");
    }
    let answer = ask(&served, "/v1/status").await;
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    let expected = serde_json::json!({
        "node_id": 7,
        "cluster_id": "AAECAwQFBgcICQoLDA0ODw",
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": 0,
        "is_ready": false,
        "not_ready": {"broker": "the broker is starting"},
        "cores": [2, 5],
        "topic_count": 1,
        "partition_count": 3,
        "metadata_version": 1,
        "offline_partitions": [
            {"partition": "orders-eu-2", "shard": 1, "reason": "its log is damaged"},
        ],
    });
    assert_eq!(status, expected);
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let served = start();
    let mut idle = TcpStream::connect(served.address).unwrap();
    // Half a request: the server waits for the rest.
    idle.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    assert!(ask(&served, "/healthz").await.starts_with("HTTP/1.1 200"));
    served.stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), served.server).await;
    ended.expect("must end").unwrap().unwrap();
    assert!(TcpStream::connect(served.address).is_err());
}
