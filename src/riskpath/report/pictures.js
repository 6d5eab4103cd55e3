// What is under the pointer in a chart, the heat map of a benchmark, and paths on a grid.

function valueAt(one, at) {
  if (one.kind === "step") {
    let found = one.from ?? null;
    for (const [px, py] of one.points) if (px <= at) found = py; else break;
    return found;
  }
  return one.points.find(([px]) => px === at)?.[1] ?? null;
}

function rangeAt(one, at) {
  const band = (one.bands ?? []).at(-1)?.points.find(([px]) => px === at);
  return band ? ` [${number(band[1])}, ${number(band[2])}]` : "";
}

function hovering(svg, { x, y, xs, width, height, top, spec, shown }) {
  const bottom = height - MARGIN.bottom, format = spec.xTip ?? spec.xFormat ?? number;
  const line = shape("line", { y1: top, y2: bottom, stroke: "var(--soft)", "stroke-dasharray": "2 3", visibility: "hidden", "data-hover": "" }, svg);
  const dot = shape("circle", { r: 6, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, visibility: "hidden", "data-hover": "" }, svg);
  const steps = shown.some((one) => one.kind === "step"), points = shown.some((one) => one.tips);
  const places = [...new Set(shown.flatMap((one) => one.points.map((point) => point[0])))].filter(Number.isFinite);
  const leave = () => { line.setAttribute("visibility", "hidden"); dot.setAttribute("visibility", "hidden"); hideTip(); };
  const nearest = (px, py) => {
    let best = null;
    for (const one of shown) one.points.forEach(([ax, ay], i) => {
      const far = (x(ax) - px) ** 2 + (y(ay) - py) ** 2;
      if (Number.isFinite(far) && (!best || far < best.far)) best = { far, one, i, ax, ay };
    });
    return best;
  };
  const move = (event) => {
    const box = svg.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    if (px < MARGIN.left - 8 || px > width - MARGIN.right + 8 || py < top || py > bottom + 8) return leave();
    if (points) {
      const found = nearest(px, py);
      if (!found) return leave();
      for (const [key, value] of Object.entries({ cx: x(found.ax), cy: y(found.ay), visibility: "visible" })) dot.setAttribute(key, value);
      return showTip(event, found.one.label, [{ colour: found.one.colour, text: found.one.tips?.[found.i] ?? `${number(found.ax)}, ${number(found.ay)}` }]);
    }
    let at = xs[0] + ((px - MARGIN.left) / (width - MARGIN.left - MARGIN.right)) * (xs[1] - xs[0]);
    if (!steps && places.length) at = places.reduce((best, one) => (Math.abs(one - at) < Math.abs(best - at) ? one : best));
    for (const [key, value] of Object.entries({ x1: x(at), x2: x(at), visibility: "visible" })) line.setAttribute(key, value);
    const rows = shown.map((one) => ({ one, value: valueAt(one, at) })).filter(({ value }) => value !== null);
    const marks = (spec.marks ?? []).filter((mark) => mark.axis === "y" || Math.abs(x(mark.value) - px) < 9);
    showTip(event, `${spec.xLabel}: ${format(at)}`, [
      ...rows.map(({ one, value }) => ({ colour: one.colour, text: `${one.label}: ${number(value)}${rangeAt(one, at)}` })),
      ...marks.map((mark) => ({ colour: mark.colour, text: mark.label })),
    ]);
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", leave);
}

function mix(from, to, share) {
  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const a = parts(from), b = parts(to);
  return `#${a.map((one, i) => Math.round(one + (b[i] - one) * share).toString(16).padStart(2, "0")).join("")}`;
}

// Shares from −1 (vermilion) over 0 (pale) to 1 (blue); beyond, the colour stays.
function shareColour(share) {
  const size = Math.min(1, Math.abs(share));
  return mix("#f4f1ea", share < 0 ? DATA.palette[1] : DATA.palette[0], size);
}

function heatMap(bench) {
  const agents = [...new Set(bench.rows.map((row) => row.agent))];
  const tasks = [...new Set(bench.rows.map((row) => JSON.stringify([row.problem, row.risk])))].map((text) => JSON.parse(text));
  const problems = [...new Set(tasks.map((task) => task[0]))];
  const ordered = problems.flatMap((problem) => tasks.filter((task) => task[0] === problem));
  const find = new Map(bench.rows.map((row) => [JSON.stringify([row.agent, row.problem, row.risk]), row]));
  const label = Math.max(...ordered.map((task) => textWidth(task[1], 12))) + 14;
  const left = label + Math.max(...problems.map((problem) => textWidth(problem, 12))) + 14, size = 24;
  const least = left + 4 + agents.length * Math.max(64, ...agents.map((agent) => textWidth(agent, 12) * 1.08 + 10));
  const draw = (svg, width) => {
    const cell = Math.min(110, (width - left - 4) / agents.length), head = 24;
    agents.forEach((agent, i) => shape("text", { x: left + (i + 0.5) * cell, y: 15, "text-anchor": "middle", "font-size": 12, "font-weight": 600, fill: "var(--ink)" }, svg, fit(agent, cell)));
    let y = head, before = "";
    for (const [problem, risk] of ordered) {
      if (before && problem !== before) y += 8;
      if (problem !== before) shape("text", { x: 2, y: y + 16, "font-size": 12, "font-weight": 600, fill: "var(--ink)" }, svg, problem);
      before = problem;
      shape("text", { x: left - 10, y: y + 16, "text-anchor": "end", "font-size": 12, fill: "var(--ink)" }, svg, risk);
      agents.forEach((agent, i) => drawCell(svg, find.get(JSON.stringify([agent, problem, risk])), left + i * cell, y, cell, size));
      y += size;
    }
    return y + 4;
  };
  const explained = "1 is the exact optimum, 0 the policy with the best mean, below 0 is worse than that. Grey cells show the gap instead: there the optimum is hardly above the mean-optimal policy.";
  return figure("Share of the optimum's advantage", draw, { wide: true, least, explained });
}

function drawCell(svg, row, x, y, width, height) {
  const middle = { x: x + width / 2, y: y + 16, "text-anchor": "middle", "font-size": 12 };
  if (!row) return shape("text", { ...middle, fill: "var(--soft)" }, svg, "–");
  const has = row.share !== null, fill = has ? shareColour(row.share) : "var(--cell)";
  const box = shape("rect", { x: x + 0.5, y: y + 0.5, width: width - 1, height: height - 1, rx: 2, fill, class: "cell" }, svg);
  const ink = has ? (Math.abs(row.share) > 0.6 ? "#ffffff" : "#1b1f24") : "var(--soft)";
  const text = shape("text", { ...middle, fill: ink, "pointer-events": "none" }, svg, has ? row.share.toFixed(2).replace("-0.00", "0.00").replace("-", "−") : `gap ${number(row.gap, 3)}`);
  const tip = (event) => showTip(event, `${row.agent} on ${row.problem}, ${row.risk}`, [
    has ? { text: `share ${interval([row.share, row.share_low, row.share_high])}` } : { text: "no share: the optimum is hardly above the mean-optimal policy" },
    { text: `gap ${interval([row.gap, row.gap_low, row.gap_high])}` },
    { text: `value ${interval([row.value, row.value_low, row.value_high])}, optimum ${number(row.optimum)}` },
    { text: `${row.seeds} seeds, ${whole(row.steps)} steps${row.exact ? ", exact" : ""}` },
  ]);
  for (const name of ["pointermove", "pointerdown"]) box.addEventListener(name, tip);
  box.addEventListener("pointerleave", hideTip);
  return text;
}

const KINDS = { blue: "#56b4e9", yellow: "#f0e442", orange: "#e69f00", cliff: "#d55e00", start: "var(--cell)", goal: "#009e73", free: "var(--cell)" };

// Paths on a grid: one small picture for each different path.
function gridFigure(grid, seeds, name = "") {
  const rows = 1 + Math.max(...grid.cells.map((cell) => cell[0])), columns = 1 + Math.max(...grid.cells.map((cell) => cell[1]));
  const draw = (svg, width) => {
    const room = Math.min(width, Math.max(150, columns * 34)), size = Math.floor((room - 6) / columns);
    const across = Math.max(1, Math.floor(width / (room + 14))), tall = rows * size + 30;
    grid.paths.forEach((path, i) => drawPath(svg, grid, path, (i % across) * (room + 14) + 2, Math.floor(i / across) * tall, size, seeds));
    return Math.ceil(grid.paths.length / across) * tall + 4;
  };
  return figure(`Paths of the greedy policies${name}`, draw, { explained: "The width of a line shows how often an episode makes the move." });
}

function drawPath(svg, grid, path, left, top, size, seeds) {
  const all = path.seeds.length === seeds;
  const title = all ? (seeds > 1 ? `all ${seeds} seeds` : "the seed") : `seed${path.seeds.length > 1 ? "s" : ""} ${path.seeds.join(", ")}`;
  shape("text", { x: left, y: top + 14, "font-size": 12, fill: "var(--ink)" }, svg, title);
  for (const [row, column, kind] of grid.cells) {
    const box = { x: left + column * size + 1, y: top + 22 + row * size + 1, width: size - 2, height: size - 2, rx: 3 };
    shape("rect", { ...box, fill: KINDS[kind] ?? "var(--cell)", opacity: kind in KINDS && !["start", "free"].includes(kind) ? 0.75 : 1 }, svg);
    if (kind === "start" || kind === "goal") {
      shape("text", { x: box.x + (kind === "goal" ? size - 14 : 4), y: box.y + (kind === "goal" ? size - 7 : 13), "font-size": 11, "font-weight": 600, fill: kind === "goal" ? "#10231c" : "var(--soft)" }, svg, kind === "start" ? "S" : "G");
    }
  }
  const centre = (row, column) => [left + (column + 0.5) * size, top + 22 + (row + 0.5) * size];
  for (const [row, column, toRow, toColumn, often] of path.moves) {
    const [x1, y1] = centre(row, column), [x2, y2] = centre(toRow, toColumn), far = Math.hypot(x2 - x1, y2 - y1) || 1;
    const ux = (x2 - x1) / far, uy = (y2 - y1) / far, aside = 3;
    const at = (along) => [x1 + ux * along - uy * aside, y1 + uy * along + ux * aside].map((one) => one.toFixed(1));
    const wide = 0.8 + 3.4 * Math.min(1, often), opacity = 0.35 + 0.65 * Math.min(1, often);
    const group = shape("g", { opacity }, svg), [ax, ay] = at(far * 0.12), [bx, by] = at(far * 0.78), [cx, cy] = at(far * 0.92);
    shape("line", { x1: ax, y1: ay, x2: bx, y2: by, stroke: "var(--exact)", "stroke-width": wide }, group);
    const w = 2.5 + wide;
    shape("polygon", { points: `${cx},${cy} ${Number(bx) - uy * w},${Number(by) + ux * w} ${Number(bx) + uy * w},${Number(by) - ux * w}`, fill: "var(--exact)" }, group);
    const target = shape("line", { x1: ax, y1: ay, x2: cx, y2: cy, stroke: "transparent", "stroke-width": 12, "data-hover": "" }, svg);
    for (const name of ["pointermove", "pointerdown"]) target.addEventListener(name, (event) => showTip(event, title, [{ text: `row ${row}, column ${column} → row ${toRow}, column ${toColumn}: ${number(often, 3)} moves an episode` }]));
    target.addEventListener("pointerleave", hideTip);
  }
}
