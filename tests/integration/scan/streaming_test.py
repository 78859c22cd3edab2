"""Subscribers: frames equal the data, resume, images, both sockets. Those that stop: tests/fault."""

import os
import subprocess
import threading
import unittest
import warnings
import zlib
from unittest import mock

import grpc
import numpy as np

from harness import BUILD, DaemonTest, octavo, subscribers, until, waits_for_subscribers
from octavo.v1 import job_pb2, types_pb2


class Streaming(DaemonTest):
    flags = ("--spill.host_bytes", str(16 << 20))

    def test_volume_frames_equal_the_volumes(self):
        scan = self.client.submit_scan(octavo.simulated(5), octavo.raster(64, 16, volumes=5), samples=256, rate_hz=10000, **waits_for_subscribers(self))
        frames = {f.volume: f.array for f in self.client.subscribe(scan.name, ["volume"])}
        self.client.wait(scan.name)
        self.assertEqual(len(frames), 5)
        for name, array in frames.items():
            np.testing.assert_array_equal(array, self.client.read(name))

    def test_projections_and_cuts_equal_numpy(self):
        for dtype in ("u8", "u16", "f32"):
            # It waits until all have subscribed: pictures that nobody wanted when a volume was made are not made later.
            blocker = self.client.submit_scan(octavo.push(idle_timeout=-1), octavo.raster(8, 1, volumes=1), samples=64, queue="cuts")
            scan = self.client.submit_scan(octavo.simulated(6), octavo.raster(48, 12, volumes=3), samples=256, rate_hz=3000,
                                           processing=octavo.processing(dtype=dtype), products=dict(aip=True), queue="cuts")
            got, slabs = {}, {}

            def collect(key, *args, **options):
                with self.daemon.client() as client:
                    for frame in client.subscribe(scan.name, *args, preview=False, **options):
                        got[(key, frame.volume)] = frame.array
                        slabs.setdefault(key, set()).add(frame.slab)

            threads = [threading.Thread(target=collect, args=(key, products), kwargs=options) for key, products, options in (
                ("mip_z", ["mip"], {}), ("slab", ["mip"], dict(slab=(30, 77))), ("mip_x", ["mip"], dict(axis="x")), ("mip_y", ["mip"], dict(axis="y")), ("aip", ["aip"], {}),
                ("bscan", ["bscan"], {}), ("bscan_x", ["bscan"], dict(axis="x", index=5)), ("en_face", ["bscan"], dict(axis="z", index=100)))]
            for thread in threads:
                thread.start()
            until(lambda: subscribers(self.daemon) >= len(threads))
            self.client.cancel(blocker.name)
            self.client.wait(scan.name)
            for thread in threads:
                thread.join(30)
            last = self.client.volumes(scan.name)[-1].name
            volume = self.client.read(last)
            np.testing.assert_array_equal(got["mip_z", last], volume.max(axis=2))
            np.testing.assert_array_equal(got["slab", last], volume[:, :, 30:77].max(axis=2))
            self.assertEqual(slabs, {**dict.fromkeys(slabs, {None}), "slab": {(30, 77)}})
            np.testing.assert_array_equal(got["mip_x", last], volume.max(axis=1))
            np.testing.assert_array_equal(got["mip_y", last], volume.max(axis=0))
            np.testing.assert_allclose(got["aip", last], volume.mean(axis=2, dtype=np.float64), rtol=1e-5, atol=1e-4)
            np.testing.assert_array_equal(got["bscan", last], volume[6])
            np.testing.assert_array_equal(got["bscan_x", last], volume[:, 5])
            np.testing.assert_array_equal(got["en_face", last], volume[:, :, 100])

    def test_resume(self):
        scan = self.client.submit_scan(octavo.simulated(5), octavo.raster(64, 16, volumes=8), samples=256, rate_hz=4000, **waits_for_subscribers(self))  # a busy machine keeps up
        first = [f.sequence for f, _ in zip(self.client.subscribe(scan.name, ["volume"]), range(2))]
        # The subscription resumes where the stream broke off, while the scan continues: first old
        # frames from the held volumes, then new ones.
        rest = [(f.sequence, f.array.sum(dtype=np.int64), f.volume) for f in self.client.subscribe(scan.name, ["volume"], from_sequence=first[-1] + 1)]
        self.client.wait(scan.name)
        self.assertEqual([r[0] for r in rest], list(range(first[-1] + 1, rest[-1][0] + 1)))
        for _, total, volume in rest:
            self.assertEqual(total, self.client.read(volume).sum(dtype=np.int64))
        again = [f.sequence for f in self.client.subscribe(scan.name, ["mip"], from_sequence=0, preview=False)]
        self.assertEqual(len(again), 8)
        with self.assertRaises(octavo.OctavoError) as caught:
            list(self.client.subscribe(scan.name, ["mip"], from_sequence=100000))
        self.assertEqual((caught.exception.code.name, caught.exception.reason), ("OUT_OF_RANGE", "SEQUENCE_GONE"))
        self.assertEqual(caught.exception.numbers["first_available"], "0")
        self.assertGreaterEqual(int(caught.exception.numbers["next"]), 8, "previews count, too")

    def test_png_and_labels(self):
        scan = self.client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(32, 8, volumes=2), samples=256, labels={"lab": "7"})
        self.client.wait(scan.name)
        frame = next(self.client.subscribe(scan.name, encoding="png"))
        self.assertTrue(frame.data.startswith(b"\x89PNG\r\n\x1a\n"))
        size = frame.data.find(b"IDAT")
        length = int.from_bytes(frame.data[size - 4:size], "big")
        self.assertEqual(len(zlib.decompress(frame.data[size + 4:size + 4 + length])), 8 * 33)

    def test_bad_requests(self):
        for options, code in ((dict(parent="scans/none"), "NOT_FOUND"), (dict(queue_length=5000), "INVALID_ARGUMENT"),
                              (dict(chunk_bytes=17), "INVALID_ARGUMENT"), (dict(max_rate_hz=-1), "INVALID_ARGUMENT"),
                              (dict(from_sequence=3), "INVALID_ARGUMENT"), (dict(products=["volume"], encoding="png"), "INVALID_ARGUMENT"),
                              (dict(products=["bscan"], slab=(0, 4)), "INVALID_ARGUMENT"), (dict(axis="x", slab=(0, 4)), "INVALID_ARGUMENT"),
                              (dict(slab=(-1, 4)), "INVALID_ARGUMENT"), (dict(slab=(4, 4)), "INVALID_ARGUMENT")):
            with self.subTest(options=options), self.assertRaises(octavo.OctavoError) as caught:
                list(self.client.subscribe(**options, timeout=60))
            self.assertEqual(caught.exception.code.name, code)

    def test_unix_socket(self):
        with octavo.Client("unix:" + self.daemon.ready["unix"]) as client:
            scan = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(64, 64, volumes=1), samples=1024)
            client.wait(scan.name)
            name = client.volumes(scan.name)[0].name
            np.testing.assert_array_equal(client.read(name), self.client.read(name))

    def test_bscans_of_a_scan_that_has_ended(self):
        scan = self.client.wait(self.client.submit_scan(octavo.simulated(9, fast=True), octavo.raster(24, 10, volumes=3), samples=256))
        volumes = [v.name for v in self.client.volumes(scan)]
        arrays = [self.client.read(name) for name in volumes]
        (frame,) = self.client.subscribe(scan.name, "bscan")
        self.assertEqual((frame.volume, frame.axes, frame.complete, frame.dropped_before), (volumes[2], ("x", "z"), True, 0))
        np.testing.assert_array_equal(frame.array, arrays[2][5])
        self.client.spill(volumes[0], "host")  # on any tier
        self.client.spill(volumes[1], "disk")
        for axis, cut in (("x", lambda a: a[:, 7]), ("y", lambda a: a[7]), ("z", lambda a: a[:, :, 7])):
            frames = list(self.client.subscribe(scan.name, "bscan", axis=axis, index=7, delivery="lossless"))
            self.assertEqual([(f.volume_index, f.dropped_before) for f in frames], [(0, 0), (1, 0), (2, 0)])
            for frame, array in zip(frames, arrays):
                np.testing.assert_array_equal(frame.array, cut(array))
            resumed = list(self.client.subscribe(scan.name, "bscan", axis=axis, index=7, from_sequence=0))
            self.assertEqual([f.volume for f in resumed], volumes)
        (picture,) = self.client.subscribe(scan.name, "bscan", encoding="png", image=dict(colour_map="viridis", depth_down=True))
        self.assertEqual((picture.shape, picture.data[:4]), ((arrays[2].shape[2], 24), b"\x89PNG"))
        for name in volumes[1:]:
            self.client.discard(name)
        self.assertEqual([f.volume for f in self.client.subscribe(scan.name, "bscan")], volumes[:1])
        self.client.commit(volumes[0], "ended", format="npy")
        with self.assertRaises(octavo.OctavoError) as caught:
            list(self.client.subscribe(scan.name, "bscan"))
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.FAILED_PRECONDITION, "NOTHING_KEPT"))
        self.assertIn("has ended and no frame of bscan is kept, nor is one of its volumes held; subscribe while it runs, or open a committed file",
                      caught.exception.message)

    def test_slices_of_a_job_that_has_ended(self):
        tomo = np.random.default_rng(3).random((12, 5, 16), np.float32)
        arrays = octavo.ProjectionArrays(projections=self.client.buffers.put(tomo))
        for place in ("device", "disk"):
            job = self.client.wait_job(self.client.submit_job(octavo.tomography(arrays, angles=np.arange(12) * np.pi / 12, place=place,
                                                                                prepare=octavo.preparation(already_sinograms=True))))
            array = self.client.read(job.volume_names[0])
            for axis, cut in (("", array[4]), ("y", array[:, 4]), ("x", array[:, :, 4])):
                (frame,) = self.client.subscribe(job.name, "bscan", axis=axis, index=4)
                self.assertEqual((frame.volume, frame.complete), (job.volume_names[0], True))
                np.testing.assert_array_equal(frame.array, cut)
        self.client.buffers.destroy(arrays.projections)

    def test_the_command_line_says_what_it_waits_for(self):
        raster = octavo.raster(16, 8, volumes=1)
        scan = self.client.submit_scan(octavo.push(), raster, samples=64).name
        command = [os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "watch", "--parent", scan, "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.stderr.readline(),
                         f"octavo: nothing comes of {scan}: it waits for a client that pushes its records (IngestService.Push)\n")
        self.client.push(scan, np.zeros((16 * 8, 64), np.uint16) + np.arange(64, dtype=np.uint16))
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(all("it waits for" in line for line in error.splitlines()), error)  # again, if this machine is slow
        self.assertIn('"product":"PRODUCT_MIP"', out.replace(" ", ""))

    def test_who_waits_is_told_for_what(self):
        def told(name):
            frames = self.client.subscribe(name, "mip", timeout=60)
            with mock.patch.object(octavo.client, "QUIET_SECONDS", 0.2), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                thread = threading.Thread(target=lambda: next(frames, None))
                thread.start()
                until(lambda: any(issubclass(w.category, octavo.OctavoWarning) for w in caught))
                self.client.cancel_job(name) if name.startswith("jobs/") else self.client.cancel(name)
                thread.join()
            return str(next(w.message for w in caught if issubclass(w.category, octavo.OctavoWarning)))

        raster = octavo.raster(16, 8, volumes=1)
        pushed = self.client.submit_scan(octavo.push(), raster, samples=64, queue="bench").name
        until(lambda: self.client.scan(pushed).state == types_pb2.SCAN_STATE_RUNNING)
        queued = self.client.submit_scan(octavo.simulated(1), raster, samples=64, queue="bench").name
        self.assertEqual(self.client.waits_for(queued), "its turn: the scan that runs is before it in the queue bench")
        self.assertIn(f"{queued}: nothing comes yet: it waits for its turn", told(queued))
        self.assertIn(f"{pushed}: nothing comes yet: it waits for a client that pushes its records (IngestService.Push)", told(pushed))
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9))).name
        until(lambda: self.client.job(job).stage == job_pb2.JOB_STAGE_PROJECTIONS)
        self.assertIn(f"{job}: nothing comes yet: it waits for frames that are pushed: 0 of 9 are in", told(job))
        simulated = self.client.wait(self.client.submit_scan(octavo.simulated(1, fast=True), raster, samples=64))
        self.assertEqual(simulated.waits_for, "")


if __name__ == "__main__":
    unittest.main()
