import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'
import { acceptedLicences, licencesByHand } from '../../script/lib/accepted.ts'

// The licences of the npm packages that Keelson runs with, and the notices that they ask to keep.

interface Locked {
  dev?: true
  license?: string
}
const root = fileURLToPath(new URL('../..', import.meta.url))
const read = (file: string): string => readFileSync(join(root, file), 'utf8')
const { packages } = JSON.parse(read('package-lock.json')) as { packages: Record<string, Locked> }
const nameOf = (path: string): string => path.slice(path.lastIndexOf('node_modules/') + 13)
const isHere = (path: string): boolean => existsSync(join(root, path))
/** What a release carries. A package for another platform is not here, and its licence is in the lock file at most. */
const carried = Object.entries(packages).filter(([path, { dev }]) => path !== '' && !dev)

const plain = (text: string): string => text.replaceAll(/\s+/g, ' ').trim()
const licenceOf = ([path, { license }]: [string, Locked]): string | undefined =>
  license ?? licencesByHand[nameOf(path)]

test('each package that Keelson runs with has a licence of the list', () => {
  const refused = carried
    .filter((one) => isHere(one[0]) && !acceptedLicences.includes(licenceOf(one) ?? ''))
    .map((one) => `${nameOf(one[0])}: ${licenceOf(one)}`)
  const elsewhere = carried
    .filter((one) => !isHere(one[0]) && one[1].license && !acceptedLicences.includes(one[1].license))
    .map(([path, { license }]) => `${nameOf(path)}: ${license}`)
  expect(carried.length).toBeGreaterThan(300)
  expect([...refused, ...elsewhere]).toEqual([])
})

test('the list has no licence, and no package by hand, that is not used', () => {
  const used = new Set(carried.map(licenceOf))
  expect(acceptedLicences.filter((licence) => !used.has(licence))).toEqual([])
  const names = carried.filter(([, { license }]) => !license).map(([path]) => nameOf(path))
  expect(Object.keys(licencesByHand).filter((name) => !names.includes(name))).toEqual([])
})

test('NOTICE has each notice of theirs', () => {
  const notice = plain(read('NOTICE'))
  const notices = carried.flatMap(([path]) =>
    isHere(path)
      ? readdirSync(join(root, path))
          .filter((file) => /notice/i.test(file))
          .map((file) => join(path, file))
      : [],
  )
  expect(notices.map((file) => basename(file))).toContain('NOTICE')
  expect(notices.filter((file) => !notice.includes(plain(read(file))))).toEqual([])
})

test('the project’s own licence is Apache-2.0, in package.json and in full', () => {
  expect(JSON.parse(read('package.json'))).toMatchObject({ license: 'Apache-2.0' })
  expect(packages['']).toMatchObject({ license: 'Apache-2.0' })
  expect(read('LICENSE')).toMatch(/^ +Apache License\n +Version 2\.0, January 2004\n/)
})
