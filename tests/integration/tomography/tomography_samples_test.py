"""The output of tomography jobs: voxels of fewer bits with a window, given or found, and results that the server commits by itself."""

import json
import os
import re
import unittest
import warnings

import numpy as np

from harness import Daemon, DaemonTest, octavo, until
from octavo.v1 import job_pb2, tomography_pb2, types_pb2
from readers import READERS
from tomography_test import shepp_logan

TOP = {"u8": 255, "u16": 65535}
NUMPY = {"u8": np.uint8, "u16": np.uint16, "f16": np.float16, "f32": np.float32}


def stored(values, kind, low, high):
    """The numbers, and how many are clipped below and above: as the contract says."""
    top = TOP[kind]
    v = (values.astype(np.float64) - low) * top / (high - low)
    return np.clip(np.floor(v + 0.5), 0, top).astype(NUMPY[kind]), int(np.sum(~(v > -0.5))), int(np.sum(v >= top + 0.5))


class TomographySamples(DaemonTest):
    SIZE, COUNT, ROWS = 96, 60, 11

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.angles = np.linspace(0, np.pi, cls.COUNT, endpoint=False)
        _, sinogram = shepp_logan(cls.SIZE, cls.angles, (cls.SIZE - 1) / 2)
        rows = np.linspace(0.5, 1.5, cls.ROWS, dtype=np.float32)
        np.save(os.path.join(cls.daemon.root, "scan.npy"), sinogram[:, None, :] * rows[None, :, None])

    def work(self, **fields):
        return octavo.tomography("scan.npy", angles=self.angles, prepare=octavo.preparation(already_sinograms=True), **fields)

    def submit(self, work, **fields):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a narrow window clips much, and warns
            return self.client.submit_job(work, **fields)

    def made(self, work, **fields):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            job = self.client.wait_job(self.submit(work, **fields).name)
        return job, self.client.volume(job.volume_names[0]), self.client.read(job.volume_names[0])

    def refused(self, work, field, **fields):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.submit(work, **fields)
        self.assertEqual(caught.exception.field, field)
        self.assertEqual(self.client.plan_job(self.work()).report.admitted, True)  # nothing is left behind
        return caught.exception

    def test_a_window_is_found_for_total_variation(self):
        job, _, numbers = self.made(self.work(algorithm="tv", tv_weight=0.01, iterations=5, samples="u8"))
        self.assertLess(job.tomography.low, job.tomography.high)
        self.assertGreater(numbers.max() - numbers.min(), 100)

    def test_a_window_gives_the_f32_result_converted(self):
        low, high = 0.125, 1.0  # exact in f32; the phantom has more and less
        for algorithm in ("fbp", "fourier", "sirt"):
            more = dict(iterations=5) if algorithm == "sirt" else {}
            _, _, values = self.made(self.work(algorithm=algorithm, batch=4, **more))
            for kind in ("u8", "u16"):
                for place in ("device", "disk"):
                    with self.subTest(algorithm=algorithm, samples=kind, place=place):
                        job, volume, numbers = self.made(self.work(algorithm=algorithm, batch=4, place=place, samples=kind, window=(low, high), **more))
                        wanted, below, above = stored(values, kind, low, high)
                        self.assertEqual(numbers.dtype, NUMPY[kind])
                        np.testing.assert_array_equal(numbers, wanted)
                        report = job.tomography
                        self.assertEqual((report.low, report.high, report.clipped_below, report.clipped_above), (low, high, below, above))
                        if algorithm != "sirt":  # five iterations reach no extremes
                            self.assertGreater(min(below, above), 0)
                        self.assertEqual((volume.levels.lo, volume.levels.hi), (low, high))
                        self.assertEqual((volume.clipped_below, volume.clipped_above), (below, above))
                        self.assertEqual(volume.bytes, values.size * numbers.itemsize)
                        self.assertEqual(volume.tier, "DISK" if place == "disk" else "DEVICE")
                        self.assertEqual(any("were clipped" in warning for warning in job.warnings), below + above > 0.02 * values.size, list(job.warnings))
            _, volume, halves = self.made(self.work(algorithm=algorithm, batch=4, samples="f16", **more))
            np.testing.assert_array_equal(halves, values.astype(np.float16))
            self.assertIsNone(volume.levels)

    def test_a_found_window_holds_the_values_and_is_told(self):
        for fields in (dict(), dict(algorithm="sirt", iterations=20), dict(algorithm="mlem", iterations=5), dict(algorithm="sirt", iterations=5, form="tomopy"),
                       dict(try_centers=(45, 50, 0.5), center_row=5)):
            with self.subTest(**fields):
                _, _, values = self.made(self.work(**fields))
                job, volume, numbers = self.made(self.work(samples=np.uint16, **fields))
                low, high = job.tomography.low, job.tomography.high
                self.assertLess(low, high)
                self.assertEqual((volume.levels.lo, volume.levels.hi), (low, high))
                wanted, below, above = stored(values, "u16", low, high)
                np.testing.assert_array_equal(numbers, wanted)
                self.assertEqual((job.tomography.clipped_below, job.tomography.clipped_above), (below, above))
                self.assertLess(below + above, 0.02 * values.size)
                # Back to values; the window is not much wider than they are.
                step = (high - low) / 65535
                np.testing.assert_allclose(low + step * numbers, np.clip(values, low, high), atol=0.51 * step)
                self.assertLess(high - low, 4 * (values.max() - values.min()))
                self.assertIn("window", job.plan)

    def test_a_result_of_fewer_bits_takes_less_memory(self):
        voxels = self.ROWS * self.SIZE ** 2
        for kind, dtype in NUMPY.items():
            with self.subTest(samples=kind):
                work = self.work(samples=kind, **({"window": (0, 1)} if kind in TOP else {}))
                report = self.client.plan_job(work).report
                (planned,) = [need.bytes for need in report.needs if need.kind == types_pb2.AdmissionReport.Item.KIND_RESULT]
                bytes_ = voxels * np.dtype(dtype).itemsize
                self.assertLess(abs(planned - bytes_), 0.2 * bytes_ + 4096)  # with its MIP
                self.assertEqual(self.made(work)[1].bytes, bytes_)

    def test_wrong_windows_are_refused(self):
        samples = tomography_pb2.ResultSamples
        for of, field, words in ((samples(type=types_pb2.DTYPE_U8, low=1, high=1), "tomography.samples.high", "above low"),
                                 (samples(type=types_pb2.DTYPE_U16, low=2, high=-1), "tomography.samples.high", "is -1"),
                                 (samples(type=types_pb2.DTYPE_U16, low=float("nan"), high=1), "tomography.samples.low", "finite"),
                                 (samples(type=types_pb2.DTYPE_U16, low=0, high=float("inf")), "tomography.samples.high", "finite"),
                                 (samples(type=types_pb2.DTYPE_U16, low=0, high=1e300), "tomography.samples.high", "allowed"),
                                 (samples(type=types_pb2.DTYPE_U16, low=1, high=1 + 1e-12), "tomography.samples.high", "F32"),
                                 (samples(type=types_pb2.DTYPE_F16, high=1), "tomography.samples.high", "with f16"),
                                 (samples(low=-1), "tomography.samples.low", "with f32"),
                                 (samples(type=types_pb2.DTYPE_I16), "tomography.samples.type", "allowed U8, U16, F16, F32"),
                                 (samples(type=types_pb2.DTYPE_C64), "tomography.samples.type", "allowed U8, U16, F16, F32")):
            with self.subTest(of=str(of)):
                work = self.work()
                work.samples.CopyFrom(of)
                self.assertIn(words, self.refused(work, field).message)

    def test_the_result_is_committed_by_the_server(self):
        for place in ("device", "disk"):
            with self.subTest(place=place):
                work = self.work(samples="u16", window=(0, 1), place=place)
                job = self.submit(work, commit=f"auto_{place}.npy", title="by itself")
                self.assertEqual(job.spec.commit.destination, f"auto_{place}.npy")
                job = self.client.wait_job(job.name)
                (name,) = job.volume_names
                until(lambda: self.client.volume(name).state == "COMMITTED")
                until(lambda: list(self.client.job(job.name).commits))
                (path,) = self.client.job(job.name).commits
                self.assertEqual(path, os.path.join(self.daemon.root, f"auto_{place}.npy"))
                self.assertEqual(self.client.volume(name).commit_result.path, path)
                self.assertEqual(self.client.job(job.name).commit_failures, 0)
                _, _, values = self.made(self.work())
                np.testing.assert_array_equal(np.load(path), stored(values, "u16", 0, 1)[0])
                with open(path + ".json") as file:
                    meta = json.load(file)
                self.assertEqual(meta["levels"], [0, 1])  # whoever reads the file comes back to attenuation

    def test_the_files_can_be_waited_for(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            job = self.client.wait_commit(self.submit(self.work(samples="u8"), commit="waited.npy"))
            self.assertEqual(list(job.commits), [os.path.join(self.daemon.root, "waited.npy")])
            self.assertTrue(os.path.exists(job.commits[0]))
            self.assertEqual(list(self.client.wait_commit(job.name, timeout=60).commits), list(job.commits))  # a second time, at once
            with self.assertRaisesRegex(ValueError, "has no commit"):
                self.client.wait_commit(self.submit(self.work()).name)

    def test_every_field_of_a_template_and_another_format(self):
        job = self.submit(self.work(samples="u8"), title="a tooth", commit=octavo.commit_options("{title}/{scan}_{index:03}.zarr", pyramid_levels=2))
        job = self.client.wait_job(job.name)
        until(lambda: self.client.volume(job.volume_names[0]).state == "COMMITTED")
        path = self.client.volume(job.volume_names[0]).commit_result.path
        self.assertEqual(path, os.path.join(self.daemon.root, "a_tooth", job.name.removeprefix("jobs/") + "_000.zarr"))
        self.assertEqual(READERS["zarr"](path).array.shape, (self.SIZE, self.SIZE, self.ROWS))  # [x, y, z]

    def test_what_cannot_be_committed_is_refused_at_once(self):
        open(os.path.join(self.daemon.root, "there.npy"), "w").close()
        error = self.refused(self.work(), "commit.destination", commit="there.npy")
        self.assertEqual(error.reason, "DESTINATION_EXISTS")
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.plan_job(self.work(), commit="there.npy")
        self.assertEqual(caught.exception.field, "commit.destination")
        for commit, field in (("../out.npy", "commit.destination"), ("{what}.npy", "commit.destination"), ("x}.npy", "commit.destination"),
                              (dict(destination=""), "commit.destination"), (dict(destination="x.png"), "commit.destination"),
                              (dict(destination="x.npy", zstd_level=20), "commit.zstd_level"), (dict(destination="x.zarr", chunk=[1, 2]), "commit.chunk"),
                              (dict(destination="x.zarr", pyramid_levels=16), "commit.pyramid_levels"), (dict(destination="x.npy", pyramid_levels=2), "commit.pyramid_levels"), (dict(destination="x.npy", format="zarr"), "commit.format")):
            with self.subTest(commit=commit):
                self.refused(self.work(), field, commit=commit)
        self.refused(self.work(samples="f16"), "commit.format", commit="x.nii")  # which has no half-precision floats
        self.assertIn("together with commit", self.refused(self.work(), "results", commit="x.npy", results="disk").message)
        self.assertEqual([name for name in os.listdir(self.daemon.root) if name.startswith("x")], [])

    def test_a_job_without_a_volume_has_nothing_to_commit(self):
        spec = job_pb2.JobSpec(k_calibration=job_pb2.KCalibrationJob(volume="volumes/none"))
        self.refused(spec, "commit", commit="x.npy")

    def test_a_commit_that_fails_leaves_the_volume_held(self):
        # The name is known only when the volume is.
        open(os.path.join(self.daemon.root, "late_0.npy"), "w").close()
        job = self.client.wait_job(self.submit(self.work(), commit="late_{index}.npy").name)
        until(lambda: self.client.job(job.name).commit_failures == 1)
        job = self.client.job(job.name)
        self.assertEqual((job.state, list(job.commits)), ("DONE", []))
        (warning,) = [one for one in job.warnings if "committed" in one]
        self.assertIn(f"{job.volume_names[0]} could not be committed automatically and stays held", warning)
        self.assertIn("late_0.npy", warning)
        volume = self.client.volume(job.volume_names[0])
        self.assertEqual(volume.state, "HELD")
        self.client.commit(volume.name, "by_hand", format="npy")
        with open(os.path.join(self.daemon.root, "by_hand.npy.json")) as file:
            self.assertNotIn("committed automatically", file.read())

    def test_a_disk_that_fails_leaves_the_volume_held(self):
        daemon = Daemon(environment={"OCTAVO_FAILPOINT": "files_synced:errno=28"})
        self.addCleanup(daemon.remove)
        np.save(os.path.join(daemon.root, "scan.npy"), np.load(os.path.join(self.daemon.root, "scan.npy")))
        with daemon.client() as client:
            job = client.wait_job(client.submit_job(self.work(), commit="full.npy").name)
            until(lambda: client.job(job.name).commit_failures == 1)
            self.assertEqual(client.volume(job.volume_names[0]).state, "HELD")
            self.assertFalse(os.path.exists(os.path.join(daemon.root, "full.npy")))

    def test_a_job_that_is_cancelled_commits_nothing(self):
        job = self.submit(self.work(algorithm="sirt", iterations=1000000), commit="never.npy")
        until(lambda: self.client.job(job.name).step_count > 2)
        self.client.cancel_job(job.name)
        end = self.client.wait_job(job.name, check=False)
        self.assertEqual((end.state, list(end.volume_names), list(end.commits)), ("CANCELLED", [], []))
        self.assertFalse(os.path.exists(os.path.join(self.daemon.root, "never.npy")))

    def test_another_kind_of_job(self):
        scan = self.client.submit_scan(octavo.simulated(2, fast=True), octavo.raster(16, 8, volumes=1), samples=256,
                                       retention=dict(hold_raw=True))
        self.client.wait(scan.name)
        (raw,) = [volume.name for volume in self.client.volumes() if volume.raw]
        job = self.client.wait_job(self.client.submit_job(octavo.reprocess(raw), commit="again.npy").name)
        until(lambda: list(self.client.job(job.name).commits))
        self.assertEqual(np.load(os.path.join(self.daemon.root, "again.npy")).ndim, 3)

    def test_the_command_line(self):
        flags = ("recon", "scan.npy", "--sinograms", "--angles", "0:177:60", "--center", "47.5")
        result = self.command(*flags, "--samples", "u8", "--window", "0:1", "-o", "cli.npy", "--png", os.path.join(self.daemon.root, "cli.png"))
        self.assertIn("window 0 to 1", result.stdout)
        _, _, values = self.made(self.work())
        numbers = np.load(os.path.join(self.daemon.root, "cli.npy"))
        self.assertEqual(numbers.dtype, np.uint8)
        self.assertLessEqual(np.abs(numbers.astype(int) - stored(values, "u8", 0, 1)[0].astype(int)).max(), 1)  # its angles are rounded
        before = len(self.client.jobs())
        for more, said in [(("--samples", "f16", "-o", "cli.tif"), "half-precision"), (("-o", ""), "--output: is empty"),
                           (("-o", "cli_x.npy", "--no-wait", "--watch"), "--watch: waits")]:
            refused = self.command(*flags, *more, check=False)
            self.assertNotEqual(refused.returncode, 0, more)
            self.assertIn(said, refused.stderr.replace("--output is", "--output: is").replace("--watch waits", "--watch: waits"))
        self.assertEqual(len(self.client.jobs()), before)  # nothing was computed
        result = self.command(*flags, "--samples", "u16", "--no-wait", "-o", "cli_by_itself.npy")
        (name,) = re.findall(r"jobs/[\w-]+", result.stdout)[:1]
        until(lambda: list(self.client.job(name).commits))
        self.assertEqual(np.load(os.path.join(self.daemon.root, "cli_by_itself.npy")).dtype, np.uint16)
        self.assertIn("committed to " + os.path.join(self.daemon.root, "cli_by_itself.npy"), self.command("job", "show", name).stdout)
        for words, arguments in (("--window: is of --samples u8 and u16; f16", ("--samples", "f16", "--window", "0:1")),
                                 ("--window: is '1:0'; allowed LOW:HIGH", ("--samples", "u8", "--window", "1:0")),
                                 ("--window requires --samples", ("--window", "0:1")), ("--samples: is 'i8'", ("--samples", "i8")),
                                 ("--no-wait requires --output", ("--no-wait",))):
            refused = self.command(*flags, *arguments, check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(words, refused.stderr)


if __name__ == "__main__":
    unittest.main()
