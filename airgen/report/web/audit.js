"use strict";
/* The audit: people say whether documents answer queries.

   Answers to the sample of `airgen audit sample` are kept in the form that `airgen audit score` reads. They count only
   from somebody who has not seen the label. Any other answer is kept apart (`others`): nobody drew that pair. */

const audits = new Map();

/* Sample, answers and the queries whose labels were seen in this browser. */
async function auditOf(dataset) {
  if (!audits.has(dataset.key)) {
    const { live } = await get("report");
    const sample = await get(`${dataset.key}/audit`);
    const name = `audit-${sample.key || sample.dataset}`;
    const own = () => { try { return JSON.parse(kept(`${name}-answers`)) || {}; } catch { return {}; } };
    const empty = { key: sample.key, dataset: sample.dataset, answers: {}, reasons: {}, others: [] };
    const saved = live ? await ask(`audit/${dataset.key}`) : { ...empty, ...own() };
    audits.set(dataset.key, {
      sample, live, name, saved, dataset,
      numbers: new Map(sample.items.map((item, place) => [`${item.query}\n${item.document}`, place + 1])),
      seen: new Set(JSON.parse(kept(`${name}-seen`) || "[]")),
    });
  }
  return audits.get(dataset.key);
}

function saw(audit, query) {
  if (audit.seen.has(query)) return;
  audit.seen.add(query);
  kept(`${audit.name}-seen`, JSON.stringify([...audit.seen]));
}

const pairKey = (query, id) => `${query}\n${id}`;
/* The keys that answer: those of the levels that the job has, and x. */
const auditKeys = (audit) => [...Object.keys(audit.sample.keys), "x"];
const answerLevel = (audit, key) => (key === "x" ? null : Number(audit.sample.keys[key]));
const levelWords = (audit, key) => (key === "x" ? "cannot say" : audit.sample.levels[audit.sample.keys[key]]);
const pressed = (audit) => Object.keys(audit.sample.keys).map((key) => [el("kbd", {}, key), " "]);

/* What a person said of a pair: a level, null for "cannot say", undefined for no answer. */
function answerTo(audit, query, id) {
  const number = audit.numbers.get(pairKey(query, id));
  if (number !== undefined && String(number) in audit.saved.answers) return audit.saved.answers[number];
  const other = audit.saved.others.find((one) => one.query === query && one.document === id);
  return other ? other.level : undefined;
}

/* Whether an answer to a pair would be one to the sample. */
const counts = (audit, query, id) => audit.numbers.has(pairKey(query, id)) && !audit.seen.has(query);

/* Why, in a person's words, as far as that was written. */
function reasonOf(audit, query, id) {
  const number = audit.numbers.get(pairKey(query, id));
  if (number !== undefined && String(number) in audit.saved.answers) return (audit.saved.reasons || {})[number] || "";
  const other = audit.saved.others.find((one) => one.query === query && one.document === id);
  return (other && other.why) || "";
}

async function answer(audit, query, id, level, why) {
  const value = counts(audit, query, id) ? { number: audit.numbers.get(pairKey(query, id)), level, why }
    : { query, document: id, level, seen: audit.seen.has(query), why };
  if (audit.live) { audit.saved = await ask(`audit/${audit.dataset.key}`, value); return; }
  if ("number" in value) {
    audit.saved.answers[value.number] = level;
    audit.saved.reasons = { ...audit.saved.reasons };
    if (why) audit.saved.reasons[value.number] = why; else delete audit.saved.reasons[value.number];
  }
  else audit.saved.others = [...audit.saved.others.filter((one) => one.query !== query || one.document !== id), value];
  kept(`${audit.name}-answers`, JSON.stringify(audit.saved));
}

function saveFile(audit) {
  const place = URL.createObjectURL(new Blob([`${JSON.stringify(audit.saved, null, 1)}\n`], { type: "application/json" }));
  const file = el("a", { href: place, download: "audit-answers.json" });
  file.click();
  URL.revokeObjectURL(place);
}

/* The five buttons under a document. */
function answerBar(audit, query, id, done) {
  const said = el("span", { class: "quiet small", role: "status", "aria-live": "polite" });
  const bar = el("div", { class: "answer", role: "group", "aria-label": audit.sample.question });
  const why = el("input", { type: "text", maxlength: 500, dir: "auto", value: reasonOf(audit, query, id), placeholder: "Reason, in a sentence (optional)", "aria-label": "Why, in a sentence",
    on: { change: () => { const now = answerTo(audit, query, id); if (now !== undefined) answer(audit, query, id, now, why.value.trim()).catch((error) => { said.textContent = `Not saved: ${error.message}`; }); },
      keydown: (event) => { if (event.key === "Enter" || event.key === "Escape") { why.blur(); const card = bar.closest("article, .auditing"); if (card && card.tabIndex === 0) card.focus(); } } } });
  bar.why = why;
  const show = () => {
    const now = answerTo(audit, query, id);
    const drawn = audit.numbers.get(pairKey(query, id));
    for (const button of bar.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(now !== undefined && answerLevel(audit, button.dataset.level) === now));
    said.textContent = now === undefined || counts(audit, query, id) || drawn in audit.saved.answers ? ""
      : drawn ? "Not counted: you have seen the label." : "Not counted: not in the sample.";
  };
  bar.give = async (key) => {
    try { await answer(audit, query, id, answerLevel(audit, key), why.value.trim()); } catch (error) { said.textContent = `Not saved: ${error.message}`; return; }
    show();
    if (done) done();
  };
  put(bar, auditKeys(audit).map((key) => el("button", {
    type: "button", class: "small", dataset: { level: key }, "aria-label": `${key} ${levelWords(audit, key)}`, title: levelWords(audit, key), on: { click: () => bar.give(key) },
  }, el("kbd", {}, key), " ", el("span", { class: "words" }, levelWords(audit, key)))), why, said);
  show();
  return bar;
}

/* What the levels mean, for phones, where the buttons have no room for it. */
function levelsOf(audit) {
  return el("p", { class: "levels quiet small" }, auditKeys(audit).map((key, place) => [place ? "; " : "", el("b", {}, key), ` ${levelWords(audit, key)}`]));
}

function auditFoot(audit, button = true) {
  const { sample } = audit;
  const given = Object.keys(audit.saved.answers).length;
  const others = audit.saved.others.length;
  return [
    el("p", { class: "quiet small" }, sample.items.length ? `${count(given)} of ${count(sample.items.length)} pairs of the sample are answered.`
      : "No sample has been drawn, so answers are saved but not counted.", others > 0 && ` ${count(others)} other answers are saved but not counted, because the pairs are not in the sample or their label was visible.`),
    !sample.items.length ? el("p", { class: "quiet small" }, "Draw one with ", el("code", {}, sample.draw)) : audit.live ? el("p", { class: "quiet small" }, "Answers are saved to ", el("code", {}, sample.file), ". Then: ", el("code", {}, sample.score_kept))
      : el("p", { class: "small" }, button && el("button", { type: "button", on: { click: () => saveFile(audit) } }, "Save answers"), " ",
        el("span", { class: "quiet" }, button ? "then: " : "After saving: ", el("code", {}, sample.score))),
  ];
}

/* Where the document can be read: a link, where it has an address. */
function sourceLine(source) {
  if (!source) return null;
  return el("p", { class: "small" }, /^https?:\/\//i.test(source) ? el("a", { href: source, target: "_blank", rel: "noopener noreferrer" }, source) : foreign(source));
}

/* The sample, one pair after the other. */
airgenPage("audit", {
  route: /^\/d\d+\/audit$/, title: "Audit", tab: "Audit", order: 60, has: (one) => one && one.has.includes("audit"),
  async draw(main, params) {
    const audit = await auditOf(params.dataset);
    const { items } = audit.sample;
    put(main, el("h1", {}, "Audit"));
    if (!items.length) {
      put(main, el("p", {}, "In an audit, people judge a random sample of the labelled pairs without seeing the labels. No sample has been drawn yet. To draw one, run:"),
        el("pre", {}, audit.sample.draw), el("p", {}, "Then make the report again. Answers given on the pages of queries are saved but not counted, because these pairs are not a random sample."),
        audit.saved.others.length > 0 && auditFoot(audit));
      return;
    }
    const first = items.findIndex((_, place) => !(String(place + 1) in audit.saved.answers));
    let place = Number(params.query.get("n")) - 1;
    if (!(place >= 0 && place < items.length)) place = Math.max(0, first);
    const said = el("span", { class: "quiet", role: "status", "aria-live": "polite" });
    const done = el("span", { class: "quiet" });
    const save = el("button", { type: "button", class: "small", on: { click: () => saveFile(audit) } }, "Save answers");
    const along = el("progress", { max: items.length, value: 0, "aria-label": "Answered" });
    const card = el("div", { class: "auditing" });
    const foot = el("div", {});
    const step = (by) => { place = Math.min(Math.max(place + by, 0), items.length - 1); remember({ n: place + 1 }); show(); };
    put(main, el("p", { class: "keys" }, "Press ", pressed(audit), "or ", el("kbd", {}, "x"), " if you are unsure, ", el("kbd", {}, "w"), " to write a reason, ",
      el("kbd", {}, "←"), " and ", el("kbd", {}, "→"), " to move."), el("p", { class: "along" }, along, " ", audit.live ? null : save, " ", said, " ", done), card, foot);

    /* Where the focus is within the card, to find the same button in the next one. */
    function focused() {
      const now = document.activeElement;
      if (!now || !card.contains(now) || now.tagName !== "BUTTON") return () => {};
      const [level, words] = [now.dataset.level, now.textContent];
      return () => {
        const again = [...card.querySelectorAll("button")].find((one) => (level === undefined ? one.textContent === words : one.dataset.level === level));
        if (again && !again.disabled) again.focus({ preventScroll: true });
      };
    }

    function show() {
      const item = items[place];
      const refocus = focused();
      const bar = answerBar(audit, item.query, item.document, () => (place + 1 < items.length ? step(1) : show()));
      const given = Object.keys(audit.saved.answers).length;
      along.value = given;
      said.textContent = `${place + 1} of ${items.length}`;
      done.textContent = `${given} answered${given < items.length ? "" : audit.live ? ". You are finished." : ". You are finished: save the answers."}`;
      card.replaceChildren();
      put(card, item.text ? foreign(item.text, "h2", { class: "auditquery" }) : notice("This query is no longer in the dataset: draw a new sample."),
        audit.seen.has(item.query) && notice("You have seen the labels on the page of this query, so your answer will not be counted.", "info"),
        item.title && foreign(item.title, "h3"), sourceLine(item.source), el("div", { class: "foreign text", dir: "auto" }, marked(item.body, item.text, params.dataset)),
        el("h3", { class: "question" }, audit.sample.question),
        audit.sample.meaning && el("p", { class: "quiet small" }, audit.sample.meaning), levelsOf(audit), bar,
        el("p", { class: "steps" }, el("button", { type: "button", disabled: place === 0, on: { click: () => step(-1) } }, "← Back"), " ",
          el("button", { type: "button", disabled: place + 1 === items.length, on: { click: () => step(1) } }, "Next →")));
      card.bar = bar;
      card.step = step;
      refocus();
      foot.replaceChildren();
      put(foot, auditFoot(audit, false));
    }
    show();
  },
});

/* The documents of one query, in an order that tells nothing, and without their labels. */
airgenPage("audit-query", {
  route: /^\/d\d+\/audit\/[^/]+$/, under: "audit", title: "Audit of a query",
  async draw(main, params) {
    const { dataset, path } = params;
    const audit = await auditOf(dataset);
    const life = await lifeOf(dataset, path[2]);
    const ids = life.labels.map((one) => one.id).filter((id) => life.docs[id]);
    const places = new Map(ids.map((id) => [id, shuffle(`${life.id}\n${id}`)]));
    ids.sort((a, b) => places.get(a) - places.get(b));
    put(main, el("nav", { class: "steps small" }, el("a", { href: link(dataset.key, "query", life.id) }, "← With labels")),
      foreign(life.text, "h1"),
      el("p", { class: "quiet" }, "Its documents in random order, without labels. Tab or ", el("kbd", {}, "j"), " and ", el("kbd", {}, "k"), " choose one, ",
        pressed(audit), el("kbd", {}, "x"), " answer."), el("p", {}, el("strong", {}, audit.sample.question)), levelsOf(audit),
      audit.seen.has(life.id) && notice("You have seen the labels on the page of this query, so your answers will not be counted.", "info"),
      ids.map((id) => el("article", { class: "doc", tabindex: 0, dataset: { document: id } }, el("h3", { dir: "auto" }, titleOf(life, id)),
        el("div", { class: "foreign text", dir: "auto" }, life.docs[id].text), answerBar(audit, life.id, id))),
      auditFoot(audit));
  },
});

/* A number that is the same for equal texts and looks like chance (FNV-1a). */
function shuffle(text) {
  let found = 0x811c9dc5;
  for (let place = 0; place < text.length; place++) found = Math.imul(found ^ text.charCodeAt(place), 0x01000193) >>> 0;
  return found;
}

/* On the page of a query, which shows the labels: answers are possible and are kept apart. */
airgen.onQuery.push((life, dataset) => {
  if (!dataset.has.includes("audit") || !life.labels.length) return null;
  const box = el("section", { class: "audit" }, el("h2", {}, "Audit"));
  auditOf(dataset).then((audit) => {
    const mine = audit.sample.items.filter((item) => item.query === life.id).length;
    put(box, el("p", {}, mine > 0 && !audit.seen.has(life.id) ? `${mine} of its documents are in the sample. ` : "",
      el("a", { href: link(dataset.key, "audit", life.id) }, "Check its documents without their labels")), auditFoot(audit));
    saw(audit, life.id);
    for (const article of box.closest(".page").querySelectorAll("article[data-document]")) {
      article.tabIndex = 0;
      article.append(answerBar(audit, life.id, article.dataset.document));
    }
  }).catch((error) => put(box, notice(error.message)));
  return box;
});

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const card = document.querySelector("main .auditing");
  if (card && card.bar) {
    if (card.bar.querySelector(`button[data-level="${CSS.escape(event.key)}"]`)) card.bar.give(event.key);
    else if (event.key === "w") card.bar.why.focus();
    else if (event.key === "ArrowLeft") card.step(-1);
    else if (event.key === "ArrowRight") card.step(1);
    else return;
    event.preventDefault();
    return;
  }
  const articles = [...document.querySelectorAll("main article[data-document]")];
  if (!articles.length) return;
  const chosen = event.target.closest("article[data-document]");
  const step = { j: 1, k: -1 }[event.key];
  if (step) {
    const next = articles[articles.indexOf(chosen) + step] || (chosen ? null : articles[0]);
    if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
  } else if (chosen && event.key === "w" && chosen.querySelector(".answer")) chosen.querySelector(".answer").why.focus();
  else if (chosen && chosen.querySelector(`.answer button[data-level="${CSS.escape(event.key)}"]`)) chosen.querySelector(".answer").give(event.key);
  else return;
  event.preventDefault();
});
