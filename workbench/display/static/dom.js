// Small helpers for building elements. Text is only ever set as text: names come from strangers' files.

// What would be invisible, or would turn the text around it: control, zero-width and bidirectional characters.
const HIDDEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
/** Text with what would be invisible spelt out; `h` does it for its children. */
export const shown = (text) => String(text).replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

const FOCUSABLE = new Set(["a", "button", "input", "select", "summary", "textarea"]);

/** Make an element: h("div", {class: "x", onclick: f}, "text", child, [more]). */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  // JupyterLab takes arrow keys and letters for its own shortcuts unless the focused element itself says no.
  if (FOCUSABLE.has(tag) || "tabindex" in props) node.dataset.lmSuppressShortcuts = "true";
  for (const child of children.flat(Infinity)) {
    if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false) node.append(shown(child));
  }
  return node;
}

// The parser knows the namespace of SVG: a page of ours holds no address, not even that one.
const parsed = document.createElement("template");
parsed.innerHTML = "<svg></svg>";
const SVG_NS = parsed.content.firstElementChild.namespaceURI;
/** Make an element of a picture. @returns {SVGElement} */
export function svg(tag, props = {}, ...children) {
  const node = /** @type {SVGElement} */ (document.createElementNS(SVG_NS, tag));
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children.flat().filter(Boolean));
  return node;
}

/** The sign of a state; its colour comes from the style sheet. */
export function sign(state, glyphs, extra = "") {
  return h("span", { class: `wb-sign ${extra}`, "data-state": state, "aria-hidden": "true" }, glyphs[state] ?? "·");
}

/** Text with `code` between backticks. */
export function prose(text) {
  return text.split(/`([^`\n]+)`/).map((part, at) => (at % 2 ? h("code", { class: part.includes(" ") ? "" : "wb-whole" }, part) : part));
}

/** A name in monospace, shortened in its middle by the style sheet, whole in its title. */
export function nameOf(text, extra = "") {
  let cut = text.lastIndexOf(".", text.lastIndexOf(".") - 1);
  if (cut < 1 || text.length - cut > 34) cut = Math.max(0, text.length - 22);
  if (text.length < 24) cut = text.length;
  return h(
    "span",
    { class: `wb-name ${extra}`, title: text },
    h("span", { class: "wb-name-head" }, spans(text.slice(0, cut))),
    h("span", { class: "wb-name-tail" }, spans(text.slice(cut))),
  );
}

/** Set the ranges of a collapsed template apart from the rest: layers.{0...23}.mlp */
function spans(text) {
  return text.split(/(\{[^{}]*\})/).map((part, at) => (at % 2 ? h("b", { class: "wb-range" }, part) : part));
}

export const number = (n) => n.toLocaleString("en");
export const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;

/** A button that copies what `text()` returns, and says so. */
export function copyButton(label, text, extra = "") {
  const button = h("button", {
    type: "button",
    class: `wb-button ${extra}`,
    onclick: async () => {
      const done = await copy(text());
      button.textContent = done ? "Copied" : "Not copied";
      setTimeout(() => (button.textContent = label), 1600);
    },
  }, label);
  return button;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without leave for the clipboard, or on a page that is not secure: the old way.
    const area = h("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
