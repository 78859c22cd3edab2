"""Files that become held volumes (IngestService.ImportVolume): those of independent writers (NumPy, tifffile, nibabel, h5py,
SciPy), and what Octavo committed itself, which comes back with its metadata. Voxels, types and extents are random; the seed is
printed, and OCTAVO_TEST_SEED repeats it."""

import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import unittest
import warnings

import h5py
import nibabel
import numpy as np
import scipy.io
import tifffile

from harness import DaemonTest, held_bytes, octavo, until
from octavo import deposit, wire
from octavo.v1 import ingest_pb2
from readers import READERS
from zarr_writers import multiscale, write_group, write_v2, write_v3

UNU = shutil.which("teem-unu") or shutil.which("unu")
SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % 2**32))
UM = {"x": 10, "y": 20, "z": 3.5}


def sidecar(path):
    """The metadata of a file that a commit wrote as .npy."""
    with open(path + ".json") as file:
        return json.load(file)


class Imports(DaemonTest):
    def setUp(self):
        self.random = np.random.default_rng(SEED)
        warnings.simplefilter("error", octavo.OctavoWarning)
        self.addCleanup(warnings.resetwarnings)

    def path(self, name):
        path = os.path.join(self.daemon.root, "in", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def array(self, dtype="u2", shape=None):
        shape = shape or tuple(int(n) for n in self.random.integers(2, 30, 3))
        dtype = np.dtype(dtype)
        if not dtype.isnative:
            return self.array(dtype.newbyteorder("="), shape).astype(dtype)
        if dtype.kind in "fc":
            values = self.random.normal(size=shape) * 100
            return (values + 1j * self.random.normal(size=shape) if dtype.kind == "c" else values).astype(dtype)
        return self.random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)

    def load(self, name, wanted, result="zyx", spacing=None, **fields):
        """Imports in/<name>, compares, and discards. result: the axes that the volume should have."""
        volume = self.client.import_volume(f"in/{name}", **fields)
        self.assertEqual((volume.state, volume.axes, volume.shape), ("HELD", list(result), list(wanted.shape)))
        read = volume.read()
        self.assertEqual(read.dtype, wanted.dtype)
        np.testing.assert_array_equal(read, wanted)
        if spacing is not None:
            np.testing.assert_allclose(volume.spacing_um, spacing, rtol=1e-6)
            self.assertEqual(list(volume.spacing_units), ["micrometre"] * 3)
        job = self.client.job(volume.parent)
        self.assertEqual((job.kind, job.stage, job.state, job.fraction, job.volume_names), ("import", "import", "DONE", 1, [volume.name]))
        volume.discard()
        return volume

    def refused(self, code, reason, field, text, path, **fields):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.import_volume(path, **fields)
        error = caught.exception
        self.assertEqual((error.code.name, error.reason, error.field), (code, reason, field), error)
        self.assertIn(text, error.message)
        return error

    # -- formats

    def test_numpy(self):
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        for dtype, order in (("u1", "C"), ("i1", "F"), ("u2", "C"), (">u2", "F"), ("i2", "C"), ("f2", "C"), (">f4", "C"), ("f8", "F"), ("c8", "C")):
            with self.subTest(dtype=dtype, order=order):
                array = np.asarray(self.array(dtype), order=order)
                np.save(self.path("a.npy"), array)
                volume = self.load("a.npy", array.astype(array.dtype.newbyteorder("=")), spacing=(3.5, 20, 10), **given)
                self.assertEqual((volume.quantity, volume.value, volume.levels, volume.title), ("UNSPECIFIED", "UNSPECIFIED", None, ""))
        # 32-bit integers need f64 to be exact; 64-bit ones have to be asked for.
        array = self.array("i4")
        np.save(self.path("i.npy"), array)
        self.load("i.npy", array.astype("f8"), **given)
        np.save(self.path("l.npy"), array.astype("i8"))
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.dtype", "no type of volumes holds i64 exactly", "in/l.npy", **given)
        self.load("l.npy", array.astype("f4"), dtype="f32", **given)

    def test_raw_numbers(self):
        array = self.array(">i2")
        with open(self.path("a.dat"), "wb") as file:
            file.write(b"header!" + np.asarray(array).tobytes("F") + b"more")
        raw = dict(shape=array.shape, dtype="i16", big_endian=True, offset_bytes=7, fortran=True)
        given = dict(axes=["x", "y", "z"], spacing_um=UM)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.raw.shape", "leaves 4 bytes over", "in/a.dat", raw=raw, **given)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.raw.shape", "a.dat", "in/a.dat", raw=dict(raw, shape=[s + 1 for s in array.shape]), **given)
        self.refused("INVALID_ARGUMENT", "UNSUPPORTED_FILE", "volume_import.path", "raw numbers need", "in/a.dat", **given)
        with self.assertWarnsRegex(octavo.OctavoWarning, "4 bytes after the array are left out"):
            self.load("a.dat", array.astype("i2"), result="xyz", raw=dict(raw, allow_trailing=True), **given)

    def test_tiff(self):
        array = self.array("u2", (5, 12, 14))
        tifffile.imwrite(self.path("a.ome.tif"), array, ome=True, photometric="minisblack", compression="zlib", tile=(16, 16), metadata={
            "axes": "ZYX", "PhysicalSizeX": 500, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 0.002, "PhysicalSizeYUnit": "mm", "PhysicalSizeZ": 4})
        self.load("a.ome.tif", array, spacing=(4, 2, 0.5))
        self.load("a.ome.tif", array.transpose(1, 2, 0), result="yxz", order="yxz", spacing=(2, 0.5, 4))
        start, count = (1, 0, 3), (3, 7, 0)
        self.load("a.ome.tif", array[1:4, :7, 3:], start=start, count=count)
        tifffile.imwrite(self.path("big.tif"), array, bigtiff=True, byteorder=">", photometric="minisblack", metadata=None)
        self.load("big.tif", array, spacing=(3.5, 20, 10), spacing_um=UM)
        two = np.stack([array, array ^ 1], 1)
        tifffile.imwrite(self.path("two.tif"), two, imagej=True, resolution=(4, 2), metadata={"axes": "ZCYX", "spacing": 3, "unit": "um"})
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.select.c", "allowed 0 to 1", "in/two.tif")
        self.load("two.tif", array ^ 1, select={"c": 1}, spacing=(3, 0.5, 0.25))
        os.makedirs(self.path("stack"), exist_ok=True)
        for i, page in enumerate(array):
            tifffile.imwrite(self.path(f"stack/p{i}.tif"), page)
        self.load("stack", array, spacing=(3.5, 20, 10), spacing_um=UM)
        os.remove(self.path("stack/p3.tif"))
        with self.assertWarnsRegex(octavo.OctavoWarning, "p3.tif"):
            self.load("stack", array[[0, 1, 2, 4]], spacing_um=UM)
        os.makedirs(self.path("pair"), exist_ok=True)
        for name, page in (("img_001.tif", array[0]), ("img_003.tif", array[1])):
            tifffile.imwrite(self.path(f"pair/{name}"), page)
        with self.assertWarnsRegex(octavo.OctavoWarning, "steps of 2, from img_001.tif to img_003.tif"):
            self.load("pair", array[:2], spacing_um=UM)

    def test_axes_in_capitals_and_against_the_file(self):
        array = self.array("u2", (4, 5, 6))
        np.save(self.path("a.npy"), array)
        self.load("a.npy", array, axes=["Z", "Y", "X"], spacing_um=UM)
        self.load("a.npy", array.transpose(1, 2, 0), result="yxz", axes="ZYX", order="YXZ", spacing_um=UM)
        four = self.array("u2", (2, 4, 5, 6))
        np.save(self.path("four.npy"), four)
        self.load("four.npy", four[1], axes=["C", "Z", "Y", "X"], select={"C": 1}, spacing_um=UM)
        self.load("four.npy", four[1], axes=["C", "Z", "Y", "X"], select={"c": 1}, spacing_um=UM)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.axes", "has none of x, y, z (they are 'a', 'b', 'c')", "in/a.npy", axes=["a", "b", "c"],
                     select={"a": 0, "b": 0, "c": 0})
        # Other names than the file's are taken, and told.
        tifffile.imwrite(self.path("named.ome.tif"), array, ome=True, photometric="minisblack", metadata={"axes": "ZYX"})
        with self.assertWarnsRegex(octavo.OctavoWarning, "axis of 4 samples is taken as 'x' .axes.; the file calls it 'z'"):
            self.load("named.ome.tif", array, result="xyz", axes=["x", "", "z"], spacing_um=UM)
        self.load("named.ome.tif", array, axes=["z", "y", "x"], spacing_um=UM)

    def test_values_that_are_clipped(self):
        array = np.array([[[-300, -200, 0, 127, 128, 1e9]]], "f4")
        np.save(self.path("wide.npy"), array)
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        with self.assertWarnsRegex(octavo.OctavoWarning, "2 numbers were below and 2 above the range of i8"):
            volume = self.client.import_volume("in/wide.npy", dtype="i8", **given)
        self.assertEqual((volume.clipped_below, volume.clipped_above), (2, 2))
        self.assertEqual(volume.read().ravel().tolist(), [-128, -128, 0, 127, 127, 127])
        np.save(self.path("nan.npy"), np.array([[[np.nan, 1, 2]]], "f4"))
        with self.assertWarnsRegex(octavo.OctavoWarning, "1 numbers were NaN, which u8 does not have"):
            self.client.import_volume("in/nan.npy", dtype="u8", **given)
        volume = self.client.import_volume("in/wide.npy", dtype="f64", **given)
        self.assertEqual((volume.clipped_below, volume.clipped_above), (0, 0))

    def test_zarr(self):
        """zarr-python's v2 and v3 by hand: arrays by themselves, images, levels, boxes."""
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        for version in (2, 3):
            for dtype in ("u1", "i2", ">f4"):
                array = self.array(dtype)
                chunk = [int(self.random.integers(1, n + 1)) for n in array.shape]
                name = f"bare{version}{dtype[-2:]}"
                if version == 2:
                    write_v2(self.path(name), array, chunk, order="CF"[self.random.integers(2)])
                else:
                    write_v3(self.path(name), array, chunk, [2 * n for n in chunk], big=dtype[0] == ">")
                with self.subTest(version=version, dtype=dtype, shape=array.shape, chunk=chunk):
                    native = array.astype(array.dtype.newbyteorder("="))
                    self.load(name, native, spacing=(3.5, 20, 10), **given)
                    start = [int(self.random.integers(n)) for n in array.shape]
                    count = [int(self.random.integers(1, n - s + 1)) for n, s in zip(array.shape, start)]
                    self.load(name, native[tuple(slice(s, s + n) for s, n in zip(start, count))], start=start, count=count, **given)
                    self.load(name, native.transpose(2, 0, 1), result="xzy", order="xzy", **given)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.axes", "is missing", "in/bare3u1")
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.spacing_um.z", "is missing", "in/bare3u1", axes=["z", "y", "x"])
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.level", "", "in/bare3u1", level=1, **given)
        axes = [("c", "channel", None), ("z", "space", "micrometer"), ("y", "space", "nanometer"), ("x", "space", "millimeter")]
        for version in ("0.4", "0.5"):
            levels = [self.array("u2", (2, 8, 10, 12)), self.array("u2", (2, 4, 5, 6))]
            image = f"image{version}.zarr"
            for k, level in enumerate(levels):
                (write_v2 if version == "0.4" else write_v3)(self.path(f"{image}/{k}"), level, (1, 3, 4, 5))
            write_group(self.path(image), version, [multiscale(axes, [(str(k), (1, 3.5 * 2**k, 250 * 2**k, 0.004 * 2**k), None) for k in range(2)])])
            with self.subTest(version=version):
                self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.select.c", "allowed 0 to 1", f"in/{image}")
                self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.level", "is 2; allowed 0 to 1", f"in/{image}", level=2, select={"c": 0})
                self.load(image, levels[0][1], spacing=(3.5, 0.25, 4), select={"c": 1})
                self.load(image, levels[1][0], spacing=(7, 0.5, 8), select={"c": 0}, level=1)
                self.load(image, levels[1][0][1:4, :, 2:], select={"c": 0}, level=1, start=[1, 0, 2], count=[3, 0, 0])
                self.load(f"{image}/1", levels[1][1], spacing=(7, 0.5, 8), select={"c": 1})

    def test_a_zarr_that_was_copied_by_half(self):
        """Chunks that are not there have the fill value, and are told: by every way of reading."""
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        for compress in (False, True):
            array = self.array("u2", (8, 9, 10)) | 1
            name = f"half{compress}"
            write_v3(self.path(name), array, (4, 9, 5), compress=compress)
            self.load(name, array, **given)
            for chunk in ("c/1/0/0", "c/1/0/1"):
                os.remove(self.path(f"{name}/{chunk}"))
            array[4:] = 0
            with self.subTest(compress=compress):
                with self.assertWarnsRegex(octavo.OctavoWarning, r"2 chunk files are not there \('c/1/0/0', for example\): their voxels have the fill value"):
                    self.load(name, array, **given)
                with self.assertWarnsRegex(octavo.OctavoWarning, "2 chunk files are not there"):
                    self.assertEqual(self.client.import_buffer_from(f"in/{name}", axes=["z", "y", "x"]).read().tobytes(), array.tobytes())
                self.load(name, array[:4], count=[4, 9, 10], **given)  # nothing is missing there

    def test_a_spacing_that_the_file_says_otherwise(self):
        array = self.array("u2", (4, 5, 6))
        tifffile.imwrite(self.path("um.ome.tif"), array, ome=True, photometric="minisblack",
                         metadata={"axes": "ZYX", "PhysicalSizeX": 10, "PhysicalSizeY": 20, "PhysicalSizeZ": 3.5})
        self.load("um.ome.tif", array, spacing=(3.5, 20, 10))
        self.load("um.ome.tif", array, spacing_um={"x": 10.000001}, spacing=(3.5, 20, 10.000001))
        with self.assertWarnsRegex(octavo.OctavoWarning, "The spacing along z is taken as 0.0035 um; the file says 3.5 um"):
            self.load("um.ome.tif", array, spacing_um={"z": 0.0035}, spacing=(0.0035, 20, 10))

    def test_zarrita(self):
        """Arrays that zarrita wrote (zarrita_writer.mjs)."""
        with tarfile.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "zarrita.tar.xz")) as archive:
            archive.extractall(self.path("zarrita"))
        moduli = dict(uint8=251, int8=127, uint16=65521, int16=32749, float32=65521, float64=65521)
        names = sorted(os.listdir(self.path("zarrita")))
        self.assertEqual(len(names), 25)
        for name in names:
            dtype = name.split("_")[0]
            array = ((np.arange(5 * 14 * 9) * 7919 + 13) % moduli[dtype]).astype(dtype).reshape(5, 14, 9)
            with self.subTest(name):
                self.load(f"zarrita/{name}", array, spacing=(3.5, 20, 10), spacing_um=UM)

    def test_links_in_a_zarr(self):
        """A chunk that is a link: below the roots it is read, outside it is refused."""
        array = self.array("u1", (4, 5, 6))
        write_v3(self.path("linked"), array, (2, 5, 6), compress=False)
        chunk = self.path("linked/c/1/0/0")
        os.rename(chunk, self.path("chunk"))
        os.symlink(self.path("chunk"), chunk)
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        self.load("linked", array, **given)
        os.remove(chunk)
        os.symlink("/etc/passwd", chunk)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.import_volume("in/linked", **given)
        self.assertIn(caught.exception.code.name, ("INVALID_ARGUMENT", "PERMISSION_DENIED", "DATA_LOSS"), caught.exception)
        self.assertEqual(self.client.volumes(filter="state = HELD"), [])

    def test_nifti(self):
        array = self.array("i2", (7, 8, 9))
        image = nibabel.Nifti1Image(array, np.diag([0.01, 0.02, 0.03, 1]))
        image.header.set_xyzt_units("mm")
        nibabel.save(image, self.path("a.nii.gz"))
        self.load("a.nii.gz", array.transpose(), spacing=(30, 20, 10))
        two = nibabel.Nifti2Image(array, np.diag([1, 2, 3, 1]))
        two.header.set_xyzt_units("micron")
        nibabel.save(two, self.path("two.nii"))
        self.load("two.nii", array.transpose(), spacing=(3, 2, 1))
        pair = nibabel.Nifti1Pair(array, np.diag([0.01, 0.02, 0.03, 1]))
        pair.header.set_xyzt_units("mm")
        nibabel.save(pair, self.path("pair.hdr"))
        self.load("pair.hdr", array.transpose(), spacing=(30, 20, 10))
        scaled = nibabel.Nifti1Image(array.astype("u2"), np.diag([1, 1, 1, 1]))
        scaled.header.set_xyzt_units("micron")
        scaled.header.set_slope_inter(0.5, -3)
        nibabel.save(scaled, self.path("s.nii"))
        stored = np.fromfile(self.path("s.nii"), "<u2", offset=352).reshape(9, 8, 7)
        volume = self.load("s.nii", stored)
        self.assertEqual((volume.levels.lo, volume.levels.hi), (-3, 0.5 * 65535 - 3))
        self.load("s.nii", (stored * 0.5 - 3).astype("f4"), scaled=True)
        # No levels say what a slope of floats means.
        for array in (self.array("f4", (7, 8, 9)), self.array("i2", (7, 8, 9))):
            scaled = nibabel.Nifti1Image(array, np.diag([1, 1, 1, 1]))
            scaled.header.set_xyzt_units("micron")
            scaled.header.set_slope_inter(2, 1)
            nibabel.save(scaled, self.path("t.nii"))
            stored = np.fromfile(self.path("t.nii"), array.dtype, offset=352).reshape(9, 8, 7)
            with self.subTest(dtype=array.dtype), self.assertWarnsRegex(octavo.OctavoWarning, r"2 \* number \+ 1 \(scl_slope, scl_inter\).*`scaled`"):
                self.load("t.nii", stored)
            self.load("t.nii", (stored.astype("f8") * 2 + 1).astype("f8" if array.dtype == "f4" else "f4"), scaled=True)

    def test_nrrd(self):
        array = self.array("f4")
        with open(self.path("a.nrrd"), "wb") as file:
            file.write(f"NRRD0004\ntype: float\ndimension: 3\nsizes: {' '.join(map(str, array.shape[::-1]))}\nendian: little\nencoding: gzip\n"
                       'space dimension: 3\nspace directions: (0.1,0,0) (0,0.2,0) (0,0,0.3)\nspace units: "mm" "mm" "mm"\nanimal:=mouse\n\n'.encode())
            file.write(gzip.compress(array.tobytes()))
        volume = self.load("a.nrrd", array, spacing=(300, 200, 100), labels={"lab": "x"}, title="mine")
        self.assertEqual((dict(volume.labels), volume.title), ({"animal": "mouse", "lab": "x"}, "mine"))

    @unittest.skipIf(UNU is None, "no teem-unu")
    def test_nrrd_of_teem(self):
        """By unu of teem, the library that the format is of: bit for bit."""
        def unu(*arguments):
            subprocess.run([UNU, *arguments], check=True, capture_output=True, cwd=self.path(""))
        types = {"u1": "uchar", "i1": "signed char", "u2": "ushort", "i2": "short", "u4": "uint", "i4": "int", "f4": "float", "f8": "double"}
        for dtype, name in types.items():
            array = self.array(dtype, (5, 6, 7))
            array.tofile(self.path("raw.dat"))
            wanted = array.astype("f8") if dtype in ("u4", "i4") else array
            unu("make", "-i", "raw.dat", "-t", name, "-s", "7", "6", "5", "-e", "raw", "-en", "little", "-o", "one.nrrd", "-spc", "3", "-dirs",
                "(0.01,0,0) (0,0.02,0) (0,0,0.03)", "-spu", "mm", "mm", "mm")
            for form in (("raw",), ("gzip",), ("ascii",), ("bzip2",)):
                for end in ("little", "big"):
                    for detached in (False, True):
                        ending = "nhdr" if detached else "nrrd"
                        try:
                            unu("save", "-f", "nrrd", "-e", *form, "-en", end, "-i", "one.nrrd", "-o", f"two.{ending}")
                        except subprocess.CalledProcessError:
                            self.assertEqual(form, ("bzip2",))  # of teem that was built without it
                            continue
                        with self.subTest(dtype=dtype, form=form, end=end, detached=detached), open(self.path(f"two.{ending}"), "rb") as file:
                            head = file.read(4096)
                            if dtype not in ("u1", "i1") and form != ("ascii",):
                                self.assertIn(f"endian: {end}".encode(), head)
                            if detached:
                                self.assertIn(b"data file: ", head)
                            if form in (("ascii",), ("bzip2",)):
                                self.refused("UNIMPLEMENTED", "UNKNOWN_COMPRESSION", "volume_import.path", form[0], f"in/two.{ending}")
                            else:
                                self.load(f"two.{ending}", wanted, spacing=(30, 20, 10))
        # What Octavo writes, unu reads.
        array = self.array("u2", (5, 6, 7))
        np.save(self.path("w.npy"), array)
        volume = self.client.import_volume("in/w.npy", axes=["z", "y", "x"], spacing_um=UM)
        for options in ({"codec": "none"}, {"codec": "gzip"}):
            path = volume.commit(f"teem_{options['codec']}", "nrrd", **options).path
            self.client.import_volume(path)
            volume = self.client.import_volume(path)
            unu("save", "-f", "nrrd", "-e", "raw", "-en", "little", "-i", path, "-o", "back.nrrd")
            with open(self.path("back.nrrd"), "rb") as file:
                np.testing.assert_array_equal(np.frombuffer(file.read().split(b"\n\n", 1)[1], "<u2").reshape(5, 6, 7), array)

    def test_texts_of_any_bytes(self):
        """Latin-1, and more of it than clients may send: nothing that breaks an answer."""
        array = self.array("u1")
        with open(self.path("latin.nrrd"), "wb") as file:
            file.write(f"NRRD0004\ntype: uchar\ndimension: 3\nsizes: {' '.join(map(str, array.shape[::-1]))}\nencoding: raw\n"
                       "labels: \"x\" \"y\" \"z\"\nspacings: 1 2 3\nunits: \"um\" \"um\" \"um\"\n".encode())
            file.write(b"name:=M\xfcller\nlong:=" + b"\xe9" * 3000 + b"\n\n" + array.tobytes())
        volume = self.client.import_volume("in/latin.nrrd")
        np.testing.assert_array_equal(volume.read(), array)
        self.assertEqual((volume.title, volume.labels["name"]), ("M\ufffdller", "M\ufffdller"))
        self.assertLessEqual(len(volume.labels["long"].encode()), 256)
        self.assertIn(volume.name, [one.name for one in self.client.volumes()])
        self.assertEqual(sidecar(volume.commit("latin", "npy").path)["title"], "M\ufffdller")

    def test_hdf5(self):
        array = self.array("u1")
        with h5py.File(self.path("a.h5"), "w") as file:
            data = file.create_dataset("one/data", data=array, chunks=True, compression="gzip", shuffle=True)
            data.attrs["element_size_um"] = [3.0, 2, 1]
            for i, name in enumerate("zyx"):
                data.dims[i].label = name
            file["other"] = np.zeros(3)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.dataset", "/other", "in/a.h5")
        self.load("a.h5", array, spacing=(3, 2, 1), dataset="/one/data")
        self.load("a.h5", array, spacing=(3, 2, 1), dataset="one/data")
        for dataset in ("", "/one/none"):  # all of them are named, those in groups, too
            self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.dataset", f"/other [3], /one/data {list(array.shape)}",
                         "in/a.h5", dataset=dataset)
        with h5py.File(self.path("single.h5"), "w") as file:
            file["deep/in/a/group"] = array
            file["deep/in/itself"] = file["deep"]  # a circle
        self.load("single.h5", array, axes=["z", "y", "x"], spacing_um=UM)
        with h5py.File(self.path("many.h5"), "w") as file:
            for i in range(100):
                file[f"g{i % 7}/d{i:03}"] = np.zeros(2)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.dataset", ", ...", "in/many.h5")
        with h5py.File(self.path("none.h5"), "w") as file:
            file.create_group("empty")
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.dataset", "none", "in/none.h5")
        with h5py.File(self.path("link.h5"), "w") as file:
            file["inside"] = h5py.ExternalLink("a.h5", "/one/data")
            file["outside"] = h5py.ExternalLink("/etc/passwd", "/data")
        self.load("link.h5", array, dataset="/inside")
        with self.assertRaises(octavo.OctavoError):
            self.client.import_volume("in/link.h5", dataset="/outside")

    def test_matlab_and_linumpy(self):
        array = self.array("f8")
        scipy.io.savemat(self.path("a.mat"), {"oct": array, "other": np.eye(2)}, do_compression=True)
        given = dict(axes=["x", "y", "z"], spacing_um=UM)
        self.load("a.mat", array.transpose(), result="xyz", dataset="oct", **given)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.dataset", "oct, other", "in/a.mat", **given)
        frames = self.array("f4", (9, 5, 4))  # y, x, z; in the files z is the fastest
        os.makedirs(self.path("linumpy"), exist_ok=True)
        with open(self.path("linumpy/info.txt"), "w") as file:
            file.write("nx: 5\nny: 9\nn_extra: 0\ntop_z: 0\nbottom_z: 4\nwidth: 5\nheight: 9\n")
        frames[:4].tofile(self.path("linumpy/image_0.bin"))
        frames[4:].tofile(self.path("linumpy/image_1.bin"))
        self.load("linumpy", frames, result="yxz", spacing_um=UM)

    def test_values_of_the_numbers(self):
        np.save(self.path("v.npy"), self.array("f4", (3, 4, 5)))
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        volume = self.client.import_volume("in/v.npy", value="db", **given)
        self.assertEqual((volume.value, volume.quantity), ("DB", "UNSPECIFIED"))
        volume = self.client.import_volume("in/v.npy", quantity="attenuation", **given)
        self.assertEqual((volume.value, volume.quantity), ("UNSPECIFIED", "ATTENUATION"))
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.quantity", "value = DB", "in/v.npy", value="db", quantity="sum", **given)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.value", "'complex'; allowed db, magnitude", "in/v.npy", value="complex", **given)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.quantity", "packed samples are bytes", "in/v.npy", quantity="raw_spectra_u12p", **given)
        np.save(self.path("c.npy"), self.array("c8"))
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.value", "'db'; allowed complex", "in/c.npy", value="db", **given)
        self.assertEqual(self.client.import_volume("in/c.npy", value="complex", **given).value, "COMPLEX")
        with self.assertWarnsRegex(octavo.OctavoWarning, "spacing along z is not known"):
            volume = self.client.import_volume("in/v.npy", axes=["z", "y", "x"], spacing_um={"x": 1, "y": 2}, allow_unknown_spacing=True)
        self.assertEqual(list(volume.spacing_units), ["sample", "micrometre", "micrometre"])

    # -- what Octavo committed

    def held(self, dtype="u16", **fields):
        scan = self.client.submit_scan(octavo.simulated(4, fast=True), octavo.raster(33, 12, volumes=1, extent_x_mm=3, extent_y_mm=2), samples=256,
                                       title="a title", labels={"lab": "x"}, processing=octavo.processing(dtype=dtype),
                                       subject=dict(id="s1", site="OD", note="note"), **fields)
        self.client.wait(scan.name)
        return self.client.volumes(scan.name)[0]

    def test_own_commits_come_back(self):
        """Through every format and back, one after the other."""
        for dtype in ("u8", "u16", "f32"):
            first = self.held(dtype)
            array, volume = first.read(), first
            meta = None
            for step, format in enumerate([*READERS, "npy"]):
                with self.subTest(dtype=dtype, format=format):
                    result = volume.commit(f"back/{dtype}_{step}_{format}", format)
                    volume = self.client.import_volume(result.path)
                    np.testing.assert_array_equal(volume.read(), array)
                    for field in ("shape", "axes", "spacing_um", "spacing_units", "dtype", "levels", "value", "quantity", "title", "labels",
                                  "digest", "complete", "acquire_begin_time", "acquire_end_time"):
                        self.assertEqual(getattr(volume, field), getattr(first, field), field)
                    self.assertEqual((self.client.job(volume.parent).kind, volume.recovered), ("import", False))
                    if format == "npy":
                        now = sidecar(result.path)
                        came = now["processing"].pop("import", None)
                        if meta is not None:
                            self.assertEqual({key: value for key, value in now.items() if now[key] != meta[key]},
                                             {key: now[key] for key in ("volume", "scan") if key in now}, "what changed")
                            self.assertEqual(came["job"], now["scan"])
                            self.assertEqual(came["commit"]["digest"], first.digest)
                        meta = meta or now
            self.assertEqual((meta["subject"]["id"], meta["subject"]["site"], meta["subject"]["note"]), ("s1", "OD", "note"))
            volume.discard()

    def test_a_part_of_a_commit_and_other_types(self):
        volume = self.held("u16")
        array = volume.read()
        result = volume.commit("part/a", "zarr")
        start, count = [2, 5, 10], [7, 0, 33]
        part = self.client.import_volume("part/a.ome.zarr", start=start, count=count)
        np.testing.assert_array_equal(part.read(), array[2:9, 5:, 10:43])
        self.assertEqual((part.title, part.levels.lo), (volume.title, volume.levels.lo))
        turned = self.client.import_volume(result.path, order="zyx")
        np.testing.assert_array_equal(turned.read(), array.transpose(2, 0, 1))
        floats = self.client.import_volume(result.path, dtype=np.float32)
        np.testing.assert_array_equal(floats.read(), array.astype("f4"))
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.value", "which says it itself", result.path, value="db")
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.axes", "which says them itself", result.path, axes=["x", "y", "z"])

    def test_an_imported_volume_is_like_any_other(self):
        array = self.array("u1", (20, 30, 40))
        np.save(self.path("a.npy"), array)
        volume = self.client.import_volume("in/a.npy", axes=["z", "y", "x"], spacing_um=UM)
        made = volume.derive({"crop": {"start": [1, 2, 3], "count": [4, 5, 6]}})
        np.testing.assert_array_equal(made.read(), array[1:5, 2:7, 3:9])
        volume.spill()
        np.testing.assert_array_equal(volume.read(), array)
        volume.restore()
        picture = volume.render("mip", "z")
        self.assertEqual((picture.shape[0], picture.shape[1]), (30, 40))
        stored = READERS["nifti"](volume.commit("like/a", "nifti").path)
        np.testing.assert_array_equal(stored.array, array.transpose(1, 2, 0))
        made.discard()

    def test_damaged_commits_are_told(self):
        for format in ("npy", "zarr", "nifti"):
            with self.subTest(format=format):
                result = self.held("u8").commit(f"damaged/{format}", format, **({"codec": "none"} if format == "zarr" else {}))
                file = result.path
                if format == "zarr":
                    file = next(os.path.join(folder, name) for folder, _, names in os.walk(result.path) for name in names
                                if not name.endswith("json") and not name.startswith("."))
                at = os.path.getsize(file) // 2
                with open(file, "r+b") as stored:
                    stored.seek(at)
                    byte = stored.read(1)[0]
                    stored.seek(at)
                    stored.write(bytes([byte ^ 4]))
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.client.import_volume(result.path)
                self.assertEqual(caught.exception.code.name, "DATA_LOSS", caught.exception)
                self.assertIn(caught.exception.reason, ("DIGEST", "DAMAGED_FILE"))
        self.assertEqual(caught.exception.reason, "DIGEST")
        self.assertIn("the volume was committed with sum64:", caught.exception.message)
        self.assertEqual(held_bytes(self.client), 0)

    # -- wrong wishes

    def test_paths(self):
        np.save(self.path("a.npy"), self.array())
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.path", "is empty", "", **given)
        self.refused("NOT_FOUND", "NO_FILE", "volume_import.path", "in/none.npy", "in/none.npy", **given)
        for path in ("/etc/passwd", "../../../etc/passwd", "/etc/none"):
            self.refused("INVALID_ARGUMENT", "OUTSIDE_ROOTS", "volume_import.path", path, path, **given)
        for name, target in (("file", "/etc/passwd"), ("folder", "/etc")):
            if not os.path.islink(self.path(name)):
                os.symlink(target, self.path(name))
        self.refused("INVALID_ARGUMENT", "OUTSIDE_ROOTS", "volume_import.path", "in/file", "in/file", **given)
        self.refused("INVALID_ARGUMENT", "OUTSIDE_ROOTS", "volume_import.path", "in/folder/passwd", "in/folder/passwd", **given)
        if not os.path.islink(self.path("fine")):
            os.symlink("a.npy", self.path("fine"))
        self.client.import_volume("in/fine", **given).discard()
        # A file that names another one outside of the roots.
        with open(self.path("out.nhdr"), "w") as file:
            file.write("NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 2 2\nencoding: raw\ndata file: /etc/passwd\n")
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.import_volume("in/out.nhdr", **given)
        self.assertEqual(caught.exception.reason, "OUTSIDE_ROOTS")
        if os.geteuid() != 0:
            np.save(self.path("secret.npy"), self.array())
            os.chmod(self.path("secret.npy"), 0)
            self.refused("PERMISSION_DENIED", "NO_ACCESS", "volume_import.path", "secret.npy", "in/secret.npy", **given)

    def test_wrong_options(self):
        np.save(self.path("a.npy"), self.array())
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        bad = lambda field, text, **fields: self.refused("INVALID_ARGUMENT", "BAD_FIELD", f"volume_import.{field}", text, "in/a.npy", **{**given, **fields})
        bad("axes", "is missing", axes=[])
        bad("axes", "3 names", axes=["z", "y"])
        bad("axes", "'x' twice", axes=["z", "x", "x"])
        bad("spacing_um.y", "is missing", spacing_um={"x": 1, "z": 1})
        bad("spacing_um.x", "allowed 1e-06 to 1e+09", spacing_um=dict(UM, x=-1))
        bad("spacing_um", "for the axis 'w'; allowed x, y, z", spacing_um={"x": 1, "y": 1, "w": 1})
        bad("order", "'xyy'", order="xyy")
        bad("select", "for the axis 'c'", select={"c": 0})
        bad("dataset", "for a file of the format npy; allowed for hdf5, mat, zarr", dataset="/a")
        bad("image", "for a file of the format npy", image=1)
        bad("level", "for a file of the format npy; allowed for zarr", level=1)
        bad("scaled", "for a file of the format npy", scaled=True)
        self.refused("OUT_OF_RANGE", "BAD_RANGE", "volume_import.start", "", "in/a.npy", start=[0, 0, 99], **given)
        # By hand, what the Python client does not send.
        for field, work in (("dtype", dict(dtype=9)), ("format", dict(format=99)), ("raw.dtype", dict(raw=ingest_pb2.RawNumbers(shape=[1], dtype=13)))):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(ingest_pb2.ImportJob(path="in/a.npy", **work))
            self.assertEqual((caught.exception.reason, caught.exception.field), ("BAD_FIELD", f"volume_import.{field}"), caught.exception)
        # And what it refuses itself.
        for text, fields in (("no argument 'spacing'; did you mean 'spacing_um'", dict(spacing=UM)), ("format is 'png'; expected one of npy", dict(format="png")),
                             ("raw.kind is no field", dict(raw={"kind": 1})), ("dtype is 'u32'; expected one of u8", dict(dtype="u32"))):
            with self.assertRaisesRegex((TypeError, ValueError), text.replace("(", "\\(")):
                self.client.import_volume("in/a.npy", **fields)

    def test_wrong_kinds_of_files(self):
        array = self.array("u1", (3, 4, 5))
        np.save(self.path("a.npy"), array)
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        os.makedirs(self.path("empty"), exist_ok=True)
        self.refused("INVALID_ARGUMENT", "UNSUPPORTED_FILE", "volume_import.path", "empty", "in/empty", **given)
        self.refused("INVALID_ARGUMENT", "UNSUPPORTED_FILE", "volume_import.path", "in", "in", **given)
        open(self.path("nothing"), "w").close()
        self.refused("INVALID_ARGUMENT", "UNSUPPORTED_FILE", "volume_import.path", "nothing", "in/nothing", **given)
        os.mkfifo(self.path("fifo"))
        socket_file = socket.socket(socket.AF_UNIX)
        self.addCleanup(socket_file.close)
        here = os.getcwd()
        os.chdir(self.path(""))  # the whole path may be too long for a socket
        socket_file.bind("sock")
        os.chdir(here)
        for name in ("fifo", "sock"):
            with self.assertRaises(octavo.OctavoError) as caught:  # and does not wait for a writer
                self.client.import_volume(f"in/{name}", **given)
            self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", "volume_import.path"), caught.exception)
            os.remove(self.path(name))
        # The format that is said is not the file's; the file of one format with the name of another one is what it is.
        for format in ("tiff", "nifti", "nrrd", "hdf5", "mat", "zarr", "tiff-stack", "linumpy"):
            with self.subTest(format=format), self.assertRaises(octavo.OctavoError) as caught:
                self.client.import_volume("in/a.npy", format=format, **given)
            folder = format in ("zarr", "tiff-stack", "linumpy")
            self.assertEqual((caught.exception.code.name, caught.exception.field, caught.exception.reason), ("INVALID_ARGUMENT", "volume_import.format", "BAD_FIELD"),
                             caught.exception)
            self.assertIn("is a file" if folder else "a.npy is recognised as npy", caught.exception.message)
        open(self.path("of no kind"), "w").write("words " * 100)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.format", "of no kind that its first bytes tell", "in/of no kind", format="tiff", **given)
        for format, text in (("zarr", "allowed tiff-stack"), ("linumpy", "allowed tiff-stack")):
            self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.format", text, "in/empty", format=format, **given)
        shutil.copy(self.path("a.npy"), self.path("a.tif"))
        self.load("a.tif", array, **given)
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.raw", "", "in/a.npy", raw=dict(shape=[3, 4, 5], dtype="u1"), format="npy", **given)
        self.assertEqual(held_bytes(self.client), 0)

    # -- as a job

    def slow(self, name, planes=400):
        """A file that takes a while: one stream, to be decompressed from its beginning."""
        header = nibabel.Nifti1Header()
        header.set_data_dtype("u1")
        header.set_data_shape((1024, 1024, planes))
        header.set_xyzt_units("mm")
        header["vox_offset"], header["magic"] = 352, b"n+1"
        page = np.zeros(1024 * 1024, "u1").tobytes()
        with gzip.open(self.path(name), "wb", 1) as file:
            file.write(header.binaryblock + bytes(4))
            for _ in range(planes):
                file.write(page)
        return f"in/{name}"

    def test_plan_list_watch_and_retry(self):
        array = self.array("u2", (8, 9, 10))
        np.save(self.path("a.npy"), array)
        work = octavo.volume_import("in/a.npy", axes=["z", "y", "x"], spacing_um=UM)
        plan = self.client.plan_job(work)
        self.assertTrue(plan.report.admitted)
        self.assertIn("volume: z 8 of 3.5 um, y 9 of 20 um, x 10 of 10 um, u16, 1440 bytes", plan.plan)
        self.assertGreaterEqual(plan.report.wanted_bytes, array.nbytes)
        self.assertEqual(self.client.volumes(), [])
        volume = self.client.import_volume("in/a.npy", axes=["z", "y", "x"], spacing_um=UM, request_id="once")
        again = self.client.import_volume("in/a.npy", axes=["z", "y", "x"], spacing_um=UM, request_id="once")
        self.assertEqual(volume.name, again.name)
        self.refused("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH", "request_id", "once", "in/a.npy", axes=["z", "x", "y"], spacing_um=UM, request_id="once")
        self.assertIn(volume.parent, [job.name for job in self.client.jobs(filter="kind = IMPORT")])
        # The same as a job; its spec comes back as it was sent.
        job = self.client.submit_job(work, request_id="job", title="t")
        self.assertEqual(self.client.wait_job(job).state, "DONE")
        self.assertEqual(job.spec.volume_import.path, "in/a.npy")
        self.assertEqual(dict(job.spec.volume_import.spacing_um), UM)
        operation = self.client.start_import("in/a.npy", axes=["z", "y", "x"], spacing_um=UM)
        self.assertTrue(operation.target.startswith("jobs/"))
        last = list(self.client.watch_operation(operation.name))[-1]
        self.assertEqual((last.state, len(last.volumes)), ("SUCCEEDED", 1))

    def test_cancel_in_the_middle(self):
        path = self.slow("slow.nii.gz")
        for _ in range(5):  # it may be done too soon
            operation = self.client.start_import(path)
            until(lambda: self.client.job(operation.target).step > 0 or self.client.operation(operation.name).done)
            last = self.client.cancel_operation(operation.name)
            last = self.client.wait_operation(operation.name, check=False)
            if last.state == "CANCELLED":
                break
        self.assertEqual(last.state, "CANCELLED")
        job = self.client.job(operation.target)
        self.assertEqual((job.state, job.reason_code), ("CANCELLED", "CANCELLED"))
        self.assertGreater(job.fraction, 0)
        self.assertLess(job.fraction, 1)
        self.assertEqual([volume.state for volume in self.client.volumes()], [])
        self.assertEqual(held_bytes(self.client), 0)

    def test_a_file_that_is_written_meanwhile(self):
        path = self.slow("growing.nii.gz")
        for _ in range(5):
            operation = self.client.start_import(path)
            until(lambda: self.client.job(operation.target).step > 0 or self.client.operation(operation.name).done)
            os.utime(self.path("growing.nii.gz"))  # as a writer does
            last = self.client.wait_operation(operation.name, check=False)
            if last.state == "FAILED":
                break
        self.assertEqual(last.state, "FAILED")
        job = self.client.job(operation.target)
        self.assertEqual(job.reason_code, "REPLACED")
        self.assertIn("has changed since it was opened", job.reason)
        self.assertEqual(held_bytes(self.client), 0)

    def test_another_file_that_is_written_meanwhile(self):
        """What a header names is watched, too."""
        with gzip.open(self.path("slow.raw.gz"), "wb", 1) as file:
            for _ in range(400):
                file.write(bytes(1 << 20))
        with open(self.path("slow.nhdr"), "w") as file:
            file.write("NRRD0004\ntype: uchar\ndimension: 3\nsizes: 1024 1024 400\nencoding: gzip\nlabels: \"x\" \"y\" \"z\"\nspacings: 1 1 1\n"
                       "units: \"um\" \"um\" \"um\"\ndata file: slow.raw.gz\n")
        for _ in range(5):
            operation = self.client.start_import("in/slow.nhdr")
            until(lambda: self.client.job(operation.target).step > 0 or self.client.operation(operation.name).done)
            os.utime(self.path("slow.raw.gz"))
            last = self.client.wait_operation(operation.name, check=False)
            if last.state == "FAILED":
                break
        job = self.client.job(operation.target)
        self.assertEqual((job.state, job.reason_code), ("FAILED", "REPLACED"), job.reason)
        self.assertIn("slow.raw.gz", job.reason)

    def test_sessions_and_titles(self):
        np.save(self.path("a.npy"), self.array())
        given = dict(axes=["z", "y", "x"], spacing_um=UM)
        with self.client.session() as session:
            volume = self.client.import_volume("in/a.npy", session=session, orphan="discard", labels={"a": "b"}, ttl=100, **given)
            self.assertTrue(volume.session.startswith("sessions/"))
            self.assertIsNotNone(volume.expire_time)
            name = volume.name
        until(lambda: self.client.volume(name).state == "DISCARDED")
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "orphan", "without a session", "in/a.npy", orphan="discard", **given)

    def test_command_line(self):
        array = self.array("u2", (6, 7, 8))
        np.save(self.path("cli.npy"), array)
        flags = ("--axes", "z,y,x", "--spacing-um", "x=10,y=20,z=3.5")
        done = self.command("volume", "import", "in/cli.npy", *flags, "--title", "from here", "--label", "a=b")
        volume = self.client.volumes()[0]
        self.assertIn(volume.name, done.stdout)
        self.assertEqual((volume.title, dict(volume.labels)), ("from here", {"a": "b"}))
        np.testing.assert_array_equal(volume.read(), array)
        volume.discard()
        self.command("volume", "import", "in/cli.npy", *flags, "--order", "yxz", "--dtype", "f32", "--box", "1,2,0,3,4,0", "--value", "db", "--unknown-spacing")
        volume = self.client.volumes()[0]
        np.testing.assert_array_equal(volume.read(), array.transpose(1, 2, 0)[1:4, 2:6].astype("f4"))
        self.assertEqual(volume.value, "DB")
        volume.discard()
        plan = self.command("volume", "import", "in/cli.npy", *flags, "--plan")
        self.assertIn("volume: z 6 of 3.5 um", plan.stdout)
        self.assertEqual(self.client.volumes(), [])
        answer = self.command("--json", "volume", "import", "in/cli.npy", *flags)
        self.assertEqual(json.loads(answer.stdout.splitlines()[-1])["title"], "")
        self.client.volumes()[0].discard()
        for arguments, text in (((), "volume_import.axes: is missing"), (("--axes", "z,y,x"), "spacing_um: --spacing-um"), (("--spacing-um", "x"), "name=number"),
                                ((*flags, "--raw-offset", "8"), "--raw-type are missing"), ((*flags, "--raw-type", "u8"), "--raw-shape: is missing"),
                                (("--axes", "z,y,x", "--spacing-um", "x=1,x=2"), "has 'x' twice"), (("--spacing-um", "w=1"), "for the axis 'w'"),
                                ((*flags, "--from-format", "png"), "'png'; allowed npy"), ((*flags, "--dtype", "u32"), "--dtype: is 'u32'")):
            with self.subTest(arguments=arguments):
                refused = self.command("volume", "import", "in/cli.npy", *arguments, check=False)
                self.assertNotEqual(refused.returncode, 0)
                self.assertIn(text, refused.stderr)
        here = os.path.join(self.daemon.directory, "here.npy")
        np.save(here, array)
        refused = self.command("volume", "import", here, *flags, check=False)
        self.assertIn("is here", refused.stderr)  # this server has no hand-over socket


class ByDescriptor(DaemonTest):
    """Files below no root: the client opens them."""
    flags = ("--handoff.unix", "auto")
    GIVEN = dict(axes=["z", "y", "x"], spacing_um=UM)

    def setUp(self):
        self.random = np.random.default_rng(SEED)

    def path(self, name):
        os.makedirs(os.path.join(self.daemon.directory, "elsewhere"), exist_ok=True)
        return os.path.join(self.daemon.directory, "elsewhere", name)

    def array(self, shape=(4, 5, 6)):
        return self.random.integers(0, 60000, shape, "u2")

    def refused(self, code, reason, field, call):
        with self.assertRaises(octavo.OctavoError) as caught:
            call()
        self.assertEqual((caught.exception.code.name, caught.exception.reason, caught.exception.field), (code, reason, field), caught.exception)

    def test_a_file(self):
        array = self.array()
        np.save(self.path("a.npy"), array)
        volume = self.client.import_volume(self.path("a.npy"), **self.GIVEN)
        np.testing.assert_array_equal(volume.read(), array)
        job = self.client.job(volume.parent)
        self.assertEqual((job.spec.volume_import.path, job.spec.volume_import.deposit), ("", ""))
        meta = sidecar(volume.commit("from", "npy").path)
        self.assertEqual(meta["processing"]["import"]["file"], "a.npy")
        self.assertNotIn("deposit", meta["processing"]["import"]["parameters"])
        operation = self.client.start_import(self.path("a.npy"), **self.GIVEN)  # the connection ends, the import goes on
        self.assertEqual(self.client.wait_operation(operation).state, "SUCCEEDED")
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.axes", lambda: self.client.import_volume(self.path("a.npy")))

    def test_hdf5_folders_and_commits(self):
        array = self.array()
        with h5py.File(self.path("a.h5"), "w") as file:
            file["data"] = array
        np.testing.assert_array_equal(self.client.import_volume(self.path("a.h5"), dataset="/data", **self.GIVEN).read(), array)
        os.makedirs(self.path("stack"), exist_ok=True)
        for i, page in enumerate(array):
            tifffile.imwrite(self.path(f"stack/p{i}.tif"), page)
        np.testing.assert_array_equal(self.client.import_volume(self.path("stack"), **self.GIVEN).read(), array)
        np.save(self.path("c.npy"), array)
        first = self.client.import_volume(self.path("c.npy"), title="a title", **self.GIVEN)
        digest = first.digest
        for format in ("nifti", "nrrd", "zarr"):
            with self.subTest(format=format):
                uri = first.commit(f"own_{format}", format).path
                moved = self.path(os.path.basename(uri))
                os.rename(uri, moved)
                first = self.client.import_volume(moved)
                self.assertEqual((first.title, first.digest, first.spacing_um), ("a title", digest, [3.5, 20, 10]))

    def test_what_is_refused(self):
        np.save(self.path("a.npy"), self.array())
        with open(self.path("out.nhdr"), "w") as file:
            file.write("NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 2 2\nencoding: raw\ndata file: a.npy\n")
        self.refused("INVALID_ARGUMENT", "UNSUPPORTED_FILE", "volume_import.deposit", lambda: self.client.import_volume(self.path("out.nhdr"), **self.GIVEN))
        job = lambda **fields: self.client.submit_job(ingest_pb2.ImportJob(axes="zyx", allow_unknown_spacing=True, **fields))
        self.refused("NOT_FOUND", "TICKET_UNKNOWN", "volume_import.deposit", lambda: job(deposit="0" * 32))
        self.refused("INVALID_ARGUMENT", "BAD_FIELD", "volume_import.path", lambda: job(deposit="0" * 32, path="a.npy"))
        open_deposit = lambda name="a.npy": self.client._call(self.client._ingest.OpenDeposit, ingest_pb2.OpenDepositRequest(name=name))
        for name in ("", "a/b", "x" * 256, "bell\a/"):
            self.refused("INVALID_ARGUMENT", "BAD_FIELD", "name", lambda: open_deposit(name))
        with self.assertRaises(octavo.OctavoError) as caught:
            open_deposit("\x1b[2Jx/")
        self.assertIn(r"\x1b[2Jx/", caught.exception.message)
        # A deposit ends with its connection.
        ticket = open_deposit()
        self.refused("NOT_FOUND", "TICKET_UNKNOWN", "volume_import.deposit", lambda: job(deposit=ticket.ticket))
        with deposit.Deposit(ticket.socket_path, ticket.ticket, self.path("a.npy"), 10):
            self.client.plan_job(ingest_pb2.ImportJob(deposit=ticket.ticket, axes="zyx", allow_unknown_spacing=True))
            self.assertEqual(self.client.wait_job(job(deposit=ticket.ticket)).state, "DONE")
            self.assertEqual(self.client.wait_job(job(deposit=ticket.ticket)).state, "DONE")
        def gone():
            try:
                self.client.plan_job(ingest_pb2.ImportJob(deposit=ticket.ticket, axes="zyx", allow_unknown_spacing=True))
            except octavo.OctavoError as error:
                return error.reason == "TICKET_UNKNOWN"
        until(gone)

    def test_a_retry_finds_the_first_import(self):
        array = self.array()
        np.save(self.path("r.npy"), array)
        first, again = (self.client.import_volume(self.path("r.npy"), request_id="again", **self.GIVEN) for _ in range(2))
        self.assertEqual(first.name, again.name)
        self.refused("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH", "request_id",
                     lambda: self.client.import_volume(self.path("r.npy"), request_id="again", **dict(self.GIVEN, axes=["x", "y", "z"])))

    def test_a_client_that_is_killed(self):
        """Its deposit goes; the import that has begun does not need it."""
        np.save(self.path("k.npy"), self.array())
        program = ("import sys, octavo\n"
                   "from octavo import deposit\nfrom octavo.v1 import ingest_pb2\n"
                   "c = octavo.Client(sys.argv[1])\n"
                   "t = c._call(c._ingest.OpenDeposit, ingest_pb2.OpenDepositRequest(name='k.npy'))\n"
                   "d = deposit.Deposit(t.socket_path, t.ticket, sys.argv[2], 10)\n"
                   "print(t.ticket, flush=True)\nsys.stdin.read()\n")
        client = subprocess.Popen([sys.executable, "-c", program, self.daemon.address, self.path("k.npy")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.stdin.close)
        ticket = client.stdout.readline().strip()
        work = ingest_pb2.ImportJob(deposit=ticket, axes="zyx", allow_unknown_spacing=True)
        job = self.client.submit_job(work)
        client.send_signal(signal.SIGKILL)
        client.wait()
        self.assertEqual(self.client.wait_job(job).state, "DONE")

        def gone():
            try:
                self.client.plan_job(work)
            except octavo.OctavoError as error:
                return error.reason == "TICKET_UNKNOWN"
        until(gone)

    def present(self, purpose, ticket, descriptors):
        connection = wire.connect(ticket.socket_path, purpose, 10)
        self.addCleanup(connection.close)
        packet = wire.messages.ClientMessage(request=1, present=wire.messages.Present(ticket=ticket.ticket)).SerializeToString()
        socket.send_fds(connection, [packet], descriptors)
        answer, _ = wire.receive(connection)
        return answer

    def test_descriptors_that_are_refused(self):
        np.save(self.path("a.npy"), self.array())
        new = lambda: self.client._call(self.client._ingest.OpenDeposit, ingest_pb2.OpenDepositRequest(name="a.npy"))
        pipe = os.pipe()
        write_only, path_only = os.open(self.path("a.npy"), os.O_WRONLY), os.open(self.path("a.npy"), os.O_PATH)
        fine = os.open(self.path("a.npy"), os.O_RDONLY)
        for descriptor in (*pipe, write_only, path_only, fine):
            self.addCleanup(os.close, descriptor)
        for descriptor, reason in ((pipe[0], "UNSUPPORTED_FILE"), (write_only, "NO_ACCESS"), (path_only, "NO_ACCESS")):
            self.assertEqual(self.present(wire.messages.PURPOSE_FILE, new(), [descriptor]).refused.reason, reason)
        # What the kernel makes up as it is read is no file of one moment.
        for path in ("/proc/self/status", "/proc/cpuinfo", "/sys/kernel/mm/transparent_hugepage/enabled"):
            if os.path.exists(path):
                with self.subTest(path=path):
                    self.refused("INVALID_ARGUMENT", "UNSUPPORTED_FILE", "volume_import.deposit", lambda: self.client.import_volume(path, format="raw", raw=dict(
                        shape=[1, 1, 16], dtype="u1", allow_trailing=True), **self.GIVEN))
        ticket = new()
        self.assertEqual(self.present(wire.messages.PURPOSE_MEMORY, ticket, []).refused.reason, "TICKET_KIND")
        self.assertEqual(self.present(wire.messages.PURPOSE_FILE, ticket, []).refused.reason, "PROTOCOL")
        self.assertEqual(self.present(wire.messages.PURPOSE_FILE, ticket, [fine, fine]).refused.reason, "PROTOCOL")
        self.assertTrue(self.present(wire.messages.PURPOSE_FILE, ticket, [fine]).HasField("deposited"))
        self.assertEqual(self.present(wire.messages.PURPOSE_FILE, ticket, [fine]).refused.reason, "TICKET_USED")

    def test_command_line(self):
        array = self.array()
        np.save(self.path("cli.npy"), array)
        flags = ("--axes", "z,y,x", "--unknown-spacing")
        plan = self.command("volume", "import", self.path("cli.npy"), *flags, "--plan")
        self.assertIn("volume: z 4 of unknown spacing", plan.stdout)
        self.assertEqual(self.client.volumes(), [])
        for path, text in (("/", "folders of TIFF files"), (self.path("none.npy"), "OUTSIDE_ROOTS")):
            refused = self.command("volume", "import", path, *flags, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(text, refused.stderr)
        self.command("volume", "import", self.path("cli.npy"), *flags)
        np.testing.assert_array_equal(self.client.volumes()[0].read(), array)


class ManyDeposits(DaemonTest):
    flags = ("--handoff.unix", "auto")

    def test_many(self):
        """One connection that takes all it can leaves room for others."""
        def fill(client):
            with self.assertRaises(octavo.OctavoError) as caught:
                for _ in range(300):
                    client._call(client._ingest.OpenDeposit, ingest_pb2.OpenDepositRequest(name="a"))
            error = caught.exception
            self.assertEqual((error.code.name, error.reason), ("RESOURCE_EXHAUSTED", "TICKETS"), error)
            return error
        self.assertEqual(fill(self.client).numbers["allowed"], "32")
        elsewhere = os.path.join(self.daemon.directory, "elsewhere.npy")
        np.save(elsewhere, np.zeros((2, 3, 4), "u1"))
        with self.daemon.client() as other:
            other.import_volume(elsewhere, axes=["z", "y", "x"], spacing_um=UM)
        more = [self.daemon.client() for _ in range(4)]
        for client in more:
            self.addCleanup(client.close)
        told = [fill(client) for client in more]
        self.assertEqual([error.numbers["allowed"] for error in told], ["32", "32", "32", "128"])
        self.assertIn("of this user", told[-1].message)
        # Paths below the roots, rings and exports are not hindered.
        np.save(os.path.join(self.daemon.root, "a.npy"), np.zeros((2, 3, 4), "u1"))
        volume = self.client.import_volume("a.npy", axes=["z", "y", "x"], spacing_um=UM)
        self.assertEqual(self.client.map(volume).shape, (2, 3, 4))
        until(lambda: self.client.exports() == [])


class LittleMemory(DaemonTest):
    flags = ("--device.memory_bytes", str(16 << 20))

    def test_refused_with_numbers(self):
        path = os.path.join(self.daemon.root, "large.npy")
        np.save(path, np.zeros((40, 1024, 1024), "u1"))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.import_volume("large.npy", axes=["z", "y", "x"], allow_unknown_spacing=True)
        error = caught.exception
        self.assertEqual((error.code.name, error.reason), ("RESOURCE_EXHAUSTED", "EXCEEDS_BUDGET"), error)
        self.assertGreater(error.report.wanted_bytes, 40 << 20)
        self.assertFalse(error.report.retryable)
        self.assertEqual(held_bytes(self.client), 0)
        self.assertEqual(self.client.jobs(), [])
        plan = self.client.plan_job(octavo.volume_import("large.npy", axes=["z", "y", "x"], allow_unknown_spacing=True))
        self.assertFalse(plan.report.admitted)
        # A box of it fits.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.client.import_volume("large.npy", axes=["z", "y", "x"], allow_unknown_spacing=True, count=[4, 0, 0])


if __name__ == "__main__":
    print("seed", SEED, file=sys.stderr)
    unittest.main()
