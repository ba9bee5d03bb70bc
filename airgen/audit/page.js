"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const kept = "airgen-audit-" + data.key;
let given = { answers: {}, reasons: {} };
let place = 0;
const at = (id) => document.getElementById(id);
function recall() {
  try {
    const value = JSON.parse(localStorage.getItem(kept)) || {};
    return { answers: value.answers || {}, reasons: value.reasons || {} };
  } catch { return { answers: {}, reasons: {} }; }
}
function keep() { try { localStorage.setItem(kept, JSON.stringify(given)); } catch { /* a file without storage */ } }
/* Only an address of the web becomes a link; a name stays a name. */
function source(text) {
  if (!/^https?:\/\//i.test(text)) return text ? document.createTextNode(text) : "";
  const link = document.createElement("a");
  link.href = text;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  link.textContent = text;
  return link;
}
function show() {
  const item = data.items[place];
  at("query").textContent = item.query;
  at("title").textContent = item.title;
  at("source").replaceChildren(source(item.source));
  at("text").textContent = item.text;
  at("why").value = given.reasons[place + 1] || "";
  const done = Object.keys(given.answers).length;
  const stop = data.batch && done && done % data.batch === 0 ? ". You can save here and ask airgen what they say." : "";
  at("bar").value = done;
  const all = done === data.items.length ? ". You are finished: save the answers, and give the file to whoever asked you." : stop;
  at("progress").textContent = (place + 1) + " of " + data.items.length + ", " + done + " answered" + all;
  for (const button of document.querySelectorAll(".level")) {
    const level = given.answers[place + 1] === null ? "x" : String(given.answers[place + 1]);
    button.setAttribute("aria-pressed", String(level === button.dataset.level));
  }
}
function move(step) { place = Math.min(Math.max(place + step, 0), data.items.length - 1); show(); scrollTo(0, 0); }
function reason() {
  const text = at("why").value.trim();
  if (text) given.reasons[place + 1] = text; else delete given.reasons[place + 1];
  keep();
}
function rate(level) {
  reason();
  given.answers[place + 1] = level === "x" ? null : Number(level);
  keep();
  if (place + 1 < data.items.length) move(1); else show();
}
function saved() { return JSON.stringify({ key: data.key, dataset: data.dataset, ...given }, null, 1) + "\n"; }
function save() {
  reason();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([saved()], { type: "application/json" }));
  link.download = "audit-answers.json";
  link.click();
  URL.revokeObjectURL(link.href);
}
function take(text) {
  const value = JSON.parse(text);
  if (value.key !== data.key) throw new Error("these are answers to another sample");
  given = { answers: value.answers || {}, reasons: value.reasons || {} };
  keep();
  show();
}
for (const button of document.querySelectorAll(".level")) button.onclick = () => rate(button.dataset.level);
at("back").onclick = () => move(-1);
at("next").onclick = () => move(1);
at("save").onclick = save;
at("why").onchange = reason;
at("why").onkeydown = (event) => { if (event.key === "Enter" || event.key === "Escape") at("why").blur(); };
at("open").onchange = async (event) => {
  try {
    take(await event.target.files[0].text());
  } catch (error) {
    at("progress").textContent = "Not opened: " + error.message;
  }
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
  if (event.key in data.keys) rate(String(data.keys[event.key]));
  else if (event.key === "x") rate("x");
  else if (event.key === "ArrowLeft") move(-1);
  else if (event.key === "ArrowRight") move(1);
  else if (event.key === "w") at("why").focus();
  else if (event.key === "s") save();
  else return;
  event.preventDefault();
});
given = recall();
place = Math.max(0, data.items.findIndex((_, index) => !(index + 1 in given.answers)));
show();
