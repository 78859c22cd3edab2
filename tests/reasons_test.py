#!/usr/bin/env python3
"""Compares gpu/base/reason.h with what clients have of it: the enum Reason (proto/octavo/v1/reason.proto) and the list
proto/ERRORS.md. Each has every reason, in the same order and with the same meaning, and no other one. `--write` updates both;
a reason keeps the number that it has in the enum."""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER, PAGE, PROTO = ROOT / "gpu/base/reason.h", ROOT / "proto/ERRORS.md", ROOT / "proto/octavo/v1/reason.proto"
WIDTH = 100
INTRODUCTION = """# Reasons

Every error carries a `google.rpc.ErrorInfo`: a stable `reason` for programs, and values in its `metadata`. The message is for
people. Scans and jobs wait and end with such a reason, too (`reason_code`, a value of the enum `Reason`, whose names have
`REASON_` before the names here). An error without a reason of its own has the name of its status code instead. This page lists
`gpu/base/reason.h`; `tests/reasons_test.py --write` makes it.
"""
FILE = """// Reasons: why a call was refused, and why a scan or job waits or ended. A reason never changes its
// meaning. google.rpc.ErrorInfo.reason is text by its definition: the name of the value without
// REASON_, for example LEASED. This file has the reasons of gpu/base/reason.h;
// tests/reasons_test.py --write brings it up to date.
syntax = "proto3";
package octavo.v1;

option go_package = "octavo/v1;octavov1";
option java_package = "octavo.v1";
option java_multiple_files = true;
option java_outer_classname = "ReasonProto";
option csharp_namespace = "Octavo.V1";

enum Reason {
  REASON_UNSPECIFIED = 0;  // none: nothing ended or waits
"""


def declared():
    """(heading, [(name, meaning)]) of the header."""
    text = re.search(r"#define OCTAVO_REASONS\(X\)(.*?)\n\n", HEADER.read_text(), re.DOTALL).group(1)
    text = re.sub(r"\s*\\\n\s*", " ", text)
    text = re.sub(r'"\s+"', "", text)  # a meaning may continue on the next line
    sections = []
    for heading, name, meaning in re.findall(r'/\* (.*?) \*/|X\(k\w+,\s*"(\w+)",\s*"((?:[^"\\]|\\.)*)"\)', text):
        if heading:
            sections.append((heading, []))
        else:
            sections[-1][1].append((name, meaning))
    return sections


def page(sections):
    lines = [INTRODUCTION]
    for heading, reasons in sections:
        lines += [f"## {heading}", "| reason | meaning |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in reasons), ""]
    return "\n".join(lines)


def numbers():
    """The number of each reason in the enum, by its name without REASON_."""
    text = PROTO.read_text() if PROTO.exists() else ""
    return {name: int(number) for name, number in re.findall(r"^  REASON_(\w+) = (\d+);", text, re.MULTILINE) if name != "UNSPECIFIED"}


def proto(sections):
    known = numbers()
    free = max(known.values(), default=0) + 1
    out = [FILE]
    for heading, reasons in sections:
        out.append(f"\n  // -- {heading}\n")
        for name, meaning in reasons:
            if name not in known:
                known[name], free = free, free + 1
            value = f"  REASON_{name} = {known[name]};"
            if len(value) + 5 + len(meaning) <= WIDTH:
                out.append(f"{value}  // {meaning}\n")
            else:
                out.append("".join(f"{line}\n" for line in textwrap.wrap(meaning, WIDTH, initial_indent="  // ", subsequent_indent="  // ")) + value + "\n")
    return "".join(out) + "}\n"


def main():
    sections = declared()
    names = [name for _, reasons in sections for name, _ in reasons]
    lines = len(re.findall(r"\bX\(k", HEADER.read_text()))
    if len(names) != lines or len(set(names)) != len(names):
        sys.exit(f"{HEADER.relative_to(ROOT)} declares {lines} reasons, {len(set(names))} different ones are read")
    # The enum against the header, each way, and then every letter.
    here = numbers()
    if "--write" not in sys.argv and (set(here) != set(names) or len(set(here.values())) != len(here)):
        sys.exit(f"{PROTO.relative_to(ROOT)} lacks {sorted(set(names) - set(here))} and has too many: {sorted(set(here) - set(names))}; "
                 "run tests/reasons_test.py --write")
    for path, wanted in ((PROTO, proto(sections)), (PAGE, page(sections))):
        if "--write" in sys.argv:
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            sys.exit(f"{path.relative_to(ROOT)} is not what {HEADER.relative_to(ROOT)} says; run tests/reasons_test.py --write")
    print(f"{len(names)} reasons")


if __name__ == "__main__":
    main()
