// The module every result is shown with: as a widget in a notebook, and in a page without a kernel.
// `model` is anywidget's, or the stand-in that a page brings: get, set, on, off, save_changes.

import { h } from "./dom.js";
import { mountWith } from "./mount.js";

// Each piece that is joined to this one adds its views and its style sheet (assets.py). A view returns its `nodes`
// and its `life`: measure, scrollTo, restore and destroy, each where it has one.
const VIEWS = {};
const STYLES = [];

/** Add the style sheets where the view is, once each: a page may hold several modules of this kind. */
function dress(el) {
  const root = el.getRootNode();
  const home = root instanceof ShadowRoot ? root : document.head;
  const worn = ((window.workbenchResults ??= {}).styles ??= new WeakMap());
  if (!worn.has(home)) worn.set(home, new Set());
  for (const css of STYLES) {
    if (worn.get(home).has(css)) continue;
    worn.get(home).add(css);
    const style = document.createElement("style");
    style.textContent = css;
    home.append(style);
  }
}

async function unpack(packed) {
  const bytes = new Blob([packed.buffer ? packed : new Uint8Array(packed)]);
  return JSON.parse(await new Response(bytes.stream().pipeThrough(new DecompressionStream("gzip"))).text());
}

// Notebooks draw a view again whenever its cell was scrolled away: unpack once, not once a view.
const unpacked = new WeakMap();

async function render({ model, el }) {
  const packed = model.get("payload");
  if (!unpacked.has(packed)) unpacked.set(packed, unpack(packed));
  let payload;
  try {
    payload = await unpacked.get(packed);
    if (!VIEWS[payload.schema] && el.hasChildNodes()) return undefined; // the static form is there, and whole
    if (!VIEWS[payload.schema]) throw new Error(`this version does not know ${payload.schema}`);
  } catch (error) {
    el.append(h("p", {}, `This view cannot be read: ${error.message}`));
    return undefined;
  }
  let timer = 0;
  let latest = model.get("ui");
  const keep = (ui) => {
    latest = ui;
    clearTimeout(timer);
    timer = setTimeout(save, 150);
  };
  const save = () => {
    clearTimeout(timer);
    timer = 0;
    model.set("ui", latest);
    model.save_changes();
  };
  const { glyphs, order } = payload.style;
  const shown = VIEWS[payload.schema](payload, { glyphs, order, ui: latest, keep });
  const root = h("div", { class: "wb-view" }, shown.nodes);
  dress(el);
  el.replaceChildren(root);
  const life = shown.life ?? {};
  life.measure?.();
  life.scrollTo?.(latest.scroll ?? 0);
  const changed = () => {
    const ui = model.get("ui");
    if (ui !== latest && JSON.stringify(ui) !== JSON.stringify(latest)) life.restore?.((latest = ui));
  };
  model.on("change:ui", changed);
  root.dataset.ready = "true";
  return () => {
    if (timer) save();
    model.off("change:ui", changed);
    life.destroy?.();
  };
}

export default { render, mount: (out) => mountWith(render, out) };
