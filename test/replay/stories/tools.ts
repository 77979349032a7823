import { acceptToolProbe } from '../../../models/tools/tool-probes.ts'
import { toolOf } from '../../../models/tools/tools.ts'
import { toolsOf } from '../../support/clients/tools.ts'
import { Operation } from '../../support/client.ts'
import { makeMcpImage, servers } from '../../support/mcp-image.ts'
import { tenant, type Stories } from '../world.ts'

const probeOf = async (more: object = {}): Promise<Operation> => {
  await makeMcpImage()
  const given = { kind: 'mcp', transport: 'stdio', command: 'node', args: servers.revealing, ...more }
  const { id } = await toolsOf(tenant.owner).make(given)
  const by = { tenant_id: tenant.id, id: null }
  const { operation_id } = await acceptToolProbe(by, await toolOf(by, id))
  return new Operation(tenant.owner, `/api/v1/operations/${operation_id}`)
}

export const toolStories: Stories = {
  'createToolProbe.succeeded': () => probeOf(),
  'createToolProbe.failed': () => probeOf({ image: 'keelson/no-such-image:1' }),
}
