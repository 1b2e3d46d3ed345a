// @ts-check
// The texts of a page in the reader's language, from interface.*.json. A text that a language lacks is in English.

import { element } from "./dom.js";

/** @type {Record<string, Record<string, string>>} */
const CATALOGUES = JSON.parse(document.getElementById("interface")?.textContent ?? "{}");
const ATTRIBUTES = ["aria-label", "placeholder"];

const languagesIn = (/** @type {string} */ part) => new URLSearchParams(part.slice(1)).getAll("language");
const offered = (/** @type {readonly string[]} */ codes) => codes.flatMap((code) => [code, code.split("-")[0]]).find((code) => Object.hasOwn(CATALOGUES, code)) ?? "en";
export const usualLanguage = offered([...languagesIn(location.search), ...navigator.languages]);
export let language = offered([...languagesIn(location.hash), usualLanguage]);

const DIGITS = { maximumFractionDigits: 1 };

/**
 * The text of a key in a language. With plural forms, such as "words.one" and "words.other", the one for a number.
 * @param {string} code @param {string} key @param {string | number} [count]
 * @returns {string | undefined}
 */
function textIn(code, key, count) {
  const texts = CATALOGUES[code] ?? {};
  return texts[key] ?? texts[`${key}.${new Intl.PluralRules(code, DIGITS).select(Number(count))}`] ?? texts[`${key}.other`];
}

/**
 * A text with its placeholders filled, numbers as the language writes them. What is no key is a text.
 * The value `count` chooses a plural form; a number for {words} is written by the forms of "words", if there are some.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  const text = textIn(language, key, values.count) ?? textIn("en", key, values.count) ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = values[name] ?? whole;
    if (typeof value !== "number") return value;
    return CATALOGUES.en?.[`${name}.other`] ? t(name, { count: value }) : value.toLocaleString(language, DIGITS);
  });
}

/** A number with the decimal point or comma of the language. @param {string} number as `toFixed` and `toExponential` write it */
export const pointed = (number) => number.replace(".", (0.1).toLocaleString(language).charAt(1));

/** @param {string} code @param {string} name if the browser knows none */
export function languageName(code, name) {
  try {
    return new Intl.DisplayNames(language, { type: "language", fallback: "none" }).of(code) ?? name;
  } catch {
    return name; // the code of no language
  }
}

/** Write the texts that the page's HTML has in English. */
export function translatePage() {
  document.documentElement.lang = language;
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(/** @type {any} */ (node).dataset.t);
  for (const name of ATTRIBUTES) {
    for (const node of document.querySelectorAll(`[data-t-${name}]`)) node.setAttribute(name, t(node.getAttribute(`data-t-${name}`) ?? ""));
  }
}

/** Fill the menu of languages, whose choice is kept in the address. @param {HTMLSelectElement} menu @param {() => void} changed */
export function offerLanguages(menu, changed) {
  menu.replaceChildren(...Object.keys(CATALOGUES).map((code) => element("option", { value: code, lang: code }, CATALOGUES[code].language)));
  menu.value = language;
  menu.addEventListener("change", () => {
    language = menu.value;
    const address = new URLSearchParams(location.hash.slice(1));
    address.set("language", language);
    history.replaceState(null, "", `#${address}`);
    changed();
  });
}
