"""Runs octavo-web for tests, and speaks to it as browsers do and as they never would: plain HTTP, and
web sockets frame by frame."""

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time
import unittest

from harness import SOURCE

SERVER = os.path.join(SOURCE, "client", "web", "dist", "octavo-web.mjs")
HEADER = struct.Struct("<BBHIQIIII")  # of a frame: client/web/src/wire/protocol.ts


def node():
    """Node 18 or later; skips the test where there is none."""
    found = os.environ.get("OCTAVO_NODE") or shutil.which("node") or shutil.which("nodejs")
    if found is None:
        raise unittest.SkipTest("no node (Debian package nodejs)")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < 18:
        raise unittest.SkipTest(f"Node is {version}, and octavo-web needs 18")
    return found


class Viewer:
    """A running octavo-web."""

    def __init__(self, address, *flags, program=None, environment=None):
        read, write = os.pipe()
        listen = [] if "--listen" in flags else ["--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen([*(program or [node(), SERVER]), "--address", address, *listen, "--ready-fd", str(write), *flags], pass_fds=[write],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})})
        os.close(write)
        with os.fdopen(read) as ready:
            line = ready.readline()
        if not line:
            raise RuntimeError(f"octavo-web did not start (exit code {self.process.wait()}): {self.process.stdout.read()}")
        told = json.loads(line)
        self.url, self.port = told["url"], told["port"]
        self.base, _, self.token = self.url.partition("/#token=")
        self.tls = self.base.startswith("https:")
        self.origin, self.host = self.base, self.base.split("//")[1]
        self.cookie, self.sockets = None, []

    def request(self, method, path, body=None, headers=None, cookie=True, host=None):
        """(status, headers, body). The headers are those of a page of its own, unless `headers` says otherwise (None leaves one out)."""
        sent = {"Host": self.host if host is None else host}
        if method == "POST":
            sent.update({"Origin": self.origin, "Content-Type": "application/json"})
        if cookie and self.cookie:
            sent["Cookie"] = self.cookie
        sent.update(headers or {})
        if self.tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=ssl._create_unverified_context())
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def enter(self, token=None):
        """Exchanges a token for the cookie of a session."""
        status, headers, body = self.request("POST", "/session", {"token": token or self.token}, cookie=False)
        if status != 200:
            raise AssertionError((status, body))
        self.cookie = headers["Set-Cookie"].split(";")[0]
        return headers["Set-Cookie"]

    def invitation(self):
        return json.loads(self.request("POST", "/session/invitation", {})[2])["url"]

    def status(self):
        return json.loads(self.request("GET", "/api/status")[2])

    def call(self, method, **request):
        status, _, body = self.request("POST", f"/api/{method}", request)
        return status, json.loads(body)

    def socket(self, **changes):
        return WebSocket(self, **changes)

    def stop(self):
        for web in self.sockets:
            web.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if not self.process.stdout.closed:
            self.output = self.process.stdout.read()
            self.process.stdout.close()
        return code


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class Closed(Exception):
    def __init__(self, code, reason):
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


class WebSocket:
    """A client of RFC 6455 with nothing hidden: what is sent is what the test says."""

    def __init__(self, viewer, path="/socket", host=None, origin="own", cookie="own", receive_buffer=None, headers=None):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as browsers do
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(30)
        viewer.sockets.append(self)
        self.socket.connect(("127.0.0.1", viewer.port))
        if viewer.tls:
            self.socket = ssl._create_unverified_context().wrap_socket(self.socket)
        self.rest = b""
        lines = [f"GET {path} HTTP/1.1", f"Host: {viewer.host if host is None else host}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                 f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
        origin = viewer.origin if origin == "own" else origin
        cookie = viewer.cookie if cookie == "own" else cookie
        lines += [f"Origin: {origin}"] * (origin is not None) + [f"Cookie: {cookie}"] * (cookie is not None) + [f"{k}: {v}" for k, v in (headers or {}).items()]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.rest:
            self._more()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if status != 101:
            try:
                while True:
                    self._more()
            except Closed:
                pass
            self.socket.close()
            raise Refused(status, self.rest.decode())
        self.schemas, self.texts, self.daemon = {}, [], None
        self.state = {"scans": {}, "volumes": {}, "operations": {}, "jobs": {}, "leases": {}}

    def _more(self):
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(1006, "the connection broke")
        self.rest += data

    def _take(self, count):
        while len(self.rest) < count:
            self._more()
        data, self.rest = self.rest[:count], self.rest[count:]
        return data

    def send_frame(self, opcode, payload, final=True, masked=True, length=None):
        mask = os.urandom(4)
        n = len(payload) if length is None else length
        head = bytes([opcode | (0x80 if final else 0)])
        bit = 0x80 if masked else 0
        head += bytes([bit | n]) if n < 126 else bytes([bit | 126]) + struct.pack(">H", n) if n < 65536 else bytes([bit | 127]) + struct.pack(">Q", n)
        if masked:
            repeated = (mask * (len(payload) // 4 + 1))[:len(payload)]
            payload = mask + (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(payload), "big")
        self.socket.sendall(head + payload)

    def send(self, message):
        self.send_frame(1, message.encode() if isinstance(message, str) else json.dumps(message).encode())

    def message(self, timeout=30):
        """The next message: a text as its object, a frame as (header, bytes). Pings are answered."""
        self.socket.settimeout(timeout)
        parts = []
        while True:
            first, second = self._take(2)
            opcode, n = first & 15, second & 127
            if n == 126:
                n = struct.unpack(">H", self._take(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self._take(8))[0]
            payload = self._take(n)
            if opcode == 8:
                raise Closed(struct.unpack(">H", payload[:2])[0] if n >= 2 else 1005, payload[2:].decode())
            if opcode == 9:
                self.send_frame(10, payload)
            elif opcode != 10:
                kind = opcode or kind
                parts.append(payload)
                if first & 0x80:
                    break
        data = b"".join(parts)
        if kind == 1:
            message = json.loads(data)
            self._note(message)
            return message
        view, flags, schema, dropped, sequence, volume, server_us, bridge_us, length = HEADER.unpack_from(data)
        assert length == len(data) - HEADER.size, (length, len(data))
        return dict(view=view, complete=bool(flags & 1), jpeg=bool(flags & 2), schema=self.schemas[view, schema], dropped=dropped, sequence=sequence, volume=volume, server_us=server_us,
                    bridge_us=bridge_us), data[HEADER.size:]

    def _note(self, message):
        kind = message["type"]
        if kind == "schema":
            self.schemas[message["view"], message["number"]] = message
        elif kind == "daemon":
            self.daemon = message
        elif kind == "state":
            for group, rows in self.state.items():
                if message.get("fresh"):
                    rows.clear()
                for name, row in message.get(group, {}).items():
                    rows.pop(name, None) if row is None else rows.__setitem__(name, row)
        self.texts.append(message)

    def text(self, kind, timeout=30):
        """The next text message of a type; frames and other texts before it are passed over."""
        return self._next(lambda message: isinstance(message, dict) and message["type"] == kind, timeout)

    def frame(self, timeout=30):
        return self._next(lambda message: isinstance(message, tuple), timeout)

    def _next(self, wanted, timeout):
        end = time.monotonic() + timeout
        while True:
            message = self.message(max(0.001, end - time.monotonic()))
            if wanted(message):
                return message
            if time.monotonic() > end:
                raise TimeoutError

    def open(self, view, parent, product="MIP", axis="Z", index=-1, width=512, slab=None, **more):
        self.send(dict(type="open", view=view, topic=dict(parent=parent, product=product, axis=axis, index=index, slab=slab, width=width), **more))

    def look(self, job="", server=False):
        self.send(dict(type="look", job=job, server=server))

    def acknowledge(self, header, painted_ms=1):
        self.send(dict(type="ack", view=header["view"], sequence=header["sequence"], painted_ms=painted_ms))

    def close(self):
        self.socket.close()
