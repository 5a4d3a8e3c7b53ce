// A chart of curves with axes, a cursor that shows values, and zoom.
const settings = {x: "step", smoothing: 0, log: false};
const LARGEST = 4e307;  // so that no difference overflows
const CHART_HEIGHT = 210, MARGIN = {left: 52, right: 10, top: 8, bottom: 20};

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
    this.plot = svg("svg", {class: "plot", tabindex: "0", role: "img", height: CHART_HEIGHT});
    this.tip = html("div", {class: "tip", hidden: true});
    this.table = html("div", {class: "latest scroll", tabindex: "0", role: "region", "aria-label": "Values of " + title});
    this.element = html("figure", {class: "chart"}, html("figcaption", null, html("span", null, title), this.note, this.reset),
                        this.plot, this.tip, this.table);
    this.plot.addEventListener("pointermove", event => this.point(event));
    this.plot.addEventListener("pointerdown", event => this.press(event));
    this.plot.addEventListener("pointerup", event => this.release(event));
    this.plot.addEventListener("pointerleave", () => this.leave());
    this.plot.addEventListener("dblclick", () => this.zoomTo(null));
    this.plot.addEventListener("keydown", event => this.pressKey(event));
    this.plot.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => {
      if (this.plot.clientWidth && this.plot.clientWidth !== this.width) this.draw();
    }).observe(this.plot);
  }

  update(curves) {
    this.curves = curves;
    this.draw();
  }

  xOf(curve, i) {
    return settings.x === "step" ? curve.steps[i] : settings.x === "time" ? curve.times[i] : curve.times[i] - curve.start;
  }

  formatX(x) {
    return settings.x === "step" ? formatStep(x) : settings.x === "time" ? formatTime(x) : formatSeconds(x);
  }

  // x, raw and smoothed y of each curve, in the order of x.
  prepare() {
    this.drawn = this.curves.map(curve => {
      let order = null;
      if (settings.x !== "step") order = curve.times.map((time, i) => i).sort((a, b) => curve.times[a] - curve.times[b]);
      const pick = i => (order ? order[i] : i);
      const x = curve.steps.map((step, i) => this.xOf(curve, pick(i)));
      const raw = curve.values.map((value, i) => curve.values[pick(i)]);
      return {curve, x, raw, y: smoothed(raw, settings.smoothing)};
    });
  }

  // The range of what is finite and, on a log scale, positive.
  ranges() {
    let xLow = Infinity, xHigh = -Infinity, low = Infinity, high = -Infinity;
    for (const {x} of this.drawn)
      if (x.length) {
        xLow = Math.min(xLow, x[0]);
        xHigh = Math.max(xHigh, x[x.length - 1]);
      }
    if (this.zoom) [xLow, xHigh] = this.zoom;
    for (const {x, raw, y} of this.drawn)
      for (const values of settings.smoothing ? [y] : [raw])
        for (let i = 0; i < x.length; i++) {
          const value = values[i];
          if (x[i] < xLow || x[i] > xHigh || !Number.isFinite(value) || (settings.log && value <= 0)) continue;
          if (value < low) low = value;
          if (value > high) high = value;
        }
    if (low > high) [low, high] = settings.log ? [0.1, 1] : [0, 1];
    [low, high] = [Math.max(low, -LARGEST), Math.min(high, LARGEST)];
    if (low === high) [low, high] = settings.log ? [low / 2, high * 2] : [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
    else if (!settings.log) [low, high] = [low - (high - low) * 0.04, high + (high - low) * 0.04];
    if (!settings.log && this.options.fromZero && low > 0) low = 0;
    if (!(xLow <= xHigh)) [xLow, xHigh] = [0, 1];
    [xLow, xHigh] = [Math.max(xLow, -LARGEST), Math.min(xHigh, LARGEST)];
    if (xLow === xHigh) [xLow, xHigh] = [xLow - 0.5, xHigh + 0.5];
    return {xLow, xHigh, low, high};
  }

  draw() {
    this.width = this.plot.clientWidth || 400;
    this.prepare();
    const {xLow, xHigh, low, high} = this.ranges();
    const {left, right, top, bottom} = MARGIN, width = Math.max(this.width - left - right, 10), height = CHART_HEIGHT - top - bottom;
    const scale = settings.log ? Math.log10 : value => value;
    const toX = x => left + (x - xLow) / (xHigh - xLow) * width;
    const toY = y => top + height - (scale(y) - scale(low)) / (scale(high) - scale(low)) * height;
    Object.assign(this, {toX, toY, xLow, xHigh, innerWidth: width});
    this.plot.setAttribute("viewBox", `0 0 ${this.width} ${CHART_HEIGHT}`);
    const parts = [];
    for (const tick of settings.log ? logTicksOf(low, high) : this.options.ticks(low, high, 5)) {
      const y = toY(tick);
      if (y < top - 1 || y > top + height + 1) continue;
      parts.push(svg("line", {class: "gridline", x1: left, x2: left + width, y1: y, y2: y}),
                 svg("text", {x: left - 6, y: y + 4, "text-anchor": "end"}, this.options.format(tick)));
    }
    for (const tick of ticksOf(xLow, xHigh, Math.max(2, Math.min(6, width / 90)))) {
      const x = toX(tick);
      parts.push(svg("line", {class: "axis", x1: x, x2: x, y1: top + height, y2: top + height + 4}),
                 svg("text", {x, y: CHART_HEIGHT - 4, "text-anchor": x > this.width - 30 ? "end" : "middle"}, this.formatX(tick)));
    }
    parts.push(svg("line", {class: "axis", x1: left, x2: left + width, y1: top + height, y2: top + height}));
    for (const drawn of this.drawn) parts.push(...this.curveParts(drawn));
    this.marks = svg("g");
    parts.push(svg("rect", {class: "hit", x: left, y: top, width, height}), this.marks);
    this.plot.replaceChildren(...parts);
    this.describe();
  }

  curveParts({curve, x, raw, y}) {
    const dashed = curve.dashed ? " dashed" : "", parts = [];
    if (settings.smoothing) parts.push(svg("path", {class: "curve raw " + curve.color, d: this.path(x, raw).path}));
    const {path, lone, strange, count} = this.path(x, y);
    parts.push(svg("path", {class: "curve " + curve.color + dashed, d: path, "data-points": count}));
    for (const [px, py] of lone) parts.push(svg("circle", {class: "lone " + curve.color, cx: px, cy: py, r: 3}));
    // Values that are not finite are drawn at the edge.
    for (const [px, value] of strange.slice(0, 200)) {
      const at = value === -Infinity ? CHART_HEIGHT - MARGIN.bottom : MARGIN.top, to = value === -Infinity ? -7 : 7;
      parts.push(svg("path", {class: "strange " + curve.color, d: `M${px - 4} ${at}h8l-4 ${to}z`},
                     svg("title", null, curve.label + ": " + formatNumber(value))));
    }
    return parts;
  }

  // At most four points for each column of pixels, so that no peak is lost.
  path(x, values) {
    const lone = [], strange = [];
    let path = "", count = 0, column = null, begun = false, lastPoint = null, run = 0;
    const put = (px, py) => {
      path += (begun ? "L" : "M") + px.toFixed(1) + " " + py.toFixed(1);
      begun = true;
      count++;
    };
    const flush = () => {
      if (!column) return;
      put(column.px, column.first);
      if (column.n > 1) {
        for (const py of column.lowAt < column.highAt ? [column.low, column.high] : [column.high, column.low]) put(column.px, py);
        put(column.px, column.last);
      }
      lastPoint = [column.px, column.last];
      run += column.n;
      column = null;
    };
    const interrupt = () => {
      flush();
      if (run === 1) lone.push(lastPoint);
      begun = false;
      run = 0;
    };
    const dense = x.length > this.innerWidth * 2;
    const begin = Math.max(0, lowerBound(x, this.xLow) - 1), end = Math.min(x.length, lowerBound(x, this.xHigh) + 2);
    for (let i = begin; i < end; i++) {
      const value = values[i];
      const px = Math.max(-1e5, Math.min(1e5, dense ? Math.round(this.toX(x[i])) : this.toX(x[i])));
      if (!Number.isFinite(value) || (settings.log && value <= 0)) {
        interrupt();
        if (!Number.isFinite(value) && x[i] >= this.xLow && x[i] <= this.xHigh) strange.push([px, value]);
        continue;
      }
      const py = Math.max(-1e5, Math.min(1e5, this.toY(value)));
      if (column && (!dense || column.px !== px)) flush();
      if (!column) column = {px, first: py, low: py, high: py, lowAt: i, highAt: i, last: py, n: 0};
      if (py > column.low) [column.low, column.lowAt] = [py, i];
      if (py < column.high) [column.high, column.highAt] = [py, i];
      column.last = py;
      column.n++;
    }
    interrupt();
    return {path, lone, strange, count};
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
    this.plot.setAttribute("aria-label", `Chart of ${this.title}. ` + rows.map(({curve, cells}) =>
        `${curve.label}: latest ${cells[1]}, least ${cells[2]}, greatest ${cells[3]}`).join("; ") + ". Arrows move the cursor.");
    this.note.textContent = this.curves.some(curve => curve.reduced) ? "reduced, with all peaks" : "";
    this.reset.hidden = !this.zoom;
  }

  placeOf(event) {
    const box = this.plot.getBoundingClientRect();
    const px = (event.clientX - box.left) / box.width * this.width;
    const share = Math.min(1, Math.max(0, (px - MARGIN.left) / this.innerWidth));
    return {px: MARGIN.left + share * this.innerWidth, x: this.xLow + share * (this.xHigh - this.xLow)};
  }

  point(event) {
    const place = this.placeOf(event);
    this.showAt(place.x);
    if (!this.pressed) return;
    const [from, to] = [this.pressed.px, place.px].sort((a, b) => a - b);
    this.marks.append(svg("rect", {class: "selection", x: from, y: MARGIN.top, width: to - from, height: CHART_HEIGHT - MARGIN.top - MARGIN.bottom}));
  }

  press(event) {
    if (event.button !== 0) return;
    this.pressed = this.placeOf(event);
    this.plot.setPointerCapture(event.pointerId);
  }

  release(event) {
    if (!this.pressed) return;
    const from = this.pressed, to = this.placeOf(event);
    this.pressed = null;
    if (Math.abs(to.px - from.px) > 6) this.zoomTo([from.x, to.x].sort((a, b) => a - b));
  }

  leave() {
    if (this.pressed) return;
    this.cursor = null;
    this.tip.hidden = true;
    if (this.marks) this.marks.replaceChildren();
  }

  zoomTo(range) {
    this.zoom = range;
    this.leave();
    this.draw();
  }

  pressKey(event) {
    const middle = this.cursor ?? (this.xLow + this.xHigh) / 2, span = this.xHigh - this.xLow;
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
    this.showAt(x[at]);
  }

  showAt(at) {
    const rows = [];
    let nearest = null;
    for (const {curve, x, raw, y} of this.drawn) {
      if (!x.length) continue;
      let i = Math.min(lowerBound(x, at), x.length - 1);
      if (i > 0 && at - x[i - 1] < x[i] - at) i--;
      if (nearest === null || Math.abs(x[i] - at) < Math.abs(nearest - at)) nearest = x[i];
      rows.push({curve, x: x[i], value: raw[i], y: y[i]});
    }
    if (nearest === null) return;
    this.cursor = nearest;
    const px = this.toX(nearest);
    this.marks.replaceChildren(svg("line", {class: "cursor", x1: px, x2: px, y1: MARGIN.top, y2: CHART_HEIGHT - MARGIN.bottom}));
    for (const row of rows)
      if (Number.isFinite(row.y) && !(settings.log && row.y <= 0))
        this.marks.append(svg("circle", {class: "lone " + row.curve.color, cx: this.toX(row.x), cy: this.toY(row.y), r: 3}));
    this.tip.replaceChildren(html("strong", null, this.formatX(nearest)), ...rows.slice(0, 16).map(row => html("div", null,
        dot(row.curve.color), html("span", null, row.curve.label), html("span", null, this.options.format(row.value, 6)))));
    this.tip.hidden = false;
    this.tip.style.top = this.plot.offsetTop + 4 + "px";
    if (px < this.width / 2) Object.assign(this.tip.style, {left: this.plot.offsetLeft + px + 12 + "px", right: "auto"});
    else Object.assign(this.tip.style, {left: "auto", right: this.width - px + 24 + "px"});
  }
}
