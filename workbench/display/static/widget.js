// The module of the widget: it loads the view that the model carries, and announces the model to the page, where
// the HTML of the same result waits for it. So what is shown is always the HTML, which outlives the kernel.
const shared = (window.workbenchResults ??= {});
const views = (shared.views ??= {});
const homes = (shared.homes ??= []);
const models = (shared.models ??= {});

async function load(model) {
  const bytes = new Blob([model.get("code")]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(bytes).text();
  return import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
}

async function draw(model, el) {
  let end;
  let turn = Promise.resolve();
  const show = async () => {
    const view = await (views[model.get("needs")] ??= load(model));
    end?.();
    end = await view.default.render({ model, el });
  };
  const again = () => (turn = turn.then(show));
  model.on("change:payload", again);
  await again();
  return () => {
    model.off("change:payload", again);
    end?.();
  };
}

export default {
  initialize({ model }) {
    const name = model.get("name");
    models[name] = (el) => draw(model, el);
    for (const home of homes) if (home.model === name) home.adopt(models[name]);
    return () => delete models[name];
  },
  render: ({ model, el }) => draw(model, el),
};
