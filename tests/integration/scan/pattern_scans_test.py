"""Scan patterns from request to volume. Every A-scan lies where the pattern says, and waveforms
keep the scanner's limits. Resampling to a Cartesian grid and angiograms of repeats agree with
references in NumPy."""

import os
import struct
import subprocess
import tempfile
import unittest

import numpy as np

from harness import BUILD, DaemonTest, octavo
from octavo.v1 import scan_pb2, stream_pb2, types_pb2, volume_pb2

DONE = types_pb2.SCAN_STATE_DONE
# A plane that is tilted along x, and one that undulates along both axes: their depths tell where
# the beam was.
LAYERS = [dict(depth_um=400, reflectivity=0.02, tilt_um_per_mm=300), dict(depth_um=1000, reflectivity=0.02, waviness_um=60)]


def raster_mm(n, m, ex, ey):
    y, x = np.meshgrid((np.arange(n) + 0.5) * ey / n - ey / 2, (np.arange(m) + 0.5) * ex / m - ex / 2, indexing="ij")
    return np.stack([x, y], -1)


def radial_mm(n, m, radius, angle):
    r = radius[0] + (np.arange(m) + 0.5) * (radius[1] - radius[0]) / m
    a = np.radians(angle[0] + np.arange(n) * (angle[1] - angle[0]) / n)
    return np.stack([np.cos(a)[:, None] * r, np.sin(a)[:, None] * r], -1)


def spiral_mm(turns, m, inner, outer):
    t = np.arange(turns * m) / (turns * m)
    a, r = 2 * np.pi * turns * t, inner + (outer - inner) * t
    return np.stack([r * np.cos(a), r * np.sin(a)], -1).reshape(turns, m, 2)


def lissajous_mm(rows, m, extent, cycles, phase):
    i = np.arange(rows * m) / (rows * m)
    x, y = (e / 2 * np.sin(2 * np.pi * c * i + np.radians(p)) for e, c, p in zip(extent, cycles, phase))
    return np.stack([x, y], -1).reshape(rows, m, 2)


class PatternTest(DaemonTest):
    def acquire(self, pattern, volumes=1, **chain):
        source = octavo.simulated(3, fast=True, layers=LAYERS, noise_counts=-1, fixed_pattern=-1)
        chain = dict(dict(value="magnitude", dtype="f32", background="none"), **chain)
        scan = self.client.submit_scan(source, pattern, processing=octavo.processing(**chain))
        end = self.client.wait(scan.name)
        self.assertEqual((end.state, end.volumes_done), (DONE, volumes), end.reason)
        self.assertEqual((end.missing_ascans, end.duplicate_records, end.out_of_range_records), (0, 0, 0))
        return self.client.volumes(scan.name)

    def expect_places(self, volume, points, extent):
        """points [y, x, 2] in mm: expects that each A-scan has its layers at the phantom's depths."""
        array = self.client.read(volume.name)
        self.assertEqual(array.shape[:2], points.shape[:2])
        self.assertTrue(volume.complete)
        u, v = points[..., 0] / extent[0] + 0.5, points[..., 1] / extent[1] + 0.5
        truth = [400 + 0.3 * 1e3 * points[..., 0], 1000 + 60 * np.sin(2 * np.pi * (u + 0.5 * v))]
        for depth in truth:
            bins = depth / volume.spacing_um[2]
            window = np.rint(bins).astype(int)[..., None] + np.arange(-12, 13)
            peaks = window[..., 0] + np.argmax(np.take_along_axis(array, window, 2), 2)
            self.assertLessEqual(np.abs(peaks - bins).max(), 1.1)

    def test_every_ascan_lies_where_the_pattern_says(self):
        ring = dict(radius=(-0.5, 0.5))
        liss = dict(extent=(1.0, 0.8), cycles=(7, 5), phase=(90, 0))
        free = np.stack([np.linspace(-0.4, 0.5, 60), 0.3 * np.sin(np.linspace(0, 9, 60))], -1).reshape(3, 20, 2)
        cases = {
            "bidirectional volumes": (octavo.raster(24, 5, volumes=3, extent_x_mm=1, extent_y_mm=0.8, bidirectional=True, bidirectional_volumes=True,
                                                    flyback_records=3), raster_mm(5, 24, 1, 0.8), (1, 0.8)),
            "radial": (octavo.radial(24, 6, 1, bidirectional=True, **ring), radial_mm(6, 24, (-0.5, 0.5), (0, 180)), (1, 1)),
            "rays": (octavo.radial(24, 6, 1, radius=(0.1, 0.5)), radial_mm(6, 24, (0.1, 0.5), (0, 360)), (1, 1)),
            "spiral": (octavo.spiral(24, 6, 2, radius=(0.1, 0.5), bidirectional_volumes=True), spiral_mm(6, 24, 0.1, 0.5), (1, 1)),
            "lissajous": (octavo.lissajous(24, 6, 2, volume_flyback_records=5, **liss), lissajous_mm(6, 24, **liss), (1, 0.8)),
            "freeform": (octavo.freeform(free, 1, flyback_records=2), free, (1, 2 * np.abs(free[..., 1]).max())),
        }
        for name, (pattern, points, extent) in cases.items():
            with self.subTest(name):
                volumes = next(f.volumes for f in [pattern])
                for volume in self.acquire(pattern, volumes):
                    self.expect_places(volume, points, extent)
                    self.client.discard(volume.name)

    def test_repeats_are_packed_or_in_order(self):
        points = raster_mm(5, 20, 1, 0.8)
        fields = dict(extent_x_mm=1, extent_y_mm=0.8, bidirectional=True, flyback_records=2)
        packed = self.acquire(octavo.repeated_raster(20, 5, 1, repeats=3, period=2, **fields))[0]
        self.expect_places(packed, points[[0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]], (1, 0.8))
        ordered = self.acquire(octavo.repeated_raster(20, 5, 1, repeats=3, period=2, order=True, **fields))[0]
        self.expect_places(ordered, points[[0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 4, 4, 4]], (1, 0.8))
        rays = self.acquire(octavo.repeated_radial(20, 4, 1, radius=(-0.5, 0.5), repeats=2, period=4))[0]
        self.expect_places(rays, np.repeat(radial_mm(4, 20, (-0.5, 0.5), (0, 180)), 2, 0), (1, 1))

    def test_offset_and_rotation(self):
        points = raster_mm(5, 24, 0.6, 0.4)
        turned = np.stack([-points[..., 1] + 0.05, points[..., 0] - 0.02], -1)  # a quarter turn, then the offset
        volume = self.acquire(octavo.pattern(octavo.raster(24, 5, 1, extent_x_mm=0.6, extent_y_mm=0.4), offset=(0.05, -0.02), rotation=90))[0]
        self.expect_places(volume, turned, (0.6, 0.4))

    # -- waveforms

    def test_waveforms_keep_the_limits_and_place_every_record(self):
        limits = octavo.scanner(2000, 6e6)
        for shape in (octavo.raster(100, 9, 1, extent_x_mm=1, extent_y_mm=1, bidirectional=True), octavo.radial(100, 9, 1, radius=(-0.5, 0.5)),
                      octavo.repeated_raster(100, 5, 1, repeats=2, period=5, extent_x_mm=1, extent_y_mm=1)):
            pattern = octavo.pattern(shape, flyback="minimum_time", scanner=limits, warp=octavo.angular_warp(0.9))
            wave = self.client.waveform(octavo.simulated(1, fast=True), pattern, rate_hz=100e3, plot=True)
            self.assertEqual((wave.unit, wave.sample_rate_hz), ("deg", 100e3))
            loop = [np.concatenate([w, w[:2]]).astype(np.float64) * 1 for w in (wave.x, wave.y)]
            for axis in loop:
                self.assertLessEqual(np.abs(np.diff(axis)).max() * 100e3, 2000 * 1.001)
                self.assertLessEqual(np.abs(np.diff(axis, 2)).max() * 1e10, 6e6 + 4e3)  # of f32 samples
            active = wave.placement[wave.placement >= 0]
            self.assertEqual(sorted(active), list(range(len(active))))
            self.assertGreater((wave.placement < 0).sum(), 8)
            width, height = struct.unpack(">II", wave.plot_png[16:24])
            self.assertEqual(wave.plot_png[:8], b"\x89PNG\r\n\x1a\n")
            self.assertGreater(width * height, 100000)
            # The scan itself uses the planned flyback.
            scan = self.client.submit_scan(octavo.simulated(1, fast=True), pattern, rate_hz=100e3)
            self.assertEqual(self.client.wait(scan.name).state, DONE)
            self.assertTrue(self.client.volumes(scan.name)[0].complete)

    def test_long_waveforms_come_in_parts(self):
        wave = self.client.waveform(octavo.simulated(1), octavo.raster(1000, 300, 1, flyback_records=11))
        self.assertEqual(len(wave.x), 300 * 1011)
        self.assertEqual((wave.placement >= 0).sum(), 300000)
        with self.assertRaises(octavo.OctavoError) as raised:
            self.client._call(self.client._scans.PlanWaveform, scan_pb2.PlanWaveformRequest(
                spec=octavo.scan_spec(octavo.simulated(1), octavo.raster(10, 3, 1)), first_sample=30))
        self.assertEqual((raised.exception.code.name, raised.exception.field), ("OUT_OF_RANGE", "first_sample"))

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            csv, png, points = (os.path.join(folder, name) for name in ("w.csv", "p.png", "points.txt"))
            command = [os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "scan", "plan", "--source", "simulated", "--fast", "--samples", "64"]
            subprocess.run(command + ["--pattern", "repeated-radial", "--ascans", "50", "--bscans", "6", "--repeats", "2", "--repeat-period", "6", "--radius=-1,1",
                                      "--flyback-policy", "minimum-time", "--max-velocity", "5000", "--max-acceleration", "5e6", "--rate", "50000",
                                      "--waveform", csv, "--plot", png], check=True, capture_output=True)
            with open(csv) as file:
                rows = file.read().splitlines()
            self.assertEqual(rows[1], "x_mm,y_mm,ascan")
            table = np.array([[float(v) for v in row.split(",")] for row in rows[2:]])
            self.assertEqual(sorted(table[table[:, 2] >= 0, 2]), list(range(600)))
            with open(png, "rb") as file:
                self.assertEqual(file.read(4), b"\x89PNG")
            with open(points, "w") as file:
                file.write("# x y\n0 0\n0.1, 0.2\n0.3\t0.1\n")
            subprocess.run([command[0], *command[1:3], "scan", "submit", "--source", "simulated", "--fast", "--samples", "64", "--watch", "--pattern", "repeated-radial", "--ascans", "20",
                            "--bscans", "4", "--angiography", "speckle-variance"], check=True, capture_output=True)
            held = self.client.volumes()[-1]
            derive = subprocess.run([command[0], *command[1:3], "volume", "derive", held.name, "--angiography", "speckle-variance", "--cartesian", "16,18"],
                                    check=True, capture_output=True, text=True).stdout
            self.assertIn("[16, 18, 32] F32", derive)
            submit = [command[0], "--json", *command[1:3], "scan", "submit", "--source", "simulated", "--fast", "--samples", "64", "--watch", "--pattern", "freeform", "--points", points]
            self.assertIn('"volumes_done":"1"', subprocess.run(submit, check=True, capture_output=True, text=True).stdout.replace(" ", ""))

    # -- resampling

    def reference(self, array, taps):
        """Returns [(ascan index, weight), ...] for each grid point, or None where there is no data."""
        flat = array.reshape(-1, array.shape[2]).astype(np.float64)
        out = np.full((len(taps), array.shape[2]), np.nan)
        for i, point in enumerate(taps):
            if point is not None:
                out[i] = sum(w * flat[a] for a, w in point)
        return out

    def expect_cartesian(self, pattern, extent, taps_at, side=40, **chain):
        for dtype in ("f32", "u8"):
            levels = None if dtype == "f32" else (0, 120)
            volume = self.acquire(pattern, dtype=dtype, levels=levels)[0]
            grid = self.client.derive(volume.name, dict(cartesian=dict(rows=side, columns=side + 3, extent_x_mm=extent, extent_y_mm=extent)))
            self.assertEqual((list(grid.shape[:2]), grid.state, grid.derived_from), ([side, side + 3], 2, volume.name))
            self.assertAlmostEqual(grid.spacing_um[0], extent * 1e3 / side)
            xy = raster_mm(side, side + 3, extent, extent).reshape(-1, 2)
            array = self.client.read(volume.name)
            got = self.client.read(grid.name).reshape(len(xy), -1).astype(np.float64)
            want = self.reference(array, [taps_at(x, y) for x, y in xy])
            outside = np.isnan(want[:, 0])
            self.assertTrue(0 < outside.sum() < len(xy) / 2)
            if dtype == "f32":
                self.assertTrue(np.isnan(got[outside]).all())
                self.assertLess(np.abs(got[~outside] - want[~outside]).max(), 1e-5 * np.nanmax(want))
            else:
                self.assertEqual(got[outside].max(), 0)
                self.assertLessEqual(np.abs(got[~outside] - want[~outside]).max(), 0.51)

    def test_radial_volumes_become_cartesian(self):
        n, m, radius = 16, 40, 0.5

        def taps(x, y):
            r, step = np.hypot(x, y), np.pi / n
            a = np.arctan2(y, x)
            if a < 0:
                a, r = a + np.pi, -r
            k, t = int(a // step), a / step - a // step
            result = []
            for b, w in ((k, 1 - t), (k + 1, t)):
                at = ((-r if b == n else r) + radius) / (2 * radius) * m - 0.5
                if not -0.5 - 1e-9 <= at <= m - 0.5 + 1e-9:
                    return None
                at = min(max(at, 0), m - 1)
                i = min(int(at), m - 2)
                result += [(b % n * m + i, w * (1 - at + i)), (b % n * m + i + 1, w * (at - i))]
            return result

        self.expect_cartesian(octavo.radial(m, n, 1, radius=(-radius, radius), bidirectional=True), 1.0, taps)

    def test_spiral_volumes_become_cartesian(self):
        turns, m, inner, outer = 10, 48, 0.05, 0.5
        pitch, last = (outer - inner) / turns, (turns * m - 1) / m

        def along(turn):
            at = min(max(turn * m, 0), turns * m - 1)
            i = min(int(at + 1e-9), turns * m - 1)
            return [(i, 1 - (at - i)), (min(i + 1, turns * m - 1), at - i)]

        def taps(x, y):
            part = np.arctan2(y, x) / (2 * np.pi) % 1.0
            turn = (np.hypot(x, y) - inner) / pitch - part
            k, t = int(np.floor(turn)), turn - np.floor(turn)
            inside, beyond = 0 <= k and k + part <= last + 1e-9, 0 <= k + 1 and k + 1 + part <= last + 1e-9
            if inside and beyond:
                return [(a, w * (1 - t)) for a, w in along(k + part)] + [(a, w * t) for a, w in along(k + 1 + part)]
            if inside and t <= 0.5:
                return along(k + part)
            if beyond and t >= 0.5:
                return along(k + 1 + part)
            return None

        self.expect_cartesian(octavo.spiral(m, turns, 1, radius=(inner, outer)), 1.0, taps)

    def test_lissajous_volumes_become_cartesian(self):
        figure = dict(extent=(1.0, 1.0), cycles=(9, 8), phase=(77, 11))  # no two records are equally far from a point
        points = lissajous_mm(12, 50, **figure).reshape(-1, 2)
        reach = 4 * np.sqrt(1.0 / len(points))

        def taps(x, y):
            far = np.hypot(points[:, 0] - x, points[:, 1] - y)
            near = [i for i in np.argsort(far, kind="stable")[:4] if far[i] <= reach]
            if not near:
                return None
            weights = 1 / np.maximum(far[near], 1e-12) ** 2
            return list(zip(near, weights / weights.sum()))

        self.expect_cartesian(octavo.lissajous(50, 12, 1, **figure), 1.6, taps)

    # -- angiography

    def test_repeats_become_angiograms(self):
        for dtype, value, levels in (("u8", "db", (-10, 50)), ("f32", "magnitude", None), ("u16", "power", (0, 2000))):
            pattern = octavo.repeated_raster(30, 4, 1, repeats=4, period=2, order=True, bidirectional=True)
            scan = self.client.submit_scan(octavo.simulated(5, fast=True, scatterers=200, motion_um_per_volume=3), pattern,
                                           processing=octavo.processing(dtype=dtype, value=value, levels=levels))
            self.assertEqual(self.client.wait(scan.name).state, DONE)
            volume = self.client.volumes(scan.name)[0]
            array = self.client.read(volume.name).astype(np.float64)
            if levels:
                array = levels[0] + array / {"u8": 255, "u16": 65535}[dtype] * (levels[1] - levels[0])
            a = 10 ** (array / 20) if value == "db" else np.sqrt(array) if value == "power" else array
            a = a[[[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]]  # [B-scan, repeat, x, z] in the order of the scan
            power = a[:, 1:] ** 2 + a[:, :-1] ** 2
            want = {"SPECKLE_VARIANCE": a.var(1),
                    "AMPLITUDE_DECORRELATION": 1 - np.where(power == 0, 1, 2 * a[:, 1:] * a[:, :-1] / np.where(power == 0, 1, power)).mean(1)}
            for method, expected in want.items():
                derived = self.client.derive(volume.name, dict(angiography=dict(contrast_method=method)))
                self.assertEqual((list(derived.shape), derived.dtype, derived.quantity, derived.complete), ([4, 30, 512], types_pb2.DTYPE_F32, volume_pb2.Quantity.Value(f"QUANTITY_{method}"), True))
                got = self.client.read(derived.name)
                self.assertLess(np.abs(got - expected).max(), 3e-5 * max(expected.max(), 1e-9), (dtype, method))
            # The volume can be committed like any other, and its metadata describe it.
            result = self.client.commit(derived.name, f"angio_{dtype}", format="npy")
            with open(os.path.join(self.daemon.root, f"angio_{dtype}.npy.json")) as file:
                self.assertIn("amplitude_decorrelation over 4 repeats", file.read())
            np.testing.assert_array_equal(np.load(result.path), got)

    def test_live_angiograms_are_the_mean_of_the_contrast(self):
        # The source waits: a source with a pace of its own leaves angiograms out when the machine is busy.
        volumes = 3
        for contrast, method in (("SPECKLE_VARIANCE", "SPECKLE_VARIANCE"), ("AMPLITUDE_DECORRELATION", "AMPLITUDE_DECORRELATION")):
            scan = self.client.submit_scan(octavo.simulated(5, fast=True, motion_um_per_volume=3), octavo.repeated_raster(30, 6, volumes, repeats=3, flyback_records=4),
                                           rate_hz=20000, products=dict(angiography=contrast, slab_begin_um=100, slab_end_um=900),
                                           processing=octavo.processing(dtype="u16", axial_spacing_um=4))
            frames = {f.volume_index: f for f in self.client.subscribe(scan.name, ["angiogram"], delivery="lossless", from_sequence=0)}
            self.assertEqual(sorted(frames), list(range(volumes)))
            for volume in self.client.volumes(scan.name):
                derived = self.client.read(self.client.derive(volume.name, dict(angiography=dict(contrast_method=method))).name)
                frame = frames[volume.index].array
                self.assertEqual(frame.shape, (6, 30))
                np.testing.assert_allclose(frame, derived[:, :, 25:225].mean(2), rtol=2e-5, atol=1e-6 * derived.max())
        with self.assertRaises(octavo.OctavoError) as raised:
            self.client.submit_scan(octavo.simulated(1), octavo.raster(8, 8), products=dict(angiography=contrast))
        self.assertEqual(raised.exception.field, "products.angiography")
        plain = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(8, 8, 1))
        with self.assertRaises(octavo.OctavoError) as raised:
            list(self.client.subscribe(plain.name, ["angiogram"]))
        self.assertEqual(raised.exception.reason, "NO_ANGIOGRAM")

    def test_complex_volumes_give_phases(self):
        def acquire(pattern):
            scan = self.client.submit_scan(octavo.simulated(5, fast=True, scatterers=200, motion_um_per_volume=3), pattern,
                                           processing=octavo.processing(dtype="c64", value="complex"))
            self.assertEqual(self.client.wait(scan.name).state, DONE)
            name = self.client.volumes(scan.name)[0].name
            return name, self.client.read(name).astype(np.complex128)

        def window(products, half):
            padded = np.pad(products, ((0, 0), (0, 0), (half, half)))
            return sum(padded[:, :, k:k + products.shape[2]] for k in range(2 * half + 1))

        def expect(name, sums, **doppler):
            derived = self.client.derive(name, dict(doppler=doppler))
            self.assertEqual((list(derived.shape), derived.quantity, derived.dtype), (list(sums.shape), volume_pb2.QUANTITY_PHASE_RAD, types_pb2.DTYPE_F32))
            off = np.angle(np.exp(1j * (self.client.read(derived.name) - np.angle(sums))))
            self.assertLess(np.abs(off[np.abs(sums) > 1e-4 * np.abs(sums).max()]).max(), 1e-2)

        name, z = acquire(octavo.repeated_raster(20, 4, 1, repeats=3, period=2, bidirectional=True))
        z = z.reshape(4, 3, 20, -1)
        for half in (0, 2):
            expect(name, window((z[:, 1:] * z[:, :-1].conj()).sum(1), half), half_window=half)
        name, z = acquire(octavo.raster(20, 4, 1))
        expect(name, window(z[:, 1:] * z[:, :-1].conj(), 1), half_window=1)
        with self.assertRaises(octavo.OctavoError) as raised:
            self.client.derive(acquire(octavo.raster(20, 4, 1, bidirectional=True))[0], dict(doppler={}))
        self.assertEqual(raised.exception.field, "operations[0].doppler.between")

    def test_bscan_background_of_any_pattern(self):
        """The mean of each B-scan is subtracted, for every pattern: constant layers vanish."""
        flat = [dict(depth_um=500, reflectivity=0.02)]
        for pattern in (octavo.radial(30, 5, 1, flyback_records=3), octavo.repeated_raster(30, 4, 1, bidirectional=True), octavo.spiral(30, 5, 2, bidirectional_volumes=True),
                        octavo.pattern(octavo.raster(30, 5, 1, extent_x_mm=1, extent_y_mm=1), flyback="minimum_time", scanner=octavo.scanner(5000, 1e7))):
            means = []
            for background in ("none", "bscan"):
                scan = self.client.submit_scan(octavo.simulated(3, fast=True, layers=flat, noise_counts=-1, fixed_pattern=-1), pattern, rate_hz=100e3,
                                               processing=octavo.processing(value="magnitude", dtype="f32", background=background))
                self.assertEqual(self.client.wait(scan.name).state, DONE)
                volume = self.client.volumes(scan.name)[0]
                self.assertTrue(volume.complete)
                means.append(self.client.read(volume.name)[:, :, 60:].max())
            self.assertLess(means[1], 0.04 * means[0])  # shot noise and rounding remain

    def test_angiography_then_cartesian(self):
        volume = self.acquire(octavo.repeated_radial(30, 8, 1, repeats=2, period=1, radius=(-0.5, 0.5)))[0]
        both = self.client.derive(volume.name, dict(angiography={}), dict(cartesian=dict(rows=20)))
        first = self.client.derive(volume.name, dict(angiography={}))
        self.assertEqual((list(both.shape[:2]), list(first.shape[:2]), len(both.operations)), ([20, 30], [8, 30], 2))

    def test_a_retry_gets_the_first_answer(self):
        volume = self.acquire(octavo.radial(20, 8, 1))[0]
        first = self.client.derive(volume.name, dict(cartesian={}), request_id="once")
        self.assertEqual(self.client.derive(volume.name, dict(cartesian={}), request_id="once").name, first.name)
        with self.assertRaises(octavo.OctavoError) as raised:
            self.client.derive(volume.name, dict(cartesian=dict(rows=3)), request_id="once")
        self.assertEqual(raised.exception.code.name, "ALREADY_EXISTS")

    # -- errors

    def test_errors_name_the_field_and_change_nothing(self):
        before = len(self.client.scans())

        def refused(field, pattern, **fields):
            for call in (self.client.submit_scan, self.client.plan_scan):
                with self.assertRaises(octavo.OctavoError) as raised:
                    call(octavo.simulated(1, fast=True), pattern, **fields)
                self.assertEqual((raised.exception.code.name, raised.exception.field), ("INVALID_ARGUMENT", field), raised.exception)

        refused("pattern", scan_pb2.Pattern())
        refused("pattern.radial.ascans_per_bscan", octavo.radial(0, 4))
        refused("pattern.repeated_raster.raster.ascans_per_bscan", octavo.repeated_raster(0, 4))
        refused("pattern.repeated_raster.repeat.period", octavo.repeated_raster(4, 4, period=9))
        refused("pattern.repeated_raster.raster.extent_x_mm", octavo.repeated_raster(4, 4, extent_x_mm=float("nan")))
        refused("pattern.spiral.outer_radius_mm", octavo.spiral(4, 4, radius=(3, 1)))
        refused("pattern.spiral.rings", octavo.spiral(4, 1 << 21))
        refused("pattern.lissajous.cycles_y", octavo.lissajous(4, 4, cycles=(1, 30)))
        refused("pattern.freeform.x_mm", scan_pb2.Freeform())
        refused("pattern.freeform.y_mm", scan_pb2.Freeform(x_mm=[1]))
        refused("pattern.freeform.ascans_per_bscan", scan_pb2.Freeform(x_mm=[1, 2], y_mm=[1, 2], ascans_per_bscan=3))
        refused("pattern.rotation_deg", octavo.pattern(octavo.radial(4, 4), rotation=1e9))
        refused("pattern.raster.flyback_records", octavo.pattern(octavo.raster(4, 4, flyback_records=3), flyback="minimum_time", scanner=octavo.scanner(1e3, 1e6)))
        refused("pattern.freeform.volume_flyback_records", scan_pb2.Freeform(x_mm=[1], y_mm=[1], volume_flyback_records=1 << 30))
        unknown = octavo.pattern(octavo.raster(4, 4))
        unknown.flyback = 9
        refused("pattern.flyback", unknown)
        refused("pattern.scanner", octavo.pattern(octavo.radial(4, 4), flyback="minimum_time"))
        refused("pattern.scanner.x.velocity", octavo.pattern(octavo.radial(100, 4, radius=(-5, 5)), flyback="minimum_time", scanner=octavo.scanner(1, 1e6)))
        refused("pattern.scanner.y.acceleration", octavo.pattern(octavo.radial(4, 4), scanner=octavo.scanner(1e4, 1e7, y=dict(acceleration=-1))))
        refused("pattern.angular_warp.factor", octavo.pattern(octavo.radial(4, 4), warp=octavo.angular_warp(-2)))
        refused("pattern.telecentric_warp.scale_rad_per_deg", octavo.pattern(octavo.radial(4, 4), warp=octavo.telecentric_warp(100, 3)))
        for bad in (dict(repeat=dict(strategy=77)),):
            refused("pattern.repeated_raster.repeat.strategy", scan_pb2.RepeatedRaster(raster=octavo.raster(4, 4), **bad))
        self.assertEqual(len(self.client.scans()), before)

    def test_derive_errors_name_the_operation(self):
        held = lambda: [v.name for v in self.client.volumes()]
        raster = self.acquire(octavo.raster(8, 4, 1))[0].name
        radial = self.acquire(octavo.radial(8, 4, 1))[0].name
        before = held()

        def refused(field, name, *operations, code="INVALID_ARGUMENT"):
            with self.assertRaises(octavo.OctavoError) as raised:
                self.client.derive(name, *operations)
            self.assertEqual((raised.exception.code.name, raised.exception.field), (code, field), raised.exception)

        refused("operations", radial)
        refused("operations[0]", radial, volume_pb2.VolumeOperation())
        refused("operations[0].cartesian", raster, dict(cartesian={}))
        refused("operations[1].cartesian", radial, dict(cartesian={}), dict(cartesian={}))
        refused("operations[0].cartesian.rows", radial, dict(cartesian=dict(rows=1 << 20)))
        refused("operations[0].cartesian.extent_x_mm", radial, dict(cartesian=dict(extent_x_mm=-1)))
        refused("operations[0].cartesian.reach_mm", radial, dict(cartesian=dict(reach_mm=float("inf"))))
        refused("operations[0].angiography", radial, dict(angiography={}))
        refused("operations[0].angiography.contrast_method", radial, dict(angiography=dict(contrast_method=9)))
        refused("operations[0].doppler", radial, dict(doppler={}))
        refused("operations[0].doppler.between", radial, dict(doppler=dict(between=9)))
        refused("name", "volumes/none", dict(cartesian={}), code="NOT_FOUND")
        self.assertEqual(held(), before)


if __name__ == "__main__":
    unittest.main()
