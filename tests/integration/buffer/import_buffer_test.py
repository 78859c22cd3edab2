"""Memory of this process and of others as buffers of a daemon: in place, read only, and gone from the
daemon when the process that lends it is."""

import ctypes
import fcntl
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import harness
from handing import HandoffCase, ON_HOST, maps_of, same
from harness import until
import octavo
from octavo import lending, mapping, wire
from octavo.v1 import buffer_pb2, ingest_pb2, reason_pb2, types_pb2

m = wire.messages
SEED = int(os.environ.get("OCTAVO_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
GRANULE = 2 << 20
SEALS = lending.F_SEAL_SHRINK | lending.F_SEAL_FUTURE_WRITE
LENDER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import octavo
client = octavo.Client(sys.argv[2], client="lender")
array = octavo.shared_array((512, 1024), "f32")
array[:] = 7
lent = client.import_buffer(array)
print(json.dumps({"name": lent.name}), flush=True)
while True:
    array += 1
    lent.publish()
    output = lent.buffer.apply({"scale": {"multiply": 2}})
    client.buffers.destroy(output)
"""


class GpuMemory:
    """Memory of the first GPU of this process, with a descriptor, as a program with CUDA allocates it."""

    class Properties(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location_type", ctypes.c_int), ("location_id", ctypes.c_int),
                    ("meta", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]

    def __init__(self, size, uuid):
        self.cuda, self.size = mapping._cuda(), size
        ordinal = self.cuda.device(uuid)
        self.ordinal = ordinal
        self.cuda.enter(ordinal)
        try:
            handle, pointer, descriptor = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int()
            properties = self.Properties(type=1, handles=1, location_type=1, location_id=ordinal)
            self.cuda.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_uint64(0))
            self.cuda.call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, ctypes.c_int(1), ctypes.c_uint64(0))
            self.cuda.call("cuMemAddressReserve", ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
            self.cuda.call("cuMemMap", pointer, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
            self.cuda.call("cuMemSetAccess", pointer, ctypes.c_size_t(size), ctypes.byref(mapping._Access(mapping._Location(1, ordinal), 3)), ctypes.c_size_t(1))
            self.cuda.call("cuMemRelease", handle)
        finally:
            self.cuda.leave()
        self.pointer, self.descriptor = pointer.value, descriptor.value

    def write(self, array):
        data = np.ascontiguousarray(array)
        self.cuda.enter(self.ordinal)
        try:
            self.cuda.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.pointer), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))
            self.cuda.call("cuCtxSynchronize")
        finally:
            self.cuda.leave()

    def close(self):
        mapping._unmap_cuda(self.ordinal, self.pointer, self.size)
        os.close(self.descriptor)


class ImportCase(HandoffCase):
    def setUp(self):
        self.lenders = []

    def tearDown(self):
        for lender in self.lenders:
            lender.kill()
            lender.wait()
            lender.stdout.close()
        gc.collect()
        until(lambda: self.imports() == 0)
        super().tearDown()

    def imports(self):
        return self.metric("octavo_buffer_imports")

    def lender(self):
        self.lenders.append(subprocess.Popen([sys.executable, "-c", LENDER, os.path.join(harness.BUILD, "python"), self.daemon.address],
                                             stdout=subprocess.PIPE, text=True))
        return self.lenders[-1], json.loads(self.lenders[-1].stdout.readline())["name"]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def ticket_of(self, size=GRANULE, **fields):
        return self.client._call(self.client._ingest.ImportBuffer, ingest_pb2.ImportBufferRequest(
            type=types_pb2.ElementType(dtype=types_pb2.DTYPE_U8), shape=[size], **fields))

    def gone(self, name, text):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.buffers.get(name)
        self.assertEqual(caught.exception.reason, "NO_BUFFER")
        self.assertIn(text, str(caught.exception))


@unittest.skipUnless(ON_HOST, "memory files are memory of the host backend")
class HostMemoryTest(ImportCase):
    def test_an_array_is_a_buffer_in_place(self):
        array = octavo.shared_array((64, 128), "f32")
        array[:] = np.arange(64 * 128).reshape(64, 128)
        before = self.client.memory().devices[0]
        with self.client.import_buffer(array, labels={"eye": "OD"}) as lent:
            self.assertIs(lent.array, array)
            same(lent.buffer.read(), array)
            buffer, = self.client.buffers.list(filter='labels.eye = "OD"')
            self.assertEqual((buffer.name, buffer.charged_bytes, buffer.imported.mapped_bytes, buffer.imported.pid, buffer.imported.uid),
                             (lent.name, 0, array.nbytes, os.getpid(), os.getuid()))
            self.assertEqual(buffer.imported.kind, buffer_pb2.IMPORT_KIND_HOST_MEMFD)
            now = self.client.memory().devices[0]
            self.assertEqual((now.imported_bytes, now.buffer_bytes, now.free_bytes), (array.nbytes, before.buffer_bytes, before.free_bytes))
            self.assertEqual(self.metric('octavo_buffer_imported_bytes{device="devices/0"}'), array.nbytes)
            self.assertIn("memfd:octavo-lent", maps_of(self.daemon))
            # No copy was made: the next read sees what is written here.
            array[3] = -1
            self.assertEqual((lent.publish(), lent.version), (2, 2))
            same(self.client.buffers.read(lent.name, if_version=2), array)
            doubled = lent.buffer.apply({"scale": {"multiply": 2}})
            same(doubled.read(), array * 2)
            self.assertEqual(doubled.origin, lent.name)
            self.assertFalse(doubled.message.HasField("imported"))
        self.assertEqual(lent.ended, "RELEASED")
        self.assertNotIn("memfd:octavo-lent", maps_of(self.daemon))  # close() has waited for that
        self.gone(lent.name, "took it back")
        same(doubled.read(), array * 2)
        array[:] = 0  # still this process'

    def test_other_arrays_and_descriptors(self):
        plain = np.arange(60, dtype="u2").reshape(3, 20)
        with self.client.import_buffer(plain) as lent:  # a copy is lent
            lent.array[0] = 9
            self.assertEqual(plain[0, 1], 1)
            same(lent.buffer.read()[1:], plain[1:])
            self.assertEqual(lent.buffer.read()[0, 1], 9)
        colours = octavo.shared_array((4, 5, 3), "u8")
        with self.client.import_buffer(colours, lanes=3) as lent:
            self.assertEqual((list(lent.buffer.shape), lent.buffer.type.lanes), ([4, 5], 3))
        part = octavo.shared_array((4, 4), "f32")
        for wrong in (part[1:], part[:, 1:], part.T):
            with self.assertRaisesRegex(ValueError, "part of a shared_array"):
                self.client.import_buffer(wrong)
        with self.client.import_buffer(part[:2]) as lent:  # the beginning of the file
            self.assertEqual(list(lent.buffer.shape), [2, 4])
        descriptor = os.memfd_create("mine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, 8192)
            with self.assertRaises(octavo.HandoffError) as caught:
                self.client.import_buffer(descriptor, (2048,), "f32")
            self.assertEqual(caught.exception.reason, "IMPORT_NOT_SEALED")
            self.assertIn("F_SEAL_SHRINK", caught.exception.message)
            fcntl.fcntl(descriptor, lending.F_ADD_SEALS, SEALS)
            with self.client.import_buffer(descriptor, (2048,), "f32") as lent:
                self.assertFalse(lent.array.flags.writeable)  # it was sealed before it was mapped
                same(lent.array, np.zeros(2048, "f4"))
            with self.assertRaises(octavo.HandoffError) as caught:
                self.client.import_buffer(descriptor, (2047,), "f32")
            self.assertEqual(caught.exception.reason, "IMPORT_SIZE")
            with self.client.import_buffer(descriptor, (2047,), "f32", byte_size=8192) as lent:
                self.assertEqual(len(lent.buffer.read()), 2047)
        finally:
            os.close(descriptor)
        with self.assertRaisesRegex(ValueError, "shape and dtype are needed"):
            self.client.import_buffer(3)

    def test_the_server_only_reads_it(self):
        with self.client.import_buffer(octavo.shared_array((8, 8), "f32")) as lent:
            other = self.client.buffers.put(np.ones((8, 8), "f4"))
            self.refused("IMPORTED", "FAILED_PRECONDITION", lambda: self.client.buffers.write(lent.name, np.ones((8, 8), "f4")))
            self.refused("IMPORTED", "FAILED_PRECONDITION", lambda: self.client.buffers.apply(other, {"copy": {}}, output=lent.name))
            self.refused("IMPORTED", "FAILED_PRECONDITION", lambda: self.client.buffers.sync(lent.name, 0))
            with self.client.lease(lent.name, exclusive=True, seconds=10) as lease:
                self.refused("EXPORT_NOT_SHAREABLE", "FAILED_PRECONDITION", lambda: self.client.map(lent.name, lease=lease))
                lent.publish()
            same(lent.array, np.zeros((8, 8)))

    def test_requests_that_are_refused(self):
        self.refused("IMPORT_KIND", "INVALID_ARGUMENT", lambda: self.ticket_of(kind=buffer_pb2.IMPORT_KIND_CUDA_VMM))
        self.refused("IMPORT_SIZE", "INVALID_ARGUMENT", lambda: self.ticket_of(byte_size=100))
        self.refused("IMPORTS", "RESOURCE_EXHAUSTED", lambda: self.ticket_of(byte_size=1 << 40))
        self.refused("BAD_FIELD", "INVALID_ARGUMENT", lambda: self.ticket_of(device="devices/x"))
        self.refused("BAD_FIELD", "INVALID_ARGUMENT", lambda: self.ticket_of(device="devices/7"))
        self.refused("NO_SESSION", "NOT_FOUND", lambda: self.ticket_of(session_secret="00"))
        for path, flags in (("/dev/null", os.O_RDWR), ("/etc/hostname", os.O_RDONLY), (".", os.O_RDONLY)):
            descriptor = os.open(path, flags)
            try:
                with self.assertRaises(octavo.HandoffError) as caught:
                    lending.Loan((ticket := self.ticket_of()).socket_path, ticket.ticket, descriptor)
                self.assertEqual((caught.exception.reason, caught.exception.code), ("IMPORT_KIND", "INVALID_ARGUMENT"))
            finally:
                os.close(descriptor)

    def test_a_connection_lends_64_buffers(self):
        ticket = self.ticket_of(4096)
        file = lending.file_of(octavo.shared_array(4096, "u8"))
        with wire.connect(ticket.socket_path, m.PURPOSE_IMPORT, 30) as connection:
            connection.settimeout(30)
            answers = []
            for _ in range(66):
                wire.send(connection, m.ClientMessage(present=m.Present(ticket=self.ticket_of(4096).ticket)), [file.descriptor])
                answers.append(wire.receive(connection)[0])
            self.assertEqual([answer.refused.reason for answer in answers[64:]], ["IMPORTS"] * 2)
            self.assertTrue(all(answer.HasField("imported") for answer in answers[:64]))
            self.assertEqual(self.imports(), 64)
        until(lambda: self.imports() == 0)
        self.assertEqual([b for b in self.client.buffers.list() if b.message.HasField("imported")], [])

    def test_how_it_ends_and_who_hears_of_it(self):
        first = self.client.buffers.put(np.zeros(1, np.uint8))
        events = self.client.buffers.watch()
        self.assertEqual(next(events).buffer.name, first.name)  # the watch has begun
        lent = self.client.import_buffer(octavo.shared_array(100, "u8"))
        self.client.buffers.destroy(lent.name)
        until(lambda: lent.ended == "DESTROYED")
        with self.assertRaises(octavo.HandoffError) as caught:
            lent.publish()
        self.assertEqual(caught.exception.reason, "NO_BUFFER")
        lent.close()
        session = self.client.session("lender")
        lent = self.client.import_buffer(octavo.shared_array(100, "u8"), session=session)
        self.assertEqual(lent.buffer.imported.session, session.name)
        session.close()
        until(lambda: lent.ended == "SESSION_ENDED")
        self.gone(lent.name, session.name)
        last = self.client.import_buffer(octavo.shared_array(100, "u8"), ttl=3600)
        name = last.name
        last.publish()
        del lent, last  # as if the process had forgotten it
        gc.collect()
        until(lambda: self.imports() == 0)
        self.gone(name, "has gone")
        codes, texts = [], []
        for event in events:
            if event.kind == buffer_pb2.WatchBuffersResponse.KIND_GONE:
                codes.append(int(event.reason_code))
                texts.append(event.text)
            if len(texts) == 3:
                break
        self.client.buffers.destroy(first.name)
        self.assertEqual(codes, [reason_pb2.REASON_DESTROYED, reason_pb2.REASON_REVOKED, reason_pb2.REASON_REVOKED])
        self.assertEqual([words in text for words, text in zip(("destroyed", session.name, "has gone"), texts)], [True] * 3, texts)

    def test_a_lease_keeps_readers_off_while_the_bytes_change(self):
        array = octavo.shared_array((256, 256), "f32")
        with self.client.import_buffer(array) as lent:
            with self.client.lease(lent.name, exclusive=True, seconds=30):
                with self.assertRaises(octavo.OctavoError) as caught:
                    lent.buffer.read()
                self.assertEqual(caught.exception.reason, "LEASED")
                self.client.buffers.wait(lent.name)
                array[:] = 5
                version = lent.publish()
            same(self.client.buffers.read(lent.name, if_version=version), array)

    def test_a_killed_client_leaves_nothing(self):
        random.seed(SEED)
        print(f"OCTAVO_TEST_SEED={SEED}")
        self.client.buffers.list()
        before = self.descriptors()
        for _ in range(8):
            process, name = self.lender()
            self.assertEqual(self.client.buffers.get(name).imported.pid, process.pid)
            self.assertIn("memfd:octavo-lent", maps_of(self.daemon))
            time.sleep(random.random() * 0.3)  # it publishes and applies meanwhile
            process.kill()
            process.wait()
            until(lambda: self.imports() == 0)
            self.gone(name, "has gone")
            self.assertNotIn("memfd:octavo-lent", maps_of(self.daemon))
        for buffer in self.client.buffers.list():  # what it made is charged as ever
            self.client.buffers.destroy(buffer.name)
        until(lambda: self.descriptors() <= before)
        self.assertIsNone(self.daemon.process.poll())

    def test_a_killed_client_while_others_read(self):
        process, name = self.lender()
        end, errors = time.monotonic() + 1, set()
        while time.monotonic() < end + 20:
            if process.poll() is None and time.monotonic() > end:
                process.kill()
                process.wait()
            try:
                self.client.buffers.read(name)
                self.client.buffers.destroy(self.client.buffers.apply(name, {"mip": {"axis": 0}}))
            except octavo.OctavoError as error:
                errors.add(error.reason)
                if error.reason == "NO_BUFFER":
                    break
        self.assertIn("NO_BUFFER", errors)
        self.assertLessEqual(errors, {"NO_BUFFER", "LEASED", "LEASE_LOST", "LOST"})


class OwnDaemonTest(unittest.TestCase):
    def test_the_memory_outlives_the_daemon(self):
        daemon = harness.Daemon("--handoff.unix", "auto", "--device.backend", "host")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            array = octavo.shared_array(1000, "u8")
            lent = client.import_buffer(array)
            daemon.kill()
            until(lambda: lent.ended == "SERVER_GONE")
            with self.assertRaises(octavo.HandoffError):
                lent.publish()
            lent.close()
            array[:] = 3

    def test_a_daemon_that_drains_ends_them(self):
        daemon = harness.Daemon("--handoff.unix", "auto", "--device.backend", "host")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            lent = client.import_buffer(octavo.shared_array(1000, "u8"))
            self.assertEqual(daemon.stop(), 0)
            self.assertEqual(lent.ended, "SERVER_GONE")

    def test_a_daemon_without_the_socket(self):
        with tempfile.TemporaryDirectory():
            daemon = harness.Daemon("--handoff.unix", "none", "--device.backend", "host")
            self.addCleanup(daemon.remove)
            with daemon.client() as client, self.assertRaises(octavo.OctavoError) as caught:
                client.import_buffer(octavo.shared_array(1000, "u8"))
            self.assertEqual(caught.exception.reason, "HANDOFF_DISABLED")


@unittest.skipIf(ON_HOST, "memory of a GPU")
class GpuMemoryTest(ImportCase):
    def memory(self, size=GRANULE):
        made = GpuMemory(size, self.client.devices()[0].uuid)
        self.addCleanup(made.close)
        return made

    def test_memory_of_a_gpu_is_a_buffer_in_place(self):
        memory, values = self.memory(), np.arange(GRANULE // 4, dtype="f4").reshape(512, 1024)
        memory.write(values)
        with self.client.import_buffer(memory.descriptor, (512, 1024), "f32") as lent:
            self.assertIsNone(lent.array)
            self.assertEqual((lent.buffer.imported.kind, lent.buffer.charged_bytes), (buffer_pb2.IMPORT_KIND_CUDA_VMM, 0))
            same(lent.buffer.read(), values)
            memory.write(values + 1)
            lent.publish()
            same(lent.buffer.apply({"scale": {"multiply": 2}}).read(), (values + 1) * 2)
            self.assertEqual(self.client.memory().devices[0].imported_bytes, GRANULE)
        self.assertEqual(lent.ended, "RELEASED")

    def test_what_a_gpu_does_not_take(self):
        error = self.refused("IMPORT_KIND", "INVALID_ARGUMENT", lambda: self.ticket_of(kind=buffer_pb2.IMPORT_KIND_HOST_MEMFD))
        self.assertIn("takes CUDA_VMM", str(error))
        self.refused("IMPORT_SIZE", "INVALID_ARGUMENT", lambda: self.ticket_of(byte_size=GRANULE + 4096))
        for size, memory in ((GRANULE, lending.file_of(octavo.shared_array(GRANULE, "u8")).descriptor), (2 * GRANULE, self.memory().descriptor)):
            with self.assertRaises(octavo.HandoffError) as caught:
                lending.Loan((ticket := self.ticket_of(size)).socket_path, ticket.ticket, memory)
            self.assertEqual(caught.exception.reason, "IMPORT_KIND" if size == GRANULE else "IMPORT_SIZE", caught.exception)


if __name__ == "__main__":
    unittest.main()
