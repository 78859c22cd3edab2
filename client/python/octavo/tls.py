"""TLS: the files of a client, and what may be wrong where a server does not answer."""

from __future__ import annotations

import dataclasses
import os
import re
import ssl
from typing import Any, Optional, Tuple

import grpc

from octavo import tokens
from octavo.arguments import short


@dataclasses.dataclass(frozen=True)
class Files:
    """Files for TLS, with what named them, for messages."""

    ca: str = ""
    ca_by: str = "ca_file"
    cert: str = ""
    cert_by: str = "cert_file"
    key: str = ""
    key_by: str = "key_file"
    server_name: str = ""


class Address(str):
    """The address of a server, and how it is spoken to."""

    tls: Files = Files()


def _given(value: Any, argument: str, variable: str) -> Tuple[str, str]:
    if value not in (None, ""):
        try:
            return os.fspath(value), argument
        except TypeError:
            raise ValueError(f"{argument} is {short(value)}; expected the path of a PEM file") from None
    return os.environ.get(variable, ""), variable if os.environ.get(variable) else argument


def given(ca_file: Any, cert_file: Any, key_file: Any, server_name: Optional[str]) -> Files:
    """The arguments of a client, or what the environment says instead."""
    (ca, ca_by), (cert, cert_by), (key, key_by) = (_given(ca_file, "ca_file", "OCTAVO_CA_FILE"), _given(cert_file, "cert_file", "OCTAVO_CERT_FILE"),
                                                   _given(key_file, "key_file", "OCTAVO_KEY_FILE"))
    if bool(cert) != bool(key):
        raise ValueError(f"{key_by if cert else cert_by} is not given, and {cert_by if cert else key_by} is; a certificate and its key belong together")
    if cert and not ca:
        raise ValueError(f"{ca_by} is not given, and {cert_by} is; the file of the server's authority is needed to trust the server")
    return Files(ca, ca_by, cert, cert_by, key, key_by, server_name or os.environ.get("OCTAVO_SERVER_NAME", ""))


def _read(path: str, by: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"{by} is {short(path)}, which cannot be read ({error.strerror or error}); expected a PEM file") from None


def credentials(files: Files) -> grpc.ChannelCredentials:
    """Credentials of a channel. ValueError names the file that cannot be used; it shows nothing of what the file holds."""
    ca = _read(files.ca, files.ca_by)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        raise ValueError(f"{files.ca_by} is {short(files.ca)}, which holds no certificate; expected a PEM file (-----BEGIN CERTIFICATE-----)") from None
    if not files.cert:
        return grpc.ssl_channel_credentials(ca)
    cert, key = _read(files.cert, files.cert_by), _read(files.key, files.key_by)
    if b"-----BEGIN CERTIFICATE-----" not in cert:
        raise ValueError(f"{files.cert_by} is {short(files.cert)}, which holds no certificate; expected a PEM file (-----BEGIN CERTIFICATE-----)")

    def no_passphrase() -> str:
        raise ValueError(f"{files.key_by} is {short(files.key)}, a key with a passphrase; expected one without")

    try:
        context.load_cert_chain(files.cert, files.key, no_passphrase)
    except ssl.SSLError as error:
        what = (f"which is not the key of the certificate in {short(files.cert)}" if "MISMATCH" in str(error)
                else "which holds no private key that fits; expected a PEM file (-----BEGIN PRIVATE KEY-----)")
        raise ValueError(f"{files.key_by} is {short(files.key)}, {what}") from None
    tokens.check_private(files.key, files.key_by)
    return grpc.ssl_channel_credentials(ca, key, cert)


def channel(address: Address, options: Any) -> grpc.Channel:
    """A channel to the server: TLS if there is the file of an authority. The Unix socket needs none: there the kernel tells who calls."""
    files = address.tls
    if files.ca:
        found = credentials(files)
        if not address.startswith("unix:"):
            named = [("grpc.ssl_target_name_override", files.server_name)] if files.server_name else []
            return grpc.secure_channel(str(address), found, options=[*options, *named])
    return grpc.insecure_channel(str(address), options=options)


def check_not_in_clear(address: Address, whence: str) -> None:
    """ValueError for a token that anybody on the way could read, unless the environment says that the network is trusted."""
    host = re.sub("^(dns:///|dns:|ipv4:|ipv6:)", "", address.rpartition(":")[0])
    stays = address.startswith("unix:") or host in ("localhost", "[::1]") or re.fullmatch(r"127\.[0-9.]+", host)
    if stays or address.tls.ca or os.environ.get("OCTAVO_TOKEN_IN_CLEAR") == "1":
        return
    raise ValueError(f"{whence}: the token would be sent to {address} in clear: without TLS anybody on the way can read and use it; give the file of "
                     "the server's authority (ca_file=, OCTAVO_CA_FILE), or set OCTAVO_TOKEN_IN_CLEAR=1 if the network is trusted")


def advice(address: str, error: str) -> str:
    """What may be wrong where no server answers, by gRPC's text for it; "" if nothing is known. TLS tells a client nothing whose certificate is
    refused."""
    files = getattr(address, "tls", Files())
    if address.startswith("unix:"):
        return ""
    closed = re.search("Socket closed|Connection reset|Broken pipe|handshake", error)
    if not files.ca:
        return "if the server speaks TLS, give the file of its authority: Client(address, ca_file=...), OCTAVO_CA_FILE" if closed else ""
    if re.search("wrong version number|WRONG_VERSION", error):
        return f"the server does not speak TLS there: leave out {files.ca_by}"
    if re.search("certificate verify failed|CERTIFICATE_VERIFY_FAILED", error):
        return f"the server's certificate was not issued by an authority in {files.ca} ({files.ca_by}), or is not valid now"
    if re.search("is not in peer certificate|Hostname Verification", error):
        return "the server's certificate is for other names than the host of the address; server_name= names one that it has"
    if not closed:
        return ""
    if not files.cert:
        return "the server may require a certificate of the client: cert_file= and key_file=, OCTAVO_CERT_FILE and OCTAVO_KEY_FILE"
    return f"the server may not take the certificate in {files.cert} ({files.cert_by}): of another authority, or not valid now; its log says why"
