"""The pings that proto/README.md documents: the interval that the server takes, a faster one, and its own."""

import struct
import threading
import time
import unittest

from harness import DaemonTest
from raw_http2 import ACK, GOAWAY, PING, RawPeer, frame

LEAST_S, SERVERS_S, ANSWER_S, STRIKES = 10, 20, 10, 3
ENHANCE_YOUR_CALM = 11


class Peer:
    """Notes what the server sends, and when."""

    def __init__(self, address, answers):
        self.peer, self.answers = RawPeer(address, timeout=SERVERS_S + ANSWER_S + 30), answers
        self.pings, self.acknowledged, self.farewell, self.ended = [], 0, None, None
        self.begun, self.changed = time.monotonic(), threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        data = b""
        while True:
            try:
                more = self.peer.socket.recv(65536)
            except OSError:
                more = b""
            with self.changed:
                if not more:
                    self.ended = time.monotonic() - self.begun
                    self.changed.notify_all()
                    return
                data += more
                while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
                    length = int.from_bytes(data[:3], "big")
                    self.take(data[3], data[4], data[9:9 + length])
                    data = data[9 + length:]
                self.changed.notify_all()

    def take(self, kind, flags, payload):
        if kind == PING and flags & ACK:
            self.acknowledged += 1
        elif kind == PING:
            self.pings.append(time.monotonic() - self.begun)
            if self.answers:
                self.peer.socket.sendall(frame(PING, ACK, payload=payload))
        elif kind == GOAWAY:
            self.farewell = (struct.unpack(">I", payload[4:8])[0], payload[8:])

    def wait(self, condition, seconds):
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def ping(self):
        """Whether the server answers and the connection goes on."""
        before = self.acknowledged
        self.peer.socket.sendall(frame(PING, payload=bytes(8)))
        assert self.wait(lambda: self.acknowledged > before or self.ended is not None, 20)


class Keepalive(DaemonTest):
    def peer(self, answers=True):
        peer = Peer(self.daemon.address, answers)
        self.addCleanup(peer.peer.close)
        return peer

    def test_pings(self):
        silent, living, hasty = self.peer(answers=False), self.peer(), self.peer()
        for _ in range(1 + STRIKES):  # the first one is free
            hasty.ping()
        self.assertTrue(hasty.wait(lambda: hasty.ended is not None, 20))
        self.assertEqual(hasty.farewell, (ENHANCE_YOUR_CALM, b"too_many_pings"))

        patient = self.peer()
        for _ in range(STRIKES):
            patient.ping()  # one more strike would end it
        self.assertIsNone(patient.farewell)
        self.assertFalse(patient.wait(lambda: patient.ended is not None, LEAST_S + 0.2))
        patient.ping()
        self.assertFalse(patient.wait(lambda: patient.ended is not None, 0.5), "a ping after the documented interval is no strike")
        patient.ping()  # at once: the last strike
        self.assertTrue(patient.wait(lambda: patient.ended is not None, 20))
        self.assertEqual(patient.farewell, (ENHANCE_YOUR_CALM, b"too_many_pings"))

        self.assertTrue(silent.wait(lambda: silent.ended is not None, SERVERS_S + ANSWER_S + 20))
        self.assertEqual(len(silent.pings), 1)
        self.assertAlmostEqual(silent.pings[0], SERVERS_S, delta=5)
        self.assertAlmostEqual(silent.ended - silent.pings[0], ANSWER_S, delta=5)
        self.assertIsNone(living.ended)
        self.assertGreaterEqual(len(living.pings), 1)


if __name__ == "__main__":
    unittest.main()
