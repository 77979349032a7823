import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { asRoot } from '../support/as-root.ts'
import { pdfOf } from '../support/documents/pdf.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// The examples of docs/retrieval.md, pasted into a shell.

let tenant: TestTenant
let shell: ReturnType<typeof openShell>
beforeAll(async () => {
  tenant = await makeTenant()
  const { id } = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  shell = openShell({ API: facts().api_url, TOKEN: tenant.owner.token, SUBNET: id })
})
afterAll(async () => {
  await shell?.close()
  await removeTenants()
})

asRoot('the examples of docs/retrieval.md', () => {
  test('answer as they say', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'keelson-retrieval-'))
    await writeFile(join(folder, 'report.pdf'), pdfOf([[{ text: 'The pump was mended.', x: 72, y: 700 }]]))
    const [helpers = ''] = blocksOf(await pageOf('vpcs'))
    await shell.paste(`cd ${folder}\n${helpers.slice(0, helpers.indexOf('\n\n'))}`)
    const [story = '', file = '', large = '', container = '', snapshots = '', ...rest] = blocksOf(
      await pageOf('retrieval'),
    )
    expect(rest).toEqual([])

    const told = (await shell.paste(story)).split('\n')
    expect(told.slice(0, 2)).toEqual(['succeeded', 'succeeded'])
    expect(JSON.parse(told.at(-1) ?? '')).toMatchObject({
      hits: [
        {
          document: { name: 'pumps.md' },
          text: 'Open the valve before you start the pump.',
          headings: ['Pumps', 'Start'],
          locator: { line: 5, last_line: 5 },
          metadata: { year: 2024 },
        },
      ],
    })
    expect(await shell.paste(file)).toBe('succeeded')
    expect(await shell.paste(large)).toBe('succeeded')
    // The image of stores has Node, too.
    expect(await shell.paste(container.replace('node:24-slim', 'keelson/rag:1'))).toContain(
      'before you start',
    )
    // A reader waits until the store is ready.
    expect(await shell.paste(snapshots)).toMatch(/^succeeded\n(succeeded|running)$/)
  })
})
