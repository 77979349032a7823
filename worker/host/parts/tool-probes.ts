import { makeToolProbesOnHost } from '../../../activities/host/tool-probes.ts'
import type { InstanceEngine } from '../../../drivers/instances.ts'
import type { InternalApi } from '../internal-api.ts'
import type { HostPart } from '../part.ts'

interface Parts {
  engine: Pick<InstanceEngine, 'pipe'>
  api: Pick<InternalApi, 'toolCommand'>
}

/** The servers of stdio in microVMs of this host. */
export const toolProbesPart = ({ engine, api }: Parts): HostPart => ({
  name: 'tool_probes',
  activities: makeToolProbesOnHost({ engine, command: api.toolCommand }),
})
