"""Checks a set of protos by the rules of buf's STANDARD category (buf.build/docs/lint/rules), and that every element has a
comment. Works on descriptor sets, so that it runs wherever protoc does."""

import re
import subprocess
import tempfile

from google.protobuf import descriptor_pb2

# Paths of descriptor.proto, for the comments of elements.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6  # of a file
_FIELDS, _NESTED, _NESTED_ENUMS = 2, 3, 4  # of a message
_VALUES, _METHODS = 2, 2


def compiled(root, files):
    """The FileDescriptorSet of `files`, paths below `root`, with comments and without what they import."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "-I", root, "--include_source_info", f"--descriptor_set_out={out.name}", *files], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read())


def pascal(name):
    return re.fullmatch(r"([A-Z][a-z0-9]*)+", name) is not None or re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) is not None and "_" not in name


def lower_snake(name):
    return re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) is not None


def upper_snake_of(name):
    """Buf's form: KLinearisation → K_LINEARISATION, DType → D_TYPE."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).upper()


class Lint:
    """Collects (rule, element, what is wrong)."""

    def __init__(self, files):
        self.found = []
        self.comments = {}
        self._of_rpc = {}
        for file in files:
            self._comments_of(file)
        for file in files:
            self._file(file)
        self._same_options(files)
        for name, users in self._of_rpc.items():
            if len(users) > 1:
                self.say("RPC_REQUEST_RESPONSE_UNIQUE", name, f"is of {', '.join(sorted(users))}")

    def say(self, rule, element, what):
        self.found.append((rule, element, what))

    def _comments_of(self, file):
        for location in file.source_code_info.location:
            text = location.leading_comments + location.trailing_comments
            if text.strip():
                self.comments[file.name, tuple(location.path)] = text.strip()

    def _file(self, file):
        if file.syntax != "proto3":
            self.say("SYNTAX_SPECIFIED", file.name, "is not proto3")
        if not re.fullmatch(r"[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*\.v[1-9][0-9]*", file.package):
            self.say("PACKAGE_VERSION_SUFFIX", file.name, f"is in the package {file.package!r}")
        if "/".join(file.name.split("/")[:-1]) != file.package.replace(".", "/"):
            self.say("PACKAGE_DIRECTORY_MATCH", file.name, f"is in the package {file.package}")
        if not lower_snake(file.name.split("/")[-1][:-len(".proto")]):
            self.say("FILE_LOWER_SNAKE_CASE", file.name, "is not lower_snake_case")
        if file.public_dependency or file.weak_dependency:
            self.say("IMPORT_NO_PUBLIC", file.name, "imports publicly or weakly")
        for i, message in enumerate(file.message_type):
            self._message(file, message, file.package, (_MESSAGES, i))
        for i, enum in enumerate(file.enum_type):
            self._enum(file, enum, file.package, (_ENUMS, i))
        for i, service in enumerate(file.service):
            self._service(file, service, (_SERVICES, i))

    def _commented(self, file, path, element):
        if (file.name, path) not in self.comments:
            self.say("COMMENT", element, "has no comment")

    def _message(self, file, message, scope, path):
        name = f"{scope}.{message.name}"
        if message.options.map_entry:
            return
        if not pascal(message.name):
            self.say("MESSAGE_PASCAL_CASE", name, "is not PascalCase")
        for i, field in enumerate(message.field):
            if not lower_snake(field.name):
                self.say("FIELD_LOWER_SNAKE_CASE", f"{name}.{field.name}", "is not lower_snake_case")
            self._commented(file, path + (_FIELDS, i), f"{name}.{field.name}")
        synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
        for i, oneof in enumerate(message.oneof_decl):
            if i not in synthetic and not lower_snake(oneof.name):
                self.say("ONEOF_LOWER_SNAKE_CASE", f"{name}.{oneof.name}", "is not lower_snake_case")
        self._clashes(message, name)
        for i, nested in enumerate(message.nested_type):
            self._message(file, nested, name, path + (_NESTED, i))
        for i, enum in enumerate(message.enum_type):
            self._enum(file, enum, name, path + (_NESTED_ENUMS, i))

    def _clashes(self, message, name):
        """Names that clash in generated code: `x_count` beside a repeated `x` (Java: getXCount), JSON names that are the same."""
        repeated = {field.name for field in message.field if field.label == field.LABEL_REPEATED}
        for field in message.field:
            for suffix in ("_count", "_list", "_map", "_bytes", "_builder"):
                if field.name.endswith(suffix) and field.name[:-len(suffix)] in repeated:
                    self.say("NAME_CLASH", f"{name}.{field.name}", f"clashes with code for {field.name[:-len(suffix)]}")
        json = [field.json_name for field in message.field]
        for field in message.field:
            if json.count(field.json_name) > 1:
                self.say("NAME_CLASH", f"{name}.{field.name}", f"has the JSON name {field.json_name} of another field")

    def _enum(self, file, enum, scope, path):
        name = f"{scope}.{enum.name}"
        if not pascal(enum.name):
            self.say("ENUM_PASCAL_CASE", name, "is not PascalCase")
        if enum.options.allow_alias:
            self.say("ENUM_NO_ALLOW_ALIAS", name, "has aliases")
        prefix = upper_snake_of(enum.name) + "_"
        if enum.value[0].number != 0:
            self.say("ENUM_FIRST_VALUE_ZERO", name, f"begins with {enum.value[0].number}")
        for i, value in enumerate(enum.value):
            if not re.fullmatch(r"[A-Z][A-Z0-9_]*", value.name):
                self.say("ENUM_VALUE_UPPER_SNAKE_CASE", f"{name}.{value.name}", "is not UPPER_SNAKE_CASE")
            if not value.name.startswith(prefix):
                self.say("ENUM_VALUE_PREFIX", f"{name}.{value.name}", f"does not begin with {prefix}")
            if value.number == 0 and not value.name.endswith("_UNSPECIFIED"):
                self.say("ENUM_ZERO_VALUE_SUFFIX", f"{name}.{value.name}", "is 0 and does not end with _UNSPECIFIED")

    def _service(self, file, service, path):
        name = f"{file.package}.{service.name}"
        if not pascal(service.name):
            self.say("SERVICE_PASCAL_CASE", name, "is not PascalCase")
        if not service.name.endswith("Service"):
            self.say("SERVICE_SUFFIX", name, "does not end with Service")
        for i, method in enumerate(service.method):
            of = f"{name}.{method.name}"
            if not pascal(method.name):
                self.say("RPC_PASCAL_CASE", of, "is not PascalCase")
            self._commented(file, path + (_METHODS, i), of)
            for kind, type_name in (("Request", method.input_type), ("Response", method.output_type)):
                plain = type_name.split(".")[-1]
                self._of_rpc.setdefault(type_name.lstrip("."), set()).add(f"{method.name} ({kind.lower()})")
                if plain not in (f"{method.name}{kind}", f"{service.name}{method.name}{kind}"):
                    self.say(f"RPC_{kind.upper()}_STANDARD_NAME", of, f"has the {kind.lower()} {plain}")

    def _same_options(self, files):
        for package in {file.package for file in files}:
            of = [file for file in files if file.package == package]
            for option in ("go_package", "java_package", "java_multiple_files", "csharp_namespace"):
                values = {getattr(file.options, option) for file in of}
                if len(values) > 1:
                    self.say(f"PACKAGE_SAME_{option.upper()}", package, f"has {sorted(map(str, values))}")
                elif not values.pop():
                    self.say(f"PACKAGE_SAME_{option.upper()}", package, f"names no {option}")
