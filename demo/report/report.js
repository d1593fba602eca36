// The dial of the first picture. And a collector of errors, which the demo's check reads from the
// root element: data-checked is only there when this script ran to its end.
const root = document.documentElement;
const errors = [];
addEventListener("error", (event) => {
  errors.push(event.message || `cannot load a ${event.target.tagName}`);
}, true);
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));

const dial = document.querySelector(".dial");
if (dial) {
  const input = dial.querySelector("input");
  const output = dial.querySelector("output");
  const steps = [...document.querySelectorAll(".step")];
  const show = () => {
    for (const step of steps) step.hidden = step.dataset.keep !== input.value;
    output.textContent = steps.find((step) => !step.hidden).dataset.stay;
  };
  input.addEventListener("input", show);
  dial.hidden = false;
  show();
}

addEventListener("load", () => {
  for (const image of document.images) {
    if (!image.naturalWidth) errors.push(`cannot decode: ${image.alt}`);
    if (!image.alt) errors.push("an image has no alt text");
  }
  if (root.scrollWidth > root.clientWidth) errors.push("the page is wider than its window");
  root.dataset.height = root.scrollHeight;
  root.dataset.errors = errors.join("; ");
  root.dataset.checked = "yes";
});
