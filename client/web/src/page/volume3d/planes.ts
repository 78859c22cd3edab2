// The slice planes: one across each axis, through a voxel, and an oblique one.
import { fromFractions, type Geometry } from "./geometry";
import { dot, map3, type Vec3 } from "./vectors";

export const OBLIQUE = 3;
export type Which = 0 | 1 | 2 | 3; // across x, y, z; oblique
export const PLANES: { name: string; colour: string }[] = [
  { name: "x", colour: "#ff9a8f" },
  { name: "y", colour: "#9bdc7f" },
  { name: "z", colour: "#86b9ff" },
  { name: "oblique", colour: "#f2c14e" },
];

export interface Planes {
  at: Vec3; // the voxel along x, y, z
  turn: number; // of the oblique one, degrees, about the axis y, -180 ... 180
  tilt: number; // then about its own horizontal, -90 ... 90
  offset: number; // of it from the middle of the volume, along its normal, scene units
  shown: [boolean, boolean, boolean, boolean]; // in the scene
}

/** A plane in the scene, and how its picture lies: u is right, v is down. */
export interface Plane {
  normal: Vec3;
  distance: number;
  u: Vec3;
  v: Vec3;
}

/** Columns and rows of the pictures across x, y and z. */
export const COLUMN = [1, 0, 0] as const;
export const ROW = [2, 2, 1] as const;

const unit = (axis: number): Vec3 => map3((i) => (i === axis ? 1 : 0));

export function planeOf(geometry: Geometry, planes: Planes, which: Which): Plane {
  if (which !== OBLIQUE) {
    const at = fromFractions(geometry, map3((i) => (planes.at[i] + 0.5) / geometry.shape[i]));
    return { normal: unit(which), distance: at[which], u: unit(COLUMN[which]), v: unit(ROW[which]) };
  }
  const [turn, tilt] = [planes.turn, planes.tilt].map((degrees) => (degrees * Math.PI) / 180);
  const [cos, sin] = [Math.cos(tilt), Math.sin(tilt)];
  const about = (at: Vec3): Vec3 => [at[0] * Math.cos(turn) + at[2] * Math.sin(turn), at[1], at[2] * Math.cos(turn) - at[0] * Math.sin(turn)];
  return { normal: about([0, -sin, cos]), distance: planes.offset, u: about([1, 0, 0]), v: about([0, cos, sin]) };
}

/** The angles of the plane that is looked at from the front, with this direction into the screen; and its offset through a place. */
export function across(direction: Vec3, through: Vec3): { turn: number; tilt: number; offset: number } {
  const degrees = (radians: number) => Math.round((radians * 180) / Math.PI);
  const tilt = degrees(-Math.asin(Math.max(-1, Math.min(1, direction[1]))));
  return { turn: Math.hypot(direction[0], direction[2]) < 1e-6 ? 0 : degrees(Math.atan2(direction[0], direction[2])), tilt, offset: dot(direction, through) };
}

/** Extent of the volume along u and v: the picture of an oblique plane has room for it wherever it is moved. */
export function extent(geometry: Geometry, direction: Vec3): number {
  return geometry.size.reduce((sum, size, i) => sum + Math.abs(direction[i]) * size, 0);
}
