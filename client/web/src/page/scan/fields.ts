// The fields of the form: where each is in a ScanSpec, and how it is asked for. Empty fields are left
// out of the spec, so that the server's own defaults hold; `otherwise` says what these are.

export type Values = Record<string, string>;

export interface Field {
  path: string; // in ScanSpec
  text: string;
  kind: "text" | "number" | "check" | "choice";
  unit?: string;
  otherwise?: string;
  help?: string;
  required?: boolean;
  choices?: [string, string][];
  source?: string; // only of this source
  none?: string; // how "none" is written, where 0 is the default
}

export interface Group {
  text: string;
  fields: Field[];
}

export const SOURCE = "source"; // which member of the oneof is set
const AUTO_COMMIT = "DISPOSITION_AUTO_COMMIT";
const DESTINATION = "retention.auto_commit.destination";

const choices = (prefix: string, words: string[]): [string, string][] => words.map((word) => [`${prefix}_${word}`, word.toLowerCase().replaceAll("_", " ")]);

export const GROUPS: Group[] = [
  {
    text: "Source",
    fields: [
      { path: "title", text: "Title", kind: "text", otherwise: "untitled" },
      { path: SOURCE, text: "Source", kind: "choice", required: true, choices: [["simulated", "simulated phantom"], ["replay", "file on the server"], ["other", "as the further fields say"]] },
      { path: "simulated.seed", text: "Seed", kind: "number", otherwise: "0", source: "simulated" },
      { path: "simulated.noise_counts", text: "Read noise", kind: "number", unit: "counts", otherwise: "2", none: "a negative number is none", source: "simulated" },
      { path: "replay.path", text: "File", kind: "text", help: "below a replay root of the server", required: true, source: "replay" },
      { path: "replay.loops", text: "Loops", kind: "number", otherwise: "until the scan is full", source: "replay" },
      { path: "replay.rate_hz", text: "Rate of the file", kind: "number", unit: "records/s", otherwise: "as fast as possible", source: "replay" },
      { path: "acquisition.samples_per_record", text: "Samples a record", kind: "number", otherwise: "of the source" },
      { path: "acquisition.record_rate_hz", text: "Record rate", kind: "number", unit: "Hz", otherwise: "of the source" },
      { path: "acquisition.raw_type", text: "Type of the samples", kind: "choice", otherwise: "of the source", choices: choices("RAW_TYPE", ["U8", "U16", "I16", "F32", "U12P", "U12_PACKED"]) },
    ],
  },
  {
    text: "Pattern (raster)",
    fields: [
      { path: "pattern.raster.ascans_per_bscan", text: "A-scans a B-scan", kind: "number", required: true },
      { path: "pattern.raster.bscans_per_volume", text: "B-scans a volume", kind: "number", required: true },
      { path: "pattern.raster.volumes", text: "Volumes", kind: "number", otherwise: "until it is stopped" },
      { path: "pattern.raster.extent_x_mm", text: "Extent along x", kind: "number", unit: "mm", otherwise: "1 µm an A-scan" },
      { path: "pattern.raster.extent_y_mm", text: "Extent along y", kind: "number", unit: "mm", otherwise: "1 µm a B-scan" },
      { path: "pattern.raster.flyback_records", text: "Flyback", kind: "number", unit: "records", otherwise: "0" },
      { path: "pattern.raster.bidirectional", text: "Bidirectional", kind: "check" },
    ],
  },
  {
    text: "Processing",
    fields: [
      { path: "processing.window", text: "Window", kind: "choice", otherwise: "hann", choices: choices("WINDOW_KIND", ["RECT", "HANN", "HAMMING", "GAUSS", "BLACKMAN", "FLAT_TOP"]) },
      { path: "processing.dispersion.a2", text: "Dispersion a2", kind: "number", unit: "rad/sample²", otherwise: "0" },
      { path: "processing.dispersion.a3", text: "Dispersion a3", kind: "number", unit: "rad/sample³", otherwise: "0" },
      { path: "processing.dtype", text: "Type of the voxels", kind: "choice", otherwise: "chosen", choices: choices("DTYPE", ["U8", "U16", "F16", "F32"]) },
      { path: "processing.refractive_index", text: "Refractive index", kind: "number", otherwise: "1" },
      { path: "processing.axial_spacing_um", text: "Axial spacing", kind: "number", unit: "µm", otherwise: "by the wavelengths" },
      { path: "products.aip", text: "Average projection, too", kind: "check" },
      { path: "products.slab_begin_um", text: "Projections from depth", kind: "number", unit: "µm", otherwise: "0", help: "0 ... 1e9 µm from the first bin of the transform; needs wavelengths or the axial spacing" },
      { path: "products.slab_end_um", text: "to depth", kind: "number", unit: "µm", otherwise: "the end", help: "more than the depth above, at most 1e9 µm; cut off at what is kept" },
    ],
  },
  {
    text: "What becomes of volumes",
    fields: [
      { path: "retention.mode", text: "Mode", kind: "choice", otherwise: "by the number of volumes", choices: [["RETENTION_MODE_CAPTURE", "capture: keep all"], ["RETENTION_MODE_LIVE", "live: keep the latest"]] },
      { path: "retention.disposition", text: "When complete", kind: "choice", otherwise: "held until somebody decides", choices: [[AUTO_COMMIT, "commit"], ["DISPOSITION_AUTO_DISCARD", "discard"]] },
      { path: DESTINATION, text: "Destination of commits", kind: "text", help: "for example {title}_{index:05}" },
      { path: "retention.hold_slots", text: "Held at most", kind: "number", unit: "volumes", otherwise: "chosen" },
      { path: "retention.hold_raw", text: "Hold the raw spectra, too", kind: "check" },
    ],
  },
];

export const FIELDS = GROUPS.flatMap((group) => group.fields);
export const START: Values = { [SOURCE]: "simulated", "pattern.raster.ascans_per_bscan": "256", "pattern.raster.bscans_per_volume": "128" };

/** Whether a field is asked for with the source that is chosen. */
export const applies = (field: Field, values: Values) => field.source === undefined || field.source === values[SOURCE];

const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** Says what to write instead of what is no number. */
function noNumber(given: string, field: Field): string {
  const how = given.includes(",") ? "write the decimal point as ‘.’, and nothing between thousands" : field.unit ? `write the number alone, in ${field.unit}` : "write digits alone, such as 120 or 1.5e3";
  return `'${given}' is no number: ${how}`;
}

type Tree = { [key: string]: unknown };

function put(tree: Tree, path: string, value: unknown): void {
  const keys = path.split(".");
  const last = keys.pop()!;
  let at = tree;
  for (const key of keys) at = (at[key] ??= {}) as Tree;
  at[last] = value;
}

function merge(into: Tree, from: Tree): void {
  for (const [key, value] of Object.entries(from)) {
    if (key === "__proto__") continue; // it would be the prototype, and no field
    const old = Object.hasOwn(into, key) ? into[key] : undefined;
    if (typeof value === "object" && value !== null && !Array.isArray(value) && typeof old === "object" && old !== null) merge(old as Tree, value as Tree);
    else into[key] = value;
  }
}

/** The spec of the form, with the further fields (JSON) merged in. Errors by path. */
export function specOf(values: Values, further: string): { spec: Tree; errors: Record<string, string> } {
  const spec: Tree = {};
  const errors: Record<string, string> = {};
  if (values[SOURCE] !== "other") spec[values[SOURCE]] = {};
  for (const field of FIELDS) {
    const given = (values[field.path] ?? "").trim();
    if (field.path === SOURCE || !applies(field, values)) continue;
    if (given === "") {
      if (field.required) errors[field.path] = "is needed";
    } else if (field.kind === "number") {
      const value = Number(given);
      if (!DECIMAL.test(given) || !Number.isFinite(value)) errors[field.path] = noNumber(given, field);
      else if (value === 0 && field.otherwise && field.otherwise !== "0") errors[field.path] = `0 would mean “${field.otherwise}”: leave the field empty for that${field.none ? `; ${field.none}` : ""}`;
      else put(spec, field.path, value);
    } else put(spec, field.path, field.kind === "check" ? given === "true" : given);
  }
  if (further.trim() !== "") {
    try {
      const more = JSON.parse(further) as unknown;
      if (typeof more !== "object" || more === null || Array.isArray(more)) throw new Error("it is no object");
      merge(spec, more as Tree);
    } catch (error) {
      errors.further = `no JSON: ${(error as Error).message}`;
    }
  }
  const retention = (spec.retention ?? {}) as Tree;
  if (retention.auto_commit && retention.disposition !== AUTO_COMMIT) errors[DESTINATION] ??= "would not be used: choose “commit” under “When complete”, or leave it empty";
  return { spec, errors };
}

/** The field of the form that an error is about; empty: none of them. Only those of the server name one. */
export function fieldOf(path: string | undefined): string {
  const bare = (path ?? "").replace(/^spec\./, "");
  return FIELDS.find((field) => field.path === bare)?.path ?? FIELDS.find((field) => bare.startsWith(`${field.path}.`))?.path ?? "";
}
