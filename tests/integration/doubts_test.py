"""Wrong uses that would give data without an error: what cannot be meant is refused, what might be a mistake is a warning."""

import os
import unittest
import warnings

import grpc
import h5py
import numpy as np

from harness import DaemonTest, octavo, until

SAMPLES, ASCANS, BSCANS = 256, 16, 8
VOLUME = ASCANS * BSCANS


def spectra(records, samples=SAMPLES, full=4095, seed=1):
    """What a line camera sees: an envelope, fringes that move, noise."""
    random = np.random.default_rng(seed)
    x = np.arange(samples) / samples
    cycles, phase = random.uniform(5, 25, records)[:, None], random.uniform(0, 6.28, records)[:, None]
    light = np.exp(-((x - 0.5) / 0.22) ** 2) * (1 + 0.15 * np.cos(2 * np.pi * cycles * x + phase))
    return np.clip(full * (0.02 + 0.7 * light) + random.normal(0, 0.004 * full, light.shape), 0, full)


class Doubts(DaemonTest):
    def save(self, name, array):
        array.tofile(os.path.join(self.daemon.root, name))
        return name

    def submit(self, source, pattern=None, **fields):
        return self.client.submit_scan(source, pattern or octavo.raster(ASCANS, BSCANS, volumes=2), **{"samples": SAMPLES, **fields})

    def told(self, source, **fields):
        """Warnings of a scan: of the answer, of Python's, of the log."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scan = self.submit(source, **fields)
        texts = list(scan.warnings)
        self.assertEqual([f"{scan.name}: {text}" for text in texts], [str(w.message) for w in caught if w.category is octavo.OctavoWarning])
        for text in texts:
            self.assertIn(text.split(";")[0], self.daemon.text())
        planned = self.client.plan_scan(source, octavo.raster(ASCANS, BSCANS, volumes=2), **{"samples": SAMPLES, **fields})
        self.assertEqual(list(planned.warnings)[:len(texts)], texts)
        return texts

    def refused(self, call, field, words):
        with self.assertRaises(octavo.OctavoError) as caught:
            call()
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))
        self.assertIn(words, caught.exception.message)

    def test_a_file_that_fits_is_not_doubted(self):
        for dtype, raw, full in (("<u2", "u16", 4095), ("u1", "u8", 255), ("<f4", "f32", 1.0)):
            name = self.save(f"fits.{raw}", spectra(2 * VOLUME, full=full).astype(dtype))
            self.assertEqual(self.told(octavo.replay(name), raw_type=raw), [])
            self.client.wait(self.client.scans()[0].name)

    def test_what_a_file_holds_beyond_the_scan(self):
        name = self.save("more.u16", spectra(3 * VOLUME + 5).astype("<u2"))
        self.assertEqual(self.told(octavo.replay(name)),
                         [f"The file holds {3 * VOLUME + 5} records; the scan takes {2 * VOLUME} of them: {VOLUME + 5} are left out."])
        plan = self.client.plan_scan(octavo.replay(name), octavo.raster(ASCANS, BSCANS, volumes=2), samples=SAMPLES).plan
        self.assertIn(f"holds {3 * VOLUME + 5} records of {SAMPLES} samples (u16); the scan takes {2 * VOLUME}", plan)
        name = self.save("less.u16", spectra(VOLUME + 3).astype("<u2"))
        self.assertIn("read again from its beginning", self.told(octavo.replay(name, loops=0))[0])
        self.assertIn("it ends early", self.told(octavo.replay(name, loops=1))[0])

    def test_a_length_that_divides_the_file(self):
        name = self.save("length.u16", spectra(4 * VOLUME, samples=2 * SAMPLES).astype("<u2"))
        self.assertIn(f"the file repeats every {2 * SAMPLES} samples", self.told(octavo.replay(name))[0])

    def test_another_type(self):
        name = self.save("type.u16", spectra(2 * VOLUME).astype("<u2"))
        self.assertIn("raw_type is u8", self.told(octavo.replay(name), raw_type="u8")[0])
        name = self.save("type.big", spectra(2 * VOLUME, full=65535).astype(">u2"))
        self.assertIn("looks big-endian", self.told(octavo.replay(name))[0])

    def test_wavelengths_in_another_unit(self):
        lengths = np.linspace(0.80, 0.88, SAMPLES)
        self.refused(lambda: self.submit(octavo.simulated(1, fast=True), processing=octavo.processing(wavelength_nm=lengths)),
                     "processing.k_linearisation.wavelength_nm", "is 0.8 at 0; allowed 100 to 20000 (nanometres: 0.84 um is 840)")
        self.refused(lambda: self.submit(octavo.simulated(1, fast=True), processing=octavo.processing(wavelength_nm=lengths * 1e-6)),
                     "processing.k_linearisation.wavelength_nm", "nanometres")

    def test_the_command_line_tells(self):
        name = self.save("cli.u16", spectra(3 * VOLUME).astype("<u2"))
        result = self.command("scan", "submit", "--source", "replay", "--path", name, "--samples", str(SAMPLES), "--ascans", str(ASCANS), "--bscans",
                              str(BSCANS), "--volumes", "2", "--watch")
        self.assertIn(f"warning: The file holds {3 * VOLUME} records", result.stdout + result.stderr)


class Tomograms(DaemonTest):
    COLUMNS, ROWS, ANGLES = 64, 2, 60

    def scan(self, name, theta, unit=None, flats=2, dtype=np.uint16, white=40000, rows=ROWS):
        with h5py.File(os.path.join(self.daemon.root, name), "w") as file:
            shape = (self.ANGLES, rows, self.COLUMNS)
            x = np.arange(self.COLUMNS) - 31.5
            shade = np.exp(-0.02 * 2 * np.sqrt(np.maximum(20.0 ** 2 - x ** 2, 0)))
            file["exchange/data"] = np.broadcast_to(white * shade, shape).astype(dtype)
            if flats:
                file["exchange/data_white"] = np.full((flats, rows, self.COLUMNS), white).astype(dtype)
                file["exchange/data_dark"] = np.zeros((1, rows, self.COLUMNS), dtype)
            file["exchange/theta"] = theta
            if unit:
                file["exchange/theta"].attrs["units"] = unit
        return name

    def job(self, name, expect=(), **fields):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            job = self.client.wait_job(self.client.submit_job(octavo.tomography(name, **fields)).name)
        said = [str(w.message) for w in caught if w.category is octavo.OctavoWarning]
        self.assertEqual(said, [f"{job.name}: {text}" for text in job.warnings])
        self.assertEqual(len(said), len(expect), said)
        for text, words in zip(said, expect):
            self.assertIn(words, text)
        planned = self.client.plan_job(octavo.tomography(name, **fields))
        self.assertEqual(list(planned.warnings), list(job.warnings))
        return job

    def refused(self, name, field, words, **fields):
        jobs = len(self.client.jobs())
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.tomography(name, **fields))
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))
        self.assertIn(words, caught.exception.message)
        self.assertEqual(len(self.client.jobs()), jobs)

    def test_units_of_angles(self):
        degrees = np.arange(self.ANGLES) * 180 / self.ANGLES
        self.job(self.scan("degrees.h5", degrees, "deg"))
        self.job(self.scan("said_nothing.h5", degrees))
        self.job(self.scan("radians.h5", np.deg2rad(degrees), "rad"))
        self.refused("degrees.h5", "tomography.angles_rad", "look like degrees", angles=degrees)
        self.refused(self.scan("wrong.h5", degrees, "rad"), "tomography.file.angle_unit", "look like degrees")
        self.refused(self.scan("unsaid.h5", np.deg2rad(degrees)), "tomography.file.angle_unit", "look like radians")
        self.job(self.scan("degrees_of_radians.h5", np.deg2rad(degrees), "deg"), ["these look like radians"])
        self.job(self.scan("wedge.h5", degrees * 0.6), ["leave a gap of 7"])

    def test_axis_beside_the_detector(self):
        name = self.scan("axis.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        for center in (self.COLUMNS, 500, -0.75, [31.5, 99.0]):
            self.refused(name, "tomography.center.pixels", f"allowed -0.5 to {self.COLUMNS - 0.5}", center=center)
        self.refused(name, "tomography.try_centers.end", "the columns of the detector", try_centers=(30, 500, 100))
        self.job(name, center=0)

    def test_counts_without_flat_fields(self):
        degrees = np.arange(self.ANGLES) * 180 / self.ANGLES
        name = self.scan("counts.h5", degrees, flats=0)
        self.refused(name, "tomography.preparation.ignore_fields", "without flat fields")
        self.job(name, prepare=octavo.preparation(ignore_fields=True))
        self.job(name, prepare=octavo.preparation(already_sinograms=True))
        name = self.scan("transmissions.h5", degrees, flats=0, dtype=np.float32, white=1)
        self.job(name, ["has no flat fields"])
        result = self.command("recon", name, "-o", "no_flats.npy")
        self.assertIn("warning: The input has no flat fields", result.stdout + result.stderr)

    def test_pushed_frames_are_kept_and_doubted(self):
        """A scan cannot be taken again: what would refuse a file is a warning here."""
        degrees = np.arange(self.ANGLES) * 180.0 / self.ANGLES
        frames = np.full((self.ANGLES, self.ROWS, self.COLUMNS), 1000, np.uint16)
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=self.ROWS, columns=self.COLUMNS, frames=self.ANGLES)))
        self.client.push_projections(job.name, octavo.projection_frames(frames, degrees))
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            end = self.client.wait_job(job.name)
        self.assertEqual(len(end.warnings), 2)
        self.assertIn("look like degrees", end.warnings[0])
        self.assertIn("without flat fields", end.warnings[1])
        self.assertEqual(len(end.volumes), 1)


if __name__ == "__main__":
    unittest.main()
