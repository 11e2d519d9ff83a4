// Steps through the drawings of the front page; without it every step is listed.
"use strict";

document.documentElement.classList.add("steps");

/** Show one step: in the list, in the drawing, and in the line of code that sent it. */
function show(drawing, number) {
  const steps = [...drawing.querySelectorAll(".now > li")];
  const wanted = steps[Math.max(0, Math.min(steps.length - 1, number))];
  const column = drawing.closest(".approach");
  for (const element of drawing.querySelectorAll(".current")) element.classList.remove("current");
  wanted.classList.add("current");
  for (const part of drawing.querySelectorAll(`svg [data-step="${wanted.dataset.step}"]`)) part.classList.add("current");
  for (const line of column.querySelectorAll(".code-line")) {
    // Absolute, where the server was started in another folder.
    line.classList.toggle("current", wanted.dataset.line.endsWith(line.dataset.line));
  }
}

function move(drawing, by) {
  const steps = [...drawing.querySelectorAll(".now > li")];
  show(drawing, steps.findIndex((step) => step.classList.contains("current")) + by);
  active = drawing;
}

/** Give each drawing its buttons, and mark its first step; again after htmx has replaced the page's main part. */
function prepare() {
  for (const drawing of document.querySelectorAll(".drawing:not(.ready)")) {
    drawing.classList.add("ready");
    const turn = document.createElement("p");
    turn.className = "turn";
    turn.dir = "ltr"; // as the drawing
    for (const [by, sign] of [[-1, "\u25c0"], [1, "\u25b6"]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = sign;
      button.setAttribute("aria-label", by < 0 ? drawing.dataset.back : drawing.dataset.forward);
      button.addEventListener("click", () => move(drawing, by));
      turn.append(button);
    }
    drawing.prepend(turn);
    if (drawing.classList.contains("first")) show(drawing, 0);
  }
}

let active = null;

// The run's own progress comes with the next page; until then the form itself says that it was sent.
document.addEventListener("submit", (event) => event.target.classList.add("sent"));
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const drawing = event.target.closest?.(".drawing") || (active?.isConnected ? active : document.querySelector(".drawing"));
  if (!by || !drawing) return;
  event.preventDefault();
  move(drawing, by);
});
document.addEventListener("htmx:afterSwap", prepare);
document.addEventListener("htmx:after:swap", prepare);
prepare();
