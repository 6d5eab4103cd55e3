// A chart with lines, steps, points, bands and marks, drawn as SVG at the width of its place.

const MARGIN = { left: 58, right: 14, bottom: 40, top: 8 };
const measure = document.createElement("canvas").getContext("2d");

function textWidth(text, size = 12) {
  measure.font = `${size}px system-ui, sans-serif`;
  return measure.measureText(text).width;
}

function fit(text, room, size = 12) {
  if (textWidth(text, size) <= room) return text;
  let cut = text.length;
  while (cut > 1 && textWidth(`${text.slice(0, cut)}…`, size) > room) cut -= 1;
  return `${text.slice(0, cut)}…`;
}

function ticks(low, high, most) {
  const raw = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((x) => x * power).find((x) => x >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// A figure with a caption and a button that saves it; `draw(svg, width)` returns its height, or nothing.
function figure(title, draw, { wide = false, least = 0, explained = "" } = {}) {
  const canvas = element("div", { class: "canvas" });
  const save = element("button", { type: "button", title: "Save this figure as an SVG file" }, "Save SVG");
  const made = element("figure", { class: wide ? "wide" : null }, element("figcaption", {}, element("b", {}, title), save), canvas);
  if (explained) made.append(element("p", { class: "note" }, explained));
  let drawn = 0;
  const redraw = () => {
    const width = Math.max(Math.floor(canvas.clientWidth), least);
    if (!canvas.clientWidth || width === drawn) return;
    drawn = width;
    const svg = shape("svg", { width, role: "img", "aria-label": title });
    canvas.replaceChildren(svg);
    const height = draw(svg, width);
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  };
  new ResizeObserver(redraw).observe(canvas);
  save.addEventListener("click", () => saveSvg(canvas.querySelector("svg"), title));
  return made;
}

// Save a figure as a file of its own: variables of the style become colours, and what hovers is left out.
function saveSvg(svg, title) {
  const url = URL.createObjectURL(new Blob([svgText(svg, title)], { type: "image/svg+xml" }));
  const link = element("a", { href: url, download: `${title.replace(/[^\w.-]+/g, "-").replace(/^-|-$/g, "")}.svg` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function svgText(svg, title) {
  const copy = svg.cloneNode(true), style = getComputedStyle(document.documentElement);
  copy.querySelectorAll("[data-hover]").forEach((part) => part.remove());
  for (const part of copy.querySelectorAll("*")) {
    for (const key of ["fill", "stroke"]) {
      const name = /^var\((.+)\)$/.exec(part.getAttribute(key) ?? "");
      if (name) part.setAttribute(key, style.getPropertyValue(name[1]).trim());
    }
  }
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "sans-serif");
  const back = shape("rect", { width: "100%", height: "100%", fill: style.getPropertyValue("--ground").trim() });
  copy.prepend(shape("title", {}, null, title), back);
  return new XMLSerializer().serializeToString(copy);
}

// Legend above the axes; returns its height.
function legend(svg, entries, width) {
  let x = 4, y = 12;
  for (const { label, colour, dash, band } of entries) {
    const text = fit(label, width - 36), room = textWidth(text) + 40;
    if (x > 4 && x + room > width) { x = 4; y += 18; }
    if (band) shape("rect", { x, y: y - 5, width: 22, height: 10, fill: colour, opacity: 0.25 }, svg);
    shape("line", { x1: x, x2: x + 22, y1: y, y2: y, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash }, svg);
    shape("text", { x: x + 28, y: y + 4, "font-size": 12, fill: "var(--ink)" }, svg, text);
    x += room + 6;
  }
  return entries.length ? y + 10 : 0;
}

/* spec: xLabel, yLabel, xFormat, yFrom (least top of y), series and marks.
   series: label, colour, points [[x, y]], kind "line" | "step" | "points", bands [{points: [[x, low, high]], opacity}],
   dash, width, opacity, faint (neither in the legend nor under the pointer), tips (a text for each point).
   marks: axis "x" | "y", value, low, high, label, colour. */
function chart(title, spec, options) {
  return figure(title, (svg, width) => drawChart(svg, width, spec), options);
}

function extent(values, pad) {
  let low = Infinity, high = -Infinity;
  for (const x of values) if (Number.isFinite(x)) { low = Math.min(low, x); high = Math.max(high, x); }
  if (low > high) return [0, 1];
  if (low === high) { const by = Math.abs(low) * 0.1 || 1; return [low - by, high + by]; }
  return [low - pad * (high - low), high + pad * (high - low)];
}

function drawChart(svg, width, spec) {
  const marks = (spec.marks ?? []).filter((mark) => Number.isFinite(mark.value));
  const shown = spec.series.filter((one) => !one.faint && one.label);
  const top = MARGIN.top + legend(svg, [
    ...shown.map((one) => ({ ...one, band: Boolean(one.bands) })),
    ...marks.map((mark) => ({ label: mark.label, colour: mark.colour, dash: "5 4" })),
  ], width);
  const height = top + Math.max(170, Math.min(250, width * 0.52)) + MARGIN.bottom;
  const all = (at) => [
    ...spec.series.flatMap((one) => one.points.map((point) => point[at])),
    ...marks.filter((mark) => mark.axis === "xy"[at]).map((mark) => mark.value),
    ...(at ? spec.series.flatMap((one) => (one.bands ?? []).flatMap((band) => band.points.flatMap((p) => [p[1], p[2]]))) : []),
  ];
  const xs = spec.xDomain ?? extent(all(0), spec.xPad ?? 0.03), ys = spec.yDomain ?? extent(all(1), 0.06);
  const x = (value) => MARGIN.left + ((value - xs[0]) / (xs[1] - xs[0])) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => height - MARGIN.bottom - ((value - ys[0]) / (ys[1] - ys[0])) * (height - MARGIN.bottom - top);
  axes(svg, { x, y, xs, ys, width, height, top, spec });
  const inside = (value) => y(Math.max(ys[0], Math.min(ys[1], value))).toFixed(1);
  for (const one of spec.series) for (const band of one.bands ?? []) {
    const there = band.points.map(([at, , high]) => `${x(at).toFixed(1)},${inside(high)}`);
    const back = band.points.map(([at, low]) => `${x(at).toFixed(1)},${inside(low)}`).reverse();
    shape("polygon", { points: [...there, ...back].join(" "), fill: one.colour, opacity: band.opacity }, svg);
  }
  for (const mark of marks) drawMark(svg, mark, { x, y, xs, width, height, top });
  for (const one of spec.series) drawSeries(svg, one, x, y, xs[1]);
  hovering(svg, { x, y, xs, width, height, top, spec, shown });
  return height;
}

function axes(svg, { x, y, xs, ys, width, height, top, spec }) {
  const bottom = height - MARGIN.bottom, format = spec.xFormat ?? number;
  for (const tick of ticks(...ys, (bottom - top) / 42)) {
    shape("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick), stroke: "var(--grid)" }, svg);
    shape("text", { x: MARGIN.left - 7, y: y(tick) + 4, "text-anchor": "end", "font-size": 11, fill: "var(--soft)" }, svg, number(tick));
  }
  for (const tick of ticks(...xs, (width - MARGIN.left) / 80)) {
    shape("line", { x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4, stroke: "var(--soft)" }, svg);
    shape("text", { x: x(tick), y: bottom + 16, "text-anchor": "middle", "font-size": 11, fill: "var(--soft)" }, svg, format(tick));
  }
  shape("path", { d: `M${MARGIN.left},${top}V${bottom}H${width - MARGIN.right}`, fill: "none", stroke: "var(--soft)" }, svg);
  const middle = (MARGIN.left + width - MARGIN.right) / 2, centre = (top + bottom) / 2;
  shape("text", { x: middle, y: bottom + 34, "text-anchor": "middle", "font-size": 12, fill: "var(--ink)" }, svg, fit(spec.xLabel, width));
  const turned = { x: 0, y: 0, transform: `translate(13 ${centre}) rotate(-90)`, "text-anchor": "middle", "font-size": 12, fill: "var(--ink)" };
  shape("text", turned, svg, fit(spec.yLabel, bottom - top));
}

function drawMark(svg, mark, { x, y, xs, width, height, top }) {
  const bottom = height - MARGIN.bottom, right = width - MARGIN.right, upright = mark.axis === "x";
  if (upright && Number.isFinite(mark.low) && mark.high > mark.low) {
    const low = x(Math.max(xs[0], mark.low)), high = x(Math.min(xs[1], mark.high));
    shape("rect", { x: low, width: high - low, y: top, height: bottom - top, fill: mark.colour, opacity: 0.12 }, svg);
  }
  const place = upright
    ? { x1: x(mark.value), x2: x(mark.value), y1: top, y2: bottom }
    : { x1: MARGIN.left, x2: right, y1: y(mark.value), y2: y(mark.value) };
  shape("line", { ...place, stroke: mark.colour, "stroke-width": 1.5, "stroke-dasharray": "5 4" }, svg);
}

function drawSeries(svg, one, x, y, last) {
  const style = { fill: "none", stroke: one.colour, "stroke-width": one.width ?? 2, "stroke-dasharray": one.dash, opacity: one.opacity, "stroke-linejoin": "round" };
  const at = one.points.filter((point) => Number.isFinite(point[0]) && Number.isFinite(point[1]));
  if (!at.length) return;
  if (one.kind === "step") {
    const parts = at.map(([px, py]) => `H${x(px).toFixed(1)}V${y(py).toFixed(1)}`);
    shape("path", { d: `M${x(at[0][0]).toFixed(1)},${y(one.from ?? at[0][1]).toFixed(1)}${parts.join("")}${one.toEnd ? `H${x(last).toFixed(1)}` : ""}`, ...style }, svg);
    return;
  }
  if (at.length > 1) shape("path", { d: `M${at.map(([px, py]) => `${x(px).toFixed(1)},${y(py).toFixed(1)}`).join("L")}`, ...style }, svg);
  if (one.kind === "points" || at.length === 1) {
    for (const [px, py] of at) shape("circle", { cx: x(px).toFixed(1), cy: y(py).toFixed(1), r: 3.5, fill: one.colour, opacity: one.opacity }, svg);
  }
}
