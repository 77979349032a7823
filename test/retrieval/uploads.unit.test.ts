import { describe, expect, test } from '@jest/globals'
import { faultOf, typeByName } from '../../models/retrieval/document-types.ts'
import { ModelFailed } from '../../models/retrieval/embeddings.ts'
import { kept, placeIn } from '../../models/retrieval/places.ts'
import { answered } from '../../models/retrieval/problems.ts'
import { StoreError } from '../../models/retrieval/store-rules.ts'

describe('the type of a document', () => {
  test.each([
    ['report.pdf', 'pdf'],
    ['Report.PDF', 'pdf'],
    ['a.b.csv', 'csv'],
    ['notes', undefined],
    ['notes.', undefined],
    ['notes.docx', undefined],
  ])('of %s is %s by its name', (name, type) => {
    expect(typeByName(name)).toBe(type)
  })
})

describe('the first look at a document', () => {
  test.each([
    ['pdf', '%PDF-1.7 …', null],
    ['pdf', 'hello', 'is not a PDF: it does not begin with %PDF-'],
    ['txt', 'hello', null],
    ['txt', '', 'is empty'],
    ['txt', ' \r\n\t', 'is empty'],
    ['md', '\uFEFF', 'is empty'],
    ['csv', '%PDF-1.7', 'is a PDF'],
    ['json', '\uFEFF {"a": 1}', null],
    ['json', '-1', null],
    ['json', 'hello', 'is not JSON'],
    ['json', '<a/>', 'is not JSON'],
  ] as const)('at %s %j says %j', (type, text, fault) => {
    expect(faultOf(type, Buffer.from(text))).toBe(fault)
  })

  test('finds text that is not UTF-8', () => {
    expect(faultOf('txt', Buffer.from('größe', 'latin1'))).toBe('is not UTF-8 text')
    expect(faultOf('txt', Buffer.from('größe'))).toBe(null)
  })
})

test('a hit shows the chunk’s own text, its headings and its place', () => {
  const chunk = {
    hash: 'h',
    text: 'Pumps › Start\n\nIt is there. Open the valve.',
    prefix: 'Pumps › Start\n\n'.length,
    overlap: 'It is there. '.length,
    headings: ['Pumps', 'Start'],
    locator: { line: 5, last_line: 5 },
    tokens: 9,
  }
  const stored = JSON.parse(JSON.stringify(kept(chunk))) as Record<string, unknown>
  expect(placeIn({ text: chunk.text, locator: stored })).toEqual({
    text: 'Open the valve.',
    context: 'Pumps › Start',
    headings: ['Pumps', 'Start'],
    locator: { line: 5, last_line: 5 },
  })
  // What an instance of the tenant has put into the store itself.
  expect(placeIn({ text: 'plain', locator: {} })).toEqual({
    text: 'plain',
    context: '',
    headings: [],
    locator: null,
  })
})

const ofGateway = (code: string, status: number | null, permanent: boolean) =>
  new ModelFailed('why', { code, status, permanent })

async function refused(failing: Error): Promise<unknown> {
  try {
    return await answered(
      (async () => {
        throw failing
      })(),
    )
  } catch (problem) {
    return problem
  }
}

describe('a refusal', () => {
  test.each([
    [
      'of a filter',
      new StoreError('invalid_filter', 'no such field', { pointer: '/filter/x' }),
      422,
      'invalid_input',
    ],
    ['of a store that is away', new StoreError('unavailable', 'the host is away'), 503, 'unavailable'],
    ['of a store with a new token', new StoreError('unauthenticated', 'no'), 503, 'unavailable'],
    [
      'of a store without the collection',
      new StoreError('collection_not_found', 'none'),
      409,
      'collection_not_found',
    ],
    ['of a spent budget', ofGateway('budget_exceeded', 403, true), 403, 'budget_exceeded'],
    ['of a model that has changed', ofGateway('model_not_found', 404, true), 409, 'model_not_found'],
    ['of a long question', ofGateway('text_too_long', 400, true), 422, 'invalid_input'],
    ['of too many calls', ofGateway('too_many_calls', 429, false), 429, 'too_many_requests'],
    ['of a gateway that is late', new DOMException('late', 'TimeoutError'), 503, 'unavailable'],
    ['of no gateway', ofGateway('embedder_unavailable', null, false), 503, 'unavailable'],
  ])('%s is a problem of the API', async (_, error, status, code) => {
    expect(await refused(error)).toMatchObject({ status, code })
  })

  test('that nobody foresaw stays what it is', async () => {
    const error = new Error('unforeseen')
    expect(await refused(error)).toBe(error)
  })
})
