"""octavo-web against random changes of what pages send: messages with a reference that knows which are allowed, frames of RFC 6455,
requests of HTTP. OCTAVO_TEST_SEED repeats a run; OCTAVO_FUZZ_SECONDS makes each part longer."""

import json
import os
import random
import re
import socket
import struct
import time
import unittest

from harness import until
from web_viewer import Closed, Viewer

NO_DAEMON = "127.0.0.1:9"  # what is tested here needs none
SEED = int(os.environ.get("OCTAVO_TEST_SEED", "20261128"))
SECONDS = float(os.environ.get("OCTAVO_FUZZ_SECONDS", "8"))
MOST_VIEWS = 6
MOST_RESIDENT_GROWTH = 200 << 20

TOPIC = dict(parent="scans/a", product="MIP", axis="Z", index=-1, width=512)
GOOD = [
    dict(type="open", view=1, topic=TOPIC),
    dict(type="open", view=2, topic={**TOPIC, "slab": [3, 9], "parent": "jobs/b-1"}, encoding="RAW", rate_hz=12.5, resume=7),
    dict(type="ack", view=1, sequence=3, painted_ms=1.5), dict(type="close", view=1), dict(type="look", job="jobs/a", server=True), dict(type="look", job="", server=False),
]
VALUES = [None, True, False, 0, 1, -1, 0.5, 5.0, 60, 61, 255, 256, 4096, 2**31, 2**31 + 1, 2**53 - 1, 2**53, 1e300, "", "1", "a", "open", "RAW", "AUTO", "toString", "__proto__", "jobs/a", "scans/a", "scans/../a",
          "scans/" + "a" * 64, "scans/" + "a" * 65, "jobs/a\n", "\u00e9", "\ud800", "\0", [], {}, [0, 1], [1, 1], [5], {"a": 1}, [[[]]]]
KEYS = ["type", "view", "topic", "encoding", "rate_hz", "resume", "sequence", "painted_ms", "job", "server", "parent", "product", "axis", "index", "slab", "width", "__proto__", "constructor", "more", ""]


# -- the reference: the protocol as client/web/src/wire/protocol.ts describes it

def is_number(value, lo, hi):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and lo <= value <= hi


def is_whole(value, lo, hi):
    return is_number(value, lo, hi) and value == int(value) and abs(value) < 2**53


def is_slab(value):
    return value is None or (isinstance(value, list) and len(value) == 2 and is_whole(value[0], 0, 2**31) and is_whole(value[1], value[0] + 1, 2**31))


def is_topic(value):
    return (isinstance(value, dict) and set(value) <= {"parent", "product", "axis", "index", "slab", "width"} and isinstance(value.get("parent"), str)
            and re.fullmatch(r"(scans|jobs)/[0-9A-Za-z_-]{1,64}", value["parent"]) is not None
            and value.get("product") in ("MIP", "AIP", "BSCAN", "ANGIOGRAM", "SPECTRUM", "CORRECTED", "ASCAN") and value.get("axis") in ("X", "Y", "Z")
            and is_whole(value.get("index"), -1, 2**31) and is_slab(value.get("slab")) and is_whole(value.get("width"), 16, 4096))


def is_allowed(message):
    known = {"type", "view", "topic", "encoding", "rate_hz", "resume", "sequence", "painted_ms", "job", "server"}
    if not isinstance(message, dict) or not set(message) <= known:
        return False
    kind = message.get("type")
    if kind == "look":
        job = message.get("job")
        return isinstance(job, str) and (job == "" or re.fullmatch(r"jobs/[0-9A-Za-z_-]{1,64}", job) is not None) and isinstance(message.get("server"), bool)
    if kind not in ("open", "ack", "close") or not is_whole(message.get("view"), 0, 255):
        return False
    if kind == "ack":
        return is_whole(message.get("sequence"), 0, 2**53 - 1) and is_number(message.get("painted_ms"), 0, 3.6e6)
    if kind == "close":
        return True
    rate, encoding = message.get("rate_hz"), message.get("encoding")
    return ((rate is None or is_number(rate, 0.1, 60)) and (message.get("resume") is None or is_whole(message["resume"], 0, 2**53 - 1)) and is_topic(message.get("topic"))
            and (encoding is None or encoding in ("AUTO", "RAW", "JPEG")))


class Fuzzed(unittest.TestCase):
    def setUp(self):
        self.seed = SEED
        print(f"OCTAVO_TEST_SEED={self.seed}")
        self.random = random.Random(self.seed)
        self.viewer = Viewer(NO_DAEMON)
        self.addCleanup(self.viewer.stop)
        self.viewer.enter()
        self.resident = self.viewer.status()["resident_bytes"]

    def goes_on(self):
        """The server serves, and has kept nothing of the connections."""
        until(lambda: all(self.viewer.status()[kept] == 0 for kept in ("viewers", "views", "subscriptions")))
        status = self.viewer.status()
        self.assertLess(status["resident_bytes"] - self.resident, MOST_RESIDENT_GROWTH)

    def turns(self):
        end = time.monotonic() + SECONDS
        count = 0
        while time.monotonic() < end or count < 50:
            yield count
            count += 1
        print(f"{self.id().rsplit('.', 1)[1]}: {count} turns")


class Messages(Fuzzed):
    def changed(self, value, depth=0):
        """A value with something changed in it."""
        if isinstance(value, dict) and self.random.random() < 0.9:
            value = dict(value)
            what = self.random.random()
            if value and what < 0.6:
                key = self.random.choice(list(value))
                value[key] = self.changed(value[key], depth + 1) if self.random.random() < 0.8 else self.random.choice(VALUES)
            elif value and what < 0.75:
                del value[self.random.choice(list(value))]
            else:
                value[self.random.choice(KEYS)] = self.random.choice(VALUES)
            return value
        if isinstance(value, list) and value and self.random.random() < 0.5:
            value = list(value)
            value[self.random.randrange(len(value))] = self.random.choice(VALUES)
            return value
        return self.random.choice(VALUES)

    def pong(self, web):
        """Waits for the answer of a ping: all messages before it have been read. Raises Closed."""
        web.send_frame(9, b"mine")
        while True:
            first, second = web._take(2)
            size = second & 127
            if size >= 126:
                size = struct.unpack(">H" if size == 126 else ">Q", web._take(2 if size == 126 else 8))[0]
            payload = web._take(size)
            if first & 15 == 8:
                raise Closed(struct.unpack(">H", payload[:2])[0], payload[2:].decode())
            if first & 15 == 9:
                web.send_frame(10, payload)
            if first & 15 == 10 and payload == b"mine":
                return

    def test_just_the_allowed_messages_are_taken(self):
        for _ in self.turns():
            web, sent = self.viewer.socket(), []
            # Fewer than there may be views: none of the messages is one view too many.
            while len(sent) < MOST_VIEWS and all(map(is_allowed, sent)):
                message = self.random.choice(GOOD)
                for _ in range(self.random.randrange(3)):
                    message = self.changed(message)
                sent.append(message)
                web.send(json.dumps(message))
            allowed = all(map(is_allowed, sent))
            try:
                self.pong(web)
                self.assertTrue(allowed, (self.seed, sent))
            except Closed as closed:
                self.assertFalse(allowed, (self.seed, sent, str(closed)))
                self.assertEqual(closed.code, 1008, (self.seed, sent))
                self.assertTrue(closed.reason)
            web.close()
        self.goes_on()

    def test_texts_with_changed_bytes_end_one_connection_at_most(self):
        for _ in self.turns():
            web = self.viewer.socket()
            for _ in range(4):
                text = bytearray(json.dumps(self.random.choice(GOOD)).encode())
                for _ in range(self.random.randrange(4)):
                    at = self.random.randrange(len(text) + 1)
                    text[at:at + self.random.randrange(3)] = self.random.choice([b"", b"\"", b"{", b"[", b"\\u0000", b"1e999", b"-", b",", b"\xff", b"\\ud800", self.random.randbytes(2), b"[" * 2000])
                try:
                    web.send_frame(1, bytes(text))
                    self.pong(web)
                except Closed as closed:
                    self.assertIn(closed.code, (1006, 1007, 1008, 1009), (self.seed, bytes(text)))
                    break
                except OSError:
                    break
            web.close()
        self.goes_on()


class Wire(Fuzzed):
    def test_frames(self):
        for _ in self.turns():
            web = self.viewer.socket()
            try:
                for _ in range(self.random.randrange(1, 6)):
                    payload = self.random.choice([b"", b"{}", json.dumps(self.random.choice(GOOD)).encode(), self.random.randbytes(self.random.randrange(200)), b"a" * self.random.choice((125, 126, 8192, 8193, 65536))])
                    web.send_frame(self.random.choice((0, 1, 1, 1, 2, 3, 8, 9, 10, 11, 15)) | self.random.choice((0, 0, 0, 0x10, 0x40)), payload, final=self.random.random() < 0.7,
                                   masked=self.random.random() < 0.9, length=self.random.choice((None, None, None, None, 0, 126, 65535, 2**40, 2**63, 2**64 - 1)))
                if self.random.random() < 0.3:
                    web.socket.sendall(self.random.randbytes(self.random.randrange(1, 300)))
                web.socket.shutdown(socket.SHUT_WR)
                while True:
                    web._more()
            except (Closed, OSError, struct.error):
                pass
            web.close()
        self.goes_on()


class Requests(Fuzzed):
    METHODS = ["GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS", "PATCH", "CONNECT", "get", "M-SEARCH"]
    PATHS = ["/", "/index.html", "/session", "/session/invitation", "/api/status", "/api/volumes/a/picture", "/api/volumes/a/voxels", "/api/ScanService/SubmitScan", "/api/VolumeService/GetVolume", "/socket", "/none"]
    PIECES = ["/", "..", "%2e%2e", "%00", "?", "#", "//", "\\", "a" * 300, "?rendering=max&size=99999", "?plane=-1", "?lo=1&hi=nan", "?digest=x", "/constructor/toString", "%", ";", "\u00e9"]

    def path(self):
        path = self.random.choice(self.PATHS)
        for _ in range(self.random.randrange(3)):
            at = self.random.randrange(len(path) + 1)
            path = path[:at] + self.random.choice(self.PIECES) + path[at:]
        return path

    def request(self, cookie):
        method, path = self.random.choice(self.METHODS), self.path()
        body = self.random.choice([b"", b"{}", b"[", b"null", b'{"token":"' + b"A" * 43 + b'"}', b'{"name":"volumes/a"}', self.random.randbytes(50), b'{"a":' * 2000, b"x" * 5000])
        headers = [("Host", self.random.choice([self.viewer.host] * 6 + ["evil.example", "", f"{self.viewer.host}.", self.viewer.host.upper()])), ("Connection", "close")]
        maybe = [("Origin", self.random.choice([self.viewer.origin, self.viewer.origin, "null", "http://evil.example", self.viewer.origin + ".evil.example", ""])),
                 ("Content-Type", self.random.choice(["application/json", "text/plain", "application/json; charset=utf-8", "application/jsonx", ""])),
                 ("Content-Length", self.random.choice([str(len(body))] * 5 + ["0", "-1", "1e3", str(len(body) + 5), str(2**64)])), ("Transfer-Encoding", self.random.choice(["chunked", "identity", "gzip"])),
                 ("Sec-Fetch-Site", self.random.choice(["same-origin", "cross-site", "none", "x"])), ("Range", self.random.choice(["bytes=0-", "bytes=-", "bytes=5-1", "bytes=0-0,2-3", "x"])),
                 ("If-None-Match", "*"), ("Upgrade", "websocket"), ("Accept-Encoding", self.random.choice(["gzip", "br", "gzip;q=0"])), ("Cookie", self.random.choice(["a=b", "=", ";;;", f"octavo-{self.viewer.port}=", "x" * 5000])),
                 ("X-Long", "y" * self.random.choice((10, 20000)))]
        headers += [pair for pair in maybe if self.random.random() < (0.8 if pair[0] == "Content-Length" else 0.25)]
        if cookie:
            headers.append(("Cookie", cookie))
        self.random.shuffle(headers)
        head = f"{method} {path} HTTP/1.{self.random.choice('1111019')}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
        raw = bytearray(head.encode() + body)
        if self.random.random() < 0.2:
            raw[self.random.randrange(min(len(raw), 200))] = self.random.randrange(256)
        return path, bytes(raw)

    def answer(self, raw):
        with socket.create_connection(("127.0.0.1", self.viewer.port), timeout=30) as peer:
            answer = b""
            try:
                peer.sendall(raw)
                peer.shutdown(socket.SHUT_WR)
                while part := peer.recv(1 << 16):
                    answer += part
            except OSError:
                pass
            return answer

    def test_requests(self):
        secret = self.viewer.cookie.partition("=")[2].encode()
        # An ending session would end the turns: its cookie is not used for that.
        for _ in self.turns():
            cookie = self.viewer.cookie if self.random.random() < 0.5 else None
            path, raw = self.request(cookie)
            if cookie and raw.startswith(b"DELETE"):
                continue
            answer = self.answer(raw)
            if not answer:
                continue
            match = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
            self.assertIsNotNone(match, (self.seed, raw, answer[:200]))
            status = int(match[1])
            self.assertIn(status, (101, 200, 204, 206, 304, 400, 401, 403, 404, 405, 408, 411, 412, 413, 415, 416, 417, 421, 426, 429, 431, 501, 502, 503, 504, 505), (self.seed, raw, answer[:300]))
            self.assertNotIn(secret, answer, (self.seed, raw))
            if not cookie and re.match(r"/(api|socket)", path):
                self.assertGreaterEqual(status, 300, (self.seed, raw))
        self.assertEqual(self.viewer.request("GET", "/api/status")[0], 200)
        self.goes_on()


if __name__ == "__main__":
    unittest.main()
