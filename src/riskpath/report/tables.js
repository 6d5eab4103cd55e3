// A table that is sorted by a click on a heading and filtered by words.

/* columns: label, value(row) for sorting and filtering, cell(row) for what is shown (by default the value), numeric, text(row)
   for what the filter reads. `changed(rows)` is told which rows are shown. */
function sortableTable(id, name, columns, rows, changed = () => {}) {
  const state = (STATE.tables[id] ??= { column: null, down: false, filter: "" });
  const box = element("input", { type: "search", placeholder: "Filter: words, for example iqn cvar", "aria-label": `Filter ${name}`, value: state.filter });
  const count = element("span", { class: "soft", "aria-live": "polite" }), body = element("tbody");
  const headings = columns.map((column, place) => element("th", { class: column.numeric ? "number" : null, scope: "col" },
    element("button", { type: "button", title: column.title, onclick: () => order(place) }, column.label)));
  const lines = rows.map((row, place) => ({
    row, place,
    text: columns.map((column) => String(column.text?.(row) ?? column.value(row) ?? "")).join(" ").toLowerCase(),
    line: element("tr", {}, ...columns.map((column) => element("td", { class: column.numeric ? "number" : null }, ...content(column, row)))),
  }));
  function order(place) {
    state.down = state.column === place ? !state.down : Boolean(columns[place].numeric);
    state.column = place;
    update();
  }
  function update() {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean), column = columns[state.column];
    const shown = lines.filter(({ text }) => words.every((word) => text.includes(word)));
    if (column) shown.sort((a, b) => compareValues(column.value(a.row), column.value(b.row), state.down) || a.place - b.place);
    body.replaceChildren(...shown.map(({ line }) => line));
    headings.forEach((heading, place) => {
      if (place === state.column) heading.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    });
    count.textContent = shown.length === rows.length ? `${rows.length} row${rows.length === 1 ? "" : "s"}` : `${shown.length} of ${rows.length} rows`;
    remember();
    changed(shown.map(({ row }) => row));
  }
  box.addEventListener("input", () => { state.filter = box.value; update(); });
  const table = element("table", { id }, element("thead", {}, element("tr", {}, ...headings)), body);
  const made = element("div", {}, element("div", { class: "bar" }, box, count), element("div", { class: `scroll sorted${rows.length > 12 ? " tall" : ""}`, tabindex: 0, role: "region", "aria-label": name }, table));
  update();
  return made;
}

function content(column, row) {
  const shown = column.cell ? column.cell(row) : column.value(row);
  if (shown instanceof Array) return shown;
  return [shown instanceof Node ? shown : column.numeric && typeof shown === "number" ? number(shown) : String(shown ?? "–")];
}

// Missing values come last in both directions.
function compareValues(a, b, down) {
  const none = (x) => x === null || x === undefined || Number.isNaN(x);
  if (none(a) || none(b)) return none(a) - none(b);
  const sign = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return down ? -sign : sign;
}

// A value with its interval in a cell.
function intervalCell([x, low, high]) {
  return low === high || low === null ? [number(x)] : [number(x), element("span", { class: "interval" }, `[${number(low)}, ${number(high)}]`)];
}

function plainTable(headings, rows) {
  const cell = (name, value) => element(name, { class: typeof value === "number" || name === "th" ? "number" : null }, typeof value === "number" ? number(value) : String(value ?? "–"));
  const head = element("thead", {}, element("tr", {}, ...headings.map((heading) => cell("th", heading))));
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value) => cell("td", value)))));
  return element("div", { class: "scroll plain", tabindex: 0 }, element("table", {}, head, body));
}
