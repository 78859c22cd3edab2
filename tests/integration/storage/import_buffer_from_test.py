"""Buffers of files (ImportJob.buffer): of every type, in boxes, from levels and orders; what others see, and when; and what is left after every
way to fail. The seed is printed, and OCTAVO_TEST_SEED repeats it."""

import json
import os
import sys
import threading
import time
import unittest
import warnings

import nibabel
import numpy as np
import tifffile

from harness import Daemon, DaemonTest, held_bytes, octavo, until
from octavo.v1 import ingest_pb2, job_pb2
from readers import READERS
from zarr_writers import multiscale, write_group, write_v2, write_v3

SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % 2**32))
DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8")
KEY = "0123456789abcdef"


def buffer_bytes(client):
    return sum(device.buffer_bytes for device in client.devices())


class Buffers(DaemonTest):
    def setUp(self):
        self.random = np.random.default_rng(SEED)
        warnings.simplefilter("error", octavo.OctavoWarning)
        self.addCleanup(warnings.resetwarnings)

    def tearDown(self):
        super().tearDown()
        for buffer in self.client.buffers.list():
            buffer.destroy()

    def path(self, name):
        path = os.path.join(self.daemon.root, "in", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def array(self, dtype="u2", shape=None):
        shape = shape or tuple(int(n) for n in self.random.integers(2, 20, 3))
        dtype = np.dtype(dtype)
        if not dtype.isnative:
            return self.array(dtype.newbyteorder("="), shape).astype(dtype)
        if dtype.kind in "fc":
            values = self.random.normal(size=shape) * 100
            return (values + 1j * self.random.normal(size=shape) if dtype.kind == "c" else values).astype(dtype)
        return self.random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)

    def load(self, name, wanted, **fields):
        """Imports in/<name> as a buffer, compares, and destroys."""
        buffer = self.client.import_buffer_from(f"in/{name}", **fields)
        self.assertEqual((str(buffer.state), buffer.coherent, list(buffer.shape)), ("READY", True, list(wanted.shape)))
        read = buffer.read()
        self.assertEqual(read.dtype, wanted.dtype)
        np.testing.assert_array_equal(read, wanted)
        buffer.destroy()
        return buffer

    def refused(self, code, reason, field, text, path, call=None, **fields):
        with self.assertRaises(octavo.OctavoError) as caught:
            (call or self.client.import_buffer_from)(path, **fields)
        error = caught.exception
        self.assertEqual((error.code.name, error.reason, error.field), (code, reason, field), error)
        self.assertIn(text, error.message)

    def test_every_type(self):
        """As it is stored, 32- and 64-bit integers, too; and from every type to every other."""
        for dtype in DTYPES:
            for order in "<>":
                with self.subTest(dtype=dtype, order=order):
                    array = self.array(np.dtype(dtype).newbyteorder(order))
                    np.save(self.path("a.npy"), array)
                    self.load("a.npy", array.astype(array.dtype.newbyteorder("=")), axes=["z", "y", "x"])
        values = np.array([[[0, 1, -1, 2.5, 3.5, 1000, -1000, 70000, 3e9, -3e9, 1e19, -1e19]]])
        np.save(self.path("v.npy"), values)
        for dtype in DTYPES[:-1]:
            with self.subTest(to=dtype), warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                buffer = self.client.import_buffer_from("in/v.npy", axes=["z", "y", "x"], dtype=dtype if dtype[0] == "f" else np.dtype(dtype))
                info = np.iinfo(dtype) if dtype[0] != "f" else None
                with np.errstate(over="ignore"):
                    wanted = values.astype(dtype) if info is None else np.array([[[max(info.min, min(info.max, int(np.rint(v)))) for v in values[0, 0]]]], dtype)
                np.testing.assert_array_equal(buffer.read(), wanted)
                beyond = int(np.sum(values < info.min) + np.sum(values > info.max)) if info else int(np.isinf(wanted).sum())
                self.assertEqual(len(told), 1 if beyond else 0, [str(one.message) for one in told])
        np.save(self.path("c.npy"), self.array("c16"))
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.dtype", "which is not imported; allowed c64", "in/c.npy", axes=["z", "y", "x"])
        with self.assertRaisesRegex(ValueError, "dtype is 'c128'"):
            self.client.import_buffer_from("in/c.npy", axes=["z", "y", "x"], dtype="c128")
        stored = np.load(self.path("c.npy"))
        self.load("c.npy", stored.astype("c8"), axes=["z", "y", "x"], dtype="c64")

    def test_boxes_orders_and_levels(self):
        array = self.array("u2", (9, 11, 13))
        tifffile.imwrite(self.path("a.tif"), array, photometric="minisblack", metadata=None)
        for _ in range(6):
            order = "".join(self.random.permutation(list("zyx")))
            turned = array.transpose(["zyx".index(axis) for axis in order])
            start = [int(self.random.integers(n)) for n in turned.shape]
            count = [int(self.random.integers(1, n - s + 1)) for n, s in zip(turned.shape, start)]
            with self.subTest(order=order, start=start, count=count):
                self.load("a.tif", turned[tuple(slice(s, s + n) for s, n in zip(start, count))], order=order, start=start, count=count)
        for version in ("0.4", "0.5"):
            levels = [self.array("i4", (2, 8, 10, 12)), self.array("i4", (2, 4, 5, 6))]
            for k, level in enumerate(levels):
                (write_v2 if version == "0.4" else write_v3)(self.path(f"image{version}.zarr/{k}"), level, (1, 3, 4, 5))
            axes = [("c", "channel", None), ("z", "space", "micrometer"), ("y", "space", "micrometer"), ("x", "space", "micrometer")]
            write_group(self.path(f"image{version}.zarr"), version, [multiscale(axes, [(str(k), (1, 2**k, 2**k, 2**k), None) for k in range(2)])])
            with self.subTest(version=version):
                self.load(f"image{version}.zarr", levels[0][1], select={"c": 1})
                self.load(f"image{version}.zarr", levels[1][0][1:3, :, 2:], select={"c": 0}, level=1, start=[1, 0, 2], count=[2, 0, 0])
        nifti = nibabel.Nifti1Image(self.array("i2", (4, 5, 6)), np.eye(4))
        nifti.header.set_slope_inter(0.5, -3)
        nibabel.save(nifti, self.path("s.nii"))
        stored = np.fromfile(self.path("s.nii"), "<i2", offset=352).reshape(6, 5, 4)
        with self.assertWarnsRegex(octavo.OctavoWarning, "0.5 \\* number \\+ -3 .scl_slope, scl_inter."):
            self.load("s.nii", stored)
        self.load("s.nii", (stored * 0.5 - 3).astype("f4"), scaled=True)

    def test_of_what_octavo_committed(self):
        """Its voxels are compared with the digest of the commit."""
        array = self.array("u2", (5, 6, 7))
        np.save(self.path("a.npy"), array)
        volume = self.client.import_volume("in/a.npy", axes=["z", "y", "x"], spacing_um={"x": 1, "y": 2, "z": 3})
        result = volume.commit("own/a", "zarr", codec="none")
        buffer = self.client.import_buffer_from(result.path)
        np.testing.assert_array_equal(buffer.read(), array)
        file = next(os.path.join(folder, name) for folder, _, names in os.walk(result.path) for name in names if not name.endswith("json") and not name.startswith("."))
        with open(file, "r+b") as stored:
            byte = stored.read(1)[0]
            stored.seek(0)
            stored.write(bytes([byte ^ 4]))
        self.refused("DATA_LOSS", "DIGEST", "volume_import.path", "is damaged", result.path)
        self.assertEqual([one.name for one in self.client.buffers.list()], [buffer.name])

    def test_what_it_is_good_for(self):
        """It is a buffer like any other: read, computed with, committed."""
        array = self.array("f4", (6, 7, 8))
        np.save(self.path("a.npy"), array)
        buffer = self.client.import_buffer_from("in/a.npy", axes=["z", "y", "x"], labels={"eye": "OD"}, ttl=500)
        self.assertEqual((dict(buffer.labels), buffer.client, buffer.is_private), ({"eye": "OD"}, "", False))
        self.assertIsNotNone(buffer.expire_time)
        self.assertEqual([replica.version for replica in buffer.replicas], [1])
        made = buffer.apply({"scale": {"multiply": 2}}, {"mip": {"axis": 0}})
        np.testing.assert_array_equal(made.read(), (2 * array).max(0))
        result = buffer.commit("buffers/a", "nifti", axes="zyx", spacing_um=(3, 2, 1))
        np.testing.assert_array_equal(READERS["nifti"](result.path).array, array.transpose(1, 2, 0))
        np.testing.assert_array_equal(self.client.import_volume(result.path).read(), array)
        buffer.write(array + 1)
        np.testing.assert_array_equal(buffer.read(), array + 1)

    def test_owner_and_secret(self):
        array = self.array()
        np.save(self.path("a.npy"), array)
        mine, other = octavo.Client(self.daemon.address, client="me", key=KEY), octavo.Client(self.daemon.address, client="you")
        self.addCleanup(mine.close)
        self.addCleanup(other.close)
        buffer = mine.import_buffer_from("in/a.npy", axes="zyx", private=True, request_id="secret")
        self.assertEqual((buffer.client, buffer.is_private), ("me", True))
        self.assertEqual([one.name for one in mine.buffers.list()], [buffer.name])
        self.assertEqual(other.buffers.list(), [])
        # Everybody sees the job; what it made has a name for whoever has the key.
        self.assertIn(buffer.name, [job.buffer for job in mine.jobs()])
        self.assertNotIn(buffer.name, [job.buffer for job in other.jobs()])
        self.assertEqual([job.name for job in other.jobs()], [job.name for job in mine.jobs()])
        with self.assertRaises(octavo.OctavoError) as caught:
            other.buffers.get(buffer.name)
        self.assertEqual(caught.exception.reason, "NOT_OWNER")
        again = mine.import_buffer_from("in/a.npy", axes="zyx", private=True, request_id="secret")
        self.assertEqual(again.name, buffer.name)
        # The same words of another caller are another request.
        stranger = octavo.Client(self.daemon.address, client="me", key="another key of 16")
        self.addCleanup(stranger.close)
        self.refused("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH", "request_id", "secret", "in/a.npy", call=stranger.import_buffer_from, axes="zyx", private=True,
                     request_id="secret")
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.buffer.is_private", "no key", "in/a.npy", call=other.import_buffer_from, axes="zyx",
                     private=True)
        mine.buffers.destroy(buffer.name)

    def test_retries(self):
        np.save(self.path("a.npy"), self.array())
        first, again = (self.client.import_buffer_from("in/a.npy", axes="zyx", request_id="once") for _ in range(2))
        self.assertEqual(first.name, again.name)
        self.assertEqual(len(self.client.buffers.list()), 1)
        self.refused("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH", "request_id", "once", "in/a.npy", axes="xyz", request_id="once")
        self.refused("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH", "request_id", "once", "in/a.npy", call=self.client.import_volume, axes="zyx", request_id="once",
                     allow_unknown_spacing=True)
        first.destroy()
        self.refused("NOT_FOUND", "NO_BUFFER", "request_id", first.name, "in/a.npy", axes="zyx", request_id="once")

    def test_as_a_job(self):
        array = self.array("u2", (4, 5, 6))
        np.save(self.path("a.npy"), array)
        work = octavo.volume_import("in/a.npy", axes="zyx", buffer=True)
        plan = self.client.plan_job(work)
        self.assertIn("buffer: z 4, y 5, x 6, u16, 240 bytes", plan.plan)
        self.assertTrue(plan.report.admitted)
        job = self.client.wait_job(self.client.submit_job(work))
        self.assertEqual((job.state, job.volume_names), ("DONE", []))
        np.testing.assert_array_equal(self.client.buffers.read(job.buffer), array)
        self.assertFalse(job.spec.volume_import.buffer.is_private)
        operation = self.client.start_import("in/a.npy", axes="zyx", buffer=True)
        last = self.client.wait_operation(operation)
        self.assertEqual((last.state, list(last.volumes)), ("SUCCEEDED", []))
        self.assertTrue(self.client.job(last.target).buffer.startswith("buffers/"))
        self.assertEqual([one.name for one in self.client.jobs(filter=f'buffer = "{job.buffer}"')], [job.name])

    def test_wishes_without_effect(self):
        np.save(self.path("a.npy"), self.array())
        for fields in (dict(title="t"), dict(orphan="keep", value="db")):
            with self.assertRaises(TypeError if "value" in fields or "title" in fields else ValueError):
                self.client.import_buffer_from("in/a.npy", axes="zyx", **fields)
        with self.assertRaisesRegex(ValueError, "import_buffer_from"):
            self.client.import_volume("in/a.npy", axes="zyx", buffer=True)
        with self.assertRaisesRegex(ValueError, "private is True and buffer is False"):
            octavo.volume_import("in/a.npy", private=True)
        for field, job in (("volume_import.value", job_pb2.JobSpec(volume_import=ingest_pb2.ImportJob(path="in/a.npy", axes="zyx", value=1, buffer={}))),
                           ("title", job_pb2.JobSpec(title="t", volume_import=ingest_pb2.ImportJob(path="in/a.npy", axes="zyx", buffer={}))),
                           ("volume_import.dtype", job_pb2.JobSpec(volume_import=ingest_pb2.ImportJob(path="in/a.npy", axes="zyx", dtype=14, buffer={}))),
                           ("volume_import.dtype", job_pb2.JobSpec(volume_import=ingest_pb2.ImportJob(path="in/a.npy", axes="zyx", dtype=13, buffer={})))):
            with self.subTest(field=field), self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(job)
            self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", field), caught.exception)

    def test_command_line(self):
        array = self.array("u4", (4, 5, 6))
        np.save(self.path("cli.npy"), array)
        done = self.command("volume", "import", "in/cli.npy", "--to-buffer", "--axes", "Z,Y,X", "--order", "YXZ", "--label", "a=b", "--ttl", "300")
        buffer, = self.client.buffers.list()
        self.assertIn(f"{buffer.name}  READY  [5, 6, 4] U32", done.stdout)
        self.assertEqual(dict(buffer.labels), {"a": "b"})
        self.assertIsNotNone(buffer.expire_time)
        np.testing.assert_array_equal(buffer.read(), array.transpose(1, 2, 0))
        self.command("volume", "import", "in/cli.npy", "--to-buffer", "--axes", "z,y,x", "--dtype", "u64")
        plan = self.command("volume", "import", "in/cli.npy", "--to-buffer", "--axes", "z,y,x", "--plan")
        self.assertIn("buffer: z 4, y 5, x 6, u32, 480 bytes", plan.stdout)
        for arguments, text in ((("--dtype", "c128"), "--dtype: is 'c128'; allowed u8"), (("--value", "db"), "for a buffer"), (("--title", "t"), "for a buffer")):
            refused = self.command("volume", "import", "in/cli.npy", "--to-buffer", "--axes", "z,y,x", *arguments, check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(text, refused.stderr)

    def test_only_when_it_is_done(self):
        """Nobody hears of it before; a watcher hears of it once, whole."""
        np.save(self.path("large.npy"), np.ones((200, 700, 1000), "u2"))
        heard, watcher = [], octavo.Client(self.daemon.address)
        changes = watcher.buffers.watch()

        def listen():
            try:
                for change in changes:
                    heard.append((str(change.kind), str(change.buffer.state), change.buffer.name))
            except octavo.OctavoError:
                pass
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        operation = self.client.start_import("in/large.npy", axes="zyx", buffer=True)
        listed = []
        while not self.client.operation(operation.name).done:
            listed += [one.name for one in self.client.buffers.list()]
        name = self.client.job(self.client.wait_operation(operation).target).buffer
        self.assertLessEqual(set(listed), {name})
        until(lambda: any(one[2] == name for one in heard))
        self.assertEqual([one[:2] for one in heard if one[2] == name], [("CREATED", "READY")])
        self.client.buffers.destroy(name)
        watcher.close()
        thread.join(10)

    def test_cancelled(self):
        """In the middle: of a file with a million chunks, each of one byte, it takes no longer."""
        write_v3(self.path("tiny"), np.zeros((1, 1, 1), "u1"), (1, 1, 1), compress=False)
        meta = self.path("tiny/zarr.json")
        with open(meta) as file:
            text = file.read()
        about = json.loads(text)
        about["shape"] = [300, 300, 300]
        with open(meta, "w") as file:
            json.dump(about, file)
        for buffer in (True, False):
            operation = self.client.start_import("in/tiny", axes="zyx", allow_unknown_spacing=True, buffer=buffer)
            until(lambda: self.client.job(operation.target).state == "RUNNING")
            time.sleep(0.3)  # reading by now
            begun = time.monotonic()
            self.client.cancel_operation(operation.name)
            last = self.client.wait_operation(operation.name, check=False)
            self.assertEqual(last.state, "CANCELLED")
            self.assertLess(time.monotonic() - begun, 20)
        self.assertEqual((self.client.buffers.list(), buffer_bytes(self.client), held_bytes(self.client)), ([], 0, 0))

    def test_session_that_ends(self):
        """DISCARD cancels the import; a buffer that was made stays."""
        np.save(self.path("large.npy"), np.ones((200, 700, 1000), "u2"))
        np.save(self.path("a.npy"), self.array())
        with self.client.session() as session:
            made = self.client.import_buffer_from("in/a.npy", axes="zyx", session=session, orphan="discard")
            operation = self.client.start_import("in/large.npy", axes="zyx", session=session, orphan="discard", buffer=True)
        last = self.client.wait_operation(operation.name, check=False)
        self.assertIn(str(last.state), ("CANCELLED", "SUCCEEDED"))  # it may have been done in time
        self.assertEqual(str(made.refresh().state), "READY")


class Faults(DaemonTest):
    """A failure at each piece leaves nothing: of a TIFF, whose pages are put together on the host."""

    def run_with(self, failpoint, *flags):
        daemon = Daemon(*flags, environment={"OCTAVO_FAILPOINT": failpoint})
        try:
            client = daemon.client()
            tifffile.imwrite(os.path.join(daemon.root, "large.tif"), np.ones((50, 700, 1000), "u2"), photometric="minisblack", metadata=None)
            with self.assertRaises(octavo.OctavoError) as caught:
                client.import_buffer_from("large.tif")
            self.assertEqual((client.buffers.list(), buffer_bytes(client), held_bytes(client)), ([], 0, 0))
            made = client.import_buffer_from("large.tif")  # the failpoint is hit once
            self.assertEqual(list(made.shape), [50, 700, 1000])
            client.close()
            self.assertEqual(daemon.stop(), 0)
            return caught.exception
        finally:
            daemon.remove()

    def test_at_each_piece(self):
        for piece in range(1, 6):
            with self.subTest(piece=piece):
                self.assertEqual(self.run_with(f"import_piece:errno=5:{piece}").reason, "IO_ERROR")
        self.assertEqual(self.run_with("import_piece:throw=bad_alloc:2").reason, "OUT_OF_MEMORY")

    def test_killed_in_the_middle(self):
        """Buffers end with the server; a new one knows that the import is lost."""
        directory = os.path.join(self.daemon.directory, "killed")
        os.makedirs(directory)
        daemon = Daemon(directory=directory, environment={"OCTAVO_FAILPOINT": "import_piece:kill:2"})
        client = daemon.client()
        tifffile.imwrite(os.path.join(daemon.root, "large.tif"), np.ones((50, 700, 1000), "u2"), photometric="minisblack", metadata=None)
        with self.assertRaises(octavo.OctavoError):
            client.import_buffer_from("large.tif")
        client.close()
        daemon.process.wait()
        daemon.log.close()
        daemon = Daemon(directory=directory)
        client = daemon.client()
        self.assertEqual((client.buffers.list(), [job.message.state for job in client.jobs()], buffer_bytes(client)), ([], [job_pb2.JOB_STATE_LOST], 0))
        client.close()
        self.assertEqual(daemon.stop(), 0)


class Full(DaemonTest):
    flags = ("--device.memory_bytes", str(24 << 20))

    def test_device_full(self):
        path = os.path.join(self.daemon.root, "a.npy")
        np.save(path, np.zeros((40, 1024, 1024), "u1"))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.import_buffer_from("a.npy", axes="zyx")
        error = caught.exception
        self.assertEqual((error.code.name, error.reason, error.report.retryable), ("RESOURCE_EXHAUSTED", "EXCEEDS_BUDGET", False), error)
        # One that fits later waits for its turn.
        held = self.client.buffers.create((12 << 20,), "u1")
        operation = self.client.start_import("a.npy", axes="zyx", count=[16, 0, 0], buffer=True)
        until(lambda: self.client.job(operation.target).reason_code == "WAITING_FOR_MEMORY")
        self.assertEqual([one.name for one in self.client.buffers.list()], [held.name])
        held.destroy()
        job = self.client.job(self.client.wait_operation(operation).target)
        made = self.client.buffers.get(job.buffer)
        self.assertGreaterEqual(buffer_bytes(self.client), 16 << 20)
        self.assertLess(buffer_bytes(self.client), 20 << 20)  # counted once
        self.assertEqual(held_bytes(self.client), 0)
        made.destroy()
        until(lambda: buffer_bytes(self.client) == 0)


class ByDescriptor(DaemonTest):
    flags = ("--handoff.unix", "auto")

    def test_a_file_below_no_root(self):
        array = np.random.default_rng(SEED).integers(0, 60000, (4, 5, 6), "u2")
        path = os.path.join(self.daemon.directory, "elsewhere.npy")
        np.save(path, array)
        np.testing.assert_array_equal(self.client.import_buffer_from(path, axes="zyx").read(), array)
        self.command("volume", "import", path, "--to-buffer", "--axes", "z,y,x")
        self.assertEqual(len(self.client.buffers.list()), 2)


if __name__ == "__main__":
    print("seed", SEED, file=sys.stderr)
    unittest.main()
