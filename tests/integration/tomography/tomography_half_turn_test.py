"""One half turn of a scan over 360 degrees or more: chosen by its number or by how well its projections fit together, from files, arrays and
the command line, and what is refused."""

import json
import os
import unittest
import warnings

import numpy as np

from harness import DaemonTest, octavo
from octavo.v1 import tomography_pb2

ROWS, COLUMNS, AXIS = 5, 72, 34.4
DISCS = [(0, 0, 22, 0.015), (9, -5, 6, 0.05), (-10, 4, 5, 0.06), (3, 12, 5, 0.04)]  # x, y, radius in pixels from the axis, attenuation in the middle


def line_integrals(angles, shift):
    """[angle, row, column] of discs whose attenuation falls to their rim as 1 - r^2, moved by shift[angle] columns."""
    out = np.zeros((len(angles), ROWS, COLUMNS))
    for x, y, radius, value in DISCS:
        off = np.arange(COLUMNS)[None] - AXIS - np.asarray(shift)[:, None] - (x * np.cos(angles) - y * np.sin(angles))[:, None]
        out += (4 / 3 * value * np.maximum(0, radius ** 2 - off ** 2) ** 1.5 / radius ** 2)[:, None] * np.linspace(1, 0.6, ROWS)[None, :, None]
    return out


def ellipsoids(angles, shift, drift, rows):
    """[angle, row, column] of ellipsoids without edges, moved across the axis by shift[angle] columns and along it by drift[angle] rows."""
    row, column = np.meshgrid(np.arange(rows) - (rows - 1) / 2, np.arange(COLUMNS) - AXIS, indexing="ij")
    out = np.zeros((len(angles), rows, COLUMNS))
    for x, y, z, a, b, c, value in ((0, 0, 0, 24, 20, 18, 0.02), (9, -6, -6, 6, 7, 5, 0.04), (-10, 5, 6, 5, 5, 6, 0.03), (4, 9, 2, 5, 5, 4, -0.02)):
        for i, angle in enumerate(angles):
            reach = (a * np.cos(angle)) ** 2 + (b * np.sin(angle)) ** 2
            off = column - shift[i] - (x * np.cos(angle) - y * np.sin(angle))
            out[i] += 4 / 3 * value * a * b * np.maximum(0, 1 - ((row - drift[i] - z) / c) ** 2 - off ** 2 / reach) ** 1.5 / np.sqrt(reach)
    return out


class TomographyHalfTurn(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(3)
        cls.angles = np.radians(30 + 2.0 * np.arange(270))  # 540 degrees: three half turns of 90
        shift = np.zeros(270)
        shift[100:140] = 3  # the sample moves in the second one
        cls.moved = line_integrals(cls.angles, shift) + rng.normal(0, 0.001, (270, ROWS, COLUMNS))
        cls.moved[20:50] += 0.15  # the beam is weak in the first one
        cls.transmissions = np.exp(-cls.moved).astype(np.float32)
        np.save(os.path.join(cls.daemon.root, "turns.npy"), cls.transmissions)
        np.save(os.path.join(cls.daemon.root, "angles.npy"), np.degrees(cls.angles) % 360)

    def job(self, input="turns.npy", **fields):
        return octavo.tomography(input, **{**dict(angles=self.angles, center=AXIS, filter="hann", prepare=octavo.preparation(ignore_fields=True)), **fields})

    def make(self, *inputs, **fields):
        job = self.client.wait_job(self.client.submit_job(self.job(*inputs, **fields)).name)
        volume = self.client.volume(job.volume_names[0])
        values = self.client.read(volume.name)
        self.client.discard(volume.name)
        return job, volume, values

    def test_by_its_number(self):
        for word, index in (("first", 0), ("second", 1)):
            job, volume, values = self.make(half_turn=word)
            self.assertEqual([(half.begin, half.end, half.used) for half in job.tomography.half_turns], [(90 * i, 90 * i + 90, i == index) for i in range(3)])
            self.assertTrue(all(np.isnan(half.score) for half in job.tomography.half_turns))
            np.testing.assert_array_equal(values, self.make(projections=(90 * index, 90 * index + 90))[2])
            self.assertEqual({key: value for key, value in volume.labels.items() if key.startswith("half_turn.")},
                             {"half_turn.first_projection": str(90 * index), "half_turn.projections": "90",
                              "half_turn.first_angle_deg": str(30 + 180 * index), "half_turn.last_angle_deg": str(208 + 180 * index)})
        job, volume, values = self.make(half_turn="all")
        self.assertEqual(len(job.tomography.half_turns), 0)
        np.testing.assert_array_equal(values, self.make()[2])

    def test_the_best_one(self):
        for fields in (dict(), dict(center="auto"), dict(center=None), dict(try_centers=(33, 36, 1), center=None), dict(projections=slice(None, None, 2))):
            with self.subTest(fields=fields), warnings.catch_warnings():
                warnings.simplefilter("ignore", octavo.OctavoWarning)  # the middle is not the axis
                job, volume, values = self.make(half_turn="best", **fields)
                halves = job.tomography.half_turns
                self.assertEqual([half.used for half in halves], [False, False, True])
                self.assertGreater(min(halves[0].score, halves[1].score), 2 * halves[2].score)
                self.assertGreater(halves[0].mass_deviation, 5 * halves[2].mass_deviation)
                self.assertTrue(any("half turn 3 of 3 is used, projections 180 to 26" in line.text for line in job.log_lines), job.log_lines)
                self.assertAlmostEqual(float(volume.labels["half_turn.score"]), halves[2].score, places=5)
                step = 2 if "projections" in fields else 1
                np.testing.assert_array_equal(values, self.make(**{**fields, "projections": (180, 270, step)})[2])
        # Without the half turn that is fine, the beam's counts less than the jump, or more: what the scores say.
        halves = self.make(half_turn="best", projections=(0, 180))[0].tomography.half_turns
        self.assertEqual([half.used for half in halves], [half.score == min(halves[0].score, halves[1].score) for half in halves])

    def test_the_best_one_after_what_is_found_in_it(self):
        """In the second half turn the beam changes, or the stage moves along the axis. What undoes that is found before the half turns are compared."""
        rng, count, rows = np.random.default_rng(11), 120, 48
        angles, second = np.radians(3.0 * np.arange(count)), np.arange(count) >= count // 2
        jump = np.where((np.arange(count) >= 20) & (np.arange(count) < 35), 1.0, 0)  # in the first half turn: a small defect that nothing undoes
        wander = np.where(second, np.linspace(-3, 3, count) + 2 * np.sin(np.arange(count)), 0)
        light = np.linspace(-1, 1, COLUMNS) ** 2 * np.linspace(1, 0.5, rows)[:, None]

        def save(name, values):
            np.save(os.path.join(self.daemon.root, name + ".npy"), values.astype(np.float32))

        save("drifts", np.exp(-ellipsoids(angles, jump, wander / 3, rows) - rng.normal(0, 0.002, (count, rows, COLUMNS))))
        beam = lambda weights: 1000 * (1 + 0.05 * np.asarray(weights)[:, None, None] * light) + rng.normal(0, 1, (len(weights), rows, COLUMNS))
        save("flickers", beam(wander / 2.5) * np.exp(-ellipsoids(angles, jump, 0 * jump, rows)))
        save("flickers_flats", beam(rng.uniform(-2, 2, 30)))
        save("flickers_darks", np.zeros((3, rows, COLUMNS)))
        flickers = dict(path="flickers.npy", flats="flickers_flats.npy", darks="flickers_darks.npy")
        for input, fields, correction, words in ((flickers, {}, dict(dynamic_flats=True), "dynamic flat fields: "),
                                                 ("drifts.npy", dict(ignore_fields=True), dict(row_drift=True), "shifts along the rotation axis: "),
                                                 (flickers, {}, dict(dynamic_flats=True, row_drift=True), "shifts along the rotation axis: ")):
            with self.subTest(correction=correction), warnings.catch_warnings():
                warnings.simplefilter("ignore", octavo.OctavoWarning)
                take = lambda prepare, **more: self.make(input, angles=angles, prepare=octavo.preparation(**fields, **prepare), **more)
                self.assertEqual([half.used for half in take({}, half_turn="best")[0].tomography.half_turns], [True, False])
                job, _, values = take(correction, half_turn="best")
                self.assertEqual([half.used for half in job.tomography.half_turns], [False, True])
                by_hand, _, expected = take(correction, projections=(count // 2, count))
                np.testing.assert_array_equal(values, expected)
                for found in ("row_shifts", "row_shift_uncertainty", "flat_components", "largest_flat_weight"):
                    np.testing.assert_array_equal(getattr(job.tomography, found), getattr(by_hand.tomography, found), err_msg=found)
                told = [[line.text for line in of.log_lines if words in line.text] for of in (job, by_hand)]
                self.assertEqual(told[0], told[1])  # of the half turn that is used alone
                self.assertEqual(len(told[0]), 1)
                self.assertEqual(list(job.warnings), list(by_hand.warnings))

    def push(self, half, make=octavo.tomography, angles=None, subscribe=False, **fields):
        """Pushes the whole scan in any order to a job that takes a half turn."""
        angles = self.angles if angles is None else angles
        spec = make(octavo.PushedProjections(rows=ROWS, columns=COLUMNS, frames=len(angles), dtype="f32"), half_turn=half,
                    **{**dict(prepare=octavo.preparation(ignore_fields=True)), **fields})
        pushed = self.client.submit_job(spec)
        frames = list(octavo.projection_frames(self.transmissions[:len(angles)], angles))
        if subscribe:
            previews = self.client.subscribe(pushed.name, ["bscan"], index=1, timeout=60)
            self.client.push_projections(pushed.name, frames[:60], end=False)
            self.assertFalse(next(iter(previews)).complete)
            previews.close()
            frames = frames[60:]
        np.random.default_rng(2).shuffle(frames)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)  # the job may fail
            self.client.push_projections(pushed.name, frames)
        return self.client.wait_job(pushed.name, check=False)

    def test_pushed_projections(self):
        for half, index, fields in (("first", 0, {}), ("second", 1, {}), ("best", 2, {}), ("best", 2, dict(center="auto")),
                                    ("second", 1, dict(projections=slice(None, None, 2)))):
            with self.subTest(half=half, fields=fields), warnings.catch_warnings():
                warnings.simplefilter("ignore", octavo.OctavoWarning)
                fields = {**dict(center=AXIS, filter="hann"), **fields}
                job = self.push(half, subscribe=half == "second", **fields)
                self.assertEqual(job.state, "DONE", job.reason)
                self.assertIn(f"half turn: {half.upper()}, which is known when all projections are in\n", job.plan)
                self.assertEqual([(found.begin, found.used) for found in job.tomography.half_turns], [(90 * i, i == index) for i in range(3)])
                if half == "second":
                    self.assertTrue(any("left out: the choice of a half turn (the projections of all are used)" in line.text for line in job.log_lines), job.log_lines)
                from_file, volume, expected = self.make(half_turn=half, **fields)
                np.testing.assert_array_equal(self.client.read(job.volume_names[0]), expected)
                self.assertEqual([found.score for found in job.tomography.half_turns if half == "best"],
                                 [found.score for found in from_file.tomography.half_turns if half == "best"])
                self.assertEqual({key: value for key, value in self.client.volume(job.volume_names[0]).labels.items() if key.startswith("half_turn.")},
                                 {key: value for key, value in volume.labels.items() if key.startswith("half_turn.")})
                self.client.discard(job.volume_names[0])
        job = self.push("second", octavo.sinograms)
        np.testing.assert_allclose(self.client.read(job.volume_names[0]), np.swapaxes(self.moved[90:180], 0, 1), atol=2e-4)
        self.client.discard(job.volume_names[0])

    def test_pushed_projections_without_half_turns(self):
        for half, angles, words in (("second", self.angles[:120], "is SECOND, but the 120 projections turn by 238.00 degrees, about 2.000 each, and hold 1 complete"),
                                    ("first", np.where(np.arange(270) < 135, self.angles, self.angles[::-1]), "is FIRST, but the angles turn back at projection 136"),
                                    ("best", np.concatenate([self.angles[:90], self.angles[90:180:2]]), "is BEST, but the half turns have from 45 to 90 projections")):
            with self.subTest(half=half):
                job = self.push(half, angles=angles)
                self.assertEqual(job.state, "FAILED")
                self.assertIn("tomography.half_turn: " + words, job.reason)
        self.assertEqual(self.client.volumes(), [])

    def test_arrays_and_sinograms(self):
        buffer = self.client.buffers.put(self.transmissions)
        job, _, values = self.make(octavo.ProjectionArrays(projections=buffer.name), half_turn="best")
        self.client.buffers.destroy(buffer.name)
        self.assertTrue(job.tomography.half_turns[2].used)
        np.testing.assert_array_equal(values, self.make(half_turn="best")[2])
        job = self.client.wait_job(self.client.submit_job(octavo.sinograms("turns.npy", angles=self.angles, half_turn="best", prepare=octavo.preparation(ignore_fields=True))).name)
        np.testing.assert_allclose(self.client.read(job.volume_names[0]), np.swapaxes(self.moved[180:], 0, 1), atol=2e-4)
        self.client.discard(job.volume_names[0])

    def test_the_command_line(self):
        flags = ("recon", "turns.npy", "--angles-file", "angles.npy", "--transmissions", "--center", str(AXIS), "--filter", "hann")
        done = self.command(*flags, "--half-turn", "best", "-o", "best.npy")
        self.assertIn("half turn 3 of 3 is used, projections 180 to 269; deviation from consistent projections: ", done.stdout)
        self.assertIn(", half turn 3 of 3 (off by 0.0", done.stdout)
        with open(os.path.join(self.daemon.directory, "turn.toml"), "w") as file:
            file.write('half-turn = "second"\n')
        done = self.command("--json", *flags, "--config", file.name, "-o", "second.npy")
        job = next(value for value in map(json.loads, reversed(done.stdout.splitlines())) if "tomography" in value)
        self.assertEqual([half.get("used", False) for half in job["tomography"]["half_turns"]], [False, True, False])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)
            for name, begin in (("best", 180), ("second", 90)):
                found = np.load(os.path.join(self.daemon.root, f"{name}.npy"))
                np.testing.assert_allclose(found, self.make(projections=(begin, begin + 90))[2], rtol=0, atol=1e-6)
        for more, code, words in ((("--half-turn", "third"), 2, "--half-turn: is 'third'; allowed all, best, first, second"),
                                  (("--half-turn", "best", "--series", "90"), 2, "excludes"),
                                  (("--half-turn", "best", "--stitch-left"), 2, "excludes"),
                                  (("--half-turn", "best", "--no-log"), 1, "is BEST with preparation.logarithm = false"),
                                  (("--half-turn", "first", "--projections", "0:170"), 1, "(--half-turn)")):
            with self.subTest(flags=more):
                done = self.command(*flags, *more, "-o", "none.npy", check=False)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)

    def test_wrong_use(self):
        before = len(self.client.jobs())
        push = octavo.PushedProjections(rows=ROWS, columns=COLUMNS, frames=270)
        for words, work in (
                ("is SECOND, but the 90 projections turn by 178.00 degrees, about 2.000 each, and hold 1 complete half turn; ", self.job(half_turn="second", projections=(0, 90))),
                ("is FIRST, but the angles turn back at projection 136", self.job(half_turn="first", angles=np.where(np.arange(270) < 135, self.angles, self.angles[::-1]))),
                ("is BEST with preparation.stitching", self.job(half_turn="best", center=None, prepare=octavo.preparation(stitching=dict(overlap=4)))),
                ("is FIRST with series", self.job(half_turn="first", series=90)),
                ("is BEST with preparation.logarithm = false", self.job(half_turn="best", prepare=octavo.preparation(logarithm=False))),
                ("is BEST with preparation.logarithm = false", octavo.tomography(push, half_turn="best", prepare=octavo.preparation(logarithm=False))),
                ("is SECOND with series", octavo.tomography(push, half_turn="second", series=90))):
            with self.subTest(words=words):
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.client.submit_job(work)
                self.assertEqual(caught.exception.field, "tomography.half_turn")
                self.assertIn(words, str(caught.exception))
        work = self.job()
        work.half_turn = 9
        with self.assertRaisesRegex(octavo.OctavoError, "tomography.half_turn"):
            self.client.submit_job(work)
        with self.assertRaisesRegex(ValueError, "half_turn is 'third'; expected one of all, first, second, best"):
            self.job(half_turn="third")
        # The number of a name is another one than that of the half turn.
        for number in (0, 1, 2, 3, 4, np.int64(2), True, None, 2.0):
            for call in (octavo.tomography, octavo.sinograms):
                with self.assertRaisesRegex(ValueError, "^half_turn is .*; expected one of all, first, second, best"):
                    call("turns.npy", half_turn=number)
        self.assertEqual(self.job(half_turn="best").half_turn, tomography_pb2.HALF_TURN_BEST)
        self.assertEqual((len(self.client.jobs()), self.client.volumes()), (before, []))


if __name__ == "__main__":
    unittest.main()
