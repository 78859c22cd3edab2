"""Large reads by liboctavo_read (client/cpp/include/octavo/octavo_read.h), where it is found: its threads take the messages out of gRPC and copy
them without Python's lock, for which the threads of a Python program wait for one another."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import Optional

import numpy as np

from octavo import tls
from octavo.arguments import short
from octavo.v1 import volume_pb2

_NAME = "liboctavo_read.so"
_VERSION = 1  # of octavo_read.h; the file of the installed library has it in its name
_RUNS = -1
_SLICE_S = 0.1  # between looks for an interruption
_UNKNOWN = object()


class _Login(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("token_file", "ca_file", "cert_file", "key_file", "server_name")]


def _load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.octavo_read_version.restype = ctypes.c_uint32
    library.octavo_reader_open.restype = library.octavo_read_begin.restype = ctypes.c_void_p
    library.octavo_reader_open.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Login)]
    library.octavo_reader_close.argtypes = library.octavo_read_cancel.argtypes = library.octavo_read_end.argtypes = [ctypes.c_void_p]
    library.octavo_reader_close.restype = library.octavo_read_cancel.restype = library.octavo_read_end.restype = None
    library.octavo_read_begin.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t]
    library.octavo_read_wait.argtypes = [ctypes.c_void_p, ctypes.c_double]
    library.octavo_read_wait.restype = ctypes.c_int
    if library.octavo_read_version() != _VERSION:
        raise OSError(f"{path} has version {library.octavo_read_version()} of octavo_read.h; expected {_VERSION}")
    return library


def _find() -> Optional[ctypes.CDLL]:
    wanted = os.environ.get("OCTAVO_READ_LIBRARY")
    if wanted == "none":
        return None
    if wanted:
        try:
            return _load(wanted)
        except (OSError, AttributeError) as error:
            raise ValueError(f"OCTAVO_READ_LIBRARY is {short(wanted)}, which cannot be used ({error}); expected the path of {_NAME}, or none") from None
    for path in (os.path.join(os.path.dirname(os.path.abspath(__file__)), _NAME), f"{_NAME}.{_VERSION}"):
        try:
            ctypes.CDLL(path)
        except OSError:  # it is not there
            continue
        try:
            return _load(path)
        except (OSError, AttributeError):  # of another version: a second library in one process would clash with it
            return None
    return None


_lock = threading.Lock()
_found: object = _UNKNOWN


def library() -> Optional[ctypes.CDLL]:
    """The library, looked for once: $OCTAVO_READ_LIBRARY ("none": do without), beside this package, or where the system has its libraries. None if
    it is not there: reads are slower then, and else the same. ValueError for a variable that names none."""
    global _found
    with _lock:
        if _found is _UNKNOWN:
            _found = _find()
        return _found  # type: ignore[return-value]


def _in_child() -> None:
    """The threads of the library are its parent's: the child does without."""
    global _found, _lock
    _lock, _found = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class _Read:
    """One read, on a thread of its own, which no signal interrupts: so the array stays until the library writes into it no more."""

    def __init__(self, found: ctypes.CDLL, handle: int, request: volume_pb2.ReadVolumeRequest, connections: int, flat: np.ndarray):
        self._found, self._handle, self._request, self._connections, self._flat = found, handle, request.SerializeToString(), connections, flat
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._read: Optional[int] = None  # while it runs
        self.code: Optional[int] = None  # None: it did not begin

    def stop(self) -> None:
        self._stopped.set()
        with self._lock:
            if self._read is not None:
                self._found.octavo_read_cancel(self._read)

    def run(self) -> None:
        if self._stopped.is_set():
            return
        read = self._found.octavo_read_begin(self._handle, self._request, len(self._request), self._connections, self._flat.ctypes.data, self._flat.nbytes)
        if read is None:
            return
        with self._lock:
            self._read = read
        try:
            while True:
                self.code = self._found.octavo_read_wait(read, _SLICE_S)
                if self.code != _RUNS or self._stopped.is_set() or not threading.main_thread().is_alive():  # the program ends
                    return
        finally:
            with self._lock:
                self._read = None
            self._found.octavo_read_end(read)  # also ends one that is under way


class Reader:
    """Connections of the library to one server. They are made with the first read. Thread-safe."""

    def __init__(self, address: tls.Address, token_file: object):
        self._address, self._token_file = address, token_file
        self._lock = threading.RLock()  # a signal's handler may close the client that it interrupts
        self._handle: Optional[int] = None
        self._pid = os.getpid()
        self._under_way = 0
        self._closed = False

    def read(self, request: volume_pb2.ReadVolumeRequest, connections: int, flat: np.ndarray) -> bool:
        """Reads the box, which has the bytes of `flat`, an array of u1, into it. connections: at most so many; 0: as the processors and the box allow.
        False: the library is not there, or could not read; whoever reads in another way hears why."""
        found = library()
        if found is None or self._pid != os.getpid():
            return False
        handle = self._begin(found)
        if handle is None:
            return False
        read = _Read(found, handle, request, connections, flat)

        def run() -> None:
            try:
                read.run()
            finally:
                self._end()
                done.set()

        done = threading.Event()  # Thread.join takes a thread for ended whose join was interrupted
        thread = threading.Thread(target=run, name="octavo-read")
        try:
            thread.start()
            done.wait()
        except RuntimeError:  # the system has none left
            self._end()
            return False
        finally:
            read.stop()
            if thread.ident is not None:  # else it has not begun: a signal interrupted its start
                done.wait()
        return read.code == 0

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            self._close_if_idle()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the interpreter
            self.close()

    def _begin(self, found: ctypes.CDLL) -> Optional[int]:
        with self._lock:
            if self._closed:
                return None
            if self._handle is None:
                files = self._address.tls
                login = _Login(*(os.fsencode(path) if path else b"" for path in (self._token_file, files.ca, files.cert, files.key)),
                               files.server_name.encode())
                self._handle = found.octavo_reader_open(str(self._address).encode(), ctypes.byref(login))
            self._under_way += self._handle is not None
            return self._handle

    def _end(self) -> None:
        with self._lock:
            self._under_way -= 1
            if self._closed:
                self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._under_way > 0 or self._handle is None:
            return
        found, handle, self._handle = library(), self._handle, None
        if found is not None:
            found.octavo_reader_close(handle)
