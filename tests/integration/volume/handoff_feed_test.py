"""Feeds of volumes as they complete (client.map_volumes)."""

import gc
import json
import os
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import harness
from handing import HandoffCase, ON_HOST, same
from harness import until
import octavo
from octavo import mapping
from octavo.v1 import scan_pb2, types_pb2

FEEDER = """
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("mapping", os.path.join(sys.argv[1], "octavo", "mapping.py"))
mapping = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mapping)      # alone: without gRPC
assert not {"grpc", "octavo"} & set(sys.modules)
import numpy as np
kept = []
for mapped in mapping.Volumes(sys.argv[2], sys.argv[3], most=2):
    kept.append(mapped)               # gives nothing back
    print(json.dumps({"index": mapped.index, "sum": int(mapped.copy().sum(dtype=np.int64))}), flush=True)
"""


class FeedTest(HandoffCase):
    flags = HandoffCase.flags + ("--spill.host_bytes", str(64 << 20))

    def test_every_volume_of_a_scan(self):
        scan = self.submit(volumes=6, fast=False, rate_hz=8000)
        sent = self.metric("octavo_export_descriptors_sent_total")
        seen, memories, told = [], set(), []
        with self.client.map_volumes(scan.name, every=True) as volumes:
            for array in volumes:
                mapped = mapping.owner(array)
                told.append((time.monotonic_ns() - mapped.sealed_ns) * 1e-9)
                volume = self.client.volume(mapped.of)
                self.assertEqual((volume.parent, volume.index, volume.digest, list(volume.shape)), (scan.name, mapped.index, mapped.digest, list(array.shape)))
                same(array, self.client.read(mapped.of))
                self.assertFalse(ON_HOST and array.flags.writeable)
                self.assertTrue(mapped.complete)
                seen.append(mapped.index)
                memories.add(mapped.memory)
                mapped.check()
            self.assertEqual((seen, volumes.skipped), ([0, 1, 2, 3, 4, 5], 0))
        self.assertTrue(all(0 <= seconds < 30 for seconds in told), told)
        self.assertEqual(self.metric("octavo_export_descriptors_sent_total") - sent, len(memories))
        self.client.wait(scan.name)
        # An ended scan: the feed gives the held volumes.
        again = [mapping.owner(array).index for array in self.client.map_volumes(scan.name, every=True)]
        self.assertEqual(again, seen)
        self.assertEqual([mapping.owner(array).index for array in self.client.map_volumes(scan.name)], [])  # no further volume completes

    def test_a_client_that_gives_nothing_back_has_no_more_than_it_may(self):
        # The ring has room for more volumes than there are slots: even on a busy machine, the
        # source does not overrun it.
        scan = self.submit(volumes=0, fast=False, rate_hz=2500, acquisition=dict(ring_blocks=64), retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=60))
        skipped = self.metric("octavo_volume_feed_skipped_total")
        volumes = self.client.map_volumes(scan.name, most=2)
        kept = [next(volumes), next(volumes)]
        first = mapping.owner(kept[0]).index
        until(lambda: self.client.scan(scan.name).volumes_done > first + 8)  # the scan continues unaffected
        self.assertEqual(len(self.client.exports()), 2)
        self.client.stop(scan.name)
        done = self.client.wait(scan.name).volumes_done
        with self.assertRaises(StopIteration):
            next(volumes)
        self.assertEqual([mapping.owner(a).index for a in kept], [first, first + 1])
        self.assertEqual(volumes.skipped, done - first - 2)
        self.assertEqual(self.metric("octavo_volume_feed_skipped_total") - skipped, volumes.skipped)
        for array in kept:
            same(array, self.client.read(mapping.owner(array).of))
        del array
        self.assertEqual(len(self.client.exports()), 2)  # the end of the scan revokes nothing
        del volumes
        self.assertEqual(len(self.client.exports()), 2)
        del kept
        until(lambda: not self.client.exports())

    def test_what_is_skipped_is_told_with_the_next(self):
        scan = self.submit(volumes=0, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=2))
        volumes = self.client.map_volumes(scan.name, most=1, timeout=60)
        array = next(volumes)
        first = mapping.owner(array).index
        until(lambda: self.client.scan(scan.name).volumes_done > first + 5)
        self.client.unmap(array)
        array = next(volumes)
        mapped = mapping.owner(array)
        self.assertEqual(mapped.skipped, mapped.index - first - 1)
        self.assertGreaterEqual(mapped.skipped, 4)
        self.assertEqual(volumes.skipped, mapped.skipped)

    def test_none_is_left_out_if_every_one_is_wanted(self):
        scan = self.submit(volumes=12)
        self.client.wait(scan.name)
        volumes = self.client.map_volumes(scan.name, most=3, every=True, timeout=60)
        kept = [next(volumes) for _ in range(3)]
        volumes.timeout = 0.1
        with self.assertRaises(octavo.HandoffError) as caught:
            next(volumes)
        self.assertEqual(caught.exception.reason, "TIMEOUT")
        # One volume leaves memory before its turn comes.
        gone = sorted(self.client.volumes(scan.name), key=lambda v: v.index)[5]
        self.client.discard(gone.name)
        volumes.timeout, seen = 60, [0, 1, 2]
        while True:
            self.client.unmap(kept.pop(0)) if kept else None
            try:
                kept.append(next(volumes))
            except StopIteration:
                break
            seen.append(mapping.owner(kept[-1]).index)
        self.assertEqual(seen, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11])
        self.assertEqual(volumes.skipped, 1)

    # A source with a rate overruns its ring whenever the machine stalls for longer than the ring
    # lasts (here eight volumes, a fifth of a second), and a volume in the gap counts as dropped. A
    # source that waits cannot overrun: then each dropped volume is one that found no slot.

    def test_a_volume_of_a_ring_is_kept_while_it_is_mapped(self):
        scan = self.submit(volumes=0, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=1))
        volumes = self.client.map_volumes(scan.name, most=4, timeout=60)
        array = next(volumes)
        name = mapping.owner(array).of
        before = array.copy()
        done = self.client.scan(scan.name).volumes_done
        until(lambda: self.client.scan(scan.name).volumes_done > done + 20)  # the ring keeps turning
        same(array, before)
        same(array, self.client.read(name))
        self.assertEqual(len(self.client.exports()), 1)  # one hold slot, though it may have four
        self.refused("EXPORT_NOT_HELD", "FAILED_PRECONDITION", lambda: self.client.map(name))  # it is only on loan
        self.client.unmap(array)
        until(lambda: name not in [export.resource for export in self.client.exports()])  # the next volume has its hold slot by now
        later = next(volumes)
        self.assertGreater(mapping.owner(later).index, 0)
        self.assertGreater(volumes.skipped, 10)
        # A volume that is marked while it is mapped stays.
        marked = mapping.owner(later).of
        self.client.hold(marked)
        self.client.unmap(later)
        del later
        done = self.client.scan(scan.name).volumes_done
        until(lambda: self.client.scan(scan.name).volumes_done > done + 20)
        self.assertEqual(self.client.volume(marked).state, 2)
        with self.assertRaises(octavo.HandoffError):  # its slot is in use: no volume comes
            volumes.timeout = 0.2
            next(volumes)
        self.client.discard(marked)
        volumes.timeout = 60
        next(volumes)
        self.assertEqual(self.client.scan(scan.name).volumes_dropped, 0)

    def test_two_look_at_the_same_ring(self):
        scan = self.submit(volumes=0, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=2))
        one, two = (self.client.map_volumes(scan.name, most=1, timeout=60) for _ in range(2))
        for _ in range(50):
            a, b = next(one), next(two)
            copies = a.copy(), b.copy()
            same(a, copies[0])
            first = mapping.owner(a)
            first.release()
            same(b, copies[1])
            mapping.owner(b).release()
            del a, b
        scan = self.client.scan(scan.name)
        self.assertEqual((scan.volumes_dropped, scan.blocks_dropped), (0, 0))

    def test_volumes_that_are_discarded_by_themselves(self):
        for mode, hold_slots in ((scan_pb2.RETENTION_MODE_CAPTURE, 4), (scan_pb2.RETENTION_MODE_LIVE, 2)):
            self.discarded_by_themselves(dict(mode=mode, hold_slots=hold_slots, disposition=scan_pb2.DISPOSITION_AUTO_DISCARD))

    def discarded_by_themselves(self, retention):
        # On a busy machine records may be lost, which this test ignores.
        scan = self.submit(volumes=0, fast=False, rate_hz=20000, acquisition=dict(ring_blocks=128), overrun=scan_pb2.OVERRUN_DROP_BLOCK, retention=retention)
        volumes = self.client.map_volumes(scan.name, most=8, timeout=60)
        kept = [next(volumes), next(volumes)]  # never returned: they keep all slots but two, or all hold slots
        copies = [array.copy() for array in kept]
        done = self.client.scan(scan.name).volumes_done
        until(lambda: self.client.scan(scan.name).volumes_done > done + 20)
        self.assertEqual(len(self.client.exports()), 2)
        self.assertGreater(self.detached(), 0)
        self.client.stop(scan.name)
        ended = self.client.wait(scan.name)
        self.assertEqual(ended.state, types_pb2.SCAN_STATE_DONE, ended.reason)
        if ended.blocks_dropped == 0:
            self.assertEqual(ended.volumes_dropped, 0)
        for array, copy in zip(kept, copies):
            same(array, copy)
        del kept, array
        until(lambda: self.detached() == 0)

    def test_a_client_that_is_killed(self):
        scan = self.submit(volumes=0, fast=False, rate_hz=20000, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=2))
        ticket = self.ticket(scan.name)
        self.assertEqual((ticket.name, ticket.memory), (scan.name, ""))
        process = subprocess.Popen([sys.executable, "-c", FEEDER, os.path.join(harness.BUILD, "python"), ticket.socket_path, ticket.ticket],
                                   stdout=subprocess.PIPE, text=True)
        try:
            said = [json.loads(process.stdout.readline()) for _ in range(2)]
            for export, line in zip(self.client.exports(), said):
                self.assertEqual((export.pid, int(self.client.read(export.resource).sum(dtype=np.int64))), (process.pid, line["sum"]))
            self.assertEqual(len(self.client.exports()), 2)
            self.assertEqual(self.metric("octavo_volume_feeds"), 1)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        until(lambda: not self.client.exports() and self.metric("octavo_volume_feeds") == 0)
        # Both slots are back in the ring.
        volumes = self.client.map_volumes(scan.name, most=2, timeout=60)
        kept = [next(volumes), next(volumes)]
        self.assertEqual(len(kept), 2)

    def test_a_revoked_volume_and_what_follows(self):
        scan = self.submit(volumes=0, fast=False, rate_hz=20000, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=3))
        volumes = self.client.map_volumes(scan.name, most=3, timeout=60)
        array = next(volumes)
        mapped = mapping.owner(array)
        self.client.revoke_export(mapped.name)
        with self.assertRaises(octavo.HandoffError) as caught:
            until(lambda: mapped.check())
        self.assertEqual(caught.exception.reason, "EXPORT_REVOKED")
        until(lambda: any(e.overdue for e in self.client.exports()))
        told = self.metric("octavo_volume_feed_told_total")
        done = self.client.scan(scan.name).volumes_done
        until(lambda: self.client.scan(scan.name).volumes_done > done + 5)
        self.assertEqual(self.metric("octavo_volume_feed_told_total"), told)  # the feed reports no more volumes
        mapped.release()
        until(lambda: self.metric("octavo_volume_feed_told_total") > told)

    def test_what_cannot_be(self):
        self.refused("NO_SCAN", "NOT_FOUND", lambda: self.client.map_volumes("scans/none"))
        scan = self.submit()
        for bad in (0, 65, -1, "many"):
            with self.assertRaises(octavo.HandoffError) as caught:
                self.client.map_volumes(scan.name, most=bad)
            self.assertEqual((caught.exception.reason, caught.exception.code), ("BAD_FIELD", "INVALID_ARGUMENT"))
            self.assertRegex(caught.exception.message, "(allowed|a whole number from) 1 to 64")
        self.client.wait(scan.name)
        self.assertFalse(self.client.exports())
        self.assertEqual(self.metric("octavo_volume_feeds"), 0)

    def test_waiting_in_one_thread_and_looking_in_another(self):
        scan = self.submit(volumes=0, fast=False, rate_hz=20000, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=4))
        volumes, seen, stop = self.client.map_volumes(scan.name, most=3, timeout=60), [], threading.Event()

        def look(mapped):
            while not stop.is_set():
                mapped.check()

        first = next(volumes)
        thread = threading.Thread(target=look, args=(mapping.owner(first),))
        thread.start()
        try:
            for _ in range(20):
                seen.append(mapping.owner(next(volumes)).index)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(seen, sorted(set(seen)))

    def test_descriptors_do_not_pile_up(self):
        scan = self.submit(volumes=0, fast=False, rate_hz=50000, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=2))
        count = lambda: (len(os.listdir(f"/proc/{self.daemon.process.pid}/fd")), len(os.listdir("/proc/self/fd")))
        for _ in range(3):
            self.assertIsNotNone(next(self.client.map_volumes(scan.name, timeout=60)))
        gc.collect()
        until(lambda: not self.client.exports())
        before = count()
        for _ in range(20):
            volumes = self.client.map_volumes(scan.name, most=2, timeout=60)
            for _ in range(3):
                next(volumes)
            del volumes
        gc.collect()
        until(lambda: count()[0] <= before[0] + 1 and count()[1] <= before[1])


class DrainTest(unittest.TestCase):
    def test_a_server_that_drains(self):
        daemon = harness.Daemon("--handoff.unix", "auto")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(seed=3), octavo.raster(32, 16, volumes=0), samples=256, rate_hz=20000,
                                      retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=2))
            volumes = client.map_volumes(scan.name, most=2, timeout=30)
            array = next(volumes)
            copy = array.copy()
            ended = []

            def wait():
                try:
                    while True:
                        next(volumes)
                except StopIteration:
                    ended.append("")
                except octavo.HandoffError as error:
                    ended.append(error.reason)

            thread = threading.Thread(target=wait)
            thread.start()
            self.assertEqual(daemon.stop(), 0)
            thread.join(30)
            self.assertIn(ended, (["SERVER_GONE"], [""]))
            same(array, copy)  # the memory stays


if __name__ == "__main__":
    unittest.main()
