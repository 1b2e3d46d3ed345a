// @ts-check
// The page: asks the server it came from, shows its sentences, and of a chosen one words and alternatives.

import { element } from "./dom.js";
import { changes } from "./pieces.js";
import { languageName, offerLanguages, t, translatePage } from "./texts.js";

/** @typedef {{source: string, text: string, alternatives: {text: string}[], alignment: number[][] | null}} Sentence */

const byId = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const [form, source, output, status, details] = ["form", "source", "output", "status", "details"].map(byId);
const [start, stop, copy, from, to] = ["translate", "stop", "copy", "from", "to"].map(byId);
const [file, key, swap, terms] = ["file", "key", "swap", "terms"].map(byId);
const [job, bar, cancel] = ["job", "job-bar", "job-cancel"].map(byId);
/** @type {{languages: {code: string, name: string, targets: string[]}[], needsKey: boolean, hasJobs: boolean, formats: string[]}} */
const { languages, needsKey, hasJobs, formats } = JSON.parse(byId("data").textContent);
const OTHERS = 4; // translations of each sentence that are asked for

/** @type {AbortController | null} */
let asking = null;

/** @param {string} code */
const nameOf = (code) => code === "auto" ? t("detect") : languageName(code, languages.find((one) => one.code === code)?.name ?? code);
const option = (/** @type {string} */ code) => element("option", { value: code }, nameOf(code));

/** What can be written of a text in the chosen language, the chosen one if it is among that. */
function offerTargets() {
  const reads = languages.filter(({ code, targets }) => targets.length && [code, "auto"].includes(from.value));
  const codes = [...new Set(reads.flatMap(({ targets }) => targets))];
  const before = to.value;
  to.replaceChildren(...codes.map(option));
  if (codes.includes(before)) to.value = before;
  swap.disabled = !languages.find(({ code }) => code === to.value)?.targets.includes(from.value);
}

let said = () => {}; // writes the message of the status line, also anew when the language changes

/** @param {string} key of a text, or a text of the server @param {Record<string, string | number>} [values] @param {boolean} [wrong] */
function say(key, values = {}, wrong = false) {
  status.classList.toggle("error", wrong);
  said = () => status.replaceChildren(t(key, values));
  said();
}

/** @param {boolean} now */
function busy(now) {
  output.setAttribute("aria-busy", String(now));
  start.disabled = now;
  stop.disabled = !now;
}

/** An error in the words of the server, which are English. */
class ServerError extends Error {}

// Beginnings of errors of the server, with the key of a text for each; the rest of the error is {error}.
const BEGINNINGS = /** @type {Record<string, string>} */ ({
  "Invalid API key": "invalid-key",
  "Invalid request: file format not supported; known: ": "format-unsupported",
  "Invalid request: ": "invalid-request",
  "": "server-reports",
});

/** Show an error. @param {Error} error */
function sayError(error) {
  const { message } = error;
  if (!(error instanceof ServerError)) return say(message === "Failed to fetch" ? "no-answer" : message, {}, true);
  const beginning = Object.keys(BEGINNINGS).find((start) => message.startsWith(start)) ?? "";
  say(BEGINNINGS[beginning], { error: message.slice(beginning.length) }, true);
}

/**
 * What the server answers.
 * @param {string} address
 * @param {RequestInit} request
 */
async function ask(address, request) {
  const answer = await fetch(address, { method: "POST", ...request, signal: asking?.signal });
  const found = await answer.json();
  if (!answer.ok) throw new ServerError(found.error);
  return found;
}

/** Take away the translation before, so that it does not look like that of the text or file which follows. */
function clear() {
  details.hidden = copy.disabled = true;
  output.replaceChildren();
}

/** Do something that asks the server, one at a time. @param {() => Promise<void>} work */
async function during(work) {
  if (asking) return;
  asking = new AbortController();
  clear();
  busy(true);
  say("translating");
  try {
    await work();
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") say("stopped");
    else sayError(/** @type {Error} */ (error));
  }
  asking = null;
  busy(false);
}

/** The terms of the glossary: a line for each, such as "term = translation". @returns {string[][]} */
function glossary() {
  const lines = terms.value.split("\n").filter((/** @type {string} */ line) => line.trim());
  return lines.map((/** @type {string} */ line) => {
    const pair = line.split(/[=\t]/u).map((side) => side.trim());
    if (pair.length !== 2 || !pair.every(Boolean)) throw new Error(t("glossary-line", { line }));
    return pair;
  });
}

async function translate() {
  if (!source.value.trim()) {
    if (asking) return;
    clear();
    return say("nothing");
  }
  await during(async () => {
    const began = performance.now();
    const asked = { text: source.value, source: from.value, target: to.value, n_best: OTHERS, alignment: true, glossary: glossary(), api_key: key.value };
    const found = await ask("v1/translate", { headers: { "content-type": "application/json" }, body: JSON.stringify(asked) });
    const [{ text, sentences }] = found.translations;
    show(text, sentences);
    const seconds = (performance.now() - began) / 1000;
    if (from.value === "auto") say("detected", { language: nameOf(found.source), seconds });
    else say("seconds", { count: seconds });
    copy.disabled = false;
  });
}

/** The translation, each sentence a button. @param {string} text @param {Sentence[]} sentences */
function show(text, sentences) {
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  /** @type {(string | Node)[]} */
  const parts = [];
  let end = 0;
  sentences.forEach((sentence, index) => {
    const place = text.indexOf(sentence.text, end);
    const button = element("button", { type: "button", class: "unit", "aria-pressed": "false", onclick: () => choose(index) }, sentence.text);
    buttons.push(button);
    parts.push(text.slice(end, place), button);
    end = place + sentence.text.length;
  });
  const choose = (/** @type {number} */ index) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
    explain(sentences[index]);
  };
  output.replaceChildren(...parts, text.slice(end));
  if (sentences.length) choose(0);
}

/** @param {Sentence} sentence */
function explain({ source, text, alternatives, alignment }) {
  const others = alternatives.filter((one, i) => one.text !== text && alternatives.findIndex((other) => other.text === one.text) === i);
  const words = alignment ? linked(source, text, alignment) : [element("p", { class: "words", dir: "auto" }, source)];
  details.replaceChildren(
    element("section", {}, element("h2", {}, t("word-alignment")), ...words, element("p", { class: "note" }, hint(alignment))),
    element("section", {}, element("h2", {}, t("alternatives")), listOf(others.map((one) => one.text), text)),
  );
  details.hidden = false;
}

/** @param {number[][] | null} alignment */
function hint(alignment) {
  return t(alignment ? "point-at-word" : "no-alignment");
}

/**
 * Both sentences word by word; what belongs to a word is marked while one points at it or has it in focus.
 * @param {string} source
 * @param {string} text
 * @param {number[][]} alignment
 */
function linked(source, text, alignment) {
  const rows = [source, text].map((sentence) => (sentence.match(/\S+/gu) ?? []).map((word) => element("span", { class: "word", tabindex: "0" }, word)));
  rows.forEach((row, side) =>
    row.forEach((node, i) => {
      const partners = alignment.filter((pair) => pair[side] === i).map((pair) => rows[1 - side][pair[1 - side]]);
      const mark = (/** @type {boolean} */ on) => {
        node.classList.toggle("here", on);
        partners.forEach((partner) => partner?.classList.toggle("linked", on));
      };
      for (const event of ["mouseenter", "focus"]) node.addEventListener(event, () => mark(true));
      for (const event of ["mouseleave", "blur"]) node.addEventListener(event, () => mark(false));
    }),
  );
  return rows.map((row) => element("p", { class: "words", dir: "auto" }, ...row.flatMap((node, i) => (i ? [" ", node] : [node]))));
}

/** @param {string[]} others @param {string} best */
function listOf(others, best) {
  if (!others.length) return element("p", { class: "quiet" }, t("no-alternatives"));
  const words = (/** @type {string} */ text) =>
    changes(text, best).flatMap(({ word, changed }, i) => [i ? " " : "", changed ? element("mark", {}, word) : word]);
  return element("ol", { class: "alternatives" }, ...others.map((text) => element("li", {}, element("span", { dir: "auto" }, ...words(text)))));
}

/** @typedef {{id: string, state: string, progress: {sentences: number, translated: number, percent: number}, error: string | null}} Job */
/** @typedef {{units: Record<string, number>, warnings: Record<string, number>, not_translated: Record<string, number>}} Report */

const STATES = /** @type {Record<string, string>} */ ({ queued: "job-queued", reading: "job-reading", translating: "translating" }); // keys of texts
const PAUSE = 500; // milliseconds between questions about a job

async function translateFile() {
  const [chosen] = file.files;
  if (!chosen) return;
  await during(async () => {
    const body = new FormData();
    const terms = glossary().map((pair) => pair.join("\t")).join("\n");
    for (const [name, value] of [["file", chosen], ["source", from.value], ["target", to.value], ["glossary", terms], ["api_key", key.value]]) body.append(name, value);
    await (hasJobs ? runJob(chosen.name, body) : translateAtOnce(chosen.name, body));
  });
  file.value = "";
}

/** @param {string} name @param {FormData} body */
async function translateAtOnce(name, body) {
  const { translatedFileUrl } = await ask("translate_file", { body });
  offer(name, translatedFileUrl.slice(translatedFileUrl.indexOf("download_file/"))); // whatever a proxy calls this server
}

/** Translates a file in the background of the server. @param {string} name @param {FormData} body */
async function runJob(name, body) {
  const { id } = await ask("v1/documents", { body });
  const address = `v1/documents/${id}`;
  const headers = key.value ? { authorization: `Bearer ${key.value}` } : {};
  byId("job-name").textContent = name;
  showJob(null);
  job.hidden = false;
  cancel.focus();
  let ended = false;
  try {
    const found = await waitForJob(address, headers);
    ended = true;
    if (found.state !== "done") throw found.error ? new ServerError(found.error) : new Error("job-cancelled");
    const report = await ask(`${address}/report`, { method: "GET", headers });
    const answer = await fetch(`${address}/result`, { headers, signal: asking?.signal });
    if (!answer.ok) throw new ServerError((await answer.json()).error);
    offer(name, URL.createObjectURL(await answer.blob()), report);
  } finally {
    if (document.activeElement === cancel) byId("choose").focus();
    job.hidden = true;
    if (!ended) await fetch(address, { method: "DELETE", headers }).catch(() => {});
  }
}

/** The job when it has ended. @param {string} address @param {Record<string, string>} headers @returns {Promise<Job>} */
async function waitForJob(address, headers) {
  for (;;) {
    /** @type {Job} */
    const found = await ask(address, { method: "GET", headers });
    showJob(found);
    if (!(found.state in STATES)) return found;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

/** @param {Job | null} found */
function showJob(found) {
  const { sentences, translated, percent } = found?.progress ?? { sentences: 0, translated: 0, percent: 0 };
  const key = STATES[found?.state ?? "queued"];
  if (key && t(key) !== status.textContent) say(key); // announced once; a screen reader reads the percentage from the bar
  if (sentences) bar.value = percent;
  else bar.removeAttribute("value");
  byId("job-count").textContent = sentences ? t("sentences", { done: translated, count: sentences }) : "";
}

/** The first texts; "…" stands for the others. @param {number} most @param {string[]} texts @param {string} separator */
const first = (most, texts, separator) => [...texts.slice(0, most), ...(texts.length > most ? ["…"] : [])].join(separator);

/** A quality warning; its key has the words that the server gives. @param {string} kind */
function warningText(kind) {
  const words = (kind.match(/\w+/g) ?? []).join("-");
  return t(`warning-${words}`);
}

/** The main figures of a report. @param {Report} report */
function summary({ units, warnings, not_translated: others }) {
  const sum = (/** @type {Record<string, number>} */ counts) => Object.values(counts).reduce((a, b) => a + b, 0);
  const figures = [
    t("texts-translated", { done: units.translated, count: units.all }),
    units.left_open && t("texts-left", { count: units.left_open }),
    units.kept && t("texts-kept", { count: units.kept }),
    sum(warnings) && t("quality-warnings", { count: sum(warnings), kinds: first(3, Object.keys(warnings).map(warningText), "; ") }),
    sum(others) && t("never-translated", { kinds: first(5, Object.entries(others).map(([kind, count]) => `${kind} (${count})`), ", ") }),
  ];
  return figures.filter(Boolean).join(" · ");
}

/** A link to a translated file. @param {string} name @param {string} address @param {Report} [report] */
function offer(name, address, report) {
  const figures = () => (report ? [element("span", { class: "figures" }, summary(report))] : []);
  said = () => status.replaceChildren(element("a", { href: address, download: name }, t("file-translated", { name })), ...figures());
  said();
}

/** Write everything in another language. */
function writeTexts() {
  translatePage();
  for (const one of [...from.options, ...to.options]) one.textContent = nameOf(one.value);
  output.querySelector('[aria-pressed="true"]')?.click(); // the chosen sentence
  said();
}

translatePage();
offerLanguages(byId("language"), writeTexts);
from.append(...["auto", ...languages.filter(({ targets }) => targets.length).map(({ code }) => code)].map(option));
from.selectedIndex = 1;
file.accept = formats.join(",");
byId("keyed").hidden = !needsKey;
offerTargets();
from.addEventListener("change", offerTargets);
to.addEventListener("change", offerTargets);
swap.addEventListener("click", () => {
  const before = from.value;
  from.value = to.value;
  offerTargets();
  to.value = before;
  offerTargets();
});
form.addEventListener("submit", (/** @type {Event} */ event) => (event.preventDefault(), translate()));
for (const button of [stop, cancel]) button.addEventListener("click", () => asking?.abort());
byId("choose").addEventListener("click", () => file.click());
file.addEventListener("change", translateFile);
copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(output.textContent);
    say("copied");
  } catch {
    say("cannot-copy");
  }
});
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
  if (event.key === "Escape") asking?.abort();
});
