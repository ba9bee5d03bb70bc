"use strict";
/* The table of queries, and the page of each query that tells its life. */

const OUTCOMES = {
  kept: ["kept", "good"],
  dropped: ["dropped", "bad"],
  pending: ["not yet controlled", ""],
};
const WORDS = {
  type: "Type", length: "Words", information: "Information", style: "Style", split: "Split", outcome: "Outcome",
  why: "Why", positives: "Positives", difficulty: "Difficulty", answered: "Answered",
};
const LENGTHS = { lt5: "under 5", lt10: "under 10", "10to20": "10 to 20", ge20: "20 or more" };
const DIFFICULTY = { hard: [-1, 1 / 3], medium: [1 / 3, 2 / 3], easy: [2 / 3, 2] };
const BLOCK = 32;
const NEGATIVE = "hard negative";

function outcomeTag(outcome) {
  const [words, kind] = OUTCOMES[outcome] || [outcome, ""];
  return el("span", { class: `tag ${kind}` }, words);
}

/* How a value of a query's attribute is called. */
function called(name, value) {
  if (name === "outcome") return (OUTCOMES[value] || [value])[0];
  if (name === "answered") return value === "no" ? "without an answer" : "answered";
  return name === "length" ? LENGTHS[value] || value : value;
}

/* The rows of the table, with what a search looks at; made once for each dataset. */
async function queryRows(dataset) {
  const columns = await get(`${dataset.key}/queries`);
  if (!columns.rows) {
    const names = Object.keys(columns).filter((name) => Array.isArray(columns[name]));
    columns.rows = columns.id.map((_, place) => {
      const row = { place };
      for (const name of names) row[name.replace(/^is:/, "")] = columns[name][place];
      row.difficulty = Object.keys(DIFFICULTY).find((name) => isNumber(row.score) && row.score >= DIFFICULTY[name][0] && row.score < DIFFICULTY[name][1]) || "";
      row.found = fold(`${row.id} ${row.text}`);
      return row;
    });
    columns.byId = new Map(columns.rows.map((row) => [row.id, row]));
  }
  return columns;
}

/* All that is known of a query. */
async function lifeOf(dataset, id) {
  const row = (await queryRows(dataset)).byId.get(id);
  if (!row) throw new Error(`There is no query ${id} in this report.`);
  const block = await get(`${dataset.key}/lives-${String(Math.floor(row.place / BLOCK)).padStart(3, "0")}`);
  return block[row.place % BLOCK];
}

/* The value of a filter: counts above 5 are one choice. */
function filterValue(row, name) {
  const value = row[name];
  if (name === "positives") return value === null ? "" : value > 5 ? "6 or more" : String(value);
  return value === null || value === undefined ? "" : String(value);
}

/* One pass over the rows: those that pass every filter; and for each filter, how many queries each of its choices would
   show with the other filters as they are. */
function filtered(rows, words, chosen, names) {
  const shown = [];
  const counts = new Map(names.map((name) => [name, new Map()]));
  const add = (name, row) => {
    const value = filterValue(row, name);
    const of = counts.get(name);
    if (value !== "") of.set(value, (of.get(value) || 0) + 1);
  };
  for (const row of rows) {
    if (!words.every((word) => row.found.includes(word))) continue;
    const failed = [];
    for (const [name, value] of chosen) if (filterValue(row, name) !== value && failed.push(name) > 1) break;
    if (failed.length === 1) add(failed[0], row);
    if (failed.length) continue;
    shown.push(row);
    for (const name of names) add(name, row);
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
  const { ids } = await get(`${dataset.key}/${board.key}/queries`);
  const first = new Map(); // name -> Map(id -> rank)
  const load = async (name) => {
    const at = board.systems.findIndex((one) => one.name === name);
    if (at < 0 || first.has(name)) return;
    const file = await get(`${dataset.key}/${board.key}/system-${String(at).padStart(3, "0")}`);
    first.set(name, new Map(ids.map((id, place) => [id, file.first[place]])));
  };
  const state = { finds: query.get("finds") || "", misses: query.get("misses") || "" };
  await Promise.all([load(state.finds), load(state.misses)]);
  const finds = (name, id) => { const rank = first.get(name) && first.get(name).get(id); return rank > 0 && rank <= FOUND; };
  const known = (name) => !state[name] || first.has(state[name]);
  const list = (name, label) => el("label", {}, label, el("select", { dir: "auto", dataset: { name }, on: { change: async (event) => {
    state[name] = event.target.value;
    await load(state[name]);
    made.changed();
  } } }, el("option", { value: "" }, "any"), board.systems.map((one) => el("option", { value: one.name, selected: state[name] === one.name }, one.name))));
  const made = {
    changed: () => {},
    controls: [list("finds", `Found by (first ${FOUND})`), list("misses", "but not by")],
    passes: (row) => (!state.finds || !known("finds") || finds(state.finds, row.id)) && (!state.misses || !known("misses") || (first.get(state.misses).has(row.id) && !finds(state.misses, row.id))),
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
    const { rows } = await queryRows(dataset);
    const finders = await findersOf(dataset, query);
    const names = ["outcome", "why", ...dataset.counts.attributes, "split", "difficulty", "positives"]
      .filter((name, place, all) => all.indexOf(name) === place)
      .filter((name) => {
        const values = new Set(rows.map((row) => filterValue(row, name)));
        values.delete("");
        return values.size > (name === "why" ? 0 : 1) && values.size < 60;
      });
    const chosen = new Map(names.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
    const said = el("span", { class: "quiet small", role: "status", "aria-live": "polite" });
    const search = el("input", { type: "search", placeholder: "Words or id", value: query.get("q") || "", dir: "auto", spellcheck: "false" });
    const filters = el("div", { class: "filters" });
    const folding = el("button", { type: "button", class: "fold", "aria-expanded": "false", on: { click: () => {
      folding.setAttribute("aria-expanded", String(controls.classList.toggle("open")));
    } } });
    const controls = el("div", { class: "controls", role: "search" });
    const reset = el("button", { type: "button", class: "quiet" }, "Clear");

    const list = table({
      label: "Queries", virtual: true, rows, sort: query.get("sort") || "", columns: columnsOf(dataset, rows),
      onSort: (sort) => remember({ sort }), href: (row) => link(dataset.key, "query", row.id), empty: "No matching queries.",
    });

    function apply() {
      const words = fold(search.value).split(/\s+/).filter(Boolean);
      const { shown, counts } = filtered(finders ? rows.filter(finders.passes) : rows, words, chosen, names);
      list.setRows(shown);
      said.textContent = shown.length === rows.length ? count(rows.length) : `${count(shown.length)} of ${count(rows.length)}`;
      reset.hidden = !words.length && !chosen.size && !(finders && finders.active());
      remember({ q: search.value.trim(), ...(finders ? finders.address() : {}), ...Object.fromEntries(names.map((name) => [name, chosen.get(name)])) });
      airgen.lastQueries = { key: dataset.key, hash: location.hash, ids: () => list.shownRows().map((row) => row.id) };
      drawFilters(counts);
    }

    function drawFilters(every) {
      folding.textContent = chosen.size ? `Filters (${chosen.size})` : "Filters";
      filters.replaceChildren(...names.map((name) => {
        const counts = every.get(name);
        if (chosen.has(name) && !counts.has(chosen.get(name))) counts.set(chosen.get(name), 0);
        const values = [...counts.keys()].sort(compare);
        if (name === "why" && !values.length) return "";
        return el("label", { class: chosen.has(name) ? "active" : null }, WORDS[name] || name.replaceAll("_", " "),
          el("select", { dir: "auto", on: { change: (event) => {
            if (event.target.value) chosen.set(name, event.target.value); else chosen.delete(name);
            apply();
            const again = filters.querySelector(`select[data-name="${CSS.escape(name)}"]`);
            if (again) again.focus();
          } }, dataset: { name } },
            el("option", { value: "" }, "all"),
            values.map((value) => el("option", { value, selected: chosen.get(name) === value },
              `${called(name, value)} (${count(counts.get(value))})`))));
      }).filter(Boolean), reset);
    }

    let waiting = 0;
    search.addEventListener("input", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(apply);
    });
    reset.addEventListener("click", () => { search.value = ""; chosen.clear(); if (finders) finders.clear(); apply(); search.focus(); });
    if (finders) finders.changed = apply;
    put(controls, el("label", { class: "search" }, "Search", search), folding, finders && finders.controls, filters);
    put(main, el("h1", {}, "Queries ", said), dataset.notes.map((note) => notice(note)), controls,
      el("p", { class: "quiet small keys" }, "Keys: ", el("kbd", {}, "/"), " searches, ", el("kbd", {}, "↓"), " and ", el("kbd", {}, "↑"), " move, ", el("kbd", {}, "Enter"), " opens."), list);
    apply();
  },
});

/* Most queries are kept: only what became of the others is marked. */
function outcomeCell(row) {
  if (row.outcome === "kept") return el("span", { class: "quiet" }, "kept");
  return el("span", { title: row.why }, outcomeTag(row.outcome), " ", el("span", { class: "quiet small wide" }, row.why.replace(/^[^:]*: /, "")));
}

function columnsOf(dataset, rows) {
  const some = (name) => rows.some((row) => row[name] !== null && row[name] !== undefined && row[name] !== "");
  const wide = (key, label, width, more = {}) => some(key) && { key, label, width, class: "wide", ...more };
  return [
    { key: "text", label: "Query", class: "main", cell: (row) => el("a", { href: link(dataset.key, "query", row.id), class: "foreign line", dir: "auto" },
      row.text || `no query: ${row.id}`) },
    wide("type", "Type", "104px"),
    wide("length", "Words", "112px", { cell: (row) => called("length", row.length) }),
    wide("style", "Style", "120px"),
    wide("split", "Split", "64px"),
    wide("positives", "Pos.", "64px", { number: true, title: "Documents that are relevant" }),
    wide("negatives", "Neg.", "64px", { number: true, title: "Documents that are labelled not relevant" }),
    wide("score", "Score", "80px", { number: true, title: "Mean score of the systems (low: difficult)", cell: (row) => score(row.score) }),
    rows.some((row) => row.outcome !== "kept") && { key: "outcome", label: "Outcome", width: "184px", class: "outcome",
      value: (row) => `${row.outcome} ${row.why}`, cell: outcomeCell },
  ].filter(Boolean);
}

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
  const attributes = Object.entries(life.attributes).filter(([, value]) => typeof value === "string" && value);
  return el("header", { class: "query" },
    life.text ? foreign(life.text, "h1") : el("h1", { class: "quiet" }, "No query was written"),
    el("p", { class: "tags" }, outcomeTag(life.outcome), life.split && el("span", { class: "tag" }, life.split),
      attributes.map(([name, value]) => el("span", { class: "tag", title: WORDS[name] || name }, called(name, value), name === "length" && " words")), el("code", { class: "quiet small" }, life.id)));
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
    row.words && foreign(row.words, "blockquote"),
    el("dl", { class: "line" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    row.own_id && row.own_id !== row.id && el("p", { class: "quiet small" }, el("code", {}, row.own_id)));
}

/* A square for each of the first ten hits: relevant, hard negative, or without a label. */
function strip(life, one) {
  const known = new Map(life.labels.map((row) => [row.id, row]));
  return el("span", { class: "strip", role: "img", "aria-label": one.top.map((id, place) => {
    const row = known.get(id);
    return row && isPositive(row) ? `${place + 1} relevant` : "";
  }).filter(Boolean).join(", ") || "no relevant passage in the top ten" }, one.top.map((id, place) => {
    const row = known.get(id);
    const kind = row && isPositive(row) ? "good" : row && row.label === 0 ? "bad" : "";
    const title = (life.docs[id] && life.docs[id].title) || id;
    return el("span", { class: kind, title: `${place + 1}. ${title}` }, kind === "good" ? "●" : kind === "bad" ? "×" : "·");
  }));
}

function systemsOf(life, about) {
  if (!life.ranked.length) return null;
  const best = (one) => Math.min(...life.labels.filter(isPositive).map((row) => one.ranks[row.id] || Infinity));
  return el("section", {}, el("h2", {}, "Systems"), table({
    label: "Systems on this query", rows: life.ranked, columns: [
      { key: "name", label: "System", cell: (one) => systemName(one.name) },
      { key: "score", label: life.headline || "Score", number: true, cell: (one) => score(one.score) },
      { key: "best", label: "First ●", title: "Rank of the first relevant document", number: true, value: (one) => (Number.isFinite(best(one)) ? best(one) : null) },
      { key: "top", label: "First ten", sortable: false, cell: (one) => strip(life, one) },
    ],
  }), el("p", { class: "quiet small" }, `● relevant   × ${about.negative}   · no label`),
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
    const asked = ["type", "length", "information"].filter((name) => life.attributes[name])
      .map((name) => called(name, life.attributes[name]) + (name === "length" ? " words" : "")).join(", ");
    step("Query", foreign(life.original, "p"), el("p", { class: "quiet small" },
      [asked && `asked for: ${asked}`, life.attempts > 1 && `${life.attempts} attempts`].filter(Boolean).join("; ")));
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
