// Brings a view to life in a page. `name` and `version` stand before this. The element is found by its name,
// because a module has no currentScript; the model lives in the page; the one copy of the view's module is
// loaded from a Blob, which works from file:// and without a network.
const text = document.querySelector(`script[data-wb-esm="${version}"]`).textContent;
const loaded = (window.workbenchViews ??= {});
loaded[version] ??= import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
const view = await loaded[version];
for (const out of document.querySelectorAll(`[data-wb="${name}"]:not([data-wb-live])`)) {
  out.dataset.wbLive = "";
  const packed = atob(out.querySelector("[data-wb-data]").textContent);
  const state = { payload: Uint8Array.from(packed, (c) => c.charCodeAt(0)), ui: {} };
  const nothing = () => {};
  const model = {
    get: (key) => state[key],
    set: (key, value) => (state[key] = value),
    on: nothing,
    off: nothing,
    save_changes: nothing,
    send: nothing,
  };
  view.default.render({ model, el: out.querySelector("[data-wb-mount]") });
}
