#!/usr/bin/env python3
"""proto/released.binpb is the contract of the last release: the descriptor set that later changes are held against.
Without arguments, says what the contract of this tree breaks of it (exit status 1 if anything). `--write` makes the contract of this
tree the released one, unless that would break something; it is run with each release, never to get a change through."""

import os
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.join(os.path.dirname(os.path.dirname(HERE)), "proto")
RELEASED = os.path.join(PROTO, "released.binpb")
sys.path.insert(0, HERE)

import breaking  # noqa: E402


def own_files(root=PROTO):
    """The contract's files, as paths below `root`."""
    return sorted(os.path.relpath(os.path.join(at, name), root) for at, _, names in os.walk(os.path.join(root, "octavo"))
                  for name in names if name.endswith(".proto"))


def of_tree(root=PROTO):
    """The descriptor set of the tree, with what it imports (buf wants that) and without comments."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "-I", root, "--include_imports", f"--descriptor_set_out={out.name}", *own_files(root)], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read())


def own(descriptors):
    return [file for file in descriptors.file if file.package.startswith("octavo.")]


def released():
    with open(RELEASED, "rb") as file:
        return descriptor_pb2.FileDescriptorSet.FromString(file.read())


def broken(now):
    """What `now`, a descriptor set, takes away from programs that were built for the release."""
    return breaking.breaking(own(released()), own(now))


def main(arguments):
    if arguments not in ([], ["--write"]):
        print("released.py: allowed: --write, or nothing", file=sys.stderr)
        return 2
    now = of_tree()
    if os.path.exists(RELEASED):
        found = broken(now)
        for one in found:
            print(one)
        if found:
            return 1
    if arguments:
        with open(RELEASED, "wb") as file:
            file.write(now.SerializeToString(deterministic=True))
        print(f"{RELEASED}: {len(own(now))} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
