"""Errors of the server, with everything a program can use."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import os
import re
import sys
import warnings
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import grpc

from google.rpc import error_details_pb2, status_pb2  # octavo/_google_rpc.py

from octavo import tls
from octavo.v1 import types_pb2


class OctavoError(Exception):
    """A call failed.

    code      grpc.StatusCode
    reason    stable, UPPER_SNAKE_CASE: DEVICE_FULL, BAD_FIELD, VOLUME_STATE, ...
    field     the request field at fault, dotted; empty if none
    numbers   values named in the message, as text
    report    the AdmissionReport message, for refused scans
    retry_seconds  the same call may succeed after this time; None: it will not by itself
    """

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", field: str = "",
                 numbers: Optional[Dict[str, str]] = None, report: Optional[types_pb2.AdmissionReport] = None, retry_seconds: Optional[float] = None):
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.field = field
        self.numbers = numbers or {}
        self.report = report
        self.retry_seconds = retry_seconds


class OctavoTimeout(OctavoError, TimeoutError):
    """The `timeout` of a call that waits is over (code DEADLINE_EXCEEDED). What it waited for goes on."""

    def __init__(self, message: str):
        super().__init__(grpc.StatusCode.DEADLINE_EXCEEDED, message)


class OctavoWarning(UserWarning):
    """A possible mistake that the server found (Scan.warnings, Job.warnings)."""


_told: "collections.OrderedDict[Tuple[str, str], None]" = collections.OrderedDict()
_MOST_TOLD = 4096


def told(name: str, texts: Iterable[str]) -> List[str]:
    """The texts that are new for a scan or job, and records them as known."""
    new = []
    for text in texts:
        if (name, text) not in _told:
            new.append(text)
            _told[name, text] = None
            if len(_told) > _MOST_TOLD:
                _told.popitem(last=False)
    return new


def tell(name: str, texts: Iterable[str]) -> None:
    """Issues each text once per scan or job, whichever call brings it."""
    for text in told(name, texts):
        warn(f"{name}: {text}{_note.get() if 'column' in text else ''}")


_note: "contextvars.ContextVar[str]" = contextvars.ContextVar("octavo_note", default="")


@contextlib.contextmanager
def noting(text: str):
    """Adds a sentence to the warnings of scans and jobs that speak of columns and are issued within the block."""
    token = _note.set(" " + text)
    try:
        yield
    finally:
        _note.reset(token)


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(text: str) -> None:
    """Issues an OctavoWarning at the line outside of this package that made the call."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, OctavoWarning, stacklevel=level)


def _with_details(error: OctavoError, status: status_pb2.Status) -> OctavoError:
    """The error with what the details of a google.rpc.Status say."""
    for detail in status.details:
        info, retry, report = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo(), types_pb2.AdmissionReport()
        if detail.Unpack(info):
            error.numbers = dict(info.metadata)
            error.reason, error.field = info.reason, error.numbers.pop("field", "")
        if detail.Unpack(retry):
            error.retry_seconds = retry.retry_delay.ToTimedelta().total_seconds()
        if detail.Unpack(report):
            error.report = report
    return error


def from_rpc_error(error: grpc.RpcError) -> OctavoError:
    """The OctavoError that a gRPC error carries in its details."""
    result = OctavoError(error.code(), error.details() or "")
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            _with_details(result, status_pb2.Status.FromString(value))
    return result


_CODES = {code.value[0]: code for code in grpc.StatusCode}


def of_refusal(refused) -> OctavoError:
    """The error that an octavo.handoff.v1.Refused says."""
    return OctavoError(_CODES.get(refused.code, grpc.StatusCode.UNKNOWN), refused.message, refused.reason, refused.field,
                       {value.name: value.value for value in refused.values})


def of_operation(operation) -> Optional[OctavoError]:
    """The error of an operation that has failed or was cancelled, as that of a call; None for another one."""
    operation = getattr(operation, "message", operation)  # of an object
    if not operation.HasField("error"):
        return None
    status = operation.error
    return _advised(_with_details(OctavoError(_CODES.get(status.code, grpc.StatusCode.UNKNOWN), status.message), status))


# Prefixes of the server's names: their kind, and the calls that take them.
_KINDS = {"scans": ("a scan", "client.scan, watch, wait, stop, cancel and push take it"),
          "jobs": ("a job", "client.job, watch_job, wait_job, cancel_job and push_projections take it"),
          "volumes": ("a volume", "client.volume, read, commit, derive, spill and discard take it"),
          "buffers": ("a buffer", "client.buffers.read, write, apply and destroy take it"),
          "operations": ("an operation", "client.operation, wait_operation, watch_operation and cancel_operation take it")}
_NAME = re.compile("(scans|jobs|volumes|buffers|operations)/[0-9a-z]+-[0-9a-f]+")
_BARE = re.compile("[0-9a-z]+-[0-9a-f]+")


def other_kind(name: str, wanted: str) -> str:
    """The kind of a name, such as "scans", if it differs from `wanted`; else ""."""
    match = _NAME.fullmatch(name)
    return match.group(1) if match is not None and match.group(1) != wanted else ""


def check_kind(argument: str, name: str, wanted: Union[str, Sequence[str]], more: str = "", bare: str = "") -> None:
    """Extends the server's error for a name of another kind than `wanted` ("scans"; or one of
    several) by the actual kind. more: an additional hint; bare: one for a name without a kind."""
    if name and "/" not in name:
        _refuse_without_kind(argument, name, [wanted] if isinstance(wanted, str) else wanted, bare)
    if not isinstance(wanted, str):
        kind = other_kind(name, "")
        if kind and kind not in wanted:
            allowed = " or ".join(f"{_KINDS[one][0]}, {one}/<id>" for one in wanted)
            raise OctavoError(grpc.StatusCode.INVALID_ARGUMENT, f"{argument} is {name!r}, {_KINDS[kind][0]}; expected {allowed}. "
                                                                f"{more or _KINDS[kind][1]}", "BAD_FIELD", argument)
        return
    kind = other_kind(name, wanted)
    if kind:
        raise OctavoError(grpc.StatusCode.NOT_FOUND, f"{argument} is {name!r}, {_KINDS[kind][0]}; expected {_KINDS[wanted][0]}, {wanted}/<id>. "
                                                     f"{more or _KINDS[kind][1]}", f"NO_{wanted[:-1].upper()}", argument)


def _refuse_without_kind(argument: str, name: str, wanted: Sequence[str], more: str) -> None:
    """The error for a word that is no name, or for a name without its kind."""
    allowed = " or ".join(f"{_KINDS[one][0]}, {one}/<id>" for one in wanted)
    whole = f": {' or '.join(f'{one}/{name}' for one in wanted)}" if _BARE.fullmatch(name) else ""
    reason = f"NO_{wanted[0][:-1].upper()}" if len(wanted) == 1 else "BAD_FIELD"
    raise OctavoError(grpc.StatusCode.NOT_FOUND if len(wanted) == 1 else grpc.StatusCode.INVALID_ARGUMENT,
                      f"{argument} is {name!r}, which does not say its kind; expected {allowed}{whole}{f'; {more}' if more else ''}", reason, argument)


@contextlib.contextmanager
def waiting(seconds: Optional[float], now: Callable[[], object]):
    """Raises OctavoTimeout when the limit of a call is over. now: gives the object that the call waits for."""
    try:
        yield
    except OctavoError as error:
        if seconds is None or error.code != grpc.StatusCode.DEADLINE_EXCEEDED or isinstance(error, OctavoTimeout):
            raise
        raise OctavoTimeout(f"after {seconds:g} s {now()!r} is not at the end; it goes on: wait again, or cancel it") from None


@contextlib.contextmanager
def renaming(fields: Mapping[str, str]):
    """Errors of the server name the caller's argument in place of the field of the request."""
    try:
        yield
    except OctavoError as error:
        whole, index = re.fullmatch(r"(.*?)((?:\[\d+\])?)", error.field, re.DOTALL).groups()  # of a list, the element
        argument = fields.get(whole, "") and fields[whole] + index
        if not argument:
            raise
        message = re.sub(rf"^{re.escape(error.field)}(?!\w)", lambda _: argument, error.message)
        raise OctavoError(error.code, message, error.reason, argument, error.numbers, error.report, error.retry_seconds) from None


def _advice(error: OctavoError) -> str:
    """Advice for a Python program; "" if there is none."""
    if error.reason == "NO_TOKEN" or (error.reason == "WRONG_ROLE" and "without a token" in error.numbers.get("found", "")):
        return ("octavo.Client(address, token_file=...) gives a token, cert_file= and key_file= (with ca_file=) a certificate, and "
                "octavo.Client(\"unix:/path\") tells the server which user calls")
    if error.reason == "VOLUME_STATE" and error.numbers.get("state") == "ACQUIRING":
        return "client.wait(scan) waits for the scan with all its volumes, client.wait_volume(name) for this one"
    if error.reason == "VOLUME_STATE" and error.numbers.get("state") == "COMMITTING":
        return "client.operations(filter='kind = COMMIT AND done = false') finds it; its wait() and cancel() do that"
    if "a reprocess job makes a volume of them" in error.message:
        return "client.submit_job(octavo.reprocess(volume))"
    if "restore it to its device first" in error.message:
        return "volume.restore()"
    kept = re.search(r"with resume from sequence (\d+)", error.message) if error.reason == "NOTHING_KEPT" else None
    if kept is not None:
        return f"client.subscribe(scan, product, from_sequence={kept.group(1)}) gives them"
    if "Fortran order" in error.message:
        return "np.save(path, np.ascontiguousarray(array)) writes it in C order"
    kind = re.search(r"its type '(.)([uif])(\d+)'", error.message) if error.field == "replay.path" else None
    if kind is not None:
        order, letter, size = kind.groups()
        native = f"<{letter}{size}" if order == ">" and letter + size in ("u2", "i2", "f4") else ""
        if native:
            return f"np.save(path, array.astype('{native}')) writes one that can"
        return "np.save(path, array.astype('<u2')) writes one that can, of whole numbers from 0 to 65535, and array.astype('<f4') of others"
    return ""


def _advised(error: OctavoError) -> OctavoError:
    """The error with the advice in its message."""
    return advised_by(error, _advice(error))


def advised_by(error: OctavoError, advice: str) -> OctavoError:
    """The error with this advice in its message; empty = none."""
    if not advice:
        return error
    return OctavoError(error.code, f"{error.message}; {advice}", error.reason, error.field, error.numbers, error.report, error.retry_seconds)


@contextlib.contextmanager
def raising(address: str = ""):
    """Converts exceptions of gRPC into OctavoError. `address`: of the server, for the message if no
    server answers."""
    try:
        yield
    except grpc.RpcError as error:
        result = from_rpc_error(error)
        if address and result.code == grpc.StatusCode.UNAVAILABLE and not result.reason:
            hint = tls.advice(address, result.message)
            result = OctavoError(result.code, f"no octavod answers at {address}: start it, or name another one (Client(\"host:port\"), "
                                              f"OCTAVO_ADDRESS){hint and '; ' + hint}; {result.message}")
        else:
            result = _advised(result)
        raise result from None
    except ValueError as error:
        if not re.search("RPC.*closed", str(error), re.IGNORECASE):
            raise
        raise ValueError("this client is closed (close(), or its `with` block has ended); make another one: octavo.Client()") from None
