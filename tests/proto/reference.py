#!/usr/bin/env python3
"""Writes proto/REFERENCE.md, the reference of the contract, from the comments of the protos: each call with its request, response and
errors, each message with its fields, each enum with its values. `--write` brings the page up to date; without it, the page is
checked."""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGE = os.path.join(ROOT, "proto", "REFERENCE.md")
sys.path.insert(0, HERE)

import lint  # noqa: E402
import released  # noqa: E402

_SCALARS = {1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string", 12: "bytes", 13: "uint32",
            15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64"}
_MESSAGE, _ENUM = 11, 14
_SYNTAX, _PACKAGE = 12, 2  # of a file: where its head comment stands
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED, _NESTED_ENUMS, _VALUES, _METHODS = 2, 3, 4, 2, 2


def anchor(name):
    """GitHub's anchor of a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", name.lower()).replace(" ", "-")


def plain(text):
    """A comment as one line of Markdown: devices/<n> is no HTML."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")


def cell(text):
    """A comment as one cell of a table."""
    return plain(text).replace("|", "\\|")


class Reference:
    """Renders descriptor sets with comments, file by file."""

    def __init__(self, files, head):
        self.lines = [head]
        self.known = {}
        for file in files:
            self._names(file)
        self._toc(files)
        for file in files:
            self._file(file)

    def text(self):
        return "\n".join(self.lines).rstrip() + "\n"

    def _names(self, file):
        def message(one, scope):
            name = f"{scope}.{one.name}" if scope else one.name
            self.known[f".{file.package}.{name}"] = name
            for nested in one.nested_type:
                message(nested, name)
            for enum in one.enum_type:
                self.known[f".{file.package}.{name}.{enum.name}"] = f"{name}.{enum.name}"

        for one in file.message_type:
            message(one, "")
        for enum in file.enum_type:
            self.known[f".{file.package}.{enum.name}"] = enum.name

    def _toc(self, files):
        for file in files:
            names = [service.name for service in file.service] + [one.name for one in file.message_type] + [enum.name for enum in file.enum_type]
            self.lines += [f"- **[{file.name}](#{anchor(file.name)})**: " + ", ".join(f"[{name}](#{anchor(name)})" for name in names)]
        self.lines.append("")

    def _link(self, type_name):
        name = self.known.get(type_name)
        return f"[{name}](#{anchor(name)})" if name else f"`{type_name.lstrip('.')}`"

    def _file(self, file):
        self.comments = {}
        detached = {}
        for location in file.source_code_info.location:
            path = tuple(location.path)
            self.comments[path] = "\n".join(filter(None, (location.leading_comments, location.trailing_comments))).strip("\n")
            detached[path] = location.leading_comments
        self.lines += [f"## {file.name}", ""]
        head = detached.get((_SYNTAX,), "")
        if head:
            self._prose(head)
        for i, service in enumerate(file.service):
            self._service(service, (_SERVICES, i))
        for i, one in enumerate(file.message_type):
            self._message(file, one, "", (_MESSAGES, i))
        for i, enum in enumerate(file.enum_type):
            self._enum(enum, "", (_ENUMS, i))

    def _prose(self, comment):
        for paragraph in filter(None, re.split(r"\n\s*\n", comment.strip())):
            self.lines += [plain(paragraph), ""]

    def _service(self, service, path):
        self.lines += [f"### {service.name}", ""]
        self._prose(self.comments.get(path, ""))
        for i, method in enumerate(service.method):
            take = ("stream of " if method.client_streaming else "") + self._link(method.input_type)
            give = ("stream of " if method.server_streaming else "") + self._link(method.output_type)
            self.lines += [f"**{service.name}.{method.name}**: {take} → {give}", ""]
            self._prose(self.comments.get(path + (_METHODS, i), ""))

    def _message(self, file, message, scope, path):
        if message.options.map_entry:
            return
        name = f"{scope}.{message.name}" if scope else message.name
        self.lines += [f"### {name}", ""]
        self._prose(self.comments.get(path, ""))
        if message.field:
            self.lines += ["| field | type | what it is |", "|---|---|---|"]
            entries = {f".{file.package}.{name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
            for i, field in enumerate(message.field):
                what = cell(self.comments.get(path + (_FIELDS, i), ""))
                if field.HasField("oneof_index") and not field.proto3_optional:
                    what = f"(one of `{message.oneof_decl[field.oneof_index].name}`) {what}".strip()
                self.lines.append(f"| `{field.name}` = {field.number} | {self._type(field, entries)} | {what} |")
            self.lines.append("")
        for i, nested in enumerate(message.nested_type):
            self._message(file, nested, name, path + (_NESTED, i))
        for i, enum in enumerate(message.enum_type):
            self._enum(enum, name, path + (_NESTED_ENUMS, i))

    def _type(self, field, entries):
        if field.type_name in entries:
            key, value = entries[field.type_name].field
            return f"map of {self._type(key, {})} → {self._type(value, {})}"
        one = self._link(field.type_name) if field.type in (_MESSAGE, _ENUM) else _SCALARS[field.type]
        if field.label == field.LABEL_REPEATED:
            return f"{one}, repeated"
        return f"{one}, optional" if field.proto3_optional else one

    def _enum(self, enum, scope, path):
        name = f"{scope}.{enum.name}" if scope else enum.name
        self.lines += [f"### {name}", ""]
        self._prose(self.comments.get(path, ""))
        self.lines += ["| value | meaning |", "|---|---|"]
        for i, value in enumerate(enum.value):
            self.lines.append(f"| `{value.name}` = {value.number} | {cell(self.comments.get(path + (_VALUES, i), ''))} |")
        self.lines.append("")


HEAD = """# Reference of the contract

`tests/proto/reference.py --write` makes this page from the comments of the protos; a test checks it. [README.md](README.md) says
what all calls have in common, [ERRORS.md](ERRORS.md) what each reason means.
"""


def page():
    return Reference(lint.compiled(os.path.join(ROOT, "proto"), released.own_files()).file, HEAD).text()


def main(arguments):
    if arguments not in ([], ["--write"]):
        print("reference.py: allowed: --write, or nothing", file=sys.stderr)
        return 2
    now = page()
    if arguments:
        with open(PAGE, "w") as file:
            file.write(now)
        return 0
    with open(PAGE) as file:
        if file.read() != now:
            print("proto/REFERENCE.md is not what the protos say: tests/proto/reference.py --write", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
