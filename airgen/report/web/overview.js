"use strict";
/* The first page: of one dataset what it is, which systems are best, how it was made and what that cost;
   of several datasets the systems on each of them. */

(() => {
  const ROLES = { __proto__: null, lt5: "under 5 words", lt10: "5 to 9 words", "10to20": "10 to 19 words", ge20: "20 words or more" };

  function figuresOf(about, facts, dataset) {
    const splits = Object.values(facts.splits || {});
    const sum = (name) => (splits.length && splits.every((one) => isNumber(one[name]))
      ? splits.reduce((total, one) => total + one[name], 0) : null);
    const systems = new Set(Object.values(dataset.systems || {}).flat());
    const shown = (value) => (value === null || value === undefined ? null : count(value));
    return figures.facts([
      ["passages that are searched", shown(facts.passages ?? dataset.passages)],
      ["queries", shown(sum("queries") ?? dataset.counts.queries), facts.target && `of ${count(facts.target)} wanted`],
      ["relevant passages of all queries (positives)", shown(sum("positives"))],
      [facts.generated ? "passages that only look relevant (hard negatives)" : "passages judged not relevant", shown(sum("negatives"))],
      ["systems compared", systems.size ? count(systems.size) : null],
      ["spent on language models", about.money && about.stages.length ? money(about.money.spent) : null],
    ]);
  }

  const OWN_SCALE = new Set(["corpus", "parts of documents left out", "hard negatives", "positives"]);

  /* Each stage with what entered it (light) and what left it (dark), and why the rest did not. */
  function funnel(steps, soFar, figuresTable) {
    if (!steps.length) return [];
    const shared = Math.max(1, ...steps.filter((one) => !OWN_SCALE.has(one.stage)).map((one) => Math.max(one.entered, one.left)));
    const rows = steps.map((one) => {
      const scale = OWN_SCALE.has(one.stage) ? Math.max(1, one.entered, one.left) : shared;
      const reasons = Object.entries(one.reasons || {}).sort((a, b) => b[1] - a[1]);
      const first = reasons.slice(0, 3).map(([why, number]) => `${count(number)} ${why}`).join("; ");
      const rest = reasons.slice(3);
      const grown = one.left > one.entered;
      return el("li", {},
        el("span", { class: "stage" }, one.stage),
        figures.bar(one.left / scale, grown ? null : one.entered / scale, grown ? one.entered / scale : null),
        el("span", { class: "numbers" }, `${count(one.entered)} → `, el("strong", {}, count(one.left)),
          one.stage === "corpus" ? el("span", { class: "unit" }, " passages") : null),
        el("span", { class: "why" }, first, rest.length ? el("details", {},
          el("summary", {}, `${rest.length} other reasons`), rest.map(([why, number]) => el("div", {}, `${count(number)} ${why}`))) : null));
    });
    return [
      el("p", { class: "lead" }, "The funnel: how many items of each kind entered a stage and left it, and why the others did not. Pale bars show what entered a stage, solid bars what left it. Samples and queries share one scale.",
        steps.some((one) => one.left > one.entered) ? " Where more left than entered, a mark shows what entered." : "", soFar ? " The job is not finished; these are the results so far." : ""),
      el("ol", { class: "funnel" }, rows),
      figures.takes("From samples to labels", () => figures.barsDrawing("From samples to labels", steps.map((one) => {
        const scale = OWN_SCALE.has(one.stage) ? Math.max(1, one.entered, one.left) : shared;
        return { name: one.stage, share: one.left / scale, whole: one.entered / scale, text: `${count(one.entered)} to ${count(one.left)}` };
      }))),
      unfolded("The figures", () => drawnTable(figuresTable)),
    ];
  }

  function costs(about) {
    if (!about.tables.costs) return [];
    const spent = about.money || {};
    const notes = [];
    if (spent.without_answer >= 0.00005) notes.push(`${money(spent.without_answer)} for attempts with unusable answers`);
    if (spent.lost >= 0.00005) notes.push(`at most ${money(spent.lost)} for calls that were in flight when the job was killed`);
    return [
      drawnTable(about.tables.costs),
      notes.length ? el("p", { class: "lead" }, `The job spent ${money(spent.spent)} in all, with ${notes.join(" and ")}.`) : null,
      (spent.overbilled || []).map((one) => el("p", { class: "lead" }, foreign(`${one}.`))),
      about.failures && about.failures.length ? el("details", {}, el("summary", {}, "Failed calls by reason"),
        el("ul", {}, about.failures.map(([stage, why, number]) => el("li", {}, `${count(number)} × ${stage.replaceAll("_", " ")}: `, foreign(why))))) : null,
    ];
  }

  function coverage(about, dataset) {
    const parts = about.coverage.map((one) => {
      const total = one.values.reduce((sum, row) => sum + row.queries, 0) || 1;
      const most = Math.max(...one.values.map((row) => Math.max(row.queries / total, row.asked || 0)), 0.01);
      const asked = one.values.some((row) => row.asked !== null);
      return el("div", { class: "covered" }, el("h3", {}, one.attribute), el("ul", {}, one.values.map((row) => el("li", {},
        el("a", { href: link(dataset.key, "queries", { [one.attribute]: row.value }) }, foreign(ROLES[row.value] || row.value)),
        figures.bar(row.queries / total / most, null, row.asked === null ? null : row.asked / most),
        el("span", { class: "numbers" }, count(row.queries),
          el("small", {}, ` ${percent(row.queries / total)}`, asked ? ` (${percent(row.asked || 0)})` : ""))))),
      figures.takes(`Queries by ${one.attribute}`, () => figures.barsDrawing(`Queries by ${one.attribute}`, one.values.map((row) => ({
        name: ROLES[row.value] || row.value, share: row.queries / total / most, mark: row.asked === null ? null : row.asked / most, text: `${count(row.queries)} (${percent(row.queries / total)})` })))));
    });
    if (!parts.length) return [];
    const asked = about.coverage.some((one) => one.values.some((row) => row.asked !== null));
    return [el("p", { class: "lead" }, asked ? "Accepted queries of each kind. The mark, and the number in brackets, show the share that the pipeline requests." : "Queries of each kind."),
      el("div", { class: "coverage" }, parts)];
  }

  function about(facts) {
    const rows = [["Source", facts.source], ["Address", facts.source_url], ["Licence of the corpus", facts.source_licence],
      ["Licence of queries and labels", facts.labels_licence], ["Version", facts.version], ["Digest of the data", facts.digest && facts.digest.slice(0, 16)]]
      .filter(([, value]) => value);
    return rows.length ? [el("dl", { class: "about" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, foreign(value))]))] : [];
  }

  async function drawDataset(main, dataset, alone) {
    const found = await get(`${dataset.key}/overview`);
    const { facts, tables: made } = found;
    const words = [facts.kind, facts.domain && `domain ${facts.domain}`].filter(Boolean);
    const facing = figuresOf(found, facts, dataset);
    main.append(el("header", { class: "intro" },
      el("h1", {}, foreign(dataset.name)),
      el("p", { class: "quiet" }, words.join(" · "), dataset.state === "running" || dataset.state === "stopped" ? el("span", { class: `tag ${dataset.state}` }, dataset.state) : null),
      facts.description ? foreign(facts.description, "p") : null, found.answers.length ? null : facing));
    put(main, [...(dataset.notes || []), ...found.notes].map((one) => notice(one)));
    if (found.answers.length) {
      put(main, figures.section("answers", "In short", el("dl", { class: "about answers" }, found.answers.map(([question, answer, why]) => [
        el("dt", {}, question), el("dd", {}, el("strong", {}, foreign(answer)), why && el("small", { class: "quiet", dir: "auto" }, ` ${why}`))]))));
    }
    put(main, found.labels_by_people.map((words) => notice(`${words}.`, "info")));
    if (made.next) put(main, figures.section("next", "What to do next", drawnTable(made.next)));
    if (dataset.has.includes("systems")) {
      const { boards } = await get(`${dataset.key}/systems`);
      put(main, boards.map((board) => figures.section(`systems-${board.key}`, boards.length > 1 ? `Systems on ${board.split}` : "Systems",
        systemsTable(dataset, board, { views: false }),
        scoreAgainstTime(board))));
    }
    put(main, [
      found.answers.length && figures.section("data", "What it was measured on", facing),
      made.made_by && figures.section("made", "How it was made", drawnTable(made.made_by)),
      figures.section("funnel", found.funnel.length ? "From samples to labels" : "Labels", funnel(found.funnel, found.so_far, made.funnel), made.splits && drawnTable(made.splits)),
      figures.section("coverage", "What the queries cover", coverage(found, dataset)),
      figures.section("costs", "Cost by stage", costs(found)),
      made.models && figures.section("models", "Models and prompts", drawnTable(made.models)),
      figures.section("about", "About the data", about(facts)),
    ]);
  }

  async function drawAll(main, data) {
    main.append(el("header", { class: "intro" }, el("h1", {}, foreign(data.title)), el("p", { class: "quiet" }, `${data.datasets.length} datasets`)));
    put(main, data.notes.map((one) => notice(one)));
    main.append(figures.section("datasets", "Datasets", drawnTable(data.table)));
    if (!data.together) return;
    const side = await get("together");
    put(main, [sideBySide(side), ...slopes(side)]);
  }

  function sideBySide(side) {
    return figures.section("together", "Systems on each dataset",
      el("p", { class: "lead" }, "The main measure of each dataset. Within a column, a stronger colour is better. Systems that ran on all datasets of a measure have a mean."),
      drawnTable(side.table));
  }

  function slopes(side) {
    return side.slopes.map((one, place) => {
      const [left, right] = [side.columns[one.left], side.columns[one.right]];
      return figures.section(`slope-${place}`, `People's labels on ${left.name} beside generated ones on ${right.name}`,
        el("p", { class: "lead" }, `${one.systems.length} systems. Spearman's rank correlation is ${score(one.spearman, 2)}.`),
        figures.drawing(one.drawings, "Ranks of the systems on both sides"), unfolded("The figures", () => drawnTable(one.table)));
    });
  }

  airgenPage("overview", {
    route: /^\/(d\d+)?\/?$/, title: "Overview", tab: "Overview", order: 0,
    link: (first, data) => (data.datasets.length > 1 && first ? link(first.key) : "#/"),
    async draw(main, params, data) {
      if (!data.datasets.length) main.append(el("h1", {}, foreign(data.title)), notice("There is nothing in this report."));
      else if (params.dataset || data.datasets.length === 1) {
        if (data.datasets.length === 1) put(main, data.notes.map((one) => notice(one)));
        await drawDataset(main, params.dataset || data.datasets[0]);
      } else await drawAll(main, data);
    },
  });
})();
