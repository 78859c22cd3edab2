"""affine, map_coordinates, displace and shift against scipy.ndimage, over random shapes, types, orders and modes."""

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
MODES = {"constant": "constant", "nearest": "nearest", "reflect": "reflect", "mirror": "mirror", "wrap": "grid-wrap"}
TYPES = ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f2", "<f4", "<f8", "<c8", "<c16")
PRECISION = {"f2": 2e-3, "f4": 3e-6, "c8": 3e-6, "f8": 1e-8, "c16": 1e-8}  # SciPy's own start-up sums are cut off at 4e-9


def exact(values, positions, order, mode, cval, prefilter=True):
    """ndimage.map_coordinates. SciPy's start values of a spline with the mode 'reflect' are wrong for short axes (it sums up a line while it changes the
    line), so the array is continued beforehand."""
    if mode == "reflect" and order == 3 and prefilter:
        more = [max(64, 3 * n) for n in values.shape]
        positions = positions + np.reshape(more, (-1,) + (1,) * (positions.ndim - 1))
        values, mode = np.pad(values, [(one, one) for one in more], "symmetric"), "mirror"
    return ndimage.map_coordinates(values, positions, np.float64, order, mode, cval, prefilter)


@unittest.skipIf(ndimage is None, "no SciPy for this Python")
class Sampling(DaemonTest):
    def setUp(self):
        super().setUp()
        print("seed", SEED)
        self.random = np.random.default_rng(SEED)
        self.buffers = self.client.buffers
        self.cases = [(sampling, edge) for sampling in ORDERS for edge in MODES]

    def array(self, number, rank, most=12):
        dtype, shape = np.dtype(TYPES[number % len(TYPES)]), self.random.integers(1, most, rank)
        if dtype.kind in "iu":
            return self.random.integers(max(np.iinfo(dtype).min, -(1 << 20)), min(np.iinfo(dtype).max, 1 << 20), shape, dtype, endpoint=True)
        array = self.random.normal(0, 50, shape)
        return (array + 1j * self.random.normal(0, 50, shape)).astype(dtype) if dtype.kind == "c" else array.astype(dtype)

    def applied(self, array, name, **fields):
        """What the server makes; fields that are arrays become buffers."""
        made = [self.buffers.put(array)]
        for field, value in fields.items():
            if isinstance(value, np.ndarray) and field in ("coordinates", "field", "amounts"):
                made.append(self.buffers.put(value))
                fields[field] = made[-1]
        made.append(self.buffers.apply(made[0].name, {name: fields}))
        out = self.buffers.read(made[-1].name)
        for one in made:
            self.buffers.destroy(one.name)
        return out

    def check(self, got, array, sampling, edge, scipys, positions):
        """scipys(values, order, mode, cval) in double precision; results that rounding decides (nearest: half way between two samples; constant: at
        an end) are left out."""
        self.assertEqual(got.dtype, array.dtype)
        parts = [(got, array)] if array.dtype.kind != "c" else [(got.real, array.real), (got.imag, array.imag)]
        keep = np.ones(got.shape, bool)
        if sampling == "nearest":
            keep &= (np.abs((positions + 0.5) % 1 - 0.5) < 0.5 - 1e-6).all(0) | (np.abs(positions % 1) < 1e-12).all(0)
        if edge == "constant":
            last = np.reshape(np.array(array.shape) - 1, (-1,) + (1,) * (positions.ndim - 1))
            keep &= ((np.abs(positions) > 1e-6) & (np.abs(positions - last) > 1e-6) | (positions == 0) | (positions == last)).all(0)
        for i, (made, values) in enumerate(parts):
            wanted = scipys(values.astype(np.float64), ORDERS[sampling], MODES[edge], 7.0 if i == 0 else 0.0)
            self.assertEqual(made.shape, wanted.shape)
            scale = max(1.0, float(np.abs(values).max()))
            if array.dtype.kind in "iu":
                limits = np.iinfo(array.dtype)
                allowed, wanted = 0.5 + 3e-6 * scale, np.clip(wanted, limits.min, limits.max)
            else:
                allowed = PRECISION[array.dtype.str[1:]] * scale
            self.assertGreaterEqual(keep.mean(), 0.5)
            self.assertLessEqual(float(np.abs(made.astype(np.float64) - wanted)[keep].max(initial=0)), allowed)

    def test_affine(self):
        for turn, (sampling, edge) in enumerate(2 * self.cases):
            rank = 1 + turn % 3
            array = self.array(turn, rank)
            matrix, offset = self.random.uniform(-1.2, 1.2, (rank, rank)), self.random.uniform(-2, 8, rank)
            shape = tuple(int(n) for n in self.random.integers(1, 12, rank)) if turn % 2 else array.shape
            prefilter = turn % 5 != 0
            fields = dict(sampling=sampling, edge=edge, constant=7, prefilter=prefilter)
            if turn % 2:
                fields["shape"] = shape
            with self.subTest(turn=turn, sampling=sampling, edge=edge, dtype=array.dtype, of=array.shape, to=shape, prefilter=prefilter):
                got = self.applied(array, "affine", matrix=matrix, offset=offset, **fields)
                positions = np.tensordot(matrix, np.indices(shape), 1) + offset.reshape((-1,) + (1,) * rank)
                self.check(got, array, sampling, edge, lambda values, order, mode, cval: ndimage.affine_transform(
                    values, matrix, offset, shape, np.float64, order, mode, cval, prefilter) if mode != "reflect" else exact(
                    values, positions, order, mode, cval, prefilter), positions)

    def test_map_coordinates(self):
        for turn, (sampling, edge) in enumerate(2 * self.cases):
            rank = 1 + turn % 3
            array = self.array(turn, rank)
            shape = tuple(int(n) for n in self.random.integers(1, 12, 1 + turn // 3 % 3))
            reach = np.reshape(array.shape, (-1,) + (1,) * len(shape))
            positions = (self.random.uniform(-1, 2, (rank,) + shape) * reach).astype("<f8" if turn % 2 else "<f4")
            fields = dict(sampling=sampling, edge=edge, constant=7)
            if len(shape) == 3:
                fields.update(coordinates=positions.reshape((-1,) + shape[1:]), shape=shape)
            else:
                fields["coordinates"] = positions
            with self.subTest(turn=turn, sampling=sampling, edge=edge, dtype=array.dtype, of=array.shape, to=shape):
                got = self.applied(array, "map_coordinates", **fields)
                self.check(got, array, sampling, edge, lambda *given: exact(given[0], positions.astype(np.float64), *given[1:]), positions.astype(np.float64))

    def test_displacement_fields(self):
        for turn, (sampling, edge) in enumerate(self.cases):
            rank = 1 + turn % 3
            array = self.array(turn, rank)
            field = self.random.uniform(-6, 6, (rank,) + array.shape).astype("<f4" if turn % 2 else "<f8")
            positions = np.indices(array.shape) + field.astype(np.float64)
            given = field.reshape((-1,) + array.shape[1:]) if rank == 3 or turn % 4 == 1 else field
            with self.subTest(turn=turn, sampling=sampling, edge=edge, dtype=array.dtype, of=array.shape):
                got = self.applied(array, "displace", field=given, sampling=sampling, edge=edge, constant=7)
                self.check(got, array, sampling, edge, lambda *given: exact(given[0], positions, *given[1:]), positions)

    def test_a_field_of_lanes(self):
        array = self.array(7, 3)
        field = self.random.uniform(-3, 3, array.shape + (3,))
        buffer, lanes = self.buffers.put(array), self.buffers.put(field, lanes=3)
        got = self.buffers.read(self.buffers.apply(buffer.name, {"displace": {"field": lanes, "edge": "mirror"}}).name)
        wanted = ndimage.map_coordinates(array.astype(np.float64), np.indices(array.shape) + np.moveaxis(field, 3, 0), order=1, mode="mirror")
        np.testing.assert_allclose(got, wanted, atol=3e-4)

    def test_shift_by_columns(self):
        for turn, (sampling, edge) in enumerate(2 * self.cases):
            array, axis = self.array(turn, 3), turn % 3
            columns = tuple(np.delete(array.shape, axis))
            amounts = self.random.integers(-15, 16, columns) if turn % 2 else self.random.uniform(-8, 8, columns)
            amounts = amounts.astype("<i4" if turn % 2 else "<f8")
            along = np.indices(array.shape).astype(np.float64)
            along[axis] -= np.expand_dims(amounts, axis)
            with self.subTest(turn=turn, sampling=sampling, edge=edge, dtype=array.dtype, of=array.shape, axis=axis):
                got = self.applied(array, "shift", axis=axis - 3 * (turn % 2), amounts=amounts, sampling=sampling, edge=edge, constant=7)
                # A spline along one axis alone has the same values there: the positions along the others are whole.
                self.check(got, array, sampling, edge, lambda *given: exact(given[0], along, *given[1:]), along[axis:axis + 1] if edge != "constant" else along)
                if edge == "wrap" and turn % 2 and sampling != "cubic":
                    rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])
                    rolled = np.stack([np.roll(row, amount) for row, amount in zip(rows, amounts.ravel())])
                    np.testing.assert_array_equal(np.moveaxis(got, axis, -1).reshape(rolled.shape), rolled)

    def test_positions_beyond_what_f32_resolves(self):
        """SciPy on a GPU casts coordinates to f32; here they are f64."""
        array = self.random.normal(0, 50, 40000).astype(np.float32)
        positions = np.array([[39000.3, 20000.7, 17.25, 38999.0001]])
        got = self.applied(array, "map_coordinates", coordinates=positions)
        np.testing.assert_allclose(got, ndimage.map_coordinates(array.astype(np.float64), positions, order=1), atol=1e-4)

    def test_volumes(self):
        """DeriveVolume: spacing and axes of what affine makes; ApplyOp reads a volume beside a buffer."""
        scan = self.client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(16, 12, volumes=1))
        scan.wait()
        volume = scan.volumes()[0]
        array = volume.read()
        angle = np.deg2rad(20)
        matrix = np.array([[np.cos(angle), np.sin(angle), 0], [-np.sin(angle), np.cos(angle), 0], [0, 0, 0.5]])
        turned = volume.derive({"affine": {"matrix": matrix, "offset": [0.5, 1, 3], "shape": [0, 0, 100], "sampling": "cubic", "edge": "mirror"}})
        wanted = ndimage.affine_transform(array.astype(np.float64), matrix, [0.5, 1, 3], array.shape[:2] + (100,), order=3, mode="mirror")
        difference = np.abs(turned.read().astype(np.float64) - np.clip(wanted, 0, 65535))
        self.assertLessEqual(difference.max(), 0.5 + 3e-6 * array.max())
        spacing = np.array(volume.spacing_um)
        np.testing.assert_allclose(turned.spacing_um, np.sqrt(((matrix * spacing[:, None])**2).sum(0)), rtol=1e-12)
        self.assertEqual(list(turned.axes), ["y", "x", "z"])
        self.assertIn("affine to 12 x 16 x 100, cubic", turned.operations[0])
        amounts = self.random.integers(-20, 20, array.shape[:2]).astype("<i2")
        shifted = self.buffers.read(self.buffers.apply(volume.name, {"shift": {"axis": 2, "amounts": self.buffers.put(amounts), "edge": "wrap"}}).name)
        np.testing.assert_array_equal(shifted[2, 3], np.roll(array[2, 3], amounts[2, 3]))
        for name, field in (("map_coordinates", "coordinates"), ("displace", "field"), ("shift", "amounts")):
            with self.assertRaises(octavo.OctavoError) as caught:
                volume.derive({name: {"axis": 0, field: "buffers/none"} if name == "shift" else {field: "buffers/none"}})
            self.assertIn("needs a second array", caught.exception.message)
        spectrum = {"fft": {"axis": 0}}
        with self.assertRaises(octavo.OctavoError) as caught:
            volume.derive(spectrum, {"affine": {"matrix": matrix}})
        self.assertIn("operations[1].affine.matrix", caught.exception.message)

    def test_refusals(self):
        buffer = self.buffers.put(np.zeros((4, 5), np.float32))
        for operation, words in (({"affine": {"matrix": [1, 0, 0]}}, "affine.matrix: has 3 numbers; allowed 4"),
                                 ({"affine": {"matrix": [1, 0, 0, 1], "sampling": 7}}, "affine.sampling: has the unknown value 7"),
                                 ({"affine": {"matrix": [1, 0, 0, 1], "edge": 7}}, "affine.edge: has the unknown value 7"),
                                 ({"affine": {"matrix": [1, 0, 0, 1], "constant": 1j}}, "affine.constant.im: is 1"),
                                 ({"map_coordinates": {}}, "map_coordinates.coordinates: is empty"),
                                 ({"displace": {"field": buffer}}, "displace.field: is f32[4, 5]"),
                                 ({"shift": {"amounts": buffer}}, "shift.axis: is not given"),
                                 ({"shift": {"axis": 0, "amounts": buffer}}, "shift.amounts: is f32[4, 5]; allowed [5]")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.buffers.apply(buffer.name, operation)
            self.assertIn(words, caught.exception.message)
            self.assertEqual(caught.exception.code.name, "INVALID_ARGUMENT")
        for operation in ({"shift": {"axis": 0, "amounts": np.zeros(5)}}, {"affine": {"matrix": np.eye(2), "sampling": "spline"}}):
            with self.assertRaises(ValueError):
                self.buffers.apply(buffer.name, operation)


if __name__ == "__main__":
    unittest.main()
