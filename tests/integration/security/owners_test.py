"""Whose things are: every changing verb on another's scan, volume, job, operation, buffer, lease, session and export, as each role, by name, by list, by
watch and by label; projects; and that on one user's machine nothing needs a token."""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import unittest

import grpc
import numpy as np

from google.protobuf.duration_pb2 import Duration
from harness import BUILD, Daemon, octavo, until
from octavo.v1 import buffer_pb2, ingest_pb2, job_pb2, scan_pb2, session_pb2, tomography_pb2, types_pb2, volume_pb2

OCTAVO = os.path.join(BUILD, "bin", "octavo")
PARTS = ("access", "buffer", "export", "ingest", "job", "mosaic", "operation", "scan", "session", "stream", "system", "volume")
# name, role, project
PEOPLE = {"ada": ("operator", "retina"), "eve": ("operator", "retina"), "bob": ("operator", "cornea"), "vera": ("viewer", "retina"), "root": ("admin", "")}
# What changes nothing of others: it makes something of the caller's own, or only reads or measures.
OWN_MATTERS = {
    "CreateBuffer": "makes a buffer", "CommitBuffer": "reads a buffer into a file", "ImportBuffer": "makes a buffer", "ImportVolume": "makes a job",
    "OpenDeposit": "for a file of the caller's connection", "PlanJob": "makes nothing", "SubmitJob": "makes a job", "FindZOverlap": "reads",
    "RegisterTiles": "reads", "ResampleTiles": "makes a buffer", "StackSections": "makes a buffer", "StitchTiles": "makes a buffer",
    "PlanScan": "makes nothing", "PlanWaveform": "makes nothing", "PlotWaveform": "makes nothing", "OpenSession": "makes a session",
    "CreateGrant": "only the owner may: see grants_test.py", "RevokeGrant": "see grants_test.py", "Measure": "measures", "ProbeStorage": "measures", "DeriveVolume": "reads a volume and makes one", "Export": "reads a volume; see test_a_buffer_is_exported_by_its_owner",
}


def methods():
    """Every method of the contract that is more than a look, by name: from reflection."""
    found = {}
    for part in PARTS:
        module = __import__(f"octavo.v1.{part}_pb2", fromlist=["DESCRIPTOR"])
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if not re.match("(Get|List|Watch|Wait|Read)[A-Z]", method.name) and method.name not in ("Subscribe", "OpenFrames", "RenderVolume"):
                    assert method.name not in found, method.name
                    found[method.name] = method
    return found


METHODS = methods()


class Things:
    """One of each, of `client`. The scan and the job wait for what is pushed, so that they go on."""

    def __init__(self, client):
        self.client = client
        self.scan = client.submit_scan(octavo.push(idle_timeout=600), octavo.raster(16, 8, volumes=1), samples=256, labels={"of": "ada"}).name
        made = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=2), samples=256, labels={"of": "ada"})
        client.wait(made.name)
        self.volume, self.other = (v.name for v in client.volumes(made.name))
        self.held = made.name
        push = ingest_pb2.PushedProjections(rows=2, columns=32, frames=24, dtype=types_pb2.DTYPE_U16)
        tomography = tomography_pb2.TomographyJob(push=push)
        tomography.center.pixels.append(16)
        self.job = client.submit_job(job_pb2.JobSpec(tomography=tomography, labels={"of": "ada"})).name
        self.operation = "operations/" + self.job.split("/")[1]
        self.buffer = client.buffers.put(np.arange(4, dtype=np.float32), labels={"of": "ada"}).name
        self.leased = client.buffers.put(np.arange(4, dtype=np.float32)).name
        lease = call_of(client)("AcquireLease", session_pb2.AcquireLeaseRequest(resource=self.leased, mode=session_pb2.LEASE_MODE_SHARED, ttl=Duration(seconds=600)))
        self.token = lease.lease.token
        opened = call_of(client)("OpenSession", session_pb2.OpenSessionRequest(client="of ada"))
        self.secret, self.session = opened.secret, opened.session.name
        self.export = call_of(client)("Export", METHODS["Export"].input_type._concrete_class(name=self.other)).name

    def names(self):
        return [self.scan, self.volume, self.job, self.operation, self.buffer, self.leased, self.session, self.export]

    def state(self):
        """What others could have changed."""
        client = self.client
        scan, job, volume, buffer = client.scan(self.scan), client.job(self.job), client.volume(self.volume), client.buffers.get(self.buffer)
        return (scan.state, job.state, volume.state, volume.marked, volume.tier, buffer.etag, dict(buffer.labels), buffer.exclusive_leases,
                [s.alive for s in client.sessions() if s.name == self.session], [x.state for x in client.exports() if x.name == self.export],
                [lease.fence for lease in client.leases() if lease.resource == self.leased])

    def end(self):
        client = self.client
        client.cancel(self.scan)
        client.cancel_job(self.job)
        for volume in (self.volume, self.other):
            try:
                call_of(client)("DiscardVolume", volume_pb2.DiscardVolumeRequest(name=volume, detach_exports=True))
            except octavo.OctavoError:
                pass  # committed or discarded by the verb
        client.wait(self.scan)
        client.wait_job(self.job, check=False)


def call_of(client):
    """Calls of any method by name; an error is an OctavoError."""

    def call(name, *requests, seconds=20.0):
        method = METHODS[name]
        kind = {(False, False): client.channel.unary_unary, (True, False): client.channel.stream_unary, (True, True): client.channel.stream_stream}
        stub = kind[method.client_streaming, method.server_streaming](
            f"/{method.containing_service.full_name}/{name}", request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=method.output_type._concrete_class.FromString)
        try:
            if not method.client_streaming:
                return stub(requests[0], timeout=seconds)
            if not method.server_streaming:
                return stub(iter(requests), timeout=seconds)
            done = threading.Event()

            def sent():
                yield from requests
                done.wait(seconds)

            answers = stub(sent(), timeout=seconds)
            try:
                return next(answers)
            finally:
                done.set()
                answers.cancel()
        except grpc.RpcError as error:
            raise octavo.errors.from_rpc_error(error) from None

    return call


def header(name, **fields):
    return buffer_pb2.WriteBufferRequest(header=buffer_pb2.WriteBufferRequest.Header(name=name, total_bytes=16, **fields))


# Verb → the requests for it on these things. Every method that changes something is here or in OWN_MATTERS.
VERBS = {
    "CancelScan": lambda t: [scan_pb2.CancelScanRequest(name=t.scan)],
    "StopScan": lambda t: [scan_pb2.StopScanRequest(name=t.scan)],
    "MarkScan": lambda t: [scan_pb2.MarkScanRequest(name=t.scan, marker="here")],
    "UpdateScan": lambda t: [scan_pb2.UpdateScanRequest(name=t.scan, processing=scan_pb2.Processing(window=scan_pb2.WINDOW_KIND_HAMMING), update_mask={"paths": ["window"]})],
    "SubmitScan": None,  # test_another_may_not_interrupt
    "Push": lambda t: [ingest_pb2.PushRequest(scan=t.scan)],
    "PushProjections": lambda t: [ingest_pb2.PushProjectionsRequest(job=t.job)],
    "OpenRing": lambda t: [ingest_pb2.OpenRingRequest(scan=t.scan)],
    "CancelJob": lambda t: [job_pb2.CancelJobRequest(name=t.job)],
    "CancelOperation": lambda t: [METHODS["CancelOperation"].input_type._concrete_class(name=t.operation)],
    "DiscardVolume": lambda t: [volume_pb2.DiscardVolumeRequest(name=t.volume, detach_exports=True)],
    "CommitVolume": lambda t: [volume_pb2.CommitVolumeRequest(name=t.volume, options=commit(t))],
    "HoldVolume": lambda t: [volume_pb2.HoldVolumeRequest(name=t.volume)],
    "ReleaseVolume": lambda t: [volume_pb2.ReleaseVolumeRequest(name=t.volume)],
    "SpillVolume": lambda t: [volume_pb2.SpillVolumeRequest(name=t.volume, tier=types_pb2.TIER_DISK)],
    "RestoreVolume": lambda t: [volume_pb2.RestoreVolumeRequest(name=t.volume)],
    "RevokeExport": lambda t: [METHODS["RevokeExport"].input_type._concrete_class(name=t.export)],
    "UpdateBuffer": lambda t: [buffer_pb2.UpdateBufferRequest(name=t.buffer, labels={"of": "them"}, update_mask={"paths": ["labels"]})],
    "DestroyBuffer": lambda t: [buffer_pb2.DestroyBufferRequest(name=t.buffer, detach_exports=True)],
    "WriteBuffer": lambda t: [header(t.buffer), buffer_pb2.WriteBufferRequest(data=bytes(16))],
    "SyncReplicas": lambda t: [buffer_pb2.SyncReplicasRequest(name=t.buffer)],
    "ApplyOp": lambda t: [buffer_pb2.ApplyOpRequest(input=t.leased, output=t.buffer, operations=[{"copy": {}}])],
    "AcquireLease": lambda t: [session_pb2.AcquireLeaseRequest(resource=t.buffer, mode=session_pb2.LEASE_MODE_EXCLUSIVE, ttl=Duration(seconds=60))],
    "RenewLease": lambda t: [session_pb2.RenewLeaseRequest(token=t.token, ttl=Duration(seconds=900))],
    "ReleaseLease": lambda t: [session_pb2.ReleaseLeaseRequest(token=t.token)],
    "KeepAlive": lambda t: [session_pb2.KeepAliveRequest(secret=t.secret)],
    "CloseSession": lambda t: [session_pb2.CloseSessionRequest(secret=t.secret)],
}
# Whoever may, gets these answers where the thing is not of the verb's kind: they come after the question of the right.
BEYOND_THE_RIGHT = {"OpenRing": "NOT_RING"}


def commit(things):
    return scan_pb2.CommitOptions(destination=things.volume.split("/")[1])


class Owners(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="octavo-owners-")
        cls.file = os.path.join(cls.folder.name, "tokens")
        cls.secret = {}
        for name, (role, project) in PEOPLE.items():
            secret = os.path.join(cls.folder.name, name)
            subprocess.run([OCTAVO, "token", "add", "--file", cls.file, "--name", name, "--role", role, "--secret-file", secret,
                            *(["--project", project] if project else [])], check=True, capture_output=True, timeout=60)
            cls.secret[name] = secret
        cls.daemon = Daemon("--security.tokens", cls.file, "--listen.loopback_role", "operator", "--handoff.unix", "auto")
        cls.clients = {name: octavo.Client(cls.daemon.address, token_file=secret) for name, secret in cls.secret.items()}
        cls.clients["loopback"] = octavo.Client(cls.daemon.address)

    @classmethod
    def tearDownClass(cls):
        for client in cls.clients.values():
            client.close()
        code = cls.daemon.stop()
        text = cls.daemon.text()
        cls.daemon.remove()
        cls.folder.cleanup()
        assert code == 0, text

    def things(self):
        made = Things(self.clients["ada"])
        self.addCleanup(made.end)
        return made

    def call(self, who, verb, things):
        return call_of(self.clients[who])(verb, *VERBS[verb](things))

    def command(self, who, *words):
        flags = ["--token-file", self.secret[who]] if who in self.secret else []
        return subprocess.run([OCTAVO, "--address", self.daemon.address, *flags, *words], capture_output=True, text=True, timeout=60)

    def test_every_changing_method_has_a_line(self):
        self.assertEqual(set(METHODS), set(VERBS) | set(OWN_MATTERS))
        self.assertEqual(set(VERBS) & set(OWN_MATTERS), set())

    def test_everything_tells_whose_it_is(self):
        t = self.things()
        for who in ("vera", "bob", "loopback"):
            client = self.clients[who]
            seen = {one.name: one for one in [client.scan(t.scan), client.volume(t.volume), client.job(t.job), client.operation(t.operation),
                                              client.buffers.get(t.buffer), *client.sessions(), *client.exports()]}
            for name in t.names():
                if name != t.leased:
                    self.assertEqual((seen[name].owner, seen[name].project), ("ada", "retina"), name)
            lease, = (one for one in client.leases() if one.resource == t.leased)
            self.assertEqual((lease.owner, lease.project, lease.token), ("ada", "retina", ""))
        shown = json.loads(self.command("vera", "--json", "volume", "show", t.volume).stdout)
        self.assertEqual((shown["owner"], shown["project"]), ("ada", "retina"))
        for words in (("volume", "list"), ("scan", "list"), ("job", "list"), ("buffer", "list"), ("operation", "list"), ("sessions",)):
            self.assertIn("  of ada (retina)", self.command("vera", *words).stdout, words)
        bobs = self.clients["bob"].buffers.put(np.zeros(1, np.float32))
        self.addCleanup(self.clients["bob"].buffers.destroy, bobs.name)
        self.assertEqual({b.owner for b in self.clients["vera"].buffers.list(filter='owner = "ada"')}, {"ada"})
        self.assertEqual([b.name for b in self.clients["vera"].buffers.list(filter="project = cornea")], [bobs.name])
        self.assertEqual({v.owner for v in self.clients["vera"].volumes(filter="owner = ada AND project = retina")}, {"ada"})

    def test_others_may_not(self):
        t = self.things()
        before = t.state()
        for verb, requests in VERBS.items():
            if requests is None:
                continue
            for who, code, reason in (("bob", "PERMISSION_DENIED", "NOT_OWNER"), ("loopback", "PERMISSION_DENIED", "NOT_OWNER"),
                                      ("vera", "PERMISSION_DENIED", "WRONG_ROLE")):
                with self.subTest(verb=verb, who=who):
                    with self.assertRaises(octavo.OctavoError) as no:
                        self.call(who, verb, t)
                    self.assertEqual((no.exception.code.name, no.exception.reason), (code, reason), str(no.exception))
                    if reason == "NOT_OWNER":
                        self.assertRegex(str(no.exception), rf"belongs to ada \(project retina\); the caller is {who}.*allowed to change it are its owner, callers of its project, and admins")
                        self.assertEqual([no.exception.numbers[key] for key in ("owner", "project", "caller")], ["ada", "retina", who])
                        self.assertIn("object", no.exception.numbers)
        self.assertEqual(t.state(), before)

    def test_the_owner_its_project_and_admins_may(self):
        for verb, requests in VERBS.items():
            if requests is None:
                continue
            for who in ("ada", "eve", "root"):
                with self.subTest(verb=verb, who=who):
                    t = Things(self.clients["ada"])
                    try:
                        self.call(who, verb, t)
                        self.assertNotIn(verb, BEYOND_THE_RIGHT)
                    except octavo.OctavoError as error:
                        self.assertEqual(error.reason, BEYOND_THE_RIGHT.get(verb), f"{verb} as {who}: {error}")
                    finally:
                        t.end()

    def test_by_list_label_and_watch(self):
        t = self.things()
        before = t.state()
        bob = self.clients["bob"]
        listed = [v.name for v in bob.volumes(filter='owner = "ada"')]
        labelled = [v.name for v in bob.volumes(filter="labels.of = ada")]
        watched = []
        for change in bob._volumes.WatchVolumes(volume_pb2.WatchVolumesRequest(filter="labels.of = ada")):
            watched.append(change.volume.name)
            if t.volume in watched:
                break
        for names in (listed, labelled, watched):
            self.assertIn(t.volume, names)
            for name in names:
                with self.assertRaises(octavo.OctavoError) as no:
                    bob.discard(name)
                self.assertEqual(no.exception.reason, "NOT_OWNER")
        for scan in bob.scans(filter="spec.labels.of = ada AND state = RUNNING"):
            self.assertRaisesRegex(octavo.OctavoError, "belongs to ada", bob.cancel, scan.name)
        for job in bob.jobs(filter="spec.labels.of = ada"):
            self.assertRaisesRegex(octavo.OctavoError, "belongs to ada", bob.cancel_job, job.name)
        for buffer in bob.buffers.list(filter="labels.of = ada"):
            self.assertRaisesRegex(octavo.OctavoError, "belongs to ada", bob.buffers.destroy, buffer.name)
        refused = self.command("bob", "volume", "discard", t.volume)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"{t.volume} belongs to ada (project retina); the caller is bob (project cornea), found by the token ", refused.stderr)
        self.assertEqual(t.state(), before)
        self.assertEqual(self.command("eve", "volume", "discard", t.volume).returncode, 0)

    def test_another_may_not_interrupt(self):
        ada, bob, eve = (self.clients[who] for who in ("ada", "bob", "eve"))
        pattern = octavo.raster(16, 8, volumes=1)
        first = ada.submit_scan(octavo.push(idle_timeout=600), pattern, samples=256, queue="owners")
        scans = len(bob.scans())
        for insert in ("interrupt_at_volume", "interrupt_now"):
            with self.assertRaises(octavo.OctavoError) as no:
                bob.submit_scan(octavo.simulated(1, fast=True), pattern, samples=256, queue="owners", insert=insert)
            self.assertEqual((no.exception.reason, no.exception.numbers["object"]), ("NOT_OWNER", first.name))
        self.assertEqual((len(bob.scans()), bob.scan(first.name).state), (scans, types_pb2.SCAN_STATE_RUNNING))
        waits = bob.submit_scan(octavo.simulated(1, fast=True), pattern, samples=256, queue="owners")
        self.assertEqual(waits.queue_position, 1)
        second = eve.submit_scan(octavo.simulated(1, fast=True), pattern, samples=256, queue="owners", insert="interrupt_now")
        self.assertEqual(ada.wait(first.name).state, types_pb2.SCAN_STATE_CANCELLED)
        for client, scan in ((eve, second), (bob, waits)):
            self.assertEqual(client.wait(scan.name).state, types_pb2.SCAN_STATE_DONE)
            for volume in client.volumes(scan.name):
                self.assertEqual(volume.owner, client.info().caller.name)
                client.discard(volume.name)

    def test_what_is_made_of_anothers_is_ones_own(self):
        t = self.things()
        bob = self.clients["bob"]
        derived, copy = bob.derive(t.volume, {"mip": {"axis": 2}}), bob.buffers.apply(t.buffer, {"copy": {}})
        for made in (derived, copy):
            self.assertEqual((made.owner, made.project), ("bob", "cornea"))
        self.assertRaisesRegex(octavo.OctavoError, "belongs to bob", self.clients["ada"].discard, derived.name)
        bob.discard(derived.name)
        bob.buffers.destroy(copy.name)
        self.assertEqual(bob.read(t.volume).ndim, 3)

    def test_a_buffer_is_exported_by_its_owner(self):
        t = self.things()
        request = METHODS["Export"].input_type._concrete_class
        for who, reason in (("bob", "NOT_OWNER"), ("eve", "EXPORT_LEASE")):
            with self.assertRaises(octavo.OctavoError) as no:
                call_of(self.clients[who])("Export", request(name=t.buffer))
            self.assertEqual(no.exception.reason, reason)

    def test_anothers_private_buffer_is_in_no_list(self):
        """Not in the lists of what others do with it, nor behind a fencing number; its bytes are counted under no name."""
        ada = octavo.Client(self.daemon.address, token_file=self.secret["ada"], key="the key of ada's own")
        self.addCleanup(ada.close)
        private = ada.buffers.put(np.arange(100_000, dtype=np.float32), private=True).name
        public = self.clients["ada"].buffers.put(np.arange(4, dtype=np.float32)).name
        self.addCleanup(self.clients["ada"].buffers.destroy, public)
        lease = ada._call(ada._sessions.AcquireLease, session_pb2.AcquireLeaseRequest(resource=private, mode=session_pb2.LEASE_MODE_EXCLUSIVE, ttl=Duration(seconds=600))).lease
        also = ada._call(ada._sessions.AcquireLease, session_pb2.AcquireLeaseRequest(resource=public, mode=session_pb2.LEASE_MODE_SHARED, ttl=Duration(seconds=600))).lease
        export = ada._call(ada._exports.Export, METHODS["Export"].input_type._concrete_class(name=private, lease_token=lease.token)).name
        grants = [ada.grant(private, "bob"), ada.grant(public, "bob")]
        for name in (private, public):
            ada.buffers.commit(name, f"{name.split('/')[1]}.npy", axes="x", lease_token=lease.token if name == private else "")

        def named(client, text=""):
            """What each list says of the buffer, without and with a filter by its name."""
            def only(field):
                return dict(filter=f'{field} = "{text}"') if text else {}
            return {"buffers": {one.name for one in client.buffers.list(**only("name"))}, "leases": {one.resource for one in client.leases(**only("resource"))},
                    "grants": {one.object for one in client.grants(**only("object"))}, "exports": {one.resource for one in client.exports(**only("resource"))},
                    "operations": {one.target for one in client.operations(**only("target"))}}
        strangers = {**self.clients, "another key": octavo.Client(self.daemon.address, token_file=self.secret["ada"], key="another key of ada")}
        self.addCleanup(strangers["another key"].close)
        for who, client in strangers.items():
            with self.subTest(who):
                for kind, names in named(client).items():
                    self.assertNotIn(private, names, kind)
                    if kind != "exports":
                        self.assertIn(public, names, kind)
                self.assertEqual([names for names in named(client, private).values() if names], [])
                self.assertEqual(len(list(client.leases(filter=f"fence >= {lease.fence} AND fence <= {also.fence}"))), 1)
                holders = client.memory().holders
                self.assertNotIn(private, {holder.name for holder in holders})
                self.assertGreaterEqual(sum(holder.bytes for holder in holders if holder.name == "a private buffer"), 400_000)
                self.assertEqual(sorted((h.name, h.bytes) for h in holders), sorted((h.name, h.bytes) for h in ada.memory().holders))
        for kind, names in named(ada, private).items():
            self.assertEqual(names, {private}, kind)
        for who in ("bob", "loopback"):
            with self.assertRaises(octavo.OctavoError) as no:
                call_of(self.clients[who])("ReleaseLease", session_pb2.ReleaseLeaseRequest(fence=lease.fence))
            # bob has a grant of it, and no key.
            self.assertEqual(no.exception.reason, "LEASE_LOST")
            self.assertNotIn(private, str(no.exception))
        for grant in grants:
            ada.revoke_grant(grant)
        ada._call(ada._sessions.ReleaseLease, session_pb2.ReleaseLeaseRequest(token=also.token))
        # Its name stays with the key when it is gone: the operation is listed for an hour.
        ada.buffers.destroy(private, lease_token=lease.token, detach_exports=True)
        for who, client in strangers.items():
            for kind, names in named(client).items():
                self.assertNotIn(private, names, f"{kind} as {who}")
        self.assertEqual(named(ada, private)["operations"], {private})
        self.assertNotIn(export, [one.name for one in self.clients["root"].exports()])

    def test_an_owner_ends_the_leases_of_others(self):
        t = self.things()
        bobs = call_of(self.clients["bob"])("AcquireLease", session_pb2.AcquireLeaseRequest(resource=t.volume, ttl=Duration(seconds=600))).lease
        self.assertEqual((bobs.owner, bobs.project), ("bob", "cornea"))
        self.assertRaisesRegex(octavo.OctavoError, "is leased", self.clients["ada"].discard, t.volume)
        adas, = (lease for lease in self.clients["vera"].leases() if lease.resource == t.leased)
        for who, request, code, reason in (
                ("loopback", session_pb2.ReleaseLeaseRequest(fence=bobs.fence), "PERMISSION_DENIED", "NOT_OWNER"),
                ("vera", session_pb2.ReleaseLeaseRequest(fence=bobs.fence), "PERMISSION_DENIED", "WRONG_ROLE"),
                ("bob", session_pb2.ReleaseLeaseRequest(fence=adas.fence), "PERMISSION_DENIED", "NOT_OWNER"),
                ("ada", session_pb2.ReleaseLeaseRequest(token=t.token, fence=adas.fence), "INVALID_ARGUMENT", "BAD_FIELD"),
                ("ada", session_pb2.ReleaseLeaseRequest(fence=bobs.fence + 1000), "FAILED_PRECONDITION", "LEASE_LOST")):
            with self.assertRaises(octavo.OctavoError) as no:
                call_of(self.clients[who])("ReleaseLease", request)
            self.assertEqual((no.exception.code.name, no.exception.reason), (code, reason), who)
        self.assertEqual({lease.fence for lease in self.clients["vera"].leases()} & {bobs.fence, adas.fence}, {bobs.fence, adas.fence})
        ended = self.command("eve", "lease", "release", "--fence", str(bobs.fence))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.clients["ada"].discard(t.volume)

    def test_a_request_id_is_ones_own(self):
        ada, bob = self.clients["ada"], self.clients["bob"]
        request = buffer_pb2.CreateBufferRequest(type=types_pb2.ElementType(dtype=types_pb2.DTYPE_U8), shape=[4], request_id="of ada")
        calls = {who: call_of(self.clients[who]) for who in ("ada", "bob")}
        first = calls["ada"]("CreateBuffer", request).buffer
        self.addCleanup(ada.buffers.destroy, first.name)
        self.assertEqual(calls["ada"]("CreateBuffer", request).buffer.name, first.name)
        with self.assertRaises(octavo.OctavoError) as no:
            calls["bob"]("CreateBuffer", request)
        self.assertEqual(no.exception.reason, "IDEMPOTENCY_MISMATCH")

    def test_the_owner_discards_while_others_ask(self):
        ada, others = self.clients["ada"], [self.clients["bob"], self.clients["loopback"]]
        scan = ada.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=8), samples=256)
        ada.wait(scan.name)
        for volume in ada.volumes(scan.name):
            reasons, gate = [], threading.Barrier(len(others) + 1)

            def ask(client, name):
                gate.wait()
                for _ in range(5):
                    try:
                        client.discard(name)
                        reasons.append("OK")
                    except octavo.OctavoError as error:
                        reasons.append(error.reason)

            threads = [threading.Thread(target=ask, args=(client, volume.name)) for client in others]
            for thread in threads:
                thread.start()
            gate.wait()
            ada.discard(volume.name)
            for thread in threads:
                thread.join()
            self.assertEqual(set(reasons), {"NOT_OWNER"})
        self.assertEqual(ada.volumes(scan.name), [])

    def test_spilled_volumes_keep_their_owner(self):
        with tempfile.TemporaryDirectory(prefix="octavo-owners-") as directory:
            daemon = Daemon("--security.tokens", self.file, "--listen.loopback_role", "operator", directory=directory)
            try:
                with octavo.Client(daemon.address, token_file=self.secret["ada"]) as ada:
                    scan = ada.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256)
                    ada.wait(scan.name)
                    volume, = ada.volumes(scan.name)
                    ada.spill(volume.name, "disk")
                daemon.kill()
                daemon = Daemon("--security.tokens", self.file, "--listen.loopback_role", "operator", directory=directory)
                with octavo.Client(daemon.address, token_file=self.secret["bob"]) as bob, octavo.Client(daemon.address, token_file=self.secret["eve"]) as eve:
                    again = bob.volume(volume.name)
                    self.assertEqual((again.recovered, again.owner, again.project), (True, "ada", "retina"))
                    self.assertRaisesRegex(octavo.OctavoError, "belongs to ada", bob.discard, volume.name)
                    eve.discard(volume.name)
            finally:
                daemon.stop()
                daemon.remove()


    def test_a_server_that_stops_still_asks_for_the_owner(self):
        daemon = Daemon("--security.tokens", self.file)
        self.addCleanup(daemon.remove)
        with octavo.Client(daemon.address, token_file=self.secret["ada"]) as ada, octavo.Client(daemon.address, token_file=self.secret["bob"]) as bob:
            scan = ada.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256)
            ada.wait(scan.name)
            volume, = ada.volumes(scan.name)
            # Its volume takes 8 s: so long the server waits for it.
            slow = ada.submit_scan(octavo.simulated(1), octavo.raster(64, 64, volumes=1), samples=256, rate_hz=500)
            until(lambda: ada.scan(slow.name).records > 0)
            daemon.process.send_signal(signal.SIGTERM)

            def drains():
                try:
                    bob.submit_scan(octavo.simulated(1, fast=True), octavo.raster(8, 8, volumes=1), samples=256)
                except octavo.OctavoError as error:
                    return error.reason == "DRAINING"
                return False

            until(drains)
            for verb in (lambda: bob.commit(volume.name, "stolen.npy"), lambda: bob.spill(volume.name, "disk")):
                with self.assertRaises(octavo.OctavoError) as no:
                    verb()
                self.assertEqual(no.exception.reason, "NOT_OWNER")
            ada.commit(volume.name, "kept.npy")
            self.assertEqual(daemon.stop(), 0)
            self.assertEqual(sorted(name for name in os.listdir(daemon.root) if name.endswith(".npy")), ["kept.npy"])


class OneUser(unittest.TestCase):
    """A daemon that was started by hand: nobody needs a token, and what was made by one door is changed by the other."""

    def test_tcp_and_the_socket_are_one_person(self):
        daemon = Daemon()
        try:
            with octavo.Client(daemon.address) as tcp, octavo.Client(f"unix:{daemon.ready['unix']}") as unix:
                for maker, other in ((tcp, unix), (unix, tcp)):
                    scan = maker.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256)
                    maker.wait(scan.name)
                    volume, = maker.volumes(scan.name)
                    self.assertEqual(volume.owner, maker.info().caller.name)
                    other.discard(volume.name)
                    buffer = maker.buffers.put(np.zeros(4, np.float32))
                    other.buffers.destroy(buffer.name)
                    push = maker.submit_scan(octavo.push(idle_timeout=600), octavo.raster(16, 8, volumes=1), samples=256)
                    other.cancel(push.name)
                    other.wait(push.name)
                self.assertEqual({tcp.info().caller.name, unix.info().caller.name}, {"loopback", f"uid:{os.geteuid()}"})
        finally:
            self.assertEqual(daemon.stop(), 0, daemon.text())
            daemon.remove()


if __name__ == "__main__":
    unittest.main()
