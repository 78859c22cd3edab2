"""Lists of every kind against the real daemon: pages, filters, orders, the clients that turn the
pages."""

import json
import random
import threading
import unittest

import grpc

from harness import DaemonTest, octavo
from octavo.v1 import (buffer_pb2, export_pb2, ingest_pb2, job_pb2, scan_pb2, session_pb2, system_pb2, volume_pb2)


class Lists(DaemonTest):
    def setUp(self):
        self.leases, self.sessions = [], []
        self.calls = {  # name → (call, request, field of the rows, key of a row)
            "scans": (self.client._scans.ListScans, scan_pb2.ListScansRequest, "scans", "name"),
            "volumes": (self.client._volumes.ListVolumes, volume_pb2.ListVolumesRequest, "volumes", "name"),
            "jobs": (self.client._jobs.ListJobs, job_pb2.ListJobsRequest, "jobs", "name"),
            "buffers": (self.client.buffers._stub.ListBuffers, buffer_pb2.ListBuffersRequest, "buffers", "name"),
            "sessions": (self.client._sessions.ListSessions, session_pb2.ListSessionsRequest, "sessions", "name"),
            "leases": (self.client._sessions.ListLeases, session_pb2.ListLeasesRequest, "leases", "fence"),
            "exports": (self.client._exports.ListExports, export_pb2.ListExportsRequest, "exports", "name"),
            "devices": (self.client._system.ListDevices, system_pb2.ListDevicesRequest, "devices", "name"),
            "cameras": (self.client._ingest.ListCameras, ingest_pb2.ListCamerasRequest, "cameras", "id"),
        }

    def tearDown(self):
        for lease in self.leases:
            lease.release()
        for session in self.sessions:
            session.close()
        for buffer in self.client.buffers.list():
            self.client.buffers.destroy(buffer.name)
        super().tearDown()

    def paged(self, kind, size, between=lambda: None, **fields):
        """The keys of all rows, page by page."""
        call, request, field, key = self.calls[kind]
        keys, token = [], ""
        while True:
            page = self.client._call(call, request(page_size=size, page_token=token, **fields))
            rows = getattr(page, field)
            self.assertLessEqual(len(rows), size)
            keys += [getattr(row, key) for row in rows]
            token = page.next_page_token
            if not token:
                return keys
            self.assertTrue(rows)
            between()

    def refused(self, kind, field, *words, **fields):
        call, request, *_ = self.calls[kind]
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client._call(call, request(**fields))
        self.assertEqual(caught.exception.code.name, "INVALID_ARGUMENT", caught.exception)
        self.assertEqual(caught.exception.field, field, caught.exception)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def have_some_of_each(self):
        scan = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(16, 4, volumes=7), samples=64, title="lists",
                                       labels={"eye": "OD", "site.name": "a b"})
        self.client.wait(scan.name)
        volumes = self.client.volumes(scan.name)
        for _ in range(3):
            more = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(16, 4, volumes=1), samples=64, title="more")
            self.client.wait(more.name)
        self.sessions = [self.client.session(f"client {i}") for i in range(5)]
        self.leases = [self.client.lease(volume.name, session=self.sessions[i % 5]) for i, volume in enumerate(volumes)]
        for i in range(6):
            self.client.buffers.create((4, i + 1), "u8", labels={"number": str(i)})
        return scan, volumes

    def test_the_four_fields_mean_the_same_in_every_list(self):
        scan, volumes = self.have_some_of_each()
        for kind, (_, request, field, key) in self.calls.items():
            with self.subTest(kind):
                names = [one.name for one in request.DESCRIPTOR.fields]
                self.assertLessEqual({"page_size", "page_token", "filter", "order_by"}, set(names))
                if kind == "cameras":
                    try:
                        self.paged(kind, 10)
                    except octavo.OctavoError as error:
                        self.assertEqual(error.code.name, "UNIMPLEMENTED")
                whole = self.paged(kind, 1000) if kind != "cameras" else []
                if kind not in ("cameras", "exports", "jobs"):
                    self.assertTrue(whole, kind)
                for size in (1, 2, 3) if kind != "cameras" else ():
                    self.assertEqual(self.paged(kind, size), whole)
                    for order in (f"{key} desc", key):
                        self.assertEqual(self.paged(kind, size, order_by=order), sorted(whole, reverse=order != key))
                if whole:
                    one = random.choice(whole)
                    self.assertEqual(self.paged(kind, 2, filter=f"{key} = {json.dumps(one)}"), [one])
                    self.assertEqual(self.paged(kind, 2, filter=f"{key} != {json.dumps(one)}"), [k for k in whole if k != one])
                self.refused(kind, "page_size", "is -1; allowed 0 (100) to 1000", page_size=-1)
                self.refused(kind, "page_size", "is 1001", page_size=1001)
                self.refused(kind, "page_token", "does not come from this server", page_token="100")
                self.refused(kind, "filter", "there is no field 'colour'", key, filter="colour = red")
                self.refused(kind, "filter", "unmatched '('", filter="(" + key + " = 1")
                self.refused(kind, "filter", "allowed 4096", filter="(" * 10_000)
                self.refused(kind, "order_by", "there is no field 'colour'", key, order_by="colour")
        self.assertEqual([v.name for v in self.client.volumes(scan.name)], [v.name for v in volumes])

    def test_filters_of_volumes(self):
        scan, volumes = self.have_some_of_each()
        names = [v.name for v in volumes]

        def listed(text, **fields):
            return [v.index for v in self.client.volumes(filter=text, **fields)]
        mine = f'parent = "{scan.name}" AND '
        self.assertEqual(listed(mine + 'state = HELD AND labels.eye = "OD" AND hold_time > "2020-01-01T00:00:00Z"'), list(range(7)))
        self.assertEqual(listed(mine + "index >= 2 AND NOT index = 5 OR index = 0"), [2, 3, 4, 6])
        self.assertEqual(listed(mine + 'labels.site.name = "a b" AND shape:16 AND index < 2'), [0, 1])
        self.assertEqual(listed(mine + "state != HELD"), [])
        self.assertEqual(listed(mine + "index < 4", order_by="index desc"), [3, 2, 1, 0])
        self.assertEqual(listed('title = "li*" AND shared_leases = 1', order_by="hold_time desc"), list(range(6, -1, -1)))
        self.assertEqual(listed("state = DISCARDED AND " + mine[:-5]), [])
        # What has left memory is listed if the filter speaks of the state, or `states` does.
        gone = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(16, 4, volumes=2), samples=64)
        self.client.wait(gone.name)
        first, second = self.client.volumes(gone.name)
        self.client.discard(first.name)
        mine = f'parent = "{gone.name}"'
        self.assertEqual(listed(mine), [1])
        self.assertEqual(listed(mine + " AND state = DISCARDED"), [0])
        self.assertEqual(listed(mine + " AND (state = DISCARDED OR state = HELD)"), [0, 1])
        self.assertEqual(listed(mine, states=["discarded"]), [0])
        self.assertEqual(listed(mine + " AND state = HELD", states=["discarded"]), [])
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.volumes("scans/misspelt", filter="index = 1")
        self.assertEqual(caught.exception.code, grpc.StatusCode.NOT_FOUND)

    def test_times_keep_their_order_between_pages(self):
        """Times that the server computes are the same in each answer, or rows would come twice."""
        scan = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(16, 4, volumes=40), samples=64,
                                       retention=dict(ttl=3600, hold_slots=40))
        self.client.wait(scan.name)
        buffers = [self.client.buffers.create((4,), "u8", ttl=3600) for _ in range(20)]
        self.leases = [self.client.lease(buffer.name, seconds=3600) for buffer in buffers]
        for kind, order, count in (("volumes", "hold_time", 40), ("volumes", "expire_time desc", 40), ("buffers", "expire_time", 20),
                                   ("leases", "expire_time desc", 20), ("sessions", "expire_time", None)):
            for _ in range(3):
                keys = self.paged(kind, 1, order_by=order)
                self.assertEqual(len(keys), len(set(keys)), (kind, order))
                if count is not None:
                    self.assertEqual(len(keys), count, (kind, order))

    def test_rows_that_come_and_go_shift_nothing(self):
        buffers = [self.client.buffers.create((1,), "u8").name for _ in range(60)]
        for order in ("", "name", "create_time desc"):
            with self.subTest(order):
                gone = []

                def change():
                    self.client.buffers.create((1,), "u8")
                    if len(buffers) > 10:
                        gone.append(buffers.pop(random.randrange(len(buffers))))
                        self.client.buffers.destroy(gone[-1])
                keys = self.paged("buffers", 5, change, order_by=order)
                self.assertEqual(len(keys), len(set(keys)))
                self.assertLessEqual(set(buffers), set(keys))

    def test_a_token_is_for_its_list(self):
        for _ in range(4):
            self.client.buffers.create((1,), "u8")
        call, request, *_ = self.calls["buffers"]
        token = self.client._call(call, request(page_size=2, filter="byte_size = 1")).next_page_token
        self.assertEqual(len(self.client._call(call, request(page_size=2, filter="byte_size = 1", page_token=token)).buffers), 2)
        self.refused("buffers", "page_token", "from another list", page_size=2, filter="byte_size < 2", page_token=token)
        self.refused("buffers", "page_token", "from another list", page_size=2, filter="byte_size = 1", order_by="name", page_token=token)
        self.refused("volumes", "page_token", "from another list", page_token=token)
        self.refused("buffers", "page_token", "does not come from this server", filter="byte_size = 1", page_token=token[:-2])

    def test_a_filter_does_not_tell_secrets(self):
        """Tokens of leases are in no list, so a filter cannot guess them either."""
        buffer = self.client.buffers.create((1,), "u8")
        lease = self.client.lease(buffer.name, seconds=60)
        self.leases = [lease]
        self.assertEqual(len(self.client.leases()), 1)
        self.assertEqual(self.client.leases(filter=f'token = "{lease.token[:1]}*"'), [])
        self.assertEqual(len(self.client.leases(filter=f'token = "" AND resource = "{buffer.name}"')), 1)
        owner = octavo.Client(self.daemon.address, key="k" * 16)
        self.addCleanup(owner.close)
        private = owner.buffers.create((1,), "u8", private=True)
        self.assertEqual(self.client.buffers.list(filter="is_private = true"), [])
        self.assertEqual([b.name for b in owner.buffers.list(filter="is_private = true")], [private.name])
        # Nor do the lists of what is done with it: see test_anothers_private_buffer_is_in_no_list of owners_test.py for each role.
        held = owner.lease(private.name, seconds=60)
        self.assertEqual([one.resource for one in self.client.leases(order_by="fence desc")], [buffer.name])
        self.assertEqual(self.client.leases(filter=f'resource = "{private.name}"'), [])
        self.assertEqual(sorted(one.resource for one in owner.leases()), sorted([buffer.name, private.name]))
        # A page is as long as another, whatever is left out of it.
        more = [owner.lease(private.name, seconds=60) for _ in range(3)]
        self.leases.append(self.client.lease(self.client.buffers.create((1,), "u8").name, seconds=60))
        self.assertEqual(self.paged("leases", 1), [one.fence for one in self.client.leases()])
        for one in [held, *more]:
            one.release()
        owner.buffers.destroy(private.name)

    def test_the_command_line_takes_the_same_words(self):
        scan, volumes = self.have_some_of_each()

        def lines(*words):
            return self.command("--json", *words).stdout.splitlines()
        self.assertEqual([json.loads(line)["name"] for line in lines("volume", "list", "--filter", f"parent = {scan.name} AND index > 4",
                                                                     "--order-by", "index desc")], [volumes[6].name, volumes[5].name])
        self.assertEqual([json.loads(line)["name"] for line in lines("scan", "list", "--filter", "spec.title = lists", "--order-by", "create_time")][-1], scan.name)
        self.assertEqual(len(lines("lease", "list", "--filter", f"resource = {volumes[0].name}")), 1)
        self.assertEqual(len(lines("sessions", "--filter", 'alive = true AND client = "client 3"')), 1)
        self.assertEqual(lines("job", "list", "--open", "--filter", "state = DONE"), [])
        self.assertEqual(len(lines("devices", "--filter", "healthy = true")), len(self.client.devices()))
        wrong = self.command("volume", "list", "--filter", "state = HOLD", check=False)
        self.assertEqual(wrong.returncode, 1)
        for word in ("--filter", "'HOLD'", "HELD"):
            self.assertIn(word, wrong.stderr)

    def test_many_lists_at_once_while_rows_change(self):
        stop = threading.Event()
        failures = []

        def turn():
            client = self.daemon.client()
            try:
                while not stop.is_set():
                    names = [b.name for b in client.buffers.list(filter="byte_size > 0", order_by=random.choice(("", "name", "create_time desc")))]
                    if len(names) != len(set(names)):
                        failures.append(names)
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)
            finally:
                client.close()
        threads = [threading.Thread(target=turn) for _ in range(4)]
        for thread in threads:
            thread.start()
        names = []
        for _ in range(300):
            names.append(self.client.buffers.create((1,), "u8").name)
            if len(names) > 30:
                self.client.buffers.destroy(names.pop(random.randrange(len(names))))
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
