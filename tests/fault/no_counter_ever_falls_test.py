"""The metrics page while scans begin, end, fail and are forgotten: no counter ever decreases, and
no series appears after the first scrape."""

import unittest

import numpy as np

from faults import LONG, Scraper, page
from harness import DaemonTest, octavo, until
from octavo.v1 import scan_pb2

SCANS = 10_000 if LONG else 1250  # more than the ended scans that the server lists


class Counters(DaemonTest):
    flags = ("--device.memory_bytes", str(96 << 20), "--handoff.unix", "auto")

    def refused(self, call):
        with self.assertRaises(octavo.OctavoError):
            call()

    def test_they_only_grow(self):
        with Scraper(self.daemon) as scraper:
            client, fast, raster = self.client, octavo.simulated(1, fast=True), octavo.raster(8, 4, volumes=1)
            scan = lambda **fields: client.submit_scan(fast, raster, samples=64, **fields)
            buffer = client.buffers.put(np.zeros(16, np.float32)).name
            for i in range(SCANS):
                name = scan(retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD)).name
                if i % 10 == 1:
                    client.cancel(name)
                elif i % 50 == 2:  # every failure, repeatedly
                    self.refused(lambda: scan(acquisition=dict(ring_blocks=1)))
                    self.refused(lambda: client.submit_scan(fast, octavo.raster(8192, 8192, volumes=1), samples=4096))
                    held = scan().name
                    client.wait(held)
                    volume = client.volumes(held)[0].name
                    client.commit(volume, f"once/{i}")
                    again = scan().name
                    client.wait(again)
                    volume = client.volumes(again)[0].name
                    self.refused(lambda: client.commit(volume, f"once/{i}"))
                    self.refused(lambda: client.map("volumes/none"))
                    self.refused(lambda: client.buffers.read(buffer, start=[99], count=[1]) if i % 100 else client.buffers.read("buffers/none"))
                    client.derive(volume, {"mip": {"axis": 2}})
                    for each in client.volumes():
                        if each.state == 2:
                            client.discard(each.name)
                    raw = scan(retention=dict(hold_raw=True)).name
                    client.wait(raw)
                    records = next(v.name for v in client.volumes(raw) if v.raw)
                    job = client.submit_job(octavo.reprocess(records, octavo.processing())).name
                    client.wait_job(job)
                    client.wait_job(client.submit_job(octavo.k_calibration(records, records=4)).name, check=False)
                    for each in client.volumes():
                        if each.state == 2:
                            client.discard(each.name)
                elif i % 50 == 3:
                    for frame in client.subscribe(name, ["mip"]):
                        pass
                elif i % 50 == 4:
                    client.submit_scan(octavo.simulated(1), octavo.raster(8, 4, volumes=400), samples=64, rate_hz=1e6,  # overruns
                                       retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=1))
                elif i % 7 == 0:
                    client.wait(name)
            until(lambda: all(s.state in (4, 5, 6) for s in client.scans()), 300)
        self.assertGreater(scraper.count, 20)
        now, _ = page(self.daemon.metrics)
        ended = sum(value for name, value in now.items() if name.startswith("octavo_scans_finished_total{"))
        self.assertGreaterEqual(ended, SCANS)
        self.assertEqual(now['octavo_scans_finished_total{reason="OTHER"}'], 0)
        self.assertGreater(now['octavo_scan_rejected_total{reason="EXCEEDS_BUDGET"}'], 0)
        self.assertGreater(sum(value for name, value in now.items() if name.startswith("octavo_commit_errors_total")), 0)
        for family in ("octavo_scan_rejected_total", "octavo_commit_errors_total", "octavo_buffer_refusals_total", "octavo_export_refusals_total"):
            self.assertEqual(now[family + '{reason="OTHER"}'], 0, family)

    def tearDown(self):
        super().tearDown()
        for buffer in self.client.buffers.list():
            self.client.buffers.destroy(buffer.name)


if __name__ == "__main__":
    unittest.main()
