"""Replicated buffers and chained operations through the daemon, compared with NumPy, and every
error of a stream."""

import re
import threading
import time
import unittest
import warnings
import urllib.request
import warnings

import grpc
import numpy as np

from harness import DaemonTest, until

import octavo
from octavo import buffers as octavo_buffers
from octavo.v1 import array_operation_pb2, buffer_pb2, scan_pb2, types_pb2, volume_pb2
from raw_http2 import RawPeer
from readers import READERS


class Buffers(DaemonTest):
    def setUp(self):
        self.buffers = self.client.buffers
        self.random = np.random.default_rng(np.random.SeedSequence().entropy)

    def tearDown(self):
        for buffer in self.buffers.list():
            self.buffers.destroy(buffer.name)
        super().tearDown()

    def refused(self, code, reason, call, *args, **kwargs):
        with self.assertRaises(octavo.OctavoError) as caught:
            result = call(*args, **kwargs)
            list(result) if hasattr(result, "__next__") else None
        self.assertEqual((caught.exception.code, caught.exception.reason), (code, reason), caught.exception)
        return caught.exception

    def test_what_is_put_is_read(self):
        for shape in ((50,), (50, 50), (50, 50, 50), (2, 50)):
            array = self.random.standard_normal(shape, dtype=np.float32)
            buffer = self.buffers.put(array)
            np.testing.assert_array_equal(self.buffers.read(buffer.name), array)
            np.testing.assert_array_equal(self.buffers.read(buffer.name, replica=0), array)
            self.assertEqual(self.buffers.read(buffer.name, stacked=True).shape, (len(buffer.replicas), *shape))
            pairs = self.random.standard_normal((*shape, 2), dtype=np.float32)
            buffer = self.buffers.put(pairs, lanes=2)
            self.assertEqual(list(buffer.shape), list(shape))
            np.testing.assert_array_equal(self.buffers.read(buffer.name), pairs)
        for name, kind in octavo_buffers.NUMPY.items():
            if name == "c32":
                continue
            array = self.random.integers(0, 100, (3, 5)).astype(kind)
            np.testing.assert_array_equal(self.buffers.read(self.buffers.put(array).name), array)

    def test_boxes_ranges_and_large_ones(self):
        array = self.random.integers(0, 255, (40, 1024, 1024), dtype=np.uint8)  # 40 MiB: in pieces
        buffer = self.buffers.put(array)
        np.testing.assert_array_equal(self.buffers.read(buffer.name, start=(3, 100, 7), count=(2, 50, 11)), array[3:5, 100:150, 7:18])
        np.testing.assert_array_equal(self.buffers.read(buffer.name), array)
        self.buffers.write(buffer.name, np.full(5, 7, np.uint8), offset=1000)
        array.reshape(-1)[1000:1005] = 7
        np.testing.assert_array_equal(self.buffers.read(buffer.name, count=(1, 1, 1024)), array[:1, :1])

    def test_errors(self):
        invalid, missing, range_error, wrong = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE,
                                                grpc.StatusCode.FAILED_PRECONDITION)
        self.refused(invalid, "BAD_SHAPE", self.buffers.create, ())
        self.refused(invalid, "BAD_SHAPE", self.buffers.create, (1, 2, 3, 4))
        self.refused(invalid, "BAD_SHAPE", self.buffers.create, (4, 0))
        self.refused(invalid, "BAD_TYPE", self.buffers.create, (4,), 99)
        self.refused(invalid, "BAD_TYPE", self.buffers.create, (4,), "f32", lanes=5)
        self.refused(invalid, "BAD_TYPE", self.buffers.create, (4,), "c64", lanes=2)
        self.refused(invalid, "TOO_MANY_ELEMENTS", self.buffers.create, (2**30 + 1,), "u8")
        self.refused(invalid, "TOO_MANY_ELEMENTS", self.buffers.create, (2**63, 2**63, 2**63), "u8")
        for devices, why in (([77], "names devices/77; there are devices/0"), (["devices/0", 0], "names devices/0 twice"),
                             (["gpu0"], "is 'gpu0'; allowed are devices/0"), (["devices/00"], "is 'devices/00'; allowed are devices/0"),
                             (["devices/-1"], "is 'devices/-1'; allowed are devices/0"), (["devices/99999999999"], "allowed are devices/0"), ([""], "is ''; allowed are devices/0")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.buffers.create((4,), devices=devices)
            self.assertEqual((caught.exception.code, caught.exception.reason), (invalid, "BAD_PLACEMENT"))
            self.assertIn(why, str(caught.exception))
            self.assertTrue(caught.exception.field.startswith("placement.devices"), caught.exception.field)
        self.refused(invalid, "BAD_FIELD", self.buffers.create, (4,), ttl=0.1)
        self.refused(invalid, "BAD_FIELD", self.buffers.create, (4,), private=True)
        self.refused(invalid, "BAD_FIELD", self.buffers.create, (4,), labels={"Bad Key": "x"})
        buffer = self.buffers.create((10, 20))
        zeros = np.zeros((10, 20), np.float32)
        self.refused(range_error, "BAD_REPLICA", self.buffers.write, buffer.name, zeros, replica=99)
        self.refused(range_error, "BAD_RANGE", self.buffers.write, buffer.name, zeros, offset=4)
        self.refused(invalid, "MISALIGNED", self.buffers.write, buffer.name, np.zeros(3, np.uint8), check=False)
        for why, of in (("TYPE_MISMATCH", dict(type=types_pb2.ElementType(dtype=types_pb2.DTYPE_I32))), ("SHAPE_MISMATCH", dict(shape=[20, 10]))):
            header = buffer_pb2.WriteBufferRequest.Header(name=buffer.name, total_bytes=zeros.nbytes, **of)
            self.refused(invalid, why, self.send, buffer_pb2.WriteBufferRequest(header=header), buffer_pb2.WriteBufferRequest(data=zeros.tobytes()))
        self.refused(grpc.StatusCode.ABORTED, "VERSION", self.buffers.write, buffer.name, zeros, if_version=99)
        self.refused(wrong, "LEASE_LOST", self.buffers.write, buffer.name, zeros, lease_token="none")
        self.refused(missing, "NO_BUFFER", self.buffers.read, "buffers/none")
        self.refused(range_error, "BAD_REPLICA", self.buffers.read, buffer.name, replica=5)
        self.refused(range_error, "BAD_RANGE", self.buffers.read, buffer.name, start=(10, 0))
        self.refused(invalid, "BAD_FIELD", self.buffers.read, buffer.name, chunk_bytes=1)
        self.refused(wrong, "UNINITIALIZED", self.buffers.read, self.buffers.create((4,), uninitialized=True).name)
        error = self.refused(invalid, "BAD_FIELD", self.buffers.apply, buffer.name, {"crop": {"start": [1, 99]}})
        self.assertEqual(error.field, "operations[0].crop.start")
        self.refused(invalid, "BAD_FIELD", self.buffers.apply, buffer.name, array_operation_pb2.ArrayOperation())
        self.refused(invalid, "SHAPE_MISMATCH", self.buffers.apply, buffer.name, {"transpose": {}}, output=buffer.name)
        self.refused(wrong, "SEALED", self.buffers.write, "volumes/x", zeros)
        self.buffers.create((4,), request_id="same")
        self.refused(grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_MISMATCH", self.buffers.create, (5,), request_id="same")
        self.buffers.destroy(buffer.name)
        self.assertIn("destroyed", str(self.refused(missing, "NO_BUFFER", self.buffers.get, buffer.name)))
        np.testing.assert_equal([b.shape[0] for b in self.buffers.list()], [4, 4])

    def send(self, *messages):
        """A plain call of WriteBuffer."""
        with octavo.errors.raising():
            return self.buffers._stub.WriteBuffer(iter(messages))

    def test_an_array_of_another_form_is_refused(self):
        values = np.arange(6, dtype=np.float32).reshape(2, 3)
        buffer = self.buffers.put(values)
        for array, words in ((np.arange(6, dtype=np.int32).reshape(3, 2), ("array is int32 (3, 2); expected float32 (2, 3)", "array.astype('float32')")),
                             (values.T, ("array is float32 (3, 2); expected float32 (2, 3)", "offset= writes a part")),
                             (np.zeros(24, np.uint8), ("uint8 (24,)", "float32 (2, 3)")),
                             ([[1, 2], [3, 4]], ("int64 (2, 2)", "float32 (2, 3)")),
                             (values.astype(np.float64), ("float64 (2, 3)", "float32 (2, 3)", "astype")),
                             (values[:1], ("float32 (1, 3)", "float32 (2, 3)", "offset= writes a part"))):
            for write in (buffer.write, lambda array: self.buffers.write(buffer.name, array)):
                with self.assertRaises(ValueError) as caught:
                    write(array)
                for word in words + (buffer.name, "check=False"):
                    self.assertIn(word, str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            buffer.write(np.zeros(3, np.int32), offset=12)
        self.assertIn("array is int32 (3,); expected float32, of a buffer of the shape (2, 3)", str(caught.exception))
        np.testing.assert_array_equal(buffer.read(), values)  # nothing was written
        buffer.write(np.float32([7, 8, 9]), offset=12)
        np.testing.assert_array_equal(buffer.read(), [[0, 1, 2], [7, 8, 9]])
        buffer.write(values[::-1].astype(">f4"))  # the same type in another byte order, and not contiguous
        np.testing.assert_array_equal(buffer.read(), values[::-1])
        buffer.write(np.zeros(24, np.uint8), check=False)
        np.testing.assert_array_equal(buffer.read(), np.zeros((2, 3)))
        lanes = self.buffers.create((4,), "f32", lanes=3)
        np.testing.assert_array_equal(lanes.write(np.ones((4, 3), np.float32)).read(), np.ones((4, 3)))
        with self.assertRaises(ValueError):
            lanes.write(np.ones(4, np.float32))
        with self.assertRaises(ValueError) as caught:
            self.buffers.put(np.ones((4, 2), np.float32), lanes=3)
        self.assertIn("lanes=3 needs a last axis of 3 elements", str(caught.exception))

    def test_what_looks_like_a_mistake_in_an_operation(self):
        buffer = self.buffers.put(np.arange(6, dtype=np.float32))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            buffer.apply({"percentile": {"percentiles": [0.5, 0.99]}})
        self.assertEqual([str(one.message) for one in told], ["percentile.percentiles is [0.5, 0.99] (list), which look like fractions; percentiles are "
                                                              "0 to 100: [50, 99] for these"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            buffer.apply({"percentile": {"percentiles": [0.5, 50]}})
            buffer.apply({"percentile": {"percentiles": [0]}})
        with self.assertRaises(ValueError) as caught:
            buffer.apply({"combine": {"kind": "add", "other": np.ones(6, np.float32)}})
        self.assertIn("combine.other is an array of float32 (6,); expected a Buffer, or its name, buffers/<id>", str(caught.exception))
        np.testing.assert_array_equal(buffer.apply({"combine": {"kind": "add", "other": buffer}}).read(), 2 * np.arange(6))
        self.assertEqual(buffer.wait(timeout=30).name, buffer.name)

    def test_the_stream_of_a_write(self):
        """PROTOCOL, SHORT_STREAM, CHECKSUM, and a client that disconnects at each
        message."""
        stub, send = self.buffers._stub, self.send
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        buffer = self.buffers.put(np.arange(3 << 18, dtype=np.float32))  # 3 MiB
        before = self.buffers.read(buffer.name)
        request, header = buffer_pb2.WriteBufferRequest, buffer_pb2.WriteBufferRequest.Header
        head = request(header=header(name=buffer.name, total_bytes=3 << 20))
        chunk = request(data=bytes(1 << 20))

        self.refused(invalid, "PROTOCOL", send)
        self.refused(invalid, "PROTOCOL", send, chunk)
        self.refused(invalid, "PROTOCOL", send, head, head)
        self.refused(invalid, "PROTOCOL", send, request(header=head.header, data=b"1234"))
        self.refused(invalid, "PROTOCOL", send, head, request())
        self.refused(invalid, "BAD_FIELD", send, head, request(data=bytes((1 << 20) + 4)))
        self.refused(invalid, "PROTOCOL", send, head, chunk, chunk, chunk, chunk)
        self.refused(invalid, "SHORT_STREAM", send, head, chunk, chunk)
        bad = request(header=header(name=buffer.name, total_bytes=3 << 20, crc32c=1))
        self.refused(grpc.StatusCode.DATA_LOSS, "CHECKSUM", send, bad, chunk, chunk, chunk)
        for messages in range(4):
            sent, go = threading.Event(), threading.Event()

            def until():
                yield from [head, chunk, chunk, chunk][:messages + 1]
                sent.set()
                go.wait(30)  # neither another message nor the end

            call = stub.WriteBuffer.future(until())
            sent.wait(30)
            call.cancel()
            go.set()
            # The lease ends with the stream: then the old contents are complete again.
            while True:
                try:
                    after = self.buffers.read(buffer.name)
                    break
                except octavo.OctavoError as error:
                    self.assertEqual(error.reason, "LEASED")
            np.testing.assert_array_equal(after, before)
            self.assertEqual(self.buffers.get(buffer.name).state, buffer_pb2.BUFFER_STATE_READY)

    def test_operations_equal_numpy(self):
        x = self.random.standard_normal((12, 17, 23)).astype(np.float32)
        buffer = self.buffers.put(x)

        def check(wanted, *operations, rtol=1e-5, atol=1e-5, source=buffer.name):
            made = self.buffers.apply(source, *operations)
            got = self.buffers.read(made.name)
            self.assertEqual(got.shape, np.shape(wanted), operations)
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, err_msg=str(operations))
            return made

        check(x[2:9, 3:, :20], {"crop": {"start": [2, 3, 0], "count": [7, 0, 20]}}, rtol=0, atol=0)
        check(x * 2.5 - 1, {"scale": {"multiply": 2.5, "add": -1}})
        check(np.clip(np.round(x * 50 + 100), 0, 255), {"scale": {"multiply": 50, "add": 100, "type": "u8"}}, atol=1)
        for kind in ("sum", "min", "max", "mean", "std"):
            for axes in ((), (0,), (1,), (2,), (0, 2), (0, 1)):
                wanted = getattr(np, kind)(x.astype(np.float64), axis=axes or None)
                check(np.atleast_1d(wanted), {"reduce": {"kind": kind, "axes": axes}}, atol=1e-4)
        check(x.max(2), {"mip": {"axis": 2}}, rtol=0, atol=0)
        check(x.mean(2), {"aip": {"axis": -1}})
        check(x[:, :, 5:9].max(2), {"slab": {"axis": 2, "begin": 5, "end": 9}}, rtol=0, atol=0)
        check(np.percentile(x, [1, 50, 99.5], axis=1), {"percentile": {"percentiles": [1, 50, 99.5], "axes": [1]}})
        check(np.histogram(x, 37, (-2, 2))[0], {"histogram": {"bins": 37, "lo": -2, "hi": 2}}, rtol=0, atol=0)
        for axis in (0, 1, 2):
            check(np.fft.fft(x, axis=axis), {"fft": {"axis": axis}}, atol=1e-4)
        check(x, {"fft": {"axis": 1}}, {"fft": {"axis": 1, "inverse": True}}, {"scale": {"part": "real"}}, atol=1e-5)
        check(np.abs(np.fft.fft(x, axis=2)) ** 2, {"fft": {"axis": 2}}, {"scale": {"part": "power"}}, rtol=1e-4, atol=1e-3)
        check(x[:, ::-1, :], {"flip": {"axes": [1]}}, rtol=0, atol=0)
        check(x.transpose(2, 0, 1), {"transpose": {"axes": [2, 0, 1]}}, rtol=0, atol=0)
        check(np.full_like(x, 3), {"fill": {"value": 3}}, rtol=0, atol=0)
        line = self.random.standard_normal(23).astype(np.float32)
        other = self.buffers.put(line)
        check(x - line, {"combine": {"kind": "subtract", "other": other.name}})
        # Corner to corner and at pixel centres, without smoothing.
        at = np.linspace(0, 22, 50)
        linear = np.apply_along_axis(lambda row: np.interp(at, np.arange(23), row), 2, x)
        check(linear, {"resize": {"shape": [0, 0, 50], "corner_aligned": True}}, atol=1e-4)
        at = np.abs((np.arange(50) + 0.5) * 23 / 50 - 0.5)
        at = np.minimum(at, 44 - at)  # mirrored about the middle of the last pixels
        linear = np.apply_along_axis(lambda row: np.interp(at, np.arange(23), row), 2, x)
        check(linear, {"resize": {"shape": [0, 0, 50]}}, atol=1e-4)
        # A chain, first into a new buffer, then into an existing one.
        wanted = (x[:, ::-1] * 2).max(0)
        made = check(wanted, {"flip": {"axes": [1]}}, {"scale": {"multiply": 2}}, {"reduce": {"kind": "max", "axes": [0]}}, rtol=0, atol=0)
        self.assertEqual(made.origin, buffer.name)
        self.buffers.apply(buffer.name, {"flip": {"axes": [1]}}, {"scale": {"multiply": 3}}, {"reduce": {"kind": "max", "axes": [0]}}, output=made.name)
        self.assertEqual(self.buffers.wait(made.name).state, buffer_pb2.BUFFER_STATE_READY)
        np.testing.assert_array_equal(self.buffers.read(made.name), (x[:, ::-1] * np.float32(3)).max(0))

    def test_three_recorded_additions(self):
        buffer = self.buffers.put(np.zeros(1000, np.float32))
        self.buffers.apply(buffer.name, *[{"scale": {"add": 1}}] * 3, output=buffer.name)
        np.testing.assert_array_equal(self.buffers.read(buffer.name), np.full(1000, 3, np.float32))

    def test_four_clients_at_once(self):
        """T1 through the daemon: random programs, replayed in the order of the numbers that the
        server gives."""
        count, number = int(self.random.integers(500, 2500)), 12
        model = {}
        for _ in range(number):
            values = self.random.standard_normal(count).astype(np.float32)
            model[self.buffers.put(values).name] = values
        names = list(model)
        done, failures = [], []

        def client(seed):
            random = np.random.default_rng(seed)
            try:
                with self.daemon.client() as own:
                    for _ in range(50):
                        source, target = random.choice(names, 2)
                        constants = random.integers(-1000, 1000, random.integers(1, 5)) / 100
                        made = own.buffers.apply(str(source), *[{"scale": {"add": float(c)}} for c in constants], output=str(target))
                        done.append((made.sequence, source, target, constants))
            except octavo.OctavoError as error:
                failures.append(error)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in self.random.integers(0, 2**31, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(len({d[0] for d in done}), 200)
        for _, source, target, constants in sorted(done, key=lambda d: d[0]):
            values = model[source]
            for c in constants:
                values = values + np.float32(c)
            model[target] = values
        for name, values in model.items():
            np.testing.assert_allclose(self.buffers.read(name), values, atol=1e-3)

    def test_a_client_may_call_itself_by_any_bytes(self):
        """Its name is in the answers to others, which have to stay readable."""
        body = buffer_pb2.CreateBufferRequest(type=types_pb2.ElementType(dtype=types_pb2.DTYPE_U8), shape=[4]).SerializeToString()
        peer = RawPeer(self.daemon.address)
        for name in (b"\xff\xfe\x80", b"n" * 127 + "é".encode(), "Zoë".encode()):
            stream = peer.call("/octavo.v1.BufferService/CreateBuffer", body, more=[("octavo-client", name)])
            while stream not in peer.ended:
                self.assertTrue(peer.read_frame())
        peer.close()
        owners = [b.client for b in self.buffers.list()][-3:]
        self.assertEqual(owners[2], "Zoë")
        self.assertTrue(owners[1].startswith("n" * 127), owners[1])
        watch = self.buffers.watch()
        self.assertEqual([next(watch).buffer.client for _ in self.buffers.list()][-3:], owners)
        watch.close() if hasattr(watch, "close") else watch.cancel()
        for buffer in self.buffers.list()[-3:]:
            self.buffers.destroy(buffer.name)

    def test_private_ones_watching_and_labels(self):
        with octavo.Client(self.daemon.address, client="owner", key="a key of sixteen characters or more") as owner:
            mine = owner.buffers.put(np.ones(4, np.float32), private=True)
            self.assertEqual(mine.client, "owner")
            self.refused(grpc.StatusCode.PERMISSION_DENIED, "NOT_OWNER", self.buffers.read, mine.name)
            self.assertEqual(self.buffers.list(), [])
            owner.buffers.destroy(mine.name)
        seen = []
        watch = self.buffers.watch()
        buffer = None

        def follow():
            for event in watch:
                seen.append((event.kind, event.buffer.name, str(event.reason_code)))
                if event.kind == buffer_pb2.WatchBuffersResponse.KIND_GONE:
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        buffer = self.buffers.create((4,), labels={"kind": "test"})
        self.assertEqual([b.name for b in self.buffers.list(filter='labels.kind = "test"')], [buffer.name])
        changed = self.buffers.update(buffer.name, labels={"kind": "other"}, etag=buffer.etag)
        self.refused(grpc.StatusCode.ABORTED, "VERSION", self.buffers.update, buffer.name, labels={}, etag=buffer.etag)
        self.assertEqual(self.buffers.list(filter='labels.kind = "test"'), [])
        self.buffers.destroy(buffer.name, etag=changed.etag)
        thread.join(30)
        self.assertEqual(seen[-1], (buffer_pb2.WatchBuffersResponse.KIND_GONE, buffer.name, "DESTROYED"))
        self.assertEqual({reason for kind, _, reason in seen[:-1]}, {"UNSPECIFIED"})


class Volumes(DaemonTest):
    """Chains on held volumes, and on every volume of a scan."""

    def scan(self, **fields):
        scan = self.client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(48, 20, volumes=fields.pop("volumes", 1)), **fields)
        return self.client.wait(scan.name).name

    def test_derived_volumes_equal_numpy(self):
        volume = self.client.volumes(self.scan(processing=octavo.processing(dtype="u8")))[0]
        x = self.client.read(volume.name)
        np.testing.assert_array_equal(self.client.buffers.read(volume.name), x)
        f = x.astype(np.float64)

        def check(wanted, *operations, atol=1e-4):
            made = self.client.derive(volume.name, *operations)
            self.assertEqual(made.derived_from, volume.name)
            self.assertEqual(len(made.operations), len(operations))
            got = self.client.read(made.name)
            self.assertEqual(list(got.shape), list(made.shape))
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=atol, err_msg=str(operations))
            return made

        made = check(x.max(2, keepdims=True), {"mip": {"axis": 2}}, atol=0)
        self.assertEqual(made.quantity, volume_pb2.QUANTITY_UNSPECIFIED)
        self.assertIsNotNone(made.levels)
        self.assertEqual(check(f.mean(2, keepdims=True), {"aip": {"axis": 2}}).quantity, volume_pb2.QUANTITY_MEAN)
        check(f.std((0, 1), keepdims=True), {"reduce": {"kind": "std", "axes": [0, 1]}})
        made = check(x[:, 4:30, ::-1].transpose(2, 0, 1), {"crop": {"start": [0, 4, 0], "count": [0, 26, 0]}}, {"flip": {"axes": [2]}},
                     {"transpose": {"axes": [2, 0, 1]}}, atol=0)
        self.assertEqual(list(made.axes), ["z", "y", "x"])
        self.assertEqual(made.spacing_um[0], volume.spacing_um[2])
        # The file gives the right names of the axes.
        stored = READERS["nrrd"](self.client.commit(made.name, "turned", "nrrd").path)
        np.testing.assert_array_equal(stored.array, x[:, 4:30, ::-1])
        np.testing.assert_allclose(stored.spacing_um, list(volume.spacing_um))
        spacing = volume.spacing_um[2]
        check(x[:, :, 8:16].max(2, keepdims=True), {"slab": {"axis": 2, "begin_um": 8 * spacing + 1e-6, "end_um": 16 * spacing - 1e-6}}, atol=0)
        counts = check(np.bincount(x.reshape(-1), minlength=256).reshape(1, 1, 256), {"histogram": {}}, atol=0)
        check(np.percentile(f, 99).reshape(1, 1, 1), {"percentile": {"percentiles": [99]}})
        check(np.abs(np.fft.fft(f, axis=1)), {"fft": {"axis": 1}}, {"scale": {"part": "magnitude"}}, atol=2e-2)
        again = self.client.derive(counts.name, {"reduce": {"kind": "sum"}})  # derived from a derived volume
        self.assertEqual(self.client.read(again.name).item(), x.size)
        # Volumes as input of operations on buffers.
        made = self.client.buffers.apply(volume.name, {"mip": {"axis": 0}})
        np.testing.assert_array_equal(self.client.buffers.read(made.name), x.max(0))
        self.client.buffers.destroy(made.name)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.derive(volume.name, {"mip": {"axis": 2}}, {"slab": {"axis": 1, "begin": 99}})
        self.assertEqual(caught.exception.field, "operations[1].slab.begin")
        np.testing.assert_array_equal(self.client.read(volume.name), x)

    def test_work_that_is_waited_for(self):
        volume = self.client.volumes(self.scan())[0]
        planned = self.client.start_derive(volume.name, {"fft": {"axis": 0}}, {"scale": {"part": "magnitude"}}, {"mip": {"axis": 2}})
        done = self.client.wait_volume(planned.volumes[0])
        self.assertEqual(done.state, 2)
        self.assertEqual(list(self.client.wait_operation(planned.name).volumes), [done.name])
        wanted = np.abs(np.fft.fft(self.client.read(volume.name).astype(np.float64), axis=0)).max(2, keepdims=True)
        np.testing.assert_allclose(self.client.read(done.name), wanted, rtol=1e-4, atol=1e-2)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.wait_volume("volumes/none")
        self.assertEqual(caught.exception.code, grpc.StatusCode.NOT_FOUND)

    def test_a_chain_of_every_volume(self):
        chains = {"mip": [{"mip": {"axis": 2}}], "profile": [{"reduce": {"kind": "mean", "axes": [0, 1]}}]}
        scan = self.client.submit_scan(octavo.simulated(seed=4, fast=True), octavo.raster(48, 20, volumes=4), chains=chains)
        made = list(self.client.chain(scan.name, "mip"))
        self.assertEqual(len(made), 4)
        for mip in made:
            np.testing.assert_array_equal(self.client.read(mip.name), self.client.read(mip.derived_from).max(2, keepdims=True))
        self.assertEqual(len(list(self.client.chain(scan.name, "profile"))), 4)
        self.assertEqual([c.name for c in self.client.scan(scan.name).spec.chains], ["mip", "profile"])
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(octavo.simulated(seed=4), octavo.raster(48, 20), chains={"bad": [{"slab": {"axis": 2, "begin": 1 << 20}}]})
        self.assertEqual(caught.exception.field, "chains[0].operations[0].slab.begin")


class GrantedChains(DaemonTest):
    flags = ("--device.backend", "host", "--device.memory_bytes", str(96 << 20), "--device.frame_pool_bytes", str(16 << 20))

    def test_memory_of_chains_is_granted_with_the_scan(self):
        chains = {"double": [{"scale": {"multiply": 2}}, {"flip": {"axes": [0]}}]}
        pattern = octavo.raster(64, 32, volumes=3)
        report = self.client.plan_scan(octavo.simulated(seed=4, fast=True), pattern, chains=chains).report
        kinds = types_pb2.AdmissionReport.Item
        needs = {item.kind: item for item in report.needs}
        plain = self.client.plan_scan(octavo.simulated(seed=4, fast=True), pattern).report
        results = needs[kinds.KIND_CHAIN_RESULTS]
        self.assertEqual((results.chain, results.count), ("double", 3))
        self.assertGreaterEqual(results.bytes, 3 * report.volume_bytes)
        self.assertEqual(report.wanted_bytes - plain.wanted_bytes, results.bytes + needs[kinds.KIND_CHAIN_SCRATCH].bytes)
        scan = self.client.submit_scan(octavo.simulated(seed=4, fast=False), pattern, chains=chains)
        # Another client takes the rest of the device: the scan keeps its grant.
        device = self.client.devices()[0]
        left = self.client.buffers.create((device.free_bytes // 4096, 4096), "u8", devices=[0])
        made = list(self.client.chain(scan.name, "double"))
        self.assertEqual(len(made), 3)
        for volume in made:
            self.assertEqual(list(volume.shape), list(self.client.volume(volume.derived_from).shape))
        self.client.wait(scan.name)
        self.client.buffers.destroy(left.name)
        before = self.client.devices()[0]
        for volume in self.client.volumes(scan.name):
            self.client.discard(volume.name)
        self.assertGreater(before.held_bytes, 0)

        def is_free():  # the chains' threads may release the last volume a moment later
            after = self.client.devices()[0]
            return after.reserved_bytes == 0 and after.free_bytes >= before.free_bytes + 6 * report.volume_bytes

        until(is_free)


class SkippedChains(DaemonTest):
    flags = ("--device.backend", "host", "--device.memory_bytes", str(96 << 20), "--device.frame_pool_bytes", str(16 << 20))

    def test_the_source_tells_what_its_chain_did_not_make(self):
        """The results stay, so that a LIVE scan uses its chain's slots up; another client has the rest of the device."""
        def skipped():
            page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics").read().decode()
            return float(re.search(r"^octavo_chains_skipped_total (\S+)$", page, re.M).group(1))

        self.assertEqual(skipped(), 0)
        scan = self.client.submit_scan(octavo.push(), octavo.raster(64, 32, volumes=12), samples=1024, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, keep_last=2),
                                       chains={"double": [{"scale": {"multiply": 2}}]})
        self.client.buffers.create((self.client.devices()[0].free_bytes // 4096 - 1, 4096), "u8", devices=[0])
        raw = np.random.default_rng(4).integers(1000, 3000, (64 * 32, 1024)).astype("<u2")

        def has_an_outcome(index):
            there = self.client.volumes(scan.name)
            sources = [v for v in there if v.index == index and not v.derived_from]
            return any(v.skipped_chains or v.name in {one.derived_from for one in there} for v in sources)

        def blocks():  # the next volume comes when the chain is through with the one before, which the ring keeps until then
            for index in range(12):
                yield raw
                until(lambda: has_an_outcome(index))

        pusher = threading.Thread(target=lambda: self.client.push(scan.name, blocks()))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            pusher.start()
            made = list(self.client.chain(scan.name, "double"))
        ended = time.monotonic()
        pusher.join()
        self.client.wait(scan.name)
        self.assertLess(time.monotonic() - ended, 20, "chain() ends with the scan")
        self.assertGreaterEqual(len(made), 1)
        kept = [v for v in self.client.volumes(scan.name) if not v.derived_from]
        (without, *_) = [v for v in kept if v.name not in {one.derived_from for one in made}]
        (why,) = without.skipped_chains
        self.assertEqual((why.chain, str(why.reason_code)), ("double", "DEVICE_FULL"))
        texts = [str(one.message) for one in told if issubclass(one.category, octavo.OctavoWarning)]
        self.assertIn(f"{scan.name}: the chain 'double' made nothing of {without.name}: {why.reason}", texts)
        self.assertEqual(skipped(), 12 - len(made))
        self.assertEqual([v.name for v in kept if v.skipped_chains and v.name in {one.derived_from for one in made}], [])


class Quota(DaemonTest):
    flags = ("--device.backend", "host", "--device.host_devices", "2", "--device.buffer_quota_bytes", str(1 << 20), "--device.memory_bytes", str(64 << 20),
             "--device.frame_pool_bytes", str(16 << 20))

    def tearDown(self):
        for buffer in self.client.buffers.list():
            self.client.buffers.destroy(buffer.name)
        super().tearDown()

    def metrics(self):
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("octavo_buffer")}

    def test_one_client_cannot_have_more_than_its_quota(self):
        buffers = self.client.buffers
        first = buffers.create((300 << 10,), "u8")  # on both devices: 600 KiB
        before = self.metrics()
        with self.assertRaises(octavo.OctavoError) as caught:
            buffers.create((300 << 10,), "u8")
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA"))
        numbers = {k: int(v) for k, v in caught.exception.numbers.items() if v.isdigit()}
        self.assertEqual((numbers["held"], numbers["wanted"], numbers["quota"]), (600 << 10, 600 << 10, 1 << 20))
        self.assertEqual([b.name for b in buffers.list()], [first.name])
        after = self.metrics()
        self.assertEqual(after['octavo_buffer_refusals_total{reason="QUOTA"}'], 1)
        for name in before:
            if "refusals" not in name:
                self.assertEqual(after[name], before[name], name)
        self.assertEqual([d.buffer_bytes for d in self.client.devices()], [300 << 10] * 2)
        # The result of an operation counts too. On one device there is room.
        with self.assertRaises(octavo.OctavoError) as caught:
            buffers.write(first.name, np.zeros(300 << 10, np.uint8))
            buffers.apply(first.name, {"scale": {"multiply": 2}})
        self.assertEqual(caught.exception.reason, "QUOTA")
        second = buffers.create((300 << 10,), "u8", devices=[1])
        self.assertEqual([replica.device for replica in second.replicas], ["devices/1"])
        # Another client has a quota of its own.
        other = octavo.Client(self.daemon.address, client="somebody else")
        theirs = other.buffers.create((400 << 10,), "u8")
        self.assertEqual(self.metrics()["octavo_buffer_owners"], 2)
        self.assertEqual(self.metrics()["octavo_buffer_largest_owner_bytes"], 900 << 10)
        # Destroyed buffers free their quota.
        buffers.destroy(first.name)
        third = buffers.create((300 << 10,), "u8")
        for client, name in ((self.client, second.name), (self.client, third.name), (other, theirs.name)):
            client.buffers.destroy(name)
        other.close()
        until(lambda: all(d.buffer_bytes == 0 for d in self.client.devices()))  # the device's stream may still use the last one

    def test_the_metrics_count_what_is_done(self):
        buffers = self.client.buffers
        before = self.metrics()
        array = np.arange(50 << 10, dtype=np.uint8)
        buffer = buffers.put(array)
        now = self.metrics()
        self.assertEqual((now["octavo_buffers"], now["octavo_buffer_quota_bytes"]), (1, 1 << 20))
        for d in range(2):
            self.assertEqual(now[f'octavo_buffer_bytes{{device="devices/{d}"}}'], array.nbytes)
            self.assertEqual(now[f'octavo_buffer_replicas{{device="devices/{d}"}}'], 1)
        self.assertEqual(now["octavo_buffer_written_bytes_total"] - before["octavo_buffer_written_bytes_total"], array.nbytes)
        self.assertEqual(now["octavo_buffer_forwarded_bytes_total"] - before["octavo_buffer_forwarded_bytes_total"], array.nbytes)
        buffers.read(buffer.name, stacked=True)
        self.assertEqual(self.metrics()["octavo_buffer_read_bytes_total"] - now["octavo_buffer_read_bytes_total"], 2 * array.nbytes)
        with self.assertRaises(octavo.OctavoError):
            buffers.read("buffers/none")
        buffers.destroy(buffer.name)
        after = self.metrics()
        self.assertEqual(after['octavo_buffer_refusals_total{reason="NO_BUFFER"}'], 1)
        self.assertGreaterEqual(after['octavo_buffers_finished_total{reason="destroyed"}'], 1)
        self.assertEqual(after["octavo_buffers"], 0)


if __name__ == "__main__":
    unittest.main()
