"""Finding a large field in a message (octavo.payload), against protobuf's own parser."""

import random
import unittest

from google.protobuf.message import DecodeError

from octavo import payload
from octavo.v1 import stream_pb2, volume_pb2

SEED = 20261128


def draw(random, kind):
    """A message with some of its fields, and bytes of any length."""
    message = kind()
    if random.random() < 0.9:
        message.data = random.randbytes(random.choice((0, 1, 2, 127, 128, 129, 16383, 16384, 70000)))
    if random.random() < 0.7:
        message.offset = random.choice((0, 1, 127, 128, 1 << 31, (1 << 63) + 5, (1 << 64) - 1))
        message.crc32c = random.getrandbits(32)
        message.total_bytes = random.getrandbits(random.randint(1, 64))
    if kind is volume_pb2.ReadVolumeResponse and random.random() < 0.5:
        message.last, message.dtype = True, random.randint(0, 8)
        message.shape.extend(random.choice((-1, 0, 1, 300, -(1 << 63), (1 << 63) - 1)) for _ in range(random.randint(1, 3)))
        message.volume.name, message.volume.labels["Ж"] = "volumes/1", "x" * random.randint(0, 300)
        message.volume.spacing_um.extend((0.5, -1e300))
    return message


def ours(kind, text):
    rest, begin, end = payload.find(text, kind.DESCRIPTOR.fields_by_name["data"].number)
    message = kind.FromString(rest)
    if message.data:
        raise AssertionError("the field is in the rest, too")
    message.data = text[begin:end]
    return message


class Find(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(SEED)
        self.kinds = (volume_pb2.ReadVolumeResponse, volume_pb2.RenderVolumeResponse, stream_pb2.SubscribeResponse)

    def test_messages(self):
        for _ in range(600):
            kind = self.random.choice(self.kinds)
            message = draw(self.random, kind)
            self.assertEqual(ours(kind, message.SerializeToString()), message)

    def test_fields_in_any_order_and_again(self):
        for _ in range(300):
            kind = self.random.choice(self.kinds)
            parts = []
            for _ in range(3):  # a message written twice is merged: its last bytes count
                message = draw(self.random, kind)
                for field, _ in message.ListFields():
                    one = kind()
                    one.MergeFrom(message)
                    for other, _ in message.ListFields():
                        if other.name != field.name:
                            one.ClearField(other.name)
                    parts.append(one.SerializeToString())
            self.random.shuffle(parts)
            text = b"".join(parts)
            self.assertEqual(ours(kind, text), kind.FromString(text))

    def test_messages_that_are_cut_off(self):
        kind = volume_pb2.ReadVolumeResponse
        for _ in range(20):
            message = draw(self.random, kind)
            message.data = message.data[:200]
            message.volume.ClearField("labels")  # protobuf writes a line for each half of a letter
            text = message.SerializeToString()
            for size in range(len(text)):
                cut = text[:size]
                try:
                    wanted = kind.FromString(cut)
                except DecodeError:
                    with self.assertRaises(DecodeError):
                        ours(kind, cut)
                else:
                    self.assertEqual(ours(kind, cut), wanted)

    def test_damaged_messages(self):
        """What it takes, protobuf takes, and as the same."""
        kind, taken = volume_pb2.ReadVolumeResponse, 0
        for _ in range(3000):
            message = draw(self.random, kind)
            message.data = message.data[:60]
            message.volume.ClearField("labels")
            message.volume.ClearField("name")
            text = bytearray(message.SerializeToString())
            for _ in range(self.random.randint(1, 3)):
                if text:
                    text[self.random.randrange(len(text))] = self.random.randrange(256)
            try:
                found = ours(kind, bytes(text))
            except DecodeError:
                continue
            self.assertEqual(found.SerializeToString(deterministic=True), kind.FromString(bytes(text)).SerializeToString(deterministic=True), bytes(text).hex())
            taken += 1
        self.assertGreater(taken, 100)

    def test_what_is_no_message(self):
        for text in (b"\x80", b"\x80" * 11, b"\x3a\x05abc", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b\x0c", b"\x02\x00", b"\x21abc", b"\x2dab", b"\x3e", b"\x3f"):
            with self.subTest(text), self.assertRaises(DecodeError):
                payload.find(text, 7)
        self.assertEqual(payload.find(b"", 7), (b"", 0, 0))


if __name__ == "__main__":
    unittest.main()
