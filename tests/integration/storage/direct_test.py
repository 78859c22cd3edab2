"""Files straight into devices: what is measured of a storage root, told and left behind; imports by every way, with cuFile played by a
library of the tests; cancelled, failed and killed in the middle."""

import json
import os
import re
import signal
import subprocess
import time
import unittest
import urllib.request

import grpc
import numpy as np

from harness import BUILD, Daemon, held_bytes, octavo, until
from octavo.v1 import system_pb2, system_pb2_grpc
from zarr_writers import write_v3

SHIM = os.path.join(BUILD, "tests", "lib", "libcufile_shim.so")
GIVEN = dict(axes=["z", "y", "x"], spacing_um={"x": 1, "y": 1, "z": 1})


class Direct(unittest.TestCase):
    def start(self, *flags, shim=None, **more):
        environment = {} if shim is None else {"OCTAVO_TEST_CUFILE": SHIM, "OCTAVO_CUFILE_SHIM": shim}
        self.daemon = Daemon(*flags, environment={**environment, **more.pop("environment", {})}, **more)
        self.addCleanup(self.daemon.remove)
        self.client = self.daemon.client()
        self.addCleanup(self.client.close)
        return self.daemon

    def root(self, path=None):
        return next(root for root in self.client.info().storage if root.path == (path or self.daemon.root))

    def probe(self, root=None, **fields):
        return self.client.probe_storage(root or self.daemon.root, **fields)

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=30) as page:
            return page.read().decode()

    def array(self, mib=24):
        array = np.random.default_rng().integers(0, 65536, (mib * 2, 512, 512), np.uint16)
        np.save(os.path.join(self.daemon.root, "a.npy"), array)
        fd = os.open(os.path.join(self.daemon.root, "a.npy"), os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        return array

    def load(self, wanted, name="a.npy", **fields):
        volume = self.client.import_volume(name, **{**GIVEN, **fields})
        np.testing.assert_array_equal(volume.read(), wanted)
        job = self.client.job(volume.parent)
        volume.discard()
        return job

    def log_of(self, job):
        return "\n".join(line.text for line in job.log_lines)

    def failed(self, code, reason, call):
        with self.assertRaises(octavo.OctavoError) as caught:
            call()
        self.assertEqual((caught.exception.code.name, caught.exception.reason), (code, reason), caught.exception)
        return caught.exception

    # -- what is told

    def test_a_root_is_measured_and_told(self):
        self.start()
        backend = self.root().backend
        self.assertEqual((backend.kind, backend.reason), (0, "not measured yet"))
        self.assertIn(f'octavo_storage_backend{{root="{self.daemon.root}",backend="unmeasured",reason="unmeasured"}} 1', self.metrics())
        self.assertIn(f'octavo_storage_cufile_errors_total{{root="{self.daemon.root}"}} 0', self.metrics())
        array = self.array()
        job = self.load(array)
        backend = self.root().backend
        self.assertIn(backend.kind, (1, 2))
        self.assertGreater(backend.buffered_bytes_per_s, 0)
        self.assertTrue(backend.HasField("probe_time"))
        self.assertIn("read straight to the device", self.log_of(job))
        self.assertRegex(backend.cufile, "no GPU|libcufile|/run/udev|nvidia-fs|compat|slower|WSL|IOMMU|cuFile")
        again = self.probe(size=16 << 20)
        self.assertIn("measured with 16 MiB", again.reason)
        self.assertGreater(again.probe_time.ToNanoseconds(), backend.probe_time.ToNanoseconds())
        self.assertEqual(self.root().backend, again)
        name = {1: "buffered", 2: "direct", 3: "cufile"}[again.kind]
        self.assertRegex(self.metrics(), rf'octavo_storage_backend{{root="{self.daemon.root}",backend="{name}",reason="[a-z_]+"}} 1')
        self.assertEqual(os.listdir(self.daemon.root), ["a.npy"])

    def test_the_command_line(self):
        self.start()

        def run(*arguments, code=0):
            made = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, *arguments], capture_output=True, text=True,
                                  timeout=120)
            self.assertEqual(made.returncode, code, made.stderr)
            return made
        self.assertIn("buffered - not measured yet", run("info").stdout)
        self.assertRegex(run("storage", "probe", "--bytes", "16MiB").stdout, f"^{self.daemon.root}: (buffered|direct) - measured with 16 MiB: buffered .* GB/s")
        shown = json.loads(run("--json", "storage", "probe", self.daemon.root, "--bytes", "16MiB").stdout)
        self.assertGreater(shown["backend"]["buffered_bytes_per_s"], 0)
        self.assertEqual((list(shown), shown["root"]), (["root", "backend"], self.daemon.root))
        self.assertIn("no storage root", run("storage", "probe", "/nowhere", code=1).stderr)
        self.assertIn("measured with", run("info").stdout)

    def test_refusals(self):
        self.start()
        self.failed("NOT_FOUND", "NO_FILE", lambda: self.probe("/nowhere"))
        for bytes_ in (1, (16 << 20) - 1, (16 << 30) + 1, -1):
            self.failed("INVALID_ARGUMENT", "BAD_FIELD", lambda: self.probe(size=bytes_))
        self.failed("INVALID_ARGUMENT", "BAD_FIELD", lambda: self.probe(device="devices/77"))

    def test_a_full_disk(self):
        self.start(environment={"OCTAVO_FAILPOINT": "probe_write:errno=28:3"})
        self.failed("RESOURCE_EXHAUSTED", "DISK_FULL", lambda: self.probe(size=64 << 20))
        self.assertEqual(os.listdir(self.daemon.root), [])
        self.assertEqual(self.probe(size=16 << 20).kind in (1, 2), True)
        self.assertEqual(held_bytes(self.client), 0)

    # -- imports

    def test_arrays_of_every_type(self):
        """Also those that volumes do not have, in both byte orders: the numbers travel as bits."""
        self.start()
        random = np.random.default_rng()
        for dtype in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8"):
            for order in "<>":
                with self.subTest(dtype=dtype, order=order):
                    native = np.dtype(dtype)
                    array = random.integers(0, 256, (5, 7, 9 * native.itemsize), np.uint8).view(native)
                    np.save(os.path.join(self.daemon.root, "b.npy"), array.astype(native.newbyteorder(order)))
                    buffer = self.client.import_buffer_from("b.npy", axes=["z", "y", "x"])
                    self.assertEqual(buffer.read().tobytes(), array.tobytes())
                    newest = next(iter(self.client.jobs()))
                    self.assertIn("read straight to the device", self.log_of(self.client.job(newest.name)))
                    buffer.destroy()

    def test_a_caller_that_has_gone_ends_the_measurement(self):
        self.start()
        with grpc.insecure_channel(self.daemon.address) as channel:
            with self.assertRaises(grpc.RpcError) as caught:
                system_pb2_grpc.SystemServiceStub(channel).ProbeStorage(system_pb2.ProbeStorageRequest(root=self.daemon.root, bytes=1 << 30), timeout=0.2)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        # Another one may begin as soon as the first has noticed: long before it would have ended.
        until(self.measured_now, 20)
        self.assertEqual(os.listdir(self.daemon.root), [])
        self.assertEqual(held_bytes(self.client), 0)

    def measured_now(self):
        try:
            return self.probe(size=16 << 20).kind in (1, 2)
        except octavo.OctavoError as error:
            if error.reason != "MEASURING":
                raise
            return False

    def test_ways_that_are_configured(self):
        for way, kind in (("off", 0), ("buffered", 1), ("direct", 2)):
            with self.subTest(way=way):
                self.start("--storage.direct", way)
                array = self.array()
                job = self.load(array)
                self.assertEqual("read straight to the device" in self.log_of(job), way != "off")
                self.assertEqual(self.root().backend.kind, kind)
                self.assertFalse(self.root().backend.HasField("probe_time"))
                self.assertEqual(self.daemon.stop(), 0)

    def test_cufile(self):
        self.start("--storage.direct", "cufile", shim="")
        array = self.array()
        self.assertGreater(int(re.search(r"(\d+) MiB by cuFile", self.log_of(self.load(array))).group(1)), 20)
        backend = self.root().backend
        self.assertEqual((backend.kind, backend.cufile), (3, ""))
        self.assertIn('backend="cufile",reason="configured"} 1', self.metrics())
        # Big-endian numbers, chunk by chunk; another type, a box.
        odd = np.random.default_rng().integers(-30000, 30000, (70, 130, 210)).astype(">i2")
        write_v3(os.path.join(self.daemon.root, "a.zarr"), odd.astype("i2"), (32, 64, 128), compress=False, big=True)
        self.load(odd.astype("i2"), "a.zarr")
        self.load(odd[5:60, 1:, 100:].astype("f4"), "a.zarr", dtype="f32", start=(5, 1, 100), count=(55, 0, 0))

    def test_failures_of_cufile(self):
        self.start("--storage.direct", "cufile", shim="fail_from=60,fail_count=100000")
        array = self.array()
        self.assertEqual(self.probe(size=16 << 20).kind, 3)
        for _ in range(20):
            if self.root().backend.demoted:
                break
            self.array_evicted()
            self.load(array)
        backend = self.root().backend
        self.assertTrue(backend.demoted)
        self.assertNotEqual(backend.kind, 3)
        self.assertGreaterEqual(backend.cufile_errors, 8)
        page = self.metrics()
        self.assertIn('reason="demoted"} 1', page)
        self.assertIn(f'octavo_storage_cufile_errors_total{{root="{self.daemon.root}"}} {backend.cufile_errors}', page)

    def array_evicted(self):
        fd = os.open(os.path.join(self.daemon.root, "a.npy"), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def test_cancelled_on_slow_storage(self):
        self.start("--storage.direct", "cufile", shim="")
        self.array(48)
        self.assertEqual(self.probe(size=16 << 20).kind, 3)
        self.assertEqual(self.daemon.stop(), 0)
        self.start("--storage.direct", "cufile", shim="delay_us=3000000", directory=self.daemon.directory)
        operation = self.client.start_import("a.npy", **GIVEN)
        until(lambda: self.client.job(operation.target).stage == "import")
        time.sleep(0.2)
        begun = time.monotonic()
        self.client.cancel_job(operation.target)
        until(lambda: self.client.job(operation.target).state not in ("QUEUED", "RUNNING", "CANCELLING"))
        self.assertLess(time.monotonic() - begun, 30)
        self.assertEqual(self.client.job(operation.target).state, "CANCELLED")
        until(lambda: held_bytes(self.client) == 0)
        self.assertEqual(os.listdir(self.daemon.root), ["a.npy"])

    def test_killed_in_the_middle(self):
        daemon = self.start(environment={"OCTAVO_FAILPOINT": "direct_read:kill:3"})
        self.array()
        try:
            self.client.import_volume("a.npy", **GIVEN)
        except octavo.OctavoError:
            pass
        self.assertEqual(daemon.process.wait(30), -signal.SIGKILL)
        self.assertEqual(os.listdir(daemon.root), ["a.npy"], "of the file that is measured, too")
        for spec in ("probe_write:kill:2", "probe_create:kill"):
            daemon = self.start(environment={"OCTAVO_FAILPOINT": spec})
            with self.assertRaises(octavo.OctavoError):
                self.probe(size=64 << 20)
            self.assertEqual(daemon.process.wait(30), -signal.SIGKILL)
            self.assertEqual(os.listdir(daemon.root), [])
        # What is left of a crash starts again.
        daemon = self.start(directory=daemon.directory)
        self.assertIn(self.probe(size=16 << 20).kind, (1, 2))


if __name__ == "__main__":
    unittest.main()
