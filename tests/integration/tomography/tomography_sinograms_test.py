"""Tomography jobs whose result is the prepared sinograms: their values, where they can go, and what they refuse."""

import os
import unittest

import numpy as np

from harness import DaemonTest, octavo
from octavo.v1 import job_pb2, tomography_pb2, volume_pb2
from readers import ENDINGS, READERS
from tomography_test import shepp_logan

WHITE, DARK = 30000.0, 90.0


class TomographySinograms(DaemonTest):
    SIZE, COUNT, ROWS, AXIS = 96, 60, 7, 44.25

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.angles = np.linspace(0, np.pi, cls.COUNT, endpoint=False)
        _, sinogram = shepp_logan(cls.SIZE, cls.angles, cls.AXIS)
        rows = np.linspace(0.5, 1.5, cls.ROWS, dtype=np.float32)
        cls.integrals = (sinogram * 0.05)[:, None, :] * rows[None, :, None]  # [angle, row, column]
        flat = (WHITE * np.random.default_rng(4).uniform(0.6, 1.0, (cls.ROWS, cls.SIZE))).round()
        counts = (DARK + (flat - DARK) * np.exp(-cls.integrals)).round()
        for name, frames in (("counts", counts), ("flats", np.stack([flat] * 3)), ("darks", np.full((2, cls.ROWS, cls.SIZE), DARK))):
            np.save(os.path.join(cls.daemon.root, name + ".npy"), frames.astype(np.uint16))
        cls.transmissions = (counts - DARK) / (flat - DARK)

    def work(self, **fields):
        return octavo.sinograms(dict(path="counts.npy", flats="flats.npy", darks="darks.npy"), angles=self.angles, **fields)

    def made(self, work, **fields):
        job = self.client.wait_job(self.client.submit_job(work, **fields).name)
        return job, self.client.volume(job.volume_names[0]), self.client.read(job.volume_names[0])

    def refused(self, work, field):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(work)
        self.assertEqual(caught.exception.field, field)
        return str(caught.exception)

    def test_values_are_those_of_the_preparation(self):
        for place in ("device", "disk"):
            for log in (False, True):
                with self.subTest(place=place, log=log):
                    job, volume, values = self.made(self.work(prepare=octavo.preparation(logarithm=log), place=place, batch=3))
                    wanted = np.swapaxes(-np.log(self.transmissions) if log else self.transmissions, 0, 1)
                    self.assertEqual(values.shape, (self.ROWS, self.COUNT, self.SIZE))
                    np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=2e-6)
                    self.assertEqual(volume.quantity, volume_pb2.QUANTITY_LINE_INTEGRAL if log else volume_pb2.QUANTITY_TRANSMISSION)
                    self.assertEqual(list(volume.axes), ["z", "y", "x"])
                    self.assertEqual((job.tomography.algorithm, list(job.tomography.centers)), (0, []))  # nothing that was not needed
        part = self.made(self.work(rows=slice(2, 5), columns=slice(10, 90), projections=slice(0, 60, 3)))[2]
        np.testing.assert_allclose(part, np.swapaxes(-np.log(self.transmissions), 0, 1)[2:5, ::3, 10:90], rtol=1e-5, atol=2e-6)

    def test_a_further_job_takes_them_as_they_are(self):
        job, volume, _ = self.made(self.work(center="auto"))
        axis = job.tomography.centers[0]
        self.assertLess(abs(axis - self.AXIS), 0.3)
        arrays = octavo.ProjectionArrays(projections=volume.name, sinogram_order=True)
        whole = self.made(octavo.tomography(dict(path="counts.npy", flats="flats.npy", darks="darks.npy"), angles=self.angles, center=axis))[2]
        two = self.made(octavo.tomography(arrays, angles=self.angles, center=axis, prepare=octavo.preparation(already_sinograms=True)))
        np.testing.assert_allclose(two[2], whole, atol=1e-5 * np.abs(whole).max())
        self.assertEqual(two[1].derived_from, volume.name)
        # In steps: first the transmissions, then their logarithm.
        _, first, _ = self.made(self.work(prepare=octavo.preparation(logarithm=False)))
        arrays = octavo.ProjectionArrays(projections=first.name, sinogram_order=True)
        second = self.made(octavo.sinograms(arrays, angles=self.angles, prepare=octavo.preparation(ignore_fields=True)))[2]
        np.testing.assert_allclose(second, self.client.read(volume.name), rtol=1e-5, atol=1e-6)

    def test_what_a_volume_says_of_itself_must_fit(self):
        def arrays(volume, **prepare):
            return octavo.tomography(octavo.ProjectionArrays(projections=volume.name, sinogram_order=True), angles=self.angles, prepare=octavo.preparation(**prepare))

        integrals, transmissions = self.made(self.work(pixel_size_um=2.5))[1], self.made(self.work(prepare=octavo.preparation(logarithm=False)))[1]
        slices = self.made(arrays(integrals, already_sinograms=True))[1]
        self.assertEqual([round(um, 6) for um in slices.spacing_um], [2.5, 2.5, 2.5])  # that of the sinograms' columns
        narrow = self.made(self.work(samples="u16"))[1]
        for volume, prepare, field, words in ((integrals, dict(ignore_fields=True), "tomography.preparation.already_sinograms", "a second time"),
                                              (transmissions, dict(already_sinograms=True), "tomography.preparation.already_sinograms", "transmission"),
                                              (slices, dict(already_sinograms=True), "tomography.arrays.projections", "reconstructed already"),
                                              (narrow, dict(already_sinograms=True), "tomography.arrays.projections", "window"),
                                              (integrals, dict(already_sinograms=True, phase=dict(pixel_size_um=2, distance_mm=60, energy_kev=25, delta_beta=90)),
                                               "tomography.preparation.phase", "already_sinograms")):
            with self.subTest(field=field, words=words):
                self.assertIn(words, self.refused(arrays(volume, **prepare), field))

    def test_they_are_written_and_found_again(self):
        wanted = np.transpose(-np.log(self.transmissions), (0, 2, 1))  # [y, x, z]
        for kind in ("zarr", "npy", "tiff", "hdf5"):
            with self.subTest(kind=kind):
                name = "s" + ENDINGS[kind]
                job = self.client.wait_commit(self.client.submit_job(self.work(), commit=name).name)
                np.testing.assert_allclose(READERS[kind](os.path.join(self.daemon.root, name)).array, wanted, rtol=1e-5, atol=2e-6)
                self.assertEqual(job.commit_failures, 0)

    def test_phase_retrieval_and_beam_hardening(self):
        pixel, distance, energy, ratio, pad = 2e-6, 0.06, 25.0, 90.0, 80
        l = 1.2398419843e-9 / energy * distance / (4 * np.pi)
        k = [2 * np.pi * np.fft.fftfreq(n + 2 * pad) / pixel for n in (self.ROWS, self.SIZE)]
        squares = k[0][:, None] ** 2 + k[1][None, :] ** 2
        cosines = np.cos(pixel * k[0])[:, None] + np.cos(pixel * k[1])[None, :]
        divisors = {"paganin": 1 + ratio * l * squares, "generalized_paganin": 1 - 2 * ratio * l / pixel ** 2 * (cosines - 2),
                    "farago": np.cos(l * squares) + ratio * np.sin(l * squares)}
        for name, divisor in divisors.items():
            with self.subTest(name=name):
                prepare = octavo.preparation(phase=dict(pixel_size_um=2, distance_mm=60, energy_kev=25, delta_beta=90, retrieval_method=name), logarithm=False)
                values = self.made(self.work(prepare=prepare, batch=2))[2]
                padded = np.pad(self.transmissions, ((0, 0), (pad, pad), (pad, pad)), mode="edge")
                wanted = np.fft.ifft2(np.fft.fft2(padded) / divisor).real[:, pad:-pad, pad:-pad]
                np.testing.assert_allclose(values, np.swapaxes(wanted, 0, 1), atol=1e-3)
        values = self.made(self.work(prepare=octavo.preparation(beam_hardening=(1, 0.2, -0.01))))[2]
        p = np.swapaxes(-np.log(self.transmissions), 0, 1)
        np.testing.assert_allclose(values, p + 0.2 * p ** 2 - 0.01 * p ** 3, rtol=1e-5, atol=2e-6)
        turning = self.client.plan_job(self.work(prepare=octavo.preparation(beam_hardening=(1, -1))))
        self.assertTrue(any("falls from the line integral 0.5" in warning for warning in turning.warnings), turning.warnings)
        for field, prepare in (("tomography.preparation.beam_hardening", octavo.preparation(beam_hardening=(1, 0.1), logarithm=False)),
                               ("tomography.preparation.beam_hardening[0]", octavo.preparation(beam_hardening=(0, 0.1))),
                               ("tomography.preparation.beam_hardening[1]", octavo.preparation(beam_hardening=(1, np.inf))),
                               ("tomography.preparation.phase.retrieval_method", octavo.preparation(phase=dict(pixel_size_um=0.5, distance_mm=900, energy_kev=8, delta_beta=50,
                                                                                                              retrieval_method="farago"))),
                               ("tomography.preparation.phase.feature_size_um", octavo.preparation(phase=dict(pixel_size_um=2, distance_mm=9, energy_kev=25, delta_beta=50,
                                                                                                             feature_size_um=3)))):
            with self.subTest(field=field):
                self.refused(self.work(prepare=prepare), field)
        with self.assertRaises(ValueError) as caught:
            octavo.preparation(phase=dict(pixel_size_um=2, distance_mm=9, energy_kev=25, delta_beta=50, retrieval_method="bronnikov"))
        self.assertIn("farago", str(caught.exception))

    def test_fewer_bits(self):
        job, volume, numbers = self.made(self.work(samples="u8", batch=2))
        low, high = job.tomography.low, job.tomography.high
        wanted = np.swapaxes(-np.log(self.transmissions), 0, 1)
        self.assertLessEqual(np.abs(low + (high - low) / 255 * numbers - np.clip(wanted, low, high)).max(), 0.51 * (high - low) / 255)
        self.assertAlmostEqual(volume.levels.hi, high, places=6)

    def test_what_makes_slices_is_refused(self):
        work = self.work()
        for field, change in (("tomography.reconstruction", lambda w: w.reconstruction.SetInParent()),
                              ("tomography.center.pixels", lambda w: w.center.pixels.append(40)),
                              ("tomography.initial_volume", lambda w: setattr(w, "initial_volume", "volumes/x")),
                              ("tomography.output", lambda w: setattr(w, "output", 7)),
                              ("tomography.preparation.stitching.overlap", lambda w: w.preparation.stitching.SetInParent())):
            with self.subTest(field=field):
                wrong = tomography_pb2.TomographyJob.FromString(work.SerializeToString())
                change(wrong)
                self.assertRegex(self.refused(wrong, field), "SINOGRAMS|allowed only with|unknown value 7")
        self.assertIn("allowed", self.refused(self.work(rows=slice(3, 99)), "tomography.rows.end"))
        self.assertEqual(self.client.plan_job(work).report.admitted, True)
        for name, value in (("center", 40.0), ("algorithm", "fbp"), ("window", (0, 1)), ("samples", "i64"), ("center_row", 1), ("try_centers", (1, 2, 1)), ("output", 1)):
            with self.subTest(name=name), self.assertRaises((ValueError, TypeError)) as caught:
                self.work(**{name: value})
            self.assertIn(name, str(caught.exception))

    def test_cancel(self):
        job = self.client.submit_job(self.work(batch=1))
        self.client.cancel_job(job.name)
        end = self.client.wait_job(job.name, check=False)
        self.assertIn(end.state, (job_pb2.JOB_STATE_CANCELLED, job_pb2.JOB_STATE_DONE))


if __name__ == "__main__":
    unittest.main()
