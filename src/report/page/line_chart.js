// SPDX-License-Identifier: Apache-2.0
// A chart of curves: uPlot draws it; the page adds a table, values at the cursor, and the keyboard.
const settings = {x: "step", smoothing: 0, log: false};
const LARGEST = 4e307;  // so that no difference overflows
const CHART_HEIGHT = 210, MOST_MARKS = 200;

// An exponential moving average that begins with the first value; what is not finite is left as it is.
function smoothed(values, weight) {
  if (!weight) return values;
  let last = 0, count = 0;
  return values.map(value => {
    if (!Number.isFinite(value)) return value;
    last = last * weight + (1 - weight) * value;
    count++;
    return last / (1 - weight ** count);
  });
}

// Index of the first element that is not less.
function lowerBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Returns the value of a custom property of page.css, which depends on the theme.
function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name);
}

// A range that has a width and whose width does not overflow.
function rangeOf(low, high, fallback, margin) {
  if (!(low <= high)) return fallback;
  [low, high] = [Math.max(low, -LARGEST), Math.min(high, LARGEST)];
  return low === high ? [low - margin, high + margin] : [low, high];
}

// A curve is {label, color, dashed, steps, times, values, start}.
class LineChart {
  constructor(title, options) {
    this.title = title;
    this.options = {format: formatNumber, ticks: ticksOf, ...options};
    this.curves = [];
    this.zoom = null;  // [low, high] of x
    this.cursor = null;
    this.note = html("small");
    this.reset = html("button", {type: "button", hidden: true, onclick: () => this.zoomTo(null)}, "zoom out");
    this.holder = html("div", {class: "plot", tabindex: "0", role: "img"});
    this.tip = html("div", {class: "tip", hidden: true});
    this.table = html("div", {class: "latest scroll", tabindex: "0", role: "region", "aria-label": "Values of " + title});
    this.element = html("figure", {class: "chart"}, html("figcaption", null, html("span", null, title), this.note, this.reset),
                        this.holder, this.tip, this.table);
    this.holder.addEventListener("keydown", event => this.pressKey(event));
    this.holder.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => {
      const width = this.holder.clientWidth;
      if (width && this.plot && width !== this.plot.width) this.plot.setSize({width, height: CHART_HEIGHT});
    }).observe(this.holder);
  }

  update(curves) {
    this.curves = curves;
    this.prepare();
    const key = JSON.stringify([settings.log, settings.smoothing > 0, curves.map(curve => [curve.label, curve.color, curve.dashed])]);
    if (key !== this.key) this.build();
    else this.plot.setData(this.data, false);
    this.key = key;
    this.zoomTo(this.zoom);
    this.describe();
  }

  xOf(curve, i) {
    return settings.x === "step" ? curve.steps[i] : settings.x === "time" ? curve.times[i] : curve.times[i] - curve.start;
  }

  formatX(x) {
    return settings.x === "step" ? formatStep(x) : settings.x === "time" ? formatTime(x) : formatSeconds(x);
  }

  // x, raw and smoothed y of each curve, in the order of x, and the columns of uPlot: null is a gap, undefined a step of another curve.
  prepare() {
    this.drawn = this.curves.map(curve => {
      let order = null;
      if (settings.x !== "step") order = curve.times.map((time, i) => i).sort((a, b) => curve.times[a] - curve.times[b]);
      const pick = i => (order ? order[i] : i);
      const x = curve.steps.map((step, i) => this.xOf(curve, pick(i)));
      const raw = curve.values.map((value, i) => curve.values[pick(i)]);
      return {curve, x, raw, y: smoothed(raw, settings.smoothing)};
    });
    const shown = values => values.map(value => Number.isFinite(value) && !(settings.log && value <= 0)
        ? Math.max(-LARGEST, Math.min(LARGEST, value)) : null);
    const tables = this.drawn.map(({x, raw, y}) => settings.smoothing ? [x, shown(raw), shown(y)] : [x, shown(y)]);
    this.data = tables.length ? uPlot.join(tables) : [[]];
    this.marks = this.drawn.flatMap(({curve, x, y}) => y.map((value, i) => ({curve, x: x[i], value}))
        .filter(mark => !Number.isFinite(mark.value)).slice(0, MOST_MARKS));
    const x = this.data[0];
    this.holder.dataset.points = this.drawn.reduce((sum, drawn) => sum + drawn.x.length, 0);
    this.wholeX = rangeOf(x[0], x[x.length - 1], [0, 1], 0.5);
  }

  // The range of y for the least and the greatest value inside of the zoom.
  rangeOfY(least, greatest) {
    let [low, high] = rangeOf(least ?? Infinity, greatest ?? -Infinity, settings.log ? [0.1, 1] : [0, 1], 0);
    if (settings.log) return low === high ? [low / 2, high * 2] : [low, high];
    const margin = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.04;
    [low, high] = [low - margin, high + margin];
    return [this.options.fromZero && low > 0 ? 0 : low, high];
  }

  build() {
    if (this.plot) this.plot.destroy();
    const axis = {stroke: () => themeColor("soft"), font: "11px system-ui, sans-serif", gap: 4};
    const grid = {stroke: () => themeColor("grid"), width: 1}, ticks = {stroke: () => themeColor("line"), width: 1, size: 4};
    this.plot = new uPlot({
      width: this.holder.clientWidth || 400,
      height: CHART_HEIGHT,
      padding: [8, 10, 0, 0],
      legend: {show: false},
      scales: {
        x: {time: false, range: (plot, low, high) => rangeOf(low ?? Infinity, high ?? -Infinity, [0, 1], 0.5)},
        y: {distr: settings.log ? 3 : 1, range: (plot, low, high) => this.rangeOfY(low, high)},
      },
      axes: [
        {...axis, ticks, size: 24, grid: {show: false}, border: {show: true, stroke: ticks.stroke, width: 1},
         splits: (plot, i, low, high) => ticksOf(low, high, Math.max(2, Math.min(6, plot.width / 90))),
         values: (plot, splits) => splits.map(value => this.formatX(value))},
        {...axis, grid, ticks: {show: false}, size: 52, filter: (plot, splits) => splits,
         splits: (plot, i, low, high) => settings.log ? logTicksOf(low, high) : this.options.ticks(low, high, 5),
         values: (plot, splits) => splits.map(value => this.options.format(value))},
      ],
      series: [{}, ...this.curves.flatMap(curve => {
        const line = {width: 1.7, dash: curve.dashed ? [5, 3] : undefined, ...this.strokeOf(curve)};
        return settings.smoothing ? [{...line, width: 1, alpha: 0.28, auto: false}, line] : [line];
      })],
      cursor: {y: false, drag: {x: true, y: false, dist: 6}, bind: {dblclick: () => () => this.zoomTo(null)}},
      hooks: {
        setCursor: [plot => plot.cursor.left >= 0 ? this.showAt(plot.posToVal(plot.cursor.left, "x")) : this.leave()],
        setScale: [(plot, name) => name === "x" && this.keepZoom(plot.scales.x.min, plot.scales.x.max)],
        draw: [() => this.drawMarks()],
      },
    }, this.data, this.holder);
  }

  // Single values between gaps are points.
  strokeOf(curve) {
    const stroke = () => themeColor(curve.color);
    const isAlone = (values, i) => {
      if (values[i] === null || values[i] === undefined) return false;
      let before = i - 1, after = i + 1;
      while (values[before] === undefined && before >= 0) before--;
      while (values[after] === undefined && after < values.length) after++;
      return (values[before] ?? null) === null && (values[after] ?? null) === null;
    };
    return {stroke, points: {size: 6, width: 0, fill: stroke, show: false, filter: (plot, i) => {
      const values = plot.data[i], alone = values.flatMap((value, at) => isAlone(values, at) ? [at] : []);
      return alone.length ? alone : null;
    }}};
  }

  // Values that are not finite are drawn at the edge.
  drawMarks() {
    const {ctx, bbox, scales} = this.plot, size = 4 * devicePixelRatio;
    for (const {curve, x, value} of this.marks) {
      if (x < scales.x.min || x > scales.x.max) continue;
      const px = this.plot.valToPos(x, "x", true), isBelow = value === -Infinity;
      const edge = isBelow ? bbox.top + bbox.height : bbox.top;
      ctx.beginPath();
      ctx.moveTo(px - size, edge);
      ctx.lineTo(px + size, edge);
      ctx.lineTo(px, edge + (isBelow ? -2 : 2) * size);
      ctx.fillStyle = themeColor(curve.color);
      ctx.fill();
    }
  }

  // Describes the chart as text.
  describe() {
    const {format} = this.options;
    const rows = this.drawn.filter(({raw}) => raw.length).map(({curve, raw}) => {
      const finite = curve.least === undefined ? raw.filter(Number.isFinite) : [];
      const least = curve.least ?? finite.reduce((a, b) => Math.min(a, b), Infinity);
      const greatest = curve.greatest ?? finite.reduce((a, b) => Math.max(a, b), -Infinity);
      const latest = curve.latest ?? raw[raw.length - 1];
      return {curve, cells: [html("span", null, dot(curve.color), " ", curve.label), format(latest), format(least), format(greatest),
                             formatStep(curve.steps[curve.steps.length - 1])]};
    });
    this.table.replaceChildren(dataTable("", [{title: "curve"}, {title: "latest", number: true}, {title: "least", number: true},
      {title: "greatest", number: true}, {title: "step", number: true}], rows.map(row => row.cells)));
    this.holder.setAttribute("aria-label", `Chart of ${this.title}. ` + rows.map(({curve, cells}) =>
        `${curve.label}: latest ${cells[1]}, least ${cells[2]}, greatest ${cells[3]}`).join("; ") + ". Arrows move the cursor.");
    this.note.textContent = this.curves.some(curve => curve.reduced) ? "reduced, with all peaks" : "";
  }

  keepZoom(low, high) {
    this.zoom = low > this.wholeX[0] || high < this.wholeX[1] ? [low, high] : null;
    this.reset.hidden = !this.zoom;
  }

  zoomTo(range) {
    const [min, max] = range ?? this.wholeX;
    this.keepZoom(min, max);
    this.plot.setScale("x", {min, max});
  }

  leave() {
    this.cursor = null;
    this.tip.hidden = true;
  }

  pressKey(event) {
    const [low, high] = this.zoom ?? this.wholeX, middle = this.cursor ?? (low + high) / 2, span = high - low;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") this.showNext(event.key === "ArrowRight" ? 1 : -1);
    else if (event.key === "+" || event.key === "=") this.zoomTo([middle - span / 4, middle + span / 4]);
    else if (event.key === "-") this.zoomTo(this.zoom ? [middle - span, middle + span] : null);
    else if (event.key === "Escape") this.zoomTo(null);
    else return;
    event.preventDefault();
  }

  // The next point of the first curve that has one.
  showNext(direction) {
    const {x} = this.drawn.find(drawn => drawn.x.length) || {x: []};
    if (!x.length) return;
    const at = this.cursor === null ? (direction > 0 ? 0 : x.length - 1)
                                    : Math.min(x.length - 1, Math.max(0, lowerBound(x, this.cursor) + direction));
    this.tip.setAttribute("aria-live", "polite");
    this.plot.setCursor({left: this.plot.valToPos(x[at], "x"), top: 0}, false);
    this.showAt(x[at]);
  }

  showAt(at) {
    const rows = [];
    let nearest = null;
    for (const {curve, x, raw} of this.drawn) {
      if (!x.length) continue;
      let i = Math.min(lowerBound(x, at), x.length - 1);
      if (i > 0 && at - x[i - 1] < x[i] - at) i--;
      if (nearest === null || Math.abs(x[i] - at) < Math.abs(nearest - at)) nearest = x[i];
      rows.push({curve, value: raw[i]});
    }
    if (nearest === null) return;
    this.cursor = nearest;
    this.tip.replaceChildren(html("strong", null, this.formatX(nearest)), ...rows.slice(0, 16).map(row => html("div", null,
        dot(row.curve.color), html("span", null, row.curve.label), html("span", null, this.options.format(row.value, 6)))));
    this.tip.hidden = false;
    const {holder, plot, tip} = this, px = plot.bbox.left / devicePixelRatio + plot.valToPos(nearest, "x");
    tip.style.top = holder.offsetTop + 4 + "px";
    if (px < plot.width / 2) Object.assign(tip.style, {left: holder.offsetLeft + px + 12 + "px", right: "auto"});
    else Object.assign(tip.style, {left: "auto", right: plot.width - px + 24 + "px"});
  }
}
