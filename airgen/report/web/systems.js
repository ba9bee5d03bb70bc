"use strict";
/* Which system is best, and how sure that is: the table of systems, pairs, kinds of queries, one system. */

/* The board of a page: of the split in the address, else the first. */
function boardOf(boards, query) {
  return boards.find((one) => one.split === query.get("split")) || boards[0];
}

const splitOf = (board) => (board.split === "test" ? {} : { split: board.split });

function splitChoice(boards, board) {
  return boards.length < 2 ? null : el("label", {}, "Split", el("select", { on: { change: (event) => {
    remember({ split: event.target.value });
    draw();
  } } }, boards.map((one) => el("option", { value: one.split, selected: one === board }, one.split))));
}

/* The mark of a system that shares a model with recall or votes. */
function madeLabels(row) {
  return row.made_labels.length ? el("span", { title: `helped to make the labels: ${row.made_labels.join(", ")}` }, " \u2020") : null;
}

/* The systems of a board. `views`: with buttons for other measures and costs. */
function systemsTable(dataset, board, { views = true } = {}) {
  const rows = board.systems.map((one, at) => ({ ...one, at }));
  const ends = rows.map((one) => one.interval || [one.score, one.score]);
  const low = Math.min(...ends.map((one) => one[0]));
  const high = Math.max(...ends.map((one) => one[1]));
  const ranked = rows.every((one) => one.ranks);
  const families = [...new Set(rows.map((one) => one.family))];
  const place = { key: "at", label: "#", number: true, value: (row) => row.at, cell: (row) => String(row.at + 1), class: "place" };
  const name = { key: "name", label: "System", class: "name", cell: (row) => el("span", {}, el("a", { href: link(dataset.key, "system", row.name, splitOf(board)) }, foreign(row.name)), madeLabels(row)) };
  const family = families.length > 1 ? { key: "family", label: "Family", cell: (row) => foreign(row.family), class: "wide" } : null;
  const ends_ = (row) => (row.interval ? row.interval.map((one) => score(one, 3)).join("–") : EMPTY);
  const headline = { key: "score", label: board.headline, number: true, cell: (row) => [el("strong", {}, score(row.score, 4)), el("small", { class: "narrow quiet" }, ends_(row))] };
  const priced = rows.some((one) => isNumber(one.costs.usd_per_1000));
  const price = { key: "usd", label: "$ per 1,000", number: true, class: "wide", title: "US dollars per 1,000 queries, at the prices in the systems file", value: (row) => row.costs.usd_per_1000, cell: (row) => money(row.costs.usd_per_1000) };
  const time = { key: "time", label: "ms/query", number: true, title: "Milliseconds per query in a batch of all queries", value: (row) => row.costs.batch_ms, cell: (row) => [brief(row.costs.batch_ms), priced && isNumber(row.costs.usd_per_1000) && el("small", { class: "narrow quiet" }, `${money(row.costs.usd_per_1000)} per 1,000`)] };
  const cost = (key, label, divided, title) => ({
    key, label, title, number: true, value: (row) => row.costs[key], cell: (row) => brief(row.costs[key] === null ? null : row.costs[key] / divided) });
  const sets = {
    ranking: [place, name, family,
      ranked && { key: "ranks", label: "Rank", number: true, title: "The 95 % interval of the rank", value: (row) => row.ranks[0] * 1000 + row.ranks[1], cell: (row) => figures.span(row.ranks) },
      ranked && rows.length > 2 && { key: "places", label: "", sortable: false, class: "wide", cell: (row) => figures.ranks(row.ranks, rows.length) },
      headline,
      { key: "interval", label: "95 %", sortable: false, class: "wide", cell: (row) => figures.interval(row.score, row.interval, low, high) },
      { key: "span", label: "", sortable: false, class: "quiet wide", cell: ends_ },
      time, priced && price],
    measures: [place, name, ...board.measures.map((measure, at) => ({
      key: measure, label: measure, number: true, value: (row) => row.means[at],
      title: "The best value of a column is bold", cell: (row) => bestOf(rows, row, at, measure) }))],
    documents: [place, name, ...board.measures.map((measure, at) => ({
      key: measure, label: measure, number: true, title: "Scored by document instead of by chunk", value: (row) => (row.by_document && row.by_document[at] ? row.by_document[at][0] : null),
      cell: (row) => (row.by_document && row.by_document[at] ? score(row.by_document[at][0], 4) : EMPTY) }))],
    costs: [place, name, headline, time, priced && price, cost("latency_p50_ms", "one by one, p50", 1, "Milliseconds for a single query: median"),
      cost("latency_p95_ms", "p95", 1, "Milliseconds for a single query: 95th percentile"), cost("queries_per_second", "queries/s", 1),
      cost("index_seconds", "index s", 1), cost("index_bytes", "index MB", 1e6), cost("memory_bytes", "memory MB", 1e6), cost("parameters", "parameters M", 1e6),
      { key: "device", label: "Device", value: (row) => row.costs.device },
      rows.some((one) => one.costs.ann_recall != null) && { key: "ann_recall", label: "ANN recall", number: true, title: "Share of the 10 nearest passages that the index retrieves", value: (row) => row.costs.ann_recall, cell: (row) => score(row.costs.ann_recall, 3) }],
    notes: [place, name, headline, { key: "missing", label: "Queries without a result", number: true, cell: (row) => count(row.missing) },
      { key: "unjudged", label: "Queries without labels", number: true, cell: (row) => count(row.unjudged) },
      { key: "kind", label: "Kind" }, { key: "notes", label: "Counted", sortable: false, cell: (row) => Object.entries(row.notes).filter(([, number]) => number).map(([what, number]) => `${count(number)} ${what.replaceAll("_", " ")}`).join(", ") }],
  };
  const made = (view) => table({ label: `Systems on ${dataset.name}, ${board.split}`, rows, columns: sets[view].filter(Boolean), sort: "at", stack: view !== "ranking" });
  const lead = el("p", { class: "lead" }, `${count(board.queries)} queries${board.split === "test" ? "" : ` of the split ${board.split}`}. `,
    ranked ? "Rank: 95% confidence interval, from the pairs that differ significantly (Fisher's randomisation test with Holm's correction)." : "",
    !views && rows.some((one) => one.made_labels.length) ? " \u2020 helped to make the labels, so its score may be too high." : "");
  const verdict = board.verdict ? el("p", { class: "verdict", dir: "auto" }, el("strong", {}, "Verdict: "), `${board.verdict}.`) : null;
  if (!views) return [verdict, lead, made("ranking")];
  const box = el("div", {});
  const choice = figures.choice("Columns", [["ranking", "Ranking"], ["measures", "All measures"],
    ...(rows.some((one) => one.by_document) ? [["documents", "Per document"]] : []), ["costs", "Costs"], ["notes", "Notes"]],
    address().query.get("view"), (view) => { box.replaceChildren(made(view)); remember({ view: view === "ranking" ? "" : view }); });
  return [verdict, lead, choice, box];
}

/* The chart of score and time, with what its marks mean. */
function scoreAgainstTime(board, heading = "h3") {
  const chart = figures.drawing(board.time, `${board.headline} against milliseconds per query`);
  return !chart ? null : [el(heading, {}, "Score against time"),
    el("p", { class: "lead" }, "No system is both better and faster than a system in bold. Numbers stand for the systems in the table. All times were measured on one machine."), chart,
  ];
}

function brief(value) {
  if (!isNumber(value)) return EMPTY;
  return value >= 100 ? count(Math.round(value)) : value >= 10 ? value.toFixed(1) : value >= 0.1 ? value.toFixed(2) : value.toPrecision(2);
}

function bestOf(rows, row, at, measure) {
  const value = row.means[at];
  const best = Math.max(...rows.map((one) => one.means[at] ?? -Infinity));
  const text = score(value, 4);
  // Hole and Judged say how far the other measures can be trusted, so they have no best value.
  return rows.length > 1 && isNumber(value) && value.toFixed(4) === best.toFixed(4) && !/^(Hole|Judged)/.test(measure) ? el("strong", {}, text) : text;
}

/* A query as a link to its life, where the report has it. */
function asked(dataset, row) {
  return dataset.has.includes("queries") ? el("a", { class: "plain", href: link(dataset.key, "query", row.id) }, foreign(row.text)) : foreign(row.text);
}

(() => {
  const WORST = 30;

  /* A square of all pairs: each cell leads to the comparison of its two systems. */
  function pairs(dataset, board) {
    const names = board.systems.map((one) => one.name);
    if (names.length < 2 || !board.pairs.length) return [];
    const cells = new Map();
    for (const [a, b, difference, p] of board.pairs) {
      cells.set(`${a}-${b}`, { difference, p });
      cells.set(`${b}-${a}`, { difference: -difference, p });
    }
    const most = Math.max(...board.pairs.map((one) => Math.abs(one[2])), 1e-9);
    const head = el("tr", {}, el("td", {}), names.map((_, at) => el("th", { scope: "col", title: names[at] }, String(at + 1))));
    const body = names.map((name, row) => el("tr", {}, el("th", { scope: "row" }, el("span", { class: "place" }, `${row + 1} `), foreign(name)),
      names.map((other, column) => {
        if (row === column) return el("td", { class: "same" });
        const { difference, p } = cells.get(`${row}-${column}`) || {};
        if (difference === undefined) return el("td");
        const apart = p <= board.alpha;
        const words = `${name} ${difference < 0 ? "is worse than" : "is better than"} ${other} by ${Math.abs(difference).toFixed(4)}, p ${figures.pValue(p)}`;
        return el("td", {}, figures.strong(el("a", { href: link(dataset.key, "compare", name, other, splitOf(board)), title: words, "aria-label": words, tabindex: -1, // six hundred stops for the keyboard; the two lists above lead to the same pages
          class: `pair ${apart ? (difference < 0 ? "worse" : "better") : "open"}` }, apart ? (difference < 0 ? "−" : "+") : ""), 0.25 + 0.75 * Math.abs(difference) / most));
      })));
    return [el("p", { class: "lead" }, "+ means that the system in the row is significantly better than the one in the column, − that it is significantly worse. Empty cells are not significant. Stronger colours show larger differences. Select a cell to compare the systems by query."),
      el("div", { class: "table" }, el("table", { class: "pairs" }, el("thead", {}, head), el("tbody", {}, body)))];
  }

  function attributes(dataset, board) {
    if (!board.attributes.length) return [];
    const box = el("div", {});
    const show = (name) => {
      const one = board.attributes.find((each) => each.attribute === name);
      const rows = board.systems.map((system, at) => ({ name: system.name, at }));
      box.replaceChildren(table({
        label: `${board.headline} by ${name}`, rows, sort: "at", columns: [
          { key: "at", label: "#", number: true, cell: (row) => String(row.at + 1), class: "place" },
          { key: "name", label: "System", class: "name", cell: (row) => el("a", { href: link(dataset.key, "system", row.name, splitOf(board)) }, foreign(row.name)) },
          ...one.values.map((value, at) => {
            const means = value.means.filter(isNumber);
            return { key: `v${at}`, label: `${value.value} (${count(value.queries)})`, number: true, value: (row) => value.means[row.at],
              title: `${count(value.queries)} queries`, cell: (row) => shaded(value.means[row.at], Math.min(...means), Math.max(...means)) };
          })],
      }));
    };
    return [el("p", { class: "lead" }, `The mean ${board.headline} over the queries of each kind, with the number of queries in brackets. Within a column, a stronger colour is better.`),
      figures.choice("Attribute", board.attributes.map((one) => [one.attribute, one.attribute]), "", show), box];
  }

  function holes(dataset, board) {
    const found = board.holes;
    if (!found) return [];
    const most = Math.max(...found.shares.map((one) => one || 0), 1e-9);
    const rows = board.systems.map((system, at) => ({ name: system.name, at, share: found.shares[at], score: system.score }));
    const above = (at) => board.systems[at].negatives_above || {};
    const ranks = (at) => board.systems[at].negative_ranks || {};
    const bias = (at, name) => (board.systems[at].biases || {})[name];
    return [el("p", { class: "lead" }, `A passage in the top ${found.depth} that has no label for the query (a hole) counts as not relevant. A system with many holes may be better than its score. ${count(found.pairs)} pairs are holes of at least one system.`),
      table({ label: "Holes and biases", rows, sort: "at", columns: [
        { key: "at", label: "#", number: true, cell: (row) => String(row.at + 1), class: "place" },
        { key: "name", label: "System", class: "name", cell: (row) => foreign(row.name) },
        { key: "share", label: `Unjudged in the top ${found.depth}`, number: true, cell: (row) => percent(row.share, 1) },
        { key: "bar", label: "", sortable: false, class: "wide bars", cell: (row) => figures.bar((row.share || 0) / most) },
        { key: "above", label: "Queries with a negative above", number: true, title: "Share of queries with a passage judged not relevant above the best relevant passage",
          value: (row) => (above(row.at).queries ? above(row.at).share : null), cell: (row) => (above(row.at).queries ? percent(above(row.at).share) : EMPTY) },
        { key: "negatives", label: "Rank of the negatives", number: true, title: "Median rank of the passages judged not relevant. Negatives that no system ranks near the top do not separate systems",
          value: (row) => (ranks(row.at).median ?? null), cell: (row) => (isNumber(ranks(row.at).median) ? score(ranks(row.at).median, 1) : ranks(row.at).pairs ? "not found" : EMPTY) },
        { key: "first", label: "Negatives in the top ten", number: true, title: "Share of the passages judged not relevant that are among the top ten",
          value: (row) => (ranks(row.at).pairs ? ranks(row.at).first_ten : null), cell: (row) => (ranks(row.at).pairs ? percent(ranks(row.at).first_ten) : EMPTY) },
        { key: "length", label: "Characters of the top ten", number: true, value: (row) => bias(row.at, "top_characters"), cell: (row) => count(bias(row.at, "top_characters")) },
        { key: "overlap", label: "Word overlap", number: true, title: "Share of the query's words that occur in the top ten passages", value: (row) => bias(row.at, "top_overlap"), cell: (row) => score(bias(row.at, "top_overlap"), 2) },
      ] }),
      board.systems[0].biases && isNumber(board.systems[0].biases.relevant_characters) ? el("p", { class: "lead" }, `For comparison: relevant passages have ${count(board.systems[0].biases.relevant_characters)} characters and ${score(board.systems[0].biases.relevant_overlap, 2)} of the query's words; passages of the corpus have ${count(board.systems[0].biases.corpus_characters)} characters.`) : null,
      found.first.length ? el("details", {}, el("summary", {}, `Unlabelled passages that most systems retrieve`), table({
        label: "Holes of most systems", rows: found.first, columns: [
          { key: "query", label: "Query", value: (row) => row[0], cell: (row) => asked(dataset, { id: row[0], text: row[0] }) },
          { key: "passage", label: "Passage", value: (row) => row[1], cell: (row) => foreign(row[1]) },
          { key: "systems", label: "Systems", number: true, value: (row) => row[2] }, { key: "rank", label: "Best rank", number: true, value: (row) => row[3] },
        ] })) : null];
  }

  /* Relevant passages that no system shows, and how much of the corpus nobody sees. */
  function never(dataset, board) {
    const found = board.never;
    if (!found) return [];
    return [el("p", { class: "lead" }, `${count(found.missed)} of ${count(found.relevant)} relevant passages are not in the top ${found.depth} of any system.`,
      isNumber(found.unseen) ? ` ${count(found.unseen)} passages of the corpus are not in the top ${found.depth} of any system for any query.` : "",
      found.missed > found.rows.length ? ` The first ${count(found.rows.length)}:` : ""),
    found.rows.length ? table({ label: "Relevant passages that are never retrieved", rows: found.rows, stack: "always", columns: [
      { key: "query", label: "Query", class: "main", value: (row) => row[1], cell: (row) => asked(dataset, { id: row[0], text: row[1] }) },
      { key: "passage", label: "Passage", value: (row) => row[2], cell: (row) => foreign(row[2]) },
      { key: "rank", label: "Best rank", number: true, value: (row) => row[3] || null, cell: (row) => (row[3] ? count(row[3]) : "none") },
      { key: "system", label: "of", value: (row) => row[4], cell: (row) => foreign(row[4]) },
    ] }) : null];
  }

  /* How the judge decided, and what is known of its errors. */
  function judging(about) {
    const parts = [];
    const judged = about.judged || [];
    const total = judged.reduce((sum, [, number]) => sum + number, 0);
    if (total) parts.push(el("p", { class: "lead" }, `${count(total)} pairs of query and passage were judged. Levels from ${about.relevant_from} upwards count as relevant.`),
      el("div", { class: "coverage" }, el("div", { class: "covered" }, el("ul", {}, judged.map(([level, number]) => el("li", {}, `level ${level}`, figures.bar(number / total), el("span", { class: "numbers" }, count(number), el("small", {}, ` ${percent(number / total)}`))))))));
    const what = about.audit;
    if (what && Object.keys(what).length) {
      parts.push(el("h3", {}, "Audit by people"), el("dl", { class: "about" }, Object.entries(what).map(([name, value]) => [
        el("dt", {}, foreign(name)), el("dd", {}, foreign(typeof value === "object" && value !== null ? Object.entries(value).map(([key, each]) => `${key} ${typeof each === "object" ? JSON.stringify(each) : each}`).join(", ") : value))])));
    }
    if (about.models.length && !about.audit) parts.push(el("p", { class: "lead" }, "No person has checked a sample of these labels; run airgen audit sample."));
    return parts;
  }

  function agreement(about) {
    const found = about.agreement;
    if (!found) return [];
    const rho = found.spearman || {};
    return [el("p", { class: "lead" }, `The same systems, ranked by human labels of ${found.collection} and by generated labels. Spearman's rank correlation is `, el("strong", {}, score(rho.value, 2)),
      isNumber(rho.low) ? ` (${score(rho.low, 2)}–${score(rho.high, 2)}).` : ".", found.same_size_human && isNumber(found.same_size_human.mean) ? ` For comparison, samples of human queries of the same size reach ${score(found.same_size_human.mean, 2)} with the rest.` : ""),
    (found.notes || []).map((one) => notice(one)), figures.drawing(found.drawings, "Ranks of the systems by human and by generated labels"), slopeTable(found, found.measure)];
  }

  function diversity(about) {
    const found = about.diversity;
    if (!found) return [];
    if (found.note) return [notice(found.note)];
    if (found.large) return [el("p", { class: "lead" }, `The corpus has ${count(found.large)} passages, too many to count words here: run airgen study diversity on the dataset.`)];
    const { query_words: asked, passage_words: read, overlap, duplicates, length_classes: classes } = found;
    const total = Object.values(classes).reduce((sum, one) => sum + one, 0) || 1;
    return [figures.facts([["words per query", score(asked.mean, 1), `median ${asked.median}, 5–95 % ${Math.round(asked.low)}–${Math.round(asked.high)}`],
      ["words per passage", score(read.mean, 1), `median ${read.median}`],
      ["of a query's words occur in its positives", percent(overlap.positives), `${percent(overlap.others)} in another query's positives`],
      overlap.pairs ? ["before and after rewriting", `${percent(overlap.original)} → ${percent(overlap.rewritten)}`] : ["", null],
      ["near-duplicate queries", percent(duplicates.near, 1)], ["distinct words in all queries", count(found.query_vocabulary.types)]]),
    el("div", { class: "coverage" }, el("div", { class: "covered" }, el("h3", {}, "Words per query"), el("ul", {}, Object.entries(classes).map(([name, number]) => el("li", {}, name, figures.bar(number / total), el("span", { class: "numbers" }, count(number), el("small", {}, ` ${percent(number / total)}`)))))))];
  }

  airgenPage("systems", {
    route: /^\/d\d+\/systems$/, title: "Systems", tab: "Systems", order: 30,
    has: (dataset) => Boolean(dataset && dataset.has.includes("systems")),
    async draw(main, params) {
      const dataset = params.dataset;
      const [{ boards }, about] = await Promise.all([get(`${dataset.key}/systems`), get(`${dataset.key}/overview`)]);
      const board = boardOf(boards, params.query);
      put(main, [el("h1", {}, "Systems"), el("div", { class: "controls" }, splitChoice(boards, board), compareChoice(dataset, board, 0, 1)),
        board.notes.map((one) => notice(one)),
        board.private ? notice("The labels of this split are private, so single queries are not shown.", "info") : null,
        systemsTable(dataset, board),
        scoreAgainstTime(board, "h2"),
        figures.section("pairs", "Pairs of systems", pairs(dataset, board)),
        figures.section("kinds", "By kind of query", attributes(dataset, board)),
        figures.section("never", "Passages that are never retrieved", never(dataset, board)),
        figures.section("holes", "Holes and biases", holes(dataset, board)),
        figures.section("agreement", "Agreement with human labels", agreement(about)),
        figures.section("judge", "The judge", judging(about)),
        figures.section("diversity", "Diversity of the queries", diversity(about))]);
    },
  });

  airgenPage("system", {
    route: /^\/d\d+\/system\/[^/]+$/, title: (params) => params.path[2], under: "systems",
    async draw(main, params) {
      const dataset = params.dataset;
      const { boards } = await get(`${dataset.key}/systems`);
      const board = boardOf(boards, params.query);
      const at = board.systems.findIndex((one) => one.name === params.path[2]);
      if (at < 0) throw new Error(`There is no system ${params.path[2]} on ${board.split}.`);
      const one = board.systems[at];
      put(main, [el("p", { class: "steps" }, el("a", { href: link(dataset.key, "systems", splitOf(board)) }, "All systems"),
        at > 0 ? el("a", { href: link(dataset.key, "system", board.systems[at - 1].name, splitOf(board)) }, `← #${at}`) : null,
        at + 1 < board.systems.length ? el("a", { href: link(dataset.key, "system", board.systems[at + 1].name, splitOf(board)) }, `#${at + 2} →`) : null),
      el("h1", {}, foreign(one.name), madeLabels(one)), el("p", { class: "quiet" }, [one.family, one.kind !== one.family && one.kind, `${count(board.queries)} queries of ${board.split}`].filter(Boolean).join(" · ")),
      figures.facts([[board.headline, score(one.score, 4), one.interval ? one.interval.map((each) => score(each, 3)).join("–") : ""], ["rank", figures.span(one.ranks), `of ${board.systems.length}`],
        ["ms a query", brief(one.costs.batch_ms)], ["for 1,000 queries", isNumber(one.costs.usd_per_1000) ? money(one.costs.usd_per_1000) : null], ["queries without a result", count(one.missing)], board.holes ? ["unjudged in the top ten", percent(board.holes.shares[at], 1)] : ["", null]]),
      board.systems.length > 1 ? el("div", { class: "controls" }, compareChoice(dataset, board, at, at === 0 ? 1 : 0)) : null,
      figures.section("measures", "Measures", table({ label: "Measures", rows: board.measures.map((name, place) => ({ name, place })), columns: [
        { key: "name", label: "Measure" }, { key: "value", label: "Mean", number: true, value: (row) => one.means[row.place], cell: (row) => score(one.means[row.place], 4) },
        { key: "interval", label: "95 %", sortable: false, cell: (row) => (one.intervals[row.place] ? one.intervals[row.place].map((each) => score(each, 3)).join("–") : EMPTY) },
        { key: "rank", label: "Place", number: true, value: (row) => (/^(Hole|Judged)/.test(row.name) ? null : 1 + board.systems.filter((other) => (other.means[row.place] ?? -1) > (one.means[row.place] ?? -1)).length) }] })),
      figures.section("kinds", "By kind of query", kinds(board, at)),
      figures.section("worst", "Its worst queries", await worst(dataset, board, at)),
      figures.section("settings", "Settings", el("details", {}, el("summary", {}, "Settings and hardware"), el("pre", { dir: "auto" }, JSON.stringify({ settings: one.settings, description: one.description, versions: one.versions }, null, 1))))]);
    },
  });

  /* One system's mean on each kind of query, beside the mean of all systems. */
  function kinds(board, at) {
    return board.attributes.length ? el("div", { class: "coverage" }, board.attributes.map((one) => el("div", { class: "covered" }, el("h3", {}, one.attribute), el("ul", {}, one.values.map((value) => {
      const known = value.means.filter(isNumber);
      const all = known.reduce((sum, each) => sum + each, 0) / (known.length || 1);
      return el("li", {}, foreign(value.value), figures.bar(value.means[at] || 0, null, all),
      el("span", { class: "numbers" }, score(value.means[at], 3), el("small", {}, ` ${figures.signed((value.means[at] || 0) - all, 3)}, ${count(value.queries)}`)));
    })),
    figures.takes(`${board.systems[at].name} by ${one.attribute}`, () => figures.barsDrawing(`${board.systems[at].name}: ${board.headline} by ${one.attribute}`, one.values.map((value) => ({
      name: value.value, share: value.means[at] || 0, text: `${score(value.means[at], 3)}, ${count(value.queries)} queries` }))))))) : null;
  }

  async function worst(dataset, board, at) {
    if (!board.by_query) return [el("p", { class: "lead" }, "The scores by query are not in this report.")];
    const [{ ids, texts, relevant }, mine] = await Promise.all([get(`${dataset.key}/${board.key}/queries`), get(`${dataset.key}/${board.key}/system-${String(at).padStart(3, "0")}`)]);
    const rows = ids.map((id, place) => ({ id, text: texts[place] || id, relevant: relevant[place], score: mine.scores[place] / 1e6, first: mine.first[place] }))
      .sort((a, b) => a.score - b.score || (b.first || 1e9) - (a.first || 1e9)).slice(0, WORST);
    return [el("p", { class: "lead" }, `The ${count(rows.length)} queries with the lowest ${board.headline}.`), table({
      label: "Worst queries", rows, columns: [
        { key: "text", label: "Query", cell: (row) => asked(dataset, row) },
        { key: "score", label: board.headline, number: true, cell: (row) => score(row.score, 4) },
        { key: "first", label: "First relevant", number: true, value: (row) => row.first || 1e9, cell: (row) => (row.first ? `rank ${count(row.first)}` : "not found") },
        { key: "relevant", label: "Relevant", number: true, class: "wide", cell: (row) => count(row.relevant) },
      ] })];
  }
})();

/* Two lists of systems and a button that leads to their comparison. */
function compareChoice(dataset, board, first, second) {
  if (board.systems.length < 2 || !board.by_query) return null;
  const list = (chosen, label) => el("select", { "aria-label": label }, board.systems.map((one, at) => el("option", { value: at, selected: at === chosen }, `${at + 1}  ${one.name}`)));
  const [one, other] = [list(first, "System A"), list(second, "System B")];
  return el("form", { class: "pairing", on: { submit: (event) => {
    event.preventDefault();
    location.hash = link(dataset.key, "compare", board.systems[one.value].name, board.systems[other.value].name, splitOf(board));
  } } }, one, el("span", { class: "quiet" }, "against"), other, el("button", { type: "submit", class: "primary" }, "Compare"));
}
