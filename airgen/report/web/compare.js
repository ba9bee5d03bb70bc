"use strict";
/* Two systems, query by query: who wins where, which queries decide it, and their first hits side by side. */

(() => {
  const LOST = 12; // relevant passages below the first hits that are named
  const [A, B] = ["#0072b2", "#d55e00"]; // of a drawing that is taken along; the page has colours of its own
  const FIRST = 10; // ranks within which a system finds something
  const MILLIONTHS = 1e6;
  const EQUAL = 1; // millionths: scores that differ by less are equal

  const file = (dataset, board, at) => get(`${dataset.key}/${board.key}/system-${String(at).padStart(3, "0")}`);

  function find(board, name) {
    const at = board.systems.findIndex((one) => one.name === name);
    if (at < 0) throw new Error(`There is no system ${name} on ${board.split}.`);
    return at;
  }

  /* Two systems query by query: the table that Python began, joined with the columns of both, and for the figures each row
     with its difference; those with the largest come first. */
  async function differences(dataset, board, a, b) {
    const [{ table, relevant }, one, other] = await Promise.all([get(`${dataset.key}/${board.key}/queries`), file(dataset, board, a), file(dataset, board, b)]);
    const sides = { a: one.table.columns, b: other.table.columns };
    const [query, ...rest] = [{ ...table.columns[0], to: [dataset.key, "compare", board.systems[a].name, board.systems[b].name], query: splitOf(board) },
      ...table.joined.map(({ of, column, less, ...about }) => (of ? { ...sides[of][column], ...about } : difference(sides.a[less], sides.b[less], about)))];
    const [scoreA, scoreB, less, firstA, firstB] = rest.map((column) => column.sort);
    const rows = query.ids.map((id, at) => ({ id, at, text: query.texts[at], relevant: relevant[at],
      a: scoreA[at] / MILLIONTHS, b: scoreB[at] / MILLIONTHS, difference: less[at] / MILLIONTHS, winner: sideOf(less[at]), firstA: firstA[at], firstB: firstB[at] }));
    rows.sort((x, y) => Math.abs(y.difference) - Math.abs(x.difference) || x.at - y.at);
    return { rows, table: { ...table, columns: [query, ...rest] } };
  }

  const sideOf = (difference) => (Math.abs(difference) < EQUAL ? "tie" : difference > 0 ? "a" : "b");

  /* The difference of two columns of whole numbers, as Python says how it is written. */
  function difference(a, b, { unit, digits, ...about }) {
    const sort = a.sort.map((value, at) => value - b.sort[at]);
    return { ...about, number: true, sort, texts: sort.map((value) => (Math.abs(value) < EQUAL ? "0" : `${value > 0 ? "+" : ""}${(value / unit).toFixed(digits)}`)), sides: sort.map((value) => `winner-${sideOf(value)}`) };
  }

  /* A difference and its interval, seen from one of the two systems. */
  const seen = ([, , difference, , , low, high], first) => (first ? { difference, low, high } : { difference: -difference, low: -high, high: -low });

  function pairOf(board, a, b) {
    const found = board.pairs.find(([one, other]) => (one === a && other === b) || (one === b && other === a));
    return found ? { ...seen(found, found[0] === a), holm: found[3], needed: found[4], p: found[7], verdict: found[8] } : null;
  }

  /* Every query's difference, the largest win of A on the left: an area above and below a line. */
  function curve(rows) {
    const values = rows.map((one) => one.difference).sort((x, y) => y - x);
    const [width, height] = [600, 96];
    const most = Math.max(...values.map(Math.abs), 1e-9);
    const steps = Math.min(values.length, 300);
    const points = (keep) => {
      const path = [`M0 ${height / 2}`];
      for (let at = 0; at < steps; at++) {
        const value = keep(values[Math.min(values.length - 1, Math.floor(((at + 0.5) / steps) * values.length))]);
        const y = (height / 2 - (value / most) * (height / 2 - 4)).toFixed(1);
        path.push(`L${((at / steps) * width).toFixed(1)} ${y}L${(((at + 1) / steps) * width).toFixed(1)} ${y}`);
      }
      return `${path.join("")}L${width} ${height / 2}Z`;
    };
    const drawn = el("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": "Differences by query, sorted" },
      el("path", { class: "a", fill: A, d: points((value) => Math.max(0, value)) }), el("path", { class: "b", fill: B, d: points((value) => Math.min(0, value)) }),
      el("line", { class: "axis", stroke: "#999999", x1: 0, x2: width, y1: height / 2, y2: height / 2 }));
    return el("figure", { class: "curve" }, drawn,
      el("figcaption", { class: "quiet small" }, "The difference for each query, sorted. A is better above the line, B below it."),
      figures.takes("Differences by query, sorted", () => figures.standalone(drawn)));
  }

  /* Number of queries by difference: bars of a tenth, those without a difference in the middle. */
  function histogram(rows) {
    const bins = Array.from({ length: 21 }, () => 0);
    for (const row of rows) {
      const steps = Math.min(10, Math.max(1, Math.ceil(Math.abs(row.difference) * 10 - 1e-9)));
      bins[row.winner === "tie" ? 10 : row.difference > 0 ? 10 + steps : 10 - steps] += 1;
    }
    const [width, height, base] = [600, 150, 120];
    const step = width / bins.length;
    const most = Math.max(...bins, 1);
    const font = { "font-family": "Liberation Sans, Arial, sans-serif", "font-size": 11, "text-anchor": "middle", fill: "#5a6472" };
    const drawn = el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Number of queries by difference" },
      bins.map((number, at) => {
        const tall = (number / most) * (base - 20);
        const x = at * step;
        return number ? [el("rect", { class: at > 10 ? "a" : at < 10 ? "b" : "tie", fill: at > 10 ? A : at < 10 ? B : "#9aa3b0", x: (x + 1).toFixed(1), y: (base - tall).toFixed(1), width: (step - 2).toFixed(1), height: tall.toFixed(1) }),
          el("text", { ...font, x: (x + step / 2).toFixed(1), y: (base - tall - 4).toFixed(1) }, String(number))] : null;
      }),
      el("line", { class: "axis", stroke: "#999999", x1: 0, x2: width, y1: base, y2: base }),
      [[0, "−1"], [5, "−0.5"], [10, "0"], [15, "+0.5"], [20, "+1"]].map(([at, words]) => el("text", { ...font, x: ((at + 0.5) * step).toFixed(1), y: base + 16 }, words)));
    return el("figure", { class: "histogram" }, drawn,
      el("figcaption", { class: "quiet small" }, "Number of queries by difference, in steps of 0.1. B is better on the left, A on the right."),
      figures.takes("Queries by difference", () => figures.standalone(drawn)));
  }

  function summary(board, a, b, rows) {
    const [one, other] = [board.systems[a], board.systems[b]];
    const counts = { a: 0, b: 0, tie: 0 };
    for (const row of rows) counts[row.winner] += 1;
    const pair = pairOf(board, a, b);
    const better = pair && (pair.difference > 0 ? one.name : other.name);
    const beside = board.pairs.length > 1 && pair ? `; as one of ${count(board.pairs.length)} pairs of all systems: ${figures.pValue(pair.holm)}` : "";
    const sure = pair && `A − B is ${figures.signed(pair.difference)} (95 %: ${figures.signed(pair.low)} to ${figures.signed(pair.high)}), p ${figures.pValue(pair.p)} for this pair alone${beside}.`;
    const verdict = !pair ? "" : pair.verdict !== "cannot tell" ? [foreign(better), ` is better: ${sure}`]
      : [`We cannot tell which is better: ${sure}`, isNumber(pair.needed) && pair.needed > board.queries ? ` About ${count(pair.needed)} queries are needed to detect a difference of this size.` : ""];
    return [
      el("div", { class: "duel" },
        el("div", { class: "a" }, el("span", { class: "letter" }, "A"), foreign(one.name), el("strong", {}, score(one.score, 4))),
        el("div", { class: "versus" }, figures.signed(one.score - other.score)),
        el("div", { class: "b" }, el("span", { class: "letter" }, "B"), foreign(other.name), el("strong", {}, score(other.score, 4)))),
      figures.stack([["a", counts.a], ["tie", counts.tie], ["b", counts.b]].map(([kind, number]) => ({ kind, share: number / (rows.length || 1) }))),
      el("p", { class: "tally" }, el("span", { class: "a" }, el("strong", { id: "wins" }, count(counts.a)), " wins of A"), el("span", {}, el("strong", { id: "ties" }, count(counts.tie)), " ties"),
        el("span", { class: "b" }, el("strong", { id: "losses" }, count(counts.b)), " wins of B")),
      el("p", { class: "verdict" }, verdict),
    ];
  }

  airgenPage("compare", {
    route: /^\/d\d+\/compare\/[^/]+\/[^/]+$/, under: "systems", title: (params) => `${params.path[2]} against ${params.path[3]}`,
    async draw(main, params) {
      const dataset = params.dataset;
      const { boards } = await get(`${dataset.key}/systems`);
      const board = boardOf(boards, params.query);
      const [a, b] = [find(board, params.path[2]), find(board, params.path[3])];
      put(main, el("p", { class: "steps" }, el("a", { href: link(dataset.key, "systems", splitOf(board)) }, "All systems"),
        el("a", { href: link(dataset.key, "compare", params.path[3], params.path[2], splitOf(board)) }, "Swap A and B")), el("h1", {}, "Two systems compared"));
      if (!board.by_query) {
        put(main, notice(board.private ? "The labels of this split are private, so single queries are not shown." : "There are no scores by query, so the two systems cannot be compared.", "info"));
        return;
      }
      const { rows, table } = await differences(dataset, board, a, b);
      const finds = (rank) => rank <= FIRST;
      const only = (row) => (finds(row.firstA) === finds(row.firstB) ? "" : finds(row.firstA) ? "only-a" : "only-b");
      const shown = () => {
        const winner = address().query.get("wins") || "";
        const words = fold(address().query.get("q") || "");
        return rows.filter((row) => (!winner || row.winner === winner || only(row) === winner) && (!words || fold(row.text).includes(words) || row.id.includes(words)));
      };
      const places = (found) => found.map((row) => row.at);
      const list = drawnTable(table, { shown: places(shown()), virtual: rows.length > 40, empty: "No matching queries.",
        sort: params.query.get("sort") || "", onSort: (sort) => remember({ sort }) });
      const counter = el("p", { class: "quiet", role: "status" });
      const update = () => { const now = shown(); list.setRows(places(now)); counter.replaceChildren(`${count(now.length)} of ${count(rows.length)} queries`); };
      const search = el("input", { type: "search", value: params.query.get("q") || "", "aria-label": "Search the queries", placeholder: "Search the queries", on: { input: (event) => { remember({ q: event.target.value }); update(); } } });
      put(main, compareChoice(dataset, board, a, b), summary(board, a, b, rows), el("div", { class: "sideways" }, histogram(rows), curve(rows)),
        el("h2", {}, "Queries with the largest differences"),
        el("div", { class: "controls" }, el("label", { class: "search" }, search),
          figures.choice("Which queries", [["", "All"], ["a", "A wins"], ["b", "B wins"], ["tie", "Ties"], ["only-a", "A finds it, B does not"], ["only-b", "B finds it, A does not"]], params.query.get("wins") || "", (wins) => { remember({ wins }); update(); })),
        counter, list);
    },
  });

  airgenPage("compared-query", {
    route: /^\/d\d+\/compare\/[^/]+\/[^/]+\/[^/]+$/, under: "systems", title: (params) => `${params.path[2]} against ${params.path[3]}`,
    async draw(main, params) {
      const dataset = params.dataset;
      const [, , left, right, id] = params.path;
      const { boards } = await get(`${dataset.key}/systems`);
      const board = boardOf(boards, params.query);
      const [a, b] = [find(board, left), find(board, right)];
      const { rows } = await differences(dataset, board, a, b);
      const at = rows.findIndex((row) => row.id === id);
      if (at < 0) throw new Error(`There is no query ${id} on ${board.split}.`);
      const row = rows[at];
      const to = (other, words) => (other ? el("a", { href: link(dataset.key, "compare", left, right, other.id, splitOf(board)) }, words) : null);
      put(main, el("p", { class: "steps" }, el("a", { href: link(dataset.key, "compare", left, right, splitOf(board)) }, "All queries"), to(rows[at - 1], "← Larger"), to(rows[at + 1], "Smaller →")),
        el("h1", {}, foreign(row.text)),
        el("p", { class: "quiet" }, dataset.has.includes("queries") ? el("a", { href: link(dataset.key, "query", row.id) }, "History of this query") : foreign(row.id), ` · ${count(row.relevant)} relevant ${row.relevant === 1 ? "passage" : "passages"}`));
      const known = dataset.has.includes("queries") && (await queriesOf(dataset)).placeOf.has(id);
      const life = known ? await lifeOf(dataset, id) : null; // in which the hits of all systems are
      put(main, el("div", { class: "beside" }, side(board, a, "A", row.a, life, row.text, dataset), side(board, b, "B", row.b, life, row.text, dataset)));
    },
  });

  function side(board, at, letter, value, life, query, dataset) {
    const system = board.systems[at];
    const found = life && life.ranked.find((one) => one.name === system.name);
    const labels = new Map(((life && life.labels) || []).map((one) => [one.id, one.label]));
    const lost = found ? [...labels].filter(([id, label]) => label > 0 && !found.top.includes(id)).map(([id]) => [id, found.ranks[id] || 0]) : [];
    lost.sort((x, y) => (x[1] || 1e9) - (y[1] || 1e9));
    return el("section", { class: letter.toLowerCase() }, el("h2", {}, el("span", { class: "letter" }, letter), foreign(system.name), el("small", { class: "quiet" }, ` ${board.headline} ${score(value, 4)}`)),
      !found ? el("p", { class: "lead" }, "The top hits are not in this report. To include them, make it from the dataset's folder.")
        : !found.top.length ? el("p", { class: "lead" }, "No results for this query.")
          : el("ol", { class: "hits" }, found.top.map((id) => hit(id, labels.get(id), life.docs[id], query, dataset))),
      lost.length ? el("p", { class: "lead" }, `${count(lost.length)} relevant passages are not among them: `, lost.slice(0, LOST).map(([id, place], each) => [each ? ", " : "", foreign(id), place ? ` (rank ${count(place)})` : " (not found)"]),
        lost.length > LOST ? ` and ${count(lost.length - LOST)} more.` : ".") : null);
  }

  function hit(id, label, text, query, dataset) {
    const tag = label === undefined || label === null ? el("span", { class: "tag" }, "no label") : label > 0 ? el("span", { class: "tag good" }, label === 1 ? "relevant" : `relevant ${label}`) : el("span", { class: "tag bad" }, "not relevant");
    return el("li", {}, el("p", {}, tag, " ", el("span", { class: "quiet small" }, foreign(id)), text && text.title ? [" ", el("strong", {}, foreign(text.title))] : null),
      text ? passageText(text, dataset, query, 240) : null);
  }
})();
