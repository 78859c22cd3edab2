#!/usr/bin/env python3
"""Checks the #include lines of every file of ours against the tables below, and that no committed
file holds a path of a developer's machine."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Third-party prefixes that a folder may be forbidden to include.
CUDA = ("cuda", "cufft", "nvrtc")
GRPC = ("grpc", "google/protobuf", "octavo/")
PROMETHEUS = ("prometheus",)

# gpu, lowest line first. A folder may include those on the lines below its own. Twins (host/,
# cuda/) may include whatever their family may, the family itself, and the twins of the same kind of
# gpu/device. Only gpu/backend includes all twins.
GPU = [["base", "math"], ["device"], ["spectral", "array"], ["tomography", "mosaic"], ["backend"]]
# server, lowest line first. A folder never includes another one on its own line.
SERVER = [
    ["base"],
    ["pattern", "storage", "handoff", "security"],
    ["model"],
    ["memory", "session", "operation", "profile", "picture"],
    ["source", "scanner", "publish", "volume"],
    ["processing", "job", "exports"],
    ["scan", "derive", "raw_jobs", "buffer"],
    ["tomography", "projection", "mosaic", "volume_import", "calibration", "study"],
    ["engine"],
    ["rpc", "metrics"],
]
# Messages that rooms below rpc use: those of the hand-over wire, which know nothing of the contract. `handoff` reads their bytes, too.
WIRE = {"server/handoff": ("octavo/handoff/v1/", "google/protobuf/"), "server/exports": ("octavo/handoff/v1/",), "server/source": ("octavo/handoff/v1/",),
        "server/buffer": ("octavo/handoff/v1/",)}
# Within storage and rpc.
STORAGE = [["io"], ["direct"], ["zarr", "tiff", "hdf5"], ["formats"], ["commit", "projections", "spill", "history", "resume"]]
RPC = [["convert"], ["list", "transport"], [""]]
# Files of server/ itself: the process. They may include everything below them except proto types.
PROCESS = ("main", "daemon", "config", "config_reload", "drain_record", "engine_shelf", "heap_trimmer", "host_budget", "keep_held", "listen_address",
           "private_folders", "probe_main", "probe_malloc", "spill_mark", "stop_forecast", "stop_times", "systemd", "watchdog")
# Headers that programs of users include: they may include only the standard library.
PUBLIC = ("client/cpp/include/octavo/octavo.h",)
# The commands that work on files by themselves, and the one that reads files of records for a push.
EXCEPTIONS = {"client/cpp/cli/convert_command.cc": {"server/storage/commit"},
              "client/cpp/cli/format_flags.cc": {"server/storage/formats"},
              "client/cpp/cli/file_push.cc": {"gpu/device", "gpu/math", "server/storage/formats"},
              "client/cpp/cli/source_flags.cc": {"server/storage/formats", "server/storage/io"},
              "client/cpp/cli/scan_follower.h": {"gpu/device"},
              "client/cpp/cli/scan_follower.cc": {"server/model", "server/storage/projections", "server/tomography"},
              "client/cpp/cli/scan_names.cc": {"server/storage/formats"},
              "client/cpp/cli/npy_file.cc": {"server/storage/formats"},
              "client/cpp/cli/settings_file.cc": {"server/base"},
              "client/cpp/cli/token_commands.cc": {"server/security"},
              "client/cpp/bench/bench_storage.cc": {"gpu/math"}}
OURS = ("gpu/", "server/", "client/", "tests/")
TOP = (".ci", "client", "deploy", "docker", "gpu", "proto", "server", "tests")

# Absolute paths of a developer's machine.
MACHINE_PATHS = tuple(f"/{top}/" for top in ("home", "work", "root", "Users"))


def below(lines, name):
    """Names on the lines below that of `name`; None if no line has it."""
    for i, line in enumerate(lines):
        if name in line:
            return {n for lower in lines[:i] for n in lower}
    return None


def gpu_allowed(folder):
    parts = folder.split("/")[1:]
    family, twin = parts[0], parts[1] if len(parts) > 1 else None
    lower = below(GPU, family)
    if lower is None or len(parts) > 2 or twin not in (None, "host", "cuda"):
        return None
    if family == "math":
        lower = set()
    allowed = {f"gpu/{n}" for n in lower | {family}}
    if twin or family == "backend":
        kinds = [twin] if twin else ["host", "cuda"]
        families = lower | {family} if family == "backend" else {"device", family}
        allowed |= {f"gpu/{n}/{kind}" for n in families for kind in kinds}
    return allowed


def server_allowed(folder):
    parts = folder.split("/")[1:]
    gpu = {f"gpu/{n}" for line in GPU for n in line}
    if not parts:
        return gpu | {"server"} | {f"server/{n}" for line in SERVER for n in line} | {f"server/storage/{n}" for line in STORAGE for n in line}
    lower = below(SERVER, parts[0])
    if lower is None:
        return None
    allowed = gpu | {f"server/{n}" for n in lower - {"storage"}}
    if "storage" in lower and parts[0] != "rpc":
        allowed |= {f"server/storage/{n}" for line in STORAGE for n in line}
    if parts[0] == "storage":
        own = below(STORAGE, parts[1]) if len(parts) == 2 else None
        return None if own is None else allowed | {f"server/storage/{n}" for n in own | {parts[1]}}
    if parts[0] == "rpc":
        own = below(RPC, parts[1] if len(parts) > 1 else "")
        return None if own is None else allowed | {f"server/rpc/{n}".rstrip("/") for n in own} | {folder}
    return allowed | {folder} if len(parts) == 1 else None



def client_allowed(folder):
    wire = "client/cpp/wire"  # what the library and the command line both read out of messages
    return {"client/cpp/include/octavo": {folder}, wire: {folder}, "client/cpp/lib": {folder, wire, "client/cpp/include/octavo"},
            "client/cpp/cli": {folder, wire, "gpu/base"}, "client/cpp/bench": {folder, wire, "client/cpp/cli", "gpu/base"},
            "client/cpp/examples": {"client/cpp/include/octavo"}}.get(folder)


def rules_of(path):
    """Returns (folders that the file may include, third-party prefixes that it must not); None for
    a folder that is in no table."""
    folder = os.path.dirname(path)
    if folder.startswith("gpu/"):
        allowed = gpu_allowed(folder)
        forbidden = GRPC + PROMETHEUS + (() if folder.endswith("/cuda") else CUDA) + (("absl",) if folder == "gpu/math" else ())
    elif folder == "server" or folder.startswith("server/"):
        allowed = server_allowed(folder)
        if folder == "server" and os.path.splitext(os.path.basename(path))[0] not in PROCESS:
            return None
        forbidden = CUDA
        if folder == "server":
            forbidden += ("octavo/",)
        elif folder.startswith("server/rpc"):
            forbidden += PROMETHEUS
        else:
            forbidden += GRPC + (() if folder == "server/metrics" else PROMETHEUS)
    else:
        allowed, forbidden = client_allowed(folder), CUDA + PROMETHEUS
    return None if allowed is None else (allowed | EXCEPTIONS.get(path, set()), forbidden)


def include_problems(path, text):
    """The problems in the include lines of one file of ours."""
    folder = os.path.dirname(path)
    if folder.startswith("tests"):
        allowed, forbidden = None, CUDA  # tests may include everything, through the same headers as other code
    else:
        rules = rules_of(path)
        if rules is None:
            return [f"{path}: {folder} is not in the tables of tests/layering_test.py"]
        allowed, forbidden = rules
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line)
        if not match:
            continue
        included = match.group(1)
        ours = included.startswith(OURS)
        if path in PUBLIC and re.search(r"[/.]", included):
            problems.append(f"{path}:{number}: a public header may not include {included}")
        if included.endswith("/internal.h") and os.path.dirname(included) != folder:
            problems.append(f"{path}:{number}: {included} is private to its folder")
        elif (ours and allowed is not None and os.path.dirname(included) not in allowed) or (
                not ours and included.startswith(forbidden) and not included.startswith(WIRE.get(folder, "\0"))):
            problems.append(f"{path}:{number}: {folder} may not include {included}")
    return problems


def path_problems(path, text):
    return [f"{path} holds a path of a machine ({bad})" for bad in MACHINE_PATHS if bad in text]


def order_problems(path, text):
    """The bytes of messages with maps have a fixed order only through FixedBytes: digests and page
    tokens are made of them."""
    if not path.startswith(("server/rpc/convert/", "server/rpc/list/")) or path.startswith("server/rpc/convert/fixed_bytes."):
        return []
    return [f"{path}:{number}: FixedBytes (server/rpc/convert/fixed_bytes.h) instead of {match.group(0)}"
            for number, line in enumerate(text.splitlines(), 1) for match in re.finditer(r"\bSerialize(Partial)?(As|To)\w+", line)]


def self_check():
    """Each rule detects its own problems."""
    planted = [
        include_problems("gpu/spectral/spectral.cc", '#include "server/engine/engine.h"'),
        include_problems("gpu/spectral/spectral.cc", '#include "gpu/array/project.h"'),
        include_problems("gpu/device/device.cc", '#include "gpu/spectral/spectral.h"'),
        include_problems("gpu/array/project.cc", '#include "gpu/array/host/project.h"'),
        include_problems("gpu/array/host/x.cc", '#include "gpu/spectral/host/x.h"'),
        include_problems("gpu/array/host/x.cc", '#include "gpu/device/cuda/cuda_stream.h"'),
        include_problems("gpu/backend/open_devices.cc", '#include "server/config.h"'),
        include_problems("gpu/math/half.h", '#include "gpu/base/status.h"'),
        include_problems("gpu/array/project.cc", "#  include <cuda_runtime.h>"),
        include_problems("server/engine/x.cc", "#include <grpcpp/server.h>"),
        include_problems("server/engine/x.cc", '#include "octavo/v1/scan.pb.h"'),
        include_problems("server/engine/x.cc", '#include "gpu/array/host/x.h"'),
        include_problems("server/rpc/x.cc", '#include "server/storage/commit/commit_store.h"'),
        include_problems("server/rpc/convert/x.cc", '#include "server/rpc/transport/reactor.h"'),
        include_problems("server/storage/zarr/x.cc", '#include "server/storage/formats/writer.h"'),
        include_problems("server/storage/x.cc", ""),
        include_problems("server/engine/x.cc", '#include "server/scan/internal.h"'),
        include_problems("server/daemon.cc", '#include "octavo/v1/scan.grpc.pb.h"'),
        include_problems("server/x.cc", ""),
        include_problems("client/cpp/cli/volume_commands.cc", '#include "server/storage/commit/convert.h"'),
        include_problems("client/cpp/lib/client.cc", '#include "client/cpp/cli/words.h"'),
        include_problems("tests/gpu/device/x.cc", "#include <cufft.h>"),
        include_problems("new/x.cc", ""),
        include_problems("gpu/new/x.cc", ""),
        include_problems("client/cpp/include/octavo/octavo.h", '#include "octavo/v1/scan.pb.h"'),
        include_problems("client/cpp/include/octavo/octavo.h", "#include <grpcpp/grpcpp.h>"),
        path_problems("a", "/home/" + "someone/x"),
        include_problems("server/scan/x.cc", '#include "server/derive/deriver.h"'),
        include_problems("server/scan/x.cc", '#include "octavo/handoff/v1/handoff.pb.h"'),
        include_problems("server/handoff/x.cc", '#include "octavo/v1/types.pb.h"'),
        include_problems("server/exports/x.cc", '#include "google/protobuf/message.h"'),
        include_problems("server/volume/x.cc", '#include "server/engine/engine.h"'),
        include_problems("server/model/x.h", '#include "server/source/source.h"'),
        order_problems("server/rpc/convert/x.cc", "  digest = in.SerializeAsString();"),
        order_problems("server/rpc/list/x.h", "in.SerializePartialToString(&bytes)"),
    ]
    fine = [
        include_problems("client/cpp/include/octavo/octavo.h", "#include <vector>"),
        include_problems("gpu/array/cuda/x.cc", '#include <cuda_runtime.h>\n#include "gpu/device/cuda/cuda_stream.h"\n#include "gpu/array/project.h"'),
        include_problems("gpu/backend/open_devices.cc", '#include "gpu/backend/cuda/cuda_device.h"'),
        include_problems("gpu/backend/host/host_device.cc", '#include "gpu/tomography/host/factory.h"'),
        include_problems("server/scan/x.cc", '#include "server/volume/volume_store.h"\n#include "server/storage/io/files.h"\n#include "gpu/array/project.h"'),
        include_problems("server/rpc/x.cc", '#include "server/rpc/transport/reactor.h"\n#include "server/rpc/convert/convert.h"'),
        include_problems("server/storage/commit/x.cc", '#include "server/storage/zarr/codec.h"'),
        include_problems("server/daemon.cc", '#include "server/rpc/rpc_server.h"'),
        include_problems("server/exports/x.cc", '#include "octavo/handoff/v1/handoff.pb.h"'),
        path_problems("a", "x/home.html"),
        order_problems("server/rpc/transport/payload.h", "header.SerializeAsString()"),
    ]
    return [f"self-check: rule {i} sees nothing" for i, found in enumerate(planted) if not found] + [p for found in fine for p in found]


def main():
    problems = self_check()
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        files = listed.stdout.split("\n")
    else:  # an unpacked archive
        files = [os.path.relpath(os.path.join(folder, name), ROOT) for top in TOP for folder, _, names in os.walk(os.path.join(ROOT, top)) for name in names]
    seen = 0
    for path in files:
        full = os.path.join(ROOT, path)
        if not os.path.isfile(full) or path == "tests/layering_test.py":
            continue
        with open(full, errors="replace") as file:
            text = file.read()
        problems += path_problems(path, text)
        if path.endswith((".h", ".cc", ".cu", ".cuh")):
            problems += include_problems(path, text) + order_problems(path, text)
            seen += 1
    if seen < 100:
        problems.append(f"only {seen} files looked at; is this a checkout?")
    print("\n".join(problems) if problems else f"{seen} files keep to the layers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
