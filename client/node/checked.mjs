// Checks requests against the messages of the protos: fields and values that protobuf would silently ignore are errors that name them and list
// what is allowed.
const WHOLE = {
  int32: [-(2 ** 31), 2 ** 31 - 1], sint32: [-(2 ** 31), 2 ** 31 - 1], sfixed32: [-(2 ** 31), 2 ** 31 - 1], uint32: [0, 2 ** 32 - 1], fixed32: [0, 2 ** 32 - 1],
  int64: [-(2n ** 63n), 2n ** 63n - 1n], sint64: [-(2n ** 63n), 2n ** 63n - 1n], sfixed64: [-(2n ** 63n), 2n ** 63n - 1n],
  uint64: [0, 2n ** 64n - 1n], fixed64: [0, 2n ** 64n - 1n],
};
const INVALID_ARGUMENT = 3;

/** The number of letters to change to turn one text into the other. */
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    row = next;
  }
  return row[b.length];
}

/** "; did you mean …?", or nothing if none is near. */
function near(word, allowed) {
  const by = allowed.map((name) => [distance(String(word).toLowerCase(), name.toLowerCase()), name]).sort((a, b) => a[0] - b[0]);
  return by.length > 0 && by[0][0] <= Math.max(1, by[0][1].length / 4) ? `; did you mean ${by[0][1]}?` : "";
}

/** An error in the form of the server's: code, reason, field. `word` is the given text, in place of one of `allowed`. */
export function wrong(field, what, allowed, word) {
  const text = Array.isArray(allowed) ? `are ${allowed.join(", ")}` : `is ${allowed}`;
  const error = new Error(`${what}; allowed ${text}${word === undefined ? "" : near(word, allowed)}`);
  return Object.assign(error, { code: INVALID_ARGUMENT, reason: "BAD_FIELD", field });
}

const shown = (value) => {
  const text = typeof value === "bigint" ? String(value) : JSON.stringify(value) ?? String(value);
  return text.length <= 80 ? text : `${text.slice(0, 77)}...`;
};

/** Converts `request` to the form of `type` (of protobufjs). Throws for fields, texts of enums and values that `type` does not have. */
export function checked(type, request, where = "") {
  if (typeof request !== "object" || request === null || Array.isArray(request)) {
    throw wrong(where, `${where || "the request"} is ${shown(request)}`, `an object with the fields of ${type.name}: ${Object.keys(type.fields).join(", ")}`);
  }
  const made = {};
  for (const [name, value] of Object.entries(request)) {
    const path = where ? `${where}.${name}` : name;
    if (value === undefined || value === null) continue;
    const members = type.oneofs?.[name]?.oneof;
    if (members?.includes(value)) continue; // which one is set: messages of the server say so
    if (members !== undefined) throw wrong(path, `${path} is ${shown(value)}`, `one of ${members.join(", ")} beside it, in its place`);
    const field = type.fields[name];
    if (field === undefined) throw wrong(path, `${path} is no field of ${type.name}`, Object.keys(type.fields), name);
    const others = field.partOf === null ? [] : field.partOf.oneof.filter((other) => made[other] !== undefined);
    if (others.length > 0) throw wrong(path, `${others[0]} and ${name} are both given`, `one of ${field.partOf.oneof.join(", ")}`);
    made[name] = field.map ? checkedMap(field, value, path) : field.repeated ? checkedList(field, value, path) : checkedValue(field, value, path);
  }
  return made;
}

function checkedMap(field, value, path) {
  if (typeof value !== "object" || Array.isArray(value)) throw wrong(path, `${path} is ${shown(value)}`, "an object");
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, checkedValue(field, one, `${path}.${key}`)]));
}

function checkedList(field, value, path) {
  if (!Array.isArray(value) && !(ArrayBuffer.isView(value) && !(value instanceof DataView))) throw wrong(path, `${path} is ${shown(value)}`, "an array");
  return Array.from(value, (one, i) => checkedValue(field, one, `${path}[${i}]`));
}

function checkedValue(field, value, path) {
  const values = field.resolvedType?.values;
  if (values !== undefined) {
    const names = Object.keys(values);
    const prefix = names.find((one) => values[one] === 0).slice(0, -"UNSPECIFIED".length);
    const word = typeof value === "string" ? value.toUpperCase().replaceAll("-", "_") : undefined;
    const name = names.find((one) => (word === undefined ? values[one] === value : one === word || one === prefix + word));
    if (name === undefined) {
      const allowed = names.filter((one) => values[one] !== 0);
      throw wrong(path, `${path} is ${shown(value)}`, allowed.map((one) => one.slice(prefix.length)), word?.startsWith(prefix) ? word.slice(prefix.length) : value);
    }
    return name;
  }
  if (field.resolvedType) return checked(field.resolvedType, value, path);
  if (WHOLE[field.type] !== undefined) {
    const [lo, hi] = WHOLE[field.type];
    const good = typeof value === "bigint" || Number.isInteger(value);
    if (!good || value < lo || value > hi) throw wrong(path, `${path} is ${shown(value)}`, `a whole number from ${lo} to ${hi}`);
    return typeof value === "bigint" ? String(value) : value;
  }
  if (field.type === "bytes") {
    if (!(value instanceof Uint8Array)) throw wrong(path, `${path} is ${shown(value)}`, "a Buffer or Uint8Array");
    return value;
  }
  if (field.type === "string") {
    const text = typeof value === "object" && typeof value.name === "string" ? value.name : value; // a scan, a volume … stands for its name
    if (typeof text !== "string") throw wrong(path, `${path} is ${shown(value)}`, "text");
    return text;
  }
  const wanted = field.type === "bool" ? "boolean" : "number";
  if (typeof value !== wanted) throw wrong(path, `${path} is ${shown(value)}`, wanted === "boolean" ? "true or false" : "a number");
  return value;
}
