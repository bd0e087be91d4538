// theme.js - light or dark: as the system says, until the reader chooses. Colours are CSS
// variables; what is drawn on canvas reads them here.

const THEME_KEY = "quire-theme";
const COLOUR_NAMES = ["text", "muted", "faint", "line", "paper", "active", "pinned", "cached", "empty",
  "running", "waiting", "prefill", "decode", "time", "hit", "ideal", "preempted", "accent"];

class Theme {
  constructor() {
    this.listeners = [];
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", () => this.apply());
    this.chosen = this.stored();
    this.isPrinting = false;
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
    this.apply();
  }

  stored() {
    try {
      return localStorage.getItem(THEME_KEY);
    } catch {
      return null; // a file opened from disk may not be allowed to
    }
  }

  get isDark() {
    return !this.isPrinting && (this.chosen ? this.chosen === "dark" : this.system.matches);
  }

  toggle() {
    this.chosen = this.isDark ? "light" : "dark";
    try {
      localStorage.setItem(THEME_KEY, this.chosen);
    } catch { /* then it holds until the page is closed */ }
    this.apply();
  }

  print(isPrinting) {
    this.isPrinting = isPrinting;
    this.apply();
  }

  apply() {
    document.documentElement.dataset.theme = this.isDark ? "dark" : "light";
    const style = getComputedStyle(document.documentElement);
    for (const name of COLOUR_NAMES) this[name] = style.getPropertyValue(`--${name}`).trim();
    this.listeners.forEach((listener) => listener());
  }
}

// "#rrggbb" as three numbers, and mixed by weights that add up to one.
function rgbOf(colour) {
  return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
}

function mix(colours, weights) {
  const parts = [0, 1, 2].map((i) =>
    Math.round(colours.reduce((sum, colour, k) => sum + colour[i] * weights[k], 0)));
  return `rgb(${parts.join(",")})`;
}
