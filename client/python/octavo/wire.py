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
    """The server, or this end, refuses. code is the name of a google.rpc.Code."""

    def __init__(self, reason: str, message: str, code: str):
        super().__init__(f"{reason}: {message}")
        self.reason, self.message, self.code = reason, message, code


def refusal(refused: messages.Refused) -> Refused:
    code = _CODES[refused.code] if 0 <= refused.code < len(_CODES) else "UNKNOWN"
    return Refused(refused.reason or code, refused.message, code)


def unknown(message: messages.ServerMessage) -> Refused:
    """An answer that this client does not understand."""
    return Refused("PROTOCOL", f"the server gave an answer that this client does not understand ({message.WhichOneof('body')})", "INTERNAL")


def send(connection: socket.socket, message: messages.ClientMessage, descriptors: Sequence[int] = ()) -> None:
    """Sends a packet, with duplicates of the descriptors. OSError; a server that has ended the connection may have said why, so that is no
    error: receive() tells."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    try:
        connection.sendmsg([message.SerializeToString()], rights)
    except (BrokenPipeError, ConnectionResetError):
        pass


def receive(connection: socket.socket) -> Tuple[Optional[messages.ServerMessage], List[int]]:
    """The next packet and its descriptors, which the caller closes; waits. None: the connection has ended, or is of no use because a packet
    cannot be read. socket.timeout, if the socket has one."""
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


def connect(path: str, purpose: int, timeout: Optional[float]) -> socket.socket:
    """A connection to the socket on which the server has taken the Hello. OSError, Refused."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
