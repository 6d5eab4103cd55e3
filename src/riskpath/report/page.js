// The page from top to bottom: heading, overview, comparisons, one section for each run, sweeps, benchmarks.

const MOST_COMPARED = 7;
const PAGE = document.getElementById("page");
const RUNS = DATA.runs.map((run, place) => ({ ...run, id: `run-${place}` }));
const ROWS = RUNS.flatMap((run) => run.settings.map((setting) => ({ run, setting })));

function heading() {
  const busy = RUNS.filter((run) => !run.finished).length + DATA.benches.filter((bench) => bench.missing.length).length + DATA.sweeps.filter((sweep) => sweep.missing).length;
  const counted = (count, name) => (count ? `${count} ${name}${count > 1 ? "s" : ""}` : "");
  const parts = [counted(RUNS.length, "run"), counted(DATA.sweeps.length, "sweep"), counted(DATA.benches.length, "benchmark"), busy ? `${busy} unfinished` : ""];
  const theme = element("button", { type: "button", id: "theme", title: "Switch between light and dark", onclick: () => {
    STATE.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    setTheme(STATE.theme);
    remember();
  } }, "Light / dark");
  const loads = DATA.refresh ? `; this page loads itself again every ${number(DATA.refresh)} s` : "";
  return element("header", {}, element("div", {}, element("h1", {}, DATA.title), element("p", { class: "soft" }, parts.filter(Boolean).join(", ") + loads)), theme);
}

const gap = ({ setting }) => (setting.optimum ? setting.optimum.value - setting.value[0] : null);
const several = ROWS.some(({ run }) => run.settings.length > 1);

const COLUMNS = [
  { label: "run", value: ({ run }) => run.title, cell: ({ run }) => element("a", { href: `#${run.id}` }, run.title) },
  { label: "agent", value: ({ run }) => run.agent },
  { label: "environment", value: ({ run }) => run.environment },
  { label: "measure", value: ({ setting }) => setting.risk },
  ...(several ? [{ label: "setting", value: ({ setting }) => setting.label }] : []),
  { label: "value", title: "The measure of the undiscounted return, mean over seeds, 95 % interval", numeric: true, value: ({ setting }) => setting.value[0], cell: ({ setting }) => intervalCell(setting.value) },
  { label: "optimum", title: "The best value of any policy, where it is known", numeric: true, value: ({ setting }) => setting.optimum?.value ?? null },
  { label: "gap", title: "Optimum minus value", numeric: true, value: gap },
  { label: "mean", title: "Mean return", numeric: true, value: ({ setting }) => setting.mean[0], cell: ({ setting }) => intervalCell(setting.mean) },
  { label: "training return", title: "Mean return of the last hundred training episodes, mean over seeds; exploration included", numeric: true, value: ({ setting }) => (setting.training ? mean(setting.training.returns.map((seed) => seed.at(-1))) : null) },
  { label: "seeds", numeric: true, value: ({ run }) => run.seeds },
  { label: "steps", numeric: true, value: ({ run }) => run.steps, cell: ({ run }) => whole(run.steps) },
  { label: "state", value: ({ run }) => (run.finished ? "finished" : "unfinished"), cell: stateBadge },
];

function stateBadge({ run }) {
  const text = run.finished ? "finished" : run.planned ? `${Math.floor((100 * run.steps) / run.planned)} % trained` : "unfinished";
  return element("span", { class: `badge${run.finished ? "" : " busy"}` }, text);
}

// Runs for the same measure in the same environment, side by side; the filter of the table chooses among them.
function compare(place, rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = `${row.run.environment}, ${row.setting.risk}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const chosen = [...groups].filter(([, members]) => members.length > 1);
  const key = JSON.stringify(chosen.map(([name, members]) => [name, members.slice(0, MOST_COMPARED).map(({ run, setting }) => [run.id, setting.label])]));
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...(chosen.length ? [element("h2", {}, "Compared")] : []));
  for (const [name, members] of chosen) place.append(lazily(`Compared: ${name}`, () => comparison(name, members)));
}

function comparison(name, members) {
  const shown = members.slice(0, MOST_COMPARED), agents = shown.map(({ run }) => run.agent);
  const label = ({ run, setting }) => (run.settings.length > 1 ? `${run.title}, ${setting.label}` : agents.filter((one) => one === run.agent).length > 1 ? run.title : run.agent);
  const named = shown.map((row) => ({ label: label(row), tint: row.run.agent, setting: row.setting }));
  const optima = shown.map(({ setting }) => setting.optimum).filter(Boolean), curves = named.filter(({ setting }) => setting.curve);
  const optimum = optima.find((one) => optima.every((other) => Math.abs(other.value - one.value) <= 1e-6 * Math.max(1, Math.abs(one.value)))) ?? null;
  const note = members.length > shown.length ? `The first ${shown.length} of ${members.length}; filter or sort the table to choose others.` : "";
  return element("section", {}, element("h3", {}, name), element("p", { class: "note" }, note),
    element("div", { class: "figures" }, ...(curves.length ? [curveChart("Learning curves", curves, optimum)] : []), lawChart("Return distributions", named, optimum)));
}

// Make something only when it comes near the screen.
function lazily(name, make) {
  const place = element("div", { style: "min-height: 320px", "aria-label": name });
  const watcher = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watcher.disconnect();
    place.style.minHeight = "";
    place.replaceChildren(make());
  }, { rootMargin: "400px" });
  watcher.observe(place);
  return place;
}

function definitions(pairs) {
  return element("dl", {}, ...Object.entries(pairs).flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)]));
}

function runSection(run) {
  const inside = element("div", { class: "inside" });
  const first = run.settings[0], more = run.settings.length > 1 ? `${run.settings.length} settings` : `${first.risk} ${interval(first.value)}`;
  const summary = element("summary", {}, element("b", {}, run.title), element("span", { class: "soft" }, `${run.agent} on ${run.environment}, ${more}`), stateBadge({ run }));
  const made = element("details", { class: "run", id: run.id }, summary, inside);
  made.addEventListener("toggle", () => {
    STATE.open[run.id] = made.open;
    remember();
    if (made.open && !inside.childNodes.length) fillRun(run, inside);
  });
  made.open = STATE.open[run.id] ?? RUNS.length <= 3;
  return made;
}

function fillRun(run, inside) {
  inside.append(runFigures(run));
  for (const note of run.notes) inside.append(element("p", { class: "note" }, note));
  for (const setting of run.settings) {
    const name = run.settings.length > 1 ? `, ${setting.label}` : "", how = setting.exact ? "exact" : `from ${whole(setting.episodes)} episodes`;
    inside.append(element("h3", {}, `Every seed${name} (${how})`), plainTable(
      ["seed", setting.risk, "discounted", "own estimate (discounted)", ...trainingColumns(setting).map(([heading]) => heading)],
      setting.values.map((value, seed) => [seed, value, setting.discounted[seed], setting.estimates[seed], ...trainingColumns(setting).map(([, seeds]) => seeds[seed].at(-1))]),
    ));
    inside.append(element("details", { class: "more" }, element("summary", {}, `Hyperparameters${name}`), element("div", { class: "columns" }, ...halves(setting.hyperparameters))));
  }
  inside.append(element("details", { class: "more" }, element("summary", {}, "Environment and versions"), element("div", { class: "columns" }, ...halves(run.about))));
}

// The last hundred training episodes of each seed.
function trainingColumns(setting) {
  if (!setting.training) return [];
  const { returns, risks, lengths } = setting.training, own = setting.discount === 1 ? setting.risk : `discounted ${setting.risk}`;
  return [["training: return", returns], [`training: ${own}`, risks], ["training: length", lengths]];
}

function halves(pairs) {
  const entries = Object.entries(pairs), half = entries.length > 8 ? Math.ceil(entries.length / 2) : entries.length;
  return [entries.slice(0, half), entries.slice(half)].filter((part) => part.length).map((part) => definitions(Object.fromEntries(part)));
}

function benchSection(bench, place) {
  const score = (key) => (row) => (row[key] === null ? ["–"] : intervalCell([row[key], row[`${key}_low`], row[`${key}_high`]]));
  const columns = [
    ...["agent", "problem", "risk"].map((key) => ({ label: key === "risk" ? "measure" : key, value: (row) => row[key] })),
    { label: "share", title: "Share of the optimum's advantage over the mean-optimal policy", numeric: true, value: (row) => row.share, cell: score("share") },
    { label: "gap", title: "Optimum minus value", numeric: true, value: (row) => row.gap, cell: score("gap") },
    { label: "value", numeric: true, value: (row) => row.value, cell: score("value") },
    ...[["mean_optimal", "mean-optimal"], ["optimum", "optimum"], ["seeds", "seeds"]].map(([key, label]) => ({ label, numeric: true, value: (row) => row[key] })),
    { label: "steps", numeric: true, value: (row) => row.steps, cell: (row) => whole(row.steps) },
    { label: "seconds", numeric: true, value: (row) => row.seconds },
    { label: "device", value: (row) => row.device },
    { label: "versions", value: (row) => Object.entries(row.versions ?? {}).map((pair) => pair.join(" ")).join(", ") },
  ];
  const made = element("section", { id: `bench-${place}` }, element("h2", {}, `Benchmark: ${bench.title}`), element("p", { class: "soft" }, bench.command));
  const troubles = [bench.missing.length ? `Not finished: ${bench.missing.join("; ")}.` : "", ...Object.entries(bench.failed).map(([name, why]) => `${name} failed: ${why}`)];
  for (const line of troubles.filter(Boolean)) made.append(element("p", { class: "note" }, line));
  if (bench.rows.length) made.append(heatMap(bench));
  if (bench.profiles.length) made.append(element("div", { class: "figures" }, profileChart(bench)));
  made.append(element("h3", {}, "Both scores"), sortableTable(`bench-table-${place}`, "the benchmark", columns, bench.rows));
  return made;
}

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.matches("details.run")) { target.open = true; target.scrollIntoView(); }
}

function build() {
  PAGE.append(heading());
  if (RUNS.length) {
    const compared = element("div", { id: "compared" });
    PAGE.append(element("h2", {}, "Overview"), sortableTable("runs", "the runs", COLUMNS, ROWS, (rows) => compare(compared, rows)), compared);
    PAGE.append(element("h2", {}, "Runs"), ...RUNS.map(runSection));
  }
  DATA.sweeps.forEach((sweep, place) => PAGE.append(sweepSection(sweep, place)));
  DATA.benches.forEach((bench, place) => PAGE.append(benchSection(bench, place)));
  PAGE.append(element("footer", {}, `Made by riskpath ${DATA.version}. Intervals are 95 % bootstrap intervals over seeds and episodes.`));
}

build();
window.addEventListener("hashchange", openTarget);
PAGE.addEventListener("click", (event) => { if (event.target.closest("a[href^='#']")) setTimeout(openTarget); });
if (STATE.y && !location.hash) window.scrollTo(0, STATE.y);
else openTarget();
window.addEventListener("pagehide", () => { STATE.y = window.scrollY; remember(); });
if (DATA.refresh) {
  setInterval(() => {
    if (!document.hidden && document.activeElement?.tagName !== "INPUT" && TIP.hidden) location.reload();
  }, 1000 * DATA.refresh);
}
