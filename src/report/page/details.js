// SPDX-License-Identifier: Apache-2.0
// The parts of the page that show what a run has logged beside numbers, its settings, its traces and its problems.
function settingsTable(title, settings) {
  return settings.length ? html("div", {class: "card"}, scrolled(title, dataTable(title, [{title: "name"}, {title: "value"}],
      settings.map(([name, value]) => [html("code", null, name), value])))) : null;
}

function startsTable(run) {
  const {starts} = run.facts;
  if (!starts.length) return null;
  return html("div", {class: "card"}, scrolled("Starts", dataTable("Starts", [{title: "time"}, {title: "project"}, {title: "run"}, {title: "host"},
    {title: "process", number: true}, {title: "ranks", number: true}, {title: "libaccel"}, {title: "resumed"}],
    starts.map(start => [formatTime(start.time, true), start.project, start.run, start.host, start.pid, start.world_size, start.version, start.resumed ? "yes" : "no"]))));
}

const CONFIGURATION = {
  id: "configuration", title: "Configuration and environment",
  key: runs => runs.map(run => [run.id, run.facts.configuration.length, run.facts.starts.length, run.facts.folder].join()).join(";"),
  build: runs => runs.flatMap(run => {
    const tables = [settingsTable("Configuration", run.facts.configuration), settingsTable("Environment", run.facts.environment), startsTable(run)].filter(Boolean);
    return tables.length ? [...titleOf(run, runs), html("div", {class: "grid"}, tables),
                            html("p", {class: "say"}, html("small", null, "folder ", html("code", null, run.facts.folder)))] : [];
  }),
};

function byName(items) {
  const groups = new Map();
  for (const item of items) groups.set(item.name, (groups.get(item.name) || []).concat([item]));
  return [...groups].map(([name, inner]) => [name, inner.sort((a, b) => Number(a.step) - Number(b.step))]);
}

function itemsKey(kind) {
  return runs => runs.map(run => [run.id, run[kind].length, ...run[kind].slice(-1).map(item => item.name + item.step)].join()).join(";");
}

function captionOf(name, run, runs) {
  return html("figcaption", null, runs.length > 1 && dot(colorOf(run)), html("span", null, name), runs.length > 1 && html("small", null, run.name));
}

const HISTOGRAMS = {
  id: "histograms", title: "Histograms", key: itemsKey("histograms"),
  build(runs) {
    const figures = runs.flatMap(run => byName(run.histograms).map(([name, items]) => html("figure", null, captionOf(name, run, runs),
        stepSlider(`histogram ${run.id} ${name}`, items, item => html("div", null, histogramBars(item), html("p", {class: "say"}, html("small", null,
            `${formatCount(item.count)} values from ${formatNumber(item.least)} to ${formatNumber(item.greatest)}, mean ${formatNumber(item.sum / item.count)}`)))))));
    return figures.length ? html("div", {class: "grid"}, figures) : null;
  },
};

const PICTURES = {
  id: "images", title: "Images and figures", key: itemsKey("pictures"),
  build(runs) {
    const figures = runs.flatMap(run => byName(run.pictures).map(([name, items]) => html("figure", {class: "pictures"}, captionOf(name, run, runs),
        stepSlider(`picture ${run.id} ${name}`, items, item => item.data ? html("img", {src: item.data, alt: `${name} at step ${item.step}`})
                                                                          : html("p", {class: "warn"}, "Not shown: " + item.reason)))));
    return figures.length ? html("div", {class: "grid"}, figures) : null;
  },
};

const TABLES = {
  id: "tables", title: "Tables and texts",
  key: runs => [itemsKey("tables")(runs), itemsKey("notes")(runs), itemsKey("artifacts")(runs)].join("|"),
  build(runs) {
    const cards = [];
    for (const run of runs) {
      const suffix = runs.length > 1 ? ", " + run.name : "";
      for (const table of run.tables)
        cards.push(html("div", {class: "card"}, scrolled(table.name, dataTable(`${table.name}, step ${formatStep(table.step)}${suffix}` +
            (table.num_rows > table.rows.length ? `: the first ${table.rows.length} of ${table.num_rows} rows` : ""), table.columns.map(title => ({title})), table.rows))));
      if (run.notes.length)
        cards.push(html("div", {class: "card"}, scrolled("Texts", dataTable("Texts" + suffix, [{title: "step"}, {title: "name"}, {title: "text"}],
            [...run.notes].reverse().map(note => [formatStep(note.step), note.name, note.text])))));
      if (run.artifacts.length)
        cards.push(html("div", {class: "card"}, scrolled("Artifacts", dataTable("Artifacts" + suffix, [{title: "name"}, {title: "file"}],
            run.artifacts.map(artifact => [artifact.name, html("code", null, artifact.file)])))));
    }
    return cards.length ? html("div", {class: "grid"}, cards) : null;
  },
};

function spanTimes(run) {
  const {spans} = run.trace;
  if (!spans.length) return null;
  const kinds = [...new Set(spans.map(span => span.kind))].sort(byKind), ranks = [...new Set(spans.map(span => span.rank))].sort((a, b) => a - b);
  const rows = ranks.map(rank => ({label: "rank " + rank, parts: spans.filter(span => span.rank === rank).sort((a, b) => byKind(a.kind, b.kind)).map(span => (
      {kind: kindClass(span.kind), value: span.seconds, title: `rank ${rank}, ${span.kind}: ${formatSeconds(span.seconds)} in ${formatCount(span.count)} spans`}))}));
  return html("div", {class: "card"}, html("p", {class: "say"}, "Time by kind of span, without the spans inside of it"),
              legend(kinds.map(kind => ({label: kind, color: "k-" + kindClass(kind)}))), stackedBars("Time by kind of span and by rank", rows.slice(0, 64), formatSeconds),
              html("details", null, html("summary", null, "as a table"), scrolled("Time by kind of span", dataTable("", [{title: "rank"}, {title: "kind"}, {title: "spans", number: true},
                {title: "time", number: true}, {title: "bytes", number: true}], spans.map(span => [span.rank, span.kind, formatCount(span.count), formatSeconds(span.seconds), span.bytes ? formatBytes(span.bytes) : ""])))));
}

function operatorTable(run, onDevice, title) {
  const operators = run.trace.operators.filter(operator => operator.device === onDevice);
  if (!operators.length) return null;
  const most = operators[0].self || 1;
  const bar = operator => {
    const share = html("span", {class: "share"});
    share.style.width = Math.max(1, operator.self / most * 60) + "px";
    return share;
  };
  return html("div", {class: "card operators"}, scrolled(title, dataTable(title, [{title: "name"}, {title: "calls", number: true}, {title: "self", number: true}, {title: ""}, {title: "total", number: true}],
      operators.map(operator => [operator.name, formatCount(operator.count), formatSeconds(operator.self), bar(operator), formatSeconds(operator.seconds)]))));
}

const TRACES = {
  id: "traces", title: "Traces",
  key: runs => runs.map(run => run.trace ? run.id + run.trace.files.join() + run.trace.num_events : "").join(";"),
  build(runs) {
    const traced = runs.filter(run => run.trace);
    if (!traced.length) return null;
    const kindsOf = run => [...new Set(run.trace.timeline.map(span => kindClass(span[3])))];
    return [...traced.flatMap(run => [...titleOf(run, runs), html("div", {class: "grid wide"}, spanTimes(run),
        run.trace.timeline.length > 0 && html("div", {class: "card"}, html("p", {class: "say"}, "A few steps in detail"), legend(kindsOf(run).map(kind => ({label: kind, color: "k-" + kind}))),
                                              timeline("Timeline of a few steps", run.trace.timeline)),
        html("div", {class: "grid pairs"}, operatorTable(run, false, "Operators by self time"), operatorTable(run, true, "Kernels and copies of devices")))]),
      html("p", {class: "say"}, "Every event: open ", html("a", {href: "https://ui.perfetto.dev", rel: "noreferrer noopener", target: "_blank"}, "ui.perfetto.dev"),
           " and drop a trace on it (it stays in the browser): ", traced.flatMap(run => run.trace.files.map(file => html("code", null, run.facts.folder + "/" + file))).slice(0, 8).flatMap((code, i) => i ? [", ", code] : [code]))];
  },
};

const PROBLEMS = {
  id: "problems", title: "Problems",
  key: runs => JSON.stringify(runs.map(run => run.facts.problems)),
  build(runs) {
    const items = runs.flatMap(run => run.facts.problems.map(problem => html("li", null, runs.length > 1 && run.name + ": ", problem)));
    return items.length ? html("div", {class: "card"}, html("p", {class: "say"}, "These could not be read:"), html("ul", null, items)) : null;
  },
};

const SECTIONS = [OVERVIEW, CURVES, THROUGHPUT, TIME, MEMORY, COMPARISON, HISTOGRAMS, PICTURES, TABLES, TRACES, CONFIGURATION, PROBLEMS];
