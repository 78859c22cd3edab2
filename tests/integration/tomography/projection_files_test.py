"""Projections in files that other programs write: TIFF by tifffile, chunks of HDF5 by h5py with the plug-ins of LZ4 and bitshuffle. Every
job has to give the voxels, bit by bit, that it gives for the same numbers in .npy files."""

import os
import shutil
import subprocess
import sys
import unittest

import grpc
import h5py
import numpy as np
import tifffile

from harness import BUILD, Daemon, DaemonTest, octavo

COUNT, ROWS, COLUMNS = 24, 6, 40
TYPES = ("u1", "u2", "i2", "f4")
LZ4, BITSHUFFLE = 32004, 32008
# In a process of its own: the library looks for plug-ins once.
FILTERS = [number for number in (LZ4, BITSHUFFLE)
           if subprocess.run([sys.executable, "-c", f"import h5py; assert h5py.h5z.filter_avail({number})"], capture_output=True).returncode == 0]
needs_filters = unittest.skipUnless(len(FILTERS) == 2, "Debian's hdf5-filter-plugin and bitshuffle are not installed")


class ProjectionFiles(DaemonTest):
    @classmethod
    def setUpClass(cls):
        # Plug-ins that are installed must not help the daemon.
        cls.daemon = Daemon(environment={"HDF5_PLUGIN_PRELOAD": "::"})
        cls.client = cls.daemon.client()
        np.save(cls.at("a.npy"), np.linspace(0, 180, COUNT, endpoint=False))
        cls.wanted = {}
        for code in TYPES:
            for name, array in zip(("p", "w", "d"), cls.scan(code)):
                np.save(cls.at(f"{name}_{code}.npy"), array)
            cls.wanted[code] = cls.volume(path=f"p_{code}.npy", flats=f"w_{code}.npy", darks=f"d_{code}.npy", angles="a.npy")

    @classmethod
    def at(cls, *names):
        return os.path.join(cls.daemon.root, *names)

    @classmethod
    def scan(cls, code):
        """Projections, flats, darks."""
        random = np.random.default_rng(7)
        most = {"u1": 200, "u2": 50000, "i2": 30000, "f4": 30000.5}[code]
        dark = 0.02 * most
        x = np.linspace(-1, 1, COLUMNS)
        body = np.sqrt(np.maximum(0, 0.5 - x[None, None, :] ** 2)) * np.linspace(1, 2, ROWS)[None, :, None]
        projections = dark + (most - dark) * np.exp(-body) * random.uniform(0.95, 1, (COUNT, ROWS, COLUMNS))
        flats = random.uniform(0.95, 1, (3, ROWS, COLUMNS)) * most
        darks = random.uniform(0.5, 1, (2, ROWS, COLUMNS)) * dark
        return [array.astype(code) for array in (projections, flats, darks)]

    @classmethod
    def volume(cls, **file):
        job = cls.client.wait_job(cls.client.submit_job(octavo.tomography(dict(file))).name)
        volume = cls.client.read(job.volume_names[0])
        cls.client.discard(job.volume_names[0])
        assert np.isfinite(volume).all() and volume.std() > 0
        return volume

    def folder(self, name, array, **options):
        """A file for each frame, numbered without leading zeros."""
        shutil.rmtree(self.at(name), ignore_errors=True)
        os.makedirs(self.at(name))
        for i, frame in enumerate(array):
            tifffile.imwrite(self.at(name, f"frame_{i + 1}.tif"), frame, **options)

    def refused(self, text, code=grpc.StatusCode.INVALID_ARGUMENT, reason=None, **file):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.tomography(dict(file)))
        self.assertIn(text, caught.exception.message)
        self.assertEqual(caught.exception.code, code)
        if reason:
            self.assertEqual(caught.exception.reason, reason)

    def test_folders_of_tiff(self):
        for code in TYPES:
            projections, flats, darks = self.scan(code)
            for options in ({}, {"byteorder": ">"}, {"rowsperstrip": 4}, {"tile": (16, 16)}, {"compression": "zlib", "rowsperstrip": 4}):
                with self.subTest(code=code, **options):
                    self.folder("scan", projections, **options)
                    self.folder("dark", darks)
                    tifffile.imwrite(self.at("white.tif"), flats, photometric="minisblack")
                    np.testing.assert_array_equal(self.volume(path="scan", flats="white.tif", darks="dark", angles="a.npy"), self.wanted[code])

    def warned(self, **file):
        """Warnings of the plan."""
        return list(self.client.plan_job(octavo.tomography(dict(file))).warnings)

    def test_names_of_another_series(self):
        self.folder("mixed", self.scan("u2")[0][:-2])
        tifffile.imwrite(self.at("white_of_mixed.tif"), self.scan("u2")[1], photometric="minisblack")
        for name, odd in (("flat_1.tif", "22 are as frame_1.tif, and 2 are not, the first of them flat_1.tif"),
                          ("frame_1_b.tif", "22 are as frame_1.tif, and 2 are not, the first of them frame_1_b.tif")):
            more = [name, name.replace("1", "2")]
            for one in more:
                tifffile.imwrite(self.at("mixed", one), self.scan("u2")[0][0])
            found = self.warned(path="mixed", angles="a.npy", flats="white_of_mixed.tif")
            self.assertEqual(len([text for text in found if odd in text]), 1, found)
            for one in more:
                os.remove(self.at("mixed", one))

    def test_axes_that_nothing_tells(self):
        square = np.ones((COUNT, COUNT, COLUMNS), np.float32)
        with h5py.File(self.at("square.h5"), "w") as file:
            file["exchange/data"], file["exchange/theta"] = square, np.linspace(0, 180, COUNT, endpoint=False)
        told = "/exchange/data has no attribute axes, such as theta:y:x, which would say what its axes are; taken as [angle, row, column]. It has as many angles as rows"
        self.assertEqual(len([text for text in self.warned(path="square.h5") if told in text]), 1)
        with h5py.File(self.at("square.h5"), "a") as file:
            file["exchange/data"].attrs["axes"] = "theta:y:x"
        self.assertEqual([text for text in self.warned(path="square.h5") if "axes" in text], [])
        # Sinograms of few rows: the angles say that something is wrong, and the shape what.
        with h5py.File(self.at("sinograms.h5"), "w") as file:
            file["exchange/data"], file["exchange/theta"] = np.ones((ROWS, COUNT, COLUMNS), np.float32), np.linspace(0, 180, COUNT, endpoint=False)
        self.refused(f"/exchange/theta has {COUNT} values; allowed {ROWS}, one per projection of /exchange/data, whose axes are taken as [angle, row, column]; as many as it "
                     "has rows: if that axis is the one of the angles, make it the first", path="sinograms.h5")

    def test_a_dataset_that_is_missing(self):
        with h5py.File(self.at("names.h5"), "w") as file:
            for i in range(12):
                file[f"about/{i:02}"] = i
            file["exchange/data"], file["exchange/theta"] = np.ones((COUNT, ROWS, COLUMNS), np.float32), np.linspace(0, 180, COUNT, endpoint=False)
        there = f"allowed are the datasets of the file: /exchange/data [{COUNT}, {ROWS}, {COLUMNS}], /exchange/theta [{COUNT}], /about/00, "
        for wrong in (dict(projections="/exchange/dtaa"), dict(flats="/exchange/white"), dict(angles="/exchange/angles")):
            name = next(iter(wrong.values()))
            self.refused(f"{name} is missing; {there}", reason="BAD_PROJECTIONS", path="names.h5", **wrong)
        done = self.command("recon", "names.h5", "--data", "/exchange/dtaa", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"/exchange/dtaa is missing; {there}", done.stderr)
        self.assertIn("/about/07, ... [BAD_PROJECTIONS]", done.stderr)

    def test_files_of_pages(self):
        for code in TYPES:
            projections, flats, darks = self.scan(code)
            tifffile.imwrite(self.at("white.tif"), flats, photometric="minisblack")
            tifffile.imwrite(self.at("dark.tiff"), darks, photometric="minisblack")
            kinds = [{}, {"bigtiff": True}, {"byteorder": ">"}, {"rowsperstrip": 1}, {"tile": (32, 16)}, {"compression": "zlib"}, {"ome": True}]
            if code != "i2":  # which ImageJ does not have
                kinds.append({"imagej": True})
            for options in kinds:
                with self.subTest(code=code, **options):
                    tifffile.imwrite(self.at("pages.tif"), projections, **{"photometric": "minisblack", **options})
                    np.testing.assert_array_equal(self.volume(path="pages.tif", flats="white.tif", darks="dark.tiff", angles="a.npy"), self.wanted[code])
        # The format by name, and an ending that says nothing; the angles with the job.
        os.rename(self.at("pages.tif"), self.at("pages.dat"))
        work = octavo.tomography(octavo.ProjectionFile(path="pages.dat", format="tiff", flats="white.tif", darks="dark.tiff"),
                                 angles=np.deg2rad(np.linspace(0, 180, COUNT, endpoint=False)))
        job = self.client.wait_job(self.client.submit_job(work).name)
        np.testing.assert_array_equal(self.client.read(job.volume_names[0]), self.wanted["f4"])

    def test_the_command_line_reads_a_folder(self):
        projections, flats, darks = self.scan("u2")
        self.folder("cli", projections)
        tifffile.imwrite(self.at("cli_white.tif"), flats, photometric="minisblack")
        tifffile.imwrite(self.at("cli_dark.tif"), darks, photometric="minisblack")
        self.command("recon", "cli", "--flats", "cli_white.tif", "--darks", "cli_dark.tif", "--angles-file", "a.npy", "--center", "middle", "-o", "cli_made.npy")
        np.testing.assert_array_equal(np.load(self.at("cli_made.npy")), self.wanted["u2"])

    def test_what_tiff_is_refused(self):
        projections, flats, _ = self.scan("u2")
        tifffile.imwrite(self.at("white.tif"), flats, photometric="minisblack")
        good = dict(path="bad", flats="white.tif", angles="a.npy")
        self.folder("bad", projections)
        self.refused("angles are not given", reason="BAD_PROJECTIONS", **{**good, "angles": ""})
        for flats_name, code in (("../white.tif", "INVALID_ARGUMENT"), ("/etc/passwd", "INVALID_ARGUMENT"), ("none.tif", "NOT_FOUND")):
            with self.subTest(flats=flats_name), self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(octavo.tomography({**good, "flats": flats_name}))
            self.assertEqual((caught.exception.code.name, caught.exception.field), (code, "tomography.file.flats"))
        tifffile.imwrite(self.at("bad", "frame_7.tif"), projections[6, :-1])
        self.refused("frame_7.tif: page 1, its extent is 40 x 5; allowed 40 x 6", reason="UNSUPPORTED_FILE", **good)
        tifffile.imwrite(self.at("bad", "frame_7.tif"), projections[6].astype("f4"))
        self.refused("frame_7.tif: page 1, its type is f32; allowed u16", reason="UNSUPPORTED_FILE", **good)
        tifffile.imwrite(self.at("bad", "frame_7.tif"), np.zeros((ROWS, COLUMNS, 3), "u2"), photometric="rgb")
        self.refused("frame_7.tif: page 1, SamplesPerPixel", reason="UNSUPPORTED_FILE", **good)
        os.remove(self.at("bad", "frame_7.tif"))
        self.refused(f"has {COUNT} values; allowed {COUNT - 1}, one per projection", reason="BAD_PROJECTIONS", **good)
        os.symlink(self.at("bad", "frame_6.tif"), self.at("bad", "frame_7.tif"))
        self.refused("frame_7.tif is a link; allowed regular files", reason="BAD_PROJECTIONS", **good)

    def write(self, name, arrays, chunks, **options):
        """Data Exchange, by a process of its own: it loads the plug-ins."""
        np.savez(self.at("arrays.npz"), **arrays)
        program = ("import sys, h5py, numpy as np\n"
                   f"arrays = np.load({self.at('arrays.npz')!r})\n"
                   f"with h5py.File({self.at(name)!r}, 'w') as file:\n"
                   "    for key in arrays:\n"
                   f"        file.create_dataset('exchange/' + key, data=arrays[key], chunks={chunks!r}, **{options!r})\n"
                   f"    file['exchange/theta'] = np.linspace(0, 180, {COUNT}, endpoint=False)\n")
        subprocess.run([sys.executable, "-c", program], check=True)

    @needs_filters
    def test_hdf5_by_lz4_and_bitshuffle(self):
        for code in TYPES:
            projections, flats, darks = self.scan(code)
            arrays = {"data": projections, "data_white": flats, "data_dark": darks}
            for chunks in ((1, ROWS, COLUMNS), (2, 4, 17)):
                for options in ({"compression": LZ4}, {"compression": LZ4, "compression_opts": (50,)}, {"compression": LZ4, "shuffle": True},
                                {"compression": BITSHUFFLE}, {"compression": BITSHUFFLE, "compression_opts": (0, 2)},
                                {"compression": BITSHUFFLE, "compression_opts": (16, 2)}):
                    with self.subTest(code=code, chunks=chunks, **options):
                        self.write("filter.h5", arrays, chunks, **options)
                        np.testing.assert_array_equal(self.volume(path="filter.h5"), self.wanted[code])
        # As detectors do it: the frames in another file.
        with h5py.File(self.at("master.h5"), "w") as file:
            for name in ("data", "data_white", "data_dark", "theta"):
                file[f"exchange/{name}"] = h5py.ExternalLink("filter.h5", f"/exchange/{name}")
        np.testing.assert_array_equal(self.volume(path="master.h5"), self.wanted["f4"])
        layout = h5py.VirtualLayout((COUNT, ROWS, COLUMNS), "f4")
        layout[:] = h5py.VirtualSource("filter.h5", "exchange/data", (COUNT, ROWS, COLUMNS))
        with h5py.File(self.at("virtual.h5"), "w") as file:
            file.create_virtual_dataset("exchange/data", layout)
            file["exchange/theta"] = np.linspace(0, 180, COUNT, endpoint=False)
        self.refused(f"is a part of a virtual dataset and compressed with filter {BITSHUFFLE}", reason="BAD_PROJECTIONS", path="virtual.h5")

    @needs_filters
    def test_damaged_chunks_fail_the_job(self):
        projections, flats, darks = self.scan("u2")
        for options in ({"compression": LZ4}, {"compression": BITSHUFFLE, "compression_opts": (0, 2)}):
            with self.subTest(**options):
                self.write("damaged.h5", {"data": projections, "data_white": flats, "data_dark": darks}, (1, ROWS, COLUMNS), **options)
                with h5py.File(self.at("damaged.h5")) as file:
                    data = file["exchange/data"].id
                    chunk = next(c for c in map(data.get_chunk_info, range(data.get_num_chunks())) if c.chunk_offset == (COUNT // 2, 0, 0))
                with open(self.at("damaged.h5"), "r+b") as file:
                    file.seek(chunk.byte_offset + 12)
                    file.write(b"\xff\xff\xff\xff")  # the length of its first block
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.client.wait_job(self.client.submit_job(octavo.tomography("damaged.h5")).name)
                self.assertIn("/exchange/data cannot be read at frame", caught.exception.message)
                self.assertIn("a block of 4294967295 bytes", caught.exception.message)


if __name__ == "__main__":
    assert os.path.isdir(BUILD)
    unittest.main()
