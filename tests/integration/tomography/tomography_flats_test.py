"""Dynamic flat fields: a beam that moves during the scan, one that stands still, and what is refused."""

import os
import unittest
import warnings

import grpc
import numpy as np

from harness import Daemon, DaemonTest, octavo

ROWS, COLUMNS, COUNT, AXIS, FLATS, LIGHT, DARK = 40, 96, 121, 47.5, 40, 20000.0, 120.0
ANGLES = np.linspace(0, np.pi, COUNT, endpoint=False)


def line_integrals(angles=ANGLES, axis=AXIS, rows=ROWS, columns=COLUMNS):
    """Exact projections [angle, row, column] of three discs."""
    column = np.arange(columns) - axis
    out = np.zeros((len(angles), rows, columns))
    for x, y, radius, value in ((0, 0, 30, 0.02), (12, -6, 7, 0.03), (-11, 9, 5, -0.015)):
        off = column[None, :] - (x * np.cos(angles) - y * np.sin(angles))[:, None]
        out += (2 * value * np.sqrt(np.maximum(0, radius ** 2 - off ** 2)))[:, None, :]
    return out


def beam(down, across, rows=ROWS, columns=COLUMNS):
    """The open beam's counts [row, column], moved by these pixels: uneven stripes along both axes under a wide hump."""
    y, x = np.arange(rows)[:, None] - down, np.arange(columns)[None, :] - across
    stripes = 0.06 * np.sin(0.7 * y) + 0.04 * np.sin(1.3 * y + 0.05 * x) + 0.03 * np.sin(0.45 * x + 0.2 * y) + 0.02 * np.cos(0.9 * x)
    return LIGHT * (1 + stripes) * np.exp(-((x - 45) / 90) ** 2)


class TomographyFlats(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(5)
        cls.exact = line_integrals()

        def save(name, frames):
            np.save(os.path.join(cls.daemon.root, name + ".npy"), frames)

        def shots(places, through):
            return np.stack([rng.poisson(beam(*place) * t) + rng.poisson(DARK, (ROWS, COLUMNS)) for place, t in zip(places, through)]).astype(np.uint16)

        # Flat fields show where the beam may be; during the scan it drifts away from their mean, and trembles.
        fields = np.stack([rng.uniform(-2, 2, FLATS), rng.uniform(-1, 1, FLATS)], axis=1)
        drift = np.stack([np.linspace(-0.5, 1.6, COUNT), np.linspace(0.8, 0, COUNT)], axis=1) + rng.normal(0, 0.25, (COUNT, 2))
        save("flats", shots(fields, [1] * FLATS))
        save("moving", shots(drift, np.exp(-cls.exact)))
        save("still_flats", shots([(0, 0)] * FLATS, [1] * FLATS))
        save("still", shots([(0, 0)] * COUNT, np.exp(-cls.exact)))
        save("darks", shots([(0, 0)] * 5, [0] * 5))
        save("one_flat", shots([(0, 0)], [1]))
        save("far", shots([(0, 0)] * (COUNT - 1) + [(30, 60)], np.exp(-cls.exact)))

    def work(self, name, flats, prepare, make=octavo.sinograms, **fields):
        return make(dict(path=name + ".npy", flats=flats + ".npy", darks="darks.npy"), angles=ANGLES, prepare=prepare, **fields)

    def done(self, work):
        with warnings.catch_warnings():  # of the job
            warnings.simplefilter("ignore", octavo.OctavoWarning)
            return self.client.wait_job(self.client.submit_job(work).name)

    def made(self, *args, **fields):
        job = self.done(self.work(*args, **fields))
        values = self.client.read(job.volume_names[0])
        self.client.discard(job.volume_names[0])
        return job, values

    def errors(self, sinograms):
        """Of [row, angle, column]: of all line integrals, and of their means over the angles, which become rings."""
        off = sinograms - self.exact.transpose(1, 0, 2)
        return np.sqrt(np.mean(off ** 2)), np.sqrt(np.mean(off.mean(axis=1) ** 2))

    def test_a_beam_that_moves(self):
        usual, usual_rings = self.errors(self.made("moving", "flats", octavo.preparation())[1])
        noise, noise_rings = self.errors(self.made("still", "still_flats", octavo.preparation())[1])
        job, values = self.made("moving", "flats", octavo.preparation(dynamic_flats=True))
        every, rings = self.errors(values)
        self.assertGreater(usual, 3 * noise)
        self.assertLess(every, 1.1 * noise)
        self.assertLess(rings, 0.13 * usual_rings)
        self.assertLess(rings, 2 * noise_rings)
        self.assertGreaterEqual(job.tomography.flat_components, 4)
        self.assertTrue(1 < job.tomography.largest_flat_weight < 6, job.tomography.largest_flat_weight)
        self.assertFalse(job.warnings)
        self.assertTrue(any(f"{job.tomography.flat_components} of their components" in line.text for line in job.log_lines), job.log_lines)
        self.assertIn("of each projection by its principal components", job.plan)
        # One component explains a part of the beam.
        job, values = self.made("moving", "flats", octavo.preparation(dynamic_flats=1))
        self.assertEqual(job.tomography.flat_components, 1)
        self.assertTrue(rings < self.errors(values)[1] < usual_rings)

    def test_slices_have_fewer_rings(self):
        def slices(name, flats, prepare=None):
            return self.made(name, flats, prepare, octavo.tomography, center=AXIS, filter="hann")[1].mean(axis=0)

        still = slices("still", "still_flats")
        usual, dynamic = slices("moving", "flats") - still, slices("moving", "flats", octavo.preparation(dynamic_flats=True)) - still
        self.assertLess(np.sqrt(np.mean(dynamic ** 2)), 0.3 * np.sqrt(np.mean(usual ** 2)))

    def test_the_same_for_any_rows_batches_and_projections(self):
        prepare = octavo.preparation(dynamic_flats=3)
        job, all_rows = self.made("moving", "flats", prepare)
        np.testing.assert_array_equal(self.made("moving", "flats", prepare, batch=3)[1], all_rows)
        np.testing.assert_array_equal(self.made("moving", "flats", prepare, rows=(11, 14))[1], all_rows[11:14])
        np.testing.assert_array_equal(self.made("moving", "flats", prepare, projections=(5, 80, 3))[1], all_rows[:, 5:80:3])
        np.testing.assert_array_equal(self.made("moving", "flats", prepare, columns=(20, 60))[1], all_rows[:, :, 20:60])
        # Of a series each volume has its own projections.
        series = self.done(self.work("moving", "flats", prepare, octavo.tomography, center=AXIS, series=60))
        self.assertEqual(len(series.volume_names), 2)
        self.assertEqual(series.tomography.flat_components, 3)
        self.assertLessEqual(series.tomography.largest_flat_weight, job.tomography.largest_flat_weight)
        one = self.made("moving", "flats", prepare, octavo.tomography, center=AXIS, projections=(60, 120))[1]
        np.testing.assert_array_equal(self.client.read(series.volume_names[1]), one)

    def test_iterations_look_at_some_projections_with_their_own_beam(self):
        job, values = self.made("moving", "flats", octavo.preparation(dynamic_flats=True), octavo.tomography, algorithm="sirt", iterations=20, center=AXIS, rows=(18, 20))
        usual = self.made("moving", "flats", None, octavo.tomography, algorithm="sirt", iterations=20, center=AXIS, rows=(18, 20))[0]
        self.assertEqual(values.shape, (2, COLUMNS, COLUMNS))
        self.assertLess(job.tomography.relative_residual, 0.8 * usual.tomography.relative_residual)

    def test_a_beam_that_stands_still(self):
        _, usual = self.made("still", "still_flats", octavo.preparation())
        job, values = self.made("still", "still_flats", octavo.preparation(dynamic_flats=True))
        self.assertLessEqual(job.tomography.flat_components, 1)
        if job.tomography.flat_components == 0:
            self.assertEqual(job.tomography.largest_flat_weight, 0)
            np.testing.assert_array_equal(values, usual)
            self.assertTrue(any("do not differ by more than their noise" in warning for warning in job.warnings), job.warnings)
        # Components of noise alone change values by a fraction of the noise that they have.
        noise = self.errors(usual)[0]
        _, values = self.made("still", "still_flats", octavo.preparation(dynamic_flats=3))
        self.assertLess(np.sqrt(np.mean((values - usual) ** 2)), 0.2 * noise)
        self.assertLess(self.errors(values)[0], 1.02 * noise)

    def test_a_beam_beyond_the_flat_fields(self):
        job, _ = self.made("far", "flats", octavo.preparation(dynamic_flats=True))
        self.assertGreater(job.tomography.largest_flat_weight, 4)
        self.assertTrue(any("further from the mean flat field than any flat field does" in warning for warning in job.warnings), job.warnings)

    def test_a_large_detector_is_looked_at_in_parts(self):
        rows, columns, count = 520, 120, 150  # 32 groups of 16 rows; some 136 projections at a time
        angles, rng = np.linspace(0, np.pi, count, endpoint=False), np.random.default_rng(8)
        exact = line_integrals(angles, 59.5, 1, columns)
        places = np.stack([np.linspace(-0.5, 1.6, count), np.linspace(0.8, 0, count)], axis=1)
        np.save(os.path.join(self.daemon.root, "tall.npy"),
                np.stack([beam(*place, rows, columns) * np.exp(-one) for place, one in zip(places, exact)]).astype(np.float32))
        np.save(os.path.join(self.daemon.root, "tall_flats.npy"),
                np.stack([beam(*rng.uniform(-2, 2, 2), rows, columns) for _ in range(FLATS)]).astype(np.float32))
        for part in ((3, 6), (400, 403)):
            off = []
            for prepare in (octavo.preparation(), octavo.preparation(dynamic_flats=True)):
                job = self.done(octavo.sinograms(dict(path="tall.npy", flats="tall_flats.npy"), angles=angles, prepare=prepare, rows=part))
                off.append(np.sqrt(np.mean((self.client.read(job.volume_names[0]) - exact.transpose(1, 0, 2)) ** 2)))
            self.assertIn("in 512 rows", "".join(line.text for line in job.log_lines))
            self.assertLess(off[1], 0.1 * off[0])

    def test_halves_that_are_joined(self):
        angles = np.linspace(0, 2 * np.pi, 180, endpoint=False)
        drift = np.stack([np.linspace(-0.5, 1.6, 180), np.linspace(0.8, 0, 180)], axis=1)
        np.save(os.path.join(self.daemon.root, "turn.npy"),
                np.stack([beam(*place) * np.exp(-one) + DARK for place, one in zip(drift, line_integrals(angles, 12))]).astype(np.uint16))
        made = []
        for dynamic in (None, True):
            job = self.done(octavo.tomography(dict(path="turn.npy", flats="flats.npy", darks="darks.npy"), angles=angles, filter="hann", mask=0.5,
                                              prepare=octavo.preparation(stitching=dict(axis_right=False), dynamic_flats=dynamic)))
            self.assertAlmostEqual(job.tomography.overlap, 25, delta=0.5)
            values = self.client.read(job.volume_names[0])
            middle = values.shape[1] // 2
            made.append(values[:, middle - 12:middle + 12, middle - 12:middle + 12].std(axis=0).mean())  # slices are alike
        self.assertLess(made[1], 0.5 * made[0])

    def test_pushed_frames(self):
        load = lambda name: np.load(os.path.join(self.daemon.root, name + ".npy"))  # noqa: E731
        moving, flats, darks = load("moving"), load("flats"), load("darks")
        prepare = octavo.preparation(dynamic_flats=2)

        def push(flats):
            frames = octavo.projection_frames(moving, ANGLES, flats, darks)
            work = octavo.sinograms(octavo.PushedProjections(rows=ROWS, columns=COLUMNS, frames=len(moving) + len(flats) + len(darks), dtype="u16"), prepare=prepare)
            job = self.client.submit_job(work)
            self.client.push_projections(job, frames)
            return self.client.wait_job(job.name, check=False)

        job = push(flats)
        self.assertEqual((job.state, job.tomography.flat_components), ("DONE", 2))
        np.testing.assert_array_equal(self.client.read(job.volume_names[0]), self.made("moving", "flats", prepare)[1])
        job = push(flats[:1])
        self.assertEqual(job.state, "FAILED")
        self.assertIn("tomography.preparation.dynamic_flats: is given, but the input has 1 flat field; allowed are 2 to 512", job.reason)

    def test_host_memory_is_planned(self):
        """The flat fields, what is read ahead and the weights count in the budget of pushed projections and chunks of files."""
        prepare = octavo.preparation(dynamic_flats=3)
        load = lambda name: np.load(os.path.join(self.daemon.root, name + ".npy"))  # noqa: E731
        daemon = Daemon("--device.projection_bytes", "2000000")
        self.addCleanup(daemon.remove)
        for name in ("moving", "flats", "darks"):
            np.save(os.path.join(daemon.root, name + ".npy"), load(name))
        push = octavo.sinograms(octavo.PushedProjections(rows=ROWS, columns=COLUMNS, frames=COUNT + FLATS + 5, dtype="u16"), prepare=prepare)
        with daemon.client() as client:
            for work in (self.work("moving", "flats", prepare), push):
                with self.assertRaises(octavo.OctavoError) as caught:
                    client.submit_job(work)
                error = caught.exception
                self.assertEqual((error.code, error.reason, error.field), (grpc.StatusCode.RESOURCE_EXHAUSTED, "HOST_MEMORY", "tomography.preparation.dynamic_flats"))
                self.assertRegex(str(error), "the search for components of the flat fields takes [0-9]+ bytes of host memory; the server has 2000000 for such; "
                                             "allowed are fewer flat fields or projections")
            # Nothing was taken, and what needs no such search runs; so does one of fewer frames.
            self.assertEqual(client.jobs(), [])
            for prepare, projections in ((octavo.preparation(), None), (octavo.preparation(dynamic_flats=3), (0, 12))):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", octavo.OctavoWarning)
                    job = client.wait_job(client.submit_job(self.work("moving", "flats", prepare, projections=projections)).name)
                self.assertEqual(job.state, "DONE")
        self.assertEqual(daemon.stop(), 0)

    def test_what_is_refused(self):
        dynamic = "tomography.preparation.dynamic_flats"
        for flats, text, fields in (("flats", f"{dynamic}: is given with flat_median", dict(flat_median=True)),
                                    ("flats", f"{dynamic}: is given with flats_in_time", dict(flats_in_time=True)),
                                    ("flats", f"{dynamic}: is given with ignore_fields", dict(ignore_fields=True)),
                                    ("flats", f"{dynamic}: is given with already_sinograms", dict(already_sinograms=True)),
                                    ("one_flat", f"{dynamic}: is given, but the input has 1 flat field; allowed are 2 to 512", {}),
                                    ("darks", f"{dynamic}.components: is 5 with 5 flat fields; allowed 0 to 4", dict(dynamic_flats=dict(components=5))),
                                    ("flats", f"{dynamic}.components: is 9; allowed 0 to 8", dict(dynamic_flats=dict(components=9)))):
            with self.subTest(text=text):
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.client.plan_job(self.work("moving", flats, octavo.preparation(**{"dynamic_flats": True, **fields})))
                self.assertEqual(caught.exception.code, grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn(text, str(caught.exception))
        for wrong in (0, 9, -1):
            with self.assertRaisesRegex(ValueError, "dynamic_flats"):
                octavo.preparation(dynamic_flats=wrong)
        self.assertFalse(octavo.preparation(dynamic_flats=False).HasField("dynamic_flats"))
        self.assertEqual(octavo.preparation(dynamic_flats=4).dynamic_flats.components, 4)

    def test_the_command(self):
        scan = ("recon", "moving.npy", "--flats", "flats.npy", "--darks", "darks.npy", "--angles", "0:178.512396694:121", "--center", str(AXIS))
        plan = lambda *flags: self.command(*scan, *flags, "--plan").stdout  # noqa: E731
        self.assertIn("of each projection by its principal components", plan("--dynamic-flats"))
        self.assertIn("of each projection by its principal components", plan("--dynamic-flats", "--flat-components", "2"))
        self.assertNotIn("principal components", plan())
        done = self.command(*scan, "--dynamic-flats", "--flat-components", "2", "--rows", "3:5", "--png", os.path.join(self.daemon.directory, "x.png"))
        self.assertIn("2 components of the flat fields", done.stdout)
        for flags, text in ((("--flat-components", "2"), "--flat-components requires --dynamic-flats"),
                            (("--dynamic-flats", "--median"), "--median excludes --dynamic-flats"),
                            (("--dynamic-flats", "--flat-components", "9"), "dynamic_flats.components: is 9; allowed 0 to 8")):
            done = self.command(*scan, *flags, "--plan", check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
