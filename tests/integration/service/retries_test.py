"""proto/README.md says which calls can be sent again, and how large messages may be: each statement by doing it."""

import os
import re
import unittest
import uuid

import grpc
import numpy as np

from harness import SOURCE, DaemonTest, octavo
from octavo.v1 import (buffer_pb2, export_pb2, ingest_pb2, job_pb2, mosaic_pb2, scan_pb2, session_pb2, stream_pb2, system_pb2, volume_pb2,
                       volume_pb2_grpc)

PROTOS = os.path.join(SOURCE, "proto", "octavo", "v1")
README = os.path.join(SOURCE, "proto", "README.md")


def table():
    """The calls of each row of the table, and what it says."""
    with open(README) as page:
        section = page.read().split("\n## Retries\n")[1].split("\n## ")[0]
    return {row[1].strip(): re.findall(r"[A-Z][A-Za-z]+", row[0]) for row in (line.strip("|").split("|", 1) for line in section.splitlines())
            if len(row) == 2 and row[0].strip() not in ("calls", "---")}


class Retries(DaemonTest):
    flags = ("--handoff.unix", "auto")

    def volume(self):
        return self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256).wait().volumes()[0]

    def live(self):
        scan = self.client.submit_scan(octavo.simulated(1), octavo.raster(16, 8, volumes=0), samples=256, rate_hz=4000)
        next(state for state in scan.watch() if state.records)
        return scan

    def refused(self, reasons, call):
        with self.assertRaises(octavo.OctavoError) as caught:
            call()
        self.assertIn(caught.exception.reason, reasons)

    def test_the_table_has_every_call_once(self):
        calls = []
        for name in os.listdir(PROTOS):
            with open(os.path.join(PROTOS, name)) as proto:
                calls += re.findall(r"^  rpc (\w+)\(", proto.read(), re.M)
        self.assertGreater(len(calls), 50)
        self.assertEqual(sorted(call for row in table().values() for call in row), sorted(calls))

    def test_the_calls_with_a_request_id_are_those_that_have_the_field(self):
        (row,) = [calls for says, calls in table().items() if says.startswith("safe with `request_id`")]
        having = {name[:-len("Request")] for proto in (buffer_pb2, export_pb2, ingest_pb2, job_pb2, mosaic_pb2, scan_pb2, session_pb2, stream_pb2, system_pb2, volume_pb2)
                  for name, message in proto.DESCRIPTOR.message_types_by_name.items() if name.endswith("Request") and "request_id" in message.fields_by_name}
        self.assertEqual(set(row), having)

    def test_with_a_request_id(self):
        c, b, volume = self.client, self.client.buffers, self.volume()
        buffer, tiles = b.put(np.zeros(4, "f4")), b.put(np.ones((2, 8, 8), "f4"))
        work = octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9))
        shape = (octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1))
        np.save(os.path.join(self.daemon.root, "a.npy"), np.zeros((2, 3, 4), "u1"))
        read = dict(axes=["z", "y", "x"], spacing_um={"x": 1, "y": 1, "z": 1})
        for call in (lambda **i: c.derive(volume, {"flip": {}}, **i), lambda **i: c.submit_scan(*shape, samples=256, **i), lambda **i: c.submit_job(work, **i),
                     lambda **i: c.import_volume("a.npy", **read, **i),
                     lambda **i: b.create((4,), **i), lambda **i: b.apply(buffer, {"flip": {}}, **i),
                     lambda **i: c.mosaic.stitch(tiles, [[0, 0], [0, 5]], spacing_um=1, **i), lambda **i: c.mosaic.resample(tiles, 2, spacing_um=1, depth=1, **i),
                     lambda **i: c.mosaic.stack([tiles, tiles], [[0, 0], [2, 1]], spacing_um=1, overlap=[1], **i)):
            self.assertEqual(*(call(request_id=same) for same in 2 * [uuid.uuid4().hex]))
            self.assertNotEqual(call(), call())
        for call in (lambda **i: c.start_spill(volume, **i), lambda **i: c.start_restore(volume, **i)):
            names = [c.wait_operation(call(request_id=same)).name for same in 2 * [uuid.uuid4().hex]]
            self.assertEqual(*names)
        first = c.commit(volume, "once", request_id="commit")
        self.assertEqual(c.commit(volume, "once", request_id="commit").path, first.path)
        self.refused(["VOLUME_STATE"], lambda: c.commit(volume, "once more"))
        for job in c.jobs(filter="state = QUEUED OR state = RUNNING"):
            job.cancel()
        for one in b.list():
            one.destroy()

    def test_twice_is_as_once(self):
        c, b, volume = self.client, self.client.buffers, self.volume()
        scan, buffer = self.live(), b.put(np.arange(4, dtype="f4"))
        job = c.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9)))
        lease = c.lease(volume, seconds=60)
        opened = c._call(c._sessions.OpenSession, session_pb2.OpenSessionRequest())
        for call, state in ((lambda: c.hold(volume).marked, True), (lambda: c.release(volume).marked, False),
                            (lambda: c.spill(volume, lease=lease).tier, "DISK"), (lambda: c.restore(volume).tier, "DEVICE"),
                            (lambda: scan.update(octavo.processing(window="hann")).spec.processing.window, "HANN"), (lambda: scan.stop() == scan, True),
                            (lambda: job.cancel() == job, True), (lambda: b.sync(buffer, 0).state, "READY"),
                            (lambda: b.update(buffer, labels={"a": "b"}).labels, {"a": "b"}), (lambda: list(b.write(buffer, np.ones(4, "f4")).read()), [1] * 4),
                            (lambda: lease.renew(60).token, lease.token),
                            (lambda: c._call(c._sessions.KeepAlive, session_pb2.KeepAliveRequest(secret=opened.secret)).session.alive, True)):
            self.assertEqual([call(), call()], [state, state])
        self.assertEqual([scan.wait().state, scan.cancel().state], ["DONE", "DONE"])  # one that has ended stays as it is
        lease.release()
        etag, version = buffer.refresh().etag, buffer.replicas[0].version
        b.write(buffer, np.zeros(4, "f4"), if_version=version)
        self.refused(["VERSION"], lambda: b.write(buffer, np.zeros(4, "f4"), if_version=version))
        self.refused(["VERSION"], lambda: b.update(buffer, labels={}, etag=etag))
        buffer.destroy()

    def test_what_is_gone_is_gone_twice(self):
        c, volume, buffer = self.client, self.volume(), self.client.buffers.put(np.zeros(4, "f4"))
        lease = c.lease(buffer, seconds=60)
        lease.release()
        self.refused(["LEASE_LOST"], lease.release)
        array = c.map(volume)
        opened = c._call(c._sessions.OpenSession, session_pb2.OpenSessionRequest())
        for _ in range(2):
            buffer.destroy()
            self.assertEqual(volume.discard(detach_exports=True).state, "DISCARDED")
            c._call(c._sessions.CloseSession, session_pb2.CloseSessionRequest(secret=opened.secret))
        del array
        self.refused(["NO_EXPORT"], lambda: c.revoke_export("exports/none"))

    def test_another_one_each_time(self):
        c, volume, scan = self.client, self.volume(), self.live()
        leases = [c.lease(volume, seconds=60) for _ in range(2)]
        self.assertEqual(len({lease.token for lease in leases}), 2)
        tickets = [c._call(c._exports.Export, export_pb2.ExportRequest(name=volume.name)) for _ in range(2)]
        self.assertEqual(len({ticket.ticket for ticket in tickets}), 2)
        sessions = [c._call(c._sessions.OpenSession, session_pb2.OpenSessionRequest()) for _ in range(2)]
        self.assertEqual(len({opened.secret for opened in sessions}), 2)
        for _ in range(2):
            scan.mark("same")
        self.assertEqual([event.marker for event in scan.cancel().wait().events if event.kind == "MARKER"], ["same", "same"])
        for lease in leases:
            lease.release()
        volume.discard(detach_exports=True)  # the tickets count as exports until they are presented or end

    def test_sizes(self):
        """The library's own limit for received messages is 4 MiB, that of the server 8 MiB."""
        volume = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(64, 64, volumes=1), samples=2048).wait().volumes()[0]
        self.assertGreater(volume.bytes, 4 << 20)
        request = volume_pb2.ReadVolumeRequest(name=volume.name, chunk_bytes=4 << 20)
        with grpc.insecure_channel(self.daemon.address) as channel, self.assertRaises(grpc.RpcError) as caught:
            list(volume_pb2_grpc.VolumeServiceStub(channel).ReadVolume(request))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn("Received message larger than max", caught.exception.details())
        with grpc.insecure_channel(self.daemon.address, options=[("grpc.max_receive_message_length", 64 << 20)]) as channel:
            self.assertEqual(sum(len(part.data) for part in volume_pb2_grpc.VolumeServiceStub(channel).ReadVolume(request)), volume.bytes)
        with self.assertRaises(octavo.OctavoError) as refused:
            self.client.plan_scan(octavo.simulated(), octavo.raster(16, 8, volumes=1), title="x" * (9 << 20))
        self.assertEqual(refused.exception.code, grpc.StatusCode.RESOURCE_EXHAUSTED)


if __name__ == "__main__":
    unittest.main()
