"""Resize against SciPy's definition, scipy.ndimage.gaussian_filter and zoom, and against
scikit-image if installed."""

import os
import unittest

import numpy as np

from harness import DaemonTest, octavo

try:
    from scipy import ndimage
except ImportError:
    ndimage = None
SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % (1 << 32)))
ORDERS = {"nearest": 0, "linear": 1, "cubic": 3}
TYPES = ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f2", "<f4", "<f8", "<c8", "<c16")


def reference(array, shape, *, sampling, corner_aligned, smooth, mode):
    """SciPy's result, in double precision. Complex arrays by parts, because zoom ignores grid_mode
    for them."""
    if array.dtype.kind == "c":
        parts = [reference(part, shape, sampling=sampling, corner_aligned=corner_aligned, smooth=smooth, mode=mode) for part in (array.real, array.imag)]
        return parts[0] + 1j * parts[1]
    values = array.astype(np.float64)
    if smooth:
        values = ndimage.gaussian_filter(values, [max(0, (n / m - 1) / 2) for n, m in zip(array.shape, shape)], mode=mode)
    factors = [m / n for n, m in zip(array.shape, shape)]
    if sampling == "cubic" and mode == "reflect":
        # SciPy's start values are wrong for short axes (it sums up a line while it changes the line): the array is continued beforehand.
        at = [np.arange(m) * (n - 1) / max(m - 1, 1) if corner_aligned else (np.arange(m) + 0.5) * n / m - 0.5 for n, m in zip(array.shape, shape)]
        return ndimage.map_coordinates(np.pad(values, 60, "symmetric"), np.stack(np.meshgrid(*[x + 60 for x in at], indexing="ij")), order=3, mode="mirror")
    out = ndimage.zoom(values, factors, order=ORDERS[sampling], mode=mode, grid_mode=not corner_aligned)
    assert out.shape == tuple(shape), (out.shape, shape)
    return out


def without_ties(shape, got, wanted, corner_aligned=False):
    """Positions that are nearer to one sample than to any other: exactly between two samples,
    SciPy's rounding decides."""
    keep = []
    for n, m in zip(shape, got.shape):
        i = np.arange(m)
        at = i * (n - 1) / max(m - 1, 1) if corner_aligned else (i + 0.5) * n / m - 0.5
        keep.append((np.abs(at % 1 - 0.5) > 1e-9) if n != m else np.ones(m, bool))
    return got[np.ix_(*keep)], wanted[np.ix_(*keep)]


class Resize(DaemonTest):
    def resized(self, array, shape, **fields):
        buffer = self.client.buffers.put(array)
        made = self.client.buffers.apply(buffer.name, {"resize": {"shape": shape, **fields}})
        out = self.client.buffers.read(made.name)
        for name in (buffer.name, made.name):
            self.client.buffers.destroy(name)
        return out

    def random(self, shape, dtype, random):
        dtype = np.dtype(dtype)
        if dtype.kind in "iu":
            return random.integers(max(np.iinfo(dtype).min, -(1 << 20)), min(np.iinfo(dtype).max, 1 << 20), shape, dtype, endpoint=True)
        array = random.normal(0, 50, shape)
        return (array + 1j * random.normal(0, 50, shape)).astype(dtype) if dtype.kind == "c" else array.astype(dtype)

    def check(self, got, wanted, what):
        if not got.size:
            return
        if got.dtype.kind in "iu":  # a spline leaves the type's range at steps
            wanted = np.clip(wanted, np.iinfo(got.dtype).min, np.iinfo(got.dtype).max)
        scale = max(1.0, float(np.abs(wanted).max()))
        precision = {"f2": 2e-3, "f4": 4e-6, "c8": 4e-6, "f8": 1e-12, "c16": 1e-12}.get(got.dtype.str[1:], 0.5 / scale + 4e-6)
        self.assertLessEqual(float(np.abs(got.astype(wanted.dtype) - wanted).max()), precision * scale, what)

    @unittest.skipIf(ndimage is None, "no SciPy for this Python")
    def test_as_scipy_defines_it(self):
        print("seed", SEED)
        random = np.random.default_rng(SEED)
        shapes = [((9, 20, 8), (4, 33, 26)), ((1, 7, 2), (5, 1, 9)), ((2, 3, 31), (1, 2, 2)), ((64,), (7,)), ((7, 64), (64, 7)), ((1, 1), (3, 1))]
        shapes += [(tuple(random.integers(1, 24, 3).tolist()), tuple(random.integers(1, 24, 3).tolist())) for _ in range(4)]
        cases = [(dtype, sampling, corners, smooth, edge) for dtype in TYPES for sampling in ORDERS for corners in (False, True) for smooth in (False, True)
                 for edge in ("", "mirror", "reflect")]
        for i, (dtype, sampling, corners, smooth, edge) in enumerate(cases):
            shape, to = shapes[i % len(shapes)]
            what = dict(shape=shape, to=to, dtype=dtype, sampling=sampling, corner_aligned=corners, smooth=smooth, edge=edge)
            with self.subTest(**what):
                array = self.random(shape, dtype, random)
                mode = edge or ("reflect" if corners else "mirror")
                wanted = reference(array, to, sampling=sampling, corner_aligned=corners, smooth=smooth, mode=mode)
                got = self.resized(array, to, sampling=sampling, corner_aligned=corners, anti_aliasing=smooth, **({"edge": edge} if edge else {}))
                self.assertEqual((got.shape, got.dtype), (to, array.dtype))
                if sampling == "nearest":
                    got, wanted = without_ties(shape, got, wanted, corners)
                self.check(got, wanted, what)

    def test_the_defaults_are_scikit_images(self):
        try:
            from skimage.transform import resize
        except ImportError:
            self.skipTest("no scikit-image for this Python")
        print("seed", SEED)
        random = np.random.default_rng(SEED)
        for dtype in ("u1", "<u2", "<f4", "<f8"):
            for _ in range(12):
                shape, to = tuple(random.integers(2, 40, 3).tolist()), tuple(random.integers(1, 40, 3).tolist())
                for sampling, order in ORDERS.items():
                    with self.subTest(shape=shape, to=to, dtype=dtype, order=order):
                        array = self.random(shape, dtype, random)
                        wanted = resize(array.astype(np.float64), to, order=order, anti_aliasing=True, preserve_range=True)
                        pairs = [(self.resized(array, to, sampling=sampling), wanted)]
                        symmetric = resize(array.astype(np.float64), to, order=order, mode="symmetric", anti_aliasing=True, preserve_range=True)
                        pairs.append((self.resized(array, to, sampling=sampling, edge="reflect"), symmetric))
                        for got, peer in pairs:
                            self.check(*(without_ties(shape, got, peer) if order == 0 else (got, peer)), (shape, to, dtype, order))

    def test_refusals(self):
        buffer = self.client.buffers.put(np.zeros((4, 4), np.float32))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.buffers.apply(buffer.name, {"resize": {"shape": [2, 2], "edge": 7}})
        self.assertIn("resize.edge", caught.exception.message)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.buffers.apply(buffer.name, {"resize": {"shape": [2, 2], "sampling": 9}})
        self.assertIn("resize.sampling", caught.exception.message)
        self.client.buffers.destroy(buffer.name)


if __name__ == "__main__":
    unittest.main()
