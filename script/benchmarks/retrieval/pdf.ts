/** A PDF with one page for each list of lines, in letters and digits. */
export function pdfOfLines(pages: string[][]): Buffer {
  const objects = ['', '', '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>']
  const add = (object: string): number => objects.push(object)
  const kids = pages.map((lines) => {
    const shown = lines
      .map((line, place) => `BT /F1 10 Tf 72 ${740 - place * 16} Td (${line}) Tj ET`)
      .join('\n')
    const contents = add(`<< /Length ${shown.length} >>\nstream\n${shown}\nendstream`)
    const resources = '<< /Font << /F1 3 0 R >> >>'
    return add(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${contents} 0 R /Resources ${resources} >>`,
    )
  })
  objects[0] = '<< /Type /Catalog /Pages 2 0 R >>'
  objects[1] = `<< /Type /Pages /Count ${kids.length} /Kids [${kids.map((kid) => `${kid} 0 R`).join(' ')}] >>`

  let file = '%PDF-1.7\n'
  const places = objects.map((object, index) => {
    const at = file.length
    file += `${index + 1} 0 obj\n${object}\nendobj\n`
    return `${String(at).padStart(10, '0')} 00000 n \n`
  })
  const size = objects.length + 1
  const table = `xref\n0 ${size}\n0000000000 65535 f \n${places.join('')}`
  return Buffer.from(
    `${file}${table}trailer\n<< /Size ${size} /Root 1 0 R >>\nstartxref\n${file.length}\n%%EOF\n`,
  )
}
