"""WatchVolumes against the real daemon: no change is lost, filters, slow readers, the end of the
server."""

import os
import random
import signal
import subprocess
import threading
import time
import unittest

import grpc

from harness import BUILD, Daemon, DaemonTest, octavo
from octavo.v1 import types_pb2, volume_pb2
from raw_http2 import RawPeer

SEED = int(os.environ.get("OCTAVO_TEST_SEED", str(random.randrange(1 << 30))))
EXISTS, CREATED, CHANGED, GONE, UNMATCHED = (getattr(volume_pb2.WatchVolumesResponse, f"KIND_{name}")
                                             for name in ("EXISTS", "CREATED", "CHANGED", "GONE", "UNMATCHED"))
HELD, COMMITTING, COMMITTED, DISCARDED = (getattr(types_pb2, f"VOLUME_STATE_{name}") for name in ("HELD", "COMMITTING", "COMMITTED", "DISCARDED"))


class Watch:
    """Reads a watch on a thread. One waits for what it hears, not for time."""

    def __init__(self, client, filter="", existing=True):
        self.changes, self.error, self.over = [], None, False
        self.news = threading.Condition()
        self.call = client._volumes.WatchVolumes(volume_pb2.WatchVolumesRequest(filter=filter, skip_existing=not existing))
        self.call.initial_metadata()  # or its end
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for change in self.call:
                with self.news:
                    self.changes.append(change)
                    self.news.notify_all()
        except grpc.RpcError as error:
            self.error = error
        with self.news:
            self.over = True
            self.news.notify_all()

    def until(self, done):
        """Waits until `done(changes)`; the changes."""
        with self.news:
            assert self.news.wait_for(lambda: done(self.changes) or self.over, 60) and done(self.changes), (self.changes, self.error)
            return list(self.changes)

    def of(self, name):
        return [change for change in self.changes if change.volume.name == name]

    def close(self):
        self.call.cancel()
        self.thread.join()


class Watches(DaemonTest):
    flags = ("--quota.watches", "0")  # what all together may have; quota_test.py has what one may

    def watch(self, **arguments):
        watch = Watch(self.client, **arguments)
        self.addCleanup(watch.close)
        return watch

    def scan(self, volumes=1, **fields):
        scan = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(16, 4, volumes=volumes), samples=64, **fields)
        return self.client.wait(scan.name)

    def test_the_life_of_a_volume(self):
        before = self.client.volumes(self.scan().name)[0]
        watch = self.watch()
        watch.until(lambda changes: changes)
        self.assertEqual([(c.kind, c.volume.name) for c in watch.changes], [(EXISTS, before.name)])
        scan = self.scan(labels={"eye": "OD"})
        name, = scan.volume_names
        watch.until(lambda _: watch.of(name) and watch.of(name)[-1].volume.state == HELD)
        self.client.hold(name)
        self.client.release(name)
        self.client.spill(name, "host")
        self.client.restore(name)
        self.client.commit(name, f"life-{name.split('/')[1]}", "npy")
        watch.until(lambda _: watch.of(name)[-1].kind == GONE)
        told = watch.of(name)
        self.assertEqual(told[0].kind, CREATED)
        self.assertTrue(all(change.kind == CHANGED for change in told[1:-1]))
        self.assertEqual((told[-1].volume.state, told[-1].volume.labels["eye"]), (COMMITTED, "OD"))
        self.assertTrue(told[-1].volume.commit.path)
        self.client.discard(before.name)
        watch.until(lambda _: watch.of(before.name)[-1].kind == GONE)
        self.assertEqual([c.volume.state for c in watch.of(before.name)], [HELD, DISCARDED])

    def test_a_watch_of_changes_skips_what_there_is(self):
        old, = self.scan().volume_names
        watch = self.watch(existing=False)
        new, = self.scan().volume_names
        self.client.discard(old)
        watch.until(lambda _: watch.of(old) and watch.of(new))
        self.assertEqual([c.kind for c in watch.of(old)], [GONE])
        self.assertEqual(watch.of(new)[0].kind, CREATED)

    def test_a_filter_is_entered_and_left(self):
        watch = self.watch(filter='labels.eye = "OS" AND state = HELD AND marked = false')
        other, = self.scan(labels={"eye": "OD"}).volume_names
        name, = self.scan(labels={"eye": "OS"}).volume_names
        watch.until(lambda _: watch.of(name))
        self.client.hold(name)
        watch.until(lambda _: watch.of(name)[-1].kind == UNMATCHED)
        self.client.hold(name)  # nothing new
        self.client.spill(name, "host")  # not heard
        self.client.release(name)
        watch.until(lambda _: watch.of(name)[-1].kind == CREATED and len(watch.of(name)) > 2)
        self.client.discard(name)
        watch.until(lambda _: watch.of(name)[-1].kind == GONE)
        self.client.discard(other)
        self.assertEqual([c.kind for c in watch.of(name) if c.kind != CHANGED], [CREATED, UNMATCHED, CREATED, GONE])
        self.assertEqual(watch.of(other), [])
        # One that leaves the filter and is never in it again is told once.
        final = self.watch(filter="state = COMMITTED")
        last, = self.scan().volume_names
        self.client.commit(last, f"last-{last.split('/')[1]}", "npy")
        final.until(lambda changes: changes)
        self.assertEqual([(c.kind, c.volume.name) for c in final.changes], [(GONE, last)])

    def test_bad_filters(self):
        for text, words in (("colour = 1", "no field 'colour'"), ("(" * 100, "deep"), ("state = HOLD", "'HOLD'")):
            with self.assertRaises(octavo.OctavoError) as caught:
                list(self.client.watch_volumes(text))
            self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", "filter"))
            self.assertIn(words, str(caught.exception))

    def test_no_change_is_lost(self):
        """Several clients scan, hold, spill, commit and discard in random order; what a watch heard
        last of each volume is what there is."""
        randomly = random.Random(SEED)
        print(f"OCTAVO_TEST_SEED={SEED}")
        watches = [self.watch(), self.watch(filter="index >= 0"), self.watch(existing=False)]
        failures = []

        def work(seed):
            mine, client = random.Random(seed), self.daemon.client()
            try:
                for turn in range(4):
                    scan = client.wait(client.submit_scan(octavo.simulated(seed % 100, fast=True), octavo.raster(16, 4, volumes=4), samples=64).name)
                    names = scan.volume_names
                    for _ in range(14):
                        name = mine.choice(names)
                        try:
                            mine.choice((lambda: client.hold(name), lambda: client.release(name), lambda: client.spill(name, "host"),
                                         lambda: client.restore(name), lambda: client.discard(name),
                                         lambda: client.commit(name, f"{seed}-{turn}-{name.split('/')[1]}", "npy"),
                                         lambda: client.derive(name, {"mip": {"axis": 2}})))()
                        except octavo.OctavoError as error:
                            if error.code.name not in ("FAILED_PRECONDITION", "NOT_FOUND", "ABORTED", "RESOURCE_EXHAUSTED", "DATA_LOSS"):
                                raise
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)
            finally:
                client.close()
        threads = [threading.Thread(target=work, args=(randomly.randrange(1 << 20),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        states = [types_pb2.VolumeState.Value(name) for name in types_pb2.VolumeState.keys()[1:]]
        truth = {v.name: (int(v.state), v.tier, v.marked, v.kept, v.moving) for v in self.client.volumes(states=states)}
        for watch in watches:
            def last():
                return {c.volume.name: (c.volume.state, c.volume.tier, c.volume.marked, c.volume.kept, c.volume.moving) for c in watch.changes}
            known = {name: state for name, state in truth.items() if watch.of(name) or state[0] == HELD}
            watch.until(lambda _: {name: last().get(name) for name in known} == known)
            self.assertLessEqual(set(last()), set(truth))
            for name in last():
                kinds = [c.kind for c in watch.of(name)]
                self.assertNotIn(GONE, kinds[:-1])
                self.assertEqual(kinds.count(CREATED) + kinds.count(EXISTS), 1 if kinds != [GONE] else 0, kinds)
                self.assertEqual(kinds[-1] == GONE, truth[name][0] > COMMITTING, (kinds, truth[name]))

    def test_a_reader_that_stops_gets_the_newest(self):
        name, = self.scan(labels={f"label.{i}": "x" * 250 for i in range(60)}).volume_names
        peer = RawPeer(self.daemon.address, window=0)
        self.addCleanup(peer.close)
        stream = peer.call("/octavo.v1.VolumeService/WatchVolumes")
        self.assertTrue(peer.wait_for_answer(stream))
        heard = self.watch()
        heard.until(lambda _: heard.of(name))
        for i in range(600):  # 9 MiB, if each were kept; also 1200 changes
            self.client.hold(name)
            self.client.release(name)
        self.client.hold(name)
        peer.open_window(stream, 4 << 20)
        changes = []
        while not changes or not changes[-1].volume.marked:
            self.assertTrue(peer.read_frame())
            changes = [volume_pb2.WatchVolumesResponse.FromString(m) for m in peer.messages(stream)]
        self.assertEqual(changes[0].kind, EXISTS)
        self.assertLessEqual(len(changes), 4)

    def test_a_reader_that_stops_hears_nothing_of_what_came_and_went(self):
        old, = self.scan(labels={f"label.{i}": "x" * 250 for i in range(60)}).volume_names
        peer = RawPeer(self.daemon.address, window=0)
        self.addCleanup(peer.close)
        stream = peer.call("/octavo.v1.VolumeService/WatchVolumes")
        self.assertTrue(peer.wait_for_answer(stream))
        heard = self.watch()
        heard.until(lambda _: heard.of(old))
        gone = []
        for _ in range(3):
            name, = self.scan().volume_names
            self.client.discard(name)
            gone.append(name)
        new, = self.scan().volume_names
        heard.until(lambda _: heard.of(new) and heard.of(new)[-1].volume.state == HELD)
        peer.open_window(stream, 4 << 20)
        changes = []
        while not changes or changes[-1].volume.name != new or changes[-1].volume.state != HELD:
            self.assertTrue(peer.read_frame())
            changes = [volume_pb2.WatchVolumesResponse.FromString(m) for m in peer.messages(stream)]
        kinds = {name: [c.kind for c in changes if c.volume.name == name] for name in (old, new, *gone)}
        self.assertEqual((kinds[old][0], kinds[new][0]), (EXISTS, CREATED))
        self.assertEqual([kinds[name] for name in gone], [[]] * 3)

    def test_a_client_that_leaves_leaves_nothing(self):
        name, = self.scan().volume_names
        for _ in range(50):
            watch = Watch(self.client)
            watch.until(lambda changes: changes)
            watch.close()
            (self.client.release if random.random() < 0.5 else self.client.hold)(name)
        watch = self.watch()
        watch.until(lambda _: watch.of(name))
        self.assertEqual(len(watch.changes), 1)

    def test_watches_are_bounded(self):
        """Each costs work with every change; those beyond the bound are refused, and a place that
        is given back is free."""
        most, clients = 256, [self.daemon.client() for _ in range(4)]
        for client in clients:
            self.addCleanup(client.close)
        name, = self.scan().volume_names
        watches = [Watch(clients[i % len(clients)]) for i in range(most)]
        try:
            for watch in watches:
                watch.until(lambda changes: changes)
            more = Watch(self.client)
            more.thread.join(30)
            self.assertEqual(more.error.code().name, "RESOURCE_EXHAUSTED")
            self.assertIn(f"{most} watches", more.error.details())
            with self.assertRaises(octavo.OctavoError) as caught:
                next(iter(self.client.buffers.watch()))
            self.assertEqual(caught.exception.reason, "BUSY")
            self.client.hold(name)
            for watch in watches:
                watch.until(lambda changes: changes[-1].volume.marked)
        finally:
            for watch in watches:
                watch.close()
        deadline = time.monotonic() + 30
        while True:
            again = Watch(self.client)
            with again.news:
                again.news.wait_for(lambda: again.changes or again.over, 30)
            if again.changes:
                break
            self.assertLess(time.monotonic(), deadline)
        again.close()

    def test_the_command_line_tells_each_change(self):
        name, = self.scan().volume_names
        program = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "volume", "watch"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.stderr.close)
        self.assertIn(f"EXISTS  {name}", program.stdout.readline())
        self.client.hold(name)
        line = program.stdout.readline()
        self.assertIn(f"CHANGED  {name}", line)
        self.assertIn("marked", line)
        self.client.discard(name)
        self.assertIn("GONE", program.stdout.readline())
        program.send_signal(signal.SIGINT)
        self.assertIn(program.wait(30), (0, 130))


class TheEnd(unittest.TestCase):
    def test_a_drain_ends_the_watches_at_once_and_says_why(self):
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        client = daemon.client()
        self.addCleanup(client.close)
        scan = client.wait(client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(16, 4, volumes=2), samples=64).name)
        watches = [Watch(client) for _ in range(20)]
        for watch in watches:
            watch.until(lambda changes: len(changes) == 2)
        buffers = client.buffers.watch()
        client.buffers.create((1,), "u8")
        next(buffers)
        self.assertEqual(len(scan.volume_names), 2)
        self.assertEqual(daemon.stop(), 0)
        for watch in watches:
            watch.thread.join(30)
            self.assertEqual(watch.error.code().name, "UNAVAILABLE")
            self.assertIn("the server ends", watch.error.details())
        with self.assertRaises(octavo.OctavoError) as caught:
            for _ in buffers:
                pass
        self.assertEqual((caught.exception.code.name, caught.exception.reason), ("UNAVAILABLE", "DRAINING"))


if __name__ == "__main__":
    unittest.main()
