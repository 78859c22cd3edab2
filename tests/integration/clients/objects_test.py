"""The objects that calls of octavo from Python give, against a server: their methods, names in their place, wrong kinds, other servers."""

import datetime
import inspect
import os
import tempfile
import unittest
import warnings

import numpy as np

from harness import DaemonTest, octavo
from octavo.v1 import job_pb2, volume_pb2

SHAPE = (6, 12, 64)


class Objects(DaemonTest):
    def submit(self, volumes=1, **fields):
        return self.client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(SHAPE[1], SHAPE[0], volumes=volumes),
                                       samples=2 * SHAPE[2], **fields)

    def live(self, **fields):
        """A scan that runs until it is stopped."""
        return self.client.submit_scan(octavo.simulated(seed=3), octavo.raster(SHAPE[1], SHAPE[0], volumes=0), samples=2 * SHAPE[2], rate_hz=4000, **fields)

    def raw(self):
        """The raw spectra of a volume, held."""
        scan = self.submit(retention=dict(hold_raw=True)).wait()
        return next(volume for volume in scan.volumes() if volume.raw)

    def test_a_scan(self):
        scan = self.submit(volumes=2, title="mouse", labels={"eye": "OD"})
        self.assertIsInstance(scan, octavo.Scan)
        self.assertIs(scan.wait(), scan)
        self.assertEqual((scan.state, str(scan.state), scan.reason_code, scan.volumes_done), ("done", "DONE", "COMPLETED", 2))
        self.assertEqual(repr(scan), f"<Scan {scan.name} DONE 2 volumes 'mouse'>")
        self.assertEqual((scan.spec.title, scan.spec.labels, scan.spec.simulated.seed, scan.spec.replay), ("mouse", {"eye": "OD"}, 3, None))
        self.assertEqual((scan.spec.retention.mode, scan.events[-1].kind, scan.message.volumes_done), ("capture", "FINISHED", 2))
        now = datetime.datetime.now(datetime.timezone.utc)
        self.assertTrue(scan.create_time <= scan.start_time <= scan.end_time <= now + datetime.timedelta(seconds=5))
        self.assertLess(now - scan.create_time, datetime.timedelta(minutes=2))
        volumes = scan.volumes()
        self.assertEqual([volume.name for volume in volumes], scan.volume_names)
        self.assertEqual((scan.volumes(states=["discarded"]), scan.volumes(["held"])), ([], volumes))
        self.assertEqual([other for other in self.client.scans() if other == scan], [scan])
        again = self.client.submit_scan(scan.spec)  # the spec of another scan, as it is
        self.assertEqual(again.wait().spec.message, scan.spec.message)
        self.assertNotEqual(again, scan)

    def test_a_scan_that_runs(self):
        scan = self.live()
        self.assertIsNone(scan.end_time)
        seen = []
        for state in scan.watch():
            self.assertEqual(state, scan)  # the same scan, another object
            self.assertIsNot(state, scan)
            seen.append(str(state.state))
            if state.records and "stopped" not in seen:
                event = scan.mark("here")
                self.assertEqual((event.kind, event.marker), ("marker", "here"))
                self.assertEqual(scan.update(octavo.processing(window="blackman"), "window").spec.processing.window, "blackman")
                self.assertIs(scan.stop(), scan)
                seen.append("stopped")
        self.assertEqual((seen[-1], scan.refresh().state, scan.reason_code), ("DONE", "DONE", "STOPPED"))
        self.assertIn("here", [event.marker for event in scan.events])
        other = self.live()
        frame = next(iter(other.subscribe(["event"])))
        self.assertEqual((frame.parent, frame.event.kind.descriptor().full_name), (other.name, "octavo.v1.ScanEvent.Kind"))
        self.assertEqual(other.cancel().wait().state, "CANCELLED")

    def test_a_volume(self):
        (volume,) = self.submit().wait().volumes()
        self.assertIsInstance(volume, octavo.Volume)
        self.assertEqual(repr(volume), f"<Volume {volume.name} HELD {list(SHAPE)} U16 9 KiB>")
        self.assertEqual((volume.tier, volume.moving, bool(volume.moving), volume.expire_time, volume.commit_result), ("DEVICE", 0, False, None, None))
        array = volume.read()
        self.assertEqual((array.shape, array.dtype), (SHAPE, np.dtype(volume.dtype)))
        np.testing.assert_array_equal(np.asarray(volume), array)
        np.testing.assert_array_equal(np.max(volume, axis=2), array.max(axis=2))
        self.assertEqual(np.asarray(volume, np.float32).dtype, np.float32)
        np.testing.assert_array_equal(volume.read(start=(1, 2, 3), count=(2, 3, 4)), array[1:3, 2:5, 3:7])
        projected = volume.derive({"mip": {"axis": "z"}})
        np.testing.assert_array_equal(np.asarray(projected)[:, :, 0], array.max(axis=2))
        self.assertEqual((projected.derived_from, projected.wait().state), (volume.name, "HELD"))
        self.assertIs(volume.hold(), volume)
        self.assertTrue(volume.marked)
        self.assertFalse(volume.release().marked)
        self.assertEqual((volume.spill().tier, self.client.volume(volume).tier, volume.restore().tier), ("DISK", "DISK", "DEVICE"))
        steps = []
        result = volume.commit("here", format="npy", progress=steps.append)
        self.assertEqual((volume.state, volume.commit_result, result.format), ("COMMITTED", result, "npy"))
        self.assertGreaterEqual(len(steps), 1)
        self.assertGreater(result.elapsed, datetime.timedelta(0))
        np.testing.assert_array_equal(np.load(result.path), array)
        self.assertEqual((volume.refresh().state, volume.commit_result.path), ("COMMITTED", result.path))
        self.assertEqual((projected.discard().state, projected.refresh().state), ("DISCARDED", "DISCARDED"))
        os.remove(result.path)

    def test_what_another_does_shows_after_refresh(self):
        (volume,) = self.submit().wait().volumes()
        other = self.client.volume(volume)
        other.discard()
        self.assertEqual((volume.state, volume), ("HELD", other))
        self.assertIs(volume.refresh(), volume)
        self.assertEqual(volume.state, "DISCARDED")
        with self.assertRaises(octavo.OctavoError) as caught:
            volume.read()
        self.assertEqual(caught.exception.reason, "VOLUME_GONE")
        self.assertEqual(volume.state, "DISCARDED")  # a call that fails changes nothing

    def test_a_call_that_fails_leaves_the_object(self):
        (volume,) = self.submit().wait().volumes()
        before = volume.message.SerializeToString()
        for call in (lambda: volume.commit("b.png"), lambda: volume.spill("device"), lambda: volume.derive({"cartesian": {}})):
            with self.assertRaises(octavo.OctavoError):
                call()
            self.assertEqual(volume.message.SerializeToString(), before)

    def test_a_job(self):
        raw = self.raw()
        job = self.client.submit_job(octavo.reprocess(raw, octavo.processing(window="hann")))
        self.assertIsInstance(job, octavo.Job)
        seen = [state.state for state in job.watch()]
        self.assertEqual((seen[-1], job.wait().state, job.kind, job.fraction), ("DONE", "DONE", "reprocess", 1))
        (name,) = job.volume_names
        self.assertEqual(self.client.volume(name).derived_from, raw.name)
        self.assertEqual([volume.name for volume in job.volumes()], [name])
        self.assertEqual({step.stage for step in job.history}, {"REPROCESS"})
        self.assertGreaterEqual(job.end_time, job.create_time)
        self.assertIsNone(job.eta)
        waits = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9)))
        self.assertIs(waits.cancel(), waits)
        with self.assertRaises(octavo.OctavoError) as caught:
            waits.wait()
        self.assertEqual((caught.exception.reason, waits.state), ("CANCELLED", "CANCELLED"))
        self.assertEqual((waits.wait(check=False).state, waits.volumes(), waits.volume_names), ("cancelled", [], []))
        self.assertEqual([one.name for one in self.client.jobs(filter=f"state = {waits.state}")], [waits.name])

    def test_lists_and_watches_give_objects(self):
        scan = self.submit(volumes=2, labels={"eye": "OS"}).wait()
        first, second = scan.volumes()
        found = self.client.volumes(filter='labels.eye = "OS"', order_by="index desc")
        self.assertEqual((found, type(found[0])), ([second, first], octavo.Volume))
        self.assertEqual(self.client.scans(filter=f'name = "{scan.name}"'), [scan])
        changes = self.client.watch_volumes(f'parent = "{scan.name}"')
        there = {change.volume: str(change.kind) for change in (next(changes), next(changes))}
        self.assertEqual(there, {first: "EXISTS", second: "EXISTS"})
        first.discard()
        gone = next(changes)
        self.assertEqual((type(gone.volume), gone.volume, gone.kind, gone.volume.state), (octavo.Volume, first, "GONE", "DISCARDED"))
        self.assertEqual(gone.volume.reason_code, "DISCARDED")
        changes.close()

    def test_pictures(self):
        (volume,) = self.submit().wait().volumes()
        picture = volume.render("max", "z", encoding="raw")
        np.testing.assert_array_equal(picture.array, volume.read().max(axis=2))
        self.assertEqual((picture.volume, type(picture.volume), picture.volume.state), (volume, octavo.Volume, "HELD"))
        self.assertEqual(volume.render(index=2, encoding="raw").array.tolist(), volume.read()[2].tolist())
        with tempfile.TemporaryDirectory() as folder:
            at = lambda name: os.path.join(folder, name)  # noqa: E731
            png = volume.render("max")
            for made, name, words in ((png, "x.jpg", ["path is '", "x.jpg', and this is a picture in png; expected a name that ends in .png", "encoding='jpeg'"]),
                                      (png, "x.tif", ["in png; expected a name that ends in .png"]),
                                      (png, "x", ["in png; expected a name that ends in .png"]),
                                      (picture, "x.png", ["this is an array; expected a name that ends in .npy", "encoding='png'"])):
                with self.assertRaises(ValueError) as caught:
                    made.save(at(name))
                for word in words:
                    self.assertIn(word, str(caught.exception))
            self.assertEqual(os.listdir(folder), [])
            for made, name in ((png, "x.PNG"), (picture, "x.npy"), (volume.render("max", encoding="jpeg"), "x.jpeg")):
                made.save(at(name))
            self.assertEqual(sorted(os.listdir(folder)), ["x.PNG", "x.jpeg", "x.npy"])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            bars = volume.render("max", image=dict(scale_bar=True, colour_bar=True))
        self.assertEqual((bars.scale_bar_um, bars.colour_bar_columns), (0, 0))
        self.assertEqual([str(one.message) for one in told], ["no scale bar: the sample spacing along x is unknown",
                                                              f"no colour bar: the picture of {bars.shape[1]} x {bars.shape[0]} pixels is too small for one"])
        self.assertEqual(bars.warnings, tuple(str(one.message) for one in told))
        self.assertEqual(picture.volume.discard().refresh().state, "DISCARDED")

    def test_work_that_goes_on(self):
        (volume,) = self.submit().wait().volumes()
        for start, tier in ((volume.start_spill, "DISK"), (volume.start_restore, "DEVICE")):
            self.client.wait_operation(start())
            self.assertEqual(volume.refresh().tier, tier)
        operation = volume.start_derive({"flip": {}}, request_id="flipped")
        (made,) = self.client.wait_operation(operation).volumes
        self.assertEqual(volume.derive({"flip": {}}, request_id="flipped").name, made)
        operation = volume.start_commit("later", "npy")
        self.assertEqual((operation.target, self.client.wait_operation(operation).commit.path), (volume.name, volume.refresh().commit_result.path))
        self.assertEqual(volume.state, "COMMITTED")
        self.assertEqual([step.done for step in self.client.watch_operation(operation)], [True])
        self.assertEqual(self.client.operation(operation), self.client.cancel_operation(operation))
        os.remove(volume.commit_result.path)

    def test_an_operation(self):
        (volume,) = self.submit().wait().volumes()
        operation = volume.start_derive({"flip": {}})
        self.assertIsInstance(operation, octavo.Operation)
        self.assertIs(operation.wait(timeout=30), operation)
        self.assertEqual((operation.state, operation.kind, operation.done, operation.error, operation.progress.fraction), ("SUCCEEDED", "derive", True, None, 1))
        self.assertEqual(repr(operation), f"<Operation {operation.name} SUCCEEDED derive of {volume.name}>")
        made = operation.result()
        self.assertEqual((made, made.derived_from), (self.client.volume(operation.volumes[0]), volume.name))
        self.assertEqual(self.client.operations(filter=f'name = "{operation.name}"'), [operation])
        self.assertEqual([(type(step), str(step.state)) for step in operation.watch()], [(octavo.Operation, "SUCCEEDED")])
        self.assertEqual((operation.refresh().cancel().state, operation), ("SUCCEEDED", self.client.operation(operation.name)))
        self.assertEqual((volume.start_spill().result().tier, volume.start_restore().result().tier), ("DISK", "DEVICE"))
        steps = []
        made.commit("stages", "npy", progress=steps.append)
        self.assertLessEqual({str(step.stage) for step in steps}, {"WAITING", "PREPARING", "WRITING", "SYNCING"})
        with self.assertRaises(octavo.OctavoError) as caught:
            volume.start_commit("stages", "npy")
        self.assertEqual(caught.exception.reason, "DESTINATION_EXISTS")
        result = volume.start_commit("result", "npy").result(timeout=30)
        self.assertEqual(result, volume.refresh().commit_result)
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9)))
        operation = self.client.operation(job.operation)
        operation.cancel()
        with self.assertRaises(octavo.OctavoError) as caught:
            operation.wait()
        self.assertEqual((operation.state, operation.error.reason, caught.exception.reason), ("CANCELLED", "CANCELLED", "CANCELLED"))
        self.assertEqual(operation.wait(check=False).state, "CANCELLED")

    def test_what_limits_a_wait_is_given_by_name(self):
        """The same words in each class and call, in whichever order."""
        waits = [kind.wait for kind in (octavo.Client, octavo.Scan, octavo.Job, octavo.Operation, octavo.Volume, octavo.Buffer)]
        waits += [octavo.Client.wait_job, octavo.Client.wait_operation, octavo.Client.wait_volume]
        for wait in waits:
            with self.subTest(wait.__qualname__):
                given = {name: p.kind for name, p in inspect.signature(wait).parameters.items() if name in ("timeout", "check")}
                self.assertIn("timeout", given)
                self.assertEqual(set(given.values()), {inspect.Parameter.KEYWORD_ONLY})
        scan = self.submit()
        for wrong in (lambda: scan.wait(30), lambda: self.client.wait(scan, False)):
            with self.assertRaises(TypeError):
                wrong()
        self.assertEqual(scan.wait(check=False, timeout=30).state, self.client.wait(scan, timeout=30, check=True).state)

    def test_a_limit_of_waiting(self):
        scan = self.live()
        with self.assertRaises(octavo.OctavoTimeout) as caught:
            scan.wait(timeout=datetime.timedelta(milliseconds=50))
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertIn(f"after 0.05 s <Scan {scan.name} ", str(caught.exception))
        scan.cancel()
        self.assertEqual(scan.wait(timeout=30).state, "CANCELLED")
        self.assertEqual(scan.wait(timeout=0.5).state, "CANCELLED")
        self.assertEqual(self.client.wait_volume(self.submit().wait().volumes()[0], timeout=30).state, "HELD")

    def test_a_number_names_a_device(self):
        scan = self.submit(device=0).wait()
        self.assertEqual(scan.spec.device, "devices/0")
        self.assertEqual(octavo.job_spec(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9)), device=1).device, "devices/1")

    def test_the_results_of_a_chain(self):
        scan = self.submit(volumes=2, chains={"flat": [{"mip": {"axis": 2}}]})
        results = list(self.client.chain(scan, "flat"))
        self.assertEqual([(type(made), made.chain, made.state) for made in results], [(octavo.Volume, "flat", "HELD")] * 2)

    def test_a_buffer(self):
        values = np.arange(12, dtype=np.float32).reshape(3, 4)
        buffer = self.client.buffers.put(values, labels={"a": "b"})
        self.assertIsInstance(buffer, octavo.Buffer)
        self.assertEqual((buffer.state, buffer.type.dtype, buffer.shape, buffer.labels), ("READY", "F32", [3, 4], {"a": "b"}))
        np.testing.assert_array_equal(np.asarray(buffer), values)
        self.assertIs(buffer.write(values + 1), buffer)
        np.testing.assert_array_equal(buffer.read(start=(1, 0), count=(1, 4)), values[1:2] + 1)
        made = buffer.apply({"scale": {"multiply": 2}}).wait()
        np.testing.assert_array_equal(made.read(), 2 * (values + 1))
        self.assertEqual((made.origin, made.refresh().name), (buffer.name, made.name))
        buffer.apply({"scale": {"multiply": 3}}, output=made)
        np.testing.assert_array_equal(made.wait().read(), 3 * (values + 1))
        self.assertIsNone(buffer.expire_time)
        self.assertLess(buffer.update(ttl=datetime.timedelta(minutes=5)).expire_time - datetime.datetime.now(datetime.timezone.utc),
                        datetime.timedelta(minutes=6))
        events = self.client.buffers.watch()
        there = {event.buffer: str(event.kind) for event in (next(events), next(events))}
        self.assertEqual(there, {buffer: "EXISTS", made: "EXISTS"})
        events.close()
        for one in (buffer, made):
            one.destroy()
        self.assertEqual(self.client.buffers.list(), [])

    def test_a_name_and_an_object_are_the_same_to_every_call(self):
        raw = self.raw()
        volume = next(v for v in self.client.volumes(raw.parent) if not v.raw)
        scan = self.client.scan(raw.parent)
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9)))
        buffer = self.client.buffers.put(np.zeros(4, "f4"))
        c, b = self.client, self.client.buffers
        lease = dict(seconds=30)
        calls = {scan: [c.scan, c.wait, c.stop, c.cancel, lambda s: list(c.watch(s)), lambda s: c.volumes(parent=s), c.waits_for,
                        lambda s: [f.sequence for f in c.subscribe(s, ["mip"])]],
                 volume: [c.volume, c.hold, c.release, c.spill, c.restore, c.wait_volume, lambda v: c.read(v).sum(), lambda v: b.read(v).sum(),
                          lambda v: c.lease(v, **lease).release(), lambda v: c.render(v, "max", encoding="raw").array.sum(), lambda v: c.wait_operation(c.start_restore(v)).target,
                          lambda v: c.derive(v, {"flip": {}}).discard().state,
                          lambda v: b.destroy(b.apply(v, {"flip": {}}))],
                 job: [c.job, lambda j: next(iter(c.watch_job(j))), c.waits_for, lambda j: c.volumes(j), c.cancel_job, lambda j: c.wait_job(j, check=False)],
                 buffer: [b.get, b.wait, lambda x: b.read(x).sum(), lambda x: b.write(x, np.zeros(4, "f4")).name, lambda x: b.update(x, labels={}),
                          lambda x: b.apply(x, {"flip": {}}, output=x), lambda x: c.lease(x, exclusive=True, **lease).release()]}
        for thing, methods in calls.items():
            for i, call in enumerate(methods):
                with self.subTest(f"{type(thing).__name__} {i}"):
                    self.assertEqual(call(thing), call(thing.name))
        self.assertEqual(octavo.reprocess(raw), octavo.reprocess(raw.name))
        buffer.destroy()

    def test_another_kind_is_refused_with_what_is_allowed(self):
        (volume,) = self.submit().wait().volumes()
        scan = self.client.scan(volume.parent)
        buffer = self.client.buffers.put(np.zeros(4, "f4"))
        c, b = self.client, self.client.buffers
        for call, words in ((lambda: c.read(scan), f"name is '{scan.name}', a scan; expected a volume, volumes/<id>. Its volumes are those of "
                                                   f"client.wait('{scan.name}').volumes(): {volume.name}"),
                            (lambda: c.stop(volume), f"name is '{volume.name}', a volume; expected a scan, scans/<id>"),
                            (lambda: c.cancel_job(scan), "a scan; expected a job, jobs/<id>"),
                            (lambda: b.write(volume, np.zeros(4, "f4")), "a volume; expected a buffer, buffers/<id>"),
                            (lambda: b.destroy(scan), "a scan; expected a buffer, buffers/<id>"),
                            (lambda: b.read(scan), "a scan; expected a buffer, buffers/<id> or a volume, volumes/<id>"),
                            (lambda: c.map(scan), "a scan; expected a volume, volumes/<id> or a buffer, buffers/<id>"),
                            (lambda: c.lease(scan, seconds=5), "resource is"),
                            (lambda: c.volumes(parent=volume), "a volume; expected a scan, scans/<id> or a job, jobs/<id>"),
                            (lambda: c.volume(buffer), "a buffer; expected a volume, volumes/<id>")):
            with self.subTest(words), self.assertRaises(octavo.OctavoError) as caught:
                call()
            self.assertIn(words, caught.exception.message)
        with self.assertRaises(ValueError) as refused:
            c.read(volume.levels or scan.spec)
        self.assertIn("expected a Volume, or its name, text of the form volumes/<id>", str(refused.exception))
        buffer.destroy()

    def test_an_object_of_another_server_says_so(self):
        (volume,) = self.submit().wait().volumes()
        with octavo.Client("127.0.0.1:1") as other:  # nothing answers there, and nothing is asked
            for call in (lambda: other.read(volume), lambda: other.volumes(parent=self.client.scan(volume.parent)), lambda: other.lease(resource=volume),
                         lambda: other.buffers.read(volume)):
                with self.assertRaises(ValueError) as caught:
                    call()
                self.assertIn(f"of the server at {self.daemon.address}, and this client's is at 127.0.0.1:1", str(caught.exception))
            foreign = octavo.Volume(other, volume.message)
            with self.assertRaises(ValueError) as caught:
                self.client.discard(foreign)
            self.assertIn("of the server at 127.0.0.1:1", str(caught.exception))
        with octavo.Client(self.daemon.address) as same:
            np.testing.assert_array_equal(same.read(volume), volume.read())
            late = same.volume(volume)
        with self.assertRaises(ValueError) as caught:
            late.read()
        self.assertIn("this client is closed", str(caught.exception))
        self.assertEqual(late.state, "HELD")  # fields need no connection

    def test_an_object_made_by_hand_makes_no_call(self):
        with octavo.Client("127.0.0.1:1") as nobody:
            volume = octavo.Volume(nobody, volume_pb2.Volume(name="volumes/1"))
            self.assertEqual((repr(volume), octavo.Job(nobody, job_pb2.Job()).state), ("<Volume volumes/1 UNSPECIFIED [] UNSPECIFIED 0 B>", 0))
            with self.assertRaises(octavo.OctavoError) as caught:
                volume.refresh()
            self.assertIn("no octavod answers at 127.0.0.1:1", caught.exception.message)

    def test_warnings_name_the_line_of_the_caller(self):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.submit(processing=octavo.processing(levels=(0, 1))).wait()  # clips; either call may bring the warning
        self.assertEqual({os.path.basename(one.filename) for one in told if issubclass(one.category, octavo.OctavoWarning)}, {os.path.basename(__file__)})


if __name__ == "__main__":
    unittest.main()
