// A value that components follow.
import { useLayoutEffect, useState } from "preact/hooks";

export class Store<T> {
  private readonly listeners = new Set<() => void>();
  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }
  set(value: T): void {
    if (Object.is(value, this.current)) return;
    this.current = value;
    for (const listener of [...this.listeners]) listener();
  }
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [, draw] = useState(0);
  const drawn = store.value;
  useLayoutEffect(() => {
    const again = () => draw((n) => n + 1);
    if (!Object.is(store.value, drawn)) again(); // it changed before anybody listened
    return store.subscribe(again);
  }, [store]);
  return drawn;
}
