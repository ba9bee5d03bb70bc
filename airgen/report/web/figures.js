"use strict";
/* Small pictures that several pages share: bars, intervals, charts that were drawn before, choices between views. */

const figures = {
  /* A figure's image for the colours and the width of the page; nothing where it was not drawn. */
  drawing(drawings, words) {
    if (!drawings || !drawings["light-wide"]) return null;
    const image = el("img", { alt: words, class: "chart", decoding: "async" });
    const narrow = matchMedia("(max-width: 640px)");
    const show = () => {
      const printed = matchMedia("print").matches;
      const name = `${isDark() && !printed ? "dark" : "light"}-${narrow.matches ? "narrow" : "wide"}`;
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawings[name])}`;
    };
    const events = [[document, "theme"], [narrow, "change"], [matchMedia("(prefers-color-scheme: dark)"), "change"],
      [matchMedia("print"), "change"]];
    const changed = () => {
      if (image.isConnected) show();
      else events.forEach(([what, name]) => what.removeEventListener(name, changed));
    };
    events.forEach(([what, name]) => what.addEventListener(name, changed));
    show();
    const white = '<rect width="100%" height="100%" fill="#ffffff"/>';
    return el("figure", { class: "drawn" }, image, figures.takes(words, () => drawings["light-wide"].replace(/<svg[^>]*>/, (tag) => tag + white)));
  },

  /* Buttons that take a figure along. svg(): its text, in colours for white paper. */
  takes(words, svg) {
    const take = (kind, save) => el("button", { type: "button", class: "take", "aria-label": `${words} as ${kind}`, on: { click: save } }, kind);
    return el("p", { class: "takes" }, take("SVG", () => saveText(`${words}.svg`, "image/svg+xml", svg())), " ",
      take("PNG", () => figures.png(words, svg())));
  },

  /* A drawing as pixels, twice as many as it is wide. */
  async png(words, text) {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = el("canvas", { width: image.naturalWidth * 2, height: image.naturalHeight * 2 });
    const paper = canvas.getContext("2d");
    paper.fillStyle = "#ffffff";
    paper.fillRect(0, 0, canvas.width, canvas.height);
    paper.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveBlob(`${words}.png`, blob), "image/png");
  },

  /* An SVG element of the page as a file: with its size, its own name space and a white ground. */
  standalone(svg) {
    const copy = svg.cloneNode(true);
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.removeAttribute("class");
    copy.prepend(el("rect", { width, height, fill: "#ffffff" }));
    return new XMLSerializer().serializeToString(copy);
  },

  /* A list of bars as a drawing: [{name, share, whole, mark, text}]. The page shows the same as elements that flow. */
  barsDrawing(words, rows) {
    const [left, middle, line] = [190, 330, 24];
    const [width, height] = [760, rows.length * line + 40];
    const at = (share) => Math.max(0, Math.min(1, share)) * middle;
    const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
    const font = { "font-family": "Liberation Sans, Arial, sans-serif", "font-size": 13, fill: "#1b1f24" };
    return figures.standalone(el("svg", { viewBox: `0 0 ${width} ${height}` },
      el("text", { x: 8, y: 22, ...font, "font-weight": "bold" }, words),
      rows.map((row, place) => {
        const y = 36 + place * line;
        return [el("text", { x: left - 10, y: y + 12, ...font, "text-anchor": "end" }, short(String(row.name), 28)),
          isNumber(row.whole) ? el("rect", { x: left, y, width: at(row.whole), height: 16, fill: "#b9d6ea" }) : null,
          el("rect", { x: left, y, width: at(row.share), height: 16, fill: "#0072b2" }),
          isNumber(row.mark) ? el("rect", { x: left + at(row.mark) - 1, y: y - 2, width: 2, height: 20, fill: "#1b1f24" }) : null,
          el("text", { x: left + middle + 10, y: y + 12, ...font }, short(String(row.text), 34))];
      })));
  },

  /* A dot with its interval on an axis from `low` to `high`; all rows of a table share the axis. */
  interval(value, ends, low, high) {
    const width = 132;
    const at = (one) => (6 + ((one - low) / (high - low || 1)) * (width - 12)).toFixed(1);
    return el("svg", { class: "interval", viewBox: `0 0 ${width} 14`, width, height: 14, "aria-hidden": "true" },
      el("line", { class: "axis", x1: 0, x2: width, y1: 7, y2: 7 }),
      ends && el("line", { class: "span", x1: at(ends[0]), x2: at(ends[1]), y1: 7, y2: 7 }),
      el("circle", { class: "dot", cx: at(value), cy: 7, r: 3.5 }));
  },

  /* The interval of a rank as a bar on places 1 to `count`. */
  ranks(ends, count) {
    if (!ends) return null;
    const width = 72;
    const step = width / count;
    return el("svg", { class: "ranks", viewBox: `0 0 ${width} 14`, width, height: 14, "aria-hidden": "true" },
      el("line", { class: "axis", x1: 0, x2: width, y1: 7, y2: 7 }),
      el("rect", { class: "span", x: ((ends[0] - 1) * step).toFixed(1), y: 4, height: 6, rx: 2,
        width: Math.max(3, (ends[1] - ends[0] + 1) * step).toFixed(1) }));
  },

  /* A bar of `share` (0 to 1), with a lighter one of `whole` behind it, and a mark. */
  bar(share, whole = null, mark = null) {
    const percents = (value) => `${Math.max(0, Math.min(1, value)) * 100}%`;
    return el("span", { class: "bar-box", "aria-hidden": "true" },
      whole !== null && el("span", { class: "whole", style: { width: percents(whole) } }),
      el("span", { class: "part", style: { width: percents(share) } }),
      mark !== null && el("span", { class: "asked", style: { left: percents(mark) } }));
  },

  /* A square for each sign of a text: a relevant passage, one that is not, one without a label. */
  strip(text, titles) {
    const kinds = { "●": "good", "×": "bad" };
    const signs = [...text];
    const relevant = signs.map((sign, place) => (sign === "●" ? `${place + 1} relevant` : "")).filter(Boolean);
    return el("span", { class: "strip", role: "img", "aria-label": relevant.join(", ") || "no relevant passage in the top ten" },
      signs.map((sign, place) => el("span", { class: kinds[sign] || "", title: titles[place] }, sign)));
  },

  /* Words on a colour, with what follows them. */
  tag([words, kind, more], remark) {
    return el("span", { title: remark }, el("span", { class: `tag ${kind}` }, words), more && [" ", el("span", { class: "quiet small wide" }, more)]);
  },

  /* How two systems stand to each other: -1 to 1, 0 if they do not differ. No stop for the keyboard: there may be hundreds,
     and the two lists above lead to the same pages. */
  pair(sign, strength, href, remark) {
    return figures.strong(el("a", { href, title: remark, "aria-label": remark, tabindex: -1, class: `pair ${sign ? (strength < 0 ? "worse" : "better") : "open"}` }, sign),
      0.25 + 0.75 * Math.abs(strength));
  },

  /* Parts that stand beside each other: [{share, kind}]. */
  stack(parts) {
    return el("span", { class: "stack", "aria-hidden": "true" },
      parts.map((one) => el("span", { class: one.kind, style: { width: `${one.share * 100}%` } })));
  },

  /* How strong the colour of an element is, 0 to 1. */
  strong(element, value) {
    element.style.setProperty("--strength", value.toFixed(2));
    return element;
  },

  /* Buttons of which one is chosen; `show(name)` is called at once and at each choice. */
  choice(label, names, chosen, show) {
    const box = el("div", { class: "choice", role: "group", "aria-label": label });
    const pick = (name) => {
      box.replaceChildren(...names.map(([key, words]) => el("button", {
        type: "button", "aria-pressed": String(key === name), on: { click: () => {
          pick(key);
          const button = [...box.children].find((one) => one.getAttribute("aria-pressed") === "true");
          if (button) button.focus();
        } },
      }, words)));
      show(name);
    };
    pick(names.some(([key]) => key === chosen) ? chosen : names[0][0]);
    return box;
  },

  /* A row of figures with their names. */
  facts(pairs) {
    return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, more && el("small", {}, " ", more)))));
  },

  section(id, title, ...children) {
    const inside = children.flat().filter(Boolean);
    return inside.length ? el("section", { "aria-labelledby": `h-${id}` }, el("h2", { id: `h-${id}` }, title), inside) : null;
  },

  signed(value, digits = 4) {
    return isNumber(value) ? `${value > 0 ? "+" : value < 0 ? "−" : "±"}${Math.abs(value).toFixed(digits)}` : EMPTY;
  },

  span(ends) {
    return !ends ? EMPTY : ends[0] === ends[1] ? String(ends[0]) : `${ends[0]}–${ends[1]}`;
  },

  pValue(value) {
    return !isNumber(value) ? EMPTY : value < 0.0001 ? "< .0001" : value.toFixed(4);
  },
};
