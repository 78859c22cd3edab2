#!/usr/bin/env python3
"""Who may include whom: reads the #include lines of every file of ours against the table below. Also: the files that README's
"Life of a block" names exist, and no committed file holds a path of somebody's machine."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# folder: (our folders it may include, third-party prefixes it must not)
CUDA = ("cuda", "cufft", "nvrtc")
GRPC = ("grpc", "google/protobuf", "octavo/v1")
PROMETHEUS = ("prometheus",)
ALLOWED = {
    "gpu/base": ({"gpu/base"}, CUDA + GRPC + PROMETHEUS),
    "gpu/math": ({"gpu/math"}, CUDA + GRPC + PROMETHEUS + ("absl",)),
    "gpu": ({"gpu", "gpu/base", "gpu/math"}, CUDA + GRPC + PROMETHEUS),
    "gpu/host": ({"gpu", "gpu/base", "gpu/math", "gpu/host"}, CUDA + GRPC + PROMETHEUS),
    "gpu/cuda": ({"gpu", "gpu/base", "gpu/math", "gpu/cuda"}, GRPC + PROMETHEUS),
    "server/storage": ({"gpu", "gpu/base", "gpu/math", "server/storage"}, CUDA + GRPC + PROMETHEUS),
    "server/handoff": ({"gpu/base", "server/handoff"}, CUDA + GRPC + PROMETHEUS),
    "server/engine/pattern": ({"gpu/base", "server/engine/pattern"}, CUDA + GRPC + PROMETHEUS),
    "server/engine": ({"gpu", "gpu/base", "gpu/math", "server/storage", "server/engine", "server/engine/pattern", "server/handoff"}, CUDA + GRPC + PROMETHEUS),
    "server/metrics": ({"gpu/base", "server/engine", "server/metrics"}, CUDA + GRPC),
    "server/rpc": ({"gpu", "gpu/base", "server/engine", "server/rpc"}, CUDA + PROMETHEUS),
    "server": ({"gpu", "gpu/base", "server", "server/storage", "server/engine", "server/handoff", "server/metrics", "server/rpc"}, CUDA + ("octavo/v1",)),
    "client/cpp": ({"gpu/base", "client/cpp"}, CUDA + PROMETHEUS),
    "client/cpp/liboctavo": ({"client/cpp/liboctavo"}, CUDA + PROMETHEUS),
}
# Headers that programs of others include: the standard library and nothing else.
PUBLIC = ("client/cpp/liboctavo/octavo.h",)
# The one file that knows which backends exist; the one command that needs no server; the one that reads files of records for it; what knows
# the endings of files.
EXCEPTIONS = {"gpu/backend.cc": {"gpu/host", "gpu/cuda"}, "client/cpp/convert_command.cc": {"server/storage"}, "client/cpp/format_flags.cc": {"server/storage"},
              "client/cpp/file_push.cc": {"gpu", "gpu/math", "server/storage"}}
OURS = ("gpu/", "server/", "client/", "tests/")
TOP = (".ci", "client", "deploy", "docker", "gpu", "proto", "server", "tests")


# Absolute paths of somebody's machine.
MACHINE_PATHS = tuple(f"/{top}/" for top in ("home", "work", "root", "Users"))


def include_problems(path, text):
    """What is wrong with the include lines of one file of ours."""
    folder = os.path.dirname(path)
    if folder.startswith("tests"):
        allowed, forbidden = None, CUDA  # tests look at everything, through the same headers as everybody
    elif folder in ALLOWED:
        allowed, forbidden = ALLOWED[folder]
        allowed = allowed | EXCEPTIONS.get(path, set())
    else:
        return [f"{path}: {folder} is not in the table of tests/layering_test.py"]
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line)
        if not match:
            continue
        included = match.group(1)
        ours = included.startswith(OURS)
        if path in PUBLIC and re.search(r"[/.]", included):
            problems.append(f"{path}:{number}: a public header may not include {included}")
        if (ours and allowed is not None and os.path.dirname(included) not in allowed) or (not ours and included.startswith(forbidden)):
            problems.append(f"{path}:{number}: {folder} may not include {included}")
    return problems


def readme_problems(text):
    """The files that "Life of a block" names must be there, and it must name the whole path."""
    parts = text.split("\n## Life of a block\n", 1)
    names = re.findall(r"`((?:gpu|server|client)/[\w/.]+)`", parts[1].split("\n## ", 1)[0]) if len(parts) == 2 else []
    problems = [f"README.md names {name} in 'Life of a block', which is not there" for name in names if not os.path.exists(os.path.join(ROOT, name))]
    if len(names) < 10:
        problems.append(f"README.md: 'Life of a block' names {len(names)} files; is it still the whole path?")
    return problems


def path_problems(path, text):
    return [f"{path} holds a path of a machine ({bad})" for bad in MACHINE_PATHS if bad in text]


def self_check():
    """Each rule sees what it is there to see."""
    planted = [
        include_problems("gpu/spectral.cc", '#include "server/engine/engine.h"'),
        include_problems("gpu/backend.cc", '#include "server/config.h"'),
        include_problems("gpu/host/x.cc", '#include "gpu/cuda/handles.h"'),
        include_problems("gpu/project.cc", "#  include <cuda_runtime.h>"),
        include_problems("server/engine/x.cc", "#include <grpcpp/server.h>"),
        include_problems("server/engine/x.cc", '#include "octavo/v1/scan.pb.h"'),
        include_problems("server/rpc/x.cc", '#include "server/storage/commit_store.h"'),
        include_problems("server/daemon.cc", '#include "octavo/v1/scan.grpc.pb.h"'),
        include_problems("client/cpp/volume_commands.cc", '#include "server/storage/convert.h"'),
        include_problems("tests/gpu/x.cc", "#include <cufft.h>"),
        include_problems("new/x.cc", ""),
        include_problems("client/cpp/liboctavo/octavo.h", '#include "octavo/v1/scan.pb.h"'),
        include_problems("client/cpp/liboctavo/octavo.h", '#include <grpcpp/grpcpp.h>'),
        readme_problems("\n## Life of a block\n`gpu/none.cc`\n"),
        path_problems("a", "/home/" + "someone/x"),
    ]
    fine = [include_problems("client/cpp/liboctavo/octavo.h", "#include <vector>"), include_problems("gpu/cuda/x.cc", "#include <cuda_runtime.h>"), include_problems("gpu/backend.cc", '#include "gpu/cuda/cuda_device.h"'),
            include_problems("server/daemon.cc", '#include "server/rpc/rpc_server.h"'), path_problems("a", "x/home.html")]
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
            problems += include_problems(path, text)
            seen += 1
    if seen < 100:
        problems.append(f"only {seen} files looked at; is this a checkout?")
    with open(os.path.join(ROOT, "README.md")) as file:
        problems += readme_problems(file.read())
    print("\n".join(problems) if problems else f"{seen} files keep to the layers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
