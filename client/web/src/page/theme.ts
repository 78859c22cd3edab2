// Dark or light: as the system has it, until somebody chooses.
import { Store } from "./store";

export type Theme = "dark" | "light";
const KEY = "octavo-theme";

function saved(): Theme | null {
  const value = localStorage.getItem(KEY);
  return value === "dark" || value === "light" ? value : null;
}

export const theme = new Store<Theme>(saved() ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark"));

const apply = () => (document.documentElement.dataset.theme = theme.value);
theme.subscribe(() => {
  apply();
  localStorage.setItem(KEY, theme.value);
});
apply();
