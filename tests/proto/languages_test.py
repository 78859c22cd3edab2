#!/usr/bin/env python3
"""The contract's names survive in every language: C++, Python, Go, Java, Ruby and Node.

For each language the test generates code of proto/octavo, compiles and loads it, and then looks for every service, method,
message, field, oneof, enum and value under the name that the language's documented rule makes of it. A generator evades a clash
by a suffix (class_, getLogCount3, ScanOuterClass) or hides one (Ruby: a field `method`): either way the name is not there. A
small contract full of clashes shows that each check finds them.

`languages_test.py FOLDER`: FOLDER keeps Go's compiled packages. A language without its tools is skipped."""

import collections
import glob
import json
import keyword
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROTO = os.path.join(ROOT, "proto")
CHECKERS = os.path.join(HERE, "languages")
FOLDER = ""
sys.path.insert(0, HERE)

import released  # noqa: E402

# Names that clash, one at least for each language.
CLASHES = """syntax = "proto3";
package clash.v1;
option go_package = "clash/v1;clashv1";
option java_package = "clash.v1";
option java_multiple_files = true;
option csharp_namespace = "Clash.V1";
message Clash {  // Java: the file's own class cannot have this name
  message Route {}
  repeated string log = 1;
  int32 log_count = 2;     // Java: getLogCount is the number of logs
  int32 class = 3;         // C++, Python: a keyword
  int32 method = 4;        // Ruby: Object#method
  int32 reset = 5;         // Go: the method Reset
  int32 constructor = 6;   // Node: of every object
  oneof path { int32 route = 7; }  // Go: the wrapper Clash_Route is the message
}
"""

Message = collections.namedtuple("Message", "file path descriptor")  # path: ["Outer", "Inner"]
Enum = collections.namedtuple("Enum", "file path descriptor")
Service = collections.namedtuple("Service", "file descriptor")


class Contract:
    """The elements of the own files of a descriptor set, by kind."""

    def __init__(self, descriptors, package):
        self.files = [file for file in descriptors.file if file.package.startswith(package + ".")]
        self.all_files = [file.name for file in descriptors.file if not file.name.startswith("google/protobuf/")]
        self.messages, self.enums, self.services = [], [], []
        for file in self.files:
            for message in file.message_type:
                self._message(file, [message.name], message)
            self.enums += [Enum(file, [enum.name], enum) for enum in file.enum_type]
            self.services += [Service(file, service) for service in file.service]

    def _message(self, file, path, message):
        if message.options.map_entry:
            return
        self.messages.append(Message(file, path, message))
        self.enums += [Enum(file, [*path, enum.name], enum) for enum in message.enum_type]
        for nested in message.nested_type:
            self._message(file, [*path, nested.name], nested)

    def counts(self):
        return {"services": len(self.services), "methods": sum(len(one.descriptor.method) for one in self.services), "messages": len(self.messages),
                "fields": sum(len(one.descriptor.field) for one in self.messages), "enums": len(self.enums),
                "values": sum(len(one.descriptor.value) for one in self.enums)}


def oneofs_of(message):
    """[(oneof's name, its fields)] without those that `optional` makes."""
    return [(one.name, [field for field in message.field if field.HasField("oneof_index") and field.oneof_index == i])
            for i, one in enumerate(message.oneof_decl)
            if not any(field.proto3_optional and field.oneof_index == i for field in message.field)]


def is_map(message, field):
    return any(nested.options.map_entry and field.type_name.endswith("." + nested.name) for nested in message.nested_type)


def has_presence(field):
    return field.label != field.LABEL_REPEATED and (field.type == field.TYPE_MESSAGE or field.HasField("oneof_index"))


def camel(name):
    """fft_length → FftLength, crc32c → Crc32C: protoc's C++ and Java."""
    return re.sub(r"(?:^|_|(?<=[0-9]))([a-z])", lambda found: found.group(1).upper(), name).replace("_", "")


def lower_first(name):
    return name[:1].lower() + name[1:]


def go_camel(name):
    """The same for protoc-gen-go, which keeps an underscore before a digit: a_1b → A_1B."""
    return re.sub(r"(?:^|_|(?<=[0-9]))([a-z])", lambda found: found.group(1).upper(), name)


def snake(name):
    """SubmitScan → submit_scan: Ruby's methods."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def ran(command, **options):
    """Problems: the lines of a command that fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, **options)
    return [] if done.returncode == 0 else [line for line in done.stdout.splitlines() if line.strip()] or [f"exit status {done.returncode}"]


def protoc(root, files, *arguments):
    subprocess.run(["protoc", "-I", root, *arguments, *files], check=True)


def made(folder, *names):
    path = os.path.join(folder, *names)
    os.makedirs(path, exist_ok=True)
    return path


def written(path, text):
    with open(path, "w") as file:
        file.write(text)
    return path


class Cpp:
    """octavo::v1::Outer_Inner, also Outer::Inner; accessors have the fields' names; values are constants of the package or of the
    message. The operating system's headers come first: some of their macros have lower-case names."""

    headers = "cerrno cmath csignal cstdio sys/types.h sys/stat.h sys/sysmacros.h sys/socket.h netinet/in.h unistd.h fcntl.h poll.h syslog.h".split()

    @staticmethod
    def tools():
        return [tool for tool in ("protoc", "grpc_cpp_plugin", "c++") if shutil.which(tool) is None]

    def problems(self, contract, root, out):
        grpc = [f"--grpc_out={out}", f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}"] if contract.services else []
        protoc(root, contract.all_files, f"--cpp_out={out}", *grpc)
        lines = [f"#include <{name}>" for name in self.headers]
        lines += [f'#include "{file.name[:-len(".proto")]}{".grpc" if file.service else ""}.pb.h"' for file in contract.files]
        lines.append("template <class T> const T& Of();")
        for file, path, message in contract.messages:
            scope = "::" + file.package.replace(".", "::") + "::"
            name = scope + "::".join(path)
            lines.append(f"static_assert(sizeof({scope}{'_'.join(path)}) == sizeof({name}));")
            for field in message.field:
                lines.append(f"static_assert({name}::k{camel(field.name)}FieldNumber == {field.number});")
                calls = [field.name] + [field.name + "_size"] * (field.label == field.LABEL_REPEATED) + ["has_" + field.name] * has_presence(field)
                lines += [f"using T{len(lines)}_{i} = decltype(Of<{name}>().{call}());" for i, call in enumerate(calls)]
                lines.append(f"static_assert(sizeof(&{name}::clear_{field.name}) > 0);")
            for oneof, fields in oneofs_of(message):
                lines.append(f"using T{len(lines)} = decltype(Of<{name}>().{oneof}_case());")
                lines += [f"static_assert({name}::k{camel(field.name)} == {field.number});" for field in fields]
        for file, path, enum in contract.enums:
            scope = "::" + "::".join(file.package.split(".") + path[:-1])
            for value in enum.value:
                lines.append(f"static_assert({scope}::{value.name} == {value.number});")
                lines.append(f"constexpr {scope}::{path[-1]} C{len(lines)} = {scope}::{value.name};")
        for file, service in contract.services:
            name = "::" + "::".join(file.package.split(".") + [service.name])
            for method in service.method:
                lines += [f"static_assert(sizeof(&{name}::Service::{method.name}) > 0);", f"template <class S, class... A> auto Call{len(lines)}(S& s, A... a) -> decltype(s.{method.name}(a...));",
                          f"static_assert(sizeof(&{name}::WithAsyncMethod_{method.name}<{name}::Service>::Request{method.name}) > 0);"]
        source = written(os.path.join(out, "names.cc"), "\n".join(lines) + "\n")
        return ran(["c++", "-std=gnu++20", "-fsyntax-only", "-w", "-fmax-errors=20", "-I", out, source])


class Python:
    """<file>_pb2 has messages, enums and values; messages have their fields as attributes; <file>_pb2_grpc has FooServiceStub and
    FooServiceServicer. A keyword could only be had by getattr."""

    @staticmethod
    def tools():
        try:
            import grpc  # noqa: F401  pylint: disable=unused-import,import-outside-toplevel
        except ImportError:
            return ["python3-grpcio"]
        return [tool for tool in ("protoc", "grpc_python_plugin") if shutil.which(tool) is None]

    def problems(self, contract, root, out):
        protoc(root, contract.all_files, f"--python_out={out}", f"--grpc_out={out}", f"--plugin=protoc-gen-grpc={shutil.which('grpc_python_plugin')}")
        found, rows = [], []
        for file, path, message in contract.messages:
            module = file.name[:-len(".proto")].replace("/", ".") + "_pb2"
            rows.append(("message", module, path, f"{file.package}.{'.'.join(path)}", [field.name for field in message.field]))
            found += [f"{'.'.join(path)}.{field.name} is a keyword" for field in message.field if keyword.iskeyword(field.name)]
        for file, path, enum in contract.enums:
            module = file.name[:-len(".proto")].replace("/", ".") + "_pb2"
            rows.append(("enum", module, path, f"{file.package}.{'.'.join(path)}", {value.name: value.number for value in enum.value}))
            found += [f"{'.'.join(path)}.{value.name} is a keyword" for value in enum.value if keyword.iskeyword(value.name)]
        for file, service in contract.services:
            module = file.name[:-len(".proto")].replace("/", ".") + "_pb2"
            rows.append(("service", module, [service.name], f"{file.package}.{service.name}", [method.name for method in service.method]))
            found += [f"{service.name}.{method.name} is a keyword" for method in service.method if keyword.iskeyword(method.name)]
        names = [name for _, _, path, _, _ in rows for name in path]
        found += [f"{name} is a keyword" for name in names if keyword.iskeyword(name)]
        wanted = written(os.path.join(out, "wanted.json"), json.dumps(rows))
        return found + ran([sys.executable, os.path.join(CHECKERS, "check.py"), wanted], env={**os.environ, "PYTHONPATH": out, "PYTHONDONTWRITEBYTECODE": "1"})


class Go:
    """Outer_Inner; fields and getters in CamelCase; wrappers Message_Field of a oneof; values Enum_VALUE, or Message_VALUE for an
    enum of a message. The program is compiled, and run: the packages register their names then."""

    gocode = "/usr/share/gocode"

    def tools(self):
        missing = [tool for tool in ("protoc", "go", "protoc-gen-go", "protoc-gen-go-grpc") if shutil.which(tool) is None]
        return missing + [path for path in ("google.golang.org/grpc", "google.golang.org/protobuf") if not os.path.isdir(f"{self.gocode}/src/{path}")]

    def problems(self, contract, root, out):
        source = made(out, "src")
        protoc(root, [file.name for file in contract.files], f"--go_out={source}", f"--go-grpc_out={source}")
        packages = {file.options.go_package.split(";")[0]: file.options.go_package.split(";")[-1] for file in contract.files}
        of = {file.name: file.options.go_package.split(";")[-1] for file in contract.files}
        lines = ["package main", "import (", *(f'{name} "{path}"' for path, name in packages.items()), ")"]
        body = []
        for file, path, message in contract.messages:
            name = of[file.name] + "." + "_".join(map(go_camel, path))
            in_oneof = {field.name for _, fields in oneofs_of(message) for field in fields}
            for field in message.field:
                body.append(f"_ = (&{name}{{}}).Get{go_camel(field.name)}")
                body.append(f"_ = {name}_{go_camel(field.name)}{{}}.{go_camel(field.name)}" if field.name in in_oneof else f"_ = (&{name}{{}}).{go_camel(field.name)}")
            body += [f"_ = (&{name}{{}}).{go_camel(oneof)}" for oneof, _ in oneofs_of(message)]
            body.append(f"_ = (&{name}{{}}).ProtoReflect")
        for file, path, enum in contract.enums:
            prefix = of[file.name] + "." + "_".join(map(go_camel, path[:-1] or path)) + "_"
            body += [f"_ = [1]{of[file.name]}.{'_'.join(map(go_camel, path))}{{}}[{prefix}{value.name} - {value.number}]" for value in enum.value]
        for file, service in contract.services:
            name = f"{of[file.name]}.{go_camel(service.name)}"
            body.append(f"_ = {of[file.name]}.New{go_camel(service.name)}Client")
            body += [f"_ = {name}{side}.{go_camel(method.name)}" for side in ("Client", "Server") for method in service.method]
        lines += ["func main() {", *body, "}"]
        program = written(os.path.join(out, "names.go"), "\n".join(lines) + "\n")
        binary = os.path.join(out, "names")
        environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{out}:{self.gocode}", "GOCACHE": made(FOLDER or out, "go-cache"), "CGO_ENABLED": "0",
                       "GOFLAGS": "", "HOME": out}
        return ran(["go", "build", "-o", binary, program], env=environment) or ran([binary])


class Java:
    """A class for each message and enum, with getters getFoo, getFooList, getFooCount, getFooMap and hasFoo; a class for each file;
    FooServiceGrpc with the methods in lowerCamelCase."""

    jars = ["/usr/share/java/protobuf.jar"]
    grpc_jars = [f"/usr/share/java/{name}.jar" for name in ("grpc-api", "grpc-context", "grpc-stub", "grpc-protobuf", "guava")]
    plugin = shutil.which("grpc_java_plugin")

    def tools(self):
        return [tool for tool in ("protoc", "javac", "java") if shutil.which(tool) is None] + [jar for jar in self.jars if not os.path.exists(jar)]

    def grpc(self):
        return self.plugin is not None and all(map(os.path.exists, self.grpc_jars))

    def problems(self, contract, root, out):
        source, classes = made(out, "java"), made(out, "classes")
        protoc(root, contract.all_files, f"--java_out={source}")
        jars = list(self.jars)
        if self.grpc() and contract.services:
            jars += self.grpc_jars
            protoc(root, [file.name for file in contract.files if file.service], f"--grpc-java_out={source}", f"--plugin=protoc-gen-grpc-java={self.plugin}")
            # The plug-in's code has an annotation that Java's own library lacks since version 11.
            written(os.path.join(made(source, "javax", "annotation"), "Generated.java"),
                    "package javax.annotation;\npublic @interface Generated { String[] value(); String comments() default \"\"; }\n")
        rows = []
        for file in contract.files:
            # By the rule of the generator, without OuterClass: the option, or the file's name.
            name = file.options.java_outer_classname or camel(os.path.basename(file.name)[:-len(".proto")])
            rows.append(f"file {file.options.java_package}.{name} {file.name}")
        for file, path, message in contract.messages:
            name = f"{file.options.java_package}.{'$'.join(path)}"
            rows.append(f"message {name} {file.package}.{'.'.join(path)}")
            for field in message.field:
                x = camel(field.name)
                if is_map(message, field):
                    getters = [f"get{x}Map", f"get{x}Count"]
                elif field.label == field.LABEL_REPEATED:
                    getters = [f"get{x}List", f"get{x}Count"]
                else:
                    getters = [f"get{x}"] + [f"has{x}"] * has_presence(field)
                rows += [f"getter {name} {getter}" for getter in getters]
            rows += [f"getter {name} get{camel(oneof)}Case" for oneof, _ in oneofs_of(message)]
        for file, path, enum in contract.enums:
            rows += [f"value {file.options.java_package}.{'$'.join(path)} {value.name} {value.number}" for value in enum.value]
        if self.grpc():
            for file, service in contract.services:
                rows += [f"method {file.options.java_package}.{service.name}Grpc {side} {lower_first(method.name)}" for method in service.method
                         for side in (f"{service.name}ImplBase", f"{service.name}Stub")]
        wanted = written(os.path.join(out, "wanted"), "\n".join(rows) + "\n")
        files = written(os.path.join(out, "files"), "\n".join([*glob.glob(source + "/**/*.java", recursive=True), os.path.join(CHECKERS, "Check.java")]) + "\n")
        path = ":".join(jars)
        return (ran(["javac", "-J-Xshare:auto", "-J-XX:TieredStopAtLevel=1", "-proc:none", "-g:none", "-nowarn", "-XDignore.symbol.file", "-Xlint:none", "-cp", path,
                     "-d", classes, "@" + files]) or
                ran(["java", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{path}", "Check", wanted]))


class Ruby:
    """Octavo::V1::Message, an enum is a module with its values, fields are methods of the message; FooService::Stub has methods in
    snake_case."""

    @staticmethod
    def tools():
        missing = [tool for tool in ("protoc", "ruby", "grpc_ruby_plugin") if shutil.which(tool) is None]
        return missing + [name for name in ("google/protobuf", "grpc") if not missing and subprocess.run(["ruby", "-e", f"require '{name}'"], stderr=subprocess.DEVNULL, check=False).returncode != 0]

    def problems(self, contract, root, out):
        protoc(root, contract.all_files, f"--ruby_out={out}")
        if contract.services:
            protoc(root, [file.name for file in contract.files if file.service], f"--grpc_out={out}", f"--plugin=protoc-gen-grpc={shutil.which('grpc_ruby_plugin')}")

        def constant(file, path):
            return "::".join([*(camel(part) for part in file.package.split(".")), *path])

        wanted = {
            "files": [file.name[:-len(".proto")] + ("_services_pb" if file.service else "_pb") for file in contract.files],
            "messages": [[constant(file, path), f"{file.package}.{'.'.join(path)}", [field.name for field in message.field] + [name for name, _ in oneofs_of(message)]]
                         for file, path, message in contract.messages],
            "enums": [[constant(file, path), {value.name: value.number for value in enum.value}] for file, path, enum in contract.enums],
            "services": [[constant(file, [service.name]), {method.name: snake(method.name) for method in service.method}] for file, service in contract.services]}
        return ran(["ruby", "-I", out, os.path.join(CHECKERS, "check.rb"), written(os.path.join(out, "wanted.json"), json.dumps(wanted))])


class Node:
    """What @grpc/proto-loader makes: fields by their own names (keepCase) and in lowerCamelCase, clients with both forms of a
    method's name."""

    folder = ""  # with node_modules

    def tools(self):
        if not self.folder:
            try:
                import node_client  # pylint: disable=import-outside-toplevel
            except (ImportError, KeyError):
                return ["the tests' harness (ctest sets its path)"]
            _, Node.folder = node_client.install(unittest.TestCase())
        return []

    def problems(self, contract, root, out):
        wanted = {
            "root": root, "files": [file.name for file in contract.files],
            "messages": [[file.package.split(".") + path, [field.name for field in message.field], [re.sub("_([a-z])", lambda f: f.group(1).upper(), field.name) for field in message.field]]
                         for file, path, message in contract.messages],
            "enums": [[file.package.split(".") + path, {value.name: value.number for value in enum.value}] for file, path, enum in contract.enums],
            "services": [[file.package.split(".") + [service.name], {method.name: lower_first(method.name) for method in service.method}] for file, service in contract.services]}
        wanted = written(os.path.join(out, "wanted.json"), json.dumps(wanted))
        return ran(["node", os.path.join(CHECKERS, "check.cjs"), wanted], env={**os.environ, "NODE_PATH": os.path.join(self.folder, "node_modules")})


# What each language's check must say of CLASHES.
FINDS = {Cpp: ["class"], Python: ["Clash.class is a keyword"], Go: ["Reset", "Clash_Route"], Java: ["getLogCount", "clash.v1.Clash clash/v1/clash.proto"], Ruby: ["method"],
         Node: ["constructor"]}


class Languages(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.contract = Contract(released.of_tree(), "octavo")

    def judge(self, language):
        language = language()
        missing = language.tools()
        if missing:
            self.skipTest("not installed: " + ", ".join(missing))
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(language.problems(self.contract, PROTO, made(folder, "own")), [])
            # The same check finds clashes.
            path = made(folder, "clashes", "clash", "v1")
            written(os.path.join(path, "clash.proto"), CLASHES)
            root = os.path.join(folder, "clashes")
            subprocess.run(["protoc", "-I", root, f"--descriptor_set_out={folder}/set", "clash/v1/clash.proto"], check=True)
            with open(f"{folder}/set", "rb") as file:
                clashes = Contract(released.descriptor_pb2.FileDescriptorSet.FromString(file.read()), "clash")
            found = "\n".join(language.problems(clashes, root, made(folder, "theirs")))
            for name in FINDS[type(language)]:
                self.assertIn(name, found)
        print(f"{type(language).__name__}: {self.contract.counts()}{'' if not isinstance(language, Java) or language.grpc() else ', without gRPC'}")

    def test_cpp(self):
        self.judge(Cpp)

    def test_python(self):
        self.judge(Python)

    def test_go(self):
        self.judge(Go)

    def test_java(self):
        self.judge(Java)

    def test_ruby(self):
        self.judge(Ruby)

    def test_node(self):
        self.judge(Node)

    def test_files_differ_without_regard_to_case(self):
        """Java writes a file for each message and enum of a package; some file systems take Fft and FFT for one."""
        names = [(file.package, path[0].lower()) for file, path, _ in [*self.contract.messages, *self.contract.enums] if len(path) == 1]
        names += [(file.package, name.lower()) for file, name in ((file, file.options.java_outer_classname) for file in self.contract.files)]
        self.assertEqual([name for name, count in collections.Counter(names).items() if count > 1], [])

    def test_the_set_is_whole(self):
        counts = self.contract.counts()
        self.assertGreaterEqual(min(counts.values()), 10, counts)
        self.assertTrue(all(file.options.java_outer_classname for file in self.contract.files))


if __name__ == "__main__":
    FOLDER = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""
    unittest.main()
