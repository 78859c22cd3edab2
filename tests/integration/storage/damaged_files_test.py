"""Files that crash the HDF5 library: the daemon answers with an error and continues."""

import os
import shutil
import struct
import tempfile

import grpc
import h5py
import numpy as np

from harness import BUILD, Daemon, DaemonTest, octavo

ANGLES, ROWS, COLUMNS = 24, 4, 32


class DamagedFiles(DaemonTest):
    def nxtomo(self, name, text_bytes=None):
        """text_bytes: the length that the file gives for the text of its definition; the library
        believes it."""
        path = os.path.join(self.daemon.root, name)
        with h5py.File(path, "w") as file:
            entry = file.create_group("entry")
            entry.attrs["NX_class"] = "NXentry"
            entry["definition"] = "NXtomo"
            detector = entry.create_group("instrument/detector")
            frames = np.random.default_rng(1).integers(1, 60000, (ANGLES, ROWS, COLUMNS)).astype(np.uint16)
            detector.create_dataset("data", data=frames, chunks=(1, ROWS, COLUMNS), compression="gzip")
            detector["image_key"] = np.array([1] + [0] * (ANGLES - 3) + [2, 2])
            entry["sample/rotation_angle"] = np.linspace(0, 180, ANGLES)
        if text_bytes is not None:
            with open(path, "r+b") as file:
                file.seek(file.read().index(b"NXtomo", 0) - 8)  # the text's length in the global heap
                file.write(struct.pack("<Q", text_bytes))
        return name

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def children(self):
        tasks = f"/proc/{self.daemon.process.pid}/task"
        found = ""
        for task in os.listdir(tasks):
            try:
                with open(os.path.join(tasks, task, "children")) as file:
                    found += file.read()
            except FileNotFoundError:  # the thread has ended
                pass
        return found.split()

    def test_a_file_that_crashes_the_library(self):
        self.assertTrue(os.access(os.path.join(BUILD, "bin", "octavo-probe"), os.X_OK))
        job = self.client.wait_job(self.client.submit_job(octavo.tomography(self.nxtomo("good.nxs"))).name)
        held = self.client.read(job.volume_names[0])
        self.assertEqual(held.shape, (ROWS, COLUMNS, COLUMNS))
        before = self.descriptors()
        for text_bytes in (4096, 17158, 1 << 40):
            name = self.nxtomo(f"killer{text_bytes}.nxs", text_bytes)
            for ask in (self.client.plan_job, self.client.submit_job):
                with self.subTest(text_bytes=text_bytes, ask=ask.__name__), self.assertRaises(octavo.OctavoError) as caught:
                    ask(octavo.tomography(name))
                self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.DATA_LOSS, "DAMAGED_FILE"))
                self.assertIn(f"{name}: the file is damaged: the HDF5 library crashes on it", str(caught.exception))
        self.assertEqual(self.children(), [])
        self.assertEqual(self.descriptors(), before)
        self.assertIsNone(self.daemon.process.poll())
        self.assertEqual(self.daemon.text().count("HDF5 file refused"), 6)
        self.assertNotIn("HDF5 files are refused", self.daemon.text())
        # Held volumes stay held, and the next job runs.
        np.testing.assert_array_equal(self.client.read(job.volume_names[0]), held)
        again = self.client.wait_job(self.client.submit_job(octavo.tomography("good.nxs")).name)
        np.testing.assert_array_equal(self.client.read(again.volume_names[0]), held)


class WithoutTheProbe(DamagedFiles):
    """octavod was copied to a folder that has no octavo-probe."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="octavo-alone-")
        self.addCleanup(shutil.rmtree, self.folder)
        program = shutil.copy(os.path.join(BUILD, "bin", "octavod"), self.folder)
        self.alone = Daemon(program=program)
        self.addCleanup(self.alone.remove)
        self.addCleanup(self.alone.stop)

    def test_a_file_that_crashes_the_library(self):
        daemon, where = self.alone, os.path.join(self.folder, "octavo-probe")
        good, killer = (os.path.join(self.daemon.root, self.nxtomo(*file)) for file in (("good.nxs",), ("killer.nxs", 1 << 40)))
        for path in (good, killer):
            shutil.copy(path, daemon.root)
        self.assertIn("HDF5 files are refused", daemon.text())
        with daemon.client() as client:
            self.assertEqual(len([line for line in client.info().recovered if where in line and "HDF5 files are not read" in line]), 1)
            for name in ("good.nxs", "killer.nxs"):
                for ask in (client.plan_job, client.submit_job):
                    with self.subTest(name=name, ask=ask.__name__), self.assertRaises(octavo.OctavoError) as caught:
                        ask(octavo.tomography(name))
                    self.assertEqual(caught.exception.code, grpc.StatusCode.FAILED_PRECONDITION)
                    self.assertIn(f"does not start: {where} (No such file or directory)", str(caught.exception))
            self.assertIsNone(daemon.process.poll())
            # Other files are read all the same.
            np.save(os.path.join(daemon.root, "counts.npy"), np.full((8, ROWS, COLUMNS), 0.5, np.float32))
            client.plan_job(octavo.tomography("counts.npy", angles=np.linspace(0, np.pi, 8, endpoint=False), prepare=octavo.preparation(ignore_fields=True)))
            # Nor does it have to start anew once somebody installs the program.
            shutil.copy(os.path.join(BUILD, "bin", "octavo-probe"), where)
            client.plan_job(octavo.tomography("good.nxs"))
            self.assertFalse([line for line in client.info().recovered if where in line])


if __name__ == "__main__":
    import unittest

    unittest.main()
