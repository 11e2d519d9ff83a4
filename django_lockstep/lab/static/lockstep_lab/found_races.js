// Filters the candidates of a report of found races, and copies their tests.
const form = document.getElementById("filter");
const races = [...document.querySelectorAll(".race")];
function filter() {
  const {status, kind, text} = form.elements;
  const words = text.value.toLowerCase();
  for (const race of races) {
    race.hidden = Boolean((status.value && race.dataset.status !== status.value)
      || (kind.value && !race.dataset.kind.split(" ").includes(kind.value)) || !race.textContent.toLowerCase().includes(words));
  }
  const shown = races.filter((race) => !race.hidden).length;
  form.querySelector("output").value = form.dataset.shown.replace("{shown}", shown).replace("{number}", races.length);
}
form.hidden = races.length < 2;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
filter();
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const test = button.parentElement.nextElementSibling, said = button.nextElementSibling;
    try {
      await navigator.clipboard.writeText(test.textContent);
      said.textContent = said.dataset.copied;
    } catch {  // not every browser lets a page from a file do that
      getSelection().selectAllChildren(test);
      said.textContent = said.dataset.selected;
    }
  });
}
addEventListener("beforeprint", () => races.forEach((race) => { race.open = true; }));
