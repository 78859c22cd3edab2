"""Packets of the hand-over socket, as octavo.handoff.v1 (proto/octavo/handoff/v1/handoff.proto) defines
them. Of mapping, lending and ring, which need neither gRPC nor the rest of the package: a program may load
them by their paths."""

from __future__ import annotations

import array
import importlib.util
import os
import socket
import sys
from typing import List, Optional, Sequence, Tuple

from google.protobuf.message import DecodeError

if __package__:
    from octavo.handoff.v1 import handoff_pb2 as messages
else:  # loaded by its path: the stubs lie beside it
    _spec = importlib.util.spec_from_file_location("octavo_handoff_pb2", os.path.join(os.path.dirname(os.path.abspath(__file__)), "handoff", "v1", "handoff_pb2.py"))
    messages = sys.modules.setdefault(_spec.name, importlib.util.module_from_spec(_spec))
    if not hasattr(messages, "ClientMessage"):
        _spec.loader.exec_module(messages)

OLDEST_VERSION, NEWEST_VERSION = 1, 1  # of the protocol, that this client speaks
MOST_BYTES = 64 << 10
MOST_HAVE = 1024  # entries of Present.have, Take.have, Forget.memory
_MOST_DESCRIPTORS = 16
_CODES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
          "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
          "UNAUTHENTICATED")


class Refused(Exception):
    """The server, or this end, refuses. code is the name of a google.rpc.Code; refused, what the server said."""

    def __init__(self, reason: str, message: str, code: str, refused: Optional[messages.Refused] = None):
        super().__init__(f"{reason}: {message}")
        self.reason, self.message, self.code, self.refused = reason, message, code, refused


class Socket(socket.socket):
    """The hand-over socket of one process. A process that was forked from it has the same connection, but says and takes nothing there: what it
    drops at its end is still in use here."""

    def __init__(self) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = os.getpid()

    @property
    def ours(self) -> bool:
        return self._process == os.getpid()


def refusal(refused: messages.Refused) -> Refused:
    code = _CODES[refused.code] if 0 <= refused.code < len(_CODES) else "UNKNOWN"
    return Refused(refused.reason or code, refused.message, code, refused)


def unknown(message: messages.ServerMessage) -> Refused:
    """An answer that this client does not understand."""
    return Refused("PROTOCOL", f"the server gave an answer that this client does not understand ({message.WhichOneof('body')})", "INTERNAL")


def _is_ours(connection: socket.socket) -> bool:
    """A socket that a program has made by itself is its own affair."""
    return not isinstance(connection, Socket) or connection.ours


def send(connection: Socket, message: messages.ClientMessage, descriptors: Sequence[int] = ()) -> None:
    """Sends a packet, with duplicates of the descriptors. OSError; a server that has ended the connection may have said why, so that is no
    error: receive() tells. Nothing in a forked process."""
    if not _is_ours(connection):
        return
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    try:
        connection.sendmsg([message.SerializeToString()], rights)
    except (BrokenPipeError, ConnectionResetError):
        pass


def receive(connection: Socket) -> Tuple[Optional[messages.ServerMessage], List[int]]:
    """The next packet and its descriptors, which the caller closes; waits. None: the connection has ended, or is of no use because a packet
    cannot be read, or this process was forked from that of the connection. socket.timeout, if the socket has one."""
    if not _is_ours(connection):
        return None, []
    try:
        data, control, flags, _ = connection.recvmsg(MOST_BYTES, socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC)
    except socket.timeout:
        raise
    except OSError:
        return None, []
    descriptors = array.array("i")
    for level, kind, payload in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[:len(payload) - len(payload) % descriptors.itemsize])
    message = None
    if data and not flags & socket.MSG_TRUNC:
        try:
            message = messages.ServerMessage.FromString(data)
        except (DecodeError, RecursionError):
            pass
    if message is None:
        close(descriptors)
        return None, []
    return message, list(descriptors)


def close(descriptors) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def connect(path: str, purpose: int, timeout: Optional[float]) -> Socket:
    """A connection to the socket on which the server has taken the Hello. OSError, Refused."""
    connection = Socket()
    try:
        connection.connect(path)
        versions = messages.Versions(oldest=OLDEST_VERSION, newest=NEWEST_VERSION)
        send(connection, messages.ClientMessage(hello=messages.Hello(versions=versions, purpose=purpose)))
        connection.settimeout(timeout)
        answer, descriptors = receive(connection)
        connection.settimeout(None)
        close(descriptors)
        if answer is None:
            raise ConnectionResetError("the server ended the connection")
        if answer.HasField("refused"):
            raise refusal(answer.refused)
        if not OLDEST_VERSION <= answer.welcome.version <= NEWEST_VERSION:  # 0: no Welcome
            raise unknown(answer)
    except BaseException:
        connection.close()
        raise
    return connection
