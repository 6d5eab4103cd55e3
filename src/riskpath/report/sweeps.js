// Sweeps: values against each axis, learning curves of the best combinations, and a table of all of them.

const MOST_LINES = 7;

const settingText = (value) => (value instanceof Array ? `(${value.join(", ")})` : typeof value === "number" ? number(value) : String(value));
const settingsText = (settings, left) => Object.entries(settings).filter(([axis]) => axis !== left).map(([axis, value]) => `${axis.split(".").pop()} ${settingText(value)}`).join(", ");

// One line for each combination of the other axes; the best ones if there are many. Values that are no numbers are places.
function axisChart(sweep, axis) {
  const values = [...new Map(sweep.rows.map((row) => [JSON.stringify(row.settings[axis]), row.settings[axis]])).values()];
  const numbers = values.every((value) => typeof value === "number"), positive = numbers && values.every((value) => value > 0);
  const log = positive && Math.max(...values) / Math.min(...values) >= 20;
  const place = (value) => (numbers ? (log ? Math.log10(value) : value) : values.findIndex((one) => JSON.stringify(one) === JSON.stringify(value)));
  const lines = new Map();
  for (const row of sweep.rows) {
    const label = settingsText(row.settings, axis) || "mean over seeds";
    lines.set(label, [...(lines.get(label) ?? []), row]);
  }
  const best = (rows) => Math.max(...rows.map((row) => mean(row.values)));
  const shown = [...lines].sort((a, b) => best(b[1]) - best(a[1])).slice(0, MOST_LINES), tints = colours(shown.map(([label]) => label));
  const series = shown.map(([label, rows], i) => {
    const sorted = [...rows].sort((a, b) => place(a.settings[axis]) - place(b.settings[axis]));
    return {
      label, colour: tints[i], kind: "points",
      points: sorted.map((row) => [place(row.settings[axis]), mean(row.values)]),
      bands: sorted.some((row) => row.values.length > 1) ? [{ points: sorted.map((row) => [place(row.settings[axis]), Math.min(...row.values), Math.max(...row.values)]), opacity: 0.12 }] : undefined,
    };
  });
  const exact = (x) => values.find((value) => Math.abs(place(value) - x) < 1e-9);
  const format = (x) => (log ? number(10 ** x, 2) : numbers ? number(x) : exact(x) === undefined ? "" : settingText(exact(x)));
  const more = lines.size > shown.length ? ` The best ${shown.length} of ${lines.size} lines.` : "";
  return chart(`Value against ${axis}`, { xLabel: axis, yLabel: "value", xFormat: format, xTip: format, series },
    { explained: `Mean over seeds; the band reaches from the worst to the best seed.${more}` });
}

function sweepCurves(sweep) {
  const rows = sweep.rows.filter((row) => row.curves.length && row.curves.every((curve) => curve.length)).sort((a, b) => mean(b.values) - mean(a.values)).slice(0, MOST_LINES);
  if (!rows.length) return [];
  const labels = rows.map((row) => settingsText(row.settings)), tints = colours(labels);
  const series = rows.map((row, i) => ({
    label: labels[i], colour: tints[i], kind: "points",
    points: row.curves[0].map(([step], at) => [step, mean(row.curves.map((curve) => curve[at]?.[1]).filter(Number.isFinite))]),
  }));
  return [chart("Learning curves of the best combinations", { xLabel: "environment steps", yLabel: "value", xFormat: short, xTip: whole, series }, { explained: "Mean over seeds." })];
}

function sweepSection(sweep, place) {
  const columns = [
    ...sweep.axes.map((axis) => ({ label: axis, numeric: sweep.rows.every((row) => typeof row.settings[axis] === "number"), value: (row) => row.settings[axis] instanceof Array ? settingText(row.settings[axis]) : row.settings[axis] })),
    { label: "value", title: "The agent's measure of the return, mean over seeds", numeric: true, value: (row) => mean(row.values) },
    { label: "worst seed", numeric: true, value: (row) => Math.min(...row.values) },
    { label: "best seed", numeric: true, value: (row) => Math.max(...row.values) },
    { label: "mean return", numeric: true, value: (row) => mean(row.means) },
    { label: "seeds", numeric: true, value: (row) => row.values.length },
  ];
  const made = element("section", { id: `sweep-${place}` }, element("h2", {}, `Sweep: ${sweep.title}`), element("p", { class: "soft" }, `${sweep.agent} on ${sweep.environment}, over ${sweep.axes.join(", ")}`));
  const troubles = [sweep.missing ? `${sweep.missing} lanes are not finished.` : "", ...Object.entries(sweep.failed).map(([name, why]) => `${name} failed: ${why}`)];
  for (const line of troubles.filter(Boolean)) made.append(element("p", { class: "note" }, line));
  const varied = sweep.axes.filter((axis) => new Set(sweep.rows.map((row) => JSON.stringify(row.settings[axis]))).size > 1);
  if (sweep.rows.length) made.append(element("div", { class: "figures" }, ...varied.map((axis) => axisChart(sweep, axis)), ...sweepCurves(sweep)));
  made.append(element("h3", {}, "Combinations"), sortableTable(`sweep-table-${place}`, "the sweep", columns, sweep.rows));
  return made;
}
