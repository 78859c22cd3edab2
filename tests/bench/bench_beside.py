#!/usr/bin/env python3
"""What a commit with zstd on all cores costs a scan that runs beside it, and what the scan costs the commit: the scan's rate, its drops and the delay of its
projections without and with commits, and the voxels committed a second without and with the scan. A few viewers read the projections. One JSON object a line; the
exit status is 1 if the scan lost a block or more than 1 % of its rate, or if a commit has other voxels than the volume.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_beside.py [--mib 1024] [--rate 13400000] [--samples 1024] [--seconds 20] [--codec zstd] [--backend cuda]
"""

import argparse
import json
import os
import shutil
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import numpy as np  # noqa: E402
from bench_peers import Crowd, delays_of, measure  # noqa: E402
from harness import Daemon, octavo  # noqa: E402
from octavo.v1 import scan_pb2  # noqa: E402


class Commits:
    """Commits a volume again and again until it is ended; takes each result away when it is there."""

    def __init__(self, client, volume, codec):
        self.client, self.volume, self.codec, self.over, self.seconds, self.written = client, volume, codec, threading.Event(), [], 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            began = time.perf_counter()
            result = self.client.commit(self.volume.name, f"beside-{len(self.seconds)}.zarr", codec=self.codec)
            self.seconds.append(time.perf_counter() - began)
            self.written = result.bytes
            shutil.rmtree(result.path)

    def end(self):
        self.over.set()
        self.thread.join()
        best = min(self.seconds)
        mean = sum(self.seconds) / len(self.seconds)
        return dict(commits=len(self.seconds), gb_per_s=round(self.volume.bytes / mean * 1e-9, 3), best_gb_per_s=round(self.volume.bytes / best * 1e-9, 3),
                    written_share=round(self.written / self.volume.bytes, 3))


def watched(client, daemon, scan, seconds):
    crowd = Crowd([daemon.address, "unix:" + daemon.ready["unix"]] * 2, scan)
    crowd.wait()
    rate, begun, end = measure(client, daemon, scan, seconds)
    frames, left_out, early = crowd.end()
    return dict(**rate, **delays_of(frames, begun, end), frames_left_out=left_out, ended_early=early[:3])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="of the volume that is committed")
    parser.add_argument("--rate", type=float, default=13.4e6, help="A-scans a second of the scan beside it")
    parser.add_argument("--samples", type=int, default=1024, help="of an A-scan, u16")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--codec", default="zstd")
    parser.add_argument("--backend", default="auto")
    a = parser.parse_args()
    daemon = Daemon("--device.backend", a.backend)
    try:
        with daemon.client() as client:
            kept = client.submit_scan(octavo.simulated(3), octavo.raster(512, a.mib * 2, volumes=1), samples=1024, processing=octavo.processing(dtype="u16"),
                                      products=dict(preview_rate_hz=-1))
            client.wait(kept)
            volume = client.volumes(kept)[0]
            commits = Commits(client, volume, a.codec)
            time.sleep(a.seconds)
            idle = commits.end()
            print(json.dumps(dict(name="commits alone", codec=a.codec, volume_mb=round(volume.bytes * 1e-6, 1), cores=os.cpu_count(), **idle)), flush=True)
            scan = client.submit_scan(octavo.simulated(3, repeat_block=True), octavo.raster(512, 512, volumes=0), samples=a.samples, rate_hz=a.rate,
                                      retention=dict(mode="live", disposition=scan_pb2.DISPOSITION_AUTO_DISCARD)).name
            alone = watched(client, daemon, scan, a.seconds)
            print(json.dumps(dict(name="scan alone", rate=a.rate, **alone)), flush=True)
            commits = Commits(client, volume, a.codec)
            beside = watched(client, daemon, scan, a.seconds)
            busy = commits.end()
            print(json.dumps(dict(name="scan and commits", rate=a.rate, **beside, **busy)), flush=True)
            client.cancel(scan)
            back = client.import_volume(client.commit(volume.name, "last.zarr", codec=a.codec).path)
            same = np.array_equal(client.read(back), client.read(volume))
        kept_rate = beside["records_per_second"] / max(alone["records_per_second"], 1)
        good = kept_rate >= 0.99 and alone["blocks_dropped"] == 0 and beside["blocks_dropped"] == 0 and same
        print(json.dumps(dict(name="result", rate_kept=round(kept_rate, 4), commit_kept=round(busy["gb_per_s"] / idle["gb_per_s"], 3), same_voxels=same, good=good)), flush=True)
        assert daemon.stop(60) == 0, daemon.text()[-2000:]
        return 0 if good else 1
    finally:
        daemon.remove()


if __name__ == "__main__":
    sys.exit(main())
