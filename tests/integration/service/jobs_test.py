"""Jobs against the daemon: raw volumes, reprocessing, autofocus, k-calibration, the queue,
cancellation, the command line, metrics."""

import json
import os
import shutil
import threading
import unittest
import urllib.request

import grpc
import numpy as np

from harness import DATA, Daemon, DaemonTest, held_bytes, octavo, subscribers, until
from octavo.v1 import job_pb2, reason_pb2, types_pb2, volume_pb2
from scan.real_spectra_test import width

MIRROR = os.path.join(DATA, "oct", "mirror31")
FIRST = octavo.processing(window="hann", value="db")
SECOND = octavo.processing(k="source", interpolation="linear", window="blackman", a2=4e-5, a3=2e-8, value="magnitude", dtype="f32", depth=300,
                           fft_length=2048)


def scan(client, processing, *, hold_raw=False, samples=1024, shape=None, volumes=2, seed=3, **fields):
    job = client.submit_scan(octavo.simulated(seed=seed, fast=True, nonlinearity=0.05), shape or octavo.raster(40, 12, volumes=volumes), samples=samples,
                             processing=processing, retention=dict(hold_raw=hold_raw), **fields)
    end = client.wait(job.name)
    assert end.reason_code == reason_pb2.REASON_COMPLETED, end.reason
    volumes = client.volumes(job.name)
    return job, [v for v in volumes if not v.raw], [v for v in volumes if v.raw]


class Jobs(DaemonTest):
    def test_reprocessed_is_what_the_scan_would_have_made(self):
        _, plain, raw = scan(self.client, FIRST, hold_raw=True)
        _, wanted, none = scan(self.client, SECOND)
        self.assertEqual((len(plain), len(raw), len(none)), (2, 2, 0))
        self.assertEqual([(v.index, list(v.shape), v.quantity) for v in raw],
                         [(i, [12, 40, 1024], volume_pb2.QUANTITY_RAW_SPECTRA) for i in (0, 1)])
        for i in range(2):
            job = self.client.submit_job(octavo.reprocess(raw[i].name, SECOND), title="again", labels={"who": "me"})
            self.assertEqual((job.kind, str(job.kind)), (job_pb2.JOB_KIND_REPROCESS, "REPROCESS"))
            self.assertIn("transform: inverse DFT of 2048", job.plan)
            end = self.client.wait_job(job.name)
            self.assertEqual(end.fraction, 1)
            volume = self.client.volume(end.volume_names[0])
            self.assertEqual((volume.parent, volume.derived_from, volume.title, volume.labels["who"], volume.index),
                             (job.name, raw[i].name, "again", "me", i))
            np.testing.assert_array_equal(self.client.read(volume.name), self.client.read(wanted[i].name))
            self.assertEqual(volume.digest, wanted[i].digest)
            self.assertEqual(list(volume.operations), ["reprocess"])
            np.testing.assert_array_equal(self.client.read(raw[i].name, start=[3, 5, 0], count=[1, 1, 1024]).ravel(),
                                          self.client.read(raw[i].name)[3, 5])

    def test_operations_follow_reprocessing(self):
        shape = octavo.repeated_raster(24, 4, volumes=1, repeats=3)
        _, plain, raw = scan(self.client, FIRST, hold_raw=True, shape=shape)
        wanted = self.client.derive(plain[0].name, {"angiography": {}})
        work = octavo.reprocess(raw[0].name, FIRST, operations=[{"angiography": {}}])
        plan = self.client.plan_job(work)
        self.assertTrue(plan.report.admitted)
        self.assertRegex(plan.plan, "then: amplitude_decorrelation over 3 repeats\n$")
        job = self.client.submit_job(work, title="motion", request_id="motion-1").wait()
        self.assertEqual(job.name, self.client.submit_job(work, title="motion", request_id="motion-1").name)
        (at_once,) = job.volumes()
        self.assertEqual((at_once.digest, at_once.parent, at_once.derived_from, at_once.title), (wanted.digest, job.name, raw[0].name, "motion"))
        self.assertEqual(list(at_once.operations), ["reprocess", *wanted.operations])
        self.assertEqual([step.stage for step in job.history][-1], "DERIVE")
        self.assertEqual([one.message.WhichOneof("operation") for one in job.spec.reprocess.operations], ["angiography"])
        self.assertEqual(job.memory_bytes >= plain[0].bytes + at_once.bytes, True)
        both = self.client.submit_job(octavo.reprocess(raw[0].name, FIRST, operations=[{"angiography": {}}, {"mip": {"axis": "z"}}])).wait()
        self.assertEqual(both.volumes()[0].digest, self.client.derive(plain[0].name, {"angiography": {}}, {"mip": {"axis": "z"}}).digest)
        again = self.client.wait_job(self.client.submit_job(octavo.reprocess(raw[0].name, FIRST)).name)
        self.assertEqual(self.client.derive(again.volume_names[0], {"angiography": {}}).digest, wanted.digest)
        submit = self.client.submit_job
        for call, field in ((lambda: self.client.derive(raw[0].name, {"angiography": {}}), "name"),
                            (lambda: submit(octavo.reprocess(raw[0].name, operations=[{"doppler": {}}])), "reprocess.operations[0].doppler"),
                            (lambda: submit(octavo.reprocess(raw[0].name, operations=[{"angiography": {}}] * 2)), "reprocess.operations[1].angiography"),
                            (lambda: submit(octavo.reprocess(raw[0].name, operations=[{"crop": {}}] * 8)), "reprocess.operations"),
                            (lambda: submit(octavo.reprocess(raw[0].name, octavo.processing(levels=(1, 0)))), "reprocess.processing.levels")):
            with self.subTest(field=field), self.assertRaises(octavo.OctavoError) as caught:
                call()
            self.assertEqual(caught.exception.code, grpc.StatusCode.INVALID_ARGUMENT)
            self.assertTrue(caught.exception.field.startswith(field), caught.exception.field)

    def test_spilled_spectra_are_restored_when_the_job_begins(self):
        _, plain, raw = scan(self.client, FIRST, hold_raw=True, volumes=1)
        self.client.spill(raw[0].name, "host")
        work = octavo.reprocess(raw[0].name, FIRST)
        self.assertTrue(self.client.plan_job(work).report.admitted)
        self.assertEqual(self.client.volume(raw[0].name).tier, types_pb2.TIER_HOST)
        (again,) = self.client.submit_job(work).wait().volumes()
        self.assertEqual(again.digest, plain[0].digest)
        self.assertEqual(self.client.volume(raw[0].name).tier, types_pb2.TIER_DEVICE)

    def test_raw_volumes_are_charged_and_committed(self):
        report = self.client.plan_scan(octavo.simulated(fast=True), octavo.raster(40, 12, volumes=2), retention=dict(hold_raw=True)).report
        needs = {item.kind: item for item in report.needs}
        self.assertGreaterEqual(needs[types_pb2.AdmissionReport.Item.KIND_RAW_VOLUME_SLOTS].bytes, 2 * 40 * 12 * 2048)
        before = held_bytes(self.client)
        _, plain, raw = scan(self.client, FIRST, hold_raw=True)
        self.assertGreaterEqual(held_bytes(self.client) - before, 2 * 40 * 12 * 2048)
        spectra = self.client.read(raw[1].name)
        self.assertEqual((spectra.dtype, spectra.shape), (np.uint16, (12, 40, 1024)))
        result = self.client.commit(raw[1].name, "raw_{index:05}", format="npy")
        np.testing.assert_array_equal(np.load(result.path), spectra)
        # Committed raw spectra can be replayed and give the same volume.
        again = self.client.submit_scan(octavo.replay("raw_00001.npy"), octavo.raster(40, 12, volumes=1),
                                        processing=octavo.processing(background="bscan", k="none"))
        self.client.wait(again.name)
        (wanted,) = self.client.submit_job(octavo.reprocess(raw[0].name, octavo.processing(background="bscan", k="none"))).wait().volumes()
        self.assertEqual(self.client.volumes(again.name)[0].dtype, wanted.dtype)
        for name in [v.name for v in plain] + [raw[0].name, wanted.name, self.client.volumes(again.name)[0].name]:
            self.client.discard(name)
        self.assertEqual(held_bytes(self.client), before)

    def test_auto_commit_writes_both(self):
        job = self.client.submit_scan(octavo.simulated(fast=True), octavo.raster(16, 4, volumes=1), retention=dict(
            hold_raw=True, disposition=2, auto_commit=octavo.commit_options("auto_{index:05}", "npy")))
        self.client.wait(job.name)
        names = ["auto_00000.npy", "auto_00000_raw.npy"]
        until(lambda: all(os.path.exists(os.path.join(self.daemon.root, name)) for name in names))
        volumes = self.client.volumes(job.name, states=[2, 3, 4])
        while any(v.state == types_pb2.VOLUME_STATE_COMMITTING or v.state == types_pb2.VOLUME_STATE_HELD for v in volumes):
            self.assertFalse(any(v.last_error for v in volumes), volumes)
            volumes = self.client.volumes(job.name, states=[2, 3, 4])
        self.assertEqual([np.load(os.path.join(self.daemon.root, name)).shape for name in names], [(4, 16, 512), (4, 16, 1024)])

    def test_a_job_outlives_its_client_and_is_one_for_one_request(self):
        _, _, raw = scan(self.client, FIRST, hold_raw=True, volumes=1)
        with self.daemon.client() as other:
            job = other.submit_job(octavo.dispersion_autofocus(raw[0].name, ascans=32, only_a2=True), request_id="focus-1")
        again = self.client.submit_job(octavo.dispersion_autofocus(raw[0].name, ascans=32, only_a2=True), request_id="focus-1")
        self.assertEqual(again.name, job.name)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.dispersion_autofocus(raw[0].name, ascans=33), request_id="focus-1")
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_MISMATCH"))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.dispersion_autofocus(raw[0].name, ascans=32), request_id="x" * 129)
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "request_id"))
        # A request of another session is a new one even with the same id, because the job would
        # belong to the first session.
        with self.client.session("a") as a, self.client.session("b") as b:
            work = octavo.dispersion_autofocus(raw[0].name, ascans=32, only_a2=True)
            first = self.client.submit_job(work, request_id="focus-2", session=a)
            self.assertEqual(self.client.submit_job(work, request_id="focus-2", session=a).name, first.name)
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(work, request_id="focus-2", session=b)
            self.assertEqual(caught.exception.reason, "IDEMPOTENCY_MISMATCH")
            self.client.wait_job(first.name)
        self.assertEqual(self.client.wait_job(job.name).state, job_pb2.JOB_STATE_DONE)

    def test_watching_and_cancelling(self):
        _, _, raw = scan(self.client, FIRST, hold_raw=True, volumes=1)
        before = held_bytes(self.client)
        work = octavo.dispersion_autofocus(raw[0].name, a2=(-4e-3, 4e-3), ascans=480, reprocess=True)
        first = self.client.submit_job(work, priority=3)
        second = self.client.submit_job(work)
        urgent = self.client.submit_job(work, priority=9, title="urgent")
        self.assertEqual([j.name for j in self.client.jobs(filter="state = QUEUED")], [urgent.name, second.name])
        self.assertEqual((self.client.job(urgent.name).queue_position, self.client.job(second.name).queue_position), (1, 2))
        self.assertEqual(self.client.job(second.name).reason_code, reason_pb2.REASON_WAITING_FOR_DEVICE)
        steps = 0
        for job in self.client.watch_job(first.name):
            if job.state == job_pb2.JOB_STATE_RUNNING and job.step_count > 3:
                steps = max(steps, job.step_count)
                self.assertGreater(job.fraction, 0)
                self.assertEqual(job.stage, job_pb2.JOB_STAGE_SWEEP)
                self.client.cancel_job(first.name)
        self.assertGreater(steps, 3)
        self.assertEqual((job.state, job.reason_code, list(job.volume_names)), (job_pb2.JOB_STATE_CANCELLED, reason_pb2.REASON_CANCELLED, []))
        self.assertTrue(any("RUNNING" in line.text for line in job.log_lines))
        self.assertEqual(self.command("job", "cancel", second.name).stdout.split()[2], "CANCELLED")
        self.client.cancel_job(urgent.name)
        self.client.wait_job(urgent.name, check=False)
        self.assertEqual(held_bytes(self.client), before)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.wait_job(first.name)
        self.assertEqual(caught.exception.reason, "CANCELLED")
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=30).read().decode()
        self.assertRegex(page, r'octavo_jobs_finished_total\{kind="dispersion_autofocus",reason="CANCELLED"\} [1-9]')
        self.assertRegex(page, r'octavo_job_run_seconds_count\{kind="dispersion_autofocus"\} [1-9]')

    def test_plan_and_bad_requests(self):
        _, plain, raw = scan(self.client, FIRST, hold_raw=True, volumes=1)
        plan = self.client.plan_job(octavo.reprocess(raw[0].name, SECOND))
        self.assertTrue(plan.report.admitted)
        self.assertGreaterEqual(plan.report.wanted_bytes, 40 * 12 * 300 * 4)
        self.assertIn("dispersion phase", plan.plan)
        for work, fields, code, field in (
                (octavo.reprocess(plain[0].name), {}, "INVALID_ARGUMENT", "reprocess.volume"),
                (octavo.reprocess("volumes/none"), {}, "NOT_FOUND", "name"),
                (octavo.reprocess(raw[0].name, octavo.processing(dtype="i8", levels=(2, 1))), {}, "INVALID_ARGUMENT", "reprocess.processing.levels"),
                (octavo.reprocess(raw[0].name), dict(priority=101), "INVALID_ARGUMENT", "priority"),
                (octavo.reprocess(raw[0].name), dict(device="devices/9"), "INVALID_ARGUMENT", "device"),
                (octavo.reprocess(raw[0].name), dict(labels={"Big": "x"}), "INVALID_ARGUMENT", "labels"),
                (octavo.reprocess(raw[0].name), dict(group="g" * 129), "INVALID_ARGUMENT", "group"),
                (job_pb2.JobSpec(), {}, "INVALID_ARGUMENT", "work"),
                (octavo.dispersion_autofocus(raw[0].name, a2=(float("nan"), 0)), {}, "INVALID_ARGUMENT", "dispersion_autofocus.a2_begin"),
                (octavo.k_calibration(raw[0].name, edge=float("inf")), {}, "INVALID_ARGUMENT", "k_calibration.edge")):
            with self.subTest(field=field), self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_job(work, **fields)
            self.assertEqual((caught.exception.code.name, caught.exception.field.split(".value")[0][:len(field)]), (code, field), caught.exception.message)
        for call in (self.client.job, self.client.cancel_job, lambda name: list(self.client.watch_job(name))):
            with self.assertRaises(octavo.OctavoError) as caught:
                call("jobs/none")
            self.assertEqual((caught.exception.code.name, caught.exception.reason), ("NOT_FOUND", "NO_JOB"))

    def test_a_subscriber_sees_the_result(self):
        _, _, raw = scan(self.client, FIRST, hold_raw=True, volumes=1)
        # Two long jobs run before it, so that the subscription exists when it begins.
        blockers = [self.client.submit_job(octavo.dispersion_autofocus(raw[0].name, ascans=480)) for _ in range(2)]
        job = self.client.submit_job(octavo.reprocess(raw[0].name, SECOND), priority=-1)
        frames = []
        reader = threading.Thread(target=lambda: frames.extend(self.client.subscribe(job.name, ["mip"], delivery="lossless")))
        reader.start()
        until(lambda: subscribers(self.daemon) >= 1)
        for blocker in blockers:
            self.client.cancel_job(blocker.name)
        end = self.client.wait_job(job.name)
        reader.join(60)
        self.assertEqual([f.volume for f in frames], list(end.volume_names))
        np.testing.assert_array_equal(frames[0].array, self.client.read(end.volume_names[0]).max(axis=2))

    def test_command_line(self):
        _, _, raw = scan(self.client, FIRST, hold_raw=True, volumes=1)
        spec = os.path.join(self.daemon.directory, "job.json")
        with open(spec, "w") as file:
            json.dump({"reprocess": {"volume": raw[0].name, "processing": {"value": "VALUE_MAGNITUDE", "dtype": "DTYPE_F32"}}, "title": "by hand"}, file)
        self.assertIn("wants", self.command("job", "submit", "--json-spec", spec, "--plan").stdout)
        text = self.command("job", "submit", "--json-spec", spec, "--watch").stdout
        self.assertIn("DONE", text)
        self.assertIn("by hand", text)
        self.command("job", "reprocess", raw[0].name, "--watch", "--label", "a=b")
        refused = self.command("job", "reprocess", raw[0].name, "--angiography", "speckle-variance", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("has no repeats (raster)", refused.stderr)
        phases = self.command("--json", "job", "reprocess", raw[0].name, "--doppler", "ascans", "--watch", "--json-spec",
                              json.dumps({"reprocess": {"processing": {"value": "VALUE_COMPLEX", "dtype": "DTYPE_C64"}}})).stdout
        (phase,) = json.loads(phases.splitlines()[-1])["volumes"]
        self.assertEqual(self.client.volume(phase).quantity, volume_pb2.QUANTITY_PHASE_RAD)
        self.assertIn("a2 ", self.command("job", "autofocus", raw[0].name, "--only-a2", "--watch").stdout)
        listed = [json.loads(line) for line in self.command("--json", "job", "list").stdout.splitlines()]
        self.assertEqual([job["kind"] for job in listed[:3]], ["JOB_KIND_DISPERSION_AUTOFOCUS", "JOB_KIND_REPROCESS", "JOB_KIND_REPROCESS"])
        self.assertEqual(self.command("--json", "job", "list", "--open").stdout, "")
        self.assertIn("DONE", self.command("job", "show", listed[0]["name"]).stdout)
        self.assertEqual(self.command("job", "watch", "jobs/none", check=False).returncode, 1)
        self.assertEqual(self.command("job", "submit", check=False).returncode, 2)


class Drain(unittest.TestCase):
    def test_queued_jobs_end_and_the_daemon_too(self):
        daemon = Daemon()
        with daemon.client() as client:
            _, _, raw = scan(client, FIRST, hold_raw=True, volumes=1)
            running = client.submit_job(octavo.dispersion_autofocus(raw[0].name, ascans=32, only_a2=True))
            client.submit_job(octavo.dispersion_autofocus(raw[0].name, a2=(-4e-3, 4e-3)))
            self.assertEqual(daemon.stop(60), 0)
        text = daemon.text()
        self.assertIn(running.name, text)
        daemon.remove()


@unittest.skipUnless(os.path.isdir(MIRROR), f"no test data in {MIRROR} (OCTAVO_TEST_DATA)")
class RealMirror(unittest.TestCase):
    """Spectra of a mirror at 31 path differences."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        shutil.copy(os.path.join(MIRROR, "spectra_u16.npy"), cls.daemon.root)
        cls.client = cls.daemon.client()
        cls.reference = np.load(os.path.join(MIRROR, "reference_u16.npy"))
        cls.wavelength = np.load(os.path.join(MIRROR, "wavelength_nm_f64.npy"))
        job = cls.client.submit_scan(octavo.replay("spectra_u16.npy"), octavo.raster(31, 1, volumes=1), retention=dict(hold_raw=True))
        cls.client.wait(job.name)
        cls.raw = next(v for v in cls.client.volumes(job.name) if v.raw)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.daemon.remove()

    def ascans(self, **fields):
        processing = octavo.processing(background=self.reference, window="hann", value="magnitude", dtype="f32", **fields)
        end = self.client.wait_job(self.client.submit_job(octavo.reprocess(self.raw.name, processing)).name)
        return self.client.read(end.volume_names[0])[0]

    @staticmethod
    def widths(ascans, positions):
        peaks = {p: 5 + int(np.argmax(ascans[p][5:512])) for p in positions}
        return np.array([width(ascans[p], peaks[p]) for p in positions])

    def test_reprocessing_gives_the_facts(self):
        ascans = self.ascans(wavelength_nm=self.wavelength, interpolation="linear")
        np.testing.assert_allclose(self.widths(ascans, [1, 5, 10, 15, 20]), [2.30, 2.39, 3.29, 5.29, 8.08], atol=0.05)

    def test_calibration_makes_peaks_narrow(self):
        positions = [5, 10, 15, 20]
        job = self.client.wait_job(self.client.submit_job(octavo.k_calibration(
            self.raw.name, octavo.processing(background=self.reference), first_record=15, records=6, polynomial_degree=7)).name)
        found = job.k_linearisation
        self.assertEqual(len(found.index), 1024)
        self.assertTrue(np.all(np.diff(found.index) > 0))
        calibrated = self.widths(self.ascans(k=np.array(found.index), interpolation="cubic"), positions)
        given = self.widths(self.ascans(wavelength_nm=self.wavelength, interpolation="cubic"), positions)
        none = self.widths(self.ascans(k="none"), positions)
        print("widths in bins at", positions, "calibrated", calibrated.round(2), "by the given wavelengths", given.round(2), "none", none.round(2))
        self.assertLess(calibrated.max(), 2.5)  # as narrow as at position 1, at every depth
        self.assertLess(calibrated[-1], given[-1] / 3)
        by_polynomial = self.widths(self.ascans(polynomial=found.polynomial, interpolation="cubic"), positions)
        np.testing.assert_allclose(by_polynomial, calibrated, rtol=0.05)

    def test_autofocus_makes_peaks_narrower(self):
        positions = [5, 10, 15, 20, 25]
        k = dict(wavelength_nm=self.wavelength, interpolation="cubic")
        job = self.client.wait_job(self.client.submit_job(octavo.dispersion_autofocus(
            self.raw.name, octavo.processing(background=self.reference, window="hann", **k))).name)
        found = job.dispersion
        self.assertGreater(found.sharpness, found.sharpness_before)
        before, after = self.widths(self.ascans(**k), positions), self.widths(self.ascans(a2=found.a2, a3=found.a3, **k), positions)
        print("a2", found.a2, "a3", found.a3, "widths in bins at", positions, before.round(2), "->", after.round(2))
        self.assertLess(after.mean(), 0.93 * before.mean())


if __name__ == "__main__":
    unittest.main()
