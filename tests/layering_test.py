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
    "server/storage": ({"gpu", "gpu/base", "server/storage"}, CUDA + GRPC + PROMETHEUS),
    "server/engine": ({"gpu", "gpu/base", "gpu/math", "server/storage", "server/engine"}, CUDA + GRPC + PROMETHEUS),
    "server/metrics": ({"gpu/base", "server/engine", "server/metrics"}, CUDA + GRPC),
    "server/rpc": ({"gpu", "gpu/base", "server/engine", "server/rpc"}, CUDA + PROMETHEUS),
    "server": ({"gpu", "gpu/base", "server", "server/storage", "server/engine", "server/metrics", "server/rpc"}, CUDA + ("octavo/v1",)),
    "client/cpp": ({"client/cpp"}, CUDA + PROMETHEUS),
}
# The one file that knows which backends exist.
EXCEPTIONS = {"gpu/backend.cc": {"gpu/host", "gpu/cuda"}}
OURS = ("gpu/", "server/", "client/")


def main():
    problems = []
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    seen = 0
    for path in files:
        folder = os.path.dirname(path)
        if not path.endswith((".h", ".cc", ".cu", ".cuh")) or path.startswith("tests/"):
            continue
        if folder not in ALLOWED:
            problems.append(f"{path}: {folder} is not in the table of tests/layering_test.py")
            continue
        seen += 1
        allowed, forbidden = ALLOWED[folder]
        allowed = allowed | EXCEPTIONS.get(path, set())
        for number, line in enumerate(open(os.path.join(ROOT, path), errors="replace"), 1):
            match = re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line)
            if not match:
                continue
            included = match.group(1)
            if included.startswith(OURS):
                if os.path.dirname(included) not in allowed:
                    problems.append(f"{path}:{number}: {folder} may not include {included}")
            elif included.startswith(forbidden):
                problems.append(f"{path}:{number}: {folder} may not include {included}")
    if seen < 50:
        problems.append(f"only {seen} files looked at; is this a checkout?")

    readme = os.path.join(ROOT, "README.md")
    if os.path.exists(readme):
        text = open(readme).read()
        life = text.split("## Life of a block", 1)
        if len(life) == 2:
            for name in re.findall(r"`((?:gpu|server|client)/[\w/.{},]+)`", life[1].split("\n## ", 1)[0]):
                if not os.path.exists(os.path.join(ROOT, name)):
                    problems.append(f"README.md names {name} in 'Life of a block', which is not there")
    for path in files:
        if os.path.isfile(os.path.join(ROOT, path)) and path != "tests/layering_test.py":
            text = open(os.path.join(ROOT, path), errors="replace").read()
            for bad in ("/home/", "/work/", "/root/"):
                if bad in text:
                    problems.append(f"{path} holds a path of a machine ({bad})")
    print("\n".join(problems) if problems else f"{seen} files keep to the layers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
