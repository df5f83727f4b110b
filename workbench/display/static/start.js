// Brings the results in a document to life: every output of a notebook ends with this, a page has it once.
// It joins the pieces of the view's module, which lie compressed in the output itself or once in the page, and
// loads the module from a Blob, which works from file:// and without a network. Until then, and wherever this
// does not run, the static form is what is seen.
const shared = (window.workbenchResults ??= {});
const texts = (shared.texts ??= {});
const views = (shared.views ??= {});
const text = async (out, piece) => {
  const found = `[data-wb-piece="${piece}"]`;
  const code = atob((out.querySelector(found) ?? document.querySelector(found)).dataset.wbCode);
  const bytes = new Blob([Uint8Array.from(code, (c) => c.charCodeAt(0))]);
  return new Response(bytes.stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
const load = async (out, needs) => {
  const pieces = await Promise.all(needs.split(" ").map((piece) => (texts[piece] ??= text(out, piece))));
  return import(URL.createObjectURL(new Blob(pieces, { type: "text/javascript" })));
};
/** @type {NodeListOf<HTMLElement>} */
const outputs = document.querySelectorAll("[data-wb-needs]:not([data-wb-live])");
for (const out of outputs) {
  const needs = out.dataset.wbNeeds;
  out.dataset.wbLive = "";
  (views[needs] ??= load(out, needs))
    .then((view) => view.default.mount(out))
    .catch((error) => {
      // Another output may bring what is missing here.
      delete views[needs];
      for (const piece of needs.split(" ")) delete texts[piece];
      delete out.dataset.wbLive;
      console.error(error);
    });
}
