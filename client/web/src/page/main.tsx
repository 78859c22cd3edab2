// The beginning: exchanges the token of the address for a session, then shows the pages.
import { render } from "preact";

import { App, Outside } from "./app";
import { connection, enter } from "./connection";
import "./theme";

async function begin(): Promise<void> {
  const root = document.getElementById("app")!;
  const token = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
  if (token) {
    // Out of the address bar and the history before anything else.
    history.replaceState(null, "", "#live");
    try {
      await enter(token);
    } catch (error) {
      // Somebody may be in already, and open a used address once more.
      if ((await fetch("api/status")).status === 401) return render(<Outside message={(error as Error).message} />, root);
    }
  }
  connection.start();
  render(<App />, root);
}

void begin();
