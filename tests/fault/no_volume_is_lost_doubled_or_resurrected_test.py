"""Sixteen clients do what they like with the same volumes and buffers, while the server is killed and comes back. Each call is recorded, and
history_checker.py compares the whole history with a model: no acknowledged commit is lost, none is done twice, nothing comes back after its
end, exclusive leases exclude, and of two verbs that exclude each other exactly one succeeds."""

import json
import os
import random
import threading
import time
import unittest
import uuid

import numpy as np

import history_checker
from digest import sum64
from faults import LONG, SEED, FaultTest
from harness import octavo
from history_checker import Op

SECONDS = float(os.environ.get("OCTAVO_FAULT_SECONDS", "600" if LONG else "15"))
KILLS = 8 if LONG else 1
CLIENTS = 16
KEEP = os.environ.get("OCTAVO_FAULT_HISTORY")  # a file for the history, for people
# A server that has no room, or an object that is just not to be had.
EXPECTED = {"DEVICE_FULL", "BUSY", "QUOTA", "SPILL_QUOTA", "SPILL_FULL", "TIER_FULL", "OUT_OF_MEMORY", "MOVING", "LEASED", "VOLUME_STATE", "VOLUME_GONE", "NO_VOLUME", "NO_BUFFER",
            "COMMIT_CANCELLED", "LOST", "IN_PROGRESS", "BUFFER_GONE", "LEASE_LOST", "IDEMPOTENCY_MISMATCH"}


class Recorder:
    def __init__(self):
        self.begun, self.ops, self.lock = time.monotonic(), [], threading.Lock()

    def now(self):
        return time.monotonic() - self.begun

    def add(self, *fields, **named):
        op = Op(*fields, **named)
        with self.lock:
            self.ops.append(op)
        return op


class World:
    """What all clients see: the newest objects, and whether the server is there."""

    def __init__(self):
        self.recorder, self.stop, self.up = Recorder(), threading.Event(), threading.Event()
        self.volumes, self.buffers, self.lock, self.unexpected, self.starts = [], [], threading.Lock(), [], 0
        self.up.set()

    def put(self, where, name):
        with self.lock:
            where.append(name)

    def some(self, where, random):
        """Mostly one of the few newest, so that clients meet."""
        with self.lock:
            return random.choice(where[-3:] if random.random() < 0.7 else where[-40:]) if where else None


class RandomClient:
    def __init__(self, number, address, world):
        self.name, self.random, self.world = f"client-{number}", random.Random(f"{SEED} {number}"), world
        self.address, self.client, self.starts = address, octavo.Client(address, client=self.name), 0
        self.retries = []  # commits whose outcome is unknown, or that succeeded

    def call(self, kind, name, act, see=None, **args):
        """Makes one call and records it. see: from the answer to what is recorded beside `args`."""
        begin = self.world.recorder.now()
        try:
            answer = act()
            outcome, reason = "ok", ""
            args = {**args, **(see(answer) if see else {})}
        except octavo.OctavoError as error:
            answer, reason = None, error.reason
            outcome = "failed" if error.reason and error.reason != "IN_PROGRESS" else "unknown"
            if error.reason not in EXPECTED and error.code.name not in ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"):
                self.world.unexpected.append(f"{kind} {name}: {error.code.name} {error.reason}: {error.message}")
        self.world.recorder.add(kind, name, begin, self.world.recorder.now(), outcome, reason, args, self.name)
        return answer, outcome

    # -- volumes
    def scan(self):
        begin, count = self.world.recorder.now(), self.random.randint(1, 2)
        try:
            scan = self.client.submit_scan(octavo.simulated(self.random.randrange(1 << 20), fast=True), octavo.raster(16, 8, volumes=count), samples=256,
                                           retention=dict(hold_slots=count), request_id=uuid.UUID(int=self.random.getrandbits(128)).hex)
            if self.random.random() < 0.1:
                self.client.cancel(scan.name)
            self.client.wait(scan.name)
            volumes = self.client.volumes(scan.name)
        except octavo.OctavoError as error:
            if error.reason not in EXPECTED and error.code.name != "UNAVAILABLE":
                self.world.unexpected.append(f"scan: {error}")
            return
        end = self.world.recorder.now()
        for volume in volumes:
            self.world.recorder.add("create", volume.name, begin, end, "ok", "", dict(digest=volume.digest), self.name)
            self.world.put(self.world.volumes, volume.name)

    def commit(self):
        name = self.world.some(self.world.volumes, self.random)
        if self.retries and self.random.random() < 0.3:
            name, request = self.random.choice(self.retries[-8:])
        else:
            request = uuid.UUID(int=self.random.getrandbits(128)).hex
        if name is None:
            return
        destination = f"{name.split('/')[1]}-{request}"
        _, outcome = self.call("commit", name, lambda: self.client.commit(name, destination, "npy", request_id=request), request=request, destination=destination)
        if outcome != "failed":
            self.retries.append((name, request))

    def cancelled_commit(self):
        name, request = self.world.some(self.world.volumes, self.random), uuid.UUID(int=self.random.getrandbits(128)).hex
        if name is None:
            return
        destination = f"{name.split('/')[1]}-{request}"

        def act():
            operation = self.client.start_commit(name, destination, "npy", request_id=request).name
            self.client.cancel_operation(operation)
            return self.client.wait_operation(operation)
        self.call("commit", name, act, request=request, destination=destination)

    def on_a_volume(self, kind, act, see=None, **args):
        name = self.world.some(self.world.volumes, self.random)
        if name is not None:
            self.call(kind, name, lambda: act(name), see, **args)

    def discard(self):
        self.on_a_volume("discard", self.client.discard)

    def spill(self):
        self.on_a_volume("spill", self.client.spill, tier="disk")

    def restore(self):
        self.on_a_volume("restore", self.client.restore)

    def hold(self):
        self.on_a_volume(*self.random.choice([("hold", self.client.hold), ("release", self.client.release)]))

    def read(self):
        self.on_a_volume("read", self.client.read, lambda array: dict(digest=sum64(array)))

    def get(self):
        name = self.world.some(self.world.volumes, self.random)
        if name is not None:
            self.look(name)

    def look(self, name):
        def act():
            try:
                return str(self.client.volume(name).state)
            except octavo.OctavoError as error:
                if error.reason in ("NO_VOLUME", "VOLUME_GONE", "LOST"):
                    return error.reason
                raise
        self.call("get", name, act, lambda state: dict(state=state))

    # -- leases
    def lease(self):
        exclusive = self.random.random() < 0.5
        name = self.world.some(self.world.buffers if exclusive else self.world.volumes, self.random)
        if name is None:
            return
        recorder, args = self.world.recorder, dict(mode="exclusive" if exclusive else "shared")
        begin = recorder.now()
        try:
            lease = self.client.lease(name, exclusive=exclusive, seconds=600, wait=self.random.choice([0, 0, 1]))
            outcome, reason, end = "ok", "", recorder.now()
        except octavo.OctavoError as error:
            lease, reason, end = None, error.reason, recorder.now()
            outcome = "failed" if error.reason else "unknown"
        if lease is not None:
            time.sleep(self.random.random() * 0.02)  # the lease is held for a while
            if exclusive:
                self.write(name, lease)
            begun = recorder.now()
            try:
                lease.release()
                args["released"] = (begun, recorder.now())
            except octavo.OctavoError:
                args["released"] = (begun, float("inf"))  # with the server, or with the object that another client's lease token ended
        recorder.add("lease", name, begin, end, outcome, reason, args, self.name)

    # -- buffers
    def value(self):
        return self.random.randrange(1, 1 << 31)

    def make_buffer(self):
        begin, value = self.world.recorder.now(), self.value()
        try:
            buffer = self.client.buffers.create((1 << 12,), "u32").name
        except octavo.OctavoError:
            return
        self.world.recorder.add("create", buffer, begin, self.world.recorder.now(), "ok", "", dict(value=0), self.name)
        self.call("write", buffer, lambda: self.client.buffers.write(buffer, np.full(1 << 12, value, "<u4")), value=value)
        self.world.put(self.world.buffers, buffer)

    def write(self, name=None, lease=None):
        name, value = name or self.world.some(self.world.buffers, self.random), self.value()
        if name is not None:
            self.call("write", name, lambda: self.client.buffers.write(name, np.full(1 << 12, value, "<u4"), check=False, lease_token=lease.token if lease else ""), value=value)

    def read_buffer(self):
        name = self.world.some(self.world.buffers, self.random)
        if name is not None:
            self.call("read", name, lambda: self.client.buffers.read(name), lambda array: dict(value=int(array[0]) if (array == array[0]).all() else "torn"))

    def destroy(self):
        name = self.world.some(self.world.buffers, self.random)
        if name is not None:
            self.call("destroy", name, lambda: self.client.buffers.destroy(name))

    def run(self):
        steps = ([self.scan] * 3 + [self.commit] * 5 + [self.cancelled_commit] + [self.discard] * 3 + [self.spill] * 3 + [self.restore] * 2 + [self.hold, self.read, self.read]
                 + [self.get] * 4 + [self.lease] * 4 + [self.make_buffer, self.write, self.write, self.read_buffer, self.read_buffer, self.destroy])
        while not self.world.stop.is_set():
            if self.world.up.wait(0.1):
                if self.starts != self.world.starts:  # a channel would wait before it connects again
                    self.client.close()
                    self.client, self.starts = octavo.Client(self.address, client=self.name), self.world.starts
                self.random.choice(steps)()


class History(FaultTest):
    FLAGS = ("--device.memory_bytes", str(512 << 20), "--spill.host_bytes", "0")

    def kill(self, daemon, world):
        begin = world.recorder.now()
        daemon.kill()
        world.up.clear()
        daemon = self.start(*self.FLAGS)
        world.recorder.add("restart", "", begin, world.recorder.now(), "ok")
        world.starts += 1
        world.up.set()
        return daemon

    def test_the_history_is_explained(self):
        daemon, world = self.start(*self.FLAGS), World()
        address = "unix:" + daemon.ready["unix"]
        clients = [RandomClient(i, address, world) for i in range(CLIENTS)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            time.sleep(SECONDS / (KILLS + 1))  # the clients work
            daemon = self.kill(daemon, world)
        time.sleep(SECONDS / (KILLS + 1))
        world.stop.set()
        for thread in threads:
            thread.join(120)
            self.assertFalse(thread.is_alive(), "a call does not return")
        for name in world.volumes:  # the last looks
            clients[0].look(name)
        for client in clients:
            client.client.close()
        self.assertEqual(daemon.stop(), 0)
        files = {}
        for name in self.files():
            if name.endswith(".npy"):
                try:
                    files[name[:-len(".npy")]] = sum64(np.load(os.path.join(self.root, name)))
                except (OSError, ValueError):
                    files[name[:-len(".npy")]] = "torn"
        ops = world.recorder.ops
        if KEEP:
            with open(KEEP, "w") as out:
                out.writelines(json.dumps(op._asdict()) + "\n" for op in ops)
        counts = {}
        for op in ops:
            counts[f"{op.kind} {op.outcome}"] = counts.get(f"{op.kind} {op.outcome}", 0) + 1
        print(f"{len(ops)} calls on {len(world.volumes)} volumes and {len(world.buffers)} buffers, {len(files)} files, {KILLS} kills: {dict(sorted(counts.items()))}", flush=True)
        problems = history_checker.check(ops, files)
        self.assertEqual(problems, [], f"{len(problems)} problems:\n" + "\n".join(problems[:5]))
        self.assertFalse(world.unexpected, "\n".join(world.unexpected[:20]))
        for enough in ("create ok", "commit ok", "commit failed", "discard ok", "spill ok", "lease ok", "read ok", "write ok"):
            self.assertGreater(counts.get(enough, 0), 3, enough)


if __name__ == "__main__":
    unittest.main()
