// SPDX-License-Identifier: Apache-2.0
// A few steps of the traces: for each rank and thread the spans over time, those inside of others below them.
const LANE_HEIGHT = 15, DEEPEST_LANE = 6;

function timeline(label, spans) {
  const width = contentWidth(), left = 150, inner = width - left - 10;
  const all = spans.map(([rank, lane, name, kind, begin, seconds, depth, bytes]) => ({rank, lane, name, kind, begin, seconds, depth, bytes}))
      .filter(span => span.depth < DEEPEST_LANE);
  const end = all.reduce((most, span) => Math.max(most, span.begin + span.seconds), 1e-9);
  const lanes = new Map();
  for (const span of all) {
    const key = span.rank + " " + span.lane;
    if (!lanes.has(key)) lanes.set(key, {rank: span.rank, lane: span.lane, deepest: 0, spans: []});
    const lane = lanes.get(key);
    lane.deepest = Math.max(lane.deepest, span.depth);
    lane.spans.push(span);
  }
  const rows = [...lanes.values()].sort((a, b) => a.rank - b.rank || b.spans.length - a.spans.length);
  let y = 4;
  const parts = [];
  for (const row of rows) {
    const name = `rank ${row.rank}, ${row.lane}`;
    parts.push(svg("text", {x: left - 8, y: y + 11, "text-anchor": "end"}, name.length > 24 ? name.slice(0, 23) + "…" : name,
                   svg("title", null, name)));
    for (const span of row.spans.sort((a, b) => a.depth - b.depth)) {
      const x = left + span.begin / end * inner, length = span.seconds / end * inner, top = y + span.depth * LANE_HEIGHT;
      parts.push(svg("rect", {class: "span k-" + kindClass(span.kind), x, y: top, width: Math.max(length, 0.6), height: LANE_HEIGHT - 2},
                     svg("title", null, `${span.name} (${span.kind}): ${formatSeconds(span.seconds)} at ${formatSeconds(span.begin)}` +
                                            (span.bytes ? `, ${formatBytes(span.bytes)}` : ""))));
      if (length > span.name.length * 7 + 8) parts.push(svg("text", {class: "spantext", x: x + 3, y: top + 10}, span.name));
    }
    y += (row.deepest + 1) * LANE_HEIGHT + 8;
  }
  const chart = svg("svg", {viewBox: `0 0 ${width} ${y + 18}`, role: "img", "aria-label": label});
  for (const tick of ticksOf(0, end, 8)) {
    const x = left + tick / end * inner;
    chart.append(svg("line", {class: "gridline", x1: x, x2: x, y1: 0, y2: y}), svg("text", {x, y: y + 13, "text-anchor": "middle"}, formatSeconds(tick)));
  }
  chart.append(...parts);
  return chart;
}

const KINDS = ["forward", "backward", "collective", "communication", "wait", "data", "optimizer", "checkpoint", "offload", "step",
               "operator", "device", "annotation"];

function byKind(a, b) {
  return (KINDS.indexOf(a) + 1 || KINDS.length + 1) - (KINDS.indexOf(b) + 1 || KINDS.length + 1) || a.localeCompare(b);
}

// Files may name any kind.
function kindClass(kind) {
  return KINDS.includes(kind) ? kind : "other";
}
