"""Filters, functions, masks, places of extremes, paste and concatenate against their NumPy and SciPy twins, over random shapes and types."""

import os
import unittest

import numpy as np

from harness import DaemonTest, octavo
from octavo.v1 import volume_pb2

try:
    from scipy import ndimage
except ImportError:
    ndimage = None
SEED = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % (1 << 32)))
REAL = ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8")
COMPLEX = ("<c8", "<c16")
# The names of scipy.ndimage.
EDGES = {"reflect": "reflect", "nearest": "nearest", "mirror": "mirror", "constant": "constant", "wrap": "wrap"}


def floats(dtype):
    """The type in which filters and functions compute and answer."""
    return np.dtype({"<f8": "<f8", "<c8": "<c8", "<c16": "<c16"}.get(np.dtype(dtype).str, "<f4"))


def precise(array):
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def otsu(array, bins):
    """skimage.filters.threshold_otsu of the array as floats."""
    values = array[np.isfinite(array)].astype(np.float64)
    counts, edges = np.histogram(values, bins, (values.min(), values.max()))
    middles = (edges[:-1] + edges[1:]) / 2
    below, above = np.cumsum(counts), np.cumsum(counts[::-1])[::-1]
    mean_below, mean_above = np.cumsum(counts * middles) / below, (np.cumsum((counts * middles)[::-1]) / above[::-1])[::-1]
    return middles[np.argmax(below[:-1] * above[1:] * (mean_below[:-1] - mean_above[1:]) ** 2)]


class Buffers(DaemonTest):
    def setUp(self):
        super().setUp()
        print("seed", SEED)
        self.random = np.random.default_rng(SEED)

    def make(self, shape, dtype, lo=-100, hi=100):
        dtype = np.dtype(dtype)
        if dtype.kind in "iu":
            return self.random.integers(max(np.iinfo(dtype).min, lo), min(np.iinfo(dtype).max, hi), shape, dtype, endpoint=True)
        array = self.random.uniform(lo, hi, shape)
        return (array + 1j * self.random.uniform(lo, hi, shape)).astype(dtype) if dtype.kind == "c" else array.astype(dtype)

    def shape(self, most=(12, 17, 40)):
        return tuple(int(self.random.integers(1, top + 1)) for top in most[:self.random.integers(1, 4)])

    def run_on(self, array, *operations, others=()):
        """The result of operations, in which an array stands for its buffer."""
        made = [self.client.buffers.put(array)]

        def named(value):
            if isinstance(value, np.ndarray):
                made.append(self.client.buffers.put(value))
                return made[-1].name
            if isinstance(value, dict):
                return {key: named(one) for key, one in value.items()}
            return [named(one) for one in value] if isinstance(value, list) and any(isinstance(one, np.ndarray) for one in value) else value

        made.append(self.client.buffers.apply(made[0].name, *[named(operation) for operation in operations]))
        out = self.client.buffers.read(made[-1].name)
        for buffer in made:
            self.client.buffers.destroy(buffer.name)
        return out

    def near(self, got, wanted, array, what, gain=1.0):
        """Sums of f32 have its rounding, relative to the largest element."""
        self.assertEqual((got.shape, got.dtype), (wanted.shape, floats(array.dtype)), what)
        if not got.size:
            return
        precision = 1e-12 if got.dtype.str in ("<f8", "<c16") else 2e-6
        scale = max(1.0, float(np.abs(precise(array)).max())) * max(1.0, gain)
        self.assertLessEqual(float(np.abs(got - wanted).max()), precision * scale, what)

    @unittest.skipIf(ndimage is None, "no SciPy for this Python")
    def test_gaussian_filters(self):
        for dtype in REAL + COMPLEX:
            for edge, mode in EDGES.items():
                array = self.make(self.shape(), dtype)
                order = [int(self.random.integers(0, 3)) for _ in array.shape]
                sigma = [float(self.random.uniform(0.4, 4)) if one or self.random.random() < 0.8 else 0.0 for one in order]
                truncate = float(self.random.choice([4, 4, 2.5]))
                value = 7.0 if edge == "constant" and array.dtype.kind != "c" else 0.0
                what = dict(shape=array.shape, dtype=dtype, edge=edge, sigma=sigma, order=order, truncate=truncate)
                with self.subTest(**what):
                    wanted = ndimage.gaussian_filter(precise(array), sigma, order=order, mode=mode, cval=value, truncate=truncate)
                    got = self.run_on(array, {"gaussian": {"sigma": sigma, "order": order, "truncate": truncate, "edge": edge, "edge_value": value}})
                    # A derivative's weights add up to more than 1.
                    gain = float(np.prod([max(1.0, 2 / one ** 2) if n else 1.0 for one, n in zip(sigma, order)]))
                    self.near(got, wanted, array, what, gain)
        array = self.make((20, 30), "<f4")
        self.near(self.run_on(array, {"gaussian": {"sigma": [1.5]}}), ndimage.gaussian_filter(precise(array), 1.5), array, "one sigma for all axes")

    @unittest.skipIf(ndimage is None, "no SciPy for this Python")
    def test_uniform_filters(self):
        for dtype in REAL + COMPLEX:
            for edge, mode in EDGES.items():
                array = self.make(self.shape(), dtype)
                size = [int(self.random.integers(0, 10)) for _ in array.shape]
                what = dict(shape=array.shape, dtype=dtype, edge=edge, size=size)
                with self.subTest(**what):
                    # SciPy refuses a size of 0; for it, 1 leaves an axis alone, too.
                    wanted = ndimage.uniform_filter(precise(array), [max(1, one) for one in size], mode=mode)
                    self.near(self.run_on(array, {"uniform": {"size": size, "edge": edge}}), wanted, array, what)

    @unittest.skipIf(ndimage is None, "no SciPy for this Python")
    def test_medians(self):
        for dtype in REAL:
            for size in (3, 5):
                for edge in ("reflect", "nearest", "mirror", "wrap"):
                    array = self.make(self.shape((7, 9, 30)), dtype)
                    axes = sorted(self.random.choice(array.ndim, self.random.integers(1, array.ndim + 1), replace=False).tolist())
                    what = dict(shape=array.shape, dtype=dtype, edge=edge, size=size, axes=axes)
                    with self.subTest(**what):
                        window = [size if axis in axes else 1 for axis in range(array.ndim)]
                        # SciPy has no f2.
                        wanted = ndimage.median_filter(array.astype("<f4") if dtype == "<f2" else array, size=window, mode=EDGES[edge]).astype(dtype)
                        np.testing.assert_array_equal(self.run_on(array, {"median": {"size": size, "axes": axes, "edge": edge}}), wanted, str(what))

    def test_functions(self):
        for dtype in REAL:
            array = self.make((5, 203), dtype)
            array.flat[::7] = 0
            exact = array.astype(np.float64)
            with np.errstate(all="ignore"):
                for base, log, power in (("e", np.log, np.exp), ("ten", np.log10, lambda x: 10 ** x)):
                    with self.subTest(dtype=dtype, base=base):
                        tolerance = dict(rtol=1e-12 if dtype == "<f8" else 3e-6, atol=1e-6)
                        np.testing.assert_allclose(self.run_on(array, {"logarithm": {"base": base}}), log(exact), **tolerance)
                        np.testing.assert_allclose(self.run_on(array, {"logarithm": {"base": base, "keep_rest": True}}),
                                                   np.where(exact > 0, log(exact), exact), **tolerance)
                        got = self.run_on(array, {"scale": {"multiply": 0.1, "type": floats(dtype).name}}, {"exponential": {"base": base}})
                        np.testing.assert_allclose(got, power((exact * 0.1).astype(floats(dtype)).astype(np.float64)), rtol=tolerance["rtol"], atol=1e-6)

    def test_thresholds_and_choices(self):
        for dtype in REAL:
            with self.subTest(dtype=dtype):
                # Two classes, far enough from each other that rounding decides nothing.
                array = np.where(self.random.random((9, 31, 12)) < 0.3, self.make((9, 31, 12), dtype, 70, 90), self.make((9, 31, 12), dtype, 0, 30))
                array = array.astype(dtype)
                mask = self.run_on(array, {"threshold": {"value": 25}})
                self.assertEqual(mask.dtype, np.uint8)
                np.testing.assert_array_equal(mask, array > 25)
                np.testing.assert_array_equal(self.run_on(array, {"threshold": {"otsu": {}}}), array > otsu(array, 256))
                np.testing.assert_array_equal(self.run_on(array, {"threshold": {"otsu": {"bins": 40}}}), array > otsu(array, 40))
                other = self.make((31, 12), dtype)
                np.testing.assert_array_equal(self.run_on(array, {"select": {"mask": mask, "other": other}}), np.where(mask, array, other))
                np.testing.assert_array_equal(self.run_on(array, {"select": {"mask": mask[0], "value": 3}}), np.where(mask[0], array, np.array(3, dtype)))
                np.testing.assert_array_equal(self.run_on(array, {"select": {"above": {"value": 25}}}), np.where(array > 25, array, np.array(0, dtype)))
                np.testing.assert_array_equal(self.run_on(array, {"select": {"above": {"otsu": {}}, "value": 1}}),
                                              np.where(array > otsu(array, 256), array, np.array(1, dtype)))
                # Arithmetic where a mask says so.
                np.testing.assert_array_equal(self.run_on(array, {"scale": {"add": 7}}, {"select": {"mask": mask, "other": array}}),
                                              np.where(mask, array + np.array(7, dtype), array))
                np.testing.assert_array_equal(self.run_on(array, {"combine": {"kind": "multiply", "other": mask}}), array * mask)

    def test_places_of_extremes(self):
        for dtype in REAL:
            array = self.make(self.shape(), dtype, 0, 15)  # with many equals
            axis = int(self.random.integers(-array.ndim, array.ndim))
            with self.subTest(dtype=dtype, shape=array.shape, axis=axis):
                for name, numpy in (("argmax", np.argmax), ("argmin", np.argmin)):
                    got = self.run_on(array, {name: {"axis": axis, "keep_dims": True}})
                    self.assertEqual(got.dtype, np.int64)
                    np.testing.assert_array_equal(got, np.expand_dims(numpy(array, axis), axis))
        array = self.make((6, 50), "<f4")
        array[:, 20] = np.nan
        np.testing.assert_array_equal(self.run_on(array, {"argmax": {"axis": 1}}), np.argmax(array, 1))
        np.testing.assert_array_equal(self.run_on(array, {"argmin": {"axis": 1, "skip_nan": True}}), np.nanargmin(array, 1))
        mask = (self.random.random(array.shape) < 0.5).astype(np.uint8)
        mask[3] = 0
        left = np.where((mask != 0) & ~np.isnan(array), array, -np.inf)
        wanted = np.where(mask.any(1), np.argmax(left, 1), -1)
        np.testing.assert_array_equal(self.run_on(array, {"argmax": {"axis": -1, "skip_nan": True, "mask": mask}}), wanted)

    def test_statistics_with_masks(self):
        for dtype in ("u1", "<u2", "<i4", "<f4", "<f8"):
            array = self.make((12, 20, 33), dtype)
            mask = (self.random.random(array.shape) < 0.6).astype(np.uint8)
            exact, where = array.astype(np.float64), mask != 0
            with self.subTest(dtype=dtype):
                for axes in ((), (2,), (0, 1)):
                    for kind in ("sum", "mean", "std", "min", "max"):
                        more = dict(initial=np.inf) if kind == "min" else dict(initial=-np.inf) if kind == "max" else {}
                        wanted = np.atleast_1d(getattr(np, kind)(exact, axis=axes or None, where=where, **more))
                        got = self.run_on(array, {"reduce": {"kind": kind, "axes": axes, "mask": mask}})
                        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4, err_msg=f"{kind} {axes}")
                left = np.where(where, exact, np.nan)
                np.testing.assert_allclose(self.run_on(array, {"percentile": {"percentiles": [5, 50, 99], "axes": [1], "mask": mask}}),
                                           np.nanpercentile(left, [5, 50, 99], axis=1), rtol=1e-5, atol=1e-4)
                np.testing.assert_array_equal(self.run_on(array, {"histogram": {"bins": 17, "lo": -60, "hi": 70, "mask": mask}}),
                                              np.histogram(exact[where], 17, (-60, 70))[0])

    def test_paste_and_concatenate(self):
        for dtype in REAL + COMPLEX:
            with self.subTest(dtype=dtype):
                array = self.make((6, 7, 9), dtype)
                box = self.make((2, 7, 4), dtype)
                wanted = array.copy()
                wanted[3:5, :, 5:9] = box
                np.testing.assert_array_equal(self.run_on(array, {"paste": {"other": box, "start": [3, 0, 5]}}), wanted)
                axis = int(self.random.integers(-3, 3))
                shape = list(array.shape)
                shape[axis] = 4
                more = [self.make(shape, dtype), self.make((6, 7, 9), dtype)]
                np.testing.assert_array_equal(self.run_on(array, {"concatenate": {"axis": axis, "others": more}}), np.concatenate([array, *more], axis))

    def test_refusals(self):
        buffer, wide = self.client.buffers.put(np.zeros((4, 5), np.float32)), self.client.buffers.put(np.zeros((4, 6), np.float32))
        mask = self.client.buffers.put(np.zeros((4, 6), np.uint8))
        for operation, field, text in (
                ({"gaussian": {}}, "gaussian.sigma", "give it, or sigma_um of a volume"),
                ({"gaussian": {"sigma_um": [3]}}, "gaussian.sigma_um", "only volumes have a spacing"),
                ({"gaussian": {"sigma": [1], "edge": 9}}, "gaussian.edge", "unknown value 9"),
                ({"gaussian": {"sigma": [1], "order": [3]}}, "gaussian.order", "allowed 0 to 2"),
                ({"uniform": {"size": [2, 2, 2]}}, "uniform.size", "allowed 1 or 2"),
                ({"median": {"size": 7}}, "median.size", "allowed 3 and 5"),
                ({"median": {"edge": "constant"}}, "median.edge", "allowed REFLECT, NEAREST, MIRROR, WRAP"),
                ({"logarithm": {"base": 5}}, "logarithm.base", "unknown value 5"),
                ({"threshold": {}}, "threshold.value", "give it, or otsu"),
                ({"threshold": {"otsu": {"bins": 5000}}}, "threshold.otsu.bins", "allowed 2 to 4096"),
                ({"select": {}}, "select.mask", "give it, or above"),
                ({"select": {"mask": mask.name}}, "select.mask", "wants u8 with one lane"),
                ({"select": {"above": {"value": 1}, "other": mask.name}}, "select.other", "wants its own type"),
                ({"reduce": {"kind": "sum", "mask": mask.name}}, "reduce.mask", "wants u8 of its own shape"),
                ({"argmax": {}}, "argmax.axis", "is not given"),
                ({"paste": {"other": wide.name}}, "paste.other", "larger than"),
                ({"paste": {}}, "paste.other", "name a buffer"),
                ({"concatenate": {"axis": 0, "others": [wide.name]}}, "concatenate.others", "but for axis 0")):
            with self.subTest(operation=operation):
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.client.buffers.apply(buffer.name, operation)
                self.assertEqual(caught.exception.field, f"operations[0].{field}")
                self.assertIn(text, caught.exception.message)
        for one in (buffer, wide, mask):
            self.client.buffers.destroy(one.name)


@unittest.skipIf(ndimage is None, "no SciPy for this Python")
class Volumes(DaemonTest):
    """The same operations on held volumes: what they make of spacing, levels and quantity."""

    def test_filters_of_volumes(self):
        scan = self.client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(40, 12, volumes=1, extent_x_mm=2, extent_y_mm=0.6), processing=octavo.processing(dtype="u8"))
        volume = self.client.volumes(self.client.wait(scan.name).name)[0]
        x = self.client.read(volume.name).astype(np.float64)
        spacing = list(volume.spacing_um)

        def check(wanted, operation, quantity, dtype, atol=1e-3):
            made = self.client.derive(volume.name, operation)
            self.assertEqual((made.quantity, str(made.dtype).lower(), list(made.axes)), (quantity, dtype, list(volume.axes)), operation)
            np.testing.assert_allclose(self.client.read(made.name), wanted, rtol=1e-5, atol=atol, err_msg=str(operation))
            return made

        made = check(ndimage.gaussian_filter(x, 1.5), {"gaussian": {"sigma": [1.5]}}, volume_pb2.QUANTITY_MEAN, "f32")
        self.assertEqual(list(made.spacing_um), spacing)
        sigma = [2 * spacing[0], 0, 3.5 * spacing[2]]
        check(ndimage.gaussian_filter(x, [2, 0, 3.5], order=[0, 0, 1]) / spacing[2], {"gaussian": {"sigma_um": sigma, "order": [0, 0, 1]}},
              volume_pb2.QUANTITY_DERIVATIVE, "f32")
        check(ndimage.uniform_filter(x, [1, 3, 4]), {"uniform": {"size_um": [0, 3.2 * spacing[1], 4 * spacing[2]]}}, volume_pb2.QUANTITY_MEAN, "f32")
        made = check(ndimage.median_filter(x, 3), {"median": {}}, volume_pb2.QUANTITY_UNSPECIFIED, "u8", atol=0)
        self.assertIsNotNone(made.levels)
        check(np.maximum(x, 1), {"select": {"above": {"value": 0}, "value": 1}}, volume_pb2.QUANTITY_UNSPECIFIED, "u8", atol=0)
        check(np.where(x > 0, np.log(np.maximum(x, 1)), x), {"logarithm": {"keep_rest": True}}, volume_pb2.QUANTITY_LOGARITHM, "f32")
        check(x > 100, {"threshold": {"value": 100}}, volume_pb2.QUANTITY_MASK, "u8", atol=0)
        made = check(np.argmax(x, 2)[..., None], {"argmax": {"axis": "z"}}, volume_pb2.QUANTITY_INDEX, "f64", atol=0)
        self.assertEqual(made.spacing_um[2], spacing[2] * x.shape[2])
        for operation, field in (({"paste": {"other": "buffers/1"}}, "paste"), ({"reduce": {"kind": "sum", "mask": "buffers/1"}}, "reduce.mask"),
                                 ({"gaussian": {"sigma_um": [1], "sigma": [1]}}, "gaussian.sigma_um")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.derive(volume.name, operation)
            self.assertEqual(caught.exception.field, f"operations[0].{field}")


if __name__ == "__main__":
    unittest.main()
