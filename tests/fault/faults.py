"""What the fault programs share: how long they run, what they break, and who watches meanwhile.

OCTAVO_FAULT_LONG=1 runs the long form of each program, OCTAVO_TEST_SEED repeats a run's random choices."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from harness import BUILD, Daemon, octavo
from octavo.v1 import scan_pb2, types_pb2

LONG = os.environ.get("OCTAVO_FAULT_LONG", "") not in ("", "0")
SEED = int(os.environ.get("OCTAVO_TEST_SEED") or random.SystemRandom().randrange(1 << 31))
FAULT_IO = os.path.join(BUILD, "lib", "libfault_io.so")
CLOCK_JUMP = os.path.join(BUILD, "lib", "libclock_jump.so")
HELD = types_pb2.VOLUME_STATE_HELD
ENDED = (types_pb2.SCAN_STATE_DONE, types_pb2.SCAN_STATE_FAILED, types_pb2.SCAN_STATE_CANCELLED, types_pb2.SCAN_STATE_LOST)

print(f"OCTAVO_TEST_SEED={SEED}, {'long' if LONG else 'short'} form", file=sys.stderr, flush=True)


def preloads(library):
    """Sanitizer builds have no such libraries: a sanitizer's runtime must be the first one."""
    del library  # one that is missing in another build fails the test
    return unittest.skipIf(os.environ.get("OCTAVO_SANITIZE", "") not in ("", "OFF"), "a sanitizer's runtime must be the first library")


def page(address, timeout=60):
    """Returns ({series: value}, names of the counters and histograms)."""
    text = urllib.request.urlopen(f"http://{address}/metrics", timeout=timeout).read().decode()
    kinds = dict(re.findall(r"^# TYPE (octavo_\S+) (\S+)", text, re.M))
    series = {}
    for line in text.splitlines():
        if line.startswith("octavo_"):
            name, value = line.rsplit(" ", 1)
            assert name not in series, name
            series[name] = float(value)
    return series, {name for name, kind in kinds.items() if kind in ("counter", "histogram")}


class Scraper:
    """Reads the metrics page of a daemon, again and again, while a `with` block breaks things. Afterwards every scrape must have been
    answered, no counter may have fallen, and no series may have come or gone.

    seconds  the longest that one scrape may take: above what a busy machine needs, and far below what a page needs that waits for the fault"""

    def __init__(self, daemon, seconds=20):
        self.daemon, self.seconds = daemon, seconds
        self.stop, self.started = threading.Event(), threading.Event()
        self.falls, self.born, self.gone, self.failed = [], set(), set(), []
        self.count, self.slowest = 0, 0.0
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            first, growing = page(self.daemon.metrics)
            before = first
            self.started.set()
            while not self.stop.is_set():
                begun = time.monotonic()
                now, _ = page(self.daemon.metrics, self.seconds)
                self.slowest = max(self.slowest, time.monotonic() - begun)
                for name, value in now.items():
                    family = re.sub(r"(_bucket|_count|_sum)?(\{.*)?$", "", name)
                    if family in growing and value < before.get(name, 0):
                        self.falls.append((name, before[name], value))
                self.born.update(now.keys() - first.keys())
                self.gone.update(before.keys() - now.keys())
                before = now
                self.count += 1
                self.stop.wait(0.05)
        except Exception as error:  # noqa: BLE001 — the test says so at its end
            self.failed.append(repr(error))
            self.started.set()

    def __enter__(self):
        self.thread.start()
        assert self.started.wait(100)
        return self

    def __exit__(self, kind, *_):
        self.stop.set()
        self.thread.join()
        if kind is None:
            assert not self.failed, f"a scrape failed after {self.count}: {self.failed}"
            assert self.count > 0
            assert not self.falls, f"counters fell: {self.falls[:5]}"
            assert not self.born and not self.gone, f"series came {sorted(self.born)[:5]} and went {sorted(self.gone)[:5]}"


class FaultyDisk:
    """Lets the disk of a daemon fail: Daemon(environment=disk.environment), then disk.fail(...)."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="octavo-fault-io-")
        self.rules, self.log = os.path.join(self.folder, "rules"), os.path.join(self.folder, "log")
        self.environment = {"LD_PRELOAD": FAULT_IO, "FAULT_IO_RULES": self.rules, "FAULT_IO_LOG": self.log}

    def fail(self, calls, prefix, error, skip=0, times=0):
        """From now on the calls ("write,sync"; of open, write, sync, rename, mkdir) on paths that begin with the prefix fail, after `skip`
        that work, `times` times (0 = always)."""
        with open(self.rules + ".new", "w") as file:
            file.write(f"{calls} {prefix} {error} {skip} {times}\n")
        os.rename(self.rules + ".new", self.rules)

    def heal(self):
        if os.path.exists(self.rules):
            os.unlink(self.rules)

    def calls(self):
        """What the library did: (call, errno, inode, path), in order."""
        if not os.path.exists(self.log):
            return []
        with open(self.log, errors="surrogateescape") as file:
            lines = [line.rstrip("\n").split(" ", 3) for line in file]
        return [(call, int(error), int(inode), path) for call, error, inode, path in lines]

    def failures(self):
        return [one for one in self.calls() if one[1] != 0]

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Child:
    """A client in a process of its own, which can be stopped and killed. The script gets `octavo`, `address` and `say(object)`, whose
    objects hear() returns."""

    def __init__(self, script, address, *arguments):
        begin = (f"import json, sys\nsys.path.insert(0, {os.path.join(BUILD, 'python')!r})\nimport octavo\naddress = sys.argv[1]\n"
                 "def say(what):\n    print(json.dumps(what), flush=True)\n")
        self.process = subprocess.Popen([sys.executable, "-c", begin + script, address, *map(str, arguments)], stdout=subprocess.PIPE, text=True)

    def hear(self):
        """The next object, or None at the end."""
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def rest(self):
        return [json.loads(line) for line in self.process.stdout if line.endswith("\n")]

    def signal(self, number):
        self.process.send_signal(number)

    def remove(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def held_volume(client, ascans=64, bscans=16, samples=512, seed=1, **fields):
    """A new held volume of a scan that has ended."""
    scan = client.wait(client.submit_scan(octavo.simulated(seed, fast=True), octavo.raster(ascans, bscans, volumes=1), samples=samples, **fields).name)
    return client.volumes(scan.name)[0]


def live_scan(client, rate_hz=4000, **fields):
    """An acquisition that goes on until it is cancelled, in a ring."""
    return client.submit_scan(octavo.simulated(2), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=rate_hz, **{
        "retention": dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=1), "acquisition": dict(records_per_block=64, ring_blocks=1024), **fields}).name


class FaultTest(unittest.TestCase):
    """`start` makes daemons on one folder, which outlives them."""

    def setUp(self):
        self.random = random.Random(SEED)
        self.directory = tempfile.mkdtemp(prefix="octavo-fault-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.root = os.path.join(self.directory, "data")

    def id(self):
        return f"{super().id()} (OCTAVO_TEST_SEED={SEED})"

    def start(self, *flags, **options):
        daemon = Daemon(*flags, directory=self.directory, **options)
        self.addCleanup(daemon.remove)
        return daemon

    def refused(self, reasons, call, *arguments, **named):
        with self.assertRaises(octavo.OctavoError) as caught:
            call(*arguments, **named)
        self.assertIn(caught.exception.reason, [reasons] if isinstance(reasons, str) else reasons, caught.exception)
        return caught.exception

    def files(self, folder=None):
        """Names below the root that clients and other programs see."""
        return sorted(os.path.relpath(os.path.join(at, name), folder or self.root) for at, _, names in os.walk(folder or self.root) for name in names
                      if "/.octavo-quarantine" not in at)
