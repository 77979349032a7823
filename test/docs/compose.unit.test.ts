import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect } from '@jest/globals'
import { asRoot } from '../support/as-root.ts'
import { testLong } from '../support/long-tests.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { layout } from '../support/stack.ts'

// The commands of docs/compose.md, which script/compose-proof.ts runs with an engine and ports of its own: services in
// containers, and on a machine without a registry images that are built first.

/** The stand-ins for public images take a quarter of an hour to build. */
const withinMs = 3_600_000

// The proof has an engine of its own, which only root can run.
asRoot('docs/compose.md', () => {
  testLong(
    'all roles start as services, carry out an operation, and leave nothing',
    async () => {
      const { PATH = '', HOME = '', KEELSON_TOOLS = '' } = process.env
      const ports = ['--port-base', String(layout.apiPort + 3000)]
      const { stdout } = await promisify(execFile)(process.execPath, ['script/compose-proof.ts', ...ports], {
        cwd: layout.repository,
        env: { PATH, HOME, KEELSON_TOOLS },
        maxBuffer: 2 ** 26,
      })
      const said = stdout.split('\n')
      const printed = blocksOf(await pageOf('compose')).flatMap((block) => block.split('\n').filter(Boolean))
      expect(said.filter((line) => line.startsWith('$ '))).toEqual(printed.map((line) => `$ ${line}`))
      expect(said).toContain('compose: passed')
    },
    withinMs,
  )
})
