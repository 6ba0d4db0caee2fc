"use strict";
(() => {
  const $ = (selector) => document.querySelector(selector);
  const form = $(".filters");
  const table = $(".matrix");
  const status = $(".status");
  const names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.dataset.implementation);
  const groupHeads = [...table.querySelectorAll("th.op")];
  const rows = [...table.querySelectorAll("tr[data-case]")];
  const unopened = new Map([...document.querySelectorAll("noscript[data-case]")].map((one) => [one.dataset.case, one]));
  const notFindings = new Set(["agrees", "unconfirmed", "no-result"]);
  let rules = 0;

  const checked = (name) => [...form.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value);

  // A case is text until it is opened, so the page has fewer elements and loads faster.

  function draw(name) {
    const one = unopened.get(name);
    if (!one) return false;
    const holder = document.createElement("template");
    holder.innerHTML = one.textContent;
    one.replaceWith(holder.content);
    return unopened.delete(name);
  }

  addEventListener("beforeprint", () => [...unopened.keys()].forEach(draw));

  // The fragment contains the filters: "#?implementation=a&verdict=crash" links to these cells.

  function readFragment() {
    const filters = new URLSearchParams(location.hash.slice(2));
    for (const box of form.querySelectorAll("input[type=checkbox]")) {
      box.checked = box.name === "only" ? filters.has("only") : filters.getAll(box.name).includes(box.value);
    }
    form.elements.operator.value = filters.get("operator") ?? "";
    form.elements.text.value = filters.get("text") ?? "";
    if (form.elements.operator.selectedIndex < 0) form.elements.operator.value = "";
  }

  function writeFragment() {
    const filters = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    history.replaceState(null, "", `#?${filters.size ? filters : "all"}`);
  }

  function filter() {
    const implementations = new Set(checked("implementation"));
    const verdicts = new Set(checked("verdict"));
    const operator = form.elements.operator.value;
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const columns = names.flatMap((name, i) => (implementations.size && !implementations.has(name) ? [] : [i + 1]));
    const only = form.elements.only.checked;
    const seen = (cell) =>
      (!verdicts.size || verdicts.has(cell.className)) &&
      (!only || !notFindings.has(cell.className));
    const judged = only || verdicts.size;
    let count = 0;
    for (const row of rows) {
      const text = row.cells[0].textContent.toLowerCase();
      const shown =
        (!operator || row.parentNode.dataset.operator === operator) &&
        words.every((word) => text.includes(word)) &&
        (!judged || columns.some((i) => seen(row.cells[i])));
      row.hidden = !shown;
      count += shown;
    }
    for (const group of table.tBodies) group.hidden = !group.querySelector("tr[data-case]:not([hidden])");
    showColumns(columns);
    status.textContent = `${count} of ${rows.length} cases, ${columns.length} of ${names.length} implementations`;
    $(".chosen").textContent = implementations.size ? `${implementations.size} of ${names.length}` : "all";
  }

  function showColumns(columns) {
    const sheet = document.styleSheets[0];
    while (rules) {
      sheet.deleteRule(sheet.cssRules.length - 1);
      rules -= 1;
    }
    const shown = new Set(columns);
    const hidden = names.map((_, i) => i + 1).filter((i) => !shown.has(i));
    if (hidden.length) {
      const selectors = hidden.map((i) => `.matrix :is(col, td, thead th):nth-child(${i + 1})`);
      sheet.insertRule(`${selectors.join()} { display: none }`, sheet.cssRules.length);
      rules = 1;
    }
    // A group head that spans hidden columns would make the table wider than its columns.
    for (const head of groupHeads) head.colSpan = columns.length + 1;
    document.documentElement.style.setProperty("--columns", columns.length);
  }

  function followFragment() {
    if (location.hash.startsWith("#?")) {
      readFragment();
      filter();
      $("#\\:matrix").scrollIntoView();
      return;
    }
    // An element that did not exist yet becomes the target when the address is opened again.
    if (draw(location.hash.slice(1).split(":")[0])) location.replace(location.hash);
  }

  form.addEventListener("input", () => {
    filter();
    writeFragment();
  });
  form.addEventListener("reset", () => setTimeout(() => {
    form.elements.only.checked = false;
    filter();
    writeFragment();
  }));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", followFragment);

  // Keys: up and down move between cases, "/" searches, Escape returns to the row of a case.

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = document.activeElement;
    const open = at.closest(".filters details[open]");
    if (event.key === "Escape" && open) {
      open.open = false;
      open.querySelector("summary").focus();
    } else if (at.matches("input, select, textarea")) {
      return;
    } else if (event.key === "/") {
      event.preventDefault();
      form.elements.text.focus();
    } else if (event.key === "Escape") {
      const article = at.closest(".case") ?? $(".case:target, .case:has(:target)");
      if (article) link(rows.find((row) => row.dataset.case === article.id)).focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const row = at.closest("tr[data-case]");
      if (!row) return;
      const visible = rows.filter((one) => !one.hidden);
      const next = visible[visible.indexOf(row) + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) {
        event.preventDefault();
        link(next).focus();
      }
    }
  });

  const link = (row) => row.cells[0].querySelector("a");

  // Copy the command of a reproduction to the clipboard.

  document.addEventListener("click", async (event) => {
    const menu = $(".filters details[open]");
    if (menu && !menu.contains(event.target)) menu.open = false;
    const button = event.target.closest(".copy button");
    if (!button) return;
    const text = button.parentNode.querySelector("code");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  document.documentElement.classList.add("js");
  filter();
  if (location.hash) followFragment();
})();
