"use strict";
/* The table of queries, and the page of each query that tells its life. */

const NEGATIVE = "hard negative";

/* The table of all queries, with the place of each and what a search looks at; made once for each dataset. */
async function queriesOf(dataset) {
  const value = await get(`${dataset.key}/queries`);
  if (!value.placeOf) {
    const { ids, texts } = value.table.columns[0];
    value.placeOf = new Map(ids.map((id, place) => [id, place]));
    value.words = ids.map((id, place) => fold(`${id} ${texts[place]}`));
  }
  return value;
}

/* All that is known of a query. */
async function lifeOf(dataset, id) {
  const { placeOf, block } = await queriesOf(dataset);
  if (!placeOf.has(id)) throw new Error(`There is no query ${id} in this report.`);
  const place = placeOf.get(id);
  const lives = await get(`${dataset.key}/lives-${String(Math.floor(place / block)).padStart(3, "0")}`);
  return lives[place % block];
}

/* One pass over the rows: those that pass every filter; and for each filter, how many rows each of its choices would show
   with the other filters as they are. `chosen`: the choice of each filter, by name. */
function filtered(rows, filters, chosen) {
  const shown = [];
  const counts = new Map(filters.map(({ name, choices }) => [name, choices.map(() => 0)]));
  const active = filters.filter(({ name }) => chosen.has(name));
  for (const row of rows) {
    const failed = [];
    for (const { name, at } of active) if (at[row] !== chosen.get(name) && failed.push(name) > 1) break;
    if (failed.length > 1) continue;
    for (const { name, at } of filters) if (at[row] >= 0 && (!failed.length || failed[0] === name)) counts.get(name)[at[row]] += 1;
    if (!failed.length) shown.push(row);
  }
  return { shown, counts };
}

/* "A finds it, B does not": by the rank of the first relevant passage that each system has. Null without two systems. */
const FOUND = 10;

async function findersOf(dataset, query) {
  if (!dataset.has.includes("systems")) return null;
  const { boards } = await get(`${dataset.key}/systems`);
  const board = boards.find((one) => one.by_query && one.systems.length > 1);
  if (!board) return null;
  const { ids } = (await get(`${dataset.key}/${board.key}/queries`)).table.columns[0];
  const first = new Map(); // name -> Map(id -> rank)
  const load = async (name) => {
    const at = board.systems.findIndex((one) => one.name === name);
    if (at < 0 || first.has(name)) return;
    const file = await get(`${dataset.key}/${board.key}/system-${String(at).padStart(3, "0")}`);
    const ranks = file.table.columns[1].sort;
    first.set(name, new Map(ids.map((id, place) => [id, ranks[place]])));
  };
  const state = { finds: query.get("finds") || "", misses: query.get("misses") || "" };
  await Promise.all([load(state.finds), load(state.misses)]);
  const finds = (name, id) => { const rank = first.get(name) && first.get(name).get(id); return rank <= FOUND; };
  const known = (name) => !state[name] || first.has(state[name]);
  const list = (name, label) => el("label", {}, label, el("select", { dir: "auto", dataset: { name }, on: { change: async (event) => {
    state[name] = event.target.value;
    await load(state[name]);
    made.changed();
  } } }, el("option", { value: "" }, "any"), board.systems.map((one) => el("option", { value: one.name, selected: state[name] === one.name }, one.name))));
  const made = {
    changed: () => {},
    controls: [list("finds", `Found by (first ${FOUND})`), list("misses", "but not by")],
    passes: (id) => (!state.finds || !known("finds") || finds(state.finds, id)) && (!state.misses || !known("misses") || (first.get(state.misses).has(id) && !finds(state.misses, id))),
    active: () => Boolean(state.finds || state.misses),
    address: () => ({ ...state }),
    clear: () => { state.finds = ""; state.misses = ""; for (const label of made.controls) label.querySelector("select").value = ""; },
  };
  return made;
}

airgenPage("queries", {
  route: /^\/d\d+\/queries$/, title: "Queries", tab: "Queries", order: 20, has: (one) => one && one.has.includes("queries"),
  async draw(main, params) {
    const { dataset, query } = params;
    const { table, words: texts } = await queriesOf(dataset);
    const { ids } = table.columns[0];
    const filters = table.filters;
    const rows = ids.map((_, place) => place);
    const finders = await findersOf(dataset, query);
    const chosen = new Map(); // by name the place of the choice
    for (const { name, choices } of filters) {
      const place = choices.findIndex(([value]) => value === query.get(name));
      if (place >= 0) chosen.set(name, place);
    }
    const said = el("span", { class: "quiet small", role: "status", "aria-live": "polite" });
    const search = el("input", { type: "search", placeholder: "Words or id", value: query.get("q") || "", dir: "auto", spellcheck: "false" });
    const lists = el("div", { class: "filters" });
    const folding = el("button", { type: "button", class: "fold", "aria-expanded": "false", on: { click: () => {
      folding.setAttribute("aria-expanded", String(controls.classList.toggle("open")));
    } } });
    const controls = el("div", { class: "controls", role: "search" });
    const reset = el("button", { type: "button", class: "quiet" }, "Clear");

    const list = drawnTable(table, { virtual: true, sort: query.get("sort") || "", onSort: (sort) => remember({ sort }), empty: "No matching queries." });

    function apply() {
      const words = fold(search.value).split(/\s+/).filter(Boolean);
      const found = rows.filter((row) => words.every((word) => texts[row].includes(word)) && (!finders || finders.passes(ids[row])));
      const { shown, counts } = filtered(found, filters, chosen);
      list.setRows(shown);
      said.textContent = shown.length === rows.length ? count(rows.length) : `${count(shown.length)} of ${count(rows.length)}`;
      reset.hidden = !words.length && !chosen.size && !(finders && finders.active());
      remember({ q: search.value.trim(), ...(finders ? finders.address() : {}),
        ...Object.fromEntries(filters.map(({ name, choices }) => [name, chosen.has(name) ? choices[chosen.get(name)][0] : ""])) });
      airgen.lastQueries = { key: dataset.key, hash: location.hash, ids: () => list.shownRows().map((row) => ids[row]) };
      drawFilters(counts);
    }

    function drawFilters(every) {
      folding.textContent = chosen.size ? `Filters (${chosen.size})` : "Filters";
      lists.replaceChildren(...filters.map(({ name, title, choices }) => {
        const counts = every.get(name);
        const listed = choices.map((choice, place) => [...choice, place]).filter(([, , place]) => counts[place] || chosen.get(name) === place);
        if (name === "why" && !listed.length) return "";
        return el("label", { class: chosen.has(name) ? "active" : null }, title,
          el("select", { dir: "auto", on: { change: (event) => {
            if (event.target.value) chosen.set(name, choices.findIndex(([value]) => value === event.target.value)); else chosen.delete(name);
            apply();
            const again = lists.querySelector(`select[data-name="${CSS.escape(name)}"]`);
            if (again) again.focus();
          } }, dataset: { name } },
            el("option", { value: "" }, "all"),
            listed.map(([value, words, place]) => el("option", { value, selected: chosen.get(name) === place }, `${words} (${count(counts[place])})`))));
      }).filter(Boolean), reset);
    }

    let waiting = 0;
    search.addEventListener("input", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(apply);
    });
    reset.addEventListener("click", () => { search.value = ""; chosen.clear(); if (finders) finders.clear(); apply(); search.focus(); });
    if (finders) finders.changed = apply;
    put(controls, el("label", { class: "search" }, "Search", search), folding, finders && finders.controls, lists);
    put(main, el("h1", {}, "Queries ", said), dataset.notes.map((note) => notice(note)), controls,
      el("p", { class: "quiet small keys" }, "Keys: ", el("kbd", {}, "/"), " searches, ", el("kbd", {}, "↓"), " and ", el("kbd", {}, "↑"), " move, ", el("kbd", {}, "Enter"), " opens."), list);
    apply();
  },
});

/* --- one query -------------------------------------------------------------------------------------------- */

airgenPage("query", {
  route: /^\/d\d+\/query\/[^/]+$/, under: "queries", title: (params) => params.path[2],
  async draw(main, params) {
    const { dataset, path } = params;
    const life = await lifeOf(dataset, path[2]);
    const about = { language: dataset.language, stopwords: dataset.stopwords, negative: dataset.generated ? NEGATIVE : "judged not relevant" };
    put(main, stepBar(dataset, life), header(life), life.why && life.outcome === "dropped" && notice(`Dropped at ${life.why}`),
      el("div", { class: "two" }, el("div", {}, labels(life, about)),
        el("div", {}, systemsOf(life, about), madeOf(life, about), airgen.onQuery.map((make) => make(life, dataset)))));
  },
});

/* Back to the table, and to the neighbours in it. */
function stepBar(dataset, life) {
  const last = airgen.lastQueries && airgen.lastQueries.key === dataset.key ? airgen.lastQueries : null;
  const ids = last ? last.ids() : [];
  const place = ids.indexOf(life.id);
  const step = (id, words, rel) => id !== undefined && el("a", { href: link(dataset.key, "query", id), rel }, words);
  return el("nav", { class: "steps small", "aria-label": "Neighbours" },
    el("a", { href: last ? last.hash : link(dataset.key, "queries") }, "← Queries"),
    place >= 0 && el("span", { class: "quiet" }, `${count(place + 1)} of ${count(ids.length)}`),
    place > 0 && step(ids[place - 1], "Previous", "prev"), place >= 0 && step(ids[place + 1], "Next", "next"));
}

function header(life) {
  return el("header", { class: "query" },
    life.text ? foreign(life.text, "h1") : el("h1", { class: "quiet" }, "No query was written"),
    el("p", { class: "tags" }, life.tags.map(([words, kind, title]) => el("span", { class: `tag ${kind}`, title }, words)), el("code", { class: "quiet small" }, life.id)));
}

/* The text of a passage with the query's words marked: first the lines with most of them, and the whole when it is asked
   for. `best` is where these lines begin; of a text that is cut, `before` and `more` characters are not in the report. */
function passageText(one, about, query, longest = 420) {
  const shown = (text) => (query ? marked(text, query, about) : text);
  const text = el("div", { class: "foreign text", dir: "auto" });
  const gap = (words) => el("span", { class: "quiet" }, words);
  const whole = () => { text.replaceChildren(); put(text, one.before > 0 && gap("… "), shown(one.text), one.more > 0 && gap(` … ${count(one.more)} more characters`)); };
  const first = () => { text.replaceChildren(); put(text, (one.best || one.before) > 0 && gap("… "), shown(one.text.slice(one.best || 0, (one.best || 0) + 2 * longest)), (one.best || 0) + 2 * longest < one.text.length && gap(" …")); };
  if (one.text.length < longest) { whole(); return text; }
  text.classList.add("short");
  first();
  const button = el("button", { type: "button", class: "quiet small more", "aria-expanded": "false", on: { click: () => {
    const short = text.classList.toggle("short");
    (short ? first : whole)();
    button.setAttribute("aria-expanded", String(!short));
    button.textContent = short ? "Show all" : "Show less";
  } } }, "Show all");
  return [text, button];
}

function documentOf(life, id, about, query) {
  const one = life.docs[id];
  return one ? passageText(one, about, query) : el("p", { class: "quiet" }, "Its text is not in this report.");
}

function titleOf(life, id) {
  const one = life.docs[id];
  return one && one.title ? foreign(one.title, "span") : el("code", {}, id);
}

const DECISIONS = {
  __proto__: null,
  keep_query: "positive: the query's own document", add_positive: "positive: retrieved and judged relevant", keep_negative: "negative: judged not relevant",
  drop_negative: "left out: judged relevant", drop_query: "the query was dropped", ignore: "no label",
};

function isPositive(row) {
  return row.label > 0 || (row.label === null && (row.decision === "keep_query" || row.decision === "add_positive"));
}

function labels(life, about) {
  const positive = life.labels.filter(isPositive);
  const negative = life.labels.filter((row) => !isPositive(row) && (row.label !== null || row.decision === "keep_negative"));
  const other = life.labels.filter((row) => !positive.includes(row) && !negative.includes(row));
  const heading = (title, rows) => el("h2", {}, title, " ", el("span", { class: "quiet" }, count(rows.length)));
  const each = (rows) => rows.map((row) => labelOf(life, row, about));
  const part = (title, rows) => rows.length > 0 && el("section", {}, heading(title, rows), each(rows));
  const folded = (title, rows) => rows.length > 0 && el("section", {},
    el("details", { class: "folded" }, el("summary", {}, heading(title, rows)), each(rows)));
  const unlabelled = life.sources.filter((id) => !life.labels.some((row) => row.id === id));
  return [
    life.why && life.outcome !== "dropped" && el("p", { class: "quiet" }, `${life.why}.`),
    unlabelled.length > 0 && el("section", {}, el("h2", {}, "Document"), unlabelled.map((id) => el("article", { class: "doc" },
      el("h3", {}, titleOf(life, id)), documentOf(life, id, about, life.text)))),
    part("Relevant documents", positive), part(about.negative === NEGATIVE ? "Hard negatives" : "Judged not relevant", negative), folded("Judged, without a label", other),
  ];
}

function labelOf(life, row, about) {
  const ranks = life.ranked.filter((one) => one.ranks[row.id] !== undefined).map((one) => `${one.name} ${one.ranks[row.id]}`);
  const facts = [
    row.kind !== "other" && ["Kind", row.kind],
    row.level !== null && row.level !== undefined && ["Judged", `${row.level} of 3${isNumber(row.probability) ? `, p ${row.probability.toFixed(2)}` : ""}`],
    isNumber(row.by) && ["Label", `a person's: ${row.by} of 3`],
    row.votes && ["Votes", row.votes],
    row.votes && ["Rank in recall", row.recall ? count(row.recall) : "none"],
    row.decision && ["Decision", `${DECISIONS[row.decision] || row.decision}${row.reason ? ` (${row.reason})` : ""}`],
    isNumber(row.label) && Math.abs(row.label) !== 1 && row.label !== 0 && ["Label", String(row.label)],
    life.ranked.length > 0 && ["Ranks", ranks.length ? ranks.join(", ") : "not retrieved by any system"],
  ].filter(Boolean);
  return el("article", { class: isPositive(row) ? "doc good" : "doc", dataset: { document: row.id } },
    el("h3", { dir: "auto" }, titleOf(life, row.id)),
    documentOf(life, row.id, about, life.text),
    life.docs[row.id] && life.docs[row.id].address && el("p", { class: "small" }, el("a", { href: life.docs[row.id].address, rel: "noreferrer", target: "_blank" }, foreign(life.docs[row.id].address))),
    row.words && foreign(row.words, "blockquote"),
    el("dl", { class: "line" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    row.own_id && row.own_id !== row.id && el("p", { class: "quiet small" }, el("code", {}, row.own_id)));
}

function systemsOf(life, about) {
  if (!life.systems) return null;
  const named = (id) => (life.docs[id] && life.docs[id].title) || id;
  life.systems.columns.find((one) => one.picture).picture.values = life.ranked.map((one) => one.top.map((id, place) => `${place + 1}. ${named(id)}`));
  return el("section", {}, el("h2", {}, "Systems"), drawnTable(life.systems), el("p", { class: "quiet small" }, `● relevant   × ${about.negative}   · no label`),
  life.ranked.map((one) => el("details", {}, el("summary", {}, foreign(one.name), ": its first ten"),
    el("ol", { class: "hits" }, one.top.map((id) => {
      const row = life.labels.find((label) => label.id === id);
      const text = life.docs[id];
      return el("li", {}, titleOf(life, id), " ", row && isPositive(row) && el("span", { class: "tag good" }, "relevant"),
        row && row.label === 0 && el("span", { class: "tag bad" }, about.negative),
        text && el("div", { class: "foreign quiet small", dir: "auto" }, text.before > 0 && "… ", marked(text.text.slice(text.best || 0, (text.best || 0) + 240), life.text, about), " …"));
    })))));
}

/* A value of a step of the user's own: its fields line by line. */
function textOf(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return typeof value === "string" ? value : JSON.stringify(value, null, 1);
  return Object.entries(value).map(([name, one]) => `${name}: ${typeof one === "string" ? one : JSON.stringify(one)}`).join("\n");
}

/* The way from the document to the query. */
function madeOf(life, about) {
  const steps = [];
  const step = (name, ...inside) => steps.push(el("li", {}, el("h3", {}, name), el("div", {}, inside)));
  if (life.log) step("Your file", el("p", {}, life.log));
  life.sources.forEach((id, place) => step(life.sources.length > 1 ? `Document ${place + 1}` : "Document", titleOf(life, id)));
  for (const name of ["character", "scenario"]) {
    const one = life[name];
    if (!one) continue;
    const others = (one.options || []).filter((text) => text !== one.chosen);
    step(name === "character" ? "Character" : "Scenario", foreign(one.chosen, "p"),
      others.length > 0 && el("details", { class: "small" }, el("summary", {}, `${others.length} others`),
        el("ul", {}, others.map((text) => foreign(text, "li")))));
  }
  if (life.original) {
    step("Query", foreign(life.original, "p"), el("p", { class: "quiet small" },
      [life.asked && `asked for: ${life.asked}`, life.attempts > 1 && `${life.attempts} attempts`].filter(Boolean).join("; ")));
  }
  let before = life.original;
  life.rewrites.forEach((one, place) => {
    step(`Rewrite ${place + 1}`, el("p", { class: "foreign", dir: "auto" }, before ? wordDiff(before, one.text, about.language) : one.text),
      el("p", { class: "quiet small" }, [one.style, one.attempts > 1 && `${one.attempts} attempts`].filter(Boolean).join("; ")));
    before = one.text;
  });
  if (life.answer) step("Answer", foreign(life.answer.text, "p"), life.answer.quote && foreign(life.answer.quote, "blockquote"));
  const missing = life.made.filter((id) => !life.labels.some((row) => row.id === id));
  if (missing.length) step("Negatives", missing.map((id) => [el("p", {}, titleOf(life, id)), documentOf(life, id, about, life.text)]));
  for (const [stage, why] of Object.entries(life.skips)) step(stage.replaceAll("_", " "), el("p", { class: "quiet" }, "No result:"), foreign(why, "pre"));
  for (const [name, value] of Object.entries(life.more)) step(name.replaceAll("_", " "), foreign(textOf(value), "pre"));
  return steps.length > 0 && el("section", {}, el("h2", {}, "How it was made"), el("ol", { class: "made" }, steps));
}
