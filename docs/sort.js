// A click on the head of a long table sorts its rows by that column, and a second click turns the order round.
for (const table of document.querySelectorAll("article table")) {
  const body = table.tBodies[0]
  if (!table.tHead || !body || body.rows.length < 12) continue
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement("button")
    button.append(...head.childNodes)
    button.title = "Sort"
    head.append(button)
    button.onclick = () => {
      const order = head.ariaSort === "ascending" ? -1 : 1
      const text = row => row.cells[column].textContent.replaceAll(",", "")
      const rows = [...body.rows].sort((a, b) => order * text(a).localeCompare(text(b), "en", { numeric: true }))
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null
      head.ariaSort = order > 0 ? "ascending" : "descending"
      body.append(...rows)
    }
  }
}
