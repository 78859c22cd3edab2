"""Bearer tokens: the file that a client reads, and the header of its calls."""

from __future__ import annotations

import collections
import os
import re
import stat
from typing import Any, Callable

import grpc

from octavo.arguments import short

_TOKEN = re.compile(r"octavo_[0-9a-f]{8}_[0-9a-f]{64}")
_LIKE = re.compile(r"octavo_[0-9a-f]{8}_[0-9a-f]{16}")  # begins as a token does: it must not be shown
_ALLOWED = "expected a file with one token, as octavo token add makes it"


def check_private(path: Any, whence: str) -> None:
    """ValueError for a secret that others of this host can read: as ssh, this refuses a file of the user's own. One of somebody else (a credential
    of systemd, a secret of a container) has the mode that they gave it."""
    info = os.stat(path)
    if not hasattr(os, "geteuid") or not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or not info.st_mode & 0o077:
        return
    raise ValueError(f"{whence} is {short(path)}, which has mode {stat.S_IMODE(info.st_mode):04o}, so that others may read or change it; expected 0600 "
                     f"(chmod 600 {os.fspath(path)})")


def read(path: Any, whence: str) -> str:
    """The token in a file. `whence` names the argument or variable for the message of a ValueError, which shows nothing of what the file holds."""
    if isinstance(path, str) and _LIKE.match(path):
        raise ValueError(f"{whence} is a token and not the name of a file; {_ALLOWED}")
    try:
        with open(os.fspath(path), "rb") as file:
            text = file.read(4096).decode("ascii", "replace").strip(" \t\r\n\v\f")
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{whence} is {short(path)}, which cannot be read ({getattr(error, 'strerror', None) or error}); {_ALLOWED}") from None
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{whence} is {short(path)}, which holds no token; {_ALLOWED}")
    check_private(path, whence)
    return text


class _Details(collections.namedtuple("_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")), grpc.ClientCallDetails):
    """A call with other metadata."""


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Puts the token into every call of a channel."""

    def __init__(self, token: str):
        self._header = ("authorization", f"Bearer {token}")

    def _with(self, call: Callable, details: grpc.ClientCallDetails, request: Any) -> Any:
        return call(_Details(details.method, details.timeout, [*(details.metadata or ()), self._header], details.credentials,
                             getattr(details, "wait_for_ready", None), getattr(details, "compression", None)), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _with


def giving(channel: grpc.Channel, token: str) -> grpc.Channel:
    """The channel, whose calls carry the token."""
    return grpc.intercept_channel(channel, _Bearer(token))
