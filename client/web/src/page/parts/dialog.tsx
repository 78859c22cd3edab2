// A question that waits for its answer. Escape is "no"; `safe` puts the focus on that; `no` are its words, where "Cancel" could be taken
// for what is asked.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Dialog(props: { title: string; close: () => void; submit: () => void; safe?: boolean; no?: string; children: ComponentChildren; actions: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current!.showModal();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onClose={props.close} onCancel={props.close}>
      <form onSubmit={(event) => (event.preventDefault(), props.submit())}>
        <h2 id="dialog-title">{props.title}</h2>
        {props.children}
        <div class="row actions">
          <button type="button" autofocus={props.safe} onClick={props.close}>{props.no ?? "Cancel"}</button>
          {props.actions}
        </div>
      </form>
    </dialog>
  );
}
