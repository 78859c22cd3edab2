"""The clock of the day jumps by a day, forwards and backwards: leases, sessions, times to live, deadlines and the pace of a scan go on as if
nothing had been; only timestamps move."""

import mmap
import os
import struct
import time
import unittest

from faults import CLOCK_JUMP, HELD, LONG, FaultTest, Scraper, held_volume, live_scan, preloads
from harness import octavo, seconds_until, until

DAY = 86400


@preloads(CLOCK_JUMP)
class Clock(FaultTest):
    def setUp(self):
        super().setUp()
        path = os.path.join(self.directory, "offset")
        with open(path, "wb") as file:
            file.write(bytes(8))
        with open(path, "r+b") as file:
            self.offset = mmap.mmap(file.fileno(), 8)
        self.addCleanup(self.offset.close)
        self.environment = {"LD_PRELOAD": CLOCK_JUMP, "CLOCK_JUMP_FILE": path}

    def jump(self, seconds):
        self.offset[:] = struct.pack("<q", seconds)

    def now(self):
        """As the server's clock says."""
        return time.time() + struct.unpack("<q", self.offset[:])[0]

    def test_a_day_forwards_and_back(self):
        daemon = self.start("--session.heartbeat_seconds", "0.5", "--session.expiry_seconds", "30", environment=self.environment)
        with daemon.client() as client, Scraper(daemon), client.session("holder") as session:
            scan = live_scan(client)
            volume = held_volume(client, session=session, retention=dict(ttl=600, orphan=octavo.v1.scan_pb2.ORPHAN_DISCARD))
            buffer, kept = client.buffers.create((4,), ttl=600), client.buffers.create((4,)).name
            lease = client.lease(kept, exclusive=True, seconds=600)
            of_session = client.lease(volume.name, session=session)
            self.assertAlmostEqual(volume.acquire_end_time.timestamp(), time.time(), delta=60)
            for seconds in [DAY, -DAY, 0, 3650 * DAY, 0] * (4 if LONG else 1):
                with self.subTest(seconds=seconds):
                    done, dropped = client.scan(scan).volumes_done, client.scan(scan).blocks_dropped
                    self.jump(seconds)
                    time.sleep(1)  # what would end now, ends
                    until(lambda: client.scan(scan).volumes_done > done + 3)
                    self.assertEqual(client.scan(scan).blocks_dropped, dropped)
                    self.assertEqual(client.volume(volume.name).state, HELD)
                    self.assertEqual({b.name for b in client.buffers.list()}, {buffer.name, kept})
                    self.refused("LEASED", client.buffers.destroy, kept)
                    lease.renew(600)
                    self.assertEqual(session.lost, "")
                    # Waits and deadlines last as long as they say.
                    begun = time.monotonic()
                    self.refused(["LEASED", "LEASE_TIMEOUT"], client.lease, kept, exclusive=True, seconds=5, wait=1)
                    self.assertTrue(0.9 < time.monotonic() - begun < 20)
                    # Timestamps move with the clock.
                    new = held_volume(client)
                    self.assertAlmostEqual(new.acquire_end_time.timestamp(), self.now(), delta=60)
                    path = client.commit(new.name, f"at{time.monotonic_ns()}", "npy").path
                    self.assertTrue(os.path.exists(path))
            # What is over by the monotonic clock ends, although the clock of the day says that it is yesterday.
            short = client.buffers.create((4,), ttl=2).name
            brief = client.lease(buffer.name, exclusive=True, seconds=2)
            self.jump(-DAY)
            until(lambda: short not in {b.name for b in client.buffers.list()})
            with client.lease(buffer.name, exclusive=True, seconds=60, wait=20):
                self.refused("LEASE_LOST", brief.release)
            self.jump(0)
            lease.release()
            of_session.release()
            self.assertGreater(seconds_until(client.volume(volume.name).expire_time), 0)
            client.cancel(scan)
        self.assertEqual(daemon.stop(), 0)

    def test_a_stop_lasts_as_long_as_it_says(self):
        daemon = self.start("--drain.seconds", "2", environment=self.environment)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(1), octavo.raster(64, 4000, volumes=1), samples=256, rate_hz=1000).name
            until(lambda: client.scan(scan).current_volume == 0)
        begun = time.monotonic()
        daemon.process.terminate()
        self.jump(-DAY)
        self.assertEqual(daemon.process.wait(30), 0)
        self.assertGreater(time.monotonic() - begun, 1.5)


if __name__ == "__main__":
    unittest.main()
