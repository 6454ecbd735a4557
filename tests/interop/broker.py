"""A broker under test: the built one, or a foreign one for checking the tests themselves."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading


class Broker:
    """Starts `ringmain serve` on two cores, or stands for RINGMAIN_TEST_BOOTSTRAP.

    With a foreign broker RINGMAIN_TEST_DATA names its data directory, if its files can be read.
    """

    def __init__(self, binary, config=""):
        self.foreign = os.environ.get("RINGMAIN_TEST_BOOTSTRAP")
        self.process = None
        if self.foreign:
            self.bootstrap = self.foreign
            self.data = os.environ.get("RINGMAIN_TEST_DATA")
            return
        parent = os.path.dirname(os.path.abspath(binary))
        self.home = tempfile.mkdtemp(prefix="interop-", dir=parent)
        self.binary = binary
        self.data = os.path.join(self.home, "data")
        self.config = os.path.join(self.home, "ringmain.toml")
        with open(self.config, "w") as file:
            file.write(config)
        self.listen, self.admin = "127.0.0.1:0", "127.0.0.1:0"
        self.start()

    def start(self):
        cores = sorted(os.sched_getaffinity(0))[:2]
        log = open(os.path.join(self.home, "log"), "a")
        self.process = subprocess.Popen(
            [
                self.binary, "serve", "--listen", self.listen, "--admin", self.admin,
                "--data-dir", self.data, "--config", self.config,
                "--cores", ",".join(str(core) for core in cores),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        watchdog = threading.Timer(60, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        match = re.match(r"ringmain ready kafka=(\S+) admin=(\S+) ", line)
        if not match:
            with open(log.name) as file:
                raise AssertionError(f"no ready line but {line!r}; the log:\n{file.read()}")
        self.bootstrap, self.admin = match.group(1), match.group(2)
        self.listen = self.bootstrap

    def stop(self):
        """SIGTERM; the exit code must be 0. A foreign broker stays."""
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(timeout=60)
            self.process = None
            assert code == 0, f"a clean stop has exit code 0, not {code}"

    def restart(self):
        if not self.foreign:
            self.stop()
            self.start()

    def close(self, keep_log=False):
        if self.process:
            self.process.kill()
            self.process.wait()
        if not self.foreign:
            if keep_log:
                with open(os.path.join(self.home, "log")) as file:
                    print("---- log of the broker ----", file.read()[-20000:], sep="\n")
            shutil.rmtree(self.home, ignore_errors=True)
