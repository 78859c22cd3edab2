"""An authority and certificates for tests, made by deploy/lab-certificates, as users make them; and those that no user would make."""

import datetime
import os
import subprocess

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from harness import SOURCE

SCRIPT = os.path.join(SOURCE, "deploy", "lab-certificates")


def certificates(*arguments, check=True):
    """Runs deploy/lab-certificates."""
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=check)


def put(path, text, mode=0o600):
    """Replaces a file as a whole."""
    with open(path + ".new", "w", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(text)
    os.chmod(path + ".new", mode)
    os.rename(path + ".new", path)


class Lab:
    """A folder with an authority. `server`: names of a server, which gets a certificate."""

    def __init__(self, folder, server=("localhost", "127.0.0.1")):
        self.folder = folder
        certificates("ca", folder)
        self.ca = self.path("ca.pem")
        if server:
            certificates("server", folder, *server)

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def client(self, name, days=None):
        """The arguments of octavo.Client for a client with this certificate, which is made if it is not there."""
        if not os.path.exists(self.path(f"{name}.pem")):
            certificates(*(("--days", str(days)) if days else ()), "client", self.folder, name)
        return {"ca_file": self.ca, "cert_file": self.path(f"{name}.pem"), "key_file": self.path(f"{name}.key")}

    def until(self, name, end, begin=None):
        """Replaces a certificate by one that is valid to the moment `end` (seconds from now)."""
        with open(self.path(f"{name}.pem"), "rb") as file:
            old = x509.load_pem_x509_certificate(file.read())
        with open(self.path("ca.pem"), "rb") as file:
            authority = x509.load_pem_x509_certificate(file.read())
        with open(self.path("ca.key"), "rb") as file:
            key = serialization.load_pem_private_key(file.read(), None)
        now = datetime.datetime.utcnow()
        made = (x509.CertificateBuilder().subject_name(old.subject).issuer_name(authority.subject).public_key(old.public_key())
                .serial_number(x509.random_serial_number()).not_valid_before(now + datetime.timedelta(seconds=-86400 if begin is None else begin))
                .not_valid_after(now + datetime.timedelta(seconds=end)))
        for extension in old.extensions:
            made = made.add_extension(extension.value, extension.critical)
        put(self.path(f"{name}.pem"), made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode(), 0o644)
        return self.client(name)

    def flags(self):
        """Of octavod, for TLS with certificates of clients."""
        return ("--listen.tls.certificate", self.path("server.pem"), "--listen.tls.key", self.path("server.key"), "--listen.tls.client_ca", self.ca)
