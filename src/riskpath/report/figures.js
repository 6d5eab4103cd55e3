// From the records of runs to charts: learning curves, distributions, quantile functions, frontiers, profiles.

const FEW = 8;

function cumulative(law) {
  let sum = 0;
  return law.atoms.map((atom, i) => [atom, Math.min(1, (sum += law.probs[i]))]);
}

// The mean over seeds with its interval, the middle half of the seeds, and each seed as a faint line.
function curveSeries(curve, label, colour, alone) {
  const at = (i) => curve.seeds.map((seed) => seed[i]).filter((x) => x !== null);
  const middle = curve.steps.map((step, i) => [step, at(i).length ? mean(at(i)) : NaN]);
  const bands = curve.low.length ? [{ points: curve.steps.map((step, i) => [step, curve.low[i], curve.high[i]]), opacity: 0.2 }] : undefined;
  const seeds = !alone || curve.seeds.length < 2 ? [] : curve.seeds.map((seed) => ({ points: curve.steps.map((step, i) => [step, seed[i]]), colour, width: 0.8, opacity: 0.45, faint: true }));
  return [...seeds, { label, colour, points: middle, bands, kind: middle.length < 30 ? "points" : "line" }];
}

// A band must not make the curve itself flat: intervals far beyond the values are cut off at the edge of the chart.
function curveDomain(series, marks) {
  const inside = [...series.flatMap((one) => one.points.map((point) => point[1])), ...marks.map((mark) => mark.value)];
  const [low, high] = extent(inside, 0.06), room = high - low;
  const ends = extent([low, high, ...series.flatMap((one) => (one.bands ?? []).flatMap((band) => band.points.flatMap((p) => [p[1], p[2]])))], 0.03);
  return [Math.max(ends[0], low - room), Math.min(ends[1], high + room)];
}

function curveChart(title, named, optimum) {
  const tints = colours(named.map(({ tint }) => tint));
  const series = named.flatMap(({ label, setting }, i) => curveSeries(setting.curve, label, tints[i], named.length === 1));
  const marks = optimum ? [{ axis: "y", value: optimum.value, label: `optimum ${number(optimum.value)} (${optimum.how})`, colour: "var(--exact)" }] : [];
  const risks = [...new Set(named.map(({ setting }) => setting.risk))];
  return chart(title, {
    xLabel: "environment steps", yLabel: `${risks.length === 1 ? risks[0] : "risk"} of the return`, xFormat: short, xTip: whole,
    yDomain: curveDomain(series, marks), series, marks,
  }, { explained: named.some(({ setting }) => setting.curve.low.length) ? "Mean over seeds with its 95 % interval." : "" });
}

// What training episodes earn, exploration included: their mean, and the measure of the agent's own returns.
function trainingChart(setting, name) {
  const { steps, returns, risks } = setting.training, own = setting.discount === 1 ? setting.risk : `discounted ${setting.risk}`;
  const line = (seeds) => ({ steps, seeds, low: [], high: [] });
  const series = [
    ...curveSeries(line(returns), "mean return", DATA.palette[0], true),
    ...(setting.risk === "mean" && setting.discount === 1 ? [] : curveSeries(line(risks), own, DATA.palette[1], true)),
  ];
  return chart(`Training episodes${name}`, { xLabel: "environment steps", yLabel: "return", xFormat: short, xTip: whole, yDomain: curveDomain(series, []), series },
    { explained: `The last hundred episodes at each point, with exploration${returns.length > 1 ? "; mean over seeds, thin: each seed" : ""}.` });
}

function lawChart(title, named, optimum) {
  const tints = colours(named.map(({ tint }) => tint)), alone = named.length === 1, marks = [], series = [];
  if (optimum?.law) {
    series.push({ label: "return of the optimal policy", points: cumulative(optimum.law), from: 0, toEnd: true, kind: "step", colour: "var(--exact)", width: 2, dash: "1 3" });
  }
  named.forEach(({ label, setting }, i) => {
    if (alone) for (const law of setting.seed_laws.slice(0, FEW)) series.push({ points: cumulative(law), from: 0, toEnd: true, kind: "step", colour: tints[i], width: 0.8, opacity: 0.45, faint: true });
    series.push({ label, points: cumulative(setting.law), from: 0, toEnd: true, kind: "step", colour: tints[i] });
    const [value, low, high] = setting.value;
    marks.push({ axis: "x", value, low: alone ? low : undefined, high: alone ? high : undefined, colour: tints[i], label: `${alone ? "" : `${label}: `}${setting.risk} ${alone ? interval(setting.value) : number(value)}` });
    if (alone && setting.risk !== "mean") marks.push({ axis: "x", value: setting.mean[0], colour: DATA.grey, label: `mean ${interval(setting.mean)}` });
  });
  if (optimum) marks.push({ axis: "x", value: optimum.value, colour: "var(--exact)", label: `optimum ${number(optimum.value)} (${optimum.how})` });
  return chart(title, { xLabel: "return", yLabel: "probability of at most this return", yDomain: [0, 1.04], series, marks });
}

function quantileChart(setting, name) {
  const { levels, believed, realised } = setting.quantiles, average = (rows) => levels.map((level, i) => [level, mean(rows.map((row) => row[i]))]);
  const [colour, other] = [DATA.palette[1], DATA.palette[0]];
  const faint = (rows, tint) => (rows.length < 2 ? [] : rows.slice(0, FEW).map((row) => ({ points: levels.map((level, i) => [level, row[i]]), kind: "line", colour: tint, width: 0.7, opacity: 0.4, faint: true })));
  return chart(`Quantiles believed and realised${name}`, {
    xLabel: "quantile level", yLabel: "discounted return", xDomain: [0, 1],
    series: [
      ...faint(believed, colour), ...faint(realised, other),
      { label: "believed at the start", colour, points: average(believed), kind: "line" },
      { label: "realised", colour: other, points: average(realised), kind: "line" },
    ],
  }, { explained: believed.length > 1 ? "Thick: mean over seeds; thin: each seed." : "" });
}

// The learned policies of all levels: their CVaR at that level, and what it costs in the mean.
function frontierChart(run) {
  const { levels, values, means, best_values: best, best_means: bestMeans, intervals } = run.frontier, colour = colours([run.agent])[0];
  const middle = (rows) => levels.map((level, i) => [level, median(rows[i])]), at = (row) => levels.map((level, i) => [level, row[i]]);
  const ends = (i) => intervals ? intervals[i].slice(1) : [Math.min(...values[i]), Math.max(...values[i])];
  const range = [{ points: levels.map((level, i) => [level, ...ends(i)]), opacity: 0.15 }];
  const series = [
    ...(best ? [{ label: "CVaR, exact", colour: "var(--exact)", points: at(best), width: 1.4 }, { label: "mean, exact", colour: "var(--exact)", points: at(bestMeans), width: 1.4, dash: "2 3" }] : []),
    { label: "CVaR, learned", colour, points: intervals ? levels.map((level, i) => [level, intervals[i][0]]) : middle(values), bands: intervals || run.seeds > 1 ? range : undefined, kind: "points" },
    { label: "mean, learned", colour, points: middle(means), kind: "line", dash: "2 3" },
  ];
  return chart("Frontier: one training for all levels", { xLabel: "CVaR level", yLabel: "return", xDomain: [0, 1.02], series },
    { explained: `For every level the CVaR and the mean of its policy, ${intervals ? "from sampled episodes; CVaR: mean over seeds with its 95 % interval" : run.seeds > 1 ? "exact; medians over seeds and, of CVaR, their range" : "exact"}.` });
}

// What floors cost: the mean against the measure with the floor, of the policies of one training.
function floorsChart(run) {
  const { risk, trained, floors, values, means, best_values: best, best_means: bestMeans } = run.floors, colour = colours([run.agent])[0];
  const seeds = run.seeds < 2 ? [] : values[0].map((_, seed) => ({ points: floors.map((_, i) => [values[i][seed], means[i][seed]]), colour, width: 0.8, opacity: 0.45, faint: true }));
  const series = [
    ...(best ? [{ label: "best mean, exact", colour: "var(--exact)", points: best.map((value, i) => [value, bestMeans[i]]), width: 1.4 }] : []),
    ...seeds,
    { label: "learned", colour, points: floors.map((_, i) => [median(values[i]), median(means[i])]), kind: "points" },
  ];
  return chart("Floors: what each of them costs", { xLabel: `${risk} of the return`, yLabel: "mean return", series, marks: [{ axis: "x", value: trained, label: `trained floor ${number(trained)}`, colour: DATA.grey }] },
    { explained: `The policies for ${floors.length} floors, from one training${run.seeds > 1 ? "; medians over seeds, thin: each seed" : ""}.` });
}

function profileChart(bench) {
  const tints = colours(bench.profiles.map(({ label }) => label));
  return chart("Performance profiles", {
    xLabel: "share of the optimum's advantage", yLabel: "part of the runs", yDomain: [0, 1.03],
    series: bench.profiles.map((one, i) => ({
      label: one.label, colour: tints[i], kind: "line", points: one.levels.map((level, j) => [level, one.part[j]]),
      bands: [{ points: one.levels.map((level, j) => [level, one.low[j], one.high[j]]), opacity: 0.13 }],
    })),
    marks: [{ axis: "x", value: 0, colour: "var(--exact)", label: "mean-optimal policy" }],
  }, { explained: "The part of an agent's runs (problem, measure and seed) that reach at least this share, with 95 % intervals." });
}

// All figures of one run.
function runFigures(run) {
  const place = element("div", { class: "figures" }), several = run.settings.length > 1;
  const named = run.settings.map((setting) => ({ label: several ? setting.label : run.agent, tint: several ? setting.label : run.agent, setting }));
  const shared = run.settings.every((one) => one.optimum && one.risk === run.settings[0].risk) ? run.settings[0].optimum : null;
  const curves = named.filter(({ setting }) => setting.curve);
  if (curves.length) place.append(curveChart("Learning curve", curves, shared));
  if (several && named.length > FEW) for (const one of named) place.append(lawChart(`Return distribution, ${one.label}`, [one], one.setting.optimum));
  else place.append(lawChart("Return distribution", named, shared));
  for (const { label, setting } of named) {
    const name = several ? `, ${label}` : "";
    if (setting.training?.steps.length > 1) place.append(trainingChart(setting, name));
    if (setting.quantiles) place.append(quantileChart(setting, name));
    if (setting.grid) place.append(gridFigure(setting.grid, run.seeds, name));
  }
  if (run.frontier) place.append(frontierChart(run));
  if (run.floors) place.append(floorsChart(run));
  return place;
}
