"""Fifty viewers of one 512 x 512 view each, beside a scan at a quarter of what the machine does: they cost the scan nothing, and
the viewer no memory. They acknowledge on the wire, as browsers do.

OCTAVO_VIEWERS_SECONDS (20) is how long they look; 300 is the whole test, on a machine that does nothing else.
"""

import os
import re
import time
import unittest
import urllib.request

import numpy as np

from harness import DaemonTest, octavo, until
from web_viewer import Viewer

SECONDS = float(os.environ.get("OCTAVO_VIEWERS_SECONDS", "20"))
VIEWERS = 50


class Fifty(DaemonTest):
    flags = ("--device.frame_pool_bytes", str(256 << 20))

    def test_fifty_viewers(self):
        # What the machine does, with other programs beside it: as fast as it can, for a volume.
        measured = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(512, 128, volumes=1), samples=512, processing=octavo.processing(dtype="u8"))
        self.client.wait(measured.name)
        rate = self.client.scan(measured.name).records_per_second / 4
        viewer = Viewer(self.daemon.address)
        self.addCleanup(viewer.stop)
        viewer.enter()
        scan = self.client.submit_scan(octavo.simulated(1), octavo.raster(512, 512, volumes=0), samples=512, rate_hz=rate, processing=octavo.processing(dtype="u8"), acquisition=dict(ring_blocks=40)).name
        sockets = [viewer.socket() for _ in range(VIEWERS)]
        for web in sockets:
            web.open(0, scan, width=512, encoding="RAW")
        last, frames, dropped, bytes_sent, ages, sizes = {}, 0, 0, 0, [], []
        start, before = time.monotonic(), None
        while time.monotonic() < start + SECONDS:
            for i, web in enumerate(sockets):
                header, data = web.frame()
                self.assertEqual(len(data), 512 * 512)
                if i in last:
                    self.assertEqual(header["sequence"], last[i] + 1 + header["dropped"])
                    dropped += header["dropped"]
                last[i] = header["sequence"]
                frames += 1
                bytes_sent += len(data)
                ages.append(header["bridge_us"])
                web.acknowledge(header)
            sizes.append(viewer.status())
            now = self.client.scan(scan)
            if before is None:
                before = (time.monotonic(), now.records)
        seconds, records = time.monotonic() - before[0], now.records - before[1]
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        self.assertEqual(float(re.search(r'^octavo_subscribers\{product="mip"\} (\S+)', page, re.M)[1]), 1)
        self.assertEqual((sizes[-1]["viewers"], sizes[-1]["views"], sizes[-1]["subscriptions"]), (VIEWERS, VIEWERS, 1))
        self.assertEqual(now.blocks_dropped, 0)
        resident = [size["resident_bytes"] for size in sizes]
        third = len(resident) // 3
        self.assertLess(np.median(resident[-third:]) - np.median(resident[third:2 * third]), 32 << 20)
        print(f"{VIEWERS} viewers, {seconds:.0f} s: {frames / seconds / VIEWERS:.1f} frames/s each, {bytes_sent / seconds / 1e6:.0f} MB/s, {dropped} left out, {np.median(ages) / 1000:.1f} ms in octavo-web (median), "
              f"{max(resident) >> 20} MiB; {records / seconds:.0f} of {rate:.0f} A-scans/s")
        if SECONDS >= 120:  # in less, the ends of the interval count for more than a hundredth
            self.assertAlmostEqual(records / seconds / rate, 1, delta=0.01)
        for web in sockets:
            web.close()
        until(lambda: viewer.status()["viewers"] == 0)


if __name__ == "__main__":
    unittest.main()
