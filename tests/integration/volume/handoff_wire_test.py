"""The hand-over wire from both ends: clients of every kind against a server that speaks another
version, says something unknown or nothing of use; and the daemon against clients that do."""

import contextlib
import errno
import os
import random
import socket
import subprocess
import tempfile
import threading
import unittest

import numpy as np

from handing import HandoffCase, same
from harness import BUILD, until
import octavo
from octavo import mapping, wire

m = wire.messages
FEED = os.path.join(BUILD, "bin", "ring_feed")
SEED = int(os.environ.get("OCTAVO_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
UNKNOWN = b"\xa2\x06\x03yes"  # a field 100, a text


def hello(purpose=m.PURPOSE_MEMORY, oldest=1, newest=1):
    return m.ClientMessage(hello=m.Hello(versions=m.Versions(oldest=oldest, newest=newest), purpose=purpose))


def nested(depth):
    return b"\xa3\x06" * depth + b"\xa4\x06" * depth


@contextlib.contextmanager
def connected(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(20)
        connection.connect(path)
        yield connection


class FakeServer:
    """Answers one client with packets, (bytes, descriptors) each: the first to its Hello, the others
    to its next message; then waits for its end. Without packets it leaves at once."""

    def __init__(self, *packets):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "h.sock")
        self.said, self.packets = [], packets
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        connection, _ = self.listener.accept()
        with connection, contextlib.suppress(OSError):  # the client may leave at any time
            connection.settimeout(60)
            for i, packet in enumerate(self.packets):
                if i < 2:
                    data = connection.recv(65536)
                    if not data:
                        return
                    self.said.append(m.ClientMessage.FromString(data))
                data, descriptors = packet(self.said[-1]) if callable(packet) else packet
                socket.send_fds(connection, [data], descriptors)
            while self.packets and connection.recv(65536):
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.join(60)
        self.listener.close()
        self.folder.cleanup()


def said(descriptors=(), **fields):
    return m.ServerMessage(**fields).SerializeToString(), list(descriptors)


def answer(descriptors=(), **fields):
    """To whatever the client asks."""
    return lambda asked: said(descriptors, request=asked.request, **fields)


WELCOME = said(welcome=m.Welcome(version=1, versions=m.Versions(oldest=1, newest=1)))
REFUSED = said(refused=m.Refused(code=12, reason="PROTOCOL_VERSION", message="the client speaks versions 1 to 1, this server 2 to 3",
                                 versions=m.Versions(oldest=2, newest=3)))


class ClientsTest(unittest.TestCase):
    """Python's and C's clients; tests/client/handoff_wire_test.cc has the same for C++."""

    def answered(self, *packets):
        server = FakeServer(*packets)
        self.addCleanup(server.__exit__)
        return server

    def each(self, reason, text, *packets):
        """Every client reports this of a server that sends these packets."""
        number = {"PROTOCOL": errno.EPROTO, "PROTOCOL_VERSION": errno.EPROTO, "SERVER_GONE": errno.ECONNRESET}[reason]
        def present(path):
            with mapping.Connection(path) as connection:
                connection.present("ab" * 16)

        for name, call in (("mapping", present), ("feed", lambda path: mapping.Volumes(path, "ab" * 16))):
            with self.subTest(client=name):
                with self.assertRaises(octavo.HandoffError) as caught:
                    call(self.answered(*packets).path)
                self.assertEqual(caught.exception.reason, reason, caught.exception)
                self.assertIn(text, caught.exception.message)
        with self.subTest(client="ring"):
            with self.assertRaises((octavo.RingError, ConnectionResetError)) as caught:
                octavo.Ring(self.answered(*packets).path, "ab" * 16)
            if isinstance(caught.exception, octavo.RingError):
                self.assertEqual((caught.exception.errno, caught.exception.reason), (number, reason if reason != "SERVER_GONE" else ""))
                self.assertIn(text, str(caught.exception))
            else:
                self.assertEqual(reason, "SERVER_GONE")
        with self.subTest(client="ring_feed"):
            done = subprocess.run([FEED, self.answered(*packets).path, "ab" * 16, os.devnull], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            words = {"PROTOCOL": "none that this program understands", "PROTOCOL_VERSION": f"refused: {reason}: ", "SERVER_GONE": "the server ended the connection"}
            self.assertIn(words[reason], done.stderr)
            self.assertIn(text if reason == "PROTOCOL_VERSION" else "", done.stderr)

    def test_a_newer_server(self):
        self.each("PROTOCOL_VERSION", "this server 2 to 3", REFUSED)

    def test_a_server_that_chooses_a_version_nobody_offered(self):
        self.each("PROTOCOL", "does not understand", said(welcome=m.Welcome(version=2)))
        self.each("PROTOCOL", "does not understand", said(welcome=m.Welcome()))

    def test_an_answer_of_an_unknown_kind(self):
        self.each("PROTOCOL", "does not understand", (UNKNOWN, []))
        self.each("PROTOCOL", "does not understand", WELCOME, lambda asked: (said(request=asked.request)[0] + UNKNOWN, []))
        self.each("PROTOCOL", "does not understand", WELCOME, answer(forgotten=m.Forgotten()))

    def test_the_first_message_of_each_client(self):
        purposes = []
        for call in (lambda path: mapping.Connection(path), lambda path: mapping.Volumes(path, "00"), lambda path: octavo.Ring(path, "00"),
                     lambda path: subprocess.run([FEED, path, "00", os.devnull], capture_output=True, timeout=60)):
            server = self.answered(REFUSED)
            with contextlib.suppress(octavo.HandoffError, octavo.RingError):
                call(server.path)
            first = server.said[0]
            self.assertEqual((first.WhichOneof("body"), first.hello.versions.oldest, first.hello.versions.newest), ("hello", 1, 1))
            purposes.append(first.hello.purpose)
        self.assertEqual(purposes, [m.PURPOSE_MEMORY, m.PURPOSE_FEED, m.PURPOSE_RING, m.PURPOSE_RING])

    def test_what_cannot_be_read(self):
        before = len(os.listdir("/proc/self/fd"))
        with open(os.devnull) as file:
            for data in (b"{", b"\xff" * 1000, nested(30000), b"\x2a\x05abc", b" " * 66000):
                for call in (lambda path: mapping.Connection(path), lambda path: mapping.Volumes(path, "00"), lambda path: octavo.Ring(path, "00")):
                    with self.subTest(data=data[:9]), self.assertRaises((octavo.HandoffError, ConnectionResetError)) as caught:
                        call(self.answered((data, [file.fileno()])).path)
                    self.assertEqual(getattr(caught.exception, "reason", "SERVER_GONE"), "SERVER_GONE")
        self.doCleanups()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_a_server_that_leaves(self):
        for packets in ((), (WELCOME,)):
            server = FakeServer(*packets)
            with server:
                if packets:
                    connection = mapping.Connection(server.path)
                    connection.close()
                else:
                    with self.assertRaises(octavo.HandoffError) as caught:
                        mapping.Connection(server.path)
                    self.assertEqual(caught.exception.reason, "SERVER_GONE")

    def test_an_unasked_message_of_an_unknown_kind_is_ignored_and_its_descriptors_closed(self):
        memory = os.memfd_create("memory")
        os.ftruncate(memory, 4096)
        os.pwrite(memory, bytes(range(24)), 0)
        exported = m.Export(name="exports/1", resource="volumes/1", memory="ab", generation=3, kind=m.MEMORY_KIND_HOST_MEMFD, mapped_bytes=4096, byte_size=24,
                            dtype=m.DTYPE_U8, lanes=1, shape=[2, 3, 4], version=1)
        server = self.answered(WELCOME, (UNKNOWN, [memory, memory]), said([memory], revoked=m.Revoked(name="exports/9")),
                               lambda asked: (said(request=asked.request, grant=7, exported=exported)[0] + UNKNOWN, [memory, memory]))
        before = len(os.listdir("/proc/self/fd"))
        with mapping.Connection(server.path) as connection:
            mapped = connection.present("ab" * 16)
            np.testing.assert_array_equal(mapped.copy(), np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
            self.assertEqual((mapped.kind, mapped.generation, mapped.device), ("HOST_MEMFD", 3, (1, 0)))
            mapped.release()
        until(lambda: len(os.listdir("/proc/self/fd")) <= before + 1)  # the fake server's end may still be open
        os.close(memory)

    def test_an_export_that_cannot_be(self):
        memory = os.memfd_create("memory")
        self.addCleanup(os.close, memory)
        good = dict(name="exports/1", resource="volumes/1", memory="ab", kind=m.MEMORY_KIND_HOST_MEMFD, mapped_bytes=4096, byte_size=24, dtype=m.DTYPE_U8, lanes=1, shape=[24])
        for wrong, text in ((dict(dtype=99), "dtype 99"), (dict(kind=9), "kind (9)"), (dict(byte_offset=4090), "does not lie in the memory"),
                            (dict(byte_size=1 << 63), "does not lie in the memory")):
            server = self.answered(WELCOME, answer([memory], grant=7, exported=m.Export(**{**good, **wrong})))
            with self.subTest(wrong=wrong), mapping.Connection(server.path) as connection:
                with self.assertRaises(octavo.HandoffError) as caught:
                    connection.present("ab" * 16)
                self.assertEqual(caught.exception.reason, "PROTOCOL")
                self.assertIn(text, caught.exception.message)


class DaemonTest(HandoffCase):
    def scan_and_tickets(self):
        scan = self.submit()
        self.client.wait(scan.name)
        volume, = self.client.volumes(scan.name)
        ring = self.client.submit_scan(octavo.ring(), octavo.raster(32, 16, volumes=1), samples=256)
        return volume, self.ticket(volume.name), self.ticket(scan.name), self.client.ring_ticket(ring.name)

    def refused_connection(self, path, packet, reason):
        with connected(path) as connection:
            connection.send(packet)
            refused, descriptors = wire.receive(connection)
            self.assertEqual((refused.refused.reason, descriptors), (reason, []))
            self.assertEqual((refused.refused.versions.oldest, refused.refused.versions.newest), (1, 1))
            self.assertEqual(wire.receive(connection), (None, []))

    def versions_refused(self):
        lines = [line for line in self.page().splitlines() if line.startswith('octavo_export_refusals_total{reason="PROTOCOL_VERSION"}')]
        return float(lines[0].split()[-1]) if lines else 0

    def test_older_and_newer_clients(self):
        before = self.versions_refused()
        volume, ticket, _, _ = self.scan_and_tickets()
        for oldest, newest, reason in ((0, 0, "PROTOCOL_VERSION"), (2, 2, "PROTOCOL_VERSION"), (2, 1000, "PROTOCOL_VERSION"), (2, 1, "BAD_FIELD")):
            self.refused_connection(ticket.socket_path, hello(oldest=oldest, newest=newest).SerializeToString(), reason)
        self.refused_connection(ticket.socket_path, b'{"ticket": "' + ticket.ticket.encode() + b'"}', "PROTOCOL")
        with connected(ticket.socket_path) as connection:  # a later client, which speaks this version, too
            connection.send(hello(newest=5).SerializeToString() + UNKNOWN)
            self.assertEqual(wire.receive(connection)[0].welcome.version, 1)
            connection.send(m.ClientMessage(present=m.Present(ticket=ticket.ticket)).SerializeToString() + UNKNOWN)
            told, (descriptor,) = wire.receive(connection)
            self.assertEqual(told.exported.resource, volume.name)
            os.close(descriptor)
        self.assertEqual(self.versions_refused() - before, 3)

    def test_a_ticket_for_something_else_stays_valid(self):
        volume, memory, feed, ring = self.scan_and_tickets()
        for call in (lambda: mapping.Connection(memory.socket_path).present(feed.ticket), lambda: mapping.Connection(memory.socket_path).present(ring.ticket),
                     lambda: mapping.Volumes(memory.socket_path, memory.ticket), lambda: mapping.Volumes(memory.socket_path, ring.ticket),
                     lambda: octavo.Ring(memory.socket_path, memory.ticket), lambda: octavo.Ring(memory.socket_path, feed.ticket)):
            with self.assertRaises((octavo.HandoffError, octavo.RingError)) as caught:
                call()
            self.assertEqual(caught.exception.reason, "TICKET_KIND")
        with mapping.Connection(memory.socket_path) as connection:
            same(connection.present(memory.ticket), self.client.read(volume.name))
        with mapping.Volumes(feed.socket_path, feed.ticket, every=True) as volumes:
            self.assertEqual([mapped.of for mapped in volumes], [volume.name])
        with octavo.Ring(ring.socket_path, ring.ticket) as producer:
            self.assertGreater(producer.slots, 0)

    def test_messages_of_another_kind_of_grant(self):
        volume, memory, feed, ring = self.scan_and_tickets()
        take, release = m.Take(volume=volume.name), m.Release(name="exports/none")
        for ticket, purpose, messages in ((memory.ticket, m.PURPOSE_MEMORY, [dict(forget=m.Forget(memory=["00"]))]),
                                          (feed.ticket, m.PURPOSE_FEED, [dict(take=take)]),
                                          (ring.ticket, m.PURPOSE_RING, [dict(take=take), dict(release=release), dict(forget=m.Forget())])):
            with wire.connect(memory.socket_path, purpose, 30) as connection:
                connection.settimeout(30)
                wire.send(connection, m.ClientMessage(present=m.Present(ticket=ticket)))
                opened, descriptors = wire.receive(connection)
                wire.close(descriptors)
                self.assertEqual(opened.WhichOneof("body"), {m.PURPOSE_MEMORY: "exported", m.PURPOSE_FEED: "feed_opened", m.PURPOSE_RING: "ring"}[purpose])
                for number, message in enumerate(messages, 1):
                    wire.send(connection, m.ClientMessage(request=number, grant=opened.grant, **message))
                    refused, _ = wire.receive(connection)
                    self.assertEqual((refused.request, refused.grant, refused.refused.reason), (number, opened.grant, "PROTOCOL"))
                wire.send(connection, m.ClientMessage(request=9, grant=opened.grant, end=m.End()))
                self.assertEqual(wire.receive(connection)[0].WhichOneof("body"), "ended")
                wire.send(connection, m.ClientMessage(request=10, grant=opened.grant, end=m.End()))
                self.assertEqual(wire.receive(connection)[0].refused.reason, "NO_GRANT")

    def test_bounds(self):
        _, memory, feed, _ = self.scan_and_tickets()
        with wire.connect(memory.socket_path, m.PURPOSE_MEMORY, 30) as connection:
            for message, text in ((dict(present=m.Present(ticket=memory.ticket, have=["00"] * 1025)), "have: has 1025 entries; allowed 1024"),
                                  (dict(present=m.Present(ticket="0" * 65)), "ticket: has 65 bytes; allowed 64"),
                                  (dict(take=m.Take(volume="volumes/" + "x" * 60000)), "volume: has 60008 bytes; allowed 256")):
                wire.send(connection, m.ClientMessage(**message))
                refused = wire.receive(connection)[0].refused
                self.assertEqual((refused.reason, refused.message), ("BAD_FIELD", text))
        with mapping.Connection(memory.socket_path) as connection:  # a client with more mappings than it may name
            connection._memory.update({f"{i:016x}": None for i in range(3000)})
            connection.present(memory.ticket).release()
        for most in (0, 65):
            with self.assertRaises(octavo.HandoffError) as caught:
                mapping.Volumes(feed.socket_path, self.ticket(feed.name).ticket, most=most)
            self.assertEqual((caught.exception.reason, caught.exception.code), ("BAD_FIELD", "INVALID_ARGUMENT"))

    def test_random_bytes(self):
        volume, memory, _, ring = self.scan_and_tickets()
        draw = random.Random(SEED)
        print(f"OCTAVO_TEST_SEED={SEED}", flush=True)
        server = f"/proc/{self.daemon.process.pid}/fd"
        self.client.unmap(self.client.map(volume.name))
        before = len(os.listdir(server))
        good = [hello(p).SerializeToString() for p in (1, 2, 3)] + [m.ClientMessage(present=m.Present(ticket=ring.ticket)).SerializeToString(),
                                                                     m.ClientMessage(grant=1, take=m.Take(volume=volume.name)).SerializeToString()]
        with open(os.devnull) as file:
            for _ in range(300):
                with connected(memory.socket_path) as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    if draw.random() < 0.7:
                        connection.send(hello(draw.randint(1, 3)).SerializeToString())
                    for _ in range(draw.randint(1, 15)):
                        data = bytearray(draw.choice(good) if draw.random() < 0.6 else draw.randbytes(draw.choice((1, 20, 500, 65536, 70000))))
                        for _ in range(draw.randint(0, 3)):
                            data[draw.randrange(len(data))] = draw.randrange(256)
                        socket.send_fds(connection, [bytes(data)], [file.fileno()] * draw.choice((0, 0, 0, 1, 5)))
        same(self.client.map(volume.name), self.client.read(volume.name))
        with mapping.Connection(memory.socket_path) as connection:
            connection.present(memory.ticket).release()
        until(lambda: len(os.listdir(server)) <= before)


if __name__ == "__main__":
    unittest.main()
