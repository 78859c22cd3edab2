"""Tomography jobs against the daemon: files, arrays, TomoPy's results, real scans, the command line, memory, fairness."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from unittest import mock

import grpc
import h5py
import numpy as np

from harness import BUILD, DATA, Daemon, DaemonTest, held_bytes, octavo, seconds_until, subscribers, until
from pictures import decode_png
from octavo.v1 import job_pb2, reason_pb2, tomography_pb2, types_pb2
from readers import READERS, read_tiff_stack

TOMO = os.path.join(DATA, "tomo")
FIXTURES = os.path.join(TOMO, "tomopy_fixtures")
needs_data = unittest.skipUnless(os.path.isdir(TOMO), f"no test data in {TOMO} (OCTAVO_TEST_DATA)")


# Of the modified phantom of Shepp and Logan: attenuation, half axes along x and y, middle, turn in degrees; in half widths of the phantom.
ELLIPSES = [(1, .69, .92, 0, 0, 0), (-.8, .6624, .874, 0, -.0184, 0), (-.2, .11, .31, .22, 0, -18), (-.2, .16, .41, -.22, 0, 18), (.1, .21, .25, 0, .35, 0),
            (.1, .046, .046, 0, .1, 0), (.1, .046, .046, 0, -.1, 0), (.1, .046, .023, -.08, -.605, 0), (.1, .023, .023, 0, -.606, 0), (.1, .023, .046, .06, -.605, 0)]


def shepp_logan_image(size, half=None):
    """The phantom of half width `half`, row 0 on top."""
    at = (np.arange(size) - (size - 1) / 2) / (half or size / 2)
    x, y = at[None, :], -at[:, None]
    image = np.zeros((size, size))
    for value, a, b, x0, y0, phi in ELLIPSES:
        phi = np.deg2rad(phi)
        u, v = (x - x0) * np.cos(phi) + (y - y0) * np.sin(phi), -(x - x0) * np.sin(phi) + (y - y0) * np.cos(phi)
        image += value * ((u / a) ** 2 + (v / b) ** 2 <= 1)
    return image


def shepp_logan_lines(size, angles, axis, half=None):
    """Its exact sinogram [angle, column], in attenuation per pixel."""
    half = half or size / 2
    s, theta = ((np.arange(size) - axis) / half)[None, :], np.asarray(angles)[:, None]
    sinogram = np.zeros((len(angles), size))
    for value, a, b, x0, y0, phi in ELLIPSES:
        phi = np.deg2rad(phi)
        r2 = (a * np.cos(theta - phi)) ** 2 + (b * np.sin(theta - phi)) ** 2
        d = s - x0 * np.cos(theta) - y0 * np.sin(theta)
        sinogram += value * 2 * a * b / r2 * np.sqrt(np.maximum(r2 - d * d, 0)) * half
    return sinogram.astype(np.float32)


def shepp_logan(size, angles, axis, half=None):
    return shepp_logan_image(size, half), shepp_logan_lines(size, angles, axis, half)


def psnr(image, truth):
    return 10 * np.log10((truth.max() - truth.min()) ** 2 / np.mean((image - truth) ** 2))


class Tomography(DaemonTest):
    def made(self, work, **fields):
        job = self.client.wait_job(self.client.submit_job(work, **fields).name)
        return job, self.client.read(job.volume_names[0])

    def save(self, name, array):
        np.save(os.path.join(self.daemon.root, name), array)
        return name

    def sinograms(self, name, size=127, count=90, axis=None, rows=1, half=None):
        angles = np.linspace(0, np.pi, count, endpoint=False)
        image, sinogram = shepp_logan(size, angles, (size - 1) / 2 if axis is None else axis, half)
        self.save(name, np.repeat(sinogram[:, None, :], rows, axis=1))
        return image, angles

    ready = octavo.preparation(already_sinograms=True)

    def test_quality_and_an_axis_off_the_middle(self):
        # The object stays within the part that the detector sees from every angle.
        truth, angles = self.sinograms("middle.npy", size=143, half=63.5)
        self.sinograms("off.npy", size=143, half=63.5, axis=66.37)
        for algorithm, iterations, bar in (("sirt", 20, 19.0), ("mlem", 20, 23.0), ("cgls", 10, 23.0), ("fbp", 1, 23.0), ("fourier", 1, 23.0), ("auto", 1, 23.0)):
            with self.subTest(algorithm=algorithm):
                fields = dict(algorithm=algorithm, iterations=iterations, angles=angles, prepare=self.ready)
                _, volume = self.made(octavo.tomography("middle.npy", **fields))
                _, off = self.made(octavo.tomography("off.npy", center=66.37, **fields))
                _, padded = self.made(octavo.tomography("middle.npy", padding=30 if algorithm in ("sirt", "mlem", "cgls") else None, **fields))
                got, moved = psnr(volume[0], truth), psnr(off[0], truth)
                print(f"{algorithm}: PSNR {got:.2f} dB, axis off the middle {moved:.2f} dB, padded {psnr(padded[0], truth):.2f} dB")
                self.assertGreater(got, bar)
                self.assertGreater(moved, got - 0.3)
                self.assertGreater(psnr(padded[0], truth), got - 2.0)  # with more unknowns, SIRT converges more slowly

    def test_total_variation_of_few_noisy_projections(self):
        rng, angles = np.random.default_rng(7), np.linspace(0, np.pi, 24, endpoint=False)
        truth, sinogram = shepp_logan(127, angles, 63.0)
        sinogram = sinogram + rng.normal(0, 0.01 * sinogram.max(), sinogram.shape).astype(np.float32)
        tomo = np.ascontiguousarray(sinogram[:, None, :], np.float32)
        best = max(psnr(octavo.recon(tomo, angles, center=63, algorithm="sirt", num_iter=n, client=self.client)[0], truth) for n in (10, 20, 40))
        made = octavo.recon(tomo, angles, center=63, algorithm="tv", num_iter=80, tv_weight=0.02, min=0, client=self.client)
        print(f"SIRT at its best {best:.2f} dB, total variation {psnr(made[0], truth):.2f} dB")
        self.assertGreater(psnr(made[0], truth), best + 3)
        self.assertGreaterEqual(made.min(), 0)
        # The weight does not depend on the number of projections.
        many = np.repeat(tomo, 3, axis=0)
        again = octavo.recon(many, np.repeat(angles, 3), center=63, algorithm="tv", num_iter=80, tv_weight=0.02, min=0, client=self.client)
        np.testing.assert_allclose(again, made, atol=0.02)
        job, _ = self.made(octavo.tomography(octavo.ProjectionFile(path=self.save("few.npy", tomo)), algorithm="tv", tv_weight=0.02, stop_change=0.01, angles=angles,
                                             prepare=self.ready))
        self.assertLess(job.tomography.iterations, 200)
        self.assertEqual(job.tomography.stop, tomography_pb2.TomographyReport.STOP_CHANGE)
        for fields, words in ((dict(tv_weight=0.1), "tv_weight"), (dict(algorithm="tv"), "tv_weight is None"), (dict(algorithm="tv", tv_weight=1, subsets=3), "subsets"),
                              (dict(algorithm="tv", tv_weight=1, relaxation=0.5), "relaxation")):
            with self.subTest(fields=fields), self.assertRaises(ValueError) as caught:
                octavo.tomography("few.npy", angles=angles, prepare=self.ready, **fields)
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(octavo.OctavoError) as refused:
            self.client.submit_job(octavo.tomography("few.npy", algorithm="tv", tv_weight=-1, angles=angles, prepare=self.ready))
        self.assertEqual(refused.exception.field, "tomography.reconstruction.tv_weight")

    @needs_data
    def test_tomopy_form_repeats_tomopy(self):
        tomo, angles = np.load(os.path.join(FIXTURES, "proj.npy")), np.load(os.path.join(FIXTURES, "angle.npy"))
        for algorithm in ("sirt", "mlem"):
            wanted = np.load(os.path.join(FIXTURES, algorithm + "_accel.npy"))
            made = octavo.recon(tomo, angles, algorithm=algorithm, num_iter=4, accelerated=True, device="cpu" if self.host() else "gpu", pool_size=2,
                                form="tomopy", client=self.client)
            self.assertEqual((made.shape, made.dtype), (wanted.shape, np.float32))
            off = np.abs(made - wanted) > 0.01 * np.abs(wanted).max()
            print(f"{algorithm}: {100 * off.mean():.3f} % of the pixels differ by more than 1 %")
            self.assertLess(off.mean(), 0.005)
            swapped = octavo.recon(tomo.swapaxes(0, 1), angles, sinogram_order=True, algorithm=algorithm, num_iter=4, form="tomopy", client=self.client)
            np.testing.assert_array_equal(swapped, made)

    @needs_data
    def test_recon_agrees_with_tomopys_ray_based_results(self):
        tomo, angles = np.load(os.path.join(FIXTURES, "proj.npy")), np.load(os.path.join(FIXTURES, "angle.npy"))
        for algorithm in ("sirt", "mlem"):
            wanted = np.load(os.path.join(FIXTURES, algorithm + ".npy"))
            made = octavo.recon(tomo, angles, center=23.5, algorithm=algorithm, num_iter=4, client=self.client)
            likeness = np.corrcoef(made.ravel(), wanted.ravel())[0, 1]
            others = [np.corrcoef(np.rot90(m, k, (1, 2)).ravel(), wanted.ravel())[0, 1] for m in (made, made[:, ::-1]) for k in range(4)]
            print(f"{algorithm}: correlation {likeness:.4f}, best orientation {np.argmax(others)}: {max(others):.4f}")
            self.assertEqual(np.argmax(others), 0)
            self.assertGreater(likeness, 0.9)
        self.assertEqual([b for b in self.client.buffers.list()], [])
        self.assertEqual(self.client.volumes(), [])

    def host(self):
        return self.client.devices()[0].backend == "host"

    def test_recon_refuses_with_a_reason(self):
        tomo, angles = np.ones((8, 2, 16), np.float32), np.linspace(0, np.pi, 8, endpoint=False)
        for fields, text in ((dict(algorithm="art"), "art"), (dict(algorithm="pml_quad"), "counterpart"), (dict(algorithm="sirt", reg_par=[1]), "reg_par"),
                             (dict(algorithm="sirt", ind_block=[1]), "ind_block"), (dict(algorithm="sirt", interpolation="SPLINE"), "interpolation"),
                             (dict(algorithm="fbp", accelerated=True), "accelerated"), (dict(algorithm="sirt", num_gridx=16, num_gridy=8), "square"),
                             (dict(algorithm="sirt", num_iter=1.5), "num_iter"), (dict(algorithm="sirt", device="tpu"), "device"),
                             (dict(algorithm="sirt", center=[1, 2, 3]), "center"), (dict(algorithm="fbp", filter_name="none"), "filter"),
                             (dict(algorithm="sirt", device="gpu" if self.host() else "cpu"), "the server has no ")):
            with self.subTest(**{k: str(v) for k, v in fields.items()}), self.assertRaisesRegex(ValueError, text):
                octavo.recon(tomo, angles, client=self.client, **fields)

    def test_recon_leaves_nothing_when_it_is_interrupted(self):
        _, sinogram = shepp_logan(64, angles := np.linspace(0, np.pi, 40, endpoint=False), 31.5)
        before = held_bytes(self.client)
        with mock.patch.object(type(self.client), "read", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            octavo.recon(sinogram[:, None, :], angles, algorithm="fbp", client=self.client)
        self.assertEqual(held_bytes(self.client), before)

    def test_an_interrupt_at_the_worst_moment_leaves_nothing(self):
        """The server has done what was asked, and the client does not know it yet."""
        angles = np.linspace(0, np.pi, 40, endpoint=False)
        before = held_bytes(self.client)
        for owner, name in ((type(self.client.buffers), "create"), (type(self.client.buffers), "write"), (type(self.client), "submit_job"),
                            (type(self.client), "wait_job"), (type(self.client), "discard")):
            real = getattr(owner, name)

            def interrupted(*args, real=real, **fields):
                real(*args, **fields)
                raise KeyboardInterrupt

            with self.subTest(after=name):
                with mock.patch.object(owner, name, interrupted), contextlib.suppress(KeyboardInterrupt):
                    octavo.recon(np.ones((40, 2, 32), np.float32), angles, algorithm="fbp", client=self.client)
                until(lambda: held_bytes(self.client) == before)
                self.assertEqual(self.client.buffers.list(), [])
                until(lambda: not [j for j in self.client.jobs() if j.state in ("QUEUED", "RUNNING", "CANCELLING")])
                self.assertEqual([s.name for s in self.client.sessions() if s.alive], [])

    def test_a_recon_that_is_killed_leaves_nothing(self):
        """kill -9 of the client while its job runs. The session's end cancels the job and frees its
        results; the buffer has a time to live."""
        daemon = Daemon("--session.heartbeat_seconds", "0.5", "--session.expiry_seconds", "6")
        self.addCleanup(daemon.remove)
        code = """
import sys, numpy as np, octavo
octavo.recon(np.ones((40, 4, 256), np.float32), np.linspace(0, np.pi, 40, endpoint=False), algorithm="sirt", num_iter=10**6,
             client=octavo.Client(sys.argv[1]), progress=lambda job: job.step > 1 and print(job.name, flush=True))
"""
        with daemon.client() as client:
            process = subprocess.Popen([sys.executable, "-c", code, daemon.address], stdout=subprocess.PIPE, text=True,
                                       env={**os.environ, "PYTHONPATH": os.path.join(BUILD, "python")})
            name = process.stdout.readline().strip()
            (session,) = client.sessions()
            job = client.job(name)
            self.assertEqual((job.state, job.session, session.client), (job_pb2.JOB_STATE_RUNNING, session.name, "octavo.recon"))
            (buffer,) = client.buffers.list()
            self.assertTrue(0 < seconds_until(buffer.expire_time) <= 600, buffer)
            process.kill()
            process.wait()
            process.stdout.close()
            end = client.wait_job(name, check=False)
            self.assertEqual((end.state, end.reason_code), (job_pb2.JOB_STATE_CANCELLED, reason_pb2.REASON_SESSION_EXPIRED))
            until(lambda: held_bytes(client) == 0)
            self.assertEqual(client.volumes(), [])

    def test_a_result_is_read_however_long_that_takes(self):
        _, sinogram = shepp_logan(32, angles := np.linspace(0, np.pi, 16, endpoint=False), 15.5)
        read = type(self.client).read

        def late(client, name, *args, **fields):
            until(lambda: client.buffers.list() == [])  # destroyed, or ended by their time to live
            return read(client, name, *args, **fields)

        with mock.patch.object(sys.modules["octavo.array_jobs"], "_BUFFER_TTL_S", 6.0), mock.patch.object(type(self.client), "read", late):
            self.assertEqual(octavo.recon(sinogram[:, None, :], angles, algorithm="fbp", client=self.client).shape, (1, 32, 32))

    def test_what_the_command_line_cannot_commit_stays(self):
        self.sinograms("stays.npy", size=32, count=16)
        open(os.path.join(self.daemon.root, "taken0.npy"), "w").close()  # the name is known only once the volume exists
        result = self.command("recon", "stays.npy", "--sinograms", "--angles", "0:168.75:16", "-o", "taken{index}.npy", check=False)
        self.assertEqual(result.returncode, 1)
        (name,) = re.findall(r"held by the server: octavo volume commit (\S+),", result.stdout)
        volume = self.client.volume(name)
        self.assertEqual((volume.state, volume.expire_time), ("HELD", None))
        self.client.discard(name)

    def test_the_command_line_that_is_killed_leaves_no_picture_behind(self):
        daemon = Daemon("--session.heartbeat_seconds", "0.5", "--session.expiry_seconds", "6")
        self.addCleanup(daemon.remove)
        _, sinogram = shepp_logan(64, np.linspace(0, np.pi, 40, endpoint=False), 31.5)
        np.save(os.path.join(daemon.root, "killed.npy"), sinogram[:, None, :].astype(np.float32))
        picture = os.path.join(daemon.root, "killed.png")
        with daemon.client() as client:
            process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", daemon.address, "recon", "killed.npy", "--sinograms", "--angles",
                                        "0:175.5:40", "--algorithm", "sirt", "--iterations", "1000000", "--png", picture],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until(lambda: any(job.state == job_pb2.JOB_STATE_RUNNING for job in client.jobs()))
            process.kill()
            process.wait()
            (job,) = client.jobs()
            end = client.wait_job(job.name, check=False)
            self.assertEqual((end.state, end.reason_code), (job_pb2.JOB_STATE_CANCELLED, reason_pb2.REASON_SESSION_EXPIRED))
            until(lambda: held_bytes(client) == 0)

    def test_volumes_of_jobs_belong_to_sessions_and_have_a_time_to_live(self):
        _, angles = self.sinograms("owned.npy", size=32, count=16)
        work = octavo.tomography("owned.npy", algorithm="fbp", angles=angles, prepare=self.ready)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(work, orphan="discard")
        self.assertEqual(caught.exception.field, "orphan")
        self.assertIn("is DISCARD without a session (session_secret); allowed KEEP", caught.exception.message)
        for ttl in (-1, 0.5, 1e9):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(work, ttl=ttl)
            self.assertEqual(caught.exception.field, "ttl")
        made = {}
        with self.client.session("owner") as session:
            for orphan in ("discard", "keep", "spill_disk", "commit_default"):
                made[orphan] = self.client.wait_job(self.client.submit_job(work, session=session, orphan=orphan).name).volume_names[0]
            self.assertEqual({self.client.volume(name).session for name in made.values()}, {session.name})
        until(lambda: self.client.volume(made["discard"]).state == types_pb2.VOLUME_STATE_DISCARDED)
        until(lambda: self.client.volume(made["spill_disk"]).tier == types_pb2.TIER_DISK)
        until(lambda: self.client.volume(made["commit_default"]).state == types_pb2.VOLUME_STATE_COMMITTED)
        self.assertEqual(self.client.volume(made["keep"]).state, types_pb2.VOLUME_STATE_HELD)
        self.assertIn("orphaned/", self.client.volume(made["commit_default"]).commit_result.path)
        short = self.client.wait_job(self.client.submit_job(work, ttl=1).name).volume_names[0]
        until(lambda: self.client.volume(short).state == types_pb2.VOLUME_STATE_DISCARDED)

    def test_start_image_and_stop(self):
        truth, angles = self.sinograms("start.npy", size=64, count=60, rows=2)
        tomo = np.load(os.path.join(self.daemon.root, "start.npy"))
        first = octavo.recon(tomo, angles, algorithm="sirt", num_iter=5, client=self.client)
        again = octavo.recon(tomo, angles, algorithm="sirt", num_iter=5, init_recon=first, client=self.client)
        whole = octavo.recon(tomo, angles, algorithm="sirt", num_iter=10, client=self.client)
        np.testing.assert_allclose(again, whole, atol=1e-5 * np.abs(whole).max())
        job, _ = self.made(octavo.tomography("start.npy", algorithm="sirt", iterations=500, angles=angles, prepare=self.ready, stop_residual=0.1))
        self.assertEqual(job.tomography.stop, tomography_pb2.TomographyReport.STOP_RESIDUAL)
        self.assertLess(job.tomography.iterations, 500)
        self.assertLess(job.tomography.relative_residual, 0.11)

    def test_a_result_that_the_device_cannot_hold_goes_to_disk_in_chunks(self):
        daemon = Daemon("--device.memory_bytes", str(12 << 20))
        try:
            with daemon.client() as client:
                angles = np.linspace(0, np.pi, 40, endpoint=False)
                _, sinogram = shepp_logan(128, angles, 63.5)
                data = sinogram[:, None, :] * np.linspace(0.5, 1.5, 300, dtype=np.float32)[None, :, None]
                np.save(os.path.join(daemon.root, "large.npy"), data)
                work = octavo.tomography("large.npy", algorithm="fbp", angles=angles, prepare=self.ready)
                job = client.wait_job(client.submit_job(work).name)
                volume = client.volume(job.volume_names[0])
                self.assertGreater(volume.bytes, 12 << 20)
                self.assertEqual(volume.tier, types_pb2.TIER_DISK)
                self.assertGreater(job.tomography.batches, 4)
                self.assertEqual(held_bytes(client), 0)
                array = client.read(volume.name)
                one = client.wait_job(client.submit_job(octavo.tomography("large.npy", algorithm="fbp", angles=angles, rows=(150, 153),
                                                                                   prepare=self.ready)).name)
                np.testing.assert_allclose(client.read(one.volume_names[0]), array[150:153], atol=1e-5 * np.abs(array).max())
                result = client.commit(volume.name, "large_result", format="npy")
                np.testing.assert_array_equal(np.load(result.path), array)
                with self.assertRaises(octavo.OctavoError) as caught:
                    client.submit_job(octavo.tomography("large.npy", algorithm="fbp", angles=angles, prepare=self.ready, place="device"))
                self.assertEqual(caught.exception.reason, "EXCEEDS_BUDGET")
        finally:
            daemon.remove()

    def test_cancel_and_fairness(self):
        _, angles = self.sinograms("long.npy", size=96, count=60, rows=4)
        before = held_bytes(self.client)
        long = octavo.tomography("long.npy", algorithm="sirt", iterations=1000000, angles=angles, prepare=self.ready)
        short = octavo.tomography("long.npy", algorithm="fbp", angles=angles, prepare=self.ready)
        with self.daemon.client() as other:
            blocker = self.client.submit_job(long)
            mine = [self.client.submit_job(short, group="a") for _ in range(3)]
            theirs = [other.submit_job(short, group="b") for _ in range(3)]
            for job in self.client.watch_job(blocker.name):
                if job.step_count > 2 and job.state == job_pb2.JOB_STATE_RUNNING:
                    self.assertGreater(held_bytes(self.client), before)
                    self.client.cancel_job(blocker.name)
            self.assertEqual(job.state, job_pb2.JOB_STATE_CANCELLED)
            ends = [self.client.wait_job(j.name) for j in mine + theirs]
            order = sorted(ends, key=lambda j: j.start_time)
            groups = [j.spec.group for j in order]
            self.assertEqual(groups, ["a", "b"] * 3 if groups[0] == "a" else ["b", "a"] * 3)
            for j in ends:
                self.client.discard(j.volume_names[0])
        self.assertEqual(held_bytes(self.client), before)

    @unittest.skipUnless(os.environ.get("OCTAVO_DEVICE_BACKEND", "host") == "host", "a GPU is through before anybody can ask (tests/gpu)")
    def test_cancel_in_the_middle_of_any_stage(self):
        # Uncut, each of them takes far longer than a cancellation may.
        size, count, rows = 1024, 720, 16
        angles = np.linspace(0, np.pi, count, endpoint=False)
        self.save("wide.npy", np.random.default_rng(1).random((count, rows, size), np.float32))
        medians = octavo.preparation(logarithm=False, outliers=dict(window=15, difference=0.1))
        before, volumes = held_bytes(self.client), self.client.volumes()
        for stage, fields in ((job_pb2.JOB_STAGE_RECONSTRUCT, dict(algorithm="fbp", interpolation="cubic")), (job_pb2.JOB_STAGE_RECONSTRUCT, dict(algorithm="cgls", iterations=50)),
                              (job_pb2.JOB_STAGE_RECONSTRUCT, dict(algorithm="sirt", iterations=50, subsets=4)), (job_pb2.JOB_STAGE_RECONSTRUCT, dict(prepare=medians)),
                              (job_pb2.JOB_STAGE_AXIS, dict(center="vo", search=(300, 700))), (job_pb2.JOB_STAGE_AXIS, dict(center="entropy", search=(300, 700)))):
            with self.subTest(**fields):
                spec = octavo.tomography("wide.npy", angles=angles, batch=rows, **{"prepare": self.ready, **fields})
                # The progress within a stage is unknown. If the job was faster than the wait, or had
                # made a step, the test starts it again and cancels sooner.
                for wait in (1, 0.3, 0.1, 0):
                    name = self.client.submit_job(spec).name
                    until(lambda: self.client.job(name).stage == stage)
                    time.sleep(wait)
                    job = self.client.cancel_job(name)
                    if job.state == job_pb2.JOB_STATE_CANCELLING and (job.stage, job.step) == (stage, 0):
                        break
                    for volume in self.client.wait_job(name, check=False).volume_names:
                        self.client.discard(volume)
                self.assertEqual((job.state, job.stage, job.step), (job_pb2.JOB_STATE_CANCELLING, stage, 0), job.reason)
                asked = time.monotonic()
                end = self.client.wait_job(name, check=False)
                self.assertEqual((end.state, list(end.volume_names)), (job_pb2.JOB_STATE_CANCELLED, []))
                self.assertEqual((end.stage, end.step), (stage, 0), "it was ended within the stage, not after it")
                self.assertLess(time.monotonic() - asked, 20)  # short, even on a busy machine
                self.assertEqual(held_bytes(self.client), before)
                self.assertEqual([v.name for v in self.client.volumes()], [v.name for v in volumes])

    def test_a_slice_is_seen_while_it_converges(self):
        _, angles = self.sinograms("live.npy", size=96, count=60, rows=3)
        blocker = self.client.submit_job(octavo.tomography("live.npy", algorithm="sirt", iterations=1000000, angles=angles, prepare=self.ready))
        job = self.client.submit_job(octavo.tomography("live.npy", algorithm="sirt", iterations=300, angles=angles, prepare=self.ready))
        frames = []
        reader = threading.Thread(target=lambda: frames.extend(
            self.client.subscribe(job.name, ["bscan"], index=1, delivery="drop_oldest")))
        until(lambda: subscribers(self.daemon) == 0)  # those of an earlier test
        reader.start()
        mips = []
        projections = threading.Thread(target=lambda: mips.extend(self.client.subscribe(job.name, ["mip"], delivery="lossless")))
        projections.start()
        until(lambda: subscribers(self.daemon) >= 2)
        self.client.cancel_job(blocker.name)
        end = self.client.wait_job(job.name)
        reader.join(60)
        slices = frames
        volume = self.client.read(end.volume_names[0])
        self.assertTrue(any(not f.complete for f in slices), "no preview")
        np.testing.assert_array_equal(slices[-1].array, volume[1])
        projections.join(60)
        np.testing.assert_array_equal(mips[-1].array, volume.max(axis=0))

    def test_a_tomogram_has_its_own_axes(self):
        """z, y, x: in the job's record, in frames, in every file, and after a move to disk and a
        restart."""
        seed = int(os.environ.get("OCTAVO_TEST_SEED", np.random.SeedSequence().entropy % (1 << 32)))
        print("seed", seed)
        random = np.random.default_rng(seed)
        size, rows = (int(n) for n in random.choice([21, 23, 27, 29, 31], 2, replace=False))
        at = tuple(int(random.integers(n // 4, 3 * n // 4)) for n in (rows, size, size))
        angles = np.linspace(0, np.pi, 40, endpoint=False)
        middle = (size - 1) / 2
        columns = (at[2] - middle) * np.cos(angles) + (middle - at[1]) * np.sin(angles) + middle  # of the only bright voxel
        tomo = random.random((40, rows, size), np.float32) * 0.01
        for k, column in enumerate(columns):
            low = int(np.floor(column))
            tomo[k, at[0], low:low + 2] += [low + 1 - column, column - low]
        directory = tempfile.mkdtemp(prefix="octavo-axes-")
        self.addCleanup(shutil.rmtree, directory, True)
        daemon = Daemon(directory=directory)
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            np.save(os.path.join(daemon.root, "point.npy"), tomo)
            blocker = client.submit_job(octavo.tomography("point.npy", algorithm="sirt", iterations=1000000, angles=angles, prepare=self.ready))
            work = octavo.tomography("point.npy", algorithm="sirt", iterations=20, angles=angles, prepare=self.ready, pixel_size_um=2.5)
            job = client.submit_job(work)
            seen = {}
            wanted = {"slice": dict(index=at[0]), "z": dict(axis="z", index=1), "y": dict(axis="y", index=at[1]), "x": dict(axis="x", index=at[2]), "mip": {}}
            readers = [threading.Thread(target=lambda key=key, fields=fields: seen.update({key: list(
                client.subscribe(job.name, ["mip" if key == "mip" else "bscan"], delivery="lossless", preview=False, **fields))})) for key, fields in wanted.items()]
            for reader in readers:
                reader.start()
            until(lambda: {'octavo_subscribers{product="bscan"} 4', 'octavo_subscribers{product="mip"} 1'} <= set(self.metrics(daemon)))
            client.cancel_job(blocker.name)
            end = client.wait_job(job.name)
            for reader in readers:
                reader.join(60)
            volume = client.volume(end.volume_names[0])
            array = client.read(volume.name)
            self.assertEqual((list(volume.axes), list(volume.shape), list(volume.spacing_um)), (["z", "y", "x"], [rows, size, size], [2.5] * 3))
            self.assertEqual(np.unravel_index(array.argmax(), array.shape), at)
            for key, axes, truth in (("slice", ("y", "x"), array[at[0]]), ("z", ("y", "x"), array[1]), ("y", ("z", "x"), array[:, at[1]]),
                                     ("x", ("z", "y"), array[:, :, at[2]]), ("mip", ("y", "x"), array.max(0))):
                frame = seen[key][-1]
                self.assertEqual((frame.axes, frame.spacing_um), (axes, [2.5, 2.5]), key)
                np.testing.assert_array_equal(frame.array, truth, key)
            # Files. The copies are results of the same job, run again: a commit ends a volume.
            yxz = array.transpose(1, 2, 0)
            for format, read in {**READERS, "tiff-stack": read_tiff_stack}.items():
                again = client.wait_job(client.submit_job(work).name).volume_names[0]
                options = dict(format="tiff", tiff_stack=True) if format == "tiff-stack" else dict(format=format)
                stored = read(client.commit(again, f"as_{format}", **options).path)
                np.testing.assert_array_equal(stored.array, yxz, format)
                if stored.spacing_um is not None:
                    np.testing.assert_allclose(stored.spacing_um, [2.5] * 3, rtol=1e-6)
                if stored.meta is not None:
                    self.assertEqual(stored.meta["axes"], ["z", "y", "x"])
                if format.startswith("tiff"):
                    self.assertEqual(stored.extra["pages"], ["z", "y", "x"])
            client.spill(volume.name)
            self.assertEqual(list(client.volume(volume.name).axes), ["z", "y", "x"])
        daemon.kill()
        daemon.log.close()
        daemon = Daemon(directory=directory)
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            found = client.volume(volume.name)
            self.assertTrue(found.recovered)
            self.assertEqual((list(found.axes), list(found.shape)), (["z", "y", "x"], [rows, size, size]))
            stored = READERS["zarr"](client.commit(found.name, "recovered").path)
            self.assertEqual(stored.extra["axes"], ["z", "y", "x"])
            np.testing.assert_array_equal(stored.array, yxz)

    @staticmethod
    def metrics(daemon):
        with urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10) as page:
            return page.read().decode().splitlines()

    def test_bad_input_is_told_by_field(self):
        _, angles = self.sinograms("fine.npy", size=64, count=40, rows=2)
        for fields, field in ((dict(rows=(0, 9)), "tomography.rows.end"), (dict(center=[1.0, 2.0, 3.0]), "tomography.center.pixels"),
                              (dict(relaxation=2.5, algorithm="sirt"), "tomography.reconstruction.relaxation"), (dict(center=float("nan")), "tomography.center.pixels[0]"),
                              (dict(try_centers=(40, 30, 1)), "tomography.try_centers.end"), (dict(angles=angles[:-1]), None),
                              (dict(prepare=octavo.preparation(rings=[dict(removal_method="large_stripe", snr=-1)])), "tomography.preparation.rings[0].snr")):
            with self.subTest(field=field), self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(octavo.tomography("fine.npy", **{"angles": angles, "prepare": self.ready, **fields}))
            self.assertEqual(caught.exception.code, grpc.StatusCode.INVALID_ARGUMENT, caught.exception.message)
            if field:
                self.assertEqual(caught.exception.field, field)
        for path, code in (("none.npy", "NOT_FOUND"), ("/etc/passwd", "INVALID_ARGUMENT"), ("../x.npy", "INVALID_ARGUMENT")):
            with self.subTest(path=path), self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(octavo.tomography(path, angles=angles))
            self.assertEqual(caught.exception.code.name, code)
        with open(os.path.join(self.daemon.root, "fine.npy"), "rb") as file:
            damaged = file.read().replace(b"(40, ", b"(4\xff, ", 1)
        with open(os.path.join(self.daemon.root, "damaged.npy"), "wb") as file:
            file.write(damaged)
        with self.assertRaises(octavo.OctavoError) as caught:  # even though the file it quotes is not text
            self.client.submit_job(octavo.tomography("damaged.npy", angles=angles))
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.INVALID_ARGUMENT, "BAD_PROJECTIONS"))
        self.assertIn("(4\ufffd, 2, 64)", caught.exception.message)
        plan = self.client.plan_job(octavo.tomography("fine.npy", algorithm="sirt", iterations=7, angles=angles, prepare=self.ready))
        self.assertIn("SIRT, 7 iterations: 2 slices of 64 x 64 from 40 angles", plan.plan)
        self.assertTrue(plan.report.admitted)

    def test_scans_in_several_files(self):
        _, angles = self.sinograms("all.npy", size=64, count=40, rows=2)
        data = np.load(os.path.join(self.daemon.root, "all.npy"))
        os.makedirs(os.path.join(self.daemon.root, "raw"))
        for name, part in (("raw/one.h5", data[:15]), ("raw/two.h5", data[15:])):
            with h5py.File(os.path.join(self.daemon.root, name), "w") as file:
                file["entry/data"] = part
        layout = h5py.VirtualLayout(data.shape, "f4")
        layout[:15] = h5py.VirtualSource("raw/one.h5", "entry/data", data[:15].shape)
        layout[15:] = h5py.VirtualSource("raw/two.h5", "entry/data", data[15:].shape)
        with h5py.File(os.path.join(self.daemon.root, "virtual.h5"), "w") as file:
            file.create_virtual_dataset("frames", layout)
        with h5py.File(os.path.join(self.daemon.root, "master.h5"), "w") as file:
            file["exchange/data"] = h5py.ExternalLink("virtual.h5", "/frames")
            file["exchange/theta"] = np.rad2deg(angles)
            file["exchange/theta"].attrs["units"] = "deg"
            file["outside/data"] = h5py.ExternalLink("/etc/frames.h5", "/frames")
        _, wanted = self.made(octavo.tomography("all.npy", angles=angles, prepare=self.ready))
        _, image = self.made(octavo.tomography("master.h5", angles=angles, prepare=self.ready))
        np.testing.assert_array_equal(image, wanted)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.tomography(octavo.ProjectionFile(path="master.h5", projections="/outside/data"), prepare=self.ready))
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.INVALID_ARGUMENT, "BAD_PROJECTIONS"))
        self.assertIn("/outside/data leads to '/etc/frames.h5:/frames', which lies outside of the configured roots", caught.exception.message)

    @needs_data
    def test_the_tooth(self):
        shutil.copy(os.path.join(TOMO, "tooth.h5"), self.daemon.root)
        found = {}
        for method in ("auto", "pairs", "vo", "entropy", "phase_correlation"):
            job, volume = self.made(octavo.tomography("tooth.h5", algorithm="fbp", center=method))
            found[method] = job.tomography.centers[0]
            self.assertEqual(volume.shape, (2, 640, 640))
            self.assertEqual(str(job.tomography.center_source).lower(), method if method != "auto" else "pairs")
            self.assertLessEqual(abs(job.tomography.center_check - found[method]), 1, method)
        self.assertTrue(294.5 <= found["auto"] <= 295.6)
        print("axis of the tooth, pixel index:", {k: round(v, 3) for k, v in found.items()})
        for method, center in found.items():
            self.assertTrue(294.53 - 0.5 - 1 <= center <= 295.63 + 1, f"{method}: {center}")
        # Sharp and of the right scale: the SIRT image explains the data.
        job, volume = self.made(octavo.tomography("tooth.h5", algorithm="sirt", iterations=30, center=found["vo"], min=0))
        print(f"tooth, SIRT: relative residual {job.tomography.relative_residual:.4f}")
        self.assertLess(job.tomography.relative_residual, 0.1)
        job, wrong = self.made(octavo.tomography("tooth.h5", algorithm="sirt", iterations=30, center=found["vo"] + 6, min=0))
        self.assertGreater(job.tomography.relative_residual, 0.02)

    def test_the_axis_is_where_the_file_says_unless_another_is_asked_for(self):
        size, axis = 96, 40.37
        angles = np.linspace(0, np.pi, 80, endpoint=False)
        _, sinogram = shepp_logan(size, angles, axis, half=36)
        with h5py.File(os.path.join(self.daemon.root, "axis.nxs"), "w") as file:
            entry = file.create_group("entry/tomo_entry")
            entry["definition"] = "NXtomo"
            detector = entry.create_group("instrument/detector")
            detector["data"], detector["image_key"] = sinogram[:, None, :], np.zeros(len(angles), np.int32)
            detector["x_rotation_axis_pixel_position"] = axis
            entry["sample/rotation_angle"] = np.rad2deg(angles)
            entry["sample/rotation_angle"].attrs["units"] = "degree"
        for center, fields, method, wanted in ((None, {}, "file", axis), (None, dict(columns=(5, 90)), "file", axis), (47.5, {}, "given", 47.5),
                                               ("auto", {}, "pairs", axis)):
            with self.subTest(center=center, **fields):
                job, volume = self.made(octavo.tomography("axis.nxs", center=center, prepare=self.ready, **fields))
                self.assertEqual(str(job.tomography.center_source).lower(), method)
                self.assertAlmostEqual(job.tomography.centers[0], wanted, delta=0.25 if center == "auto" else 1e-9)
                if method == "file":
                    _, given = self.made(octavo.tomography("axis.nxs", center=axis, prepare=self.ready, **fields))
                    np.testing.assert_array_equal(volume, given)
                    self.assertIn("as the file says", self.client.plan_job(octavo.tomography("axis.nxs", prepare=self.ready, **fields)).plan)

        # "file_or_auto" searches in files without an axis only; what is refused is refused for all.
        self.save("axisless.npy", sinogram[:, None, :])
        both = (("axis.nxs", {}), ("axisless.npy", dict(angles=angles)))
        for name, given in both:
            for fields in ({}, dict(center_row=0, center_doubt="fail", search=(38, 44))):
                with self.subTest(name, **fields):
                    job, _ = self.made(octavo.tomography(name, center="file_or_auto", prepare=self.ready, **given, **fields))
                    self.assertEqual(str(job.tomography.center_source).lower(), "file" if name == "axis.nxs" else "pairs")
                    self.assertAlmostEqual(job.tomography.centers[0], axis, delta=1e-9 if name == "axis.nxs" else 0.25)
            for words, fields in (("tomography.try_centers", dict(try_centers=(40, 42, 1))), ("tomopy form", dict(algorithm="sirt", iterations=1, form="tomopy")),
                                  ("with stitching", dict(prepare=octavo.preparation(already_sinograms=True, stitching=dict(overlap=4))))):
                with self.subTest(name, **fields), self.assertRaisesRegex(octavo.OctavoError, words):
                    self.client.plan_job(octavo.tomography(name, center="file_or_auto", **{"prepare": self.ready, **given, **fields}))

    def test_an_axis_is_found_in_any_order_far_off_the_middle_or_in_doubt(self):
        size, axis = 240, 174.3
        for count, turn in ((200, 1), (301, 2)):
            angles = np.random.default_rng(count).permutation(np.linspace(0, turn * np.pi, count, endpoint=False)) + 0.3
            _, sinogram = shepp_logan(size, angles, axis, half=60)
            self.save("turned.npy", sinogram[:, None, :])
            for method in ("auto", "pairs", "entropy", "phase_correlation"):
                job, _ = self.made(octavo.tomography("turned.npy", angles=angles, center=method, prepare=self.ready))
                with self.subTest(method=method, turn=turn):
                    self.assertLess(abs(job.tomography.centers[0] - axis), 0.3)
                    beyond = [w for w in job.warnings if "lies outside of the search" in w]
                    self.assertEqual(len(beyond), method in ("entropy", "phase_correlation"), job.warnings)  # by default they search at most 50 columns off the middle
                    self.assertEqual(len(job.warnings), len(beyond), job.warnings)
        self.save("nothing.npy", np.random.default_rng(1).normal(1, 0.1, (100, 1, 128)).astype(np.float32))
        nothing = dict(angles=np.linspace(0, np.pi, 100, endpoint=False), center="auto", prepare=self.ready)
        job, _ = self.made(octavo.tomography("nothing.npy", **nothing))
        self.assertTrue(any(w.startswith("The axis") for w in job.warnings), job.warnings)
        end = self.client.wait_job(self.client.submit_job(octavo.tomography("nothing.npy", center_doubt="fail", **nothing)).name, check=False)
        self.assertEqual((end.state, list(end.volume_names)), (job_pb2.JOB_STATE_FAILED, []))
        self.assertIn("tomography.center: The axis", end.reason)
        with self.assertRaises(octavo.OctavoError) as caught:  # a third of a turn has no opposite projections
            self.client.plan_job(octavo.tomography("turned.npy", angles=np.linspace(0, 2, 301), center="auto", prepare=self.ready))
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "tomography.angles_rad"))

    @needs_data
    def test_rings_of_the_dendrite(self):
        sinogram = np.load(os.path.join(TOMO, "dendrite_sino_x1000.npy")) / np.float32(1000)
        angles = np.load(os.path.join(TOMO, "dendrite_angles_rad.npy"))
        self.save("dendrite.npy", sinogram[:, None, :])

        def energy(image):  # energy of rings around the axis: means of rings, minus their neighbours
            size = image.shape[0]
            radius = np.hypot(*np.meshgrid(np.arange(size) - (size - 1) / 2, np.arange(size) - (size - 1) / 2)).astype(int)
            inside = radius < 0.45 * size
            means = np.bincount(radius[inside], image[inside]) / np.bincount(radius[inside])
            return float(np.mean((means[3:-2] - (means[1:-4] + means[5:]) / 2) ** 2))
        energies = {}
        for method in ("", "sorting", "all_stripe", "fourier_wavelet"):
            prepare = octavo.preparation(already_sinograms=True, rings=[method] if method else [])
            _, volume = self.made(octavo.tomography("dendrite.npy", algorithm="fbp", center=627.25, angles=angles, prepare=prepare))
            energies[method or "none"] = energy(volume[0])
        print("ring energy of the dendrite:", {k: f"{v / energies['none']:.3f}" for k, v in energies.items()})
        for method in ("sorting", "all_stripe", "fourier_wavelet"):
            self.assertLess(energies[method], 0.7 * energies["none"])

    @needs_data
    def test_neutrons_over_a_full_turn(self):
        raw = np.load(os.path.join(TOMO, "neutron360_sino_u16.npy")).astype(np.float32)
        transmission = raw / raw[:, :30].mean(axis=1, keepdims=True)
        transmission[transmission <= 0] = transmission[transmission > 0].min()
        angles = np.linspace(0, 2 * np.pi, len(raw))
        self.save("neutron.npy", transmission[:, None, :])
        half = octavo.tomography("neutron.npy", algorithm="fbp", center="vo", angles=angles, projections=(0, len(raw) // 2 + 1))
        job, _ = self.made(half)
        center = job.tomography.centers[0]
        print(f"axis of the neutron scan: {center:.2f}")
        self.assertLess(abs(center - 245.5), 1.5)
        # All projections, in any order: the axis is the same and not in doubt.
        order = np.random.default_rng(4).permutation(len(raw))
        self.save("mixed.npy", transmission[order, None, :])
        job, _ = self.made(octavo.tomography("mixed.npy", algorithm="fbp", center="auto", angles=angles[order], center_doubt="fail"))
        print(f"axis of all of the neutron scan, shuffled: {job.tomography.centers[0]:.2f} +- {job.tomography.center_uncertainty:.2f}")
        self.assertLess(abs(job.tomography.centers[0] - 245), 1)
        self.assertEqual([w for w in job.warnings if "axis" in w], [])
        job, volume = self.made(octavo.tomography("neutron.npy", algorithm="sirt", iterations=20, center=center, angles=angles))
        print(f"neutrons, SIRT: relative residual {job.tomography.relative_residual:.4f}")
        self.assertLess(job.tomography.relative_residual, 0.2)

    def test_trial_axes_in_one_picture(self):
        """Each trial has its axis and score. The output has the numbers, too. Without -o no volume
        stays on the server."""
        size, true, count = 96, 45.25, 9
        angles = np.linspace(0, np.pi, 120, endpoint=False)
        _, sinogram = shepp_logan(size, angles, true, half=34)
        noisy = sinogram + np.random.default_rng(3).normal(0, 0.02 * sinogram.max(), sinogram.shape).astype(np.float32)
        self.save("tries_angles.npy", angles)
        self.save("tries.npy", noisy[:, None, :])
        picture = os.path.join(self.daemon.directory, "tries.png")
        flags = ("tries.npy", "--sinograms", "--angles-file", "tries_angles.npy", "--radians", "--try-centers", "41.25:49.25:1", "--png", picture)
        lines = self.command("--json", "recon", *flags, "-o", "slices.npy").stdout.splitlines()
        (told,) = [json.loads(line) for line in lines if '"trials"' in line]
        self.assertEqual([trial["axis"] for trial in told["trials"]], [41.25 + i for i in range(count)])
        self.assertEqual((told["best_axis"], told["best_at_edge"], told["png"]), (true, False, picture))
        slices = np.load(os.path.join(self.daemon.root, "slices.npy"))
        self.assertEqual(slices.shape, (count, size, size))

        def spread(image):
            smooth = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), (5, 5)).mean((2, 3))
            at = np.arange(size - 4) - (size - 5) / 2
            inside = (np.hypot(at[:, None], at[None, :]) <= 0.95 * (size - 4) / 2)[:-1, :-1]
            length = np.hypot(np.diff(smooth, axis=0)[:, :-1], np.diff(smooth, axis=1)[:-1])[inside]
            return length.mean() / np.sqrt((length ** 2).mean())

        np.testing.assert_allclose([trial["score"] for trial in told["trials"]], [spread(one) for one in slices], rtol=1e-5)
        # The picture: three by three tiles with one contrast, and above each a strip with two
        # lines.
        with open(picture, "rb") as file:
            page = decode_png(file.read())
        strip, gap = 22, 4
        self.assertEqual(page.shape, (3 * (strip + size + gap), 3 * (size + gap)))
        ordered = np.sort(slices, axis=None)
        lo, hi = (ordered[int(np.floor(part * (ordered.size - 1) + 0.5))] for part in (0.002, 0.998))
        captions = []
        for i, one in enumerate(slices):
            top, left = i // 3 * (strip + size + gap), i % 3 * (size + gap)
            tile = page[top + strip:top + strip + size, left:left + size].astype(int)
            self.assertLessEqual(np.abs(tile - np.clip(255 * (one - lo) / (hi - lo), 0, 255)).max(), 1)
            captions.append(page[top:top + strip, left:left + size])
            for line in (captions[-1][:11], captions[-1][11:]):
                self.assertGreater((line == 0).sum(), 60)
        for other in captions[1:]:
            self.assertTrue((captions[0] != other).any())
        held = held_bytes(self.client)
        text = self.command("recon", *flags).stdout
        self.assertRegex(text, r"axis 45.25 +score 0\.\d+  <- least")
        self.assertIn(f"{picture}  {count} slices", text)
        self.assertNotIn("warning", text)
        self.assertEqual((held_bytes(self.client), [v.name for v in self.client.volumes() if v.state == 2]), (held, []))
        text = self.command("recon", *flags[:-3], "46.25:49.25:1", "--png", picture).stdout
        self.assertIn("warning: the sharpest is at an end of the range", text)
        # A picture of one slice keeps no volume either. Without a picture the volume stays, and the
        # output says what the user can do with it.
        self.command("recon", *flags[:-4], "--center", "45.25", "--png", picture)
        self.assertEqual([v.name for v in self.client.volumes() if v.state == 2], [])
        text = self.command("recon", *flags[:-4], "--center", "45.25").stdout
        (held,) = [v.name for v in self.client.volumes() if v.state == 2]
        self.assertIn(f"held by the server: octavo volume commit {held}, or octavo volume discard {held}", text)

    def test_who_interrupts_the_command_line_ends_the_job(self):
        angles = np.linspace(0, np.pi, 90, endpoint=False)
        _, sinogram = shepp_logan(127, angles, 63)
        self.save("interrupted_angles.npy", angles)
        name = self.save("interrupted.npy", np.repeat(sinogram[:, None, :], 4, axis=1))
        before = held_bytes(self.client)
        known = {job.name for job in self.client.jobs()}
        command = [os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "recon", name, "--sinograms", "--angles-file",
                   "interrupted_angles.npy", "--radians", "--algorithm", "sirt", "--iterations", "1000000", "--device", "devices/0"]
        for kind in (signal.SIGINT, signal.SIGTERM):
            for state in (job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_QUEUED):
                with self.subTest(kind=kind, state=state):
                    blocker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if state == job_pb2.JOB_STATE_QUEUED else None
                    if blocker:
                        until(lambda: any(job.state == job_pb2.JOB_STATE_RUNNING for job in self.client.jobs() if job.name not in known))
                        known |= {job.name for job in self.client.jobs()}
                    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    until(lambda: any(job.state == state for job in self.client.jobs() if job.name not in known))
                    (mine,) = [job.name for job in self.client.jobs() if job.name not in known]
                    known.add(mine)
                    process.send_signal(kind)
                    _, error = process.communicate(timeout=60)
                    self.assertEqual(process.returncode, 130, error)
                    self.assertEqual(self.client.job(mine).state, job_pb2.JOB_STATE_CANCELLED)
                    if blocker:
                        blocker.send_signal(signal.SIGINT)
                        self.assertEqual(blocker.wait(60), 130)
        self.assertEqual([v.name for v in self.client.volumes() if v.state == 2], [])
        until(lambda: held_bytes(self.client) == before)

    @needs_data
    def test_command_line(self):
        shutil.copy(os.path.join(TOMO, "tooth.h5"), self.daemon.root)
        picture = os.path.join(self.daemon.directory, "tooth.png")
        text = self.command("recon", "tooth.h5", "--algorithm", "sirt", "--iterations", "5", "--center", "auto", "-o", "tooth.npy", "--png", picture).stdout
        self.assertIn("DONE", text)
        self.assertIn("axis at column 29", text)
        with open(picture, "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        volume = np.load(os.path.join(self.daemon.root, "tooth.npy"))
        self.assertEqual((volume.shape, volume.dtype), ((2, 640, 640), np.float32))
        self.assertIn("wants", self.command("recon", "tooth.h5", "--plan").stdout)
        tried = self.command("recon", "tooth.h5", "--try-centers", "285:305:1", "--rows", "0:1", "-o", "tries.tiff", "--png", picture).stdout
        best = float(re.search(r"axis (\S+) +score \S+  <- least", tried).group(1))
        print(f"the sharpest trial of the tooth: {best}")
        self.assertTrue(294 <= best <= 296, tried)
        self.assertEqual(self.command("recon", "tooth.h5", "--algorithm", "none", check=False).returncode, 2)
        self.assertEqual(self.command("recon", "nothing.h5", check=False).returncode, 1)
        jobs = [json.loads(line) for line in self.command("--json", "job", "list").stdout.splitlines()]
        self.assertEqual(jobs[0]["kind"], "JOB_KIND_TOMOGRAPHY")


if __name__ == "__main__":
    unittest.main()
