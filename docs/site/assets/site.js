// Filters the rows of the matrix by a part of the feature's name, by device and by level.
document.addEventListener("DOMContentLoaded", () => {
  const table = document.getElementById("matrix");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  const text = document.getElementById("matrix-text");
  const choices = { 1: document.getElementById("matrix-device"), 2: document.getElementById("matrix-level") };
  const count = document.getElementById("matrix-count");
  for (const [column, select] of Object.entries(choices)) {
    for (const value of [...new Set(rows.map((row) => row.cells[column].textContent))].sort()) {
      select.add(new Option(value, value));
    }
  }
  const filter = () => {
    const wanted = text.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = Object.entries(choices).every(([column, select]) => !select.value || row.cells[column].textContent === select.value);
      row.hidden = !(fits && row.cells[0].textContent.toLowerCase().includes(wanted));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  document.getElementById("matrix-filter").addEventListener("input", filter);
  document.getElementById("matrix-filter").addEventListener("submit", (event) => event.preventDefault());
  filter();
});

// What the theme leaves to the mouse alone: tables that scroll, and the arrows of the contents.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".bd-article table")) {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
  }
  for (const summary of document.querySelectorAll("nav summary")) {
    const page = summary.closest("li")?.querySelector("a")?.textContent.trim();
    summary.setAttribute("aria-label", `Pages below ${page ?? "this one"}`);
  }
});
