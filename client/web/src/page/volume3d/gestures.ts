// Mouse, fingers, wheel and keys on the picture: they turn, move and zoom the view.
import { useEffect, useRef } from "preact/hooks";

import { moved, rotated, STANDARD, turned, unitsPerPixel, VIEWS, zoomed } from "./camera";
import type { Scene } from "./scene";
import type { Vec3 } from "./vectors";

const RADIANS_A_PX = 0.008;
const KEY_RADIANS = Math.PI / 18;
const KEY_PX = 40;
const ZOOM_STEP = 1.25;

type Place = [number, number];

export function useGestures(scene: Scene, stage: { current: HTMLElement | null }) {
  const pointers = useRef(new Map<number, Place>());
  const pan = (dx: number, dy: number) => {
    const geometry = scene.geometry.value;
    const element = stage.current;
    if (!geometry || !element) return;
    const unit = unitsPerPixel(scene.camera.value, geometry, element.clientWidth, element.clientHeight);
    scene.look(moved(scene.camera.value, dx * unit, dy * unit));
  };
  const zoom = (factor: number) => scene.look(zoomed(scene.camera.value, factor));
  const turn = (dx: number, dy: number) => scene.look(rotated(scene.camera.value, dx, dy));

  useEffect(() => {
    const element = stage.current!;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      zoom(event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP);
    };
    element.addEventListener("wheel", wheel, { passive: false }); // a passive one could not keep the page from scrolling
    return () => element.removeEventListener("wheel", wheel);
  }, [scene]);

  return {
    onPointerDown: (event: PointerEvent) => {
      stage.current!.setPointerCapture(event.pointerId);
      pointers.current.set(event.pointerId, [event.clientX, event.clientY]);
    },
    onPointerMove: (event: PointerEvent) => {
      const before = pointers.current.get(event.pointerId);
      if (!before) return;
      const now: Place = [event.clientX, event.clientY];
      const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
      pointers.current.set(event.pointerId, now);
      const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
      if (other) {
        const distance = (at: Place) => Math.max(1, Math.hypot(at[0] - other[0], at[1] - other[1]));
        zoom(distance(now) / distance(before));
        pan(dx / 2, dy / 2); // as the middle between the fingers moves
      } else if (event.shiftKey || (event.buttons & 6) !== 0) pan(dx, dy);
      else turn(dx * RADIANS_A_PX, dy * RADIANS_A_PX);
    },
    onPointerUp: (event: PointerEvent) => void pointers.current.delete(event.pointerId),
    onPointerCancel: (event: PointerEvent) => void pointers.current.delete(event.pointerId),
    onContextMenu: (event: Event) => event.preventDefault(), // the right button moves the picture
    onDblClick: () => scene.look(STANDARD),
    onKeyDown: (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const arrow = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, Place>)[event.key];
      const spin = ({ "<": 1, ">": -1, ",": 1, ".": -1 } as Record<string, number>)[event.key];
      const view = VIEWS.find((entry) => entry.key === event.key);
      if (arrow) {
        if (event.shiftKey) pan(arrow[0] * KEY_PX, arrow[1] * KEY_PX);
        else turn(arrow[0] * KEY_RADIANS, arrow[1] * KEY_RADIANS);
      } else if (spin) scene.look({ ...scene.camera.value, turn: turned(scene.camera.value.turn, [0, 0, 1] as Vec3, -spin * KEY_RADIANS) });
      else if (view) scene.look({ ...STANDARD, turn: view.turn });
      else if (event.key === "+" || event.key === "=") zoom(ZOOM_STEP);
      else if (event.key === "-") zoom(1 / ZOOM_STEP);
      else if (event.key === "0") scene.look(STANDARD);
      else return;
      event.preventDefault();
    },
  };
}
