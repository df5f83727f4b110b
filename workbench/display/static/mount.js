// Where a result lives in a page: its element, and a model that stands in for a kernel's.

const shared = (window.workbenchResults ??= {});
// Every result mounted so far: what the reader chose in one that left the page is taken over by the next of the
// same data, because notebooks draw an output again whenever they like.
const homes = (shared.homes ??= []);
const models = (shared.models ??= {});

function standIn(out) {
  const packed = atob(out.querySelector("[data-wb-data]").dataset.wbData);
  const at = homes.findIndex((home) => home.name === out.dataset.wb && !home.out.isConnected);
  const ui = at < 0 ? {} : homes.splice(at, 1)[0].ui();
  const state = { payload: Uint8Array.from(packed, (c) => c.charCodeAt(0)), ui };
  const nothing = () => {};
  return {
    get: (key) => state[key],
    set: (key, value) => (state[key] = value),
    on: nothing,
    off: nothing,
    save_changes: nothing,
    send: nothing,
  };
}

// Notebooks dress the HTML of an output as prose: lists, tables and code would not be the view's own.
const PROSE = ["jp-RenderedHTMLCommon", "rendered_html"];

/** Show a result in its element; if its kernel's model is here, or comes later, by that. */
export function mountWith(render, out) {
  const el = out.querySelector("[data-wb-mount]");
  const model = standIn(out);
  for (const name of PROSE) out.closest(`.${name}`)?.classList.remove(name);
  /** @type {Promise<any>} */
  let shown = Promise.resolve();
  const show = (draw) =>
    (shown = shown.then(async (end) => {
      end?.();
      return draw(el);
    }));
  homes.push({ out, name: out.dataset.wb, model: out.dataset.wbModel, adopt: show, ui: () => model.get("ui") });
  return show(models[out.dataset.wbModel] ?? (() => render({ model, el })));
}
