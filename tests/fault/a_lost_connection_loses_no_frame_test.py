"""A network that delays, cuts and swallows what it carries (a proxy between client and server): a subscriber that goes on behind its last frame
gets every kept frame once, a retry of a request does nothing twice, and a client with a deadline is not stuck."""

import socket
import threading
import time
import unittest
import uuid

from faults import LONG, FaultTest, held_volume
from harness import octavo
from pushing import CuttingProxy


class Network(CuttingProxy):
    """`quiet`: nothing comes through while it is set; `delay`: seconds that each piece takes."""

    def __init__(self, address):
        self.quiet, self.delay = threading.Event(), 0.0
        super().__init__(address)

    def pump(self, a, b):
        try:
            while data := a.recv(65536):
                if self.delay:
                    time.sleep(self.delay)
                while self.quiet.is_set() and a.fileno() >= 0:
                    time.sleep(0.01)
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Lost(FaultTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start()
        self.network = Network(self.daemon.address)
        self.addCleanup(self.network.close)
        self.addCleanup(self.network.quiet.clear)

    def disturb(self, stop):
        """Delays, silences and cuts, in a random order."""
        while not stop.wait(self.random.uniform(0.2, 0.6)):
            what = self.random.choice(["cut", "cut", "delay", "silence"])
            if what == "delay":
                self.network.delay = self.random.choice([0, 0.005, 0.03])
                continue
            if what == "silence":
                self.network.quiet.set()
                stop.wait(self.random.uniform(0.1, 0.8))
            self.network.cut()
            self.network.quiet.clear()

    def test_every_frame_once(self):
        wanted = 1000 if LONG else 80
        with self.daemon.client() as near:
            scan = near.submit_scan(octavo.simulated(5), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=4000, retention=dict(hold_slots=3000),
                                    acquisition=dict(records_per_block=64, ring_blocks=1024)).name  # 16 seconds: others may use this machine
            stop, heard, broken = threading.Event(), [], 0
            disturber = threading.Thread(target=self.disturb, args=(stop,))
            disturber.start()
            try:
                end = time.monotonic() + 600
                while len(heard) < wanted and time.monotonic() < end:
                    with octavo.Client(self.network.address) as far:
                        try:
                            for frame in far.subscribe(scan, ["volume"], from_sequence=heard[-1] + 1 if heard else 0, timeout=5):
                                heard.append(frame.sequence)
                        except octavo.OctavoError as error:
                            broken += 1
                            self.assertIn(error.code.name, ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL", "RESOURCE_EXHAUSTED"), error)  # the last: it reads too slowly, by the network
            finally:
                stop.set()
                disturber.join()
            self.assertEqual(heard, list(range(heard[0], heard[0] + len(heard))))
            self.assertGreaterEqual(len(heard), wanted)
            self.assertGreater(broken, 1)
            near.cancel(scan)
            self.assertEqual(near.wait(scan).blocks_dropped, 0)
        self.assertEqual(self.daemon.stop(), 0)

    def test_retries_do_nothing_twice(self):
        rounds = 200 if LONG else 12
        with self.daemon.client() as near:
            stop = threading.Event()
            disturber = threading.Thread(target=self.disturb, args=(stop,))
            disturber.start()

            def until_it_is_done(call):
                for _ in range(200):
                    with octavo.Client(self.network.address, timeout=5) as far:
                        try:
                            return call(far)
                        except octavo.OctavoError as error:
                            self.assertIn(error.reason, ("", "IN_PROGRESS"), error)
                self.fail("no try came through")
            try:
                paths = set()
                for i in range(rounds):
                    ids = [uuid.UUID(int=self.random.getrandbits(128)).hex for _ in range(2)]
                    scan = until_it_is_done(lambda far: far.submit_scan(octavo.simulated(i, fast=True), octavo.raster(64, 16, volumes=1), samples=256, request_id=ids[0])).name
                    volume, = near.volumes(near.wait(scan).name)
                    paths.add(until_it_is_done(lambda far: far.commit(volume.name, f"n{i}", "npy", request_id=ids[1])).path)
            finally:
                stop.set()
                disturber.join()
            self.assertEqual(len(near.scans()), rounds)
            self.assertEqual(sum(operation.kind == "COMMIT" for operation in near.operations()), rounds)
            self.assertEqual(len(paths), rounds)
            self.assertEqual(len([name for name in self.files() if name.endswith(".npy")]), rounds)
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_silent_network_ends_at_the_deadline(self):
        with octavo.Client(self.network.address, timeout=2) as far:
            far.info()
            self.network.quiet.set()
            begun = time.monotonic()
            with self.assertRaises(octavo.OctavoError) as caught:
                far.info()
            self.assertIn(caught.exception.code.name, ("DEADLINE_EXCEEDED", "UNAVAILABLE"))
            self.assertLess(time.monotonic() - begun, 30)
            self.network.quiet.clear()
            far.info()
        with self.daemon.client() as near:
            held_volume(near)
        self.assertEqual(self.daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
