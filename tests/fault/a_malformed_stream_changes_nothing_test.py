"""Streams that clients write wrongly: WriteBuffer, Push and PushProjections. Every case is sent byte for byte. The server refuses
it with a reason or ends it with the connection, what others see stays as it was, the daemon goes on, and it keeps no memory."""

import gc
import os
import queue
import unittest

import grpc
import numpy as np

from harness import DaemonTest, octavo, until
from octavo.v1 import buffer_pb2, ingest_pb2, job_pb2, reason_pb2, scan_pb2, tomography_pb2, types_pb2
from pushing import CuttingProxy, RawStream

RESET, CUT = "reset", "cut"  # how a stream ends that the server does not refuse
MIB = 1 << 20
ROUNDS = int(os.environ.get("OCTAVO_MALFORMED_ROUNDS", "3"))  # of all cases, for the memory


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def unknown(size, field=99):
    """An unknown field of `size` bytes."""
    return varint(field << 3 | 2) + varint(size) + bytes(size)


def checksum(data):
    """CRC32C, bit by bit over a table."""
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


class Streams(DaemonTest):
    """A stream of raw messages to one method."""

    flags = ("--device.host_devices", "2")

    def stream(self, path, messages, end, address=None, wait=lambda answer: False):
        """Sends the messages and then ends: None = half-close, RESET or CUT. Returns (code, reason, field), or None if the call succeeds. `wait(answer)`: the
        messages behind the first one are sent when it is true of an answer."""
        proxy = CuttingProxy(self.daemon.address) if end == CUT else None
        channel = grpc.insecure_channel(proxy.address if proxy else self.daemon.address, options=[("grpc.use_local_subchannel_pool", 1)])
        to_send = queue.Queue()
        unary = path.endswith("/WriteBuffer")
        method = (channel.stream_unary if unary else channel.stream_stream)(path, request_serializer=lambda b: b, response_deserializer=lambda b: b)
        sent = [0]

        def requests():
            while (one := to_send.get()) is not None:
                sent[0] += 1
                yield one
        call = method.future(requests(), timeout=100) if unary else method(requests(), timeout=100)
        error = None
        try:
            for message in messages[:1]:
                to_send.put(message)
            if not unary and messages:
                for answer in call:
                    if wait(answer):
                        break
            for message in messages[1:]:
                to_send.put(message)
            if end is None:
                to_send.put(None)
            else:
                until(lambda: sent[0] == len(messages))
                if end == RESET:
                    call.cancel()
                else:
                    proxy.cut()
            if unary:
                call.result()
            else:
                for _ in call:
                    pass
        except grpc.FutureCancelledError:
            error = ("CANCELLED", "", "")
        except grpc.RpcError as caught:
            told = octavo.errors.from_rpc_error(caught)
            error = (told.code.name, told.reason, told.field)
        finally:
            to_send.put(None)
            call.cancel()
            channel.close()
            if proxy:
                proxy.close()
        return error

    def resident(self):
        with open(f"/proc/{self.daemon.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) << 10

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def memory(self):
        return [(d.used_bytes, d.held_bytes, d.reserved_bytes) for d in self.client.devices()]

    def run_cases(self, path, cases, state, wait=lambda answer: False):
        """cases: (what, messages, end, code, reason). Each leaves `state()` as it was."""
        before, memory = state(), self.memory()
        for round_ in range(ROUNDS + 1):
            for what, messages, end, code, reason in cases:
                with self.subTest(what):
                    error = self.stream(path, messages, end, wait=wait)
                    self.assertIsNotNone(error, "it was taken")
                    if end is None:
                        self.assertEqual(error[:2], (code, reason), error)
                        if round_ == 0:
                            print(f"{path.split('/')[-1]:<16} {what:<44} {error[0]:<20} {error[1]} {error[2]}")
                    until(lambda: state() == before)
            if round_ == 0:  # what the first round has made stays: threads' stacks, caches of the allocator
                gc.collect()
                resident, descriptors = self.resident(), self.descriptors()
        until(lambda: self.memory() == memory)
        until(lambda: self.descriptors() <= descriptors + 2)
        self.assertLess(self.resident() - resident, 96 * MIB)
        self.assertEqual(self.client.leases(), [])
        self.assertTrue(self.client.health())


class WriteBuffer(Streams):
    def test_refused_writes_change_nothing(self):
        array = np.arange(2 * MIB // 4, dtype="<u4")
        buffer = self.client.buffers.put(array)
        self.addCleanup(self.client.buffers.destroy, buffer.name)
        request, header = buffer_pb2.WriteBufferRequest, buffer_pb2.WriteBufferRequest.Header
        volume = self.client.volumes(self.client.wait(self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256).name).name)[0]

        def head(**fields):
            return request(header=header(**{"name": buffer.name, "total_bytes": 2 * MIB, **fields})).SerializeToString()

        def data(size=MIB, fill=b"\x55"):
            return request(data=fill * size).SerializeToString()

        u4 = types_pb2.ElementType(dtype=types_pb2.DTYPE_U32)
        whole = [data(), data()]
        right = checksum(b"\x55" * 1024)
        cases = [
            ("no message", [], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("data before the header", [data(), *whole], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("the header twice", [head(), head(), *whole], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("the header between the data", [head(), data(), head(), data()], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("header and data in one message", [head() + data(4), *whole], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("an empty message", [head(), b"", *whole], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("a message with empty data", [head(), b"\x12\x00", *whole], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("a message that does not parse", [head(), b"\x12\xff\xff\xff\xff\x0f", *whole], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("a header that does not parse", [b"\x0a\x7f\x01", *whole], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("a field behind the data", [head(), data() + unknown(8), data()], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("more bytes than announced", [head(), *whole, data(4)], None, "INVALID_ARGUMENT", "PROTOCOL"),
            ("fewer bytes than announced", [head(), data()], None, "INVALID_ARGUMENT", "SHORT_STREAM"),
            ("the header alone", [head()], None, "INVALID_ARGUMENT", "SHORT_STREAM"),
            ("a message above 1 MiB", [head(), data(MIB + 4)], None, "INVALID_ARGUMENT", "BAD_FIELD"),
            ("a wrong checksum", [head(crc32c=1), *whole], None, "DATA_LOSS", "CHECKSUM"),
            ("one wrong bit", [head(total_bytes=1024, crc32c=right), request(data=b"\x55" * 1023 + b"\x54").SerializeToString()], None, "DATA_LOSS", "CHECKSUM"),
            ("beyond the buffer's end", [head(byte_offset=4), *whole], None, "OUT_OF_RANGE", "BAD_RANGE"),
            ("an offset that overflows", [head(byte_offset=2 ** 64 - 4), *whole], None, "OUT_OF_RANGE", "BAD_RANGE"),
            ("bytes that overflow", [head(total_bytes=2 ** 64 - 4), *whole], None, "OUT_OF_RANGE", "BAD_RANGE"),
            ("half an element", [head(total_bytes=2 * MIB - 2), data(), data(MIB - 2)], None, "INVALID_ARGUMENT", "MISALIGNED"),
            ("an offset within an element", [head(byte_offset=2, total_bytes=8), data(8)], None, "INVALID_ARGUMENT", "MISALIGNED"),
            ("another type", [head(type=types_pb2.ElementType(dtype=types_pb2.DTYPE_F32), shape=[2 * MIB // 4]), *whole], None, "INVALID_ARGUMENT", "TYPE_MISMATCH"),
            ("another shape", [head(type=u4, shape=[2, MIB // 4]), *whole], None, "INVALID_ARGUMENT", "SHAPE_MISMATCH"),
            ("another version", [head(if_version=99), *whole], None, "ABORTED", "VERSION"),
            ("a replica that there is not", [head(target=buffer_pb2.BufferTarget(replica=9)), *whole], None, "OUT_OF_RANGE", "BAD_REPLICA"),
            ("a lease that there is not", [head(lease_token="0" * 32), *whole], None, "FAILED_PRECONDITION", "LEASE_LOST"),
            ("a buffer that there is not", [head(name="buffers/none"), *whole], None, "NOT_FOUND", "NO_BUFFER"),
            ("a volume", [head(name=volume.name), *whole], None, "FAILED_PRECONDITION", "SEALED"),
            ("cancelled after the header", [head()], RESET, "", ""),
            ("cancelled midway", [head(), data()], RESET, "", ""),
            ("the connection cut after the header", [head()], CUT, "", ""),
            ("the connection cut midway", [head(), data()], CUT, "", ""),
        ]

        def state():
            try:
                now = self.client.buffers.get(buffer.name)
                same = np.array_equal(self.client.buffers.read(buffer.name), array)
            except octavo.OctavoError as error:  # until the lease of a stream that broke has ended
                return error.reason
            return now.message.state, [(r.index, r.version) for r in now.message.replicas], same
        self.assertTrue(state()[-1])
        self.run_cases("/octavo.v1.BufferService/WriteBuffer", cases, state)
        # Unknown fields are no error: a newer client may send them. Beyond the limit of messages, gRPC refuses.
        path = "/octavo.v1.BufferService/WriteBuffer"
        self.assertIsNone(self.stream(path, [unknown(100) + head(total_bytes=4, crc32c=checksum(b"\0\0\0\0")), unknown(64 << 10) + data(4, b"\0")], None))
        self.assertTrue(np.array_equal(self.client.buffers.read(buffer.name), array))  # element 0 is 0
        for messages in ([unknown(12 * MIB) + head(), *whole], [head(), unknown(12 * MIB) + data()]):
            self.assertEqual(self.stream(path, messages, None), ("RESOURCE_EXHAUSTED", "", ""))
        until(lambda: state()[-1] is True)  # gRPC answers before the handler gives back its lease


class Push(Streams):
    SAMPLES, VOLUME = 64, 16 * 8

    def test_refused_records_do_not_count(self):
        scan = self.client.submit_scan(octavo.push(idle_timeout=-1), octavo.raster(16, 8, volumes=1), samples=self.SAMPLES, acquisition=dict(records_per_block=64)).name
        other = self.client.submit_scan(octavo.ring(idle_timeout=-1), octavo.raster(16, 8, volumes=1), samples=self.SAMPLES).name
        self.addCleanup(self.client.cancel, other)

        def hello(**fields):
            return ingest_pb2.PushRequest(**{"scan": scan, **fields}).SerializeToString()

        def block(first=0, records=4, size=None, **fields):
            return ingest_pb2.PushRequest(first_record=first, records=records, data=bytes(records * 128 if size is None else size), **fields).SerializeToString()

        bad = "INVALID_ARGUMENT"
        cases = [
            ("no message", [], None, bad, "PROTOCOL"),
            ("records before the scan's name", [block()], None, bad, "BAD_FIELD"),
            ("an empty name", [hello(scan="")], None, bad, "BAD_FIELD"),
            ("a scan that there is not", [hello(scan="scans/none")], None, "NOT_FOUND", "NO_SCAN"),
            ("a scan that takes no records", [hello(scan=other)], None, "FAILED_PRECONDITION", "NOT_PUSH"),
            ("records in the first message", [hello(records=1, data=bytes(128))], None, bad, "BAD_FIELD"),
            ("another number of samples", [hello(samples_per_record=128)], None, bad, "BAD_FIELD"),
            ("another type", [hello(raw_type=scan_pb2.RAW_TYPE_F32)], None, bad, "BAD_FIELD"),
            ("the name twice", [hello(), hello()], None, bad, "BAD_FIELD"),
            ("too few bytes", [hello(), block(size=511)], None, bad, "BAD_FIELD"),
            ("too many bytes", [hello(), block(size=513)], None, bad, "BAD_FIELD"),
            ("bytes without records", [hello(), block(records=0, size=128)], None, bad, "BAD_FIELD"),
            ("a block above its largest size", [hello(), block(records=65)], None, bad, "BAD_FIELD"),
            ("a marker without a name", [hello(), block(markers=[ingest_pb2.PushMarker(record=1)])], None, bad, "BAD_FIELD"),
            ("a marker beyond the scan", [hello(), ingest_pb2.PushRequest(markers=[ingest_pb2.PushMarker(name="x", record=10 ** 9)]).SerializeToString()], None, bad, "BAD_FIELD"),
            ("a message that does not parse", [hello(), b"\x42\x7f\x01"], None, bad, "PROTOCOL"),
            ("a field behind the data", [hello(), block() + unknown(8)], None, bad, "PROTOCOL"),
            ("a first message that does not parse", [b"\x0a\x7f\x01"], None, bad, "PROTOCOL"),
            ("more than the credit", [hello(), *[block(size=512)] * 200, block(size=1)], None, "RESOURCE_EXHAUSTED", "CREDIT_EXCEEDED"),
            ("cancelled after the name", [hello()], RESET, "", ""),
            ("the connection cut after the name", [hello()], CUT, "", ""),
        ]

        def state():
            now = self.client.scan(scan)
            # `connected`: while the server still has the stream before, it refuses the next one as a second client.
            return now.state, now.volumes_done, now.missing_ascans, now.source.records, now.source.ignored_markers, now.source.connected
        path = "/octavo.v1.IngestService/Push"
        wait = lambda answer: ingest_pb2.PushResponse.FromString(answer).credit > 0
        credit = [case for case in cases if case[4] == "CREDIT_EXCEEDED"]
        self.run_cases(path, [case for case in cases if case not in credit], state, wait)
        # Records that the server took before a stream went wrong count once, whoever sends them again.
        first = self.stream(path, [hello(), block(0, 64), block(64, 4, size=1)], None, wait=wait)
        self.assertEqual(first[:2], (bad, "BAD_FIELD"))
        until(lambda: self.client.scan(scan).source.records == 64)  # counted when the scan takes them, not when they arrive
        for end in (RESET, CUT):
            until(lambda: not self.client.scan(scan).source.connected)
            self.stream(path, [hello(), block(0, 64)], end, wait=wait)
        until(lambda: not self.client.scan(scan).source.connected)
        end = self.client.push(scan, [np.zeros((self.VOLUME, self.SAMPLES), "<u2")])
        self.assertTrue(end.done)
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.missing_ascans, end.volumes_done), (reason_pb2.REASON_COMPLETED, 0, 1))
        self.assertEqual(self.stream(path, [hello()], None), None)  # a scan that wants no more: OK


class PushProjections(Streams):
    ROWS, COLUMNS, FRAMES = 2, 32, 12

    def test_refused_rows_do_not_count(self):
        name = self.client.submit_job(job_pb2.JobSpec(tomography=tomography_pb2.TomographyJob(
            push=ingest_pb2.PushedProjections(rows=self.ROWS, columns=self.COLUMNS, frames=self.FRAMES, dtype=types_pb2.DTYPE_F32, credit_messages=4),
            preparation=tomography_pb2.TomographyPreparation(logarithm=False)))).name
        raw = self.raw()
        ended = self.client.wait_job(self.client.submit_job(octavo.dispersion_autofocus(raw, ascans=4, only_a2=True)).name, check=False).name

        def hello(**fields):
            return ingest_pb2.PushProjectionsRequest(**{"job": name, **fields}).SerializeToString()

        def rows(sequence=0, count=2, size=None, **fields):
            return ingest_pb2.PushProjectionsRequest(sequence=sequence, rows=count, data=bytes(count * self.COLUMNS * 4 if size is None else size), **fields).SerializeToString()

        bad = "INVALID_ARGUMENT"
        cases = [
            ("no message", [], None, bad, "PROTOCOL"),
            ("rows before the job's name", [rows()], None, bad, "BAD_FIELD"),
            ("an empty name", [hello(job="")], None, bad, "BAD_FIELD"),
            ("a job that there is not", [hello(job="jobs/none")], None, "NOT_FOUND", "NO_JOB"),
            ("a job that has ended", [hello(job=ended)], None, "FAILED_PRECONDITION", "JOB_STATE"),
            ("rows in the first message", [hello(rows=2, data=bytes(256))], None, bad, "BAD_FIELD"),
            ("the name twice", [hello(), hello()], None, bad, "BAD_FIELD"),
            ("an empty message", [hello(), b""], None, bad, "BAD_FIELD"),
            ("too few bytes", [hello(), rows(size=255)], None, bad, "BAD_FIELD"),
            ("too many bytes", [hello(), rows(size=257)], None, bad, "BAD_FIELD"),
            ("bytes of a smaller type", [hello(), rows(size=128)], None, bad, "BAD_FIELD"),
            ("bytes without rows", [hello(), rows(count=0, size=128)], None, bad, "BAD_FIELD"),
            ("more rows than a frame has", [hello(), rows(count=3)], None, bad, "BAD_FIELD"),
            ("a row beyond the frame", [hello(), rows(first_row=2, count=1)], None, bad, "BAD_FIELD"),
            ("rows whose sum overflows", [hello(), rows(first_row=2 ** 32 - 1, count=2)], None, bad, "BAD_FIELD"),
            ("an angle that is no number", [hello(), rows(angle_rad=float("nan"))], None, bad, "BAD_FIELD"),
            ("an infinite angle", [hello(), rows(angle_rad=float("inf"))], None, bad, "BAD_FIELD"),
            ("a kind that there is not", [hello(), rows(kind=9)], None, bad, "BAD_FIELD"),
            ("a message that does not parse", [hello(), b"\x42\x7f\x01"], None, bad, "PROTOCOL"),
            ("a field behind the data", [hello(), rows() + unknown(8)], None, bad, "PROTOCOL"),
            ("a first message that does not parse", [b"\x0a\x7f\x01"], None, bad, "PROTOCOL"),
            ("cancelled after the name", [hello()], RESET, "", ""),
            ("the connection cut after the name", [hello()], CUT, "", ""),
            ("cancelled within a frame", [hello(), rows(count=1)], RESET, "", ""),
            ("the connection cut within a frame", [hello(), rows(count=1)], CUT, "", ""),
        ]

        def state():
            now, job = self.pushed(name), self.client.job(name)
            return job.state, list(job.volume_names), now.frames, now.missing_frames, now.duplicate_frames
        path = "/octavo.v1.IngestService/PushProjections"
        wait = lambda answer: ingest_pb2.PushProjectionsResponse.FromString(answer).credit > 0
        self.run_cases(path, cases, state, wait)
        # A sequence number past the frames, and rows out of their order, are counted and ignored.
        before = self.pushed(name).out_of_range_frames
        self.stream(path, [hello(), rows(sequence=self.FRAMES), rows(sequence=2 ** 64 - 1)], RESET, wait=wait)
        until(lambda: self.pushed(name).out_of_range_frames >= before + 2)
        self.assertEqual(self.pushed(name).frames, 0)
        # The job takes all frames afterwards, and they make a volume.
        angles = np.arange(self.FRAMES) * np.pi / self.FRAMES
        self.client.push_projections(name, octavo.projection_frames(np.ones((self.FRAMES, self.ROWS, self.COLUMNS), "<f4"), angles))
        end = self.client.wait_job(name)
        self.assertEqual((end.reason_code, len(end.volume_names)), (reason_pb2.REASON_COMPLETED, 1))

    def pushed(self, name):
        """What the job has received, as the first answer to a new connection says."""
        stream = RawStream(self.daemon.address, "PushProjections", ingest_pb2.PushProjectionsRequest(job=name))
        try:
            return stream.until(lambda answer: True).status
        finally:
            stream.close()

    def raw(self):
        scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 1, volumes=1), samples=256, retention=dict(hold_raw=True))
        self.client.wait(scan.name)
        return next(volume.name for volume in self.client.volumes(scan.name) if volume.raw)


if __name__ == "__main__":
    unittest.main()
