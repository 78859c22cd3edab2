"""Real spectra (a mirror at 31 path differences), replayed through the daemon and read back: the
volumes show the facts that the data's README gives."""

import os
import shutil
import unittest

import numpy as np

from harness import DATA, Daemon, octavo
from octavo.v1 import reason_pb2

FOLDER = os.path.join(DATA, "oct", "mirror31")
PEAKS = [13, 24, 36, 48, 60, 72, 85, 96, 108, 120, 132, 144, 155, 168, 179, 192, 203, 216, 227, 239, 252, 264, 275, 288, 300, 311, 324, 336, 349, 360]


def width(ascan, peak):
    """Full width at half maximum around `peak`, in bins, by linear interpolation."""
    half = ascan[peak] / 2
    left = next(i for i in range(peak, 0, -1) if ascan[i - 1] < half)
    right = next(i for i in range(peak, len(ascan) - 1) if ascan[i + 1] < half)
    a = left - (ascan[left] - half) / (ascan[left] - ascan[left - 1])
    b = right + (ascan[right] - half) / (ascan[right] - ascan[right + 1])
    return b - a


@unittest.skipUnless(os.path.isdir(FOLDER), f"no test data in {FOLDER} (OCTAVO_TEST_DATA)")
class Mirror31(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        for name in ("spectra_u16.npy", "spectra_31x1024_u16le.raw"):
            shutil.copy(os.path.join(FOLDER, name), cls.daemon.root)
        cls.client = cls.daemon.client()
        cls.reference = np.load(os.path.join(FOLDER, "reference_u16.npy"))
        cls.wavelength = np.load(os.path.join(FOLDER, "wavelength_nm_f64.npy"))

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.daemon.remove()

    def acquire(self, file="spectra_u16.npy", resampled=True, **fields):
        k = dict(wavelength_nm=self.wavelength, interpolation="linear") if resampled else dict(k="none")
        scan = self.client.submit_scan(octavo.replay(file), octavo.raster(31, 1, volumes=1), processing=octavo.processing(
            background=self.reference, window="hann", value="magnitude", dtype="f32", **k), **fields)
        end = self.client.wait(scan.name)
        self.assertEqual(end.reason_code, reason_pb2.REASON_COMPLETED, end.reason)
        volume = self.client.volumes(scan.name)[0]
        self.assertTrue(volume.complete)
        return self.client.read(volume.name)[0]

    def test_facts(self):
        ascans = self.acquire()
        peaks = [5 + int(np.argmax(a[5:512])) for a in ascans]
        self.assertEqual(peaks[1:], PEAKS)
        positions = np.arange(1, 25)
        line = np.polyval(np.polyfit(positions, peaks[1:25], 1), positions)
        self.assertLessEqual(np.abs(line - peaks[1:25]).max(), 1.0)
        for position, wanted in ((1, 305.2), (5, 259.3), (10, 213.2), (15, 131.0), (20, 74.6)):
            self.assertAlmostEqual(ascans[position][peaks[position]] / wanted, 1.0, delta=0.005)
        for position, wanted in ((1, 2.30), (5, 2.39), (10, 3.29), (15, 5.29), (20, 8.08)):
            self.assertAlmostEqual(width(ascans[position], peaks[position]), wanted, delta=0.05)

    def test_without_resampling_it_is_visibly_wrong(self):
        ascans = self.acquire(resampled=False)
        peaks = [5 + int(np.argmax(a[5:512])) for a in ascans]
        for position, wanted in ((1, 313.4), (5, 176.1), (10, 113.2), (15, 74.2), (20, 48.1)):
            self.assertAlmostEqual(ascans[position][peaks[position]] / wanted, 1.0, delta=0.005)
        for position, wanted in ((5, 6.33), (10, 14.40), (20, 31.03)):
            self.assertAlmostEqual(width(ascans[position], peaks[position]) / wanted, 1.0, delta=0.02)

    def test_raw_file_gives_the_same(self):
        np.testing.assert_array_equal(self.acquire(), self.acquire("spectra_31x1024_u16le.raw", samples=1024, raw_type="u16"))

    def test_the_whole_chain_in_double_precision(self):
        spectra = np.load(os.path.join(FOLDER, "spectra_u16.npy")).astype(np.float64) - self.reference
        k = 2 * np.pi / self.wavelength
        positions = np.interp(np.linspace(k[0], k[-1], 1024), k, np.arange(1024))
        resampled = np.array([np.interp(positions, np.arange(1024), s) for s in spectra])
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1024) / 1023)
        wanted = np.abs(np.fft.ifft(resampled * window, axis=1))[:, :512]
        np.testing.assert_allclose(self.acquire(), wanted, rtol=0, atol=5e-6 * 4096)

    def test_replay_refuses_what_it_cannot_read(self):
        with open(os.path.join(self.daemon.root, "odd.raw"), "wb") as file:
            file.write(b"x" * 2049)
        os.symlink("/etc", os.path.join(self.daemon.root, "etc"))
        np.save(os.path.join(self.daemon.root, "f64.npy"), np.zeros((4, 64)))
        np.save(os.path.join(self.daemon.root, "fortran.npy"), np.asfortranarray(np.zeros((4, 64), np.uint16)))
        with open(os.path.join(self.daemon.root, "short.npy"), "wb") as file:
            np.save(file, np.zeros((4, 64), np.uint16))
            file.truncate(200)
        for path, code, fields in (("odd.raw", "INVALID_ARGUMENT", dict(samples=1024)), ("none.npy", "NOT_FOUND", {}),
                                   ("etc/passwd", "INVALID_ARGUMENT", dict(samples=16)), ("../x", "INVALID_ARGUMENT", dict(samples=16)),
                                   ("/etc/passwd", "INVALID_ARGUMENT", dict(samples=16)), ("f64.npy", "INVALID_ARGUMENT", {}),
                                   ("fortran.npy", "INVALID_ARGUMENT", {}), ("short.npy", "INVALID_ARGUMENT", {}), ("", "INVALID_ARGUMENT", {}),
                                   ("spectra_u16.npy", "INVALID_ARGUMENT", dict(samples=512))):
            with self.subTest(path=path), self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_scan(octavo.replay(path), octavo.raster(4, 1, volumes=1), **fields)
            self.assertEqual(caught.exception.code.name, code, caught.exception.message)

    def test_a_file_that_ends_early_leaves_an_incomplete_volume(self):
        scan = self.client.submit_scan(octavo.replay("spectra_u16.npy"), octavo.raster(20, 2, volumes=3))
        end = self.client.wait(scan.name)
        self.assertEqual(end.reason_code, reason_pb2.REASON_SOURCE_ENDED)
        volumes = self.client.volumes(scan.name)
        self.assertEqual(len(volumes), 1)
        self.assertFalse(volumes[0].complete)
        self.assertEqual([(r.first, r.count) for r in volumes[0].missing], [(31, 9)])
        self.assertEqual(self.client.read(volumes[0].name)[1, 11:].max(), 0)


if __name__ == "__main__":
    unittest.main()
