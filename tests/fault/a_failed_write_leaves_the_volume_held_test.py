"""A disk that is full, broken or read-only: the commit fails with a reason that says so, the volume is still held, nothing half-written is
seen, acquisition goes on, the metrics page answers, and a later commit succeeds. A file whose sync has failed once is never trusted again."""

import errno
import os
import resource
import subprocess
import unittest

import numpy as np

from faults import FAULT_IO, HELD, LONG, FaultTest, FaultyDisk, Scraper, held_volume, live_scan, preloads
from harness import Daemon, octavo, until
from readers import ENDINGS, READERS

REASONS = {errno.ENOSPC: "DISK_FULL", errno.EDQUOT: "DISK_FULL", errno.EIO: "IO_ERROR", errno.EROFS: "READ_ONLY", errno.EACCES: "NO_ACCESS"}
# What the kernel answers to these calls.
CALLS = {"open": list(REASONS), "write": [errno.ENOSPC, errno.EDQUOT, errno.EIO], "sync": [errno.EIO, errno.ENOSPC, errno.EDQUOT],
         "rename": [errno.EIO, errno.EROFS, errno.ENOSPC], "mkdir": list(REASONS)}
FORMATS = list(READERS) if LONG else ["zarr", "npy", "hdf5"]


@preloads(FAULT_IO)
class Disk(FaultTest):
    def setUp(self):
        super().setUp()
        self.disk = FaultyDisk()
        self.addCleanup(self.disk.remove)

    def start(self, *flags, **options):
        return super().start(*flags, environment=self.disk.environment, **options)

    def goes_on(self, client, scan):
        done = client.scan(scan).volumes_done
        until(lambda: client.scan(scan).volumes_done > done + 1)
        self.assertEqual(client.scan(scan).blocks_dropped, 0)


class StorageRoot(Disk):
    def test_every_call_and_error(self):
        daemon = self.start()
        with daemon.client() as client, Scraper(daemon):
            scan = live_scan(client)
            for number, (call, error) in enumerate((call, error) for call, of in CALLS.items() for error in of):
                format = FORMATS[number % len(FORMATS)]
                with self.subTest(call=call, error=errno.errorcode[error], format=format):
                    volume = held_volume(client, seed=number)
                    array, before = client.read(volume.name), self.files()
                    self.disk.fail(call, self.root, error)
                    refused = self.refused(REASONS[error], client.commit, volume.name, f"v{number}", format)
                    self.assertEqual(refused.numbers["errno"], str(error))
                    now = client.volume(volume.name)
                    self.assertEqual((now.state, now.digest), (HELD, volume.digest))
                    self.assertTrue(now.last_error)
                    self.goes_on(client, scan)
                    self.disk.heal()
                    self.assertEqual(self.files(), before)
                    np.testing.assert_array_equal(client.read(volume.name), array)
                    path = client.commit(volume.name, f"v{number}", format).path
                    np.testing.assert_array_equal(READERS[format](path).array, array)
            self.assertEqual(client.scan(scan).blocks_dropped, 0)
            client.cancel(scan)
        self.assertGreater(len(self.disk.failures()), 15)
        self.assertEqual(daemon.stop(), 0)

    def test_a_disk_that_fails_in_the_middle(self):
        """At a random write, once or from then on."""
        daemon = self.start()
        with daemon.client() as client:
            refused = 0
            for i in range(200 if LONG else 24):
                format, call = self.random.choice(FORMATS), self.random.choice(["write", "write", "sync", "open"])
                skip, times = self.random.randrange(12), self.random.choice([0, 1])
                with self.subTest(i=i, format=format, call=call, skip=skip, times=times):
                    volume, before = held_volume(client, seed=i), self.files()
                    array = client.read(volume.name)
                    options = dict(chunk=[4, 32, 64]) if format in ("zarr", "hdf5") else {}
                    self.disk.fail(call, self.root, errno.ENOSPC, skip, times)
                    try:
                        path = client.commit(volume.name, f"r{i}", format, **options).path  # its calls were fewer than `skip`
                    except octavo.OctavoError as error:
                        refused += 1
                        self.assertEqual(error.reason, "DISK_FULL", error)
                        self.assertEqual(client.volume(volume.name).state, HELD)
                        self.assertEqual(self.files(), before)
                        self.disk.heal()
                        path = client.commit(volume.name, f"r{i}", format, **options).path
                    self.disk.heal()
                    np.testing.assert_array_equal(READERS[format](path).array, array)
            self.assertGreater(refused, 5)
        self.assertEqual(daemon.stop(), 0)

    def test_a_file_whose_sync_failed_is_never_published(self):
        """After a failed sync the kernel takes the pages for written: a second sync of the file would succeed, and say nothing."""
        daemon = self.start()
        with daemon.client() as client:
            for format in FORMATS:
                for skip in range(8):
                    volume = held_volume(client, seed=skip)
                    self.disk.fail("sync", self.root, errno.EIO, skip, 1)
                    name = f"{format}-{skip}"
                    try:
                        client.commit(volume.name, name, format, **(dict(chunk=[8, 64, 256]) if format == "zarr" else {}))
                        self.disk.heal()
                        break  # there were no more files to sync
                    except octavo.OctavoError as error:
                        self.assertEqual(error.reason, "IO_ERROR", error)
                    self.disk.heal()
                    client.commit(volume.name, name, format)
                self.assertGreater(skip, 1)
            failed = {(inode, path) for call, error, inode, path in self.disk.calls() if call == "sync" and error and os.path.isfile(path)}
            published = {(os.stat(os.path.join(self.root, name)).st_ino, os.path.join(self.root, name)) for name in self.files()}
            self.assertFalse(failed & published)
        self.assertEqual(daemon.stop(), 0)


class StateFolder(Disk):
    def test_the_journal(self):
        """What was refused is not there after a kill, what was acknowledged is."""
        journal = os.path.join(self.directory, "state", "commits.journal")
        daemon, kept, refused = self.start(), {}, []
        with daemon.client() as client:
            for i, (call, error, skip) in enumerate([("write", errno.ENOSPC, 0), ("sync", errno.EIO, 0), ("write", errno.EIO, 1), ("sync", errno.ENOSPC, 1)]):
                volume = held_volume(client, seed=i)
                array = client.read(volume.name)
                self.disk.fail(call, journal, error, skip, 1)
                try:
                    path = client.commit(volume.name, f"j{i}", "npy").path  # the second record of a commit is its end, which need not be durable
                except octavo.OctavoError as caught:
                    self.assertEqual(caught.reason, REASONS[error], caught)
                    self.assertEqual(client.volume(volume.name).state, HELD)
                    refused.append(f"j{i}.npy")
                    path = client.commit(volume.name, f"again{i}", "npy").path
                self.disk.heal()
                kept[path] = array
            self.assertGreaterEqual(len(refused), 2)
        daemon.kill()
        daemon = self.start()
        for path, array in kept.items():
            np.testing.assert_array_equal(np.load(path), array)
        self.assertFalse(set(refused) & set(self.files()))
        with daemon.client() as client:
            client.commit(held_volume(client).name, "after", "npy")
        self.assertEqual(daemon.stop(), 0)

    def test_a_full_state_folder(self):
        """Acquisition and calls do without it; commits and spills say that it is full, and what they leave is held."""
        state = os.path.join(self.directory, "state")
        daemon = self.start()
        with daemon.client() as client, Scraper(daemon):
            scan = live_scan(client)
            volume = held_volume(client)
            array = client.read(volume.name)
            self.disk.fail("open,write,sync,rename,mkdir", state, errno.ENOSPC)
            self.refused("DISK_FULL", client.commit, volume.name, "full", "npy")
            self.refused("DISK_FULL", client.spill, volume.name)
            self.goes_on(client, scan)
            self.assertEqual(client.volume(volume.name).state, HELD)
            np.testing.assert_array_equal(client.read(volume.name), array)
            other = held_volume(client, seed=2)  # a scan begins and ends
            client.discard(other.name)
            with client.session("s"), client.lease(volume.name, seconds=60):
                pass
            self.disk.heal()
            client.spill(volume.name)
            np.testing.assert_array_equal(client.read(volume.name), array)
            np.testing.assert_array_equal(np.load(client.commit(volume.name, "full", "npy").path), array)
            client.cancel(scan)
        self.assertEqual(daemon.stop(), 0)

    def test_a_spill_that_fails_leaves_the_volume_on_its_device(self):
        spill = os.path.join(self.directory, "state", "spill")
        daemon = self.start()
        with daemon.client() as client:
            volume = held_volume(client)
            array = client.read(volume.name)
            for call, error in (("open", errno.ENOSPC), ("write", errno.EIO), ("sync", errno.EIO), ("rename", errno.EROFS)):
                with self.subTest(call=call):
                    self.disk.fail(call, spill, error)
                    self.refused(REASONS[error], client.spill, volume.name)
                    self.disk.heal()
                    self.assertEqual(os.listdir(spill), [])
                    self.assertEqual((client.volume(volume.name).state, client.volume(volume.name).tier), (HELD, 1))
                    np.testing.assert_array_equal(client.read(volume.name), array)
            client.spill(volume.name)
            np.testing.assert_array_equal(client.read(volume.name), array)
        self.assertEqual(daemon.stop(), 0)


class Real(FaultTest):
    """Without an interposed library."""

    def test_a_small_file_system(self):
        root = os.path.join(self.directory, "small")
        os.mkdir(root)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", root], capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"no file system can be mounted here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", root], check=True)
        daemon = self.start("--storage.roots", root)
        with daemon.client() as client:
            volume = held_volume(client, bscans=64)
            self.assertGreater(volume.bytes, 1 << 20)
            for format in FORMATS:
                options = dict(codec="zstd", zstd_level=1) if format == "zarr" else {}
                self.refused("DISK_FULL", client.commit, volume.name, "big", format, **options)
                self.assertEqual(client.volume(volume.name).state, HELD)
                self.assertEqual(self.files(root), [])
            client.commit(held_volume(client, bscans=2).name, "little", "npy")
            subprocess.run(["mount", "-o", "remount,size=64m", root], check=True)
            array = client.read(volume.name)
            np.testing.assert_array_equal(np.load(client.commit(volume.name, "big", "npy").path), array)
        self.assertEqual(daemon.stop(), 0)

    def test_a_file_that_may_not_grow_ends_no_daemon(self):
        """By `ulimit -f` or LimitFSIZE=: the kernel sends SIGXFSZ, and the writer gets EFBIG."""
        daemon = self.start()
        with daemon.client() as client:
            volume = held_volume(client, bscans=40)
            array = client.read(volume.name)
            self.assertGreater(volume.bytes, 512 << 10)
            _, most = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (512 << 10, most))
            error = self.refused("DISK_FULL", client.commit, volume.name, "v", "npy")
            self.assertEqual(error.code.name, "RESOURCE_EXHAUSTED")
            np.testing.assert_array_equal(client.read(volume.name), array)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (most, most))
            np.testing.assert_array_equal(np.load(client.commit(volume.name, "v", "npy").path), array)
        self.assertEqual(daemon.stop(), 0)

    def test_errors_at_the_points_of_a_commit(self):
        for point, error, code in (("chunk_written", 28, "RESOURCE_EXHAUSTED"), ("chunk_written", 5, "INTERNAL"), ("block_written", 5, "INTERNAL"), ("files_synced", 5, "INTERNAL"),
                                   ("before_rename", 13, "PERMISSION_DENIED"), ("tmp_created", 28, "RESOURCE_EXHAUSTED"),
                                   ("manifest_written", 122, "RESOURCE_EXHAUSTED"), ("journal_begin", 28, "RESOURCE_EXHAUSTED")):
            for format in ("zarr", "npy", "hdf5") if LONG else ("npy",):
                with self.subTest(point=point, error=error, format=format):
                    daemon = Daemon(environment={"OCTAVO_FAILPOINT": f"{point}:errno={error}"})
                    try:
                        with daemon.client() as client:
                            name = held_volume(client).name
                            with self.assertRaises(octavo.OctavoError) as caught:
                                client.commit(name, "v", format)
                            self.assertEqual(caught.exception.code.name, code)
                            volume = client.volume(name)
                            self.assertEqual(volume.state, HELD)
                            self.assertTrue(volume.last_error)
                            self.assertEqual(os.listdir(daemon.root), [])
                            path = client.commit(name, "v", format).path  # the failpoint fires once: a later commit works
                            self.assertTrue(path.endswith(ENDINGS[format]))
                    finally:
                        daemon.remove()


if __name__ == "__main__":
    unittest.main()
