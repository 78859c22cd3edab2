// The picture of the rays, with its lines and the scale bar.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { length } from "../format";
import { barOf } from "../live/stage";
import { useStore } from "../store";
import { unitsPerPixel } from "./camera";
import { useGestures } from "./gestures";
import { Overlay } from "./overlay";
import type { Scene } from "./scene";

const HELP = "Arrows turn it, with Shift they move it; plus and minus zoom; comma and full stop spin it; x, y and z look along an axis; 0 is the standard view.";

export function SceneStage({ scene, label, canvasRef, children }: { scene: Scene; label: string; canvasRef: { current: HTMLCanvasElement | null }; children?: preact.ComponentChildren }) {
  const stage = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState<[number, number]>([0, 0]);
  const camera = useStore(scene.camera);
  const geometry = useStore(scene.geometry);
  const gestures = useGestures(scene, stage);
  useLayoutEffect(() => {
    scene.attach(canvasRef.current);
    const observer = new ResizeObserver(([entry]) => {
      const { width, height } = entry.contentRect;
      setSize([width, height]);
      scene.resized(width, height);
    });
    observer.observe(stage.current!);
    return () => {
      observer.disconnect();
      scene.attach(null);
    };
  }, [scene]);
  const bar = geometry?.lengths && size[0] > 0 ? barOf(size[0], unitsPerPixel(camera, geometry, ...size)) : null;
  return (
    <div ref={stage} class="stage scene" tabIndex={0} role="application" aria-roledescription="3-D picture" aria-label={`${label}. ${HELP}`} {...gestures}>
      <canvas ref={canvasRef} aria-hidden="true" />
      {geometry && size[0] > 0 && <Overlay scene={scene} geometry={geometry} width={size[0]} height={size[1]} />}
      {bar && <div class="scale-bar" data-um={bar.um} style={{ width: `${bar.px}px` }}>{length(bar.um)}</div>}
      {children}
    </div>
  );
}
