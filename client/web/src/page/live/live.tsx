// Live: what the chosen scan sees, en face and as a B-scan whose place the en face picture shows.
import { useEffect, useState } from "preact/hooks";

import type { Encoding, Product, ScanRow, Topic } from "../../wire/protocol";
import { connection } from "../connection";
import { EarlierScan } from "../parts/earlier_run";
import { tell } from "../parts/toasts";
import { Store, useStore } from "../store";
import { LivePicture, type Shown } from "./live_picture";
import { Panel } from "./panel";
import { ScanFigures } from "./scan_figures";
import { chosenScan, emptyText, ScanSelect } from "./scan_select";
import { SlabRange, slabWithin } from "./slab_range";
import { type Spacing, spacingOf } from "./spacing";
import type { Line } from "./stage";

const WIDTHS = [256, 512, 1024, 2048];
export const EN_FACE_VIEW = 1;
export const BSCAN_VIEW = 2;

type EnFace = "MIP" | "AIP" | "ANGIOGRAM" | "SLAB";
const EN_FACE: { value: EnFace; text: string; has: (scan: ScanRow, depth: number) => boolean }[] = [
  { value: "MIP", text: "maximum (MIP)", has: () => true },
  { value: "SLAB", text: "maximum of a slab", has: (_, depth) => depth > 0 },
  { value: "AIP", text: "average (AIP)", has: (scan) => scan.aip },
  { value: "ANGIOGRAM", text: "angiogram", has: (scan) => scan.angiogram },
];

interface Looked {
  choice: string; // of the scan; empty = the newest
  projection: EnFace;
  slab: [number, number]; // as it was asked for; 0, 0 = the middle third
  axis: "Y" | "X";
  index: number; // of the B-scan; -1 = the middle
  width: number;
  encoding: Encoding;
}
// What is looked at, its contrast and its colours stay as they are when another page is looked at.
const looked = new Store<Looked>({ choice: "", projection: "MIP", slab: [0, 0], axis: "Y", index: -1, width: 512, encoding: "AUTO" });
const look = (change: Partial<Looked>) => looked.set({ ...looked.value, ...change });
const enFace = new LivePicture(EN_FACE_VIEW);
const bscan = new LivePicture(BSCAN_VIEW);

export function Live(props: { chosen: string }) {
  const scans = useStore(connection.scans);
  const volumes = useStore(connection.volumes);
  const { choice, projection, slab, axis, index, width, encoding } = useStore(looked);
  const enFaceShown = useStore(enFace.shown);
  useEffect(() => {
    if (props.chosen) look({ choice: `scans/${props.chosen}` });
  }, [props.chosen]);
  const [frozen, setFrozen] = useState(false);

  const scan = chosenScan(scans, choice);
  const watched = scan && !scan.earlier_run ? scan : null; // of the others the daemon has no pictures
  const volume = watched ? [...volumes.values()].find((row) => row.parent === watched.name && !row.raw && row.axes.join("") === "yxz") : undefined;

  // The number of planes along y and x: of a volume, else of the pattern.
  const extents = volume ? volume.shape.slice(0, 2) : scan && scan.shape.length === 2 ? scan.shape : null;
  const planes = extents ? extents[axis === "Y" ? 0 : 1] : 0;
  const plane = index < 0 ? Math.floor(planes / 2) : Math.min(index, planes - 1);

  // Only a volume says how deep the scan sees.
  const depth = volume ? volume.shape[2] : 0;
  const offered = EN_FACE.filter((entry) => scan && entry.has(scan, depth));
  const present = offered.some((entry) => entry.value === projection) ? projection : "MIP";
  const askedSlab = present === "SLAB" ? slabWithin(slab, depth) : null;

  const topic = (of: Product, along: "X" | "Y" | "Z", at: number, only: [number, number] | null = null): Topic | null =>
    watched ? { parent: watched.name, product: of, axis: along, index: at, slab: only, width } : null;
  const spacing = (shown: Shown): Spacing => spacingOf(shown, volume);
  const about = () => ({ scan: scan?.name, title: scan?.title });
  // The plane is that of the picture, which comes a moment after the choice; -1 is the middle.
  const aboutBscan = (shown: Shown) => {
    const { axis: across, index: at } = shown.topic;
    const count = extents?.[across === "Y" ? 0 : 1] ?? 0;
    return { ...about(), index: at >= 0 ? at : count > 0 ? Math.floor(count / 2) : null, planes: count };
  };
  const line: Line | null = planes > 0 && enFaceShown ? { axis: axis === "Y" ? ("row" as const) : ("column" as const), at: (plane + 0.5) / planes, label: `B-scan ${axis.toLowerCase()} = ${plane}` } : null;
  // The bounds are those of the picture that is shown, which comes a moment after the choice.
  const bounds: Line[] = (depth > 0 ? (enFaceShown?.topic.slab ?? []) : []).map((z) => ({ axis: "row", at: z / depth, label: `z = ${z}` }));
  const pick = (row: number, column: number) => planes > 0 && look({ index: Math.floor((axis === "Y" ? row : column) * planes) });

  return (
    <div class="live">
      <div class="bar row">
        <ScanSelect scans={scans} scan={scan} choice={choice} choose={(name) => look({ choice: name })} />
        <label>Size
          <select value={width} onChange={(event) => look({ width: Number(event.currentTarget.value) })} title="Larger pictures are shrunk to at most this many pixels a side">
            {WIDTHS.map((pixels) => <option key={pixels} value={pixels}>{pixels} px</option>)}
          </select>
        </label>
        <label>Send as
          <select value={encoding} onChange={(event) => look({ encoding: event.currentTarget.value as Encoding })} title="Automatic: raw where the connection carries it, else JPEG">
            <option value="AUTO">automatic</option>
            <option value="RAW">raw</option>
            <option value="JPEG">JPEG</option>
          </select>
        </label>
        <button type="button" class="freeze" aria-pressed={frozen} onClick={() => setFrozen(!frozen)} title="Keep the pictures that are shown now">Freeze</button>
        <span class="gap" />
        {scan && <ScanFigures scan={scan} />}
      </div>
      {scan && <EarlierScan scan={scan} />}
      {scan && (scan.warnings.length > 0 || scan.waits_for || (scan.state === "FAILED" && scan.reason)) && (
        <div class="warnings" role="status">
          {scan.state === "FAILED" && <p>The scan has failed: {scan.reason}</p>}
          {scan.waits_for && <p>The scan waits for {scan.waits_for}</p>}
          {scan.warnings.map((text) => <p key={text}>{text}</p>)}
        </div>
      )}
      {choice && scans.size > 0 && !scans.has(choice) && <p class="note" role="status">There is no {choice}, or not any more{scan ? ": this is the newest scan" : ""}.</p>}
      <div class="panels">
        <Panel
          picture={enFace} id="enface" title="En face" topic={topic(present === "SLAB" ? "MIP" : present, "Z", -1, askedSlab)} encoding={encoding} frozen={frozen} spacing={spacing} lines={line ? [line] : []} pick={pick} about={about} failed={tell}
          empty={emptyText(scan, "picture")}
          controls={
            <>
              <label>Projection
                <select value={present} onChange={(event) => look({ projection: event.currentTarget.value as EnFace })}>
                  {offered.map((entry) => <option key={entry.value} value={entry.value}>{entry.text}</option>)}
                </select>
              </label>
              {askedSlab && <SlabRange slab={askedSlab} depth={depth} um={volume?.lengths[2] ? volume.spacing_um[2] : 0} choose={(range) => look({ slab: range })} />}
            </>
          }
        />
        <Panel
          picture={bscan} id="bscan" title="B-scan" topic={topic("BSCAN", axis, index < 0 || planes === 0 ? index : plane)} encoding={encoding} frozen={frozen} spacing={spacing} lines={bounds} about={aboutBscan} failed={tell}
          empty={emptyText(scan, "picture")}
          controls={
            <>
              <label>across
                <select value={axis} onChange={(event) => look({ axis: event.currentTarget.value as "Y" | "X", index: -1 })}>
                  <option value="Y">y</option>
                  <option value="X">x</option>
                </select>
              </label>
              <label class="plane">plane
                <input type="range" min="0" max={Math.max(0, planes - 1)} value={plane} disabled={planes === 0} aria-valuetext={`${axis.toLowerCase()} = ${plane} of ${planes}`}
                  onInput={(event) => look({ index: Number(event.currentTarget.value) })} />
                <output>{planes > 0 ? `${plane} of ${planes}` : "–"}</output>
              </label>
            </>
          }
        />
      </div>
    </div>
  );
}
