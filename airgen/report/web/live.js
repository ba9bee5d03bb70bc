"use strict";
/* The live page of `airgen report --live`: what each job does now. It asks for live.json again and again. */

const LIVE_MS = 2000;
const LIVE_STATES = {
  running: ["runs", "accent"], silent: ["not responding", "bad"], finished: ["finished", "good"], ended: ["ended", ""],
  stopped: ["stopped", "bad"], failed: ["failed", "bad"], died: ["died", "bad"], unknown: ["has not begun", ""],
};

const GOING = new Set(["running", "silent"]);

async function ask(name, value) {
  const options = value === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) };
  const response = await fetch(name, { credentials: "same-origin", ...options });
  if (!response.ok) throw new Error((await response.text()).trim().slice(0, 500));
  return bare(await response.json());
}

function duration(seconds) {
  if (!isNumber(seconds) || seconds < 0) return EMPTY;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

function figure(name, value, more) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, more && el("span", { class: "quiet small" }, ` ${more}`)));
}

function liveHead(job) {
  const sum = (name) => job.usage.reduce((total, one) => total + one[name], 0);
  const failed = job.usage.reduce((total, one) => total + Object.values(one.failures).reduce((a, b) => a + b, 0), 0);
  const budget = isNumber(job.budget_usd) ? `of ${money(job.budget_usd)}` : "";
  const share = isNumber(job.budget_usd) && job.budget_usd > 0 ? Math.min(1, job.spent_usd / job.budget_usd) : null;
  const end = GOING.has(job.state) ? job.now : job.updated;
  return el("dl", { class: "facts" },
    isNumber(job.began) && figure(GOING.has(job.state) ? "Running for" : "Ran for", duration(end - job.began)),
    isNumber(job.spent_usd) && figure("Cost", money(job.spent_usd), share === null ? budget : `${budget} (${percent(share)})`),
    figure("Calls", count(sum("calls")), sum("from_disk") ? `and ${count(sum("from_disk"))} from disk` : ""),
    figure("Tokens in", count(sum("prompt_tokens")), sum("cached_tokens") ? `${count(sum("cached_tokens"))} cached` : ""),
    figure("Tokens out", count(sum("completion_tokens"))),
    figure("Failed calls", count(failed)),
    GOING.has(job.state) && figure("In flight", count(sum("in_flight")), sum("waiting") ? `${count(sum("waiting"))} wait` : ""));
}

function liveStages(job) {
  if (!job.stages.length) return null;
  return [el("h3", {}, "Progress"), el("ul", { class: "bars" }, job.stages.map((one) => el("li", {},
    el("span", { class: "name" }, one.name),
    isNumber(one.total) ? el("progress", { max: Math.max(one.total, 1), value: Math.min(one.done, one.total), "aria-label": one.name }) : el("span", { class: "nobar" }),
    el("span", { class: "number" }, isNumber(one.total) ? `${count(one.done)} of ${count(one.total)}` : count(one.done)),
    foreign([GOING.has(job.state) && isNumber(one.left_s) && `about ${duration(one.left_s)} left`, one.note].filter(Boolean).join(" · "), "span", { class: "quiet small" }))))];
}

function liveTables(job) {
  return [
    Object.entries(job.tables).map(([name, value]) => value && [el("h3", {}, name), drawnTable(value)]),
    job.recent.length > 0 && [el("h3", {}, "Last queries"), el("ul", { class: "recent" }, job.recent.slice(-12).reverse().map((one) =>
      el("li", {}, foreign(one.text), " ", one.problem ? foreign(one.problem, "span", { class: "quiet small" }) : el("span", { class: "tag good" }, "accepted"))))],
  ];
}

function liveJob(job) {
  const [words, kind] = LIVE_STATES[job.state] || [job.state, ""];
  return [
    el("h2", {}, foreign(job.name), " ", el("span", { class: `tag ${kind}` }, words)),
    job.why && notice(job.why, job.state === "ended" || job.state === "unknown" ? "info" : "warn"),
    job.usage && [liveHead(job), liveStages(job), liveTables(job)],
  ];
}

airgenPage("live", {
  route: /^\/live$/, title: "Live", tab: "Live", order: 90, link: () => "#/live", has: (dataset, data) => data.live,
  async draw(main, params, data) {
    const said = el("p", { class: "quiet", role: "status", "aria-live": "polite" });
    const renew = el("button", { type: "button" }, "Update the other pages");
    const jobs = el("div", {});
    let shown = "";
    let number = null;
    put(main, el("h1", {}, "Live"), said, el("p", {}, renew), jobs);

    renew.addEventListener("click", async () => {
      renew.disabled = true;
      try { await ask("rebuild", {}); } catch (error) { said.textContent = error.message; }
      step();
    });

    const say = (text) => { if (said.textContent !== text) said.textContent = text; };

    function show(value) {
      number = number === null ? value.report : number;
      const every = Object.values(value.jobs);
      renew.disabled = value.building;
      if (value.report !== number) {
        const reload = el("button", { type: "button", class: "primary", on: { click: () => location.reload() } }, "Reload");
        renew.replaceWith(reload);
        number = value.report;
      }
      say(value.problem || (value.building ? "The other pages are being updated." : every.length
        ? `Jobs running: ${every.filter((one) => GOING.has(one.state)).length} of ${every.length}.` : "There is no job to follow."));
      const text = JSON.stringify(value.jobs, (key, one) => (key === "now" || key === "updated" ? undefined : one));
      if (text === shown && !every.some((one) => GOING.has(one.state))) return;
      shown = text;
      jobs.replaceChildren();
      put(jobs, every.map(liveJob));
    }

    async function step() {
      try { show(await ask("live.json")); }
      catch (error) { say(error instanceof TypeError ? "airgen report --live has stopped, so this page is no longer updated." : error.message); return false; }
      return true;
    }

    const again = async () => {
      if (!main.isConnected) return;
      if (await step()) setTimeout(again, LIVE_MS);
    };
    await step();
    setTimeout(again, LIVE_MS);
  },
});
