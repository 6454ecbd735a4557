"""Debian's kcat (librdkafka 2.0.2): a million records over 12 partitions in each compression."""

import hashlib
import os
import subprocess
import tempfile
import time

PARTITIONS = 12
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS = "origin=interop,empty="


def lines(partition, count):
    """Key and value of each record of a partition, in order."""
    for number in range(count):
        digest = hashlib.md5(b"%d %d" % (partition, number)).hexdigest()
        yield f"key-{partition}-{number}", f"value {number} of partition {partition} {digest} {'=' * (number % 60)}"


def kcat(bootstrap, *words, **rest):
    return subprocess.run(
        ["kcat", "-b", bootstrap, "-X", "broker.address.family=v4", *words],
        check=True, timeout=300, **rest,
    )


def every_compression(broker, records=1_000_000):
    """Contents by SHA-256, offsets, order, keys, headers and timestamps."""
    count = -(-records // PARTITIONS)
    with tempfile.TemporaryDirectory() as folder:
        expected = []
        for partition in range(PARTITIONS):
            digest = hashlib.sha256()
            with open(os.path.join(folder, str(partition)), "w") as file:
                for offset, (key, value) in enumerate(lines(partition, count)):
                    file.write(f"{key}\t{value}\n")
                    digest.update(f"{offset}|{key}|{HEADERS}|{value}\n".encode())
            expected.append(digest.hexdigest())
        for compression in COMPRESSIONS:
            one_compression(broker, folder, compression, count, expected)


def one_compression(broker, folder, compression, count, expected):
    topic = f"kcat-{compression}-{os.getpid()}"
    create(broker, topic)
    started = time.time()
    for partition in range(PARTITIONS):
        kcat(
            broker.bootstrap, "-P", "-t", topic, "-p", str(partition), "-K", "\t", "-z", compression,
            "-H", "origin=interop", "-H", "empty=", "-X", "acks=all", "-X", "linger.ms=20",
            "-l", os.path.join(folder, str(partition)),
        )
    produced = time.time()
    for partition in range(PARTITIONS):
        got = kcat(
            broker.bootstrap, "-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q",
            "-X", "check.crcs=true", "-f", "%o|%k|%h|%s\\n", stdout=subprocess.PIPE,
        ).stdout
        where = f"{compression}, partition {partition}"
        found = got.count(b"\n")
        assert found == count, f"{where}: {found} records, not {count}"
        assert hashlib.sha256(got).hexdigest() == expected[partition], f"{where}: SHA-256 differs"
    stamps = kcat(
        broker.bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "100", "-q",
        "-f", "%T\\n", stdout=subprocess.PIPE,
    ).stdout.split()
    for stamp in stamps:
        assert started - 1 <= int(stamp) / 1000 <= produced + 1, f"a timestamp of {stamp}"
    print(
        f"  kcat {compression}: {count * PARTITIONS} records, produced in {produced - started:.1f} s, "
        f"consumed in {time.time() - produced:.1f} s"
    )


def create(broker, topic):
    """kcat cannot create topics, but asking for one creates it with num.partitions."""
    deadline = time.time() + 20
    while time.time() < deadline:
        listed = kcat(broker.bootstrap, "-L", "-t", topic, stdout=subprocess.PIPE).stdout.decode()
        if f'topic "{topic}" with {PARTITIONS} partitions' in listed and "not available" not in listed:
            return
        time.sleep(0.2)
    raise AssertionError(f"{topic} has not {PARTITIONS} partitions:\n{listed}")


def by_time_and_tail(broker):
    """Offsets by time and from the end."""
    topic = f"kcat-times-{os.getpid()}"
    create(broker, topic)
    kcat(broker.bootstrap, "-P", "-t", topic, "-p", "0", input=b"a\nb\nc\n")
    time.sleep(0.05)
    now = int(time.time() * 1000)
    time.sleep(0.05)
    kcat(broker.bootstrap, "-P", "-t", topic, "-p", "0", input=b"d\ne\n")
    got = kcat(
        broker.bootstrap, "-C", "-t", topic, "-p", "0", "-o", f"s@{now}", "-e", "-q",
        stdout=subprocess.PIPE,
    ).stdout
    assert got == b"d\ne\n", got
    got = kcat(
        broker.bootstrap, "-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q", stdout=subprocess.PIPE
    ).stdout
    assert got == b"e\n", got
    found = kcat(
        broker.bootstrap, "-Q", "-t", f"{topic}:0:{now}", stdout=subprocess.PIPE
    ).stdout.decode()
    assert "offset 3" in found, found
    print("  kcat offsets by time and from the end")
