// SPDX-License-Identifier: Apache-2.0
// Puts the text around the first word that was found below each result of the search. The text of all pages is in search_text.js, so that
// it works without a server, too: a page that a browser reads from a file may not fetch another one.
addEventListener("DOMContentLoaded", () => {
  const results = document.getElementById("search-results");
  const words = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
  if (!results || !words.length || typeof SEARCH_TEXT === "undefined") return;
  const BEFORE = 80, LENGTH = 240;

  const excerpt = (text) => {
    const lower = text.toLowerCase();
    const found = words.map((word) => [lower.indexOf(word), word]).filter(([place]) => place >= 0).sort((a, b) => a[0] - b[0])[0];
    if (!found) return null;
    const [place, word] = found;
    const begin = Math.max(0, text.lastIndexOf(" ", Math.max(0, place - BEFORE)) + 1), end = Math.min(text.length, begin + LENGTH);
    const paragraph = document.createElement("p"), mark = document.createElement("mark");
    paragraph.className = "excerpt";
    mark.textContent = text.slice(place, place + word.length);
    paragraph.append((begin ? "… " : "") + text.slice(begin, place), mark, text.slice(place + word.length, end) + (end < text.length ? " …" : ""));
    return paragraph;
  };

  const root = document.documentElement.dataset.content_root || "./";
  const add = () => {
    for (const item of results.querySelectorAll("ul.search > li:not([data-seen])")) {
      item.dataset.seen = "yes";
      const link = item.querySelector("a");
      const page = link && new URL(link.href).pathname.slice(new URL(root, location.href).pathname.length).replace(/\.html$/, "");
      const paragraph = page && SEARCH_TEXT[page] && excerpt(SEARCH_TEXT[page]);
      if (paragraph) item.append(paragraph);
    }
  };
  new MutationObserver(add).observe(results, { childList: true, subtree: true });
  add();
});
