"""Copies of held volumes in the tier DISK (spill.mirror): what a killed daemon keeps, and what never comes back. Results of jobs that go there."""

import contextlib
import glob
import json
import os
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

import numpy as np

from harness import BUILD, Daemon, octavo, until
from octavo.v1 import ingest_pb2, scan_pb2, types_pb2

LABELS = {"eye": "OD", "study": "glaucoma"}
HUNDRED = dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=100)
IDLE = ("--spill.mirror", "idle")


class Mirrors(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-mirror-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def start(self, *flags, **options):
        log = os.path.join(self.directory, "octavod.log")
        before = os.path.getsize(log) if os.path.exists(log) else 0
        daemon = Daemon(*flags, directory=self.directory, **options)
        daemon.log_begin = before
        self.addCleanup(daemon.remove)
        return daemon

    def acquire(self, client, volumes, **more):
        options = dict(title="eye", labels=LABELS, retention=HUNDRED)
        scan = client.wait(client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(64, 16, volumes=volumes), samples=512, **{**options, **more}))
        return client.volumes(scan.name)

    def files(self):
        return {"volumes/" + os.path.basename(path)[:-len(".spill")] for path in glob.glob(os.path.join(self.directory, "state", "spill", "*.spill"))}

    def all_mirrored(self, client, names):
        until(lambda: all(client.volume(name).mirrored for name in names))

    def records(self, daemon, event):
        with open(daemon.log.name) as log:
            log.seek(daemon.log_begin)
            return [record for record in map(json.loads, log) if record["event"] == event]

    def metric(self, daemon, name):
        page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
        return float(page.split(f"\n{name} ")[1].split("\n")[0])

    def command(self, daemon, *words):
        return subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", daemon.address, *words], capture_output=True, text=True, check=True).stdout


class Killed(Mirrors):
    def test_exactly_the_mirrored_ones_come_back(self):
        size = 64 * 16 * 512
        daemon = self.start(*IDLE, "--spill.disk_bytes", str(size * 7 // 2 + (64 << 10)))  # room for three
        with daemon.client() as client:
            before = {v.name: v for v in self.acquire(client, 6)}
            self.assertEqual(next(iter(before.values())).bytes, size)
            until(lambda: sum(client.volume(name).mirrored for name in before) == 3)
            mirrored = {name for name in before if client.volume(name).mirrored}
            self.assertEqual(mirrored, set(list(before)[:3]))  # the oldest first
            arrays = {name: client.read(name) for name in before}
            self.assertTrue(all(client.volume(name).tier == types_pb2.TIER_DEVICE for name in before))
            self.assertEqual(self.files(), mirrored)
        daemon.kill()
        daemon = self.start()
        with daemon.client() as client:
            after = {v.name: v for v in client.volumes()}
            self.assertEqual(after.keys(), mirrored)
            for name, new in after.items():
                old = before[name]
                self.assertEqual((new.digest, new.parent, new.index, new.title, dict(new.labels), new.owner, new.project),
                                 (old.digest, old.parent, old.index, "eye", LABELS, old.owner, old.project))
                self.assertEqual((new.state, new.tier, new.kept, new.recovered, new.mirrored),
                                 (types_pb2.VOLUME_STATE_HELD, types_pb2.TIER_DISK, True, True, False))
                np.testing.assert_array_equal(client.read(name), arrays[name])
        self.assertEqual(daemon.stop(), 0)

    def test_what_was_discarded_or_committed_never_comes_back(self):
        daemon = self.start(*IDLE)
        with daemon.client() as client:
            names = [v.name for v in self.acquire(client, 4)]
            self.all_mirrored(client, names)
            client.discard(names[0])
            client.commit(names[1], "kept", "npy")
            client.spill(names[2])
            client.discard(names[2])
            daemon.kill()  # right behind the answer
        self.assertEqual(self.files(), {names[3]})
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual({v.name for v in client.volumes()}, {names[3]})

    def test_nor_if_the_daemon_dies_at_the_worst_moment(self):
        # A discard that comes while the file of its volume is written: before it has its name, and behind that.
        temporary = os.path.join(self.directory, "state", "spill", ".*.tmp")
        for point in ("spill_synced:kill", "spill_gate:kill", "spill_renamed:kill"):
            with self.subTest(point=point):
                daemon = self.start(*IDLE, environment={"OCTAVO_FAILPOINT": point})
                with daemon.client() as client:
                    ended = client.wait(client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(256, 256), samples=1024, retention=HUNDRED))
                    (name,) = (v.name for v in client.volumes(ended.name))
                    until(lambda: glob.glob(temporary) or daemon.process.poll() is not None)
                    try:
                        discarded = client.discard(name).state == types_pb2.VOLUME_STATE_DISCARDED
                    except octavo.OctavoError:
                        discarded = False  # the daemon died before
                    if discarded:
                        daemon.kill()
                    daemon.process.wait(60)
                if discarded:
                    self.assertNotIn(name, self.files())
                daemon = self.start()
                with daemon.client() as client:
                    for volume in client.volumes():
                        client.restore(volume.name)  # whole, by its digest
                        client.discard(volume.name)
                self.assertEqual(daemon.stop(), 0)

    def test_expired_volumes_do_not_come_back(self):
        daemon = self.start(*IDLE)
        with daemon.client() as client:
            (name,) = (v.name for v in self.acquire(client, 1, retention={**HUNDRED, "ttl": 8}))
            until(lambda: client.volume(name).mirrored)
            until(lambda: client.volume(name).state == types_pb2.VOLUME_STATE_DISCARDED and not self.files())
            daemon.kill()
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual(list(client.volumes()), [])

    def test_a_mark_that_came_later_is_kept(self):
        daemon = self.start(*IDLE)
        with daemon.client() as client:
            names = [v.name for v in self.acquire(client, 3)]
            client.hold(names[1])
            self.all_mirrored(client, names)
            client.hold(names[0])
            client.release(names[1])

            def noted(name, note):
                with open(os.path.join(self.directory, "state", "spill", name.split("/")[1] + ".spill"), "rb") as file:
                    file.seek(-16 + 7, os.SEEK_END)
                    return file.read(1)[0] == note
            until(lambda: noted(names[0], 2) and noted(names[1], 1))
        daemon.kill()
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual([client.volume(name).marked for name in names], [True, False, False])

    def test_a_ring_has_none(self):
        daemon = self.start(*IDLE)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(1), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=1e3,
                                      retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, keep_last=4, hold_slots=1))
            until(lambda: client.scan(scan.name).volumes_done > 8)
            marked = None
            while marked is None:  # a volume stays for a second
                newest = next(v.name for v in reversed(client.volumes(scan.name)) if v.state == types_pb2.VOLUME_STATE_HELD)
                with contextlib.suppress(octavo.OctavoError):
                    marked = client.hold(newest).name
            until(lambda: client.volume(marked).mirrored)
            self.assertEqual(self.files(), {marked})
            client.release(marked)
            self.assertEqual(self.files(), set())
            client.cancel(scan.name)


class Stopped(Mirrors):
    def test_a_stop_with_everything_mirrored_writes_nothing(self):
        daemon = self.start(*IDLE)
        with daemon.client() as client:
            volumes = self.acquire(client, 5)
            names = [v.name for v in volumes]
            client.spill(names[4], "host")
            arrays = {name: client.read(name) for name in names}
            self.all_mirrored(client, names)
            self.assertEqual((client.info().stop.volumes, client.info().stop.bytes), (0, 0))
            times = {name: os.stat(os.path.join(self.directory, "state", "spill", name.split("/")[1] + ".spill")).st_mtime_ns for name in names}
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.records(daemon, "held volumes written"), [])
        self.assertEqual(self.records(daemon, "held volume is lost with the daemon"), [])
        self.assertEqual({name: os.stat(os.path.join(self.directory, "state", "spill", name.split("/")[1] + ".spill")).st_mtime_ns for name in names}, times)
        # on_held does not matter to what is on the disk already.
        daemon = self.start(*IDLE, "--drain.on_held", "lose")
        with daemon.client() as client:
            for name, array in arrays.items():
                np.testing.assert_array_equal(client.read(name), array)
            restored = client.restore(names[0])
            self.assertEqual((restored.tier, restored.mirrored), (types_pb2.TIER_DEVICE, True))
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.files(), set(names))

    def test_a_spill_of_a_mirrored_volume_moves_no_bytes(self):
        daemon = self.start(*IDLE)
        with daemon.client() as client:
            (volume,) = self.acquire(client, 1)
            self.all_mirrored(client, [volume.name])
            spilled = client.spill(volume.name)
            self.assertEqual((spilled.tier, spilled.mirrored), (types_pb2.TIER_DISK, False))
            self.assertEqual(self.metric(daemon, 'octavo_spilled_bytes_total{tier="DISK"}'), 0)
            self.assertEqual(sum(d.held_bytes for d in client.devices()), 0)

    def test_off_is_off(self):
        daemon = self.start()
        with daemon.client() as client:
            (volume,) = self.acquire(client, 1)
            client.spill(volume.name)
            self.assertFalse(client.restore(volume.name).mirrored)
            self.assertEqual(self.files(), set())
        with self.assertRaisesRegex(RuntimeError, "exit code 2") as caught:
            Daemon(*IDLE, "--spill.disk_bytes", "0")
        self.assertIn("spill.mirror: is idle, but there is no tier DISK: spill.disk_bytes is 0", str(caught.exception))


class Told(Mirrors):
    def test_clients_metrics_and_the_command_line(self):
        daemon = self.start(*IDLE)
        with daemon.client() as client:
            volumes = self.acquire(client, 2)
            self.all_mirrored(client, [v.name for v in volumes])
            bytes_ = sum(v.bytes for v in volumes)
            (disk,) = (tier for tier in client.memory().tiers if tier.tier == types_pb2.TIER_DISK)
            self.assertEqual((disk.volumes, disk.mirrors, disk.mirror_bytes, disk.failures), (0, 2, bytes_, 0))
            self.assertGreaterEqual(disk.used_bytes, bytes_)
            self.assertEqual((self.metric(daemon, "octavo_mirrored_volumes"), self.metric(daemon, "octavo_mirrored_bytes"),
                              self.metric(daemon, "octavo_mirror_failures_total")), (2, bytes_, 0))
            self.assertIn("2 mirrors of 1.0 MiB", self.command(daemon, "memory"))
            self.assertEqual(self.command(daemon, "volume", "list").count("  mirrored"), 2)
            self.assertIn("  mirrored", self.command(daemon, "volume", "show", volumes[0].name))

    def test_volumes_without_room_are_told(self):
        daemon = self.start(*IDLE, "--spill.disk_bytes", str(1 << 20))
        with daemon.client() as client:
            self.assertNotIn("spill.mirror", self.command(daemon, "info"))
            volumes = self.acquire(client, 3)  # of 512 KiB: with its footer only one fits
            until(lambda: sum(client.volume(v.name).mirrored for v in volumes) == 1)
            bytes_ = sum(v.bytes for v in volumes[1:])
            self.assertEqual((self.metric(daemon, "octavo_unmirrored_volumes"), self.metric(daemon, "octavo_unmirrored_bytes")), (2, bytes_))
            self.assertLess(self.metric(daemon, "octavo_mirror_room_bytes"), bytes_)
            self.assertIn("warning: spill.mirror: 2 held volumes of 1.0 MiB have no copy on the disk", self.command(daemon, "info"))
            for volume in volumes[1:]:
                client.discard(volume.name)
            self.assertNotIn("spill.mirror", self.command(daemon, "info"))

    def test_failures_are_counted_and_the_volume_is_as_it_was(self):
        daemon = self.start(*IDLE, environment={"OCTAVO_FAILPOINT": "spill_write:errno=28"})
        with daemon.client() as client:
            first, second = self.acquire(client, 2)
            until(lambda: client.volume(second.name).mirrored)  # the next one goes first
            self.assertEqual(self.metric(daemon, "octavo_mirror_failures_total"), 1)
            now = client.volume(first.name)
            self.assertEqual((now.state, now.last_error, now.mirrored), (types_pb2.VOLUME_STATE_HELD, "", False))
            (told,) = self.records(daemon, "volume not mirrored; it stays where it is, and would be lost if the server were killed")
            self.assertIn("No space left", told["error"])


class Results(Mirrors):
    def work(self, daemon):
        volume = np.arange(8 * 9 * 10, dtype=np.float32).reshape(8, 9, 10)
        np.save(os.path.join(daemon.root, "a.npy"), volume)
        np.save(os.path.join(daemon.root, "s.npy"), np.random.default_rng(1).random((30, 2, 32), dtype=np.float32))
        imported = ingest_pb2.ImportJob(path="a.npy", axes="zyx", allow_unknown_spacing=True)
        reconstructed = octavo.tomography("s.npy", algorithm="fbp", angles=np.linspace(0, np.pi, 30, endpoint=False), center=15.5,
                                          prepare=octavo.preparation(already_sinograms=True))
        return imported, reconstructed

    def test_they_go_to_the_tier(self):
        daemon = self.start()
        names = []
        with daemon.client() as client:
            for work in self.work(daemon):
                for tier in ("disk", "host"):
                    job = client.wait_job(client.submit_job(work, results=tier, labels=LABELS))
                    self.assertEqual(job.spec.results, types_pb2.TIER_DISK if tier == "disk" else types_pb2.TIER_HOST)
                    (name,) = job.volume_names
                    until(lambda: client.volume(name).tier == job.spec.results)
                    self.assertEqual(dict(client.volume(name).labels), LABELS)
                    if tier == "disk":
                        names.append((name, client.read(name)))
            self.assertEqual(sum(d.held_bytes for d in client.devices()), 0)
            # The same request again is the same job; another tier is another request.
            work = self.work(daemon)[0]
            first = client.submit_job(work, results="disk", request_id="r")
            self.assertEqual(client.submit_job(work, results="disk", request_id="r").name, first.name)
            with self.assertRaises(octavo.OctavoError) as caught:
                client.submit_job(work, results="host", request_id="r")
            self.assertEqual(caught.exception.reason, "IDEMPOTENCY_MISMATCH")
            client.wait_job(first)
        daemon.kill()  # they outlive it
        daemon = self.start()
        with daemon.client() as client:
            for name, array in names:
                np.testing.assert_array_equal(client.read(name), array)

    def test_one_that_finds_no_room_stays(self):
        daemon = self.start("--spill.disk_bytes", "1000")
        with daemon.client() as client:
            with self.assertWarns(octavo.OctavoWarning):
                job = client.wait_job(client.submit_job(self.work(daemon)[0], results="disk"))
            self.assertEqual(job.state, "DONE")
            (name,) = job.volume_names
            volume = client.volume(name)
            self.assertEqual((volume.state, volume.tier), (types_pb2.VOLUME_STATE_HELD, types_pb2.TIER_DEVICE))
            (warning,) = (text for text in job.warnings if text.startswith("results: "))
            self.assertIn(f"{name} does not go to DISK and stays where it is", warning)
            self.assertIn("spill.disk_bytes", warning)

    def test_what_is_refused(self):
        daemon = self.start("--spill.disk_bytes", "0")
        with daemon.client() as client:
            imported = self.work(daemon)[0]
            buffer = ingest_pb2.ImportJob()
            buffer.CopyFrom(imported)
            buffer.buffer.SetInParent()
            for call in (client.submit_job, client.plan_job):
                with self.assertRaises(octavo.OctavoError) as caught:
                    call(imported, results="disk")
                self.assertEqual((caught.exception.code.name, caught.exception.reason), ("FAILED_PRECONDITION", "SPILL_OFF"))
                with self.assertRaises(octavo.OctavoError) as caught:
                    call(buffer, results="host")
                self.assertEqual(caught.exception.code.name, "INVALID_ARGUMENT")
                self.assertIn("results: is HOST for an import whose result is a buffer", str(caught.exception))
                call(imported, results="device")


if __name__ == "__main__":
    unittest.main()
