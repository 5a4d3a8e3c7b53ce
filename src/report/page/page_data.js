// SPDX-License-Identifier: Apache-2.0
// Keeps the data of the runs. The page's own data and the later updates of a server have one form: what is new.
const store = {version: 0, time: 0, numPoints: 0, runs: new Map()};

function decodeSteps(encoded) {
  const steps = [encoded[0]];
  let last = encoded[0];
  for (let i = 1; i < encoded.length; i += 2)
    for (let k = 0; k < encoded[i + 1]; k++) steps.push(last += encoded[i]);
  return steps;
}

function decodeTimes(encoded) {
  let last = 0;
  return encoded.map(distance => (last += distance) / 1000);
}

// A step that a resumed run has taken again has its later value.
function putInOrder(series) {
  const order = series.steps.map((step, i) => i).sort((a, b) => series.steps[a] - series.steps[b] || a - b);
  const kept = order.filter((at, i) => i + 1 === order.length || series.steps[order[i + 1]] !== series.steps[at]);
  for (const part of ["steps", "times", "values"]) series[part] = kept.map(at => series[part][at]);
}

function mergeSeries(run, axes, given) {
  const key = (given.rank ?? "") + ":" + given.name;
  let series = run.series.get(key);
  if (!series) run.series.set(key, series = {name: given.name, rank: given.rank, steps: [], times: [], values: []});
  const [steps, times] = axes[given.axis];
  const isBehind = series.steps.length > 0 && steps[0] <= series.steps[series.steps.length - 1];
  for (let i = 0; i < steps.length; i++) {
    series.steps.push(steps[i]);
    series.times.push(times[i]);
    series.values.push(Number(given.y[i]));
  }
  if (isBehind) putInOrder(series);
  for (const fact of ["count", "mean", "least", "greatest", "latest", "reduced"])
    if (fact in given) series[fact] = typeof given[fact] === "string" ? Number(given[fact]) : given[fact];
}

// The last `most` items, of each name or of all.
function newest(items, most, ofAll) {
  const counts = new Map();
  return items.reverse().filter(item => {
    const name = ofAll ? "" : item.name;
    counts.set(name, (counts.get(name) || 0) + 1);
    return counts.get(name) <= most;
  }).reverse();
}

function mergeRun(given) {
  let run = store.runs.get(given.id);
  if (!run) {
    run = {id: given.id, facts: null, series: new Map(), histograms: [], pictures: [], tables: [], notes: [], artifacts: [],
           trace: null};
    store.runs.set(given.id, run);
  }
  for (const fact of ["name", "status", "first_time", "last_time", "slowest"]) run[fact] = given[fact];
  if (given.facts) run.facts = given.facts;
  const axes = (given.axes || []).map(([steps, times]) => [decodeSteps(steps), decodeTimes(times)]);
  for (const series of given.series || []) mergeSeries(run, axes, series);
  for (const [kind, most] of [["histograms", 100], ["pictures", 8], ["notes", 500], ["artifacts", 1000]])
    if (given[kind]) run[kind] = newest(run[kind].concat(given[kind]), most, kind === "notes" || kind === "artifacts");
  for (const table of given.tables || [])
    run.tables = run.tables.filter(other => other.name !== table.name).concat([table]);
  if (given.trace) run.trace = given.trace;
}

// Returns whether anything has changed.
function merge(update) {
  if (update.version === store.version) return false;
  const alive = new Set(update.runs.map(run => run.id));
  for (const id of [...store.runs.keys()]) if (!alive.has(id)) store.runs.delete(id);
  update.runs.forEach(mergeRun);
  Object.assign(store, {version: update.version, time: update.time, numPoints: update.num_points});
  return true;
}

function seriesOf(run, name, rank) {
  return run.series.get((rank ?? "") + ":" + name);
}

// Returns the ranks whose step reports have a value of this name.
function ranksOf(run, name) {
  return [...run.series.values()].filter(series => series.rank !== undefined && series.name === name)
      .sort((a, b) => a.rank - b.rank);
}

function reportNames(run) {
  return [...new Set([...run.series.values()].filter(series => series.rank !== undefined).map(series => series.name))];
}

// One series out of those of all ranks: at the steps that all of them have.
function combined(all, combine) {
  const at = new Map();
  for (const series of all)
    series.steps.forEach((step, i) => {
      const found = at.get(step);
      if (found) found.values.push(series.values[i]);
      else at.set(step, {time: series.times[i], values: [series.values[i]]});
    });
  const result = {steps: [], times: [], values: []};
  for (const step of [...at.keys()].sort((a, b) => a - b)) {
    const found = at.get(step);
    if (found.values.length !== all.length) continue;
    result.steps.push(step);
    result.times.push(found.time);
    result.values.push(combine(found.values));
  }
  return result;
}
