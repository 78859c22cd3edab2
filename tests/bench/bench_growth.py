#!/usr/bin/env python3
"""Whether a daemon grows with what it has done: clients submit scans, jobs and subscriptions until the counts are reached, and hold, commit, discard, watch and
list on the way. The memory of the last third of the run must stay within 5 % of that of the second one (the first third fills histories and caches).
One JSON object a line: a sample for each hundredth of the work, then the result; the exit status is 1 if it grew.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_growth.py [--scans 15000] [--jobs 4000] [--subscriptions 20000] [--clients 4]
"""

import argparse
import collections
import json
import os
import random
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

from harness import Daemon, octavo  # noqa: E402
from octavo.v1 import scan_pb2, types_pb2  # noqa: E402

HELD = types_pb2.VOLUME_STATE_HELD


class Work:
    """What is still to be done, shared by the clients. Thread-safe."""

    def __init__(self, **counts):
        self.left, self.done, self.lock = dict(counts), dict.fromkeys(counts, 0), threading.Lock()
        self.failed = []  # what ended the run
        self.scans = collections.deque([""], 50)  # names of the last ones; "": all

    def next(self, chance):
        """The kind of the next piece, as often as there are pieces of it; None = all is done, or something has failed. Its number."""
        with self.lock:
            kinds = [kind for kind, left in self.left.items() if left > 0]
            if self.failed or not kinds:
                return None, 0
            kind = chance.choices(kinds, [self.left[kind] for kind in kinds])[0]
            self.left[kind] -= 1
            self.done[kind] += 1
            return kind, self.done[kind]

    def share(self):
        with self.lock:
            return sum(self.done.values()) / (sum(self.done.values()) + sum(self.left.values()))


def do_scan(client, work, chance, number):
    """Small volumes: most are discarded, some committed or derived from."""
    held = chance.random() < 0.5
    disposition = scan_pb2.DISPOSITION_ASK if held else scan_pb2.DISPOSITION_AUTO_DISCARD
    scan = client.submit_scan(octavo.simulated(chance.randrange(1 << 20), fast=True), octavo.raster(16, 8, volumes=chance.randint(1, 3)), samples=chance.choice([64, 128, 256]),
                              retention=dict(disposition=disposition), title=f"growth {number}", request_id=f"scan-{number}", labels={"number": str(number)})
    work.scans.append(scan.name)
    client.wait(scan.name)
    for volume in client.volumes(scan.name, states=[HELD]):
        what = chance.random()
        if what < 0.02:
            client.commit(volume.name, f"growth/{number}-{volume.index}", request_id=f"commit-{number}-{volume.index}")
            continue
        if what < 0.1:
            client.discard(client.derive(volume.name, {"crop": {"start": [0, 0, 0], "count": [4, 8, 16]}}).name)
        client.discard(volume.name)
    if number % 50 == 0:
        client.scans()
        client.jobs()


def do_job(client, work, chance, number):
    processing = octavo.processing(value=chance.choice(["db", "magnitude"]), dtype=chance.choice(["u8", "f32"]))
    job = client.wait_job(client.submit_job(octavo.reprocess(work.raw, processing), title=f"growth {number}", request_id=f"job-{number}").name)
    for volume in client.volumes(job.name, states=[HELD]):
        client.discard(volume.name)


def do_subscription(client, work, chance, number):
    """The first frame at most, of one of the last scans or of whatever runs."""
    try:
        for _ in client.subscribe(chance.choice(work.scans), [chance.choice(["mip", "bscan", "event"])], timeout=0.2):
            break
    except octavo.OctavoTimeout:
        pass
    except octavo.OctavoError as error:
        assert error.reason == "NOTHING_KEPT", error


DO = {"scans": do_scan, "jobs": do_job, "subscriptions": do_subscription}


def run_client(address, seed, work):
    chance = random.Random(seed)
    try:
        with octavo.Client(address, client=f"growth-{seed}") as client:
            while True:
                kind, number = work.next(chance)
                if kind is None:
                    return
                DO[kind](client, work, chance, number)
    except Exception as error:  # noqa: BLE001: the run ends with it
        work.failed.append(f"client {seed}: {error!r}")


def process_metric(daemon, name):
    with urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=30) as page:
        return next(float(line.split()[1]) for line in page.read().decode().splitlines() if line.startswith(name + " "))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=15000)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--subscriptions", type=int, default=20000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("OCTAVO_TEST_SEED") or random.SystemRandom().randrange(1 << 31)))
    arguments = parser.parse_args()
    daemon = Daemon()
    try:
        with daemon.client() as client:
            scan = client.wait(client.submit_scan(octavo.simulated(arguments.seed % 1000, fast=True), octavo.raster(16, 8, volumes=1), samples=128, retention=dict(hold_raw=True)).name)
            raw = next(volume.name for volume in client.volumes(scan.name, states=[HELD]) if volume.raw)
        work = Work(scans=arguments.scans, jobs=arguments.jobs, subscriptions=arguments.subscriptions)
        work.raw = raw
        clients = [threading.Thread(target=run_client, args=(daemon.address, arguments.seed + i, work)) for i in range(arguments.clients)]
        begun, samples = time.monotonic(), []
        for one in clients:
            one.start()
        while any(one.is_alive() for one in clients):
            time.sleep(0.5)
            if work.share() * 100 < len(samples) + 1:
                continue
            samples.append(process_metric(daemon, "process_resident_memory_bytes") / 2**20)
            print(json.dumps(dict(done=dict(work.done), seconds=round(time.monotonic() - begun), resident_mib=round(samples[-1], 1), threads=process_metric(daemon, "process_threads"),
                                  descriptors=process_metric(daemon, "process_open_fds"))), flush=True)
        if work.failed:
            raise SystemExit(f"seed {arguments.seed}: {work.failed}\n{daemon.text()[-2000:]}")
        third = len(samples) // 3
        second, last = (sum(part) / len(part) for part in (samples[third:2 * third], samples[2 * third:]))
        print(json.dumps(dict(name="growth", seed=arguments.seed, **work.done, seconds=round(time.monotonic() - begun), second_third_mib=round(second, 1), last_third_mib=round(last, 1),
                              growth_percent=round((last / second - 1) * 100, 2), most_mib=round(max(samples), 1))), flush=True)
        assert daemon.stop(60) == 0, daemon.text()[-2000:]
        return 0 if last <= 1.05 * second else 1
    finally:
        daemon.remove()


if __name__ == "__main__":
    sys.exit(main())
