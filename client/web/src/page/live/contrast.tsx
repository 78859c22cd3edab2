// The histogram with the two ends of the window, which can be dragged or moved with the arrows, and the colours.
import { useRef } from "preact/hooks";

import type { Interval } from "../../wire/protocol";
import { useStore } from "../store";
import { COLOUR_MAPS, type ColourMap } from "./colour_maps";
import type { Contrast as Choice, LivePicture } from "./live_picture";

const WIDTH = 256;
const HEIGHT = 44;

export function Contrast(props: { picture: LivePicture; label: string; choice: Choice; colourMap: ColourMap; choose: (choice: Choice) => void; colour: (map: ColourMap) => void }) {
  const { picture, choice } = props;
  const histogram = useStore(picture.histogram);
  const shown = useStore(picture.shown);
  const box = useRef<SVGSVGElement>(null);
  const dragged = useRef<"lo" | "hi" | null>(null);
  const schema = shown?.schema;
  const window: Interval | undefined = shown?.window;
  const range = histogram?.range ?? { lo: 0, hi: 1 };
  const at = (stored: number) => Math.max(0, Math.min(WIDTH, ((stored - range.lo) / (range.hi - range.lo)) * WIDTH));
  const value = (stored: number) => (schema ? schema.offset + stored * schema.step : stored);
  const text = (stored: number) => `${Number(value(stored).toPrecision(3))}${schema?.unit ? ` ${schema.unit}` : ""}`;

  const moveEnd = (end: "lo" | "hi", stored: number) => {
    if (!window) return;
    const least = (range.hi - range.lo) / 256;
    const next = end === "lo" ? { lo: Math.min(Math.max(stored, range.lo), window.hi - least), hi: window.hi } : { lo: window.lo, hi: Math.max(Math.min(stored, range.hi), window.lo + least) };
    props.choose({ kind: "fixed", window: next });
  };
  const pointed = (event: PointerEvent) => {
    const rect = box.current!.getBoundingClientRect();
    return range.lo + ((event.clientX - rect.left) / rect.width) * (range.hi - range.lo);
  };
  const down = (event: PointerEvent) => {
    if (!window) return;
    const stored = pointed(event);
    dragged.current = Math.abs(stored - window.lo) < Math.abs(stored - window.hi) ? "lo" : "hi";
    box.current!.setPointerCapture(event.pointerId);
    moveEnd(dragged.current, stored);
  };
  const key = (end: "lo" | "hi") => (event: KeyboardEvent) => {
    if (!window) return;
    const step = ((range.hi - range.lo) / 256) * (event.shiftKey ? 16 : 1);
    const by = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    moveEnd(end, window[end] + by);
  };

  const most = Math.max(1, ...(histogram?.counts ?? []));
  // Square roots: a few bright voxels stay visible beside the many dark ones.
  const path = histogram ? `M0 ${HEIGHT}${Array.from(histogram.counts, (n, i) => `L${(i / 256) * WIDTH} ${(HEIGHT * (1 - Math.sqrt(n / most))).toFixed(1)}`).join("")}L${WIDTH} ${HEIGHT}Z` : "";
  const percent = choice.kind === "percentiles" ? choice : { lo: 1, hi: 99.8 };
  const setPercent = (end: "lo" | "hi") => (event: Event) => {
    const given = Number((event.target as HTMLInputElement).value);
    const next = { ...percent, [end]: given };
    if (next.lo >= 0 && next.hi <= 100 && next.lo < next.hi) props.choose({ kind: "percentiles", lo: next.lo, hi: next.hi });
  };
  return (
    <div class="contrast">
      <div class="histogram">
        <svg ref={box} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="group" aria-label={`Histogram of ${props.label}`} onPointerDown={down}
          onPointerMove={(event) => dragged.current && moveEnd(dragged.current, pointed(event))} onPointerUp={() => (dragged.current = null)} onPointerCancel={() => (dragged.current = null)}>
          <path d={path} class="counts" />
          {window && <rect x={at(window.lo)} y="0" width={Math.max(0.5, at(window.hi) - at(window.lo))} height={HEIGHT} class="window" />}
          {window && (["lo", "hi"] as const).map((end) => (
            <line key={end} x1={at(window[end])} x2={at(window[end])} y1="0" y2={HEIGHT} class="end" tabindex={0} role="slider" aria-label={`${end === "lo" ? "Darkest" : "Brightest"} value of ${props.label}`}
              aria-valuemin={Number(value(range.lo).toPrecision(4))} aria-valuemax={Number(value(range.hi).toPrecision(4))} aria-valuenow={Number(value(window[end]).toPrecision(4))} aria-valuetext={text(window[end])} onKeyDown={key(end)} />
          ))}
        </svg>
        <div class="ends"><span>{window ? text(window.lo) : "–"}</span><span>{window ? text(window.hi) : "–"}</span></div>
      </div>
      <div class="row">
        <label>Contrast
          <select value={choice.kind} onChange={(event) => {
            const kind = event.currentTarget.value as Choice["kind"];
            props.choose(kind === "display" ? { kind } : kind === "percentiles" ? { kind, lo: 1, hi: 99.8 } : { kind, window: window ?? { lo: 0, hi: 255 } });
          }}>
            <option value="display">by the levels</option>
            <option value="percentiles">percentiles</option>
            <option value="fixed">by hand</option>
          </select>
        </label>
        {choice.kind === "percentiles" && (
          <span class="percent">
            <input type="number" min="0" max="99" step="0.1" value={percent.lo} aria-label="Darkest percentile, %" onChange={setPercent("lo")} />–
            <input type="number" min="1" max="100" step="0.1" value={percent.hi} aria-label="Brightest percentile, %" onChange={setPercent("hi")} /> %
          </span>
        )}
        <label>Colours
          <select value={props.colourMap} onChange={(event) => props.colour(event.currentTarget.value as ColourMap)}>
            {COLOUR_MAPS.map((map) => <option key={map} value={map}>{map}</option>)}
          </select>
        </label>
      </div>
    </div>
  );
}
