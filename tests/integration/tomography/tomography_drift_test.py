"""A stage that moves along the rotation axis: shifts that are found and undone, given ones, and what is refused."""

import os
import unittest
import warnings

import grpc
import numpy as np

from harness import DaemonTest, octavo

ROWS, COLUMNS, COUNT, AXIS = 64, 80, 90, 39.5
ANGLES = np.linspace(0, np.pi, COUNT, endpoint=False)
SHIFTS = np.linspace(-2.6, 2.2, COUNT) + 0.3 * np.sin(np.arange(COUNT))
SHIFTS -= SHIFTS.mean()
FIELD = "tomography.preparation."


def line_integrals(shifts, wide=False):
    """Exact projections [angle, row, column] of ellipsoids without edges, each moved along the axis; wide: one reaches beside the detector."""
    row, column = np.meshgrid(np.arange(ROWS) - (ROWS - 1) / 2, np.arange(COLUMNS) - AXIS, indexing="ij")
    ellipsoids = [(0, 0, 0, 26, 22, 24, 0.02), (10, -6, -9, 6, 7, 6, 0.04), (-12, 5, 8, 5, 5, 7, 0.03), (4, 9, 2, 5, 5, 4, -0.02)]
    if wide:
        ellipsoids.append((70, 10, -5, 45, 20, 12, 0.05))
    out = np.zeros((COUNT, ROWS, COLUMNS))
    for x, y, z, a, b, c, value in ellipsoids:
        for i, (angle, shift) in enumerate(zip(ANGLES, shifts)):
            reach = (a * np.cos(angle)) ** 2 + (b * np.sin(angle)) ** 2
            off = column - (x * np.cos(angle) - y * np.sin(angle))
            out[i] += 4 / 3 * value * a * b * np.maximum(0, 1 - ((row - shift - z) / c) ** 2 - off ** 2 / reach) ** 1.5 / np.sqrt(reach)
    return out


class TomographyDrift(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(3)
        cls.exact = line_integrals(np.zeros(COUNT)).transpose(1, 0, 2)  # [row, angle, column]

        def save(name, values):
            np.save(os.path.join(cls.daemon.root, name + ".npy"), np.exp(-values - rng.normal(0, 0.002, values.shape)).astype(np.float32))

        save("still", line_integrals(np.zeros(COUNT)))
        save("moving", line_integrals(SHIFTS))
        save("far", line_integrals(4 * SHIFTS))
        save("wide", line_integrals(SHIFTS, wide=True))
        save("alike", np.repeat(line_integrals(np.zeros(COUNT))[:, ROWS // 2:ROWS // 2 + 1], ROWS, axis=1))
        save("few", line_integrals(np.zeros(COUNT))[:, :15])

    def work(self, name, prepare=None, make=octavo.sinograms, **fields):
        return make(name + ".npy", angles=ANGLES, prepare=octavo.preparation(ignore_fields=True, **prepare or {}), **fields)

    def made(self, *args, **fields):
        with warnings.catch_warnings():  # of the job
            warnings.simplefilter("ignore", octavo.OctavoWarning)
            job = self.client.wait_job(self.client.submit_job(self.work(*args, **fields)).name)
        values = self.client.read(job.volume_names[0])
        self.client.discard(job.volume_names[0])
        return job, values

    def off(self, values, rows=slice(6, ROWS - 6)):
        return np.sqrt(np.mean((values - self.exact)[rows] ** 2))

    def test_shifts_are_found_and_undone(self):
        usual = self.off(self.made("moving")[1])
        job, values = self.made("moving", dict(row_drift=True))
        report = job.tomography
        np.testing.assert_allclose(report.row_shifts, SHIFTS, atol=0.03)
        self.assertLess(report.row_shift_uncertainty, 0.03)
        self.assertFalse(job.warnings)
        self.assertLess(self.off(values), 0.1 * usual)
        self.assertLess(self.off(values), 1.1 * self.off(self.made("still")[1]))
        self.assertTrue(any("shifts along the rotation axis: -2." in line.text for line in job.log_lines), job.log_lines)
        self.assertIn("are found, up to 5 rows", job.plan)
        # A scan that does not move stays as it is, but for the interpolation by a few thousandths of a row.
        job, values = self.made("still", dict(row_drift=True))
        self.assertLess(np.abs(report.row_shifts - SHIFTS).max(), 0.03)
        self.assertLess(np.abs(job.tomography.row_shifts).max(), 0.03)
        self.assertLess(self.off(values), 1.01 * self.off(self.made("still")[1]))

    def test_slices(self):
        def slices(name, **prepare):
            return self.made(name, prepare, octavo.tomography, center=AXIS, filter="hann")[1][8:-8]

        still = slices("still")
        usual, undone = slices("moving") - still, slices("moving", row_drift=True) - still
        self.assertLess(np.sqrt(np.mean(undone ** 2)), 0.45 * np.sqrt(np.mean(usual ** 2)))  # the noise of two scans is in both

    def test_given_shifts_and_any_rows_batches_and_projections(self):
        job, found = self.made("moving", dict(row_drift=True))
        shifts = job.tomography.row_shifts
        given, values = self.made("moving", dict(row_shifts=shifts))
        np.testing.assert_array_equal(values, found)
        np.testing.assert_array_equal(given.tomography.row_shifts, shifts)
        self.assertTrue(np.isnan(given.tomography.row_shift_uncertainty))
        self.assertIn("rows, as given", given.plan)
        for prepare in (dict(row_drift=True), dict(row_shifts=shifts)):
            np.testing.assert_array_equal(self.made("moving", prepare, batch=5)[1], found)
            np.testing.assert_array_equal(self.made("moving", prepare, rows=(20, 23))[1], found[20:23])
        np.testing.assert_array_equal(self.made("moving", dict(row_shifts=shifts), projections=(3, 60, 2))[1], found[:, 3:60:2])
        np.testing.assert_allclose(self.made("moving", dict(row_drift=True, bin_rows=2))[1], (found[::2] + found[1::2]) / 2, atol=0.01)
        # Whole rows are moved as they are, and the outermost one goes on.
        usual = self.made("moving")[1]
        moved = self.made("moving", dict(row_shifts=np.full(COUNT, 3.0)))[1]
        np.testing.assert_array_equal(moved[:-3], usual[3:])
        np.testing.assert_array_equal(moved[-3:], np.repeat(usual[-1:], 3, axis=0))
        # With a roll, rows are those of the turned projections.
        turned, both = (self.made("moving", dict(roll_degrees=1, row_shifts=s))[1] for s in ((), np.full(COUNT, 2.0)))
        np.testing.assert_allclose(both[10:-10], turned[12:-8], atol=1e-5)
        # Iterations first look at some of the projections.
        job, _ = self.made("moving", dict(row_drift=True), octavo.tomography, algorithm="sirt", iterations=20, center=AXIS, rows=(30, 32))
        usual, _ = self.made("moving", None, octavo.tomography, algorithm="sirt", iterations=20, center=AXIS, rows=(30, 32))
        self.assertLess(job.tomography.relative_residual, usual.tomography.relative_residual)

    def test_a_search_of_the_axis_and_a_series(self):
        job, _ = self.made("moving", dict(row_drift=True), octavo.tomography, center="auto")
        self.assertLess(abs(job.tomography.centers[0] - AXIS), 0.4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)
            series = self.client.wait_job(self.client.submit_job(self.work("moving", dict(row_drift=True), octavo.tomography, center=AXIS, series=45)).name)
        self.assertEqual(len(series.volume_names), 2)
        half = SHIFTS[45:] - SHIFTS[:45].mean()  # as the first volume lies, so that both lie on each other
        np.testing.assert_allclose(series.tomography.row_shifts, half, atol=0.05)

    def test_doubts(self):
        job, _ = self.made("far", dict(row_drift=True))
        self.assertTrue(any("by 5 rows, the most that is looked for" in warning for warning in job.warnings), job.warnings)
        job, values = self.made("far", dict(row_drift=12))
        np.testing.assert_allclose(job.tomography.row_shifts, 4 * SHIFTS, atol=0.1)
        job, values = self.made("alike", dict(row_drift=True))
        self.assertTrue(any("do not tell how far they are shifted" in warning for warning in job.warnings), job.warnings)
        self.assertFalse(np.any(job.tomography.row_shifts))
        np.testing.assert_array_equal(values, self.made("alike")[1])
        job, _ = self.made("wide", dict(row_drift=True))
        self.assertTrue(any("beside the detector" in warning for warning in job.warnings), job.warnings)

    def test_pushed_frames(self):
        moving = np.load(os.path.join(self.daemon.root, "moving.npy"))
        spec = octavo.PushedProjections(rows=ROWS, columns=COLUMNS, frames=COUNT, dtype="f32")
        job = self.client.submit_job(octavo.sinograms(spec, prepare=octavo.preparation(ignore_fields=True, row_drift=True)))
        self.client.push_projections(job, octavo.projection_frames(moving, ANGLES))
        job = self.client.wait_job(job.name)
        np.testing.assert_array_equal(self.client.read(job.volume_names[0]), self.made("moving", dict(row_drift=True))[1])
        with self.assertRaisesRegex(octavo.OctavoError, "row_shifts: is given with push"):
            self.client.plan_job(octavo.sinograms(spec, prepare=octavo.preparation(ignore_fields=True, row_shifts=SHIFTS)))

    def test_what_is_refused(self):
        for name, text, prepare, fields in (("moving", "row_drift: is given with row_shifts", dict(row_drift=True, row_shifts=SHIFTS), {}),
                                            ("moving", "row_drift: is given with logarithm = false", dict(row_drift=True, logarithm=False), {}),
                                            ("moving", "row_drift.most_rows: is 65", dict(row_drift=dict(most_rows=65)), {}),
                                            ("moving", "row_drift.most_rows: is -1", dict(row_drift=dict(most_rows=-1)), {}),
                                            ("moving", "row_drift.most_rows: is nan", dict(row_drift=dict(most_rows=np.nan)), {}),
                                            ("moving", "bin_angles: is 2 with shifts of rows", dict(row_drift=True, bin_angles=2), {}),
                                            ("moving", "row_shifts: has 89 values; allowed one per projection of the input (90)", dict(row_shifts=SHIFTS[1:]), {}),
                                            ("moving", "row_shifts[2]: is 64.5; allowed are -64 to 64", dict(row_shifts=[0, 0, 64.5] + [0] * 87), {}),
                                            ("moving", "row_shifts[0]: is nan", dict(row_shifts=[np.nan] * 90), {}),
                                            ("few", "row_drift: is given with a detector of 15 rows; allowed from 16", dict(row_drift=True), {}),
                                            ("moving", "tomography.rows.step: is 2", dict(row_drift=True), dict(rows=(0, 40, 2)))):
            with self.subTest(text=text):
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.client.plan_job(self.work(name, prepare, **fields))
                self.assertEqual(caught.exception.code, grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn(text, str(caught.exception))
        # A shift by all rows leaves none that was measured.
        for shift in (15, -15, 40.5):
            shifts = np.zeros(COUNT)
            shifts[7] = shift
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.plan_job(self.work("few", dict(row_shifts=shifts)))
            self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "tomography.preparation.row_shifts[7]"))
            self.assertIn(f"row_shifts[7]: is {shift:g}; allowed above -15 and below 15, the rows of the detector", str(caught.exception))
            self.client.plan_job(self.work("few", dict(row_shifts=shifts), projections=(8, COUNT)))  # it is not used
            self.client.plan_job(self.work("few", dict(row_shifts=np.sign(shifts) * 14.5)))
        for wrong in (0, 65, -1.5):
            with self.assertRaisesRegex(ValueError, "row_drift"):
                octavo.preparation(row_drift=wrong)

    def test_the_command(self):
        scan = ("recon", "moving.npy", "--transmissions", "--angles", "0:178:90", "--center", str(AXIS))
        self.assertIn("are found, up to 5 rows", self.command(*scan, "--row-drift", "--plan").stdout)
        self.assertIn("are found, up to 3.5 rows", self.command(*scan, "--row-drift", "--most-row-drift", "3.5", "--plan").stdout)
        done = self.command(*scan, "--row-drift", "--rows", "30:32", "--png", os.path.join(self.daemon.directory, "x.png"))
        self.assertRegex(done.stdout, r"shifts along the axis -2\.[0-9]+ to 2\.[0-9]+ rows")
        for flags, text in ((("--most-row-drift", "2"), "--most-row-drift requires --row-drift"),
                            (("--row-drift", "--most-row-drift", "70"), "row_drift.most_rows: is 70")):
            done = self.command(*scan, *flags, "--plan", check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
