import { begin } from '../../../models/acceptance.ts'
import { acceptToolProbe, ToolProbe, toolProbeResource } from '../../../models/tools/tool-probes.ts'
import { toolOf } from '../../../models/tools/tools.ts'
import { toolsOf } from '../../support/clients/tools.ts'
import { Operation } from '../../support/client.ts'
import { makeMcpImage, servers } from '../../support/mcp-image.ts'
import { longMs, tenant, type Stories } from '../world.ts'

const probeOf = async (more: object = {}): Promise<Operation> => {
  await makeMcpImage()
  const given = { kind: 'mcp', transport: 'stdio', command: 'node', args: servers.revealing, ...more }
  const { id } = await toolsOf(tenant.owner).make(given)
  const by = { tenant_id: tenant.id, id: null }
  const { operation_id } = await acceptToolProbe(by, await toolOf(by, id))
  return new Operation(tenant.owner, `/api/v1/operations/${operation_id}`)
}

const deletionOf = async (): Promise<Operation> => {
  await (await probeOf()).success(longMs)
  const probe = await ToolProbe.findOne({ tenant_id: tenant.id, operation_id: null }).lean()
  const by = { tenant_id: tenant.id, id: null }
  const { operation } = await begin(by, toolProbeResource, probe?._id ?? '', 'delete')
  return new Operation(tenant.owner, `/api/v1/operations/${operation._id}`)
}

export const toolStories: Stories = {
  'createToolProbe.succeeded': () => probeOf(),
  'deleteToolProbe.deleted': deletionOf,
  'createToolProbe.failed': () => probeOf({ image: 'keelson/no-such-image:1' }),
}
