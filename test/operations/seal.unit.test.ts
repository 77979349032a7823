import { randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, jest, test } from '@jest/globals'
import { roleSettings } from '../../config.ts'
import { keyIdOf, parseKeyRing, readKeyRing, sealJson, unsealJson } from '../../lib/seal.ts'
import { connectDatabase } from '../../models/database.ts'

// Master keys in the settings, and the values that they seal.

const newKey = () => randomBytes(32).toString('base64')
const ring = (text: string) => parseKeyRing(text, 'test')

describe('a sealed value', () => {
  const [k1, k2] = [`k1:${newKey()}`, `k2:${newKey()}`]
  const sealed = sealJson(ring(k1), { a: 'secret' }, 'here')

  test('opens with its key, also after a newer key has become current', () => {
    expect(keyIdOf(sealed)).toBe('k1')
    expect(unsealJson(ring(`${k2}\n${k1}`), sealed, 'here')).toEqual({ a: 'secret' })
    expect(keyIdOf(sealJson(ring(`${k2}\n${k1}`), 1, 'here'))).toBe('k2')
  })

  test('opens in no other place, with no other key, and not after a change', () => {
    expect(() => unsealJson(ring(k1), sealed, 'there')).toThrow()
    expect(() => unsealJson(ring(k2), sealed, 'here')).toThrow('no key with the id k1')
    expect(() => unsealJson(ring(`k1:${newKey()}`), sealed, 'here')).toThrow()
    const changed = `${sealed.slice(0, -1)}${sealed.endsWith('A') ? 'B' : 'A'}`
    expect(() => unsealJson(ring(k1), changed, 'here')).toThrow()
    expect(() => unsealJson(ring(k1), '-', 'here')).toThrow()
  })
})

describe('master keys', () => {
  test('are given one a line, or separated by commas; the first one seals', () => {
    const [one, other] = [newKey(), newKey()]
    for (const text of [`a:${one}\nb:${other}\n`, `a:${one},b:${other}`, ` a:${one} ,\n\nb:${other}`]) {
      const { current, keys } = ring(text)
      expect([current, [...keys.keys()]]).toEqual(['a', ['a', 'b']])
      expect(keys.get('b')?.export().toString('base64')).toBe(other)
    }
    expect(ring(one).current).toBe('1')
  })

  test.each([
    ['nothing', ''],
    ['too short a key', `k1:${randomBytes(16).toString('base64')}`],
    ['a key in hex', `k1:${randomBytes(32).toString('hex')}`],
    ['the id behind the key', `${newKey()}:k1`],
    ['an id with a dot, which ends ids', `k.1:${newKey()}`],
    ['the same id twice', `k1:${newKey()}\nk1:${newKey()}`],
  ])('are refused: %s, and the error names the setting, never the value', async (_, text) => {
    const KEELSON_MASTER_KEY = text || ','
    const error = await connectDatabase({
      KEELSON_MONGODB_URL: 'mongodb://127.0.0.1:1/none',
      KEELSON_MASTER_KEY,
      KEELSON_MASTER_KEY_FILE: '/none',
    }).then(
      () => 'none',
      (thrown: Error) => `${thrown.stack}`,
    )
    expect(error).toMatch(/^Error: KEELSON_MASTER_KEY: (no key|key [12] (is not|has the id))/)
    for (const part of text.split(/[:\n]/).filter(({ length }) => length > 5))
      expect(error).not.toContain(part)
  })
})

// docs/security.md: who is trusted with what. A role gets its own settings alone, and reads no other.
test.each([
  ['KEELSON_MASTER_KEY', ['api', 'worker', 'model-gateway', 'setup']],
  ['KEELSON_CODEC_KEY_FILE', ['api', 'worker', 'gateway', 'setup']],
  ['KEELSON_MONGODB_URL', ['api', 'worker', 'gateway', 'model-gateway', 'setup']],
  ['KEELSON_TEMPORAL_ADDRESS', ['api', 'worker', 'gateway', 'setup']],
  ['KEELSON_TEMPORAL_API_KEY', ['api', 'worker', 'gateway', 'setup']],
] as const)('only some roles are given %s: no host and no runner', (name, roles) => {
  const given = Object.entries(roleSettings).flatMap(([role, { shape }]) => (name in shape ? [role] : []))
  expect(given).toEqual(roles)
})

describe('a key file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'keelson-'))
  afterAll(() => rmSync(folder, { recursive: true }))

  test.each([
    ['600', 'nothing'],
    ['400', 'nothing'],
    ['640', 'a warning'],
    ['604', 'a warning'],
  ])('of mode %s logs %s', (mode, said) => {
    const path = join(folder, mode)
    writeFileSync(path, newKey())
    chmodSync(path, Number.parseInt(mode, 8))
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => {})
    readKeyRing(path)
    const expected = said === 'nothing' ? [] : [[expect.stringContaining(`mode ${mode}`)]]
    expect(warn.mock.calls).toEqual(expected)
    warn.mockRestore()
  })
})
