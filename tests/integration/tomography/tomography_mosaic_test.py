"""Mosaics of projections through Python and the command line: tiles of a wide scan give what the whole scan gives, positions are found, and
what does not fit together is refused."""

import os
import unittest

import h5py
import numpy as np

from harness import DaemonTest, octavo

ROWS, COLUMNS, COUNT, AXIS = 48, 180, 90, 88.3


def line_integrals(angles, rng):
    """Projections [angle, row, column] of balls in a cylinder."""
    row, column = np.meshgrid(np.arange(ROWS), np.arange(COLUMNS) - AXIS, indexing="ij")
    out = np.broadcast_to(0.008 * np.sqrt(np.maximum(0, 80 ** 2 - column ** 2)), (len(angles), ROWS, COLUMNS)).copy()
    for _ in range(70):
        radius, turn, z, size = 76 * np.sqrt(rng.uniform()), rng.uniform(0, 2 * np.pi), rng.uniform(-2, ROWS + 2), rng.uniform(1.5, 5)
        for i, angle in enumerate(angles):
            off = column - radius * np.cos(turn - angle)
            out[i] += 0.04 * np.sqrt(np.maximum(0, size ** 2 - off ** 2 - (row - z) ** 2))
    return out


class TomographyMosaic(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rng = np.random.default_rng(5)
        cls.angles = np.linspace(0, np.pi, COUNT, endpoint=False)
        cls.integrals = line_integrals(cls.angles, cls.rng)
        cls.write(cls, "whole.h5", 0, 0, COLUMNS, ROWS, 1.0)
        cls.write(cls, "left.h5", 0, 0, 120, ROWS, 0.8)
        cls.write(cls, "right.h5", 76, 0, 104, ROWS, 1.1)
        for name, column, row, columns, rows, gain in (("a.h5", 0, 0, 96, 28, 0.7), ("b.h5", 80, 0, 100, 28, 0.9),
                                                       ("c.h5", 0, 20, 96, 28, 1.0), ("d.h5", 80, 20, 100, 28, 1.2)):
            cls.write(cls, name, column, row, columns, rows, gain)
        cls.whole = cls.make(cls, "whole.h5")[1]

    def write(self, name, column, row, columns, rows, gain, angles=None, exposure=1):
        """A Data Exchange file of a part of the scan, with fields of its own, and noise of counting."""
        rng, part = self.rng, (slice(row, row + rows), slice(column, column + columns))
        open_beam = gain * 40000 * rng.uniform(0.8, 1, (rows, columns))
        counts = exposure * open_beam * np.exp(-self.integrals[(slice(None), *part)])
        with h5py.File(os.path.join(self.daemon.root, name), "w") as file:
            noisy = lambda values: np.round(200 + values + np.sqrt(values) * rng.normal(size=values.shape)).astype(np.uint16)
            file["exchange/data"] = noisy(counts)
            file["exchange/data_white"] = noisy(np.broadcast_to(open_beam, (20, rows, columns)))
            file["exchange/data_dark"] = np.full((3, rows, columns), 200, np.uint16)
            file["exchange/theta"] = np.degrees(self.angles if angles is None else angles)

    def make(self, given, **fields):
        fields = {"center": AXIS, "algorithm": "fbp", "filter": "hann", **fields}
        job = self.client.wait_job(self.client.submit_job(octavo.tomography(given, **fields)).name)
        values = self.client.read(job.volume_names[0])
        self.client.discard(job.volume_names[0])
        return job, values

    def psnr(self, values):
        self.assertEqual(values.shape, self.whole.shape)
        return 10 * np.log10(self.whole.max() ** 2 / np.mean((values - self.whole) ** 2))

    def test_tiles_give_what_the_whole_scan_gives(self):
        two = octavo.ProjectionMosaic([("left.h5", 0), ("right.h5", 76)])
        four = octavo.ProjectionMosaic([dict(file="d.h5", first_column=180, first_row=-30), ("a.h5", 100, -50), (dict(path="c.h5"), 100, -30), ("b.h5", 180, -50)])
        again = self.make("whole.h5")[1]
        np.testing.assert_array_equal(again, self.whole)
        for mosaic in (two, four):
            job, values = self.make(mosaic)
            # As far from the whole scan as another scan of it with other noise.
            self.assertGreater(self.psnr(values), 26)
            self.assertFalse(list(job.warnings))
            self.assertEqual(len(job.tomography.mosaic_tiles), len(mosaic.tiles))
        report = [(tile.first_column, tile.first_row, tile.found) for tile in job.tomography.mosaic_tiles]
        self.assertEqual(report, [(80, 20, False), (0, 0, False), (0, 20, False), (80, 0, False)])
        self.assertTrue(all(np.isnan(tile.correlation) for tile in job.tomography.mosaic_tiles))
        # A wrong place shows.
        job, wrong = self.make(octavo.ProjectionMosaic([("left.h5", 0), ("right.h5", 70)]))
        self.assertEqual(wrong.shape[2], COLUMNS - 6)
        self.warned(job, "Tiles 0 and 1 of the mosaic do not show the same where they overlap")

    def warned(self, job, *texts):
        warnings = list(job.warnings)
        for text in texts:
            self.assertTrue(any(text in warning for warning in warnings), (text, warnings, [line.text for line in job.log_lines if "overlap" in line.text]))

    def test_tiles_that_do_not_fit_are_told(self):
        differ = "Tiles 0 and 1 of the mosaic do not show the same where they overlap"
        self.write("dim.h5", 76, 0, 104, ROWS, 1.0, exposure=0.5)
        self.write("fainter.h5", 76, 0, 104, ROWS, 1.0, exposure=0.9)
        for tiles, texts in (([("right.h5", 0), ("left.h5", 76)], (differ, "--tile-search")),  # the other way round
                             ([("left.h5", 0), ("right.h5", 76, 4)], (differ,)),
                             ([("left.h5", 0), ("right.h5", 0.076)], (differ, "lie at the same place: 0.076 columns and 0 rows apart")),
                             ([("left.h5", 0), ("left.h5", 76)], (differ, "are the same file, 'left.h5'")),
                             ([("left.h5", 0), ("dim.h5", 76)], ("Tile 0 of the mosaic has 2.0",))):
            self.warned(self.make(octavo.ProjectionMosaic(tiles))[0], *texts)
        self.assertFalse(list(self.make(octavo.ProjectionMosaic([("left.h5", 0), ("fainter.h5", 76)]))[0].warnings))
        # The search does not go as far.
        job = self.make(octavo.ProjectionMosaic([("left.h5", 0), ("right.h5", 96)], search=4))[0]
        self.warned(job, differ, "Their positions to each other are taken as given")
        self.assertFalse(any(tile.found for tile in job.tomography.mosaic_tiles))

    def test_few_rows(self):
        """Tiles a few rows high, of which one lies two rows further down."""
        for name, column, row in (("low_1.h5", 0, 3), ("low_2.h5", 50, 5), ("low_3.h5", 84, 3)):
            self.write(name, column, row, 96, 14, 1.0)
        job = self.make(octavo.ProjectionMosaic([("low_1.h5", 0), ("low_2.h5", 47), ("low_3.h5", 84)], search=6))[0]
        self.assertFalse(list(job.warnings))
        tiles = job.tomography.mosaic_tiles
        for tile, column, row in ((tiles[1], 50, 2), (tiles[2], 84, 0)):
            self.assertAlmostEqual(tile.first_column - tiles[0].first_column, column, delta=0.2)
            self.assertAlmostEqual(tile.first_row - tiles[0].first_row, row, delta=0.2)
            self.assertTrue(tile.found)

    def test_places_are_found(self):
        job, values = self.make(octavo.ProjectionMosaic([("left.h5", 0, 0), ("right.h5", 79, 0)], search=8))
        tiles = job.tomography.mosaic_tiles
        self.assertAlmostEqual(tiles[1].first_column - tiles[0].first_column, 76, delta=0.1)
        self.assertAlmostEqual(tiles[1].first_row - tiles[0].first_row, 0, delta=0.1)
        self.assertTrue(tiles[0].found and tiles[1].found)
        self.assertGreater(tiles[0].correlation, 0.5)
        self.assertTrue(any("lies at column 7" in line.text for line in job.log_lines), job.log_lines)
        if values.shape == self.whole.shape:
            self.assertGreater(self.psnr(values), 25)
        # Steps of the joined detector: the axis is found on it.
        job = self.make(octavo.ProjectionMosaic([("left.h5", 0), ("right.h5", 76)]), center="auto")[0]
        self.assertAlmostEqual(job.tomography.centers[0], AXIS, delta=0.2)

    def refused(self, given, field, text, **fields):
        with self.assertRaises(octavo.OctavoError) as raised:
            self.client.submit_job(octavo.tomography(given, center=AXIS, **fields))
        self.assertEqual(raised.exception.field, field)
        self.assertIn(text, str(raised.exception))

    def test_what_does_not_fit_is_refused(self):
        mosaic = octavo.ProjectionMosaic
        pair = [("left.h5", 0), ("right.h5", 76)]
        self.refused(mosaic(pair[:1]), "tomography.mosaic.tiles", "has 1 tile; allowed 2 to 64")
        self.refused(mosaic([]), "tomography.mosaic.tiles", "has 0 tiles")
        self.refused(mosaic([("left.h5", i) for i in range(65)]), "tomography.mosaic.tiles", "64")
        self.refused(mosaic([("left.h5", 0), ("right.h5", 124)]), "tomography.mosaic.tiles[1]", "no tile covers columns 120 to 123 of rows 0 to 47")
        self.refused(mosaic([("left.h5", 0), ("right.h5", 76, 60)]), "tomography.mosaic.tiles[1]", "no tile covers")
        for value in (float("nan"), float("inf"), 1.1e6):
            self.refused(mosaic([("left.h5", 0), ("right.h5", value)]), "tomography.mosaic.tiles[1].first_column", "allowed -1e+06 to 1e+06")
            self.refused(mosaic([("left.h5", 0, -value), ("right.h5", 0)]), "tomography.mosaic.tiles[0].first_row", "allowed -1e+06 to 1e+06")
        self.refused(mosaic([("left.h5", 0), ("missing.h5", 76)]), "tomography.mosaic.tiles[1].file.path", "missing.h5")
        self.refused(mosaic([("left.h5", 0), ("", 76)]), "tomography.mosaic.tiles[1].file.path", "is empty")
        self.refused(mosaic([("left.h5", 0), ("/etc/passwd", 76)]), "tomography.mosaic.tiles[1].file.path", "/etc/passwd")
        self.write("later.h5", 76, 0, 104, ROWS, 1.0, self.angles + 3e-4)
        self.refused(mosaic([("left.h5", 0), ("later.h5", 76)]), "tomography.mosaic.tiles[1].file.angles", "to within 0.0001 rad")
        self.make(mosaic([("left.h5", 0), ("later.h5", 76)]), angles=self.angles)  # the job's angles are those of all
        for step in (dict(outliers=dict(window=3, difference=10)), dict(flats_in_time=True), dict(dynamic_flats=True), dict(denominator_floor=1e-3),
                     dict(already_sinograms=True)):
            self.refused(mosaic(pair), f"tomography.preparation.{next(iter(step))}", "is given with mosaic", prepare=octavo.preparation(**step))
        raw = octavo.tomography(mosaic(pair), center=AXIS)
        raw.mosaic.search = 513
        with self.assertRaises(octavo.OctavoError) as raised:
            self.client.submit_job(raw)
        self.assertEqual(raised.exception.field, "tomography.mosaic.search")
        with open(os.path.join(self.daemon.root, "right.h5"), "rb") as whole, open(os.path.join(self.daemon.root, "damaged.h5"), "wb") as file:
            file.write(whole.read()[:5000])
        self.refused(mosaic([("left.h5", 0), ("damaged.h5", 76)]), "tomography.mosaic.tiles[1].file.path", "damaged.h5")
        for wrong in ("left.h5", [("left.h5",)], [("left.h5", 0, 0, 0)], [dict(path="left.h5")], [7]):
            with self.assertRaises(ValueError):
                mosaic(wrong)
        with self.assertRaises(ValueError):
            mosaic(pair, search=513)

    def test_command_line(self):
        self.command("recon", "left.h5", "right.h5", "--tile-columns", "0,76", "--center", str(AXIS), "--algorithm", "fbp", "--filter", "hann", "-o", "joined.npy")
        self.assertGreater(self.psnr(np.load(os.path.join(self.daemon.root, "joined.npy"))), 26)
        self.command("recon", "left.h5", "right.h5", "--tile-columns=-3,76", "--tile-rows", "0,1", "--tile-search", "8", "--center", "auto", "--output-dir", "found",
                     "--format", "npy")
        found = np.load(os.path.join(self.daemon.root, "found", "left.npy"))
        self.assertAlmostEqual(found.shape[2], COLUMNS, delta=1)
        for flags, text in ((("--tile-columns", "0"), "2 numbers, one for each scan"), (("--tile-columns", "0,x"), "finite numbers"),
                            (("--tile-search", "5", "--output-dir", "more"), "is of --tile-columns and --tile-rows"),
                            (("--tile-columns", "0,76", "--follow"), "--follow")):
            done = self.command("recon", "left.h5", "right.h5", *flags, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stderr)
        # A pattern stands for tiles, in the order of their names.
        for name, column, columns in (("tile_1.h5", 0, 120), ("tile_2.h5", 76, 104)):
            self.write(name, column, 0, columns, ROWS, 1.0)
        self.command("recon", "tile_?.h5", "--tile-columns", "0,76", "--center", str(AXIS), "--algorithm", "fbp", "--filter", "hann", "-o", "pattern.npy")
        self.assertGreater(self.psnr(np.load(os.path.join(self.daemon.root, "pattern.npy"))), 26)
        done = self.command("recon", "tile_?.h5", "--tile-columns", "0,76,100", check=False)
        self.assertIn("allowed 2 numbers, one for each scan", done.stderr)
        # A result of these tiles is left out, and one of others is not.
        for tiles, code in ((("left.h5", "right.h5"), 0), (("left.h5", "whole.h5"), 1)):
            done = self.command("recon", *tiles, "--tile-columns=-3,76", "--output-dir", "found", "--format", "npy", "--skip-existing", check=False)
            self.assertEqual(done.returncode, code, done.stderr + done.stdout)
            if code:
                self.assertIn("tile 1 of its mosaic was 'right.h5'", done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
