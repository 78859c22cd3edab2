"""The examples of the documents run unchanged: the recipes in Python, Node, Go."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import zlib

import h5py
import numpy as np

import node_client
from harness import BUILD, SOURCE, DaemonTest

CLIENT = os.path.join(SOURCE, "client")


class Examples(DaemonTest):
    flags = ("--device.backend", "host", "--device.host_devices", "2")  # replicas of the buffers

    def run_example(self, command, **environment):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "OCTAVO_ADDRESS": self.daemon.address, **environment})
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout.splitlines()

    def recipe(self, code):
        """Runs Python code unchanged; returns its output lines and the scan that it
        submitted."""
        return self.recipe_of([sys.executable, "-c", code], PYTHONPATH=os.path.join(BUILD, "python"))

    def recipe_of(self, command, **environment):
        before = {scan.name for scan in self.client.scans()}
        lines = self.run_example(command, **environment)
        (scan,) = (s.name for s in self.client.scans() if s.name not in before)
        return lines, scan

    def test_the_recipes(self):
        with open(os.path.join(CLIENT, "python", "RECIPES.md")) as page:
            recipes = re.findall(r"```python\n(.*?)```", page.read(), re.S)
        self.assertEqual(len(recipes), 4)
        for recipe in recipes:
            self.assertLessEqual(len([line for line in recipe.splitlines() if line.strip()]), 10)
        chain, projection, field, buffer = recipes
        lines, scan = self.recipe(field)
        volumes = {v.index: v.name for v in self.client.volumes(scan) if not v.derived_from}
        told = {int(line.split(" ")[0]): line for line in lines}
        self.assertEqual(set(told), set(volumes))
        for index, name in volumes.items():
            self.assertEqual(told[index], f"{index} (128, 256) {self.client.read(name).max()}")
        for code in (chain, projection):
            lines, scan = self.recipe(code)
            index, rows, columns, brightest = map(int, re.fullmatch(r"(\d+) \((\d+), (\d+)\) (\d+)", lines[-1]).groups())
            self.assertEqual((index, rows, columns), (3, 128, 256), self.client.scan(scan).reason)  # the last volume is always delivered
            volume = next(v for v in self.client.volumes(scan) if v.index == index)
            self.assertEqual(brightest, self.client.read(volume.name).max())
        lines, scan = self.recipe(buffer)
        saved = lines[-1].split(" ", 1)[1]
        self.assertTrue(os.path.isdir(saved), saved)
        self.assertEqual(self.client.volumes(scan), [])
        end = self.client.scan(scan)
        self.assertEqual((end.volumes_done, end.volumes_committed, end.volumes_discarded), (6, 1, 5))

    def test_the_readme(self):
        with open(os.path.join(SOURCE, "README.md")) as page:
            python = re.findall(r"```python\n(.*?)```", page.read(), re.S)[0]  # the others show fragments
        with open(os.path.join(CLIENT, "python", "README.md")) as page:
            self.assertEqual(re.findall(r"## A first program\n```python\n(.*?)```", page.read(), re.S), [python])
        for run in (lambda: self.recipe(python), lambda: self.recipe_of([os.path.join(BUILD, "examples", "readme_example")])):
            lines, scan = run()
            self.assertGreaterEqual(len(lines), 1)
            self.assertRegex(lines[-1], r"^\d+ \d+")
            self.assertEqual(self.client.scan(scan).volumes_committed, 1)
            self.assertTrue(os.path.isdir(os.path.join(self.daemon.root, "mouse_00000.ome.zarr")), os.listdir(self.daemon.root))
            shutil.rmtree(os.path.join(self.daemon.root, "mouse_00000.ome.zarr"))

    def fragments(self, page, *sections):
        """The first Python code of each of these sections of a page."""
        with open(os.path.join(CLIENT, "python", page)) as file:
            text = file.read()
        found = []
        for section in sections:
            found.append(re.search(rf"{re.escape(section)}.*?```python\n(.*?)```", text, re.S)[1])
        return found

    def program(self, prelude, code):
        return self.run_example([sys.executable, "-c", f"import numpy as np\nimport octavo\n"
                                 f"client = octavo.Client()\n{prelude}\n{code}"], PYTHONPATH=os.path.join(BUILD, "python"))

    def test_the_python_guide(self):
        objects, buffers, jobs = self.fragments("README.md", "## Objects", "## Buffers", "## Raw spectra and jobs")
        lines = self.program("", objects)
        self.assertEqual(len(lines), 5)
        for line in lines[:4]:
            self.assertRegex(line, r"^<Volume volumes/[0-9a-z-]+ HELD \[256, 512, 512\] U16 128 MiB>$")
        self.assertRegex(lines[4], r"/best\.npy COMMITTED$")
        self.program("array = np.zeros((4, 8), 'c8')\nother = array + 1", buffers + "assert made.read().shape == (4, 8)\nmade.destroy(); buffer.destroy()")
        raw = ("def spectra(**of):\n"
               "    scan = client.submit_scan(octavo.simulated(seed=1, fast=True, **of), octavo.raster(64, 16, volumes=1), retention=dict(hold_raw=True)).wait()\n"
               "    return next(v for v in scan.volumes() if v.raw)\n"
               "raw, mirror = spectra(), spectra(layers=[dict(depth_um=300, reflectivity=0.1)], fixed_pattern=-1)")
        lines = self.program(raw, jobs + "print(focus.a2, len(axis.index))")
        self.assertRegex(lines[-2], r"^REPROCESS 1\.0 ")
        self.assertRegex(lines[-1], r"^-?[0-9.e-]+ 1024$")

    def test_the_tomography_guide(self):
        with h5py.File(os.path.join(self.daemon.root, "tooth.h5"), "w") as file:
            entry = file.create_group("entry")
            entry.attrs["NX_class"] = "NXentry"
            entry["definition"] = "NXtomo"
            angles = np.linspace(0, 180, 60, endpoint=False)
            columns = np.arange(64)
            disc = np.maximum(0, 8 ** 2 - (columns - 30 - 12 * np.cos(np.radians(angles))[:, None]) ** 2) ** 0.5  # beside the axis, at column 30
            frames = np.full((62, 2, 64), 40000.0)
            frames[1:-1] *= np.exp(-0.05 * disc)[:, None]
            frames[-1] = 0
            entry.create_dataset("instrument/detector/data", data=frames.astype(np.uint16))
            entry["instrument/detector/image_key"] = np.array([1] + [0] * 60 + [2])
            entry["sample/rotation_angle"] = np.concatenate([[0], angles, [180]])
        (job,) = self.fragments("TOMOGRAPHY.md", "and a search for the axis:")
        lines = self.program("", job + "print(volume.state, volume.axes, abs(job.tomography.centers[0] - 30) < 0.5)")
        self.assertRegex(lines[-2], r"^RECONSTRUCT 1\.0 ")
        self.assertEqual(lines[-1], "COMMITTED ['z', 'y', 'x'] True")
        self.assertTrue(os.path.isdir(os.path.join(self.daemon.root, "tooth.ome.zarr")), os.listdir(self.daemon.root))

    def check_story(self, lines, frames_have):
        """Checks the output of the Node and the Go example against the server's state."""
        told = [json.loads(line) for line in lines]
        frames = [t for t in told if "frame" in t]
        self.assertGreaterEqual(len(frames), 1)
        for frame in frames:
            self.assertEqual(frame["shape"], [32, 64])
            self.assertIn(frames_have, frame)
        (ended,), (volume,), (committed,), (error,) = ([t for t in told if key in t] for key in ("scan", "volume", "committed", "error"))
        self.assertEqual((ended["state"], ended["volumes"]), ("SCAN_STATE_DONE", 3))
        voxels = np.load(committed["committed"])
        self.assertEqual(volume["shape"], list(voxels.shape))
        self.assertEqual(volume["sum"], voxels.sum(dtype=np.uint64))
        self.assertEqual(error["reason"], "VOLUME_GONE")
        (mip,) = (t for t in told if "mip" in t)
        self.assertEqual(mip["shape"], [32, 64, 1])
        self.assertEqual(mip["sum"], voxels.max(axis=2).sum(dtype=np.uint64))
        self.assertEqual(self.client.volumes(ended["scan"]), [])
        return frames

    def test_node(self):
        node, work = node_client.install(self)
        pictures = os.path.join(self.daemon.directory, "pictures")
        os.makedirs(pictures)
        lines = self.run_example([node, os.path.join(work, "example.mjs"), self.daemon.address, pictures], OCTAVO_PROTOS=os.path.join(SOURCE, "proto"))
        for frame in self.check_story(lines, "file"):
            with open(frame["file"], "rb") as file:
                data = file.read()
            self.assertTrue(data.startswith(b"\x89PNG"))
            at = data.find(b"IDAT")
            length = int.from_bytes(data[at - 4:at], "big")
            self.assertEqual(len(zlib.decompress(data[at + 4:at + 4 + length])), 32 * (1 + 3 * 64))

    def test_go(self):
        program = os.path.join(BUILD, "examples", "octavo-go-example")
        if not os.path.exists(program):
            self.skipTest("not built: Debian's Go packages are missing (deploy/install-deps --examples)")
        for frame in self.check_story(self.run_example([program]), "brightest"):
            self.assertGreater(frame["brightest"], 0)


if __name__ == "__main__":
    unittest.main()
