// Loads the protos as clients do and looks for each name of the list (languages_test.py, Node).
const fs = require("fs");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const protobuf = require(require.resolve("protobufjs", { paths: [require.resolve("@grpc/proto-loader")] }));

const wanted = JSON.parse(fs.readFileSync(process.argv[2]));
const problems = [];
const options = { includeDirs: [wanted.root], longs: Number, enums: String, defaults: true, oneofs: true };
const at = (object, path) => path.reduce((scope, name) => scope?.[name], object);
for (const keepCase of [true, false]) {
  const definition = loader.loadSync(wanted.files, { ...options, keepCase });
  const root = grpc.loadPackageDefinition(definition);
  const types = {};  // nested ones too, by their full names
  const note = (path, type) => {
    types[path] = type;
    for (const nested of [...(type.nestedType ?? []), ...(type.enumType ?? [])]) note(`${path}.${nested.name}`, nested);
  };
  for (const [path, { type }] of Object.entries(definition)) if (type) note(path, type);
  for (const [path, own, lower] of wanted.messages) {
    const message = types[path.join(".")];
    const names = (message?.field ?? []).map((field) => field.name).sort();
    const expected = [...(keepCase ? own : lower)].sort();
    if (!message || JSON.stringify(names) !== JSON.stringify(expected)) problems.push(`${path.join(".")} has the fields ${names}, not ${expected}`);
    if (new Set(expected).size !== expected.length) problems.push(`${path.join(".")} has two fields of one name in ${expected}`);
    for (const name of expected) {
      if (name in {} || name in protobuf.Message.prototype) problems.push(`${path.join(".")}.${name} is a property of every object`);
    }
  }
  for (const [path, values] of wanted.enums) {
    const found = Object.fromEntries((types[path.join(".")]?.value ?? []).map((value) => [value.name, value.number]));
    for (const [name, number] of Object.entries(values)) {
      if (found[name] !== number) problems.push(`${path.join(".")}.${name} is ${found[name]}, not ${number}`);
    }
  }
  for (const [path, methods] of wanted.services) {
    const service = at(root, path);
    const base = Object.getPrototypeOf(service?.prototype ?? {});
    for (const [name, lower] of Object.entries(methods)) {
      if (!service?.service?.[name]) problems.push(`${path.join(".")} has no ${name}`);
      for (const call of [name, lower]) {
        if (typeof service?.prototype?.[call] !== "function") problems.push(`${path.join(".")} has no ${call}`);
        if (call in base) problems.push(`${path.join(".")}.${call} is a method of every client`);
      }
    }
  }
}
console.log(problems.join("\n"));
process.exit(problems.length === 0 ? 0 : 1);
