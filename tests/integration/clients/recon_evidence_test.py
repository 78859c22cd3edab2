"""The pictures by which people judge what octavo recon found in scans over more than half a turn: the half turn that it took, and the overlap of two halves."""

import json
import os
import unittest

import numpy as np

from harness import DaemonTest
from pictures import decode_png

ROWS = 5


def lines(columns, axis, angles, discs):
    """Line integrals [angle, row, column] of discs (x, y, radius, value), which are a little larger in each row."""
    s = np.arange(columns) - np.broadcast_to(axis, len(angles))[:, None]
    out = np.zeros((len(angles), ROWS, columns))
    for row in range(ROWS):
        for x, y, radius, value in discs:
            d = s - (x * np.cos(angles) - y * np.sin(angles))[:, None]
            out[:, row] += 2 * value * np.sqrt(np.maximum((radius + 0.4 * row) ** 2 - d ** 2, 0))
    return out


def turn(count, turns=1):
    return np.linspace(0, 2 * np.pi * turns, count, endpoint=False)


class ReconEvidence(DaemonTest):
    def save(self, name, values, seed=3):
        noise = np.random.default_rng(seed).normal(0, 0.002 * values.std(), values.shape)
        np.save(os.path.join(self.daemon.root, name), (values + noise).astype(np.float32))

    def shown(self, name, *flags, code=0):
        """What the command says of the picture, and the picture."""
        path = os.path.join(self.daemon.directory, "evidence.png")
        if os.path.exists(path):
            os.remove(path)
        done = self.command("--json", "recon", name, "--sinograms", *flags, "--axis-png", path, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        told = next(value for value in map(json.loads, reversed(done.stdout.splitlines())) if "axis_png" in value)
        self.assertEqual(told["axis_png"], path)
        with open(path, "rb") as file:
            picture = decode_png(file.read())
        self.assertEqual(self.client.volumes(states=["held"]), [], "nothing is left on the server")
        return told, picture.reshape(picture.shape[0], picture.shape[1])

    def slice(self):
        return ("--png", os.path.join(self.daemon.directory, "slice.png"))

    def uprights(self, picture):
        """Columns with a grey line upright that is as long as a tall bar, and not those of the frames of the plots."""
        grey = picture == 120
        runs = np.zeros(picture.shape[1], int)
        for column in range(picture.shape[1]):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], grey[:, column], [0]])))
            runs[column] = (edges[1::2] - edges[::2]).max(initial=0)
        return [column for column in np.flatnonzero(runs > 150) if column not in (78, 473, 552, 947, 959)]

    def test_half_turns(self):
        angles, discs = turn(72), [(0, 0, 20, 0.02), (6, -9, 6, 0.03)]
        flags = ("--angles", "0:355:72", "--center", "auto", *self.slice())
        wander = np.where(np.arange(72) >= 36, 1.5 * np.random.default_rng(1).normal(size=72), 0)
        self.save("second_moves.npy", lines(64, 31.2 + wander, angles, discs))
        self.save("first_moves.npy", lines(64, 31.2 + wander[::-1], angles, discs))
        for name, used in (("second_moves.npy", 1), ("first_moves.npy", 2)):
            with self.subTest(name):
                told, picture = self.shown(name, *flags, "--half-turn", "best")
                # The half turn that is not used has the tall bars, which are not filled: one in each of the two plots.
                other = 3 - used
                wanted = [left + 3 + (other - 0.4 + side) / 2.2 * 389 for left in (78, 552) for side in (-0.3, 0.3)]
                found = self.uprights(picture)
                for column in wanted:
                    self.assertTrue(any(abs(column - at) <= 2 for at in found), (wanted, found))
                kept = [left + 3 + (used - 0.4 + side) / 2.2 * 389 for left in (78, 552) for side in (-0.3, 0.3)]
                self.assertFalse(any(abs(column - at) <= 2 for at in found for column in kept), (kept, found))
                # The opposite projections are of the half turn that is used.
                self.assertTrue(all(36 * (used - 1) <= index < 36 * used + 1 for index in told["opposite_projections"]), told)
        _, whole = self.shown("second_moves.npy", *flags)
        told, given = self.shown("second_moves.npy", *flags, "--half-turn", "second")
        self.assertEqual(given.shape[0], picture.shape[0])
        self.assertGreater(given.shape[0], whole.shape[0] + 200)
        self.assertEqual(self.uprights(given), [], "half turns that nobody compared have no bars")

    def test_the_overlap_of_two_halves(self):
        columns, count = 80, 72
        discs = [(0, 0, 58, 0.01), (30, -20, 9, 0.03), (-40, 12, 6, 0.02), (8, 44, 5, 0.03), (3, 2, 4, 0.03)]
        right, left = 68.3, columns - 1 - 68.3
        overlap = 2 * left + 1
        self.save("right.npy", lines(columns, right, turn(count), discs))
        self.save("left.npy", lines(columns, left, turn(count), discs))
        self.save("long.npy", lines(columns, right, turn(count * 3 // 2, 1.5), discs))
        angles = ("--angles", "0:355:72")
        json_spec = lambda preparation: ("--json-spec", json.dumps({"tomography": {"preparation": preparation}}))
        pictures = {}
        for name, flags, bins, opposite in (("right.npy", (*angles, "--stitch-right"), 1, [0, 36]), ("left.npy", (*angles, "--stitch-left"), 1, [0, 36]),
                                            ("right.npy", (*angles, "--stitch-right", "--bin", "2"), 2, [0, 36]),
                                            ("right.npy", (*angles, "--stitch-right", "--columns", "6:", "--rows", "1:4"), 1, [0, 36]),
                                            ("left.npy", (*angles, "--stitch-left", "--rows", "0:1"), 1, [0, 36]),
                                            ("right.npy", (*angles, "--stitch-right", *json_spec({"bin_angles": 2})), 1, [0, 36]),
                                            ("right.npy", (*angles, "--stitch-right", "--rings", "sorting"), 1, [0, 36]),
                                            ("long.npy", ("--angles", "0:535:108", "--stitch-right", *json_spec({"stitching": {"axis_right": True, "half_turn": 36}})), 1, [0, 36])):
            with self.subTest(name, flags=flags):
                told, pictures[flags[2:]] = self.shown(name, *flags, *self.slice())
                self.assertAlmostEqual(told["overlap"] * bins, overlap, delta=0.6)
                self.assertAlmostEqual(told["overlap_best"] * bins, overlap, delta=0.6 * bins)
                self.assertGreater(told["overlap_correlation"], 0.98)
                self.assertEqual(told["opposite_projections"], opposite)
                self.assertLess(told["opposite_difference"], 0.05)
        fine = pictures[("--stitch-right",)]
        # A wrong overlap: the picture and the numbers show it, and where the right one is.
        told, wrong = self.shown("right.npy", *angles, "--stitch-right", "--overlap", "30", *self.slice())
        self.assertEqual(told["overlap"], 30)
        self.assertAlmostEqual(told["overlap_best"], overlap, delta=0.6)
        self.assertLess(told["overlap_correlation"], 0.95)
        self.assertGreater(told["opposite_difference"], 0.1)

        def unlike(picture):
            """How far the last tile, the difference, is from the grey of none, where both saw something."""
            tile = picture[picture.shape[0] - 12 - 36:picture.shape[0] - 12 - 4, 652:952].astype(float)
            both = tile[np.abs(tile - 205) > 1]
            return np.abs(both - 127.5).mean()
        self.assertGreater(unlike(wrong), 2 * unlike(fine))
        # Said in words; the result is written as without the picture.
        path = os.path.join(self.daemon.directory, "evidence.png")
        out = self.command("recon", "right.npy", "--sinograms", *angles, "--stitch-right", "-o", "joined.npy", "--axis-png", path).stdout
        self.assertRegex(out, r"evidence\.png  evidence of the overlap: 22\.\d\d columns, correlation 0\.9\d+; greatest at 2[23]; projections 0 and 36, 180\.00 degrees apart, differ by 0\.0\d+ in it\n")
        self.assertTrue(os.path.exists(os.path.join(self.daemon.root, "joined.npy")))
        # Of a job that a doubtful overlap has ended, too.
        np.save(os.path.join(self.daemon.root, "noise.npy"), np.random.default_rng(5).normal(0, 1, (count, 2, columns)).astype(np.float32))
        told, _ = self.shown("noise.npy", *angles, "--stitch-right", "--center-doubt", "fail", "-o", "noise_slices.npy", code=1)
        self.assertLess(told["overlap_correlation"], 0.5)
        self.assertFalse(os.path.exists(os.path.join(self.daemon.root, "noise_slices.npy")))


if __name__ == "__main__":
    unittest.main()
