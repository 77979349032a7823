import { isUtf8 } from 'node:buffer'
import type { DocumentType } from '../../drivers/documents.ts'

export type { DocumentType } from '../../drivers/documents.ts'
/** What a document may be. */
export const documentTypes = ['pdf', 'txt', 'md', 'json', 'csv'] as const satisfies DocumentType[]

/** The type that a name ends with, such as `report.pdf`. */
export const typeByName = (name: string): DocumentType | undefined => {
  const ending = /\.([^.]+)$/.exec(name)?.[1]?.toLowerCase()
  return documentTypes.find((type) => type === ending)
}

const pdfMagic = '%PDF-'
const byteOrderMark = '\uFEFF'
/** The first characters of each value that JSON has. */
const jsonBegins = /^[\s]*["{[\-0-9tfn]/

/**
 * What is wrong with a document of this type that its first look shows; null if nothing. The rest shows when it is
 * read.
 */
export function faultOf(type: DocumentType, content: Buffer): string | null {
  if (content.length === 0) return 'is empty'
  const isPdf = content.subarray(0, pdfMagic.length).toString('latin1') === pdfMagic
  if (type === 'pdf') return isPdf ? null : `is not a PDF: it does not begin with ${pdfMagic}`
  if (isPdf) return 'is a PDF'
  if (!isUtf8(content)) return 'is not UTF-8 text'
  const text = content.toString().replace(byteOrderMark, '')
  if (!/\S/.test(text)) return 'is empty'
  if (type === 'json' && !jsonBegins.test(text)) return 'is not JSON'
  return null
}
