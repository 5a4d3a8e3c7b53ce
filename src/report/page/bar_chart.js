// SPDX-License-Identifier: Apache-2.0
// Bars: stacked ones for shares of time, and those of a histogram.
const BAR_HEIGHT = 24, BAR_LABELS = 150;

// Rows are {label, parts: [{kind, value, title}], note}. The length of a bar is its sum.
function stackedBars(label, rows, format) {
  const most = Math.max(...rows.map(row => row.parts.reduce((sum, part) => sum + part.value, 0)), 1e-12);
  const width = contentWidth(), right = 140, inner = width - BAR_LABELS - right, height = rows.length * BAR_HEIGHT + 20;
  const chart = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
  for (const tick of ticksOf(0, most, 6)) {
    const x = BAR_LABELS + tick / most * inner;
    chart.append(svg("line", {class: "gridline", x1: x, x2: x, y1: 0, y2: height - 16}),
                 svg("text", {x, y: height - 3, "text-anchor": "middle"}, format(tick)));
  }
  rows.forEach((row, i) => {
    const y = i * BAR_HEIGHT + 2;
    let x = BAR_LABELS, sum = 0;
    chart.append(svg("text", {x: BAR_LABELS - 8, y: y + 15, "text-anchor": "end"}, row.label.length > 24 ? row.label.slice(0, 23) + "…" : row.label,
                     svg("title", null, row.label)));
    for (const part of row.parts) {
      const length = part.value / most * inner;
      chart.append(svg("rect", {class: "segment k-" + part.kind, x, y, width: Math.max(length, 0), height: BAR_HEIGHT - 5, rx: 2},
                       svg("title", null, part.title)));
      x += length;
      sum += part.value;
    }
    chart.append(svg("text", {x: x + 6, y: y + 15}, format(sum) + (row.note ? " " + row.note : "")));
  });
  return chart;
}

function histogramBars(histogram) {
  const width = 420, height = 170, left = 44, bottom = 18, {edges, counts} = histogram;
  const low = Number(edges[0]), high = Number(edges[edges.length - 1]), most = Math.max(...counts.map(Number), 1);
  const toX = value => left + (value - low) / (high - low || 1) * (width - left - 8);
  const toY = count => height - bottom - count / most * (height - bottom - 8);
  const chart = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Histogram of ${histogram.name}: ${formatCount(histogram.count)} values from ${formatNumber(histogram.least)} to ${formatNumber(histogram.greatest)}`});
  for (const tick of ticksOf(0, most, 4))
    chart.append(svg("line", {class: "gridline", x1: left, x2: width - 8, y1: toY(tick), y2: toY(tick)}),
                 svg("text", {x: left - 5, y: toY(tick) + 4, "text-anchor": "end"}, formatCount(tick)));
  for (const tick of ticksOf(low, high, 5))
    chart.append(svg("text", {x: toX(tick), y: height - 4, "text-anchor": "middle"}, formatNumber(tick, 3)));
  counts.forEach((given, i) => {
    const [from, to, count] = [edges[i], edges[i + 1], given].map(Number);
    if (![from, to, count].every(Number.isFinite)) return;
    chart.append(svg("rect", {class: "bin", x: toX(from), y: toY(count), width: Math.max(toX(to) - toX(from) - 0.5, 0.5), height: Math.max(height - bottom - toY(count), 0)},
                     svg("title", null, `${formatNumber(from)} to ${formatNumber(to)}: ${formatCount(count)}`)));
  });
  return chart;
}
