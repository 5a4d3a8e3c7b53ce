// SPDX-License-Identifier: Apache-2.0
// Lets long names in tables break behind their parts. Marks tables of more than two columns as wide, and gives each of their cells the name of its column, which a phone shows in front.
addEventListener("DOMContentLoaded", () => {
  for (const code of document.querySelectorAll(".content td code *, .content td code")) {
    if (code.children.length) continue;
    const parts = code.textContent.split(/(?<=[_.:/(,=])(?=\w)/);
    if (parts.length > 1) code.replaceChildren(...parts.flatMap((part) => [part, document.createElement("wbr")]).slice(0, -1));
  }
  for (const table of document.querySelectorAll(".content table")) {
    const titles = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (titles.length < 3) continue;
    table.classList.add("wide");
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, column) => cell.setAttribute("data-title", titles[column] || ""));
    }
  }
});
