"""TLS and certificates of clients: who comes in, with which role, and who does not; certificates that change while streams run."""

import json
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import tempfile
import time
import unittest
import urllib.request

import grpc

from harness import Daemon, octavo, until
from lab import Lab, certificates, put
from rights_test import OCTAVO, WORDS, refused, token_command
from web_viewer import Viewer

TABLE = """[certificates]
"cn:vera" = { role = "viewer" }
"cn:otto" = { role = "operator", project = "retina" }
"cn:anna" = { role = "admin", name = "anna" }
"cn:nemo" = { role = "none" }
"""
ROLES = {"vera": "viewer", "otto": "operator", "anna": "admin"}


def serial_of(address, ca, certificate=None):
    """The serial number of the certificate that a server shows now."""
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(certificate["cert_file"], certificate["key_file"])
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as raw, context.wrap_socket(raw, server_hostname=host) as tls:
        return tls.getpeercert()["serialNumber"]


def own_address():
    """An address of this host that is not loopback; none if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            own = probe.getsockname()[0]
        except OSError:
            return None
    return None if own.startswith("127.") else own


class TlsTest(unittest.TestCase):
    """A laboratory of its own for each test, and servers that end with it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="octavo-tls-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.lab = Lab(os.path.join(self.folder, "lab"))
        self.table = os.path.join(self.folder, "certificates.toml")
        put(self.table, TABLE)

    def start(self, *flags, **options):
        daemon = Daemon(*flags, **options)
        self.addCleanup(daemon.remove)
        return daemon

    def mutual(self, *flags, **options):
        """With certificates of clients, and their table; who has none may do nothing."""
        return self.start(*self.lab.flags(), "--security.certificates", self.table, "--listen.loopback_role", "none", *flags, **options)

    def metric(self, daemon, name):
        page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", page, re.M).group(1))

    def unavailable(self, address, says="", **options):
        """The error of a client with whom no connection comes about."""
        with octavo.Client(address, timeout=20, **options) as client, self.assertRaises(octavo.OctavoError) as no:
            client.info()
        self.assertEqual(no.exception.code, grpc.StatusCode.UNAVAILABLE, no.exception)
        self.assertIn(says, str(no.exception))

    def command(self, *arguments, environment=None, code=0):
        result = subprocess.run([OCTAVO, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, **(environment or {})})
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def stops(self, daemon):
        self.assertEqual(daemon.stop(), 0, daemon.text())


class Login(TlsTest):
    def test_every_method_asks_for_the_role_of_the_certificate(self):
        daemon = self.mutual()
        for name, role in ROLES.items():
            with octavo.Client(daemon.address, **self.lab.client(name)) as client:
                caller = client.info().caller
                self.assertEqual((caller.name, WORDS[caller.role - 1]), ("anna" if name == "anna" else f"cn:{name}", role))
                self.assertEqual(caller.project, "retina" if name == "otto" else "")
                self.assertEqual(caller.found, f"the client's certificate: cn:{name}")
                self.assertEqual(refused(client.channel, role), [])
        # Who is named with the role none, and who is not named, is known and may do nothing.
        for name, says in (("nemo", "the client's certificate: cn:nemo"), ("stranger", "has no line in " + self.table)):
            with octavo.Client(daemon.address, **self.lab.client(name)) as client, self.assertRaises(octavo.OctavoError) as no:
                client.info()
            self.assertEqual((no.exception.code, no.exception.reason), (grpc.StatusCode.PERMISSION_DENIED, "WRONG_ROLE"))
            self.assertIn(says, str(no.exception))
        self.stops(daemon)

    def test_the_role_of_those_without_a_line_is_configured(self):
        daemon = self.mutual("--security.certificate_role", "viewer")
        with octavo.Client(daemon.address, **self.lab.client("stranger")) as client:
            info = client.info()
            self.assertEqual((info.caller.name, info.caller.role, info.tls.certificate_role), ("cn:stranger", 2, 2))
        with octavo.Client(daemon.address, **self.lab.client("nemo")) as client, self.assertRaises(octavo.OctavoError):
            client.info()

    def test_a_client_without_a_certificate_that_counts_does_not_come_in(self):
        daemon = self.mutual()
        foreign = Lab(os.path.join(self.folder, "foreign"))
        self.lab.client("late")
        self.lab.client("early")
        failed = {
            "no certificate": ("no_certificate", {"ca_file": self.lab.ca}, "the server may require a certificate of the client"),
            "another authority": ("bad_certificate", {**foreign.client("otto"), "ca_file": self.lab.ca}, "the server may not take the certificate in "),
            "expired": ("bad_certificate", self.lab.until("late", -10), "the server may not take the certificate"),
            "not yet valid": ("bad_certificate", self.lab.until("early", 86400, 3600), "the server may not take the certificate"),
            "of a server": ("bad_certificate", {"ca_file": self.lab.ca, "cert_file": self.lab.path("server.pem"), "key_file": self.lab.path("server.key")},
                            "the server may not take the certificate"),
            "plain text": ("plain_text", {}, "if the server speaks TLS, give the file of its authority"),
        }
        for what, (reason, options, says) in failed.items():
            with self.subTest(what):
                name = f'octavo_tls_failures_total{{reason="{reason}"}}'
                before = self.metric(daemon, name)
                self.unavailable(daemon.address, says, **options)
                until(lambda: self.metric(daemon, name) > before)
        # The client learns nothing of the reason; the log says it, and who it may have been.
        until(lambda: "connections failed at TLS" in daemon.text())
        until(lambda: "the client gave no certificate" in daemon.text() and "does not speak TLS" in daemon.text(), 30)
        self.assertRegex(daemon.text(), r"connections failed at TLS.*127\.0\.0\.1:\d+")
        with octavo.Client(daemon.address, **self.lab.client("vera")) as client:
            client.info()
        self.stops(daemon)

    def test_what_a_client_does_not_take(self):
        daemon = self.mutual()
        foreign = Lab(os.path.join(self.folder, "foreign"))
        vera = self.lab.client("vera")
        self.unavailable(daemon.address, "was not issued by an authority in " + foreign.ca, **{**vera, "ca_file": foreign.ca})
        self.unavailable(daemon.address, "is for other names than the host of the address", server_name="elsewhere.lab", **vera)
        with octavo.Client(f"ipv4:{daemon.address}", server_name="localhost", **vera) as client:
            client.info()
        plain = self.start()
        self.unavailable(plain.address, "does not speak TLS there: leave out ca_file", **vera)
        with plain.client() as client:
            self.assertFalse(client.info().HasField("tls"))

    def test_old_tls_is_refused(self):
        daemon = self.start(*self.lab.flags()[:4])
        host, port = daemon.address.split(":")
        for version in ("tls1", "tls1_1", "tls1_2", "tls1_3"):
            said = subprocess.run(["openssl", "s_client", "-connect", f"{host}:{port}", f"-{version}", "-cipher", "DEFAULT@SECLEVEL=0", "-alpn", "h2",
                                   "-CAfile", self.lab.ca], input=b"", capture_output=True, timeout=30)
            self.assertEqual(said.returncode == 0, version in ("tls1_2", "tls1_3"), (version, said.stderr))
        until(lambda: self.metric(daemon, 'octavo_tls_failures_total{reason="version"}') >= 2)

    def test_a_token_wins_over_the_certificate(self):
        tokens, secret = os.path.join(self.folder, "tokens"), os.path.join(self.folder, "secret")
        token_command("add", "--file", tokens, "--name", "vera", "--role", "viewer", "--secret-file", secret)
        daemon = self.mutual("--security.tokens", tokens)
        with octavo.Client(daemon.address, token_file=secret, **self.lab.client("otto")) as client:
            caller = client.info().caller
            self.assertEqual((caller.name, caller.role), ("vera", 2))
            self.assertIn("the token ", caller.found)
            self.assertEqual(refused(client.channel, "viewer"), [])
        put(secret, f"octavo_01234567_{'0' * 64}\n")
        with octavo.Client(daemon.address, token_file=secret, **self.lab.client("otto")) as client, self.assertRaises(octavo.OctavoError) as no:
            client.info()
        self.assertEqual(no.exception.reason, "BAD_TOKEN")

    def test_certificates_may_be_optional(self):
        tokens, secret = os.path.join(self.folder, "tokens"), os.path.join(self.folder, "secret")
        token_command("add", "--file", tokens, "--name", "t", "--role", "operator", "--secret-file", secret)
        daemon = self.mutual("--listen.tls.client_certificates", "optional", "--security.tokens", tokens, "--listen.loopback_role", "viewer")
        with octavo.Client(daemon.address, ca_file=self.lab.ca, token_file=secret) as client:
            self.assertEqual(client.info().caller.name, "t")
        with octavo.Client(daemon.address, ca_file=self.lab.ca) as client:
            info = client.info()
            self.assertEqual((info.caller.name, info.caller.role, info.tls.client_certificates), ("loopback", 2, 2))
        with octavo.Client(daemon.address, **self.lab.client("anna")) as client:
            self.assertEqual(client.info().caller.role, 4)
        foreign = Lab(os.path.join(self.folder, "foreign"))
        self.unavailable(daemon.address, **{**foreign.client("anna"), "ca_file": self.lab.ca})

    def test_the_unix_socket_stays_as_it_is(self):
        daemon = self.mutual()
        for options in ({}, self.lab.client("vera")):  # of no use there
            with octavo.Client(f"unix:{daemon.ready['unix']}", **options) as client:
                self.assertEqual((client.info().caller.name, client.info().caller.role), (f"uid:{os.geteuid()}", 4))


class Reload(TlsTest):
    def watch(self, client):
        """A stream that runs until it is cut."""
        stream = client._volumes.WatchVolumes(octavo.v1.volume_pb2.WatchVolumesRequest())
        stream.initial_metadata()  # it has begun
        return stream

    def ends(self, stream, seconds):
        begun = time.monotonic()
        with self.assertRaises(grpc.RpcError) as end:
            for _ in stream:
                pass
        self.assertLess(time.monotonic() - begun, seconds)
        return end.exception

    def new_server(self):
        """Another certificate and key for the server."""
        with tempfile.TemporaryDirectory(dir=self.lab.folder) as folder:
            for name in ("ca.pem", "ca.key"):
                shutil.copy2(self.lab.path(name), folder)
            certificates("server", folder, "localhost", "127.0.0.1")
            for name in ("server.key", "server.pem"):
                os.replace(os.path.join(folder, name), self.lab.path(name))

    def test_certificates_are_swapped_while_streams_run(self):
        daemon = self.mutual()
        vera, otto = self.lab.client("vera"), self.lab.client("otto")
        with octavo.Client(daemon.address, **otto) as operator:
            scan = operator.submit_scan(octavo.simulated(1), octavo.raster(32, 16, volumes=0), samples=256)
            frames = operator.subscribe(scan.name, "mip")
            next(frames)
            before = serial_of(daemon.address, self.lab.ca, vera)
            self.new_server()
            until(lambda: self.metric(daemon, "octavo_tls_reloads_total") == 1)
            self.assertNotEqual(serial_of(daemon.address, self.lab.ca, vera), before)
            for _ in range(3):
                next(frames)  # the same connection
            with octavo.Client(daemon.address, **vera) as other:
                self.assertEqual(other.info().caller.name, "cn:vera")
            operator.cancel(scan.name)
        self.assertEqual(self.metric(daemon, "octavo_tls_reload_errors_total"), 0)
        self.assertIn("TLS certificates read again", daemon.text())
        self.stops(daemon)

    def test_a_pair_that_does_not_fit_keeps_the_old_one(self):
        daemon = self.mutual()
        vera = self.lab.client("vera")
        before, key = serial_of(daemon.address, self.lab.ca, vera), self.lab.text("server.key")
        with octavo.Client(daemon.address, **vera) as client:
            stream = self.watch(client)
            for errors, (text, mode, says) in enumerate(((self.lab.text("vera.key"), 0o600, "is not the key of the certificate"),
                                                         ("words", 0o600, "holds no private key"), (key, 0o644, "has mode 0644")), 1):
                put(self.lab.path("server.key"), text, mode)
                until(lambda: self.metric(daemon, "octavo_tls_reload_errors_total") == errors)
                self.assertIn(says, daemon.text())
                self.assertEqual(serial_of(daemon.address, self.lab.ca, vera), before)
                # So it goes on unnoticed until the certificate expires, unless somebody looks: operators are told.
                with octavo.Client(daemon.address, **self.lab.client("otto")) as otto:
                    told, = (line for line in otto.info().recovered if line.startswith("listen.tls: "))
                self.assertRegex(told, f"{says}.*the certificates before them stay in use")
                self.assertEqual([line for line in client.info().recovered if line.startswith("listen.tls: ")], [])
            self.assertTrue(stream.is_active())
            stream.cancel()
        self.assertIn("the certificates before them stay", daemon.text())
        put(self.lab.path("server.key"), key)
        self.new_server()
        until(lambda: self.metric(daemon, "octavo_tls_reloads_total") == 1)
        self.assertNotEqual(serial_of(daemon.address, self.lab.ca, vera), before)

    def test_an_authority_that_is_withdrawn_cuts_its_clients(self):
        # The server's own certificate is of another authority than those of its clients.
        clients = Lab(os.path.join(self.folder, "clients"), server=())
        believed = os.path.join(self.folder, "believed.pem")
        put(believed, clients.text("ca.pem"), 0o644)
        daemon = self.mutual("--listen.tls.client_ca", believed)
        vera = {**clients.client("vera"), "ca_file": self.lab.ca}
        with octavo.Client(daemon.address, **vera) as client, octavo.Client(f"unix:{daemon.ready['unix']}") as local:
            stream, mine = self.watch(client), self.watch(local)
            # A second authority beside the first one: nobody is cut.
            later = Lab(os.path.join(self.folder, "later"), server=())
            put(believed, clients.text("ca.pem") + later.text("ca.pem"), 0o644)
            until(lambda: self.metric(daemon, "octavo_tls_reloads_total") == 1)
            for lab in (clients, later):
                with octavo.Client(daemon.address, **{**lab.client("vera"), "ca_file": self.lab.ca}) as other:
                    self.assertEqual(other.info().caller.name, "cn:vera")
            self.assertTrue(stream.is_active())
            put(believed, later.text("ca.pem"), 0o644)
            self.assertEqual(self.ends(stream, 20).code(), grpc.StatusCode.UNAVAILABLE)
            self.assertTrue(mine.is_active())
            mine.cancel()
            self.unavailable(daemon.address, **vera)
            with octavo.Client(daemon.address, **{**later.client("vera"), "ca_file": self.lab.ca}) as other:
                other.info()
        self.assertIn("an authority of clients was withdrawn", daemon.text())
        self.stops(daemon)

    def test_old_connections_are_bounded(self):
        daemon = self.mutual("--listen.tls.old_connections_seconds", "1")
        with octavo.Client(daemon.address, **self.lab.client("vera")) as client:
            stream = self.watch(client)
            self.new_server()
            self.ends(stream, 10)
            client.info()  # by a new connection
        self.assertIn("connections under TLS certificates that were replaced end", daemon.text())

    def test_a_line_that_goes_ends_the_calls_of_its_holder(self):
        daemon = self.mutual()
        with octavo.Client(daemon.address, **self.lab.client("vera")) as vera, octavo.Client(daemon.address, **self.lab.client("otto")) as otto:
            hers, his = self.watch(vera), self.watch(otto)
            put(self.table, TABLE.replace('"cn:vera" = { role = "viewer" }', ""))
            self.assertEqual(self.ends(hers, 20).code(), grpc.StatusCode.UNAUTHENTICATED)
            with self.assertRaises(octavo.OctavoError) as no:
                vera.info()
            self.assertEqual(no.exception.reason, "WRONG_ROLE")
            self.assertTrue(his.is_active())
            put(self.table, TABLE + "words")
            until(lambda: self.metric(daemon, "octavo_certificate_reload_errors_total") == 1)
            self.assertTrue(his.is_active())
            # A single certificate, by its fingerprint.
            print_of = subprocess.run(["openssl", "x509", "-in", self.lab.path("otto.pem"), "-noout", "-fingerprint", "-sha256"], capture_output=True,
                                      text=True, check=True).stdout.split("=")[1].strip().replace(":", "").lower()
            put(self.table, TABLE + f'"sha256:{print_of}" = {{ role = "none" }}\n')
            self.ends(his, 20)
            self.assertEqual(vera.info().caller.name, "cn:vera")

    def test_a_certificate_expires_while_its_calls_run(self):
        daemon = self.mutual()
        self.lab.client("vera")
        with octavo.Client(daemon.address, **self.lab.until("vera", 4)) as client:
            stream = self.watch(client)
            self.ends(stream, 10)
            with self.assertRaises(octavo.OctavoError):
                client.info()
        self.assertIn("its calls end", daemon.text())


class Start(TlsTest):
    def refuses(self, says, *flags, code=1, **options):
        with self.assertRaises(RuntimeError) as no:
            self.start(*flags, **options)
        self.assertIn(f"exit code {code}", str(no.exception))
        self.assertIn(says, str(no.exception))

    def test_bad_files_are_told_at_the_start(self):
        os.chmod(self.lab.path("server.key"), 0o640)
        self.refuses("has mode 0640, so that others may read or change it; allowed is 0600", *self.lab.flags())
        os.chmod(self.lab.path("server.key"), 0o600)
        os.chmod(self.lab.path("server.pem"), 0o666)
        self.refuses("has mode 0666, so that others may change it; allowed is 0644", *self.lab.flags())
        os.chmod(self.lab.path("server.pem"), 0o644)
        self.refuses("is not the key of the certificate in", *self.lab.flags(), "--listen.tls.key", self.lab.path("ca.key"))
        self.refuses("holds no private key, but a certificate", *self.lab.flags(), "--listen.tls.key", self.lab.path("server.pem"))
        self.refuses("certificate 1 is none of an authority", *self.lab.flags(), "--listen.tls.client_ca", self.lab.path("server.pem"))
        self.refuses("listen.tls.certificate: " + self.lab.path("none") + ": cannot be opened", *self.lab.flags(), "--listen.tls.certificate",
                     self.lab.path("none"))
        self.refuses("has mode 0644", *self.lab.flags(), "--security.certificates", self.lab.path("server.pem"))
        self.refuses("listen.tls.key: is not given", *self.lab.flags()[:2], code=2)
        self.lab.until("server", -5)
        self.refuses("the certificate expired at", *self.lab.flags())

    def test_files_may_be_credentials_of_systemd(self):
        folder = os.path.join(self.folder, "credentials")
        os.mkdir(folder, 0o700)
        for name in ("server.pem", "server.key", "ca.pem"):
            shutil.copy(self.lab.path(name), folder)
            os.chmod(os.path.join(folder, name), 0o400)
        shutil.copy(self.table, folder)
        if os.geteuid() == 0:
            os.chmod(os.path.join(folder, "server.key"), 0o440)  # as systemd does for a user of the service
        flags = ("--listen.tls.certificate", "credential:server.pem", "--listen.tls.key", "credential:server.key", "--listen.tls.client_ca",
                 "credential:ca.pem", "--security.certificates", "credential:certificates.toml")
        daemon = self.start(*flags, environment={"CREDENTIALS_DIRECTORY": folder})
        with octavo.Client(daemon.address, **self.lab.client("otto")) as client:
            self.assertEqual(client.info().caller.name, "cn:otto")
        self.refuses("systemd gave this process no credentials", *flags, code=2)

    def test_other_hosts_need_tls_and_a_login(self):
        outside = ("--listen.tcp", "0.0.0.0:0")
        tls = self.lab.flags()[:4]
        self.refuses("there is no TLS", *outside, code=2)
        self.refuses("clients have no way to log in", *outside, *tls, code=2)
        daemon = self.start(*outside, *self.lab.flags(), "--security.certificates", self.table)
        self.assertNotIn("security.insecure", daemon.text())
        port = daemon.address.split(":")[1]
        with octavo.Client(f"127.0.0.1:{port}", **self.lab.client("otto")) as client:
            self.assertEqual(list(client.info().insecure_listening), [])
        own = own_address()
        if own is not None:
            with octavo.Client(f"{own}:{port}", server_name="localhost", **self.lab.client("otto")) as client:
                self.assertEqual(client.info().caller.name, "cn:otto")
        self.stops(daemon)

    def test_from_elsewhere_without_a_login_nobody_may_do_anything(self):
        own = own_address()
        if own is None:
            self.skipTest("this host has no other address than loopback")
        daemon = self.start("--listen.tcp", "0.0.0.0:0", *self.lab.flags()[:4], "--security.insecure", "true", "--listen.loopback_role", "admin")
        self.assertIn("security.insecure is set", daemon.text())
        port = daemon.address.split(":")[1]
        with octavo.Client(f"{own}:{port}", ca_file=self.lab.ca, server_name="localhost") as client, self.assertRaises(octavo.OctavoError) as no:
            client.info()
        self.assertEqual(no.exception.reason, "NO_TOKEN")
        address = f"127.0.0.1:{port}"
        with octavo.Client(address, ca_file=self.lab.ca) as client:
            self.assertEqual((client.info().caller.name, client.info().caller.role), ("loopback", 4))
        text = self.command("--address", address, "--ca-file", self.lab.ca, "info").stdout
        self.assertIn("INSECURE: other hosts can reach 0.0.0.0:0 without a login (security.insecure)", text)
        self.assertIn("TLS: clients have no certificates; the server's expires 20", text)


class Programs(TlsTest):
    def test_an_operator_scans_a_viewer_watches_and_a_stranger_sees_nothing(self):
        daemon = self.mutual()

        def octavo_of(name, *arguments, code=0):
            """The command of a person at their own computer, who has set up the environment once."""
            files = self.lab.client(name)
            return self.command(*arguments, code=code, environment={
                "OCTAVO_ADDRESS": daemon.address, "OCTAVO_CA_FILE": files["ca_file"], "OCTAVO_CERT_FILE": files["cert_file"],
                "OCTAVO_KEY_FILE": files["key_file"]})

        scan = json.loads(octavo_of("otto", "--json", "scan", "submit", "--source", "simulated", "--ascans", "16", "--bscans", "8", "--samples", "256", "--volumes", "1", "--watch").stdout.splitlines()[0])
        listed = octavo_of("vera", "volume", "list").stdout
        volume = re.search(r"volumes/\S+", listed).group(0)
        self.assertIn(scan["name"].split("/")[1], octavo_of("vera", "scan", "list").stdout)
        no = octavo_of("vera", "volume", "discard", volume, code=1).stderr
        self.assertIn("needs the role operator; the caller is cn:vera with the role viewer", no)
        self.assertIn("[WRONG_ROLE]", no)
        for words in (("scan", "list"), ("volume", "list"), ("info",)):
            no = octavo_of("stranger", *words, code=1)
            self.assertEqual(no.stdout, "")
            self.assertIn("cn:stranger with the role none", no.stderr)
        octavo_of("otto", "volume", "discard", volume)
        info = octavo_of("otto", "info").stdout
        self.assertIn("TLS: clients need certificates, those without a line are none; the server's expires 20", info)
        self.assertIn("you are cn:otto, operator, of project retina: the client's certificate: cn:otto", info)

    def test_the_command_says_what_is_missing_or_wrong(self):
        daemon = self.mutual()
        ca, cert, key = self.lab.ca, self.lab.client("otto")["cert_file"], self.lab.client("otto")["key_file"]
        other = self.lab.client("vera")["key_file"]
        for flags, says, code in (
                ((), "if the server speaks TLS, give the file of its authority (--ca-file, OCTAVO_CA_FILE)", 3),
                (("--ca-file", ca), "the server may require a certificate of the client (--cert-file and --key-file", 3),
                (("--ca-file", ca, "--cert-file", cert), "--key-file: is not given, and --cert-file is", 2),
                (("--ca-file", ca, "--key-file", key), "--cert-file: is not given, and --key-file is", 2),
                (("--cert-file", cert, "--key-file", key), "--ca-file: is not given, and --cert-file is", 2),
                (("--ca-file", ca, "--cert-file", cert, "--key-file", other), "which is not the key of the certificate in", 2),
                (("--ca-file", key), "which holds none; allowed is a PEM file with certificates", 2),
                (("--ca-file", ca, "--cert-file", key, "--key-file", key), "--cert-file: is ", 2),
                (("--ca-file", ca, "--cert-file", cert, "--key-file", cert), "which holds no key", 2),
                (("--ca-file", "/none"), "--ca-file: is '/none', which cannot be read (No such file or directory)", 2),
                (("--ca-file", cert, "--cert-file", cert, "--key-file", key), "was not issued by an authority in", 3),
                (("--ca-file", ca, "--cert-file", cert, "--key-file", key, "--server-name", "x.lab"), "--server-name names one that it has", 3)):
            with self.subTest(flags):
                self.assertIn(says, self.command("--address", daemon.address, *flags, "health", code=code).stderr)
        self.command("--address", daemon.address, "--ca-file", ca, "--cert-file", cert, "--key-file", key, "health")
        plain = self.start()
        self.assertIn("the server does not speak TLS there: leave out --ca-file",
                      self.command("--address", plain.address, "--ca-file", ca, "health", code=3).stderr)

    def test_python_says_what_is_missing_or_wrong(self):
        otto, vera = self.lab.client("otto"), self.lab.client("vera")
        with open(os.path.join(self.folder, "words"), "w") as file:
            file.write("words")
        for options, says in (({"cert_file": otto["cert_file"]}, "key_file is not given, and cert_file is"),
                              ({"key_file": otto["key_file"]}, "cert_file is not given, and key_file is"),
                              ({**otto, "ca_file": None}, "ca_file is not given, and cert_file is"),
                              ({**otto, "key_file": vera["key_file"]}, "which is not the key of the certificate in"),
                              ({**otto, "key_file": file.name}, "which holds no private key that fits"),
                              ({**otto, "cert_file": file.name}, "cert_file is .* holds no certificate"),
                              ({"ca_file": file.name}, "ca_file is .* holds no certificate"),
                              ({"ca_file": 3}, "ca_file is 3; expected the path of a PEM file"),
                              ({"ca_file": "/none"}, "ca_file is '/none', which cannot be read")):
            with self.subTest(says), self.assertRaisesRegex(ValueError, says):
                octavo.Client("127.0.0.1:1", **options)

    def test_a_key_that_others_can_read_is_refused(self):
        daemon = self.mutual()
        files = self.lab.client("otto")
        key = os.path.join(self.folder, "open.key")
        shutil.copy(files["key_file"], key)
        os.chmod(key, 0o644)
        says = f"'{key}', which has mode 0644, so that others may read or change it"
        flags = ("--ca-file", files["ca_file"], "--cert-file", files["cert_file"], "--key-file", key)
        self.assertIn(f"--key-file: is {says}; allowed is 0600 (chmod 600 {key})", self.command("--address", daemon.address, *flags, "health", code=2).stderr)
        with self.assertRaisesRegex(ValueError, "key_file is " + re.escape(says)):
            octavo.Client(daemon.address, **{**files, "key_file": key})
        with self.assertRaisesRegex(RuntimeError, "--key-file: is " + re.escape(says)):
            Viewer(daemon.address, *flags)
        with self.assertRaisesRegex(RuntimeError, "--tls-key: is " + re.escape(says)):
            Viewer(daemon.address, "--tls-cert", files["cert_file"], "--tls-key", key)
        os.chmod(key, 0o600)
        self.command("--address", daemon.address, *flags, "health")
        with octavo.Client(daemon.address, **{**files, "key_file": key}) as client:
            client.info()

    def test_octavo_web_logs_in_with_a_certificate(self):
        daemon = self.mutual()
        with octavo.Client(daemon.address, **self.lab.client("otto")) as client:
            scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256)
            client.wait(scan.name)
        files = self.lab.client("vera")
        flags = ("--ca-file", files["ca_file"], "--cert-file", files["cert_file"], "--key-file", files["key_file"])
        for viewer in (Viewer(daemon.address, *flags),
                       Viewer(daemon.address, environment={"OCTAVO_CA_FILE": flags[1], "OCTAVO_CERT_FILE": flags[3], "OCTAVO_KEY_FILE": flags[5]})):
            self.addCleanup(viewer.stop)
            viewer.enter()
            until(lambda: viewer.status()["daemon_up"])
            status, answer = viewer.call("ScanService/StopScan", name=scan.name)
            self.assertEqual((status, answer["error"]["reason"]), (403, "WRONG_ROLE"), answer)
        bare = Viewer(daemon.address)
        self.addCleanup(bare.stop)
        bare.enter()
        self.assertFalse(bare.status()["daemon_up"])
        for wrong, says in ((flags[:4], "--key-file: is not given, and --cert-file is"), (flags[2:], "--ca-file: is not given"),
                            ((*flags[:4], "--key-file", self.lab.path("server.key")), "--key-file: is '"),
                            (("--ca-file", self.table), "a PEM file with certificates")):
            with self.subTest(says), self.assertRaisesRegex(RuntimeError, says):
                Viewer(daemon.address, *wrong)
        self.stops(daemon)


class Script(TlsTest):
    def test_lab_certificates(self):
        self.lab.client("otto")
        for name in ("ca.key", "server.key", "otto.key"):
            self.assertEqual(stat.S_IMODE(os.stat(self.lab.path(name)).st_mode), 0o600)
        before = self.lab.text("otto.key")
        for arguments, says, code in ((("client", self.lab.folder, "otto"), "is there already; remove both to make new ones", 1),
                                      (("ca", self.lab.folder), "is there already", 1),
                                      (("client", self.folder, "otto"), "has no authority; make one: lab-certificates ca", 1),
                                      (("client", self.lab.folder, "a/b"), "'a/b' is no name of a client", 2),
                                      (("client", self.lab.folder, "ca"), "'ca' is no name of a client", 2),
                                      (("server", self.lab.folder, "a b"), "'a b' is no name or address of a host", 2),
                                      (("server", self.lab.folder), "a server needs a name", 2),
                                      (("--days", "0", "ca", self.folder), "--days is '0'; allowed 1 to 99999", 2),
                                      (("more", self.folder), "'more' is nothing to make", 2), ((), "allowed: ", 2)):
            said = certificates(*arguments, check=False)
            self.assertEqual(said.returncode, code, (arguments, said.stderr))
            self.assertIn(says, said.stderr)
        self.assertEqual(self.lab.text("otto.key"), before)
        self.assertEqual([name for name in os.listdir(self.lab.folder) if name.startswith(".")], [])
        certificates("--days", "2", "client", self.lab.folder, "short")
        end = subprocess.run(["openssl", "x509", "-in", self.lab.path("short.pem"), "-noout", "-checkend", str(3 * 86400)], capture_output=True)
        self.assertEqual(end.returncode, 1)


if __name__ == "__main__":
    unittest.main()
