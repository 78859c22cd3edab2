"""Wrong reconstructions without an error: what a given axis, a given overlap, wrong angles and a narrow detector are told, and that sound scans are not
doubted; by Python and the command line."""

import os
import unittest
import warnings

import h5py
import numpy as np

from harness import DaemonTest, octavo

# x, y, radius, attenuation: pixels from the axis.
DISCS = ((3, 2, 43, .01), (15, -12, 12, .012), (-18, 10, 7, .015), (-10, -28, 4, .03), (22, 20, 5, .02))
HALF, FULL = np.arange(120) * 1.5, np.arange(240) * 1.5
TOGETHER = "The projections do not fit together: with the axis at column "


def lines(degrees, columns, axis, rows=6, size=1.0):
    rad = np.deg2rad(degrees)[:, None]
    out = np.zeros((len(degrees), rows, columns))
    for row in range(rows):
        for x, y, radius, value in DISCS + ((-20 + 8 * row, 0, 4, .02),):
            off = np.arange(columns)[None, :] - axis - size * (x * np.cos(rad) - y * np.sin(rad))
            out[:, row] += 2 * value * np.sqrt(np.maximum((size * radius) ** 2 - off ** 2, 0))
    return out


class Doubts(DaemonTest):
    def save(self, name, degrees, columns=127, axis=61.3, told=None, white=20000, size=1.0, order=None):
        """Counts with noise. `told`: the angles in the file; `order`: of the projections."""
        random = np.random.default_rng(len(degrees) + columns)
        made = lines(degrees, columns, axis, size=size)[slice(None) if order is None else order]
        with h5py.File(os.path.join(self.daemon.root, name), "w") as file:
            file["exchange/data"] = (random.poisson(white * np.exp(-made)) + 100).astype("<u2")
            file["exchange/data_white"] = (random.poisson(white, (10, *made.shape[1:])) + 100).astype("<u2")
            file["exchange/data_dark"] = np.full((2, *made.shape[1:]), 100, "<u2")
            file["exchange/theta"] = degrees if told is None else told
            file["exchange/theta"].attrs["units"] = "degrees"
        return name

    def warned(self, name, **fields):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(self.client.wait_job(self.client.submit_job(octavo.tomography(name, **fields)).name).warnings)

    def told(self, name, *words, **fields):
        found = self.warned(name, **fields)
        self.assertEqual(len(found), 1, found)
        for one in words:
            self.assertIn(one, found[0])

    def text(self, *arguments):
        result = self.command("recon", *arguments)
        return result.stdout + result.stderr

    def test_halves_that_are_not_joined(self):
        for axis, right, flag in ((12.3, False, "left"), (66.7, True, "right")):
            name = self.save("side.h5", FULL, 80, axis)
            for algorithm in ("fbp", "fourier", "auto"):
                for center in (axis, "auto"):
                    with self.subTest(flag, algorithm=algorithm, center=center):
                        self.told(name, f"near the {flag} end of the detector", f"preparation.stitching axis_right {str(right).lower()} joins the two halves",
                                  algorithm=algorithm, center=center)
            self.assertIn(f"joins the two halves of the turn. (--stitch-{flag})", self.text(name))
            joins = octavo.preparation(stitching=dict(axis_right=right))
            self.assertEqual(self.warned(name, prepare=joins), [])
            self.assertEqual(self.warned(name, algorithm="sirt", iterations=3, center=axis), [])

    def test_a_given_overlap(self):
        for axis, right, flag in ((12.3, False, "left"), (66.7, True, "right")):
            name = self.save("side.h5", FULL, 80, axis)
            for overlap in (2, 15, 23, 28, 40):
                with self.subTest(flag, overlap=overlap):
                    self.told(name, f"stitching.overlap is given as {overlap:.2f} columns", "they fit best at 25.",
                              prepare=octavo.preparation(stitching=dict(axis_right=right, overlap=overlap)))
            for overlap in (25, 25.6, 26):
                self.assertEqual(self.warned(name, prepare=octavo.preparation(stitching=dict(axis_right=right, overlap=overlap))), [])
            self.assertIn("(--overlap)", self.text(name, f"--stitch-{flag}", "--overlap", "40"))

    def test_an_object_wider_than_the_detector(self):
        name = self.save("local.h5", HALF, 48, 22.8)
        for algorithm in ("fbp", "fourier", "auto"):
            for center in (22.8, "auto"):
                self.told(name, "The object is wider than the detector: 100 %", "reconstruction.extend_edges", algorithm=algorithm, center=center)
                self.assertEqual(self.warned(name, algorithm=algorithm, center=center, extend_edges=True), [])
        self.assertIn("beyond the detector. (--extend-edges)", self.text(name))

    def test_angles_that_do_not_fit(self):
        order = np.random.default_rng(2).permutation(120)
        for name, fields, axis in (("half_as_full.h5", dict(degrees=HALF, told=HALF * 2), 61.3), ("full_as_half.h5", dict(degrees=FULL, told=FULL / 2), 61.3),
                                   ("shuffled.h5", dict(degrees=HALF, order=order), 61.3), ("frozen.h5", dict(degrees=HALF, order=np.zeros(120, int)), 61.3)):
            with self.subTest(name):
                self.told(self.save(name, **fields), TOGETHER + "61.30", "(angles_rad)", "(center.pixels)", center=axis)
        self.save("half.h5", HALF)
        text = self.text("half.h5", "--angles", "0:360:120", "--center", "61.3")
        self.assertIn(TOGETHER, text)
        self.assertIn("--angles", text[text.index(TOGETHER):])

    def test_angles_that_do_not_fit_where_the_axis_is_searched(self):
        """A search finds some axis, and would end with it, or with a word about opposite projections alone."""
        order = np.random.default_rng(2).permutation(120)
        # Of a full turn that is told as a half one, opposite projections are none: no axis fits, and an axis beside the found one fits hardly worse.
        for name, words, fields in (("full_as_half.h5", "is a guess", dict(degrees=FULL, told=FULL / 2)),
                                    ("shuffled.h5", TOGETHER, dict(degrees=HALF, order=order))):
            with self.subTest(name):
                found = [one for one in self.warned(self.save(name, **fields), center="auto") if words in one]
                self.assertEqual(len(found), 1, found)
        self.save("radians.h5", HALF, told=np.deg2rad(HALF))
        for arguments in ((), ("--center", "vo")):
            result = self.command("recon", "radians.h5", *arguments, check=False)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("makes the angles 0 to 3.11541 degrees", result.stderr)
            self.assertIn("These look like radians", result.stderr)
            self.assertIn("--degrees, --radians", result.stderr)
        self.assertIn("these look like radians", self.text("radians.h5", "--center", "61.3"))
        self.assertEqual(self.warned(self.save("sound.h5", HALF), center="auto"), [])
        self.assertEqual(self.warned(self.save("sound.h5", FULL), center="auto"), [])

    def test_values_of_which_none_is_finite(self):
        made = lines(HALF, 127, 61.3)
        path = os.path.join(self.daemon.root, "nan.h5")
        with h5py.File(path, "w") as file:
            file["exchange/data"] = np.full(made.shape, np.nan, np.float32)
            file["exchange/theta"] = HALF
        for arguments in (("--center", "61"), ("--center", "61", "--sinograms"), ("--center", "61", "--no-log", "--rows", "2:4"), ()):
            with self.subTest(arguments):
                result = self.command("recon", "nan.h5", *arguments, check=False)
                self.assertEqual(result.returncode, 1, result.stderr + result.stdout)
                rows = 2 if "--rows" in arguments else 6
                self.assertIn(f"all {120 * rows * 127} values of its projections", result.stderr + result.stdout)
        with h5py.File(path, "a") as file:
            file["exchange/data"][3] = np.exp(-made[3])
        self.assertIn(f"{119 * 6 * 127} values of the input were not finite", self.text("nan.h5", "--center", "61"))

    def test_an_object_in_the_columns_of_air(self):
        self.save("air.h5", HALF)
        self.assertIn("preparation.air_left is 40, and columns 0 to 39 of the detector show no air alone", self.text("air.h5", "--air", "40,4", "--center", "61.3"))
        self.assertNotIn("no air alone", self.text("air.h5", "--air", "4,4", "--center", "61.3"))

    def test_an_axis_in_binned_columns(self):
        name = self.save("half.h5", HALF)
        for bins, given in ((2, 30.4), (4, 15.1), (4, 30.0), (4, 45.0)):
            prepare = octavo.preparation(bin_rows=bins, bin_columns=bins)
            with self.subTest(bins=bins, given=given):
                self.told(name, f"The axis is given as column {given:.2f}; opposite projections find it at 6", center=given, prepare=prepare)
                self.assertEqual(self.warned(name, center=61.3, prepare=prepare), [])

    def test_sound_scans_are_not_doubted(self):
        golden = (np.arange(144) * 180 * 0.618034) % 360
        for count in (20, 60, 400):
            for turn in (180, 360):
                degrees = np.arange(count) * turn / count
                for white in (300, 20000):
                    with self.subTest(count=count, turn=turn, white=white):
                        self.assertEqual(self.warned(self.save("sound.h5", degrees, white=white), center=61.3), [])
        for fields in (dict(degrees=golden), dict(degrees=HALF, size=1.25), dict(degrees=FULL, size=1.25), dict(degrees=np.arange(200) * 1.0),
                       dict(degrees=FULL, columns=160, axis=66.0), dict(degrees=HALF, size=0.3)):
            axis = fields.get("axis", 61.3)
            with self.subTest(**{k: v for k, v in fields.items() if k != "degrees"}):
                self.assertEqual(self.warned(self.save("sound.h5", **fields), center=axis), [])


if __name__ == "__main__":
    unittest.main()
