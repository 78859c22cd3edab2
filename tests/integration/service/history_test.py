"""Histories of scans, jobs, commits and held volumes survive the daemon: after kill -9 the next one names what was lost, and the same request id
answers with what it did, or with LOST."""

import contextlib
import glob
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest
import urllib.request

import numpy as np

from harness import BUILD, Daemon, octavo, until
from octavo.v1 import ingest_pb2, job_pb2, operation_pb2, reason_pb2, scan_pb2, tomography_pb2, types_pb2

HANG_FSYNC = os.path.join(BUILD, "lib", "libhang_fsync.so")
LOST = types_pb2.SCAN_STATE_LOST
SHAPE = dict(samples=512)
# A scan that goes on, whatever becomes of its volumes.
LIVE = dict(samples=512, rate_hz=50e3, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, keep_last=2, hold_slots=1))


def endless(seed=1):
    return octavo.simulated(seed), octavo.raster(64, 16, volumes=0)


def push_job():
    """A tomography that waits for projections that nobody pushes."""
    pushed = ingest_pb2.PushedProjections(rows=2, columns=32, frames=29, dtype=types_pb2.DTYPE_U16)
    return job_pb2.JobSpec(title="waits", tomography=tomography_pb2.TomographyJob(push=pushed))


class History(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-history-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.folder = os.path.join(self.directory, "state", "history")
        self.path = os.path.join(self.folder, "history.sqlite")

    def start(self, *flags, **options):
        log = os.path.join(self.directory, "octavod.log")
        before = os.path.getsize(log) if os.path.exists(log) else 0
        daemon = Daemon(*flags, directory=self.directory, **options)
        daemon.log_begin = before
        self.addCleanup(daemon.remove)
        return daemon

    def records(self, daemon, event):
        with open(daemon.log.name) as log:
            log.seek(daemon.log_begin)
            return [record for record in map(json.loads, log) if record["event"] == event]

    def rows(self, kinds="1, 2, 3"):
        """name -> state of scans, jobs and commits, as they are in the database now."""
        with contextlib.closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=20)) as database:
            return dict(database.execute(f"SELECT name, state FROM work WHERE kind IN ({kinds})"))

    def volume_rows(self):
        return self.rows("4")

    def recorded(self, name, state):
        until(lambda: self.rows().get(name) == state)

    def commits_of(self, job):
        """The paths that the row of a job has now."""
        with contextlib.closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=20)) as database:
            (details,) = database.execute("SELECT details FROM work WHERE name = ?", (job,)).fetchone()
        return set(json.loads(details)["commits"])

    def held_recorded(self, *names):
        until(lambda: {self.volume_rows().get(name) for name in names} == {"HELD"})

    def metric(self, daemon, name):
        page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
        return float(page.split(f"\n{name} ")[1].split("\n")[0])

    def lost(self, daemon):
        return {kind: self.metric(daemon, f'octavo_lost_at_start{{kind="{kind}"}}') for kind in ("scan", "job", "commit")}

    def told(self, daemon, client, volumes=False):
        """The names of what was lost, as the log has them and as GetInfo does: of held volumes, or of all else."""
        logged = [record["what"].split(" ")[0] for record in self.records(daemon, "lost with an earlier daemon")]
        self.assertEqual([line.split(" ")[0] for line in client.info().recovered if "): LOST: " in line], logged)
        self.assertEqual(len(logged), len(set(logged)))
        self.assertEqual(self.metric(daemon, 'octavo_lost_at_start{kind="volume"}'), len([name for name in logged if name.startswith("volumes/")]))
        return {name for name in logged if name.startswith("volumes/") == volumes}

    def command(self, daemon, *words, code=0):
        result = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", daemon.address, *words], capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout

    def refused(self, code, reason, call, *arguments, **named):
        with self.assertRaises(octavo.OctavoError) as caught:
            call(*arguments, **named)
        self.assertEqual((caught.exception.code.name, caught.exception.reason), (code, reason), caught.exception)
        return caught.exception

    def volume(self, client, **more):
        scan = client.wait(client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(64, 16, volumes=1), **{**SHAPE, **more}))
        # Of every state: an automatic commit may be done already.
        return scan, client.volumes(scan.name, states=["held", "committing", "committed", "discarded"])[0].name


class Scans(History):
    def test_killed_in_each_state(self):
        daemon = self.start()
        with daemon.client() as client:
            done, volume = self.volume(client, title="whole", request_id="done", labels={"eye": "OD"})
            client.commit(volume, "kept", "npy")
            cancelled = client.submit_scan(*endless(), **LIVE, request_id="cancelled")
            client.cancel(cancelled.name)
            client.wait(cancelled.name)
            running = client.submit_scan(*endless(), **LIVE, title="cut", request_id="running", queue="line")
            queued = client.submit_scan(*endless(2), **LIVE, request_id="queued", queue="line")
            until(lambda: client.scan(running.name).volumes_done > 0)
            for name, state in ((done.name, "DONE"), (cancelled.name, "CANCELLED"), (running.name, "RUNNING"), (queued.name, "QUEUED")):
                self.recorded(name, state)
            before = client.scan(done.name)
        daemon.kill()
        began = time.time()
        daemon = self.start()
        with daemon.client() as client:
            lost = {running.name, queued.name}
            self.assertEqual(self.told(daemon, client), lost)
            self.assertEqual(self.lost(daemon), {"scan": 2, "job": 0, "commit": 0})
            new = client.submit_scan(*endless(), **LIVE)  # the list goes on
            self.assertEqual([(s.name, s.state, s.earlier_run) for s in client.scans()],
                             [(new.name, client.scan(new.name).state, False), (queued.name, LOST, True), (running.name, LOST, True),
                              (cancelled.name, types_pb2.SCAN_STATE_CANCELLED, True), (done.name, types_pb2.SCAN_STATE_DONE, True)])
            self.assertEqual({s.name for s in client.scans(filter="state = LOST")}, lost)
            self.assertEqual(len(client.scans(filter="earlier_run = true")), 4)
            after = client.scan(done.name)
            self.assertEqual((after.spec.title, dict(after.spec.labels), after.volumes_done, after.volumes_committed, after.records, after.owner),
                             ("whole", {"eye": "OD"}, 1, 1, before.records, before.owner))
            self.assertEqual((after.create_time, after.start_time, after.end_time), (before.create_time, before.start_time, before.end_time))
            self.assertEqual(after.message.spec.WhichOneof("source"), "simulated")
            cut = client.scan(running.name)
            self.assertEqual((cut.state, cut.reason_code, cut.spec.title, cut.spec.queue.name), (LOST, reason_pb2.REASON_LOST, "cut", "line"))
            self.assertIn("it was RUNNING", cut.reason)
            self.assertAlmostEqual(cut.end_time.timestamp() if hasattr(cut.end_time, "timestamp") else cut.end_time.ToNanoseconds() * 1e-9, began, delta=30)
            self.assertEqual([s.state for s in client.watch(running.name)], [LOST])
            self.assertIn("is LOST: the server died before its end", str(self.refused("DATA_LOSS", "LOST", client.wait, running.name)))
            self.refused("DATA_LOSS", "LOST", cut.wait)
            self.assertEqual(client.wait(running.name, check=False).state, LOST)
            self.assertEqual(client.wait(cancelled.name).state, types_pb2.SCAN_STATE_CANCELLED)
            error = self.refused("NOT_FOUND", "NO_SCAN", lambda: next(iter(client.subscribe(running.name, "mip"))))
            self.assertIn("has ended in an earlier run of the server (LOST)", str(error))
            # Ended ones stay as they are.
            self.assertEqual(client.cancel(running.name).state, LOST)
            self.assertEqual(client.stop(done.name).state, types_pb2.SCAN_STATE_DONE)
            self.refused("FAILED_PRECONDITION", "SCAN_STATE", client.mark, running.name, "now")
            # Request ids.
            error = self.refused("DATA_LOSS", "LOST", client.submit_scan, *endless(), **LIVE, title="cut", request_id="running", queue="line")
            self.assertIn(running.name, str(error))
            self.refused("DATA_LOSS", "LOST", client.submit_scan, *endless(2), **LIVE, request_id="queued", queue="line")
            self.assertEqual(self.volume_again(client).name, done.name)
            self.assertEqual(client.submit_scan(*endless(), **LIVE, request_id="cancelled").name, cancelled.name)
            self.refused("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH", client.submit_scan, *endless(5), **LIVE, request_id="running")
            self.assertEqual(len(client.scans()), 5)
            self.assertIn("of an earlier run", self.command(daemon, "scan", "list"))
            listed = [line for line in self.command(daemon, "scan", "list").splitlines() if running.name in line]
            self.assertIn("LOST", listed[0])
            self.assertIn(running.name, self.command(daemon, "info"))
            self.command(daemon, "scan", "watch", running.name, code=1)
            client.cancel(new.name)
            client.wait(new.name)
        self.assertEqual(daemon.stop(), 0)
        # They are told once, and stay listed.
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual(self.told(daemon, client), set())
            self.assertEqual(self.lost(daemon), {"scan": 0, "job": 0, "commit": 0})
            self.assertEqual([s.name for s in client.scans()], [new.name, queued.name, running.name, cancelled.name, done.name])
            self.assertEqual(client.scan(running.name).end_time, cut.end_time)
            self.refused("DATA_LOSS", "LOST", client.submit_scan, *endless(2), **LIVE, request_id="queued", queue="line")

    def volume_again(self, client):
        return client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(64, 16, volumes=1), **SHAPE, title="whole", request_id="done",
                                  labels={"eye": "OD"})

    def test_pages_run_on_into_earlier_runs(self):
        names = []
        for _ in range(3):
            daemon = self.start()
            with daemon.client() as client:
                names += [self.volume(client, title=f"n{i}")[0].name for i in range(3)]
            self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        with daemon.client() as client:
            newest = self.volume(client)[0].name
            pages, token = [], ""
            while True:
                page = client._call(client._scans.ListScans, scan_pb2.ListScansRequest(page_size=4, page_token=token))
                pages.append([scan.name for scan in page.scans])
                token = page.next_page_token
                if not token:
                    break
            self.assertEqual(sum(pages, []), [newest, *reversed(names)])
            self.assertEqual([len(page) for page in pages], [4, 4, 2])

    def test_a_stop_loses_none(self):
        daemon = self.start()
        with daemon.client() as client:
            running = client.submit_scan(*endless(), **LIVE, request_id="r")
            until(lambda: client.scan(running.name).volumes_done > 0)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.rows(), {running.name: "DONE"})
        daemon = self.start()
        with daemon.client() as client:
            scan = client.scan(running.name)
            self.assertEqual((scan.state, scan.reason_code), (types_pb2.SCAN_STATE_DONE, reason_pb2.REASON_DRAINED))
            # Its volumes were spilled, and are held again.
            self.assertGreater(scan.volumes_held, 0)
            self.assertEqual(set(scan.volume_names), {v.name for v in client.volumes(scan.name)})
            self.assertEqual(client.submit_scan(*endless(), **LIVE, request_id="r").name, running.name)

    def test_a_session_of_the_retry_is_another_one(self):
        daemon = self.start()
        with daemon.client() as client:
            session = client.session("first")
            lost = client.submit_scan(*endless(), **LIVE, request_id="r", session=session)
            self.recorded(lost.name, "RUNNING")
            daemon.kill()
        daemon = self.start()
        with daemon.client() as client, client.session("second") as session:
            self.refused("DATA_LOSS", "LOST", client.submit_scan, *endless(), **LIVE, request_id="r", session=session)

    def test_killed_at_the_points_of_a_submission(self):
        # Before the row is on the disk the next daemon knows nothing, and the scan died with the first one: the retry is a new one.
        # Afterwards it is LOST. It never runs twice at a time.
        for point, known in (("scan_begun:kill", None), ("history_write:kill", False), ("history_commit:kill", False), ("history_committed:kill", True)):
            with self.subTest(point=point):
                daemon = self.start(environment={"OCTAVO_FAILPOINT": point})
                with daemon.client() as client:
                    try:
                        client.submit_scan(*endless(), **LIVE, request_id="r" + point)
                    except octavo.OctavoError as error:
                        self.assertEqual(error.code.name, "UNAVAILABLE")
                self.assertEqual(daemon.process.wait(30), -signal.SIGKILL)
                if known is None:  # the row may have been as fast
                    known = "RUNNING" in self.rows().values()
                daemon = self.start()
                with daemon.client() as client:
                    self.assertEqual(self.lost(daemon)["scan"], known)
                    if known:
                        self.refused("DATA_LOSS", "LOST", client.submit_scan, *endless(), **LIVE, request_id="r" + point)
                    else:
                        again = client.submit_scan(*endless(), **LIVE, request_id="r" + point)
                        self.assertFalse(again.earlier_run)
                        client.cancel(again.name)
                        client.wait(again.name)
                self.assertEqual(daemon.stop(), 0)

    def test_no_secrets_and_no_subjects(self):
        daemon = self.start()
        with daemon.client() as client, client.session("holder") as session:
            self.volume(client, subject={"id": "patient-4711"}, session=session)
            secret = session.secret
        self.assertEqual(daemon.stop(), 0)
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            with open(path, "rb") as file:
                data = file.read()
            self.assertNotIn(b"patient-4711", data)
            self.assertNotIn(secret.encode(), data)
        self.assertEqual(os.stat(self.folder).st_mode & 0o777, 0o700)


class Jobs(History):
    def test_killed_in_each_state(self):
        daemon = self.start()
        with daemon.client() as client:
            _, raw = self.volume(client, retention=dict(hold_raw=True))
            raw = [v.name for v in client.volumes() if v.raw][0]
            work = octavo.reprocess(raw, octavo.processing(window="rect"))
            done = client.wait_job(client.submit_job(work, request_id="done", title="mine"))
            running = client.submit_job(push_job(), request_id="running")
            until(lambda: client.job(running.name).state == job_pb2.JOB_STATE_RUNNING)
            cancelled = client.submit_job(push_job(), request_id="cancelled")
            client.cancel_job(cancelled.name)
            client.wait_job(cancelled.name, check=False)
            for name, state in ((done.name, "DONE"), (running.name, "RUNNING"), (cancelled.name, "CANCELLED")):
                self.recorded(name, state)
        daemon.kill()
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual(self.lost(daemon)["job"], 1)
            self.assertIn(running.name, self.told(daemon, client))
            self.assertEqual([(j.name, j.state, j.earlier_run) for j in client.jobs()],
                             [(cancelled.name, job_pb2.JOB_STATE_CANCELLED, True), (running.name, job_pb2.JOB_STATE_LOST, True),
                              (done.name, job_pb2.JOB_STATE_DONE, True)])
            after = client.job(done.name)
            self.assertEqual((after.spec.title, after.kind, list(after.volume_names)), ("mine", job_pb2.JOB_KIND_REPROCESS, list(done.volume_names)))
            self.assertEqual([j.state for j in client.watch_job(running.name)], [job_pb2.JOB_STATE_LOST])
            self.assertEqual(client.cancel_job(running.name).state, job_pb2.JOB_STATE_LOST)
            with self.assertRaises(octavo.OctavoError):
                client.wait_job(running.name)
            # Request ids. The volume of the finished one is gone; what it did stands.
            self.assertEqual(client.submit_job(work, request_id="done", title="mine").name, done.name)
            self.assertEqual(client.submit_job(push_job(), request_id="cancelled").name, cancelled.name)
            error = self.refused("DATA_LOSS", "LOST", client.submit_job, push_job(), request_id="running")
            self.assertIn(running.name, str(error))
            self.refused("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH", client.submit_job, push_job(), request_id="done")
            # As operations.
            operations = {o.target: o for o in client.operations() if o.earlier_run}
            self.assertEqual(operations[running.name].state, operation_pb2.OPERATION_STATE_FAILED)
            self.assertEqual(operations[done.name].state, operation_pb2.OPERATION_STATE_SUCCEEDED)
            self.assertEqual(client.operation(operations[running.name].name).target, running.name)
            self.assertIn("LOST", self.command(daemon, "job", "list"))
            new = client.submit_job(push_job())
            self.assertEqual([j.name for j in client.jobs()][0], new.name)


    def series(self, client, destination="", **fields):
        """A series of four volumes that are pushed, committed if there is a `destination`, and the frames of each volume, the fields with the first."""
        projections = np.random.default_rng(5).integers(1000, 40000, (96, 2, 32)).astype("<u2")
        flats, darks = np.full((2, 2, 32), 40000, "<u2"), np.full((1, 2, 32), 100, "<u2")
        angles = np.arange(96) * np.pi / 24
        pushed = octavo.PushedProjections(rows=2, columns=32, frames=len(projections) + 3, dtype="u16")
        options = {"commit": octavo.commit_options(destination, "npy")} if destination else {}
        job = client.submit_job(octavo.tomography(pushed, center=15.5, series=(24, 24), **fields), **options)
        frames = list(octavo.projection_frames(projections, angles, flats, darks))
        return job, [frames[(i and 3 + 24 * i):3 + 24 * (i + 1)] for i in range(4)]

    def known(self, job):
        return job.name, list(job.volume_names), list(job.commits), job.commit_failures

    def test_a_job_that_ended_names_its_volumes_and_commits_again(self):
        daemon = self.start()
        with daemon.client() as client:
            jobs = []
            np.save(os.path.join(daemon.root, "late_3.npy"), np.zeros(3))  # so that one commit fails
            for destination, place in (("", ""), ("", "disk"), ("kept_{index}", ""), ("late_{index}", "")):
                job, frames = self.series(client, destination, place=place)
                client.push_projections(job, sum(frames, []))
                jobs.append(client.wait_job(job.name).name)
            until(lambda: len(client.job(jobs[2]).commits) == 4)
            until(lambda: (len(client.job(jobs[3]).commits), client.job(jobs[3]).commit_failures) == (3, 1))
            before = [self.known(client.job(name)) for name in jobs]
            self.assertEqual(sorted(before[2][2]), [os.path.join(daemon.root, f"kept_{i}.npy") for i in range(4)])
            self.recorded(jobs[3], "DONE")
            self.held_recorded(*before[1][1], before[3][1][3])
            until(lambda: len(self.commits_of(jobs[2]) | self.commits_of(jobs[3])) == 7)  # rows of the last moment may be missing after a kill
        for end in ("kill", "stop", "kill"):
            with self.subTest(end=end):
                if end == "kill":
                    daemon.kill()
                else:
                    self.assertEqual(daemon.stop(), 0)
                daemon = self.start()
                with daemon.client() as client:
                    self.assertEqual([self.known(client.job(name)) for name in jobs], before)
                    listed = {job.name: self.known(job) for job in client.jobs()}
                    self.assertEqual([listed[name] for name in jobs], before)
                    self.assertEqual(list(client.wait_commit(jobs[2], timeout=60).commits), before[2][2])
                    with self.assertRaisesRegex(octavo.OctavoError, "earlier run of the server, whose request is not kept, and none of its volumes is known to be written"):
                        client.wait_commit(jobs[0], timeout=60)
                    with self.assertRaisesRegex(octavo.OctavoError, "could not be committed|was not committed"):
                        client.wait_commit(jobs[3], timeout=60)
                    self.assertEqual([client.volume(name).state for name in before[1][1]], ["HELD"] * 4)
                    self.refused("DATA_LOSS", "LOST", client.volume, before[0][1][0])
                    self.refused("NOT_FOUND", "VOLUME_GONE", client.volume, before[2][1][0])

    def test_a_job_that_was_killed_names_what_it_had_completed(self):
        daemon = self.start()
        with daemon.client() as client:
            stored, frames = self.series(client, place="disk")
            committed, _ = self.series(client, "cut_{index}")
            plain, _ = self.series(client)
            for job in (stored, committed, plain):
                client.push_projections(job, frames[0] + frames[1] + frames[2][:10], end=False)
                until(lambda: (found := client.job(job.name).tomography) is not None and found.series_volumes == 2)
            until(lambda: len(client.job(committed.name).commits) == 2)
            held = {job.name: list(client.job(job.name).volume_names)[:2] for job in (stored, committed, plain)}
            paths = list(client.job(committed.name).commits)
            self.held_recorded(*held[stored.name], *held[plain.name])
            until(lambda: self.commits_of(committed.name) == set(paths))
        daemon.kill()
        daemon = self.start()
        with daemon.client() as client:
            for job in (stored, committed, plain):
                after = client.job(job.name)
                self.assertEqual((after.state, list(after.volume_names)), ("LOST", held[job.name]))
                self.assertEqual(list(after.commits), paths if job is committed else [])
                for path in after.commits:
                    np.load(path)
            self.assertEqual([(v.state, v.index, v.parent) for v in map(client.volume, held[stored.name])], [("HELD", i, stored.name) for i in range(2)])
            for name in held[committed.name]:
                self.refused("NOT_FOUND", "VOLUME_GONE", client.volume, name)
            for name in held[plain.name]:
                self.refused("DATA_LOSS", "LOST", client.volume, name)
            self.assertIn("2 held volumes of it are LOST", list(client.job(plain.name).message.warnings))
            known = [self.known(client.job(job.name)) for job in (stored, committed, plain)]
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual([self.known(client.job(job.name)) for job in (stored, committed, plain)], known)


class Commits(History):
    def test_killed_at_each_point(self):
        for point, there in (("journal_begin", False), ("tmp_created", False), ("chunk_written", False), ("manifest_written", True),
                             ("after_rename", True), ("journal_end", True)):
            with self.subTest(point=point):
                daemon = self.start(environment={"OCTAVO_FAILPOINT": point + ":kill"})
                with daemon.client() as client:
                    scan, volume = self.volume(client)
                    with self.assertRaises(octavo.OctavoError):
                        client.commit(volume, point, "npy", request_id=point)
                self.assertEqual(daemon.process.wait(30), -signal.SIGKILL)
                (name,) = [name for name, state in self.rows().items() if name.startswith("operations/") and state == "RUNNING"] or [None]
                if name is None:  # the row was slower than the commit: nothing is known, as the page says
                    self.assertEqual(self.start().stop(), 0)  # what the commit left is put right before the next point
                    continue
                daemon = self.start()
                with daemon.client() as client:
                    self.assertEqual(self.lost(daemon)["commit"], not there)
                    self.assertEqual(name in self.told(daemon, client), not there)
                    operation = client.operation(name)
                    self.assertEqual((operation.target, operation.request_id, operation.earlier_run), (volume, point, True))
                    if there:
                        path = client.commit(volume, point, "npy", request_id=point).path
                        self.assertEqual(path, os.path.join(daemon.root, point + ".npy"))
                        np.load(path)
                    else:
                        self.refused("DATA_LOSS", "LOST", client.commit, volume, point, "npy", request_id=point)
                        self.assertEqual(glob.glob(os.path.join(daemon.root, point + "*")), [])
                    self.refused("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH", client.commit, volume, "elsewhere", "npy", request_id=point)
                self.assertEqual(daemon.stop(), 0)

    def test_ended_ones(self):
        daemon = self.start()
        with daemon.client() as client:
            scan, volume = self.volume(client, retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_COMMIT, auto_commit=octavo.commit_options("auto", "npy")))
            until(lambda: client.volume(volume).message.commit.path)
            _, second = self.volume(client)
            path = client.commit(second, "mine", "npy", request_id="good").path
            self.refused("ALREADY_EXISTS", "DESTINATION_EXISTS", client.commit, self.volume(client)[1], "mine", "npy", request_id="bad")
        daemon.kill()
        daemon = self.start()
        with daemon.client() as client:
            (operation,) = [o for o in client.operations() if o.earlier_run]
            self.assertEqual((operation.request_id, operation.state), ("good", operation_pb2.OPERATION_STATE_SUCCEEDED))
            # There is no object of the volume any more, and the error says how the retry goes; an object that was kept has the retry, too.
            with self.assertRaises(octavo.OctavoError) as no:
                client.volume(second)
            self.assertEqual(no.exception.reason, "VOLUME_GONE")
            self.assertIn(f"{second} has left memory: COMMITTED ({path}), in an earlier run of the server", no.exception.message)
            self.assertIn("client.commit(name, destination, request_id=…)", no.exception.message)
            self.assertEqual(client.commit(second, "mine", "npy", request_id="good").path, path)
            self.assertEqual(client.scan(scan.name).volumes_committed, 1)


class Volumes(History):
    """Held volumes, which the history follows from when they are held."""

    def capture(self, client, volumes, **more):
        scan = client.wait(client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(16, 8, volumes=volumes), samples=64, title="eye",
                                              labels={"patient": "label-4711"}, retention=dict(hold_slots=volumes), **more))
        return scan, sorted(client.volumes(scan.name), key=lambda volume: volume.index)

    def lost_and_named(self, client, name, *words):
        """Each verb says that it is lost."""
        calls = (client.volume, client.read, lambda name: client.commit(name, "late", "npy"), client.discard, client.spill, client.restore, client.hold,
                 client.release, client.wait_volume, client.render, lambda name: client.lease(name, seconds=10), lambda name: client.derive(name, {"flip": {}}))
        for call in calls:
            error = self.refused("DATA_LOSS", "LOST", call, name)
            for word in (f"{name} is LOST (", *words):
                self.assertIn(word, str(error))
            self.assertEqual(error.numbers["volume"], name)

    def audited(self, names):
        """The lines of the audit log that tell of the loss of these volumes."""
        with open(os.path.join(self.directory, "state", "audit", "audit.jsonl")) as log:
            lines = [json.loads(line) for line in log if line.endswith("\n")]
        return [line for line in lines if line.get("what") == "found lost" and line.get("object") in names]

    def test_killed_in_each_state(self):
        daemon = self.start()
        with daemon.client() as client:
            scan, (held, spilled, committed, discarded, in_host, source) = self.capture(client, 6)
            derived = client.derive(source, {"mip": {"axis": 2}})
            self.held_recorded(*(v.name for v in (held, spilled, committed, discarded, in_host, source, derived)))
            client.spill(spilled.name)
            client.spill(in_host.name, "host")
            path = client.commit(committed.name, "kept", "npy").path
            client.discard(discarded.name)
            until(lambda: [self.volume_rows()[v.name] for v in (committed, discarded)] == ["COMMITTED", "DISCARDED"])
        daemon.kill()
        daemon = self.start()
        lost = {v.name for v in (held, in_host, source, derived)}
        with daemon.client() as client:
            self.assertEqual(self.told(daemon, client, volumes=True), lost)
            (line,) = [line for line in client.info().recovered if line.startswith(held.name + " ")]
            self.assertIn(f"(volume 'eye', 8.0 KiB, of {scan.name}, was HELD): LOST: the server died", line)
            self.assertIn("LOST: " + held.name, self.command(daemon, "info"))
            for name in (held.name, in_host.name, derived.name):
                self.lost_and_named(client, name, "'eye'", f"of {scan.name}", "held since 20")
            again = client.volume(spilled.name)
            self.assertEqual((again.state, again.recovered), ("HELD", True))
            # In the words of this daemon's own ones.
            for name, words in ((committed.name, f"has left memory: COMMITTED ({path}), in an earlier run of the server"),
                                (discarded.name, "has left memory: DISCARDED, discarded by a client, in an earlier run of the server")):
                for call in (client.volume, client.read, client.discard):
                    self.assertIn(words, str(self.refused("NOT_FOUND", "VOLUME_GONE", call, name)))
            self.refused("NOT_FOUND", "NO_VOLUME", client.volume, held.name[:-1] + "x")
            self.assertIn("4 held volumes of it are LOST", list(client.scan(scan.name).warnings))
            self.assertEqual({v.name for v in client.volumes(scan.name)}, {spilled.name})
            until(lambda: len(self.audited(lost)) >= len(lost))  # a thread of its own writes them
            found = self.audited(lost)
            self.assertEqual({line["object"] for line in found}, lost)
            self.assertEqual(len(found), len(lost))
            self.assertTrue(all(line["owner"] == held.owner and line["bytes"] > 0 for line in found))
        # What was held again is followed again; what was told is not told again.
        self.assertEqual(daemon.stop(), 0)
        for _ in range(2):
            daemon = self.start()
            with daemon.client() as client:
                self.assertEqual(self.told(daemon, client, volumes=True), set())
                self.assertEqual(len(self.audited(lost)), len(lost))
                self.refused("DATA_LOSS", "LOST", client.volume, held.name)
                self.assertEqual(client.volume(spilled.name).state, "HELD")
            self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        with daemon.client() as client:
            client.discard(spilled.name)
            until(lambda: self.volume_rows()[spilled.name] == "DISCARDED")
        daemon.kill()
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual(self.told(daemon, client, volumes=True), set())
            self.refused("NOT_FOUND", "VOLUME_GONE", client.volume, spilled.name)
        with contextlib.closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as database:
            self.assertNotIn("label-4711", str(database.execute("SELECT * FROM work WHERE kind = 4").fetchall()))

    def test_killed_while_it_is_committed(self):
        for point, there in (("journal_begin", False), ("tmp_created", False), ("chunk_written", False), ("manifest_written", True),
                             ("after_rename", True), ("journal_end", True)):
            with self.subTest(point=point):
                daemon = self.start(environment={"OCTAVO_FAILPOINT": point + ":kill"})
                with daemon.client() as client:
                    scan, (volume, other) = self.capture(client, 2)
                    self.held_recorded(volume.name, other.name)
                    with self.assertRaises(octavo.OctavoError):
                        client.commit(volume.name, "v-" + point, "npy")
                self.assertEqual(daemon.process.wait(30), -signal.SIGKILL)
                if there and "RUNNING" not in self.rows().values():  # the row of the commit was slower than its files
                    self.assertEqual(self.start().stop(), 0)  # what the commit left is put right before the next point
                    continue
                daemon = self.start()
                with daemon.client() as client:
                    self.assertEqual(self.told(daemon, client, volumes=True), {other.name} if there else {volume.name, other.name})
                    if there:
                        path = os.path.join(daemon.root, f"v-{point}.npy")
                        self.assertIn(f"COMMITTED ({path})", str(self.refused("NOT_FOUND", "VOLUME_GONE", client.volume, volume.name)))
                        np.load(path)
                    else:
                        self.refused("DATA_LOSS", "LOST", client.volume, volume.name)
                self.assertEqual(daemon.stop(), 0)

    def test_rings_and_streams_are_no_flood(self):
        daemon = self.start()
        with daemon.client() as client:
            ring = client.submit_scan(octavo.simulated(1), octavo.raster(8, 4, volumes=0), samples=64, rate_hz=50e3,
                                      retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, keep_last=64, hold_slots=1))
            marked = []
            until(lambda: marked or self.mark_one(client, ring.name, marked))
            until(lambda: client.scan(ring.name).volumes_done >= 3000)
            self.held_recorded(*marked)
            stream = client.wait(client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(8, 4, volumes=2000), samples=64,
                                                    retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD)))
            self.assertEqual(stream.volumes_discarded, 2000)
            # Numbers count the rows that were ever begun: a volume has at most two, of its begin and of its end.
            with contextlib.closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=20)) as database:
                ((begun,),) = database.execute("SELECT max(number) FROM work WHERE kind = 4")
            self.assertLess(begun, 500)
            self.assertEqual(self.metric(daemon, "octavo_history_dropped_total"), 0)
        daemon.kill()
        daemon = self.start()
        with daemon.client() as client:
            told = self.told(daemon, client, volumes=True)
            self.assertIn(marked[0], told)
            self.assertLess(len(told), 64)
            self.refused("DATA_LOSS", "LOST", client.volume, marked[0])

    def mark_one(self, client, scan, marked):
        for name in client.scan(scan).volume_names[-2:]:
            with contextlib.suppress(octavo.OctavoError):  # the ring was faster
                marked.append(client.hold(name).name)
                return True
        return False

    def test_a_stop_that_loses_them_tells_once(self):
        for history in (True, False):
            with self.subTest(history=history):
                flags = ("--drain.on_held", "lose", *(() if history else ("--history.dir", "none")))
                daemon = self.start(*flags)
                with daemon.client() as client:
                    scan, volumes = self.capture(client, 3)
                    names = {v.name for v in volumes}
                self.assertEqual(daemon.stop(), 0)
                daemon = self.start(*flags)
                with daemon.client() as client:
                    self.assertEqual(self.told(daemon, client, volumes=True), set())
                    lines = [line for line in client.info().recovered if ": lost at the last end of the daemon: drain.on_held is lose" in line]
                    self.assertEqual({line.split(" ")[0] for line in lines}, names)
                    self.assertEqual(len(self.records(daemon, "lost at the last end of the daemon")), 3)
                    until(lambda: len(self.audited(names)) >= 3)
                    self.assertEqual([(line["owner"], line["bytes"]) for line in self.audited(names)], [(volumes[0].owner, volumes[0].bytes)] * 3)
                    for name in names:
                        if history:
                            self.lost_and_named(client, name, "the server ended without having kept it: drain.on_held is lose")
                        else:
                            self.refused("NOT_FOUND", "NO_VOLUME", client.volume, name)
                self.assertEqual(daemon.stop(), 0)
                daemon = self.start(*flags)
                with daemon.client() as client:
                    self.assertEqual([line for line in client.info().recovered if "lost" in line.lower()], [])
                self.assertEqual(daemon.stop(), 0)

    def test_a_stop_that_keeps_them_loses_none(self):
        daemon = self.start()
        with daemon.client() as client:
            scan, volumes = self.capture(client, 3)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(set(self.volume_rows().values()), {"HELD"})
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual(self.told(daemon, client, volumes=True), set())
            self.assertEqual({v.state for v in client.volumes(scan.name)}, {"HELD"})
            path = client.commit(volumes[0].name, "after", "npy").path
            until(lambda: self.volume_rows()[volumes[0].name] == "COMMITTED")
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        with daemon.client() as client:
            self.assertIn(path, str(self.refused("NOT_FOUND", "VOLUME_GONE", client.volume, volumes[0].name)))

    @unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
    def test_rows_that_a_disk_did_not_take(self):
        # As after a loss of power: the next daemon does not know of what was not written.
        flag = os.path.join(self.directory, "hang")
        daemon = self.start(environment={"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": flag})
        with daemon.client() as client:
            _, (known,) = self.capture(client, 1)
            self.held_recorded(known.name)
            with open(flag, "w"):
                pass
            begun = time.monotonic()
            _, (unknown,) = self.capture(client, 1)
            self.assertLess(time.monotonic() - begun, 30)
            client.discard(known.name)
            until(lambda: self.metric(daemon, "octavo_history_waiting_rows") > 0)
        daemon.kill()
        os.unlink(flag)
        daemon = self.start()
        with daemon.client() as client:
            # Whether a row was under way, and came to the file without being synced, is the system's.
            told = self.told(daemon, client, volumes=True)
            for name in (known.name, unknown.name):
                self.refused(*(("DATA_LOSS", "LOST") if name in told else ("NOT_FOUND", "VOLUME_GONE") if name in self.volume_rows() else ("NOT_FOUND", "NO_VOLUME")),
                             client.volume, name)

    def test_planted_rows(self):
        daemon = self.start()
        with daemon.client() as client:
            self.volume(client)
        self.assertEqual(daemon.stop(), 0)
        with contextlib.closing(sqlite3.connect(self.path)) as database, database:
            for number, (name, details) in enumerate((("volumes/fine", '{"bytes": 5, "parent": "scans/none"}'), ("volumes/odd", '{"bytes": "many", "parent": []}'),
                                                      ("volumes/bare", "\xff"), ("volumes/../../etc", "{}"), ("scans/none", "{}"), ("volumes/" + "a" * 300, "{}"),
                                                      ("volumes/a\nb", "{}"), ("", "{}")), 1000):
                database.execute("INSERT INTO work VALUES (4, ?, ?, 'HELD', 0, '', '', ?, 'o', 'p', '', '', 1, 1, 0, ?)",
                                 (name, number, "'; DROP TABLE work", details))
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual(self.told(daemon, client, volumes=True), {"volumes/fine", "volumes/odd", "volumes/bare"})
            self.assertIn("'; DROP TABLE work', 5 B, of scans/none", str(self.refused("DATA_LOSS", "LOST", client.volume, "volumes/fine")))
            self.refused("NOT_FOUND", "NO_SCAN", client.scan, "scans/none")

    def test_damaged_rows_cost_themselves(self):
        daemon = self.start()
        with daemon.client() as client:
            _, volumes = self.capture(client, 2)
            self.held_recorded(*(v.name for v in volumes))
        daemon.kill()
        with contextlib.closing(sqlite3.connect(self.path)) as database, database:
            database.execute("UPDATE work SET number = -1 WHERE name = ?", (volumes[0].name,))
            database.execute("UPDATE work SET title = CAST(x'ff' AS TEXT), details = 7, created_ns = 'x' WHERE name = ?", (volumes[1].name,))
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual(self.told(daemon, client, volumes=True), {volumes[1].name})
            self.refused("NOT_FOUND", "NO_VOLUME", client.volume, volumes[0].name)
            self.assertIn("is LOST ('?', 0 B", str(self.refused("DATA_LOSS", "LOST", client.volume, volumes[1].name)))


class Storage(History):
    def test_off(self):
        daemon = self.start("--history.dir", "none")
        with daemon.client() as client:
            self.volume(client)
            self.assertEqual(self.metric(daemon, "octavo_history_up"), 0)
        daemon.kill()
        self.assertFalse(os.path.exists(self.folder))
        daemon = self.start("--history.dir", "none")
        with daemon.client() as client:
            self.assertEqual(client.scans(), [])

    def test_a_damaged_database_and_a_newer_one(self):
        def damage():
            with open(self.path, "r+b") as file:
                file.write(b"\xa5" * 4096)

        def renew():
            with contextlib.closing(sqlite3.connect(self.path)) as database:
                database.execute("PRAGMA user_version=9")

        for spoil, aside, words in ((damage, "damaged", "history.sqlite.damaged-"), (renew, "newer", "has schema 9, of a newer version")):
            with self.subTest(aside):
                daemon = self.start()
                with daemon.client() as client:
                    self.volume(client)
                self.assertEqual(daemon.stop(), 0)
                spoil()
                daemon = self.start()
                with daemon.client() as client:
                    self.assertEqual(client.scans(), [])
                    (told,) = [line for line in client.info().recovered if "put aside" in line]
                    self.assertIn(words, told)
                    self.assertEqual(self.metric(daemon, "octavo_history_up"), 1)
                    self.recorded(self.volume(client)[0].name, "DONE")
                self.assertEqual(daemon.stop(), 0)
                self.assertEqual(len(glob.glob(self.path + f".{aside}-*")), 1)
                shutil.rmtree(self.folder)

    def test_a_folder_that_cannot_be_used(self):
        # A file stands where the folder would be: that hinders root, too.
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        with open(self.folder, "w"):
            pass
        daemon = self.start()
        with daemon.client() as client:
            self.volume(client, request_id="r")
            self.assertTrue([line for line in client.info().recovered if "cannot be used in this run" in line])
            self.assertEqual(len(self.records(daemon, "no history in this run")), 1)
            self.assertEqual(self.metric(daemon, "octavo_history_up"), 0)
        self.assertEqual(daemon.stop(), 0)

    def test_a_full_disk(self):
        # No file of the daemon grows beyond a size at which its database cannot take further rows.
        limit = 200_000
        daemon = self.start("--spill.disk_bytes", "0", before_exec=lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                                                                            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))))
        with daemon.client() as client:
            auto = dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD)
            for i in range(2000):
                self.volume_discarded(client, auto, i)
                if self.metric(daemon, "octavo_history_errors_total") > 0:
                    break
            self.assertEqual(self.metric(daemon, "octavo_history_up"), 0)
            (told,) = [line for line in client.info().recovered if line.startswith("history.dir: ")]
            self.assertIn("cannot be written now", told)
            self.assertIn("warning: history.dir: ", self.command(daemon, "info"))
            # The control path goes on.
            begun = time.monotonic()
            scan = self.volume_discarded(client, auto, 0)
            self.assertLess(time.monotonic() - begun, 20)
            self.assertTrue(self.records(daemon, "the history cannot be written; its rows wait"))
            self.assertGreater(self.metric(daemon, "octavo_history_waiting_rows"), 0)
            # The disk has room again.
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            until(lambda: self.metric(daemon, "octavo_history_up") == 1)
            self.assertEqual([line for line in client.info().recovered if line.startswith("history.dir: ")], [])
            self.recorded(scan, "DONE")
            self.assertEqual(self.metric(daemon, "octavo_history_dropped_total"), 0)
        self.assertEqual(daemon.stop(), 0)

    def volume_discarded(self, client, retention, seed):
        scan = client.submit_scan(octavo.simulated(seed, fast=True), octavo.raster(16, 4, volumes=1), samples=64, retention=retention, title="x" * 200)
        return client.wait(scan).name

    @unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
    def test_a_disk_that_hangs(self):
        flag = os.path.join(self.directory, "hang")
        daemon = self.start(environment={"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": flag})
        with daemon.client() as client:
            with open(flag, "w"):
                pass
            begun = time.monotonic()
            for i in range(5):
                self.volume_discarded(client, dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD), i)
            self.assertLess(time.monotonic() - begun, 30)
            self.assertGreater(self.metric(daemon, "octavo_history_waiting_rows"), 0)
        # Nor does it hold up the end.
        begun = time.monotonic()
        self.assertEqual(daemon.stop(timeout=60), 0)
        self.assertLess(time.monotonic() - begun, 30)
        self.assertTrue(self.records(daemon, "the history lacks the last changes; the next daemon takes what had not ended for LOST"))

    def test_two_daemons_on_one_folder(self):
        shared = os.path.join(self.directory, "shared")
        first = self.start("--history.dir", shared)
        with self.assertRaisesRegex(RuntimeError, "history.dir: .* is used by another process"):
            Daemon("--history.dir", shared)
        with first.client() as client:
            self.volume(client)

    def test_old_ones_are_pruned(self):
        names = []
        for _ in range(2):
            daemon = self.start("--history.kept", "3")
            with daemon.client() as client:
                names += [self.volume_discarded(client, dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD), i) for i in range(4)]
            self.assertEqual(daemon.stop(), 0)
        daemon = self.start("--history.kept", "3")
        with daemon.client() as client:
            self.assertEqual([s.name for s in client.scans()], names[:-4:-1])
        self.assertEqual(daemon.stop(), 0)
        with sqlite3.connect(self.path) as database:
            database.execute("UPDATE work SET ended_ns = ended_ns - 2 * 86400 * 1000000000 WHERE name != ?", (names[-1],))
        database.close()
        daemon = self.start("--history.days", "1")
        with daemon.client() as client:
            self.assertEqual([s.name for s in client.scans()], names[-1:])


if __name__ == "__main__":
    unittest.main()
