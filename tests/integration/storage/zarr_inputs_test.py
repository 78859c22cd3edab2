"""OME-Zarr and Zarr of other programs as volumes: zarr-python's v2, zarrita's and handwritten v3 with shards, and every array that
tests/server/storage/zarr/zarr_arrays.py makes, read by volume_input_tool. Shapes, types and boxes are random; the seed is printed,
and OCTAVO_TEST_SEED repeats it."""

import json
import os
import shutil
import subprocess
import sys
import unittest

import numpy as np
import numcodecs

import zarrita
from volume_files import BUILD, SEED, VolumeFiles
from zarr_writers import multiscale, write_group, write_v2, write_v3

SPACE = [("z", "space", "micrometer"), ("y", "space", "nanometer"), ("x", "space", "millimeter")]
SCALE, SCALE_UM = (3.5, 250.0, 0.004), [3.5, 0.25, 4.0]


class ZarrInputs(VolumeFiles):
    def layout(self, shape):
        """A chunk and a shard that fit a shape."""
        chunk = [int(self.random.integers(1, n + 1)) for n in shape]
        return chunk, [c * int(self.random.integers(1, 4)) for c in chunk]

    def v3(self, name, array, **options):
        chunk, shard = self.layout(array.shape)
        write_v3(self.path(name), array, chunk, shard if self.random.integers(2) else None, compress=bool(self.random.integers(2)),
                 big=bool(self.random.integers(2)), **options)

    def v2(self, name, array, **options):
        compressor = [None, numcodecs.Zstd(1), numcodecs.Blosc("lz4", 5, 1), numcodecs.GZip(1), numcodecs.Zlib(1)][self.random.integers(5)]
        write_v2(self.path(name), array, self.layout(array.shape)[0], order="CF"[self.random.integers(2)], compressor=compressor,
                 dimension_separator="./"[self.random.integers(2)], fill_value=0, **options)

    def either(self, version, name, array):
        (self.v2 if version == "0.4" else self.v3)(name, array)

    def wanted(self, array):
        """As it is read: bools are bytes, elements are little-endian."""
        return array.astype("u1") if array.dtype == bool else array.astype(array.dtype.newbyteorder("<"))

    def test_arrays_by_themselves(self):
        for dtype in ("bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"):
            for version in (2, 3):
                array = self.array("u1", self.shape(int(self.random.integers(1, 5)), 20))
                array = array % 2 == 1 if dtype == "bool" else self.array(dtype, array.shape)
                with self.subTest(dtype=dtype, version=version, shape=array.shape):
                    (self.v2 if version == 2 else self.v3)("a.zarr", array)
                    told = self.check(self.path("a.zarr"), self.wanted(array), descriptor=bool(self.random.integers(2)))
                    self.assertEqual((told["format"], told["kind"]), ("zarr", f"Zarr v{version} array"))
                    self.assertEqual([axis["name"] for axis in told["axes"]], [""] * array.ndim)
                    shutil.rmtree(self.path("a.zarr"))

    def test_every_array_of_the_reader_test(self):
        """Chains of codecs, filters, shards in shards, fill values, orders of bytes."""
        made = subprocess.run([sys.executable, os.path.join(zarrita.SOURCE, "tests/server/storage/zarr/zarr_arrays.py"), self.path("made"), str(SEED % 2**31), "all"],
                              capture_output=True, text=True, timeout=200)
        self.assertEqual(made.returncode, 0, made.stderr)
        read = 0
        for line in made.stdout.splitlines():
            about = json.loads(line)
            path, shape, meta = self.path("made/" + about["name"]), about["shape"], about["meta"]
            name = about["name"].split("_")[1]
            with self.subTest(name=about["name"]):
                if name[0] == "r":
                    self.refused(path, "allowed bool, integers, floats and complex numbers")
                    continue
                if not shape or 0 in shape:
                    self.refused(path, "its shape")
                    continue
                told = self.run_tool(path, out=self.path("out.raw"))
                if "error" in about:
                    self.assertEqual(told.get("reason"), "DAMAGED_FILE", told)
                    continue
                self.assertNotIn("error", told, told)
                # Elements of big-endian arrays have their bytes as in the file there, and as in memory here.
                text = json.dumps(meta.get("codecs", "")).replace('"index_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}', "")
                big = meta["dtype"][0] == ">" if "dtype" in meta else '"endian": "big"' in text
                size = os.path.getsize(path + ".bytes") // int(np.prod(shape))
                part = size // 2 if name.startswith("complex") else size
                wanted = np.fromfile(path + ".bytes", "u1").reshape(-1, part)
                np.testing.assert_array_equal(np.fromfile(self.path("out.raw"), "u1").reshape(-1, part), wanted[:, ::-1] if big else wanted)
                read += 1
        self.assertGreater(read, 100)

    def test_levels_of_an_image(self):
        for version in ("0.4", "0.5"):
            for dtype in ("u1", "u2", "f4"):
                shape = self.shape(most=30, least=4)
                levels = [self.array(dtype, [max(1, n >> k) for n in shape]) for k in range(3)]
                path = self.path(f"{version}_{dtype}.zarr")
                paths = ["0", "s1", "deep/2"]
                scales = [[s * 2**k for s in SCALE] for k in range(3)]
                places = [None, [s / 2 for s in SCALE], [s * 1.5 for s in SCALE]]
                for name, level in zip(paths, levels):
                    self.either(version, os.path.join(os.path.basename(path), name), level)
                image = multiscale(SPACE, list(zip(paths, scales, places)), "the name")
                omero = {"channels": [{"label": "OCT", "color": "FF0000", "window": {"min": 0, "max": 255, "start": 3, "end": 200.5}}]}
                write_group(path, version, [image], omero)
                for k, level in enumerate(levels):
                    for options in ({"level": k}, {"dataset": paths[k]}, {"above": paths[k]}, {"level": k, "descriptor": True}):
                        with self.subTest(version=version, dtype=dtype, shape=shape, **options):
                            above = options.pop("above", None)
                            told = self.check(os.path.join(path, above) if above else path, level, **options)
                            self.assertEqual("".join(axis["name"] for axis in told["axes"]), "zyx")
                            np.testing.assert_allclose([axis["spacing_um"] for axis in told["axes"]], [s * 2**k for s in SCALE_UM], rtol=1e-12)
                            self.assertEqual(told["kind"], f"OME-Zarr {version}, Zarr v{2 if version == '0.4' else 3}, level {k} of 3")
                            self.assertEqual({key: told["labels"][key] for key in ("name", "channel 0", "color 0", "window 0")},
                                             {"name": "the name", "channel 0": "OCT", "color 0": "FF0000", "window 0": "3 to 200.5"})
                            self.assertEqual(told["labels"].get("translation"),
                                             None if k == 0 else ", ".join(f"{a} {t:.9g} {u}" for t, (a, _, u) in zip(places[k], SPACE)))
                self.check(path, levels[0])  # the full resolution is the default
                self.assertEqual(self.refused(path, "level: is 3; allowed 0 to 2", level=3)["field"], "level")
                self.assertIn("is an array", self.refused(path, "level", level=0, dataset="0")["error"])

    def test_transformations_of_the_whole_image(self):
        array = self.array("u2", (4, 5, 6))
        for version in ("0.4", "0.5"):
            self.either(version, f"{version}/0", array)
            whole = [{"type": "scale", "scale": [2, 1, 0.5]}, {"type": "translation", "translation": [0, 7, 0]}]
            write_group(self.path(version), version, [multiscale(SPACE, [("0", SCALE, (1, 0, 0))], whole=whole)])
            told = self.check(self.path(version), array)
            np.testing.assert_allclose([axis["spacing_um"] for axis in told["axes"]], [7, 0.25, 2])
            self.assertEqual(told["labels"]["translation"], "z 2 micrometer, y 7 nanometer")
            self.assertTrue(any("volumes do not keep" in note for note in told["notes"]), told["notes"])

    def test_channels_and_times(self):
        for version in ("0.4", "0.5"):
            array = self.array("u2", (2, 3, 4, 5, 6))
            self.either(version, f"{version}/0", array)
            axes = [("t", "time", "second"), ("c", "channel", None)] + SPACE
            write_group(self.path(version), version, [multiscale(axes, [("0", (0.5, 1) + SCALE, None)])])
            told = self.check(self.path(version), array)
            self.assertEqual([axis["spacing_um"] for axis in told["axes"]][:2], [None, None])
            self.assertEqual(told["axes"][0]["stored"], "0.5 second")
            self.assertEqual(self.refused(self.path(version), "select.t: is missing", volume={})["field"], "select.t")
            _, volume = self.read(self.path(version), "u2", volume={"select": {"t": 1, "c": 2}})
            np.testing.assert_array_equal(volume, array[1, 2])
            for step in (1, 2, 3):
                told, volume = self.read(self.path(version), "u2", step=step, volume={"select": {"t": 0, "c": 1}, "order": "xzy", "start": [1, 2, 0], "count": [3, 2, 4]})
                np.testing.assert_array_equal(volume, array[0, 1].transpose(2, 0, 1)[1:4, 2:4, 0:4])
                self.assertEqual(told["volume"]["spacing_um"], [4.0, 3.5, 0.25])

    def test_what_the_metadata_do_not_say(self):
        array = self.array("u2", (4, 5, 6))
        self.v3("bare", array)
        self.assertEqual(self.refused(self.path("bare"), "axes: is missing", volume={})["field"], "axes")
        self.assertEqual(self.refused(self.path("bare"), "the file says nothing about it", volume={"axes": ["z", "y", "x"]})["field"], "spacing_um.z")
        told, volume = self.read(self.path("bare"), "u2", volume={"axes": ["x", "y", "z"], "spacing_um": {"x": 1, "y": 2, "z": 3}})
        self.assertEqual(told["volume"]["spacing_um"], [1, 2, 3])
        np.testing.assert_array_equal(volume, array)
        self.v3("named", array, names=["z", None, "x"], attributes={"lens": "20x", "gain": 2.5, "list": [1]})
        told = self.check(self.path("named"), array)
        self.assertEqual([axis["name"] for axis in told["axes"]], ["z", "", "x"])
        self.assertEqual(told["labels"], {"lens": "20x", "gain": "2.5"})
        self.v2("xarray", array)
        with open(self.path("xarray/.zattrs"), "w") as file:
            json.dump({"_ARRAY_DIMENSIONS": ["z", "y", "x"]}, file)
        self.assertEqual([axis["name"] for axis in self.check(self.path("xarray"), array)["axes"]], ["z", "y", "x"])
        # A unit that is no length, and none.
        self.v3("units/0", array)
        write_group(self.path("units"), "0.5", [multiscale([("z", "space", None), ("y", "space", "pixel"), ("x", "space", "micrometer")], [("0", (2, 3, 4), None)])])
        told = self.check(self.path("units"), array)
        self.assertEqual([axis["spacing_um"] for axis in told["axes"]], [None, None, 4])
        self.assertEqual([axis["stored"] for axis in told["axes"]], ["2", "3 pixel", "4 micrometer"])
        self.refused(self.path("units"), "says '2' (scale[0]) without a unit of length", volume={})

    def test_groups_of_several_images_and_arrays(self):
        one, two = self.array("u2", (4, 5, 6)), self.array("u1", (3, 2, 6))
        self.v3("many/a", one)
        self.v3("many/b", two)
        write_group(self.path("many"), "0.5", [multiscale(SPACE, [("a", SCALE, None)], "first"), multiscale(SPACE, [("b", SCALE, None)])])
        self.assertEqual(self.refused(self.path("many"), "has 2 images ('first', ''); allowed 0 to 1")["field"], "image")
        self.assertEqual(self.refused(self.path("many"), "image: is 2; allowed 0 to 1", image=2)["field"], "image")
        self.check(self.path("many"), one, image=0)
        self.check(self.path("many"), two, image=1)
        self.check(self.path("many"), two, dataset="b")
        # What bioformats2raw writes: images in groups that have numbers, or that are listed.
        for version in ("0.4", "0.5"):
            root = self.path("raw" + version)
            write_group(root, version, [], **{"bioformats2raw.layout": 3})
            for name, array in (("0", one), ("1", two)):
                self.either(version, f"raw{version}/{name}/0", array)
                write_group(os.path.join(root, name), version, [multiscale(SPACE, [("0", SCALE, None)])])
            self.check(root, two, image=1)
            self.refused(root, "has 2 images ('0', '1')")
            write_group(os.path.join(root, "OME"), version, [], series=["1", "0"])
            self.check(root, two, image=0)
            self.check(root, one, dataset="0")
        # A group without images: the array has to be named.
        self.v3("plain/one", one)
        self.v3("plain/sub/two", two)
        for folder in ("plain", "plain/sub"):
            with open(self.path(folder + "/zarr.json"), "w") as file:
                json.dump({"zarr_format": 3, "node_type": "group"}, file)
        self.assertEqual(self.refused(self.path("plain"), "allowed are paths of arrays and images below it: one, sub/")["field"], "dataset")
        self.assertEqual(self.refused(self.path("plain"), "which plain does not have", dataset="three")["field"], "dataset")
        self.assertEqual(self.refused(self.path("plain"), "allowed paths of arrays", dataset="../plain/one")["field"], "dataset")
        self.check(self.path("plain"), two, dataset="/sub/two/")

    def test_links_and_roots(self):
        array = self.array("u2", (4, 5, 6))
        self.v3("real/0", array)
        write_group(self.path("real"), "0.5", [multiscale(SPACE, [("0", SCALE, None)])])
        os.makedirs(self.path("roots/linked"))
        shutil.copy(self.path("real/zarr.json"), self.path("roots/linked/zarr.json"))
        os.symlink(self.path("real/0"), self.path("roots/linked/0"))
        self.check(self.path("roots/linked"), array)
        self.assertEqual(self.refused(self.path("roots/linked"), "linked", roots=[os.path.realpath(self.path("roots"))])["reason"], "OUTSIDE_ROOTS")
        told = self.refused(self.path("roots/linked"), "a folder that was handed over is read without links", descriptor=True)
        self.assertEqual(told["reason"], "UNSUPPORTED_FILE")
        # The group above an array is not looked for outside of the roots.
        told = self.check(self.path("real/0"), array, roots=[os.path.realpath(self.path("real/0"))])
        self.assertEqual([axis["name"] for axis in told["axes"]], [""] * 3)

    def test_refusals_name_the_member(self):
        array = self.array("u2", (4, 5, 6))
        self.v3("a/0", array)
        image = multiscale(SPACE, [("0", SCALE, None)])
        def changed(**members):
            write_group(self.path("a"), "0.5", [{**image, **members}])
            return self.path("a")
        self.assertEqual(self.refused(changed(axes=image["axes"][:2]), "coordinateTransformations[0].scale")["reason"], "DAMAGED_FILE")
        turned = [{"path": "0", "coordinateTransformations": [{"type": "rotation"}]}]
        self.assertEqual(self.refused(changed(datasets=turned), "type is \"rotation\"; what is read here are the transformations scale and translation")["reason"], "UNSUPPORTED_FILE")
        gone = [{"path": "9", "coordinateTransformations": [{"type": "scale", "scale": [1, 1, 1]}]}]
        self.assertEqual(self.refused(changed(datasets=gone), "a: 9 is missing")["reason"], "DAMAGED_FILE")
        changed()
        meta = json.load(open(self.path("a/0/zarr.json")))
        meta["codecs"] = meta["codecs"][:1] + [{"name": "lzma", "configuration": {}}]
        json.dump(meta, open(self.path("a/0/zarr.json"), "w"))
        self.assertEqual(self.refused(self.path("a"), "a: 0/zarr.json: ")["reason"], "UNKNOWN_COMPRESSION")
        os.mkdir(self.path("empty"))
        self.refused(self.path("empty"), "", format="zarr")
        self.assertEqual(self.refused(self.path("empty"), "has neither files of Zarr", format="zarr")["reason"], "BAD_FIELD")
        write_v3(self.path("big"), self.array("u1", (64, 64)), [64, 64])
        self.assertIn("allowed up to 4095 bytes", self.refused(self.path("big"), "its chunk", most_chunk_bytes=4095)["error"])
        # A chunk that is cut.
        file = next(os.path.join(folder, files[0]) for folder, _, files in os.walk(self.path("big/c")) if files)
        os.truncate(file, os.path.getsize(file) - 1)
        told = self.refused(self.path("big"), "big: c/0/0", out=self.path("x"))
        self.assertEqual(told["reason"], "DAMAGED_FILE")

    def test_commits_of_octavo(self):
        """With their metadata, also of coarser levels; `octavo convert` writes them."""
        array = np.cumsum(self.array("u2", (21, 34, 40)) % 7, axis=2, dtype="u2")
        np.save(self.path("s.npy"), array)
        octavo = [os.path.join(BUILD, "bin", "octavo"), "--json", "convert"]
        made = subprocess.run([*octavo, self.path("s.npy"), self.path("v.ome.zarr"), "--axes", "y,x,z", "--spacing-um", "y=12,x=6", "--unknown-spacing",
                               "--pyramid", "3", "--chunk", "4,8,8", "--shard", "8,16,16"], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        told, _ = self.read(self.path("v.ome.zarr"), "u2")
        self.assertEqual(told["chunk"], [4, 8, 8])
        for level in range(3):
            told, read = self.read(self.path("v.ome.zarr"), "u2", level=level, volume={})
            self.assertEqual(told["kind"], f"OME-Zarr 0.5 of a commit, Zarr v3, level {level} of 3")
            self.assertEqual((told["octavo"]["spacing_um"], told["octavo"]["spacing_assumed"]), ([12 * 2**level, 6 * 2**level, 2**level], ["z"]))
            self.assertEqual(told["octavo"]["axes"], ["y", "x", "z"])
            self.assertEqual(read.shape, tuple(n >> level for n in array.shape))
            pairs = array[tuple(slice(0, n >> level << level) for n in array.shape)].astype(float)
            for axis in (0, 1, 2):
                pairs = pairs.reshape(*pairs.shape[:axis], -1, 2**level, *pairs.shape[axis + 1:]).mean(axis + 1)
            self.assertLessEqual(np.abs(read - pairs).max(), 0.5 * max(1, level))  # each level is rounded
        back = subprocess.run([*octavo, self.path("v.ome.zarr"), self.path("back.npy"), "--from-level", "2"], capture_output=True, text=True)
        self.assertEqual(back.returncode, 0, back.stdout + back.stderr)
        np.testing.assert_array_equal(np.load(self.path("back.npy")), read)
        # Damage is found by the manifest, and a missing chunk is damage.
        shutil.rmtree(self.path("v.ome.zarr/2/c/0"))
        self.assertEqual(self.refused(self.path("v.ome.zarr"), "2/c/0", level=2)["code"], 15)

    def test_zarrita(self):
        programs = zarrita.folder(self)
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        chains = [[little], [little, {"name": "zstd", "configuration": {"level": 1, "checksum": False}}],
                  [{"name": "transpose", "configuration": {"order": [2, 0, 1]}}, {"name": "bytes", "configuration": {"endian": "big"}}]]
        for dtype, name in (("u1", "uint8"), ("i2", "int16"), ("u2", "uint16"), ("u4", "uint32"), ("f4", "float32"), ("f8", "float64")):
            blosc = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": int(dtype[1]), "blocksize": 0}}
            for k, codecs in enumerate(chains + [[little, blosc]]):
                array = self.array(dtype, self.shape(most=20))
                array.tofile(self.path("data.bin"))
                path = self.path(f"{name}_{k}.zarr")
                about = {"shape": array.shape, "chunk_shape": self.layout(array.shape)[0], "data_type": name, "codecs": codecs, "dimension_names": ["z", "y", "x"],
                         "data": self.path("data.bin")}
                with self.subTest(dtype=dtype, codecs=codecs, shape=array.shape):
                    made = subprocess.run(["node", "write.mjs", path, json.dumps(about)], cwd=programs, capture_output=True, text=True, timeout=60)
                    self.assertEqual(made.returncode, 0, made.stderr)
                    told = self.check(path, array)
                    self.assertEqual([axis["name"] for axis in told["axes"]], ["z", "y", "x"])


if __name__ == "__main__":
    print("seed", SEED, file=sys.stderr)
    unittest.main()
