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
  form.querySelector("output").value = `${races.filter((race) => !race.hidden).length} of ${races.length} shown`;
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
      said.textContent = "Copied.";
    } catch {  // not every browser lets a page from a file do that
      getSelection().selectAllChildren(test);
      said.textContent = "Selected: copy it with your keyboard.";
    }
  });
}
addEventListener("beforeprint", () => races.forEach((race) => { race.open = true; }));
