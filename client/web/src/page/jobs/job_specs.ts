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

/** A series as people write it: the numbers of projections, empty for one volume of all. */
export interface SeriesText {
  projections: string;
  step: string;
}
export const SERIES_LABELS: SeriesText = { projections: "Projections a volume", step: "Projections from one volume to the next" };
/** What is wrong with a field. */
export interface SeriesProblem {
  field: keyof SeriesText;
  text: string;
}

/** Null for a job that cannot make a series. */
export function seriesTextOf(spec: object): SeriesText | null {
  const tomography = (spec as Tree).tomography as Tree | undefined;
  if (!tomography || tomography.try_centers) return null;
  const series = tomography.series as Tree | undefined;
  return { projections: String(series?.projections ?? ""), step: String(series?.step ?? "") };
}

/** The spec without its series. */
export function withoutSeries(spec: object): Tree {
  const tree = spec as Tree;
  if (!tree.tomography) return tree;
  const { series: _, ...tomography } = tree.tomography as Tree;
  return { ...tree, tomography };
}

const MOST = 0xffff_ffff; // of the fields, which are uint32
const whole = (text: string) => (/^\d+$/.test(text.trim()) && Number(text) >= 1 && Number(text) <= MOST ? Number(text) : null);

export function seriesProblem(text: SeriesText): SeriesProblem | null {
  const [projections, step] = [text.projections.trim(), text.step.trim()];
  const wrong = (field: keyof SeriesText, what: string) => ({ field, text: `${SERIES_LABELS[field]} is ${what}` });
  if (projections === "" && step !== "") return wrong("projections", `empty, and one every ${step} is given; allowed both, or none for one volume of all projections`);
  if (projections !== "" && whole(projections) === null) return wrong("projections", `'${projections}'; allowed a whole number from 1 on`);
  if (step !== "" && whole(step) === null) return wrong("step", `'${step}'; allowed a whole number from 1 on, or nothing: each begins where the one before ends`);
  return null;
}

/** The spec with the series, in which nothing is wrong; without a step each volume begins where the one before ends. */
export function withSeries(spec: object, text: SeriesText): Tree {
  const plain = withoutSeries(spec);
  const projections = whole(text.projections);
  if (projections === null) return plain;
  return { ...plain, tomography: { ...(plain.tomography as Tree), series: { projections, step: whole(text.step) ?? projections } } };
}

/** The reconstruction with this rotation axis: of all rows, instead of trials or a search. */
export function withAxis(spec: object, axis: number): Tree {
  const next = again(spec);
  const { try_centers: _, ...tomography } = next.tomography as Tree;
  return { ...next, tomography: { ...tomography, center: { pixels: [axis] } } };
}
