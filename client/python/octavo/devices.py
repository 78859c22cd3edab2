"""The devices of a server, as arguments name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from octavo.names import closest

if TYPE_CHECKING:
    from octavo.client import Client

HOST_DEVICE = "devices/host"  # the host as a device for jobs, where the server has it
TOMOPY_NUMBERS = {"1": "gpu", "0": "cpu"}  # TomoPy's numbers of devices in octavo.recon
_BACKENDS = {"gpu": "cuda", "cpu": "host"}
_LACKS = {"gpu": "no GPU", "cpu": "no device on its CPU (device.host_for_jobs of its configuration is false)"}
_WORDS = (*_BACKENDS, "host", "auto")


def device_name(client: "Client", device: Any, numbers: Mapping[str, str] = {}) -> str:
    """The name of the device of a job; "" where the server chooses. Checks that the server has the requested "gpu" or "cpu": there is no
    silent fallback. On a server with GPUs, "cpu" is "host": devices/host, if the server has it. Words count in any case.

    numbers  words that numbers stand for: TOMOPY_NUMBERS for functions of TomoPy
    Raises ValueError for another word, and for a device that the server does not have.
    """
    if device is None or str(device) == "" or str(device).startswith("devices/"):
        return str(device or "")
    word = numbers.get(str(device), str(device).lower())
    if word == "auto":
        return ""
    if word == "host":
        return HOST_DEVICE  # the server says if it has none
    if word not in _BACKENDS:
        raise ValueError(f"device is {device!r}; expected gpu, cpu, host, auto or devices/<n>{closest(str(device), _WORDS)}")
    devices = client.devices()
    found = [one.name for one in devices if one.backend == _BACKENDS[word]]
    if not found:
        there = [other for other, backend in _BACKENDS.items() if any(one.backend == backend for one in devices)]
        raise ValueError(f"device is {device!r}, but the server has {_LACKS[word]}; allowed are {', '.join(['auto', *there, *(one.name for one in devices)])}")
    # The server never chooses devices/host by itself.
    chosen_among = [one.name for one in devices if one.name != HOST_DEVICE]
    return "" if set(chosen_among) <= set(found) else found[0]


def with_device_name(client: "Client", fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a job, with a device of the server for a word such as "gpu"."""
    if not isinstance(fields.get("device"), str):
        return fields  # none, or a number: devices/<n>
    return {**fields, "device": device_name(client, fields["device"])}
