"""Projection and its adjoint against the daemon: discs, adjointness, reconstruction of what was projected, held volumes, mistakes."""

import time
import unittest

import numpy as np

from harness import DaemonTest, octavo

SIZE, RADIUS = 96, 30.0
PLACES = ((5.0, -8.0), (-11.0, 4.0), (0.0, 0.0))  # of the discs, x to the right and y upwards, in pixels from the middle


def disc(x, y, fine=6):
    """A disc [y, x] with smooth edges, row 0 on top."""
    at = (np.arange(SIZE * fine) + 0.5) / fine - SIZE / 2
    inside = (at[None, :] - x) ** 2 + (-at[:, None] - y) ** 2 <= RADIUS ** 2
    return inside.reshape(SIZE, fine, SIZE, fine).mean(axis=(1, 3)).astype(np.float32)


def chords(x, y, theta, axis, columns):
    """Lengths of the chords of the disc, [angle, column]."""
    s = np.arange(columns)[None, :] - axis - (x * np.cos(theta) + y * np.sin(theta))[:, None]
    return 2 * np.sqrt(np.maximum(RADIUS ** 2 - s ** 2, 0)), np.abs(s)


class Projection(DaemonTest):
    def setUp(self):
        self.random = np.random.default_rng(5)
        self.images = np.stack([disc(*place) for place in PLACES])

    def tearDown(self):
        self.assertEqual(self.client.buffers.list(), [], "every call frees its buffers")
        super().tearDown()

    def project(self, *args, **fields):
        return octavo.project(*args, client=self.client, **fields)

    def back_project(self, *args, **fields):
        return octavo.back_project(*args, client=self.client, **fields)

    def test_discs_have_their_chords(self):
        theta = self.random.permutation(np.linspace(0, np.pi, 45, endpoint=False))
        for center, columns in ((None, 0), (60.25, 128), ([48.0, 51.5, 70.0], 110)):
            with self.subTest(center=center, columns=columns):
                made = self.project(self.images, theta, center, columns=columns, pixel_size=0.5)
                wide = columns or SIZE
                self.assertEqual((made.shape, made.dtype), ((45, 3, wide), np.float32))
                axes = np.broadcast_to((wide - 1) / 2 if center is None else np.asarray(center), 3)
                for i, (x, y) in enumerate(PLACES):
                    wanted, s = chords(x, y, theta, axes[i], wide)
                    inner = s < RADIUS - 2  # the rim of a pixel image is not that of a disc
                    np.testing.assert_allclose(made[:, i][inner], 0.5 * wanted[inner], atol=0.02 * RADIUS)
                    self.assertEqual(np.abs(made[:, i][s > RADIUS + 2]).max(), 0)
                ordered = self.project(self.images, theta, center, columns=columns, pixel_size=0.5, sinogram_order=True)
                np.testing.assert_array_equal(ordered, made.swapaxes(0, 1))
        one = self.project(self.images[1], theta)
        np.testing.assert_allclose(one, self.project(self.images, theta)[:, 1], rtol=1e-5, atol=1e-4)
        self.assertEqual(self.back_project(one, theta).shape, (SIZE, SIZE))
        self.assertEqual(self.client.volumes(), [])

    def test_the_adjoint_is_exact(self):
        theta = np.concatenate([self.random.uniform(-3, 9, 11), [0.3, 0.3, 0.0, np.pi / 2]])
        x, y = self.random.normal(size=(5, 40, 40)), self.random.normal(size=(len(theta), 5, 57))
        for interpolation in ("nearest", "linear", "cubic"):
            for center in (None, 30.3, self.random.uniform(20, 40, 5)):
                with self.subTest(interpolation=interpolation):
                    fields = dict(interpolation=interpolation, mask=0.9)
                    ax = self.project(x, theta, center, columns=57, **fields)
                    aty = self.back_project(y, theta, center, image_size=40, **fields)
                    self.assertEqual((ax.shape, aty.shape), (y.shape, x.shape))
                    self.assertAlmostEqual(np.vdot(ax, y), np.vdot(x, aty), delta=1e-4 * np.linalg.norm(ax) * np.linalg.norm(y))
        turned = self.back_project(y.swapaxes(0, 1), theta, center, sinogram_order=True, image_size=40, **fields)
        np.testing.assert_array_equal(turned, aty)

    def test_what_is_projected_can_be_reconstructed(self):
        theta = np.linspace(0, np.pi, 150, endpoint=False)
        buffer = self.client.buffers.put(self.images)
        job = self.client.wait_job(self.client.submit_job(octavo.projection(buffer, theta, center=50.25, columns=120), title="discs").name)
        self.assertEqual((job.kind, job.state, job.stage), ("projection", "DONE", "project"))
        self.assertIn("images [3, 96, 96]", job.plan)
        self.assertEqual((job.step, job.steps), (3, 3))
        volume = job.volumes()[0]
        self.assertEqual((list(volume.shape), list(volume.axes), volume.quantity), ([3, 150, 120], ["z", "y", "x"], "LINE_INTEGRAL"))
        self.assertEqual(job.spec.projection.columns, 120)
        # By a tomography job.
        arrays = octavo.ProjectionArrays(projections=volume.name, sinogram_order=True)
        recon = self.client.wait_job(self.client.submit_job(octavo.tomography(
            arrays, angles=theta, center=50.25, image_size=SIZE, prepare=octavo.preparation(already_sinograms=True))).name)
        image = recon.volumes()[0].read()
        inner = np.hypot(*np.meshgrid(np.arange(SIZE) - 47.5, np.arange(SIZE) - 47.5)) < 45
        error = np.sqrt(np.mean((image - self.images)[:, inner] ** 2))
        self.assertLess(error, 0.06)
        # A held volume by name is read where it is; A^T A of it has the shape of the images.
        sinograms = volume.read()
        np.testing.assert_allclose(self.back_project(volume, theta, 50.25, image_size=SIZE),
                                   self.back_project(sinograms, theta, 50.25, image_size=SIZE, sinogram_order=True), rtol=1e-4, atol=1e-3)
        again = self.project(buffer.name, theta, 50.25, columns=120)
        np.testing.assert_array_equal(again.swapaxes(0, 1), sinograms)
        adjoint = self.client.wait_job(self.client.submit_job(octavo.projection(volume, theta, adjoint=True, center=50.25, image_size=SIZE)).name)
        held = adjoint.volumes()[0]
        self.assertEqual((held.derived_from, held.quantity, list(held.shape)), (volume.name, "SUM", [3, SIZE, SIZE]))
        self.assertIn("input in place", adjoint.plan)
        plan = self.client.plan_job(octavo.projection(volume, theta, adjoint=True))
        self.assertTrue(plan.report.admitted)
        self.assertIn("adjoint projection: sinograms [3, 150, 120]", plan.plan)
        text = self.command("job", "show", job.name).stdout
        self.assertIn("projection", text)
        self.client.buffers.destroy(buffer.name)

    def test_batches_and_disk_change_nothing(self):
        theta = np.linspace(0, 2, 30)
        buffer = self.client.buffers.put(self.random.normal(size=(9, 32, 32)).astype(np.float32))
        made = []
        for fields in (dict(), dict(batch=1), dict(batch=4), dict(batch=4, place="disk")):
            job = self.client.wait_job(self.client.submit_job(octavo.projection(buffer, theta, **fields)).name)
            made.append(job.volumes()[0].read())
            if "place" in fields:
                self.assertEqual(job.volumes()[0].tier, "DISK")
        for other in made[1:]:
            np.testing.assert_allclose(other, made[0], rtol=1e-5, atol=1e-5)
        self.client.buffers.destroy(buffer.name)

    def test_a_job_is_cancelled_while_it_projects(self):
        buffer = self.client.buffers.put(np.ones((4, 700, 700), np.float32))
        job = self.client.submit_job(octavo.projection(buffer, np.linspace(0, 3, 20000), columns=1000, batch=1))
        for state in self.client.watch_job(job.name):
            if state.state == "RUNNING":
                break
        self.client.cancel_job(job.name)
        begun = time.monotonic()
        states = [state.state for state in self.client.watch_job(job.name)]
        self.assertEqual(states[-1], "CANCELLED")
        self.assertLess(time.monotonic() - begun, 20)
        self.assertEqual([v for v in self.client.volumes() if v.state == "HELD"], [])
        self.client.buffers.destroy(buffer.name)

    def test_mistakes_are_named(self):
        theta = np.linspace(0, np.pi, 12, endpoint=False)
        image, sinogram = np.ones((2, 8, 8), np.float32), np.ones((12, 2, 8), np.float32)
        for call, text in (
                (lambda: self.project(np.ones(8), theta), r"image has the shape \(8,\); expected the axes \[slice, y, x\] or \[y, x\]"),
                (lambda: self.project(np.ones((2, 8, 7)), theta), "expected square images"),
                (lambda: self.project(np.ones((0, 8, 8)), theta), "holds nothing"),
                (lambda: self.project(image, []), "theta is empty"),
                (lambda: self.project(image, theta, [1, 2, 3]), "center has 3 values; expected 1, or 2: one for each slice"),
                (lambda: self.project(image, theta, "auto"), "center is 'auto'; expected an array of numbers"),
                (lambda: self.project(image, theta, interpolation="spline"), "interpolation is 'spline'; expected nearest, linear, cubic|spline"),
                (lambda: self.project(image, theta, columns=-1), "columns is -1; expected a whole number"),
                (lambda: self.project("tooth.h5", theta), "volumes/<id> or buffers/<id>"),
                (lambda: octavo.project(image, theta, client="me"), "client is 'me'; expected an octavo.Client"),
                (lambda: self.back_project(sinogram, theta[1:]), "theta has 11 angles and tomo has 12 projections"),
                (lambda: self.back_project(sinogram, theta, sinogram_order=True), "tomo has 2 projections")):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                call()
        with self.assertRaisesRegex(TypeError, "complex|real numbers"):
            self.project(image.astype(complex), theta)
        with self.assertRaisesRegex(TypeError, "no argument 'iterations'"):
            self.project(image, theta, iterations=3)
        with self.assertRaisesRegex(TypeError, "no argument 'image_size'"):
            self.project(image, theta, image_size=9)

        def refused(field, text, array, angles, **fields):
            with self.subTest(text), self.assertRaises(octavo.OctavoError) as caught:
                self.project(array, angles, **fields)
            self.assertEqual((caught.exception.field, caught.exception.reason), (field, "BAD_FIELD"))
            self.assertIn(text, str(caught.exception))

        refused("projection.angles_rad", "look like degrees", image, np.arange(0, 180, 2.0))
        refused("projection.angles_rad[3]", "finite", image, [0, 1, 2, np.nan])
        refused("projection.axis_pixels[0]", "is 100; allowed", image, theta, center=100)
        refused("projection.columns", "is 1; allowed", image, theta, columns=1)
        refused("projection.pixel_size", "is -1", image, theta, pixel_size=-1)
        refused("projection.mask_ratio", "is 2", image, theta, mask=2)
        image[1, 2, 3] = np.nan
        with self.assertRaisesRegex(octavo.OctavoError, "projection.input: slices 0 to 1: images: 1 values are not finite"):  # fails the job
            self.project(image, theta)
        for work, field in ((octavo.projection("volumes/none", theta), "projection.input"),
                            (octavo.projection("buffers/none", theta), "projection.input")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(work)
            self.assertEqual((caught.exception.code.name, caught.exception.field), ("NOT_FOUND", field))
        counts = self.client.buffers.put(np.ones((2, 8, 8), np.uint16))
        with self.assertRaisesRegex(octavo.OctavoError, "f32 with three axes"):
            self.client.submit_job(octavo.projection(counts, theta))
        self.client.buffers.destroy(counts.name)
        self.assertEqual([v for v in self.client.volumes() if v.state == "HELD"], [])


if __name__ == "__main__":
    unittest.main()
