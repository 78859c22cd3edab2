"""The octavo command line against a real daemon: output a person and a program can use, exit codes."""

import json
import os
import subprocess
import unittest

import numpy as np

from harness import BUILD, DaemonTest, octavo
from readers import READERS


class CommandLine(DaemonTest):
    def octavo(self, *arguments, address=None):
        done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", address or self.daemon.address, *arguments], capture_output=True,
                              text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def fine(self, *arguments):
        code, out, error = self.octavo(*arguments)
        self.assertEqual(code, 0, error)
        return out

    def test_a_whole_day(self):
        self.assertEqual(self.fine("health"), "SERVING\n")
        self.assertIn("backend host", self.fine("info"))
        self.assertIn("budget", self.fine("devices"))
        plan = self.fine("scan", "plan", "--fast", "--ascans", "64", "--bscans", "8", "--volumes", "2", "--samples", "256")
        self.assertIn("fits devices/0", plan)
        self.assertIn("inverse DFT of 256", plan)
        out = self.fine("scan", "submit", "--fast", "--ascans", "64", "--bscans", "8", "--volumes", "3", "--samples", "256", "--title", "day", "--watch")
        scan = out.splitlines()[0]
        self.assertTrue(scan.startswith("scans/"))
        self.assertIn("DONE", out)
        self.assertIn(scan, self.fine("scan", "list"))
        volumes = [json.loads(line) for line in self.fine("--json", "volume", "list", "--scan", scan).splitlines()]
        self.assertEqual([v["state"] for v in volumes], ["HELD"] * 3)
        target = os.path.join(self.daemon.directory, "v.npy")
        self.fine("volume", "read", volumes[0]["name"], "-o", target)
        np.testing.assert_array_equal(np.load(target), self.client.read(volumes[0]["name"]))
        self.fine("volume", "read", volumes[0]["name"], "-o", target, "--box", "1,2,3,4,5,6")
        np.testing.assert_array_equal(np.load(target), self.client.read(volumes[0]["name"])[1:5, 2:7, 3:9])
        self.assertIn(".ome.zarr", self.fine("volume", "commit", volumes[0]["name"]))
        array = self.client.read(volumes[2]["name"])
        uri = self.fine("volume", "commit", volumes[2]["name"], "cli", "--format", "zarr", "--pyramid", "3", "--codec", "blosc-zstd", "--shuffle", "byte").split()[0]
        self.assertEqual(uri, os.path.join(self.daemon.root, "cli.ome.zarr"))
        self.assertIn("x.nii", self.fine("convert", uri, os.path.join(self.daemon.directory, "x.nii")))
        np.testing.assert_array_equal(READERS["nifti"](os.path.join(self.daemon.directory, "x.nii")).array, array)
        self.assertIn("DISCARDED", self.fine("volume", "discard", volumes[1]["name"]))
        self.assertIn("COMMITTED", self.fine("volume", "show", volumes[0]["name"]))
        pictures = os.path.join(self.daemon.directory, "png")
        self.fine("watch", "--scan", scan, "--count", "1", "--png-dir", pictures)
        with open(os.path.join(pictures, os.listdir(pictures)[0]), "rb") as picture:
            self.assertTrue(picture.read().startswith(b"\x89PNG"))
        self.fine("watch", "--scan", scan, "--count", "1", "--jpeg-dir", pictures, "--colour-map", "inferno", "--percentiles", "1", "99", "--scale-bar",
                  "--max-width", "32")
        with open(os.path.join(pictures, max(name for name in os.listdir(pictures) if name.endswith(".jpg"))), "rb") as picture:
            self.assertTrue(picture.read().startswith(b"\xff\xd8\xff"))
        self.assertIn("MIP", self.fine("watch", "--scan", scan, "--count", "1"))

    def test_exit_codes(self):
        self.assertEqual(self.octavo("volume", "show", "volumes/none")[0], 1)
        self.assertEqual(self.octavo("nonsense")[0], 2)
        self.assertEqual(self.octavo("scan", "submit", "--dtype", "f1000")[0], 2)
        self.assertEqual(self.octavo("watch", "--scale-bar")[0], 2)  # of files only
        self.assertEqual(self.octavo("watch", "--png-dir", "/proc/none", "--levels", "3", "1")[0], 1)
        self.assertEqual(self.octavo("scan", "submit", "--format", "f1000")[0], 2)
        self.assertEqual(self.octavo("volume", "commit", "volumes/none", "--format", "f1000")[0], 2)
        self.assertEqual(self.octavo("volume", "commit", "volumes/none", "--codec", "f1000")[0], 2)
        self.assertEqual(self.octavo("convert", "/nowhere/a.npy", "b.nii")[0], 1)
        self.assertEqual(self.octavo("convert", "/nowhere/a.npy")[0], 2)
        code, _, error = self.octavo("--timeout", "2", "info", address="127.0.0.1:1")
        self.assertEqual(code, 3)
        self.assertIn("is octavod running", error)
        code, _, error = self.octavo("scan", "submit", "--ascans", "100000", "--bscans", "100000")
        self.assertEqual(code, 1)
        self.assertIn("[", error)
        code, out, _ = self.octavo("--json", "volume", "show", "volumes/none")
        self.assertEqual(json.loads(out)["code"], 5)


if __name__ == "__main__":
    unittest.main()
