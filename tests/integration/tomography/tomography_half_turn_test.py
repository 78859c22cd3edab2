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
                ("is SECOND, but the 90 projections turn by 178.00 degrees, about 2.000 each, and hold 1 complete half turns", self.job(half_turn="second", projections=(0, 90))),
                ("is FIRST, but the angles turn back at projection 136", self.job(half_turn="first", angles=np.where(np.arange(270) < 135, self.angles, self.angles[::-1]))),
                ("is BEST with preparation.stitching", self.job(half_turn="best", center=None, prepare=octavo.preparation(stitching=dict(overlap=4)))),
                ("is FIRST with series", self.job(half_turn="first", series=90)),
                ("is BEST with preparation.logarithm = false", self.job(half_turn="best", prepare=octavo.preparation(logarithm=False))),
                ("is BEST, but preparation.row_drift takes effect after the choice; allowed with it are ALL, FIRST, SECOND",
                 self.job(half_turn="best", prepare=octavo.preparation(ignore_fields=True, row_drift=True))),
                ("is BEST with push, whose angles come with the frames; allowed is ALL, where tomography.projections may pick the frames of one half turn",
                 octavo.tomography(push, half_turn="best"))):
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
