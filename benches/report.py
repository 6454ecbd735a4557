#!/usr/bin/env python3
"""Measures the broker beside the limits of the machine it runs on, and prints a Markdown table.

    benches/report.py                          # about ten minutes
    benches/report.py --repeats 3 --only produce,latency --json raw.json
    benches/report.py --check                  # exit 1 where a target is missed

The broker runs on one core and the load on another. Each repeat measures a limit and the broker one
behind the other, in the same directory or over the same address, so that the ratio of the two holds
although the machine is shared: the table gives medians of such pairs and their spread. A pair during
which other processes took more than 10 % of the machine, or the hypervisor more than 1 %, does not
count and is measured again. The raw file has every single run with its command.

Needs cargo, fio, iperf3 (Debian's packages have these names) and taskset (util-linux).
"""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
FOREIGN_CPU_SHARE_MAX = 0.10
STEAL_SHARE_MAX = 0.01
MIB = 1 << 20
PARTS = ("produce", "consume", "latency", "idle")


class Failed(Exception):
    """One line that says what to do."""


# ---- The machine -------------------------------------------------------------------------------


@dataclasses.dataclass
class Machine:
    """Seconds of all cores since boot, and of our own children."""

    busy: float
    steal: float
    total: float
    children: float

    @staticmethod
    def read() -> "Machine":
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
        user, nice, system, idle, wait, irq, soft, steal = (t / TICKS_PER_SECOND for t in ticks)
        busy = user + nice + system + irq + soft
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        children = usage.ru_utime + usage.ru_stime
        return Machine(busy, steal, busy + idle + wait + steal, children)

    def noise_since(self, before: "Machine", own: float | None = None) -> dict:
        """Shares of the machine; `own` is the processor time of what was measured."""
        total = max(self.total - before.total, 1e-9)
        own = self.children - before.children if own is None else own
        foreign = max(self.busy - before.busy - own, 0.0)
        return {
            "foreign_cpu_share": foreign / total,
            "steal_share": (self.steal - before.steal) / total,
        }


def is_quiet(run: dict) -> bool:
    return (
        run["foreign_cpu_share"] <= FOREIGN_CPU_SHARE_MAX and run["steal_share"] <= STEAL_SHARE_MAX
    )


def run_json(command: list[str], what: str) -> dict:
    """Runs a command that prints JSON, and adds how disturbed the machine was."""
    before = Machine.read()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Failed(f"{error.filename} is missing; install it (on Debian: fio, iperf3)") from error
    noise = Machine.read().noise_since(before)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(f"{what} failed: {lines[-1] if lines else done.returncode}")
    # fio prints warnings before its object.
    result = json.loads(done.stdout[done.stdout.index("{") :])
    return {"command": " ".join(command), "result": result} | noise


# ---- The broker --------------------------------------------------------------------------------


class Broker:
    """`ringmain serve` on a directory of its own."""

    def __init__(self, binary: Path, directory: Path, cores: str, settings: dict | None = None):
        self.directory = directory
        config = directory.with_suffix(".toml")
        lines = [f"{key} = {value}\n" for key, value in (settings or {}).items()]
        config.write_text("".join(lines), encoding="ascii")
        address = "127.0.0.1:0"
        command = [str(binary), "serve", "--config", str(config), "--data-dir", str(directory)]
        command += ["--listen", address, "--admin", address, "--cores", cores]
        self.command = " ".join(command)
        self.log = directory.with_suffix(".log")
        begun = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", cores, *command], stdout=subprocess.PIPE, stderr=log, text=True
            )
        line = self.process.stdout.readline()
        self.start_seconds = time.monotonic() - begun
        if not line.startswith("ringmain ready "):
            self.process.wait()
            tail = self.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise Failed(f"the broker did not start: {' '.join(tail)}; see {self.log}")
        self.address = dict(part.split("=", 1) for part in line.split()[2:])["kafka"]

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_seconds(self) -> float:
        """Of all threads, those that ended included, to the nanosecond."""
        # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime((~self.pid << 3) | 2)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def disk_bytes_read(self) -> int:
        counters = Path(f"/proc/{self.pid}/io").read_text(encoding="ascii")
        return int(counters.split("\nread_bytes:")[1].split()[0])

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            self.process.wait()
            raise Failed(f"the broker did not stop within 60 s; see {self.log}") from error


@contextlib.contextmanager
def broker(report: "Report", cores: str, settings: dict | None = None):
    """A broker on an empty directory, which is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="broker-", dir=report.directory))
    running = Broker(report.binary, directory, cores, settings)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()
        shutil.rmtree(directory)
        directory.with_suffix(".toml").unlink()
        directory.with_suffix(".log").unlink()
        os.sync()


# ---- Limits and load ---------------------------------------------------------------------------


class Report:
    def __init__(self, options: argparse.Namespace, directory: Path, binary: Path):
        self.options = options
        self.directory = directory
        self.binary = binary
        self.rows: list[tuple[str, str, str, str]] = []
        self.raw: dict = {}
        self.missed: list[str] = []
        self.notes: list[str] = []

    def bench(self, running: Broker, kind: str, *arguments: str) -> dict:
        """The load generator on the load's core; processor time is the broker's."""
        command = ["taskset", "-c", self.options.load_core, str(self.binary), "bench", kind]
        command += ["--json", "--bootstrap", running.address, "--broker-pid", str(running.pid)]
        run = run_json(command + list(arguments), f"ringmain bench {kind}")
        noise = {key: run["result"][key] for key in ("foreign_cpu_share", "steal_share")}
        return run | noise  # the broker is no child of ours: the generator counted it as not foreign

    def fio(self, name: str, *arguments: str) -> dict:
        path = self.directory / name
        command = ["taskset", "-c", self.options.broker_core, "fio", "--output-format=json"]
        command += ["--ioengine=io_uring", "--direct=1", f"--name={name}", f"--filename={path}"]
        run = run_json(command + list(arguments), "fio")
        run["result"] = run["result"]["jobs"][0]
        return run

    def disk_rate(self) -> dict:
        """Direct sequential write into a new file, MB/s."""
        run = self.fio("sequential", "--rw=write", "--bs=1m", "--iodepth=16", "--size=2g")
        run["megabytes_per_second"] = run["result"]["write"]["bw_bytes"] / 1e6
        (self.directory / "sequential").unlink()
        return run

    def flush_latency(self) -> dict:
        """4 KiB write and fdatasync, one in flight, in extents that were written before."""
        path = self.directory / "written"
        if not path.exists():
            layout = ("--rw=write", "--bs=1m", "--iodepth=16", "--size=256m", "--end_fsync=1")
            self.fio("written", *layout)
            os.sync()
        shape = ("--rw=write", "--bs=4k", "--iodepth=1", "--fdatasync=1", "--size=256m")
        run = self.fio("written", *shape, "--overwrite=1", "--time_based", "--runtime=4")
        write, sync = run["result"]["write"], run["result"]["sync"]
        run["flushed_writes_per_second"] = write["iops"]
        for name, key in (("p50", "50.000000"), ("p99", "99.000000"), ("p99_9", "99.900000")):
            parts = (write["clat_ns"]["percentile"][key], sync["lat_ns"]["percentile"][key])
            run[name] = sum(parts) / 1e6
        return run

    def loopback_rate(self) -> dict:
        """TCP between the broker's core and the load's, MB/s."""
        port = "5291"
        pinned = ["taskset", "-c", self.options.broker_core]
        server = subprocess.Popen(
            [*pinned, "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port],
            stdout=subprocess.DEVNULL,
        )
        try:
            time.sleep(0.3)
            client = ["taskset", "-c", self.options.load_core, "iperf3", "-c", "127.0.0.1"]
            before = Machine.read()
            # The data flows as a consumer's does: from the broker's core to the load's.
            run = run_json([*client, "-p", port, "-t", "3", "-J", "-R"], "iperf3")
        finally:
            server.terminate()
            server.wait()
        # The server's time counts as a child's only now that it has ended.
        run |= Machine.read().noise_since(before)
        run["megabytes_per_second"] = run["result"]["end"]["sum_received"]["bits_per_second"] / 8e6
        del run["result"]
        return run

    # ---- Pairs ---------------------------------------------------------------------------------

    def pairs(self, name: str, limit, measure) -> list[tuple[dict, dict]]:
        """A limit and the broker in turn until enough undisturbed pairs are there."""
        wanted = self.options.repeats
        every, quiet = [], []
        while len(quiet) < wanted and len(every) < 2 * wanted:
            disturbed = len(every) - len(quiet)
            progress(f"{name}: {len(quiet)} of {wanted} pairs, {disturbed} disturbed")
            pair = (limit(), measure())
            every.append(pair)
            if all(is_quiet(run) for run in pair):
                quiet.append(pair)
        self.raw[name] = [{"limit": a, "broker": b} for a, b in every]
        enough = len(quiet) >= min(3, wanted)
        if not enough:
            self.notes.append(
                f"{name}: only {len(quiet)} of {len(every)} pairs were undisturbed, all count; "
                "measure again on a quieter machine."
            )
        return quiet if enough else every

    def row(self, what: str, figure: str, target: str = "", met: bool | None = None) -> None:
        verdict = {None: "", True: "yes", False: "**no**"}[met]
        if met is False:
            self.missed.append(what)
        self.rows.append((what, figure, target, verdict))

    def throughput_rows(self, name: str, of: str, pairs, share_min: float, cost_max: float) -> None:
        limits = [limit["megabytes_per_second"] for limit, _ in pairs]
        rates = [run["result"]["megabytes_per_second"] for _, run in pairs]
        shares = [100 * rate / limit for rate, limit in zip(rates, limits)]
        costs = [run["result"]["broker_cpu_seconds_per_gigabyte"] for _, run in pairs]
        client = [run["result"]["client_cpu_seconds_per_gigabyte"] for _, run in pairs]
        self.row(f"{name}, MB/s", spread(rates, 0))
        self.row(f"{of}, MB/s", spread(limits, 0))
        share = statistics.median(shares)
        self.row(
            f"{name}, % of {of}", spread(shares, 1), f">= {share_min:.0f}", share >= share_min
        )
        cost = statistics.median(costs)
        self.row(
            f"{name}, broker CPU-s/GB", spread(costs, 3), f"<= {cost_max}", cost <= cost_max
        )
        self.row(f"{name}, client CPU-s/GB", spread(client, 3))

    # ---- The parts -----------------------------------------------------------------------------

    def produce(self) -> None:
        options = self.options
        shape = ["--partitions", "8", "--record-size", "1KiB", "--batch-bytes", "256KiB"]
        shape += ["--acks", "all", "--bytes", options.bytes, "--warm-up-seconds", "1"]
        shape += ["--connections", str(options.connections), "--in-flight", str(options.in_flight)]

        def measure() -> dict:
            with broker(self, options.broker_core) as running:
                run = self.bench(running, "produce", *shape)
                run["resident_bytes"] = running.resident_bytes()
                return run

        pairs = self.pairs("produce", self.disk_rate, measure)
        name = "produce, 1 KiB records, 256 KiB batches, 8 partitions, acks=all, flushed"
        self.throughput_rows(name, "the disk's sequential write", pairs, 40, 0.7)
        resident = [run["resident_bytes"] / 1e6 for _, run in pairs]
        self.row("produce, broker's resident memory, MB", spread(resident, 0))

    def consume(self) -> None:
        options = self.options
        held = 1 << 30
        settings = {"ringmain.tail.cache.bytes": 2 * held}
        shape = ["--bytes", options.bytes, "--warm-up-seconds", "1", "--fetch-bytes", "1MiB"]
        shape += ["--connections", str(options.connections)]
        with broker(self, options.broker_core, settings) as running:
            fill = ["--partitions", "8", "--batch-bytes", "256KiB", "--bytes", "1GiB"]
            self.bench(running, "produce", *fill)

            def measure() -> dict:
                before = running.disk_bytes_read()
                run = self.bench(running, "consume", *shape)
                run["disk_bytes_read"] = running.disk_bytes_read() - before
                return run

            pairs = self.pairs("consume", self.loopback_rate, measure)
        name = "consume, 1 GiB from the tail cache"
        self.throughput_rows(name, "loopback TCP", pairs, 40, 0.4)
        read = max(run["disk_bytes_read"] for _, run in pairs)
        self.row("consume, read from disk meanwhile, MB", f"{read / 1e6:.1f}")

    def latency(self) -> None:
        shape = ["--partitions", "1", "--record-size", "1KiB", "--batch-bytes", "1"]
        shape += ["--in-flight", "1", "--connections", "1", "--acks", "all"]
        shape += ["--warm-up-seconds", "1", "--seconds", "4"]

        def measure() -> dict:
            with broker(self, self.options.broker_core) as running:
                return self.bench(running, "produce", *shape)

        pairs = self.pairs("latency", self.flush_latency, measure)
        for key, shown in (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9")):
            ours = [run["result"]["latency_ms"][key] for _, run in pairs]
            disk = [limit[key] for limit, _ in pairs]
            self.row(f"one 1 KiB record at a time, flushed, {shown} ms", spread(ours, 3))
            self.row(f"4 KiB write + fdatasync (fio), {shown} ms", spread(disk, 3))
        (self.directory / "written").unlink()

    def idle(self) -> None:
        both = f"{self.options.broker_core},{self.options.load_core}"
        runs = []
        for number in range(min(self.options.repeats, 3)):
            progress(f"idle: run {number + 1}")
            directory = Path(tempfile.mkdtemp(prefix="idle-", dir=self.directory))
            running = Broker(self.binary, directory, both)
            try:
                fill = ["--partitions", "1000", "--batch-bytes", "1", "--batches-per-request", "100"]
                fill += ["--records", "4000"]
                self.bench(running, "produce", *fill)
                run = self.idle_run(running)
                for how, name in ((signal.SIGTERM, "clean"), (signal.SIGKILL, "killed")):
                    # Every partition has something to close, or to recover.
                    self.bench(running, "produce", *fill)
                    begun = time.monotonic()
                    running.stop(how)
                    run[f"stop_seconds_{name}"] = time.monotonic() - begun
                    running = Broker(self.binary, directory, both)
                    run[f"start_seconds_{name}"] = running.start_seconds
                runs.append(run)
            finally:
                if running.process.poll() is None:
                    running.stop()
                shutil.rmtree(directory)
                directory.with_suffix(".toml").unlink()
                directory.with_suffix(".log").unlink()
        self.raw["idle"] = runs
        resident = [run["resident_bytes"] / 1e6 for run in runs]
        cpu = [run["cpu_percent"] for run in runs]
        clean = [run["start_seconds_clean"] for run in runs]
        killed = [run["start_seconds_killed"] for run in runs]
        what = "1,000 partitions on two cores"
        met = statistics.median(resident) < 200
        self.row(f"idle, {what}, resident MB", spread(resident, 0), "< 200", met)
        met = statistics.median(cpu) < 1
        self.row(f"idle, {what}, % of one core", spread(cpu, 2), "< 1", met)
        stop = [run["stop_seconds_clean"] for run in runs]
        self.row(f"clean stop, {what}, s", spread(stop, 2))
        met = statistics.median(clean) < 2
        self.row(f"start, {what}, after a clean stop, s", spread(clean, 2), "< 2", met)
        met = statistics.median(killed) < 2
        self.row(f"start, {what}, after SIGKILL, s", spread(killed, 2), "< 2", met)

    def idle_run(self, running: Broker) -> dict:
        """Ten quiet seconds, after those in which the broker still expects more work."""
        time.sleep(5)
        before, begun = running.cpu_seconds(), time.monotonic()
        time.sleep(10)
        spent, elapsed = running.cpu_seconds() - before, time.monotonic() - begun
        return {
            "command": running.command,
            "cpu_percent": 100 * spent / elapsed,
            "resident_bytes": running.resident_bytes(),
        }


# ---- Output ------------------------------------------------------------------------------------


def spread(values: list[float], digits: int) -> str:
    """The median, and the lowest and highest value where there are several."""
    shown = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return shown
    return f"{shown} ({min(values):.{digits}f} to {max(values):.{digits}f}, n={len(values)})"


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def environment() -> dict:
    def output(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
        return done.stdout.strip()

    model = ""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "revision": output("git", "describe", "--always", "--dirty"),
        "kernel": platform.release(),
        "processor": model,
        "cores": os.cpu_count(),
        "fio": output("fio", "--version"),
        "iperf3": output("iperf3", "--version").splitlines()[:1],
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def markdown(report: Report, machine: dict) -> str:
    options = report.options
    lines = [
        f"Revision {machine['revision']}, Linux {machine['kernel']}, {machine['cores']} cores of "
        f"{machine['processor']}; broker on core {options.broker_core}, load on core "
        f"{options.load_core}; median (lowest to highest) of {options.repeats} pairs.",
        "",
        "| what | figure | target | met |",
        "|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row)} |" for row in report.rows]
    lines += [line for note in report.notes for line in ("", note)]
    return "\n".join(lines)


def build() -> Path:
    done = subprocess.run(["cargo", "build", "--release"], cwd=REPOSITORY, check=False)
    if done.returncode != 0:
        raise Failed("cargo build --release failed; see above")
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / "release" / "ringmain"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="pairs to measure [5]")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts [{','.join(PARTS)}]")
    parser.add_argument("--bytes", default="4GiB", help="bytes a throughput run moves [4GiB]")
    parser.add_argument("--connections", type=int, default=4, help="of the load [4]")
    parser.add_argument("--in-flight", type=int, default=16, help="requests a connection [16]")
    parser.add_argument("--broker-core", default="0", help="[0]")
    parser.add_argument("--load-core", default="1", help="[1]")
    parser.add_argument("--binary", type=Path, help="measure this one instead of building")
    parser.add_argument("--data-dir", type=Path, help="where to measure [target/report]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to this file")
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    options = parser.parse_args()
    options.only = options.only.split(",")
    for part in options.only:
        if part not in PARTS:
            parser.error(f"--only: `{part}` is none of {', '.join(PARTS)}")
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    return options


def main() -> int:
    options = parse_options()
    binary = options.binary.resolve() if options.binary else build()
    parent = (options.data_dir or REPOSITORY / "target" / "report").resolve()
    parent.mkdir(parents=True, exist_ok=True)
    machine = environment()
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        report = Report(options, Path(directory), binary)
        for part in options.only:
            try:
                getattr(report, part)()
            except Failed as failure:
                # What the other parts found is worth having.
                report.notes.append(f"{part}: {failure}")
                report.missed.append(part)
    print(markdown(report, machine))
    if options.json:
        raw = {"environment": machine, "options": vars(options), "runs": report.raw}
        options.json.write_text(json.dumps(raw, indent=1, default=str) + "\n", encoding="utf-8")
    if options.check and report.missed:
        progress(f"missed: {'; '.join(report.missed)}")
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"report.py: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
