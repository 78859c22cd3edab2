// A plot of lines over x, in the colours of the theme.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { useStore } from "../store";
import { theme } from "../theme";

export interface Curve {
  x: Float64Array;
  xText: string; // what x is, with its unit
  yText: string;
  lines: { text: string; values: Float64Array }[]; // NaN = none
  marked: { text: string; values: Float64Array } | null; // points; NaN where nothing is marked
  top: number | null; // upper end of y; null: what was seen so far
  logarithmic?: boolean; // y, which is above 0 then
  grows?: boolean; // x gets longer with time: it is shown to its end, unless somebody has zoomed in
  counts?: boolean; // x are whole numbers
}

const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const LINES = ["--accent", "--warn", "--dim", "--text"];
const WHOLE = Array.from({ length: 9 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

/** What decides how the plot is made; its data change all the time. */
const shapeOf = (curve: Curve) => JSON.stringify([curve.xText, curve.yText, curve.lines.map((line) => line.text), curve.marked?.text, curve.logarithmic ?? false]);

/** The range of y, which does not jump with the data: what was seen so far. */
class Range {
  private seen: [number, number] = [Infinity, -Infinity];
  of(curve: Curve): [number, number] {
    for (const line of curve.lines)
      for (const value of line.values) {
        if (value < this.seen[0]) this.seen[0] = value;
        if (value > this.seen[1]) this.seen[1] = value;
      }
    const [lo, hi] = curve.top ? [Math.min(0, this.seen[0]), curve.top] : this.seen;
    if (curve.logarithmic && lo > 0) return [lo / 1.2, hi * 1.2];
    if (!(hi > lo)) return [Number.isFinite(lo) ? lo - 1 : 0, Number.isFinite(lo) ? lo + 1 : 1];
    return [lo - 0.02 * (hi - lo), hi + 0.04 * (hi - lo)];
  }
}

/** `data`: attributes that say what is shown. */
export function Plot({ curve, label, data }: { curve: Curve; label: string; data?: Record<string, number> }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const range = useRef(new Range());
  const end = useRef(NaN);
  const shade = useStore(theme);
  const shape = shapeOf(curve);
  const latest = useRef(curve);
  latest.current = curve;

  useEffect(() => {
    range.current = new Range();
    const element = box.current!;
    const axis = (text: string): uPlot.Axis => ({ label: text, stroke: colour("--text"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { stroke: colour("--edge"), width: 1 }, font: "12px sans-serif", labelFont: "13px sans-serif" });
    const first = latest.current;
    const series: uPlot.Series[] = [{ label: first.xText }, ...first.lines.map((line, i) => ({ label: line.text, stroke: colour(LINES[i % LINES.length]), width: 1, points: { show: false } }))];
    if (first.marked) series.push({ label: first.marked.text, stroke: colour("--danger"), width: 0, points: { show: true, size: 7, fill: colour("--danger") } });
    const made = new uPlot(
      {
        width: element.clientWidth, height: element.clientHeight - 30, series, legend: { live: true }, cursor: { drag: { x: true, y: false } },
        scales: { x: { time: false }, y: { distr: first.logarithmic ? 3 : 1, range: () => range.current.of(latest.current) } },
        axes: [{ ...axis(first.xText), size: 30, labelSize: 20, ...(first.counts ? { incrs: WHOLE } : {}) }, { ...axis(first.yText), size: 64 }],
      },
      dataOf(first),
      element,
    );
    plot.current = made;
    end.current = first.x.at(-1) ?? NaN;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: Math.max(120, element.clientHeight - 30) }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, shade]);
  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    const { min, max } = made.scales.x;
    const zoomed = min != null && max != null && (min > curve.x[0] || max < end.current);
    end.current = curve.x.at(-1) ?? NaN;
    made.setData(dataOf(curve), curve.grows === true && !zoomed);
  }, [curve]);
  const attributes = Object.fromEntries(Object.entries(data ?? {}).map(([name, value]) => [`data-${name}`, value]));
  return <div ref={box} class="plot" role="img" aria-label={label} {...attributes} />;
}

function dataOf(curve: Curve): uPlot.AlignedData {
  const data: Float64Array[] = [curve.x, ...curve.lines.map((line) => line.values)];
  if (curve.marked) data.push(curve.marked.values);
  return data as unknown as uPlot.AlignedData;
}
