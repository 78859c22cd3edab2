"""Mosaics through the daemon: tiles of a phantom registered and stitched, slabs overlapped, against NumPy and SciPy; by Python and the command line."""

import csv
import json
import os
import re
import subprocess
import sys
import time
import unittest
import warnings

import numpy as np

from harness import BUILD, SOURCE, DaemonTest, octavo, until

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

    def held_volume(self):
        scan = self.client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(16, 8, volumes=1), processing=octavo.processing(dtype="u8"))
        return self.client.volumes(self.client.wait(scan.name).name)[0]

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
            # By chance a wrong tile agrees with a neighbour up to 0.7 in this texture, which has only a few large spots in an overlap; the right
            # ones agree to more than 0.9.
            found = self.client.mosaic.register(buffer, stage * spacing, spacing_um=spacing, depth=2, min_confidence=0.8)
        # The offsets of the stage are random: one may be so far from the others' that its tile counts as MOVED, too.
        self.assertEqual([i for i in found.suspects if found.tiles[i].state != "MOVED"], [wrong])
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

    @staticmethod
    def placed(section, gain, z, at, first, shape):
        """A section in the stack, linear between its voxels; NaN beyond it."""
        out = np.full(shape, np.nan)
        (y, ty), (x, tx) = ((int(np.ceil(p)), np.ceil(p) - p) for p in at)
        values = section[first:].astype(float)
        for axis, t in ((1, ty), (2, tx)):
            if t > 0:
                low, high = (np.take(values, range(a, values.shape[axis] - 1 + a), axis) for a in (0, 1))
                values = (1 - t) * low + t * high
        out[z:z + len(values), y:y + values.shape[1], x:x + values.shape[2]] = values * gain
        return out

    def stack_model(self, sections, at, overlaps, first, blend, match, valid_above):
        """What StackSections does, in NumPy; `at` in voxels of the result."""
        z = [0]
        for i, n in enumerate(overlaps):
            z.append(z[-1] + len(sections[i]) - (first if i else 0) - n)
        shape = (z[-1] + len(sections[-1]) - (first if overlaps else 0), *(int(max(np.floor(p[d]) + s.shape[d + 1] for p, s in zip(at, sections))) for d in (0, 1)))
        canvas, valid, gains = np.full(shape, np.nan), np.zeros(shape, bool), []
        for i, section in enumerate(sections):
            skipped, gain = (first if i else 0), 1.0
            moving = self.placed(section, 1, z[i], at[i], skipped, shape)
            with np.errstate(invalid="ignore"):
                joint = (moving > 0) & (canvas > 0)
                if match and i and joint.sum() > 1000:
                    gain = np.clip(np.median(canvas[joint]) / np.median(moving[joint]), 0.5, 2)
                    gain = 1.0 if abs(gain - 1) <= 0.01 else gain
                moving = moving * gain
                counts = moving > valid_above
            gains.append(gain)
            weight = np.ones(shape[0])
            if blend == "hann" and i and overlaps[i - 1] > 0:
                n = overlaps[i - 1]
                weight[z[i]:z[i] + n] = 0.5 * (1 - np.cos(np.linspace(0, np.pi, n))) if n > 1 else 0
            if blend == "earlier":
                weight[:] = 0
            weight = weight[:, None, None]
            blended = np.where(weight == 0, canvas, np.where(weight == 1, moving, canvas * (1 - weight) + moving * weight))
            take = np.where(valid & counts, blended, np.where(valid, canvas, np.where(np.isnan(moving), canvas, moving)))
            canvas, valid = take, valid | counts
        return canvas, z, gains

    def test_sections_are_stacked_as_numpy_does(self):
        for turn in range(10):
            dtype, count, first = ("<f4", "<u2", "u1")[turn % 3], int(self.random.integers(1, 5)), int(self.random.integers(0, 3))
            blend, whole, match = ("later", "earlier", "hann")[int(self.random.integers(3))], bool(self.random.integers(2)), bool(self.random.integers(2))
            sections, positions, overlaps = [], [], []
            for i in range(count):
                values = self.random.integers(0, 90, (int(self.random.integers(5, 12)), *self.random.integers(12, 30, 2))) * self.random.uniform(0.5, 2)
                section = values.astype(dtype)
                if dtype == "<f4":
                    section[self.random.random(section.shape) < 0.03] = np.nan
                sections.append(section)
                positions.append(self.random.uniform(-20, 20, 2))  # um; negative places, too
                if i:
                    overlaps.append(int(self.random.integers(0, min(len(sections[i - 1]) - (first if i > 1 else 0), len(section) - first) + 1)))
            spacing = (3.0, 2.0, 4.0)
            at = np.array(positions) / spacing[1:]
            if whole:
                at = np.rint(at)
            names = [self.client.buffers.put(one) for one in sections]
            made = self.client.mosaic.stack(names, positions, spacing_um=spacing, overlap=overlaps, moving_first_plane=first, blend=blend, whole_voxels=whole,
                                            match_intensity=match, type="f32", **({} if count > 1 else {"slicing_interval_um": 10}))
            wanted, z, gains = self.stack_model(sections, at - at.min(0), overlaps, first, blend, match, 0)
            got = made.buffer.read()
            self.assertEqual(got.shape, wanted.shape)
            self.assertEqual(made.total_z, len(wanted))
            self.assertEqual([one.first_plane for one in made.sections], z)
            np.testing.assert_allclose([one.gain for one in made.sections], gains, rtol=1e-5)
            np.testing.assert_allclose([made.origin_um.y, made.origin_um.x], at.min(0) * spacing[1:], atol=1e-6)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
            if match and dtype != "<f4":  # as the type of the sections: rounded, clipped, 0 where nothing is
                narrow = self.client.mosaic.stack(names, positions, spacing_um=spacing, overlap=overlaps, moving_first_plane=first, blend=blend,
                                                  whole_voxels=whole, match_intensity=match, **({} if count > 1 else {"slicing_interval_um": 10}))
                most = np.iinfo(dtype).max
                np.testing.assert_allclose(narrow.buffer.read(), np.clip(np.rint(np.nan_to_num(wanted)), 0, most), atol=1)

    @unittest.skipIf(ndimage is None, "SciPy is not installed")
    def test_a_phantom_cut_into_sections(self):
        """Overlaps are found exactly, places within 0.2 voxel; a pair that shows nothing is named."""
        block = sum(a * ndimage.gaussian_filter(self.random.standard_normal((110, 330, 330)).astype(np.float32), [s, 3 * s, 3 * s]) * s ** 1.5
                    for s, a in ((1.2, 1.0), (2.5, 1.0)))
        block = np.exp(0.8 * block / block.std()).astype(np.float32)
        planes, size, first = 26, 80, 2
        overlaps, z = [9, 8, 10, 9], 0
        sections, truth, stage, bright = [], [], [], []
        for i in range(5):
            if i:
                z += planes - overlaps[i - 1]
            at = np.array([10, 10]) + self.random.integers(-2, 3, 2)
            off = self.random.integers(-2, 3, 2) / 3  # the block has 3 samples to a voxel
            y, x = np.rint(3 * (at + off)).astype(int)
            cut = block[z:z + planes, y:y + 3 * size, x:x + 3 * size].reshape(planes, size, 3, size, 3).mean((2, 4))
            bright.append(1 if i == 0 else self.random.uniform(0.7, 1.4))
            noisy = bright[-1] * (cut + self.random.normal(0, 0.03, cut.shape))
            sections.append(noisy if i == 0 else np.concatenate([np.zeros((first, size, size)), noisy]))
            truth.append(at + off)
            stage.append(at)
        names = [self.client.buffers.put(one.astype("<f4")) for one in sections]
        spacing = (5.0, 2.0, 2.0)
        options = dict(spacing_um=spacing, moving_first_plane=first, slicing_interval_um=5.0 * (planes - 9), search_range_um=25, min_correlation=0.3)
        made = self.client.mosaic.stack(names, np.array(stage) * 2.0, refine_limit_um=8, match_intensity=True, blend="hann", center_on_middle=True, **options)
        self.assertEqual(list(made.suspects), [])
        self.assertEqual([one.overlap for one in made.sections], [0, *overlaps])
        self.assertEqual([one.overlap_state for one in made.sections][1:], ["FOUND"] * 4)
        at = np.array([[one.position_um.y, one.position_um.x] for one in made.sections]) / 2
        error = (at - at[0]) - (np.array(truth) - truth[0])
        print("shift error", np.abs(np.diff(error, axis=0)).max(), "voxels; gains", [round(one.gain * b, 3) for one, b in zip(made.sections, bright)])
        self.assertLessEqual(np.abs(np.diff(error, axis=0)).max(), 0.2)
        for one, b in zip(made.sections, bright):
            self.assertAlmostEqual(one.gain * b, 1, delta=0.03)
        # A section that shows something else is named, on the command line, too; its neighbours decide.
        other = self.client.buffers.put(self.random.uniform(1, 2, sections[2].shape).astype("<f4"))
        names[2] = other
        with self.assertWarnsRegex(octavo.OctavoWarning, "section 2 .*FALLBACK"):
            made = self.client.mosaic.stack(names, np.array(stage) * 2.0, **options)
        self.assertEqual(list(made.suspects), [2, 3])
        where = os.path.join(self.daemon.directory, "sections.csv")
        with open(where, "w") as file:
            file.write("fixed_id,moving_id,x_shift_mm,y_shift_mm\n")
            for i, (dy, dx) in enumerate(np.diff(stage, axis=0)):
                file.write(f"{i},{i + 1},{dx * 0.002},{dy * 0.002}\n")
        text = self.command("mosaic", "stack", *[one.name for one in names], "--positions", where, "--spacing-um", "5,2,2", "--interval-um", str(5 * (planes - 9)),
                            "--range-um", "25", "--min-correlation", "0.3", "--moving-first-plane", "2", "--center", "--refine-um", "8", "--match-intensity",
                            "--blend", "hann", "--type", "u16")
        self.assertRegex(text, r"section 1  planes 17 to 42  overlap 9 found \(correlation [01]\.\d+\)  shift .* um (applied|small)  gain")
        self.assertRegex(text, r"section 2 .*overlap 9 fallback")
        self.assertIn("one for each", self.command("mosaic", "stack", names[0].name, "--positions", where, "--spacing-um", "5", code=2))

    def resampled(self, tile, shape, corners):
        """linumpy's form, or scikit-image's at voxel centres."""
        tile = tile.astype(np.float64)
        sigma = [max(0, (n / m - 1) / 2) for n, m in zip(tile.shape, shape)]
        smooth = ndimage.gaussian_filter(tile, sigma, mode="reflect" if corners else "mirror")
        grid = [np.arange(m) * (n - 1) / max(m - 1, 1) if corners else (np.arange(m) + 0.5) * n / m - 0.5 for n, m in zip(tile.shape, shape)]
        return ndimage.map_coordinates(smooth, np.meshgrid(*grid, indexing="ij"), order=1, mode="nearest" if corners else "mirror")

    @unittest.skipIf(ndimage is None, "SciPy is not installed")
    def test_tiles_are_resampled_by_themselves(self):
        for corners in (False, True):
            grid = self.random.uniform(0, 60000, (6, 70, 101)).astype("<u2")  # tiles of 32 x 40: those at the ends are cut short
            made = self.client.mosaic.resample(self.client.buffers.put(grid), [7.5, 4.0, 3.0], spacing_um=[5.0, 2.0, 2.0], tile=(32, 40), type="f32",
                                               corner_aligned=corners)
            self.assertEqual((made.depth, made.tile_y, made.tile_x), (4, 16, 27))
            true = [5 * 5 / 3, 2 * 31 / 15, 2 * 39 / 26] if corners else [5 * 6 / 4, 2 * 32 / 16, 2 * 40 / 27]
            np.testing.assert_allclose([made.spacing_um.z, made.spacing_um.y, made.spacing_um.x], true, rtol=1e-12)
            rows = [np.concatenate([self.resampled(grid[:, y:y + 32, x:x + 40], (4, max(1, round(min(32, 70 - y) / 2)), max(1, round(min(40, 101 - x) * 2 / 3))), corners)
                                    for x in range(0, 101, 40)], axis=2) for y in range(0, 70, 32)]
            np.testing.assert_allclose(made.buffer.read(), np.concatenate(rows, axis=1), rtol=1e-5)
        stack = self.random.uniform(0, 1, (12, 20, 24)).astype("<f4")
        name = self.client.buffers.put(stack).name
        text = self.command("mosaic", "resample", name, "--spacing-um", "2", "--depth", "4", "--to-um", "4", "--corner-aligned")
        self.assertRegex(text, r"\[6, 10, 12\] F32 .*tiles of 2 x 10 x 12, 6, 4\.22222, 4\.18182 um")
        wanted = np.concatenate([self.resampled(stack[z:z + 4], (2, 10, 12), True) for z in (0, 4, 8)])
        np.testing.assert_allclose(self.client.buffers.read(text.split()[0]), wanted, rtol=1e-5)

    def test_a_call_is_cancelled_and_holds_up_nobody(self):
        """A registration of tiles that takes long: reads of others go on beside it, and it ends soon after its client has gone."""
        from octavo.v1 import mosaic_pb2, mosaic_pb2_grpc
        big = self.client.buffers.put(self.random.standard_normal((4, 1200, 1200)).astype("<f4"))
        small = self.client.buffers.put(np.arange(1000, dtype="<f4"))
        stub = mosaic_pb2_grpc.MosaicServiceStub(self.client.channel)
        request = mosaic_pb2.RegisterTilesRequest(stage_um=[mosaic_pb2.MosaicVector()] * 4)
        request.tiles.name = big.name
        request.tiles.stack.depth = 1
        request.tiles.spacing_um.y = request.tiles.spacing_um.x = 1
        calls = [stub.RegisterTiles.future(request, metadata=self.client._metadata) for _ in range(2)]
        until(lambda: any(call.done() for call in calls) or self.client.buffers.get(big.name).message.shared_leases == 2)
        if any(call.done() for call in calls):
            self.skipTest("the device is too fast")
        delays = []
        with octavo.Client(self.daemon.address) as other:
            end = time.monotonic() + 1
            while len(delays) < 20 or time.monotonic() < end:
                begun = time.monotonic()
                other.buffers.read(small.name)
                delays.append(time.monotonic() - begun)
        self.assertFalse(any(call.done() for call in calls))
        print("reads beside it took", [round(1000 * v) for v in sorted(delays)[-3:]], "ms at most")
        self.assertLess(max(delays), 10)
        with self.assertRaises(octavo.OctavoError) as refused:
            self.client.buffers.destroy(big.name)
        self.assertEqual(refused.exception.reason, "LEASED")
        begun = time.monotonic()
        for call in calls:
            call.cancel()
        while True:
            try:
                self.client.buffers.destroy(big.name)
                break
            except octavo.OctavoError as error:
                self.assertEqual(error.reason, "LEASED")
                self.assertLess(time.monotonic() - begun, 20)  # far less than the call takes; a transform of one pair is not interrupted
                time.sleep(0.01)
        print("over", round(1000 * (time.monotonic() - begun)), "ms after the cancellation")

    def test_volumes_whose_depth_is_elsewhere_are_refused(self):
        volume = self.held_volume()
        self.assertEqual(list(volume.axes), ["y", "x", "z"])
        for call, field in ((lambda **more: self.client.mosaic.overlap(volume.name, volume.name, slicing_interval_um=2, search_range_um=1, spacing_z_um=1, **more), "fixed"),
                            (lambda **more: self.client.mosaic.stitch(volume.name, [[0, 0]], spacing_um=1, depth=volume.shape[0], **more), "tiles.name"),
                            (lambda **more: self.client.mosaic.stack([volume.name], [[0, 0]], spacing_um=1, **more), "sections[0].name"),
                            (lambda **more: self.client.mosaic.resample(volume.name, 2, spacing_um=1, depth=1, **more), "tiles.name")):
            with self.assertRaisesRegex(octavo.OctavoError, r"\[y, x, z\]; allowed \[z, y, x\]") as error:
                call()
            self.assertEqual((error.exception.field, error.exception.reason), (field, "BAD_SHAPE"))
            call(axes_as_zyx=True)

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

    def test_positions_in_toml_name_their_unit(self):
        tiles = "".join(f"[[tile]]\nx = {x}\ny = {y}\nz = 0.5\n" for x, y in ((0, 0), (3.5, 1)))
        path = os.path.join(self.daemon.directory, "stage.toml")

        def wrote(head):
            with open(path, "w") as file:
                file.write(head + tiles)
            return path
        if sys.version_info < (3, 11):
            self.skipTest("Python reads TOML from 3.11 on")
        self.assertEqual(octavo.read_positions(wrote('unit = "um"\n')), [[0.5, 0, 0], [0.5, 1, 3.5]])
        self.assertEqual(octavo.read_positions(wrote('unit = "mm"\n')), [[500, 0, 0], [500, 1000, 3500]])
        buffer = self.client.buffers.put(np.zeros((2, 20, 20), "<f4"))
        for head, words in (("", "unit: is missing; allowed um, mm"), ('unit = "cm"\n', "unit: is 'cm'; allowed um, mm"), ("unit = 3\n", "unit: is 3; allowed um, mm"),
                            ("unit = []\n", "unit: is "), ('Unit = "um"\n', "unit: is missing")):
            for call in (lambda: octavo.read_positions(wrote(head)), lambda: self.client.mosaic.register(buffer, wrote(head), spacing_um=1),
                         lambda: self.client.mosaic.stitch(buffer, wrote(head), spacing_um=1)):
                with self.assertRaisesRegex(ValueError, words):
                    call()

    def test_brightness_that_is_not_matched_is_told(self):
        linear = self.random.uniform(1, 9, (8, 40, 40)).astype("<f4")
        names = [self.client.buffers.put(values) for values in (linear, 2 * linear, 10 * np.log10(linear / 100))]
        where = os.path.join(self.daemon.directory, "same.csv")
        with open(where, "w") as file:
            file.write("x_um,y_um\n0,0\n0,0\n0,0\n")
        options = dict(spacing_um=1, overlap=[4, 4])
        with self.assertWarnsRegex(octavo.OctavoWarning, rf"match_intensity did not match the brightness of section 2 \({names[2].name}: counted 0 voxels above 0\): "
                                                         r"an overlap has to have more than 1000 voxels \(gain_min_voxels\)"):
            made = self.client.mosaic.stack(names, [[0, 0]] * 3, match_intensity=True, **options)
        self.assertEqual([one.gain_voxels for one in made.sections][1:], [4 * 40 * 40, 0])
        half = linear.copy()
        half[:, :20] = 0
        half = self.client.buffers.put(half)
        with self.assertWarnsRegex(octavo.OctavoWarning, r"section 1 .*: counted 3200 voxels above 0\), section 2 .*: an overlap has to have more than 4000 voxels"):
            self.client.mosaic.stack([names[0], half, half], [[0, 0]] * 3, match_intensity=True, gain_min_voxels=4000, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("error", octavo.OctavoWarning)
            self.client.mosaic.stack(names, [[0, 0]] * 3, **options)  # not asked for
            self.client.mosaic.stack(names[:2], [[0, 0]] * 2, match_intensity=True, spacing_um=1, overlap=[4])  # all are matched
            # With valid_above=-1e300 dB are blended: in the middle of the overlap neither section is taken alone.
            mixed = self.client.mosaic.stack([names[2], names[2]], [[0, 0]] * 2, spacing_um=1, overlap=[4], blend="hann", valid_above=-1e300).buffer.read()
        decibels = names[2].read()
        weight = 0.5 * (1 - np.cos(np.linspace(0, np.pi, 4)))[:, None, None]
        np.testing.assert_allclose(mixed[4:8], (1 - weight) * decibels[4:] + weight * decibels[:4], rtol=1e-5)
        for json_flag in ((), ("--json",)):
            done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, *json_flag, "mosaic", "stack", *[one.name for one in names],
                                   "--positions", where, "--spacing-um", "1", "--overlap", "4,4", "--match-intensity"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("octavo: warning: --match-intensity did not match the brightness of section 2 (counted 0 voxels above 0): an overlap has to have more than 1000 "
                          "voxels (--gain-min-voxels)",
                          done.stderr)
            self.assertNotIn("section 1", done.stderr)

    def test_tiles_to_resample_say_how_they_lie(self):
        grid = self.client.buffers.put(np.zeros((4, 20, 20), "<f4"))
        with self.assertRaisesRegex(ValueError, r"depth and tile are missing; expected one of them: tile=\(height, width\)"):
            self.client.mosaic.resample(grid, 10, spacing_um=2)
        self.assertEqual(self.client.mosaic.resample(grid, 4, spacing_um=2, depth=1).buffer.shape, [4, 10, 10])
        self.assertEqual(self.client.mosaic.resample(grid, 4, spacing_um=2, tile=(10, 10)).buffer.shape, [2, 10, 10])
        self.assertIn("--tile: or --depth is missing", self.command("mosaic", "resample", grid.name, "--spacing-um", "2", "--to-um", "4", code=2))
        self.assertIn("tiles of 1 x 10 x 10", self.command("mosaic", "resample", grid.name, "--spacing-um", "2", "--to-um", "4", "--depth", "1"))

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
        # What would change nothing.
        for field, value, more in (("search_range_um", 3, dict(overlap=[2])), ("min_correlation", 0.2, dict(overlap=[2])), ("consistency_tolerance", 0.5, dict(overlap=[2])),
                                   ("consistency_min_pairs", 4, dict(overlap=[2])), ("consistency_min_correlation", 0.5, dict(overlap=[2])), ("refine_min_confidence", 0.3, {}),
                                   ("refine_min_correlation", 0.3, {}), ("gain_min_voxels", 10, {}), ("gain_least", 0.5, {}), ("gain_most", 3, {})):
            with self.assertRaises(octavo.OctavoError) as error:
                self.client.mosaic.stack([tiles, tiles], [[0, 0]] * 2, spacing_um=1, **{field: value}, **more)
            self.assertEqual((error.exception.code.name, error.exception.field), ("INVALID_ARGUMENT", field))
            self.assertIn("allowed unset", error.exception.message)
        with self.assertRaises(octavo.OctavoError) as error:
            self.client.mosaic.resample(tiles, 10, spacing_um=(0, 2, 2), depth=4)
        self.assertEqual(error.exception.field, "tiles.spacing_um.z")
        with self.assertRaisesRegex(ValueError, "depth is 2 and tile is"):
            self.client.mosaic.register(tiles, [[0, 0]] * 4, spacing_um=1, depth=2, tile=(20, 20))
        with self.assertRaisesRegex(ValueError, r"position_um\[1\]"):
            self.client.mosaic.stitch(tiles, [[0, 0], 3, [0, 0], [0, 0]], spacing_um=1)
        with self.assertRaisesRegex(TypeError, "min_confidense"):
            self.client.mosaic.register(tiles, [[0, 0]] * 4, spacing_um=1, min_confidense=1)


if __name__ == "__main__":
    unittest.main()
