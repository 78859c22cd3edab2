// One live picture with its stage, contrast, counters and snapshot.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import type { Encoding, Topic } from "../../wire/protocol";
import { bytes, count } from "../format";
import { useStore } from "../store";
import type { ColourMap } from "./colour_maps";
import { Contrast } from "./contrast";
import type { Contrast as Choice, LivePicture, Shown } from "./live_picture";
import { saveSnapshot } from "./snapshot";
import { type Line, type Spacing, Stage } from "./stage";

const FOLLOW_MS = 100;

export function Panel(props: {
  picture: LivePicture;
  id: string;
  title: string;
  topic: Topic | null;
  encoding: Encoding;
  frozen: boolean;
  spacing: (shown: Shown) => Spacing;
  line?: Line | null;
  pick?: (row: number, column: number) => void;
  controls: ComponentChildren;
  empty: string;
  about: () => object;
  failed: (message: string) => void;
}) {
  const { picture } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [choice, setChoice] = useState<Choice>(picture.contrast);
  const [colourMap, setColourMap] = useState<ColourMap>(picture.colourMap);
  const counters = useStore(picture.counters);
  const ended = useStore(picture.ended);
  const problem = useStore(picture.problem);
  const shown = useStore(picture.shown);

  const wanted = JSON.stringify([props.topic, props.encoding]);
  const followed = useRef(0);
  useEffect(() => {
    // A slider that is dragged asks for many planes: ten a second are enough.
    const wait = Math.max(0, followed.current + FOLLOW_MS - performance.now());
    const timer = setTimeout(() => {
      followed.current = performance.now();
      picture.follow(props.topic, props.encoding);
    }, wait);
    return () => clearTimeout(timer);
  }, [wanted]);
  useEffect(() => () => picture.follow(null, "AUTO"), []);
  useEffect(() => picture.freeze(props.frozen), [props.frozen]);
  useEffect(() => {
    const timer = setInterval(() => picture.tick(), 1000);
    return () => clearInterval(timer);
  }, []);

  const choose = (next: Choice) => {
    picture.contrast = next;
    setChoice(next);
    picture.repaint();
  };
  const colour = (map: ColourMap) => {
    picture.colourMap = map;
    setColourMap(map);
    picture.repaint();
  };
  const snapshot = () => {
    const now = picture.shown.value;
    if (!now || !canvas.current) return;
    const { schema, header } = now;
    const about = {
      ...props.about(), product: schema.product, axis: schema.axis, axes: schema.axes, spacing_um: schema.spacing_um, unit: schema.unit, colour_map: colourMap, sequence: header.sequence,
      volume_index: header.volume, complete: header.complete, saved: new Date().toISOString(),
      darkest: schema.offset + now.window.lo * schema.step, brightest: schema.offset + now.window.hi * schema.step,
    };
    saveSnapshot(canvas.current, `octavo_${schema.product.toLowerCase()}_${header.sequence}.png`, about).catch((error: Error) => props.failed(error.message));
  };
  // Of another scan than the one that is chosen: nothing to look at any more.
  const stale = shown === null || props.topic === null;
  return (
    <section class="panel" id={props.id} aria-label={props.title}>
      <header class="row">
        <h2>{props.title}</h2>
        {props.controls}
        <span class="gap" />
        <button type="button" onClick={snapshot} disabled={stale} title="Save this picture as PNG, with its metadata">Snapshot</button>
      </header>
      <Stage picture={picture} label={props.title} spacing={props.spacing} line={props.line} pick={props.pick} canvasRef={canvas}>
        {stale && <p class="empty">{props.empty}</p>}
        {problem && <p class="empty" role="alert">{problem}</p>}
        {shown && !stale && !shown.header.complete && <div class="tag">being acquired</div>}
        {props.frozen && shown && <div class="tag frozen">frozen</div>}
      </Stage>
      <Contrast picture={picture} label={props.title} choice={choice} colourMap={colourMap} choose={choose} colour={colour} />
      <dl class="counters" data-shown={counters.shown} data-dropped={counters.dropped}>
        <div><dt>frames</dt><dd>{counters.fps.toFixed(1)} Hz</dd></div>
        <div><dt>latency</dt><dd>{counters.latencyMs === null ? "–" : `${Math.round(counters.latencyMs)} ms`}</dd></div>
        <div><dt>shown</dt><dd>{count(counters.shown)}</dd></div>
        <div class={counters.dropped > 0 ? "warn" : ""}><dt>dropped</dt><dd>{count(counters.dropped)}</dd></div>
        <div><dt>sent as</dt><dd>{counters.encoding ? `${counters.encoding === "RAW" ? "raw" : "JPEG"}, ${bytes(counters.bytes)}` : "–"}</dd></div>
      </dl>
      {ended && props.topic && <p class="note" role="status">{ended.reason === "FINISHED" ? "The scan has ended; this is its last picture." : ended.message}</p>}
    </section>
  );
}
