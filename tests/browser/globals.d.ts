// What the scripts of all outputs in one page share, for `make lint-js`.
interface Window {
  workbenchResults: any;
}
