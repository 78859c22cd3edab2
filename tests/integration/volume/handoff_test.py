"""The server's memory in other processes: tickets, mappings, revocation, detached memory, and the
death of either side (T16, T17)."""

import os
import unittest

import numpy as np

import harness
from handing import HandoffCase, Mapper, ON_HOST, maps_of, same
from harness import seconds_until, until
import octavo
from octavo import mapping, wire
from octavo.v1 import scan_pb2

GRANULE = 2 << 20


class HandoffTest(HandoffCase):
    flags = HandoffCase.flags + ("--device.slot_cache_bytes", "0")

    def setUp(self):
        self.alive = []

    def tearDown(self):
        for mapper in self.alive:
            mapper.kill()
        super().tearDown()

    def scan(self, volumes=1, **fields):
        scan = self.submit(volumes, **fields)
        self.client.wait(scan.name)
        return self.client.volumes(scan.name)

    def mapper(self, ticket, uid=None):
        self.alive.append(Mapper(ticket, uid))
        return self.alive[-1]

    def sent(self):
        return self.metric("octavo_export_descriptors_sent_total")

    def test_a_volume_is_an_array_without_a_copy(self):
        volume, = self.scan()
        array = self.client.map(volume.name)
        same(array, self.client.read(volume.name))
        mapped = mapping.owner(array)
        self.assertEqual((mapped.of, mapped.digest, mapped.kind), (volume.name, volume.digest, "HOST_MEMFD" if ON_HOST else "CUDA_VMM"))
        export, = self.client.exports(filter=f'resource = "{volume.name}"')
        self.assertEqual((export.state, export.uid, export.pid, export.mapped_bytes), (export.STATE_OPEN, os.getuid(), os.getpid(), GRANULE))
        self.assertIn('octavo_exports{state="open"} 1', self.page())
        del array, mapped
        until(lambda: not self.client.exports())

    @unittest.skipUnless(ON_HOST, "arrays of NumPy")
    def test_views_keep_the_memory_and_cannot_write(self):
        volume, = self.scan()
        array = self.client.map(volume.name)
        self.assertFalse(array.flags.writeable)
        with self.assertRaises(ValueError):
            array.flags.writeable = True
        self.assertEqual(mapping.owner(array[1:, ::2]).of, volume.name)
        view = array[3]
        del array
        self.assertEqual(len(self.client.exports()), 1)
        del view
        until(lambda: not self.client.exports())

    def test_dlpack(self):
        volume, = self.scan()
        array = self.client.map(volume.name)
        if ON_HOST:
            try:
                again = np.from_dlpack(mapping.owner(array))
            except (AttributeError, TypeError, BufferError, ValueError) as error:  # NumPy before 1.23, or one that requires writable memory
                self.skipTest(f"NumPy {np.__version__}: {error}")
            same(again, array)
        else:
            import cupy
            again = cupy.from_dlpack(array)
            self.assertEqual(again.data.ptr, array.pointer)
            same(cupy.asnumpy(again[:, ::2]), array.copy()[:, ::2])
        del array
        self.assertEqual(len(self.client.exports()), 1)  # DLPack's consumer keeps the memory
        del again
        until(lambda: not self.client.exports())

    def test_capsules_that_nobody_takes(self):
        volume, = self.scan()
        mapped = mapping.owner(self.client.map(volume.name))
        capsule, other = mapped.__dlpack__(), mapped.__dlpack__(max_version=(1, 0))
        del mapped, other
        self.assertEqual(len(self.client.exports()), 1)  # the capsule keeps the memory
        del capsule
        until(lambda: not self.client.exports())

    @unittest.skipUnless(ON_HOST, "arrays of NumPy")
    def test_a_consumer_lets_go_while_an_exception_is_on_its_way(self):
        volume, = self.scan()
        mapped = mapping.owner(self.client.map(volume.name))
        mapped.writable = True  # NumPy requires this with DLPack's first version
        for _ in range(100):
            with self.assertRaises(NameError):
                np.from_dlpack(mapped) + undefined_name  # noqa: F821
        del mapped
        until(lambda: not self.client.exports())

    def test_a_consumer_that_cannot_use_it(self):
        volume, = self.scan()
        mapped = mapping.owner(self.client.map(volume.name))
        mapped.device = (2, 0)  # also on the host backend: NumPy accepts no memory of a GPU
        with self.assertRaisesRegex((BufferError, RuntimeError), "[Dd]evice"):
            np.from_dlpack(mapped)
        with self.assertRaisesRegex(TypeError, r"copy\(\) makes a NumPy array"):
            np.asarray(mapped)
        same(mapped.copy(), self.client.read(volume.name))
        del mapped
        until(lambda: not self.client.exports())

    def test_a_later_volume_in_a_mapped_slot_sends_no_descriptor(self):
        first, = self.scan()
        array = self.client.map(first.name)
        memory, generation = mapping.owner(array).memory, mapping.owner(array).generation
        connection = self.client._handoff
        sent = self.sent()
        # The same volume again: it has the same generation of the same memory.
        twice = self.client.map(first.name)
        self.assertEqual((mapping.owner(twice).memory, mapping.owner(twice).generation), (memory, generation))
        self.assertEqual(mapping.owner(twice).pointer, mapping.owner(array).pointer)
        del array, twice
        until(lambda: not self.client.exports())
        self.assertIs(self.client._handoff, connection)
        self.assertEqual(self.sent(), sent)

    def test_a_slot_is_used_again_only_when_it_was_given_back(self):
        # The ring of a live scan would overwrite the volume, so it must be held first.
        scan = self.client.submit_scan(octavo.simulated(seed=3), octavo.raster(32, 16, volumes=0), samples=256, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=1))
        until(lambda: any(v.state == 2 for v in self.client.volumes(scan.name)))
        # The test holds it at once, before the ring returns to its slot.
        for _ in range(100):
            try:
                held = self.client.hold(self.client.volumes(scan.name, states=[2])[-1].name)
                break
            except octavo.OctavoError:
                pass
        array = self.client.map(held.name)
        before = array.copy()
        done = self.client.scan(scan.name).volumes_done
        until(lambda: self.client.scan(scan.name).volumes_done > done + 20)  # the engine does not wait
        same(array, before)
        seen = self.client.read(held.name)
        same(array, seen)
        self.refused("EXPORTED", "FAILED_PRECONDITION", lambda: self.client.discard(held.name))
        self.refused("EXPORTED", "FAILED_PRECONDITION", lambda: self.client.release(held.name))
        with self.client.lease(held.name, seconds=60):
            self.refused("LEASED", "ABORTED", lambda: self.client.discard(held.name, detach_exports=True))
        self.refused("EXPORTED", "FAILED_PRECONDITION", lambda: self.client.discard(held.name))  # a refusal detaches nothing
        self.client.discard(held.name, detach_exports=True)
        self.assertEqual(self.detached() // GRANULE, 1)
        done = self.client.scan(scan.name).volumes_done
        until(lambda: self.client.scan(scan.name).volumes_done > done + 20)
        same(array, before)  # no process has written to it
        generation, memory = mapping.owner(array).generation, mapping.owner(array).memory
        self.client.unmap(array)
        until(lambda: self.detached() == 0)
        # The slot is in the ring again. Mapping the next volume held in it takes one message.
        found = False
        for _ in range(200):
            try:
                held = self.client.hold(self.client.volumes(scan.name, states=[2])[-1].name)
            except (octavo.OctavoError, IndexError):
                continue
            later = self.client.map(held.name)
            if mapping.owner(later).memory == memory:
                found = True
                self.assertGreater(mapping.owner(later).generation, generation)
            same(later, self.client.read(held.name))
            self.client.unmap(later)
            self.client.discard(held.name, detach_exports=True)
            if found:
                break
        self.assertTrue(found)
        self.client.stop(scan.name)
        self.client.wait(scan.name)

    def test_an_unheld_volume_of_a_ring(self):
        scan = self.client.submit_scan(octavo.simulated(seed=3), octavo.raster(32, 16, volumes=0), samples=256, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE))
        until(lambda: self.client.volumes(scan.name, states=[2]))
        reasons = set()
        for _ in range(20):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.ticket(self.client.volumes(scan.name)[-1].name)
            reasons.add(caught.exception.reason)
        self.assertLessEqual(reasons, {"EXPORT_NOT_HELD", "EXPORT_NOT_SEALED", "VOLUME_GONE"})

    def test_a_client_that_is_killed_gives_back(self):
        volume, = self.scan()
        expected = int(self.client.read(volume.name).sum(dtype=np.int64))
        mapper = self.mapper(self.ticket(volume.name))
        self.assertEqual(mapper.first["sum"], expected)
        error = self.refused("EXPORTED", "FAILED_PRECONDITION", lambda: self.client.discard(volume.name))
        self.assertEqual((error.numbers["exports"], error.numbers["uids"]), ("1", str(os.getuid())))
        self.refused("EXPORTED", "FAILED_PRECONDITION", lambda: self.client.spill(volume.name, "host"))
        self.client.discard(volume.name, detach_exports=True)
        self.assertEqual(self.detached() // GRANULE, 1)
        export, = self.client.exports(filter=f'resource = "{volume.name}"')
        self.assertTrue(export.detached)
        self.assertIn("octavo_exports", self.page())
        self.assertNotIn("octavo_export_detached_bytes 0\n", self.page())
        self.assertEqual(mapper.again()["sum"], expected)
        mapper.kill()
        until(lambda: self.detached() == 0)
        self.assertEqual(self.client.memory().devices[0].held_bytes, 0)
        self.assertFalse(self.client.exports())

    def test_a_commit_leaves_the_memory_to_who_maps_it(self):
        volume, = self.scan()
        mapper = self.mapper(self.ticket(volume.name))
        self.client.commit(volume.name, f"exported-{os.getpid()}", format="npy")
        self.assertGreater(self.detached(), 0)
        self.assertEqual(mapper.again()["sum"], mapper.first["sum"])
        mapper.kill()
        until(lambda: self.detached() == 0)

    def test_tickets(self):
        volume, = self.scan()
        ticket = self.ticket(volume.name)
        self.assertEqual((ticket.byte_size, ticket.mapped_bytes, len(ticket.ticket)), (volume.bytes, GRANULE, 32))
        self.assertAlmostEqual(seconds_until(ticket.expire_time), 30, delta=5)
        self.assertEqual(list(ticket.shape), list(volume.shape))
        self.assertEqual(self.client.exports()[0].state, 1)
        self.mapper(ticket)
        self.assertEqual(self.mapper(ticket).first, {"reason": "TICKET_USED"})
        self.assertEqual(len(self.client.exports()), 1)
        bad = self.ticket(volume.name)
        bad.ticket = "0" * 32
        self.assertEqual(self.mapper(bad).first, {"reason": "TICKET_UNKNOWN"})
        self.client.revoke_export(bad.name)
        if os.getuid() == 0:
            os.chmod(ticket.socket_path, 0o666)
            os.chmod(os.path.dirname(os.path.dirname(ticket.socket_path)), 0o755)
            os.chmod(os.path.dirname(ticket.socket_path), 0o755)
            stolen = self.ticket(volume.name)
            self.assertEqual(self.mapper(stolen, uid=65534).first, {"reason": "WRONG_PEER"})
            self.assertEqual(self.mapper(stolen).first, {"reason": "TICKET_USED"})  # the ticket was used up
        self.assertIn('octavo_export_refusals_total{reason="TICKET_USED"}', self.page())

    def test_revocation(self):
        volume, = self.scan()
        array = self.client.map(volume.name)
        mapped = mapping.owner(array)
        mapped.check()
        other = self.ticket(volume.name)
        self.assertEqual(self.client.revoke_export(volume.name), 2)
        self.assertEqual(self.mapper(other).first, {"reason": "EXPORT_REVOKED"})
        with self.assertRaises(octavo.HandoffError) as caught:
            until(lambda: mapped.check())
        self.assertEqual(caught.exception.reason, "EXPORT_REVOKED")
        with self.assertRaises(octavo.HandoffError):
            mapped.__array_interface__ if ON_HOST else mapped.__cuda_array_interface__
        until(lambda: [e.overdue for e in self.client.exports()] == [True])
        self.refused("EXPORT_REFUSED", "PERMISSION_DENIED", lambda: self.ticket(volume.name))
        # The server cannot unmap memory in another process.
        same(array, self.client.read(volume.name))
        self.client.unmap(array)
        self.client.unmap(array)  # a second call has no effect
        until(lambda: not self.client.exports())
        self.client.map(volume.name)
        self.refused("NO_EXPORT", "NOT_FOUND", lambda: self.client.revoke_export("exports/none"))

    def test_buffers_need_an_exclusive_lease(self):
        buffer = self.client.buffers.put(np.arange(600, dtype=np.float32).reshape(20, 30))
        self.refused("EXPORT_LEASE", "FAILED_PRECONDITION", lambda: self.ticket(buffer.name))
        with self.client.session("test") as session:
            with self.client.lease(buffer.name, exclusive=True, session=session) as lease:
                array = self.client.map(buffer.name, lease=lease)
                same(array, np.arange(600, dtype=np.float32).reshape(20, 30))
                version, generation = mapping.owner(array).version, mapping.owner(array).generation
                self.client.buffers.write(buffer.name, np.ones((20, 30), np.float32), lease_token=lease.token)
                self.client.buffers.wait(buffer.name)
                again = self.client.map(buffer.name, lease=lease)
                self.assertEqual(again.copy()[3, 4], 1)
                self.assertEqual(array.copy()[3, 4], 1)  # the same memory
                self.assertGreater(mapping.owner(again).version, version)
                self.assertGreater(mapping.owner(again).generation, generation)
                self.refused("BAD_REPLICA", "OUT_OF_RANGE", lambda: self.client.map(buffer.name, lease=lease, replica=7))
                empty = self.client.buffers.create([4], uninitialized=True)
                with self.client.lease(empty.name, exclusive=True, session=session) as other:
                    self.refused("UNINITIALIZED", "FAILED_PRECONDITION", lambda: self.client.map(empty.name, lease=other))
                self.refused("LEASE_LOST", "FAILED_PRECONDITION", lambda: self.ticket(buffer.name, lease_token="none"))
            self.refused("EXPORTED", "FAILED_PRECONDITION", lambda: self.client.buffers.destroy(buffer.name))
            self.client.buffers.destroy(buffer.name, detach_exports=True)
            self.assertEqual(self.detached(), GRANULE)
            self.assertEqual(array.copy()[19, 29], 1)
            del array, again
            until(lambda: self.detached() == 0)

    def test_what_cannot_be_exported(self):
        volume, = self.scan()
        self.refused("EXPORT_KIND", "UNIMPLEMENTED", lambda: self.ticket(volume.name, accept=[2 if ON_HOST else 1]))
        self.refused("BAD_FIELD", "INVALID_ARGUMENT", lambda: self.ticket(volume.name, accept=[9]))
        self.refused("BAD_REPLICA", "OUT_OF_RANGE", lambda: self.ticket(volume.name, replica=1))
        self.refused("NO_VOLUME", "NOT_FOUND", lambda: self.ticket("volumes/none"))
        self.refused("NO_BUFFER", "NOT_FOUND", lambda: self.ticket("buffers/none"))
        self.client.spill(volume.name, "host")
        self.refused("EXPORT_SPILLED", "FAILED_PRECONDITION", lambda: self.ticket(volume.name))
        self.client.restore(volume.name)
        same(self.client.map(volume.name), self.client.read(volume.name))
        self.client.discard(volume.name, detach_exports=True)
        self.refused("VOLUME_GONE", "NOT_FOUND", lambda: self.ticket(volume.name))

    def test_derived_and_raw_volumes(self):
        scan = self.client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(32, 16, volumes=1), samples=256, retention=dict(hold_raw=True))
        self.client.wait(scan.name)
        for volume in self.client.volumes(scan.name):
            same(self.client.map(volume.name), self.client.read(volume.name))
        volume = next(v for v in self.client.volumes(scan.name) if not v.raw)
        derived = self.client.derive(volume.name, {"flip": {"axes": [2]}})
        same(self.client.map(derived.name), self.client.read(volume.name)[:, :, ::-1])

    @unittest.skipUnless(ON_HOST, "memory files")
    def test_memory_that_was_altered_is_told_by_the_commit(self):
        # A client cannot write to a memory file: neither through its descriptor, nor through a
        # mapping, nor by opening it again.
        volume, = self.scan()
        ticket = self.ticket(volume.name)
        import fcntl
        import mmap
        with wire.connect(ticket.socket_path, wire.messages.PURPOSE_MEMORY, 30) as connection:
            wire.send(connection, wire.messages.ClientMessage(present=wire.messages.Present(ticket=ticket.ticket)))
            _, (descriptor,) = wire.receive(connection)
            self.assertEqual(fcntl.fcntl(descriptor, 1034) & 0x16, 0x16)  # F_GET_SEALS: SHRINK, GROW, FUTURE_WRITE
            with self.assertRaises(OSError):
                os.write(descriptor, b"x")
            with self.assertRaises(OSError):
                os.ftruncate(descriptor, 0)
            with self.assertRaises(OSError):
                mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)
            try:
                again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
            except OSError:
                again = None
            if again is not None:
                with self.assertRaises(OSError):
                    os.write(again, b"x")
                with self.assertRaises(OSError):
                    mmap.mmap(again, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)
                os.close(again)
            os.close(descriptor)
        until(lambda: not self.client.exports())
        # The daemon's own mapping can be written to, through the kernel's interface for debuggers:
        # the commit detects it.
        try:
            maps = maps_of(self.daemon)
            start = next(int(line.split("-")[0], 16) for line in maps.splitlines() if "memfd:octavo" in line)
            with open(f"/proc/{self.daemon.process.pid}/mem", "r+b", buffering=0) as memory:
                memory.seek(start)
                byte = memory.read(1)[0]
                memory.seek(start)
                memory.write(bytes([byte ^ 1]))
        except (PermissionError, StopIteration):
            self.skipTest("no access to the daemon's memory")
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.commit(volume.name, f"altered-{os.getpid()}", format="npy")
        self.assertEqual((caught.exception.code.name, caught.exception.reason), ("DATA_LOSS", "DIGEST"))

    def test_nothing_is_left_of_a_thousand(self):
        volume, = self.scan()
        self.client.unmap(self.client.map(volume.name))
        server = f"/proc/{self.daemon.process.pid}"
        count = lambda: (len(os.listdir(f"{server}/fd")), len(os.listdir(f"{server}/task")), len(os.listdir("/proc/self/fd")))
        before = count()
        for i in range(1000):
            if i % 4 == 0:  # a separate connection
                with mapping.Connection(self.client._handoff.path) as connection:
                    connection.present(self.ticket(volume.name).ticket).release()
            else:
                self.client.unmap(self.client.map(volume.name))
        until(lambda: not self.client.exports())
        until(lambda: count()[0] <= before[0] and count()[2] <= before[2])
        self.assertLessEqual(count()[1], before[1] + 4)  # gRPC's own threads vary


class DeathTest(unittest.TestCase):
    def test_a_server_that_is_killed_leaves_the_memory(self):
        daemon = harness.Daemon("--handoff.unix", "auto")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(32, 16, volumes=1), samples=256)
            client.wait(scan.name)
            volume, = client.volumes(scan.name)
            array = client.map(volume.name)
            expected = client.read(volume.name)
            daemon.kill()
            same(array, expected)
            with self.assertRaises(octavo.HandoffError) as caught:
                mapping.owner(array).check()
            self.assertEqual(caught.exception.reason, "SERVER_GONE")
            again = harness.Daemon("--handoff.unix", "auto", directory=daemon.directory)  # the socket file of the dead daemon is replaced
            try:
                with again.client() as other:
                    scan = other.submit_scan(octavo.simulated(seed=4, fast=True), octavo.raster(32, 16, volumes=1), samples=256)
                    other.wait(scan.name)
                    volume, = other.volumes(scan.name)
                    same(other.map(volume.name), other.read(volume.name))
                same(array, expected)
            finally:
                self.assertEqual(again.stop(), 0)

    def test_it_is_off_unless_asked_for(self):
        daemon = harness.Daemon()
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(32, 16, volumes=1), samples=256)
            client.wait(scan.name)
            volume, = client.volumes(scan.name)
            with self.assertRaises(octavo.OctavoError) as caught:
                client.map(volume.name)
            self.assertEqual((caught.exception.reason, caught.exception.code.name), ("EXPORT_DISABLED", "FAILED_PRECONDITION"))
            self.assertNotIn("memfd:octavo", maps_of(daemon))
        self.assertEqual(daemon.stop(), 0)

    def test_the_sockets_mode(self):
        daemon = harness.Daemon("--handoff.unix", "auto", "--handoff.mode", "0600")
        self.addCleanup(daemon.remove)
        path = os.path.join(daemon.directory, "state", "handoff.sock")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(daemon.stop(), 0)
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main()
