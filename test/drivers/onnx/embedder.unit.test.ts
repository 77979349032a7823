import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Embedder } from '../../../drivers/embedders.ts'
import { EmbedderUnavailable, TextTooLong } from '../../../drivers/errors.ts'
import { openEmbedder } from '../../../drivers/onnx/embedder.ts'
import { readEmbedder } from '../../../drivers/onnx/files.ts'
import { openTokens } from '../../../drivers/onnx/tokens.ts'
import { cosine, embedderFolder, ownEmbedder } from '../../support/embedder.ts'

// The platform's own embedder: its real model, its real tokenizer.

let embedder: Embedder
beforeAll(async () => {
  embedder = openEmbedder(await ownEmbedder())
})
afterAll(() => embedder.close())

const one = async (text: string): Promise<Float32Array> =>
  (await embedder.embed([text])).vectors[0] as Float32Array
const difference = (a: Float32Array, b: Float32Array): number =>
  Math.max(...a.map((value, at) => Math.abs(value - (b[at] as number))))
const lengthOf = (vector: Float32Array): number => Math.sqrt(cosine(vector, vector))
const words = (count: number): string => 'word '.repeat(count)
/** Some of one length, some of many. */
const texts = [
  'The store is on a disk of the platform.',
  'Zürich, naïve, 東京 and 🙂 are words, too.',
  'x',
  'Each document has a stage, and ends as ready or failed. '.repeat(12),
  'A question.',
  '[SEP] \ud800 \0 [CLS]',
  'Whoever deletes a document finds neither its words nor its vectors in a file.',
]

describe('a vector', () => {
  // As the authors of the model print them, in 32 bits: https://www.sbert.net/docs/quickstart.html
  test.each([
    ['The weather is lovely today.', "It's so sunny outside!", 0.666],
    ['The weather is lovely today.', 'He drove to the stadium.', 0.1046],
    ["It's so sunny outside!", 'He drove to the stadium.', 0.1411],
  ])('of "%s" and that of "%s" are as near as with the whole model', async (a, b, published) => {
    expect(Math.abs(cosine(await one(a), await one(b)) - published)).toBeLessThan(0.01)
  })

  test('of a question is nearest to the passage that answers it', async () => {
    const passages = [
      'The doctor advised him to drink more water and to sleep eight hours.',
      'The train to the coast leaves every morning at seven from platform two.',
      'Shares fell by five percent after the bank had raised its interest rates.',
    ]
    const { vectors } = await embedder.embed(passages)
    const nearest = async (question: string) => {
      const asked = await one(question)
      const scores = vectors.map((vector) => cosine(asked, vector))
      return scores.indexOf(Math.max(...scores))
    }
    expect(await nearest('When can I travel to the sea?')).toBe(1)
    expect(await nearest('How do I stay healthy?')).toBe(0)
    expect(await nearest('Why did investors lose money?')).toBe(2)
  })

  test('has length 1 and as many dimensions as the facts say', async () => {
    const { vectors } = await embedder.embed([...texts, '', ' \n'])
    expect(vectors.map(({ length }) => length)).toEqual(vectors.map(() => 384))
    expect(embedder.facts.dimensions).toBe(384)
    for (const vector of vectors) expect(Math.abs(lengthOf(vector) - 1)).toBeLessThan(1e-5)
  })

  test('is the same among other texts as alone, and in its own place', async () => {
    const { vectors } = await embedder.embed(texts)
    for (const [index, text] of texts.entries())
      expect(difference(vectors[index] as Float32Array, await one(text))).toBeLessThan(1e-5)
  })

  test('is the same each time, on each thread', async () => {
    const again = openEmbedder(await ownEmbedder(), 2)
    const lists = await Promise.all([embedder.embed(texts), again.embed(texts), again.embed(texts)])
    const [first, ...others] = lists.map(({ vectors }) => vectors)
    for (const other of others) expect(other).toEqual(first)
    await again.close()
  })
})

describe('a text', () => {
  test('of as many tokens as the model reads is embedded', async () => {
    const { tokens } = await embedder.embed([words(254)])
    expect(tokens).toBe(256)
  })

  test('with one token more is refused by its place, instead of losing its end', async () => {
    const refused = await embedder.embed(['short', words(255), 'short']).catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(TextTooLong)
    expect(refused).toMatchObject({ index: 1, tokens: 257, most_tokens: 256, permanent: true })
  })

  test('of megabytes is refused without counting', async () => {
    const refused = embedder.embed([words(1_000_000)])
    await expect(refused).rejects.toMatchObject({ name: 'TextTooLong', index: 0, tokens: null })
  })

  test('that is refused leaves the embedder as it was', async () => {
    const before = await one('The same as ever')
    await expect(embedder.embed([words(300)])).rejects.toThrow(TextTooLong)
    expect(await one('The same as ever')).toEqual(before)
  })
})

describe('the tokens', () => {
  const counter = openTokens(embedderFolder)

  test('are those of the model’s own vocabulary', () => {
    // [CLS] hello world [SEP]
    expect(counter.idsOf('Hello  WORLD')).toEqual([101, 7592, 2088, 102])
    // em ##bed ##ding ##s
    expect(counter.idsOf('embeddings')).toEqual([101, 7861, 8270, 4667, 2015, 102])
    expect(counter.countTokens('')).toBe(2)
  })

  test('of a word without end are one for 100 characters, for the counter and the embedder', async () => {
    const longest = 'a'.repeat(25_600)
    expect(counter.countTokens(longest)).toBe(256)
    expect((await embedder.embed([longest])).tokens).toBe(256)
    expect(counter.countTokens(`${longest}a`)).toBe(257)
    await expect(embedder.embed([`${longest}a`])).rejects.toThrow(TextTooLong)
  })

  test('are counted as the embedder counts them', async () => {
    const { tokens } = await embedder.embed(texts)
    expect(tokens).toBe(texts.reduce((sum, text) => sum + counter.countTokens(text), 0))
  })
})

describe('a call', () => {
  const long = 'Each document has a stage, and ends as ready or failed. '.repeat(15)

  test('that is aborted ends at once, and the next one is served', async () => {
    const leaving = new AbortController()
    const left = embedder.embed(
      Array.from({ length: 200 }, () => long),
      { signal: leaving.signal },
    )
    const reason = new Error('the caller has left')
    leaving.abort(reason)
    await expect(left).rejects.toBe(reason)
    expect(lengthOf(await one('next'))).toBeCloseTo(1, 5)
  })

  test('of one text waits for one piece of the documents of its own party and of another', async () => {
    let pieces = 0
    const documents = ['a', 'a', 'a', 'a', 'b'].map((party) =>
      embedder.embed([long, long, long], { party, onTokens: () => pieces++ }),
    )
    const question = async () => {
      await embedder.embed(['A question'], { party: 'a' })
      return pieces
    }
    expect(await question()).toBeLessThanOrEqual(2)
    await Promise.all(documents)
    expect(pieces).toBe(5 * 3)
  })

  test('of no text has no vector', async () => {
    expect(await embedder.embed([])).toEqual({ vectors: [], tokens: 0 })
  })
})

describe('an embedder', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'embedder-'))
    await cp(embedderFolder, folder, { recursive: true })
  })
  afterAll(() => rm(folder, { recursive: true }))

  test('is named by a hash of all that decides about its vectors', async () => {
    const own = await ownEmbedder()
    expect(await readEmbedder(folder)).toEqual({ ...own, folder })
    expect(own.id).toBe(`all-MiniLM-L6-v2-int8@${own.hash.slice(0, 16)}`)
    const hashes = new Set([own.hash])
    const about = join(folder, 'embedder.json')
    const tokenizer = join(folder, 'tokenizer.json')
    const written = await readFile(about, 'utf8')
    await writeFile(about, written.replace('mean', 'first'))
    hashes.add((await readEmbedder(folder)).hash)
    await writeFile(about, written)
    await writeFile(tokenizer, `${await readFile(tokenizer, 'utf8')}\n`)
    hashes.add((await readEmbedder(folder)).hash)
    expect(hashes.size).toBe(3)
  })

  test('without its files is unavailable', async () => {
    await expect(readEmbedder(join(folder, 'nowhere'))).rejects.toThrow(EmbedderUnavailable)
  })

  test('with a damaged model is unavailable, and works when the file is right again', async () => {
    const model = await readFile(join(folder, 'model.onnx'))
    const files = await readEmbedder(folder)
    await writeFile(join(folder, 'model.onnx'), model.subarray(0, 10_000))
    const mended = openEmbedder(files)
    await expect(mended.embed(['text'])).rejects.toThrow(EmbedderUnavailable)
    await writeFile(join(folder, 'model.onnx'), model)
    expect((await mended.embed(['text'])).tokens).toBe(3)
    await mended.close()
  })

  test('that is closed rejects what is under way, and what comes after', async () => {
    const closing = openEmbedder(await ownEmbedder())
    const underWay = closing.embed(['text'])
    const rejected = expect(underWay).rejects.toThrow(EmbedderUnavailable)
    await closing.close()
    await rejected
    await expect(closing.embed(['text'])).rejects.toThrow(EmbedderUnavailable)
  })
})
