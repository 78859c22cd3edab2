"""Sessions, by which the server notices that a client has gone, and leases."""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Optional

import grpc

from octavo import errors
from octavo.arguments import duration, explained_methods, short
from octavo.v1 import session_pb2

if TYPE_CHECKING:
    from octavo.client import Client


@explained_methods
class Session:
    """A session that its own thread keeps alive until it is closed or the process ends. Made by
    Client.session().

    name     "sessions/..."
    secret   proof of ownership: Client.session(secret=...) resumes the session, also from another
             process
    lost     why it could not be kept alive; "" while it is alive
    closed   close() has ended it, or its `with` block has
    """

    def __init__(self, client: Client, name: str, secret: str, heartbeat_seconds: float, expiry_seconds: float):
        self.name, self.secret, self.lost, self.closed = name, secret, "", False
        self.heartbeat_seconds, self.expiry_seconds = heartbeat_seconds, expiry_seconds
        self._client = client
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="octavo-session", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._end.wait(self.heartbeat_seconds):
            try:
                self._client._sessions.KeepAlive(session_pb2.KeepAliveRequest(secret=self.secret), timeout=self.heartbeat_seconds)
                self.lost = ""
            except grpc.RpcError as error:
                self.lost = error.details() or str(error.code())
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    return  # the server was restarted and has forgotten the session
            except ValueError as error:  # the channel was closed
                self.lost = str(error)
                return

    def stop(self) -> None:
        """Stops the signs of life; the server notices after `expiry_seconds`."""
        self._end.set()
        self._thread.join()

    def close(self) -> session_pb2.ClientSession:
        """Ends the session now: its leases end, and the server treats its volumes as
        Retention.orphan says."""
        self.stop()
        ended = self._client._call(self._client._sessions.CloseSession, session_pb2.CloseSessionRequest(secret=self.secret)).session
        self.closed = True
        return ended

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_) -> None:
        try:
            self.close()
        # the session or the server has ended already, which does not affect the results of the
        # block
        except errors.OctavoError:
            self.stop()


@explained_methods
class Lease:
    """A row of the server's lease table, released at the end of a `with` block. Made by
    Client.lease().

    ended    a commit or discard of the volume under this lease has ended it
    """

    def __init__(self, client: Client, grant: session_pb2.LeaseGrant):
        self._client = client
        self.ended = False
        self.resource, self.token, self.fence = grant.resource, grant.token, grant.fence
        self.exclusive = grant.mode == session_pb2.LEASE_MODE_EXCLUSIVE

    def renew(self, seconds: float) -> session_pb2.LeaseGrant:
        """Extends the lease to `seconds` from now; 0 = as long as its session,
        if it belongs to one."""
        with errors.renaming({"ttl": "seconds"}):
            return self._client._call(self._client._sessions.RenewLease, session_pb2.RenewLeaseRequest(token=self.token, ttl=duration("seconds", seconds))).lease

    def release(self) -> None:
        self._client._call(self._client._sessions.ReleaseLease, session_pb2.ReleaseLeaseRequest(token=self.token))

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind, *_) -> None:
        if self.ended:
            return
        try:
            self.release()
        except Exception:  # the lease may have expired; an error in the block matters more
            if kind is None:
                raise


def secret_of(session: Optional[Session]) -> str:
    """The secret of a session argument; "" for none."""
    if session is None:
        return ""
    if not isinstance(session, Session):
        raise ValueError(f"session is {short(session)}; expected what client.session() returns (client.session(secret=...) takes one up again)")
    if session.closed:
        raise ValueError(f"session is {session.name}, which was closed (close(), or its `with` block has ended); expected one that is open: "
                         "client.session() opens another")
    return session.secret


def token_of(lease: Optional[Lease]) -> str:
    """The token of a lease argument; "" for none."""
    if lease is None:
        return ""
    if not isinstance(lease, Lease):
        raise ValueError(f"lease is {short(lease)}; expected what client.lease() returns")
    return lease.token


def _process() -> str:
    """This process, for those who wait for its lease."""
    return f"{os.path.basename(sys.argv[0]) or 'python'}, process {os.getpid()} on {socket.gethostname()}"


def acquire(client: Client, resource: str, exclusive: bool, seconds: float, wait: float, session: Optional[Session], holder: str) -> Lease:
    if not seconds and session is None:
        raise ValueError(f"seconds is {short(seconds)} without a session; expected seconds above 0, or session=, with which the lease then lasts")
    request = session_pb2.AcquireLeaseRequest(resource=resource, mode=session_pb2.LEASE_MODE_EXCLUSIVE if exclusive else session_pb2.LEASE_MODE_SHARED,
                                              holder=holder or ("" if session else _process()), session_secret=secret_of(session))
    if seconds:
        request.ttl.CopyFrom(duration("seconds", seconds))
    if wait:
        request.wait.CopyFrom(duration("wait", wait))
    with errors.renaming({"ttl": "seconds"}):
        return Lease(client, client._call(client._sessions.AcquireLease, request, extra=wait).lease)
