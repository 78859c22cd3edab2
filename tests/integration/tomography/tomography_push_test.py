"""Projections that clients push to a tomography job: in any order, over several connections, with
previews. The result equals the result from a file."""

import itertools
import json
import os
import shutil
import threading
import time
import unittest
import warnings

import grpc
import numpy as np

from google.protobuf.duration_pb2 import Duration
from harness import DATA, Daemon, DaemonTest, octavo
from octavo.v1 import ingest_pb2, job_pb2, reason_pb2, tomography_pb2, types_pb2
from pushing import CuttingProxy, RawStream

TOOTH = os.path.join(DATA, "tomo")
CENTER = 294.8


def tooth():
    """Returns projections [181, 2, 640], flats, darks (f32), and angles in radians."""
    if not os.path.isdir(TOOTH):
        raise unittest.SkipTest(f"no {TOOTH}")
    load = lambda name: np.load(os.path.join(TOOTH, f"tooth_{name}.npy"))
    return load("proj"), load("white"), load("dark"), np.deg2rad(load("theta_deg"))


def phantom(angles=24, rows=2, columns=32, seed=5):
    """Returns small u16 counts of a disc, with flats and darks."""
    theta = np.arange(angles) * np.pi / angles
    s = np.arange(columns) - (columns - 1) / 2
    path = 2 * np.sqrt(np.maximum(0, (columns / 4) ** 2 - (s[None, :] - 3 * np.cos(theta)[:, None]) ** 2))
    counts = 100 + 40000 * np.exp(-0.02 * path)
    noise = np.random.default_rng(seed)
    projections = np.round(counts[:, None, :] + noise.integers(0, 20, (angles, rows, columns))).astype("<u2")
    return projections, np.full((3, rows, columns), 40100, "<u2"), np.full((2, rows, columns), 100, "<u2"), theta


def push_spec(projections, flats, darks, **fields):
    types = {"uint8": types_pb2.DTYPE_U8, "uint16": types_pb2.DTYPE_U16, "int16": types_pb2.DTYPE_I16, "float32": types_pb2.DTYPE_F32}
    return ingest_pb2.PushedProjections(rows=projections.shape[1], columns=projections.shape[2], frames=len(projections) + len(flats) + len(darks),
                                        dtype=types[str(projections.dtype)], **fields)


def job(**fields):
    center = fields.pop("center", None)
    spec = tomography_pb2.TomographyJob(**fields)
    if center is not None:
        spec.center.pixels.append(center)
    return job_pb2.JobSpec(tomography=spec)


class RawPush(RawStream):
    """A client that can violate the protocol."""

    def __init__(self, address, name):
        super().__init__(address, "PushProjections", ingest_pb2.PushProjectionsRequest(job=name))

    def send(self, sequence, array, **fields):
        fields.setdefault("rows", len(array))
        self.requests.put(ingest_pb2.PushProjectionsRequest(sequence=sequence, data=np.ascontiguousarray(array).tobytes(), **fields))


class TomographyPush(DaemonTest):
    def tearDown(self):
        for name in [j.name for j in self.client.jobs() if j.state in (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING)]:
            self.client.cancel_job(name)
            self.client.wait_job(name, check=False)
        super().tearDown()

    def raw(self, name):
        client = RawPush(self.daemon.address, name)
        self.addCleanup(client.close)
        return client

    def read(self, end):
        return self.client.read(end.volume_names[0])

    def test_a_push_to_a_job_that_is_cancelled_says_so(self):
        projections, flats, darks, angles = phantom()
        pushed = self.client.submit_job(job(push=push_spec(projections, flats, darks)))

        def frames():
            for i, frame in enumerate(octavo.projection_frames(projections, angles, flats, darks)):
                if i == 12:
                    self.client.cancel_job(pushed.name)
                    self.client.wait_job(pushed.name, check=False)
                yield frame

        with self.assertWarnsRegex(octavo.OctavoWarning, f"{pushed.name}: the job is CANCELLED, so the frames that were pushed are not used"):
            self.assertTrue(self.client.push_projections(pushed.name, frames()).done)

    @unittest.skipUnless(os.path.exists(os.path.join(TOOTH, "tooth.h5")), f"no {TOOTH}")
    def test_options_of_the_algorithm_do_not_cost_the_previews(self):
        projections, flats, darks, angles = tooth()
        for options in (dict(algorithm=tomography_pb2.TomographyAlgorithmOptions.ALGORITHM_FOURIER, fourier_accuracy=1e-3),
                        dict(algorithm=tomography_pb2.TomographyAlgorithmOptions.ALGORITHM_SIRT, iterations=2, relaxation=0.5, min_value=0.0),
                        dict(algorithm=tomography_pb2.TomographyAlgorithmOptions.ALGORITHM_TV, iterations=2, tv_weight=0.1, max_value=3.0)):
            with self.subTest(options):
                spec = job(push=push_spec(projections, flats, darks), center=CENTER)
                spec.tomography.reconstruction.CopyFrom(tomography_pb2.TomographyAlgorithmOptions(**options))
                pushed = self.client.submit_job(spec)
                previews = self.client.subscribe(pushed.name, ["bscan"], index=1, timeout=60)
                frames = list(octavo.projection_frames(projections, angles, flats, darks))
                self.client.push_projections(pushed.name, [f for f in frames if f.kind != "projection" or f.sequence % 2 == 0], end=False)
                self.assertFalse(next(iter(previews)).complete)
                previews.close()
                self.client.cancel_job(pushed.name)

    def test_the_tooth_with_previews_equals_the_file(self):
        projections, flats, darks, angles = tooth()
        shutil.copy(os.path.join(TOOTH, "tooth.h5"), self.daemon.root)
        from_file = self.client.wait_job(self.client.submit_job(job(file=dict(path="tooth.h5"), center=CENTER)).name)
        expected = self.read(from_file)

        pushed = self.client.submit_job(job(push=push_spec(projections, flats, darks), center=CENTER))
        frames = list(octavo.projection_frames(projections, angles, flats, darks))
        middle = [f for f in frames if f.kind != "projection" or f.sequence % 2 == 0]  # every other angle: enough for a coarse image
        rest = [f for f in frames if f.kind == "projection" and f.sequence % 2 == 1]
        np.random.default_rng(1).shuffle(middle)
        previews = self.client.subscribe(pushed.name, ["bscan"], index=1, timeout=120)
        result = self.client.push_projections(pushed.name, middle, end=False)
        self.assertFalse(result.done)
        self.assertEqual((result.status.flats, result.status.darks, result.status.frames), (10, 10, len(middle)))
        self.assertEqual(sum(count for _, count in result.missing), len(rest))
        best = 0.0
        # Until the frames so far determine the picture, and before the scan ends.
        for frame in previews:
            preview = np.asarray(frame.array, np.float64)
            self.assertFalse(frame.complete)
            best = np.corrcoef(preview.ravel(), expected[1].ravel())[0, 1]
            if best > 0.7:
                break
        self.assertGreater(best, 0.7)
        self.assertEqual(self.client.job(pushed.name).state, job_pb2.JOB_STATE_RUNNING)
        previews.close()

        result = self.client.push_projections(pushed.name, reversed(rest))
        self.assertTrue(result.done)
        self.assertEqual((result.status.frames, result.status.gaps, result.status.duplicate_frames, result.status.connections), (len(frames), 0, 0, 2))
        end = self.client.wait_job(pushed.name)
        actual = self.read(end)
        self.assertEqual(actual.shape, expected.shape)
        np.testing.assert_array_equal(actual, expected)  # degrees times pi/180 gives the same doubles here and in the server

    def test_three_planes_grow_to_those_of_the_volume(self):
        """While the scan runs, each plane that is subscribed has every projection that has come: in the end it is that of the FBP volume."""
        projections, flats, darks, angles = phantom(angles=36, rows=5, columns=32)
        frames = list(octavo.projection_frames(projections, angles, flats, darks))

        def submit(count):
            push = ingest_pb2.PushedProjections(rows=5, columns=32, frames=count, dtype=types_pb2.DTYPE_U16)
            return self.client.submit_job(job(push=push, center=15.2)).name

        whole = submit(len(frames))
        self.client.push_projections(whole, frames)
        volume = self.read(self.client.wait_job(whole))
        planes = {("z", 1): ("yx", volume[1]), ("y", 13): ("zx", volume[:, 13]), ("x", None): ("zy", volume[:, :, 16])}

        # One frame more than ever comes, so that the job waits while the planes are compared.
        name = submit(len(frames) + 1)
        np.random.default_rng(2).shuffle(frames)
        streams = {key: self.client.subscribe(name, ["bscan"], axis=key[0], index=key[1], timeout=120) for key in planes}
        for axis, index in (("z", 5), ("y", 32), ("x", 32)):
            with self.assertRaises(octavo.OctavoError) as refused:
                next(iter(self.client.subscribe(name, ["bscan"], axis=axis, index=index, timeout=60)))
            self.assertEqual(refused.exception.reason, "BAD_RANGE")

        def until(close):
            for key, (axes, expected) in planes.items():
                for frame in streams[key]:
                    self.assertFalse(frame.complete)
                    self.assertEqual(("".join(frame.axes), frame.array.shape), (axes, expected.shape))
                    if close(np.abs(frame.array - expected).max() / np.abs(volume).max()):
                        break
                else:
                    self.fail(f"{key} ended")

        self.client.push_projections(name, frames[:20], end=False)
        until(lambda difference: difference > 0.01)  # half of the directions
        self.client.push_projections(name, frames[20:], end=False)
        until(lambda difference: difference < 2e-5)
        log = [line.text for line in self.client.job(name).log_lines]
        self.assertTrue(any("each of which counts the same; the axis is the given one" in text for text in log), log)
        for stream in streams.values():
            stream.close()
        self.client.push_projections(name, [], end=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(self.read(self.client.wait_job(name)), volume)

    def test_sinograms_of_pushed_frames(self):
        """How many of the frames are projections, and so the number of rows of a sinogram, is known when all have come."""
        projections, flats, darks, angles = phantom(angles=24, rows=4)
        frames = list(octavo.projection_frames(projections, angles, flats, darks))
        flat, dark = flats.mean(0, dtype=np.float64), darks.mean(0, dtype=np.float64)
        wanted = np.swapaxes(-np.log(np.maximum((projections - dark) / np.maximum(flat - dark, 1e-6), 1e-6)), 0, 1)
        for fields in (dict(), dict(slices_per_batch=3), dict(place=tomography_pb2.RESULT_PLACE_DISK), dict(samples=tomography_pb2.ResultSamples(type=types_pb2.DTYPE_U16))):
            for missing in ([], [7, 8]):
                with self.subTest(fields=fields, missing=missing):
                    name = self.client.submit_job(job(push=push_spec(projections, flats, darks), output=tomography_pb2.TOMOGRAPHY_OUTPUT_SINOGRAMS, **fields)).name
                    lost = [[f for f in frames if f.kind == "projection"][i] for i in missing]
                    self.client.push_projections(name, [f for f in frames if f not in lost])
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        end = self.client.wait_job(name)
                    volume, values = self.client.volume(end.volume_names[0]), self.client.read(end.volume_names[0])
                    kept = [i for i in range(len(angles)) if i not in missing]
                    self.assertEqual(list(volume.shape), [4, len(kept), projections.shape[2]])
                    self.assertEqual(volume.complete, not missing)
                    if "samples" in fields:
                        low, high = end.tomography.low, end.tomography.high
                        values = low + (high - low) / 65535 * values
                        np.testing.assert_allclose(values, np.clip(wanted[:, kept], low, high), atol=(high - low) / 65535)
                    else:
                        np.testing.assert_allclose(values, wanted[:, kept], rtol=1e-4, atol=1e-5)
                    self.client.commit(volume.name, f"pushed-{len(kept)}-{len(fields)}-{'place' in fields}-{'samples' in fields}.npy")

    def twelve_bits(self, angles=30, rows=5, columns=33):
        """Counts of a disc that fit into 12 bits, an odd number of rows and columns."""
        projections, flats, darks, theta = phantom(angles=angles, rows=rows, columns=columns)
        return projections // 10, flats // 10, darks // 10, theta

    def test_packed_frames_make_the_volume_of_numbers(self):
        projections, flats, darks, angles = self.twelve_bits()
        count = len(projections) + len(flats) + len(darks)
        cases = [dict(center=16.2), dict(center=16.2, rows=(0, 5, 2), projections=(1, 30, 2), batch=1), dict(center=16.2, series=(10, 10)),
                 dict(center=16.2, prepare=octavo.preparation(rings=["sorting"], dynamic_flats=True)), dict(center=16.2, place="disk", samples="u16")]
        for options in cases:
            volumes = {}
            for raw_type, packed in ((None, False), ("u16", False), ("u12p", False), ("u12p", True), ("Mono12Packed", False), ("u12_packed", True)):
                with self.subTest(raw_type=raw_type, packed=packed, **options):
                    push = octavo.PushedProjections(rows=5, columns=33, frames=count, raw_type=raw_type)
                    pushed = self.client.submit_job(octavo.tomography(push, **options))
                    arrays = [octavo.pack12(a, raw_type) if packed else a for a in (projections, flats, darks)]
                    frames = list(octavo.projection_frames(arrays[0], angles, arrays[1], arrays[2]))
                    if "series" not in options:
                        np.random.default_rng(3).shuffle(frames)
                    self.client.push_projections(pushed, frames)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # flat fields that hardly differ
                        end = self.client.wait_job(pushed)
                    self.assertEqual(len(end.volume_names), 3 if "series" in options else 1)
                    volumes[raw_type, packed] = np.stack([self.client.read(name) for name in end.volume_names])
                    for name in end.volume_names:
                        self.client.discard(name)
                    np.testing.assert_array_equal(volumes[raw_type, packed], volumes[None, False])
            self.assertGreater(volumes[None, False].std(), 0)

    def test_planes_of_packed_frames_grow_to_those_of_the_volume(self):
        projections, flats, darks, angles = self.twelve_bits()
        frames = list(octavo.projection_frames(projections, angles, flats, darks))

        def submit(count, raw_type):
            push = octavo.PushedProjections(rows=5, columns=33, frames=count, raw_type=raw_type)
            return self.client.submit_job(octavo.tomography(push, center=15.2)).name

        whole = submit(len(frames), "u16")
        self.client.push_projections(whole, frames)
        volume = self.read(self.client.wait_job(whole))
        for raw_type in ("u12p", "u12_packed"):
            planes = {("z", 3): volume[3], ("y", 13): volume[:, 13], ("x", 16): volume[:, :, 16]}
            name = submit(len(frames) + 1, raw_type)  # one more than ever comes: it waits
            streams = {key: self.client.subscribe(name, ["bscan"], axis=key[0], index=key[1], timeout=120) for key in planes}
            self.client.push_projections(name, frames, end=False)
            for key, expected in planes.items():
                for frame in streams[key]:
                    if np.abs(frame.array - expected).max() < 2e-5 * np.abs(volume).max():
                        break
                else:
                    self.fail(f"{raw_type} {key} ended")
                streams[key].close()
            self.client.cancel_job(name)

    def test_packed_frames_that_do_not_fit_are_refused(self):
        projections, flats, darks, angles = self.twelve_bits()
        for raw_type, dtype in (("u12p", "f32"), ("u12_packed", "u8"), ("u8", "u16"), ("f32", "i16")):
            with self.assertRaises(octavo.OctavoError) as refused:
                self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=5, columns=33, frames=9, raw_type=raw_type, dtype=dtype)))
            self.assertEqual((refused.exception.code, refused.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "tomography.push.raw_type"))
        name = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=5, columns=33, frames=9, raw_type="u12p", dtype="u16"))).name
        for array, said in ((projections[0].astype(np.float32), r"frame 0 is float32 \(5, 33\); the job wants rows packed as u12p, uint8 \(5, 50\), or uint16 \(5, 33\)"),
                            (octavo.pack12(projections[0, :, :32]), r"frame 0 is uint8 \(5, 48\)"), (np.where(projections[0] > 3000, 4096, 0).astype("u2"), "frame 0 has the value 4096"),
                            (octavo.pack12(projections[0])[:4], r"uint8 \(4, 50\)")):
            with self.assertRaisesRegex(ValueError, said):
                self.client.push_projections(name, [octavo.ProjectionFrame(0, array)], end=False)
        self.assertEqual(self.client.job(name).state, job_pb2.JOB_STATE_RUNNING)
        client = self.raw(name)
        client.until(lambda a: a.credit > 0)
        client.send(0, projections[0])  # numbers, not packed
        self.assertIn("data: has 330 bytes; 5 rows have 250", str(client.error()))
        self.client.cancel_job(name)

    def test_a_broken_connection_is_taken_up_again(self):
        projections, flats, darks, angles = phantom()
        whole = self.client.submit_job(job(push=push_spec(projections, flats, darks)))
        self.client.push_projections(whole.name, octavo.projection_frames(projections, angles, flats, darks))
        expected = self.read(self.client.wait_job(whole.name))

        proxy = CuttingProxy(self.daemon.address)
        self.addCleanup(proxy.close)
        broken = self.client.submit_job(job(push=push_spec(projections, flats, darks, credit_messages=2)))

        def frames():
            for frame in octavo.projection_frames(projections, angles, flats, darks):
                if frame.sequence in (7, 15):
                    proxy.cut()
                yield frame

        with octavo.Client(proxy.address) as client:
            result = client.push_projections(broken.name, frames())
        self.assertTrue(result.done)
        self.assertGreaterEqual(result.status.connections, 2)
        self.assertEqual((result.status.frames, result.status.missing_frames), (29, 0))
        np.testing.assert_array_equal(self.read(self.client.wait_job(broken.name)), expected)

    def test_several_connections_push_side_by_side(self):
        projections, flats, darks, angles = phantom(angles=90)
        frames = list(octavo.projection_frames(projections, angles, flats, darks))
        one = self.client.submit_job(job(push=push_spec(projections, flats, darks))).name
        self.client.push_projections(one, frames)
        expected = self.read(self.client.wait_job(one))
        name = self.client.submit_job(job(push=push_spec(projections, flats, darks, credit_messages=2))).name
        together, results = threading.Barrier(5), [None] * 5

        def push(i):
            with self.daemon.client() as client:
                def mine():
                    together.wait(30)  # all clients are connected, and none has sent `end`
                    yield from frames[i::5]
                results[i] = client.push_projections(name, mine())

        threads = [threading.Thread(target=push, args=(i,)) for i in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertTrue(all(r.done and r.connections == 1 for r in results), results)
        end = self.client.wait_job(name)
        self.assertEqual([r.status.connections for r in results], [5] * 5)
        np.testing.assert_array_equal(self.read(end), expected)

    def test_gaps_duplicates_and_an_early_end(self):
        projections, flats, darks, angles = phantom()
        name = self.client.submit_job(job(push=push_spec(projections, flats, darks))).name
        frames = list(octavo.projection_frames(projections, angles, flats, darks))
        sent = frames[:12] + frames[3:5] + frames[14:28]
        result = self.client.push_projections(name, sent)
        self.assertTrue(result.done)
        self.assertEqual((result.status.frames, result.status.gaps, result.status.missing_frames, result.status.duplicate_frames), (26, 1, 2, 2))
        self.assertEqual(result.missing, [(12, 2), (28, 1)])
        end = self.client.wait_job(name)
        self.assertTrue(any("3 of 29 frames never came, the first is 12" in line.text for line in end.log_lines), end.log_lines)
        self.assertEqual(list(end.warnings)[:1], ["3 of 29 frames never came, the first is 12; the volume is made of the others and is not complete "
                                                  "(tomography.push.on_missing = FAIL_JOB fails instead)"])
        volume = self.client.volume(end.volume_names[0])
        self.assertEqual((volume.complete, volume.missing_frames, volume.expected_frames), (False, 3, 29))
        self.assertEqual([(r.first, r.count) for r in volume.missing_frame_ranges], [(12, 2), (28, 1)])
        # Equal to the result of a job that never expected them.
        kept = [f for f in frames if f.sequence not in (12, 13, 28)]
        fewer = ingest_pb2.PushedProjections(rows=2, columns=32, frames=len(kept), dtype=types_pb2.DTYPE_U16)
        other = self.client.submit_job(job(push=fewer)).name
        self.client.push_projections(other, [octavo.ProjectionFrame(i, f.array, f.kind, f.angle_rad) for i, f in enumerate(kept)])
        whole = self.client.wait_job(other)
        np.testing.assert_array_equal(self.read(end), self.read(whole))
        volume = self.client.volume(whole.volume_names[0])
        self.assertEqual((volume.complete, volume.missing_frames, volume.expected_frames, len(whole.warnings)), (True, 0, len(kept), 0))
        # The files list the missing frames.
        with open(self.client.commit(end.volume_names[0], "gaps", format="npy").path + ".json") as file:
            self.assertEqual(json.load(file)["processing"]["missing_frames"], dict(count=3, of=29, first_ranges=[[12, 2], [28, 1]]))

    def test_more_frames_than_the_job_takes_are_told(self):
        projections, flats, darks, angles = phantom()  # 24, 3, 2
        all_of_them = lambda: octavo.projection_frames(projections, angles, flats, darks)
        frames = list(all_of_them())
        together = "frames were given, the job takes 24 (projections, flat and dark fields together: PushedProjections(frames=))"
        cases = [(all_of_them(), f"29 {together}: 5 of them, those with sequence number 24 and above are left out"), (frames, f"29 {together}: 5 of them"),
                 (frames[:24], ""), (frames[20:24] + frames[:24], ""),
                 (frames[::-1], "left out"), ((f for f in frames), "more frames were given than the 24 that the job takes"),
                 (itertools.chain(frames, itertools.repeat(frames[-1])), "more frames were given than the 24 that the job takes")]
        for given, words in cases:
            job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=32, frames=24)))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = self.client.push_projections(job, given)
            self.assertEqual((result.done, result.missing), (True, []))
            self.assertEqual([w.filename for w in caught], [__file__] * bool(words))
            for warning in caught:
                self.assertIn(words, str(warning.message))
                self.assertIn(f"{job.name}: ", str(warning.message))
            self.client.cancel_job(job.name)
            self.client.wait_job(job.name, check=False)

    def test_half_of_the_frames_by_either_policy(self):
        """A scan breaks off; seeds and shares vary."""
        seed = int(os.environ.get("OCTAVO_TEST_SEED", time.time_ns() % 10 ** 6))
        print("seed", seed)
        random = np.random.default_rng(seed)
        projections, flats, darks, angles = phantom(angles=90)
        frames = list(octavo.projection_frames(projections, angles, flats, darks))
        for on_missing in ("fail_job", "reconstruct_anyway", ""):
            came = sorted(random.choice(len(frames), random.integers(40, len(frames)), replace=False).tolist())
            push = octavo.PushedProjections(rows=2, columns=32, frames=len(frames), dtype="u16", on_missing=on_missing or None)
            name = self.client.submit_job(octavo.tomography(push)).name
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", octavo.OctavoWarning)
                self.client.push_projections(name, [frames[i] for i in came])
                end = self.client.wait_job(name, check=False)
            lacking = len(frames) - len(came)
            if on_missing == "fail_job":
                self.assertEqual((end.state, end.reason_code, len(end.volume_names)), (job_pb2.JOB_STATE_FAILED, reason_pb2.REASON_FRAMES_MISSING, 0))
                self.assertIn(f"{lacking} of {len(frames)} frames never came, the first is", end.reason)
                self.assertIn("tomography.push.on_missing is FAIL_JOB", end.reason)
            else:
                self.assertEqual(end.state, job_pb2.JOB_STATE_DONE, end.reason)
                volume = self.client.volume(end.volume_names[0])
                self.assertEqual((volume.complete, volume.missing_frames), (False, lacking))
                self.assertTrue(any(f"{lacking} of {len(frames)} frames never came" in text for text in end.warnings), end.warnings)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=32, frames=9, on_missing=7)))
        self.assertEqual(caught.exception.field, "tomography.push.on_missing")

    def test_a_job_that_waits_for_its_device_takes_projections(self):
        projections, flats, darks, angles = phantom()
        first = self.client.submit_job(job(push=push_spec(projections, flats, darks))).name
        second = self.client.submit_job(job(push=push_spec(projections, flats, darks))).name
        self.assertTrue(self.client.push_projections(second, octavo.projection_frames(projections, angles, flats, darks)).done)
        self.assertTrue(self.client.push_projections(first, octavo.projection_frames(projections, angles, flats, darks)).done)
        np.testing.assert_array_equal(self.read(self.client.wait_job(first)), self.read(self.client.wait_job(second)))

    def test_other_jobs_of_the_device_finish_while_one_waits(self):
        projections, flats, darks, angles = phantom()
        np.save(os.path.join(self.daemon.root, "scan.npy"), projections.astype("<f4") / 40000)
        from_file = dict(file=dict(path="scan.npy"), angles_rad=angles, preparation=dict(logarithm=False))
        if len(self.client.devices()) > 1:
            self.skipTest("another device would have the other jobs")
        name = self.client.submit_job(job(push=push_spec(projections, flats, darks))).name
        frames = list(octavo.projection_frames(projections, angles, flats, darks))
        self.client.push_projections(name, frames[:10], end=False)
        for _ in range(3):
            done = self.client.wait_job(self.client.submit_job(job(**from_file)).name)
            self.client.discard(done.volume_names[0])
        waiting = self.client.job(name)
        self.assertEqual((waiting.state, waiting.stage), (job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STAGE_PROJECTIONS))
        self.client.cancel_job(self.client.submit_job(job(push=push_spec(projections, flats, darks))).name)
        self.assertTrue(self.client.push_projections(name, frames[10:]).done)
        self.assertEqual(len(self.client.wait_job(name).volume_names), 1)

    def test_nothing_rests_on_angles_that_are_not_known(self):
        """Before its frames come, the angles of a push are unknown; the checks of them come with the frames."""
        def plan(frames, prepare=None, **fields):
            spec = job(push=ingest_pb2.PushedProjections(rows=4, columns=64, frames=frames, dtype=types_pb2.DTYPE_F32),
                       preparation=tomography_pb2.TomographyPreparation(ignore_fields=True, **prepare or {}), **fields)
            return self.client.plan_job(spec).warnings

        center = tomography_pb2.RotationCenter
        ranges = (dict(), dict(begin=0, end=150), dict(begin=300), dict(begin=17, end=390, step=3), dict(end=400, step=100), dict(begin=200, end=220))
        for used in ranges:
            for method in (center.METHOD_AUTO, center.METHOD_PAIRS, center.METHOD_PHASE_CORRELATION, center.METHOD_VO, center.METHOD_ENTROPY):
                with self.subTest(used=used, method=method):
                    spec = job(push=ingest_pb2.PushedProjections(rows=4, columns=64, frames=400, dtype=types_pb2.DTYPE_F32), projections=used,
                               preparation=dict(ignore_fields=True))
                    spec.tomography.center.search_method = method
                    self.assertEqual(len(self.client.plan_job(spec).warnings), 1 if used.get("step") == 100 else 0)  # too few
            for bins in (1, 4):
                with self.subTest(used=used, bins=bins):
                    self.assertEqual([w for w in plan(400, dict(bin_angles=bins), projections=used, center=31) if "too few" not in w], [])
        self.assertEqual(list(plan(12, dict(bin_angles=4), center=31)), [])
        # A scan over several turns.
        for half in (0, 50, 100, 200):
            plan(400, dict(stitching=dict(overlap=10, half_turn=half)))
        # A scan over 90 degrees with flat and dark fields: warned of once, when it has come.
        projections, flats, darks, angles = phantom(angles=40)
        for given in (15.5, None):
            spec = job(push=push_spec(projections, flats, darks), projections=dict(begin=0, end=30), center=given)
            name = self.client.submit_job(spec).name
            self.assertFalse(self.client.job(name).warnings)
            self.client.push_projections(name, octavo.projection_frames(projections, angles / 2, flats, darks))
            with self.assertWarns(octavo.OctavoWarning):
                end = self.client.wait_job(name)
            self.assertEqual(sum("leave a gap" in text for text in end.warnings), 1, end.warnings)
            self.client.discard(end.volume_names[0])
        # And so is a search that they do not allow: an error of the job.
        spec = job(push=push_spec(projections, flats, darks), projections=dict(begin=0, end=30))
        spec.tomography.center.search_method = center.METHOD_PAIRS
        name = self.client.submit_job(spec).name
        self.client.push_projections(name, octavo.projection_frames(projections, angles / 2, flats, darks))
        self.assertIn("no projections half a turn apart", self.client.wait_job(name, check=False).reason)

    def test_errors_name_the_field_and_end_only_the_stream(self):
        projections, flats, darks, angles = phantom()
        name = self.client.submit_job(job(push=push_spec(projections, flats, darks))).name
        for request, field in ((dict(rows=3), "rows"), (dict(rows=1), "data"), (dict(first_row=2), "first_row"), (dict(angle_rad=float("nan")), "angle_rad"),
                               (dict(kind=7), "kind"), (dict(job=name), "job")):
            with self.subTest(field=field):
                client = self.raw(name)
                client.until(lambda a: a.credit > 0)
                client.send(0, projections[0], **request)
                error = client.error()
                self.assertEqual(error.code, grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn(field, str(error))
        nothing = self.raw(name)
        nothing.until(lambda a: a.credit > 0)
        nothing.requests.put(ingest_pb2.PushProjectionsRequest())
        self.assertIn("rows: is 0, and the message neither holds data nor ends the stream", str(nothing.error()))
        newer = self.raw(name)
        newer.until(lambda a: a.credit > 0)
        self.assertEqual(self.raw("jobs/none").error().code, grpc.StatusCode.NOT_FOUND)
        self.client.cancel_job(name)
        self.assertTrue(newer.until(lambda a: a.done).done)  # the server reports it at once
        self.client.wait_job(name, check=False)
        error = self.raw(name).error()
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.FAILED_PRECONDITION, "JOB_STATE"))

    def test_silence_fails_the_job(self):
        projections, flats, darks, angles = phantom()
        name = self.client.submit_job(job(push=push_spec(projections, flats, darks, idle_timeout=Duration(nanos=300_000_000)))).name
        end = self.client.wait_job(name, check=False)
        self.assertEqual((end.state, end.reason_code), (job_pb2.JOB_STATE_FAILED, reason_pb2.REASON_SOURCE_STALLED))
        self.assertIn("0 of 29 frames", end.reason)


class LittleMemory(unittest.TestCase):
    def test_frames_that_do_not_fit_are_refused_and_memory_comes_back(self):
        projections, flats, darks, angles = phantom()
        daemon = Daemon("--device.projection_bytes", "8192")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            client.wait_job(self.done(client, projections[:24], angles))  # 24 x 2 x 32 x 2 = 6144 bytes
            with self.assertRaises(octavo.OctavoError) as caught:
                client.submit_job(job(push=push_spec(np.zeros((33, 2, 64), "<u2"), [], [])))
            self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "HOST_MEMORY"))
            client.wait_job(self.done(client, projections[:24], angles))
        self.assertEqual(daemon.stop(), 0)

    @staticmethod
    def done(client, projections, angles):
        name = client.submit_job(job(push=push_spec(projections, [], []), preparation=dict(logarithm=False))).name
        client.push_projections(name, octavo.projection_frames(projections, angles))
        return name


if __name__ == "__main__":
    unittest.main()
