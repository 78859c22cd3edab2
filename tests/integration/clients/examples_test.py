"""The examples of the documents run unchanged: the recipes in Python, Node, Go."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import zlib

import numpy as np

import node_client
from harness import BUILD, SOURCE, DaemonTest

CLIENT = os.path.join(SOURCE, "client")


class Examples(DaemonTest):
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
        for run in (lambda: self.recipe(python), lambda: self.recipe_of([os.path.join(BUILD, "examples", "readme_example")])):
            lines, scan = run()
            self.assertGreaterEqual(len(lines), 1)
            self.assertRegex(lines[-1], r"^\d+ \d+")
            self.assertEqual(self.client.scan(scan).volumes_committed, 1)
            self.assertTrue(os.path.isdir(os.path.join(self.daemon.root, "mouse_00000.ome.zarr")), os.listdir(self.daemon.root))
            shutil.rmtree(os.path.join(self.daemon.root, "mouse_00000.ome.zarr"))

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
