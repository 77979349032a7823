import { beforeAll, expect, test } from '@jest/globals'
import { Operation as Record } from '../../models/operations.ts'
import { asRoot } from '../support/as-root.ts'
import { Operation } from '../support/client.ts'
import { toolsOf } from '../support/clients/tools.ts'
import { eventually } from '../support/eventually.ts'
import { makeMcpImage, servers } from '../support/mcp-image.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// What remains of a probe if a process is killed in its middle: nothing.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
  await makeMcpImage()
})

const cases = (['worker', 'host', 'temporal', 'mongodb', 'api'] as const).flatMap((role) =>
  ['starting', 'asking', 'removing'].map((step) => ({ role, step })),
)

asRoot('a probe of a server of stdio', () => {
  test.each(sampled(cases, 2))(
    'leaves no microVM if $role is killed at the step "$step"',
    async ({ role, step }) => {
      const tools = toolsOf(tenant.owner)
      const { id } = await tools.make({
        kind: 'mcp',
        transport: 'stdio',
        command: 'node',
        args: servers.files,
      })
      const probing = tools.probe(id).catch(() => null) // a killed api answers nothing
      const tenant_id = tenant.id
      const record = await eventually(() =>
        Record.findOne({ tenant_id, resource_kind: 'tool_probe', open: true }).lean(),
      )
      const operation = new Operation(tenant.owner, `/api/v1/operations/${record._id}`)
      await eventually(async () => {
        const { step: present, state } = await operation.now()
        return present?.startsWith(step) || !['pending', 'running'].includes(state)
      })
      await platform.restartKilled(role)
      await probing
      const { state, error } = await operation.end()
      // A command that was asked is not asked again.
      if (role !== 'host') expect([state, error]).toEqual(['succeeded', null])
      const { items } = await tenant.owner.get<{ items: object[] }>('/api/v1/microvms')
      expect(items).toEqual([])
      expect(await tenant.holds()).toMatchObject({ cpu_milli: 0, memory_mib: 0 })
      expect(await tools.probe(id)).toMatchObject({ status: 200, body: { total: 14 } })
    },
  )
})
