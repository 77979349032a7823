import { describe, expect, test } from '@jest/globals'
import { type CollectionEmbedder, isSameEmbedder, remoteEmbedder } from '../../models/retrieval/embedders.ts'
import { embed, embedChunks } from '../../models/retrieval/embedding.ts'
import { ModelFailed, type Embeddings, type EmbeddingsAsked } from '../../models/retrieval/embeddings.ts'

// Vectors by the embedder of a collection.

const own: CollectionEmbedder = { id: 'own@01', name: 'own', hash: '01', dimensions: 2, most_tokens: 256 }
const place = { _id: 'c1', provider: 'openai', base_url: 'https://models.example/v1' } as const
const remote = remoteEmbedder(place, 'm', 2)
const asked = { tenant_id: 't1', purpose: { kind: 'collection', id: 'k1' } } as const

const refused = (status: number, permanent = true) =>
  new ModelFailed('It says no', { code: 'embedding_refused', permanent, status })

/** A model that refuses texts of more than `most` characters, by this error. */
function modelOf({ most = Infinity, error = refused(400), length = 2 } = {}) {
  const calls: { texts: string[]; of: EmbeddingsAsked }[] = []
  const embeddings: Pick<Embeddings, 'embed'> = {
    async embed(texts, of) {
      calls.push({ texts, of })
      if (texts.some((text) => text.length > most)) throw error
      const vectors = texts.map((text) => Float32Array.from({ length }, (_, at) => (at ? 1 : text.length)))
      return { vectors, tokens: 1 }
    },
  }
  return { embeddings: embeddings as Embeddings, calls }
}

const words = (count: number): string => Array.from({ length: count }, () => 'abcd').join(' ')

describe('the embedder of a collection', () => {
  test('is called by its id, which has the hash, or by its provider’s name for it', async () => {
    const { embeddings, calls } = modelOf()
    expect(await embed(embeddings, own, ['abc'], asked)).toEqual([Float32Array.of(3, 1)])
    await embed(embeddings, remote, ['abc'], asked)
    expect(calls.map(({ of }) => [of.model, of.connector_id])).toEqual([
      ['own@01', null],
      ['m', 'c1'],
    ])
  })

  test('fails if its provider gives vectors of another length', async () => {
    const { embeddings } = modelOf({ length: 3 })
    await expect(embed(embeddings, remote, ['abc'], asked)).rejects.toMatchObject({
      code: 'embedder_changed',
      permanent: true,
      message: expect.stringContaining('3 dimensions now'),
    })
  })

  test('of a provider is another one at another place, by another name, or of another length', () => {
    const others = [
      remoteEmbedder({ ...place, base_url: 'https://other.example/v1' }, 'm', 2),
      remoteEmbedder({ ...place, provider: 'mistral' }, 'm', 2),
      remoteEmbedder(place, 'other', 2),
      remoteEmbedder(place, 'm', 3),
    ]
    expect(new Set([remote, ...others].map(({ hash }) => hash)).size).toBe(5)
    for (const other of others) expect(isSameEmbedder(remote, other)).toBe(false)
    // The vectors of another connector can be compared, and it is called with another key.
    const another = remoteEmbedder({ ...place, _id: 'c2' }, 'm', 2)
    expect(another.hash).toBe(remote.hash)
    expect(isSameEmbedder(remote, another)).toBe(false)
    expect(isSameEmbedder(remote, { ...remote })).toBe(true)
    expect(remote).toMatchObject({ id: `m@${remote.hash.slice(0, 16)}`, most_tokens: null })
  })
})

describe('a chunk that is too long for its embedder', () => {
  test('has the mean of its parts’ vectors, and the others are embedded whole', async () => {
    const { embeddings, calls } = modelOf({ most: 600 })
    const texts = ['short', words(200), 'other']
    const [first, middle, last] = await embedChunks(embeddings, remote, texts, asked)
    expect([first, last]).toEqual([Float32Array.of(5, 1), Float32Array.of(5, 1)])
    const parts = calls.at(-2)?.texts ?? []
    expect(parts.join('')).toBe(words(200))
    expect(parts.every((part) => /^( ?abcd)+$/.test(part))).toBe(true)
    expect(middle).toEqual(Float32Array.of(words(200).length / 2, 1))
  })

  test('is divided as often as it takes, never within a character', async () => {
    const { embeddings, calls } = modelOf({ most: 250 })
    const text = '😀'.repeat(501)
    expect(await embedChunks(embeddings, remote, [text], asked)).toHaveLength(1)
    const taken = calls.filter(({ texts }) => texts.every(({ length }) => length <= 250))
    expect(taken.flatMap(({ texts }) => texts).join('')).toBe(text)
    expect(calls.every(({ texts }) => texts.every((one) => one.isWellFormed()))).toBe(true)
  })

  test('fails if short parts of it are refused, too', async () => {
    const { embeddings, calls } = modelOf({ most: 0 })
    await expect(embedChunks(embeddings, remote, [words(300), 'x'], asked)).rejects.toThrow('It says no')
    expect(calls.length).toBeLessThan(12)
  })

  test.each([
    ['a spent budget', refused(403)],
    ['a provider that is away', refused(502, false)],
    ['too many calls', refused(429, false)],
  ])('is not thought of at %s', async (_, error) => {
    const { embeddings, calls } = modelOf({ most: 0, error })
    await expect(embedChunks(embeddings, remote, ['a b', 'c'], asked)).rejects.toBe(error)
    expect(calls).toHaveLength(1)
  })
})
