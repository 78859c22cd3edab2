#!/usr/bin/env python3
"""The time of every list with 1,000 and 10,000 rows: whole, by pages of 100 and of 1,000, with a filter that takes every row, and
with order_by. `per_row` is the daemon's processor time for a row in microseconds; `ratio` is per_row with the many rows over per_row
with the few. One JSON object a line; the rows are counted, and their order is checked.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_lists.py [kind...]
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

from google.protobuf.duration_pb2 import Duration  # noqa: E402
from harness import Daemon, octavo  # noqa: E402
from octavo.v1 import (buffer_pb2, ingest_pb2, job_pb2, operation_pb2, scan_pb2, session_pb2, tomography_pb2, types_pb2, volume_pb2)  # noqa: E402

FEW, MANY = (int(n) for n in os.environ.get("OCTAVO_LISTS_ROWS", "1000,9900").split(","))  # below the 10,000 jobs that may wait
AT_ONCE = 50


def cpu_seconds(pid):
    """Of all threads, in nanoseconds' resolution."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
        except OSError:
            pass
    return total * 1e-9


class Rows:
    """Makes rows of each kind, up to a number."""

    def __init__(self, client):
        self.client = client
        self.sessions, self.buffers, self.scan = [], [], None

    @staticmethod
    def many(method, requests):
        answers = []
        for at in range(0, len(requests), AT_ONCE):
            calls = [method.future(request) for request in requests[at:at + AT_ONCE]]
            answers += [call.result() for call in calls]
        return answers

    def make_buffers(self, have, want):
        self.buffers += self.many(self.client.buffers._stub.CreateBuffer, [buffer_pb2.CreateBufferRequest(
            shape=[1], type=types_pb2.ElementType(dtype=types_pb2.DTYPE_U8)) for _ in range(have, want)])

    def make_sessions(self, have, want):
        self.sessions += self.many(self.client._sessions.OpenSession, [session_pb2.OpenSessionRequest(client=f"client {i}") for i in range(have, want)])

    def make_leases(self, have, want):
        """Shared ones, of one buffer."""
        name = self.client.buffers.create((1,), "u8").name if have == 0 else self.buffer_of_leases
        self.buffer_of_leases = name
        self.many(self.client._sessions.AcquireLease, [session_pb2.AcquireLeaseRequest(resource=name, mode=session_pb2.LEASE_MODE_SHARED, ttl=Duration(seconds=3600))
                                                        for _ in range(have, want)])

    def make_jobs(self, have, want):
        spec = job_pb2.JobSpec(tomography=tomography_pb2.TomographyJob(push=ingest_pb2.PushedProjections(
            rows=1, columns=2, frames=1, dtype=types_pb2.DTYPE_U8, idle_timeout=Duration(seconds=-1))))
        self.many(self.client._jobs.SubmitJob, [job_pb2.SubmitJobRequest(spec=spec) for _ in range(have, want)])

    make_operations = make_jobs  # each job is one

    def make_scans(self, have, want):
        spec = octavo.scan_spec(octavo.push(), octavo.raster(4, 1, volumes=1), samples=64)
        for _ in range(have, want):
            self.client._call(self.client._scans.CancelScan, scan_pb2.CancelScanRequest(
                name=self.client._call(self.client._scans.SubmitScan, scan_pb2.SubmitScanRequest(spec=spec)).scan.name))

    def make_volumes(self, have, want):
        spec = octavo.scan_spec(octavo.simulated(1, fast=True), octavo.raster(2, 1, volumes=want - have), samples=64,
                                retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=want - have))
        self.client.wait(self.client.submit_scan(spec).name)


def lists(client):
    """kind → (call, request, field of the rows, key, a filter that every row meets)"""
    return {
        "buffers": (client.buffers._stub.ListBuffers, buffer_pb2.ListBuffersRequest, "buffers", "name", "byte_size >= 0"),
        "sessions": (client._sessions.ListSessions, session_pb2.ListSessionsRequest, "sessions", "name", "alive = true"),
        "leases": (client._sessions.ListLeases, session_pb2.ListLeasesRequest, "leases", "fence", "fence >= 0"),
        "volumes": (client._volumes.ListVolumes, volume_pb2.ListVolumesRequest, "volumes", "name", "state = HELD"),
        "scans": (client._scans.ListScans, scan_pb2.ListScansRequest, "scans", "name", "records >= 0"),
        "jobs": (client._jobs.ListJobs, job_pb2.ListJobsRequest, "jobs", "name", "fraction >= 0"),
        "operations": (client._operations.ListOperations, operation_pb2.ListOperationsRequest, "operations", "name", 'name != ""'),
    }


def whole(client, kind, size, **fields):
    call, request, field, key, _ = lists(client)[kind]
    keys, token = [], ""
    while True:
        page = client._call(call, request(page_size=size, page_token=token, **fields))
        keys += [getattr(row, key) for row in getattr(page, field)]
        token = page.next_page_token
        if not token:
            return keys


def measure(daemon, client, kind, size, what):
    fields = {"plain": {}, "filter": dict(filter=lists(client)[kind][4]), "order_by": dict(order_by=lists(client)[kind][3] + " desc")}[what]
    best, keys = None, []
    for _ in range(2):
        before = cpu_seconds(daemon.process.pid)
        keys = whole(client, kind, size, **fields)
        seconds = cpu_seconds(daemon.process.pid) - before
        best = seconds if best is None else min(best, seconds)
    assert len(keys) == len(set(keys)), f"{kind}: a row came twice"
    assert what != "order_by" or keys == sorted(keys, reverse=True), f"{kind}: not in order"
    return len(keys), best / len(keys) * 1e6


def main(kinds):
    for kind in kinds or lists(octavo.Client("127.0.0.1:1")):
        daemon = Daemon("--session.most", str(2 * MANY), "--lease.most", str(2 * MANY), "--history.scans", str(2 * MANY), "--history.bytes", str(4 << 30),
                        "--session.expiry_seconds", "86400", "--device.host_devices", "1")
        try:
            with daemon.client() as client:
                rows, few, have = Rows(client), {}, 0
                for want in (FEW, MANY):
                    getattr(rows, "make_" + kind)(have, want)
                    have = want
                    for what in ("plain", "filter", "order_by"):
                        for size in (100, 1000):
                            number, each = measure(daemon, client, kind, size, what)
                            assert number >= want, f"{kind}: {number} of {want} rows"
                            few.setdefault((what, size), each)
                            if want == MANY:
                                print(json.dumps({"name": "list", "kind": kind, "what": what, "page": size, "rows": number, "per_row_few_us": round(few[what, size], 2),
                                                  "per_row_us": round(each, 2), "ratio": round(each / few[what, size], 2)}), flush=True)
        finally:
            daemon.kill()
            daemon.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
