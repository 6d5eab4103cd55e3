// Elements, numbers as text, the tooltip, and what the page remembers when it is loaded again.

const DATA = JSON.parse(document.getElementById("data").textContent);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function shape(name, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// A number with four significant digits.
function number(x, digits = 4) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-4) return x.toExponential(digits - 2).replace("e+", "e").replace(/-/g, "−");
  const text = size >= 10 ** (digits - 1) ? x.toFixed(0) : String(Number(x.toPrecision(digits)));
  return text.replace("-", "−");
}

// A number of steps: 4,000 or 1.5M on an axis.
const whole = (x) => (x === null ? "–" : Math.round(x).toLocaleString("en-US"));
function short(x) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(x) >= size) return `${number(x / size)}${unit}`;
  return number(x);
}

const interval = ([x, low, high]) => (low === high ? number(x) : `${number(x)} [${number(low)}, ${number(high)}]`);

function median(values) {
  return quantile(values, 0.5);
}

function quantile(values, level) {
  const sorted = [...values].sort((a, b) => a - b), at = level * (sorted.length - 1), low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

const mean = (values) => values.reduce((sum, x) => sum + x, 0) / values.length;

// Colours: that of the agent, and others of the palette where an agent is there twice.
function colours(labels) {
  const taken = new Set(labels.map((label) => DATA.colours[label]).filter(Boolean)), used = new Set();
  const free = DATA.palette.filter((colour) => !taken.has(colour));
  return labels.map((label, place) => {
    let colour = DATA.colours[label];
    if (!colour || used.has(colour)) colour = free.shift() ?? DATA.palette[place % DATA.palette.length];
    used.add(colour);
    return colour;
  });
}

// The tooltip: one element for all figures.
const TIP = element("div", { class: "tip", hidden: true, role: "status" });
document.body.append(TIP);

function showTip(event, heading, rows) {
  TIP.replaceChildren(element("div", { class: "soft" }, heading));
  for (const { colour, text } of rows) {
    TIP.append(element("div", {}, colour ? element("span", { class: "swatch", style: `background:${colour}` }) : null, text));
  }
  TIP.hidden = false;
  const width = TIP.offsetWidth, room = document.documentElement.clientWidth;
  const left = event.clientX + 16 + width > room ? event.clientX - width - 16 : event.clientX + 16;
  TIP.style.left = `${Math.max(4, Math.min(left, room - width - 4)) + window.scrollX}px`;
  TIP.style.top = `${Math.max(4, event.clientY - TIP.offsetHeight - 12) + window.scrollY}px`;
}

const hideTip = () => { TIP.hidden = true; };
window.addEventListener("scroll", hideTip, { passive: true });

// What is chosen (theme, order, filter, open sections, place) survives when the page is loaded again.
const MEMORY = `riskpath report ${location.pathname}`;
const STATE = { theme: null, tables: {}, open: {}, y: 0 };
try {
  Object.assign(STATE, JSON.parse(sessionStorage.getItem(MEMORY) ?? "{}"));
} catch { /* storage may be forbidden */ }

function remember() {
  try {
    sessionStorage.setItem(MEMORY, JSON.stringify(STATE));
  } catch { /* storage may be forbidden */ }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}
const preferred = window.matchMedia("(prefers-color-scheme: dark)");
setTheme(STATE.theme ?? (preferred.matches ? "dark" : "light"));
preferred.addEventListener("change", () => { if (!STATE.theme) setTheme(preferred.matches ? "dark" : "light"); });
