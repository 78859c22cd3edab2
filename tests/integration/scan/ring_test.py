"""Producers' rings: other processes, in C and in Python, feed scans through shared memory.
Producers are killed, replaced, too fast, or refused."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

import grpc
import numpy as np

from harness import BUILD, DaemonTest, octavo, until
from octavo.v1 import reason_pb2, scan_pb2, types_pb2

SAMPLES = 128
ASCANS, BSCANS = 32, 8
VOLUME = ASCANS * BSCANS
VOLUMES = 6
FEED = os.path.join(BUILD, "bin", "ring_feed")
# Uses octavo.ring alone, without gRPC: fills slots in place from a file of records, in blocks of
# random sizes.
PYTHON_FEED = """
import importlib.util, random, sys
import numpy as np
spec = importlib.util.spec_from_file_location("ring", sys.argv[1])
ring = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ring)
assert not {"grpc", "octavo"} & set(sys.modules)
records = np.fromfile(sys.argv[4], "<u2").reshape(-1, int(sys.argv[5]))
with ring.Ring(sys.argv[2], sys.argv[3]) as producer:
    slot = None
    while producer.next_record < len(records) and (slot := producer.begin(30)) is not None:
        part = records[producer.next_record:][:random.randint(1, producer.block_records)]
        slot[:len(part)] = part
        producer.publish(len(part))
    producer.end()
    slot = None
"""


class Ring(DaemonTest):
    flags = ("--handoff.unix", "auto")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        number = np.arange(VOLUMES * VOLUME)[:, None]
        wave = np.cos(2 * np.pi * (3 + number * 7 % 40) * np.arange(SAMPLES)[None, :] / SAMPLES)
        cls.records = np.round(2000 + 500 * wave + np.random.default_rng().integers(0, 100, wave.shape)).astype("<u2")
        cls.file = os.path.join(cls.daemon.root, "records.raw")
        cls.records.tofile(cls.file)
        np.save(os.path.join(cls.daemon.root, "records.npy"), cls.records)
        scan = cls.client.submit_scan(octavo.replay("records.npy"), octavo.raster(ASCANS, BSCANS, volumes=VOLUMES),
                                      retention=dict(hold_slots=VOLUMES))
        cls.client.wait(scan.name)
        cls.digests = [v.digest for v in cls.client.volumes(scan.name)]
        for volume in cls.client.volumes(scan.name):
            cls.client.discard(volume.name)
        assert len(cls.digests) == VOLUMES

    def submit(self, *, ring=None, volumes=VOLUMES, block=16, **fields):
        fields = {"retention": dict(hold_slots=VOLUMES), **fields}
        return self.client.submit_scan(octavo.ring(**(ring or {})), octavo.raster(ASCANS, BSCANS, volumes=volumes), samples=SAMPLES,
                                       acquisition=dict(records_per_block=block), **fields).name

    def feed(self, scan, *options, ticket=None, file=None):
        ticket = ticket or self.client.ring_ticket(scan)
        return subprocess.Popen([FEED, ticket.socket_path, ticket.ticket, file or self.file, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def finish(self, process, code=0):
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, code, error)
        return json.loads(out.splitlines()[-1]) if code == 0 else error

    def kill(self, process):
        process.kill()
        process.communicate()

    def check_all(self, scan):
        end = self.client.wait(scan)
        self.assertEqual((end.state, end.reason_code, end.missing_ascans), (types_pb2.SCAN_STATE_DONE, reason_pb2.REASON_COMPLETED, 0), end.reason)
        self.assertEqual([v.digest for v in self.client.volumes(scan)], self.digests)
        return end

    def test_a_c_producer_gives_what_a_replay_gives(self):
        for block in (1, 16, 64):
            scan = self.submit(block=block)
            told = self.finish(self.feed(scan))
            end = self.check_all(scan)
            self.assertEqual(told, {"next_record": VOLUMES * VOLUME, "overruns": 0, "overrun_records": 0})
            self.assertEqual((end.source.records, end.source.connections, end.source.gaps, end.source.broken_blocks), (VOLUMES * VOLUME, 1, 0, 0))
            for volume in self.client.volumes(scan):
                self.client.discard(volume.name)

    def test_a_python_producer_gives_what_a_replay_gives(self):
        scan = self.submit()
        ticket = self.client.ring_ticket(scan)
        module = os.path.join(BUILD, "python", "octavo", "ring.py")
        subprocess.run([sys.executable, "-c", PYTHON_FEED, module, ticket.socket_path, ticket.ticket, self.file, str(SAMPLES)], check=True, timeout=60)
        self.check_all(scan)

    def test_a_ticket_from_the_command_line(self):
        octavo_program = [os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address]
        scan = self.submit()
        out = subprocess.run([*octavo_program, "scan", "ring", scan], check=True, capture_output=True, text=True, timeout=30).stdout.split()
        self.finish(subprocess.Popen([FEED, *out, self.file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        self.check_all(scan)

    def test_a_push_gives_the_same(self):
        scan = self.client.submit_scan(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=VOLUMES), samples=SAMPLES,
                                       retention=dict(hold_slots=VOLUMES)).name
        self.client.push(scan, [self.records])
        self.check_all(scan)

    def test_the_same_process(self):
        scan = self.submit(ring=dict(slots=4))
        with self.client.open_ring(scan) as ring:
            self.assertEqual((ring.slots, ring.block_records, ring.record_bytes, ring.samples_per_record), (4, 16, 2 * SAMPLES, SAMPLES))
            self.assertEqual(ring.total_records, VOLUMES * VOLUME)
            while (slot := ring.begin(30)) is not None and ring.next_record < len(self.records):
                slot[:] = self.records[ring.next_record:][:16]
                ring.publish(16)
            del slot
        self.check_all(scan)

    def test_killed_in_mid_block_and_followed_by_another(self):
        scan = self.submit(block=64, ring=dict(restart_grace=30))
        for number, at in enumerate((100, 700, 1200)):
            process = self.feed(scan, "--block", "40", "--hang-at", str(at))
            self.assertIn("hangs in the block", process.stdout.readline())
            self.assertTrue(self.client.scan(scan).source.connected)
            self.kill(process)
            until(lambda: not self.client.scan(scan).source.connected)
            self.assertEqual(self.client.scan(scan).source.connections, number + 1)
        self.finish(self.feed(scan, "--block", "33"))
        end = self.check_all(scan)
        self.assertEqual((end.source.connections, end.source.lost_records, end.source.duplicate_records), (4, 0, 0))
        told = [e.text for e in end.events if e.kind == "SOURCE"]
        self.assertEqual(told[:3], ["producer 1 attached", "producer 1 gone", "producer 2 attached"])

    def test_killed_at_any_time(self):
        scan = self.submit(block=4, ring=dict(restart_grace=30, slots=8))
        for pause in np.random.default_rng().uniform(0, 0.05, 8):
            try:
                process = self.feed(scan, "--rate", "30000")
            except octavo.OctavoError as error:  # the scan has all its records
                self.assertEqual(error.reason, "SCAN_STATE")
                break
            time.sleep(pause)
            self.kill(process)
            until(lambda: not self.client.scan(scan).source.connected)
        else:
            if self.client.scan(scan).state == types_pb2.SCAN_STATE_RUNNING:
                self.feed(scan).communicate()
        end = self.client.wait(scan)
        # Dropped records are missing and counted as lost; a kill loses none. A producer that is
        # killed between dropping and publishing may not have reported the overrun of its last
        # blocks.
        self.assertIn(end.source.lost_records - end.source.overrun_records, range(0, 9 * 8 * 4))
        if end.source.overruns == 0:
            self.check_all(scan)

    def test_no_other_producer_in_time(self):
        for grace, least in ((-1, 0), (0.3, 0.3)):
            scan = self.submit(ring=dict(restart_grace=grace), block=64)
            process = self.feed(scan, "--hang-at", "500")
            process.stdout.readline()
            began = time.monotonic()
            self.kill(process)
            end = self.client.wait(scan)
            self.assertGreaterEqual(time.monotonic() - began, least)
            self.assertEqual((end.state, end.reason_code), (types_pb2.SCAN_STATE_FAILED, reason_pb2.REASON_SOURCE_LOST))
            self.assertIn("the next would be record", end.reason)
            self.assertEqual(end.volumes_done, 2, "what was published counts; the second volume is incomplete")
            volumes = self.client.volumes(scan)
            self.assertEqual(volumes[0].digest, self.digests[0])
            for volume in volumes:
                self.client.discard(volume.name)

    def test_silence(self):
        for who in ("no producer ever attached", "attached, but silent"):
            scan = self.submit(ring=dict(idle_timeout=3 if "silent" in who else 0.3))  # 3: a busy machine attaches it in time
            ring = self.client.open_ring(scan) if "silent" in who else None
            end = self.client.wait(scan)
            self.assertEqual(end.reason_code, reason_pb2.REASON_SOURCE_STALLED)
            self.assertIn(who, end.reason)
            if ring is not None:
                self.assertIsNone(ring.begin(1), "the scan wants no more")
                ring.close()

    def fill_while_queued(self, **fields):
        """A digitizer writes while the scan waits in its queue: it fills 4 slots of 16 records, and
        later records are lost."""
        first = self.client.submit_scan(octavo.push(idle_timeout=-1), octavo.raster(ASCANS, BSCANS, volumes=1), samples=SAMPLES, queue="desk").name
        scan = self.submit(ring=dict(slots=4), queue="desk", **fields)
        ring = self.client.open_ring(scan)
        for at in range(0, 160, 16):
            try:
                ring.begin(0)[:] = self.records[at:at + 16]
                ring.publish(16)
            except TimeoutError:
                ring.drop(16)
        self.assertEqual((ring.next_record, ring.free), (160, 0))
        self.client.cancel(first)
        until(lambda: ring.free == 4 or self.client.scan(scan).state == types_pb2.SCAN_STATE_FAILED)
        return scan, ring

    def test_an_overrun_is_counted_exactly(self):
        scan, ring = self.fill_while_queued(overrun=scan_pb2.OVERRUN_DROP_BLOCK)
        while ring.next_record < len(self.records):
            ring.begin(30)[:] = self.records[ring.next_record:][:16]
            ring.publish(16)
        until(lambda: ring.state == 2)
        self.assertIsNone(ring.begin(30), "the scan wants no more")
        ring.close()
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.missing_ascans), (reason_pb2.REASON_COMPLETED, 160 - 64))
        self.assertEqual((end.source.overruns, end.source.overrun_records, end.source.lost_records, end.source.gaps), (1, 96, 96, 1))
        volumes = self.client.volumes(scan)
        self.assertEqual([(r.first, r.count) for r in volumes[0].missing], [(64, 96)])
        self.assertEqual([v.digest for v in volumes[1:]], self.digests[1:])
        page = lambda: urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics").read().decode()
        self.assertIn('octavo_source_records_lost_total{reason="overrun"}', page())
        until(lambda: "octavo_ring_producers 0" in page())

    def test_an_overrun_fails_a_scan_that_may_lose_nothing(self):
        scan, ring = self.fill_while_queued()  # CAPTURE: FAIL_SCAN
        with self.assertRaises((octavo.RingError, TypeError)):
            while True:
                ring.begin(30)[:] = 0
                ring.publish(16)
        end = self.client.wait(scan)
        self.assertEqual((end.state, end.reason_code), (types_pb2.SCAN_STATE_FAILED, reason_pb2.REASON_SOURCE_OVERRUN))
        self.assertEqual(end.source.overrun_records, 96)
        ring.close()

    def test_a_slow_scan_loses_nothing_of_a_producer_that_waits(self):
        scan = self.submit(ring=dict(slots=2, producer_waits=True), block=4)
        self.finish(self.feed(scan))
        self.check_all(scan)

    def test_a_producer_that_fails_says_why(self):
        scan = self.submit()
        short = os.path.join(self.daemon.root, "short.raw")
        self.records[:300].tofile(short)
        ring = self.client.open_ring(scan)
        ring.begin(10)[:] = self.records[:16]
        ring.publish(16)
        ring.fail("the laser is off")
        end = self.client.wait(scan)
        ring.close()
        self.assertEqual((end.state, end.reason_code), (types_pb2.SCAN_STATE_FAILED, reason_pb2.REASON_SOURCE_LOST))
        self.assertIn("the laser is off", end.reason)
        scan = self.submit()
        self.finish(self.feed(scan, file=short))
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.source.records, end.volumes_done), (reason_pb2.REASON_SOURCE_ENDED, 300, 2))

    def test_a_producer_that_breaks_the_ring_is_cut_off(self):
        scan = self.submit(ring=dict(restart_grace=30))
        ring = self.client.open_ring(scan)
        ring.begin(10)[:] = self.records[:16]
        ring.publish(16)
        until(lambda: self.client.scan(scan).source.records == 16)
        ring._words.store(2 * 4096, 1000)  # it cannot have published this many blocks
        ring._ring_bell()
        until(lambda: ring.trouble() is not None)
        self.assertEqual(ring.trouble().errno, errno.EPROTO)
        self.assertIn("the ring is broken", str(ring.trouble()))
        until(lambda: not self.client.scan(scan).source.connected)
        ring.close()
        self.finish(self.feed(scan))
        end = self.check_all(scan)
        self.assertEqual(end.source.broken_blocks, 1)

    def test_refusals(self):
        scan = self.submit(ring=dict(idle_timeout=-1))
        other = self.client.submit_scan(octavo.push(), octavo.raster(8, 8, volumes=1), samples=SAMPLES).name
        for name, code, reason in (("scans/none", grpc.StatusCode.NOT_FOUND, "NO_SCAN"), (other, grpc.StatusCode.FAILED_PRECONDITION, "NOT_RING")):
            with self.assertRaises(octavo.OctavoError) as raised:
                self.client.ring_ticket(name)
            self.assertEqual((raised.exception.code, raised.exception.reason), (code, reason))
        early = self.client.ring_ticket(scan)
        ticket = self.client.ring_ticket(scan)
        ring = octavo.Ring(ticket.socket_path, ticket.ticket)
        for again, reason in ((ticket, "TICKET_USED"), (early, "RING_TAKEN")):
            with self.assertRaises(octavo.RingError) as refused:
                octavo.Ring(again.socket_path, again.ticket)
            self.assertEqual((refused.exception.errno, refused.exception.reason), (errno.EACCES, reason))
        with self.assertRaises(octavo.OctavoError) as raised:
            self.client.ring_ticket(scan)
        self.assertEqual(raised.exception.reason, "RING_TAKEN")
        self.assertIn("TICKET_UNKNOWN", self.finish(self.feed(scan, ticket=type(ticket)(socket_path=ticket.socket_path, ticket="ab" * 16)), code=1))
        ring.close()
        self.client.cancel(scan)
        self.client.wait(scan)
        with self.assertRaises(octavo.OctavoError) as raised:
            self.client.ring_ticket(scan)
        self.assertEqual(raised.exception.reason, "SCAN_STATE")
        for field, spec in (("ring.slots", dict(slots=1)), ("ring.idle_timeout", dict(idle_timeout=3e9)),
                            ("ring.restart_grace", dict(restart_grace=2e9))):
            with self.assertRaises(octavo.OctavoError) as raised:
                self.submit(ring=spec)
            self.assertEqual((raised.exception.code, raised.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))

    def test_the_plan_speaks_of_the_ring(self):
        report = self.client.plan_scan(octavo.ring(slots=8), octavo.raster(ASCANS, BSCANS, volumes=1), samples=SAMPLES, acquisition=dict(records_per_block=16))
        self.assertIn("fills 8 slots of 4096 bytes (16 records)", report.plan)
        self.assertIn("uploaded without a copy", report.plan)

    def test_the_daemon_dies(self):
        from harness import Daemon
        daemon = Daemon(*self.flags)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.ring(), octavo.raster(ASCANS, BSCANS, volumes=VOLUMES), samples=SAMPLES).name
            ring = client.open_ring(scan)
        ring.begin(10)[:] = 0
        daemon.kill()
        until(lambda: ring.trouble() is not None)
        self.assertEqual(ring.trouble().errno, errno.ECONNRESET)
        slots = 0
        with self.assertRaises(octavo.RingError):  # the memory still exists: nothing crashes
            while True:
                ring.begin(5)[:] = 1
                ring.publish(ring.block_records)
                slots += 1
        ring.close()
        daemon.remove()


if __name__ == "__main__":
    unittest.main()
