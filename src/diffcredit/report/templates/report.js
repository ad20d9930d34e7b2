"use strict";

// Without script every property is shown, one below the other; with it, one at a time.
const tablist = document.querySelector('[role="tablist"]');
if (tablist) {
  const tabs = [...tablist.querySelectorAll('[role="tab"]')];
  const select = (chosen) => {
    for (const tab of tabs) {
      const selected = tab === chosen;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).classList.toggle("folded", !selected);
    }
  };
  tablist.hidden = false;
  document.documentElement.classList.add("tabbed");
  select(tabs[0]);
  tablist.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) select(tab);
  });
  tablist.addEventListener("keydown", (event) => {
    const here = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length];
    select(tab);
    tab.focus();
  });
}

// A first press sorts the way its column is read: ranks and names upwards, amounts downwards.
for (const table of document.querySelectorAll("table.credits")) {
  const headings = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const order = new Map([...body.rows].map((row, i) => [row, i]));
  const collator = new Intl.Collator(undefined, { numeric: true });
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const text = heading.dataset.kind === "text";
      const first = heading.dataset.kind === "descending" ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const direction = heading.getAttribute("aria-sort") === first ? other : first;
      for (const each of headings) each.setAttribute("aria-sort", each === heading ? direction : "none");
      const sign = direction === "ascending" ? 1 : -1;
      const key = (row) => {
        const cell = row.cells[column];
        return text ? cell.querySelector("bdi").textContent : Number(cell.dataset.value);
      };
      const compare = text ? collator.compare : (a, b) => a - b;
      const rows = [...body.rows].sort((a, b) => sign * compare(key(a), key(b)) || order.get(a) - order.get(b));
      body.append(...rows);
    });
  });
}

// What is folded on the screen belongs on paper.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});
