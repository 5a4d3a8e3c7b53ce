// SPDX-License-Identifier: Apache-2.0
// Elements of the page. All text goes in as text, never as HTML.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(2).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

function html(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function dot(color) {
  return html("span", {class: "dot " + color, "aria-hidden": "true"});
}

// Columns are {title, number}; cells are text or elements, the first one of a row is its head.
function dataTable(caption, columns, rows, attributes) {
  const classOf = i => columns[i] && columns[i].number ? "number" : null;
  return html("table", attributes, caption ? html("caption", null, caption) : null,
              html("thead", null, html("tr", null, columns.map((column, i) => html("th", {scope: "col", class: classOf(i)}, column.title)))),
              html("tbody", null, rows.map(row => html("tr", null, row.map((cell, i) =>
                  i === 0 ? html("th", {scope: "row"}, cell) : html("td", {class: classOf(i)}, cell))))));
}

// The width of the content of a card that spans the page.
function contentWidth() {
  return Math.max(document.getElementById("content").clientWidth - 70, 320);
}

function scrolled(label, ...children) {
  return html("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": label}, ...children);
}

function legend(entries) {
  return html("ul", {class: "legend"}, entries.map(({label, color}) => html("li", null, dot(color), label)));
}

// A slider over items with steps, which remembers its place; `show` returns what belongs to one of them.
const sliderPlaces = new Map();

function stepSlider(key, items, show) {
  const shown = html("div", {"aria-live": "polite"}), output = html("output");
  const last = items.length - 1;
  const input = html("input", {type: "range", min: 0, max: last, step: 1, "aria-label": "step"});
  const move = () => {
    const item = items[Number(input.value)];
    output.textContent = "step " + formatStep(item.step);
    shown.replaceChildren(show(item));
  };
  input.value = Math.min(sliderPlaces.get(key) ?? last, last);
  input.addEventListener("input", () => {
    sliderPlaces.set(key, Number(input.value) === last ? undefined : Number(input.value));
    move();
  });
  move();
  return [html("div", {class: "step-slider"}, last > 0 ? input : null, output), shown];
}
