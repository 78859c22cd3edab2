"""octavo recon --preview: a corrected projection and a sinogram of each scan, before anything is reconstructed."""

import json
import os
import signal
import subprocess
import unittest

import h5py
import numpy as np
import tifffile

import zarr_writers
from harness import BUILD, DaemonTest, until
from pictures import decode_png

COUNT, ROWS, SIZE = 24, 6, 32
ANGLES = np.linspace(0, np.pi, COUNT, endpoint=False)
FLAGS = ("--angles", f"0:{180 - 180 / COUNT}:{COUNT}")


def scan(dtype, angles=ANGLES, rows=ROWS):
    """Projections, flats and darks: a disc that moves with the rows."""
    noise = np.random.default_rng(11)
    s, row = np.arange(SIZE)[None, None, :] - 15.0, np.arange(rows)[None, :, None]
    shift = s - (2 + row % ROWS) * np.cos(angles)[:, None, None]
    lines = 0.05 * np.sqrt(np.maximum(8.0 ** 2 - shift ** 2, 0))
    data = 100 + 40000 * np.exp(-lines) + noise.normal(0, 30, lines.shape)
    flats = 40100 + noise.normal(0, 30, (4, rows, SIZE)) + 500 * np.sin(s)
    darks = 100 + noise.normal(0, 5, (3, rows, SIZE))
    return [array.astype(dtype) for array in (data, flats, darks)]


def corrected(data, flats, darks, median=False):
    combine = np.median if median else np.mean
    dark, flat = combine(darks.astype(float), axis=0), combine(flats.astype(float), axis=0)
    return (data - dark) / np.maximum(flat - dark, 1e-6)


def window(values):
    """From the percentile 0.2 to 99.8."""
    ordered = np.sort(values.ravel())
    return [ordered[int(np.floor(part * (ordered.size - 1) + 0.5))] for part in (0.002, 0.998)]


class ReconPreview(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root, cls.scan = cls.daemon.root, scan(np.uint16)
        data, flats, darks = cls.scan
        for name in ("a", "b"):
            with h5py.File(cls.at(f"{name}.h5"), "w") as file:
                file["exchange/data"], file["exchange/data_white"], file["exchange/data_dark"] = cls.scan
                file["exchange/theta"] = np.rad2deg(ANGLES)
        for name, array in (("p", data), ("w", flats), ("d", darks)):
            np.save(cls.at(f"{name}.npy"), array)
            os.mkdir(cls.at(name))
            for i, page in enumerate(array):
                tifffile.imwrite(cls.at(name, f"{name}{i}.tif"), page)
        tifffile.imwrite(cls.at("pages.tiff"), data, photometric="minisblack")
        os.makedirs(cls.at("z.zarr", "exchange"))
        for folder in ("z.zarr", "z.zarr/exchange"):
            with open(cls.at(folder, "zarr.json"), "w") as file:
                json.dump({"zarr_format": 3, "node_type": "group", "attributes": {}}, file)
        for name, array in (("data", data), ("data_white", flats), ("data_dark", darks)):
            zarr_writers.write_v3(cls.at("z.zarr", "exchange", name), array, (2, 3, 16))

    @classmethod
    def at(cls, *names):
        return os.path.join(cls.root, *names)

    def here(self, *names):
        return os.path.join(self.daemon.directory, *names)

    def recon(self, *arguments, code=0):
        done = self.command("recon", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def preview(self, *arguments):
        """The objects that --json prints, one a scan. The server keeps nothing."""
        done = self.command("--json", "recon", *arguments, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertEqual(self.client.volumes(), [])
        return [json.loads(line) for line in done.stdout.splitlines()]

    def check(self, told, values, quantity, tolerance=1e-5):
        """A picture against the values that it shows, [row, column] in double precision."""
        self.assertEqual(told["quantity"], quantity)
        black, white = window(values)
        np.testing.assert_allclose([told["black"], told["white"]], [black, white], rtol=tolerance, atol=tolerance)
        with open(told["png"], "rb") as file:
            grey = decode_png(file.read())
        grey = grey[..., 0] if grey.ndim == 3 else grey
        self.assertEqual(grey.shape, values.shape)
        wanted = np.clip(255 * (values - told["black"]) / (told["white"] - told["black"]), 0, 255)
        np.testing.assert_allclose(grey.astype(float), wanted, atol=0.5 + 255 * 10 * tolerance / (white - black))

    def test_every_kind_of_input(self):
        data = corrected(*self.scan)
        fields = {"npy": ("--flats", "w.npy", "--darks", "d.npy"), "tiff": ("--flats", "w", "--darks", "d")}
        for file, name, more in (("a.h5", "a", ()), ("p.npy", "p", FLAGS + fields["npy"]), ("p", "p", FLAGS + fields["tiff"]),
                                 ("pages.tiff", "pages", FLAGS + fields["tiff"]), ("z.zarr", "z", FLAGS)):
            with self.subTest(file=file):
                folder = self.here("kinds", file)
                (told,) = self.preview(file, *more, "--preview", folder)
                self.assertEqual(told["projection"]["png"], os.path.join(folder, f"{name}_projection.png"))
                self.assertEqual(told["sinogram"]["png"], os.path.join(folder, f"{name}_sinogram.png"))
                self.assertEqual((told["scan"], told["projection"]["index"], told["sinogram"]["row"], told["sinogram"]["angles"]), (file, 0, ROWS // 2, COUNT))
                self.check(told["projection"], data[0], "transmission")
                self.check(told["sinogram"], -np.log(data[:, ROWS // 2]), "line integral")
        # Sinograms that Octavo committed.
        for name in ("s.npy", "s.zarr", "s.h5", "s.tiff"):
            with self.subTest(file=name):
                self.recon("a.h5", "--prepare-only", "-o", name)
                (told,) = self.preview(name, "--sinograms", *FLAGS, "--preview", self.here("committed", name), "--preview-projection", "5", "--preview-row", "1")
                self.check(told["projection"], -np.log(data[5]), "line integral")
                self.check(told["sinogram"], -np.log(data[:, 1]), "line integral")

    def test_rows_projections_and_types(self):
        folder = self.here("chosen")
        for dtype in (np.uint8, np.int16, np.float32):
            parts = [np.round(part / (200 if dtype == np.uint8 else 2)).astype(dtype) for part in self.scan]
            with h5py.File(self.at("typed.h5"), "w") as file:
                file["exchange/data"], file["exchange/data_white"], file["exchange/data_dark"] = parts
                file["exchange/theta"] = np.rad2deg(ANGLES)
            data = corrected(*parts)
            with self.subTest(dtype=dtype):
                (told,) = self.preview("typed.h5", "--preview", folder, "--preview-row", "0", "--preview-projection", str(COUNT - 1))
                self.check(told["projection"], data[COUNT - 1], "transmission")
                self.check(told["sinogram"], -np.log(np.maximum(data[:, 0], 1e-6)), "line integral")
        data = corrected(*self.scan)
        # Ranges are those of the run; rows and projections count in the whole scan.
        (told,) = self.preview("a.h5", "--preview", folder, "--rows", "1:5", "--columns", "4:30", "--projections", "2:20:3", "--no-log")
        self.assertEqual((told["projection"]["index"], told["sinogram"]["row"]), (2, 3))
        self.check(told["projection"], data[2, 1:5, 4:30], "transmission")
        self.check(told["sinogram"], data[2:20:3, 3, 4:30], "transmission")
        (told,) = self.preview("a.h5", "--preview", folder, "--rows", "1:6:2", "--preview-row", "4")
        self.check(told["projection"], data[0, 1:6:2], "transmission")
        self.check(told["sinogram"], -np.log(data[:, 4]), "line integral")
        # A row of binned ones.
        out = self.recon("a.h5", "--preview", folder, "--bin", "2", "--preview-row", "5").stdout
        self.assertIn("sinogram of row 4 to 5, 24 angles of 16 columns", out)
        self.assertIn("3 rows of 16 columns", out)
        # Steps of the preparation that need other projections are for the sinogram alone.
        (told,) = self.preview("a.h5", "--preview", folder, "--median", "--rings", "sorting", "--beam-hardening", "1,0.1")
        self.check(told["projection"], corrected(*self.scan, median=True)[0], "transmission")
        self.assertNotEqual(window(-np.log(data[:, 3])), [told["sinogram"]["black"], told["sinogram"]["white"]])
        # The whole turn, as it is and stitched.
        turn = ("a.h5", "--angles", f"0:{360 - 360 / COUNT}:{COUNT}", "--preview", folder, "--stitch-left")
        out = self.recon(*turn).stdout
        self.assertIn("24 angles of 32 columns, not stitched (--overlap is not given)", out)
        self.assertIn("12 angles of 54 columns; line integral", self.recon(*turn, "--overlap", "10").stdout)

    def test_half_turns_and_drift(self):
        """Neither can be found in one projection, nor the half turn in one row."""
        rows, angles, folder = 20, np.linspace(0, 2 * np.pi, 2 * COUNT, endpoint=False), self.here("turns")
        parts = scan(np.uint16, angles, rows)
        with h5py.File(self.at("turn.h5"), "w") as file:
            file["exchange/data"], file["exchange/data_white"], file["exchange/data_dark"] = parts
            file["exchange/theta"] = np.rad2deg(angles)
        data = corrected(*parts)
        for half in ("all", "first", "second", "best"):
            for more, used in (((), range(2 * COUNT)), (("--projections", "0:48:2"), range(0, 2 * COUNT, 2))):
                with self.subTest(half=half, more=more):
                    (told,) = self.preview("turn.h5", "--half-turn", half, *more, "--preview", folder, "--preview-projection", "30", "--preview-row", "7")
                    self.check(told["projection"], data[30], "transmission")
                    self.check(told["sinogram"], -np.log(data[used, 7]), "line integral")
        out = self.recon("turn.h5", "--half-turn", "best", "--center", "15", "--preview", folder, "-o", "half.npy").stdout
        self.assertIn("48 angles of 32 columns, of the whole scan (--half-turn is of the run); line integral", out)
        self.assertTrue(os.path.exists(self.at("half.npy")))
        self.assertNotIn("--half-turn", self.recon("turn.h5", "--preview", folder).stdout)
        # The sinogram is that of the run, with the shifts that it finds.
        self.recon("turn.h5", "--row-drift", "--most-row-drift", "3", "--prepare-only", "-o", "drift.npy")
        (told,) = self.preview("turn.h5", "--row-drift", "--most-row-drift", "3", "--preview", folder, "--preview-row", "9")
        self.check(told["projection"], data[0], "transmission")
        self.check(told["sinogram"], np.load(self.at("drift.npy"))[9].astype(float), "line integral")
        self.recon("turn.h5", "--row-drift", "--half-turn", "second", "--center", "15", "--preview", folder, "-o", "both.npy")
        self.assertTrue(os.path.exists(self.at("both.npy")))

    def test_the_run_follows(self):
        folder = self.here("before")
        done = self.recon("a.h5", "--center", "15", "--preview", folder, "-o", "after.npy")
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"a_projection\.png  projection 0, 6 rows of 32 columns; transmission, black 0\.\d+, white [01]\.\d+$")
        self.assertRegex(lines[1], r"a_sinogram\.png  sinogram of row 3, 24 angles of 32 columns; line integral, black -?0\.\d+, white 0\.\d+$")
        self.assertTrue(lines[-1].endswith("after.npy") or "after.npy" in done.stdout)
        self.assertTrue(os.path.exists(self.at("after.npy")))
        # Pictures alone: without a place of the result, or if nothing else is wanted.
        jobs = len(self.client.jobs())
        done = self.recon("a.h5", "--center", "15", "--preview", folder)
        self.assertIn("pictures alone: with -o", done.stderr)
        done = self.recon("a.h5", "b.h5", "--preview", folder, "--preview-only", "--output-dir", "never")
        self.assertNotIn("pictures alone", done.stderr)
        self.assertEqual(len(self.client.jobs()), jobs + 6)  # two a scan
        self.assertFalse(os.path.exists(self.at("never")))
        self.assertEqual([line.split("  ")[0] for line in done.stdout.splitlines()],
                         [os.path.join(folder, f"{name}_{kind}.png") for name in "ab" for kind in ("projection", "sinogram")])
        # Several scans: one without pictures does not keep the others from theirs, nor from their results.
        done = self.recon("a.h5", "none.h5", "b.h5", "--center", "15", "--preview", folder, "--output-dir", "several", "--format", "npy", code=1)
        self.assertIn("octavo: none.h5:\n", done.stderr)
        self.assertEqual(done.stdout.count(".png  "), 4)
        self.assertEqual(sorted(name for name in os.listdir(self.at("several")) if name.endswith(".npy")), ["a.npy", "b.npy"])
        done = self.recon("none.h5", "b.h5", "--preview", folder, "--output-dir", "stopped", "--stop-on-error", code=1)
        self.assertFalse(os.path.exists(self.at("stopped")))
        self.assertEqual(done.stdout, "")

    def test_mistakes(self):
        folder, taken = self.here("mistakes"), self.here("taken")
        open(taken, "w").close()
        os.makedirs(self.here("block", "a_sinogram.png"))
        for flags, code, words in ((("--preview-row", "1"), 2, "--preview-row requires --preview"), (("--preview-projection", "1"), 2, "requires --preview"),
                                   (("--preview", ""), 2, "--preview: is empty; allowed is a folder"),
                                   (("b.h5", "--preview", ""), 2, "--preview: is empty; allowed is a folder"),
                                   (("--preview-only",), 2, "--preview-only requires --preview"), (("--preview", folder, "--plan"), 2, "excludes"),
                                   (("--preview", taken), 2, f"--preview: is '{taken}', which cannot be a folder here: "),
                                   (("--preview", os.path.join(taken, "x")), 2, "which cannot be a folder here: Not a directory"),
                                   (("--preview", self.here("block")), 2, "a_sinogram.png', which cannot be written here: Is a directory"),
                                   (("--preview", folder, "--preview-row", "6"), 2, "--preview-row: is 6; allowed 0 to 5, rows of the detector"),
                                   (("--preview", folder, "--rows", "2:4", "--preview-row", "1"), 2, "--preview-row: is 1; allowed 2 to 3"),
                                   (("--preview", folder, "--preview-row", "-1"), 2, "--preview-row"),
                                   (("--preview", folder, "--preview-projection", "24"), 1, "is 24; allowed 0 to 23 [BAD_FIELD] (--projections)\n  of --preview-projection 24\n"),
                                   (("--preview", folder, "-o", "x.nothing"), 2, "--output")):
            with self.subTest(flags=flags):
                self.assertIn(words, self.recon("a.h5", *flags, code=code).stderr)
        until(lambda: not self.client.volumes())  # the end of a run's session discards what it has left
        self.assertFalse(os.path.exists(folder))
        # Folders that it made go again, with those above them; others stay.
        os.mkdir(self.here("stays"))
        for deep in (self.here("stays", "x", "y"), self.here("stays", "x", "y", ""), self.here("stays")):
            self.recon("none.h5", "--preview", deep, code=1)
            self.assertEqual(os.listdir(self.here("stays")), [])
        self.assertIn("no file 'none.h5'", self.recon("none.h5", "--preview", folder, code=1).stderr)
        os.symlink(self.here("gone"), self.here("dangling"))
        self.assertIn("which cannot be a folder here", self.recon("a.h5", "--preview", self.here("dangling"), code=2).stderr)
        self.assertTrue(os.path.islink(self.here("dangling")))
        # Names of what will be written: pictures, results, or both.
        os.mkdir(self.at("x"))
        scans = ("a.h5", "x/a.h5")
        both = f"'a.h5' and 'x/a.h5' would both be written to "
        for flags, place in ((("--preview", folder), f"'{folder}/a_projection.png'; give each a call with its own --preview folder"),
                             (("--preview", folder, "--preview-only", "--output-dir", "r"), f"'{folder}/a_projection.png'"),
                             (("--preview", folder, "--output-dir", "r"), "'r/a.zarr'; give each a call with its own --output-dir"), ((), "'a.zarr'")):
            with self.subTest(flags=flags):
                self.assertIn(both + place, self.recon(*scans, *flags, code=2).stderr)
        self.assertIn("without flat fields", self.recon("p.npy", *FLAGS, "--preview", folder, code=1).stderr)

    def test_an_interrupt_leaves_nothing(self):
        np.save(self.at("wide.npy"), np.ones((60, 64, 256), np.float32))
        process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "recon", "wide.npy", "--transmissions", "--angles", "0:177:60",
                                    "--algorithm", "sirt", "--iterations", "100000", "--preview", self.here("cut"), "-o", "cut.npy"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        until(lambda: os.path.exists(self.here("cut", "wide_sinogram.png")))
        until(lambda: any(job.state == 2 for job in self.client.jobs()))
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual(self.client.volumes(), [])
        self.assertFalse(os.path.exists(self.at("cut.npy")))


if __name__ == "__main__":
    unittest.main()
