// Specs that this browser keeps by name.
import { Store } from "../store";
import type { Values } from "./fields";

export interface Saved {
  values: Values;
  further: string;
}
const KEY = "octavo-specs";

function load(): Record<string, Saved> {
  try {
    const all = JSON.parse(localStorage.getItem(KEY) ?? "{}") as unknown;
    return typeof all === "object" && all !== null && !Array.isArray(all) ? (all as Record<string, Saved>) : {};
  } catch {
    return {}; // somebody else's text
  }
}

export const saved = new Store<Record<string, Saved>>(load());
saved.subscribe(() => localStorage.setItem(KEY, JSON.stringify(saved.value)));

export const keep = (name: string, spec: Saved) => saved.set({ ...saved.value, [name]: spec });
export function forget(name: string): void {
  const { [name]: _, ...others } = saved.value;
  saved.set(others);
}
