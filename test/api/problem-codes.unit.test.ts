import { globSync, readFileSync } from 'node:fs'
import { expect, test } from '@jest/globals'
import { internalCodes, problemCodes } from '../../api/document/problem-codes.ts'

const sources = globSync(['api/**/*.ts', 'models/**/*.ts', 'worker/host/consoles.ts', 'lib/*.ts'], {
  cwd: new URL('../..', import.meta.url),
  exclude: ['api/document/**'],
}).map((file) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8'))
const codeOf =
  /(?:new (?:Problem|ProbeProblem)|super)\(\s*\d{3},\s*'([a-z_]+)'|new Unauthenticated\([^)]*?,\s*'([a-z_]+)'|code = '([a-z_]+)',/g
// `models/uses.ts` makes its codes of titles.
const usedOf = /makeUsers<?.*\('([a-z_]+)'\)/g
const inSource = new Set(
  sources.flatMap((source) => [
    ...[...source.matchAll(codeOf)].map(([, ...codes]) => codes.find(Boolean) ?? ''),
    ...[...source.matchAll(usedOf)].map(([, title]) => `${title}_in_use`),
  ]),
)
const described = Object.values(problemCodes).flatMap((group) => Object.keys(group))

const written = (code: string): boolean =>
  inSource.has(code) || sources.some((source) => source.includes(`'${code}'`))

test('each code of a problem has its remedy in the document', () => {
  expect(inSource.size).toBeGreaterThan(100)
  expect([...inSource].filter((code) => !described.includes(code) && !internalCodes.includes(code))).toEqual(
    [],
  )
})

test('no code has a remedy twice, and none is described that nothing answers with', () => {
  expect(described.filter((code, index) => described.indexOf(code) !== index)).toEqual([])
  expect(described.filter((code) => !written(code))).toEqual([])
})
