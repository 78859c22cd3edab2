"""Every format and option of `octavo convert`. Independent readers (readers.py) read the files
back, voxel by voxel, with axes, spacing and metadata. The tests compare the pyramid with a NumPy
model and check OME metadata against the rules. Refusals and faults leave no files behind."""

import copy
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

import numpy as np

import ome_rules
from digest import sum64
from harness import BUILD
from readers import ENDINGS, READERS, read_tiff_stack, read_zarr

DTYPES = {"u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "f16": "<f2", "f32": "<f4", "f64": "<f8", "c64": "<c8"}
SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % (1 << 32)))
LACKING_F16 = {"nrrd", "nifti", "tiff", "mat"}


def make_array(dtype, shape, seed=1):
    random = np.random.default_rng(seed)
    t = np.dtype(DTYPES[dtype])
    if t.kind in "ui":
        info = np.iinfo(t)
        return random.integers(info.min, info.max, shape, t, endpoint=True)
    array = random.normal(0, 50, shape).astype(t)
    if t.kind == "c":
        return (array + 1j * random.normal(0, 50, shape)).astype(t)
    array[tuple(n // 2 for n in shape)] = np.nan
    array.reshape(-1)[0] = np.inf
    return array


def make_meta(array, dtype, **changes):
    meta = {"volume": "volumes/0123", "scan": "scans/0456", "title": 'Auge é <&> "q"', "index": 3, "shape": list(array.shape), "axes": ["y", "x", "z"], "dtype": dtype,
            "spacing_um": [12.5, 6.25, 3.4375], "value": "db", "display": [5, 200], "labels": {"lab": "ä\\n", "side": "left"},
            "subject": {"id": "s1", "site": "OD", "note": "two\nlines"}, "acquired_begin": "2026-11-21T08:00:00.000000005Z",
            "acquired_end": "2026-11-21T08:00:01.000000000Z", "acquired_begin_unix_ns": 1795248000000000005, "acquired_end_unix_ns": 1795248001000000000,
            "complete": False, "missing_ascans": 2, "missing_ranges": [[4, 2]], "device": "host", "software": "octavo 0.1.0", "digest": sum64(array),
            "processing": {"window": [0.0, 0.5, 1.0], "fft_length": 1024}, "acquisition": {"record_rate_hz": 100000.0}, "levels": [-10.0, 40.0]}
    meta.update(changes)
    return meta


def halved(level):
    """The next array of a pyramid: means of pairs along every axis longer than 1, without an odd
    last one."""
    pairs = [2 if n > 1 else 1 for n in level.shape]
    whole = level[tuple(slice(0, n // p * p) for n, p in zip(level.shape, pairs))]
    blocks = whole.reshape([v for n, p in zip(whole.shape, pairs) for v in (n // p, p)]).astype(np.float64)
    if level.dtype.kind != "f":
        return np.rint(blocks.mean(axis=(1, 3, 5))).astype(level.dtype)  # rounds to the nearest, ties to even
    valid = ~np.isnan(blocks)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return (np.where(valid, blocks, 0).sum(axis=(1, 3, 5)) / valid.sum(axis=(1, 3, 5))).astype(level.dtype)


class Formats(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-formats-")
        self.addCleanup(shutil.rmtree, self.directory, True)

    def source(self, dtype="u8", shape=(21, 50, 40), name="source", **changes):
        array = make_array(dtype, shape)
        path = os.path.join(self.directory, name + ".npy")
        np.save(path, array)
        with open(path + ".json", "w") as file:
            json.dump(make_meta(array, dtype, **changes), file)
        return path, array

    def octavo(self, *arguments, preexec_fn=None):
        done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--json", "convert", *arguments], capture_output=True, text=True, timeout=120, preexec_fn=preexec_fn)
        return done.returncode, done.stdout + done.stderr

    def convert(self, source, name, *flags):
        """Converts, expects success, and returns the path of the result."""
        code, text = self.octavo(source, os.path.join(self.directory, name), *flags)
        self.assertEqual(code, 0, text)
        outcome = json.loads(text)
        self.assertEqual([n for n in os.listdir(self.directory) if n.startswith(".octavo")], [])
        return outcome["path"]

    def check_meta(self, stored, path, format, source):
        wanted = json.load(open(source + ".json"))
        side = json.load(open(path + ".json")) if format != "zarr" else {}
        if side:
            about = side.pop("file")
            side.pop("pages", None)
            self.assertEqual((side.pop("format"), about["bytes"]), (format, os.path.getsize(path)))
            self.assertEqual({**wanted, **side}, side if set(side) == set(wanted) else None)
            self.assertEqual(side, wanted)
        if stored.meta is not None:
            self.assertEqual(stored.meta, wanted)
        else:
            self.assertIn(format, ("npy", "bin"))

    def test_every_format_holds_every_type(self):
        for dtype in DTYPES:
            source, array = self.source(dtype, name=f"source_{dtype}")
            for format in READERS:
                with self.subTest(dtype=dtype, format=format):
                    name = f"{dtype}_{format}"
                    if dtype == "f16" and format in LACKING_F16:
                        code, text = self.octavo(source, os.path.join(self.directory, name), "--format", format)
                        self.assertEqual((code, json.loads(text)["field"]), (1, "options.format"))
                        self.assertIn("half-precision", text)
                        continue
                    path = self.convert(source, name, "--format", format)
                    self.assertEqual(path, os.path.join(self.directory, name + ENDINGS[format]))
                    stored = READERS[format](path)
                    self.assertEqual(stored.array.dtype, np.dtype(DTYPES[dtype]))
                    np.testing.assert_array_equal(stored.array, array)
                    if stored.spacing_um is not None:
                        np.testing.assert_allclose(stored.spacing_um, [12.5, 6.25, 3.4375], rtol=1e-6 if format == "nifti" else 1e-15)
                    self.check_meta(stored, path, format, source)

    def test_what_only_a_format_tells(self):
        source, _ = self.source("u16")
        nrrd = READERS["nrrd"](self.convert(source, "a", "--format", "nrrd")).extra
        self.assertEqual({key: nrrd[key] for key in ("old min", "old max", "encoding", "content")},
                         {"old min": "-10", "old max": "40", "encoding": "gzip", "content": 'Auge é <&> "q"'})
        nifti = READERS["nifti"](self.convert(source, "b", "--format", "nifti")).extra
        self.assertEqual((nifti["version"], nifti["cal"], nifti["description"]), (1, (5, 200), 'Auge é <&> "q"'))
        self.assertEqual(READERS["nifti"](self.convert(source, "b2", "--format", "nifti", "--nifti-version", "2")).extra["version"], 2)
        mat = READERS["mat"](self.convert(source, "c", "--format", "mat")).extra
        self.assertEqual((mat["display"], mat["levels"], mat["compressed"]), ([5, 200], [-10, 40], {"volume"}))
        hdf5 = READERS["hdf5"](self.convert(source, "d", "--format", "hdf5", "--chunk", "4,16,32")).extra
        self.assertEqual((hdf5["chunks"], hdf5["compression"], hdf5["shuffle"], hdf5["value"], hdf5["display"], hdf5["levels"]),
                         ((4, 16, 32), "gzip", True, "db", [5, 200], [-10, 40]))
        long_title, _ = self.source("u8", (2, 3, 4), name="long", title="a\\b\n" + 50 * "é")
        self.assertEqual(READERS["nrrd"](self.convert(long_title, "f", "--format", "nrrd")).extra["content"], "a\\b " + 50 * "é")
        self.assertEqual(READERS["nifti"](self.convert(long_title, "g", "--format", "nifti")).extra["description"], "a\\b\n" + 37 * "é")
        self.assertEqual(READERS["tiff"](self.convert(long_title, "h", "--format", "tiff")).extra["name"], "a\\b " + 50 * "é")
        self.assertEqual(READERS["tiff"](self.convert(source, "e", "--format", "tiff")).extra["compressions"], {8})

    def test_uncompressed_and_shuffles(self):
        for dtype in ("u8", "u16", "f32"):
            source, array = self.source(dtype, name=f"source_{dtype}")
            for format, key, none in (("nrrd", "encoding", "raw"), ("tiff", "compressions", {1}), ("mat", "compressed", set()), ("hdf5", "compression", None)):
                with self.subTest(dtype=dtype, format=format):
                    stored = READERS[format](self.convert(source, f"{dtype}_{format}_raw", "--format", format, "--raw"))
                    np.testing.assert_array_equal(stored.array, array)
                    self.assertEqual(stored.extra[key], none)
            stored = READERS["hdf5"](self.convert(source, f"{dtype}_plain", "--format", "hdf5", "--shuffle", "none", "--level", "9"))
            np.testing.assert_array_equal(stored.array, array)
            self.assertFalse(stored.extra["shuffle"])

    def test_shapes_that_do_not_fit_anything(self):
        for shape in ((1, 1, 1), (1, 7, 300), (300, 1, 7), (7, 300, 1), (130, 131, 129)):
            source, array = self.source("u16", shape, name="source_{}_{}_{}".format(*shape))
            for format in READERS:
                with self.subTest(shape=shape, format=format):
                    stored = READERS[format](self.convert(source, "{}_{}_{}_{}".format(format, *shape), "--format", format))
                    np.testing.assert_array_equal(stored.array.reshape(shape), array)

    def test_volumes_of_many_slabs(self):
        source, array = self.source("u16", (70, 600, 500))  # 42 MB: several slabs and pieces of each writer
        for format in READERS:
            with self.subTest(format=format):
                path = self.convert(source, format, "--format", format)
                np.testing.assert_array_equal(READERS[format](path).array, array)
                shutil.rmtree(path, True)
                if os.path.exists(path):
                    os.remove(path)

    # -- files do not state unknown facts as known

    def test_spacing_that_is_assumed(self):
        for axes, known in (("yxz", "xyz"), ("yxz", ""), ("yxz", "z"), ("yxz", "xy"), ("zyx", ""), ("zyx", "z"), ("xzy", "y"), ("zxy", "x")):
            told = {"y": 12.5, "x": 6.25, "z": 3.4375}
            spacing = {axis: told[axis] if axis in known else 1 for axis in "xyz"}
            assumed = [axis for axis in axes if axis not in known]
            marks = {"spacing_assumed": assumed} if assumed else {}
            source, array = self.source("u16", name=f"source_{axes}_{known}", axes=list(axes), spacing_um=[spacing[axis] for axis in axes], **marks)
            wanted = array.transpose([axes.index(axis) for axis in "yxz"])
            for format in READERS:
                with self.subTest(axes=axes, known=known, format=format):
                    path = self.convert(source, f"{axes}_{known}_{format}", "--format", format)
                    stored = READERS[format](path)
                    np.testing.assert_array_equal(stored.array, wanted)
                    self.assertEqual(stored.assumed, "".join(sorted(assumed)))
                    if stored.spacing_um is not None:
                        np.testing.assert_allclose(stored.spacing_um, [spacing[axis] for axis in "yxz"], rtol=1e-6)
                    self.check_meta(stored, path, format, source)
                    if format == "zarr":
                        self.assertEqual(ome_rules.problems(path), [])
                    again = READERS["nifti"](self.convert(path, f"{axes}_{known}_{format}_on.nii"))  # and on
                    self.assertEqual((again.assumed, again.meta.get("spacing_assumed", [])), (stored.assumed, assumed))
            for flags in ([], ["--tiff-plane", "bscan"])[:1 if axes[0] == "x" else 2]:
                stack = read_tiff_stack(self.convert(source, f"{axes}_{known}_{len(flags)}", "--tiff-stack", *flags))
                self.assertEqual((stack.assumed, stack.meta), ("".join(sorted(assumed)), json.load(open(source + ".json"))))

    def test_an_assumed_spacing_by_the_formats_own_libraries(self):
        import h5py
        import tifffile
        source, _ = self.source("u8", spacing_um=[1, 1, 3.4375], spacing_assumed=["y", "x"])
        with tifffile.TiffFile(self.convert(source, "t.tif")) as tiff:  # pages y, rows z, columns x
            pixels = tifffile.xml2dict(tiff.ome_metadata)["OME"]["Image"]["Pixels"]
            self.assertEqual({key: value for key, value in pixels.items() if key.startswith("Physical")},
                             {"PhysicalSizeY": 3.4375, "PhysicalSizeYUnit": "µm"})
        with h5py.File(self.convert(source, "t.h5")) as file:
            self.assertEqual(file["volume"].attrs["spacing_assumed"].tolist(), ["y", "x"])
            self.assertNotIn("element_size_um", file["volume"].attrs)
        try:
            import nibabel
        except ImportError:
            return
        for version in ("1", "2"):
            image = nibabel.load(self.convert(source, f"t{version}.nii", "--nifti-version", version))
            self.assertEqual(image.header.get_xyzt_units()[0], "unknown")
            np.testing.assert_allclose(image.header.get_zooms(), [1, 1, 0.0034375])

    def test_the_pyramid_of_an_assumed_spacing(self):
        source, _ = self.source("u8", (16, 16, 16), spacing_um=[1, 6.25, 1], spacing_assumed=["y", "z"])
        path = self.convert(source, "p.zarr", "--pyramid", "3")
        self.assertEqual(ome_rules.problems(path), [])
        self.assertEqual(json.load(open(os.path.join(path, "zarr.json")))["attributes"]["ome"]["multiscales"][0]["axes"],
                         [{"name": "y", "type": "space"}, {"name": "x", "type": "space", "unit": "micrometer"}, {"name": "z", "type": "space"}])

    def test_warnings_and_what_is_missing_go_along(self):
        warnings = [f"a doubt {i} über \\ \"q\" <&>" for i in range(32)]
        source, _ = self.source("u8", warnings=warnings, missing_frames=3, expected_frames=180)
        for format in READERS:
            with self.subTest(format=format):
                path = self.convert(source, f"w_{format}", "--format", format)
                self.check_meta(READERS[format](path), path, format, source)
        many, _ = self.source("u8", name="many", warnings=[f"{i}" for i in range(40)])
        self.assertEqual(READERS["hdf5"](self.convert(many, "many.h5")).meta["warnings"], [f"{i}" for i in range(32)])
        one, _ = self.source("u8", name="one", warnings=["one"])
        self.assertEqual(READERS["hdf5"](self.convert(one, "one.h5")).meta["warnings"], ["one"])

    def test_marks_that_cannot_be(self):
        for changes, text in ((dict(spacing_assumed=["t"]), "spacing_assumed"), (dict(spacing_assumed="y"), "spacing_assumed"),
                              (dict(spacing_assumed=[1]), "spacing_assumed"), (dict(warnings="x"), "warnings"), (dict(warnings=[1]), "warnings"),
                              (dict(expected_frames=10), "missing_frames"), (dict(expected_frames="x", missing_frames=0), "expected_frames")):
            with self.subTest(changes=changes):
                source, _ = self.source("u8", (3, 4, 5), name="odd", **changes)
                self.refused(source, os.path.join(self.directory, "x.nii"), code=15, text=text)

    # -- axes: a tomogram has z, y, x; a transposed volume any order

    PAGES = {"y": ["y", "z", "x"], "z": ["z", "y", "x"], "x": ["x", "z", "y"]}  # [page, row, column]

    def marked(self, axes, random, dtype="u16", name="marked"):
        """A volume along `axes` of an odd shape, with one voxel that differs from all others.
        Returns the file, the array as [y, x, z], and the spacing by name."""
        extents = dict(zip("xyz", random.choice([3, 5, 7, 11, 13, 17, 19, 23], 3, replace=False).tolist()))
        spacing = dict(zip("xyz", (random.permutation([1.25, 2.5, 5.75]) + random.random()).tolist()))
        shape = tuple(extents[axis] for axis in axes)
        array = make_array(dtype, shape, int(random.integers(1 << 30))) // 2 if dtype != "f32" else random.random(shape, np.float32)
        marked = {axis: int(random.integers(n)) for axis, n in extents.items()}
        array[tuple(marked[axis] for axis in axes)] = 65535 if dtype == "u16" else 255
        path = os.path.join(self.directory, name + ".npy")
        np.save(path, array)
        with open(path + ".json", "w") as file:
            json.dump(make_meta(array, dtype, axes=list(axes), spacing_um=[spacing[axis] for axis in axes]), file)
        return path, array.transpose([axes.index(axis) for axis in "yxz"]), spacing, marked

    def test_axes_in_any_order(self):
        print("seed", SEED)
        random = np.random.default_rng(SEED)
        for axes in ("yxz", "zyx", "zxy", "yzx", "xyz", "xzy"):
            for dtype in random.permutation(["u8", "u16", "f32"])[:1].tolist():
                source, array, spacing, marked = self.marked(axes, random, dtype, f"{axes}_{dtype}")
                for format in READERS:
                    with self.subTest(axes=axes, dtype=dtype, format=format):
                        path = self.convert(source, f"{axes}_{dtype}_{format}", "--format", format)
                        stored = READERS[format](path)
                        np.testing.assert_array_equal(stored.array, array)
                        self.assertEqual(np.unravel_index(stored.array.argmax(), array.shape), tuple(marked[axis] for axis in "yxz"))
                        if stored.spacing_um is not None:
                            np.testing.assert_allclose(stored.spacing_um, [spacing[axis] for axis in "yxz"], rtol=1e-6)
                        self.check_meta(stored, path, format, source)
                        if format == "zarr":
                            self.assertEqual(stored.extra["axes"], list(axes))
                            self.assertEqual(ome_rules.problems(path), [])
                        if format == "nifti":
                            self.assertEqual(stored.extra["ijk"], list("xyz") if axes[0] != "x" else list(axes[::-1]))
                        if format == "mat":
                            self.assertEqual(stored.extra["axes"], axes[::-1])
                        if format == "hdf5":
                            self.assertEqual(stored.extra["axes"], list(axes))
                        if format == "tiff":
                            self.assertEqual(stored.extra["pages"], self.PAGES[axes[0]])
                            self.assertEqual(json.load(open(path + ".json"))["pages"], self.PAGES[axes[0]])
                        back = self.convert(path, f"{axes}_{dtype}_{format}_back.nrrd")
                        np.testing.assert_array_equal(READERS["nrrd"](back).array, array)
                        self.check_meta(READERS["nrrd"](back), back, "nrrd", source)

    def test_pages_of_tiff_files(self):
        print("seed", SEED)
        random = np.random.default_rng(SEED)
        for axes in ("yxz", "zyx", "zxy", "yzx"):
            source, array, spacing, _ = self.marked(axes, random, "u16", f"pages_{axes}")
            for i, (plane, flags) in enumerate([("y", ["--tiff-plane", "bscan"]), ("z", ["--tiff-plane", "en-face"]), (axes[0], []), (axes[0], ["--raw"]),
                                                ("y", ["--tiff-plane", "bscan", "--raw"]), ("z", ["--tiff-plane", "en-face", "--level", "9"])]):
                with self.subTest(axes=axes, flags=flags):
                    path = self.convert(source, f"{axes}_{i}.tif", *flags)
                    stored = READERS["tiff"](path)
                    self.assertEqual(stored.extra["pages"], self.PAGES[plane])
                    np.testing.assert_array_equal(stored.array, array)
                    # Read by a program that ignores the names of the axes.
                    np.testing.assert_array_equal(stored.extra["array"], array.transpose(["yxz".index(axis) for axis in self.PAGES[plane]]))
                    stack = self.convert(source, f"{axes}_{i}_stack", "--tiff-stack", *flags)
                    self.assertEqual(stack, os.path.join(self.directory, f"{axes}_{i}_stack"))
                    files = read_tiff_stack(stack)
                    self.assertEqual(files.extra["pages"], self.PAGES[plane])
                    np.testing.assert_array_equal(files.array, array)
                    self.assertEqual(files.meta, json.load(open(source + ".json")))
                    np.testing.assert_allclose(files.spacing_um, [spacing[axis] for axis in "yxz"], rtol=1e-15)

    def test_pages_of_many_strips_and_slabs(self):
        # Pages of several strips and blocks, slabs of several pages, and pages across slabs.
        for axes, shape in (("yxz", (40, 700, 600)), ("zyx", (5, 1500, 1700)), ("zxy", (33, 800, 701))):
            source, array = self.source("u16", shape, name=f"large_{axes}", axes=list(axes))
            wanted = array.transpose([axes.index(axis) for axis in "yxz"])
            for flags in ([], ["--tiff-plane", "bscan"], ["--tiff-plane", "en-face", "--raw"]):
                with self.subTest(axes=axes, flags=flags):
                    one, many = self.convert(source, "large.tif", *flags), self.convert(source, "large", "--tiff-stack", *flags)
                    np.testing.assert_array_equal(READERS["tiff"](one).array, wanted)
                    np.testing.assert_array_equal(read_tiff_stack(many).array, wanted)
                    os.remove(one), os.remove(one + ".json"), shutil.rmtree(many)

    def test_tomograms_read_by_the_formats_own_libraries(self):
        """The file of a tomogram in other programs: slices are pages, and x runs along the columns."""
        import h5py
        import tifffile
        random = np.random.default_rng(5)
        source, array, spacing, _ = self.marked("zyx", random)
        zyx = array.transpose(2, 0, 1)
        np.testing.assert_array_equal(tifffile.imread(self.convert(source, "t.tif")), zyx)
        stack = self.convert(source, "slices", "--tiff-stack")
        np.testing.assert_array_equal(tifffile.imread([os.path.join(stack, name) for name in sorted(os.listdir(stack)) if name.endswith(".tif")]), zyx)
        with h5py.File(self.convert(source, "t.h5")) as file:
            np.testing.assert_array_equal(file["volume"][()], zyx)
            self.assertEqual([dim.label for dim in file["volume"].dims], ["z", "y", "x"])

    def test_codecs_shards_and_the_way_back(self):
        source, array = self.source("u16")
        cases = [("zstd", ["--zstd", "19"]), ("gzip", ["--level", "9"]), ("blosc-zstd", []), ("blosc-lz4", ["--level", "1"]), ("blosc-lz4", ["--shuffle", "bit"]),
                 ("blosc-zstd", ["--shuffle", "none"]), (None, ["--raw"])]
        for i, (codec, flags) in enumerate(cases):
            for shards in ([], ["--shard", "8,64,80"]):
                with self.subTest(codec=codec, flags=flags, shards=shards):
                    path = self.convert(source, f"z{i}_{len(shards)}", "--format", "zarr", "--chunk", "4,16,20", *(["--codec", codec] if codec else []), *flags, *shards)
                    stored = read_zarr(path)
                    np.testing.assert_array_equal(stored.array, array)
                    self.assertEqual(ome_rules.problems(path), [])
                    back = self.convert(path, f"back{i}_{len(shards)}.npy")
                    np.testing.assert_array_equal(np.load(back), array)
                    sides = [json.load(open(name + ".json")) for name in (source, back)]
                    for side in sides:
                        side.pop("file", None), side.pop("format", None)
                    self.assertEqual(*sides)
        single = self.convert(source, "one.bin")
        np.testing.assert_array_equal(READERS["nifti"](self.convert(single, "two.nii")).array, array)

    def test_blosc_shuffles_bits_of_bytes_by_default(self):
        source, _ = self.source("u8")
        stored = read_zarr(self.convert(source, "z.zarr", "--codec", "blosc-lz4"))
        self.assertEqual(stored.extra["arrays"][0]["codecs"][1]["configuration"], {"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle", "typesize": 1, "blocksize": 0})

    def test_ome_zarr_04(self):
        """Zarr v2: read by hand, by zarr-python and by octavo convert; its metadata say what those of 0.5 say."""
        random = np.random.default_rng(SEED)
        print("seed", SEED)
        cases = [(dtype, codec) for dtype in DTYPES for codec in ([], ["--codec", "gzip", "--level", "3"], ["--codec", "blosc-zstd"],
                                                                  ["--codec", "blosc-lz4", "--shuffle", "bit"], ["--raw"])]
        for i, (dtype, codec) in enumerate(cases):
            shape, chunk = [int(n) for n in random.integers(1, 30, 3)], ",".join(str(n) for n in random.integers(1, 20, 3))
            with self.subTest(dtype=dtype, codec=codec, shape=shape, chunk=chunk):
                source, array = self.source(dtype, shape, name=f"source{i}", spacing_assumed=["x"])
                count = "2" if dtype != "c64" and max(shape) > 1 else "1"
                flags = ["--format", "zarr", "--chunk", chunk, "--pyramid", count, *codec]
                path, new = self.convert(source, f"v2_{i}", "--ngff", "0.4", *flags), self.convert(source, f"v3_{i}", "--ngff", "0.5", *flags)
                stored, other = read_zarr(path), read_zarr(new)
                np.testing.assert_array_equal(stored.array, array)
                self.assertEqual(stored.array.tobytes(), array.tobytes())
                self.assertEqual((stored.meta, stored.spacing_um, stored.assumed), (other.meta, other.spacing_um, other.assumed))
                ome, ome5 = (s.extra["group"]["attributes"]["ome"] for s in (stored, other))
                ome["multiscales"][0].pop("version"), ome5.pop("version")
                self.assertEqual(ome, ome5)
                for (voxels, steps), (voxels5, steps5) in zip(stored.extra["levels"], other.extra["levels"]):
                    self.assertEqual((voxels.tobytes(), steps), (voxels5.tobytes(), steps5))
                self.assertEqual(len(stored.extra["levels"]), int(count))
                import zarr  # Debian's is of version 2
                group = zarr.open_group(path, mode="r")
                self.assertEqual(sorted(group.array_keys()), [str(k) for k in range(int(count))])
                self.assertEqual(group["0"][...].tobytes(), array.tobytes())
                self.assertEqual(group["0"].attrs["_ARRAY_DIMENSIONS"], ["y", "x", "z"])
                back = self.convert(path, f"back{i}.npy")
                self.assertEqual(np.load(back).tobytes(), array.tobytes())
                self.assertEqual({**json.load(open(back + ".json")), "file": 0, "format": 0}, {**json.load(open(source + ".json")), "file": 0, "format": 0})
        source, _ = self.source("u8")
        at = os.path.join(self.directory, "x.zarr")
        self.refused(source, at, "--ngff", "0.4", "--chunk", "4,4,4", "--shard", "8,8,8", field="options.shard", text="no shards; allowed with 0.5")
        # A damaged file is found by the manifest, where no digest tells.
        path = self.convert(source, "damaged", "--format", "zarr", "--ngff", "0.4", "--raw", "--pyramid", "2")
        with open(os.path.join(path, "1", "0", "0", "0"), "r+b") as file:
            file.write(bytes([file.read(1)[0] ^ 1]))
        self.refused(path, os.path.join(self.directory, "y.npy"), "--from-level", "1", code=15)

    # -- pyramids

    def test_pyramids(self):
        cases = [("u8", (21, 50, 40), 4, []), ("i8", (33, 17, 9), 3, ["--chunk", "5,8,8"]), ("u16", (64, 64, 64), 7, ["--chunk", "16,16,16"]),
                 ("i16", (37, 10, 11), 4, ["--chunk", "3,5,7"]), ("f32", (21, 50, 40), 4, ["--chunk", "1,50,40"]), ("f64", (9, 8, 7), 3, ["--chunk", "3,8,8"]),
                 ("u16", (40, 40, 40), 3, ["--chunk", "4,8,8", "--shard", "8,16,16", "--codec", "blosc-zstd"]), ("u8", (1, 64, 30), 4, []), ("u8", (1, 1, 300), 9, []),
                 ("f16", (16, 16, 16), 3, ["--raw"])]
        for i, (dtype, shape, count, flags) in enumerate(cases):
            with self.subTest(dtype=dtype, shape=shape, flags=flags):
                source, array = self.source(dtype, shape, name=f"source{i}")
                path = self.convert(source, f"p{i}.zarr", "--pyramid", str(count), *flags)
                self.assertEqual(ome_rules.problems(path), [])
                levels = read_zarr(path).extra["levels"]
                self.assertEqual(len(levels), count)
                spacing = np.array([12.5, 6.25, 3.4375])
                expected = array
                for k, (voxels, transformations) in enumerate(levels):
                    if dtype in ("f32", "f16"):
                        np.testing.assert_allclose(voxels.astype("f8"), expected.astype("f8"), rtol=2e-7 if dtype == "f32" else 2e-3)
                    elif dtype == "f64":
                        np.testing.assert_allclose(voxels, expected, rtol=1e-15)
                    else:
                        np.testing.assert_array_equal(voxels, expected)
                    halvings = np.array([min(k, int(np.log2(n))) for n in shape])
                    np.testing.assert_array_equal(transformations[0]["scale"], spacing * 2.0**halvings)
                    np.testing.assert_array_equal(transformations[1]["translation"], spacing * (2.0**halvings - 1) / 2)
                    expected = halved(voxels)

    def test_a_ramp_stays_where_it_is(self):
        """Every voxel of every array holds its own position, which scale and translation must give."""
        array = np.broadcast_to(np.arange(64, dtype="<f8"), (8, 16, 64)).copy()
        path = os.path.join(self.directory, "ramp.npy")
        np.save(path, array)
        json.dump(make_meta(array, "f64", spacing_um=[1, 1, 0.5]), open(path + ".json", "w"))
        for voxels, transformations in read_zarr(self.convert(path, "ramp.zarr", "--pyramid", "4")).extra["levels"]:
            scale, translation = transformations[0]["scale"][2], transformations[1]["translation"][2]
            np.testing.assert_array_equal(voxels[0, 0] * 0.5, np.arange(voxels.shape[2]) * scale + translation)

    def test_pyramids_of_given_sizes(self):
        """Against matrices of the parts in which boxes and voxels overlap, over random shapes, spacings and sizes."""
        random = np.random.default_rng(SEED)
        print("seed", SEED)

        def overlaps(extent, factor):
            edges = np.arange(max(1, int(np.floor(extent / factor * (1 + 1e-9))))) * factor
            begin, end, voxel = edges[:, None], np.minimum(edges + factor, extent)[:, None], np.arange(extent)[None]
            parts = np.clip(np.minimum(voxel + 1, end) - np.maximum(voxel, begin), 0, 1)
            return np.where(parts > 1e-9, parts, 0)

        for i in range(24):
            dtype = list(DTYPES)[i % 7]  # all but complex numbers
            shape = [int(n) for n in random.integers(1, 60, 3)]
            shape[random.integers(3)] = int(random.integers(20, 70))
            spacing = [float(s) for s in (random.choice([0.5, 2, 3.4375, 12.5, 30], 3) if i % 2 else random.uniform(1, 20, 3))]
            long = [(n, s) for n, s in zip(shape, spacing) if n > 1]
            least, most = min(s for _, s in long), max(n * s for n, s in long)
            sizes = sorted({float(t) for t in (random.choice([1, 5, 10, 25, 50, 100], 4) if i % 2 else random.uniform(least, most, 3)) if least < t <= most})
            if not sizes:
                continue
            chunk = ",".join(str(n) for n in random.integers(1, 20, 3))
            ngff = ["0.4", "0.5"][random.integers(2)]
            with self.subTest(dtype=dtype, shape=shape, spacing=spacing, sizes=sizes, chunk=chunk, ngff=ngff):
                source, array = self.source(dtype, shape, name=f"source{i}", spacing_um=spacing)
                path = self.convert(source, f"um{i}.zarr", "--pyramid-um", ",".join(map(repr, sizes)), "--chunk", chunk, "--ngff", ngff)
                if ngff == "0.5":
                    self.assertEqual(ome_rules.problems(path), [])
                levels = read_zarr(path).extra["levels"]
                self.assertEqual(len(levels), 1 + len(sizes))
                np.testing.assert_array_equal(levels[0][0], array)
                for size, (voxels, steps) in zip(sizes, levels[1:]):
                    wanted = [max(s, size) if n > 1 else s for n, s in zip(shape, spacing)]
                    self.assertEqual(steps[0]["scale"], wanted)
                    self.assertEqual(steps[1]["translation"], [(w - s) / 2 for w, s in zip(wanted, spacing)])
                    matrices = [overlaps(n, w / s) for n, w, s in zip(shape, wanted, spacing)]
                    self.assertEqual(list(voxels.shape), [len(m) for m in matrices])
                    values = array.astype("f8")
                    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                        counted = np.einsum("ia,jb,kc,abc->ijk", *matrices, (~np.isnan(values)).astype("f8"), optimize=True)
                        finite = np.where(np.isinf(values) | np.isnan(values), 0, values)
                        mean = np.einsum("ia,jb,kc,abc->ijk", *matrices, finite, optimize=True) / counted
                        infinite = np.einsum("ia,jb,kc,abc->ijk", *matrices, np.isinf(values).astype("f8"), optimize=True) > 0
                        mean = np.where(infinite, np.inf, mean)  # the arrays hold no -inf
                    if voxels.dtype.kind in "ui":
                        difference = np.abs(voxels - mean)
                        self.assertLessEqual(difference.max(), 0.5 + 1e-9)
                    else:
                        np.testing.assert_allclose(voxels.astype("f8"), mean.astype(voxels.dtype).astype("f8"),
                                                   rtol={"f2": 1e-3, "f4": 2e-7, "f8": 1e-12}[voxels.dtype.str[1:]], atol=1e-11)

    def test_sizes_of_a_pyramid_that_are_refused(self):
        source, _ = self.source("u8")  # 21 x 12.5, 50 x 6.25, 40 x 3.4375 um
        at = os.path.join(self.directory, "x.zarr")
        for sizes, field, text in (("3.4375", "options.pyramid_um[0]", "is 3.4375; allowed are sizes in um above 3.4375"), ("10,10", "options.pyramid_um[1]", "is 10 after 10"),
                                   ("20,10", "options.pyramid_um[1]", "ascending"), ("-1", "options.pyramid_um[0]", "is -1"), ("10,1000", "options.pyramid_um[1]", "up to 312.5"),
                                   ("nan", "options.pyramid_um[0]", "is nan"), (",".join(map(str, range(10, 26))), "options.pyramid_um", "has 16 sizes; allowed up to 15")):
            with self.subTest(sizes=sizes):
                self.refused(source, at, f"--pyramid-um={sizes}", field=field, text=text)
        self.refused(source, at, "--pyramid-um", "10", "--pyramid", "2", field="options.pyramid_um", text="options.pyramid_levels is 2; allowed is one of them")
        self.refused(source, os.path.join(self.directory, "x.npy"), "--pyramid-um", "10", field="options.pyramid_um", text="allowed with zarr")
        unknown, _ = self.source("u8", name="unknown", spacing_assumed=["z"])
        self.refused(unknown, at, "--pyramid-um", "10", field="options.pyramid_um", text="spacing along z is not known")
        complex_source, _ = self.source("c64", (4, 4, 4), name="complex_um")
        self.refused(complex_source, at, "--pyramid-um", "10", field="options.pyramid_um", text="complex")

    def test_the_rules_see_what_is_wrong(self):
        source, _ = self.source("u16", (16, 16, 16))
        path = self.convert(source, "z.zarr", "--pyramid", "3")
        nodes = {name: json.load(open(os.path.join(path, name, "zarr.json"))) for name in ("", "0", "1", "2")}
        load = lambda tree: lambda at: tree[os.path.relpath(at, path).replace(".", "") if at != path else ""]  # noqa: E731
        self.assertEqual(ome_rules.problems(path, load(nodes)), [])

        def ome(tree):
            return tree[""]["attributes"]["ome"]

        def first(tree):
            return ome(tree)["multiscales"][0]
        faults = [lambda t: ome(t).update(version="0.4"), lambda t: first(t)["axes"][0].update(unit="um"), lambda t: first(t)["axes"][0].update(name="x"),
                  lambda t: first(t)["axes"][2].update(type="time"), lambda t: first(t).update(datasets=[]), lambda t: first(t)["datasets"].reverse(),
                  lambda t: first(t)["datasets"][1]["coordinateTransformations"].reverse(), lambda t: first(t)["datasets"][1]["coordinateTransformations"].pop(0),
                  lambda t: first(t)["datasets"][0]["coordinateTransformations"][0]["scale"].pop(), lambda t: first(t).update(version="0.5"),
                  lambda t: t["1"].update(dimension_names=["z", "y", "x"]), lambda t: t["1"].pop("dimension_names"), lambda t: t["2"].update(data_type="uint8"),
                  lambda t: first(t)["datasets"][1]["coordinateTransformations"][1]["translation"].__setitem__(0, 0), lambda t: t["0"].update(zarr_format=2),
                  lambda t: ome(t)["omero"]["channels"][0].update(color="white"), lambda t: ome(t)["omero"]["channels"][0]["window"].pop("end"),
                  lambda t: first(t)["datasets"][0].update(path="../0"), lambda t: t[""].update(node_type="array")]
        for i, fault in enumerate(faults):
            tree = copy.deepcopy(nodes)
            fault(tree)
            self.assertTrue(ome_rules.problems(path, load(tree)), f"fault {i} is not seen")

    # -- refusals and faults

    def refused(self, *arguments, field=None, text=None, code=None, preexec_fn=None):
        before = sorted(os.listdir(self.directory))
        status, said = self.octavo(*arguments, preexec_fn=preexec_fn)
        self.assertEqual(status, 1, said)
        error = json.loads(said)
        if field is not None:
            self.assertEqual(error["field"], field, said)
        if code is not None:
            self.assertEqual(error["code"], code, said)
        if text is not None:
            self.assertIn(text, error["message"])
        self.assertEqual(sorted(os.listdir(self.directory)), before, "nothing is left behind")

    def test_refusals(self):
        source, array = self.source("u8")
        at = lambda name: os.path.join(self.directory, name)  # noqa: E731
        self.refused(source, at("x"), field="destination", text="no ending")
        for flags, field in ((["--format", "npy", "--codec", "gzip"], "options.codec"), (["--format", "nrrd", "--codec", "zstd"], "options.codec"),
                             (["--format", "zarr", "--level", "3"], "options.level"),
                             (["--format", "nrrd", "--level", "10"], "options.level"), (["--format", "zarr", "--codec", "gzip", "--shuffle", "byte"], "options.shuffle"),
                             (["--format", "hdf5", "--shuffle", "bit"], "options.shuffle"), (["--format", "nrrd", "--shuffle", "byte"], "options.shuffle"),
                             (["--format", "nrrd", "--pyramid", "2"], "options.pyramid_levels"), (["--format", "zarr", "--pyramid", "7"], "options.pyramid_levels"),
                             (["--format", "nrrd", "--nifti-version", "1"], "options.nifti_version"), (["--format", "nifti", "--nifti-version", "3"], "options.nifti_version"),
                             (["--format", "zarr", "--chunk", "4,4,4", "--shard", "6,8,8"], "options.shard"), (["--format", "zarr", "--zstd", "20"], "options.zstd_level"),
                             (["--format", "npy", "--level", "2"], "options.level"), (["--format", "npy", "--tiff-stack"], "options.tiff_stack"),
                             (["--format", "nrrd", "--tiff-plane", "bscan"], "options.tiff_plane"), (["--format", "npy", "--ngff", "0.4"], "options.ngff")):
            with self.subTest(flags=flags):
                self.refused(source, at("x"), *flags, field=field)
        complex_source, _ = self.source("c64", (4, 4, 4), name="complex")
        self.refused(complex_source, at("x.zarr"), "--pyramid", "2", field="options.pyramid_levels", text="complex")
        long_source, _ = self.source("u8", (2, 2, 40000), name="long")
        self.refused(long_source, at("x.nii"), "--nifti-version", "1", field="options.nifti_version", text="40000")
        self.assertEqual(READERS["nifti"](self.convert(long_source, "long.nii")).extra["version"], 2)
        turned, _ = self.source("u8", (3, 4, 5), name="turned", axes=["x", "y", "z"])
        self.refused(turned, at("x.tif"), "--tiff-plane", "bscan", field="options.tiff_plane", text="first axis is x")
        for axes in (["y", "x", "x"], ["y", "x", "t"], ["y", "x"], ["yx", "z", ""], [1, 2, 3], "yxz"):
            odd, _ = self.source("u8", (3, 4, 5), name="odd", axes=axes)
            self.refused(odd, at("x.nii"), code=15, text="axes")
        os.mkdir(at("folder"))
        self.refused(source, at("folder"), "--tiff-stack", code=6)
        self.refused(source, at("no/such/x.npy"), code=5)
        self.refused(at("absent.npy"), at("x.nii"), code=5)
        self.refused(source, source, code=6)
        open(at("taken.nii.json"), "w").close()
        self.refused(source, at("taken.nii"), code=6)
        np.save(at("foreign.npy"), array)
        self.refused(at("foreign.npy"), at("x.nii"), field="axes", text="the file does not name its axis 0")
        self.refused(at("foreign.npy"), at("x.nii"), "--axes", "y,x,z", "--spacing-um", "x=6,y=12", field="spacing_um.z", text="is missing")
        self.refused(at("foreign.npy"), at("x.nii"), "--spacing-um", "x", field="--spacing-um", text="name=number")
        self.refused(at("foreign.npy"), at("x.nii"), "--from-format", "png", field="--from-format", text="'png'; allowed npy")
        os.mkdir(at("dir"))
        self.refused(at("dir"), at("x.nii"), code=3, text="dir: the folder is without files *.tif")
        with open(at("text.txt"), "w") as file:
            file.write("x")
        self.refused(at("text.txt"), at("x.nii"), code=3, text="text.txt: the file is of no kind that its first bytes tell")

    def test_files_of_other_programs_become_every_format(self):
        array = make_array("u16", (7, 9, 11))
        path = os.path.join(self.directory, "foreign.npy")
        np.save(path, array)
        for format in READERS:
            with self.subTest(format=format):
                stored = READERS[format](self.convert(path, f"foreign_{format}", "--format", format, "--axes", "z,y,x", "--spacing-um", "x=6,y=12.5,z=3"))
                np.testing.assert_array_equal(stored.array, array.transpose(1, 2, 0))
                if stored.spacing_um is not None:
                    np.testing.assert_allclose(stored.spacing_um, [12.5, 6, 3], rtol=1e-6)
        array.astype(">u2").tofile(os.path.join(self.directory, "numbers.dat"))
        stored = READERS["nrrd"](self.convert(os.path.join(self.directory, "numbers.dat"), "raw.nrrd", "--raw-shape", "7,9,11", "--raw-type", "u16", "--raw-big-endian",
                                              "--axes", "y,x,z", "--unknown-spacing", "--dtype", "f32"))
        np.testing.assert_array_equal(stored.array, array.astype(np.float32))
        self.assertEqual(stored.assumed, "xyz")
        import tifffile
        pages = np.stack([array, array + 1], 1)
        tifffile.imwrite(os.path.join(self.directory, "two.ome.tif"), pages, ome=True, photometric="minisblack",
                         metadata={"axes": "ZCYX", "PhysicalSizeX": 1, "PhysicalSizeY": 2, "PhysicalSizeZ": 3})
        self.refused(os.path.join(self.directory, "two.ome.tif"), os.path.join(self.directory, "two.nii"), field="select.c", text="allowed 0 to 1")
        stored = READERS["hdf5"](self.convert(os.path.join(self.directory, "two.ome.tif"), "two.h5", "--select", "c=1", "--order", "yxz"))
        np.testing.assert_array_equal(stored.array, (array + 1).transpose(1, 2, 0))
        self.assertEqual(stored.spacing_um, [2, 1, 3])

    def test_matlab_has_a_limit(self):
        path = os.path.join(self.directory, "huge.npy")
        shape = (2100, 1024, 1024)
        meta = make_meta(np.zeros((1, 1, 1), "u1"), "u8", shape=list(shape))
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            file.truncate(file.tell() + int(np.prod(shape, dtype=np.int64)))  # sparse
        json.dump(meta, open(path + ".json", "w"))
        self.refused(path, os.path.join(self.directory, "x.mat"), field="options.format", text="2202009600")

    def test_damaged_sources(self):
        source, array = self.source("u16")
        zarr = self.convert(source, "z.zarr", "--chunk", "8,16,16", "--shard", "16,32,32", "--raw")
        at = lambda name: os.path.join(self.directory, name)  # noqa: E731

        def flip(path, offset):
            with open(path, "r+b") as file:
                file.seek(offset, 2 if offset < 0 else 0)
                byte = file.read(1)
                file.seek(offset, 2 if offset < 0 else 0)
                file.write(bytes([byte[0] ^ 4]))
        shard = os.path.join(zarr, "0", "c", "0", "0", "0")
        flip(shard, 100)
        self.refused(zarr, at("x.nii"), code=15, text="digest")
        flip(shard, 100)
        flip(shard, -3)
        self.refused(zarr, at("x.nii"), code=15, text="index")
        flip(shard, -3)
        os.rename(shard, shard + ".away")
        self.refused(zarr, at("x.nii"), code=15, text="missing")
        os.rename(shard + ".away", shard)
        self.convert(zarr, "fine.nii")
        packed = self.convert(source, "p.zarr")
        flip(os.path.join(packed, "0", "c", "0", "0", "0"), 300)
        self.refused(packed, at("x.nii"), code=15)
        flip(source, -50)
        self.refused(source, at("x.nii"), code=15, text="digest")
        flip(source, -50)
        with open(source, "r+b") as file:
            file.truncate(os.path.getsize(source) - 7)
        self.refused(source, at("x.nii"), code=15, text="bytes")
        group = json.load(open(os.path.join(packed, "zarr.json")))
        for change, code in ((lambda g: g["attributes"]["ome"]["multiscales"][0]["datasets"][0].update(path="../z.zarr/0"), 15),
                             (lambda g: g["attributes"]["octavo"].pop("spacing_um"), 15),
                             (lambda g: g["attributes"]["octavo"].update(shape=[21, 50, 41]), 15), (lambda g: g["attributes"]["octavo"].update(shape=[21, 50, -1]), 15),
                             (lambda g: g["attributes"]["octavo"].update(dtype="u33"), 15), (lambda g: g["attributes"]["ome"].pop("multiscales"), 3)):
            changed = copy.deepcopy(group)
            change(changed)
            json.dump(changed, open(os.path.join(packed, "zarr.json"), "w"))
            self.refused(packed, at("x.nii"), code=code)

    def test_a_source_without_digest_is_checked_by_its_crc(self):
        source, array = self.source("u8")
        path = self.convert(source, "z.npy")
        meta = json.load(open(path + ".json"))
        meta["digest"] = ""
        json.dump(meta, open(path + ".json", "w"))
        np.testing.assert_array_equal(READERS["nrrd"](self.convert(path, "fine.nrrd")).array, array)
        meta["file"]["crc32c"] = "%08x" % (int(meta["file"]["crc32c"], 16) ^ 1)
        json.dump(meta, open(path + ".json", "w"))
        self.refused(path, os.path.join(self.directory, "x.nrrd"), code=15, text="CRC")

    def test_no_room(self):
        """The system lets no file grow: every writer reports it and leaves no files."""
        source, _ = self.source("u16", (40, 80, 120))

        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for format, flags in [(format, []) for format in READERS] + [("tiff", ["--tiff-stack"]), ("tiff", ["--tiff-stack", "--tiff-plane", "en-face"])]:
            flags = flags + (["--chunk", "40,80,120"] if format in ("zarr", "hdf5") else [])
            limit = 3000 if "--tiff-stack" in flags else 200_000  # of a file
            for raw in ([], ["--raw"]):
                with self.subTest(format=format, raw=raw):
                    self.refused(source, os.path.join(self.directory, "x"), "--format", format, *flags, *raw, code=8, text="File too large", preexec_fn=no_room)

    def test_an_interrupt_leaves_nothing(self):
        source, _ = self.source("u16", (200, 300, 300))
        process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "convert", source, os.path.join(self.directory, "x.zarr"), "--zstd", "19", "--chunk", "1,300,300"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not any(n.startswith(".octavo-convert") for n in os.listdir(self.directory)):
            pass
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, error)
        self.assertIn("cancelled", error)
        self.assertEqual(sorted(os.listdir(self.directory)), ["source.npy", "source.npy.json"])

    # -- the formats' own libraries, if this machine has them

    def test_nibabel_agrees(self):
        try:
            import nibabel
        except ImportError:
            self.skipTest("no nibabel")
        for dtype in ("u8", "i16", "f32", "c64"):
            source, array = self.source(dtype, name=f"source_{dtype}")
            for version in ("1", "2"):
                image = nibabel.load(self.convert(source, f"{dtype}_{version}.nii", "--nifti-version", version))
                np.testing.assert_array_equal(np.asarray(image.dataobj), array.transpose(1, 0, 2))
                self.assertEqual(image.get_data_dtype(), array.dtype)
                np.testing.assert_allclose(image.affine, np.diag([0.00625, 0.0125, 0.0034375, 1]), rtol=1e-6)
                self.assertEqual(image.header.get_xyzt_units()[0], "mm")
                self.assertEqual(nibabel.aff2axcodes(image.affine), ("R", "A", "S"))
                for axes in ("zyx", "zxy", "yzx", "xyz", "xzy"):  # in every order, the same voxel lies at the same place
                    turned, by_yxz, spacing, marked = self.marked(axes, np.random.default_rng([ord(c) for c in axes]), name="turned")
                    path = self.convert(turned, f"{dtype}_{version}_{axes}.nii", "--nifti-version", version)
                    other = nibabel.as_closest_canonical(nibabel.load(path))
                    np.testing.assert_array_equal(np.asarray(other.dataobj), by_yxz.transpose(1, 0, 2))
                    np.testing.assert_allclose(other.affine, np.diag([spacing["x"] / 1000, spacing["y"] / 1000, spacing["z"] / 1000, 1]), rtol=1e-6)
                self.assertEqual(json.loads(image.header.extensions[0].get_content().rstrip(b"\0"))["title"], 'Auge é <&> "q"')

    def test_scipy_agrees(self):
        try:
            import scipy.io
        except ImportError:
            self.skipTest("no scipy")
        for dtype in ("u8", "i8", "u16", "i16", "f32", "f64", "c64"):
            source, array = self.source(dtype, name=f"source_{dtype}")
            for flags in ([], ["--raw"]):
                variables = scipy.io.loadmat(self.convert(source, f"{dtype}_{len(flags)}.mat", *flags))
                np.testing.assert_array_equal(variables["volume"], array.transpose(2, 1, 0))
                self.assertEqual(variables["volume"].dtype, array.dtype)
                self.assertEqual(variables["axes"][0], "zxy")
                np.testing.assert_array_equal(variables["spacing_um"], [[3.4375, 6.25, 12.5]])
                self.assertEqual(json.loads(variables["octavo"][0])["subject"]["note"], "two\nlines")


if __name__ == "__main__":
    unittest.main()
