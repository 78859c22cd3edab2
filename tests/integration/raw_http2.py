"""A peer with just enough HTTP/2 to misbehave: it can stop reading, send half of a message, or send
arbitrary bytes."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(method, authority="localhost", more=()):
    """A request's header block, with each field as a literal that is not indexed. `more`: fields, values in bytes."""
    def text(value):
        value = value if isinstance(value, bytes) else value.encode()
        return (bytes([len(value)]) if len(value) < 127 else bytes([127, len(value) - 127])) + value
    fields = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", authority), ("te", "trailers"),
              ("content-type", "application/grpc")]
    return b"".join(b"\0" + text(name) + text(value) for name, value in [*fields, *more])


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


class RawPeer:
    """`window`: bytes that the server may send on each stream before it gets more credit. On the
    connection, HTTP/2's own 65535 come on top."""

    def __init__(self, address, window=None, timeout=10):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address[5:])
        else:
            host, port = address.rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        settings = b"" if window is None else struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        more = b"" if window is None or window <= 65535 else frame(WINDOW_UPDATE, payload=struct.pack(">I", window - 65535))
        self.socket.sendall(PREFACE + frame(SETTINGS, payload=settings) + more)
        self.next_stream, self.pending = 1, b""
        self.connection_credit, self.initial, self.credit = 65535, 65535, {}
        self.answered, self.ended, self.received = set(), set(), {}  # streams, streams; received bytes by stream

    def close(self):
        self.socket.close()

    def begin(self, method, more=()):
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.credit[stream] = self.initial
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, headers(method, more=more)))
        return stream

    def call(self, method, body=b"", more=()):
        """Sends a whole request."""
        stream = self.begin(method, more)
        self.socket.sendall(frame(DATA, END_STREAM, stream, message(body)))
        return stream

    def read_frame(self):
        """Handles the next frame. Returns False when the connection has ended."""
        try:
            return self._read_frame()
        except ConnectionError:
            return False

    def _read_frame(self):
        while len(self.pending) < 9 or len(self.pending) < 9 + self._length():
            more = self.socket.recv(1 << 20)
            if not more:
                return False
            self.pending += more
        length = self._length()
        kind, flags, stream = self.pending[3], self.pending[4], struct.unpack(">I", self.pending[5:9])[0] & 0x7FFFFFFF
        payload, self.pending = self.pending[9:9 + length], self.pending[9 + length:]
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, length, 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == INITIAL_WINDOW_SIZE:
                    self.credit = {s: c + value - self.initial for s, c in self.credit.items()}
                    self.initial = value
            self.socket.sendall(frame(SETTINGS, ACK))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = struct.unpack(">I", payload)[0]
            if stream == 0:
                self.connection_credit += more
            elif stream in self.credit:
                self.credit[stream] += more
        elif kind == DATA:
            self.received.setdefault(stream, bytearray()).extend(payload)
        elif kind == HEADERS:
            self.answered.add(stream)
        if kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self.ended.add(stream)
        return kind != GOAWAY

    def send_data(self, stream, size):
        """Sends this many bytes of a message as fast as the server allows. Returns False if the
        stream or the connection ends first."""
        while size > 0 and stream not in self.ended:
            n = min(size, 16384, self.credit[stream], self.connection_credit)
            try:
                if n > 0:
                    self.socket.sendall(frame(DATA, 0, stream, bytes(n)))
                    size -= n
                    self.credit[stream] -= n
                    self.connection_credit -= n
                elif not self.read_frame():
                    return False
            except ConnectionError:
                return False
        return size <= 0

    def begin_message(self, stream, announced):
        """Sends the prefix of a message whose bytes follow later."""
        self.socket.sendall(frame(DATA, 0, stream, b"\0" + struct.pack(">I", announced)))
        self.credit[stream] -= 5
        self.connection_credit -= 5

    def open_window(self, stream, size):
        self.socket.sendall(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size)) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", size)))

    def messages(self, stream):
        """The complete messages received."""
        data, out = bytes(self.received.get(stream, b"")), []
        while len(data) >= 5 and len(data) >= 5 + struct.unpack(">I", data[1:5])[0]:
            size = struct.unpack(">I", data[1:5])[0]
            out.append(data[5:5 + size])
            data = data[5 + size:]
        return out

    def wait_for_answer(self, stream):
        """Until the server has written a first message, even one for which it has no credit: its headers precede it."""
        while stream not in self.answered:
            if not self.read_frame():
                return False
        return True

    def wait_for_end(self, stream):
        while stream not in self.ended:
            if not self.read_frame():
                return False
        return True

    def _length(self):
        return struct.unpack(">I", b"\0" + self.pending[:3])[0]
