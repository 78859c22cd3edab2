// What happened, in words: told at the bottom for a while, errors until they are closed.
import { Store, useStore } from "../store";

interface Toast {
  id: number;
  text: string;
  error: boolean;
}
const toasts = new Store<Toast[]>([]);
const LIFE_MS = 6000;
const MOST = 5;
let last = 0;

const drop = (id: number) => toasts.set(toasts.value.filter((toast) => toast.id !== id));

export function say(text: string): void {
  const id = ++last;
  toasts.set([...toasts.value, { id, text, error: false }].slice(-MOST));
  setTimeout(() => drop(id), LIFE_MS);
}

/** An error. */
export function tell(text: string): void {
  toasts.set([...toasts.value.filter((toast) => toast.text !== text), { id: ++last, text, error: true }].slice(-MOST));
}

export function Toasts() {
  const all = useStore(toasts);
  return (
    <div class="toasts">
      <div role="status" aria-live="polite">{all.filter((toast) => !toast.error).map((toast) => <p key={toast.id} class="toast">{toast.text}</p>)}</div>
      <div role="alert">
        {all.filter((toast) => toast.error).map((toast) => (
          <p key={toast.id} class="toast error">{toast.text} <button type="button" onClick={() => drop(toast.id)}>Close</button></p>
        ))}
      </div>
    </div>
  );
}
