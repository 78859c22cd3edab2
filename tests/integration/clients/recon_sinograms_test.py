"""Sinograms that octavo recon prepared and committed are the input of a further octavo recon."""

import json
import os
import unittest

import h5py
import numpy as np

from harness import DaemonTest, octavo

SIZE, ROWS, COUNT = 48, 5, 30


class ReconSinograms(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.daemon.root
        noise = np.random.default_rng(3)
        s, theta = np.arange(SIZE) - 23.5, np.linspace(0, np.pi, COUNT, endpoint=False)[:, None, None]
        shift = s - 4 * np.cos(theta) + np.arange(ROWS)[:, None] * np.sin(theta)
        data = np.exp(-0.05 * np.sqrt(np.maximum(12.0 ** 2 - shift ** 2, 0))) * 20000 + noise.normal(0, 10, (COUNT, ROWS, SIZE))
        with h5py.File(os.path.join(cls.root, "scan.h5"), "w") as file:
            file["exchange/data"] = data.astype(np.uint16)
            file["exchange/data_white"] = np.full((1, ROWS, SIZE), 20000, np.uint16)
            file["exchange/data_dark"] = np.zeros((1, ROWS, SIZE), np.uint16)
            file["exchange/theta"] = np.rad2deg(theta.ravel())

    def recon(self, *arguments, code=0):
        done = self.command("recon", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done.stdout + done.stderr

    def result(self, name):
        return np.load(os.path.join(self.root, name))

    def test_each_format_is_read_again(self):
        flags = ("--center", "23.5", "--algorithm", "fbp")
        self.recon("scan.h5", *flags, "-o", "direct.npy")
        angles = ("--angles", f"0:{180 - 180 / COUNT}:{COUNT}")
        for name in ("s.npy", "s.zarr", "s.h5", "s.tiff"):
            with self.subTest(name):
                self.recon("scan.h5", "--prepare-only", "--pixel-um", "2.5", "-o", name)
                plan = self.recon(name, "--sinograms", *angles, *flags, "--plan")
                self.assertIn(f"{COUNT} projections", plan)
                again = f"again-{name[2:]}.npy"
                self.recon(name, "--sinograms", *angles, *flags, "-o", again)
                np.testing.assert_allclose(self.result(again), self.result("direct.npy"), atol=1e-6)
                with open(os.path.join(self.root, again + ".json")) as file:
                    self.assertEqual(json.load(file)["spacing_um"], [2.5, 2.5, 2.5])
                # Named by the request, the array is still what its metadata say.
                for at, dataset in enumerate({"s.h5": ("volume", "//volume"), "s.zarr": ("0",)}.get(name, ())):
                    self.recon(name, "--sinograms", *angles, *flags, "--data", dataset, "-o", f"named-{at}-{again}")
                    np.testing.assert_allclose(self.result(f"named-{at}-{again}"), self.result("direct.npy"), atol=1e-6)
                # A part of it, rows and projections.
                part = f"part-{name[2:]}.npy"
                self.recon(name, "--sinograms", *angles, *flags, "--rows", "1:5:2", "-o", part)
                np.testing.assert_allclose(self.result(part), self.result("direct.npy")[1:5:2], atol=1e-6)
                # What is missing is named.
                self.assertIn("angles are not given", self.recon(name, "--sinograms", *flags, code=1))
                error = self.recon(name, *angles, *flags, code=1)
                self.assertIn("already_sinograms: is not set", error)
                self.assertIn("--sinograms", error)
                self.assertIn(f"({name} holds line integral values)", error)
        self.recon("s.zarr/0", "--sinograms", *angles, *flags, "-o", "of-array.npy")
        np.testing.assert_allclose(self.result("of-array.npy"), self.result("direct.npy"), atol=1e-6)
        self.recon("scan.h5", "--prepare-only", "--no-log", "-o", "t.zarr")
        self.assertIn("already_sinograms: is set", self.recon("t.zarr", "--sinograms", *angles, *flags, code=1))
        self.recon("t.zarr", "--transmissions", *angles, *flags, "-o", "of-transmissions.npy")
        np.testing.assert_allclose(self.result("of-transmissions.npy"), self.result("direct.npy"), atol=1e-5)
        self.assertIn("is reconstructed already", self.recon("direct.npy", "--sinograms", "--angles", f"0:90:{ROWS}", *flags, code=1))

    def test_npy_whose_metadata_are_gone_or_of_another_file(self):
        flags = ("--sinograms", "--center", "23.5", "--algorithm", "fbp")
        angles = ("--angles", f"0:{180 - 180 / COUNT}:{COUNT}")
        self.recon("scan.h5", "--prepare-only", "-o", "gone.npy")
        side = os.path.join(self.root, "gone.npy.json")
        os.rename(side, side + ".away")
        # The first axis counts as angles then, of which there are others.
        self.assertIn("allowed", self.recon("gone.npy", *flags, *angles, "--plan", code=1))
        job = self.client.submit_job(octavo.tomography("gone.npy", angles=np.linspace(0, 2, ROWS), center=23.5, prepare=octavo.preparation(already_sinograms=True))).wait()
        self.assertIn("There is no gone.npy.json, which would say what the axes of gone.npy are; taken as [angle, row, column]", [line.text for line in job.message.log_lines])
        os.rename(side + ".away", side)
        np.save(os.path.join(self.root, "gone.npy"), np.zeros((ROWS, COUNT, 9), np.float32))
        self.assertRegex(self.recon("gone.npy", *flags, *angles, "--plan", code=1), r"gone\.npy\.json is of a file of \d+ bytes; allowed \d+, as gone\.npy has; where the file has been replaced, remove this one")
        np.save(os.path.join(self.root, "square.npy"), np.ones((COUNT, COUNT, 48), np.float32))
        self.assertIn("It has as many angles as rows: of sinograms [row, angle, column]", self.recon("square.npy", *flags, *angles, "--plan"))


if __name__ == "__main__":
    unittest.main()
