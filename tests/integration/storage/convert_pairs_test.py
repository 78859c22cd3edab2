"""`octavo convert` takes every input to every output: files that other programs wrote, each to each format, read back by independent
readers (readers.py) bit for bit. Shapes and types are random; the seed is printed, and OCTAVO_TEST_SEED repeats it."""

import gzip
import json
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

from readers import READERS, read_tiff_stack
from volume_files import BUILD, SEED, VolumeFiles
from zarr_writers import multiscale, write_group, write_v2, write_v3

SPACING = {"x": 4.0, "y": 0.25, "z": 3.5}  # µm
GIVEN = ["--axes", "z,y,x", "--spacing-um", ",".join(f"{axis}={um}" for axis, um in SPACING.items())]
TYPES = ["u1", "i1", "u2", "i2", "f4", "f8", "c8"]  # of all formats; f2 besides
F16 = {"zarr", "npy", "hdf5", "bin"}
OME = [("z", "space", "micrometer"), ("y", "space", "nanometer"), ("x", "space", "millimeter")]


class ConvertPairs(VolumeFiles):
    # Each writes an array [z, y, x] and returns the path and the flags.
    def npy(self, array):
        np.save(self.path("a.npy"), np.asarray(array, order="CF"[self.random.integers(2)]))
        return self.path("a.npy"), GIVEN

    def raw(self, array):
        array.astype(array.dtype.newbyteorder(">")).tofile(self.path("a.dat"))
        kind = {"u": "u", "i": "i", "f": "f", "c": "c"}[array.dtype.kind] + str(8 * array.dtype.itemsize)
        return self.path("a.dat"), [*GIVEN, "--raw-shape", ",".join(map(str, array.shape)), "--raw-type", kind, "--raw-big-endian"]

    def tiff(self, array):
        tifffile.imwrite(self.path("a.ome.tif"), array, photometric="minisblack", ome=True, metadata={
            "axes": "ZYX", "PhysicalSizeX": 4, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 250, "PhysicalSizeYUnit": "nm", "PhysicalSizeZ": 3.5, "PhysicalSizeZUnit": "µm"})
        return self.path("a.ome.tif"), []

    def tiff_stack(self, array):
        os.mkdir(self.path("pages"))
        for i, page in enumerate(array):
            tifffile.imwrite(self.path(f"pages/{i:04}.tif"), page, photometric="minisblack", metadata=None)
        return self.path("pages"), GIVEN

    def nifti(self, array):
        image = nibabel.Nifti1Image(array.transpose(), np.diag([0.004, 0.00025, 0.0035, 1]), dtype=array.dtype)
        image.header.set_xyzt_units("mm")
        nibabel.save(image, self.path("a.nii.gz"))
        return self.path("a.nii.gz"), []

    def nrrd(self, array):
        word = {"u1": "uint8", "i1": "int8", "u2": "uint16", "i2": "int16", "f4": "float", "f8": "double"}[array.dtype.str[1:]]
        header = (f"NRRD0004\ntype: {word}\ndimension: 3\nsizes: {' '.join(map(str, array.shape[::-1]))}\nendian: little\nencoding: gzip\n"
                  'space dimension: 3\nspace directions: (4,0,0) (0,0.25,0) (0,0,3.5)\nspace units: "um" "um" "um"\n\n')
        with open(self.path("a.nrrd"), "wb") as file:
            file.write(header.encode() + gzip.compress(array.tobytes()))
        return self.path("a.nrrd"), []

    def hdf5(self, array):
        with h5py.File(self.path("a.h5"), "w") as file:
            data = file.create_dataset("deep/data", data=array, chunks=True, compression="gzip")
            data.attrs["element_size_um"] = [3.5, 0.25, 4.0]
            for i, axis in enumerate("zyx"):
                data.dims[i].label = axis
        return self.path("a.h5"), ["--dataset", "/deep/data"]

    def mat(self, array):
        scipy.io.savemat(self.path("a.mat"), {"oct": array.transpose()}, do_compression=bool(self.random.integers(2)))
        return self.path("a.mat"), [*GIVEN, "--dataset", "oct"]

    def linumpy(self, array):
        """Its own order is [y, x, z]."""
        os.mkdir(self.path("raw"))
        frames = array.transpose(1, 2, 0)
        with open(self.path("raw/info.txt"), "w") as file:
            file.write(f"nx: {frames.shape[1]}\nny: {frames.shape[0]}\nn_extra: 0\ntop_z: 0\nbottom_z: {frames.shape[2]}\n")
        cut = int(self.random.integers(frames.shape[0] + 1))
        for i, part in enumerate((frames[:cut], frames[cut:])):
            if len(part):
                part.astype("<f4").tofile(self.path(f"raw/image_{i:08}.bin"))
        return self.path("raw"), GIVEN[2:]

    def zarr_v2(self, array):
        write_v2(self.path("a.zarr/0"), array, [3, 5, 7], fill_value=0)
        write_group(self.path("a.zarr"), "0.4", [multiscale(OME, [("0", (3.5, 250, 0.004), None)])])
        return self.path("a.zarr"), []

    def zarr_v3(self, array):
        write_v3(self.path("b.zarr/sub/0"), array, [2, 3, 4], [4, 6, 8], big=True)
        write_group(self.path("b.zarr/sub"), "0.5", [multiscale(OME, [("0", (3.5, 250, 0.004), None)])])
        with open(self.path("b.zarr/zarr.json"), "w") as file:
            json.dump({"zarr_format": 3, "node_type": "group"}, file)
        return self.path("b.zarr"), ["--array", "sub", "--from-level", "0"]

    def commit(self, array):
        """What Octavo wrote itself, in any format."""
        np.save(self.path("c.npy"), array)
        wanted = list(READERS)[self.random.integers(len(READERS))]
        if array.dtype.str[1:] == "f2" and wanted not in F16:
            wanted = "zarr"
        return self.convert(self.path("c.npy"), "own", "--format", wanted, *GIVEN), []

    def convert(self, source, name, *flags):
        done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--json", "convert", source, self.path(name), *flags], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)["path"]

    def test_what_may_not_be_as_intended_is_told(self):
        def told(source, name, *flags):
            done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "convert", self.path(source), self.path(name), *flags], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stderr
        np.save(self.path("wide.npy"), np.array([[[-5, 3, 300, np.nan]]], "f4"))
        clipped = told("wide.npy", "clipped.nrrd", "--dtype", "u8", *GIVEN)
        self.assertIn("octavo: warning: 1 numbers were below and 1 above the range of u8", clipped)
        self.assertIn("octavo: warning: 1 numbers were NaN, which u8 does not have", clipped)
        self.assertEqual(told("wide.npy", "exact.nrrd", *GIVEN), "")
        write_v3(self.path("half"), np.ones((4, 5, 6), "u2"), [2, 5, 6])
        self.assertEqual(told("half", "whole.npy", *GIVEN), "")
        os.remove(self.path("half/c/1/0/0"))
        self.assertIn("warning: 1 chunk file is not there ('c/1/0/0')", told("half", "half.npy", *GIVEN))
        # What the reader itself doubts, and programs find it, too.
        tifffile.imwrite(self.path("um.ome.tif"), np.ones((4, 5, 6), "u2"), ome=True, photometric="minisblack",
                         metadata={"axes": "ZYX", "PhysicalSizeX": 1, "PhysicalSizeY": 1, "PhysicalSizeZ": 1})
        self.assertIn("The spacing along z is taken as 3.5 um; the file says 1 um", told("um.ome.tif", "um.npy", "--spacing-um", "z=3.5"))
        done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--json", "convert", self.path("wide.npy"), self.path("json.nrrd"), "--dtype", "u8", *GIVEN], capture_output=True, text=True, timeout=60)
        self.assertEqual(len(json.loads(done.stdout)["warnings"]), 2)

    def test_every_input_to_every_output(self):
        sources = {"npy": self.npy, "raw": self.raw, "tiff": self.tiff, "tiff-stack": self.tiff_stack, "nifti": self.nifti, "nrrd": self.nrrd, "hdf5": self.hdf5,
                   "mat": self.mat, "linumpy": self.linumpy, "zarr v2": self.zarr_v2, "zarr v3": self.zarr_v3, "a commit": self.commit}
        lacking = {"tiff": {"f2"}, "tiff-stack": {"f2"}, "nifti": {"f2"}, "nrrd": {"f2", "c8"}, "mat": {"f2"}}  # of the writers here
        outputs = {**{name: (read, ["--format", name]) for name, read in READERS.items()}, "tiff-stack": (read_tiff_stack, ["--tiff-stack"])}
        whole = self.folder
        for source, write in sources.items():
            for output, (read, flags) in outputs.items():
                types = ["f4"] if source == "linumpy" else [t for t in TYPES + (["f2"] if output in F16 else []) if t not in lacking.get(source, ())]
                dtype = types[self.random.integers(len(types))]
                array = self.array(dtype, self.shape(most=24, least=2))
                self.folder = os.path.join(whole, f"{source} {output}")
                os.mkdir(self.folder)
                with self.subTest(source=source, output=output, dtype=dtype, shape=array.shape):
                    path, given = write(array)
                    stored = read(self.convert(path, "out", *flags, *given))
                    self.assertEqual(stored.array.dtype, array.dtype)
                    np.testing.assert_array_equal(stored.array, array.transpose(1, 2, 0))
                    self.assertEqual(stored.array.tobytes(), np.ascontiguousarray(array.transpose(1, 2, 0)).tobytes())
                    if stored.spacing_um is not None:
                        np.testing.assert_allclose(stored.spacing_um, [0.25, 4.0, 3.5], rtol=1e-6)
                shutil.rmtree(self.folder)
        self.folder = whole


if __name__ == "__main__":
    print("seed", SEED, file=sys.stderr)
    unittest.main()
