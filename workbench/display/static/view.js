// The module every result is shown with: as a widget in a notebook, and in a page without a kernel.
// `model` is anywidget's, or the stand-in that a page brings: get, set, on, off, save_changes.

import { h } from "./dom.js";
import { ablations } from "./ablations.js";
import { hang } from "./hang.js";
import { keydiff } from "./keydiff.js";
import { launches } from "./launches.js";
import { replay } from "./replay.js";
import { weights } from "./weights.js";

// A view returns its `nodes` and its `life`: measure, scrollTo, restore and destroy, each where it has one.
const VIEWS = {
  "workbench.ablations/1": ablations, "workbench.hang/1": hang, "workbench.keydiff/1": keydiff, "workbench.launches/1": launches, "workbench.replay/1": replay, "workbench.weightcompare/1": weights, "workbench.weightscan/1": weights,
};

async function unpack(packed) {
  const bytes = new Blob([packed.buffer ? packed : new Uint8Array(packed)]);
  return JSON.parse(await new Response(bytes.stream().pipeThrough(new DecompressionStream("gzip"))).text());
}

// Notebooks draw a view again whenever its cell was scrolled away: unpack once a model, not once a view.
const unpacked = new WeakMap();

async function render({ model, el }) {
  if (!unpacked.has(model)) unpacked.set(model, unpack(model.get("payload")));
  let payload;
  try {
    payload = await unpacked.get(model);
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

export default { render };
