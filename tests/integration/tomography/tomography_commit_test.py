"""Results of tomography jobs that the server writes while it computes them: overlap, progress, cancels, errors, and the files at the end."""

import json
import os
import shutil
import tempfile
import unittest
import warnings

import numpy as np

from harness import Daemon, DaemonTest, octavo, until
from octavo.v1 import operation_pb2
from readers import READERS
from tomography_test import shepp_logan

SIZE, COUNT, ROWS = 96, 60, 24
in_the_middle = unittest.skipUnless(os.environ.get("OCTAVO_DEVICE_BACKEND", "host") == "host", "a GPU has made its volume before anybody can look")
ENDED = ("DONE", "FAILED", "CANCELLED", "LOST")
ENDING = {"zarr": ".zarr", "npy": ".npy", "tiff": ".tif", "hdf5": ".h5", "bin": ".bin", "nifti": ".nii"}


def write_scan(root):
    """scan.npy below `root`; the angles of its projections."""
    angles = np.linspace(0, np.pi, COUNT, endpoint=False)
    _, sinogram = shepp_logan(SIZE, angles, (SIZE - 1) / 2)
    rows = np.linspace(0.5, 1.5, ROWS, dtype=np.float32)
    np.save(os.path.join(root, "scan.npy"), sinogram[:, None, :] * rows[None, :, None])
    return angles


def slow(angles, iterations=150, **fields):
    """A job of one slice a batch, slow enough to be looked at."""
    return octavo.tomography("scan.npy", angles=angles, prepare=octavo.preparation(already_sinograms=True), algorithm="sirt", iterations=iterations, batch=1, **fields)


def by_slice(destination, **options):
    return octavo.commit_options(destination, chunk=[1, SIZE, SIZE], **options)


class TomographyCommit(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.angles = write_scan(cls.daemon.root)

    def submit(self, work, **fields):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.client.submit_job(work, **fields).name

    def commits(self, job):
        """The operations that commit volumes of a job, oldest first."""
        named = set(self.client.job(job).volume_names)
        return [one for one in reversed(self.client.operations(filter="kind = COMMIT")) if one.target in named]

    def writing(self, job):
        """Waits until the job's commit has written something. Its operation, while the job computes."""
        until(lambda: self.client.job(job).state in ENDED or (self.commits(job) and self.commits(job)[0].progress.done_bytes > 0))
        self.assertEqual(self.client.job(job).state, "RUNNING")
        (operation,) = self.commits(job)
        return operation

    def ended(self, job):
        """The job, when it and its commits have ended."""
        until(lambda: self.client.job(job).state in ENDED and len(self.client.job(job).commits) + self.client.job(job).commit_failures == len(self.client.job(job).volume_names), 120)
        return self.client.job(job)

    def left(self, name):
        """What there is below the root of a destination, hidden files too."""
        folder = os.path.join(self.daemon.root, name)
        return sorted(os.path.join(at, one) for at, _, names in os.walk(folder) for one in names)

    @in_the_middle
    def test_it_is_written_while_it_is_computed(self):
        expected = {}
        for kind, fields in (("u8", dict(window=(0, 0.5))), ("u16", dict(window=(0, 0.5))), ("f16", {}), ("f32", {})):
            with self.subTest(samples=kind):
                name = self.submit(slow(self.angles, samples=kind, **fields), commit=by_slice(f"made/{kind}.zarr"))
                operation = self.writing(name)
                self.assertEqual(operation.state, operation_pb2.OPERATION_STATE_RUNNING)
                self.assertLess(operation.progress.done_bytes, operation.progress.total_bytes)
                self.assertEqual(self.client.volume(operation.target).state, "ACQUIRING")
                self.assertEqual([one for one in self.left("made") if f"{kind}.zarr" in one], [], "nothing has its name")
                self.assertTrue(any(f".octavo-{operation.target[8:]}.tmp" in one for one in self.left("made")))
                end = self.client.wait_operation(operation.name)
                job = self.ended(name)
                self.assertEqual((job.state, list(job.commits), job.commit_failures), ("DONE", [end.commit.path], 0))
                after = self.client.wait_job(self.submit(slow(self.angles, samples=kind, **fields)))
                expected[kind] = self.client.read(after.volume_names[0])
                stored = READERS["zarr"](end.commit.path).array
                np.testing.assert_array_equal(stored.transpose(2, 0, 1), expected[kind])
                with open(os.path.join(end.commit.path, "zarr.json")) as file:
                    meta = json.load(file)["attributes"]["octavo"]
                self.assertEqual(meta["digest"], self.client.volume(after.volume_names[0]).digest)
                self.assertEqual((job.tomography.clipped_below, job.tomography.clipped_above), (after.tomography.clipped_below, after.tomography.clipped_above))
                if kind in ("u8", "u16"):
                    self.assertGreater(job.tomography.clipped_above, 0)

    def test_every_format(self):
        for format, ending in ENDING.items():
            with self.subTest(format=format):
                job = self.client.wait_commit(self.submit(slow(self.angles, iterations=2, samples="u16", window=(0, 1)), commit=f"every/v{ending}"))
                (path,) = job.commits
                after = self.client.wait_job(self.submit(slow(self.angles, iterations=2, samples="u16", window=(0, 1))))
                by_hand = self.client.commit(after.volume_names[0], f"every/by_hand{ending}").path
                np.testing.assert_array_equal(READERS[format](path).array, READERS[format](by_hand).array)
                (operation,) = self.commits(job.name)
                self.assertEqual(operation.commit.path, path)

    @in_the_middle
    def test_a_cancel_of_the_commit_is_none_of_the_job(self):
        name = self.submit(slow(self.angles), commit=by_slice("cancelled/v.zarr"))
        operation = self.writing(name)
        self.client.cancel_operation(operation.name)
        end = self.client.wait_operation(operation.name, check=False)
        self.assertEqual(end.state, operation_pb2.OPERATION_STATE_CANCELLED)
        self.assertEqual(self.left("cancelled"), [])
        job = self.ended(name)
        self.assertEqual((job.state, job.commit_failures, list(job.commits)), ("DONE", 1, []))
        self.assertTrue(any("stays held" in one and "cancelled" in one for one in job.warnings), list(job.warnings))
        volume = self.client.volume(job.volume_names[0])
        self.assertEqual(volume.state, "HELD")
        self.assertIn("cancelled", volume.last_error)
        path = self.client.commit(volume.name, "cancelled/v.zarr").path
        with open(os.path.join(path, "zarr.json")) as file:
            self.assertNotIn("committed automatically", file.read())

    @in_the_middle
    def test_a_job_that_is_cancelled_leaves_nothing(self):
        name = self.submit(slow(self.angles), commit=by_slice("given_up/v.zarr"))
        operation = self.writing(name)
        self.client.cancel_job(name)
        end = self.client.wait_operation(operation.name, check=False)
        self.assertEqual(end.state, operation_pb2.OPERATION_STATE_CANCELLED)
        self.assertIn("was not made", end.error.message)
        job = self.client.wait_job(name, check=False)
        self.assertEqual((job.state, job.commit_failures, list(job.volume_names)), ("CANCELLED", 0, []))
        self.assertFalse(os.path.exists(os.path.join(self.daemon.root, "given_up")))

    @in_the_middle
    def test_a_watched_job_is_made_in_order(self):
        """A subscriber's slice comes first, unless the result is written meanwhile."""
        name = self.submit(slow(self.angles), commit=by_slice("watched/v.zarr"))
        self.writing(name)
        frames = self.client.subscribe(name, "bscan", axis="z", index=ROWS - 2, timeout=100)
        self.assertEqual(next(frames).array.shape, (SIZE, SIZE))
        frames.close()
        self.assertEqual(self.ended(name).commit_failures, 0)

    def test_each_volume_of_a_series(self):
        work = slow(self.angles, iterations=20, series=(30, 10))
        job = self.ended(self.submit(work, commit=by_slice("series/v{index}.zarr")))
        self.assertEqual((job.state, job.commit_failures, len(job.commits)), ("DONE", 0, 4))
        self.assertEqual([os.path.basename(path) for path in sorted(job.commits)], [f"v{i}.zarr" for i in range(4)])


class Errors(unittest.TestCase):
    @in_the_middle
    def test_a_full_disk_is_told_at_once(self):
        daemon = Daemon(environment={"OCTAVO_FAILPOINT": "chunk_written:errno=28:3"})
        self.addCleanup(daemon.remove)
        angles = write_scan(daemon.root)
        with daemon.client() as client:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                name = client.submit_job(slow(angles), commit=by_slice("full/v.zarr")).name
            until(lambda: client.job(name).commit_failures or client.job(name).state in ENDED)
            self.assertEqual(client.job(name).state, "RUNNING")
            self.assertFalse(os.path.exists(os.path.join(daemon.root, "full")))
            job = client.wait_job(name)
            volume = client.volume(job.volume_names[0])
            self.assertEqual((job.commit_failures, volume.state), (1, "HELD"))
            client.commit(volume.name, "full/v.zarr")
        self.assertEqual(daemon.stop(), 0)

    @in_the_middle
    def test_a_kill_leaves_nothing_of_a_job_that_computes(self):
        directory = tempfile.mkdtemp(prefix="octavo-test-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        daemon = Daemon(directory=directory, environment={"OCTAVO_FAILPOINT": "chunk_written:kill:4"})
        self.addCleanup(daemon.remove)
        angles = write_scan(daemon.root)
        with daemon.client() as client:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                name = client.submit_job(slow(angles), commit=by_slice("killed/v.zarr")).name
            daemon.process.wait(60)
        again = Daemon(directory=directory)
        self.addCleanup(again.remove)
        with again.client() as client:
            self.assertTrue(list(client.info().recovered))
            folder = os.path.join(again.root, "killed")
            self.assertEqual(os.listdir(folder) if os.path.isdir(folder) else [], [])
            self.assertEqual((client.job(name).state, list(client.job(name).commits)), ("LOST", []))
        self.assertEqual(again.stop(), 0)


if __name__ == "__main__":
    unittest.main()
