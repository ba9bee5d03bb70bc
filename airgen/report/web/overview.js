"use strict";
/* The first page: what the report is about. */

airgenPage("overview", {
  route: /^\/$/, title: "Overview", tab: "Overview", order: 0, link: () => "#/",
  draw(main, params, data) {
    put(main, el("h1", {}, foreign(data.title)));
    put(main, data.notes.map((note) => notice(note)));
    for (const one of data.datasets) {
      put(main, el("h2", {}, foreign(one.name)), one.notes.map((note) => notice(note)),
        el("dl", { class: "facts" }, ["task", "language", "domain", "state"].filter((name) => one[name]).map((name) =>
          el("div", {}, el("dt", {}, name), el("dd", {}, one[name])))),
        one.has.includes("queries") && el("p", {}, el("a", { href: link(one.key, "queries") }, `${count(one.counts.queries)} queries`)));
    }
  },
});
