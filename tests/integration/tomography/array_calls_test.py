"""octavo.prep: array calls and chains against TomoPy's formulas in double precision, what they leave on the server, and wrong use; octavo.phantoms."""

import math
import os
import unittest
import warnings

import numpy as np
from scipy import ndimage

from harness import DATA, DaemonTest, held_bytes, octavo, until
from octavo import phantoms, prep
from tomography_test import shepp_logan

TOMO = os.path.join(DATA, "tomo")
needs_data = unittest.skipUnless(os.path.isdir(TOMO), f"no test data in {TOMO} (OCTAVO_TEST_DATA)")


# -- TomoPy's formulas, in double precision

def normalized(arr, flat, dark, cutoff=None, average=np.mean):
    flat, dark = (average(np.asarray(one, float), axis=0) if np.ndim(one) == 3 else one for one in (flat, dark))
    made = (arr.astype(float) - dark) / np.maximum(np.subtract(flat, dark, dtype=float), 1e-6)
    return made if cutoff is None else np.minimum(made, cutoff)


def without_outliers(arr, dif, size, axis=0):
    window = [size] * 3
    window[axis] = 1
    median = ndimage.median_filter(arr.astype(float), size=window)
    return np.where(arr - median >= dif, median, arr)


def air_normalized(tomo, air):
    left, right = (tomo[..., part].mean(axis=2, keepdims=True) for part in (slice(None, air), slice(-air, None)))
    return tomo / (left + (right - left) * np.linspace(0, 1, tomo.shape[2]))


def paganin(tomo, pixel_size, dist, energy, alpha, half_step):
    """Edges continued by 128 values. half_step: on TomoPy's grid of frequencies, normalised to its maximum; else on those of the transform."""
    wavelength = 1.2398419843e-7 / energy  # cm
    padded = np.pad(tomo.astype(float), ((0, 0), (128, 128), (128, 128)), "edge")

    def squares(n):
        return (np.fft.fftshift(np.linspace(-0.5, 0.5, n)) if half_step else np.fft.fftfreq(n)) ** 2 / pixel_size ** 2

    factor = 1 / (wavelength * dist * np.add.outer(*map(squares, padded.shape[1:])) / (4 * np.pi) + alpha)
    made = np.fft.ifft2(np.fft.fft2(padded) * factor / factor.max()).real
    return made[:, 128:-128, 128:-128]


def detected(factors, snr):
    n, falling = len(factors), np.sort(factors)[::-1]
    x, drop = np.arange(n), n // 4
    slope, first = np.polyfit(x[drop:-drop - 1], falling[drop:-drop - 1], 1)
    last = first + slope * x[-1]
    noise = max(abs(last - first), 1e-6)
    mask = np.zeros(n, bool)
    if abs(falling[0] - first) / noise >= snr:
        mask |= factors > first + noise * snr / 2
    if abs(falling[-1] - last) / noise >= snr:
        mask |= factors <= last - noise * snr / 2
    return ndimage.binary_dilation(mask)


def sort_smoothed(sino, size):
    order = np.argsort(sino, axis=0, kind="stable")
    return order, ndimage.median_filter(np.take_along_axis(sino, order, 0), (1, size))


def unsorted(order, smooth):
    made = np.empty_like(smooth)
    np.put_along_axis(made, order, smooth, 0)
    return made


def sorting(sino, size):
    return unsorted(*sort_smoothed(sino, size))


def large(sino, snr=3, size=51, drop_ratio=0.1, norm=True):
    drop = int(0.5 * drop_ratio * len(sino))
    order, smooth = sort_smoothed(sino, size)
    kept = slice(drop, len(sino) - drop)
    factors = np.sort(sino, axis=0)[kept].mean(axis=0) / smooth[kept].mean(axis=0)
    return np.where(detected(factors, snr), unsorted(order, smooth), sino / factors if norm else sino)


def dead(sino, snr=3, size=51):
    rough = np.abs(sino - ndimage.uniform_filter1d(sino, 10, axis=0)).sum(axis=0)
    mask = detected(rough / ndimage.median_filter(rough, size), snr)
    mask[:2] = mask[-2:] = False
    good = np.flatnonzero(~mask)
    return large(np.stack([np.interp(np.arange(len(mask)), good, row[good]) for row in sino]), snr, size)


def every_stripe(sino, snr=3, la_size=61, sm_size=21):
    return sorting(dead(sino, snr, la_size), sm_size)


def daubechies(order):
    """The scaling filter of so many vanishing moments, from its definition."""
    y = [math.comb(order - 1 + k, k) for k in range(order)]
    roots = []
    for one in np.roots(y[::-1]):
        z = np.roots([1, 4 * one - 2, 1])
        roots.append(z[np.argmin(np.abs(z))])
    taps = np.real(np.poly([-1] * order + roots))
    return taps / taps.sum() * np.sqrt(2)


def analysed(x, taps):
    """Both halves of a discrete wavelet transform along axis 0; edges mirrored."""
    length = len(taps)
    padded = np.pad(x, [(length - 1, length - 1)] + [(0, 0)] * (x.ndim - 1), "symmetric")
    signs = (-1.0) ** np.arange(length)
    return [np.apply_along_axis(np.convolve, 0, padded, filter_, "valid")[1::2] for filter_ in (taps[::-1], -signs * taps)]


def synthesised(low, high, taps, n):
    length, signs = len(taps), (-1.0) ** np.arange(len(taps))
    made = 0
    for part, filter_ in ((low, taps), (high, signs * taps[::-1])):
        spread = np.zeros((2 * len(part) - 1, *part.shape[1:]))
        spread[::2] = part
        made = made + np.apply_along_axis(np.convolve, 0, spread, filter_)
    return made[length - 2:length - 2 + n]


def fourier_wavelet(sino, levels, taps, sigma=2, pad=True):
    extra = len(sino) // 8 if pad else 0
    padded = np.pad(sino, ((extra // 2, extra - extra // 2), (0, 0)))
    return damped(padded, levels, taps, sigma)[extra // 2:extra // 2 + len(sino)]


def damped(image, levels, taps, sigma):
    if levels == 0:
        return image
    (smooth, stripes), (across, both) = ([half.T for half in analysed(part.T, taps)] for part in analysed(image, taps))
    n = len(stripes)
    frequencies = (np.arange(-n, n, 2) + 1) / 2
    spectrum = np.fft.fftshift(np.fft.fft(stripes, axis=0), axes=0) * -np.expm1(-frequencies ** 2 / (2 * sigma ** 2))[:, None]
    stripes = np.fft.ifft(np.fft.ifftshift(spectrum, axes=0), axis=0).real
    smooth = damped(smooth, levels - 1, taps, sigma)
    low, high = (synthesised(one.T, other.T, taps, image.shape[1]).T for one, other in ((smooth, stripes), (across, both)))
    return synthesised(low, high, taps, len(image))


def of_sinograms(function, tomo, *args, **kwargs):
    return np.stack([function(tomo[:, row].astype(float), *args, **kwargs) for row in range(tomo.shape[1])], axis=1)


def joined(data, overlap, right):
    """Over 180 degrees, for a whole overlap."""
    n, columns = len(data) // 2, data.shape[2]
    near, far = data[:n].astype(float), data[n:2 * n].astype(float)
    if right:
        near, far = near[..., ::-1], far[..., ::-1]
    made = np.empty((n, data.shape[1], 2 * columns - overlap))
    weights = np.linspace(0, 1, overlap)
    made[..., columns:] = near[..., overlap:]
    made[..., :columns - overlap] = far[..., :overlap - 1 if overlap else None:-1]
    made[..., columns - overlap:columns] = weights * near[..., :overlap] + (weights * far[..., :overlap])[..., ::-1]
    return made[..., ::-1] if right else made


class References(unittest.TestCase):
    def test_the_wavelets_are_wavelets(self):
        x = np.random.default_rng(1).normal(size=(37, 3))
        for order in (1, 2, 5, 8):
            taps = daubechies(order)
            self.assertAlmostEqual(float(taps @ taps), 1, 7)
            np.testing.assert_allclose(synthesised(*analysed(x, taps), taps, 37), x, atol=1e-6)


def striped(angles=120, rows=2, columns=101, seed=3):
    """Sinograms with stripes of all kinds."""
    rng = np.random.default_rng(seed)
    a, b = np.meshgrid(np.linspace(0, 3, angles), np.linspace(-1, 1, columns), indexing="ij")
    tomo = (2 + np.sin(a) * np.exp(-3 * b * b))[:, None] * (1 + 0.05 * rng.normal(size=(1, rows, columns))) + 0.01 * rng.normal(size=(angles, rows, columns))
    tomo[:, 0, 2 * columns // 5:2 * columns // 5 + 3] *= 0.6
    tomo[:, -1, 3 * columns // 5] = 2 + rng.normal(size=angles)
    return tomo.astype(np.float32)


def transmissions(angles=6, rows=9, columns=30, seed=5):
    tomo = 0.9 - 0.3 * np.random.default_rng(seed).random((angles, rows, columns), np.float32)
    tomo[:, 2:-2, 8:20] *= 0.5
    return tomo


def counts(angles=7, rows=5, columns=24, seed=4, dtype=np.uint16):
    """Projections, flat and dark fields."""
    rng = np.random.default_rng(seed)
    flat = rng.integers(8000, 9000, (4, rows, columns))
    return (np.round(flat[0] * transmissions(angles, rows, columns)).astype(dtype), flat.astype(dtype), rng.integers(90, 110, (3, rows, columns)).astype(dtype))


class ArrayCalls(DaemonTest):
    def setUp(self):
        filters = warnings.catch_warnings()
        filters.__enter__()
        self.addCleanup(filters.__exit__, None, None, None)
        warnings.simplefilter("error", octavo.OctavoWarning)

    def tearDown(self):
        self.nothing_left()
        super().tearDown()

    def nothing_left(self):
        self.assertEqual(self.client.buffers.list(), [])
        self.assertEqual([volume.name for volume in self.client.volumes() if volume.state in ("HELD", "ACQUIRING")], [])
        until(lambda: held_bytes(self.client) == 0)

    def check(self, made, wanted, tolerance=2e-6):
        self.assertEqual((made.dtype, made.shape, made.flags.c_contiguous), (np.float32, wanted.shape, True))
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance * max(1.0, float(np.abs(wanted).max())))

    def jobs(self):
        return len(self.client.jobs())

    def test_normalize(self):
        for dtype in (np.uint8, np.uint16, np.int16, np.float32, np.float64, np.int64, ">u2", ">f4"):
            arr, flat, dark = counts()
            if dtype == np.uint8:
                arr, flat, dark = arr // 40, flat // 40, dark // 40
            arr, flat, dark = (one.astype(dtype) for one in (arr, flat, dark))
            with self.subTest(dtype=dtype):
                kept = arr.copy()
                self.check(prep.normalize(arr, flat, dark, client=self.client), normalized(arr, flat, dark))
                np.testing.assert_array_equal(arr, kept)
        arr, flat, dark = counts()
        self.check(prep.normalize(arr, flat, dark, 0.7, averaging="median", client=self.client), normalized(arr, flat, dark, 0.7, np.median))
        self.check(prep.normalize(arr, flat[1], dark.mean(axis=0), client=self.client), normalized(arr, flat[1], dark.mean(axis=0)))  # types differ
        wide = np.zeros((7, 5, 48), np.uint16)
        wide[..., ::2] = arr
        self.check(prep.normalize(wide[..., ::2], flat[::-1], dark, client=self.client), normalized(arr, flat[::-1], dark))
        self.check(prep.normalize(arr.transpose(1, 0, 2)[:1], flat[:, 0, None].repeat(7, axis=1), dark[:, 0, None].repeat(7, axis=1), client=self.client),
                   normalized(arr.transpose(1, 0, 2)[:1], flat[:, 0, None].repeat(7, axis=1), dark[:, 0, None].repeat(7, axis=1)))  # one projection

    def test_a_dead_pixel_of_the_flat_fields_is_told(self):
        arr, flat, dark = counts(dtype=np.float32)
        flat[:, 1, 3] = dark[:, 1, 3] = 100
        with self.assertWarnsRegex(octavo.OctavoWarning, "not brighter than the dark field"):
            made = prep.normalize(arr, flat, dark, client=self.client)
        self.check(made, normalized(arr, flat, dark))  # / 1e-6, as TomoPy

    def test_normalize_nf(self):
        arr, _, dark = counts(angles=12)
        flats = np.random.default_rng(6).integers(8000, 9000, (6, 5, 24)).astype(np.uint16)
        for places in ((0, 5, 11), (3,), (0, 1, 2, 7, 9, 12)):
            wanted, begin = np.empty(arr.shape), 0
            for m, place in enumerate(places):
                each = len(flats) // len(places)
                end = len(arr) if m == len(places) - 1 else int(np.round((places[m + 1] - place) / 2)) + place
                wanted[begin:end] = normalized(arr[begin:end], np.median(flats[m * each:(m + 1) * each], axis=0), dark, 0.8)
                begin = end
            self.check(prep.normalize_nf(arr, flats, dark, places, 0.8, client=self.client), wanted)

    def test_minus_log_and_its_floor(self):
        tomo = transmissions()
        self.check(prep.minus_log(tomo, client=self.client), -np.log(tomo.astype(float)))
        tomo[0, 0, :4] = 0, -1, 1e-7, 2
        made = self.quiet(prep.minus_log, tomo)
        np.testing.assert_allclose(made[0, 0, :4], -np.log([1e-6, 1e-6, 1e-6, 2]), rtol=1e-6)

    def quiet(self, function, *args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args, client=self.client, **kwargs)

    def test_normalize_bg(self):
        tomo = transmissions()
        for air in (1, 4):
            self.check(prep.normalize_bg(tomo, air, client=self.client), air_normalized(tomo.astype(float), air))
        with self.assertWarnsRegex(octavo.OctavoWarning, "columns 0 to 14 of the detector show no air alone"):
            self.check(prep.normalize_bg(tomo, 15, client=self.client), air_normalized(tomo.astype(float), 15))
        tomo[0, 0] = 0
        with self.assertWarnsRegex(octavo.OctavoWarning, "not finite"):
            self.assertEqual(np.abs(prep.normalize_bg(tomo, client=self.client)[0, 0]).max(), 0)

    def test_remove_outlier(self):
        for dtype in (np.uint16, np.float32, np.float64):
            arr = counts(6, 8, 21)[0].astype(dtype)
            arr[1, 3, 4] = arr[2, 0, 0] = arr[5, 7, 20] = 30000
            arr[3, 3, 3] = 0  # not bright
            for axis in (0, 1, 2) if dtype == np.uint16 else (0,):
                for dif, size in ((1000, 3), (300, 5)):
                    self.check(prep.remove_outlier(arr, dif, size, axis, client=self.client), without_outliers(arr, dif, size, axis), 0)

    @needs_data
    def test_remove_outlier_repeats_tomopy(self):
        proj = np.load(os.path.join(TOMO, "tomopy_fixtures", "proj.npy"))
        spoiled = proj.copy()
        spoiled[8, 4, 6] = 20  # tomopy's own test
        np.testing.assert_array_equal(prep.remove_outlier(spoiled, 10, client=self.client), proj)

    def test_retrieve_phase(self):
        tomo = transmissions(2, 20, 48)
        for scale in (dict(), dict(pixel_size=5e-4, dist=120, energy=30.5, alpha=1e-4)):
            args = (*(scale.get(name, usual) for name, usual in (("pixel_size", 1e-4), ("dist", 50), ("energy", 20), ("alpha", 1e-3))),)
            made = prep.retrieve_phase(tomo, client=self.client, **scale)
            self.check(made, paganin(tomo, *args, half_step=False), 2e-4)  # both end the kernel somewhere
            # TomoPy's frequencies lie half a step beside.
            self.assertLess(np.abs(made - paganin(tomo, *args, half_step=True)).max(), 0.002)
        self.assertEqual(prep.retrieve_phase(tomo, client=self.client).tobytes(),
                         prep.retrieve_phase(tomo, delta_beta=1 / (4 * np.pi ** 2 * 1e-3), client=self.client).tobytes())
        with self.assertRaisesRegex(ValueError, "alpha is 1 and delta_beta 30"):
            prep.retrieve_phase(tomo, alpha=1, delta_beta=30, client=self.client)
        self.assertLess(np.abs(prep.retrieve_phase(np.full((1, 6, 9), 0.4, np.float32), client=self.client) - 0.4).max(), 1e-6)
        integrals = np.zeros((4, 6, 40), np.float32)  # of a disc in air
        integrals[:] = np.sqrt(np.maximum(0, 0.6 - np.linspace(-1, 1, 40) ** 2))
        with self.assertWarnsRegex(octavo.OctavoWarning, "about 0 beside the object and up to 0.7.*Phase retrieval .* takes transmissions"):
            prep.retrieve_phase(integrals, client=self.client)
        prep.retrieve_phase(np.exp(-integrals), client=self.client)

    def test_downsample(self):
        for dtype in (np.uint16, np.float32):
            arr = counts(18, 11, 29)[0].astype(dtype)
            for axis in range(3):
                for level in ((1, 3) if dtype == np.uint16 else (0, 2)):
                    n, size = 1 << level, arr.shape[axis] >> level
                    cut = np.moveaxis(arr.astype(float), axis, 0)[:size * n]
                    wanted = np.moveaxis(cut.reshape(size, n, *cut.shape[1:]).mean(axis=1), 0, axis)
                    self.check(prep.downsample(arr, level, axis, client=self.client), wanted)

    def test_stripes(self):
        tomo = striped()
        for name, wanted, fields in (
                ("remove_stripe_based_sorting", lambda s: sorting(s, 5), {}), ("remove_stripe_based_sorting", lambda s: sorting(s, 9), dict(size=9)),
                ("remove_large_stripe", large, {}), ("remove_large_stripe", lambda s: large(s, 2, 21, 0, False), dict(snr=2, size=21, drop_ratio=0, norm=False)),
                ("remove_dead_stripe", dead, {}), ("remove_dead_stripe", lambda s: dead(s, 2.5, 31), dict(snr=2.5, size=31)),
                ("remove_all_stripe", every_stripe, {}), ("remove_all_stripe", lambda s: every_stripe(s, 2, 31, 9), dict(snr=2, la_size=31, sm_size=9))):
            with self.subTest(name, **fields):
                made = getattr(prep, name)(tomo, client=self.client, **fields)
                self.check(made, of_sinograms(wanted, tomo), 1e-5)
                self.assertGreater(np.abs(made - tomo).max(), 0.1)

    def test_fourier_wavelet_stripes(self):
        tomo = striped(40, 3, 35)
        for taps, fields, levels in ((5, {}, 6), (5, dict(level=2, sigma=4.5, pad=False), 2), (1, dict(wname="haar", level=3), 3), (3, dict(wname="db3"), 6)):
            with self.subTest(**fields):
                wanted = of_sinograms(fourier_wavelet, tomo, levels, daubechies(taps), fields.get("sigma", 2), fields.get("pad", True))
                self.check(prep.remove_stripe_fw(tomo, client=self.client, **fields), wanted, 1e-5)
        tall = striped(16, 70, 20)  # TomoPy's levels follow from the largest extent of all
        self.check(prep.remove_stripe_fw(tall, client=self.client), of_sinograms(fourier_wavelet, tall, 7, daubechies(5)), 1e-5)

    def test_sino_360_to_180(self):
        for angles, overlaps in ((8, (2, 7)), (9, (20,))):
            data = transmissions(angles, 3, 20)
            for overlap in overlaps:
                for rotation in ("left", "right"):
                    self.check(prep.sino_360_to_180(data, overlap, rotation, client=self.client), joined(data, overlap, rotation == "right"))
        self.assertEqual(prep.sino_360_to_180(data, 6.5, client=self.client).shape, (4, 3, 33))

    def test_out_is_filled(self):
        arr, flat, dark = counts(dtype=np.float32)
        wanted = normalized(arr, flat, dark)
        out = np.zeros(arr.shape, np.float32)[::-1]
        self.assertIs(prep.normalize(arr, flat, dark, None, None, out, client=self.client), out)
        np.testing.assert_allclose(out, wanted, rtol=1e-5)
        inside = arr.copy()
        self.assertIs(prep.normalize(inside, flat, dark, out=inside, client=self.client), inside)  # in place
        np.testing.assert_allclose(inside, wanted, rtol=1e-5)
        self.assertIs(prep.normalize_nf(arr, flat, dark, [1, 4], out=out, client=self.client), out)
        self.assertIs(prep.remove_outlier(arr, 1, axis=1, out=out, client=self.client), out)
        for bad in (np.zeros(arr.shape), np.zeros((7, 5, 23), np.float32), [0], np.broadcast_to(np.float32(0), arr.shape)):
            with self.assertRaisesRegex(ValueError, r"^out is .*float32 \(7, 5, 24\)"):
                prep.minus_log(arr, out=bad, client=self.client)

    def test_a_connection_of_its_own(self):
        os.environ["OCTAVO_ADDRESS"] = self.daemon.address
        self.addCleanup(os.environ.pop, "OCTAVO_ADDRESS")
        tomo = transmissions()
        self.check(prep.minus_log(tomo), -np.log(tomo.astype(float)))
        self.assertEqual([session.name for session in self.client.sessions() if session.alive], [])

    # -- the axis

    def test_find_center(self):
        angles = np.linspace(0, np.pi, 60, endpoint=False)
        for axis in (29.3,):
            _, sinogram = shepp_logan(64, angles, axis, half=26)
            tomo = np.repeat(sinogram[:, None], 3, axis=1)
            found = {"vo": prep.find_center_vo(tomo, 2, -10, 10, client=self.client),
                     "vo of a sinogram": prep.find_center_vo(np.exp(-sinogram / 20), smin=-12, smax=9, client=self.client),
                     "vo within": prep.find_center_vo(np.repeat(tomo, 4, axis=1), None, -10, 12, step=0.2, theta=angles, client=self.client),
                     "entropy": prep.find_center(tomo, angles, 1, tol=0.1, client=self.client),
                     "entropy of sinograms": prep.find_center(tomo.swapaxes(0, 1), angles, init=axis + 2, sinogram_order=True, client=self.client)}
            for name, center in found.items():
                with self.subTest(name, axis=axis):
                    self.assertIsInstance(center, float)
                    self.assertLess(abs(center - axis), 0.4, name)

    def test_find_center_vo_of_few_columns(self):
        _, sinogram = shepp_logan(40, np.linspace(0, np.pi, 60, endpoint=False), 18.4, half=16)
        self.assertLess(abs(prep.find_center_vo(sinogram, client=self.client) - 18.4), 0.4)  # 50 on either side are the default

    def test_half_a_column_is_told_over_a_full_turn(self):
        angles = np.linspace(0, 2 * np.pi, 120, endpoint=False)
        _, sinogram = shepp_logan(64, angles, 30.2, half=26)
        tomo = np.repeat(sinogram[:, None], 2, axis=1)
        with self.assertWarnsRegex(octavo.OctavoWarning, r"given as column 30\.70; opposite projections find it at 30\.[12]"):
            octavo.recon(tomo, angles, 30.7, client=self.client)
        with self.assertWarnsRegex(octavo.OctavoWarning, r"given as column 30\.70"):  # encoder values, one projection missing
            octavo.recon(tomo[:-1], np.round(angles[:-1], 3), 30.7, client=self.client)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            octavo.recon(tomo, angles, 30.2, client=self.client)
            octavo.recon(tomo[:60], angles[:60], 30.7, client=self.client)
            # Half a turn in angles that begin anew, and with a projection more at its end.
            octavo.recon(tomo[:60], np.mod(angles[:60] - 0.5, 2 * np.pi), 30.7, client=self.client)
            octavo.recon(np.concatenate([tomo[:60], tomo[:1]]), np.append(angles[:60], 2 * np.pi), 30.7, client=self.client)
        with self.assertWarnsRegex(octavo.OctavoWarning, r"find it at 30\.[12].*Columns are those before downsample: column c of them is \(c - 0.5\) / 2 of the chain\.$"):
            prep.chain(np.exp(-tomo / 20), angles, self.client).downsample().minus_log().recon(17)

    def test_gridrec_in_any_case(self):
        angles = np.linspace(0, np.pi, 30, endpoint=False)
        tomo = np.repeat(shepp_logan(32, angles, 15.5)[1][:, None], 2, axis=1)
        wanted = octavo.recon(tomo, angles, algorithm="gridrec", client=self.client)
        np.testing.assert_array_equal(octavo.recon(tomo, angles, algorithm="Gridrec", client=self.client), wanted)
        self.assertGreater(np.abs(octavo.recon(tomo, angles, algorithm="auto", client=self.client) - wanted).max(), 1e-4)

    def test_find_center_of_two_projections(self):
        angles = np.array([0.3, 0.3 + np.pi])
        for axis in (29.3, 33.0):
            _, both = shepp_logan(64, angles, axis, half=26)
            tall = both[:, None] * np.linspace(0.5, 1.5, 40)[:, None]
            for fields in (dict(), dict(tol=0.1), dict(rotc_guess=axis + 3)):
                self.assertLess(abs(prep.find_center_pc(tall[0], tall[1], client=self.client, **fields) - axis), 0.5)

    def test_two_projections_that_are_not_half_a_turn_apart_are_told(self):
        rng = np.random.default_rng(4)
        for noise in (0, 0.05, 0.3):
            for apart, told in ((np.pi, False), (np.pi / 2, True), (2.6, True)):
                with self.subTest(noise=noise, apart=apart):
                    both = shepp_logan(256, np.array([0.4, 0.4 + apart]), 122.6, half=110)[1][:, None].repeat(24, axis=1)
                    both = both + rng.normal(0, noise * both.std(), both.shape) if noise else both
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        axis = prep.find_center_pc(both[0], both[1], client=self.client)
                    words = [str(one.message) for one in caught if "mirror image" in str(one.message)]
                    self.assertEqual(len(words), told, words)
                    if told:
                        self.assertRegex(words[0], rf"^find_center_pc: within a column of {axis:.2f} the correlation of proj1 with the mirror image of proj2 is -?0\.\d\d \+- 0\.\d\d, .* not half a turn apart")
                    else:
                        self.assertLess(abs(axis - 122.6), 0.5)

    def test_the_correlation_of_a_mirror_image(self):
        from octavo.prep_centers import mirror_correlation
        rng = np.random.default_rng(8)
        for axis in (20.3, 31.5, 44.8):
            _, both = shepp_logan(64, np.array([1.1, 1.1 + np.pi]), axis, half=18)
            for noise in (0, 0.02, 1.0, 4.0):
                # Noise lowers the coefficient of the numbers, and not this one, by more than it says.
                values = both[:, None].repeat(8, axis=1) + noise * both.std() * rng.normal(size=(2, 8, 64))
                correlation, deviation = mirror_correlation(*values, axis)
                self.assertGreater(correlation + 3 * deviation, 0.9, (axis, noise))
                if noise <= 0.02:
                    self.assertLess(abs(correlation - 1), 0.1, axis)
                    self.assertLess(mirror_correlation(*values, axis + 6)[0], 0.6)
        self.assertTrue(np.isnan(mirror_correlation(np.ones((1, 64)), np.ones((1, 64)), 31.5)[0]))
        self.assertTrue(np.isnan(mirror_correlation(np.ones((1, 64)), np.ones((1, 64)), 1.0)[0]))

    @needs_data
    def test_find_center_of_a_tooth(self):
        proj, white, dark = (np.load(os.path.join(TOMO, f"tooth_{name}.npy")) for name in ("proj", "white", "dark"))
        theta = np.deg2rad(np.load(os.path.join(TOMO, "tooth_theta_deg.npy")))
        tomo = prep.chain(proj, theta, self.client).normalize(white, dark).minus_log().downsample(2).get()
        found = [self.quiet(prep.find_center_vo, tomo), self.quiet(prep.find_center, tomo, theta), self.quiet(prep.find_center_pc, tomo[0], tomo[-1])]
        for center in found:  # 294.5 to 295.6 of the 640 columns by TomoPy's methods
            self.assertLess(abs(4 * center + 1.5 - 295), 3, found)

    # -- chains

    def test_a_chain_does_what_its_calls_do(self):
        arr, flat, dark = counts(40, 6, 24)
        theta = np.arange(40) * np.pi / 20
        by_calls = {"": arr}
        chains = (
            ("normalize minus_log", 1), ("normalize retrieve_phase normalize_bg minus_log remove_stripe_fw remove_all_stripe sino_360_to_180", 1),
            ("remove_outlier normalize", 2), ("normalize downsample", 2), ("downsample_rows downsample_columns", 1),
            ("normalize downsample retrieve_phase", 3), ("normalize downsample_angles retrieve_phase minus_log", 2), ("normalize remove_stripe_fw minus_log", 2),
            ("normalize minus_log normalize_bg", 2), ("normalize normalize_float", 2), ("downsample_angles sino_360_to_180", 1),
            ("sino_360_to_180 remove_stripe_fw", 2), ("remove_outlier downsample_columns normalize_bg", 1))
        fields = {"normalize": (flat, dark), "normalize_float": (flat / 8500, dark / 8500), "remove_outlier": (500,), "retrieve_phase": (2e-4, 30),
                  "downsample_rows": (1, 1), "downsample_columns": (2, 2), "downsample_angles": (1, 0), "sino_360_to_180": (7, "right")}
        for i, (words, jobs) in enumerate(chains):
            for angles in (None, theta) if "sino" in words else (theta,) if i % 2 else (None,):
                with self.subTest(words, angles=angles is not None), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the counts are of chance, also in the columns of air
                    chain, done = prep.chain(arr, angles, self.client), ""
                    for word in words.split():
                        name, args = word.split("_float")[0], fields.get(word, ())
                        name = "downsample" if name.startswith("downsample") else name
                        self.assertIs(getattr(chain, name)(*args), chain)
                        before, done = by_calls[done], f"{done} {word}"
                        if done not in by_calls:
                            by_calls[done] = getattr(prep, name)(before, *args, client=self.client)
                        self.assertEqual(chain.shape, by_calls[done].shape)
                    before = self.jobs()
                    made = chain.get()
                    self.check(made, by_calls[done].astype(float), 2e-5)
                    extra = angles is None and words == "downsample_angles sino_360_to_180"  # where the half turn is, only the angles tell
                    self.assertEqual(self.jobs() - before, jobs + extra)
                    self.nothing_left()

    def test_a_chain_takes_no_step_of_measured_values_after_its_logarithm(self):
        arr, flat, dark = counts(8, 2, 16)
        for name, args in (("minus_log", ()), ("normalize", (flat, dark)), ("retrieve_phase", ())):
            with self.subTest(name), self.assertRaises(ValueError) as caught:
                getattr(prep.chain(arr, client=self.client).normalize(flat, dark).minus_log(), name)(*args)
            self.assertIn(f"{name} comes after minus_log", str(caught.exception))
        self.nothing_left()

    def test_the_angles_of_a_chain(self):
        theta = np.arange(9) * np.pi / 4 + 6
        theta[5:] -= 2 * np.pi  # a new turn
        chain = prep.chain(transmissions(9, 2, 16), theta, self.client).downsample(1, 0)
        np.testing.assert_allclose(np.remainder(chain.theta, 2 * np.pi), np.remainder(6 + np.pi / 8 + np.arange(4) * np.pi / 2, 2 * np.pi), atol=1e-12)
        np.testing.assert_allclose(np.remainder(chain.sino_360_to_180(4).theta, 2 * np.pi), np.remainder(6 + np.pi / 8 + np.arange(2) * np.pi / 2, 2 * np.pi), atol=1e-12)
        self.assertIsNone(prep.chain(transmissions(9, 2, 16)).downsample(1, 0).theta)

    def test_a_chain_without_steps(self):
        arr = counts()[0]
        before = self.jobs()
        self.check(prep.chain(arr, client=self.client).get(), arr.astype(float), 0)
        self.assertEqual(self.jobs(), before)

    def test_a_chain_reconstructs(self):
        angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
        _, sinogram = shepp_logan(40, angles, 18.4, half=16)
        tomo = np.exp(-sinogram / 20)[:, None] * np.ones((4, 1), np.float32)
        flat, dark = np.full((2, 4, 40), 5000.0, np.float32), np.full((2, 4, 40), 100.0, np.float32)
        arr = (tomo * 4900 + 100).astype(np.float32)

        def begun():
            return prep.chain(arr, angles, self.client).normalize(flat, dark)

        line = prep.minus_log(prep.normalize(arr, flat, dark, client=self.client), client=self.client)
        half = prep.downsample(prep.downsample(line, 1, 2, client=self.client), 1, 1, client=self.client)
        both = prep.sino_360_to_180(line, 37, "left", client=self.client)
        images = np.random.default_rng(2).random((4, 40, 40), np.float32)
        for name, chain, jobs, wanted, theta, fields in (
                ("one job", lambda: begun().minus_log(), 1, line, angles, dict(center=18.4)), ("the middle", lambda: begun().minus_log(), 1, line, angles, {}),
                ("found", lambda: begun().minus_log(), 1, line, angles, dict(center="pairs")),
                ("one axis for each slice", lambda: begun().minus_log(), 1, line, angles, dict(center=[18, 19, 20, 21])),
                ("iterations", lambda: begun().minus_log(), 1, line, angles, dict(center=18.4, algorithm="sirt", num_iter=4, init_recon=images, min=0)),
                ("bins", lambda: begun().minus_log().downsample().downsample(1, 1), 2, half, angles, dict(center=9.4)),
                ("bins, the middle", lambda: begun().minus_log().downsample().downsample(1, 1), 2, half, angles, {}),
                ("bins, one axis for each slice", lambda: begun().minus_log().downsample().downsample(1, 1), 2, half, angles, dict(center=[9, 10])),
                ("half a turn", lambda: begun().minus_log().sino_360_to_180(37), 1, both, angles[:24], {}),
                ("half a turn, an axis", lambda: begun().minus_log().sino_360_to_180(37), 2, both, angles[:24], dict(center=20.0, num_gridx=32))):
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                begun_chain, before = chain(), self.jobs()
                made = begun_chain.recon(**fields)
                self.assertEqual(self.jobs() - before, jobs)
                self.nothing_left()
                self.check(made, octavo.recon(wanted, theta, client=self.client, **fields).astype(float), 1e-5)
        with self.assertRaisesRegex(ValueError, "center is 36.*expected -0.5 to 19.5 for the 20 columns after downsample"):
            begun().downsample().minus_log().recon(36)
        with self.assertWarnsRegex(octavo.OctavoWarning, "minus_log"):
            begun().recon(18.4)
        with self.assertWarnsRegex(octavo.OctavoWarning, "whole numbers"), warnings.catch_warnings():
            prep.chain(arr.astype(np.uint16), angles, self.client).recon(18.4)

    def test_a_chain_goes_on_in_its_block(self):
        tomo, angles = striped(30, 2, 24), np.arange(30) * np.pi / 30
        tomo = np.exp(-tomo / 8)
        with prep.chain(tomo, angles, self.client) as chain:
            first = chain.minus_log().get()
            self.check(first, -np.log(tomo.astype(float)))
            self.assertEqual([volume.shape for volume in self.client.volumes() if volume.state == "HELD"], [[2, 30, 24]])
            before = self.jobs()
            np.testing.assert_array_equal(chain.get(), first)
            self.assertEqual(self.jobs(), before)  # it is there
            chain.remove_stripe_based_sorting()
            image = chain.recon(11.5, extend_edges=True)  # the stripes reach both ends
            self.assertEqual(self.jobs(), before + 1)
            second = chain.get()
            np.testing.assert_array_equal(second, prep.remove_stripe_based_sorting(first, client=self.client))
            np.testing.assert_array_equal(image, octavo.recon(second, angles, 11.5, extend_edges=True, client=self.client))
        self.nothing_left()
        for call in (chain.get, chain.minus_log, chain.recon, chain.__enter__):
            with self.assertRaisesRegex(ValueError, "this chain has ended"):
                call()

    def test_a_chain_that_breaks_off_leaves_nothing(self):
        class Stop(Exception):
            pass

        def stop(job):
            if len(self.client.volumes()) > 0 and any(volume.state == "HELD" for volume in self.client.volumes()):
                raise Stop  # in the second job

        chain = prep.chain(transmissions(), client=self.client).minus_log().normalize_bg()
        with self.assertRaises(Stop):
            chain.get(progress=stop)
        self.nothing_left()
        until(lambda: all(job.state in ("DONE", "CANCELLED") for job in self.client.jobs()))
        with self.assertRaisesRegex(ValueError, "this chain has ended"):
            chain.get()
        with self.assertRaises(Stop), prep.chain(transmissions(), client=self.client) as chain:
            chain.minus_log().get()
            raise Stop
        self.nothing_left()
        arr, flat, dark = counts()
        with self.assertRaises(octavo.OctavoError) as caught:  # the job is refused after the upload
            prep.chain(arr, client=self.client).normalize(dark, flat).get()
        self.assertEqual((caught.exception.field, caught.exception.message.split(" ")[0]), ("flat", "flat:"))
        self.nothing_left()
        self.assertEqual([session.name for session in self.client.sessions() if session.alive], [])

    # -- wrong use

    def test_wrong_use(self):
        tomo, (arr, flat, dark) = transmissions(), counts()
        nan, theta = tomo.copy(), np.arange(6) * 0.5
        nan[2, 3, 4] = np.nan
        flat_nan = flat.astype(float)
        flat_nan[1, 2, 3] = np.inf

        def chain(*args):
            return prep.chain(tomo, *args, client=self.client)

        for words, call in (
                (r"arr has the shape \(9, 30\); expected the axes \[angle, row, column\]", lambda: prep.minus_log(tomo[0])),
                (r"tomo has the shape \(30,\); expected the axes", lambda: prep.normalize_bg(tomo[0, 0])),
                (r"arr has the shape \(0, 5, 24\)", lambda: prep.normalize(arr[:0], flat, dark)), (r"arr has the shape \(7, 0, 24\)", lambda: prep.remove_outlier(arr[:, :0], 5)),
                (r"arr has the shape \(7, 5, 1\).*2 to 32768 columns", lambda: prep.downsample(arr[..., :1])),
                (r"arr is nan at \[2, 3, 4\]; expected finite numbers", lambda: prep.minus_log(nan)), ("data is nan", lambda: prep.sino_360_to_180(nan, 5)),
                (r"flat is inf at \[1, 2, 3\]", lambda: prep.normalize(arr, flat_nan, dark)), ("arr is uint16: whole numbers.*normalize", lambda: prep.minus_log(arr)),
                ("tomo is uint16: whole numbers", lambda: prep.retrieve_phase(arr)), ("arr is an array of complex64", lambda: prep.minus_log(tomo + 1j)),
                (r"arr has the shape \(\)", lambda: prep.minus_log("a")), ("arr is an array of <U1", lambda: prep.minus_log([[["a", "b"]]])), ("arr is an array of bool", lambda: prep.downsample(tomo > 0)),
                ("arr is .* beyond float32", lambda: prep.minus_log(tomo.astype(np.float64) * 1e300)),
                (r"flat has the shape \(4, 5, 23\).*24 columns of arr", lambda: prep.normalize(arr, flat[..., 1:], dark)),
                (r"dark has the shape \(3, 4, 24\).*the 5 rows", lambda: prep.normalize(arr, flat, dark[:, 1:])),
                (r"flat has the shape \(0, 5, 24\).*1 to 4096 frames", lambda: prep.normalize(arr, flat[:0], dark)),
                (r"dark has the shape \(24,\)", lambda: prep.normalize(arr, flat, dark[0, 0])), ("cutoff is -1; expected a number above 0", lambda: prep.normalize(arr, flat, dark, -1)),
                ("cutoff is nan", lambda: prep.normalize(arr, flat, dark, np.nan)), ("averaging is 'max'; expected 'mean' or 'median'", lambda: prep.normalize(arr, flat, dark, averaging="max")),
                ("flats has the shape .* and flat_loc is", lambda: prep.normalize_nf(arr, flat, dark, [])), ("flat_loc is .*growing", lambda: prep.normalize_nf(arr, flat, dark, [3, 3])),
                (r"flat_loc\[1\] is 8; expected a whole number from 0 to 7", lambda: prep.normalize_nf(arr, flat, dark, [3, 8])),
                ("flats has the shape", lambda: prep.normalize_nf(arr, flat[..., 1:], dark, [3, 4])),
                ("air is 31; expected a whole number from 1 to 30", lambda: prep.normalize_bg(tomo, 31)), ("air is 0", lambda: prep.normalize_bg(tomo, 0)),
                ("dif is 0; expected a number above 0", lambda: prep.remove_outlier(tomo, 0)), ("size is 4; expected an odd number from 3 to 15", lambda: prep.remove_outlier(tomo, 1, 4)),
                ("axis is 3", lambda: prep.remove_outlier(tomo, 1, axis=3)), ("pixel_size is 1.0; expected 1e-07 to 0.1 cm", lambda: prep.retrieve_phase(tomo, 1.0)),
                ("energy is 20000", lambda: prep.retrieve_phase(tomo, energy=20000)), ("alpha is 0", lambda: prep.retrieve_phase(tomo, alpha=0)),
                ("delta_beta is -3", lambda: prep.retrieve_phase(tomo, delta_beta=-3)), ("pad is False; expected True", lambda: prep.retrieve_phase(tomo, pad=False)),
                ("level is 4; expected one that leaves 2 or more of the 30", lambda: prep.downsample(tomo, 4)), ("level is -1", lambda: prep.downsample(tomo, -1)),
                ("wname is 'sym5'; expected one of haar", lambda: prep.remove_stripe_fw(tomo, wname="sym5")), ("sigma is 0", lambda: prep.remove_stripe_fw(tomo, sigma=0)),
                ("level is 0", lambda: prep.remove_stripe_fw(tomo, 0)), ("dim is 2; expected 1", lambda: prep.remove_all_stripe(tomo, dim=2)),
                ("sm_size is 20", lambda: prep.remove_all_stripe(tomo, sm_size=20)), ("norm is False; expected True", lambda: prep.remove_dead_stripe(tomo, norm=False)),
                ("drop_ratio is 0.9", lambda: prep.remove_large_stripe(tomo, drop_ratio=0.9)), ("snr is -1", lambda: prep.remove_large_stripe(tomo, -1)),
                ("overlap is 0; expected 2 to 30 .*axis_right=False", lambda: prep.sino_360_to_180(tomo)), ("rotation is 'up'", lambda: prep.sino_360_to_180(tomo, 5, "up")),
                ("data has 1 projection", lambda: prep.sino_360_to_180(tomo[:1], 5)), ("theta has 5 angles and arr has 6", lambda: chain(theta[1:])),
                (r"theta is nan at \[0\]", lambda: chain(theta * np.nan)), ("theta is None", lambda: chain().minus_log().recon()),
                ("theta has 5 angles and tomo has 6", lambda: prep.find_center(tomo, theta[1:])), ("ind is 9", lambda: prep.find_center(tomo, theta, 9)),
                ("mask is False", lambda: prep.find_center(tomo, theta, mask=False)), ("tomo has 7 columns; expected 8", lambda: prep.find_center_vo(tomo[..., :7])),
                ("srad is 3", lambda: prep.find_center_vo(tomo, srad=3)), ("smin is 5 and smax 5", lambda: prep.find_center_vo(tomo, smin=5, smax=5)),
                (r"proj2 has the shape \(8, 30\).*\(9, 30\)", lambda: prep.find_center_pc(tomo[0], tomo[1, 1:])), ("proj1 has the shape", lambda: prep.find_center_pc(tomo, tomo)),
                ("tol is 5; expected 0.01 to 1 columns", lambda: prep.find_center_pc(tomo[0], tomo[1], 5)), ("client is 3", lambda: prep.minus_log(tomo, client=3)),
                ("center has 2 values; expected 1, or 9", lambda: chain(theta).minus_log().recon([1, 2])), ("num_iter is 3 with fbp", lambda: chain(theta).minus_log().recon(algorithm="fbp", num_iter=3))):
            with self.subTest(words), self.assertRaisesRegex((ValueError, TypeError), f"^{words}"):
                call()
        for call, words in ((lambda: prep.minus_log(tomo, core=3), "did you mean 'ncore'"), (lambda: chain(theta).recon(cor=3), "did you mean 'center'"),
                            (lambda: chain().normalize(flat=flat), "dark")):
            with self.assertRaisesRegex(TypeError, words):
                call()
        with self.assertRaisesRegex(octavo.OctavoError, "theta: joins each projection"):  # refused by the server
            prep.chain(tomo, theta / 10, self.client).sino_360_to_180(5).get()

    def test_what_has_no_counterpart_says_so(self):
        for of in (prep, prep.chain(transmissions())):
            for name, words in (("remove_stripe_ti", "Titarenko"), ("remove_stripe_sf", "smoothing filter"), ("stripes_mask3d", "remove_all_stripe"),
                                ("normalise", "did you mean 'normalize'")):
                self.assertFalse(hasattr(of, name))
                with self.assertRaisesRegex(AttributeError, words):
                    getattr(of, name)


class Phantoms(unittest.TestCase):
    def test_shepp_logan(self):
        image = phantoms.shepp2d(64)
        self.assertEqual((image.shape, image.dtype), ((1, 64, 64), np.float32))
        np.testing.assert_allclose(image[0], shepp_logan(64, [0], 31.5)[0], atol=1e-6)
        self.assertEqual(phantoms.shepp2d((20, 31), "float64").shape, (1, 20, 31))
        self.assertAlmostEqual(float(phantoms.shepp2d(256).mean()), float(phantoms.shepp2d(128).mean()), 3)
        volume = phantoms.shepp3d(64)
        self.assertEqual((volume.shape, volume.dtype), ((64, 64, 64), np.float32))
        self.assertEqual(phantoms.shepp3d((5, 6, 7), float).shape, (5, 6, 7))
        for made in (image, volume):
            self.assertEqual((float(made.min()), float(made.max())), (0, 1))
        # The skull less the brain: 4/3 pi abc of the two largest ellipsoids, in a cube of 2^3 that linspace's 64 points divide in 63.
        skull = np.count_nonzero(volume == 1) / 63 ** 3 * 8
        self.assertAlmostEqual(skull, 4 / 3 * np.pi * (0.69 * 0.92 * 0.81 - 0.6624 * 0.874 * 0.78), 1)

    def test_moments(self):
        tomo = np.full((40, 50, 60), 100, np.float32)
        n = tomo.size
        noise = phantoms.add_gaussian(tomo, 3, 2, seed=1) - tomo
        self.assertLess(abs(noise.mean() - 3), 5 * 2 / n ** 0.5)
        self.assertLess(abs(noise.std() - 2), 5 * 2 / (2 * n) ** 0.5)
        self.assertLess(abs((phantoms.add_gaussian(tomo, seed=1) - tomo).std() - 5), 0.1)  # 0.05 of the largest
        poisson = phantoms.add_poisson(tomo, seed=1)
        self.assertEqual(poisson.dtype, np.int64)
        self.assertLess(abs(poisson.mean() - 100), 5 * 10 / n ** 0.5)
        self.assertLess(abs(poisson.var() - 100), 5 * 100 * (2 / n) ** 0.5)
        rings = phantoms.add_rings(tomo, 0.1, seed=1) / tomo
        self.assertEqual(float(np.ptp(rings, axis=0).max()), 0)  # the same in all projections
        self.assertLess(abs(rings.mean() - 1), 5 * 0.1 / 3000 ** 0.5)
        self.assertLess(abs(rings[0].std() - 0.1), 5 * 0.1 / 6000 ** 0.5)
        for made, value in ((phantoms.add_salt_pepper(tomo, 0.1, 7, seed=1), 7), (phantoms.add_zingers(tomo, 0.1, seed=1), 65536)):
            self.assertEqual(set(np.unique(made)), {100, value})
            self.assertLess(abs((made == value).mean() - 0.1), 5 * (0.09 / n) ** 0.5)
        self.assertEqual(phantoms.add_salt_pepper(np.arange(24.0).reshape(2, 3, 4), 1).min(), 23)  # the largest
        drift = phantoms.add_drift(tomo, 0.5, 8, 2)
        np.testing.assert_allclose(drift[:, 1, 2], 100 * (0.5 * np.sin(2 * np.pi / 8 * np.arange(40)) + 2 + np.linspace(0, 1, 40)), rtol=1e-6)

    def test_seeds_types_and_inputs(self):
        for name in ("add_drift", "add_gaussian", "add_poisson", "add_rings", "add_salt_pepper", "add_zingers"):
            call, seeded = getattr(phantoms, name), name != "add_drift"
            for dtype in (np.float32, np.float64, np.uint16, ">f4"):
                tomo = (np.arange(60).reshape(3, 4, 5) * 10).astype(dtype)
                kept = tomo.copy()
                fields = dict(sat=65535) if name == "add_zingers" else {}
                made = [call(tomo, **fields, **(dict(seed=seed) if seeded else {})) for seed in (7, 7, 8, np.random.default_rng(7), None)]
                np.testing.assert_array_equal(tomo, kept)
                self.assertEqual(made[0].shape, tomo.shape)
                if name in ("add_drift", "add_gaussian", "add_rings"):
                    self.assertEqual(made[0].dtype, np.float64 if dtype == np.float64 else np.float32)
                np.testing.assert_array_equal(made[0], made[1])
                np.testing.assert_array_equal(made[0], made[3])
                if name in ("add_gaussian", "add_poisson", "add_rings"):
                    self.assertTrue((made[0] != made[2]).any() and (made[0] != made[4]).any())

    def test_wrong_use(self):
        tomo = np.ones((2, 3, 4))
        for words, call in (
                ("size is 0", lambda: phantoms.shepp2d(0)), (r"size is \(3, 4\)", lambda: phantoms.shepp3d((3, 4))), ("size is 2.5", lambda: phantoms.shepp2d(2.5)),
                ("dtype is 'uint8'", lambda: phantoms.shepp3d(4, "uint8")), (r"tomo has the shape \(3, 4\)", lambda: phantoms.add_rings(tomo[0])),
                (r"tomo has the shape \(0, 3, 4\)", lambda: phantoms.add_gaussian(tomo[:0])), ("tomo has values from -1", lambda: phantoms.add_poisson(-tomo)),
                ("tomo has values from nan", lambda: phantoms.add_poisson(tomo * np.nan)), ("prob is 2; expected a part from 0 to 1", lambda: phantoms.add_salt_pepper(tomo, 2)),
                ("f is -0.1", lambda: phantoms.add_zingers(tomo, -0.1)), ("std is -1; expected 0 or more", lambda: phantoms.add_rings(tomo, -1)),
                ("std is nan", lambda: phantoms.add_gaussian(tomo, std=np.nan)), ("period is 0", lambda: phantoms.add_drift(tomo, period=0)),
                ("seed is -1", lambda: phantoms.add_rings(tomo, seed=-1)), ("seed is 'a'", lambda: phantoms.add_rings(tomo, seed="a")),
                ("sat is 65536, which uint16 does not hold", lambda: phantoms.add_zingers(tomo.astype(np.uint16))), ("mean is inf", lambda: phantoms.add_drift(tomo, mean=np.inf))):
            with self.subTest(words), self.assertRaisesRegex(ValueError, f"^{words}"):
                call()


if __name__ == "__main__":
    unittest.main()
