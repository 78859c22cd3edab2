#!/usr/bin/env python3
"""What a commit with zstd on all cores costs a scan that runs beside it, and what the scan costs the commit: the scan's rate, its drops and the delay of its
projections without and with commits, and the voxels committed a second without and with the scan. A few viewers read the projections. One JSON object a line; the
exit status is 1 if the scan lost a block or more than 1 % of its rate, or if a commit has other voxels than the volume. With --first, the first commit and
the first read since the daemon's start are measured, beside the scan: what they have to make that later ones find.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_beside.py [--mib 1024] [--rate 13400000] [--samples 1024] [--commits 8] [--codec zstd] [--first] [--backend cuda]
"""

import argparse
import json
import os
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import numpy as np  # noqa: E402
from bench_peers import Crowd, delays_of, measure  # noqa: E402
from harness import Daemon, octavo  # noqa: E402
from octavo.v1 import scan_pb2  # noqa: E402


class Commits:
    """Commits volumes, one after the other; takes each result away when it is there."""

    def __init__(self, client, volumes, codec):
        self.client, self.volumes, self.codec, self.seconds, self.written, self.error = client, volumes, codec, 0.0, 0, None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            for volume in self.volumes:
                began = time.perf_counter()
                result = self.client.commit(volume.name, "beside.zarr", codec=self.codec)
                self.seconds += time.perf_counter() - began
                self.written += result.bytes
                shutil.rmtree(result.path)
        except Exception as error:  # for the main thread
            self.error = error

    def end(self):
        self.thread.join()
        if self.error:
            raise self.error
        size = sum(volume.bytes for volume in self.volumes)
        return dict(commits=len(self.volumes), commit_seconds=round(self.seconds, 2), gb_per_s=round(size / self.seconds * 1e-9, 3), written_share=round(self.written / size, 3))


def watched(client, daemon, scan, seconds, begin=lambda: None):
    """The scan and four viewers for so many seconds, from `begin` on."""
    crowd = Crowd([daemon.address, "unix:" + daemon.ready["unix"]] * 2, scan)
    crowd.wait()
    begin()
    rate, begun, end = measure(client, daemon, scan, seconds)
    frames, left_out, early = crowd.end()
    return dict(seconds=round(seconds, 1), **rate, **delays_of(frames, begun, end), frames_left_out=left_out, ended_early=early[:3])


def begin_live(client, a):
    return client.submit_scan(octavo.simulated(3, repeat_block=True), octavo.raster(512, 512, volumes=0), samples=a.samples, rate_hz=a.rate,
                              retention=dict(mode="live", disposition=scan_pb2.DISPOSITION_AUTO_DISCARD)).name


def first(client, daemon, scan, volumes, codec):
    """The scan for two seconds at a time: alone, beside one commit, beside one read; then the same again. The first turn is the daemon's first."""
    good, read_from = True, volumes.pop()
    for turn in ("first", "second"):
        work = []
        seen = {"alone": watched(client, daemon, scan, 2)}
        seen["commit"] = watched(client, daemon, scan, 2, lambda: work.append(Commits(client, [volumes.pop()], codec)))
        seen["commit"].update(work[0].end())
        with ThreadPoolExecutor(1) as pool:
            seen["read"] = watched(client, daemon, scan, 2, lambda: work.append(pool.submit(client.read, read_from)))
            work[1].result()
        for name, numbers in seen.items():
            print(json.dumps(dict(name=f"{turn}: {name}", **numbers)), flush=True)
            good = good and numbers["blocks_dropped"] == 0
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="of the volume that is committed")
    parser.add_argument("--rate", type=float, default=13.4e6, help="A-scans a second of the scan beside it")
    parser.add_argument("--samples", type=int, default=1024, help="of an A-scan, u16")
    parser.add_argument("--commits", type=int, default=8, help="of each measurement, which lasts as long as they take without a scan")
    parser.add_argument("--codec", default="zstd")
    parser.add_argument("--first", action="store_true", help="measure the first commit and the first read since the daemon's start")
    parser.add_argument("--backend", default="auto")
    a = parser.parse_args()
    daemon = Daemon("--device.backend", a.backend)
    try:
        with daemon.client() as client:
            kept = client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(512, a.mib * 2, volumes=2 * a.commits + 1), samples=1024,
                                      processing=octavo.processing(dtype="u16"), products=dict(preview_rate_hz=-1))
            client.wait(kept)
            last, *volumes = client.volumes(kept)
            if a.first:
                scan = begin_live(client, a)
                good = first(client, daemon, scan, volumes, a.codec)
                client.cancel(scan)
                return 0 if good else 1
            idle = Commits(client, volumes[:a.commits], a.codec).end()
            print(json.dumps(dict(name="commits alone", codec=a.codec, volume_mb=round(last.bytes * 1e-6, 1), cores=os.cpu_count(), **idle)), flush=True)
            scan = begin_live(client, a)
            alone = watched(client, daemon, scan, idle["commit_seconds"])
            print(json.dumps(dict(name="scan alone", rate=a.rate, **alone)), flush=True)
            commits = []
            # As long as the commits take at least: all the while some are made.
            beside = watched(client, daemon, scan, idle["commit_seconds"], lambda: commits.append(Commits(client, volumes[a.commits:], a.codec)))
            busy = commits[0].end()
            print(json.dumps(dict(name="scan and commits", rate=a.rate, **beside, **busy)), flush=True)
            client.cancel(scan)
            voxels = client.read(last)
            same = np.array_equal(client.read(client.import_volume(client.commit(last.name, "last.zarr", codec=a.codec).path)), voxels)
        kept_rate = beside["records_per_second"] / max(alone["records_per_second"], 1)
        good = kept_rate >= 0.99 and alone["blocks_dropped"] == 0 and beside["blocks_dropped"] == 0 and same
        print(json.dumps(dict(name="result", rate_kept=round(kept_rate, 4), commit_kept=round(busy["gb_per_s"] / idle["gb_per_s"], 3), same_voxels=same, good=good)), flush=True)
        assert daemon.stop(60) == 0, daemon.text()[-2000:]
        return 0 if good else 1
    finally:
        daemon.remove()


if __name__ == "__main__":
    sys.exit(main())
