// The pictures of planes through the volume: how many pixels they have, and which place of the volume each shows.
import { fractions, type Geometry } from "./geometry";
import type { Level, Slice } from "./graphics";
import { COLUMN, extent, OBLIQUE, planeOf, type Planes, ROW, type Which } from "./planes";
import { add, map3, times, type Vec3 } from "./vectors";

const MOST_OBLIQUE = 768;

/** Columns and rows of the picture of a plane, and how wide it is for its height. */
export interface SliceShape {
  columns: number;
  rows: number;
  aspect: number;
}

/** The picture of an axis' plane has a pixel a voxel of the level; an oblique one as many as the finest spacing needs. */
export function shapeOfSlice(geometry: Geometry, planes: Planes, which: Which, level: Level): SliceShape {
  if (which !== OBLIQUE) {
    const [column, row] = [COLUMN[which], ROW[which]];
    return { columns: level.shape[geometry.position[column]], rows: level.shape[geometry.position[row]], aspect: geometry.size[column] / geometry.size[row] };
  }
  const { u, v } = planeOf(geometry, planes, which);
  const [width, height] = [extent(geometry, u), extent(geometry, v)];
  const step = Math.max(Math.min(...geometry.spacing) * level.factor, Math.max(width, height) / MOST_OBLIQUE);
  return { columns: Math.max(1, Math.round(width / step)), rows: Math.max(1, Math.round(height / step)), aspect: width / height };
}

/** Where its picture lies in the volume, in fractions of its size. */
export function sliceOf(geometry: Geometry, planes: Planes, which: Which, { factor }: Level, columns: number, rows: number): Slice {
  if (which !== OBLIQUE) {
    const along = (axis: number) => map3((i) => (i === axis ? factor / geometry.shape[i] : 0));
    return { exact: true, corner: map3((i) => (i === which ? (planes.at[i] + 0.5) / geometry.shape[i] : 0)), across: along(COLUMN[which]), down: along(ROW[which]) };
  }
  const { normal, distance, u, v } = planeOf(geometry, planes, which);
  const [across, down] = [times(u, extent(geometry, u) / columns), times(v, extent(geometry, v) / rows)];
  const corner = add(times(normal, distance), add(times(across, -columns / 2), times(down, -rows / 2)));
  return { exact: false, corner: fractions(geometry, corner), across: map3((i) => across[i] / geometry.size[i]), down: map3((i) => down[i] / geometry.size[i]) };
}

/** The place (fractions of the volume) at a place of the picture, 0 ... 1 to the right and down; null beside the volume. */
export function placeInSlice(geometry: Geometry, planes: Planes, which: Which, level: Level, right: number, down: number): Vec3 | null {
  const shape = shapeOfSlice(geometry, planes, which, level);
  const place = (() => {
    if (which !== OBLIQUE) return map3((i) => (i === which ? (planes.at[i] + 0.5) / geometry.shape[i] : i === COLUMN[which] ? right : down));
    const { corner, across, down: rows } = sliceOf(geometry, planes, which, level, shape.columns, shape.rows);
    return map3((i) => corner[i] + across[i] * right * shape.columns + rows[i] * down * shape.rows);
  })();
  return place.every((part) => part >= 0 && part < 1) ? place : null;
}
