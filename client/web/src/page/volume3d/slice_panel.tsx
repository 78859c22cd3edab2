// The picture of a slice plane: a pixel for each voxel across an axis; interpolated for the oblique plane.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { useStore } from "../store";
import { type Meaning, valueText } from "./meaning";
import { COLUMN, OBLIQUE, PLANES, ROW, type Which } from "./planes";
import type { Scene } from "./scene";
import { map3 } from "./vectors";

export function SlicePanel({ scene, which, meaning }: { scene: Scene; which: Which; meaning: Meaning }) {
  const stage = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState<[number, number]>([0, 0]);
  const [under, setUnder] = useState("");
  const settings = useStore(scene.settings);
  const geometry = useStore(scene.geometry)!;
  useStore(scene.status); // the level decides how many pixels there are
  // A value is that of a voxel that was shown: of another volume or plane it is none.
  useEffect(() => setUnder(""), [geometry, settings.planes]);
  useLayoutEffect(() => {
    scene.attachSlice(which, canvas.current);
    const observer = new ResizeObserver(([entry]) => setSize([entry.contentRect.width, entry.contentRect.height]));
    observer.observe(stage.current!);
    return () => {
      observer.disconnect();
      scene.attachSlice(which, null);
    };
  }, [scene]);

  const { planes } = settings;
  const oblique = which === OBLIQUE;
  const shape = scene.sliceShape(which);
  const aspect = shape?.aspect ?? 1;
  const width = Math.min(size[0], size[1] * aspect);
  const height = width / aspect;
  const [left, top] = [(size[0] - width) / 2, (size[1] - height) / 2];
  const name = (axis: number) => geometry.names[axis];
  const title = oblique ? "Oblique" : `${name(which)} = ${planes.at[which]}`;

  const placeAt = (event: PointerEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    return scene.placeIn(which, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  const point = (event: PointerEvent) => {
    const place = placeAt(event);
    const found = place && scene.valueAt(place);
    if (!place || !found) return setUnder("");
    const voxel = map3((i) => Math.floor(place[i] * geometry.shape[i]));
    const several = found.factor > 1 ? ` (of ${found.factor}³ voxels)` : "";
    setUnder(`${voxel.map((n, i) => `${name(i)} ${n}`).join(", ")}: ${found.held ? `${found.held} ` : ""}${valueText(meaning, found.value)}${several}`);
  };
  // A click puts the planes of the picture's two axes there.
  const pick = (event: PointerEvent) => {
    const place = placeAt(event);
    if (!place) return;
    const voxel = map3((i) => Math.floor(place[i] * geometry.shape[i]));
    scene.set({ planes: { ...planes, at: map3((i) => (i === which ? planes.at[i] : voxel[i])) } });
  };
  const set = (at: number) => scene.set({ planes: { ...planes, at: map3((i) => (i === which ? at : planes.at[i])) } });
  const line = (axis: 0 | 1 | 2) => (planes.at[axis] + 0.5) / geometry.shape[axis];
  return (
    <section class="slice" aria-label={oblique ? "Oblique slice" : `Slice ${name(which)}`} data-plane={PLANES[which].name}>
      <header>
        {oblique ? (
          <h3 style={{ borderColor: PLANES[which].colour }}>Oblique</h3>
        ) : (
          <label class="plane"><span class="axis" style={{ borderColor: PLANES[which].colour }}>{name(which)}</span>
            <input type="range" min="0" max={geometry.shape[which] - 1} value={planes.at[which]} aria-label={`Slice across ${name(which)}`} aria-valuetext={`${name(which)} = ${planes.at[which]}, from 0 to ${geometry.shape[which] - 1}`} onInput={(event) => set(Number(event.currentTarget.value))} />
            <output title="voxels count from 0, as everywhere in Octavo">{planes.at[which]} <span class="note">of 0 … {geometry.shape[which] - 1}</span></output>
          </label>
        )}
      </header>
      <div ref={stage} class="stage flat" role="img" aria-label={title} onPointerMove={point} onPointerLeave={() => setUnder("")} onPointerUp={pick}>
        <canvas ref={canvas} style={{ left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` }} />
        {!oblique && width > 0 && <div class="line row" style={{ left: `${left}px`, width: `${width}px`, top: `${top + line(ROW[which]) * height}px`, color: PLANES[ROW[which]].colour }} />}
        {!oblique && width > 0 && <div class="line column" style={{ top: `${top}px`, height: `${height}px`, left: `${left + line(COLUMN[which]) * width}px`, color: PLANES[COLUMN[which]].colour }} />}
        {under && <div class="under">{under}</div>}
      </div>
    </section>
  );
}
