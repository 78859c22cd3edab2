// The frame of all pages: which one is shown, whether the instrument can be seen, and who may come in.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { connection, invite } from "./connection";
import { useEndings } from "./held/endings";
import { Held } from "./held/held";
import { isAtWork } from "./jobs/job_words";
import { Jobs } from "./jobs/jobs";
import { Live } from "./live/live";
import { Dialog } from "./parts/dialog";
import { pages } from "./parts/links";
import { Scan } from "./scan/scan";
import { Server } from "./server/server";
import { Signal } from "./signal/signal";
import { tell, Toasts } from "./parts/toasts";
import { useReadOnly } from "./rights";
import { useStore } from "./store";
import { theme } from "./theme";
import { HASH as VOLUME_3D, Volume3d } from "./volume3d/volume3d";

// A page may be shown with something chosen: #jobs/<id> shows jobs/<id>.
const PAGES: { hash: string; text: string; page: ComponentType<{ chosen: string }> }[] = [
  { hash: "#live", text: "Live", page: Live },
  { hash: "#signal", text: "Signal", page: Signal },
  { hash: "#held", text: "Held", page: Held },
  { hash: VOLUME_3D, text: "3-D", page: Volume3d },
  { hash: "#scan", text: "Scan", page: Scan },
  { hash: "#jobs", text: "Jobs", page: Jobs },
  { hash: "#server", text: "Server", page: Server },
];

/** A message, which may be a sentence or several, within one: without the stop at its end. */
const sentence = (message: string) => message.replace(/\.$/, "");

for (const entry of PAGES) pages.add(entry.hash);

function useHash(): string {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

export function App() {
  const hash = useHash();
  const phase = useStore(connection.phase);
  const daemon = useStore(connection.daemon);
  const hello = useStore(connection.hello);
  const link = useStore(connection.link);
  const shade = useStore(theme);
  const held = [...useStore(connection.volumes).values()].filter((volume) => volume.state === "HELD").length;
  const [invitation, setInvitation] = useState("");
  const atWork = [...useStore(connection.jobs).values()].filter(isAtWork).length;
  useEndings(false, useStore(connection.operations));
  const readOnly = useReadOnly();
  const [place, chosen = ""] = hash.split("/");
  const page = PAGES.find((entry) => entry.hash === place) ?? PAGES[0];
  const badges: Record<string, { count: number; text: string }> = { "#held": { count: held, text: "held" }, "#jobs": { count: atWork, text: "at work or waiting" } };
  useEffect(() => {
    document.title = `${page.text} – Octavo`;
  }, [page]);
  if (phase.name === "outside") return <Outside message={phase.message} />;
  return (
    <>
      <header class="top row">
        <h1><img src="./icon.svg" alt="" width="24" height="24" /> Octavo</h1>
        <nav aria-label="Pages">
          {PAGES.map((entry) => (
            <a key={entry.hash} href={entry.hash} aria-current={entry === page ? "page" : undefined}>{entry.text}{badges[entry.hash]?.count > 0 ? <span class="badge" role="img" aria-label={`${badges[entry.hash].count} ${badges[entry.hash].text}`}>{badges[entry.hash].count}</span> : null}</a>
          ))}
        </nav>
        <span class="gap" />
        {hello && readOnly && <span class="note" title={readOnly}>read only</span>}
        <span class={`link ${phase.name === "open" && daemon.up ? "up" : "away"}`} title={`octavod at ${hello?.daemon ?? "?"}${daemon.caller ? `, as ${daemon.caller.name}` : ""}; ${link.mbit_s ? `${Math.round(link.mbit_s)} Mbit/s measured` : "bandwidth not measured yet"}`}>
          {phase.name !== "open" ? "viewer away" : !daemon.up ? "octavod away" : `connected, ${link.rtt_ms < 1 ? "< 1" : Math.round(link.rtt_ms)} ms`}
        </span>
        <button type="button" onClick={() => invite().then(setInvitation, (error: Error) => tell(error.message))} title="Make an address that lets one more browser in">Add a browser…</button>
        <button type="button" onClick={() => theme.set(shade === "dark" ? "light" : "dark")} title="Dark for a dim lab, light for a bright room">{shade === "dark" ? "Light theme" : "Dark theme"}</button>
      </header>
      {phase.name === "lost" && <p class="banner" role="alert">No connection to octavo web: {phase.message}. It is tried again all the time; the pictures are the last ones that came.</p>}
      {phase.name === "open" && daemon.refused && <p class="banner" role="alert" data-refused>octavod at {hello?.daemon} does not tell octavo web of its volumes. {sentence(daemon.message)}. It is tried again all the time; what is seen is the last that came.</p>}
      {phase.name === "open" && !daemon.up && !daemon.refused && <p class="banner" role="alert">octavod at {hello?.daemon} does not answer{daemon.message ? `: ${sentence(daemon.message)}` : ""}. It is tried again all the time; the pictures are the last ones that came.</p>}
      {phase.name === "open" && daemon.up && daemon.message && <p class="banner mild" role="status">octavod says: {sentence(daemon.message)}.</p>}
      <main id="main"><page.page chosen={chosen} /></main>
      {invitation && (
        <Dialog title="One more browser" close={() => setInvitation("")} submit={() => setInvitation("")} actions={<button type="submit" class="primary">Done</button>}>
          <p>This address works once, within twelve hours. Whoever opens it sees and can do what you can.</p>
          <label class="field">Address <input type="text" readOnly autofocus value={invitation} onFocus={(event) => event.currentTarget.select()} /></label>
        </Dialog>
      )}
      <Toasts />
    </>
  );
}

export function Outside(props: { message: string }) {
  return (
    <main class="outside">
      <h1><img src="./icon.svg" alt="" width="32" height="32" /> Octavo</h1>
      <p role="alert">This browser is not let in: {props.message}.</p>
      <p>On the computer that runs it, <code>octavo web</code> prints an address that lets one browser in. Once it was used, the next one is printed. A browser that is in makes more with “Add a browser”.</p>
    </main>
  );
}
