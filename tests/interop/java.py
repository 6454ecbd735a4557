"""Apache Kafka's own tools: DumpLogSegments on our files, the console clients and admin tools."""

import glob
import os
import re
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RECORD = re.compile(r"^\| offset: (\d+)")


class Kafka:
    """The jars, brought by Maven once and kept below `target`."""

    def __init__(self, target):
        self.jars = os.path.join(target, "interop-java")
        if not glob.glob(os.path.join(self.jars, "kafka-tools-*.jar")):
            print("  bringing Kafka's tools", flush=True)
            subprocess.run(
                [
                    "mvn", "-q", "-B", "-f", os.path.join(HERE, "java", "pom.xml"),
                    "dependency:copy-dependencies", f"-DoutputDirectory={self.jars}",
                ],
                check=True, timeout=900,
            )

    def tool(self, name, *words, stdin=None, timeout=180):
        """Standard output and error together; the exit code must be 0."""
        done = subprocess.run(
            ["java", "-Xmx512m", "-cp", f"{self.jars}/*", name, *words],
            input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, text=True,
        )
        noise = [line for line in done.stderr.splitlines() if not line.startswith("SLF4J:")]
        assert done.returncode == 0, f"{name} {words}: exit code {done.returncode}\n{done.stdout}\n{noise}"
        return done.stdout


def dump(kafka, folder, closed_only=False):
    """DumpLogSegments on every log and index of a partition; returns the number of records."""
    logs = sorted(glob.glob(os.path.join(folder, "*.log")))
    assert logs, f"no segments in {folder}"
    if closed_only:
        logs = logs[:-1]
    records = 0
    for log in logs:
        records += dump_log(kafka, log)
    indexes = [
        log.removesuffix(".log") + suffix for log in logs for suffix in [".index", ".timeindex"]
    ]
    for words in [[], ["--index-sanity-check"], ["--verify-index-only"]]:
        text = kafka.tool("kafka.tools.DumpLogSegments", *words, "--files", ",".join(indexes))
        for complaint in ["ismatch", "orrupt", "rror", "not in order", "out of order", "missing", "invalid"]:
            assert complaint not in text, f"{words} {folder}:\n{text}"
    return records


def dump_log(kafka, log):
    text = kafka.tool(
        "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", log
    )
    base = int(os.path.basename(log).split(".")[0])
    assert f"Log starting offset: {base}" in text, f"{log}:\n{text[:500]}"
    for complaint in ["isvalid: false", "Found", "Mismatches", "onconsecutive", "on-secutive", "Non-consecutive"]:
        assert complaint not in text, f"{log}: {complaint}\n{text[-3000:]}"
    expected, position = base, 0
    for line in text.splitlines():
        record = RECORD.match(line)
        if record:
            assert int(record.group(1)) == expected, f"{log}: offset {record.group(1)}, not {expected}"
            expected += 1
        batch = re.match(r"baseOffset: \d+ .* position: (\d+) .* size: (\d+) .* isvalid: true", line)
        if batch:
            assert int(batch.group(1)) == position, f"{log}: a batch at {batch.group(1)}, not {position}"
            position += int(batch.group(2))
    assert position == os.path.getsize(log), f"{log}: {position} of {os.path.getsize(log)} bytes are batches"
    return expected - base


def files_are_kafkas(broker, kafka, kcat):
    """Rolled segments while running, then everything after a clean stop."""
    if broker.data is None:
        print("  DumpLogSegments: skipped, the files of the foreign broker are not known")
        return
    topic = f"dump-{os.getpid()}"
    bootstrap = ["--bootstrap-server", broker.bootstrap]
    create(kafka, bootstrap, topic, "--config", "segment.bytes=1048576")
    counts = 0
    for compression in kcat.COMPRESSIONS:
        text = "".join(f"{key}\t{value}\n" for key, value in kcat.lines(0, 12_000))
        kcat.kcat(
            broker.bootstrap, "-P", "-t", topic, "-p", "0", "-K", "\t", "-z", compression,
            "-X", "batch.num.messages=500", input=text.encode(),
        )
        counts += 12_000
    folder = os.path.join(broker.data, f"{topic}-0")
    segments = len(glob.glob(os.path.join(folder, "*.log")))
    assert segments >= 3, f"{segments} segments in {folder}"
    rolled = dump(kafka, folder, closed_only=True)
    print(f"  DumpLogSegments: {rolled} records in {segments - 1} rolled segments while running")
    if broker.foreign:
        return
    broker.stop()
    total = dump(kafka, folder)
    assert total == counts, f"{total} records, not {counts}"
    for suffix in [".log", ".index", ".timeindex"]:
        assert glob.glob(os.path.join(folder, "*" + suffix))
    for snapshot in glob.glob(os.path.join(folder, "*.snapshot")):
        kafka.tool("kafka.tools.DumpLogSegments", "--files", snapshot)
    print(f"  DumpLogSegments: {total} records in {segments} segments after a clean stop")
    broker.start()


def console_clients(broker, kafka):
    """The Java producer (idempotent by default) and consumer, with partitions assigned."""
    bootstrap = ["--bootstrap-server", broker.bootstrap]
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"]:
        topic = f"java-{compression}-{os.getpid()}"
        create(kafka, bootstrap, topic)
        text = "".join(f"key-{number}:value {number}\n" for number in range(5000))
        kafka.tool(
            "org.apache.kafka.tools.ConsoleProducer", *bootstrap, "--topic", topic,
            "--compression-codec", compression, "--property", "parse.key=true",
            "--property", "key.separator=:", stdin=text,
        )
        got = kafka.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", *bootstrap, "--topic", topic,
            "--partition", "0", "--offset", "earliest", "--max-messages", "5000",
            "--property", "print.key=true", "--property", "key.separator=:",
        )
        assert got == text, f"{compression}: contents"
    print("  Java console producer and consumer, each compression")


def create(kafka, bootstrap, topic, *words):
    kafka.tool(
        "org.apache.kafka.tools.TopicCommand", *bootstrap, "--create", "--topic", topic,
        "--partitions", "1", "--replication-factor", "1", *words,
    )


def describe(kafka, bootstrap, topic):
    return kafka.tool(
        "org.apache.kafka.tools.TopicCommand", *bootstrap, "--describe", "--topic", topic
    )


def admin_tools(broker, kafka):
    """kafka-topics, kafka-configs, kafka-get-offsets, kafka-delete-records."""
    bootstrap = ["--bootstrap-server", broker.bootstrap]
    topic = f"admin-{os.getpid()}"
    topics = "org.apache.kafka.tools.TopicCommand"
    configs = "kafka.admin.ConfigCommand"
    kafka.tool(topics, *bootstrap, "--create", "--topic", topic, "--partitions", "3",
               "--replication-factor", "1", "--config", "retention.ms=3600000")
    assert topic in kafka.tool(topics, *bootstrap, "--list").splitlines()
    text = describe(kafka, bootstrap, topic)
    assert "PartitionCount: 3" in text and "retention.ms=3600000" in text, text
    assert text.count("Leader: 1") == 3, text
    kafka.tool(topics, *bootstrap, "--alter", "--topic", topic, "--partitions", "5")
    deadline = time.time() + 10
    while "PartitionCount: 5" not in describe(kafka, bootstrap, topic):
        assert time.time() < deadline, "five partitions"

    of_topic = ["--entity-type", "topics", "--entity-name", topic]
    kafka.tool(configs, *bootstrap, "--alter", *of_topic,
               "--add-config", "max.message.bytes=2000000,cleanup.policy=[compact,delete]")
    text = kafka.tool(configs, *bootstrap, "--describe", *of_topic)
    for entry in ["max.message.bytes=2000000", "cleanup.policy=compact,delete", "retention.ms=3600000"]:
        assert entry in text, text
    kafka.tool(configs, *bootstrap, "--alter", *of_topic, "--delete-config", "retention.ms,cleanup.policy")
    text = kafka.tool(configs, *bootstrap, "--describe", *of_topic, "--all")
    assert "retention.ms=604800000" in text and "cleanup.policy=delete" in text, text
    text = kafka.tool(configs, *bootstrap, "--describe", "--entity-type", "brokers",
                      "--entity-name", "1", "--all")
    assert "num.partitions=" in text, text

    sent = kafka.tool("org.apache.kafka.tools.ProducerPerformance", "--topic", topic,
                      "--num-records", "100000", "--record-size", "200", "--throughput", "-1",
                      "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all")
    assert "100000 records sent" in sent, sent
    text = kafka.tool("org.apache.kafka.tools.GetOffsetShell", *bootstrap, "--topic", topic)
    ends = [int(line.split(":")[2]) for line in text.splitlines()]
    assert len(ends) == 5 and sum(ends) == 100000, text
    target = max(range(5), key=lambda partition: ends[partition])
    request = os.path.join(kafka.jars, f"delete-{os.getpid()}.json")
    with open(request, "w") as file:
        file.write('{"version":1,"partitions":[{"topic":"%s","partition":%d,"offset":5}]}' % (topic, target))
    text = kafka.tool("org.apache.kafka.tools.DeleteRecordsCommand", *bootstrap,
                      "--offset-json-file", request)
    os.remove(request)
    assert "low_watermark: 5" in text, text
    text = kafka.tool("org.apache.kafka.tools.GetOffsetShell", *bootstrap, "--topic", topic,
                      "--time", "earliest")
    assert f"{topic}:{target}:5" in text, text
    kafka.tool(topics, *bootstrap, "--delete", "--topic", topic)
    deadline = time.time() + 10
    while topic in kafka.tool(topics, *bootstrap, "--list").splitlines():
        assert time.time() < deadline, "the topic is gone"
    print("  kafka-topics, kafka-configs, kafka-producer-perf-test, kafka-get-offsets, kafka-delete-records")
