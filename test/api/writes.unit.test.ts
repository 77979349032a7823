import { glob, readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'

// Writes and their rules belong in models/, where activities use them too.

const writes =
  /\.(save|insertMany|insertOne|bulkWrite|(update|delete|replace)(One|Many)|find(One|ById)And\w+)\(|\b[A-Z]\w+(?<!Payloads?)\.create\(/

test('the API writes to MongoDB only through models', async () => {
  const found: string[] = []
  for await (const path of glob('api/**/*.ts')) {
    const lines = (await readFile(path, 'utf8')).split('\n')
    found.push(...lines.filter((line) => writes.test(line)).map((line) => `${path}: ${line.trim()}`))
  }
  expect(found).toEqual([])
})
