"""Subscribers that are stopped (SIGSTOP) in the middle of a stream, on TCP and on the Unix socket: the others get every frame, the daemon's
memory stays flat, the drops are counted exactly, and the stopped ones are disconnected in time and can go on where they were."""

import signal
import threading
import time
import unittest

import numpy as np

from faults import LONG, Child, FaultTest, Scraper
from harness import octavo, subscribers, until
from octavo.v1 import scan_pb2

VOLUMES = 300 if LONG else 160
STOPPED_S = 45 if LONG else 24
# Reads volumes of a scan, in a queue of two, and says of each one its number and the drops before it.
READER = """
frames = octavo.Client(address, timeout=100).subscribe(sys.argv[2], ["volume"], delivery="drop_oldest", queue_length=2)
try:
    for frame in frames:
        say([frame.sequence, frame.dropped_before])
    say("end")
except octavo.OctavoError as error:
    say(error.code.name)
"""


class Stopped(FaultTest):
    def memory(self, daemon):
        with open(f"/proc/{daemon.process.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

    def children(self, daemon, scan):
        made = [Child(READER, address, scan) for address in (daemon.address, "unix:" + daemon.ready["unix"])]
        for child in made:
            self.addCleanup(child.remove)
        return made

    def test_the_others_and_the_count_of_drops(self):
        daemon = self.start("--listen.stalled_seconds", "3600")
        client = daemon.client()
        self.addCleanup(client.close)
        with Scraper(daemon):
            scan = client.submit_scan(octavo.simulated(5), octavo.raster(128, 32, volumes=VOLUMES), samples=256, rate_hz=20000,
                                      acquisition=dict(ring_blocks=64),  # 13 seconds: others may use this machine
                                      retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD), products=dict(preview_rate_hz=-1), raw_type="u16",
                                      processing=octavo.processing(dtype="f32"))
            mips, volumes = [], []

            def collect(into, **options):
                with daemon.client() as other:
                    for frame in other.subscribe(scan.name, **options):
                        into.append((frame.sequence, frame.dropped_before, time.monotonic(), frame.volume_index))
            threads = [threading.Thread(target=collect, args=(mips,), kwargs=dict(delivery="latest")),
                       threading.Thread(target=collect, args=(volumes,), kwargs=dict(products=["volume"], delivery="lossless", queue_length=8))]
            for thread in threads:
                thread.start()
            children = self.children(daemon, scan.name)
            first = [child.hear() for child in children]
            for child in children:
                child.signal(signal.SIGSTOP)
            before = self.memory(daemon)
            time.sleep(STOPPED_S / 2)  # they are stopped, and the windows and queues fill
            half = self.memory(daemon)
            time.sleep(STOPPED_S / 2)
            after = self.memory(daemon)
            for child in children:
                child.signal(signal.SIGCONT)
            end = client.wait(scan.name)
            for thread in threads:
                thread.join(60)
            heard = [[one, *child.rest()] for one, child in zip(first, children)]
        self.assertEqual((end.blocks_dropped, end.missing_ascans, end.volumes_done), (0, 0, VOLUMES))
        # Every volume from the first one received, in order, none dropped.
        self.assertEqual([v[0] for v in volumes], list(range(volumes[0][0], volumes[0][0] + len(volumes))))
        self.assertTrue(all(v[1] == 0 for v in volumes))
        self.assertEqual(volumes[-1][3], VOLUMES - 1)
        self.assertGreaterEqual(len(volumes), VOLUMES // 2)
        # The newest pictures keep coming, one volume every 0.2 s; no viewer waits for the stopped one.
        self.assertLess(np.diff([m[2] for m in mips]).max(), 5.0)
        self.assertLess(after - half, 64 << 20)  # two queues of two volumes of 2 MiB, and what is on the way, are full by then; a late processor touches more blocks of the ring
        self.assertLess(after - before, 160 << 20)
        # The sequence numbers give exactly the losses.
        for frames in heard:
            self.assertEqual(frames.pop(), "end")
            self.assertGreater(sum(dropped for _, dropped in frames), 0)
            for (one, _), (next_one, dropped) in zip(frames, frames[1:]):
                self.assertEqual(next_one - one - 1, dropped)
        self.assertEqual(daemon.stop(), 0)

    def test_they_are_disconnected(self):
        daemon = self.start("--listen.stalled_seconds", "4")
        client = daemon.client()
        self.addCleanup(client.close)
        scan = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(256, 32, volumes=0), samples=512,
                                  retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD)).name
        children = self.children(daemon, scan)
        for child in children:
            self.assertIsNotNone(child.hear())  # it subscribes
            child.signal(signal.SIGSTOP)
        until(lambda: subscribers(daemon) == 0, 60)
        done = client.scan(scan).volumes_done
        until(lambda: client.scan(scan).volumes_done > done + 3)
        for child in children:
            child.signal(signal.SIGCONT)
            self.assertIn(child.rest()[-1], ("CANCELLED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"))
        client.cancel(scan)
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
