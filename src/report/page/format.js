// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them.
const UNITS = ["", "k", "M", "G", "T", "P"];

function formatNumber(value, digits = 4) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(Math.max(0, digits - 2)).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(digits > 6 || size < 10 ** digits ? digits : Math.ceil(Math.log10(size + 1)))));
}

function formatStep(value) {
  return Number.isInteger(value) ? value.toLocaleString("en-US") : formatNumber(value, 6);
}

function formatBytes(value) {
  if (!Number.isFinite(value)) return formatNumber(value);
  const negative = value < 0 ? "−" : "";
  value = Math.abs(value);
  let unit = 0;
  while (value >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit++;
  }
  return negative + Number(value.toPrecision(value >= 1000 ? 4 : 3)) + " " + (unit ? UNITS[unit].toUpperCase() + "iB" : "B");
}

function formatCount(value) {
  if (!Number.isFinite(value)) return formatNumber(value);
  let unit = 0;
  while (Math.abs(value) >= 10000 && unit + 1 < UNITS.length) {
    value /= 1000;
    unit++;
  }
  return Number(value.toPrecision(4)) + UNITS[unit];
}

function formatSeconds(value) {
  if (!Number.isFinite(value)) return formatNumber(value);
  if (value === 0) return "0 s";
  const size = Math.abs(value);
  if (size < 1e-3) return Number((value * 1e6).toPrecision(3)) + " µs";
  if (size < 1) return Number((value * 1e3).toPrecision(3)) + " ms";
  if (size < 100) return Number(value.toPrecision(3)) + " s";
  const [hours, minutes, seconds] = [size / 3600, size / 60 % 60, size % 60].map(Math.floor);
  return (value < 0 ? "−" : "") + (hours ? hours + " h " + minutes + " min" : minutes + " min " + seconds + " s");
}

function formatTime(seconds, withDate) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? "?" : withDate ? date.toLocaleString() : date.toLocaleTimeString();
}

function formatShare(share) {
  return Number.isFinite(share) ? (share * 100).toFixed(share < 0.1 ? 1 : 0) + " %" : "";
}

// About `count` round numbers from `low` to `high`.
function ticksOf(low, high, count) {
  const rough = (high - low) / count;
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length < 50; i++) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

// Round in the unit in which they are shown.
function byteTicksOf(low, high, count) {
  const unit = 1024 ** Math.max(0, Math.min(UNITS.length - 1, Math.floor(Math.log(Math.max(Math.abs(high), 1)) / Math.log(1024))));
  return ticksOf(low / unit, high / unit, count).map(tick => tick * unit);
}

function logTicksOf(low, high) {
  const ticks = [], first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / 8));
  for (let power = first; power <= last; power += every)
    for (const factor of last - first <= 2 ? [1, 2, 5] : [1]) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  return ticks.length > 1 ? ticks : [low, high];
}
