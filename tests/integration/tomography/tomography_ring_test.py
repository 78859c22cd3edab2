"""Frames of a tomography scan that programs on the server's host push through a ring, in C and in Python: the
result is that of the same frames pushed by gRPC. Producers are killed, replaced, wrong, or too late."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings

import grpc
import numpy as np

from harness import BUILD, Daemon, DaemonTest, octavo, until
from octavo.v1 import ingest_pb2, job_pb2, reason_pb2

FEED = os.path.join(BUILD, "bin", "projection_feed")
# Uses octavo.ring alone, without gRPC: fills slots in place from a file of frames, from the first that the job lacks.
PYTHON_FEED = """
import importlib.util, sys, time
import numpy as np
spec = importlib.util.spec_from_file_location("ring", sys.argv[1])
ring = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ring)
assert not {"grpc", "octavo"} & set(sys.modules)
darks, flats, stop = (int(word) for word in sys.argv[5:8])
with ring.Ring(sys.argv[2], sys.argv[3]) as producer:
    assert producer.of_job
    frames = np.fromfile(sys.argv[4], "<u2").reshape(-1, producer.rows, producer.columns)
    for number in range(producer.next_record, len(frames)):
        slot = producer.begin(30)
        if slot is None:
            break
        if number == stop:
            slot[0] = 65535
            print("hangs", flush=True)
            time.sleep(1000)
        slot[...] = frames[number]
        kind = "dark" if number < darks else "flat" if number < darks + flats else "projection"
        angle = max(0, number - darks - flats) * (180 / 360 * 6.283185307179586) / (len(frames) - darks - flats)
        assert producer.publish_frame(sequence=number, kind=kind, angle_rad=angle)
    slot = None
    producer.end()
    producer.flush(60)
"""


def phantom(angles=48, rows=3, columns=40, seed=5, dtype="<u2"):
    """Frames of a disc and its fields in one array, in the order darks, flats, projections; their numbers; the angles."""
    darks, flats = 2, 3
    theta = np.arange(angles) * (180 / 360 * 6.283185307179586) / angles
    s = np.arange(columns) - (columns - 1) / 2
    path = 2 * np.sqrt(np.maximum(0, (columns / 4) ** 2 - (s[None, :] - 3 * np.cos(theta)[:, None]) ** 2))
    counts = 100 + 120 * np.exp(-0.02 * path) if dtype == "u1" else 100 + 25000 * np.exp(-0.02 * path)
    noise = np.random.default_rng(seed)
    projections = counts[:, None, :] + noise.integers(0, 9, (angles, rows, columns))
    full = 225 if dtype == "u1" else 25150
    frames = np.concatenate([np.full((darks, rows, columns), 90), np.full((flats, rows, columns), full), projections]).round().astype(dtype)
    return frames, darks, flats, theta


def listed(frames, darks, flats, theta):
    return list(octavo.projection_frames(frames[darks + flats:], theta, frames[darks:darks + flats], frames[:darks]))


class TomographyRing(DaemonTest):
    flags = ("--handoff.unix", "auto")

    def setUp(self):
        self.frames, self.darks, self.flats, self.theta = phantom()
        self.file = os.path.join(self.daemon.root, "frames.raw")
        self.frames.tofile(self.file)
        self.listed = listed(self.frames, self.darks, self.flats, self.theta)
        if not hasattr(type(self), "expected"):
            name = self.submit()
            self.client.push_projections(name, self.listed)
            type(self).expected = self.read(name)

    def tearDown(self):
        for name in [j.name for j in self.client.jobs() if j.state in (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING)]:
            self.client.cancel_job(name)
            self.client.wait_job(name, check=False)
        super().tearDown()

    def submit(self, frames=None, *, spec=None, **fields):
        frames = self.frames if frames is None else frames
        dtypes = {"uint8": "u8", "uint16": "u16", "int16": "i16", "float32": "f32"}
        push = octavo.PushedProjections(rows=frames.shape[1], columns=frames.shape[2], frames=len(frames), dtype=dtypes[str(frames.dtype)], **fields)
        return self.client.submit_job(octavo.tomography(push, center=18.7, **spec or {})).name

    def read(self, name):
        return self.client.read(self.client.wait_job(name).volume_names[0])

    def feed(self, name, *options, ticket=None, program=FEED):
        ticket = ticket or self.client.ring_ticket(job=name)
        return subprocess.Popen([program, ticket.socket_path, ticket.ticket, self.file, "--darks", str(self.darks), "--flats", str(self.flats), *options],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process, code=0):
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, code, error)
        return json.loads(out.splitlines()[-1]) if code == 0 else error

    def account(self, name):
        """What the job has received from all: by a connection that sends nothing."""
        return self.client.push_projections(name, [], end=False)

    def test_a_c_producer_gives_what_a_push_gives(self):
        name = self.submit()
        self.assertEqual(self.finish(self.feed(name)), {"next_frame": len(self.frames)})
        np.testing.assert_array_equal(self.read(name), self.expected)

    def test_a_python_producer_without_grpc_gives_what_a_push_gives(self):
        name = self.submit()
        ticket = self.client.ring_ticket(job=name, slots=3)
        self.assertEqual((ticket.slots, ticket.block_records, ticket.record_bytes, ticket.total_records),
                         (3, 1, self.frames[0].nbytes, len(self.frames)))
        module = os.path.join(BUILD, "python", "octavo", "ring.py")
        subprocess.run([sys.executable, "-c", PYTHON_FEED, module, ticket.socket_path, ticket.ticket, self.file, str(self.darks), str(self.flats), "-1"],
                       check=True, timeout=60)
        np.testing.assert_array_equal(self.read(name), self.expected)

    def test_a_ticket_from_the_command_line(self):
        program = [os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address]
        name = self.submit()
        out = subprocess.run([*program, "job", "ring", name, "--slots", "5"], check=True, capture_output=True, text=True, timeout=30).stdout.split()
        self.finish(subprocess.Popen([FEED, *out, self.file, "--darks", str(self.darks), "--flats", str(self.flats)],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        told = json.loads(subprocess.run([*program, "--json", "job", "ring", self.submit()], check=True, capture_output=True, text=True, timeout=30).stdout)
        self.assertEqual((told["slots"], told["block_records"]), (8, 1))
        np.testing.assert_array_equal(self.read(name), self.expected)

    def test_a_push_with_one_word_more(self):
        for order in ("given", "shuffled", "generator"):
            with self.subTest(order):
                name = self.submit()
                frames = list(self.listed)
                if order == "shuffled":
                    np.random.default_rng().shuffle(frames)
                answers = []
                result = self.client.push_projections(name, (f for f in frames) if order == "generator" else frames, ring=True, progress=answers.append)
                self.assertEqual((result.done, result.missing, result.sent), (True, [], len(frames)))
                status = result.status
                self.assertEqual((status.frames, status.projections, status.flats, status.darks), (len(frames), len(frames) - 5, 3, 2))
                self.assertEqual((status.duplicate_frames, status.out_of_range_frames, status.gaps), (0, 0, 0))
                self.assertTrue(answers)
                np.testing.assert_array_equal(self.read(name), self.expected)

    def test_every_type_and_size(self):
        for dtype in ("u1", "<u2", "<i2", "<f4"):
            for rows, columns in ((1, 17), (5, 64), (64, 33)):
                with self.subTest(dtype=dtype, rows=rows, columns=columns):
                    frames, darks, flats, theta = phantom(angles=24, rows=rows, columns=columns, dtype=dtype)
                    given = listed(frames, darks, flats, theta)
                    volumes = []
                    for ring in (False, True):
                        push = octavo.PushedProjections(rows=rows, columns=columns, frames=len(frames), dtype={"u1": "u8", "<u2": "u16", "<i2": "i16", "<f4": "f32"}[dtype])
                        name = self.client.submit_job(octavo.tomography(push, center=columns / 2 - 0.5)).name
                        self.assertTrue(self.client.push_projections(name, given, ring=ring).done)
                        volumes.append(self.read(name))
                    self.assertGreater(np.abs(volumes[0]).max(), 0)
                    np.testing.assert_array_equal(volumes[1], volumes[0])

    def test_the_same_process(self):
        name = self.submit()
        with self.client.open_ring(job=name, slots=4) as ring:
            self.assertTrue(ring.of_job)
            self.assertEqual((ring.slots, ring.rows, ring.columns, ring.record_bytes, ring.total_records, ring.next_record),
                             (4, 3, 40, self.frames[0].nbytes, len(self.frames), 0))
            for frame in self.listed[:20]:
                self.assertTrue(ring.publish_frame(frame.array, sequence=frame.sequence, kind=frame.kind, angle_rad=frame.angle_rad))
            for frame in self.listed[20:]:  # straight into the memory
                slot = ring.begin(30)
                slot[:] = frame.array
                self.assertTrue(ring.publish_frame(sequence=frame.sequence, kind=frame.kind, angle_rad=frame.angle_rad))
            del slot
            until(lambda: ring.trouble() is not None)
            self.assertEqual(ring.trouble().errno, errno.EPIPE)
            self.assertIsNone(ring.begin(1), "the job wants no more")
            self.assertFalse(ring.publish_frame(self.frames[0], sequence=0))
            self.assertFalse(ring.flush(1))
            self.assertEqual(ring.counts["records"], len(self.frames))
        np.testing.assert_array_equal(self.read(name), self.expected)

    def test_one_producer_after_the_other(self):
        """Each finds the place of the one before free at once."""
        scan = self.client.submit_scan(octavo.ring(idle_timeout=-1), octavo.raster(8, 8, volumes=1), samples=64).name
        name = self.submit()
        for turn in range(30):
            for kind in (dict(scan=scan), dict(job=name)):
                self.client.open_ring(**kind).close()
                self.client.ring_ticket(**kind)
        self.assertEqual(self.account(name).status.connections, 31)
        self.client.cancel(scan)

    def test_killed_in_the_middle_and_followed_by_another(self):
        name = self.submit()
        for number, at in enumerate((1, 9, 30)):
            process = self.feed(name, "--hang-at", str(at))
            self.assertIn("hangs in frame", process.stdout.readline())
            process.kill()
            process.communicate()
            until(lambda: self.taken(name))
        module = os.path.join(BUILD, "python", "octavo", "ring.py")
        ticket = self.client.ring_ticket(job=name)
        process = subprocess.Popen([sys.executable, "-c", PYTHON_FEED, module, ticket.socket_path, ticket.ticket, self.file, str(self.darks), str(self.flats), "40"],
                                   stdout=subprocess.PIPE, text=True)
        self.assertIn("hangs", process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        until(lambda: self.taken(name))
        status = self.account(name)
        self.assertEqual((status.status.frames, status.status.duplicate_frames, status.missing), (40, 0, [(40, len(self.frames) - 40)]))
        self.assertEqual(status.status.connections, 5)
        self.assertEqual(self.client.job(name).state, job_pb2.JOB_STATE_RUNNING)
        self.finish(self.feed(name))
        np.testing.assert_array_equal(self.read(name), self.expected)

    def taken(self, name):
        """Whether a producer may attach."""
        try:
            self.client.ring_ticket(job=name)
        except octavo.OctavoError as error:
            self.assertEqual(error.reason, "RING_TAKEN")
            return False
        return True

    def test_two_ways_at_once(self):
        name = self.submit()
        together, results = threading.Barrier(2), {}

        def push(ring):
            with self.daemon.client() as client:
                def mine():
                    together.wait(30)  # both are connected, and none has sent `end`
                    yield from self.listed[ring::2]
                results[ring] = client.push_projections(name, mine(), ring=ring)

        threads = [threading.Thread(target=push, args=(ring,)) for ring in (False, True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertTrue(results[False].done and results[True].done, results)
        np.testing.assert_array_equal(self.read(name), self.expected)

    def test_the_account_gaps_and_an_early_end(self):
        name = self.submit()
        sent = self.listed[:12] + self.listed[3:5] + self.listed[14:50]
        result = self.client.push_projections(name, sent, ring=True, end=False)
        self.assertFalse(result.done)
        self.assertEqual((result.status.frames, result.status.gaps, result.status.missing_frames, result.status.duplicate_frames), (48, 1, 2, 2))
        self.assertEqual(result.missing, [(12, 2), (50, 3)])
        asked = []
        self.assertFalse(self.client.push_projections(name, lambda missing: asked.append(missing) or [self.listed[12]], ring=True, end=False).done)
        self.assertEqual(asked, [[(12, 2), (50, 3)]])
        # A producer's own end, without gRPC: the job goes on with the frames that it has.
        with self.client.open_ring(job=name) as ring:
            self.assertEqual(ring.next_record, 13)
            ring.publish_frame(self.listed[51].array, sequence=51, angle_rad=self.listed[51].angle_rad)
            ring.end()
            ring.flush(30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            end = self.client.wait_job(name)
        volume = self.client.volume(end.volume_names[0])
        self.assertEqual((volume.complete, volume.missing_frames), (False, 3))
        self.assertEqual([(r.first, r.count) for r in volume.missing_frame_ranges], [(13, 1), (50, 1), (52, 1)])

    def test_more_frames_than_the_job_takes(self):
        fewer = self.frames[:24]
        for given in (self.listed, octavo.projection_frames(self.frames[5:], self.theta, self.frames[2:5], self.frames[:2])):
            name = self.submit(fewer)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = self.client.push_projections(name, given, ring=True)
                self.client.wait_job(name, check=False)
            self.assertEqual((result.done, result.missing), (True, []))
            # The server warns if some of them came before the ring ended, which is chance; this side knows how many there are, and alone tells.
            told = [str(warning.message) for warning in caught if "left out" in str(warning.message)]
            self.assertEqual(len(told), 1, told)
            self.assertIn("frames were given, the job takes 24", told[0])

    def test_a_job_that_has_all_takes_nothing_and_says_so(self):
        push = octavo.PushedProjections(rows=3, columns=40, frames=len(self.frames))
        first, name = (self.client.submit_job(octavo.tomography(push, center=18.7)).name for _ in range(2))  # the second waits for its device
        self.client.push_projections(name, self.listed, end=False)
        for ring in (False, True):
            try:
                result = self.client.push_projections(name, self.listed, ring=ring)
            except octavo.OctavoError as error:  # it is DONE already
                self.assertEqual(error.reason, "JOB_STATE")
            else:
                self.assertEqual((result.done, result.missing), (True, []))
        self.client.cancel_job(first)
        np.testing.assert_array_equal(self.read(name), self.expected)

    def test_planes_and_series_are_those_of_a_push(self):
        # One frame more than ever comes, so that the job waits while its planes are compared.
        push = octavo.PushedProjections(rows=3, columns=40, frames=len(self.frames) + 1)
        seen = {}
        for ring in (False, True):
            name = self.client.submit_job(octavo.tomography(push, center=18.7)).name
            streams = {axis: self.client.subscribe(name, ["bscan"], axis=axis, timeout=120) for axis in "zyx"}
            self.client.push_projections(name, self.listed, ring=ring, end=False)
            for axis, stream in streams.items():
                middle = {"z": self.expected[1], "y": self.expected[:, 20], "x": self.expected[:, :, 20]}[axis]
                for frame in stream:
                    self.assertFalse(frame.complete)
                    if np.abs(frame.array - middle).max() < 2e-5 * np.abs(self.expected).max():
                        seen[ring, axis] = np.array(frame.array)
                        break
                else:
                    self.fail(f"{axis} ended")
                stream.close()
            self.client.cancel_job(name)
            self.client.wait_job(name, check=False)
        self.assertEqual(len(seen), 6)
        series = []
        for ring in (False, True):
            name = self.submit(spec=dict(series=(16, 16)))
            self.client.push_projections(name, self.listed, ring=ring)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # each volume is of a third of the directions
                series.append([self.client.read(v) for v in self.client.wait_job(name).volume_names])
        self.assertEqual([len(volumes) for volumes in series], [3, 3])
        for one, other in zip(*series):
            np.testing.assert_array_equal(one, other)

    def test_a_full_ring_lets_its_producer_wait(self):
        """The server is stopped, not the producer."""
        name = self.submit()
        with self.client.open_ring(job=name, slots=2) as ring:
            os.kill(self.daemon.process.pid, signal.SIGSTOP)
            try:
                until(self.stands)
                for frame in self.listed[:2]:
                    ring.publish_frame(frame.array, sequence=frame.sequence, kind=frame.kind, timeout=10)
                with self.assertRaises(TimeoutError):
                    ring.publish_frame(self.listed[2].array, sequence=2, kind=self.listed[2].kind, timeout=0.2)
            finally:
                began = time.monotonic()
                threading.Timer(0.3, os.kill, (self.daemon.process.pid, signal.SIGCONT)).start()
            for frame in self.listed[2:]:
                self.assertTrue(ring.publish_frame(frame.array, sequence=frame.sequence, kind=frame.kind, angle_rad=frame.angle_rad, timeout=30))
            self.assertGreater(time.monotonic() - began, 0.1)
        np.testing.assert_array_equal(self.read(name), self.expected)

    def stands(self):
        """Whether each thread of the daemon has stopped."""
        for task in os.listdir(f"/proc/{self.daemon.process.pid}/task"):
            with open(f"/proc/{self.daemon.process.pid}/task/{task}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] != "T":
                    return False
        return True

    def test_a_job_that_is_cancelled_lets_its_producer_go(self):
        """One that waits for room, one that waits for its camera, and one of another process."""
        name = self.submit(idle_timeout=-1)
        ring = self.client.open_ring(job=name, slots=2)
        self.client.cancel_job(name)
        self.client.wait_job(name, check=False)
        with self.assertRaises(octavo.OctavoError) as late:
            self.client.ring_ticket(job=name)
        self.assertEqual((late.exception.code, late.exception.reason), (grpc.StatusCode.FAILED_PRECONDITION, "JOB_STATE"))
        until(lambda: ring.trouble() is not None)
        self.assertEqual(ring.trouble().errno, errno.EPIPE)
        self.assertIsNone(ring.begin(0))
        ring.close()
        name = self.submit()
        with self.assertWarnsRegex(octavo.OctavoWarning, f"{name}: the job is CANCELLED, so the frames that were pushed are not used"):
            def frames():
                for i, frame in enumerate(self.listed):
                    if i == 12:
                        self.client.cancel_job(name)
                        self.client.wait_job(name, check=False)
                    yield frame
            self.assertTrue(self.client.push_projections(name, frames(), ring=True).done)
        name = self.submit()
        process = self.feed(name, "--hang-at", "20")
        process.stdout.readline()
        self.client.cancel_job(name)
        self.client.wait_job(name, check=False)
        process.kill()
        process.communicate()

    def test_a_producer_that_fails_says_why(self):
        name = self.submit()
        with self.client.open_ring(job=name) as ring:
            ring.publish_frame(self.listed[0].array, sequence=0, kind="dark")
            ring.fail("the camera is off")
            end = self.client.wait_job(name, check=False)
        self.assertEqual((end.state, end.reason_code), (job_pb2.JOB_STATE_FAILED, reason_pb2.REASON_SOURCE_LOST))
        self.assertIn("the camera is off", end.reason)

    def test_silence(self):
        for attached in (False, True):
            name = self.submit(idle_timeout=3 if attached else 0.4)  # 3: a busy machine attaches it in time
            ring = self.client.open_ring(job=name) if attached else None
            end = self.client.wait_job(name, check=False)
            self.assertEqual((end.state, end.reason_code), (job_pb2.JOB_STATE_FAILED, reason_pb2.REASON_SOURCE_STALLED))
            self.assertIn("a client is connected, but silent" if attached else "no client ever connected", end.reason)
            if ring is not None:
                self.assertIsNone(ring.begin(5), "the job wants no more")
                ring.close()

    def test_wrong_uses(self):
        name = self.submit()
        with self.client.open_ring(job=name) as ring:
            good = self.listed[0].array
            for what, given, words in (
                    ("kind", dict(kind="white-ish"), "expected 'projection', 'flat' or 'dark'"), ("kind", dict(kind=4), "kind is 4"),
                    ("angle", dict(angle_rad=float("nan")), "expected a finite angle"), ("angle", dict(angle_rad="0"), "angle_rad is '0'"),
                    ("sequence", dict(sequence=-1), "sequence is -1"), ("sequence", dict(sequence=1.5), "sequence is 1.5"),
                    ("type", dict(array=good.astype("<f4")), "array is float32 (3, 40); the job wants uint16 (3, 40)"),
                    ("shape", dict(array=good.T), "array is uint16 (40, 3)"), ("shape", dict(array=good[0]), "array is uint16 (40,)")):
                with self.subTest(what), self.assertRaises(ValueError) as refused:
                    ring.publish_frame(**{"array": good, "sequence": 0, **given})
                self.assertIn(words, str(refused.exception))
            for call in (lambda: ring.publish(1), lambda: ring.drop(2)):
                with self.assertRaises(octavo.RingError) as refused:
                    call()
                self.assertEqual(refused.exception.errno, errno.EINVAL)
                self.assertIn("the ring of a job", str(refused.exception))
            self.assertEqual(ring.free, ring.slots)
            with self.assertRaises(octavo.OctavoError) as second:
                self.client.ring_ticket(job=name)
            self.assertEqual((second.exception.reason, second.exception.field), ("RING_TAKEN", "job"))
            self.assertIn("RING_TAKEN", self.push_error(name))
        scan = self.client.submit_scan(octavo.ring(idle_timeout=-1), octavo.raster(8, 8, volumes=1), samples=64).name
        with self.client.open_ring(scan) as ring:
            self.assertFalse(ring.of_job)
            with self.assertRaises(octavo.RingError) as refused:
                ring.publish_frame(np.zeros((8, 64), "<u2"), sequence=0)
            self.assertEqual(refused.exception.errno, errno.EINVAL)
            self.assertIn("the ring of a scan", str(refused.exception))
        process = self.feed(name, ticket=self.client.ring_ticket(scan))
        self.assertIn("this is the ring of a scan", self.finish(process, code=1))
        self.client.cancel(scan)
        self.assertEqual(self.client.job(name).state, job_pb2.JOB_STATE_RUNNING)

    def push_error(self, name):
        with self.assertRaises(octavo.OctavoError) as error:
            self.client.push_projections(name, self.listed, ring=True)
        return str(error.exception) + error.exception.reason

    def test_refusals(self):
        name = self.submit()
        other = self.client.submit_job(self.of_a_file()).name
        for request, code, reason, field in (
                (dict(), "INVALID_ARGUMENT", "", "job"), (dict(scan="scans/none", job=name), "INVALID_ARGUMENT", "", "job"),
                (dict(job="jobs/none"), "NOT_FOUND", "NO_JOB", None), (dict(job=name, slots=1), "INVALID_ARGUMENT", "", "slots"),
                (dict(job=name, slots=1025), "INVALID_ARGUMENT", "", "slots"), (dict(scan="scans/none", slots=4), "INVALID_ARGUMENT", "", "slots"),
                (dict(job=name, slots=2 ** 32 - 1), "INVALID_ARGUMENT", "", "slots"),
                (dict(job=other), "FAILED_PRECONDITION", "NOT_PUSH|JOB_STATE", None), (dict(job="x" * 3000), "INVALID_ARGUMENT", "", "job")):
            with self.subTest(request):
                with self.assertRaises(octavo.OctavoError) as refused:
                    self.client._call(self.client._ingest.OpenRing, ingest_pb2.OpenRingRequest(**request))
                error = refused.exception
                self.assertEqual(error.code, grpc.StatusCode[code])
                if reason:
                    self.assertIn(error.reason, reason.split("|"))
                if field:
                    self.assertEqual(error.field, field)
        self.client.ring_ticket(job=name, slots=5)
        for slots in (0, 5):
            self.assertEqual(self.client.ring_ticket(job=name, slots=slots).slots, 5)
        with self.assertRaises(octavo.OctavoError) as refused:
            self.client.ring_ticket(job=name, slots=6)
        self.assertIn("slots: is 6; allowed 0 or 5", str(refused.exception))
        with self.assertRaises(ValueError):
            self.client.ring_ticket()
        with self.assertRaises(ValueError):
            self.client.open_ring("scans/1-a", job=name)
        with self.assertRaises(octavo.OctavoError) as refused:
            self.client.open_ring(name)
        self.assertIn("open_ring(job=...)", str(refused.exception))

    def of_a_file(self):
        np.save(os.path.join(self.daemon.root, "scan.npy"), np.ones((24, 2, 32), "<f4"))
        spec = job_pb2.JobSpec()
        spec.tomography.file.path = "scan.npy"
        spec.tomography.angles_rad.extend(np.arange(24) * np.pi / 24)
        spec.tomography.center.pixels.append(15.5)
        spec.tomography.preparation.logarithm = False
        return spec

    def test_a_program_that_breaks_the_ring_is_cut_off(self):
        """One that knows nothing of frames, and one whose words cannot be; the job goes on with others."""
        name = self.submit()
        for wrong, words in ((self.old_publish, "octavo_ring_publish: is for the ring of a scan"),
                             (lambda ring: ring._words.store(2 * 4096, 1000), "the ring is broken"),
                             (lambda ring: ring._publish((ring._published, 7, 1, 2, 0, 7, 9, 0.0, 0), 8), "kind: is 9 of frame 7"),
                             (lambda ring: ring._publish((ring._published, 7, 1, 2, 0, 7, 1, float("inf"), 0), 8), "angle_rad: is inf of frame 7")):
            with self.subTest(words):
                ring = self.client.open_ring(job=name)
                ring.publish_frame(self.listed[0].array, sequence=0, kind="dark")
                ring.flush(30)
                wrong(ring)
                ring._ring_bell()
                until(lambda: ring.trouble() is not None)
                self.assertEqual(ring.trouble().errno, errno.EPROTO)
                self.assertIn(words, str(ring.trouble()))
                until(lambda: self.taken(name))
                ring.close()
        self.assertEqual(self.account(name).status.frames, 1)
        self.assertTrue(self.client.push_projections(name, self.listed, ring=True).done)
        np.testing.assert_array_equal(self.read(name), self.expected)

    @staticmethod
    def old_publish(ring):
        ring.begin(10)
        ring._publish((ring._published, 0, 1, 0, 0, 0, 0, 0.0, 0), 1)

    def test_the_daemon_dies(self):
        daemon = Daemon(*self.flags)
        with daemon.client() as client:
            push = octavo.PushedProjections(rows=3, columns=40, frames=len(self.frames))
            ring = client.open_ring(job=client.submit_job(octavo.tomography(push)).name)
        ring.publish_frame(self.frames[0], sequence=0)
        daemon.kill()
        until(lambda: ring.trouble() is not None)
        self.assertEqual(ring.trouble().errno, errno.ECONNRESET)
        with self.assertRaises(octavo.RingError):  # the memory still exists: nothing crashes
            for number in range(100):
                ring.publish_frame(self.frames[0], sequence=number, timeout=5)
        ring.close()
        daemon.remove()


class OtherServers(unittest.TestCase):
    def test_memory_of_rings_is_counted_and_comes_back(self):
        frames, darks, flats, theta = phantom(angles=19, rows=2, columns=64)  # 24 frames of 256 bytes
        budget = (24 * 256 + 20480) * 8 // 7 + 8  # whose eighth nobody has as long as he is alone
        daemon = Daemon("--handoff.unix", "auto", "--device.projection_bytes", str(budget))
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            submit = lambda: client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=64, frames=24), center=30)).name
            for _ in range(2):
                name = submit()
                with self.assertRaises(octavo.OctavoError) as refused:
                    client.ring_ticket(job=name, slots=200)
                error = refused.exception
                self.assertEqual((error.code, error.reason, error.field), (grpc.StatusCode.RESOURCE_EXHAUSTED, "HOST_MEMORY", "slots"))
                self.assertIn(f"{budget - 24 * 256} are free", str(error))
                self.assertTrue(client.push_projections(name, listed(frames, darks, flats, theta), ring=True).done)
                client.wait_job(name)
        self.assertEqual(daemon.stop(), 0)

    def test_without_a_socket_there_is_no_ring(self):
        daemon = Daemon("--handoff.unix", "none")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            name = client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=64, frames=24))).name
            for ask in (lambda: client.ring_ticket(job=name), lambda: client.push_projections(name, [], ring=True)):
                with self.assertRaises(octavo.OctavoError) as refused:
                    ask()
                self.assertEqual(refused.exception.reason, "HANDOFF_DISABLED")


if __name__ == "__main__":
    unittest.main()
