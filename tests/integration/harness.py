"""Runs a real octavod of the build for tests: port 0, own directories, no waiting by sleeping. ctest puts this folder on PYTHONPATH; by hand:
  OCTAVO_BUILD_DIR=build/default PYTHONPATH=tests/integration tests/integration/scan/main_path_test.py"""

import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

BUILD = os.environ["OCTAVO_BUILD_DIR"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.environ.get("OCTAVO_TEST_DATA", os.path.join(os.path.dirname(SOURCE), "shared", "data"))
sys.path.insert(0, os.path.join(BUILD, "python"))

import octavo  # noqa: E402  (needs the path above)


class Daemon:
    """A running octavod. `directory` is kept if given; otherwise it is removed with the daemon."""

    def __init__(self, *flags, directory=None, environment=None, replay_roots=None, before_exec=None, program=None):
        self.own = directory is None
        self.directory = directory or tempfile.mkdtemp(prefix="octavo-test-")
        self.root = os.path.join(self.directory, "data")
        os.makedirs(self.root, exist_ok=True)
        read, write = os.pipe()
        self.log = open(os.path.join(self.directory, "octavod.log"), "ab")
        usual = {"--listen.tcp": "127.0.0.1:0", "--metrics.listen": "127.0.0.1:0", "--state.dir": os.path.join(self.directory, "state"),
                 "--storage.roots": self.root, "--storage.replay_roots": ",".join(replay_roots or [self.root]), "--drain.seconds": "10"}
        # Of a flag that comes more than once the last one counts: octavod refuses others.
        words = list(flags)
        while words:
            flag = words.pop(0)
            name, equals, value = flag.partition("=")
            usual.pop(name, None)
            usual[name] = value if equals else words.pop(0)
        command = [program or os.path.join(BUILD, "bin", "octavod"), "--ready-fd", str(write), *(word for flag in usual.items() for word in flag)]
        self.process = subprocess.Popen(command, pass_fds=[write], stderr=self.log, env={**os.environ, **(environment or {})},
                                        preexec_fn=before_exec)
        os.close(write)
        with os.fdopen(read) as ready:
            line = ready.readline()  # returns at once if the daemon ends
        if not line:
            error = f"octavod did not start (exit code {self.process.wait()}): {self.text()}"
            self.remove()
            raise RuntimeError(error)
        self.ready = json.loads(line)
        self.address = self.ready["tcp"][0]
        self.metrics = self.ready["metrics"]

    def client(self):
        return octavo.Client(self.address)

    def text(self):
        with open(self.log.name, errors="replace") as log:
            return log.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, timeout=30):
        """Sends SIGTERM and returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout)
        self.log.close()
        return code

    def remove(self):
        if self.process.poll() is None:
            self.kill()
        self.log.close()
        if self.own:
            shutil.rmtree(self.directory, ignore_errors=True)


def held_bytes(client):
    """Held or reserved memory of all devices."""
    return sum(d.held_bytes + d.reserved_bytes for d in client.devices())


def seconds_until(moment):
    """The time left until a moment: of an object, or a Timestamp of a message."""
    return (moment.timestamp() if isinstance(moment, datetime.datetime) else moment.ToNanoseconds() * 1e-9) - time.time()


def until(done, seconds=100):
    """Waits for a condition that other programs make true soon and that has no event to wait for."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise AssertionError("it does not come about")
        time.sleep(0.01)


def subscribers(daemon):
    """Subscriptions to any product that the daemon serves now."""
    text = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=30).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("octavo_subscribers{"))


def waits_for_subscribers(test, count=1):
    """A field of a scan that begins when there are so many subscriptions to a product: volumes that nobody wanted when they were made are not
    announced later."""
    until(lambda: subscribers(test.daemon) == 0)  # those of an earlier test may be about to go
    queue = f"watched-{time.monotonic_ns()}"
    blocker = test.client.submit_scan(octavo.push(idle_timeout=-1), octavo.raster(8, 1, volumes=1), samples=64, queue=queue).name

    over = threading.Event()
    test.addCleanup(over.set)

    def begin():
        try:
            until(lambda: over.is_set() or subscribers(test.daemon) >= count)
        finally:  # a scan that begins too early fails its test; one that never begins hangs it
            with contextlib.suppress(Exception):
                test.client.cancel(blocker)
    threading.Thread(target=begin, daemon=True).start()
    return dict(queue=queue)


class DaemonTest(unittest.TestCase):
    """A daemon for each test class."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(*cls.flags)
        cls.client = cls.daemon.client()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.daemon.stop()
        text = cls.daemon.text()
        cls.daemon.remove()
        assert code == 0, f"octavod ended with {code}: {text}"

    def command(self, *arguments, check=True):
        """Runs the command line `octavo` against the daemon to its end."""
        result = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, *arguments], capture_output=True, text=True,
                                timeout=120)
        if check:
            self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def end_scans(self):
        for scan in self.client.scans():
            if scan.state not in (4, 5, 6, 7):
                self.client.cancel(scan.name)
                self.client.wait(scan.name)

    def tearDown(self):
        self.end_scans()
        for volume in self.client.volumes():
            if volume.state == 2:
                self.client.discard(volume.name)
