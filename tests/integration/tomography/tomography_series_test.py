"""A series of volumes (4-D): a window slides over projections of files, and of scans that go on."""

import os
import time
import unittest
import warnings

import numpy as np

from harness import Daemon, DaemonTest, octavo, until
from octavo.v1 import job_pb2, tomography_pb2
from tomography_push_test import phantom, push_spec

CENTER = 15.5  # the middle of 32 columns


def growing(volumes=4, angles=24, rows=3, columns=32):
    """Counts of a disc that grows from volume to volume: projections [volumes * angles, rows, columns], flats, darks, angles."""
    parts = [phantom(angles, rows, columns, seed) for seed in range(volumes)]
    projections = np.concatenate([np.round(100 + (part[0] - 100.0) ** (1 + 0.02 * i) / 40000 ** (0.02 * i)).astype("<u2") for i, part in enumerate(parts)])
    return projections, parts[0][1], parts[0][2], np.concatenate([part[3] + np.pi * i for i, part in enumerate(parts)])


class Series(DaemonTest):
    def tearDown(self):
        for name in [j.name for j in self.client.jobs() if j.state in ("QUEUED", "RUNNING")]:
            self.client.cancel_job(name)
            self.client.wait_job(name, check=False)
        for volume in self.client.volumes():
            if volume.state == "HELD":
                self.client.discard(volume.name)
        super().tearDown()

    def alone(self, part, **fields):
        """The volume that a job of those projections alone makes."""
        projections, flats, darks, angles = self.scan
        push = self.client.submit_job(octavo.tomography(push_spec(projections[part], flats, darks), center=CENTER, **fields))
        self.client.push_projections(push, octavo.projection_frames(projections[part], angles[part], flats, darks))
        job = self.client.wait_job(push.name)
        array = self.client.read(job.volume_names[0])
        self.client.discard(job.volume_names[0])
        return array

    def setUp(self):
        super().setUp()
        self.scan = growing()

    def frames(self):
        return list(octavo.projection_frames(self.scan[0], self.scan[3], self.scan[1], self.scan[2]))

    def submit(self, series=(24, 24), **fields):
        options = {name: fields.pop(name) for name in list(fields) if name in ("commit", "results", "title", "labels", "ttl", "session", "orphan")}
        return self.client.submit_job(octavo.tomography(push_spec(*self.scan[:3], **fields.pop("push", {})), center=CENTER, series=series, **fields), **options)

    def until(self, what, seconds=30):
        end = time.monotonic() + seconds
        while not (found := what()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return found

    def held(self, job, count):
        """The job, when so many of its volumes are held."""
        return self.until(lambda: (now := self.client.job(job.name)).tomography is not None and now.tomography.series_volumes >= count and now)

    def test_volumes_are_there_while_the_scan_goes_on(self):
        frames, job = self.frames(), self.submit()
        fields = len(self.scan[1]) + len(self.scan[2])
        self.assertIn("series: 4 volumes of 24 projections each, a new one every 24", job.plan)
        given = job.series_volumes(timeout=60)
        for i in range(4):
            begin, end = (0 if i == 0 else fields + 24 * i), fields + 24 * (i + 1)
            self.client.push_projections(job, frames[begin:end], end=False)
            volume = next(given)  # before later frames are pushed
            self.assertEqual((volume.state, volume.index, volume.parent), ("HELD", i, job.name))
            self.assertEqual({key: value for key, value in volume.labels.items() if "angle" not in key},
                             {"series.first_projection": str(24 * i), "series.projections": "24"})
            self.assertAlmostEqual(float(volume.labels["series.first_angle_deg"]), 180 * i, 6)
            self.assertAlmostEqual(float(volume.labels["series.last_angle_deg"]), 180 * i + 172.5, 6)
            self.assertTrue(volume.complete)
            np.testing.assert_array_equal(volume.read(), self.alone(slice(24 * i, 24 * i + 24)))
            now = self.client.job(job.name)
            if i < 3:
                self.assertEqual(now.state, "RUNNING")
                self.assertEqual((now.tomography.series_volumes, now.tomography.series_planned), (i + 1, 4))
            if i == 1:  # what nobody needs gives its memory back at once
                volume.discard()
        self.assertEqual(list(given), [])
        ended = self.client.wait_job(job.name)
        states = [self.client.volume(name).state for name in ended.volume_names]
        self.assertEqual(states, ["HELD", "DISCARDED", "HELD", "HELD"])
        begins = [self.client.volume(name).acquire_begin_time for name in ended.volume_names]
        self.assertEqual(begins, sorted(begins))

    def test_windows_that_overlap_and_windows_with_gaps_of_a_file(self):
        projections, _, _, angles = self.scan
        lines = -np.log((projections - 99.0) / 40000).astype("<f4")
        np.save(os.path.join(self.daemon.root, "scan.npy"), lines)
        prepare = octavo.preparation(already_sinograms=True)
        for series, place in (((24, 12), ""), ((24, 36), "disk"), ((96, 1), ""), (30, "disk")):
            with self.subTest(series=series, place=place):
                length, step = series if isinstance(series, tuple) else (series, series)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    job = self.client.wait_job(self.client.submit_job(octavo.tomography("scan.npy", angles=angles, center=CENTER, prepare=prepare, series=series, place=place)))
                self.assertEqual(any(f"{step - length} projections are left out" in str(w.message) for w in caught), step > length)
                self.assertEqual(len(job.volume_names), (96 - length) // step + 1)
                for i, name in enumerate(job.volume_names):
                    self.assertEqual((self.client.volume(name).index, self.client.volume(name).tier), (i, "DISK" if place else "DEVICE"))
                    one = self.client.wait_job(self.client.submit_job(octavo.tomography(
                        "scan.npy", angles=angles, center=CENTER, prepare=prepare, projections=(step * i, step * i + length))))
                    np.testing.assert_array_equal(self.client.read(name), self.client.read(one.volume_names[0]))
                    self.client.discard(one.volume_names[0])
                    self.client.discard(name)

    def test_a_cancel_leaves_what_is_held_and_says_so(self):
        frames, job = self.frames(), self.submit(title="cut short")
        self.client.push_projections(job, frames[:60], end=False)  # two volumes, and a part of the third
        self.held(job, 2)
        self.client.cancel_job(job.name)
        end = self.client.wait_job(job.name, check=False)
        self.assertEqual((end.state, len(end.volume_names)), ("CANCELLED", 2))
        for i, name in enumerate(end.volume_names):
            volume = self.client.volume(name)
            self.assertEqual((volume.state, volume.index, volume.title), ("HELD", i, "cut short"))
            np.testing.assert_array_equal(volume.read(), self.alone(slice(24 * i, 24 * i + 24)))
        names = []
        with self.assertRaises(octavo.OctavoError):
            for volume in self.client.series_volumes(job.name):
                names.append(volume.name)
        self.assertEqual(names, end.volume_names)

    def test_frames_that_never_come(self):
        fields = len(self.scan[1]) + len(self.scan[2])
        frames = [f for f in self.frames() if f.sequence not in (fields + 30, fields + 31)]
        for on_missing in ("reconstruct_anyway", "fail_job"):
            job = self.client.submit_job(octavo.tomography(
                octavo.PushedProjections(rows=3, columns=32, frames=len(frames) + 2, dtype="u16", on_missing=on_missing), center=CENTER, series=24))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", octavo.OctavoWarning)
                self.client.push_projections(job, frames)
                end = self.client.wait_job(job.name, check=False)
            whole = [self.client.volume(name).complete for name in end.volume_names]
            if on_missing == "fail_job":
                self.assertEqual((end.state, str(end.reason_code), whole), ("FAILED", "FRAMES_MISSING", [True]))
            else:
                self.assertEqual((end.state, whole), ("DONE", [True, False, True]))
                self.assertTrue(any("the last 22 projections fill no volume" in line.text for line in end.log_lines))
                ranges = self.client.volume(end.volume_names[1]).missing_frame_ranges
                self.assertEqual([(r.first, r.count) for r in ranges], [(fields + 30, 2)])

    def test_each_is_committed_as_it_is_held(self):
        frames, job = self.frames(), self.submit(commit="four/part-{index:03}.npy")
        self.client.push_projections(job, frames[:30], end=False)
        path = os.path.join(self.daemon.root, "four", "part-000.npy")
        self.until(lambda: self.client.job(job.name).commits)
        self.assertEqual(self.client.job(job.name).state, "RUNNING")
        np.testing.assert_array_equal(np.load(path), self.alone(slice(0, 24)))
        # A destination that is taken by then: that volume stays held.
        open(os.path.join(self.daemon.root, "four", "part-002.npy"), "w").close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)
            self.client.push_projections(job, frames[30:])
            with self.assertRaises(octavo.OctavoError):
                self.client.wait_commit(job.name, timeout=60)
        end = self.client.job(job.name)
        self.assertEqual((len(end.commits), end.commit_failures), (3, 1))
        self.assertEqual([self.client.volume(name).state for name in end.volume_names], ["COMMITTED", "COMMITTED", "HELD", "COMMITTED"])
        self.assertEqual(sorted(os.path.basename(p) for p in end.commits), ["part-000.npy", "part-001.npy", "part-003.npy"])
        for i in (1, 3):
            np.testing.assert_array_equal(np.load(os.path.join(self.daemon.root, "four", f"part-{i:03}.npy")), self.alone(slice(24 * i, 24 * i + 24)))
        whole = self.submit(series=(24, 24), commit="all-{index}.npy")
        self.client.push_projections(whole, frames)
        self.assertEqual(len(self.client.wait_commit(whole.name, timeout=60).commits), 4)

    def test_results_go_to_another_tier_as_each_is_held(self):
        frames, job = self.frames(), self.submit(results="disk")
        self.client.push_projections(job, frames[:30], end=False)
        name = self.held(job, 1).volume_names[0]
        self.until(lambda: self.client.volume(name).tier == "DISK")
        self.assertEqual(self.client.job(job.name).state, "RUNNING")
        self.client.push_projections(job, frames[30:])
        self.client.wait_job(job.name)

    def test_levels_of_all_are_those_of_the_first(self):
        frames, job = self.frames(), self.submit(samples="u8")
        self.client.push_projections(job, frames)
        end = self.client.wait_job(job.name)
        levels = {(v.levels.lo, v.levels.hi) for v in map(self.client.volume, end.volume_names)}
        self.assertEqual(len(levels), 1)
        window = levels.pop()
        np.testing.assert_array_equal(self.client.read(end.volume_names[3]), self.alone(slice(72, 96), samples="u8", window=window))

    def test_recon_of_arrays_gives_the_volumes_in_their_order(self):
        projections, _, _, angles = self.scan
        lines = -np.log((projections - 99.0) / 40000).astype(np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)  # projections are left out
            both = octavo.recon(lines, angles, center=CENTER, algorithm="fbp", series=(24, 36), client=self.client)
        self.assertEqual(both.shape, (3, 3, 32, 32))
        for i in range(3):
            one = octavo.recon(lines[36 * i:36 * i + 24], angles[36 * i:36 * i + 24], center=CENTER, algorithm="fbp", client=self.client)
            np.testing.assert_array_equal(both[i], one)
        self.assertEqual([v.name for v in self.client.volumes() if v.state == "HELD"], [])

    def test_volumes_that_the_device_cannot_hold_together_go_to_disk(self):
        lines = np.random.default_rng(3).random((80, 40, 128)).astype("<f4")  # a volume has 2.6 MB
        angles = np.arange(80) * np.pi / 20
        work = dict(angles=angles, center=63.5, prepare=octavo.preparation(already_sinograms=True))
        daemon = Daemon("--device.memory_bytes", str(16 << 20))
        try:
            with daemon.client() as client:
                np.save(os.path.join(daemon.root, "scan.npy"), lines)
                for series, tier in ((80, "DEVICE"), ((40, 40), "DEVICE"), ((20, 4), "DISK")):
                    job = client.wait_job(client.submit_job(octavo.tomography("scan.npy", series=series, **work)))
                    held = [client.volume(name) for name in job.volume_names]
                    self.assertEqual({volume.tier for volume in held}, {tier})
                    self.assertLess(job.memory_bytes, 16 << 20)
                    self.assertEqual(sum(d.held_bytes + d.reserved_bytes for d in client.devices()) > 0, tier == "DEVICE")
                    if tier == "DEVICE":
                        self.assertGreaterEqual(job.memory_bytes, sum(volume.bytes for volume in held))
                        for volume in held:
                            volume.discard()
                self.assertEqual(len(held), 16)
                one = client.wait_job(client.submit_job(octavo.tomography("scan.npy", projections=(60, 80), **work)))
                np.testing.assert_array_equal(held[15].read(), client.read(one.volume_names[0]))
                with self.assertRaises(octavo.OctavoError) as caught:
                    client.submit_job(octavo.tomography("scan.npy", series=(20, 4), place="device", **work))
                self.assertEqual(caught.exception.reason, "EXCEEDS_BUDGET")
                # On disk a longer series needs hardly more of the device.
                needs = [client.wait_job(client.submit_job(octavo.tomography("scan.npy", series=series, place="disk", **work))).memory_bytes for series in ((40, 40), (40, 1))]
                self.assertLess(needs[1] - needs[0], 60 * 1024)
        finally:
            daemon.remove()

    def test_volumes_on_disk_outlive_a_server_that_is_killed(self):
        daemon = Daemon()
        again = None
        try:
            with daemon.client() as client:
                push = push_spec(*self.scan[:3])
                job = client.submit_job(octavo.tomography(push, center=CENTER, series=24, place="disk"))
                client.push_projections(job, self.frames()[:60], end=False)
                until(lambda: (now := client.job(job.name)).tomography is not None and now.tomography.series_volumes == 2)
                before = {name: client.read(name) for name in client.job(job.name).volume_names}
                self.assertEqual(len(before), 2)
                daemon.kill()
            again = Daemon(directory=daemon.directory)
            with again.client() as client:
                lost = client.job(job.name)
                self.assertEqual((lost.state, lost.volume_names), ("LOST", list(before)))
                held = sorted(client.volumes(job.name), key=lambda volume: volume.index)
                self.assertEqual([(volume.name, volume.state, volume.tier, volume.index) for volume in held],
                                 [(name, "HELD", "DISK", i) for i, name in enumerate(before)])
                for volume in held:
                    np.testing.assert_array_equal(volume.read(), before[volume.name])
        finally:
            if again is not None:
                again.remove()
            daemon.remove()

    def test_mistakes_name_field_value_and_what_is_allowed(self):
        push = push_spec(*self.scan[:3])
        VolumeSeries = tomography_pb2.VolumeSeries
        for series, words in ((VolumeSeries(projections=0, step=1), "tomography.series.projections: is 0; allowed 1 to 65535"),
                              (VolumeSeries(projections=24), "tomography.series.step: is 0; allowed 1 to 4294967295"),
                              (VolumeSeries(projections=65536, step=1), "tomography.series.projections: is 65536; allowed 1 to 65535"),
                              (VolumeSeries(projections=1000, step=10), "is 1000, and the job uses 101 projections; allowed 1 to 101")):
            job = job_pb2.JobSpec(tomography=tomography_pb2.TomographyJob(push=push, series=series))
            for call in (self.client.submit_job, self.client.plan_job):
                with self.assertRaises(octavo.OctavoError) as caught:
                    call(job)
                self.assertIn(words, str(caught.exception))
        many = octavo.PushedProjections(rows=1, columns=8, frames=6000, dtype="u8")
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.tomography(many, series=(100, 1)))
        self.assertIn("tomography.series.step: is 1, which makes 5901 volumes of 6000 projections; allowed are 4096 volumes, with a step of 2 or more", str(caught.exception))
        tries = tomography_pb2.TomographyJob(push=push, series=VolumeSeries(projections=24, step=24), try_centers=dict(begin=1, end=2, step=1))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(job_pb2.JobSpec(tomography=tries))
        self.assertIn("tomography.try_centers: is given together with series", str(caught.exception))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.submit(commit="same.npy")
        self.assertIn("commit.destination: is 'same.npy', the same for every volume of tomography.series; allowed is a path with {index} in it", str(caught.exception))
        os.makedirs(os.path.join(self.daemon.root, "taken"), exist_ok=True)
        open(os.path.join(self.daemon.root, "taken", "0.npy"), "w").close()
        with self.assertRaises(octavo.OctavoError) as caught:
            self.submit(commit="taken/{index}.npy")
        self.assertIn("ALREADY_EXISTS: commit.destination", str(caught.exception))
        for series in ((24,), (24, 0), "24", (0, 1), (24, 1, 1), 1.5):
            with self.assertRaises(ValueError, msg=series):
                octavo.tomography(push, series=series)
        with self.assertRaises(ValueError):
            octavo.tomography(push, series=24, try_centers=(1, 2, 1))
        one = self.client.submit_job(octavo.tomography(push))
        with self.assertRaises(ValueError):
            next(self.client.series_volumes(one.name))
        self.assertEqual([j.state for j in self.client.jobs()].count("RUNNING"), 1)


if __name__ == "__main__":
    unittest.main()
