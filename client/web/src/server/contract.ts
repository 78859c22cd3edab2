// Requests of pages, held against the contract before they are encoded. The encoder would drop a name that it does not know, cut a
// fraction and wrap a number that is too large: what a person typed would then mean something else, without a word.
import path from "node:path";

import protobuf from "protobufjs";

import { Refusal } from "./guard";

const RANGES: Record<string, [bigint, bigint]> = {};
for (const [bits, types] of [[32n, ["int32", "sint32", "sfixed32"]], [64n, ["int64", "sint64", "sfixed64"]]] as [bigint, string[]][])
  for (const type of types) RANGES[type] = [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n];
for (const [bits, types] of [[32n, ["uint32", "fixed32"]], [64n, ["uint64", "fixed64"]]] as [bigint, string[]][])
  for (const type of types) RANGES[type] = [0n, (1n << bits) - 1n];
const NO_NUMBERS = ["NaN", "Infinity", "-Infinity"];

function refuse(place: string, value: unknown, allowed: string): never {
  const text = JSON.stringify(value) ?? "nothing";
  throw new Refusal(400, "BAD_REQUEST", `${place} is ${text.length > 60 ? text.slice(0, 60) + "…" : text}; allowed: ${allowed}`, place);
}

function checkNumber(place: string, value: unknown, type: string): void {
  const [least, most] = RANGES[type];
  const whole = typeof value === "number" ? Number.isSafeInteger(value) : typeof value === "string" && /^-?\d{1,20}$/.test(value);
  if (!whole || BigInt(value as string) < least || BigInt(value as string) > most) refuse(place, value, `whole numbers from ${least} to ${most}`);
}

function checkValue(place: string, value: unknown, field: protobuf.Field): void {
  const made = field.resolvedType;
  if (made instanceof protobuf.Type) return checkMessage(place, value, made);
  if (made instanceof protobuf.Enum) {
    const known = typeof value === "string" ? Object.hasOwn(made.values, value) : typeof value === "number" && Object.hasOwn(made.valuesById, value);
    if (!known) refuse(place, value, Object.keys(made.values).join(", "));
    return;
  }
  if (field.type in RANGES) return checkNumber(place, value, field.type);
  switch (field.type) {
    case "bool":
      if (typeof value !== "boolean") refuse(place, value, "true and false");
      return;
    case "float":
    case "double":
      if (typeof value !== "number" && !NO_NUMBERS.includes(value as string)) refuse(place, value, "numbers");
      return;
    default: // string, bytes as base64
      if (typeof value !== "string") refuse(place, value, "text");
  }
}

function checkField(place: string, value: unknown, field: protobuf.Field): void {
  if (value === null || value === undefined) return;
  if (field instanceof protobuf.MapField) {
    if (typeof value !== "object" || Array.isArray(value)) refuse(place, value, "an object");
    for (const [key, entry] of Object.entries(value)) checkValue(`${place}.${key}`, entry, field);
  } else if (field.repeated) {
    if (!Array.isArray(value)) refuse(place, value, "a list");
    value.forEach((entry, i) => checkValue(`${place}[${i}]`, entry, field));
  } else checkValue(place, value, field);
}

function checkMessage(place: string, value: unknown, type: protobuf.Type): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) refuse(place || "the request", value, "an object");
  for (const [name, entry] of Object.entries(value)) {
    const at = place ? `${place}.${name}` : name;
    // Answers name the field that is set of a choice; a request may repeat it.
    if (type.oneofs && Object.hasOwn(type.oneofs, name) && typeof entry === "string") continue;
    if (!Object.hasOwn(type.fields, name)) throw new Refusal(400, "BAD_REQUEST", `${at}: ${type.name} has no such field; allowed: ${Object.keys(type.fields).join(", ")}`, at);
    checkField(at, entry, type.fields[name]);
  }
}

export class Contract {
  private readonly root = new protobuf.Root();

  /** @param protos the folder that the files are below */
  constructor(files: string[], protos: string) {
    this.root.resolvePath = (_origin, target) => path.join(protos, target);
    this.root.loadSync(files, { keepCase: true });
    this.root.resolveAll();
  }

  /** Throws Refusal, which names the field, its value and what is allowed. */
  check(service: string, method: string, request: unknown): void {
    checkMessage("", request, this.root.lookupService(`octavo.v1.${service}`).methods[method].resolvedRequestType!);
  }
}
