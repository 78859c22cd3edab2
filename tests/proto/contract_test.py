#!/usr/bin/env python3
"""The contract follows buf's STANDARD rules, and the tools that say so find what is wrong."""

import collections
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

import breaking  # noqa: E402
import lint  # noqa: E402
import released  # noqa: E402

# Rules that the contract does not follow yet, and how often. A number may only fall.
NOT_YET = {}


def made(folder, **files):
    """The descriptor set of small protos: file name → text behind the package."""
    os.makedirs(os.path.join(folder, "a/v1"), exist_ok=True)
    for name, text in files.items():
        with open(os.path.join(folder, "a/v1", name + ".proto"), "w") as file:
            file.write('syntax = "proto3";\npackage a.v1;\noption go_package = "a/v1";\noption java_package = "a.v1";\n'
                       'option java_multiple_files = true;\noption csharp_namespace = "A.V1";\n' + text)
    return lint.compiled(folder, [f"a/v1/{name}.proto" for name in files]).file


class Contract(unittest.TestCase):
    def test_lint(self):
        found = lint.Lint(lint.compiled(os.path.join(ROOT, "proto"), released.own_files()).file).found
        counts = collections.Counter(rule for rule, _, _ in found)
        for rule, element, what in found:
            if rule not in NOT_YET:
                print(f"{rule}: {element} {what}")
        self.assertEqual({rule: n for rule, n in counts.items() if n > NOT_YET.get(rule, 0)}, {})
        self.assertEqual({rule: n for rule, n in NOT_YET.items() if counts[rule] < n}, {}, "write the smaller number down")

    def test_the_wire_has_the_contracts_values(self):
        """octavo.handoff.v1 refers to nothing of octavo.v1, so it repeats two enums."""
        enums = {enum.name: {value.number: value.name for value in enum.value}
                 for file in lint.compiled(os.path.join(ROOT, "proto"), ["octavo/v1/types.proto", "octavo/v1/export.proto"]).file for enum in file.enum_type}
        wire, = lint.compiled(os.path.join(ROOT, "proto"), ["octavo/handoff/v1/handoff.proto"]).file
        again = {enum.name: {value.number: value.name for value in enum.value} for enum in wire.enum_type}
        self.assertEqual(again["Dtype"], enums["Dtype"])
        self.assertEqual(again["MemoryKind"], {number: name.replace("EXPORT_", "MEMORY_") for number, name in enums["ExportKind"].items()})
        self.assertEqual([name for name in wire.dependency if name.startswith("octavo/")], [])

    def test_every_language_generates(self):
        """protoc's own generators take the protos; a clash of names would end them."""
        files = released.own_files()
        with tempfile.TemporaryDirectory() as out:
            for language in ("cpp", "python", "java", "csharp", "ruby", "php", "objc"):
                os.makedirs(os.path.join(out, language))
                subprocess.run(["protoc", "-I", os.path.join(ROOT, "proto"), f"--{language}_out={os.path.join(out, language)}", *files], check=True)


    def test_nothing_released_is_broken(self):
        self.assertEqual(released.broken(released.of_tree()), [])

    def test_the_release_has_every_file_that_it_needs(self):
        """Without its imports, the set could not be loaded, nor held against anything by buf."""
        files = {file.name for file in released.released().file}
        self.assertEqual({name for file in released.released().file for name in file.dependency} - files, set())
        self.assertGreater(len(released.own(released.released())), 10)

    def test_field_numbers_are_contiguous(self):
        """1, 2, 3 … in each message; a number that is taken out is reserved. A gap would hide that something was taken away."""
        def walk(message, name):
            numbers = {field.number for field in message.field} | {n for one in message.reserved_range for n in range(one.start, one.end)}
            if not message.options.map_entry and numbers and numbers != set(range(1, max(numbers) + 1)):
                gaps.append((name, sorted(set(range(1, max(numbers) + 1)) - numbers)[:5]))
            for one in message.nested_type:
                walk(one, f"{name}.{one.name}")

        gaps = []
        for file in released.own(released.of_tree()):
            for message in file.message_type:
                walk(message, message.name)
        self.assertEqual(gaps, [])


class Lint(unittest.TestCase):
    def rules(self, text):
        with tempfile.TemporaryDirectory() as folder:
            return {rule for rule, _, _ in lint.Lint(made(folder, one=text)).found}

    def test_good(self):
        self.assertEqual(self.rules("""
            // Answers.
            service EchoService {
              // Says it again.
              rpc Echo(EchoRequest) returns (EchoResponse);
            }
            message EchoRequest {
              Kind kind = 1;  // how
              optional int32 times = 2;  // unset = 1
            }
            message EchoResponse {}
            enum Kind { KIND_UNSPECIFIED = 0; KIND_LOUD = 1; }"""), set())

    def test_each_rule_bites(self):
        for text, rule in (
                ("enum Kind { LOUD = 0; }", "ENUM_VALUE_PREFIX"), ("enum Kind { KIND_LOUD = 0; }", "ENUM_ZERO_VALUE_SUFFIX"),
                ("enum DType { DTYPE_UNSPECIFIED = 0; }", "ENUM_VALUE_PREFIX"), ("enum kind { KIND_UNSPECIFIED = 0; }", "ENUM_PASCAL_CASE"),
                ("enum Kind { KIND_UNSPECIFIED = 0; kind_a = 1; }", "ENUM_VALUE_UPPER_SNAKE_CASE"),
                ("enum Kind { option allow_alias = true; KIND_UNSPECIFIED = 0; KIND_A = 1; KIND_B = 1; }", "ENUM_NO_ALLOW_ALIAS"),
                ("message one_two {}", "MESSAGE_PASCAL_CASE"), ("message M { int32 oneTwo = 1; }", "FIELD_LOWER_SNAKE_CASE"),
                ("message M { int32 one = 1; }", "COMMENT"), ("message M { oneof One { int32 a = 1; } }", "ONEOF_LOWER_SNAKE_CASE"),
                ("message M { repeated int32 log = 1; int32 log_count = 2; }", "NAME_CLASH"),
                ("service Echo { rpc Do(DoRequest) returns (DoResponse); } message DoRequest {} message DoResponse {}", "SERVICE_SUFFIX"),
                ("service EchoService { rpc Do(M) returns (DoResponse); } message M {} message DoResponse {}", "RPC_REQUEST_STANDARD_NAME"),
                ("service EchoService { rpc Do(DoRequest) returns (M); } message M {} message DoRequest {}", "RPC_RESPONSE_STANDARD_NAME"),
                ("service EchoService { rpc A(M) returns (AResponse); rpc B(M) returns (BResponse); } message M {} message AResponse {}"
                 "message BResponse {}", "RPC_REQUEST_RESPONSE_UNIQUE")):
            with self.subTest(rule=rule, text=text):
                self.assertIn(rule, self.rules(text))


class Breaking(unittest.TestCase):
    BEFORE = """message M { int32 a = 1; repeated string b = 2; oneof c { int32 d = 3; } }
                enum Kind { KIND_UNSPECIFIED = 0; KIND_A = 1; }
                service EchoService { rpc Echo(M) returns (M); rpc Old(M) returns (stream M); }"""

    def found(self, after):
        with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
            return breaking.breaking(made(old, one=self.BEFORE), made(new, one=after))

    def test_what_is_added_breaks_nothing(self):
        self.assertEqual(self.found(self.BEFORE.replace("int32 a = 1;", "int32 a = 1; int32 e = 9;").replace("KIND_A = 1;", "KIND_A = 1; KIND_B = 2;")
                                    + " message New {}"), [])

    def test_a_field_may_go_when_it_is_reserved(self):
        self.assertEqual(self.found(self.BEFORE.replace("int32 a = 1;", 'reserved 1; reserved "a";')), [])

    def test_each_break_is_found(self):
        for old, new, told in (("int32 a = 1;", "", "M.a = 1 is gone"), ("int32 a = 1;", "reserved 1;", "M.a = 1 is gone"),
                               ("int32 a = 1;", "int64 a = 1;", "has another type"), ("int32 a = 1;", "int32 z = 1;", "is now called z"),
                               ("int32 a = 1;", "optional int32 a = 1;", "optional"), ("repeated string b", "string b", "has another type"),
                               ("oneof c { int32 d = 3; }", "int32 d = 3;", "oneof"), ("KIND_A = 1;", "KIND_B = 1;", "is now KIND_B"),
                               ("KIND_A = 1;", "", "is now gone"), ("rpc Echo(M) returns (M);", "", "rpc a.v1.EchoService.Echo is gone"),
                               ("returns (stream M)", "returns (M)", "another message"), ("service EchoService", "service OtherService", "EchoService is gone"),
                               ("enum Kind", "enum Sort", "Kind is gone")):
            with self.subTest(new=new, told=told):
                after = self.BEFORE.replace(old, new)
                if new == "enum Sort":
                    after = after.replace("KIND_", "SORT_")
                self.assertTrue(any(told in one for one in self.found(after)), self.found(after))


if __name__ == "__main__":
    unittest.main()
