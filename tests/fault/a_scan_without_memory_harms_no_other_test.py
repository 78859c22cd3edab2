"""The host has no more memory, although the ledger has (RLIMIT_AS of the running daemon): what asks for it is refused with a reason, gives all of
it back, and harms nobody else; as soon as there is memory again, the same request succeeds. And the ledger refuses before the device would."""

import resource
import threading
import unittest

from faults import LONG, FaultTest, Scraper, held_volume, live_scan
from harness import held_bytes, octavo, until

REASONS = ("OUT_OF_MEMORY", "NO_THREAD", "DEVICE_FULL", "DEVICE_OUT_OF_MEMORY", "HOST_MEMORY")


class Memory(FaultTest):
    def limit(self, daemon, headroom):
        """No more than this many bytes of address space beyond what it has; None = as before."""
        with open(f"/proc/{daemon.process.pid}/status") as status:
            size = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize"))
        hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_AS)[1]
        resource.prlimit(daemon.process.pid, resource.RLIMIT_AS, (hard if headroom is None else size + headroom, hard))

    def large(self, client):
        """512 MiB of volumes."""
        return client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(512, 256, volumes=1), samples=2048, retention=dict(hold_slots=2),
                                  processing=octavo.processing(dtype="f32"))

    def test_the_host_has_no_more(self):
        daemon = self.start("--device.slot_cache_bytes", "0")
        with daemon.client() as client, Scraper(daemon):
            volume = held_volume(client)
            scan = live_scan(client)
            before = held_bytes(client)
            for i in range(30 if LONG else 4):
                with self.subTest(i=i):
                    self.limit(daemon, self.random.choice([96, 128, 192]) << 20)
                    self.refused(REASONS, self.large, client)
                    self.refused(REASONS, client.buffers.create, (512 << 20,), "u8")
                    self.assertIsNone(daemon.process.poll())
                    done = client.scan(scan).volumes_done
                    until(lambda: client.scan(scan).volumes_done > done + 2)
                    client.read(volume.name)
                    self.assertEqual(held_bytes(client), before)
                    self.limit(daemon, None)
                    made = client.wait(self.large(client).name)
                    client.discard(client.volumes(made.name)[0].name)
                    client.buffers.destroy(client.buffers.create((512 << 20,), "u8").name)
                    until(lambda: held_bytes(client) == before)
            self.assertEqual(client.scan(scan).blocks_dropped, 0)
            client.cancel(scan)
        self.assertEqual(daemon.stop(), 0)

    def test_the_ledger_refuses_first(self):
        """Many clients want more than there is, at once: each is granted or refused, nothing fails that was granted, and all of it comes back."""
        daemon = self.start("--device.memory_bytes", str(96 << 20), "--device.slot_cache_bytes", "0")
        outcomes, lock = [], threading.Lock()

        def wants(number):
            with daemon.client() as client:
                for i in range(40 if LONG else 8):
                    try:
                        made = client.wait(client.submit_scan(octavo.simulated(i, fast=True), octavo.raster(128, 32, volumes=2), samples=1024, retention=dict(hold_slots=2)).name)
                        for volume in client.volumes(made.name):
                            client.discard(volume.name)
                        outcome = str(made.state)
                    except octavo.OctavoError as error:
                        outcome = error.reason
                    with lock:
                        outcomes.append(outcome)
        with daemon.client() as client:
            threads = [threading.Thread(target=wants, args=(i,)) for i in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(200)
            self.assertLessEqual(set(outcomes), {"DONE", "DEVICE_FULL"}, outcomes)
            self.assertIn("DONE", outcomes)
            self.assertIn("DEVICE_FULL", outcomes)
            until(lambda: held_bytes(client) == 0)
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
