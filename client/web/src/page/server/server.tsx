// Server: its memory, devices, streams, events and versions. Nothing here changes anything.
import { useEffect } from "preact/hooks";

import { connection } from "../connection";
import { useStore } from "../store";
import { Devices, Sources, Storage } from "./devices";
import { Events, Warnings } from "./happenings";
import { Memory } from "./memory";
import { Quotas } from "./quotas";
import { Streams } from "./streams";
import { Versions } from "./versions";

export function Server() {
  const { memory, info, viewer } = useStore(connection.server);
  const { events, left_out } = useStore(connection.events);
  const address = useStore(connection.hello)?.daemon ?? "";
  useEffect(() => {
    connection.lookAt({ server: true });
    return () => connection.lookAt({ server: false });
  }, []);
  return (
    <div class="server-page">
      <div class="column">
        {memory ? <Memory memory={memory} /> : <section class="panel" aria-label="Memory"><h2>Memory</h2><p class="note" role="status">octavod has not told yet.</p></section>}
        <Events events={events} leftOut={left_out} />
        {viewer && <Streams viewer={viewer} />}
      </div>
      <div class="column">
        <Warnings info={info} />
        {info && <Versions info={info} viewer={viewer} address={address} />}
        {info && <Quotas info={info} />}
        {memory && <Devices devices={memory.devices} info={info} />}
        {info && <Storage roots={info.storage} />}
        {info && <Sources sources={info.sources} />}
      </div>
    </div>
  );
}
