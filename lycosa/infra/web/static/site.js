// "/" goes to the search box, from anywhere but another field. The site works without this.
"use strict";
document.addEventListener("keydown", (event) => {
  const box = document.getElementById("q");
  const field = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || field || !box) return;
  event.preventDefault();
  box.focus();
  box.select();
});
