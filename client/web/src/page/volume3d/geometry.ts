// Where a volume lies in the scene: which of its axes are x, y and z, and how long it is along each. The scene's origin is the
// middle of the volume.
import type { VolumeRow } from "../../wire/protocol";
import { map3, type Vec3 } from "./vectors";

export const AXES = ["x", "y", "z"] as const;

export interface Geometry {
  names: [string, string, string]; // of the axes that are drawn as x, y and z
  position: Vec3; // of x, y, z in the volume's own shape
  shape: Vec3; // voxels along x, y, z
  spacing: Vec3; // of neighbouring voxels along x, y, z
  size: Vec3; // extent along x, y, z
  lengths: boolean; // whether spacing and size are um
  guessed: string[]; // axes without a length, drawn as if their voxels were as long as the others
}

/** Why a volume cannot be shown in 3-D; empty = it can. */
export function objection(volume: VolumeRow): string {
  if (volume.raw) return "it has raw spectra, which are no picture";
  if (volume.shape.length !== 3) return `it has ${volume.shape.length === 1 ? "one axis" : `${volume.shape.length} axes`} (${volume.axes.join(", ")}); three are needed`;
  if (volume.state === "ACQUIRING") return "it is still being acquired";
  if (volume.state !== "HELD" && volume.state !== "COMMITTING") return `it is ${volume.state.toLowerCase()}: its voxels are not in memory any more`;
  return "";
}

export function geometryOf(volume: VolumeRow): Geometry {
  const named = AXES.map((axis) => volume.axes.indexOf(axis));
  // Axes of other names: the fastest one is x.
  const position = (named.includes(-1) ? [2, 1, 0] : named) as Vec3;
  const known = map3((i) => volume.lengths[position[i]] && volume.spacing_um[position[i]] > 0);
  const lengths = known.every(Boolean);
  const some = AXES.map((_, i) => volume.spacing_um[position[i]]).filter((_, i) => known[i]);
  const usual = some.length > 0 ? some.reduce((sum, um) => sum + um, 0) / some.length : 1;
  const spacing = map3((i) => (known[i] ? volume.spacing_um[position[i]] : usual));
  const shape = map3((i) => volume.shape[position[i]]);
  const names = map3((i) => volume.axes[position[i]]);
  return { names, position, shape, spacing, size: map3((i) => shape[i] * spacing[i]), lengths, guessed: lengths || some.length === 0 ? [] : names.filter((_, i) => !known[i]) };
}

export const diagonal = (geometry: Geometry) => Math.hypot(...geometry.size);

/** A place in the scene as fractions of the volume along x, y, z. */
export const fractions = (geometry: Geometry, at: Vec3): Vec3 => map3((i) => at[i] / geometry.size[i] + 0.5);
export const fromFractions = (geometry: Geometry, at: Vec3): Vec3 => map3((i) => (at[i] - 0.5) * geometry.size[i]);

const CORNERS = Array.from({ length: 8 }, (_, n) => [n & 1, (n >> 1) & 1, n >> 2] as Vec3);
export const EDGES = CORNERS.flatMap((from, a) => CORNERS.map((to, b) => [from, to, a, b] as const))
  .filter(([from, to, a, b]) => a < b && from.filter((value, i) => value !== to[i]).length === 1)
  .map(([from, to]) => [from, to] as const);

/** The corners, in turn, of what a plane (normal · place = distance, in the scene) has in common with the volume. */
export function polygon(geometry: Geometry, normal: Vec3, distance: number, u: Vec3, v: Vec3): Vec3[] {
  const side = (at: Vec3) => at[0] * normal[0] + at[1] * normal[1] + at[2] * normal[2] - distance;
  const points: Vec3[] = [];
  for (const [from, to] of EDGES) {
    const [a, b] = [fromFractions(geometry, from), fromFractions(geometry, to)];
    const [left, right] = [side(a), side(b)];
    if (left === right || left * right > 0) continue;
    const part = left / (left - right);
    points.push(map3((i) => a[i] + part * (b[i] - a[i])));
  }
  const middle = map3((i) => points.reduce((sum, point) => sum + point[i], 0) / Math.max(1, points.length));
  const angle = (at: Vec3) => Math.atan2(v[0] * (at[0] - middle[0]) + v[1] * (at[1] - middle[1]) + v[2] * (at[2] - middle[2]), u[0] * (at[0] - middle[0]) + u[1] * (at[1] - middle[1]) + u[2] * (at[2] - middle[2]));
  return points.sort((a, b) => angle(a) - angle(b));
}
