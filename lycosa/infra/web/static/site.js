// "/" moves the focus to the search box unless another field has it, words are completed while the user types, and the
// progress of a task is updated every second. The site also works without this script.
"use strict";
document.addEventListener("keydown", (event) => {
  const box = document.getElementById("q");
  const field = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || field || !box) return;
  event.preventDefault();
  box.focus();
  box.select();
});

const form = document.querySelector("form[data-suggest]");
if (form) {
  const box = form.querySelector("input[list]");
  let waiting = 0;
  box.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const typed = box.value;
      if (typed.trim().length < 2) return;
      const answer = await fetch(`${form.dataset.suggest}?q=${encodeURIComponent(typed)}`).catch(() => null);
      if (!answer || !answer.ok || box.value !== typed) return;
      const [, texts] = await answer.json();
      box.list.replaceChildren(...texts.map((text) => new Option(text, text)));
    }, 120);
  });
}

const live = document.querySelector("[data-live]");
if (live) {
  setInterval(async () => {
    const answer = await fetch(location.href).catch(() => null);
    if (!answer || !answer.ok || live.contains(document.activeElement)) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = page.querySelector("[data-live]");
    if (now) live.replaceChildren(...now.childNodes);
    else location.replace(location.pathname);
  }, 1000);
}
