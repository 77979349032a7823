import { deflateSync } from 'node:zlib'

// Writes PDFs, objects and cross-reference table, as far as tests need them.

export interface Text {
  text: string
  /** From the left and the bottom of a page of 612 × 792 points. */
  x: number
  y: number
  size?: number
  font?: 'regular' | 'bold'
}

export interface PdfOptions {
  /** Bookmarks on the first page. */
  outline?: string[]
  /** Entries of the trailer, such as `/Encrypt`. */
  trailer?: string
}

const escaped = (text: string): string => text.replaceAll(/[\\()]/g, String.raw`\$&`)
const font = (name: string): string =>
  `<< /Type /Font /Subtype /Type1 /BaseFont /${name} /Encoding /WinAnsiEncoding >>`

const operators = (texts: Text[]): string =>
  texts
    .map(
      ({ text, x, y, size = 10, font: face = 'regular' }) =>
        `BT /${face === 'bold' ? 'F2' : 'F1'} ${size} Tf ${x} ${y} Td (${escaped(text)}) Tj ET`,
    )
    .join('\n')

/** One page for each list of texts. */
export const pdfOf = (pages: Text[][], options: PdfOptions = {}): Buffer =>
  pdfOfStreams(
    pages.map((texts) => ({
      dictionary: '/Filter /FlateDecode',
      bytes: deflateSync(Buffer.from(operators(texts), 'latin1')),
    })),
    options,
  )

/** One page for each content stream. */
export function pdfOfStreams(
  streams: { dictionary: string; bytes: Buffer }[],
  { outline = [], trailer = '' }: PdfOptions = {},
): Buffer {
  const objects: (string | { dictionary: string; bytes: Buffer })[] = []
  const add = (object: (typeof objects)[number]): number => objects.push(object)
  const catalog = add('')
  const tree = add('')
  const [regular, bold] = [add(font('Helvetica')), add(font('Helvetica-Bold'))]
  const pages = streams.map((stream) => {
    const contents = add(stream)
    return add(
      `<< /Type /Page /Parent ${tree} 0 R /MediaBox [0 0 612 792] /Contents ${contents} 0 R /Resources << /Font << /F1 ${regular} 0 R /F2 ${bold} 0 R >> >> >>`,
    )
  })
  objects[tree - 1] =
    `<< /Type /Pages /Count ${pages.length} /Kids [${pages.map((page) => `${page} 0 R`).join(' ')}] >>`
  let outlines = ''
  if (outline.length > 0) {
    const root = add('')
    const first = root + 1
    for (const [index, title] of outline.entries())
      add(
        `<< /Title (${escaped(title)}) /Parent ${root} 0 R /Dest [${pages[0]} 0 R /Fit]${index + 1 < outline.length ? ` /Next ${first + index + 1} 0 R` : ''} >>`,
      )
    objects[root - 1] =
      `<< /Type /Outlines /First ${first} 0 R /Last ${root + outline.length} 0 R /Count ${outline.length} >>`
    outlines = ` /Outlines ${root} 0 R`
  }
  objects[catalog - 1] = `<< /Type /Catalog /Pages ${tree} 0 R${outlines} >>`
  return fileOf(objects, catalog, trailer)
}

function fileOf(
  objects: (string | { dictionary: string; bytes: Buffer })[],
  catalog: number,
  trailer: string,
): Buffer {
  const parts: Buffer[] = [Buffer.from('%PDF-1.7\n%\xe2\xe3\xcf\xd3\n', 'latin1')]
  let length = parts[0]?.length ?? 0
  const offsets: number[] = []
  const write = (part: string | Buffer): void => {
    const bytes = typeof part === 'string' ? Buffer.from(part, 'latin1') : part
    parts.push(bytes)
    length += bytes.length
  }
  for (const [index, object] of objects.entries()) {
    offsets.push(length)
    write(`${index + 1} 0 obj\n`)
    if (typeof object === 'string') write(object)
    else {
      write(`<< ${object.dictionary} /Length ${object.bytes.length} >>\nstream\n`)
      write(object.bytes)
      write('\nendstream')
    }
    write('\nendobj\n')
  }
  const table = length
  const entries = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('')
  write(`xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${entries}`)
  write(
    `trailer\n<< /Size ${objects.length + 1} /Root ${catalog} 0 R ${trailer} >>\nstartxref\n${table}\n%%EOF\n`,
  )
  return Buffer.concat(parts)
}

/** What is in it is encrypted with a password that nobody knows. */
export const encryptedPdf = (): Buffer =>
  pdfOf([[{ text: 'secret', x: 72, y: 700 }]], {
    trailer: `/ID [<${'0a'.repeat(16)}> <${'0a'.repeat(16)}>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -44 /O <${'5c'.repeat(32)}> /U <${'7e'.repeat(32)}> >>`,
  })

/** A page that unpacks to that many bytes, each layer of Flate making it some thousand times smaller. */
export function bombPdf(bytes: number): Buffer {
  const text = Buffer.alloc(bytes, 'BT /F1 10 Tf 72 700 Td (boom) Tj ET\n')
  return pdfOfStreams([
    { dictionary: '/Filter [/FlateDecode /FlateDecode]', bytes: deflateSync(deflateSync(text)) },
  ])
}
