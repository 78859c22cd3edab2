"""kill -9 at random instants while clients submit scans with request ids: a retry at the next daemon gets the same scan, or is told that it is
LOST; the same id never makes two scans that both run, and an acknowledged scan is unknown to the next daemon only if
its row was not on the disk when its daemon died."""

import threading
import time
import unittest

from faults import ENDED, LONG, FaultTest
from harness import octavo
from octavo.v1 import types_pb2

CLIENTS = 4


class Restarted(FaultTest):
    def submit(self, client, request):
        return client.submit_scan(octavo.simulated(1), octavo.raster(16, 8, volumes=0), samples=256, rate_hz=2000, request_id=request, queue=request).name

    def test_at_random_instants(self):
        all_lost = 0
        for i in range(40 if LONG else 5):
            with self.subTest(i=i):
                daemon = self.start("--drain.seconds", "1")
                told, tried, lock = {}, [], threading.Lock()

                def submits(number):
                    with daemon.client() as client:
                        for j in range(200):
                            request = f"r{i}-{number}-{j}"
                            with lock:
                                tried.append(request)
                            try:
                                name = self.submit(client, request)
                            except octavo.OctavoError:
                                return  # it is dead
                            told[request] = name
                threads = [threading.Thread(target=submits, args=(number,)) for number in range(CLIENTS)]
                for thread in threads:
                    thread.start()
                time.sleep(self.random.uniform(0.1, 1.0))  # the instant is random
                daemon.kill()
                for thread in threads:
                    thread.join()
                daemon = self.start("--drain.seconds", "1")
                with daemon.client() as client:
                    again, lost = {}, 0
                    for request in tried:
                        try:
                            again[request] = self.submit(client, request)
                        except octavo.OctavoError as error:
                            self.assertEqual((error.code.name, error.reason), ("DATA_LOSS", "LOST"), error)
                            lost += 1
                    scans = {scan.name: scan for scan in client.scans()}
                    for request, name in again.items():
                        self.assertEqual(self.submit(client, request), name)  # from now on it is that one
                        # A new one only if nothing of the first was on the disk when its daemon died: that takes moments.
                        if request in told and name != told[request]:
                            self.assertNotIn(told[request], scans)
                    for request in told.keys() - again.keys():
                        self.assertEqual(scans[told[request]].state, types_pb2.SCAN_STATE_LOST)
                    running = [scan for scan in scans.values() if scan.state not in ENDED]
                    self.assertEqual(sorted(scan.name for scan in running), sorted(again.values()))
                    print(f"{len(told)} acknowledged, {len(tried)} tried; then {lost} LOST, {len(again)} made anew", flush=True)
                    for scan in running:
                        client.cancel(scan.name)
                all_lost += lost
                self.assertEqual(daemon.stop(), 0)
        self.assertGreater(all_lost, 0, "no daemon knew of any scan of the one before")


if __name__ == "__main__":
    unittest.main()
