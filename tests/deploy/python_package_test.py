"""`pip install client/python` gives a self-contained package: from a clean copy of the repository
and from a source distribution, without a network, with Debian's pip. It leaves no files in the
source tree."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))
from harness import SOURCE, DaemonTest  # noqa: E402

PYTHON = "/usr/bin/python3"
SCAN = """
import octavo, sys
from octavo.linumpy.gpu.interpolation import resize
from octavo.linumpy.io.zarr import read_omezarr
from octavo.linumpy.microscope.oct import OCT
from octavo.linumpy.mosaic.grid import aip
with octavo.Client(sys.argv[1]) as client:
    scan = client.wait(client.submit_scan(octavo.simulated(seed=1, fast=True), octavo.raster(16, 8, volumes=1), samples=256))
    print(octavo.__file__, *client.read(scan.volume_names[0]).shape)
"""


class PythonPackage(DaemonTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="octavo-package-")
        self.addCleanup(shutil.rmtree, self.folder)
        for folder in ("client/python", "proto"):
            shutil.copytree(os.path.join(SOURCE, folder), os.path.join(self.folder, folder), ignore=shutil.ignore_patterns("__pycache__", "*_pb2*.py"))
        self.package = os.path.join(self.folder, "client", "python")

    def run_python(self, *arguments, check=True, **options):
        environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_ROOT_USER_ACTION": "ignore", "PYTHONDONTWRITEBYTECODE": "1", **options.pop("env", {})}
        done = subprocess.run([PYTHON, *arguments], capture_output=True, text=True, timeout=200, env=environment, **options)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done

    def pip(self, source, target, **options):
        return self.run_python("-m", "pip", "install", "--no-build-isolation", "--no-deps", "--target", target, source, cwd=self.folder, **options)

    def files(self):
        return sorted(os.path.join(at, name) for at, _, names in os.walk(self.folder) for name in names)

    def scans(self, target):
        told = self.run_python("-c", SCAN, self.daemon.address, cwd="/", env={"PYTHONPATH": target}).stdout.split()
        for typed in ("py.typed", "v1/volume_pb2.pyi"):  # for checkers of types
            self.assertTrue(os.path.exists(os.path.join(target, "octavo", typed)), typed)
        self.assertEqual(told[:3], [os.path.join(target, "octavo", "__init__.py"), "8", "16"])

    def test_from_a_copy_of_the_repository(self):
        before = self.files()
        target = tempfile.mkdtemp(prefix="octavo-target-")
        self.addCleanup(shutil.rmtree, target)
        self.pip("client/python", target)
        self.assertEqual(self.files(), before)
        self.scans(target)

    def test_from_a_source_distribution(self):
        self.run_python("-c", "import sys; sys.path.insert(0, '.'); import build_backend; build_backend.build_sdist(sys.argv[1])", self.folder, cwd=self.package)
        (archive,) = (name for name in os.listdir(self.folder) if name.endswith(".tar.gz"))
        shutil.rmtree(self.package)
        shutil.rmtree(os.path.join(self.folder, "proto"))
        target = os.path.join(self.folder, "target")
        self.pip(archive, target)
        self.scans(target)

    def test_what_is_missing_is_said_in_one_sentence(self):
        path = os.path.join(self.folder, "bin")
        os.makedirs(path)
        os.symlink("/bin/sh", os.path.join(path, "sh"))
        target = os.path.join(self.folder, "target")
        done = self.pip("client/python", target, check=False, env={"PATH": path})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("octavo: neither protoc with grpc_python_plugin (Debian: protobuf-compiler, protobuf-compiler-grpc)", done.stdout + done.stderr)
        shutil.rmtree(os.path.join(self.folder, "proto"))
        done = self.pip("client/python", target, check=False)
        self.assertIn("octavo: the protos are missing", done.stdout + done.stderr)
        self.assertFalse(os.path.exists(os.path.join(target, "octavo")))


if __name__ == "__main__":
    unittest.main()
