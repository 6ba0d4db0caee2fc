"use strict";
// The page around sizes.js and code.js: reads the controls, divides the axis, and shows the parts and the code.

const data = JSON.parse(document.getElementById("data").textContent);
const form = document.querySelector("form"), results = document.getElementById("results");
const problem = document.getElementById("problem");
const WAYS = { sizes: "the size of each part", parts: "the number of parts", chunk: "the size of a chunk", ones: "nothing: parts of size 1" };
const GIVEN = { sizes: "Size of each part", parts: "Number of parts", chunk: "Size of a chunk", ones: "" };
const MOST_CELLS = 48, MOST_ROWS = 32;

const make = (name, text, properties = {}) => Object.assign(document.createElement(name), properties, text === undefined ? {} : { textContent: text });
const number = (value) => value.toLocaleString("en");
const tuple = (values) => `(${values.join(", ")}${values.length === 1 ? "," : ""})`;
const colours = (part) => data.palette[Number(part % BigInt(data.palette.length))];
const row = () => data.rows.find(({ name }) => name === form.operator.value);

function integers(text) {
  const items = text.trim() ? text.trim().split(/[\s,]+/) : [];
  const odd = items.find((item) => !/^[-+]?\d{1,40}$/.test(item));
  if (odd !== undefined) throw new Error(`${odd} is not an integer`);
  return items.map(BigInt);
}

/** Return the values of the controls, or throw an Error whose message is for the user. */
function request() {
  const shape = integers(form.shape.value), [axis, ...more] = integers(form.axis.value);
  if (shape.some((dim) => dim < 0n)) throw new Error("a size of the shape is negative");
  if (axis === undefined || more.length) throw new Error("the axis is one integer");
  const way = form.way.value, numbers = way === "ones" ? [] : integers(form.numbers.value);
  if (way !== "sizes" && way !== "ones" && numbers.length !== 1) throw new Error(`${WAYS[way]} is one integer`);
  return { row: row(), shape, axis, way, numbers, keepdims: form.keepdims.checked };
}

/** Return at most `most` entries [{index, offset, size, many}]: a part, or `many` equal parts that begin at `index`. */
function listed(runs, most) {
  const found = [];
  let index = 0n, offset = 0n;
  for (const [size, many] of runs) {
    if (found.length === most) break;
    const alone = runs.length < most && many <= BigInt(most - found.length);
    for (let i = 0n; i < (alone ? many : 1n); i++)
      found.push({ index: index + i, offset: offset + i * size, size, many: alone ? 1n : many });
    index += many;
    offset += size * many;
  }
  return found;
}

/** Fill a strip with cells [{part, share, text, many}], each as wide as its share. */
function strip(element, cells, label) {
  element.replaceChildren(...cells.map(({ part, share, text, many }) => {
    const cell = make("span", text, { className: share ? "cell" : "cell empty", title: text });
    cell.style.flexGrow = share;
    if (part !== null && share) {
      const [colour, ink] = colours(part);
      cell.style.setProperty("--part", many ? `repeating-linear-gradient(90deg, ${colour} 0 6px, transparent 6px 8px)` : colour);
      if (!many) cell.style.setProperty("--ink-of-part", ink);
    }
    return cell;
  }));
  element.setAttribute("aria-label", label);
}

function draw({ shape }, found) {
  const size = shape[found.axis], cells = listed(found.runs, MOST_CELLS);
  const share = (length) => (size ? Number((length * 100000n) / size) / 100000 : 0);
  strip(document.getElementById("axis"), cells.map(({ index, size: length, many }) => ({
    part: index, share: share(length * many), text: many > 1n ? `${number(many)} × ${number(length)}` : number(length), many: many > 1n,
  })), `axis ${found.axis} of size ${size}: ${cells.length ? cells.map(({ size: length, many }) => (many > 1n ? `${many} times ${length}` : length)).join(", ") : "no parts"}`);
  document.getElementById("memory-section").hidden = shape.length === 1; // the axis is the memory
  const before = shape.slice(0, found.axis).reduce((all, dim) => all * dim, 1n), turns = before < 6n ? Number(before) : 6;
  const memory = [];
  for (let turn = 0; turn < turns && cells.length * turns <= 600; turn++)
    for (const { index, size: length, many } of cells)
      if (length) memory.push({ part: index, share: share(length * many) || 0.001, text: "", many: many > 1n });
  if (before > 6n) memory.push({ part: null, share: 0.2, text: "…" });
  strip(document.getElementById("memory"), memory, `memory: the parts alternate ${before} time${before === 1n ? "" : "s"}`);
}

function list({ shape }, found) {
  const dtype = data.dtypes[form.dtype.value], rows = listed(found.runs, MOST_ROWS);
  document.querySelector("tbody").replaceChildren(...rows.map(({ index, offset, size, many }) => {
    const part = layout(shape, found.axis, size, dtype, found.squeeze), line = make("tr");
    const label = many > 1n ? `${number(index)} – ${number(index + many - 1n)}` : number(index);
    const key = make("th", label, { scope: "row" });
    key.style.setProperty("--part", colours(index)[0]);
    line.append(key, ...[number(offset), number(size), tuple(part.shape), number(part.bytes),
      part.runs ? `${number(part.runs)} × ${number(part.run)}` : "empty"].map((text) => make("td", text)));
    return line;
  }));
  const contiguous = rows.every(({ size }) => layout(shape, found.axis, size, dtype, false).runs <= 1n);
  document.getElementById("said").textContent =
    `${number(found.count)} part${found.count === 1n ? "" : "s"} along axis ${found.axis} of ${tuple(shape)}. ` +
    (contiguous ? "Every part is one unbroken block of memory." : "A part is made of blocks that repeat: its view is not contiguous.");
}

function write(asked, found) {
  document.getElementById("code").replaceChildren(...Object.entries(code(asked, found)).flatMap(([name, text]) => [
    make("dt", name), make("dd", undefined),
  ].map((element, i) => (i && element.append(make("code", text)), element))));
}

function show() {
  let asked, found;
  try {
    asked = request();
    found = divide(asked.row, asked.shape, asked.axis, asked.way, asked.numbers, asked.keepdims);
  } catch (error) {
    found = { rule: "", text: error.message };
  }
  problem.textContent = found.rule === undefined ? "" : `${asked ? form.operator.value : ""}${found.rule && ` [${found.rule}]`}${asked ? ": " : ""}${found.text}`;
  problem.hidden = found.rule === undefined;
  results.hidden = !problem.hidden;
  if (results.hidden) return;
  draw(asked, found);
  list(asked, found);
  write(asked, found);
}

/** Offer the ways to set the parts that the operator supports. Keep the selected one if it is among them. */
function offer() {
  const { ways, keepdims } = row(), way = ways.includes(form.way.value) ? form.way.value : ways[0];
  form.way.replaceChildren(...ways.map((value) => make("option", WAYS[value], { value })));
  form.way.value = way;
  document.getElementById("given").textContent = GIVEN[way];
  form.keepdims.closest("label").hidden = !(keepdims && way === "ones");
  form.numbers.closest("label").hidden = way === "ones";
}

function restore() {
  const said = { ...data.start, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) };
  if (data.rows.some(({ name }) => name === said.operator)) form.operator.value = said.operator;
  offer();
  if (row().ways.includes(said.way)) form.way.value = said.way;
  if (said.dtype in data.dtypes) form.dtype.value = said.dtype;
  for (const name of ["shape", "axis", "numbers"]) form[name].value = said[name];
  form.keepdims.checked = String(said.keepdims) !== "0";
  offer();
  show();
}

form.operator.append(...data.rows.map(({ name }) => make("option", name, { value: name })));
form.dtype.append(...Object.keys(data.dtypes).map((name) => make("option", name, { value: name })));
form.addEventListener("input", () => {
  offer();
  show();
  const said = { ...Object.fromEntries(new FormData(form)), keepdims: Number(form.keepdims.checked) };
  history.replaceState(null, "", `#${new URLSearchParams(said)}`);
});
form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("examples").addEventListener("click", ({ target }) => {
  if (target.dataset.start === undefined) return;
  history.replaceState(null, "", `#${target.dataset.start}`);
  restore();
});
addEventListener("hashchange", restore);
document.documentElement.classList.add("alive");
restore();
