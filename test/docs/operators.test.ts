import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Host } from '../../models/compute/hosts.ts'
import { describeHosts, third } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts' // it rotates keys of the whole stack
import { closeFurther } from '../support/hosts.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell, refusalsIn } from '../support/paste.ts'
import { facts } from '../support/stack.ts'
import { makeOperator } from '../support/tenants.ts'

// The examples of the pages for operators, pasted into a shell as an operator would.

let home: string
let shell: ReturnType<typeof openShell>
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'reader-'))
  shell = openShell({ API: facts().api_url, TOKEN: (await makeOperator()).token })
  await shell.paste(`cd '${home}'`)
})
afterAll(async () => {
  await shell?.close()
  await rm(home, { recursive: true })
})

test('docs/operators.md: a tenant, its limits and its deletion, and a new data key', async () => {
  const name = newId()
  const [made = '', found = '', limits = '', operations = '', deleted = '', rotated = '', ...rest] = blocksOf(
    await pageOf('operators'),
  ).map((block) =>
    block
      .replaceAll('ada@example.com', `${name}@example.com`)
      .replaceAll(/Example( |%20)(Ltd|plc)/g, `${name}$1$2`),
  )
  expect(rest).toEqual([])
  expect(JSON.parse(await shell.paste(made))).toMatchObject({
    name: `${name} Ltd`,
    limits: { max_cpu_cores: 16 },
    owner: { password: expect.any(String) },
  })
  const [listed = '', renamed = ''] = (await shell.paste(found)).split(/(?<=\})(?=\{"id)/)
  expect(JSON.parse(listed)).toMatchObject({ total: 1 })
  expect(JSON.parse(renamed)).toMatchObject({ name: `${name} plc` })
  expect(JSON.parse(await shell.paste(limits))).toMatchObject({ max_cpu_cores: 32, max_ram_gib: 64 })
  expect(JSON.parse(await shell.paste(operations))).toMatchObject({ items: [] })
  expect(JSON.parse(await shell.paste(deleted))).toMatchObject({ verb: 'delete', state: 'succeeded' })
  expect(JSON.parse(await shell.paste(rotated))).toMatchObject({ state: 'succeeded' })
})

describeHosts('docs/hosts.md', () => {
  test('a host is announced, one is emptied, and the announced one is deleted', async () => {
    const name = `host-${newId().slice(-12)}`
    const [announced = '', emptied = '', ...rest] = blocksOf(await pageOf('hosts')).map((block) =>
      block.replaceAll('host-2', name),
    )
    expect(rest).toEqual([])
    expect(JSON.parse(await shell.paste(announced))).toMatchObject({ name, token: expect.any(String) })
    // A host that never enrolled has nothing to evacuate: another one, which is empty, stands for it.
    await shell.paste(`ANNOUNCED=$HOST_ID HOST_ID=${third.id}`)
    const [helper = '', list = '', cordon = '', evacuate = '', uncordon = '', remove = ''] =
      emptied.split('\n')
    await shell.paste(helper)
    expect(await shell.paste(list)).toContain(name)
    expect(JSON.parse(await shell.paste(cordon))).toMatchObject({ id: third.id, cordoned: true })
    expect(refusalsIn(await shell.paste(evacuate))).toEqual([])
    await eventually(async () => (await Host.findById(third.id).lean())?.operation_id === null)
    expect(JSON.parse(await shell.paste(uncordon))).toMatchObject({ cordoned: false })
    expect(await shell.paste(`HOST_ID=$ANNOUNCED; ${remove}`)).toBe('')
    expect(await Host.exists({ name })).toBeNull()
    await closeFurther()
  })
})
