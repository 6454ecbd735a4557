use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Instant;

use super::*;
use crate::base::{ShardId, TopicPartition};
use crate::observability::ShardMetrics;

struct Server {
    address: SocketAddr,
    health: Arc<Health>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<io::Result<()>>,
}

fn start() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let health = Arc::new(Health::new(2));
    let metrics = Arc::new(MetricsRegistry::new(|_| None));
    metrics.register(ShardMetrics::new(ShardId(0), 0));
    let state = AdminState {
        metrics,
        health: health.clone(),
        facts: Arc::new(|| BrokerFacts {
            node_id: 1,
            cluster_id: "AAECAwQFBgcICQoLDA0ODw".to_owned(),
            cores: vec![0, 1],
            topics: 2,
            partitions: 12,
            metadata_version: 3,
        }),
    };
    let (stop, stopped) = watch::channel(false);
    let thread = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(serve(listener, state, stopped))
    });
    Server {
        address,
        health,
        stop,
        thread,
    }
}

impl Server {
    /// The status line and the body.
    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    fn stop(self) {
        self.stop.send(true).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

#[test]
fn readiness_follows_the_shards_and_says_why_not() {
    let server = start();
    assert_eq!(
        server.get("/healthz"),
        ("HTTP/1.1 200 OK".into(), "ok\n".into())
    );
    server.health.set_ready(ShardId(0));
    server
        .health
        .set_unready(ShardId(1), "recovering 3 partitions");
    let (status, body) = server.get("/readyz");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(body, "shard 1: recovering 3 partitions\n");
    server.health.set_ready(ShardId(1));
    assert_eq!(
        server.get("/readyz"),
        ("HTTP/1.1 200 OK".into(), "ready\n".into())
    );
    server.stop();
}

#[test]
fn metrics_are_prometheus_text() {
    let server = start();
    let (status, body) = server.get("/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(
        body.contains("ringmain_produce_bytes_total{shard=\"0\""),
        "{body}"
    );
    server.stop();
}

#[test]
fn the_status_tells_who_where_and_what_is_offline() {
    let server = start();
    server.health.set_ready(ShardId(0));
    let partition = TopicPartition {
        topic: "orders".into(),
        partition: 3,
    };
    server.health.set_offline(partition, "bad batch at 4096");
    let (_, body) = server.get("/v1/status");
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    let expected = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "node_id": 1,
        "cluster_id": "AAECAwQFBgcICQoLDA0ODw",
        "cores": [0, 1],
        "topics": 2,
        "partitions": 12,
        "metadata_version": 3,
        "ready": false,
        "not_ready_because": ["shard 1: starting"],
        "offline_partitions": [
            {"topic": "orders", "partition": 3, "reason": "bad batch at 4096"}
        ],
    });
    assert_eq!(status, expected);
    server.stop();
}

#[test]
fn unknown_paths_are_404_and_name_the_known_ones() {
    let server = start();
    let (status, body) = server.get("/");
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    assert!(body.contains("/v1/status"));
    server.stop();
}

#[test]
fn a_stop_does_not_wait_for_a_client_that_says_nothing() {
    let server = start();
    let mut silent = TcpStream::connect(server.address).unwrap();
    silent.write_all(b"GET /healthz HT").unwrap();
    server.get("/healthz");
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < GRACE * 2, "{:?}", began.elapsed());
}
