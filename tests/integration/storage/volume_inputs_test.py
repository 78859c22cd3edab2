"""Volume files that other programs wrote (tifffile, nibabel, h5py, NumPy, SciPy, tiffcp of libtiff and unu of teem), read by
volume_input_tool, which opens them as the server and `octavo convert` do. Shapes, types and boxes are random; the seed is
printed, and OCTAVO_TEST_SEED repeats it."""

import gzip
import os
import shutil
import subprocess
import sys
import unittest

import h5py
import nibabel
import numpy as np
import scipy.io
import tifffile

from volume_files import SEED, VolumeFiles, type_name


class VolumeInputs(VolumeFiles):
    def test_numpy(self):
        for dtype in ("u1", "i1", "<u2", ">u2", "<i4", ">i8", "<f2", ">f4", "<f8", "<c8", ">c16", "?"):
            for order in "CF":
                for version in ((1, 0), (2, 0), (3, 0)):
                    array = np.asarray(self.array("u1", self.shape()) % 2 == 1 if dtype == "?" else self.array(dtype, self.shape()), order=order)
                    path = self.path("a.npy")
                    with self.subTest(dtype=dtype, order=order, version=version, shape=array.shape), open(path, "wb") as file:
                        np.lib.format.write_array(file, array, version)
                        file.flush()
                        self.check(path, array.astype("u1") if dtype == "?" else array.astype(array.dtype.newbyteorder("<")), descriptor=version[0] == 2)
        np.save(self.path("o.npy"), np.array([{}], object), allow_pickle=True)
        self.refused(self.path("o.npy"), "descr is '|O'")
        np.save(self.path("s.npy"), np.zeros(3, [("a", "f4"), ("b", "i2")]))
        self.refused(self.path("s.npy"), "descr is a structured type")

    def tiff(self, name, array, **options):
        path = self.path(name)
        tifffile.imwrite(path, array, photometric=options.pop("photometric", "minisblack"), **options)
        return path

    def test_tiff_of_every_type_and_layout(self):
        codecs = [None, "zlib"]  # what tifffile writes without imagecodecs; tiffcp writes the others
        for dtype in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"):
            for _ in range(4):
                array = self.array(dtype, self.shape(least=2))  # tifffile takes other axes for pages where one has an extent of 1
                options = {"bigtiff": bool(self.random.integers(2)), "byteorder": "<>"[self.random.integers(2)], "metadata": None,
                           "compression": codecs[self.random.integers(len(codecs))]}
                if self.random.integers(2):
                    options["tile"] = (16 * int(self.random.integers(1, 4)), 16 * int(self.random.integers(1, 4)))
                elif self.random.integers(2):
                    options["rowsperstrip"] = int(self.random.integers(1, array.shape[1] + 1))
                with self.subTest(dtype=dtype, shape=array.shape, **options):
                    path = self.tiff("a.tif", array, **options)
                    told = self.check(path, array)
                    self.assertEqual([axis["name"] for axis in told["axes"]], ["z", "y", "x"])
                    self.assertEqual([axis["spacing_um"] for axis in told["axes"]], [None] * 3)

    @unittest.skipUnless(shutil.which("tiffcp"), "libtiff-tools are not installed")
    def test_tiff_of_libtiff(self):
        for dtype in ("u1", "u2", "u4", "i2", "f4", "f8"):
            codecs = ["none", "packbits", "lzw", "lzw:2", "zip", "zip:2", "zstd", "zstd:2"]
            codecs += ["lzw:3", "zip:3", "zstd:3"] if dtype[0] == "f" else []
            codecs += ["jpeg:100"] if dtype == "u1" else []
            for codec in codecs:
                if dtype[0] == "f" and codec.endswith(":2"):
                    continue  # libtiff has no such files
                array = self.array(dtype, self.shape(least=2))
                if dtype in ("u1", "u2"):  # something that can be compressed
                    array = np.cumsum(array % 5, axis=2, dtype=dtype)
                tifffile.imwrite(self.path("in.tif"), array, photometric="minisblack", metadata=None)
                flags = ["-c", codec] + (["-8"] if self.random.integers(2) else []) + [("-B", "-L")[self.random.integers(2)]]
                if codec.endswith(":3"):
                    flags[-1] = "-L"  # libtiff 4.5 cannot read its own big-endian files with this predictor
                if self.random.integers(2):
                    flags += ["-t", "-w", str(16 * self.random.integers(1, 4)), "-l", str(16 * self.random.integers(1, 4))]
                else:
                    flags += ["-s", "-r", str(8 * self.random.integers(1, 5))]
                if not codec.startswith("jpeg") and self.random.integers(4) == 0:
                    flags += ["-f", "lsb2msb"]
                with self.subTest(dtype=dtype, shape=array.shape, flags=flags):
                    made = subprocess.run(["tiffcp", *flags, self.path("in.tif"), self.path("a.tif")], capture_output=True, text=True)
                    self.assertEqual(made.returncode, 0, made.stderr)
                    if codec.startswith("jpeg"):
                        _, read = self.read(self.path("a.tif"), "u1")
                        # libtiff's own decoder is the measure: JPEG loses something.
                        subprocess.run(["tiffcp", "-c", "none", self.path("a.tif"), self.path("back.tif")], check=True, capture_output=True)
                        np.testing.assert_array_equal(read, tifffile.imread(self.path("back.tif")).reshape(array.shape))
                    else:
                        self.check(self.path("a.tif"), array)

    def test_tiff_resolution(self):
        array = self.array("u2", (2, 5, 6))
        path = self.tiff("a.tif", array, resolution=(4000, 2000), resolutionunit="CENTIMETER", metadata=None)
        told = self.check(path, array)
        np.testing.assert_allclose([axis["spacing_um"] for axis in told["axes"][1:]], [5, 2.5])
        self.assertEqual(told["axes"][2]["place"], "XResolution")

    def test_imagej_hyperstacks(self):
        for shape, axes in (((4, 5, 6), "ZYX"), ((2, 3, 4, 5), "ZCYX"), ((2, 3, 4, 5, 6), "TZCYX"), ((3, 5, 6), "TYX")):
            for dtype in ("u1", "u2", "f4"):
                array = self.array(dtype, shape)
                with self.subTest(shape=shape, dtype=dtype):
                    path = self.tiff("a.tif", array, imagej=True, resolution=(1 / 0.25, 1 / 0.5),
                                     metadata={"axes": axes, "spacing": 3.5, "unit": "um"})
                    told = self.check(path, array, squeeze=True)
                    self.assertIn("ImageJ", told["kind"])
                    spacing = {axis["name"]: axis["spacing_um"] for axis in told["axes"]}
                    np.testing.assert_allclose([spacing["x"], spacing["y"]], [0.25, 0.5], rtol=1e-6)
                    self.assertEqual(spacing["z"], 3.5)
        array = self.array("u2", (40, 30, 20))
        path = self.tiff("c.tif", array, imagej=True, contiguous=True, truncate=True, metadata={"axes": "ZYX"})
        with tifffile.TiffFile(path) as file:
            self.assertEqual(len(file.pages), 1)
        self.check(path, array)

    def test_ome_tiff(self):
        for shape, axes in (((4, 5, 6), "ZYX"), ((2, 3, 4, 5), "CZYX"), ((2, 3, 4, 5), "TZYX"), ((2, 3, 4, 5, 6), "TCZYX"), ((2, 3, 4, 5, 6), "TZCYX")):
            array = self.array("u2", shape)
            with self.subTest(axes=axes):
                path = self.tiff("a.ome.tif", array, ome=True, metadata={
                    "axes": axes, "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 500, "PhysicalSizeYUnit": "nm",
                    "PhysicalSizeZ": 0.002, "PhysicalSizeZUnit": "mm"})
                told = self.check(path, array)
                self.assertEqual("".join(axis["name"] for axis in told["axes"]).upper(), axes)
                spacing = {axis["name"]: axis["spacing_um"] for axis in told["axes"]}
                np.testing.assert_allclose([spacing["x"], spacing["y"], spacing["z"]], [0.5, 0.5, 2], rtol=1e-12)
        # A pyramid lies in SubIFDs.
        array = self.array("u1", (3, 64, 48))
        with tifffile.TiffWriter(self.path("p.ome.tif"), bigtiff=True) as file:
            file.write(array, subifds=1, tile=(16, 16), photometric="minisblack", metadata={"axes": "ZYX"})
            file.write(array[:, ::2, ::2], subfiletype=1, tile=(16, 16), photometric="minisblack")
        told = self.check(self.path("p.ome.tif"), array)
        self.assertTrue(any("SubIFDs" in note for note in told["notes"]), told["notes"])
        # Several images have to be chosen from.
        with tifffile.TiffWriter(self.path("m.ome.tif"), ome=True) as file:
            file.write(array, photometric="minisblack", metadata={"axes": "ZYX", "Name": "one"})
            file.write(array[:2, :10], photometric="minisblack", metadata={"axes": "ZYX", "Name": "two"})
        self.assertEqual(self.refused(self.path("m.ome.tif"), "has 2 images ('one', 'two'); allowed 0 to 1")["field"], "image")
        self.check(self.path("m.ome.tif"), array[:2, :10], image=1)

    def test_tiff_that_is_refused(self):
        rgb = self.array("u1", (5, 6, 3))
        path = self.tiff("rgb.tif", rgb, photometric="rgb", metadata=None)
        told = self.refused(path, "page 1, SamplesPerPixel is 3; allowed 1 (grey")
        self.assertEqual(told["reason"], "UNSUPPORTED_FILE")

    def test_nifti(self):
        for image_class, ending in ((nibabel.Nifti1Image, ".nii"), (nibabel.Nifti1Image, ".nii.gz"), (nibabel.Nifti2Image, ".nii"),
                                    (nibabel.Nifti2Image, ".nii.gz"), (nibabel.Nifti1Pair, ".img"), (nibabel.Nifti2Pair, ".img")):
            for dtype in ("u1", "i1", "u2", "i2", "u4", "i4", "i8", "f4", "f8", "c8"):
                for endian in "<>":
                    array = self.array(dtype, self.shape(most=20))
                    with self.subTest(kind=image_class.__name__, ending=ending, dtype=dtype, endian=endian, shape=array.shape):
                        image = image_class(array.astype(np.dtype(dtype).newbyteorder(endian)), np.diag([0.01, 0.02, 0.03, 1]),
                                            image_class.header_class(endianness=endian), dtype=np.dtype(dtype).newbyteorder(endian))
                        image.header.set_xyzt_units("mm")
                        path = self.path("a" + ending)
                        nibabel.save(image, path)
                        np.testing.assert_array_equal(np.asanyarray(nibabel.load(path).dataobj), array)
                        told = self.check(path if ending != ".img" else self.path("a.hdr"), array.transpose())
                        self.assertEqual([axis["name"] for axis in told["axes"]], ["z", "y", "x"])
                        np.testing.assert_allclose([axis["spacing_um"] for axis in told["axes"]], [30, 20, 10], rtol=1e-6)

    def test_nifti_scaling_and_orientation(self):
        array = self.array("u2", (4, 5, 6))
        image = nibabel.Nifti1Image(array, np.diag([1, 1, 1, 1]))
        image.header.set_xyzt_units("micron")
        image.header.set_slope_inter(0.5, -3)
        nibabel.save(image, self.path("a.nii"))
        raw = open(self.path("a.nii"), "rb").read()
        stored = np.frombuffer(raw[352:], "<u2").reshape(6, 5, 4)
        told = self.check(self.path("a.nii"), stored)
        self.assertEqual(told["slope_intercept"], [0.5, -3])
        told, scaled = self.read(self.path("a.nii"), "f4", volume={"scaled": True})
        np.testing.assert_allclose(scaled, stored * 0.5 - 3)
        told, plain = self.read(self.path("a.nii"), "u2", volume={})
        self.assertEqual(told["volume"]["levels"], [-3, 0.5 * 65535 - 3])
        np.testing.assert_array_equal(plain, stored)
        # Sagittal: i runs along y, j along z, k along -x.
        nibabel.save(nibabel.Nifti1Image(array, np.array([[0, 0, -2, 0], [3, 0, 0, 0], [0, 4, 0, 0], [0, 0, 0, 1.0]])), self.path("s.nii"))
        told = self.check(self.path("s.nii"), array.transpose())
        self.assertEqual([axis["name"] for axis in told["axes"]], ["x", "z", "y"])
        self.assertTrue(any("against the axis x" in note for note in told["notes"]), told["notes"])
        # Oblique, with time, and without a unit.
        turn = np.eye(4)
        turn[:2, :2] = [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]]
        image = nibabel.Nifti1Image(self.array("i2", (3, 4, 5, 2)), turn)
        image.header.set_xyzt_units(0, 0)
        nibabel.save(image, self.path("t.nii"))
        told = self.check(self.path("t.nii"), np.asanyarray(image.dataobj).transpose())
        self.assertEqual([axis["name"] for axis in told["axes"]], ["t", "z", "y", "x"])
        self.assertEqual([axis["spacing_um"] for axis in told["axes"]], [None] * 4)
        self.assertTrue(any("oblique" in note for note in told["notes"]), told["notes"])
        self.assertEqual(self.refused(self.path("t.nii"), "select.t: is missing", volume={})["field"], "select.t")
        self.assertEqual(self.refused(self.path("t.nii"), "without a unit of length", volume={"select": {"t": 0}})["field"], "spacing_um.z")

    def test_hdf5(self):
        for dtype in ("u1", "i2", ">u2", ">i4", "u8", "f2", ">f4", "f8", "c8", "c16"):
            for options in ({}, {"chunks": True}, {"chunks": True, "compression": "gzip", "shuffle": True, "fletcher32": True}):
                array = self.array(dtype, self.shape(int(self.random.integers(1, 5)), 20))
                with self.subTest(dtype=dtype, options=options, shape=array.shape):
                    with h5py.File(self.path("a.h5"), "w") as file:
                        data = file.create_dataset("group/data", data=array, **options)
                        data.attrs["element_size_um"] = np.arange(1.0, array.ndim + 1)
                        for i in range(array.ndim):
                            data.dims[i].label = "tzyx"[4 - array.ndim:][i]
                    told = self.check(self.path("a.h5"), array.astype(array.dtype.newbyteorder("<")), dataset="/group/data")
                    self.assertEqual("".join(axis["name"] for axis in told["axes"]), "tzyx"[4 - array.ndim:])
                    self.assertEqual([axis["spacing_um"] for axis in told["axes"]], list(range(1, array.ndim + 1)))
        with h5py.File(self.path("b.h5"), "w") as file:
            file["one"], file["two"], file["text"] = np.zeros((2, 3)), np.zeros(3, "S5"), "x"
            file["enum"] = np.zeros(3, bool)
            file["external"] = h5py.ExternalLink("a.h5", "/group/data")
        self.assertEqual(self.refused(self.path("b.h5"), "the datasets in b.h5: /enum [3], /one [2, 3], /text, /two [3]")["field"], "dataset")
        self.refused(self.path("b.h5"), "which b.h5 does not have; allowed are the paths of its datasets: /enum [3], ", dataset="/three")
        self.assertEqual(self.refused(self.path("b.h5"), "/two, its type is of class 3", dataset="/two")["reason"], "UNSUPPORTED_FILE")
        self.assertEqual(self.refused(self.path("b.h5"), "", dataset="/external")["reason"], "UNSUPPORTED_FILE")
        self.check(self.path("b.h5"), array.astype(array.dtype.newbyteorder("<")), dataset="/external", roots=[os.path.realpath(self.folder)])

    def test_matlab(self):
        for dtype in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "c8", "c16"):
            for compress in (False, True):
                array = self.array(dtype, self.shape(3, 15))
                with self.subTest(dtype=dtype, compress=compress):
                    scipy.io.savemat(self.path("a.mat"), {"other": np.eye(3), "oct": array, "text": "hello", "cells": np.array(["a", "bc"], object)},
                                     do_compression=compress)
                    self.check(self.path("a.mat"), array.transpose(), dataset="oct")
        self.assertEqual(self.refused(self.path("a.mat"), "variables of a.mat: other, oct, text, cells")["field"], "dataset")

    def nrrd(self, name, array, header, encoding="raw", detached=None, between="\n"):
        kinds = {"u": "uint", "i": "int"}
        word = {"f4": "float", "f8": "double"}.get(array.dtype.str[1:], kinds.get(array.dtype.kind, "") + str(8 * array.dtype.itemsize))
        endian = "big" if array.dtype.byteorder == ">" else "little"
        body = array.tobytes()
        body = gzip.compress(body) if encoding == "gzip" else body
        text = f"NRRD0004\n# by hand\ntype: {word}\ndimension: {array.ndim}\nsizes: {' '.join(map(str, array.shape[::-1]))}\nendian: {endian}\nencoding: {encoding}\n{header}"
        if detached is not None:
            text += f"data file: {detached}\n"
            open(self.path(detached), "wb").write(body)
            body = b""
        open(self.path(name), "wb").write(text.encode() + b"\n" + body)
        return self.path(name)

    def test_nrrd(self):
        for dtype in ("u1", "i1", "<u2", ">u2", "<i4", ">f4", "<f8", "u8"):
            for encoding in ("raw", "gzip"):
                for detached in (None, "voxels.raw"):
                    array = self.array(dtype, self.shape())
                    with self.subTest(dtype=dtype, encoding=encoding, detached=detached, shape=array.shape):
                        path = self.nrrd("a.nhdr" if detached else "a.nrrd", array,
                                         'space dimension: 3\nspace directions: (0.1,0,0) (0,0.2,0) (0,0,0.3)\nspace units: "mm" "mm" "mm"\nkey:=a\\nb\n', encoding, detached)
                        told = self.check(path, array.astype(array.dtype.newbyteorder("<")))
                        self.assertEqual([axis["name"] for axis in told["axes"]], ["z", "y", "x"])
                        np.testing.assert_allclose([axis["spacing_um"] for axis in told["axes"]], [300, 200, 100])
                        self.assertEqual(told["labels"]["key"], "a\nb")
        array = self.array("u1", (3, 4, 5))
        path = self.nrrd("s.nrrd", array, 'labels: "x" "y" "z"\nspacings: 2 nan 3\nunits: "um" "" "cm"\n')
        told = self.check(path, array)
        self.assertEqual([axis["spacing_um"] for axis in told["axes"]], [30000, None, 2])
        self.refused(self.nrrd("l.nhdr", array, "data file: LIST\na.raw\n"), "", )
        self.refused(self.nrrd("t.nrrd", array, "", encoding="ascii"), "the field 'encoding' is 'ascii'; allowed raw, gzip")
        truncated = self.nrrd("e.nrrd", array, "")
        os.truncate(truncated, os.path.getsize(truncated) - 1)
        self.assertEqual(self.refused(truncated, "e.nrrd")["reason"], "DAMAGED_FILE")

    @unittest.skipUnless(shutil.which("teem-unu"), "teem-apps is not installed")
    def test_nrrd_of_teem(self):
        for dtype in ("u1", "i2", "u4", "f4", "f8"):
            for encoding in ("raw", "gzip"):
                for endian in ("little", "big"):
                    array = self.array(dtype, self.shape())
                    array.tofile(self.path("in.raw"))
                    word = {"u1": "uchar", "i2": "short", "u4": "uint", "f4": "float", "f8": "double"}[dtype]
                    make = ["teem-unu", "make", "-i", self.path("in.raw"), "-t", word, "-s", *map(str, array.shape[::-1]), "-e", "raw", "-en", "little",
                            "-l", "x", "y", "z", "-sp", "1", "2", "3", "-u", "um", "um", "um"]
                    with self.subTest(dtype=dtype, encoding=encoding, endian=endian):
                        made = subprocess.run(make, capture_output=True, check=True)
                        saved = subprocess.run(["teem-unu", "save", "-f", "nrrd", "-e", encoding, "-en", endian, "-o", self.path("t.nrrd")], input=made.stdout,
                                               capture_output=True)
                        self.assertEqual(saved.returncode, 0, saved.stderr)
                        told = self.check(self.path("t.nrrd"), array)
                        self.assertEqual([axis["name"] for axis in told["axes"]], ["z", "y", "x"])
                        self.assertEqual([axis["spacing_um"] for axis in told["axes"]], [3, 2, 1])

    def test_raw(self):
        for dtype in ("u1", "<u2", ">i4", ">f8", "<c8"):
            for order in "CF":
                array = np.asarray(self.array(dtype, self.shape()), order=order)
                offset = int(self.random.integers(0, 100))
                with self.subTest(dtype=dtype, order=order, offset=offset):
                    open(self.path("a.raw"), "wb").write(bytes(offset) + array.tobytes(order))
                    raw = {"shape": array.shape, "type": type_name(dtype), "big_endian": array.dtype.byteorder == ">", "offset": offset, "fortran": order == "F"}
                    self.check(self.path("a.raw"), array.astype(array.dtype.newbyteorder("<")), raw=raw)

    def test_a_folder_of_pages(self):
        array = self.array("u2", (12, 9, 8))
        os.mkdir(self.path("stack"))
        for i, page in enumerate(array):
            tifffile.imwrite(self.path(f"stack/page{i + 1}.tif"), page, compression="zlib")
        told = self.check(self.path("stack"), array)
        self.assertEqual(told["format"], "tiff-stack")
        told, volume = self.read(self.path("stack"), "u2", volume={"order": "yxz", "spacing_um": {"x": 1, "y": 2, "z": 3}}, step=2)
        np.testing.assert_array_equal(volume, array.transpose(1, 2, 0))
        self.assertEqual(told["volume"]["spacing_um"], [2, 1, 3])


if __name__ == "__main__":
    print("seed", SEED, file=sys.stderr)
    unittest.main()
