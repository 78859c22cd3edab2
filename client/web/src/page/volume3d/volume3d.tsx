// 3-D: a held volume in space, with its slices.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { VolumeRow } from "../../wire/protocol";
import { connection } from "../connection";
import { inWords, shortName } from "../format";
import { titleOf } from "../held/verbs";
import { COLOUR_MAPS, type ColourMap } from "../live/colour_maps";
import { saveSnapshot } from "../live/snapshot";
import { useFate } from "../parts/fate";
import { tell } from "../parts/toasts";
import { useStore } from "../store";
import { Controls } from "./controls";
import { objection } from "./geometry";
import type { Mode } from "./graphics";
import { LoadState } from "./load_state";
import { type Meaning, meaningOf, STORED } from "./meaning";
import type { Which } from "./planes";
import { Scene } from "./scene";
import { SceneStage } from "./scene_stage";
import { ServerPicture } from "./server_picture";
import { SlicePanel } from "./slice_panel";
import { rowsOf } from "./vectors";
import { type Bits, exactBits } from "./voxels";

export const HASH = "#3d";
/** The address of a volume within the page. */
export const addressOf = (name: string) => `${HASH}/${name.split("/")[1]}`;

const MODES: [Mode, string][] = [["maximum", "maximum (MIP)"], ["average", "average"], ["shaded", "shaded"], ["cut", "shaded, up to the slices"], ["slices", "slices alone"]];
const SIDES = [0, 256, 128, 64];
const SLICES: Which[] = [2, 1, 0, 3];

let last = ""; // the volume that was shown when the page was left

/** The volume of the address; without one the last, or the newest that can be shown. */
function useChoice(volumes: ReadonlyMap<string, VolumeRow>): string {
  const [place, id] = location.hash.split("/");
  const asked = place === HASH && id ? `volumes/${id}` : "";
  const able = [...volumes.values()].filter((volume) => objection(volume) === "").sort((a, b) => b.held - a.held);
  const choice = asked || (volumes.has(last) ? last : (able[0]?.name ?? ""));
  useEffect(() => {
    last = choice;
    if (choice && !asked) location.replace(addressOf(choice));
  }, [choice, asked]);
  return choice;
}

export function Volume3d() {
  const volumes = useStore(connection.volumes);
  const daemon = useStore(connection.daemon);
  const phase = useStore(connection.phase);
  const up = daemon.up && phase.name === "open";
  const choice = useChoice(volumes);
  const now = volumes.get(choice);
  // What is gone is remembered in its last state, to say what became of it.
  const seen = useRef<VolumeRow | undefined>(undefined);
  if (now) seen.current = now;
  else if (seen.current?.name !== choice) seen.current = undefined;
  const volume = seen.current;
  const able = volume ? objection(volume) : "";
  const scene = useMemo(() => new Scene(), []);
  const shown = scene.volume?.name === choice && choice !== "";
  const gone = up && shown && (!now || able !== "");
  const fate = useFate(choice, gone || (up && choice !== "" && !now));
  useEffect(() => () => scene.close(), [scene]);
  useEffect(() => {
    if (now && able === "") scene.show(now);
  }, [now, able]);
  useEffect(() => {
    if (gone) scene.stopReading();
  }, [gone]);
  // What failed because nobody answered is tried again.
  useEffect(() => {
    if (up && scene.status.value.error) scene.load();
  }, [up]);
  const rows = [...volumes.values()].sort((a, b) => b.held - a.held || b.index - a.index);
  const name = (row: VolumeRow) => `${titleOf(row)} · ${shortName(row.name)} · ${row.shape.join(" × ")} ${row.dtype.toLowerCase()}`;
  return (
    <div class="volume3d">
      <div class="bar row">
        <label>Volume
          <select value={volumes.has(choice) ? choice : ""} onChange={(event) => (location.hash = addressOf(event.currentTarget.value))}>
            {!volumes.has(choice) && <option value="">{volume ? `${name(volume)} (gone)` : "–"}</option>}
            {rows.map((row) => <option key={row.name} value={row.name} disabled={objection(row) !== ""}>{name(row)}{objection(row) ? ` (${inWords(row.state === "HELD" ? "not in 3-D" : row.state)})` : ""}</option>)}
          </select>
        </label>
        <Bar scene={scene} volume={shown || able === "" ? volume : undefined} />
      </div>
      {gone && <p class="banner mild" role="alert">This volume {fate || "is no longer held"}. What is seen here is what was loaded before.</p>}
      {shown || (volume && able === "") ? <Shown scene={scene} volume={volume!} /> : <p class="empty-page">{emptyText(choice, volume, able, up, rows.length, fate)}</p>}
    </div>
  );
}

function emptyText(choice: string, volume: VolumeRow | undefined, able: string, up: boolean, rows: number, fate: string): string {
  if (volume) return `${titleOf(volume)} cannot be shown in 3-D: ${able}.`;
  if (!up) return "Waiting for octavod.";
  if (choice && /^was /.test(fate)) return `The volume ${shortName(choice)} ${fate}. Choose another one.`;
  if (choice) return `There is no volume ${choice}, or not any more. Choose another one.`;
  return rows === 0 ? "No volume is held. Scans leave volumes here as they complete them." : "None of the volumes that are held can be shown in 3-D.";
}

function Bar({ scene, volume }: { scene: Scene; volume: VolumeRow | undefined }) {
  const settings = useStore(scene.settings);
  const { state } = useStore(scene.device);
  if (!volume || state !== "ready") return null;
  return (
    <>
      <label>Picture
        <select value={settings.mode} onChange={(event) => scene.set({ mode: event.currentTarget.value as Mode })}>
          {MODES.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
        </select>
      </label>
      <label>Colours
        <select value={settings.colourMap} onChange={(event) => scene.set({ colourMap: event.currentTarget.value as ColourMap })}>
          {COLOUR_MAPS.map((map) => <option key={map} value={map}>{map}</option>)}
        </select>
      </label>
      <label title="16 bits take twice the memory and time; 8 bits are those of the contrast, made by the server">Voxels
        <select value={exactBits(volume.dtype) === 8 ? 8 : settings.bits} disabled={exactBits(volume.dtype) === 8} onChange={(event) => scene.set({ bits: Number(event.currentTarget.value) as Bits })}>
          <option value="8">8 bits</option>
          <option value="16">16 bits</option>
        </select>
      </label>
      <label>Detail
        <select value={settings.mostSide} onChange={(event) => scene.set({ mostSide: Number(event.currentTarget.value) })} title="The most voxels a side that are loaded">
          {SIDES.map((side) => <option key={side} value={side}>{side === 0 ? "full" : `${side} voxels`}</option>)}
        </select>
      </label>
    </>
  );
}

function Shown({ scene, volume }: { scene: Scene; volume: VolumeRow }) {
  const device = useStore(scene.device);
  const geometry = useStore(scene.geometry);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [meaning, setMeaning] = useState<Meaning>(STORED);
  useEffect(() => {
    setMeaning(STORED);
    meaningOf(volume).then(setMeaning, () => {}); // stored units, then
  }, [volume.name]);
  if (device.state !== "ready") {
    return (
      <div class="no-graphics">
        <p role="alert">{device.state === "missing" ? `No 3-D picture: ${device.message}.` : `The 3-D picture is gone: ${device.message}. It comes back by itself when the browser gives the device back.`} Below is a picture that the server makes.</p>
        {device.state === "lost" && <button type="button" onClick={() => scene.again()}>Try again now</button>}
        <ServerPicture volume={volume} />
      </div>
    );
  }
  if (!geometry) return null;
  const snapshot = () => {
    const { mode, window, colourMap, clip, planes, opacity } = { ...scene.settings.value, window: scene.window.value };
    const { level } = scene.status.value;
    if (!canvas.current || !level || !window) return;
    const camera = scene.camera.value;
    const value = (stored: number) => meaning.offset + stored * meaning.step;
    const about = {
      volume: volume.name, title: volume.title, volume_index: volume.index, axes: volume.axes, shape: volume.shape, spacing_um: volume.spacing_um, digest: volume.digest, picture: mode, colour_map: colourMap, unit: meaning.unit,
      darkest: value(window.lo), brightest: value(window.hi), level: level.factor, right_down_into: rowsOf(camera.turn), zoom: camera.zoom,
      ...(geometry.lengths ? { um_per_pixel: scene.unitOfPixel() } : {}), coarse: canvas.current.dataset.quality !== "still",
      clip_voxels: clip, ...(mode === "shaded" || mode === "cut" ? { opacity } : {}), ...(mode === "cut" || mode === "slices" ? { planes } : {}), saved: new Date().toISOString(),
    };
    saveSnapshot(canvas.current, `octavo_3d_${shortName(volume.name)}_${mode}.png`, about).catch((error: Error) => tell(error.message));
  };
  return (
    <>
      <LoadState scene={scene} volume={volume} geometry={geometry} snapshot={snapshot} />
      <div class="space">
        <SceneStage scene={scene} label={`3-D picture of ${titleOf(volume)}`} canvasRef={canvas} />
        <div class="slices">{SLICES.map((which) => <SlicePanel key={which} scene={scene} which={which} meaning={meaning} />)}</div>
        <Controls scene={scene} geometry={geometry} meaning={meaning} />
      </div>
    </>
  );
}
