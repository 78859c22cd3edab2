"""Grants: before one every verb on another's is refused, with one it is allowed, and after its end it is refused again; of an object, of what made it, and of
everything; who may grant, to whom and how long; that they outlive the server, are bounded, listed and written into the audit log."""

import json
import os
import signal
import stat
import subprocess
import tempfile
import threading
import unittest
import urllib.request

import numpy as np

import owners_test
from google.protobuf.duration_pb2 import Duration
from harness import BUILD, Daemon, octavo, until
from octavo.v1 import access_pb2, operation_pb2, session_pb2

OCTAVO = os.path.join(BUILD, "bin", "octavo")
# name, role, project. Two are called ada, in different projects: they are two owners.
PEOPLE = {"ada": ("operator", "retina"), "eve": ("operator", "retina"), "bob": ("operator", "cornea"), "carol": ("operator", ""), "vera": ("viewer", ""),
          "root": ("admin", "")}
# The verbs of owners_test, by the thing whose grant covers them.
OF = {"scan": ("CancelScan", "StopScan", "MarkScan", "UpdateScan", "Push", "OpenRing"),
      "job": ("PushProjections", "CancelJob", "CancelOperation"),
      "volume": ("DiscardVolume", "CommitVolume", "HoldVolume", "ReleaseVolume", "SpillVolume", "RestoreVolume"),
      "held": ("DiscardVolume", "CommitVolume", "HoldVolume", "ReleaseVolume", "SpillVolume", "RestoreVolume", "RevokeExport"),  # the scan of the volumes
      "other": ("RevokeExport",),
      "buffer": ("UpdateBuffer", "DestroyBuffer", "WriteBuffer", "SyncReplicas", "ApplyOp", "AcquireLease")}
ONLY_BY_ALL = ("RenewLease", "ReleaseLease", "KeepAlive", "CloseSession")
FULL_DISK = "secret_write:errno=28"


class Case(unittest.TestCase):
    """Daemons with the tokens of PEOPLE."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="octavo-grants-")
        self.addCleanup(folder.cleanup)
        self.directory = folder.name
        self.tokens, self.secrets = os.path.join(folder.name, "tokens"), {}
        for name, (role, project) in {**PEOPLE, "ada2": ("operator", "cornea")}.items():
            secret = os.path.join(folder.name, "secret-" + name)
            subprocess.run([OCTAVO, "token", "add", "--file", self.tokens, "--name", name.rstrip("2"), "--role", role, "--secret-file", secret,
                            *(["--project", project] if project else [])], check=True, capture_output=True, timeout=60)
            self.secrets[name] = secret
        self.daemon = None
        self.start()

    def start(self, *flags, **options):
        """A daemon on the same state; the one before has to have ended."""
        self.daemon = Daemon("--security.tokens", self.tokens, "--listen.loopback_role", "operator", "--handoff.unix", "auto", "--listen.unix", self.unix(), *flags, directory=self.directory, **options)
        self.addCleanup(self.daemon.remove)
        self.clients = {name: octavo.Client(self.daemon.address, token_file=secret) for name, secret in self.secrets.items()}
        self.clients["loopback"] = octavo.Client(self.daemon.address)
        for client in self.clients.values():
            self.addCleanup(client.close)

    def unix(self):
        return os.path.join(self.directory, "octavo.sock")

    def restart(self, *flags, **options):
        self.assertEqual(self.daemon.stop(), 0, self.daemon.text())
        self.start(*flags, **options)

    def path(self):
        return os.path.join(self.directory, "state", "grants.json")

    def refused(self, reason, call, *arguments, **options):
        with self.assertRaises(octavo.OctavoError) as no:
            call(*arguments, **options)
        self.assertEqual(no.exception.reason, reason, str(no.exception))
        return no.exception

    def buffer(self, who):
        return self.clients[who].buffers.put(np.arange(4, dtype=np.float32)).name

    def label(self, who, buffer):
        return self.clients[who].buffers.update(buffer, labels={"by": who})

    def scanned(self, who, volumes=2):
        client = self.clients[who]
        scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=volumes), samples=256)
        client.wait(scan.name)
        return scan.name

    def audit(self):
        with open(os.path.join(self.directory, "state", "audit", "audit.jsonl")) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]


class Verbs(Case):
    def call(self, who, verb, things):
        return owners_test.call_of(self.clients[who])(verb, *owners_test.VERBS[verb](things))

    def allowed(self, who, verb, things):
        try:
            self.call(who, verb, things)
        except octavo.OctavoError as error:
            self.assertEqual(error.reason, owners_test.BEYOND_THE_RIGHT.get(verb), f"{verb}: {error}")

    def test_every_verb_is_of_a_thing(self):
        verbs = {verb for verb, requests in owners_test.VERBS.items() if requests is not None}
        self.assertEqual({verb for of in OF.values() for verb in of} | set(ONLY_BY_ALL), verbs)

    def test_a_grant_of_the_object_or_of_what_made_it(self):
        ada = self.clients["ada"]
        for of, verbs in OF.items():
            for verb in verbs:
                with self.subTest(verb=verb, of=of):
                    things = owners_test.Things(ada)
                    try:
                        self.refused("NOT_OWNER", self.call, "bob", verb, things)
                        grant = ada.grant(getattr(things, of), "bob", seconds=600)
                        self.refused("NOT_OWNER", self.call, "carol", verb, things)
                        ada.revoke_grant(grant)
                        self.refused("NOT_OWNER", self.call, "bob", verb, things)
                        ada.grant(getattr(things, of), "bob", seconds=600)
                        self.allowed("bob", verb, things)
                    finally:
                        things.end()

    def test_a_grant_of_all(self):
        ada = self.clients["ada"]
        grant = ada.grant(None, "bob")
        for verb, requests in owners_test.VERBS.items():
            if requests is None:
                continue
            with self.subTest(verb=verb):
                things = owners_test.Things(ada)  # of later than the grant
                try:
                    self.refused("NOT_OWNER", self.call, "carol", verb, things)
                    self.allowed("bob", verb, things)
                finally:
                    things.end()
        self.assertEqual(ada.revoke_grant(grant.name), grant)
        things = owners_test.Things(ada)
        try:
            for verb, requests in owners_test.VERBS.items():
                if requests is not None:
                    self.refused("NOT_OWNER", self.call, "bob", verb, things)
        finally:
            things.end()

    def test_a_grant_of_another_object_does_not_help(self):
        ada = self.clients["ada"]
        things, others = owners_test.Things(ada), owners_test.Things(ada)
        try:
            for of in OF:
                ada.grant(getattr(others, of), "bob")
            before = things.state()
            for verb, requests in owners_test.VERBS.items():
                if requests is not None:
                    with self.subTest(verb=verb):
                        self.refused("NOT_OWNER", self.call, "bob", verb, things)
            self.assertEqual(things.state(), before)
        finally:
            things.end()
            others.end()

    def test_a_scan_may_be_interrupted_by_a_grantee(self):
        ada, bob = self.clients["ada"], self.clients["bob"]
        pattern = octavo.raster(16, 8, volumes=1)
        first = ada.submit_scan(octavo.push(idle_timeout=600), pattern, samples=256, queue="granted")
        ask = dict(samples=256, queue="granted", insert="interrupt_now")
        self.refused("NOT_OWNER", bob.submit_scan, octavo.simulated(1, fast=True), pattern, **ask)
        ada.grant(first, "bob")
        second = bob.submit_scan(octavo.simulated(1, fast=True), pattern, **ask)
        self.assertEqual(ada.wait(first).reason_code, "INTERRUPTED")
        bob.wait(second)

    def test_an_operation_of_a_granted_volume_may_be_cancelled(self):
        ada, bob = self.clients["ada"], self.clients["bob"]
        volume = ada.volumes(self.scanned("ada"))[0].name
        operation = ada.start_spill(volume).name
        call = bob._operations.CancelOperation
        self.refused("NOT_OWNER", bob._call, call, operation_pb2.CancelOperationRequest(name=operation))
        ada.grant(volume, "bob")
        bob._call(call, operation_pb2.CancelOperationRequest(name=operation))

    def test_anothers_lease_of_a_granted_volume_is_ended_by_its_fence(self):
        ada, bob = self.clients["ada"], self.clients["bob"]
        volume = ada.volumes(scan := self.scanned("ada"))[0].name
        lease = ada.lease(volume, seconds=600)
        end = session_pb2.ReleaseLeaseRequest(fence=lease.fence)
        self.refused("NOT_OWNER", bob._call, bob._sessions.ReleaseLease, end)
        ada.grant(scan, "bob")
        bob._call(bob._sessions.ReleaseLease, end)
        self.assertEqual(ada.leases(), [])

    def test_it_gives_no_role(self):
        ada = self.clients["ada"]
        buffer = self.buffer("ada")
        ada.grant(None, "vera")
        self.refused("WRONG_ROLE", self.label, "vera", buffer)
        self.refused("WRONG_ROLE", self.clients["vera"].grant, None, "bob")
        self.assertEqual(len(self.clients["vera"].grants()), 1)


class WhoGrants(Case):
    def test_only_its_owner_and_admins(self):
        buffer = self.buffer("ada")
        for who in ("eve", "bob", "carol", "ada2"):
            no = self.refused("NOT_OWNER", self.clients[who].grant, buffer, "carol" if who != "carol" else "bob")
            self.assertIn("allowed to grant it are its owner (of the same name and project) and admins", str(no))
        self.clients["ada"].grant(buffer, "bob")
        self.refused("NOT_OWNER", self.clients["bob"].grant, buffer, "carol")  # cannot be passed on
        grant = self.clients["root"].grant(buffer, "carol")
        self.assertEqual((grant.owner, grant.project, grant.grantee), ("ada", "retina", "carol"))
        self.label("carol", buffer)
        self.label("bob", buffer)

    def test_all_of_an_admin_is_what_the_admin_makes(self):
        buffer, of_root = self.buffer("ada"), self.buffer("root")
        self.clients["root"].grant(None, "bob")
        self.refused("NOT_OWNER", self.label, "bob", buffer)
        self.label("bob", of_root)

    def test_what_the_grantee_makes_is_the_grantees(self):
        ada, bob, carol = (self.clients[who] for who in ("ada", "bob", "carol"))
        scan = self.scanned("ada")
        for who in ("bob", "carol"):
            ada.grant(scan, who)
        volume = ada.volumes(scan)[0]
        derived = bob.derive(volume.name, {"flip": {}})
        self.assertEqual((derived.owner, derived.parent), ("bob", scan))
        # It has the same parent as the granted volumes, and is not ada's.
        self.refused("NOT_OWNER", carol.discard, derived.name)
        self.refused("NOT_OWNER", ada.discard, derived.name)
        bob.discard(derived.name)
        carol.discard(volume.name)

    def test_the_same_name_in_another_project_is_another_owner(self):
        ada, ada2 = self.clients["ada"], self.clients["ada2"]
        mine, theirs = self.buffer("ada"), self.buffer("ada2")
        ada.grant(None, "carol")
        self.label("carol", mine)
        self.refused("NOT_OWNER", self.label, "carol", theirs)
        grant, = ada.grants()
        self.refused("NOT_OWNER", ada2.revoke_grant, grant.name)
        self.assertEqual((grant.owner, grant.project), ("ada", "retina"))

    def test_a_grantee_is_known_by_the_name_alone(self):
        buffer = self.buffer("carol")
        self.clients["carol"].grant(buffer, "ada")
        self.label("ada", buffer)
        self.label("ada2", buffer)

    def test_whoever_has_no_identity_neither_gives_nor_gets(self):
        ada, loopback, root = self.clients["ada"], self.clients["loopback"], self.clients["root"]
        mine, shared = self.buffer("ada"), self.buffer("loopback")
        for client, thing in ((loopback, None), (loopback, mine), (loopback, shared), (root, shared), (ada, shared)):
            with self.subTest(client=client, thing=thing):
                self.refused("NO_IDENTITY", client.grant, thing, "bob")
        for name in ("loopback", "remote"):
            no = self.refused("BAD_FIELD", ada.grant, mine, name)
            self.assertEqual(no.field, "to")
            self.assertIn("no identity", str(no))
        ada.grant(None, "bob")
        self.refused("NOT_OWNER", self.label, "loopback", mine)
        self.refused("NOT_OWNER", loopback.revoke_grant, ada.grants()[0].name)

    def test_a_user_of_the_socket_is_an_identity(self):
        with octavo.Client("unix:" + self.unix()) as user:
            name = user.info().caller.name
            self.assertTrue(name.startswith("uid:"))
            buffer = user.buffers.put(np.arange(4, dtype=np.float32)).name
            self.refused("NOT_OWNER", self.label, "bob", buffer)
            self.assertEqual(user.grant(buffer, "bob").owner, name)
            self.label("bob", buffer)

    def test_a_private_buffer_stays_closed_without_its_key(self):
        owner = octavo.Client(self.daemon.address, token_file=self.secrets["ada"], key="the-secret-of-ada")
        self.addCleanup(owner.close)
        buffer = owner.buffers.put(np.arange(4, dtype=np.float32), private=True).name
        for who in ("bob", "root", "ada"):
            self.refused("NOT_OWNER", self.clients[who].grant, buffer, "carol")
        owner.grant(buffer, "bob")
        self.refused("NOT_OWNER", self.label, "bob", buffer)

    def test_the_owner_the_grantee_and_admins_take_it_back(self):
        ada, buffer = self.clients["ada"], self.buffer("ada")
        for who in ("ada", "bob", "root"):
            grant = ada.grant(buffer, "bob")
            for other in ("eve", "carol", "ada2", "loopback"):
                no = self.refused("NOT_OWNER", self.clients[other].revoke_grant, grant)
                self.assertIn("allowed to take it back are", str(no))
            self.label("bob", buffer)
            self.assertEqual(self.clients[who].revoke_grant(grant.name), grant)
            self.refused("NOT_OWNER", self.label, "bob", buffer)
            self.refused("GRANT_ENDED", ada.revoke_grant, grant.name)

    def test_a_grant_outlives_the_token_of_the_admin_who_gave_it(self):
        """The object stays its owner's: who granted it does not matter later."""
        buffer = self.buffer("ada")
        self.clients["root"].grant(buffer, "bob", seconds=600)
        ids = [line.split()[0] for line in subprocess.run([OCTAVO, "token", "list", "--file", self.tokens], capture_output=True, text=True).stdout.splitlines()
               if " root " in line]
        subprocess.run([OCTAVO, "token", "revoke", "--file", self.tokens, *ids], check=True, capture_output=True)
        self.label("bob", buffer)

    def test_what_has_begun_goes_on(self):
        ada, bob = self.clients["ada"], self.clients["bob"]
        grant = ada.grant(None, "bob")
        job = bob.submit_job(octavo.reprocess(self.raw_volume("ada")))
        ada.revoke_grant(grant)
        self.assertEqual(bob.wait_job(job).state, "DONE")
        self.assertEqual({volume.owner for volume in bob.volumes(job.name)}, {"bob"})

    def raw_volume(self, who):
        client = self.clients[who]
        scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256, retention=dict(hold_raw=True))
        client.wait(scan.name)
        return next(volume.name for volume in client.volumes(scan.name) if volume.raw)


class Requests(Case):
    def test_what_is_no_request(self):
        ada, buffer = self.clients["ada"], self.buffer("ada")

        def create(**fields):
            return ada._call(ada._access.CreateGrant, access_pb2.CreateGrantRequest(**{"object": buffer, "grantee": "bob", **fields}))

        for field, values in {"object": ("x", "scans", "scans/", "sessions/a", "operations/a", "exports/a", "grants/a", "devices/0", "*", "scans/*", "scans/a/b", "scans/ä",
                                         "scans/../" + buffer, buffer + "\n", " " + buffer, "b" * 300, "buffers/" + "a" * 200),
                              "grantee": ("", "ada", "loopback", "remote", "octavod:itself", "bob:", "an na", "cn:", "*", "cn:a\nb", "cn:" + "a" * 400, "../bob", "bob\0"),
                              "ttl": (Duration(nanos=1), Duration(nanos=999_999_999), Duration(seconds=-5), Duration(seconds=365 * 86400, nanos=1000),
                                      Duration(seconds=2 ** 62), Duration(seconds=1, nanos=-1), Duration(seconds=5, nanos=2_000_000_000))}.items():
            for value in values:
                with self.subTest(field=field, value=value):
                    no = self.refused("BAD_FIELD", create, **{field: value})
                    self.assertEqual(no.field.split(".")[0], field)
        self.assertEqual(ada.grants(), [])
        for name, reason in (("scans/none", "NO_SCAN"), ("jobs/none", "NO_JOB"), ("volumes/none", "NO_VOLUME"), ("buffers/none", "NO_BUFFER")):
            self.assertEqual(self.refused(reason, ada.grant, name, "bob").field, "object")
        (gone,) = (volume.name for volume in ada.volumes(self.scanned("ada", volumes=1)))
        ada.discard(gone)
        no = self.refused("VOLUME_GONE", ada.grant, gone, "bob")
        self.assertEqual(no.field, "object")
        self.assertIn(f"{gone} has left memory: DISCARDED", str(no))
        for name in ("", "grants/none", "x", buffer, "grants/" + "a" * 200):
            self.refused("GRANT_ENDED", ada.revoke_grant, name)
        for ttl, seconds in ((Duration(seconds=1), 1), (Duration(seconds=365 * 86400), 365 * 86400), (Duration(), 30 * 86400), (None, 30 * 86400)):
            grant = create(ttl=ttl).grant
            self.assertAlmostEqual(grant.expire_time.ToNanoseconds() - grant.create_time.ToNanoseconds(), seconds * 1e9, delta=1e6)

    def test_the_python_client_names_its_arguments(self):
        ada, buffer = self.clients["ada"], self.clients["ada"].buffers.put(np.zeros(2, "f4"))
        for call, words in ((lambda: ada.grant("", "bob"), "object is ''"), (lambda: ada.grant("sessions/a", "bob"), "object: is 'sessions/a'"),
                            (lambda: ada.grant(buffer, "bob", seconds=0), "seconds is 0"), (lambda: ada.grant(buffer, "bob", seconds=0.5), "seconds: is 0.5"),
                            (lambda: ada.grant(buffer, "ada"), "to: is 'ada'"), (lambda: ada.grant(buffer, "bob", ttl=3), "ttl"),
                            (lambda: ada.grant([buffer], "bob"), "object is")):
            self.assertRaisesRegex((octavo.OctavoError, ValueError, TypeError), words, call)
        scan = self.scanned("ada")
        for thing in (buffer, ada.scan(scan), ada.volumes(scan)[0], buffer.name):
            self.assertEqual(ada.grant(thing, "bob").object, thing if isinstance(thing, str) else thing.name)
        self.assertEqual(ada.grant(None, "bob").object, "")

    def test_granted_again_it_has_the_new_end(self):
        ada, buffer = self.clients["ada"], self.buffer("ada")
        first = ada.grant(buffer, "bob", seconds=100)
        again = ada.grant(buffer, "bob", seconds=5000)
        self.assertEqual(first.name, again.name)
        self.assertGreater(again.expire_time.ToNanoseconds(), first.expire_time.ToNanoseconds())
        self.assertEqual(ada.grants(), [again])
        self.assertNotEqual(ada.grant(None, "bob").name, first.name)
        self.assertEqual(self.clients["root"].grant(buffer, "bob").name, first.name)  # for its owner

    def test_it_ends_with_its_time(self):
        ada, buffer = self.clients["ada"], self.buffer("ada")
        grant = ada.grant(buffer, "bob", seconds=4)
        self.label("bob", buffer)

        def ended():
            try:
                self.label("bob", buffer)
                return False
            except octavo.OctavoError as error:
                self.assertEqual(error.reason, "NOT_OWNER")
                return True

        until(ended)
        self.assertEqual(ada.grants(), [])
        self.refused("GRANT_ENDED", ada.revoke_grant, grant)

    def test_lists(self):
        ada = self.clients["ada"]
        buffers = [self.buffer("ada") for _ in range(5)]
        made = [ada.grant(buffer, who, seconds=1000 - 100 * i) for i, buffer in enumerate(buffers) for who in ("bob", "carol")]
        self.clients["carol"].grant(None, "bob")
        self.assertEqual([g.name for g in ada.grants()][:10], [g.name for g in made])
        self.assertEqual([g.name for g in ada.grants(filter="grantee = bob AND owner = ada")], [g.name for g in made[::2]])
        self.assertEqual([g.object for g in ada.grants(filter=f'object = "{buffers[3]}"')], 2 * [buffers[3]])
        self.assertEqual([(g.owner, g.object) for g in ada.grants(filter='object = ""')], [("carol", "")])
        self.assertIn(ada.grants(filter="project = retina", order_by="expire_time, name")[-1].name, [g.name for g in made[:2]])
        page = access_pb2.ListGrantsRequest(page_size=4)
        names = []
        while True:
            answer = ada._call(ada._access.ListGrants, page)
            names += [g.name for g in answer.grants]
            page.page_token = answer.next_page_token
            if not page.page_token:
                break
        self.assertEqual(names, [g.name for g in ada.grants()])
        for fields in ({"page_size": -1}, {"page_size": 1001}, {"page_token": "x"}, {"filter": "grantee ="}, {"filter": "secret = a"}, {"order_by": "nothing"}):
            self.refused("BAD_FIELD", ada._call, ada._access.ListGrants, access_pb2.ListGrantsRequest(**fields))

    def test_an_owner_has_a_bound(self):
        ada = self.clients["ada"]
        self.assertEqual(self.daemon.stop(), 0)
        with open(os.path.join(self.directory, "state", "server_id")) as file:
            server = file.read().strip()
        rows = [{"name": f"grants/{server}-{i}", "object": f"scans/{server}-{i}", "grantee": "bob", "owner": "ada", "project": "retina", "created_unix_ns": 1,
                 "expires_unix_ns": 9 * 10 ** 18} for i in range(999)]
        with open(self.path(), "w") as file:
            json.dump({"format": "octavo grants 1", "server_id": server, "grants": rows}, file)
        os.chmod(self.path(), 0o600)
        self.start()
        ada, buffer = self.clients["ada"], self.buffer("ada")
        self.assertEqual(len(ada.grants()), 999, self.daemon.text())
        last = ada.grant(buffer, "bob")
        no = self.refused("GRANTS", ada.grant, buffer, "carol")
        self.assertEqual((no.numbers["used"], no.numbers["allowed"]), ("1000", "1000"))
        self.assertEqual(ada.grant(buffer, "bob").name, last.name)
        self.clients["carol"].grant(None, "bob")  # others have room
        ada.revoke_grant(f"grants/{server}-7")
        ada.grant(buffer, "carol")


class Lasting(Case):
    def test_a_restart_and_a_kill_keep_them(self):
        ada = self.clients["ada"]
        scan = self.scanned("ada", volumes=1)
        volume = ada.volumes(scan)[0].name
        ada.spill(volume, "disk")
        kept, gone = ada.grant(scan, "bob"), ada.grant(None, "carol")
        ada.revoke_grant(gone)
        self.assertEqual(stat.S_IMODE(os.stat(self.path()).st_mode), 0o600)
        self.daemon.kill()
        self.start()
        self.assertEqual(self.clients["bob"].grants(), [kept])
        # The volume is held again, and has the scan of the daemon before.
        self.refused("NOT_OWNER", self.clients["carol"].discard, volume)
        self.clients["ada"].grant(scan, "carol")  # a scan of an earlier daemon, of which a volume is held
        self.restart()
        self.assertEqual(len(self.clients["bob"].grants()), 2)
        self.clients["carol"].discard(volume)

    def test_a_kill_while_one_is_written(self):
        for point, found in (("secret_write", 0), ("secret_sync", 1)):
            with self.subTest(point=point):
                self.restart(environment={"OCTAVO_FAILPOINT": f"{point}:kill"})
                with self.assertRaises(octavo.OctavoError):
                    self.clients["ada"].grant(None, "bob")
                self.assertEqual(self.daemon.process.wait(30), -signal.SIGKILL)
                self.start()
                self.assertEqual(len(self.clients["ada"].grants()), found)
                self.assertNotIn("put aside", self.daemon.text())

    def test_a_full_disk_changes_nothing(self):
        buffer = self.buffer("ada")
        self.restart(environment={"OCTAVO_FAILPOINT": FULL_DISK})
        buffer = self.buffer("ada")
        self.refused("DISK_FULL", self.clients["ada"].grant, buffer, "bob")
        self.assertEqual(self.clients["ada"].grants(), [])
        self.refused("NOT_OWNER", self.label, "bob", buffer)
        grant = self.clients["ada"].grant(buffer, "bob")
        self.assertEqual(self.clients["ada"].grants(), [grant])
        self.restart(environment={"OCTAVO_FAILPOINT": "secret_sync:errno=5"})
        self.refused("IO_ERROR", self.clients["ada"].revoke_grant, grant)
        self.restart()
        self.assertEqual(self.clients["ada"].grants(), [grant])

    def test_a_damaged_file_grants_nothing_and_is_told(self):
        self.clients["ada"].grant(None, "bob")
        self.assertEqual(self.daemon.stop(), 0)
        with open(self.path(), "r+") as file:
            file.truncate(os.path.getsize(self.path()) - 5)
        self.start()
        self.assertEqual(self.clients["ada"].grants(), [])
        aside, = (name for name in os.listdir(os.path.join(self.directory, "state")) if name.startswith("grants.json.damaged-"))
        told = [line for line in self.clients["vera"].info().recovered if aside in line]
        self.assertEqual(len(told), 1)
        self.assertIn("nothing is granted any more", told[0])
        self.assertIn("grants put aside", self.daemon.text())
        until(lambda: any(line.get("what") == "grants put aside" for line in self.audit()))
        self.restart()
        self.assertEqual([line for line in self.clients["vera"].info().recovered if "damaged" in line], [])

    def test_a_draining_server_takes_them(self):
        ada, buffer = self.clients["ada"], self.buffer("ada")
        scan = ada.submit_scan(octavo.simulated(1), octavo.raster(64, 64, volumes=1), samples=1024, rate_hz=1000)  # keeps the drain waiting
        self.daemon.process.send_signal(signal.SIGTERM)
        refused = lambda: self.code(lambda: ada.submit_scan(octavo.simulated(1), octavo.raster(16, 8, volumes=1), samples=256)) == "DRAINING"  # noqa: E731
        until(refused)
        grant = ada.grant(buffer, "bob")
        ada.cancel(scan)
        self.daemon.process.wait(60)
        self.start()
        self.assertEqual(self.clients["ada"].grants(), [grant])

    def code(self, call):
        try:
            call()
        except octavo.OctavoError as error:
            return error.reason
        return ""

    def test_many_at_once(self):
        buffers = [self.buffer("ada") for _ in range(4)]
        problems = []

        def work(buffer, who):
            try:
                for _ in range(10):
                    grant = self.clients["ada"].grant(buffer, who)
                    self.label(who, buffer)
                    self.clients["root"].revoke_grant(grant)
                    if self.code(lambda: self.label(who, buffer)) != "NOT_OWNER":
                        problems.append(f"{who} still may")
            except Exception as error:  # pylint: disable=broad-except
                problems.append(str(error))

        threads = [threading.Thread(target=work, args=(buffer, who)) for buffer in buffers for who in ("bob", "carol")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])
        self.assertEqual(self.clients["ada"].grants(), [])


class Told(Case):
    def test_the_audit_log(self):
        ada, buffer = self.clients["ada"], self.buffer("ada")
        grant = ada.grant(buffer, "bob")
        self.refused("NOT_OWNER", self.clients["eve"].grant, buffer, "carol")
        self.clients["bob"].revoke_grant(grant)
        everything = ada.grant(None, "bob")

        def lines():
            return [{key: line.get(key) for key in ("method", "principal", "object", "grant", "grantee", "owner", "outcome", "reason")} for line in self.audit()
                    if "AccessService" in line.get("method", "")]

        until(lambda: len(lines()) == 4)
        create, revoke = "octavo.v1.AccessService.CreateGrant", "octavo.v1.AccessService.RevokeGrant"
        keys = ("method", "principal", "object", "grant", "grantee", "owner", "outcome", "reason")
        self.assertEqual(lines(), [dict(zip(keys, values)) for values in (
            (create, "ada", buffer, grant.name, "bob", "ada", "ok", None),
            (create, "eve", buffer, None, "carol", None, "refused", "NOT_OWNER"),
            (revoke, "bob", grant.name, None, "bob", "ada", "ok", None),
            (create, "ada", None, everything.name, "bob", "ada", "ok", None))])

    def test_the_metric(self):
        def count():
            with urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics") as page:
                return next(float(line.split()[1]) for line in page.read().decode().splitlines() if line.startswith("octavo_grants "))

        self.assertEqual(count(), 0)
        grant = self.clients["ada"].grant(None, "bob")
        self.assertEqual(count(), 1)
        self.clients["ada"].revoke_grant(grant)
        self.assertEqual(count(), 0)

    def test_the_command_line(self):
        def command(who, *words):
            return subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", self.secrets[who], *words], capture_output=True, text=True, timeout=60)

        buffer = self.buffer("ada")
        refused = command("bob", "buffer", "destroy", buffer)
        self.assertIn("may let others change it by a grant", refused.stderr)
        added = command("ada", "grant", "add", buffer, "--to", "bob", "--for", "7d")
        self.assertEqual(added.returncode, 0, added.stderr)
        name = added.stdout.split()[0]
        self.assertIn(f"{buffer}  of ada (retina)  to bob  until 2", added.stdout)
        shown = json.loads(command("vera", "--json", "grant", "list", "--filter", "grantee = bob").stdout)
        self.assertEqual((shown["name"], shown["object"]), (name, buffer))
        seconds = self.clients["ada"].grants()[0]
        self.assertAlmostEqual(seconds.expire_time.ToNanoseconds() - seconds.create_time.ToNanoseconds(), 7 * 86400 * 1e9, delta=1e6)
        self.assertEqual(added.stderr, "")
        # What helps nobody is granted, and told at once and by `octavo info`.
        for grantee, why in (("bbo", "no token, line of a certificate or user (uid:<number>) has this name"), ("vera", "has the role viewer now, which may change nothing")):
            doubtful = command("ada", "grant", "add", buffer, "--to", grantee)
            self.assertEqual(doubtful.returncode, 0, doubtful.stderr)
            of = doubtful.stdout.split()[0]
            self.assertIn(f"warning: {of} to '{grantee}': ", doubtful.stderr)
            self.assertIn(why, doubtful.stderr)
            self.assertIn(f"warning: {of} to '{grantee}': ", command("ada", "info").stdout)
            self.assertEqual(command("ada", "grant", "revoke", of).returncode, 0)
            self.assertNotIn(of, command("ada", "info").stdout)
        refused = command("eve", "grant", "revoke", name)
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))  # and nothing that looks as if it had worked
        self.assertEqual(command("ada", "grant", "revoke", name).returncode, 0)
        self.assertEqual(command("ada", "grant", "add", "--all", "--to", "bob").returncode, 0)
        self.assertIn("everything  of ada (retina)  to bob", command("bob", "grant", "list").stdout)
        self.assertEqual(command("bob", "buffer", "destroy", buffer).returncode, 0)
        self.assertEqual(command("ada", "grant", "add", "--to", "bob").returncode, 2)


if __name__ == "__main__":
    unittest.main()
