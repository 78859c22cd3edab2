"""kill -9 of the daemon during commits, at every named point of a commit and at random instants.
Each destination is absent, or complete and equal to the data; there if the commit was acknowledged. The restart cleans up and reports it.
A retry of the request writes nothing twice.
"""

import os
import random
import shutil
import tempfile
import threading
import unittest

import numpy as np

from faults import LONG, SEED
from harness import Daemon, octavo
from readers import ENDINGS, READERS

INSTANTS = 200 if LONG else 8
POINTS = ["journal_begin", "tmp_created", "chunk_written", "block_written", "files_synced", "manifest_written", "before_rename", "names_checked", "after_rename",
          "parent_synced", "journal_end"]
COMPLETE = {"manifest_written", "before_rename", "names_checked", "side_renamed", "after_rename", "parent_synced", "journal_end"}  # published, or finished at the restart


class CommitKill(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-kill-")
        self.acknowledged = False

    def tearDown(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    def killed_commit(self, format, environment=None, delay=None, **options):
        """Acquires a volume, commits it and is killed; returns the voxels."""
        self.acknowledged = False
        daemon = Daemon(directory=self.directory, environment=environment)
        try:
            with daemon.client() as client:
                scan = client.submit_scan(octavo.simulated(random.randrange(1 << 30), fast=True), octavo.raster(64, 40, volumes=1), samples=512)
                client.wait(scan.name)
                name = client.volumes(scan.name)[0].name
                array = client.read(name)
                killer = threading.Timer(delay, daemon.process.kill) if delay is not None else None
                if killer:
                    killer.start()
                # Small chunks: more points at which to be killed. Other formats have none.
                self.request = dict(name=name, destination="sub/v", format=format, request_id=f"killed-{random.getrandbits(64):x}", **options,
                                    **({"chunk": [4, 32, 64]} if format in ("zarr", "hdf5") else {}))
                try:
                    client.commit(**self.request)
                    self.acknowledged = True
                except octavo.OctavoError as error:
                    self.assertIn(error.code.name, ("UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN"))
                if killer:
                    killer.join()
            daemon.process.wait(30)
            return array
        finally:
            daemon.remove()

    def check(self, format, array, must_be=None, metadata_files=2):
        """Restarts the daemon and checks the files."""
        daemon = Daemon(directory=self.directory)
        try:
            with daemon.client() as client:
                recovered = list(client.info().recovered)
                path = os.path.join(daemon.root, "sub", "v" + ENDINGS[format])
                there = os.path.exists(path)
                if there:
                    np.testing.assert_array_equal(READERS[format](path).array, array)
                    if format == "zarr":
                        files = sum(len(names) for _, _, names in os.walk(path))
                        self.assertEqual(files, 10 * 2 * 4 + metadata_files + 1)  # chunks, zarr.json of group and array, the manifest
                    else:
                        self.assertTrue(os.path.exists(path + ".json"))
                if self.acknowledged:
                    self.assertTrue(there, recovered)
                if must_be is not None:
                    self.assertEqual(there, must_be, recovered)
                    self.assertTrue(recovered, "restart must say what it found")
                parent = os.path.join(daemon.root, "sub")
                left = [n for n in (os.listdir(parent) if os.path.isdir(parent) else []) if n.startswith(".octavo")]
                self.assertEqual(left, [], recovered)
                # The retry finds what was done, or that it is lost; it makes no second volume.
                before = self.files(daemon)
                try:
                    self.assertEqual((client.commit(**self.request).path, there), (path, True))
                except octavo.OctavoError as error:
                    self.assertIn(error.reason, ("LOST", "NO_VOLUME"), error)
                    self.assertFalse(self.acknowledged and error.reason == "LOST", error)
                self.assertEqual(self.files(daemon), before)
                # A client can use the name now, unless the complete volume has it.
                scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(64, 8, volumes=1), samples=512)
                client.wait(scan.name)
                volume = client.volumes(scan.name)[0].name
                if there:
                    with self.assertRaises(octavo.OctavoError):
                        client.commit(volume, "sub/v", format)
                else:
                    client.commit(volume, "sub/v", format)
            self.assertEqual(daemon.stop(), 0)
        finally:
            daemon.remove()
        shutil.rmtree(os.path.join(self.directory, "data"))

    def files(self, daemon):
        return sorted(os.path.join(at, name) for at, _, names in os.walk(daemon.root) for name in names if "/.octavo-quarantine" not in at)

    def test_at_every_named_point(self):
        # The other formats use the same code as these; commit_faults_test.cc takes them through
        # every point.
        for format in ("zarr", "npy", "nifti", "hdf5") if LONG else ("zarr", "npy"):
            for point in POINTS + ([] if format == "zarr" else ["side_renamed"]):
                with self.subTest(format=format, point=point):
                    array = self.killed_commit(format, {"OCTAVO_FAILPOINT": f"{point}:kill:{3 if point == 'chunk_written' and format in ('zarr', 'hdf5') else 1}"})
                    self.check(format, array, must_be=point in COMPLETE)

    @unittest.skipUnless(LONG, "in the long form: as the other Zarr")
    def test_ome_zarr_04_at_every_named_point(self):
        for point in POINTS:
            with self.subTest(point=point):
                array = self.killed_commit("zarr", {"OCTAVO_FAILPOINT": f"{point}:kill:{3 if point == 'chunk_written' else 1}"}, ngff="0.4")
                self.check("zarr", array, must_be=point in COMPLETE, metadata_files=4)

    def test_at_random_instants(self):
        random.seed(SEED)
        for i in range(INSTANTS):
            with self.subTest(i=i):
                format = random.choice(list(READERS))
                array = self.killed_commit(format, delay=random.uniform(0, 0.04))
                self.check(format, array)


class JobKill(unittest.TestCase):
    """The same of a reconstruction whose slices are written while the next ones are computed: nothing of it is there unless all of it is."""

    SIZE, ROWS = 64, 12
    # (point, the how-manieth, whether the restart finds or makes it complete)
    POINTS = [("journal_begin", 1, False), ("tmp_created", 1, False), ("chunk_written", 1, False), ("chunk_written", 7, False), ("files_synced", 1, False),
              ("manifest_written", 1, True), ("before_rename", 1, True), ("after_rename", 1, True), ("parent_synced", 1, True)]

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-kill-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def submit(self, daemon, client, **fields):
        angles = np.linspace(0, np.pi, 40, endpoint=False)
        columns = np.arange(self.SIZE) - (self.SIZE - 1) / 2 - 4 * np.cos(angles)[:, None]
        lines = 0.02 * np.sqrt(np.maximum(0, (10 + np.arange(self.ROWS)[None, :, None]) ** 2 - columns[:, None, :] ** 2))
        np.save(os.path.join(daemon.root, "scan.npy"), lines.astype(np.float32))
        work = octavo.tomography("scan.npy", angles=angles, center=(self.SIZE - 1) / 2, prepare=octavo.preparation(already_sinograms=True), algorithm="sirt",
                                 iterations=100, batch=1)
        return client.submit_job(work, **fields).name

    def killed(self, environment=None, delay=None):
        """A job is written while it is computed, and the daemon is killed. Whether its commit was acknowledged."""
        daemon = Daemon(directory=self.directory, environment=environment)
        killer = None
        try:
            with daemon.client() as client:
                # Small chunks: a slice is a slab, and is written as soon as it is made.
                try:
                    name = self.submit(daemon, client, commit=octavo.commit_options("sub/v.zarr", chunk=[1, 8, 8]))
                except octavo.OctavoError as error:  # the kill came before the answer
                    self.assertEqual(error.code.name, "UNAVAILABLE")
                    return False
                if delay is not None:
                    killer = threading.Timer(delay, daemon.process.kill)
                    killer.start()
                try:
                    return bool(client.wait_commit(name).commits)
                except octavo.OctavoError as error:
                    self.assertIn(error.code.name, ("UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN"))
                    return False
        finally:
            if killer:
                killer.join()
            daemon.process.wait(60)
            daemon.remove()

    def check(self, must_be, acknowledged=False):
        daemon = Daemon(directory=self.directory)
        try:
            with daemon.client() as client:
                path = os.path.join(daemon.root, "sub", "v.zarr")
                there = os.path.exists(path)
                if must_be is not None:
                    self.assertEqual(there, must_be, list(client.info().recovered))
                if acknowledged:
                    self.assertTrue(there)
                parent = os.path.dirname(path)
                self.assertEqual([n for n in (os.listdir(parent) if os.path.isdir(parent) else []) if n != "v.zarr"], [])
                wanted = client.read(client.wait_job(self.submit(daemon, client)).volume_names[0])
                if there:
                    stored = READERS["zarr"](path).array  # [y, x, z]
                    np.testing.assert_array_equal(stored.transpose(2, 0, 1), wanted)
                else:  # the name is free
                    again = client.wait_commit(self.submit(daemon, client, commit="sub/v.zarr"))
                    np.testing.assert_array_equal(READERS["zarr"](again.commits[0]).array.transpose(2, 0, 1), wanted)
            self.assertEqual(daemon.stop(), 0)
        finally:
            daemon.remove()
        shutil.rmtree(os.path.join(self.directory, "data"))

    def test_at_every_named_point(self):
        for point, count, complete in self.POINTS:
            with self.subTest(point=point, count=count):
                self.killed({"OCTAVO_FAILPOINT": f"{point}:kill:{count}"})
                self.check(complete)

    def test_at_random_instants(self):
        random.seed(SEED)
        for i in range(INSTANTS):
            with self.subTest(i=i):
                self.check(None, self.killed(delay=random.uniform(0, 1)))


if __name__ == "__main__":
    unittest.main()
