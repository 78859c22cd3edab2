// What is shown, and how: contrast, view, clip box and slice planes.
import type { Interval } from "../../wire/protocol";
import { length } from "../format";
import { WindowHistogram } from "../live/window_histogram";
import { tell } from "../parts/toasts";
import { useStore } from "../store";
import { STANDARD, VIEWS } from "./camera";
import { diagonal, type Geometry } from "./geometry";
import type { Meaning } from "./meaning";
import { across, OBLIQUE, PLANES } from "./planes";
import type { Scene } from "./scene";
import { map3, rowsOf, type Vec3 } from "./vectors";

function Slider(props: { text: string; label: string; value: number; min: number; max: number; step?: number; shown: string; set: (value: number) => void }) {
  return (
    <label class="plane"><span>{props.text}</span>
      <input type="range" min={props.min} max={props.max} step={props.step ?? 1} value={props.value} aria-label={props.label} aria-valuetext={props.shown} onInput={(event) => props.set(Number(event.currentTarget.value))} />
      <output>{props.shown}</output>
    </label>
  );
}

function Contrast({ scene, meaning }: { scene: Scene; meaning: Meaning }) {
  const histogram = useStore(scene.histogram);
  const window = useStore(scene.window);
  const byHand = useStore(scene.settings).window !== null;
  const value = (stored: number) => meaning.offset + stored * meaning.step;
  const set = (next: Interval) => scene.set({ window: next });
  const typed = (end: "lo" | "hi") => (event: Event) => {
    const input = event.target as HTMLInputElement;
    const stored = (Number(input.value) - meaning.offset) / meaning.step;
    const next = window && { ...window, [end]: stored };
    if (next && input.value.trim() !== "" && next.lo < next.hi) return set(next);
    if (window) tell(`The ${end === "lo" ? "darkest" : "brightest"} value is ${input.value || "no number"}; allowed: numbers ${end === "lo" ? "below the brightest" : "above the darkest"} one, ${Number(value(end === "lo" ? window.hi : window.lo).toPrecision(6))}${meaning.unit ? ` ${meaning.unit}` : ""}`);
    input.value = window ? String(Number(value(window[end]).toPrecision(6))) : ""; // darker than bright: as it was
  };
  return (
    <fieldset>
      <legend>Contrast{meaning.unit ? `, ${meaning.unit}` : ""}</legend>
      <WindowHistogram histogram={histogram} window={window} label="the volume" value={value} unit={meaning.unit} change={set} />
      <div class="row">
        {(["lo", "hi"] as const).map((end) => (
          <input key={end} type="number" step="any" class="wide" value={window ? Number(value(window[end]).toPrecision(6)) : ""} disabled={!window} aria-label={`${end === "lo" ? "Darkest" : "Brightest"} value${meaning.unit ? `, ${meaning.unit}` : ""}`} onChange={typed(end)} />
        ))}
        <button type="button" aria-pressed={!byHand} onClick={() => scene.set({ window: null })} title="Contrast that fits the picture">Auto</button>
      </div>
    </fieldset>
  );
}

/** "0 – 1.2 mm": both in the unit of the larger one. */
function between(lo: number, hi: number): string {
  const unit = hi >= 1000 ? { um: 1000, text: "mm" } : { um: 1, text: "µm" };
  return `${Number((lo / unit.um).toPrecision(3))} – ${Number((hi / unit.um).toPrecision(3))} ${unit.text}`;
}

function Clip({ scene, geometry }: { scene: Scene; geometry: Geometry }) {
  const { clip } = useStore(scene.settings);
  const put = (end: "lo" | "hi", axis: number, value: number) => {
    // The box keeps a voxel at least: the other end makes way.
    const next = { lo: [...clip.lo] as Vec3, hi: [...clip.hi] as Vec3 };
    next[end][axis] = value;
    if (end === "lo") next.hi[axis] = Math.max(next.hi[axis], value + 1);
    else next.lo[axis] = Math.min(next.lo[axis], value - 1);
    scene.set({ clip: next });
  };
  const text = (axis: number, voxels: number) => (geometry.lengths ? length(voxels * geometry.spacing[axis]) : `${voxels}`);
  const both = (axis: number) => (geometry.lengths ? between(clip.lo[axis] * geometry.spacing[axis], clip.hi[axis] * geometry.spacing[axis]) : `${clip.lo[axis]} – ${clip.hi[axis]}`);
  const whole = clip.lo.every((value) => value === 0) && clip.hi.every((value, i) => value === geometry.shape[i]);
  return (
    <fieldset class="clip">
      <legend>Clip box</legend>
      {map3((i) => i).map((axis) => (
        <div key={axis} class="plane" role="group" aria-label={`Clip box along ${geometry.names[axis]}`}>
          <span>{geometry.names[axis]}</span>
          <input type="range" min="0" max={geometry.shape[axis] - 1} value={clip.lo[axis]} aria-label={`Clip box: ${geometry.names[axis]} from`} aria-valuetext={text(axis, clip.lo[axis])} onInput={(event) => put("lo", axis, Number(event.currentTarget.value))} />
          <input type="range" min="1" max={geometry.shape[axis]} value={clip.hi[axis]} aria-label={`Clip box: ${geometry.names[axis]} to`} aria-valuetext={text(axis, clip.hi[axis])} onInput={(event) => put("hi", axis, Number(event.currentTarget.value))} />
          <output>{both(axis)}</output>
        </div>
      ))}
      <button type="button" disabled={whole} onClick={() => scene.set({ clip: { lo: [0, 0, 0], hi: [...geometry.shape] } })}>Whole volume</button>
    </fieldset>
  );
}

function Slices({ scene, geometry }: { scene: Scene; geometry: Geometry }) {
  const { planes } = useStore(scene.settings);
  const step = Math.min(...geometry.spacing) / 2;
  const half = Math.ceil(diagonal(geometry) / 2 / step) * step; // so that 0 is one of the slider's places
  const set = (change: Partial<typeof planes>) => scene.set({ planes: { ...planes, ...change } });
  const along = () => {
    const camera = scene.camera.value;
    set({ ...across(rowsOf(camera.turn)[2], camera.centre), shown: map4(planes.shown, OBLIQUE, true) });
  };
  return (
    <fieldset>
      <legend>Slice planes</legend>
      <div class="row" role="group" aria-label="Planes that are shown in the 3-D picture">
        {PLANES.map((plane, which) => (
          <label key={plane.name}><input type="checkbox" checked={planes.shown[which]} onChange={(event) => set({ shown: map4(planes.shown, which, event.currentTarget.checked) })} /> {which === OBLIQUE ? plane.name : geometry.names[which]}</label>
        ))}
      </div>
      <Slider text="turn" label="Oblique plane: turn" value={planes.turn} min={-180} max={180} shown={`${planes.turn}°`} set={(turn) => set({ turn })} />
      <Slider text="tilt" label="Oblique plane: tilt" value={planes.tilt} min={-90} max={90} shown={`${planes.tilt}°`} set={(tilt) => set({ tilt })} />
      <Slider text="offset" label="Oblique plane: offset from the middle" value={planes.offset} min={-half} max={half} step={step} shown={geometry.lengths ? `${planes.offset < 0 ? "−" : ""}${length(Math.abs(planes.offset))}` : `${Number(planes.offset.toPrecision(3))}`} set={(offset) => set({ offset })} />
      <button type="button" onClick={along} title="Puts the oblique plane across the direction of the view, through the middle of the picture">Across the view</button>
    </fieldset>
  );
}
const map4 = (shown: readonly boolean[], which: number, on: boolean) => shown.map((value, i) => (i === which ? on : value)) as [boolean, boolean, boolean, boolean];

export function Controls({ scene, geometry, meaning }: { scene: Scene; geometry: Geometry; meaning: Meaning }) {
  const settings = useStore(scene.settings);
  return (
    <aside class="controls" aria-label="Controls">
      <Contrast scene={scene} meaning={meaning} />
      <fieldset>
        <legend>View</legend>
        <div class="row views">
          <button type="button" onClick={() => scene.look(STANDARD)} title="From above and aside (key: 0)">Standard</button>
          {VIEWS.map((view, i) => <button key={view.key} type="button" data-view={view.key} onClick={() => scene.look({ ...STANDARD, turn: view.turn })} title={`Key: ${view.key}`}>along {geometry.names[2 - i]}</button>)}
        </div>
        <p class="help">Drag turns, with Shift it moves; the wheel zooms. Keys of the picture: arrows, + −, x y z, 0.</p>
        {(settings.mode === "shaded" || settings.mode === "cut") && <Slider text="opacity" label="Opacity" value={settings.opacity} min={0} max={1} step={0.02} shown={`${Math.round(100 * settings.opacity)} %`} set={(opacity) => scene.set({ opacity })} />}
      </fieldset>
      <Clip scene={scene} geometry={geometry} />
      <Slices scene={scene} geometry={geometry} />
    </aside>
  );
}
