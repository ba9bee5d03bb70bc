"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const kept = "airgen-audit-" + data.key;
let answers = {};
let place = 0;
const at = (id) => document.getElementById(id);
function recall() { try { return JSON.parse(localStorage.getItem(kept)) || {}; } catch { return {}; } }
function keep() { try { localStorage.setItem(kept, JSON.stringify(answers)); } catch { /* a file without storage */ } }
function show() {
  const item = data.items[place];
  at("query").textContent = item.query;
  at("title").textContent = item.title;
  at("text").textContent = item.text;
  const done = Object.keys(answers).length;
  const stop = data.batch && done && done % data.batch === 0 ? ". You can save here and ask airgen what they say." : "";
  at("progress").textContent = (place + 1) + " of " + data.items.length + ", " + done + " answered" + stop;
  for (const button of document.querySelectorAll(".level")) {
    const given = answers[place + 1] === null ? "x" : String(answers[place + 1]);
    button.setAttribute("aria-pressed", String(given === button.dataset.level));
  }
}
function move(step) { place = Math.min(Math.max(place + step, 0), data.items.length - 1); show(); scrollTo(0, 0); }
function rate(level) {
  answers[place + 1] = level === "x" ? null : Number(level);
  keep();
  if (place + 1 < data.items.length) move(1); else show();
}
function saved() { return JSON.stringify({ key: data.key, dataset: data.dataset, answers: answers }, null, 1) + "\n"; }
function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([saved()], { type: "application/json" }));
  link.download = "audit-answers.json";
  link.click();
  URL.revokeObjectURL(link.href);
}
function take(text) {
  const value = JSON.parse(text);
  if (value.key !== data.key) throw new Error("these are answers to another sample");
  answers = value.answers;
  keep();
  show();
}
for (const button of document.querySelectorAll(".level")) button.onclick = () => rate(button.dataset.level);
at("back").onclick = () => move(-1);
at("next").onclick = () => move(1);
at("save").onclick = save;
at("open").onchange = async (event) => {
  try {
    take(await event.target.files[0].text());
  } catch (error) {
    at("progress").textContent = "Not opened: " + error.message;
  }
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (["0", "1", "2", "3", "x"].includes(event.key)) rate(event.key);
  else if (event.key === "ArrowLeft") move(-1);
  else if (event.key === "ArrowRight") move(1);
  else if (event.key === "s") save();
  else return;
  event.preventDefault();
});
answers = recall();
place = Math.max(0, data.items.findIndex((_, index) => !(index + 1 in answers)));
show();
