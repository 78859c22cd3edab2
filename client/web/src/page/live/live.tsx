// Live: what the chosen scan sees, en face and as a B-scan whose place the en face picture shows.
import { useEffect, useMemo, useState } from "preact/hooks";

import type { Encoding, Product, ScanRow, Topic } from "../../wire/protocol";
import { connection } from "../connection";
import { tell } from "../parts/toasts";
import { useStore } from "../store";
import { LivePicture, type Shown } from "./live_picture";
import { Panel } from "./panel";
import { ScanFigures } from "./scan_figures";
import { chosenScan, ScanSelect } from "./scan_select";
import { type Spacing, spacingOf } from "./spacing";

const WIDTHS = [256, 512, 1024, 2048];
export const EN_FACE_VIEW = 1;
export const BSCAN_VIEW = 2;

const EN_FACE: { product: Product; text: string; has: (scan: ScanRow) => boolean }[] = [
  { product: "MIP", text: "maximum (MIP)", has: () => true },
  { product: "AIP", text: "average (AIP)", has: (scan) => scan.aip },
  { product: "ANGIOGRAM", text: "angiogram", has: (scan) => scan.angiogram },
];

export function Live(props: { chosen: string }) {
  const scans = useStore(connection.scans);
  const volumes = useStore(connection.volumes);
  const enFace = useMemo(() => new LivePicture(EN_FACE_VIEW), []);
  const bscan = useMemo(() => new LivePicture(BSCAN_VIEW), []);
  const enFaceShown = useStore(enFace.shown);
  const [choice, setChoice] = useState("");
  useEffect(() => {
    if (props.chosen) setChoice(`scans/${props.chosen}`);
  }, [props.chosen]);
  const [product, setProduct] = useState<Product>("MIP");
  const [axis, setAxis] = useState<"Y" | "X">("Y");
  const [index, setIndex] = useState(-1);
  const [width, setWidth] = useState(512);
  const [encoding, setEncoding] = useState<Encoding>("AUTO");
  const [frozen, setFrozen] = useState(false);

  const scan = chosenScan(scans, choice);
  const offered = EN_FACE.filter((entry) => scan && entry.has(scan));
  const present = offered.some((entry) => entry.product === product) ? product : "MIP";
  const volume = scan ? [...volumes.values()].find((row) => row.parent === scan.name && !row.raw && row.axes.join("") === "yxz") : undefined;

  // The number of planes along y and x: of a volume, else of the pattern.
  const extents = volume ? volume.shape.slice(0, 2) : scan && scan.shape.length === 2 ? scan.shape : null;
  const planes = extents ? extents[axis === "Y" ? 0 : 1] : 0;
  const plane = index < 0 ? Math.floor(planes / 2) : Math.min(index, planes - 1);

  const topic = (of: Product, along: "X" | "Y" | "Z", at: number): Topic | null => (scan ? { parent: scan.name, product: of, axis: along, index: at, width } : null);
  const spacing = (shown: Shown): Spacing => spacingOf(shown, volume);
  const about = () => ({ scan: scan?.name, title: scan?.title });
  const line = planes > 0 && enFaceShown ? { axis: axis === "Y" ? ("row" as const) : ("column" as const), at: (plane + 0.5) / planes, label: `B-scan ${axis.toLowerCase()} = ${plane}` } : null;
  const pick = (row: number, column: number) => planes > 0 && setIndex(Math.floor((axis === "Y" ? row : column) * planes));

  return (
    <div class="live">
      <div class="bar row">
        <ScanSelect scans={scans} scan={scan} choice={choice} choose={setChoice} />
        <label>Size
          <select value={width} onChange={(event) => setWidth(Number(event.currentTarget.value))} title="Larger pictures are shrunk to at most this many pixels a side">
            {WIDTHS.map((pixels) => <option key={pixels} value={pixels}>{pixels} px</option>)}
          </select>
        </label>
        <label>Send as
          <select value={encoding} onChange={(event) => setEncoding(event.currentTarget.value as Encoding)} title="Automatic: raw where the connection carries it, else JPEG">
            <option value="AUTO">automatic</option>
            <option value="RAW">raw</option>
            <option value="JPEG">JPEG</option>
          </select>
        </label>
        <button type="button" class="freeze" aria-pressed={frozen} onClick={() => setFrozen(!frozen)} title="Keep the pictures that are shown now">Freeze</button>
        <span class="gap" />
        {scan && <ScanFigures scan={scan} />}
      </div>
      {scan && (scan.warnings.length > 0 || scan.waits_for || (scan.state === "FAILED" && scan.reason)) && (
        <div class="warnings" role="status">
          {scan.state === "FAILED" && <p>The scan has failed: {scan.reason}</p>}
          {scan.waits_for && <p>The scan waits for {scan.waits_for}</p>}
          {scan.warnings.map((text) => <p key={text}>{text}</p>)}
        </div>
      )}
      <div class="panels">
        <Panel
          picture={enFace} id="enface" title="En face" topic={topic(present, "Z", -1)} encoding={encoding} frozen={frozen} spacing={spacing} line={line} pick={pick} about={about} failed={tell}
          empty={scan ? "No picture yet." : "No scan has been submitted yet."}
          controls={
            <label>Projection
              <select value={present} onChange={(event) => setProduct(event.currentTarget.value as Product)}>
                {offered.map((entry) => <option key={entry.product} value={entry.product}>{entry.text}</option>)}
              </select>
            </label>
          }
        />
        <Panel
          picture={bscan} id="bscan" title="B-scan" topic={topic("BSCAN", axis, index)} encoding={encoding} frozen={frozen} spacing={spacing} about={about} failed={tell}
          empty={scan ? "No picture yet." : "No scan has been submitted yet."}
          controls={
            <>
              <label>across
                <select value={axis} onChange={(event) => (setAxis(event.currentTarget.value as "Y" | "X"), setIndex(-1))}>
                  <option value="Y">y</option>
                  <option value="X">x</option>
                </select>
              </label>
              <label class="plane">plane
                <input type="range" min="0" max={Math.max(0, planes - 1)} value={plane} disabled={planes === 0} aria-valuetext={`${axis.toLowerCase()} = ${plane} of ${planes}`}
                  onInput={(event) => setIndex(Number(event.currentTarget.value))} />
                <output>{planes > 0 ? `${plane} of ${planes}` : "–"}</output>
              </label>
            </>
          }
        />
      </div>
    </div>
  );
}
