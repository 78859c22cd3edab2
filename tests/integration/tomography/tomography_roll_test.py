"""A rotation axis that leans in the plane of the detector: found as a line, undone by turned projections, and what is refused."""

import os
import unittest

import numpy as np

from harness import DaemonTest, octavo
from octavo.v1 import tomography_pb2

ROWS, COLUMNS, COUNT, AXIS, TILT = 64, 96, 120, 46.2, 1.7
MIDDLE_ROW, MIDDLE_COLUMN = (ROWS - 1) / 2, (COLUMNS - 1) / 2
# x, y, z of the middle, semi-axes along them, attenuation there, which falls to 0 at the surface as 1 - r^2: without edges, pixels
# lose nothing that a turn could not bring back. In pixels from the axis and from the middle row.
ELLIPSOIDS = [(0, 0, 0, 34, 30, 44, 0.01), (12, -6, -14, 6, 9, 7, 0.02), (-14, 8, 6, 7, 5, 9, 0.015), (4, 14, 18, 8, 6, 6, -0.008), (-6, -14, -20, 5, 5, 5, 0.03),
              (16, 10, 22, 5, 4, 6, 0.025), (-16, -4, 24, 4, 6, 5, 0.02), (0, 2, -26, 7, 5, 4, 0.02), (20, -2, 4, 3, 3, 8, 0.03), (2, -20, 10, 4, 4, 5, 0.02)]


def line_integrals(angles, roll_degrees):
    """Exact projections [angle, row, column] of the ellipsoids on a detector on which the axis leans by roll_degrees."""
    roll = np.radians(roll_degrees)
    row, column = np.meshgrid(np.arange(ROWS) - MIDDLE_ROW, np.arange(COLUMNS) - MIDDLE_COLUMN, indexing="ij")
    across, along = MIDDLE_COLUMN - AXIS + column * np.cos(roll) - row * np.sin(roll), column * np.sin(roll) + row * np.cos(roll)
    out = np.zeros((len(angles), ROWS, COLUMNS))
    for x, y, z, a, b, c, value in ELLIPSOIDS:
        for i, angle in enumerate(angles):
            reach = (a * np.cos(angle)) ** 2 + (b * np.sin(angle)) ** 2
            off = across - (x * np.cos(angle) - y * np.sin(angle))
            out[i] += 4 / 3 * value * a * b * np.maximum(0, 1 - ((along - z) / c) ** 2 - off ** 2 / reach) ** 1.5 / np.sqrt(reach)
    return out


class TomographyRoll(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.angles = np.linspace(0, 2 * np.pi, COUNT, endpoint=False)
        rng = np.random.default_rng(11)
        for name, roll in (("upright", 0), ("leaning", TILT), ("steep", -3.0), ("slightly", 0.3)):
            values = line_integrals(cls.angles, roll) + rng.normal(0, 0.0003, (COUNT, ROWS, COLUMNS))
            np.save(os.path.join(cls.daemon.root, name + ".npy"), np.exp(-values).astype(np.float32))
        cls.upright = cls.make(cls, "upright", center=AXIS)[1]

    def job(self, name, prepare=None, **fields):
        return octavo.tomography(name + ".npy", angles=self.angles, prepare=prepare or octavo.preparation(), filter="hann", **fields)

    def make(self, name, prepare=None, **fields):
        job = self.client.wait_job(self.client.submit_job(TomographyRoll.job(self, name, prepare, **fields)).name)
        values = self.client.read(job.volume_names[0])
        self.client.discard(job.volume_names[0])
        return job, values

    def off(self, values):
        """How far slices are from those of the scan that does not lean. The outermost rows see another part of the object there."""
        part = slice(6, ROWS - 6)
        return np.sqrt(np.mean((values[part] - self.upright[part]) ** 2))

    def test_turned_projections_undo_the_roll(self):
        job, turned = self.make("leaning", center="auto", along_rows="turn")
        line = job.tomography.axis_line
        self.assertTrue(line.leans)
        self.assertLess(abs(line.tilt_degrees - TILT), 0.25)
        self.assertEqual(line.turned_degrees, line.tilt_degrees)
        self.assertEqual(len(job.tomography.centers), 1)
        self.assertLess(abs(job.tomography.centers[0] - AXIS), 0.15)
        self.assertFalse([warning for warning in job.warnings if "axis" in warning])
        # The same with the tilt and the axis given.
        given = self.make("leaning", octavo.preparation(roll_degrees=line.tilt_degrees), center=job.tomography.centers[0])[1]
        np.testing.assert_allclose(given, turned, atol=1e-5 * np.abs(turned).max())
        one, each = self.make("leaning", center="auto")[1], self.make("leaning", center="auto", along_rows="line")[1]
        self.assertLess(self.off(turned), 0.5 * self.off(one))
        self.assertLess(self.off(turned), self.off(each))
        # A given roll of the other sign makes it worse.
        worse = self.make("leaning", octavo.preparation(roll_degrees=-TILT), center=AXIS)[1]
        self.assertGreater(self.off(worse), self.off(one))

    def test_a_steep_roll_is_given(self):
        turned = self.make("steep", octavo.preparation(roll_degrees=-3), center="auto")[1]
        one = self.make("steep", center="auto")[1]
        self.assertLess(self.off(turned), 0.4 * self.off(one))
        job, _ = self.make("steep", center="auto", along_rows="turn")
        self.assertEqual(job.tomography.axis_line.turned_degrees, 0)
        self.assertTrue(any("TURN turns projections by up to 2" in warning for warning in job.warnings), job.warnings)

    def test_the_evidence_of_the_line(self):
        job, _ = self.make("leaning", center="pairs", along_rows="line")
        report, line = job.tomography, job.tomography.axis_line
        self.assertEqual(len(line.groups), 9)
        self.assertEqual(len(report.centers), ROWS)
        rows = np.arange(ROWS)
        np.testing.assert_allclose(report.centers, line.offset + line.slope * rows, atol=1e-9)
        np.testing.assert_allclose(report.centers, AXIS + np.tan(np.radians(TILT)) * (rows - MIDDLE_ROW), atol=0.2)
        self.assertAlmostEqual(line.tilt_degrees, np.degrees(np.arctan(line.slope)))
        self.assertLess(abs(line.slope - np.tan(np.radians(TILT))), 5 * line.slope_uncertainty)
        used = [group for group in line.groups if group.used]
        self.assertGreaterEqual(len(used), 7)
        self.assertAlmostEqual(line.residual_rms, np.sqrt(np.mean([group.residual ** 2 for group in used])))
        for group in line.groups:
            middle = group.first_row + (group.rows - 1) / 2
            self.assertAlmostEqual(group.residual, group.center - line.offset - line.slope * middle)
            self.assertGreater(group.uncertainty, 0)
        self.assertEqual(report.center_check_method, tomography_pb2.RotationCenter.METHOD_ENTROPY)
        # A small tilt, and none.
        line = self.make("slightly", center="auto", along_rows="line")[0].tomography.axis_line
        self.assertTrue(line.leans)
        self.assertLess(abs(line.tilt_degrees - 0.3), 0.15)
        job, _ = self.make("upright", center="auto", along_rows="line")
        self.assertEqual(len(job.tomography.centers), 1)
        self.assertFalse(job.tomography.axis_line.leans)
        self.assertIsNone(self.make("upright", center="auto")[0].tomography.axis_line)

    def test_sinograms(self):
        work = octavo.sinograms("leaning.npy", angles=self.angles, center="auto", along_rows="turn")
        job = self.client.wait_job(self.client.submit_job(work).name)
        self.assertEqual(len(job.tomography.centers), 1)
        turned = self.client.read(job.volume_names[0])
        wanted = np.swapaxes(line_integrals(self.angles, 0), 0, 1)
        raw = np.swapaxes(line_integrals(self.angles, TILT), 0, 1)
        part = np.s_[6:-6, :, 6:-6]
        error = lambda values: np.sqrt(np.mean((values[part] - wanted[part]) ** 2))
        self.assertLess(error(turned), 0.25 * error(raw))

    def test_wrong_use(self):
        for field, work in (
                ("tomography.center.along_rows", self.job("leaning", along_rows="line")),
                ("tomography.center.along_rows", self.job("leaning", along_rows="turn", center=AXIS)),
                ("tomography.center.along_rows", self.job("leaning", along_rows="line", try_centers=(40, 50, 1))),
                ("tomography.center.along_rows", self.job("leaning", along_rows="line", center="auto", rows=(0, 2))),
                ("tomography.center.along_rows", self.job("leaning", along_rows=77, center="auto")),
                ("tomography.center.row", self.job("leaning", along_rows="line", center="auto", center_row=5)),
                ("tomography.preparation.roll_degrees", self.job("leaning", octavo.preparation(roll_degrees=1), along_rows="turn", center="auto")),
                ("tomography.preparation.roll_degrees", self.job("leaning", octavo.preparation(roll_degrees=5.5))),
                ("tomography.preparation.roll_degrees", self.job("leaning", octavo.preparation(roll_degrees=float("nan")))),
                ("tomography.rows.step", self.job("leaning", octavo.preparation(roll_degrees=1), rows=(0, 60, 2))),
                ("tomography.rows.step", self.job("leaning", along_rows="turn", center="auto", rows=(0, 60, 2)))):
            with self.subTest(field=field):
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.client.submit_job(work)
                self.assertEqual(caught.exception.field, field)
        with self.assertRaisesRegex(ValueError, "along_rows is 'lean'; expected one of one, line, turn"):
            octavo.tomography("leaning.npy", center="auto", along_rows="lean")

    def recon(self, *flags, code=0):
        done = self.command("recon", *flags, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def config(self, text):
        path = os.path.join(self.daemon.directory, "leaning.toml")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_from_the_command_line(self):
        """The same results as from Python."""
        angles = ("--angles", f"0:{360 - 360 / COUNT:g}:{COUNT}", "--transmissions", "--filter", "hann")
        turned, lined = self.make("leaning", center="auto", along_rows="turn"), self.make("leaning", center="pairs", along_rows="line")
        rolled = self.make("leaning", octavo.preparation(roll_degrees=TILT), center=AXIS)
        for (job, wanted), flags in ((turned, ("--along-rows", "turn")), (turned, ("--along-rows", "turn", "--center", "auto")),
                                     (lined, ("--along-rows", "line", "--center", "pairs")), (rolled, ("--roll", str(TILT), "--center", str(AXIS))),
                                     (lined, ("--config", self.config('along-rows = "line"\ncenter = "pairs"\n'))),
                                     (rolled, ("--config", self.config(f"roll = {TILT}\ncenter = {AXIS}\n")))):
            with self.subTest(flags=flags):
                name = os.path.join(self.daemon.root, "leaning_slices.npy")
                for path in (name, name + ".json"):
                    if os.path.exists(path):
                        os.remove(path)
                if "--config" in flags:  # the file is written anew by each
                    flags = ("--config", self.config('along-rows = "line"\ncenter = "pairs"\n' if job is lined[0] else f"roll = {TILT}\ncenter = {AXIS}\n"))
                out = self.recon("leaning.npy", *angles, *flags, "-o", "leaning_slices.npy")
                np.testing.assert_allclose(np.load(name), wanted, atol=2e-5 * np.abs(wanted).max())
                how = {id(turned[0]): "projections are turned", id(lined[0]): "each slice has its own"}.get(id(job))
                if how:
                    self.assertRegex(out, rf"axis at column \S+ \(pairs, .*\), which leans by {job.tomography.axis_line.tilt_degrees:.3g} \+- \S+ degrees: {how}")
                else:
                    self.assertNotIn("leans", out)
        one = self.recon("leaning.npy", *angles, "--along-rows", "one", "--plan")
        self.assertEqual(one, self.recon("leaning.npy", *angles, "--plan"))
        # Flags win over settings that they leave without effect.
        settings = self.config('along-rows = "turn"\ncenter = "auto"\n')
        for flags, words in ((("--center", "40"), "left out, because --center 40 is given: along-rows = turn"),
                             (("--center-row", "3"), "left out, because --center-row is given: along-rows = turn"),
                             (("--roll", "1"), "left out, because --roll is given: along-rows = turn"),
                             (("--tomopy", "--algorithm", "sirt", "--iterations", "2"), "left out, because --tomopy is given: along-rows = turn, center = auto"),
                             (("--try-centers", "40:50:1"), "along-rows is left out, because --try-centers is given"),
                             (("--along-rows", "line"), "as a line, in 9 groups of rows; each slice has its own")):
            some = angles[:-2] if "--tomopy" in flags else angles
            self.assertIn(words, self.recon("leaning.npy", *some, *flags, "--config", settings, "--plan"))
        given = self.config("center = 40\nroll = 1.5\n")
        self.assertIn("left out, because --along-rows turn is given: center = 40, roll = 1.5", self.recon("leaning.npy", *angles, "--along-rows", "turn", "--config", given, "--plan"))
        out = self.recon("leaning.npy", *angles, "--along-rows", "line", "--config", given, "--plan")
        self.assertIn("left out, because --along-rows line is given: center = 40\n", out)
        self.assertIn("turned by 1.5 degrees", out)
        # What does not go together.
        spec = '{"tomography": {"center": {"pixels": [40]}}}'
        for flags, words in ((("--along-rows", "line", "--center", "40"), "--along-rows: is 'line' with --center 40: only a search tells how the axis leans; allowed are --center auto, pairs, vo"),
                             (("--along-rows", "turn", "--center", "middle"), "--along-rows: is 'turn' with --center middle: only a search"),
                             (("--along-rows", "turn", "--json-spec", spec), "with tomography.center.pixels of --json-spec: only a search"),
                             (("--along-rows", "line", "--center-row", "3"), "--along-rows: is 'line' with --center-row 3: it looks at rows all over the detector"),
                             (("--along-rows", "turn", "--roll", "1"), "--along-rows: is 'turn' with --roll 1: it finds the roll itself; allowed is one of the two, or --along-rows line"),
                             (("--along-rows", "turn", "--rows", "0:60:2"), "--along-rows: is 'turn' with a step of 2 in --rows: turned rows are made of neighbouring ones; allowed is a step of 1"),
                             (("--along-rows", "line", "--tomopy"), "--along-rows: is 'line' with --tomopy: the axis is the middle there"),
                             (("--along-rows", "line", "--try-centers", "40:50:1"), "excludes"), (("--along-rows", "line", "--stitch-left"), "excludes"),
                             (("--along-rows", "lean"), "--along-rows: is 'lean'; allowed line, one, turn"),
                             (("--roll", "5.5"), "--roll: is '5.5'; allowed degrees from -5 to 5"), (("--roll", "nan"), "--roll: is 'nan'; allowed degrees from -5 to 5"),
                             (("--roll", "1", "--rows", "0:60:2"), "--roll: is 1 with a step of 2 in --rows"), (("--roll", "x"), "--roll: is 'x'; allowed are numbers")):
            with self.subTest(flags=flags):
                self.assertIn(words, self.recon("leaning.npy", *angles, *flags, "--plan", code=2))
        self.assertIn("along_rows: --along-rows)", self.recon("leaning.npy", *angles, "--along-rows", "line", "--rows", "0:2", "--plan", code=1))


if __name__ == "__main__":
    unittest.main()
