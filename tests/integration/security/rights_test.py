"""Who may do what: roles of tokens, of the users of the Unix socket and of TCP without a token; every method with the wrong role; tokens that are
revoked while calls run."""

import contextlib
import json
import os
import re
import resource
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.request

import grpc

from harness import BUILD, SOURCE, Daemon, octavo, until
from web_viewer import Viewer

OCTAVO = os.path.join(BUILD, "bin", "octavo")
PARTS = ("access", "buffer", "export", "ingest", "job", "mosaic", "operation", "scan", "session", "stream", "system", "volume")
WORDS = ("none", "viewer", "operator", "admin")
WRITE = False  # --write: makes proto/RIGHTS.md
STRANGER = 54321  # a user and a group that nobody is in


def methods():
    """Every method of the contract, by reflection."""
    found = []
    for part in PARTS:
        module = __import__(f"octavo.v1.{part}_pb2", fromlist=["DESCRIPTOR"])
        for service in module.DESCRIPTOR.services_by_name.values():
            found += service.methods
    return found


def needed(method):
    """The role that a method needs, by its verb: what only shows is for viewers."""
    return "viewer" if re.match("(Get|List|Watch|Wait|Read)[A-Z]", method.name) or method.name in ("Subscribe", "OpenFrames", "RenderVolume") else "operator"


def outcome(channel, method, header=(), seconds=60.0, request=b""):
    """Calls a method, whatever its form; returns (code, reason, metadata)."""
    shapes = {(False, False): channel.unary_unary, (False, True): channel.unary_stream, (True, False): channel.stream_unary,
              (True, True): channel.stream_stream}
    call = shapes[method.client_streaming, method.server_streaming](f"/{method.containing_service.full_name}/{method.name}")
    try:
        answer = call(iter([request]) if method.client_streaming else request, timeout=seconds, metadata=header)
        if method.server_streaming:
            for _ in answer:
                break
            answer.cancel()
    except grpc.RpcError as error:
        result = octavo.errors.from_rpc_error(error)
        return result.code, result.reason, result.numbers
    return grpc.StatusCode.OK, "", {}


def refused(channel, role, header=(), seen=None):
    """Calls every method as a caller with `role`; returns a line for each that the server wrongly let in or refused. `seen`: takes
    the reason of each refusal, by the method's name; "" = it was let in."""
    problems = []
    for method in methods():
        want = needed(method)
        may = WORDS.index(role) >= WORDS.index(want)
        code, reason, numbers = outcome(channel, method, header, 0.5 if may else 60.0)
        name = f"{method.containing_service.full_name}/{method.name}"
        if may:
            fine = reason not in ("WRONG_ROLE", "NO_TOKEN", "BAD_TOKEN")
        elif role == "none":
            fine = (code, reason, numbers.get("method")) == (grpc.StatusCode.UNAUTHENTICATED, "NO_TOKEN", name)
        else:
            fine = ((code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "WRONG_ROLE")
                    and [numbers.get(key) for key in ("method", "needed", "role")] == [name, want, role] and numbers.get("found"))
        if seen is not None:
            seen.setdefault(name, {})[role] = reason if reason in ("WRONG_ROLE", "NO_TOKEN", "BAD_TOKEN") else ""
        if not fine:
            problems.append(f"{name} as {role}: {code} {reason} {numbers}")
    return problems


def table(seen):
    """proto/RIGHTS.md: what a server answered to each method with each role."""
    lines = ["# Methods and roles", "",
             "What a server with tokens and `listen.loopback_role = \"none\"` answered to each method of the contract, called by a caller with each role",
             "([Rights](README.md#rights)): *yes* = the role suffices, and the server looked at the request. `tests/integration/security/rights_test.py --write`",
             "calls them all and writes this page; the test compares. Who owns the object is checked afterwards: `tests/integration/security/owners_test.py`",
             "calls each verb on another caller's object.", "",
             "| method | no token | viewer | operator | admin |", "|---|---|---|---|---|"]
    for name in sorted(seen):
        service, method = name.removeprefix("octavo.v1.").split("/")
        cells = [f"`{seen[name][role]}`" if seen[name][role] else "yes" for role in WORDS]
        lines.append(f"| `{service}.{method}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def child(address):
    """Run as another user: who the server thinks that is, and what it may call."""
    with octavo.Client(address) as client:
        caller = client.info().caller
        role = octavo.v1.system_pb2.Role.Name(caller.role).removeprefix("ROLE_").lower()
        print(json.dumps({"name": caller.name, "role": role, "found": caller.found, "problems": refused(client.channel, role)}))


def token_command(*arguments, check=True):
    return subprocess.run([OCTAVO, "token", *arguments], capture_output=True, text=True, timeout=60, check=check)


class Tokens(unittest.TestCase):
    """A server with tokens, on which TCP without one may do nothing."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="octavo-rights-")
        cls.file = os.path.join(cls.folder.name, "tokens")
        cls.path = {}
        for role in WORDS[1:]:
            cls.path[role] = cls.add(role)
        cls.daemon = Daemon("--security.tokens", cls.file, "--listen.loopback_role", "none", "--handoff.unix", "auto")

    @classmethod
    def tearDownClass(cls):
        code = cls.daemon.stop()
        text = cls.daemon.text()
        cls.daemon.remove()
        cls.folder.cleanup()
        assert code == 0, text
        assert not re.search("_[0-9a-f]{64}", text), "the log shows a secret"

    @classmethod
    def add(cls, role, *flags):
        secret = os.path.join(cls.folder.name, f"secret-{len(os.listdir(cls.folder.name))}")
        token_command("add", "--file", cls.file, "--name", f"a-{role}", "--role", role, "--secret-file", secret, *flags)
        return secret

    def client(self, role):
        return octavo.Client(self.daemon.address, token_file=self.path[role])

    def metric(self, name):
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        return float(re.search(rf"^{name} (\S+)$", page, re.M).group(1))

    def header(self, path):
        with open(path) as file:
            return [("authorization", f"Bearer {file.read().strip()}")]

    def test_every_method_asks_for_its_role(self):
        self.assertGreater(len(methods()), 60)
        seen = {}
        for role in WORDS:
            with grpc.insecure_channel(self.daemon.address) as channel:
                self.assertEqual(refused(channel, role, self.header(self.path[role]) if role != "none" else (), seen), [])
        page = os.path.join(SOURCE, "proto", "RIGHTS.md")
        if WRITE:
            with open(page, "w") as file:
                file.write(table(seen))
        with open(page) as file:
            self.assertEqual(file.read(), table(seen), "proto/RIGHTS.md is not what the server does: rights_test.py --write")

    def resident(self):
        with open(f"/proc/{self.daemon.process.pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) << 10

    def test_no_request_is_parsed_before_its_caller_may_make_it(self):
        with grpc.insecure_channel(self.daemon.address) as channel:
            for method in methods():
                self.assertEqual(outcome(channel, method, request=b"\xff" * 99)[1], "NO_TOKEN", method.full_name)
            stack = next(method for method in methods() if method.name == "StackSections")
            field = stack.input_type.fields_by_name["sections"]
            many = bytes([field.number << 3 | 2, 0]) * (4 << 20)  # 8 MiB of empty sections: some 300 MiB when parsed
            before = self.resident()
            self.assertEqual(outcome(channel, stack, request=many)[1], "NO_TOKEN")
            code, reason, _ = outcome(channel, stack, self.header(self.path["operator"]), 60, many)
            self.assertEqual((code, reason), (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT"))
            self.assertLess(self.resident() - before, 100 << 20)
            # What is allowed is parsed, and refused for what it says.
            _, reason, _ = outcome(channel, stack, self.header(self.path["operator"]), 60, many[:128 << 10])
            self.assertNotEqual(reason, "")

    def test_hostile_calls_end_neither_the_server_nor_its_memory(self):
        with grpc.insecure_channel(self.daemon.address) as channel:
            for name in ("/octavo.v1.ScanService/Nope", "/no.such.Service/Call", "/", "/x"):
                for call in (channel.unary_unary(name), lambda request, timeout: next(channel.unary_stream(name)(request, timeout=timeout))):
                    with self.assertRaises(grpc.RpcError) as no:
                        call(b"", timeout=20)
                    self.assertEqual(no.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        # A thousandth of what it becomes: 256 MiB.
        with grpc.insecure_channel(self.daemon.address, compression=grpc.Compression.Gzip, options=[("grpc.max_send_message_length", -1)]) as channel:
            before = self.resident()
            for method in methods():
                if method.name in ("ListScans", "SubmitScan", "ReadVolume", "WriteBuffer", "Push"):
                    code, reason, _ = outcome(channel, method, seconds=60, request=bytes(256 << 20))
                    self.assertIn(code, (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED), (method.name, reason))
            self.assertLess(self.resident() - before, 64 << 20)
        # Fields that are not known, or of another type, and groups cost as much as texts.
        with grpc.insecure_channel(self.daemon.address) as channel:
            for hostile in (b"\x10\x01" * (3 << 20), b"\x0b\x12\x02\x01\x07\x0c" + b"\x12\x00" * (3 << 20)):
                lists = next(method for method in methods() if method.name == "ListScans")
                code, reason, _ = outcome(channel, lists, self.header(self.path["viewer"]), 20, hostile)
                self.assertEqual((code, reason), (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT"))
        self.assertIsNone(self.daemon.process.poll())

    def test_the_server_says_who_the_caller_is(self):
        with self.client("operator") as client:
            info = client.info()
            self.assertEqual((info.caller.name, info.caller.role, info.takes_tokens), ("a-operator", 3, True))
            self.assertEqual(info.loopback_role, 1)
            self.assertRegex(info.caller.found, "^the token [0-9a-f]{8} of a-operator$")
        text = subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", self.path["viewer"], "info"], capture_output=True, text=True,
                              timeout=60).stdout
        self.assertIn("you are a-viewer, viewer: the token ", text)
        self.assertIn("TCP without a token: none (listen.loopback_role); tokens: taken", text)

    def test_an_operator_scans_and_a_viewer_watches(self):
        with self.client("operator") as operator, self.client("viewer") as viewer:
            scan = operator.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256)
            viewer.wait(scan.name)
            volume, = viewer.volumes(scan.name)
            self.assertEqual(viewer.read(volume.name).ndim, 3)
            with self.assertRaisesRegex(octavo.OctavoError, "VolumeService/DiscardVolume needs the role operator; the caller is a-viewer with the role viewer") as no:
                viewer.discard(volume.name)
            self.assertEqual((no.exception.code, no.exception.reason), (grpc.StatusCode.PERMISSION_DENIED, "WRONG_ROLE"))
            operator.discard(volume.name)

    def test_whoever_has_no_token_learns_what_is_missing(self):
        with octavo.Client(self.daemon.address) as nobody, self.assertRaises(octavo.OctavoError) as no:
            nobody.scans()
        self.assertEqual((no.exception.code, no.exception.reason), (grpc.StatusCode.UNAUTHENTICATED, "NO_TOKEN"))
        self.assertIn("token_file", str(no.exception))
        shown = subprocess.run([OCTAVO, "--address", self.daemon.address, "scan", "list"], capture_output=True, text=True, timeout=60)
        self.assertEqual(shown.returncode, 1)
        self.assertIn("needs a bearer token or a certificate: TCP on this host without a token (listen.loopback_role) may do nothing here", shown.stderr)
        self.assertIn("--token-file, OCTAVO_TOKEN_FILE", shown.stderr)
        shown = subprocess.run([OCTAVO, "--address", self.daemon.address, "scan", "list"], capture_output=True, text=True, timeout=60,
                               env={**os.environ, "OCTAVO_TOKEN_FILE": self.path["viewer"]})
        self.assertEqual(shown.returncode, 0, shown.stderr)
        health = subprocess.run([OCTAVO, "--address", self.daemon.address, "health"], capture_output=True, text=True, timeout=60)
        self.assertEqual((health.returncode, health.stdout), (0, "SERVING\n"))

    def test_no_proxy_of_the_environment_gets_a_token(self):
        with socket.socket() as proxy, self.environment(http_proxy=""):
            proxy.bind(("127.0.0.1", 0))
            proxy.listen()
            proxy.setblocking(False)
            os.environ["http_proxy"] = f"http://127.0.0.1:{proxy.getsockname()[1]}"
            shown = subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", self.path["viewer"], "scan", "list"], capture_output=True, text=True, timeout=60)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            with self.client("viewer") as client:
                self.assertEqual(client.info().caller.name, "a-viewer")
            with self.assertRaises(BlockingIOError):
                proxy.accept()

    @staticmethod
    @contextlib.contextmanager
    def environment(**variables):
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def test_a_token_that_is_given_as_a_file_is_not_shown(self):
        with open(self.path["admin"]) as file:
            token = file.read().strip()
        shown = subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", token, "scan", "list"], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(shown.returncode, 0)
        self.assertIn("is a token and not the name of a file", shown.stderr)
        self.assertNotIn(token[7:30], shown.stderr + shown.stdout)
        with self.assertRaisesRegex(ValueError, "is a token and not the name of a file") as no:
            octavo.Client(self.daemon.address, token_file=token)
        self.assertNotIn(token[7:30], str(no.exception))

    def test_a_token_that_others_can_read_is_refused(self):
        """By the command line, Python and the viewer; a link to a private file, and a pipe, are taken."""
        with open(self.path["viewer"]) as file:
            token = file.read()
        path = os.path.join(os.path.dirname(self.path["viewer"]), "open")
        self.addCleanup(os.remove, path)
        for mode in (0o644, 0o640, 0o604, 0o622, 0o601):
            with self.subTest(oct(mode)):
                with open(path, "w") as file:
                    file.write(token)
                os.chmod(path, mode)
                says = f"'{path}', which has mode {mode:04o}, so that others may read or change it"
                shown = subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", path, "info"], capture_output=True, text=True, timeout=60)
                self.assertNotEqual(shown.returncode, 0)
                self.assertEqual(shown.stdout, "")
                self.assertIn(f"--token-file: is {says}; allowed is 0600 (chmod 600 {path})", shown.stderr)
                with self.assertRaises(ValueError) as no:
                    octavo.Client(self.daemon.address, token_file=path)
                self.assertIn(f"token_file is {says}; expected 0600 (chmod 600 {path})", str(no.exception))
                with self.assertRaisesRegex(RuntimeError, re.escape(says)):
                    Viewer(self.daemon.address, "--token-file", path)
                self.assertNotIn(token[7:30], shown.stderr + str(no.exception))
        os.chmod(path, 0o600)
        link = path + ".link"
        os.symlink(path, link)
        self.addCleanup(os.remove, link)
        for command in (["--token-file", link], ["--token-file", "/dev/stdin"]):
            shown = subprocess.run([OCTAVO, "--address", self.daemon.address, *command, "info"], input=token, capture_output=True, text=True, timeout=60)
            self.assertEqual(shown.returncode, 0, shown.stderr)
        with octavo.Client(self.daemon.address, token_file=link) as client:
            self.assertEqual(client.info().caller.role, octavo.v1.system_pb2.ROLE_VIEWER)

    def test_no_token_is_made_that_is_over(self):
        for moment in ("1970-01-01", "1970-01-01T00:00:00Z", "2020-02-02"):
            made = token_command("add", "--file", self.file, "--name", "x", "--role", "viewer", "--expires", moment, check=False)
            self.assertEqual(made.returncode, 2, made)
            self.assertIn("which is over", made.stderr)
            self.assertEqual(made.stdout, "")

    def test_bad_tokens_are_refused_and_not_shown(self):
        with open(self.path["admin"]) as file:
            good = file.read().strip()
        wrong = good[:-1] + ("0" if good[-1] != "0" else "1")
        with grpc.insecure_channel(self.daemon.address) as channel:
            info, = (method for method in methods() if method.name == "GetInfo")
            for value in (f"Bearer {wrong}", f"Bearer octavo_00000000_{'0' * 64}", f"Bearer {good}0", f"Basic {good}", good, "Bearer", "Bearer " + "x" * 4000):
                code, reason, numbers = outcome(channel, info, [("authorization", value)])
                self.assertEqual((code, reason), (grpc.StatusCode.UNAUTHENTICATED, "BAD_TOKEN"), value[:40])
                self.assertNotIn(good[16:40], json.dumps(numbers))
            twice = [("authorization", f"Bearer {good}")] * 2
            self.assertEqual(outcome(channel, info, twice)[1], "BAD_TOKEN")

    def test_a_revoked_token_ends_its_calls(self):
        path = self.add("viewer")
        with open(path) as file:
            token_id = file.read()[7:15]
        with octavo.Client(self.daemon.address, token_file=path) as client, self.client("viewer") as other:
            until(lambda: self.taken(client))
            ours, theirs = (c._volumes.WatchVolumes(octavo.v1.volume_pb2.WatchVolumesRequest()) for c in (client, other))
            frames = client._streams.Subscribe(octavo.v1.stream_pb2.SubscribeRequest(products=[octavo.v1.stream_pb2.PRODUCT_MIP]))
            ours.initial_metadata(), theirs.initial_metadata()
            begun = time.monotonic()
            self.assertIn(token_id, token_command("revoke", "--file", self.file, token_id).stdout)
            for stream in (ours, frames):
                with self.assertRaises(grpc.RpcError) as end:
                    for _ in stream:
                        pass
                self.assertEqual(end.exception.code(), grpc.StatusCode.UNAUTHENTICATED, end.exception)
            self.assertLess(time.monotonic() - begun, 20)
            with self.assertRaisesRegex(octavo.OctavoError, "never issued, or revoked") as no:
                client.info()
            self.assertEqual((no.exception.code, no.exception.reason), (grpc.StatusCode.UNAUTHENTICATED, "BAD_TOKEN"))
            self.assertTrue(theirs.is_active())
            theirs.cancel()
        until(lambda: "its calls end" in self.daemon.text())

    def taken(self, client):
        """Whether the server has taken the file over as it is now."""
        try:
            return client.info().caller.name != ""
        except octavo.OctavoError:
            return False

    def test_a_viewer_has_frames_in_shared_memory_until_its_token_is_revoked(self):
        secret = os.path.join(self.folder.name, "secret-of-one-who-looks")
        token_command("add", "--file", self.file, "--name", "one-who-looks", "--role", "viewer", "--secret-file", secret)
        with open(secret) as file:
            token_id = file.read()[7:15]
        with octavo.Client(self.daemon.address, token_file=secret) as client:
            until(lambda: self.taken(client))
            with self.assertRaises(octavo.OctavoTimeout):  # longer than the server takes to look who may go on
                list(client.subscribe("", same_host=True, timeout=2))
            told = []

            def read():
                try:
                    told.append(list(client.subscribe("", same_host=True, timeout=60)))
                except octavo.OctavoError as error:
                    told.append(error)

            reader = threading.Thread(target=read)
            reader.start()
            until(lambda: self.metric("octavo_frame_feeds") == 1)
            token_command("revoke", "--file", self.file, token_id)
            reader.join(20)
            self.assertEqual((told[0].code, told[0].reason), (grpc.StatusCode.UNAUTHENTICATED, "BAD_TOKEN"))
            self.assertIn("makes it a viewer", told[0].message)
        until(lambda: self.metric("octavo_frame_feeds") == 0)

    def test_a_token_expires_while_its_calls_run(self):
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 4))
        path = self.add("viewer", "--expires", moment)
        with octavo.Client(self.daemon.address, token_file=path) as client:
            until(lambda: self.taken(client))
            watch = client._volumes.WatchVolumes(octavo.v1.volume_pb2.WatchVolumesRequest())
            with self.assertRaises(grpc.RpcError):
                for _ in watch:
                    pass
            with self.assertRaisesRegex(octavo.OctavoError, f"expired at {moment}"):
                client.info()

    def test_a_bad_file_keeps_the_old_tokens_and_is_counted(self):
        with open(self.file, "rb") as file:
            before = file.read()
        errors = self.metric("octavo_token_reload_errors_total")
        try:
            for damage in (b"", before[:-7], before + b"x\n"):
                with open(self.file + ".new", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write(damage)
                os.rename(self.file + ".new", self.file)
                errors += 1
                until(lambda: self.metric("octavo_token_reload_errors_total") == errors)
                with self.client("admin") as client:
                    self.assertEqual(client.info().caller.name, "a-admin")
        finally:
            with open(self.file + ".new", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(before)
            os.rename(self.file + ".new", self.file)
        self.assertIn("the tokens before it stay valid", self.daemon.text())

    def test_the_file_holds_no_token(self):
        with open(self.file) as file:
            text = file.read()
        for path in self.path.values():
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            with open(path) as file:
                self.assertNotIn(file.read().strip()[16:], text)
        self.assertEqual(stat.S_IMODE(os.stat(self.file).st_mode), 0o600)
        listed = token_command("list", "--file", self.file).stdout
        self.assertEqual(len(listed.splitlines()), len(text.splitlines()) - 1)
        self.assertNotRegex(listed, "[0-9a-f]{64}")

    def test_the_command_shows_a_token_once(self):
        shown = subprocess.run([OCTAVO, "--json", "token", "add", "--file", os.path.join(self.folder.name, "others"), "--name", "b", "--role", "viewer",
                                "--project", "retina", "--days", "2"], capture_output=True, text=True, timeout=60, check=True)
        about = json.loads(shown.stdout)
        self.assertRegex(about["token"], f"^octavo_{about['id']}_[0-9a-f]{{64}}$")
        self.assertEqual((about["name"], about["role"], about["project"]), ("b", "viewer", "retina"))
        gone = token_command("revoke", "--file", os.path.join(self.folder.name, "others"), about["id"], "00000000", check=False)
        self.assertEqual(gone.returncode, 1)
        self.assertIn("holds no token with the id '00000000'", gone.stderr)
        self.assertIn(about["id"], token_command("list", "--file", os.path.join(self.folder.name, "others")).stdout)

    def test_blanks_around_a_token_are_taken_away(self):
        with open(self.path["operator"]) as file:
            token = file.read().strip()
        path = os.path.join(self.folder.name, "blanks")
        for text, good in ((f" \t{token}\r\n\n", True), (f"\v\f\n{token}", True), (f"{token[:20]} {token[20:]}\n", False), (f"{token}\n{token}\n", False)):
            with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(text)
            shown = subprocess.run([OCTAVO, "--address", self.daemon.address, "--token-file", path, "info"], capture_output=True, text=True, timeout=60)
            self.assertEqual(shown.returncode, 0 if good else 2, (text, shown.stderr))
            if good:
                with octavo.Client(self.daemon.address, token_file=path) as client:
                    self.assertEqual(client.info().caller.name, "a-operator")
                continue
            self.assertIn("holds no token", shown.stderr)
            with self.assertRaisesRegex(ValueError, "holds no token"):
                octavo.Client(self.daemon.address, token_file=path)

    def test_no_secret_stays_of_a_token_that_was_not_added(self):
        tokens, secret = os.path.join(self.folder.name, "full"), os.path.join(self.folder.name, "full-secret")
        while not os.path.exists(tokens) or os.path.getsize(tokens) < 900:
            token_command("add", "--file", tokens, "--name", "many", "--role", "viewer")
        with open(tokens) as file:
            before = file.read()
        refused = subprocess.run([OCTAVO, "token", "add", "--file", tokens, "--name", "more", "--role", "viewer", "--secret-file", secret], capture_output=True,
                                 text=True, timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
        self.assertEqual(refused.returncode, 1, refused)
        self.assertIn("File too large", refused.stderr)
        self.assertFalse(os.path.exists(secret))
        with open(tokens) as file:
            self.assertEqual(file.read(), before)

    def test_an_address_of_the_environment_is_named(self):
        for bad in ("127.0.0.1:99999", "127.0.0.1:abc", "localhost"):
            with unittest.mock.patch.dict(os.environ, {"OCTAVO_ADDRESS": bad}), self.assertRaisesRegex(ValueError, f"^OCTAVO_ADDRESS is '{bad}'"):
                octavo.Client(token_file=self.path["viewer"])


class Users(unittest.TestCase):
    """The Unix socket tells who calls."""

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root can be other users")
        cls.folder = tempfile.TemporaryDirectory(prefix="octavo-rights-")
        os.chmod(cls.folder.name, 0o755)
        cls.socket = os.path.join(cls.folder.name, "s")
        cls.daemon = Daemon("--listen.unix", cls.socket, "--listen.loopback_role", "viewer")
        os.chown(cls.socket, -1, STRANGER)

    @classmethod
    def tearDownClass(cls):
        code = cls.daemon.stop()
        text = cls.daemon.text()
        cls.daemon.remove()
        cls.folder.cleanup()
        assert code == 0, text

    def as_user(self, address, **ids):
        result = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", address], capture_output=True, text=True, timeout=200,
                                env={**os.environ, "HOME": "/"}, **ids)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_root_is_admin(self):
        with octavo.Client(f"unix:{self.socket}") as client:
            caller = client.info().caller
            self.assertEqual((caller.name, caller.role, caller.found), ("uid:0", 4, "the Unix socket: user 0, who is root"))

    def test_the_sockets_group_are_operators(self):
        for ids in (dict(group=STRANGER, extra_groups=[]), dict(group=1, extra_groups=[2, STRANGER])):
            caller = self.as_user(f"unix:{self.socket}", user=STRANGER, **ids)
            self.assertEqual((caller["name"], caller["role"], caller["problems"]), (f"uid:{STRANGER}", "operator", []))
            self.assertIn("of the socket's group", caller["found"])

    def test_other_users_cannot_connect_and_if_they_can_have_the_role_of_tcp(self):
        os.chmod(self.socket, 0o666)
        try:
            caller = self.as_user(f"unix:{self.socket}", user=STRANGER + 1, group=STRANGER + 1, extra_groups=[])
        finally:
            os.chmod(self.socket, 0o660)
        self.assertEqual((caller["name"], caller["role"], caller["problems"]), (f"uid:{STRANGER + 1}", "viewer", []))
        self.assertIn("not of the socket's group", caller["found"])

    def test_tcp_is_no_identity_even_for_root(self):
        with self.daemon.client() as client:
            caller = client.info().caller
            self.assertEqual((caller.name, caller.role), ("loopback", 2))
            self.assertEqual(refused(client.channel, "viewer"), [])
            with self.assertRaisesRegex(octavo.OctavoError, "listen.loopback_role"):
                client.cancel("scans/none")


class Configurations(unittest.TestCase):
    def test_without_a_file_this_host_operates(self):
        if os.path.exists("/etc/octavo/octavod.toml"):
            self.skipTest("Octavo is installed here")
        daemon = Daemon()
        try:
            with daemon.client() as client:
                info = client.info()
                self.assertEqual((info.loopback_role, info.caller.role, info.takes_tokens), (3, 3, False))
                scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256)
                client.cancel(scan.name)
                client.wait(scan.name)
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(f"octavo_01234567_{'0' * 64}\n")
                file.flush()
                with octavo.Client(daemon.address, token_file=file.name) as client, self.assertRaisesRegex(octavo.OctavoError, "this server takes no tokens"):
                    client.info()
            self.assertIn("tcp_on_this_host", daemon.text())
        finally:
            daemon.stop()
            daemon.remove()

    def test_the_installed_service_shows(self):
        daemon = Daemon("--config", os.path.join(SOURCE, "deploy", "octavod.toml"))
        try:
            with daemon.client() as client:
                self.assertEqual((client.info().loopback_role, client.info().caller.role), (2, 2))
                self.assertEqual(refused(client.channel, "viewer"), [])
            with octavo.Client(f"unix:{daemon.ready['unix']}") as client:
                self.assertEqual(client.info().caller.role, 4)
        finally:
            daemon.stop()
            daemon.remove()

    def test_other_hosts_need_a_token_where_there_are_tokens(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
                own = probe.getsockname()[0]
            except OSError:
                own = "127.0.0.1"
        if own.startswith("127."):
            self.skipTest("this host has no other address than loopback")
        with tempfile.TemporaryDirectory() as folder:
            tokens, secret = os.path.join(folder, "tokens"), os.path.join(folder, "secret")
            token_command("add", "--file", tokens, "--name", "a", "--role", "operator", "--secret-file", secret)
            for flags, role in ((("--security.tokens", tokens), None), ((), 2), (("--security.insecure_role", "operator"), 3)):
                daemon = Daemon("--listen.tcp", "0.0.0.0:0", "--security.insecure", "true", "--listen.loopback_role", "admin", *flags)
                try:
                    address = f"{own}:{daemon.address.split(':')[1]}"
                    with octavo.Client(address) as client:
                        if role is None:
                            with self.assertRaises(octavo.OctavoError) as no:
                                client.info()
                            self.assertEqual(no.exception.reason, "NO_TOKEN")
                        else:
                            info = client.info()
                            self.assertEqual((info.caller.name, info.caller.role, info.insecure_role), ("remote", role, role))
                    if role is None:
                        for unsafe in ({}, {"OCTAVO_TOKEN_IN_CLEAR": "yes"}):
                            with unittest.mock.patch.dict(os.environ, unsafe), self.assertRaisesRegex(ValueError, "token_file: the token would be sent to .* in clear"):
                                octavo.Client(address, token_file=secret)
                            for program in ((), ("web",)):
                                shown = subprocess.run([OCTAVO, "--address", address, "--token-file", secret, *(program or ("info",))], capture_output=True, text=True,
                                                       timeout=60, env={**os.environ, **unsafe})
                                self.assertEqual(shown.returncode, 2, shown)
                                self.assertRegex(shown.stderr, f"--token-file.* would be sent to {address} in clear")
                        with unittest.mock.patch.dict(os.environ, {"OCTAVO_TOKEN_IN_CLEAR": "1"}), octavo.Client(address, token_file=secret) as client:
                            self.assertEqual(client.info().caller.role, 3)
                    self.assertIn("security.insecure is set", daemon.text())
                finally:
                    daemon.stop()
                    daemon.remove()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    else:
        WRITE = "--write" in sys.argv
        unittest.main(argv=[word for word in sys.argv if word != "--write"])
