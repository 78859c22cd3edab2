"""Commits through the daemon: independent readers find files equal to the volumes, and a refusal
leaves the volume held."""

import json
import os
import subprocess
import unittest

import numpy as np

import ome_rules
import zarrita
from harness import DaemonTest, octavo, until
from octavo.v1 import scan_pb2
from readers import ENDINGS, READERS, read_tiff_stack


class Storage(DaemonTest):
    def held(self, dtype="u8", shape=(21, 50), samples=256):
        scan = self.client.submit_scan(octavo.simulated(4, fast=True), octavo.raster(shape[1], shape[0], volumes=1), samples=samples,
                                       title="a title", labels={"lab": "x"}, processing=octavo.processing(dtype=dtype),
                                       subject=dict(id="s1", site="OD", note="note"))
        self.client.wait(scan.name)
        name = self.client.volumes(scan.name)[0].name
        return name, self.client.read(name)

    def test_npy(self):
        for dtype in ("u8", "u16", "f32"):
            name, array = self.held(dtype)
            result = self.client.commit(name, f"npy/{dtype}", "npy")
            np.testing.assert_array_equal(np.load(result.path), array)
            with open(result.path + ".json") as side:
                meta = json.load(side)
            self.assertEqual((meta["title"], meta["labels"], meta["subject"]["site"], meta["shape"]), ("a title", {"lab": "x"}, "OD", list(array.shape)))
            self.assertEqual(len(meta["processing"]["window"]), 256)
            self.assertEqual(self.client.volume(name).state, 4)
            self.assertEqual(self.client.volume(name).commit_result.path, result.path)

    def test_every_format(self):
        for format, read in READERS.items():
            for dtype in ("u8", "u16", "f32"):
                with self.subTest(format=format, dtype=dtype):
                    name, array = self.held(dtype)
                    volume = self.client.volume(name)
                    steps = []
                    result = self.client.commit(name, f"every/{format}_{dtype}", format, progress=steps.append)
                    self.assertEqual((result.path, result.format, result.raw_bytes), (os.path.join(self.daemon.root, f"every/{format}_{dtype}{ENDINGS[format]}"),
                                                                                     octavo.formats.FORMATS[format], array.nbytes))
                    self.assertEqual((steps[-1].fraction, steps[-1].done_bytes), (1, array.nbytes))
                    stored = read(result.path)
                    np.testing.assert_array_equal(stored.array, array)
                    if stored.spacing_um is not None:
                        np.testing.assert_allclose(stored.spacing_um, volume.spacing_um, rtol=1e-6)
                    if stored.meta is not None:
                        self.assertEqual((stored.meta["volume"], stored.meta["title"], stored.meta["subject"]["id"], stored.meta["shape"], stored.meta["digest"]),
                                         (name, "a title", "s1", list(array.shape), volume.digest))
                        self.assertEqual(len(stored.meta["processing"]["window"]), 256)
                    if format == "zarr":
                        self.assertEqual(ome_rules.problems(result.path), [])
                    else:
                        self.assertEqual(sum(os.path.getsize(result.path + ending) for ending in ("", ".json")), result.bytes)

    def test_planes_and_stacks_of_tiff(self):
        for plane, pages in ((None, ["y", "z", "x"]), ("bscan", ["y", "z", "x"]), ("en_face", ["z", "y", "x"])):
            for stack in (False, True):
                with self.subTest(plane=plane, stack=stack):
                    name, array = self.held("u16", (13, 19))
                    options = dict(tiff_plane=plane) if plane else {}
                    result = self.client.commit(name, f"tiff/{plane}_{stack}", "tiff", tiff_stack=stack, **options)
                    self.assertEqual(result.path, os.path.join(self.daemon.root, f"tiff/{plane}_{stack}" + ("" if stack else ".ome.tif")))
                    stored = (read_tiff_stack if stack else READERS["tiff"])(result.path)
                    np.testing.assert_array_equal(stored.array, array)
                    self.assertEqual(stored.extra["pages"], pages)
                    if stack:
                        files = [os.path.join(result.path, file) for file in os.listdir(result.path) if not file.startswith(".")]
                        self.assertEqual(sum(map(os.path.getsize, files)), result.bytes)
        name, _ = self.held("u16", (13, 19))
        self.command("volume", "commit", name, "tiff/cli", "--tiff-stack", "--tiff-plane", "en-face")
        self.assertEqual(read_tiff_stack(os.path.join(self.daemon.root, "tiff", "cli")).extra["pages"], ["z", "y", "x"])
        name, _ = self.held()
        for options in (dict(format="npy", tiff_stack=True), dict(format="zarr", tiff_plane="bscan"), dict(format="tiff", tiff_plane=7)):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.commit(name, "x", **options)
            self.assertEqual(caught.exception.code.name, "INVALID_ARGUMENT")
            self.assertIn("options.tiff_", caught.exception.message)

    def test_options_of_formats(self):
        name, array = self.held("u16")
        result = self.client.commit(name, "pyramid", pyramid_levels=4, codec="blosc-lz4", shuffle="bit", level=9, chunk=[7, 16, 32], shard=[14, 32, 64])
        stored = READERS["zarr"](result.path)
        self.assertEqual(ome_rules.problems(result.path), [])
        self.assertEqual([level.shape for level, _ in stored.extra["levels"]], [array.shape, (10, 25, 64), (5, 12, 32), (2, 6, 16)])
        np.testing.assert_array_equal(stored.array, array)
        blosc = stored.extra["arrays"][2]["codecs"][0]["configuration"]["codecs"][1]
        self.assertEqual(blosc, {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 9, "shuffle": "bitshuffle", "typesize": 2, "blocksize": 0}})
        name, array = self.held("u8")
        self.assertEqual(READERS["nifti"](self.client.commit(name, "two", "nifti", nifti_version=2).path).extra["version"], 2)
        scan = self.client.submit_scan(octavo.simulated(4, fast=True), octavo.raster(16, 8, volumes=2), samples=256, retention=dict(
            disposition=scan_pb2.DISPOSITION_AUTO_COMMIT, auto_commit=octavo.commit_options("auto/{index}", "nrrd", codec="gzip", level=9)))
        self.assertEqual(scan.spec.retention.auto_commit.codec, scan_pb2.CODEC_GZIP)
        self.client.wait(scan.name)
        until(lambda: self.client.scan(scan.name).volumes_committed == 2)  # the last commits end after the scan
        self.assertEqual(READERS["nrrd"](os.path.join(self.daemon.root, "auto", "1.nrrd")).array.shape, (8, 16, 128))

    def test_zarr_opens_with_zarrita(self):
        work = zarrita.folder(self)
        for dtype, options in (("u8", {}), ("u16", dict(chunk=[8, 16, 32])), ("f32", dict(chunk=[4, 16, 32], shard=[8, 32, 64])),
                               ("u8", dict(chunk=[4, 10, 20], shard=[20, 50, 100], zstd_level=9)), ("u16", dict(codec="none")),
                               ("f32", dict(chunk=[21, 50, 128], codec="none", shard=[21, 50, 128])), ("u16", dict(codec="blosc-lz4")),
                               ("f32", dict(codec="blosc-zstd", chunk=[4, 16, 32], shard=[8, 32, 64])), ("u8", dict(codec="gzip")), ("u8", dict(codec="blosc-zstd"))):
            with self.subTest(dtype=dtype, **options):
                name, array = self.held(dtype)
                result = self.client.commit(name, "zarr/{scan}_{index:03}", **options)
                out = subprocess.run(["node", "read.mjs", result.path, os.path.join(work, "out.bin")], cwd=work, capture_output=True, text=True, timeout=60)
                self.assertEqual(out.returncode, 0, out.stderr)
                info = json.loads(out.stdout)
                self.assertEqual(info["shape"], list(array.shape))
                got = np.fromfile(os.path.join(work, "out.bin"), array.dtype).reshape(array.shape)
                np.testing.assert_array_equal(got, array)
                ome = info["attributes"]["ome"]
                self.assertEqual(ome["version"], "0.5")
                scale = ome["multiscales"][0]["datasets"][0]["coordinateTransformations"][0]["scale"]
                np.testing.assert_allclose(scale, info["attributes"]["octavo"]["spacing_um"])
                self.assertEqual(info["dimension_names"], [axis["name"] for axis in ome["multiscales"][0]["axes"]])
                self.assertEqual(info["attributes"]["octavo"]["title"], "a title")

    def test_refusals_leave_the_volume_held(self):
        name, array = self.held()
        os.symlink("/tmp", os.path.join(self.daemon.root, "out"))
        os.makedirs(os.path.join(self.daemon.root, "there.npy"))
        cases = [("../x", {}, "INVALID_ARGUMENT"), ("/etc/x", {}, "INVALID_ARGUMENT"), ("out/x", {}, "INVALID_ARGUMENT"), ("", {}, "INVALID_ARGUMENT"),
                 ("a/../../x", {}, "INVALID_ARGUMENT"), ("{nonsense}", {}, "INVALID_ARGUMENT"), (".octavo-x", {}, "INVALID_ARGUMENT"),
                 ("x", dict(chunk=[1, 2]), "INVALID_ARGUMENT"), ("x", dict(chunk=[0, 1, 1]), "INVALID_ARGUMENT"),
                 ("x", dict(chunk=[4, 4, 4], shard=[6, 8, 8]), "INVALID_ARGUMENT"), ("x", dict(zstd_level=77), "INVALID_ARGUMENT"),
                 ("there", dict(format="npy"), "ALREADY_EXISTS"), ("x", dict(format="npy", codec="gzip"), "INVALID_ARGUMENT"),
                 ("x", dict(codec=77), "INVALID_ARGUMENT"), ("x", dict(shuffle=9, codec="blosc-lz4"), "INVALID_ARGUMENT"), ("x", dict(level=10, codec="gzip"), "INVALID_ARGUMENT"),
                 ("x", dict(shuffle="bit"), "INVALID_ARGUMENT"),
                 ("x", dict(pyramid_levels=99), "INVALID_ARGUMENT"), ("x", dict(pyramid_levels=9), "INVALID_ARGUMENT"),
                 ("x", dict(format="tiff", pyramid_levels=2), "INVALID_ARGUMENT"), ("x", dict(format="nifti", nifti_version=3), "INVALID_ARGUMENT"),
                 ("x", dict(format="hdf5", codec="zstd"), "INVALID_ARGUMENT")]
        for destination, options, code in cases:
            with self.subTest(destination=destination, **options):
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.client.commit(name, destination, **options)
                self.assertEqual(caught.exception.code.name, code, caught.exception.message)
                self.assertEqual(self.client.volume(name).state, 2)
        left = [n for n in os.listdir(self.daemon.root) if n.startswith(".octavo") or n == "x"]
        self.assertEqual(left, [])
        result = self.client.commit(name, "good", "npy", request_id="c1")
        np.testing.assert_array_equal(np.load(result.path), array)
        self.assertEqual(self.client.commit(name, "good", "npy", request_id="c1").checksum, result.checksum)  # a retry
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.commit(name, "again", "npy")
        self.assertEqual(caught.exception.code.name, "FAILED_PRECONDITION")

    def test_two_commits_to_one_name(self):
        (first, _), (second, _) = self.held(), self.held()
        self.client.commit(first, "one", "npy")
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.commit(second, "one", "npy")
        self.assertEqual((caught.exception.code.name, caught.exception.reason), ("ALREADY_EXISTS", "DESTINATION_EXISTS"))
        self.assertEqual(self.client.volume(second).state, 2)

    def test_a_cancelled_commit_leaves_nothing(self):
        name, array = self.held("f32", (64, 256), 2048)
        steps = self.client.commit_iter(name, "cancelled", chunk=[1, 256, 1024], zstd_level=19)
        next(steps)
        steps.close()
        until(lambda: self.client.volume(name).state == 2)
        self.assertEqual([n for n in os.listdir(self.daemon.root) if "cancelled" in n or n.startswith(".octavo")], [])
        np.testing.assert_array_equal(self.client.read(name), array)


class LittleStaging(DaemonTest):
    """Page-locked memory for slabs of 32 MiB, and not for those that a transposed NIfTI would have."""
    flags = ("--device.frame_pool_bytes", str(33 << 20))

    def test_nifti(self):
        shape = (540, 512, 1024)
        array = np.random.default_rng().integers(0, 256, shape[1:], np.uint8)[None] ^ np.arange(shape[0], dtype=np.uint32).view(np.uint8).reshape(-1, 4)[:, :1, None]
        np.save(os.path.join(self.daemon.root, "large.npy"), array)
        volume = self.client.import_volume("large.npy", axes="yxz", spacing_um=dict(y=1, x=2, z=3))
        result = volume.commit("large", "nifti")
        np.testing.assert_array_equal(READERS["nifti"](result.path).array, array)


if __name__ == "__main__":
    unittest.main()
