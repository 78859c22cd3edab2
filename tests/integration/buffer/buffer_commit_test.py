"""Buffers of every type, shape and format to storage, read back by independent readers (readers.py); refusals, writes that come
between, cancellation, retries, and a daemon that is killed at every point. Shapes and types are random; the seed is printed, and
OCTAVO_TEST_SEED repeats it."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import unittest

import numpy as np

from harness import BUILD, Daemon, DaemonTest, octavo
from octavo.v1 import buffer_pb2
from readers import ENDINGS, READERS, read_tiff_stack

SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % 2**32))
TYPES = {"u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "f2": "f16", "f4": "f32", "f8": "f64", "c8": "c64"}
LACKING_F16 = {"nrrd", "nifti", "tiff", "mat", "tiff-stack"}
POINTS = ["journal_begin", "tmp_created", "chunk_written", "files_synced", "manifest_written", "before_rename", "names_checked", "after_rename", "parent_synced", "journal_end"]
COMPLETE = {"manifest_written", "before_rename", "names_checked", "side_renamed", "after_rename", "parent_synced", "journal_end"}


def make(random, dtype, shape):
    if dtype[0] in "ui":
        return random.integers(0, 100, shape).astype(dtype)
    values = random.normal(size=shape) * 10
    return (values + 1j * random.normal(size=shape) if dtype[0] == "c" else values).astype(dtype)


def in_three_axes(array, axes):
    """The array [y, x, z] and the names of all its axes: those that are missing come first, each with one element."""
    order = axes
    for name in "xyz":
        if name not in order:
            order = name + order
    volume = array.reshape((1,) * (3 - array.ndim) + array.shape)
    return volume.transpose([order.index(name) for name in "yxz"]), order


class BufferCommit(DaemonTest):
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(SEED)
        self.counter = 0

    def name(self):
        self.counter += 1
        return f"buffers/{self.id().rsplit('.')[-1]}_{self.counter}"

    def test_every_format_type_and_rank(self):
        print("seed", SEED)
        outputs = {**{name: (read, dict(format=name)) for name, read in READERS.items()}, "tiff-stack": (read_tiff_stack, dict(format="tiff", tiff_stack=True)),
                   "zarr 0.4": (READERS["zarr"], dict(format="zarr", ngff="0.4"))}
        for output, (read, options) in outputs.items():
            for dtype in TYPES:
                rank = int(self.random.integers(1, 4))
                axes = "".join(self.random.permutation(list("xyz"))[:rank])
                array = make(self.random, dtype, [int(n) for n in self.random.integers(1, 30, rank)])
                spacing = [float(n) for n in self.random.integers(0, 4, rank)]  # 0: not known
                with self.subTest(output=output, dtype=dtype, axes=axes, shape=array.shape, spacing=spacing):
                    buffer = self.client.buffers.put(array, labels={"lens": "20x"})
                    if dtype == "f2" and output in LACKING_F16:
                        with self.assertRaises(octavo.OctavoError) as caught:
                            buffer.commit(self.name(), axes=axes, **options)
                        self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", "options.format"))
                        self.assertIn("half-precision", str(caught.exception))
                        continue
                    result = buffer.commit(self.name(), axes=list(axes), spacing_um=spacing, title="a title", **options)
                    stored = read(result.path)
                    wanted, order = in_three_axes(array, axes)
                    self.assertEqual(stored.array.dtype, array.dtype)
                    np.testing.assert_array_equal(stored.array, wanted)
                    self.assertEqual(stored.array.tobytes(), np.ascontiguousarray(wanted).tobytes())
                    known = dict(zip(axes, spacing))
                    self.assertEqual(stored.assumed, "".join(name for name in "xyz" if not known.get(name)))
                    if stored.spacing_um is not None:
                        np.testing.assert_allclose(stored.spacing_um, [known.get(name) or 1 for name in "yxz"], rtol=1e-6)
                    meta = stored.meta if stored.meta is not None else json.load(open(result.path + ".json"))
                    self.assertEqual((meta["volume"], meta["title"], meta["labels"], meta["axes"]), (buffer.name, "a title", {"lens": "20x"}, list(order)))
                    self.assertEqual(meta["acquisition"]["source"], "buffer")
                    np.testing.assert_array_equal(buffer.read(), array)  # it stays

    def test_lanes_are_complex_and_other_types_are_refused(self):
        pairs = make(self.random, "f4", (5, 6, 2))
        buffer = self.client.buffers.put(pairs, lanes=2)
        stored = READERS["npy"](buffer.commit("lanes.npy", axes="yx").path)
        np.testing.assert_array_equal(stored.array, in_three_axes(pairs.view("c8")[..., 0], "yx")[0])
        for array, lanes, text in ((np.zeros((2, 3), "i4"), 1, "i32[2, 3]"), (np.zeros((2, 3), "u8"), 1, "u64[2, 3]"), (np.zeros((2, 3), "c16"), 1, "c128[2, 3]"),
                                   (np.zeros((2, 3), "f4"), 3, "f32[2] x 3"), (np.zeros((2, 2), "f8"), 2, "f64[2] x 2")):
            with self.subTest(type=text), self.assertRaises(octavo.OctavoError) as caught:
                self.client.buffers.put(array, lanes=lanes).commit("no.npy", axes="yx" if lanes == 1 else "z")
            self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", "name"))
            self.assertIn(text, str(caught.exception))
        self.assertFalse([name for name in os.listdir(self.daemon.root) if name.startswith("no")])

    def test_refusals_change_nothing(self):
        buffer = self.client.buffers.put(make(self.random, "u2", (4, 5)))
        buffer.commit("taken.npy", axes="yx")
        before = sorted(os.listdir(self.daemon.root))
        volume = "volumes/none"
        for arguments, code, field, text in (
                (dict(axes="y"), "INVALID_ARGUMENT", "axes", "2 of x, y, z, for the dimensions of u16[4, 5]"), (dict(axes="yxz"), "INVALID_ARGUMENT", "axes", ""),
                (dict(axes=[]), "INVALID_ARGUMENT", "axes", "a list of 0 names"), (dict(axes="yy"), "INVALID_ARGUMENT", "axes", "each once"),
                (dict(axes=["y", "t"]), "INVALID_ARGUMENT", "axes", "'y', 't'"), (dict(axes="yx", spacing_um=[1]), "INVALID_ARGUMENT", "spacing_um", "none, or 2"),
                (dict(axes="yx", spacing_um=[1, -1]), "INVALID_ARGUMENT", "spacing_um[1]", "-1"), (dict(axes="yx", replica=7), "OUT_OF_RANGE", None, ""),
                (dict(axes="yx", if_version=99), "ABORTED", None, ""), (dict(axes="yx", destination="taken.npy"), "ALREADY_EXISTS", "options.destination", ""),
                (dict(axes="yx", destination="../out.npy"), "INVALID_ARGUMENT", None, ""), (dict(axes="yx", destination="{what}.npy"), "INVALID_ARGUMENT", "options.destination", "template"),
                (dict(axes="yx", format="npy", level=3, destination="x"), "INVALID_ARGUMENT", "options.level", "")):
            with self.subTest(**arguments), self.assertRaises(octavo.OctavoError) as caught:
                buffer.commit(arguments.pop("destination", "x.npy"), **arguments)
            self.assertEqual(caught.exception.code.name, code, str(caught.exception))
            if field is not None:
                self.assertEqual(caught.exception.field, field)
            self.assertIn(text, str(caught.exception))
        empty = self.client.buffers.create((4, 5), uninitialized=True)
        with self.assertRaises(octavo.OctavoError) as caught:
            empty.commit("x.npy", axes="yx")
        self.assertEqual(caught.exception.reason, "UNINITIALIZED")
        request = buffer_pb2.CommitBufferRequest(name=volume, axes=["z"])
        request.options.destination = "x.npy"
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.buffers._call(self.client.buffers._stub.CommitBuffer, request)
        self.assertEqual(caught.exception.reason, "SEALED")
        self.assertEqual(sorted(os.listdir(self.daemon.root)), before)

    def test_leases_and_private_buffers(self):
        array = make(self.random, "u2", (4, 5))
        buffer = self.client.buffers.put(array)
        with self.client.lease(buffer.name, exclusive=True, seconds=60) as lease:
            with self.assertRaises(octavo.OctavoError) as caught:
                buffer.commit("leased.npy", axes="yx")
            self.assertEqual(caught.exception.reason, "LEASED")
            result = buffer.commit("own.npy", axes="yx", lease_token=lease.token)
        np.testing.assert_array_equal(np.load(result.path), array[None])
        with octavo.Client(self.daemon.address, key="k" * 20) as owner:
            hidden = owner.buffers.put(array, private=True)
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.buffers.commit(hidden.name, "hidden.npy", axes="yx")
            self.assertEqual(caught.exception.reason, "NOT_OWNER")
            np.testing.assert_array_equal(np.load(hidden.commit("hidden.npy", axes="yx").path), array[None])

    def test_a_retry_finds_the_first_commit(self):
        buffer = self.client.buffers.put(make(self.random, "u2", (4, 5)))
        first = buffer.commit("{scan}_{title}.npy", axes="yx", title="a b", request_id="once")
        self.assertEqual(os.path.basename(first.path), buffer.name.split("/")[1] + "_a_b.npy")
        again = buffer.commit("{scan}_{title}.npy", axes="yx", title="a b", request_id="once")
        self.assertEqual((first.path, first.checksum), (again.path, again.checksum))
        with self.assertRaises(octavo.OctavoError) as caught:
            buffer.commit("other.npy", axes="yx", request_id="once")
        self.assertEqual(caught.exception.reason, "IDEMPOTENCY_MISMATCH")
        operations = [one for one in self.client.operations() if one.target == buffer.name]
        self.assertEqual([(one.kind, one.state) for one in operations], [("commit", "SUCCEEDED")])

    def test_command_line(self):
        array = make(self.random, "f4", (6, 7))
        np.save(os.path.join(self.daemon.directory, "a.npy"), array)

        def run(*arguments, code=0):
            done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            return done.stdout + done.stderr
        name = run("buffer", "put", os.path.join(self.daemon.directory, "a.npy")).split()[0]
        said = run("buffer", "commit", name, "line.nrrd", "--axes", "y,x", "--spacing-um", "12,6", "--title", "line")
        self.assertIn("line.nrrd", said)
        stored = READERS["nrrd"](os.path.join(self.daemon.root, "line.nrrd"))
        np.testing.assert_array_equal(stored.array, array[:, :, None])
        self.assertEqual((stored.spacing_um, stored.assumed), ([12, 6, 1], "z"))
        self.assertIn("--axes", run("buffer", "commit", name, "x.npy", code=2))
        self.assertIn("dimensions of f32[6, 7]", run("buffer", "commit", name, "x.npy", "--axes", "y", code=1))


class Slow(unittest.TestCase):
    """With a daemon of its own for each case."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-buffer-commit-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.random = np.random.default_rng(SEED)

    def daemon(self):
        daemon = Daemon(directory=self.directory)
        self.addCleanup(daemon.remove)
        return daemon

    def many(self):
        """An array whose commit with zstd 15 takes seconds on up to 32 processors."""
        planes = min(max(20, 10 * len(os.sched_getaffinity(0))), 320)
        return np.concatenate([make(self.random, "u2", (20, 1024, 1024))] * (planes // 20))

    def test_a_write_that_comes_between_fails_the_commit(self):
        """With the caller's own exclusive lease; without one it is refused."""
        daemon = self.daemon()
        with daemon.client() as client:
            array = self.many()
            buffer = client.buffers.put(array)
            started = threading.Event()
            failures = []

            def commit(name, **options):
                try:
                    client.buffers.commit(buffer.name, name, "zarr", axes="zyx", chunk=[1, 256, 1024], zstd_level=15,
                                          progress=lambda progress: progress.done_bytes > 0 and started.set(), **options)
                except octavo.OctavoError as error:
                    failures.append(error)
                started.set()
            with client.lease(buffer.name, exclusive=True, seconds=60) as lease:
                thread = threading.Thread(target=commit, args=("between",), kwargs=dict(lease_token=lease.token))
                thread.start()
                self.assertTrue(started.wait(60))
                client.buffers.write(buffer.name, array[:1].reshape(-1), offset=0, lease_token=lease.token, check=False)
                thread.join()
            self.assertEqual([error.reason for error in failures], ["LEASE_LOST"])
            self.assertEqual(os.listdir(daemon.root), [])
            started.clear()
            thread = threading.Thread(target=commit, args=("whole",))
            thread.start()
            self.assertTrue(started.wait(60))
            with self.assertRaises(octavo.OctavoError) as caught:
                client.buffers.write(buffer.name, array[:1].reshape(-1), offset=0, check=False)
            self.assertEqual(caught.exception.reason, "LEASED")
            thread.join()
            self.assertEqual(len(failures), 1, failures)
            np.testing.assert_array_equal(READERS["zarr"](os.path.join(daemon.root, "whole.ome.zarr")).array, array.transpose(1, 2, 0))

    def test_cancelled(self):
        daemon = self.daemon()
        with daemon.client() as client:
            buffer = client.buffers.put(self.many())

            def stop(progress):
                raise KeyboardInterrupt
            with self.assertRaises(KeyboardInterrupt):
                buffer.commit("v", "zarr", axes="zyx", chunk=[1, 256, 1024], zstd_level=15, progress=stop)
            operation = client.operations()[0].wait(timeout=60, check=False)
            self.assertEqual((operation.state, operation.error.reason), ("CANCELLED", "COMMIT_CANCELLED"))
            self.assertEqual(os.listdir(daemon.root), [])
            buffer.commit("v", "zarr", axes="zyx")
            self.assertEqual(client.buffers.get(buffer.name).shared_leases, 0)

    def test_killed_at_every_point(self):
        for format in ("zarr", "hdf5"):
            for point in POINTS + ([] if format == "zarr" else ["side_renamed"]):
                with self.subTest(format=format, point=point):
                    array = make(self.random, "u2", (20, 16, 64))
                    daemon = Daemon(directory=self.directory, environment={"OCTAVO_FAILPOINT": f"{point}:kill:1"})
                    try:
                        with daemon.client() as client:
                            buffer = client.buffers.put(array)
                            try:
                                buffer.commit("sub/v", format, axes="zyx", chunk=[4, 16, 32])
                            except octavo.OctavoError as error:
                                self.assertIn(error.code.name, ("UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN"))
                        daemon.process.wait(30)
                    finally:
                        daemon.remove()
                    daemon = Daemon(directory=self.directory)
                    try:
                        path = os.path.join(daemon.root, "sub", "v" + ENDINGS[format])
                        self.assertEqual(os.path.exists(path), point in COMPLETE)
                        if os.path.exists(path):
                            np.testing.assert_array_equal(READERS[format](path).array, array.transpose(1, 2, 0))
                        with daemon.client() as client:
                            self.assertTrue(list(client.info().recovered), "the start says what it found")
                        parent = os.path.join(daemon.root, "sub")
                        self.assertEqual([n for n in (os.listdir(parent) if os.path.isdir(parent) else []) if n.startswith(".octavo")], [])
                        self.assertEqual(daemon.stop(), 0)
                    finally:
                        daemon.remove()
                    shutil.rmtree(os.path.join(self.directory, "data"))


if __name__ == "__main__":
    unittest.main()
