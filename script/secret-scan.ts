import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { lintSource } from '@secretlint/core'
import { rules } from '@secretlint/secretlint-rule-preset-recommend'
import { type AcceptedSecret, acceptedSecrets } from './lib/accepted.ts'

// Looks for secrets in all files that git tracks, as they are in the work tree: private keys, tokens and keys of known
// services, passwords in URLs. With --history also in each version of each file in HEAD’s commits, which takes a minute
// or more. Names files, lines and rules, and never prints what it found.

export interface FoundSecret {
  /** From the repository's root; of a former version, with the version's id. */
  place: string
  file: string
  rule: string
}

// All versions of all files at once.
const mostBytes = 2 ** 31 - 1
const rulesBegin = '@secretlint/secretlint-rule-'
// No comment in a file accepts a secret: what is accepted is in one list, with its reason.
const config = {
  rules: rules
    .filter(({ meta }) => meta.id !== `${rulesBegin}filter-comments`)
    .map((rule) => ({ id: rule.meta.id, rule })),
}

/** Those in the files that git tracks in a folder. */
export async function secretsIn(folder: string): Promise<FoundSecret[]> {
  const found: FoundSecret[] = []
  for (const file of git(folder, ['ls-files', '-z']).toString().split('\0').filter(Boolean)) {
    const text = await readFile(join(folder, file), 'utf8').catch(unlessGone)
    if (text !== null) found.push(...(await secretsOf(text, file)))
  }
  return found
}

/** Those in all versions of all files, of the commits that lead to HEAD. */
export async function secretsInHistory(folder: string): Promise<FoundSecret[]> {
  const blobs = git(folder, ['rev-list', '--objects', '--filter=object:type=blob', 'HEAD']).toString()
  const named = [...blobs.matchAll(/^(\w+) (.+)$/gm)].map(([, id = '', file = '']) => ({ id, file }))
  const all = git(folder, ['cat-file', '--batch'], named.map(({ id }) => `${id}\n`).join(''))
  const found: FoundSecret[] = []
  let at = 0
  for (const { id, file } of named) {
    // `<id> blob <bytes>`, a line feed, the bytes, a line feed
    const begins = all.indexOf('\n', at) + 1
    const ends = begins + Number(all.toString('latin1', at, begins).split(' ')[2])
    const text = all.toString('utf8', begins, ends)
    found.push(...(await secretsOf(text, file, `${id.slice(0, 10)} `)))
    at = ends + 1
  }
  return found
}

/** What is not accepted, and what is accepted without need: it would cover a secret that comes later. */
export function secretFaults(found: FoundSecret[], accepted: AcceptedSecret[]): string[] {
  const isOf = (secret: FoundSecret, { file, rule }: AcceptedSecret): boolean =>
    secret.file === file && secret.rule === rule
  const open = found.filter((secret) => !accepted.some((one) => isOf(secret, one)))
  const idle = accepted.filter((one) => !found.some((secret) => isOf(secret, one)))
  return [
    ...open.map(({ place, rule }) => `${place}: ${rule}`),
    ...idle.map(({ file, rule }) => `${file}: ${rule} is accepted, but was not found`),
  ]
}

async function secretsOf(content: string, file: string, version = ''): Promise<FoundSecret[]> {
  const source = { filePath: file, content, ext: '.txt', contentType: 'text' as const }
  const { messages } = await lintSource({ source, options: { config, maskSecrets: true } })
  return messages.map(({ loc, ruleId }) => ({
    place: `${version}${file}:${loc.start.line}`,
    file,
    rule: ruleId.replace(rulesBegin, ''),
  }))
}

const git = (cwd: string, args: string[], input = ''): Buffer =>
  execFileSync('git', args, { cwd, input, maxBuffer: mostBytes })

/** A tracked file that the work tree lacks, a link that leads nowhere, and a submodule have no text. */
function unlessGone(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT' || error.code === 'EISDIR') return null
  throw error
}

if (import.meta.main) {
  const root = fileURLToPath(new URL('..', import.meta.url))
  if (existsSync(join(root, '.git'))) {
    const isDeep = process.argv.includes('--history')
    const found = [...(await secretsIn(root)), ...(isDeep ? await secretsInHistory(root) : [])]
    const faults = secretFaults(found, acceptedSecrets)
    for (const fault of faults) console.error(fault)
    if (faults.length > 0) process.exitCode = 1
  } else {
    console.log('not scanned: this is not a Git work tree')
  }
}
