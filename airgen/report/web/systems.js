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
  const ranked = board.systems.every((one) => one.ranks);
  const lead = el("p", { class: "lead" }, `${count(board.queries)} queries${board.split === "test" ? "" : ` of the split ${board.split}`}. `,
    ranked ? "Rank: 95% confidence interval, from the pairs that differ significantly (Fisher's randomisation test with Holm's correction)." : "",
    !views && board.systems.some((one) => one.made_labels.length) ? " \u2020 helped to make the labels, so its score may be too high." : "");
  const verdict = board.verdict ? el("p", { class: "verdict", dir: "auto" }, el("strong", {}, "Verdict: "), `${board.verdict}.`) : null;
  if (!views) return [verdict, lead, drawnTable(board.views.ranking)];
  const box = el("div", {});
  const names = [["ranking", "Ranking"], ["measures", "All measures"], ["documents", "Per document"], ["costs", "Costs"], ["notes", "Notes"]];
  const choice = figures.choice("Columns", names.filter(([name]) => board.views[name]),
    address().query.get("view"), (view) => { box.replaceChildren(drawnTable(board.views[view])); remember({ view: view === "ranking" ? "" : view }); });
  return [verdict, lead, choice, box];
}

/* The chart of score and time, with what its marks mean. */
function scoreAgainstTime(board, heading = "h3") {
  const chart = figures.drawing(board.time, `${board.headline} against milliseconds per query`);
  return !chart ? null : [el(heading, {}, "Score against time"),
    el("p", { class: "lead" }, "In bold: systems that no other system beats in both score and time. A number is a system's place in the table. All times were measured on one machine."), chart,
  ];
}

(() => {
  /* A square of all pairs: each cell leads to the comparison of its two systems. */
  function pairs(board) {
    if (!board.square) return [];
    return [el("p", { class: "lead" }, "+ means that the system in the row is significantly better than the one in the column, − that it is significantly worse. Empty cells are not significant. Stronger colours show larger differences. Select a cell to compare the systems by query."),
      drawnTable(board.square),
      figures.takes("Pairs of systems", () => squareDrawing(board.square.columns)),
      unfolded("The figures", () => drawnTable(board.pairs_table))];
  }

  /* The square of all pairs as a drawing. */
  function squareDrawing([places, systems, ...others]) {
    const [left, top, step] = [210, 30, 26];
    const font = { "font-family": "Liberation Sans, Arial, sans-serif", "font-size": 13, fill: "#1b1f24" };
    const short = (text) => (text.length > 26 ? `${text.slice(0, 25)}…` : text);
    const [width, height] = [left + others.length * step + 10, top + others.length * step + 10];
    return figures.standalone(el("svg", { viewBox: `0 0 ${width} ${height}` },
      others.map((column, at) => el("text", { ...font, x: left + (at + 0.5) * step, y: top - 9, "text-anchor": "middle" }, column.title)),
      systems.texts.map((name, row) => [el("text", { ...font, x: left - 10, y: top + row * step + 17, "text-anchor": "end" }, `${short(name)}  ${places.texts[row]}`),
        others.map((column, at) => {
          const [sign, strength] = [column.texts[row], column.picture.values[row]];
          if (!isNumber(strength)) return null;
          const [x, y] = [left + at * step, top + row * step];
          return [el("rect", { x: x + 1, y: y + 1, width: step - 2, height: step - 2, fill: !sign ? "#eceef1" : strength < 0 ? "#d55e00" : "#0072b2", "fill-opacity": sign ? (0.25 + 0.55 * Math.abs(strength)).toFixed(2) : 1 }),
            sign ? el("text", { ...font, x: x + step / 2, y: y + 17, "text-anchor": "middle" }, sign) : null];
        })])));
  }

  function attributes(dataset, board) {
    if (!board.attributes.length) return [];
    const box = el("div", {});
    const show = (name) => box.replaceChildren(drawnTable(board.attributes.find((each) => each.attribute === name).table));
    return [el("p", { class: "lead" }, `The mean ${board.headline} over the queries of each kind, with the number of queries in brackets. Within a column, a stronger colour is better.`,
      board.attributes.some((one) => one.attribute.startsWith("metadata.")) ? " An attribute that begins with metadata is that of the passages that answer a query." : ""),
      figures.choice("Attribute", board.attributes.map((one) => [one.attribute, one.attribute]), "", show), box];
  }

  function holes(dataset, board) {
    const found = board.holes;
    if (!found) return [];
    return [el("p", { class: "lead" }, `A passage in the top ${found.depth} that has no label for the query (a hole) counts as not relevant. A system with many holes may be better than its score. ${count(found.pairs)} pairs are holes of at least one system.`),
      drawnTable(found.table), found.note ? el("p", { class: "lead" }, found.note) : null,
      found.first ? el("details", {}, el("summary", {}, "Unlabelled passages that most systems retrieve"), drawnTable(found.first)) : null];
  }

  /* Relevant passages that no system shows, and how much of the corpus nobody sees. */
  function never(dataset, board) {
    const found = board.never;
    if (!found) return [];
    return [el("p", { class: "lead" }, `${count(found.missed)} of ${count(found.relevant)} relevant passages are not in the top ${found.depth} of any system.`,
      isNumber(found.unseen) ? ` ${count(found.unseen)} passages of the corpus are not in the top ${found.depth} of any system for any query.` : "",
      found.table && found.missed > found.table.size ? ` The first ${count(found.table.size)}:` : ""),
    found.table ? drawnTable(found.table) : null];
  }

  /* How the judge decided, and what is known of its errors. */
  function judging(about) {
    const parts = [];
    const judged = about.judged || [];
    const total = judged.reduce((sum, [, number]) => sum + number, 0);
    if (total) parts.push(el("p", { class: "lead" }, `${count(total)} pairs of query and passage were judged. Levels from ${about.relevant_from} upwards count as relevant.`),
      el("div", { class: "coverage" }, el("div", { class: "covered" },
        el("ul", {}, judged.map(([level, number]) => el("li", {}, `level ${level}`, figures.bar(number / total), el("span", { class: "numbers" }, count(number), el("small", {}, ` ${percent(number / total)}`))))),
        shares("Levels of the judge", judged.map(([level, number]) => [`level ${level}`, number])))));
    const what = about.audit;
    if (what && Object.keys(what).length) {
      parts.push(el("h3", {}, "Audit by people"), el("dl", { class: "about" }, Object.entries(what).map(([name, value]) => [
        el("dt", {}, foreign(name)), el("dd", {}, foreign(typeof value === "object" && value !== null ? Object.entries(value).map(([key, each]) => `${key} ${typeof each === "object" ? JSON.stringify(each) : each}`).join(", ") : value))])));
    }
    if (about.unchecked) parts.push(el("p", { class: "lead" }, "No person has checked a sample of these labels", about.commands.sample && [": ", el("code", {}, about.commands.sample)], "."));
    return parts;
  }

  function agreement(about) {
    const found = about.agreement;
    if (!found) return [];
    const rho = found.spearman || {};
    return [el("p", { class: "lead" }, `The same systems, ranked by human labels of ${found.collection} and by generated labels. Spearman's rank correlation is `, el("strong", {}, score(rho.value, 2)),
      isNumber(rho.low) ? ` (${score(rho.low, 2)}–${score(rho.high, 2)}).` : ".", found.same_size_human && isNumber(found.same_size_human.mean) ? ` For comparison, samples of human queries of the same size reach ${score(found.same_size_human.mean, 2)} with the rest.` : ""),
    (found.notes || []).map((one) => notice(one)), figures.drawing(found.drawings, "Ranks of the systems by human and by generated labels"), unfolded("The figures", () => drawnTable(found.table))];
  }

  function diversity(about) {
    const found = about.diversity;
    if (!found) return [];
    if (found.note) return [notice(found.note)];
    if (found.large) return [el("p", { class: "lead" }, `The corpus has ${count(found.large)} passages, too many to count words here`, about.commands.diversity && [": ", el("code", {}, about.commands.diversity)], ".")];
    const { query_words: asked, passage_words: read, overlap, duplicates, length_classes: classes } = found;
    const total = Object.values(classes).reduce((sum, one) => sum + one, 0) || 1;
    return [figures.facts([["words per query", score(asked.mean, 1), `median ${asked.median}, 5–95 % ${Math.round(asked.low)}–${Math.round(asked.high)}`],
      ["words per passage", score(read.mean, 1), `median ${read.median}`],
      ["of a query's words occur in its positives", percent(overlap.positives), `${percent(overlap.others)} in another query's positives`],
      overlap.pairs ? ["before and after rewriting", `${percent(overlap.original)} → ${percent(overlap.rewritten)}`] : ["", null],
      ["near-duplicate queries", percent(duplicates.near, 1)], ["distinct words in all queries", count(found.query_vocabulary.types)]]),
    el("div", { class: "coverage" }, el("div", { class: "covered" }, el("h3", {}, "Words per query"),
      el("ul", {}, Object.entries(classes).map(([name, number]) => el("li", {}, name, figures.bar(number / total), el("span", { class: "numbers" }, count(number), el("small", {}, ` ${percent(number / total)}`))))),
      shares("Words per query", Object.entries(classes))))];
  }

  /* Buttons that take counted bars along. */
  function shares(words, pairs) {
    const total = pairs.reduce((sum, [, number]) => sum + number, 0) || 1;
    return figures.takes(words, () => figures.barsDrawing(words, pairs.map(([name, number]) => ({ name, share: number / total, text: `${count(number)} (${percent(number / total)})` }))));
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
        figures.section("pairs", "Pairs of systems", pairs(board)),
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
      figures.facts(one.facts),
      board.systems.length > 1 ? el("div", { class: "controls" }, compareChoice(dataset, board, at, at === 0 ? 1 : 0)) : null,
      figures.section("measures", "Measures", drawnTable(one.measures)),
      figures.section("kinds", "By kind of query", kinds(board, at)),
      figures.section("worst", "Its worst queries", await worst(dataset, board, at)),
      figures.section("settings", "Settings", el("details", {}, el("summary", {}, "Settings and hardware"), el("pre", { dir: "auto" }, JSON.stringify({ settings: one.settings, description: one.description, versions: one.versions }, null, 1))))]);
    },
  });

  /* One system's mean on each kind of query, beside the mean of all systems. */
  function kinds(board, at) {
    return board.attributes.length ? el("div", { class: "coverage" }, board.attributes.map((one) => el("div", { class: "covered" }, el("h3", { class: one.attribute.includes(".") ? "exact" : null }, one.attribute), el("ul", {}, one.values.map((value) => {
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
    const { worst: found } = await get(`${dataset.key}/${board.key}/system-${String(at).padStart(3, "0")}`);
    return [el("p", { class: "lead" }, `The ${count(found.size)} queries with the lowest ${board.headline}.`), drawnTable(found)];
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
