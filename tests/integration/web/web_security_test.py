"""octavo-web lets nobody in without the secret, no page of another site, and nothing that is not as the protocol says."""

import json
import os
import random
import re
import socket
import subprocess
import tempfile
import unittest

from harness import SOURCE, until
from web_viewer import SERVER, Closed, Refused, Viewer, node

NO_DAEMON = "127.0.0.1:9"  # what is tested here needs none


class Secured(unittest.TestCase):
    flags = ()

    def setUp(self):
        self.viewer = Viewer(NO_DAEMON, *self.flags)
        self.addCleanup(self.viewer.stop)

    def reason(self, answer):
        return answer[0], json.loads(answer[2])["error"]["reason"]


class ComingIn(Secured):
    def test_the_page_has_no_secret_and_everything_else_needs_one(self):
        status, headers, body = self.viewer.request("GET", "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertNotIn(self.viewer.token.encode(), body)
        for method, path in (("GET", "/api/status"), ("GET", "/api/volumes/a/picture"), ("GET", "/api/volumes/a/voxels"), ("GET", "/none"), ("POST", "/api/ScanService/SubmitScan"),
                             ("POST", "/session/invitation"), ("DELETE", "/session")):
            headers = {"Origin": self.viewer.origin}
            self.assertEqual(self.reason(self.viewer.request(method, path, {}, headers=headers)), (401, "NO_SESSION"), path)
            self.assertEqual(self.reason(self.viewer.request(method, path, {}, headers={**headers, "Cookie": f"octavo-{self.viewer.port}=" + "A" * 43})), (401, "NO_SESSION"), path)
        for cookie in (None, f"octavo-{self.viewer.port}=" + "A" * 43, f"octavo-{self.viewer.port}="):
            with self.assertRaises(Refused) as refused:
                self.viewer.socket(cookie=cookie)
            self.assertEqual(refused.exception.status, 401)

    def test_a_token_of_256_bits_lets_one_browser_in(self):
        self.assertRegex(self.viewer.token, r"^[\w-]{43}$")  # 256 bits in base64url
        cookie = self.viewer.enter()
        self.assertRegex(cookie, rf"^octavo-{self.viewer.port}=[\w-]{{43}}; Path=/; HttpOnly; SameSite=Strict; Max-Age=\d+$")
        self.assertNotIn(self.viewer.token, cookie)
        self.assertEqual(self.viewer.request("GET", "/api/status")[0], 200)
        self.viewer.socket().close()
        # The same token again, and others.
        self.assertEqual(self.reason(self.viewer.request("POST", "/session", {"token": self.viewer.token})), (403, "BAD_TOKEN"))
        self.assertEqual(self.reason(self.viewer.request("POST", "/session", {"token": "A" * 43})), (403, "BAD_TOKEN"))
        for body in ({}, {"token": 1}, {"token": "A" * 42}, {"token": ["A" * 43]}, b"[", b"null", b"\xff\xfe"):
            self.assertEqual(self.reason(self.viewer.request("POST", "/session", body)), (400, "BAD_TOKEN"), body)

    def test_each_browser_gets_an_address_of_its_own(self):
        self.viewer.enter()
        first = self.viewer.cookie
        url = self.viewer.invitation()
        self.assertTrue(url.startswith(self.viewer.base))
        self.viewer.enter(url.partition("/#token=")[2])
        self.assertNotEqual(self.viewer.cookie, first)
        self.assertEqual(self.viewer.request("DELETE", "/session", headers={"Origin": self.viewer.origin})[0], 204)
        self.assertEqual(self.viewer.request("GET", "/api/status")[0], 401)
        self.assertEqual(self.viewer.request("GET", "/api/status", headers={"Cookie": first})[0], 200)  # the other one stays

    def test_the_next_address_is_printed_when_one_was_used(self):
        self.viewer.enter()
        self.viewer.stop()
        printed = re.findall(r"#token=([\w-]{43})", self.viewer.output)
        self.assertEqual((len(printed), printed[0], len(set(printed))), (2, self.viewer.token, 2))

    def test_the_end_of_a_session_ends_its_sockets(self):
        self.viewer.enter()
        web = self.viewer.socket()
        self.viewer.request("DELETE", "/session", headers={"Origin": self.viewer.origin})
        with self.assertRaises(Closed) as closed:
            while True:
                web.message()  # at the next ping
        self.assertEqual(closed.exception.code, 4401)


class OtherSites(Secured):
    def setUp(self):
        super().setUp()
        self.viewer.enter()
        self.port = self.viewer.port

    def test_another_name_for_this_host_is_refused(self):
        """DNS rebinding: the browser believes that it speaks to evil.example, whose address has become 127.0.0.1."""
        for host in ("evil.example", f"evil.example:{self.port}", f"127.0.0.1:{self.port + 1}", "127.0.0.1", f"127.0.0.1.evil.example:{self.port}", f"localhost.:{self.port}", ""):
            for method, path in (("GET", "/"), ("GET", "/api/status"), ("POST", "/session"), ("POST", "/api/ScanService/GetScan")):
                answer = self.viewer.request(method, path, {"token": self.viewer.token}, host=host, headers={"Origin": f"http://{host}"})
                self.assertEqual(self.reason(answer), (421, "HOST"), (host, path))
            with self.assertRaises(Refused) as refused:
                self.viewer.socket(host=host, origin=f"http://{host}")
            self.assertEqual(refused.exception.status, 421)
        for host in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
            self.assertEqual(self.viewer.request("GET", "/", host=f"{host}:{self.port}")[0], 200)
            self.viewer.socket(host=f"{host}:{self.port}", origin=f"http://{host}:{self.port}").close()

    def test_a_page_of_another_site_is_refused_although_the_browser_sends_the_cookie(self):
        for origin in ("http://evil.example", "null", f"https://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.port + 1}", f"http://127.0.0.1:{self.port}.evil.example", f"http://localhost:{self.port}",
                       "", f"http://127.0.0.1:{self.port}@evil.example", f"xhttp://127.0.0.1:{self.port}"):
            with self.assertRaises(Refused) as refused:
                self.viewer.socket(origin=origin)
            self.assertEqual(refused.exception.status, 403, origin)
            for method, path in (("POST", "/api/VolumeService/DiscardVolume"), ("POST", "/session"), ("POST", "/session/invitation"), ("GET", "/api/status")):
                self.assertEqual(self.reason(self.viewer.request(method, path, {}, headers={"Origin": origin})), (403, "ORIGIN"), (origin, path))
        with self.assertRaises(Refused):
            self.viewer.socket(origin=None)
        self.assertEqual(self.reason(self.viewer.request("POST", "/api/VolumeService/DiscardVolume", {}, headers={"Origin": None})), (403, "ORIGIN"))
        for site in ("cross-site", "same-site"):
            self.assertEqual(self.reason(self.viewer.request("GET", "/api/status", headers={"Sec-Fetch-Site": site})), (403, "ORIGIN"))
        # A form can post without a script, but not as JSON.
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None):
            self.assertEqual(self.reason(self.viewer.request("POST", "/api/VolumeService/DiscardVolume", {}, headers={"Content-Type": kind})), (415, "NO_JSON"))

    def test_the_page_may_load_nothing_of_other_hosts_and_be_shown_in_no_frame(self):
        for path in ("/", "/page.js", "/none"):
            headers = self.viewer.request("GET", path)[1]
            policy = headers["Content-Security-Policy"]
            self.assertIn("default-src 'none'", policy)
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertNotRegex(policy, r"unsafe|https?:|\*")
            self.assertEqual((headers["X-Content-Type-Options"], headers["Referrer-Policy"], headers["Access-Control-Allow-Origin"]), ("nosniff", "no-referrer", None))
        html = self.viewer.request("GET", "/")[2].decode()
        self.assertNotRegex(html, r"<script(?![^>]*\bsrc=)|<style|\son\w+=|//")

    def test_no_path_leads_out_of_the_page(self):
        for path in ("/../octavo-web.mjs", "/%2e%2e/octavo-web.mjs", "/..%2foctavo-web.mjs", "/page.js/../../octavo-web.mjs", "//etc/passwd", "/etc/passwd", "/./page.js", "/page.js%00.txt", "/..\\octavo-web.mjs",
                     "/index.html/", "/package.json", "http://127.0.0.1/page.js", "/__proto__", "/constructor", "/api/volumes/../../x/picture", "/api/volumes/%2e%2e/picture"):
            status, _, body = self.viewer.request("GET", path)
            self.assertEqual((status, json.loads(body)["error"]["reason"]), (404, "NO_PAGE"), path)

    def test_only_the_calls_of_the_list(self):
        for name in ("SystemService/Measure", "IngestService/Push", "VolumeService/constructor", "__proto__/toString", "VolumeService/ReadVolume", "BufferService/CreateBuffer"):
            status, body = self.viewer.call(name)
            self.assertEqual((status, body["error"]["reason"]), (404, "NO_CALL"), name)
        for body in (b"", b"{}"):
            self.assertEqual(self.reason(self.viewer.request("POST", "/api/ScanService/PlanScan", body)), (503, "UNAVAILABLE"))  # allowed; there is no daemon
        for body in (b"{", b"[]", b"null", b"1", b'"x"', b"\xff"):
            self.assertEqual(self.reason(self.viewer.request("POST", "/api/ScanService/PlanScan", body)), (400, "BAD_JSON"))
        status, _, _ = self.viewer.request("POST", "/api/ScanService/PlanScan", b" " * (300 << 10))
        self.assertEqual(status, 413)
        self.assertEqual(self.viewer.request("GET", "/api/status")[0], 200)


    def test_what_a_request_may_hold(self):
        """The encoder would drop, cut and wrap these without a word: nothing is asked of the daemon."""
        raster = {"bscans_per_volume": 4, "ascans_per_bscan": 8}
        for spec, field in (({"windw": {}}, "spec.windw"), ({"retention": {"modee": 1}}, "spec.retention.modee"), ({"__proto__": {"x": 1}}, "spec.__proto__"),
                            ({"pattern": {"raster": {**raster, "ascans_per_bscan": 256.9}}}, "spec.pattern.raster.ascans_per_bscan"),
                            ({"pattern": {"raster": {**raster, "ascans_per_bscan": 4294967300}}}, "spec.pattern.raster.ascans_per_bscan"),
                            ({"pattern": {"raster": {**raster, "ascans_per_bscan": -1}}}, "spec.pattern.raster.ascans_per_bscan"),
                            ({"pattern": {"raster": {**raster, "ascans_per_bscan": "12 000"}}}, "spec.pattern.raster.ascans_per_bscan"),
                            ({"pattern": {"raster": {**raster, "volumes": 2.7}}}, "spec.pattern.raster.volumes"), ({"pattern": {"raster": {**raster, "volumes": "1e3"}}}, "spec.pattern.raster.volumes"), ({"processing": {"dtype": "F32"}}, "spec.processing.dtype"),
                            ({"products": {"aip": "yes"}}, "spec.products.aip"), ({"products": []}, "spec.products"), ({"labels": ["a"]}, "spec.labels"), ({"title": 7}, "spec.title")):
            # As text, because a Python dict has no duplicate of __proto__ to lose.
            status, _, body = self.viewer.request("POST", "/api/ScanService/PlanScan", json.dumps({"spec": spec}).encode())
            error = json.loads(body)["error"]
            self.assertEqual((status, error["reason"], error["field"]), (400, "BAD_REQUEST", field), error)
            self.assertIn("allowed", error["message"])
        # What the contract has reaches the daemon, which is not there: numbers as text, names of enums, what answers repeat of a choice.
        fine = {"title": "x", "labels": {"eye": "OD"}, "source": "simulated", "simulated": {}, "pattern": {"raster": {**raster, "volumes": "3"}}, "processing": {"dtype": "DTYPE_F32", "window": None},
                "products": {"slab_begin_um": 1.5, "aip": True}, "retention": {"ttl": {"seconds": 5}}}
        answer = self.viewer.request("POST", "/api/ScanService/PlanScan", json.dumps({"spec": fine}).encode())
        self.assertEqual(self.reason(answer), (503, "UNAVAILABLE"), answer[2])

    def test_requests_behind_each_other_on_one_connection(self):
        """No browser sends them; an answer behind another one would never learn that its reader has gone."""
        head = f"Host: {self.viewer.host}\r\nCookie: {self.viewer.cookie}\r\n\r\n"
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", self.viewer.port), timeout=10) as connection:
                connection.sendall("".join(f"GET /api/volumes/{name}/picture HTTP/1.1\r\n{head}" for name in "abcd").encode())
        until(lambda: self.viewer.status()["bulk"] == {"running": 0, "waiting": 0})


class ReadOnly(Secured):
    flags = ("--read-only",)

    def test_no_verb_that_changes_anything(self):
        self.viewer.enter()
        refused = [name for name in re.findall(r'"(\w+Service/\w+)": \{[^}]*changes: true', open(os.path.join(SOURCE, "client/web/src/server/verbs.ts")).read())]
        self.assertGreater(len(refused), 8)
        for name in refused:
            status, body = self.viewer.call(name, name="volumes/1")
            self.assertEqual((status, body["error"]["reason"]), (403, "READ_ONLY"), name)
        self.assertEqual(self.viewer.call("VolumeService/GetVolume", name="volumes/1")[0], 503)  # asks the daemon, which is not there
        self.assertTrue(self.viewer.socket().text("hello")["read_only"])


class Wire(Secured):
    def setUp(self):
        super().setUp()
        self.viewer.enter()

    def ends(self, web):
        with self.assertRaises(Closed) as closed:
            while True:
                web.message()
        return closed.exception.code

    def test_it_begins_with_what_there_is(self):
        web = self.viewer.socket()
        hello = web.text("hello")
        self.assertEqual((hello["version"], hello["read_only"], hello["daemon"]), (2, False, NO_DAEMON))
        self.assertFalse(web.text("daemon")["up"])

    def test_malformed_texts_end_the_connection_and_nothing_else(self):
        topic = dict(parent="scans/a", product="MIP", axis="Z", index=-1, width=512)
        good = dict(type="open", view=1, topic=topic)
        wrong = ["", "{", "null", "[]", "1", '"a"', "{}", {"type": "shout", "view": 1}, {"type": "close"}, {"type": "close", "view": -1}, {"type": "close", "view": 256}, {"type": "close", "view": 1.5},
                 {"type": "close", "view": "1"}, {"type": "close", "view": 1, "more": 1}, {"type": "ack", "view": 1}, {"type": "ack", "view": 1, "sequence": -1, "painted_ms": 1},
                 {"type": "ack", "view": 1, "sequence": 2**60, "painted_ms": 1}, {"type": "ack", "view": 1, "sequence": 1, "painted_ms": None}, {"type": "open", "view": 1},
                 {**good, "rate_hz": 0}, {**good, "rate_hz": 61}, {**good, "rate_hz": "1"}, {**good, "encoding": "PNG"}, {**good, "resume": -1}, {**good, "__proto__": {}},
                 {"type": "look"}, {"type": "look", "job": "", "server": 1}, {"type": "look", "job": None, "server": True}, {"type": "look", "job": "scans/a", "server": False},
                 {"type": "look", "job": "jobs/../a", "server": False}, {"type": "look", "job": "jobs/" + "a" * 65, "server": False}]
        for field, values in dict(parent=[None, "", "volumes/a", "scans/", "scans/../a", "scans/" + "a" * 65, "scans/a/b"], product=[None, "VOLUME", "EVENT", "toString"], axis=[None, "z", "Q"],
                                  index=[None, -2, 0.5, 2**40, "1"], width=[None, 0, 15, 4097, 1e300]).items():
            wrong += [{**good, "topic": {**topic, field: value}} for value in values]
        wrong += [{**good, "topic": {**topic, "more": 1}}, {**good, "topic": []}, '{"type":"open","view":1,"topic":{"parent":' + "[" * 3000 + "]" * 3000 + "}}"]
        for message in wrong:
            web = self.viewer.socket()
            web.send(message)
            self.assertEqual(self.ends(web), 1008, message)
        self.assertEqual(self.viewer.status()["views"], 0)

    def test_frames_that_the_protocol_does_not_have(self):
        for send, code in ((lambda w: w.send_frame(2, b"\0" * 32), 1003),            # binary
                           (lambda w: w.send_frame(1, b"a" * 8193), 1009),           # too long
                           (lambda w: w.send_frame(1, b"", length=2**40), 1009),     # says that it will be
                           (lambda w: w.send_frame(1, b"\xff\xfe"), 1007),           # no UTF-8
                           (lambda w: w.send_frame(1, b"{}", masked=False), 1002),
                           (lambda w: w.send_frame(3, b"{}"), 1002),                 # no such opcode
                           (lambda w: w.send_frame(0, b"{}"), 1002),                 # goes on with nothing
                           (lambda w: w.send_frame(9, b"a" * 126), 1002),            # a ping too long
                           (lambda w: [w.send_frame(1, b"a" * 4096, final=False)] + [w.send_frame(0, b"a" * 4096, final=False) for _ in range(3)], 1009)):
            web = self.viewer.socket()
            send(web)
            self.assertEqual(self.ends(web), code)

    def test_random_bytes_and_texts_do_not_end_the_server(self):
        random.seed(19)
        for _ in range(200):
            web = self.viewer.socket()
            try:
                if random.random() < 0.5:
                    web.socket.sendall(random.randbytes(random.randint(1, 400)))
                else:
                    web.send_frame(random.choice((1, 1, 2, 8, 9, 10)), random.randbytes(random.randint(0, 125)))
                web.socket.close()
            except OSError:
                pass
        until(lambda: self.viewer.status()["viewers"] == 0)

    def test_views_are_bounded(self):
        web = self.viewer.socket()
        most = web.text("hello")["most_views"]
        for view in range(most):
            web.open(view, "scans/a", index=view)
        until(lambda: self.viewer.status()["views"] == most)
        web.open(0, "scans/b")  # in place of the first one
        web.open(most, "scans/a")
        self.assertEqual(self.ends(web), 1008)
        until(lambda: self.viewer.status()["subscriptions"] == 0)

    def test_raw_bytes_on_the_port(self):
        for data in (b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"A" * (64 << 10), b"POST /session HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (20 << 10) + b"\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", self.viewer.port), timeout=20) as peer:
                try:
                    peer.sendall(data)
                    peer.shutdown(socket.SHUT_WR)
                    answer = peer.recv(100)
                    self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 4"), (data[:40], answer))
                except OSError:
                    pass
        self.assertEqual(self.viewer.request("GET", "/api/status")[0], 200)


class Starting(unittest.TestCase):
    def run_with(self, *flags):
        return subprocess.run([node(), SERVER, "--address", NO_DAEMON, *flags], capture_output=True, text=True, timeout=30)

    def test_mistakes_say_what_is_allowed(self):
        for flags, words in ((("--listen", "0.0.0.0:0"), "--tls-cert"), (("--listen", "192.0.2.1:0"), "--insecure"), (("--listen", "8050"), "HOST:PORT"), (("--listen", "127.0.0.1:99999"), "HOST:PORT"),
                             (("--tls-cert", "x"), "--tls-key"), (("--tls-cert", "/none", "--tls-key", "/none"), "/none"), (("--host", "a b"), "without a port"), (("--port", "1"), "--listen"), (("x",), "--listen"),
                             (("--address", "http://x:1"), "host:port"), (("--address", "x"), "host:port")):
            done = self.run_with(*flags)
            self.assertEqual((done.returncode, done.stdout), (2, ""), flags)
            self.assertIn(words, done.stderr)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = self.run_with("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
            self.assertEqual(done.returncode, 1)
            self.assertIn("EADDRINUSE", done.stderr)
        self.assertIn("--read-only", self.run_with("--help").stdout)

    def test_other_addresses_with_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
            made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=octavo.lab", "-keyout", key, "-out", cert], capture_output=True)
            if made.returncode != 0:
                self.skipTest("no openssl")
            viewer = Viewer(NO_DAEMON, "--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key, "--host", "octavo.lab")
            self.addCleanup(viewer.stop)
            self.assertTrue(viewer.url.startswith(f"https://octavo.lab:{viewer.port}/#token="))
            self.assertRegex(viewer.enter(), r"^__Host-octavo-\d+=[\w-]+; Path=/; HttpOnly; SameSite=Strict; Max-Age=\d+; Secure$")
            viewer.socket().text("hello")
            self.assertEqual(viewer.request("GET", "/", host=f"evil.example:{viewer.port}")[0], 421)
            with self.assertRaises(Refused):
                viewer.socket(origin=f"http://octavo.lab:{viewer.port}")  # the page of plain HTTP is another one

    def test_insecure_has_to_be_said(self):
        viewer = Viewer(NO_DAEMON, "--listen", "0.0.0.0:0", "--insecure")
        self.addCleanup(viewer.stop)
        viewer.enter()
        self.assertEqual(viewer.request("GET", "/", host=f"{socket.gethostname()}:{viewer.port}")[0], 200)


if __name__ == "__main__":
    unittest.main()
