import { afterEach, beforeEach, expect, jest, test } from '@jest/globals'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { readOne } from '../../models/read-one.ts'

// Reads of one turn of the event loop, on a collection of this test's own.

interface Page {
  _id: string
  tenant_id: string
  text: string
}
const name = `read_one_${newId()}`
const Page = mongoose.model<Page>(
  name,
  new Schema<Page>({ _id: String, tenant_id: String, text: String }, { collection: name, versionKey: false }),
)
const idOf = (at: number): string => `page-${at}`
const pages = Array.from({ length: 20 }, (_, at) => ({
  _id: idOf(at),
  tenant_id: `t${at % 2}`,
  text: `${at}`,
}))

beforeEach(async () => void (await Page.insertMany(pages)))
// Before the connection ends, which is when the file does.
afterEach(async () => void (await Page.collection.drop()))

/** What `work` gives, and how many finds of this collection it sent. */
async function counted<T>(work: () => Promise<T>): Promise<[T, number]> {
  const { db } = mongoose.connection
  if (!db) throw new Error('not connected')
  const sent = jest.spyOn(db, 'command')
  try {
    const given = await work()
    return [given, sent.mock.calls.filter(([{ find }]) => find === name).length]
  } finally {
    sent.mockRestore()
  }
}

test('reads of one turn are one command, and each has its own document', async () => {
  const ids = [...pages, ...pages].map(({ _id }) => _id)
  const [found, commands] = await counted(() => Promise.all(ids.map((id) => readOne(Page, '_id', id))))
  expect(found.map((page) => page?._id)).toEqual(ids)
  expect(commands).toBe(1)
})

test('who asks for another tenant’s document, or an unknown one, gets null, beside others who get theirs', async () => {
  const found = await Promise.all([
    readOne(Page, '_id', idOf(2), { tenant_id: 't0' }),
    readOne(Page, '_id', idOf(2), { tenant_id: 't1' }),
    readOne(Page, '_id', 'no-such-page', { tenant_id: 't0' }),
    readOne(Page, '_id', idOf(3), { tenant_id: 't1' }),
  ])
  expect(found.map((page) => page?._id ?? null)).toEqual([idOf(2), null, null, idOf(3)])
})

test('a read sees what was written before it, however many reads are under way', async () => {
  for (let round = 0; round < 50; round++) {
    const before = Array.from({ length: 5 }, () => readOne(Page, '_id', idOf(4)))
    await Page.updateOne({ _id: idOf(4) }, { text: `round ${round}` })
    expect(await readOne(Page, '_id', idOf(4))).toMatchObject({ text: `round ${round}` })
    await Promise.all(before)
  }
})

test('documents that have no room in one answer are all found', async () => {
  const text = 'x'.repeat(7 << 20)
  const large = [1, 2, 3, 4].map((at) => ({ _id: `large-${at}`, tenant_id: 't0', text }))
  for (const page of large) await Page.create(page)
  const found = await Promise.all(large.map(({ _id }) => readOne(Page, '_id', _id)))
  expect(found.map((page) => page?._id)).toEqual(large.map(({ _id }) => _id))
})
