// SPDX-License-Identifier: Apache-2.0
// The parts of the page: each is {id, title, key(runs), build(runs)}. A part is built again when its key has changed; its
// charts stay, with their zoom, and draw what is new.
const charts = new Map();

function chartOf(key, title, options) {
  if (!charts.has(key)) charts.set(key, new LineChart(title, options));
  return charts.get(key);
}

function colorOf(run) {
  return "c" + run.index % 8;
}

function curveOf(run, series, label) {
  return {...series, label: label ?? run.name, color: colorOf(run), dashed: run.index >= 8, start: run.first_time};
}

function rankCurves(run, all) {
  return all.map(series => ({...series, label: "rank " + series.rank, color: "c" + series.rank % 8, dashed: series.rank >= 8,
                             start: run.first_time}));
}

function titleOf(run, runs) {
  return runs.length > 1 ? [html("h3", null, dot(colorOf(run)), " ", run.name)] : [];
}

function slowestOf(run) {
  const counts = Object.entries(run.slowest).sort((a, b) => b[1] - a[1]);
  return counts.length ? {rank: counts[0][0], count: counts[0][1], all: counts.reduce((sum, entry) => sum + entry[1], 0)} : null;
}

function loggedNames(runs) {
  return [...new Set(runs.flatMap(run => [...run.series.values()].filter(series => series.rank === undefined).map(series => series.name)))];
}

function lossOf(run) {
  const names = loggedNames([run]);
  const name = names.find(one => one === "loss") ?? names.find(one => /(^|[/_ ])loss$/i.test(one)) ?? names.find(one => /loss/i.test(one));
  return name === undefined ? null : seriesOf(run, name);
}

function overviewCard(run) {
  const {facts} = run, start = facts.starts[facts.starts.length - 1], loss = lossOf(run);
  const steps = [...run.series.values()].reduce((most, series) => Math.max(most, series.steps[series.steps.length - 1]), -Infinity);
  const tokens = ranksOf(run, "tokens_per_second").map(series => series.latest);
  const slowest = slowestOf(run), resumed = facts.starts.filter(one => one.resumed).length;
  const rows = [
    ["last step", steps > -Infinity && formatStep(steps)],
    ["time", run.last_time > run.first_time && formatSeconds(run.last_time - run.first_time)],
    [loss && loss.name, loss && formatNumber(loss.latest)],
    ["tokens/s", tokens.length > 0 && formatCount(tokens.reduce((a, b) => a + b, 0))],
    ["ranks", start && start.world_size > 0 && start.world_size],
    ["slowest rank", slowest && slowest.rank],
    ["started", run.first_time > 0 && formatTime(run.first_time, true)],
    ["resumed", resumed > 0 && resumed + (resumed === 1 ? " time" : " times")],
    ["problems", facts.problems.length > 0 && html("a", {href: "#problems", class: "warn"}, facts.problems.length)],
  ].filter(row => row[1]);
  return html("div", {class: "card"}, html("h3", null, dot(colorOf(run)), html("span", null, run.name),
                                           run.status && html("span", {class: "badge " + (["finished", "running"].includes(run.status) ? run.status : "")}, run.status)),
              html("dl", {class: "facts"}, rows.map(([name, value]) => html("div", null, html("dt", null, name), html("dd", null, value)))));
}

const OVERVIEW = {
  id: "overview", title: "Overview",
  key: runs => runs.map(run => [run.id, run.last_time, run.status, run.index, store.version].join()).join(";"),
  build: runs => html("div", {class: "grid"}, runs.map(overviewCard)),
};

const CURVES = {
  id: "curves", title: "Curves",
  key: runs => JSON.stringify(loggedNames(runs).sort()),
  build(runs) {
    const names = loggedNames(runs), groups = new Map();
    for (const name of names) {
      const prefix = name.includes("/") ? name.slice(0, name.indexOf("/")) : "";
      groups.set(prefix, (groups.get(prefix) || []).concat([name]));
    }
    const byLoss = (a, b) => /loss/i.test(b) - /loss/i.test(a) || a.localeCompare(b);
    const manyCharts = names.length > 60;
    return [...groups].sort((a, b) => a[0].localeCompare(b[0])).map(([prefix, inner], i) => {
      const members = inner.sort(byLoss).map(name => chartOf("curve " + name, name));
      const grid = html("div", {class: "grid"}, members.map(chart => chart.element));
      if (groups.size === 1) return grid;
      const group = html("details", {class: "group", open: !manyCharts || i < 3}, html("summary", null, prefix || "without prefix", " ", html("small", null, inner.length)), grid);
      group.addEventListener("toggle", () => group.open && drawCharts());
      return group;
    });
  },
  draw(runs) {
    for (const name of loggedNames(runs)) {
      const chart = charts.get("curve " + name);
      if (!chart || (chart.element.closest("details") && !chart.element.closest("details").open)) continue;
      chart.update(runs.filter(run => seriesOf(run, name)).map(run => curveOf(run, seriesOf(run, name))));
    }
  },
};

// The other values that ranks report, beside seconds and memory, each combined over all ranks by a sum or a mean.
const REPORTED = {
  tokens_per_second: {title: "tokens per second, all ranks", combine: values => values.reduce((a, b) => a + b, 0), options: {format: formatCount, fromZero: true}},
  "seconds/total": {title: "seconds per step, slowest rank", combine: values => Math.max(...values), options: {format: formatSeconds, fromZero: true}},
  model_flops_utilization: {title: "model flops utilization, mean of ranks", combine: values => values.reduce((a, b) => a + b, 0) / values.length, options: {format: value => formatShare(value), fromZero: true}},
};

const THROUGHPUT = {
  id: "throughput", title: "Throughput",
  names: runs => Object.keys(REPORTED).filter(name => runs.some(run => ranksOf(run, name).length)),
  key(runs) { return this.names(runs).join(); },
  build(runs) {
    const names = this.names(runs);
    return names.length ? html("div", {class: "grid"}, names.map(name => chartOf("report " + name, REPORTED[name].title, REPORTED[name].options).element)) : null;
  },
  draw(runs) {
    for (const name of this.names(runs))
      charts.get("report " + name).update(runs.filter(run => ranksOf(run, name).length).map(run => {
        const all = ranksOf(run, name);
        return curveOf(run, {...combined(all, REPORTED[name].combine), reduced: all.some(series => series.reduced)});
      }));
  },
};

function timeByRank(run, runs) {
  const names = reportNames(run).filter(name => name.startsWith("seconds/") && name !== "seconds/total");
  if (!names.length) return [];
  const order = ["forward", "backward", "communication", "data", "optimizer"].map(name => "seconds/" + name);
  names.sort((a, b) => (order.indexOf(a) + 1 || 99) - (order.indexOf(b) + 1 || 99) || a.localeCompare(b));
  const ranks = [...new Set(names.flatMap(name => ranksOf(run, name).map(series => series.rank)))].sort((a, b) => a - b);
  const slowest = slowestOf(run), shownName = name => name.slice("seconds/".length);
  const rows = ranks.map(rank => {
    const host = run.facts.hosts[rank], parts = names.map(name => {
      const series = seriesOf(run, name, rank), value = series && series.mean > 0 ? series.mean : 0;
      return {name, kind: kindClass(shownName(name)), value, title: `rank ${rank}, ${shownName(name)}: ${formatSeconds(value)}`};
    });
    return {rank, label: `rank ${rank}` + (host ? ` (${host})` : ""), parts, note: slowest && String(rank) === slowest.rank ? "◀ slowest" : ""};
  });
  const total = row => row.parts.reduce((sum, part) => sum + part.value, 0);
  const all = rows.reduce((sum, row) => sum + total(row), 0);
  const exposed = rows.reduce((sum, row) => sum + row.parts.filter(part => part.name === "seconds/communication").reduce((a, part) => a + part.value, 0), 0);
  const slowestHost = slowest && run.facts.hosts[slowest.rank];
  return [...titleOf(run, runs), html("div", {class: "card"},
      slowest && html("p", {class: "say"}, "The slowest rank is ", html("strong", null, `rank ${slowest.rank}` + (slowestHost ? ` (${slowestHost})` : "")),
                      `, in ${slowest.count} of ${slowest.all} reports. `,
                      exposed > 0 && ["Communication that nothing hides takes ", html("strong", null, formatShare(exposed / all)), " of a step."]),
      legend(names.map(name => ({label: shownName(name), color: "k-" + kindClass(shownName(name))}))),
      stackedBars("Where the time of a step goes by rank", rows.slice(0, 64), formatSeconds),
      html("details", null, html("summary", null, "as a table"), scrolled("Seconds of a step by rank", dataTable("Mean seconds of a step",
          [{title: "rank"}, ...names.map(name => ({title: shownName(name), number: true})), {title: "sum", number: true}],
          rows.map(row => [row.label, ...row.parts.map(part => formatSeconds(part.value)), formatSeconds(total(row))])))))];
}

const TIME = {
  id: "time", title: "Where the time goes",
  key: runs => runs.map(run => [run.id, run.index, reportNames(run).length && store.version].join()).join(";"),
  build: runs => runs.flatMap(run => timeByRank(run, runs)),
};

// The names whose memory is not always 0, as it is for a device that does not exist.
function memoryNames(run) {
  return reportNames(run).filter(name => name.startsWith("memory/") && ranksOf(run, name).some(series => series.values.some(value => value > 0))).sort();
}

function memoryCharts(runs) {
  return runs.flatMap(run => memoryNames(run).map(name => {
    const title = name.slice("memory/".length).replaceAll("_", " ") + (runs.length > 1 ? ", " + run.name : "");
    return {run, name, chart: chartOf(`memory ${run.id} ${name} ${title}`, title, {format: formatBytes, ticks: byteTicksOf, fromZero: true})};
  }));
}

const MEMORY = {
  id: "memory", title: "Memory",
  key: runs => runs.map(run => run.id + memoryNames(run).join()).join(";"),
  build(runs) {
    const all = memoryCharts(runs);
    return all.length ? html("div", {class: "grid"}, all.map(one => one.chart.element)) : null;
  },
  draw(runs) {
    for (const {run, name, chart} of memoryCharts(runs)) chart.update(rankCurves(run, ranksOf(run, name)));
  },
};

const COMPARISON = {
  id: "comparison", title: "Comparison",
  key: runs => runs.map(run => run.id).join() + store.version,
  build(runs) {
    if (runs.length < 2) return null;
    const configured = runs.filter(run => run.facts.configuration.length + run.facts.environment.length > 0);
    const values = configured.map(run => new Map([...run.facts.configuration, ...run.facts.environment.map(([name, value]) => ["environment/" + name, value])]));
    const names = [...new Set(values.flatMap(map => [...map.keys()]))].filter(name => new Set(values.map(map => map.get(name))).size > 1);
    const columnsOf = all => all.map(run => ({title: html("span", null, dot(colorOf(run)), " ", run.name)}));
    const metrics = loggedNames(runs).sort(), logged = runs.filter(run => loggedNames([run]).length);
    const cellOf = (run, name) => {
      const series = seriesOf(run, name);
      if (!series) return "";
      return series.least === undefined ? formatNumber(series.latest) : `${formatNumber(series.latest)} (${formatNumber(series.least)} to ${formatNumber(series.greatest)})`;
    };
    return [
      html("h3", null, "Settings that differ"),
      names.length ? html("div", {class: "card"}, scrolled("Settings that differ", dataTable("", [{title: "setting"}, ...columnsOf(configured)], names.map(name =>
          [html("code", null, name), ...values.map(map => map.get(name) ?? "–")])))) : html("p", {class: "say"}, "The configurations and environments of the runs are equal."),
      metrics.length > 0 && html("h3", null, "Metrics ", html("small", null, "latest (least to greatest)")),
      metrics.length > 0 && html("div", {class: "card"}, scrolled("Metrics of the runs", dataTable("", [{title: "metric"}, ...columnsOf(logged)], metrics.map(name =>
          [name, ...logged.map(run => cellOf(run, name))])))),
    ];
  },
};
