// The stage of a picture: zoom, pan, the scale bar, the line of the other picture, the value below the pointer.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { length } from "../format";
import { useStore } from "../store";
import type { LivePicture, Shown } from "./live_picture";
import type { Spacing } from "./spacing";

const MOST_ZOOM = 40;
const STEP = 1.25;
const CLICK_PX = 4;

interface Transform {
  zoom: number; // 1 = the whole picture fits
  x: number; // of the picture's centre from the stage's, CSS pixels
  y: number;
}
const REST: Transform = { zoom: 1, x: 0, y: 0 };

/** A bar of a round length, about a fifth of the width. */
export function barOf(width: number, umPerPx: number): { um: number; px: number } {
  const wanted = (width / 5) * umPerPx;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const um = [5, 2, 1].map((n) => n * power).find((n) => n <= wanted) ?? power;
  return { um, px: um / umPerPx };
}

export interface Line {
  axis: "row" | "column";
  at: number; // 0 ... 1 of the picture
  label: string;
}

export function Stage(props: {
  picture: LivePicture;
  label: string;
  spacing: (shown: Shown) => Spacing;
  lines?: Line[];
  pick?: (row: number, column: number) => void; // fractions of the picture
  children?: ComponentChildren;
  canvasRef: { current: HTMLCanvasElement | null };
}) {
  const { picture } = props;
  const shown = useStore(picture.shown);
  const stage = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState<[number, number]>([0, 0]);
  const [transform, setTransform] = useState<Transform>(REST);
  const [under, setUnder] = useState("");
  const pointers = useRef(new Map<number, [number, number]>());
  const moved = useRef(0);

  useLayoutEffect(() => {
    picture.attach(props.canvasRef.current);
    const observer = new ResizeObserver(([entry]) => setSize([entry.contentRect.width, entry.contentRect.height]));
    observer.observe(stage.current!);
    return () => {
      observer.disconnect();
      picture.attach(null);
    };
  }, [picture]);

  // The picture in CSS pixels at zoom 1: equal lengths along both axes, if they are known.
  const spacing = shown ? props.spacing(shown) : null;
  const aspect = shown ? (shown.columns * (spacing?.[1] ?? 1)) / (shown.rows * (spacing?.[0] ?? 1)) : 1;
  const width = Math.min(size[0], size[1] * aspect);
  const height = width / aspect;

  const zoomAt = (factor: number, px: number, py: number) =>
    setTransform((old) => {
      const zoom = Math.max(1, Math.min(MOST_ZOOM, old.zoom * factor));
      const by = zoom / old.zoom;
      return zoom === 1 ? REST : { zoom, x: px - (px - old.x) * by, y: py - (py - old.y) * by };
    });
  const fromCentre = (event: { clientX: number; clientY: number }): [number, number] => {
    const box = stage.current!.getBoundingClientRect();
    return [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2];
  };

  useEffect(() => {
    const element = stage.current!;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      zoomAt(event.deltaY < 0 ? STEP : 1 / STEP, ...fromCentre(event));
    };
    element.addEventListener("wheel", wheel, { passive: false }); // a passive one could not keep the page from scrolling
    return () => element.removeEventListener("wheel", wheel);
  }, []);

  const place = (event: PointerEvent): [number, number] | null => {
    const box = props.canvasRef.current!.getBoundingClientRect();
    const [row, column] = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
    return row >= 0 && row < 1 && column >= 0 && column < 1 ? [row, column] : null;
  };
  const down = (event: PointerEvent) => {
    stage.current!.setPointerCapture(event.pointerId);
    pointers.current.set(event.pointerId, [event.clientX, event.clientY]);
    if (pointers.current.size === 1) moved.current = 0;
  };
  const move = (event: PointerEvent) => {
    const at = place(event);
    if (at && shown) {
      const [row, column] = [Math.floor(at[0] * shown.rows), Math.floor(at[1] * shown.columns)];
      const value = picture.valueAt(row, column);
      setUnder(`${shown.schema.axes[0]} ${row}, ${shown.schema.axes[1]} ${column}${value === null ? "" : `: ${Number(value.toPrecision(4))}${shown.schema.unit ? ` ${shown.schema.unit}` : ""}`}`);
    } else setUnder("");
    const before = pointers.current.get(event.pointerId);
    if (!before) return;
    const now: [number, number] = [event.clientX, event.clientY];
    const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
    pointers.current.set(event.pointerId, now);
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    moved.current += Math.hypot(dx, dy);
    if (other) {
      const distance = (a: [number, number]) => Math.max(1, Math.hypot(a[0] - other[0], a[1] - other[1]));
      zoomAt(distance(now) / distance(before), ...fromCentre({ clientX: (now[0] + other[0]) / 2, clientY: (now[1] + other[1]) / 2 }));
    } else if (moved.current > CLICK_PX) setTransform((old) => (old.zoom === 1 ? old : { ...old, x: old.x + dx, y: old.y + dy }));
  };
  const up = (event: PointerEvent) => {
    const clicked = pointers.current.size === 1 && moved.current <= CLICK_PX && event.type === "pointerup";
    pointers.current.delete(event.pointerId);
    const at = clicked ? place(event) : null;
    if (at) props.pick?.(...at);
  };
  const key = (event: KeyboardEvent) => {
    const pan = 40;
    const by: Record<string, () => void> = {
      "+": () => zoomAt(STEP, 0, 0),
      "=": () => zoomAt(STEP, 0, 0),
      "-": () => zoomAt(1 / STEP, 0, 0),
      "0": () => setTransform(REST),
      ArrowLeft: () => setTransform((old) => ({ ...old, x: old.zoom === 1 ? 0 : old.x + pan })),
      ArrowRight: () => setTransform((old) => ({ ...old, x: old.zoom === 1 ? 0 : old.x - pan })),
      ArrowUp: () => setTransform((old) => ({ ...old, y: old.zoom === 1 ? 0 : old.y + pan })),
      ArrowDown: () => setTransform((old) => ({ ...old, y: old.zoom === 1 ? 0 : old.y - pan })),
    };
    const act = by[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  };

  const px = { width: width * transform.zoom, height: height * transform.zoom };
  const left = size[0] / 2 + transform.x - px.width / 2;
  const top = size[1] / 2 + transform.y - px.height / 2;
  const bar = shown && spacing && width > 0 ? barOf(Math.min(size[0], px.width), (shown.columns * spacing[1]) / px.width) : null;
  const lines = shown ? (props.lines ?? []) : [];
  return (
    <div
      ref={stage} class="stage" tabIndex={0} role="application" aria-roledescription="picture"
      aria-label={`${props.label}. Plus and minus zoom, arrows move, 0 shows all.`}
      onPointerDown={down} onPointerMove={move} onPointerUp={up} onPointerCancel={up} onPointerLeave={() => setUnder("")} onDblClick={() => setTransform(REST)} onKeyDown={key}
    >
      <canvas ref={props.canvasRef} aria-hidden="true" hidden={!shown} style={{ left: `${left}px`, top: `${top}px`, width: `${px.width}px`, height: `${px.height}px` }} />
      {lines.map((line) => (
        <div
          key={line.label} class={`line ${line.axis}`} data-at={line.at.toFixed(4)}
          style={line.axis === "row" ? { left: `${left}px`, width: `${px.width}px`, top: `${top + line.at * px.height}px` } : { top: `${top}px`, height: `${px.height}px`, left: `${left + line.at * px.width}px` }}
        >
          <span>{line.label}</span>
        </div>
      ))}
      {bar && (
        <div class="scale-bar" data-um={bar.um} style={{ width: `${bar.px}px` }}>
          {length(bar.um)}
        </div>
      )}
      {under && shown && <div class="under">{under}</div>}
      {transform.zoom > 1 && <div class="zoom">× {transform.zoom.toFixed(1)}</div>}
      {props.children}
    </div>
  );
}
