import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { type Embeddings, openEmbeddings } from '../../models/retrieval/embeddings.ts'
import { rankingIn } from '../../models/retrieval/ranking.ts'
import { rerankedBy } from '../../models/retrieval/rerank.ts'
import { type ModelProvider, startModelProvider, type Treatment } from '../support/model-provider/server.ts'

// How hits are ranked anew. The provider of the tests stands where the model gateway does; rerank.test.ts has both.

const treatments: Record<string, Treatment> = {
  busy: { status: 429 },
  down: { status: 500 },
  unknown: { status: 404, error: '{"detail":"no such model"}' },
  outside: { ranking: 'outside' },
  twice: { ranking: 'twice' },
  some: { ranking: 'some' },
  silent: { status: null },
}

let provider: ModelProvider
let embeddings: Embeddings
const issue = async () => ({ token: 't', expires_at: new Date() })
beforeAll(async () => {
  provider = await startModelProvider((model) => treatments[model] ?? {})
  embeddings = openEmbeddings(`http://127.0.0.1:${provider.port}`, { issue })
})
afterAll(async () => {
  await embeddings.close()
  await provider.close()
})

const parts = (rank: number) => ({ vector: null, text: { score: 9 - rank, rank } })
const hits = [
  { text: 'A valve is a valve.', context: '', parts: parts(1) },
  { text: 'Open it before.', context: 'Pumps › Start', parts: parts(2) },
  { text: 'Before you start the pumps, open the valve.', context: 'Pumps › Start', parts: parts(3) },
]
const question = { query: 'open before start', tenant_id: 't1', collection_id: 'c1' }
const by = (model: string) => ({ connector_id: 'k1', model, top: 50 })
const textsOf = (some: { text: string }[]) => some.map(({ text }) => text)

describe('hits that a model ranks', () => {
  test('are in its order, with its scores beside those of the search', async () => {
    const { hits: ranked, report } = await rerankedBy(embeddings, by('good'), hits, question)
    expect(textsOf(ranked)).toEqual([hits[1]?.text, hits[2]?.text, hits[0]?.text])
    expect(ranked.map((hit) => hit.parts)).toEqual([
      { ...parts(2), rerank: { score: 1, rank: 1 } },
      { ...parts(3), rerank: { score: 1, rank: 2 } },
      { ...parts(1), rerank: { score: 0, rank: 3 } },
    ])
    expect(report).toEqual({ connector_id: 'k1', model: 'good', ranked: 3, failure: null })
    expect(provider.askedFor('good')).toMatchObject([
      {
        path: '/v1/rerank',
        body: {
          model: 'good',
          query: question.query,
          documents: [
            'A valve is a valve.',
            'Pumps › Start\n\nOpen it before.',
            'Pumps › Start\n\nBefore you start the pumps, open the valve.',
          ],
        },
      },
    ])
  })

  test('are asked for of nobody if there are none', async () => {
    const { hits: none, report } = await rerankedBy(embeddings, by('idle'), [], question)
    expect([none, report.failure]).toEqual([[], null])
    expect(provider.askedFor('idle')).toEqual([])
  })

  test.each([
    ['busy', 'reranker_unavailable', 'The provider says no'],
    ['down', 'reranker_unavailable', 'The provider says no'],
    ['unknown', 'rerank_refused', 'The answer was 404'],
    ['outside', 'unreadable_ranking', 'it does not score each of 3 texts once'],
    ['twice', 'unreadable_ranking', 'it does not score each of 3 texts once'],
    ['some', 'unreadable_ranking', 'it does not score each of 3 texts once'],
    ['silent', 'rerank_timeout', 'The model did not answer within 0.2 s'],
  ])(
    'stay in the order of the search if the model is %s, and the answer says why',
    async (model, code, reason) => {
      const { hits: same, report } = await rerankedBy(embeddings, by(model), hits, question, 200)
      expect(textsOf(same)).toEqual(textsOf(hits))
      expect(same.every((hit) => hit.parts.rerank === null)).toBe(true)
      expect(report).toEqual({
        connector_id: 'k1',
        model,
        ranked: 0,
        failure: { code, reason: expect.stringContaining(reason) },
      })
    },
  )

  test('are not ranked silently without a database', async () => {
    const lost = new Error('no connection')
    const down = openEmbeddings(`http://127.0.0.1:${provider.port}`, { issue: () => Promise.reject(lost) })
    await expect(rerankedBy(down, by('good'), hits, question)).rejects.toBe(lost)
    await down.close()
  })
})

const of = (index: unknown, relevance_score: unknown) => ({ index, relevance_score })

describe('a ranking', () => {
  const sorted = [
    { index: 1, score: 0.9 },
    { index: 0, score: -3 },
  ]

  test.each<[string, unknown]>([
    ['Cohere, Jina and vLLM', { results: [of(1, 0.9), of(0, -3)] }],
    ['Voyage', { object: 'list', data: [of(1, 0.9), of(0, -3)] }],
    ['nobody, without order', { results: [of(0, -3), of(1, 0.9)] }],
  ])('is read as that of %s', (_, answer) => {
    expect(rankingIn(answer, 2)).toEqual(sorted)
  })

  test('keeps the order of texts with the same score', () => {
    expect(rankingIn({ results: [of(1, 1), of(0, 1)] }, 2)?.map(({ index }) => index)).toEqual([0, 1])
  })

  test.each<[string, unknown]>([
    ['no object', null],
    ['no list', { results: {} }],
    ['a text too few', { results: [of(0, 1)] }],
    ['a text too many', { results: [of(0, 1), of(1, 1), of(1, 1)] }],
    ['a text twice', { results: [of(1, 1), of(1, 1)] }],
    ['a text that was not sent', { results: [of(0, 1), of(2, 1)] }],
    ['a place below the first', { results: [of(0, 1), of(-1, 1)] }],
    ['a place that is none', { results: [of(0, 1), of('1', 1)] }],
    ['a score in words', { results: [of(0, 1), of(1, '0.5')] }],
    ['no score', { results: [of(0, 1), of(1, null)] }],
    ['something else than objects', { results: [0, 1] }],
  ])('is none with %s', (_, answer) => {
    expect(rankingIn(answer, 2)).toBeNull()
  })
})
