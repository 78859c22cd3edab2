// The view of the scene, without perspective: which way is right, down and into the screen, what lies in the middle, and how large.
import { diagonal, type Geometry } from "./geometry";
import { add, dot, fromRows, multiply, normalized, type Quaternion, rotation, rowsOf, times, type Vec3 } from "./vectors";

export interface Camera {
  turn: Quaternion; // from the scene to the screen: right, down, into it
  centre: Vec3; // of the scene, in the middle of the picture
  zoom: number; // 1 = the volume fits whichever way it is turned, nearly
}

const LEAST_ZOOM = 0.4;
const MOST_ZOOM = 40;
const FIT = 0.95; // of the diagonal: its ends are rarely seen at full length

export interface NamedView {
  key: string;
  text: string;
  turn: Quaternion;
}
/** Along each axis; depth (z) goes down, as in B-scans. Nothing is mirrored. */
export const VIEWS: NamedView[] = [
  { key: "z", text: "along z", turn: fromRows([[1, 0, 0], [0, 1, 0], [0, 0, 1]]) },
  { key: "y", text: "along y", turn: fromRows([[1, 0, 0], [0, 0, 1], [0, -1, 0]]) },
  { key: "x", text: "along x", turn: fromRows([[0, 1, 0], [0, 0, 1], [1, 0, 0]]) },
];

/** From above and aside, with z down. */
export const STANDARD: Camera = { turn: turned(turned(VIEWS[1].turn, [0, 1, 0], -0.55), [1, 0, 0], 0.45), centre: [0, 0, 0], zoom: 1 };

/** A rotation of the scene about an axis of the screen. */
export function turned(turn: Quaternion, screenAxis: Vec3, radians: number): Quaternion {
  return normalized(multiply(rotation(screenAxis, radians), turn));
}

/** Turned as if the hand that moves over the picture held it. */
export function rotated(camera: Camera, dx: number, dy: number): Camera {
  const angle = Math.hypot(dx, dy);
  return angle === 0 ? camera : { ...camera, turn: turned(camera.turn, [dy / angle, -dx / angle, 0], angle) };
}

/** Scene units of a pixel. */
export function unitsPerPixel(camera: Camera, geometry: Geometry, width: number, height: number): number {
  return (FIT * diagonal(geometry)) / (Math.max(1, Math.min(width, height)) * camera.zoom);
}

export function zoomed(camera: Camera, factor: number): Camera {
  return { ...camera, zoom: Math.max(LEAST_ZOOM, Math.min(MOST_ZOOM, camera.zoom * factor)) };
}

/** Moved with the picture by so many scene units to the right and down. */
export function moved(camera: Camera, right: number, down: number): Camera {
  const [u, v] = rowsOf(camera.turn);
  return { ...camera, centre: add(camera.centre, add(times(u, -right), times(v, -down))) };
}

/** Where a place of the scene is seen, in pixels from the middle of the picture, right and down. */
export function project(camera: Camera, at: Vec3, unit: number): [number, number] {
  const [u, v] = rowsOf(camera.turn);
  const from = add(at, times(camera.centre, -1));
  return [dot(u, from) / unit, dot(v, from) / unit];
}
