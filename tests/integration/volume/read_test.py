"""Client.read over several connections by threads of Python (native_read_test: by the library): every type, shape and box is what one connection gives, bit for bit; a range that fails fails the call, and
nothing half filled is returned. Against the daemon, and against a server that does what the daemon never does."""

import concurrent.futures
import contextlib
import os
import random
import tempfile
import threading
import unittest
from unittest import mock

import grpc
import numpy as np

from harness import Daemon, DaemonTest, octavo, until
from octavo import payload, volume_read
from octavo.v1 import types_pb2, volume_pb2

os.environ["OCTAVO_READ_LIBRARY"] = "none"
SEED = int(os.environ.get("OCTAVO_TEST_SEED", "20261128"))


def splitting(least=256):
    """Small boxes come over several connections, too."""
    return mock.patch.object(volume_read, "_BYTES_OF_ONE", least)


def readers():
    """Threads that read."""
    return [thread for thread in threading.enumerate() if thread.name == "octavo-read" and not thread.over.is_set()]


def volume_of(client, ascans=23, bscans=9, samples=128, **processing):
    scan = client.submit_scan(octavo.simulated(7, fast=True), octavo.raster(ascans, bscans, volumes=1), samples=samples,
                              processing=octavo.processing(**processing))
    return client.volumes(client.wait(scan.name).name)[0]


class EveryVolume:
    """What `check` of a test finds right for one volume, it finds right for others."""

    def test_every_type_and_odd_sizes(self):
        for dtype, value in (("u8", "db"), ("u16", "magnitude"), ("f16", "magnitude"), ("f32", "power"), ("c64", "complex")):
            with self.subTest(dtype):
                self.check(volume_of(self.client, dtype=dtype, value=value))
        for ascans, bscans in ((1, 1), (1, 17), (17, 1), (5, 2), (2, 31)):
            with self.subTest(ascans=ascans, bscans=bscans):
                self.check(volume_of(self.client, ascans, bscans))

    def test_wherever_the_voxels_are(self):
        volume = volume_of(self.client, 70, 40, 256)
        before = self.check(volume)
        for tier in ("host", "disk"):
            volume.spill(tier)
            with self.subTest(tier):
                np.testing.assert_array_equal(self.check(volume), before)


class Reads(EveryVolume, DaemonTest):
    flags = ("--spill.host_bytes", str(64 << 20), "--device.frame_pool_bytes", str(256 << 20))

    def calls(self):
        """Counts the calls of ReadVolume and the connections that they use."""
        seen = []

        def call(channel, request):
            seen.append((channel, request))
            return before(channel, request)

        before = volume_read._call
        return seen, mock.patch.object(volume_read, "_call", call)

    def check(self, volume, start=(), count=(), **options):
        wanted = self.client.read(volume.name, start, count, connections=1, **options)
        for connections in (2, 5, 0):
            with splitting():
                for read in (volume.read(start, count, connections=connections, **options),
                             self.client.read(volume.name, start, count, connections=connections, **options)):
                    self.assertEqual((read.dtype, read.shape), (wanted.dtype, wanted.shape))
                    self.assertEqual(read.tobytes(), wanted.tobytes())
        return wanted

    def test_types_of_files(self):
        for kind in ("u1", "i1", "<u2", "<i2", "<f4"):
            with self.subTest(kind):
                array = np.arange(5 * 7 * 33).astype(kind).reshape(5, 7, 33)
                path = os.path.join(self.daemon.root, f"{kind.strip('<')}.npy")
                np.save(path, array)
                volume = self.client.import_volume(path, axes=["y", "x", "z"], spacing_um=dict(y=1, x=1, z=1))
                self.assertEqual(self.check(volume).tobytes(), array.tobytes())

    def test_boxes(self):
        volume, draw = volume_of(self.client, 24, 13), random.Random(SEED)
        whole = self.client.read(volume.name)
        for _ in range(10):
            start = [draw.randrange(n) for n in whole.shape]
            count = [draw.choice((0, 1, draw.randint(1, n - s))) for s, n in zip(start, whole.shape)]
            box = tuple(slice(s, s + c if c else None) for s, c in zip(start, count))
            with self.subTest(start=start, count=count):
                self.assertEqual(self.check(volume, start, count).tobytes(), np.ascontiguousarray(whole[box]).tobytes())
        self.check(volume, (3, 2, 1))
        self.check(volume, (), (5, 6, 7))
        self.check(volume, downsample=2)
        self.check(volume, (1, 0, 0), downsample=4, downsampling="mean")
        self.check(volume, window=(0, 20000))
        self.check(volume, (1, 2, 3), window=(0, 20000))

    def test_a_large_volume_uses_the_connections_and_a_small_one_does_not(self):
        volume = volume_of(self.client, 512, 129, 512, dtype="f32")  # 64.5 MiB
        seen, counting = self.calls()
        with counting:
            wanted = volume.read(connections=1)
            for connections, parts in ((2, 2), (3, 3), (16, 8)):
                seen.clear()
                read = volume.read(connections=connections)
                self.assertEqual(read.tobytes(), wanted.tobytes())
                self.assertEqual(len(seen), parts)
                self.assertEqual(len({id(channel) for channel, _ in seen}), parts)  # each its own
                self.assertEqual(sum(request.count[0] for _, request in seen), 129)
            seen.clear()
            volume.read(count=(9, 0, 0))  # 4.5 MiB
            volume.read(downsample=2, connections=4)
            volume.read(count=(1, 1, 1), connections=4)
            self.assertEqual([channel for channel, _ in seen], [self.client.channel] * 3)
        self.assertEqual(readers(), [])
        out = np.full(wanted.shape, np.nan, np.float32)
        for connections in (1, 4):
            self.assertIs(volume.read(connections=connections, out=out), out)
            self.assertEqual(out.tobytes(), wanted.tobytes())
            out.fill(np.nan)
        self.assertIs(volume.read((1, 0, 0), (1, 0, 0), out=out[:1]).base, out)

    def test_what_is_refused(self):
        volume = volume_of(self.client)
        for connections in (-1, 17, 1.5, "two", True, None):
            with self.assertRaisesRegex(ValueError, "connections is .*; expected 1 to 16, or 0"):
                volume.read(connections=connections)
        shape, kind = tuple(volume.shape), volume.read(count=(1, 1, 1)).dtype
        other = "f8"
        locked = np.empty(shape, kind)
        locked.flags.writeable = False
        for out, words in ((np.empty(shape, other), "float64"), (np.empty((1, 2), kind), r"\(1, 2\)"), (locked, "read-only"),
                           (np.empty(shape[::-1], kind).T, "not in C order"), ([1], "expected a NumPy array")):
            for least in (256, 1 << 30):
                with splitting(least), self.assertRaisesRegex(ValueError, f"out is .*{words}"):
                    volume.read(out=out, connections=3)
        for start, count, code in (((99, 0, 0), (), "OUT_OF_RANGE"), ((), (99, 1, 1), "OUT_OF_RANGE"), ((0, 0), (), "INVALID_ARGUMENT"),
                                   ((-1, 0, 0), (), "OUT_OF_RANGE"), ((), (0, -2, 0), "OUT_OF_RANGE")):
            with self.subTest(start=start, count=count), splitting():
                errors = []
                for connections in (1, 4):
                    with self.assertRaises(octavo.OctavoError) as caught:
                        volume.read(start, count, connections=connections)
                    errors.append(str(caught.exception))
                self.assertIn(code, errors[0])
                self.assertEqual(*errors)
        with splitting(), self.assertRaises(octavo.OctavoError) as caught:
            self.client.read("volumes/none-1", connections=4)
        self.assertEqual(caught.exception.code, grpc.StatusCode.NOT_FOUND)

    def test_many_at_once(self):
        volume = volume_of(self.client, 200, 30, 256)
        wanted = volume.read().tobytes()
        with splitting(), concurrent.futures.ThreadPoolExecutor(6) as pool:
            for read in pool.map(lambda i: volume.read(connections=1 + i % 4).tobytes(), range(40)):
                self.assertEqual(read, wanted)

    def test_a_volume_that_is_discarded_meanwhile_comes_whole_or_not(self):
        came = []
        for after in (0, 1, 2, 5):
            volume = volume_of(self.client, 200, 60, 256)
            wanted, messages, lock = volume.read(), [], threading.Lock()

            def find(message, field):
                with lock:
                    messages.append(None)
                    now = len(messages) == after + 1
                if now:
                    volume.discard()
                return before(message, field)

            before = payload.find
            with splitting(), mock.patch.object(payload, "find", find):
                try:
                    np.testing.assert_array_equal(volume.read(connections=4), wanted)
                    came.append(True)
                except octavo.OctavoError as error:
                    self.assertIn(error.code, (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION))
                    came.append(False)
            with self.assertRaises(octavo.OctavoError):
                volume.read()
        self.assertEqual(len(came), 4)
        self.assertEqual(readers(), [])


class Faults(unittest.TestCase):
    @contextlib.contextmanager
    def daemon(self, **environment):
        daemon = Daemon("--device.frame_pool_bytes", str(256 << 20), environment=environment)
        try:
            with daemon.client() as client:
                yield daemon, client
        finally:
            daemon.remove()

    def test_a_range_that_fails_fails_the_call(self):
        with self.daemon(OCTAVO_FAILPOINT="ReadVolumeRequest.message:throw=runtime_error:3") as (_, client), splitting():
            volume = volume_of(client)
            with self.assertRaises(octavo.OctavoError) as caught:
                volume.read(connections=4)
            self.assertEqual(caught.exception.code, grpc.StatusCode.INTERNAL)
            self.assertEqual(volume.read(connections=4).tobytes(), volume.read(connections=1).tobytes())
            self.assertEqual(readers(), [])

    def test_a_range_without_memory_comes_once_more(self):
        with self.daemon(OCTAVO_FAILPOINT="ReadVolumeRequest.message:throw=bad_alloc:3") as (_, client), splitting():
            volume = volume_of(client)
            self.assertEqual(volume.read(connections=4).tobytes(), volume.read(connections=1).tobytes())

    def test_a_server_that_dies_in_the_middle(self):
        with self.daemon() as (daemon, client):
            volume = volume_of(client, 512, 129, 512, dtype="f32")
            before = payload.find

            def find(message, field):
                if daemon.process.poll() is None and len(message) > 1 << 20:
                    daemon.kill()
                return before(message, field)

            with mock.patch.object(payload, "find", find), self.assertRaises(octavo.OctavoError) as caught:
                volume.read(connections=4)
            self.assertEqual(caught.exception.code, grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(readers(), [])

    def test_a_client_that_was_closed(self):
        with self.daemon() as (_, client), splitting():
            volume = volume_of(client)
            volume.read(connections=4)
            client.close()
            with self.assertRaisesRegex(ValueError, "this client is closed"):
                volume.read(connections=4)


class Told:
    """A server of one volume that answers ReadVolume as the test says: `answer(request, context)` yields messages. Remembers the calls."""

    SHAPE = (12, 5, 16)

    def __init__(self, answer=None):
        self.voxels = np.random.default_rng(SEED).integers(0, 1 << 16, self.SHAPE, np.uint16)
        self.volume = volume_pb2.Volume(name="volumes/1-a", shape=self.SHAPE, dtype=types_pb2.DTYPE_U16)
        self.answer = answer or self.messages
        self.calls, self.cancelled, self.lock = [], threading.Event(), threading.Lock()
        handlers = {"GetVolume": grpc.unary_unary_rpc_method_handler(lambda request, context: volume_pb2.GetVolumeResponse(volume=self.volume),
                                                                     volume_pb2.GetVolumeRequest.FromString, volume_pb2.GetVolumeResponse.SerializeToString),
                    "ReadVolume": grpc.unary_stream_rpc_method_handler(self.read, volume_pb2.ReadVolumeRequest.FromString, bytes)}
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("octavo.v1.VolumeService", handlers),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def read(self, request, context):
        with self.lock:
            self.calls.append((request, context.peer(), dict(context.invocation_metadata())))
        for message in self.answer(request, context):
            yield message if isinstance(message, bytes) else message.SerializeToString()

    def messages(self, request, context=None):
        """What the daemon would send, in several pieces."""
        box = tuple(slice(s, s + c) for s, c in zip(request.start or (0, 0, 0), request.count or self.SHAPE))
        data = np.ascontiguousarray(self.voxels[box]).tobytes()
        yield volume_pb2.ReadVolumeResponse(volume=self.volume, shape=self.voxels[box].shape, total_bytes=len(data), dtype=types_pb2.DTYPE_U16)
        for at in range(0, len(data), 100):
            yield volume_pb2.ReadVolumeResponse(offset=at, data=data[at:at + 100], last=at + 100 >= len(data))


class OddServers(unittest.TestCase):
    def read(self, answer, connections=3, **options):
        """The array, and the server; answer(told, request, context)."""
        told = Told()
        told.answer = lambda request, context: answer(told, request, context)
        self.addCleanup(told.server.stop, None)
        with octavo.Client(told.address, **options) as client, splitting():
            try:
                return client.read("volumes/1-a", connections=connections), told
            finally:
                self.assertEqual(readers(), [])

    def refused(self, answer, connections=3):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.read(answer, connections)
        return caught.exception

    def test_pieces_in_any_order_and_the_head_with_data(self):
        def answer(told, request, context):
            head, *rest = told.messages(request)
            random.Random(SEED).shuffle(rest)
            head.MergeFrom(rest.pop())
            return [head, *rest]

        for connections in (1, 3):
            array, told = self.read(answer, connections)
            self.assertEqual(array.tobytes(), told.voxels.tobytes())
            self.assertEqual(len(told.calls), connections)
            self.assertEqual(len({peer for _, peer, _ in told.calls}), connections)  # connections of their own

    def test_too_little_too_much_or_another_array(self):
        def but(change):
            def answer(told, request, context):
                messages = list(told.messages(request))
                return change(messages) if len(request.start) == 0 or request.start[0] == 0 else messages
            return answer

        def other(**fields):
            def change(messages):
                for name, value in fields.items():
                    if isinstance(value, (list, tuple)):
                        del getattr(messages[0], name)[:]
                        getattr(messages[0], name).extend(value)
                    else:
                        setattr(messages[0], name, value)
                return messages
            return change

        def beyond(messages):
            messages[-1].offset += 1 << 40
            return messages

        for connections in (1, 3):
            for change, words in ((lambda messages: messages[:-1], "sent only"), (lambda messages: [], "sent only 0 bytes"), (lambda messages: messages[:1], "sent only 0 bytes"),
                                  (beyond, "beyond its end")):
                with self.subTest(connections=connections, words=words):
                    error = self.refused(but(change), connections)
                    self.assertEqual(error.code, grpc.StatusCode.DATA_LOSS)
                    self.assertIn(words, error.message)
        for fields in (dict(total_bytes=7), dict(dtype=types_pb2.DTYPE_I16)):
            self.assertIn("another array", self.refused(but(other(**fields))).message)

    def test_no_message(self):
        for connections in (1, 3):
            error = self.refused(lambda told, request, context: [b"\x3a\xff\xff"], connections)
            self.assertEqual(error.code, grpc.StatusCode.DATA_LOSS)

    def test_one_error_ends_the_other_ranges(self):
        def answer(told, request, context):
            messages = list(told.messages(request))
            if request.start[0] == 0:
                until(lambda: len(told.calls) == 3)
                context.abort(grpc.StatusCode.DATA_LOSS, "the device is lost")
            context.add_callback(told.cancelled.set)
            yield messages[0]
            told.cancelled.wait(60)  # the end of the call: nothing else wakes it

        error = self.refused(answer)
        self.assertEqual((error.code, error.message), (grpc.StatusCode.DATA_LOSS, "the device is lost"))

    def test_a_refused_range_comes_again_over_the_clients_own_connection(self):
        for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
            def answer(told, request, context):
                with told.lock:
                    again = sum(request == other for other, _, _ in told.calls) > 1
                messages = list(told.messages(request))
                yield from messages[:3]
                if request.start[0] > 0 and not again:
                    context.abort(code, "not now")
                yield from messages[3:]

            array, told = self.read(answer)
            self.assertEqual(array.tobytes(), told.voxels.tobytes())
            self.assertEqual(len(told.calls), 5)
            self.assertEqual(len({peer for _, peer, _ in told.calls[3:]}), 1)

            def never(told, request, context):
                messages = list(told.messages(request))
                yield from messages[:3]
                if request.start[0] > 0:
                    context.abort(code, "not now")
                yield from messages[3:]

            self.assertEqual(self.refused(never).code, code)

    def test_every_range_carries_the_token(self):
        with tempfile.NamedTemporaryFile("w", suffix=".token") as file:
            token = "octavo_" + "0" * 8 + "_" + "1" * 64
            file.write(token + "\n")
            file.flush()
            os.chmod(file.name, 0o600)
            array, told = self.read(lambda told, request, context: told.messages(request), token_file=file.name)
        self.assertEqual(array.tobytes(), told.voxels.tobytes())
        self.assertEqual([metadata.get("authorization") for _, _, metadata in told.calls], [f"Bearer {token}"] * 3)

    def test_an_interrupt_ends_the_ranges(self):
        ended = threading.Semaphore(0)
        before = payload.find

        def find(message, field):
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return before(message, field)

        told = Told()
        self.addCleanup(told.server.stop, None)

        def wait(request, context):
            over = threading.Event()
            for told_of in (over.set, ended.release):
                if not context.add_callback(told_of):  # it has ended before
                    told_of()
            yield next(told.messages(request))
            over.wait(60)

        told.answer = wait
        with octavo.Client(told.address) as client, splitting(), mock.patch.object(payload, "find", find), self.assertRaises(KeyboardInterrupt):
            client.read("volumes/1-a", connections=3)
        self.assertEqual(readers(), [])
        for _ in told.calls:
            self.assertTrue(ended.acquire(timeout=60))


if __name__ == "__main__":
    unittest.main()
