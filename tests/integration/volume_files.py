"""Reads volume files with volume_input_tool, which opens them as the server and `octavo convert` do. Shapes, types and boxes are
random; OCTAVO_TEST_SEED repeats a seed."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import unittest

import numpy as np

BUILD = os.environ["OCTAVO_BUILD_DIR"]
SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % 2**32))


def type_name(dtype):
    dtype = np.dtype(dtype)
    return {"u": "u", "i": "i", "f": "f", "c": "c", "b": "u"}[dtype.kind] + str(8 * dtype.itemsize)


class VolumeFiles(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(SEED)
        self.folder = tempfile.mkdtemp(prefix="octavo-inputs-")
        self.addCleanup(shutil.rmtree, self.folder, True)

    def path(self, name):
        return os.path.join(self.folder, name)

    @classmethod
    def start_tool(cls):
        cls.tool = subprocess.Popen([os.path.join(BUILD, "bin", "volume_input_tool")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @classmethod
    def setUpClass(cls):
        cls.start_tool()

    @classmethod
    def tearDownClass(cls):
        cls.tool.stdin.close()
        code = cls.tool.wait(60)
        cls.tool.stdout.close()
        assert code == 0, f"volume_input_tool ended with {code}"

    def run_tool(self, path, **options):
        overdue = threading.Timer(60, self.tool.kill)
        overdue.start()
        self.tool.stdin.write(json.dumps([path, options]) + "\n")
        self.tool.stdin.flush()
        answer = self.tool.stdout.readline()
        overdue.cancel()
        if not answer:
            code = self.tool.wait(60)
            self.tool.stdin.close()
            self.tool.stdout.close()
            self.start_tool()  # for the tests to come
            self.fail(f"volume_input_tool ended with {code}: {path}, {options}")
        return json.loads(answer)

    def read(self, path, dtype, **options):
        """The description, and all of the array (or the box) with the extents of its axes."""
        out = self.path("out.raw")
        told = self.run_tool(path, out=out, **options)
        self.assertNotIn("error", told, told)
        shape = [axis["extent"] for axis in told["axes"]]
        if "box" in options:
            shape = options["box"]["count"]
        if "volume" in options:
            shape = told["volume"]["shape"]
        else:
            self.assertEqual(told["type"], type_name(dtype))
        return told, np.fromfile(out, np.dtype(dtype).newbyteorder("<")).reshape(shape)

    def refused(self, path, text, **options):
        told = self.run_tool(path, **options)
        self.assertIn("error", told, told)
        self.assertIn(text, told["error"])
        return told

    def array(self, dtype, shape):
        dtype = np.dtype(dtype)
        bits = self.random.integers(0, 256, [*shape, dtype.itemsize], np.uint8)
        if dtype.kind in "fc":
            values = self.random.normal(size=shape) * 100
            return (values + 1j * self.random.normal(size=shape) if dtype.kind == "c" else values).astype(dtype)
        return np.ascontiguousarray(bits).view(dtype.newbyteorder("<")).reshape(shape).astype(dtype)

    def box(self, shape):
        start = [int(self.random.integers(0, n)) for n in shape]
        count = [int(self.random.integers(1, n - s + 1)) for n, s in zip(shape, start)]
        return {"start": start, "count": count}, tuple(slice(s, s + c) for s, c in zip(start, count))

    def check(self, path, wanted, squeeze=False, **options):
        """All of it, and some boxes."""
        told, read = self.read(path, wanted.dtype, **options)
        np.testing.assert_array_equal(read.squeeze() if squeeze else read, wanted.squeeze() if squeeze else wanted)
        for _ in range(3):
            box, slices = self.box(read.shape)
            _, part = self.read(path, wanted.dtype, box=box, **options)
            np.testing.assert_array_equal(part, read[slices])
        return told

    def shape(self, rank=3, most=40, least=1):
        return tuple(int(n) for n in self.random.integers(least, most, rank))
