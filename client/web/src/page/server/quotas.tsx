// What the caller, which is octavo web with all its pages, uses of what it may use.
import type { QuotaRow, ServerInfo } from "../../wire/protocol";
import { amount, quotaText } from "../../wire/quotas";
import { connection } from "../connection";
import { useStore } from "../store";

const NEARLY = 0.9; // of a limit

function Use({ quota }: { quota: QuotaRow }) {
  const { kind, used, allowed } = quota;
  const text = quotaText(kind);
  const state = used >= allowed ? "problem" : used >= NEARLY * allowed ? "warning" : "";
  return (
    <div data-quota={kind} data-used={used} data-allowed={allowed}>
      <dt>{text}</dt>
      <dd><meter min="0" max={allowed} value={Math.min(used, allowed)} high={NEARLY * allowed} aria-label={text} /> <span class={state}>{amount(kind, used)} of {amount(kind, allowed)}{used >= allowed && ", all used"}</span></dd>
    </div>
  );
}

export function Quotas({ info }: { info: ServerInfo }) {
  const { caller } = useStore(connection.daemon);
  const limited = info.quotas.filter((quota) => quota.allowed > 0);
  if (limited.length === 0 && info.storage_roots.length === 0) return null;
  return (
    <section class="panel" id="quotas" aria-label="Quotas">
      <h2>Quotas</h2>
      <p class="note">What {caller?.name || "this viewer"} uses now, and may use at once. All browsers of this viewer count together.</p>
      {limited.length > 0 && <dl class="facts">{limited.map((quota) => <Use key={quota.kind} quota={quota} />)}</dl>}
      {info.storage_roots.length > 0 && (
        <p>Commits and imports may only name {info.storage_roots.map((root, i) => <span key={root} data-allowed-root={root}>{i > 0 && (i === info.storage_roots.length - 1 ? " and " : ", ")}<code class="wrap">{root}</code></span>)}.</p>
      )}
    </section>
  );
}
