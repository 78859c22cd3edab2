"""Reasons that no other test provokes, each by a wrong call or an injected fault, and the table of them. tests/reasons_test.py
holds all reasons against all tests; a new reason needs a test, here or beside the code that sends it."""

import os
import socket
import threading
import unittest

import numpy as np

from google.protobuf.duration_pb2 import Duration
from handing import HandoffCase
from harness import Daemon, DaemonTest, octavo, until
from octavo.v1 import export_pb2, ingest_pb2, job_pb2, reason_pb2, scan_pb2, stream_pb2, system_pb2, tomography_pb2, types_pb2, volume_pb2
from pushing import RawStream

TABLE = []  # (reason, status code or "end", message)


def tearDownModule():
    width = max((len(name) for name, _, _ in TABLE), default=0)
    for name, code, message in sorted(set(TABLE)):
        print(f"{name:<{width}}  {code:<20}  {message[:110]}")


class Case(unittest.TestCase):
    def refused(self, reason, call, *arguments, **fields):
        """The call fails with this reason."""
        with self.assertRaises(octavo.OctavoError) as caught:
            answer = call(*arguments, **fields)
            if hasattr(answer, "__next__"):
                list(answer)
        error = caught.exception
        self.assertEqual(error.reason, reason, error)
        TABLE.append((reason, error.code.name, error.message))
        return error

    def ended(self, reason, end):
        """The scan or job has ended with this reason."""
        self.assertEqual(reason_pb2.Reason.Name(end.reason_code), "REASON_" + reason, end.reason)
        TABLE.append((reason, "end", end.reason))
        return end


def small(volumes=1, **fields):
    return octavo.scan_spec(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=volumes), samples=256, **fields)


def own_address():
    """An address of this host that is not its loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


class Files(Case):
    """What a file system answers, injected while a commit makes its temporary folder."""

    def test_every_errno(self):
        for number, reason in ((2, "NO_PATH"), (5, "IO_ERROR"), (13, "NO_ACCESS"), (17, "DESTINATION_EXISTS"), (20, "NOT_A_FOLDER"), (24, "NO_DESCRIPTORS"), (28, "DISK_FULL"),
                               (30, "READ_ONLY"), (36, "NAME_TOO_LONG"), (40, "LINKS")):
            with self.subTest(reason):
                daemon = Daemon(environment={"OCTAVO_FAILPOINT": f"tmp_created:errno={number}"})
                self.addCleanup(daemon.remove)
                with daemon.client() as client:
                    client.wait(client.submit_scan(small()).name)
                    volume, = client.volumes()
                    error = self.refused(reason, client.commit, volume.name, "v")
                    self.assertEqual(error.numbers["errno"], str(number))
                    self.assertEqual(client.volume(volume.name).state, types_pb2.VOLUME_STATE_HELD)
                    client.commit(volume.name, "v")  # the failpoint fails once
                self.assertEqual(daemon.stop(), 0)


class Threads(Case):
    def test_no_thread(self):
        daemon = Daemon(environment={"OCTAVO_FAILPOINT": "thread_started:throw=system_error"})
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            self.refused("NO_THREAD", client.submit_scan, small())
            client.wait(client.submit_scan(small()).name)
        self.assertEqual(daemon.stop(), 0)

    def test_a_job_waits_for_a_thread(self):
        daemon = Daemon(environment={"OCTAVO_FAILPOINT": "thread_started:throw=system_error"})
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            spec = job_pb2.JobSpec(tomography=tomography_pb2.TomographyJob(push=ingest_pb2.PushedProjections(rows=1, columns=2, frames=1, dtype=types_pb2.DTYPE_U8)))
            job = client.submit_job(spec)
            self.ended("WAITING_FOR_THREAD", job)
            client.cancel_job(job.name)
        self.assertEqual(daemon.stop(), 0)


class Limits(Case):
    def test_sessions(self):
        daemon = Daemon("--session.most", "1")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            with client.session("one"):
                self.refused("SESSIONS", client.session, "two")
        self.assertEqual(daemon.stop(), 0)


class Elsewhere(Case):
    """Calls that come to another address than loopback."""

    def test_memory_is_for_processes_of_the_host(self):
        address = own_address()
        if address is None:
            self.skipTest("this host has no address but its loopback")
        daemon = Daemon("--handoff.unix", "auto", "--listen.tcp", f"{address}:0", "--security.insecure", "true", "--security.insecure_role", "operator")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            client.wait(client.submit_scan(small()).name)
            self.refused("EXPORT_REMOTE", client._call, client._exports.Export, export_pb2.ExportRequest(name=client.volumes()[0].name))
            scan = client.submit_scan(octavo.ring(), octavo.raster(16, 8, volumes=1), samples=64)
            self.refused("NOT_LOCAL", client.ring_ticket, scan.name)
            client.cancel(scan.name)
        self.assertEqual(daemon.stop(), 0)


class Tickets(HandoffCase, Case):
    def refused(self, reason, call, *arguments, **fields):  # pylint: disable=arguments-differ
        return Case.refused(self, reason, call, *arguments, **fields)

    def test_tickets_that_nobody_presents(self):
        self.client.wait(self.submit().name)
        request = export_pb2.ExportRequest(name=self.client.volumes()[0].name)
        for _ in range(2):  # one principal may have half of 4,096
            calls = [self.client._exports.Export.future(request) for _ in range(800)]
            [call.result() for call in calls]
        self.refused("TICKETS", lambda: [self.ticket(request.name) for _ in range(500)])
        self.client.discard(request.name, detach_exports=True)


class Reasons(DaemonTest, Case):
    flags = ("--device.host_devices", "1", "--camera.interfaces", "Fake")

    def held(self, **fields):
        end = self.client.wait(self.client.submit_scan(small(), **fields).name)
        return next(volume for volume in self.client.volumes(end.name))

    def test_files_of_a_replay(self):
        replay = lambda path: self.client.submit_scan(octavo.replay(path), octavo.raster(4, 1, volumes=1))
        self.refused("NO_FILE", replay, "none.npy")
        self.refused("OUTSIDE_ROOTS", replay, "/etc/passwd")

    def test_a_file_that_becomes_shorter(self):
        path = os.path.join(self.daemon.root, "shrinks.npy")
        np.save(path, np.full((4096, 256), 7, "<u2"))
        scan = self.client.submit_scan(octavo.replay("shrinks.npy", rate_hz=2000.0, loops=0), octavo.raster(64, 4, volumes=0), samples=256)
        until(lambda: self.client.scan(scan.name).records > 0)
        os.truncate(path, 4096)
        self.ended("SOURCE_READ", self.client.wait(scan.name))

    def test_a_waveform_beyond_its_end(self):
        self.refused("OUT_OF_RANGE", self.client._call, self.client._scans.PlanWaveform, scan_pb2.PlanWaveformRequest(spec=small(), first_sample=2 ** 31))

    def test_cameras(self):
        if not next(one for one in self.client.info().sources if one.name == "camera").available:
            self.skipTest("built without cameras")
        self.refused("NO_CAMERA", self.client.submit_scan, octavo.camera("none", width=64, height=16, pixel_format="Mono8"), octavo.raster(16, 2, volumes=1))

    def test_no_socket_for_rings(self):
        scan = self.client.submit_scan(octavo.ring(), octavo.raster(16, 8, volumes=1), samples=64)
        self.refused("HANDOFF_DISABLED", self.client.ring_ticket, scan.name)

    def test_a_volume_that_is_never_completed(self):
        scan = self.client.submit_scan(octavo.push(), octavo.raster(16, 8, volumes=2), samples=64)
        stream = RawStream(self.daemon.address, "Push", ingest_pb2.PushRequest(scan=scan.name))
        self.addCleanup(stream.close)
        stream.requests.put(ingest_pb2.PushRequest(first_record=0, records=4, data=bytes(4 * 128)))
        until(lambda: self.client.volumes(scan.name))
        name = self.client.volumes(scan.name)[0].name
        call = self.client._volumes.WaitVolume.future(volume_pb2.WaitVolumeRequest(name=name), timeout=30)
        self.client.cancel(scan.name)

        def result():
            with octavo.errors.raising():
                call.result()
        self.refused("VOLUME_FAILED", result)

    def test_spilled_and_damaged(self):
        name = self.held().name
        self.client.spill(name)
        folder = os.path.join(self.daemon.directory, "state", "spill")
        path, = (os.path.join(folder, file) for file in os.listdir(folder))
        with open(path, "r+b") as file:
            byte = file.read(1)
            file.seek(0)
            file.write(bytes([byte[0] ^ 1]))
        self.refused("SPILL_DAMAGED", self.client.read, name)
        self.refused("SPILLED", self.client.buffers.apply, name, {"mip": {"axis": 2}})

    def test_measurements(self):
        measure = lambda: self.client._system.Measure(system_pb2.MeasureRequest(samples=64, records_per_block=64, duration=Duration(seconds=1)), timeout=60)

        def told(call):
            with octavo.errors.raising():
                list(call)
        running = measure()
        next(running)
        self.refused("MEASURING", told, measure())
        scan = self.client.submit_scan(small())
        self.refused("MEASUREMENT_DISTURBED", told, running)
        self.client.wait(scan.name)
        endless = self.client.submit_scan(octavo.simulated(1), octavo.raster(64, 64, volumes=0), samples=256)
        self.refused("SCANS_RUNNING", told, measure())
        self.client.cancel(endless.name)

    def test_a_subscriber_that_is_too_slow(self):
        scan = self.client.submit_scan(octavo.push(), octavo.raster(64, 64, volumes=200), samples=256,
                                       retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=2))
        frames = self.client._streams.Subscribe(stream_pb2.SubscribeRequest(
            parent=scan.name, products=[stream_pb2.PRODUCT_VOLUME], delivery=stream_pb2.DELIVERY_LOSSLESS, queue_length=1), timeout=120)
        until(lambda: self.client.scan(scan.name).state == types_pb2.SCAN_STATE_RUNNING)

        def blocks(first):
            for at in range(first, 200 * 4096, 4096):
                yield np.full((4096, 256), 7, "<u2")
        self.client.push(scan.name, blocks)

        def told():
            with octavo.errors.raising():
                list(frames)
        self.refused("SLOW_SUBSCRIBER", told)

    def test_a_format_that_cannot_hold_the_volume(self):
        # 2.2 GB of one volume, as a plan.
        self.refused("FORMAT_LIMIT", self.client.plan_scan, octavo.simulated(1), octavo.raster(1100, 2000, volumes=1), samples=2048,
                     processing=octavo.processing(dtype="u8"), retention=scan_pb2.Retention(
                         disposition=scan_pb2.DISPOSITION_AUTO_COMMIT, auto_commit=scan_pb2.CommitOptions(destination="v{index}", format=scan_pb2.FORMAT_MATLAB_V5)))

    def test_a_root_that_is_away(self):
        end = self.client.wait(self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(256, 64, volumes=1), samples=1024).name)
        name = self.client.volumes(end.name)[0].name
        failed = []
        commit = threading.Thread(target=lambda: failed.append(self.refused("ROOT_AWAY", self.client.commit, name, "v", zstd_level=19)))
        commit.start()
        # The disk goes while the commit writes.
        until(lambda: any(entry.endswith(".tmp") for entry in os.listdir(self.daemon.root)))
        os.rename(self.daemon.root, self.daemon.root + "-away")
        commit.join()
        os.rename(self.daemon.root + "-away", self.daemon.root)
        self.assertEqual(len(failed), 1)
        self.assertEqual(self.client.volume(name).state, types_pb2.VOLUME_STATE_HELD)
        self.client.commit(name, "v")

    def pushed_job(self, projections, **fields):
        spec = job_pb2.JobSpec(tomography=tomography_pb2.TomographyJob(push=ingest_pb2.PushedProjections(
            rows=projections.shape[1], columns=projections.shape[2], frames=len(projections), dtype=types_pb2.DTYPE_F32), **fields))
        return self.client.submit_job(spec).name

    def test_projections_that_never_come(self):
        name = self.pushed_job(np.zeros((4, 1, 16), "<f4"))
        self.client.push_projections(name, [])
        self.ended("NO_PROJECTIONS", self.client.wait_job(name, check=False))

    def test_an_axis_in_doubt(self):
        angles = np.arange(32) * np.pi / 32
        noise = np.random.default_rng(5).normal(1, 0.01, (32, 1, 64)).astype("<f4")
        name = self.pushed_job(noise, preparation=dict(logarithm=False), center=dict(search_method=tomography_pb2.RotationCenter.METHOD_AUTO, on_doubt=tomography_pb2.RotationCenter.ON_DOUBT_FAIL))
        self.client.push_projections(name, octavo.projection_frames(noise, angles))
        self.ended("AXIS_IN_DOUBT", self.client.wait_job(name, check=False))

    def raw_volume(self, record):
        """A held raw volume of 16 x 1 records that are all the same."""
        path = os.path.join(self.daemon.root, "record.npy")
        np.save(path, np.tile(np.asarray(record).round().astype("<u2"), (16, 1)))
        scan = self.client.submit_scan(octavo.replay("record.npy"), octavo.raster(16, 1, volumes=1), retention=dict(hold_raw=True))
        self.client.wait(scan.name)
        return next(volume.name for volume in self.client.volumes(scan.name) if volume.raw)

    def test_records_without_a_signal(self):
        raw = self.raw_volume(np.zeros(256))
        plain = octavo.processing(background="none")
        self.ended("NO_SIGNAL", self.client.wait_job(self.client.submit_job(octavo.dispersion_autofocus(raw, plain, ascans=16)).name, check=False))
        self.ended("NO_FRINGE", self.client.wait_job(self.client.submit_job(octavo.k_calibration(raw, plain)).name, check=False))

    def test_a_fringe_that_turns_back(self):
        j = np.arange(512) / 512
        raw = self.raw_volume(2000 + 1500 * np.cos(2 * np.pi * (60 * j + 14 * np.sin(2 * np.pi * j))))
        self.ended("PHASE_NOT_MONOTONIC", self.client.wait_job(self.client.submit_job(
            octavo.k_calibration(raw, octavo.processing(background="none"), polynomial_degree=9)).name, check=False))


if __name__ == "__main__":
    unittest.main()
