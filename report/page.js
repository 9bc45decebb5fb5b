"use strict";
// The page's own script. Whatever a policy, a data set or a name holds is only ever set as text.
// The state of the page is its address: #/, #/tasks?..., #/task/ID, #/task/ID/ARM/ROUND/PARTICLE and
// then /vs/ARM/ROUND/PARTICLE for a difference.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const wellFormed = (text) => String(text).toWellFormed(); // half a surrogate pair has no place in an address
const rowOf = new Map(data.rows.map((row) => [wellFormed(row.id), row]));
const PAGE = 300; // rows of the matrix that are drawn at once

// --- making elements ---------------------------------------------------------------------------

// Characters that change the order of others, or cannot be seen, are shown by their number.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;
const safe = (text) =>
  String(text).replace(HIDDEN, (c) => "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = safe(value);
    else if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
const cell = (text, properties = {}) => make("td", { text, ...properties });
const head = (text, scope = "col") => make("th", { text, scope });
const percent = (share) => Math.round(100 * share) + "%";
const link = (hash, text, properties = {}) => make("a", { href: hash, text, ...properties });
const part = (text) => encodeURIComponent(wellFormed(text));
const addressOf = (task, attempt, other) =>
  "#/task/" + part(task) + (attempt ? "/" + attempt.map(part).join("/") : "") + (other ? "/vs/" + other.map(part).join("/") : "");

// --- texts, unpacked when they are looked at -----------------------------------------------------

const unpacked = new Map();
async function textsOf(task) {
  const place = data.places[task];
  if (place === undefined) return null;
  if (!unpacked.has(task)) {
    const packed = atob(byId("chunk-" + place).textContent);
    const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const texts = await new Response(stream).json();
    texts.at = new Map(texts.attempts.map((a) => [keyOf(a).join("/"), a]));
    unpacked.set(task, texts);
    if (unpacked.size > 50) unpacked.delete(unpacked.keys().next().value);
  }
  return unpacked.get(task);
}
const keyOf = (attempt) => [attempt.arm, String(attempt.round), String(attempt.particle)];
const nameOf = (attempt) => attempt.arm + ", round " + attempt.round + ", particle " + attempt.particle;

// --- the matrix ----------------------------------------------------------------------------------

const controls = ["search", "rating", "band", "won", "lost", "verdict", "sort"];
const fallback = { band: "searched", sort: "id" };
let inPrograms = null; // ids of tasks whose programs hold the words searched for
let drawn = PAGE;

function fillControls() {
  const options = {
    rating: [...new Set(data.rows.map((row) => row.band))],
    won: data.arms, lost: data.arms,
    verdict: [...new Set(data.rows.flatMap((row) => row.verdicts))].sort(),
  };
  for (const [id, names] of Object.entries(options)) byId(id).append(...names.map((name) => make("option", { value: name, text: name })));
  for (const id of controls) byId(id).addEventListener("input", () => { drawn = PAGE; rememberFilters(); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", () => { drawn += PAGE; showMatrix(); });
}

function rememberFilters() {
  const query = new URLSearchParams();
  for (const id of controls) if (byId(id).value !== (fallback[id] || "")) query.set(id, byId(id).value);
  const hash = "#/tasks" + (String(query) ? "?" + query : "");
  if (hash !== location.hash) history.replaceState(null, "", hash);
  inPrograms = null;
  showMatrix();
  if (byId("search").value) searchPrograms(byId("search").value.toLowerCase());
}

const rescued = (row, arm) => (row.arms[arm] && row.arms[arm][2] ? row.arms[arm][0] !== null : null);
function matches(row, f) {
  if (f.rating && row.band !== f.rating) return false;
  if (f.band === "searched" && !row.searched) return false;
  if (f.band === "near" && !(row.passes === 0 && row.best > 0)) return false;
  if (f.band === "above" && !(row.passes === 0 && row.best > row.floor)) return false;
  if (f.band === "sound" && row.sound !== true) return false;
  if (f.won && rescued(row, f.won) !== true) return false;
  if (f.lost && rescued(row, f.lost) !== false) return false;
  if (f.verdict && !row.verdicts.includes(f.verdict)) return false;
  if (!f.search) return true;
  return (row.id + " " + row.title).toLowerCase().includes(f.search) || (inPrograms !== null && inPrograms.has(row.id));
}
const orders = {
  id: (a, b) => (a.id < b.id ? -1 : 1),
  rating: (a, b) => b.rating - a.rating,
  best: (a, b) => b.best - a.best,
  rescues: (a, b) => rescues(b) - rescues(a),
};
const rescues = (row) => data.arms.filter((arm) => rescued(row, arm)).length;

function found() {
  const f = Object.fromEntries(controls.map((id) => [id, byId(id).value]));
  f.search = f.search.toLowerCase();
  return data.rows.filter((row) => matches(row, f)).sort((a, b) => orders[f.sort](a, b) || orders.id(a, b));
}

function showMatrix() {
  const rows = found();
  byId("count").textContent = rows.length.toLocaleString("en") + " of " + data.rows.length.toLocaleString("en") + " tasks" +
    (data.left_out ? "; the texts of " + data.left_out.toLocaleString("en") + " are left out of this file (--page-mb)" : "");
  const header = make("tr", {}, ...["task", "rating", "base", "best", ...data.arms].map((name) => head(name)));
  byId("matrix").replaceChildren(
    make("caption", { class: "skip", text: "Tasks by arms" }),
    make("thead", {}, header),
    make("tbody", {}, ...rows.slice(0, drawn).map(matrixRow)),
  );
  byId("more").hidden = rows.length <= drawn;
}

function matrixRow(row) {
  const name = make("th", { scope: "row" }, link(addressOf(row.id), row.title || row.id, { title: safe(row.id) }));
  return make("tr", {}, name, cell(row.rating || "-"), cell(row.passes + "/" + row.of), cell(percent(row.best)),
    ...data.arms.map((arm) => matrixCell(row, arm)));
}

function matrixCell(row, arm) {
  const state = row.arms[arm];
  if (!state) return cell("", { class: "cell" });
  const [round, best, whole] = state;
  if (round !== null) return cell("round " + round, { class: "cell r", title: arm + ": rescued in round " + round });
  const shade = best === 0 ? 0 : best < 0.5 ? 1 : best < 1 ? 2 : 3;
  return cell(percent(best) + (whole ? "" : "\u2026"), { class: "cell s" + shade, title: arm + ": not rescued, best fitness " + percent(best) });
}

async function searchPrograms(words) {
  const hits = new Set();
  let looked = 0;
  for (const task of Object.keys(data.places)) {
    const texts = await textsOf(task);
    if (byId("search").value.toLowerCase() !== words) return; // another search has begun
    if (texts.attempts.some((a) => a.program && a.program.toLowerCase().includes(words))) hits.add(task);
    looked += 1;
    if (looked % 50 === 0) byId("count").textContent = "searching programs: " + looked + " of " + Object.keys(data.places).length;
  }
  inPrograms = hits;
  showMatrix();
}

// --- a task --------------------------------------------------------------------------------------

let shown = { task: null, attempt: null };

async function showTask(id, attempt, other) {
  const row = rowOf.get(id), article = byId("task");
  if (!row) return article.replaceChildren(make("p", { class: "warning", text: "There is no task " + id + " in this run." }));
  const texts = await textsOf(row.id);
  if (route().task !== id) return; // gone on meanwhile
  const again = shown.task === id && article.childElementCount > 0;
  shown = { task: id, attempt };
  if (!again) article.replaceChildren(...taskParts(row, texts));
  if (!texts) return;
  for (const button of article.querySelectorAll(".attempt")) {
    const here = attempt !== null && button.dataset.key === attempt.join("/");
    if (here) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current");
  }
  drawLines(texts, attempt);
  const found = attempt && texts.at.get(attempt.join("/"));
  byId("attempt").replaceChildren(...(found ? attemptParts(row.id, texts, found, other && texts.at.get(other.join("/"))) : []));
  if (found && !matchMedia("(min-width: 62rem)").matches) byId("attempt").scrollIntoView(); // else it is beside the attempts
  else if (found && !again) article.querySelector("[aria-current]").scrollIntoView({ block: "center" });
}

function taskParts(row, texts) {
  const order = found(), place = order.findIndex((item) => item.id === row.id);
  const step = (by, words) => (order[place + by] && place >= 0 ? link(addressOf(order[place + by].id), words, { id: by < 0 ? "before" : "after" }) : null);
  const facts = [row.id, "rating " + (row.rating || "unknown"), "passes " + row.passes + " of " + row.of, "best fitness " + percent(row.best),
    "floor " + percent(row.floor), row.sound === null ? null : row.sound ? "sound: a known solution passes" : "not sound: no known solution passes"];
  const parts = [
    make("p", {}, link("#/tasks", "All tasks"), " ", step(-1, "before"), " ", step(1, "next")),
    make("h2", { text: row.title || row.id }),
    make("ul", { class: "facts" }, ...facts.filter(Boolean).map((text) => make("li", { text }))),
  ];
  if (!texts) return [...parts, make("p", { class: "warning", text: "The texts of this task are left out, so that this file stays small: a larger --page-mb has them." })];
  const statement = texts.statement || texts.fresh.map((m) => m.content).join("\n\n");
  parts.push(make("details", { open: !row.searched }, make("summary", { text: "Statement" }), make("pre", { class: "prose", text: statement, tabindex: 0 })));
  parts.push(texts.cases ? casesOf(texts.cases) : make("p", { text: "The task could not be read again: its visible cases are not known here." }));
  parts.push(make("h3", { text: "Attempts" }), make("p", { text: "Rounds are columns, particles are rows; a line leads from an attempt to those that were shown it. A cell has the visible cases passed after WA, RE, TL, ML or OL: wrong answer, runtime error, time, memory or output limit." }));
  const arms = [...new Set(texts.attempts.map((a) => a.arm))];
  parts.push(make("div", { class: "beside" }, make("div", { class: "lineages" }, ...arms.map((arm) => lineage(row.id, arm, texts))),
    make("section", { id: "attempt", tabindex: -1, "aria-label": "The chosen attempt" })));
  return parts;
}

function casesOf(cases) {
  const body = cases.map(([given, expected], i) => make("tr", {}, head("case " + (i + 1), "row"),
    make("td", {}, make("pre", { text: given, tabindex: 0 })), make("td", {}, make("pre", { text: expected, tabindex: 0 }))));
  const table = make("table", {}, make("thead", {}, make("tr", {}, head("visible"), head("input"), head("expected"))), make("tbody", {}, ...body));
  return make("details", {}, make("summary", { text: cases.length + " visible cases" }), make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Visible cases" }, table));
}

function lineage(task, arm, texts) {
  const attempts = texts.attempts.filter((a) => a.arm === arm);
  const rounds = 1 + Math.max(...attempts.map((a) => a.round)), particles = 1 + Math.max(...attempts.map((a) => a.particle));
  const header = make("tr", {}, head(arm), ...Array.from({ length: rounds }, (_, i) => head("round " + i)));
  const body = Array.from({ length: particles }, (_, p) => make("tr", {}, make("th", { scope: "row", text: p, "aria-label": "particle " + p }),
    ...Array.from({ length: rounds }, (_, r) => {
      const attempt = texts.at.get([arm, r, p].join("/"));
      return make("td", {}, attempt ? attemptLink(task, attempt) : null);
    })));
  const box = make("div", { class: "lineage", tabindex: 0, role: "region", "aria-label": "Attempts of " + arm });
  box.dataset.arm = arm;
  box.append(document.createElementNS("http://www.w3.org/2000/svg", "svg"), make("table", {}, make("thead", {}, header), make("tbody", {}, ...body)));
  box.firstChild.setAttribute("aria-hidden", "true");
  return box;
}

const SHORT = { "wrong answer": "WA", "runtime error": "RE", "time limit": "TL", "memory limit": "ML", "output limit": "OL", "no program": "none" };
function attemptLink(task, attempt) {
  const fitness = attempt.passed ? attempt.passed.join("/") : "";
  const words = [SHORT[attempt.verdict] || attempt.verdict || "waits", attempt.verdict in SHORT && attempt.program ? fitness : ""].join(" ").trim();
  const kind = !attempt.program ? " none" : attempt.verdict === "accepted" ? " ok" : "";
  const button = make("button", { type: "button", class: "attempt" + kind, text: words, title: attempt.verdict,
    "aria-label": words + ", " + nameOf(attempt) + ": " + attempt.verdict,
    onclick: () => { location.hash = addressOf(task, keyOf(attempt)); } });
  button.dataset.key = keyOf(attempt).join("/");
  return button;
}

function drawLines(texts, chosen) {
  for (const box of byId("task").querySelectorAll(".lineage")) {
    const svg = box.querySelector("svg"), origin = box.getBoundingClientRect();
    svg.replaceChildren();
    svg.style.width = box.scrollWidth + "px";
    const place = (key) => {
      const button = box.querySelector('[data-key="' + CSS.escape(key).replace(/\\\//g, "/") + '"]');
      return button && button.getBoundingClientRect();
    };
    for (const attempt of texts.attempts.filter((a) => a.arm === box.dataset.arm)) {
      for (const saw of attempt.saw) {
        const from = place(saw.join("/")), to = place(keyOf(attempt).join("/"));
        if (!from || !to) continue;
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        const x0 = from.right - origin.left + box.scrollLeft, x1 = to.left - origin.left + box.scrollLeft;
        const y0 = from.top + from.height / 2 - origin.top, y1 = to.top + to.height / 2 - origin.top;
        path.setAttribute("d", "M" + x0 + " " + y0 + " C" + (x0 + x1) / 2 + " " + y0 + " " + (x0 + x1) / 2 + " " + y1 + " " + x1 + " " + y1);
        const key = chosen && chosen.join("/");
        if (key === keyOf(attempt).join("/") || key === saw.join("/")) path.setAttribute("class", "on");
        svg.append(path);
      }
    }
  }
}

// --- an attempt ----------------------------------------------------------------------------------

function attemptParts(task, texts, attempt, other) {
  const [prompt, completion] = attempt.tokens;
  const facts = ["verdict " + (attempt.verdict || "not judged"), attempt.passed && attempt.passed.join(" of ") + " visible cases",
    attempt.hidden && attempt.hidden.join(" of ") + " hidden cases", "finish reason " + attempt.finish,
    attempt.outcome, "tokens " + (prompt ?? "?") + " + " + (completion ?? "?"), "seed " + attempt.seed];
  const parts = [make("h3", { text: nameOf(attempt) }),
    make("ul", { class: "facts" }, ...facts.filter(Boolean).map((text) => make("li", { text })))];
  if (attempt.saw.length) {
    const links = attempt.saw.flatMap((key) => [" ", link(addressOf(task, key.map(String)), key[0] + " " + key[1] + "." + key[2]),
      " (", link(addressOf(task, keyOf(attempt), key.map(String)), "difference"), ")"]);
    parts.push(make("p", {}, attempt.asked ? "It was shown:" : "By the rule of its arm, which could not be checked against what was sent, it was shown:", ...links));
  }
  parts.push(failureOf(attempt.failure));
  if (other) parts.push(make("h3", { text: "Difference to " + nameOf(other) }), difference(other.program || "", attempt.program || ""));
  parts.push(make("h3", { text: attempt.program ? "Program" : "Reply, without a program" }));
  parts.push(attempt.program ? highlighted(attempt.program) : make("pre", { class: "prose", text: attempt.reply || "(empty)", tabindex: 0 }));
  parts.push(askedFor(texts, attempt));
  return parts.filter(Boolean);
}

function failureOf(failure) {
  if (!failure) return null;
  if (failure.hidden) return make("p", { text: "The first failure is on a hidden case (" + failure.verdict + "), which is not shown." });
  const box = (title, text) => make("div", {}, make("strong", { text: title }), make("pre", { text, tabindex: 0 }));
  return make("div", {}, make("p", { text: "First failure: " + failure.verdict + " on visible case " + (failure.case + 1) }),
    make("div", { class: "two" }, box("input", failure.input), box("expected", failure.expected), box(failure.verdict === "wrong answer" ? "printed" : "said", failure.got)));
}

function askedFor(texts, attempt) {
  const asked = attempt.asked, details = make("details", {}, make("summary", { text: "The messages that were sent" }));
  if (asked === null) details.append(make("p", { text: "Not known: the prompt can't be made again from what is saved." }));
  else for (const message of texts.fresh) {
    const text = message.role === "user" && asked !== undefined ? asked : message.content;
    details.append(make("h4", { text: message.role }), make("pre", { class: "prose", text, tabindex: 0 }));
  }
  return details;
}

const TOKEN = /(#[^\n]*)|("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|\b(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b|\b(\d[\w.]*)/g;
function highlighted(program) {
  const code = make("code", {});
  let end = 0;
  for (const match of program.matchAll(TOKEN)) {
    code.append(safe(program.slice(end, match.index)));
    const kind = ["co", "st", "kw", "nu"][match.slice(1).findIndex((group) => group !== undefined)];
    code.append(make("span", { class: kind, text: match[0] }));
    end = match.index + match[0].length;
  }
  code.append(safe(program.slice(end)));
  return make("pre", { tabindex: 0 }, code);
}

// The longest common subsequence of lines; above a size only what the ends share is kept.
function difference(before, after) {
  const a = before.split("\n"), b = after.split("\n"), pre = make("pre", { class: "diff", tabindex: 0 });
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const left = a.slice(start, a.length - end), right = b.slice(start, b.length - end);
  const put = (tag, sign, line) => pre.append(tag ? make(tag, { text: sign + " " + line }) : safe("  " + line + "\n"));
  a.slice(0, start).forEach((line) => put(null, "", line));
  for (const [tag, line] of aligned(left, right)) put(tag, tag === "ins" ? "+" : tag === "del" ? "-" : " ", line);
  a.slice(a.length - end).forEach((line) => put(null, "", line));
  return pre;
}

function aligned(left, right) {
  if (left.length * right.length > 4e6) return [...left.map((line) => ["del", line]), ...right.map((line) => ["ins", line])];
  const most = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--) for (let j = right.length - 1; j >= 0; j--)
    most[i][j] = left[i] === right[j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  const out = [];
  let i = 0, j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) { out.push([null, left[i]]); i += 1; j += 1; }
    else if (j >= right.length || (i < left.length && most[i + 1][j] >= most[i][j + 1])) { out.push(["del", left[i]]); i += 1; }
    else { out.push(["ins", right[j]]); j += 1; }
  }
  return out;
}

// --- addresses and keys --------------------------------------------------------------------------

function route() {
  const [path, query] = location.hash.slice(1).split("?");
  const parts = path.split("/").slice(1).map((piece) => { try { return decodeURIComponent(piece); } catch { return piece; } });
  const attempt = parts.length >= 5 ? parts.slice(2, 5) : null;
  return { view: parts[0] || "", task: parts[0] === "task" ? parts[1] : null, attempt, other: parts[5] === "vs" ? parts.slice(6, 9) : null, query };
}

function show() {
  const here = route();
  byId("overview").hidden = here.view !== "";
  byId("tasks").hidden = here.view !== "tasks";
  byId("task").hidden = here.view !== "task";
  if (here.view === "tasks") {
    const query = new URLSearchParams(here.query || "");
    for (const id of controls) byId(id).value = query.get(id) ?? fallback[id] ?? "";
    showMatrix();
    if (byId("search").value && inPrograms === null) searchPrograms(byId("search").value.toLowerCase());
  } else if (here.view === "task") showTask(here.task, here.attempt, here.other);
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName), here = route();
  if (event.key === "Escape" && here.view === "task") location.hash = "#/tasks";
  if (typing) return;
  if (event.key === "/") { event.preventDefault(); location.hash = "#/tasks"; setTimeout(() => byId("search").focus()); }
  else if (event.key === "?") byId("keys").showModal();
  else if (here.view === "task" && (event.key === "[" || event.key === "]")) {
    const next = byId(event.key === "[" ? "before" : "after");
    if (next) location.hash = next.getAttribute("href");
  } else if (here.view === "task" && ARROWS[event.key] && !document.activeElement.matches("pre")) {
    const first = byId("task").querySelector(".attempt");
    if (!first) return;
    event.preventDefault();
    const [arm, round, particle] = here.attempt || first.dataset.key.split("/");
    const [dx, dy] = here.attempt ? ARROWS[event.key] : [0, 0];
    const key = [arm, Number(round) + dx, Number(particle) + dy].map(String);
    const row = rowOf.get(here.task), texts = row && unpacked.get(row.id);
    if (texts && texts.at.has(key.join("/"))) location.hash = addressOf(here.task, key);
  }
}

fillControls();
window.addEventListener("hashchange", show);
window.addEventListener("resize", () => { const here = route(); if (here.view === "task") showTask(here.task, here.attempt, here.other); });
document.addEventListener("keydown", onKey);
byId("help").addEventListener("click", () => byId("keys").showModal());
if (!data.finished) setTimeout(() => location.reload(), 1000 * data.reload);
show();
