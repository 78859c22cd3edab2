"""A phantom in tiles and sections before and after each correction: what a seam shows of it, and pictures (OCTAVO_TEST_PICTURES=folder)."""

import os
import unittest

import numpy as np

from harness import DaemonTest, octavo

try:
    from scipy import ndimage
except ImportError:
    ndimage = None
SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % (1 << 32)))
PICTURES = os.environ.get("OCTAVO_TEST_PICTURES")
ROWS, COLUMNS, SIZE, STEP = 3, 4, 120, 90


def picture(name, image, lo, hi):
    if PICTURES:
        octavo.write_png(os.path.join(PICTURES, f"mosaic_{name}.png"), np.repeat(np.repeat(image, 2, 0), 2, 1), lo, hi)


@unittest.skipIf(ndimage is None, "SciPy is not installed")
class Pictures(DaemonTest):
    def setUp(self):
        super().setUp()
        print("seed", SEED)
        self.random = np.random.default_rng(SEED)

    def texture(self, shape, sizes):
        """Blobs and fibres: bright on dark, of several sizes."""
        total = 0
        for size, amount in sizes:
            one = ndimage.gaussian_filter(self.random.standard_normal(shape, dtype=np.float32), size, mode="wrap")
            total = total + amount * one / one.std()
        return np.exp(0.5 * total).astype(np.float32)

    def tiles(self, flat=None):
        """Tiles [n, SIZE, SIZE] under an illumination, the places of the stage and the true ones, in voxels."""
        height, width = STEP * (ROWS - 1) + SIZE + 20, STEP * (COLUMNS - 1) + SIZE + 20
        fine = self.texture((4 * height, 4 * width), ((6, 1.0), (16, 1.2), (60, 0.6)))
        made, truth, stage = [], [], []
        for r in range(ROWS):
            for c in range(COLUMNS):
                at = np.array([10 + r * STEP, 10 + c * STEP])
                off = self.random.integers(-16, 17, 2) / 4
                y, x = ((at + off) * 4).astype(int)
                cut = fine[y:y + 4 * SIZE, x:x + 4 * SIZE].reshape(SIZE, 4, SIZE, 4).mean((1, 3))
                made.append(cut * (1 if flat is None else flat) * self.random.normal(1, 0.03, cut.shape))
                truth.append([0, *(at + off)])
                stage.append([0, *at])
        return np.array(made).astype("<f4"), np.array(truth), np.array(stage, float)

    @staticmethod
    def disagreement(tiles, at):
        """How much neighbours differ where they overlap, of the mean: at whole voxels."""
        at, errors = np.rint(at[:, 1:]).astype(int), []
        for i in range(len(tiles)):
            for j in range(i + 1, len(tiles)):
                d = at[j] - at[i]
                n = SIZE - np.abs(d)
                if (n >= 20).all() and n.max() > SIZE // 2:
                    y, x = np.maximum(d, 0)
                    a = tiles[i][y:y + n[0], x:x + n[1]]
                    b = tiles[j][y - d[0]:y - d[0] + n[0], x - d[1]:x - d[1] + n[1]]
                    errors.append(np.abs(a - b).mean() / (a + b).mean() * 2)
        return float(np.mean(errors))

    def test_illumination_and_registration(self):
        y, x = np.mgrid[-1:1:SIZE * 1j, -1:1:SIZE * 1j]
        flat = 1 - 0.3 * ((x - 0.2) ** 2 + (y + 0.1) ** 2)
        flat /= flat.mean()
        tiles, truth, stage = self.tiles(flat)
        m, buffers = self.client.mosaic, self.client.buffers
        raw = buffers.put(tiles)
        # Of two scenes: what the texture of twelve tiles leaves in their mean can be two thirds of the illumination.
        found = buffers.apply(buffers.put(np.concatenate([tiles, self.tiles(flat)[0]])).name, {"flat_field": {}})
        level = buffers.apply(raw.name, {"flatten": {"flat": found.name}})
        left = np.std(buffers.read(found.name) / flat)
        print(f"illumination {100 * flat.std():.1f} % before, {100 * left:.2f} % left")
        for name, buffer in (("illumination_before", raw), ("illumination_after", level)):
            picture(name, m.stitch(buffer.name, truth, spacing_um=1, blend="average").buffer.read()[0], 0, 3.5)
        flattened = buffers.read(level.name)
        self.assertLess(left, 0.8 * flat.std())
        # Tiles of strong texture leave some of the illumination, and all of the noise.
        self.assertLess(self.disagreement(flattened, truth), 0.8 * self.disagreement(tiles, truth))
        registered = m.register(level.name, stage, spacing_um=1, max_shift_um=10)
        at = np.array([[one.position_um.z, one.position_um.y, one.position_um.x] for one in registered.tiles])
        for name, positions in (("registration_before", stage), ("registration_after", registered)):
            picture(name, m.stitch(level.name, positions, spacing_um=1).buffer.read()[0], 0, 3.5)
        before, after = self.disagreement(flattened, stage), self.disagreement(flattened, at)
        print(f"neighbours differ by {100 * before:.1f} % as the stage has them, {100 * after:.1f} % registered")
        self.assertLess(after, 0.7 * before)

    def test_focal_curvature(self):
        tile, tiles, depth = 50, 4, 110
        x = np.arange(tile) / (tile - 1) * 2 - 1
        curve = np.tile(9 * (x * x - 1 / 3), tiles)
        along = np.arange(tile * tiles)
        sample = 45 + 0.03 * along + 3 * np.sin(along / 30)  # tilted, and not flat
        sample = np.broadcast_to(sample, (2 * tile, tile * tiles))
        top = sample + curve + 9 * (np.tile(x, 2) ** 2 - 1 / 3)[:, None]
        z = np.arange(depth)
        tissue = self.texture((2 * tile, tile * tiles, depth), ((1.5, 1.0), (4, 0.8)))
        volume = np.where(z >= top[..., None], tissue * np.exp(-np.maximum(z - top[..., None], 0) / 40), 0.08)
        volume = (volume + self.random.normal(0, 0.03, volume.shape)).astype(np.float32)
        b, find = self.client.buffers, {"surface": {"axis": 2, "lateral_sigma": 1}}
        source = b.put(volume)
        amounts = b.apply(source.name, find, {"focal_curvature": {"tile": [tile, tile]}})
        moved = b.apply(source.name, {"shift": {"axis": 2, "amounts": amounts.name}})

        def bend(buffer):
            surface = b.read(b.apply(buffer.name, find).name)
            return float(np.sqrt(np.nanmean((surface - sample - np.nanmean(surface - sample)) ** 2)))

        for name, buffer in (("curvature_before", source), ("curvature_after", moved)):
            picture(name, b.read(buffer.name)[25].T, 0, 2.5)
        planted = top - sample
        left = np.std(b.read(amounts.name) + planted)
        print(f"curvature {np.std(planted):.2f} samples before, {left:.2f} left; the surface as it is found is off by {bend(source):.2f} and {bend(moved):.2f}")
        self.assertLess(left, 0.4 * np.std(planted))
        self.assertLess(bend(moved), bend(source))

    def test_brightness_and_blending_of_sections(self):
        planes, overlap, side = 30, 8, 90
        block = self.texture((4 * (planes - overlap) + planes, side + 20, side + 20), ((1.5, 1.0), (4, 1.2)))
        sections, positions, z = [], [], 0
        for i in range(4):
            at = self.random.integers(0, 20, 2)
            fade = np.exp(-np.arange(planes) / 60)[:, None, None]  # light that does not come so deep
            cut = block[z:z + planes, at[0]:at[0] + side, at[1]:at[1] + side]
            sections.append((cut * fade * (1, 0.65, 1.25, 0.8)[i] * self.random.normal(1, 0.05, cut.shape)).astype("<f4"))
            positions.append([*at])
            z += planes - overlap
        names = [self.client.buffers.put(one) for one in sections]
        seams, low = {}, np.min(positions, 0)
        for name, options in (("sections_before", {}), ("sections_intensity", dict(match_intensity=True)), ("sections_hann", dict(match_intensity=True, blend="hann"))):
            made = self.client.mosaic.stack(names, positions, spacing_um=1, slicing_interval_um=planes - overlap, search_range_um=5, min_correlation=0.3, **options)
            self.assertEqual([one.overlap for one in made.sections], [0] + 3 * [overlap])
            volume = made.buffer.read()
            picture(name, volume[:, volume.shape[1] // 2], 0, 3)
            # Where the stack has brightness that the block has not: its mean of each plane, of the
            # block's mean at the same place, which the texture's own steps do not disturb.
            true = block[:len(volume), low[0] + 30:low[0] + 70, low[1] + 30:low[1] + 70].mean((1, 2))
            gain = np.log(np.nan_to_num(volume)[:, 30:70, 30:70].mean((1, 2)) / true)
            seams[name] = float(np.abs(np.diff(gain)).max())
        print("the largest step of brightness from plane to plane", {name: round(step, 3) for name, step in seams.items()})
        self.assertLess(seams["sections_intensity"], seams["sections_before"])
        self.assertLess(seams["sections_hann"], 0.75 * seams["sections_intensity"])


if __name__ == "__main__":
    unittest.main()
