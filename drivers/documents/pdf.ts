import { getDocumentProxy } from 'unpdf'
import { DocumentRefused } from '../document-errors.ts'
import type { Piece } from './pieces.ts'
import { type Item, linesOf, type Segment, segmentsOf } from './pdf-lines.ts'
import { withoutRunningLines } from './pdf-margins.ts'
import { pdfPieces, type Title } from './pdf-text.ts'
import { likeness } from './text.ts'

// Opens a PDF and reads it page by page. It knows pdf.js, and the other files do not.

const magic = '%PDF-'
/** Programs put other things in front. Readers look at the first KiB. */
const magicWithin = 1024
const mostTitles = 5_000

export interface Pdf {
  pages: number
  pieces: Iterable<Piece>
}

/** Throws DocumentRefused. */
export async function readPdf(bytes: Uint8Array, mostPages: number): Promise<Pdf> {
  if (bytes.length === 0) throw new DocumentRefused('empty', 'The document is empty')
  checkIsPdf(bytes)
  const pdf = await open(bytes)
  try {
    if (pdf.numPages > mostPages)
      throw new DocumentRefused('too_large', `The document has more than ${mostPages} pages`)
    const pages: Segment[][] = []
    for (let number = 1; number <= pdf.numPages; number++) pages.push(await segmentsOfPage(pdf, number))
    const titles = await titlesOf(pdf)
    if (!pages.some((segments) => segments.length > 0))
      throw new DocumentRefused(
        'empty',
        `The document has no text on its ${pdf.numPages} pages: they may be scanned pictures, or their fonts do not say which letters they have`,
      )
    return { pages: pdf.numPages, pieces: pdfPieces(withoutRunningLines(pages).map(linesOf), titles) }
  } finally {
    await pdf.loadingTask.destroy()
  }
}

type Document = Awaited<ReturnType<typeof getDocumentProxy>>

function checkIsPdf(bytes: Uint8Array): void {
  if (Buffer.from(bytes.subarray(0, magicWithin)).includes(magic)) return
  const like = likeness(bytes)
  throw new DocumentRefused(
    'wrong_type',
    `The document is not of type pdf: ${like ? `it looks like ${like}` : `it does not begin with ${magic}`}`,
  )
}

async function open(bytes: Uint8Array): Promise<Document> {
  try {
    return await getDocumentProxy(bytes, {
      verbosity: 0,
      disableFontFace: true,
      useSystemFonts: false,
      enableXfa: false,
    })
  } catch (error) {
    if (error instanceof Error && error.name === 'PasswordException')
      throw new DocumentRefused('encrypted', 'The document is encrypted: it opens only with a password', {
        cause: error,
      })
    throw broken('its structure cannot be read', error)
  }
}

async function segmentsOfPage(pdf: Document, number: number): Promise<Segment[]> {
  try {
    const page = await pdf.getPage(number)
    const { items } = await page.getTextContent()
    page.cleanup()
    return segmentsOf(items.filter((item): item is typeof item & Item => 'str' in item))
  } catch (error) {
    throw broken(`page ${number} cannot be read`, error)
  }
}

/** The bookmarks. A document whose bookmarks are broken is read without them. */
async function titlesOf(pdf: Document): Promise<Title[]> {
  const titles: Title[] = []
  const collect = (entries: { title: string; items: unknown[] }[], level: number): void => {
    for (const { title, items } of entries) {
      if (titles.length >= mostTitles) return
      titles.push({ text: title, level })
      collect(items as typeof entries, level + 1)
    }
  }
  try {
    collect((await pdf.getOutline()) ?? [], 1)
  } catch {
    return []
  }
  return titles
}

const broken = (why: string, cause: unknown): DocumentRefused =>
  new DocumentRefused('broken', `The document is a broken PDF: ${why}`, { cause })
