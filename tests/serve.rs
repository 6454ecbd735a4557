//! `ringmain serve` as a process: the ready line, the stop, and each start-up error as one line
//! that says what to do.

mod support;

#[path = "support/confine.rs"]
mod confine;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    DescribeClusterRequest, IncrementalAlterConfigsRequest, MetadataRequest,
};

use support::batch::Batch;
use support::calls::{
    FETCH_BY_NAME, PRODUCE_BY_NAME, code, create_topic, create_topic_with, describe_topic,
    fetch_all, fetch_request, metadata_request, produce, produce_ok, produce_request, text,
};
use support::wire::{Wire, encode_request};
use support::{
    Broker, Ended, RINGMAIN, Settings, eventually, foreign_bootstrap, run_to_end, temp_dir,
    unique_topic,
};

/// Fails unless the process ended with `code` and one line on stderr that has all of `words`.
fn assert_refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "exit code; {ended:?}");
    assert_eq!(ended.stdout, "", "nothing on stdout; {ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "one line on stderr:\n{}", ended.stderr);
    for word in words {
        assert!(lines[0].contains(word), "{word:?} is not in {:?}", lines[0]);
    }
}

fn refused_config(toml: &str) -> Ended {
    let home = temp_dir();
    Settings::default()
        .config(toml)
        .run_to_end(&home.path().join("data"))
}

fn foreign() -> bool {
    foreign_bootstrap().is_some()
}

#[test]
fn the_ready_line_has_its_exact_form() {
    if foreign() {
        return;
    }
    let mut broker = Broker::start();
    let ready = broker.ready().clone();
    let cores = support::two_cores();
    let expected = format!(
        "ringmain ready kafka={} admin={} node=1 cores={} data={}",
        ready.kafka,
        ready.admin,
        ready.cores,
        broker.data_dir().display()
    );
    assert_eq!(ready.line, expected);
    // `0,1` or `0-1`: taskset reads both.
    assert!(
        [cores.clone(), cores.replace(',', "-")].contains(&ready.cores),
        "{}",
        ready.cores
    );
    for address in [&ready.kafka, &ready.admin] {
        let (host, port) = address.rsplit_once(':').expect("host and port");
        assert_eq!(host, "127.0.0.1");
        assert_ne!(port.parse::<u16>().expect("a port"), 0);
    }
    broker.signal("TERM");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(
        broker.further_stdout(),
        Vec::<String>::new(),
        "stdout has one line only"
    );
    assert_eq!(broker.wait_end(), Some(0));
}

#[test]
fn a_signal_stops_it_cleanly_and_quickly() {
    if foreign() {
        return;
    }
    for signal in ["TERM", "INT"] {
        let mut broker = Broker::start();
        let mut wire = broker.wire();
        let topic = unique_topic("stop");
        create_topic(&mut wire, &topic, 3);
        produce_ok(&mut wire, &topic, 0, Batch::of(&["a"]).build());
        // A parked fetch, a silent connection and half a frame must not hold it up.
        let mut request = fetch_request(&topic, 1, 0);
        request.max_wait_ms = 60_000;
        wire.send(FETCH_BY_NAME, &request);
        let _silent = broker.wire();
        let mut half = broker.wire();
        half.send_bytes(&[0, 0, 1]).unwrap();
        thread::sleep(Duration::from_millis(200));
        let started = Instant::now();
        broker.signal(signal);
        assert_eq!(broker.wait_end(), Some(0), "SIG{signal}");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(10), "SIG{signal}: {took:?}");
        broker.start_again();
        let got = fetch_all(&mut broker.wire(), &topic, 0, 0);
        assert_eq!(got[0].values(), ["a"]);
    }
}

#[test]
fn it_survives_a_kill() {
    if foreign() {
        return;
    }
    let mut broker = Broker::start();
    let topic = unique_topic("kill");
    let mut wire = broker.wire();
    let id = create_topic(&mut wire, &topic, 4);
    let cluster = wire.call(1, &DescribeClusterRequest::default()).cluster_id;
    assert_eq!(cluster.len(), 22, "a UUID in Kafka's base64: {cluster}");
    for round in 0..3 {
        for partition in 0..4 {
            let value = format!("{round}-{partition}");
            let base = produce_ok(&mut wire, &topic, partition, Batch::of(&[&value]).build());
            assert_eq!(base, round);
        }
        broker.kill_and_restart();
        wire = broker.wire();
        assert_eq!(describe_topic(&mut wire, &topic).topic_id, id);
        let now = wire.call(1, &DescribeClusterRequest::default()).cluster_id;
        assert_eq!(now, cluster, "the cluster id stays");
    }
    for partition in 0..4 {
        let got = fetch_all(&mut wire, &topic, partition, 0);
        let values: Vec<String> = got.iter().flat_map(|it| it.values()).collect();
        let expected: Vec<String> = (0..3).map(|round| format!("{round}-{partition}")).collect();
        assert_eq!(values, expected);
    }
    let json = fs::read_to_string(broker.data_dir().join("ringmain.json")).expect("ringmain.json");
    assert!(json.contains(cluster.as_str()), "{json}");
}

#[test]
fn the_admin_address_tells_health_and_metrics() {
    if foreign() {
        return;
    }
    let broker = Broker::start();
    for path in ["/healthz", "/readyz"] {
        let (code, _) = broker.admin_get(path);
        assert_eq!(code, 200, "{path}");
    }
    let (code, body) = broker.admin_get("/metrics");
    assert_eq!(code, 200);
    assert!(body.contains("# TYPE ringmain_"), "{body}");
    for line in body
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let value = line.rsplit_once(' ').expect("a name and a value").1;
        value
            .parse::<f64>()
            .unwrap_or_else(|_| panic!("a number: {line}"));
    }
    assert_eq!(broker.admin_get("/nonsense").0, 404);
}

#[test]
fn each_core_of_the_list_has_a_pinned_thread() {
    if foreign() {
        return;
    }
    let broker = Broker::start();
    let mut pinned = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", broker.pid())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        pinned.push(line.unwrap().trim().to_owned());
    }
    for core in support::two_cores().split(',') {
        assert!(
            pinned.iter().any(|it| it == core),
            "core {core} in {pinned:?}"
        );
    }
}

#[test]
fn an_idle_broker_uses_no_cpu() {
    if foreign() {
        return;
    }
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("idle");
    create_topic(&mut wire, &topic, 50);
    produce_ok(&mut wire, &topic, 0, Batch::of(&["a"]).build());
    thread::sleep(Duration::from_secs(1));
    let (before, started) = (broker.cpu_time(), Instant::now());
    thread::sleep(Duration::from_secs(2));
    let used = broker.cpu_time() - before;
    let share = used.as_secs_f64() / started.elapsed().as_secs_f64();
    assert!(share < 0.03, "{:.1} % of a core", share * 100.0);
}

#[test]
fn a_bad_command_line_is_one_line_and_exit_code_2() {
    let run = |words: &[&str]| {
        let mut command = Command::new(RINGMAIN);
        command.args(words);
        run_to_end(command)
    };
    let rows: [(&[&str], &str); 6] = [
        (&["serve", "--prot", "1"], "--prot"),
        (&["sreve"], "serve"),
        (&["serve", "--listen", "nonsense"], "nonsense"),
        (&["serve", "--cores", "x"], "cores"),
        (&["serve", "--cores", "4000"], "4000"),
        (&["serve", "--admin", "127.0.0.1:99999"], "99999"),
    ];
    for (words, told) in rows {
        assert_refused(&run(words), 2, &[told]);
    }
    let help = run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.contains("serve"));
    let version = run(&["--version"]);
    assert_eq!(
        version.stdout.trim(),
        concat!("ringmain ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn an_unknown_key_names_the_nearest_known_one() {
    let ended = refused_config("log.segment.byte = 1048576\n");
    assert_refused(&ended, 2, &["log.segment.byte", "log.segment.bytes"]);
    let ended = refused_config("[num]\npartition = 3\n");
    assert_refused(&ended, 2, &["num.partition", "num.partitions"]);
}

#[test]
fn a_value_of_the_wrong_type_names_the_key_and_what_it_takes() {
    assert_refused(
        &refused_config("num.partitions = \"many\"\n"),
        2,
        &["num.partitions"],
    );
    assert_refused(
        &refused_config("num.partitions = 0\n"),
        2,
        &["num.partitions"],
    );
    let ended = refused_config("auto.create.topics.enable = 3.5\n");
    assert_refused(&ended, 2, &["auto.create.topics.enable"]);
    assert_refused(
        &refused_config("num.partitions = [1]\n"),
        2,
        &["num.partitions"],
    );
    // A flush interval of nothing, a segment below the smallest.
    assert_refused(
        &refused_config("log.segment.bytes = 1\n"),
        2,
        &["log.segment.bytes"],
    );
}

#[test]
fn a_config_file_that_is_missing_or_no_toml_is_named() {
    let home = temp_dir();
    let missing = home.path().join("missing.toml");
    let mut command = Settings::default().command_without_config(&home.path().join("data"));
    command.arg("--config").arg(&missing);
    assert_refused(&run_to_end(command), 2, &["missing.toml"]);
    assert_refused(&refused_config("num.partitions = = 3\n"), 2, &["data.toml"]);
}

#[test]
fn a_wildcard_address_needs_an_advertised_one() {
    let home = temp_dir();
    let settings = Settings::default().listen("0.0.0.0:0");
    let ended = settings.run_to_end(&home.path().join("data"));
    assert_refused(&ended, 2, &["advertised.listeners"]);
}

#[test]
fn a_port_in_use_is_named() {
    let home = temp_dir();
    let data = home.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().unwrap().to_string();
    let ended = Settings::default().listen(&address).run_to_end(&data);
    assert_refused(&ended, 1, &[&address]);
    let ended = Settings::default().admin(&address).run_to_end(&data);
    assert_refused(&ended, 1, &[&address]);
    // SO_REUSEPORT would let a second broker of the same user join the first one's port.
    if foreign() {
        return;
    }
    let broker = Broker::start();
    let address = broker.bootstrap();
    let ended = Settings::default().listen(&address).run_to_end(&data);
    assert_refused(&ended, 1, &[&address]);
}

#[test]
fn a_data_directory_held_by_another_process_is_named() {
    if foreign() {
        return;
    }
    let broker = Broker::start();
    let ended = Settings::default().run_to_end(broker.data_dir());
    let dir = broker.data_dir().display().to_string();
    assert_refused(&ended, 1, &[&dir]);
    broker
        .wire()
        .call(9, &MetadataRequest::default().with_topics(Some(vec![])));
}

#[test]
fn a_data_directory_that_cannot_be_written_is_named() {
    let home = temp_dir();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = home.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = Settings::default().command(&data);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534); // root writes everywhere
        let mut probe = Command::new(RINGMAIN);
        probe.arg("--version").uid(65534).gid(65534);
        if probe.output().is_err() {
            eprintln!("skipped: the user nobody cannot run {RINGMAIN}");
            return;
        }
    }
    let dir = data.display().to_string();
    assert_refused(&run_to_end(command), 1, &[&dir]);
    // A file where the directory should be.
    let file = home.path().join("file");
    fs::write(&file, "x").unwrap();
    let ended = Settings::default().run_to_end(&file);
    assert_refused(&ended, 1, &[&file.display().to_string()]);
}

#[test]
fn io_uring_that_is_denied_is_named_with_the_remedy() {
    let home = temp_dir();
    let mut command = Settings::default().command(&home.path().join("data"));
    confine::deny_io_uring(&mut command);
    assert_refused(&run_to_end(command), 1, &["io_uring", "seccomp"]);
}

#[test]
fn too_little_locked_memory_is_named_with_the_remedy() {
    let home = temp_dir();
    let mut command = Settings::default().command(&home.path().join("data"));
    confine::limit_memlock(&mut command, 256 * 1024);
    assert_refused(&run_to_end(command), 1, &["memlock", "512"]);
}

fn with_config(toml: &str) -> (Broker, Wire) {
    let broker = Settings::default().config(toml).start();
    let wire = broker.wire();
    (broker, wire)
}

#[test]
fn all_forms_of_toml_name_the_same_key() {
    if foreign() {
        return;
    }
    for toml in [
        "num.partitions = 3\n",
        "\"num.partitions\" = 3\n",
        "[num]\npartitions = 3\n",
        "num = { partitions = 3 }\n",
    ] {
        let (_broker, mut wire) = with_config(toml);
        let topic = unique_topic("toml");
        eventually("the topic is created", Duration::from_secs(5), || {
            wire.call(12, &metadata_request(&topic, true)).topics[0].error_code == 0
        });
        assert_eq!(
            describe_topic(&mut wire, &topic).partitions.len(),
            3,
            "{toml}"
        );
    }
}

#[test]
fn settings_of_the_file_are_observed() {
    if foreign() {
        return;
    }
    let (broker, mut wire) = with_config(
        "node.id = 7\n\
         auto.create.topics.enable = false\n\
         message.max.bytes = 2000\n\
         socket.request.max.bytes = 10000\n\
         log.segment.bytes = 1048576\n",
    );
    assert_eq!(broker.ready().node, "7");
    let topic = unique_topic("observed");
    let answer = wire.call(12, &metadata_request(&topic, true));
    assert_eq!(answer.brokers[0].node_id.0, 7);
    assert_eq!(
        answer.topics[0].error_code,
        code::UNKNOWN_TOPIC_OR_PARTITION
    );
    create_topic(&mut wire, &topic, 1);
    let answer = produce(&mut wire, &topic, 0, Batch::sized(1, 3000).build());
    assert_eq!(answer.error_code, code::MESSAGE_TOO_LARGE);
    let mut large = broker.wire();
    let _ = large.send_frame(&vec![0; 10_001]);
    assert!(
        large.is_closed_within(Duration::from_secs(5)),
        "a frame over the limit"
    );
    let request = MetadataRequest::default().with_topics(Some(vec![]));
    let _ = encode_request(9, 1, &request);
    wire.call(9, &request);
}

/// Sets settings of a broker, or of all where the name is empty; one error code a resource.
fn alter_brokers(wire: &mut Wire, brokers: &[&str], key: &str, value: &str) -> Vec<i16> {
    let resource = |broker: &&str| {
        let entry = AlterableConfig::default()
            .with_name(text(key))
            .with_value(Some(text(value)));
        AlterConfigsResource::default()
            .with_resource_type(4)
            .with_resource_name(text(broker))
            .with_configs(vec![entry])
    };
    let request = IncrementalAlterConfigsRequest::default()
        .with_resources(brokers.iter().map(resource).collect());
    let responses = wire.call(1, &request).responses;
    responses.into_iter().map(|it| it.error_code).collect()
}

#[test]
fn settings_of_the_running_broker_reach_its_topics() {
    if foreign() {
        return;
    }
    let mut broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("dynamic");
    create_topic(&mut wire, &topic, 2);
    let key = "message.max.bytes";
    let large = || Batch::sized(1, 3000).build();
    produce_ok(&mut wire, &topic, 0, large());
    assert_eq!(alter_brokers(&mut wire, &[""], key, "2000"), [code::NONE]);
    for partition in 0..2 {
        let answer = produce(&mut wire, &topic, partition, large());
        assert_eq!(answer.error_code, code::MESSAGE_TOO_LARGE);
    }
    // What is set for one broker goes before what is set for all, and stays.
    assert_eq!(alter_brokers(&mut wire, &["1"], key, "4000"), [code::NONE]);
    produce_ok(&mut wire, &topic, 1, large());
    broker.kill_and_restart();
    let mut wire = broker.wire();
    produce_ok(&mut wire, &topic, 0, large());
    let refused = code::INVALID_REQUEST;
    assert_eq!(alter_brokers(&mut wire, &["1"], key, "many"), [refused]);
    assert_eq!(alter_brokers(&mut wire, &["1"], "node.id", "3"), [refused]);
    assert_eq!(alter_brokers(&mut wire, &["2"], key, "1"), [refused]);
    let twice = alter_brokers(&mut wire, &["1", "", "1"], key, "5000");
    assert_eq!(twice, [refused, code::NONE, refused]);
}

#[test]
fn produce_with_all_acks_needs_the_replicas_that_the_topic_asks_for() {
    if foreign() {
        return;
    }
    let broker = Broker::start();
    let mut wire = broker.wire();
    let topic = unique_topic("replicas");
    create_topic_with(&mut wire, &topic, 1, &[("min.insync.replicas", "2")]);
    let answer = produce(&mut wire, &topic, 0, Batch::of(&["a"]).build());
    assert_eq!(answer.error_code, code::NOT_ENOUGH_REPLICAS);
    let one = produce_request(&topic, 0, 1, Batch::of(&["b"]).build());
    let answer = wire.call(PRODUCE_BY_NAME, &one).responses.swap_remove(0);
    assert_eq!(answer.partition_responses[0].error_code, code::NONE);
    let got = fetch_all(&mut wire, &topic, 0, 0);
    assert_eq!(got[0].values(), ["b"]);
}

#[test]
fn data_goes_where_the_command_line_says() {
    if foreign() {
        return;
    }
    let home = temp_dir();
    let data = home.path().join("deep/er/data");
    fs::create_dir_all(data.parent().unwrap()).unwrap();
    let mut broker = Settings::default().data_dir(&data).start();
    let topic = unique_topic("where");
    let mut wire = broker.wire();
    create_topic(&mut wire, &topic, 1);
    produce_ok(&mut wire, &topic, 0, Batch::of(&["a"]).build());
    assert_eq!(broker.ready().data, data.display().to_string());
    let partition = data.join(format!("{topic}-0"));
    let exists = |name: &str| assert!(Path::new(&partition).join(name).exists(), "{name}");
    exists("leader-epoch-checkpoint");
    exists("partition.metadata");
    broker.stop(); // moves what the commit log has to the segment, and writes its indexes
    exists("00000000000000000000.log");
    exists("00000000000000000000.index");
    exists("00000000000000000000.timeindex");
}
