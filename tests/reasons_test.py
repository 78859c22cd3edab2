#!/usr/bin/env python3
"""Compares gpu/base/reason.h with what clients have of it: the enum Reason (proto/octavo/v1/reason.proto) and the list
proto/ERRORS.md. Each has every reason, in the same order and with the same meaning, and no other one. `--write` updates both;
a reason keeps the number that it has in the enum.

Every reason is sent: a line of server/ or gpu/ makes it. Every reason is seen: a test provokes it, by a wrong call or a fault, and
names it; or UNSEEN says why none does. `--table` prints which tests those are."""

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
`REASON_` before the names here). An error without a reason of its own has the name of its status code instead. "metadata" in a
meaning names keys of `ErrorInfo.metadata`. Where `retryable` is `true` there, or the error has a `google.rpc.RetryInfo`, the same
call may succeed later by itself. This page lists
`gpu/base/reason.h`; `tests/reasons_test.py --write` makes it.
"""
FILE = """// Reasons: why a call was refused, and why a scan or job waits or ended. A reason never changes its
// meaning. google.rpc.ErrorInfo.reason is text by its definition: the name of the value without
// REASON_, for example LEASED. "metadata" in a meaning names keys of ErrorInfo.metadata. This file
// has the reasons of gpu/base/reason.h; tests/reasons_test.py --write brings it up to date.
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

CODES = "Errors without a reason of their own"  # the section of reasons that are names of gRPC's codes

# Reasons that no test provokes, and why.
UNSEEN = {
    "SLOW_CLIENT": "whoever gets it does not read; slow_peers_test.py sees the server refuse such calls and keep its memory",
}


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


def enumerators():
    """The enumerator of each reason by its name."""
    return {name: enumerator for enumerator, name in re.findall(r'X\((k\w+),\s*"(\w+)"', HEADER.read_text())}


def sources(folders, endings):
    return {path: path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings}


def unsent(sections):
    """Reasons that no line of the server makes. A comparison with a reason makes none; an error without a reason gets that of its code."""
    text = "\n".join(text for path, text in sources(("server", "gpu"), (".cc", ".h", ".cu")).items() if path.stem != "reason" or path.parent.name != "base")
    enumerator = enumerators()
    missing = []
    for heading, reasons in sections:
        for name, _ in reasons:
            made = rf"(?<![=!]= )(?<!case )\bReason::{enumerator[name]}\b"
            if heading.startswith(CODES):
                made += rf"|absl::{enumerator[name][1:]}Error\(|(?<![=!]= )(?<!case )\bStatusCode::{enumerator[name]}\b"
            if not re.search(made, text):
                missing.append(name)
    return missing


def seen(sections):
    """reason → files of tests that name it. Words that other enums have, too, count beside the word reason only; names of codes count where they cannot be
    the code."""
    files = {path: text for path, text in sources(("tests/gpu", "tests/server", "tests/client", "tests/integration"), (".cc", ".h", ".py", ".mjs")).items()}
    others = set()
    for path in (ROOT / "proto/octavo/v1").glob("*.proto"):
        if path != PROTO:
            for value in re.findall(r"^\s+([A-Z][A-Z0-9_]+) = \d+;", path.read_text(), re.MULTILINE):
                others |= {"_".join(value.split("_")[i:]) for i in range(value.count("_") + 1)}
    enumerator = enumerators()
    found = {}
    for heading, reasons in sections:
        for name, _ in reasons:
            own = rf"\bReason::{enumerator[name]}\b|\bREASON_{name}\b"
            quoted = rf"[\"']{name}[\"']"
            found[name] = []
            for path, text in files.items():
                if re.search(own, text):
                    found[name].append(path)
                elif path.name == "reasons_test.py":
                    found[name] += [path] * bool(re.search(quoted, text))
                elif heading.startswith(CODES) or name in ("OUT_OF_RANGE", "CANCELLED"):
                    continue  # the code
                elif any(name not in others or re.search("reason|refused", line, re.IGNORECASE) for line in text.splitlines() if re.search(quoted, line)):
                    found[name].append(path)
    return found


def page(sections):
    lines = [INTRODUCTION]
    for heading, reasons in sections:
        lines += [f"## {heading}", "| reason | meaning |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in reasons), ""]
    return "\n".join(lines)


def numbers():
    """The number of each reason in the enum, by its name without REASON_."""
    text = PROTO.read_text() if PROTO.exists() else ""
    return {name: int(number) for name, number in re.findall(r"^  REASON_(\w+) = (\d+);", text, re.MULTILINE) if name != "UNSPECIFIED"}


def reserved():
    """The numbers of reasons that are gone."""
    line = re.search(r"^  reserved ([0-9, ]+);", PROTO.read_text() if PROTO.exists() else "", re.MULTILINE)
    return [int(number) for number in line.group(1).split(",")] if line else []


def proto(sections):
    known = numbers()
    free = max([*known.values(), *reserved()], default=0) + 1
    names = {name for _, reasons in sections for name, _ in reasons}
    gone = sorted(set(range(1, free)) - {number for name, number in known.items() if name in names})
    out = [FILE]
    if gone:  # a number never gets another meaning
        out.append(f"  reserved {', '.join(map(str, gone))};\n")
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
    if missing := unsent(sections):
        sys.exit(f"nothing in server/ and gpu/ sends {missing}: take them out of {HEADER.relative_to(ROOT)}, or send them")
    by = seen(sections)
    if "--table" in sys.argv:
        for name, paths in by.items():
            print(f"{name:<24}{len(paths):>3}  {', '.join(path.name for path in paths[:4]) or UNSEEN.get(name, '')}")
    if nobody := [name for name, paths in by.items() if not paths and name not in UNSEEN]:
        sys.exit(f"no test provokes {nobody}: tests/integration/service/reasons_test.py is the place for it; if it cannot be, say why in UNSEEN")
    if stale := [name for name in UNSEEN if by.get(name, True)]:
        sys.exit(f"UNSEEN names {stale}, which a test provokes, or which there is not")
    print(f"{len(names)} reasons: all are sent, tests provoke {len(names) - len(UNSEEN)}")


if __name__ == "__main__":
    main()
