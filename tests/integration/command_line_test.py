"""The octavo command line against a real daemon: output a person and a program can use, exit codes."""

import json
import os
import signal
import subprocess
import unittest

import numpy as np

from harness import BUILD, DaemonTest, octavo, until
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
        plan = self.fine("scan", "plan", "--source", "simulated", "--fast", "--ascans", "64", "--bscans", "8", "--volumes", "2", "--samples", "256")
        self.assertIn("fits devices/0", plan)
        self.assertIn("inverse DFT of 256", plan)
        out = self.fine("scan", "submit", "--source", "simulated", "--fast", "--ascans", "64", "--bscans", "8", "--volumes", "3", "--samples", "256", "--title", "day", "--watch")
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

    def test_what_is_scanned_is_told_at_submit(self):
        """A path means replay. The name alone is on standard output, for scripts."""
        volume, name = 16 * 8, "told.u16"
        np.arange((3 * volume + 5) * 256, dtype="<u2").tofile(os.path.join(self.daemon.root, name))
        geometry = ("--samples", "256", "--ascans", "16", "--bscans", "8", "--volumes", "2")
        code, out, error = self.octavo("scan", "submit", "--path", name, *geometry, "--title", "mouse 7")
        self.assertEqual(code, 0, error)
        self.assertRegex(out, r"^scans/\S+\n$")
        self.assertIn(f"source: replay of '{name}', which holds {3 * volume + 5} records of 256 samples (u16); the scan takes {2 * volume}\n", error)
        self.assertIn("title: mouse 7\n", error)
        self.assertIn(f"warning: The file holds {3 * volume + 5} records; the scan takes {2 * volume} of them: {volume + 5} are left out.\n", error)
        self.assertEqual(self.client.scan(out.strip()).spec.replay.path, name)
        code, out, error = self.octavo("scan", "submit", "--source", "simulated", "--seed", "7", "--fast", *geometry)
        self.assertEqual(code, 0, error)
        self.assertIn("source: simulated with seed 7, records of 256 samples (u16); the scan takes 256\n", error)
        self.assertIn("source: simulated with seed 7", self.fine("scan", "show", out.strip()))
        spec = os.path.join(self.daemon.directory, "spec.json")
        with open(spec, "w") as file:
            file.write('{"simulated": {"seed": 1}, "title": "of the file", "acquisition": {"samples_per_record": 256}}')
        code, out, error = self.octavo("scan", "submit", "--json-spec", spec, "--seed", "3", "--fast", "--ascans", "16", "--bscans", "8")
        self.assertEqual(code, 0, error)
        self.assertIn("source: simulated with seed 3, records of 256 samples (u16); the scan takes 128\n", error)
        self.assertIn("title: of the file\n", error)
        code, out, error = self.octavo("scan", "submit", "--json-spec", spec, "--path", name, "--ascans", "16", "--bscans", "8")
        self.assertEqual(code, 0, error)
        self.assertIn("source: replay of", error)

    def test_a_file_that_the_server_does_not_reach_is_pushed(self):
        """The same voxels, plan and warnings as where the server reads it itself."""
        samples, volume = 256, 16 * 8
        random = np.random.default_rng(5)
        records = (2000 + 500 * np.cos(np.arange(samples) * 0.3) + random.normal(0, 20, (3 * volume + 5, samples))).astype("<u2")
        outside = os.path.join(self.daemon.directory, "outside")
        os.makedirs(outside, exist_ok=True)
        for folder in (self.daemon.root, outside):
            records.tofile(os.path.join(folder, "in.u16"))
            np.save(os.path.join(folder, "in.npy"), records)
            np.save(os.path.join(folder, "channels.npy"), np.stack([records, records[::-1]], 2))
        geometry = ("--ascans", "16", "--bscans", "8", "--background", "none")

        def scan(path, *flags, where=None):
            done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "scan", "submit", "--path", path, *geometry, *flags],
                                  capture_output=True, text=True, timeout=60, cwd=where)
            self.assertEqual(done.returncode, 0, done.stderr)
            ended = self.client.wait(done.stdout.strip())
            return ended, [self.client.read(v.name) for v in self.client.volumes(ended.name)], done.stderr

        for name, flags in (("in.u16", ("--samples", "256")), ("in.npy", ()), ("channels.npy", ("--channels", "2", "--channel", "1"))):
            for more, count in ((("--volumes", "3"), 3), (("--volumes", "5"), 4), (("--volumes", "5", "--loops", "2"), 5), (("--volumes", "4", "--loops", "0"), 4)):
                with self.subTest(name, more=more):
                    near, expected, _ = scan(name, *flags, *more)
                    path, where = (name, outside) if count == 5 else (os.path.join(outside, name), None)
                    if where is not None:
                        os.rename(os.path.join(self.daemon.root, name), os.path.join(self.daemon.root, "away"))
                    try:
                        far, voxels, error = scan(path, *flags, *more, where=where)
                    finally:
                        if where is not None:
                            os.rename(os.path.join(self.daemon.root, "away"), os.path.join(self.daemon.root, name))
                    self.assertIn(f"the server does not reach '{path}': it is read here and pushed; it holds {len(records)} records of {samples} samples (u16)", error)
                    self.assertEqual((far.state, far.records, far.missing_ascans), (near.state, near.records, near.missing_ascans))
                    self.assertEqual(len(voxels), len(expected))
                    for a, b in zip(voxels, expected):
                        np.testing.assert_array_equal(a, b)
        _, _, error = scan(os.path.join(outside, "in.u16"), "--samples", "256", "--volumes", "2")
        self.assertIn(f"warning: The file holds {len(records)} records; the scan takes {2 * volume} of them: {volume + 5} are left out.", error)
        _, _, error = scan(os.path.join(outside, "in.u16"), "--samples", "256", "--volumes", "4")
        self.assertIn(f"the scan takes {4 * volume}: it ends early", error)
        _, _, error = scan(os.path.join(outside, "in.u16"), "--samples", "256", "--volumes", "1", "--raw-type", "u8")
        self.assertIn("warning: acquisition.raw_type is u8", error.replace("The ", ""))
        plan = self.octavo("scan", "plan", "--path", os.path.join(outside, "in.npy"), *geometry, "--volumes", "3")
        self.assertEqual(plan[0], 0, plan[2])
        self.assertIn("it is read here and pushed", plan[2])
        self.assertIn("source: push, a client sends records of 256 samples (u16); the scan takes 384", plan[1])

    def test_who_interrupts_the_sending_ends_the_scan(self):
        path = os.path.join(self.daemon.directory, "slow.npy")
        np.save(path, np.zeros((4096, 256), np.uint16))
        process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "scan", "submit", "--path", path, "--ascans", "16",
                                    "--bscans", "8", "--volumes", "32", "--rate", "64", "--block", "16"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        name = process.stdout.readline().strip()
        until(lambda: self.client.scan(name).records > 0)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual(self.client.wait(name).reason_code, "CANCELLED")

    def test_exit_codes(self):
        self.assertEqual(self.octavo("volume", "show", "volumes/none")[0], 1)
        self.assertEqual(self.octavo("nonsense")[0], 2)
        self.assertEqual(self.octavo("watch", "--scale-bar")[0], 2)  # of files only
        self.assertEqual(self.octavo("watch", "--png-dir", "/proc/none", "--levels", "3", "1")[0], 1)
        self.assertEqual(self.octavo("volume", "commit", "volumes/none", "--format", "f1000")[0], 2)
        self.assertEqual(self.octavo("volume", "commit", "volumes/none", "--codec", "f1000")[0], 2)
        self.assertEqual(self.octavo("convert", "/nowhere/a.npy", "b.nii")[0], 1)
        self.assertEqual(self.octavo("convert", "/nowhere/a.npy")[0], 2)
        code, _, error = self.octavo("--timeout", "2", "info", address="127.0.0.1:1")
        self.assertEqual(code, 3)
        self.assertIn("is octavod running", error)
        code, _, error = self.octavo("scan", "submit", "--source", "simulated", "--ascans", "100000", "--bscans", "100000")
        self.assertEqual(code, 1)
        self.assertIn("[", error)
        code, out, _ = self.octavo("--json", "volume", "show", "volumes/none")
        self.assertEqual(json.loads(out)["code"], 5)


if __name__ == "__main__":
    unittest.main()
