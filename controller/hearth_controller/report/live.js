"use strict";
// Fetch this page again and again. Parts that were open stay open, and scrolled ones stay scrolled.

const SECONDS = 5;
let shown = "";

function state() {
  return {
    open: [...document.querySelectorAll("details")].map((each) => each.open),
    left: [...document.querySelectorAll(".wide-table")].map((each) => each.scrollLeft),
  };
}

function restore({ open, left }) {
  document.querySelectorAll("details").forEach((each, place) => { each.open = open[place] ?? each.open; });
  document.querySelectorAll(".wide-table").forEach((each, place) => { each.scrollLeft = left[place] ?? 0; });
}

async function refresh() {
  try {
    const answer = await fetch(location.href, { cache: "no-cache" });
    if (!answer.ok) throw new Error(answer.statusText);
    const text = await answer.text();
    document.body.classList.remove("stale");
    if (text === shown) return;
    shown = text;
    const page = new DOMParser().parseFromString(text, "text/html");
    const before = state();
    document.title = page.title;
    document.body.replaceChildren(...page.body.childNodes);
    restore(before);
  } catch {
    document.body.classList.add("stale");
  }
}

setInterval(() => document.hidden || refresh(), SECONDS * 1000);
