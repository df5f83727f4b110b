// The reader's choice of light or dark, before anything is drawn; kept where the browser allows it.
{
  const root = document.documentElement;
  const kept = "workbench-theme";
  try {
    root.dataset.wbTheme = localStorage.getItem(kept) ?? root.dataset.wbTheme ?? "";
  } catch {}
  addEventListener("DOMContentLoaded", () => {
    const button = /** @type {HTMLElement} */ (document.querySelector(".wb-theme"));
    const system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.wbTheme ? root.dataset.wbTheme === "dark" : system.matches);
    const tell = () => (button.textContent = dark() ? "Light" : "Dark");
    system.addEventListener("change", tell);
    button.hidden = false;
    tell();
    button.addEventListener("click", () => {
      root.dataset.wbTheme = dark() ? "light" : "dark";
      tell();
      try {
        localStorage.setItem(kept, root.dataset.wbTheme);
      } catch {}
    });
  });
}
