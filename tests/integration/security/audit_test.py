"""The audit log: a line for each change and each refusal, with who, from where, what, and how it ended; what the server did by itself; the trace and the request
that a line belongs to; that no secret is in it; and that neither a kill nor a full disk tears or loses lines unseen."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest
import urllib.request

import grpc
import numpy as np

from harness import BUILD, Daemon, octavo, until
from octavo.v1 import scan_pb2

OCTAVO = os.path.join(BUILD, "bin", "octavo")
PARTS = ("buffer", "export", "ingest", "job", "mosaic", "operation", "scan", "session", "stream", "system", "volume")
PEOPLE = {"ada": "operator", "vera": "viewer", "root": "admin"}
# What asks and changes nothing, of the methods for operators.
ASKS = {"PlanScan", "PlanJob", "PlanWaveform", "PlotWaveform", "FindZOverlap", "RegisterTiles", "KeepAlive", "RenewLease"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def methods():
    for part in PARTS:
        module = __import__(f"octavo.v1.{part}_pb2", fromlist=["DESCRIPTOR"])
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def is_for_viewers(method):
    return re.match("(Get|List|Watch|Wait|Read)[A-Z]", method.name) or method.name in ("Subscribe", "OpenFrames", "RenderVolume")


def call(channel, method, metadata=()):
    """Calls a method, whatever its form, with an empty request; its code. A stream of a viewer may have nothing to say."""
    shapes = {(False, False): channel.unary_unary, (False, True): channel.unary_stream, (True, False): channel.stream_unary,
              (True, True): channel.stream_stream}
    rpc = shapes[method.client_streaming, method.server_streaming](f"/{method.containing_service.full_name}/{method.name}")
    try:
        answer = rpc(iter([b""]) if method.client_streaming else b"", metadata=metadata,
                     timeout=2 if method.server_streaming and is_for_viewers(method) else 20)
        if method.server_streaming:
            for _ in answer:
                break
            answer.cancel()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def content(path, mode="r"):
    with open(path, mode) as file:
        return file.read()


def small(volumes=1):
    return octavo.raster(16, 8, volumes=volumes)


class AuditTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-audit-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.folder = os.path.join(self.directory, "state", "audit")
        self.path = os.path.join(self.folder, "audit.jsonl")
        self.tokens = os.path.join(self.directory, "tokens")
        self.secret = {}
        for name, role in PEOPLE.items():
            self.secret[name] = os.path.join(self.directory, f"token-of-{name}")
            subprocess.run([OCTAVO, "token", "add", "--file", self.tokens, "--name", name, "--role", role, "--secret-file", self.secret[name]], check=True,
                           capture_output=True, timeout=60)

    def start(self, *flags, **options):
        daemon = Daemon("--security.tokens", self.tokens, "--listen.loopback_role", "none", *flags, directory=self.directory, **options)
        self.addCleanup(daemon.remove)
        return daemon

    def client(self, daemon, who):
        client = octavo.Client(daemon.address, token_file=self.secret[who])
        self.addCleanup(client.close)
        return client

    def lines(self, **wanted):
        """Those that have these fields. Every line is whole at any time."""
        with open(self.path, "rb") as file:
            found = [json.loads(line) for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        return [line for line in found if all(line.get(key) == value for key, value in wanted.items())]

    def one(self, **wanted):
        """The only such line, once it is there."""
        until(lambda: self.lines(**wanted))
        found = self.lines(**wanted)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def metric(self, daemon, name):
        with urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        return float(page.split(f"\n{name} ")[1].split("\n")[0])

    def assertNumbered(self):
        """Without a gap since the start of the process."""
        numbers = [line["n"] for line in self.lines()]
        self.assertEqual(numbers, sorted(numbers))

    # -- calls

    def test_every_method_that_changes_something_has_a_line_and_every_refusal(self):
        daemon = self.start()
        ada, vera = self.client(daemon, "ada"), self.client(daemon, "vera")
        changing, asking = [], []
        for method in methods():
            (asking if is_for_viewers(method) or method.name in ASKS else changing).append(method)
        self.assertGreater(len(changing), 30)
        for method in methods():
            if method.name != "Measure":
                call(ada.channel, method)
        for method in changing:
            if method.name == "Measure":
                continue
            line = self.one(event="call", method=method.full_name, principal="ada")
            self.assertIn(line["outcome"], ("ok", "failed"), line)
            self.assertEqual((line["role"], line["peer"].split(":")[0]), ("operator", "ipv4"), line)
            self.assertTrue(line["outcome"] == "ok" or line["code"], line)
        for method in asking:
            self.assertEqual([line for line in self.lines(method=method.full_name) if line["outcome"] != "refused"], [])
        # The server refuses a viewer, and a caller without a token; each refusal has its line.
        with grpc.insecure_channel(daemon.address) as nobody:
            for method in methods():
                if is_for_viewers(method):
                    continue
                self.assertEqual(call(vera.channel, method), grpc.StatusCode.PERMISSION_DENIED)
                line = self.one(method=method.full_name, principal="vera")
                self.assertEqual((line["outcome"], line["code"], line["reason"], line["role"]), ("refused", "PERMISSION_DENIED", "WRONG_ROLE", "viewer"))
                self.assertEqual(call(nobody, method), grpc.StatusCode.UNAUTHENTICATED)
                self.one(method=method.full_name, code="UNAUTHENTICATED", reason="NO_TOKEN")
            wrong = [("authorization", "Bearer octavo_00000000_" + "0" * 64)]
            self.assertEqual(call(nobody, next(methods()), wrong), grpc.StatusCode.UNAUTHENTICATED)
            self.one(code="UNAUTHENTICATED", reason="BAD_TOKEN")
        self.assertNumbered()

    def test_every_method_that_changes_something_names_its_object(self):
        """By the names of fields (call_audit.cc): a call with other ones would have lines without it."""
        asked = {"name", "input", "scan", "job", "resource", "parent", "object", "device", "root"}
        made = {"scan", "job", "buffer", "output", "volume", "session", "lease", "operation", "grant"}
        without = {"CloseSession", "ReleaseLease", "OpenDeposit"}  # deploy/README.md says so
        for method in methods():
            if is_for_viewers(method) or method.name in ASKS or method.name in without:
                continue
            fields = {field.name for field in method.input_type.fields} & asked
            answers = {field.name for field in method.output_type.fields} & (made | asked)
            with self.subTest(method.full_name):
                self.assertTrue(fields or answers, [field.name for field in method.input_type.fields])

    def test_lines_name_object_request_and_trace(self):
        daemon = self.start()
        ada = self.client(daemon, "ada")
        scan = ada.submit_scan(octavo.simulated(1, fast=True), small(2), samples=256, title="with a \"title\"", request_id="the request").name
        ada.wait(scan)
        line = self.one(event="call", method="octavo.v1.ScanService.SubmitScan")
        self.assertEqual((line["object"], line["outcome"], line["request_id"], line["principal"]), (scan, "ok", "the request", "ada"))
        self.assertEqual(line["token_id"], content(self.secret["ada"]).split("_")[1])
        first, second = (volume.name for volume in ada.volumes(scan))
        ada.discard(first)
        self.one(event="call", method="octavo.v1.VolumeService.DiscardVolume", object=first, outcome="ok")
        gone = self.one(event="change", kind="volume", object=first, state="DISCARDED")
        self.assertEqual((gone["owner"], gone["parent"]), ("ada", scan))
        with self.assertRaisesRegex(octavo.OctavoError, f"{first} is DISCARDED \\(.+\\); only a HELD one can be committed"):
            ada.commit(first, "gone.npy")
        failed = self.one(event="call", method="octavo.v1.VolumeService.CommitVolume", object=first, outcome="failed")
        self.assertTrue(failed["code"] and failed["reason"], failed)
        commit = ada.commit(second, "here.npy", request_id="commit it")
        asked = self.one(event="call", method="octavo.v1.VolumeService.CommitVolume", object=second)
        self.assertEqual((asked["destination"], asked["request_id"], asked["outcome"]), ("here.npy", "commit it", "ok"))
        ended = self.one(event="change", kind="commit", state="SUCCEEDED")
        self.assertEqual((ended["volume"], ended["destination"], ended["object"], ended["principal"]), (second, "here.npy", asked["operation"], "ada"))
        self.assertTrue(os.path.exists(ended["path"]), ended)
        self.assertTrue(commit)
        # The states of the scan, with the request that made it.
        self.assertEqual([line["state"] for line in self.lines(kind="scan", object=scan) if line["state"] == "DONE"], ["DONE"])
        self.assertTrue(all(line["request_id"] == "the request" for line in self.lines(kind="scan", object=scan)))
        # W3C Trace Context, in the lines and in the log.
        spec = octavo.v1.scan_pb2.SubmitScanRequest(spec=ada.scan(scan).message.spec)
        traced = [("authorization", "Bearer " + content(self.secret["ada"]).strip())]
        for parent, kept in ((f"00-{TRACE}-00f067aa0ba902b7-01", TRACE), (f"00-{TRACE}-0000000000000000-01", None), ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", None),
                             (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None), (f"01-{TRACE}-00f067aa0ba902b7-01-more", TRACE), (f"00-{TRACE}-00f067aa0ba902b7-01-more", None),
                             ("x" * 200, None)):
            with self.subTest(parent), grpc.insecure_channel(daemon.address) as channel:
                stub = octavo.v1.scan_pb2_grpc.ScanServiceStub(channel)
                name = stub.SubmitScan(spec, timeout=30, metadata=[*traced, ("traceparent", parent)]).scan.name
                ada.wait(name)
                self.assertEqual(self.one(event="call", object=name).get("trace_id"), kept)
                until(lambda: self.lines(kind="scan", object=name, state="DONE"))
                for line in self.lines(kind="scan", object=name):
                    self.assertEqual(line.get("trace_id"), kept)
                told = [json.loads(line) for line in daemon.text().splitlines() if name in line]
                told = [line for line in told if line["event"] in ("scan started", "scan queued")]
                self.assertEqual([(line["principal"], line["trace_id"]) for line in told], [("ada", kept or "")])
        self.assertNumbered()

    def test_failed_commits_say_where_and_why(self):
        daemon = self.start(environment={"OCTAVO_FAILPOINT": "before_rename:errno=28"})
        ada = self.client(daemon, "ada")
        scan = ada.submit_scan(octavo.simulated(1, fast=True), small(), samples=256).name
        ada.wait(scan)
        (volume,) = (volume.name for volume in ada.volumes(scan))
        buffer = ada.buffers.create((8,), "u8").name
        with open(os.path.join(daemon.root, "taken.npy"), "w"):
            pass
        with self.assertRaises(octavo.OctavoError):
            ada.commit(volume, "taken.npy")
        asked = self.one(method="octavo.v1.VolumeService.CommitVolume", object=volume)
        self.assertEqual((asked["outcome"], asked["destination"]), ("failed", "taken.npy"))
        self.assertTrue(asked["reason"])
        # Later than the call: the disk is full.
        with self.assertRaises(octavo.OctavoError):
            ada.commit(volume, "full.npy")
        failed = self.one(event="change", kind="commit", state="FAILED")
        self.assertEqual((failed["volume"], failed["destination"], failed["principal"]), (volume, "full.npy", "ada"))
        self.assertTrue(failed["reason"] and failed["why"], failed)
        # Others may not do away with it.
        vera = self.client(daemon, "vera")
        for attempt in (lambda: vera.discard(volume), lambda: vera.buffers.destroy(buffer)):
            with self.assertRaises(octavo.OctavoError):
                attempt()
        self.assertEqual(ada.volume(volume).message.state, 2)

    def test_what_the_server_does_by_itself(self):
        daemon = self.start("--session.heartbeat_seconds", "0.2", "--session.expiry_seconds", "0.5")
        ada = self.client(daemon, "ada")
        scan = ada.submit_scan(octavo.simulated(1, fast=True), small(), samples=256, retention=dict(ttl=1)).name
        ada.wait(scan)
        volume = self.one(kind="volume", state="DISCARDED", parent=scan)
        self.assertEqual((volume["reason"], volume["owner"]), ("EXPIRED", "ada"))
        self.assertEqual(self.lines(method="octavo.v1.VolumeService.DiscardVolume"), [])
        # What runs at the end of the server is cut short; the file says which, and why.
        running = ada.submit_scan(octavo.push(idle_timeout=600), small(), samples=256).name
        kept = ada.submit_scan(octavo.simulated(1, fast=True), small(), samples=256, queue="another").name
        until(lambda: ada.scan(running).message.state == 2)
        ada.cancel(kept)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.stop(), 0)
        ended = [line for line in self.lines(kind="scan", object=running)][-1]
        self.assertIn(ended["state"], ("DONE", "CANCELLED"))
        self.assertIn(ended["reason"], ("DRAINED", "SERVER_STOPPED", "STOPPED", "INTERRUPTED"))
        # (What the second scan may have completed is lost without a tier on disk, and named.)
        told = [line for line in self.lines(event="server") if line["what"] != "held volume lost with the server"]
        self.assertEqual([line["what"] for line in told], ["started", "stopping", "stopped"])
        self.assertEqual(self.lines()[-1]["what"], "stopped")

    # -- secrets

    def test_no_secret_is_in_it(self):
        daemon = self.start()
        ada = self.client(daemon, "ada")
        stub = octavo.v1.session_pb2_grpc.SessionServiceStub(ada.channel)
        session = stub.OpenSession(octavo.v1.session_pb2.OpenSessionRequest(client="microscope"), timeout=20)
        buffer = ada.buffers.create((8,), "u8").name
        lease = stub.AcquireLease(octavo.v1.session_pb2.AcquireLeaseRequest(resource=buffer, mode=2, session_secret=session.secret, holder="someone"), timeout=20).lease
        stub.ReleaseLease(octavo.v1.session_pb2.ReleaseLeaseRequest(token=lease.token), timeout=20)
        with self.assertRaises(grpc.RpcError):
            stub.ReleaseLease(octavo.v1.session_pb2.ReleaseLeaseRequest(token=lease.token), timeout=20)
        stub.CloseSession(octavo.v1.session_pb2.CloseSessionRequest(secret=session.secret), timeout=20)
        key = "the key of an owner, 32 characters"
        made = octavo.v1.buffer_pb2_grpc.BufferServiceStub(ada.channel).CreateBuffer(
            octavo.v1.buffer_pb2.CreateBufferRequest(type=octavo.v1.types_pb2.ElementType(dtype=octavo.v1.types_pb2.DTYPE_U8), shape=[8]), timeout=20, metadata=[("octavo-owner-key", key), ("octavo-client", "me")])
        self.assertEqual(daemon.stop(), 0)
        text = content(self.path)
        self.assertIn(made.buffer.name, text)
        self.assertEqual(self.one(method="octavo.v1.SessionService.AcquireLease")["object"], buffer)
        self.assertEqual(self.one(method="octavo.v1.SessionService.ReleaseLease", outcome="ok")["object"], buffer)
        self.assertNotIn("object", self.one(method="octavo.v1.SessionService.ReleaseLease", outcome="failed"))  # there is no such lease any more
        for secret in (session.secret, lease.token, key, *(content(path).strip() for path in self.secret.values())):
            self.assertGreaterEqual(len(secret), 16)
            self.assertNotIn(secret, text)
            self.assertNotIn(secret[-16:], text)

    # -- the file

    def test_a_kill_leaves_whole_lines_and_the_next_daemon_goes_on(self):
        daemon = self.start()
        ada = self.client(daemon, "ada")
        for i in range(50):
            ada.buffers.create((8,), "u8")
        until(lambda: len(self.lines(method="octavo.v1.BufferService.CreateBuffer")) == 50)
        daemon.kill()
        before = content(self.path, "rb")
        with open(self.path, "ab") as file:
            file.write(b'{"time":"torn')
        daemon = self.start()
        self.client(daemon, "ada").buffers.create((8,), "u8")
        self.assertEqual(daemon.stop(), 0)
        after = content(self.path, "rb")
        self.assertTrue(after.startswith(before + b'{"time":"torn\n{"time":'))

    def test_a_full_disk_is_told_and_loses_nothing(self):
        daemon = self.start(environment={"OCTAVO_FAILPOINT": "audit_write:errno=28:3"})
        ada = self.client(daemon, "ada")
        self.assertEqual(self.metric(daemon, "octavo_audit_up"), 1)
        names = []
        while not self.metric(daemon, "octavo_audit_errors_total"):
            names.append(ada.buffers.create((8,), "u8").name)
            self.assertLess(len(names), 1000)
        for name in names:
            self.one(method="octavo.v1.BufferService.CreateBuffer", object=name)
        until(lambda: self.metric(daemon, "octavo_audit_up") == 1)
        self.assertEqual((self.metric(daemon, "octavo_audit_errors_total"), self.metric(daemon, "octavo_audit_dropped_total")), (1, 0))
        self.assertEqual(daemon.stop(), 0)
        self.assertNumbered()
        self.assertIn("the audit log cannot be written; its lines wait", daemon.text())
        self.assertIn("the audit log is written again", daemon.text())

    def test_lines_that_a_stop_loses_are_told_by_the_next_start(self):
        daemon = self.start()
        ada, vera = self.client(daemon, "ada"), self.client(daemon, "vera")
        ada.buffers.create((8,), "u8")
        self.one(method="octavo.v1.BufferService.CreateBuffer")
        os.rename(self.folder, self.folder + ".away")  # the disk is gone
        for _ in range(20):
            ada.buffers.create((8,), "u8")
        until(lambda: self.metric(daemon, "octavo_audit_up") == 0)
        told, = (line for line in ada.info().recovered if line.startswith("audit.dir: "))
        self.assertRegex(told, r"cannot be written now: .+; \d+ lines wait, and 0 were dropped")
        self.assertEqual([line for line in vera.info().recovered if "audit" in line], [])
        daemon.stop()
        lost = int(re.search(r"lacks its last lines\D*lines\D{1,4}(\d+)", daemon.text()).group(1))
        self.assertGreaterEqual(lost, 20)
        os.rename(self.folder + ".away", self.folder)
        daemon = self.start()
        self.assertEqual(self.one(event="lines lost")["lines"], lost)
        self.assertEqual([line for line in self.client(daemon, "ada").info().recovered if "audit" in line], [])
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.start().stop(), 0)
        self.assertEqual(len(self.lines(event="lines lost")), 1)  # told once

    def test_what_a_revocation_ends_is_refused(self):
        daemon = self.start("--handoff.unix", "auto", "--drain.seconds", "1")
        ada = self.client(daemon, "ada")
        with open(self.secret["ada"]) as file:
            token_id = file.read()[7:15]
        scan = ada.submit_scan(octavo.push(), octavo.raster(16, 4, volumes=0), samples=64)
        revoked = threading.Event()

        def blocks():
            yield np.ones((16, 64), np.uint16)
            revoked.wait(30)

        ends = []

        def push():
            try:
                ada.push(scan.name, blocks(), reconnect=0)
            except octavo.OctavoError as error:
                ends.append(error.code)

        pushing = threading.Thread(target=push)
        pushing.start()
        self.addCleanup(pushing.join)
        self.addCleanup(revoked.set)
        watch = ada._volumes.WatchVolumes(octavo.v1.volume_pb2.WatchVolumesRequest())
        watch.initial_metadata()
        held = ada.wait(ada.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 4, volumes=1), samples=64).name)
        mapped = ada.map(ada.volumes(held.name)[0].name)
        live = ada.submit_scan(octavo.simulated(1), octavo.raster(16, 4, volumes=0), samples=64, rate_hz=4096,
                               retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=2))
        feed = ada.map_volumes(live.name, timeout=20)
        next(feed)
        subprocess.run([OCTAVO, "token", "revoke", "--file", self.tokens, token_id], check=True, capture_output=True, timeout=60)
        with self.assertRaises(octavo.HandoffError):
            for _ in feed:
                pass
        with self.assertRaises(grpc.RpcError):
            for _ in watch:
                pass
        del mapped
        pushing.join(20)
        self.assertEqual(ends, [grpc.StatusCode.UNAUTHENTICATED])
        for method in ("octavo.v1.IngestService.Push", "octavo.v1.VolumeService.WatchVolumes"):
            line = self.one(method=method)
            self.assertEqual((line["outcome"], line["code"], line["reason"], line["principal"]), ("refused", "UNAUTHENTICATED", "BAD_TOKEN", "ada"), line)
        until(lambda: len(self.lines(event="hand-over", reason="BAD_TOKEN")) >= 1)
        line = self.lines(event="hand-over", reason="BAD_TOKEN")[0]
        self.assertEqual((line["outcome"], line["uid"], line["pid"]), ("refused", os.geteuid(), os.getpid()))
        self.assertIn("no token or certificate of ada is valid any more that makes it an operator", line["why"])
        with self.assertRaises(octavo.HandoffError):
            octavo.mapping.Volumes(os.path.join(self.directory, "state", "handoff.sock"), "0" * 32)
        self.one(event="hand-over", reason="TICKET_UNKNOWN")
        self.assertEqual(daemon.stop(), 0)

    def test_a_configuration_that_is_not_read_again_says_why(self):
        path = os.path.join(self.directory, "octavod.toml")
        with open(path, "w") as file:
            file.write("[log]\nlevel = \"info\"\n")
        daemon = self.start("--config", path)
        with open(path, "w") as file:
            file.write("[log]\nlevel = \"loud\"\n")
        daemon.process.send_signal(signal.SIGHUP)
        self.assertIn("log.level", self.one(event="server", what="configuration not read again")["why"])
        with octavo.Client("unix:" + os.path.join(self.directory, "state", "octavo.sock")) as client:
            self.assertRegex("\n".join(client.info().recovered), "configuration: was not read again: .*log.level.*the one before stays in use")
            with open(path, "w") as file:
                file.write("[log]\nlevel = \"warning\"\n[drain]\non_held = \"lose\"\n")
            daemon.process.send_signal(signal.SIGHUP)
            self.one(event="server", what="configuration read again")
            told = lambda: [line for line in client.info().recovered if "restart" in line]  # noqa: E731
            until(told)
            self.assertEqual(told(), ["configuration: changes wait for a restart: drain.on_held: spill -> lose"])
            self.assertNotIn("was not read again", "\n".join(client.info().recovered))
        self.assertEqual(daemon.stop(), 0)

    def test_files_are_put_aside(self):
        daemon = self.start("--audit.file_bytes", "65536", "--audit.kept", "2")
        ada = self.client(daemon, "ada")
        for i in range(1200):
            ada.buffers.destroy(ada.buffers.create((8,), "u8").name)
        self.assertEqual(daemon.stop(), 0)
        aside = sorted(name for name in os.listdir(self.folder) if name.startswith("audit-"))
        self.assertEqual(len(aside), 2)
        lines = [json.loads(line) for name in (*aside, "audit.jsonl") for line in content(os.path.join(self.folder, name)).splitlines()]
        numbers = [line["n"] for line in lines]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        self.assertLess(max(os.path.getsize(os.path.join(self.folder, name)) for name in aside), 3 * 65536)
        # With old files go lines of others: what is left says which.
        gone = [line["file"] for line in lines if line["event"] == "file removed"]
        self.assertTrue(gone)
        self.assertEqual(gone, sorted(gone))
        self.assertLess(gone[-1], aside[0])

    def test_whoever_fails_again_and_again_is_summed_up(self):
        daemon = self.start()
        with grpc.insecure_channel(daemon.address) as nobody:
            rpc = nobody.unary_unary("/octavo.v1.SystemService/GetInfo")
            for _ in range(25):
                for future in [rpc.future(b"", timeout=60) for _ in range(200)]:
                    self.assertEqual(future.code(), grpc.StatusCode.UNAUTHENTICATED)
        ada = self.client(daemon, "ada")
        ada.buffers.create((8,), "u8")
        self.one(method="octavo.v1.BufferService.CreateBuffer", outcome="ok")
        self.assertEqual(daemon.stop(), 0)
        refused = len(self.lines(method="octavo.v1.SystemService.GetInfo", outcome="refused"))
        left_out = sum(line["lines"] for line in self.lines(event="lines left out"))
        self.assertEqual(refused + left_out, 5000)

    def test_without_its_folder_the_server_does_not_start_unless_it_is_off(self):
        daemon = self.start("--audit.dir", "none")
        self.client(daemon, "ada").buffers.create((8,), "u8")
        self.assertEqual((self.metric(daemon, "octavo_audit_up"), os.path.exists(self.folder)), (0, False))
        self.assertEqual(daemon.stop(), 0)
        with open(self.folder, "w"):
            pass
        with self.assertRaisesRegex(RuntimeError, "audit.dir.*audit is no directory"):
            self.start()
        os.unlink(self.folder)
        os.mkdir(self.folder, 0o777)
        os.chmod(self.folder, 0o777)
        with self.assertRaisesRegex(RuntimeError, "audit.dir.*nobody else may write into it"):
            self.start()


if __name__ == "__main__":
    unittest.main()
