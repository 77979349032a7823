import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Tenant } from '../../models/identity/tenants.ts'
import { Ledger, ledgerOf } from '../../models/llm/ledgers.ts'
import { RagCollection } from '../../models/retrieval/collections.ts'
import { RagDocument } from '../../models/retrieval/documents.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { pdfOf } from '../support/documents/pdf.ts'
import { eventually } from '../support/eventually.ts'
import { sectioned, wordOf } from '../support/rag/texts.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Documents from their upload to a search, and to their end.

let tenant: TestTenant
let subnet: { id: string }
beforeAll(async () => {
  tenant = await makeTenant()
  subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
})
afterAll(removeTenants)

const manual = `# Pumps

## Start

Open the valve before you start the pump. A pump that runs dry is damaged within a minute.

## Stop

Close the valve after the pump has stopped.

# Boilers

Heat water to sixty degrees against bacteria.
`

const schema = { year: 'number', site: 'string' }

const collections = () => collectionsOf(tenant.owner)
const documents = (name = 'manuals') => documentsOf(tenant.owner, name)

/** A page of a PDF that says the same 40 times. */
const page = (line: string) =>
  Array.from({ length: 40 }, (_, index) => ({ text: `${index} ${line}`, x: 72, y: 740 - index * 16 }))
const base64 = (text: string | Buffer): string => Buffer.from(text).toString('base64')

asRoot('documents of a tenant', () => {
  test('need a store', async () => {
    expect(await collections().ask({ name: 'manuals' })).toMatchObject({
      status: 409,
      body: { code: 'retrieval_disabled' },
    })
    await (await ragStoreOf(tenant.owner).enable(subnet.id)).operation.success()
  })

  test('are in collections, which pin their embedder', async () => {
    const { operation, id } = await collections().create({ name: 'manuals', metadata_schema: schema })
    await operation.success()
    expect(await collections().get('manuals')).toMatchObject({
      id,
      status: 'ready',
      embedder: { name: 'all-MiniLM-L6-v2-int8', dimensions: 384 },
      metadata_schema: schema,
      documents: 0,
    })
    expect(await collections().list('?name=manuals')).toHaveLength(1)
  })

  test.each([
    ['a name that is taken', { name: 'manuals' }, 409, 'name_taken'],
    ['a name that no file may have', { name: '../x' }, 422, 'invalid_input'],
    ['an unknown embedder', { name: 'other', embedder: 'none' }, 422, 'invalid_input'],
    [
      'a field that is no name',
      { name: 'other', metadata_schema: { 'a-b': 'string' } },
      422,
      'invalid_input',
    ],
    ['a field of an unknown type', { name: 'other', metadata_schema: { a: 'date' } }, 422, 'invalid_input'],
  ])('are in no collection with %s', async (_, body, status, code) => {
    expect(await collections().ask(body)).toMatchObject({ status, body: { code } })
  })

  test('are found by meaning and by words, with their place', async () => {
    const document = await documents().make('pumps.md', manual, { metadata: { year: 2024, site: 'north' } })
    expect(document).toMatchObject({
      type: 'md',
      status: 'ready',
      stage: 'ready',
      failed_stage: null,
      version: 1,
      indexed_version: 1,
      chunks: 3,
      operation_id: null,
    })
    for (const mode of ['hybrid', 'vector', 'text']) {
      const [best] = await documents().search('what must I do before starting a pump?', { mode })
      expect(best).toMatchObject({
        document: { id: document.id, name: 'pumps.md' },
        headings: ['Pumps', 'Start'],
        locator: { line: 5, last_line: 5 },
        metadata: { year: 2024, site: 'north' },
        text: expect.stringMatching(/^Open the valve before/),
      })
    }
    expect(await collections().get('manuals')).toMatchObject({ documents: 1, chunks: 3 })
    expect(await RagDocument.findOne({ _id: document.id, tenant_id: tenant.id }).lean()).toMatchObject({
      extracted: null,
      lacking: null,
      embedded: [],
    })
  })

  test('change nothing if they are uploaded again, and are embedded anew only where they differ', async () => {
    const [before] = await documents().list('?name=pumps.md')
    const metadata = { year: 2024, site: 'north' }
    const again = await documents().ask({ name: 'pumps.md', content: manual, metadata })
    expect(again).toMatchObject({ status: 200, body: { id: before?.id, version: 1 } })

    const spent = async () =>
      (await ledgerOf(tenant.id, { kind: 'document', id: before?.id ?? '' }))?.tokens ?? 0
    const first = await spent()
    expect(first).toBeGreaterThan(0)
    const changed = await documents().make('pumps.md', manual.replace('sixty', 'seventy'), { metadata })
    expect(changed).toMatchObject({ id: before?.id, version: 2, indexed_version: 2, chunks: 3 })
    const second = await spent()
    expect(second - first).toBeLessThan(first / 2)
    expect((await documents().search('bacteria', { mode: 'text' }))[0]?.text).toContain('seventy')

    // Of the metadata alone nothing is embedded.
    const moved = await documents().make('pumps.md', manual.replace('sixty', 'seventy'), {
      metadata: { year: 2025 },
    })
    expect(moved).toMatchObject({ version: 3, metadata: { year: 2025 } })
    expect(await spent()).toBe(second)
  })

  test('are cited by page, line or JSON pointer', async () => {
    await documents().make(
      'turbines.pdf',
      pdfOf([page('windmills turn whenever the wind blows'), page('turbines are greased every week or so')]),
    )
    await documents().make('parts.json', JSON.stringify({ parts: [{ id: 1, what: 'flange gasket' }] }))
    await documents().make('prices.csv', 'part,price\nflange,20\nsprocket,30\n')
    const best = async (query: string) => (await documents().search(query, { mode: 'text' }))[0]
    expect(await best('greased')).toMatchObject({
      document: { name: 'turbines.pdf' },
      locator: { page: 2, last_page: 2 },
      text: expect.stringMatching(/greased/),
    })
    expect(await best('gasket')).toMatchObject({
      document: { name: 'parts.json' },
      locator: { pointer: expect.stringMatching(/^\/parts/) },
    })
    expect(await best('sprocket')).toMatchObject({
      document: { name: 'prices.csv' },
      locator: { line: expect.any(Number) },
    })
  })

  describe('are refused at once:', () => {
    test.each([
      ['nothing', { name: 'a.txt', content: '' }, '/content'],
      ['white space', { name: 'a.md', content: ' \n ' }, '/content'],
      ['what is no base64', { name: 'a.pdf', content_base64: '%%%' }, '/content_base64'],
      ['a PDF that is none', { name: 'a.pdf', content_base64: base64('hello') }, '/content_base64'],
      ['a text that is a PDF', { name: 'a.txt', content_base64: base64('%PDF-1.7') }, '/content_base64'],
      [
        'what is not UTF-8',
        { name: 'a.txt', content_base64: base64(Buffer.from([0xff, 0xfe, 0x41])) },
        '/content_base64',
      ],
      ['JSON that is none', { name: 'a.json', content: 'hello' }, '/content'],
      ['a name without a type', { name: 'a', content: 'hello' }, '/type'],
      [
        'metadata of another type',
        { name: 'a.txt', content: 'hello', metadata: { year: 'new' } },
        '/metadata/year',
      ],
      [
        'metadata of no field',
        { name: 'a.txt', content: 'hello', metadata: { color: 'red' } },
        '/metadata/color',
      ],
      ['two contents', { name: 'a.txt', content: 'a', content_base64: base64('a') }, ''],
    ])('%s', async (_, body, pointer) => {
      const answer = await documents().ask(body)
      expect(answer).toMatchObject({ status: 422, body: { code: 'invalid_input' } })
      expect(answer.body['errors']).toEqual([expect.objectContaining({ pointer })])
    })
  })

  test('that cannot be read fail with the stage and the reason, and the former version is still found', async () => {
    const pages = [[{ text: 'Compressors need oil.', x: 72, y: 700 }]]
    const { id } = await documents().make('torn.pdf', pdfOf(pages))
    const { operation } = await documents().upload('torn.pdf', Buffer.from('%PDF-1.7\nnothing more'))
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'document_refused' } })
    const failed = await documents().get(id)
    expect(failed).toMatchObject({
      status: 'error',
      stage: 'failed',
      failed_stage: 'extracting',
      version: 2,
      indexed_version: 1,
      status_reason: expect.any(String),
    })
    expect(await documents().list('?stage=failed')).toHaveLength(1)
    expect((await documents().search('compressors', { mode: 'text' }))[0]?.document.id).toBe(id)
    const { operation: retry } = await documents().retry(id)
    expect(await retry.end()).toMatchObject({ state: 'failed' })
    await (await documents().delete(id)).operation.success()
  })

  test('are searched by their metadata, and above a score', async () => {
    await documents().make('old.txt', 'A note about the pump of old.', { metadata: { year: 1990 } })
    const found = async (over: object) =>
      (await documents().search('pump', { mode: 'text', ...over })).map(({ document }) => document.name)
    expect(await found({ filter: { year: 1990 } })).toEqual(['old.txt'])
    expect(await found({ filter: { year: { gte: 2000 } } })).not.toContain('old.txt')
    expect(await found({ filter: { site: { exists: true } } })).toEqual([])
    expect(await found({ min_score: 1_000 })).toEqual([])
    expect(await found({ k: 1 })).toHaveLength(1)
    for (const filter of [{ color: 'red' }, { year: 'new' }, { year: { in: ['new'] } }])
      expect(await documents().askSearch({ query: 'pump', filter })).toMatchObject({
        status: 422,
        body: { errors: [{ pointer: expect.stringMatching(/^\/filter\//) }] },
      })
    expect(await documents().askSearch({ query: 'pump '.repeat(500) })).toMatchObject({
      status: 422,
      body: { errors: [{ pointer: '/query' }] },
    })
  })

  test('whose upload is cancelled go on where they stopped', async () => {
    const { id, operation } = await documents().upload('long.md', sectioned(400))
    await operation.cancel()
    const { state } = await operation.end()
    if (state === 'cancelled') {
      expect(await documents().get(id)).toMatchObject({
        status: 'error',
        stage: 'failed',
        indexed_version: null,
      })
      const again = await documents().ask({ name: 'long.md', content: sectioned(400) })
      expect(again).toMatchObject({ status: 202, body: { id } })
      expect(
        await eventually(async () => {
          const now = await documents().get(id)
          return now.operation_id === null && now
        }),
      ).toMatchObject({ status: 'ready', chunks: 400 })
    }
  })

  test('are one story each: an open upload refuses another and ends with a deletion', async () => {
    const { id, operation } = await documents().upload('busy.md', sectioned(300))
    const other = await documents().ask({ name: 'busy.md', content: 'another' })
    expect([409, 202]).toContain(other.status)
    await (await documents().delete(id)).operation.success()
    expect((await operation.end()).state).not.toBe('running')
    expect(await documents().list('?name=busy.md')).toEqual([])
    expect(await documents().search(wordOf(7), { mode: 'text', k: 1, min_score: 2 })).not.toContainEqual(
      expect.objectContaining({ document: { id, name: 'busy.md' } }),
    )
  })

  test('are not another tenant’s', async () => {
    const other = await makeTenant()
    const theirs = documentsOf(other.owner, 'manuals')
    expect(await theirs.askSearch({ query: 'pump' })).toMatchObject({ status: 404 })
    expect(await theirs.ask({ name: 'a.txt', content: 'hello' })).toMatchObject({ status: 404 })
    const viewer = await tenant.user('viewer')
    expect(await documentsOf(viewer, 'manuals').askSearch({ query: 'pump' })).toMatchObject({ status: 200 })
    expect(await documentsOf(viewer, 'manuals').ask({ name: 'a.txt', content: 'a' })).toMatchObject({
      status: 403,
    })
  })

  test('are as many as the tenant may have', async () => {
    const few = await makeTenant({ max_rag_documents: 1 })
    const place = await makeSubnet(few, (await makeVpc(few)).id)
    await (await ragStoreOf(few.owner).enable(place.id)).operation.success()
    await (await collectionsOf(few.owner).create({ name: 'few' })).operation.success()
    await documentsOf(few.owner, 'few').make('a.txt', 'one')
    expect(await documentsOf(few.owner, 'few').ask({ name: 'b.txt', content: 'two' })).toMatchObject({
      status: 409,
      body: { code: 'quota_exceeded' },
    })
    await documentsOf(few.owner, 'few').make('a.txt', 'instead')
  })

  test('that are too much for the tenant’s tokens fail at once, and go on from there when it has more', async () => {
    const poor = await makeTenant({ max_llm_tokens_month: 0 })
    const place = await makeSubnet(poor, (await makeVpc(poor)).id)
    await (await ragStoreOf(poor.owner).enable(place.id)).operation.success()
    await (await collectionsOf(poor.owner).create({ name: 'few' })).operation.success()
    const few = documentsOf(poor.owner, 'few')
    const { id, operation } = await few.upload('a.txt', 'Fans turn.')
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'budget_exceeded' } })
    expect(await few.get(id)).toMatchObject({
      stage: 'failed',
      failed_stage: 'embedding',
      indexed_version: null,
    })
    const read = await RagDocument.findOne({ _id: id, tenant_id: poor.id }).lean()
    expect(read?.extracted).not.toBeNull()
    expect(await few.askSearch({ query: 'fans' })).toMatchObject({
      status: 403,
      body: { code: 'budget_exceeded' },
    })
    await Tenant.updateOne({ _id: poor.id }, { $set: { 'limits.max_llm_tokens_month': 10_000 } })
    await (await few.retry(id)).operation.success()
    expect(await few.search('what turns?', { k: 1 })).toMatchObject([{ document: { id } }])
  })

  test('are gone from the store when they are deleted', async () => {
    const store = await storeAtWork(tenant.id)
    const before = await store.stats('manuals')
    const { id, chunks } = await documents().make('secret.txt', 'The password is swordfish.')
    await (await documents().delete(id)).operation.success()
    expect(await store.stats('manuals')).toMatchObject({ documents: before.documents, chunks: before.chunks })
    expect(chunks).toBe(1)
    expect(await documents().search('swordfish', { mode: 'text' })).toEqual([])
    expect(await tenant.owner.ask('GET', `/api/v1/rag/collections/manuals/documents/${id}`)).toMatchObject({
      status: 404,
    })
  })

  test('go with their collection, also those that are on their way', async () => {
    await (await collections().create({ name: 'short' })).operation.success()
    await documents('short').make('a.txt', 'hello')
    await documents('short').upload('b.md', sectioned(200))
    await (await collections().delete('short')).operation.success()
    expect(await tenant.owner.ask('GET', '/api/v1/rag/collections/short')).toMatchObject({ status: 404 })
    await expect((await storeAtWork(tenant.id)).stats('short')).rejects.toMatchObject({
      code: 'collection_not_found',
    })
    // The name is free, and the new one is empty.
    await (await collections().create({ name: 'short' })).operation.success()
    expect(await collections().get('short')).toMatchObject({ documents: 0 })
  })

  test('go with the store', async () => {
    await documents().upload('c.md', sectioned(200))
    await (await ragStoreOf(tenant.owner).disable()).operation.success()
    expect(await RagDocument.countDocuments({ tenant_id: tenant.id })).toBe(0)
    expect(await RagCollection.countDocuments({ tenant_id: tenant.id })).toBe(0)
    const open = { tenant_id: tenant.id, _id: /:(document|collection):/, closed_at: null }
    expect(await Ledger.countDocuments(open)).toBe(0)
    expect(await collections().list()).toEqual([])
  })
})
