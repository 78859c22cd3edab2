"""Makes octavo/v1, octavo/handoff and octavo/_vendor from the protos: with Debian's protoc and grpc_python_plugin, or with the Python package grpcio-tools."""

import glob
import importlib.util
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# In the repository, or in a source distribution, which contains a copy.
PROTOS = next((folder for folder in (os.path.join(HERE, "..", "..", "proto"), os.path.join(HERE, "proto"))
               if os.path.isdir(os.path.join(folder, "octavo", "v1"))), None)

HANDOFF = ("octavo", "handoff", "v1")  # messages without services


def files():
    """Paths of the protos below PROTOS."""
    if PROTOS is None:
        raise SystemExit("octavo: the protos are missing (proto/octavo/v1, in the repository two folders up); install from a whole copy of the repository")
    return sorted(os.path.relpath(path, PROTOS) for folder in (("octavo", "v1"), HANDOFF, ("google", "rpc"))
                  for path in glob.glob(os.path.join(PROTOS, *folder, "*.proto")))


def has_protoc():
    return shutil.which("protoc") is not None and shutil.which("grpc_python_plugin") is not None


def generate(target):
    """Writes octavo/v1, octavo/handoff and octavo/_vendor (google.rpc, where
    googleapis-common-protos is not installed) below `target`."""
    if has_protoc():
        command, services = ["protoc"], [f"--plugin=protoc-gen-grpc={shutil.which('grpc_python_plugin')}", f"--grpc_out={target}"]
    elif importlib.util.find_spec("grpc_tools") is not None:
        command, services = [sys.executable, "-m", "grpc_tools.protoc"], [f"--grpc_python_out={target}"]
    else:
        raise SystemExit("octavo: neither protoc with grpc_python_plugin (Debian: protobuf-compiler, protobuf-compiler-grpc) nor the Python package "
                         "grpcio-tools is there; one of them is needed to build octavo")
    vendor = os.path.join(target, "octavo", "_vendor")
    packages = [os.path.join(target, "octavo", "v1"), vendor, os.path.join(vendor, "google"), os.path.join(vendor, "google", "rpc"), os.path.join(target, *HANDOFF[:2]), os.path.join(target, *HANDOFF)]
    for folder in packages:
        os.makedirs(folder, exist_ok=True)
    handoff, own, details = ([path for path in files() if path.startswith(os.path.join(*folder))] for folder in (HANDOFF, ("octavo", "v1"), ("google",)))
    subprocess.run([*command, *services, "-I", PROTOS or "", f"--python_out={target}", f"--pyi_out={target}", *own], check=True)
    subprocess.run([*command, "-I", PROTOS or "", f"--python_out={target}", f"--pyi_out={target}", *handoff], check=True)
    subprocess.run([*command, "-I", PROTOS or "", f"--python_out={vendor}", *details], check=True)
    for folder in packages:
        with open(os.path.join(folder, "__init__.py"), "w"):
            pass
