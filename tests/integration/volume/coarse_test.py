"""ReadVolume with downsample and window: volumes of every type, in every tier and on several devices, against NumPy's picture of the voxels as
read; refusals, the command line, and the memory that it takes."""

import os
import unittest

import grpc
import numpy as np

from harness import DaemonTest, octavo


def coarse(array, factor, mean=False, window=None):
    """NumPy's picture: cubes of `factor`, those at the ends with what there is."""
    values = np.abs(array).astype(np.float32) if np.iscomplexobj(array) else array
    shape = [-(-n // factor) for n in values.shape]
    padded = np.full([n * factor for n in shape], np.nan)
    padded[tuple(slice(n) for n in values.shape)] = values
    cubes = padded.reshape(shape[0], factor, shape[1], factor, shape[2], factor).transpose(0, 2, 4, 1, 3, 5).reshape(*shape, -1)
    with np.errstate(all="ignore"), np.testing.suppress_warnings() as sup:
        sup.filter(RuntimeWarning)  # a cube of NaN
        made = np.nanmean(cubes, axis=-1) if mean else np.nanmax(cubes, axis=-1)
    if window is not None:
        lo, hi = window
        with np.errstate(all="ignore"):
            return np.nan_to_num(np.clip(np.floor((made - lo) * (255 / (hi - lo)) + 0.5), 0, 255)).astype(np.uint8)
    return made.astype(np.float32 if mean else values.dtype)


class Coarse(DaemonTest):
    flags = ("--spill.host_bytes", str(64 << 20), "--device.host_devices", "3", "--device.frame_pool_bytes", str(64 << 20))

    def scan(self, ascans=23, bscans=9, samples=128, spread=None, **processing):
        scan = self.client.submit_scan(octavo.simulated(7, fast=True), octavo.raster(ascans, bscans, volumes=1, extent_x_mm=0.46, extent_y_mm=0.27),
                                       samples=samples, processing=octavo.processing(axial_spacing_um=5, **processing),
                                       **({} if spread is None else dict(spread=spread)))
        return self.client.volumes(self.client.wait(scan.name).name)[0].name

    def check(self, name, start=(), count=()):
        array = self.client.read(name, start, count)
        finite = np.abs(array[np.isfinite(array)]).astype(float)
        window = (float(np.float32(np.percentile(finite, 10))), float(np.float32(np.percentile(finite, 95))))
        for factor in (1, 2, 4, 16, 64):
            for mean in (False, True):
                options = dict(downsample=factor, downsampling="mean" if mean else None)
                if factor == 1 and mean:
                    continue
                if factor > 1:
                    read = self.client.read(name, start, count, **options)
                    wanted = coarse(array, factor, mean)
                    self.assertEqual((read.dtype, read.shape), (wanted.dtype, wanted.shape))
                    np.testing.assert_allclose(read, wanted, rtol=1e-6 if mean or np.iscomplexobj(array) else 0)
                read = self.client.read(name, start, count, window=window, **options)
                wanted = coarse(array, factor, mean, window)
                self.assertEqual((read.dtype, read.shape), (np.uint8, wanted.shape))
                # A value near a half may round either way.
                self.assertLessEqual(np.abs(read.astype(int) - wanted).max(), 1)
                self.assertLess(np.mean(read != wanted), 0.02 if wanted.size > 100 else 0.5)

    def test_every_type(self):
        for dtype, value in (("u8", "db"), ("u16", "magnitude"), ("f16", "magnitude"), ("f32", "power"), ("c64", "complex")):
            with self.subTest(dtype):
                name = self.scan(dtype=dtype, value=value)
                self.check(name)
                self.check(name, (1, 2, 3), (7, 19, 40))

    def test_wherever_the_voxels_are(self):
        name = self.scan(ascans=70, bscans=40, samples=256)
        self.check(name)
        before = {factor: self.client.read(name, downsample=factor) for factor in (2, 8)}
        for tier in ("host", "disk"):
            self.client.spill(name, tier)
            with self.subTest(tier):
                for factor, wanted in before.items():
                    np.testing.assert_array_equal(self.client.read(name, downsample=factor), wanted)
                self.check(name)
        self.client.restore(name)
        if len(self.client.devices()) < 3:
            self.skipTest("a striped volume needs three devices")
        striped = self.scan(ascans=33, bscans=24, spread=dict(count=3, striped=True))
        self.assertGreater(len(self.client.volume(striped).spread_devices), 1)
        self.check(striped)

    def test_nothing_is_held(self):
        name = self.scan()
        before = [d.used_bytes for d in self.client.devices()]
        self.client.read(name, downsample=2, window=(0, 100))
        self.assertEqual([d.used_bytes for d in self.client.devices()], before)

    def test_what_is_refused(self):
        name = self.scan()
        for fields, words in ((dict(downsample=3), "downsample: is 3"), (dict(downsample=128), "downsample: is 128"),
                              (dict(downsampling="mean"), "downsampling: has no effect"), (dict(window=(5, 5)), "window: is 5 to 5"),
                              (dict(window=(0, float("inf"))), "window.hi"), (dict(window=(float("nan"), 1)), "window.lo")):
            with self.subTest(words), self.assertRaises(octavo.OctavoError) as caught:
                self.client.read(name, **fields)
            self.assertEqual(caught.exception.code, grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.read(name, (0, 0, 0), (1, 1, 1 << 20), downsample=2)
        self.assertEqual(caught.exception.code, grpc.StatusCode.OUT_OF_RANGE)
        volume = self.client.volume(name)
        for read in (volume.read, lambda **fields: self.client.read(name, **fields)):
            for window in (5, (1,), (1, 2, 3), "ab"):
                with self.assertRaisesRegex(ValueError, r"window is .*; expected 2 numbers: \(lo, hi\)"):
                    read(window=window)
            with self.assertRaisesRegex(ValueError, r"window\[?.*expected a number|window is 'x'; expected a number"):
                read(window=("x", 1))
        with self.assertRaisesRegex(TypeError, "did you mean 'downsample'"):
            volume.read(downsampel=2)

    def test_a_volume_reads_as_its_client_does(self):
        name = self.scan()
        volume = self.client.volume(name)
        for fields in (dict(downsample=4), dict(downsample=2, downsampling="mean"), dict(downsample=2, window=(0, 120)), dict(window=(5, 60)),
                       dict(start=(1, 2, 3), count=(7, 19, 40), downsample=4, downsampling="mean", window=(0, 120))):
            with self.subTest(fields):
                np.testing.assert_array_equal(volume.read(**fields), self.client.read(name, **fields))
        self.assertLess(volume.read(downsample=4).size, volume.read().size / 20)

    def test_raw_spectra_have_none(self):
        scan = self.client.submit_scan(octavo.simulated(7, fast=True), octavo.raster(8, 4, volumes=1), samples=64, retention=dict(hold_raw=True))
        raw = next(v.name for v in self.client.volumes(self.client.wait(scan.name).name) if v.raw)
        for fields in (dict(downsample=2), dict(window=(0, 1))):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.read(raw, **fields)
            self.assertIn("raw spectra", str(caught.exception))

    def test_the_command_line(self):
        name = self.scan()
        path = os.path.join(self.daemon.directory, "coarse.npy")
        self.command("volume", "read", name, "-o", path, "--downsample", "4", "--mean", "--window", "0,120")
        np.testing.assert_array_equal(np.load(path), self.client.read(name, downsample=4, downsampling="mean", window=(0, 120)))


if __name__ == "__main__":
    unittest.main()
