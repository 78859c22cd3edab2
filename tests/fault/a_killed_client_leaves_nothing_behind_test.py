"""Clients that are killed (SIGKILL) while they submit, while they read a stream, and while they map memory and hold leases: their work goes on
or ends as its retention says, their leases end, their memory comes back, and another client goes on where they were."""

import threading
import time
import unittest

from faults import ENDED, HELD, LONG, Child, FaultTest
from harness import held_bytes, octavo, until

SUBMITS = """
import itertools, random
client = octavo.Client(address)
session = client.session("victim")
say(session.name)
orphan = getattr(octavo.v1.scan_pb2, sys.argv[2])
for i in itertools.count():
    scan = client.submit_scan(octavo.simulated(i, fast=True), octavo.raster(32, 8, volumes=2), samples=256, session=session,
                              retention=dict(orphan=orphan), request_id=session.name + str(i))
    say(scan.name)
    if i % 3 == 0:
        client.wait(scan.name)
"""
READS = """
start = int(sys.argv[3])
for frame in octavo.Client(address).subscribe(sys.argv[2], ["volume"], from_sequence=start):
    say(frame.sequence)
"""
MAPS = """
import itertools, time
client = octavo.Client(address)
session = client.session("victim")
lease = client.lease(sys.argv[3], exclusive=True, session=session)
kept = []
for i in itertools.count():
    kept.append(client.map(sys.argv[2]))
    say(int(kept[-1].sum()))
    if len(kept) > 3:
        client.unmap(kept.pop(0))
"""


class Killed(FaultTest):
    FLAGS = ("--session.heartbeat_seconds", "0.3", "--session.expiry_seconds", "4", "--handoff.unix", "auto")

    def setUp(self):
        super().setUp()
        self.daemon = self.start(*self.FLAGS)
        self.client = self.daemon.client()
        self.addCleanup(self.client.close)

    def child(self, script, *arguments):
        child = Child(script, self.daemon.address, *arguments)
        self.addCleanup(child.remove)
        return child

    def kill(self, child, most=0.5):
        time.sleep(self.random.uniform(0, most))  # the instant is random
        child.process.kill()

    def test_in_the_middle_of_submitting(self):
        for i in range(20 if LONG else 4):
            orphan = ["ORPHAN_DISCARD", "ORPHAN_COMMIT_DEFAULT"][i % 2]
            with self.subTest(i=i, orphan=orphan):
                child = self.child(SUBMITS, orphan)
                session = child.hear()
                child.hear()
                self.kill(child)
                acknowledged = child.rest()
                mine = lambda: [v for v in self.client.volumes() if v.session == session]
                until(lambda: not any(s.name == session and s.alive for s in self.client.sessions()))
                until(lambda: all(scan.state in ENDED for scan in self.client.scans()))
                until(lambda: not mine())
                known = {scan.name: scan for scan in self.client.scans()}
                self.assertLessEqual(set(acknowledged), known.keys())
                for name in acknowledged:
                    scan = known[name]
                    if orphan == "ORPHAN_COMMIT_DEFAULT":
                        self.assertEqual(scan.volumes_committed, scan.volumes_done, scan)
                    else:
                        self.assertEqual(scan.volumes_committed, 0)
                until(lambda: held_bytes(self.client) == 0)
        self.assertEqual(self.daemon.stop(), 0)

    def test_in_the_middle_of_a_stream(self):
        """Each one goes on behind the last frame that the one before has told: every frame comes once."""
        kills = 30 if LONG else 5
        scan = self.client.submit_scan(octavo.simulated(5), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=4000, retention=dict(hold_slots=3000)).name
        heard = []
        for _ in range(kills):
            child = self.child(READS, scan, heard[-1] + 1 if heard else 0)
            one = child.hear()
            self.assertIsNotNone(one, heard)
            heard.append(one)
            self.kill(child)
            heard += child.rest()
        self.assertEqual(heard, list(range(heard[0], heard[0] + len(heard))))
        self.assertGreater(len(heard), kills)
        self.client.cancel(scan)
        self.assertGreaterEqual(self.client.wait(scan).volumes_done, len(heard))
        self.assertEqual(self.daemon.stop(), 0)

    def test_while_it_maps_memory_and_holds_a_lease(self):
        for i in range(30 if LONG else 4):
            with self.subTest(i=i):
                scan = self.client.wait(self.client.submit_scan(octavo.simulated(i, fast=True), octavo.raster(32, 16, volumes=1), samples=256).name)
                volume, buffer = self.client.volumes(scan.name)[0], self.client.buffers.create((4,)).name
                child = self.child(MAPS, volume.name, buffer)
                expected = int(self.client.read(volume.name).sum())
                self.assertEqual(child.hear(), expected)
                self.refused("LEASED", self.client.buffers.destroy, buffer)
                self.refused("EXPORTED", self.client.discard, volume.name)
                waited = []
                waiter = threading.Thread(target=lambda: waited.append(self.client.lease(buffer, exclusive=True, seconds=60, wait=30)))
                waiter.start()
                self.kill(child, 0.3)
                self.assertEqual(set(child.rest()) - {expected}, set())
                waiter.join(40)
                self.assertEqual(len(waited), 1, "its lease ended with it")
                until(lambda: not self.client.exports())
                self.assertEqual(self.client.volume(volume.name).state, HELD)
                self.client.discard(volume.name)
                waited[0].release()
                self.client.buffers.destroy(buffer)
                until(lambda: held_bytes(self.client) == 0 and self.client.memory().devices[0].detached_bytes == 0)
        self.assertEqual(self.daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
