#!/usr/bin/env python3
"""Long-running operations: they outlive their callers, a retry finds them, and they are waited for, watched and cancelled. A library that makes
fsync wait while a file exists holds a commit at its beginning, for as long as a test needs it there."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import grpc
from google.protobuf import duration_pb2

from harness import BUILD, Daemon, DaemonTest, until

import octavo
from octavo import errors
from octavo.v1 import array_operation_pb2, job_pb2, operation_pb2, volume_pb2

HANG_FSYNC = os.path.join(BUILD, "lib", "libhang_fsync.so")
RUNNING, CANCELLING, SUCCEEDED, FAILED, CANCELLED = range(1, 6)
COMMIT, SPILL, RESTORE, DERIVE, JOB = range(1, 6)
HELD, COMMITTED = 2, 4
PREPARING = operation_pb2.OPERATION_STAGE_PREPARING


@unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
class Held(DaemonTest):
    """Commits that wait."""

    @classmethod
    def setUpClass(cls):
        cls.flag = os.path.join(tempfile.mkdtemp(prefix="octavo-hang-"), "flag")
        cls.daemon = Daemon("--spill.host_bytes", str(64 << 20), "--spill.disk_bytes", "0", environment={"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": cls.flag})
        cls.client = cls.daemon.client()

    @classmethod
    def tearDownClass(cls):
        cls.let_go()
        super().tearDownClass()
        os.rmdir(os.path.dirname(cls.flag))

    def tearDown(self):
        self.let_go()
        for operation in self.client.operations():
            self.client.wait_operation(operation.name, check=False)
        super().tearDown()

    @classmethod
    def let_go(cls):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(cls.flag)

    def stick(self):
        """From now on each commit waits before its first byte."""
        with open(self.flag, "w"):
            pass

    def volume(self, **fields):
        scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(32, 8, volumes=1), samples=256, **fields)
        self.client.wait(scan.name)
        return self.client.volumes(scan.name)[0].name

    def request(self, name, destination, wait=None, **fields):
        return volume_pb2.CommitVolumeRequest(name=name, options=octavo.commit_options(destination, "npy"),
                                              wait=None if wait is None else duration_pb2.Duration(seconds=int(wait)), **fields)

    def commit(self, *arguments, timeout=None, **fields):
        """A plain call of CommitVolume."""
        with errors.raising():
            return self.client._volumes.CommitVolume(self.request(*arguments, **fields), timeout=timeout)

    def stuck(self, destination, **fields):
        """A commit that has begun and waits: the volume and the operation."""
        name = self.volume()
        self.stick()
        operation = self.client.start_commit(name, destination, "npy", **fields)
        until(lambda: self.client.operation(operation.name).progress.stage == PREPARING)
        return name, operation.name

    def files(self):
        return sorted(name for _, folders, names in os.walk(self.daemon.root) for name in folders + names)

    def refused(self, call, code, why):
        with self.assertRaises(octavo.OctavoError) as caught:
            call()
        self.assertEqual((caught.exception.code.name, caught.exception.reason), (code, why), caught.exception.message)
        return caught.exception

    # -- one call
    def test_one_call_suffices(self):
        name = self.volume()
        answer = self.commit(name, "one")
        operation = answer.operation
        self.assertEqual((operation.done, operation.state, operation.kind, operation.target), (True, SUCCEEDED, COMMIT, name))
        self.assertEqual((answer.volume.name, answer.volume.state), (name, COMMITTED))
        self.assertEqual(operation.commit, answer.volume.commit)
        self.assertEqual(operation.commit.path, os.path.join(self.daemon.root, "one.npy"))
        self.assertEqual((operation.progress.fraction, operation.progress.done_bytes), (1, operation.commit.raw_bytes))
        self.assertFalse(operation.HasField("error"))
        self.assertGreaterEqual(operation.end_time.ToNanoseconds(), operation.create_time.ToNanoseconds())
        self.assertEqual(self.client.operation(operation.name).message, operation)

    def test_every_verb_answers_with_its_operation(self):
        name = self.volume()
        spilled = self.client.start_spill(name, "host")
        self.assertEqual(self.client.wait_operation(spilled.name).kind, SPILL)
        self.assertEqual(self.client.volume(name).tier, 2)
        restored = self.client.wait_operation(self.client.start_restore(name).name)
        self.assertEqual((restored.kind, restored.target, restored.progress.done_bytes), (RESTORE, name, self.client.volume(name).bytes))
        self.assertEqual(self.client.volume(name).tier, 1)
        derived = self.client.start_derive(name, {"mip": {"axis": 2}})
        self.assertEqual((derived.kind, derived.target, len(derived.volumes)), (DERIVE, name, 1))
        self.assertEqual(self.client.volume(derived.volumes[0]).derived_from, name)  # it is listed already
        self.assertEqual(self.client.wait_operation(derived.name).state, SUCCEEDED)
        self.assertEqual(self.client.volume(derived.volumes[0]).state, HELD)
        answer = self.client._volumes.DeriveVolume(self.client._derive(name, [{"mip": {"axis": 2}}], ""))
        self.assertEqual((answer.operation.done, answer.volume.name), (True, answer.operation.volumes[0]))

    def test_what_is_wrong_at_once_is_an_error_of_the_call(self):
        name, before = self.volume(), len(self.client.operations())
        self.client.commit(self.volume(), "taken", "npy")
        done = len(self.client.operations())
        self.assertEqual(done, before + 1)
        self.refused(lambda: self.commit(name, "taken"), "ALREADY_EXISTS", "DESTINATION_EXISTS")
        self.refused(lambda: self.commit(name, "../out"), "INVALID_ARGUMENT", "BAD_FIELD")
        self.refused(lambda: self.commit("volumes/none", "a"), "NOT_FOUND", "NO_VOLUME")
        self.refused(lambda: self.commit(name, "a", wait=-1), "INVALID_ARGUMENT", "BAD_FIELD")
        self.refused(lambda: self.client.restore("volumes/none"), "NOT_FOUND", "NO_VOLUME")
        self.refused(lambda: self.client.spill(name, "disk"), "FAILED_PRECONDITION", "SPILL_OFF")
        error = self.refused(lambda: self.client.start_derive(name, array_operation_pb2.ArrayOperation(mip=dict(axis=9))), "INVALID_ARGUMENT", "BAD_FIELD")
        self.assertEqual(error.field, "operations[0].mip.axis")
        with self.client.lease(name, seconds=100):
            self.refused(lambda: self.commit(name, "a"), "ABORTED", "LEASED")
        self.assertEqual(len(self.client.operations()), done)
        self.assertEqual((self.client.volume(name).state, self.client.volume(name).last_error), (HELD, ""))

    def test_a_check_begins_nothing(self):
        before = len(self.client.operations())
        check = lambda **fields: self.client._volumes.CommitVolume(volume_pb2.CommitVolumeRequest(
            validate_only=True, options=octavo.commit_options("checked", "npy"), **fields))
        self.assertEqual(check(), volume_pb2.CommitVolumeResponse())
        self.client.commit(self.volume(), "checked", "npy")
        self.refused(lambda: self.raising(check), "ALREADY_EXISTS", "DESTINATION_EXISTS")
        self.refused(lambda: self.raising(lambda: check(name="volumes/none")), "INVALID_ARGUMENT", "BAD_FIELD")
        for template in ("{scan}", "{scan}/{index}", "{title}_{date}", "{index:03}.npy"):  # a commit takes them, too
            self.client._volumes.CommitVolume(volume_pb2.CommitVolumeRequest(validate_only=True, options=octavo.commit_options(template, "npy")))
        self.assertEqual(len(self.client.operations()), before + 1)

    @staticmethod
    def raising(call):
        with errors.raising():
            return call()

    # -- waiting
    def before_its_deadline(self, call):
        """The server answers half a second before, which a busy machine may take away; not every time."""
        for attempt in range(5):
            try:
                return call()
            except octavo.OctavoError as error:
                if error.code.name != "DEADLINE_EXCEEDED" or attempt == 4:
                    raise
        return None

    def test_how_long_a_call_waits(self):
        name = self.volume()
        self.stick()
        begun = self.commit(name, "waited", wait=0).operation
        self.assertFalse(begun.done)
        self.assertEqual(self.client.volume(name).state, 3)
        # The same request again, by its volume: no second commit begins.
        self.refused(lambda: self.commit(name, "waited", wait=0), "FAILED_PRECONDITION", "VOLUME_STATE")
        for wait in (0, 0.01, 0.2):
            before = time.monotonic()
            now = self.client.wait_operation(begun.name, wait)
            self.assertFalse(now.done)
            self.assertGreaterEqual(time.monotonic() - before, wait)
        # The deadline of a call: the answer comes before it.
        def wait():
            with errors.raising():
                return self.client._operations.WaitOperation(operation_pb2.WaitOperationRequest(name=begun.name), timeout=6).operation
        now = self.before_its_deadline(wait)
        self.assertEqual((now.done, now.state), (False, RUNNING))
        ends = []
        waiters = [threading.Thread(target=lambda: ends.append(self.client.wait_operation(begun.name))) for _ in range(4)]
        for waiter in waiters:
            waiter.start()
        self.let_go()
        for waiter in waiters:
            waiter.join()
        self.assertEqual({(end.name, int(end.state)) for end in ends}, {(begun.name, SUCCEEDED)})
        self.assertEqual(self.client.wait_operation(begun.name, 0).state, SUCCEEDED)  # at once

    def test_a_verb_answers_before_its_deadline(self):
        name = self.volume()
        self.stick()
        answer = self.before_its_deadline(lambda: self.commit(name, "late", timeout=6, request_id="late"))
        self.assertFalse(answer.operation.done)
        self.let_go()
        self.assertEqual(self.client.wait_operation(answer.operation.name).state, SUCCEEDED)

    # -- callers that go away, and retries
    def test_a_commit_outlives_its_killed_caller(self):
        name = self.volume()
        self.stick()
        child = subprocess.Popen([sys.executable, "-c", "import sys, octavo\n"
                                  "octavo.Client(sys.argv[1]).commit(sys.argv[2], 'orphaned', 'npy', request_id='orphan')", self.daemon.address, name],
                                 env={**os.environ, "PYTHONPATH": os.path.join(BUILD, "python")})
        until(lambda: any(one.request_id == "orphan" for one in self.client.operations()))
        child.kill()
        child.wait()
        self.let_go()
        result = self.client.commit(name, "orphaned", "npy", request_id="orphan")  # a retry
        self.assertTrue(os.path.exists(result.path))
        self.assertEqual(self.client.volume(name).state, COMMITTED)
        self.assertEqual([one.state for one in self.client.operations() if one.request_id == "orphan"], [SUCCEEDED])

    def test_a_cancelled_call_is_no_cancelled_operation(self):
        name = self.volume()
        self.stick()
        call = self.client._volumes.CommitVolume.future(self.request(name, "call", request_id="call"))
        until(lambda: any(one.request_id == "call" for one in self.client.operations()))
        call.cancel()
        with self.assertRaises(grpc.FutureCancelledError):
            call.result()
        self.let_go()
        self.assertEqual(self.commit(name, "call", request_id="call").operation.state, SUCCEEDED)

    def test_a_retry_finds_the_operation(self):
        name = self.volume()
        self.stick()
        first = self.client.start_commit(name, "again", "npy", request_id="again")
        again = self.client.start_commit(name, "again", "npy", request_id="again")
        self.assertEqual((again.name, again.done), (first.name, False))
        error = self.refused(lambda: self.client.start_commit(name, "other", "npy", request_id="again"), "ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH")
        self.assertEqual(error.numbers["operation"], first.name)
        self.let_go()
        done = self.commit(name, "again", request_id="again").operation  # the time to wait is no part of the body
        self.assertEqual((done.name, done.state), (first.name, SUCCEEDED))
        self.refused(lambda: self.commit(name, "again", request_id="new"), "FAILED_PRECONDITION", "VOLUME_STATE")

    # -- cancelling
    def test_cancelling_leaves_the_volume_held(self):
        before = self.files()
        name, operation = self.stuck("cancelled", request_id="cancel")
        self.assertEqual(self.client.cancel_operation(operation).state, CANCELLING)
        self.assertEqual(self.client.cancel_operation(operation).state, CANCELLING)
        self.let_go()
        ended = self.client.wait_operation(operation, check=False)
        self.assertEqual((ended.state, ended.done), (CANCELLED, True))
        self.assertEqual((ended.error.code, ended.error.reason), (grpc.StatusCode.CANCELLED, "COMMIT_CANCELLED"))
        self.assertEqual(self.client.volume(name).state, HELD)
        self.assertEqual(self.files(), before)
        self.refused(lambda: self.client.wait_operation(operation), "CANCELLED", "COMMIT_CANCELLED")
        self.assertEqual(self.client.cancel_operation(operation).state, CANCELLED)
        # The retry of a cancelled commit is that commit; another request commits.
        self.refused(lambda: self.client.commit(name, "cancelled", "npy", request_id="cancel"), "CANCELLED", "COMMIT_CANCELLED")
        self.assertTrue(self.client.commit(name, "cancelled", "npy").path)

    def test_leaving_the_loop_cancels(self):
        name = self.volume()
        self.stick()
        steps = self.client.commit_iter(name, "left", "npy")
        operation = next(steps).name
        steps.close()
        self.let_go()
        self.assertEqual(self.client.wait_operation(operation, check=False).state, CANCELLED)
        self.assertEqual(self.client.volume(name).state, HELD)

    # -- watching
    def test_a_watch_ends_with_the_operation(self):
        name, operation = self.stuck("watched")
        steps = self.client.watch_operation(operation)
        self.assertEqual(next(steps).state, RUNNING)
        self.let_go()
        rest = list(steps)
        self.assertTrue(rest[-1].done)
        self.assertEqual([one.done for one in rest[:-1]], [False] * (len(rest) - 1))
        fractions = [one.progress.fraction for one in rest]
        self.assertEqual(fractions, sorted(fractions))
        self.assertEqual([one.done for one in self.client.watch_operation(operation)], [True])  # of one that has ended

    def test_a_slow_reader_gets_the_end(self):
        name, operation = self.stuck("slow")
        steps = self.client.watch_operation(operation)
        next(steps)
        self.let_go()
        self.client.wait_operation(operation)
        *_, last = steps  # read only now
        self.assertEqual((last.name, last.state), (operation, SUCCEEDED))
        self.assertIsNotNone(last.commit)

    # -- errors
    def test_the_error_of_an_operation_is_that_of_a_call(self):
        name, operation = self.stuck("raced")
        path = os.path.join(self.daemon.root, "raced.npy")
        with open(path, "w"):
            pass  # somebody else was faster
        self.addCleanup(os.unlink, path)
        self.let_go()
        ended = self.client.wait_operation(operation, check=False)
        self.assertEqual((ended.state, ended.commit), (FAILED, None))
        later = ended.error
        at_once = self.refused(lambda: self.commit(name, "raced"), "ALREADY_EXISTS", "DESTINATION_EXISTS")
        self.assertEqual((later.code, later.reason, later.field, later.numbers.keys()), (at_once.code, at_once.reason, at_once.field, at_once.numbers.keys()))
        self.assertEqual(self.client.volume(name).state, HELD)
        self.assertEqual(self.client.volume(name).last_error, later.message)

    def test_unknown_operations(self):
        for call in (self.client.operation, self.client.cancel_operation, self.client.wait_operation, lambda name: list(self.client.watch_operation(name))):
            error = self.refused(lambda: call("operations/none"), "NOT_FOUND", "NO_OPERATION")
            self.assertIn("60 minutes", error.message)
        self.refused(lambda: self.client.operation(self.volume()), "NOT_FOUND", "NO_OPERATION")

    # -- jobs
    def test_jobs_are_operations(self):
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=32, frames=16, dtype="u16")), request_id="job")
        self.assertEqual(job.operation, job.name.replace("jobs/", "operations/"))
        operation = self.client.operation(job.operation)
        self.assertEqual((operation.kind, operation.target, operation.done, operation.request_id), (JOB, job.name, False, "job"))
        self.assertIn(job.operation, [one.name for one in self.client.operations()])
        self.assertFalse(self.client.wait_operation(job.operation, 0.05).done)
        steps = self.client.watch_operation(job.operation)
        self.assertFalse(next(steps).done)
        self.client.cancel_operation(job.operation)
        *_, last = steps
        self.assertEqual((last.state, last.error.reason), (CANCELLED, "CANCELLED"))
        self.assertEqual(self.client.job(job.name).state, job_pb2.JOB_STATE_CANCELLED)
        # One that makes a volume, and one that fails.
        name = self.volume(retention=dict(hold_raw=True))
        raw = next(volume.name for volume in self.client.volumes() if volume.raw)
        job = self.client.submit_job(octavo.reprocess(raw, octavo.processing()))
        ended = self.client.wait_operation(job.operation)
        self.assertEqual((ended.state, list(ended.volumes)), (SUCCEEDED, self.client.job(job.name).volume_names))
        self.assertEqual(len(ended.volumes), 1)
        job = self.client.submit_job(octavo.k_calibration(raw, records=4))
        ended = self.client.wait_operation(job.operation, check=False)
        known = self.client.job(job.name)
        if known.state == job_pb2.JOB_STATE_FAILED:
            self.assertEqual((ended.state, ended.error.reason, ended.error.message), (FAILED, known.reason_code, known.reason))
            self.assertNotEqual(ended.error.code, grpc.StatusCode.OK)
        self.assertEqual(self.client.volume(name).state, HELD)

    # -- the command line
    def test_the_command_line(self):
        name, operation = self.stuck("told")
        self.assertRegex(self.command("operation", "list", "--open").stdout, f"{operation}  commit of {name}  RUNNING  preparing 0 %")
        self.assertIn("RUNNING", self.command("operation", "get", operation).stdout)
        self.assertIn("CANCELLING", self.command("operation", "cancel", operation).stdout)
        waiting = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "operation", "wait", operation],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.let_go()
        _, error = waiting.communicate(timeout=60)
        self.assertEqual(waiting.returncode, 1)
        self.assertIn("[COMMIT_CANCELLED]", error)
        refused = self.command("operation", "get", name, check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("is a volume; allowed is an operation", refused.stderr)

    def test_ctrl_c_cancels_the_commit(self):
        name = self.volume()
        self.stick()
        program = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "volume", "commit", name, "interrupted"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: any(one.target == name and one.progress.stage == PREPARING for one in self.client.operations()))
        program.send_signal(signal.SIGINT)
        until(lambda: any(one.target == name and one.state == CANCELLING for one in self.client.operations()))
        self.let_go()
        _, error = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130, error)
        self.assertIn("the commit was cancelled; the volume stays held", error)
        self.assertEqual(self.client.volume(name).state, HELD)

    def test_counters(self):
        def page():
            with urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics") as answer:
                text = answer.read().decode()
            return {name: float(value) for name, value in re.findall(r"^(octavo_operations\S+) (\S+)$", text, re.M)}

        first = page()
        for kind in ("COMMIT", "SPILL", "RESTORE", "DERIVE"):
            self.assertEqual(first[f'octavo_operations_running{{kind="{kind}"}}'], 0)
            for result in ("SUCCEEDED", "FAILED", "CANCELLED"):
                self.assertIn(f'octavo_operations_finished_total{{kind="{kind}",result="{result}"}}', first)
        _, operation = self.stuck("counted")
        self.assertEqual(page()['octavo_operations_running{kind="COMMIT"}'], 1)
        self.let_go()
        self.client.wait_operation(operation)
        name = 'octavo_operations_finished_total{kind="COMMIT",result="SUCCEEDED"}'
        self.assertEqual(page()[name], first[name] + 1)
        self.assertEqual(page()["octavo_operations_kept"], first["octavo_operations_kept"] + 1)


@unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
class Drain(unittest.TestCase):
    def test_an_operation_ends_before_the_daemon(self):
        with tempfile.TemporaryDirectory() as folder:
            flag = os.path.join(folder, "flag")
            daemon = Daemon("--drain.seconds", "60", environment={"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": flag})
            self.addCleanup(daemon.remove)
            with daemon.client() as client:
                scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(32, 8, volumes=2), samples=256)
                client.wait(scan.name)
                first, second = (volume.name for volume in client.volumes(scan.name))
                with open(flag, "w"):
                    pass
                operation = client.start_commit(first, "drained", "npy")
                ends = []
                waiter = threading.Thread(target=lambda: ends.append(client.wait_operation(operation.name)))
                waiter.start()
                daemon.process.send_signal(signal.SIGTERM)

                def draining():
                    try:
                        client.derive(second, {"mip": {"axis": 2}})
                    except octavo.OctavoError as error:
                        return error.reason == "DRAINING"
                    return False

                until(draining)
                self.assertFalse(client.operation(operation.name).done)
                os.unlink(flag)
                waiter.join()
            self.assertEqual([end.state for end in ends], [SUCCEEDED])
            self.assertEqual(daemon.process.wait(60), 0)
            self.assertTrue(os.path.exists(os.path.join(daemon.root, "drained.npy")))


if __name__ == "__main__":
    unittest.main()
