"""Mapped memory that clients do not return: volumes move away from revoked memory, and mapped
volumes are not spilled."""

import gc
import os
import unittest

import numpy as np

from handing import HandoffCase, same
from harness import until
import octavo
from octavo import mapping
from octavo.v1 import reason_pb2, scan_pb2, types_pb2, volume_pb2


class OverdueTest(HandoffCase):
    flags = HandoffCase.flags + ("--spill.host_bytes", str(64 << 20))

    def overdue(self, volume):
        array = self.client.map(volume.name)
        self.assertEqual(self.client.revoke_export(volume.name), 1)
        until(lambda: [e.overdue for e in self.client.exports(filter=f'resource = "{volume.name}"')] == [True])
        return array

    def test_the_volume_moves_and_the_memory_is_detached(self):
        scan = self.submit(volumes=2)
        self.client.wait(scan.name)
        volume, other = self.client.volumes(scan.name)
        before, moved = self.client.memory().devices[0], self.metric("octavo_export_relocations_total")
        array = self.overdue(volume)
        copy = array.copy()
        until(lambda: [e.detached for e in self.client.exports(filter=f'resource = "{volume.name}"')] == [True])
        self.assertEqual(self.metric("octavo_export_relocations_total"), moved + 1)
        after = self.client.memory().devices[0]
        self.assertGreater(after.detached_bytes, 0)
        self.assertGreaterEqual(after.held_bytes, before.held_bytes - 4096)  # it is held as before, in memory of its own
        now = self.client.volume(volume.name)
        self.assertEqual((now.state, now.digest, now.tier, now.moving), (2, volume.digest, volume.tier, volume_pb2.VOLUME_MOVE_UNSPECIFIED))
        same(self.client.read(volume.name), copy)
        same(array, copy)
        # Its user gets no further exports while it keeps that memory.
        self.refused("EXPORT_REFUSED", "PERMISSION_DENIED", lambda: self.ticket(other.name))
        # Clients can move, commit and discard the volume.
        self.client.spill(volume.name, "host")
        same(self.client.read(volume.name), copy)
        self.client.restore(volume.name)
        result = self.client.commit(volume.name, f"moved-{os.getpid()}", format="npy")
        same(np.load(result.path), copy)
        same(array, copy)
        self.client.unmap(array)
        until(lambda: not self.client.exports() and self.detached() == 0)
        later = self.client.map(other.name)
        same(later, self.client.read(other.name))

    def test_a_volume_that_is_not_wanted_any_more(self):
        scan = self.submit()
        self.client.wait(scan.name)
        volume, = self.client.volumes(scan.name)
        array = self.overdue(volume)
        copy = array.copy()
        self.client.discard(volume.name)  # without detach_exports
        same(array, copy)
        until(lambda: [e.detached for e in self.client.exports(filter=f'resource = "{volume.name}"')] == [True])
        self.client.unmap(array)
        del array
        until(lambda: self.detached() == 0)

    def test_no_room_to_move_to(self):
        scan = self.submit()
        self.client.wait(scan.name)
        volume, = self.client.volumes(scan.name)
        free = self.client.memory().devices[0].free_bytes >> 21 << 21
        filler = self.client.buffers.create([free // 4], uninitialized=True)
        failures = self.metric("octavo_export_relocation_failures_total")
        array = self.overdue(volume)
        until(lambda: self.metric("octavo_export_relocation_failures_total") > failures)
        self.assertEqual([e.detached for e in self.client.exports(filter=f'resource = "{volume.name}"')], [False])
        same(self.client.read(volume.name), array)
        self.client.buffers.destroy(filler.name)  # it is tried again
        until(lambda: [e.detached for e in self.client.exports(filter=f'resource = "{volume.name}"')] == [True])
        same(self.client.read(volume.name), array)
        self.client.unmap(array)

    def test_a_buffer_moves_when_its_lease_has_ended(self):
        buffer = self.client.buffers.put(np.arange(600, dtype=np.float32).reshape(20, 30))
        with self.client.session("test") as session:
            with self.client.lease(buffer.name, exclusive=True, session=session) as lease:
                array = self.client.map(buffer.name, lease=lease)
                self.client.revoke_export(buffer.name)
                until(lambda: [e.overdue for e in self.client.exports(filter=f'resource = "{buffer.name}"')] == [True])
                self.assertEqual([e.detached for e in self.client.exports(filter=f'resource = "{buffer.name}"')], [False])
            until(lambda: [e.detached for e in self.client.exports(filter=f'resource = "{buffer.name}"')] == [True])
        self.client.buffers.write(buffer.name, np.ones((20, 30), np.float32))
        self.client.buffers.wait(buffer.name)
        same(self.client.buffers.read(buffer.name), np.ones((20, 30)))
        same(array, np.arange(600).reshape(20, 30))  # the other clients' writes do not show
        self.client.buffers.destroy(buffer.name)
        self.client.unmap(array)


class SpillTest(HandoffCase):
    flags = HandoffCase.flags + ("--spill.host_bytes", "100000")  # one volume

    def held_oldest(self, scan):
        until(lambda: any(v.state == 2 for v in self.client.volumes(scan.name)))
        return min(self.client.volumes(scan.name, states=[2]), key=lambda v: v.index)

    def clear(self, scan):
        for volume in self.client.volumes(scan.name):
            if volume.state == 2:
                self.client.discard(volume.name, detach_exports=True)
        gc.collect()
        until(lambda: self.detached() == 0)

    def test_the_oldest_that_nobody_maps(self):
        scan = self.submit(volumes=5, fast=False, rate_hz=300, retention=dict(hold_slots=4, on_full=scan_pb2.ON_FULL_SPILL_HOST))
        oldest = self.held_oldest(scan)
        array = self.client.map(oldest.name)
        ended = self.client.wait(scan.name)
        self.assertEqual((ended.volumes_done, ended.volumes_dropped), (5, 0), ended.reason)
        volumes = self.client.volumes(scan.name)
        self.assertEqual([v.tier for v in volumes], [1, 2, 1, 1, 1])  # DEVICE, HOST, ...
        self.assertEqual((oldest.index, self.detached()), (0, 0))
        same(array, self.client.read(oldest.name))
        del array
        self.clear(scan)

    def test_where_nothing_can_be_moved_on_tier_full_rules(self):
        scan = self.submit(volumes=0, fast=False, rate_hz=400,
                           retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=5, on_full=scan_pb2.ON_FULL_SPILL_HOST, on_tier_full=scan_pb2.ON_FULL_STOP_AT_VOLUME))
        array = self.client.map(self.held_oldest(scan).name)
        ended = self.client.wait(scan.name)
        self.assertEqual((ended.state, ended.reason_code), (types_pb2.SCAN_STATE_DONE, reason_pb2.REASON_HOLD_SLOTS_FULL))
        self.assertIn("1 of them are mapped by other processes", ended.reason)
        self.assertEqual((self.client.volume(mapping.owner(array).of).tier, self.detached()), (1, 0))
        del array
        self.clear(scan)

    def test_a_ring_whose_only_hold_slot_is_mapped(self):
        scan = self.submit(volumes=0, fast=False, rate_hz=20000, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=1, on_full=scan_pb2.ON_FULL_SPILL_HOST))
        volumes = self.client.map_volumes(scan.name, most=1, timeout=20)
        array = next(volumes)
        copy, name, index = array.copy(), mapping.owner(array).of, mapping.owner(array).index
        until(lambda: self.client.scan(scan.name).volumes_done > index + 3)
        reasons = set()
        for _ in range(20):  # each requests room
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.hold(max((v for v in self.client.volumes(scan.name, states=[2]) if v.name != name), key=lambda v: v.index).name)
            reasons.add(caught.exception.reason)
        self.assertIn("HOLD_SLOTS_FULL", reasons)
        self.assertLessEqual(reasons, {"HOLD_SLOTS_FULL", "VOLUME_STATE", "VOLUME_GONE"})
        self.assertEqual((self.client.volume(name).tier, self.detached()), (1, 0))
        same(array, copy)


if __name__ == "__main__":
    unittest.main()
