"""Bytes that no HTTP/2 client sends, and frames that it would not send this way: their connection ends, or the frame is ignored. Other clients
are served meanwhile, and memory and descriptors come back."""

import gzip
import os
import socket
import struct
import threading
import time
import unittest

from faults import LONG, FaultTest, Scraper, held_volume
from harness import octavo, until
from raw_http2 import ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, RawPeer, frame, headers

PRIORITY, PUSH_PROMISE, CONTINUATION = 2, 5, 9
GET_INFO = "/octavo.v1.SystemService/GetInfo"


def settings(*pairs):
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", *pair) for pair in pairs))


def literal(name, value):
    """A header whose length is written as HPACK does, whatever it is."""
    def text(data):
        if len(data) < 127:
            return bytes([len(data)]) + data
        out, rest = b"\x7f", len(data) - 127
        while rest >= 128:
            out, rest = out + bytes([rest % 128 + 128]), rest // 128
        return out + bytes([rest]) + data
    return b"\0" + text(name) + text(value)


ATTACKS = {
    "a window of more than 2^31": lambda: settings((4, 2 ** 32 - 1)),
    "frames of no size": lambda: settings((5, 0)),
    "unknown settings": lambda: settings(*[(n, 2 ** 32 - 1) for n in range(7, 200)]),
    "settings of half a length": lambda: frame(SETTINGS, payload=b"\0\4\0"),
    "many settings": lambda: settings((4, 1)) * 20_000,
    "many pings": lambda: frame(PING, payload=bytes(8)) * 20_000,
    "a ping of another length": lambda: frame(PING, payload=bytes(7)),
    "window updates of nothing": lambda: frame(WINDOW_UPDATE, payload=bytes(4)),
    "a window that overflows": lambda: frame(WINDOW_UPDATE, payload=struct.pack(">I", 2 ** 31 - 1)) * 3,
    "data without a stream": lambda: frame(DATA, 0, 1, b"x" * 100),
    "data on stream 0": lambda: frame(DATA, 0, 0, b"x"),
    "headers on an even stream": lambda: frame(HEADERS, END_HEADERS, 2, headers(GET_INFO)),
    "headers on stream 0": lambda: frame(HEADERS, END_HEADERS, 0, headers(GET_INFO)),
    "a stream again": lambda: frame(HEADERS, END_HEADERS | END_STREAM, 5, headers(GET_INFO)) + frame(HEADERS, END_HEADERS, 1, headers(GET_INFO)),
    "a continuation of nothing": lambda: frame(CONTINUATION, END_HEADERS, 1, headers(GET_INFO)),
    "headers without an end": lambda: frame(HEADERS, 0, 1, headers(GET_INFO)) + frame(CONTINUATION, 0, 1, literal(b"x", b"y" * 4000)) * 3000,
    "another frame between headers": lambda: frame(HEADERS, 0, 1, headers(GET_INFO)) + frame(PING, payload=bytes(8)),
    "a table of 4 GiB": lambda: frame(HEADERS, END_HEADERS, 1, b"\x3f\xff\xff\xff\xff\x0f" + headers(GET_INFO)),
    "an index beyond the table": lambda: frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\x07"),
    "a header in Huffman's code of nothing": lambda: frame(HEADERS, END_HEADERS, 1, headers(GET_INFO) + b"\0\x81\xff\x81\xff"),
    "a header of 1 MiB": lambda: b"".join([frame(HEADERS, 0, 1, headers(GET_INFO) + literal(b"big", b"x" * (1 << 20))[:12000])]
                                         + [frame(CONTINUATION, 0, 1, b"x" * 16000)] * 64 + [frame(CONTINUATION, END_HEADERS, 1, b"x" * 12576)]),
    "upper case, line ends and zeros": lambda: frame(HEADERS, END_HEADERS | END_STREAM, 1, headers(GET_INFO) + literal(b"UPPER", b"a\r\nb: c\0")),
    "no path": lambda: frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b":method", b"POST")),
    "paths of all kinds": lambda: b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, headers(path)) for i, path in enumerate(
        ["", "/", "//", "/octavo.v1.SystemService/", "/octavo.v1.SystemService/GetInfo/more", "octavo", "/%00", "/../../etc/passwd", "/" + "a" * 110])),
    "another content type": lambda: frame(HEADERS, END_HEADERS | END_STREAM, 1, headers(GET_INFO).replace(b"application/grpc", b"application/json")),
    "a message without its bytes": lambda: frame(HEADERS, END_HEADERS, 1, headers(GET_INFO)) + frame(DATA, END_STREAM, 1, b"\0\xff\xff\xff\xff"),
    "a message of negative length": lambda: frame(HEADERS, END_HEADERS, 1, headers(GET_INFO)) + frame(DATA, END_STREAM, 1, b"\x02" + bytes(8)),
    "compressed, of an unknown kind": lambda: frame(HEADERS, END_HEADERS, 1, headers(GET_INFO, more=[("grpc-encoding", "none-such")])) + frame(
        DATA, END_STREAM, 1, b"\1" + struct.pack(">I", 4) + b"abcd"),
    "a time of its own": lambda: frame(HEADERS, END_HEADERS | END_STREAM, 1, headers(GET_INFO, more=[("grpc-timeout", "99999999999H"), ("grpc-timeout", "-1S")])),
    "a push": lambda: frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + headers(GET_INFO)),
    "priorities": lambda: frame(PRIORITY, 0, 1, struct.pack(">IB", 1, 255)) * 5000,
    "the farewell first": lambda: frame(GOAWAY, payload=bytes(8)) + frame(HEADERS, END_HEADERS | END_STREAM, 1, headers(GET_INFO)),
    "resets of what there is not": lambda: b"".join(frame(RST_STREAM, 0, 2 * i + 1, bytes(4)) for i in range(3000)),
    "calls that are reset at once": lambda: b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, headers(GET_INFO)) + frame(RST_STREAM, 0, 2 * i + 1, struct.pack(">I", 8))
                                                   for i in range(500)),
    "a frame of 16 MiB": lambda: b"\xff\xff\xff" + bytes([DATA, 0]) + struct.pack(">I", 1) + bytes(1 << 20),
    "an acknowledgement with a payload": lambda: frame(SETTINGS, ACK, payload=bytes(6)),
    "HTTP/1": lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
}


class Garbage(FaultTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("--listen.stalled_seconds", "2")
        self.client = self.daemon.client()
        self.addCleanup(self.client.close)
        held_volume(self.client)  # threads and pools are made
        self.before = self.memory()

    def memory(self):
        with open(f"/proc/{self.daemon.process.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def connect(self, i):
        if i % 2:
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(self.daemon.ready["unix"])
        else:
            host, port = self.daemon.address.rsplit(":", 1)
            peer = socket.create_connection((host, int(port)))
        peer.settimeout(2)
        return peer

    def send(self, i, data, preface=PREFACE + frame(SETTINGS)):
        """Sends it, and reads what comes until the server ends the connection, or for a moment."""
        with self.connect(i) as peer:
            try:
                peer.sendall(preface + data)
                peer.settimeout(0.2)
                while peer.recv(65536):
                    pass
            except OSError:
                pass

    def well(self, descriptors, most=256 << 20):
        self.client.info()
        self.assertIsNone(self.daemon.process.poll(), self.daemon.text()[-2000:])
        until(lambda: self.descriptors() <= descriptors + 2)
        until(lambda: self.memory() - self.before < most)  # the heap gives back what is free every ten seconds

    def test_frames_that_no_client_sends(self):
        descriptors = self.descriptors()
        with Scraper(self.daemon):
            for i, (name, attack) in enumerate(ATTACKS.items()):
                with self.subTest(name):
                    self.send(i, attack())
                    self.client.info()
        held_volume(self.client)
        self.well(descriptors)
        self.assertEqual(self.daemon.stop(), 0)

    def test_random_frames(self):
        descriptors, valid = self.descriptors(), [attack() for name, attack in ATTACKS.items() if not name.startswith(("many", "calls", "headers without", "priorities"))]
        end = time.monotonic() + (300 if LONG else 8)
        i = 0
        while time.monotonic() < end:
            i += 1
            data = b"".join(self.random.choice([self.frame, lambda: self.damaged(self.random.choice(valid))])() for _ in range(self.random.randrange(1, 30)))
            self.send(i, data[:1 << 20], PREFACE + frame(SETTINGS) if self.random.random() < 0.9 else b"")
            if i % 20 == 0:
                self.client.info()
        self.assertGreater(i, 10)
        self.well(descriptors)
        self.assertEqual(self.daemon.stop(), 0)

    def frame(self):
        size = self.random.choice([0, 1, 4, 8, 100, 20_000])
        return frame(self.random.randrange(12), self.random.randrange(256), self.random.choice([0, 1, 1, 3, 5, 2, 2 ** 31 - 1]), self.random.randbytes(size))

    def damaged(self, data):
        data = bytearray(data[:20_000])
        for _ in range(self.random.randrange(1, 6)):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        return bytes(data[:self.random.randrange(1, len(data) + 1)] if self.random.random() < 0.3 else data)

    def test_calls_that_are_reset_at_once(self):
        """Far more calls than the server can begin: it works them off, and is as before."""
        descriptors = self.descriptors()
        flood = b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, headers(GET_INFO)) + frame(RST_STREAM, 0, 2 * i + 1, struct.pack(">I", 8)) for i in range(3000))
        for i in range(20 if LONG else 3):
            self.send(i, flood)

        def served():
            try:
                return self.client.info() is not None
            except octavo.OctavoError as error:  # gRPC chooses which calls it ends if these take all of listen.memory_bytes
                self.assertIn(error.code.name, ("CANCELLED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"), error)
        until(served, 200)
        until(lambda: self.descriptors() <= descriptors + 2, 200)
        held_volume(self.client)
        self.assertEqual(self.daemon.stop(), 0)

    def test_memory_of_calls_that_were_reset_comes_back(self):
        """What the heap keeps of them (hundreds of MiB where calls are begun slowly) goes back to the system once nothing runs."""
        flood = b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, headers(GET_INFO)) + frame(RST_STREAM, 0, 2 * i + 1, struct.pack(">I", 8)) for i in range(8000))
        attackers = [threading.Thread(target=self.send, args=(i, flood)) for i in range(4)]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join()

        def is_back():
            try:
                self.client.info()
            except octavo.OctavoError:
                return False
            return self.memory() - self.before < 256 << 20
        until(is_back, 200)
        self.assertEqual(self.daemon.stop(), 0)

    def test_bytes_of_any_kind_and_length(self):
        descriptors, kept = self.descriptors(), []
        for i in range(120):
            peer = self.connect(i)
            peer.setblocking(False)
            try:
                peer.send(self.random.randbytes(self.random.choice([0, 1, 23, 24, 400, 20_000, 100_000])))
            except (BlockingIOError, ConnectionError):
                pass
            kept.append(peer) if self.random.random() < 0.2 else peer.close()
        self.client.info()
        for peer in kept:
            peer.close()
        self.well(descriptors)
        self.assertEqual(self.daemon.stop(), 0)

    def test_a_small_message_that_would_become_a_large_one(self):
        """1 MiB of gzip that unpacks into 1 GiB, on all connections at once."""
        bomb = gzip.compress(bytes(1 << 30), 9)
        self.assertLess(len(bomb), 2 << 20)
        descriptors, most, peers = self.descriptors(), 0, []
        for i in range(6):
            peer = RawPeer([self.daemon.address, "unix:" + self.daemon.ready["unix"]][i % 2], timeout=30)
            peers.append(peer)
            stream = peer.begin("/octavo.v1.ScanService/SubmitScan", more=[("grpc-encoding", "gzip")])
            data = b"\1" + struct.pack(">I", len(bomb)) + bomb
            try:
                while data and stream not in peer.ended:
                    n = min(len(data), 16384, peer.credit[stream], peer.connection_credit)
                    if n <= 0:
                        if not peer.read_frame():
                            break
                        continue
                    peer.socket.sendall(frame(DATA, END_STREAM if n == len(data) else 0, stream, data[:n]))
                    peer.credit[stream], peer.connection_credit, data = peer.credit[stream] - n, peer.connection_credit - n, data[n:]
            except OSError:
                pass
            most = max(most, self.memory())
        end = time.monotonic() + 3
        while time.monotonic() < end:  # it may unpack them now
            most = max(most, self.memory())
            self.client.info()
        for peer in peers:
            peer.close()
        self.assertLess(most - self.before, 512 << 20)
        self.well(descriptors, 512 << 20)
        self.assertEqual(self.daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
