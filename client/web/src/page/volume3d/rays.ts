// The rays of a picture: where they begin and how they run through the volume, in fractions of its size.
import { type Camera, unitsPerPixel } from "./camera";
import { diagonal, fractions, type Geometry } from "./geometry";
import type { Rays } from "./graphics";
import { OBLIQUE, planeOf } from "./planes";
import type { Settings } from "./scene";
import { add, map3, rowsOf, times, type Vec3 } from "./vectors";

/** A ray for each of width x height pixels of a picture that fills `room` (CSS pixels); `rate` samples a voxel. */
export function raysOf(geometry: Geometry, settings: Settings, camera: Camera, room: [number, number], width: number, height: number, rate: number): Rays {
  const { mode, clip, planes, opacity } = settings;
  const unit = unitsPerPixel(camera, geometry, ...room);
  const [x, y] = [(unit * room[0]) / width, (unit * room[1]) / height];
  const [right, down, into] = rowsOf(camera.turn);
  const direction = (of: Vec3, by: number) => map3((i) => (of[i] * by) / geometry.size[i]);
  const corner = add(camera.centre, add(times(right, (-x * width) / 2), times(down, (y * height) / 2)));
  const shown = mode === "slices" || mode === "cut" ? ([0, 1, 2, OBLIQUE] as const).filter((which) => planes.shown[which]) : [];
  return {
    mode, rate,
    corner: fractions(geometry, corner),
    right: direction(right, x),
    up: direction(down, -y),
    into: direction(into, diagonal(geometry)),
    lo: map3((i) => clip.lo[i] / geometry.shape[i]),
    hi: map3((i) => clip.hi[i] / geometry.shape[i]),
    planes: shown.flatMap((which) => {
      const { normal, distance } = planeOf(geometry, planes, which);
      // The same plane of fractions: normal * size, and its distance from their corner.
      const scaled = map3((i) => normal[i] * geometry.size[i]);
      return [...scaled, distance + scaled.reduce((sum, value) => sum + value / 2, 0)];
    }),
    light: map3((i) => -0.9 * into[i] - 0.35 * down[i] - 0.25 * right[i]),
    density: 10 ** (0.5 + 2.5 * opacity),
  };
}
