import { deflateSync } from 'node:zlib'
import { afterEach, describe, expect, test } from '@jest/globals'
import type { DocumentType, ExtractionRequest } from '../../../drivers/documents.ts'
import { bytesOf, sentenceOf } from '../../support/documents/extracted.ts'
import { encryptedPdf, pdfOf } from '../../support/documents/pdf.ts'
import { read } from '../../support/documents/read.ts'
import { extractionsOf } from '../../support/documents/watched.ts'
import { eventually } from '../../support/eventually.ts'

afterEach(async () => {
  await eventually(() => extractionsOf(process.pid).length === 0)
})

const sentences = Array.from({ length: 30 }, (_, index) => sentenceOf(index))
const aPdf = pdfOf([sentences.map((text, index) => ({ text, x: 72, y: 740 - index * 12 }))])
const aJson = Buffer.from(JSON.stringify({ sentences }))
const zip = Buffer.from('PK\x03\x04\x14\x00\x06\x00\x08\x00', 'latin1')
const picture = Buffer.from('\x89PNG\r\n\x1a\n\x00\x00', 'latin1')
const utf16 = Buffer.from('\ufeffText in UTF-16', 'utf16le')
const latin1 = Buffer.from('first,line\ncaf\xe9,x\n', 'latin1')

const bad: [string, DocumentType, ExtractionRequest['content'], string, RegExp][] = [
  ...(['pdf', 'txt', 'md', 'json', 'csv'] as const).map((type): (typeof bad)[number] => [
    'nothing',
    type,
    Buffer.alloc(0),
    'empty',
    /is empty/,
  ]),
  ...(['pdf', 'txt', 'md', 'json', 'csv'] as const).map((type): (typeof bad)[number] => [
    'a stream of nothing',
    type,
    bytesOf(),
    'empty',
    /is empty|has no text/,
  ]),
  ...(['txt', 'md', 'json', 'csv'] as const).map((type): (typeof bad)[number] => [
    'blanks',
    type,
    Buffer.from(' \n\n'),
    'empty',
    /has no text/,
  ]),
  ['JSON without values', 'json', Buffer.from('[{}, [], null]'), 'empty', /has no text/],
  [
    'a PDF of pictures',
    'pdf',
    pdfOf([[], []]),
    'empty',
    /no text on its 2 pages: they may be scanned pictures/,
  ],
  ...(['txt', 'md', 'json', 'csv'] as const).map((type): (typeof bad)[number] => [
    'a PDF',
    type,
    aPdf,
    'wrong_type',
    /looks like a PDF/,
  ]),
  ...(['pdf', 'txt', 'csv'] as const).map((type): (typeof bad)[number] => [
    'a ZIP file',
    type,
    zip,
    'wrong_type',
    /looks like a ZIP file/,
  ]),
  ['a picture', 'md', picture, 'wrong_type', /looks like a picture/],
  ['a page of the web', 'csv', Buffer.from('<!DOCTYPE html><p>x'), 'wrong_type', /looks like an HTML page/],
  ['JSON', 'csv', aJson, 'wrong_type', /looks like JSON/],
  ['text', 'pdf', Buffer.from('text'), 'wrong_type', /does not begin with %PDF-/],
  ['text', 'json', Buffer.from('some text'), 'wrong_type', /is not valid JSON/],
  ['JSON that is cut', 'json', aJson.subarray(0, 50), 'wrong_type', /its end is missing/],
  ['null bytes', 'txt', Buffer.from('a\nb\0c'), 'wrong_type', /line 2 has a null byte/],
  ['null bytes', 'csv', Buffer.from('a,b\nb\0c'), 'wrong_type', /line 2 has a null byte/],
  ...(['txt', 'md', 'json', 'csv'] as const).map((type): (typeof bad)[number] => [
    'text in UTF-16',
    type,
    utf16,
    'not_utf8',
    /looks like text in UTF-16/,
  ]),
  ...(['txt', 'md', 'json', 'csv'] as const).map((type): (typeof bad)[number] => [
    'text in Latin 1',
    type,
    latin1,
    'not_utf8',
    /not encoded in UTF-8: see line 2/,
  ]),
  ['a password', 'pdf', encryptedPdf(), 'encrypted', /opens only with a password/],
  ['half a PDF', 'pdf', aPdf.subarray(0, 300), 'broken', /broken PDF/],
  [
    'a PDF of noise',
    'pdf',
    Buffer.concat([Buffer.from('%PDF-1.7\n'), deflateSync(Buffer.from(sentences.join()))]),
    'broken',
    /broken PDF/,
  ],
  ['a quote that is not closed', 'csv', Buffer.from('a,b\n"1,2\n3,4\n'), 'broken', /a quote is not closed/],
  [
    'a row of megabytes',
    'csv',
    Buffer.from(`a,b\n"${'x'.repeat(2_000_000)}`),
    'broken',
    /a row has more than 1024 KiB/,
  ],
  [
    'JSON nested 10,000 deep',
    'json',
    Buffer.from('['.repeat(10_000) + ']'.repeat(10_000)),
    'too_deep',
    /nested more than 200 deep/,
  ],
  [
    'objects nested 10,000 deep',
    'json',
    Buffer.from(`${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`),
    'too_deep',
    /nested more than 200 deep/,
  ],
  ['quotes nested 10,000 deep', 'md', Buffer.from(`${'>'.repeat(10_000)} x`), 'too_deep', /nested too deep/],
]

describe('a document is refused, with the reason', () => {
  test.each(bad)('with %s as %s', async (_, type, content, fault, message) => {
    const refused = read(type, content, { bounds: { withinMs: 60_000 } })
    await expect(refused).rejects.toMatchObject({
      name: 'DocumentRefused',
      code: 'document_refused',
      permanent: true,
      stage: 'extracting',
      fault,
      message: expect.stringMatching(message),
    })
  })

  test('with more bytes than the bound, before it has all of them', async () => {
    let given = 0
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) {
        given += 1024 * 1024
        yield Buffer.alloc(1024 * 1024, 'words ')
      }
    }
    const bounds = { bytes: 8 * 1024 * 1024 }
    const refused = { fault: 'too_large', message: 'The document is larger than 8 MiB' }
    await expect(read('txt', endless(), { bounds })).rejects.toMatchObject(refused)
    expect(given).toBeLessThanOrEqual(10 * 1024 * 1024)
    await expect(read('txt', Buffer.alloc(bounds.bytes + 1, 'x'), { bounds })).rejects.toMatchObject(refused)
  })

  test('with 10 million rows, before it has read them', async () => {
    const rows = Buffer.from('1,some words,of a row\n'.repeat(1_000))
    let given = 0
    async function* table(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('id,words,more\n')
      for (; given < 10_000; given++) yield rows
    }
    await expect(read('csv', table(), { bounds: { chunks: 2_000 } })).rejects.toMatchObject({
      fault: 'too_large',
      stage: 'chunking',
      message: 'The document has more than 2000 chunks of 220 tokens: divide it',
    })
    expect(given).toBeLessThan(10_000)
  })
})
