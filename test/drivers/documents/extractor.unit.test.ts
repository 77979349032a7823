import { spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { deflateSync } from 'node:zlib'
import { afterEach, describe, expect, test } from '@jest/globals'
import type { DocumentExtractor, DocumentType } from '../../../drivers/documents.ts'
import { makeDocumentExtractor } from '../../../drivers/documents/extractor.ts'
import { bytesOf, sentenceOf } from '../../support/documents/extracted.ts'
import { eventually } from '../../support/eventually.ts'
import { bombPdf, pdfOf, pdfOfStreams } from '../../support/documents/pdf.ts'
import { read } from '../../support/documents/read.ts'
import { tokenizer } from '../../support/documents/tokenizer.ts'
import { tokenizerThat } from '../../support/documents/tokenizers.ts'
import { extractionsOf, isAlive } from '../../support/documents/watched.ts'

// Documents as they come, read in a process of their own. Whatever is in them, the caller hears why they are not read, and
// goes on.

afterEach(async () => {
  await eventually(() => extractionsOf(process.pid).length === 0)
})

const sentences = Array.from({ length: 30 }, (_, index) => sentenceOf(index))
const good: [DocumentType, Buffer, object][] = [
  ['pdf', pdfOf([sentences.map((text, index) => ({ text, x: 72, y: 740 - index * 12 }))]), { page: 1 }],
  ['txt', Buffer.from(sentences.join('\n')), { line: 1 }],
  ['md', Buffer.from(`# Title\n\n${sentences.join('\n\n')}`), { line: 3 }],
  ['json', Buffer.from(JSON.stringify({ sentences })), { pointer: '/sentences/0' }],
  [
    'csv',
    Buffer.from(`sentence,length\n${sentences.map((text) => `${text},${text.length}`).join('\n')}`),
    { line: 2 },
  ],
]

describe('a document', () => {
  test.each(good)(
    'of type %s becomes chunks with places, hashes and tokens',
    async (type, content, locator) => {
      const { chunks, tokens, pages } = await read(type, content)
      expect(chunks.length).toBeGreaterThan(1)
      expect(chunks[0]).toMatchObject({ locator, hash: expect.stringMatching(/^[0-9a-f]{64}$/) })
      for (const chunk of chunks) expect(chunk.tokens).toBe(tokenizer.countTokens(chunk.text))
      for (const chunk of chunks) expect(chunk.tokens).toBeLessThanOrEqual(220)
      expect(tokens).toBe(chunks.reduce((sum, chunk) => sum + chunk.tokens, 0))
      expect(pages).toBe(type === 'pdf' ? 1 : null)
      for (const sentence of sentences)
        expect(chunks.some((chunk) => chunk.text.includes(sentence))).toBe(true)
    },
  )

  test('is the same as a stream', async () => {
    for (const [type, content] of good) {
      const parts = [content.subarray(0, 100), content.subarray(100, 101), content.subarray(101)]
      expect(await read(type, bytesOf(...parts))).toEqual(await read(type, content))
    }
  })

  test('may have many chunks, in their order', async () => {
    const lines = Array.from({ length: 20_000 }, (_, index) => sentenceOf(index))
    const { chunks } = await read('txt', Buffer.from(lines.join('\n')))
    expect(chunks.length).toBeGreaterThan(1_000)
    expect(chunks.map(({ text, overlap }) => text.slice(overlap)).join('\n')).toBe(lines.join('\n'))
  })
})

test('a page of a PDF may have more lines than a call has arguments', async () => {
  const lines = Array.from(
    { length: 150_000 },
    (_, index) => `BT /F1 0.001 Tf 72 ${(700 - index * 0.004).toFixed(3)} Td (line ${index}) Tj ET`,
  )
  const bytes = deflateSync(Buffer.from(lines.join('\n')))
  const { chunks } = await read('pdf', pdfOfStreams([{ dictionary: '/Filter /FlateDecode', bytes }]))
  expect(chunks.at(-1)?.text).toMatch(/line 149999$/)
})

const exceeded = (bound: string, stage: string): object => ({
  name: 'ExtractionExceeded',
  permanent: true,
  bound,
  stage,
})

describe('a document that takes more than it may', () => {
  const text = Buffer.from('some text')

  test('of time, as a bomb of text in a PDF, is given up', async () => {
    const refused = read('pdf', bombPdf(200_000_000), { bounds: { withinMs: 2_000, memoryMib: 4_000 } })
    await expect(refused).rejects.toMatchObject({
      ...exceeded('time', 'extracting'),
      message: 'Reading the document takes longer than 2 s',
    })
  })

  test('of memory, as a bomb of bytes in a PDF, is given up', async () => {
    const blanks = deflateSync(deflateSync(Buffer.alloc(1_000_000_000)))
    const bomb = pdfOfStreams([{ dictionary: '/Filter [/FlateDecode /FlateDecode]', bytes: blanks }])
    expect(bomb.length).toBeLessThan(10_000)
    const refused = read('pdf', bomb, { bounds: { memoryMib: 300 } })
    await expect(refused).rejects.toMatchObject({
      ...exceeded('memory', 'extracting'),
      message: 'Reading the document takes more than 300 MiB of memory',
    })
  })

  test.each(['hoard', 'fill'])('of memory is given up, whatever takes it: %s', async (deed) => {
    const refused = read('txt', text, { tokenizer: tokenizerThat(deed), bounds: { memoryMib: 200 } })
    await expect(refused).rejects.toMatchObject(exceeded('memory', 'extracting'))
  })

  test('of processor time is given up, however busy the machine is', async () => {
    const refused = read('txt', text, { tokenizer: tokenizerThat('spin'), bounds: { cpuMs: 1_500 } })
    await expect(refused).rejects.toMatchObject({
      ...exceeded('cpu', 'extracting'),
      message: 'Reading the document takes more than 1.5 s of processor time',
    })
  })

  test('of time is given up though its process is stopped', async () => {
    const refused = read('txt', text, { tokenizer: tokenizerThat('spin'), bounds: { withinMs: 5_000 } })
    const caught = expect(refused).rejects.toMatchObject(exceeded('time', 'extracting'))
    process.kill(await eventually(() => extractionsOf(process.pid)[0]), 'SIGSTOP')
    await caught
  })
})

async function* lost(): AsyncGenerator<Uint8Array> {
  yield Buffer.from('some text')
  throw new Error('the bucket is gone')
}

describe('documents that come at once', () => {
  const text = Buffer.from('some text')
  const spin = (by: DocumentExtractor, party: string, signal?: AbortSignal) =>
    by.extract({
      type: 'txt',
      content: text,
      tokenizer: tokenizerThat('spin'),
      party,
      ...(signal ? { signal } : {}),
    })

  test('wait for their turn, and may leave before it', async () => {
    const narrow = makeDocumentExtractor({ atOnce: 1 })
    const [first, second, third] = Array.from({ length: 3 }, () => new AbortController())
    const reading = expect(spin(narrow, 'a', first?.signal)).rejects.toThrow('enough')
    const [reader] = await eventually(
      () => extractionsOf(process.pid).length === 1 && extractionsOf(process.pid),
    )
    const waiting = expect(spin(narrow, 'a', second?.signal)).rejects.toThrow('enough')
    const leaving = expect(spin(narrow, 'b', third?.signal)).rejects.toThrow('enough')
    third?.abort(new Error('enough'))
    await leaving
    expect(extractionsOf(process.pid)).toEqual([reader])
    first?.abort(new Error('enough'))
    await reading
    await eventually(() => extractionsOf(process.pid).some((pid) => pid !== reader))
    second?.abort(new Error('enough'))
    await waiting
  })

  test('are read two at a time', async () => {
    const usual = makeDocumentExtractor()
    const ending = new AbortController()
    const all = [1, 2, 3].map(() => expect(spin(usual, 'a', ending.signal)).rejects.toThrow('enough'))
    await eventually(() => extractionsOf(process.pid).length >= 2)
    expect(extractionsOf(process.pid)).toHaveLength(2)
    ending.abort(new Error('enough'))
    await Promise.all(all)
  })
})

describe('the process that reads a document', () => {
  const text = Buffer.from('some text')
  const ended = { name: 'ExtractionEnded', code: 'extraction_ended', permanent: false, stage: 'extracting' }

  test('may be killed: the caller hears of it, and the next document is read', async () => {
    const reading = read('txt', text, { tokenizer: tokenizerThat('spin') })
    const caught = expect(reading).rejects.toMatchObject(ended)
    process.kill(await eventually(() => extractionsOf(process.pid)[0]), 'SIGKILL')
    await caught
    await expect(read('txt', text)).resolves.toMatchObject({ chunks: [{ text: 'some text' }] })
  })

  test.each([
    ['exit', /the process ended with 3/],
    ['throw', /the tokenizer has failed/],
  ])('may fail: %s', async (deed, cause) => {
    await expect(read('txt', text, { tokenizer: tokenizerThat(deed) })).rejects.toMatchObject({
      ...ended,
      cause: { message: expect.stringMatching(cause) },
    })
  })

  test('tells whether the document was read or divided when it failed', async () => {
    const failed = read('txt', Buffer.from([...sentences, 'the last line'].join('\n')), {
      tokenizer: tokenizerThat('throw', { at: 'last' }),
      tokensPerChunk: 20,
    })
    await expect(failed).rejects.toMatchObject({ ...ended, stage: 'chunking' })
  })

  test('ends when the caller gives up', async () => {
    const giving = new AbortController()
    const reading = read('txt', text, { tokenizer: tokenizerThat('spin'), signal: giving.signal })
    const caught = expect(reading).rejects.toThrow('given up')
    await eventually(() => extractionsOf(process.pid)[0])
    giving.abort(new Error('given up'))
    await caught
  })

  test('ends when the content cannot be had, with the reason of the content', async () => {
    await expect(read('txt', lost())).rejects.toThrow('the bucket is gone')
  })

  test('ends when its caller is killed', async () => {
    const program = fileURLToPath(new URL('../../support/documents/caller.ts', import.meta.url))
    const caller = spawn(process.execPath, [program], { stdio: 'ignore' })
    const pid = await eventually(() => extractionsOf(caller.pid as number)[0])
    caller.kill('SIGKILL')
    await eventually(() => !isAlive(pid))
  })

  test.each([
    ['reads no file but those of its tokenizer', 'read'],
    ['writes no file', 'write'],
    ['starts no program', 'start'],
  ])('%s', async (_, deed) => {
    await expect(
      read('txt', text, { tokenizer: tokenizerThat(deed, { path: '/etc/hostname' }) }),
    ).rejects.toMatchObject({
      ...ended,
      cause: { message: expect.stringContaining('Access to this API has been restricted') },
    })
  })

  test('reads the files of its tokenizer, and has no environment', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'keelson-tokenizer-'))
    const path = join(folder, 'vocabulary')
    await writeFile(path, 'words')
    try {
      await expect(
        read('txt', text, { tokenizer: tokenizerThat('read', { path, reads: [path] }) }),
      ).resolves.toBeDefined()
      await expect(read('txt', text, { tokenizer: tokenizerThat('environment') })).resolves.toBeDefined()
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})
