"""Random clients create, hold, read, map, derive, commit, discard, lease and die for
OCTAVO_SOAK_SECONDS (five minutes; an hour by hand, then with an OCTAVO_SOAK_PAUSE). Afterwards the
ledger is back at its start, the numbers of descriptors and threads are flat, and no digest ever
changed.

The same file is the client: `nothing_grows_over_time_test.py ADDRESS ROOT SEED` makes random calls until it is asked
to end or is killed."""

import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from concurrent import futures

import numpy as np

from digest import sum64
from harness import Daemon, octavo
from octavo.v1 import scan_pb2, types_pb2

SECONDS = float(os.environ.get("OCTAVO_SOAK_SECONDS", "300"))
SEED = int(os.environ.get("OCTAVO_TEST_SEED") or random.SystemRandom().randrange(1 << 31))
PAUSE = float(os.environ.get("OCTAVO_SOAK_PAUSE", "0"))  # mean pause of a client between two steps, seconds
CLIENTS = 4
TTL = 5.0  # time to live of the objects that a killed client leaves
EXPIRY = 2.0  # expiry of its session
# Answers of a full server, and errors for objects that other clients have ended meanwhile.
EXPECTED = {"RESOURCE_EXHAUSTED", "NOT_FOUND", "ABORTED", "FAILED_PRECONDITION"}


class RandomClient:
    """One client with a session. It checks the digest of a volume against the voxels read earlier
    whenever it meets the volume again."""

    def __init__(self, address, root, seed):
        self.random = random.Random(seed)
        self.array = np.random.default_rng(seed)
        self.client = octavo.Client(address, client=f"soak-{seed}", key=f"{seed:032x}")
        self.session = self.client.session(f"soak-{seed}")
        self.root, self.seed, self.counted = root, seed, 0
        self.volumes = {}  # name → digest
        self.buffers = {}  # name → array
        self.mapped = []  # (array in the server's memory, digest)

    def scan(self):
        retention = dict(mode=self.random.choice([scan_pb2.RETENTION_MODE_CAPTURE, scan_pb2.RETENTION_MODE_LIVE]), orphan=scan_pb2.ORPHAN_DISCARD, ttl=60,
                         hold_slots=self.random.randint(2, 4))
        if retention["mode"] == scan_pb2.RETENTION_MODE_CAPTURE:
            retention["on_full"] = self.random.choice([scan_pb2.ON_FULL_STOP_AT_VOLUME, scan_pb2.ON_FULL_DROP_NEW, scan_pb2.ON_FULL_SPILL_DISK, scan_pb2.ON_FULL_SPILL_HOST])
        processing = octavo.processing(value=self.random.choice(["db", "magnitude"]), dtype=self.random.choice(["u8", "u16", "f32"]))
        scan = self.client.submit_scan(octavo.simulated(self.random.randrange(1000), fast=True),
                                       octavo.raster(self.random.choice([16, 32]), self.random.choice([8, 16]), volumes=self.random.randint(1, 6)),
                                       samples=self.random.choice([256, 500, 512]), processing=processing, retention=retention, session=self.session)
        what = self.random.random()
        if what < 0.15:
            self.client.cancel(scan.name)
        elif what < 0.3:
            for frame in self.client.subscribe(scan.name, ["mip"]):
                break  # a viewer that disconnects at once
        scan = self.client.wait(scan.name)
        for volume in self.client.volumes(scan.name, states=[types_pb2.VOLUME_STATE_HELD]):
            self.volumes[volume.name] = volume.digest

    def check(self):
        name = self.some(self.volumes)
        found = sum64(self.client.read(name))
        assert found == self.volumes[name] == self.client.volume(name).digest, f"{name} was {self.volumes[name]}, is {found}"

    def hold(self):
        (self.client.hold if self.random.random() < 0.5 else self.client.release)(self.some(self.volumes))

    def move(self):
        name = self.some(self.volumes)
        if self.random.random() < 0.5:
            self.client.spill(name, self.random.choice(["disk", "host"]))
        else:
            self.client.restore(name)
        assert self.client.volume(name).digest == self.volumes[name], name

    def derive(self):
        name = self.some(self.volumes)
        array = self.client.read(name)
        start, count = [n // 4 for n in array.shape], [max(1, n // 2) for n in array.shape]
        made = self.client.derive(name, {"crop": {"start": start, "count": count}})
        np.testing.assert_array_equal(self.client.read(made.name), array[tuple(slice(b, b + n) for b, n in zip(start, count))])
        self.volumes[made.name] = made.digest

    def commit(self):
        name = self.some(self.volumes)
        self.counted += 1
        result = self.client.commit(name, f"soak_{self.seed}_{self.counted}", "npy")
        assert sum64(np.load(result.path)) == self.volumes[name], name
        os.unlink(result.path)
        del self.volumes[name]

    def discard(self):
        name = self.some(self.volumes)
        del self.volumes[name]
        self.client.discard(name)

    def create(self):
        array = self.array.integers(0, 1 << 16, (self.random.randint(1, 64), self.random.randint(1, 4096)), dtype=np.uint16)
        self.buffers[self.client.buffers.put(array, ttl=TTL, private=self.random.random() < 0.5).name] = array

    def operate(self):
        name = self.some(self.buffers)
        made = self.client.buffers.apply(name, {"reduce": {"kind": "max", "axes": [0]}}, ttl=TTL)
        np.testing.assert_array_equal(self.client.buffers.read(made.name).reshape(-1), self.buffers[name].max(axis=0))
        self.client.buffers.destroy(made.name)

    def overwrite(self):
        name = self.some(self.buffers)
        with self.client.lease(name, exclusive=True, session=self.session) as lease:
            array = self.array.integers(0, 1 << 16, self.buffers[name].shape, dtype=np.uint16)
            self.client.buffers.write(name, array, lease_token=lease.token)
            self.buffers[name] = array
        np.testing.assert_array_equal(self.client.buffers.read(name), array)

    def destroy(self):
        name = self.some(self.buffers)
        del self.buffers[name]
        self.client.buffers.destroy(name)

    def export(self):
        """Maps a volume in any state, or reads one that was mapped before, and releases some."""
        if self.mapped and self.random.random() < 0.5:
            array, digest = self.random.choice(self.mapped)
            now = sum64(array.copy())
            assert now == digest, f"a mapped volume was {digest}, is {now}"
        else:
            name = self.some(self.volumes)
            array = self.client.map(name)
            assert sum64(array.copy()) == self.volumes[name], name
            self.mapped.append((array, self.volumes[name]))
        while len(self.mapped) > self.random.randint(0, 3):
            array, _ = self.mapped.pop(self.random.randrange(len(self.mapped)))
            self.client.unmap(array)

    def leave_lease(self):
        self.client.lease(self.some(self.volumes), session=self.session)  # returned by the session's end

    def some(self, of):
        if not of:
            raise LookupError("nothing yet")
        return self.random.choice(sorted(of))

    def run(self):
        steps = [self.scan] * 4 + [self.check] * 4 + [self.create] * 2 + [self.hold, self.move, self.derive, self.commit, self.discard, self.discard,
                                                                         self.operate, self.overwrite, self.destroy, self.leave_lease, self.export, self.export]
        done, refused = 0, {}
        for _ in range(self.random.randint(20, 200)):
            time.sleep(self.random.uniform(0, 2 * PAUSE))
            try:
                self.random.choice(steps)()
                done += 1
            except LookupError:
                continue
            except octavo.HandoffError as error:
                if error.code not in EXPECTED and error.reason != "EXPORT_REVOKED":
                    raise
                refused[error.reason] = refused.get(error.reason, 0) + 1
            except octavo.OctavoError as error:
                if error.code.name not in EXPECTED or not error.reason:
                    raise
                refused[error.reason] = refused.get(error.reason, 0) + 1
                for gone in [n for n in self.volumes if error.code.name == "NOT_FOUND" and n in str(error)]:
                    del self.volumes[gone]
                for gone in [n for n in self.buffers if n in str(error)]:
                    del self.buffers[gone]
        if self.random.random() < 0.5:
            self.session.close()
        print(json.dumps({"done": done, "refused": refused}), flush=True)


# gRPC makes its own threads as it needs them, up to a number per core; the others belong to us and
# to CUDA.
GRPC_THREADS = ("default-executo", "resolver-execut", "event_engine", "nexting_thread", "timer_manager", "grpc")


def figures(pid):
    with open(f"/proc/{pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    threads = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/comm") as name:
                threads += not name.read().startswith(GRPC_THREADS)
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            pass
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": threads, "resident_kb": int(lines["VmRSS"].split()[0])}


class Soak(unittest.TestCase):
    def ledger(self, client):
        return [(d.reserved_bytes, d.held_bytes, d.buffer_bytes, d.detached_bytes) for d in client.devices()]

    def settled(self, client):
        """Waits until sessions and times to live have removed leftovers, and discards volumes
        without an owner."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for scan in client.scans():
                if scan.state not in (types_pb2.SCAN_STATE_DONE, types_pb2.SCAN_STATE_FAILED, types_pb2.SCAN_STATE_CANCELLED):
                    client.cancel(scan.name)
            for volume in client.volumes(states=[types_pb2.VOLUME_STATE_HELD]):
                try:
                    client.discard(volume.name)
                except octavo.OctavoError as error:  # leased by a session that has not expired yet, or ended by its time to live
                    self.assertIn(error.reason, ("LEASED", "VOLUME_STATE", "VOLUME_GONE"), error)
            if not any(map(any, self.ledger(client))):
                return
            time.sleep(0.2)
        self.fail(f"the ledger is not empty: {self.ledger(client)}, {client.memory()}")

    def test_nothing_is_lost_or_left(self):
        print(f"seed {SEED}, {SECONDS:.0f} s", flush=True)
        rng = random.Random(SEED)
        daemon = Daemon("--device.backend", os.environ.get("OCTAVO_DEVICE_BACKEND", "host"), "--device.memory_bytes", str(256 << 20),
                        "--device.frame_pool_bytes", str(16 << 20), "--spill.host_bytes", str(16 << 20), "--session.heartbeat_seconds", "0.5",
                        "--session.expiry_seconds", str(EXPIRY), "--handoff.unix", "auto")
        self.addCleanup(daemon.remove)
        running, ended, killed, done, refused = {}, 0, 0, 0, collections.Counter()
        samples = []
        with daemon.client() as client, tempfile.TemporaryDirectory() as logs:
            before = self.ledger(client)
            end, next_sample, number = time.monotonic() + SECONDS, 0.0, 0
            while time.monotonic() < end or running:
                while len(running) < CLIENTS and time.monotonic() < end:
                    number += 1
                    log = open(os.path.join(logs, str(number)), "w+")
                    process = subprocess.Popen([sys.executable, __file__, daemon.address, daemon.root, str(rng.randrange(1 << 31))], stdout=log, stderr=log)
                    # A third of the clients are killed at a random instant.
                    running[process] = (log, time.monotonic() + rng.uniform(0.5, 15) if rng.random() < 0.35 else None)
                for process, (log, kill_at) in list(running.items()):
                    if kill_at is not None and time.monotonic() > kill_at:
                        process.kill()
                    if process.poll() is None:
                        continue
                    del running[process]
                    log.seek(0)
                    text = log.read()
                    log.close()
                    os.unlink(log.name)
                    if process.returncode == -9:
                        killed += 1
                        continue
                    self.assertEqual(process.returncode, 0, text)
                    ended += 1
                    told = json.loads(text.splitlines()[-1])
                    done += told["done"]
                    refused.update(told["refused"])
                self.assertIsNone(daemon.process.poll(), daemon.text()[-4000:])
                if time.monotonic() > next_sample:
                    samples.append(figures(daemon.process.pid))
                    next_sample = time.monotonic() + max(1.0, SECONDS / 60)
                    for device in client.devices():
                        self.assertLessEqual(device.reserved_bytes + device.held_bytes + device.buffer_bytes + device.detached_bytes + device.cached_bytes,
                                             device.budget_bytes)
                time.sleep(0.05)
            self.settled(client)
            self.assertEqual(self.ledger(client), before)
            self.assertEqual(os.listdir(os.path.join(daemon.directory, "state", "spill")), [])
            self.assertEqual([n for n in os.listdir(daemon.root) if n.startswith(".")], [])
            page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
            last = figures(daemon.process.pid)
        # Flat: the second half needs no more than the first, apart from a few that vary with the
        # connections.
        half = len(samples) // 2
        for what, slack in (("descriptors", 12), ("threads", 12)):
            first, second = max(s[what] for s in samples[:half]), max(s[what] for s in samples[half:] + [last])
            self.assertLessEqual(second, first + slack, f"{what}: {[s[what] for s in samples]}")
        self.assertGreater(done, 10 * max(1, ended), "the clients did next to nothing")
        self.assertNotIn("octavo_internal_errors_total 1", page)
        self.assertEqual(daemon.stop(), 0, daemon.text()[-4000:])
        print(f"{ended} clients ended, {killed} were killed; {done} steps, refused {dict(refused)}; descriptors {samples[0]['descriptors']} → "
              f"{last['descriptors']}, threads {samples[0]['threads']} → {last['threads']}, resident {samples[0]['resident_kb'] >> 10} → "
              f"{last['resident_kb'] >> 10} MiB", flush=True)

    def test_ended_scans_take_bounded_memory(self):
        """A scan that is listed no longer leaves little: its volume, which has left memory, stays listed for ten minutes (2 KiB)."""
        scans, most_kib = 150, 7
        daemon = Daemon("--device.backend", os.environ.get("OCTAVO_DEVICE_BACKEND", "host"), "--device.frame_pool_bytes", str(16 << 20), "--history.scans", "20",
                        "--history.bytes", str(1 << 20))
        self.addCleanup(daemon.remove)

        def run_scans(seed):
            with daemon.client() as client:
                for i in range(scans):
                    scan = client.submit_scan(octavo.simulated(seed * scans + i, fast=True), octavo.raster(16, 8, volumes=1), samples=128,
                                              retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD))
                    client.wait(scan.name)

        def resident_kib():
            with futures.ThreadPoolExecutor(CLIENTS) as pool:
                list(pool.map(run_scans, range(CLIENTS)))
            return figures(daemon.process.pid)["resident_kb"]
        resident_kib()  # fills histories and caches
        before = resident_kib()
        grown = resident_kib() - before
        self.assertLess(grown, scans * CLIENTS * most_kib, f"{grown / scans / CLIENTS:.1f} KiB for each scan")
        self.assertEqual(daemon.stop(), 0, daemon.text()[-4000:])


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[3].isdigit():
        RandomClient(sys.argv[1], sys.argv[2], int(sys.argv[3])).run()
        sys.exit(0)
    unittest.main()
