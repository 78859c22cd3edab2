// Names of the server as links to the page that shows them.
import type { ComponentChildren } from "preact";

import { shortName } from "../format";

/** The pages that there are, by their hash; app.tsx fills it in. */
export const pages = new Set<string>();

const PAGE_OF: Record<string, string> = { scans: "#live", volumes: "#held", jobs: "#jobs" };

/** The address of a name within the page; empty = no page shows it. */
export function hrefOf(name: string): string {
  const [collection, id] = name.split("/");
  return id && PAGE_OF[collection] ? `${PAGE_OF[collection]}/${id}` : "";
}

export function NameLink({ name, children }: { name: string; children?: ComponentChildren }) {
  const href = hrefOf(name);
  const text = children ?? shortName(name);
  return href ? <a href={href} title={name}>{text}</a> : <span title={name}>{text}</span>;
}

/** To a volume in 3-D, where there is such a page. */
export function In3d({ volume }: { volume: string }) {
  return pages.has("#3d") ? <a href={`#3d/${volume.split("/")[1]}`} aria-label={`${shortName(volume)} in 3-D`}>3-D</a> : null;
}
