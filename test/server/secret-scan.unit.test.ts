import { execFileSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { secretFaults, secretsIn, secretsInHistory } from '../../script/secret-scan.ts'

let folder: string
const git = (...args: string[]): void =>
  void execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], { cwd: folder })

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'secrets-'))
  await mkdir(join(folder, 'docs'))
  git('init', '--quiet')
})
afterEach(() => rm(folder, { recursive: true }))

// Made here, so that this file has none.
const privateKey = (): string =>
  generateKeyPairSync('rsa', {
    modulusLength: 2048,
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  }).privateKey
const token = `ghp_${'aB3dE6gH9jK2mN5pQ8sT'.repeat(2).slice(0, 36)}`

const planted: [string, string, string][] = [
  ['privatekey', 'docs/key.md', `a key:\n${privateKey()}`],
  ['github', 'client.ts', `\nexport const token = '${token}'\n`],
  [
    'database-connection-string',
    'urls.md',
    `\nmongodb://keelson:${'s3cr3t'.repeat(2)}@db.example.com:27017/all\n`,
  ],
]

test.each(planted)('the scan finds a planted secret (%s)', async (rule, file, text) => {
  await writeFile(join(folder, file), text)
  expect(await secretsIn(folder)).toEqual([]) // git does not track it
  git('add', '--all')
  const found = await secretsIn(folder)
  expect(secretFaults(found, [])).toEqual([`${file}:2: ${rule}`])
  expect(secretFaults(found, [{ file, rule, reason: 'it is a test' }])).toEqual([])
})

test('a comment in the file accepts nothing', async () => {
  await writeFile(join(folder, 'key.pem'), `# secretlint-disable\n${privateKey()}`)
  git('add', '--all')
  expect(await secretsIn(folder)).toHaveLength(1)
})

test('the scan of the history finds a secret that a later commit took away', async () => {
  await writeFile(join(folder, 'key.pem'), privateKey())
  git('add', '--all')
  git('commit', '--quiet', '--message', 'Add a key')
  git('rm', '--quiet', 'key.pem')
  git('commit', '--quiet', '--message', 'Remove the key')
  expect(await secretsIn(folder)).toEqual([])
  expect(await secretsInHistory(folder)).toMatchObject([{ file: 'key.pem', rule: 'privatekey' }])
})

test('what is accepted without need fails', () =>
  expect(secretFaults([], [{ file: 'key.pem', rule: 'privatekey', reason: 'there was one' }])).toEqual([
    'key.pem: privatekey is accepted, but was not found',
  ]))
