"""The whole chain through the daemon on random spectra, compared with the double-precision NumPy
model: every length and option."""

import os
import unittest

import numpy as np

import spectral_reference as model
from harness import DaemonTest, octavo
from octavo.v1 import reason_pb2

X, Y, FLYBACK = 9, 4, 2
# A prime, mixes of 2, 3 and 5, powers of two, an even number with a large prime factor.
LENGTHS = (509, 1000, 1024, 1376, 1536, 2048, 2500, 4096)
FULL_SCALE = {"u8": 256, "u16": 4096, "i16": 65536, "f32": 65536}
INTEGERS = ("u8", "i8", "u16")


def warp(n):
    u = np.linspace(0, 1, n)
    return np.clip((u + 0.08 * u * (1 - u)) * (n - 1), 0, n - 1).astype(np.float32)


class Chain(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.seed = int.from_bytes(os.urandom(4), "little")
        print(f"random data from seed {cls.seed}", flush=True)
        cls.random = np.random.default_rng(cls.seed)

    def records(self, count, n, raw):
        """Interference-like spectra with noise, so that they contain both peaks and the noise
        floor."""
        ranges = {"u8": (0, 256, np.uint8), "u16": (0, 4096, np.uint16), "i16": (-32768, 32768, np.int16)}
        if raw == "f32":
            return (self.random.random((count, n)) * 9000 - 1000).astype(np.float32)
        low, high, dtype = ranges[raw]
        return self.random.integers(low, high, (count, n)).astype(dtype)

    def check(self, name, n, *, raw="u16", value="magnitude", dtype="f32", levels=None, block=0, rolling=None, group=0, background=None, wavelength_nm=None,
              polynomial=None, r=None, interpolation=None, fft_length=0, first_bin=0, depth=0, bidirectional=False, columns=X, packed=None, channels=1, channel=0, average=1, bscan=False,
              noise=None, **steps):
        count = Y * (columns + FLYBACK)
        samples = self.records(count * average, n * channels, raw)
        if noise == "quiet_segment":  # A-scans that vary little, in one segment of every B-scan
            lines = samples.reshape(Y, columns + FLYBACK, -1)
            lines[:, columns * 4 // 9:columns * 5 // 9] //= 32
        np.save(os.path.join(self.daemon.root, "random.npy"), model.pack12(samples, packed) if packed else samples)
        data = samples[:, channel::channels].astype(np.float64).reshape(count, average, n).mean(axis=1)
        processing = dict(value=value, dtype=dtype, levels=levels, interpolation=interpolation, fft_length=fft_length, first_bin=first_bin,
                          depth=depth, background="none", k="none", **steps)
        if noise:
            processing["fixed_pattern_noise"] = noise
        if bscan:
            processing["background"] = "bscan"
        elif rolling is not None:
            processing.update(background="rolling", group_records=group, window_records=rolling)
        elif background is not None:
            processing["background"] = background
        if wavelength_nm is not None:
            processing.update(wavelength_nm=wavelength_nm, k=None)
        elif polynomial is not None:
            processing.update(polynomial=polynomial, k=None)
        elif r is not None:
            processing.update(k=r)
        message = octavo.processing(**processing)
        scan = self.client.submit_scan(octavo.replay("random.npy"), octavo.raster(columns, Y, volumes=1, flyback_records=FLYBACK, bidirectional=bidirectional),
                                       processing=message, acquisition=dict(records_per_block=block), products=dict(aip=True, preview_rate_hz=-1), raw_type=packed,
                                       samples=n if packed else 0, channels=channels, channel=channel, record_average=average)
        end = self.client.wait(scan.name)
        self.assertEqual(end.reason_code, reason_pb2.REASON_COMPLETED, end.reason)
        volume = self.client.volumes(scan.name)[0]
        self.assertTrue(volume.complete)
        got = self.client.read(volume.name)
        got = got.astype(np.complex128 if dtype == "c64" else np.float64)
        self.client.discard(volume.name)

        subtract = background if rolling is None else model.rolling_background(data, rolling, group or columns + FLYBACK)
        if bscan:
            means = data.reshape(Y, columns + FLYBACK, n)[:, :columns].mean(axis=1)
            subtract = np.repeat(means, columns + FLYBACK, axis=0)
        if wavelength_nm is not None:
            r = model.positions_of_wavelength(wavelength_nm)
        elif polynomial is not None:
            r = np.clip(sum(c * np.arange(n, dtype=np.float64) ** i for i, c in enumerate(polynomial)), 0, n - 1)
        z = model.depth_profiles(data, background=subtract, r=r, interpolation=interpolation or "cubic", fft_length=fft_length, first_bin=first_bin,
                                 depth=depth, **steps)
        z = z.reshape(Y, columns + FLYBACK, -1)[:, :columns].copy()
        if noise:
            z -= model.fixed_pattern(z, noise)
        if bidirectional:
            z[1::2] = z[1::2, ::-1]
        wanted = model.stored(model.value_of(z, value), levels, dtype)
        self.assertEqual(got.shape, wanted.shape)
        full = FULL_SCALE[raw]
        if dtype in INTEGERS:
            tolerance = 1.0
        elif value == "db":
            loud = np.abs(z) > full * 1e-5
            self.assertGreater(loud.mean(), 0.5)
            got, wanted = got[loud], wanted[loud]
            tolerance = 0.05 / (levels[1] - levels[0] if levels else 1)
        else:
            tolerance = 5e-6 * (full ** 2 if value == "power" else full) / (levels[1] - levels[0] if levels else 1)
        if dtype == "f16":
            tolerance += np.abs(wanted) / 2048
        worst = (np.abs(got - wanted) - tolerance).max()
        self.assertLessEqual(worst, 0.0, f"{name}, {n} samples, seed {self.seed}")
        if dtype in INTEGERS:  # some values are not clipped
            self.assertGreater(len(np.unique(got)), 20, name)

    def every_length(self, name, options=lambda n: {}):
        for n in LENGTHS:
            with self.subTest(name=name, samples=n):
                self.check(name, n, **options(n))

    def test_raw_types(self):
        for raw in FULL_SCALE:
            self.every_length(raw, lambda n, raw=raw: dict(raw=raw))

    def test_backgrounds(self):
        self.every_length("static", lambda n: dict(background=(1500 + 500 * np.sin(np.arange(n) / 40)).astype(np.float32)))
        for raw in ("u16", "u8", "f32"):
            self.every_length("rolling", lambda n, raw=raw: dict(rolling=0, block=7, raw=raw))
            self.every_length("rolling, short groups", lambda n, raw=raw: dict(rolling=20, group=6, block=7, raw=raw))
        self.every_length("rolling, longer than the scan", lambda n: dict(rolling=1000, group=11, block=13))

    def test_k_linearisation(self):
        for kind in ("linear", "cubic", "lanczos"):
            self.every_length(f"positions, {kind}", lambda n, kind=kind: dict(r=warp(n), interpolation=kind))
            self.every_length(f"wavelength, {kind}", lambda n, kind=kind: dict(wavelength_nm=np.linspace(800, 880, n), interpolation=kind))
            self.every_length(f"polynomial, {kind}", lambda n, kind=kind: dict(polynomial=[0.0, 0.93, 0.07 / (n - 1)], interpolation=kind))
        self.every_length("fewer positions than samples", lambda n: dict(r=np.linspace(3, n - 5, n // 2).astype(np.float32), interpolation="cubic"))

    def test_windows(self):
        for window in model.WINDOWS:
            self.every_length(window, lambda n, window=window: dict(window=window))
        self.every_length("values", lambda n: dict(window=np.linspace(0.1, 1, n).astype(np.float32)))

    def test_dispersion(self):
        self.every_length("a2, a3", lambda n: dict(a2=3e-5, a3=-2e-8))
        self.every_length("phase", lambda n: dict(phase=np.cumsum(np.full(n, 0.01)).astype(np.float32)))
        self.every_length("with k-linearisation", lambda n: dict(a2=2e-5, r=warp(n), rolling=16, group=8, block=5, value="db", dtype="u8", levels=(-20, 60)))

    def test_transform_and_bins(self):
        self.every_length("padded", lambda n: dict(fft_length=2 * n))
        self.every_length("padded to 3000", lambda n: dict(fft_length=max(3000, n), depth=701))
        self.every_length("some bins", lambda n: dict(first_bin=37, depth=200))
        self.every_length("all bins", lambda n: dict(depth=n))

    def test_values_types_levels(self):
        for value, levels in (("db", (-20, 60)), ("magnitude", (0, 120)), ("power", (0, 5000))):
            self.every_length(value, lambda n, value=value: dict(value=value))
            for dtype in ("u8", "u16", "f32"):
                if dtype == "u16" and value != "magnitude":
                    continue  # there, one count of 65536 is finer than 0.05 dB or than float32 itself
                self.every_length(f"{value} {dtype}", lambda n, value=value, dtype=dtype, levels=levels: dict(value=value, dtype=dtype, levels=levels))

    def test_half_precision_signed_bytes_and_complex(self):
        for value, levels in (("db", (-20, 60)), ("magnitude", (0, 120)), ("real", (-80, 80))):
            for dtype in ("i8", "f16"):
                self.every_length(f"{value} {dtype}", lambda n, value=value, dtype=dtype, levels=levels: dict(value=value, dtype=dtype, levels=levels))
            self.every_length(f"{value} f16", lambda n, value=value: dict(value=value, dtype="f16"))
        self.every_length("real", lambda n: dict(value="real", depth=n))
        self.every_length("complex", lambda n: dict(value="complex", dtype="c64"))
        self.every_length("complex, dispersion", lambda n: dict(value="complex", dtype="c64", a2=3e-5, a3=-2e-8, first_bin=11, depth=200))

    def test_packed_channels_and_means(self):
        for packed in ("u12p", "u12_packed"):
            self.every_length(packed, lambda n, packed=packed: dict(packed=packed))
            self.every_length(packed, lambda n, packed=packed: dict(packed=packed, channels=3, channel=1, average=2, rolling=20, group=9, block=7))
        for raw in FULL_SCALE:
            self.every_length(f"{raw}, 2 channels, means of 3", lambda n, raw=raw: dict(raw=raw, channels=2, channel=1, average=3))

    def test_bscan_background_and_fixed_pattern(self):
        for block in (0, 7, 31):  # blocks that contain whole B-scans, and blocks that cut them
            self.every_length("background", lambda n, block=block: dict(bscan=True, block=block))
            self.every_length("mean", lambda n, block=block: dict(noise="mean", block=block, bidirectional=True))
            self.every_length("quiet segment", lambda n, block=block: dict(noise="quiet_segment", block=block, columns=27))
        self.every_length("all", lambda n: dict(bscan=True, noise="mean", average=2, a2=2e-5, value="db", dtype="u8", levels=(-20, 60), block=5))

    def test_means_of_repeats(self):
        """Groups of two lines, three times each. The stored value is the mean power, however blocks
        cut the stream."""
        lines, repeats, period = 4, 3, 2
        for n, block, noise, value in ((509, 0, None, "db"), (1024, 7, None, "magnitude"), (1376, 13, "mean", "power"), (1024, 0, "mean", "db")):
            with self.subTest(samples=n, block=block, noise=noise, value=value):
                records = self.records(lines * repeats * (X + FLYBACK), n, "u16")
                np.save(os.path.join(self.daemon.root, "random.npy"), records)
                pattern = octavo.repeated_raster(X, lines, volumes=1, repeats=repeats, period=period, average=True, flyback_records=FLYBACK)
                scan = self.client.submit_scan(octavo.replay("random.npy"), pattern, acquisition=dict(records_per_block=block),
                                               processing=octavo.processing(background="none", k="none", value=value, dtype="f32", fixed_pattern_noise=noise))
                end = self.client.wait(scan.name)
                self.assertEqual(end.reason_code, reason_pb2.REASON_COMPLETED, end.reason)
                volume = self.client.volumes(scan.name)[0]
                self.assertTrue(volume.complete)
                got = self.client.read(volume.name).astype(np.float64)
                self.client.discard(volume.name)
                z = model.depth_profiles(records).reshape(lines * repeats, X + FLYBACK, -1)[:, :X]
                if noise:
                    z = z - model.fixed_pattern(z, noise)
                power = (np.abs(z) ** 2).reshape(lines // period, repeats, period, X, -1).mean(axis=1).reshape(lines, X, -1)
                self.assertEqual(got.shape, power.shape)
                full = FULL_SCALE["u16"]
                if value == "db":
                    np.testing.assert_allclose(got, 10 * np.log10(power), rtol=0, atol=0.05)
                else:
                    wanted = power if value == "power" else np.sqrt(power)
                    np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-6 * (full ** 2 if value == "power" else full))

    def test_bscan_background_of_every_pattern(self):
        """B-scans of patterns that a table describes, cut by blocks."""
        n, rows, columns = 256, 6, 8
        for shape in (octavo.radial(columns, rows, volumes=1), octavo.repeated_raster(columns, 3, volumes=1, repeats=2, period=1)):
            records = self.records(rows * columns, n, "u16")
            np.save(os.path.join(self.daemon.root, "random.npy"), records)
            scan = self.client.submit_scan(octavo.replay("random.npy"), shape, acquisition=dict(records_per_block=11),
                                           processing=octavo.processing(background="bscan", k="none", value="magnitude", dtype="f32"))
            self.assertEqual(self.client.wait(scan.name).reason_code, reason_pb2.REASON_COMPLETED)
            volume = self.client.volumes(scan.name)[0]
            got = self.client.read(volume.name).astype(np.float64)
            self.client.discard(volume.name)
            lines = records.reshape(rows, columns, n).astype(np.float64)
            lines -= lines.mean(axis=1, keepdims=True)
            wanted = np.abs(model.depth_profiles(lines.reshape(-1, n))).reshape(rows, columns, -1)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-6 * FULL_SCALE["u16"])

    def test_bidirectional_lines(self):
        self.every_length("bidirectional", lambda n: dict(bidirectional=True, block=5))


if __name__ == "__main__":
    unittest.main()
