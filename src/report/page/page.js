// SPDX-License-Identifier: Apache-2.0
// Puts the page together and keeps it up to date.
const byId = id => document.getElementById(id);

// Shows an error on the page, where a test can read it too.
function showError(message) {
  byId("errors").hidden = false;
  byId("errors").append(html("p", null, String(message)));
}
addEventListener("error", event => showError(event.message));
addEventListener("unhandledrejection", event => showError(event.reason));

const hiddenRuns = new Set();
const builtKeys = new Map();

function allRuns() {
  const runs = [...store.runs.values()].filter(run => run.facts);
  runs.forEach((run, i) => run.index = i);
  return runs;
}

function shownRuns() {
  return allRuns().filter(run => !hiddenRuns.has(run.id));
}

function drawCharts() {
  const runs = shownRuns();
  for (const section of SECTIONS) if (section.draw) section.draw(runs);
}

function drawRuns() {
  const runs = allRuns();
  const key = JSON.stringify(runs.map(run => [run.id, run.name]));
  if (builtKeys.get("runs") === key) return;
  builtKeys.set("runs", key);
  byId("runs").replaceChildren(...runs.map(run => html("label", {class: "chip " + colorOf(run), title: run.facts.folder}, html("input", {
    type: "checkbox", checked: !hiddenRuns.has(run.id), onchange: event => {
      if (event.target.checked) hiddenRuns.delete(run.id);
      else hiddenRuns.add(run.id);
      render();
    }}), dot(colorOf(run)), html("b", null, run.name))));
}

function render() {
  drawRuns();
  const runs = shownRuns(), shown = [];
  const visible = runs.map(run => run.id).join() + "|";
  for (const section of SECTIONS) {
    const key = visible + section.key(runs);
    let element = byId(section.id);
    if (!element) byId("content").append(element = html("section", {id: section.id, "aria-labelledby": section.id + "-title"}));
    if (builtKeys.get(section.id) !== key) {
      builtKeys.set(section.id, key);
      const built = [section.build(runs)].flat(2).filter(Boolean);
      element.hidden = built.length === 0;
      element.replaceChildren(...(built.length ? [html("h2", {id: section.id + "-title"}, section.title), ...built] : []));
    }
    if (!element.hidden) shown.push(section);
  }
  byId("nav").replaceChildren(...shown.map(section => html("a", {href: "#" + section.id}, section.title)));
  drawCharts();
  document.title = (allRuns().length === 1 ? allRuns()[0].name : allRuns().length + " runs") + " - accel report";
  drawState();
}

function drawState(trouble) {
  const parts = [];
  if (!store.runs.size) parts.push("There is no run yet; a run appears here when it begins.");
  const all = [...store.runs.values()].flatMap(run => [...run.series.values()]);
  if (all.some(series => series.reduced))
    parts.push(`The page shows ${formatStep(all.reduce((sum, series) => sum + series.steps.length, 0))} of ${formatStep(store.numPoints)} points: the minimum and maximum of each interval, so that all peaks are there.`);
  if (interval > 0) parts.push(trouble ? `The server does not answer (${trouble}); the data that it sent before stays.` : `Live: updated every ${formatSeconds(interval / 1000)}.`);
  const words = parts.join(" ");
  if (byId("state").textContent !== words) byId("state").textContent = words;
}

function changeSetting(change) {
  change();
  drawCharts();
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

async function ask() {
  try {
    const answer = await fetch("data?since=" + store.version, {cache: "no-store"});
    if (!answer.ok) throw new Error("status " + answer.status);
    if (merge(await answer.json())) render();
    drawState();
  } catch (error) {
    drawState(error.message);
  }
  setTimeout(ask, interval);
}

const interval = Number(document.body.dataset.interval);
setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
byId("theme").addEventListener("click", () => changeSetting(() => setTheme(document.documentElement.dataset.theme !== "dark")));
byId("x-axis").addEventListener("change", event => changeSetting(() => {
  settings.x = event.target.value;
  for (const chart of charts.values()) chart.zoom = null;
}));
byId("log-scale").addEventListener("change", event => changeSetting(() => settings.log = event.target.checked));
byId("smoothing").addEventListener("input", event => changeSetting(() => {
  settings.smoothing = Number(event.target.value);
  byId("smoothing-value").textContent = event.target.value;
}));
merge(JSON.parse(byId("data").textContent));
render();
if (interval > 0) setTimeout(ask, interval);
