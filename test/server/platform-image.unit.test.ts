import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from '@jest/globals'

const linesOf = (file: string): string[] =>
  readFileSync(resolve(import.meta.dirname, '../..', file), 'utf8').split('\n')

test('all that the platform’s image copies from the clone is let into its build', () => {
  const allowed = linesOf('.dockerignore').flatMap((line) => (line.startsWith('!') ? [line.slice(1)] : []))
  const copied = linesOf('images/platform/Dockerfile')
    .filter((line) => line.startsWith('COPY ') && !line.includes('--from='))
    .flatMap((line) => line.split(' ').slice(1, -1))
  expect(copied).toContain('api')
  const kept = copied.filter((path) => !allowed.some((one) => path === one || path.startsWith(`${one}/`)))
  expect(kept).toEqual([])
})
