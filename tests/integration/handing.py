"""Shared by tests of mapped memory: clients in separate processes, and a daemon that must get all
its memory back."""

import gc
import json
import os
import subprocess
import sys
import urllib.request

import numpy as np

import harness
from harness import until
import octavo
from octavo import mapping
from octavo.v1 import export_pb2

ON_HOST = os.environ.get("OCTAVO_DEVICE_BACKEND", "host") == "host"  # otherwise client.map gives mapping.Mapped, not NumPy arrays
MAPPER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import importlib.util
spec = importlib.util.spec_from_file_location("mapping", os.path.join(sys.argv[1], "octavo", "mapping.py"))
mapping = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mapping)      # alone: without gRPC
assert not {"grpc", "octavo"} & set(sys.modules)
import numpy as np
if len(sys.argv) > 4:
    os.setuid(int(sys.argv[4]))
try:
    mapped = mapping.Connection(sys.argv[2]).present(sys.argv[3])
    print(json.dumps({"sum": int(mapped.copy().sum(dtype=np.int64)), "shape": mapped.shape}), flush=True)
    for line in sys.stdin:            # again, whenever asked
        print(json.dumps({"sum": int(mapped.copy().sum(dtype=np.int64))}), flush=True)
except mapping.HandoffError as error:
    print(json.dumps({"reason": error.reason}), flush=True)
"""


class Mapper:
    """A client in a separate process."""

    def __init__(self, ticket, uid=None):
        command = [sys.executable, "-c", MAPPER, os.path.join(harness.BUILD, "python"), ticket.socket_path, ticket.ticket]
        self.process = subprocess.Popen(command + ([str(uid)] if uid is not None else []), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = json.loads(self.process.stdout.readline())

    def again(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def same(one, other):
    """True if both have the same elements; either may be mapped memory of a GPU."""
    np.testing.assert_array_equal(*(a.copy() if isinstance(a, mapping.Mapped) else a for a in (one, other)))


def maps_of(daemon):
    with open(f"/proc/{daemon.process.pid}/maps") as file:
        return file.read()


class HandoffCase(harness.DaemonTest):
    """After each test, all mapped memory has been returned, and none is detached."""

    flags = ("--handoff.unix", "auto", "--handoff.grace_seconds", "0.3", "--device.memory_bytes", str(256 << 20))

    def tearDown(self):
        gc.collect()
        if self.client._handoff is not None:
            self.client._handoff.close()
        self.end_scans()
        until(lambda: not self.client.exports())
        super().tearDown()
        for buffer in self.client.buffers.list():
            self.client.buffers.destroy(buffer.name)
        until(lambda: self.detached() == 0)
        self.assertEqual(self.metric("octavo_volume_feeds"), 0)
        until(lambda: (self.metric("octavo_frame_feeds"), self.metric("octavo_frame_feed_memory_bytes")) == (0, 0))

    def submit(self, volumes=1, fast=True, **fields):
        return self.client.submit_scan(octavo.simulated(seed=3, fast=fast), octavo.raster(32, 16, volumes=volumes), samples=256,
                                       **{"processing": octavo.processing(dtype="u8"), **fields})

    def ticket(self, name, **fields):
        return self.client._call(self.client._exports.Export, export_pb2.ExportRequest(name=name, **fields))

    def detached(self):
        return self.client.memory().devices[0].detached_bytes

    def page(self):
        return urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()

    def metric(self, name):
        return float(self.page().split(f"\n{name} ")[1].split("\n")[0])

    def refused(self, reason, code, call):
        with self.assertRaises(octavo.OctavoError) as caught:
            call()
        self.assertEqual((caught.exception.reason, caught.exception.code.name), (reason, code), caught.exception)
        return caught.exception
