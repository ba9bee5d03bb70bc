"use strict";
/* What every page of the report is made of.

   airgenData(name, text)     called by each file in data/: base64 of gzipped JSON
   airgenPage(name, page)     a page: {route: /^...$/, title, tab, order, draw(main, params, data)}
   get("d0/queries")          a Promise of the value of data/d0/queries.js, which is loaded once
   el("a", {href: "#/"}, "text", node, ...)     an element; strings become text nodes
   drawnTable(value, {virtual, ...})            a table that Python made: sorted, filtered and drawn here

   All text reaches the page as text nodes: nothing is parsed as HTML. */

const airgen = { pages: [], onQuery: [], waiting: new Map(), values: new Map(), nonce: document.currentScript.nonce, drawn: 0 };

/* --- data ------------------------------------------------------------------------------------------------- */

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return bare(JSON.parse(await new Response(stream).text()));
}

/* Objects whose only names are those in the data: an id may be "constructor", which every object has otherwise. */
function bare(value) {
  if (value === null || typeof value !== "object") return value;
  for (const each of Array.isArray(value) ? value : Object.values(value)) bare(each);
  return Array.isArray(value) ? value : Object.setPrototypeOf(value, null);
}

function airgenData(name, text) {
  const waits = airgen.waiting.get(name);
  if (waits) waits(text);
}

function load(name) {
  const block = document.querySelector(`script[data-chunk="${CSS.escape(name)}"]`);
  if (block) return Promise.resolve(block.textContent);
  return new Promise((resolve, reject) => {
    airgen.waiting.set(name, resolve);
    const script = document.createElement("script");
    script.nonce = airgen.nonce;
    script.src = `data/${name}.js`;
    script.onload = () => { script.remove(); reject(new Error(`data/${name}.js has unexpected content`)); };
    script.onerror = () => reject(new Error(`data/${name}.js is missing: copy the whole report folder`));
    document.head.append(script);
  });
}

/* The value of a data file. Values stay in memory, so a page that is opened again is there at once. */
function get(name) {
  if (!airgen.values.has(name)) {
    const value = load(name).then(unpack);
    value.catch(() => airgen.values.delete(name));
    airgen.values.set(name, value);
  }
  return airgen.values.get(name);
}

/* --- elements --------------------------------------------------------------------------------------------- */

/* Control characters get a visible sign; those that turn the direction of what follows are left out. */
function clean(text) {
  return String(text)
    .replace(/[\u202a-\u202e\u2066-\u2069]/g, "")
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (letter) => String.fromCharCode(0x2400 + letter.charCodeAt(0)))
    .replace(/[\u007f-\u009f]/g, "\ufffd");
}

const SVG = new Set(["svg", "path", "line", "rect", "circle", "text", "g", "title", "polyline"]);

/* attributes: `class`, `on: {click: f}`, `style: {width: "3em"}`, `dataset: {...}`; others are set as they are.
   null, undefined and false are left out, among attributes and among children. */
function el(tag, attributes, ...children) {
  const inside = SVG.has(tag) && tag !== "title";
  const made = inside ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else if (name === "style") Object.assign(made.style, value);
    else if (name === "dataset") Object.assign(made.dataset, value);
    else if (name === "value" && tag !== "option") made.value = value;
    else if (name === "checked" || name === "disabled" || name === "selected" || name === "open") made[name] = value;
    else if (name === "href") made.setAttribute("href", safeLink(value));
    else made.setAttribute(name, value === true ? "" : clean(value));
  }
  append(made, children);
  return made;
}

function safeLink(address) {
  const text = String(address);
  return text.startsWith("#") || /^(https?|blob):/i.test(text) ? text : "#/";
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
}

/* The same for an element that is there. */
function put(parent, ...children) {
  append(parent, children);
  return parent;
}

/* Text from documents, queries and models: its own direction, whatever the page has. */
function foreign(text, tag = "span", attributes = {}) {
  return el(tag, { dir: "auto", ...attributes, class: `foreign ${attributes.class || ""}`.trim() }, text);
}

/* A system's name, which may break after its signs and not within its words. */
function systemName(text) {
  const words = clean(text).split(/(?<=[+_./:-])(?=[^+_./:-])/);
  return el("span", { dir: "auto", class: "foreign system" }, words.map((word, place) => [place ? el("wbr") : null, word]));
}

/* --- numbers ---------------------------------------------------------------------------------------------- */

const EMPTY = "–";
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const count = (value) => (isNumber(value) ? value.toLocaleString("en") : EMPTY);
const score = (value, digits = 3) => (isNumber(value) ? value.toFixed(digits) : EMPTY);
const percent = (value, digits = 0) => (isNumber(value) ? `${(value * 100).toFixed(digits)} %` : EMPTY);
const money = (value) => (isNumber(value) ? `$${value.toFixed(value && value < 0.1 ? 4 : 2)}` : EMPTY);

/* --- addresses -------------------------------------------------------------------------------------------- */

/* "#/d0/queries?type=claim" -> {path: ["d0", "queries"], query: URLSearchParams, text: "/d0/queries"} */
function address(hash = location.hash) {
  const [path, ...rest] = hash.replace(/^#/, "").split("?");
  const text = path || "/";
  const parts = text.split("/").filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { text, path: parts, query: new URLSearchParams(rest.join("?")) };
}

/* link("d0", "query", id, {show: "all"}) -> "#/d0/query/ID?show=all" */
function link(...parts) {
  const last = parts.at(-1);
  const query = last && typeof last === "object" ? new URLSearchParams(parts.pop()).toString() : "";
  return "#/" + parts.map(encodeURIComponent).join("/") + (query ? `?${query}` : "");
}

/* Change the part after "?" without drawing the page again: filters and sorting stay in the address. */
function remember(changes) {
  const here = address();
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) here.query.delete(name);
    else here.query.set(name, value);
  }
  const query = here.query.toString();
  history.replaceState(history.state, "", `#${here.text}${query ? `?${query}` : ""}`);
  airgen.at = location.hash;
}

/* --- pages ------------------------------------------------------------------------------------------------ */

/* route is matched against the path without "#". draw(main, params, data): params = {match, path, query, dataset};
   data is the summary, data/report.js. tab: its name in the list of pages, shown where has(dataset, data) is true. */
function airgenPage(name, page) {
  airgen.pages.push({ name, order: 50, ...page });
}

function datasetOf(data, path) {
  return data.datasets.find((one) => one.key === path[0]) || null;
}

async function draw() {
  const data = await get("report");
  const here = address();
  const page = airgen.pages.find((one) => one.route.test(here.text));
  const dataset = datasetOf(data, here.path);
  const turn = ++airgen.drawn;
  const fresh = el("div", { class: `page page-${page ? page.name : "none"}` });
  const params = { match: page ? here.text.match(page.route) : [], path: here.path, query: here.query, dataset };
  drawTop(data, page, dataset);
  const main = document.getElementById("main");
  main.setAttribute("aria-busy", "true");
  try {
    if (!page) throw new Error(`There is no page ${here.text}.`);
    await page.draw(fresh, params, data);
  } catch (error) {
    fresh.replaceChildren(el("h1", {}, "This page cannot be shown"), notice(error.message),
      el("p", {}, el("a", { href: "#/" }, "To the overview")));
  }
  if (turn !== airgen.drawn) return;
  main.replaceChildren(fresh);
  main.removeAttribute("aria-busy");
  const title = page && (typeof page.title === "function" ? page.title(params, data) : page.title);
  document.title = [title, dataset ? dataset.name : data.title].filter(Boolean).map(clean).join(" · ");
  fresh.dispatchEvent(new CustomEvent("shown"));
}

function notice(text, kind = "warn") {
  return el("p", { class: `notice ${kind}`, role: "note", dir: "auto" }, text);
}

function drawTop(data, page, dataset) {
  const first = dataset || data.datasets[0] || null;
  const tabs = airgen.pages
    .filter((one) => one.tab && (!one.has || one.has(first, data)))
    .sort((a, b) => a.order - b.order)
    .map((one) => el("a", {
      href: one.link ? one.link(first, data) : link(first.key, one.name),
      "aria-current": one === page || (page && page.under === one.name) ? "page" : null,
    }, one.tab));
  const choose = data.datasets.length > 1 && dataset && el("select", {
    "aria-label": "Dataset", dir: "auto",
    on: { change: (event) => { location.hash = location.hash.replace(/^#\/d\d+/, `#/${event.target.value}`).replace(/(\/quer)y\/.*/, "$1ies"); } },
  }, data.datasets.map((one) => el("option", { value: one.key, selected: one === dataset }, one.name)));
  document.getElementById("top").replaceChildren(el("div", { class: "bar" },
    el("a", { class: "brand", href: "#/" }, foreign(data.title || "airgen report")),
    choose, el("nav", { "aria-label": "Pages" }, tabs),
    data.public && el("span", { class: "tag" }, "public form"), themeButton()));
  document.getElementById("foot").replaceChildren(
    el("span", {}, `Made by ${data.made_by}.`), " ",
    el("span", {}, data.public ? "Private labels are not in this report." : "This report may contain private labels: share it with care."));
}

/* --- light and dark --------------------------------------------------------------------------------------- */

const THEMES = { auto: "◐", light: "☀", dark: "☾" };

function kept(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(`airgen-${name}`);
    localStorage.setItem(`airgen-${name}`, value);
  } catch { /* a page from the disk may have no storage */ }
  return value;
}

function setTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  document.dispatchEvent(new CustomEvent("theme"));
}

/* Whether the page is dark now: for charts, of which there is one for each. */
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function themeButton() {
  const names = Object.keys(THEMES);
  let now = names.includes(kept("theme")) ? kept("theme") : "auto";
  const button = el("button", { type: "button", class: "quiet theme" });
  const show = () => {
    button.replaceChildren(THEMES[now]);
    button.title = `Colours: ${now}`;
    button.setAttribute("aria-label", `Colours: ${now}. Change`);
  };
  button.addEventListener("click", () => {
    now = names[(names.indexOf(now) + 1) % names.length];
    kept("theme", now);
    setTheme(now);
    show();
  });
  show();
  return button;
}

/* --- tables ----------------------------------------------------------------------------------------------- */

const VIEW_MARGIN = 10;
const PRINTED = 1000;
const EMPTY_RANK = -1;
const order = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

function compare(a, b) {
  const emptyA = a === null || a === undefined || a === "";
  const emptyB = b === null || b === undefined || b === "";
  if (emptyA || emptyB) return emptyA - emptyB;
  return typeof a === "number" && typeof b === "number" ? a - b : order.compare(String(a), String(b));
}

/* A spreadsheet takes a text that begins with one of these signs for a formula, whatever blanks come before it. */
const csvOf = (rows) => `${rows.map((row) => row.map((text) => {
  const safe = /^[\s\p{Cf}]*[=+\-@＝＋－＠]|^\t/u.test(text) && !/^[+\-]?[\d.]*$/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}).join(",")).join("\n")}\n`;

const markdownOf = ([head, ...rows]) => `${[head, head.map(() => "---"), ...rows]
  .map((row) => `| ${row.map((text) => text.replace(/\s+/g, " ").replace(/[\\|<>`*_[\]]/g, "\\$&")).join(" | ")} |`).join("\n")}\n`
  .replace(/\\(?=---)/g, "");

const saveText = (name, type, text) => saveBlob(name, new Blob([text], { type: `${type};charset=utf-8` }));

function saveBlob(name, blob) {
  const place = URL.createObjectURL(blob);
  const file = el("a", { href: place, download: name.replace(/[^\w.-]+/g, "-") });
  file.click();
  setTimeout(() => URL.revokeObjectURL(place), 0);
}

const WORDLESS = new Set(["interval", "ranks", "bar"]); // pictures in place of a text
const STACKED = 4; // columns of a table that a phone shows side by side

/* A table that Python made (airgen/report/page_table.py): its texts, and what to sort, link and draw. Its rows are places
   in the columns.

   sort, onSort(sort): the column that it is sorted by, and who is told of a change. virtual: draw only the rows in view,
   which all have one height (for more than some 200 rows). shown: the rows at first, by default all in their order.

   Returns the element with `setRows(rows)` and `shownRows()`. */
function drawnTable(value, { sort = value.sort || "", onSort = null, virtual = false, shown: first = null, empty = "Nothing here." } = {}) {
  const { label, stack = true, square = false } = value;
  const columns = value.columns.map((column, at) => ({ ...column, key: String(at), fixed: square || !column.title }));
  const main = value.opens && columns.find((column) => column.role === "main");
  const valueOf = (column, row) => (column.sort || column.texts)[row];
  const classOf = (column) => [column.number && "number", column.role, column.wide && "wide"].filter(Boolean).join(" ") || null;
  const body = el("tbody");
  const head = el("tr");
  const stacked = stack === "always" || (stack && !virtual && columns.filter((one) => one.title).length > STACKED);
  const made = el("table", { class: virtual ? "virtual" : square ? "pairs" : stacked ? "stacked" : null, "aria-label": label }, columns.some((one) => one.title) ? el("thead", {}, head) : null, body);
  const box = el("div", { class: "table" }, made);
  let given = first || Array.from({ length: value.size }, (_, place) => place);
  let shown = [];
  let height = 0;
  let range = "";

  function drawHead() {
    head.replaceChildren(...columns.map((column) => {
      const down = sort === `-${column.key}`;
      const up = sort === column.key;
      const words = [column.title, el("span", { class: "arrow", "aria-hidden": "true" }, down ? "▾" : up ? "▴" : "")];
      return el("th", {
        scope: "col", class: classOf(column), style: virtual && column.width ? { width: `${column.width}px` } : null, title: column.hint,
        "aria-sort": up ? "ascending" : down ? "descending" : null,
      }, column.fixed ? column.title : el("button", { type: "button", on: { click: () => {
        const first = column.number ? `-${column.key}` : column.key;
        const second = column.number ? column.key : `-${column.key}`;
        sort = sort === first ? second : first;
        arrange();
        if (onSort) onSort(sort);
      } } }, words));
    }));
  }

  /* The place of each row in the order of a column, equal values at one place: made once, since comparing texts is slow. */
  const known = new Map();
  function ranksOf(column) {
    const ready = known.get(column.key);
    if (ready && given.every((row) => ready.has(row))) return ready;
    const isEmpty = (value) => value === null || value === undefined || value === "";
    const pairs = given.map((row) => [row, valueOf(column, row)]);
    const full = pairs.filter(([, value]) => !isEmpty(value)).sort((a, b) => compare(a[1], b[1]));
    const ranks = new Map(pairs.map(([row]) => [row, EMPTY_RANK]));
    let rank = 0;
    full.forEach(([row, value], place) => {
      if (place && compare(full[place - 1][1], value) !== 0) rank = place;
      ranks.set(row, rank);
    });
    known.set(column.key, ranks);
    return ranks;
  }

  function arrange() {
    drawHead();
    const column = columns.find((one) => one.key === sort.replace(/^-/, ""));
    shown = given;
    if (column) {
      const sign = sort.startsWith("-") ? -1 : 1;
      const ranks = ranksOf(column);
      const places = given.map((_, place) => place);
      places.sort((a, b) => {
        const [one, other] = [ranks.get(given[a]), ranks.get(given[b])];
        if (one === EMPTY_RANK || other === EMPTY_RANK) return (one === EMPTY_RANK) - (other === EMPTY_RANK) || a - b;
        return sign * (one - other) || a - b;
      });
      shown = places.map((place) => given[place]);
    }
    range = "";
    made.setAttribute("aria-rowcount", shown.length + 1);
    fill();
  }

  function rowOf(row, place) {
    const cells = columns.map((column) => {
      const heads = square && column.role === "name";
      const inside = drawnCell(column, row, virtual);
      const text = inside === null || inside === undefined || (inside === "" && !square) ? EMPTY : inside;
      return el(heads ? "th" : "td", { scope: heads ? "row" : null, class: classOf(column),
        "data-label": stacked && column.title ? column.title : null }, text);
    });
    return el("tr", { "aria-rowindex": virtual ? place + 2 : null, on: main ? { click: (event) => {
      if (event.target.closest("a, button, input") || String(getSelection())) return;
      location.hash = cellLink(main, row);
    } } : null, class: main ? "linked" : null }, cells);
  }

  /* One cell: with fixed columns, a wider one would bring back columns that a narrow screen hides. */
  const space = (pixels) => el("tr", { class: "space", "aria-hidden": "true" },
    el("td", { style: { height: `${pixels}px` } }));

  function fill(all = false) {
    if (!shown.length) {
      body.replaceChildren(el("tr", {}, el("td", { colspan: virtual ? null : columns.length, class: "empty" }, empty)));
      return;
    }
    if (!virtual) {
      body.replaceChildren(...shown.map(rowOf));
      return;
    }
    if (!height) {
      body.replaceChildren(rowOf(shown[0], 0));
      height = body.firstChild.getBoundingClientRect().height;
      if (!height) { height = 0; return; }
    }
    const top = body.getBoundingClientRect().top;
    let first = Math.max(0, Math.floor(-top / height) - VIEW_MARGIN);
    let last = Math.min(shown.length, Math.ceil((innerHeight - top) / height) + VIEW_MARGIN);
    if (all) [first, last] = [0, Math.min(shown.length, PRINTED)];
    first = Math.min(first, Math.max(0, shown.length - 1));
    last = Math.max(last, first + 1);
    if (range === `${first}-${last}`) return;
    range = `${first}-${last}`;
    const active = document.activeElement && body.contains(document.activeElement)
      ? document.activeElement.closest("tr").getAttribute("aria-rowindex") : null;
    body.replaceChildren(space(first * height), ...shown.slice(first, last).map((row, place) => rowOf(row, first + place)),
      space((shown.length - last) * height));
    if (active) focusRow(Number(active) - 2);
  }

  function focusRow(place) {
    const row = body.querySelector(`tr[aria-rowindex="${place + 2}"]`);
    const inside = row && row.querySelector("a, button");
    if (inside) inside.focus({ preventScroll: true });
    return row;
  }

  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    const row = event.target.closest("tr");
    if (!step || !row || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    const inside = next && next.querySelector("a, button");
    const search = document.querySelector("main input[type=search]");
    if (!inside && step < 0 && search) { search.focus(); event.preventDefault(); }
    if (!inside) return;
    inside.focus();
    next.scrollIntoView({ block: "nearest" });
    event.preventDefault();
  });

  if (virtual) {
    let asked = false;
    const later = () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        if (!made.isConnected) { stop(); return; }
        fill();
      });
    };
    const resized = () => { height = 0; range = ""; later(); };
    const printing = () => { if (made.isConnected) fill(true); };
    const printed = () => { range = ""; later(); };
    const events = [["scroll", later], ["resize", resized], ["beforeprint", printing], ["afterprint", printed]];
    const stop = () => events.forEach(([name, call]) => removeEventListener(name, call));
    const start = () => {
      if (!made.isConnected) { requestAnimationFrame(start); return; }
      events.forEach(([name, call]) => addEventListener(name, call, { passive: true }));
      resized();
    };
    requestAnimationFrame(start);
  }
  /* Take the table along: its texts, in the order on the screen, without what is only a picture. */
  const told = columns.filter((one) => !(one.picture && WORDLESS.has(one.picture.kind)));
  const taken = () => [told.map((one) => one.title), ...shown.map((row) => told.map((one) => one.texts[row]))];
  const take = (name, ending, type, write) => el("button", { type: "button", class: "take",
    "aria-label": `${label} as ${name}`, on: { click: () => saveText(`${label}.${ending}`, type, write(taken())) } }, name);
  if (value.size > 1) {
    const takes = el("p", { class: "takes" }, take("CSV", "csv", "text/csv", csvOf), " ", take("Markdown", "md", "text/markdown", markdownOf));
    if (virtual) box.prepend(takes); else box.append(takes);
  }
  box.setRows = (next) => { given = next; arrange(); };
  box.shownRows = () => shown;
  arrange();
  return box;
}

/* What is made when it is unfolded: a long table costs nothing before. */
function unfolded(words, make) {
  const box = el("details", { on: { toggle: () => { if (box.open && box.childElementCount === 1) box.append(make()); } } }, el("summary", {}, words));
  return box;
}

const cellLink = (column, row) => link(...column.to, ...[column.ids[row]].flat(), column.query || {});

function drawnCell(column, row, virtual = false) {
  const text = column.texts[row];
  const picture = column.picture && column.picture.values[row];
  const kind = column.picture && column.picture.kind;
  const remark = column.remarks && column.remarks[row];
  if (kind === "interval") return picture && figures.interval(picture[0], picture.slice(1), ...column.picture.axis);
  if (kind === "ranks") return picture && figures.ranks(picture, column.picture.axis);
  if (kind === "bar") return figures.bar(picture || 0);
  if (kind === "strip") return figures.strip(text, picture);
  if (kind === "tag") return picture ? figures.tag(picture, remark) : el("span", { class: "quiet" }, text);
  if (kind === "pair") return isNumber(picture) && column.ids[row] ? figures.pair(text, picture, cellLink(column, row), remark) : "";
  let made = column.role === "code" ? el("code", {}, text) : column.number ? text : column.role === "name" ? systemName(text) : foreign(text);
  if (kind === "shade" && isNumber(picture)) made = figures.strong(el("span", { class: "shaded" }, text), picture);
  if (column.sides) made = el("span", { class: column.sides[row] }, text);
  if (column.bold && column.bold.includes(row)) made = el("strong", {}, made);
  if (column.ids && column.ids[row] !== null) made = el("a", { href: cellLink(column, row), title: remark, class: column.role === "main" ? (virtual ? "line" : "plain") : null }, made);
  return column.below ? [made, el("small", { class: "narrow quiet" }, column.below[row])] : made;
}

/* --- words ------------------------------------------------------------------------------------------------ */

const fold = (text) => text.toLowerCase().normalize("NFKD").replace(/[\u0300-\u036f\u064b-\u0652\u0670]/g, "").normalize("NFC");

/* The words of a text: [{text, word}] that join to the text. Chinese, Japanese and Thai are divided by the browser. */
function pieces(text, language) {
  text = clean(text);
  if (window.Intl && Intl.Segmenter) {
    let segmenter;
    try { segmenter = new Intl.Segmenter(language || undefined, { granularity: "word" }); }
    catch { segmenter = new Intl.Segmenter(undefined, { granularity: "word" }); }
    return Array.from(segmenter.segment(text), (one) => ({ text: one.segment, word: one.isWordLike }));
  }
  return text.split(/([\p{L}\p{M}\p{N}]+)/u).filter(Boolean).map((one, place) => ({ text: one, word: /[\p{L}\p{N}]/u.test(one) && place % 2 >= 0 }));
}

/* A text with the words of `query` marked, other than `stopwords`. Words that begin alike count as one. */
function marked(text, query, { language, stopwords } = {}) {
  const stops = new Set((stopwords || []).map(fold));
  const wanted = new Set(pieces(query, language).filter((one) => one.word).map((one) => fold(one.text)).filter((word) => !stops.has(word)));
  const stems = [...wanted].filter((word) => word.length > 4);
  const alike = (word) => stems.some((stem) => {
    const long = Math.min(word.length, stem.length);
    const same = Math.max(4, long - 2);
    return long > 4 && Math.abs(word.length - stem.length) < 4 && word.slice(0, same) === stem.slice(0, same);
  });
  const known = new Map();
  const hit = (word) => {
    if (!known.has(word)) known.set(word, wanted.has(word) || alike(word));
    return known.get(word);
  };
  const found = [];
  let plain = "";
  for (const one of pieces(text, language)) {
    if (one.word && hit(fold(one.text))) {
      if (plain) found.push(plain);
      plain = "";
      found.push(el("mark", {}, one.text));
    } else plain += one.text;
  }
  if (plain) found.push(plain);
  return found;
}

/* What changed between two texts, word by word: nodes with <del> and <ins>. */
function wordDiff(before, after, language) {
  const a = pieces(before, language).map((one) => one.text);
  const b = pieces(after, language).map((one) => one.text);
  if (a.length * b.length > 250000) return [el("del", {}, before), " ", el("ins", {}, after)];
  const wide = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * wide + j] = a[i] === b[j] ? longest[(i + 1) * wide + j + 1] + 1
        : Math.max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
  const parts = [];
  const put = (kind, text) => {
    if (parts.length && parts.at(-1).kind === kind) parts.at(-1).text += text;
    else parts.push({ kind, text });
  };
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { put("", a[i]); i++; j++; }
    else if (j >= b.length || (i < a.length && longest[(i + 1) * wide + j] >= longest[i * wide + j + 1])) put("del", a[i++]);
    else put("ins", b[j++]);
  }
  return parts.map((one) => (one.kind ? el(one.kind, {}, one.text) : one.text));
}

/* --- start ------------------------------------------------------------------------------------------------ */

const places = new Map();

addEventListener("hashchange", async () => {
  const before = airgen.at;
  airgen.at = location.hash;
  if (before !== undefined) places.set(before, scrollY);
  await draw();
  const samePage = before !== undefined && address(before).text === address().text;
  if (!samePage) {
    scrollTo(0, places.get(location.hash) || 0);
    const heading = document.querySelector("main h1");
    if (heading) { heading.tabIndex = -1; heading.focus({ preventScroll: true }); }
  }
});

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest("input, select, textarea");
  /* Arrows reach the list from wherever one is, and from its search. */
  const down = event.key === "ArrowDown" ? !field || field.type === "search" : event.key === "j" && !field;
  if (down && !event.target.closest("table, .choice")) {
    const top = 100;
    const row = [...document.querySelectorAll("main tr.linked")].find((one) => one.getBoundingClientRect().bottom > top);
    const inside = row && row.querySelector("a, button");
    if (inside) { inside.focus(); event.preventDefault(); return; }
  }
  if (field) return;
  if (event.key === "/") {
    const search = document.querySelector("main input[type=search]");
    if (search) { search.focus(); event.preventDefault(); }
  }
});

document.addEventListener("DOMContentLoaded", async () => {
  document.querySelector("a.skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  setTheme(kept("theme"));
  airgen.at = location.hash;
  try { await draw(); } catch (error) { document.getElementById("main").replaceChildren(notice(error.message)); }
});
setTheme(kept("theme"));
