"""Mosaics through the daemon: tiles of a phantom registered and stitched, slabs overlapped, against NumPy and SciPy; by Python and the command line."""

import csv
import json
import os
import re
import subprocess
import sys
import unittest

import numpy as np

from harness import BUILD, SOURCE, DaemonTest, octavo

try:
    from scipy import ndimage
except ImportError:
    ndimage = None
SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % (1 << 32)))
FINE = 8  # samples of the phantom to a voxel


class Mosaics(DaemonTest):
    def setUp(self):
        super().setUp()
        print("seed", SEED)
        self.random = np.random.default_rng(SEED)

    def command(self, *arguments, code=0):
        done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def phantom(self, height, width):
        """Texture of several sizes, FINE samples to a voxel."""
        texture = 0
        for size, amount in ((1, 1.0), (3, 1.5), (10, 2.0)):
            one = ndimage.gaussian_filter(self.random.standard_normal((height * FINE, width * FINE), dtype=np.float32), size * FINE)
            texture = texture + amount * one / one.std()
        return np.exp(0.4 * texture)

    def mosaic(self, rows, columns, size, overlap, depth=1, noise=0.1, shade=0.4):
        """Tiles [n, depth, size, size], their true positions and those of the stage [n, 3], in voxels."""
        step = int(size * (1 - overlap))
        fine = self.phantom(step * rows + 2 * size - step, step * columns + 2 * size - step)
        y, x = np.mgrid[-1:1:size * 1j, -1:1:size * 1j]
        shading = 1 - shade * (y ** 2 + x ** 2) / 2
        tiles, truth, stage = [], [], []
        for r in range(rows):
            for c in range(columns):
                at = np.array([r * step, c * step]) + size // 3
                off = self.random.integers(-3 * FINE, 3 * FINE + 1, 2) / FINE
                py, px = np.round((at + off) * FINE).astype(int)
                clean = fine[py:py + size * FINE, px:px + size * FINE].reshape(size, FINE, size, FINE).mean((1, 3)) * shading
                layers = [clean * (1 + 0.2 * z) + noise * clean.std() * self.random.standard_normal(clean.shape) for z in range(depth)]
                tiles.append(np.stack(layers))
                truth.append([0, *(at + off)])
                stage.append([0, *at])
        return np.array(tiles).astype("<f4"), np.array(truth), np.array(stage, float)

    @unittest.skipIf(ndimage is None, "SciPy is not installed")
    def test_tiles_are_registered_and_stitched(self):
        spacing = (5.0, 1.5, 1.5)
        tiles, truth, stage = self.mosaic(3, 3, 96, 0.35, depth=2)
        wrong = int(self.random.integers(9))
        tiles[wrong] = tiles[wrong][:, ::-1, ::-1] if wrong != 4 else tiles[wrong].transpose(0, 2, 1)[:, ::-1]
        buffer = self.client.buffers.put(tiles.reshape(-1, 96, 96))
        with self.assertWarnsRegex(octavo.OctavoWarning, f"tile {wrong} .*UNMATCHED"):
            found = self.client.mosaic.register(buffer, stage * spacing, spacing_um=spacing, depth=2)
        self.assertEqual(list(found.suspects), [wrong])
        self.assertEqual(found.tiles[wrong].state, "UNMATCHED")
        good = []
        for joint in found.joints:
            if wrong in (joint.first, joint.second):
                self.assertEqual(joint.state, "FALLBACK")
                continue
            got = [joint.difference_um.y, joint.difference_um.x]
            good.append(np.abs(np.array(got) / 1.5 - (truth[joint.second] - truth[joint.first])[1:]).max())
        self.assertGreaterEqual(np.mean(np.array(good) <= 0.2), 0.95, good)
        # What is stitched, twice: here, and by the server, with the same positions.
        stitched = self.client.mosaic.stitch(buffer, found, spacing_um=spacing, depth=2, blend="hann")
        got = stitched.buffer.read()
        at = np.array([[one.position_um.z, one.position_um.y, one.position_um.x] for one in found.tiles]) / spacing
        origin = np.array([stitched.origin_um.z, stitched.origin_um.y, stitched.origin_um.x]) / spacing
        np.testing.assert_allclose(origin, at.min(0), atol=1e-9)
        wanted = self.stitched(tiles, at - origin, got.shape)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-5)
        # Registered, the tiles agree where they overlap; as the stage has them, they do not.
        keep = [i for i in range(9) if i != wrong]
        self.assertLess(self.disagreement(tiles[keep], (at - origin)[keep]), 0.5 * self.disagreement(tiles[keep], (stage - stage.min(0))[keep]))

    @staticmethod
    def sampled(tile, at, shape):
        """A tile in the mosaic; NaN beyond it."""
        grid = list(np.meshgrid(*[np.arange(n) - p for n, p in zip(shape, at)], indexing="ij"))
        for axis, (g, n) in enumerate(zip(grid, tile.shape)):
            close = np.abs(g - np.round(g)) < 1e-6
            grid[axis] = np.where(close, np.round(g), g)
        inside = np.all([(g >= 0) & (g <= n - 1) for g, n in zip(grid, tile.shape)], axis=0)
        values = ndimage.map_coordinates(tile.astype(float), grid, order=1, mode="nearest")
        return np.where(inside, values, np.nan), grid

    def stitched(self, tiles, at, shape):
        total, weights = np.zeros(shape), np.zeros(shape)
        for tile, position in zip(tiles, at):
            values, grid = self.sampled(tile, position, shape)
            weight = np.prod([np.sin(np.pi * (g + 0.5) / n) ** 2 for g, n in zip(grid[1:], tile.shape[1:])], axis=0)
            weight = np.where(np.isnan(values), 0, weight)
            total += weight * np.nan_to_num(values)
            weights += weight
        return np.where(weights > 0, total / np.where(weights > 0, weights, 1), np.nan)

    def disagreement(self, tiles, at):
        shape = (tiles.shape[1], *[int(np.floor(at[:, d].max())) + tiles.shape[d + 1] for d in (1, 2)])
        stack = np.stack([self.sampled(tile, position, shape)[0] for tile, position in zip(tiles, at)])
        several = (~np.isnan(stack)).sum(0) >= 2
        return float(np.nanmean(np.nanstd(stack[:, several], axis=0)))

    @unittest.skipIf(ndimage is None, "SciPy is not installed")
    def test_a_grid_by_the_command_line(self):
        tiles, truth, stage = self.mosaic(2, 3, 80, 0.3)
        grid = np.vstack([np.hstack([tiles[r * 3 + c, 0] for c in range(3)]) for r in range(2)])
        scaled = np.clip(grid * 2000, 0, 65535).astype("<u2")
        path = os.path.join(self.daemon.directory, "grid.npy")
        np.save(path, scaled)
        name = json.loads(self.command("--json", "buffer", "put", path))["name"]
        where = os.path.join(self.daemon.directory, "stage.csv")
        with open(where, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["tile", "x_mm", "y_mm"])
            rows.writerows([i, x * 0.002, y * 0.002] for i, (_, y, x) in enumerate(stage))
        self.assertEqual(np.round(np.array(octavo.read_positions(where)), 9).tolist(), np.round(stage * 2, 9).tolist())
        out = os.path.join(self.daemon.directory, "positions.csv")
        text = self.command("mosaic", "register", name, "--spacing-um", "2", "--tile", "80,80", "--stage", where, "-o", out)
        self.assertRegex(text, r"6 tiles  7 joints: 7 used, 0 from the stage, 0 outliers")
        at = np.array(octavo.read_positions(out)) / 2
        off = (at - truth)[:, 1:]
        self.assertLess(np.abs(off - np.median(off, 0)).max(), 0.5)
        text = self.command("mosaic", "stitch", name, "--spacing-um", "2", "--tile", "80,80", "--positions", out, "--type", "f32", "--gap", "-1")
        made = self.client.buffers.read(text.split()[0])
        self.assertEqual(made.dtype, np.float32)
        self.assertEqual(made.shape[0], 1)
        self.assertGreater((made != -1).mean(), 0.9)
        # Shifts from each tile to the next one.
        steps = os.path.join(self.daemon.directory, "shifts.csv")
        with open(steps, "w") as file:
            file.write("fixed_id,moving_id,x_shift,y_shift,x_shift_mm,y_shift_mm\n")
            for i, (dy, dx) in enumerate(np.diff(stage[:, 1:], axis=0)):
                file.write(f"{i},{i + 1},{dx},{dy},{dx * 0.002},{dy * 0.002}\n")
        np.testing.assert_allclose(octavo.read_positions(steps), (stage - stage[0]) * 2, atol=1e-9)
        self.assertIn("6 tiles", self.command("mosaic", "register", name, "--spacing-um", "2", "--tile", "80,80", "--stage", steps))
        self.assertIn("x_um and y_um", self.command("mosaic", "stitch", name, "--spacing-um", "2", "--tile", "80,80", "--positions", path, code=2))

    def overlap(self, fixed, moving, interval, search, first):
        """The definition, with f64 means of whole arrays."""
        n = min(len(fixed), len(moving) - first)
        margin = min(fixed.shape[1:]) // 4
        middle = np.s_[:, margin:fixed.shape[1] - margin, margin:fixed.shape[2] - margin]
        expected = n - interval
        curve = []
        for o in range(max(1, expected - search), min(n, expected + search) + 1):
            pair = [v.astype(np.float64) for v in (fixed[len(fixed) - o:][middle], moving[first:first + o][middle])]
            f, m = ((v - v.mean()) / (v.std() + 1e-8) for v in pair)
            curve.append(float((f * m).mean()))
        return max(1, expected - search), curve

    def test_slabs_overlap(self):
        for dtype in ("<f4", "<u2", "u1"):
            height, width, true, first = int(self.random.integers(20, 50)), int(self.random.integers(20, 50)), 14, 3
            block = self.random.uniform(20, 200, (60, height, width)).astype(dtype)
            fixed, moving = block[:32], np.concatenate([block[:first], block[32 - true:32 - true + 25]])
            noisy = np.clip(moving + self.random.normal(0, 20, moving.shape), 0, 255).astype(dtype)
            spacing, interval = 0.1, 0.1 * (min(32, len(noisy) - first) - true + 2)
            got = self.client.mosaic.overlap(self.client.buffers.put(fixed), self.client.buffers.put(noisy), slicing_interval_um=interval,
                                             search_range_um=0.3, spacing_z_um=spacing, moving_first_plane=first)
            low, curve = self.overlap(fixed, noisy, round(interval / spacing), 3, first)
            self.assertEqual((got.first_overlap, len(got.correlations)), (low, len(curve)))
            np.testing.assert_allclose(got.correlations, curve, atol=1e-9)
            self.assertEqual((got.overlap, got.best_overlap, got.fallback), (true, true, False))
            self.assertEqual(got.expected_overlap, true - 2)
        a, b = (self.client.buffers.put(self.random.standard_normal((12, 16, 16)).astype("<f4")) for _ in range(2))
        got = self.client.mosaic.overlap(a, b, slicing_interval_um=4, search_range_um=2, spacing_z_um=1)
        self.assertEqual((got.overlap, got.fallback), (8, True))
        text = self.command("mosaic", "overlap", a.name, b.name, "--interval-um", "4", "--range-um", "2", "--spacing-z-um", "1", "--curve")
        self.assertRegex(text, r"^8 planes  not found; the expected overlap stands in: correlation ")
        self.assertEqual(len(text.splitlines()), 1 + 5)

    def test_the_example_of_the_page(self):
        with open(os.path.join(SOURCE, "client", "python", "MOSAIC.md")) as page:
            code = re.findall(r"```python\n(.*?)```", page.read(), re.S)[0]
        folder = os.path.join(self.daemon.directory, "page")
        os.makedirs(folder)
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
                              env={**os.environ, "OCTAVO_ADDRESS": self.daemon.address, "PYTHONPATH": os.path.join(BUILD, "python")})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"look at \[5\] residual 0\.\d+ um")
        self.assertIn("tile 5 of", done.stderr)
        for name in ("before.png", "after.png"):
            with open(os.path.join(folder, name), "rb") as picture:
                self.assertEqual(picture.read(8), b"\x89PNG\r\n\x1a\n")

    def test_mistakes_are_named(self):
        tiles = self.client.buffers.put(np.zeros((4, 20, 20), "<f4"))
        for call, what in ((lambda m: m.register(tiles, [[0, 0]] * 3, spacing_um=1), "stage_um"),
                           (lambda m: m.register(tiles, [[0, 0]] * 4, spacing_um=1, depth=3), "tiles.stack.depth"),
                           (lambda m: m.stitch(tiles, [[0, 0]] * 4, spacing_um=1, type="u8", gap=300), "gap"),
                           (lambda m: m.stitch(tiles, [[0, 1e8 * i] for i in range(4)], spacing_um=1), "position_um"),
                           (lambda m: m.overlap(tiles, tiles, slicing_interval_um=0, search_range_um=1, spacing_z_um=1), "slicing_interval_um")):
            with self.assertRaises(octavo.OctavoError) as error:
                call(self.client.mosaic)
            self.assertEqual(error.exception.field, what)
        with self.assertRaisesRegex(ValueError, "depth is 2 and tile is"):
            self.client.mosaic.register(tiles, [[0, 0]] * 4, spacing_um=1, depth=2, tile=(20, 20))
        with self.assertRaisesRegex(ValueError, r"position_um\[1\]"):
            self.client.mosaic.stitch(tiles, [[0, 0], 3, [0, 0], [0, 0]], spacing_um=1)
        with self.assertRaisesRegex(TypeError, "min_confidense"):
            self.client.mosaic.register(tiles, [[0, 0]] * 4, spacing_um=1, min_confidense=1)


if __name__ == "__main__":
    unittest.main()
