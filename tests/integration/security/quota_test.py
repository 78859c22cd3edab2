"""What one principal may use: scans, jobs, device memory, open calls, storage roots; that a refusal names the numbers and changes nothing; and that every end of
what was charged gives it back."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
import urllib.request

import grpc
import numpy as np

from harness import BUILD, Daemon, octavo, until
from google.rpc import error_details_pb2, status_pb2
from octavo.v1 import ingest_pb2, job_pb2, reason_pb2, scan_pb2, stream_pb2, system_pb2, tomography_pb2, types_pb2, volume_pb2, volume_pb2_grpc

OCTAVO = os.path.join(BUILD, "bin", "octavo")
HANG_FSYNC = os.path.join(BUILD, "lib", "libhang_fsync.so")
MIB = 1 << 20
# One for each kind, so that no test is in the way of another; ada has the usual limits, which are none but for open calls.
PEOPLE = {"ada": "operator", "sam": "operator", "joe": "operator", "dora": "operator", "dirk": "operator", "vera": "viewer", "una": "viewer", "pat": "operator",
          "ren": "viewer", "wade": "operator", "rob": "operator", "root": "admin"}
EXCEPTIONS = ("sam scans=2", "joe jobs=2", f"dora device_bytes={24 * MIB}", f"dirk device_bytes={24 * MIB}", "vera watches=3", "una watches=1", "wade watches=1", "pat plans=1", "ren renderings=1",
              "role:admin jobs=1")
Kind = system_pb2.Quota


def small():
    return octavo.raster(16, 8, volumes=1)


class Quotas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="octavo-quota-")
        tokens = os.path.join(cls.folder.name, "tokens")
        cls.secret = {}
        for name, role in PEOPLE.items():
            cls.secret[name] = os.path.join(cls.folder.name, name)
            subprocess.run([OCTAVO, "token", "add", "--file", tokens, "--name", name, "--role", role, "--secret-file", cls.secret[name]], check=True,
                           capture_output=True, timeout=60)
        cls.other = os.path.join(cls.folder.name, "of-rob")
        cls.directory = os.path.join(cls.folder.name, "daemon")
        cls.root = os.path.join(cls.directory, "data")
        os.makedirs(cls.other)
        cls.flags = ("--security.tokens", tokens, "--device.memory_bytes", str(512 * MIB), "--quota.exceptions", ",".join(EXCEPTIONS),
                     "--quota.roots", f"rob={cls.other}", "--storage.roots", f"{cls.root},{cls.other}")
        cls.start()

    @classmethod
    def start(cls):
        cls.daemon = Daemon(*cls.flags, directory=cls.directory, replay_roots=[cls.root, cls.other])
        cls.clients = {name: octavo.Client(cls.daemon.address, token_file=secret) for name, secret in cls.secret.items()}

    @classmethod
    def stop(cls):
        for client in cls.clients.values():
            client.close()
        code = cls.daemon.stop()
        text = cls.daemon.text()
        cls.daemon.remove()
        assert code == 0, text

    @classmethod
    def tearDownClass(cls):
        cls.stop()
        cls.folder.cleanup()

    def use(self, who, kind):
        """Used and allowed."""
        found = [(quota.used, quota.allowed) for quota in self.clients[who].info().caller.quotas if quota.kind == kind]
        self.assertEqual(len(found), 1)
        return found[0]

    def assertRefused(self, caught, kind, used, wanted, allowed, who):
        error = caught.exception
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA"), error)
        numbers = {key: error.numbers[key] for key in ("principal", "kind", "used", "wanted", "allowed")}
        self.assertEqual(numbers, {"principal": who, "kind": kind, "used": str(used), "wanted": str(wanted), "allowed": str(allowed)})
        self.assertIn(f"quota.{kind}: {who} uses ", error.message)
        self.assertIsNone(error.report)

    def metric(self, kind):
        with urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=30) as page:
            text = page.read().decode()
        self.assertNotRegex(text, r'"(%s)"' % "|".join(PEOPLE), "the page names no principal")
        return float(re.search(r'^octavo_quota_refusals_total\{kind="%s"\} (\S+)$' % kind, text, re.M).group(1))

    # -- host memory of pushed projections

    def test_one_principal_leaves_pushed_projections_to_others(self):
        """As soon as two have asked, each has half of the memory; an admin is nobody's rival."""
        frame, frames = 64 * 64 * 2, 64
        push = lambda count: octavo.tomography(octavo.PushedProjections(rows=64, columns=64, frames=count), prepare=octavo.preparation(ignore_fields=True))  # noqa: E731
        directory = os.path.join(self.folder.name, "pushes")
        daemon = Daemon("--security.tokens", os.path.join(self.folder.name, "tokens"), "--device.projection_bytes", str(frames * frame), directory=directory)
        self.addCleanup(daemon.remove)
        self.addCleanup(daemon.stop)
        ada, sam, root = (octavo.Client(daemon.address, token_file=self.secret[name]) for name in ("ada", "sam", "root"))
        with ada, sam, root:
            first = ada.submit_job(push(52))
            with self.assertRaises(octavo.OctavoError) as caught:
                ada.submit_job(push(8))
            error = caught.exception
            self.assertEqual((error.code, error.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "HOST_MEMORY"), error)
            self.assertTrue(error.field.endswith("push.frames"), error.field)
            self.assertEqual({key: error.numbers[key] for key in ("principal", "wanted", "held", "allowed")},
                             {"principal": "ada", "wanted": str(8 * frame), "held": str(52 * frame), "allowed": str(56 * frame)})
            sam.submit_job(push(8))  # what the first one has to leave
            ada.cancel_job(first.name)
            ada.wait_job(first.name, check=False)

            def fits():
                try:
                    return ada.submit_job(push(32))
                except octavo.OctavoError:  # the memory comes back when the work has ended
                    return None
            until(fits, 30)
            with self.assertRaises(octavo.OctavoError) as caught:
                ada.submit_job(push(4))
            self.assertEqual((caught.exception.reason, caught.exception.numbers["allowed"]), ("HOST_MEMORY", str(32 * frame)))
            sam.submit_job(push(20))
            root.submit_job(push(4))

    # -- scans

    def push_scan(self, who):
        return self.clients[who].submit_scan(octavo.push(idle_timeout=600), small(), samples=256).name

    def test_scans(self):
        sam, before = self.clients["sam"], self.metric("scans")
        scans = [self.push_scan("sam") for _ in range(2)]
        self.assertEqual(self.use("sam", Kind.KIND_SCANS), (2, 2))
        listed, memory = len(sam.scans()), [d.reserved_bytes for d in sam.devices()]
        with self.assertRaises(octavo.OctavoError) as caught:
            self.push_scan("sam")
        self.assertRefused(caught, "scans", 2, 1, 2, "sam")
        self.assertEqual((len(sam.scans()), [d.reserved_bytes for d in sam.devices()], self.metric("scans")), (listed, memory, before + 1))
        ada = self.push_scan("ada")  # not in her way
        self.clients["ada"].cancel(ada)
        sam.cancel(scans[0])
        sam.wait(scans[0])
        scans.append(self.push_scan("sam"))
        # A request that is wrong, and one that fails later, keep no place.
        sam.cancel(scans[1])
        sam.wait(scans[1])
        for _ in range(3):
            with self.assertRaises(octavo.OctavoError):
                sam.submit_scan(octavo.push(), octavo.raster(16, 8, volumes=1), samples=3)
        ended = sam.submit_scan(octavo.simulated(1, fast=True), small(), samples=256)
        sam.wait(ended.name)
        self.assertEqual(self.use("sam", Kind.KIND_SCANS), (1, 2), "a place is free before the scan is seen to have ended")
        sam.cancel(scans[2])
        sam.wait(scans[2])
        self.assertEqual(self.use("sam", Kind.KIND_SCANS), (0, 2))
        for volume in sam.volumes(ended.name):
            sam.discard(volume.name)

    def test_the_error_has_the_standard_details(self):
        sam = self.clients["sam"]
        scans = [self.push_scan("sam") for _ in range(2)]
        spec = scan_pb2.ScanSpec()
        spec.CopyFrom(sam.scan(scans[0]).message.spec)
        with self.assertRaises(grpc.RpcError) as caught:
            sam._scans.SubmitScan(scan_pb2.SubmitScanRequest(spec=spec), timeout=30)
        for scan in scans:
            sam.cancel(scan)
            sam.wait(scan)
        rich = status_pb2.Status.FromString(dict(caught.exception.trailing_metadata())["grpc-status-details-bin"])
        failure = error_details_pb2.QuotaFailure()
        self.assertTrue(any(detail.Unpack(failure) for detail in rich.details if detail.Is(failure.DESCRIPTOR)))
        self.assertEqual(failure.violations[0].subject, "sam")

    # -- jobs

    def push_job(self, who, columns=32, rows=2):
        push = ingest_pb2.PushedProjections(rows=rows, columns=columns, frames=24, dtype=types_pb2.DTYPE_U16)
        tomography = tomography_pb2.TomographyJob(push=push)
        tomography.center.pixels.append(columns / 2)
        return self.clients[who].submit_job(job_pb2.JobSpec(tomography=tomography)).name

    def test_jobs(self):
        joe = self.clients["joe"]
        jobs = [self.push_job("joe") for _ in range(2)]
        with self.assertRaises(octavo.OctavoError) as caught:
            self.push_job("joe")
        self.assertRefused(caught, "jobs", 2, 1, 2, "joe")
        self.assertEqual({job.name for job in joe.jobs() if job.name in jobs}, set(jobs))
        # Queued or running, its end gives the place back.
        for job in jobs:
            joe.cancel_job(job)
            joe.wait_job(job, check=False)
        self.assertEqual(self.use("joe", Kind.KIND_JOBS), (0, 2))
        self.assertEqual(self.use("joe", Kind.KIND_DEVICE_BYTES), (0, 0))

    def test_admins_have_a_quota_only_if_it_is_said(self):
        self.assertEqual(self.use("root", Kind.KIND_WATCHES)[1], 0)
        self.assertEqual(self.use("ada", Kind.KIND_WATCHES)[1], 128)
        job = self.push_job("root")
        with self.assertRaises(octavo.OctavoError) as caught:
            self.push_job("root")
        self.assertRefused(caught, "jobs", 1, 1, 1, "root")
        self.clients["root"].cancel_job(job)
        self.clients["root"].wait_job(job, check=False)

    # -- device memory

    def bytes_of(self, who):
        return self.use(who, Kind.KIND_DEVICE_BYTES)[0]

    def test_device_memory(self):
        dora = self.clients["dora"]
        buffers = [dora.buffers.create((8 * MIB,), "u8").name for _ in range(2)]
        used = self.bytes_of("dora")
        self.assertGreaterEqual(used, 16 * MIB)
        free = [d.free_bytes for d in dora.devices()]
        with self.assertRaises(octavo.OctavoError) as caught:
            dora.buffers.create((9 * MIB,), "u8")
        self.assertEqual((caught.exception.reason, caught.exception.numbers["used"]), ("QUOTA", str(used)))
        self.assertIn("quota.device_bytes: dora uses 16", caught.exception.message)
        self.assertEqual(([d.free_bytes for d in dora.devices()], self.bytes_of("dora")), (free, used))
        # A scan is refused, too: without a report of the device, which has room.
        with self.assertRaises(octavo.OctavoError) as caught:
            dora.submit_scan(octavo.simulated(1, fast=True), octavo.raster(256, 128, volumes=1), samples=1024)
        self.assertEqual((caught.exception.reason, caught.exception.report), ("QUOTA", None))
        self.assertEqual((self.bytes_of("dora"), self.use("dora", Kind.KIND_SCANS)), (used, (0, 0)))
        self.clients["ada"].buffers.destroy(self.clients["ada"].buffers.create((9 * MIB,), "u8").name)
        for name in buffers:
            dora.buffers.destroy(name)
        # Its memory is free as soon as the device has done what was ordered before.
        until(lambda: self.bytes_of("dora") == 0, 30)
        # A volume is its owner's until it leaves the device; the cache of slots is nobody's.
        scan = dora.submit_scan(octavo.simulated(1, fast=True), octavo.raster(64, 32, volumes=2), samples=256)
        dora.wait(scan.name)
        first, second = (volume.name for volume in dora.volumes(scan.name))
        held = self.bytes_of("dora")
        self.assertGreater(held, 0)
        dora.spill(first)
        until(lambda: self.bytes_of("dora") < held, 30)
        dora.discard(second)
        until(lambda: self.bytes_of("dora") == 0, 30)
        dora.restore(first)
        self.assertGreater(self.bytes_of("dora"), 0)
        dora.commit(first, "dora.npy")
        until(lambda: self.bytes_of("dora") == 0, 30)

    def test_restoring_needs_room(self):
        dirk = self.clients["dirk"]
        scan = dirk.submit_scan(octavo.simulated(1, fast=True), octavo.raster(256, 8, volumes=1), samples=256)
        dirk.wait(scan.name)
        volume = dirk.volumes(scan.name)[0].name
        dirk.spill(volume)
        until(lambda: self.bytes_of("dirk") == 0, 30)
        full = dirk.buffers.create((24 * MIB - 65536,), "u8").name
        with self.assertRaises(octavo.OctavoError) as caught:
            dirk.restore(volume)
        self.assertEqual(caught.exception.reason, "QUOTA")
        self.assertEqual(dirk.volume(volume).tier, types_pb2.TIER_DISK)
        dirk.buffers.destroy(full)
        until(lambda: self.bytes_of("dirk") == 0, 30)
        dirk.restore(volume)
        dirk.discard(volume)
        until(lambda: self.bytes_of("dirk") == 0, 30)

    def test_a_job_waits_for_room_but_not_for_ever(self):
        dora = self.clients["dora"]
        full = dora.buffers.create((24 * MIB - 4096,), "u8").name
        job = self.push_job("dora")
        until(lambda: dora.job(job).reason_code == reason_pb2.REASON_WAITING_FOR_MEMORY, 30)
        self.assertIn("quota.device_bytes: dora uses", dora.job(job).reason)
        dora.buffers.destroy(full)
        until(lambda: dora.job(job).state != job_pb2.JOB_STATE_QUEUED, 30)
        dora.cancel_job(job)
        dora.wait_job(job, check=False)
        until(lambda: self.bytes_of("dora") == 0, 30)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.push_job("dora", columns=1024, rows=16)  # 64 MiB: the device has room for it
        self.assertEqual((caught.exception.reason, caught.exception.numbers["retryable"]), ("QUOTA", "false"))
        self.assertIn("it can never fit", caught.exception.message)

    # -- open calls

    def test_watches_waits_and_subscriptions(self):
        vera, before = self.clients["vera"], self.metric("watches")
        scan = self.push_scan("ada")
        opened = [vera._volumes.WatchVolumes(volume_pb2.WatchVolumesRequest(), timeout=120), vera._scans.WatchScan(scan_pb2.WatchScanRequest(name=scan), timeout=120),
                  vera._streams.Subscribe(stream_pb2.SubscribeRequest(parent=scan, products=[stream_pb2.PRODUCT_MIP]), timeout=120)]
        next(opened[1])
        until(lambda: self.use("vera", Kind.KIND_WATCHES) == (3, 3), 30)
        with self.assertRaises(octavo.OctavoError) as caught:
            next(iter(vera.buffers.watch()))
        self.assertRefused(caught, "watches", 3, 1, 3, "vera")
        self.assertIn("a call of octavo.v1.BufferService/WatchBuffers needs 1 more", caught.exception.message)
        self.assertEqual(self.metric("watches"), before + 1)
        self.assertEqual(vera.scan(scan).name, scan, "other calls go on")
        watch = self.clients["ada"].watch(scan)
        self.assertEqual(next(watch).name, scan, "others do not mind")
        watch.close()
        for call in opened:
            call.cancel()
        until(lambda: self.use("vera", Kind.KIND_WATCHES) == (0, 3), 30)
        self.clients["ada"].cancel(scan)
        self.clients["ada"].wait(scan)

    def test_a_wait_for_the_end_of_a_commit_needs_no_watch(self):
        """A caller with all its watches open can still commit and learn of the end. A caller that waits repeatedly for one end uses up its watches."""
        wade = self.clients["wade"]
        scan = wade.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=2), samples=256,
                                retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=2))
        ada = self.clients["ada"]
        ada.wait(scan.name)
        volume, waited = (v.name for v in ada.volumes(scan.name))
        held = wade._volumes.WatchVolumes(volume_pb2.WatchVolumesRequest(), timeout=120)
        until(lambda: self.use("wade", Kind.KIND_WATCHES) == (1, 1), 30)
        done = wade._volumes.CommitVolume(volume_pb2.CommitVolumeRequest(name=waited, options=dict(destination="told.npy")), timeout=60)
        self.assertEqual((done.operation.done, done.volume.state), (True, types_pb2.VOLUME_STATE_COMMITTED))
        self.assertEqual(self.use("wade", Kind.KIND_WATCHES), (1, 1))
        with self.assertRaises(octavo.OctavoError) as caught:
            wade.wait_volume(volume)  # it waits for what others do
        self.assertRefused(caught, "watches", 1, 1, 1, "wade")
        request = dict(name=volume, options=dict(destination="waited.npy"))
        begun = wade._volumes.CommitVolume(volume_pb2.CommitVolumeRequest(**request, wait=dict(seconds=0)), timeout=60).operation
        held.cancel()
        until(lambda: self.use("wade", Kind.KIND_WATCHES) == (0, 1), 30)
        until(lambda: ada.volume(volume).state == types_pb2.VOLUME_STATE_COMMITTED, 60)
        self.assertNotEqual(begun.name, "")
        for i in range(20):  # one after the other
            again = wade.submit_scan(octavo.simulated(1, fast=True), small(), samples=256)
            wade.wait(again.name)
            wade.commit(wade.volumes(again.name)[0].name, f"one-{i}.npy")

    def test_one_after_the_other_is_never_too_many(self):
        """The place of a call is free before its answer is there."""
        ada, una, pat = self.clients["ada"], self.clients["una"], self.clients["pat"]
        scan = ada.submit_scan(octavo.simulated(1, fast=True), small(), samples=256)
        ada.wait(scan.name)
        volume = ada.volumes(scan.name)[0].name
        for _ in range(300):
            una.wait_volume(volume)
            list(una._scans.WatchScan(scan_pb2.WatchScanRequest(name=scan.name), timeout=30))  # it has ended
            pat.plan_scan(octavo.simulated(1, fast=True), small(), samples=256)
        ada.discard(volume)

    def test_plans(self):
        pat = self.clients["pat"]
        pattern = scan_pb2.Pattern(raster=octavo.raster(2048, 2048))
        request = scan_pb2.PlotWaveformRequest(spec=scan_pb2.ScanSpec(simulated=octavo.simulated(1, fast=True), pattern=pattern,
                                                                      acquisition=scan_pb2.Acquisition(samples_per_record=64)))
        calls = [pat._scans.PlotWaveform.future(request, timeout=120) for _ in range(6)]
        refused = []
        for call in calls:
            if call.exception() is not None:
                refused.append(octavo.errors.from_rpc_error(call.exception()))
        self.assertGreater(len(refused), 0)
        for error in refused:
            self.assertEqual((error.reason, error.numbers["kind"], error.numbers["allowed"]), ("QUOTA", "plans", "1"))
        self.assertLess(len(refused), len(calls))
        self.assertEqual(self.use("pat", Kind.KIND_PLANS), (0, 1))

    def test_renderings(self):
        ada, ren = self.clients["ada"], self.clients["ren"]
        scan = ada.submit_scan(octavo.simulated(1, fast=True), octavo.raster(256, 64, volumes=1), samples=1024)
        ada.wait(scan.name)
        volume = ada.volumes(scan.name)[0].name
        ada.spill(volume, "host")
        request = volume_pb2.RenderVolumeRequest(name=volume, rendering=volume_pb2.RENDERING_STD)
        calls = [ren._volumes.RenderVolume(request, timeout=120) for _ in range(6)]
        ends, lock = [], threading.Lock()

        def drain(call):
            try:
                list(call)
                reason = None
            except grpc.RpcError as error:
                reason = octavo.errors.from_rpc_error(error).reason
            with lock:
                ends.append(reason)

        threads = [threading.Thread(target=drain, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(ends), {None, "QUOTA"})
        until(lambda: self.use("ren", Kind.KIND_RENDERINGS) == (0, 1), 30)
        ada.discard(volume)

    # -- roots

    def test_roots(self):
        rob, ada = self.clients["rob"], self.clients["ada"]
        self.assertEqual(list(rob.info().caller.storage_roots), [self.other])
        self.assertEqual(list(ada.info().caller.storage_roots), [])
        scan = rob.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=2), samples=256)
        rob.wait(scan.name)
        first, second = (volume.name for volume in rob.volumes(scan.name))
        buffer = rob.buffers.put(np.ones((4, 4), np.float32)).name

        def refused(call, field="options.destination"):
            with self.assertRaises(octavo.OctavoError) as caught:
                call()
            error = caught.exception
            self.assertEqual((error.code, error.reason, error.field), (grpc.StatusCode.PERMISSION_DENIED, "OUTSIDE_ROOTS", field), error)
            self.assertEqual((error.numbers["principal"], error.numbers["roots"]), ("rob", self.other))
            self.assertIn(f"allowed are absolute paths below {self.other}", error.message)

        for destination in ("rob.npy", os.path.join(self.root, "rob.npy"), os.path.join(self.root, "{scan}", "rob.npy")):
            refused(lambda: rob.commit(first, destination))
            refused(lambda: rob._call(rob._volumes.CommitVolume, volume_pb2.CommitVolumeRequest(
                options=scan_pb2.CommitOptions(destination=destination), validate_only=True)))
        for destination in ("rob.npy", os.path.join(self.root, "rob.npy")):
            refused(lambda: rob.buffers.commit(buffer, destination, axes="yx"))
        # A relative path lies in the first root, which is not his: he is told what to write.
        for call in (lambda: rob.commit(first, "a/rob.npy"), lambda: rob.buffers.commit(buffer, "a/rob.npy", axes="yx")):
            with self.assertRaises(octavo.OctavoError) as caught:
                call()
            self.assertIn(f"relative paths lie in the first storage root, so write '{self.other}/a/rob.npy'", caught.exception.message)
        self.assertFalse([name for name in os.listdir(self.root) if name.startswith("rob")])
        # Of a path that nobody could name, he learns his own roots; others learn all.
        for destination in ("../x.npy", os.path.join(self.other, "..", "x.npy"), "/nowhere/x.npy"):
            for field, call in (("options.destination", lambda: rob.commit(first, destination)), ("options.destination", lambda: rob.buffers.commit(buffer, destination, axes="yx")),
                                ("retention.auto_commit.destination", lambda: rob.submit_scan(octavo.simulated(1, fast=True), small(), samples=256, retention=auto_commit(destination))),
                                ("retention.auto_commit.destination", lambda: rob.plan_scan(octavo.simulated(1, fast=True), small(), samples=256, retention=auto_commit(destination)))):
                with self.subTest(destination=destination, field=field), self.assertRaises(octavo.OctavoError) as caught:
                    call()
                error = caught.exception
                self.assertEqual((error.code, error.field), (grpc.StatusCode.INVALID_ARGUMENT, field), error)
                self.assertIn(self.other, error.message)
                self.assertNotIn(self.root, error.message)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.clients["root"].commit(first, "../x.npy")
        self.assertIn(f"allowed are paths below {self.root}, {self.other}", caught.exception.message)
        self.assertEqual(rob.volume(first).state, types_pb2.VOLUME_STATE_HELD)
        mine = os.path.join(self.other, "rob.npy")
        rob.commit(first, mine)
        rob.buffers.commit(buffer, os.path.join(self.other, "buffer.npy"), axes="yx")
        rob.buffers.destroy(buffer)
        ada_scan = ada.submit_scan(octavo.simulated(1, fast=True), small(), samples=256)
        ada.wait(ada_scan.name)
        ada.commit(ada.volumes(ada_scan.name)[0].name, "adas.npy")
        refused(lambda: rob.import_volume(os.path.join(self.root, "adas.npy")), "volume_import.path")
        for name in (rob.import_volume(mine).name, rob.import_volume("rob.npy").name, ada.import_volume("adas.npy").name):
            self.clients["root"].discard(name)
        with self.assertRaises(octavo.OctavoError) as caught:
            rob.import_volume("/etc/passwd")
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.INVALID_ARGUMENT, "OUTSIDE_ROOTS"))
        self.assertNotIn(self.root, caught.exception.message, "of the roots, he learns his own")
        refused(lambda: rob.submit_scan(octavo.simulated(1, fast=True), small(), samples=256,
                                        retention=auto_commit("auto-{index}.npy")), "retention.auto_commit.destination")
        done = rob.submit_scan(octavo.simulated(1, fast=True), small(), samples=256, retention=auto_commit(os.path.join(self.other, "auto-{index}.npy")))
        rob.wait(done.name)
        until(lambda: os.path.exists(os.path.join(self.other, "auto-0.npy")), 30)
        rob.discard(second)
        # A template may lead elsewhere than it seems to before its fields are filled in.
        sly = rob.submit_scan(octavo.simulated(1, fast=True), small(), samples=256, title="daemon",
                              retention=auto_commit(os.path.join(self.folder.name, "{title}", "data", "sly-{index}.npy")))
        rob.wait(sly.name)
        until(lambda: any("could not be committed automatically" in warning and "may not use" in warning for warning in rob.scan(sly.name).warnings), 30)
        (held,) = rob.volumes(sly.name)
        self.assertEqual(held.message.state, types_pb2.VOLUME_STATE_HELD)
        rob.discard(held.name)
        self.assertFalse([name for name in os.listdir(self.root) if name.startswith("sly")])
        # Nor may he replay what he may not import.
        with self.assertRaises(octavo.OctavoError) as caught:
            rob.submit_scan(octavo.replay(os.path.join(self.root, "adas.npy")), small(), samples=256)
        self.assertEqual(caught.exception.reason, "OUTSIDE_ROOTS")
        # What the server commits because a client is gone goes where its owner may go.
        session = octavo.v1.session_pb2_grpc.SessionServiceStub(rob.channel)
        secret = session.OpenSession(octavo.v1.session_pb2.OpenSessionRequest(client="rob"), timeout=30).secret
        for destination in ("", os.path.join(self.root, "left-{index}")):
            spec = rob.scan(scan.name).message.spec
            spec.retention.orphan = scan_pb2.ORPHAN_COMMIT_DEFAULT
            spec.retention.auto_commit.destination = destination
            left = rob._scans.SubmitScan(scan_pb2.SubmitScanRequest(spec=spec, session_secret=secret), timeout=30).scan.name
            rob.wait(left)
        session.CloseSession(octavo.v1.session_pb2.CloseSessionRequest(secret=secret), timeout=30)
        orphaned = os.path.join(self.other, "orphaned")
        until(lambda: os.path.isdir(orphaned) and len(os.listdir(orphaned)) >= 2, 60)
        until(lambda: any("may not use" in warning for warning in rob.scan(left).warnings), 30)
        self.assertFalse([name for name in os.listdir(self.root) if name.startswith("left") or name == "orphaned"])
        for volume in rob.volumes(left):
            rob.discard(volume.name)

    # -- what is seen

    def test_the_command_line_shows_it(self):
        scan = self.push_scan("sam")
        text = subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", self.secret["sam"], "info"], capture_output=True, text=True, timeout=60,
                              check=True).stdout
        self.assertIn("your quota of scans: 1 used, 2 allowed\n", text)
        self.assertRegex(text, r"your quota of device bytes: \S+ \S+ used, no limit\n")
        self.assertIn("your quota of watches: 0 used, 128 allowed\n", text)
        self.clients["sam"].cancel(scan)
        self.clients["sam"].wait(scan)
        text = subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", self.secret["rob"], "info"], capture_output=True, text=True, timeout=60,
                              check=True).stdout
        self.assertIn(f"your commits and imports may name the root {self.other}\n", text)
        self.assertIn(f"give your commits absolute paths, such as {self.other}/NAME: relative ones lie in the first storage root, which is not yours", text)
        text = subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", self.secret["sam"], "info"], capture_output=True, text=True, timeout=60,
                              check=True).stdout
        self.assertNotIn("give your commits absolute paths", text)


class Reads(unittest.TestCase):
    """Streams of ReadVolume that stop in the middle."""

    MOST = 256

    def test_one_caller_does_not_take_the_reads_of_others(self):
        folder = tempfile.mkdtemp(prefix="octavo-reads-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        tokens = os.path.join(folder, "tokens")
        for name in ("ada", "bob"):
            subprocess.run([OCTAVO, "token", "add", "--file", tokens, "--name", name, "--role", "operator", "--secret-file", os.path.join(folder, name)],
                           check=True, capture_output=True, timeout=60)
        daemon = Daemon("--security.tokens", tokens, "--history.dir", "none", "--audit.dir", "none", directory=os.path.join(folder, "daemon"))
        self.addCleanup(daemon.remove)
        with octavo.Client(daemon.address, token_file=os.path.join(folder, "ada")) as ada, octavo.Client(daemon.address, token_file=os.path.join(folder, "bob")) as bob:
            scan = ada.wait(ada.submit_scan(octavo.simulated(5, fast=True), octavo.raster(64, 64, volumes=1), samples=1024,
                                            retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=1)).name)
            name = ada.spill(ada.volumes(scan.name)[0].name).name

            # The library takes large pieces ahead; this client takes next to nothing that it does not read.
            channel = grpc.insecure_channel(daemon.address, options=[("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)])
            self.addCleanup(channel.close)
            with open(os.path.join(folder, "ada")) as file:
                login = (("authorization", "Bearer " + file.read().strip()),)

            def read():
                request = volume_pb2.ReadVolumeRequest(name=name, chunk_bytes=1 << 16)
                return volume_pb2_grpc.VolumeServiceStub(channel).ReadVolume(request, timeout=300, metadata=login)
            stopped = [read() for _ in range(self.MOST)]
            for call in stopped:
                next(call)  # it has begun, and goes on when the client reads on
            with self.assertRaises(grpc.RpcError) as caught:
                next(read())
            error = octavo.errors.from_rpc_error(caught.exception)
            self.assertEqual((error.code, error.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA"), error)
            self.assertIn("ada has 256 streams of ReadVolume already; allowed 256 for each principal", error.message)
            self.assertEqual(error.numbers["kind"], "reads")
            spilled = [fd for fd in os.listdir(f"/proc/{daemon.process.pid}/fd") if "spill" in _target(daemon.process.pid, fd)]
            self.assertLessEqual(len(spilled), 2, "all readers of a volume share its file")
            whole = bob.read(name)  # others read on
            self.assertEqual(whole.size, ada.volume(name).bytes // whole.itemsize)
            stopped.pop().cancel()

            def again():
                try:
                    next(read())
                    return True
                except grpc.RpcError as error:
                    self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
                    return False
            until(again)
            for call in stopped:
                call.cancel()


def _target(pid, fd):
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except FileNotFoundError:  # closed meanwhile
        return ""


@unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
class Removals(unittest.TestCase):
    """Discards of spilled volumes wait for a disk that hangs."""

    MOST = 64

    def test_one_caller_does_not_take_the_places_of_others(self):
        folder = tempfile.mkdtemp(prefix="octavo-removals-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        tokens, flag = os.path.join(folder, "tokens"), os.path.join(folder, "hang")
        for name in ("ada", "bob"):
            subprocess.run([OCTAVO, "token", "add", "--file", tokens, "--name", name, "--role", "operator", "--secret-file", os.path.join(folder, name)],
                           check=True, capture_output=True, timeout=60)
        daemon = Daemon("--security.tokens", tokens, "--history.dir", "none", "--audit.dir", "none",
                        directory=os.path.join(folder, "daemon"), environment={"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": flag})
        self.addCleanup(daemon.remove)
        # Before that: a daemon whose disk hangs does not end.
        self.addCleanup(lambda: os.path.exists(flag) and os.unlink(flag))
        with octavo.Client(daemon.address, token_file=os.path.join(folder, "ada")) as ada, octavo.Client(daemon.address, token_file=os.path.join(folder, "bob")) as bob:
            def spilled(client, volumes):
                scan = client.wait(client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(16, 8, volumes=volumes), samples=64,
                                                      retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=volumes)).name)
                return [client.spill(volume.name).name for volume in client.volumes(scan.name)]
            of_ada, of_bob = spilled(ada, self.MOST + 6), spilled(bob, 2)
            with open(flag, "w"):
                pass  # from now on every fsync takes for ever
            calls = [ada._volumes.DiscardVolume.future(volume_pb2.DiscardVolumeRequest(name=name), timeout=300) for name in of_ada[:-1]]
            until(lambda: sum(call.done() for call in calls) >= 5)
            calls.append(ada._volumes.ReleaseVolume.future(volume_pb2.ReleaseVolumeRequest(name=of_ada[-1]), timeout=300))
            self.assertEqual(calls[-1].exception().code(), grpc.StatusCode.RESOURCE_EXHAUSTED, "both calls share the places")
            for call in calls:
                if not call.done():
                    continue
                error = octavo.errors.from_rpc_error(call.exception())
                self.assertEqual((error.code, error.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA"), error)
                numbers = {key: error.numbers[key] for key in ("principal", "kind", "used", "wanted", "allowed", "retryable")}
                self.assertEqual(numbers, {"principal": "ada", "kind": "removals", "used": "64", "wanted": "1", "allowed": "64", "retryable": "true"})
                self.assertIn("allowed 64 for each principal, 1024 in all", error.message)
            refused = sum(call.done() for call in calls)
            self.assertEqual(refused, 6)
            of_others = [bob._volumes.DiscardVolume.future(volume_pb2.DiscardVolumeRequest(name=name), timeout=300) for name in of_bob]
            self.assertEqual(bob.volume(of_bob[0]).name, of_bob[0])  # other calls go on
            self.assertFalse([call for call in of_others if call.done()], "they have their places, and wait for the disk")
            os.unlink(flag)
            for call in of_others:
                self.assertEqual(call.result().volume.state, types_pb2.VOLUME_STATE_DISCARDED)
            for call in calls:
                call.exception(timeout=300)
            self.assertEqual(sum(call.exception() is None for call in calls), self.MOST)
            # Those that were refused, one after the other: each has its place again.
            for name in (v.name for v in ada.volumes() if v.state == types_pb2.VOLUME_STATE_HELD):
                ada.discard(name)
            self.assertEqual([v.name for v in ada.volumes() if v.state == types_pb2.VOLUME_STATE_HELD], [])
        self.assertEqual(daemon.stop(), 0)


class Names(unittest.TestCase):
    def test_a_name_that_nobody_has_is_told_until_somebody_has_it(self):
        with tempfile.TemporaryDirectory(prefix="octavo-names-") as folder:
            tokens, secret = os.path.join(folder, "tokens"), os.path.join(folder, "secret")

            def add(name, *flags):
                subprocess.run([OCTAVO, "token", "add", "--file", tokens, "--name", name, "--role", "admin", *flags], check=True, capture_output=True, timeout=60)
            add("anna", "--secret-file", secret)
            directory = os.path.join(folder, "daemon")
            root = os.path.join(directory, "data")
            os.makedirs(root)
            daemon = Daemon("--security.tokens", tokens, "--quota.roots", f"ana={root},anna={root},uid:77={root}", "--quota.exceptions", "bert scans=1",
                            directory=directory)
            self.addCleanup(daemon.remove)
            with octavo.Client(daemon.address, token_file=secret) as client:
                def told():
                    return [line for line in client.info().recovered if line.startswith("quota.")]
                self.assertEqual([line.split(",")[0] for line in told()], ["quota.exceptions names 'bert'", "quota.roots names 'ana'"])
                self.assertIn("did you mean anna?", told()[1])
                self.assertEqual(daemon.text().count("quota.roots names 'ana'"), 1)
                shown = subprocess.run([OCTAVO, "--address", daemon.address, "--token-file", secret, "info"], capture_output=True, text=True, timeout=60, check=True).stdout
                self.assertIn("warning: quota.roots names 'ana'", shown)
                add("bert")
                until(lambda: len(told()) == 1, 30)
                until(lambda: daemon.text().count("quota.roots names 'ana'") == 2, 30)  # at each reload
                self.assertEqual(daemon.text().count("quota.exceptions names 'bert'"), 1)
                add("ana")
                until(lambda: told() == [], 30)
            self.assertEqual(daemon.stop(), 0)


def auto_commit(destination):
    return scan_pb2.Retention(disposition=scan_pb2.DISPOSITION_AUTO_COMMIT, auto_commit=scan_pb2.CommitOptions(destination=destination))


if __name__ == "__main__":
    unittest.main()
