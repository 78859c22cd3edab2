"""Client.read by liboctavo_read (octavo_read.h): the same voxels as by Python's own threads, and none of them after an end. A process without the
library, a child that was forked and a library that cannot read do as they did without it."""

import concurrent.futures
import contextlib
import ctypes
import gc
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from unittest import mock

import grpc
import numpy as np

from harness import SOURCE, Daemon, DaemonTest, octavo, until
from lab import Lab
from octavo import native_read, tls, volume_read
from octavo.v1 import volume_pb2
from read_test import SEED, EveryVolume, Told, splitting, volume_of


INTERRUPTED = """
import os, random, signal, sys, threading, time
import numpy as np
import octavo
draw, interrupted = random.Random(int(sys.argv[3])), 0

def read(client, **fields):
    while True:
        try:
            return client.read(sys.argv[2], **fields)
        except octavo.OctavoError as error:  # the calls of an interrupted read have not ended yet on the server
            if error.reason != "NO_STAGING":
                raise

wanted = read(octavo.Client(sys.argv[1]))
for _ in range(30):
    client = octavo.Client(sys.argv[1])
    out = np.full_like(wanted, np.nan)
    read(client, out=out)  # connects
    out.fill(np.nan)
    came = threading.Event()
    alarm = threading.Timer(0.001 + draw.random() * 0.03, os.kill, (os.getpid(), signal.SIGINT))
    try:
        alarm.start()
        read(client, out=out, connections=draw.randint(1, 4))
        came.wait(5)  # for one after the read
    except KeyboardInterrupt:
        interrupted += not np.array_equal(out, wanted)
    now = out.copy()
    time.sleep(0.005)  # a thread that still wrote would need less
    np.testing.assert_array_equal(out, now)
print(interrupted, flush=True)
os._exit(0)
"""


def with_library():
    """The library of this build, although read_test does without."""
    return mock.patch.multiple(native_read, _found=native_read._UNKNOWN), mock.patch.dict(os.environ, {"OCTAVO_READ_LIBRARY": ""})


class Library(unittest.TestCase):
    def setUp(self):
        for patch in with_library():
            patch.start()
            self.addCleanup(patch.stop)

    def native(self):
        """Python's own way may not be gone."""
        return mock.patch.object(volume_read, "_call", side_effect=AssertionError("not by the library"))

    def asked(self):
        """What the library was asked for, and whether it did it."""
        seen, before = [], native_read.Reader.read

        def read(reader, request, connections, flat):
            seen.append(before(reader, request, connections, flat))
            return seen[-1]

        return seen, mock.patch.object(native_read.Reader, "read", read)


class Reads(Library, EveryVolume, DaemonTest):
    flags = ("--spill.host_bytes", str(64 << 20), "--device.frame_pool_bytes", str(256 << 20))

    def python(self, volume, *box, **options):
        with mock.patch.object(native_read, "_found", None):
            return volume.read(*box, **options)

    def check(self, volume, *box, **options):
        wanted = self.python(volume, *box, **options)
        for connections in (1, 2, 5, 0):
            with self.native(), splitting(1):
                read = volume.read(*box, connections=connections, **options)
            self.assertEqual((read.dtype, read.shape), (wanted.dtype, wanted.shape))
            self.assertEqual(read.tobytes(), wanted.tobytes())
        return wanted

    def test_a_large_volume_in_any_number_of_ranges(self):
        volume, draw = volume_of(self.client, 512, 129, 512, dtype="f32"), random.Random(SEED)  # 64.5 MiB
        wanted = self.python(volume)
        for connections in (1, 2, 3, 16, 0):
            out = np.full(wanted.shape, np.nan, np.float32)
            with self.native():
                self.assertIs(volume.read(connections=connections, out=out), out)
            self.assertEqual(out.tobytes(), wanted.tobytes())
        for _ in range(4):  # at least 16 MiB each
            start = [draw.randrange(40), draw.randrange(100), draw.randrange(20)]
            with self.native():
                read = volume.read(start, connections=draw.randint(1, 5))
            np.testing.assert_array_equal(read, wanted[start[0]:, start[1]:, start[2]:])
        grey = self.python(volume, (), (128, 0, 0), window=(0, 20000))
        with self.native():
            np.testing.assert_array_equal(volume.read((), (128, 0, 0), window=(0, 20000)), grey)
        seen, asking = self.asked()
        with asking:
            volume.read(count=(9, 0, 0))  # 4.5 MiB: no matter for it
            volume.read(downsample=2)
        self.assertEqual(seen, [])

    def test_what_is_refused_is_refused_in_the_same_words(self):
        volume = volume_of(self.client)
        for start, count in (((99, 0, 0), ()), ((), (99, 1, 1)), ((0, 0), ()), ((-1, 0, 0), ())):
            errors = []
            for read in (volume.read, lambda *box: self.python(volume, *box)):
                with splitting(), self.assertRaises(octavo.OctavoError) as caught:
                    read(start, count)
                errors.append(str(caught.exception))
            self.assertEqual(*errors)
        for out, words in ((np.empty((1, 2), np.uint8), r"\(1, 2\)"), (np.empty(tuple(volume.shape)[::-1], np.uint8).T, "not in C order")):
            with splitting(), self.assertRaisesRegex(ValueError, f"out is .*{words}"):
                volume.read(out=out)

    def test_many_at_once_and_a_close_in_the_middle(self):
        volume = volume_of(self.client, 512, 65, 512, dtype="f32")
        wanted = self.python(volume).tobytes()
        seen, asking = self.asked()
        with asking, concurrent.futures.ThreadPoolExecutor(3) as pool:  # the server has room for so many calls
            for read in pool.map(lambda i: volume.read(connections=1 + i % 2).tobytes(), range(20)):
                self.assertEqual(read, wanted)
        self.assertEqual(seen, [True] * 20)
        client = self.daemon.client()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            reads = [pool.submit(client.read, volume.name, connections=1) for _ in range(8)]
            until(lambda: any(read.done() for read in reads))
            client.close()
            for read in reads:
                try:
                    self.assertEqual(read.result(60).tobytes(), wanted)
                except ValueError as error:
                    self.assertIn("closed", str(error))
                except octavo.OctavoError as error:  # Python's own way, of which the end is one of its channel
                    self.assertEqual(error.code, grpc.StatusCode.CANCELLED)
        self.assertEqual(client._reader._native._under_way, 0)

    def test_a_volume_that_is_discarded_meanwhile_comes_whole_or_not(self):
        for pause in (0, 0.002, 0.01):
            volume = volume_of(self.client, 512, 129, 512, dtype="f32")
            wanted = self.python(volume)
            discarder = threading.Timer(pause, volume.discard)
            discarder.start()
            try:
                np.testing.assert_array_equal(volume.read(connections=4), wanted)
            except octavo.OctavoError as error:
                self.assertIn(error.code, (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION))
            discarder.join()

    def test_a_server_that_dies_is_told_as_without(self):
        daemon = Daemon("--device.frame_pool_bytes", str(256 << 20))
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            volume = volume_of(client, 512, 129, 512, dtype="f32")
            volume.read()
            killer = threading.Timer(0.005, daemon.kill)
            killer.start()
            with self.assertRaises(octavo.OctavoError) as caught:
                while True:
                    volume.read()
            killer.join()
            self.assertEqual(caught.exception.code, grpc.StatusCode.UNAVAILABLE)

    def test_it_logs_in_by_certificates(self):
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(os.path.join(folder, "lab"))
            daemon = Daemon(*lab.flags(), "--listen.tls.client_certificates", "required", "--security.certificate_role", "operator")
            self.addCleanup(daemon.remove)
            with octavo.Client(daemon.address, **lab.client("anna")) as client:
                volume = volume_of(client)
                wanted = self.python(volume)
                with self.native(), splitting(1):
                    self.assertEqual(volume.read().tobytes(), wanted.tobytes())

    def test_nothing_writes_after_an_interrupt(self):
        # In a program of its own, with a client for each read: an interrupt in the middle of grpcio's own code may leave a channel locked for ever.
        volume = volume_of(self.client, 512, 129, 512, dtype="f32")
        done = subprocess.run(["/usr/bin/python3", "-c", INTERRUPTED, self.daemon.address, volume.name, str(SEED)], capture_output=True, text=True, timeout=200,
                              env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(octavo.__file__))})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertGreater(int(done.stdout), 0)

    def test_clients_leave_nothing(self):
        volume = volume_of(self.client)

        def left():
            gc.collect()
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

        def read(close):
            client = self.daemon.client()
            with self.native(), splitting(1):
                client.read(volume.name)
            client._reader._native.close() if close else None
            client.channel.close()

        for close in (True, False):  # the last ones are dropped
            for _ in range(3):
                read(close)
            before = left()
            for _ in range(20):
                read(close)
            until(lambda: all(after <= most + 3 for after, most in zip(left(), before)))

    def test_a_program_may_end_in_the_middle(self):
        volume = volume_of(self.client, 512, 129, 512, dtype="f32")
        program = """
import sys, threading, time
import octavo
client = octavo.Client(sys.argv[1])
client.read(sys.argv[2])
begun = threading.Event()
def read():
    while True:
        begun.set()
        client.read(sys.argv[2], connections=2)
threading.Thread(target=read, daemon=True).start()
begun.wait()
time.sleep(float(sys.argv[3]))
"""
        for pause in ("0", "0.005", "0.02", "0.05"):
            done = subprocess.run(["/usr/bin/python3", "-c", program, self.daemon.address, volume.name, pause], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(octavo.__file__))})
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_client_that_reads_nothing_large_loads_nothing(self):
        volume = volume_of(self.client)
        for value in ("", "/nowhere"):
            with mock.patch.dict(os.environ, {"OCTAVO_READ_LIBRARY": value}), self.daemon.client() as client:
                client.read(volume.name)
            self.assertIs(native_read._found, native_read._UNKNOWN)

    def test_a_server_that_comes_back(self):
        flags = ("--device.frame_pool_bytes", str(256 << 20))
        daemon = Daemon(*flags)
        seen, asking = self.asked()
        with daemon.client() as client, asking, splitting(1):
            self.assertEqual(client.read(volume_of(client).name).ndim, 3)
            self.assertEqual(seen, [True])
            address = daemon.address
            daemon.remove()
            daemon = Daemon(*flags, "--listen.tcp", address)
            self.addCleanup(daemon.remove)
            with daemon.client() as other:  # one that has not waited for the old server
                volume = volume_of(other)
                wanted = self.python(volume)

            def again():
                with contextlib.suppress(octavo.OctavoError):
                    self.assertEqual(client.read(volume.name).tobytes(), wanted.tobytes())
                return seen[-1]

            seen[-1] = False
            until(again)

    def test_by_other_addresses(self):
        volume = volume_of(self.client)
        wanted = self.python(volume)
        port = self.daemon.address.rsplit(":", 1)[1]
        for address in ("unix:" + self.daemon.ready["unix"], f"localhost:{port}", f"dns:///localhost:{port}"):
            with self.subTest(address), mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:9"}), octavo.Client(address) as client:
                with self.native(), splitting(1):
                    self.assertEqual(client.read(volume.name).tobytes(), wanted.tobytes())

    def test_a_forked_child_does_without(self):
        volume = volume_of(self.client)
        with splitting():
            volume.read()
        reader, out = self.client._reader._native, np.zeros(64, np.uint8)
        child = os.fork()
        if child == 0:
            done = native_read.library() is None and not reader.read(volume_pb2.ReadVolumeRequest(name=volume.name), 0, out)
            reader.close()
            os._exit(0 if done else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        with self.native(), splitting(1):
            volume.read()


class OddServers(Library):
    def told(self, answer):
        told = Told()
        told.answer = lambda request, context: answer(told, request, context)
        self.addCleanup(told.server.stop, None)
        return told

    def test_what_the_library_cannot_read_python_hears(self):
        def beyond(told, request, context):
            head, *rest = told.messages(request)
            rest[-1].offset += 1 << 40
            return [head, *rest]

        for answer, words in ((beyond, "beyond its end"), (lambda told, request, context: list(told.messages(request))[:-1], "sent only"),
                              (lambda told, request, context: [b"\x3a\xff\xff"], "cannot be read")):
            told = self.told(answer)
            seen, asking = self.asked()
            with octavo.Client(told.address) as client, splitting(), asking, self.assertRaises(octavo.OctavoError) as caught:
                client.read("volumes/1-a", connections=1)
            self.assertEqual(caught.exception.code, grpc.StatusCode.DATA_LOSS)
            self.assertIn(words, caught.exception.message)
            self.assertEqual(seen, [False])

    def test_it_carries_the_token(self):
        with tempfile.NamedTemporaryFile("w", suffix=".token") as file:
            token = "octavo_" + "0" * 8 + "_" + "1" * 64
            file.write(token + "\n")
            file.flush()
            told = self.told(lambda told, request, context: told.messages(request))
            with octavo.Client(told.address, token_file=file.name) as client, self.native(), splitting():
                self.assertEqual(client.read("volumes/1-a").tobytes(), told.voxels.tobytes())
        self.assertEqual([metadata.get("authorization") for _, _, metadata in told.calls], [f"Bearer {token}"])

    def test_a_login_that_is_gone_is_left_to_python(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "token")
            with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write("octavo_" + "0" * 8 + "_" + "1" * 64)
            told = self.told(lambda told, request, context: told.messages(request))
            seen, asking = self.asked()
            with octavo.Client(told.address, token_file=path) as client, splitting(), asking:
                os.unlink(path)
                self.assertEqual(client.read("volumes/1-a").tobytes(), told.voxels.tobytes())
            self.assertEqual(seen, [False])

    def test_an_interrupt_ends_it(self):
        ended = threading.Event()

        def wait(told, request, context):
            context.add_callback(ended.set)
            yield next(told.messages(request))
            os.kill(os.getpid(), signal.SIGINT)
            ended.wait(60)

        told = self.told(wait)
        with octavo.Client(told.address) as client, splitting():
            begun = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                client.read("volumes/1-a")
            self.assertLess(time.monotonic() - begun, 30)
            until(lambda: client._reader._native._under_way == 0)
        self.assertTrue(ended.wait(60))

    def test_a_box_of_other_bytes(self):
        told = self.told(lambda told, request, context: told.messages(request))
        reader = native_read.Reader(tls.Address(told.address), None)
        request = volume_pb2.ReadVolumeRequest(name="volumes/1-a")
        for size in (told.voxels.nbytes - 1, told.voxels.nbytes + 1, 1):
            self.assertFalse(reader.read(request, 1, np.zeros(size, np.uint8)))
        flat = np.zeros(told.voxels.nbytes, np.uint8)
        self.assertFalse(reader.read(request, 17, flat))
        self.assertTrue(reader.read(request, 1, flat))
        self.assertEqual(flat.tobytes(), told.voxels.tobytes())
        reader.close()
        self.assertFalse(reader.read(request, 1, flat))


class Found(Library):
    def test_beside_the_package(self):
        self.assertIsInstance(native_read.library(), ctypes.CDLL)
        self.assertIs(native_read.library(), native_read.library())

    def test_by_the_environment(self):
        for value, words in (("/nowhere/liboctavo_read.so", "cannot open shared object file"), ("libc.so.6", "undefined symbol: octavo_read_version"),
                             (SOURCE, "OCTAVO_READ_LIBRARY is ")):
            with mock.patch.dict(os.environ, {"OCTAVO_READ_LIBRARY": value}), self.assertRaisesRegex(ValueError, f"(?s){words}.*expected the path of"):
                native_read.library()
        with mock.patch.dict(os.environ, {"OCTAVO_READ_LIBRARY": "none"}):
            self.assertIsNone(native_read.library())

    def test_another_version_is_left_alone(self):
        with mock.patch.object(native_read, "_VERSION", 2):
            self.assertIsNone(native_read.library())

    def test_its_header_is_c_and_cpp(self):
        header = os.path.join(SOURCE, "client", "cpp", "include", "octavo", "octavo_read.h")
        for language, standard in (("c", "c11"), ("c++", "c++11")):
            done = subprocess.run(["cc", "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", header],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_it_shows_its_own_names_alone(self):
        shown = subprocess.run(["nm", "-D", "--defined-only", native_read.library()._name], capture_output=True, text=True, check=True).stdout
        names = {line.split()[-1] for line in shown.splitlines()}
        self.assertEqual(names, {"octavo_read_version", "octavo_reader_open", "octavo_reader_close", "octavo_read_begin", "octavo_read_wait",
                                 "octavo_read_cancel", "octavo_read_end"})


if __name__ == "__main__":
    unittest.main()
