"""octavo.linumpy against models in NumPy and SciPy of what linumpy's functions do, and the script of client/python/MOSAIC.md, whose only change
is its imports. The seed is printed, and OCTAVO_TEST_SEED repeats it."""

import json
import math
import os
import re
import subprocess
import sys
import unittest
import warnings

import numpy as np

from harness import BUILD, SOURCE, DaemonTest, octavo
from zarr_writers import multiscale, write_group, write_v2, write_v3

from octavo import linumpy
from octavo.linumpy import gpu
from octavo.linumpy.geometry.interface import detect_interface_z, find_tissue_interface
from octavo.linumpy.gpu.interpolation import affine_transform, apply_displacement_field, map_coordinates, resample_volume, resize
from octavo.linumpy.gpu.zarr_io import read_zarr_to_gpu
from octavo.linumpy.io.zarr import AnalysisOmeZarrWriter, OmeZarrWriter, read_omezarr, save_omezarr
from octavo.linumpy.microscope.oct import OCT
from octavo.linumpy.mosaic import grid
from octavo.linumpy.mosaic.stacking import blend_overlap_z, enforce_z_consistency, find_z_overlap

try:
    from scipy import ndimage
except ImportError:
    ndimage = None
SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % (1 << 32)))


# -- models

def model_resize(image, shape, order=1, anti_aliasing=True):
    image = image.astype(np.float32)
    factors = [n / m for n, m in zip(image.shape, shape)]
    sigma = [max(0, (f - 1) / 2) for f in factors]
    if anti_aliasing and any(sigma):
        image = ndimage.gaussian_filter(image, sigma, mode="reflect")
    at = [np.minimum(np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0), n - 1) for n, m in zip(image.shape, shape)]
    return ndimage.map_coordinates(image.astype(np.float64), np.meshgrid(*at, indexing="ij"), order=order, mode="mirror" if order == 3 else "nearest")


def model_interface(vol, s_xy, s_z, use_log=True, mask=None, order=1, cutting=False):
    """The columns' rises, so that ties can be told apart, and the depths."""
    v = vol.astype(np.float32)
    if use_log:
        v = np.where(v > 0, np.log(np.where(v > 0, v, 1)), v)
    v = ndimage.uniform_filter(v, (int(s_xy), int(s_xy), 0))

    def along(o):
        if mask is None:
            return ndimage.gaussian_filter1d(v, s_z, axis=2, order=o)
        out = np.zeros_like(v)
        for x, y in np.ndindex(v.shape[:2]):
            chosen = mask[x, y] != 0
            if chosen.any():
                out[x, y, chosen] = ndimage.gaussian_filter1d(v[x, y, chosen], s_z, order=o)
        return out
    z0 = np.ceil(along(order).argmax(2) + 0.5 * s_z)
    if cutting:
        z0 = np.minimum(z0, np.abs(along(0)).argmax(2))
    return np.minimum(z0, vol.shape[2] - 1).astype(int)


def model_interface_z(vol, sigma_xy=3.0, sigma_z=2.0, use_log=False):
    v = vol.astype(np.float32)
    if use_log:
        v = np.log(v + np.float32(1e-6))
    pad = round(4 * sigma_z)
    means = v.mean(2)
    some = means[means != 0]
    columns = means > np.percentile(some, 5)
    padded = np.concatenate([np.repeat(v[..., :1], pad, 2), v], 2)
    rises = ndimage.gaussian_filter1d(ndimage.gaussian_filter(padded, (sigma_xy, sigma_xy, 0)), sigma_z, axis=2, order=1)
    return max(0, int(rises[columns].sum(0).argmax()) - pad)


def model_overlap(fixed, moving, interval_mm, range_mm, resolution_um):
    interval, reach = round(interval_mm * 1000 / resolution_um), round(range_mm * 1000 / resolution_um)
    n = min(len(fixed), len(moving))
    expected = n - interval
    low, high = max(1, expected - reach), min(n, expected + reach)
    if low > high:
        return max(0, expected), 0.0
    margin = min(fixed.shape[1:]) // 4
    inside = (slice(None), slice(margin, fixed.shape[1] - margin), slice(margin, fixed.shape[2] - margin))
    best = (0, -2.0)
    for overlap in range(low, high + 1):
        f, m = fixed[-overlap:][inside].astype(float), moving[:overlap][inside].astype(float)
        f, m = ((one - one.mean()) / (one.std() + 1e-8) for one in (f, m))
        if (f * m).mean() > best[1]:
            best = overlap, float((f * m).mean())
    return best


def model_blend(fixed, moving):
    fixed, moving = fixed.astype(np.float32), moving.astype(np.float32)
    if len(fixed) <= 1:
        return moving if (moving > 0).sum() > (fixed > 0).sum() else fixed
    w = (0.5 * (1 - np.cos(np.linspace(0, np.pi, len(fixed)))))[:, None, None].astype(np.float32)
    both = fixed + (moving - fixed) * w
    return np.where(fixed > 0, np.where(moving > 0, both, fixed), np.where(moving > 0, moving, 0))


@unittest.skipIf(ndimage is None, "no SciPy for this Python")
class Linumpy(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        linumpy.use(cls.client)

    @classmethod
    def tearDownClass(cls):
        linumpy.use(None)
        super().tearDownClass()

    def setUp(self):
        print("seed", SEED)
        self.random = np.random.default_rng(SEED)
        warnings.simplefilter("error", octavo.OctavoWarning)
        self.addCleanup(warnings.resetwarnings)

    def tearDown(self):
        super().tearDown()
        left = [buffer.name for buffer in self.client.buffers.list()]
        for name in left:
            self.client.buffers.destroy(name)
        self.assertEqual(left, [], "buffers that the functions have left on the device")

    def path(self, name):
        return os.path.join(self.daemon.root, name)

    def image(self, rank, dtype="f4", most=24):
        shape = tuple(int(n) for n in self.random.integers(2, most, rank))
        values = self.random.normal(100, 40, shape)
        return np.rint(values).clip(0, 200).astype(dtype) if np.dtype(dtype).kind in "iu" else values.astype(dtype)

    def on_device(self, function, *arguments, **fields):
        """The same with buffers: the result stays on the device."""
        given = [self.client.buffers.put(one) if isinstance(one, np.ndarray) and one.ndim > 0 else one for one in arguments]
        made = function(*given, **fields)
        self.assertIsInstance(made, octavo.Buffer)
        out = made.read()
        for buffer in [made, *given]:
            if isinstance(buffer, octavo.Buffer):
                buffer.destroy()
        return out

    # -- interpolation

    def test_resize(self):
        for order in (0, 1, 3):
            for rank in (1, 2, 3):
                for anti_aliasing in (True, False):
                    image = self.image(rank, self.random.choice(["f4", "u2", "u1", "f8"]))
                    shape = tuple(int(n) for n in self.random.integers(1, 30, rank))
                    with self.subTest(order=order, of=image.shape, to=shape, anti_aliasing=anti_aliasing, dtype=image.dtype):
                        got, wanted = resize(image, shape, order, anti_aliasing), model_resize(image, shape, order, anti_aliasing)
                        self.assertEqual((got.dtype, got.shape), (np.float32, shape))
                        near = np.abs(got - wanted) < 2e-3
                        if order == 0:  # half way between two samples either is right
                            self.assertGreater(near.mean(), 0.6)
                        else:
                            self.assertTrue(near.all(), np.abs(got - wanted).max())
        image = self.image(2)
        np.testing.assert_array_equal(self.on_device(resize, image, (5, 7)), resize(image, (5, 7)))
        # Where linumpy's last sample is 0, it is the image's here.
        ramp = np.arange(1, 9, dtype=np.float32)
        for extent in (26, 42):
            self.assertEqual(resize(ramp, (extent,))[-1], 8)
        self.assertEqual(resize(np.arange(10, dtype=np.float32), (1,), anti_aliasing=False).tolist(), [0])
        for bad, text in (((0, 3), "whole numbers from 1"), ((3,), "expected 2"), ((2.5, 3), "whole numbers")):
            with self.assertRaisesRegex(ValueError, text):
                resize(self.image(2), bad)
        with self.assertRaisesRegex(ValueError, "order is 2; expected 0"):
            resize(self.image(2), (3, 3), order=2)
        with self.assertRaisesRegex(ValueError, "expected real numbers"):
            resize(self.image(2).astype("c8"), (3, 3))

    def test_affine_transform(self):
        for order in (0, 1, 3):
            for rank in (2, 3):
                image = self.image(rank)
                matrix = np.eye(rank) + self.random.uniform(-0.2, 0.2, (rank, rank))
                offset = self.random.uniform(-2, 2, rank)
                homogeneous = np.eye(rank + 1)
                homogeneous[:rank, :rank], homogeneous[:rank, rank] = matrix, offset
                shape = tuple(int(n) for n in self.random.integers(2, 20, rank))
                with self.subTest(order=order, of=image.shape, to=shape):
                    wanted = ndimage.affine_transform(image.astype(float), matrix, output_shape=shape, order=order, mode="constant")
                    got = affine_transform(image, matrix, shape, order)
                    self.assertGreater((np.abs(got - wanted) < 2e-3).mean(), 0.99)
                    wanted = ndimage.affine_transform(image.astype(float), matrix, offset, order=order, mode="constant")
                    for form in (homogeneous, homogeneous[:rank]):
                        self.assertGreater((np.abs(affine_transform(image, form, order=order) - wanted) < 2e-3).mean(), 0.99)
        image = self.image(3, "u2")
        self.assertEqual(affine_transform(image, np.eye(3)).dtype, np.uint16)
        np.testing.assert_array_equal(self.on_device(affine_transform, image, matrix=np.eye(3)), image)
        for bad in (np.eye(2), np.full((3, 3), np.nan), np.diag([1, 1, 1, 2.0])):
            with self.assertRaises(ValueError):
                affine_transform(image, bad)

    def test_map_coordinates_and_displacements(self):
        for order in (0, 1, 3):
            for rank, of in ((1, 1), (2, 1), (2, 2), (3, 2), (3, 3)):
                image = self.image(rank, "f8")
                where = tuple(int(n) for n in self.random.integers(1, 9, of))
                at = self.random.uniform(-1, 1.2, (rank, *where)) * np.reshape(image.shape, (-1,) + (1,) * of)
                with self.subTest(order=order, of=image.shape, at=where):
                    got = map_coordinates(image, at, order)
                    self.assertEqual(got.shape, where)
                    wanted = ndimage.map_coordinates(image, at, order=order, mode="constant")
                    self.assertGreater((np.abs(got - wanted) < 1e-6).mean(), 0.9 if order == 0 else 0.999)
        for rank in (1, 2, 3):
            image = self.image(rank, "f4", 10)
            field = self.random.uniform(-2, 2, (rank, *image.shape))
            wanted = ndimage.map_coordinates(image.astype(float), np.indices(image.shape) + field, order=1, mode="constant")
            np.testing.assert_allclose(apply_displacement_field(image, field), wanted, atol=2e-3)
        with self.assertRaisesRegex(ValueError, "displacement_field has the shape"):
            apply_displacement_field(image, field[:2])
        with self.assertRaisesRegex(ValueError, "coordinates has the shape"):
            map_coordinates(image, np.zeros((2, 4)))

    def test_resample_volume(self):
        volume = self.image(3, most=30)
        got = resample_volume(volume, (10, 4, 4), 8)
        shape = tuple(max(1, int(n * now / 8)) for n, now in zip(volume.shape, (10, 4, 4)))
        self.assertEqual(got.shape, shape)
        np.testing.assert_allclose(got, model_resize(volume, shape), atol=2e-3)
        self.assertEqual(resample_volume(volume, 1, 1000).shape, (1, 1, 1))
        with self.assertRaisesRegex(ValueError, "target_spacing is 0"):
            resample_volume(volume, 1, 0)

    # -- interfaces

    def tissue(self, shape=(30, 26, 70)):
        x, y, z = (np.arange(n).reshape(one) for n, one in zip(shape, ((-1, 1, 1), (1, -1, 1), (1, 1, -1))))
        top = 25 + 6 * np.sin(x / 7) + 4 * np.cos(y / 6)
        return 100 + self.random.normal(0, 8, shape) + np.where(z >= top, 250 * np.exp(-np.maximum(z - top, 0) / 30), 0), top[..., 0]

    def test_find_tissue_interface(self):
        volume, top = self.tissue()
        for dtype in ("f4", "u2"):
            for fields in (dict(), dict(s_xy=3, s_z=1.5), dict(use_log=False), dict(s_xy=3.9), dict(s_xy=0, order=2), dict(detect_cutting_errors=True)):
                with self.subTest(dtype=dtype, **fields):
                    array = volume.astype(dtype)
                    got = find_tissue_interface(array, **fields)
                    self.assertEqual((got.dtype, got.shape), (np.int64, array.shape[:2]))
                    model = {"s_xy": 15, "s_z": 2, **fields}
                    model["cutting"] = model.pop("detect_cutting_errors", False)
                    self.assertGreaterEqual((got == model_interface(array, **model)).mean(), 0.97)
        self.assertLess(np.abs(find_tissue_interface(volume, s_xy=3) - top).mean(), 3)
        mask = self.random.random(volume.shape) < 0.8
        mask[3, 4] = False
        got = find_tissue_interface(volume, s_xy=3, mask=mask)
        self.assertEqual(got[3, 4], 1)  # ceil(s_z / 2), as linumpy has it
        self.assertGreaterEqual((got == model_interface(volume, 3, 2, mask=mask)).mean(), 0.97)
        # A rise at the very last sample: linumpy leaves the volume.
        last = np.ones((4, 4, 20), np.float32)
        last[..., -2:] = 0.5, 100
        rise = ndimage.gaussian_filter1d(np.log(last), 0.4, axis=2, order=1)[0, 0].argmax()
        self.assertEqual(np.ceil(rise + 0.4 / 2), 20)
        np.testing.assert_array_equal(find_tissue_interface(last, s_xy=1, s_z=0.4), 19)
        found = self.on_device(find_tissue_interface, volume.astype("f4"), s_xy=3)
        np.testing.assert_array_equal(found, find_tissue_interface(volume.astype("f4"), s_xy=3))
        with self.assertRaisesRegex(ValueError, "mask has the shape"):
            find_tissue_interface(volume, mask=mask[:2])
        with self.assertRaisesRegex(ValueError, "expected 3 axes"):
            find_tissue_interface(volume[0])

    def test_detect_interface_z(self):
        for turn in range(6):
            volume, _ = self.tissue((20, 18, int(self.random.integers(45, 80))))
            if turn % 2:
                volume[:4] = 0
            fields = dict(sigma_xy=float(self.random.uniform(0, 4)), sigma_z=float(self.random.uniform(0.8, 3)), use_log=bool(turn % 3 == 0))
            with self.subTest(**fields):
                array = np.maximum(volume, 0).astype("f4" if turn % 2 else "u2")
                got = detect_interface_z(array, **fields)
                self.assertIsInstance(got, int)
                self.assertLessEqual(abs(got - model_interface_z(array, **fields)), 1)  # f32 and f64 sums of equal rises
        self.assertEqual(detect_interface_z(np.ones((3, 4, 20), "f4") * np.linspace(9, 1, 20, dtype="f4")), 0)  # it begins in tissue
        with self.assertRaisesRegex(ValueError, "sigma_z is 0"):
            detect_interface_z(volume, sigma_z=0)

    # -- sections

    def test_find_z_overlap(self):
        whole = ndimage.gaussian_filter(self.random.normal(0, 1, (70, 40, 44)), (1, 2, 2)) * 50 + 200
        for overlap in (9, 14, 21):
            fixed, moving = whole[:40], whole[40 - overlap:]
            moving = (moving + self.random.normal(0, 2, moving.shape))[:40]
            fields = dict(slicing_interval_mm=0.27, search_range_mm=0.12, resolution_um=10)
            with self.subTest(overlap=overlap):
                got = find_z_overlap(fixed.astype("f4"), moving.astype("f4"), **fields)
                wanted = model_overlap(fixed.astype("f4"), moving.astype("f4"), 0.27, 0.12, 10)
                self.assertEqual(got[0], wanted[0])
                self.assertAlmostEqual(got[1], wanted[1], places=4)
                if abs(40 - 27 - overlap) <= 12:
                    self.assertEqual(got[0], overlap)
        # 0.3 / 0.1 is 3 here.
        self.assertEqual(find_z_overlap(fixed[:4].astype("f4"), moving[:4].astype("f4"), 0.3, 0, 100)[0], 1)
        with self.assertWarnsRegex(octavo.OctavoWarning, "the overlap was not found, because no overlap within search_range_mm .0. .*: 0 planes are expected"):
            self.assertEqual(find_z_overlap(fixed[:4].astype("f4"), moving[:4].astype("f4"), 1.0, 0, 100), (0, 0.0))
        with warnings.catch_warnings():
            warnings.simplefilter("error", octavo.OctavoWarning)  # of a search that finds one, none
            find_z_overlap(fixed.astype("f4"), moving.astype("f4"), **fields)
        with self.assertRaises(octavo.OctavoError):
            find_z_overlap(fixed, moving, -1, 0.1, 10)

    def test_enforce_z_consistency(self):
        def matches(*overlaps):
            return [dict(fixed_id=i, moving_id=i + 1, overlap_voxels=one, blend_overlap_voxels=one) for i, one in enumerate(overlaps)]
        out, corrections = enforce_z_consistency(matches(10, 11, 40, 9, 10))
        self.assertEqual([one["overlap_voxels"] for one in out], [10, 11, 10, 9, 10])
        self.assertEqual([(one["moving_id"], one["field"], one["old"], one["new"]) for one in corrections], [(3, "overlap_voxels", 40, 10), (3, "blend_overlap_voxels", 40, 10)])
        self.assertEqual(enforce_z_consistency(matches(10, 11, 40, 9), confidence_per_slice={3: 0.6})[1], [])
        self.assertNotEqual(enforce_z_consistency(matches(10, 11, 40, 9), confidence_per_slice={3: 0.59})[1], [])
        self.assertEqual(enforce_z_consistency(matches(10, 40))[1], [])
        self.assertEqual(enforce_z_consistency(matches(40, 10, 11, 10))[0][0]["overlap_voxels"], 10)
        given = matches(10, 11, 40)
        enforce_z_consistency(given)
        self.assertEqual(given[2]["overlap_voxels"], 40)  # what was given stays

    def test_blend_overlap_z(self):
        for depth in (1, 2, 9):
            for dtype in ("f4", "u2"):
                shape = (depth, 12, 14)
                fixed, moving = (np.where(self.random.random(shape) < 0.8, self.random.uniform(1, 900, shape), 0).astype(dtype) for _ in range(2))
                with self.subTest(depth=depth, dtype=dtype):
                    got = blend_overlap_z(fixed, moving)
                    self.assertEqual(got.dtype, np.float32)
                    np.testing.assert_allclose(got, model_blend(fixed, moving), rtol=1e-5, atol=1e-3)
                    np.testing.assert_array_equal(self.on_device(blend_overlap_z, fixed, moving), got)
        with self.assertRaisesRegex(ValueError, "another shape"):
            blend_overlap_z(fixed, moving[:2])

    # -- grids

    def grid(self, tile=(40, 50), rows=130, columns=170, depth=90):
        y, x = np.arange(rows)[:, None] % tile[0] / (tile[0] - 1) * 2 - 1, np.arange(columns) % tile[1] / (tile[1] - 1) * 2 - 1
        curve = 5 * (y * y - 0.35) + 4 * (x * x - 0.35)
        heights = np.repeat(np.repeat(self.random.uniform(38, 42, (4, 4)), tile[0], 0), tile[1], 1)[:rows, :columns]
        z = np.arange(depth)[:, None, None]
        top = heights + curve
        volume = 800 + self.random.normal(0, 60, (depth, rows, columns)) + np.where(z >= top, 1500 * np.exp(-np.maximum(z - top, 0) / 40), 0)
        return volume.astype(np.float32), heights, curve

    def test_focal_curvature(self):
        volume, heights, curve = self.grid()
        for algorithm in ("quadratic", "basic"):
            with self.subTest(algorithm=algorithm):
                found = grid.detect_focal_curvature(volume, (40, 50), use_log=False, algorithm=algorithm)
                self.assertEqual((found.dtype, found.shape), (np.float32, volume.shape[1:]))
                error = found - curve
                self.assertLess(np.sqrt(np.mean((error - error.mean()) ** 2)), 1.2)
        for fields in (dict(), dict(wrap=True), dict(fractional=False), dict(fractional=False, wrap=True)):
            with self.subTest(**fields):
                amounts = grid.detect_focal_curvature(volume, (40, 50), use_log=False)
                if not fields.get("fractional", True):
                    amounts = np.trunc(amounts)
                got = grid.fix_focal_curvature(volume, (40, 50), use_log=False, **fields)
                z = np.arange(len(volume))[:, None, None] + amounts
                low = np.floor(z).astype(int)
                part = (z - low).astype(np.float32)
                columns = np.arange(volume.shape[1])[None, :, None], np.arange(volume.shape[2])[None, None, :]
                if fields.get("wrap"):
                    wanted = (1 - part) * volume[(low % len(volume), *columns)] + part * volume[((low + 1) % len(volume), *columns)]
                else:
                    inside = (z >= 0) & (z <= len(volume) - 1)
                    wanted = np.where(inside, (1 - part) * volume[(low.clip(0, len(volume) - 1), *columns)] + part * volume[((low + 1).clip(0, len(volume) - 1), *columns)], 0)
                    edge = (np.abs(z) < 1e-3) | (np.abs(z - len(volume) + 1) < 1e-3)
                    wanted, got = np.where(edge, 0, wanted), np.where(edge, 0, got)
                np.testing.assert_allclose(got, wanted, atol=1.5)
        after = find_tissue_interface(np.ascontiguousarray(np.moveaxis(grid.fix_focal_curvature(volume, (40, 50), use_log=False), 0, 2)), s_xy=3, use_log=False)
        before = find_tissue_interface(np.ascontiguousarray(np.moveaxis(volume, 0, 2)), s_xy=3, use_log=False)
        bend = [np.std(one - heights) for one in (before, after)]
        print(f"curvature {bend[0]:.2f} samples before, {bend[1]:.2f} after")
        self.assertLess(bend[1], 0.6 * bend[0])
        with self.assertRaisesRegex(ValueError, "tile_shape is"):
            grid.detect_focal_curvature(volume, (40,))
        with self.assertRaisesRegex(ValueError, "algorithm is 'other'"):
            grid.detect_focal_curvature(volume, (40, 50), algorithm="other")

    def test_illumination_and_projections(self):
        tile = (36, 44)
        y, x = np.mgrid[-1:1:36j, -1:1:44j]
        flat = 1 - 0.2 * ((x - 0.2) ** 2 + (y + 0.1) ** 2) + 0.1 * x
        flat /= flat.mean()
        plain = np.block([[self.random.uniform(300, 3000) * self.random.normal(1, 0.03, tile) for _ in range(4)] for _ in range(4)])
        shaded = (plain * np.tile(flat, (4, 4))).astype(np.float32)[:130, :160]  # the last tiles are partial
        for algorithm in ("quadratic", "basic"):
            with self.subTest(algorithm=algorithm):
                found = grid.detect_flatfield(shaded, tile, algorithm=algorithm)
                self.assertLess(np.std(found / flat), 0.012)
                fixed = grid.fix_illumination(shaded, tile, algorithm=algorithm)
                np.testing.assert_allclose(fixed, shaded / np.tile(found, (4, 4))[:130, :160], rtol=1e-5)
        volume = np.stack([shaded, 2 * shaded])
        np.testing.assert_allclose(grid.aip(volume), 1.5 * shaded, rtol=1e-5)
        np.testing.assert_allclose(grid.aip((volume * (0.6 + 0.8j)).astype("c8")), 1.5 * shaded, rtol=1e-5)
        np.testing.assert_allclose(grid.fix_illumination(volume, tile, found), volume / np.tile(found, (4, 4))[:130, :160], rtol=1e-5)
        np.testing.assert_allclose(self.on_device(grid.fix_illumination, volume, tile), grid.fix_illumination(volume, tile), rtol=1e-5)
        with self.assertRaisesRegex(ValueError, "expected 2 or more"):
            grid.detect_flatfield(shaded, (100, 100))
        with self.assertRaisesRegex(ValueError, "flatfield has the shape"):
            grid.fix_illumination(shaded, tile, np.ones((2, 2)))

    def test_stitch(self):
        whole = ndimage.gaussian_filter(self.random.normal(0, 1, (2, 60, 70)), (0, 2, 2)).astype(np.float32)
        at = [(r, c) for r in (0, 25) for c in (0, 30)]
        tiles = np.concatenate([np.concatenate([whole[:, r:r + 35, c:c + 40] for c in (0, 30)], 2) for r in (0, 25)], 1)
        made, origin = grid.stitch_tiles(tiles, (35, 40), at)
        self.assertEqual((made.shape, origin), ((2, 60, 70), (0, 0, 0)))
        np.testing.assert_allclose(made, whole, atol=1e-4)

    # -- files

    def test_read_omezarr(self):
        for version in ("0.4", "0.5"):
            levels = [self.random.integers(0, 999, (12, 10, 14)).astype("u2"), self.random.integers(0, 999, (6, 5, 7)).astype("u2")]
            name = f"image{version}.ome.zarr"
            for k, level in enumerate(levels):
                if version == "0.4":
                    write_v2(self.path(f"{name}/{k}"), level, (4, 5, 7))
                else:
                    write_v3(self.path(f"{name}/{k}"), level, (4, 5, 7))
            axes = [("z", "space", "millimeter"), ("y", "space", "micrometer"), ("x", "space", None)]
            write_group(self.path(name), version, [multiscale(axes, [(str(k), (0.01 * 2**k, 10 * 2**k, 0.02 * 2**k), None) for k in range(2)])])
            with self.subTest(version=version):
                image, resolution = read_omezarr(self.path(name))
                self.assertEqual((image.shape, image.dtype, image.chunks, image.shards, image.ndim, len(image)), ((12, 10, 14), np.uint16, (4, 5, 7), None, 3, 12))
                np.testing.assert_allclose(resolution, (0.01, 0.01, 0.02))  # mm
                np.testing.assert_array_equal(image[:], levels[0])
                np.testing.assert_array_equal(np.asarray(image), levels[0])
                for key in (3, -1, slice(2, 9), (slice(None), 4), (Ellipsis, slice(3, 9, 2)), (slice(9, 2, -3), slice(None, None, -1), 5), (1, 2, 3), slice(5, 5)):
                    np.testing.assert_array_equal(image[key], levels[0][key], err_msg=str(key))
                coarse, resolution = read_omezarr(self.path(name), level=1)
                np.testing.assert_array_equal(coarse[...], levels[1])
                np.testing.assert_allclose(resolution, (0.02, 0.02, 0.04))
                buffer = image.buffer(start=[1, 2, 3], count=[4, 5, 6])
                np.testing.assert_array_equal(buffer.read(), levels[0][1:5, 2:7, 3:9])
                buffer.destroy()
                buffer = read_zarr_to_gpu(self.path(name), level=1)
                np.testing.assert_array_equal(buffer.read(), levels[1])
                buffer.destroy()
        four = self.random.integers(0, 99, (2, 6, 5, 7)).astype("u1")
        write_v3(self.path("four.ome.zarr/0"), four, (1, 6, 5, 7))
        write_group(self.path("four.ome.zarr"), "0.5", [multiscale([("c", "channel", None), *axes], [("0", (1, 1, 1, 1), None)])])
        image, _ = read_omezarr(self.path("four.ome.zarr"))
        np.testing.assert_array_equal(image[:], four)
        np.testing.assert_array_equal(image[1, 2:4], four[1, 2:4])
        with self.assertRaisesRegex(ValueError, "level is 7; expected a whole number from 0 to 1"):
            read_omezarr(self.path(name), level=7)
        with self.assertRaises(FileNotFoundError):
            read_omezarr(self.path("none.zarr"))
        np.save(self.path("base.npy"), four)
        with self.assertRaisesRegex(NotADirectoryError, "zarr_path is .*base.npy', a file; expected the folder of an OME-Zarr"):
            read_omezarr(self.path("base.npy"))
        with self.assertRaisesRegex(FileNotFoundError, "where no group of Zarr is"):
            read_omezarr(self.path("base.npy/0"))
        for key in (99, (0, 0, 0, 0), "a", [1, 2]):
            with self.assertRaises(IndexError):
                read_omezarr(self.path(name))[0][key]

    def test_save_and_write(self):
        array = self.random.integers(0, 60000, (20, 33, 47)).astype("u2")
        path = save_omezarr(array, self.path("saved.ome.zarr"), (0.003, 0.002, 0.001), chunks=(8, 16, 16), n_levels=3)
        image, resolution = read_omezarr(path)
        np.testing.assert_array_equal(image[:], array)
        np.testing.assert_allclose(resolution, (0.003, 0.002, 0.001))
        self.assertEqual(image.chunks, (8, 16, 16))
        with open(os.path.join(path, "zarr.json")) as file:
            self.assertEqual(len(json.load(file)["attributes"]["ome"]["multiscales"][0]["datasets"]), 4)
        sharded = read_omezarr(save_omezarr(array, path, (0.003, 0.002, 0.001), chunks=(4, 8, 8), shards=(8, 16, 16), n_levels=0))[0]
        self.assertEqual((sharded.chunks, sharded.shards), ((4, 8, 8), (8, 16, 16)))
        with self.assertRaises(FileExistsError):
            save_omezarr(array, path, overwrite=False)
        kept = self.path("kept")
        os.makedirs(kept)
        os.symlink(kept, self.path("link.ome.zarr"))
        save_omezarr(array, self.path("link.ome.zarr"))
        self.assertTrue(os.path.isdir(kept) and not os.path.islink(self.path("link.ome.zarr")))
        writer = OmeZarrWriter(self.path("written.ome.zarr"), array.shape, (8, 16, 16), array.dtype)
        self.assertFalse(os.path.exists(self.path("written.ome.zarr")))
        for first in range(0, 20, 6):
            writer[first:first + 6] = array[first:first + 6]
        writer[3, 5:9, :] = 7
        writer[-1] = 9
        wanted = array.copy()
        wanted[3, 5:9, :], wanted[-1] = 7, 9
        np.testing.assert_array_equal(writer[2:5, ::2], wanted[2:5, ::2])
        image, _ = read_omezarr(writer.finalize((0.01, 0.01, 0.01), n_levels=2))
        np.testing.assert_array_equal(image[:], wanted)
        with self.assertRaisesRegex(ValueError, "finalized, or closed"):
            writer[0] = 1
        with AnalysisOmeZarrWriter(self.path("analysis.ome.zarr"), (20, 33, 47), (8, 16, 16), np.float32) as writer:
            writer[:] = array
            path = writer.finalize((0.004, 0.004, 0.004), [10, 25, 5000])
        np.testing.assert_allclose(read_omezarr(path, level=1)[1], [0.01] * 3)
        np.testing.assert_allclose(read_omezarr(path, level=2)[1], [0.025] * 3)
        with OmeZarrWriter(self.path("dropped.ome.zarr"), (4, 4, 4)) as writer:
            writer[0] = 1
        self.assertFalse(os.path.exists(self.path("dropped.ome.zarr")))
        for wrong, text in ((dict(store_path="/tmp/elsewhere.ome.zarr"), "below a storage root"), (dict(store_path=self.path("no_ending")), "ends with .zarr"),
                            (dict(store_path=self.path("a.zarr"), voxel_size=(0, 1, 1)), "voxel_size is"), (dict(store_path=self.path("a.zarr"), n_levels=-1), "n_levels is -1")):
            with self.assertRaisesRegex(ValueError, text):
                save_omezarr(array, **wrong)
        with self.assertRaisesRegex(ValueError, "expected .z, y, x."):
            save_omezarr(array[None], self.path("a.zarr"))
        with self.assertRaisesRegex(IndexError, "step"):
            with OmeZarrWriter(self.path("b.zarr"), (4, 4, 4)) as writer:
                writer[::2] = 1

    def test_what_is_written_beyond_the_end(self):
        """A range that lies beyond an axis is refused; one that reaches beyond it ends with it, as in NumPy."""
        array = self.random.integers(1, 60000, (80, 5, 6)).astype("u2")
        wanted = np.zeros_like(array)
        with OmeZarrWriter(self.path("beyond.ome.zarr"), array.shape, None, array.dtype) as writer:
            for model in (writer, wanted):
                model[78:83] = array[:2]
                model[-90:3, 4:99] = array[:3, :1]
                model[..., 5:60] = 4
                model[5:5] = array[:0]
                model[7:7] = 3
                model[70:, 1] = array[70:, 1]
            np.testing.assert_array_equal(writer[:], wanted)
            for key, value, words in ((slice(90, 95), array[:5], "the range 90:95 lies beyond axis 0; expected a range within 0:80"),
                                      (slice(80, 81), array[:1], "the range 80:81 lies beyond axis 0"), (slice(90, 95), 7, "the range 90:95"),
                                      (slice(-90, -85), array[:5], "the range -90:-85 lies beyond axis 0"), ((0, slice(5, 8)), 1, "the range 5:8 lies beyond axis 1"),
                                      ((Ellipsis, slice(6, 9)), 1, "the range 6:9 lies beyond axis 2; expected a range within 0:6")):
                with self.subTest(key), self.assertRaisesRegex(IndexError, words):
                    writer[key] = value
            for key, value in ((slice(78, 83), array[:5]), (slice(80, None), array[:5]), (slice(5, 5), array[:5]), (slice(0, 4), array[:3]), (3, array[:2])):
                with self.subTest(key), self.assertRaisesRegex(ValueError, "the value has the shape .* expected .* that of the box"):
                    writer[key] = value
                with self.assertRaises(ValueError):
                    wanted[key] = value
            piece = self.client.buffers.put(array[:5])
            with self.assertRaisesRegex(IndexError, "the range 90:95"):
                writer[90:95] = piece
            with self.assertRaisesRegex(ValueError, "the buffer has the shape"):
                writer[78:83] = piece
            writer[10:15] = piece
            piece.destroy()
            wanted[10:15] = array[:5]
            np.testing.assert_array_equal(writer[:], wanted)

    def test_oct(self):
        folder = self.path("tile_x00_y00_z00")
        os.makedirs(folder)
        frames = self.random.normal(size=(9, 8, 6)).astype("f4")  # y, x with the way back, z
        with open(os.path.join(folder, "info.txt"), "w") as file:
            file.write("nx: 5\nny: 9\nn_extra: 3\ntop_z: 10\nbottom_z: 16\nwidth: 1.5\nheight: 1.8\nstage_x_pos_mm: 4.5\nstage_y_pos_mm: -1\nstage_z_pos_mm: 0.2\n")
        frames[:4].tofile(os.path.join(folder, "image_00000.bin"))
        frames[4:].tofile(os.path.join(folder, "image_00001.bin"))
        tile = OCT(folder)
        self.assertEqual((tile.shape, tile.position_available, tile.position), ((6, 5, 9), True, (4.5, -1, 0.2)))
        np.testing.assert_allclose(tile.dimension, (0.021, 1.5, 1.8))
        np.testing.assert_allclose(tile.resolution, (0.0035, 0.3, 0.2))
        whole = frames.transpose(2, 1, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # n_extra is told by the import
            np.testing.assert_array_equal(tile.load_image(fix_galvo_shift=False), whole[:, :5])
            np.testing.assert_array_equal(tile.load_image(crop=False, fix_galvo_shift=False), whole)
            np.testing.assert_array_equal(tile.load_image(fix_galvo_shift=2), np.roll(whole, 2, 1)[:, :5])
            np.testing.assert_array_equal(tile.load_image(crop=False, fix_galvo_shift=-3), np.roll(whole, -3, 1))
            buffer = tile.load_image(on_device=True, fix_galvo_shift=False)
        np.testing.assert_array_equal(buffer.read(), whole[:, :5])
        buffer.destroy()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            tile.load_image()
        self.assertTrue(any("galvo" in str(one.message) for one in told))
        with self.assertRaisesRegex(ValueError, "fix_camera_shift is True"):
            tile.load_image(fix_camera_shift=True)
        with open(os.path.join(folder, "info.txt"), "w") as file:
            file.write("nx: 5\n")
        with self.assertRaisesRegex(ValueError, "does not say ny, top_z, bottom_z"):
            OCT(folder)

    # -- around it

    def test_gpu_module(self):
        self.assertIs(type(gpu.GPU_AVAILABLE), bool)
        self.assertGreater(gpu.GPU_MEMORY_GB, 0)
        self.assertIsInstance(gpu.GPU_DEVICE_NAME, str)
        self.assertFalse(gpu.CUPY_AVAILABLE)
        self.assertEqual(len(gpu.gpu_info()["devices"]), len(self.client.devices()))
        array = self.image(2)
        on_device = gpu.to_gpu(array)
        self.assertTrue(gpu.is_cupy_array(on_device) and not gpu.is_cupy_array(array))
        self.assertIs(gpu.to_gpu(on_device), on_device)
        np.testing.assert_array_equal(gpu.to_cpu(on_device), array)
        small = resize(on_device, (3, 3))
        np.testing.assert_array_equal(gpu.to_cpu(small), resize(array, (3, 3)))
        small.destroy()
        on_device.destroy()
        with self.assertRaises(AttributeError):
            gpu.nothing

    def test_clients(self):
        with self.assertRaisesRegex(ValueError, "expected an octavo.Client"):
            linumpy.use("127.0.0.1:1")
        other = self.daemon.client()
        self.addCleanup(other.close)
        np.testing.assert_array_equal(resize(np.eye(3), (3, 3), client=other), np.eye(3))
        self.assertIs(linumpy.default_client(), self.client)

    def test_the_script_of_the_page(self):
        """client/python/MOSAIC.md shows a script of linumpy's names: it runs here with other imports, and does the same as the models."""
        with open(os.path.join(SOURCE, "client", "python", "MOSAIC.md"), encoding="utf-8") as page:
            script, = re.findall(r"```python\n(# resample_and_flatten\.py.*?)```", page.read(), re.S)
        imports = [line for line in script.splitlines() if "linumpy" in line and line.startswith(("from", "import"))]
        self.assertGreaterEqual(len(imports), 3)
        self.assertTrue(all(line.startswith("from octavo.linumpy.") for line in imports))
        # Nothing else in it knows of Octavo.
        self.assertNotIn("octavo", re.sub(r"(?m)^from octavo\.linumpy.*$", "", script))
        volume, _, _ = self.grid(rows=80, columns=100, depth=60)
        source = save_omezarr(volume, self.path("script_in.ome.zarr"), (0.005, 0.01, 0.01), chunks=(60, 40, 50), n_levels=0)
        done = subprocess.run([sys.executable, "-c", script, source, self.path("script_out.ome.zarr")], capture_output=True, text=True, timeout=120, env={
            **os.environ, "OCTAVO_ADDRESS": self.daemon.address, "PYTHONPATH": os.path.join(BUILD, "python")})
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        made, resolution = read_omezarr(self.path("script_out.ome.zarr"))
        np.testing.assert_allclose(resolution, [0.02] * 3)
        shape = tuple(max(1, round(n * r / 0.02)) for n, r in zip(volume.shape, (0.005, 0.01, 0.01)))
        np.testing.assert_allclose(made[:], model_resize(volume, shape), atol=2e-2)
        depth = model_interface(np.moveaxis(model_resize(volume, shape).astype("f4"), 0, 2), 3, 2)
        self.assertIn(f"interface at {np.median(depth):.0f}", done.stdout)
        self.assertFalse(math.isnan(np.median(depth)))


if __name__ == "__main__":
    unittest.main()
