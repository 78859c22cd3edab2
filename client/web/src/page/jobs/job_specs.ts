// The spec of a job as it is submitted again: without defaults, so that people can read it.

type Tree = { [key: string]: unknown };

const ONEOFS = ["work", "input"]; // of JobSpec and TomographyJob: names beside the field that is set

function pruned(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((entry) => (typeof entry === "object" && entry !== null ? pruned(entry) : entry));
  if (typeof value !== "object" || value === null) return value;
  const tree = value as Tree;
  const result: Tree = {};
  for (const [key, entry] of Object.entries(tree)) {
    if (key.startsWith("_") || ONEOFS.includes(key) || entry === null) continue;
    const given = tree[`_${key}`] === key; // an optional field that was set, to whatever value
    const empty = entry === "" || entry === 0 || entry === "0" || entry === false || (Array.isArray(entry) && entry.length === 0) || (typeof entry === "string" && entry.endsWith("_UNSPECIFIED"));
    if (!given && empty) continue;
    if (typeof entry === "object" && !Array.isArray(entry) && Object.keys(entry).length === 0 && key === "labels") continue;
    result[key] = pruned(entry);
  }
  return result;
}

/** A spec of GetJob, to be submitted by a client without a session: what becomes of its volumes at a session's end is left out. */
export function again(spec: object): Tree {
  const { orphan: _, ...rest } = pruned(spec) as Tree;
  return rest;
}

/** The reconstruction with this rotation axis: of all rows, instead of trials or a search. */
export function withAxis(spec: object, axis: number): Tree {
  const next = again(spec);
  const { try_centers: _, ...tomography } = next.tomography as Tree;
  return { ...next, tomography: { ...tomography, center: { pixels: [axis] } } };
}
