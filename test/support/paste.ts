import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { facts } from './stack.ts'

// The documents' examples, pasted into a shell as a reader would.

/** A shell into which blocks are pasted. Each returns what it has printed. */
export function openShell(env: Record<string, string>) {
  const shell = spawn('bash', ['-u'], {
    env: { PATH: process.env['PATH'] ?? '', ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines: string[] = []
  const input = createInterface(shell.stdout)
  input.on('line', (line) => lines.push(line))
  let count = 0
  return {
    async paste(block: string): Promise<string> {
      const mark = `pasted ${++count}`
      const from = lines.length
      shell.stdin.write(`${block}\nprintf '\\n%s\\n' '${mark}'\n`) // what was printed last may end no line
      while (!lines.slice(from).includes(mark)) await once(input, 'line')
      return lines.slice(from, lines.indexOf(mark, from)).join('\n').trimEnd()
    },
    async close(): Promise<void> {
      shell.stdin.end()
      if (shell.exitCode === null) await once(shell, 'exit')
    },
  }
}

/** A reader's shell, with the variables of README and the shorthands of docs/vpcs.md. */
export async function openReaderShell(token: string, env: Record<string, string> = {}) {
  const shell = openShell({ API: facts().api_url, TOKEN: token, ...env })
  const [helpers = ''] = blocksOf(await pageOf('vpcs'))
  await shell.paste(helpers.slice(0, helpers.indexOf('\n\n')))
  return shell
}

/** The states of the operations that a shell has waited for, as `ended` of docs/vpcs.md prints them. */
export const statesIn = (said: string): string[] => said.match(/(succeeded|failed|cancelled)$/gm) ?? []

/** The codes of the refusals in what a shell has printed. */
export const refusalsIn = (said: string): string[] =>
  [...said.matchAll(/"type":"urn:keelson:problem:(\w+)"/g)].map(([, code = '']) => code)
