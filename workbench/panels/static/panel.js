// The keyboard of a panel of core widgets, and what those cannot do: copy, Enter, live regions.
//
// JupyterLab keeps keys for the notebook unless the focused element itself says otherwise, so each element
// gets the mark when it is focused. The values are read from the page before a call is made: the kernel may
// not have heard the last keystroke yet.
const QUIET = "lmSuppressShortcuts";

function valueOf(field) {
  const input = field.querySelector("input, select, textarea");
  if (!input) return undefined;
  if (input.type === "checkbox") return input.checked;
  if (input.tagName === "SELECT") return input.selectedIndex;
  return input.value;
}

function named(field, prefix) {
  return [...field.classList].find((name) => name.startsWith(prefix)).slice(prefix.length);
}

// By form and name: the page may still show the form of the job before.
function valuesOf(root) {
  const values = {};
  for (const field of root.querySelectorAll("[class*='wbp-name-']")) {
    const value = valueOf(field);
    if (value === undefined) continue;
    (values[named(field, "wbp-of-")] ??= {})[named(field, "wbp-name-")] = value;
  }
  return values;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page that is not served securely has no clipboard: the old way.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function render({ model, el }) {
  el.style.display = "none";
  let root = null;
  const stop = new AbortController();

  const send = (action) => model.send({ action, values: valuesOf(root) });

  const focused = (event) => {
    event.target.dataset[QUIET] = "true";
  };
  const pressed = (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    if (!event.target.matches("input, select")) return;
    event.preventDefault();
    event.stopPropagation();
    send(event.target.closest(".wbp-follow") ? "follow" : "run");
  };
  const clicked = async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.classList.contains("wbp-copy")) {
      const code = button.closest(".wbp-call").querySelector("pre");
      await copy(code ? code.textContent : "");
      const before = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = before), 1500);
    } else if (button.classList.contains("wbp-action")) {
      send("values");
    }
  };

  const begin = () => {
    root = el.closest(".wb-panel");
    if (!root) return false;
    const options = { signal: stop.signal };
    root.addEventListener("focusin", focused, options);
    root.addEventListener("keydown", pressed, { ...options, capture: true });
    root.addEventListener("click", clicked, { ...options, capture: true });
    for (const message of root.querySelectorAll(".wbp-message")) {
      message.setAttribute("aria-live", "polite");
    }
    root.dataset.ready = "";
    return true;
  };
  // The widgets around this one are put into the page after it.
  const timer = setInterval(() => begin() && clearInterval(timer), 50);
  return () => {
    clearInterval(timer);
    stop.abort();
  };
}

export default { render };
