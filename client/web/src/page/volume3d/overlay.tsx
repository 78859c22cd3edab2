// Lines over the picture: the edges of the volume and of the clip box, the slice planes, and the axes with their lengths.
import { length } from "../format";
import { useStore } from "../store";
import { project, unitsPerPixel } from "./camera";
import { EDGES, fromFractions, type Geometry, polygon } from "./geometry";
import { OBLIQUE, PLANES, planeOf } from "./planes";
import type { Scene, Settings } from "./scene";
import { map3, type Vec3 } from "./vectors";

const LEAST_AXIS_PX = 24; // shorter ones point at the eye: their names would lie on each other
const LABEL_PX = [84, 17]; // that a text takes

export function extentText(geometry: Geometry, axis: number): string {
  return geometry.lengths ? length(geometry.size[axis]) : `${geometry.shape[axis]} voxels`;
}

const isClipped = (settings: Settings, geometry: Geometry) => settings.clip.lo.some((value) => value > 0) || settings.clip.hi.some((value, i) => value < geometry.shape[i]);

export function Overlay({ scene, geometry, width, height }: { scene: Scene; geometry: Geometry; width: number; height: number }) {
  const camera = useStore(scene.camera);
  const settings = useStore(scene.settings);
  const unit = unitsPerPixel(camera, geometry, width, height);
  const place = (at: Vec3): [number, number] => {
    const [x, y] = project(camera, at, unit);
    return [width / 2 + x, height / 2 + y];
  };
  const corner = (at: Vec3) => place(fromFractions(geometry, at));
  const path = (points: [number, number][]) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const inClip = (at: Vec3): Vec3 => map3((i) => (at[i] ? settings.clip.hi[i] : settings.clip.lo[i]) / geometry.shape[i]);
  const origin = corner([0, 0, 0]);
  const centre = place([0, 0, 0]);
  const written: [number, number][] = [];
  return (
    <svg class="overlay" width={width} height={height} aria-hidden="true">
      {EDGES.map(([from, to], i) => <polyline key={i} points={path([corner(from), corner(to)])} class="edge" />)}
      {isClipped(settings, geometry) && EDGES.map(([from, to], i) => <polyline key={i} points={path([corner(inClip(from)), corner(inClip(to))])} class="clip-edge" />)}
      {([0, 1, 2, OBLIQUE] as const).filter((which) => settings.planes.shown[which]).map((which) => {
        const plane = planeOf(geometry, settings.planes, which);
        return <polygon key={which} points={path(polygon(geometry, plane.normal, plane.distance, plane.u, plane.v).map(place))} stroke={PLANES[which].colour} class="plane-edge" data-plane={PLANES[which].name} />;
      })}
      {map3((i) => i).map((axis) => {
        const end = corner(map3((i) => (i === axis ? 1 : 0)));
        const [dx, dy] = [end[0] - origin[0], end[1] - origin[1]];
        if (Math.hypot(dx, dy) < LEAST_AXIS_PX) return null;
        // Beside the middle of its edge, away from the volume.
        const middle = [(end[0] + origin[0]) / 2, (end[1] + origin[1]) / 2];
        const away = [middle[0] - centre[0], middle[1] - centre[1]];
        const far = Math.max(1, Math.hypot(away[0], away[1]));
        const x = Math.max(LABEL_PX[0] / 2 + 6, Math.min(width - LABEL_PX[0] / 2 - 6, middle[0] + (away[0] / far) * 26));
        let y = Math.max(16, Math.min(height - 8, middle[1] + (away[1] / far) * 14 + 4));
        while (written.some(([left, top]) => Math.abs(left - x) < LABEL_PX[0] && Math.abs(top - y) < LABEL_PX[1])) y += LABEL_PX[1];
        written.push([x, y]);
        return <text key={axis} x={x} y={y} fill={PLANES[axis].colour}>{geometry.names[axis]} {extentText(geometry, axis)}</text>;
      })}
    </svg>
  );
}
